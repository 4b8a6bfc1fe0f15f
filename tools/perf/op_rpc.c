/* SPDX-License-Identifier: MIT */
/*
 * op_rpc.c - rpc: calls that echo their bytes, through the public interface.
 *
 * Each worker has an engine and a connection of its own, so one thread runs a
 * connection from end to end; or all share a handle (op_rpc_threads.c), of which
 * the server has an engine for each QP. The server's thread runs its engine
 * during a slice, and leaves it when the client calls RPC_END at the slice's
 * end; the core is then free for the probe.
 */
#include "conn/conn.h"
#include "perf/ctl.h"
#include "perf/op_rpc.h"
#include "perf/ticks.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

enum {
	LEAVE_ROUNDS = 4, /* so that the answer to RPC_END is on its way */
	NAP_MS = 100,
	CLOSE_MS = 100,
};

static int on_echo(struct skein_rpc_req *req, void *arg)
{
	size_t len = skein_rpc_req_len(req);
	void *resp = skein_rpc_resp_buf(req, len);

	if (!resp)
		return -EMSGSIZE;
	memcpy(resp, skein_rpc_req_data(req), len);
	return 0;
}

static int on_end(struct skein_rpc_req *req, void *arg)
{
	struct rpc_bench *b = arg;
	unsigned shard = skein_conn_shard(skein_rpc_req_conn(req));

	if (!b->p->o.shared)
		skein_engine_stop(b->engines[shard % b->n_engines]);
	for (unsigned i = 0; b->p->o.shared && i < b->n_engines; i++)
		skein_engine_stop(b->engines[i]);
	return 0;
}

static enum skein_wait wait_of(const struct perf_opts *o)
{
	static const enum skein_wait modes[] = {
		[PERF_WAIT_SPIN] = SKEIN_WAIT_SPIN,
		[PERF_WAIT_POLL] = SKEIN_WAIT_POLL,
		[PERF_WAIT_ADAPTIVE] = SKEIN_WAIT_ADAPTIVE,
		[PERF_WAIT_EVENT] = SKEIN_WAIT_EVENT,
	};

	return modes[o->wait];
}

/* "soft (skein0): why" to "soft:skein0" */
static void short_name(const char *text, char *buf, size_t len)
{
	int kind = (int)strcspn(text, " "), name = 0;
	const char *open = strchr(text, '(');

	if (open)
		name = (int)strcspn(++open, ",)");
	snprintf(buf, len, "%.*s:%.*s", kind, text, name, open ? open : "");
}

static int open_ctx(struct perf *p, struct rpc_bench *b)
{
	struct skein_ctx_attr attr = {
		.size = sizeof(attr),
		.device = p->o.device ? p->o.device : p->o.require,
		.wait = wait_of(&p->o),
		.log = out_log_line,
		.log_arg = &b->log,
	};
	const char *text;
	int rc = skein_ctx_open(&attr, &b->ctx);

	if (rc)
		return perf_fail(p, rc, "%s", out_log_reason(&b->log, rc));
	out_log_opened(&b->log);
	text = skein_ctx_device(b->ctx);
	snprintf(p->device_why, sizeof(p->device_why), "%s", text);
	short_name(text, p->device, sizeof(p->device));
	if (p->o.require &&
	    strncmp(p->device, p->o.require, strcspn(p->device, ":")) != 0)
		return perf_fail(p, -ENODEV, "%s is required, but this is %s",
				 p->o.require, text);
	return 0;
}

/* One for each thread; or, where threads share, for each QP of the server and
 * of the baseline. */
static unsigned engines_wanted(const struct perf *p)
{
	if (!p->o.shared)
		return p->o.threads;
	return p->server || p->o.no_combining ? p->o.qps : 1;
}

static int make_engines(struct perf *p, struct rpc_bench *b)
{
	int rc = 0;

	b->n_engines = engines_wanted(p);
	b->engines = calloc(b->n_engines, sizeof(struct skein_engine *));
	if (!b->engines)
		return -ENOMEM;
	b->engines[0] = skein_ctx_engine(b->ctx);
	for (unsigned i = 1; i < b->n_engines && !rc; i++)
		rc = skein_engine_new(b->ctx, wait_of(&p->o), &b->engines[i]);
	return rc ? perf_fail(p, rc, "cannot make an engine: %s",
			      skein_strerror(rc))
		  : 0;
}

