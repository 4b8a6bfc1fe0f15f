/* SPDX-License-Identifier: MIT */
/*
 * test_switch.c - a connection goes to a stream and back: both ends in this
 * process, on a TCP connection and on streams of soft, with no helper's thread.
 * The test says who promotes, hands back, steps, reads, writes and closes, and
 * when. Bytes follow from their offset: one that is lost, doubled or in another
 * place is seen.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sanitizer/asan_interface.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/prng.h"
#include "bind/socket/back.h"
#include "bind/socket/idle.h"
#include "bind/socket/pollers.h"
#include "bind/socket/set.h"
#include "bind/socket/sock.h"
#include "bind/socket/wait.h"
#include "env/env.h"
#include "unit/part.h"
#include "unit/patience.h"
#include "unit/stream/pair.h"

#define WAIT_NS patience_ns(30)
#define MUCH 100000u

/* 0 connects, 1 accepts. */
static struct end {
	int fd;
	struct sock *s;
	uint64_t wrote, read;
	bool shut, eof, closed;
} ends[2];
static struct skein_env *env;
static struct stream_pair pair;
static struct prng rng;

/* --- what the helper's thread would do ----------------------------------- */

void helper_ask(struct sock *s)
{
	(void)s;
	fail();
}

void helper_free(struct stream *stream)
{
	stream_leave(stream);
}

void meeting_drop(struct meeting *m, bool refuses)
{
	(void)m;
	fail();
}

int names_of(int fd, struct meet_names *names)
{
	(void)fd;
	(void)names;
	return -EINVAL;
}

void report_with(const struct sock *s, char *buf, size_t len)
{
	(void)s;
	snprintf(buf, len, " with a peer");
}

void report_line(struct sock *s)
{
	(void)s;
}

static void bury(void)
{
	uint64_t end = env_now_ns(env) + WAIT_NS;

	pthread_mutex_lock(&st.lock);
	while ((!list_empty(&pair.qp[0]->left) ||
		!list_empty(&pair.qp[1]->left)) &&
	       env_now_ns(env) < end)
		stream_pair_poll(&pair);
	pthread_mutex_unlock(&st.lock);
}

static int mode_of(const struct end *e)
{
	return atomic_load(&e->s->mode);
}

/* One round for this end. */
static void step(struct end *e)
{
	struct stream *heard;
	struct stream_qp *q;
	struct set *set;

	if (e->closed)
		return;
	pthread_mutex_lock(&st.lock);
	if (e->s->stream) {
		q = e->s->stream->qp;
		stream_qp_poll(q);
		while ((heard = stream_qp_woken(q))) {
			set = heard == e->s->stream ? wait_hear(e->s) : NULL;
			if (set)
				set_wake(set);
		}
		if (mode_of(e) == SOCK_TCP && e->s->stream &&
		    stream_peer_stopped(e->s->stream))
			sock_unprepare(e->s);
	}
	/* Of a socket that is not on its way it asks what the peer says. */
	back_step(e->s);
	pthread_mutex_unlock(&st.lock);
}

static bool promote(struct end *e)
{
	struct stream *its = ends[e == ends].s->stream;
	uint64_t end = env_now_ns(env) + WAIT_NS;
	bool on;

	pthread_mutex_lock(&st.lock);
	on = sock_commit(e->s);
	/* The first WRITE of a QP may wait for the peer's. */
	while (on && its && !stream_accepted(its) && env_now_ns(env) < end) {
		stream_pair_poll(&pair);
	}
	pthread_mutex_unlock(&st.lock);
	return on;
}

static void hand_back(struct end *e)
{
	pthread_mutex_lock(&st.lock);
	back_start(e->s, "the test", false);
	pthread_mutex_unlock(&st.lock);
}

/* --- what the program does ----------------------------------------------- */

static uint8_t byte_at(const struct end *writer, uint64_t at)
{
	uint64_t x = (at + 1) * 0x9e3779b97f4a7c15ull;

	return (uint8_t)(x >> 33) ^ (uint8_t)(writer - ends);
}

/* Bytes that were taken; 0: no room. */
static uint32_t put(struct end *e, uint32_t n)
{
	static uint8_t buf[MUCH];
	struct iovec iov = {buf, n};
	ssize_t rc;
	uint32_t i;

	for (i = 0; i < n; i++)
		buf[i] = byte_at(e, e->wrote + i);
	do {
		if (sock_begin(e->s))
			rc = sock_done(e->s, send(e->fd, buf, n, MSG_NOSIGNAL),
				       &sock_row(e->s)->tx_tcp);
		else
			rc = sock_send(e->fd, e->s, &iov, 1, MSG_NOSIGNAL);
	} while (rc == SOCK_RETRY);
	if (rc < 0) {
		assert_int_equal(errno, EAGAIN);
		return 0;
	}
	e->wrote += (uint64_t)rc;
	return (uint32_t)rc;
}

/* Bytes that were there, up to n; each is the one that follows. */
static uint32_t get(struct end *e, uint32_t n)
{
	static uint8_t buf[MUCH];
	struct end *peer = &ends[e == ends];
	struct iovec iov = {buf, n};
	ssize_t rc, i;

	do {
		if (sock_begin(e->s))
			rc = sock_done(e->s, recv(e->fd, buf, n, 0),
				       &sock_row(e->s)->rx_tcp);
		else
			rc = sock_recv(e->fd, e->s, &iov, 1, 0, NULL);
	} while (rc == SOCK_RETRY);
	if (rc < 0) {
		assert_int_equal(errno, EAGAIN);
		return 0;
	}
	for (i = 0; i < rc; i++)
		if (buf[i] != byte_at(peer, e->read + (uint64_t)i))
			fail_msg("end %d: byte %llu", (int)(e - ends),
				 (unsigned long long)e->read +
					 (unsigned long long)i);
	e->read += (uint64_t)rc;
	assert_true(e->read <= peer->wrote);
	e->eof = !rc;
	assert_true(!e->eof || peer->shut || peer->closed);
	return (uint32_t)rc;
}

/* Up to this byte, as it comes. */
static void get_to(struct end *e, uint64_t at, uint32_t piece)
{
	uint64_t end = env_now_ns(env) + WAIT_NS;

	while (e->read < at && env_now_ns(env) < end)
		get(e, piece < at - e->read ? piece : (uint32_t)(at - e->read));
	assert_int_equal(e->read, at);
}

static void get_all(struct end *e)
{
	get_to(e, ends[e == ends].wrote, MUCH);
}

static void get_end(struct end *e)
{
	uint64_t end = env_now_ns(env) + WAIT_NS;

	get_all(e);
	while (!e->eof && env_now_ns(env) < end) {
		uint32_t ready = 0;

		pthread_mutex_lock(&st.lock);
		if (mode_of(e) == SOCK_ON)
			ready = sock_ready(e->s, EPOLLIN);
		pthread_mutex_unlock(&st.lock);
		assert_false(ready & EPOLLERR);
		get(e, MUCH);
	}
	assert_true(e->eof);
}

static void shut(struct end *e)
{
	int rc;

	do {
		if (sock_begin(e->s)) {
			rc = shutdown(e->fd, SHUT_WR);
			sock_end(e->s);
		} else {
			rc = sock_shutdown(e->fd, e->s, SHUT_WR);
		}
	} while (rc == SOCK_RETRY);
	assert_int_equal(rc, 0);
	e->shut = true;
}

/* The status page counts the program's bytes, each once, whatever carried it. */
static void count_all(const struct end *e)
{
	const struct status_row *row = sock_row(e->s);

	assert_int_equal(row->tx_tcp + row->tx_stream, e->wrote);
	assert_int_equal(row->rx_tcp + row->rx_stream, e->read);
}

static void close_end(struct end *e)
{
	if (e->closed)
		return;
	count_all(e);
	sock_forget(e->fd);
	close(e->fd);
	e->closed = true;
}

/* --- up and down --------------------------------------------------------- */

static void small(int fd, int buffers)
{
	if (!buffers)
		return;
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffers,
				    sizeof(buffers)),
			 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffers,
				    sizeof(buffers)),
			 0);
}

/* Both ends get a stream. */
static void prepare(void)
{
	struct stream *two[2];
	int i;

	/* The helper would make larger rings. */
	stream_pair_grows(&pair, 64 << 10, STREAM_RING_MAX, two);
	for (i = 0; i < 2; i++) {
		assert_null(ends[i].s->stream);
		two[i]->user = ends[i].s;
		ends[i].s->stream = two[i];
		ends[i].s->prepared = true;
	}
}

/* A TCP connection whose ends have met: each may be promoted. buffers: of the
 * kernel's; 0: as they are. */
static void meet(int buffers)
{
	struct sockaddr_in sin = {.sin_family = AF_INET};
	socklen_t len = sizeof(sin);
	int at = socket(AF_INET, SOCK_STREAM, 0), i;

	memset(ends, 0, sizeof(ends));
	sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	small(at, buffers);
	assert_int_equal(bind(at, (void *)&sin, sizeof(sin)), 0);
	assert_int_equal(listen(at, 1), 0);
	assert_int_equal(getsockname(at, (void *)&sin, &len), 0);
	ends[0].fd = socket(AF_INET, SOCK_STREAM, 0);
	small(ends[0].fd, buffers);
	assert_int_equal(connect(ends[0].fd, (void *)&sin, sizeof(sin)), 0);
	ends[1].fd = accept(at, NULL, NULL);
	assert_true(ends[1].fd >= 0);
	close(at);
	for (i = 0; i < 2; i++) {
		fcntl(ends[i].fd, F_SETFL, O_NONBLOCK);
		sock_track(ends[i].fd, i == 1);
		ends[i].s = sock_at(ends[i].fd);
		assert_non_null(ends[i].s);
	}
	prepare();
}

