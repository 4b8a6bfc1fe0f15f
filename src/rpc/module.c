/* SPDX-License-Identifier: MIT */
/*
 * module.c - RPC as a module of connections: configuration, its section of the
 * handshake, rounds, sleeping, and the end. docs/protocol/rpc.md, sections 8
 * and 9.
 *
 * The end that opened the connection calls, the other end serves: this file
 * drives the engines of client.h and server.h.
 *
 * Thread rule: the owner of the connection's engine.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"

#include "base/pow2.h"
#include "base/conf.h"
#include "conn/ctx.h"
#include "conn/handle/lanes.h"
#include "rpc/client/lane_client.h"

#define SECTION_VERSION 2
#define SECTION_ORDERED_WRITE 1u
#define SECTION_ORDERED_READ 2u
#define SECTION_ANY_ORDER 4u
#define SECTION_CREDITS 8u
#define SECTION_FETCH 16u
#define SECTION_TELL 32u /* a caller wants RPC_WORD_STARVED */
#define SECTION_QUIET 64u
#define SECTION_TIME 128u /* a server fills in `time` */

/* The engine has been busy for so long, without a round that moved nothing. */
#define STARVED_NS (1000 * 1000u)

/* A caller cannot make a server register a larger region. */
#define REGION_LEN_MAX (512ull << 20)

#define RING_MIN (16 * RPC_LINE)
#define RING_MAX (64ull << 20)
#define COUNT_MAX (1u << 20)
#define INTERVAL_MIN 100000u
#define INTERVAL_MAX (3600 * 1000000000ull)

static const struct conf_row conf_rows[] = {
	CONF_RANGE(struct rpc_conf, ring, "RPC_RING", "256K",
		   "bytes of a connection's request ring", conf_size, RING_MIN,
		   RING_MAX),
	CONF_RANGE(struct rpc_conf, resp_ring, "RPC_RESP_RING", "256K",
		   "bytes of a connection's response space", conf_size,
		   RING_MIN, RING_MAX),
	CONF_RANGE(struct rpc_conf, msg_max, "RPC_MSG_MAX", "16K",
		   "largest message; what is longer is fetched by READ",
		   conf_size, 8 * RPC_LINE, RPC_SPILL_MAX *RPC_LINE),
	CONF_RANGE(struct rpc_conf, resp_inline, "RPC_RESP_INLINE", "8K",
		   "largest result that space is reserved for", conf_size, 64,
		   RPC_SPILL_MAX *RPC_LINE),
	CONF_RANGE(struct rpc_conf, window, "RPC_WINDOW", "1024",
		   "outstanding calls of a connection", conf_u32, 1, COUNT_MAX),
	CONF_RANGE(struct rpc_conf, batch, "RPC_BATCH", "16",
		   "calls in one message", conf_u32, 1, 4096),
	CONF_RANGE(struct rpc_conf, later, "RPC_LATER", "1024",
		   "requests of a connection in the hands of workers", conf_u32,
		   1, COUNT_MAX),
	CONF_ROW(struct rpc_conf, later_len, "RPC_LATER_LEN", "4M",
		 "bytes that these may take", conf_size, NULL),
	CONF_ROW(struct rpc_conf, large_max, "RPC_LARGE_MAX", "12G",
		 "bytes that a connection's large payloads may take", conf_size,
		 NULL),
	CONF_RANGE(
		struct rpc_conf, aqp_max, "MAX_AQP", "0",
		"active QPs of the handles that are served; 0: as many as the "
		"device serves at full speed, or 256",
		conf_u32, 0, COUNT_MAX),
	CONF_RANGE(struct rpc_conf, qp_interval_ns, "QP_INTERVAL", "10ms",
		   "how often they are shared anew", conf_time, INTERVAL_MIN,
		   INTERVAL_MAX),
	CONF_RANGE(struct rpc_conf, thread_interval_ns, "THREAD_INTERVAL",
		   "10ms",
		   "how often threads are spread over a handle's active QPs",
		   conf_time, INTERVAL_MIN, INTERVAL_MAX),
	CONF_ROW(struct rpc_conf, slow_ns, "RPC_SLOW", "1s",
		 "a worker's handler that runs for so long is logged; 0: none",
		 conf_time, NULL),
	CONF_ROW(struct rpc_conf, calibration, "RPC_CALIBRATION", "on",
		 "on, off, or a file of `skein perf calibrate`", conf_string,
		 NULL),
	CONF_END};

