/* SPDX-License-Identifier: MIT */
/*
 * test_cache.c - a partition of the cache against a model: an array of all
 * possible keys, each with its value or none and the time of its last use.
 * Small values fill buckets, large ones the memory; allocations fail.
 */
#include "kv/store/cache.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#define BUCKETS 12u
#define KEYS (BUCKETS * 14u)
#define VAL_MAX 200000u
#define BYTES_MAX KV_CACHE_BYTES_MIN

struct item {
	char key[24];
	size_t key_len, len;
	uint64_t used; /* 0: not there */
	uint8_t fill, patch;
	size_t patch_at; /* one byte that an update wrote */
};

static struct {
	struct item item[KEYS];
	uint64_t now, bytes, count, evicted;
	uint64_t rng;
	unsigned fail_one_in; /* 0: never */
	int live;
	size_t val_max;
} m;

static uint8_t val[VAL_MAX];

static uint64_t rnd(uint64_t below)
{
	m.rng ^= m.rng << 13;
	m.rng ^= m.rng >> 7;
	m.rng ^= m.rng << 17;
	return m.rng % below;
}

static void *get(void *arg, size_t align, size_t len)
{
	void *p;

	if (m.fail_one_in && rnd(m.fail_one_in) == 0)
		return NULL;
	p = kv_alloc_libc.get(NULL, align, len);
	m.live += p != NULL;
	return p;
}

static void put(void *arg, void *p)
{
	m.live -= p != NULL;
	kv_alloc_libc.put(NULL, p);
}

static const struct kv_alloc alloc = {get, put, NULL};

static unsigned bucket(const struct item *it)
{
	return (unsigned)(it - m.item) % BUCKETS;
}

/* Hashes of one bucket differ in their high bits, for some keys. */
static uint64_t hash_of(const struct item *it)
{
	uint64_t high = (uint64_t)(it - m.item) % 3;

	return bucket(it) | high << 40;
}

static size_t pad(size_t len)
{
	return (len + 7) / 8 * 8;
}

static size_t size_of(const struct item *it, size_t len)
{
	return 16 + sizeof(struct kv_record) + pad(it->key_len) + pad(len);
}

static void model_drop(struct item *it)
{
	it->used = 0;
	m.bytes -= size_of(it, it->len);
	m.count--;
}

/* The one of all, or of one bucket, that was used longest ago. */
static struct item *oldest(int of_bucket)
{
	struct item *old = NULL;

	for (unsigned i = 0; i < KEYS; i++) {
		struct item *it = &m.item[i];

		if (it->used && (!old || it->used < old->used) &&
		    (of_bucket < 0 || bucket(it) == (unsigned)of_bucket))
			old = it;
	}
	return old;
}

static unsigned in_bucket(unsigned b)
{
	unsigned n = 0;

	for (unsigned i = b; i < KEYS; i += BUCKETS)
		n += m.item[i].used != 0;
	return n;
}

static void model_put(struct item *it, size_t len)
{
	if (it->used && pad(it->len) != pad(len))
		model_drop(it);
	if (!it->used) {
		if (in_bucket(bucket(it)) == KV_CACHE_SLOTS) {
			model_drop(oldest((int)bucket(it)));
			m.evicted++;
		}
		while (m.bytes + size_of(it, len) > BYTES_MAX) {
			model_drop(oldest(-1));
			m.evicted++;
		}
		m.bytes += size_of(it, len);
		m.count++;
	}
	it->used = ++m.now;
	it->len = len;
	it->patch_at = SIZE_MAX;
}

static void do_put(struct kv_cache *c, struct item *it)
{
	size_t len = rnd(m.val_max);
	uint8_t fill = (uint8_t)rnd(256);
	int rc;

	memset(val, fill, len);
	rc = kv_cache_put(c, hash_of(it), it->key, it->key_len, val, len);
	if (rc) {
		assert_int_equal(rc, -ENOMEM);
		assert_true(m.fail_one_in);
		return;
	}
	model_put(it, len);
	it->fill = fill;
}

static void do_get(struct kv_cache *c, struct item *it)
{
	const struct kv_record *r =
		kv_cache_get(c, hash_of(it), it->key, it->key_len);

	if (!it->used) {
		assert_null(r);
		return;
	}
	it->used = ++m.now;
	assert_non_null(r);
	assert_int_equal(r->key_len, it->key_len);
	assert_memory_equal(kv_record_key(r), it->key, it->key_len);
	assert_int_equal(r->val_len, it->len);
	memset(val, it->fill, it->len);
	if (it->patch_at < it->len)
		val[it->patch_at] = it->patch;
	if (it->len)
		assert_memory_equal(kv_record_val(r), val, it->len);
}

