/* SPDX-License-Identifier: MIT */
/*
 * test_server.c - requests as bytes, responses as bytes and statuses; short of
 * room, short of memory, at the wrong shard, garbage; many threads at once.
 */
#include "kv/store/cache.h"
#include "kv/store/hash.h"
#include "kv/server/server.h"
#include "kv/store/store.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#define SHARDS 3u

static struct kv_server *server;
static bool no_memory;

static void *get(void *arg, size_t align, size_t len)
{
	return no_memory ? NULL : kv_alloc_libc.get(NULL, align, len);
}

static const struct kv_alloc alloc = {get, NULL, NULL};

struct reply {
	struct kv_reply base;
	uint8_t buf[4096];
	size_t len;
	bool broke;
};

static void *reply_buf(struct kv_reply *base, size_t len)
{
	struct reply *r = (struct reply *)base;

	assert_true(len <= base->max);
	r->len = len;
	return r->broke ? NULL : r->buf;
}

static struct reply reply;

static int ask_at(unsigned shard, const struct kv_req *req, size_t max)
{
	uint8_t buf[256];
	size_t len = 0;

	assert_int_equal(kv_req_encode(req, buf, sizeof(buf), &len), 0);
	reply.base = (struct kv_reply){reply_buf, max};
	reply.len = 0;
	return kv_server_handle(server, shard, req->op, buf, len, &reply.base);
}

static unsigned shard_of(const char *key)
{
	return kv_hash_shard(kv_hash(key, strlen(key)), SHARDS);
}

static int ask(enum kv_op op, const char *key, const char *val, uint32_t n)
{
	struct kv_req req = {
		.op = op,
		.key = key,
		.key_len = strlen(key),
		.val = val,
		.val_len = val ? strlen(val) : 0,
		.off = n,
		.count = n,
	};

	return ask_at(shard_of(key), &req, sizeof(reply.buf));
}

static int setup(void **state)
{
	struct kv_alloc a = alloc;
	static struct kv_alloc kept;
	struct kv_server_attr attr = {.shards = SHARDS, .alloc = &kept};

	a.put = kv_alloc_libc.put;
	kept = a;
	no_memory = false;
	reply.broke = false;
	return kv_server_new(&attr, &server);
}

static int teardown(void **state)
{
	kv_server_free(server);
	return 0;
}

static void test_life_of_a_key(void **state)
{
	assert_int_equal(ask(KV_GET, "k", NULL, 0), -ENOENT);
	assert_int_equal(ask(KV_PUT, "k", "value", 0), 0);
	assert_int_equal(reply.len, 0);
	assert_int_equal(ask(KV_GET, "k", NULL, 0), 0);
	assert_int_equal(reply.len, 5);
	assert_memory_equal(reply.buf, "value", 5);
	assert_int_equal(ask(KV_UPDATE, "k", "LU", 2), 0);
	assert_int_equal(ask(KV_UPDATE, "k", "xyz", 3), -ERANGE);
	assert_int_equal(ask(KV_GET, "k", NULL, 0), 0);
	assert_memory_equal(reply.buf, "vaLUe", 5);
	assert_int_equal(ask(KV_DELETE, "k", NULL, 0), 0);
	assert_int_equal(ask(KV_DELETE, "k", NULL, 0), -ENOENT);
	assert_int_equal(ask(KV_UPDATE, "k", "x", 0), -ENOENT);
	assert_int_equal(ask(KV_PUT, "k", "", 0), 0);
	assert_int_equal(ask(KV_GET, "k", NULL, 0), 0);
	assert_int_equal(reply.len, 0);
}

static void test_room(void **state)
{
	struct kv_req req = {.op = KV_GET, .key = "k", .key_len = 1};

	assert_int_equal(ask(KV_PUT, "k", "value", 0), 0);
	assert_int_equal(ask_at(shard_of("k"), &req, 5), 0);
	assert_int_equal(ask_at(shard_of("k"), &req, 4), -EMSGSIZE);
	reply.broke = true;
	assert_int_equal(ask_at(shard_of("k"), &req, 5), -ENOMEM);
}

static void test_no_memory(void **state)
{
	struct kv_server_stats st;

	assert_int_equal(ask(KV_PUT, "k", "value", 0), 0);
	no_memory = true;
	assert_int_equal(ask(KV_PUT, "l", "value", 0), -ENOMEM);
	assert_int_equal(ask(KV_PUT, "k", "a much longer value", 0), -ENOMEM);
	no_memory = false;
	kv_server_stats(server, &st);
	assert_int_equal(st.refused, 2);
	assert_int_equal(ask(KV_GET, "l", NULL, 0), -ENOENT);
	assert_int_equal(ask(KV_GET, "k", NULL, 0), 0);
	assert_memory_equal(reply.buf, "value", 5);
}

static void test_wrong_shard(void **state)
{
	struct kv_req req = {.op = KV_GET, .key = "k", .key_len = 1};
	struct kv_server_stats st;

	assert_int_equal(ask_at((shard_of("k") + 1) % SHARDS, &req, 100),
			 -EXDEV);
	kv_server_stats(server, &st);
	assert_int_equal(st.refused, 1);
}

