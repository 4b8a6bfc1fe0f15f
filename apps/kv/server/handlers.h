/* SPDX-License-Identifier: MIT */
/*
 * handlers.h - the server's operations as RPCs of a context: a request goes to
 * the shard that its connection asked for.
 *
 * Thread rule: registered before the listener is opened; handlers run in the
 * threads of the shards' engines, or in those of a pool.
 */
#ifndef KV_SERVER_HANDLERS_H
#define KV_SERVER_HANDLERS_H

#include "kv/server/server.h"

#include <skein/rpc.h>

/* pool: NULL, or what runs the handlers; then the server is a shared one. What
 * skein_rpc_handle() says. The server outlives the context. */
int kv_handlers_register(struct skein_ctx *ctx, struct kv_server *server,
			 struct skein_rpc_pool *pool);

#endif
