/* SPDX-License-Identifier: MIT */
/*
 * test_stream.c - two streams on soft, in one thread: bytes, room, the switch
 * to sleep and back, the end.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "env/env.h"
#include "stream/stream.h"
#include "unit/patience.h"
#include "unit/stream/pair.h"

#define PATIENCE_S 30

static struct skein_env *env;
static struct stream_pair pair;
static struct stream *a, *b;

#define RING (64u << 10)

static int up(void **state)
{
	struct stream *two[2];

	(void)state;
	assert_int_equal(env_real_new(&env), 0);
	env->log_level = ENV_LOG_INFO;
	stream_pair_up(&pair, env);
	stream_pair_open(&pair, RING, two);
	a = two[0];
	b = two[1];
	return 0;
}

static int down(void **state)
{
	(void)state;
	stream_pair_down(&pair);
	env_real_free(env);
	return 0;
}

/* In harsh mode things happen when queues are polled. */
static bool soon(bool (*so)(void))
{
	uint64_t end = env_now_ns(env) + patience_ns(PATIENCE_S);

	while (!so()) {
		stream_pair_poll(&pair);
		if (env_now_ns(env) > end)
			return false;
	}
	return true;
}

static bool b_has(void)
{
	enum stream_type type;
	const uint8_t *data;
	uint32_t len;

	return stream_peek(b, &type, &data, &len) != 0;
}

static ssize_t write_text(struct stream *s, const char *text)
{
	struct iovec iov = {(void *)(uintptr_t)text, strlen(text)};

	return stream_write(s, &iov, 1);
}

static bool accepted(void)
{
	return stream_accepted(a);
}

static void test_accept_and_bytes(void **state)
{
	enum stream_type type;
	const uint8_t *data;
	uint64_t offset;
	uint32_t len;

	(void)state;
	assert_false(stream_accepted(a));
	stream_accept(b);
	assert_true(soon(accepted));
	assert_false(stream_accepted(b));
	assert_int_equal(stream_switch(a, 0x123456789aull), 0);
	assert_int_equal(write_text(a, "hello"), 5);
	assert_true(soon(b_has));
	assert_int_equal(stream_peek(b, &type, &data, &len), 1);
	assert_int_equal(type, STREAM_SWITCH);
	memcpy(&offset, data, 8);
	assert_int_equal(offset, 0x123456789aull);
	stream_consume(b, 8);
	assert_true(soon(b_has));
	assert_int_equal(stream_peek(b, &type, &data, &len), 1);
	assert_int_equal(len, 5);
	assert_memory_equal(data, "hello", 5);
	stream_consume(b, 5);
	assert_int_equal(stream_peek(b, &type, &data, &len), 0);
}

/* 4 MiB in pieces of all sizes; the ring is full again and again. */
static void test_much(void **state)
{
	static uint8_t block[100000];
	uint64_t written = 0, read = 0, total = 4 << 20, full = 0;

	(void)state;
	while (read < total) {
		size_t n = 1 + written * 7919 % (sizeof(block) - 1), i;
		struct iovec iov[2] = {{block, n / 3},
				       {block + n / 3, n - n / 3}};
		enum stream_type type;
		const uint8_t *data;
		uint32_t len;
		ssize_t got;
		int rc;

		for (i = 0; i < n; i++)
			block[i] = (uint8_t)((written + i) * 37 >> 2);
		got = written < total ? stream_write(a, iov, 2) : -EAGAIN;
		assert_true(got > 0 || got == -EAGAIN);
		full += got == -EAGAIN || (size_t)got < n;
		written += got > 0 ? (uint64_t)got : 0;
		while ((rc = stream_peek(b, &type, &data, &len)) == 1) {
			for (i = 0; i < len; i++)
				if (data[i] != (uint8_t)((read + i) * 37 >> 2))
					fail_msg(
						"byte %llu",
						(unsigned long long)(read + i));
			stream_consume(b, len);
			read += len;
		}
		assert_int_equal(rc, 0);
		stream_pair_poll(&pair);
	}
	assert_true(full > 10);
	assert_int_equal(read, written);
}

static bool a_has(void)
{
	enum stream_type type;
	const uint8_t *data;
	uint32_t len;

	return stream_peek(a, &type, &data, &len) != 0;
}