static int make_workers(struct perf *p, struct rpc_bench *b)
{
	b->workers = calloc(p->o.threads, sizeof(*b->workers));
	if (!b->workers)
		return -ENOMEM;
	for (unsigned i = 0; i < p->o.threads; i++) {
		struct rpc_worker *rw = &b->workers[i];

		rw->w = &p->workers[i];
		rw->w->state = rw;
		rw->b = b;
		rw->engine = b->engines[i % b->n_engines];
		rw->req = calloc(1, p->o.size);
		rw->resp = calloc(1, p->o.size);
		if (!rw->req || !rw->resp)
			return -ENOMEM;
	}
	return 0;
}

/* Lets the handshakes happen until the client says that all are done. */
static int serve_handshakes(struct perf *p, struct rpc_bench *b)
{
	uint64_t give_up = clock_ns() + PERF_PATIENCE_NS;
	json_t *msg;
	int rc;

	while (!ctl_pending(p->ctl)) {
		for (unsigned i = 0; i < b->n_engines; i++)
			skein_engine_progress(b->engines[i]);
		if (*out_log_later(&b->log))
			return perf_fail(p, -EIO, "%s", out_log_later(&b->log));
		if (clock_ns() > give_up)
			return perf_fail(p, -ETIMEDOUT,
					 "the client did not connect");
	}
	rc = perf_recv(p, PERF_PATIENCE_NS, &msg);
	if (!rc)
		json_decref(msg);
	return rc;
}

static int open_server(struct perf *p, struct rpc_bench *b)
{
	struct skein_listener_attr attr = {
		.size = sizeof(attr),
		.engines = b->engines,
		.engine_count = b->n_engines,
	};
	const char *addr;
	int rc;

	rc = skein_rpc_handle(b->ctx, RPC_ECHO, on_echo, b);
	if (!rc)
		rc = skein_rpc_handle(b->ctx, RPC_END, on_end, b);
	if (!rc)
		rc = skein_listener_open(
			b->ctx,
			p->o.self || !p->o.insecure ? "127.0.0.1:0" : ":0",
			&attr, &b->listener);
	if (rc)
		return perf_fail(p, rc, "cannot listen: %s",
				 skein_strerror(rc));
	addr = skein_listener_addr(b->listener);
	rc = ctl_send(p->ctl, json_pack("{s:s}", "listening", addr));
	return rc ? perf_gone(p, rc) : serve_handshakes(p, b);
}

/* Where the server listens: its port, on the host we reached it at. */
static int server_addr(struct perf *p, char *buf, size_t len)
{
	const char *addr, *port;
	json_t *msg;
	int rc = perf_recv(p, PERF_PATIENCE_NS, &msg);

	if (rc)
		return rc;
	addr = json_string_value(json_object_get(msg, "listening"));
	port = addr ? strrchr(addr, ':') : NULL;
	if (!port)
		rc = perf_fail(p, -EPROTO,
			       "the server's address makes no sense");
	else
		snprintf(buf, len, strchr(p->host, ':') ? "[%s]%s" : "%s%s",
			 p->o.self ? "127.0.0.1" : p->host, port);
	json_decref(msg);
	return rc;
}

/* The cause, where this end or the other one has said it. */
static int connect_failed(struct perf *p, struct rpc_bench *b, const char *addr,
			  int rc)
{
	const char *cause = out_log_later(&b->log);
	int told = *cause ? 0 : perf_last_words(p);

	if (told)
		return told;
	return perf_fail(p, rc, "cannot connect to %s: %s%s%s", addr,
			 skein_strerror(rc), *cause ? ": " : "", cause);
}

static int open_conn(struct perf *p, struct rpc_bench *b, unsigned i,
		     const char *addr)
{
	struct skein_conn_attr attr = {
		.size = sizeof(attr),
		.engine = b->engines[i % b->n_engines],
		.shard = i,
		.combine = p->o.degree,
		.return_mode = (enum skein_return)p->o.ret,
	};
	int rc;

	if (p->o.shared && !p->o.no_combining)
		attr.qps = p->o.qps;
	rc = skein_conn_open(b->ctx, addr, &attr, &b->conns[i]);
	return rc ? connect_failed(p, b, addr, rc) : 0;
}

