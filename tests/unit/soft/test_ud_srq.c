/* SPDX-License-Identifier: MIT */
/*
 * UD QPs on a shared receive queue: many of them, beside RC QPs of the same
 * SRQ; what is dropped, what fails, and what stays when one of them goes.
 */
#include "ud_rig.h"

#include "dev/soft/soft.h"

#define SENDERS 3
#define QPS 24

static struct ud_end a, b; /* the SRQ is a's */

static int up(void **state)
{
	ud_open_srq(&a, NULL);
	ud_open(&b, NULL);
	return 0;
}

static int down(void **state)
{
	ud_close(&a);
	ud_close(&b);
	return 0;
}

static void expect_from(struct ud_end *e, struct ibv_cq *cq, uint32_t qpn,
			uint32_t src, struct ibv_wc *wc)
{
	struct rig_end on = e->r;

	on.cq = cq;
	rig_wait(&on, wc);
	assert_int_equal(wc->status, IBV_WC_SUCCESS);
	assert_int_equal(wc->opcode, IBV_WC_RECV);
	assert_int_equal(wc->qp_num, qpn);
	assert_int_equal(wc->src_qp, src);
	assert_true(wc->wc_flags & IBV_WC_GRH);
	assert_int_equal(wc->sl, 8 + 2); /* 127.0.0.1: UDP over IPv4 */
}

/* Sends the number n to a QP of a's. */
static void send_n(struct ud_end *e, uint32_t qpn, uint32_t n)
{
	memcpy(e->r.buf, &n, 4);
	ud_send_to(e, qpn, 7, e->r.buf, 4, IBV_SEND_INLINE);
	rig_expect(&e->r, 7, IBV_WC_SUCCESS);
}

static uint32_t number_at(struct ud_end *e, uint64_t id)
{
	uint32_t n;

	memcpy(&n, e->r.buf + id * 64 + 40, 4);
	return n;
}

/* All of the SRQ's receives, 64 bytes each, are posted. */
static void fill(struct ud_end *e)
{
	uint64_t i;

	for (i = 0; i < RIG_WR; i++)
		ud_recv(e, i, i * 64, 64);
}

static bool nothing_waits(void *arg)
{
	struct ud_end *e = arg;

	return !atomic_load(&soft_of_dev(e->r.dev)->ud_waits);
}

/* Each receive is there once: so many messages come, and no more. Messages that
 * the sender keeps, as it still looks for the QP, are dropped before the next
 * receives are posted. */
static void expect_full(struct ud_end *to, struct ud_end *from)
{
	bool seen[RIG_WR] = {false};
	struct ibv_wc wc;
	uint32_t i;

	for (i = 0; i < RIG_WR + 3; i++)
		send_n(from, to->r.qp->qp_num, i);
	rig_until(nothing_waits, from);
	for (i = 0; i < RIG_WR; i++) {
		expect_from(to, to->r.cq, to->r.qp->qp_num, from->r.qp->qp_num,
			    &wc);
		assert_true(wc.wr_id < RIG_WR && !seen[wc.wr_id]);
		seen[wc.wr_id] = true;
		assert_int_equal(number_at(to, wc.wr_id), i);
	}
	assert_true(rig_quiet(&to->r));
}

static void test_order_and_drop(void **state)
{
	int round;

	for (round = 0; round < 5; round++) {
		fill(&a);
		expect_full(&a, &b);
	}
}

/* Every QP gets its own, from every sender in order, on two CQs. */
static void test_many(void **state)
{
	const struct dev_ops *ops = a.r.dev->ops;
	struct ibv_cq *cq2, *cq[QPS], *own = a.r.cq;
	uint32_t next[QPS][SENDERS], round, i, j, got;
	struct ud_end from[SENDERS];
	struct ibv_qp *qp[QPS];
	struct ibv_wc wc;

	assert_int_equal(ops->create_cq(a.r.dev, 256, NULL, NULL, &cq2), 0);
	for (i = 0; i < QPS; i++) {
		a.r.cq = cq[i] = i % 2 ? cq2 : own;
		qp[i] = ud_qp(&a);
		ud_ready(&a, qp[i]);
	}
	a.r.cq = own;
	for (j = 0; j < SENDERS; j++)
		ud_open(&from[j], NULL);
	memset(next, 0, sizeof(next));
	fill(&a);
	for (round = 0; round < 40; round++) {
		/* no more than there are receives */
		for (i = 0; i < RIG_WR / SENDERS; i++)
			for (j = 0; j < SENDERS; j++)
				send_n(&from[j],
				       qp[(round * 7 + i) % QPS]->qp_num,
				       round);
		for (got = 0; got < RIG_WR / SENDERS * SENDERS;) {
			for (i = 0; i < QPS; i++) {
				if (!ibv_poll_cq(cq[i], 1, &wc))
					continue;
				got++;
				assert_int_equal(wc.status, IBV_WC_SUCCESS);
				assert_true(number_at(&a, wc.wr_id) == round);
				for (j = 0; j < QPS; j++)
					if (qp[j]->qp_num == wc.qp_num)
						break;
				assert_true(j < QPS && cq[j] == cq[i]);
				for (j = 0; j < SENDERS; j++)
					if (from[j].r.qp->qp_num == wc.src_qp)
						break;
				assert_true(j < SENDERS);
				ud_recv(&a, wc.wr_id, wc.wr_id * 64, 64);
			}
		}
	}
	for (j = 0; j < SENDERS; j++)
		ud_close(&from[j]);
	for (i = 0; i < QPS; i++)
		assert_int_equal(ops->destroy_qp(a.r.dev, qp[i]), 0);
	assert_int_equal(ops->destroy_cq(a.r.dev, cq2), 0);
	/* and nothing is lost */
	expect_full(&a, &b);
}

