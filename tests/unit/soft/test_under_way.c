/* SPDX-License-Identifier: MIT */
/*
 * Descriptors under way: the kernel sends none for a user while more than
 * RLIMIT_NOFILE of them wait in the user's sockets, read by nobody. A peer that is
 * asked about its QP says so, and is asked again.
 */
#include "ud_rig.h"

#include <linux/capability.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define IN_ONE 250
#define LIMIT 300
#define TRIES 30

static int waiting[2];
static struct rlimit was;
static atomic_uint told;

static void on_log(void *arg, enum env_log_level level, const char *msg)
{
	if (strstr(msg, "too many descriptors"))
		atomic_fetch_add(&told, 1);
}

static bool is_told(void *arg)
{
	return atomic_load(&told) > 0;
}

/* Who has these rights sends as many as it likes. */
static int drop_rights(void)
{
	struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct set[2];

	if (syscall(SYS_capget, &head, set))
		return -1;
	set[0].effective &= ~(1u << CAP_SYS_RESOURCE | 1u << CAP_SYS_ADMIN);
	return (int)syscall(SYS_capset, &head, set);
}

static void fill(void)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(IN_ONE * sizeof(int))];
	} c = {0};
	struct iovec v = {"", 1};
	struct msghdr m = {.msg_iov = &v,
			   .msg_iovlen = 1,
			   .msg_control = &c,
			   .msg_controllen = sizeof(c)};
	struct rlimit now;
	unsigned i;

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, waiting), 0);
	c.head.cmsg_level = SOL_SOCKET;
	c.head.cmsg_type = SCM_RIGHTS;
	c.head.cmsg_len = CMSG_LEN(IN_ONE * sizeof(int));
	memset(CMSG_DATA(&c.head), 0, IN_ONE * sizeof(int)); /* stdin */
	for (i = 0; i <= LIMIT / IN_ONE; i++)
		assert_int_equal(sendmsg(waiting[0], &m, 0), 1);
	getrlimit(RLIMIT_NOFILE, &was);
	now = was;
	now.rlim_cur = LIMIT;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
	atomic_store(&told, 0);
}

static void drain(void)
{
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	close(waiting[0]);
	close(waiting[1]);
}

/* A QP that is being connected is told; its owner tries again. Not each try is a
 * line. */
static void test_connect(void **state)
{
	static const struct dev_qp_opts opts;
	struct rig_opts o = {.log = on_log};
	struct rig_addr at_a, at_b;
	struct rig_end a, b;
	int i;

	rig_open(&a, &o);
	rig_open(&b, &o);
	rig_addr(&a, &at_a);
	rig_addr(&b, &at_b);
	fill();
	for (i = 0; i < TRIES; i++)
		assert_int_equal(dev_qp_rtr(a.dev, a.qp, &at_b.qp, &opts),
				 -ETOOMANYREFS);
	assert_true(is_told(NULL));
	assert_true(atomic_load(&told) < TRIES / 3);
	drain();
	rig_connect(&a, &at_b);
	rig_connect(&b, &at_a);
	strcpy(a.buf, "reached");
	assert_int_equal(rig_recv(&b, 1, b.buf, 8), 0);
	assert_int_equal(rig_post(&a, IBV_WR_SEND, 2, a.buf, 8, 0, 0,
				  IBV_SEND_SIGNALED),
			 0);
	rig_expect(&a, 2, IBV_WC_SUCCESS);
	rig_expect(&b, 1, IBV_WC_SUCCESS);
	assert_string_equal(b.buf, "reached");
	rig_close(&a);
	rig_close(&b);
}

/* What a UD QP sends is kept and arrives: nobody is taken for gone. */
static void test_datagram(void **state)
{
	struct rig_opts o = {.log = on_log};
	struct ud_end a, b;

	ud_open(&a, &o);
	ud_open(&b, &o);
	ud_recv(&b, 1, 0, 100);
	fill();
	a.r.buf[0] = 77;
	ud_send(&a, &b, 2, a.r.buf, 8, 0);
	rig_until(is_told, NULL);
	drain();
	rig_expect(&a.r, 2, IBV_WC_SUCCESS);
	rig_expect(&b.r, 1, IBV_WC_SUCCESS);
	assert_int_equal(b.r.buf[40], 77);
	ud_close(&a);
	ud_close(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_connect),
		cmocka_unit_test(test_datagram),
	};

	if (drop_rights()) {
		printf("cannot drop CAP_SYS_RESOURCE and CAP_SYS_ADMIN\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