static void test_garbage(void **state)
{
	struct kv_server_stats st;

	reply.base = (struct kv_reply){reply_buf, sizeof(reply.buf)};
	assert_int_equal(kv_server_handle(server, 0, KV_GET, "\377\377", 2,
					  &reply.base),
			 -EBADMSG);
	assert_int_equal(kv_server_handle(server, 0, 1, "", 0, &reply.base),
			 -EBADMSG);
	kv_server_stats(server, &st);
	assert_int_equal(st.refused, 2);
}

/* Records of one shard only, in order, within count and room. */
static void test_scan(void **state)
{
	struct kv_req req = {.op = KV_SCAN, .key = "k", .key_len = 1};
	unsigned there[SHARDS] = {0};
	struct kv_scan_in in;
	struct kv_item item;
	char key[8];

	for (unsigned i = 0; i < 30; i++) {
		snprintf(key, sizeof(key), "k%02u", i);
		assert_int_equal(ask(KV_PUT, key, "0123456789", 0), 0);
		there[shard_of(key)]++;
	}
	for (unsigned sh = 0; sh < SHARDS; sh++) {
		unsigned seen = 0;

		assert_true(there[sh] > 3);
		req.count = 100;
		assert_int_equal(ask_at(sh, &req, sizeof(reply.buf)), 0);
		assert_int_equal(kv_scan_decode(reply.buf, reply.len, &in), 0);
		assert_false(in.more);
		while (kv_scan_next(&in, &item) > 0)
			seen++;
		assert_int_equal(seen, there[sh]);

		req.count = 3;
		assert_int_equal(ask_at(sh, &req, sizeof(reply.buf)), 0);
		kv_scan_decode(reply.buf, reply.len, &in);
		assert_int_equal(in.left, 3);
		assert_false(in.more);
		/* room for two of three */
		assert_int_equal(
			ask_at(sh, &req,
			       KV_SCAN_HEAD + 3 * kv_item_size(3, 10) - 1),
			0);
		kv_scan_decode(reply.buf, reply.len, &in);
		assert_int_equal(in.left, 2);
		assert_true(in.more);
		/* not even one */
		assert_int_equal(ask_at(sh, &req, KV_SCAN_HEAD), -EMSGSIZE);
		assert_int_equal(ask_at(sh, &req, KV_SCAN_HEAD - 1), -EMSGSIZE);
	}
	req.key = "l";
	assert_int_equal(ask_at(0, &req, KV_SCAN_HEAD), 0);
	kv_scan_decode(reply.buf, reply.len, &in);
	assert_int_equal(in.left, 0);
}

static void test_info(void **state)
{
	struct kv_req req = {.op = KV_INFO};
	struct kv_info info;

	ask(KV_PUT, "a", "x", 0);
	ask(KV_PUT, "b", "y", 0);
	assert_int_equal(ask_at(1, &req, KV_INFO_LEN), 0);
	assert_int_equal(kv_info_decode(reply.buf, reply.len, &info), 0);
	assert_int_equal(info.shards, SHARDS);
	assert_int_equal(info.records, 2);
	assert_int_equal(info.version, KV_PROTO_VERSION);
	assert_int_equal(ask_at(1, &req, KV_INFO_LEN - 1), -EMSGSIZE);
}

static void cache_fill(unsigned n)
{
	static char val[KV_VAL_MAX / 2];
	struct kv_req req = {.op = KV_PUT, .val = val, .val_len = sizeof(val)};
	static uint8_t buf[KV_REQ_MAX];
	char key[8];
	size_t len = 0;

	for (unsigned i = 0; i < n; i++) {
		snprintf(key, sizeof(key), "big%02u", i);
		req.key = key;
		req.key_len = strlen(key);
		assert_int_equal(kv_req_encode(&req, buf, sizeof(buf), &len),
				 0);
		reply.base = (struct kv_reply){reply_buf, 0};
		assert_int_equal(kv_server_handle(server, shard_of(key), KV_PUT,
						  buf, len, &reply.base),
				 0);
	}
}

/* The same requests to a server of caches. */
static void test_cache(void **state)
{
	struct kv_server_attr attr = {.shards = SHARDS,
				      .bytes_max = SHARDS * KV_CACHE_BYTES_MIN,
				      .cache = true,
				      .shared = true};
	struct kv_info info;

	assert_int_equal(kv_server_new(&attr, &server), -EINVAL);
	attr.shared = false;
	attr.bytes_max--;
	assert_int_equal(kv_server_new(&attr, &server), -EINVAL);
	attr.bytes_max++;
	assert_int_equal(kv_server_new(&attr, &server), 0);
	assert_int_equal(ask(KV_SCAN, "k", NULL, 1), -EOPNOTSUPP);
	assert_int_equal(ask(KV_PUT, "k", "value", 0), 0);
	assert_int_equal(ask(KV_UPDATE, "k", "LU", 2), 0);
	assert_int_equal(ask(KV_UPDATE, "k", "xyz", 3), -ERANGE);
	assert_int_equal(ask(KV_GET, "k", NULL, 0), 0);
	assert_memory_equal(reply.buf, "vaLUe", 5);
	assert_int_equal(ask(KV_DELETE, "k", NULL, 0), 0);
	assert_int_equal(ask(KV_DELETE, "k", NULL, 0), -ENOENT);
	assert_int_equal(ask(KV_PUT, "k", "value", 0), 0);
	cache_fill(30);
	assert_int_equal(ask(KV_GET, "k", NULL, 0), -ENOENT);
	assert_int_equal(ask(KV_UPDATE, "k", "x", 0), -ENOENT);
	kv_server_info(server, &info);
	assert_int_equal(info.records + info.evicted, 31);
	assert_true(info.evicted >= 31 - 3 * SHARDS);
	assert_true(info.bytes <= attr.bytes_max);
	kv_server_free(server);
}

