/* SPDX-License-Identifier: MIT */
/*
 * rpc_basic.c - one server, one to four clients, calls of all kinds and sizes,
 * under all faults.
 *
 * What must hold, for each call: it ends exactly once, unless its process was
 * killed; the response is its own; it was executed once if it succeeded, never
 * if it was not sent, at most once in any case. Calls of one thread on one
 * connection are executed and answered in their order, except those that a pool
 * of threads handles. Some calls are cancelled. A call with a deadline longer
 * than any fault is answered, or its connection breaks: so a response that is
 * never sent cannot pass for the time-out of a fault. party.h has what must
 * hold of every scenario.
 *
 * The records of the calls live outside of the processes: they outlast kills.
 */
#include "conn/ctx.h"
#include "sim/fifo.h"
#include "sim/flip.h"
#include "sim/party.h"
#include "sim/scarce.h"

#include <errno.h>
#include <skein/skein.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ECHO 7
#define SLOW 8 /* the same in a thread of a pool */
#define CALLS_MAX 60000u
#define LEN_MAX 70000u
#define MS PARTY_MS
#define PATIENCE_NS (10000ull * MS)

struct record {
	uint8_t issued, done, executed, orphan;
	uint8_t outcome;
	uint8_t client;
	int32_t status;
	uint32_t resp_len;
	uint32_t session; /* calls keep their order in this one; 0: none */
	bool slow;
	bool patient;
};

/* A request begins with this; the rest is a pattern of uid. */
struct head {
	uint32_t uid;
	uint32_t resp_len;
};

/* One node's process, and its successors. */
struct peer {
	struct actor a;
	struct run *run;
	struct skein_engine *engine; /* the server's, while it runs */
	struct skein_conn *conn;
	unsigned outstanding;
	unsigned helpers; /* threads that call */
	uint32_t session;
	bool patient; /* its calls wait longer than any fault lasts */
	bool flips;   /* the mode of return changes every few calls */
	struct fifo executed, answered;
};

struct run {
	struct party party;
	struct peer peers[1 + PARTY_CLIENTS_MAX];
	struct record *records;
	uint32_t n_records, n_sessions;
};

static struct skein_env *env_of(struct peer *p)
{
	return actor_env(&p->a);
}

static struct report *rep_of(const struct run *run)
{
	return run->party.rep;
}

static unsigned char pattern(uint32_t uid, size_t k)
{
	return (unsigned char)(uid * 131 + k + (k >> 8));
}

static uint64_t draw(struct peer *a, uint64_t n)
{
	return actor_draw(&a->a, n);
}

/* --- the server -------------------------------------------------------- */

static int serve(struct skein_rpc_req *req, void *arg)
{
	const unsigned char *data = skein_rpc_req_data(req);
	size_t len = skein_rpc_req_len(req);
	struct peer *a = arg;
	struct run *run = a->run;
	unsigned char *resp;
	struct head h;

	if (len < sizeof(h)) {
		report_fail(rep_of(run), "a request of %zu bytes arrived", len);
		return -EBADMSG;
	}
	memcpy(&h, data, sizeof(h));
	if (h.uid >= run->n_records || !run->records[h.uid].issued) {
		report_fail(rep_of(run), "request %u was never made", h.uid);
		return -EBADMSG;
	}
	for (size_t k = sizeof(h); k < len; k++)
		if (data[k] != pattern(h.uid, k)) {
			report_fail(rep_of(run),
				    "request %u: byte %zu is wrong", h.uid, k);
			return -EBADMSG;
		}
	fifo_take(&run->peers[run->records[h.uid].client].executed,
		  run->records[h.uid].session, h.uid, "was executed",
		  rep_of(run));
	if (run->records[h.uid].executed++)
		report_fail(rep_of(run), "call %u was executed twice", h.uid);
	sim_charge(run->party.w, 100 + len / 8);
	/* The thread loses its core. Meanwhile requests gather, and other
	 * events of the world fall into the middle of a message. */
	if (!draw(a, 32))
		sim_sleep(run->party.w, draw(a, 50000));
	resp = skein_rpc_resp_buf(req, h.resp_len);
	if (!resp)
		return -ENOMEM;
	for (size_t k = 0; k < h.resp_len; k++)
		resp[k] = pattern(~h.uid, k);
	return 0;
}

static int serve_slowly(struct skein_rpc_req *req, void *arg)
{
	struct peer *a = arg;
	uint64_t ns = draw(a, 4) ? draw(a, 20000) : draw(a, 3 * MS);

	sim_sleep(a->run->party.w, ns);
	return serve(req, arg);
}

