/* SPDX-License-Identifier: MIT */
/*
 * test_dev_cq.c - completion queues through dev.h, on every device. Resizing:
 * what waits in it stays, in order, and it never becomes too small for it.
 * Fairness: a program that posts again for each completion sees those of the
 * other kind too.
 */
#include "rc_pair.h"

#define WAITING 12

static void write_n(struct pair *p, uint64_t first, int n)
{
	struct ibv_sge s = sge(&p->a, 0, 8);
	int i;

	for (i = 0; i < n; i++) {
		struct ibv_send_wr wr = rdma(
			IBV_WR_RDMA_WRITE, first + (uint64_t)i, &s, &p->b, 64);

		post(&p->a, &wr);
	}
}

static void expect_n(struct pair *p, uint64_t first, int n)
{
	int i;

	for (i = 0; i < n; i++)
		expect(&p->a, p->a.scq, first + (uint64_t)i, IBV_WC_SUCCESS);
}

/* Until no completion of what has been carried out is owed any more. */
static void drain(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD};
	struct ibv_qp_init_attr init;

	assert_int_equal(dev_a->ops->modify_qp(dev_a, qp, &attr, IBV_QP_STATE),
			 0);
	do {
		assert_int_equal(dev_a->ops->query_qp(dev_a, qp, &attr,
						      IBV_QP_STATE, &init),
				 0);
		env_yield(dev_a->env);
	} while (attr.sq_draining);
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(dev_a->ops->modify_qp(dev_a, qp, &attr, IBV_QP_STATE),
			 0);
}

/* All WAITING are in the queue. A WRITE with immediate was posted behind them
 * and its receive has completed, so they have been executed. Their completions
 * were made before the last one, which is polled for after the resize. */
__attribute__((no_sanitize("thread"))) static void load(struct pair *p)
{
	struct ibv_sge s = sge(&p->a, 0, 8);
	struct ibv_send_wr wr = rdma(IBV_WR_RDMA_READ, 99, &s, &p->b, 128);
	unsigned char was;

	write_n(p, 1, WAITING - 1);
	/* The READ's data comes back after all of them are acknowledged. */
	mem(&p->b)[128] = 0x77;
	was = mem(&p->a)[0];
	assert_int_not_equal(was, 0x77);
	post(&p->a, &wr);
	wait_byte(&p->a, 0, 0x77);
	mem(&p->a)[0] = was;
	if (harsh())
		drain(p->a.qp);
}

static void test_grow(void **state)
{
	struct pair p;
	int was;

	pair_open(&p, NULL);
	was = p.a.scq->cqe;
	load(&p);
	assert_int_equal(dev_a->ops->resize_cq(dev_a, p.a.scq, was + 100), 0);
	assert_true(p.a.scq->cqe >= was + 100);
	expect_n(&p, 1, WAITING - 1);
	expect(&p.a, p.a.scq, 99, IBV_WC_SUCCESS);
	/* It works on, over several laps. */
	for (was = 0; was < 40; was++) {
		write_n(&p, 200, 8);
		expect_n(&p, 200, 8);
	}
	expect_none(&p.a, p.a.scq);
	pair_close(&p);
}

static void test_shrink(void **state)
{
	struct pair p;
	int i;

	pair_open(&p, NULL);
	load(&p);
	assert_int_equal(dev_a->ops->resize_cq(dev_a, p.a.scq, 2), -EINVAL);
	assert_int_equal(dev_a->ops->resize_cq(dev_a, p.a.scq, 0), -EINVAL);
	expect_n(&p, 1, WAITING - 1);
	expect(&p.a, p.a.scq, 99, IBV_WC_SUCCESS);
	assert_int_equal(dev_a->ops->resize_cq(dev_a, p.a.scq, 2), 0);
	assert_true(p.a.scq->cqe >= 2);
	for (i = 0; i < 40; i++) {
		write_n(&p, 300, 2);
		expect_n(&p, 300, 2);
	}
	pair_close(&p);
}

/* Armed before, it still tells after. */
static void test_armed(void **state)
{
	struct pair p;
	struct ibv_sge s;
	struct ibv_send_wr wr;
	struct ibv_cq *cq = NULL;
	int rc;

	pair_open(&p, NULL);
	assert_int_equal(dev_req_notify_cq(p.b.rcq, 0), 0);
	assert_int_equal(dev_b->ops->resize_cq(dev_b, p.b.rcq, 3 * DEPTH), 0);
	post_recv(&p.b, 40, 0, 0);
	s = sge(&p.a, 0, 8);
	wr = rdma(IBV_WR_RDMA_WRITE_WITH_IMM, 1, &s, &p.b, 64);
	post(&p.a, &wr);
	wait_readable(p.b.ch->fd);
	rc = dev_b->ops->get_cq_event(dev_b, p.b.ch, &cq);
	assert_int_equal(rc, 0);
	assert_ptr_equal(cq, p.b.rcq);
	dev_b->ops->ack_cq_events(dev_b, cq, 1);
	expect(&p.b, p.b.rcq, 40, IBV_WC_SUCCESS);
	expect(&p.a, p.a.scq, 1, IBV_WC_SUCCESS);
	pair_close(&p);
}

