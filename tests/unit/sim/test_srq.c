/* SPDX-License-Identifier: MIT */
/*
 * SRQs on the simulated device: RC, UC and UD QPs take from one; its limit; the
 * last event of a QP; RNR; other sizes.
 */
#include "rig_sim.h"

#define QKEY 5u

static struct ibv_srq *srq_new(struct end *e, uint32_t max_wr)
{
	struct ibv_srq_init_attr a = {.attr = {.max_wr = max_wr, .max_sge = 1}};
	struct ibv_srq *srq;

	assert_int_equal(e->dev->ops->create_srq(e->dev, e->pd, &a, &srq), 0);
	return srq;
}

static void send_one(struct rig *r, struct ibv_qp *qp, const struct ibv_qp *to,
		     struct ibv_ah *ah)
{
	struct ibv_sge sge = rig_sge(&r->end[0], 0, 8);
	struct ibv_send_wr wr = {.wr_id = 1,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;

	if (ah) {
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = to->qp_num;
		wr.wr.ud.remote_qkey = QKEY;
	}
	assert_int_equal(ibv_post_send(qp, &wr, &bad), 0);
	rig_ok(r, &r->end[0], 1);
}

static void limit(struct end *e, struct ibv_srq *srq, uint32_t n, int want)
{
	struct ibv_srq_attr a = {.srq_limit = n};

	assert_int_equal(
		e->dev->ops->modify_srq(e->dev, srq, &a, IBV_SRQ_LIMIT), want);
}

static void drive_shared(struct rig *r)
{
	static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_UC,
						 IBV_QPT_UD};
	struct end *a = &r->end[0], *b = &r->end[1];
	struct ibv_srq *srq = srq_new(b, 8);
	struct ibv_ah *ah = rig_ah(a, b);
	struct ibv_qp *qa[3], *qb[3];
	struct ibv_recv_wr wr = {.num_sge = 2}, *bad;
	struct ibv_wc wc;
	int i;

	for (i = 0; i < 3; i++) {
		qa[i] = rig_qp(a, types[i], NULL);
		qb[i] = rig_qp(b, types[i], srq);
		if (types[i] == IBV_QPT_UD) {
			dev_qp_ud(a->dev, qa[i], QKEY, 0);
			dev_qp_ud(b->dev, qb[i], QKEY, 0);
		} else {
			rig_connect(a, qa[i], b, qb[i], NULL);
		}
	}
	assert_int_equal(ibv_post_srq_recv(srq, &wr, &bad), EINVAL);
	wr.num_sge = 0;
	assert_int_equal(ibv_post_recv(qb[0], &wr, &bad), EINVAL);
	for (i = 0; i < 8; i++)
		rig_srq_recv(b, srq, (uint64_t)i, 64u * (unsigned)i, 64);
	assert_int_equal(ibv_post_srq_recv(srq, &wr, &bad), ENOMEM);
	limit(b, srq, 9, -EINVAL);
	limit(b, srq, 6, 0);
	for (i = 0; i < 6; i++) {
		send_one(r, qa[i % 3], qb[i % 3], i % 3 == 2 ? ah : NULL);
		wc = rig_ok(r, b, (uint64_t)i);
		assert_int_equal(wc.qp_num, qb[i % 3]->qp_num);
		assert_int_equal(wc.byte_len, i % 3 == 2 ? 48 : 8);
		if (i == 2) /* 5 are left */
			rig_event(b, IBV_EVENT_SRQ_LIMIT_REACHED);
		rig_event(b, -1);
	}
	/* fewer already */
	limit(b, srq, 3, 0);
	rig_event(b, IBV_EVENT_SRQ_LIMIT_REACHED);
	assert_int_equal(b->dev->ops->destroy_srq(b->dev, srq), -EBUSY);
	assert_int_equal(b->dev->ops->dealloc_pd(b->dev, b->pd), -EBUSY);
	/* a QP that ends takes nothing with it */
	assert_int_equal(dev_qp_err(b->dev, qb[0]), 0);
	rig_event(b, IBV_EVENT_QP_LAST_WQE_REACHED);
	rig_none(r, b);
	send_one(r, qa[1], qb[1], NULL);
	rig_ok(r, b, 6);
	for (i = 0; i < 3; i++) {
		rig_destroy(a, qa[i]);
		rig_destroy(b, qb[i]);
	}
	a->dev->ops->destroy_ah(a->dev, ah);
	assert_int_equal(b->dev->ops->destroy_srq(b->dev, srq), 0);
}

