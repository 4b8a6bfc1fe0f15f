/* SPDX-License-Identifier: MIT */
/*
 * listener.c - accepts control links, as many as admission allows, and hands
 * each connection to the engine of its shard.
 *
 * When the process runs out of fds the spare ones serve to refuse one client.
 * Then the socket is not watched for LISTENER_PAUSE_NS (a level-triggered watch
 * would spin), and other clients wait in the backlog. A half-open handshake
 * costs one struct conn_peer and ends at its deadline, whatever the client
 * does. A link without a whole offer ends earlier when there are too many.
 */
#include "conn/setup/listener.h"

#include "base/assert.h"
#include "base/hostport.h"

#include <errno.h>
#include <netinet/in.h>
#include <sys/epoll.h>

#define ADDRS_MAX 8
#define BACKLOG 1024
#define HANDSHAKES_MAX 128u
#define CONNS_MAX 65536u
#define CLOSE_NS (2 * 1000 * 1000 * 1000ull)
#define SLICE_NS (1000 * 1000ull)

/* --- accepting --------------------------------------------------------- */

static void watch(struct skein_listener *l, bool on)
{
	struct env_waiter *w = l->eng->links;

	if (l->watched == on || l->fd < 0)
		return;
	if (on && env_waiter_watch(l->ctx->env, w, l->fd, EPOLLIN))
		return;
	if (!on)
		env_waiter_unwatch(l->ctx->env, w, l->fd);
	l->watched = on;
}

static void short_of_fds(struct skein_listener *l, int rc, uint64_t now_ns)
{
	env_log(l->ctx->env, ENV_LOG_WARN,
		"listener %s: cannot accept: %s (check ulimit -n); clients "
		"are refused, or wait",
		l->addr, skein_strerror(rc));
	l->paused_until_ns = now_ns + LISTENER_PAUSE_NS;
	watch(l, false);
}

/* --- links that have said nothing yet ---------------------------------- */

void listener_not_silent(struct conn_peer *peer)
{
	list_del(&peer->silent_link);
	peer->listener->n_silent--;
	peer->silent = false;
}

/* Makes room for a new link. If the client's offer is on its way the refusal
 * tells it to try again. */
static void drop_oldest(struct skein_listener *l)
{
	struct conn_peer *peer =
		container_of(l->silent.next, struct conn_peer, silent_link);

	atomic_fetch_add(&l->ctx->counts.refused, 1);
	conn_peer_refuse(peer, HANDSHAKE_ERR_BUSY, ADMISSION_HINT_MS,
			 "it said nothing while others came");
	conn_peer_down(peer, -SKEIN_EBUSY, "it said nothing");
}

static void keep_silent(struct skein_listener *l, struct conn_peer *peer)
{
	if (l->n_silent == LISTENER_SILENT_MAX)
		drop_oldest(l);
	peer->silent = true;
	list_add_tail(&l->silent, &peer->silent_link);
	l->n_silent++;
}

static void refuse(struct conn_peer *peer, uint32_t retry_ms, const char *why)
{
	atomic_fetch_add(&peer->ctx->counts.refused, 1);
	conn_peer_refuse(peer, HANDSHAKE_ERR_BUSY, retry_ms, why);
}

bool listener_offer(struct conn_peer *peer)
{
	struct skein_listener *l = peer->listener;
	uint32_t retry_ms = 0;

	listener_not_silent(peer);
	peer->counted = admission_enter(&l->admission, &retry_ms);
	if (!peer->counted)
		refuse(peer, retry_ms,
		       "the server has enough handshakes under way");
	return peer->counted;
}

static void enter(struct skein_listener *l, struct conn_peer *peer,
		  uint64_t now_ns, const char *why)
{
	peer->listener = l;
	peer->deadline_ns = now_ns + l->handshake_ns;
	atomic_fetch_add(&l->peers, 1);
	if (why)
		refuse(peer, ADMISSION_HINT_MS, why);
	else
		keep_silent(l, peer);
}

/* Makes a peer of an accepted socket. why: refuses it at once; NULL: it may
 * send its offer. */
