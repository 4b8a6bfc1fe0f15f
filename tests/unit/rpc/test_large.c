/* SPDX-License-Identifier: MIT */
/*
 * test_large.c - large payloads go in pieces: one turn a round for all connections
 * of an engine, in a fair order, with other calls between; all bytes arrive; and a
 * call that ends in mid-payload leaves the connection as it was. Rounds are run by
 * hand and counted: no clock, no second core.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conn/turn.h"
#include "unit/cm.h"
#include <skein/skein.h>

#define PIECES 64u
/* The last piece is short. */
#define LARGE ((PIECES - 1) * CONN_TURN_LEN + 4097u)
#define ROUNDS_MAX 200000u

enum {
	ECHO = 1,
	TAKE,
	MAKE
};

struct party {
	struct skein_ctx *ctx;
	struct skein_conn *conn;
	const char *addr;
	atomic_bool connected;
	uint8_t *req;
	unsigned round;	   /* the server's, when its call ended */
	unsigned answered; /* calls */
	struct skein_rpc_result res;
	bool ok, again;
};

static struct skein_ctx *server;
static struct skein_listener *listener;
static unsigned rounds;

static uint8_t at(size_t i)
{
	return (uint8_t)(i * 7 + (i >> 11) + (i >> 16));
}

static bool right(const uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (p[i] != at(i))
			return false;
	return true;
}

static int on_call(struct skein_rpc_req *req, void *arg)
{
	size_t len = skein_rpc_req_len(req);
	uint8_t *resp;

	if ((uintptr_t)arg == TAKE)
		return right(skein_rpc_req_data(req), len) ? 0 : -EBADMSG;
	if ((uintptr_t)arg == MAKE)
		len = LARGE;
	resp = skein_rpc_resp_buf(req, len);
	if (!resp)
		return -ENOMEM;
	for (size_t i = 0; i < len; i++)
		resp[i] = at(i);
	return 0;
}

static struct skein_ctx *ctx_new(void)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr),
				      .device = "soft",
				      .wait = SKEIN_WAIT_POLL};
	struct skein_ctx *ctx;

	assert_int_equal(skein_ctx_open(&attr, &ctx), 0);
	return ctx;
}

static void *connects(void *arg)
{
	struct party *p = arg;

	if (skein_conn_open(p->ctx, p->addr, NULL, &p->conn))
		p->conn = NULL;
	atomic_store(&p->connected, true);
	return NULL;
}

static void party_open(struct party *p)
{
	pthread_t thread;

	memset(p, 0, sizeof(*p));
	p->ctx = ctx_new();
	p->addr = skein_listener_addr(listener);
	p->req = malloc(LARGE);
	for (size_t i = 0; i < LARGE; i++)
		p->req[i] = at(i);
	assert_int_equal(pthread_create(&thread, NULL, connects, p), 0);
	while (!atomic_load(&p->connected))
		skein_ctx_progress(server);
	pthread_join(thread, NULL);
	assert_non_null(p->conn);
}

static void party_close(struct party *p)
{
	if (p->conn)
		skein_conn_close(p->conn, 0);
	skein_ctx_close(p->ctx);
	free(p->req);
}

static int setup(void **state)
{
	server = ctx_new();
	for (uintptr_t id = ECHO; id <= MAKE; id++)
		assert_int_equal(skein_rpc_handle(server, (uint16_t)id, on_call,
						  (void *)id),
				 0);
	assert_int_equal(
		skein_listener_open(server, "127.0.0.1:0", NULL, &listener), 0);
	return 0;
}

static int teardown(void **state)
{
	skein_ctx_close(server);
	return 0;
}

static void send_small(struct party *p);

static void ended(void *arg, const struct skein_rpc_result *res)
{
	struct party *p = arg;

	p->res = *res;
	p->round = rounds;
	p->answered++;
	p->ok = res->outcome == SKEIN_DONE && !res->status &&
		right(res->data, res->len);
	if (p->again)
		send_small(p);
}

static void send_small(struct party *p)
{
	assert_int_equal(skein_rpc_call_async(p->conn, ECHO, p->req, 64, 64,
					      SKEIN_FOREVER, ended, p),
			 0);
}

static void send_large(struct party *p, uint64_t timeout_ns)
{
	p->answered = 0;
	assert_int_equal(skein_rpc_call_async(p->conn, TAKE, p->req, LARGE, 64,
					      timeout_ns, ended, p),
			 0);
}

