/* SPDX-License-Identifier: MIT */
/*
 * rpc_basic.c - one server, one to four clients, calls of all kinds and sizes,
 * under all faults.
 *
 * What must hold, for each call: it ends exactly once, unless its process was
 * killed; the response is its own; it was executed once if it succeeded, never
 * if it was not sent, at most once in any case. For the whole: when the faults
 * are over every client gets through, everybody comes to an end, and what was
 * not killed leaves no memory and no descriptor behind.
 *
 * The records of the calls live outside of the processes: they outlast kills.
 */
#include "conn/ctx.h"
#include "sim/faults.h"
#include "sim/scenario.h"

#include <errno.h>
#include <skein/skein.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ECHO 7
#define CLIENTS_MAX 4
#define CALLS_MAX 60000u
#define LEN_MAX 70000u
#define TAG_START 40u
#define MS 1000000ull
#define RUN_NS (60 * MS)
#define LIMIT_NS (120000 * MS)

struct record {
	uint8_t issued, done, executed, orphan;
	uint8_t outcome;
	uint8_t client;
	int32_t status;
	uint32_t resp_len;
};

/* A request begins with this; the rest is a pattern of uid. */
struct head {
	uint32_t uid;
	uint32_t resp_len;
};

struct run;

/* One node's process, and its successors. */
struct actor {
	struct run *run;
	unsigned i; /* 0: the server */
	struct sim_node *node;
	struct sim_proc *proc;
	struct sim_event start;
	struct prng r;
	struct skein_engine *engine; /* the server's, while it runs */
	struct skein_ctx *ctx;
	struct skein_conn *conn;
	unsigned outstanding;
	unsigned helpers; /* threads that call */
	bool got_through; /* after the faults */
	bool ended;
};

struct run {
	struct sim_world *w;
	struct report *rep;
	struct faults faults;
	unsigned n_clients;
	struct actor actors[1 + CLIENTS_MAX];
	struct record *records;
	uint32_t n_records;
	uint64_t end_ns;
	bool over; /* servers: leave */
};

static struct skein_env *env_of(struct actor *a)
{
	return sim_proc_env(a->proc);
}

static unsigned char pattern(uint32_t uid, size_t k)
{
	return (unsigned char)(uid * 131 + k + (k >> 8));
}

static uint64_t draw(struct actor *a, uint64_t n)
{
	return prng_below(&a->r, n);
}

/* --- the server -------------------------------------------------------- */

static int serve(struct skein_rpc_req *req, void *arg)
{
	const unsigned char *data = skein_rpc_req_data(req);
	size_t len = skein_rpc_req_len(req);
	struct actor *a = arg;
	struct run *run = a->run;
	unsigned char *resp;
	struct head h;

	if (len < sizeof(h)) {
		report_fail(run->rep, "a request of %zu bytes arrived", len);
		return -EBADMSG;
	}
	memcpy(&h, data, sizeof(h));
	if (h.uid >= run->n_records || !run->records[h.uid].issued) {
		report_fail(run->rep, "request %u was never made", h.uid);
		return -EBADMSG;
	}
	for (size_t k = sizeof(h); k < len; k++)
		if (data[k] != pattern(h.uid, k)) {
			report_fail(run->rep, "request %u: byte %zu is wrong",
				    h.uid, k);
			return -EBADMSG;
		}
	if (run->records[h.uid].executed++)
		report_fail(run->rep, "call %u was executed twice", h.uid);
	sim_charge(run->w, 100 + len / 8);
	resp = skein_rpc_resp_buf(req, h.resp_len);
	if (!resp)
		return -ENOMEM;
	for (size_t k = 0; k < h.resp_len; k++)
		resp[k] = pattern(~h.uid, k);
	return 0;
}

static int server_up(struct actor *a)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr)};
	struct skein_listener *listener;
	int rc;

	attr.wait = (enum skein_wait)draw(a, 4);
	rc = ctx_open_env(env_of(a), &attr, &a->ctx);
	if (rc)
		return rc;
	rc = skein_rpc_handle(a->ctx, ECHO, serve, a);
	if (!rc)
		rc = skein_listener_open(a->ctx, ":7000", NULL, &listener);
	if (rc) {
		skein_ctx_close(a->ctx);
		a->ctx = NULL;
	}
	return rc;
}

