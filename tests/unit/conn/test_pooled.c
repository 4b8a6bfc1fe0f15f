/* SPDX-License-Identifier: MIT */
/*
 * test_pooled.c - pooled connections in one process, beside a meta server: many
 * at once, and ends of all kinds. tests/e2e/test_pooled.py has the processes.
 */
#include "unit/cm.h"

#include "conn/state.h"
#include "unit/device.h"
#include <skein/skein.h>

#include <errno.h>

/* More than a pool has frames. */
#define CONNS 40u
#define ECHO 7

struct bed {
	struct skein_ctx *keeper, *server, *client;
	struct skein_meta *meta;
	struct skein_listener *l;
};

static int on_echo(struct skein_rpc_req *req, void *arg)
{
	(void)req, (void)arg;
	return 0;
}

/* Its engine has a thread of its own. */
static struct skein_ctx *ctx_new(bool background)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr),
				      .device = test_device(),
				      .background = background};
	struct skein_ctx *ctx;

	assert_int_equal(skein_ctx_open(&attr, &ctx), 0);
	return ctx;
}

static void bed_open(struct bed *b)
{
	struct skein_listener_attr attr = {.size = sizeof(attr),
					   .pooled = SKEIN_POOLED_POOL};

	b->keeper = ctx_new(true);
	assert_int_equal(
		skein_meta_open(b->keeper, "127.0.0.1:0", 64, &b->meta), 0);
	assert_int_equal(setenv("SKEIN_META", skein_meta_addr(b->meta), 1), 0);
	b->server = ctx_new(true);
	assert_int_equal(skein_rpc_handle(b->server, ECHO, on_echo, NULL), 0);
	assert_int_equal(
		skein_listener_open(b->server, "127.0.0.1:0", &attr, &b->l), 0);
	b->client = ctx_new(false);
}

static void bed_close(struct bed *b)
{
	skein_ctx_close(b->client);
	skein_ctx_close(b->server);
	skein_meta_close(b->meta);
	skein_ctx_close(b->keeper);
}

static struct skein_conn_attr pooled(void)
{
	return (struct skein_conn_attr){.size = sizeof(struct skein_conn_attr),
					.timeout_ns = SKEIN_S(60),
					.pooled = SKEIN_POOLED_POOL};
}

static int open_pooled(struct bed *b, const char *addr, struct skein_conn **c)
{
	struct skein_conn_attr attr = pooled();

	return skein_conn_open(b->client, addr, &attr, c);
}

static void call(struct skein_conn *conn)
{
	struct skein_rpc_result res;
	char resp[8];

	assert_int_equal(skein_rpc_call(conn, ECHO, "goose", 5, resp,
					sizeof(resp), SKEIN_S(60), &res),
			 0);
}

/* All send their offers before one has left; and the last ones are not waited
 * for at the close. */
static void test_many(void **state)
{
	struct skein_conn_attr attr = pooled();
	struct skein_conn *conns[CONNS];
	struct bed b;

	bed_open(&b);
	for (unsigned i = 0; i < CONNS; i++)
		assert_int_equal(skein_conn_open_async(b.client,
						       skein_listener_addr(b.l),
						       &attr, &conns[i]),
				 0);
	for (unsigned i = 0; i < CONNS; i++) {
		assert_int_equal(skein_conn_wait(conns[i], SKEIN_S(60)), 0);
		assert_non_null(conns[i]->pool);
		assert_string_equal(conn_link(conns[i]), "pool");
		call(conns[i]);
	}
	for (unsigned i = 0; i < CONNS; i++)
		skein_conn_close(conns[i], i < CONNS / 2 ? SKEIN_S(1) : 0);
	bed_close(&b);
}

/* The peer may write until the memory is gone: it is not used again. */
static void test_stuck(void **state)
{
	struct skein_conn *conn;
	struct bed b;

	bed_open(&b);
	assert_int_equal(open_pooled(&b, skein_listener_addr(b.l), &conn), 0);
	call(conn);
	skein_listener_close(b.l);
	while (skein_conn_get_state(conn) == SKEIN_CONN_READY)
		skein_ctx_progress(b.client);
	assert_int_equal(skein_conn_error(conn, NULL), -ESHUTDOWN);
	assert_true(conn_stuck(conn));
	skein_conn_close(conn, 0);
	bed_close(&b);
}

static void test_refused(void **state)
{
	struct skein_listener_attr no = {.size = sizeof(no),
					 .pooled = SKEIN_POOLED_NO};
	struct skein_conn_attr attr = pooled();
	struct skein_listener *plain;
	struct skein_conn *conn;
	struct bed b;

	bed_open(&b);
	assert_int_equal(
		skein_listener_open(b.server, "127.0.0.1:0", &no, &plain), 0);
	assert_int_equal(open_pooled(&b, skein_listener_addr(plain), &conn),
			 -ECONNREFUSED);
	attr.qps = 2;
	assert_int_equal(skein_conn_open(b.client, skein_listener_addr(b.l),
					 &attr, &conn),
			 -EOPNOTSUPP);
	/* One that is not pooled finds the listener too. */
	attr = (struct skein_conn_attr){.size = sizeof(attr),
					.pooled = SKEIN_POOLED_NO};
	assert_int_equal(skein_conn_open(b.client, skein_listener_addr(b.l),
					 &attr, &conn),
			 0);
	assert_null(conn->pool);
	call(conn);
	skein_conn_close(conn, SKEIN_S(1));
	bed_close(&b);
}

struct nested {
	struct bed *bed;
	int rc;
	bool done;
};

static void on_state(void *arg, struct skein_conn *conn,
		     enum skein_conn_state state)
{
	struct nested *n = arg;
	struct skein_conn *inner;

	if (state != SKEIN_CONN_READY)
		return;
	n->rc = open_pooled(n->bed, skein_listener_addr(n->bed->l), &inner);
	n->done = true;
}

/* A pool is made outside of callbacks. */
static void test_callback(void **state)
{
	struct skein_conn_attr attr = {.size = sizeof(attr),
				       .pooled = SKEIN_POOLED_NO,
				       .on_state = on_state};
	struct skein_conn *conn;
	struct nested n = {0};
	struct bed b;

	bed_open(&b);
	n.bed = &b;
	attr.arg = &n;
	assert_int_equal(skein_conn_open(b.client, skein_listener_addr(b.l),
					 &attr, &conn),
			 0);
	assert_true(n.done);
	assert_int_equal(n.rc, -EDEADLK);
	skein_conn_close(conn, SKEIN_S(1));
	bed_close(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_stuck),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_callback),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