static void admit(struct skein_listener *l, int fd,
		  const struct sockaddr_storage *from, uint64_t now_ns,
		  const char *why)
{
	char addr[CONN_ADDR_TEXT_MAX];
	struct conn_peer *peer;

	conn_addr_format(from, addr, sizeof(addr));
	if (conn_peer_new(l->eng, fd, NULL, addr, false, &peer))
		env_sock_close(l->ctx->env, fd);
	else
		enter(l, peer, now_ns, why);
}

void listener_admit_vqp(struct skein_listener *l, struct conn_vqp *vqp,
			uint64_t now_ns)
{
	char addr[CONN_ADDR_TEXT_MAX];
	struct conn_peer *peer;

	if (atomic_load(&l->closing))
		return;
	conn_pool_ops->addr(vqp, addr, sizeof(addr));
	if (conn_peer_new(l->eng, -1, vqp, addr, false, &peer) == 0)
		enter(l, peer, now_ns, NULL);
}

static void spare_make(struct skein_listener *l)
{
	if (!l->spare)
		(void)env_waiter_new(l->ctx->env, ENV_WAIT_EVENT, &l->spare);
}

static void spare_give(struct skein_listener *l)
{
	env_waiter_free(l->ctx->env, l->spare);
	l->spare = NULL;
}

/* Out of fds: the next client is refused at once, not by its deadline. */
static void refuse_next(struct skein_listener *l, uint64_t now_ns)
{
	struct sockaddr_storage from;
	int fd;

	if (!l->spare)
		return;
	spare_give(l);
	if (env_sock_accept(l->ctx->env, l->fd, &from, &fd) == 0)
		admit(l, fd, &from, now_ns, "the server is out of descriptors");
}

int listener_beat(struct skein_listener *l, uint64_t now_ns)
{
	struct sockaddr_storage from;
	int fd, rc, n;

	if (l->fd < 0)
		return 0;
	if (l->paused_until_ns) {
		if (now_ns < l->paused_until_ns)
			return 0;
		l->paused_until_ns = 0;
		spare_make(l);
		watch(l, true);
	}
	for (n = 0; n < LISTENER_ACCEPTS_A_BEAT; n++) {
		rc = env_sock_accept(l->ctx->env, l->fd, &from, &fd);
		if (rc == -EMFILE || rc == -ENFILE || rc == -ENOMEM ||
		    rc == -ENOBUFS) {
			refuse_next(l, now_ns);
			short_of_fds(l, rc, now_ns);
		}
		if (rc)
			break;
		admit(l, fd, &from, now_ns, NULL);
	}
	return n;
}

uint64_t listener_next_deadline(const struct skein_listener *l)
{
	return l->paused_until_ns ? l->paused_until_ns : ENV_NEVER;
}

struct skein_engine *listener_engine(struct skein_listener *l, uint32_t shard)
{
	return l->engines[shard % l->n_engines];
}

void listener_peer_gone(struct skein_listener *l)
{
	/* Release pairs with the acquire in all_gone(): work for the link ends
	 * before the listener is freed. */
	atomic_fetch_sub_explicit(&l->peers, 1, memory_order_release);
}

void listener_lane_gone(struct skein_listener *l)
{
	atomic_fetch_sub_explicit(&l->lanes, 1, memory_order_release);
}

/* --- opening ----------------------------------------------------------- */

static int bind_one(struct skein_listener *l, const char *text)
{
	struct sockaddr_storage addrs[ADDRS_MAX], local;
	struct skein_env *env = l->ctx->env;
	struct hostport addr;
	int i, n, rc;

	rc = hostport_parse(text, &addr);
	if (rc == 0)
		rc = env_resolve(env, addr.host, addr.port, true, addrs,
				 ADDRS_MAX, &n);
	if (rc)
		return rc;
	for (rc = -EADDRNOTAVAIL, i = 0; i < n; i++) {
		rc = env_sock_listen(env, &addrs[i], BACKLOG, &l->fd);
		if (rc == 0)
			break;
	}
	if (rc)
		return rc;
	rc = env_sock_name(env, l->fd, &local);
	if (rc) {
		env_sock_close(env, l->fd);
		return rc;
	}
	conn_addr_format(&local, l->addr, sizeof(l->addr));
	l->port = local.ss_family == AF_INET
			  ? ntohs(((struct sockaddr_in *)&local)->sin_port)
			  : ntohs(((struct sockaddr_in6 *)&local)->sin6_port);
	return 0;
}

