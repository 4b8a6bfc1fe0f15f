/* SPDX-License-Identifier: MIT */
/*
 * op_rpc.h - rpc: what the ways of sharing have in common.
 *
 *	op_rpc.c	set-up; each thread a connection of its own
 *	op_rpc_threads.c	all threads one handle, and the baseline for it
 */
#ifndef SKEIN_TOOLS_PERF_OP_RPC_H
#define SKEIN_TOOLS_PERF_OP_RPC_H

#include "out.h"
#include "perf/perf.h"

#include "skein/skein.h"

#include <stdatomic.h>

struct env_waiter;

enum {
	RPC_ECHO = 1,
	RPC_END = 2,
	RPC_SAMPLE_EVERY = 16, /* calls of a rate for one that is timed */
};

struct rpc_worker {
	struct perf_worker *w;
	struct rpc_bench *b;
	struct skein_engine *engine;
	struct skein_conn *conn; /* the client's: rpc_bench has it */
	void *req;
	void *resp;
	uint32_t outstanding;
	uint64_t issued;
	bool ticket; /* to make one more call */
	uint64_t done;
	/* The same where threads share: without combining another thread may
	 * take the answer in, under the lock of the QP. */
	_Atomic uint64_t answered;
	uint64_t sample_t0; /* 0: none under way */
	int status;	    /* of the first call that failed */
	struct env_waiter *idle;
};

struct rpc_bench {
	struct perf *p;
	struct out_log log;
	struct skein_ctx *ctx;
	struct skein_listener *listener;
	struct rpc_worker *workers;
	struct skein_engine **engines;
	unsigned n_engines;
	struct skein_conn **conns; /* client's */
	unsigned n_conns;
	/* Where a degree is forced: a call alone in its message would wait. */
	struct skein_conn *end_conn;
	_Atomic uint64_t tickets; /* calls of a slice that were begun */
	atomic_uint running;   /* workers that have not finished their slice */
	_Atomic uint64_t ends; /* RPC_END calls so far, on conns[] */
};

/* Remembers it, with the connection's story. Returns rc. */
int rpc_call_failed(struct rpc_worker *rw, int rc);

/* op_rpc_threads.c: the client's, when p->o.shared. */
int rpc_lane_client_ready(struct rpc_bench *b);
void rpc_lane_client_close(struct rpc_bench *b);
int rpc_lane_client_client(struct rpc_worker *rw);

/* A timed call has ended. */
static inline void rpc_sample(struct rpc_worker *rw, uint64_t now)
{
	hist_record(rw->w->lat, (uint64_t)((double)(now - rw->sample_t0) *
					   rw->w->p->ns_per_tick));
	rw->sample_t0 = 0;
}

#endif