/* --- context ------------------------------------------------------------ */

static const char *conf_lookup(void *arg, const char *name)
{
	return getenv(name);
}

static uint64_t clamp(uint64_t v, uint64_t min, uint64_t max)
{
	if (v < min)
		return min;
	return v > max ? max : v;
}

static size_t ring_len(size_t len)
{
	return doubled_to(RING_MIN, len);
}

/* Each value is in its range: makes them fit each other. */
static void conf_settle(struct rpc_conf *c, const struct dev *dev)
{
	if (!c->aqp_max)
		c->aqp_max =
			dev->caps.qp_fast ? dev->caps.qp_fast : QPSCHED_MAX_AQP;
	c->ring = ring_len(c->ring);
	c->resp_ring = ring_len(c->resp_ring);
	c->msg_max =
		clamp(c->msg_max & ~(size_t)(RPC_LINE - 1), 8 * RPC_LINE,
		      clamp(c->ring < c->resp_ring ? c->ring : c->resp_ring,
			    8 * RPC_LINE, RPC_SPILL_MAX * RPC_LINE));
	c->resp_inline = clamp(c->resp_inline & ~(size_t)7, 64,
			       c->msg_max - RPC_RESP_ROOM);
	c->resp_inline &= ~(size_t)7;
	c->window = pow2_at_least(c->window);
}

static int rpc_ctx_open(struct skein_ctx *ctx, void **state)
{
	struct skein_env *env = ctx->env;
	struct rpc_ctx *rx = env_alloc(env, sizeof(*rx));
	char err[320];
	int rc;

	if (!rx)
		return -ENOMEM;
	conf_defaults(conf_rows, &rx->conf);
	rc = conf_load(conf_rows, &rx->conf, conf_lookup, NULL, err,
		       sizeof(err));
	if (rc) {
		env_log(env, ENV_LOG_ERROR, "rpc: %s", err);
		env_free(env, rx);
		return rc;
	}
	conf_settle(&rx->conf, ctx->dev);
	/* a simulation does not depend on this machine's files */
	rpc_calib_file_init(&rx->calib_file, ctx->dev,
			    env->ops->charge ? "off" : rx->conf.calibration);
	env_mutex_init(env, &rx->lock);
	rpc_orphans_init(&rx->orphans, env);
	aqp_init(&rx->aqp, env, rx->conf.aqp_max, rx->conf.qp_interval_ns);
	*state = rx;
	return 0;
}

static void rpc_ctx_close(struct skein_ctx *ctx, void *state)
{
	struct rpc_ctx *rx = state;

	rpc_pools_fini(rx);
	rpc_orphans_fini(&rx->orphans);
	aqp_fini(&rx->aqp);
	rpc_handlers_fini(&rx->handlers, ctx->env);
	env_mutex_fini(ctx->env, &rx->lock);
	env_free(ctx->env, rx);
}

static void rpc_ctx_tick(struct skein_ctx *ctx, void *state, uint64_t now_ns)
{
	rpc_pools_tick(state, ctx->env, now_ns);
}

/* Whole pages, and at most one message of the device. */
static uint32_t read_max(const struct dev *dev)
{
	return (uint32_t)clamp(dev->caps.msg_sz_max & ~4095ull, 4096,
			       dev->caps.poster_copies ? CONN_TURN_LEN
						       : RPC_PIECE);
}

/* READs of large payloads under way, besides those of the Head and of answers.
 * A READ beyond the limit of the queue pair would stop all that is behind
 * it. */
static unsigned reads_max(const struct dev *dev)
{
	unsigned n = dev_rd_atomic(dev);

	return (unsigned)clamp(n > 2 ? n - 2 : 1, 1, RPC_PIECES);
}

/* --- a connection's engines: up and down -------------------------------- */

/* One READ of answers is under way at a time, and READs of the Head or of a
 * large payload besides. A READ beyond the limit of the queue pair would stop
 * all that is behind it. */
