/* SPDX-License-Identifier: MIT */
/*
 * test_dev_srq.c - shared receive queues through dev.h, on every device: one
 * queue feeds several QPs in the order of posting, says when it runs low, and
 * cannot go while it is in use.
 */
#include "rc_pair.h"

#define SLOT 1024

/* Two senders on dev_a, two receivers on dev_b with one SRQ. */
struct shared {
	struct pair p[2];
	struct ibv_pd *pd;
	struct mem_region *mem;
	struct ibv_srq *srq;
	struct ibv_srq_attr got;
};

static void shared_post(struct shared *sh, uint64_t id)
{
	struct ibv_sge s = {
		.addr = (uintptr_t)sh->mem->addr + id * SLOT,
		.length = SLOT,
		.lkey = sh->mem->mr->lkey,
	};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &s, .num_sge = 1};
	struct ibv_recv_wr *bad = NULL;

	assert_int_equal(dev_post_srq_recv(&sh->p[0].b.st, sh->srq, &wr, &bad),
			 0);
}

static struct ibv_srq *make_srq(struct ibv_pd *pd, struct ibv_srq_attr *got)
{
	struct ibv_srq_init_attr attr = {
		.attr = {.max_wr = DEPTH, .max_sge = 2}};
	struct ibv_srq *srq = NULL;

	assert_int_equal(dev_b->ops->create_srq(dev_b, pd, &attr, &srq), 0);
	assert_non_null(srq);
	assert_true(attr.attr.max_wr >= DEPTH);
	assert_true(attr.attr.max_sge >= 2);
	*got = attr.attr;
	return srq;
}

static void shared_open(struct shared *sh, const struct dev_qp_opts *opts)
{
	int i;

	memset(sh, 0, sizeof(*sh));
	assert_int_equal(dev_b->ops->alloc_pd(dev_b, &sh->pd), 0);
	assert_int_equal(mem_region_new(dev_b, sh->pd, "srq", 64 * SLOT,
					IBV_ACCESS_LOCAL_WRITE, 9, &sh->mem),
			 0);
	sh->srq = make_srq(sh->pd, &sh->got);
	for (i = 0; i < 2; i++) {
		end_open(&sh->p[i].a, dev_a, 100);
		end_open_srq(&sh->p[i].b, dev_b, 200, sh->srq, sh->pd);
		pair_connect(&sh->p[i], opts);
	}
}

static void shared_close(struct shared *sh)
{
	int i;

	assert_int_equal(dev_b->ops->destroy_srq(dev_b, sh->srq), -EBUSY);
	for (i = 0; i < 2; i++)
		pair_close(&sh->p[i]);
	assert_int_equal(dev_b->ops->destroy_srq(dev_b, sh->srq), 0);
	mem_region_free(sh->mem);
	assert_int_equal(dev_b->ops->dealloc_pd(dev_b, sh->pd), 0);
}

static void send_one(struct shared *sh, int i, uint64_t id, size_t len)
{
	struct ibv_sge s = sge(&sh->p[i].a, 0, len);
	struct ibv_send_wr wr = {.wr_id = id,
				 .sg_list = &s,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED};

	post(&sh->p[i].a, &wr);
}

static void expect_recv(struct shared *sh, int i, uint64_t id, size_t len)
{
	struct ibv_wc wc;

	wait_wc(&sh->p[i].b, sh->p[i].b.rcq, &wc);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.wr_id, id);
	assert_int_equal(wc.opcode, IBV_WC_RECV);
	assert_int_equal(wc.byte_len, len);
	assert_int_equal(wc.qp_num, sh->p[i].b.qp->qp_num);
}

static void test_shared(void **state)
{
	struct shared sh;
	int i;

	shared_open(&sh, NULL);
	for (i = 1; i <= 4; i++)
		shared_post(&sh, (uint64_t)i);
	fill(&sh.p[0].a, 0, 64, 1);
	fill(&sh.p[1].a, 0, 64, 2);
	/* Each waited for, so that the order is known. */
	for (i = 0; i < 4; i++) {
		send_one(&sh, i % 2, 10 + (uint64_t)i, 60 + (size_t)i);
		expect_recv(&sh, i % 2, 1 + (uint64_t)i, 60 + (size_t)i);
		expect(&sh.p[i % 2].a, sh.p[i % 2].a.scq, 10 + (uint64_t)i,
		       IBV_WC_SUCCESS);
		assert_memory_equal((char *)sh.mem->addr +
					    (size_t)(1 + i) * SLOT,
				    mem(&sh.p[i % 2].a), 60);
	}
	expect_none(&sh.p[0].b, sh.p[0].b.rcq);
	expect_none(&sh.p[1].b, sh.p[1].b.rcq);
	shared_close(&sh);
}

/* Empty: the sender waits (RNR) and is served as soon as there is one. */
static void test_late(void **state)
{
	static const struct dev_qp_opts opts = {.min_rnr_timer = 1};
	struct shared sh;

	shared_open(&sh, &opts);
	send_one(&sh, 1, 11, 32);
	shared_post(&sh, 1);
	expect_recv(&sh, 1, 1, 32);
	expect(&sh.p[1].a, sh.p[1].a.scq, 11, IBV_WC_SUCCESS);
	shared_close(&sh);
}

