/* SPDX-License-Identifier: MIT */
/*
 * Many processes send into one shared receive queue as fast as they can, and
 * are killed or stopped at random moments, one after the other; new ones take
 * their places. What arrives of each is whole and in order; no receive is lost
 * whatever the dead had begun. 20 blows in `make test`, SKEIN_TEST_ROUNDS of
 * them in `make soak`.
 */
#include "rig.h"

#include "base/prng.h"
#include "dev/soft/srq/srq.h"
#include "unit/patience.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define SENDERS 5
#define SLOTS 32
#define ROOM 256
#define DEPTH 8

struct message {
	uint32_t seq, len;
	unsigned char body[ROOM - 8];
};

static struct rig_end a;
static struct ibv_srq *srq;
static struct prng rnd;
static enum ibv_qp_type type;

/* --- a sender ----------------------------------------------------------- */

static void fill(struct message *m, uint32_t seq)
{
	uint32_t i;

	m->seq = seq;
	m->len = 8 + seq % (ROOM - 8);
	for (i = 0; i + 8 < m->len; i++)
		m->body[i] = (unsigned char)(seq + i * 7);
}

static const enum ibv_wr_opcode kinds[] = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM,
					   IBV_WR_SEND, IBV_WR_SEND};

static void sender(int sock, void *arg)
{
	struct rig_opts o = {.type = type};
	struct message *m;
	struct rig_addr peer;
	struct rig_end e;
	struct ibv_wc wc;
	uint32_t seq, done = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	rig_meet(&e, sock, &o, &peer);
	for (seq = 0;; seq++) {
		m = (struct message *)(void *)(e.buf + seq % DEPTH * ROOM);
		while (seq - done == DEPTH) {
			int n = ibv_poll_cq(e.cq, 1, &wc);

			if (n < 0 || (n && wc.status))
				_exit(4);
			if (!n)
				sched_yield();
			done += (uint32_t)n;
		}
		fill(m, seq);
		if (rig_post(&e, kinds[seq % 4], seq, m, m->len, 0, 0,
			     IBV_SEND_SIGNALED))
			_exit(5);
	}
}

/* --- the receiver ------------------------------------------------------- */

struct peer {
	struct rig_child c;
	struct ibv_qp *qp;
	uint32_t qpn;  /* 0: it is gone */
	uint32_t next; /* sequence */
	bool stopped;
};

static struct peer peers[SENDERS];
static uint64_t messages;

static struct ibv_qp *srq_qp(void)
{
	struct ibv_qp_init_attr at = {.send_cq = a.cq,
				      .recv_cq = a.cq,
				      .srq = srq,
				      .qp_type = type,
				      .cap = {.max_send_wr = 4,
					      .max_send_sge = 1}};
	struct ibv_qp *qp = NULL;

	assert_int_equal(a.dev->ops->create_qp(a.dev, a.pd, &at, 0, &qp), 0);
	assert_int_equal(dev_qp_init(a.dev, qp, RIG_ACCESS), 0);
	return qp;
}

static void post(uint64_t id)
{
	struct ibv_sge sge = {(uintptr_t)a.buf + id * ROOM, ROOM,
			      a.mem->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1},
			   *bad;

	assert_int_equal(ibv_post_srq_recv(srq, &wr, &bad), 0);
}

static void peer_start(struct peer *p)
{
	struct rig_addr mine, theirs;
	struct ibv_qp *own = a.qp;

	memset(p, 0, sizeof(*p));
	p->qp = srq_qp();
	p->qpn = p->qp->qp_num;
	rig_fork(&p->c, sender, NULL);
	a.qp = p->qp;
	rig_addr(&a, &mine);
	a.qp = own;
	rig_get(p->c.sock, &theirs, sizeof(theirs));
	rig_connect_qp(&a, p->qp, &theirs.qp);
	rig_put(p->c.sock, &mine, sizeof(mine));
}