static bool can_fetch(struct skein_conn *conn)
{
	return dev_rd_atomic(conn_dev(conn)) >= 3;
}

/* In offer() and accept(): makes a new region and a new secret. */
static int conn_prepare(struct skein_conn *conn, const struct rpc_geom *geom,
			struct rpc_conn **out)
{
	struct skein_env *env = conn_env(conn);
	struct rpc_conn *rc = rpc_conn_of(conn);
	uint64_t len = rpc_geom_len(geom);

	if (!rc) {
		rc = env_alloc_aligned(env, RPC_LINE, sizeof(*rc));
		if (!rc)
			return -ENOMEM;
		rc->conn = conn;
		rc->engine = conn_engine(conn);
		rc->ctx = conn_ctx_module(conn_ctx(conn), CONN_MODULE_RPC);
		rc->waiting_end = &rc->waiting;
		conn_module_set(conn, CONN_MODULE_RPC, rc);
	}
	rc->caller = conn_is_client(conn);
	/* The server says so only to callers that ask: other callers see the
	 * section as it always was. */
	rc->fetches = can_fetch(conn) && (!rc->caller || conn_fetch(conn));
	if (rc->caller && rc->fetches)
		len += rpc_geom_landing_len(geom);
	mem_region_free(rc->region);
	rc->region = NULL;
	rc->port = (struct rpc_port){
		.ops = &rpc_post_ops,
		.geom = *geom,
		.batch_max = rc->ctx->conf.batch,
		.msg_max = geom->spill * RPC_LINE,
		.read_max = read_max(conn_dev(conn)),
		.reads_max = reads_max(conn_dev(conn)),
		.resp_inline_max = (uint32_t)rc->ctx->conf.resp_inline,
		.model = env->ops->charge ? env : NULL,
		.stats = rc->port.stats,
	};
	env_random(env, &rc->port.secret_in, sizeof(rc->port.secret_in));
	*out = rc;
	return mem_region_new(conn_dev(conn), conn_pd(conn), "skein-rpc", len,
			      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				      IBV_ACCESS_REMOTE_READ |
				      IBV_ACCESS_ON_DEMAND,
			      conn_region_id(conn_ctx(conn)), &rc->region);
}

static void wake_owner(void *arg)
{
	engine_kick(arg);
}

static void later_conf(struct rpc_conn *rc, struct rpc_deferred_conf *later)
{
	*later = (struct rpc_deferred_conf){
		.env = conn_env(rc->conn),
		.orphans = &rc->ctx->orphans,
		.wake = wake_owner,
		.wake_arg = rc->engine,
		.max = rc->ctx->conf.later,
		.len_max = rc->ctx->conf.later_len,
		.in_any_order = rc->in_any_order,
		.shard = skein_conn_shard(conn_lane_head(rc->conn)),
		.buf_new = rpc_bufs_new,
		.buf_arg = conn_ctx(rc->conn),
	};
}

/* A served lane of several: it has credits, and the QP scheduler knows it. */
static int lane_up(struct rpc_conn *rc)
{
	struct skein_env *env = conn_env(rc->conn);
	int err;

	rc->lane_server = env_alloc(env, sizeof(*rc->lane_server));
	if (!rc->lane_server)
		return -ENOMEM;
	rc->calls_before = rc->port.stats.calls;
	rc->messages_before = rc->port.stats.call_messages;
	rpc_lane_server_init(rc->lane_server, CREDIT_C, wake_owner, rc->engine);
	err = aqp_add(&rc->ctx->aqp, rc->lane_server, conn_lane_head(rc->conn),
		      engine_now_ns(rc->engine));
	if (err) {
		env_free(env, rc->lane_server);
		rc->lane_server = NULL;
	}
	return err;
}

/* The caller fetches. */
static int mirror_up(struct rpc_conn *rc)
{
	struct dev_caps caps;

	conn_caps(rc->conn, &caps);
	env_free(conn_env(rc->conn), rc->mirror);
	rc->mirror =
		rpc_mirror_new(conn_env(rc->conn), rc->port.geom.resp_lines,
			       !caps.ordered_read);
	rc->server.mirror = rc->mirror;
	return rc->mirror ? 0 : -ENOMEM;
}

