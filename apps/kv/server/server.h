/* SPDX-License-Identifier: MIT */
/*
 * server.h - what a key-value server does with a request, whichever transport
 * brought it.
 *
 * A server has one store a shard. Thread rule: kv_server_handle() for a shard
 * is called by that shard's thread only, and takes no lock; of a shared server
 * by any thread, several at once: those that read a shard beside each other,
 * those that change it alone, in the order in which they came for its lock.
 * kv_server_info() by any.
 */
#ifndef KV_SERVER_SERVER_H
#define KV_SERVER_SERVER_H

#include "kv/proto.h"

#define KV_SHARDS_MAX 64u

struct kv_server;

struct kv_server_attr {
	unsigned shards; /* 1 to KV_SHARDS_MAX */
	/* Of all shards. Ordered: of records; 0: no bound. Cache: of records and
	 * tables, at least KV_CACHE_BYTES_MIN a shard. */
	uint64_t bytes_max;
	bool cache;  /* the stores are caches (cache.h); not with shared */
	bool shared; /* shards have locks */
	const struct kv_alloc *alloc; /* NULL: malloc */
};

/* -ENOMEM, -EINVAL. */
int kv_server_new(const struct kv_server_attr *attr, struct kv_server **server);
void kv_server_free(struct kv_server *s);

/* Where a response is built: the transport's. */
struct kv_reply {
	/* Room for the response of len bytes, where it will be sent from; NULL
	 * when memory is short. Once a request. */
	void *(*buf)(struct kv_reply *reply, size_t len);
	size_t max; /* what the caller has room for */
};

/*
 * Executes one request. The status is the call's: 0; -ENOENT; -EOPNOTSUPP (a
 * SCAN of a cache); -ERANGE (an
 * update outside its value); -ENOMEM or -ENOSPC: nothing has changed;
 * -EMSGSIZE: the caller has no room for the response; -EBADMSG: not a request;
 * -EXDEV: the key belongs to another shard.
 */
int kv_server_handle(struct kv_server *s, unsigned shard, unsigned op,
		     const void *req, size_t len, struct kv_reply *reply);

unsigned kv_server_shards(const struct kv_server *s);
void kv_server_info(struct kv_server *s, struct kv_info *info);

struct kv_server_stats {
	uint64_t done[KV_OP_END - KV_INFO]; /* by operation */
	uint64_t refused;		    /* no room, wrong shard, garbage */
};

/* Sums over shards. Any thread. */
void kv_server_stats(struct kv_server *s, struct kv_server_stats *stats);

#endif
