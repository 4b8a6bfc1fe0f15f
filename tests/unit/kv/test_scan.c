/* SPDX-License-Identifier: MIT */
/*
 * test_scan.c - merging what shards answer: order, counts, answers that ended
 * for want of room, and answers that lie.
 */
#include "kv/store/scan.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

/* A response with these one-byte keys. */
static size_t make(uint8_t *buf, const char *keys, bool more)
{
	union {
		struct kv_record rec;
		uint8_t room[64];
	} u = {.rec = {.key_len = 1, .val_len = 1}};
	struct bytes_out out = bytes_out(buf, 256);

	kv_scan_head_encode(bytes_put(&out, KV_SCAN_HEAD),
			    (uint32_t)strlen(keys), more);
	for (; *keys; keys++) {
		u.rec.bytes[0] = (uint8_t)*keys;
		*kv_record_val(&u.rec) = (uint8_t)*keys;
		kv_item_encode(&out, &u.rec);
	}
	assert_false(out.failed);
	return out.pos;
}

struct part {
	const char *keys;
	bool more;
};

static int merge(struct kv_merge *m, uint32_t want, const struct part *parts,
		 unsigned n)
{
	uint8_t buf[256];
	int rc;

	assert_int_equal(kv_merge_init(m, n), 0);
	assert_int_equal(kv_merge_start(m, want), 0);
	/* the copy is what counts: one buffer serves for all parts */
	for (unsigned i = n; i-- > 0;) {
		size_t len = make(buf, parts[i].keys, parts[i].more);

		rc = kv_merge_add(m, i, buf, len);
		if (rc)
			return rc;
	}
	return kv_merge_finish(m);
}

static void check(uint32_t want, const struct part *parts, unsigned n,
		  const char *keys, bool more)
{
	struct kv_merge m;

	assert_int_equal(merge(&m, want, parts, n), 0);
	assert_int_equal(m.count, strlen(keys));
	for (uint32_t i = 0; i < m.count; i++) {
		assert_int_equal(m.items[i].key[0], keys[i]);
		assert_int_equal(m.items[i].val[0], keys[i]);
	}
	assert_int_equal(m.more, more);
	kv_merge_fini(&m);
}

static void test_order(void **state)
{
	const struct part p[] = {{"adg", false}, {"behz", false}, {"c", false}};

	check(100, p, 3, "abcdeghz", false);
	check(4, p, 3, "abcd", false);
	check(1, p, 3, "a", false);
}

static void test_empty(void **state)
{
	const struct part p[] = {{"", false}, {"xy", false}, {"", false}};

	check(10, p, 3, "xy", false);
	check(10, p, 1, "", false);
}

/* What follows d in the first part is unknown: e and f may not be told. */
static void test_no_room(void **state)
{
	const struct part p[] = {{"ad", true}, {"bcef", false}};
	const struct part q[] = {{"ad", true}, {"bc", true}};

	check(10, p, 2, "abcd", true);
	check(4, p, 2, "abcd", false);
	check(3, p, 2, "abc", false);
	check(10, q, 2, "abc", true);
}

static void test_liars(void **state)
{
	const struct part back[] = {{"ba", false}, {"c", false}};
	const struct part twice[] = {{"c", false}, {"aa", false}};
	struct kv_merge m;

	assert_int_equal(merge(&m, 10, back, 2), -EBADMSG);
	kv_merge_fini(&m);
	assert_int_equal(merge(&m, 10, twice, 2), -EBADMSG);
	kv_merge_fini(&m);
}

/* One part is read in place, and a merge serves again and again. */
static void test_again(void **state)
{
	struct kv_merge m;
	uint8_t buf[256];

	assert_int_equal(kv_merge_init(&m, 1), 0);
	for (uint32_t want = 1; want < 5; want++) {
		size_t len = make(buf, "abcd", false);

		assert_int_equal(kv_merge_start(&m, want), 0);
		assert_int_equal(kv_merge_add(&m, 0, buf, len), 0);
		assert_int_equal(kv_merge_finish(&m), 0);
		assert_int_equal(m.count, want);
		assert_ptr_equal(m.items[0].key, buf + KV_SCAN_HEAD + 6);
	}
	kv_merge_fini(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order),	cmocka_unit_test(test_empty),
		cmocka_unit_test(test_no_room), cmocka_unit_test(test_liars),
		cmocka_unit_test(test_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
