/* SPDX-License-Identifier: MIT */
/*
 * test_waits.c - what poll(), select() and a wait at a set say: of streams and of
 * the descriptors beside them, of signals, and of times.
 */
#include "unit/socket/ends.h"

#include "bind/socket/pollers.h"
#include "bind/socket/set.h"
#include "bind/socket/wait.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <unistd.h>

/* What happens in each round of a wait of the test's thread; NULL: what the world
 * does. */
static enum env_idle_verdict (*_Atomic in_round)(void);
static pthread_t test_thread;
static enum env_idle_verdict (*real_idle)(struct env_waiter *w, unsigned round);

static enum env_idle_verdict hook_idle(struct env_waiter *w, unsigned round)
{
	enum env_idle_verdict (*fn)(void) = atomic_load(&in_round);

	return fn && pthread_equal(pthread_self(), test_thread)
		       ? fn()
		       : real_idle(w, round);
}

static void hook(struct env_ops *ops)
{
	real_idle = ops->idle;
	ops->idle = hook_idle;
}

/* How the kernel is asked meanwhile; NULL: as ever. */
static real_ppoll_t real_ppoll;

static void ppoll_by(real_ppoll_t fn)
{
	if (fn)
		real_ppoll = REAL(ppoll);
	atomic_store(&st.real[REAL_ppoll], (void *)(fn ? fn : real_ppoll));
}

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
	ends_in_use();
	fds[0] = (struct pollfd){ends[1].fd, POLLIN, 0};
	fds[1] = (struct pollfd){fd, POLLIN, 0};
	beside[0] = (struct pollfd){ends[0].fd, POLLIN, 0};
	beside[1] = (struct pollfd){none, POLLIN, 0};
	atomic_store(&in_round, ask_in_round);
	for (beside_n = 1; beside_n <= 2; beside_n++) {
		beside_rounds = 0;
		ask_beside(2);
		assert_int_equal(wait_poll(fds, 2, INT64_MAX, NULL, "poll"), 1);
		assert_int_equal(fds[1].revents, POLLIN);
	}
	atomic_store(&in_round, NULL);
	/* Nor in a wait that finds a stream ready at once. */
	assert_int_equal(end_put(&ends[0], 10), 10);
	pass_time();
	assert_int_equal(pthread_create(&thread, NULL, ask_in_thread, &asked),
			 0);
	while (!atomic_load(&asked))
		sched_yield();
	assert_int_equal(wait_poll(fds, 2, INT64_MAX, NULL, "poll"), 2);
	pthread_join(thread, NULL);
	end_get_all(&ends[1]);
	poller_set(&st.poller, POLLER_ADAPTIVE);
	ends_part();
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
	ends_in_use();
	assert_int_equal(end_put(&ends[0], 4), 4);
	for (i = 0; i < 1000; i++) {
		fds[0] = (struct pollfd){ends[1].fd, POLLIN, POLLERR};
		fds[1] = (struct pollfd){none, POLLIN, POLLIN};
		fds[2] = (struct pollfd){-1, POLLIN, POLLIN};
		assert_int_equal(wait_poll(fds, 3, INT64_MAX, NULL, "poll"), 1);
		assert_int_equal(fds[0].revents, POLLIN);
		assert_int_equal(fds[1].revents, 0);
		assert_int_equal(fds[2].revents, 0);
	}
	end_get_all(&ends[1]);
	ends_part();
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
	int other = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	int epfd = ends_in_set(ev), i;
	eventfd_t count;

	(void)state;
	ev.data.u64 = 4;
	assert_int_equal(epoll_ctl(epfd, EPOLL_CTL_ADD, other, &ev), 0);
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
	assert_int_equal(end_put(&ends[0], 4), 4);
	real_wait = REAL(epoll_wait);
	atomic_store(&st.real[REAL_epoll_wait], (void *)count_wait);
	sets_asked = 0;
	for (i = 0; i < 10000; i++) {
		assert_int_equal(set_wait(epfd, got, 2, 0, NULL), 1);
		assert_int_equal(got[0].data.u64, 2);
	}
	atomic_store(&st.real[REAL_epoll_wait], (void *)real_wait);
	assert_true(sets_asked < 10000);
	end_get_all(&ends[1]);
	ends_part_set(epfd);
	close(other);
}

/* The other end is not on the stream yet, and answers. */
static enum env_idle_verdict answer_in_round(void)
{
	if (++beside_rounds > 3)
		fail_msg("the answer is not seen");
	if (beside_rounds == 1)
		assert_int_equal(end_put(&ends[0], 4), 4);
	pass_time();
	return ENV_IDLE_AGAIN;
}

