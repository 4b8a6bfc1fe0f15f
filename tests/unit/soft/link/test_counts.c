/* SPDX-License-Identifier: MIT */
/*
 * test_counts.c - the link's page of counters: rows of peers, more peers than
 * rows, and pages that hold anything.
 */
#include "unit/cm.h"

#include "dev/soft/link/counts.h"
#include "env/env.h"

#include <errno.h>
#include <unistd.h>

static struct skein_env *env;
static struct counts_page *page;
static int fd;

static int setup(void **state)
{
	assert_int_equal(env_real_new(&env), 0);
	page = counts_new(env, &fd);
	assert_non_null(page);
	return 0;
}

static int teardown(void **state)
{
	counts_free(env, fd, page);
	env_real_free(env);
	return 0;
}

static struct counts_row *peer(unsigned i)
{
	uint8_t addr[16] = {[14] = (uint8_t)(i >> 8), [15] = (uint8_t)i};

	return counts_peer(page, addr);
}

static void test_rows(void **state)
{
	struct counts_record rec;
	unsigned i;

	/* twice: a peer keeps its row; the address 0 is one like others */
	for (i = 0; i < 2 * (COUNTS_ROWS + 3); i++)
		counts_add(peer(i % (COUNTS_ROWS + 3)), COUNTS_GAPS, 1 + i);
	assert_int_equal(counts_read(page, &rec), 0);
	assert_int_equal(rec.pid, getpid());
	assert_int_equal(rec.rows, COUNTS_ROWS);
	for (i = 1; i < COUNTS_ROWS; i++) {
		assert_int_equal(rec.row[i].addr[15], i - 1);
		assert_int_equal(rec.row[i].n[COUNTS_GAPS],
				 2 * i + COUNTS_ROWS + 3);
	}
	/* the last four peers have no row of their own */
	assert_int_equal(rec.row[COUNTS_REST].n[COUNTS_GAPS],
			 2 * (32 + 33 + 34 + 35) + 4 * (COUNTS_ROWS + 3));
	assert_int_equal(rec.row[COUNTS_REST].n[COUNTS_SENT], 0);
}

static void test_any_page(void **state)
{
	struct counts_record rec;

	page->rows = COUNTS_ROWS + 1;
	assert_int_equal(counts_read(page, &rec), -EINVAL);
	page->rows = 0;
	assert_int_equal(counts_read(page, &rec), -EINVAL);
	page->rows = 1;
	assert_int_equal(counts_read(page, &rec), 0);
	page->len++;
	assert_int_equal(counts_read(page, &rec), -EINVAL);
	page->len--;
	page->magic++;
	assert_int_equal(counts_read(page, &rec), -EINVAL);
	page->magic = 0;
	assert_int_equal(counts_read(page, &rec), -EAGAIN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_rows, setup, teardown),
		cmocka_unit_test_setup_teardown(test_any_page, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
