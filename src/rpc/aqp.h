/* SPDX-License-Identifier: MIT */
/*
 * aqp.h - the receiver's QP scheduler at work (FLOCK, section 3.4.1): which
 * lanes of which handles are active, in one context. qpsched.h has the
 * arithmetic.
 *
 * A sender is a handle, known by its first lane. Every interval the engine that
 * finds it over shares the active QPs anew, by the U that lanes have gathered
 * since; a handle that has just come makes it be done at once. Lanes learn it
 * by atomic words (lane_server.h), in whatever engine they are: one that is to
 * rest is declined when it next asks, one that is to work is woken and granted
 * credits. Nobody who serves has work to do when nobody asks for credits: then
 * there is no next time either.
 *
 * Thread rule: any thread; time comes in.
 */
#ifndef SKEIN_RPC_AQP_H
#define SKEIN_RPC_AQP_H

#include "env/env.h"
#include "rpc/lane_server.h"
#include "rpc/qpsched.h"

#define AQP_INTERVAL_NS (10 * 1000 * 1000ull)

struct aqp_sender {
	struct list_node link;
	const void *key; /* never looked into */
	struct list_node lanes;
	unsigned count;
	uint64_t util;
	uint64_t joined_ns;
	bool fresh; /* not there for a whole interval yet: a newcomer */
};

struct aqp {
	struct skein_env *env;
	uint32_t max;
	uint64_t interval_ns;
	_Atomic uint64_t due_ns; /* the next distribution; ENV_NEVER: none */
	atomic_bool changed;	 /* a sender has come or gone: at once */
	struct env_mutex lock;
	struct list_node senders;
	unsigned count;
	struct qpsched_sender *table; /* count of them, at least */
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

/* A lane is served from now on; key: of its sender. -ENOMEM. */
int aqp_add(struct aqp *a, struct rpc_lane_server *lane, const void *key,
	    uint64_t now_ns);
/* When it has returned nobody kicks the lane any more. */
void aqp_del(struct aqp *a, struct rpc_lane_server *lane);

/* A lane has answered a question: there will be a next time. */
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
