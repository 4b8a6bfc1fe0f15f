/* SPDX-License-Identifier: MIT */
/*
 * count_combine.c - what combining costs in instructions, and in time for a
 * thread that is alone.
 *
 *	count_combine private N		a blocking call on a private QP
 *	count_combine shared N		the same on a handle of one QP
 *	count_combine send|round|reap|server DEGREE N
 *		messages of DEGREE threads' calls: what the threads do to
 *		send them, the round of who takes the answer in, what the
 *		threads do to get it, and the round of the server
 *	count_combine ns N		prints the time of a blocking call on
 *		either, less the server's share: medians of chunks by turns
 *
 * Both contexts live in this process, and the server makes its rounds when the
 * client has nothing to do (an object of its engine), so that no fruitless wait
 * is counted but one look at the ring. Threads that wait in the queue do: it is
 * combining.sh that takes the queue's own function out. N is the number of
 * calls. Prints how many were counted.
 */
#include "count.h"

#include "conn/conn.h"
#include "skein/skein.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
	ECHO = 1,
	SIZE = 64,
	THREADS_MAX = 64,
	WARM = 256, /* calls */
	CHUNK = 256,
	CHUNKS_MAX = 100000,
	ROUNDS_MAX = 100000000,
};

/* A client and its server. */
struct pair {
	struct skein_ctx *server, *client;
	struct skein_listener *listener;
	struct skein_conn *conn;
	struct engine_obj turn; /* the server's, in the client's engine */
	bool counting;
	uint64_t server_ns;
	char buf[SIZE];
};

static _Noreturn void die(const char *what, int rc)
{
	fprintf(stderr, "count_combine: %s: %s\n", what, skein_strerror(rc));
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static int on_echo(struct skein_rpc_req *req, void *arg)
{
	size_t len = skein_rpc_req_len(req);
	void *resp = skein_rpc_resp_buf(req, len);

	if (!resp)
		return -1;
	memcpy(resp, skein_rpc_req_data(req), len);
	return 0;
}

/* The server's turn; its time is not the client's. */
static int turn(struct engine_obj *obj, uint64_t now)
{
	struct pair *p =
		(void *)((char *)obj - __builtin_offsetof(struct pair, turn));
	uint64_t t0 = 0;
	int moved;

	if (p->counting)
		COUNT_OFF();
	else
		t0 = now_ns();
	moved = skein_ctx_progress(p->server);
	if (p->counting)
		COUNT_ON();
	else
		p->server_ns += now_ns() - t0;
	return moved;
}

static const struct engine_obj_ops turn_ops = {.poll = turn};

static void pair_open(struct pair *p, unsigned qps)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr),
				      .wait = SKEIN_WAIT_POLL};
	struct skein_conn_attr conn = {.size = sizeof(conn), .qps = qps};
	int rc = skein_ctx_open(&attr, &p->server);

	if (!rc)
		rc = skein_ctx_open(&attr, &p->client);
	if (!rc)
		rc = skein_rpc_handle(p->server, ECHO, on_echo, NULL);
	if (!rc)
		rc = skein_listener_open(p->server, "127.0.0.1:0", NULL,
					 &p->listener);
	if (!rc)
		rc = skein_conn_open_async(p->client,
					   skein_listener_addr(p->listener),
					   &conn, &p->conn);
	if (rc)
		die("set-up", rc);
	for (long i = 0; skein_conn_state(p->conn) != SKEIN_CONN_READY; i++) {
		skein_ctx_progress(p->server);
		skein_ctx_progress(p->client);
		if (i == ROUNDS_MAX ||
		    skein_conn_state(p->conn) == SKEIN_CONN_BROKEN)
			die("connection", skein_conn_error(p->conn, NULL));
	}
}

static void pair_turns(struct pair *p, bool on)
{
	struct engine *e = conn_engine(p->conn);
	int rc = engine_enter(e, ENV_NEVER);

	if (rc)
		die("engine", rc);
	p->turn.ops = &turn_ops;
	if (on)
		engine_add(e, &p->turn);
	else
		engine_del(e, &p->turn);
	engine_leave(e);
}