static void server(void *arg)
{
	struct actor *a = arg;

	while (!a->run->over && server_up(a))
		sim_sleep(a->run->w, 10 * MS);
	if (a->ctx) {
		a->engine = skein_ctx_engine(a->ctx);
		if (!a->run->over)
			skein_engine_run(a->engine, SKEIN_FOREVER);
		a->engine = NULL;
		skein_ctx_close(a->ctx);
		a->ctx = NULL;
	}
	a->ended = true;
}

/* --- calls ------------------------------------------------------------- */

static struct record *record_new(struct actor *a, uint32_t *uid)
{
	struct run *run = a->run;
	struct record *r;

	if (run->n_records == CALLS_MAX)
		return NULL;
	*uid = run->n_records++;
	r = &run->records[*uid];
	r->client = (uint8_t)a->i;
	return r;
}

static size_t draw_len(struct actor *a)
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
		report_fail(run->rep, "call %u ended twice", uid);
	r->outcome = (uint8_t)res->outcome;
	r->status = res->status;
	if (res->status)
		return;
	if (res->len != r->resp_len)
		report_fail(run->rep, "call %u: %zu bytes came, not %u", uid,
			    res->len, r->resp_len);
	for (size_t k = 0; k < res->len && k < r->resp_len; k++)
		if (p[k] != pattern(~uid, k)) {
			report_fail(run->rep,
				    "call %u: byte %zu of its response is "
				    "another's",
				    uid, k);
			return;
		}
}

/* A request in the process's own memory; freed by the caller. */
static unsigned char *request_new(struct actor *a, uint32_t uid, size_t *len)
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

static uint64_t draw_timeout(struct actor *a)
{
	return draw(a, 4) ? SKEIN_S(1) : SKEIN_MS(1 + draw(a, 20));
}

struct pending {
	struct actor *a;
	uint32_t uid;
};

static void call_done(void *arg, const struct skein_rpc_result *res)
{
	struct pending *p = arg;

	record_end(p->a->run, p->uid, res, res->data);
	p->a->outstanding--;
	env_free(env_of(p->a), p);
}

/* 0, -EAGAIN, or why it could not be made. */
static int call_async(struct actor *a)
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
	rc = skein_rpc_call_async(a->conn, ECHO, buf, len, r->resp_len,
				  draw_timeout(a), call_done, p);
	if (!rc) {
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

static int call_blocking(struct actor *a)
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
		rc = skein_rpc_call(a->conn, ECHO, buf, len, resp, r->resp_len,
				    draw_timeout(a), &res);
		res.status = rc;
		record_end(a->run, uid, &res, resp);
	}
	env_free(env, resp);
	env_free(env, buf);
	return rc;
}

/* --- the client -------------------------------------------------------- */

static bool over(struct actor *a)
{
	return sim_thread_now(a->run->w) >= a->run->end_ns;
}

static bool usable(struct actor *a)
{
	return skein_conn_state(a->conn) == SKEIN_CONN_READY;
}

static void run_async(struct actor *a, unsigned calls)
{
	unsigned window = 1 + (unsigned)draw(a, 40);
	struct skein_engine *e = skein_ctx_engine(a->ctx);
	uint64_t give_up;

	while (calls-- && usable(a) && !over(a)) {
		while (a->outstanding >= window)
			skein_engine_run(e, 20000);
		if (call_async(a) == -EAGAIN)
			skein_engine_run(e, 20000);
	}
	give_up = sim_thread_now(a->run->w) + 20000 * MS;
	while (a->outstanding && sim_thread_now(a->run->w) < give_up)
		skein_engine_run(e, MS);
	if (a->outstanding)
		report_fail(a->run->rep, "client %u: %u calls never end", a->i,
			    a->outstanding);
}

static void helper(void *arg)
{
	struct actor *a = arg;
	unsigned calls = 1 + (unsigned)draw(a, 100);

	while (calls-- && usable(a) && !over(a))
		call_blocking(a);
	a->helpers--;
}