static void part(void)
{
	close_end(&ends[0]);
	close_end(&ends[1]);
	bury();
}

/* Functions of the world that a test puts its own in front of. The device's
 * control thread calls them too, so they stand there from the start. */
enum {
	HOOK_CLOCK = 1, /* of the test's thread */
	HOOK_IDLE = 2,
	HOOK_CORE = 4,
};

static atomic_uint hooks;
static pthread_t test_thread;
static struct env_ops real_ops, hook_ops;

static uint64_t test_now_ns(struct skein_env *e);
static enum env_idle_verdict test_idle(struct env_waiter *w, unsigned round);
static bool test_core_wanted(struct env_waiter *w);

static uint64_t hook_now_ns(struct skein_env *e)
{
	return atomic_load(&hooks) & HOOK_CLOCK &&
			       pthread_equal(pthread_self(), test_thread)
		       ? test_now_ns(e)
		       : real_ops.now_ns(e);
}

/* How often a thread that ends something has given way. */
static atomic_uint yields;
static _Thread_local bool is_ending;

static void hook_yield(struct skein_env *e)
{
	if (is_ending)
		atomic_fetch_add(&yields, 1);
	real_ops.yield(e);
}

static enum env_idle_verdict hook_idle(struct env_waiter *w, unsigned round)
{
	return atomic_load(&hooks) & HOOK_IDLE ? test_idle(w, round)
					       : real_ops.idle(w, round);
}

static bool hook_core_wanted(struct env_waiter *w)
{
	return atomic_load(&hooks) & HOOK_CORE ? test_core_wanted(w)
					       : real_ops.core_wanted(w);
}

static void hooks_set(void)
{
	test_thread = pthread_self();
	real_ops = hook_ops = *env->ops;
	hook_ops.now_ns = hook_now_ns;
	hook_ops.yield = hook_yield;
	hook_ops.idle = hook_idle;
	hook_ops.core_wanted = hook_core_wanted;
	env->ops = &hook_ops;
}

static int up(void **state)
{
	(void)state;
	assert_int_equal(env_real_new(&env), 0);
	hooks_set();
	stream_pair_up(&pair, env);
	st.env = env;
	st.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	st.after = UINT32_MAX / 2; /* the test promotes */
	return st.wake_fd < 0;
}

static int down(void **state)
{
	(void)state;
	/* Where a test failed sockets are left. */
	atomic_store(&st.on, false);
	stream_pair_down(&pair);
	close(st.wake_fd);
	env_real_free(env);
	return 0;
}

/* On TCP for good. One that had shut down before it was promoted counts as
 * ended. */
static bool is_back(const struct end *e)
{
	return mode_of(e) == SOCK_TIED ||
	       (mode_of(e) == SOCK_TCP && !e->s->stream &&
		(e->shut || ends[e == ends].shut) &&
		atomic_load(&e->s->next_try) == UINT_MAX);
}

/* Both ends are on TCP again. */
static bool both_back(void)
{
	return is_back(&ends[0]) && is_back(&ends[1]);
}

/* Until then; an end reads only where TCP has no more room. */
static void go_back(void)
{
	uint64_t end = env_now_ns(env) + WAIT_NS;
	int i;

	for (i = 0; !both_back() && env_now_ns(env) < end; i++) {
		step(&ends[i & 1]);
		bury();
		if (i > 20)
			get(&ends[i & 1], MUCH);
	}
	assert_true(both_back());
}

/* --- the tests ----------------------------------------------------------- */

/* The reader has read some of what came by TCP; more came after it accepted. */
static void over(struct end *w, struct end *r, uint32_t before, uint32_t taken,
		 uint32_t after, uint32_t piece)
{
	meet(0);
	assert_int_equal(put(w, before), before);
	get_to(r, taken, MUCH);
	assert_true(promote(r));
	if (after)
		assert_int_equal(put(w, after), after);
	assert_true(promote(w));
	assert_int_equal(put(w, 3000), 3000);
	assert_int_equal(sock_row(w->s)->tx_stream, 3000);
	get_to(r, w->wrote, piece);
	assert_int_equal(sock_row(r->s)->rx_stream, 3000);
	assert_int_equal(r->s->tcp_read, before + after);
	shut(w);
	get_end(r);
	part();
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
	meet(0);
	assert_true(promote(r));
	assert_int_equal(put(w, 4), 4);
	assert_int_equal(sock_recv(r->fd, r->s, iov, 3, 0, NULL), 4);
	assert_int_equal(c[0], byte_at(w, 3));
	assert_int_equal(put(w, 5), 5);
	assert_true(promote(w));
	assert_int_equal(put(w, 4), 4);
	assert_int_equal(sock_row(w->s)->tx_stream, 4);
	r->read = 4;
	get_to(r, 5, 1); /* finds the SWITCH */
	assert_int_equal(sock_recv(r->fd, r->s, iov, 3, 0, NULL), 4);
	assert_int_equal(c[0], byte_at(w, 8));
	r->read = 9;
	get_all(r);
	part();
}

/* A reader that has not accepted has its bytes by TCP. */
static void test_writer_waits_for_accept(void **state)
{
	(void)state;
	meet(0);
	assert_true(promote(&ends[0]));
	assert_int_equal(put(&ends[0], 100), 100);
	assert_false(ends[0].s->tx_on);
	get_all(&ends[1]);
	/* The other end has accepted. */
	assert_int_equal(put(&ends[1], 100), 100);
	assert_false(ends[1].s->tx_on);
	assert_true(promote(&ends[1]));
	assert_int_equal(put(&ends[1], 100), 100);
	assert_true(ends[1].s->tx_on);
	get_all(&ends[0]);
	part();
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
		meet(16384);
		while (put(w, 10000))
			;
		assert_true(promote(w));
		assert_true(promote(r));
		assert_true(put(w, MUCH) > 50000);
		while (put(w, 10000))
			;
		hand_back(who & 2 ? w : r);
		/* Its bytes before go first. */
		assert_int_equal(put(w, 1), 0);
		step(w);
		step(r);
		step(w);
		assert_int_equal(put(w, 1), 0);
		assert_false(w->s->stream->back.moved);
		assert_int_equal(mode_of(r), SOCK_ON);
		end = env_now_ns(env) + WAIT_NS;
		while (mode_of(w) == SOCK_ON && env_now_ns(env) < end) {
			assert_int_equal(put(r, 10), 10);
			get(r, 5000);
			step(w);
			step(r);
		}
		go_back();
		get_all(r);
		assert_int_equal(put(w, 10), 10);
		shut(w);
		get_end(r);
		get_all(w);
		part();
	}
}

/* Neither end is on TCP before the other one has moved its bytes. */
static void test_back_waits_for_the_other_end(void **state)
{
	struct end *a = &ends[0], *b = &ends[1];

	(void)state;
	meet(0);
	assert_true(promote(a) && promote(b));
	assert_int_equal(put(a, 500), 500);
	assert_int_equal(put(b, 600), 600);
	assert_int_equal(get(a, 7), 7);
	hand_back(a);
	step(a);
	step(a);
	assert_int_equal(mode_of(a), SOCK_ON);
	assert_false(a->s->stream->back.moved);
	assert_int_equal(put(a, 1), 0);
	step(b); /* hears it, and sends what a has not read */
	assert_true(b->s->stream->back.moved);
	assert_int_equal(mode_of(b), SOCK_ON);
	assert_int_equal(put(b, 11), 11);
	step(a);
	assert_int_equal(mode_of(a), SOCK_TIED);
	assert_int_equal(put(a, 12), 12);
	step(b);
	assert_true(both_back());
	get_all(a);
	get_all(b);
	part();
}

/* The end that a program has said is TCP's then, read or not. */
static void test_end_goes_back_too(void **state)
{
	int i;

	(void)state;
	for (i = 0; i < 8; i++) {
		struct end *w = &ends[i & 1], *r = &ends[1 - (i & 1)];

		meet(0);
		assert_true(promote(w) && promote(r));
		assert_int_equal(put(w, 100), 100);
		assert_int_equal(put(r, 100), 100);
		shut(w);
		if (i & 2)
			get_end(r);
		r->eof = false;
		hand_back(i & 4 ? w : r);
		go_back();
		get_end(r);
		assert_int_equal(put(r, 10), 10);
		get_all(w);
		part();
	}
}

/* Nor does it go back where the other end has read it and closed: the program has
 * said its end, and what it writes then is refused. */
static void test_end_stays_an_end(void **state)
{
	struct end *w = &ends[0], *r = &ends[1];

	(void)state;
	meet(0);
	assert_true(promote(w) && promote(r));
	assert_int_equal(put(w, 100), 100);
	shut(w);
	get_end(r);
	close_end(r);
	bury();
	hand_back(w);
	step(w);
	assert_int_not_equal(mode_of(w), SOCK_ON);
	assert_int_equal(send(w->fd, "x", 1, MSG_NOSIGNAL), -1);
	assert_int_equal(errno, EPIPE);
	part();
}

/* A writer that closes, however far it has come on the way back, leaves all that
 * it wrote, and an end: no reset. */