static bool a_may(void)
{
	return stream_writable(a);
}

static bool b_may(void)
{
	return stream_writable(b);
}

/* Question and answer, of a few bytes each, through several laps. */
static void test_small(void **state)
{
	int i;

	(void)state;
	for (i = 0; i < 10000; i++) {
		assert_true(soon(a_may));
		assert_int_equal(write_text(a, "*2 get a key of some bytes"),
				 26);
		assert_true(soon(b_has));
		stream_consume(b, 26);
		assert_true(soon(b_may));
		assert_int_equal(write_text(b, "$-1\r\n"), 5);
		assert_true(soon(a_has));
		stream_consume(a, 5);
	}
}

static bool a_ends(void)
{
	int rc = stream_end(a);

	assert_true(rc == 0 || rc == -EAGAIN);
	return rc == 0;
}

static void reserve_ends(void)
{
	uint8_t *at;
	uint32_t room;

	/* In harsh mode completions come long after the bytes: the send queue
	 * may be full. */
	assert_true(soon(a_ends));
	assert_int_equal(stream_reserve(a, &at, &room), -EPIPE);
}

/* 1 MiB written in place, beside ordinary writes; the ring is full again and
 * again, and what is dropped is not written. */
static void test_reserve(void **state)
{
	uint64_t written = 0, read = 0, total = 1 << 20, full = 0;
	struct patience patience = {0};
	bool fills = true;
	uint32_t room = 0, len, i;
	uint8_t *at;

	(void)state;
	while (read < total) {
		enum stream_type type;
		const uint8_t *data;
		int rc = fills ? stream_reserve(a, &at, &room) : -EAGAIN;

		assert_false(patience_ends(&patience, written + read,
					   env_now_ns(env), PATIENCE_S));
		assert_true(rc == 0 || rc == -EAGAIN);
		full += fills && rc == -EAGAIN;
		fills = rc == 0;
		if (!rc && written % 3 == 0) {
			memset(at, 0xee, room);
			assert_int_equal(stream_commit(a, 0), 0);
			assert_int_equal(stream_reserve(a, &at, &room), 0);
		}
		len = 1 + (uint32_t)(written * 7919 % 9000);
		len = len < room ? len : room;
		for (i = 0; !rc && i < len; i++)
			at[i] = (uint8_t)((written + i) * 37 >> 2);
		if (!rc) {
			assert_int_equal(stream_commit(a, len), 0);
			written += len;
		}
		if (!rc && stream_writable(a)) {
			uint8_t one = (uint8_t)(written * 37 >> 2);
			struct iovec iov = {&one, 1};

			assert_int_equal(stream_write(a, &iov, 1), 1);
			written++;
		}
		while (!fills && stream_peek(b, &type, &data, &len) == 1) {
			for (i = 0; i < len; i++)
				if (data[i] != (uint8_t)((read + i) * 37 >> 2))
					fail_msg(
						"byte %llu",
						(unsigned long long)(read + i));
			stream_consume(b, len);
			read += len;
		}
		/* What fills the ring is read whole, before more is written. */
		fills |= read == written;
		stream_pair_poll(&pair);
	}
	assert_true(full >= total / RING);
	reserve_ends();
}

static bool a_asleep(void)
{
	return a->sleep == STREAM_ASLEEP;
}

static bool a_rung(void)
{
	return a->sleep == STREAM_POLLED;
}

/* Wherever a ring is, as long as there is room for a write it is writable: a
 * place of few bytes before the ring's end is none less. */
static void test_writable(void **state)
{
	enum stream_type type;
	const uint8_t *data;
	uint32_t len;
	int i;

	(void)state;
	for (i = 0; i < 20000; i++) {
		assert_true(soon(a_may));
		assert_int_equal(write_text(a, "12345"), 5);
		while (stream_peek(b, &type, &data, &len) == 1)
			stream_consume(b, len);
		if (i % 16 == 0)
			stream_pair_poll(&pair);
	}
}

/* A writer that sleeps for room is rung for it. */
static void test_room_rings(void **state)
{
	static uint8_t block[4096];
	struct iovec iov = {block, sizeof(block)};
	enum stream_type type;
	const uint8_t *data;
	uint32_t len;

	(void)state;
	while (stream_write(a, &iov, 1) > 0)
		;
	assert_false(stream_writable(a));
	assert_true(stream_ask(a, false));
	assert_true(soon(a_asleep));
	assert_true(soon(b_has));
	while (stream_peek(b, &type, &data, &len) == 1)
		stream_consume(b, len);
	assert_true(soon(a_rung));
	assert_true(stream_writable(a));
}

