/* SPDX-License-Identifier: MIT */
/*
 * Kill at every instruction, for shared receive queues. A victim is stepped
 * through one message into the survivor's SRQ and stopped after the n-th
 * instruction, for every n (in steps of SKEIN_STEP_STRIDE, as in test_step.c).
 * While it is stopped the others take all that is left; once it is killed its
 * receive is either completed, whole, or to be had again. And a victim that owns
 * an SRQ is killed in its post and poll: its peer sees the end.
 */
#include "stepper.h"

#include <stdio.h>
#include <unistd.h>

#define LEN STEP_LEN
#define SLOTS 4

enum kind {
	K_SEND,
	K_WRITE_IMM,
	K_OWNER
};

struct plan {
	enum kind kind;
	enum ibv_qp_type type;
};

static struct rig_end a, b; /* the survivor, and another peer of it */
static struct ibv_srq *srq;
static struct ibv_qp *qp_b; /* a's, for b */

static struct ibv_qp *srq_qp(struct rig_end *e, struct ibv_srq *r,
			     enum ibv_qp_type type)
{
	struct ibv_qp_init_attr at = {.send_cq = e->cq,
				      .recv_cq = e->cq,
				      .srq = r,
				      .qp_type = type,
				      .cap = {.max_send_wr = 32,
					      .max_send_sge = 2}};
	struct ibv_qp *qp = NULL;

	assert_int_equal(e->dev->ops->create_qp(e->dev, e->pd, &at, 0, &qp), 0);
	assert_int_equal(dev_qp_init(e->dev, qp, RIG_ACCESS), 0);
	return qp;
}

static int srq_post(struct rig_end *e, struct ibv_srq *r, uint64_t id)
{
	struct ibv_sge sge = {(uintptr_t)e->buf + 4096 + 64 * id, 64,
			      e->mem->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1},
			   *bad;

	return ibv_post_srq_recv(r, &wr, &bad);
}

static struct ibv_srq *srq_new(struct rig_end *e)
{
	struct ibv_srq_init_attr at = {.attr = {.max_wr = SLOTS, .max_sge = 1}};
	struct ibv_srq *r = NULL;

	assert_int_equal(e->dev->ops->create_srq(e->dev, e->pd, &at, &r), 0);
	assert_int_equal(at.attr.max_wr, SLOTS);
	return r;
}

/* --- the victim --------------------------------------------------------- */

