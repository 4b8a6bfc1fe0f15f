/* SPDX-License-Identifier: MIT */
/*
 * test_gid.c - a port's addresses change under an open device: the event comes,
 * and looking again tells whether the chosen GID is still the same. gid.sh
 * makes the device: rxe9 on vg, 10.98.0.1.
 */
#include "dev/dev.h"
#include "env/env.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct dev *dev;

static void run(const char *command)
{
	print_message("%s\n", command);
	assert_int_equal(system(command), 0);
}

/* Events until one after which looking again finds these changes. Every event
 * of addresses is one of GID_CHANGE. */
static void expect_changes(unsigned want)
{
	struct pollfd pfd = {.fd = dev->verbs->async_fd, .events = POLLIN};
	struct ibv_async_event ev;
	unsigned found, all = 0;
	bool seen = false;

	do {
		assert_int_equal(poll(&pfd, 1, 10000), 1);
		assert_int_equal(dev->ops->get_async_event(dev, &ev), 0);
		seen |= ev.event_type == IBV_EVENT_GID_CHANGE;
		dev->ops->ack_async_event(dev, &ev);
		assert_int_equal(dev->ops->refresh(dev, &found), 0);
		all |= found;
	} while (!seen || (all & want) != want);
}

static void address_is(uint8_t net, uint8_t host)
{
	struct dev_path path;

	dev_path_now(dev, &path);
	assert_true(path.gid.index >= 0);
	assert_int_equal(path.gid.gid.raw[13], net);
	assert_int_equal(path.gid.gid.raw[15], host);
	assert_true(path.gid.type == DEV_GID_ROCE_V2);
	assert_string_equal(path.gid.netdev, "vg");
}

static void test_gid(void **state)
{
	struct dev_qp_addr peer = {.qpn = 1, .mtu = IBV_MTU_1024};
	struct ibv_ah_attr ah;
	struct skein_env *env;
	struct dev_path is;
	char err[256] = "";
	unsigned changes;

	assert_int_equal(env_real_new(&env), 0);
	if (dev_open(env, getenv("SKEIN_TEST_DEVICE"), -1, err, sizeof(err),
		     &dev))
		fail_msg("%s", err);
	address_is(98, 1);

	run("ip addr add 10.97.0.1/24 dev vg");
	expect_changes(0);
	address_is(98, 1); /* one more, and the old one stays */

	run("ip addr del 10.98.0.1/24 dev vg");
	expect_changes(DEV_CHANGE_ADDR);
	address_is(97, 1);

	run("ip addr add 10.98.0.1/24 dev vg");
	expect_changes(0);
	address_is(97, 1);

	/* Gone and another in its place, before anybody has looked. */
	run("ip addr del 10.97.0.1/24 dev vg && "
	    "ip addr add 10.97.0.2/24 dev vg");
	expect_changes(DEV_CHANGE_ADDR);

	run("ip link set vg down");
	do {
		assert_int_equal(dev->ops->refresh(dev, &changes), 0);
		dev_path_now(dev, &is);
	} while (is.port.state == IBV_PORT_ACTIVE);
	run("ip link set vg up");
	do {
		assert_int_equal(dev->ops->refresh(dev, &changes), 0);
		dev_path_now(dev, &is);
	} while (is.port.state != IBV_PORT_ACTIVE);

	/* No address at all: nothing can be connected, and that is said. */
	run("ip -4 addr flush dev vg && ip -6 addr flush dev vg");
	expect_changes(DEV_CHANGE_ADDR);
	dev_path_now(dev, &is);
	print_message("GID %d: %s\n", is.gid.index, is.gid.why);
	if (is.gid.index < 0)
		assert_int_equal(dev_ah_attr(dev, &peer, NULL, &ah),
				 -EADDRNOTAVAIL);
	dev_close(dev);
	env_real_free(env);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_gid),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