static void close_after(unsigned steps, bool by_writer, bool full)
{
	struct end *w = &ends[0], *r = &ends[1];
	unsigned i;

	meet(full ? 16384 : 0);
	while (full && put(w, 10000))
		;
	assert_true(promote(w) && promote(r));
	assert_int_equal(put(w, 20000), 20000);
	hand_back(by_writer ? w : r);
	for (i = 0; i < steps; i++) {
		step(&ends[(i + by_writer) & 1]);
		if (full)
			get(r, 3000);
	}
	close_end(w);
	bury();
	for (i = 0; i < 5; i++)
		step(r);
	get_end(r);
	part();
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
	meet(0);
	assert_true(promote(a) && promote(b));
	assert_int_equal(put(a, 500), 500);
	assert_int_equal(put(b, 600), 600);
	a->s->shared = true;
	sock_forget(a->fd);
	assert_null(sock_at(a->fd));
	assert_int_equal(st.closed, 1);
	while (st.closed) {
		step(b);
		step(a);
		back_round();
	}
	step(b);
	assert_int_equal(mode_of(b), SOCK_TIED);
	/* The child's copy. */
	fcntl(a->fd, F_SETFL, 0);
	n = recv(a->fd, buf, sizeof(buf), MSG_WAITALL);
	assert_int_equal(n, 600);
	for (i = 0; i < 600; i++)
		assert_int_equal(buf[i], byte_at(b, i));
	byte = byte_at(a, a->wrote++);
	assert_int_equal(send(a->fd, &byte, 1, 0), 1);
	get_all(b);
	close(a->fd);
	a->closed = true;
	get_end(b);
	part();
}

/* Everything in any order, by either end. */
static void any_order(uint64_t seed)
{
	unsigned to, back, ends_at, i;

	prng_init(&rng, seed);
	meet(prng_below(&rng, 3) ? 0 : 16384);
	to = (unsigned)prng_below(&rng, 60);
	back = to + (unsigned)prng_below(&rng, 120);
	ends_at = to + (unsigned)prng_below(&rng, 300);
	for (i = 0; i < 300; i++) {
		struct end *e = &ends[prng_below(&rng, 2)];
		uint32_t n = 1 + (uint32_t)prng_below(&rng, prng_below(&rng, 4)
								    ? 900
								    : 30000);

		switch (prng_below(&rng, 8)) {
		case 0:
		case 1:
			if (!e->shut)
				put(e, n);
			break;
		case 2:
			get(e, n);
			break;
		case 3:
			if (i >= to && mode_of(e) == SOCK_TCP)
				promote(e);
			break;
		case 4:
			if (i >= back)
				hand_back(e);
			break;
		case 5:
			if (i >= ends_at && !e->shut)
				shut(e);
			break;
		case 6:
			bury();
			break;
		default:
			step(e);
		}
	}
	for (i = 0; i < 2; i++)
		if (mode_of(&ends[i]) == SOCK_TCP)
			promote(&ends[i]);
	hand_back(&ends[seed & 1]);
	hand_back(&ends[1 - (seed & 1)]);
	go_back();
	for (i = 0; i < 2; i++)
		if (!ends[i].shut)
			shut(&ends[i]);
	get_end(&ends[0]);
	get_end(&ends[1]);
	part();
}

static void test_any_order(void **state)
{
	uint64_t seed;

	(void)state;
	for (seed = 1; seed <= part_rounds(150); seed++)
		any_order(seed);
}

/* An end that has a stream refuses it: the other one, which is on its stream,
 * or on its way back, is told, and does not take it for the connection's end. */
static void refused(bool on_the_way_back)
{
	struct end *a = &ends[0], *b = &ends[1];
	uint64_t end = env_now_ns(env) + WAIT_NS;

	meet(0);
	assert_int_equal(put(a, 500), 500);
	assert_true(promote(a));
	if (on_the_way_back)
		hand_back(a);
	pthread_mutex_lock(&st.lock);
	sock_tie_locked(b->s, "the test");
	pthread_mutex_unlock(&st.lock);
	while (mode_of(a) == SOCK_ON && env_now_ns(env) < end) {
		step(a);
		bury();
	}
	assert_int_equal(mode_of(a), SOCK_TIED);
	assert_int_equal(put(b, 600), 600);
	get_all(a);
	get_all(b);
	part();
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
	uint64_t end = env_now_ns(env) + WAIT_NS;

	meet(0);
	assert_int_equal(put(a, 500), 500);
	get_all(b);
	assert_true(promote(a));
	if (on_the_way_back)
		hand_back(a);
	assert_int_equal(put(b, 600), 600);
	close_end(b);
	while (mode_of(a) == SOCK_ON && env_now_ns(env) < end) {
		step(a);
		bury();
	}
	assert_int_equal(mode_of(a), on_the_way_back ? SOCK_TIED : SOCK_TCP);
	get_end(a);
	part();
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

/* On TCP, without a stream, until there is traffic. */
static bool rests(const struct end *e)
{
	return mode_of(e) == SOCK_TCP && !e->s->stream && e->s->rests;
}

static void rest(void)
{
	uint64_t end = env_now_ns(env) + WAIT_NS;
	int i;

	for (i = 0;
	     !(rests(&ends[0]) && rests(&ends[1])) && env_now_ns(env) < end;
	     i++) {
		step(&ends[i & 1]);
		bury();
	}
	assert_true(rests(&ends[0]) && rests(&ends[1]));
	bury();
}

static void some_bytes(uint32_t n)
{
	int i;

	for (i = 0; i < 2; i++)
		assert_int_equal(put(&ends[i], n), n);
	for (i = 0; i < 2; i++)
		get_all(&ends[i]);
}

/* The look that comes IDLE_NS after the last byte, and no earlier one. which: the
 * ends that it is for, a bit each. */
static void idle_for_long(unsigned which)
{
	const uint64_t at = 1000000000;
	unsigned i;

	look(at);
	some_bytes(300);
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
		meet(0);
		for (i = 1; i < 5; i++) {
			assert_true(promote(&ends[i & 1]));
			assert_true(promote(&ends[1 - (i & 1)]));
			some_bytes(600);
			idle_for_long(which);
			rest();
			assert_int_equal(pair.host[0].mem, 0);
			assert_int_equal(pair.host[1].mem, 0);
			some_bytes(500);
			for (k = 0; k < 2; k++) {
				assert_int_equal(ends[k].s->demotions, i);
				assert_int_equal(sock_row(ends[k].s)->tx_stream,
						 900 * i);
			}
			prepare();
		}
		part();
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

		meet(0);
		assert_true(promote(e) && promote(other));
		some_bytes(10);
		if (i & 2)
			shut(e);
		else
			while (put(e, 5000))
				;
		look(2000000);
		look(2000000 + IDLE_NS);
		assert_false(e->s->stream->back.on);
		assert_false(other->s->stream->back.on);
		get_all(other);
		part();
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
			uint64_t end = env_now_ns(env) + WAIT_NS;
			unsigned k;

			meet(0);
			assert_true(promote(e) && promote(other));
			some_bytes(10);
			idle_for_long(1);
			for (k = 0; k < steps; k++)
				step(&ends[k & 1]);
			hand_back(e);
			pthread_mutex_lock(&st.lock);
			sock_tie_locked(e->s, "the test");
			pthread_mutex_unlock(&st.lock);
			while ((mode_of(e) == SOCK_ON ||
				mode_of(other) == SOCK_ON) &&
			       env_now_ns(env) < end)
				step(&ends[k++ & 1]);
			assert_int_equal(mode_of(e), SOCK_TIED);
			assert_true(mode_of(other) == SOCK_TIED ||
				    rests(other));
			some_bytes(10);
			part();
		}
}

/* The other end has a stream that it could never use. */
static void test_idle_before_it_was_used(void **state)
{
	unsigned i;

	(void)state;
	for (i = 0; i < 2; i++) {
		struct end *e = &ends[i], *other = &ends[1 - i];

		meet(0);
		assert_true(promote(e));
		some_bytes(10);
		look(2000000);
		look(2000000 + IDLE_NS);
		assert_true(e->s->stream->back.on);
		rest();
		some_bytes(10);
		prepare();
		assert_true(promote(e) && promote(other));
		some_bytes(10);
		assert_int_equal(sock_row(e->s)->tx_stream, 10);
		part();
	}
}

/* --- threads that wait meanwhile ------------------------------------------ */

static struct waits {
	struct end *e;
	int epfd; /* or -1: blocking calls */
	uint32_t events;
	_Atomic uint64_t read, end;
} waits;

/* What the helper's thread does between two calls of the program. */
static void rounds(void)
{
	step(&ends[0]);
	step(&ends[1]);
	sched_yield();
}

/* Reads in the thread, up to n. */
static ssize_t take_here(uint32_t n, int flags)
{
	const struct end *writer = &ends[waits.e == ends];
	uint8_t buf[1000];
	struct iovec iov = {buf, n};
	struct sock *s = waits.e->s;
	ssize_t rc, i;

	do {
		if (sock_begin(s))
			rc = sock_done(s, recv(waits.e->fd, buf, n, flags),
				       &sock_row(s)->rx_tcp);
		else
			rc = sock_recv(waits.e->fd, s, &iov, 1, flags, NULL);
	} while (rc == SOCK_RETRY);
	for (i = 0; i < rc; i++)
		assert_int_equal(buf[i],
				 byte_at(writer, waits.read + (uint64_t)i));
	waits.read += rc > 0 ? (uint64_t)rc : 0;
	return rc;
}

static void *wait_in_call(void *arg)
{
	/* All of it, though the stream may go back in the middle. */
	while (waits.read < waits.end)
		assert_int_equal(take_here(8, MSG_WAITALL), 8);
	return arg;
}

static void *wait_at_set(void *arg)
{
	struct epoll_event ev;

	while (waits.read < waits.end) {
		assert_int_equal(set_wait(waits.epfd, &ev, 1, (int64_t)WAIT_NS,
					  NULL),
				 1);
		while (take_here(3, 0) > 0)
			if (!(waits.events & EPOLLET))
				break;
	}
	return arg;
}

/* The waiting thread has all that was written. */
static void all_read(uint64_t at)
{
	uint64_t end = env_now_ns(env) + WAIT_NS;

	while (waits.read < at && env_now_ns(env) < end)
		rounds();
	assert_int_equal(waits.read, at);
}

#define TURNS 6u