static bool b_asleep(void)
{
	return b->sleep == STREAM_ASLEEP;
}

static bool b_rung(void)
{
	return b->sleep == STREAM_POLLED;
}

/* stream_pair_poll() takes what is woken. */
static bool b_woken_soon(void)
{
	uint64_t end = env_now_ns(env) + patience_ns(PATIENCE_S);
	struct stream *woken;

	do {
		stream_qp_poll(pair.qp[0]);
		stream_qp_poll(pair.qp[1]);
		woken = stream_qp_woken(pair.qp[1]);
	} while (!woken && env_now_ns(env) < end);
	return woken == b;
}

static bool b_drained(void)
{
	return stream_drained(b);
}

/* Asked, acknowledged, rung once: and the channel's descriptor says so. */
static ssize_t write_in_place(struct stream *s, const char *text)
{
	uint32_t room;
	uint8_t *at;
	int rc = stream_reserve(s, &at, &room);

	if (rc)
		return rc;
	memcpy(at, text, strlen(text));
	rc = stream_commit(s, (uint32_t)strlen(text));
	return rc ? rc : (ssize_t)strlen(text);
}

static void sleep_and_bell(ssize_t (*put)(struct stream *s, const char *text))
{
	struct pollfd pfd = {.fd = pair.host[1].channel->fd, .events = POLLIN};
	uint64_t bells = a->bells;

	while (stream_host_event(&pair.host[1]))
		;
	assert_true(stream_ask(b, false));
	assert_true(soon(b_asleep));
	while (stream_host_event(&pair.host[1]))
		;
	assert_true(stream_ask(b, false)); /* nothing is asked twice */
	assert_int_equal(put(a, "one"), 3);
	assert_int_equal(stream_drain(a, patience_ns(PATIENCE_S)), 0);
	assert_int_equal(poll(&pfd, 1, PATIENCE_S * 1000), 1);
	assert_ptr_equal(stream_host_event(&pair.host[1]), pair.qp[1]);
	assert_true(soon(b_rung));
	assert_true(soon(b_has));
	stream_consume(b, 3);
	assert_int_equal(put(a, "two"), 3);
	assert_int_equal(a->bells, bells + 1);
	assert_true(soon(b_has));
	stream_consume(b, 3);
}

static void test_sleep_and_bell(void **state)
{
	(void)state;
	sleep_and_bell(write_text);
	sleep_and_bell(write_in_place);
}

/* A reader that sleeps before each record asks once. */
static void test_each_rings(void **state)
{
	uint64_t bells = a->bells;
	int i;

	(void)state;
	assert_true(stream_ask(b, true));
	assert_true(soon(b_asleep));
	for (i = 0; i < 3; i++) {
		while (stream_qp_woken(pair.qp[1]))
			;
		assert_int_equal(write_text(a, "one"), 3);
		assert_true(b_woken_soon());
		assert_true(soon(b_has));
		stream_consume(b, 3);
		assert_int_equal(b->sleep, STREAM_ASLEEP);
		assert_true(stream_ask(b, true));
	}
	assert_int_equal(a->bells, bells + 3);
	/* b asks no more, so its own bytes must be known to be there. */
	assert_int_equal(write_text(b, "two"), 3);
	assert_true(soon(b_drained));
}

/* An answer nobody asked for ends this stream. */
static void test_wrong_bell(void **state)
{
	(void)state;
	a->peer_asleep = true; /* it never was */
	assert_int_equal(write_text(a, "x"), 1);
	assert_true(soon(b_has));
	while (!b->broken)
		assert_true(soon(b_has)), stream_pair_poll(&pair);
	assert_int_equal(b->broken, -EPROTO);
}

static void test_wrong_head(void **state)
{
	(void)state;
	a->ctl->head = a->out.pos + 8;
	assert_int_equal(write_text(a, "x"), -EPROTO);
	assert_int_equal(write_text(a, "x"), -EPROTO);
}

