/* SPDX-License-Identifier: MIT */
/*
 * test_helper.c - the helper's work, called by the test instead of its thread,
 * with the program's calls at chosen places in between.
 */
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

static int socket_between(int domain, int type, int protocol);

#define socket socket_between
#include "bind/socket/helper.c" /* NOLINT */
#undef socket

static void (*between)(void);

static int socket_between(int domain, int type, int protocol)
{
	void (*fn)(void) = between;

	between = NULL;
	if (fn)
		fn();
	return socket(domain, type, protocol);
}

static int listener, dialled, taken;

/* A connection whose accepting end waits for the helper. */
static void connection(void)
{
	struct sockaddr_in sin = {.sin_family = AF_INET};
	socklen_t len = sizeof(sin);

	assert_int_equal(getsockname(listener, (void *)&sin, &len), 0);
	dialled = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(connect(dialled, (void *)&sin, len), 0);
	taken = accept(listener, NULL, NULL);
	assert_true(taken >= 0);
	sock_track(taken, true);
	pthread_mutex_lock(&st.lock);
	helper_ask(sock_at(taken));
	pthread_mutex_unlock(&st.lock);
}

static void closed(void)
{
	sock_forget(taken);
	close(taken);
	close(dialled);
}

static void another(void)
{
	closed();
	connection();
}

static unsigned meetings_of(const struct helper *h, const struct sock *s)
{
	const struct meeting *m;
	unsigned n = 0;

	for (m = h->meetings; m; m = m->next)
		n += m->s == s;
	return n;
}

/* The connection that the helper is about to take up is closed, and another one
 * comes in its place, and waits too. */
static void test_closed_and_queued_again(void **state)
{
	static struct helper h = {.host_up = true};
	struct sock *s;
	uint64_t deadline;

	(void)state;
	connection();
	s = sock_at(taken);
	between = another;
	take_work(&h);
	assert_ptr_equal(sock_at(taken), s);
	assert_int_equal(atomic_load(&s->mode), SOCK_TCP);
	assert_int_equal(meetings_of(&h, s), 1);
	closed();
	assert_int_equal(meetings_of(&h, s), 0);
	h.host_up = false;
	gather(&h, &deadline);
	assert_null(h.meetings);
	assert_null(st.todo);
}

/* It is closed, and no other comes. */
static void test_closed_before_the_meeting(void **state)
{
	static struct helper h = {.host_up = true};
	uint64_t deadline;

	(void)state;
	connection();
	between = closed;
	take_work(&h);
	h.host_up = false;
	gather(&h, &deadline);
	assert_null(h.meetings);
}

static int up(void **state)
{
	struct sockaddr_in sin = {.sin_family = AF_INET};

	(void)state;
	assert_int_equal(env_real_new(&st.env), 0);
	st.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	atomic_store(&st.helper_runs, true);
	listener = socket(AF_INET, SOCK_STREAM, 0);
	sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(listener, (void *)&sin, sizeof(sin)), 0);
	return listen(listener, 8);
}

static int down(void **state)
{
	(void)state;
	atomic_store(&st.on, false);
	close(listener);
	close(st.wake_fd);
	env_real_free(st.env);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_closed_and_queued_again),
		cmocka_unit_test(test_closed_before_the_meeting),
	};

	return cmocka_run_group_tests(tests, up, down);
}