static void ask_large(struct party *p)
{
	p->answered = 0;
	assert_int_equal(skein_rpc_call_async(p->conn, MAKE, p->req, 64, LARGE,
					      SKEIN_FOREVER, ended, p),
			 0);
}

static void round_of(struct party *parties, unsigned n)
{
	skein_ctx_progress(server);
	rounds++;
	for (unsigned i = 0; i < n; i++)
		skein_ctx_progress(parties[i].ctx);
}

static void until_answered(struct party *p, struct party *parties, unsigned n)
{
	unsigned end = rounds + ROUNDS_MAX;

	while (!p->answered && rounds != end)
		round_of(parties, n);
	assert_int_equal(p->answered, 1);
}

/* One large request; another client's calls between its pieces. */
static void test_between(void **state)
{
	struct party p[2];

	party_open(&p[0]);
	party_open(&p[1]);
	/* The device knows their memory before it counts. */
	send_large(&p[0], SKEIN_FOREVER);
	until_answered(&p[0], &p[0], 1);
	send_small(&p[1]);
	until_answered(&p[1], &p[1], 1);
	p[1].answered = 0;
	p[1].again = true;
	rounds = 0;
	send_small(&p[1]);
	send_large(&p[0], SKEIN_FOREVER);
	until_answered(&p[0], p, 2);
	assert_true(p[0].ok);
	assert_true(rounds >= PIECES);
	assert_true(p[1].answered >= PIECES / 4);
	p[1].again = false;
	party_close(&p[0]);
	party_close(&p[1]);
}

/* Three at a time: one turn a round for all of them, and nobody is much later. */
static void test_fair(void **state)
{
	struct party p[3];
	unsigned first = ROUNDS_MAX, last = 0;

	for (unsigned i = 0; i < 3; i++) {
		party_open(&p[i]);
		/* Its memory is used again: the device knows it by then. */
		send_large(&p[i], SKEIN_FOREVER);
		until_answered(&p[i], &p[i], 1);
	}
	rounds = 0;
	for (unsigned i = 0; i < 3; i++)
		send_large(&p[i], SKEIN_FOREVER);
	for (unsigned i = 0; i < 3; i++)
		until_answered(&p[i], p, 3);
	for (unsigned i = 0; i < 3; i++) {
		assert_true(p[i].ok);
		first = p[i].round < first ? p[i].round : first;
		last = p[i].round > last ? p[i].round : last;
	}
	assert_true(last >= 3 * PIECES);
	assert_true(last - first < PIECES / 2);
	for (unsigned i = 0; i < 3; i++)
		party_close(&p[i]);
}

/* The same at the client, for a large result. */
static void test_result(void **state)
{
	unsigned client_rounds = 0;
	struct party p;

	party_open(&p);
	ask_large(&p);
	while (!p.answered && client_rounds++ < ROUNDS_MAX)
		round_of(&p, 1);
	assert_true(p.ok);
	assert_int_equal(p.res.len, LARGE);
	assert_true(client_rounds >= PIECES);
	party_close(&p);
}

/* Sent, and some of it has been READ. */
static void begin_large(struct party *p, uint64_t timeout_ns)
{
	struct skein_rpc_stats st = {.size = sizeof(st)};

	send_large(p, timeout_ns);
	do
		skein_ctx_progress(p->ctx);
	while (!skein_rpc_get_stats(p->conn, &st) && !st.calls);
	for (unsigned i = 0; i < PIECES / 3; i++)
		skein_ctx_progress(server);
	assert_false(p->answered);
}

static void works(struct party *p)
{
	p->answered = 0;
	send_large(p, SKEIN_FOREVER);
	until_answered(p, p, 1);
	assert_true(p->ok);
	ask_large(p);
	until_answered(p, p, 1);
	assert_true(p->ok);
}

static void test_deadline(void **state)
{
	struct party p;

	party_open(&p);
	begin_large(&p, SKEIN_MS(100));
	while (!p.answered)
		skein_ctx_progress(p.ctx);
	assert_int_equal(p.res.outcome, SKEIN_UNKNOWN);
	assert_int_equal(p.res.status, -ETIMEDOUT);
	works(&p);
	party_close(&p);
}

