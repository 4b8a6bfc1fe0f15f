/* SPDX-License-Identifier: MIT */
/*
 * test_fetch_live.c - results that are fetched, and an end that stops or dies
 * between the request and the READ; deferred and pool answers, fetched and
 * recalled; the mode that is chosen by the server's word, of each rpc id by itself;
 * F by the lengths of results. Two processes.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "served.h"
#include "conn/ctx.h"
#include "rpc/client/lane_client.h"

enum {
	ECHO = 1,
	POOL,
	KEEP,	/* deferred until ECHO comes */
	SERVED, /* how many of any have been executed */
	LONG,	/* takes a while of the server's processor */
	SIZED,	/* as long as the request says */
	SIZED_TOO,
	CALLS = 24,
	BACKLOG = 96,
};

struct tally {
	unsigned done, unknown;
	bool wrong;
};

static struct skein_rpc_req *kept[CALLS];
static unsigned n_kept, executed;

static int echo(struct skein_rpc_req *req, void *arg)
{
	uint32_t *resp = skein_rpc_resp_buf(req, 4);

	__atomic_add_fetch(&executed, 1, __ATOMIC_RELAXED);
	if (!resp)
		return -ENOMEM;
	memcpy(resp, skein_rpc_req_data(req), 4);
	while (!arg && n_kept) {
		struct skein_rpc_req *k = kept[--n_kept];

		memcpy(skein_rpc_resp_buf(k, 4), skein_rpc_req_data(k), 4);
		(void)skein_rpc_answer(k, 0);
	}
	return 0;
}

static int keep(struct skein_rpc_req *req, void *arg)
{
	__atomic_add_fetch(&executed, 1, __ATOMIC_RELAXED);
	return n_kept < CALLS ? skein_rpc_defer(req, &kept[n_kept++]) : -EBUSY;
}

static int served(struct skein_rpc_req *req, void *arg)
{
	uint32_t n = __atomic_load_n(&executed, __ATOMIC_RELAXED);

	memcpy(skein_rpc_resp_buf(req, 4), &n, 4);
	return 0;
}

static int long_echo(struct skein_rpc_req *req, void *arg)
{
	struct timespec ts;
	long end;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	end = ts.tv_nsec + 200000;
	do
		clock_gettime(CLOCK_MONOTONIC, &ts);
	while (ts.tv_nsec < end && ts.tv_nsec > end - 200000);
	return echo(req, req);
}

static int sized(struct skein_rpc_req *req, void *arg)
{
	uint32_t len;

	memcpy(&len, skein_rpc_req_data(req), 4);
	return skein_rpc_resp_buf(req, len) ? 0 : -ENOMEM;
}

static int setup(struct skein_ctx *ctx)
{
	static bool in_pool = true;
	struct skein_rpc_pool *pool;

	if (skein_rpc_pool_new(ctx, 2, &pool))
		return -1;
	return skein_rpc_handle(ctx, ECHO, echo, NULL) ||
	       skein_rpc_handle(ctx, KEEP, keep, NULL) ||
	       skein_rpc_handle(ctx, SERVED, served, NULL) ||
	       skein_rpc_handle(ctx, LONG, long_echo, NULL) ||
	       skein_rpc_handle(ctx, SIZED, sized, NULL) ||
	       skein_rpc_handle(ctx, SIZED_TOO, sized, NULL) ||
	       skein_rpc_handle_workers(ctx, POOL, echo, &in_pool, pool);
}

static void done(void *arg, const struct skein_rpc_result *res)
{
	struct tally *t = arg;

	if (res->outcome == SKEIN_DONE) {
		t->done++;
		t->wrong |= res->status || res->len != 4;
	} else {
		t->unknown += res->outcome == SKEIN_UNKNOWN;
	}
}

static struct skein_ctx *ctx_open(enum skein_wait wait)
{
	struct skein_ctx_attr attr = {
		.size = sizeof(attr), .device = test_device(), .wait = wait};
	struct skein_ctx *ctx;

	assert_int_equal(skein_ctx_open(&attr, &ctx), 0);
	return ctx;
}

