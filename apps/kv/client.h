/* SPDX-License-Identifier: MIT */
/*
 * client.h - a client thread's view of a server: sends each key to the shard
 * that has it, and asks all shards for a range and merges what they say.
 *
 * Everything completes from within kv_net_run().
 *
 * Thread rule: the net's thread.
 */
#ifndef KV_CLIENT_H
#define KV_CLIENT_H

#include "kv/net/net.h"
#include "kv/proto.h"

struct kv_client;

/* Connects to every shard; timeout_ns holds for each connection and for each
 * later call. Blocks. -EPROTO when the server does not speak our version; else
 * what the transport says. The reason is logged in one line. */
int kv_client_open(struct kv_net *net, const char *addr, uint64_t timeout_ns,
		   struct kv_client **client);
/* No call is under way. */
void kv_client_close(struct kv_client *c);

/* As the server said when it was connected to. */
const struct kv_info *kv_client_info(const struct kv_client *c);
/* One line about the first connection that broke, "" when none did. */
const char *kv_client_error(struct kv_client *c);

/* GET, PUT, UPDATE, DELETE; the request is copied. As skein_rpc_call_async():
 * done() runs once when 0 was returned. -EAGAIN: too many under way. */
int kv_client_call(struct kv_client *c, const struct kv_req *req,
		   size_t resp_max, skein_rpc_done_fn *done, void *arg);

/* Sends now what was gathered, rather than in kv_net_run(). */
void kv_client_flush(struct kv_client *c);

struct kv_scan_result {
	enum skein_outcome outcome;
	int status;
	uint32_t count;
	/* fewer than asked for, but there are more: some response had no room.
	 * Go on just after the last key. */
	bool more;
	const struct kv_item *items; /* in the order of keys */
};

/* The result is valid until it returns. */
typedef void kv_scan_done_fn(void *arg, const struct kv_scan_result *res);

/* The first `count` records at or after the key, over all shards. Shards are
 * not asked at one instant: a scan beside writers may see one of two writes
 * that were made in order. resp_max is the room for one shard's response. */
int kv_client_scan(struct kv_client *c, const void *key, size_t key_len,
		   uint32_t count, size_t resp_max, kv_scan_done_fn *done,
		   void *arg);

#endif
