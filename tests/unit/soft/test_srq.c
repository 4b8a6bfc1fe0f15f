/* SPDX-License-Identifier: MIT */
/*
 * Shared receive queues: order, limits, what becomes of receives that were
 * claimed, and whose they are at the end.
 */
#include "rig.h"

#include "unit/patience.h"

#include "dev/soft/srq/srq.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define SLOTS 16
#define QPS 8

/* b owns the SRQ and one QP for each of a's. */
static struct rig_end a, b;
static struct ibv_srq *srq;
static struct ibv_qp *qa[QPS], *qb[QPS], *own_a, *own_b;

static struct ibv_srq *srq_new(struct rig_end *e, uint32_t wr)
{
	struct ibv_srq_init_attr at = {.attr = {.max_wr = wr, .max_sge = 2}};
	struct ibv_srq *r = NULL;

	assert_int_equal(e->dev->ops->create_srq(e->dev, e->pd, &at, &r), 0);
	assert_true(at.attr.max_wr >= wr);
	return r;
}

static struct ibv_qp *qp_on(struct rig_end *e, struct ibv_srq *r,
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
	assert_ptr_equal(qp->srq, r);
	assert_int_equal(dev_qp_init(e->dev, qp, RIG_ACCESS), 0);
	return qp;
}

static void join(struct ibv_qp *x, struct ibv_qp *y)
{
	struct dev_qp_addr to_x, to_y;

	rig_qp_addr(&a, x, &to_x);
	rig_qp_addr(&b, y, &to_y);
	rig_connect_qp(&a, x, &to_y);
	rig_connect_qp(&b, y, &to_x);
}

static int up_type(enum ibv_qp_type type, bool plain)
{
	struct rig_opts o = {.type = type, .plain = plain};
	unsigned i;

	rig_open(&a, &o);
	rig_open(&b, &o);
	own_a = a.qp;
	own_b = b.qp;
	srq = srq_new(&b, SLOTS);
	for (i = 0; i < QPS; i++) {
		qa[i] = rig_qp(&a);
		qb[i] = qp_on(&b, srq, type);
		join(qa[i], qb[i]);
	}
	return 0;
}

static int up(void **state)
{
	return up_type(IBV_QPT_RC, false);
}

static int up_uc(void **state)
{
	return up_type(IBV_QPT_UC, false);
}

static int up_plain(void **state)
{
	return up_type(IBV_QPT_RC, true);
}

static int down(void **state)
{
	unsigned i;

	a.qp = own_a;
	b.qp = own_b;
	for (i = 0; i < QPS; i++) {
		if (qa[i])
			a.dev->ops->destroy_qp(a.dev, qa[i]);
		if (qb[i])
			b.dev->ops->destroy_qp(b.dev, qb[i]);
	}
	assert_int_equal(b.dev->ops->destroy_srq(b.dev, srq), 0);
	rig_unpair(&a, &b);
	return 0;
}

static int post_len(uint64_t id, uint32_t len, uint32_t lkey)
{
	struct ibv_sge sge = {(uintptr_t)b.buf + 64 * (id % 1024), len, lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1},
			   *bad;

	return ibv_post_srq_recv(srq, &wr, &bad);
}

static void post(uint64_t id)
{
	assert_int_equal(post_len(id, 64, b.mem->mr->lkey), 0);
}

static void put(struct ibv_qp *qp, enum ibv_wr_opcode op, uint64_t id,
		uint32_t value, uint32_t len, uint32_t rkey)
{
	a.qp = qp;
	memcpy(a.buf + 64 * (id % 64), &value, 4);
	assert_int_equal(rig_post(&a, op, id, a.buf + 64 * (id % 64), len,
				  (uintptr_t)b.buf + (1 << 20), rkey,
				  IBV_SEND_SIGNALED),
			 0);
}

static void say(struct ibv_qp *qp, uint64_t id, uint32_t value)
{
	put(qp, IBV_WR_SEND, id, value, 8, 0);
}

