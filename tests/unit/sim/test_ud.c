/* SPDX-License-Identifier: MIT */
/*
 * UC and UD on the simulated device: what arrives, what is dropped without a
 * word, what fails, and what a datagram costs in contexts.
 */
#include "rig_sim.h"

#define QKEY 0x1234u
#define GRH 40u

static struct ibv_qp *ud_qp(struct end *e, uint32_t qkey)
{
	struct ibv_qp *qp = rig_qp(e, IBV_QPT_UD, NULL);

	assert_int_equal(dev_qp_ud(e->dev, qp, qkey, 7), 0);
	return qp;
}

static int ud_post(struct end *e, struct ibv_qp *qp, struct ibv_ah *ah,
		   const struct ibv_qp *to, uint32_t qkey, struct ibv_sge *sge)
{
	struct ibv_send_wr wr = {.wr_id = 1,
				 .sg_list = sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND_WITH_IMM,
				 .imm_data = 77,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.ud = {.ah = ah,
					   .remote_qpn = to->qp_num,
					   .remote_qkey = qkey}};
	struct ibv_send_wr *bad;

	(void)e;
	return ibv_post_send(qp, &wr, &bad);
}

static void ud_send(struct rig *r, struct ibv_qp *qp, struct ibv_ah *ah,
		    const struct ibv_qp *to, uint32_t qkey, uint32_t len)
{
	struct ibv_sge sge = rig_sge(&r->end[0], 0, len);

	assert_int_equal(ud_post(&r->end[0], qp, ah, to, qkey, &sge), 0);
	rig_ok(r, &r->end[0], 1);
}

/* The answer goes to where the 40 bytes in front say. */
static void answer(struct rig *r, struct ibv_qp *from, const struct ibv_qp *to,
		   const struct ibv_wc *wc)
{
	struct end *a = &r->end[0], *b = &r->end[1];
	struct ibv_sge sge = rig_sge(b, GRH, 3);
	struct ibv_ah_attr attr;
	struct ibv_ah *ah;

	assert_int_equal(dev_ah_from_wc(b->dev, wc, (void *)b->mem, &attr), 0);
	assert_memory_equal(&attr.grh.dgid, &a->dev->gid.gid, 16);
	assert_int_equal(b->dev->ops->create_ah(b->dev, b->pd, &attr, &ah), 0);
	rig_recv(a, (struct ibv_qp *)to, 9, 1024, 100);
	assert_int_equal(ud_post(b, from, ah, to, QKEY, &sge), 0);
	rig_ok(r, b, 1);
	assert_int_equal(rig_ok(r, a, 9).byte_len, GRH + 3);
	assert_memory_equal(a->mem + 1024 + GRH, "abc", 3);
	b->dev->ops->destroy_ah(b->dev, ah);
}

static void drive_ud(struct rig *r)
{
	struct end *a = &r->end[0], *b = &r->end[1];
	struct ibv_qp *qa = ud_qp(a, QKEY), *qb = ud_qp(b, QKEY);
	struct ibv_ah *ah = rig_ah(a, b);
	struct ibv_wc wc;

	memcpy(a->mem, "abc", 3);
	rig_recv(b, qb, 5, 0, 4096 + GRH);
	ud_send(r, qa, ah, qb, QKEY, 3);
	wc = rig_ok(r, b, 5);
	assert_int_equal(wc.byte_len, GRH + 3);
	assert_int_equal(wc.src_qp, qa->qp_num);
	assert_int_equal(wc.imm_data, 77);
	assert_int_equal(wc.wc_flags, IBV_WC_GRH | IBV_WC_WITH_IMM);
	assert_memory_equal(b->mem + GRH, "abc", 3);
	answer(r, qb, qa, &wc);
	/* the QP's own key, by the high bit */
	rig_recv(b, qb, 6, 0, 4096 + GRH);
	ud_send(r, qa, ah, qb, 0x80000000u, 4096);
	assert_int_equal(rig_ok(r, b, 6).byte_len, 4096 + GRH);
	a->dev->ops->destroy_ah(a->dev, ah);
	rig_destroy(a, qa);
	rig_destroy(b, qb);
}

