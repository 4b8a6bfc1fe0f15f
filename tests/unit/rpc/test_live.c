/* SPDX-License-Identifier: MIT */
/*
 * test_live.c - RPC over the software device between real processes: sizes,
 * many outstanding, several threads on one connection, both ends asleep, a
 * server that is killed, memory that runs out at every place.
 */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/prng.h"
#include "conn/ctx.h"
#include "served.h"
#include "unit/patience.h"

#define CALL 1
#define NOTHING 2
#define REGION 3
#define SLOW 4 /* by a pool's thread, which waits for a RELEASE */
#define RELEASE 5
#define SLOW_THREADS 2
#define PATIENCE patience_ns(30)
#define BIG (1u << 20)

/* --- the server --------------------------------------------------------- */

/* A request: how long the result shall be, and a pattern. */
struct ask {
	uint32_t resp_len;
	uint32_t seed;
};

static uint8_t at(uint32_t seed, size_t i)
{
	return (uint8_t)(seed * 31 + i * 7 + (i >> 9));
}

static void fill(uint8_t *buf, uint32_t seed, size_t from, size_t len)
{
	for (size_t i = from; i < len; i++)
		buf[i] = at(seed, i);
}

static bool right(const uint8_t *buf, uint32_t seed, size_t from, size_t len)
{
	for (size_t i = from; i < len; i++)
		if (buf[i] != at(seed, i))
			return false;
	return true;
}

static int on_call(struct skein_rpc_req *req, void *arg)
{
	const uint8_t *data = skein_rpc_req_data(req);
	size_t len = skein_rpc_req_len(req);
	struct ask ask;
	void *resp;

	memcpy(&ask, data, sizeof(ask));
	if (!right(data, ask.seed, sizeof(ask), len))
		return -EBADMSG;
	resp = skein_rpc_resp_buf(req, ask.resp_len);
	if (!resp)
		return -ENOMEM;
	fill(resp, ask.seed + 1, 0, ask.resp_len);
	return 0;
}

static int on_nothing(struct skein_rpc_req *req, void *arg)
{
	return skein_rpc_req_len(req) ? -EINVAL : 0;
}

/* A region id of this process: they are given once each. */
static int on_region(struct skein_rpc_req *req, void *arg)
{
	uint32_t id = conn_region_id(arg), *resp = skein_rpc_resp_buf(req, 4);

	*resp = id;
	return 0;
}

static sem_t release;

static int on_slow(struct skein_rpc_req *req, void *arg)
{
	while (sem_wait(&release))
		;
	return 0;
}

static int on_release(struct skein_rpc_req *req, void *arg)
{
	sem_post(&release);
	return 0;
}

static int serve(struct skein_ctx *ctx)
{
	struct skein_rpc_pool *pool;

	if (skein_rpc_handle(ctx, CALL, on_call, NULL) ||
	    skein_rpc_handle(ctx, NOTHING, on_nothing, NULL) ||
	    skein_rpc_handle(ctx, REGION, on_region, ctx) ||
	    sem_init(&release, 0, 0) ||
	    skein_rpc_pool_new(ctx, SLOW_THREADS, &pool) ||
	    skein_rpc_handle_workers(ctx, SLOW, on_slow, NULL, pool))
		return -1;
	return skein_rpc_handle(ctx, RELEASE, on_release, NULL);
}

/* --- the client --------------------------------------------------------- */

struct live {
	pid_t server;
	struct skein_ctx *ctx;
	struct skein_conn *conn;
	char addr[SERVED_ADDR];
};

static void server_start(struct live *l, enum skein_wait wait)
{
	memset(l, 0, sizeof(*l));
	l->server = served_start(wait, serve, l->addr);
}

static void quiet(void *arg, enum skein_log_level level, const char *line)
{
}

static void start(struct live *l, enum skein_wait wait)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr),
				      .device = test_device(),
				      .wait = wait,
				      .log = quiet};

	server_start(l, wait);
	assert_int_equal(skein_ctx_open(&attr, &l->ctx), 0);
	assert_int_equal(skein_conn_open(l->ctx, l->addr, NULL, &l->conn), 0);
}

static void stop(struct live *l)
{
	skein_conn_close(l->conn, SKEIN_S(1));
	skein_ctx_close(l->ctx);
	served_stop(l->server);
}

