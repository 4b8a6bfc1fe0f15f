/* SPDX-License-Identifier: MIT */
/*
 * minner.h - what the parts of the model share: model.c (requests of RC, and
 * what all have in common), muc.c (UC).
 */
#ifndef SKEIN_TESTS_CONFORM_MINNER_H
#define SKEIN_TESTS_CONFORM_MINNER_H

#include "model.h"

enum m_deed {
	M_DID_EXEC,
	M_DID_GO,
	M_DID_END,
	M_DID_BLUR,
	M_DID_FLY
};

/* Something was done that changes what comes, or what memory may hold: the
 * search tells places by it. */
static inline void m_note(struct m_side *s, enum m_deed deed, uint64_t what)
{
	what = what << 3 | deed;
	s->history = (s->history ^ (what + 1)) * 0x9e3779b97f4a7c15ull;
	s->history ^= s->history >> 29;
}

/* Does by hear from? */
bool m_accepts(const struct m_side *from, const struct m_side *by);
/* Are the request's own pieces good? */
bool m_local_ok(const struct m_side *a, const struct m_req *r);
/* Are the pieces good, as far as len bytes reach? */
bool m_reach_ok(const struct m_side *s, const struct m_req *r, uint32_t len,
		int access);
/* What the responder finds wrong with a one-sided request, or success. */
int m_remote_check(const struct m_pair *m, int d, const struct m_req *r);
/* As it was before a region was deregistered under it. */
struct m_req m_in_its_prime(const struct m_req *r);
/* The bytes that a request sends. */
void m_gather(const struct m_side *s, const struct m_req *r,
	      m_byte out[MSG_MAX]);
void m_set_any(struct m_side *s, uint32_t at, uint32_t len);
void m_pieces_any(struct m_side *s, const struct wr *w);
/* Of a receive of side d. */
void m_recv_any(struct m_pair *m, int d, const struct wr *w);
/* The message takes the next receive; what its requester learns. */
int m_receive(struct m_pair *m, int d, const struct m_req *r,
	      const m_byte *data, bool other);
struct m_cqe *m_push(struct m_side *s, int q, uint64_t id, uint32_t pos,
		     int status);
/* Its region went while it was under way: some of it may have been done. */
void m_half_done(struct m_pair *m, int d, const struct m_req *r);
/* More than one packet? */
bool m_long(const struct m_pair *m, const struct m_req *r);
/* It fails by its own pieces: its first packets may have been sent. */
void m_begun(struct m_pair *m, int d, const struct m_req *r);
/* What side d has sent, or not, goes on without it. */
void m_launch(struct m_pair *m, int d);
/* A successful request's completion, if it asked for one. */
void m_done(struct m_side *s, const struct m_req *r);

/* msrq.c */
/* May side d's SRQ have been empty? Always true of a queue of its own. */
bool m_maybe_empty(const struct m_side *s);
/* The program posts to side d's SRQ. */
void m_srq_posted(struct m_side *s, const struct ev *e);

/* muc.c */
bool m_uc(const struct m_pair *m);
bool m_uc_can(const struct m_pair *m, int d, enum m_act act);
void m_uc_exec(struct m_pair *m, int d, enum m_act act);
void m_uc_ack(struct m_pair *m, int d);
void m_uc_to_sqe(struct m_pair *m, int d);

#endif
