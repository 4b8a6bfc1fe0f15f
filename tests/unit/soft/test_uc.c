/* SPDX-License-Identifier: MIT */
/*
 * UC: nobody answers. What is wrong at the requester's end is an error; all
 * else succeeds there, whatever became of the message (IBA 9.8.2).
 */
#include "dev/states.h"
#include "rig.h"

#include "dev/soft/qp/qp.h"

#include <signal.h>
#include <sys/wait.h>

static const struct rig_opts uc = {.type = IBV_QPT_UC};
static struct rig_end a, b;

static int up(void **state)
{
	rig_pair(&a, &b, &uc);
	return 0;
}

static int down(void **state)
{
	rig_unpair(&a, &b);
	return 0;
}

static enum ibv_qp_state state_of(struct rig_end *e)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	assert_int_equal(e->dev->ops->query_qp(e->dev, e->qp, &attr,
					       IBV_QP_STATE, &init),
			 0);
	assert_int_equal(init.qp_type, IBV_QPT_UC);
	return attr.qp_state;
}

static int post(enum ibv_wr_opcode op, uint64_t id, uint32_t len, uint64_t off,
		uint32_t rkey)
{
	return rig_post(&a, op, id, a.buf, len, (uintptr_t)b.buf + off, rkey,
			IBV_SEND_SIGNALED);
}

static void sent(enum ibv_wr_opcode op, uint64_t id, uint32_t len, uint64_t off)
{
	assert_int_equal(post(op, id, len, off, b.mem->mr->rkey), 0);
	rig_expect(&a, id, IBV_WC_SUCCESS);
}

static void test_messages(void **state)
{
	struct ibv_wc wc;
	unsigned i;

	for (i = 0; i < 8; i++)
		assert_int_equal(rig_recv(&b, i, b.buf + i * 64, 64), 0);
	for (i = 0; i < 8; i++) {
		memset(a.buf, 'a' + (int)i, 40);
		sent(i & 1 ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, 100 + i, 40,
		     0);
	}
	for (i = 0; i < 8; i++) {
		rig_wait(&b, &wc);
		assert_int_equal(wc.wr_id, i);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.opcode, IBV_WC_RECV);
		assert_int_equal(wc.byte_len, 40);
		assert_int_equal(wc.wc_flags, i & 1 ? IBV_WC_WITH_IMM : 0);
		assert_int_equal(b.buf[i * 64 + 39], 'a' + (int)i);
	}
}

