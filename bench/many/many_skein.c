/* SPDX-License-Identifier: MIT */
/*
 * many_skein.c - the server and the clients over Skein; see many.h.
 */
#include "many.h"

#include <skein/skein.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ECHO 1
#define TAKE 2
#define PATIENCE_NS SKEIN_S(120)

static int on_echo(struct skein_rpc_req *req, void *arg)
{
	size_t len = skein_rpc_req_len(req);
	void *resp = skein_rpc_resp_buf(req, len);

	if (!resp)
		return -ENOMEM;
	memcpy(resp, skein_rpc_req_data(req), len);
	return 0;
}

/* Takes what comes and answers with MANY_LEN bytes. */
static int on_take(struct skein_rpc_req *req, void *arg)
{
	void *resp = skein_rpc_resp_buf(req, MANY_LEN);

	if (!resp || skein_rpc_req_len(req) < MANY_LEN)
		return -ENOMEM;
	memcpy(resp, skein_rpc_req_data(req), MANY_LEN);
	return 0;
}

static struct skein_ctx *open_ctx(enum skein_wait wait)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr), .wait = wait};
	struct skein_ctx *ctx;
	int rc = skein_ctx_open(&attr, &ctx);

	if (rc)
		many_die("context", rc);
	return ctx;
}

static struct skein_conn *open_conn(struct skein_ctx *ctx, const char *addr)
{
	struct skein_conn_attr attr = {.size = sizeof(attr),
				       .timeout_ns = PATIENCE_NS};
	struct skein_conn *conn;
	int rc = skein_conn_open(ctx, addr, &attr, &conn);

	if (rc)
		many_die("connection", rc);
	return conn;
}

static void call(struct skein_conn *conn)
{
	char req[MANY_LEN] = {1}, resp[MANY_LEN];
	int rc = skein_rpc_call(conn, ECHO, req, sizeof(req), resp,
				sizeof(resp), PATIENCE_NS, NULL);

	if (rc)
		many_die("call", rc);
}

struct serving {
	struct skein_ctx *ctx;
	struct skein_stop *stop;
};

static void *serve_thread(void *arg)
{
	struct serving *s = arg;

	while (!skein_stop_is_set(s->stop))
		skein_engine_run_stop(skein_ctx_engine(s->ctx), SKEIN_FOREVER,
				      s->stop);
	return NULL;
}

/* The seconds that a connection may take, at argv[i]; 0: the default. */
static uint64_t patience(int argc, char **argv, int i)
{
	return argc > i ? SKEIN_S(many_number(argv[i])) : 0;
}

/* serve WAIT [SECONDS]: "addr=..." when clients may come; ends with standard
 * input, and says how often it slept. */
int many_serve(int argc, char **argv)
{
	struct skein_listener_attr attr = {.size = sizeof(attr),
					   .handshake_timeout_ns =
						   patience(argc, argv, 2)};
	struct serving s = {.ctx = open_ctx(many_wait(argv[1]))};
	struct skein_listener *l;
	pthread_t thread;
	int rc;

	rc = skein_rpc_handle(s.ctx, ECHO, on_echo, NULL);
	if (!rc)
		rc = skein_rpc_handle(s.ctx, TAKE, on_take, NULL);
	if (!rc)
		rc = skein_listener_open(s.ctx, "127.0.0.1:0", &attr, &l);
	if (!rc)
		rc = skein_stop_new(&s.stop);
	if (!rc)
		rc = -pthread_create(&thread, NULL, serve_thread, &s);
	if (rc)
		many_die("serving", rc);
	printf("addr=%s\n", skein_listener_addr(l));
	fflush(stdout);
	many_await_eof();
	skein_stop_set(s.stop);
	pthread_join(thread, NULL);
	printf("switches=%ld\n", many_switches());
	fflush(stdout);
	/* thousands of connections end with the process */
	_Exit(0);
}

/* first ADDR WAIT: from main() to the first answer and a further connection. */
int many_first(int argc, char **argv)
{
	uint64_t t[6] = {many_now_ns()};
	struct skein_ctx *ctx = open_ctx(many_wait(argv[2]));
	struct skein_conn *first, *further;

	t[1] = many_now_ns();
	first = open_conn(ctx, argv[1]);
	t[2] = many_now_ns();
	call(first);
	t[3] = many_now_ns();
	further = open_conn(ctx, argv[1]);
	t[4] = many_now_ns();
	call(further);
	t[5] = many_now_ns();
	printf("context_ns=%llu connection_ns=%llu first_call_ns=%llu "
	       "to_first_answer_ns=%llu further_ns=%llu\n",
	       (unsigned long long)(t[1] - t[0]),
	       (unsigned long long)(t[2] - t[1]),
	       (unsigned long long)(t[3] - t[2]),
	       (unsigned long long)(t[3] - t[0]),
	       (unsigned long long)(t[5] - t[3]));
	skein_ctx_close(ctx);
	return 0;
}

