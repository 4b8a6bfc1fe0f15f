/* SPDX-License-Identifier: MIT */
/* test_gid.c - which GID is chosen, over tables made up here. */
#include "dev/verbs/gid.h"

#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct gid_row row(int index, enum dev_gid_type type, const char *addr,
			  bool here)
{
	struct gid_row r = {.index = index, .type = type, .here = here};

	assert_int_equal(inet_pton(AF_INET6, addr, r.gid.raw), 1);
	snprintf(r.netdev, sizeof(r.netdev), "eth0");
	return r;
}

#define V1 DEV_GID_ROCE_V1
#define V2 DEV_GID_ROCE_V2
#define N(a) (sizeof(a) / sizeof((a)[0]))

/* The chosen index, or the error. */
static int chosen(const struct gid_row *rows, size_t n, int want)
{
	char err[160] = "";
	struct dev_gid gid = {.index = -77};
	int rc = gid_choose(rows, n, want, err, sizeof(err), &gid);

	if (rc) {
		assert_int_equal(gid.index, -77);
		assert_true(err[0]);
		return rc;
	}
	assert_true(gid.why[0]);
	assert_string_equal(err, "");
	return gid.index;
}

static void test_order(void **state)
{
	/* Worst first: each step drops the best and expects the next. */
	struct gid_row rows[] = {
		row(0, V1, "fe80::1", true),
		row(1, V2, "fe80::1", true),
		row(2, V2, "2001:db8::1", true),
		row(3, V2, "::ffff:10.0.0.1", true),
	};
	size_t n;

	(void)state;
	for (n = N(rows); n > 0; n--)
		assert_int_equal(chosen(rows, n, -1), (int)n - 1);
	assert_int_equal(chosen(rows, 0, -1), -ENODATA);
}

/* v1 over IPv4 is still v1: it cannot be routed. */
static void test_v1_last(void **state)
{
	struct gid_row rows[] = {
		row(4, V1, "::ffff:10.0.0.1", true),
		row(5, V2, "fe80::1", true),
	};

	(void)state;
	assert_int_equal(chosen(rows, 2, -1), 5);
}

static void test_tie_lowest_index(void **state)
{
	struct gid_row rows[] = {
		row(9, V2, "::ffff:10.0.0.2", true),
		row(3, V2, "::ffff:10.0.0.1", true),
		row(6, V2, "::ffff:10.0.0.3", true),
	};

	(void)state;
	assert_int_equal(chosen(rows, 3, -1), 3);
}

static void test_elsewhere(void **state)
{
	struct gid_row rows[] = {
		row(0, V2, "::ffff:10.0.0.1", false),
		row(1, V1, "fe80::1", true),
	};
	char err[160];
	struct dev_gid gid;

	(void)state;
	assert_int_equal(chosen(rows, 2, -1), 1);
	assert_int_equal(gid_choose(rows, 1, -1, err, sizeof(err), &gid),
			 -ENODATA);
	assert_non_null(strstr(err, "another network namespace"));
	assert_int_equal(gid_choose(rows, 0, -1, err, sizeof(err), &gid),
			 -ENODATA);
	assert_non_null(strstr(err, "empty"));
}

static void test_by_index(void **state)
{
	struct gid_row rows[] = {
		row(0, V2, "::ffff:10.0.0.1", true),
		row(1, V1, "fe80::1", false),
		row(2, V2, "::", true),
	};
	struct dev_gid gid;

	(void)state;
	assert_int_equal(chosen(rows, 3, 1), 1);
	assert_int_equal(chosen(rows, 3, 2), -ENODATA); /* zero: empty */
	assert_int_equal(chosen(rows, 3, 7), -ENODATA);
	assert_int_equal(gid_choose(rows, 3, 1, NULL, 0, &gid), 0);
	assert_int_equal(gid.type, DEV_GID_ROCE_V1);
	assert_string_equal(gid.netdev, "eth0");
	assert_non_null(strstr(gid.why, "not of this netns"));
}

static void test_infiniband(void **state)
{
	struct gid_row rows[] = {row(0, DEV_GID_IB, "fe80::2c9", false)};

	(void)state;
	rows[0].netdev[0] = '\0';
	gid_place(&rows[0], NULL, 0);
	assert_true(rows[0].here);
	assert_int_equal(chosen(rows, 1, -1), 0);
}

static void test_place(void **state)
{
	struct gid_local locals[2] = {{.netdev = "eth0"}, {.netdev = "eth1"}};
	struct gid_row r = row(0, V2, "::ffff:10.0.0.1", true);

	(void)state;
	locals[0].gid = row(0, V2, "::ffff:10.0.0.9", true).gid;
	locals[1].gid = r.gid;
	/* The address is ours but on another interface, the interface's name
	 * exists here but without the address: another namespace's. */
	gid_place(&r, locals, 2);
	assert_false(r.here);
	locals[0].gid = r.gid;
	gid_place(&r, locals, 2);
	assert_true(r.here);
	r.netdev[0] = '\0';
	gid_place(&r, locals, 2);
	assert_false(r.here);
}

/* Every Linux namespace has lo with a MAC of zeros: fe80::200:ff:fe00:0. */
static void test_locals(void **state)
{
	struct gid_local locals[64];
	struct gid_row r = row(0, V2, "fe80::200:ff:fe00:0", false);
	int n;

	(void)state;
	n = gid_locals(locals, N(locals));
	assert_true(n > 0);
	snprintf(r.netdev, sizeof(r.netdev), "lo");
	gid_place(&r, locals, (size_t)n < N(locals) ? (size_t)n : N(locals));
	assert_true(r.here);
	/* More than fit are counted, not written. */
	assert_int_equal(gid_locals(locals, 0), n);
}

static void test_text(void **state)
{
	union ibv_gid v4 = row(0, V2, "::ffff:10.0.0.1", true).gid;
	union ibv_gid v6 = row(0, V2, "2001:db8::1", true).gid;
	char buf[INET6_ADDRSTRLEN];

	(void)state;
	gid_text(&v4, buf, sizeof(buf));
	assert_string_equal(buf, "10.0.0.1");
	gid_text(&v6, buf, sizeof(buf));
	assert_string_equal(buf, "2001:db8::1");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_v1_last),
		cmocka_unit_test(test_tie_lowest_index),
		cmocka_unit_test(test_elsewhere),
		cmocka_unit_test(test_by_index),
		cmocka_unit_test(test_infiniband),
		cmocka_unit_test(test_place),
		cmocka_unit_test(test_locals),
		cmocka_unit_test(test_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
