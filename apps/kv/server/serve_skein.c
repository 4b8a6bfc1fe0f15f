/* SPDX-License-Identifier: MIT */
/*
 * serve_skein.c - the server over Skein: an engine and a thread for each shard;
 * connections come to the engine of the shard that they asked for. Its thread
 * executes what comes, or takes it to the workers and their answers back.
 *
 * A polling thread sleeps while it has no connection, so that an idle server
 * takes no CPU.
 */
#include "kv/server/handlers.h"
#include "kv/server/serve.h"

#include <skein/conn.h>

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct skein_shard {
	struct skein_serve *serve;
	struct skein_engine *engine;
	unsigned number;
	unsigned conns; /* the shard's thread alone */
	pthread_t thread;
};

struct skein_serve {
	struct kv_serve base;
	struct kv_server *server;
	struct skein_ctx *ctx;
	struct skein_rpc_pool *workers; /* NULL: none; the context's */
	struct skein_listener *listener;
	enum skein_wait wait;
	int pin;
	struct skein_stop *stop;
	unsigned shard_count, started;
	struct skein_shard shards[KV_SHARDS_MAX];
};

/* Runs in the thread of the connection's shard. */
static void on_conn(void *arg, struct skein_conn *conn,
		    enum skein_conn_state state)
{
	struct skein_serve *s = arg;
	struct skein_shard *sh =
		&s->shards[skein_conn_shard(conn) % s->shard_count];

	if (state == SKEIN_CONN_READY) {
		sh->conns++;
		skein_conn_set_data(conn, sh);
	} else if (skein_conn_data(conn)) {
		sh->conns--;
		skein_conn_set_data(conn, NULL);
	}
	/* the thread looks again whether it may sleep */
	skein_engine_stop(sh->engine);
}

static bool polls(const struct skein_serve *s)
{
	return s->wait == SKEIN_WAIT_POLL || s->wait == SKEIN_WAIT_SPIN;
}

/* Until something comes for the engine, or the server stops. */
static void doze(struct skein_shard *sh)
{
	struct pollfd p[2] = {
		{.fd = skein_engine_fd(sh->engine), .events = POLLIN},
		{.fd = skein_stop_fd(sh->serve->stop), .events = POLLIN},
	};

	if (skein_engine_progress(sh->engine) || skein_engine_arm(sh->engine))
		return;
	if (poll(p, 2, -1) < 0 && errno != EINTR)
		fprintf(stderr, "skein kv: poll: %s\n", strerror(errno));
}

static void *shard_main(void *arg)
{
	struct skein_shard *sh = arg;
	struct skein_serve *s = sh->serve;

	kv_pin(s->pin < 0 ? -1 : s->pin + (int)sh->number);
	while (!skein_stop_is_set(s->stop)) {
		if (sh->conns || !polls(s))
			skein_engine_run_stop(sh->engine, SKEIN_FOREVER,
					      s->stop);
		else
			doze(sh);
	}
	return NULL;
}

static void stop(struct kv_serve *serve)
{
	struct skein_serve *s = (struct skein_serve *)serve;

	skein_stop_set(s->stop);
	for (unsigned i = 0; i < s->started; i++)
		pthread_join(s->shards[i].thread, NULL);
	if (s->listener)
		skein_listener_close(s->listener);
	if (s->ctx)
		skein_ctx_close(s->ctx);
	skein_stop_free(s->stop);
	free(s);
}

static int make_engines(struct skein_serve *s)
{
	int rc = 0;

	s->shards[0].engine = skein_ctx_engine(s->ctx);
	for (unsigned i = 0; i < s->shard_count && !rc; i++) {
		struct skein_shard *sh = &s->shards[i];

		sh->serve = s;
		sh->number = i;
		if (i)
			rc = skein_engine_new(s->ctx, s->wait, &sh->engine);
	}
	return rc;
}

static int listen_on(struct skein_serve *s, const char *addr)
{
	struct skein_engine *engines[KV_SHARDS_MAX];
	struct skein_listener_attr la = {
		.size = sizeof(la),
		.engines = engines,
		.engine_count = s->shard_count,
		.on_conn = on_conn,
		.arg = s,
	};

	for (unsigned i = 0; i < s->shard_count; i++)
		engines[i] = s->shards[i].engine;
	return skein_listener_open(s->ctx, addr, &la, &s->listener);
}

static int make_handlers(struct skein_serve *s, unsigned workers)
{
	int rc = 0;

	if (workers)
		rc = skein_rpc_pool_new(s->ctx, workers, &s->workers);
	return rc ? rc : kv_handlers_register(s->ctx, s->server, s->workers);
}

static int start(const struct kv_serve_attr *attr, struct kv_serve **serve)
{
	struct skein_ctx_attr ca = {
		.size = sizeof(ca),
		.device = attr->device,
		.wait = attr->wait,
		.log = attr->log,
		.log_arg = attr->log_arg,
	};
	struct skein_serve *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return -ENOMEM;
	s->base.ops = &kv_serve_skein;
	s->server = attr->server;
	s->shard_count = kv_server_shards(attr->server);
	s->wait = attr->wait;
	s->pin = attr->pin;
	rc = skein_stop_new(&s->stop);
	if (rc) {
		free(s);
		return rc;
	}
	rc = skein_ctx_open(&ca, &s->ctx);
	if (!rc)
		rc = make_engines(s);
	if (!rc)
		rc = make_handlers(s, attr->workers);
	if (!rc)
		rc = listen_on(s, attr->listen);
	while (!rc && s->started < s->shard_count) {
		struct skein_shard *sh = &s->shards[s->started];

		rc = -pthread_create(&sh->thread, NULL, shard_main, sh);
		s->started += !rc;
	}
	if (rc) {
		stop(&s->base);
		return rc;
	}
	s->base.addr = skein_listener_addr(s->listener);
	s->base.device = skein_ctx_device(s->ctx);
	*serve = &s->base;
	return 0;
}

const struct kv_serve_ops kv_serve_skein = {start, stop};
