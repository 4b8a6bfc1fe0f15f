/* SPDX-License-Identifier: MIT */
/*
 * test_hostile.c - a listener among storms, garbage, idlers, short of fds and
 * of memory.
 */
#include "unit/alloc_sweep.h"
#include "unit/conn/raw.h"
#include "unit/patience.h"

#include "conn/state.h"
#include "conn/setup/listener.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <skein/skein.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* Fewer descriptors than a test needs are no failure of the listener's. */
static bool allow_fds(rlim_t n)
{
	struct rlimit r;

	getrlimit(RLIMIT_NOFILE, &r);
	if (r.rlim_cur < n)
		r.rlim_cur = n < r.rlim_max ? n : r.rlim_max;
	setrlimit(RLIMIT_NOFILE, &r);
	return r.rlim_cur >= n;
}

#define STORM 200

static void test_storm(void **state)
{
	struct skein_listener_attr l = {.size = sizeof(l),
					.handshakes_max = 8,
					.handshake_timeout_ns =
						patience_ns(30)};
	struct skein_conn_attr c = {.size = sizeof(c),
				    .retries = 1000,
				    .timeout_ns = patience_ns(30)};
	static struct skein_conn *conns[STORM];
	struct skein_ctx *server, *client;
	struct skein_listener *listener;
	const char *text;
	int ready;

	if (!allow_fds(10 * STORM))
		skip();
	server = open_ctx();
	client = open_ctx();
	assert_int_equal(
		skein_listener_open(server, "127.0.0.1:0", &l, &listener), 0);
	/* Another shard, another link: nothing is shared. */
	for (unsigned i = 0; i < STORM; i++) {
		c.shard = i;
		assert_int_equal(skein_conn_open_async(
					 client, skein_listener_addr(listener),
					 &c, &conns[i]),
				 0);
	}
	do {
		both(server, client);
		assert_true(atomic_load(&listener->admission.handshakes) <= 8);
		ready = 0;
		for (int i = 0; i < STORM; i++) {
			if (skein_conn_error(conns[i], &text))
				fail_msg("connection %d: %s", i, text);
			ready += skein_conn_get_state(conns[i]) ==
				 SKEIN_CONN_READY;
		}
	} while (ready < STORM);
	assert_true(atomic_load(&server->counts.refused) > 0);
	while (atomic_load(&listener->admission.handshakes))
		both(server, client);
	assert_int_equal(atomic_load(&listener->admission.conns), STORM);
	for (int i = 0; i < STORM; i++)
		skein_conn_close(conns[i], 0);
	while (atomic_load(&listener->peers))
		both(server, client);
	assert_int_equal(atomic_load(&listener->admission.conns), 0);
	skein_ctx_close(client);
	skein_ctx_close(server);
}

/* Busy is tried again until the deadline. */
static int busy_until_the_end(struct skein_ctx *server,
			      struct skein_ctx *client, const char *addr,
			      struct skein_conn_attr *c)
{
	struct skein_conn *conn;
	int rc;

	c->timeout_ns = SKEIN_MS(300);
	do {
		assert_int_equal(skein_conn_open_async(client, addr, c, &conn),
				 0);
		while (skein_conn_get_state(conn) == SKEIN_CONN_CONNECTING)
			both(server, client);
		rc = skein_conn_error(conn, NULL);
		skein_conn_close(conn, 0);
	} while (patience_doubles(&c->timeout_ns, rc));
	return rc;
}

static void test_conns_max(void **state)
{
	struct skein_listener_attr l = {.size = sizeof(l), .conns_max = 1};
	struct skein_conn_attr c = {.size = sizeof(c),
				    .timeout_ns = patience_ns(30)};
	struct skein_ctx *server = open_ctx(), *client = open_ctx();
	struct skein_listener *listener;
	struct skein_conn *a;
	const char *addr;

	assert_int_equal(
		skein_listener_open(server, "127.0.0.1:0", &l, &listener), 0);
	addr = skein_listener_addr(listener);
	assert_int_equal(skein_conn_open_async(client, addr, &c, &a), 0);
	while (skein_conn_get_state(a) == SKEIN_CONN_CONNECTING)
		both(server, client);
	assert_int_equal(skein_conn_get_state(a), SKEIN_CONN_READY);
	/* on the same link, and on one of its own */
	for (c.shard = 0; c.shard < 2; c.shard++)
		assert_int_equal(busy_until_the_end(server, client, addr, &c),
				 -SKEIN_EBUSY);
	assert_int_equal(skein_conn_get_state(a), SKEIN_CONN_READY);
	skein_conn_close(a, 0);
	while (atomic_load(&listener->peers))
		both(server, client);
	skein_ctx_close(client);
	skein_ctx_close(server);
}