static const struct rpc_calib *calib_of(struct rpc_conn *rc)
{
	struct rpc_ctx *rx = rc->ctx;
	const struct rpc_calib *calib = rx->calib;

	if (calib)
		return calib;
	env_mutex_lock(conn_env(rc->conn), &rx->lock);
	calib = rpc_calib_file_get(&rx->calib_file, conn_dev(rc->conn));
	env_mutex_unlock(conn_env(rc->conn), &rx->lock);
	return calib;
}

/* This end, a caller, fetches. */
static int fetch_up(struct rpc_conn *rc)
{
	const struct rpc_calib *calib = calib_of(rc);
	bool decide = conn_return_auto(rc->conn);

	if (!rc->modes && (decide || (calib && calib->n_reads))) {
		rc->modes = rpc_modes_new(conn_env(rc->conn),
					  rc->ctx->conf.window, calib, decide);
		if (!rc->modes)
			return -ENOMEM;
	}
	rpc_rfetch_start(&rc->client, !rc->peer_ordered_read, rc->modes);
	if (rc->peer_times && decide)
		rc->client.tx.asks = RPC_REQ_TIME;
	return 0;
}

/* The other end's section is known: the engines can begin. */
static int conn_up_engines(struct rpc_conn *rc)
{
	struct skein_env *env = conn_env(rc->conn);
	struct rpc_deferred_conf later;

	rc->port.base = rc->region->addr;
	rc->lkey = rc->region->mr->lkey;
	rc->inline_max = conn_inline_max(rc->conn);
	rc->port.event = (struct rpc_event){0};
	*rpc_port_quiet(&rc->port) = RPC_QUIET_NOT;
	if (rc->caller) {
		if (!rc->slots)
			rc->slots = env_alloc_unset(env, RPC_LINE,
						    rc->ctx->conf.window *
							    sizeof(*rc->slots));
		if (!rc->slots)
			return -ENOMEM;
		if (rpc_lane_client_new(rc))
			return -ENOMEM;
		rpc_client_init(&rc->client, &rc->port, rc->slots,
				rc->ctx->conf.window);
		rc->client.rx.park.env = env;
		if (rc->fetches && rc->lane_client && fetch_up(rc))
			return -ENOMEM;
	} else {
		/* Questions may come before ready(). */
		if (rc->credits && lane_up(rc))
			return -ENOMEM;
		later_conf(rc, &later);
		rpc_server_init(&rc->server, &rc->port, &rc->ctx->handlers,
				&later, conn_lane_head(rc->conn));
		if (rc->fetches && mirror_up(rc))
			return -ENOMEM;
	}
	rc->up = true;
	return 0;
}

static void pending_end(struct rpc_pending *p, int err)
{
	struct skein_rpc_result res = {.outcome = SKEIN_NOT_SENT,
				       .status = err};
	skein_rpc_done_fn *done = p->done;
	struct rpc_conn *rc = p->rc;
	void *arg = p->arg;
	bool own = p->own;

	/* From here on the calling thread may use the memory again, unless p is
	 * on the heap. */
	if (p->held)
		atomic_fetch_sub_explicit(p->held, 1, memory_order_release);
	if (own)
		env_free(conn_env(rc->conn), p);
	done(arg, &res);
}

/* No operation is under way any more, or none ever was. */
static void conn_down_engines(struct rpc_conn *rc, int err)
{
	struct rpc_pending *p;

	if (rc->up && rc->caller)
		rpc_client_break(&rc->client, err);
	if (rc->handle)
		rpc_threads_reset(rc->conn); /* lane 0 is the last to go down */
	if (rc->up && !rc->caller)
		rpc_server_break(&rc->server, err);
	env_free(conn_env(rc->conn), rc->mirror);
	rc->mirror = NULL;
	if (rc->lane_server)
		aqp_del(&rc->ctx->aqp, rc->lane_server);
	env_free(conn_env(rc->conn), rc->lane_server);
	rc->lane_server = NULL;
	rc->up = false;
	while ((p = rc->waiting)) {
		rc->waiting = p->next;
		if (!rc->waiting)
			rc->waiting_end = &rc->waiting;
		pending_end(p, err);
	}
	rpc_bufs_fini(rc);
	if (rc->lane_client)
		rpc_handle_feed(rc->lane_client->handle);
}

