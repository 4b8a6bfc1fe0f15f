/* SPDX-License-Identifier: MIT */
/*
 * test_harsh_lossy.c - harsh mode loses UC messages and datagrams; what it must
 * not do meanwhile: hide the requester's own mistakes, or complete a receive
 * whose message has not come whole.
 */
#include "ud_rig.h"

#include <stdio.h>

/* Of 128 UC messages, and of 32 datagrams, one is lost. */
#define UC_MANY 1000
#define UD_MANY 300
#define LEN 2048u

static struct rig_end a, b;

static void seed(unsigned n)
{
	char text[8];

	snprintf(text, sizeof(text), "%u", n);
	setenv("SKEIN_SOFT_HARSH", text, 1);
}

static void to_rts(struct rig_end *e, struct ibv_qp *qp)
{
	struct ibv_qp_attr at = {.qp_state = IBV_QPS_RTS};

	assert_int_equal(e->dev->ops->modify_qp(e->dev, qp, &at, IBV_QP_STATE),
			 0);
}

/* Also one that would have been lost fails by its own lkey, and its QP is in
 * SQE. */
static void test_uc_own_mistake(void **state)
{
	const struct rig_opts o = {.type = IBV_QPT_UC};
	int i;

	seed(1);
	rig_pair(&a, &b, &o);
	a.lkey ^= 0x00ffff00;
	for (i = 0; i < UC_MANY; i++) {
		rig_post(&a, i % 2 ? IBV_WR_RDMA_WRITE : IBV_WR_SEND, 1, a.buf,
			 64, (uintptr_t)b.buf, b.mem->mr->rkey,
			 IBV_SEND_SIGNALED);
		rig_expect(&a, 1, IBV_WC_LOC_PROT_ERR);
		to_rts(&a, a.qp);
	}
	rig_unpair(&a, &b);
}

static void test_ud_own_mistake(void **state)
{
	struct ud_end x, y;
	int i;

	seed(1);
	ud_open(&x, NULL);
	ud_open(&y, NULL);
	x.r.lkey ^= 0x00ffff00;
	for (i = 0; i < UD_MANY; i++) {
		ud_send(&x, &y, 1, x.r.buf, 64, 0);
		rig_expect(&x.r, 1, IBV_WC_LOC_PROT_ERR);
		to_rts(&x.r, x.r.qp);
	}
	ud_close(&x);
	ud_close(&y);
}

/* One WRITE_WITH_IMM to a region that is deregistered after so many looks at
 * the CQ, each of which takes a step that is due. True: its receive has
 * completed. */
static bool write_under(struct ibv_mr *mr, int looks)
{
	struct ibv_wc wc;
	int done = 0;

	assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE_WITH_IMM, 2, a.buf, LEN,
				  (uintptr_t)b.buf, mr->rkey,
				  IBV_SEND_SIGNALED),
			 0);
	while (looks-- && !done)
		done = ibv_poll_cq(a.cq, 1, &wc);
	assert_int_equal(b.dev->ops->dereg_mr(b.dev, mr), 0);
	if (!done)
		rig_wait(&a, &wc);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	if (!ibv_poll_cq(b.cq, 1, &wc))
		return false;
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	return true;
}

/* Its bytes are there, or it has not come. */
static void test_uc_region_goes(void **state)
{
	const struct rig_opts o = {.type = IBV_QPT_UC};
	struct ibv_mr *mr;
	int i, came = 0;

	seed(1);
	rig_pair(&a, &b, &o);
	rig_recv(&b, 1, b.buf + LEN, 8);
	for (i = 0; i < UC_MANY; i++) {
		memset(a.buf, 1 + i % 100, LEN);
		memset(b.buf, 0, LEN);
		assert_int_equal(b.dev->ops->reg_mr(b.dev, b.pd, b.buf, LEN,
						    RIG_ACCESS, b.mem->fd, 0,
						    &mr),
				 0);
		if (!write_under(mr, i * 37 % 1500))
			continue;
		assert_memory_equal(a.buf, b.buf, LEN);
		rig_recv(&b, 1, b.buf + LEN, 8);
		came++;
	}
	print_message("  %d of %d came\n", came, UC_MANY);
	assert_true(came > 0 && came < UC_MANY);
	rig_unpair(&a, &b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_uc_own_mistake),
		cmocka_unit_test(test_ud_own_mistake),
		cmocka_unit_test(test_uc_region_goes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
