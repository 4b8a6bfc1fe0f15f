/* SPDX-License-Identifier: MIT */
/*
 * test_store.c - a partition against a model that is too simple to be wrong: a
 * sorted array of all possible keys, each with its value or none. Random
 * operations, with and without failing allocations; after a failure the store
 * must equal the model of before.
 */
#include "kv/store/hash.h"
#include "kv/store/store.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#define KEYS 400
#define VAL_LEN_MAX 900

struct model_item {
	char key[24];
	size_t key_len;
	bool there;
	size_t len;
	uint8_t val[VAL_LEN_MAX];
};

struct failing {
	uint64_t rng;
	unsigned one_in; /* 0: never fails */
	int live;
};

static struct model_item model[KEYS];

static uint64_t rnd(uint64_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return *s;
}

static void *failing_get(void *arg, size_t align, size_t len)
{
	struct failing *f = arg;
	void *p;

	if (f->one_in && rnd(&f->rng) % f->one_in == 0)
		return NULL;
	p = kv_alloc_libc.get(NULL, align, len);
	f->live += p != NULL;
	return p;
}

static void failing_put(void *arg, void *p)
{
	struct failing *f = arg;

	f->live -= p != NULL;
	kv_alloc_libc.put(NULL, p);
}

static int by_key(const void *a, const void *b)
{
	const struct model_item *x = a, *y = b;

	return kv_key_cmp(x->key, x->key_len, y->key, y->key_len);
}

static void model_reset(void)
{
	memset(model, 0, sizeof(model));
	for (int i = 0; i < KEYS; i++) {
		/* keys of many lengths, some of them prefixes of others */
		int n = snprintf(model[i].key, sizeof(model[i].key), "%o", i);

		if (i % 3 == 0)
			n = snprintf(model[i].key, sizeof(model[i].key),
				     "user%d%07d", i % 5, i * 7919);
		model[i].key_len = (size_t)n;
	}
	qsort(model, KEYS, sizeof(model[0]), by_key);
}

static uint64_t hash_of(const struct model_item *m)
{
	return kv_hash(m->key, m->key_len);
}

static void check_value(const struct model_item *m, const struct kv_record *r)
{
	assert_non_null(r);
	assert_int_equal(r->key_len, m->key_len);
	assert_memory_equal(kv_record_key(r), m->key, m->key_len);
	assert_int_equal(r->val_len, m->len);
	if (m->len)
		assert_memory_equal(kv_record_val(r), m->val, m->len);
}

static void check_scan(const struct kv_store *s, unsigned from)
{
	const struct kv_record *r =
		kv_store_seek(s, model[from].key, model[from].key_len);

	for (unsigned i = from; i < KEYS; i++) {
		if (!model[i].there)
			continue;
		check_value(&model[i], r);
		r = kv_store_next(r);
	}
	assert_null(r);
}

static void check_all(const struct kv_store *s)
{
	uint64_t there = 0;

	for (int i = 0; i < KEYS; i++) {
		const struct kv_record *r = kv_store_get(
			s, hash_of(&model[i]), model[i].key, model[i].key_len);

		if (model[i].there)
			check_value(&model[i], r);
		else
			assert_null(r);
		there += model[i].there;
	}
	assert_int_equal(kv_store_count(s), there);
	check_scan(s, 0);
}

static void do_put(struct kv_store *s, struct model_item *m, uint64_t *rng,
		   bool may_fail)
{
	uint8_t val[VAL_LEN_MAX];
	size_t len = rnd(rng) % 8 ? rnd(rng) % 64 : rnd(rng) % VAL_LEN_MAX;
	int rc;

	memset(val, (int)rnd(rng), sizeof(val));
	rc = kv_store_put(s, hash_of(m), m->key, m->key_len, val, len);
	if (rc) {
		assert_true(may_fail);
		assert_true(rc == -ENOMEM || rc == -ENOSPC);
		return;
	}
	m->there = true;
	m->len = len;
	memcpy(m->val, val, len);
}

