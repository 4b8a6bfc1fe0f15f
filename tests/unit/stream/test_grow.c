/* SPDX-License-Identifier: MIT */
/*
 * test_grow.c - rings that grow, on soft, in one thread and under a clock of
 * the test's: how far, what bounds them, how they become small again. Then
 * streams of random calls: several on one QP write, read, reserve, end, go back
 * to TCP, are reset; every byte is read once and in order, and all memory comes
 * back. At last what a peer does that does not keep to the protocol.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/prng.h"
#include "env/env.h"
#include "stream/section.h"
#include "stream/stream.h"
#include "unit/patience.h"
#include "unit/stream/pair.h"

#define FIRST STREAM_RING_FIRST
#define S 1000000000ull
#define PATIENCE_S 60
#define TCP_MAX (16u << 20)
#define STREAMS 3u
#define SEEDS 60u
#define STEPS 1500u

static struct skein_env *env;
static struct stream_pair pair;
static uint64_t now_ns;

static int up(void **state)
{
	(void)state;
	assert_int_equal(env_real_new(&env), 0);
	env->log_level = ENV_LOG_INFO;
	stream_pair_up(&pair, env);
	now_ns = S;
	return 0;
}

static int down(void **state)
{
	(void)state;
	stream_pair_down(&pair);
	env_real_free(env);
	return 0;
}

static void pass(uint64_t ns)
{
	int i;

	now_ns += ns;
	stream_pair_poll(&pair);
	for (i = 0; i < 2; i++)
		if (stream_qp_tends(pair.qp[i], now_ns))
			stream_qp_tend(pair.qp[i], now_ns);
	stream_pair_poll(&pair);
}

/* --- one end ------------------------------------------------------------- */

/* Of a stream: what its program wrote and read, and what comes by TCP. */
struct side {
	struct stream *s;
	struct side *peer;
	uint64_t wrote, read, salt;
	uint8_t *tcp; /* what the peer sent */
	uint32_t tcp_len, tcp_read, max;
	bool ended, end_seen;
};

static uint8_t byte_at(const struct side *writer, uint64_t at)
{
	uint64_t x = (at + writer->salt) * 0x9e3779b97f4a7c15ull;

	return (uint8_t)(x >> 33);
}

static void fill(const struct side *e, uint8_t *to, uint32_t len)
{
	uint32_t i;

	for (i = 0; i < len; i++)
		to[i] = byte_at(e, e->wrote + i);
}

static void check(struct side *e, const uint8_t *data, uint32_t len)
{
	uint32_t i;

	for (i = 0; i < len; i++)
		if (data[i] != byte_at(e->peer, e->read + i))
			fail_msg("byte %llu", (unsigned long long)e->read + i);
	e->read += len;
}

/* Bytes taken. */
static uint64_t write_some(struct side *e, uint32_t len)
{
	static uint8_t buf[1 << 19];
	struct iovec iov[2] = {{buf, len / 3}, {buf + len / 3, len - len / 3}};
	ssize_t n;

	fill(e, buf, len);
	n = stream_write(e->s, iov, 2);
	if (n == -EAGAIN || (n == -EPIPE && e->ended))
		return 0;
	assert_true(n > 0 && n <= (ssize_t)len);
	e->wrote += (uint64_t)n;
	return (uint64_t)n;
}

static void read_some(struct side *e, uint64_t max)
{
	enum stream_type type;
	const uint8_t *data;
	uint32_t len;
	int rc = 0;

	while (max && (rc = stream_peek(e->s, &type, &data, &len)) == 1) {
		if (type == STREAM_END) {
			e->end_seen = true;
			return;
		}
		assert_int_equal(type, STREAM_DATA);
		len = len < max ? len : (uint32_t)max;
		check(e, data, len);
		stream_consume(e->s, len);
		max -= len;
	}
	assert_int_equal(rc < 0 ? rc : 0, 0);
}

