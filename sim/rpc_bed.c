/* SPDX-License-Identifier: MIT */
/*
 * rpc_bed.c - see rpc_bed.h.
 *
 * Order of a run: the server listens, all threads connect, all begin when the
 * last is ready, a stretch to warm up, the stretch that counts. Nothing is
 * brought to an orderly end: the world is dropped.
 */
#include "sim/rpc_bed.h"

#include "base/hist.h"
#include "conn/ctx.h"
#include "dev/sim/link.h"
#include "rpc/state.h"
#include "sim/rfrpc/reply_wait.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <skein/skein.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ECHO 1
#define PUT 2
#define PORT ":7000"
#define SERVER "server:7000"
#define LEN_MAX 16384u
#define WINDOW_MAX 128u
#define SERVERS_MAX 64u
#define CONNECT_NS 60000000000ull /* of virtual time, for all */
#define STEP_NS 1000000ull
#define OPS_STEP_NS 10000ull
#define IDLE_NS 10000ull
#define OPS_LIMIT_NS 10000000000ull

struct bed;

/* A connection, with its engine: of one thread, or shared by threads. */
struct bed_conn {
	struct skein_engine *engine;
	struct skein_conn *conn; /* the first, or the only one */
	struct skein_conn **conns;
	bool locked; /* the baseline's spin lock */
	bool opening;
};

/* A call under way. */
struct slot {
	struct caller *caller;
	uint64_t begun; /* 0: free */
	uint32_t resp_len;
};

struct caller {
	struct bed *bed;
	struct client *client;
	struct bed_conn *bconn;
	struct env_waiter *waiter;
	struct prng r;
	uint32_t len;
	unsigned number; /* of all */
	unsigned outstanding;
	void *app; /* conf->app's */
	struct slot slots[WINDOW_MAX];
};

/* A process. */
struct client {
	struct bed *bed;
	struct sim_proc *proc;
	struct skein_ctx *ctx;
	struct bed_conn *bconns;
	struct caller *callers;
	unsigned n_bconns, number;
};

struct bed {
	const struct rpc_bed_conf *conf;
	struct sim_world *w;
	struct sim_node *server;
	struct sim_proc *server_proc;
	struct skein_ctx *ctx;
	struct skein_engine **engines;
	unsigned n_conns; /* accepted */
	unsigned engines_up;
	struct client *clients;
	unsigned n_clients, n_callers, ready;
	bool listening, go, counting;
	unsigned active; /* callers that make calls */
	uint64_t calls, answered, held;
	struct hist *hist;
	struct prng steps;
	double *shares; /* of threads 0 to i in all keys */
	unsigned char data[LEN_MAX];
	int rc;
};

static void failed(struct bed *bed, int rc)
{
	if (!bed->rc)
		bed->rc = rc;
}

/* --- the server -------------------------------------------------------- */

static uint32_t resp_len(const struct rpc_bed_conf *conf, bool put)
{
	if (put)
		return conf->put_resp_len;
	return conf->resp_len ? conf->resp_len : conf->len;
}

static int serve(struct bed *bed, struct skein_rpc_req *req, uint32_t len)
{
	void *resp = skein_rpc_resp_buf(req, len);

	if (!resp)
		return -ENOMEM;
	memset(resp, 0, len);
	sim_charge(bed->w, bed->conf->handler_ns);
	if (bed->conf->in_step)
		sim_flush(bed->w, 1);
	if (bed->counting)
		bed->calls++;
	return 0;
}

static int serve_echo(struct skein_rpc_req *req, void *arg)
{
	struct bed *bed = arg;

	return serve(bed, req, resp_len(bed->conf, false));
}

static int serve_put(struct skein_rpc_req *req, void *arg)
{
	struct bed *bed = arg;

	return serve(bed, req, resp_len(bed->conf, true));
}

static void on_conn(void *arg, struct skein_conn *conn,
		    enum skein_conn_state state)
{
	struct bed *bed = arg;

	if (state == SKEIN_CONN_READY)
		bed->n_conns++;
	else
		failed(bed, -ECONNRESET);
}