static void do_update(struct kv_cache *c, struct item *it)
{
	size_t at = rnd(m.val_max);
	uint8_t byte = (uint8_t)rnd(256);
	int want = !it->used ? -ENOENT : at < it->len ? 0 : -ERANGE;
	int rc;

	if (it->patch_at < it->len)
		at = it->patch_at;
	if (it->used && it->patch_at < it->len)
		want = 0;
	rc = kv_cache_update(c, hash_of(it), it->key, it->key_len, at, &byte,
			     1);
	assert_int_equal(rc, want);
	if (rc)
		return;
	it->patch_at = at;
	it->patch = byte;
	it->used = ++m.now;
}

static void do_delete(struct kv_cache *c, struct item *it)
{
	int rc = kv_cache_delete(c, hash_of(it), it->key, it->key_len);

	assert_int_equal(rc, it->used ? 0 : -ENOENT);
	if (it->used)
		model_drop(it);
}

static void check_sums(const struct kv_cache *c)
{
	assert_int_equal(kv_cache_count(c), m.count);
	assert_int_equal(kv_cache_bytes(c), m.bytes);
	assert_true(kv_cache_bytes(c) <= BYTES_MAX);
	assert_int_equal(kv_cache_evicted(c), m.evicted);
}

static struct kv_cache *start(size_t val_max)
{
	struct kv_cache *c;

	memset(&m, 0, sizeof(m));
	m.rng = 12345;
	m.val_max = val_max;
	for (unsigned i = 0; i < KEYS; i++)
		m.item[i].key_len = (size_t)snprintf(
			m.item[i].key, sizeof(m.item[i].key), "%o", i * 77);
	assert_int_equal(kv_cache_new(&alloc, BYTES_MAX, &c), 0);
	assert_true(kv_cache_buckets(c) >= BUCKETS);
	m.bytes = kv_cache_bytes(c);
	assert_true(m.bytes <= BYTES_MAX / 8);
	return c;
}

static void run(struct kv_cache *c, unsigned ops)
{
	for (unsigned i = 0; i < ops; i++) {
		struct item *it = &m.item[rnd(KEYS)];

		switch (rnd(8)) {
		case 0:
		case 1:
		case 2:
			do_put(c, it);
			break;
		case 3:
			do_update(c, it);
			break;
		case 4:
			do_delete(c, it);
			break;
		default:
			do_get(c, it);
		}
		check_sums(c);
	}
	for (unsigned i = 0; i < KEYS; i++)
		do_get(c, &m.item[i]);
	check_sums(c);
}

static void test_buckets(void **state)
{
	struct kv_cache *c = start(100);

	run(c, 20000);
	assert_true(m.evicted > 1000);
	kv_cache_free(c);
	assert_int_equal(m.live, 0);
}

static void test_memory_bound(void **state)
{
	struct kv_cache *c = start(VAL_MAX);

	run(c, 5000);
	assert_true(m.evicted > 500);
	/* no bucket was full, or few: the bound did it */
	assert_true(m.count < 60);
	kv_cache_free(c);
	assert_int_equal(m.live, 0);
}

static void test_failing_memory(void **state)
{
	struct kv_cache *c = start(40000);

	m.fail_one_in = 3;
	run(c, 10000);
	kv_cache_free(c);
	assert_int_equal(m.live, 0);
	m.fail_one_in = 1;
	c = NULL;
	assert_int_equal(kv_cache_new(&alloc, BYTES_MAX, &c), -ENOMEM);
	assert_null(c);
	assert_int_equal(m.live, 0);
}

static void test_bounds(void **state)
{
	struct kv_cache *c = NULL;
	char *big = calloc(1, KV_VAL_MAX);
	char key[KV_KEY_MAX] = "k";

	assert_non_null(big);
	assert_int_equal(kv_cache_new(NULL, BYTES_MAX - 1, &c), -EINVAL);
	assert_int_equal(kv_cache_new(NULL, BYTES_MAX, &c), 0);
	/* the largest record has room, whatever is there */
	for (unsigned i = 0; i < 3; i++) {
		key[1] = (char)i;
		assert_int_equal(kv_cache_put(c, i, key, sizeof(key), big,
					      KV_VAL_MAX),
				 0);
	}
	assert_int_equal(kv_cache_count(c), 1);
	assert_int_equal(kv_cache_evicted(c), 2);
	kv_cache_free(c);
	free(big);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_buckets),
		cmocka_unit_test(test_memory_bound),
		cmocka_unit_test(test_failing_memory),
		cmocka_unit_test(test_bounds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
