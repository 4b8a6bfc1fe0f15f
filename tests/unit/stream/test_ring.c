/* SPDX-License-Identifier: MIT */
/*
 * test_ring.c - records in a ring: what is written is read, nothing else is.
 *
 * The "device" here is a copy, in the order that a test chooses.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/prng.h"
#include "stream/ring.h"

#define SIZE STREAM_RING_MIN
#define SECRET 0x0123456789abcdefull

struct pair {
	struct stream_out out;
	struct stream_in in;
	uint8_t mirror[SIZE], ring[SIZE];
};

static struct pair pair;

static void fresh(bool checksum)
{
	memset(&pair, 0, sizeof(pair));
	stream_out_init(&pair.out, SECRET, SIZE, checksum);
	stream_in_init(&pair.in, pair.ring, SECRET, SIZE, checksum);
}

/* One record of at most len bytes; what it took. */
static uint32_t put(enum stream_type type, const void *data, uint32_t len,
		    struct stream_place *p)
{
	uint32_t all;

	if (!stream_out_place(&pair.out, type, p))
		return 0;
	if (len > p->room)
		len = p->room;
	if (len)
		memcpy(pair.mirror + p->off + STREAM_HEAD_LEN, data, len);
	all = stream_out_seal(&pair.out, p, type, pair.mirror + p->off, len);
	assert_true(p->off + all <= SIZE);
	memcpy(pair.ring + p->off, pair.mirror + p->off, all);
	return len;
}

static void test_bytes_come_out(void **state)
{
	enum stream_type type;
	struct stream_place p;
	const uint8_t *data;
	uint32_t len;

	(void)state;
	fresh(false);
	assert_int_equal(stream_in_peek(&pair.in, &type, &data, &len), 0);
	assert_int_equal(put(STREAM_DATA, "hello", 5, &p), 5);
	assert_int_equal(stream_in_peek(&pair.in, &type, &data, &len), 1);
	assert_int_equal(type, STREAM_DATA);
	assert_int_equal(len, 5);
	assert_memory_equal(data, "hello", 5);
	stream_in_consume(&pair.in, 2);
	assert_int_equal(stream_in_peek(&pair.in, &type, &data, &len), 1);
	assert_int_equal(len, 3);
	assert_memory_equal(data, "llo", 3);
	stream_in_consume(&pair.in, 3);
	assert_int_equal(stream_in_peek(&pair.in, &type, &data, &len), 0);
}

static void test_walk(void **state)
{
	enum stream_type type;
	struct stream_place p;
	struct stream_walk w;
	const uint8_t *data;
	uint32_t len;

	(void)state;
	fresh(false);
	put(STREAM_DATA, "hello", 5, &p);
	put(STREAM_DATA, "world!", 6, &p);
	assert_int_equal(stream_in_peek(&pair.in, &type, &data, &len), 1);
	stream_in_consume(&pair.in, 2);
	stream_in_walk(&pair.in, &w);
	assert_int_equal(stream_in_next(&pair.in, &w, &type, &data, &len), 1);
	assert_int_equal(len, 3);
	assert_memory_equal(data, "llo", 3);
	assert_int_equal(stream_in_next(&pair.in, &w, &type, &data, &len), 1);
	assert_int_equal(len, 6);
	assert_memory_equal(data, "world!", 6);
	assert_int_equal(stream_in_next(&pair.in, &w, &type, &data, &len), 0);
	put(STREAM_END, NULL, 0, &p);
	assert_int_equal(stream_in_next(&pair.in, &w, &type, &data, &len), 1);
	assert_int_equal(type, STREAM_END);
	/* nothing was taken */
	assert_int_equal(stream_in_peek(&pair.in, &type, &data, &len), 1);
	assert_int_equal(len, 3);
}

/* Random sizes through many laps; the reader gives its head back when it owes
 * it, as stream.c does, and never else. */