static void engine_main(void *arg)
{
	struct bed *bed = arg;

	skein_engine_run(bed->engines[bed->engines_up++], SKEIN_FOREVER);
}

static int server_open(struct bed *bed)
{
	struct skein_ctx_attr ca = {.size = sizeof(ca),
				    .wait = SKEIN_WAIT_POLL};
	struct skein_listener_attr la = {.size = sizeof(la),
					 .engine_count = bed->conf->servers,
					 .handshakes_max = 4096,
					 .on_conn = on_conn,
					 .arg = bed};
	struct skein_listener *l;
	struct rpc_ctx *rx;
	int rc;

	rc = ctx_open_env(sim_proc_env(bed->server_proc), &ca, &bed->ctx);
	if (rc)
		return rc;
	if (bed->conf->reply_wait)
		reply_wait_on(bed->ctx->dev);
	if (bed->conf->server_inlines_not)
		bed->ctx->dev->caps.inline_max = 0;
	rx = conn_ctx_module(bed->ctx, CONN_MODULE_RPC);
	rx->aqp.max = RPC_BED_MAX_AQP;
	rc = skein_rpc_handle(bed->ctx, ECHO, serve_echo, bed);
	if (!rc)
		rc = skein_rpc_handle(bed->ctx, PUT, serve_put, bed);
	if (!rc && bed->conf->app)
		rc = bed->conf->app->serve(bed->ctx, bed->w,
					   bed->conf->app_arg);
	bed->engines[0] = rc ? NULL : skein_ctx_engine(bed->ctx);
	for (unsigned i = 1; i < bed->conf->servers && !rc; i++)
		rc = skein_engine_new(bed->ctx, ca.wait, &bed->engines[i]);
	la.engines = bed->engines;
	return rc ? rc : skein_listener_open(bed->ctx, PORT, &la, &l);
}

static void server_main(void *arg)
{
	struct bed *bed = arg;
	int rc = server_open(bed);

	for (unsigned i = 1; i < bed->conf->servers && !rc; i++)
		rc = sim_spawn(bed->server_proc, "engine", engine_main, bed);
	if (rc) {
		failed(bed, rc);
		return;
	}
	bed->listening = true;
	engine_main(bed);
}

/* --- calls ------------------------------------------------------------- */

static void call_done(void *arg, const struct skein_rpc_result *res)
{
	struct slot *slot = arg;
	struct caller *c = slot->caller;
	struct bed *bed = c->bed;
	uint64_t ns;

	if (res->outcome != SKEIN_DONE || res->status ||
	    res->len != slot->resp_len)
		failed(bed, res->status ? res->status : -EIO);
	if (bed->counting) {
		ns = sim_thread_now(bed->w) - slot->begun;
		hist_record(bed->hist, ns);
		bed->answered++;
		bed->held += ns <= bed->conf->bound_ns;
	}
	slot->begun = 0;
	c->outstanding--;
}

static struct skein_env *env_of(const struct caller *c)
{
	return sim_proc_env(c->client->proc);
}

/* The connection of the next call. */
static struct skein_conn *conn_of(struct caller *c)
{
	const struct bed *bed = c->bed;
	double r;
	unsigned i = 0;

	if (bed->conf->keys == RPC_BED_OWN_SHARD)
		return c->bconn->conn;
	r = (double)prng_below(&c->r, 1u << 30) / (1u << 30);
	while (i + 1 < bed->conf->servers && bed->shares[i] <= r)
		i++;
	return c->bconn->conns[i];
}

/* The call of a free slot. */
static struct skein_rpc_entry call_of(struct caller *c, struct slot *slot)
{
	const struct rpc_bed_conf *conf = c->bed->conf;
	bool put = prng_below(&c->r, 100) < conf->put_pct;

	slot->begun = sim_thread_now(c->bed->w);
	slot->resp_len = resp_len(conf, put);
	return (struct skein_rpc_entry){
		.id = put ? PUT : ECHO,
		.req = c->bed->data,
		.req_len = put ? conf->put_len : c->len,
		.resp_max = slot->resp_len,
		.timeout_ns = SKEIN_S(10),
		.done = call_done,
		.arg = slot,
	};
}

