/* SPDX-License-Identifier: MIT */
/*
 * lane_server.h - the serving end of a lane of several: its credits, and what
 * it shares with the scheduler of QPs (aqp.h). docs/protocol/rpc.md, section
 * 11.
 *
 * A question is not answered in the callback that brings it: the messages sent
 * before it are counted first. An answer that finds no room is owed.
 *
 * Thread rule: the owner of the lane's engine. Fields marked below are shared
 * with the scheduler, which may run in another engine.
 */
#ifndef SKEIN_RPC_SERVER_LANE_SERVER_H
#define SKEIN_RPC_SERVER_LANE_SERVER_H

#include <stdatomic.h>

#include "base/list.h"
#include "rpc/sched/credit.h"
#include "rpc/port.h"

struct aqp_sender;

/* Written by the owner, read by any thread. */
struct rpc_lane_server_stats {
	_Atomic uint64_t calls, messages;
	_Atomic uint64_t grants, declines;
	_Atomic uint64_t questions, degrees; /* degrees: their sum */
};

struct rpc_lane_server {
	struct credit_grantor credit;
	uint64_t messages; /* counted so far */
	bool asked;	   /* a question waits for its answer */
	uint32_t degree;
	bool owes; /* an answer, or an unasked grant, is to be sent */
	uint32_t owed;
	struct rpc_lane_server_stats stats;

	/* To the scheduler: U since the scheduler last read it; is the lane
	 * active? */
	_Atomic uint64_t util;
	atomic_bool active;
	/* From the scheduler: grant when the client asks; make the lane
	 * active. */
	atomic_bool keep, wake;

	/* the scheduler's, under its lock */
	struct list_node link;
	struct aqp_sender *sender;
	uint64_t util_last;
	void (*kick)(void *arg); /* makes the owner run a round; any thread */
	void *kick_arg;
};

void rpc_lane_server_init(struct rpc_lane_server *l, uint32_t c,
			  void (*kick)(void *arg), void *kick_arg);
/* A question came. 0, or -SKEIN_EPEER: it is out of place. */
int rpc_lane_server_imm(struct rpc_lane_server *l, uint32_t value);
/* After a round of the server. calls, messages: received so far, and messages
 * count only if they had calls. drained: nothing that has arrived is left.
 * Counts, and decides on a question: 1 when it did, else 0, or -SKEIN_EPEER. */
int rpc_lane_server_round(struct rpc_lane_server *l, uint64_t calls,
			  uint64_t messages, bool drained);
/* Sends what is owed: 1 sent, 0 nothing or no room, or an error of the port. */
int rpc_lane_server_send(struct rpc_lane_server *l, struct rpc_port *port);

/* So many credits are spent that a question must be on its way: behind the
 * message that spent the last of them, or, where the client lacked a receive
 * credit, some time later. */
static inline bool rpc_lane_server_expects(const struct rpc_lane_server *l)
{
	return l->credit.left <= l->credit.c / 2 && l->credit.active &&
	       !l->asked && !l->owes;
}

/* Has the scheduler said something? For the look before a sleep. */
static inline bool rpc_lane_server_has_work(const struct rpc_lane_server *l)
{
	/* Relaxed: the scheduler sets it, then calls kick(), which has a
	 * fence. */
	return atomic_load_explicit(&l->wake, memory_order_relaxed);
}

#endif
