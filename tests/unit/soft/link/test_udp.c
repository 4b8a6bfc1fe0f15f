/* SPDX-License-Identifier: MIT */
/*
 * test_udp.c - two devices of this process, joined by UDP on this host: long
 * messages through segments and merged packets, without either, and with ECN
 * marks on all packets. Between the test and the kernel stand the linker's
 * --wrap of setsockopt() and sendmmsg().
 */
#include "../rig.h"

#include "dev/soft/link/packet.h"
#include "dev/soft/link/state.h"
#include "unit/patience.h"

#include <netinet/ip.h>
#include <netinet/udp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define LEN (1u << 20)

static bool marks, no_merge;
static atomic_int refuse; /* an errno for segments */
static atomic_uint runs, longest, cnps, left, back;

int __real_epoll_ctl(int set, int op, int fd, struct epoll_event *ev);
int __wrap_epoll_ctl(int set, int op, int fd, struct epoll_event *ev);
int __real_setsockopt(int fd, int level, int name, const void *v,
		      socklen_t len);
int __wrap_setsockopt(int fd, int level, int name, const void *v,
		      socklen_t len);
int __real_sendmmsg(int fd, struct mmsghdr *m, unsigned n, int flags);
int __wrap_sendmmsg(int fd, struct mmsghdr *m, unsigned n, int flags);

/* The control thread's set: packets are left to pollers, or not any more. */
int __wrap_epoll_ctl(int set, int op, int fd, struct epoll_event *ev)
{
	if (op == EPOLL_CTL_MOD) {
		left += !ev->events;
		back += !!ev->events;
	}
	return __real_epoll_ctl(set, op, fd, ev);
}

/* As if a switch on the way marked each packet. */
int __wrap_setsockopt(int fd, int level, int name, const void *v, socklen_t len)
{
	static const int ce = IPTOS_ECN_CE;

	if (marks && level == IPPROTO_IP && name == IP_TOS)
		v = &ce;
	if (no_merge && level == IPPROTO_UDP && name == UDP_GRO)
		return 0;
	return __real_setsockopt(fd, level, name, v, len);
}

static bool has_segments(const struct msghdr *h)
{
	struct cmsghdr *c;

	for (c = CMSG_FIRSTHDR(h); c;
	     c = CMSG_NXTHDR((struct msghdr *)(uintptr_t)h, c))
		if (c->cmsg_level == IPPROTO_UDP)
			return true;
	return false;
}

int __wrap_sendmmsg(int fd, struct mmsghdr *m, unsigned n, int flags)
{
	unsigned i, j;

	for (i = 0; i < n; i++) {
		const struct msghdr *h = &m[i].msg_hdr;

		if (has_segments(h)) {
			runs++;
			if (refuse) {
				if (i)
					break;
				errno = refuse;
				return -1;
			}
		}
		if (h->msg_iovlen > longest)
			longest = (unsigned)h->msg_iovlen;
		for (j = 0; j < h->msg_iovlen; j++)
			cnps += *(uint8_t *)h->msg_iov[j].iov_base ==
				PACKET_CNP;
	}
	return __real_sendmmsg(fd, m, i, flags);
}

static void fill(char *p, uint32_t seed)
{
	for (uint32_t i = 0; i < LEN; i++)
		p[i] = (char)(i * 7 + i / 1021 + seed);
}

