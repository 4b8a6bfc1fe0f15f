/* SPDX-License-Identifier: MIT */
/*
 * conn.c - the connection handle: memory, state, story, and what modules and
 * applications read of it.
 *
 * Thread rule: state is atomic. story and err are written before the state
 * after which other threads read them.
 */
#include "base/assert.h"
#include "conn/state.h"
#include "conn/setup/listener.h"
#include "conn/setup/path.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

int conn_new(struct skein_engine *eng, bool client, struct skein_conn **out)
{
	struct skein_conn *conn =
		env_alloc_aligned(eng->env, 64, sizeof(*conn));

	if (!conn)
		return -ENOMEM;
	conn->slots = env_alloc(eng->env, (CONN_SQ_DEPTH + 1) *
						  sizeof(struct optable_slot));
	if (!conn->slots) {
		env_free(eng->env, conn);
		return -ENOMEM;
	}
	conn->eng = eng;
	conn->post_stats = &eng->stats;
	conn->ctx = eng->ctx;
	conn->client = client;
	path_opts(&eng->ctx->path, &conn->opts);
	conn->deadline_ns = ENV_NEVER;
	atomic_fetch_add(&eng->n_conns, 1);
	list_init(&conn->mem_waiting);
	list_init(&conn->finds);
	*out = conn;
	return 0;
}

void conn_pool_set(struct skein_conn *conn, struct conn_pool *pool)
{
	conn->pool = pool;
	if (pool)
		atomic_fetch_add(&pool->conns, 1);
}

void conn_free(struct skein_conn *conn)
{
	struct skein_env *env = conn->ctx->env;

	skein_assert(!conn->qp && !conn->peer && !conn->hs);
	if (conn->dial && !conn->lane) {
		env_free(env, conn->dial->target);
		env_free(env, conn->dial);
	}
	conn_lanes_put(conn);
	if (conn->pool) /* release pairs with the acquire in no_conns() */
		atomic_fetch_sub_explicit(&conn->pool->conns, 1,
					  memory_order_release);
	/* Release pairs with the acquire in no_conns(), for eng_free(). */
	atomic_fetch_sub_explicit(&conn->eng->n_conns, 1, memory_order_release);
	conn_sendq_free(conn);
	env_free(env, conn->slots);
	env_free(env, conn);
}

void conn_set_state(struct skein_conn *conn, enum skein_conn_state state)
{
	/* Release pairs with the acquire in state_of(): a thread that reads
	 * the state may read err and story. */
	atomic_store_explicit(&conn->state, (int)state, memory_order_release);
}

void conn_set_name(struct skein_conn *conn, const char *addr, uint32_t pid)
{
	if (pid)
		snprintf(conn->name, sizeof(conn->name), "%.71s (pid %u)", addr,
			 pid);
	else
		snprintf(conn->name, sizeof(conn->name), "%.71s", addr);
}

/* A hint where to look first. */
static const char *likely(int err)
{
	switch (-err) {
	case ECONNREFUSED:
		return "is the server running, and on this port?";
	case ETIMEDOUT:
		return "is the peer overloaded or stopped, or a firewall in "
		       "between?";
	case ENETDOWN:
		return "check the cable, or the link's state, on this host";
	case EHOSTUNREACH:
	case ENETUNREACH:
		return "are both ends on devices that reach each other?";
	case ENOMEM:
		return "short of memory; check ulimit -l and ulimit -v";
	case EMFILE:
	case ENFILE:
		return "check ulimit -n";
	case SKEIN_ERESOURCE:
		return "check ulimit -n and ulimit -l there";
	case SKEIN_EVERSION:
		return "the two ends run different versions of Skein";
	case SKEIN_EAUTH:
		return "both ends need the same key";
	case SKEIN_EBUSY:
		return "allow retries, or raise the listener's limits";
	case SKEIN_EPEER:
		return "is it a Skein peer, of a matching version?";
	case SKEIN_EDEAD:
		return "it was killed, crashed, or its host is gone";
	case ESHUTDOWN:
		return "it shut down on purpose";
	default:
		return NULL;
	}
}

void conn_story(struct skein_conn *conn, int err, const char *doing,
		const char *detail)
{
	const struct dev *dev = conn->eng->dev;
	const char *hint = conn->answered ? NULL : likely(err);
	const char *words = skein_strerror(err);
	bool twice = detail && detail[0];

	conn->err = err;
	snprintf(conn->story, sizeof(conn->story),
		 "%s %s on %s (%s): %s%s%s%s%s%s", doing, conn->name,
		 dev->ops->kind, dev->name, words, twice ? ": " : "",
		 twice ? detail : "", hint ? " (" : "", hint ? hint : "",
		 hint ? ")" : "");
	env_log(conn->ctx->env, err == -ESHUTDOWN ? ENV_LOG_INFO : ENV_LOG_WARN,
		"%s", conn->story);
}

void conn_break(struct skein_conn *conn, int err, const char *fmt, ...)
{
	char detail[160];
	va_list ap;

	if (conn->phase < CONN_P_LINK || conn->phase >= CONN_P_BREAK)
		return;
	va_start(ap, fmt);
	vsnprintf(detail, sizeof(detail), fmt, ap);
	va_end(ap);
	if (err == -SKEIN_EPEER)
		atomic_fetch_add(&conn->ctx->counts.garbage, 1);
	conn_end(conn, err, detail);
}

