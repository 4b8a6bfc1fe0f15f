/* SPDX-License-Identifier: MIT */
/*
 * Kill at every instruction. A victim process is single-stepped through post
 * and poll of one operation and killed after the n-th instruction, for every
 * n (in steps of SKEIN_STEP_STRIDE: default 37, and 1 in `make soak`). Its peer
 * sees the completion with all of the data, or the error, and soon; its other
 * QPs go on. The same harness counts the instructions of a post.
 */
#include "stepper.h"

#include "unit/patience.h"

#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#define LEN STEP_LEN

enum kind {
	K_WRITE,
	K_WRITE_IMM,
	K_SEND,
	K_READ,
	K_FETCH_ADD,
	K_CMP_SWP,
	K_RECV,
	K_SEND_EVENT, /* the receiver sleeps on its channel */
	K_NOTHING,
	K_POST8, /* the post of 8 bytes alone */
};

struct plan {
	enum kind kind;
	struct rig_opts o;
};

static struct rig_end a, b; /* the survivor, and another pair with it */

/* A request, made before the stepping begins: only the device is counted. */
struct request {
	struct ibv_sge sge;
	struct ibv_send_wr wr, *bad;
};

static void prepare(struct request *r, struct rig_end *e, enum ibv_wr_opcode op,
		    const struct rig_addr *peer, uint32_t len)
{
	memset(r, 0, sizeof(*r));
	r->sge = (struct ibv_sge){(uintptr_t)e->buf, len, e->mem->mr->lkey};
	r->wr.wr_id = 1;
	r->wr.sg_list = &r->sge;
	r->wr.num_sge = 1;
	r->wr.opcode = op;
	r->wr.send_flags = IBV_SEND_SIGNALED;
	r->wr.imm_data = 7;
	if (op >= IBV_WR_ATOMIC_CMP_AND_SWP) {
		r->wr.wr.atomic.remote_addr = peer->buf;
		r->wr.wr.atomic.rkey = peer->rkey;
		r->wr.wr.atomic.swap = 5;
		if (op == IBV_WR_ATOMIC_FETCH_AND_ADD)
			r->wr.wr.atomic.compare_add = 5;
	} else {
		r->wr.wr.rdma.remote_addr = peer->buf;
		r->wr.wr.rdma.rkey = peer->rkey;
	}
}

static const enum ibv_wr_opcode ops[] = {
	[K_WRITE] = IBV_WR_RDMA_WRITE,
	[K_WRITE_IMM] = IBV_WR_RDMA_WRITE_WITH_IMM,
	[K_SEND] = IBV_WR_SEND,
	[K_READ] = IBV_WR_RDMA_READ,
	[K_FETCH_ADD] = IBV_WR_ATOMIC_FETCH_AND_ADD,
	[K_CMP_SWP] = IBV_WR_ATOMIC_CMP_AND_SWP,
	[K_RECV] = IBV_WR_SEND,
	[K_SEND_EVENT] = IBV_WR_SEND,
	[K_NOTHING] = IBV_WR_SEND,
	[K_POST8] = IBV_WR_RDMA_WRITE,
};

static void victim(int sock, void *arg)
{
	const struct plan *plan = arg;
	enum kind k = plan->kind;
	uint32_t len =
		k == K_POST8 || k == K_FETCH_ADD || k == K_CMP_SWP ? 8 : LEN;
	struct rig_addr peer;
	struct request r;
	struct rig_end e;
	struct ibv_wc wc;

	rig_meet(&e, sock, &plan->o, &peer);
	/* The peer's memory is mapped and all code has run once. */
	rig_get(sock, &wc, 1);
	prepare(&r, &e, ops[k], &peer, len);
	if (k != K_RECV && k != K_NOTHING) {
		if (ibv_post_send(e.qp, &r.wr, &r.bad))
			_exit(1);
		rig_wait(&e, &wc);
		if (wc.status)
			_exit(2);
	}
	step_pattern(e.buf, 9);
	rig_put(sock, "w", 1);
	rig_get(sock, &wc, 1);
	step_begin();
	if (k == K_RECV)
		rig_recv(&e, 1, e.buf, LEN);
	else if (k != K_NOTHING)
		ibv_post_send(e.qp, &r.wr, &r.bad);
	if (k != K_NOTHING && k != K_POST8)
		ibv_poll_cq(e.cq, 1, &wc);
	step_end();
}