/* A batch, when the one before it has ended. */
static void fill_whole(struct caller *c)
{
	struct skein_rpc_entry calls[WINDOW_MAX];
	unsigned n = c->bed->conf->window, begun = 0;
	int rc;

	if (c->outstanding)
		return;
	do
		calls[begun] = call_of(c, &c->slots[begun]);
	while (++begun < n);
	rc = skein_rpc_call_batch(conn_of(c), calls, n, &begun);
	c->outstanding = begun;
	if (rc || begun < n)
		failed(c->bed, rc ? rc : -EAGAIN);
}

/* Leaves at once, as FLOCK's calls do; with a latency bound in a batch. */
static int begin_one(struct caller *c, const struct skein_rpc_entry *e)
{
	unsigned begun;

	if (c->bed->conf->tuned)
		return skein_rpc_call_async(conn_of(c), e->id, e->req,
					    e->req_len, e->resp_max,
					    e->timeout_ns, e->done, e->arg);
	return skein_rpc_call_batch(conn_of(c), e, 1, &begun);
}

/* As many as may be outstanding. */
static void fill(struct caller *c)
{
	struct bed *bed = c->bed;
	int rc = 0;

	for (unsigned i = 0; i < bed->conf->window && !rc; i++) {
		struct slot *slot = &c->slots[i];
		struct skein_rpc_entry e;

		if (slot->begun)
			continue;
		e = call_of(c, slot);
		rc = begin_one(c, &e);
		if (rc)
			slot->begun = 0;
		else
			c->outstanding++;
	}
	if (rc && rc != -EAGAIN)
		failed(bed, rc);
}

static bool may_call(void *arg)
{
	struct caller *c = arg;

	unsigned most = c->bed->conf->whole ? 1 : c->bed->conf->window;

	return c->outstanding < most || c->bed->rc;
}

static void call_private(struct caller *c)
{
	if (c->bed->conf->whole)
		fill_whole(c);
	else
		fill(c);
	engine_run_until(c->bconn->engine->e, may_call, c, ENV_NEVER);
}

static void call_app(struct caller *c)
{
	struct bed *bed = c->bed;
	uint64_t begun = sim_thread_now(bed->w);
	int rc = bed->conf->app->one(c->app, &c->r);

	if (rc)
		failed(bed, rc);
	if (bed->counting) {
		hist_record(bed->hist, sim_thread_now(bed->w) - begun);
		bed->answered++;
	}
}

/* One turn of a thread on a shared handle: it makes calls and takes its own
 * responses. */
static void call_lanes(struct caller *c)
{
	int rc;

	fill(c);
	rc = skein_rpc_reap(c->bconn->conn, SKEIN_MS(1));
	if (rc < 0 && rc != -ETIMEDOUT)
		failed(c->bed, rc);
}

/* A caller beyond those that are active ends what it has, and waits. */
static void call_idle(struct caller *c)
{
	if (c->outstanding)
		(void)skein_rpc_reap(c->bconn->conn, SKEIN_MS(1));
	else
		sim_sleep(c->bed->w, IDLE_NS);
}

/* As in FaRM: a thread takes the lock to post, and posts only its own
 * requests. */
static void lock(struct caller *c)
{
	env_charge(env_of(c), ENV_COST_SWAP, 1);
	while (c->bconn->locked)
		env_charge(env_of(c), ENV_COST_PAUSE, 1);
	c->bconn->locked = true;
}

static void unlock(struct caller *c)
{
	env_charge(env_of(c), ENV_COST_SWAP, 1);
	c->bconn->locked = false;
}

/* A thread that finds the lock taken leaves the responses to its holder. */
static void call_locked(struct caller *c, unsigned *round)
{
	int moved = 0;

	if (may_call(c)) {
		lock(c);
		fill(c);
		unlock(c);
	}
	if (!c->bconn->locked) {
		lock(c);
		moved = skein_engine_progress(c->bconn->engine);
		unlock(c);
	}
	if (may_call(c) || moved)
		*round = 0;
	else
		env_idle(env_of(c), c->waiter, (*round)++);
}

