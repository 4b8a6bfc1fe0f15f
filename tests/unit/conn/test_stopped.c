/* SPDX-License-Identifier: MIT */
/*
 * test_stopped.c - a process that stops in the middle of its handshake holds up
 * nobody else: neither the server's engine nor the client's waits for it.
 */
#include "unit/cm.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <skein/skein.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define OFFER_MIN 100 /* bytes: the first message that is so long */

static bool stops; /* this process, as soon as its first message has left */

ssize_t send(int fd, const void *buf, size_t len, int flags)
{
	ssize_t n = syscall(SYS_sendto, fd, buf, len, flags, NULL, 0);

	if (stops && len >= OFFER_MIN) {
		stops = false;
		raise(SIGSTOP);
	}
	return n;
}

static struct skein_ctx *ctx_new(void)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr), .device = "soft"};
	struct skein_ctx *ctx;

	assert_int_equal(skein_ctx_open(&attr, &ctx), 0);
	return ctx;
}

static int on_echo(struct skein_rpc_req *req, void *arg)
{
	size_t len = skein_rpc_req_len(req);
	void *resp = skein_rpc_resp_buf(req, len);

	if (!resp)
		return -ENOMEM;
	memcpy(resp, skein_rpc_req_data(req), len);
	return 0;
}

static struct skein_listener *serve(struct skein_ctx *ctx)
{
	struct skein_listener_attr attr = {.size = sizeof(attr)};
	struct skein_listener *l;

	assert_int_equal(skein_rpc_handle(ctx, 1, on_echo, NULL), 0);
	assert_int_equal(skein_listener_open(ctx, "127.0.0.1:0", &attr, &l), 0);
	return l;
}

static void calls(struct skein_ctx *ctx, const char *addr, unsigned n)
{
	struct skein_conn_attr attr = {.size = sizeof(attr)};
	struct skein_conn *conn;
	char resp[8];

	while (n--) {
		assert_int_equal(skein_conn_open(ctx, addr, &attr, &conn), 0);
		assert_int_equal(skein_rpc_call(conn, 1, "stopped", 8, resp,
						sizeof(resp), SKEIN_S(60),
						NULL),
				 0);
		assert_string_equal(resp, "stopped");
		skein_conn_close(conn, SKEIN_S(1));
	}
}

/* The address comes down, what the child is comes up by waitpid(). */
static pid_t child(int sock[2], void (*fn)(int sock))
{
	pid_t pid;

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sock), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid)
		return pid;
	close(sock[0]);
	fn(sock[1]);
	_exit(0);
}

static void until_stopped(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	assert_true(WIFSTOPPED(status));
}

static void end(pid_t pid)
{
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void offering_main(int sock)
{
	struct skein_ctx *ctx = ctx_new();
	char addr[80];

	assert_true(recv(sock, addr, sizeof(addr), 0) > 0);
	stops = true;
	calls(ctx, addr, 1);
}

struct serving {
	struct skein_ctx *ctx;
	struct skein_stop *stop;
};

static void *serving_main(void *arg)
{
	struct serving *s = arg;

	skein_engine_run_stop(skein_ctx_engine(s->ctx), SKEIN_FOREVER, s->stop);
	return NULL;
}

/* A client stops behind its offer: the server cannot get its QP's place. */
static void test_client(void **state)
{
	struct skein_ctx *server, *client;
	struct serving serving;
	pthread_t thread;
	struct skein_listener *l;
	const char *addr;
	int sock[2];
	pid_t pid = child(sock, offering_main);

	server = ctx_new();
	client = ctx_new();
	l = serve(server);
	addr = skein_listener_addr(l);
	assert_true(write(sock[0], addr, strlen(addr) + 1) > 0);
	until_stopped(pid);
	/* The offer is there before the server runs. */
	serving.ctx = server;
	assert_int_equal(skein_stop_new(&serving.stop), 0);
	assert_int_equal(pthread_create(&thread, NULL, serving_main, &serving),
			 0);
	calls(client, addr, 3);
	end(pid);
	skein_stop_set(serving.stop);
	assert_int_equal(pthread_join(thread, NULL), 0);
	skein_stop_free(serving.stop);
	skein_ctx_close(client);
	skein_ctx_close(server);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_client),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