static void run_threads(struct actor *a)
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

static int session(struct actor *a)
{
	struct skein_conn_attr attr = {.size = sizeof(attr)};
	int rc;

	attr.retries = (unsigned)draw(a, 5);
	attr.timeout_ns = SKEIN_MS(200 + draw(a, 2000));
	attr.reconnect = draw(a, 2);
	rc = skein_conn_open(a->ctx, "server:7000", &attr, &a->conn);
	if (rc)
		return rc;
	if (over(a))
		a->got_through = !call_blocking(a);
	else if (draw(a, 3))
		run_async(a, 1 + (unsigned)draw(a, 600));
	else
		run_threads(a);
	skein_conn_close(a->conn, SKEIN_MS(draw(a, 200)));
	a->conn = NULL;
	return 0;
}

static void client(void *arg)
{
	struct actor *a = arg;
	struct skein_ctx_attr attr = {.size = sizeof(attr)};

	while (!a->got_through) {
		attr.wait = (enum skein_wait)draw(a, 4);
		attr.background = !draw(a, 4);
		if (ctx_open_env(env_of(a), &attr, &a->ctx)) {
			sim_sleep(a->run->w, MS);
			continue;
		}
		for (unsigned i = 0; i < 3 && !a->got_through; i++)
			if (session(a))
				sim_sleep(a->run->w, MS);
		skein_ctx_close(a->ctx);
		a->ctx = NULL;
	}
	a->ended = true;
}

/* --- kills and births -------------------------------------------------- */

static void actor_start(struct sim_event *ev)
{
	struct actor *a = container_of(ev, struct actor, start);
	char name[24];

	snprintf(name, sizeof(name), a->i ? "client%u" : "server", a->i);
	a->outstanding = a->helpers = 0;
	a->ctx = NULL;
	a->conn = NULL;
	a->engine = NULL;
	if (sim_proc_new(a->node, name, &a->proc) ||
	    sim_spawn(a->proc, "main", a->i ? client : server, a))
		report_fail(a->run->rep, "out of memory");
}

static void actor_kill(void *arg, unsigned i)
{
	struct run *run = arg;
	struct actor *a = &run->actors[i];

	if (!a->proc || !sim_proc_alive(a->proc) || a->ended)
		return;
	for (uint32_t k = 0; k < run->n_records; k++)
		if (run->records[k].client == i && !run->records[k].done)
			run->records[k].orphan = 1;
	sim_proc_kill(a->proc);
	sim_at(run->w, &a->start, sim_now(run->w) + MS + draw(a, 50 * MS));
}

static struct sim_proc *actor_proc(void *arg, unsigned i)
{
	struct actor *a = &((struct run *)arg)->actors[i];

	return a->proc && sim_proc_alive(a->proc) ? a->proc : NULL;
}

/* --- judging ----------------------------------------------------------- */

static void check_record(struct run *run, uint32_t uid)
{
	const struct record *r = &run->records[uid];

	if (!r->issued) {
		if (r->done || r->executed)
			report_fail(run->rep, "call %u was refused, and made",
				    uid);
		return;
	}
	if (!r->done) {
		if (!r->orphan)
			report_fail(run->rep, "call %u never ended", uid);
		return;
	}
	if (!r->status && r->executed != 1)
		report_fail(run->rep, "call %u succeeded, executed %u times",
			    uid, r->executed);
	if (r->outcome == SKEIN_NOT_SENT && r->executed)
		report_fail(run->rep, "call %u was not sent, and executed",
			    uid);
	/* The server's library answers for a handler that it has no memory to
	 * call. */
	if (r->status && r->outcome == SKEIN_DONE && !r->executed &&
	    !(r->status == -ENOMEM && run->faults.counts[FAULT_MEMORY]))
		report_fail(run->rep, "call %u: done with %d, and not executed",
			    uid, r->status);
}

static void say(void *arg, const char *line)
{
	struct report *rep = arg;
	size_t n = strlen(rep->why);

	if (rep->ok)
		report_fail(rep, "who waits for ever: %s", line);
	else
		snprintf(rep->why + n, sizeof(rep->why) - n, "; %s", line);
}