static void do_update(struct kv_store *s, struct model_item *m, uint64_t *rng)
{
	uint8_t bytes[64];
	size_t off = rnd(rng) % 100, len = rnd(rng) % sizeof(bytes);
	int want = 0, rc;

	memset(bytes, (int)rnd(rng), sizeof(bytes));
	rc = kv_store_update(s, hash_of(m), m->key, m->key_len, off, bytes,
			     len);
	if (!m->there)
		want = -ENOENT;
	else if (off + len > m->len)
		want = -ERANGE;
	assert_int_equal(rc, want);
	if (!rc)
		memcpy(m->val + off, bytes, len);
}

static void do_delete(struct kv_store *s, struct model_item *m)
{
	int rc = kv_store_delete(s, hash_of(m), m->key, m->key_len);

	assert_int_equal(rc, m->there ? 0 : -ENOENT);
	m->there = false;
}

static void run(struct kv_store *s, uint64_t seed, int ops, bool may_fail)
{
	uint64_t rng = seed;

	for (int i = 0; i < ops; i++) {
		unsigned k = (unsigned)(rnd(&rng) % KEYS);

		switch (rnd(&rng) % 6) {
		case 0:
		case 1:
		case 2:
			do_put(s, &model[k], &rng, may_fail);
			break;
		case 3:
			do_update(s, &model[k], &rng);
			break;
		case 4:
			do_delete(s, &model[k]);
			break;
		default:
			check_scan(s, k);
		}
		if (i % 1000 == 0)
			check_all(s);
	}
	check_all(s);
}

static void test_random(void **state)
{
	struct failing f = {.rng = 77};
	struct kv_alloc alloc = {failing_get, failing_put, &f};
	struct kv_store_attr attr = {.alloc = &alloc, .seed = 5};
	struct kv_store *s;

	model_reset();
	assert_int_equal(kv_store_new(&attr, &s), 0);
	run(s, 12345, 20000, false);
	kv_store_free(s);
	assert_int_equal(f.live, 0);
}

static void test_failing_memory(void **state)
{
	struct failing f = {.rng = 99};
	struct kv_alloc alloc = {failing_get, failing_put, &f};
	struct kv_store_attr attr = {.alloc = &alloc};
	struct kv_store *s;

	model_reset();
	assert_int_equal(kv_store_new(&attr, &s), 0);
	f.one_in = 2;
	run(s, 54321, 20000, true);
	kv_store_free(s);
	assert_int_equal(f.live, 0);

	f.one_in = 1;
	s = NULL;
	assert_int_equal(kv_store_new(&attr, &s), -ENOMEM);
	assert_null(s);
	assert_int_equal(f.live, 0);
}

static void test_bytes_max(void **state)
{
	struct kv_store_attr attr = {.bytes_max = 20000};
	struct kv_store *s;

	model_reset();
	assert_int_equal(kv_store_new(&attr, &s), 0);
	run(s, 999, 20000, true);
	assert_true(kv_store_bytes(s) <= 20000);
	for (int i = 0; i < KEYS; i++)
		if (model[i].there)
			do_delete(s, &model[i]);
	assert_int_equal(kv_store_bytes(s), 0);
	kv_store_free(s);
}

/* Many records and few hashes: long paths through the table, `passed` counters
 * that saturate, and growth on the way. */
static void test_colliding(void **state)
{
	enum {
		N = 6000
	};
	struct kv_store *s;
	char key[16];

	assert_int_equal(kv_store_new(NULL, &s), 0);
	for (unsigned i = 0; i < N; i++) {
		int n = snprintf(key, sizeof(key), "k%05u", i);

		assert_int_equal(kv_store_put(s, i % 3, key, (size_t)n, &i,
					      sizeof(i)),
				 0);
	}
	for (unsigned i = 0; i < N; i += 2) {
		int n = snprintf(key, sizeof(key), "k%05u", i);

		assert_int_equal(kv_store_delete(s, i % 3, key, (size_t)n), 0);
	}
	for (unsigned i = 0; i < N; i++) {
		int n = snprintf(key, sizeof(key), "k%05u", i);
		const struct kv_record *r =
			kv_store_get(s, i % 3, key, (size_t)n);

		if (i % 2 == 0) {
			assert_null(r);
			continue;
		}
		assert_non_null(r);
		assert_memory_equal(kv_record_val(r), &i, sizeof(i));
	}
	assert_int_equal(kv_store_count(s), N / 2);
	kv_store_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_failing_memory),
		cmocka_unit_test(test_bytes_max),
		cmocka_unit_test(test_colliding),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
