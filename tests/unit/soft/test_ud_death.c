/* SPDX-License-Identifier: MIT */
/*
 * UD senders that die, stop, or go on sending while the receiver resets,
 * destroys or deregisters what they send to. A sender is killed, and stopped,
 * after every n-th instruction of its post (SKEIN_STEP_STRIDE; 1 in `make
 * soak`). Built twice: with a queue of the receiver's own, and with an SRQ
 * (UD_SHARED).
 */
#include "stepper.h"
#include "ud_rig.h"
#include "unit/patience.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#define LEN STEP_LEN

static struct ud_end a, b; /* the receiver, and a sender that goes on */

static void open_receiver(struct ud_end *e)
{
#ifdef UD_SHARED
	ud_open_srq(e, NULL);
#else
	ud_open(e, NULL);
#endif
}

static int up(void **state)
{
	open_receiver(&a);
	ud_open(&b, NULL);
	return 0;
}

static int down(void **state)
{
	ud_close(&a);
	ud_close(&b);
	return 0;
}

/* All receives are posted again: none was lost to a dead sender. */
static void expect_room(uint32_t n)
{
	struct ibv_wc wc;
	uint32_t i, got = 0;

	for (i = 0; i < n; i++) {
		ud_send(&b, &a, 3, b.r.buf, 8, 0);
		rig_expect(&b.r, 3, IBV_WC_SUCCESS);
	}
	while (got < n) {
		rig_wait(&a.r, &wc);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.src_qp, b.r.qp->qp_num);
		got++;
	}
	assert_true(rig_quiet(&a.r));
}

static void fill_receives(void)
{
	uint32_t i;

	for (i = 0; i < RIG_WR; i++)
		ud_recv(&a, 1000 + i, i * 256, 256);
}

/*
 * One post, stepped.
 */
struct plan {
	uint32_t to;
	bool event;
	bool heir;   /* the victim has a child that stays, with its sockets */
	pid_t child; /* this one */
};

struct run {
	struct step_run s;
	struct plan plan;
};

static void victim(int sock, void *arg)
{
	struct plan *plan = arg;
	struct ibv_send_wr wr, *bad;
	struct ibv_sge g;
	struct ud_end e;
	struct ibv_wc wc;
	pid_t heir = 0;
	char go;

	ud_open(&e, NULL);
	rig_get(sock, &plan->to, sizeof(plan->to));
	g = (struct ibv_sge){(uintptr_t)e.r.buf, LEN, e.r.lkey};
	memset(e.r.buf, 0x55, LEN);
	ud_wr_to(&e, plan->to, &wr, &g);
	/* The place is known, the memory mapped, and all code has run once. */
	if (ibv_post_send(e.r.qp, &wr, &bad))
		_exit(1);
	rig_wait(&e.r, &wc);
	rig_get(sock, &go, 1);
	if (ibv_post_send(e.r.qp, &wr, &bad))
		_exit(1);
	rig_wait(&e.r, &wc);
	if (plan->heir) {
		heir = fork();
		if (heir == 0)
			for (;;)
				pause();
	}
	rig_put(sock, &heir, sizeof(heir));
	rig_get(sock, &go, 1);
	step_begin();
	ibv_post_send(e.r.qp, &wr, &bad);
	ibv_poll_cq(e.r.cq, 1, &wc);
	step_end();
}

/* Counts that a death has left behind are no wake-ups. */
static void drain_events(void)
{
	struct ibv_cq *cq;

	while (!a.r.dev->ops->get_cq_event(a.r.dev, a.r.ch, &cq))
		a.r.dev->ops->ack_cq_events(a.r.dev, cq, 1);
}

/* Up to the point where it waits to be stepped. */
static void begin(struct step_run *s)
{
	struct plan *plan = &((struct run *)s)->plan;
	struct rig_child *c = &s->c;
	struct ibv_wc wc;

	ud_recv(&a, 1, 0, 256);
	ud_recv(&a, 2, 256, 256);
	rig_fork(c, victim, plan);
	rig_put(c->sock, &a.r.qp->qp_num, sizeof(uint32_t));
	rig_wait(&a.r, &wc);
	rig_put(c->sock, "g", 1);
	rig_wait(&a.r, &wc);
	rig_get(c->sock, &plan->child, sizeof(plan->child));
	ud_recv(&a, 1, 0, 256);
	ud_recv(&a, 2, 256, 256);
	if (plan->event) {
		drain_events();
		assert_int_equal(ibv_req_notify_cq(a.r.cq, 0), 0);
	}
	rig_put(c->sock, "g", 1);
	step_await(c);
}