/* --- handshake ---------------------------------------------------------- */

static void section_put(struct rpc_conn *rc, struct bytes_out *out)
{
	struct dev_caps caps;
	unsigned flags = 0;

	conn_caps(rc->conn, &caps);
	if (caps.ordered_write)
		flags |= SECTION_ORDERED_WRITE;
	if (caps.ordered_read)
		flags |= SECTION_ORDERED_READ;
	if (rc->caller)
		flags |= SECTION_ANY_ORDER | SECTION_QUIET;
	if (rc->caller && conn_lanes(rc->conn) > 1)
		flags |= SECTION_CREDITS;
	if (rc->fetches)
		flags |= SECTION_FETCH;
	if (rc->fetches && rc->caller && conn_return_auto(rc->conn))
		flags |= SECTION_TELL;
	if (rc->fetches && !rc->caller)
		flags |= SECTION_TIME;
	bytes_put_u16(out, SECTION_VERSION);
	bytes_put_u16(out, (uint16_t)flags);
	bytes_put_u32(out, rc->port.geom.req_lines);
	bytes_put_u32(out, rc->port.geom.resp_lines);
	bytes_put_u32(out, rc->port.geom.spill);
	bytes_put_u64(out, (uint64_t)(uintptr_t)rc->region->addr);
	bytes_put_u32(out, rc->region->mr->rkey);
	bytes_put_u32(out, rc->region->id);
	bytes_put_u64(out, rc->port.secret_in.k0);
	bytes_put_u64(out, rc->port.secret_in.k1);
	/* The other end writes the bytes that come in, but this end's device
	 * makes them visible. */
	rc->port.tail_in =
		caps.ordered_write ? RPC_TAIL_CANARY : RPC_TAIL_CHECKSUM;
}

struct section {
	unsigned version, flags;
	struct rpc_geom geom;
	uint64_t addr;
	uint32_t rkey, region;
	struct rpc_secret secret;
};

static int section_get(struct bytes_in *in, struct section *s)
{
	s->version = bytes_get_u16(in);
	s->flags = bytes_get_u16(in);
	s->geom.req_lines = bytes_get_u32(in);
	s->geom.resp_lines = bytes_get_u32(in);
	s->geom.spill = bytes_get_u32(in);
	s->addr = bytes_get_u64(in);
	s->rkey = bytes_get_u32(in);
	s->region = bytes_get_u32(in);
	s->secret.k0 = bytes_get_u64(in);
	s->secret.k1 = bytes_get_u64(in);
	if (in->failed || bytes_left(in) || !rpc_geom_valid(&s->geom))
		return -SKEIN_EPEER;
	return s->version == SECTION_VERSION ? 0 : -SKEIN_EVERSION;
}

static void section_use(struct rpc_conn *rc, const struct section *s)
{
	rc->peer_base = s->addr;
	rc->peer_rkey = s->rkey;
	rc->port.secret_out = s->secret;
	rc->in_any_order = s->flags & SECTION_ANY_ORDER;
	rc->credits = s->flags & SECTION_CREDITS;
	rc->tells_quiet = s->flags & SECTION_QUIET;
	rc->fetches &= (s->flags & SECTION_FETCH) != 0;
	rc->tells = s->flags & SECTION_TELL;
	rc->peer_times = s->flags & SECTION_TIME;
	rc->peer_ordered_read = s->flags & SECTION_ORDERED_READ;
	rc->port.tail_out = s->flags & SECTION_ORDERED_WRITE
				    ? RPC_TAIL_CANARY
				    : RPC_TAIL_CHECKSUM;
}

static int rpc_offer(struct skein_conn *conn, struct bytes_out *out)
{
	struct rpc_ctx *rx = conn_ctx_module(conn_ctx(conn), CONN_MODULE_RPC);
	struct rpc_geom geom = {
		.req_lines = (uint32_t)(rx->conf.ring / RPC_LINE),
		.resp_lines = (uint32_t)(rx->conf.resp_ring / RPC_LINE),
		.spill = (uint32_t)(rx->conf.msg_max / RPC_LINE)};
	struct rpc_conn *rc = rpc_conn_of(conn);
	int err;

	/* An earlier attempt got as far as confirm(), and not to ready(). */
	if (rc && rc->up)
		conn_down_engines(rc, -ENOTCONN);
	err = conn_prepare(conn, &geom, &rc);
	if (err)
		return err;
	section_put(rc, out);
	return 0;
}