static void test_end(void **state)
{
	enum stream_type type;
	const uint8_t *data;
	uint32_t len;

	(void)state;
	assert_int_equal(stream_end(a), 0);
	assert_int_equal(write_text(a, "x"), -EPIPE);
	assert_true(soon(b_has));
	assert_int_equal(stream_peek(b, &type, &data, &len), 1);
	assert_int_equal(type, STREAM_END);
	assert_int_equal(len, 0);
}

/* The other end has gone: a writer hears of it, and nobody waits for ever. */
static void test_gone(void **state)
{
	uint64_t end = env_now_ns(env) + patience_ns(PATIENCE_S);

	(void)state;
	stream_leave(b);
	/* A NIC tries again before it says so, and so does harsh mode. */
	while (!a->broken && env_now_ns(env) < end) {
		write_text(a, "x");
		stream_pair_poll(&pair);
	}
	assert_int_equal(a->broken, -ECONNRESET);
}

static bool a_stopped(void)
{
	return stream_peer_stopped(a) && stream_peer_stopped(b);
}

static bool a_drained(void)
{
	return stream_drained(a);
}

static bool a_broken(void)
{
	stream_back_nudge(a);
	return a->broken;
}

/* Bytes that b has not read; then both stop. */
static void both_stop(void)
{
	stream_accept(b);
	assert_true(soon(accepted));
	assert_int_equal(stream_switch(a, 0), 0);
	assert_int_equal(write_text(a, "unread"), 6);
	stream_hand_back(a, false);
	assert_int_equal(write_text(a, "x"), -EAGAIN);
	stream_hand_back(b, false);
	assert_true(soon(a_stopped));
	assert_true(soon(a_drained));
}

/* Until the peer's stop was taken in ours is said again, and is the same. */
static void test_nudge(void **state)
{
	uint32_t posted;

	(void)state;
	both_stop();
	assert_int_equal(b->ctl->stop, 1);
	posted = a->qp->posted;
	stream_back_nudge(a);
	assert_int_equal(a->qp->posted, posted + 1);
	assert_true(soon(a_drained));
	assert_int_equal(b->ctl->stop, 1);
	assert_int_equal(stream_back_poll(a), 0);
	assert_true(a->back.peer_stopped);
	assert_int_equal(a->back.left, 6);
	posted = a->qp->posted;
	stream_back_nudge(a);
	assert_int_equal(a->qp->posted, posted);
}

static bool stopped_for_good(void)
{
	return !stream_peer_again(a);
}

/* A stop may say that the connection can be promoted again; that can be taken
 * back until the peer was heard. */
static void test_stop_for_now(void **state)
{
	(void)state;
	stream_accept(b);
	assert_true(soon(accepted));
	assert_int_equal(stream_switch(a, 0), 0);
	assert_int_equal(write_text(a, "unread"), 6);
	stream_hand_back(a, true);
	stream_hand_back(b, true);
	assert_true(soon(a_stopped));
	assert_true(stream_peer_again(a) && stream_peer_again(b));
	assert_int_equal(b->ctl->stop, STREAM_STOP_AGAIN + 1);
	assert_int_equal(stream_back_poll(b), 0);
	assert_int_equal(stream_back_poll(a), 0);
	assert_int_equal(a->back.left, 6);
	stream_hand_back(b, false);
	stream_hand_back(b, true);
	b->back.peer_stopped = false; /* as if the peer was not heard yet */
	stream_back_nudge(b);
	assert_true(soon(stopped_for_good));
	assert_int_equal(a->ctl->stop, 1);
	assert_true(stream_peer_again(b));
}

/* A peer that has freed its end says nothing: the nudge hears of it. */
static void test_nudge_finds_a_freed_end(void **state)
{
	uint64_t end = env_now_ns(env) + patience_ns(PATIENCE_S);

	(void)state;
	stream_accept(b);
	assert_true(soon(accepted));
	stream_hand_back(a, false);
	assert_true(soon(a_drained));
	stream_leave(b);
	stream_back_poll(a);
	assert_int_equal(a->broken, 0);
	while (!a_broken() && env_now_ns(env) < end)
		stream_pair_poll(&pair);
	assert_int_equal(a->broken, -ECONNRESET);
}

/* --- streams that share --------------------------------------------------- */