/* Sends, then runs the server until it hangs up. */
static void send_garbage(struct skein_ctx *server, struct skein_ctx *client,
			 const char *addr, const void *buf, size_t len)
{
	uint64_t end = env_now_ns(server->env) + patience_ns(20);
	int fd = dial(addr);
	char sink[512];
	ssize_t n;

	while (send(fd, buf, len, MSG_NOSIGNAL) < 0) {
		assert_int_equal(errno, EAGAIN);
		both(server, client);
	}
	do {
		both(server, client);
		n = recv(fd, sink, sizeof(sink), 0);
		assert_true(env_now_ns(server->env) < end);
	} while (n > 0 || (n < 0 && errno == EAGAIN));
	close(fd);
}

static void test_garbage(void **state)
{
	static const char *const lines[] = {
		"GET / HTTP/1.1\r\n\r\n",
		"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
		"\x00\x00\x00\x00\x00\x00\x00\x00",
		"\x08\x00\x00\x00\x01\x00\x01\x00SKN1\x01\x07\x00\x00",
		"\x08\x00\x00\x00\x01\x00\x01\x00SKN1\x01\x01\x00\x00",
		"\x04\x00\x00\x00\x06\x00\x01\x00\x00\x00\x00\x00",
	};
	static const size_t lens[] = {18, 10, 8, 16, 16, 12};
	struct skein_listener_attr l = {.size = sizeof(l),
					.handshake_timeout_ns = patience_ns(1)};
	struct skein_ctx *server = open_ctx(), *client = open_ctx();
	struct skein_listener *listener;
	struct skein_conn *conn;
	const char *addr;
	uint8_t noise[600];
	unsigned long was;

	assert_int_equal(
		skein_listener_open(server, "127.0.0.1:0", &l, &listener), 0);
	addr = skein_listener_addr(listener);
	assert_int_equal(skein_conn_open_async(client, addr, NULL, &conn), 0);
	while (skein_conn_get_state(conn) == SKEIN_CONN_CONNECTING)
		both(server, client);
	for (size_t i = 0; i < 6; i++) {
		was = atomic_load(&server->counts.garbage);
		send_garbage(server, client, addr, lines[i], lens[i]);
		assert_true(atomic_load(&server->counts.garbage) > was);
	}
	for (int i = 0; i < 50; i++) {
		env_random(server->env, noise, sizeof(noise));
		send_garbage(server, client, addr, noise, sizeof(noise));
	}
	/* Nothing else was disturbed. */
	assert_int_equal(skein_conn_get_state(conn), SKEIN_CONN_READY);
	while (atomic_load(&listener->peers) > 1)
		both(server, client);
	assert_int_equal(atomic_load(&listener->admission.handshakes), 0);
	skein_conn_close(conn, 0);
	while (atomic_load(&listener->peers))
		both(server, client);
	skein_ctx_close(client);
	skein_ctx_close(server);
}

/* Links that say nothing, or part of a frame, are put out at the deadline. In
 * the meantime they keep no place of a client that has an offer. */
static void test_idlers(void **state)
{
	struct skein_listener_attr l = {.size = sizeof(l),
					.handshakes_max = 16,
					.handshake_timeout_ns = patience_ns(1)};
	struct skein_ctx *server = open_ctx(), *client = open_ctx();
	struct skein_listener *listener;
	struct skein_conn *conn;
	int fds[16];

	assert_int_equal(
		skein_listener_open(server, "127.0.0.1:0", &l, &listener), 0);
	for (int i = 0; i < 16; i++)
		fds[i] = dial(skein_listener_addr(listener));
	while (atomic_load(&listener->peers) < 16)
		both(server, client);
	assert_int_equal(atomic_load(&listener->admission.handshakes), 0);
	for (int i = 0; i < 8; i++)
		assert_int_equal(send(fds[i], "\x80\x00", 2, MSG_NOSIGNAL), 2);
	assert_int_equal(skein_conn_open_async(client,
					       skein_listener_addr(listener),
					       NULL, &conn),
			 0);
	while (skein_conn_get_state(conn) == SKEIN_CONN_CONNECTING)
		both(server, client);
	assert_int_equal(skein_conn_get_state(conn), SKEIN_CONN_READY);
	assert_int_equal(atomic_load(&server->counts.refused), 0);
	while (atomic_load(&server->counts.timeouts) < 16)
		both(server, client);
	assert_int_equal(listener->n_silent, 0);
	for (int i = 0; i < 16; i++)
		close(fds[i]);
	skein_conn_close(conn, 0);
	while (atomic_load(&listener->peers))
		both(server, client);
	skein_ctx_close(client);
	skein_ctx_close(server);
}

