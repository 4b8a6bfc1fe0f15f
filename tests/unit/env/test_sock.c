/* SPDX-License-Identifier: MIT */
/*
 * test_sock.c - names, listening, connecting, the errors of each, end of
 * stream and a peer that is gone. Loopback and ephemeral ports only.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "env/env.h"
#include "unit/cm.h"

#define WAIT_MS 10000 /* a hang, not a measurement */

static int setup(void **state)
{
	return env_real_new((struct skein_env **)state);
}

static int teardown(void **state)
{
	env_real_free(*state);
	return 0;
}

static void wait_for(int fd, short events)
{
	struct pollfd p = {.fd = fd, .events = events};

	assert_int_equal(poll(&p, 1, WAIT_MS), 1);
}

static int resolve(struct skein_env *env, const char *host, const char *port,
		   bool passive, struct sockaddr_storage *addr)
{
	int n = 0, rc = env_resolve(env, host, port, passive, addr, 1, &n);

	assert_int_equal(n, rc ? 0 : 1);
	return rc;
}

static void test_resolve(void **state)
{
	struct skein_env *env = *state;
	struct sockaddr_storage a;
	char label[80] = "";
	struct sockaddr_in *v4 = (struct sockaddr_in *)&a;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&a;

	assert_int_equal(resolve(env, "127.0.0.1", "80", false, &a), 0);
	assert_int_equal(a.ss_family, AF_INET);
	assert_int_equal(ntohs(v4->sin_port), 80);
	assert_int_equal(ntohl(v4->sin_addr.s_addr), INADDR_LOOPBACK);
	assert_int_equal(resolve(env, "::1", "65535", false, &a), 0);
	assert_int_equal(a.ss_family, AF_INET6);
	assert_int_equal(ntohs(v6->sin6_port), 65535);
	assert_int_equal(resolve(env, "localhost", "1", false, &a), 0);
	assert_int_equal(resolve(env, "", "7", true, &a), 0);
	assert_int_equal(resolve(env, NULL, "7", true, &a), 0);
	assert_int_equal(resolve(env, "127.0.0.1", "65536", false, &a),
			 -EINVAL);
	assert_int_equal(resolve(env, "127.0.0.1", "-1", false, &a), -EINVAL);
	assert_int_equal(resolve(env, "127.0.0.1", "nosuchservice", false, &a),
			 -EINVAL);
	/* A label of more than 63 letters needs no name server to be refused */
	memset(label, 'a', sizeof(label) - 1);
	assert_int_equal(resolve(env, label, "80", false, &a), -EADDRNOTAVAIL);
}

struct pair {
	int listener, a, b;
	struct sockaddr_storage addr;
};

static void listen_on(struct skein_env *env, const char *host, struct pair *p)
{
	assert_int_equal(resolve(env, host, "0", true, &p->addr), 0);
	assert_int_equal(env_sock_listen(env, &p->addr, 8, &p->listener), 0);
	assert_int_equal(env_sock_name(env, p->listener, &p->addr), 0);
}

static void connect_pair(struct skein_env *env, struct pair *p)
{
	struct sockaddr_storage peer, local;

	assert_int_equal(env_sock_accept(env, p->listener, &peer, &p->b),
			 -EAGAIN);
	assert_int_equal(env_sock_connect(env, &p->addr, &p->a), 0);
	wait_for(p->a, POLLOUT);
	assert_int_equal(env_sock_error(env, p->a), 0);
	wait_for(p->listener, POLLIN);
	assert_int_equal(env_sock_accept(env, p->listener, &peer, &p->b), 0);
	assert_int_equal(env_sock_name(env, p->a, &local), 0);
	if (peer.ss_family == local.ss_family)
		assert_memory_equal(&peer, &local, sizeof(struct sockaddr_in));
}

static void check_flags(int fd)
{
	socklen_t len = sizeof(int);
	int v = 0;

	assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &v, &len);
	assert_true(v != 0);
}

static void test_stream(void **state)
{
	struct skein_env *env = *state;
	char buf[16] = {0};
	struct pair p;

	listen_on(env, "127.0.0.1", &p);
	connect_pair(env, &p);
	check_flags(p.a);
	check_flags(p.b);
	assert_int_equal(env_sock_recv(env, p.b, buf, sizeof(buf)), -EAGAIN);
	assert_int_equal(env_sock_send(env, p.a, "hello", 5), 5);
	wait_for(p.b, POLLIN);
	assert_int_equal(env_sock_recv(env, p.b, buf, sizeof(buf)), 5);
	assert_string_equal(buf, "hello");
	env_sock_close(env, p.a);
	wait_for(p.b, POLLIN);
	assert_int_equal(env_sock_recv(env, p.b, buf, sizeof(buf)), 0);
	/* The first write meets a reset, the next the broken pipe: no signal */
	assert_true(env_sock_send(env, p.b, "x", 1) >= -EPIPE);
	wait_for(p.b, POLLHUP);
	assert_int_equal(env_sock_send(env, p.b, "x", 1), -EPIPE);
	env_sock_close(env, p.b);
	env_sock_close(env, p.listener);
	env_sock_close(env, -1);
}

/* A full socket says so instead of blocking. */
static void test_full(void **state)
{
	static char chunk[1 << 16];
	struct skein_env *env = *state;
	struct pair p;
	ssize_t n;
	int i;

	listen_on(env, "127.0.0.1", &p);
	connect_pair(env, &p);
	for (i = 0, n = 1; i < 10000 && n > 0; i++)
		n = env_sock_send(env, p.a, chunk, sizeof(chunk));
	assert_int_equal(n, -EAGAIN);
	env_sock_close(env, p.a);
	env_sock_close(env, p.b);
	env_sock_close(env, p.listener);
}

static void test_wildcard_takes_both(void **state)
{
	struct skein_env *env = *state;
	struct sockaddr_in6 *any;
	char port[8];
	struct pair p;

	listen_on(env, "", &p);
	if (p.addr.ss_family == AF_INET6) {
		any = (struct sockaddr_in6 *)&p.addr;
		snprintf(port, sizeof(port), "%u", ntohs(any->sin6_port));
		assert_int_equal(
			resolve(env, "127.0.0.1", port, false, &p.addr), 0);
	}
	connect_pair(env, &p);
	env_sock_close(env, p.a);
	env_sock_close(env, p.b);
	env_sock_close(env, p.listener);
}

static void test_refused(void **state)
{
	struct skein_env *env = *state;
	struct pair p;
	int rc;

	listen_on(env, "127.0.0.1", &p);
	env_sock_close(env, p.listener);
	rc = env_sock_connect(env, &p.addr, &p.a);
	if (!rc) {
		wait_for(p.a, POLLOUT);
		rc = env_sock_error(env, p.a);
		/* Asked again it is still not a connection. */
		assert_true(env_sock_error(env, p.a) < 0);
		env_sock_close(env, p.a);
	}
	assert_int_equal(rc, -ECONNREFUSED);
}

static void test_port_in_use(void **state)
{
	struct skein_env *env = *state;
	struct pair p;
	int fd = -7;

	listen_on(env, "127.0.0.1", &p);
	assert_int_equal(env_sock_listen(env, &p.addr, 8, &fd), -EADDRINUSE);
	assert_int_equal(fd, -7);
	env_sock_close(env, p.listener);
	/* Free again at once. */
	assert_int_equal(env_sock_listen(env, &p.addr, 8, &fd), 0);
	env_sock_close(env, fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		T(test_resolve), T(test_stream),
		T(test_full),	 T(test_wildcard_takes_both),
		T(test_refused), T(test_port_in_use),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
