/* SPDX-License-Identifier: MIT */
/*
 * many_big.c - large payloads there and back, and what a round of the server's
 * engine takes meanwhile; see many.h.
 */
#include "many.h"

#include <skein/skein.h>

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ECHO 1
#define BIG 2
#define PATIENCE_NS SKEIN_S(120)

static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int on_echo(struct skein_rpc_req *req, void *arg)
{
	size_t len = skein_rpc_req_len(req);
	void *resp = skein_rpc_resp_buf(req, len);

	(void)arg;
	if (!resp)
		return -ENOMEM;
	memcpy(resp, skein_rpc_req_data(req), len);
	return 0;
}

/* big-serve: small calls by the engine's owner, large ones by a pool's thread.
 * "addr=..."; ends with standard input, and says what its rounds took. */
int many_big_serve(int argc, char **argv)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr),
				      .wait = SKEIN_WAIT_POLL};
	uint64_t begun, took, most = 0;
	struct skein_rpc_pool *pool;
	struct skein_listener *l;
	struct many_lat lat = {0};
	struct skein_ctx *ctx;
	int rc = skein_ctx_open(&attr, &ctx), moved;

	(void)argc;
	(void)argv;
	if (!rc)
		rc = skein_rpc_handle(ctx, ECHO, on_echo, NULL);
	if (!rc)
		rc = skein_rpc_pool_new(ctx, 1, &pool);
	if (!rc)
		rc = skein_rpc_handle_workers(ctx, BIG, on_echo, NULL, pool);
	if (!rc)
		rc = skein_listener_open(ctx, "127.0.0.1:0", NULL, &l);
	if (rc)
		many_die("serving", rc);
	printf("addr=%s\n", skein_listener_addr(l));
	fflush(stdout);
	while (!many_eof()) {
		begun = cpu_ns();
		moved = skein_ctx_progress(ctx);
		took = cpu_ns() - begun;
		if (took > most)
			most = took;
		if (moved)
			many_lat_add(&lat, took);
		else
			sched_yield();
	}
	printf("most_ns=%llu", (unsigned long long)most);
	many_lat_print(&lat);
	putchar('\n');
	fflush(stdout);
	_Exit(0);
}

static bool ended(void)
{
	struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};

	return poll(&p, 1, 0) > 0;
}

/* big ADDR LEN COUNT: LEN bytes there and back, so COUNT times, or when that is
 * 0 until standard input ends. "begun=1" after one call before these, which
 * makes the memory. */
int many_big(int argc, char **argv)
{
	struct skein_conn_attr conn_attr = {.size = sizeof(conn_attr),
					    .timeout_ns = PATIENCE_NS};
	struct skein_ctx_attr attr = {.size = sizeof(attr)};
	size_t len = many_number(argv[2]);
	unsigned long count = many_number(argv[3]);
	char *req = malloc(len), *resp = malloc(len);
	struct skein_conn *conn;
	struct many_lat lat = {0};
	struct skein_ctx *ctx;
	int rc = req && resp ? 0 : -ENOMEM;

	(void)argc;
	if (!rc)
		rc = skein_ctx_open(&attr, &ctx);
	if (!rc)
		rc = skein_conn_open(ctx, argv[1], &conn_attr, &conn);
	if (rc)
		many_die("connection", rc);
	memset(req, 7, len);
	memset(resp, 0, len);
	for (unsigned long i = 0; count ? i <= count : !i || !ended(); i++) {
		uint64_t begun = many_now_ns();

		req[len - 1] = (char)i;
		rc = skein_rpc_call(conn, BIG, req, len, resp, len, PATIENCE_NS,
				    NULL);
		if (rc || resp[len - 1] != (char)i)
			many_die("large call", rc);
		if (i) {
			many_lat_add(&lat, many_now_ns() - begun);
			continue;
		}
		printf("begun=1\n");
		fflush(stdout);
	}
	printf("len=%zu", len);
	many_lat_print(&lat);
	putchar('\n');
	free(req);
	free(resp);
	skein_ctx_close(ctx);
	return 0;
}
