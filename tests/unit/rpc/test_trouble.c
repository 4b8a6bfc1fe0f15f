/* SPDX-License-Identifier: MIT */
/*
 * test_trouble.c - handles with lanes in trouble: a server that lies, a
 * connection that ends under a thread that is about to use it, threads that end
 * where it hurts.
 */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conn/state.h"
#include "rpc/client/lane_client.h"
#include "unit/cm.h"
#include "unit/rpc/hold.h"
#include "unit/patience.h"
#include <skein/skein.h>

#define PATIENCE patience_ns(30)
#define LARGE (200u << 10)

struct world {
	struct skein_ctx *server, *client;
	struct skein_listener *listener;
	struct skein_conn *conn;
	struct hold hold;
};

static void listen_at(struct world *w, const char *addr)
{
	assert_int_equal(
		skein_listener_open(w->server, addr, NULL, &w->listener), 0);
}

static void world_open_in(struct world *w, struct skein_conn_attr *attr,
			  bool background)
{
	struct skein_ctx_attr ctx = {.size = sizeof(ctx),
				     .device = "soft",
				     .log = hold_quiet,
				     .background = true};

	memset(w, 0, sizeof(*w));
	assert_int_equal(skein_ctx_open(&ctx, &w->server), 0);
	ctx.background = background;
	assert_int_equal(skein_ctx_open(&ctx, &w->client), 0);
	hold_serve(&w->hold, w->server);
	listen_at(w, "127.0.0.1:0");
	attr->size = sizeof(*attr);
	assert_int_equal(skein_conn_open(w->client,
					 skein_listener_addr(w->listener), attr,
					 &w->conn),
			 0);
}

static void world_open(struct world *w, struct skein_conn_attr *attr)
{
	world_open_in(w, attr, false);
}

/* The server's memory, and the client's to write it from. */
static void words(struct world *w, struct skein_mem **local,
		  struct skein_remote *remote)
{
	struct skein_mem *shared;

	assert_int_equal(skein_mem_new(w->server, 4096, &shared), 0);
	assert_int_equal(skein_mem_share(shared, "words",
					 SKEIN_MEM_READ | SKEIN_MEM_WRITE),
			 0);
	assert_int_equal(skein_mem_new(w->client, 4096, local), 0);
	remote->size = sizeof(*remote);
	assert_int_equal(skein_mem_find(w->conn, "words", PATIENCE, remote), 0);
}

static void world_close(struct world *w)
{
	skein_conn_close(w->conn, SKEIN_S(1));
	skein_ctx_close(w->client);
	skein_ctx_close(w->server);
}

static int call(struct world *w, size_t len)
{
	uint8_t *buf = calloc(1, len);
	int rc;

	rc = skein_rpc_call(w->conn, ECHO, buf, len, buf, len, PATIENCE, NULL);
	free(buf);
	return rc;
}

struct end {
	int n;
	enum skein_outcome outcome;
	int status;
	size_t len;
};

static void on_end(void *arg, const struct skein_rpc_result *res)
{
	struct end *e = arg;

	e->n++;
	e->outcome = res->outcome;
	e->status = res->status;
	e->len = res->len;
}

/* --- a server that lies ------------------------------------------------- */

/* As the other end would WRITE it: a result in the message that is longer than
 * what was reserved for it. */
static void forge(struct rpc_conn *rc, uint32_t size)
{
	uint64_t pos = atomic_load(&rc->client.rx.resp_head);
	uint8_t *at = rc->port.base + rpc_geom_resp(&rc->port.geom);
	struct rpc_resp_meta meta = {.size = size};

	memcpy(at + sizeof(struct rpc_hdr), &meta, sizeof(meta));
	rpc_msg_seal(at,
		     (uint32_t)(sizeof(struct rpc_hdr) + sizeof(meta)) + size +
			     RPC_TAIL_LEN,
		     1, 0, rpc_canary(&rc->port.secret_in, pos),
		     rc->port.tail_in);
}