static void open_two(struct side two[2], uint32_t max, uint64_t salt)
{
	uint64_t end = env_now_ns(env) + patience_ns(PATIENCE_S);
	uint64_t mem_max = pair.host[0].mem_max;
	struct stream *s[2];
	int i;

	pair.host[0].mem_max = STREAM_MEM_DEFAULT;
	stream_pair_grows(&pair, FIRST, max, s);
	pair.host[0].mem_max = mem_max;
	/* What is written later is there at once. */
	stream_accept(s[0]);
	stream_accept(s[1]);
	while (!stream_accepted(s[0]) || !stream_accepted(s[1]) ||
	       !stream_drained(s[0]) || !stream_drained(s[1])) {
		stream_flush(s[0]);
		stream_flush(s[1]);
		stream_pair_poll(&pair);
		assert_true(env_now_ns(env) < end);
	}
	for (i = 0; i < 2; i++) {
		free(two[i].tcp);
		two[i] = (struct side){.s = s[i],
				       .peer = &two[1 - i],
				       .max = max,
				       .salt = salt + 77 * (uint64_t)i};
	}
}

/* Writes until there is no room, and no larger ring is on its way. */
static void write_full(struct side *e)
{
	uint64_t end = env_now_ns(env) + patience_ns(PATIENCE_S);

	do {
		if (stream_writable(e->s))
			write_some(e, 400000);
		pass(0);
		assert_true(env_now_ns(env) < end);
	} while (e->s->grow.step != GROW_NONE || !stream_flush(e->s) ||
		 !stream_drained(e->s) || stream_writable(e->s));
}

/* Writes until the ring has grown to size. */
static void write_until(struct side *e, uint32_t size)
{
	uint64_t end = env_now_ns(env) + patience_ns(PATIENCE_S);

	while (e->s->out.size != size) {
		write_some(e, size < 400000 ? size : 400000);
		pass(0);
		assert_true(e->s->out.size <= size && env_now_ns(env) < end);
	}
}

/* Waits for the device too. */
static void read_all(struct side *e)
{
	uint64_t end = env_now_ns(env) + patience_ns(PATIENCE_S);

	for (;;) {
		read_some(e, UINT64_MAX);
		if (e->read == e->peer->wrote)
			return;
		pass(0);
		assert_true(env_now_ns(env) < end);
	}
}

/* --- how far ------------------------------------------------------------- */

static void quiet(uint64_t seconds)
{
	uint64_t i;

	for (i = 0; i < 4 * seconds; i++)
		pass(S / 4);
}

/* Each full ring is followed by one of twice the size, up to the largest one.
 * When all was read, and nothing comes, only the first ones are left. */
static void test_there_and_back(void **state)
{
	struct side two[2] = {0};
	uint64_t mem[2];
	uint32_t size;
	int i, lap;

	(void)state;
	open_two(two, STREAM_RING_MAX, 1);
	for (i = 0; i < 2; i++)
		mem[i] = pair.host[i].mem;
	for (lap = 0; lap < 3; lap++) {
		for (size = 2 * FIRST; size <= STREAM_RING_MAX; size *= 2) {
			read_all(&two[1]);
			write_until(&two[0], size);
			while (!stream_flush(two[0].s) ||
			       !stream_drained(two[0].s))
				pass(0);
			assert_int_equal(stream_in_unread(&two[1].s->in),
					 two[0].wrote - two[1].read);
		}
		read_all(&two[1]);
		write_full(&two[0]);
		assert_int_equal(two[0].s->out.size, STREAM_RING_MAX);
		read_all(&two[1]);
		assert_int_equal(two[1].s->in.at.size, STREAM_RING_MAX);
		quiet(1);
		assert_int_equal(two[0].s->out.size, STREAM_RING_MAX);
		quiet(6);
		assert_int_equal(two[0].s->out.size, FIRST);
		assert_int_equal(two[1].s->in.at.size, FIRST);
		for (i = 0; i < 2; i++)
			assert_int_equal(pair.host[i].mem, mem[i]);
		/* Nobody looks any more. */
		assert_true(pair.qp[0]->look_ns == UINT64_MAX &&
			    pair.qp[1]->look_ns == UINT64_MAX);
	}
	assert_int_equal(two[1].s->out.size, FIRST);
}

/* A ring that was never full does not grow. */
static void test_as_it_was(void **state)
{
	struct side two[2] = {0};
	int i;

	(void)state;
	open_two(two, STREAM_RING_MAX, 1);
	for (i = 0; i < 2000; i++) {
		assert_int_equal(write_some(&two[0], 3000), 3000);
		read_all(&two[1]);
		pass(S / 1000);
	}
	assert_int_equal(two[0].s->out.size, FIRST);
	assert_true(pair.qp[0]->look_ns == UINT64_MAX);
}