static int rpc_accept(struct skein_conn *conn, struct bytes_in *in,
		      struct bytes_out *out)
{
	struct rpc_conn *rc;
	struct section s;
	int err;

	err = section_get(in, &s);
	if (err)
		return err;
	if (rpc_geom_len(&s.geom) > REGION_LEN_MAX)
		return -SKEIN_EPEER;
	err = conn_prepare(conn, &s.geom, &rc);
	if (err)
		return err;
	section_use(rc, &s);
	section_put(rc, out);
	return conn_up_engines(rc);
}

static int rpc_confirm(struct skein_conn *conn, struct bytes_in *in)
{
	struct rpc_conn *rc = rpc_conn_of(conn);
	struct section s;
	int err;

	err = section_get(in, &s);
	if (err)
		return err;
	if (memcmp(&s.geom, &rc->port.geom, sizeof(s.geom)) != 0)
		return -SKEIN_EPEER;
	section_use(rc, &s);
	return conn_up_engines(rc);
}

/* --- calls from elsewhere ----------------------------------------------- */

void rpc_pending_start(struct rpc_conn *rc, struct rpc_pending *p)
{
	p->deadline_ns = ENV_NEVER;
	if (p->timeout_ns < ENV_NEVER - engine_now_ns(rc->engine))
		p->deadline_ns = engine_now_ns(rc->engine) + p->timeout_ns;
	p->next = NULL;
	conn_active(rc->conn);
	/* The connection may have gone down while the call was on its way: then
	 * the call ends here. */
	if (!rc->up || !conn_is_ready(rc->conn)) {
		pending_end(p, -ENOTCONN);
		return;
	}
	*rc->waiting_end = p;
	rc->waiting_end = &p->next;
}

int rpc_pending_cancel(struct rpc_conn *rc, const struct rpc_wanted *wanted)
{
	struct rpc_pending **link, *p;

	for (link = &rc->waiting; (p = *link); link = &p->next) {
		if (!wanted->is(wanted, p->done, p->arg))
			continue;
		*link = p->next;
		if (!p->next)
			rc->waiting_end = link;
		pending_end(p, -ECANCELED);
		return 0;
	}
	return -ENOENT;
}

/* --- lanes that are served ------------------------------------------------ */

/* After a round of the server. */
static int lane_poll(struct rpc_conn *rc, uint64_t now_ns)
{
	struct rpc_stats *st = &rc->port.stats;
	int moved, sent;

	moved = rpc_lane_server_round(rc->lane_server,
				      st->calls - rc->calls_before,
				      st->call_messages - rc->messages_before,
				      rpc_server_drained(&rc->server));
	if (moved < 0)
		return moved;
	if (moved)
		aqp_note(&rc->ctx->aqp, now_ns);
	aqp_poll(&rc->ctx->aqp, now_ns);
	if (rpc_lane_server_expects(rc->lane_server))
		conn_expect_recv(rc->conn);
	sent = rpc_lane_server_send(rc->lane_server, &rc->port);
	return sent < 0 ? sent : moved + sent;
}

/* --- rounds and sleep --------------------------------------------------- */

static int rpc_poll(struct skein_conn *conn, void *state, uint64_t now_ns)
{
	struct rpc_conn *rc = state;
	int moved, err;

	if (rc->caller)
		return rc->lane_client ? rpc_lane_client_poll(rc, now_ns) : 0;
	if (__builtin_expect(rc->tells, 0))
		rc->port.word = engine_busy_ns(rc->engine) >= STARVED_NS
					? RPC_WORD_STARVED
					: 0;
	moved = rpc_server_poll(&rc->server);
	if (__builtin_expect(moved < 0, 0))
		/* -ENOTCONN: the connection is going down already. */
		return moved == -ENOTCONN ? 0 : moved;
	if (__builtin_expect(rc->lane_server != NULL, 0)) {
		err = lane_poll(rc, now_ns);
		if (err < 0)
			return err == -ENOTCONN ? 0 : err;
		moved += err;
	}
	if (__builtin_expect(rpc_event_owes(&rc->port.event), 0)) {
		err = rpc_event_flush(&rc->port);
		if (err)
			return err == -ENOTCONN ? 0 : err;
	}
	return moved;
}

