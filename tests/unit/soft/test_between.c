/* SPDX-License-Identifier: MIT */
/*
 * test_between.c - a QP fails between modify_qp()'s look at its state and the
 * change. What is asked for is judged by the state that it fails into: RTS is
 * the way out of SQE, and none out of ERR. The moment is forced: this program is
 * linked with a wrapper round the function by which modify_qp() takes the QP.
 */
#include "rig.h"

#include "dev/soft/qp/qp.h"

static struct rig_end a, b;

/* Of the thread that calls modify_qp(): the control thread has none. */
static _Thread_local struct {
	struct soft_lock *lock;
	int holds; /* the one before which it fails; 0: none */
} trap;

void __real_soft_lock_revoke(struct soft_lock *l);
void __wrap_soft_lock_revoke(struct soft_lock *l);

static int write_8(uint64_t id, uint32_t lkey)
{
	a.lkey = lkey;
	return rig_post(&a, IBV_WR_RDMA_WRITE, id, a.buf, 8, (uintptr_t)b.buf,
			b.mem->mr->rkey, IBV_SEND_SIGNALED);
}

void __wrap_soft_lock_revoke(struct soft_lock *l)
{
	if (l == trap.lock && trap.holds && --trap.holds == 0)
		assert_int_equal(write_8(1, 0), 0);
	__real_soft_lock_revoke(l);
}

/* To RTS while the QP fails; what modify_qp() answers. */
static int to_rts_meanwhile(enum ibv_qp_type type)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};
	struct rig_opts o = {.type = type};
	int rc;

	rig_pair(&a, &b, &o);
	trap.lock = &soft_qp_of(a.qp)->lock;
	trap.holds = 2; /* the first is for the look */
	rc = a.dev->ops->modify_qp(a.dev, a.qp, &attr, IBV_QP_STATE);
	assert_int_equal(trap.holds, 0);
	rig_expect(&a, 1, IBV_WC_LOC_PROT_ERR);
	return rc;
}

static void test_sqe(void **state)
{
	(void)state;
	assert_int_equal(to_rts_meanwhile(IBV_QPT_UC), 0);
	assert_int_equal(a.qp->state, IBV_QPS_RTS);
	assert_int_equal(write_8(2, a.mem->mr->lkey), 0);
	rig_expect(&a, 2, IBV_WC_SUCCESS);
	rig_unpair(&a, &b);
}

static void test_err(void **state)
{
	(void)state;
	assert_int_equal(to_rts_meanwhile(IBV_QPT_RC), -EINVAL);
	assert_int_equal(a.qp->state, IBV_QPS_ERR);
	rig_unpair(&a, &b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sqe),
		cmocka_unit_test(test_err),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