/* Messages of just so many calls; how a slice's end is said then. */
static int force_degree(struct perf *p, struct rpc_bench *b, const char *addr)
{
	struct skein_conn_attr attr = {.size = sizeof(attr),
				       .engine = b->engines[0]};
	char least[16];
	int rc = skein_conn_open(b->ctx, addr, &attr, &b->end_conn);

	/* The library reads it when it opens a handle. */
	snprintf(least, sizeof(least), "%u", p->o.degree);
	setenv("SKEIN_COMBINE_LEAST", least, 1);
	return rc ? connect_failed(p, b, addr, rc) : 0;
}

static int open_conns(struct perf *p, struct rpc_bench *b, const char *addr)
{
	int rc = p->o.degree ? force_degree(p, b, addr) : 0;

	b->n_conns = b->n_engines;
	b->conns = calloc(b->n_conns, sizeof(struct skein_conn *));
	if (!b->conns)
		return -ENOMEM;
	for (unsigned i = 0; i < b->n_conns && !rc; i++)
		rc = open_conn(p, b, i, addr);
	for (unsigned i = 0; i < p->o.threads; i++)
		b->workers[i].conn = b->conns[i % b->n_conns];
	return rc;
}

static int open_client(struct perf *p, struct rpc_bench *b)
{
	char addr[320];
	int rc = server_addr(p, addr, sizeof(addr));

	if (!rc)
		rc = open_conns(p, b, addr);
	if (!rc && p->o.shared)
		rc = rpc_lane_client_ready(b);
	if (rc)
		return rc;
	rc = ctl_send(p->ctl, json_pack("{s:b}", "connected", 1));
	return rc ? perf_gone(p, rc) : 0;
}

static int rpc_open(struct perf *p)
{
	struct rpc_bench *b = calloc(1, sizeof(*b));
	int rc;

	p->state = b;
	if (!b)
		return -ENOMEM;
	b->p = p;
	rc = open_ctx(p, b);
	if (!rc)
		rc = make_engines(p, b);
	if (!rc)
		rc = make_workers(p, b);
	if (rc)
		return rc;
	return p->server ? open_server(p, b) : open_client(p, b);
}

int rpc_call_failed(struct rpc_worker *rw, int rc)
{
	const char *story = "";

	(void)skein_conn_error(rw->conn, &story);
	return perf_fail(rw->w->p, rc, "a call failed: %s%s%s",
			 skein_strerror(rc), *story ? ": " : "", story);
}

static int rpc_lat(struct rpc_worker *rw)
{
	struct perf *p = rw->w->p;

	for (uint64_t i = 0; i < rw->w->n; i++) {
		uint64_t t0 = ticks_now(), t1;
		int rc;

		rc = skein_rpc_call(rw->conn, RPC_ECHO, rw->req, p->size,
				    rw->resp, p->size, perf_patience(p), NULL);
		t1 = ticks_now();
		if (rc)
			return rpc_call_failed(rw, rc);
		hist_record(rw->w->lat,
			    (uint64_t)((double)(t1 - t0) * p->ns_per_tick));
	}
	return 0;
}

#define LOOK_NS 1000000000ull /* at the control link */
#define CALLS_MAX 64u	      /* that leave together */

static int fill(struct rpc_worker *rw);

/* The next calls are made from here, as a program that keeps a window full
 * does: inside the engine's round, where a call is cheapest. With --flush they
 * are made outside, as by a program that knows of no round. */
static void on_done(void *arg, const struct skein_rpc_result *res)
{
	struct rpc_worker *rw = arg;
	int rc = res->status;

	rw->outstanding--;
	rw->done++;
	if (!rc && !rw->w->p->o.flush && !rw->w->p->o.outside)
		rc = fill(rw);
	if (rc && !rw->status)
		rw->status = rc;
}

static void on_done_timed(void *arg, const struct skein_rpc_result *res)
{
	rpc_sample(arg, ticks_now());
	on_done(arg, res);
}