static int handlers_up(struct peer *a)
{
	struct skein_rpc_pool *pool;
	int rc;

	rc = skein_rpc_handle(a->a.ctx, ECHO, serve, a);
	if (!rc)
		rc = skein_rpc_pool_new(a->a.ctx, 1 + (unsigned)draw(a, 4),
					&pool);
	if (!rc)
		rc = skein_rpc_handle_workers(a->a.ctx, SLOW, serve_slowly, a,
					      pool);
	return rc;
}

static int server_up(struct peer *a)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr)};
	struct skein_listener *listener;
	int rc;

	attr.wait = (enum skein_wait)draw(a, 4);
	rc = ctx_open_env(env_of(a), &attr, &a->a.ctx);
	if (rc)
		return rc;
	scarce_rings(a->a.ctx, &a->a);
	rc = handlers_up(a);
	if (!rc)
		rc = skein_listener_open(a->a.ctx, ":7000", NULL, &listener);
	if (rc) {
		skein_ctx_close(a->a.ctx);
		a->a.ctx = NULL;
	}
	return rc;
}

static void server(void *arg)
{
	struct peer *a = arg;

	while (!a->run->party.over && server_up(a))
		sim_sleep(a->run->party.w, 10 * MS);
	if (a->a.ctx) {
		a->engine = skein_ctx_engine(a->a.ctx);
		if (!a->run->party.over)
			skein_engine_run(a->engine, SKEIN_FOREVER);
		a->engine = NULL;
		actor_close(&a->a);
	}
	a->a.ended = true;
}

/* --- calls ------------------------------------------------------------- */

static struct record *record_new(struct peer *a, uint32_t *uid)
{
	struct run *run = a->run;
	struct record *r;

	if (run->n_records == CALLS_MAX)
		return NULL;
	*uid = run->n_records++;
	r = &run->records[*uid];
	r->client = (uint8_t)a->a.i;
	r->slow = !draw(a, 4);
	r->patient = a->patient;
	r->session = r->slow ? 0 : a->session;
	return r;
}

static size_t draw_len(struct peer *a)
{
	switch (draw(a, 20)) {
	case 0:
		return draw(a, LEN_MAX);
	case 1:
	case 2:
		return draw(a, 4000);
	default:
		return draw(a, 200);
	}
}

static void record_end(struct run *run, uint32_t uid,
		       const struct skein_rpc_result *res, const void *data)
{
	struct record *r = &run->records[uid];
	const unsigned char *p = data;

	if (r->done++)
		report_fail(rep_of(run), "call %u ended twice", uid);
	r->outcome = (uint8_t)res->outcome;
	r->status = res->status;
	if (r->patient && res->status == -ETIMEDOUT)
		report_fail(rep_of(run), "call %u is not answered in 10 s",
			    uid);
	if (res->status)
		return;
	fifo_take(&run->peers[r->client].answered, r->session, uid,
		  "was answered", rep_of(run));
	if (res->len != r->resp_len)
		report_fail(rep_of(run), "call %u: %zu bytes came, not %u", uid,
			    res->len, r->resp_len);
	for (size_t k = 0; k < res->len && k < r->resp_len; k++)
		if (p[k] != pattern(~uid, k)) {
			report_fail(rep_of(run),
				    "call %u: byte %zu of its response is "
				    "another's",
				    uid, k);
			return;
		}
}

/* A request in the process's own memory; freed by the caller. */
static unsigned char *request_new(struct peer *a, uint32_t uid, size_t *len)
{
	struct head h = {.uid = uid};
	unsigned char *buf;

	*len = sizeof(h) + draw_len(a);
	h.resp_len = (uint32_t)draw_len(a);
	a->run->records[uid].resp_len = h.resp_len;
	buf = env_alloc(env_of(a), *len);
	if (!buf)
		return NULL;
	memcpy(buf, &h, sizeof(h));
	for (size_t k = sizeof(h); k < *len; k++)
		buf[k] = pattern(uid, k);
	return buf;
}

static uint64_t draw_timeout(struct peer *a)
{
	if (a->patient)
		return PATIENCE_NS;
	return draw(a, 4) ? SKEIN_S(1) : SKEIN_MS(1 + draw(a, 20));
}

struct pending {
	struct peer *a;
	uint32_t uid;
};

static void call_done(void *arg, const struct skein_rpc_result *res)
{
	struct pending *p = arg;

	record_end(p->a->run, p->uid, res, res->data);
	p->a->outstanding--;
	env_free(env_of(p->a), p);
}

/* The call has just been made, so it is under way unless the connection is
 * down. */
static int give_up(struct peer *a, struct pending *p)
{
	unsigned before = a->outstanding;
	uint32_t uid = p->uid;
	int rc = skein_rpc_cancel(a->conn, call_done, p);

	if (rc != -ENOENT && rc)
		report_fail(rep_of(a->run), "call %u cannot be given up: %d",
			    uid, rc);
	if (!rc && a->outstanding >= before)
		report_fail(rep_of(a->run), "call %u given up goes on", uid);
	return 0;
}

