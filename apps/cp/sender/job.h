/* SPDX-License-Identifier: MIT */
/*
 * job.h - the sender: one copy to many receivers, from opening it at each to
 * the commit (docs/cp.md, "Order of things"). A receiver that fails is left
 * out; the others get the copy.
 *
 * Thread rule: one thread runs it; `progress` is called by that thread.
 */
#ifndef CP_SENDER_JOB_H
#define CP_SENDER_JOB_H

#include "cp/sender/gather.h"
#include "cp/mcast_ops.h"
#include "cp/proto.h"
#include "cp/sender/targets.h"
#include "cp/sender/walk.h"

/* Progress, for display. */
struct cp_progress {
	const char *what;    /* "preparing", "sending", ... */
	uint64_t done;	     /* bytes that every receiver has */
	uint64_t sent;	     /* bytes read for sending */
	uint64_t total;	     /* of this round of sending; 0: not sending */
	const char *slowest; /* receiver; NULL: not known */
	unsigned receivers;
};

struct cp_result;

struct cp_job_attr {
	struct skein_ctx *ctx; /* with a background thread */
	const struct cp_mcast_ops *mcast;
	const struct cp_tree *tree;
	const struct cp_targets *targets;
	uint16_t port;	  /* of targets that name none */
	const char *path; /* of targets that name none; may be NULL */
	uint16_t flags;	  /* CP_FLAG_* */
	enum skein_mcast_algorithm algorithm;
	/* the sender's, then one a target: equal for the same rack; NULL: by
	 * the targets' names. Only for SKEIN_MCAST_HYBRID. */
	const uint32_t *racks;
	uint64_t limit_rate; /* bytes a second that are read; 0: none */
	uint64_t connect_timeout_ns;
	/* which targets must answer before the copy begins; when those do it
	 * waits for the others until greeting_ns have passed; 0: as long as
	 * connect_timeout_ns */
	enum cp_wait_for wait_for;
	uint64_t greeting_ns;
	/* how long a receiver may be silent while others wait for it; 0:
	 * multicast's default */
	uint64_t patience_ns;
	void (*progress)(void *arg, const struct cp_progress *p);
	/* the copy begins without this target; may be NULL */
	void (*missing)(void *arg, const struct cp_result *r);
	void *arg;
};

/* What became of one target. */
struct cp_result {
	char addr[CP_MEMBER_MAX + 1];
	int status; /* 0: verified and in place */
	/* of the stream, that it has; when it failed: had, as it last said */
	uint64_t bytes;
	char text[CP_ERR_MAX];
};

struct cp_totals {
	uint64_t blocks_sent; /* by the sender's own count: as often as read */
	uint64_t bytes_sent;
	uint32_t rounds;
	unsigned done, failed;
};

/* results: one a target, in their order. 0 when every target is done; -EIO when
 * some failed; another error, in err, when all ended for a reason of the
 * sender's. Blocks. */
int cp_job_run(const struct cp_job_attr *attr, struct cp_result *results,
	       struct cp_totals *totals, struct cp_err *err);

#endif