static void pair_close(struct pair *p)
{
	skein_conn_close(p->conn, SKEIN_MS(1));
	skein_listener_close(p->listener);
	skein_ctx_close(p->client);
	skein_ctx_close(p->server);
}

/* --- blocking calls, one thread ----------------------------------------- */

static void call(struct pair *p)
{
	int rc = skein_rpc_call(p->conn, ECHO, p->buf, SIZE, p->buf, SIZE,
				SKEIN_S(10), NULL);

	if (rc)
		die("call", rc);
}

static void count_calls(unsigned qps, unsigned n)
{
	struct pair p = {0};
	unsigned i;

	pair_open(&p, qps);
	pair_turns(&p, true);
	for (i = 0; i < WARM; i++)
		call(&p);
	p.counting = true;
	for (i = 0; i < n; i++) {
		COUNT_ON();
		call(&p);
		COUNT_OFF();
	}
	pair_turns(&p, false);
	pair_close(&p);
	printf("%u\n", n);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double chunk(struct pair *p)
{
	uint64_t t0 = now_ns();

	p->server_ns = 0;
	for (unsigned i = 0; i < CHUNK; i++)
		call(p);
	return (double)(now_ns() - t0 - p->server_ns) / CHUNK;
}

static void time_calls(unsigned n)
{
	static double ns[3][CHUNKS_MAX];
	struct pair alone = {0}, shared = {0};
	unsigned i, chunks = n / CHUNK < CHUNKS_MAX ? n / CHUNK : CHUNKS_MAX;

	pair_open(&alone, 0);
	pair_open(&shared, 1);
	pair_turns(&alone, true);
	pair_turns(&shared, true);
	for (i = 0; i < chunks; i++) {
		ns[0][i] = chunk(&alone);
		ns[1][i] = chunk(&shared);
		ns[2][i] = ns[1][i] - ns[0][i];
	}
	for (i = 0; i < 3; i++)
		qsort(ns[i], chunks, sizeof(double), by_value);
	printf("private %.1f shared %.1f more %.1f ns, of %u chunks; "
	       "quartiles of the last %.1f %.1f\n",
	       ns[0][chunks / 2], ns[1][chunks / 2], ns[2][chunks / 2], chunks,
	       ns[2][chunks / 4], ns[2][chunks - 1 - chunks / 4]);
	pair_turns(&alone, false);
	pair_turns(&shared, false);
	pair_close(&alone);
	pair_close(&shared);
}

/* --- messages of several threads' calls --------------------------------- */

enum part {
	SEND,
	ROUND,
	REAP,
	SERVER,
	PARTS
};
static const char *const parts[PARTS] = {"send", "round", "reap", "server"};

struct crew {
	struct pair pair;
	unsigned degree, batches;
	enum part part;
	pthread_barrier_t step;
	pthread_t threads[THREADS_MAX];
};

static void on_done(void *arg, const struct skein_rpc_result *res)
{
	unsigned *left = arg;

	if (res->status || res->len != SIZE)
		die("a call", res->status);
	--*left;
}

/* What one thread does; the steps between belong to main. */
static void *thread(void *arg)
{
	struct crew *c = arg;
	struct pair *p = &c->pair;
	unsigned left = 0;
	int rc;

	for (unsigned i = 0; i < c->batches; i++) {
		bool counting = i >= WARM / c->degree;

		pthread_barrier_wait(&c->step);
		left = 1;
		if (counting && c->part == SEND)
			COUNT_ON();
		rc = skein_rpc_call_async(p->conn, ECHO, p->buf, SIZE, SIZE,
					  SKEIN_S(10), on_done, &left);
		if (counting && c->part == SEND)
			COUNT_OFF();
		if (rc)
			die("call", rc);
		pthread_barrier_wait(&c->step);
		pthread_barrier_wait(&c->step);
		if (counting && c->part == REAP)
			COUNT_ON();
		rc = skein_rpc_reap(p->conn, 0);
		if (counting && c->part == REAP)
			COUNT_OFF();
		if (rc < 0 || left)
			die("reap", rc);
		pthread_barrier_wait(&c->step);
	}
	return NULL;
}

static struct skein_rpc_stats stats(struct crew *c)
{
	struct skein_rpc_stats st;
	int rc = skein_rpc_stats(c->pair.conn, &st);

	if (rc)
		die("statistics", rc);
	return st;
}

static void answer(struct crew *c, bool counting, uint64_t messages)
{
	struct pair *p = &c->pair;

	for (long i = 0; stats(c).messages_received < messages; i++) {
		if (counting && c->part == SERVER)
			COUNT_ON();
		skein_ctx_progress(p->server);
		if (counting && c->part == SERVER)
			COUNT_OFF();
		if (counting && c->part == ROUND)
			COUNT_ON();
		skein_ctx_progress(p->client);
		if (counting && c->part == ROUND)
			COUNT_OFF();
		if (i == ROUNDS_MAX)
			die("a call got no answer", -SKEIN_EPEER);
	}
	/* Once in sixteen calls; not counted. */
	for (long i = 0; stats(c).credits < c->degree; i++) {
		skein_ctx_progress(p->server);
		skein_ctx_progress(p->client);
		if (i == ROUNDS_MAX)
			die("no credits came", -SKEIN_EPEER);
	}
}

static void count_messages(enum part part, unsigned degree, unsigned n)
{
	struct crew c = {.degree = degree, .part = part};
	char text[16];
	unsigned i, warm = WARM / degree;

	c.batches = warm + n / degree;
	snprintf(text, sizeof(text), "%u", degree);
	setenv("SKEIN_COMBINE", text, 1);
	setenv("SKEIN_COMBINE_LEAST", text, 1);
	pair_open(&c.pair, 1);
	pthread_barrier_init(&c.step, NULL, degree + 1);
	for (i = 0; i < degree; i++)
		if (pthread_create(&c.threads[i], NULL, thread, &c))
			die("thread", -SKEIN_EPEER);
	for (i = 0; i < c.batches; i++) {
		pthread_barrier_wait(&c.step);
		pthread_barrier_wait(&c.step);
		answer(&c, i >= warm, i + 1);
		pthread_barrier_wait(&c.step);
		pthread_barrier_wait(&c.step);
	}
	if (stats(&c).messages_sent != c.batches)
		die("not one message for each batch", -SKEIN_EPEER);
	for (i = 0; i < degree; i++)
		pthread_join(c.threads[i], NULL);
	pthread_barrier_destroy(&c.step);
	pair_close(&c.pair);
	printf("%u\n", n / degree * degree);
}

static unsigned number(const char *text)
{
	return (unsigned)strtoul(text, NULL, 10);
}

int main(int argc, char **argv)
{
	unsigned degree = argc == 4 ? number(argv[2]) : 0;
	unsigned n = argc > 1 ? number(argv[argc - 1]) : 0;

	if (argc == 3 && n && !strcmp(argv[1], "private")) {
		count_calls(0, n);
		return 0;
	}
	if (argc == 3 && n && !strcmp(argv[1], "shared")) {
		count_calls(1, n);
		return 0;
	}
	if (argc == 3 && n >= CHUNK && !strcmp(argv[1], "ns")) {
		time_calls(n);
		return 0;
	}
	for (unsigned i = 0; i < PARTS && degree && degree <= THREADS_MAX; i++)
		if (!strcmp(argv[1], parts[i]) && n >= degree) {
			count_messages((enum part)i, degree, n);
			return 0;
		}
	fputs("usage: count_combine private|shared|ns N\n"
	      "       count_combine send|round|reap|server DEGREE N\n",
	      stderr);
	return 2;
}
