/* SPDX-License-Identifier: MIT */
/* Every error status at both ends, the order of flushes, the state machine and
 * its masks, events. */
#include "dev/states.h"
#include "rig.h"

#include "dev/soft/qp/qp.h"

static struct rig_end a, b;

static int both(void **state)
{
	rig_pair(&a, &b, *state);
	return 0;
}

static int both_down(void **state)
{
	rig_unpair(&a, &b);
	return 0;
}

static enum ibv_qp_state state_of(struct rig_end *e)
{
	struct ibv_qp_attr attr;

	assert_int_equal(e->dev->ops->query_qp(e->dev, e->qp, &attr,
					       IBV_QP_STATE, NULL),
			 0);
	return attr.qp_state;
}

static bool in_err(void *arg)
{
	return state_of(arg) == IBV_QPS_ERR;
}

static int write_to(uint64_t raddr, uint32_t rkey, uint32_t len)
{
	return rig_post(&a, IBV_WR_RDMA_WRITE, 1, a.buf, len, raddr, rkey,
			IBV_SEND_SIGNALED);
}

/* The request fails with status; both QPs are in ERR; b hears of it. */
static void expect_remote(enum ibv_wc_status status, enum ibv_event_type ev)
{
	rig_expect(&a, 1, status);
	assert_int_equal(state_of(&a), IBV_QPS_ERR);
	rig_async(&b, ev);
	rig_until(in_err, &b);
}

