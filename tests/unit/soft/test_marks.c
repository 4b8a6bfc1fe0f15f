/* SPDX-License-Identifier: MIT */
/*
 * A completion queue with receives of many QPs, of which a poll looks at those
 * that are marked: nothing is missed while several threads send, each QP has its
 * turn, and what a peer did not come to mark before its end is found.
 */
#include "rig.h"

#include "dev/soft/cq/cq.h"
#include "dev/soft/qp/qp.h"
#include "unit/patience.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>

#define QPS 200 /* four groups */
#define RECVS 4
#define THREADS 3
#define MESSAGES 100000 /* of a thread */

struct way {
	struct ibv_qp *at_a, *at_b;
	unsigned sent, got;
	_Atomic unsigned taken; /* and posted again */
};

static struct rig_end a, b;
static struct way ways[QPS];

static struct way *way_of(uint32_t qpn)
{
	unsigned i;

	for (i = 0; i < QPS && ways[i].at_a->qp_num != qpn; i++)
		;
	assert_true(i < QPS);
	return &ways[i];
}

static void recv_post(struct way *w)
{
	struct ibv_recv_wr wr = {.wr_id = 1}, *bad;

	assert_int_equal(ibv_post_recv(w->at_a, &wr, &bad), 0);
}

/* b's completions serve to free the places of its send queues alone. */
static int send_post(struct way *w)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND_WITH_IMM,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	struct ibv_wc wc[16];
	int err;

	wr.imm_data = w->sent++;
	do
		err = ibv_post_send(w->at_b, &wr, &bad);
	while (err == ENOMEM && ibv_poll_cq(b.cq, 16, wc) >= 0);
	return err;
}

static void pairs_make(void)
{
	struct dev_qp_addr to_a, to_b;
	unsigned i, k;

	rig_pair(&a, &b, &(struct rig_opts){.cqe = 4096, .wr = RECVS});
	for (i = 0; i < QPS; i++) {
		ways[i] = (struct way){rig_qp(&a), rig_qp(&b)};
		rig_qp_addr(&a, ways[i].at_a, &to_a);
		rig_qp_addr(&b, ways[i].at_b, &to_b);
		rig_connect_qp(&a, ways[i].at_a, &to_b);
		rig_connect_qp(&b, ways[i].at_b, &to_a);
		for (k = 0; k < RECVS; k++)
			recv_post(&ways[i]);
	}
}

static void pairs_end(void)
{
	for (unsigned i = 0; i < QPS; i++) {
		a.dev->ops->destroy_qp(a.dev, ways[i].at_a);
		b.dev->ops->destroy_qp(b.dev, ways[i].at_b);
	}
	rig_unpair(&a, &b);
}

/* Takes what a poll of n entries returns. */
static unsigned take(int n)
{
	struct ibv_wc wc[16];
	struct way *w;
	int i, got = ibv_poll_cq(a.cq, n, wc);

	assert_true(got >= 0);
	for (i = 0; i < got; i++) {
		assert_int_equal(wc[i].status, IBV_WC_SUCCESS);
		w = way_of(wc[i].qp_num);
		assert_int_equal(wc[i].imm_data, w->got++);
		recv_post(w);
		/* release: the receive is posted */
		atomic_store_explicit(&w->taken, w->got, memory_order_release);
	}
	return (unsigned)got;
}

/* --- several threads --------------------------------------------------- */

/* A thread has every third QP. */
static void *sender(void *arg)
{
	unsigned me = *(unsigned *)arg, n, i = me, tries;
	struct way *w;

	for (n = 0; n < MESSAGES; n++) {
		tries = 0;
		do {
			i = (i + THREADS * (1 + n % 7)) % QPS;
			i = i - i % THREADS + me;
			w = &ways[i < QPS ? i : me];
			if (++tries % 64 == 0)
				sched_yield();
		} while (w->sent - atomic_load_explicit(&w->taken,
							memory_order_acquire) >=
			 RECVS);
		if (send_post(w))
			return w;
	}
	return NULL;
}

static void test_threads(void **state)
{
	static unsigned id[THREADS] = {0, 1, 2};
	uint64_t last = rig_now_ns();
	unsigned i, got = 0, n, round;
	pthread_t t[THREADS];
	void *bad;

	pairs_make();
	for (i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, sender, &id[i]),
				 0);
	for (round = 0; got < THREADS * MESSAGES; round++) {
		n = take(1 + (int)(round % 16));
		got += n;
		if (n)
			last = rig_now_ns();
		else
			sched_yield();
		assert_true(rig_now_ns() - last < patience_ns(20));
	}
	for (i = 0; i < THREADS; i++) {
		pthread_join(t[i], &bad);
		assert_null(bad);
	}
	assert_int_equal(take(16), 0);
	pairs_end();
}

