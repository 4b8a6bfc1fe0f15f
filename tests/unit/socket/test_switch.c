/* SPDX-License-Identifier: MIT */
/*
 * test_switch.c - a connection goes to a stream and back, by what the program and
 * the helper do and in any order, and no byte is lost.
 */
#include "unit/socket/ends.h"

#include "base/prng.h"
#include "bind/socket/back.h"
#include "bind/socket/idle.h"
#include "unit/part.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static struct prng rng;

/* The reader has read some of what came by TCP; more came after it accepted. */
static void over(struct end *w, struct end *r, uint32_t before, uint32_t taken,
		 uint32_t after, uint32_t piece)
{
	ends_meet(0);
	assert_int_equal(end_put(w, before), before);
	end_get_to(r, taken, ENDS_MUCH);
	assert_true(end_promote(r));
	if (after)
		assert_int_equal(end_put(w, after), after);
	assert_true(end_promote(w));
	assert_int_equal(end_put(w, 3000), 3000);
	assert_int_equal(sock_row(w->s)->tx_stream, 3000);
	end_get_to(r, w->wrote, piece);
	assert_int_equal(sock_row(r->s)->rx_stream, 3000);
	assert_int_equal(r->s->tcp_read, before + after);
	end_shut(w);
	end_get_eof(r);
	ends_part();
}

static void test_unread_bytes_at_the_switch(void **state)
{
	static const uint32_t some[] = {1, 2, 100, 40000};
	uint32_t i, k, who;

	(void)state;
	for (who = 0; who < 2; who++)
		for (i = 0; i < 4; i++)
			for (k = 0; k < 4; k++) {
				struct end *w = &ends[who], *r = &ends[1 - who];

				over(w, r, some[i], 0, k ? some[k - 1] : 0,
				     1 + 999 * k);
				over(w, r, some[i], some[i], some[k], 777);
				over(w, r, some[i], some[i] - 1, 0, 1000);
			}
}

/* What TCP has of before the switch fills all pieces, as it would there, and not
 * one byte of theirs comes from behind the switch. */
static void test_pieces_before_the_switch(void **state)
{
	struct end *w = &ends[0], *r = &ends[1];
	uint8_t a, b[2], c[10];
	struct iovec iov[] = {{&a, 1}, {b, 2}, {c, 10}};

	(void)state;
	ends_meet(0);
	assert_true(end_promote(r));
	assert_int_equal(end_put(w, 4), 4);
	assert_int_equal(sock_recv(r->fd, r->s, iov, 3, 0, NULL), 4);
	assert_int_equal(c[0], end_byte_at(w, 3));
	assert_int_equal(end_put(w, 5), 5);
	assert_true(end_promote(w));
	assert_int_equal(end_put(w, 4), 4);
	assert_int_equal(sock_row(w->s)->tx_stream, 4);
	r->read = 4;
	end_get_to(r, 5, 1); /* finds the SWITCH */
	assert_int_equal(sock_recv(r->fd, r->s, iov, 3, 0, NULL), 4);
	assert_int_equal(c[0], end_byte_at(w, 8));
	r->read = 9;
	end_get_all(r);
	ends_part();
}

/* A reader that has not accepted has its bytes by TCP. */
static void test_writer_waits_for_accept(void **state)
{
	(void)state;
	ends_meet(0);
	assert_true(end_promote(&ends[0]));
	assert_int_equal(end_put(&ends[0], 100), 100);
	assert_false(ends[0].s->tx_on);
	end_get_all(&ends[1]);
	/* The other end has accepted. */
	assert_int_equal(end_put(&ends[1], 100), 100);
	assert_false(ends[1].s->tx_on);
	assert_true(end_promote(&ends[1]));
	assert_int_equal(end_put(&ends[1], 100), 100);
	assert_true(ends[1].s->tx_on);
	end_get_all(&ends[0]);
	ends_part();
}