/* A WRITE, a SEND and a READ of a MiB, each byte looked at. */
static void move(void)
{
	/* a starved peer is not a dead one: a second each */
	static const struct rig_opts opts = {.qp = {.timeout = 18}};
	static char want[LEN];
	struct rig_end a, b;
	struct rig_addr addr;

	runs = longest = cnps = 0;
	rig_pair(&a, &b, &opts);
	rig_addr(&b, &addr);
	fill(a.buf, 1);
	fill(want, 1);
	assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE, 1, a.buf, LEN,
				  addr.buf, addr.rkey, IBV_SEND_SIGNALED),
			 0);
	rig_expect(&a, 1, IBV_WC_SUCCESS);
	assert_memory_equal(b.buf, want, LEN);
	fill(a.buf, 2);
	fill(want, 2);
	assert_int_equal(rig_recv(&b, 2, b.buf, LEN), 0);
	assert_int_equal(rig_post(&a, IBV_WR_SEND, 3, a.buf, LEN, 0, 0,
				  IBV_SEND_SIGNALED),
			 0);
	rig_expect(&a, 3, IBV_WC_SUCCESS);
	rig_expect(&b, 2, IBV_WC_SUCCESS);
	assert_memory_equal(b.buf, want, LEN);
	fill(b.buf, 4);
	fill(want, 4);
	assert_int_equal(rig_post(&a, IBV_WR_RDMA_READ, 5, a.buf, LEN, addr.buf,
				  addr.rkey, IBV_SEND_SIGNALED),
			 0);
	rig_expect(&a, 5, IBV_WC_SUCCESS);
	assert_memory_equal(a.buf, want, LEN);
	rig_unpair(&a, &b);
}

static void test_segments(void **state)
{
	move();
	assert_true(runs > 0);
	assert_true(longest > 8);
	assert_int_equal(cnps, 0);
}

/* The receiver's kernel cuts the segments apart. */
static void test_not_merged(void **state)
{
	no_merge = true;
	move();
	no_merge = false;
	assert_true(runs > 0);
}

static void test_no_segments(void **state)
{
	refuse = EIO;
	move();
	refuse = 0;
	assert_int_equal(longest, 1);
	/* those of one call at most, at each end */
	assert_true(runs > 0 && runs < 12);
}

static void test_marked(void **state)
{
	marks = true;
	move();
	marks = false;
	assert_true(cnps > 0);
}

/* WRITEs to b, which polls in vain, until its control thread leaves packets to
 * it, or that of a to a. */
static void until_left(struct rig_end *a, struct rig_end *b,
		       const struct rig_addr *addr)
{
	uint64_t end = rig_now_ns() + patience_ns(60);
	struct ibv_wc wc;

	left = back = 0;
	while (!left && rig_now_ns() < end) {
		assert_int_equal(rig_post(a, IBV_WR_RDMA_WRITE, 1, a->buf, 8,
					  addr->buf, addr->rkey,
					  IBV_SEND_SIGNALED),
				 0);
		while (ibv_poll_cq(a->cq, 1, &wc) == 0)
			assert_int_equal(ibv_poll_cq(b->cq, 1, &wc), 0);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
	}
	patience_met(left, 60, "packets that are left to the poller");
}

/* A thread that goes to sleep gives them back at once; of one that just stops to
 * poll the control thread finds out. */
static void test_left(void **state)
{
	static const struct rig_opts opts = {.qp = {.timeout = 18}};
	struct rig_end a, b;
	struct rig_addr addr;
	struct ibv_wc wc;
	struct ibv_cq *cq;
	struct pollfd sleeper = {.events = POLLIN};
	unsigned was;

	rig_pair(&a, &b, &opts);
	rig_addr(&b, &addr);
	until_left(&a, &b, &addr);
	assert_int_equal(rig_recv(&b, 4, b.buf, 8), 0);
	assert_int_equal(ibv_req_notify_cq(a.cq, 0), 0);
	assert_int_equal(ibv_req_notify_cq(b.cq, 0), 0);
	assert_true(back >= left);
	/* one more look before it sleeps is no polling */
	was = left;
	assert_int_equal(ibv_poll_cq(b.cq, 1, &wc), 0);
	assert_int_equal(rig_post(&a, IBV_WR_SEND, 3, a.buf, 8, 0, 0,
				  IBV_SEND_SIGNALED),
			 0);
	sleeper.fd = b.ch->fd;
	patience_met(poll(&sleeper, 1, patience_ms(60)) == 1, 60,
		     "the event of a SEND");
	assert_int_equal(b.dev->ops->get_cq_event(b.dev, b.ch, &cq), 0);
	b.dev->ops->ack_cq_events(b.dev, cq, 1);
	assert_int_equal(left, was);
	rig_expect(&b, 4, IBV_WC_SUCCESS);
	rig_expect(&a, 3, IBV_WC_SUCCESS);
	until_left(&a, &b, &addr);
	/* b polls no more */
	assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE, 2, a.buf, LEN,
				  addr.buf, addr.rkey, IBV_SEND_SIGNALED),
			 0);
	rig_expect(&a, 2, IBV_WC_SUCCESS);
	rig_unpair(&a, &b);
}