static void laps(bool checksum)
{
	static uint8_t block[SIZE];
	uint64_t written = 0, read = 0;
	struct stream_place p;
	struct prng rng;
	int full = 0;

	fresh(checksum);
	prng_init(&rng, 7);
	while (read < 40 * (uint64_t)SIZE) {
		uint32_t i, n = 1 + (uint32_t)(prng_u64(&rng) % 3000), len;
		enum stream_type type;
		const uint8_t *data;

		for (i = 0; i < n; i++)
			block[i] = (uint8_t)((written + i) * 131 >> 3);
		n = put(STREAM_DATA, block, n, &p);
		full += !n;
		written += n;
		assert_true(pair.out.pos - pair.out.head <= SIZE);
		if (n && prng_u64(&rng) % 24)
			continue;
		while (stream_in_peek(&pair.in, &type, &data, &len) == 1) {
			n = 1 + (uint32_t)(prng_u64(&rng) % len);
			for (i = 0; i < n; i++)
				assert_int_equal(data[i],
						 (uint8_t)((read + i) * 131 >>
							   3));
			stream_in_consume(&pair.in, n);
			read += n;
		}
		if (stream_in_owes(&pair.in)) {
			pair.in.head_sent = pair.in.pos;
			assert_int_equal(
				stream_out_head(&pair.out, pair.in.pos), 0);
		}
	}
	assert_true(full > 10);
}

static void test_laps(void **state)
{
	(void)state;
	laps(false);
	laps(true);
}

/* A record is seen when its last byte is there, and not before; with a checksum
 * in whichever order bytes come. */
static void test_whole_or_not(void **state)
{
	static const char text[] = "0123456789abcdefghi";
	struct stream_place p;
	enum stream_type type;
	const uint8_t *data;
	uint32_t i, k, len, all = stream_rec_len(sizeof(text));

	(void)state;
	for (k = 0; k < 2; k++) {
		fresh(k);
		put(STREAM_DATA, text, sizeof(text), &p);
		memset(pair.ring, 0x5a, SIZE);
		for (i = 0; i < all; i++) {
			uint32_t at = k ? all - 1 - i : i;

			assert_int_equal(stream_in_peek(&pair.in, &type, &data,
							&len),
					 0);
			pair.ring[at] = pair.mirror[at];
		}
		assert_int_equal(stream_in_peek(&pair.in, &type, &data, &len),
				 1);
		assert_memory_equal(data, text, sizeof(text));
	}
}

/* The header and the tail are there, a byte of the payload is not. */
static void test_hole(void **state)
{
	struct stream_place p;
	enum stream_type type;
	const uint8_t *data;
	uint32_t len;

	(void)state;
	fresh(true);
	put(STREAM_DATA, "abcdefgh", 8, &p);
	pair.ring[STREAM_HEAD_LEN + 3] = 0;
	assert_int_equal(stream_in_peek(&pair.in, &type, &data, &len), 0);
	pair.ring[STREAM_HEAD_LEN + 3] = 'd';
	assert_int_equal(stream_in_peek(&pair.in, &type, &data, &len), 1);
}

/* The peer's user sends, as payload, a whole record of its own for the place
 * where the next lap's would begin, with the right length, type and sequence: it
 * does not know the secret. */
static void test_forged_lap(void **state)
{
	struct stream_out forger;
	struct stream_place p, f = {.room = 64};
	uint8_t record[64] = {0};
	enum stream_type type;
	const uint8_t *data;
	uint32_t len;

	(void)state;
	fresh(false);
	put(STREAM_DATA, "first", 5, &p);
	stream_in_peek(&pair.in, &type, &data, &len);
	stream_in_consume(&pair.in, 5);
	stream_out_init(&forger, SECRET + 1, SIZE, false);
	forger.seq = pair.in.seq;
	f.pos = pair.in.pos;
	stream_out_seal(&forger, &f, STREAM_DATA, record, 8);
	memcpy(pair.ring + pair.in.pos, record, sizeof(record));
	assert_int_equal(stream_in_peek(&pair.in, &type, &data, &len), 0);
}