/* What is posted, on a device on which nothing completes. */
static struct posted {
	int (*post_send)(struct ibv_qp *qp, struct ibv_send_wr *wr,
			 struct ibv_send_wr **bad);
	int (*poll_cq)(struct ibv_cq *cq, int n, struct ibv_wc *wc);
	uint32_t largest;
	uint64_t bytes;
} seen;

static int seen_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
			  struct ibv_send_wr **bad)
{
	for (struct ibv_send_wr *w = wr; w; w = w->next) {
		uint32_t len = w->num_sge ? w->sg_list->length : 0;

		seen.bytes += len;
		seen.largest = len > seen.largest ? len : seen.largest;
	}
	return seen.post_send(qp, wr, bad);
}

static int no_completion(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	return cq == a->qp->scq ? 0 : seen.poll_cq(cq, n, wc);
}

/* A large write does not hold up another stream: what is posted before the
 * other's write is bounded, in WRITEs of at most 64 KiB. */
static void test_large_beside_small(void **state)
{
	struct ibv_context_ops *ops = &a->qp->qp->context->ops;
	static uint8_t large[STREAM_RING_MAX];
	struct iovec iov = {large, sizeof(large)};
	struct stream *two[2];
	ssize_t n;

	(void)state;
	stream_pair_open(&pair, STREAM_RING_MAX, two);
	seen = (struct posted){ops->post_send, ops->poll_cq, 0, 0};
	ops->post_send = seen_post_send;
	ops->poll_cq = no_completion;
	n = stream_write(two[0], &iov, 1);
	assert_int_equal(stream_write(two[0], &iov, 1), -EAGAIN);
	assert_true(n >= 2 * (ssize_t)STREAM_BURST - 1000);
	assert_true(seen.bytes <= 2 * (STREAM_BURST + (64u << 10)));
	assert_true(seen.largest <= 64u << 10);
	assert_int_equal(write_text(a, "small"), 5);
	ops->poll_cq = seen.poll_cq;
	ops->post_send = seen.post_send;
	/* And goes on when the device has done it. */
	while (n < 3 << 20) {
		ssize_t more = stream_write(two[0], &iov, 1);

		assert_true(more > 0 || more == -EAGAIN);
		n += more > 0 ? more : 0;
		stream_pair_poll(&pair);
	}
	assert_true(soon(b_has));
	stream_consume(b, 5);
}

#define MANY 700

/* More streams ask, are answered, and ring at once than there are receives. */
static void test_many(void **state)
{
	static struct stream *many[MANY][2];
	struct stream *s;
	unsigned i, asleep, rang = 0;

	(void)state;
	for (i = 0; i < MANY; i++)
		stream_pair_open(&pair, STREAM_RING_MIN, many[i]);
	for (i = 0; i < MANY; i++)
		stream_ask(many[i][1], false);
	do {
		stream_pair_poll(&pair);
		for (i = asleep = 0; i < MANY; i++) {
			stream_ask(many[i][1], false);
			asleep += many[i][1]->sleep == STREAM_ASLEEP;
		}
	} while (asleep < MANY);
	for (i = 0; i < MANY; i++)
		/* A device that is busy has no slot now and then. */
		while (write_text(many[i][0], "ring") == -EAGAIN)
			stream_qp_poll(pair.qp[0]);
	do {
		stream_qp_poll(pair.qp[0]);
		stream_qp_poll(pair.qp[1]);
		while ((s = stream_qp_woken(pair.qp[1])))
			rang += s->sleep == STREAM_POLLED;
	} while (rang < MANY);
	for (i = 0; i < MANY; i++) {
		assert_int_equal(many[i][0]->bells, 1);
		stream_leave(many[i][i & 1]);
		stream_leave(many[i][!(i & 1)]);
	}
	while (pair.qp[0]->streams > 1 || pair.qp[1]->streams > 1)
		stream_pair_poll(&pair);
	assert_int_equal(pair.host[0].garbage + pair.host[1].garbage, 0);
}

/* One end leaves while the other writes: the QP stays whole, and so do its other
 * streams. */