static void test_cancel(void **state)
{
	struct party p;

	party_open(&p);
	begin_large(&p, SKEIN_FOREVER);
	assert_int_equal(skein_rpc_cancel(p.conn, ended, &p), 0);
	while (!p.answered)
		skein_ctx_progress(p.ctx);
	assert_int_equal(p.res.outcome, SKEIN_UNKNOWN);
	assert_int_equal(p.res.status, -ECANCELED);
	works(&p);
	party_close(&p);
}

/* The caller dies in mid-payload: others have their turns all the same. */
static pid_t child;
static int to_child, from_child;

static _Noreturn void caller(int in, int out)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr), .device = "soft"};
	struct party p = {.req = calloc(1, LARGE)};
	char addr[64];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!p.req || read(in, addr, sizeof(addr)) != sizeof(addr) ||
	    skein_ctx_open(&attr, &p.ctx) ||
	    skein_conn_open(p.ctx, addr, NULL, &p.conn) ||
	    write(out, "s", 1) != 1 ||
	    skein_rpc_call_async(p.conn, TAKE, p.req, LARGE, 64, SKEIN_FOREVER,
				 ended, &p))
		_exit(1);
	skein_ctx_progress(p.ctx);
	for (;;)
		pause();
}

static int setup_death(void **state)
{
	int in[2], out[2];
	char addr[64] = "";

	assert_int_equal(pipe(in), 0);
	assert_int_equal(pipe2(out, O_NONBLOCK), 0);
	child = fork();
	assert_true(child >= 0);
	if (!child)
		caller(in[0], out[1]);
	close(in[0]);
	close(out[1]);
	to_child = in[1];
	from_child = out[0];
	setup(state);
	snprintf(addr, sizeof(addr), "%s", skein_listener_addr(listener));
	assert_int_equal(write(to_child, addr, sizeof(addr)), sizeof(addr));
	return 0;
}

static void test_death(void **state)
{
	unsigned moved = 0;
	struct party p;
	char byte;
	ssize_t n;

	while ((n = read(from_child, &byte, 1)) != 1) {
		assert_true(n < 0 && errno == EAGAIN);
		skein_ctx_progress(server);
	}
	/* What moves from here on is the payload. */
	while (moved < PIECES / 3) {
		moved += skein_ctx_progress(server) > 0;
		assert_int_equal(waitpid(child, NULL, WNOHANG), 0);
	}
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, NULL, 0), child);
	close(to_child);
	close(from_child);
	party_open(&p);
	works(&p);
	party_close(&p);
}

/* --- turns ---------------------------------------------------------------- */

static void test_turn_bound(void **state)
{
	struct conn_turn t = {0};
	uint32_t left = CONN_TURN_LEN;

	while (left >= 5000) {
		assert_true(conn_turn_take(&t, "a", 1, 5000));
		left -= 5000;
	}
	assert_false(conn_turn_take(&t, "a", 1, 5000));
	assert_true(conn_turn_take(&t, "a", 1, left));
	assert_true(conn_turn_take(&t, "a", 2, CONN_TURN_LEN));
	assert_false(conn_turn_take(&t, "a", 2, 1));
}

/* Of three that always want one each has a third, whatever the order in which they
 * ask; with one that gives up, the others go on. */
static void test_turn_order(void **state)
{
	unsigned had[3] = {0};
	struct conn_turn t = {0};

	for (uint64_t now = 1; now <= 300; now++)
		for (unsigned i = 0; i < 3; i++)
			had[i] +=
				conn_turn_take(&t, &had[i], now, CONN_TURN_LEN);
	for (unsigned i = 0; i < 3; i++)
		assert_true(had[i] >= 99 && had[i] <= 101);
	memset(had, 0, sizeof(had));
	for (uint64_t now = 301; now <= 330; now++)
		for (unsigned i = 0; i < 2; i++)
			had[i] +=
				conn_turn_take(&t, &had[i], now, CONN_TURN_LEN);
	assert_true(had[0] >= 13 && had[1] >= 13);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_turn_bound),
		cmocka_unit_test(test_turn_order),
		cmocka_unit_test_setup_teardown(test_between, setup, teardown),
		cmocka_unit_test_setup_teardown(test_fair, setup, teardown),
		cmocka_unit_test_setup_teardown(test_result, setup, teardown),
		cmocka_unit_test_setup_teardown(test_deadline, setup, teardown),
		cmocka_unit_test_setup_teardown(test_cancel, setup, teardown),
		cmocka_unit_test_setup_teardown(test_death, setup_death,
						teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
