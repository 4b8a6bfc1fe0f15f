/* SPDX-License-Identifier: MIT */
/*
 * test_sleep.c - a thread that waits: how long it is patient before it asks the
 * peer to ring and sleeps, what wakes it then, and that it misses no byte while its
 * connection goes to a stream and back.
 */
#include "unit/socket/ends.h"

#include "bind/socket/back.h"
#include "bind/socket/pollers.h"
#include "bind/socket/set.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

/* --- while the connection goes to a stream and back ----------------------- */

static struct waits {
	struct end *e;
	int epfd; /* or -1: blocking calls */
	uint32_t events;
	_Atomic uint64_t read, end;
} waits;

/* What the helper's thread does between two calls of the program. */
static void rounds(void)
{
	end_step(&ends[0]);
	end_step(&ends[1]);
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
				 end_byte_at(writer, waits.read + (uint64_t)i));
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
		assert_int_equal(set_wait(waits.epfd, &ev, 1,
					  (int64_t)ENDS_WAIT_NS, NULL),
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
	uint64_t end = state_now_ns() + ENDS_WAIT_NS;

	while (waits.read < at && state_now_ns() < end)
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

	ends_meet(0);
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
		assert_int_equal(end_put(w, 4), 4);
		while (!end_promote(w))
			rounds();
		assert_int_equal(end_put(w, 4), 4);
		all_read(w->wrote);
		while (end_mode(r) != SOCK_ON) {
			waits.end += 8;
			assert_int_equal(end_put(w, 8), 8);
			all_read(w->wrote);
			if (epfd >= 0)
				end_promote(r);
		}
		assert_int_equal(end_put(w, 4), 4);
		rounds();
		pthread_mutex_lock(&st.lock);
		back_start(ends[i & 1].s, "it was idle", true);
		pthread_mutex_unlock(&st.lock);
		while (!(end_rests(w) && end_rests(r)))
			rounds();
		ends_bury();
		assert_int_equal(end_put(w, 4), 4);
		if (i + 1 < TURNS)
			ends_prepare();
	}
	pthread_join(thread, NULL);
	r->read = waits.read;
	assert_int_equal(r->read, w->wrote);
	ends_part();
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

/* A world with no patience of its own, and with the test's clock, which each look of
 * the test's thread moves on. */
enum {
	HOOK_CLOCK = 1,
	HOOK_IDLE = 2,
	HOOK_CORE = 4,
};

static atomic_uint hooks;
static pthread_t test_thread;
static struct env_ops real_ops;
static uint64_t clock_ns, clock_step_ns;
static bool core_is_wanted;

static uint64_t hook_now_ns(struct skein_env *e)
{
	if (!(atomic_load(&hooks) & HOOK_CLOCK) ||
	    !pthread_equal(pthread_self(), test_thread))
		return real_ops.now_ns(e);
	clock_ns += clock_step_ns;
	return clock_ns;
}

static enum env_idle_verdict hook_idle(struct env_waiter *w, unsigned round)
{
	return atomic_load(&hooks) & HOOK_IDLE ? ENV_IDLE_SLEEP
					       : real_ops.idle(w, round);
}

static bool hook_core_wanted(struct env_waiter *w)
{
	return atomic_load(&hooks) & HOOK_CORE ? core_is_wanted
					       : real_ops.core_wanted(w);
}

static void hook(struct env_ops *ops)
{
	real_ops = *ops;
	ops->now_ns = hook_now_ns;
	ops->idle = hook_idle;
	ops->core_wanted = hook_core_wanted;
}

/* The reader asks for a bell, as it does before it sleeps at a set. The writer
 * writes before it hears of that, or behind its answer, or not. Is the reader
 * woken? */