/* A byte by TCP and one by a stream, by turns, while one thread reads all. */
static void wait_all_the_time(int epfd, uint32_t events)
{
	struct end *w = &ends[0], *r = &ends[1];
	struct epoll_event ev = {.events = events};
	pthread_t thread;
	unsigned i;

	meet(0);
	waits = (struct waits){r, epfd, events, 0, TURNS * 16};
	if (epfd >= 0)
		assert_int_equal(set_ctl(epfd, EPOLL_CTL_ADD, r->fd, r->s, &ev),
				 0);
	else
		fcntl(r->fd, F_SETFL, 0);
	assert_int_equal(pthread_create(&thread, NULL,
					epfd < 0 ? wait_in_call : wait_at_set,
					NULL),
			 0);
	for (i = 0; i < TURNS; i++) {
		/* A blocked call promotes its end as it ends. */
		if (epfd < 0)
			atomic_store(&r->s->next_try, 0);
		assert_int_equal(put(w, 4), 4);
		while (!promote(w))
			rounds();
		assert_int_equal(put(w, 4), 4);
		all_read(w->wrote);
		while (mode_of(r) != SOCK_ON) {
			waits.end += 8;
			assert_int_equal(put(w, 8), 8);
			all_read(w->wrote);
			if (epfd >= 0)
				promote(r);
		}
		assert_int_equal(put(w, 4), 4);
		rounds();
		pthread_mutex_lock(&st.lock);
		back_start(ends[i & 1].s, "it was idle", true);
		pthread_mutex_unlock(&st.lock);
		while (!(rests(w) && rests(r)))
			rounds();
		bury();
		assert_int_equal(put(w, 4), 4);
		if (i + 1 < TURNS)
			prepare();
	}
	pthread_join(thread, NULL);
	r->read = waits.read;
	assert_int_equal(r->read, w->wrote);
	part();
}

static void test_waiting_threads(void **state)
{
	int epfd;

	(void)state;
	wait_all_the_time(-1, 0);
	epfd = epoll_create1(EPOLL_CLOEXEC);
	wait_all_the_time(epfd, EPOLLIN);
	wait_all_the_time(epfd, EPOLLIN | EPOLLET | EPOLLRDHUP);
	set_forget(epfd);
	close(epfd);
}

/* --- before a sleep ------------------------------------------------------- */

/* An environment with no patience of its own, and the test's clock, which each
 * look moves on. */
static uint64_t clock_ns, clock_step_ns;
static bool core_is_wanted;
/* What happens in each round of a wait of the test's thread, or NULL. */
static enum env_idle_verdict (*in_round)(void);

static uint64_t test_now_ns(struct skein_env *e)
{
	(void)e;
	clock_ns += clock_step_ns;
	return clock_ns;
}

static enum env_idle_verdict test_idle(struct env_waiter *w, unsigned round)
{
	(void)w;
	(void)round;
	return in_round && pthread_equal(pthread_self(), test_thread)
		       ? in_round()
		       : ENV_IDLE_SLEEP;
}

static bool test_core_wanted(struct env_waiter *w)
{
	(void)w;
	return core_is_wanted;
}

/* The reader asks for a bell, as it does before it sleeps at a set. The writer
 * writes before it hears of that, or behind its answer, or not. Is the reader
 * woken? */
static bool wakes_a_sleeper(bool before, bool behind, uint32_t events)
{
	struct end *w = &ends[0], *r = &ends[1];
	struct epoll_event ev = {.events = events};
	int epfd = epoll_create1(EPOLL_CLOEXEC);
	bool woken;

	meet(0);
	assert_int_equal(set_ctl(epfd, EPOLL_CTL_ADD, r->fd, r->s, &ev), 0);
	assert_true(promote(w) && promote(r));
	some_bytes(10);
	while (set_wait(epfd, &ev, 1, 0, NULL) > 0)
		;
	r->s->set->armed = true;
	sock_ask(r->s);
	if (before)
		assert_int_equal(put(w, 4), 4);
	step(w);
	step(r);
	assert_int_equal(r->s->stream->sleep, STREAM_ASLEEP);
	if (behind)
		assert_int_equal(put(w, 4), 4);
	step(r);
	woken = !r->s->set->armed;
	part();
	set_forget(epfd);
	close(epfd);
	return woken;
}

static void test_only_bytes_wake(void **state)
{
	static const uint32_t events[] = {EPOLLIN,
					  EPOLLIN | EPOLLOUT | EPOLLET};
	unsigned i;

	(void)state;
	for (i = 0; i < 2; i++) {
		assert_false(wakes_a_sleeper(false, false, events[i]));
		assert_true(wakes_a_sleeper(true, false, events[i]));
		assert_true(wakes_a_sleeper(false, true, events[i]));
	}
}

/* The same for a thread that sleeps in a blocking call. */
static void test_bytes_wake_a_call(void **state)
{
	struct end *w = &ends[0], *r = &ends[1];
	uint64_t asks = 0, end = env_now_ns(env) + WAIT_NS;
	pthread_t thread;

	(void)state;
	meet(0);
	assert_true(promote(w) && promote(r));
	some_bytes(10);
	fcntl(r->fd, F_SETFL, 0);
	r->s->nonblock = false;
	waits = (struct waits){r, -1, 0, r->read, r->read + 8};
	atomic_store(&hooks, HOOK_IDLE);
	assert_int_equal(pthread_create(&thread, NULL, wait_in_call, NULL), 0);
	while (!asks && env_now_ns(env) < end) {
		pthread_mutex_lock(&st.lock);
		asks = r->s->asks;
		pthread_mutex_unlock(&st.lock);
	}
	assert_int_equal(asks, 1);
	/* It sleeps; the writer has not answered yet. */
	assert_int_equal(put(w, 8), 8);
	all_read(w->wrote);
	pthread_join(thread, NULL);
	atomic_store(&hooks, 0);
	r->read = waits.read;
	part();
}

/* Waits in vain for 20 ms of the real clock; returns the questions that were
 * asked. step_ns: how fast the test's clock goes. */
static uint64_t asks_of_a_wait(uint64_t step_ns, bool wanted)
{
	struct end *e = &ends[1];
	struct epoll_event ev = {.events = EPOLLIN};
	int epfd = epoll_create1(EPOLL_CLOEXEC);
	uint64_t asks;

	meet(0);
	assert_int_equal(set_ctl(epfd, EPOLL_CTL_ADD, e->fd, e->s, &ev), 0);
	assert_true(promote(&ends[0]) && promote(e));
	some_bytes(10);
	/* The kernel's first events of the TCP socket are taken. */
	assert_int_equal(set_wait(epfd, &ev, 1, 0, NULL), 0);
	clock_ns = 1;
	clock_step_ns = step_ns;
	core_is_wanted = wanted;
	atomic_store(&hooks, HOOK_CLOCK | HOOK_IDLE | HOOK_CORE);
	assert_int_equal(set_wait(epfd, &ev, 1, 20000000, NULL), 0);
	atomic_store(&hooks, 0);
	asks = e->s->asks;
	part();
	set_forget(epfd);
	close(epfd);
	return asks;
}

static void test_patience_is_worth_the_questions(void **state)
{
	(void)state;
	assert_int_equal(asks_of_a_wait(0, false), 0);
	assert_int_equal(asks_of_a_wait(SOCK_ASK_NS, false), 1);
	assert_int_equal(asks_of_a_wait(0, true), 1);
}

/* How often is the peer asked in a wait that is in vain, by the mode? */
static uint64_t asks_in_mode(enum poller_mode mode, bool wanted)
{
	uint64_t asks;

	poller_set(&st.poller, mode);
	asks = asks_of_a_wait(SOCK_ASK_NS, wanted);
	poller_set(&st.poller, POLLER_ADAPTIVE);
	return asks;
}

static void test_modes(void **state)
{
	(void)state;
	assert_int_equal(asks_in_mode(POLLER_BP, false), 0);
	assert_int_equal(asks_in_mode(POLLER_BPTS, false), 0);
	/* Another thread computes on the core: also these sleep. */
	assert_int_equal(asks_in_mode(POLLER_BP, true), 1);
	assert_int_equal(asks_in_mode(POLLER_EVENT, false), 1);
	/* There is no polling thread here. */
	assert_int_equal(asks_in_mode(POLLER_BPEV, false), 1);
}

/* In event mode the peer is asked once: each record rings, and finds an end that
 * sleeps. An end that is awake is not rung awake. */
static void test_event_mode_asks_once(void **state)
{
	struct end *w = &ends[0], *r = &ends[1];
	struct epoll_event ev = {.events = EPOLLIN};
	int epfd = epoll_create1(EPOLL_CLOEXEC), i;
	uint64_t bells;

	(void)state;
	poller_set(&st.poller, POLLER_EVENT);
	meet(0);
	assert_int_equal(set_ctl(epfd, EPOLL_CTL_ADD, r->fd, r->s, &ev), 0);
	assert_true(promote(w) && promote(r));
	some_bytes(10);
	assert_true(sock_ask(r->s) || r->s->stream->sleep == STREAM_ASKED);
	step(w);
	step(r);
	assert_int_equal(r->s->stream->sleep, STREAM_ASLEEP);
	bells = w->s->stream->bells;
	for (i = 0; i < 3; i++) {
		r->s->set->armed = i != 1;
		assert_int_equal(put(w, 4), 4);
		step(r);
		assert_false(r->s->set->armed);
		assert_int_equal(set_wait(epfd, &ev, 1, 0, NULL), 1);
		get_all(r);
	}
	assert_int_equal(w->s->stream->bells, bells + 3);
	assert_int_equal(r->s->asks, 1);
	poller_set(&st.poller, POLLER_ADAPTIVE);
	part();
	set_forget(epfd);
	close(epfd);
}

/* A thread leaves a set with an event, of at most `max`, while another one
 * sleeps there, or none does. */