static void flip(struct peer *a)
{
	if (a->flips && !draw(a, 4))
		sim_flip_return(a->conn, draw(a, SIM_FLIPS));
}

/* 0, -EAGAIN, or why it could not be made. */
static int call_async(struct peer *a)
{
	struct skein_env *env = env_of(a);
	unsigned char *buf = NULL;
	struct pending *p;
	struct record *r;
	int rc = -ENOMEM;
	size_t len;
	uint32_t uid;

	r = record_new(a, &uid);
	p = env_alloc(env, sizeof(*p));
	if (!r || !p)
		goto out;
	buf = request_new(a, uid, &len);
	if (!buf)
		goto out;
	*p = (struct pending){a, uid};
	r->issued = 1;
	a->outstanding++;
	flip(a);
	rc = skein_rpc_call_async(a->conn, r->slow ? SLOW : ECHO, buf, len,
				  r->resp_len, draw_timeout(a), call_done, p);
	if (!rc) {
		if (!draw(a, 50))
			rc = give_up(a, p);
		p = NULL;
	} else {
		a->outstanding--;
		r->issued = 0;
	}
out:
	env_free(env, buf);
	env_free(env, p);
	return rc;
}

static int call_blocking(struct peer *a)
{
	struct skein_rpc_result res = {.outcome = SKEIN_NOT_SENT};
	struct skein_env *env = env_of(a);
	unsigned char *buf, *resp;
	struct record *r;
	int rc = -ENOMEM;
	size_t len;
	uint32_t uid;

	r = record_new(a, &uid);
	if (!r)
		return rc;
	buf = request_new(a, uid, &len);
	resp = env_alloc(env, r->resp_len);
	if (buf && resp) {
		r->issued = 1;
		flip(a);
		rc = skein_rpc_call(a->conn, r->slow ? SLOW : ECHO, buf, len,
				    resp, r->resp_len, draw_timeout(a), &res);
		res.status = rc;
		record_end(a->run, uid, &res, resp);
	}
	env_free(env, resp);
	env_free(env, buf);
	return rc;
}

/* --- the client -------------------------------------------------------- */

static bool usable(struct peer *a)
{
	return skein_conn_get_state(a->conn) == SKEIN_CONN_READY;
}

static void run_async(struct peer *a, unsigned calls)
{
	unsigned window = 1 + (unsigned)draw(a, 40);
	struct skein_engine *e = skein_ctx_engine(a->a.ctx);
	uint64_t give_up;

	while (calls-- && usable(a) && !actor_over(&a->a)) {
		while (a->outstanding >= window)
			skein_engine_run(e, 20000);
		if (call_async(a) == -EAGAIN)
			skein_engine_run(e, 20000);
	}
	give_up = sim_thread_now(a->run->party.w) + 20000 * MS;
	while (a->outstanding && sim_thread_now(a->run->party.w) < give_up)
		skein_engine_run(e, MS);
	if (a->outstanding)
		report_fail(rep_of(a->run), "client %u: %u calls never end",
			    a->a.i, a->outstanding);
}

static void helper(void *arg)
{
	struct peer *a = arg;
	unsigned calls = 1 + (unsigned)draw(a, 100);

	while (calls-- && usable(a) && !actor_over(&a->a))
		call_blocking(a);
	a->helpers--;
}

static void run_threads(struct peer *a)
{
	struct env_thread *threads[4];
	unsigned n = 0, want = 1 + (unsigned)draw(a, 4);

	for (; n < want; n++) {
		a->helpers++;
		if (env_thread_start(env_of(a), "helper", helper, a,
				     &threads[n])) {
			a->helpers--;
			break;
		}
	}
	while (n)
		env_thread_join(env_of(a), threads[--n]);
}

/* Calls of one thread on one connection keep their order if none was made
 * again. */
static void session_order(struct peer *a, bool ordered)
{
	a->session = ordered ? ++a->run->n_sessions : 0;
	fifo_begin(&a->executed, a->session);
	fifo_begin(&a->answered, a->session);
}

static int session(struct actor *actor)
{
	struct peer *a = container_of(actor, struct peer, a);
	struct skein_conn_attr attr = {.size = sizeof(attr)};
	int rc;

	attr.retries = (unsigned)draw(a, 5);
	attr.timeout_ns = SKEIN_MS(200 + draw(a, 2000));
	/* drawn, too */
	attr.return_mode = (enum skein_return[]){
		SKEIN_RETURN_REPLY, SKEIN_RETURN_FETCH,
		SKEIN_RETURN_AUTO}[attr.timeout_ns / SKEIN_MS(1) % 3];
	attr.reconnect = draw(a, 2);
	a->patient = draw(a, 2);
	a->flips = !draw(a, 3);
	scarce_rings(a->a.ctx, &a->a);
	rc = skein_conn_open(a->a.ctx, "server:7000", &attr, &a->conn);
	if (rc)
		return rc;
	if (actor_over(&a->a)) {
		a->a.got_through = !call_blocking(a);
	} else if (draw(a, 3)) {
		session_order(a, !attr.reconnect);
		run_async(a, 1 + (unsigned)draw(a, 600));
		session_order(a, false);
	} else {
		run_threads(a);
	}
	skein_conn_close(a->conn, SKEIN_MS(draw(a, 200)));
	a->conn = NULL;
	return 0;
}