static bool wakes_a_sleeper(bool before, bool behind, uint32_t events)
{
	struct end *w = &ends[0], *r = &ends[1];
	struct epoll_event ev = {.events = events};
	int epfd = ends_in_set(ev);
	bool woken;

	while (set_wait(epfd, &ev, 1, 0, NULL) > 0)
		;
	r->s->set->armed = true;
	sock_ask(r->s);
	if (before)
		assert_int_equal(end_put(w, 4), 4);
	end_step(w);
	end_step(r);
	assert_int_equal(r->s->stream->sleep, STREAM_ASLEEP);
	if (behind)
		assert_int_equal(end_put(w, 4), 4);
	end_step(r);
	woken = !r->s->set->armed;
	ends_part_set(epfd);
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
	uint64_t asks = 0, end = state_now_ns() + ENDS_WAIT_NS;
	pthread_t thread;

	(void)state;
	ends_in_use();
	fcntl(r->fd, F_SETFL, 0);
	r->s->nonblock = false;
	waits = (struct waits){r, -1, 0, r->read, r->read + 8};
	atomic_store(&hooks, HOOK_IDLE);
	assert_int_equal(pthread_create(&thread, NULL, wait_in_call, NULL), 0);
	while (!asks && state_now_ns() < end) {
		pthread_mutex_lock(&st.lock);
		asks = r->s->asks;
		pthread_mutex_unlock(&st.lock);
	}
	assert_int_equal(asks, 1);
	/* It sleeps; the writer has not answered yet. */
	assert_int_equal(end_put(w, 8), 8);
	all_read(w->wrote);
	pthread_join(thread, NULL);
	atomic_store(&hooks, 0);
	r->read = waits.read;
	ends_part();
}

/* Waits in vain for 20 ms of the real clock; returns the questions that were
 * asked. step_ns: how fast the test's clock goes. */
static uint64_t asks_of_a_wait(uint64_t step_ns, bool wanted)
{
	struct end *e = &ends[1];
	struct epoll_event ev = {.events = EPOLLIN};
	int epfd = ends_in_set(ev);
	uint64_t asks;

	/* The kernel's first events of the TCP socket are taken. */
	assert_int_equal(set_wait(epfd, &ev, 1, 0, NULL), 0);
	clock_ns = 1;
	clock_step_ns = step_ns;
	core_is_wanted = wanted;
	atomic_store(&hooks, HOOK_CLOCK | HOOK_IDLE | HOOK_CORE);
	assert_int_equal(set_wait(epfd, &ev, 1, 20000000, NULL), 0);
	atomic_store(&hooks, 0);
	asks = e->s->asks;
	ends_part_set(epfd);
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
	uint64_t bells;
	int epfd, i;

	(void)state;
	poller_set(&st.poller, POLLER_EVENT);
	epfd = ends_in_set(ev);
	assert_true(sock_ask(r->s) || r->s->stream->sleep == STREAM_ASKED);
	end_step(w);
	end_step(r);
	assert_int_equal(r->s->stream->sleep, STREAM_ASLEEP);
	bells = w->s->stream->bells;
	for (i = 0; i < 3; i++) {
		r->s->set->armed = i != 1;
		assert_int_equal(end_put(w, 4), 4);
		end_step(r);
		assert_false(r->s->set->armed);
		assert_int_equal(set_wait(epfd, &ev, 1, 0, NULL), 1);
		end_get_all(r);
	}
	assert_int_equal(w->s->stream->bells, bells + 3);
	assert_int_equal(r->s->asks, 1);
	poller_set(&st.poller, POLLER_ADAPTIVE);
	ends_part_set(epfd);
}

/* A thread leaves a set with an event, of at most `max`, while another one
 * sleeps there, or none does. */
static void leave_set(unsigned sleepers, int max, uint64_t asks, bool woken)
{
	struct end *w = &ends[0], *r = &ends[1];
	struct epoll_event ev[2] = {{.events = EPOLLIN}};
	int epfd = ends_in_set(ev[0]);

	while (set_wait(epfd, ev, 1, 0, NULL) > 0)
		;
	assert_int_equal(end_put(w, 4), 4);
	r->s->set->sleepers = sleepers;
	r->s->set->armed = true;
	assert_int_equal(set_wait(epfd, ev, max, 0, NULL), 1);
	r->s->set->sleepers = 0;
	assert_int_equal(r->s->asks, asks);
	assert_int_equal(!r->s->set->armed, woken);
	ends_part_set(epfd);
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

static int up(void **state)
{
	(void)state;
	test_thread = pthread_self();
	return ends_up(hook);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_waiting_threads),
		cmocka_unit_test(test_patience_is_worth_the_questions),
		cmocka_unit_test(test_modes),
		cmocka_unit_test(test_event_mode_asks_once),
		cmocka_unit_test(test_hand_over),
		cmocka_unit_test(test_only_bytes_wake),
		cmocka_unit_test(test_bytes_wake_a_call),
	};

	return cmocka_run_group_tests(tests, up, ends_down);
}