#define CROWD 2000

static int stranger(struct skein_listener *listener, const uint8_t *offer,
		    size_t bytes)
{
	int fd = dial(skein_listener_addr(listener));

	if (bytes)
		(void)send(fd, offer, bytes, MSG_NOSIGNAL);
	return fd;
}

/* CROWD sockets send so many bytes of an offer, and stay. Clients with offers
 * come in between and after: none is refused, none has to try again. */
static void crowd(size_t bytes)
{
	struct skein_listener_attr l = {.size = sizeof(l),
					.handshakes_max = 4,
					.handshake_timeout_ns = SKEIN_S(600)};
	struct skein_ctx *server = open_ctx(), *client = open_ctx();
	uint8_t buf[CTLFRAME_HEAD + HANDSHAKE_MSG_MAX];
	struct bytes_out out = bytes_out(buf, sizeof(buf));
	struct skein_conn_attr c = {.size = sizeof(c),
				    .timeout_ns = patience_ns(60)};
	struct skein_listener *listener;
	struct skein_conn *conn[5];
	unsigned n = 0;
	static int fds[CROWD];

	put_offer(&out, 1, 0);
	assert_true(bytes < out.pos);
	assert_int_equal(
		skein_listener_open(server, "127.0.0.1:0", &l, &listener), 0);
	for (int i = 0; i < CROWD; i++) {
		fds[i] = stranger(listener, buf, bytes);
		both(server, client);
		if (i % (CROWD / 4) && i != CROWD - 1)
			continue;
		assert_int_equal(skein_conn_open_async(
					 client, skein_listener_addr(listener),
					 &c, &conn[n]),
				 0);
		/* Others come between its connection and its offer. */
		for (int j = 0; j < 8; j++)
			skein_ctx_progress(client);
		for (int j = 0; j < 100 && i + 1 < CROWD; j++)
			fds[++i] = stranger(listener, buf, bytes);
		while (skein_conn_get_state(conn[n]) == SKEIN_CONN_CONNECTING)
			both(server, client);
		assert_int_equal(skein_conn_get_state(conn[n]),
				 SKEIN_CONN_READY);
		n++;
	}
	while (atomic_load(&server->counts.refused) <
	       CROWD - LISTENER_SILENT_MAX)
		both(server, client);
	/* Those alone, and none of the clients: nothing is in the backlog. */
	for (int i = 0; i < 100; i++)
		both(server, client);
	assert_int_equal(atomic_load(&server->counts.refused),
			 CROWD - LISTENER_SILENT_MAX);
	assert_int_equal(atomic_load(&listener->admission.handshakes), 0);
	assert_int_equal(listener->n_silent, LISTENER_SILENT_MAX);
	/* The server holds no more of them than it says. */
	assert_true(atomic_load(&listener->peers) <=
		    LISTENER_SILENT_MAX + n + 1);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(skein_conn_get_state(conn[i]),
				 SKEIN_CONN_READY);
	for (int i = 0; i < CROWD; i++)
		close(fds[i]);
	for (unsigned i = 0; i < n; i++)
		skein_conn_close(conn[i], 0);
	while (atomic_load(&listener->peers))
		both(server, client);
	assert_int_equal(listener->n_silent, 0);
	skein_ctx_close(client);
	skein_ctx_close(server);
}

static void test_silent_crowd(void **state)
{
	if (!allow_fds(2 * CROWD + 500))
		skip();
	crowd(0);
	crowd(1);
}

/* A client that hears "busy" comes again by itself: with the default
 * attributes, as many as come at once are served by few handshakes. */
