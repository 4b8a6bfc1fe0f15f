/* SPDX-License-Identifier: MIT */
/*
 * fuzz_kv.c - a key-value server and client fed with bytes: requests for a
 * server of two shards, and scan responses for a merge. Input: a sequence of
 * (kind u8, len u8, bytes). Kinds below 6 are operations, others responses.
 */
#include "base/assert.h"
#include "kv/store/scan.h"
#include "kv/server/server.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct reply {
	struct kv_reply base;
	void *buf;
	size_t len;
};

static void *reply_buf(struct kv_reply *base, size_t len)
{
	struct reply *r = (struct reply *)base;

	skein_assert(len <= base->max && !r->buf);
	r->len = len;
	r->buf = malloc(len + !len);
	return r->buf;
}

static void request(struct kv_server *server, unsigned op, const void *bytes,
		    size_t len)
{
	for (unsigned shard = 0; shard < 2; shard++) {
		struct reply r = {.base = {reply_buf, 300}};
		struct kv_scan_in in;
		struct kv_item item;
		int rc;

		rc = kv_server_handle(server, shard, KV_INFO + op, bytes, len,
				      &r.base);
		/* what our server says, our client understands */
		if (!rc && KV_INFO + op == KV_SCAN) {
			skein_assert(!kv_scan_decode(r.buf, r.len, &in));
			while ((rc = kv_scan_next(&in, &item)) > 0)
				;
			skein_assert(!rc);
		}
		free(r.buf);
	}
}

static void response(struct kv_merge *m, unsigned kind, const void *bytes,
		     size_t len)
{
	if (kv_merge_start(m, 1 + kind % 8))
		return;
	for (unsigned part = 0; part < 2; part++)
		if (kv_merge_add(m, part, bytes, len))
			return;
	if (kv_merge_finish(m))
		return;
	for (uint32_t i = 1; i < m->count; i++)
		skein_assert(
			kv_key_cmp(m->items[i - 1].key, m->items[i - 1].key_len,
				   m->items[i].key, m->items[i].key_len) <= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kv_server_attr attr = {.shards = 2, .bytes_max = 4096};
	struct bytes_in in = bytes_in(data, size);
	struct kv_server *server;
	struct kv_merge merge;

	if (kv_server_new(&attr, &server))
		return 0;
	if (kv_merge_init(&merge, 2))
		goto out;
	while (bytes_left(&in)) {
		unsigned kind = bytes_get_u8(&in);
		size_t len = bytes_get_u8(&in);
		const uint8_t *p;

		if (len > bytes_left(&in))
			len = bytes_left(&in);
		p = bytes_get(&in, len);
		if (!p)
			break;
		if (kind < 6)
			request(server, kind, p, len);
		else
			response(&merge, kind, p, len);
	}
	kv_merge_fini(&merge);
out:
	kv_server_free(server);
	return 0;
}
