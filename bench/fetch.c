/* SPDX-License-Identifier: MIT */
/*
 * fetch.c - calls a second with results that are replied, fetched, or whichever
 * the library chooses, at one service time.
 *
 *	fetch SERVICE_NS WINDOW SECONDS
 *
 * One server with one thread, one client with one, each polls; a connection for
 * each mode. Slices of 40 ms by turns: what else the machine runs hits all three
 * alike. Prints a line for each slice of three: reply, fetch, auto, in calls a
 * second; then what auto did: switches, fetched, replied. For fetch.py.
 */
#include "skein/skein.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	CALL = 1,
	MODES = 3,
	LEN = 64,
	SLICE_NS = 40000000,
};

static const enum skein_return modes[MODES] = {
	SKEIN_RETURN_REPLY, SKEIN_RETURN_FETCH, SKEIN_RETURN_AUTO};

static _Noreturn void die(const char *what, int rc)
{
	fprintf(stderr, "fetch: %s: %s\n", what, skein_strerror(rc));
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static int on_call(struct skein_rpc_req *req, void *arg)
{
	uint64_t service_ns = *(uint64_t *)arg, end;
	void *resp = skein_rpc_resp_buf(req, LEN);

	if (service_ns) {
		end = now_ns() + service_ns;
		while (now_ns() < end)
			;
	}
	memcpy(resp, skein_rpc_req_data(req), LEN);
	return 0;
}

static struct skein_ctx *ctx_new(void)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr),
				      .wait = SKEIN_WAIT_POLL};
	struct skein_ctx *ctx;
	int rc = skein_ctx_open(&attr, &ctx);

	if (rc)
		die("context", rc);
	return ctx;
}

static _Noreturn void server(int out, uint64_t service_ns)
{
	struct skein_ctx *ctx = ctx_new();
	struct skein_listener *l;
	int rc;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	rc = skein_rpc_handle(ctx, CALL, on_call, &service_ns);
	if (!rc)
		rc = skein_listener_open(ctx, "127.0.0.1:0", NULL, &l);
	if (rc)
		die("listener", rc);
	dprintf(out, "%s\n", skein_listener_addr(l));
	for (;;)
		skein_engine_run(skein_ctx_engine(ctx), SKEIN_FOREVER);
}

struct client {
	struct skein_ctx *ctx;
	struct skein_conn *conns[MODES], *conn;
	unsigned window, under_way;
	uint64_t done, end_ns;
};

static const char payload[LEN];

static void on_done(void *arg, const struct skein_rpc_result *res)
{
	struct client *c = arg;

	if (res->status)
		die("call", res->status);
	c->under_way--;
	c->done++;
}

static void fill(struct client *c)
{
	int rc;

	while (c->under_way < c->window) {
		rc = skein_rpc_call_async(c->conn, CALL, payload, LEN, LEN,
					  SKEIN_S(60), on_done, c);
		if (rc == -EAGAIN)
			return; /* there is room after a round */
		if (rc)
			die("call", rc);
		c->under_way++;
	}
}

/* Calls a second. */
static double slice(struct client *c, struct skein_conn *conn)
{
	uint64_t begin = now_ns(), now;

	c->conn = conn;
	c->done = 0;
	do {
		fill(c);
		skein_ctx_progress(c->ctx);
		now = now_ns();
	} while (now < begin + SLICE_NS);
	while (c->under_way)
		skein_ctx_progress(c->ctx);
	return (double)c->done * 1e9 / (double)(now_ns() - begin);
}

static void open_all(struct client *c, const char *addr)
{
	int rc;

	c->ctx = ctx_new();
	for (int i = 0; i < MODES; i++) {
		struct skein_conn_attr attr = {.size = sizeof(attr),
					       .return_mode = modes[i]};

		rc = skein_conn_open(c->ctx, addr, &attr, &c->conns[i]);
		if (rc)
			die("connection", rc);
	}
}

static void run(struct client *c, double seconds)
{
	struct skein_rpc_stats st = {.size = sizeof(st)};
	uint64_t end = now_ns() + (uint64_t)(seconds * 1e9);
	int rc;

	for (int i = 0; i < MODES; i++)
		(void)slice(c, c->conns[i]);
	do {
		for (int i = 0; i < MODES; i++)
			printf("%.0f%c", slice(c, c->conns[i]),
			       i + 1 < MODES ? ' ' : '\n');
	} while (now_ns() < end);
	rc = skein_rpc_get_stats(c->conns[MODES - 1], &st);
	if (rc)
		die("statistics", rc);
	printf("auto %llu %llu %llu\n", (unsigned long long)st.switches,
	       (unsigned long long)st.fetched, (unsigned long long)st.replied);
	for (int i = 0; i < MODES; i++)
		skein_conn_close(c->conns[i], SKEIN_S(1));
	skein_ctx_close(c->ctx);
}

int main(int argc, char **argv)
{
	struct client c = {0};
	char addr[128];
	int fds[2];
	pid_t pid;
	FILE *in;

	c.window = argc == 4 ? (unsigned)atoi(argv[2]) : 0;
	if (!c.window || c.window > 256 || pipe(fds)) {
		fputs("usage: fetch SERVICE_NS WINDOW SECONDS\n", stderr);
		return 2;
	}
	pid = fork();
	if (pid == 0)
		server(fds[1], strtoull(argv[1], NULL, 10));
	close(fds[1]);
	in = fdopen(fds[0], "r");
	if (pid < 0 || !in || !fgets(addr, sizeof(addr), in))
		return 1;
	addr[strcspn(addr, "\n")] = '\0';
	open_all(&c, addr);
	run(&c, atof(argv[3]));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return 0;
}