static bool has_work(struct rpc_conn *rc)
{
	if (rc->caller)
		return rpc_lane_client_has_work(rc);
	return rpc_server_has_work(&rc->server) ||
	       (rc->lane_server && rpc_lane_server_has_work(rc->lane_server));
}

static int rpc_arm(struct skein_conn *conn, void *state)
{
	struct rpc_conn *rc = state;

	if (!rc->up)
		return 0;
	if (has_work(rc))
		return 1;
	/* No call is under way: nothing can come. */
	if (rc->caller && !rpc_client_busy(&rc->client)) {
		rpc_event_rest(&rc->port.event);
		return 0;
	}
	/* A fetched answer is not sent, so it cannot wake this end. */
	if (rc->caller && !rpc_rfetch_may_sleep(&rc->client))
		return 1;
	if (!rpc_event_want_sleep(&rc->port.event, engine_now_ns(rc->engine))) {
		if (rc->caller)
			(void)rpc_lane_client_event_flush(rc);
		else
			(void)rpc_event_flush(&rc->port);
		return 1;
	}
	/* Looks once more, now that every message wakes this end: section 8. */
	return has_work(rc);
}

/* Tells the caller that the server waits at this position, and wants a message
 * with an immediate. False: there is no room now. A caller that read the word
 * before, and posts after this, sends a plain message: the engine's sweep finds
 * that. */
static bool tell_quiet(struct rpc_conn *rc)
{
	uint64_t *word = rpc_port_quiet(&rc->port);

	if (!rc->tells_quiet || *word == rc->server.req_head)
		return true;
	*word = rc->server.req_head;
	if (!rc->port.ops->write(&rc->port, RPC_CTL_QUIET, sizeof(*word), NULL))
		return true;
	*word = RPC_QUIET_NOT;
	return false;
}

/* A server without requests waits for a message only. In event mode the message
 * has an immediate, or the peer owes one; the peer's ask or poll is an
 * immediate itself. */
static enum conn_quiet rpc_rest(struct skein_conn *conn, void *state,
				struct conn_word *word)
{
	struct rpc_conn *rc = state;

	if (!rc->up)
		return CONN_ACTIVE;
	if (rc->caller)
		return rc->lane_client && rpc_lane_client_rest(rc)
			       ? CONN_NOTIFIED
			       : CONN_ACTIVE;
	if (rc->lane_server || rpc_event_owes(&rc->port.event) ||
	    !rpc_server_rest(&rc->server, word))
		return CONN_ACTIVE;
	if (rc->port.event.rx == RPC_RX_EVENT)
		return CONN_NOTIFIED;
	return tell_quiet(rc) ? CONN_SWEPT : CONN_ACTIVE;
}

static void rpc_active(struct skein_conn *conn, void *state)
{
	struct rpc_conn *rc = state;

	__atomic_store_n(&rc->port.event.rests, false, __ATOMIC_RELAXED);
}

static uint64_t rpc_next_deadline(struct skein_conn *conn, void *state)
{
	struct rpc_conn *rc = state;
	uint64_t t = ENV_NEVER;

	if (rc->up && rc->caller && rpc_client_busy(&rc->client))
		t = rc->client.rx.calls.earliest_ns;
	if (rc->up && rc->caller && rpc_rfetch_next(&rc->client.rx.rf) < t)
		t = rpc_rfetch_next(&rc->client.rx.rf);
	if (rc->port.event.doze_end_ns && rc->port.event.doze_end_ns < t)
		t = rc->port.event.doze_end_ns;
	if (rc->lane_server && aqp_due(&rc->ctx->aqp) < t)
		t = aqp_due(&rc->ctx->aqp);
	if (rc->up && rc->lane_client && rpc_lane_client_next(rc) < t)
		t = rpc_lane_client_next(rc);
	for (struct rpc_pending *p = rc->waiting; p; p = p->next)
		if (p->deadline_ns < t)
			t = p->deadline_ns;
	return t;
}