static struct skein_conn *conn_open_mode(struct skein_ctx *ctx,
					 const char *addr,
					 enum skein_return mode)
{
	struct skein_conn_attr attr = {.size = sizeof(attr),
				       .return_mode = mode};
	struct skein_conn *conn;

	assert_int_equal(skein_conn_open(ctx, addr, &attr, &conn), 0);
	return conn;
}

static struct skein_conn *conn_open(struct skein_ctx *ctx, const char *addr)
{
	return conn_open_mode(ctx, addr, SKEIN_RETURN_FETCH);
}

static void call(struct skein_conn *conn, uint16_t id, uint32_t n,
		 struct tally *t)
{
	assert_int_equal(skein_rpc_call_async(conn, id, &n, 4, 4, SKEIN_S(60),
					      done, t),
			 0);
}

/* For a thread that does not run the engine: it leaves at once. */
static void call_now(struct skein_conn *conn, uint16_t id, uint32_t n,
		     struct tally *t)
{
	struct skein_rpc_entry e = {.id = id,
				    .req = &n,
				    .req_len = 4,
				    .resp_max = 4,
				    .timeout_ns = SKEIN_S(60),
				    .done = done,
				    .arg = t};
	unsigned begun;

	assert_int_equal(skein_rpc_call_batch(conn, &e, 1, &begun), 0);
}

/* Rounds until so many have ended. */
static void await(struct skein_ctx *ctx, const struct tally *t, unsigned n)
{
	while (t->done + t->unknown < n)
		skein_ctx_progress(ctx);
}

static struct skein_rpc_stats stats(struct skein_conn *conn)
{
	struct skein_rpc_stats st = {.size = sizeof(st)};

	assert_int_equal(skein_rpc_get_stats(conn, &st), 0);
	return st;
}

/* The server is stopped with calls under way: READs find nothing, a few of
 * them; when it goes on each call has its answer. */
static void test_stopped(void **state)
{
	struct skein_ctx *ctx = ctx_open(SKEIN_WAIT_POLL);
	struct skein_rpc_stats before, st;
	struct skein_conn *conn;
	struct tally t = {0};
	char addr[SERVED_ADDR];
	pid_t pid;

	pid = served_start(SKEIN_WAIT_ADAPTIVE, setup, addr);
	conn = conn_open(ctx, addr);
	call(conn, ECHO, 7, &t);
	await(ctx, &t, 1);
	kill(pid, SIGSTOP);
	waitpid(pid, NULL, WUNTRACED);
	before = stats(conn);
	for (unsigned i = 0; i < CALLS; i++)
		call(conn, i % 2 ? ECHO : POOL, i, &t);
	do {
		skein_ctx_progress(ctx);
		st = stats(conn);
	} while (st.fetch_empty < before.fetch_empty + 5);
	assert_int_equal(t.done, 1);
	kill(pid, SIGCONT);
	await(ctx, &t, 1 + CALLS);
	assert_int_equal(t.done, 1 + CALLS);
	assert_false(t.wrong);
	skein_conn_close(conn, SKEIN_S(5));
	skein_ctx_close(ctx);
	served_stop(pid);
}

/* Deferred and pool answers: fetched while the program polls; recalled when it
 * is about to sleep. */