static void test_result_too_long(void **state)
{
	struct skein_conn_attr attr = {.qps = 1};
	struct end end = {0};
	struct rpc_conn *rc;
	struct world w;

	world_open(&w, &attr);
	assert_int_equal(skein_rpc_call_async(w.conn, HOLD, "x", 1, 1 << 20,
					      PATIENCE, on_end, &end),
			 0);
	while (!atomic_load(&w.hold.req))
		skein_ctx_progress(w.client);
	rc = rpc_conn_of(w.conn);
	/* More than replies has, with its spill. */
	forge(rc, rc->port.geom.resp_lines * RPC_LINE + 12288);
	while (!end.n)
		assert_true(skein_rpc_reap(w.conn, PATIENCE) >= 0);
	assert_int_equal(end.outcome, SKEIN_UNKNOWN);
	assert_int_equal(end.status, -SKEIN_EPEER);
	assert_int_equal(end.len, 0);
	while (skein_conn_get_state(w.conn) != SKEIN_CONN_BROKEN)
		skein_ctx_progress(w.client);
	assert_int_equal(skein_conn_error(w.conn, NULL), -SKEIN_EPEER);
	assert_int_equal(end.n, 1);
	world_close(&w);
}

/* --- a connection that ends --------------------------------------------- */

/* A thread that has seen the connection ready, and then does not run until it
 * is down. */
static void test_late(void **state)
{
	struct skein_conn_attr attr = {.qps = 2};
	static uint8_t large[LARGE];
	struct end end = {0};
	struct world w;

	world_open(&w, &attr);
	assert_int_equal(call(&w, 8), 0);
	skein_listener_close(w.listener);
	while (skein_conn_get_state(w.conn) != SKEIN_CONN_BROKEN)
		skein_ctx_progress(w.client);
	conn_set_state(w.conn, SKEIN_CONN_READY);
	assert_int_equal(skein_rpc_call_async(w.conn, ECHO, "x", 1, 8, PATIENCE,
					      on_end, &end),
			 -ENOTCONN);
	assert_int_equal(skein_rpc_call_async(w.conn, ECHO, large, LARGE, 8,
					      PATIENCE, on_end, &end),
			 0);
	for (int i = 0; i < 3; i++)
		skein_ctx_progress(w.client);
	assert_int_equal(end.n, 1);
	assert_int_equal(end.outcome, SKEIN_NOT_SENT);
	assert_int_equal(end.status, -ENOTCONN);
	conn_set_state(w.conn, SKEIN_CONN_BROKEN);
	world_close(&w);
}

/* What a thread may be about to use is there as long as the handle, however
 * many attempts to connect again fail. */
static void stays(unsigned qps)
{
	struct skein_conn_attr attr = {.qps = qps, .reconnect = true};
	struct rpc_conn *were[4] = {0};
	char addr[64];
	struct world w;
	unsigned i, lanes;

	world_open(&w, &attr);
	assert_int_equal(call(&w, 8), 0);
	lanes = conn_lanes(w.conn);
	for (i = 0; i < lanes; i++)
		were[i] = rpc_conn_of(conn_lane(w.conn, i));
	snprintf(addr, sizeof(addr), "%s", skein_listener_addr(w.listener));
	skein_listener_close(w.listener);
	while (skein_conn_get_state(w.conn) != SKEIN_CONN_CONNECTING)
		skein_ctx_progress(w.client);
	for (i = 0; i < 3; i++) {
		while (w.conn->phase == CONN_P_PAUSE)
			skein_ctx_progress(w.client);
		while (w.conn->phase != CONN_P_PAUSE)
			skein_ctx_progress(w.client);
	}
	for (i = 0; i < lanes; i++)
		assert_ptr_equal(were[i], rpc_conn_of(conn_lane(w.conn, i)));
	assert_int_equal(call(&w, 8), -ENOTCONN);
	/* A leader has asked for its end, and it went down by itself. */
	for (i = 0; qps && i < lanes; i++)
		atomic_store(&conn_lane(w.conn, i)->sendq->broke, -EIO);
	listen_at(&w, addr);
	while (skein_conn_get_state(w.conn) != SKEIN_CONN_READY)
		skein_ctx_progress(w.client);
	/* The leader of another lane asks. */
	atomic_store(&w.conn->eng->sendq_broke, true);
	assert_int_equal(call(&w, 8), 0);
	assert_int_equal(call(&w, LARGE), 0);
	world_close(&w);
}

