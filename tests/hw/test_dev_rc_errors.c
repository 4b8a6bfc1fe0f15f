/* SPDX-License-Identifier: MIT */
/*
 * test_dev_rc_errors.c - how RC fails, through dev.h, on every device: the
 * status of the request at fault, the order of what is flushed behind it, and
 * that refused operations left the peer's memory alone.
 */
#include "rc_pair.h"

/* The first request fails as said; what was posted after it, and the receives,
 * are flushed in the order of posting. */
static void expect_fatal(struct pair *p, struct ibv_send_wr *bad_wr,
			 enum ibv_wc_status status)
{
	struct ibv_sge s = sge(&p->a, 0, 8);
	struct ibv_send_wr after[2];

	post_recv(&p->a, 60, 0, 64);
	post_recv(&p->a, 61, 0, 64);
	after[0] = rdma(IBV_WR_RDMA_WRITE, 31, &s, &p->b, 9000);
	after[1] = rdma(IBV_WR_RDMA_WRITE, 32, &s, &p->b, 9000);
	bad_wr->next = &after[0];
	after[0].next = &after[1];
	fill(&p->a, 0, 8, 0x55);
	post(&p->a, bad_wr);
	expect(&p->a, p->a.scq, 30, status);
	expect(&p->a, p->a.scq, 31, IBV_WC_WR_FLUSH_ERR);
	expect(&p->a, p->a.scq, 32, IBV_WC_WR_FLUSH_ERR);
	expect(&p->a, p->a.rcq, 60, IBV_WC_WR_FLUSH_ERR);
	expect(&p->a, p->a.rcq, 61, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(qp_state(&p->a), IBV_QPS_ERR);
	assert_int_equal(mem(&p->b)[9000], 0);
}

static void test_bad_rkey(void **state)
{
	struct pair p;
	struct ibv_sge s;
	struct ibv_send_wr wr;

	(void)state;
	pair_open(&p, NULL);
	s = sge(&p.a, 0, 64);
	wr = rdma(IBV_WR_RDMA_WRITE, 30, &s, &p.b, 0);
	wr.wr.rdma.rkey ^= 0x00ffff00;
	expect_fatal(&p, &wr, IBV_WC_REM_ACCESS_ERR);
	pair_close(&p);
}

static void test_out_of_range(void **state)
{
	struct pair p;
	struct ibv_sge s;
	struct ibv_send_wr wr;

	(void)state;
	pair_open(&p, NULL);
	s = sge(&p.a, 0, 64);
	wr = rdma(IBV_WR_RDMA_READ, 30, &s, &p.b, MEM_LEN - 63);
	expect_fatal(&p, &wr, IBV_WC_REM_ACCESS_ERR);
	pair_close(&p);
}

static void test_no_write_right(void **state)
{
	struct mem_region *ro;
	struct pair p;
	struct ibv_sge s;
	struct ibv_send_wr wr;

	(void)state;
	pair_open(&p, NULL);
	assert_int_equal(mem_region_new(dev_b, p.b.pd, "ro", 4096,
					IBV_ACCESS_LOCAL_WRITE |
						IBV_ACCESS_REMOTE_READ,
					2, &ro),
			 0);
	s = sge(&p.a, 0, 64);
	wr = rdma(IBV_WR_RDMA_WRITE, 30, &s, &p.b, 0);
	wr.wr.rdma.remote_addr = (uintptr_t)ro->addr;
	wr.wr.rdma.rkey = ro->mr->rkey;
	expect_fatal(&p, &wr, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(*(char *)ro->addr, 0);
	mem_region_free(ro);
	pair_close(&p);
}

/* The specification says LOC_PROT_ERR; rxe says LOC_QP_OP_ERR when there is
 * no such MR at all. */
static void test_bad_lkey(void **state)
{
	bool soft = !strcmp(dev_a->ops->kind, "soft");
	struct pair p;
	struct ibv_sge s;
	struct ibv_send_wr wr;

	(void)state;
	pair_open(&p, NULL);
	s = sge(&p.a, 0, 64);
	s.lkey ^= 0x00ffff00;
	wr = rdma(IBV_WR_RDMA_WRITE, 30, &s, &p.b, 0);
	expect_fatal(&p, &wr,
		     soft ? IBV_WC_LOC_PROT_ERR : IBV_WC_LOC_QP_OP_ERR);
	pair_close(&p);
}

/* A key dies with its region. */
static void test_dead_rkey(void **state)
{
	struct mem_region *r;
	struct pair p;
	struct ibv_sge s;
	struct ibv_send_wr wr;

	(void)state;
	pair_open(&p, NULL);
	assert_int_equal(mem_region_new(dev_b, p.b.pd, "dead", 4096,
					IBV_ACCESS_LOCAL_WRITE |
						IBV_ACCESS_REMOTE_WRITE,
					2, &r),
			 0);
	s = sge(&p.a, 0, 64);
	wr = rdma(IBV_WR_RDMA_WRITE, 30, &s, &p.b, 0);
	wr.wr.rdma.remote_addr = (uintptr_t)r->addr;
	wr.wr.rdma.rkey = r->mr->rkey;
	mem_region_free(r);
	expect_fatal(&p, &wr, IBV_WC_REM_ACCESS_ERR);
	pair_close(&p);
}

/* A key is good for QPs of its protection domain only. */
static void test_foreign_pd(void **state)
{
	struct mem_region *r;
	struct ibv_pd *pd;
	struct pair p;
	struct ibv_sge s;
	struct ibv_send_wr wr;

	(void)state;
	pair_open(&p, NULL);
	assert_int_equal(dev_b->ops->alloc_pd(dev_b, &pd), 0);
	assert_int_equal(mem_region_new(dev_b, pd, "other", 4096,
					IBV_ACCESS_LOCAL_WRITE |
						IBV_ACCESS_REMOTE_WRITE,
					2, &r),
			 0);
	s = sge(&p.a, 0, 64);
	wr = rdma(IBV_WR_RDMA_WRITE, 30, &s, &p.b, 0);
	wr.wr.rdma.remote_addr = (uintptr_t)r->addr;
	wr.wr.rdma.rkey = r->mr->rkey;
	expect_fatal(&p, &wr, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(*(char *)r->addr, 0);
	mem_region_free(r);
	assert_int_equal(dev_b->ops->dealloc_pd(dev_b, pd), 0);
	pair_close(&p);
}

/* Refused by the responder, or already by post. */
static void test_unaligned_atomic(void **state)
{
	struct ibv_send_wr *bad = NULL;
	struct pair p;
	struct ibv_sge s;
	struct ibv_send_wr wr = {.wr_id = 30,
				 .sg_list = &s,
				 .num_sge = 1,
				 .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
				 .send_flags = IBV_SEND_SIGNALED};

	(void)state;
	pair_open(&p, NULL);
	s = sge(&p.a, 64, 8);
	wr.wr.atomic.remote_addr = (uintptr_t)mem(&p.b) + 12;
	wr.wr.atomic.rkey = p.b.mem->mr->rkey;
	wr.wr.atomic.compare_add = 1;
	if (!strcmp(dev_a->ops->kind, "soft")) {
		expect_fatal(&p, &wr, IBV_WC_REM_INV_REQ_ERR);
	} else {
		assert_int_equal(dev_post_send(&p.a.st, p.a.qp, &wr, &bad),
				 -EINVAL);
		assert_ptr_equal(bad, &wr);
	}
	assert_int_equal(mem(&p.b)[12], 0);
	pair_close(&p);
}

/* A message longer than its receive is an error of both ends: LOC_LEN_ERR and
 * REM_INV_REQ_ERR by the specification; rxe names a broken receive instead. */
static void test_too_long(void **state)
{
	bool soft = !strcmp(dev_a->ops->kind, "soft");
	struct pair p;
	struct ibv_sge s;
	struct ibv_send_wr wr = {.wr_id = 30,
				 .sg_list = &s,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED};

	(void)state;
	pair_open(&p, NULL);
	s = sge(&p.a, 0, 65);
	fill(&p.a, 0, 65, 1);
	post_recv(&p.b, 90, 0, 64);
	expect_fatal(&p, &wr,
		     soft ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_OP_ERR);
	expect(&p.b, p.b.rcq, 90,
	       soft ? IBV_WC_LOC_LEN_ERR : IBV_WC_LOC_QP_OP_ERR);
	assert_int_equal(mem(&p.b)[64], 0);
	pair_close(&p);
}

static void test_flush_on_err(void **state)
{
	struct pair p;
	struct ibv_sge s;
	struct ibv_send_wr wr;
	int i;

	(void)state;
	pair_open(&p, NULL);
	s = sge(&p.a, 0, 8);
	for (i = 0; i < 4; i++)
		post_recv(&p.a, 70 + (uint64_t)i, 0, 64);
	assert_int_equal(dev_qp_err(dev_a, p.a.qp), 0);
	for (i = 0; i < 4; i++)
		expect(&p.a, p.a.rcq, 70 + (uint64_t)i, IBV_WC_WR_FLUSH_ERR);
	/* The marker of a teardown: posted in ERR, it comes out last. rxe
	 * looks at a receive queue in ERR only when told again. */
	post_recv(&p.a, 99, 0, 64);
	assert_int_equal(dev_qp_err(dev_a, p.a.qp), 0);
	expect(&p.a, p.a.rcq, 99, IBV_WC_WR_FLUSH_ERR);
	wr = rdma(IBV_WR_RDMA_WRITE, 98, &s, &p.b, 0);
	post(&p.a, &wr);
	expect(&p.a, p.a.scq, 98, IBV_WC_WR_FLUSH_ERR);
	pair_close(&p);
}

static void test_rnr(void **state)
{
	static const struct dev_qp_opts opts = {.rnr_retry = 1,
						.min_rnr_timer = 1};
	struct pair p;
	struct ibv_sge s;
	struct ibv_send_wr wr = {.wr_id = 30,
				 .sg_list = &s,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED};

	(void)state;
	pair_open(&p, &opts);
	s = sge(&p.a, 0, 64);
	expect_fatal(&p, &wr, IBV_WC_RNR_RETRY_EXC_ERR);
	pair_close(&p);
}

static void test_peer_gone(void **state)
{
	static const struct dev_qp_opts opts = {.timeout = 10, .retry_cnt = 1};
	struct pair p;
	struct ibv_sge s;
	struct ibv_send_wr wr;

	(void)state;
	pair_open(&p, &opts);
	assert_int_equal(dev_b->ops->destroy_qp(dev_b, p.b.qp), 0);
	p.b.qp = NULL;
	s = sge(&p.a, 0, 8);
	wr = rdma(IBV_WR_RDMA_WRITE, 30, &s, &p.b, 0);
	expect_fatal(&p, &wr, IBV_WC_RETRY_EXC_ERR);
	pair_close(&p);
}

static void test_bad_addr(void **state)
{
	struct end e;
	struct dev_qp_addr bad;

	(void)state;
	end_open(&e, dev_a, 1);
	bad = e.addr;
	bad.mtu = 0;
	assert_int_equal(dev_qp_rtr(dev_a, e.qp, &bad, NULL), -EINVAL);
	bad.mtu = IBV_MTU_4096 + 1;
	assert_int_equal(dev_qp_rtr(dev_a, e.qp, &bad, NULL), -EINVAL);
	bad = e.addr;
	bad.qpn = 1u << 24;
	assert_int_equal(dev_qp_rtr(dev_a, e.qp, &bad, NULL), -EINVAL);
	bad = e.addr;
	bad.psn = 1u << 24;
	assert_int_equal(dev_qp_rtr(dev_a, e.qp, &bad, NULL), -EINVAL);
	assert_int_equal(qp_state(&e), IBV_QPS_INIT);
	end_close(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bad_rkey),
		cmocka_unit_test(test_out_of_range),
		cmocka_unit_test(test_no_write_right),
		cmocka_unit_test(test_bad_lkey),
		cmocka_unit_test(test_dead_rkey),
		cmocka_unit_test(test_foreign_pd),
		cmocka_unit_test(test_unaligned_atomic),
		cmocka_unit_test(test_too_long),
		cmocka_unit_test(test_flush_on_err),
		cmocka_unit_test(test_rnr),
		cmocka_unit_test(test_peer_gone),
		cmocka_unit_test(test_bad_addr),
	};

	return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