/* Which end's memory is short does not matter: the stream goes on in the ring
 * that it has, and the writer seldom asks again. */
static void test_memory(void **state)
{
	struct side two[2] = {0};
	uint64_t bound[2], asked;
	int i, poor;

	(void)state;
	for (poor = 0; poor < 2; poor++) {
		open_two(two, STREAM_RING_MAX, 1);
		for (i = 0; i < 2; i++)
			bound[i] = pair.host[i].mem_max;
		pair.host[poor].mem_max = pair.host[poor].mem + 2 * FIRST;
		asked = two[0].s->qp->posted;
		write_full(&two[0]);
		assert_int_equal(two[0].s->out.size, 2 * FIRST);
		for (i = 0; i < 200; i++) {
			read_all(&two[1]);
			write_full(&two[0]);
			assert_true(pair.host[poor].mem <=
				    pair.host[poor].mem_max);
		}
		assert_int_equal(two[0].s->out.size, 2 * FIRST);
		asked = two[0].s->grow.ask_pos;
		assert_true(asked > two[0].s->out.pos - 100 * 2 * FIRST);
		/* With memory it goes on growing. */
		pair.host[poor].mem_max = bound[poor];
		while (two[0].s->out.pos < asked) {
			read_all(&two[1]);
			write_full(&two[0]);
		}
		read_all(&two[1]);
		write_full(&two[0]);
		assert_true(two[0].s->out.size > 2 * FIRST);
	}
}

/* --- random calls -------------------------------------------------------- */

static struct prng rng;
static struct side all[STREAMS][2];
static uint64_t turns, chains, backs, resets;

static uint32_t below(uint32_t n)
{
	return (uint32_t)prng_below(&rng, n);
}

static void reserve_some(struct side *e)
{
	uint32_t room, len;
	uint8_t *at;

	if (stream_reserve(e->s, &at, &room))
		return;
	if (below(4) == 0)
		pass(below(2) * S); /* nothing turns under its feet */
	len = below(room + 1);
	fill(e, at, len);
	assert_int_equal(stream_commit(e->s, len), 0);
	e->wrote += len;
}

/* The way back to TCP, as far as it goes now. */
static void back_step(struct side *e)
{
	struct stream *s = e->s;
	const uint8_t *data;
	uint32_t len;

	if (!s->back.on && stream_peer_stopped(s))
		stream_hand_back(s, false);
	if (!s->back.on)
		return;
	assert_int_equal(stream_back_poll(s), 0);
	if (s->back.moved)
		return;
	while (stream_back_next(s, &data, &len) == 1) {
		struct side *p = e->peer;

		len = 1 + below(len);
		p->tcp = realloc(p->tcp, p->tcp_len + len);
		assert_non_null(p->tcp);
		memcpy(p->tcp + p->tcp_len, data, len);
		p->tcp_len += len;
		stream_back_took(&s->back, len);
		if (below(8) == 0)
			return;
	}
	if (s->back.peer_stopped)
		stream_back_moved(s);
}

static void step(struct side *e)
{
	uint32_t what = below(1000);

	assert_true(e->s->out.size <= e->max);
	if (e->s->back.on || stream_peer_stopped(e->s)) {
		back_step(e);
		if (what < 300)
			pass(0);
		return;
	}
	turns += e->s->out.turn == e->s->out.pos && e->s->out.turn;
	chains += __builtin_popcount(e->s->out.left) > 1;
	if (what < 400)
		write_some(e, 1 + below(1u << (4 + below(14))));
	else if (what < 700)
		read_some(e, below(1u << (4 + below(15))));
	else if (what < 780)
		reserve_some(e);
	else if (what < 990)
		pass(below(10) ? below(1000000) : below(600000000));
	else if (what < 996)
		quiet(1 + below(3));
	else if (what == 996 && below(4) == 0)
		e->ended |= stream_end(e->s) == 0;
	else if (what == 997 && below(3) == 0) {
		stream_hand_back(e->s, false);
		backs++;
	}
}