struct run {
	struct step_run s;
	struct plan plan;
	struct ibv_qp *qp;
};

/* Up to the point where the victim waits to be stepped. */
static void begin(struct step_run *s)
{
	struct run *r = (struct run *)s;
	struct plan *plan = &r->plan;
	struct rig_addr mine, peer;
	struct ibv_qp *own = a.qp;

	a.o.type = plan->o.type;
	r->qp = rig_qp(&a);
	rig_fork(&s->c, victim, plan);
	a.qp = r->qp;
	rig_addr(&a, &mine);
	rig_get(s->c.sock, &peer, sizeof(peer));
	rig_put(s->c.sock, &mine, sizeof(mine));
	rig_connect(&a, &peer);
	memset(a.buf, 0, 4096);
	rig_recv(&a, 50, a.buf + 1024, LEN);
	rig_recv(&a, 51, a.buf + 1024, LEN);
	rig_put(s->c.sock, "g", 1);
	rig_get(s->c.sock, &mine, 1);
	if (plan->kind == K_WRITE_IMM || plan->kind == K_SEND ||
	    plan->kind == K_SEND_EVENT)
		rig_expect(&a, 50, IBV_WC_SUCCESS);
	memset(a.buf, 0, 4096);
	if (plan->kind == K_SEND_EVENT)
		assert_int_equal(ibv_req_notify_cq(a.cq, 0), 0);
	rig_put(s->c.sock, "g", 1);
	a.qp = own;
	step_await(&s->c);
}

static bool is_err(void *arg)
{
	struct ibv_qp *qp = arg;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	a.dev->ops->query_qp(a.dev, qp, &attr, IBV_QP_STATE, &init);
	return attr.qp_state == IBV_QPS_ERR;
}

/* The word of an atomic, or what a WRITE left: all, nothing, or a beginning
 * of it (the tail last). */
static void check_memory(enum kind k)
{
	char want[LEN];
	uint64_t word;
	int i = 0;

	step_pattern(want, 9);
	memcpy(&word, a.buf, 8);
	switch (k) {
	case K_FETCH_ADD:
	case K_CMP_SWP:
		assert_true(word == 0 || word == 5);
		return;
	case K_WRITE:
	case K_WRITE_IMM:
		while (i < LEN && a.buf[i] == want[i])
			i++;
		for (; i < LEN; i++)
			assert_int_equal(a.buf[i], 0);
		return;
	default:
		return;
	}
}

/* What the receives say: the message whole, or flushed. */
static void check_receives(enum kind k)
{
	bool message = k == K_WRITE_IMM || k == K_SEND || k == K_SEND_EVENT;
	char want[LEN];
	struct ibv_wc wc;
	int flushed = 0;

	step_pattern(want, 9);
	if (k == K_SEND_EVENT) {
		struct pollfd p = {.fd = a.ch->fd, .events = POLLIN};
		struct ibv_cq *cq;

		assert_int_equal(poll(&p, 1, patience_ms(10)), 1);
		assert_int_equal(a.dev->ops->get_cq_event(a.dev, a.ch, &cq), 0);
		a.dev->ops->ack_cq_events(a.dev, cq, 1);
	}
	do {
		rig_wait(&a, &wc);
		if (wc.status == IBV_WC_WR_FLUSH_ERR) {
			flushed++;
			continue;
		}
		assert_true(message);
		assert_int_equal(flushed, 0);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.byte_len, LEN);
		assert_memory_equal(k == K_WRITE_IMM ? a.buf : a.buf + 1024,
				    want, LEN);
	} while (wc.wr_id != 51);
}