static bool is_held(struct rig_end *e)
{
	struct soft_qp *q = soft_qp_of(e->qp);
	bool held;

	soft_qp_hold(q);
	held = q->link->rc.rs.held;
	soft_qp_release(q);
	return held;
}

/* One message from a to b; it is acknowledged, or kept for b's answer. */
static void say(struct rig_end *a, struct rig_end *b)
{
	assert_int_equal(rig_recv(b, 1, b->buf, 8), 0);
	assert_int_equal(rig_post(a, IBV_WR_SEND, 2, a->buf, 8, 0, 0,
				  IBV_SEND_SIGNALED),
			 0);
	rig_expect(b, 1, IBV_WC_SUCCESS);
}

static void both(struct rig_end *e, uint64_t one, uint64_t two)
{
	struct ibv_wc wc[2];

	rig_wait(e, &wc[0]);
	rig_wait(e, &wc[1]);
	assert_int_equal(wc[0].status, IBV_WC_SUCCESS);
	assert_int_equal(wc[1].status, IBV_WC_SUCCESS);
	assert_int_equal(wc[0].wr_id + wc[1].wr_id, one + two);
}

/* b answers until its ACK of a message of a's waits for the answer. A machine
 * that is too busy for a poller to be left alone has none. */
static void until_held(struct rig_end *a, struct rig_end *b)
{
	uint64_t end = rig_now_ns() + 2000000000ull;

	for (;;) {
		say(a, b);
		if (is_held(b))
			return;
		assert_int_equal(rig_recv(a, 3, a->buf, 8), 0);
		assert_int_equal(rig_post(b, IBV_WR_SEND, 4, b->buf, 8, 0, 0,
					  IBV_SEND_SIGNALED),
				 0);
		both(a, 2, 3);
		rig_expect(b, 4, IBV_WC_SUCCESS);
		if (rig_now_ns() > end) {
			rig_unpair(a, b);
			skip();
		}
	}
}

/* A program that takes a message and ends its QP has acknowledged it. */
static void test_held_goes(void **state)
{
	static const struct rig_opts opts = {.qp = {.timeout = 18}};
	struct ibv_qp_attr err = {.qp_state = IBV_QPS_ERR};
	struct rig_end a, b;

	for (int i = 0; i < 3; i++) {
		rig_pair(&a, &b, &opts);
		until_held(&a, &b);
		if (i == 0)
			assert_int_equal(b.dev->ops->modify_qp(b.dev, b.qp,
							       &err,
							       IBV_QP_STATE),
					 0);
		else if (i == 1)
			assert_int_equal(b.dev->ops->destroy_qp(b.dev, b.qp),
					 0);
		/* else b polls no more */
		rig_expect(&a, 2, IBV_WC_SUCCESS);
		if (i == 1)
			b.qp = NULL;
		rig_unpair(&a, &b);
	}
}

/* A poster of q has lost its core. Nobody else may wait for it: soft.lock is
 * free while the control thread has work for q. */
static void others_go_on(struct soft_qp *q)
{
	uint64_t end = rig_now_ns() + patience_ns(20);
	struct soft *s = q->s;
	int err = EBUSY;

	/* its deadline has passed, and the control thread has seen it */
	link_due(s->link, 0, true);
	while (!atomic_load(&s->link->due) && rig_now_ns() < end)
		sched_yield();
	assert_int_not_equal(atomic_load(&s->link->due), 0);
	while (err == EBUSY && rig_now_ns() < end) {
		err = pthread_mutex_trylock(&s->lock);
		sched_yield();
	}
	assert_int_equal(err, 0);
	pthread_mutex_unlock(&s->lock);
}