static int take_engines(struct skein_listener *l,
			const struct skein_listener_attr *attr)
{
	unsigned n =
		attr->engines && attr->engine_count ? attr->engine_count : 1;

	l->engines = env_alloc(l->ctx->env, n * sizeof(struct skein_engine *));
	if (!l->engines)
		return -ENOMEM;
	for (unsigned i = 0; i < n; i++) {
		l->engines[i] = attr->engines && attr->engine_count
					? attr->engines[i]
					: l->ctx->engine;
		if (!l->engines[i])
			return -EINVAL;
	}
	l->n_engines = n;
	l->eng = l->engines[0];
	return 0;
}

static void open_call(struct engine_call *call)
{
	struct skein_listener *l =
		container_of(call, struct skein_listener, open_call);

	if (atomic_load(&l->closing))
		return;
	list_add_tail(&l->eng->listeners, &l->eng_link);
	watch(l, true);
	atomic_store_explicit(&l->opened, true, memory_order_release);
}

static void listener_free(struct skein_listener *l)
{
	spare_give(l);
	env_free(l->ctx->env, l->engines);
	env_free(l->ctx->env, l);
}

static void fill(struct skein_listener *l,
		 const struct skein_listener_attr *attr)
{
	admission_init(&l->admission,
		       attr->handshakes_max ? attr->handshakes_max
					    : HANDSHAKES_MAX,
		       attr->conns_max ? attr->conns_max : CONNS_MAX);
	l->handshake_ns = attr->handshake_timeout_ns
				  ? attr->handshake_timeout_ns
				  : CONN_TIMEOUT_NS;
	l->on_conn = attr->on_conn;
	l->arg = attr->arg;
}

int skein_listener_open(struct skein_ctx *ctx, const char *addr,
			const struct skein_listener_attr *user,
			struct skein_listener **out)
{
	struct hostport parsed;
	struct skein_listener_attr attr = {.size = sizeof(attr)};
	struct skein_listener *l;
	bool pooled;
	int rc;

	if (ctx_forked(ctx))
		return -SKEIN_EFORKED;
	rc = ctx_attr_take(ctx, &attr, sizeof(attr), user);
	if (rc == 0)
		rc = conn_pooled(ctx, attr.pooled, &pooled);
	if (rc)
		return rc;
	l = env_alloc(ctx->env, sizeof(*l));
	if (!l)
		return -ENOMEM;
	l->ctx = ctx;
	l->fd = -1;
	list_init(&l->silent);
	fill(l, &attr);
	rc = take_engines(l, &attr);
	if (rc == 0)
		rc = bind_one(l, addr);
	spare_make(l);
	if (rc) {
		env_log(ctx->env, ENV_LOG_ERROR, "cannot listen on %s: %s",
			addr ? addr : "(null)",
			hostport_parse(addr, &parsed)
				? "write HOST:PORT, an IPv6 address in brackets"
				: skein_strerror(rc));
		listener_free(l);
		return rc;
	}
	rc = pooled ? conn_pool_listen(l, l->port) : 0;
	if (rc) {
		env_sock_close(ctx->env, l->fd);
		listener_free(l);
		return rc;
	}
	env_mutex_lock(ctx->env, &ctx->lock);
	list_add_tail(&ctx->listeners, &l->ctx_link);
	env_mutex_unlock(ctx->env, &ctx->lock);
	l->open_call.fn = open_call;
	engine_post(l->eng->e, &l->open_call);
	*out = l;
	return 0;
}

const char *skein_listener_addr(struct skein_listener *l)
{
	return l->addr;
}

/* --- closing ----------------------------------------------------------- */

struct close_step {
	struct engine_call call;
	struct skein_listener *l;
	struct skein_engine *eng;
	uint64_t drain_ns; /* 0: at once */
};