static void sent(struct ibv_qp *qp, uint64_t id, uint32_t value)
{
	say(qp, id, value);
	rig_expect(&a, id, IBV_WC_SUCCESS);
}

/* The next receive: of which QP, and its value. */
static uint32_t got(uint64_t *id, struct ibv_qp *qp)
{
	struct ibv_wc wc;
	uint32_t v;

	rig_wait(&b, &wc);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_RECV);
	assert_int_equal(wc.byte_len, 8);
	if (qp)
		assert_int_equal(wc.qp_num, qp->qp_num);
	*id = wc.wr_id;
	memcpy(&v, b.buf + 64 * (wc.wr_id % 1024), 4);
	return v;
}

/* Just so many receives are there to be had: nothing was lost. */
static void assert_left(struct ibv_qp *x, struct ibv_qp *y, unsigned n)
{
	uint64_t id;
	unsigned i;

	for (i = 0; i < n; i++) {
		sent(x, 40, i);
		assert_int_equal(got(&id, y), i);
	}
	say(x, 41, 99);
	assert_true(rig_quiet(&a));
	post(77);
	rig_expect(&a, 41, IBV_WC_SUCCESS);
	assert_int_equal(got(&id, y), 99);
	assert_int_equal(id, 77);
}

/* Rounds over all QPs; each QP's messages come in order, each receive once. */
static void test_order(void **state)
{
	uint32_t next[QPS] = {0};
	unsigned round, i, n, k;
	struct ibv_wc wc;
	uint32_t v;

	for (i = 0; i < SLOTS; i++)
		post(i);
	for (round = 0; round < 50; round++) {
		for (n = 0; n < SLOTS; n++)
			sent(qa[(n * 5 + round) % QPS], n,
			     (n / QPS) + 2 * round);
		for (n = 0; n < SLOTS; n++) {
			rig_wait(&b, &wc);
			assert_int_equal(wc.status, IBV_WC_SUCCESS);
			for (k = 0; wc.qp_num != qb[k]->qp_num; k++)
				;
			memcpy(&v, b.buf + 64 * wc.wr_id, 4);
			assert_int_equal(v, next[k]++);
			post(wc.wr_id);
		}
		assert_true(rig_quiet(&b));
	}
	assert_int_equal(post_len(0, 64, b.mem->mr->lkey), ENOMEM);
	assert_left(qa[0], qb[0], SLOTS);
}

static void test_kinds(void **state)
{
	struct ibv_cq *cq;
	struct pollfd p = {.fd = b.ch->fd, .events = POLLIN};
	struct ibv_wc wc;

	post(1);
	post(2);
	post(3);
	assert_int_equal(ibv_req_notify_cq(b.cq, 1), 0);
	put(qa[0], IBV_WR_SEND_WITH_IMM, 1, 5, 8, 0);
	rig_expect(&a, 1, IBV_WC_SUCCESS);
	assert_int_equal(poll(&p, 1, 0), 0);
	a.qp = qa[1];
	assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE_WITH_IMM, 2, a.buf, 16,
				  (uintptr_t)b.buf + 8192, b.mem->mr->rkey,
				  IBV_SEND_SIGNALED | IBV_SEND_SOLICITED),
			 0);
	rig_expect(&a, 2, IBV_WC_SUCCESS);
	assert_int_equal(poll(&p, 1, patience_ms(10)), 1);
	assert_int_equal(b.dev->ops->get_cq_event(b.dev, b.ch, &cq), 0);
	b.dev->ops->ack_cq_events(b.dev, cq, 1);
	rig_wait(&b, &wc);
	assert_int_equal(wc.opcode, IBV_WC_RECV);
	assert_int_equal(wc.wc_flags, IBV_WC_WITH_IMM);
	assert_int_equal(wc.imm_data, 0x01020304);
	rig_wait(&b, &wc);
	assert_int_equal(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	assert_int_equal(wc.byte_len, 16);
	assert_int_equal(wc.qp_num, qb[1]->qp_num);
	assert_left(qa[2], qb[2], 1);
}