static void drive_drops(struct rig *r)
{
	struct end *a = &r->end[0], *b = &r->end[1];
	struct ibv_qp *qa = ud_qp(a, QKEY), *qb = ud_qp(b, QKEY);
	struct ibv_qp *rc = rig_qp(b, IBV_QPT_RC, NULL),
		      nobody = {.qp_num = 99};
	struct ibv_ah *ah = rig_ah(a, b);

	ud_send(r, qa, ah, qb, QKEY, 3); /* no receive */
	rig_none(r, b);			 /* until it is there, and gone */
	rig_recv(b, qb, 5, 0, 50);
	ud_send(r, qa, ah, qb, QKEY + 1, 3);
	ud_send(r, qa, ah, &nobody, QKEY, 3);
	ud_send(r, qa, ah, rc, QKEY, 3);
	ud_send(r, qa, ah, qb, QKEY, 11); /* and 40: too long for it */
	ud_send(r, qa, ah, qb, QKEY, 4097);
	rig_none(r, b);
	ud_send(r, qa, ah, qb, QKEY, 10);
	rig_ok(r, b, 5);
	rig_event(b, -1);
	rig_event(a, -1);
	a->dev->ops->destroy_ah(a->dev, ah);
	rig_destroy(a, qa);
	rig_destroy(b, qb);
	rig_destroy(b, rc);
}