static void set_limit(uint32_t n)
{
	struct ibv_srq_attr at = {.srq_limit = n};

	assert_int_equal(a.r.dev->ops->modify_srq(a.r.dev, a.srq, &at,
						  IBV_SRQ_LIMIT),
			 0);
}

static void test_limit(void **state)
{
	struct ibv_async_event ev;
	struct ibv_wc wc;
	uint32_t i;

	fill(&a);
	set_limit(10);
	for (i = 0; i < RIG_WR - 10; i++)
		send_n(&b, a.r.qp->qp_num, i);
	assert_int_equal(a.r.dev->ops->get_async_event(a.r.dev, &ev), -EAGAIN);
	send_n(&b, a.r.qp->qp_num, i);
	rig_async(&a.r, IBV_EVENT_SRQ_LIMIT_REACHED);
	for (i++; i < RIG_WR; i++)
		send_n(&b, a.r.qp->qp_num, i);
	for (i = 0; i < RIG_WR; i++)
		expect_from(&a, a.r.cq, a.r.qp->qp_num, b.r.qp->qp_num, &wc);
	assert_int_equal(a.r.dev->ops->get_async_event(a.r.dev, &ev), -EAGAIN);
	/* already below: at once */
	set_limit(1);
	rig_async(&a.r, IBV_EVENT_SRQ_LIMIT_REACHED);
}

static struct ibv_qp *rc_qp(struct ud_end *e)
{
	struct ibv_qp_init_attr at = {.send_cq = e->r.cq,
				      .recv_cq = e->r.cq,
				      .srq = e->srq,
				      .qp_type = IBV_QPT_RC,
				      .cap = {.max_send_wr = 32,
					      .max_send_sge = 2}};
	struct ibv_qp *qp;

	assert_int_equal(
		e->r.dev->ops->create_qp(e->r.dev, e->r.pd, &at, 0, &qp), 0);
	assert_int_equal(dev_qp_init(e->r.dev, qp, RIG_ACCESS), 0);
	return qp;
}

/* A datagram that nobody polls for waits while the messages of an RC QP go
 * round the queue many times. */
static void test_beside_rc(void **state)
{
	struct dev_qp_addr to_a, to_c;
	struct ibv_qp *qp = rc_qp(&a), *ud;
	struct ibv_cq *cq2, *own = a.r.cq;
	struct rig_end c;
	struct ibv_wc wc;
	uint32_t i;

	assert_int_equal(
		a.r.dev->ops->create_cq(a.r.dev, 256, NULL, NULL, &cq2), 0);
	a.r.cq = cq2;
	ud = ud_qp(&a);
	a.r.cq = own;
	ud_ready(&a, ud);
	rig_open(&c, NULL);
	rig_qp_addr(&a.r, qp, &to_a);
	rig_qp_addr(&c, c.qp, &to_c);
	rig_connect_qp(&a.r, qp, &to_c);
	rig_connect_qp(&c, c.qp, &to_a);
	fill(&a);
	send_n(&b, ud->qp_num, 1000);
	for (i = 0; i < 20 * RIG_WR; i++) {
		assert_int_equal(rig_post(&c, IBV_WR_SEND, i, c.buf, 8, 0, 0,
					  IBV_SEND_SIGNALED),
				 0);
		rig_expect(&c, i, IBV_WC_SUCCESS);
		rig_wait(&a.r, &wc);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.qp_num, qp->qp_num);
		ud_recv(&a, wc.wr_id, wc.wr_id * 64, 64);
		if (i % 97 == 0)
			send_n(&b, ud->qp_num, 1001 + i / 97);
	}
	for (i = 0; i < 1 + (20 * RIG_WR + 96) / 97; i++) {
		expect_from(&a, cq2, ud->qp_num, b.r.qp->qp_num, &wc);
		assert_int_equal(number_at(&a, wc.wr_id), 1000 + i);
		ud_recv(&a, wc.wr_id, wc.wr_id * 64, 64);
	}
	assert_int_equal(a.r.dev->ops->destroy_qp(a.r.dev, ud), 0);
	assert_int_equal(a.r.dev->ops->destroy_qp(a.r.dev, qp), 0);
	assert_int_equal(a.r.dev->ops->destroy_cq(a.r.dev, cq2), 0);
	rig_close(&c);
	expect_full(&a, &b);
}