static void test_empty(void **state)
{
	static const struct dev_qp_opts opts = {.rnr_retry = 1,
						.min_rnr_timer = 1};
	struct shared sh;

	shared_open(&sh, &opts);
	send_one(&sh, 0, 12, 32);
	expect(&sh.p[0].a, sh.p[0].a.scq, 12, IBV_WC_RNR_RETRY_EXC_ERR);
	/* The other QP is none the worse, nor is the queue. */
	shared_post(&sh, 2);
	send_one(&sh, 1, 13, 16);
	expect_recv(&sh, 1, 2, 16);
	expect(&sh.p[1].a, sh.p[1].a.scq, 13, IBV_WC_SUCCESS);
	shared_close(&sh);
}

static void wait_event(struct ibv_async_event *ev)
{
	wait_readable(dev_b->verbs->async_fd);
	assert_int_equal(dev_b->ops->get_async_event(dev_b, ev), 0);
}

/* The limit is told once, when fewer are left, and is then disarmed. */
static void test_limit(void **state)
{
	struct ibv_srq_attr attr = {.srq_limit = 2};
	struct ibv_async_event ev;
	struct shared sh;
	int i;

	shared_open(&sh, NULL);
	for (i = 1; i <= 4; i++)
		shared_post(&sh, (uint64_t)i);
	assert_int_equal(
		dev_b->ops->modify_srq(dev_b, sh.srq, &attr, IBV_SRQ_LIMIT), 0);
	memset(&attr, 0, sizeof(attr));
	assert_int_equal(dev_b->ops->query_srq(dev_b, sh.srq, &attr), 0);
	assert_int_equal(attr.srq_limit, 2);
	/* rxe counts what it rounded up to here, not what create said. */
	assert_true(attr.max_wr >= sh.got.max_wr);
	for (i = 0; i < 2; i++) {
		send_one(&sh, 0, (uint64_t)i, 8);
		expect_recv(&sh, 0, 1 + (uint64_t)i, 8);
		expect(&sh.p[0].a, sh.p[0].a.scq, (uint64_t)i, IBV_WC_SUCCESS);
	}
	assert_int_equal(dev_b->ops->get_async_event(dev_b, &ev), -EAGAIN);
	send_one(&sh, 1, 2, 8);
	wait_event(&ev);
	assert_int_equal(ev.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
	assert_ptr_equal(ev.element.srq, sh.srq);
	dev_b->ops->ack_async_event(dev_b, &ev);
	expect_recv(&sh, 1, 3, 8);
	expect(&sh.p[1].a, sh.p[1].a.scq, 2, IBV_WC_SUCCESS);
	send_one(&sh, 1, 3, 8);
	expect_recv(&sh, 1, 4, 8);
	expect(&sh.p[1].a, sh.p[1].a.scq, 3, IBV_WC_SUCCESS);
	assert_int_equal(dev_b->ops->get_async_event(dev_b, &ev), -EAGAIN);
	assert_int_equal(dev_b->ops->query_srq(dev_b, sh.srq, &attr), 0);
	assert_int_equal(attr.srq_limit, 0);
	shared_close(&sh);
}

/* It takes what create promised, more if it likes, and not for ever. */
static void test_full(void **state)
{
	struct ibv_recv_wr wr = {.wr_id = 1}, *bad = NULL;
	struct ibv_srq_attr got;
	struct ibv_srq *srq;
	struct ibv_pd *pd;
	struct dev_stats st = {0};
	uint32_t i;
	int rc;

	assert_int_equal(dev_b->ops->alloc_pd(dev_b, &pd), 0);
	srq = make_srq(pd, &got);
	for (i = 0, rc = 0; !rc && i <= 4 * got.max_wr; i++)
		rc = dev_post_srq_recv(&st, srq, &wr, &bad);
	assert_int_equal(rc, -ENOMEM);
	assert_true(i > got.max_wr);
	assert_ptr_equal(bad, &wr);
	/* What was posted goes with the queue. */
	assert_int_equal(dev_b->ops->destroy_srq(dev_b, srq), 0);
	assert_int_equal(dev_b->ops->dealloc_pd(dev_b, pd), 0);
}

static void test_bad_attr(void **state)
{
	struct ibv_srq_init_attr attr = {.attr = {.max_sge = 1}};
	struct ibv_srq_attr got, limit;
	struct ibv_srq *srq = NULL;
	struct ibv_pd *pd;

	assert_int_equal(dev_b->ops->alloc_pd(dev_b, &pd), 0);
	attr.attr.max_wr = dev_b->caps.srq_wr_max + 1;
	assert_true(dev_b->ops->create_srq(dev_b, pd, &attr, &srq) < 0);
	assert_null(srq);
	assert_int_equal(attr.attr.max_wr, dev_b->caps.srq_wr_max + 1);
	srq = make_srq(pd, &got);
	assert_int_equal(dev_b->ops->query_srq(dev_b, srq, &limit), 0);
	limit.srq_limit = limit.max_wr + 1;
	assert_int_equal(dev_b->ops->modify_srq(dev_b, srq, &limit,
						IBV_SRQ_LIMIT),
			 -EINVAL);
	assert_int_equal(dev_b->ops->destroy_srq(dev_b, srq), 0);
	assert_int_equal(dev_b->ops->dealloc_pd(dev_b, pd), 0);
}

static int setup(void **state)
{
	rig_setup(state);
	need(dev_a->caps.srq, dev_b->caps.srq, "SRQ");
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shared), cmocka_unit_test(test_late),
		cmocka_unit_test(test_empty),  cmocka_unit_test(test_limit),
		cmocka_unit_test(test_full),   cmocka_unit_test(test_bad_attr),
	};

	return cmocka_run_group_tests(tests, setup, rig_teardown);
}