/* All that was written is read; by TCP too. */
static bool is_whole(struct side *e)
{
	if (e->s->back.on || stream_peer_stopped(e->s)) {
		back_step(e);
		back_step(e->peer);
		if (!stream_back_done(e->s) || !stream_back_done(e->peer->s))
			return false;
		check(e, e->tcp + e->tcp_read, e->tcp_len - e->tcp_read);
		e->tcp_read = e->tcp_len;
	} else {
		read_some(e, UINT64_MAX);
	}
	return e->read == e->peer->wrote;
}

/* Both write and nobody reads: rings grow. The reader passes through all rings then, and
 * the way back to TCP finds the bytes in them. */
static void test_nobody_reads(void **state)
{
	struct side two[2] = {0};
	uint64_t mem[2];
	int i, lap;

	(void)state;
	prng_init(&rng, 1);
	open_two(two, STREAM_RING_MAX, 1);
	for (i = 0; i < 2; i++)
		mem[i] = pair.host[i].mem;
	for (lap = 0; lap < 2; lap++) {
		write_full(&two[0]);
		write_full(&two[1]);
		for (i = 0; i < 2; i++) {
			assert_int_equal(two[i].s->out.size, STREAM_RING_MAX);
			assert_true(two[i].wrote - two[1 - i].read >
				    STREAM_RING_MAX / 64 * 63);
		}
		read_all(&two[1]);
		read_all(&two[0]);
		quiet(8);
		for (i = 0; i < 2; i++) {
			assert_int_equal(two[i].s->out.size, FIRST);
			assert_int_equal(pair.host[i].mem, mem[i]);
		}
	}
	write_full(&two[0]);
	read_some(&two[1], 7 * FIRST / 2);
	stream_hand_back(two[1].s, false);
	while (!is_whole(&two[1]) || !is_whole(&two[0]))
		pass(0);
	assert_int_equal(two[1].read, two[0].wrote);
	free(two[0].tcp);
	free(two[1].tcp);
}

static void all_whole(void)
{
	uint64_t end = env_now_ns(env) + patience_ns(PATIENCE_S);
	uint32_t i;

	for (i = 0; i < 2 * STREAMS; i++)
		while (!is_whole(&all[i / 2][i % 2])) {
			pass(1000);
			assert_true(env_now_ns(env) < end);
		}
}

static void leave_two(struct side two[2])
{
	stream_leave(two[0].s);
	if (below(2))
		pass(below(600000000));
	stream_leave(two[1].s);
	resets++;
}

static void random_run(uint64_t seed)
{
	uint64_t end = env_now_ns(env) + patience_ns(PATIENCE_S);
	uint32_t i;

	prng_init(&rng, seed);
	for (i = 0; i < STREAMS; i++)
		open_two(all[i], FIRST << below(9), seed + i);
	pair.host[0].mem_max = seed % 3 ? STREAM_MEM_DEFAULT : 1 << 20;
	for (i = 0; i < STEPS; i++) {
		uint32_t which = below(STREAMS);

		if (below(300) == 0) {
			/* At any step, with bytes under way. */
			leave_two(all[which]);
			open_two(all[which], FIRST << below(9), seed + i);
		}
		step(&all[which][below(2)]);
	}
	all_whole();
	for (i = 0; i < STREAMS; i++)
		leave_two(all[i]);
	while (pair.qp[0]->streams || pair.qp[1]->streams) {
		pass(0);
		assert_true(env_now_ns(env) < end);
	}
	for (i = 0; i < 2; i++) {
		assert_int_equal(pair.host[i].mem, 0);
		assert_int_equal(pair.host[i].garbage, 0);
		assert_int_equal(pair.qp[i]->broken, 0);
	}
}

static void test_random(void **state)
{
	const char *one = getenv("SEED"), *harsh = getenv("SKEIN_SOFT_HARSH");
	uint64_t seed = one ? strtoull(one, NULL, 0) : 1;
	uint64_t last = one ? seed : SEEDS;

	(void)state;
	turns = chains = backs = resets = 0;
	for (; seed <= last; seed++) {
		print_message("seed %llu\n", (unsigned long long)seed);
		random_run(seed);
	}
	for (uint32_t i = 0; i < 2 * STREAMS; i++) {
		free(all[i / 2][i % 2].tcp);
		all[i / 2][i % 2].tcp = NULL;
	}
	assert_true(
		one || harsh ||
		(turns > 100 && chains > 100 && backs > 10 && resets > 100));
}