static void mixed(enum skein_wait wait)
{
	struct skein_ctx *ctx = ctx_open(wait);
	struct skein_engine *e = skein_ctx_engine(ctx);
	struct pollfd pfd = {.fd = skein_engine_fd(e), .events = POLLIN};
	bool sleeps = wait == SKEIN_WAIT_EVENT;
	struct skein_rpc_stats st;
	struct skein_conn *conn;
	char addr[SERVED_ADDR];
	struct tally t = {0};
	unsigned made = 0;
	pid_t pid;

	pid = served_start(SKEIN_WAIT_ADAPTIVE, setup, addr);
	conn = conn_open(ctx, addr);
	for (unsigned i = 0; i < 8; i++) {
		call(conn, KEEP, i, &t);
		call(conn, POOL, i, &t);
		made += 2;
		while (sleeps && !skein_engine_arm(e) &&
		       poll(&pfd, 1, 1) == 0 && t.done + 1 < made)
			skein_ctx_progress(ctx);
		call(conn, ECHO, i, &t); /* answers what is kept */
		made++;
		while (t.done < made) {
			skein_ctx_progress(ctx);
			if (sleeps && !skein_engine_arm(e))
				(void)poll(&pfd, 1, 100);
		}
	}
	assert_false(t.wrong);
	assert_int_equal(t.done, made);
	st = stats(conn);
	if (sleeps)
		assert_true(st.recalls > 0);
	else
		assert_true(st.fetched > 0);
	skein_conn_close(conn, SKEIN_S(5));
	skein_ctx_close(ctx);
	served_stop(pid);
}

static void test_deferred(void **state)
{
	mixed(SKEIN_WAIT_POLL);
	mixed(SKEIN_WAIT_EVENT);
}

/* The server is killed with calls under way, some of them deferred: each ends,
 * once, and READs of a dead server bring nothing. */
static void test_server_killed(void **state)
{
	struct skein_ctx *ctx = ctx_open(SKEIN_WAIT_POLL);
	struct skein_conn *conn;
	struct tally t = {0};
	char addr[SERVED_ADDR];
	pid_t pid;

	pid = served_start(SKEIN_WAIT_ADAPTIVE, setup, addr);
	conn = conn_open(ctx, addr);
	call(conn, ECHO, 1, &t);
	await(ctx, &t, 1);
	for (unsigned i = 0; i < CALLS / 2; i++)
		call(conn, KEEP, i, &t);
	for (unsigned i = 0; i < 50; i++)
		skein_ctx_progress(ctx);
	kill(pid, SIGKILL);
	await(ctx, &t, 1 + CALLS / 2);
	assert_int_equal(t.unknown, CALLS / 2);
	assert_false(t.wrong);
	skein_conn_close(conn, 0);
	skein_ctx_close(ctx);
	waitpid(pid, NULL, 0);
}

/* The client dies before it READs: the server keeps nothing of it, and serves
 * the next one. */
static void test_client_killed(void **state)
{
	struct skein_ctx *ctx;
	struct skein_conn *conn;
	char addr[SERVED_ADDR];
	uint32_t n = 0, zero = 0;
	struct tally t = {0};
	pid_t pid, client;

	pid = served_start(SKEIN_WAIT_ADAPTIVE, setup, addr);
	client = fork();
	assert_true(client >= 0);
	if (!client) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		ctx = ctx_open(SKEIN_WAIT_POLL);
		conn = conn_open(ctx, addr);
		for (unsigned i = 0; i < CALLS; i++)
			call_now(conn,
				 i % 3 == 0   ? KEEP
				 : i % 3 == 1 ? POOL
					      : ECHO,
				 i, &t);
		for (;;) /* nothing is READ any more */
			pause();
	}
	ctx = ctx_open(SKEIN_WAIT_POLL);
	conn = conn_open(ctx, addr);
	while (n < CALLS)
		assert_int_equal(skein_rpc_call(conn, SERVED, &zero, 4, &n, 4,
						SKEIN_S(60), NULL),
				 0);
	kill(client, SIGKILL);
	waitpid(client, NULL, 0);
	for (unsigned i = 0; i < CALLS; i++)
		call(conn, i % 2 ? ECHO : POOL, i, &t);
	await(ctx, &t, CALLS);
	assert_int_equal(t.done, CALLS);
	assert_false(t.wrong);
	skein_conn_close(conn, SKEIN_S(5));
	skein_ctx_close(ctx);
	served_stop(pid);
}