static void leave_set(unsigned sleepers, int max, uint64_t asks, bool woken)
{
	struct end *w = &ends[0], *r = &ends[1];
	struct epoll_event ev[2] = {{.events = EPOLLIN}};
	int epfd = epoll_create1(EPOLL_CLOEXEC);

	meet(0);
	assert_int_equal(set_ctl(epfd, EPOLL_CTL_ADD, r->fd, r->s, ev), 0);
	assert_true(promote(w) && promote(r));
	some_bytes(10);
	while (set_wait(epfd, ev, 1, 0, NULL) > 0)
		;
	assert_int_equal(put(w, 4), 4);
	r->s->set->sleepers = sleepers;
	r->s->set->armed = true;
	assert_int_equal(set_wait(epfd, ev, max, 0, NULL), 1);
	r->s->set->sleepers = 0;
	assert_int_equal(r->s->asks, asks);
	assert_int_equal(!r->s->set->armed, woken);
	part();
	set_forget(epfd);
	close(epfd);
}

/* It may stay away for long, so those that sleep on are left as if it slept,
 * too (tests/model/poller.pml, BROKEN_NO_HAND_OVER). */
static void test_hand_over(void **state)
{
	(void)state;
	leave_set(0, 1, 0, false);
	leave_set(1, 2, 1, false);
	/* There may be more than it could take. */
	leave_set(1, 1, 1, true);
}

/* All of it in any order, with bytes all the time. */
static void to_and_fro(uint64_t seed)
{
	unsigned i, promoted = 0;

	prng_init(&rng, seed);
	meet(prng_below(&rng, 3) ? 0 : 16384);
	for (i = 0; i < 600; i++) {
		struct end *e = &ends[prng_below(&rng, 2)];
		uint32_t n = 1 + (uint32_t)prng_below(&rng, prng_below(&rng, 4)
								    ? 900
								    : 30000);

		switch (prng_below(&rng, 8)) {
		case 0:
			put(e, n);
			break;
		case 1:
		case 2:
			get(e, n);
			break;
		case 3:
			if (rests(&ends[0]) && rests(&ends[1])) {
				bury();
				prepare();
			}
			break;
		case 4:
			if (mode_of(e) == SOCK_TCP && e->s->stream)
				promoted += promote(e);
			break;
		case 5:
			if (!prng_below(&rng, 4)) {
				pthread_mutex_lock(&st.lock);
				back_start(e->s, "it was idle", true);
				pthread_mutex_unlock(&st.lock);
			}
			break;
		case 6:
			bury();
			break;
		default:
			step(e);
		}
		assert_int_not_equal(mode_of(e), SOCK_TIED);
	}
	assert_true(promoted > 1);
	shut(&ends[0]);
	shut(&ends[1]);
	for (i = 0; !(ends[0].eof && ends[1].eof) && i < 1000000; i++) {
		struct end *e = &ends[i & 1];

		if (!e->eof)
			get(e, MUCH);
		step(e);
	}
	assert_true(ends[0].eof && ends[1].eof);
	assert_int_equal(ends[0].read, ends[1].wrote);
	assert_int_equal(ends[1].read, ends[0].wrote);
	part();
}

static void test_to_and_fro(void **state)
{
	uint64_t seed;

	(void)state;
	for (seed = 1; seed <= 100; seed++)
		to_and_fro(seed);
}

/* --- an end that takes nothing more -------------------------------------- */

/* What a peer that stands still does to a device: nothing completes. */
static struct ibv_cq *_Atomic held;
static int (*real_poll_cq)(struct ibv_cq *cq, int n, struct ibv_wc *wc);

static int held_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	return cq == atomic_load(&held) ? 0 : real_poll_cq(cq, n, wc);
}

static void hold(struct end *e)
{
	struct ibv_cq *cq = e->s->stream->qp->scq;

	real_poll_cq = cq->context->ops.poll_cq;
	cq->context->ops.poll_cq = held_poll_cq;
	atomic_store(&held, cq);
}

static const struct sockaddr unspec = {.sa_family = AF_UNSPEC};

static void by_close(struct end *e)
{
	sock_forget(e->fd);
}

static void by_shutdown(struct end *e)
{
	assert_int_equal(sock_shutdown(e->fd, e->s, SHUT_RDWR), 0);
}

static void by_connect(struct end *e)
{
	assert_int_equal(sock_disconnect(e->fd, e->s, &unspec, sizeof(unspec)),
			 0);
	sock_forget(e->fd);
}

/* One that fails, and ends nothing. */
static void by_exec(struct end *e)
{
	char *argv[] = {"none", NULL};

	(void)e;
	assert_int_equal(execv("/none/such", argv), -1);
	assert_int_equal(errno, ENOENT);
}

/* Both ends have met, and the helper's thread may promote at any moment, also
 * behind the last look that exec has at its streams. */
static void test_exec_ends_meetings(void **state)
{
	(void)state;
	meet(0);
	by_exec(&ends[0]);
	assert_false(promote(&ends[0]));
	assert_int_equal(put(&ends[0], 100), 100);
	get_all(&ends[1]);
	part();
}

static atomic_bool ended;
static void (*how)(struct end *e);

static void *end_one(void *arg)
{
	is_ending = true;
	how(arg);
	atomic_store(&ended, true);
	return NULL;
}

/* One end waits until its bytes are with a peer that takes none: the calls on
 * another stream go on meanwhile. */
static void others_go_on(void (*by)(struct end *e))
{
	struct ibv_context *context;
	pthread_t thread;
	unsigned i;

	meet(0);
	assert_true(promote(&ends[0]));
	assert_true(promote(&ends[1]));
	put(&ends[0], 100);
	assert_int_equal(put(&ends[1], 100), 100);
	get_all(&ends[1]);
	get_all(&ends[0]);
	put(&ends[0], 100);
	context = ends[0].s->stream->qp->scq->context;
	for (i = 0; i < 2; i++)
		fcntl(ends[i].fd, F_SETFD, FD_CLOEXEC);
	hold(&ends[0]);
	how = by;
	ends[0].shut = true;
	atomic_store(&ended, false);
	atomic_store(&yields, 0);
	assert_int_equal(pthread_create(&thread, NULL, end_one, &ends[0]), 0);
	/* Until the thread waits. */
	while (!atomic_load(&yields)) {
		assert_false(atomic_load(&ended));
		sched_yield();
	}
	for (i = 0; i < 100; i++) {
		put(&ends[1], 10);
		get(&ends[1], MUCH);
	}
	get_all(&ends[1]);
	assert_false(atomic_load(&ended));
	atomic_store(&held, NULL);
	pthread_join(thread, NULL);
	context->ops.poll_cq = real_poll_cq;
	assert_int_equal(st.draining, 0);
	if (by == by_close || by == by_connect) {
		close(ends[0].fd);
		ends[0].closed = true;
	}
	part();
}

static void test_close_holds_up_nobody(void **state)
{
	(void)state;
	others_go_on(by_close);
}

static void test_shutdown_holds_up_nobody(void **state)
{
	(void)state;
	others_go_on(by_shutdown);
}

static void test_connect_holds_up_nobody(void **state)
{
	(void)state;
	others_go_on(by_connect);
}

static void test_exec_holds_up_nobody(void **state)
{
	(void)state;
	others_go_on(by_exec);
}

static void *disconnect_cancelled(void *arg)
{
	struct end *e = arg;

	pthread_cancel(pthread_self());
	assert_int_equal(sock_disconnect(e->fd, e->s, &unspec, sizeof(unspec)),
			 0);
	pthread_testcancel();
	return NULL;
}

static int (*real_post_send)(struct ibv_qp *qp, struct ibv_send_wr *wr,
			     struct ibv_send_wr **bad);

/* A device may make any system call. */
static int post_send_cancels(struct ibv_qp *qp, struct ibv_send_wr *wr,
			     struct ibv_send_wr **bad)
{
	pthread_testcancel();
	return real_post_send(qp, wr, bad);
}

static void *start_back_cancelled(void *arg)
{
	struct end *e = arg;

	pthread_cancel(pthread_self());
	sock_start_back(e->s, "the test");
	pthread_testcancel();
	return NULL;
}

/* The thread ends behind the call, and the lock is free. */
static void ends_unlocked(void *(*fn)(void *), struct end *e)
{
	pthread_t thread;
	void *result;
	int rc;

	assert_int_equal(pthread_create(&thread, NULL, fn, e), 0);
	pthread_join(thread, &result);
	assert_ptr_equal(result, PTHREAD_CANCELED);
	rc = pthread_mutex_trylock(&st.lock);
	if (rc)
		pthread_mutex_init(&st.lock, NULL); /* for the other tests */
	else
		pthread_mutex_unlock(&st.lock);
	assert_int_equal(rc, 0);
}

/* connect() and a device's calls may end the thread, and run under the lock here. */
static void test_cancelled_without_the_lock(void **state)
{
	struct ibv_context *context;

	(void)state;
	meet(0);
	ends_unlocked(disconnect_cancelled, &ends[0]);
	part();
	meet(0);
	assert_true(promote(&ends[0]) && promote(&ends[1]));
	some_bytes(10);
	context = ends[0].s->stream->qp->scq->context;
	real_post_send = context->ops.post_send;
	context->ops.post_send = post_send_cancels;
	ends_unlocked(start_back_cancelled, &ends[0]);
	context->ops.post_send = real_post_send;
	assert_true(ends[0].s->stream->back.on);
	go_back();
	part();
}

/* AddressSanitizer marks the gaps of frames, and a thread that is cancelled leaves its
 * marks where it ends itself. */
static void unmark(void *arg)
{
	pthread_attr_t attr;
	void *stack;
	size_t len;

	(void)arg;
	assert_int_equal(pthread_getattr_np(pthread_self(), &attr), 0);
	pthread_attr_getstack(&attr, &stack, &len);
	pthread_attr_destroy(&attr);
	ASAN_UNPOISON_MEMORY_REGION(stack, len);
}