static struct skein_rpc_entry next_call(struct rpc_worker *rw)
{
	struct perf *p = rw->w->p;
	struct skein_rpc_entry call = {.id = RPC_ECHO,
				       .req = rw->req,
				       .req_len = p->size,
				       .resp_max = p->size,
				       .timeout_ns = perf_patience(p),
				       .done = on_done,
				       .arg = rw};

	if (rw->issued % RPC_SAMPLE_EVERY == 0 && !rw->sample_t0) {
		call.done = on_done_timed;
		rw->sample_t0 = ticks_now();
	}
	return call;
}

/* n calls, together if they are several. */
static int call_some(struct rpc_worker *rw, unsigned n)
{
	struct skein_rpc_entry calls[CALLS_MAX];
	unsigned begun = 0;
	int rc;

	for (unsigned i = 0; i < n; i++, rw->issued++)
		calls[i] = next_call(rw);
	rw->issued -= n;
	if (n > 1 || rw->w->p->o.flush)
		rc = skein_rpc_call_batch(rw->conn, calls, n, &begun);
	else
		rc = skein_rpc_call_async(rw->conn, calls->id, calls->req,
					  calls->req_len, calls->resp_max,
					  calls->timeout_ns, calls->done,
					  calls->arg);
	if (!rc && n == 1)
		begun = 1;
	for (unsigned i = begun; i < n; i++)
		if (calls[i].done == on_done_timed)
			rw->sample_t0 = 0;
	rw->issued += begun;
	rw->outstanding += begun;
	return !rc && begun < n ? -EAGAIN : rc;
}

/* Issues as many full batches as the window takes. A batch of one is no batch:
 * what is made in one round leaves together, as applications see it. */
static int fill(struct rpc_worker *rw)
{
	const struct perf_opts *o = &rw->w->p->o;
	int rc = 0;

	while (!rc && rw->issued < rw->w->n &&
	       rw->outstanding + o->batch <= o->window)
		for (uint32_t k = 0, n; k < o->batch && !rc; k += n) {
			n = o->batch - k;
			n = n < CALLS_MAX ? n : CALLS_MAX;
			rc = call_some(rw, n);
		}
	return rc == -EAGAIN ? 0 : rc;
}

/* Nothing moved: sleeps if the engine is one that sleeps. */
static bool rest(struct rpc_worker *rw)
{
	struct pollfd pfd = {.fd = skein_engine_fd(rw->engine),
			     .events = POLLIN};

	if (rw->w->p->o.wait == PERF_WAIT_EVENT &&
	    !skein_engine_arm(rw->engine))
		(void)poll(&pfd, 1, NAP_MS);
	return perf_spin(rw->w);
}

static int rpc_rate(struct rpc_worker *rw)
{
	struct perf_worker *w = rw->w;
	int rc;

	rw->issued = rw->done = 0;
	while (rw->done < rw->w->n) {
		rc = fill(rw);
		if (rc)
			return rpc_call_failed(rw, rc);
		if (skein_engine_progress(rw->engine) > 0)
			perf_spun(rw->w);
		else if (!rest(rw))
			return rw->w->rc;
		perf_chunk(w, rw->done);
		if (rw->status)
			return rpc_call_failed(rw, rw->status);
	}
	return 0;
}

static int rpc_client(struct perf_worker *w)
{
	if (w->p->o.shared)
		return rpc_lane_client_client(w->state);
	return w->p->o.rate ? rpc_rate(w->state) : rpc_lat(w->state);
}

/* So large a result is replied: the server leaves its engine behind it, and would
 * not hear that one which was to be fetched is asked for. */
static char end_resp[8193];

/* Each worker stops its server; the last of those that share stops all. */
static int rpc_client_end(struct perf_worker *w)
{
	struct rpc_worker *rw = w->state;
	struct rpc_bench *b = rw->b;
	int rc;

	if (w->p->o.shared) {
		if (atomic_fetch_sub(&b->running, 1) > 1)
			return 0;
		atomic_store(&b->running, w->p->o.threads);
		atomic_store(&b->tickets, 0);
	}
	if (!b->end_conn)
		atomic_fetch_add(&b->ends, 1);
	rc = skein_rpc_call(b->end_conn ? b->end_conn : rw->conn, RPC_END, NULL,
			    0, end_resp, sizeof(end_resp), PERF_PATIENCE_NS,
			    NULL);
	return rc ? rpc_call_failed(rw, rc) : 0;
}

