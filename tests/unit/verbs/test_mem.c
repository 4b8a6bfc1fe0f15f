/* SPDX-License-Identifier: MIT */
/*
 * test_mem.c - regions on a device made up here: what is registered, what is
 * given back when something fails, and in which order it all ends.
 */
#include "dev/mem.h"
#include "env/env.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static struct skein_env *env;
static struct {
	void *addr;
	size_t len;
	int access, fd;
	int live; /* MRs */
} reg;
static int reg_rc, dereg_rc, logged;
static struct ibv_mr mr = {.lkey = 1, .rkey = 2};

static int fake_reg(struct dev *dev, struct ibv_pd *pd, void *addr, size_t len,
		    int access, int fd, uint64_t off, struct ibv_mr **out)
{
	reg.addr = addr;
	reg.len = len;
	reg.access = access;
	reg.fd = fd;
	assert_int_equal(off, 0);
	if (reg_rc)
		return reg_rc;
	reg.live++;
	*out = &mr;
	return 0;
}

static int fake_dereg(struct dev *dev, struct ibv_mr *m)
{
	struct stat st;

	assert_ptr_equal(m, &mr);
	/* Still mapped and open: the device may be writing until now. */
	*(volatile char *)reg.addr = 1;
	if (reg.fd >= 0)
		assert_int_equal(fstat(reg.fd, &st), 0);
	if (!dereg_rc)
		reg.live--;
	return dereg_rc;
}

static const struct dev_ops ops = {.reg_mr = fake_reg, .dereg_mr = fake_dereg};
static struct dev dev = {.ops = &ops, .name = "fake0"};

static void note_log(void *arg, enum env_log_level level, const char *msg)
{
	logged++;
}

static int count_fds(void)
{
	int fd, n = 0;

	for (fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static int setup(void **state)
{
	assert_int_equal(env_real_new(&env), 0);
	env->log = note_log;
	dev.env = env;
	reg_rc = dereg_rc = logged = 0;
	memset(&reg, 0, sizeof(reg));
	return 0;
}

static int teardown(void **state)
{
	env_real_free(env);
	return 0;
}

static void test_new(void **state)
{
	struct mem_region *r;
	int fds = count_fds();
	size_t i;

	assert_int_equal(mem_region_new(&dev, NULL, "t", 5000,
					IBV_ACCESS_REMOTE_WRITE, 17, &r),
			 0);
	assert_int_equal(r->len, 5000);
	assert_int_equal(reg.len, 5000);
	assert_ptr_equal(reg.addr, r->addr);
	assert_int_equal(reg.access, IBV_ACCESS_REMOTE_WRITE);
	assert_true(r->fd >= 0);
	assert_int_equal(reg.fd, r->fd);
	assert_int_equal(r->id, 17);
	assert_ptr_equal(r->mr, &mr);
	for (i = 0; i < r->len; i++)
		assert_int_equal(((char *)r->addr)[i], 0);
	mem_region_free(r);
	assert_int_equal(reg.live, 0);
	assert_int_equal(count_fds(), fds);
}

static void test_wrap(void **state)
{
	struct mem_region *r = NULL;
	char buf[64] = "";

	assert_int_equal(
		mem_region_wrap(&dev, NULL, buf, sizeof(buf), 0, 3, &r), 0);
	assert_int_equal(reg.fd, -1);
	assert_ptr_equal(r->addr, buf);
	mem_region_free(r);
	assert_int_equal(reg.live, 0);
	assert_int_equal(buf[0], 1); /* the memory is the caller's still */
}

static void test_refused(void **state)
{
	struct mem_region *r = NULL;
	int fds = count_fds();
	char buf[8];

	assert_int_equal(mem_region_new(&dev, NULL, "t", 0, 0, 1, &r), -EINVAL);
	assert_int_equal(mem_region_wrap(&dev, NULL, buf, 0, 0, 1, &r),
			 -EINVAL);
	assert_int_equal(mem_region_wrap(&dev, NULL, NULL, 8, 0, 1, &r),
			 -EINVAL);
	reg_rc = -ENOMEM;
	assert_int_equal(mem_region_new(&dev, NULL, "t", 4096, 0, 1, &r),
			 -ENOMEM);
	assert_int_equal(mem_region_wrap(&dev, NULL, buf, 8, 0, 1, &r),
			 -ENOMEM);
	assert_null(r);
	assert_int_equal(count_fds(), fds);
	mem_region_free(NULL);
}

static bool nth_fails(void *arg)
{
	return (*(int *)arg)-- == 0;
}

static void test_each_alloc_fails(void **state)
{
	struct mem_region *r = NULL;
	int fds = count_fds();
	int n, left, rc = -ENOMEM;

	env->alloc_fails = nth_fails;
	env->alloc_arg = &left;
	for (n = 0; rc; n++) {
		left = n;
		rc = mem_region_new(&dev, NULL, "t", 4096, 0, 1, &r);
		if (!rc)
			break;
		assert_int_equal(rc, -ENOMEM);
		assert_null(r);
		assert_int_equal(count_fds(), fds);
		assert_int_equal(reg.live, 0);
	}
	assert_true(n > 0);
	mem_region_free(r);
}

/* When the device will not let go, the memory stays: a leak is better than a
 * NIC that writes into someone else's pages. */
static void test_stuck_mr(void **state)
{
	struct mem_region *r;
	void *addr;

	assert_int_equal(mem_region_new(&dev, NULL, "t", 4096, 0, 1, &r), 0);
	addr = r->addr;
	dereg_rc = -EBUSY;
	mem_region_free(r);
	assert_int_equal(logged, 1);
	*(volatile char *)addr = 2; /* still mapped */
	dereg_rc = 0;
	mem_region_free(r);
	assert_int_equal(logged, 1);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_new),	  T(test_wrap),
		T(test_refused),  T(test_each_alloc_fails),
		T(test_stuck_mr),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