/* --- turns -------------------------------------------------------------- */

/* All QPs have receives to be polled, all the time. */
static void turns(int n)
{
	unsigned i, before[QPS];

	for (i = 0; i < QPS; i++)
		before[i] = ways[i].got;
	for (i = 0; i < 3 * QPS; i++) {
		take(n);
		for (unsigned k = 0; k < QPS; k++)
			while (ways[k].sent - ways[k].got < RECVS)
				assert_int_equal(send_post(&ways[k]), 0);
	}
	for (i = 0; i < QPS; i++)
		if (ways[i].got == before[i])
			fail_msg("QP %u had no turn in polls of %d", i, n);
}

static void test_turns(void **state)
{
	unsigned i;

	pairs_make();
	for (i = 0; i < QPS; i++)
		send_post(&ways[i]);
	turns(RECVS); /* a poll ends where a QP does */
	turns(RECVS + 1);
	turns(7);
	while (take(16))
		;
	for (i = 0; i < QPS; i++)
		assert_int_equal(ways[i].got, ways[i].sent);
	pairs_end();
}

/* The first of a group is looked at last when a poll begins behind it. */
static void test_behind(void **state)
{
	unsigned i;

	pairs_make();
	for (i = 0; i < QPS; i++) {
		send_post(&ways[i]);
		assert_int_equal(take(1), 1); /* the next begins behind it */
		send_post(&ways[i / 64 * 64]);
		send_post(&ways[i]);
		assert_int_equal(take(16), 2);
		assert_int_equal(take(16), 0);
	}
	pairs_end();
}

/* A peer completes a receive that post_recv() has posted and not counted yet. */
static void test_uncounted(void **state)
{
	struct soft_qp *q;

	pairs_make();
	q = soft_qp_of(ways[100].at_a);
	q->rq_tail -= RECVS;
	assert_int_equal(send_post(&ways[100]), 0);
	assert_int_equal(take(16), 0);
	assert_int_equal(take(16), 0);
	q->rq_tail += RECVS;
	assert_int_equal(take(16), 1);
	pairs_end();
}

/* --- a death ------------------------------------------------------------ */

static void one_message(int sock, void *arg)
{
	struct rig_addr peer;
	struct rig_end e;
	char go;

	rig_meet(&e, sock, arg, &peer);
	rig_get(sock, &go, 1);
	rig_post(&e, IBV_WR_SEND, 1, e.buf, 8, 0, 0, IBV_SEND_SIGNALED);
	rig_expect(&e, 1, IBV_WC_SUCCESS);
	rig_put(sock, "x", 1);
	rig_get(sock, &go, 1);
}

static void nothing_marked(struct rig_end *e)
{
	struct shm_cq *cq = soft_cq_of(e->cq)->shm;

	for (unsigned i = 0; i < SHM_CQ_GROUPS; i++)
		atomic_store(&cq->group[i], 0);
	atomic_store(&cq->any, 0);
}

/* It dies between its ready word and the marks. UC: nothing else tells. */
static void death(enum ibv_qp_type type)
{
	struct rig_opts o = {.type = type};
	struct ibv_qp *beside[8];
	struct rig_child c;
	struct rig_addr mine, peer;
	unsigned i;
	char there;

	rig_fork(&c, one_message, &o);
	rig_open(&a, &o);
	for (i = 0; i < 8; i++)
		beside[i] = rig_qp(&a);
	rig_addr(&a, &mine);
	rig_put(c.sock, &mine, sizeof(mine));
	rig_get(c.sock, &peer, sizeof(peer));
	rig_connect(&a, &peer);
	assert_int_equal(rig_recv(&a, 1, a.buf, 8), 0);
	rig_put(c.sock, "g", 1);
	rig_get(c.sock, &there, 1);
	nothing_marked(&a);
	assert_true(rig_quiet(&a));
	kill(c.pid, SIGKILL);
	rig_join(&c);
	rig_expect(&a, 1, IBV_WC_SUCCESS);
	for (i = 0; i < 8; i++)
		a.dev->ops->destroy_qp(a.dev, beside[i]);
	rig_close(&a);
}

static void test_death(void **state)
{
	death(IBV_QPT_RC);
	death(IBV_QPT_UC);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_turns),
		cmocka_unit_test(test_behind),
		cmocka_unit_test(test_uncounted),
		cmocka_unit_test(test_death),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