static void test_stays(void **state)
{
	stays(0);
	stays(3);
}

/* --- calls that are given up -------------------------------------------- */

static struct skein_rpc_req *wait_held(struct world *w)
{
	struct skein_rpc_req *req;

	while (!(req = atomic_exchange(&w->hold.req, NULL)))
		skein_ctx_progress(w->client);
	return req;
}

struct blocked {
	struct world *w;
	int rc;
};

static void *blocked_main(void *arg)
{
	struct blocked *b = arg;

	b->rc = skein_rpc_call(b->w->conn, HOLD, "y", 1, NULL, 0, PATIENCE,
			       NULL);
	return NULL;
}

static void test_cancel_sent(void **state)
{
	struct skein_conn_attr attr = {.qps = 3};
	struct skein_rpc_req *first, *second;
	struct end end = {0}, other = {0};
	struct blocked b;
	struct world w;
	pthread_t t;

	world_open(&w, &attr);
	assert_int_equal(skein_rpc_cancel(w.conn, on_end, &end), -ENOENT);
	assert_int_equal(skein_rpc_call_async(w.conn, HOLD, "x", 1, 8, PATIENCE,
					      on_end, &end),
			 0);
	first = wait_held(&w);
	/* A thread runs the engine for as long as its own call takes. */
	b.w = &w;
	assert_int_equal(pthread_create(&t, NULL, blocked_main, &b), 0);
	second = wait_held(&w);
	assert_int_equal(skein_rpc_cancel(w.conn, on_end, &other), -ENOENT);
	assert_int_equal(skein_rpc_cancel(w.conn, on_end, &end), 0);
	assert_int_equal(skein_rpc_cancel(w.conn, on_end, &end), -ENOENT);
	while (!end.n)
		assert_true(skein_rpc_reap(w.conn, PATIENCE) >= 0);
	assert_int_equal(end.outcome, SKEIN_UNKNOWN);
	assert_int_equal(end.status, -ECANCELED);
	/* Its answer is dropped, the other's is not. */
	assert_int_equal(skein_rpc_answer(first, 0), 0);
	assert_int_equal(skein_rpc_answer(second, 0), 0);
	pthread_join(t, NULL);
	assert_int_equal(b.rc, 0);
	assert_int_equal(call(&w, 8), 0);
	assert_int_equal(end.n, 1);
	world_close(&w);
}

static bool resp_fits(struct world *w, size_t max)
{
	struct rpc_client *c = &rpc_conn_of(w->conn)->client;

	return c->tx.resp_tail + rpc_client_resp_lines(c, max) -
		       atomic_load(&c->rx.resp_head) <=
	       c->rx.port->geom.resp_lines;
}

/* One that waits for room, behind others that the server keeps. */
static void test_cancel_waiting(void **state)
{
	struct skein_conn_attr attr = {.qps = 1};
	static uint8_t large[LARGE];
	struct end kept = {0}, end = {0};
	int n, rc, sent = 0;
	struct world w;

	world_open(&w, &attr);
	for (size_t max = 8192; max; max /= 2)
		while (resp_fits(&w, max)) {
			rc = skein_rpc_call_async(w.conn, HOLD, "x", 1, max,
						  PATIENCE, on_end, &kept);
			/* Credits may be on their way. */
			assert_true(rc == 0 || rc == -EAGAIN);
			sent += !rc;
			skein_rpc_reap(w.conn, 0);
		}
	rc = skein_rpc_call_async(w.conn, HOLD, large, LARGE, 0, PATIENCE,
				  on_end, &end);
	assert_int_equal(rc, 0);
	skein_ctx_progress(w.client);
	assert_int_equal(skein_rpc_cancel(w.conn, on_end, &end), 0);
	while (!end.n)
		assert_true(skein_rpc_reap(w.conn, PATIENCE) >= 0);
	assert_int_equal(end.n, 1);
	assert_int_equal(end.outcome, SKEIN_NOT_SENT);
	assert_int_equal(end.status, -ECANCELED);
	for (n = 0; skein_rpc_cancel(w.conn, on_end, &kept) == 0; n++)
		;
	assert_int_equal(n, sent);
	while (kept.n < sent)
		assert_true(skein_rpc_reap(w.conn, PATIENCE) >= 0);
	assert_int_equal(kept.outcome, SKEIN_UNKNOWN);
	world_close(&w);
}

