/* SPDX-License-Identifier: MIT */
/*
 * The GID table follows the addresses of the network namespace: one of its
 * own, where addresses may be made and loopback taken down.
 */
#include "rig.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static int req(unsigned long what, struct ifreq *r)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0), err;

	err = ioctl(fd, what, r) ? errno : 0;
	close(fd);
	return err;
}

static int lo_up(bool up)
{
	struct ifreq r = {.ifr_name = "lo"};

	r.ifr_flags = up ? IFF_UP | IFF_RUNNING | IFF_LOOPBACK : IFF_LOOPBACK;
	return req(SIOCSIFFLAGS, &r);
}

static int addr_add(const char *name, const char *addr)
{
	struct ifreq r = {0};
	struct sockaddr_in *in = (struct sockaddr_in *)(void *)&r.ifr_addr;

	snprintf(r.ifr_name, sizeof(r.ifr_name), "%s", name);
	in->sin_family = AF_INET;
	inet_pton(AF_INET, addr, &in->sin_addr);
	return req(SIOCSIFADDR, &r);
}

static bool has_gid(struct rig_end *e, const char *addr, int *index)
{
	unsigned char want[16] = {[10] = 0xff, [11] = 0xff};
	struct ibv_port_attr port;
	struct dev_gid g;
	int i;

	inet_pton(AF_INET, addr, want + 12);
	assert_int_equal(e->dev->ops->query_port(e->dev, 1, &port), 0);
	for (i = 0; i < port.gid_tbl_len; i++) {
		if (e->dev->ops->query_gid(e->dev, 1, i, &g))
			continue;
		assert_int_equal(g.index, i);
		if (!memcmp(g.gid.raw, want, 16)) {
			*index = i;
			return true;
		}
	}
	return false;
}

static enum ibv_port_state port_state(struct rig_end *e)
{
	struct ibv_port_attr port;

	assert_int_equal(e->dev->ops->query_port(e->dev, 1, &port), 0);
	return port.state;
}

static void inside(void)
{
	struct rig_end a, b;
	struct rig_addr aa, ba;
	int first, again;

	rig_open(&a, NULL);
	assert_true(has_gid(&a, "127.0.0.1", &first));
	assert_false(has_gid(&a, "127.0.0.9", &again));
	assert_int_equal(addr_add("lo:9", "127.0.0.9"), 0);
	rig_async(&a, IBV_EVENT_GID_CHANGE);
	assert_true(has_gid(&a, "127.0.0.9", &again));
	assert_true(has_gid(&a, "127.0.0.1", &again));
	assert_int_equal(again, first);
	assert_int_equal(lo_up(false), 0);
	rig_async(&a, IBV_EVENT_GID_CHANGE);
	rig_async(&a, IBV_EVENT_PORT_ERR);
	assert_int_equal(port_state(&a), IBV_PORT_DOWN);
	assert_int_equal(lo_up(true), 0);
	rig_async(&a, IBV_EVENT_GID_CHANGE);
	rig_async(&a, IBV_EVENT_PORT_ACTIVE);
	assert_int_equal(port_state(&a), IBV_PORT_ACTIVE);
	/* and it works */
	rig_open(&b, NULL);
	rig_addr(&a, &aa);
	rig_addr(&b, &ba);
	rig_connect(&a, &ba);
	rig_connect(&b, &aa);
	assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE, 1, a.buf, 8, ba.buf,
				  ba.rkey, IBV_SEND_SIGNALED),
			 0);
	rig_expect(&a, 1, IBV_WC_SUCCESS);
	rig_unpair(&a, &b);
}

static void test_addresses(void **state)
{
	int st;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		if (unshare(CLONE_NEWNET) &&
		    unshare(CLONE_NEWUSER | CLONE_NEWNET))
			_exit(77);
		if (lo_up(true))
			_exit(77);
		inside();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &st, 0), pid);
	assert_true(WIFEXITED(st));
	if (WEXITSTATUS(st) == 77) {
		print_message("skipped: no network namespace of one's own may "
			      "be made here\n");
		skip();
	}
	assert_int_equal(WEXITSTATUS(st), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_addresses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