static void client(void *arg)
{
	struct peer *a = arg;

	actor_sessions(&a->a, session);
}

/* --- kills and births -------------------------------------------------- */

static void peer_born(struct actor *actor)
{
	struct peer *a = container_of(actor, struct peer, a);

	a->outstanding = a->helpers = 0;
	a->session = 0;
	a->conn = NULL;
	a->engine = NULL;
}

static void peer_killed(struct actor *actor)
{
	struct run *run = container_of(actor, struct peer, a)->run;

	for (uint32_t k = 0; k < run->n_records; k++)
		if (run->records[k].client == actor->i && !run->records[k].done)
			run->records[k].orphan = 1;
}

static void server_stop(struct actor *actor)
{
	struct peer *a = container_of(actor, struct peer, a);

	if (a->engine)
		skein_engine_stop(a->engine);
}

static const struct party_ops party_ops = {
	.server = server,
	.client = client,
	.born = peer_born,
	.killed = peer_killed,
	.stop = server_stop,
};

/* --- judging ----------------------------------------------------------- */

static void check_record(struct run *run, uint32_t uid)
{
	const struct record *r = &run->records[uid];

	if (!r->issued) {
		if (r->done || r->executed)
			report_fail(rep_of(run),
				    "call %u was refused, and made", uid);
		return;
	}
	if (!r->done) {
		if (!r->orphan)
			report_fail(rep_of(run), "call %u never ended", uid);
		return;
	}
	if (!r->status && r->executed != 1)
		report_fail(rep_of(run), "call %u succeeded, executed %u times",
			    uid, r->executed);
	if (r->outcome == SKEIN_NOT_SENT && r->executed)
		report_fail(rep_of(run), "call %u was not sent, and executed",
			    uid);
	/* The server's library answers for a handler that it has no memory to
	 * call. */
	if (r->status && r->outcome == SKEIN_DONE && !r->executed &&
	    !(r->status == -ENOMEM && run->party.faults.counts[FAULT_MEMORY]))
		report_fail(rep_of(run),
			    "call %u: done with %d, and not executed", uid,
			    r->status);
}

static void count(struct run *run)
{
	unsigned ok = 0, unsent = 0, unknown = 0, orphans = 0, refused = 0;

	for (uint32_t k = 0; k < run->n_records; k++) {
		const struct record *r = &run->records[k];

		check_record(run, k);
		refused += !r->issued;
		orphans += r->issued && !r->done;
		ok += r->done && !r->status;
		unsent += r->done && r->status && r->outcome == SKEIN_NOT_SENT;
		unknown += r->done && r->status && r->outcome == SKEIN_UNKNOWN;
	}
	report_row(rep_of(run), "clients", run->party.n_clients);
	report_row(rep_of(run), "calls_ok", ok);
	report_row(rep_of(run), "calls_not_sent", unsent);
	report_row(rep_of(run), "calls_unknown", unknown);
	report_row(rep_of(run), "calls_of_killed_clients", orphans);
	report_row(rep_of(run), "calls_refused", refused);
}

/* --- the run ----------------------------------------------------------- */

static int rpc_basic(const struct scenario_conf *conf, struct report *rep)
{
	struct run *run = calloc(1, sizeof(*run));
	int rc = -ENOMEM;

	if (!run)
		return rc;
	run->records = calloc(CALLS_MAX, sizeof(*run->records));
	if (!run->records)
		goto out_run;
	for (unsigned i = 0; i <= PARTY_CLIENTS_MAX; i++)
		run->peers[i].run = run;
	rc = party_init(&run->party, &party_ops, conf, rep, run->peers,
			sizeof(run->peers[0]));
	if (rc)
		goto out_records;
	if (conf->faults)
		scarce_send_queues(run->party.w);
	party_play(&run->party);
	count(run);
	party_judge(&run->party);
	party_fini(&run->party);
out_records:
	free(run->records);
out_run:
	free(run);
	return rc;
}

const struct scenario scenario_rpc_basic = {
	.name = "rpc-basic",
	.what = "a server and one to four clients, calls of all kinds and sizes",
	.fuzz = true,
	.run = rpc_basic,
};