/* All wait; each post lets one go on, whichever. */
static void test_rnr(void **state)
{
	struct ibv_wc wc;
	uint64_t id;
	unsigned i;

	for (i = 0; i < QPS; i++)
		say(qa[i], i, 7);
	assert_true(rig_quiet(&a));
	for (i = 0; i < QPS; i++) {
		post(100 + i);
		rig_wait(&a, &wc);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(got(&id, NULL), 7);
		assert_int_equal(id, 100 + i);
		assert_true(rig_quiet(&a));
	}
	assert_left(qa[0], qb[0], 0);
}

static int limit(uint32_t n)
{
	struct ibv_srq_attr at = {.srq_limit = n};

	return b.dev->ops->modify_srq(b.dev, srq, &at, IBV_SRQ_LIMIT);
}

static void test_limit(void **state)
{
	struct ibv_async_event ev;
	struct ibv_srq_attr at;
	unsigned i;

	for (i = 0; i < 8; i++)
		post(i);
	assert_int_equal(limit(4), 0);
	for (i = 0; i < 4; i++)
		sent(qa[i], i, 0);
	assert_int_equal(b.dev->ops->get_async_event(b.dev, &ev), -EAGAIN);
	assert_int_equal(b.dev->ops->query_srq(b.dev, srq, &at), 0);
	assert_int_equal(at.srq_limit, 4);
	assert_true(at.max_wr >= SLOTS);
	assert_true(at.max_sge >= 2);
	sent(qa[4], 4, 0);
	rig_async(&b, IBV_EVENT_SRQ_LIMIT_REACHED);
	assert_int_equal(b.dev->ops->query_srq(b.dev, srq, &at), 0);
	assert_int_equal(at.srq_limit, 0);
	/* once */
	sent(qa[5], 5, 0);
	assert_int_equal(b.dev->ops->get_async_event(b.dev, &ev), -EAGAIN);
	/* below already; 2 are left */
	assert_int_equal(limit(3), 0);
	rig_async(&b, IBV_EVENT_SRQ_LIMIT_REACHED);
	/* posting moves it: 2 + 3 posted, 3 to go */
	assert_int_equal(limit(2), 0);
	for (i = 0; i < 3; i++)
		post(20 + i);
	for (i = 0; i < 3; i++)
		sent(qa[i], i, 0);
	assert_int_equal(b.dev->ops->get_async_event(b.dev, &ev), -EAGAIN);
	sent(qa[3], 3, 0);
	rig_async(&b, IBV_EVENT_SRQ_LIMIT_REACHED);
	assert_int_equal(limit(SLOTS + 1), -EINVAL);
	assert_int_equal(b.dev->ops->modify_srq(b.dev, srq, &at,
						IBV_SRQ_MAX_WR),
			 -EOPNOTSUPP);
}

/* There were too few for a moment: posting more at once does not hide it. */
static void test_limit_refilled(void **state)
{
	uint64_t id;
	unsigned i;

	post(0);
	for (i = 1; i < 200; i++) {
		assert_int_equal(limit(1), 0);
		sent(qa[0], 1, i);
		post(i);
		rig_async(&b, IBV_EVENT_SRQ_LIMIT_REACHED);
		assert_int_equal(got(&id, qb[0]), i);
	}
}

