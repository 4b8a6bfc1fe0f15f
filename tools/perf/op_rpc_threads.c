/* SPDX-License-Identifier: MIT */
/*
 * op_rpc_threads.c - rpc: many threads, few QPs, two ways.
 *
 * Combining: all threads use one handle, as an application does.
 *
 * Without combining, the baseline: each QP is a connection of its own, and its
 * threads post their own messages to it under a spin lock: one call a message,
 * or with --batch as many as the thread has at hand, as with combining. The
 * lock is the word that names an engine's owner: one compare-and-swap lets a
 * thread post, flush and poll, and there is no second lock inside. A thread
 * that waits for the lock pauses and yields as a thread in a combining queue
 * does. A thread that waits for an answer takes the lock when it is free and
 * polls for all, as the handle's dispatcher does.
 */
#include "perf/op_rpc.h"
#include "perf/ticks.h"

#include "base/fence.h"
#include "conn/conn.h"
#include "conn/handle/thread.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

#define PAUSES 64u /* as of a combining queue */
#define BATCH 64u  /* calls that a thread hands over at once, at most */

static void give_way(unsigned *round)
{
	if (++*round >= PAUSES)
		sched_yield();
	else
		cpu_pause();
}

/* --- combining ---------------------------------------------------------- */

/* May the thread begin another call of the slice? Each has its share; where a
 * degree is forced any thread may, so that none is left alone at the end, to wait
 * for company that does not come. */
static bool call_left(struct rpc_worker *rw)
{
	const struct perf_opts *o = &rw->w->p->o;

	if (!o->degree)
		return rw->issued < rw->w->n;
	if (!rw->ticket)
		rw->ticket = atomic_fetch_add(&rw->b->tickets, 1) <
			     rw->w->n * o->threads;
	return rw->ticket;
}

static void call_begun(struct rpc_worker *rw)
{
	rw->issued++;
	rw->ticket = false;
}

static int combined_lat(struct rpc_worker *rw)
{
	struct perf *p = rw->w->p;

	while (call_left(rw)) {
		uint64_t t0 = ticks_now();
		int rc = skein_rpc_call(rw->conn, RPC_ECHO, rw->req, p->size,
					rw->resp, p->size, perf_patience(p),
					NULL);

		if (rc)
			return rpc_call_failed(rw, rc);
		rw->sample_t0 = t0;
		rpc_sample(rw, ticks_now());
		call_begun(rw);
	}
	return 0;
}

/* One writer at a time, in its own thread or under the lock: no locked
 * operation. Release pairs with answers(): status is seen. */
static void on_answer(void *arg, const struct skein_rpc_result *res)
{
	struct rpc_worker *rw = arg;

	if (res->status && !rw->status)
		rw->status = res->status;
	else if (!res->status)
		memcpy(rw->resp, res->data, res->len);
	atomic_store_explicit(
		&rw->answered,
		atomic_load_explicit(&rw->answered, memory_order_relaxed) + 1,
		memory_order_release);
}

static void on_answer_timed(void *arg, const struct skein_rpc_result *res)
{
	rpc_sample(arg, ticks_now());
	on_answer(arg, res);
}

static uint64_t answers(struct rpc_worker *rw)
{
	return atomic_load_explicit(&rw->answered, memory_order_acquire);
}

static int issue(struct rpc_worker *rw, bool timed)
{
	struct perf *p = rw->w->p;
	struct skein_rpc_entry call = {.id = RPC_ECHO,
				       .req = rw->req,
				       .req_len = p->size,
				       .resp_max = p->size,
				       .timeout_ns = perf_patience(p),
				       .done = timed ? on_answer_timed
						     : on_answer,
				       .arg = rw};
	unsigned begun;
	int rc;

	if (timed)
		rw->sample_t0 = ticks_now();
	/* A thread's calls do not gather where the degree is forced. */
	if (p->o.degree)
		rc = skein_rpc_call_batch(rw->conn, &call, 1, &begun);
	else
		rc = skein_rpc_call_async(rw->conn, call.id, call.req,
					  call.req_len, call.resp_max,
					  call.timeout_ns, call.done, call.arg);
	if (rc == 0)
		call_begun(rw);
	else if (timed)
		rw->sample_t0 = 0;
	return rc;
}

static bool may_issue(struct rpc_worker *rw)
{
	return rw->issued - answers(rw) < rw->w->p->o.window && call_left(rw);
}

static bool sampled(const struct rpc_worker *rw)
{
	return rw->issued % RPC_SAMPLE_EVERY == 0 && !rw->sample_t0;
}

/* With --batch: as many as the window has room for, together. */
static int issue_batch(struct rpc_worker *rw)
{
	struct skein_rpc_entry calls[BATCH];
	struct perf *p = rw->w->p;
	uint64_t room = p->o.window - (rw->issued - answers(rw)),
		 left = rw->w->n - rw->issued, n = p->o.batch;
	unsigned begun = 0;
	bool timed;
	int rc;

	n = n < room ? n : room;
	n = n < left ? n : left;
	n = n < BATCH ? n : BATCH;
	for (uint64_t i = 0; i < n; i++)
		calls[i] =
			(struct skein_rpc_entry){.id = RPC_ECHO,
						 .req = rw->req,
						 .req_len = p->size,
						 .resp_max = p->size,
						 .timeout_ns = perf_patience(p),
						 .done = on_answer,
						 .arg = rw};
	/* One of so many calls, the first of its batch. */
	timed = !rw->sample_t0 && (rw->issued + n - 1) / RPC_SAMPLE_EVERY !=
					  (rw->issued - 1) / RPC_SAMPLE_EVERY;
	if (timed) {
		calls[0].done = on_answer_timed;
		rw->sample_t0 = ticks_now();
	}
	rc = skein_rpc_call_batch(rw->conn, calls, (unsigned)n, &begun);
	if (rc && timed)
		rw->sample_t0 = 0;
	rw->issued += begun;
	return !rc && begun < n ? -EAGAIN : rc;
}

