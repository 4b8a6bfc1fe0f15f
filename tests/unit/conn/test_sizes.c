/* SPDX-License-Identifier: MIT */
/*
 * test_sizes.c - programs that were compiled with shorter structs than the
 * library's, and with longer ones; and the layouts that never change, for the
 * structs of the public headers that have no size (scripts/lint/headers.py
 * lists them).
 */
#include "unit/conn/pair.h"

#include <errno.h>

/* Those that an application allocates, or that stand inside another struct. A
 * change here is a new soname, or a size is missing. */
_Static_assert(sizeof(struct skein_path) == 32, "inside attributes");
_Static_assert(sizeof(struct skein_rpc_result) == 24, "filled");
_Static_assert(sizeof(struct skein_rpc_entry) == 56, "an array's");
_Static_assert(sizeof(struct skein_mcast_msg) == 40, "filled");
_Static_assert(sizeof(struct skein_mcast_failure) == 24, "filled");
_Static_assert(sizeof(struct skein_mcast_ops) == 40, "inside attributes");
_Static_assert(sizeof(struct skein_vqp_msg) == 32, "an array's");

#define GUARD 0xa5

/* A struct of the program's, and bytes of its own right behind it. */
struct guarded {
	_Alignas(8) uint8_t bytes[512];
};

static void *older(struct guarded *g, size_t size)
{
	memset(g->bytes, GUARD, sizeof(g->bytes));
	memset(g->bytes, 0, size);
	memcpy(g->bytes, &size, sizeof(size));
	return g->bytes;
}

static void assert_kept(const struct guarded *g, size_t size)
{
	size_t is;

	memcpy(&is, g->bytes, sizeof(is));
	assert_int_equal(is, size);
	for (size_t i = size; i < sizeof(g->bytes); i++)
		assert_int_equal(g->bytes[i], GUARD);
}

#define BEHIND(type, field) \
	(offsetof(type, field) + sizeof(((type *)NULL)->field))

static int serve_nothing(struct skein_rpc_req *req, void *arg)
{
	return 0;
}

/* Attributes of a program that knows of the first fields only. */
static void test_older_attributes(void **state)
{
	size_t ctx_size = BEHIND(struct skein_ctx_attr, background);
	size_t listener_size = BEHIND(struct skein_listener_attr, conns_max);
	size_t conn_size = BEHIND(struct skein_conn_attr, timeout_ns);
	struct guarded a, l, c;
	struct skein_ctx_attr *attr = older(&a, ctx_size);
	struct skein_conn_attr *conn_attr = older(&c, conn_size);
	struct skein_listener *listener;
	struct skein_ctx *ctx;
	struct skein_conn *conn;

	attr->device = test_device();
	attr->background = true;
	conn_attr->timeout_ns = SKEIN_S(20);
	assert_int_equal(skein_ctx_open(attr, &ctx), 0);
	assert_int_equal(skein_listener_open(ctx, "127.0.0.1:0",
					     older(&l, listener_size),
					     &listener),
			 0);
	assert_int_equal(skein_conn_open(ctx, skein_listener_addr(listener),
					 conn_attr, &conn),
			 0);
	skein_conn_close(conn, SKEIN_S(5));
	skein_ctx_close(ctx);
	assert_kept(&a, ctx_size);
	assert_kept(&l, listener_size);
	assert_kept(&c, conn_size);
}

static void test_stats(void **state)
{
	size_t size = BEHIND(struct skein_rpc_stats, messages_sent);
	struct guarded g;
	struct skein_rpc_stats *st = older(&g, size);
	struct {
		struct skein_rpc_stats st;
		uint64_t later;
	} newer = {.st.size = sizeof(newer), .later = 4711};
	struct skein_rpc_stats none = {.size = 0, .calls = 4711};
	struct skein_conn *conn;
	struct pair p;

	pair_open(&p, NULL, NULL);
	assert_int_equal(skein_rpc_handle(p.server, 1, serve_nothing, NULL), 0);
	conn = connect_to(&p);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(skein_rpc_call(conn, 1, NULL, 0, NULL, 0,
						SKEIN_S(20), NULL),
				 0);
	assert_int_equal(skein_rpc_get_stats(conn, st), 0);
	assert_int_equal(st->calls, 3);
	assert_int_equal(st->messages_sent, 3);
	assert_kept(&g, size);
	assert_int_equal(skein_rpc_get_stats(conn, &newer.st), 0);
	assert_int_equal(newer.st.calls, 3);
	assert_int_equal(newer.st.degrees[0], 3);
	assert_int_equal(newer.st.size, sizeof(newer));
	assert_int_equal(newer.later, 4711);
	assert_int_equal(skein_rpc_get_stats(conn, &none), -EINVAL);
	assert_int_equal(none.calls, 4711);
	skein_conn_close(conn, SKEIN_S(5));
	pair_close(&p);
}

static void test_remote(void **state)
{
	/* The first version, as it was. */
	size_t size = BEHIND(struct skein_remote, access);
	struct guarded g;
	struct skein_remote *r = older(&g, size);
	struct {
		struct skein_remote r;
		uint64_t later;
	} newer = {.r.size = sizeof(newer), .later = 4711};
	struct skein_remote none = {.size = 0, .id = 4711};
	struct skein_mem *shared;
	struct skein_conn *conn;
	struct pair p;
	uint64_t old;

	pair_open(&p, NULL, NULL);
	assert_int_equal(skein_mem_new(p.server, 4096, &shared), 0);
	assert_int_equal(skein_mem_share(shared, "m", SKEIN_MEM_ATOMIC), 0);
	conn = connect_to(&p);
	assert_int_equal(skein_mem_find(conn, "m", SKEIN_S(20), r), 0);
	assert_int_equal(skein_mem_fetch_add(conn, r, 0, 5, SKEIN_S(20), &old),
			 0);
	assert_kept(&g, size);
	assert_int_equal(skein_mem_find(conn, "m", SKEIN_S(20), &newer.r), 0);
	assert_int_equal(skein_mem_fetch_add(conn, &newer.r, 0, 5, SKEIN_S(20),
					     &old),
			 0);
	assert_int_equal(old, 5);
	assert_int_equal(newer.r.size, sizeof(newer));
	assert_int_equal(newer.later, 4711);
	assert_int_equal(skein_mem_find(conn, "m", SKEIN_S(20), &none),
			 -EINVAL);
	assert_int_equal(none.id, 4711);
	none = newer.r;
	none.size = 0;
	assert_int_equal(skein_mem_fetch_add(conn, &none, 0, 5, SKEIN_S(20),
					     &old),
			 -EINVAL);
	skein_conn_close(conn, SKEIN_S(5));
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_older_attributes),
		cmocka_unit_test(test_stats),
		cmocka_unit_test(test_remote),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