/* Nobody is woken for a receive that was refused, or a QP that is reset. */
static void test_no_wake(void **state)
{
	struct ibv_qp_attr at = {.qp_state = IBV_QPS_RESET};
	struct ibv_cq *cq;

	assert_int_equal(dev_qp_err(b.dev, qb[0]), 0);
	rig_async(&b, IBV_EVENT_QP_LAST_WQE_REACHED);
	assert_int_equal(ibv_req_notify_cq(b.cq, 0), 0);
	b.qp = qb[0];
	assert_int_equal(rig_recv(&b, 1, b.buf, 8), EINVAL);
	assert_int_equal(b.dev->ops->modify_qp(b.dev, qb[1], &at, IBV_QP_STATE),
			 0);
	assert_int_equal(b.dev->ops->get_cq_event(b.dev, b.ch, &cq), -EAGAIN);
}

/* ERR: no flush, an event, and the receives are the others'. */
static void test_last_wqe(void **state)
{
	uint64_t id;
	unsigned i;

	for (i = 0; i < 4; i++)
		post(i);
	sent(qa[0], 1, 5);
	assert_int_equal(dev_qp_err(b.dev, qb[0]), 0);
	rig_async(&b, IBV_EVENT_QP_LAST_WQE_REACHED);
	/* what had arrived is still to be had */
	assert_int_equal(got(&id, qb[0]), 5);
	assert_true(rig_quiet(&b));
	a.qp = qa[0];
	say(qa[0], 2, 0);
	rig_expect(&a, 2, IBV_WC_RETRY_EXC_ERR);
	assert_left(qa[1], qb[1], 3);
}

/* A request that fails gives its receive back. */
static void test_bad_rkey(void **state)
{
	unsigned i;

	for (i = 0; i < 4; i++)
		post(i);
	sent(qa[1], 1, 5);
	put(qa[0], IBV_WR_RDMA_WRITE_WITH_IMM, 2, 0, 8, 0xdeadbeef);
	rig_expect(&a, 2, IBV_WC_REM_ACCESS_ERR);
	rig_async(&b, IBV_EVENT_QP_ACCESS_ERR);
	rig_async(&b, IBV_EVENT_QP_LAST_WQE_REACHED);
	rig_expect(&b, 0, IBV_WC_SUCCESS);
	assert_left(qa[1], qb[1], 3);
}

static void test_too_long(void **state)
{
	unsigned i;

	for (i = 0; i < 3; i++)
		post(i);
	put(qa[0], IBV_WR_SEND, 1, 0, 65, 0);
	rig_expect(&a, 1, IBV_WC_REM_INV_REQ_ERR);
	rig_expect(&b, 0, IBV_WC_LOC_LEN_ERR);
	rig_async(&b, IBV_EVENT_QP_LAST_WQE_REACHED);
	assert_left(qa[1], qb[1], 2);
}

/* A receive whose pieces are wrong breaks the QP that took it, no other. */
static void test_bad_recv(void **state)
{
	assert_int_equal(post_len(1, 64, b.mem->mr->lkey ^ 0x10000), 0);
	post(2);
	say(qa[0], 1, 0);
	rig_expect(&a, 1, IBV_WC_REM_OP_ERR);
	rig_expect(&b, 1, IBV_WC_LOC_PROT_ERR);
	rig_async(&b, IBV_EVENT_QP_LAST_WQE_REACHED);
	assert_left(qa[1], qb[1], 1);
}

/* What was given back is posted again by and by. */
static bool one_left(void *arg)
{
	assert_true(rig_quiet(&b));
	return claim_posted(&soft_srq_of(srq)->c) == 1;
}

static void test_uc(void **state)
{
	struct ibv_async_event ev;
	uint64_t id;

	/* none: gone */
	sent(qa[0], 1, 1);
	post(5);
	post(6);
	sent(qa[0], 2, 2);
	assert_int_equal(got(&id, qb[0]), 2);
	/* too long, or a bad key: the receive stays, and counts */
	assert_int_equal(limit(1), 0);
	put(qa[1], IBV_WR_SEND, 3, 0, 65, 0);
	rig_expect(&a, 3, IBV_WC_SUCCESS);
	put(qa[2], IBV_WR_RDMA_WRITE_WITH_IMM, 4, 0, 8, 0xdeadbeef);
	rig_expect(&a, 4, IBV_WC_SUCCESS);
	assert_true(rig_quiet(&b));
	rig_until(one_left, NULL);
	assert_int_equal(b.dev->ops->get_async_event(b.dev, &ev), -EAGAIN);
	sent(qa[3], 5, 3);
	assert_int_equal(got(&id, qb[3]), 3);
	assert_int_equal(id, 6);
	sent(qa[3], 6, 4);
	assert_true(rig_quiet(&b));
}