/* The same for what comes by TCP, to an end that is on the stream. */
static void test_answer_by_tcp(void **state)
{
	struct pollfd fd;

	(void)state;
	poller_set(&st.poller, POLLER_BP);
	ends_meet(0);
	assert_true(end_promote(&ends[1]));
	fd = (struct pollfd){ends[1].fd, POLLIN, 0};
	beside_rounds = 0;
	atomic_store(&in_round, answer_in_round);
	assert_int_equal(wait_poll(&fd, 1, INT64_MAX, NULL, "poll"), 1);
	assert_int_equal(fd.revents, POLLIN);
	atomic_store(&in_round, NULL);
	end_get_all(&ends[1]);
	poller_set(&st.poller, POLLER_ADAPTIVE);
	ends_part();
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
	ends_in_use();
	fd = (struct pollfd){ends[1].fd, POLLIN, 0};
	/* What is ready comes first. */
	assert_int_equal(end_put(&ends[0], 4), 4);
	assert_int_equal(wait_poll(&fd, 1, 0, &none, "ppoll"), 1);
	assert_int_equal(signals, 0);
	end_get_all(&ends[1]);
	assert_int_equal(wait_poll(&fd, 1, 0, &none, "ppoll"), -1);
	assert_int_equal(errno, EINTR);
	assert_int_equal(signals, 1);
	assert_int_equal(wait_poll(&fd, 1, 0, &none, "ppoll"), 0);
	ends_part();
}

static enum env_idle_verdict put_in_round(void)
{
	assert_int_equal(end_put(&ends[0], 4), 4);
	return ENV_IDLE_AGAIN;
}

/* A connection that is busy, so that no wait of its reader ever ends in a sleep:
 * the signal comes all the same. */
static void test_signal_of_a_busy_reader(void **state)
{
	sigset_t none = signal_pends();
	struct epoll_event ev = {.events = EPOLLIN};
	int epfd = ends_in_set(ev);
	struct pollfd fd = {ends[1].fd, POLLIN, 0};

	(void)state;
	while (set_wait(epfd, &ev, 1, 0, NULL) > 0)
		;
	atomic_store(&in_round, put_in_round);
	assert_int_equal(wait_poll(&fd, 1, INT64_MAX, &none, "ppoll"), -1);
	assert_int_equal(errno, EINTR);
	assert_int_equal(signals, 1);
	end_get_all(&ends[1]);
	raise(SIGUSR1);
	assert_int_equal(set_wait(epfd, &ev, 1, INT64_MAX, &none), -1);
	assert_int_equal(errno, EINTR);
	assert_int_equal(signals, 2);
	end_get_all(&ends[1]);
	/* Without one the bytes are found. */
	assert_int_equal(wait_poll(&fd, 1, INT64_MAX, &none, "ppoll"), 1);
	atomic_store(&in_round, NULL);
	end_get_all(&ends[1]);
	ends_part_set(epfd);
}

static unsigned kernel_asked, idle_rounds;

static int count_ppoll(struct pollfd *fds, nfds_t n,
		       const struct timespec *timeout, const sigset_t *mask)
{
	kernel_asked += !n;
	return real_ppoll(fds, n, timeout, mask);
}

static enum env_idle_verdict many_rounds(void)
{
	if (++idle_rounds > 10 * POLL_ROUNDS)
		assert_int_equal(end_put(&ends[0], 4), 4);
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
	end_get_all(&ends[1]);
	idle_rounds = 0;
	assert_int_equal(set_wait(ends[1].s->set->fd, &ev, 1, INT64_MAX, NULL),
			 1);
	end_get_all(&ends[1]);
	poller_set(&st.poller, POLLER_ADAPTIVE);
	return kernel_asked;
}

/* A wait that ends in a sleep costs no such call. */
static void test_checks(void **state)
{
	struct epoll_event ev = {.events = EPOLLIN};
	int epfd = ends_in_set(ev);

	(void)state;
	while (set_wait(epfd, &ev, 1, 0, NULL) > 0)
		;
	ppoll_by(count_ppoll);
	atomic_store(&in_round, many_rounds);
	assert_int_equal(checks(POLLER_ADAPTIVE), 0);
	assert_int_equal(checks(POLLER_BP), 20);
	assert_int_equal(checks(POLLER_BPTS), 20);
	atomic_store(&in_round, NULL);
	ppoll_by(NULL);
	ends_part_set(epfd);
}

static real_epoll_pwait_t real_pwait;

/* The helper is quick: the kernel has told the sleeper of a socket, which comes
 * onto a stream before the sleeper looks at its streams. */
