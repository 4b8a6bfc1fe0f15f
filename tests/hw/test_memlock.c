/* SPDX-License-Identifier: MIT */
/*
 * test_memlock.c - a limit on locked memory is named when it is what stops a
 * registration. Only where memory is pinned: skipped on soft.
 */
#include "rc_pair.h"

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static char last_log[512];

static void note_log(void *arg, enum env_log_level level, const char *msg)
{
	snprintf(last_log, sizeof(last_log), "%s", msg);
}

/* CAP_IPC_LOCK lifts the limit: without it root is like anybody. */
static void drop_ipc_lock(void)
{
	struct __user_cap_header_struct h = {
		.version = _LINUX_CAPABILITY_VERSION_3,
	};
	struct __user_cap_data_struct d[2];

	assert_int_equal(syscall(SYS_capget, &h, d), 0);
	d[0].effective &= ~(1u << CAP_IPC_LOCK);
	assert_int_equal(syscall(SYS_capset, &h, d), 0);
}

static void test_limit_named(void **state)
{
	struct rlimit lim = {.rlim_cur = 64 * 1024, .rlim_max = 64 * 1024};
	struct mem_region *r = NULL;
	struct ibv_pd *pd;

	if (!strcmp(dev_a->ops->kind, "soft"))
		skip();
	assert_int_equal(dev_a->ops->alloc_pd(dev_a, &pd), 0);
	assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &lim), 0);
	drop_ipc_lock();
	dev_a->env->log = note_log;
	assert_int_equal(mem_region_new(dev_a, pd, "big", 1 << 20,
					IBV_ACCESS_LOCAL_WRITE, 1, &r),
			 -ENOMEM);
	assert_null(r);
	print_message("%s\n", last_log);
	assert_non_null(strstr(last_log, "RLIMIT_MEMLOCK is 64 KiB"));
	assert_non_null(strstr(last_log, dev_a->name));
	/* What fits is still taken. */
	assert_int_equal(mem_region_new(dev_a, pd, "small", 4096,
					IBV_ACCESS_LOCAL_WRITE, 1, &r),
			 0);
	mem_region_free(r);
	assert_int_equal(dev_a->ops->dealloc_pd(dev_a, pd), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_limit_named),
	};

	return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