static void check_ends(struct run *run)
{
	for (unsigned i = 0; i <= run->n_clients; i++) {
		struct actor *a = &run->actors[i];

		if (!a->ended)
			sim_proc_report(a->proc, say, run->rep);
		else if (sim_proc_bytes(a->proc) || sim_proc_fds(a->proc))
			report_fail(run->rep,
				    "%s %u left %zu bytes, %u descriptors",
				    i ? "client" : "server", i,
				    sim_proc_bytes(a->proc),
				    sim_proc_fds(a->proc));
	}
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
	report_row(run->rep, "clients", run->n_clients);
	report_row(run->rep, "calls_ok", ok);
	report_row(run->rep, "calls_not_sent", unsent);
	report_row(run->rep, "calls_unknown", unknown);
	report_row(run->rep, "calls_of_killed_clients", orphans);
	report_row(run->rep, "calls_refused", refused);
	for (unsigned k = 0; k < FAULT_KINDS; k++)
		report_row(run->rep, fault_names[k].name,
			   run->faults.counts[k]);
	report_nic(run->rep, run->actors[0].node);
}

/* --- the run ----------------------------------------------------------- */

static int build(struct run *run, const struct scenario_conf *conf)
{
	struct prng r;

	sim_prng(run->w, 1, &r);
	run->n_clients = 1 + (unsigned)prng_below(&r, CLIENTS_MAX);
	for (unsigned i = 0; i <= run->n_clients; i++) {
		struct actor *a = &run->actors[i];
		char name[24] = "server";

		if (i)
			snprintf(name, sizeof(name), "client%u", i);
		a->run = run;
		a->i = i;
		sim_prng(run->w, 100 + i, &a->r);
		if (sim_node_new(run->w, name, 1 + (unsigned)prng_below(&r, 4),
				 &a->node))
			return -ENOMEM;
		run->faults.nodes[i] = a->node;
		a->start.fn = actor_start;
		a->start.tag = TAG_START;
		sim_at(run->w, &a->start, i ? prng_below(&r, 5 * MS) : 0);
	}
	run->end_ns = RUN_NS;
	run->faults.w = run->w;
	run->faults.n_nodes = run->n_clients + 1;
	run->faults.mean_ns = 3 * MS + prng_below(&r, 20 * MS);
	run->faults.end_ns = conf->faults ? run->end_ns : 0;
	run->faults.kill = actor_kill;
	run->faults.proc = actor_proc;
	run->faults.arg = run;
	return 0;
}

static bool clients_ended(struct run *run)
{
	for (unsigned i = 1; i <= run->n_clients; i++)
		if (!run->actors[i].ended)
			return false;
	return true;
}

static void play(struct run *run)
{
	struct actor *srv = &run->actors[0];
	enum sim_end end;

	faults_start(&run->faults);
	sim_run(run->w, run->end_ns);
	faults_heal(&run->faults);
	do
		end = sim_run(run->w, sim_now(run->w) + 10 * MS);
	while (end == SIM_END_TIME && !clients_ended(run) && run->rep->ok &&
	       sim_now(run->w) < LIMIT_NS);
	run->over = true;
	if (srv->engine)
		skein_engine_stop(srv->engine);
	sim_run(run->w, sim_now(run->w) + LIMIT_NS);
}

static int rpc_basic(const struct scenario_conf *conf, struct report *rep)
{
	struct sim_conf wc = {.seed = conf->seed,
			      .log = conf->log,
			      .log_arg = conf->log_arg,
			      .log_level = ENV_LOG_INFO};
	struct run *run = calloc(1, sizeof(*run));
	int rc = -ENOMEM;

	if (!run)
		return rc;
	run->rep = rep;
	run->records = calloc(CALLS_MAX, sizeof(*run->records));
	if (!run->records)
		goto out_run;
	rc = sim_world_new(&wc, &run->w);
	if (rc)
		goto out_records;
	scenario_nic(run->w, conf);
	rep->ok = true;
	rc = build(run, conf);
	if (!rc) {
		play(run);
		count(run);
		check_ends(run);
		report_world(rep, run->w);
	}
	sim_world_free(run->w);
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