static void test_poster_away(void **state)
{
	static const struct rig_opts opts = {.qp = {.timeout = 18}};
	struct soft_link *k;
	struct rig_end a, b;
	struct soft_qp *q;
	bool held;

	rig_pair(&a, &b, &opts);
	q = soft_qp_of(a.qp);
	k = q->s->link;
	soft_lock(&q->lock);
	others_go_on(q);
	soft_unlock(&q->lock);
	/* an ACK of its has waited for long enough */
	pthread_mutex_lock(&q->s->lock);
	soft_lock(&q->lock);
	k->held[k->n_held++] = q;
	q->link->held = true;
	q->link->held_ns = k->held_ns = 0;
	pthread_mutex_unlock(&q->s->lock);
	others_go_on(q);
	pthread_mutex_lock(&q->s->lock);
	held = q->link->held;
	pthread_mutex_unlock(&q->s->lock);
	assert_true(held);
	soft_unlock(&q->lock);
	for (uint64_t end = rig_now_ns() + patience_ns(20);
	     held && rig_now_ns() < end; sched_yield()) {
		pthread_mutex_lock(&q->s->lock);
		held = q->link->held;
		pthread_mutex_unlock(&q->s->lock);
	}
	assert_false(held);
	rig_unpair(&a, &b);
}

static struct {
	pthread_mutex_t lock;
	char line[512];
} said = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void hear(void *arg, enum env_log_level level, const char *msg)
{
	if (!strstr(msg, "; retries "))
		return;
	pthread_mutex_lock(&said.lock);
	snprintf(said.line, sizeof(said.line), "%s", msg);
	pthread_mutex_unlock(&said.lock);
}

static uint64_t heard(const char *word)
{
	const char *at = strstr(said.line, word);

	assert_non_null(at);
	return strtoull(at + strlen(word), NULL, 10);
}

/* Each count under its own name, when a QP ends. */
static void test_counts(void **state)
{
	static const struct rig_opts opts = {.qp = {.timeout = 18},
					     .log = hear};
	struct rig_end a, b;
	struct soft_qp *q;
	char pair[64];
	unsigned i;

	rig_pair(&a, &b, &opts);
	for (i = 0; i < 5; i++) {
		say(&a, &b);
		rig_expect(&a, 2, IBV_WC_SUCCESS);
	}
	snprintf(pair, sizeof(pair),
		 "QP 0x%x to QP 0x%x at ::ffff:", b.qp->qp_num, a.qp->qp_num);
	rig_close(&a);
	q = soft_qp_of(b.qp);
	soft_qp_hold(q);
	q->link->rc.retries = 7;
	q->link->rc.gaps = 8;
	q->link->rc.rnrs = 9;
	for (i = RC_TAKEN + 1; i < RC_DROPS; i++)
		q->link->rc.drops[i] = 10 + i;
	soft_qp_release(q);
	rig_close(&b);
	assert_non_null(strstr(said.line, pair));
	assert_true(heard("by UDP: sent ") > 0);
	assert_int_equal(heard("taken "), 5);
	assert_int_equal(heard("retries "), 7);
	assert_int_equal(heard("gaps "), 8);
	assert_int_equal(heard("RNR NAKs "), 9);
	assert_int_equal(heard("behind a gap "), 10 + RC_DROP_GAP);
	assert_int_equal(heard("repeated "), 10 + RC_DROP_REPEATED);
	assert_int_equal(heard("no receive "), 10 + RC_DROP_NOT_READY);
	assert_int_equal(heard("refused "), 10 + RC_DROP_REFUSED);
	assert_int_equal(heard("answers to nothing "), 10 + RC_DROP_STRANGE);
	assert_int_equal(heard("in no state for it "), 10 + RC_DROP_STATE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_segments),
		cmocka_unit_test(test_not_merged),
		cmocka_unit_test(test_no_segments),
		cmocka_unit_test(test_marked),
		cmocka_unit_test(test_left),
		cmocka_unit_test(test_held_goes),
		cmocka_unit_test(test_poster_away),
		cmocka_unit_test(test_counts),
	};

	setenv("SKEIN_LINK", "udp", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