static void victim_sends(struct rig_end *e, int sock, const struct plan *plan,
			 const struct rig_addr *peer)
{
	struct ibv_sge sge = {(uintptr_t)e->buf, LEN, e->mem->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 1,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = plan->kind == K_SEND
						   ? IBV_WR_SEND
						   : IBV_WR_RDMA_WRITE_WITH_IMM,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	struct ibv_wc wc;

	wr.wr.rdma.remote_addr = peer->buf;
	wr.wr.rdma.rkey = peer->rkey;
	/* The peer's memory is mapped, all code has run once. */
	if (ibv_post_send(e->qp, &wr, &bad))
		_exit(1);
	rig_wait(e, &wc);
	if (wc.status)
		_exit(2);
	step_pattern(e->buf, 9);
	rig_put(sock, "w", 1);
	rig_get(sock, &wc, 1);
	step_begin();
	ibv_post_send(e->qp, &wr, &bad);
	ibv_poll_cq(e->cq, 1, &wc);
}

static void victim_owns(struct rig_end *e, int sock, struct ibv_srq *r)
{
	struct ibv_wc wc;

	srq_post(e, r, 0);
	srq_post(e, r, 1);
	rig_put(sock, "w", 1);
	rig_wait(e, &wc);
	rig_get(sock, &wc, 1);
	step_begin();
	srq_post(e, r, 2);
	ibv_poll_cq(e->cq, 1, &wc);
	ibv_poll_cq(e->cq, 1, &wc);
}

static void victim(int sock, void *arg)
{
	const struct plan *plan = arg;
	struct rig_opts o = {.type = plan->type};
	struct rig_addr mine, peer;
	struct ibv_srq *r = NULL;
	struct rig_end e;

	rig_open(&e, &o);
	if (plan->kind == K_OWNER) {
		r = srq_new(&e);
		assert_int_equal(e.dev->ops->destroy_qp(e.dev, e.qp), 0);
		e.qp = srq_qp(&e, r, plan->type);
	}
	rig_addr(&e, &mine);
	rig_put(sock, &mine, sizeof(mine));
	rig_get(sock, &peer, sizeof(peer));
	rig_connect(&e, &peer);
	rig_get(sock, &mine, 1);
	if (r)
		victim_owns(&e, sock, r);
	else
		victim_sends(&e, sock, plan, &peer);
	step_end();
}

/* --- the survivor ------------------------------------------------------- */

struct run {
	struct step_run s;
	struct ibv_qp *qp;
	struct plan plan;
};

static void begin(struct step_run *s)
{
	struct run *r = (struct run *)s;
	struct plan *plan = &r->plan;
	struct ibv_qp *own = a.qp;
	struct rig_addr mine, peer;

	a.o.type = plan->type;
	r->qp = plan->kind == K_OWNER ? rig_qp(&a)
				      : srq_qp(&a, srq, plan->type);
	rig_fork(&s->c, victim, plan);
	a.qp = r->qp;
	rig_addr(&a, &mine);
	rig_get(s->c.sock, &peer, sizeof(peer));
	rig_put(s->c.sock, &mine, sizeof(mine));
	rig_connect(&a, &peer);
	memset(a.buf, 0, 8192);
	rig_put(s->c.sock, "g", 1);
	rig_get(s->c.sock, &mine, 1);
	if (plan->kind == K_OWNER) {
		/* one to be polled before, one in the steps */
		rig_post(&a, IBV_WR_SEND, 1, a.buf, LEN, 0, 0, 0);
		rig_post(&a, IBV_WR_SEND, 2, a.buf, LEN, 0, 0,
			 IBV_SEND_SIGNALED);
		rig_expect(&a, 2, IBV_WC_SUCCESS);
	} else {
		struct ibv_wc wc;

		rig_wait(&a, &wc);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(srq_post(&a, srq, wc.wr_id), 0);
	}
	memset(a.buf, 0, 8192);
	rig_put(s->c.sock, "g", 1);
	a.qp = own;
	step_await(&s->c);
}

/* What the receives said so far. */
struct seen {
	unsigned victims, others;
	bool id[SLOTS];
};

static bool take(struct run *r, struct seen *s)
{
	char want[LEN];
	struct ibv_wc wc;
	int n = ibv_poll_cq(a.cq, 1, &wc);

	assert_true(n >= 0);
	if (!n)
		return false;
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_true(wc.wr_id < SLOTS && !s->id[wc.wr_id]);
	s->id[wc.wr_id] = true;
	if (wc.qp_num != r->qp->qp_num) {
		assert_int_equal(wc.qp_num, qp_b->qp_num);
		step_pattern(want, 100 + s->others++);
		assert_memory_equal(a.buf + 4096 + 64 * wc.wr_id, want, LEN);
		return true;
	}
	assert_int_equal(s->victims++, 0);
	assert_int_equal(wc.byte_len, LEN);
	step_pattern(want, 9);
	assert_memory_equal(
		r->plan.kind == K_SEND ? a.buf + 4096 + 64 * wc.wr_id : a.buf,
		want, LEN);
	return true;
}

static void b_sends(unsigned n)
{
	step_pattern(b.buf, 100 + n);
	assert_int_equal(rig_post(&b, IBV_WR_SEND, n, b.buf, LEN, 0, 0,
				  IBV_SEND_SIGNALED),
			 0);
}

/* All but the victim's one can be had while it is stopped, whatever it has
 * begun; and that one too, after its death or its message. */
static void end_sender(struct run *r)
{
	struct seen s = {0};
	unsigned i;

	for (i = 0; i < SLOTS - 1; i++) {
		b_sends(i);
		rig_expect(&b, i, IBV_WC_SUCCESS);
	}
	while (take(r, &s))
		;
	assert_int_equal(s.others, SLOTS - 1);
	step_kill(&r->s.c);
	if (r->plan.type == IBV_QPT_UC) /* which nobody tells */
		assert_int_equal(dev_qp_err(a.dev, r->qp), 0);
	else
		rig_async(&a, IBV_EVENT_QP_FATAL);
	rig_async(&a, IBV_EVENT_QP_LAST_WQE_REACHED);
	while (take(r, &s))
		;
	if (!s.victims) {
		b_sends(SLOTS - 1);
		rig_expect(&b, SLOTS - 1, IBV_WC_SUCCESS);
		assert_true(take(r, &s));
	}
	assert_int_equal(s.others + s.victims, SLOTS);
	assert_true(rig_quiet(&a));
	assert_int_equal(a.dev->ops->destroy_qp(a.dev, r->qp), 0);
	for (i = 0; i < SLOTS; i++)
		assert_int_equal(srq_post(&a, srq, i), 0);
}

static void end_owner(struct run *r)
{
	struct ibv_qp *own = a.qp;
	struct ibv_wc wc;

	step_kill(&r->s.c);
	rig_async(&a, IBV_EVENT_QP_FATAL);
	a.qp = r->qp;
	assert_int_equal(rig_post(&a, IBV_WR_SEND, 7, a.buf, LEN, 0, 0,
				  IBV_SEND_SIGNALED),
			 0);
	rig_expect(&a, 7, IBV_WC_WR_FLUSH_ERR);
	a.qp = own;
	assert_int_equal(a.dev->ops->destroy_qp(a.dev, r->qp), 0);
	b_sends(0);
	rig_expect(&b, 0, IBV_WC_SUCCESS);
	assert_int_equal(srq_post(&a, srq, 0), ENOMEM);
	rig_wait(&a, &wc);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(srq_post(&a, srq, wc.wr_id), 0);
}

static void end(struct step_run *s)
{
	struct run *r = (struct run *)s;

	if (r->plan.kind == K_OWNER)
		end_owner(r);
	else
		end_sender(r);
}

static void sweep(enum kind k, enum ibv_qp_type type)
{
	struct run r = {.s = {.begin = begin, .end = end}, .plan = {k, type}};

	step_sweep(&r.s);
}

static void test_send(void **state)
{
	sweep(K_SEND, IBV_QPT_RC);
}

static void test_write_imm(void **state)
{
	sweep(K_WRITE_IMM, IBV_QPT_RC);
}

static void test_uc_send(void **state)
{
	sweep(K_SEND, IBV_QPT_UC);
}

static void test_owner(void **state)
{
	sweep(K_OWNER, IBV_QPT_RC);
}

static int up(void **state)
{
	struct dev_qp_addr to_a, to_b;
	unsigned i;

	rig_open(&a, NULL);
	rig_open(&b, NULL);
	srq = srq_new(&a);
	qp_b = srq_qp(&a, srq, IBV_QPT_RC);
	rig_qp_addr(&a, qp_b, &to_a);
	rig_qp_addr(&b, b.qp, &to_b);
	rig_connect_qp(&a, qp_b, &to_b);
	rig_connect_qp(&b, b.qp, &to_a);
	for (i = 0; i < SLOTS; i++)
		assert_int_equal(srq_post(&a, srq, i), 0);
	/* mapped once */
	b_sends(0);
	rig_expect(&b, 0, IBV_WC_SUCCESS);
	rig_expect(&a, 0, IBV_WC_SUCCESS);
	return srq_post(&a, srq, 0);
}

static int down(void **state)
{
	assert_int_equal(a.dev->ops->destroy_qp(a.dev, qp_b), 0);
	assert_int_equal(a.dev->ops->destroy_srq(a.dev, srq), 0);
	rig_unpair(&a, &b);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_send),
		cmocka_unit_test(test_write_imm),
		cmocka_unit_test(test_uc_send),
		cmocka_unit_test(test_owner),
	};

	return cmocka_run_group_tests(tests, up, down);
}
