/* SPDX-License-Identifier: MIT */
/*
 * test_late.c - deadlines of handshakes: what came before them counts, even if
 * it is read later, and a peer that is late is told so.
 */
#include "unit/conn/raw.h"
#include "unit/patience.h"

#include "conn/setup/listener.h"

#include <stdio.h>
#include <unistd.h>

#define NOISE 64 /* sockets: several beats read them */

static void keep_conn(void *arg, struct skein_conn *conn,
		      enum skein_conn_state state)
{
	if (state == SKEIN_CONN_READY)
		*(struct skein_conn **)arg = conn;
}

static struct skein_listener *listen_on(struct skein_ctx *ctx,
					struct skein_conn **accepted)
{
	struct skein_listener_attr l = {.size = sizeof(l),
					.on_conn = accepted ? keep_conn : NULL,
					.arg = accepted,
					.handshake_timeout_ns =
						patience_ns(30)};
	struct skein_listener *listener;

	assert_int_equal(skein_listener_open(ctx, "127.0.0.1:0", &l, &listener),
			 0);
	return listener;
}

/* As if this end had been stopped since it ran last, and until its deadlines
 * have passed. */
static void stopped_until_late(struct skein_ctx *ctx)
{
	struct skein_engine *eng = ctx->engine;
	uint64_t now = env_now_ns(ctx->env);
	struct skein_conn *conn;
	struct conn_peer *peer;
	struct list_node *n;

	list_for_each(n, &eng->peers) {
		peer = container_of(n, struct conn_peer, eng_link);
		if (peer->deadline_ns != ENV_NEVER)
			peer->deadline_ns = now;
	}
	list_for_each(n, &eng->pending) {
		conn = container_of(n, struct skein_conn, pending_link);
		if (conn->deadline_ns != ENV_NEVER)
			conn->deadline_ns = now;
	}
	eng->next_tick_ns = 0;
	eng->attention = true; /* another connection's event comes first */
}

static bool has_answered(struct skein_ctx *server)
{
	struct list_node *n;
	struct skein_conn *conn;

	list_for_each(n, &server->engine->pending) {
		conn = container_of(n, struct skein_conn, pending_link);
		if (conn->hs && conn->hs->state == HANDSHAKE_S_ACCEPTED)
			return true;
	}
	return false;
}

/* Runs both ends until the server waits for a message, which then comes while it
 * is stopped: what came then came in time. */
static void stopped(bool before_offer)
{
	struct skein_conn *conn, *accepted = NULL;
	struct skein_conn_attr c = {.size = sizeof(c),
				    .timeout_ns = patience_ns(30)};
	struct skein_ctx *server = open_ctx(), *client = open_ctx();
	struct skein_listener *listener = listen_on(server, &accepted);
	const char *text;

	assert_int_equal(skein_conn_open_async(client,
					       skein_listener_addr(listener),
					       &c, &conn),
			 0);
	while (!atomic_load(&listener->peers)) {
		if (conn->phase != CONN_P_SHAKE)
			skein_ctx_progress(client);
		skein_ctx_progress(server);
	}
	while (conn->phase != CONN_P_SHAKE)
		skein_ctx_progress(client);
	while (!before_offer && !has_answered(server))
		skein_ctx_progress(server);
	while (!before_offer &&
	       skein_conn_get_state(conn) == SKEIN_CONN_CONNECTING)
		skein_ctx_progress(client);
	stopped_until_late(server);
	do
		both(server, client);
	while (atomic_load(&listener->admission.handshakes) ||
	       skein_conn_get_state(conn) == SKEIN_CONN_CONNECTING);
	if (skein_conn_error(conn, &text))
		fail_msg("%s", text);
	assert_non_null(accepted);
	assert_int_equal(skein_conn_get_state(accepted), SKEIN_CONN_READY);
	assert_int_equal(atomic_load(&server->counts.timeouts), 0);
	skein_conn_close(conn, 0);
	while (atomic_load(&listener->peers))
		both(server, client);
	skein_ctx_close(client);
	skein_ctx_close(server);
}

static void test_stopped_before_offer(void **state)
{
	stopped(true);
}

static void test_stopped_before_ready(void **state)
{
	stopped(false);
}

/* --- what did not come ---------------------------------------------------- */

static void until_timed_out(struct skein_ctx *server)
{
	while (!atomic_load(&server->counts.timeouts))
		skein_ctx_progress(server);
	assert_int_equal(atomic_load(&server->counts.timeouts), 1);
}