static void test_busy_is_tried_again(void **state)
{
	struct skein_listener_attr l = {.size = sizeof(l),
					.handshakes_max = 1,
					.handshake_timeout_ns =
						patience_ns(30)};
	struct skein_ctx *server = open_ctx(), *client = open_ctx();
	struct skein_listener *listener;
	struct skein_conn *conn[24];
	struct skein_conn_attr c = {.size = sizeof(c),
				    .timeout_ns = patience_ns(60)};

	assert_int_equal(
		skein_listener_open(server, "127.0.0.1:0", &l, &listener), 0);
	for (unsigned i = 0; i < 24; i++) {
		c.shard = i; /* a link each */
		assert_int_equal(skein_conn_open_async(
					 client, skein_listener_addr(listener),
					 &c, &conn[i]),
				 0);
	}
	for (unsigned i = 0; i < 24; i++) {
		while (skein_conn_get_state(conn[i]) == SKEIN_CONN_CONNECTING)
			both(server, client);
		assert_int_equal(skein_conn_get_state(conn[i]),
				 SKEIN_CONN_READY);
	}
	assert_true(atomic_load(&server->counts.refused) > 0);
	for (unsigned i = 0; i < 24; i++)
		skein_conn_close(conn[i], 0);
	while (atomic_load(&listener->peers))
		both(server, client);
	skein_ctx_close(client);
	skein_ctx_close(server);
}

/* Several offers at once on a link that has no handshake behind it: it can be
 * handed to the engine of one of them only. */
static void test_offers_at_once(void **state)
{
	struct skein_ctx *server = open_ctx(), *client = open_ctx();
	struct skein_engine *engines[2] = {skein_ctx_engine(server)};
	struct skein_listener_attr l = {
		.size = sizeof(l), .engines = engines, .engine_count = 2};
	uint8_t buf[4 * HANDSHAKE_MSG_MAX];
	struct bytes_out out;
	struct skein_listener *listener;

	assert_int_equal(skein_engine_new(server, SKEIN_WAIT_POLL, &engines[1]),
			 0);
	assert_int_equal(
		skein_listener_open(server, "127.0.0.1:0", &l, &listener), 0);
	for (uint32_t first = 0; first < 2; first++) {
		out = bytes_out(buf, sizeof(buf));
		for (uint16_t i = 0; i < 4; i++)
			put_offer(&out, i + 1, (first + i) % 2);
		assert_int_equal(engine_background_start(engines[1]->e), 0);
		send_garbage(server, client, skein_listener_addr(listener), buf,
			     out.pos);
		engine_background_stop(engines[1]->e);
	}
	while (atomic_load(&listener->peers)) {
		both(server, client);
		skein_engine_progress(engines[1]);
	}
	assert_int_equal(atomic_load(&listener->admission.conns), 0);
	skein_ctx_close(client);
	skein_ctx_close(server);
}

static int next_fd(void)
{
	int fd = dup(0);

	close(fd);
	return fd;
}

/* The listener has no fd left: one client is refused in words, others wait,
 * nothing spins, and it goes on when there is one again. */
static void test_no_fds(void **state)
{
	struct skein_conn_attr c = {.size = sizeof(c), .retries = 100};
	struct skein_ctx *server = open_ctx(), *client = open_ctx();
	struct skein_listener *listener;
	struct rlimit was, low;
	struct skein_conn *conn;
	int raw, next;
	char text[256];
	ssize_t n;

	assert_int_equal(
		skein_listener_open(server, "127.0.0.1:0", NULL, &listener), 0);
	both(server, client);
	raw = dial(skein_listener_addr(listener));
	next = dial(skein_listener_addr(listener));
	getrlimit(RLIMIT_NOFILE, &was);
	low = was;
	low.rlim_cur = (rlim_t)next_fd();
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	while (!listener->paused_until_ns)
		both(server, client);
	assert_false(listener->watched);
	n = recv(raw, text, sizeof(text), 0);
	assert_true(n > 0);
	assert_non_null(memmem(text, (size_t)n, "out of descriptors", 18));
	assert_int_equal(recv(next, text, sizeof(text), MSG_DONTWAIT), -1);
	setrlimit(RLIMIT_NOFILE, &was);
	assert_int_equal(skein_conn_open_async(client,
					       skein_listener_addr(listener),
					       &c, &conn),
			 0);
	while (skein_conn_get_state(conn) == SKEIN_CONN_CONNECTING)
		both(server, client);
	assert_int_equal(skein_conn_get_state(conn), SKEIN_CONN_READY);
	assert_non_null(listener->spare);
	close(raw);
	close(next);
	skein_conn_close(conn, 0);
	while (atomic_load(&listener->peers))
		both(server, client);
	skein_ctx_close(client);
	skein_ctx_close(server);
}