/* A message waits for a receive; a longer queue keeps what is in it. */
static void drive_waits(struct rig *r)
{
	struct end *a = &r->end[0], *b = &r->end[1];
	struct ibv_srq *srq = srq_new(b, 3);
	struct ibv_qp *qa = rig_qp(a, IBV_QPT_RC, NULL);
	struct ibv_qp *qb = rig_qp(b, IBV_QPT_RC, srq);
	struct dev_qp_opts opts = {.min_rnr_timer = 1};
	struct ibv_srq_attr attr = {.max_wr = 100};
	struct ibv_sge sge = rig_sge(a, 0, 8);
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	struct sim_nic_counts c;
	unsigned i;

	rig_connect(a, qa, b, qb, &opts);
	assert_int_equal(ibv_post_send(qa, &wr, &bad), 0);
	rig_none(r, a);
	sim_nic_counts(b->node, &c);
	assert_true(c.rnr_naks > 0);
	rig_srq_recv(b, srq, 0, 0, 64);
	rig_ok(r, a, 0);
	rig_ok(r, b, 0);
	for (i = 1; i <= 3; i++)
		rig_srq_recv(b, srq, i, 0, 64);
	assert_int_equal(
		b->dev->ops->modify_srq(b->dev, srq, &attr, IBV_SRQ_MAX_WR), 0);
	for (i = 4; i <= 100; i++)
		rig_srq_recv(b, srq, i, 0, 64);
	attr.max_wr = 99;
	assert_int_equal(b->dev->ops->modify_srq(b->dev, srq, &attr,
						 IBV_SRQ_MAX_WR),
			 -EINVAL);
	assert_int_equal(b->dev->ops->query_srq(b->dev, srq, &attr), 0);
	assert_int_equal(attr.max_wr, 100);
	for (i = 1; i <= 100; i++) {
		assert_int_equal(ibv_post_send(qa, &wr, &bad), 0);
		rig_ok(r, a, 0);
		rig_ok(r, b, i);
	}
	rig_destroy(a, qa);
	rig_destroy(b, qb);
	assert_int_equal(b->dev->ops->destroy_srq(b->dev, srq), 0);
}

/* An SRQ is a context beside its QPs' in the NIC's cache. */
static void drive_context(struct rig *r)
{
	struct end *a = &r->end[0], *b = &r->end[1];
	struct ibv_srq *srq = srq_new(b, 16);
	struct ibv_qp *qa = rig_qp(a, IBV_QPT_RC, NULL);
	struct ibv_qp *qb = rig_qp(b, IBV_QPT_RC, srq);
	struct sim_nic_counts c;
	unsigned i;

	rig_connect(a, qa, b, qb, NULL);
	for (i = 0; i < 4; i++) {
		rig_srq_recv(b, srq, i, 0, 64);
		send_one(r, qa, qb, NULL);
		rig_ok(r, b, i);
	}
	sim_nic_counts(b->node, &c);
	assert_int_equal(c.ctx_misses, 2);
	assert_int_equal(c.ctx_hits, 6);
	rig_destroy(a, qa);
	rig_destroy(b, qb);
	assert_int_equal(b->dev->ops->destroy_srq(b->dev, srq), 0);
}

static void test_shared(void **state)
{
	rig_run(2, NULL, NULL, drive_shared);
}

static void test_waits(void **state)
{
	rig_run(2, NULL, NULL, drive_waits);
}

static void test_context(void **state)
{
	rig_run(2, NULL, NULL, drive_context);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shared),
		cmocka_unit_test(test_waits),
		cmocka_unit_test(test_context),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