/* --- threads that end --------------------------------------------------- */

/* AddressSanitizer does not see that a thread's frames are gone, and takes the
 * C library's next ones for overflows. */
static void frames_gone(void *arg)
{
#ifdef __SANITIZE_ADDRESS__
	void __asan_handle_no_return(void);

	__asan_handle_no_return();
#endif
}

struct doing {
	struct world *w;
	struct skein_mem *local;
	struct skein_remote remote;
	struct end end, behind;
	int rc[4];
	int before; /* calls, before it is to end */
};

/* A call, so that the thread has all that it needs for further ones; and time,
 * so that what runs the engines has fallen asleep and must be woken. */
static void call_before(struct doing *d)
{
	struct skein_conn *conn = d->w->conn;

	if (!skein_rpc_call_async(conn, ECHO, "x", 1, 8, PATIENCE, on_end,
				  &d->end))
		d->before = skein_rpc_reap(conn, PATIENCE);
	usleep(20000);
}

/* Is to end at the first point where it can. */
static void *cancelled_main(void *arg)
{
	struct doing *d = arg;
	struct skein_conn *conn = d->w->conn;

	pthread_cleanup_push(frames_gone, NULL);
	if (d->before)
		call_before(d);
	pthread_cancel(pthread_self());
	d->rc[0] = skein_rpc_call_async(conn, ECHO, "x", 1, 8, PATIENCE, on_end,
					&d->end);
	d->rc[1] =
		skein_mem_read(conn, d->local, 0, &d->remote, 0, 64, PATIENCE);
	d->rc[2] =
		skein_mem_write(conn, d->local, 0, &d->remote, 0, 64, PATIENCE);
	d->rc[3] = skein_rpc_reap(conn, PATIENCE);
	pthread_testcancel();
	pthread_cleanup_pop(0);
	return NULL;
}

/* No call of a thread that is cancelled leaves a queue, or the engine, to one
 * who is no more. */
static void cancelled(bool before, bool background)
{
	struct doing d = {.rc = {1, 1, 1, -1}, .before = before};
	struct skein_conn_attr attr = {.qps = 2};
	struct world w;
	pthread_t t;
	void *ret;

	world_open_in(&w, &attr, background);
	d.w = &w;
	words(&w, &d.local, &d.remote);
	assert_int_equal(pthread_create(&t, NULL, cancelled_main, &d), 0);
	pthread_join(t, &ret);
	assert_ptr_equal(ret, PTHREAD_CANCELED);
	assert_int_equal(d.before, before);
	assert_int_equal(d.rc[0], 0);
	assert_int_equal(d.rc[1], 0);
	assert_int_equal(d.rc[2], 0);
	/* The answer may have come in one of the calls between. */
	assert_in_range(d.rc[3], 0, 1);
	assert_int_equal(d.end.n, 1 + before);
	if (!background) {
		assert_true(engine_try_enter(conn_engine(w.conn)));
		engine_leave(conn_engine(w.conn));
	}
	assert_int_equal(call(&w, 8), 0);
	skein_mem_free(d.local);
	world_close(&w);
}

static void test_cancelled(void **state)
{
	cancelled(false, false);
	cancelled(true, false);
	cancelled(false, true);
	cancelled(true, true);
}

struct alone {
	struct world *w;
	struct skein_mem *local;
	struct skein_remote remote;
	struct end end;
	int rc[4], written;
};

static void on_written(void *arg, int status)
{
	((struct alone *)arg)->written = status;
}

static void nobody_waits(void *arg, const struct skein_rpc_result *res)
{
}

