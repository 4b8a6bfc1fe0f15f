/* SPDX-License-Identifier: MIT */
/*
 * mw.h - memory windows, and the requests about them: a part of a region under
 * a key of its own, that one request opens and another one shuts.
 * docs/soft.md, "Memory windows".
 */
#ifndef SKEIN_DEV_SOFT_MW_H
#define SKEIN_DEV_SOFT_MW_H

#include "dev/soft/qp/qp.h"

/* For ibv_context_ops: positive errnos, or errno. */
struct ibv_mw *soft_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
/* Type 1; the window's rkey becomes the new one, at once: if the request is
 * flushed before it begins, the bind before is still there, under its own key. */
int soft_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *b);
/* EBUSY: a process is stopped inside. The window is invalid all the same; it may
 * be bound, or deallocated, again. */
int soft_dealloc_mw(struct ibv_mw *mw);

/* Is it carried out at this end alone? */
static inline bool soft_is_local(const struct ibv_send_wr *wr)
{
	return wr->opcode == IBV_WR_LOCAL_INV || wr->opcode == IBV_WR_BIND_MW;
}

/* May such a request, or SEND_WITH_INV, be posted? */
bool soft_mw_valid(const struct soft_qp *q, const struct ibv_send_wr *wr);
/* A copy of the request is kept until later: it names objects by keys, as these
 * may go. */
void soft_mw_keep(struct ibv_send_wr *wr);
/* Carries out a request for which soft_is_local(). Returns what soft_exec()
 * does; one that is not parked yet never waits. One that waits has ended the bind
 * before, whatever becomes of it: it may fail, or be flushed. pos is its place
 * in the send queue. q->lock held. */
int soft_mw_exec(struct soft_qp *q, const struct ibv_send_wr *wr, bool parked,
		 uint32_t pos);
/* Is nobody inside the window any more that q's request invalidates? The
 * request is then carried out by the next soft_mw_exec(). s->lock held, and
 * q. */
void soft_mw_look(struct soft_qp *q);
/* The queue is flushed: the status of a request. A peer that meets the end of
 * its window breaks the QP, perhaps before the invalidation is looked at
 * again: it succeeds if all have left. */
int soft_mw_flush(struct soft_qp *q, const struct ibv_send_wr *wr,
		  uint32_t pos);
void soft_mw_wait_free(struct soft_qp *q);
/* SEND_WITH_INV: e is a key's entry in the table of its owner, to the QP that
 * the message is for. False: it is no window of type 2 of that QP, or is
 * invalid. */
bool soft_mw_shut(struct shm_mr *e, const struct soft_dest *to, uint32_t key);
/* Clears a region's life, so that no window is bound to it any more; false: one
 * is, and nothing was done. s->lock held. */
bool soft_mw_end(struct soft *s, uint32_t lkey);
/* The QP is gone: so are windows bound to it. s->lock held. */
void soft_mw_leave(struct soft *s, const struct soft_qp *q);

#endif
