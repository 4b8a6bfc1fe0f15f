/* SPDX-License-Identifier: MIT */
/*
 * test_back.c - a stream is handed back to TCP: two ends with rings, words and
 * a TCP connection made of arrays, in random steps; each end may ask, and be
 * killed, at any step. Every byte that an end accepted is read once and in
 * order; where the writer was killed too.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/prng.h"
#include "stream/back.h"

#define SIZE STREAM_RING_MIN
#define SECRET 0x0123456789abcdefull
#define TCP_MAX (1u << 18)

/* One end. The peer's device writes ring, head, stop and moved. */
struct end {
	struct end *peer;
	struct stream_out out;
	struct stream_in in;
	struct stream_back back;
	uint8_t ring[SIZE], mirror[SIZE];
	uint64_t head, stop, moved;
	/* what the peer wrote by TCP, of it what the kernel has taken */
	uint8_t tcp[TCP_MAX];
	uint32_t tcp_len, tcp_read;
	uint64_t wrote, read, said; /* bytes of the program; 1 + stop as said */
	bool tcp_end, dead;
};

static struct end ends[2];
static struct prng rng;

static uint8_t byte_at(const struct end *writer, uint64_t at)
{
	uint64_t x = (at + 1) * 0x9e3779b97f4a7c15ull;

	return (uint8_t)(x >> 33) ^ (uint8_t)(writer - ends);
}

static void fresh(uint64_t seed)
{
	int i;

	prng_init(&rng, seed);
	memset(ends, 0, sizeof(ends));
	for (i = 0; i < 2; i++) {
		ends[i].peer = &ends[1 - i];
		stream_out_init(&ends[i].out, SECRET, SIZE, false);
		stream_in_init(&ends[i].in, ends[i].ring, SECRET, SIZE, false);
	}
}

static void to_tcp(struct end *e, const uint8_t *data, uint32_t len)
{
	struct end *p = e->peer;

	assert_true(p->tcp_len + len <= TCP_MAX);
	memcpy(p->tcp + p->tcp_len, data, len);
	p->tcp_len += len;
}

static void write_some(struct end *e)
{
	uint8_t buf[600];
	struct stream_place p;
	uint32_t n = 1 + (uint32_t)prng_below(&rng, sizeof(buf)), i;

	if (e->back.on && !e->back.moved)
		return;
	if (!e->back.on) {
		if (stream_out_head(&e->out, e->head))
			fail();
		if (!stream_out_place(&e->out, STREAM_DATA, &p))
			return;
		n = n < p.room ? n : p.room;
	} else if (e->peer->tcp_len > TCP_MAX - sizeof(buf)) {
		return;
	}
	for (i = 0; i < n; i++)
		buf[i] = byte_at(e, e->wrote + i);
	e->wrote += n;
	if (e->back.on) {
		to_tcp(e, buf, n);
		return;
	}
	memcpy(e->mirror + p.off + STREAM_HEAD_LEN, buf, n);
	n = stream_out_seal(&e->out, &p, STREAM_DATA, e->mirror + p.off, n);
	memcpy(e->peer->ring + p.off, e->mirror + p.off, n);
}

static void check(struct end *e, const uint8_t *data, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		assert_int_equal(data[i], byte_at(e->peer, e->read + i));
	e->read += n;
}

static bool read_ring(struct end *e, uint32_t max)
{
	enum stream_type type;
	const uint8_t *data;
	uint32_t len;

	if (stream_in_peek(&e->in, &type, &data, &len) != 1)
		return false;
	len = len < max ? len : max;
	check(e, data, len);
	stream_in_consume(&e->in, len);
	if (!stream_in_owes(&e->in) || e->back.on)
		return true;
	e->peer->head = e->in.head_sent = e->in.pos;
	return true;
}

/* As the preload reads. False: nothing is there. */
static bool read_some(struct end *e)
{
	uint32_t max = 1 + (uint32_t)prng_below(&rng, 900), n;

	if (!e->back.on || e->back.rescued)
		return read_ring(e, max);
	n = e->tcp_len - e->tcp_read;
	n = n < max ? n : max;
	check(e, e->tcp + e->tcp_read, n);
	e->tcp_read += n;
	/* One that is over has no ring any more. */
	if (n || !e->tcp_end || e->back.peer_moved ||
	    stream_back_over(&e->back))
		return n;
	/* The peer has ended on the way. Its words were there before that. */
	if (e->moved) {
		assert_int_equal(stream_back_peer_moved(&e->back, &e->in,
							e->moved - 1),
				 0);
		return true;
	}
	assert_int_equal(stream_back_rescue(&e->back, &e->in, e->tcp_read), 0);
	return true;
}

static void begin(struct end *e)
{
	if (e->back.on)
		return;
	e->back.on = true;
	e->said = e->in.bytes + 1;
}

/* One step of what the helper's thread does. */
static void step(struct end *e)
{
	const uint8_t *data;
	uint32_t len;
	int rc;

	if (e->stop)
		begin(e);
	if (!e->back.on)
		return;
	if (e->said && prng_below(&rng, 2)) {
		e->peer->stop = e->said;
		e->said = 0;
		return;
	}
	if (e->stop && !e->back.peer_stopped) {
		assert_int_equal(stream_out_head(&e->out, e->head), 0);
		assert_int_equal(stream_back_stop(&e->back, &e->out, e->mirror,
						  e->stop - 1),
				 0);
	}
	if (e->moved && !e->back.peer_moved && !e->back.rescued)
		assert_int_equal(stream_back_peer_moved(&e->back, &e->in,
							e->moved - 1),
				 0);
	if (!e->back.peer_stopped || e->back.moved)
		return;
	rc = stream_back_peek(&e->back, &e->out, e->mirror, &data, &len);
	assert_true(rc >= 0);
	if (rc) {
		if (len > 200)
			len = 1 + (uint32_t)prng_below(&rng, len);
		to_tcp(e, data, len);
		stream_back_took(&e->back, len);
	} else if (!e->said) {
		e->back.moved = true;
		e->peer->moved = e->out.bytes + 1;
	}
}