/* The server has no time to spare, and says so: what was replied is fetched. */
static void test_auto(void **state)
{
	struct skein_ctx *ctx = ctx_open(SKEIN_WAIT_POLL);
	struct skein_rpc_stats st;
	struct skein_conn *conn;
	struct tally t = {0};
	char addr[SERVED_ADDR];
	uint32_t made = 0;
	pid_t pid;
	int rc = 0;

	pid = served_start(SKEIN_WAIT_ADAPTIVE, setup, addr);
	conn = conn_open_mode(ctx, addr, SKEIN_RETURN_AUTO);
	while (made < 200) { /* one by one: it has time */
		call(conn, ECHO, made++, &t);
		await(ctx, &t, made);
	}
	st = stats(conn);
	assert_true(st.replied > 0 && (!st.fetched || st.switches));
	do {
		/* Many: the server shall not find a fruitless round while
		 * this end does not run. */
		while (made < t.done + BACKLOG && !rc) {
			rc = skein_rpc_call_async(conn, LONG, &made, 4, 4,
						  SKEIN_S(60), done, &t);
			made += !rc;
		}
		/* There is room after a round. */
		assert_true(!rc || rc == -EAGAIN);
		rc = 0;
		skein_ctx_progress(ctx);
		await(ctx, &t, made > BACKLOG / 2 ? made - BACKLOG / 2 : made);
		st = stats(conn);
		assert_true(st.fetched + st.replied <= made && made < 50000);
	} while (!st.fetched);
	assert_true(st.switches > 0);
	assert_true(st.replied > 0);
	await(ctx, &t, made);
	st = stats(conn);
	assert_int_equal(st.fetched + st.replied, made);
	assert_int_equal(t.done, made);
	assert_false(t.wrong);
	skein_conn_close(conn, SKEIN_S(5));
	skein_ctx_close(ctx);
	served_stop(pid);
}

/* The modes of the connection's one lane. */
static struct rpc_modes *modes_of(struct skein_conn *conn)
{
	return rpc_conn_of(conn)->lane_client->handle->lanes[0]->modes;
}

/* One id's results are fetched, the others' replied, in the same messages; and
 * the server says of each id how long its handler takes, deferred or not. */
static void test_modes(void **state)
{
	struct skein_ctx *ctx = ctx_open(SKEIN_WAIT_POLL);
	const uint16_t ids[] = {ECHO, LONG, POOL};
	struct skein_rpc_stats st;
	struct skein_conn *conn;
	struct rpc_modes *modes;
	struct tally t = {0};
	char addr[SERVED_ADDR];
	pid_t pid;

	pid = served_start(SKEIN_WAIT_ADAPTIVE, setup, addr);
	conn = conn_open_mode(ctx, addr, SKEIN_RETURN_AUTO);
	modes = modes_of(conn);
	modes->mode[LONG].fetch = true;
	modes->fetch = RPC_MODE_BIT(LONG);
	for (unsigned n = 0; n < 900; n += 3) {
		/* One answer of each: every interval looks as if the program
		 * had stood still, so nothing is decided. */
		for (unsigned i = 0; i < RPC_MODES; i++)
			modes->mode[i].since_ns = 0;
		for (unsigned i = 0; i < 3; i++)
			call(conn, ids[i], n + i, &t);
		await(ctx, &t, n + 3);
	}
	assert_false(t.wrong);
	st = stats(conn);
	assert_int_equal(st.fetched + st.replied, 900);
	/* It fetches once it has not wanted to sleep for a while; some are
	 * recalled. */
	print_message("%lu fetched\n", (unsigned long)st.fetched);
	assert_true(st.fetched > 10 && st.fetched <= 300);
	assert_int_equal(st.switches, 0);
	assert_true(modes->mode[LONG].time >= 200000 / RPC_TIME_UNIT_NS);
	assert_true(modes->mode[ECHO].time > 0);
	assert_true(modes->mode[POOL].time > 0);
	assert_int_equal(modes->mode[KEEP].time, 0);
	skein_conn_close(conn, SKEIN_S(5));
	skein_ctx_close(ctx);
	served_stop(pid);
}

/* --- F ------------------------------------------------------------------- */

/* Results of SMALL and LONG_LEN bytes are messages of 3 and 12 lines; READs of
 * so many bytes take 100 and 167 ns, and the rest of the longer one 133. */