/* TCP is full, and then the ring, and the reader goes back. */
static void test_back_with_all_full(void **state)
{
	struct end *w, *r;
	uint64_t end;
	int who;

	(void)state;
	for (who = 0; who < 4; who++) {
		w = &ends[who & 1];
		r = &ends[1 - (who & 1)];
		ends_meet(16384);
		while (end_put(w, 10000))
			;
		assert_true(end_promote(w));
		assert_true(end_promote(r));
		assert_true(end_put(w, ENDS_MUCH) > 50000);
		while (end_put(w, 10000))
			;
		end_hand_back(who & 2 ? w : r);
		/* Its bytes before go first. */
		assert_int_equal(end_put(w, 1), 0);
		end_step(w);
		end_step(r);
		end_step(w);
		assert_int_equal(end_put(w, 1), 0);
		assert_false(w->s->stream->back.moved);
		assert_int_equal(end_mode(r), SOCK_ON);
		end = state_now_ns() + ENDS_WAIT_NS;
		while (end_mode(w) == SOCK_ON && state_now_ns() < end) {
			assert_int_equal(end_put(r, 10), 10);
			end_get(r, 5000);
			end_step(w);
			end_step(r);
		}
		ends_go_back();
		end_get_all(r);
		assert_int_equal(end_put(w, 10), 10);
		end_shut(w);
		end_get_eof(r);
		end_get_all(w);
		ends_part();
	}
}

/* Neither end is on TCP before the other one has moved its bytes. */
static void test_back_waits_for_the_other_end(void **state)
{
	struct end *a = &ends[0], *b = &ends[1];

	(void)state;
	ends_on_streams();
	assert_int_equal(end_put(a, 500), 500);
	assert_int_equal(end_put(b, 600), 600);
	assert_int_equal(end_get(a, 7), 7);
	end_hand_back(a);
	end_step(a);
	end_step(a);
	assert_int_equal(end_mode(a), SOCK_ON);
	assert_false(a->s->stream->back.moved);
	assert_int_equal(end_put(a, 1), 0);
	end_step(b); /* hears it, and sends what a has not read */
	assert_true(b->s->stream->back.moved);
	assert_int_equal(end_mode(b), SOCK_ON);
	assert_int_equal(end_put(b, 11), 11);
	end_step(a);
	assert_int_equal(end_mode(a), SOCK_TIED);
	assert_int_equal(end_put(a, 12), 12);
	end_step(b);
	assert_true(ends_are_back());
	end_get_all(a);
	end_get_all(b);
	ends_part();
}

/* The end that a program has said is TCP's then, read or not. */
static void test_end_goes_back_too(void **state)
{
	int i;

	(void)state;
	for (i = 0; i < 8; i++) {
		struct end *w = &ends[i & 1], *r = &ends[1 - (i & 1)];

		ends_meet(0);
		assert_true(end_promote(w) && end_promote(r));
		assert_int_equal(end_put(w, 100), 100);
		assert_int_equal(end_put(r, 100), 100);
		end_shut(w);
		if (i & 2)
			end_get_eof(r);
		r->eof = false;
		end_hand_back(i & 4 ? w : r);
		ends_go_back();
		end_get_eof(r);
		assert_int_equal(end_put(r, 10), 10);
		end_get_all(w);
		ends_part();
	}
}

/* Nor does it go back where the other end has read it and closed: the program has
 * said its end, and what it writes then is refused. */
static void test_end_stays_an_end(void **state)
{
	struct end *w = &ends[0], *r = &ends[1];

	(void)state;
	ends_on_streams();
	assert_int_equal(end_put(w, 100), 100);
	end_shut(w);
	end_get_eof(r);
	end_close(r);
	ends_bury();
	end_hand_back(w);
	end_step(w);
	assert_int_not_equal(end_mode(w), SOCK_ON);
	assert_int_equal(send(w->fd, "x", 1, MSG_NOSIGNAL), -1);
	assert_int_equal(errno, EPIPE);
	ends_part();
}

/* A writer that closes, however far it has come on the way back, leaves all that
 * it wrote, and an end: no reset. */
static void close_after(unsigned steps, bool by_writer, bool full)
{
	struct end *w = &ends[0], *r = &ends[1];
	unsigned i;

	ends_meet(full ? 16384 : 0);
	while (full && end_put(w, 10000))
		;
	assert_true(end_promote(w) && end_promote(r));
	assert_int_equal(end_put(w, 20000), 20000);
	end_hand_back(by_writer ? w : r);
	for (i = 0; i < steps; i++) {
		end_step(&ends[(i + by_writer) & 1]);
		if (full)
			end_get(r, 3000);
	}
	end_close(w);
	ends_bury();
	for (i = 0; i < 5; i++)
		end_step(r);
	end_get_eof(r);
	ends_part();
}

static void test_closed_on_the_way_back(void **state)
{
	unsigned steps;

	(void)state;
	for (steps = 0; steps < 12; steps++) {
		close_after(steps, false, false);
		close_after(steps, true, false);
		close_after(steps, false, true);
		close_after(steps, true, true);
	}
}