/* The same of calls that do not wait. */
static void *cancelled_alone_main(void *arg)
{
	struct alone *a = arg;
	struct skein_conn *conn = a->w->conn;
	struct skein_rpc_stats st = {.size = sizeof(st)};

	pthread_cleanup_push(frames_gone, NULL);
	pthread_cancel(pthread_self());
	a->rc[0] = skein_rpc_call_async(conn, ECHO, "x", 1, 8, PATIENCE, on_end,
					&a->end);
	a->rc[1] = skein_mem_write_async(conn, a->local, 0, &a->remote, 0, 64,
					 on_written, a);
	a->rc[2] = skein_rpc_cancel(conn, nobody_waits, NULL);
	a->rc[3] = skein_rpc_get_stats(conn, &st);
	pthread_testcancel();
	pthread_cleanup_pop(0);
	return NULL;
}

/* background: another thread runs the engine. */
static void cancelled_alone(bool background)
{
	struct alone a = {.rc = {1, 1, 1, 1}, .written = 1};
	struct skein_conn_attr attr = {.qps = 0};
	struct world w;
	pthread_t t;
	void *ret;

	world_open_in(&w, &attr, background);
	a.w = &w;
	words(&w, &a.local, &a.remote);
	assert_int_equal(pthread_create(&t, NULL, cancelled_alone_main, &a), 0);
	pthread_join(t, &ret);
	assert_ptr_equal(ret, PTHREAD_CANCELED);
	assert_int_equal(a.rc[0], 0);
	assert_int_equal(a.rc[1], 0);
	assert_int_equal(a.rc[2], -ENOENT);
	assert_int_equal(a.rc[3], 0);
	assert_int_equal(call(&w, 8), 0);
	/* answered before the call behind it was */
	assert_int_equal(a.end.n, 1);
	skein_mem_free(a.local);
	world_close(&w);
	assert_int_equal(a.written, 0);
}

static void test_cancelled_alone(void **state)
{
	cancelled_alone(false);
	cancelled_alone(true);
}

/* With a call that has begun, and would leave behind this one. */
static void exits(void *arg, const struct skein_rpc_result *res)
{
	struct doing *d = arg;

	d->end.n++;
	d->rc[1] = skein_rpc_call_async(d->w->conn, ECHO, "x", 1, 1, PATIENCE,
					on_end, &d->behind);
	pthread_exit(NULL);
}

static void *exits_main(void *arg)
{
	static uint8_t bytes[LARGE];
	struct doing *d = arg;

	pthread_cleanup_push(frames_gone, NULL);
	d->rc[0] = skein_rpc_call_async(d->w->conn, ECHO, bytes, LARGE, LARGE,
					PATIENCE, exits, d);
	if (!d->rc[0])
		skein_rpc_reap(d->w->conn, PATIENCE);
	pthread_cleanup_pop(0);
	return NULL;
}

/* One that ends in the middle of a done() leaves its thread record as it was: the next
 * one finds all of the replies, and its result is not for ever. */
static void test_exit_inside(void **state)
{
	struct skein_conn_attr attr = {.qps = 1};
	struct doing d = {0};
	struct rpc_thread *s;
	struct world w;
	pthread_t t;

	world_open(&w, &attr);
	d.w = &w;
	for (int i = 0; i < 60; i++) {
		assert_int_equal(pthread_create(&t, NULL, exits_main, &d), 0);
		pthread_join(t, NULL);
		assert_int_equal(d.rc[0], 0);
		assert_int_equal(d.rc[1], 0);
		assert_int_equal(d.end.n, i + 1);
		/* Its thread record is swept, for the next one. */
		s = rpc_thread_of(conn_thread_at(w.conn, 0));
		while (!atomic_load(&s->swept))
			skein_ctx_progress(w.client);
		assert_null(s->shown);
		assert_int_equal(d.behind.n, i + 1);
		assert_int_equal(d.behind.outcome, SKEIN_NOT_SENT);
		assert_int_equal(d.behind.status, -ECANCELED);
	}
	assert_int_equal(conn_threads(w.conn), 1);
	world_close(&w);
}

/* --- a lane that rests -------------------------------------------------- */

#define GATHERED 3

struct resting {
	struct world *w;
	uint16_t lane;
	int rc[GATHERED];
	struct end end[GATHERED];
};

/* The lane of the calls that are gathered here has no credit any more, perhaps
 * for ever; the thread is wanted on the other one. */