static void close_conns(struct conn_peer *peer, uint64_t drain_ns)
{
	struct list_node *n, *next;

	list_for_each_safe(n, next, &peer->conns) {
		struct skein_conn *conn =
			container_of(n, struct skein_conn, peer_link);

		if (conn->phase == CONN_P_READY)
			conn_close_start(conn, drain_ns);
		else if (conn->phase == CONN_P_SHAKE)
			conn_give_up(conn, -ESHUTDOWN, "the listener closes");
	}
}

/* On each engine: closes the listener's links that the engine owns. */
static void close_call(struct engine_call *call)
{
	struct close_step *s = container_of(call, struct close_step, call);
	struct skein_listener *l = s->l;
	struct list_node *n, *next;
	struct conn_peer *peer;

	if (s->eng == l->eng && l->fd >= 0) {
		watch(l, false);
		list_del(&l->eng_link);
		env_sock_close(l->ctx->env, l->fd);
		l->fd = -1;
	}
	list_for_each_safe(n, next, &s->eng->peers) {
		peer = container_of(n, struct conn_peer, eng_link);
		if (peer->listener != l)
			continue;
		if (!s->drain_ns || !peer->n_conns)
			conn_peer_down(peer, -ESHUTDOWN, "the listener closes");
		else
			close_conns(peer, s->drain_ns);
	}
	s->eng->attention = true;
	atomic_fetch_sub_explicit(&l->refs, 1, memory_order_release);
}

static bool all_gone(void *arg)
{
	struct skein_listener *l = arg;

	return !atomic_load_explicit(&l->peers, memory_order_acquire) &&
	       !atomic_load_explicit(&l->lanes, memory_order_acquire) &&
	       !atomic_load_explicit(&l->refs, memory_order_acquire);
}

static bool steps_done(void *arg)
{
	struct skein_listener *l = arg;

	return !atomic_load_explicit(&l->refs, memory_order_acquire);
}

/* Runs the engines in turn, as each may have no thread of its own. */
static void run_engines(struct skein_listener *l, bool (*done)(void *arg),
			uint64_t deadline_ns)
{
	struct skein_env *env = l->ctx->env;

	while (!done(l) && env_now_ns(env) < deadline_ns)
		for (unsigned i = 0; i < l->n_engines; i++)
			engine_run_until(l->engines[i]->e, done, l,
					 env_now_ns(env) + SLICE_NS);
}

static void close_round(struct skein_listener *l, struct close_step *steps,
			uint64_t drain_ns, uint64_t deadline_ns)
{
	for (unsigned i = 0; i < l->n_engines; i++) {
		atomic_fetch_add(&l->refs, 1);
		steps[i].call.fn = close_call;
		steps[i].l = l;
		steps[i].eng = l->engines[i];
		steps[i].drain_ns = drain_ns;
		engine_post(l->engines[i]->e, &steps[i].call);
	}
	run_engines(l, steps_done, ENV_NEVER);
	run_engines(l, all_gone, deadline_ns);
}

void skein_listener_close(struct skein_listener *l)
{
	ENV_HOLD_CANCEL();
	struct skein_ctx *ctx;
	struct close_step *steps;

	if (!l || ctx_forked(l->ctx))
		return;
	ctx = l->ctx;
	/* A thread inside a round cannot wait. */
	skein_assert(!engine_is_owner(l->eng->e));
	env_mutex_lock(ctx->env, &ctx->lock);
	list_del(&l->ctx_link);
	env_mutex_unlock(ctx->env, &ctx->lock);
	atomic_store(&l->closing, true);
	do { /* closing must not fail: try until there is memory */
		steps = env_alloc(ctx->env, l->n_engines * sizeof(*steps));
	} while (!steps);
	close_round(l, steps, SKEIN_S(1), env_now_ns(ctx->env) + CLOSE_NS);
	while (!all_gone(l))
		close_round(l, steps, 0, env_now_ns(ctx->env) + CLOSE_NS);
	env_free(ctx->env, steps);
	if (l->pool)
		conn_pool_end(l->pool);
	listener_free(l);
}