/* A socket that says nothing. */
static void test_silent(void **state)
{
	struct skein_ctx *server = open_ctx();
	struct skein_listener *listener = listen_on(server, NULL);
	int fd = dial(skein_listener_addr(listener));

	while (!atomic_load(&listener->peers))
		skein_ctx_progress(server);
	stopped_until_late(server);
	until_timed_out(server);
	close(fd);
	while (atomic_load(&listener->peers))
		skein_ctx_progress(server);
	skein_ctx_close(server);
}

/* A client that makes an offer, and then does nothing: when it goes on it hears
 * why it was refused. */
static void test_silent_after_offer(void **state)
{
	struct skein_conn_attr c = {.size = sizeof(c),
				    .timeout_ns = patience_ns(30)};
	struct skein_ctx *server = open_ctx(), *client = open_ctx();
	struct skein_listener *listener = listen_on(server, NULL);
	struct skein_conn *conn;
	const char *text = "";

	assert_int_equal(skein_conn_open_async(client,
					       skein_listener_addr(listener),
					       &c, &conn),
			 0);
	while (conn->phase != CONN_P_SHAKE)
		both(server, client);
	while (!has_answered(server))
		skein_ctx_progress(server);
	stopped_until_late(server);
	until_timed_out(server);
	while (!skein_conn_error(conn, &text))
		both(server, client);
	assert_int_equal(skein_conn_error(conn, &text), -ETIMEDOUT);
	assert_non_null(strstr(text, "the handshake took too long"));
	skein_conn_close(conn, 0);
	while (atomic_load(&listener->peers))
		both(server, client);
	skein_ctx_close(client);
	skein_ctx_close(server);
}

/* A server that takes the connection, and does not answer the offer. */
static void test_no_answer(void **state)
{
	struct sockaddr_in in = {.sin_family = AF_INET};
	struct skein_conn_attr c = {.size = sizeof(c),
				    .timeout_ns = patience_ns(30)};
	struct skein_ctx *client = open_ctx();
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof(in);
	struct skein_conn *conn;
	const char *text = "";
	char addr[32];

	inet_pton(AF_INET, "127.0.0.1", &in.sin_addr);
	assert_int_equal(bind(fd, (struct sockaddr *)&in, sizeof(in)), 0);
	assert_int_equal(listen(fd, 8), 0);
	getsockname(fd, (struct sockaddr *)&in, &len);
	snprintf(addr, sizeof(addr), "127.0.0.1:%d", ntohs(in.sin_port));
	assert_int_equal(skein_conn_open_async(client, addr, &c, &conn), 0);
	while (conn->phase != CONN_P_SHAKE)
		skein_ctx_progress(client);
	stopped_until_late(client);
	while (skein_conn_get_state(conn) == SKEIN_CONN_CONNECTING)
		skein_ctx_progress(client);
	assert_int_equal(skein_conn_error(conn, &text), -ETIMEDOUT);
	assert_non_null(strstr(text, "the handshake took too long"));
	skein_conn_close(conn, 0);
	close(fd);
	skein_ctx_close(client);
}

/* Other peers speak all the time, more than a beat reads: the late one is found
 * all the same. */
static void test_silent_among_many(void **state)
{
	struct skein_ctx *server = open_ctx();
	struct skein_listener *listener = listen_on(server, NULL);
	int loud[NOISE], fd, rc;

	for (int i = 0; i < NOISE; i++)
		loud[i] = dial(skein_listener_addr(listener));
	fd = dial(skein_listener_addr(listener));
	while (atomic_load(&listener->peers) < NOISE + 1)
		skein_ctx_progress(server);
	/* An offer of 3,840 bytes, byte by byte. */
	for (int i = 0; i < NOISE; i++)
		assert_int_equal(
			send(loud[i], "\x00\x0f\0\0\x01\0\x01\0", 8, 0), 8);
	stopped_until_late(server);
	while (!atomic_load(&server->counts.timeouts)) {
		for (int i = 0; i < NOISE; i++) {
			rc = (int)send(loud[i], "", 1, MSG_NOSIGNAL);
			assert_true(rc == 1);
		}
		skein_ctx_progress(server);
	}
	for (int i = 0; i < NOISE; i++)
		close(loud[i]);
	close(fd);
	while (atomic_load(&listener->peers))
		skein_ctx_progress(server);
	skein_ctx_close(server);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stopped_before_offer),
		cmocka_unit_test(test_stopped_before_ready),
		cmocka_unit_test(test_silent),
		cmocka_unit_test(test_silent_after_offer),
		cmocka_unit_test(test_no_answer),
		cmocka_unit_test(test_silent_among_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
