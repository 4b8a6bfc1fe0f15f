/* SPDX-License-Identifier: MIT */
/*
 * What a meta server does about a table that somebody wrote nonsense into.
 */
#include "bed.h"

#include "vqp/pool.h"

#define PLACES 128u /* of the 64 nodes of meta_main() */
#define TABLE ((1 + PLACES) * META_RECORD)
#define PATIENCE_S 40

static struct skein_conn *conn;
static struct skein_mem *mem;
static struct skein_remote table = {.size = sizeof(table)};

static const uint8_t *table_read(void)
{
	assert_int_equal(skein_mem_read(conn, mem, 0, &table, 0, TABLE,
					patience_ns(20)),
			 0);
	return skein_mem_addr(mem);
}

static bool is_clear(void)
{
	const uint8_t *at = table_read();
	uint32_t i;

	for (i = META_RECORD; i < TABLE; i++)
		if (at[i])
			return false;
	return true;
}

/* Its head is what it was, and all places are empty: then nodes meet there. */
static void test_garbage(void **state)
{
	struct skein_conn_attr ca = {.size = sizeof(ca),
				     .pooled = SKEIN_POOLED_NO};
	struct skein_pool_attr pa = {.size = sizeof(pa), .meta = meta_addr};
	uint64_t end = now_ms() + patience_ms(PATIENCE_S);
	uint8_t head[META_RECORD];
	struct skein_pool *pool;
	struct skein_ctx *ctx;
	struct meta_head h;
	pid_t pid;

	(void)state;
	start(&pid, meta_main, meta_addr, sizeof(meta_addr));
	ctx = ctx_quiet();
	assert_int_equal(skein_conn_open(ctx, meta_addr, &ca, &conn), 0);
	assert_int_equal(
		skein_mem_find(conn, META_NAME, patience_ns(20), &table), 0);
	assert_int_equal(table.len, TABLE);
	assert_int_equal(skein_mem_new(ctx, TABLE, &mem), 0);
	memcpy(head, table_read(), sizeof(head));
	assert_int_equal(meta_head_decode(head, &h), 0);
	assert_true(is_clear());
	memset(skein_mem_addr(mem), 0x5a, TABLE);
	assert_int_equal(skein_mem_write(conn, mem, 0, &table, 0, TABLE,
					 patience_ns(20)),
			 0);
	while (memcmp(table_read(), head, sizeof(head)) || !is_clear())
		patience_met(now_ms() < end, PATIENCE_S,
			     "a table that is whole");
	assert_int_equal(skein_pool_open(ctx, &pa, &pool), 0);
	skein_pool_close(pool);
	skein_mem_free(mem);
	skein_conn_close(conn, 0);
	skein_ctx_close(ctx);
	reap(&pid);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_garbage)};

	if (!getenv("SKEIN_DEVICE"))
		setenv("SKEIN_DEVICE", "soft", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