/* --- connecting -------------------------------------------------------- */

/* Of one bed_conn. */
static unsigned conns_of(const struct rpc_bed_conf *conf)
{
	return conf->keys ? conf->servers : 1;
}

static int bed_conn_open(struct client *cl, struct bed_conn *bconn)
{
	const struct rpc_bed_conf *conf = cl->bed->conf;
	struct skein_conn_attr attr = {
		.size = sizeof(attr),
		.shard = cl->number * cl->n_bconns +
			 (unsigned)(bconn - cl->bconns),
		.timeout_ns = CONNECT_NS,
		.retries = 1000000,
		.return_mode = conf->return_mode,
		.latency_bound_ns = conf->tuned ? conf->bound_ns : 0,
	};
	int rc;

	if (conf->system == RPC_BED_LANES) {
		attr.shard *= conf->qps;
		attr.qps = conf->qps;
		attr.combine = conf->batch;
	}
	rc = skein_engine_new(cl->ctx, SKEIN_WAIT_POLL, &bconn->engine);
	attr.engine = bconn->engine;
	for (unsigned i = 0; i < conns_of(conf) && !rc; i++) {
		if (conf->keys)
			attr.shard = i;
		rc = skein_conn_open(cl->ctx, SERVER, &attr, &bconn->conns[i]);
	}
	bconn->conn = rc ? NULL : bconn->conns[0];
	return rc;
}

static int get_ready(struct caller *c)
{
	struct bed *bed = c->bed;
	int rc = 0;

	if (!c->bconn->opening) {
		c->bconn->opening = true;
		rc = bed_conn_open(c->client, c->bconn);
	}
	while (!c->bconn->conn && !bed->rc && !rc)
		sim_sleep(bed->w, STEP_NS);
	if (!rc)
		rc = env_waiter_new(env_of(c), ENV_WAIT_POLL, &c->waiter);
	if (!rc && !bed->rc && bed->conf->app)
		rc = bed->conf->app->join(c->client->ctx, c->bconn->conn,
					  env_of(c), bed->conf->app_arg,
					  &c->app);
	bed->ready++;
	while (!bed->go && !bed->rc && !rc)
		sim_sleep(bed->w, 10000);
	return rc;
}

static void caller_main(void *arg)
{
	struct caller *c = arg;
	struct bed *bed = c->bed;
	unsigned round = 0;
	int rc = get_ready(c);

	if (rc)
		failed(bed, rc);
	while (!bed->rc) {
		if (c->number >= bed->active)
			call_idle(c);
		else if (bed->conf->app)
			call_app(c);
		else if (bed->conf->system == RPC_BED_LOCKED)
			call_locked(c, &round);
		else if (bed->conf->system == RPC_BED_LANES || bed->conf->tuned)
			call_lanes(c);
		else
			call_private(c);
	}
}

static void client_main(void *arg)
{
	struct client *cl = arg;
	struct skein_ctx_attr ca = {.size = sizeof(ca),
				    .wait = SKEIN_WAIT_POLL};
	struct bed *bed = cl->bed;
	struct rpc_ctx *rx;
	int rc = 0;

	while (!bed->listening && !bed->rc)
		sim_sleep(bed->w, STEP_NS);
	rc = ctx_open_env(sim_proc_env(cl->proc), &ca, &cl->ctx);
	if (!rc) {
		rx = conn_ctx_module(cl->ctx, CONN_MODULE_RPC);
		rx->calib = bed->conf->calib;
		if (bed->conf->client_inlines_not)
			cl->ctx->dev->caps.inline_max = 0;
		if (bed->conf->client_waits)
			reply_wait_on(cl->ctx->dev);
	}
	for (unsigned i = 1; i < bed->conf->threads && !rc; i++)
		rc = sim_spawn(cl->proc, "caller", caller_main,
			       &cl->callers[i]);
	if (rc)
		failed(bed, rc);
	else
		caller_main(&cl->callers[0]);
}

/* --- the run ----------------------------------------------------------- */

static unsigned sharers(const struct rpc_bed_conf *conf)
{
	if (conf->system == RPC_BED_PRIVATE)
		return 1;
	return conf->share ? conf->share : conf->threads;
}