/* A QP; its sends and receives complete in one CQ, with room for all. */
static void one_cq(struct end *e, uint32_t psn)
{
	struct ibv_qp_init_attr init = {.send_cq = e->scq,
					.recv_cq = e->scq,
					.qp_type = IBV_QPT_RC,
					.cap = {.max_send_wr = DEPTH,
						.max_recv_wr = DEPTH,
						.max_send_sge = 1,
						.max_recv_sge = 1}};

	assert_int_equal(e->dev->ops->destroy_qp(e->dev, e->qp), 0);
	e->qp = NULL;
	assert_int_equal(e->dev->ops->resize_cq(e->dev, e->scq, 4 * DEPTH), 0);
	assert_int_equal(
		e->dev->ops->create_qp(e->dev, e->pd, &init, 0, &e->qp), 0);
	assert_int_equal(dev_qp_init(e->dev, e->qp, IBV_ACCESS_REMOTE_WRITE),
			 0);
	dev_qp_addr(e->dev, e->qp, psn, &e->addr);
}

#define SEEN_WITHIN 20000

/* a keeps DEPTH WRITEs in flight and polls a few completions at a time; the
 * receive that b's message completes must come out among them. */
static void receive_among_sends(struct pair *p, int few)
{
	struct ibv_sge to = sge(&p->b, 0, 8);
	struct ibv_send_wr msg = {.wr_id = 7,
				  .sg_list = &to,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED};
	struct ibv_wc wc[DEPTH];
	int n, i, sends = 0, in_flight = DEPTH;
	bool seen = false;

	post_recv(&p->a, 40, 64, 64);
	write_n(p, 1, DEPTH);
	carry_out(&p->b, &msg);
	while (!seen || in_flight) {
		n = ibv_poll_cq(p->a.scq, few, wc);
		assert_true(n >= 0);
		for (i = 0; i < n; i++) {
			assert_int_equal(wc[i].status, IBV_WC_SUCCESS);
			if (wc[i].wr_id == 40) {
				seen = true;
				continue;
			}
			sends++;
			in_flight--;
			if (seen)
				continue;
			assert_true(sends < SEEN_WITHIN);
			write_n(p, 1, 1);
			in_flight++;
		}
	}
}

/* b keeps messages coming; the completion of a's one WRITE must come out among
 * their receives. */
static void send_among_receives(struct pair *p, int few)
{
	struct ibv_sge to = sge(&p->b, 0, 8);
	struct ibv_send_wr msg = {.wr_id = 7,
				  .sg_list = &to,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED};
	struct ibv_wc wc[DEPTH];
	int n, i, recvs = 0;
	bool seen = false;

	/* The first WRITE may wait for the way to be found. */
	write_n(p, 1, 1);
	expect_n(p, 1, 1);
	for (i = 0; i < DEPTH; i++)
		post_recv(&p->a, 40, 64, 64);
	for (i = 0; i < DEPTH; i++)
		carry_out(&p->b, &msg);
	write_n(p, 1, 1);
	while (!seen) {
		n = ibv_poll_cq(p->a.scq, few, wc);
		assert_true(n >= 0);
		for (i = 0; i < n; i++) {
			assert_int_equal(wc[i].status, IBV_WC_SUCCESS);
			if (wc[i].wr_id == 1) {
				seen = true;
				continue;
			}
			recvs++;
			if (seen)
				continue;
			assert_true(recvs < SEEN_WITHIN);
			post_recv(&p->a, 40, 64, 64);
			carry_out(&p->b, &msg);
		}
	}
}

static void test_fair(void **state)
{
	const int few[] = {1, 4, DEPTH};
	struct pair p;
	unsigned i;

	for (i = 0; i < 2 * sizeof(few) / sizeof(*few); i++) {
		end_open(&p.a, dev_a, 11);
		end_open(&p.b, dev_b, 22);
		one_cq(&p.a, 11);
		pair_connect(&p, NULL);
		(i % 2 ? send_among_receives : receive_among_sends)(&p,
								    few[i / 2]);
		pair_close(&p);
	}
}

static int setup(void **state)
{
	rig_setup(state);
	need(dev_a->ops->resize_cq, dev_b->ops->resize_cq, "resize_cq");
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_grow),
		cmocka_unit_test(test_shrink),
		cmocka_unit_test(test_armed),
		cmocka_unit_test(test_fair),
	};

	return cmocka_run_group_tests(tests, setup, rig_teardown);
}
