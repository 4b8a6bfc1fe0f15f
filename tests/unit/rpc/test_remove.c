/* SPDX-License-Identifier: MIT */
/*
 * test_remove.c - handlers that are removed: calls under way finish, later ones
 * find nobody, and the id may be given again when no thread runs it any more.
 */
#include "unit/conn/pair.h"
#include "unit/patience.h"

#include <errno.h>

#define ID 7
#define PATIENCE patience_ns(30)

struct handler {
	atomic_int begun, over;
	atomic_bool go;
	int number;
};

static int serve(struct skein_rpc_req *req, void *arg)
{
	struct handler *h = arg;
	int *resp = skein_rpc_resp_buf(req, sizeof(*resp));

	h->begun++;
	while (!h->go)
		sched_yield();
	*resp = h->number;
	h->over++;
	return 0;
}

struct answer {
	bool came;
	int status, number;
};

static void on_answer(void *arg, const struct skein_rpc_result *res)
{
	struct answer *a = arg;

	a->came = true;
	a->status = res->status;
	if (!res->status)
		memcpy(&a->number, res->data, sizeof(a->number));
}

static int call(struct skein_conn *conn, int *number)
{
	return skein_rpc_call(conn, ID, NULL, 0, number, sizeof(*number),
			      PATIENCE, NULL);
}

static void begin(struct skein_conn *conn, struct handler *h, struct answer *a)
{
	assert_int_equal(skein_rpc_call_async(conn, ID, NULL, 0, sizeof(int),
					      PATIENCE, on_answer, a),
			 0);
	while (!h->begun)
		sched_yield();
}

static void reap(struct skein_conn *conn, struct answer *a)
{
	while (!a->came)
		assert_true(skein_rpc_reap(conn, PATIENCE) >= 0);
}

static void test_again(void **state)
{
	struct handler h[2] = {{.number = 1, .go = true},
			       {.number = 2, .go = true}};
	struct skein_conn *conn;
	struct pair p;
	int number;

	pair_open(&p, NULL, NULL);
	assert_int_equal(skein_rpc_handle_remove(p.server, ID, PATIENCE),
			 -ENOENT);
	assert_int_equal(skein_rpc_handle(p.server, ID, serve, &h[0]), 0);
	conn = connect_to(&p);
	assert_int_equal(call(conn, &number), 0);
	assert_int_equal(number, 1);
	assert_int_equal(skein_rpc_handle_remove(p.server, ID, PATIENCE), 0);
	assert_int_equal(call(conn, &number), -SKEIN_ENOHANDLER);
	assert_int_equal(skein_rpc_handle_remove(p.server, ID, PATIENCE),
			 -ENOENT);
	assert_int_equal(skein_rpc_handle(p.server, ID, serve, &h[1]), 0);
	assert_int_equal(call(conn, &number), 0);
	assert_int_equal(number, 2);
	assert_int_equal(h[0].begun, 1);
	skein_conn_close(conn, SKEIN_S(5));
	pair_close(&p);
}

/* While a thread runs it: a removal waits, and nobody else gets the id. */
static void removed_while_it_runs(struct pair *p, struct skein_conn *conn,
				  struct handler *h, bool pooled)
{
	struct answer a = {0};
	int number;

	begin(conn, h, &a);
	assert_int_equal(skein_rpc_handle_remove(p->server, ID, SKEIN_MS(1)),
			 -ETIMEDOUT);
	assert_int_equal(skein_rpc_handle(p->server, ID, serve, h), -EEXIST);
	if (pooled)
		assert_int_equal(call(conn, &number), -SKEIN_ENOHANDLER);
	assert_int_equal(h->over, 0);
	h->go = true;
	assert_int_equal(skein_rpc_handle_remove(p->server, ID, PATIENCE), 0);
	assert_int_equal(h->over, 1);
	reap(conn, &a);
	assert_int_equal(a.status, 0);
	assert_int_equal(a.number, h->number);
	assert_int_equal(call(conn, &number), -SKEIN_ENOHANDLER);
	assert_int_equal(h->begun, 1);
}

static void test_in_the_engine(void **state)
{
	struct handler h = {.number = 3};
	struct skein_conn *conn;
	struct pair p;

	pair_open(&p, NULL, NULL);
	assert_int_equal(skein_rpc_handle(p.server, ID, serve, &h), 0);
	conn = connect_to(&p);
	removed_while_it_runs(&p, conn, &h, false);
	skein_conn_close(conn, SKEIN_S(5));
	pair_close(&p);
}

static void test_in_a_pool(void **state)
{
	struct handler h[2] = {{.number = 4}, {.number = 5, .go = true}};
	struct skein_rpc_pool *pool;
	struct skein_conn *conn;
	struct pair p;
	int number;

	pair_open(&p, NULL, NULL);
	assert_int_equal(skein_rpc_pool_new(p.server, 1, &pool), 0);
	assert_int_equal(
		skein_rpc_handle_workers(p.server, ID, serve, &h[0], pool), 0);
	conn = connect_to(&p);
	removed_while_it_runs(&p, conn, &h[0], true);
	assert_int_equal(
		skein_rpc_handle_workers(p.server, ID, serve, &h[1], pool), 0);
	assert_int_equal(call(conn, &number), 0);
	assert_int_equal(number, 5);
	skein_conn_close(conn, SKEIN_S(5));
	pair_close(&p);
}

static struct skein_ctx *served;

static int remove_inside(struct skein_rpc_req *req, void *arg)
{
	atomic_int *rc = arg;

	*rc = skein_rpc_handle_remove(served, ID, PATIENCE);
	return 0;
}

static void test_inside(void **state)
{
	struct skein_conn *conn;
	atomic_int rc = 1; /* an answer orders nothing that C knows of */
	struct pair p;

	pair_open(&p, NULL, NULL);
	served = p.server;
	assert_int_equal(skein_rpc_handle(p.server, ID, remove_inside, &rc), 0);
	conn = connect_to(&p);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(skein_rpc_call(conn, ID, NULL, 0, NULL, 0,
						PATIENCE, NULL),
				 0);
	assert_int_equal(rc, -EDEADLK);
	assert_int_equal(skein_rpc_handle_remove(p.server, ID, PATIENCE), 0);
	skein_conn_close(conn, SKEIN_S(5));
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_again),
		cmocka_unit_test(test_in_the_engine),
		cmocka_unit_test(test_in_a_pool),
		cmocka_unit_test(test_inside),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