static bool calls_large(const struct rpc_bed_conf *conf, unsigned thread)
{
	return (thread + 1) * conf->large_pct / 100 >
	       thread * conf->large_pct / 100;
}

static int client_make(struct bed *bed, struct client *cl, unsigned number,
		       struct sim_node *node)
{
	const struct rpc_bed_conf *conf = bed->conf;
	unsigned share = sharers(conf);
	int rc = sim_proc_new(node, "client", &cl->proc);

	if (rc)
		return rc;
	cl->bed = bed;
	cl->number = number;
	cl->n_bconns = (conf->threads + share - 1) / share;
	cl->bconns = calloc(cl->n_bconns, sizeof(*cl->bconns));
	cl->callers = calloc(conf->threads, sizeof(*cl->callers));
	if (!cl->bconns || !cl->callers)
		return -ENOMEM;
	for (unsigned i = 0; i < cl->n_bconns; i++) {
		cl->bconns[i].conns = calloc(conns_of(conf), sizeof(void *));
		if (!cl->bconns[i].conns)
			return -ENOMEM;
	}
	for (unsigned i = 0; i < conf->threads; i++) {
		struct caller *c = &cl->callers[i];

		c->bed = bed;
		c->client = cl;
		c->bconn = &cl->bconns[i / share];
		c->number = number * conf->threads + i;
		c->len = calls_large(conf, i) ? conf->large_len : conf->len;
		sim_prng(bed->w, 0x63616c6c + number * conf->threads + i,
			 &c->r);
		for (unsigned k = 0; k < WINDOW_MAX; k++)
			c->slots[k].caller = c;
	}
	return sim_spawn(cl->proc, "main", client_main, cl);
}

/* Keys that are few enough to count one by one; the others are spread. */
#define HOT_KEYS 100000u

static int share_keys(struct bed *bed)
{
	unsigned n = bed->conf->servers;
	double hot = 0, all, even, sum = 0, *s = calloc(n, sizeof(*s));

	bed->shares = s;
	if (!s)
		return -ENOMEM;
	for (unsigned k = 1;
	     bed->conf->keys == RPC_BED_ZIPFIAN && k <= HOT_KEYS; k++) {
		s[prng_mix(k) % n] += pow(k, -0.99);
		hot += pow(k, -0.99);
	}
	all = hot > 0 ? hot + (pow(RPC_BED_KEYS, 0.01) - pow(HOT_KEYS, 0.01)) *
					100
		      : n;
	even = (all - hot) / n;
	for (unsigned i = 0; i < n; i++) {
		sum += (s[i] + even) / all;
		s[i] = sum;
	}
	return 0;
}

static int build(struct bed *bed)
{
	const struct rpc_bed_conf *conf = bed->conf;
	struct sim_node *node = NULL;
	int rc;

	bed->n_clients = conf->nodes * conf->procs;
	bed->n_callers = bed->n_clients * conf->threads;
	bed->active = bed->n_callers;
	bed->clients = calloc(bed->n_clients, sizeof(*bed->clients));
	bed->engines = calloc(conf->servers, sizeof(struct skein_engine *));
	bed->hist = malloc(sizeof(*bed->hist));
	if (!bed->clients || !bed->engines || !bed->hist)
		return -ENOMEM;
	hist_init(bed->hist);
	prng_init(&bed->steps, conf->seed);
	rc = share_keys(bed);
	if (!rc)
		rc = sim_node_new(bed->w, "server",
				  conf->server_cores ? conf->server_cores
						     : conf->servers,
				  &bed->server);
	if (!rc)
		rc = sim_proc_new(bed->server, "server", &bed->server_proc);
	if (!rc)
		rc = sim_spawn(bed->server_proc, "main", server_main, bed);
	for (unsigned i = 0; i < bed->n_clients && !rc; i++) {
		if (i % conf->procs == 0)
			rc = sim_node_new(bed->w, "client", conf->cores, &node);
		if (!rc)
			rc = client_make(bed, &bed->clients[i], i, node);
	}
	return rc;
}

