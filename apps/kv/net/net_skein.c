/* SPDX-License-Identifier: MIT */
/*
 * net_skein.c - the client's side over Skein: a net is an engine, a link is a
 * connection, a call is a call.
 */
#include "kv/net/net.h"

#include <skein/conn.h>

#include <errno.h>
#include <stdlib.h>

/* what is left by then was abandoned by its caller */
#define CLOSE_NS SKEIN_MS(500)

struct skein_fabric {
	struct kv_fabric base;
	struct skein_ctx *ctx;
	enum skein_wait wait;
	enum skein_return ret;
	bool default_taken; /* the context's own engine serves the first net */
};

struct skein_net {
	struct kv_net base;
	struct skein_ctx *ctx;
	struct skein_engine *engine;
	enum skein_return ret;
};

struct skein_link {
	struct kv_link base;
	struct skein_conn *conn;
};

static int fabric_open(const struct kv_fabric_attr *attr,
		       struct kv_fabric **fabric)
{
	struct skein_ctx_attr ca = {
		.size = sizeof(ca),
		.device = attr->device,
		.wait = attr->wait,
		.log = attr->log,
		.log_arg = attr->log_arg,
	};
	struct skein_fabric *f = calloc(1, sizeof(*f));
	int rc;

	if (!f)
		return -ENOMEM;
	f->base.ops = &kv_net_skein;
	f->wait = attr->wait;
	f->ret = attr->ret;
	rc = skein_ctx_open(&ca, &f->ctx);
	if (rc) {
		free(f);
		return rc;
	}
	*fabric = &f->base;
	return 0;
}

static void fabric_close(struct kv_fabric *fabric)
{
	struct skein_fabric *f = (struct skein_fabric *)fabric;

	skein_ctx_close(f->ctx);
	free(f);
}

static const char *device(struct kv_fabric *fabric)
{
	return skein_ctx_device(((struct skein_fabric *)fabric)->ctx);
}

static int net_open(struct kv_fabric *fabric, struct kv_net **net)
{
	struct skein_fabric *f = (struct skein_fabric *)fabric;
	struct skein_net *n = calloc(1, sizeof(*n));
	int rc = 0;

	if (!n)
		return -ENOMEM;
	n->base.ops = &kv_net_skein;
	n->ctx = f->ctx;
	n->ret = f->ret;
	if (f->default_taken)
		rc = skein_engine_new(f->ctx, f->wait, &n->engine);
	else
		n->engine = skein_ctx_engine(f->ctx);
	if (rc) {
		free(n);
		return rc;
	}
	f->default_taken = true;
	*net = &n->base;
	return 0;
}

static void net_close(struct kv_net *net)
{
	free(net); /* the engine is the context's */
}

static int run(struct kv_net *net, uint64_t timeout_ns)
{
	return skein_engine_run(((struct skein_net *)net)->engine, timeout_ns);
}

static void stop(struct kv_net *net)
{
	skein_engine_stop(((struct skein_net *)net)->engine);
}

static int link_open(struct kv_net *net, const char *addr, unsigned shard,
		     uint64_t timeout_ns, struct kv_link **link)
{
	struct skein_net *n = (struct skein_net *)net;
	struct skein_conn_attr ca = {
		.size = sizeof(ca),
		.engine = n->engine,
		.shard = shard,
		.timeout_ns = timeout_ns,
		.return_mode = n->ret,
	};
	struct skein_link *l = calloc(1, sizeof(*l));
	int rc;

	if (!l)
		return -ENOMEM;
	l->base.ops = &kv_net_skein;
	rc = skein_conn_open(n->ctx, addr, &ca, &l->conn);
	if (rc) {
		free(l);
		return rc;
	}
	*link = &l->base;
	return 0;
}

static void link_close(struct kv_link *link)
{
	struct skein_link *l = (struct skein_link *)link;

	skein_conn_close(l->conn, CLOSE_NS);
	free(l);
}

static const char *link_error(struct kv_link *link)
{
	const char *text = "";

	skein_conn_error(((struct skein_link *)link)->conn, &text);
	return text;
}

static int call(struct kv_link *link, uint16_t op, const void *req, size_t len,
		size_t resp_max, uint64_t timeout_ns, skein_rpc_done_fn *done,
		void *arg)
{
	return skein_rpc_call_async(((struct skein_link *)link)->conn, op, req,
				    len, resp_max, timeout_ns, done, arg);
}

static void flush(struct kv_link *link)
{
	/* each call has left */
}

const struct kv_net_ops kv_net_skein = {
	.fabric_open = fabric_open,
	.fabric_close = fabric_close,
	.device = device,
	.net_open = net_open,
	.net_close = net_close,
	.run = run,
	.stop = stop,
	.link_open = link_open,
	.link_close = link_close,
	.link_error = link_error,
	.call = call,
	.flush = flush,
};
