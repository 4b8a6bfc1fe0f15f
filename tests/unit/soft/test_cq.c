/* SPDX-License-Identifier: MIT */
/* One CQ for many QPs and threads; the completion channel: no wake-up is lost,
 * none is invented. */
#include "rig.h"

#include "unit/patience.h"

#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#define QPS 40 /* more than are looked at one by one */
#define PER_QP 300
#define SLEEPS 3000

static struct rig_end a, b;

struct many {
	struct ibv_qp *aq[QPS], *bq[QPS];
	_Atomic int received, sent;
	_Atomic int by_qp[QPS];
};

static void connect_many(struct many *m)
{
	struct dev_qp_addr aa, ba;
	int i;

	for (i = 0; i < QPS; i++) {
		m->aq[i] = rig_qp(&a);
		m->bq[i] = rig_qp(&b);
		rig_qp_addr(&a, m->aq[i], &aa);
		rig_qp_addr(&b, m->bq[i], &ba);
		rig_connect_qp(&a, m->aq[i], &ba);
		rig_connect_qp(&b, m->bq[i], &aa);
	}
}

static void destroy_many(struct many *m)
{
	int i;

	for (i = 0; i < QPS; i++) {
		a.dev->ops->destroy_qp(a.dev, m->aq[i]);
		b.dev->ops->destroy_qp(b.dev, m->bq[i]);
	}
}

static void post_recv_on(struct ibv_qp *qp, uint64_t id)
{
	struct ibv_sge sge = {(uintptr_t)b.buf + 64 * (id % 1000), 8,
			      b.mem->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1},
			   *bad;

	assert_int_equal(ibv_post_recv(qp, &wr, &bad), 0);
}

