/* SPDX-License-Identifier: MIT */
/*
 * count_combine.c - what combining costs in instructions, and in time for a
 * thread that is alone.
 *
 *	count_combine private N		a blocking call on a private QP
 *	count_combine shared N		the same on a handle of one QP
 *	count_combine send|round|reap|server DEGREE N
 *		messages of DEGREE threads' calls: what the threads do to
 *		send them, the round that takes the answer in, what the
 *		threads do to get it, and the round of the server
 *	count_combine ns N		prints the time of a blocking call on
 *		either, less the server's share: medians of chunks by turns
 *
 * Both contexts live in this process, and the server makes its rounds when the
 * client has nothing to do (an object of its engine), so that no fruitless wait
 * is counted but one look at the ring. Threads that wait in the queue do: it is
 * combining.py that takes the queue's own function out. N is the number of
 * calls. Prints how many were counted.
 */
#include "count.h"
#include "ends.h"

#include "conn/conn.h"

#include <pthread.h>
#include <time.h>

enum {
	SIZE = 64,
	THREADS_MAX = 64,
	WARM = 256, /* calls */
	CHUNK = 256,
	CHUNKS_MAX = 100000,
	ROUNDS_MAX = 100000000,
};

/* A client and its server. */
struct pair {
	struct ends ends;
	struct engine_obj turn; /* the server's, in the client's engine */
	bool counting;
	uint64_t server_ns;
	char buf[SIZE];
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
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
	moved = skein_ctx_progress(p->ends.server);
	if (p->counting)
		COUNT_ON();
	else
		p->server_ns += now_ns() - t0;
	return moved;
}

static const struct engine_obj_ops turn_ops = {.poll = turn};

static void pair_turns(struct pair *p, bool on)
{
	struct engine *e = conn_engine(p->ends.conn);
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

/* --- blocking calls, one thread ----------------------------------------- */

static void call(struct pair *p)
{
	int rc = skein_rpc_call(p->ends.conn, ENDS_ECHO, p->buf, SIZE, p->buf,
				SIZE, SKEIN_S(10), NULL);

	if (rc)
		die("call", rc);
}

static void count_calls(unsigned qps, unsigned n)
{
	struct pair p = {0};
	unsigned i;

	ends_open(&p.ends, qps);
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
	ends_close(&p.ends);
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

	ends_open(&alone.ends, 0);
	ends_open(&shared.ends, 1);
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
	ends_close(&alone.ends);
	ends_close(&shared.ends);
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
		rc = skein_rpc_call_async(p->ends.conn, ENDS_ECHO, p->buf, SIZE,
					  SIZE, SKEIN_S(10), on_done, &left);
		if (counting && c->part == SEND)
			COUNT_OFF();
		if (rc)
			die("call", rc);
		pthread_barrier_wait(&c->step);
		pthread_barrier_wait(&c->step);
		if (counting && c->part == REAP)
			COUNT_ON();
		rc = skein_rpc_reap(p->ends.conn, 0);
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
	struct skein_rpc_stats st = {.size = sizeof(st)};
	int rc = skein_rpc_get_stats(c->pair.ends.conn, &st);

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
		skein_ctx_progress(p->ends.server);
		if (counting && c->part == SERVER)
			COUNT_OFF();
		if (counting && c->part == ROUND)
			COUNT_ON();
		skein_ctx_progress(p->ends.client);
		if (counting && c->part == ROUND)
			COUNT_OFF();
		if (i == ROUNDS_MAX)
			die("a call got no answer", -SKEIN_EPEER);
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
	ends_open(&c.pair.ends, 1);
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
		/* A leader has waited for its followers in vain. */
		die("not one message for each batch: is the machine busy?",
		    -ETIMEDOUT);
	for (i = 0; i < degree; i++)
		pthread_join(c.threads[i], NULL);
	pthread_barrier_destroy(&c.step);
	ends_close(&c.pair.ends);
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
