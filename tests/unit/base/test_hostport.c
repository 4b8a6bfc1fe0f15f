/* SPDX-License-Identifier: MIT */
/*
 * test_hostport.c - the three forms, and what looks like one of them.
 */
#include "base/hostport.h"
#include "unit/cm.h"

#include <errno.h>
#include <string.h>

static void test_parse(void **state)
{
	static const struct {
		const char *text, *host, *port; /* host NULL: refused */
	} rows[] = {
		{"10.0.0.7:7000", "10.0.0.7", "7000"},
		{"node-3.cluster_a:1", "node-3.cluster_a", "1"},
		{":0", "", "0"},
		{"[::1]:65535", "::1", "65535"},
		{"[fe80::1%eth0]:80", "fe80::1%eth0", "80"},
		{"10.0.0.7", NULL, NULL},
		{"::1:7000", NULL, NULL},
		{"[::1]", NULL, NULL},
		{"[]:1", NULL, NULL},
		{"[::1]x:1", NULL, NULL},
		{"[::1:1", NULL, NULL},
		{"a:", NULL, NULL},
		{"a:65536", NULL, NULL},
		{"a:123456", NULL, NULL},
		{"a:-1", NULL, NULL},
		{"a:+7999", NULL, NULL},
		{"a: 7999", NULL, NULL},
		{"a:http", NULL, NULL},
		{"a b:1", NULL, NULL},
		{"a/b:1", NULL, NULL},
		{"", NULL, NULL},
		{NULL, NULL, NULL},
	};
	char longest[HOSTPORT_HOST_MAX + 4];
	struct hostport a;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		memset(&a, 0x55, sizeof(a));
		if (!rows[i].host) {
			assert_int_equal(hostport_parse(rows[i].text, &a),
					 -EINVAL);
			assert_int_equal(a.host[0], 0x55); /* untouched */
			continue;
		}
		assert_int_equal(hostport_parse(rows[i].text, &a), 0);
		assert_string_equal(a.host, rows[i].host);
		assert_string_equal(a.port, rows[i].port);
	}
	memset(longest, 'a', sizeof(longest));
	strcpy(longest + HOSTPORT_HOST_MAX, ":1");
	assert_int_equal(hostport_parse(longest, &a), 0);
	strcpy(longest + HOSTPORT_HOST_MAX, "a:1");
	assert_int_equal(hostport_parse(longest, &a), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parse),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
