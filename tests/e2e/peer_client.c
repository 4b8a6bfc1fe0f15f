/* SPDX-License-Identifier: MIT */
/*
 * peer_client.c - calls the server, WINDOW calls under way at once, and checks
 * every answer. Ways:
 *
 *	call	connect, make the calls, close
 *	again	the same for ever: when the connection breaks, connect anew
 *	fork	fork after half of the calls: the child's use is refused, the
 *		parent's calls go on
 *	exec	make BEFORE_EXEC calls, then become a new process of way "call"
 *
 * Prints "running" after the first answers of each connection, "broken: WHY"
 * when one breaks, and the counts at its end. calls 0: until SIGTERM.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "peer.h"

#define WINDOW 16
#define RUNNING 50
#define BEFORE_EXEC 100
/* Longer than any pause that a test makes. */
#define TIMEOUT SKEIN_S(30)

struct client {
	struct skein_ctx *ctx;
	struct skein_engine *engine;
	struct skein_conn *conn;
	uint64_t next;	/* sequence number of the next call */
	uint64_t limit; /* calls to make on this connection; 0: no limit */
	unsigned under_way;
	uint64_t done;
	uint64_t wrong;
	uint64_t refused; /* by a server without memory for them */
	uint64_t not_sent;
	uint64_t unknown;
	int error; /* the first that a call ended with */
	char request[sizeof(struct peer_head) + PEER_FILL_MAX];
};

struct call {
	struct client *client;
	uint64_t seq;
};

static struct skein_engine *stopped_by_signal;
static volatile sig_atomic_t told_to_end;

static void on_signal(int number)
{
	told_to_end = 1;
	if (stopped_by_signal)
		skein_engine_stop(stopped_by_signal);
}

static bool answer_ok(const struct skein_rpc_result *result, uint64_t seq)
{
	const uint8_t *data = result->data;
	size_t fill_len = peer_fill_len(seq);
	struct peer_head head;

	if (result->len != sizeof(head) + fill_len)
		return false;
	memcpy(&head, data, sizeof(head));
	return head.seq == seq && head.fill_len == fill_len &&
	       peer_fill_ok(data + sizeof(head), seq, fill_len, 0xff);
}

static void on_answer(void *arg, const struct skein_rpc_result *result)
{
	struct call *call = arg;
	struct client *c = call->client;

	c->under_way--;
	if (result->outcome == SKEIN_NOT_SENT)
		c->not_sent++;
	else if (result->outcome == SKEIN_UNKNOWN)
		c->unknown++;
	else if (result->status == -ENOMEM)
		c->refused++;
	else if (result->status || !answer_ok(result, call->seq))
		c->wrong++;
	else
		c->done++;
	if (result->status && result->status != -ENOMEM && !c->error)
		c->error = result->status;
	free(call);
	skein_engine_stop(c->engine);
}

static int start_call(struct client *c)
{
	size_t fill_len = peer_fill_len(c->next);
	struct peer_head head = {.seq = c->next, .fill_len = fill_len};
	struct call *call = malloc(sizeof(*call));
	int err;

	if (!call)
		return -ENOMEM;
	*call = (struct call){c, c->next};
	memcpy(c->request, &head, sizeof(head));
	peer_fill((uint8_t *)c->request + sizeof(head), c->next, fill_len, 0);
	err = skein_rpc_call_async(c->conn, PEER_CALL, c->request,
				   sizeof(head) + fill_len,
				   sizeof(head) + fill_len, TIMEOUT, on_answer,
				   call);
	if (err) {
		free(call);
		return err;
	}
	c->next++;
	c->under_way++;
	return 0;
}

/* Makes calls until the limit, an error or a signal; then waits for those under
 * way. Returns the first error. */
static int make_calls(struct client *c)
{
	bool announced = false;

	while (!c->error && !told_to_end && (!c->limit || c->next < c->limit)) {
		int err = c->under_way < WINDOW ? start_call(c) : -EAGAIN;

		if (err && err != -EAGAIN) {
			c->error = err;
			break;
		}
		if (err)
			skein_engine_run(c->engine, TIMEOUT);
		if (!announced && c->done >= RUNNING) {
			printf("running\n");
			fflush(stdout);
			announced = true;
		}
	}
	while (c->under_way)
		skein_engine_run(c->engine, TIMEOUT);
	return c->error;
}

