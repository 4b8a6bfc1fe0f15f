/* SPDX-License-Identifier: MIT */
/*
 * test_frame.c - the bytes of a TCP connection of the link: golden ones, each
 * way of being refused, and every cut.
 */
#include "unit/cm.h"

#include "dev/soft/link/frame.h"

#include <string.h>

/* These bytes may never change. */
static const uint8_t golden[FRAME_HELLO] = {
	'S',  'K',  'L',  'T', /* magic */
	1,		       /* version */
	0x12, 0x34, 0x56,      /* to */
	1,		       /* dials */
	0xab, 0xcd, 0xef,      /* from */
	0,		       /* clear */
	0,		       /* no reason to refuse */
	0,    0,	       /* not looked at */
	1,    2,    3,	  4,   5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
};

static const struct frame_hello hello = {
	.kind = FRAME_DIALS,
	.to_qpn = 0x123456,
	.from_qpn = 0xabcdef,
	.id = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
};

static void test_hello(void **state)
{
	struct frame_hello h;
	uint8_t buf[FRAME_HELLO];
	size_t n;

	(void)state;
	memset(buf, 0xee, sizeof(buf));
	frame_hello_encode(buf, &hello);
	assert_memory_equal(buf, golden, FRAME_HELLO);
	for (n = 0; n < FRAME_HELLO; n++)
		assert_int_equal(frame_hello_decode(buf, n, &h), FRAME_MORE);
	assert_int_equal(frame_hello_decode(buf, n, &h), FRAME_OK);
	assert_int_equal(h.kind, hello.kind);
	assert_int_equal(h.to_qpn, hello.to_qpn);
	assert_int_equal(h.from_qpn, hello.from_qpn);
	assert_memory_equal(h.id, hello.id, sizeof(h.id));
	assert_false(h.sealed);
	assert_int_equal(h.why, 0);
	/* from a later minor change: not looked at */
	memset(buf + 14, 0xff, 2);
	assert_int_equal(frame_hello_decode(buf, n, &h), FRAME_OK);
}

static void test_refusal(void **state)
{
	struct frame_hello h = hello, got;
	uint8_t buf[FRAME_HELLO];

	(void)state;
	h.kind = FRAME_REFUSES;
	h.sealed = true;
	h.why = FRAME_NO_KEY;
	frame_hello_encode(buf, &h);
	assert_int_equal(buf[8], 3);
	assert_int_equal(buf[12], 1);
	assert_int_equal(buf[13], 3);
	assert_int_equal(frame_hello_decode(buf, FRAME_HELLO, &got), FRAME_OK);
	assert_true(got.sealed);
	assert_int_equal(got.why, FRAME_NO_KEY);
}

/* With the byte at `at` changed, from that byte on and not before. */
static void refused(size_t at, uint8_t v, enum frame_fault fault)
{
	uint8_t buf[FRAME_HELLO];
	struct frame_hello h;
	size_t n;

	memcpy(buf, golden, sizeof(buf));
	buf[at] = v;
	for (n = 0; n <= FRAME_HELLO; n++)
		assert_int_equal(frame_hello_decode(buf, n, &h),
				 n > at ? fault : FRAME_MORE);
}

static void test_hello_refused(void **state)
{
	(void)state;
	refused(0, 'G', FRAME_MAGIC);
	refused(3, 't', FRAME_MAGIC);
	refused(4, 0, FRAME_VERSION);
	refused(4, 2, FRAME_VERSION);
	refused(8, 0, FRAME_KIND);
	refused(8, 4, FRAME_KIND);
}

static enum frame_fault next(size_t want, size_t have, size_t *n)
{
	static uint8_t buf[FRAME_HEAD + FRAME_MAX];
	const uint8_t *pkt = NULL;
	enum frame_fault f;

	frame_put(buf, want);
	f = frame_next(buf, have, &pkt, n);
	if (f == FRAME_OK)
		assert_ptr_equal(pkt, buf + FRAME_HEAD);
	return f;
}

static void test_frames(void **state)
{
	static const uint8_t first[] = {0, 0, 0x10, 0x28};
	uint8_t head[FRAME_HEAD];
	size_t n = 0, cut;

	(void)state;
	frame_put(head, 4136);
	assert_memory_equal(head, first, sizeof(first));
	for (cut = 0; cut < FRAME_HEAD + 60; cut++)
		assert_int_equal(next(60, cut, &n), FRAME_MORE);
	assert_int_equal(n, 0);
	assert_int_equal(next(60, FRAME_HEAD + 60, &n), FRAME_OK);
	assert_int_equal(n, 60);
	/* another one begins behind it */
	assert_int_equal(next(60, FRAME_HEAD + 61, &n), FRAME_OK);
	assert_int_equal(n, 60);
	assert_int_equal(next(PACKET_BTH, FRAME_HEAD + PACKET_BTH, &n),
			 FRAME_OK);
	assert_int_equal(next(FRAME_MAX, FRAME_HEAD + FRAME_MAX, &n), FRAME_OK);
	assert_int_equal(n, FRAME_MAX);
	assert_int_equal(next(PACKET_BTH - 1, FRAME_HEAD, &n), FRAME_SHORT);
	assert_int_equal(next(0, FRAME_HEAD, &n), FRAME_SHORT);
	assert_int_equal(next(FRAME_MAX + 1, FRAME_HEAD, &n), FRAME_LONG);
	assert_int_equal(next(UINT32_MAX, FRAME_HEAD, &n), FRAME_LONG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hello),
		cmocka_unit_test(test_refusal),
		cmocka_unit_test(test_hello_refused),
		cmocka_unit_test(test_frames),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