/* What of the stepped message came: all, or nothing. */
static uint32_t came(uint32_t *others)
{
	struct ibv_wc wc;
	uint32_t n = 0;

	while (ibv_poll_cq(a.r.cq, 1, &wc) == 1) {
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		if (wc.src_qp == b.r.qp->qp_num) {
			++*others;
			continue;
		}
		assert_int_equal(wc.byte_len, LEN + 40);
		n++;
	}
	return n;
}

struct look {
	uint32_t n, others, want;
};

/* Receives come back once its control connection has ended. */
static bool has_room(void *arg)
{
	struct look *l = arg;

	ud_send(&b, &a, 3, b.r.buf, 8, 0);
	rig_expect(&b.r, 3, IBV_WC_SUCCESS);
	l->n += came(&l->others);
	/* two are posted, beside those the victim's message took */
	if (l->n + l->others < l->want)
		return false;
	return true;
}

static void end_killed(struct step_run *s)
{
	struct look l = {.want = 2};

	step_kill(&s->c);
	rig_until(has_room, &l);
	assert_true(l.n <= 1);
	assert_int_equal(l.n + l.others, 2);
	assert_true(rig_quiet(&a.r));
}

static void test_killed(void **state)
{
	struct run r = {.s = {.begin = begin, .end = end_killed}};

	step_sweep(&r.s);
}

static void end_heir(struct step_run *s)
{
	pid_t child = ((struct run *)s)->plan.child;

	end_killed(s);
	assert_int_equal(kill(child, 0), 0);
	kill(child, SIGKILL);
}

/* Its child holds its sockets, and is none of its threads. */
static void test_killed_heir(void **state)
{
	struct run r = {
		.s = {.begin = begin, .end = end_heir, .coarse = 8},
		.plan = {.heir = true},
	};

	step_sweep(&r.s);
}

/* What makes the channel readable is an event. */
static void wait_event(void)
{
	struct pollfd p = {.fd = a.r.ch->fd, .events = POLLIN};
	struct ibv_cq *cq;

	assert_int_equal(poll(&p, 1, patience_ms(10)), 1);
	assert_int_equal(a.r.dev->ops->get_cq_event(a.r.dev, a.r.ch, &cq), 0);
	a.r.dev->ops->ack_cq_events(a.r.dev, cq, 1);
}

/* Who has stopped in a receive of the SRQ is waited for by the QP that he sends
 * to, not by another. */
static void expect_others_free(void)
{
	struct ibv_qp *own = a.r.qp;

	if (!a.srq)
		return;
	a.r.qp = ud_qp(&a);
	ud_ready(&a, a.r.qp);
	ud_state(&a, IBV_QPS_RESET);
	assert_int_equal(a.r.dev->ops->destroy_qp(a.r.dev, a.r.qp), 0);
	a.r.qp = own;
}

/* A sleeper is woken: by the message, or by another's; nothing is lost when
 * the sender stops for good in the middle, and it completes when it goes on. */
static void end_stopped(struct step_run *s)
{
	struct look l = {0};
	struct ibv_wc wc;
	int st;

	expect_others_free();
	/* The other's messages come: one at least, for it has claimed one of
	 * two at most; and a thread that sleeps hears of it. */
	ud_send(&b, &a, 3, b.r.buf, 8, 0);
	rig_expect(&b.r, 3, IBV_WC_SUCCESS);
	wait_event();
	while (!l.others)
		l.n += came(&l.others);
	/* It goes on, and its message arrives, once. */
	if (!s->over) {
		ptrace(PTRACE_CONT, s->c.pid, NULL, NULL);
		assert_int_equal(waitpid(s->c.pid, &st, 0), s->c.pid);
	}
	if (!l.n) {
		rig_wait(&a.r, &wc);
		assert_int_equal(wc.byte_len, LEN + 40);
	}
	assert_true(rig_quiet(&a.r));
	step_kill(&s->c);
}

static void test_stopped(void **state)
{
	struct run r = {
		.s = {.begin = begin, .end = end_stopped},
		.plan = {.event = true},
	};

	step_sweep(&r.s);
}

/* RTS is asked for while a sender is inside: it flushes nothing. */
static void end_rts_again(struct step_run *s)
{
	struct look l = {.want = 1};
	struct ibv_wc wc;
	int st;

	ud_state(&a, IBV_QPS_RTS);
	if (!s->over) {
		ptrace(PTRACE_CONT, s->c.pid, NULL, NULL);
		assert_int_equal(waitpid(s->c.pid, &st, 0), s->c.pid);
	}
	rig_wait(&a.r, &wc);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.byte_len, LEN + 40);
	step_kill(&s->c);
	rig_until(has_room, &l);
	assert_int_equal(l.others, 1);
	assert_true(rig_quiet(&a.r));
}

