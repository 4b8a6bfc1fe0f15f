/* SPDX-License-Identifier: MIT */
/*
 * test_proto.c - the codec: golden bytes of docs/kv.md, round trips, and what
 * must be refused. Every truncation and random bytes run under ASan.
 */
#include "kv/proto.h"
#include "base/prng.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

static void check_golden(const struct kv_req *r, const void *want, size_t n)
{
	uint8_t buf[64];
	size_t len = 0;

	assert_int_equal(kv_req_encode(r, buf, sizeof(buf), &len), 0);
	assert_int_equal(len, n);
	if (n)
		assert_memory_equal(buf, want, n);
}

static void test_golden(void **state)
{
	struct kv_req r = {.key = "abc", .key_len = 3};

	r.op = KV_INFO;
	check_golden(&r, "", 0);
	r.op = KV_GET;
	check_golden(&r, "\3\0\0\0\0\0\0\0abc", 11);
	r.op = KV_DELETE;
	check_golden(&r, "\3\0\0\0\0\0\0\0abc", 11);
	r.op = KV_SCAN;
	r.count = 100;
	check_golden(&r, "\3\0\0\0\x64\0\0\0abc", 11);
	r.op = KV_PUT;
	r.val = "xy";
	r.val_len = 2;
	check_golden(&r, "\3\0\0\0\0\0\0\0abcxy", 13);
	r.op = KV_UPDATE;
	r.off = 258;
	check_golden(&r, "\3\0\0\0\2\1\0\0abcxy", 13);
}

static void test_round_trip(void **state)
{
	struct kv_req in = {.key = "key", .key_len = 3, .val = "value"};
	uint8_t buf[64];

	for (unsigned op = KV_GET; op < KV_OP_END; op++) {
		struct kv_req out;
		size_t len = 0;

		in.op = (enum kv_op)op;
		in.val_len = op == KV_PUT || op == KV_UPDATE ? 5 : 0;
		in.off = op == KV_UPDATE ? 7 : 0;
		in.count = op == KV_SCAN ? 9 : 0;
		assert_int_equal(kv_req_encode(&in, buf, sizeof(buf), &len), 0);
		assert_int_equal(kv_req_decode(op, buf, len, &out), 0);
		assert_int_equal(out.op, op);
		assert_int_equal(out.key_len, 3);
		assert_memory_equal(out.key, "key", 3);
		assert_int_equal(out.val_len, in.val_len);
		assert_memory_equal(out.val, "value", in.val_len);
		assert_int_equal(out.off, in.off);
		assert_int_equal(out.count, in.count);

		/* no byte may be missing from head or key */
		for (size_t cut = 0; cut < 11; cut++)
			assert_int_equal(kv_req_decode(op, buf, cut, &out),
					 -EBADMSG);
		assert_int_equal(kv_req_encode(&in, buf, len - 1, &len),
				 -EMSGSIZE);
	}
}

static void test_refused(void **state)
{
	static uint8_t big[16 + KV_KEY_MAX + KV_VAL_MAX + 1];
	struct kv_req r;

	/* no such operation */
	assert_int_equal(kv_req_decode(KV_INFO - 1, "", 0, &r), -EBADMSG);
	assert_int_equal(kv_req_decode(KV_OP_END, "", 0, &r), -EBADMSG);
	/* left over */
	assert_int_equal(kv_req_decode(KV_INFO, "x", 1, &r), -EBADMSG);
	assert_int_equal(kv_req_decode(KV_GET, "\1\0\0\0\0\0\0\0kx", 10, &r),
			 -EBADMSG);
	/* no key; a count where none belongs; none where one does */
	assert_int_equal(kv_req_decode(KV_GET, "\0\0\0\0\0\0\0\0", 8, &r),
			 -EBADMSG);
	assert_int_equal(kv_req_decode(KV_GET, "\1\0\0\0\1\0\0\0k", 9, &r),
			 -EBADMSG);
	assert_int_equal(kv_req_decode(KV_SCAN, "\1\0\0\0\0\0\0\0k", 9, &r),
			 -EBADMSG);
	assert_int_equal(kv_req_decode(KV_SCAN, "\1\0\0\0\0\0\1\0k", 9, &r),
			 -EBADMSG);
	/* reserved bits */
	assert_int_equal(kv_req_decode(KV_GET, "\1\0\1\0\0\0\0\0k", 9, &r),
			 -EBADMSG);
	/* too long */
	big[0] = 1;
	assert_int_equal(kv_req_decode(KV_PUT, big, 9 + KV_VAL_MAX, &r), 0);
	assert_int_equal(kv_req_decode(KV_PUT, big, 10 + KV_VAL_MAX, &r),
			 -EBADMSG);
	big[0] = (KV_KEY_MAX + 1) & 0xff;
	big[1] = (KV_KEY_MAX + 1) >> 8;
	assert_int_equal(kv_req_decode(KV_GET, big, 9 + KV_KEY_MAX, &r),
			 -EBADMSG);
}