struct doomed {
	void *(*call)(void *arg);
	void *arg;
};

static void *doomed_main(void *arg)
{
	struct doomed *d = arg;

	pthread_cleanup_push(unmark, NULL);
	d->call(d->arg);
	pthread_cleanup_pop(0);
	return NULL;
}

/* The call cancels its thread, which ends there. */
static void ends_in(void *(*call)(void *arg), void *arg)
{
	struct doomed d = {call, arg};
	pthread_t thread;
	void *result;

	assert_int_equal(pthread_create(&thread, NULL, doomed_main, &d), 0);
	pthread_join(thread, &result);
	assert_ptr_equal(result, PTHREAD_CANCELED);
}

/* A thread that ends before what follows its call. */
static void *recv_cancelled(void *arg)
{
	struct end *e = arg;
	uint8_t byte;
	struct iovec iov = {&byte, 1};

	pthread_cancel(pthread_self());
	sock_recv(e->fd, e->s, &iov, 1, 0, NULL);
	return NULL;
}

static void *send_cancelled(void *arg)
{
	struct end *e = arg;
	uint8_t byte = 0;
	struct iovec iov = {&byte, 1};

	pthread_cancel(pthread_self());
	sock_send(e->fd, e->s, &iov, 1, MSG_NOSIGNAL);
	return NULL;
}

static void *poll_cancelled(void *arg)
{
	struct end *e = arg;
	struct pollfd fd = {e->fd, POLLIN, 0};

	pthread_cancel(pthread_self());
	wait_poll(&fd, 1, 0, NULL, "poll");
	return NULL;
}

static void *set_wait_cancelled(void *arg)
{
	struct end *e = arg;
	struct epoll_event ev;

	pthread_cancel(pthread_self());
	set_wait(e->s->set->fd, &ev, 1, 0, NULL);
	return NULL;
}

/* A thread never sleeps where its stream has work at all times: its next call ends it,
 * as the kernel's would, and has done nothing then. */
static void test_cancelled_at_work(void **state)
{
	void *(*const calls[])(void *) = {recv_cancelled, send_cancelled,
					  poll_cancelled, set_wait_cancelled};
	struct epoll_event ev = {.events = EPOLLIN};
	int epfd = epoll_create1(EPOLL_CLOEXEC);
	size_t i;

	(void)state;
	meet(0);
	assert_int_equal(
		set_ctl(epfd, EPOLL_CTL_ADD, ends[1].fd, ends[1].s, &ev), 0);
	assert_true(promote(&ends[0]) && promote(&ends[1]));
	some_bytes(10);
	assert_int_equal(put(&ends[0], 4), 4);
	for (i = 0; i < sizeof(calls) / sizeof(*calls); i++)
		ends_in(calls[i], &ends[1]);
	assert_int_equal(ends[1].s->set->users, 0);
	get_all(&ends[0]);
	get_all(&ends[1]);
	part();
	set_forget(epfd);
	close(epfd);
}

static void *select_cancelled(void *arg)
{
	struct end *e = arg;
	fd_set in;

	FD_ZERO(&in);
	FD_SET(e->fd, &in);
	pthread_cancel(pthread_self());
	select(FD_SETSIZE, &in, NULL, NULL, NULL);
	return NULL;
}

/* What select() has of the heap is free again. */
static void test_cancelled_select(void **state)
{
	const size_t times = 100, each = FD_SETSIZE * sizeof(struct pollfd);
	size_t before, i;

	(void)state;
#ifdef __SANITIZE_ADDRESS__
	print_message(
		"AddressSanitizer's heap has no mallinfo2(), and it does not "
		"follow a cancelled thread's handlers\n");
	skip();
#endif
	meet(0);
	assert_true(promote(&ends[0]) && promote(&ends[1]));
	some_bytes(10);
	before = mallinfo2().uordblks;
	for (i = 0; i < times; i++)
		ends_in(select_cancelled, &ends[1]);
	assert_true(mallinfo2().uordblks < before + times * each / 2);
	part();
}

/* --- descriptors beside streams ------------------------------------------ */

/* Another wait: for a stream, or for an eventfd, too. Nothing comes there. */
static struct pollfd beside[2];
static nfds_t beside_n;
static unsigned beside_rounds;

static void ask_beside(nfds_t n)
{
	assert_int_equal(wait_poll(beside, n, 0, NULL, "poll"), 0);
}

static void pass_time(void)
{
	uint64_t end = state_now_ns() + 2 * POLLER_KERNEL_NS;

	while (state_now_ns() < end)
		;
}

/* It has just asked the kernel whenever this one looks again. */
static enum env_idle_verdict ask_in_round(void)
{
	if (++beside_rounds > 3)
		fail_msg("the eventfd is not seen");
	pass_time();
	ask_beside(beside_n);
	return ENV_IDLE_AGAIN;
}

static void *ask_in_thread(void *arg)
{
	ask_beside(2);
	atomic_store((atomic_bool *)arg, true);
	return NULL;
}

/* In bp mode no sleep asks the kernel: a thread does, every POLLER_KERNEL_NS,
 * whatever other waits do. */
static void test_others_are_seen(void **state)
{
	struct pollfd fds[2];
	atomic_bool asked = false;
	pthread_t thread;
	int fd = eventfd(1, EFD_CLOEXEC), none = eventfd(0, EFD_CLOEXEC);

	(void)state;
	poller_set(&st.poller, POLLER_BP);
	meet(0);
	assert_true(promote(&ends[0]) && promote(&ends[1]));
	some_bytes(10);
	fds[0] = (struct pollfd){ends[1].fd, POLLIN, 0};
	fds[1] = (struct pollfd){fd, POLLIN, 0};
	beside[0] = (struct pollfd){ends[0].fd, POLLIN, 0};
	beside[1] = (struct pollfd){none, POLLIN, 0};
	in_round = ask_in_round;
	atomic_store(&hooks, HOOK_IDLE);
	for (beside_n = 1; beside_n <= 2; beside_n++) {
		beside_rounds = 0;
		ask_beside(2);
		assert_int_equal(wait_poll(fds, 2, INT64_MAX, NULL, "poll"), 1);
		assert_int_equal(fds[1].revents, POLLIN);
	}
	atomic_store(&hooks, 0);
	in_round = NULL;
	/* Nor in a wait that finds a stream ready at once. */
	assert_int_equal(put(&ends[0], 10), 10);
	pass_time();
	assert_int_equal(pthread_create(&thread, NULL, ask_in_thread, &asked),
			 0);
	while (!atomic_load(&asked))
		sched_yield();
	assert_int_equal(wait_poll(fds, 2, INT64_MAX, NULL, "poll"), 2);
	pthread_join(thread, NULL);
	get_all(&ends[1]);
	poller_set(&st.poller, POLLER_ADAPTIVE);
	part();
	close(fd);
	close(none);
}

/* What the program has left in its array is no answer, whether the kernel was asked
 * just before or not. */
static void test_no_old_answer(void **state)
{
	int none = eventfd(0, EFD_CLOEXEC), i;
	struct pollfd fds[3];

	(void)state;
	meet(0);
	assert_true(promote(&ends[0]) && promote(&ends[1]));
	some_bytes(10);
	assert_int_equal(put(&ends[0], 4), 4);
	for (i = 0; i < 1000; i++) {
		fds[0] = (struct pollfd){ends[1].fd, POLLIN, POLLERR};
		fds[1] = (struct pollfd){none, POLLIN, POLLIN};
		fds[2] = (struct pollfd){-1, POLLIN, POLLIN};
		assert_int_equal(wait_poll(fds, 3, INT64_MAX, NULL, "poll"), 1);
		assert_int_equal(fds[0].revents, POLLIN);
		assert_int_equal(fds[1].revents, 0);
		assert_int_equal(fds[2].revents, 0);
	}
	get_all(&ends[1]);
	part();
	close(none);
}

static unsigned sets_asked;
static real_epoll_wait_t real_wait;

static int count_wait(int epfd, struct epoll_event *events, int max,
		      int timeout)
{
	sets_asked++;
	return real_wait(epfd, events, max, timeout);
}

/* A wait without time says what the set has. Only where no stream is ready does it ask
 * the kernel each time. */
static void test_set_without_time(void **state)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 2}, got[2];
	int epfd = epoll_create1(EPOLL_CLOEXEC), i;
	int other = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	eventfd_t count;

	(void)state;
	meet(0);
	assert_int_equal(
		set_ctl(epfd, EPOLL_CTL_ADD, ends[1].fd, ends[1].s, &ev), 0);
	ev.data.u64 = 4;
	assert_int_equal(epoll_ctl(epfd, EPOLL_CTL_ADD, other, &ev), 0);
	assert_true(promote(&ends[0]) && promote(&ends[1]));
	some_bytes(10);
	/* The first event in the kernel's set is of the promotion. */
	assert_int_equal(eventfd_write(other, 1), 0);
	assert_int_equal(set_wait(epfd, got, 1, 0, NULL), 1);
	assert_int_equal(got[0].data.u64, 4);
	assert_int_equal(eventfd_read(other, &count), 0);
	for (i = 0; i < 1000; i++) {
		assert_int_equal(set_wait(epfd, got, 2, 0, NULL), 0);
		assert_int_equal(eventfd_write(other, 1), 0);
		assert_int_equal(set_wait(epfd, got, 2, 0, NULL), 1);
		assert_int_equal(got[0].data.u64, 4);
		assert_int_equal(eventfd_read(other, &count), 0);
	}
	assert_int_equal(put(&ends[0], 4), 4);
	real_wait = REAL(epoll_wait);
	atomic_store(&st.real[REAL_epoll_wait], (void *)count_wait);
	sets_asked = 0;
	for (i = 0; i < 10000; i++) {
		assert_int_equal(set_wait(epfd, got, 2, 0, NULL), 1);
		assert_int_equal(got[0].data.u64, 2);
	}
	atomic_store(&st.real[REAL_epoll_wait], (void *)real_wait);
	assert_true(sets_asked < 10000);
	get_all(&ends[1]);
	part();
	set_forget(epfd);
	close(epfd);
	close(other);
}