/* Is its end not to be logged? */
static bool silent(const struct skein_conn *conn)
{
	/* In BYE the QP may fail before the peer's answer comes: normal. */
	return conn->lane || conn->phase == CONN_P_BYE ||
	       (conn->closing && !conn->err);
}

static void lost(struct skein_conn *conn, int err, const char *detail)
{
	/* -ESHUTDOWN: the peer has closed it */
	if (err != -ESHUTDOWN)
		atomic_fetch_add(&conn->ctx->counts.broken, 1);
	conn_story(conn, err, "lost the connection to", detail);
}

void conn_end(struct skein_conn *conn, int err, const char *detail)
{
	if (conn->phase < CONN_P_LINK || conn->phase >= CONN_P_BREAK)
		return;
	if (!conn->was_ready) {
		conn_fail(conn, err, detail, 0);
		return;
	}
	conn->postable = false;
	if (silent(conn))
		conn->err = err;
	else if (conn_lanes_coming(conn))
		conn_lanes_failed(conn, err, detail);
	else
		lost(conn, err, detail);
	conn->phase = CONN_P_BREAK;
	eng_pend(conn->eng, conn);
	conn_lane_ended(conn, err, detail);
}

/* --- what modules see -------------------------------------------------- */

void *conn_ctx_module(struct skein_ctx *ctx, enum conn_module_id id)
{
	return ctx->modules[id - 1];
}

void *conn_module_state(struct skein_conn *conn, enum conn_module_id id)
{
	return conn->modules[id - 1];
}

void conn_module_set(struct skein_conn *conn, enum conn_module_id id,
		     void *state)
{
	conn->modules[id - 1] = state;
}

struct skein_ctx *conn_ctx(struct skein_conn *conn)
{
	return conn->ctx;
}

struct skein_env *conn_env(struct skein_conn *conn)
{
	return conn->ctx->env;
}

struct engine *conn_engine(struct skein_conn *conn)
{
	return conn->eng->e;
}

struct dev *conn_dev(struct skein_conn *conn)
{
	return conn->eng->dev;
}

void conn_caps(struct skein_conn *conn, struct dev_caps *caps)
{
	if (conn->connected && !conn->pool)
		dev_qp_caps(conn->eng->dev, conn->qp, caps);
	else
		*caps = conn->eng->dev->caps;
}

uint64_t conn_patience_ns(struct skein_conn *conn)
{
	return atomic_load(&conn->patience_ns);
}

const char *conn_link(struct skein_conn *conn)
{
	if (conn->connected && conn->pool)
		return "pool";
	return conn->connected ? dev_qp_link(conn->eng->dev, conn->qp) : NULL;
}

struct ibv_pd *conn_pd(struct skein_conn *conn)
{
	return conn->ctx->pd;
}

bool conn_turn(struct skein_conn *conn, uint32_t len)
{
	struct skein_engine *eng = conn->eng;

	return !conn->poster_copies ||
	       conn_turn_take(&eng->turn, conn, engine_now_ns(eng->e), len);
}

void conn_region_end(struct skein_conn *conn, struct mem_region *region)
{
	eng_region_end(conn->eng, region);
}

bool conn_is_client(struct skein_conn *conn)
{
	return conn->client;
}

static inline enum skein_conn_state state_of(const struct skein_conn *conn)
{
	if (__builtin_expect(env_forked(conn->ctx->env), 0))
		return SKEIN_CONN_BROKEN;
	/* Acquire pairs with the release in conn_set_state(). */
	return (enum skein_conn_state)atomic_load_explicit(
		&conn->state, memory_order_acquire);
}

bool conn_is_ready(struct skein_conn *conn)
{
	return state_of(conn) == SKEIN_CONN_READY;
}

int conn_check(struct skein_conn *conn)
{
	if (__builtin_expect(state_of(conn) == SKEIN_CONN_READY, 1))
		return 0;
	return env_forked(conn->ctx->env) ? -SKEIN_EFORKED : -ENOTCONN;
}

void *conn_sole_arg(struct skein_conn *conn)
{
	return conn->sole_arg;
}

uint32_t conn_region_id(struct skein_ctx *ctx)
{
	return atomic_fetch_add(&ctx->next_region, 1) + 1;
}

/* --- what applications see --------------------------------------------- */

enum skein_conn_state skein_conn_get_state(struct skein_conn *conn)
{
	return state_of(conn);
}

int skein_conn_error(struct skein_conn *conn, const char **text)
{
	if (env_forked(conn->ctx->env)) {
		if (text)
			*text = skein_strerror(-SKEIN_EFORKED);
		return -SKEIN_EFORKED;
	}
	/* The acquire in it orders err and story behind the state. */
	(void)skein_conn_get_state(conn);
	if (text)
		*text = conn->story;
	return conn->err;
}

const char *skein_conn_peer(struct skein_conn *conn)
{
	return conn->name;
}

uint64_t skein_conn_timeout(struct skein_conn *conn)
{
	return conn_patience_ns(conn);
}

unsigned skein_conn_shard(struct skein_conn *conn)
{
	return conn->shard;
}

void skein_conn_set_data(struct skein_conn *conn, void *data)
{
	conn->data = data;
}

void *skein_conn_data(struct skein_conn *conn)
{
	return conn->data;
}