static void test_info(void **state)
{
	struct kv_info in = {1, 4, 1000, 1u << 30, 77}, out;
	uint8_t buf[KV_INFO_LEN + 1];

	kv_info_encode(&in, buf);
	assert_int_equal(kv_info_decode(buf, KV_INFO_LEN, &out), 0);
	assert_memory_equal(&in, &out, sizeof(in));
	assert_int_equal(kv_info_decode(buf, KV_INFO_LEN - 1, &out), -EBADMSG);
	assert_int_equal(kv_info_decode(buf, KV_INFO_LEN + 1, &out), -EBADMSG);
	in.shards = 0;
	kv_info_encode(&in, buf);
	assert_int_equal(kv_info_decode(buf, KV_INFO_LEN, &out), -EBADMSG);
}

static size_t make_scan(uint8_t *buf, size_t cap, bool more)
{
	union {
		struct kv_record rec;
		uint8_t room[64];
	} u = {.rec = {.key_len = 2, .val_len = 3}};
	struct bytes_out out = bytes_out(buf, cap);

	memcpy(u.rec.bytes, "k1", 2);
	memcpy(kv_record_val(&u.rec), "abc", 3);
	kv_scan_head_encode(bytes_put(&out, KV_SCAN_HEAD), 2, more);
	kv_item_encode(&out, &u.rec);
	u.rec.bytes[1] = '2';
	kv_item_encode(&out, &u.rec);
	assert_false(out.failed);
	return out.pos;
}

static void test_scan(void **state)
{
	uint8_t buf[64];
	size_t len = make_scan(buf, sizeof(buf), true);
	struct kv_scan_in scan;
	struct kv_item item;

	assert_int_equal(len, KV_SCAN_HEAD + 2 * kv_item_size(2, 3));
	assert_memory_equal(buf, "\2\0\0\0\1\0\0\0\2\0\3\0\0\0k1abc", 19);
	assert_int_equal(kv_scan_decode(buf, len, &scan), 0);
	assert_true(scan.more);
	for (int i = 1; i <= 2; i++) {
		assert_int_equal(kv_scan_next(&scan, &item), 1);
		assert_int_equal(item.key[1], '0' + i);
		assert_int_equal(item.val_len, 3);
		assert_memory_equal(item.val, "abc", 3);
	}
	assert_int_equal(kv_scan_next(&scan, &item), 0);

	/* every truncation fails somewhere */
	for (size_t cut = 0; cut < len; cut++) {
		int rc = kv_scan_decode(buf, cut, &scan);

		while (rc >= 0 && (rc = kv_scan_next(&scan, &item)) > 0)
			;
		assert_int_equal(rc, -EBADMSG);
	}
	assert_int_equal(kv_scan_decode(buf, len + 1, &scan), 0);
	kv_scan_next(&scan, &item);
	kv_scan_next(&scan, &item);
	assert_int_equal(kv_scan_next(&scan, &item), -EBADMSG);
}

/* Whatever is accepted lies inside the buffer and keeps the limits. The buffer
 * is exact, so that ASan sees a step outside. */
static void test_garbage(void **state)
{
	struct prng rng;

	prng_init(&rng, 42);
	for (int i = 0; i < 20000; i++) {
		size_t len = prng_below(&rng, 48);
		uint8_t *buf = malloc(len + !len);
		struct kv_scan_in scan;
		struct kv_item item;
		struct kv_req r;

		for (size_t b = 0; b < len; b++)
			buf[b] = prng_below(&rng, 3)
					 ? (uint8_t)prng_below(&rng, 4)
					 : (uint8_t)prng_u64(&rng);
		if (!kv_req_decode(KV_INFO + (unsigned)prng_below(&rng, 7), buf,
				   len, &r) &&
		    r.op != KV_INFO) {
			assert_true((const uint8_t *)r.key >= buf);
			assert_true(r.key_len && r.key_len <= len - 8);
			assert_int_equal(8 + r.key_len + r.val_len, len);
		}
		if (!kv_scan_decode(buf, len, &scan))
			while (kv_scan_next(&scan, &item) > 0)
				assert_true(item.val + item.val_len <=
					    buf + len);
		free(buf);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_golden),
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_info),
		cmocka_unit_test(test_scan),
		cmocka_unit_test(test_garbage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