/* --- the n-th allocation fails ----------------------------------------- */

static void on_read(void *arg, int status)
{
	*(int *)arg = status;
}

/* A second connection on the same link, and a READ through it. */
static int use_memory(struct skein_ctx *server, struct skein_ctx *client,
		      struct skein_listener *listener)
{
	struct skein_mem *local = NULL;
	struct skein_conn *conn;
	struct skein_remote r = {.size = sizeof(r)};
	int rc, status = 1;

	rc = skein_conn_open_async(client, skein_listener_addr(listener), NULL,
				   &conn);
	if (rc)
		return rc;
	while (skein_conn_get_state(conn) == SKEIN_CONN_CONNECTING)
		both(server, client);
	rc = skein_conn_error(conn, NULL);
	if (rc == 0)
		rc = skein_mem_new(client, 64, &local);
	for (int i = 0; i < 50 && rc == 0; i++) {
		both(server, client);
		rc = skein_mem_find(conn, "m", SKEIN_MS(1), &r);
		if (rc == 0)
			break;
		rc = rc == -ENOENT && i < 49 ? 0 : rc;
	}
	if (rc == 0)
		rc = skein_mem_read_async(conn, local, 0, &r, 0, 64, on_read,
					  &status);
	while (rc == 0 && status == 1)
		both(server, client);
	skein_conn_close(conn, 0);
	return rc ? rc : status;
}

static int use(struct skein_ctx *server, struct skein_ctx *client)
{
	struct skein_listener *listener;
	struct skein_mem *mem = NULL;
	struct skein_conn *conn;
	int rc;

	rc = skein_listener_open(server, "127.0.0.1:0", NULL, &listener);
	if (rc)
		return rc;
	rc = skein_mem_new(server, 64, &mem);
	if (rc == 0)
		rc = skein_mem_share(mem, "m", SKEIN_MEM_READ);
	if (rc)
		return rc;
	rc = skein_conn_open_async(client, skein_listener_addr(listener), NULL,
				   &conn);
	if (rc)
		return rc;
	while (skein_conn_get_state(conn) == SKEIN_CONN_CONNECTING)
		both(server, client);
	rc = skein_conn_error(conn, NULL);
	if (rc == 0)
		rc = use_memory(server, client, listener);
	/* Say goodbye while both are run. */
	skein_conn_close(conn, 0);
	while (atomic_load(&client->engine->n_conns) ||
	       atomic_load(&listener->peers))
		both(server, client);
	return rc;
}

static int attempt(struct skein_env *env)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr), .device = "soft"};
	struct skein_ctx *server, *client;
	int rc;

	rc = ctx_open_env(env, &attr, &server);
	if (rc)
		return rc;
	rc = ctx_open_env(env, &attr, &client);
	if (rc == 0) {
		rc = use(server, client);
		skein_ctx_close(client);
	}
	skein_ctx_close(server);
	return rc;
}

static void test_allocations(void **state)
{
	struct skein_env *env;
	struct alloc_sweep s;
	int n, rc, failed = 0;

	assert_int_equal(env_real_new(&env), 0);
	env->log = NULL; /* the contexts share it */
	alloc_sweep_init(&s, env);
	for (n = 0; n < ALLOC_SWEEP_MAX; n++) {
		alloc_sweep_begin(&s, n);
		rc = attempt(env);
		if (!alloc_sweep_end(&s))
			break;
		failed += rc != 0;
	}
	assert_int_equal(rc, 0);
	assert_true(n > 30);
	assert_true(failed > n / 2);
	print_message("%d allocations, %d of them missed\n", n, failed);
	env_real_free(env);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_storm),
		cmocka_unit_test(test_conns_max),
		cmocka_unit_test(test_garbage),
		cmocka_unit_test(test_idlers),
		cmocka_unit_test(test_silent_crowd),
		cmocka_unit_test(test_busy_is_tried_again),
		cmocka_unit_test(test_offers_at_once),
		cmocka_unit_test(test_no_fds),
		cmocka_unit_test(test_allocations),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