static void drive_errors(struct rig *r)
{
	struct end *a = &r->end[0], *b = &r->end[1];
	struct ibv_qp *qa = ud_qp(a, QKEY), *qb = ud_qp(b, QKEY);
	struct ibv_ah *ah = rig_ah(a, b);
	struct ibv_sge bad = rig_sge(a, 0, 8);
	struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS};
	struct ibv_send_wr write = {.opcode = IBV_WR_RDMA_WRITE}, *bad_wr;

	assert_int_equal(ibv_post_send(qa, &write, &bad_wr), EINVAL);
	bad.lkey ^= 0x100;
	assert_int_equal(ud_post(a, qa, ah, qb, QKEY, &bad), 0);
	assert_int_equal(rig_wc(r, a).status, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(qa->state, IBV_QPS_SQE);
	assert_int_equal(ud_post(a, qa, ah, qb, QKEY, &bad), 0);
	assert_int_equal(rig_wc(r, a).status, IBV_WC_WR_FLUSH_ERR);
	/* it still receives, and comes back */
	assert_int_equal(a->dev->ops->modify_qp(a->dev, qa, &rts, IBV_QP_STATE),
			 0);
	rig_recv(b, qb, 5, RIG_MEM - 64, 128); /* behind the region's end */
	ud_send(r, qa, ah, qb, QKEY, 3);
	rig_ok(r, b, 5); /* the message does not reach there */
	rig_recv(b, qb, 6, RIG_MEM - 64, 128);
	rig_recv(b, qb, 7, 0, 128);
	ud_send(r, qa, ah, qb, QKEY, 64);
	assert_int_equal(rig_wc(r, b).status, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(rig_wc(r, b).status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(qb->state, IBV_QPS_ERR);
	a->dev->ops->destroy_ah(a->dev, ah);
	rig_destroy(a, qa);
	rig_destroy(b, qb);
}

/* One QP to many nodes is one context in its NIC. */
static void drive_many(struct rig *r)
{
	struct ibv_qp *q[RIG_NODES];
	struct ibv_ah *ah[RIG_NODES];
	struct sim_nic_counts c;
	unsigned i;

	for (i = 0; i < r->n; i++)
		q[i] = ud_qp(&r->end[i], QKEY);
	for (i = 1; i < r->n; i++) {
		ah[i] = rig_ah(&r->end[0], &r->end[i]);
		rig_recv(&r->end[i], q[i], i, 0, 64);
		ud_send(r, q[0], ah[i], q[i], QKEY, 8);
		rig_ok(r, &r->end[i], i);
		r->end[0].dev->ops->destroy_ah(r->end[0].dev, ah[i]);
	}
	sim_nic_counts(r->end[0].node, &c);
	assert_int_equal(c.ctx_misses, 1);
	for (i = 0; i < r->n; i++)
		rig_destroy(&r->end[i], q[i]);
}

static void uc_post(struct end *a, struct ibv_qp *qp, enum ibv_wr_opcode op,
		    uint32_t len, const struct end *to, uint32_t rkey)
{
	struct ibv_sge sge = rig_sge(a, 0, len);
	struct ibv_send_wr wr = {.wr_id = 1,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = op,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.rdma = {.remote_addr =
						     (uintptr_t)to->mem + 256,
					     .rkey = rkey}};
	struct ibv_send_wr *bad;

	assert_int_equal(ibv_post_send(qp, &wr, &bad), 0);
}

static void drive_uc(struct rig *r)
{
	struct end *a = &r->end[0], *b = &r->end[1];
	struct ibv_qp *qa = rig_qp(a, IBV_QPT_UC, NULL);
	struct ibv_qp *qb = rig_qp(b, IBV_QPT_UC, NULL);
	struct ibv_send_wr read = {.opcode = IBV_WR_RDMA_READ}, *bad;
	uint32_t rkey = b->mr->rkey;

	rig_connect(a, qa, b, qb, NULL);
	memcpy(a->mem, "abcdef", 6);
	assert_int_equal(ibv_post_send(qa, &read, &bad), EINVAL);
	/* lost: no receive, no such key; too long for its receive */
	uc_post(a, qa, IBV_WR_SEND, 6, b, 0);
	rig_ok(r, a, 1);
	uc_post(a, qa, IBV_WR_RDMA_WRITE, 6, b, rkey ^ 0x100);
	rig_ok(r, a, 1);
	rig_wait(r, 10000);
	rig_recv(b, qb, 3, 0, 5);
	uc_post(a, qa, IBV_WR_SEND, 6, b, 0);
	rig_ok(r, a, 1);
	rig_none(r, b);
	assert_int_equal(b->mem[256], 0);
	/* and what can be taken is */
	uc_post(a, qa, IBV_WR_RDMA_WRITE, 6, b, rkey);
	rig_ok(r, a, 1);
	uc_post(a, qa, IBV_WR_SEND, 5, b, 0);
	rig_ok(r, a, 1);
	assert_int_equal(rig_ok(r, b, 3).byte_len, 5);
	assert_memory_equal(b->mem + 256, "abcdef", 6);
	assert_int_equal(qa->state, IBV_QPS_RTS);
	assert_int_equal(qb->state, IBV_QPS_RTS);
	rig_destroy(a, qa);
	rig_destroy(b, qb);
}

/* Of a lossy cable's messages those that arrive are whole and in order. */
static void drive_loss(struct rig *r)
{
	struct end *a = &r->end[0], *b = &r->end[1];
	struct ibv_qp *qa = rig_qp(a, IBV_QPT_UC, NULL);
	struct ibv_qp *qb = rig_qp(b, IBV_QPT_UC, NULL);
	struct sim_link lossy = {.loss_ppm = 300000};
	unsigned i, got = 0, last = 0;
	struct ibv_wc wc;

	rig_connect(a, qa, b, qb, NULL);
	sim_link_set(b->node, &lossy);
	for (i = 1; i <= 200; i++)
		rig_recv(b, qb, i, 64 * (i - 1), 64);
	for (i = 1; i <= 200; i++) {
		memcpy(a->mem, &i, sizeof(i));
		uc_post(a, qa, IBV_WR_SEND, 32, b, 0);
		rig_ok(r, a, 1);
	}
	rig_wait(r, 100000);
	while (ibv_poll_cq(b->cq, 1, &wc)) {
		memcpy(&i, b->mem + 64 * (wc.wr_id - 1), sizeof(i));
		assert_true(i > last);
		last = i;
		assert_int_equal(wc.wr_id, ++got);
	}
	assert_in_range(got, 100, 180);
	rig_destroy(a, qa);
	rig_destroy(b, qb);
}

static void test_ud(void **state)
{
	rig_run(2, NULL, NULL, drive_ud);
}

static void test_drops(void **state)
{
	rig_run(2, NULL, NULL, drive_drops);
}

static void test_errors(void **state)
{
	rig_run(2, NULL, NULL, drive_errors);
}

static void test_many(void **state)
{
	rig_run(RIG_NODES, NULL, NULL, drive_many);
}

static void test_uc(void **state)
{
	rig_run(2, NULL, NULL, drive_uc);
}

static void test_loss(void **state)
{
	rig_run(2, NULL, NULL, drive_loss);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ud),     cmocka_unit_test(test_drops),
		cmocka_unit_test(test_errors), cmocka_unit_test(test_many),
		cmocka_unit_test(test_uc),     cmocka_unit_test(test_loss),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