static void kill_end(struct end *e)
{
	e->dead = true;
	e->peer->tcp_end = true;
}

/* kill: after so many steps, one of the ends; 0: none. */
static void run(uint64_t seed, unsigned kill)
{
	unsigned i, asked, who;

	fresh(seed);
	asked = (unsigned)prng_below(&rng, 200);
	who = (unsigned)prng_below(&rng, 3);
	for (i = 1; i < 600; i++) {
		struct end *e = &ends[prng_below(&rng, 2)];

		if (i == kill)
			kill_end(&ends[prng_below(&rng, 2)]);
		if (i > asked && who != 1)
			begin(&ends[0]);
		if (i > asked + 3 && who != 0)
			begin(&ends[1]);
		if (e->dead)
			continue;
		switch (prng_below(&rng, 4)) {
		case 0:
			write_some(e);
			break;
		case 1:
			read_some(e);
			break;
		default:
			if (!e->tcp_end)
				step(e);
		}
	}
	for (i = 0; i < 200000 && !kill; i++) {
		step(&ends[i & 1]);
		if (stream_back_over(&ends[0].back) &&
		    stream_back_over(&ends[1].back))
			break;
	}
	for (i = 0; i < 2; i++) {
		if (ends[i].dead)
			continue;
		while (read_some(&ends[i]))
			;
		/* What a killed end had accepted is not lost. */
		assert_int_equal(ends[i].read, ends[1 - i].wrote);
		assert_true(kill || stream_back_over(&ends[i].back));
	}
}

static void test_all_bytes_go_back(void **state)
{
	uint64_t seed;

	(void)state;
	for (seed = 1; seed <= 1000; seed++)
		run(seed, 0);
}

static void test_killed_at_each_step(void **state)
{
	uint64_t seed;
	unsigned kill;

	(void)state;
	for (seed = 1; seed <= 4; seed++)
		for (kill = 1; kill < 600; kill++)
			run(seed * 1000 + kill, kill);
}

/* One who writes and never reads; the other asks at once. */
static void half_full(void)
{
	int i;

	fresh(7);
	for (i = 0; i < 10; i++)
		write_some(&ends[0]);
}

static void test_wrong_words(void **state)
{
	struct stream_back b = {.on = true};
	struct end *e = &ends[0];

	(void)state;
	half_full();
	assert_int_equal(stream_back_stop(&b, &e->out, e->mirror,
					  e->out.bytes + 1),
			 -EPROTO);
	assert_false(b.peer_stopped);
	assert_int_equal(stream_back_stop(&b, &e->out, e->mirror, 0), 0);
	assert_int_equal(b.left, e->out.bytes);
	assert_int_equal(stream_back_stop(&b, &e->out, e->mirror, e->out.bytes),
			 0);
	assert_int_equal(b.left, 0);
	/* Less than its own head says it has read. */
	while (read_ring(e->peer, 1000))
		;
	e->out.head = e->out.pos;
	assert_int_equal(stream_back_stop(&b, &e->out, e->mirror,
					  e->out.bytes - 1),
			 -EPROTO);
	/* A head in the middle of a record. */
	e->out.head -= 8;
	assert_int_equal(stream_back_stop(&b, &e->out, e->mirror, e->out.bytes),
			 -EPROTO);
}

static void test_moved_is_believed_after_our_stop(void **state)
{
	struct stream_back b = {0};

	(void)state;
	half_full();
	assert_int_equal(stream_back_peer_moved(&b, &ends[1].in,
						ends[0].out.bytes),
			 -EPROTO);
	b.on = true;
	/* It wrote more into our ring than it says. */
	assert_int_equal(stream_back_peer_moved(&b, &ends[1].in,
						ends[0].out.bytes - 1),
			 -EPROTO);
	assert_false(b.peer_moved);
	assert_int_equal(
		stream_back_peer_moved(&b, &ends[1].in, ends[0].out.bytes), 0);
	assert_false(stream_back_over(&b));
	b.moved = true;
	assert_true(stream_back_over(&b));
	b.peer_moved = false;
	assert_false(stream_back_over(&b));
}

static void test_rescue_needs_the_bytes(void **state)
{
	struct stream_back b = {.on = true};

	(void)state;
	half_full();
	assert_int_equal(stream_back_rescue(&b, &ends[1].in,
					    ends[0].out.bytes + 1),
			 -EPROTO);
	assert_int_equal(stream_back_rescue(&b, &ends[1].in, 3), 0);
	ends[1].read = 3;
	while (read_ring(&ends[1], 100))
		;
	assert_int_equal(ends[1].read, ends[0].wrote);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_bytes_go_back),
		cmocka_unit_test(test_killed_at_each_step),
		cmocka_unit_test(test_wrong_words),
		cmocka_unit_test(test_moved_is_believed_after_our_stop),
		cmocka_unit_test(test_rescue_needs_the_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