static void test_leave_while_written(void **state)
{
	static uint8_t block[8192];
	struct iovec iov = {block, sizeof(block)};
	struct stream *two[2];
	unsigned i, k;

	(void)state;
	for (i = 0; i < 200; i++) {
		stream_pair_open(&pair, STREAM_RING_MIN, two);
		for (k = 0; k < i % 4; k++)
			stream_write(two[0], &iov, 1);
		stream_leave(two[1]);
		while (stream_write(two[0], &iov, 1) != -ECONNRESET) {
			if (i & 1)
				stream_pair_poll(&pair);
			else
				stream_qp_poll(pair.qp[0]);
			stream_qp_poll(pair.qp[1]);
		}
		stream_leave(two[0]);
	}
	while (pair.qp[0]->streams > 1 || pair.qp[1]->streams > 1)
		stream_pair_poll(&pair);
	assert_int_equal(pair.qp[0]->broken | pair.qp[1]->broken, 0);
	assert_int_equal(write_text(a, "whole"), 5);
	assert_true(soon(b_has));
}

/* --- bad input ------------------------------------------------------------ */

/* As the peer would that does not keep to the protocol. */
static void send_imm(struct stream_qp *q, uint32_t imm)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND_WITH_IMM,
				 .imm_data = htonl(imm)};

	assert_true(stream_qp_slots(q) > 0);
	assert_int_equal(stream_qp_post(q, q->stats, &wr, 1, 0, true), 0);
}

static void send_bytes(struct stream_qp *q, const void *bytes, uint32_t len)
{
	struct ibv_sge sge = {.addr = (uintptr_t)bytes, .length = len};
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_INLINE,
				 .sg_list = &sge,
				 .num_sge = 1};

	assert_true(stream_qp_slots(q) > 0);
	assert_int_equal(stream_qp_post(q, q->stats, &wr, 1, 0, true), 0);
}

static void garbage_is(uint64_t n)
{
	while (pair.host[1].garbage < n)
		stream_pair_poll(&pair);
	assert_int_equal(pair.host[1].garbage, n);
}

/* What names no stream is counted; what names one ends it, and no other. */
static void test_garbage(void **state)
{
	static const uint32_t ops[] = {STREAM_ACK, STREAM_BELL, STREAM_GROW,
				       0,	   9,		15};
	static const uint8_t words[STREAM_MSG_MAX] = {2, 0, 0, 0, 200};
	struct stream *two[2];
	uint64_t n = 0;
	unsigned i;

	(void)state;
	send_imm(pair.qp[0], STREAM_IMM(STREAM_ASK, 0));
	send_imm(pair.qp[0], STREAM_IMM(STREAM_CLOSE, STREAM_NUMBER_MAX));
	send_imm(pair.qp[0], STREAM_IMM(STREAM_CREDIT, 1));
	send_imm(pair.qp[0], 5u << 28);
	send_bytes(pair.qp[0], words, 3);
	send_bytes(pair.qp[0], words, 12); /* an answer to nobody */
	garbage_is(n = 6);
	for (i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		stream_pair_open(&pair, STREAM_RING_MIN, two);
		send_imm(pair.qp[0], STREAM_IMM(ops[i], two[1]->number));
		garbage_is(++n);
		assert_int_equal(two[1]->broken, -EPROTO);
		while (!two[0]->peer_closed)
			stream_pair_poll(&pair);
		assert_int_equal(write_text(two[0], "x"), -ECONNRESET);
		stream_leave(two[0]);
		stream_leave(two[1]);
	}
	while (pair.qp[0]->streams > 1 || pair.qp[1]->streams > 1)
		stream_pair_poll(&pair);
	assert_int_equal(pair.qp[0]->broken | pair.qp[1]->broken, 0);
	assert_int_equal(write_text(a, "whole"), 5);
	assert_true(soon(b_has));
}

#define TEST(t) cmocka_unit_test_setup_teardown(t, up, down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_accept_and_bytes),
		TEST(test_much),
		TEST(test_small),
		TEST(test_reserve),
		TEST(test_writable),
		TEST(test_room_rings),
		TEST(test_sleep_and_bell),
		TEST(test_each_rings),
		TEST(test_wrong_bell),
		TEST(test_wrong_head),
		TEST(test_end),
		TEST(test_gone),
		TEST(test_nudge),
		TEST(test_stop_for_now),
		TEST(test_nudge_finds_a_freed_end),
		TEST(test_large_beside_small),
		TEST(test_many),
		TEST(test_leave_while_written),
		TEST(test_garbage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