static void test_rts_again(void **state)
{
	struct run r = {
		.s = {.begin = begin, .end = end_rts_again, .coarse = 2}};

	step_sweep(&r.s);
}

/*
 * Threads that send while the receiver takes away what they send to.
 */
#define THREADS 3

static struct {
	_Atomic uint32_t to;
	_Atomic bool stop;
	_Atomic uint64_t sent;
} flood;

static void *flooder(void *arg)
{
	struct ud_end *e = arg;
	struct ibv_send_wr wr, *bad;
	struct ibv_sge g = {(uintptr_t)e->r.buf, 1000, e->r.lkey};
	struct ibv_wc wc;

	memset(e->r.buf, 0x77, 1000);
	while (!atomic_load(&flood.stop)) {
		ud_wr_to(e, atomic_load(&flood.to), &wr, &g);
		if (ibv_post_send(e->r.qp, &wr, &bad))
			abort();
		while (!ibv_poll_cq(e->r.cq, 1, &wc))
			;
		if (wc.status)
			abort();
		atomic_fetch_add(&flood.sent, 1);
	}
	return NULL;
}

static void flood_begin(struct ud_end *e, pthread_t *t, uint32_t to)
{
	int i;

	atomic_store(&flood.to, to);
	atomic_store(&flood.stop, false);
	for (i = 0; i < THREADS; i++) {
		ud_open(&e[i], NULL);
		assert_int_equal(pthread_create(&t[i], NULL, flooder, &e[i]),
				 0);
	}
}

static void flood_end(struct ud_end *e, pthread_t *t)
{
	int i;

	atomic_store(&flood.stop, true);
	for (i = 0; i < THREADS; i++) {
		pthread_join(t[i], NULL);
		ud_close(&e[i]);
	}
}

/* n messages come, and their receives are posted again. */
static void churn(struct ud_end *e, uint32_t n)
{
	struct ibv_wc wc;

	while (n--) {
		rig_wait(&e->r, &wc);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		ud_recv(e, wc.wr_id, wc.wr_id * 2048, 2048);
	}
}

/* After it has returned nobody touches the receives: no byte changes. */
static void test_destroy_in_flood(void **state)
{
	struct ud_end e[THREADS], c;
	pthread_t t[THREADS];
	uint32_t i, round;
	char *copy = malloc(RIG_MEM);

	flood_begin(e, t, a.r.qp->qp_num);
	for (round = 0; round < 24; round++) {
		open_receiver(&c);
		for (i = 0; i < RIG_WR; i++)
			ud_recv(&c, i, i * 2048, 2048);
		atomic_store(&flood.to, c.r.qp->qp_num);
		churn(&c, 200);
		if (round % 3 == 0) {
			ud_state(&c, IBV_QPS_ERR);
		} else if (round % 3 == 1) {
			ud_state(&c, IBV_QPS_RESET);
		} else {
			c.r.dev->ops->destroy_qp(c.r.dev, c.r.qp);
			c.r.qp = NULL;
		}
		memcpy(copy, c.r.buf, RIG_MEM);
		for (i = 0; i < 20; i++)
			sched_yield();
		assert_memory_equal(copy, c.r.buf, RIG_MEM);
		ud_close(&c);
	}
	flood_end(e, t);
	free(copy);
}

/* A receive in memory that is deregistered. */
static bool post_dead(struct ud_end *e)
{
	struct ibv_sge g = {(uintptr_t)e->r.buf, 2048, e->r.lkey};
	struct ibv_recv_wr wr = {.wr_id = 99, .sg_list = &g, .num_sge = 1},
			   *bad;

	return e->srq ? !ibv_post_srq_recv(e->srq, &wr, &bad)
		      : !ibv_post_recv(e->r.qp, &wr, &bad);
}

static void test_dereg_in_flood(void **state)
{
	struct ud_end e[THREADS], c;
	pthread_t t[THREADS];
	uint32_t i, round;
	struct ibv_wc wc;
	char *copy = malloc(RIG_MEM);

	flood_begin(e, t, a.r.qp->qp_num);
	for (round = 0; round < 10; round++) {
		open_receiver(&c);
		for (i = 0; i < RIG_WR; i++)
			ud_recv(&c, i, i * 2048, 2048);
		atomic_store(&flood.to, c.r.qp->qp_num);
		churn(&c, 200);
		assert_int_equal(c.r.dev->ops->dereg_mr(c.r.dev, c.r.mem->mr),
				 0);
		memcpy(copy, c.r.buf, RIG_MEM);
		for (i = 0; i < 20; i++)
			sched_yield();
		assert_memory_equal(copy, c.r.buf, RIG_MEM);
		/* a receive without memory fails */
		while (!post_dead(&c))
			ibv_poll_cq(c.r.cq, 1, &wc);
		do
			rig_wait(&c.r, &wc);
		while (wc.status == IBV_WC_SUCCESS);
		c.r.dev->ops->destroy_qp(c.r.dev, c.r.qp);
		c.r.qp = NULL;
		/* as mem_region_free() wants it */
		assert_int_equal(c.r.dev->ops->reg_mr(c.r.dev, c.r.pd, c.r.buf,
						      RIG_MEM, RIG_ACCESS, -1,
						      0, &c.r.mem->mr),
				 0);
		ud_close(&c);
	}
	flood_end(e, t);
	free(copy);
}