/* The other end is not on the stream yet, and answers. */
static enum env_idle_verdict answer_in_round(void)
{
	if (++beside_rounds > 3)
		fail_msg("the answer is not seen");
	if (beside_rounds == 1)
		assert_int_equal(put(&ends[0], 4), 4);
	pass_time();
	return ENV_IDLE_AGAIN;
}

/* The same for what comes by TCP, to an end that is on the stream. */
static void test_answer_by_tcp(void **state)
{
	struct pollfd fd;

	(void)state;
	poller_set(&st.poller, POLLER_BP);
	meet(0);
	assert_true(promote(&ends[1]));
	fd = (struct pollfd){ends[1].fd, POLLIN, 0};
	beside_rounds = 0;
	in_round = answer_in_round;
	atomic_store(&hooks, HOOK_IDLE);
	assert_int_equal(wait_poll(&fd, 1, INT64_MAX, NULL, "poll"), 1);
	assert_int_equal(fd.revents, POLLIN);
	atomic_store(&hooks, 0);
	in_round = NULL;
	get_all(&ends[1]);
	poller_set(&st.poller, POLLER_ADAPTIVE);
	part();
}

static unsigned signals;

static void count_signal(int sig)
{
	(void)sig;
	signals++;
}

/* A signal is pending that only a wait's mask lets through. Returns it. */
static sigset_t signal_pends(void)
{
	const struct sigaction sa = {.sa_handler = count_signal};
	sigset_t none, usr1;

	sigemptyset(&none);
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &usr1, NULL);
	/* Not by signals.c: a sanitizer stands in front of it, too. */
	assert_int_equal(REAL(sigaction)(SIGUSR1, &sa, NULL), 0);
	raise(SIGUSR1);
	signals = 0;
	return none;
}

/* poll() without time is asked for it as well. Not epoll_pwait(): by the kernel the
 * signal goes on pending there, too. */
static void test_signal_without_time(void **state)
{
	sigset_t none = signal_pends();
	struct pollfd fd;

	(void)state;
	meet(0);
	assert_true(promote(&ends[0]) && promote(&ends[1]));
	some_bytes(10);
	fd = (struct pollfd){ends[1].fd, POLLIN, 0};
	/* What is ready comes first. */
	assert_int_equal(put(&ends[0], 4), 4);
	assert_int_equal(wait_poll(&fd, 1, 0, &none, "ppoll"), 1);
	assert_int_equal(signals, 0);
	get_all(&ends[1]);
	assert_int_equal(wait_poll(&fd, 1, 0, &none, "ppoll"), -1);
	assert_int_equal(errno, EINTR);
	assert_int_equal(signals, 1);
	assert_int_equal(wait_poll(&fd, 1, 0, &none, "ppoll"), 0);
	part();
}

static enum env_idle_verdict put_in_round(void)
{
	assert_int_equal(put(&ends[0], 4), 4);
	return ENV_IDLE_AGAIN;
}

/* A connection that is busy, so that no wait of its reader ever ends in a sleep:
 * the signal comes all the same. */
static void test_signal_of_a_busy_reader(void **state)
{
	sigset_t none = signal_pends();
	struct epoll_event ev = {.events = EPOLLIN};
	int epfd = epoll_create1(EPOLL_CLOEXEC);
	struct pollfd fd;

	(void)state;
	meet(0);
	fd = (struct pollfd){ends[1].fd, POLLIN, 0};
	assert_int_equal(set_ctl(epfd, EPOLL_CTL_ADD, fd.fd, ends[1].s, &ev),
			 0);
	assert_true(promote(&ends[0]) && promote(&ends[1]));
	some_bytes(10);
	while (set_wait(epfd, &ev, 1, 0, NULL) > 0)
		;
	in_round = put_in_round;
	atomic_store(&hooks, HOOK_IDLE);
	assert_int_equal(wait_poll(&fd, 1, INT64_MAX, &none, "ppoll"), -1);
	assert_int_equal(errno, EINTR);
	assert_int_equal(signals, 1);
	get_all(&ends[1]);
	raise(SIGUSR1);
	assert_int_equal(set_wait(epfd, &ev, 1, INT64_MAX, &none), -1);
	assert_int_equal(errno, EINTR);
	assert_int_equal(signals, 2);
	get_all(&ends[1]);
	/* Without one the bytes are found. */
	assert_int_equal(wait_poll(&fd, 1, INT64_MAX, &none, "ppoll"), 1);
	atomic_store(&hooks, 0);
	in_round = NULL;
	get_all(&ends[1]);
	part();
	set_forget(epfd);
	close(epfd);
}

static unsigned kernel_asked, idle_rounds;
static real_ppoll_t real_ppoll;

static int count_ppoll(struct pollfd *fds, nfds_t n,
		       const struct timespec *timeout, const sigset_t *mask)
{
	kernel_asked += !n;
	return real_ppoll(fds, n, timeout, mask);
}

static enum env_idle_verdict many_rounds(void)
{
	if (++idle_rounds > 10 * POLL_ROUNDS)
		assert_int_equal(put(&ends[0], 4), 4);
	return ENV_IDLE_AGAIN;
}

/* How often is the kernel asked for what would end a sleep? */
static unsigned checks(enum poller_mode mode)
{
	struct epoll_event ev = {.events = EPOLLIN};
	struct pollfd fd = {ends[1].fd, POLLIN, 0};

	poller_set(&st.poller, mode);
	kernel_asked = idle_rounds = 0;
	assert_int_equal(wait_poll(&fd, 1, INT64_MAX, NULL, "poll"), 1);
	get_all(&ends[1]);
	idle_rounds = 0;
	assert_int_equal(set_wait(ends[1].s->set->fd, &ev, 1, INT64_MAX, NULL),
			 1);
	get_all(&ends[1]);
	poller_set(&st.poller, POLLER_ADAPTIVE);
	return kernel_asked;
}

/* A wait that ends in a sleep costs no such call. */
static void test_checks(void **state)
{
	struct epoll_event ev = {.events = EPOLLIN};
	int epfd = epoll_create1(EPOLL_CLOEXEC);

	(void)state;
	meet(0);
	assert_int_equal(
		set_ctl(epfd, EPOLL_CTL_ADD, ends[1].fd, ends[1].s, &ev), 0);
	assert_true(promote(&ends[0]) && promote(&ends[1]));
	some_bytes(10);
	while (set_wait(epfd, &ev, 1, 0, NULL) > 0)
		;
	real_ppoll = REAL(ppoll);
	atomic_store(&st.real[REAL_ppoll], (void *)count_ppoll);
	in_round = many_rounds;
	atomic_store(&hooks, HOOK_IDLE);
	assert_int_equal(checks(POLLER_ADAPTIVE), 0);
	assert_int_equal(checks(POLLER_BP), 20);
	assert_int_equal(checks(POLLER_BPTS), 20);
	atomic_store(&hooks, 0);
	in_round = NULL;
	atomic_store(&st.real[REAL_ppoll], (void *)real_ppoll);
	part();
	set_forget(epfd);
	close(epfd);
}

static real_epoll_pwait_t real_pwait;

/* The helper is quick: the kernel has told the sleeper of a socket, which comes
 * onto a stream before the sleeper looks at its streams. */
static int pwait_then_promote(int epfd, struct epoll_event *events, int max,
			      int timeout, const sigset_t *mask)
{
	int n = real_pwait(epfd, events, max, timeout, mask);

	if (ends[1].s->set)
		assert_true(promote(&ends[0]) && promote(&ends[1]));
	return n;
}

/* A program with a blocking socket reads once for each event, and would wait in
 * the second read for ever. */
static void test_no_event_twice(void **state)
{
	struct end *w = &ends[0], *r = &ends[1];
	struct epoll_event ev[2] = {{.events = EPOLLIN, .data.u64 = 2}};
	int epfd = epoll_create1(EPOLL_CLOEXEC);

	(void)state;
	real_pwait = REAL(epoll_pwait);
	meet(0);
	assert_int_equal(set_ctl(epfd, EPOLL_CTL_ADD, r->fd, r->s, ev), 0);
	assert_int_equal(put(w, 4), 4);
	atomic_store(&st.real[REAL_epoll_pwait], (void *)pwait_then_promote);
	assert_int_equal(set_wait(epfd, ev, 2, 1000000, NULL), 1);
	atomic_store(&st.real[REAL_epoll_pwait], (void *)real_pwait);
	assert_int_equal(mode_of(r), SOCK_ON);
	/* It is not forgotten: what was not read is said again. */
	assert_int_equal(set_wait(epfd, ev, 2, 0, NULL), 1);
	assert_int_equal(ev[0].data.u64, 2);
	get_all(r);
	assert_int_equal(set_wait(epfd, ev, 2, 0, NULL), 0);
	part();
	set_forget(epfd);
	close(epfd);
}

static unsigned polls_asked;

static int count_polls(struct pollfd *fds, nfds_t n,
		       const struct timespec *timeout, const sigset_t *mask)
{
	polls_asked++;
	return real_ppoll(fds, n, timeout, mask);
}

/* A thread by turns polls two arrays, each with a stream that is ready and another
 * descriptor. What the kernel was asked about one says nothing of the other, be it at
 * the same address. The same array again is not asked each time. */