static void rests(void *arg, const struct skein_rpc_result *res)
{
	struct resting *r = arg;
	struct skein_conn *conn = r->w->conn;
	struct conn_thread *rec = conn_thread_at(conn, 0);
	struct rpc_lane_client *sh;

	r->lane = atomic_load(&rec->lane);
	sh = rpc_conn_of(conn_lane(conn, r->lane))->lane_client;
	sh->active = false;
	credit_declined(&sh->credit);
	atomic_store(&rec->lane_wanted, 1 - r->lane);
	for (int i = 0; i < GATHERED; i++)
		r->rc[i] = skein_rpc_call_async(conn, ECHO, "x", 1, 1, PATIENCE,
						on_end, &r->end[i]);
}

static void test_gathered_move(void **state)
{
	struct skein_conn_attr attr = {.qps = 2};
	struct skein_rpc_req *held;
	struct resting r = {0};
	struct end first = {0};
	struct world w;

	world_open(&w, &attr);
	r.w = &w;
	/* Under way, so that the thread stays on its lane. */
	assert_int_equal(skein_rpc_call_async(w.conn, HOLD, "x", 1, 1, PATIENCE,
					      on_end, &first),
			 0);
	while (!(held = atomic_load(&w.hold.req)))
		skein_ctx_progress(w.client);
	assert_int_equal(skein_rpc_call_async(w.conn, ECHO, "x", 1, 1, PATIENCE,
					      rests, &r),
			 0);
	while (!atomic_load(&conn_thread_at(w.conn, 0)->held))
		assert_true(skein_rpc_reap(w.conn, PATIENCE) >= 0);
	assert_int_equal(atomic_load(&conn_thread_at(w.conn, 0)->held),
			 GATHERED);
	assert_int_equal(skein_rpc_answer(held, 0), 0);
	while (!r.end[GATHERED - 1].n)
		assert_true(skein_rpc_reap(w.conn, PATIENCE) >= 0);
	for (int i = 0; i < GATHERED; i++) {
		assert_int_equal(r.rc[i], 0);
		assert_int_equal(r.end[i].n, 1);
		assert_int_equal(r.end[i].status, 0);
		assert_int_equal(r.end[i].outcome, SKEIN_DONE);
	}
	assert_int_equal(atomic_load(&conn_thread_at(w.conn, 0)->lane),
			 1 - r.lane);
	world_close(&w);
}

/* --- a thread that keeps the engine -------------------------------------- */

struct keeper {
	struct world *w;
	sem_t kept, go_on;
	int rc, large_rc;
	/* of a call that was left: nobody writes them */
	struct skein_rpc_result res;
	uint8_t got[1];
};

static void keeps(void *arg, const struct skein_rpc_result *res)
{
	struct keeper *k = arg;

	sem_post(&k->kept);
	sem_wait(&k->go_on);
}

/* Runs the engine, and stays in a callback. */
static void *keeper_main(void *arg)
{
	struct keeper *k = arg;

	k->rc = skein_rpc_call_async(k->w->conn, ECHO, "x", 1, 1, PATIENCE,
				     keeps, k);
	if (!k->rc && skein_rpc_reap(k->w->conn, PATIENCE) < 0)
		k->rc = -EIO;
	return NULL;
}

/* Nobody has read the request: it was not sent, and is the caller's again. */
static void *large_main(void *arg)
{
	uint8_t *buf = calloc(1, LARGE);
	struct skein_rpc_result res;
	struct keeper *k = arg;
	int rc;

	rc = skein_rpc_call(k->w->conn, ECHO, buf, LARGE, buf, LARGE,
			    SKEIN_MS(20), &res);
	free(buf);
	k->large_rc = res.outcome == SKEIN_NOT_SENT ? rc : 0;
	return NULL;
}