#define SMALL 100u
#define LONG_LEN 700u

static const struct rpc_calib figure_1 = {
	.n_times = 1,
	.n_reads = 3,
	.times = {{0, 1, 1}},
	.reads = {{64, 10000000}, {256, 10000000}, {1024, 5000000}},
};

/* Makes calls one by one until n results more were fetched. every: each so
 * manieth has LONG_LEN bytes, the others SMALL; 0: none. */
static struct skein_rpc_stats fetch_some(struct skein_conn *conn, uint16_t id,
					 unsigned n, unsigned every)
{
	struct skein_rpc_stats st = stats(conn);
	uint64_t end = st.fetched + n;
	uint8_t resp[LONG_LEN];
	uint32_t len;

	for (unsigned i = 1; st.fetched < end; i++) {
		len = every && i % every == 0 ? LONG_LEN : SMALL;
		assert_int_equal(skein_rpc_call(conn, id, &len, 4, resp, len,
						SKEIN_S(60), NULL),
				 0);
		st = stats(conn);
	}
	return st;
}

static struct skein_ctx *calibrated_ctx(char path[64])
{
	struct skein_ctx *ctx = ctx_open(SKEIN_WAIT_POLL);
	int fd;

	snprintf(path, 64, "/tmp/skein-fetch-XXXXXX");
	fd = mkstemp(path);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(rpc_calib_file_put(ctx->dev, path, true, &figure_1),
			 0);
	skein_ctx_close(ctx);
	setenv("SKEIN_RPC_CALIBRATION", path, 1);
	ctx = ctx_open(SKEIN_WAIT_POLL);
	unsetenv("SKEIN_RPC_CALIBRATION");
	return ctx;
}

/* F follows the sizes of results, of each id by itself, and stays where two are
 * as good. */
static void test_sizes(void **state)
{
	struct skein_rpc_stats st, was;
	struct skein_conn *conn;
	char addr[SERVED_ADDR], path[64];
	struct skein_ctx *ctx;
	pid_t pid;

	pid = served_start(SKEIN_WAIT_ADAPTIVE, setup, addr);
	ctx = calibrated_ctx(path);
	conn = conn_open(ctx, addr);
	st = fetch_some(conn, SIZED, 256, 0);
	assert_int_equal(st.fetch_len, 256);
	assert_int_equal(st.fetch_rests, 0);
	was = st = fetch_some(conn, SIZED, FETCH_SIZE_SAMPLES, 1);
	assert_int_equal(st.fetch_len, 768);
	assert_int_equal(st.fetch_len_changes, 1);
	assert_in_range(st.fetch_rests, 256, FETCH_SIZE_SAMPLES - 64);
	st = fetch_some(conn, SIZED, 512, 1);
	assert_int_equal(st.fetch_rests, was.fetch_rests);
	/* As good as 256 for two lengths that alternate. */
	st = fetch_some(conn, SIZED, 3 * FETCH_SIZE_SAMPLES, 2);
	assert_int_equal(st.fetch_len, 768);
	assert_int_equal(st.fetch_len_changes, 1);
	assert_int_equal(st.fetch_rests, was.fetch_rests);
	/* Another id, of which the others' sizes say nothing. */
	st = fetch_some(conn, SIZED_TOO, FETCH_SIZE_SAMPLES, 0);
	assert_int_equal(st.fetch_len, 256);
	assert_int_equal(st.fetch_len_changes, 1);
	st = fetch_some(conn, SIZED, FETCH_SIZE_SAMPLES, 0);
	assert_int_equal(st.fetch_len, 256);
	assert_int_equal(st.fetch_len_changes, 2);
	assert_int_equal(st.fetch_tries, RPC_FETCH_R);
	skein_conn_close(conn, SKEIN_S(5));
	skein_ctx_close(ctx);
	served_stop(pid);
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_auto),
		cmocka_unit_test(test_modes),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_stopped),
		cmocka_unit_test(test_deferred),
		cmocka_unit_test(test_server_killed),
		cmocka_unit_test(test_client_killed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