/* --- many threads, one shared server ------------------------------------ */

#define THREADS 4u
#define ROUNDS 2000u
#define KEYS 7u
#define FILLED 600u /* bytes of a value, all of them equal */

struct caller {
	pthread_t thread;
	struct kv_server *server;
	unsigned n;
	uint64_t found;
	bool bad;
};

static int shared_ask(struct kv_server *s, const struct kv_req *req,
		      struct reply *r)
{
	uint8_t buf[1024];
	size_t len = 0;

	if (kv_req_encode(req, buf, sizeof(buf), &len))
		return -EIO;
	r->base = (struct kv_reply){reply_buf, sizeof(r->buf)};
	r->broke = false;
	r->len = 0;
	return kv_server_handle(s, 0, req->op, buf, len, &r->base);
}

static bool filled(const uint8_t *p, size_t len)
{
	for (size_t i = 1; i < len; i++)
		if (p[i] != p[0])
			return false;
	return true;
}

/* What a scan finds is whole, and in order. */
static bool scan_is_whole(const struct reply *r)
{
	struct kv_item item, last = {.key_len = 0};
	struct kv_scan_in in;

	if (kv_scan_decode(r->buf, r->len, &in))
		return false;
	while (kv_scan_next(&in, &item) > 0) {
		if (last.key_len && kv_key_cmp(last.key, last.key_len, item.key,
					       item.key_len) >= 0)
			return false;
		if (!filled(item.val, item.val_len))
			return false;
		last = item;
	}
	return true;
}

/* One operation on one of a few keys that all threads change, each value one
 * byte many times: whoever saw it half written would see two. */
static void shared_step(struct caller *c, unsigned i)
{
	static const enum kv_op ops[] = {KV_PUT,    KV_GET,  KV_UPDATE, KV_GET,
					 KV_DELETE, KV_SCAN, KV_PUT,	KV_GET};
	uint8_t val[FILLED];
	struct reply r;
	char key = (char)('a' + (i * 5 + c->n) % KEYS);
	struct kv_req req = {.op = ops[(i * 3 + c->n) % 8],
			     .key = &key,
			     .key_len = 1,
			     .count = KEYS};
	int rc;

	memset(val, (int)(i * THREADS + c->n), sizeof(val));
	if (req.op == KV_PUT || req.op == KV_UPDATE) {
		req.val = val;
		req.val_len = sizeof(val);
	}
	if (req.op != KV_SCAN)
		req.count = 0;
	rc = shared_ask(c->server, &req, &r);
	if (rc && (rc != -ENOENT || req.op == KV_PUT || req.op == KV_SCAN))
		c->bad = true;
	if (!rc && req.op == KV_GET) {
		c->found++;
		c->bad |= r.len != FILLED || !filled(r.buf, r.len);
	}
	if (!rc && req.op == KV_SCAN)
		c->bad |= !scan_is_whole(&r);
}

static void *shared_main(void *arg)
{
	struct caller *c = arg;

	for (unsigned i = 0; i < ROUNDS; i++)
		shared_step(c, i);
	return NULL;
}

static void test_shared(void **state)
{
	struct kv_server_attr attr = {.shards = 1, .shared = true};
	struct caller callers[THREADS];
	struct kv_server_stats st;
	struct kv_server *s;
	uint64_t done = 0;

	assert_int_equal(kv_server_new(&attr, &s), 0);
	for (unsigned i = 0; i < THREADS; i++) {
		callers[i] = (struct caller){.server = s, .n = i};
		assert_int_equal(pthread_create(&callers[i].thread, NULL,
						shared_main, &callers[i]),
				 0);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(callers[i].thread, NULL);
		assert_false(callers[i].bad);
		assert_true(callers[i].found > 0);
	}
	/* none was counted twice, or lost */
	kv_server_stats(s, &st);
	for (unsigned op = 0; op < KV_OP_END - KV_INFO; op++)
		done += st.done[op];
	assert_int_equal(done, THREADS * ROUNDS);
	assert_int_equal(st.refused, 0);
	kv_server_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_life_of_a_key, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_room, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_memory, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_wrong_shard, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_garbage, setup, teardown),
		cmocka_unit_test_setup_teardown(test_scan, setup, teardown),
		cmocka_unit_test_setup_teardown(test_info, setup, teardown),
		cmocka_unit_test(test_cache),
		cmocka_unit_test(test_shared),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