/* one ADDR WAIT [SECONDS]: a connection, a call, the end. Without SECONDS what a
 * program that says nothing gets. */
int many_one(int argc, char **argv)
{
	struct skein_conn_attr attr = {.size = sizeof(attr),
				       .timeout_ns = patience(argc, argv, 3)};
	struct skein_ctx *ctx = open_ctx(many_wait(argv[2]));
	struct skein_conn *conn;
	int rc = skein_conn_open(ctx, argv[1], &attr, &conn);

	if (rc)
		many_die("connection", rc);
	call(conn);
	skein_ctx_close(ctx);
	return 0;
}

/* idle ADDR WAIT N: N connections, each with one call; then silence until
 * standard input ends. */
int many_idle(int argc, char **argv)
{
	struct skein_ctx *ctx = open_ctx(many_wait(argv[2]));
	unsigned long n = many_number(argv[3]), tail = n < 32 ? n : 16;
	uint64_t first = 0, last = 0, begun;

	for (unsigned long i = 0; i < n; i++) {
		begun = many_now_ns();
		call(open_conn(ctx, argv[1]));
		begun = many_now_ns() - begun;
		/* the very first maps what all share */
		if (i && i <= tail)
			first += begun;
		if (i >= n - tail)
			last += begun;
	}
	printf("first_ns=%llu last_ns=%llu\n",
	       (unsigned long long)(tail ? first / tail : 0),
	       (unsigned long long)(tail ? last / tail : 0));
	fflush(stdout);
	many_await_eof();
	_Exit(0);
}

/* calls ADDR WAIT COUNT MS: one after the other, COUNT of them or, when that is
 * 0, as many as go into MS milliseconds. */
int many_calls(int argc, char **argv)
{
	struct skein_ctx *ctx = open_ctx(many_wait(argv[2]));
	unsigned long count = many_number(argv[3]);
	uint64_t end, begun, now;
	struct skein_conn *conn = open_conn(ctx, argv[1]);
	struct many_lat lat = {0};
	long switches;

	call(conn);
	switches = many_switches();
	now = begun = many_now_ns();
	end = now + many_number(argv[4]) * 1000000u;
	for (unsigned long i = 0; count ? i < count : now < end; i++) {
		uint64_t t0 = now;

		call(conn);
		now = many_now_ns();
		many_lat_add(&lat, now - t0);
	}
	printf("ns=%llu switches=%ld", (unsigned long long)(now - begun),
	       many_switches() - switches);
	many_lat_print(&lat);
	putchar('\n');
	skein_ctx_close(ctx);
	return 0;
}

/* load ADDR WAIT: "begun" after the first call, then calls until standard input
 * ends. */
int many_load(int argc, char **argv)
{
	struct skein_ctx *ctx = open_ctx(many_wait(argv[2]));
	struct skein_conn *conn = open_conn(ctx, argv[1]);

	(void)argc;
	call(conn);
	printf("begun=1\n");
	fflush(stdout);
	while (!many_eof())
		call(conn);
	skein_ctx_close(ctx);
	return 0;
}

/* pass ADDR WAIT LEN COUNT: a connection, LEN bytes, the answer, the end; so
 * COUNT times. */
int many_pass(int argc, char **argv)
{
	struct skein_ctx *ctx = open_ctx(many_wait(argv[2]));
	unsigned long count = many_number(argv[4]);
	static char buf[PASS_MAX] = {1};
	size_t len = many_number(argv[3]);
	struct many_lat lat = {0};
	char resp[MANY_LEN];
	int rc = len > PASS_MAX ? -EINVAL : 0;

	(void)argc;
	for (unsigned long i = 0; i < count && !rc; i++) {
		uint64_t t0 = many_now_ns();
		struct skein_conn *conn = open_conn(ctx, argv[1]);

		rc = skein_rpc_call(conn, TAKE, buf, len, resp, sizeof(resp),
				    PATIENCE_NS, NULL);
		many_lat_add(&lat, many_now_ns() - t0);
		skein_conn_close(conn, SKEIN_MS(1));
	}
	if (rc)
		many_die("pass", rc);
	many_lat_print(&lat);
	putchar('\n');
	skein_ctx_close(ctx);
	return 0;
}
