/* SPDX-License-Identifier: MIT */
/*
 * handlers.h - the server's operations as RPCs of a context: a request goes to
 * the shard that its connection's engine serves.
 *
 * Thread rule: registered before the listener is opened; handlers run in the
 * threads of the shards' engines.
 */
#ifndef KV_HANDLERS_H
#define KV_HANDLERS_H

#include "kv/server.h"

#include <skein/rpc.h>

/* What skein_rpc_handle() says. The server outlives the context. */
int kv_handlers_register(struct skein_ctx *ctx, struct kv_server *server);

#endif