static void end(struct step_run *s)
{
	struct run *r = (struct run *)s;
	enum kind k = r->plan.kind;

	step_kill(&s->c);
	if (r->qp->qp_type == IBV_QPT_UC) /* which nobody tells */
		assert_int_equal(dev_qp_err(a.dev, r->qp), 0);
	/* noticed without traffic */
	rig_until(is_err, r->qp);
	check_receives(k);
	check_memory(k);
	assert_int_equal(a.dev->ops->probe(a.dev, r->qp), -ENOTCONN);
	if (r->qp->qp_type != IBV_QPT_UC)
		rig_async(&a, IBV_EVENT_QP_FATAL);
	assert_int_equal(a.dev->ops->destroy_qp(a.dev, r->qp), 0);
	/* the others go on */
	assert_int_equal(rig_post(&b, IBV_WR_SEND, 3, b.buf, 8, 0, 0,
				  IBV_SEND_SIGNALED),
			 0);
	rig_expect(&b, 3, IBV_WC_SUCCESS);
	rig_expect(&a, 60, IBV_WC_SUCCESS);
	assert_int_equal(rig_recv(&a, 60, a.buf + 2048, 64), 0);
}

static void run_init(struct run *r, enum kind k, const struct rig_opts *o)
{
	*r = (struct run){.s = {.begin = begin, .end = end},
			  .plan = {.kind = k, .o = *o}};
}

static void sweep(enum kind k, unsigned flags)
{
	struct run r;

	run_init(&r, k, &(struct rig_opts){.flags = flags});
	step_sweep(&r.s);
}

static void test_write(void **state)
{
	sweep(K_WRITE, 0);
}

static void test_write_single(void **state)
{
	sweep(K_WRITE, DEV_QP_SINGLE_THREADED);
}

static void test_write_imm(void **state)
{
	sweep(K_WRITE_IMM, 0);
}

static void test_send(void **state)
{
	sweep(K_SEND, 0);
}

static void test_send_event(void **state)
{
	sweep(K_SEND_EVENT, 0);
}

static void test_read(void **state)
{
	sweep(K_READ, 0);
}

static void test_fetch_add(void **state)
{
	sweep(K_FETCH_ADD, 0);
}

static void test_cmp_swp(void **state)
{
	sweep(K_CMP_SWP, 0);
}

static void test_recv(void **state)
{
	sweep(K_RECV, 0);
}

static void sweep_uc(enum kind k)
{
	struct run r;

	run_init(&r, k, &(struct rig_opts){.type = IBV_QPT_UC});
	step_sweep(&r.s);
}

static void test_uc_write_imm(void **state)
{
	sweep_uc(K_WRITE_IMM);
}

static void test_uc_send(void **state)
{
	sweep_uc(K_SEND);
}

static long count(enum kind k, unsigned flags)
{
	struct run r;

	run_init(&r, k, &(struct rig_opts){.flags = flags});
	return step_count(&r.s);
}

/* The bar of docs/measurements/performance.md: a count, not a time. */
static void test_cost(void **state)
{
	long nothing = count(K_NOTHING, 0);
	long single = count(K_POST8, DEV_QP_SINGLE_THREADED) - nothing;
	long shared = count(K_POST8, 0) - nothing;

	print_message("  post of 8 B: %ld instructions (single-threaded), %ld "
		      "(shared)\n",
		      single, shared);
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && \
	!defined(__SANITIZE_THREAD__)
	assert_true(single <= 300);
	assert_true(shared <= 300);
#endif
}

static int up(void **state)
{
	rig_pair(&a, &b, NULL);
	return rig_recv(&a, 60, a.buf + 2048, 64);
}

static int down(void **state)
{
	rig_unpair(&a, &b);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cost),
		cmocka_unit_test(test_write),
		cmocka_unit_test(test_write_single),
		cmocka_unit_test(test_write_imm),
		cmocka_unit_test(test_send),
		cmocka_unit_test(test_send_event),
		cmocka_unit_test(test_read),
		cmocka_unit_test(test_fetch_add),
		cmocka_unit_test(test_cmp_swp),
		cmocka_unit_test(test_recv),
		cmocka_unit_test(test_uc_write_imm),
		cmocka_unit_test(test_uc_send),
	};

	return cmocka_run_group_tests(tests, up, down);
}