static void test_writes(void **state)
{
	struct ibv_wc wc;

	memset(a.buf, 7, 5000);
	sent(IBV_WR_RDMA_WRITE, 1, 5000, 8192);
	assert_memory_equal(a.buf, b.buf + 8192, 5000);
	assert_true(rig_quiet(&b));
	assert_int_equal(rig_recv(&b, 2, b.buf, 8), 0);
	sent(IBV_WR_RDMA_WRITE_WITH_IMM, 3, 100, 16384);
	rig_wait(&b, &wc);
	assert_int_equal(wc.wr_id, 2);
	assert_int_equal(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	assert_int_equal(wc.byte_len, 100);
	assert_int_equal(wc.imm_data, 0x01020304);
	assert_memory_equal(a.buf, b.buf + 16384, 100);
}

/* No receive: gone. The next message has the next receive. */
static void test_no_receive(void **state)
{
	memset(a.buf, 1, 8);
	sent(IBV_WR_SEND, 1, 8, 0);
	sent(IBV_WR_RDMA_WRITE_WITH_IMM, 2, 8, 4096);
	assert_int_equal(rig_recv(&b, 3, b.buf, 8), 0);
	assert_true(rig_quiet(&b));
	memset(a.buf, 2, 8);
	sent(IBV_WR_SEND, 4, 8, 0);
	rig_expect(&b, 3, IBV_WC_SUCCESS);
	assert_int_equal(b.buf[0], 2);
	assert_true(rig_quiet(&b));
}

/* What the responder finds wrong is dropped; both ends go on. */
static void test_dropped(void **state)
{
	struct ibv_async_event ev;

	memset(a.buf, 9, 128);
	memset(b.buf, 0, 128);
	assert_int_equal(post(IBV_WR_RDMA_WRITE, 1, 64, 0, 0xdeadbeef), 0);
	rig_expect(&a, 1, IBV_WC_SUCCESS);
	assert_int_equal(post(IBV_WR_RDMA_WRITE, 2, 64, RIG_MEM - 8,
			      b.mem->mr->rkey),
			 0);
	rig_expect(&a, 2, IBV_WC_SUCCESS);
	assert_int_equal(b.buf[0], 0);
	/* too long: the receive stays for the next one */
	assert_int_equal(rig_recv(&b, 3, b.buf, 32), 0);
	sent(IBV_WR_SEND, 4, 64, 0);
	assert_true(rig_quiet(&b));
	sent(IBV_WR_SEND, 5, 32, 0);
	rig_expect(&b, 3, IBV_WC_SUCCESS);
	assert_int_equal(state_of(&a), IBV_QPS_RTS);
	assert_int_equal(state_of(&b), IBV_QPS_RTS);
	assert_int_equal(b.dev->ops->get_async_event(b.dev, &ev), -EAGAIN);
}

/* A receive that is wrong breaks its own end; the other does not learn it. */
static void test_bad_receive(void **state)
{
	b.lkey ^= 0x10000;
	assert_int_equal(rig_recv(&b, 1, b.buf, 64), 0);
	assert_int_equal(rig_recv(&b, 2, b.buf, 64), 0);
	sent(IBV_WR_SEND, 3, 8, 0);
	rig_expect(&b, 1, IBV_WC_LOC_PROT_ERR);
	rig_expect(&b, 2, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(state_of(&b), IBV_QPS_ERR);
	sent(IBV_WR_SEND, 4, 8, 0);
	assert_int_equal(state_of(&a), IBV_QPS_RTS);
}

/* Nothing completes with success behind it, nor is anything written, even
 * before the QP's owner has looked. */
static void test_behind_a_bad_receive(void **state)
{
	struct soft *s = soft_of_dev(b.dev);

	/* b's memory is mapped from here on */
	assert_int_equal(rig_recv(&b, 1, b.buf, 64), 0);
	sent(IBV_WR_SEND, 3, 8, 0);
	rig_expect(&b, 1, IBV_WC_SUCCESS);
	b.lkey ^= 0x10000;
	assert_int_equal(rig_recv(&b, 1, b.buf, 64), 0);
	b.lkey ^= 0x10000;
	assert_int_equal(rig_recv(&b, 2, b.buf + 64, 64), 0);
	memset(a.buf, 7, 8);
	pthread_mutex_lock(&s->lock); /* it cannot look yet */
	sent(IBV_WR_SEND, 3, 8, 0);
	sent(IBV_WR_SEND, 4, 8, 0);
	sent(IBV_WR_RDMA_WRITE, 5, 8, 128);
	pthread_mutex_unlock(&s->lock);
	rig_expect(&b, 1, IBV_WC_LOC_PROT_ERR);
	rig_expect(&b, 2, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(b.buf[64], 0);
	assert_int_equal(b.buf[128], 0);
}

static void test_refused(void **state)
{
	assert_int_equal(post(IBV_WR_RDMA_READ, 1, 8, 0, b.mem->mr->rkey),
			 EINVAL);
	assert_int_equal(post(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 8, 0,
			      b.mem->mr->rkey),
			 EINVAL);
	assert_true(rig_quiet(&a));
}

/* An error of the send queue: SQE. Receives go on; RTS again is allowed. */
static void test_sqe(void **state)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS,
				   .cur_qp_state = IBV_QPS_SQE};

	a.lkey ^= 0x10000;
	assert_int_equal(post(IBV_WR_SEND, 1, 8, 0, 0), 0);
	rig_expect(&a, 1, IBV_WC_LOC_PROT_ERR);
	a.lkey ^= 0x10000;
	assert_int_equal(state_of(&a), IBV_QPS_SQE);
	assert_int_equal(post(IBV_WR_SEND, 2, 8, 0, 0), 0);
	rig_expect(&a, 2, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(rig_recv(&a, 3, a.buf + 64, 8), 0);
	assert_int_equal(rig_post(&b, IBV_WR_SEND, 4, b.buf, 8, 0, 0,
				  IBV_SEND_SIGNALED),
			 0);
	rig_expect(&a, 3, IBV_WC_SUCCESS);
	rig_expect(&b, 4, IBV_WC_SUCCESS);
	assert_int_equal(a.dev->ops->modify_qp(a.dev, a.qp, &attr,
					       IBV_QP_STATE | IBV_QP_CUR_STATE),
			 0);
	assert_int_equal(rig_recv(&b, 5, b.buf, 8), 0);
	sent(IBV_WR_SEND, 6, 8, 0);
	rig_expect(&b, 5, IBV_WC_SUCCESS);
}

/* Nobody there, or nobody any more: sent all the same. */
static void test_nobody(void **state)
{
	assert_int_equal(b.dev->ops->destroy_qp(b.dev, b.qp), 0);
	b.qp = NULL;
	sent(IBV_WR_SEND, 1, 8, 0);
	sent(IBV_WR_RDMA_WRITE, 2, 8, 0);
	a.lkey ^= 0x10000;
	assert_int_equal(post(IBV_WR_SEND, 3, 8, 0, 0), 0);
	rig_expect(&a, 3, IBV_WC_LOC_PROT_ERR);
}

/* An RC QP that answers is no peer of a UC QP. */
static void test_other_transport(void **state)
{
	struct dev_qp_addr addr;
	struct ibv_qp *rc, *uc_qp = b.qp;

	b.o.type = IBV_QPT_RC;
	rc = b.qp = rig_qp(&b);
	rig_qp_addr(&a, a.qp, &addr);
	rig_connect_qp(&b, rc, &addr);
	assert_int_equal(rig_recv(&b, 1, b.buf, 8), 0);
	assert_int_equal(dev_qp_err(a.dev, a.qp), 0);
	assert_int_equal(a.dev->ops->destroy_qp(a.dev, a.qp), 0);
	a.qp = rig_qp(&a);
	rig_qp_addr(&b, rc, &addr);
	rig_connect_qp(&a, a.qp, &addr);
	sent(IBV_WR_SEND, 2, 8, 0);
	assert_true(rig_quiet(&b));
	assert_int_equal(b.dev->ops->destroy_qp(b.dev, rc), 0);
	b.qp = uc_qp;
}

static void child(int sock, void *arg)
{
	struct rig_addr peer;
	struct rig_end e;
	char go;

	rig_meet(&e, sock, &uc, &peer);
	rig_put(sock, "r", 1);
	rig_get(sock, &go, 1);
	_exit(1);
}

/* Death of the peer is no event; what waits for it is sent. */
static void test_death(void **state)
{
	struct ibv_qp *own = a.qp;
	struct ibv_async_event ev;
	struct rig_addr mine, peer;
	struct rig_child c;
	unsigned i;
	char r;

	rig_fork(&c, child, NULL);
	a.qp = rig_qp(&a);
	rig_addr(&a, &mine);
	rig_get(c.sock, &peer, sizeof(peer));
	rig_put(c.sock, &mine, sizeof(mine));
	rig_connect(&a, &peer);
	rig_get(c.sock, &r, 1);
	assert_int_equal(rig_recv(&a, 1, a.buf, 8), 0);
	/* Its memory was never mapped: the answer never comes. */
	rig_stop(&c);
	for (i = 2; i < 5; i++)
		assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE, i, a.buf, 8,
					  peer.buf, peer.rkey,
					  IBV_SEND_SIGNALED),
				 0);
	assert_int_equal(kill(c.pid, SIGKILL), 0);
	assert_true(WIFSIGNALED(rig_join(&c)));
	for (i = 2; i < 5; i++)
		rig_expect(&a, i, IBV_WC_SUCCESS);
	assert_int_equal(rig_post(&a, IBV_WR_SEND, 6, a.buf, 8, 0, 0,
				  IBV_SEND_SIGNALED),
			 0);
	rig_expect(&a, 6, IBV_WC_SUCCESS);
	assert_int_equal(state_of(&a), IBV_QPS_RTS);
	assert_true(rig_quiet(&a));
	assert_int_equal(a.dev->ops->get_async_event(a.dev, &ev), -EAGAIN);
	assert_int_equal(dev_qp_err(a.dev, a.qp), 0);
	rig_expect(&a, 1, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(a.dev->ops->destroy_qp(a.dev, a.qp), 0);
	a.qp = own;
}

/* IBA 11.2.5.2: one bit less or one bit more is refused. */
static void test_masks(void **state)
{
	static const struct {
		enum ibv_qp_state from, to;
		int req, opt;
	} t[] = {
		{IBV_QPS_RESET, IBV_QPS_INIT,
		 IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
		{IBV_QPS_INIT, IBV_QPS_RTR,
		 IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
		 IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS},
		{IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN,
		 IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS},
		{IBV_QPS_RTS, IBV_QPS_RTS, 0,
		 IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS},
		{IBV_QPS_SQE, IBV_QPS_RTS, 0,
		 IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS},
		{IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
		{IBV_QPS_SQD, IBV_QPS_RTS, 0,
		 IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS},
	};
	unsigned i, bit;
	int m, want;

	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		for (bit = 1; bit < 26; bit++) {
			m = t[i].req ^ (1 << bit);
			want = (m & t[i].req) == t[i].req &&
					       !(m & ~(t[i].req | t[i].opt))
				       ? 0
				       : -EINVAL;
			assert_int_equal(dev_states_check(IBV_QPT_UC, t[i].from,
							  t[i].to, m),
					 want);
		}
		assert_int_equal(dev_states_check(IBV_QPT_UC, t[i].from,
						  t[i].to, t[i].req),
				 0);
	}
}

/* The same where memory cannot be mapped. */
static void test_plain(void **state)
{
	struct rig_opts o = uc;
	struct rig_end c, d;

	o.plain = true;
	rig_pair(&c, &d, &o);
	memset(c.buf, 5, 3000);
	assert_int_equal(rig_recv(&d, 1, d.buf, 4096), 0);
	assert_int_equal(rig_post(&c, IBV_WR_SEND, 2, c.buf, 3000, 0, 0,
				  IBV_SEND_SIGNALED),
			 0);
	rig_expect(&c, 2, IBV_WC_SUCCESS);
	rig_expect(&d, 1, IBV_WC_SUCCESS);
	assert_memory_equal(c.buf, d.buf, 3000);
	rig_unpair(&c, &d);
}

#define T(f) cmocka_unit_test_setup_teardown(f, up, down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_messages),
		T(test_writes),
		T(test_no_receive),
		T(test_dropped),
		T(test_bad_receive),
		T(test_behind_a_bad_receive),
		T(test_refused),
		T(test_sqe),
		T(test_nobody),
		T(test_other_transport),
		T(test_death),
		T(test_masks),
		cmocka_unit_test(test_plain),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