/* Each ends by its deadline, before which some are posted. */
static void calls_while_kept(struct world *w, struct keeper *k,
			     struct skein_mem *local,
			     const struct skein_remote *remote, struct end *end)
{
	struct skein_conn_attr attr = {.size = sizeof(attr),
				       .timeout_ns = SKEIN_MS(20)};
	struct skein_rpc_result res;
	uint64_t ms = patience_ns(1) / 5;
	struct skein_remote found = {.size = sizeof(found)};
	struct skein_conn *conn;
	uint8_t got[8];

	assert_int_equal(skein_rpc_call(w->conn, ECHO, "x", 1, k->got, 1, ms,
					&k->res),
			 -ETIMEDOUT);
	assert_int_equal(k->res.outcome, SKEIN_UNKNOWN);
	assert_int_equal(skein_mem_read(w->conn, local, 0, remote, 0, 8, ms),
			 -ETIMEDOUT);
	assert_int_equal(skein_rpc_call_async(w->conn, ECHO, "x", 1, 8,
					      PATIENCE, on_end, end),
			 0);
	assert_int_equal(skein_rpc_reap(w->conn, ms), 0);
	assert_int_equal(skein_rpc_cancel(w->conn, on_end, end), -ETIMEDOUT);
	assert_int_equal(skein_rpc_cancel(w->conn, on_end, end), -ETIMEDOUT);
	/* The owner has yet to end the first one. */
	assert_int_equal(skein_rpc_call(w->conn, ECHO, "x", 1, got, sizeof(got),
					ms, &res),
			 -ETIMEDOUT);
	assert_int_equal(res.outcome, SKEIN_NOT_SENT);
	assert_int_equal(end->n, 0);
	assert_int_equal(skein_mem_find(w->conn, "words", ms, &found), -ENOENT);
	assert_int_equal(skein_conn_open(w->client,
					 skein_listener_addr(w->listener),
					 &attr, &conn),
			 -ETIMEDOUT);
}

static void test_kept(void **state)
{
	struct skein_conn_attr attr = {.qps = 1};
	struct skein_remote remote;
	struct skein_mem *local;
	struct end end = {0};
	struct keeper k;
	struct world w;
	pthread_t t, large;

	world_open(&w, &attr);
	words(&w, &local, &remote);
	k = (struct keeper){.w = &w};
	sem_init(&k.kept, 0, 0);
	sem_init(&k.go_on, 0, 0);
	assert_int_equal(call(&w, 8), 0);
	assert_int_equal(pthread_create(&t, NULL, keeper_main, &k), 0);
	sem_wait(&k.kept);
	assert_int_equal(pthread_create(&large, NULL, large_main, &k), 0);
	pthread_join(large, NULL);
	assert_int_equal(k.large_rc, -ETIMEDOUT);
	calls_while_kept(&w, &k, local, &remote, &end);
	sem_post(&k.go_on);
	pthread_join(t, NULL);
	assert_int_equal(k.rc, 0);
	assert_int_equal(call(&w, 8), 0);
	assert_int_equal(call(&w, LARGE), 0);
	assert_int_equal(k.res.outcome, SKEIN_UNKNOWN);
	assert_int_equal(k.res.status, -ETIMEDOUT);
	assert_int_equal(k.got[0], 0);
	/* given up, or answered before */
	assert_int_equal(end.n, 1);
	skein_mem_free(local);
	world_close(&w);
	sem_destroy(&k.kept);
	sem_destroy(&k.go_on);
}

/* A forked child has no part in what its parent has under way. */
static void test_forked(void **state)
{
	struct skein_conn_attr attr = {.qps = 2};
	struct end end = {0};
	struct world w;
	int status;
	pid_t pid;

	world_open(&w, &attr);
	assert_int_equal(skein_rpc_call_async(w.conn, ECHO, "x", 1, 8, PATIENCE,
					      on_end, &end),
			 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid)
		_exit(skein_rpc_reap(w.conn, PATIENCE) != -SKEIN_EFORKED ||
		      end.n);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(skein_rpc_reap(w.conn, PATIENCE), 1);
	assert_int_equal(end.n, 1);
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_result_too_long),
		cmocka_unit_test(test_late),
		cmocka_unit_test(test_stays),
		cmocka_unit_test(test_cancel_sent),
		cmocka_unit_test(test_cancel_waiting),
		cmocka_unit_test(test_cancelled),
		cmocka_unit_test(test_cancelled_alone),
		cmocka_unit_test(test_exit_inside),
		cmocka_unit_test(test_gathered_move),
		cmocka_unit_test(test_kept),
		cmocka_unit_test(test_forked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
