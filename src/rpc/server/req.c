/* SPDX-License-Identifier: MIT */
/*
 * req.c - what a handler may ask of its request, and how it defers it.
 */
#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "rpc/server/server.h"
#include <skein/conn.h>

const void *skein_rpc_req_data(const struct skein_rpc_req *req)
{
	return req->data;
}

size_t skein_rpc_req_len(const struct skein_rpc_req *req)
{
	return req->len;
}

struct skein_conn *skein_rpc_req_conn(const struct skein_rpc_req *req)
{
	/* The connection of a deferred request may be gone. */
	return req->server ? req->server->conn : NULL;
}

unsigned skein_rpc_req_shard(const struct skein_rpc_req *req)
{
	if (req->server)
		return skein_conn_shard(req->server->conn);
	return container_of(req, const struct rpc_deferred, req)
		->deferrals->conf.shard;
}

size_t skein_rpc_resp_max(const struct skein_rpc_req *req)
{
	return req->meta.resp_max;
}

/* Any thread: ordinary memory, which is copied when the answer is sent; or
 * registered memory where the copy would be long. */
static void *resp_buf_later(struct skein_rpc_req *req, size_t len)
{
	struct rpc_deferred *l = rpc_deferred_of(req);
	struct rpc_deferred_conf *conf = &l->deferrals->conf;
	struct rpc_buf *out = NULL;
	uint8_t *resp = NULL;

	if (conf->buf_new && len >= RPC_DEFERRED_LARGE)
		out = conf->buf_new(conf->buf_arg, len);
	else
		resp = env_alloc(conf->env, len);
	if (!out && !resp)
		return NULL;
	memcpy(out ? out->addr : resp, req->resp, req->resp_len);
	env_free(conf->env, l->resp);
	if (l->out)
		l->out->end(l->out);
	l->resp = resp;
	l->out = out;
	req->resp = out ? out->addr : resp;
	req->inline_max = req->resp_len = (uint32_t)len;
	return req->resp;
}

static void *resp_buf_large(struct skein_rpc_req *req, size_t len)
{
	struct rpc_buf *buf, *old = req->large;
	struct rpc_port *port;
	size_t keep = len < req->resp_len ? len : req->resp_len;

	if (!req->server)
		return resp_buf_later(req, len);
	if (old == RPC_DEFERRED_MARK)
		return NULL; /* no longer this handler's */
	port = req->server->port;
	if (old && old->room >= len) {
		req->resp_len = (uint32_t)len;
		return old->addr;
	}
	buf = port->ops->buf_get(port, len, false);
	if (!buf)
		return NULL;
	memcpy(buf->addr, old ? old->addr : req->resp, keep);
	if (old)
		port->ops->buf_put(port, old);
	req->large = buf;
	req->resp_len = (uint32_t)len;
	return buf->addr;
}

void *skein_rpc_resp_buf(struct skein_rpc_req *req, size_t len)
{
	if (len > req->meta.resp_max)
		return NULL;
	if (__builtin_expect(req->large || len > req->inline_max, 0))
		return resp_buf_large(req, len);
	req->resp_len = (uint32_t)len;
	return req->resp;
}

/* --- later -------------------------------------------------------------- */

int skein_rpc_defer(struct skein_rpc_req *req, struct skein_rpc_req **later)
{
	struct rpc_deferred *l = rpc_deferred_of(req);
	int rc;

	if (!l) {
		rc = rpc_server_defer(req->server, &l);
		if (rc)
			return rc;
	} else if (!l->kept || *l->kept) {
		return -EALREADY;
	} else {
		*l->kept = true; /* the worker does not answer it */
	}
	*later = &l->req;
	return 0;
}

int skein_rpc_answer(struct skein_rpc_req *req, int status)
{
	struct rpc_deferred *l = rpc_deferred_of(req);

	skein_assert(l); /* else: the request was not deferred */
	return rpc_deferred_answer(l, status);
}
