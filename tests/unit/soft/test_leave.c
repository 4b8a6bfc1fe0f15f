/* SPDX-License-Identifier: MIT */
/* What a QP's end costs its neighbours: a membarrier stops every core that runs
 * one of them, so there is one, by the thread that sees the peer leave,
 * and none where that was seen before. */
#include "rig.h"

#include "dev/soft/qp/qp.h"

#include <dlfcn.h>
#include <linux/membarrier.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_uint everywhere; /* in all processes that registered */
static atomic_uint here;       /* in this one */

long syscall(long nr, ...)
{
	static long (*next)(long nr, ...);
	long a[6];
	va_list ap;

	va_start(ap, nr);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (!next)
		*(void **)&next = dlsym(RTLD_NEXT, "syscall");
	if (nr == SYS_membarrier && a[0] == MEMBARRIER_CMD_GLOBAL_EXPEDITED)
		atomic_fetch_add(&everywhere, 1);
	if (nr == SYS_membarrier && a[0] == MEMBARRIER_CMD_PRIVATE_EXPEDITED)
		atomic_fetch_add(&here, 1);
	return next(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static unsigned counted(void)
{
	return atomic_exchange(&everywhere, 0) + atomic_exchange(&here, 0);
}

/* Another pair of QPs of a and b, connected. */
struct pair {
	struct rig_end *a, *b;
	struct ibv_qp *at_a, *at_b;
};

static void pair_new(struct pair *p, struct rig_end *a, struct rig_end *b)
{
	struct dev_qp_addr to_a, to_b;

	*p = (struct pair){a, b, rig_qp(a), rig_qp(b)};
	rig_qp_addr(a, p->at_a, &to_a);
	rig_qp_addr(b, p->at_b, &to_b);
	rig_connect_qp(a, p->at_a, &to_b);
	rig_connect_qp(b, p->at_b, &to_a);
}

static void destroy(struct rig_end *e, struct ibv_qp *qp)
{
	assert_int_equal(e->dev->ops->destroy_qp(e->dev, qp), 0);
}

/* Everything that a connection does at its end, but for completions. */
static unsigned end_costs(struct rig_end *e, struct ibv_qp *qp)
{
	counted();
	assert_int_equal(dev_qp_err(e->dev, qp), 0);
	assert_int_equal(dev_qp_err(e->dev, qp), 0);
	assert_int_equal(e->dev->ops->quiesce_qp(e->dev, qp), 0);
	destroy(e, qp);
	return counted();
}

static void test_by_way_of_err(void **state)
{
	struct rig_opts o = {.flags = DEV_QP_SINGLE_THREADED};
	struct rig_end a, b;
	struct pair p;

	rig_pair(&a, &b, &o);
	counted();
	pair_new(&p, &a, &b);
	assert_int_equal(counted(), 0);
	assert_int_equal(end_costs(&a, p.at_a), 1);
	destroy(&b, p.at_b);
	rig_unpair(&a, &b);
}

/* Threads may be inside its CQ: they are told, in this process. */
static void test_of_many_threads(void **state)
{
	struct rig_end a, b;
	struct pair p;

	rig_pair(&a, &b, NULL);
	pair_new(&p, &a, &b);
	counted();
	assert_int_equal(dev_qp_err(a.dev, p.at_a), 0);
	assert_int_equal(atomic_exchange(&everywhere, 0), 1);
	counted();
	destroy(&a, p.at_a);
	assert_int_equal(atomic_exchange(&everywhere, 0), 0);
	destroy(&b, p.at_b);
	rig_unpair(&a, &b);
}

/* Nobody has looked yet whether the peer is inside. */
static void test_at_once(void **state)
{
	struct rig_opts o = {.flags = DEV_QP_SINGLE_THREADED};
	struct rig_end a, b;
	struct pair p;

	rig_pair(&a, &b, &o);
	pair_new(&p, &a, &b);
	counted();
	destroy(&a, p.at_a);
	assert_int_equal(atomic_exchange(&everywhere, 0), 1);
	destroy(&b, p.at_b);
	rig_unpair(&a, &b);
}

/* A peer that stands inside is waited for, by the first and by each after it. */
static void test_while_inside(void **state)
{
	struct rig_opts o = {.flags = DEV_QP_SINGLE_THREADED};
	struct rig_end a, b;
	struct soft_qp *at_b;
	struct pair p;

	rig_pair(&a, &b, &o);
	pair_new(&p, &a, &b);
	at_b = soft_qp_of(p.at_b);
	soft_hazard_on(at_b);
	assert_int_equal(dev_qp_err(a.dev, p.at_a), -EBUSY);
	assert_int_equal(dev_qp_err(a.dev, p.at_a), -EBUSY);
	assert_int_equal(a.dev->ops->quiesce_qp(a.dev, p.at_a), -EBUSY);
	soft_hazard_off(at_b);
	assert_int_equal(dev_qp_err(a.dev, p.at_a), 0);
	counted();
	destroy(&a, p.at_a);
	assert_int_equal(counted(), 0);
	destroy(&b, p.at_b);
	rig_unpair(&a, &b);
}

/* One that was left is not entered any more, and what its peer posts fails. */
static void test_the_gate_is_shut(void **state)
{
	struct rig_opts o = {.flags = DEV_QP_SINGLE_THREADED};
	struct rig_end a, b;
	struct ibv_qp *first;
	struct pair p;

	rig_pair(&a, &b, &o);
	pair_new(&p, &a, &b);
	assert_int_equal(end_costs(&a, p.at_a), 1);
	memset(a.buf, 0, 8);
	memset(b.buf, 1, 8);
	first = b.qp;
	b.qp = p.at_b;
	assert_int_equal(rig_post(&b, IBV_WR_RDMA_WRITE, 7, b.buf, 8,
				  (uintptr_t)a.buf, a.mem->mr->rkey,
				  IBV_SEND_SIGNALED),
			 0);
	b.qp = first;
	rig_expect(&b, 7, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(a.buf[0], 0);
	destroy(&b, p.at_b);
	rig_unpair(&a, &b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_by_way_of_err),
		cmocka_unit_test(test_of_many_threads),
		cmocka_unit_test(test_at_once),
		cmocka_unit_test(test_while_inside),
		cmocka_unit_test(test_the_gate_is_shut),
	};

	unsetenv("SKEIN_SOFT_HARSH"); /* it has nothing single-threaded */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
