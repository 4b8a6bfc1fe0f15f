/* SPDX-License-Identifier: MIT */
/*
 * lane_server.c - the serving end of a lane of several; see lane_server.h.
 */
#include <errno.h>

#include "conn/conn.h"
#include "rpc/server/lane_server.h"
#include <skein/error.h>

/* One writer: no locked operation is needed. */
static void add(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_store_explicit(
		counter,
		atomic_load_explicit(counter, memory_order_relaxed) + n,
		memory_order_relaxed);
}

void rpc_lane_server_init(struct rpc_lane_server *l, uint32_t c,
			  void (*kick)(void *arg), void *kick_arg)
{
	*l = (struct rpc_lane_server){.kick = kick, .kick_arg = kick_arg};
	credit_grantor_init(&l->credit, c);
	atomic_init(&l->active, true);
	atomic_init(&l->keep, true);
}

int rpc_lane_server_imm(struct rpc_lane_server *l, uint32_t value)
{
	uint32_t degree = RPC_CREDITS_DEGREE(value);

	if (l->asked || l->owes || !l->credit.active || !degree ||
	    degree > CREDIT_DEGREES)
		return -SKEIN_EPEER;
	l->asked = true;
	l->degree = degree;
	/* The credits that the client spent on memory operations, which the
	 * server does not see. */
	return credit_used(&l->credit, RPC_CREDITS_OPS(value));
}

static void owe(struct rpc_lane_server *l, uint32_t n)
{
	/* It replaces a decline that has not left yet. */
	l->owes = true;
	l->owed = n;
}

static int answer(struct rpc_lane_server *l)
{
	uint32_t granted;
	int rc;

	/* Relaxed: it does not matter when it is seen. */
	l->credit.keep = atomic_load_explicit(&l->keep, memory_order_relaxed);
	rc = credit_asked(&l->credit, l->degree, &granted);
	if (rc)
		return rc;
	l->asked = false;
	/* U for the scheduler, which does not read credit.util. */
	atomic_fetch_add_explicit(&l->util, l->degree, memory_order_relaxed);
	add(&l->stats.questions, 1);
	add(&l->stats.degrees, l->degree);
	add(granted ? &l->stats.grants : &l->stats.declines, 1);
	owe(l, granted);
	return 1;
}

static void awake(struct rpc_lane_server *l)
{
	uint32_t n;

	atomic_store_explicit(&l->wake, false, memory_order_relaxed);
	/* The scheduler may have changed its decision. */
	if (!atomic_load_explicit(&l->keep, memory_order_relaxed))
		return;
	n = credit_activate(&l->credit);
	if (!n)
		return; /* it is active */
	add(&l->stats.grants, 1);
	owe(l, n);
}

int rpc_lane_server_round(struct rpc_lane_server *l, uint64_t calls,
			  uint64_t messages, bool drained)
{
	int rc = 0;

	if (messages != l->messages) {
		if (messages - l->messages > UINT32_MAX ||
		    credit_used(&l->credit, (uint32_t)(messages - l->messages)))
			return -SKEIN_EPEER;
		l->messages = messages;
		atomic_store_explicit(&l->stats.calls, calls,
				      memory_order_relaxed);
		atomic_store_explicit(&l->stats.messages, messages,
				      memory_order_relaxed);
	}
	if (l->asked) {
		if (l->credit.left <= l->credit.c / 2)
			rc = answer(l);
		else if (drained)
			rc = -SKEIN_EPEER;
	}
	if (rc >= 0 && rpc_lane_server_has_work(l))
		awake(l);
	atomic_store_explicit(&l->active, l->credit.active,
			      memory_order_relaxed);
	return rc;
}

int rpc_lane_server_send(struct rpc_lane_server *l, struct rpc_port *port)
{
	int rc;

	if (!l->owes)
		return 0;
	rc = port->ops->signal(port, CONN_IMM(CONN_IMM_CREDITS, l->owed));
	if (rc)
		return rc == -EAGAIN ? 0 : rc;
	l->owes = false;
	return 1;
}