static int call(struct skein_conn *conn, uint8_t *buf, size_t len,
		uint32_t resp_len, uint32_t seed)
{
	struct ask ask = {resp_len, seed};
	struct skein_rpc_result res;
	int rc;

	memcpy(buf, &ask, sizeof(ask));
	fill(buf, seed, sizeof(ask), len);
	rc = skein_rpc_call(conn, CALL, buf, len, buf, resp_len, PATIENCE,
			    &res);
	if (rc)
		return rc;
	if (res.outcome != SKEIN_DONE || res.len != resp_len)
		return -EBADMSG;
	return right(buf, seed + 1, 0, resp_len) ? 0 : -EBADMSG;
}

static void test_sizes(void **state)
{
	static const uint32_t sizes[] = {8,	9,     63,    64,     65,
					 1000,	4096,  8192,  8193,   16384,
					 16385, 65536, 65537, 300000, BIG};
	unsigned n = sizeof(sizes) / sizeof(sizes[0]);
	uint8_t *buf = malloc(BIG);
	struct live l;

	start(&l, SKEIN_WAIT_ADAPTIVE);
	for (unsigned i = 0; i < n; i++) {
		for (unsigned k = 0; k < n; k += 1 + i % 2)
			assert_int_equal(call(l.conn, buf, sizes[i], sizes[k],
					      i * 100 + k),
					 0);
		assert_int_equal(call(l.conn, buf, sizes[i], 0, i), 0);
	}
	assert_int_equal(skein_rpc_call(l.conn, NOTHING, NULL, 0, NULL, 0,
					PATIENCE, NULL),
			 0);
	assert_int_equal(skein_rpc_call(l.conn, 77, NULL, 0, NULL, 0, PATIENCE,
					NULL),
			 -SKEIN_ENOHANDLER);
	stop(&l);
	free(buf);
}

struct load {
	struct live *l;
	struct prng rng;
	unsigned made, ended, wrong, not_done, outstanding;
	unsigned next; /* answers come in the order of calls */
	bool *seen;
};

struct load_call {
	struct load *load;
	uint32_t n, resp_len;
};

static void load_done(void *arg, const struct skein_rpc_result *res)
{
	struct load_call *c = arg;
	struct load *load = c->load;

	load->wrong += load->seen[c->n];
	load->seen[c->n] = true;
	/* A call that could not be sent has no answer to wait for: it may end
	 * before older ones. */
	if (res->outcome != SKEIN_NOT_SENT) {
		load->wrong += c->n < load->next;
		load->next = c->n + 1;
	}
	load->ended++;
	load->outstanding--;
	if (res->outcome != SKEIN_DONE)
		load->not_done++;
	else if (res->status || res->len != c->resp_len ||
		 !right(res->data, c->n + 1, 0, c->resp_len))
		load->wrong++;
}

static size_t some_size(struct prng *r)
{
	switch (prng_below(r, 64)) {
	case 0:
		return prng_below(r, BIG);
	case 1:
	case 2:
		return prng_below(r, 20000);
	default:
		return prng_below(r, 200);
	}
}

static int load_call(struct load *load, struct load_call *c, uint8_t *buf)
{
	size_t len = sizeof(struct ask) + some_size(&load->rng);
	struct ask ask;
	int rc;

	*c = (struct load_call){load, load->made,
				(uint32_t)some_size(&load->rng)};
	ask = (struct ask){c->resp_len, c->n};
	memcpy(buf, &ask, sizeof(ask));
	fill(buf, c->n, sizeof(ask), len);
	rc = skein_rpc_call_async(load->l->conn, CALL, buf, len, c->resp_len,
				  PATIENCE, load_done, c);
	if (!rc) {
		load->made++;
		load->outstanding++;
	}
	return rc;
}

/* calls in all; stops the server in the middle if told so. */
static void run_load(struct live *l, unsigned calls, bool kill_server)
{
	struct load_call *c = calloc(calls, sizeof(*c));
	uint8_t *buf = malloc(BIG + sizeof(struct ask));
	struct load load = {.l = l, .seen = calloc(calls, 1)};
	bool killed = false;
	int rc = 0;

	prng_init(&load.rng, calls);
	while (load.ended < load.made || (load.made < calls && !rc)) {
		while (load.made < calls && load.outstanding < 40 && !rc)
			rc = load_call(&load, &c[load.made], buf);
		if (rc == -EAGAIN)
			rc = 0;
		if (kill_server && load.made >= calls / 2) {
			kill(l->server, SIGKILL);
			kill_server = false;
			killed = true;
		}
		skein_ctx_progress(l->ctx);
	}
	assert_int_equal(load.wrong, 0);
	assert_int_equal(load.ended, load.made);
	if (killed) {
		assert_true(load.not_done > 0);
	} else {
		assert_int_equal(rc, 0);
		assert_int_equal(load.not_done, 0);
		assert_int_equal(load.made, calls);
	}
	free(load.seen);
	free(buf);
	free(c);
}