/* What was completed and not polled goes with a RESET; its slot does not. */
static void test_reset(void **state)
{
	struct ibv_qp_attr at = {.qp_state = IBV_QPS_RESET};
	unsigned i;

	for (i = 0; i < SLOTS; i++)
		post(i);
	for (i = 0; i < 5; i++)
		sent(qa[0], i, i);
	sent(qa[1], 5, 50);
	assert_int_equal(b.dev->ops->modify_qp(b.dev, qb[0], &at, IBV_QP_STATE),
			 0);
	rig_expect(&b, 5, IBV_WC_SUCCESS);
	assert_true(rig_quiet(&b));
	for (i = 0; i < 6; i++)
		post(i);
	assert_int_equal(post_len(0, 64, b.mem->mr->lkey), ENOMEM);
	/* and again, in its next life */
	assert_int_equal(a.dev->ops->destroy_qp(a.dev, qa[0]), 0);
	qa[0] = rig_qp(&a);
	assert_int_equal(dev_qp_init(b.dev, qb[0], RIG_ACCESS), 0);
	join(qa[0], qb[0]);
	sent(qa[0], 1, 9);
	assert_int_equal(b.dev->ops->destroy_qp(b.dev, qb[0]), 0);
	qb[0] = NULL;
	post(1);
	assert_int_equal(post_len(0, 64, b.mem->mr->lkey), ENOMEM);
	assert_left(qa[1], qb[1], SLOTS);
}

static void test_refused(void **state)
{
	struct ibv_srq_init_attr at = {.attr = {.max_wr = 0, .max_sge = 1}};
	struct ibv_qp_init_attr qp = {.send_cq = b.cq,
				      .recv_cq = b.cq,
				      .srq = srq,
				      .qp_type = IBV_QPT_RC};
	struct ibv_recv_wr wr = {.num_sge = 3}, *bad = NULL;
	struct ibv_srq *r;
	struct ibv_qp *q;
	struct ibv_pd *pd;

	assert_int_equal(b.dev->ops->create_srq(b.dev, b.pd, &at, &r), -EINVAL);
	at.attr.max_wr = 1 << 20;
	assert_int_equal(b.dev->ops->create_srq(b.dev, b.pd, &at, &r), -EINVAL);
	assert_int_equal(b.dev->ops->destroy_srq(b.dev, srq), -EBUSY);
	assert_int_equal(ibv_post_srq_recv(srq, &wr, &bad), EINVAL);
	assert_ptr_equal(bad, &wr);
	b.qp = qb[0];
	assert_int_equal(rig_recv(&b, 1, b.buf, 8), EINVAL);
	assert_int_equal(b.dev->ops->alloc_pd(b.dev, &pd), 0);
	assert_int_equal(b.dev->ops->create_qp(b.dev, pd, &qp, 0, &q), -EINVAL);
	r = NULL;
	at.attr.max_wr = 1;
	assert_int_equal(b.dev->ops->create_srq(b.dev, pd, &at, &r), 0);
	assert_int_equal(b.dev->ops->dealloc_pd(b.dev, pd), -EBUSY);
	assert_int_equal(b.dev->ops->destroy_srq(b.dev, r), 0);
	assert_int_equal(b.dev->ops->dealloc_pd(b.dev, pd), 0);
}

/* Memory that cannot be mapped. */
static void test_plain(void **state)
{
	post(1);
	assert_left(qa[0], qb[0], 1);
}

