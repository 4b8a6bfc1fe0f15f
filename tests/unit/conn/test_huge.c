/* SPDX-License-Identifier: MIT */
/*
 * test_huge.c - the option for huge pages: who is heard, what is refused, and a
 * region of them that a peer reads, writes and counts in, to its last byte.
 * Where the machine has none the same region is made of ordinary pages.
 */
#include "unit/cm.h"

#include "conn/state.h"
#include "conn/mem/mem_handle.h"
#include "unit/hugepool.h"

#include <errno.h>
#include <skein/skein.h>
#include <stdlib.h>

/* Two huge pages, the second for the last line. */
#define LEN ((2u << 20) + 64)
#define ALL (SKEIN_MEM_READ | SKEIN_MEM_WRITE | SKEIN_MEM_ATOMIC)

struct pool {
	struct hugepool pool;
	long pages; /* free */
};

static void no_log(void *arg, enum skein_log_level level, const char *line)
{
}

static struct skein_ctx_attr attr_of(enum skein_hugepages hugepages)
{
	return (struct skein_ctx_attr){.size = sizeof(struct skein_ctx_attr),
				       .device = "soft",
				       .background = true,
				       .log = no_log,
				       .hugepages = hugepages};
}

static enum env_huge opened_as(enum skein_hugepages hugepages)
{
	struct skein_ctx_attr attr = attr_of(hugepages);
	struct skein_ctx *ctx;
	enum env_huge huge;

	assert_int_equal(skein_ctx_open(&attr, &ctx), 0);
	huge = ctx->env->huge;
	skein_ctx_close(ctx);
	return huge;
}

static void test_who(void **state)
{
	struct skein_ctx_attr attr = attr_of(SKEIN_HUGEPAGES_DEFAULT);
	struct skein_ctx *ctx;

	unsetenv("SKEIN_HUGEPAGES");
	assert_int_equal(opened_as(SKEIN_HUGEPAGES_DEFAULT), ENV_HUGE_OFF);
	setenv("SKEIN_HUGEPAGES", "auto", 1);
	assert_int_equal(opened_as(SKEIN_HUGEPAGES_DEFAULT), ENV_HUGE_AUTO);
	assert_int_equal(opened_as(SKEIN_HUGEPAGES_OFF), ENV_HUGE_OFF);
	assert_int_equal(opened_as(SKEIN_HUGEPAGES_ON), ENV_HUGE_ON);
	setenv("SKEIN_HUGEPAGES", "always", 1);
	assert_int_equal(skein_ctx_open(&attr, &ctx), -EINVAL);
	assert_int_equal(opened_as(SKEIN_HUGEPAGES_AUTO), ENV_HUGE_AUTO);
	unsetenv("SKEIN_HUGEPAGES");
	attr.hugepages = SKEIN_HUGEPAGES_ON + 1;
	assert_int_equal(skein_ctx_open(&attr, &ctx), -EINVAL);
}

static void use(struct skein_conn *conn, struct skein_mem *local,
		const char *there)
{
	struct skein_remote r = {.size = sizeof(r)};
	char *here = skein_mem_addr(local);
	uint64_t old = 1;

	assert_int_equal(skein_mem_find(conn, "huge", SKEIN_S(5), &r), 0);
	assert_int_equal(r.len, LEN);
	memset(here, 0x5a, LEN);
	assert_int_equal(
		skein_mem_write(conn, local, 0, &r, 0, LEN, SKEIN_S(5)), 0);
	assert_memory_equal(there, here, LEN);
	assert_int_equal(
		skein_mem_fetch_add(conn, &r, LEN - 8, 1, SKEIN_S(5), &old), 0);
	assert_int_equal(old, 0x5a5a5a5a5a5a5a5a);
	assert_int_equal(skein_mem_read(conn, local, LEN - 8, &r, LEN - 8, 8,
					SKEIN_S(5)),
			 0);
	memcpy(&old, here + LEN - 8, 8);
	assert_int_equal(old, 0x5a5a5a5a5a5a5a5b);
	/* Its page is longer than the region. */
	assert_true(skein_mem_write(conn, local, 0, &r, LEN - 8, 16,
				    SKEIN_S(5)) < 0);
}

static void test_region(void **state)
{
	struct skein_ctx_attr attr = attr_of(SKEIN_HUGEPAGES_AUTO);
	struct skein_mem *shared, *local;
	struct skein_ctx *server, *client;
	struct skein_listener *listener;
	struct skein_conn *conn;
	struct pool *pool = *state;

	assert_int_equal(skein_ctx_open(&attr, &server), 0);
	assert_int_equal(skein_ctx_open(&attr, &client), 0);
	assert_int_equal(
		skein_listener_open(server, "127.0.0.1:0", NULL, &listener), 0);
	assert_int_equal(skein_conn_open(client, skein_listener_addr(listener),
					 NULL, &conn),
			 0);
	assert_int_equal(skein_mem_new(server, LEN, &shared), 0);
	assert_int_equal(skein_mem_new(client, LEN, &local), 0);
	if (pool->pages >= 4 && hugepool_row("Hugepagesize") == 2048)
		assert_int_equal(env_mem_page(shared->region->fd), 2u << 20);
	assert_int_equal(skein_mem_share(shared, "huge", ALL), 0);
	use(conn, local, skein_mem_addr(shared));
	skein_conn_close(conn, SKEIN_S(1));
	skein_mem_free(local);
	skein_mem_free(shared);
	skein_listener_close(listener);
	skein_ctx_close(client);
	skein_ctx_close(server);
}

static int pool_open(void **state)
{
	static struct pool pool;

	pool.pages = hugepool_open(&pool.pool, 4);
	*state = &pool;
	return 0;
}

/* Given back by a test that fails, too. */
static int pool_close(void **state)
{
	struct pool *pool = *state;

	hugepool_close(&pool->pool);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_who),
		cmocka_unit_test_setup_teardown(test_region, pool_open,
						pool_close),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