static void test_many_outstanding(void **state)
{
	struct live l;

	start(&l, SKEIN_WAIT_ADAPTIVE);
	run_load(&l, 1500, false);
	stop(&l);
}

static void test_server_killed(void **state)
{
	struct live l;

	start(&l, SKEIN_WAIT_ADAPTIVE);
	run_load(&l, 1000, true);
	assert_int_equal(skein_rpc_call(l.conn, NOTHING, NULL, 0, NULL, 0,
					SKEIN_S(5), NULL),
			 -ENOTCONN);
	stop(&l);
}

static void *thread_main(void *arg)
{
	struct live *l = arg;
	uint8_t buf[512];
	long wrong = 0;

	for (uint32_t i = 0; i < 300; i++)
		wrong += call(l->conn, buf, 8 + i % 200, i % 300, i) != 0;
	return (void *)wrong;
}

static void threads_on(enum skein_wait wait)
{
	pthread_t t[4];
	struct live l;
	void *wrong;

	start(&l, wait);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&t[i], NULL, thread_main, &l),
				 0);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(pthread_join(t[i], &wrong), 0);
		assert_null(wrong);
	}
	stop(&l);
}

static void test_threads(void **state)
{
	threads_on(SKEIN_WAIT_ADAPTIVE);
	threads_on(SKEIN_WAIT_EVENT);
}

/* Both ends sleep whenever nothing is there; every call wakes the server,
 * every answer the client. A lost wake-up is a call that takes for ever. */
static void test_asleep(void **state)
{
	struct skein_rpc_stats stats = {.size = sizeof(stats)};
	uint8_t buf[256];
	struct live l;

	start(&l, SKEIN_WAIT_EVENT);
	for (uint32_t i = 0; i < 500; i++) {
		assert_int_equal(call(l.conn, buf, 64, 64, i), 0);
		if (i % 100 == 99)
			usleep(20000); /* it dozes, sleeps, and is woken */
	}
	assert_int_equal(skein_rpc_get_stats(l.conn, &stats), 0);
	assert_int_equal(stats.calls, 500);
	assert_true(stats.wakeups_sent > 400);
	run_load(&l, 300, false);
	stop(&l);
}

/* --- memory that runs out ----------------------------------------------- */

static long allocs_left;

static bool alloc_fails(void *arg)
{
	return __atomic_fetch_sub(&allocs_left, 1, __ATOMIC_RELAXED) == 0;
}

/* How many regions the server has made so far. */
static uint32_t server_regions(struct live *l)
{
	uint32_t id = 0;

	assert_int_equal(skein_rpc_call(l->conn, REGION, NULL, 0, &id,
					sizeof(id), PATIENCE, NULL),
			 0);
	return id;
}

static void mixed_calls(struct live *l, uint8_t *buf, int n)
{
	static const uint32_t lens[] = {100000, 20000, 64, 200000, 70000, 9000};
	unsigned kinds = sizeof(lens) / sizeof(lens[0]);

	for (int i = 0; i < n; i++)
		assert_int_equal(call(l->conn, buf, lens[(i * 5) % kinds],
				      lens[i / 2 % kinds], (uint32_t)i),
				 0);
}

/* Payloads of many sizes find the memory of earlier ones, at both ends: no
 * region is made, registered and mapped for each. */
static void test_memory_again(void **state)
{
	uint8_t *buf = malloc(BIG);
	uint32_t ours, theirs;
	struct live l;

	start(&l, SKEIN_WAIT_ADAPTIVE);
	mixed_calls(&l, buf, 60);
	ours = conn_region_id(l.ctx);
	theirs = server_regions(&l);
	mixed_calls(&l, buf, 300);
	assert_int_equal(conn_region_id(l.ctx), ours + 1);
	assert_int_equal(server_regions(&l), theirs + 1);
	stop(&l);
	free(buf);
}

static void count_end(void *arg, const struct skein_rpc_result *res)
{
	++*(int *)arg;
}

/* One connection with small and large calls; a failure of any kind is fine,
 * but it is told, and nothing is lost. True: nothing failed. */
