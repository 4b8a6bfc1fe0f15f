/* SPDX-License-Identifier: MIT */
/*
 * aqp.h - the receiver's QP scheduler at work (FLOCK, section 3.4.1): which
 * lanes of which handles are active, in one context. qpsched.h has the
 * arithmetic.
 *
 * A sender is a handle, known by its first lane. The first engine to find the
 * interval over shares the active QPs anew, by the U that lanes have gathered
 * in it; a new handle causes this at once. Lanes learn the result by atomic
 * words (lane_server.h), in whatever engine they are: a lane that is to rest is
 * declined when it next asks, a lane that is to work is woken and granted
 * credits. While no client asks for credits there is nothing to share, and no
 * next time.
 *
 * Thread rule: any thread; time comes in.
 */
#ifndef SKEIN_RPC_SCHED_AQP_H
#define SKEIN_RPC_SCHED_AQP_H

#include "env/env.h"
#include "rpc/server/lane_server.h"
#include "rpc/sched/qpsched.h"

#define AQP_INTERVAL_NS (10 * 1000 * 1000ull)

struct aqp_sender {
	struct list_node link;
	const void *key; /* only compared */
	struct list_node lanes;
	unsigned count;
	uint64_t util;
	uint64_t joined_ns;
	bool fresh; /* a newcomer: it was not there for a whole interval yet */
};

struct aqp {
	struct skein_env *env;
	uint32_t max;
	uint64_t interval_ns;
	_Atomic uint64_t due_ns; /* the next distribution; ENV_NEVER: none */
	atomic_bool changed;	 /* a sender has come or gone: share at once */
	struct env_mutex lock;
	struct list_node senders;
	unsigned count;
	struct qpsched_sender *table; /* room for at least `count` of them */
	unsigned room;
	uint64_t last_ns; /* of the last interval's end */
};

/* What skein_rpc_get_stats() tells of a handle. */
struct aqp_stats {
	uint64_t calls, messages, grants, declines, questions, degrees;
	unsigned lanes, active;
};

void aqp_init(struct aqp *a, struct skein_env *env, uint32_t max,
	      uint64_t interval_ns);
/* All lanes have been taken out. */
void aqp_fini(struct aqp *a);

/* A lane is served from now on; key: its sender's. -ENOMEM. */
int aqp_add(struct aqp *a, struct rpc_lane_server *lane, const void *key,
	    uint64_t now_ns);
/* When this has returned, no thread kicks the lane any more. */
void aqp_del(struct aqp *a, struct rpc_lane_server *lane);

/* A lane has answered a question: there is a next time. */
static inline void aqp_note(struct aqp *a, uint64_t now_ns)
{
	uint64_t never = ENV_NEVER;

	if (atomic_load_explicit(&a->due_ns, memory_order_relaxed) == never)
		atomic_compare_exchange_strong_explicit(&a->due_ns, &never,
							now_ns + a->interval_ns,
							memory_order_relaxed,
							memory_order_relaxed);
}

/* When aqp_poll() must run though nothing happens. */
static inline uint64_t aqp_due(struct aqp *a)
{
	return atomic_load_explicit(&a->due_ns, memory_order_relaxed);
}

void aqp_share(struct aqp *a, uint64_t now_ns);

/* In each round of an engine that serves lanes. */
static inline void aqp_poll(struct aqp *a, uint64_t now_ns)
{
	if (__builtin_expect(
		    now_ns >= atomic_load_explicit(&a->due_ns,
						   memory_order_relaxed) ||
			    atomic_load_explicit(&a->changed,
						 memory_order_relaxed),
		    0))
		aqp_share(a, now_ns);
}

/* False: no lane of this sender is served. */
bool aqp_stats(struct aqp *a, const void *key, struct aqp_stats *st);

#endif