/* A forked child has the descriptor too: its parent's close does not wait, and
 * the helper leaves TCP with all bytes in it. */
static void test_close_of_a_shared_socket(void **state)
{
	struct end *a = &ends[0], *b = &ends[1];
	uint8_t buf[600], byte;
	ssize_t n;
	uint32_t i;

	(void)state;
	ends_on_streams();
	assert_int_equal(end_put(a, 500), 500);
	assert_int_equal(end_put(b, 600), 600);
	a->s->shared = true;
	sock_forget(a->fd);
	assert_null(sock_at(a->fd));
	assert_int_equal(st.closed, 1);
	while (st.closed) {
		end_step(b);
		end_step(a);
		back_round();
	}
	end_step(b);
	assert_int_equal(end_mode(b), SOCK_TIED);
	/* The child's copy. */
	fcntl(a->fd, F_SETFL, 0);
	n = recv(a->fd, buf, sizeof(buf), MSG_WAITALL);
	assert_int_equal(n, 600);
	for (i = 0; i < 600; i++)
		assert_int_equal(buf[i], end_byte_at(b, i));
	byte = end_byte_at(a, a->wrote++);
	assert_int_equal(send(a->fd, &byte, 1, 0), 1);
	end_get_all(b);
	close(a->fd);
	a->closed = true;
	end_get_eof(b);
	ends_part();
}

/* An end, and how many bytes it reads or writes. */
static struct end *any_end(uint32_t *n)
{
	struct end *e = &ends[prng_below(&rng, 2)];
	uint64_t max = prng_below(&rng, 4) ? 900 : 30000;

	*n = 1 + (uint32_t)prng_below(&rng, max);
	return e;
}

/* Everything in any order, by either end. */
static void any_order(uint64_t seed)
{
	unsigned to, back, ends_at, i;

	prng_init(&rng, seed);
	ends_meet(prng_below(&rng, 3) ? 0 : 16384);
	to = (unsigned)prng_below(&rng, 60);
	back = to + (unsigned)prng_below(&rng, 120);
	ends_at = to + (unsigned)prng_below(&rng, 300);
	for (i = 0; i < 300; i++) {
		uint32_t n;
		struct end *e = any_end(&n);

		switch (prng_below(&rng, 8)) {
		case 0:
		case 1:
			if (!e->shut)
				end_put(e, n);
			break;
		case 2:
			end_get(e, n);
			break;
		case 3:
			if (i >= to && end_mode(e) == SOCK_TCP)
				end_promote(e);
			break;
		case 4:
			if (i >= back)
				end_hand_back(e);
			break;
		case 5:
			if (i >= ends_at && !e->shut)
				end_shut(e);
			break;
		case 6:
			ends_bury();
			break;
		default:
			end_step(e);
		}
	}
	for (i = 0; i < 2; i++)
		if (end_mode(&ends[i]) == SOCK_TCP)
			end_promote(&ends[i]);
	end_hand_back(&ends[seed & 1]);
	end_hand_back(&ends[1 - (seed & 1)]);
	ends_go_back();
	for (i = 0; i < 2; i++)
		if (!ends[i].shut)
			end_shut(&ends[i]);
	end_get_eof(&ends[0]);
	end_get_eof(&ends[1]);
	ends_part();
}

static void test_any_order(void **state)
{
	uint64_t seed;

	(void)state;
	for (seed = 1; seed <= part_rounds(150); seed++)
		any_order(seed);
}

/* Steps until it is. */
static void off_its_stream(struct end *e)
{
	uint64_t end = state_now_ns() + ENDS_WAIT_NS;

	while (end_mode(e) == SOCK_ON && state_now_ns() < end) {
		end_step(e);
		ends_bury();
	}
	assert_int_not_equal(end_mode(e), SOCK_ON);
}

/* An end that has a stream refuses it: the other one, which is on its stream,
 * or on its way back, is told, and does not take it for the connection's end. */
static void refused(bool on_the_way_back)
{
	struct end *a = &ends[0], *b = &ends[1];

	ends_meet(0);
	assert_int_equal(end_put(a, 500), 500);
	assert_true(end_promote(a));
	if (on_the_way_back)
		end_hand_back(a);
	pthread_mutex_lock(&st.lock);
	sock_tie_locked(b->s, "the test");
	pthread_mutex_unlock(&st.lock);
	off_its_stream(a);
	assert_int_equal(end_mode(a), SOCK_TIED);
	assert_int_equal(end_put(b, 600), 600);
	end_get_all(a);
	end_get_all(b);
	ends_part();
}

