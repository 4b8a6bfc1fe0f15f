/* SPDX-License-Identifier: MIT */
/* test_lib.c - libibverbs missing, old, or odd. */
#include "dev/verbs/lib.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const char *lacks; /* the symbol that the fake library has not got */
static int opens, closes, dummy;

static void *fake_open(const char *soname, char *why, size_t why_len)
{
	assert_string_equal(soname, "libibverbs.so.1");
	opens++;
	return &dummy;
}

static void *refuse_open(const char *soname, char *why, size_t why_len)
{
	snprintf(why, why_len, "no such file");
	return NULL;
}

static void *fake_sym(void *handle, const char *name, const char *version)
{
	assert_ptr_equal(handle, &dummy);
	assert_int_equal(strncmp(version, "IBVERBS_1.", 10), 0);
	if (lacks && !strcmp(name, lacks))
		return NULL;
	return &dummy;
}

static void fake_close(void *handle)
{
	assert_ptr_equal(handle, &dummy);
	closes++;
}

static const struct verbs_loader fake = {fake_open, fake_sym, fake_close};
static const struct verbs_loader none = {refuse_open, fake_sym, fake_close};

static const char *const names[] = {
#define NAME(member, symbol, version, needed, ret, args) symbol,
	VERBS_LIB_SYMBOLS(NAME)
#undef NAME
};
#define N_NAMES (sizeof(names) / sizeof(names[0]))

static void test_not_installed(void **state)
{
	struct verbs_lib lib = {0};
	char err[200] = "";

	(void)state;
	assert_int_equal(verbs_lib_load(&none, &lib, err, sizeof(err)),
			 -ENODEV);
	assert_non_null(strstr(err, "no such file"));
	assert_non_null(strstr(err, "apt install"));
	assert_null(strchr(err, '\n'));
	assert_null(lib.handle);
}

static void test_complete(void **state)
{
	struct verbs_lib lib;
	void *p;

	(void)state;
	opens = closes = 0;
	lacks = NULL;
	assert_int_equal(verbs_lib_load(&fake, &lib, NULL, 0), 0);
	memcpy(&p, &lib.get_device_list, sizeof(p));
	assert_ptr_equal(p, &dummy);
	memcpy(&p, &lib.ack_async_event, sizeof(p));
	assert_ptr_equal(p, &dummy);
	verbs_lib_unload(&lib);
	assert_int_equal(opens, 1);
	assert_int_equal(closes, 1);
}

/* Each symbol missing in turn: refused by name, except the two that may. */
static void test_each_missing(void **state)
{
	struct verbs_lib lib = {0};
	char err[200];
	size_t i;
	int rc, optional = 0;

	(void)state;
	for (i = 0; i < N_NAMES; i++) {
		opens = closes = 0;
		lacks = names[i];
		rc = verbs_lib_load(&fake, &lib, err, sizeof(err));
		if (rc == 0) {
			if (!strcmp(names[i], "ibv_is_fork_initialized"))
				assert_null(lib.is_fork_initialized);
			else
				assert_null(lib.query_qp_data_in_order);
			verbs_lib_unload(&lib);
			optional++;
			continue;
		}
		assert_int_equal(rc, -ELIBBAD);
		assert_non_null(strstr(err, names[i]));
		assert_int_equal(opens, 1);
		assert_int_equal(closes, 1);
	}
	assert_int_equal(optional, 2);
}

/* The installed library has every symbol under the version asked for. */
static void test_installed(void **state)
{
	struct verbs_lib lib;
	char err[200] = "";
	int rc = verbs_lib_load(&verbs_loader_dl, &lib, err, sizeof(err));

	(void)state;
	if (rc == -ENODEV) {
		print_message("%s\n", err);
		skip();
	}
	if (rc)
		fail_msg("%s", err);
	assert_non_null(lib.query_port);
	verbs_lib_unload(&lib);
}

static int old_query_port(struct ibv_context *ctx, uint8_t port,
			  struct ibv_port_attr *attr)
{
	attr->lid = port;
	return port == 9 ? EINVAL : 0;
}

static int new_query_port(struct ibv_context *ctx, uint8_t port,
			  struct ibv_port_attr *attr, size_t len)
{
	assert_int_equal(len, sizeof(*attr));
	attr->lid = 100 + port;
	return 0;
}

static void test_query_port(void **state)
{
	struct verbs_lib lib = {.query_port = old_query_port};
	struct verbs_context vctx = {.query_port = new_query_port};
	struct ibv_port_attr attr;

	(void)state;
	vctx.sz = sizeof(vctx);
	vctx.context.abi_compat = NULL;
	memset(&attr, 0xff, sizeof(attr));
	assert_int_equal(verbs_lib_query_port(&lib, &vctx.context, 3, &attr),
			 0);
	assert_int_equal(attr.lid, 3);
	assert_int_equal(attr.link_layer, 0);
	assert_int_equal(verbs_lib_query_port(&lib, &vctx.context, 9, &attr),
			 -EINVAL);
	vctx.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	assert_int_equal(verbs_lib_query_port(&lib, &vctx.context, 3, &attr),
			 0);
	assert_int_equal(attr.lid, 103);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_not_installed),
		cmocka_unit_test(test_complete),
		cmocka_unit_test(test_each_missing),
		cmocka_unit_test(test_installed),
		cmocka_unit_test(test_query_port),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