/* --- bad input ----------------------------------------------------------- */

static void send_grow(struct side *from)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND_WITH_IMM,
				 .imm_data = htonl(STREAM_IMM(
					 STREAM_GROW, from->peer->s->number))};

	assert_int_equal(stream_qp_post(from->s->qp, from->s->stats, &wr, 1, 0,
					true),
			 0);
}

static void asks_twice(struct side two[2])
{
	send_grow(&two[0]);
	send_grow(&two[0]);
}

/* A RING record of a size. */
static void turns_to(struct side two[2], uint32_t size)
{
	enum stream_type type;
	const uint8_t *data;
	uint32_t len;

	assert_int_equal(stream_post_ring(two[0].s, size), 0);
	pass(0);
	stream_peek(two[1].s, &type, &data, &len);
}

static void turns_without_a_ring(struct side two[2])
{
	turns_to(two, 2 * FIRST);
}

static void turns_to_another_size(struct side two[2])
{
	send_grow(&two[0]);
	pass(0);
	assert_int_equal(two[1].s->grow.granted, 2 * FIRST);
	turns_to(two, 4 * FIRST);
}

static void answers(struct side two[2], uint32_t size, uint64_t secret)
{
	struct stream_msg m = {.type = STREAM_GROWN,
			       .number = two[1].s->number};

	stream_addr(two[0].s, &m.addr);
	m.addr.ring_size = size;
	m.addr.secret ^= secret;
	assert_int_equal(stream_qp_send(two[0].s->qp, &m), 0);
}

static void answers_unasked(struct side two[2])
{
	answers(two, 2 * FIRST, 0);
}

/* The writer has asked, and its peer answers by itself. */
static void ask(struct side two[2])
{
	while (write_some(&two[1], 1000))
		;
	stream_qp_tend(pair.qp[1], now_ns);
	assert_int_equal(two[1].s->grow.step, GROW_ASKED);
}

static void answers_another_size(struct side two[2])
{
	ask(two);
	answers(two, 4 * FIRST, 0);
}

static void answers_another_secret(struct side two[2])
{
	ask(two);
	answers(two, 2 * FIRST, 1);
}

/* Each ends its stream, and no other. */
static void test_garbage(void **state)
{
	void (*const deeds[])(struct side two[2]) = {
		asks_twice,	 turns_without_a_ring, turns_to_another_size,
		answers_unasked, answers_another_size, answers_another_secret};
	struct side other[2] = {0}, two[2] = {0};
	uint64_t end = env_now_ns(env) + patience_ns(PATIENCE_S);
	size_t i;

	(void)state;
	open_two(other, STREAM_RING_MAX, 1);
	for (i = 0; i < sizeof(deeds) / sizeof(deeds[0]); i++) {
		open_two(two, STREAM_RING_MAX, 2);
		deeds[i](two);
		while (two[1].s->broken != -EPROTO) {
			/* No memory is made: it says nothing else. */
			stream_pair_poll(&pair);
			assert_true(env_now_ns(env) < end);
		}
		assert_int_equal(pair.host[1].garbage, i + 1);
		stream_leave(two[0].s);
		stream_leave(two[1].s);
		assert_true(write_some(&other[0], 5000) > 0);
		read_all(&other[1]);
	}
	while (pair.qp[0]->streams > 1 || pair.qp[1]->streams > 1)
		pass(0);
	assert_int_equal(pair.qp[0]->broken | pair.qp[1]->broken, 0);
}

#define TEST(t) cmocka_unit_test_setup_teardown(t, up, down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_there_and_back), TEST(test_nobody_reads),
		TEST(test_as_it_was),	   TEST(test_memory),
		TEST(test_random),	   TEST(test_garbage),
	};

	/* In harsh mode a slow device bounds what the others count. */
	const struct CMUnitTest random[] = {TEST(test_random)};

	return getenv("SKEIN_SOFT_HARSH")
		       ? cmocka_run_group_tests(random, NULL, NULL)
		       : cmocka_run_group_tests(tests, NULL, NULL);
}
