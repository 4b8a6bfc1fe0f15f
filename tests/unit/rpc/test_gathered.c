/* SPDX-License-Identifier: MIT */
/*
 * test_gathered.c - calls that done() makes leave together: how many messages
 * they take. Two processes.
 */
#include <errno.h>
#include <string.h>

#include "served.h"
#include "rpc/client/lane_client.h"

enum {
	ECHO = 1
};

static struct skein_ctx *ctx;
static struct skein_conn *conn;
static pid_t pid;

struct tally {
	unsigned made, done, ok;
	unsigned again; /* calls that each done() makes */
};

static int echo(struct skein_rpc_req *req, void *arg)
{
	memcpy(skein_rpc_resp_buf(req, 4), skein_rpc_req_data(req), 4);
	return 0;
}

static int setup(struct skein_ctx *served)
{
	return skein_rpc_handle(served, ECHO, echo, NULL);
}

static void begin(void)
{
	struct skein_ctx_attr a = {.size = sizeof(a),
				   .device = test_device(),
				   .wait = SKEIN_WAIT_POLL};
	char addr[SERVED_ADDR];

	pid = served_start(SKEIN_WAIT_ADAPTIVE, setup, addr);
	assert_int_equal(skein_ctx_open(&a, &ctx), 0);
	assert_int_equal(skein_conn_open(ctx, addr, NULL, &conn), 0);
}

static void end(void)
{
	skein_conn_close(conn, SKEIN_S(60));
	skein_ctx_close(ctx);
	served_stop(pid);
}

static struct skein_rpc_stats stats(void)
{
	struct skein_rpc_stats st = {.size = sizeof(st)};

	assert_int_equal(skein_rpc_get_stats(conn, &st), 0);
	return st;
}

static void call(struct tally *t);

static void done(void *arg, const struct skein_rpc_result *res)
{
	struct tally *t = arg;

	t->ok += res->outcome == SKEIN_DONE && !res->status;
	__atomic_store_n(&t->done, t->done + 1, __ATOMIC_RELEASE);
	if (t->again) {
		t->again--;
		call(t);
	}
}

static void call(struct tally *t)
{
	assert_int_equal(skein_rpc_call_async(conn, ECHO, "1234", 4, 4,
					      SKEIN_S(600), done, t),
			 0);
	t->made++;
}

/* Calls made inside done() leave together behind the round: 16 answers come in
 * few messages, and so many calls leave in as few. */
static void test_inside(void **state)
{
	struct skein_rpc_stats was, st;
	struct tally t = {.again = 64 * COMBINER_BOUND};
	struct skein_rpc_entry e[COMBINER_BOUND];
	unsigned n;

	begin();
	for (n = 0; n < COMBINER_BOUND; n++)
		e[n] = (struct skein_rpc_entry){.id = ECHO,
						.req = "1234",
						.req_len = 4,
						.resp_max = 4,
						.timeout_ns = SKEIN_S(600),
						.done = done,
						.arg = &t};
	assert_int_equal(skein_rpc_call_batch(conn, e, COMBINER_BOUND, &n), 0);
	assert_int_equal(n, COMBINER_BOUND);
	t.made = n;
	was = stats();
	while (t.done < t.made)
		skein_ctx_progress(ctx);
	st = stats();
	assert_int_equal(st.calls - was.calls, 64 * COMBINER_BOUND);
	assert_true(st.messages_sent - was.messages_sent <=
		    st.messages_received - was.messages_received);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_inside),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