static void test_two_arrays(void **state)
{
	int fd[2] = {eventfd(1, EFD_CLOEXEC), eventfd(1, EFD_CLOEXEC)};
	int none = eventfd(0, EFD_CLOEXEC), i;
	struct pollfd fds[2];

	(void)state;
	meet(0);
	assert_true(promote(&ends[0]) && promote(&ends[1]));
	some_bytes(10);
	assert_int_equal(put(&ends[0], 4), 4);
	fds[0] = (struct pollfd){ends[1].fd, POLLIN, 0};
	for (i = 0; i < 3000; i++) {
		/* The third one is the second, and asked for something else. */
		fds[1] = (struct pollfd){fd[i % 3 > 0],
					 i % 3 < 2 ? POLLIN : POLLOUT, 0};
		assert_int_equal(wait_poll(fds, 2, INT64_MAX, NULL, "poll"), 2);
	}
	real_ppoll = REAL(ppoll);
	atomic_store(&st.real[REAL_ppoll], (void *)count_polls);
	polls_asked = 0;
	fds[1] = (struct pollfd){none, POLLIN, 0};
	for (i = 0; i < 10000; i++)
		assert_int_equal(wait_poll(fds, 2, INT64_MAX, NULL, "poll"), 1);
	atomic_store(&st.real[REAL_ppoll], (void *)real_ppoll);
	assert_true(polls_asked < 10000);
	get_all(&ends[1]);
	part();
	for (i = 0; i < 2; i++)
		close(fd[i]);
	close(none);
}

static void is_invalid(int rc)
{
	assert_int_equal(rc, -1);
	assert_int_equal(errno, EINVAL);
}

/* A time that is none is the kernel's to refuse, though a stream is ready. */
static void test_no_time(void **state)
{
	static const struct timespec none[] = {
		{-1, 0}, {0, -1}, {0, 1000000000}};
	struct timeval negative = {-1, 0};
	struct pollfd fd;
	size_t i;
	fd_set in;

	(void)state;
	meet(0);
	assert_true(promote(&ends[0]) && promote(&ends[1]));
	some_bytes(10);
	assert_int_equal(put(&ends[0], 4), 4);
	fd = (struct pollfd){ends[1].fd, POLLIN, 0};
	FD_ZERO(&in);
	FD_SET(fd.fd, &in);
	for (i = 0; i < 3; i++) {
		is_invalid(ppoll(&fd, 1, &none[i], NULL));
		is_invalid(pselect(fd.fd + 1, &in, NULL, NULL, &none[i], NULL));
	}
	is_invalid(select(fd.fd + 1, &in, NULL, NULL, &negative));
	get_all(&ends[1]);
	part();
}

/* As many seconds as there are is for ever. */
static void test_long_times(void **state)
{
	static const time_t seconds[] = {1ll << 34, 1ll << 55, INT64_MAX};
	struct end *e = &ends[1];
	struct pollfd fd;
	uint8_t buf[4];
	struct iovec iov = {buf, 4};
	fd_set in;
	size_t i;

	(void)state;
	meet(0);
	assert_true(promote(&ends[0]) && promote(e));
	some_bytes(10);
	fd = (struct pollfd){e->fd, POLLIN, 0};
	FD_ZERO(&in);
	FD_SET(e->fd, &in);
	/* They wait, and it comes. */
	in_round = put_in_round;
	atomic_store(&hooks, HOOK_IDLE);
	for (i = 0; i < 3; i++) {
		const struct timespec ts = {seconds[i], 999999999};
		struct timeval tv = {seconds[i], 999999};

		assert_int_equal(ppoll(&fd, 1, &ts, NULL), 1);
		get_all(e);
		assert_int_equal(pselect(e->fd + 1, &in, NULL, NULL, &ts, NULL),
				 1);
		get_all(e);
		assert_int_equal(select(e->fd + 1, &in, NULL, NULL, &tv), 1);
		assert_true(tv.tv_sec >= seconds[i] - 1);
		get_all(e);
	}
	fcntl(e->fd, F_SETFL, 0);
	for (i = 0; i < 2; i++) {
		const struct timeval tv = {seconds[i], 0};

		assert_int_equal(setsockopt(e->fd, SOL_SOCKET, SO_RCVTIMEO, &tv,
					    sizeof(tv)),
				 0);
		assert_true(sock_facts(e->s));
		assert_int_equal(sock_recv(e->fd, e->s, &iov, 1, 0, NULL), 4);
		e->read += 4;
	}
	atomic_store(&hooks, 0);
	in_round = NULL;
	part();
}

/* A signal comes while the kernel is asked. write: and bytes to the stream. */
static bool signal_writes;

static int interrupted_ppoll(struct pollfd *fds, nfds_t n,
			     const struct timespec *timeout,
			     const sigset_t *mask)
{
	(void)fds;
	(void)timeout;
	(void)mask;
	if (!n)
		return 0;
	if (signal_writes)
		assert_int_equal(put(&ends[0], 4), 4);
	errno = EINTR;
	return -1;
}

/* What is ready comes before a signal: before the call, or while it asks or sleeps. */
static void test_ready_before_a_signal(void **state)
{
	int none = eventfd(0, EFD_CLOEXEC), i;
	struct pollfd fds[2];

	(void)state;
	real_ppoll = REAL(ppoll);
	meet(0);
	assert_true(promote(&ends[0]) && promote(&ends[1]));
	some_bytes(10);
	fds[0] = (struct pollfd){ends[1].fd, POLLIN, 0};
	fds[1] = (struct pollfd){none, POLLIN, 0};
	atomic_store(&st.real[REAL_ppoll], (void *)interrupted_ppoll);
	assert_int_equal(put(&ends[0], 4), 4);
	/* Not each of them asks the kernel. */
	for (i = 0; i < 1000; i++)
		assert_int_equal(wait_poll(fds, 2, i & 1 ? 0 : INT64_MAX, NULL,
					   "poll"),
				 1);
	get_all(&ends[1]);
	signal_writes = true;
	for (i = 0; i < 100; i++) {
		assert_int_equal(wait_poll(fds, 2, INT64_MAX, NULL, "poll"), 1);
		assert_int_equal(fds[0].revents, POLLIN);
		get_all(&ends[1]);
	}
	signal_writes = false;
	assert_int_equal(wait_poll(fds, 2, INT64_MAX, NULL, "poll"), -1);
	assert_int_equal(errno, EINTR);
	atomic_store(&st.real[REAL_ppoll], (void *)real_ppoll);
	part();
	close(none);
}

static unsigned pwaits, pwaits2;

static int count_pwait(int epfd, struct epoll_event *events, int max,
		       int timeout, const sigset_t *mask)
{
	pwaits += timeout > 0; /* else a look when the time is over */
	return 0;
}

/* A sandbox refuses it. */
static int refuse_pwait2(int epfd, struct epoll_event *events, int max,
			 const struct timespec *timeout, const sigset_t *mask)
{
	assert_int_equal(timeout->tv_sec, 0);
	assert_in_range(timeout->tv_nsec, 1, 999999);
	pwaits2++;
	errno = EPERM;
	return -1;
}

/* A wait that is shorter than a millisecond sleeps no longer in the kernel, where
 * that can be had. */
static void test_short_waits(void **state)
{
	struct epoll_event ev;
	int epfd = epoll_create1(EPOLL_CLOEXEC);

	(void)state;
	meet(0);
	ev = (struct epoll_event){.events = EPOLLIN};
	assert_int_equal(
		set_ctl(epfd, EPOLL_CTL_ADD, ends[1].fd, ends[1].s, &ev), 0);
	atomic_store(&st.real[REAL_epoll_pwait], (void *)count_pwait);
	atomic_store(&st.real[REAL_epoll_pwait2], (void *)refuse_pwait2);
	assert_int_equal(set_wait(epfd, &ev, 1, 900000, NULL), 0);
	assert_true(pwaits2 > 0);
	assert_int_equal(pwaits, pwaits2);
	assert_int_equal(set_wait(epfd, &ev, 1, 0, NULL), 0);
	assert_int_equal(pwaits, pwaits2);
	/* They are found anew. */
	atomic_store(&st.real[REAL_epoll_pwait], NULL);
	atomic_store(&st.real[REAL_epoll_pwait2], NULL);
	part();
	set_forget(epfd);
	close(epfd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_close_holds_up_nobody),
		cmocka_unit_test(test_shutdown_holds_up_nobody),
		cmocka_unit_test(test_connect_holds_up_nobody),
		cmocka_unit_test(test_exec_ends_meetings),
		cmocka_unit_test(test_exec_holds_up_nobody),
		cmocka_unit_test(test_cancelled_without_the_lock),
		cmocka_unit_test(test_cancelled_at_work),
		cmocka_unit_test(test_cancelled_select),
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
		cmocka_unit_test(test_waiting_threads),
		cmocka_unit_test(test_patience_is_worth_the_questions),
		cmocka_unit_test(test_modes),
		cmocka_unit_test(test_event_mode_asks_once),
		cmocka_unit_test(test_hand_over),
		cmocka_unit_test(test_others_are_seen),
		cmocka_unit_test(test_no_old_answer),
		cmocka_unit_test(test_set_without_time),
		cmocka_unit_test(test_answer_by_tcp),
		cmocka_unit_test(test_signal_without_time),
		cmocka_unit_test(test_signal_of_a_busy_reader),
		cmocka_unit_test(test_checks),
		cmocka_unit_test(test_no_event_twice),
		cmocka_unit_test(test_two_arrays),
		cmocka_unit_test(test_no_time),
		cmocka_unit_test(test_long_times),
		cmocka_unit_test(test_ready_before_a_signal),
		cmocka_unit_test(test_short_waits),
		cmocka_unit_test(test_only_bytes_wake),
		cmocka_unit_test(test_bytes_wake_a_call),
		cmocka_unit_test(test_to_and_fro),
	};

	return cmocka_run_group_tests(tests, up, down);
}