/* What the ends have counted: the server's, and fetches of the clients'. */
struct sums {
	struct sim_nic_counts nic;
	uint64_t calls, in, out, fetched, fetch_reads;
	uint64_t by_thread[SERVERS_MAX]; /* calls */
	unsigned qps;
};

static void sum_engine(const struct skein_engine *e, struct sums *s)
{
	const struct rpc_conn *rc;

	for (uint32_t i = 0; i < e->table_cap; i++) {
		rc = e->table[i] ? rpc_conn_of(e->table[i]) : NULL;
		if (!rc)
			continue;
		s->qps++;
		s->calls += rc->port.stats.calls;
		s->in += rc->port.stats.messages_received;
		s->out += rc->port.stats.messages_sent;
		s->fetched += rc->port.stats.fetched;
		s->fetch_reads += rc->port.stats.fetch_reads;
	}
}

static void sum(struct bed *bed, struct sums *s)
{
	struct sums far = {0};

	memset(s, 0, sizeof(*s));
	for (unsigned i = 0; i < bed->n_clients; i++)
		for (unsigned k = 0; k < bed->clients[i].n_bconns; k++)
			sum_engine(bed->clients[i].bconns[k].engine, &far);
	sim_nic_counts(bed->server, &s->nic);
	for (unsigned i = 0; i < bed->conf->servers; i++) {
		uint64_t before = s->calls;

		sum_engine(bed->engines[i], s);
		s->by_thread[i] = s->calls - before;
	}
	s->fetched = far.fetched;
	s->fetch_reads = far.fetch_reads;
}

static double ratio(uint64_t a, uint64_t b)
{
	return b ? (double)a / (double)b : 0;
}

/* At both ends. */
static bool all_ready(const struct bed *bed)
{
	return bed->ready == bed->n_callers &&
	       bed->n_conns == bed->n_clients * bed->clients->n_bconns *
				       conns_of(bed->conf);
}

/* Runs for so long; other callers are active after each step. */
static void run_steps(struct bed *bed, uint64_t ns)
{
	uint64_t step = bed->conf->step_ns ? bed->conf->step_ns : ns;
	struct prng *r = &bed->steps;

	for (; ns; ns -= step) {
		step = step < ns ? step : ns;
		if (bed->conf->step_ns)
			bed->active =
				1 + (unsigned)prng_below(r, bed->n_callers);
		sim_run(bed->w, sim_now(bed->w) + step);
	}
}

/* The stretch that counts; how long it was. */
static uint64_t count(struct bed *bed)
{
	const struct rpc_bed_conf *conf = bed->conf;
	uint64_t from = sim_now(bed->w), enough = conf->ops * bed->n_callers;

	bed->counting = true;
	do
		run_steps(bed, conf->ops ? OPS_STEP_NS : conf->run_ns);
	while (bed->answered < enough && !bed->rc &&
	       sim_now(bed->w) - from < OPS_LIMIT_NS);
	bed->counting = false;
	return sim_now(bed->w) - from;
}

static void spread(const struct bed *bed, const struct sums *was,
		   const struct sums *is, struct rpc_bed_result *res)
{
	unsigned n = bed->conf->servers;
	uint64_t all = is->calls - was->calls;
	double over;

	for (unsigned i = 0; i < n; i++) {
		over = ratio((is->by_thread[i] - was->by_thread[i]) * n, all);
		res->most = !i || over > res->most ? over : res->most;
		res->fewest = !i || over < res->fewest ? over : res->fewest;
	}
}