static void test_refused(void **state)
{
	(void)state;
	refused(false);
	refused(true);
}

/* It closes the connection in place of that. */
static void closed_before(bool on_the_way_back)
{
	struct end *a = &ends[0], *b = &ends[1];

	ends_meet(0);
	assert_int_equal(end_put(a, 500), 500);
	end_get_all(b);
	assert_true(end_promote(a));
	if (on_the_way_back)
		end_hand_back(a);
	assert_int_equal(end_put(b, 600), 600);
	end_close(b);
	off_its_stream(a);
	assert_int_equal(end_mode(a), on_the_way_back ? SOCK_TIED : SOCK_TCP);
	end_get_eof(a);
	ends_part();
}

static void test_closed_before(void **state)
{
	(void)state;
	closed_before(false);
	closed_before(true);
}

/* --- idle connections ---------------------------------------------------- */

#define IDLE_NS 1000u

/* Both ends are looked at, at this moment. */
static void look(uint64_t now_ns)
{
	struct idle idle = {.due_ns = 1};

	st.idle_ns = IDLE_NS;
	do
		idle_round(&idle, now_ns += 2000000);
	while (idle.at);
	st.idle_ns = 0;
}

static void rest(void)
{
	uint64_t end = state_now_ns() + ENDS_WAIT_NS;
	int i;

	for (i = 0; !(end_rests(&ends[0]) && end_rests(&ends[1])) &&
		    state_now_ns() < end;
	     i++) {
		end_step(&ends[i & 1]);
		ends_bury();
	}
	assert_true(end_rests(&ends[0]) && end_rests(&ends[1]));
	ends_bury();
}

/* The look that comes IDLE_NS after the last byte, and no earlier one. which: the
 * ends that it is for, a bit each. */
static void idle_for_long(unsigned which)
{
	const uint64_t at = 1000000000;
	unsigned i;

	look(at);
	ends_some_bytes(300);
	look(at + IDLE_NS);
	look(at + 2 * IDLE_NS - 1);
	for (i = 0; i < 2; i++) {
		assert_false(ends[i].s->stream->back.on);
		if (!(which >> i & 1))
			ends[i].s->idle_ns += IDLE_NS;
	}
	look(at + 2 * IDLE_NS);
	for (i = 0; i < 2; i++)
		assert_int_equal(ends[i].s->stream->back.on, which >> i & 1);
}

/* To TCP, and onto a stream again, as often as wanted. */
static void test_idle_rests(void **state)
{
	unsigned which, i, k;

	(void)state;
	for (which = 1; which < 4; which++) {
		ends_meet(0);
		for (i = 1; i < 5; i++) {
			assert_true(end_promote(&ends[i & 1]));
			assert_true(end_promote(&ends[1 - (i & 1)]));
			ends_some_bytes(600);
			idle_for_long(which);
			rest();
			assert_int_equal(ends_pair.host[0].mem, 0);
			assert_int_equal(ends_pair.host[1].mem, 0);
			ends_some_bytes(500);
			for (k = 0; k < 2; k++) {
				assert_int_equal(ends[k].s->demotions, i);
				assert_int_equal(sock_row(ends[k].s)->tx_stream,
						 900 * i);
			}
			ends_prepare();
		}
		ends_part();
	}
}

/* Not while bytes wait in the ring, or a write waits for room, or one end has
 * said its end. */
static void test_not_idle(void **state)
{
	unsigned i;

	(void)state;
	for (i = 0; i < 4; i++) {
		struct end *e = &ends[i & 1], *other = &ends[1 - (i & 1)];

		ends_meet(0);
		assert_true(end_promote(e) && end_promote(other));
		ends_some_bytes(10);
		if (i & 2)
			end_shut(e);
		else
			while (end_put(e, 5000))
				;
		look(2000000);
		look(2000000 + IDLE_NS);
		assert_false(e->s->stream->back.on);
		assert_false(other->s->stream->back.on);
		end_get_all(other);
		ends_part();
	}
}