static int combined_issue(struct rpc_worker *rw)
{
	return rw->w->p->o.batch > 1 ? issue_batch(rw) : issue(rw, sampled(rw));
}

static int combined_rate(struct rpc_worker *rw)
{
	unsigned dry = 0;
	int n, rc = 0;

	while (call_left(rw) || answers(rw) < rw->issued) {
		while (rc == 0 && may_issue(rw))
			rc = combined_issue(rw);
		if (rc && rc != -EAGAIN)
			return rpc_call_failed(rw, rc);
		rc = 0;
		n = skein_rpc_reap(rw->conn, perf_patience(rw->w->p));
		if (n < 0)
			return rpc_call_failed(rw, n);
		if (rw->status)
			return rpc_call_failed(rw, rw->status);
		if (n) {
			perf_spun(rw->w);
			dry = 0;
		} else if (!perf_spin(rw->w)) {
			return rw->w->rc;
		} else {
			give_way(&dry); /* no room, and nothing under way */
		}
		perf_chunk(rw->w, answers(rw));
	}
	return 0;
}

/* --- the baseline ------------------------------------------------------- */

static void lock(struct engine *e)
{
	unsigned round = 0;

	while (!engine_try_enter(e))
		give_way(&round);
}

static int locked_issue(struct rpc_worker *rw)
{
	const struct perf_opts *o = &rw->w->p->o;
	struct engine *e = conn_engine(rw->conn);
	int rc;

	lock(e);
	rc = o->batch > 1 ? issue_batch(rw) : issue(rw, o->rate && sampled(rw));
	engine_leave(e);
	return rc;
}

/* A round of the engine, if nobody else is at it; how many things moved. */
static int locked_poll(struct rpc_worker *rw)
{
	struct engine *e = conn_engine(rw->conn);
	int moved;

	if (!engine_try_enter(e))
		return conn_replies_reap(rw->conn);
	moved = engine_poll(e);
	engine_leave(e);
	/* What another thread's round has brought. */
	return moved + conn_replies_reap(rw->conn);
}

/* Until more than `before` were answered. */
static int await(struct rpc_worker *rw, uint64_t before)
{
	struct skein_env *env = conn_env(rw->conn);
	unsigned round = 0;

	while (answers(rw) == before) {
		if (locked_poll(rw)) {
			round = 0;
			continue;
		}
		if (!perf_spin(rw->w))
			return rw->w->rc;
		(void)env_idle(env, rw->idle, round++);
	}
	perf_spun(rw->w);
	return rw->status ? rpc_call_failed(rw, rw->status) : 0;
}

static int locked_one(struct rpc_worker *rw)
{
	unsigned round = 0;
	int rc;

	for (;;) {
		rc = locked_issue(rw);
		if (rc != -EAGAIN)
			return rc;
		(void)locked_poll(rw);
		give_way(&round);
	}
}

static int locked_lat(struct rpc_worker *rw)
{
	int rc;

	for (uint64_t i = 0; i < rw->w->n; i++) {
		uint64_t t0 = ticks_now();

		rc = locked_one(rw);
		if (rc)
			return rpc_call_failed(rw, rc);
		rc = await(rw, i);
		if (rc)
			return rc;
		rw->sample_t0 = t0;
		rpc_sample(rw, ticks_now());
	}
	return 0;
}

static int locked_rate(struct rpc_worker *rw)
{
	int rc = 0;

	for (;;) {
		uint64_t before = answers(rw);

		if (before == rw->w->n)
			return 0;
		while (rc == 0 && may_issue(rw))
			rc = locked_issue(rw);
		if (rc && rc != -EAGAIN)
			return rpc_call_failed(rw, rc);
		rc = 0;
		if (rw->issued > before)
			rc = await(rw, before);
		else
			(void)locked_poll(rw);
		if (rc)
			return rc;
		perf_chunk(rw->w, answers(rw));
	}
}

/* --- both --------------------------------------------------------------- */

int rpc_lane_client_client(struct rpc_worker *rw)
{
	bool rate = rw->w->p->o.rate;

	rw->issued = 0;
	rw->ticket = false;
	rw->sample_t0 = 0;
	atomic_store(&rw->answered, 0);
	if (rw->w->p->o.no_combining)
		return rate ? locked_rate(rw) : locked_lat(rw);
	return rate ? combined_rate(rw) : combined_lat(rw);
}

/* A thread that waits without combining idles as an engine of that wait mode
 * does. */
int rpc_lane_client_ready(struct rpc_bench *b)
{
	struct perf *p = b->p;
	int rc = 0;

	atomic_store(&b->running, p->o.threads);
	for (unsigned i = 0; p->o.no_combining && i < p->o.threads && !rc; i++)
		rc = env_waiter_new(conn_env(b->conns[0]),
				    p->o.wait == PERF_WAIT_SPIN ? ENV_WAIT_SPIN
								: ENV_WAIT_POLL,
				    &b->workers[i].idle);
	return rc ? perf_fail(p, rc, "cannot make a waiter: %s",
			      skein_strerror(rc))
		  : 0;
}

void rpc_lane_client_close(struct rpc_bench *b)
{
	struct skein_conn *conn = b->conns ? b->conns[0] : NULL;

	for (unsigned i = 0; conn && i < b->p->o.threads; i++)
		env_waiter_free(conn_env(conn), b->workers[i].idle);
}