static int rpc_server(struct perf_worker *w)
{
	struct rpc_worker *rw = w->state;
	int rc;

	if (w->index >= rw->b->n_engines)
		return 0;
	do
		rc = skein_engine_run(rw->engine, LOOK_NS);
	while (rc == -ETIMEDOUT && !ctl_pending(w->p->ctl));
	if (rc == -ETIMEDOUT)
		return rc; /* the control link says why: perf_server() */
	if (rc)
		return perf_fail(w->p, rc, "the server's engine: %s",
				 skein_strerror(rc));
	for (int i = 0; i < LEAVE_ROUNDS; i++)
		skein_engine_progress(rw->engine);
	return 0;
}

static void add_counts(struct perf_counts *c, const struct skein_rpc_stats *s)
{
	c->calls += s->calls;
	c->messages += s->messages_sent;
	c->doorbells += s->doorbells;
	c->answers += s->messages_received;
	/* An answer about credits is a post of its own at the other end; one that
	 * was fetched is none. */
	c->answer_doorbells += s->messages_received - s->fetched_messages +
			       s->credit_grants + s->credit_declines;
	c->fetched += s->fetched;
	c->replied += s->replied;
	c->fetch_reads += s->fetch_reads;
	c->fetch_empty += s->fetch_empty;
	c->fetch_rests += s->fetch_rests;
	c->fetch_len_changes += s->fetch_len_changes;
	if (c->fetch_len < s->fetch_len)
		c->fetch_len = s->fetch_len;
	c->recalls += s->recalls;
	c->switches += s->switches;
	c->grants += s->credit_grants;
	c->declines += s->credit_declines;
	c->migrations += s->migrations;
	c->head_fetches += s->head_reads;
	c->credits += s->credits;
	c->active += s->lanes_active;
	for (unsigned i = 0; i < SKEIN_RPC_DEGREES; i++)
		c->degrees[i] += s->degrees[i];
}

static void rpc_counts(struct perf *p, struct perf_counts *c)
{
	struct rpc_bench *b = p->state;
	uint64_t ends = atomic_load(&b->ends);

	*c = (struct perf_counts){0};
	for (unsigned i = 0; i < b->n_conns; i++) {
		struct skein_rpc_stats s = {.size = sizeof(s)};

		if (!skein_rpc_get_stats(b->conns[i], &s))
			add_counts(c, &s);
	}
	c->link = conn_link(b->conns[0]);
	/* The calls that end slices, each alone in its message, and replied. */
	c->calls -= ends;
	c->messages -= ends;
	c->doorbells -= ends;
	c->answers -= ends;
	c->answer_doorbells -= ends;
	c->replied -= ends;
	if (p->o.shared && !p->o.no_combining)
		c->degrees[0] -= ends;
}

static void rpc_close(struct perf *p)
{
	struct rpc_bench *b = p->state;

	if (!b)
		return;
	if (b->workers)
		rpc_lane_client_close(b);
	for (unsigned i = 0; i < b->n_conns; i++)
		if (b->conns && b->conns[i])
			skein_conn_close(b->conns[i], SKEIN_MS(CLOSE_MS));
	free(b->conns);
	if (b->end_conn)
		skein_conn_close(b->end_conn, SKEIN_MS(CLOSE_MS));
	for (unsigned i = 0; b->workers && i < p->o.threads; i++) {
		free(b->workers[i].req);
		free(b->workers[i].resp);
	}
	if (b->listener)
		skein_listener_close(b->listener);
	if (b->ctx)
		skein_ctx_close(b->ctx);
	free(b->workers);
	free(b->engines);
	free(b);
	p->state = NULL;
}

const struct perf_op perf_op_rpc = {
	.name = "rpc",
	.open = rpc_open,
	.client = rpc_client,
	.server = rpc_server,
	.client_end = rpc_client_end,
	.counts = rpc_counts,
	.close = rpc_close,
};