/* What only the kernel can do comes while an idle connection goes back. */
static void test_idle_then_for_good(void **state)
{
	unsigned steps, i;

	(void)state;
	for (i = 0; i < 2; i++)
		for (steps = 0; steps < 6; steps++) {
			struct end *e = &ends[i], *other = &ends[1 - i];
			uint64_t end = state_now_ns() + ENDS_WAIT_NS;
			unsigned k;

			ends_meet(0);
			assert_true(end_promote(e) && end_promote(other));
			ends_some_bytes(10);
			idle_for_long(1);
			for (k = 0; k < steps; k++)
				end_step(&ends[k & 1]);
			end_hand_back(e);
			pthread_mutex_lock(&st.lock);
			sock_tie_locked(e->s, "the test");
			pthread_mutex_unlock(&st.lock);
			while ((end_mode(e) == SOCK_ON ||
				end_mode(other) == SOCK_ON) &&
			       state_now_ns() < end)
				end_step(&ends[k++ & 1]);
			assert_int_equal(end_mode(e), SOCK_TIED);
			assert_true(end_mode(other) == SOCK_TIED ||
				    end_rests(other));
			ends_some_bytes(10);
			ends_part();
		}
}

/* The other end has a stream that it could never use. */
static void test_idle_before_it_was_used(void **state)
{
	unsigned i;

	(void)state;
	for (i = 0; i < 2; i++) {
		struct end *e = &ends[i], *other = &ends[1 - i];

		ends_meet(0);
		assert_true(end_promote(e));
		ends_some_bytes(10);
		look(2000000);
		look(2000000 + IDLE_NS);
		assert_true(e->s->stream->back.on);
		rest();
		ends_some_bytes(10);
		ends_prepare();
		assert_true(end_promote(e) && end_promote(other));
		ends_some_bytes(10);
		assert_int_equal(sock_row(e->s)->tx_stream, 10);
		ends_part();
	}
}
/* All of it in any order, with bytes all the time. */
static void to_and_fro(uint64_t seed)
{
	unsigned i, promoted = 0;

	prng_init(&rng, seed);
	ends_meet(prng_below(&rng, 3) ? 0 : 16384);
	for (i = 0; i < 600; i++) {
		uint32_t n;
		struct end *e = any_end(&n);

		switch (prng_below(&rng, 8)) {
		case 0:
			end_put(e, n);
			break;
		case 1:
		case 2:
			end_get(e, n);
			break;
		case 3:
			if (end_rests(&ends[0]) && end_rests(&ends[1])) {
				ends_bury();
				ends_prepare();
			}
			break;
		case 4:
			if (end_mode(e) == SOCK_TCP && e->s->stream)
				promoted += end_promote(e);
			break;
		case 5:
			if (!prng_below(&rng, 4)) {
				pthread_mutex_lock(&st.lock);
				back_start(e->s, "it was idle", true);
				pthread_mutex_unlock(&st.lock);
			}
			break;
		case 6:
			ends_bury();
			break;
		default:
			end_step(e);
		}
		assert_int_not_equal(end_mode(e), SOCK_TIED);
	}
	assert_true(promoted > 1);
	end_shut(&ends[0]);
	end_shut(&ends[1]);
	for (i = 0; !(ends[0].eof && ends[1].eof) && i < 1000000; i++) {
		struct end *e = &ends[i & 1];

		if (!e->eof)
			end_get(e, ENDS_MUCH);
		end_step(e);
	}
	assert_true(ends[0].eof && ends[1].eof);
	assert_int_equal(ends[0].read, ends[1].wrote);
	assert_int_equal(ends[1].read, ends[0].wrote);
	ends_part();
}

static void test_to_and_fro(void **state)
{
	uint64_t seed;

	(void)state;
	for (seed = 1; seed <= 100; seed++)
		to_and_fro(seed);
}

static int up(void **state)
{
	(void)state;
	return ends_up(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_unread_bytes_at_the_switch),
		cmocka_unit_test(test_pieces_before_the_switch),
		cmocka_unit_test(test_writer_waits_for_accept),
		cmocka_unit_test(test_back_with_all_full),
		cmocka_unit_test(test_back_waits_for_the_other_end),
		cmocka_unit_test(test_end_goes_back_too),
		cmocka_unit_test(test_end_stays_an_end),
		cmocka_unit_test(test_closed_on_the_way_back),
		cmocka_unit_test(test_close_of_a_shared_socket),
		cmocka_unit_test(test_any_order),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_closed_before),
		cmocka_unit_test(test_idle_rests),
		cmocka_unit_test(test_not_idle),
		cmocka_unit_test(test_idle_then_for_good),
		cmocka_unit_test(test_idle_before_it_was_used),
		cmocka_unit_test(test_to_and_fro),
	};

	return cmocka_run_group_tests(tests, up, ends_down);
}