static void test_bad_rkey(void **state)
{
	assert_int_equal(write_to((uintptr_t)b.buf, b.mem->mr->rkey ^ 1, 8), 0);
	expect_remote(IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
}

/* The same, but b's control thread comes late: a request of b's, which meets a's
 * broken QP first, breaks b's. The cause is told all the same. */
static void test_bad_rkey_late(void **state)
{
	pthread_mutex_t *lock = &soft_of_dev(b.dev)->lock;

	/* the way from b to a is known */
	assert_int_equal(rig_post(&b, IBV_WR_RDMA_WRITE, 2, b.buf, 8,
				  (uintptr_t)a.buf, a.mem->mr->rkey,
				  IBV_SEND_SIGNALED),
			 0);
	rig_expect(&b, 2, IBV_WC_SUCCESS);
	pthread_mutex_lock(lock);
	assert_int_equal(write_to((uintptr_t)b.buf, b.mem->mr->rkey ^ 1, 8), 0);
	rig_expect(&a, 1, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(rig_post(&b, IBV_WR_RDMA_WRITE, 3, b.buf, 8,
				  (uintptr_t)a.buf, a.mem->mr->rkey,
				  IBV_SEND_SIGNALED),
			 0);
	rig_expect(&b, 3, IBV_WC_RETRY_EXC_ERR);
	pthread_mutex_unlock(lock);
	rig_async(&b, IBV_EVENT_QP_ACCESS_ERR);
}

static void *to_reset(void *arg)
{
	struct rig_end *e = arg;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};

	/* NULL: done */
	return e->dev->ops->modify_qp(e->dev, e->qp, &attr, IBV_QP_STATE)
		       ? e
		       : NULL;
}

static bool has_begun_reset(void *arg)
{
	struct rig_end *e = arg;

	return soft_qp_state(soft_qp_of(e->qp)) == IBV_QPS_RESET;
}

/* The same, and b's owner takes its QP to RESET before the control thread has
 * looked. The look in the middle of that move breaks nothing: out of RESET a QP
 * goes by its owner's will. */
static void test_bad_rkey_reset(void **state)
{
	struct soft *s = soft_of_dev(b.dev);
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	pthread_t owner;
	void *failed;

	assert_int_equal(rig_post(&b, IBV_WR_RDMA_WRITE, 2, b.buf, 8,
				  (uintptr_t)a.buf, a.mem->mr->rkey,
				  IBV_SEND_SIGNALED),
			 0);
	rig_expect(&b, 2, IBV_WC_SUCCESS);
	pthread_mutex_lock(&s->lock);
	assert_int_equal(write_to((uintptr_t)b.buf, b.mem->mr->rkey ^ 1, 8), 0);
	rig_expect(&a, 1, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(rig_post(&b, IBV_WR_RDMA_WRITE, 3, b.buf, 8,
				  (uintptr_t)a.buf, a.mem->mr->rkey,
				  IBV_SEND_SIGNALED),
			 0);
	rig_expect(&b, 3, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(pthread_create(&owner, NULL, to_reset, &b), 0);
	rig_until(has_begun_reset, &b); /* and waits for the lock */
	soft_qp_service(s, soft_qp_of(b.qp));
	pthread_mutex_unlock(&s->lock);
	pthread_join(owner, &failed);
	assert_null(failed);
	assert_int_equal(state_of(&b), IBV_QPS_RESET);
	assert_int_equal(b.dev->ops->modify_qp(
				 b.dev, b.qp, &init,
				 IBV_QP_STATE | IBV_QP_PKEY_INDEX |
					 IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
			 0);
	rig_async(&b, IBV_EVENT_QP_ACCESS_ERR);
}

static void test_bad_range(void **state)
{
	assert_int_equal(write_to((uintptr_t)b.buf + RIG_MEM - 4,
				  b.mem->mr->rkey, 8),
			 0);
	expect_remote(IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
	assert_int_equal(b.buf[RIG_MEM - 4], 0);
}

static void test_wrapped_range(void **state)
{
	assert_int_equal(write_to(UINT64_MAX - 3, b.mem->mr->rkey, 8), 0);
	expect_remote(IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
}

/* The MR grants no remote write; then the QP does not. */
static void test_rights(void **state)
{
	struct mem_region *ro;

	assert_int_equal(mem_region_new(b.dev, b.pd, "ro", 4096,
					IBV_ACCESS_LOCAL_WRITE |
						IBV_ACCESS_REMOTE_READ,
					2, &ro),
			 0);
	assert_int_equal(rig_post(&a, IBV_WR_RDMA_READ, 1, a.buf, 8,
				  (uintptr_t)ro->addr, ro->mr->rkey,
				  IBV_SEND_SIGNALED),
			 0);
	rig_expect(&a, 1, IBV_WC_SUCCESS);
	assert_int_equal(write_to((uintptr_t)ro->addr, ro->mr->rkey, 8), 0);
	expect_remote(IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
	mem_region_free(ro);
}

/* An operation that the receive queue does not support (IBA 11.6.2). */
static void test_qp_rights(void **state)
{
	struct ibv_qp_attr attr = {.qp_access_flags = IBV_ACCESS_REMOTE_READ};

	assert_int_equal(b.dev->ops->modify_qp(b.dev, b.qp, &attr,
					       IBV_QP_ACCESS_FLAGS),
			 0);
	assert_int_equal(write_to((uintptr_t)b.buf, b.mem->mr->rkey, 8), 0);
	expect_remote(IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
}

static void test_other_pd(void **state)
{
	struct mem_region *r;
	struct ibv_pd *pd;

	assert_int_equal(b.dev->ops->alloc_pd(b.dev, &pd), 0);
	assert_int_equal(
		mem_region_new(b.dev, pd, "pd", 4096, RIG_ACCESS, 2, &r), 0);
	assert_int_equal(write_to((uintptr_t)r->addr, r->mr->rkey, 8), 0);
	expect_remote(IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
	assert_int_equal(b.dev->ops->dealloc_pd(b.dev, pd), -EBUSY);
	mem_region_free(r);
	assert_int_equal(b.dev->ops->dealloc_pd(b.dev, pd), 0);
}

static void test_atomic_alignment(void **state)
{
	struct ibv_sge sge = {(uintptr_t)a.buf, 8, a.mem->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 1,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;

	wr.wr.atomic.remote_addr = (uintptr_t)b.buf + 4;
	wr.wr.atomic.rkey = b.mem->mr->rkey;
	assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
	expect_remote(IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
}

/* Local faults stay local: the peer's QP is untouched. */
static void expect_local(enum ibv_wc_status status)
{
	rig_expect(&a, 1, status);
	assert_int_equal(state_of(&a), IBV_QPS_ERR);
	assert_int_equal(state_of(&b), IBV_QPS_RTS);
}

static void test_bad_lkey(void **state)
{
	a.lkey ^= 1;
	assert_int_equal(write_to((uintptr_t)b.buf, b.mem->mr->rkey, 8), 0);
	expect_local(IBV_WC_LOC_PROT_ERR);
}

static void test_local_range(void **state)
{
	assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE, 1, a.buf + RIG_MEM - 4,
				  8, (uintptr_t)b.buf, b.mem->mr->rkey,
				  IBV_SEND_SIGNALED),
			 0);
	expect_local(IBV_WC_LOC_PROT_ERR);
}

static void test_read_needs_local_write(void **state)
{
	struct mem_region *ro;

	assert_int_equal(mem_region_new(a.dev, a.pd, "ro", 4096, 0, 2, &ro), 0);
	a.lkey = ro->mr->lkey;
	assert_int_equal(rig_post(&a, IBV_WR_RDMA_READ, 1, ro->addr, 8,
				  (uintptr_t)b.buf, b.mem->mr->rkey,
				  IBV_SEND_SIGNALED),
			 0);
	expect_local(IBV_WC_LOC_PROT_ERR);
	mem_region_free(ro);
}

static void test_atomic_length(void **state)
{
	assert_int_equal(rig_post(&a, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, a.buf, 4,
				  (uintptr_t)b.buf, b.mem->mr->rkey,
				  IBV_SEND_SIGNALED),
			 0);
	expect_local(IBV_WC_LOC_LEN_ERR);
}

/* A message longer than its receive; the next receive is flushed. */
static void test_recv_too_short(void **state)
{
	assert_int_equal(rig_recv(&b, 10, b.buf, 16), 0);
	assert_int_equal(rig_recv(&b, 11, b.buf, 16), 0);
	assert_int_equal(rig_post(&a, IBV_WR_SEND, 1, a.buf, 17, 0, 0, 0), 0);
	rig_expect(&a, 1, IBV_WC_REM_INV_REQ_ERR);
	rig_expect(&b, 10, IBV_WC_LOC_LEN_ERR);
	rig_expect(&b, 11, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(state_of(&b), IBV_QPS_ERR);
}

/* The requester is away before the other end's control thread has looked: the
 * receive broke that QP all the same (IBA 9.9.3). */
static void test_broken_by_a_fugitive(void **state)
{
	struct soft *s = soft_of_dev(b.dev);
	struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};

	/* b's memory is mapped from here on */
	assert_int_equal(write_to((uintptr_t)b.buf, b.mem->mr->rkey, 8), 0);
	rig_expect(&a, 1, IBV_WC_SUCCESS);
	assert_int_equal(rig_recv(&b, 7, b.buf, 8), 0);
	pthread_mutex_lock(&s->lock); /* it cannot look yet */
	assert_int_equal(rig_post(&a, IBV_WR_SEND, 1, a.buf, 9, 0, 0,
				  IBV_SEND_SIGNALED),
			 0);
	rig_expect(&a, 1, IBV_WC_REM_INV_REQ_ERR);
	assert_int_equal(
		a.dev->ops->modify_qp(a.dev, a.qp, &reset, IBV_QP_STATE), 0);
	pthread_mutex_unlock(&s->lock);
	rig_expect(&b, 7, IBV_WC_LOC_LEN_ERR);
	rig_until(in_err, &b);
}

static void test_recv_bad_lkey(void **state)
{
	b.lkey ^= 3;
	assert_int_equal(rig_recv(&b, 10, b.buf, 16), 0);
	assert_int_equal(rig_post(&a, IBV_WR_SEND, 1, a.buf, 16, 0, 0, 0), 0);
	rig_expect(&a, 1, IBV_WC_REM_OP_ERR);
	rig_expect(&b, 10, IBV_WC_LOC_PROT_ERR);
}

/* First what was done, then the error, then the rest in order, then new ones;
 * unsignalled ones too. */
static void test_flush_order(void **state)
{
	unsigned i;

	assert_int_equal(rig_recv(&a, 100, a.buf, 8), 0);
	assert_int_equal(rig_recv(&a, 101, a.buf, 8), 0);
	assert_int_equal(rig_recv(&b, 10, b.buf, 8), 0);
	assert_int_equal(rig_post(&a, IBV_WR_SEND, 0, a.buf, 8, 0, 0,
				  IBV_SEND_SIGNALED),
			 0);
	rig_expect(&b, 10, IBV_WC_SUCCESS); /* done, not yet polled */
	for (i = 1; i < 4; i++)		    /* no receive: parked */
		assert_int_equal(
			rig_post(&a, IBV_WR_SEND, i, a.buf, 8, 0, 0, 0), 0);
	assert_int_equal(dev_qp_err(a.dev, a.qp), 0);
	assert_int_equal(rig_post(&a, IBV_WR_SEND, 4, a.buf, 8, 0, 0, 0), 0);
	assert_int_equal(rig_recv(&a, 102, a.buf, 8), 0);
	rig_expect(&a, 0, IBV_WC_SUCCESS);
	for (i = 1; i < 5; i++)
		rig_expect(&a, i, IBV_WC_WR_FLUSH_ERR);
	for (i = 100; i < 103; i++)
		rig_expect(&a, i, IBV_WC_WR_FLUSH_ERR);
	assert_true(rig_quiet(&a));
	assert_true(rig_quiet(&b));
}

/* The peer went to ERR: it does not answer any more. */
static void test_peer_err(void **state)
{
	assert_int_equal(dev_qp_err(b.dev, b.qp), 0);
	assert_int_equal(write_to((uintptr_t)b.buf, b.mem->mr->rkey, 8), 0);
	rig_expect(&a, 1, IBV_WC_RETRY_EXC_ERR);
}

static void test_peer_destroyed(void **state)
{
	assert_int_equal(b.dev->ops->destroy_qp(b.dev, b.qp), 0);
	b.qp = NULL;
	assert_int_equal(write_to((uintptr_t)b.buf, b.mem->mr->rkey, 8), 0);
	rig_expect(&a, 1, IBV_WC_RETRY_EXC_ERR);
}

static void test_dereg(void **state)
{
	uint64_t at = (uintptr_t)b.buf;
	uint32_t rkey = b.mem->mr->rkey;

	assert_int_equal(write_to(at, rkey, 8), 0);
	rig_expect(&a, 1, IBV_WC_SUCCESS);
	mem_region_free(b.mem);
	b.mem = NULL;
	assert_int_equal(write_to(at, rkey, 8), 0);
	expect_remote(IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
}

/* Reset, and connected again, on the same QPs. */
static void test_reset(void **state)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
	struct rig_addr aa, ba;
	int i;

	for (i = 0; i < 5; i++) {
		assert_int_equal(rig_recv(&b, 10, b.buf, 8), 0);
		assert_int_equal(rig_recv(&b, 11, b.buf, 8), 0);
		assert_int_equal(rig_post(&a, IBV_WR_SEND, 1, a.buf, 8, 0, 0,
					  IBV_SEND_SIGNALED),
				 0);
		rig_expect(&b, 10, IBV_WC_SUCCESS);
		assert_int_equal(a.dev->ops->modify_qp(a.dev, a.qp, &attr,
						       IBV_QP_STATE),
				 0);
		assert_int_equal(b.dev->ops->modify_qp(b.dev, b.qp, &attr,
						       IBV_QP_STATE),
				 0);
		/* nothing of the life before is left */
		assert_true(rig_quiet(&a));
		assert_true(rig_quiet(&b));
		assert_int_equal(rig_recv(&b, 1, b.buf, 8), EINVAL);
		rig_addr(&a, &aa);
		rig_addr(&b, &ba);
		assert_int_equal(dev_qp_init(a.dev, a.qp, RIG_ACCESS), 0);
		assert_int_equal(dev_qp_init(b.dev, b.qp, RIG_ACCESS), 0);
		rig_connect(&a, &ba);
		rig_connect(&b, &aa);
	}
}

static void reset_and_connect(struct rig_end *e, const struct rig_addr *to)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};

	assert_int_equal(
		e->dev->ops->modify_qp(e->dev, e->qp, &attr, IBV_QP_STATE), 0);
	assert_int_equal(dev_qp_init(e->dev, e->qp, RIG_ACCESS), 0);
	rig_connect(e, to);
}

/* Broken, and connected again one behind the other: the first meets the other
 * one in ERR, and waits for it as on a NIC. */
static void test_reset_in_turn(void **state)
{
	struct rig_addr aa, ba;

	rig_addr(&a, &aa);
	rig_addr(&b, &ba);
	test_bad_rkey(state);
	reset_and_connect(&b, &aa);
	reset_and_connect(&a, &ba);
	assert_int_equal(write_to((uintptr_t)b.buf, b.mem->mr->rkey, 8), 0);
	rig_expect(&a, 1, IBV_WC_SUCCESS);
	assert_int_equal(rig_recv(&a, 10, a.buf, 8), 0);
	assert_int_equal(rig_post(&b, IBV_WR_SEND, 2, b.buf, 8, 0, 0,
				  IBV_SEND_SIGNALED),
			 0);
	rig_expect(&b, 2, IBV_WC_SUCCESS);
	rig_expect(&a, 10, IBV_WC_SUCCESS);
}

static void test_posts_by_state(void **state)
{
	struct ibv_qp *qp = rig_qp(&a), *own = a.qp;

	a.qp = qp; /* INIT */
	assert_int_equal(rig_recv(&a, 1, a.buf, 8), 0);
	assert_int_equal(write_to(0, 0, 8), EINVAL);
	assert_int_equal(dev_qp_err(a.dev, qp), 0);
	rig_expect(&a, 1, IBV_WC_WR_FLUSH_ERR);
	a.qp = own;
	assert_int_equal(a.dev->ops->destroy_qp(a.dev, qp), 0);
}

/* IBA 11.2.5.2: each transition with what it needs; one bit less or one bit
 * more is refused. */
static void test_masks(void **state)
{
	static const struct {
		enum ibv_qp_state from, to;
		int req, opt;
	} t[] = {
		{IBV_QPS_RESET, IBV_QPS_INIT,
		 IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
		{IBV_QPS_INIT, IBV_QPS_RTR,
		 IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
		 IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS},
		{IBV_QPS_RTR, IBV_QPS_RTS,
		 IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			 IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
		 IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
		{IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
		{IBV_QPS_SQD, IBV_QPS_RTS, 0,
		 IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
	};
	unsigned i, bit;
	int want;

	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		for (bit = 1; bit < 26; bit++) {
			int m = t[i].req ^ (1 << bit);

			want = (m & t[i].req) == t[i].req &&
					       !(m & ~(t[i].req | t[i].opt))
				       ? 0
				       : -EINVAL;
			assert_int_equal(dev_states_check(IBV_QPT_RC, t[i].from,
							  t[i].to, m),
					 want);
		}
		assert_int_equal(dev_states_check(IBV_QPT_RC, t[i].from,
						  t[i].to, t[i].req),
				 0);
	}
	for (i = IBV_QPS_RESET; i <= IBV_QPS_ERR; i++) {
		assert_int_equal(
			dev_states_check(IBV_QPT_RC, i, IBV_QPS_ERR, 0), 0);
		assert_int_equal(
			dev_states_check(IBV_QPT_RC, i, IBV_QPS_RESET, 0), 0);
		assert_int_equal(dev_states_check(IBV_QPT_RC, i, IBV_QPS_ERR,
						  IBV_QP_PORT),
				 -EINVAL);
		assert_int_equal(dev_states_check(IBV_QPT_RC, i, IBV_QPS_SQE,
						  0),
				 -EINVAL);
	}
	assert_int_equal(dev_states_check(IBV_QPT_RC, IBV_QPS_RESET,
					  IBV_QPS_RTS, 0),
			 -EINVAL);
	assert_int_equal(dev_states_check(IBV_QPT_RC, IBV_QPS_ERR, IBV_QPS_RTS,
					  0),
			 -EINVAL);
	assert_int_equal(dev_states_check(IBV_QPT_RC, IBV_QPS_ERR, IBV_QPS_INIT,
					  t[0].req),
			 -EINVAL);
}

/* How many READs and atomics may be under way: none from now on. */
static void none_at_once(struct rig_end *e, int mask)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD};

	assert_int_equal(
		e->dev->ops->modify_qp(e->dev, e->qp, &attr, IBV_QP_STATE), 0);
	assert_int_equal(e->dev->ops->modify_qp(e->dev, e->qp, &attr, mask), 0);
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(
		e->dev->ops->modify_qp(e->dev, e->qp, &attr, IBV_QP_STATE), 0);
}

static int fetch(enum ibv_wr_opcode op)
{
	return rig_post(&a, op, 1, a.buf, 8, (uintptr_t)b.buf, b.mem->mr->rkey,
			IBV_SEND_SIGNALED);
}

static void test_none_asked(void **state)
{
	none_at_once(&a, IBV_QP_MAX_QP_RD_ATOMIC);
	assert_int_equal(write_to((uintptr_t)b.buf, b.mem->mr->rkey, 8), 0);
	rig_expect(&a, 1, IBV_WC_SUCCESS);
	assert_int_equal(fetch(IBV_WR_RDMA_READ), 0);
	rig_expect(&a, 1, IBV_WC_LOC_QP_OP_ERR);
	assert_int_equal(state_of(&a), IBV_QPS_ERR);
}

static void test_none_asked_atomic(void **state)
{
	none_at_once(&a, IBV_QP_MAX_QP_RD_ATOMIC);
	assert_int_equal(fetch(IBV_WR_ATOMIC_FETCH_AND_ADD), 0);
	rig_expect(&a, 1, IBV_WC_LOC_QP_OP_ERR);
}

static void test_none_taken(void **state)
{
	none_at_once(&b, IBV_QP_MAX_DEST_RD_ATOMIC);
	assert_int_equal(write_to((uintptr_t)b.buf, b.mem->mr->rkey, 8), 0);
	rig_expect(&a, 1, IBV_WC_SUCCESS);
	assert_int_equal(fetch(IBV_WR_RDMA_READ), 0);
	expect_remote(IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
}

static void test_none_taken_atomic(void **state)
{
	none_at_once(&b, IBV_QP_MAX_DEST_RD_ATOMIC);
	assert_int_equal(fetch(IBV_WR_ATOMIC_CMP_AND_SWP), 0);
	expect_remote(IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
}

/* A path leaves by a port and a GID that are there. */
static void test_path(void **state)
{
	const int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
			 IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	struct ibv_qp *qp = rig_qp(&a);
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = b.qp->qp_num,
		.max_dest_rd_atomic = 1,
		.ah_attr = {.is_global = 1, .grh.dgid = b.dev->gid.gid},
	};
	const struct dev_ops *ops = a.dev->ops;

	/* A right that is of no use here, as there are no memory windows. */
	attr.qp_access_flags = RIG_ACCESS | IBV_ACCESS_MW_BIND;
	assert_int_equal(ops->modify_qp(a.dev, qp, &attr, IBV_QP_ACCESS_FLAGS),
			 0);
	attr.ah_attr.grh.sgid_index = (uint8_t)a.dev->gid.index;
	assert_int_equal(ops->modify_qp(a.dev, qp, &attr, mask), -EINVAL);
	attr.ah_attr.port_num = 2;
	assert_int_equal(ops->modify_qp(a.dev, qp, &attr, mask), -EINVAL);
	attr.ah_attr.port_num = 1;
	attr.ah_attr.grh.sgid_index = (uint8_t)soft_of_dev(a.dev)->n_gids;
	assert_int_equal(ops->modify_qp(a.dev, qp, &attr, mask), -EINVAL);
	attr.ah_attr.grh.sgid_index = (uint8_t)a.dev->gid.index;
	assert_int_equal(ops->modify_qp(a.dev, qp, &attr, mask), 0);
	assert_int_equal(ops->destroy_qp(a.dev, qp), 0);
}

/* Registered again: new bounds, new rights, the old keys, also for a peer that
 * used them before; what is wrong changes nothing. */
static void test_rereg(void **state)
{
	const int size = IBV_REREG_MR_CHANGE_TRANSLATION;
	const struct dev_ops *ops = b.dev->ops;
	uint32_t was;
	struct ibv_mr *mr;

	assert_int_equal(ops->reg_mr(b.dev, b.pd, b.buf, 4096, RIG_ACCESS, -1,
				     0, &mr),
			 0);
	was = mr->rkey;
	assert_int_equal(write_to((uintptr_t)b.buf, was, 64), 0);
	rig_expect(&a, 1, IBV_WC_SUCCESS);
	assert_int_equal(ops->rereg_mr(b.dev, mr, 0, NULL, NULL, 0, 0, -1, 0),
			 -EINVAL);
	assert_int_equal(ops->rereg_mr(b.dev, mr, size, NULL, b.buf, 0, 0, -1,
				       0),
			 -EINVAL);
	assert_int_equal(mr->rkey, was);
	assert_int_equal(ops->rereg_mr(b.dev, mr, size, NULL, b.buf + 64, 64, 0,
				       -1, 0),
			 0);
	assert_ptr_equal(mr->addr, b.buf + 64);
	assert_int_equal(mr->length, 64);
	assert_int_equal(mr->rkey, was);
	assert_int_equal(mr->lkey, was);
	assert_int_equal(write_to((uintptr_t)b.buf + 64, mr->rkey, 64), 0);
	rig_expect(&a, 1, IBV_WC_SUCCESS);
	assert_int_equal(ops->rereg_mr(b.dev, mr, IBV_REREG_MR_CHANGE_ACCESS,
				       NULL, NULL, 0, IBV_ACCESS_REMOTE_READ,
				       -1, 0),
			 0);
	assert_int_equal(mr->rkey, was);
	assert_int_equal(rig_post(&a, IBV_WR_RDMA_READ, 1, a.buf, 64,
				  (uintptr_t)b.buf + 64, mr->rkey,
				  IBV_SEND_SIGNALED),
			 0);
	rig_expect(&a, 1, IBV_WC_SUCCESS);
	assert_int_equal(write_to((uintptr_t)b.buf + 64, mr->rkey, 64), 0);
	expect_remote(IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
	assert_int_equal(ops->dereg_mr(b.dev, mr), 0);
}

/* Other memory of a file under the same key, again and again: a peer that has
 * mapped it before writes to the new place, whether its control thread has been
 * faster or not, and a receive that names the key lies there. */
static void test_rereg_file(void **state)
{
	const int size = IBV_REREG_MR_CHANGE_TRANSLATION;
	const struct dev_ops *ops = b.dev->ops;
	struct ibv_mr *mr;
	char *at = b.buf;
	int i;

	assert_int_equal(ops->reg_mr(b.dev, b.pd, b.buf, 8192, RIG_ACCESS,
				     b.mem->fd, b.mem->off, &mr),
			 0);
	for (i = 1; i <= 100; i++) {
		memset(a.buf, i, 64);
		assert_int_equal(write_to((uintptr_t)at, mr->rkey, 64), 0);
		rig_expect(&a, 1, IBV_WC_SUCCESS);
		assert_memory_equal(at, a.buf, 64);
		at = b.buf + i % 8 * 65536;
		assert_int_equal(
			ops->rereg_mr(b.dev, mr, size, NULL, at, 4096, 0,
				      b.mem->fd,
				      b.mem->off + (size_t)(at - b.buf)),
			0);
	}
	b.lkey = mr->lkey;
	assert_int_equal(rig_recv(&b, 2, at + 64, 64), 0);
	b.lkey = b.mem->mr->lkey;
	assert_int_equal(rig_post(&a, IBV_WR_SEND, 1, a.buf, 64, 0, 0,
				  IBV_SEND_SIGNALED),
			 0);
	rig_expect(&a, 1, IBV_WC_SUCCESS);
	rig_expect(&b, 2, IBV_WC_SUCCESS);
	assert_memory_equal(at + 64, a.buf, 64);
	assert_int_equal(write_to((uintptr_t)at + 4096, mr->rkey, 8), 0);
	expect_remote(IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
	assert_int_equal(ops->dereg_mr(b.dev, mr), 0);
}

/* More completions than places: the CQ is broken for good, its QPs too. */
static void test_overflow(void **state)
{
	struct ibv_wc wc;
	unsigned i;

	for (i = 0; i < 9; i++)
		assert_int_equal(write_to((uintptr_t)b.buf, b.mem->mr->rkey, 8),
				 0);
	rig_async(&a, IBV_EVENT_CQ_ERR);
	rig_async(&a, IBV_EVENT_QP_FATAL);
	assert_true(ibv_poll_cq(a.cq, 1, &wc) < 0);
	rig_until(in_err, &a);
}

static void test_overflow_recv(void **state)
{
	struct ibv_wc wc;
	unsigned i;

	for (i = 0; i < 9; i++)
		assert_int_equal(rig_recv(&b, i, b.buf, 8), 0);
	for (i = 0; i < 9; i++) {
		assert_int_equal(rig_post(&a, IBV_WR_SEND, i, a.buf, 8, 0, 0,
					  IBV_SEND_SIGNALED),
				 0);
		rig_wait(&a, &wc);
	}
	assert_true(ibv_poll_cq(b.cq, 1, &wc) < 0);
	rig_async(&b, IBV_EVENT_CQ_ERR);
	rig_async(&b, IBV_EVENT_QP_FATAL);
}

/* The first message to a QP in RTR. */
static void test_comm_est(void **state)
{
	struct rig_addr aa, ba;

	rig_open(&a, NULL);
	rig_open(&b, NULL);
	rig_addr(&a, &aa);
	rig_addr(&b, &ba);
	assert_int_equal(dev_qp_rtr(b.dev, b.qp, &aa.qp, &b.o.qp), 0);
	rig_connect(&a, &ba);
	assert_int_equal(write_to(ba.buf, ba.rkey, 8), 0);
	rig_expect(&a, 1, IBV_WC_SUCCESS);
	rig_async(&b, IBV_EVENT_COMM_EST);
	assert_int_equal(dev_qp_rts(b.dev, b.qp, b.psn, &aa.qp, &b.o.qp), 0);
	assert_int_equal(write_to(ba.buf, ba.rkey, 8), 0);
	rig_expect(&a, 1, IBV_WC_SUCCESS);
	rig_unpair(&a, &b);
}

/* Only this host is reachable without the link, and that is said. */
static void test_far_gid(void **state)
{
	struct skein_env *probe;
	struct rig_addr ba;
	struct dev *dev;
	char err[256];

	assert_int_equal(env_real_new(&probe), 0);
	setenv("SKEIN_LINK", "maybe", 1);
	assert_int_equal(dev_soft_open(probe, "", -1, err, sizeof(err), &dev),
			 -EINVAL);
	assert_non_null(strstr(err, "SKEIN_LINK is \"maybe\", not auto"));
	env_real_free(probe);
	setenv("SKEIN_LINK", "off", 1);
	rig_open(&a, NULL);
	unsetenv("SKEIN_LINK");
	rig_addr(&a, &ba);
	ba.qp.gid.raw[12] = 203;
	ba.qp.gid.raw[14] = 113;
	assert_int_equal(dev_qp_rtr(a.dev, a.qp, &ba.qp, &a.o.qp),
			 -EHOSTUNREACH);
	rig_close(&a);
}

#define EACH(f) cmocka_unit_test_setup_teardown(f, both, both_down)

int main(void)
{
	static struct rig_opts tight = {.cqe = 8};
	const struct CMUnitTest tests[] = {
		EACH(test_bad_rkey),
		EACH(test_bad_rkey_late),
		EACH(test_bad_rkey_reset),
		EACH(test_bad_range),
		EACH(test_wrapped_range),
		EACH(test_rights),
		EACH(test_qp_rights),
		EACH(test_other_pd),
		EACH(test_atomic_alignment),
		EACH(test_bad_lkey),
		EACH(test_local_range),
		EACH(test_read_needs_local_write),
		EACH(test_atomic_length),
		EACH(test_recv_too_short),
		EACH(test_recv_bad_lkey),
		EACH(test_broken_by_a_fugitive),
		EACH(test_flush_order),
		EACH(test_peer_err),
		EACH(test_peer_destroyed),
		EACH(test_dereg),
		EACH(test_reset),
		EACH(test_reset_in_turn),
		EACH(test_posts_by_state),
		cmocka_unit_test(test_masks),
		EACH(test_rereg),
		EACH(test_rereg_file),
		EACH(test_none_asked),
		EACH(test_none_asked_atomic),
		EACH(test_none_taken),
		EACH(test_none_taken_atomic),
		EACH(test_path),
		cmocka_unit_test_prestate_setup_teardown(test_overflow, both,
							 both_down, &tight),
		cmocka_unit_test_prestate_setup_teardown(
			test_overflow_recv, both, both_down, &tight),
		cmocka_unit_test(test_comm_est),
		cmocka_unit_test(test_far_gid),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