static int send_on(struct ibv_qp *qp, uint64_t id)
{
	struct ibv_sge sge = {(uintptr_t)a.buf + 8 * id, 8, a.mem->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = id,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;

	return ibv_post_send(qp, &wr, &bad);
}

/* Polls b's CQ; each receive is posted again. */
static void *receiver(void *arg)
{
	struct many *m = arg;
	struct ibv_wc wc[8];
	int n, i;

	while (m->received < QPS * PER_QP) {
		n = ibv_poll_cq(b.cq, 8, wc);
		assert_true(n >= 0);
		for (i = 0; i < n; i++) {
			assert_int_equal(wc[i].status, IBV_WC_SUCCESS);
			m->by_qp[wc[i].wr_id]++;
			post_recv_on(m->bq[wc[i].wr_id], wc[i].wr_id);
			m->received++;
		}
	}
	return NULL;
}

struct half {
	struct many *m;
	int first;
};

/* Sends on every other QP of a, polling the CQ that both senders share. */
static void *sender(void *arg)
{
	struct half *h = arg;
	struct ibv_wc wc[8];
	int i, r, n;

	for (r = 0; r < PER_QP; r++) {
		for (i = h->first; i < QPS; i += 2) {
			while (send_on(h->m->aq[i], (uint64_t)i)) {
				n = ibv_poll_cq(a.cq, 8, wc);
				assert_true(n >= 0);
				h->m->sent += n;
			}
		}
		n = ibv_poll_cq(a.cq, 8, wc);
		assert_true(n >= 0);
		h->m->sent += n;
	}
	return NULL;
}

static void test_shared_cq(void **state)
{
	struct rig_opts o = {.cqe = 2 * (QPS + 1) * RIG_WR};
	static struct many m;
	struct half h[2] = {{&m, 0}, {&m, 1}};
	pthread_t t[4];
	struct ibv_wc wc;
	int i;

	memset(&m, 0, sizeof(m));
	rig_pair(&a, &b, &o);
	connect_many(&m);
	for (i = 0; i < QPS * 16; i++)
		post_recv_on(m.bq[i % QPS], (uint64_t)i % QPS);
	pthread_create(&t[0], NULL, receiver, &m);
	pthread_create(&t[1], NULL, receiver, &m);
	pthread_create(&t[2], NULL, sender, &h[0]);
	pthread_create(&t[3], NULL, sender, &h[1]);
	for (i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	while (m.sent < QPS * PER_QP) {
		rig_wait(&a, &wc);
		m.sent++;
	}
	for (i = 0; i < QPS; i++)
		assert_int_equal(m.by_qp[i], PER_QP);
	assert_true(rig_quiet(&a));
	destroy_many(&m);
	rig_unpair(&a, &b);
}

/* Sends one by one, each when the sleeper has had the one before. */
static void pinger(int sock, void *arg)
{
	struct rig_addr peer;
	struct rig_end e;
	volatile uint64_t *seen;
	uint64_t i;
	char go;

	rig_meet(&e, sock, NULL, &peer);
	seen = (volatile uint64_t *)(void *)(e.buf + 4096);
	rig_get(sock, &go, 1);
	for (i = 1; i <= SLEEPS; i++) {
		memcpy(e.buf, &i, 8);
		while (rig_post(&e, IBV_WR_SEND, i, e.buf, 8, 0, 0,
				IBV_SEND_SIGNALED))
			;
		rig_expect(&e, i, IBV_WC_SUCCESS);
		while (*seen != i)
			;
		/* now and then a moment later, now and then at once */
		if (i % 7 == 0)
			usleep(i % 5 * 30);
	}
	rig_get(sock, &go, 1);
	rig_close(&e);
}

/* arm, re-check, sleep: a lost wake-up is a time-out of poll(2). */
static void test_no_lost_wakeup(void **state)
{
	struct rig_addr peer;
	struct rig_child c;
	struct rig_end e;
	struct ibv_cq *cq;
	struct ibv_wc wc;
	struct pollfd p;
	uint64_t i;
	int n;

	rig_fork(&c, pinger, NULL);
	rig_meet(&e, c.sock, NULL, &peer);
	p = (struct pollfd){.fd = e.ch->fd, .events = POLLIN};
	/* From here on a WRITE is done when its post returns. */
	rig_post(&e, IBV_WR_RDMA_WRITE, 9, e.buf + 8192, 8, peer.buf + 4096,
		 peer.rkey, IBV_SEND_SIGNALED);
	rig_expect(&e, 9, IBV_WC_SUCCESS);
	rig_recv(&e, 1, e.buf, 8);
	rig_recv(&e, 2, e.buf, 8);
	rig_put(c.sock, "g", 1);
	for (i = 1; i <= SLEEPS; i++) {
		while ((n = ibv_poll_cq(e.cq, 1, &wc)) == 0) {
			assert_int_equal(ibv_req_notify_cq(e.cq, 0), 0);
			n = ibv_poll_cq(e.cq, 1, &wc);
			if (n)
				break;
			assert_int_equal(poll(&p, 1, patience_ms(20)), 1);
			assert_int_equal(
				e.dev->ops->get_cq_event(e.dev, e.ch, &cq), 0);
			assert_ptr_equal(cq, e.cq);
			e.dev->ops->ack_cq_events(e.dev, cq, 1);
		}
		assert_int_equal(n, 1);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_memory_equal(e.buf, &i, 8);
		rig_recv(&e, 1, e.buf, 8);
		memcpy(e.buf + 8192, &i, 8);
		assert_int_equal(rig_post(&e, IBV_WR_RDMA_WRITE, 9,
					  e.buf + 8192, 8, peer.buf + 4096,
					  peer.rkey,
					  i % 32 ? 0 : IBV_SEND_SIGNALED),
				 0);
		if (i % 32 == 0)
			rig_expect(&e, 9, IBV_WC_SUCCESS);
	}
	rig_put(c.sock, "g", 1);
	assert_int_equal(rig_join(&c), 0);
	rig_close(&e);
}

static bool readable(struct rig_end *e)
{
	struct pollfd p = {.fd = e->ch->fd, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

static void test_one_event(void **state)
{
	struct ibv_cq *cq;
	struct ibv_wc wc;
	int i;

	rig_pair(&a, &b, NULL);
	for (i = 0; i < 4; i++)
		rig_recv(&b, i, b.buf, 8);
	/* not armed: silence */
	rig_post(&a, IBV_WR_SEND, 1, a.buf, 8, 0, 0, 0);
	rig_wait(&b, &wc);
	assert_false(readable(&b));
	assert_int_equal(b.dev->ops->get_cq_event(b.dev, b.ch, &cq), -EAGAIN);
	/* armed: one event for two messages */
	ibv_req_notify_cq(b.cq, 0);
	rig_post(&a, IBV_WR_SEND, 1, a.buf, 8, 0, 0, 0);
	rig_post(&a, IBV_WR_SEND, 1, a.buf, 8, 0, 0, 0);
	assert_true(readable(&b));
	assert_int_equal(b.dev->ops->get_cq_event(b.dev, b.ch, &cq), 0);
	assert_ptr_equal(cq, b.cq);
	assert_int_equal(b.dev->ops->get_cq_event(b.dev, b.ch, &cq), -EAGAIN);
	b.dev->ops->ack_cq_events(b.dev, b.cq, 1);
	/* solicited only */
	ibv_req_notify_cq(b.cq, 1);
	rig_recv(&b, 9, b.buf, 8);
	rig_post(&a, IBV_WR_SEND, 1, a.buf, 8, 0, 0, 0);
	assert_false(readable(&b));
	rig_post(&a, IBV_WR_SEND, 1, a.buf, 8, 0, 0, IBV_SEND_SOLICITED);
	assert_true(readable(&b));
	assert_int_equal(b.dev->ops->get_cq_event(b.dev, b.ch, &cq), 0);
	b.dev->ops->ack_cq_events(b.dev, b.cq, 1);
	/* armed again before the event was taken: two events in all */
	for (i = 0; i < 5; i++)
		rig_recv(&b, i, b.buf, 8);
	ibv_req_notify_cq(b.cq, 0);
	rig_post(&a, IBV_WR_SEND, 1, a.buf, 8, 0, 0, 0);
	ibv_req_notify_cq(b.cq, 0);
	rig_post(&a, IBV_WR_SEND, 1, a.buf, 8, 0, 0, 0);
	assert_int_equal(b.dev->ops->get_cq_event(b.dev, b.ch, &cq), 0);
	assert_int_equal(b.dev->ops->get_cq_event(b.dev, b.ch, &cq), 0);
	b.dev->ops->ack_cq_events(b.dev, b.cq, 2);
	assert_int_equal(b.dev->ops->get_cq_event(b.dev, b.ch, &cq), -EAGAIN);
	/* a send completion, and an error of one */
	ibv_req_notify_cq(a.cq, 0);
	rig_post(&a, IBV_WR_RDMA_WRITE, 1, a.buf, 8, (uintptr_t)b.buf,
		 b.mem->mr->rkey, IBV_SEND_SIGNALED);
	rig_wait(&a, &wc);
	assert_int_equal(a.dev->ops->get_cq_event(a.dev, a.ch, &cq), 0);
	a.dev->ops->ack_cq_events(a.dev, a.cq, 1);
	rig_unpair(&a, &b);
}

/* Receives of one QP leave in their order, also when some were moved behind many
 * sends while the CQ could overflow, and others came later. */
static void test_receive_order(void **state)
{
	struct rig_opts o = {.cqe = 256, .wr = 128};
	uint64_t next = 1000;
	struct ibv_qp *extra;
	struct ibv_wc wc;

	rig_pair(&a, &b, &o);
	extra = rig_qp(&b); /* with it the queues exceed the CQ */
	for (uint64_t id = next; id < 1005; id++)
		assert_int_equal(rig_recv(&b, id, b.buf, 8), 0);
	/* The first WRITE may wait until the region is mapped. */
	assert_int_equal(rig_post(&b, IBV_WR_RDMA_WRITE, 99, b.buf, 8,
				  (uintptr_t)a.buf, a.mem->mr->rkey,
				  IBV_SEND_SIGNALED),
			 0);
	rig_expect(&b, 99, IBV_WC_SUCCESS);
	for (uint64_t id = 0; id < 80; id++)
		assert_int_equal(rig_post(&b, IBV_WR_RDMA_WRITE, id, b.buf, 8,
					  (uintptr_t)a.buf, a.mem->mr->rkey,
					  IBV_SEND_SIGNALED),
				 0);
	for (uint64_t id = 0; id < 4; id++)
		assert_int_equal(
			rig_post(&a, IBV_WR_SEND, id, a.buf, 8, 0, 0, 0), 0);
	rig_expect(&b, 0, IBV_WC_SUCCESS);
	assert_int_equal(b.dev->ops->destroy_qp(b.dev, extra), 0);
	assert_int_equal(rig_post(&a, IBV_WR_SEND, 4, a.buf, 8, 0, 0, 0), 0);
	for (unsigned n = 1; n < 85; n++) {
		rig_wait(&b, &wc);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		if (wc.wr_id >= 1000)
			assert_int_equal(wc.wr_id, next++);
	}
	assert_int_equal(next, 1005);
	rig_unpair(&a, &b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_event),
		cmocka_unit_test(test_shared_cq),
		cmocka_unit_test(test_no_lost_wakeup),
		cmocka_unit_test(test_receive_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