static int pwait_then_promote(int epfd, struct epoll_event *events, int max,
			      int timeout, const sigset_t *mask)
{
	int n = real_pwait(epfd, events, max, timeout, mask);

	if (ends[1].s->set)
		assert_true(end_promote(&ends[0]) && end_promote(&ends[1]));
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
	ends_meet(0);
	assert_int_equal(set_ctl(epfd, EPOLL_CTL_ADD, r->fd, r->s, ev), 0);
	assert_int_equal(end_put(w, 4), 4);
	atomic_store(&st.real[REAL_epoll_pwait], (void *)pwait_then_promote);
	assert_int_equal(set_wait(epfd, ev, 2, 1000000, NULL), 1);
	atomic_store(&st.real[REAL_epoll_pwait], (void *)real_pwait);
	assert_int_equal(end_mode(r), SOCK_ON);
	/* It is not forgotten: what was not read is said again. */
	assert_int_equal(set_wait(epfd, ev, 2, 0, NULL), 1);
	assert_int_equal(ev[0].data.u64, 2);
	end_get_all(r);
	assert_int_equal(set_wait(epfd, ev, 2, 0, NULL), 0);
	ends_part_set(epfd);
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
	ends_in_use();
	assert_int_equal(end_put(&ends[0], 4), 4);
	fds[0] = (struct pollfd){ends[1].fd, POLLIN, 0};
	for (i = 0; i < 3000; i++) {
		/* The third one is the second, and asked for something else. */
		fds[1] = (struct pollfd){fd[i % 3 > 0],
					 i % 3 < 2 ? POLLIN : POLLOUT, 0};
		assert_int_equal(wait_poll(fds, 2, INT64_MAX, NULL, "poll"), 2);
	}
	ppoll_by(count_polls);
	polls_asked = 0;
	fds[1] = (struct pollfd){none, POLLIN, 0};
	for (i = 0; i < 10000; i++)
		assert_int_equal(wait_poll(fds, 2, INT64_MAX, NULL, "poll"), 1);
	ppoll_by(NULL);
	assert_true(polls_asked < 10000);
	end_get_all(&ends[1]);
	ends_part();
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
	ends_in_use();
	assert_int_equal(end_put(&ends[0], 4), 4);
	fd = (struct pollfd){ends[1].fd, POLLIN, 0};
	FD_ZERO(&in);
	FD_SET(fd.fd, &in);
	for (i = 0; i < 3; i++) {
		is_invalid(ppoll(&fd, 1, &none[i], NULL));
		is_invalid(pselect(fd.fd + 1, &in, NULL, NULL, &none[i], NULL));
	}
	is_invalid(select(fd.fd + 1, &in, NULL, NULL, &negative));
	end_get_all(&ends[1]);
	ends_part();
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
	ends_in_use();
	fd = (struct pollfd){e->fd, POLLIN, 0};
	FD_ZERO(&in);
	FD_SET(e->fd, &in);
	/* They wait, and it comes. */
	atomic_store(&in_round, put_in_round);
	for (i = 0; i < 3; i++) {
		const struct timespec ts = {seconds[i], 999999999};
		struct timeval tv = {seconds[i], 999999};

		assert_int_equal(ppoll(&fd, 1, &ts, NULL), 1);
		end_get_all(e);
		assert_int_equal(pselect(e->fd + 1, &in, NULL, NULL, &ts, NULL),
				 1);
		end_get_all(e);
		assert_int_equal(select(e->fd + 1, &in, NULL, NULL, &tv), 1);
		assert_true(tv.tv_sec >= seconds[i] - 1);
		end_get_all(e);
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
	atomic_store(&in_round, NULL);
	ends_part();
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
		assert_int_equal(end_put(&ends[0], 4), 4);
	errno = EINTR;
	return -1;
}

/* What is ready comes before a signal: before the call, or while it asks or sleeps. */
static void test_ready_before_a_signal(void **state)
{
	int none = eventfd(0, EFD_CLOEXEC), i;
	struct pollfd fds[2];

	(void)state;
	ends_in_use();
	fds[0] = (struct pollfd){ends[1].fd, POLLIN, 0};
	fds[1] = (struct pollfd){none, POLLIN, 0};
	ppoll_by(interrupted_ppoll);
	assert_int_equal(end_put(&ends[0], 4), 4);
	/* Not each of them asks the kernel. */
	for (i = 0; i < 1000; i++)
		assert_int_equal(wait_poll(fds, 2, i & 1 ? 0 : INT64_MAX, NULL,
					   "poll"),
				 1);
	end_get_all(&ends[1]);
	signal_writes = true;
	for (i = 0; i < 100; i++) {
		assert_int_equal(wait_poll(fds, 2, INT64_MAX, NULL, "poll"), 1);
		assert_int_equal(fds[0].revents, POLLIN);
		end_get_all(&ends[1]);
	}
	signal_writes = false;
	assert_int_equal(wait_poll(fds, 2, INT64_MAX, NULL, "poll"), -1);
	assert_int_equal(errno, EINTR);
	ppoll_by(NULL);
	ends_part();
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
	ends_meet(0);
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
	ends_part_set(epfd);
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
	};

	return cmocka_run_group_tests(tests, up, ends_down);
}
