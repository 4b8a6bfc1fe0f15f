/* SPDX-License-Identifier: MIT */
/*
 * session.h - one copy at a receiver: the calls of its sender drive it from
 * phase to phase, a thread of its own does what blocks (disk, opening groups),
 * and blocks of the multicast wait for that thread in the group's ring.
 *
 * Thread rule: calls come from the thread that runs the context's engine; the
 * worker is the session's own; new, status, wait and free are the owner's.
 */
#ifndef CP_RECEIVER_SESSION_H
#define CP_RECEIVER_SESSION_H

#include "cp/allow.h"
#include "cp/mcast_ops.h"
#include "cp/proto.h"

struct cp_session;

struct cp_session_attr {
	struct skein_ctx *ctx;
	const struct cp_mcast_ops *mcast;
	int root;	  /* of what is served; outlives the session */
	const char *path; /* below it */
	const struct cp_open *open;
	/* hosts that may be members; NULL: any. Outlives the session. */
	const struct cp_allow *allow;
	uint64_t max_size; /* bytes of data of one copy; 0: any */
	/* The worker has ended: the session may be freed. From that thread. */
	void (*ended)(void *arg, struct cp_session *s);
	void *arg;
};

int cp_session_new(const struct cp_session_attr *attr, struct cp_session **s);
/* The worker has ended, or cp_session_drop() was called before; waits for it. */
void cp_session_free(struct cp_session *s);

/* More of the copy's members: only these are dialled. A host that is not
 * allowed ends the session, and the status says which. */
int cp_session_members(struct cp_session *s, struct bytes_in *in);
/* The sender's calls: 0, or a negative error that is its status. None
 * blocks. */
int cp_session_manifest(struct cp_session *s, uint64_t off, const void *data,
			size_t len);
void cp_session_status(struct cp_session *s, struct cp_status *st);
int cp_session_have(struct cp_session *s, uint64_t first, uint32_t count,
		    struct bytes_out *out);
int cp_session_round(struct cp_session *s, struct bytes_in *in);
int cp_session_sums(struct cp_session *s, const struct cp_list *list,
		    struct bytes_in *in);
int cp_session_files(struct cp_session *s, const struct cp_list *list,
		     struct bytes_in *in);
int cp_session_check(struct cp_session *s);
int cp_session_commit(struct cp_session *s);
/* The sender has left, or does not want it any more: ends as soon as what is
 * under way allows. The stage is kept when something is in it. */
void cp_session_drop(struct cp_session *s, const char *why);

#endif
