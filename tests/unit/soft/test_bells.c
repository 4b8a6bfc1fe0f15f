/* SPDX-License-Identifier: MIT */
/*
 * Channels that come and go: who rings them holds a duplicate of their
 * descriptor for as long as a QP of his may ring it, and no longer. Thousands
 * are opened and closed, on RC and on UD; the descriptors of the process are
 * counted.
 */
#include "ud_rig.h"

#include "unit/patience.h"

#include <poll.h>

#define ROUNDS 3000
/* A UD QP lets go of what it has met now and then: SOFT_BELLS_DUE, twice. */
#define SPARE 128

static struct ud_end a, b;

/* A channel, its CQ and a QP on it, for one round. */
struct round {
	struct ibv_comp_channel *ch;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

static void round_open(struct ud_end *e, struct round *r, enum ibv_qp_type type)
{
	const struct dev_ops *ops = e->r.dev->ops;
	struct ibv_qp_init_attr at = {.qp_type = type,
				      .cap = {.max_send_wr = 4,
					      .max_recv_wr = 4,
					      .max_send_sge = 1,
					      .max_recv_sge = 1}};

	assert_int_equal(ops->create_comp_channel(e->r.dev, &r->ch), 0);
	assert_int_equal(ops->create_cq(e->r.dev, 8, NULL, r->ch, &r->cq), 0);
	at.send_cq = at.recv_cq = r->cq;
	assert_int_equal(ops->create_qp(e->r.dev, e->r.pd, &at, 0, &r->qp), 0);
}

static void round_close(struct ud_end *e, struct round *r)
{
	const struct dev_ops *ops = e->r.dev->ops;

	assert_int_equal(ops->destroy_qp(e->r.dev, r->qp), 0);
	assert_int_equal(ops->destroy_cq(e->r.dev, r->cq), 0);
	assert_int_equal(ops->destroy_comp_channel(e->r.dev, r->ch), 0);
}

static void post_recv(struct ud_end *e, struct ibv_qp *qp)
{
	struct ibv_sge g = {(uintptr_t)e->r.buf, 64, e->r.lkey};
	struct ibv_recv_wr wr = {.sg_list = &g, .num_sge = 1}, *bad;

	assert_int_equal(ibv_post_recv(qp, &wr, &bad), 0);
}

/* Sockets of those who have asked are closed in their own time. */
static bool back_to(void *arg)
{
	return rig_fds() <= *(unsigned *)arg;
}

/* The channel is rung, for this CQ. */
static void heard(struct ud_end *e, struct ibv_comp_channel *ch,
		  struct ibv_cq *cq)
{
	struct pollfd p = {.fd = ch->fd, .events = POLLIN};
	struct ibv_cq *got;
	struct ibv_wc wc;

	assert_int_equal(poll(&p, 1, patience_ms(10)), 1);
	assert_int_equal(e->r.dev->ops->get_cq_event(e->r.dev, ch, &got), 0);
	assert_ptr_equal(got, cq);
	e->r.dev->ops->ack_cq_events(e->r.dev, cq, 1);
	assert_int_equal(ibv_poll_cq(cq, 1, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
}

static void say(struct ud_end *e, struct ibv_qp *qp)
{
	struct ibv_sge g = {(uintptr_t)e->r.buf, 8, e->r.lkey};
	struct ibv_send_wr wr = {.sg_list = &g,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;

	assert_int_equal(ibv_post_send(qp, &wr, &bad), 0);
}

static void meet(struct round *x, struct round *y)
{
	struct dev_qp_addr to_a, to_b;

	assert_int_equal(dev_qp_init(a.r.dev, x->qp, RIG_ACCESS), 0);
	assert_int_equal(dev_qp_init(b.r.dev, y->qp, RIG_ACCESS), 0);
	rig_qp_addr(&a.r, x->qp, &to_a);
	rig_qp_addr(&b.r, y->qp, &to_b);
	rig_connect_qp(&a.r, x->qp, &to_b);
	rig_connect_qp(&b.r, y->qp, &to_a);
}

static void rc_round(void)
{
	struct round x, y;

	round_open(&a, &x, IBV_QPT_RC);
	round_open(&b, &y, IBV_QPT_RC);
	meet(&x, &y);
	post_recv(&a, x.qp);
	assert_int_equal(ibv_req_notify_cq(x.cq, 0), 0);
	say(&b, y.qp);
	heard(&a, x.ch, x.cq);
	round_close(&a, &x);
	round_close(&b, &y);
}

static void test_rc(void **state)
{
	unsigned before, i;

	rc_round(); /* makes the peers, which stay */
	before = rig_fds();
	for (i = 0; i < ROUNDS; i++)
		rc_round();
	rig_until(back_to, &before);
}

/* RESET lets go of them, too. */
static void test_reset(void **state)
{
	struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
	struct round x, y;
	unsigned before, i;

	round_open(&b, &y, IBV_QPT_RC);
	before = rig_fds();
	for (i = 0; i < 300; i++) {
		round_open(&a, &x, IBV_QPT_RC);
		meet(&x, &y);
		round_close(&a, &x);
		assert_int_equal(b.r.dev->ops->modify_qp(b.r.dev, y.qp, &reset,
							 IBV_QP_STATE),
				 0);
	}
	rig_until(back_to, &before);
	round_close(&b, &y);
}

static void ud_round(struct round *x)
{
	round_open(&a, x, IBV_QPT_UD);
	ud_ready(&a, x->qp);
	post_recv(&a, x->qp);
	assert_int_equal(ibv_req_notify_cq(x->cq, 0), 0);
	ud_send_to(&b, x->qp->qp_num, 1, b.r.buf, 8, 0);
	rig_expect(&b.r, 1, IBV_WC_SUCCESS);
	heard(&a, x->ch, x->cq);
}

/* One that stays is rung all the while, and at the end. */
static void test_ud(void **state)
{
	struct round stays, x;
	unsigned before, i;

	ud_round(&stays);
	before = rig_fds();
	for (i = 0; i < ROUNDS; i++) {
		ud_round(&x);
		round_close(&a, &x);
		assert_true(rig_fds() <= before + SPARE);
	}
	post_recv(&a, stays.qp);
	assert_int_equal(ibv_req_notify_cq(stays.cq, 0), 0);
	ud_send_to(&b, stays.qp->qp_num, 1, b.r.buf, 8, 0);
	rig_expect(&b.r, 1, IBV_WC_SUCCESS);
	heard(&a, stays.ch, stays.cq);
	round_close(&a, &stays);
}

static int up(void **state)
{
	ud_open(&a, NULL);
	ud_open(&b, NULL);
	return 0;
}

static int down(void **state)
{
	ud_close(&a);
	ud_close(&b);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rc),
		cmocka_unit_test(test_reset),
		cmocka_unit_test(test_ud),
	};

	return cmocka_run_group_tests(tests, up, down);
}