static void check(const struct ibv_wc *wc)
{
	const struct message *m =
		(struct message *)(void *)(a.buf + wc->wr_id * ROOM);
	struct message want;
	unsigned i;

	assert_int_equal(wc->status, IBV_WC_SUCCESS);
	for (i = 0; i < SENDERS && peers[i].qpn != wc->qp_num; i++)
		;
	assert_true(i < SENDERS);
	/* UC loses messages where there is no receive */
	assert_true(type == IBV_QPT_UC ? m->seq >= peers[i].next
				       : m->seq == peers[i].next);
	peers[i].next = m->seq + 1;
	fill(&want, m->seq);
	assert_int_equal(wc->byte_len, want.len);
	assert_memory_equal(m, &want, want.len);
	messages++;
}

/* Until so many came, or nothing more does. */
static void receive(unsigned n)
{
	struct patience p = {0};
	struct ibv_wc wc[16];
	int i, got;

	while (n) {
		got = ibv_poll_cq(a.cq, n < 16 ? (int)n : 16, wc);
		assert_true(got >= 0);
		if (!got) {
			patience_met(!patience_ends(&p, messages, rig_now_ns(),
						    60),
				     60, "a further message");
			sched_yield();
		}
		for (i = 0; i < got; i++) {
			check(&wc[i]);
			post(wc[i].wr_id);
		}
		n -= (unsigned)got;
	}
}

static void drain(void)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(a.cq, 1, &wc) == 1) {
		check(&wc);
		post(wc.wr_id);
	}
}

static bool is_err(void *arg)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	a.dev->ops->query_qp(a.dev, arg, &attr, IBV_QP_STATE, &init);
	return attr.qp_state == IBV_QPS_ERR;
}

/* What it had sent is still to be had after its death, in order. */
static void peer_kill(struct peer *p)
{
	int st;

	kill(p->c.pid, SIGKILL);
	st = rig_join(&p->c);
	if (!WIFSIGNALED(st))
		fail_msg("a sender ended with status 0x%x", st);
	if (type == IBV_QPT_UC)
		assert_int_equal(dev_qp_err(a.dev, p->qp), 0);
	rig_until(is_err, p->qp);
	drain();
	assert_int_equal(a.dev->ops->destroy_qp(a.dev, p->qp), 0);
	p->qpn = 0;
}

static void toggle(struct peer *p)
{
	if (p->stopped)
		assert_int_equal(kill(p->c.pid, SIGCONT), 0);
	else
		rig_stop(&p->c);
	p->stopped = !p->stopped;
}

static unsigned rounds(void)
{
	const char *s = getenv("SKEIN_TEST_ROUNDS");

	return s && atoi(s) > 0 ? (unsigned)atoi(s) : 20;
}

static bool all_posted(void *arg)
{
	drain();
	return claim_posted(&soft_srq_of(srq)->c) == SLOTS;
}

static void storm(void)
{
	struct ibv_srq_init_attr at = {.attr = {.max_wr = SLOTS, .max_sge = 1}};
	unsigned i, r;

	messages = 0;
	prng_init(&rnd, 42);
	rig_open(&a, &(struct rig_opts){.type = type});
	assert_int_equal(a.dev->ops->create_srq(a.dev, a.pd, &at, &srq), 0);
	for (i = 0; i < SLOTS; i++)
		post(i);
	for (i = 0; i < SENDERS; i++)
		peer_start(&peers[i]);
	for (r = 0; r < rounds(); r++) {
		receive(1 + (unsigned)prng_below(&rnd, 200));
		/* one stays at work, so that something arrives */
		i = 1 + (unsigned)prng_below(&rnd, SENDERS - 1);
		if (prng_below(&rnd, 3) == 0) {
			toggle(&peers[i]);
			continue;
		}
		peer_kill(&peers[i]);
		peer_start(&peers[i]);
	}
	for (i = 0; i < SENDERS; i++)
		peer_kill(&peers[i]);
	/* The senders are gone, their QPs too: all receives are back. */
	rig_until(all_posted, NULL);
	print_message("  %lu messages, %u rounds\n", (unsigned long)messages,
		      r);
	assert_int_equal(a.dev->ops->destroy_srq(a.dev, srq), 0);
	rig_close(&a);
}

static void test_rc(void **state)
{
	type = IBV_QPT_RC;
	storm();
}

static void test_uc(void **state)
{
	type = IBV_QPT_UC;
	storm();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rc),
		cmocka_unit_test(test_uc),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