static int play(struct bed *bed, struct rpc_bed_result *res)
{
	const struct rpc_bed_conf *conf = bed->conf;
	struct sums was, is;
	uint64_t ns;

	while (!all_ready(bed) && !bed->rc && sim_now(bed->w) < CONNECT_NS)
		sim_run(bed->w, sim_now(bed->w) + STEP_NS);
	if (!all_ready(bed))
		return bed->rc ? bed->rc : -ETIMEDOUT;
	bed->go = true;
	sim_run(bed->w, sim_now(bed->w) + conf->warm_ns);
	sum(bed, &was);
	ns = count(bed);
	sum(bed, &is);
	res->mops = (double)bed->calls * 1e3 / (double)ns;
	res->answered_mops = (double)bed->answered * 1e3 / (double)ns;
	if (conf->hist)
		*conf->hist = *bed->hist;
	res->mean_ns = (double)hist_mean(bed->hist);
	res->p15_ns = (double)hist_percentile(bed->hist, 15);
	res->p50_ns = (double)hist_percentile(bed->hist, 50);
	res->p99_ns = (double)hist_percentile(bed->hist, 99);
	res->held = ratio(bed->held, bed->answered);
	res->degree = ratio(is.calls - was.calls, is.in - was.in);
	res->answers = ratio(is.calls - was.calls, is.out - was.out);
	res->out_per_call = ratio(is.nic.messages_out - was.nic.messages_out,
				  is.calls - was.calls);
	res->in_per_call = ratio(is.nic.messages_in - was.nic.messages_in,
				 is.calls - was.calls);
	res->qps = is.qps;
	res->fetched = ratio(is.fetched - was.fetched, is.calls - was.calls);
	res->reads = ratio(is.fetch_reads - was.fetch_reads,
			   is.fetched - was.fetched);
	res->posts = ratio(is.out - was.out, is.calls - was.calls);
	spread(bed, &was, &is, res);
	return bed->rc;
}

static void bed_free(struct bed *bed)
{
	bed->rc = -ECANCELED; /* what still runs is killed */
	sim_world_free(bed->w);
	for (unsigned i = 0; bed->clients && i < bed->n_clients; i++) {
		for (unsigned k = 0;
		     bed->clients[i].bconns && k < bed->clients[i].n_bconns;
		     k++)
			free(bed->clients[i].bconns[k].conns);
		free(bed->clients[i].bconns);
		free(bed->clients[i].callers);
	}
	free(bed->clients);
	free(bed->engines);
	free(bed->hist);
	free(bed->shares);
}

static bool sensible(const struct rpc_bed_conf *c)
{
	return c->nodes && c->procs && c->threads && c->servers && c->window &&
	       c->window <= WINDOW_MAX && c->len <= LEN_MAX &&
	       c->large_len <= LEN_MAX && c->put_len <= LEN_MAX &&
	       c->servers <= SERVERS_MAX &&
	       (!c->keys || (c->system == RPC_BED_PRIVATE && !c->tuned)) &&
	       c->sched_ns && (c->system != RPC_BED_LANES || c->qps);
}

/* Contexts read these when they open. */
static void conf_put(const struct rpc_bed_conf *conf)
{
	char text[24];

	if (conf->batch) {
		snprintf(text, sizeof(text), "%u", conf->batch);
		setenv("SKEIN_RPC_BATCH", text, 1);
	}
	snprintf(text, sizeof(text), "%" PRIu64 "ns", conf->sched_ns);
	setenv("SKEIN_QP_INTERVAL", text, 1);
	setenv("SKEIN_THREAD_INTERVAL", text, 1);
}

static void conf_take_back(void)
{
	unsetenv("SKEIN_RPC_BATCH");
	unsetenv("SKEIN_QP_INTERVAL");
	unsetenv("SKEIN_THREAD_INTERVAL");
}

int rpc_bed_run(const struct rpc_bed_conf *conf, struct rpc_bed_result *res)
{
	struct sim_conf wc = {.seed = conf->seed, .costs = conf->costs};
	struct bed *bed = calloc(1, sizeof(*bed));
	int rc;

	if (!bed)
		return -ENOMEM;
	bed->conf = conf;
	rc = sensible(conf) ? sim_world_new(&wc, &bed->w) : -EINVAL;
	if (rc) {
		free(bed);
		return rc;
	}
	sim_net_set_model(bed->w, conf->nic);
	conf_put(conf);
	rc = build(bed);
	if (!rc)
		rc = play(bed, res);
	conf_take_back();
	res->hash = sim_hash(bed->w);
	res->virtual_ns = sim_now(bed->w);
	res->events = sim_events(bed->w);
	bed_free(bed);
	free(bed);
	return rc;
}