static bool scarce_run(struct live *l, uint8_t *buf)
{
	struct skein_conn *conn;
	int rc, started = 0, ended = 0;

	rc = skein_conn_open(l->ctx, l->addr, NULL, &conn);
	if (rc)
		return false;
	if (call(conn, buf, 64, 64, 1))
		rc = -1;
	if (call(conn, buf, 100000, 100000, 2))
		rc = -1;
	started += !skein_rpc_call_async(conn, NOTHING, NULL, 0, 0, PATIENCE,
					 count_end, &ended);
	while (ended < started)
		skein_ctx_progress(l->ctx);
	skein_conn_close(conn, SKEIN_S(1));
	return !rc && started;
}

static void test_scarce_memory(void **state)
{
	uint8_t *buf = malloc(BIG);
	struct live l;
	int n;

	start(&l, SKEIN_WAIT_ADAPTIVE);
	l.ctx->env->alloc_fails = alloc_fails;
	for (n = 0; n < 1000; n++) {
		__atomic_store_n(&allocs_left, n, __ATOMIC_RELAXED);
		if (scarce_run(&l, buf) &&
		    __atomic_load_n(&allocs_left, __ATOMIC_RELAXED) >= 0)
			break;
	}
	l.ctx->env->alloc_fails = NULL;
	/* The sweep came to its end, after failures. */
	assert_true(n > 3 && n < 1000);
	assert_int_equal(call(l.conn, buf, 64, 64, 1), 0);
	stop(&l);
	free(buf);
}

static void nothing(void *arg, const struct skein_rpc_result *res)
{
}

static void ended(void *arg, const struct skein_rpc_result *res)
{
	*(int *)arg += res->outcome == SKEIN_DONE && !res->status;
}

/* Keeps all threads of the pool busy, and more; says so, and hangs. */
static void slow_client(const char *addr, int fd)
{
	struct skein_ctx_attr attr = {
		.size = sizeof(attr), .device = test_device(), .log = quiet};
	struct skein_conn *conn;
	struct skein_ctx *ctx;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (skein_ctx_open(&attr, &ctx) ||
	    skein_conn_open(ctx, addr, NULL, &conn))
		_exit(1);
	for (int i = 0; i < 2 * SLOW_THREADS; i++)
		if (skein_rpc_call_async(conn, SLOW, NULL, 0, 0, PATIENCE,
					 nothing, NULL))
			_exit(1);
	/* behind them: so they have been taken up */
	if (skein_rpc_call(conn, NOTHING, NULL, 0, NULL, 0, PATIENCE, NULL) ||
	    write(fd, "x", 1) != 1)
		_exit(1);
	for (;;)
		skein_engine_run(skein_ctx_engine(ctx), SKEIN_FOREVER);
}

/* Handlers run for a client that was killed: others are served meanwhile, the
 * answers go nowhere, and the threads are there for others again. */
static void test_killed_client_of_workers(void **state)
{
	struct skein_ctx_attr attr = {
		.size = sizeof(attr), .device = test_device(), .log = quiet};
	uint8_t buf[1000];
	int fds[2], done = 0;
	struct live l;
	pid_t pid;
	char c;

	server_start(&l, SKEIN_WAIT_ADAPTIVE);
	assert_int_equal(pipe(fds), 0);
	pid = fork();
	if (!pid)
		slow_client(l.addr, fds[1]);
	assert_int_equal(read(fds[0], &c, 1), 1);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(fds[0]);
	close(fds[1]);
	assert_int_equal(skein_ctx_open(&attr, &l.ctx), 0);
	assert_int_equal(skein_conn_open(l.ctx, l.addr, NULL, &l.conn), 0);
	for (uint32_t i = 0; i < 200; i++)
		assert_int_equal(call(l.conn, buf, 1000, 500, i), 0);
	assert_int_equal(skein_rpc_call_async(l.conn, SLOW, NULL, 0, 0,
					      PATIENCE, ended, &done),
			 0);
	for (uint32_t i = 0; i < 2 * SLOW_THREADS; i++)
		assert_int_equal(skein_rpc_call(l.conn, RELEASE, NULL, 0, NULL,
						0, PATIENCE, NULL),
				 0);
	/* at most so many of ours and the dead one's are left */
	assert_int_equal(skein_rpc_call(l.conn, RELEASE, NULL, 0, NULL, 0,
					PATIENCE, NULL),
			 0);
	while (!done)
		skein_ctx_progress(l.ctx);
	stop(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_killed_client_of_workers),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_many_outstanding),
		cmocka_unit_test(test_memory_again),
		cmocka_unit_test(test_server_killed),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_asleep),
		cmocka_unit_test(test_scarce_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
