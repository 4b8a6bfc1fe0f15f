/* SPDX-License-Identifier: MIT */
/*
 * test_dev_uc.c - unreliable connections through dev.h, on every device: what
 * arrives arrives whole; what cannot is dropped without a word to the sender
 * (IBA 9.8.3), and the connection goes on.
 */
#include "rc_pair.h"

/* Sender and receiver see different things at different times: the next SEND
 * with an immediate is the fence that says all before it has been handled. */
static void pass_fence(struct pair *p, uint64_t id, uint32_t imm)
{
	struct ibv_sge s = sge(&p->a, 0, 1);
	struct ibv_send_wr wr = {.wr_id = id,
				 .sg_list = &s,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND_WITH_IMM,
				 .send_flags = IBV_SEND_SIGNALED,
				 .imm_data = htobe32(imm)};
	struct ibv_wc wc;

	post_recv(&p->b, id, MEM_LEN - 8, 8);
	deliver(&p->a, &wr, &p->b, &wc);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.wr_id, id);
	assert_int_equal(wc.opcode, IBV_WC_RECV);
	assert_int_equal(be32toh(wc.imm_data), imm);
}

/* Is the WRITE there, now that the fence is? A lost one leaves a part. */
static bool landed(struct pair *p, size_t to, size_t from, size_t len)
{
	return !harsh() || !memcmp(mem(&p->b) + to, mem(&p->a) + from, len);
}

static void test_write(void **state)
{
	struct pair p;
	struct ibv_sge s;
	struct ibv_send_wr wr;

	pair_open_as(&p, IBV_QPT_UC, NULL);
	fill(&p.a, 5, 50000, 1);
	s = sge(&p.a, 5, 50000);
	wr = rdma(IBV_WR_RDMA_WRITE, 7, &s, &p.b, 33);
	do {
		carry_out(&p.a, &wr);
		pass_fence(&p, 8, 77);
	} while (!landed(&p, 33, 5, 50000));
	assert_memory_equal(mem(&p.b) + 33, mem(&p.a) + 5, 50000);
	assert_int_equal(mem(&p.b)[32], 0);
	assert_int_equal(mem(&p.b)[50033], 0);
	pair_close(&p);
}

static void test_write_imm(void **state)
{
	struct pair p;
	struct ibv_sge s;
	struct ibv_send_wr wr;
	struct ibv_wc wc;

	pair_open_as(&p, IBV_QPT_UC, NULL);
	fill(&p.a, 0, 9000, 4);
	s = sge(&p.a, 0, 9000);
	wr = rdma(IBV_WR_RDMA_WRITE_WITH_IMM, 1, &s, &p.b, 100);
	wr.imm_data = htobe32(0xcafe);
	post_recv(&p.b, 40, 0, 0);
	deliver(&p.a, &wr, &p.b, &wc);
	check_write_imm(&wc, 40, 9000, 0xcafe);
	assert_memory_equal(mem(&p.b) + 100, mem(&p.a), 9000);
	pair_close(&p);
}

static void test_send(void **state)
{
	struct pair p;
	struct ibv_sge s[2];
	struct ibv_send_wr wr = {.wr_id = 2,
				 .sg_list = s,
				 .num_sge = 2,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED};
	struct ibv_wc wc;

	pair_open_as(&p, IBV_QPT_UC, NULL);
	post_recv(&p.b, 50, 1000, 20000);
	fill(&p.a, 0, 16000, 3);
	s[0] = sge(&p.a, 0, 1);
	s[1] = sge(&p.a, 1, 15999);
	deliver(&p.a, &wr, &p.b, &wc);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.wr_id, 50);
	assert_int_equal(wc.byte_len, 16000);
	assert_false(wc.wc_flags & IBV_WC_WITH_IMM);
	assert_memory_equal(mem(&p.b) + 1000, mem(&p.a), 16000);
	pair_close(&p);
}

/* No receive: gone, and no RNR. The next message is none the worse. */
static void test_no_receive(void **state)
{
	struct pair p;
	struct ibv_sge s;
	struct ibv_send_wr wr = {.wr_id = 3,
				 .sg_list = &s,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED};

	pair_open_as(&p, IBV_QPT_UC, NULL);
	fill(&p.a, 0, 64, 1);
	s = sge(&p.a, 0, 64);
	carry_out(&p.a, &wr);
	/* A WRITE needs no receive: once it has landed, the SEND before it
	 * has been dropped. */
	wr = rdma(IBV_WR_RDMA_WRITE, 4, &s, &p.b, 64);
	do {
		carry_out(&p.a, &wr);
	} while (!landed(&p, 64, 0, 64));
	wait_byte(&p.b, 64 + 63, mem(&p.a)[63]);
	expect_none(&p.b, p.b.rcq);
	pass_fence(&p, 9, 1);
	assert_int_equal(qp_state(&p.a), IBV_QPS_RTS);
	assert_int_equal(qp_state(&p.b), IBV_QPS_RTS);
	pair_close(&p);
}

static void test_bad_rkey(void **state)
{
	struct pair p;
	struct ibv_sge s;
	struct ibv_send_wr wr;

	pair_open_as(&p, IBV_QPT_UC, NULL);
	fill(&p.a, 0, 64, 1);
	s = sge(&p.a, 0, 64);
	wr = rdma(IBV_WR_RDMA_WRITE, 5, &s, &p.b, 0);
	wr.wr.rdma.rkey ^= 0x00ffff00;
	carry_out(&p.a, &wr);
	wr = rdma(IBV_WR_RDMA_WRITE, 6, &s, &p.b, MEM_LEN - 63);
	carry_out(&p.a, &wr);
	pass_fence(&p, 10, 2);
	assert_int_equal(mem(&p.b)[0], 0);
	assert_int_equal(mem(&p.b)[MEM_LEN - 9], 0);
	assert_int_equal(qp_state(&p.a), IBV_QPS_RTS);
	pair_close(&p);
}

/* A peer that is gone is no error either. */
static void test_peer_gone(void **state)
{
	struct pair p;
	struct ibv_sge s;
	struct ibv_send_wr wr;

	pair_open_as(&p, IBV_QPT_UC, NULL);
	assert_int_equal(dev_b->ops->destroy_qp(dev_b, p.b.qp), 0);
	p.b.qp = NULL;
	fill(&p.a, 0, 8, 1);
	s = sge(&p.a, 0, 8);
	wr = rdma(IBV_WR_RDMA_WRITE, 11, &s, &p.b, 0);
	carry_out(&p.a, &wr);
	assert_int_equal(qp_state(&p.a), IBV_QPS_RTS);
	assert_int_equal(mem(&p.b)[0], 0);
	pair_close(&p);
}

static int setup(void **state)
{
	rig_setup(state);
	need(dev_a->caps.uc, dev_b->caps.uc, "UC");
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_write),
		cmocka_unit_test(test_write_imm),
		cmocka_unit_test(test_send),
		cmocka_unit_test(test_no_receive),
		cmocka_unit_test(test_bad_rkey),
		cmocka_unit_test(test_peer_gone),
	};

	return cmocka_run_group_tests(tests, setup, rig_teardown);
}
