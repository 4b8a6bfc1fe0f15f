/* SPDX-License-Identifier: MIT */
/*
 * test_allow.c - lists of hosts that a receiver has to do with: networks,
 * addresses, names, ranges; and what reads as none.
 */
#include "cp/allow.h"

#include "unit/cm.h"

#include <errno.h>
#include <string.h>

static struct cp_allow allow;

static void list(const char *text)
{
	struct cp_err err = {""};

	cp_allow_fini(&allow);
	if (cp_allow_add(&allow, text, &err))
		fail_msg("%s: %s", text, err.text);
}

static void yes(const char *addr)
{
	if (!cp_allow_has(&allow, addr))
		fail_msg("%s is not allowed", addr);
}

static void no(const char *addr)
{
	if (cp_allow_has(&allow, addr))
		fail_msg("%s is allowed", addr);
}

static void test_networks(void **state)
{
	list("10.1.0.0/16,192.0.2.128/25,2001:db8::/33");
	yes("10.1.0.0:1");
	yes("10.1.255.255:7450");
	no("10.2.0.0:7450");
	no("10.0.255.255:7450");
	yes("192.0.2.128:1 (pid 77)");
	no("192.0.2.127:1 (pid 77)");
	yes("[2001:db8:7fff::1]:7450");
	no("[2001:db8:8000::1]:7450");
	/* the same address in IPv6's clothes */
	yes("[::ffff:10.1.2.3]:7450");
	no("[::ffff:10.2.2.3]:7450");
	no("[::10.1.2.3]:7450");
	list("0.0.0.0/0");
	yes("8.8.8.8:1");
	no("[2001:db8::1]:1");
	list("10.0.0.1/32");
	yes("10.0.0.1:9");
	no("10.0.0.0:9");
}

static void test_hosts(void **state)
{
	list("Node[08-10],10.0.0.7,[::1],2001:db8::5");
	yes("node08:1");
	yes("NODE10:1");
	no("node11:1");
	no("node8:1");
	no("node08.example:1");
	yes("10.0.0.7:1");
	no("10.0.0.70:1");
	yes("[::1]:1");
	yes("[2001:db8::5]:1");
	no("");
	no(":7450");
	/* a name is not looked up for a network */
	list("127.0.0.0/8");
	no("localhost:1");
	/* a name of the list stands for its addresses, too */
	list("localhost");
	yes("localhost:1");
	yes("127.0.0.1:1");
	no("127.0.0.2:1");
}

static void test_loopback(void **state)
{
	cp_allow_fini(&allow);
	assert_int_equal(cp_allow_loopback(&allow), 0);
	yes("127.0.0.1:1");
	yes("127.255.255.255:1");
	no("128.0.0.0:1");
	no("126.255.255.255:1");
	yes("[::1]:1");
	no("[::2]:1");
	yes("localhost:1");
	no("localhost.evil.example:1");
	no("0.0.0.0:1");
	no("10.0.0.1:1");
}

static void test_nonsense(void **state)
{
	static const char *const wrong[] = {
		"",	      "a,",	    ",a",      "10.0.0.0/33",
		"10.0.0.0/",  "10.0.0.0/x", "node1/8", "::/129",
		"node1:7450", "node1:/dir", "node[1-", "10.0.0.0/-1",
		"/8",
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct cp_err err = {""};

		cp_allow_fini(&allow);
		if (!cp_allow_add(&allow, wrong[i], &err))
			fail_msg("\"%s\" was taken", wrong[i]);
		assert_true(err.text[0]);
	}
	cp_allow_fini(&allow);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_networks),
		cmocka_unit_test(test_hosts),
		cmocka_unit_test(test_loopback),
		cmocka_unit_test(test_nonsense),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