/* More completions than the CQ has places. */
static void test_overflow(void **state)
{
	struct ibv_wc wc;
	unsigned i;

	assert_int_equal(b.dev->ops->resize_cq(b.dev, b.cq, 4), 0);
	for (i = 0; i < 6; i++)
		post(i);
	for (i = 0; i < 6; i++)
		sent(qa[i], i, 0);
	assert_true(ibv_poll_cq(b.cq, 1, &wc) < 0);
	rig_async(&b, IBV_EVENT_CQ_ERR);
}

/* --- an owner that is stopped ------------------------------------------- */

struct owner_says {
	struct rig_addr addr[2];
};

/* Two QPs on one SRQ of 4; says what came after it went on. */
static void owner(int sock, void *arg)
{
	struct owner_says says;
	struct rig_addr peer[2];
	unsigned i;
	uint64_t id;
	uint32_t v;

	rig_open(&b, NULL);
	own_b = b.qp;
	srq = srq_new(&b, 4);
	for (i = 0; i < 2; i++) {
		b.qp = qb[i] = qp_on(&b, srq, IBV_QPT_RC);
		rig_addr(&b, &says.addr[i]);
	}
	rig_put(sock, &says, sizeof(says));
	rig_get(sock, peer, sizeof(peer));
	for (i = 0; i < 2; i++)
		rig_connect_qp(&b, qb[i], &peer[i].qp);
	for (i = 0; i < 4; i++)
		post(i);
	rig_put(sock, "r", 1);
	rig_get(sock, &v, 1);
	/* all four come by the other QP */
	for (i = 0; i < 4; i++)
		assert_int_equal(got(&id, qb[1]), i);
	assert_true(rig_quiet(&b));
	rig_put(sock, "d", 1);
	rig_get(sock, &v, 1);
}

/* The file of the owner's memory is asked for and does not come: the request
 * waits with a receive in its hand. Then its QP goes away. */
static void test_given_back(void **state)
{
	struct owner_says says;
	struct rig_addr mine[2];
	struct rig_child c;
	unsigned i;
	char r;

	rig_open(&a, NULL);
	own_a = a.qp;
	rig_fork(&c, owner, NULL);
	rig_get(c.sock, &says, sizeof(says));
	for (i = 0; i < 2; i++) {
		a.qp = qa[i] = rig_qp(&a);
		rig_addr(&a, &mine[i]);
	}
	rig_put(c.sock, mine, sizeof(mine));
	for (i = 0; i < 2; i++)
		rig_connect_qp(&a, qa[i], &says.addr[i].qp);
	rig_get(c.sock, &r, 1);
	rig_stop(&c);
	say(qa[0], 1, 1000);
	assert_true(rig_quiet(&a));
	assert_int_equal(a.dev->ops->destroy_qp(a.dev, qa[0]), 0);
	assert_int_equal(kill(c.pid, SIGCONT), 0);
	for (i = 0; i < 4; i++)
		sent(qa[1], i, i);
	rig_put(c.sock, "g", 1);
	rig_get(c.sock, &r, 1);
	rig_put(c.sock, "e", 1);
	assert_int_equal(rig_join(&c), 0);
	assert_int_equal(a.dev->ops->destroy_qp(a.dev, qa[1]), 0);
	a.qp = own_a;
	rig_close(&a);
}

#define T(f, u) cmocka_unit_test_setup_teardown(f, u, down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_order, up),    T(test_kinds, up),
		T(test_rnr, up),      T(test_limit, up),
		T(test_last_wqe, up), T(test_bad_rkey, up),
		T(test_too_long, up), T(test_bad_recv, up),
		T(test_uc, up_uc),    T(test_reset, up),
		T(test_refused, up),  T(test_plain, up_plain),
		T(test_no_wake, up),  T(test_limit_refilled, up),
		T(test_overflow, up), cmocka_unit_test(test_given_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
