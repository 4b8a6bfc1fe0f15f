/* SPDX-License-Identifier: MIT */
/* handlers.c - the server's operations as RPCs; see handlers.h. */
#include "kv/server/handlers.h"

struct rpc_reply {
	struct kv_reply base;
	struct skein_rpc_req *req;
};

static void *reply_buf(struct kv_reply *reply, size_t len)
{
	return skein_rpc_resp_buf(((struct rpc_reply *)reply)->req, len);
}

static int handle(struct kv_server *s, unsigned op, struct skein_rpc_req *req)
{
	struct rpc_reply r = {.base.buf = reply_buf, .req = req};
	unsigned shard = skein_rpc_req_shard(req);

	r.base.max = skein_rpc_resp_max(req);
	return kv_server_handle(s, shard % kv_server_shards(s), op,
				skein_rpc_req_data(req), skein_rpc_req_len(req),
				&r.base);
}

#define HANDLER(op)                                                 \
	static int on_##op(struct skein_rpc_req *req, void *server) \
	{                                                           \
		return handle(server, KV_##op, req);                \
	}
HANDLER(INFO)
HANDLER(GET)
HANDLER(PUT)
HANDLER(UPDATE)
HANDLER(DELETE)
HANDLER(SCAN)
#undef HANDLER

static int handle_op(struct skein_ctx *ctx, uint16_t id, skein_rpc_fn *fn,
		     struct kv_server *server, struct skein_rpc_pool *pool)
{
	if (pool)
		return skein_rpc_handle_workers(ctx, id, fn, server, pool);
	return skein_rpc_handle(ctx, id, fn, server);
}

int kv_handlers_register(struct skein_ctx *ctx, struct kv_server *server,
			 struct skein_rpc_pool *pool)
{
	static skein_rpc_fn *const fns[KV_OP_END - KV_INFO] = {
		on_INFO, on_GET, on_PUT, on_UPDATE, on_DELETE, on_SCAN,
	};
	int rc = 0;

	for (unsigned i = 0; i < KV_OP_END - KV_INFO && !rc; i++)
		rc = handle_op(ctx, (uint16_t)(KV_INFO + i), fns[i], server,
			       pool);
	return rc;
}