/* What a peer can say wrongly although it knows the secret. */
static void test_garbage(void **state)
{
	static const struct {
		enum stream_type type;
		uint32_t len;
	} bad[] = {
		{STREAM_DATA, 0},	  {STREAM_SWITCH, 7},
		{STREAM_SWITCH, 16},	  {STREAM_END, 8},
		{(enum stream_type)4, 8}, {(enum stream_type)0, 8},
		{STREAM_DATA, SIZE - 16},
	};
	static uint8_t record[2 * SIZE];
	enum stream_type type;
	const uint8_t *data;
	uint32_t i, len;

	(void)state;
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct stream_place p = {.room = SIZE};

		fresh(false);
		memset(record, 0, sizeof(record));
		stream_out_seal(&pair.out, &p, bad[i].type, record, bad[i].len);
		memcpy(pair.ring, record, SIZE);
		assert_int_equal(stream_in_peek(&pair.in, &type, &data, &len),
				 -EPROTO);
	}
}

static void test_heads(void **state)
{
	struct stream_place p;

	(void)state;
	fresh(false);
	put(STREAM_DATA, "x", 1, &p);
	assert_int_equal(stream_out_head(&pair.out, 33), -EPROTO);
	assert_int_equal(stream_out_head(&pair.out, 32), 0);
	assert_int_equal(stream_out_head(&pair.out, 31), -EPROTO);
	assert_int_equal(pair.out.head, 32);
}

/* However full a ring is of data, its END has room. */
static void test_end_has_room(void **state)
{
	static uint8_t block[SIZE];
	struct stream_place p;
	uint32_t n, step;

	(void)state;
	for (step = 1; step < 200; step++) {
		fresh(false);
		while (put(STREAM_DATA, block, step * 8 + 1, &p))
			;
		n = put(STREAM_END, block, 0, &p);
		assert_int_equal(n, 0);
		assert_int_equal(pair.out.pos - p.pos, stream_rec_len(0));
		assert_true(pair.out.pos - pair.out.head <= SIZE);
	}
}

/* Golden bytes: what version 1 of the protocol has on the wire. */
static void test_golden(void **state)
{
	static const uint8_t want[40] = {
		5, 0, 0, 1, 0, 0, 0, 0,
	};
	struct stream_place p;

	(void)state;
	fresh(false);
	put(STREAM_DATA, "hello", 5, &p);
	assert_int_equal(p.off, 0);
	assert_memory_equal(pair.ring, want, 8);
	assert_memory_equal(pair.ring + 16, "hello\0\0\0", 8);
	assert_int_equal(stream_rec_len(5), 32);
}

static void take_all(uint32_t left)
{
	enum stream_type type;
	const uint8_t *data;
	uint32_t len;

	while (left) {
		assert_int_equal(stream_in_peek(&pair.in, &type, &data, &len),
				 1);
		len = len < left ? len : left;
		stream_in_consume(&pair.in, len);
		left -= len;
	}
}

/* What has arrived is counted ahead of what is read, and each record changes the
 * mark of edge-triggered waiters. */
static void test_arrival(void **state)
{
	const struct stream_arrival *arrival;
	struct stream_place p;
	uint32_t seq, round, n;
	uint8_t data[600] = {7};

	(void)state;
	fresh(true);
	for (round = 0; round < 100; round++) {
		seq = stream_in_ahead(&pair.in)->seq;
		assert_int_equal(stream_in_unread(&pair.in), 0);
		n = put(STREAM_DATA, data, 600, &p);
		assert_int_equal(stream_in_unread(&pair.in), n);
		n += put(STREAM_DATA, data, 100, &p);
		/* Read past the mark, then ask. */
		take_all(n - 1);
		arrival = stream_in_ahead(&pair.in);
		assert_int_equal(arrival->seq, seq + 2);
		assert_int_equal(stream_in_unread(&pair.in), 1);
		assert_false(arrival->end);
		take_all(1);
		assert_int_equal(stream_out_head(&pair.out, pair.in.pos), 0);
	}
	put(STREAM_END, NULL, 0, &p);
	assert_true(stream_in_ahead(&pair.in)->end);
	assert_int_equal(stream_in_unread(&pair.in), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_arrival),
		cmocka_unit_test(test_bytes_come_out),
		cmocka_unit_test(test_walk),
		cmocka_unit_test(test_laps),
		cmocka_unit_test(test_whole_or_not),
		cmocka_unit_test(test_hole),
		cmocka_unit_test(test_forged_lap),
		cmocka_unit_test(test_garbage),
		cmocka_unit_test(test_heads),
		cmocka_unit_test(test_end_has_room),
		cmocka_unit_test(test_golden),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