/* Sends until b knows where the QP is. */
static void meet(struct ibv_qp *qp)
{
	struct ibv_wc wc;

	do {
		send_n(&b, qp->qp_num, 0);
		rig_until(nothing_waits, &b);
	} while (!ibv_poll_cq(a.r.cq, 1, &wc));
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.qp_num, qp->qp_num);
	ud_recv(&a, wc.wr_id, wc.wr_id * 64, 64);
	assert_true(rig_quiet(&a.r));
}

/* One QP's way to ERR, RESET and its end: what was completed is polled or
 * forgotten; the receives stay with the others. */
static void test_states(void **state)
{
	struct ibv_qp *own = a.r.qp, *qp = ud_qp(&a);
	struct ibv_wc wc;

	ud_ready(&a, qp);
	fill(&a);
	meet(qp);
	send_n(&b, qp->qp_num, 1);
	a.r.qp = qp;
	ud_state(&a, IBV_QPS_ERR);
	rig_async(&a.r, IBV_EVENT_QP_LAST_WQE_REACHED);
	send_n(&b, qp->qp_num, 2);
	expect_from(&a, a.r.cq, qp->qp_num, b.r.qp->qp_num, &wc);
	assert_int_equal(number_at(&a, wc.wr_id), 1);
	ud_recv(&a, wc.wr_id, wc.wr_id * 64, 64);
	assert_true(rig_quiet(&a.r)); /* no receive is flushed */
	/* another life; what is not polled is forgotten, its receive free */
	ud_state(&a, IBV_QPS_RESET);
	ud_ready(&a, qp);
	meet(qp);
	send_n(&b, qp->qp_num, 3);
	ud_state(&a, IBV_QPS_RESET);
	assert_true(rig_quiet(&a.r));
	ud_recv(&a, 0, 0, 64);
	ud_ready(&a, qp);
	meet(qp);
	a.r.qp = own;
	send_n(&b, qp->qp_num, 4);
	assert_int_equal(a.r.dev->ops->destroy_qp(a.r.dev, qp), 0);
	assert_true(rig_quiet(&a.r));
	ud_recv(&a, 0, 0, 64);
	/* so many are there, whatever their ids are now */
	for (int i = 0; i < RIG_WR; i++) {
		send_n(&b, own->qp_num, 5);
		expect_from(&a, a.r.cq, own->qp_num, b.r.qp->qp_num, &wc);
	}
	send_n(&b, own->qp_num, 6);
	assert_true(rig_quiet(&a.r));
}

/* A receive that is nobody's memory breaks the QP that took it, no other. */
static void test_bad_receive(void **state)
{
	struct ibv_qp *own = a.r.qp, *qp;
	uint32_t lkey = a.r.lkey;
	struct ibv_wc wc;
	struct ud_end c;

	ud_open_srq(&c, NULL);
	own = c.r.qp;
	qp = ud_qp(&c);
	ud_ready(&c, qp);
	lkey = c.r.lkey;
	c.r.lkey = lkey + 1;
	ud_recv(&c, 1, 0, 64);
	c.r.lkey = lkey;
	ud_recv(&c, 2, 2 * 64, 64);
	send_n(&b, qp->qp_num, 1);
	rig_wait(&c.r, &wc);
	assert_int_equal(wc.wr_id, 1);
	assert_int_equal(wc.status, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(wc.qp_num, qp->qp_num);
	rig_async(&c.r, IBV_EVENT_QP_LAST_WQE_REACHED);
	c.r.qp = qp;
	assert_int_equal(ud_query(&c), IBV_QPS_ERR);
	c.r.qp = own;
	send_n(&b, own->qp_num, 2);
	expect_from(&c, c.r.cq, own->qp_num, b.r.qp->qp_num, &wc);
	assert_int_equal(wc.wr_id, 2);
	assert_int_equal(c.r.dev->ops->destroy_qp(c.r.dev, qp), 0);
	ud_close(&c);
}

static void test_refused(void **state)
{
	struct ibv_recv_wr wr = {.wr_id = 1}, *bad = NULL;
	struct ibv_srq_attr at = {.max_wr = 128};

	assert_int_equal(ibv_post_recv(a.r.qp, &wr, &bad), EINVAL);
	assert_ptr_equal(bad, &wr);
	assert_int_equal(a.r.dev->ops->destroy_srq(a.r.dev, a.srq), -EBUSY);
	/* no IBV_DEVICE_SRQ_RESIZE */
	assert_int_equal(a.r.dev->ops->modify_srq(a.r.dev, a.srq, &at,
						  IBV_SRQ_MAX_WR),
			 -EOPNOTSUPP);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order_and_drop),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_limit),
		cmocka_unit_test(test_beside_rc),
		cmocka_unit_test(test_states),
		cmocka_unit_test(test_bad_receive),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, up, down);
}