static void late(int sock, void *arg)
{
	struct ud_end e;
	uint32_t qpn, i;

	open_receiver(&e);
	for (i = 0; i < RIG_WR; i++)
		ud_recv(&e, i, (size_t)i * 256, 256);
	qpn = e.r.qp->qp_num;
	rig_put(sock, &qpn, sizeof(qpn));
	for (i = 0; i < RIG_WR; i++)
		rig_expect(&e.r, i, IBV_WC_SUCCESS);
	rig_put(sock, "a", 1);
	ud_close(&e);
}

/* A destination that is stopped before it was ever met holds nobody up, and is
 * not taken for nobody: what was sent to it is there when it goes on. */
static void test_stopped_destination(void **state)
{
	uint64_t begun;
	struct rig_child c;
	uint32_t qpn, i;
	char all;
	int st;

	rig_fork(&c, late, NULL);
	rig_get(c.sock, &qpn, sizeof(qpn));
	kill(c.pid, SIGSTOP);
	waitpid(c.pid, &st, WUNTRACED);
	fill_receives();
	begun = rig_now_ns();
	for (i = 0; i < RIG_WR; i++) {
		ud_send_to(&b, qpn, 1, b.r.buf, 8, 0);
		rig_expect(&b.r, 1, IBV_WC_SUCCESS);
		ud_send(&b, &a, 2, b.r.buf, 8, 0);
		rig_expect(&b.r, 2, IBV_WC_SUCCESS);
		rig_expect(&a.r, 1000 + i, IBV_WC_SUCCESS);
	}
	assert_true(rig_now_ns() - begun < patience_ns(20));
	/* longer than anybody was ever given to answer */
	sleep(6);
	kill(c.pid, SIGCONT);
	rig_get(c.sock, &all, 1);
	rig_join(&c);
}

static void dead_end(int sock, void *arg)
{
	uint32_t to, i;
	struct ud_end e;
	struct ibv_wc wc;

	ud_open(&e, NULL);
	rig_get(sock, &to, sizeof(to));
	for (i = 0;; i++) {
		ud_send_to(&e, to, i, e.r.buf, 100, 0);
		rig_wait(&e.r, &wc);
	}
}

/* Processes killed at full speed: what they had claimed is usable again. */
static void test_sweep(void **state)
{
	struct rig_child c[4];
	struct ibv_wc wc;
	uint32_t round, i, n, at;

	for (round = 0; round < 5; round++) {
		for (i = 0; i < 4; i++) {
			rig_fork(&c[i], dead_end, NULL);
			rig_put(c[i].sock, &a.r.qp->qp_num, sizeof(uint32_t));
		}
		fill_receives();
		for (n = 0; n < 2000; n++) {
			rig_wait(&a.r, &wc);
			assert_int_equal(wc.status, IBV_WC_SUCCESS);
			at = (uint32_t)wc.wr_id - 1000;
			ud_recv(&a, wc.wr_id, at * 256, 256);
		}
		for (i = 0; i < 4; i++)
			kill(c[i].pid, SIGKILL);
		for (i = 0; i < 4; i++)
			rig_join(&c[i]);
		/* each of the receives again and again */
		for (n = 0; n < 3 * RIG_WR;) {
			ud_send(&b, &a, 3, b.r.buf, 8, 0);
			rig_expect(&b.r, 3, IBV_WC_SUCCESS);
			while (ibv_poll_cq(a.r.cq, 1, &wc) == 1) {
				if (wc.src_qp == b.r.qp->qp_num)
					n++;
				at = (uint32_t)wc.wr_id - 1000;
				ud_recv(&a, wc.wr_id, at * 256, 256);
			}
		}
		expect_room(RIG_WR);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_killed),
		cmocka_unit_test(test_killed_heir),
		cmocka_unit_test(test_stopped),
		cmocka_unit_test(test_rts_again),
		cmocka_unit_test(test_stopped_destination),
		cmocka_unit_test(test_sweep),
		cmocka_unit_test(test_destroy_in_flood),
		cmocka_unit_test(test_dereg_in_flood),
	};

	return cmocka_run_group_tests(tests, up, down);
}