static void rpc_imm(struct skein_conn *conn, uint32_t imm, uint32_t byte_len)
{
	struct rpc_conn *rc = rpc_conn_of(conn);

	if (CONN_IMM_KIND(imm) == CONN_IMM_CREDITS && rc->caller) {
		if (!rc->lane_client ||
		    rpc_lane_client_imm(rc, CONN_IMM_VALUE(imm)))
			conn_break(conn, -SKEIN_EPEER,
				   "rpc: %u credits out of place",
				   CONN_IMM_VALUE(imm));
		return;
	}
	if (CONN_IMM_KIND(imm) == CONN_IMM_CREDITS) {
		if (!rc->lane_server ||
		    rpc_lane_server_imm(rc->lane_server, CONN_IMM_VALUE(imm)))
			conn_break(conn, -SKEIN_EPEER,
				   "rpc: question for credits %#x out of place",
				   CONN_IMM_VALUE(imm));
		return;
	}
	/* WAKE needs no more: the round that took this immediate looks at the
	 * ring. */
	if (CONN_IMM_KIND(imm) != CONN_IMM_EVENT_MODE)
		return;
	if (rpc_event_signal(&rc->port.event, CONN_IMM_VALUE(imm)))
		conn_break(conn, -SKEIN_EPEER,
			   "rpc: event signal %u out of place",
			   CONN_IMM_VALUE(imm));
}

static bool rpc_busy(struct skein_conn *conn, void *state)
{
	struct rpc_conn *rc = state;

	if (!rc->up)
		return false;
	if (!rc->caller)
		return rpc_server_busy(&rc->server);
	return rc->waiting || rpc_client_busy(&rc->client);
}

static uint64_t seen(const uint64_t *n)
{
	return __atomic_load_n(n, __ATOMIC_RELAXED);
}

static void rpc_counters(struct skein_conn *conn, void *state, uint64_t *of)
{
	const struct rpc_conn *rc = state;

	of[rc->caller ? COUNTER_CALLS : COUNTER_SERVED] += rc->port.stats.calls;
	/* Threads count the others. */
	if (rc->caller)
		of[COUNTER_CALLS] +=
			seen(&rc->client.tx.calls) + seen(&rc->client.tx.alone);
}

static void rpc_ready(struct skein_conn *conn)
{
}

static void rpc_broken(struct skein_conn *conn, int err)
{
	struct rpc_conn *rc = rpc_conn_of(conn);

	if (rc)
		conn_down_engines(rc, err);
}

static void rpc_closed(struct skein_conn *conn, void *state)
{
	struct skein_env *env = conn_env(conn);
	struct rpc_conn *rc = state;

	conn_down_engines(rc, -ENOTCONN);
	rpc_lane_client_free(rc);
	mem_region_free(rc->region);
	env_free(env, rc->slots);
	rpc_modes_free(env, rc->modes);
	conn_module_set(conn, CONN_MODULE_RPC, NULL);
	env_free(env, rc);
}

const struct conn_module rpc_module = {
	.id = CONN_MODULE_RPC,
	.name = "rpc",
	.must_understand = true,
	.ctx_open = rpc_ctx_open,
	.ctx_close = rpc_ctx_close,
	.ctx_tick = rpc_ctx_tick,
	.offer = rpc_offer,
	.accept = rpc_accept,
	.confirm = rpc_confirm,
	.ready = rpc_ready,
	.poll = rpc_poll,
	.rest = rpc_rest,
	.active = rpc_active,
	.arm = rpc_arm,
	.next_deadline = rpc_next_deadline,
	.imm = rpc_imm,
	.busy = rpc_busy,
	.counters = rpc_counters,
	.broken = rpc_broken,
	.closed = rpc_closed,
	.thread_taken = rpc_thread_taken,
	.thread_left = rpc_thread_left,
	.thread_wr = rpc_thread_wr,
	.thread_reap = rpc_thread_take,
	.thread_idle = rpc_thread_idle,
	.thread_free = rpc_thread_free,
};