static void print_counts(const struct client *c)
{
	printf("%" PRIu64 " done, %" PRIu64 " wrong, %" PRIu64
	       " not sent, %" PRIu64 " unknown, %" PRIu64 " refused\n",
	       c->done, c->wrong, c->not_sent, c->unknown, c->refused);
	fflush(stdout);
}

/* One connection, from its handshake to its end. */
static int one_connection(struct client *c, const char *addr,
			  const struct skein_conn_attr *attr)
{
	const char *why = "";
	int err;

	c->next = c->done = c->wrong = c->not_sent = c->unknown = 0;
	c->refused = 0;
	c->error = 0;
	err = skein_conn_open(c->ctx, addr, attr, &c->conn);
	if (err) {
		fprintf(stderr, "client: %s\n", skein_strerror(err));
		return err;
	}
	err = make_calls(c);
	if (err) {
		skein_conn_error(c->conn, &why);
		printf("broken: %s: %s\n", skein_strerror(err), why);
	}
	print_counts(c);
	skein_conn_close(c->conn, SKEIN_S(1));
	printf("closed\n");
	fflush(stdout);
	return err ? err : (c->wrong ? -EBADMSG : 0);
}

static int way_again(struct client *c, const char *addr)
{
	struct skein_conn_attr attr = {
		.size = sizeof(attr),
		.retries = 1000,
		.timeout_ns = SKEIN_S(20),
	};

	while (!told_to_end) {
		int err = one_connection(c, addr, &attr);

		if (!c->next && err)
			return err;
	}
	return c->wrong ? -EBADMSG : 0;
}

/* In the child: every use of the context is refused, in one line or none. */
static void child_of_fork(struct client *c)
{
	char request[sizeof(struct peer_head)] = {0};
	struct skein_conn *conn;
	int err;

	err = skein_rpc_call(c->conn, PEER_CALL, request, sizeof(request), NULL,
			     0, SKEIN_S(1), NULL);
	if (err != -SKEIN_EFORKED)
		_exit(10);
	err = skein_conn_open(c->ctx, "127.0.0.1:1", NULL, &conn);
	if (err != -SKEIN_EFORKED)
		_exit(11);
	_exit(0);
}

static int way_fork(struct client *c, const char *addr, uint64_t calls)
{
	int err, status;
	pid_t child;

	err = skein_conn_open(c->ctx, addr, NULL, &c->conn);
	if (err)
		return err;
	c->limit = calls / 2;
	err = make_calls(c);
	if (err)
		goto err_close;
	child = fork();
	if (child == 0)
		child_of_fork(c);
	c->limit = calls;
	err = make_calls(c);
	if (waitpid(child, &status, 0) != child || status) {
		fprintf(stderr, "client: the child ended with %#x\n", status);
		err = err ? err : -ECHILD;
	}
	print_counts(c);
err_close:
	skein_conn_close(c->conn, SKEIN_S(1));
	return err ? err : (c->wrong ? -EBADMSG : 0);
}

static int way_exec(struct client *c, const char *addr, char **argv)
{
	int err;

	err = skein_conn_open(c->ctx, addr, NULL, &c->conn);
	if (err)
		return err;
	c->limit = BEFORE_EXEC;
	err = make_calls(c);
	if (err)
		return err;
	print_counts(c);
	execl("/proc/self/exe", argv[0], "call", addr, argv[3], NULL);
	return -errno;
}

int peer_client(const char *how, const char *addr, uint64_t calls, char **argv)
{
	struct client *c = calloc(1, sizeof(*c));
	int err;

	if (!c)
		return 1;
	err = skein_ctx_open(NULL, &c->ctx);
	if (err) {
		fprintf(stderr, "client: %s\n", skein_strerror(err));
		goto out;
	}
	c->limit = calls;
	c->engine = stopped_by_signal = skein_ctx_engine(c->ctx);
	signal(SIGTERM, on_signal);
	if (!strcmp(how, "call"))
		err = one_connection(c, addr, NULL);
	else if (!strcmp(how, "again"))
		err = way_again(c, addr);
	else if (!strcmp(how, "fork"))
		err = way_fork(c, addr, calls);
	else if (!strcmp(how, "exec"))
		err = way_exec(c, addr, argv);
	else
		err = -EINVAL;
	stopped_by_signal = NULL;
	skein_ctx_close(c->ctx);
out:
	free(c);
	return err ? 1 : 0;
}
