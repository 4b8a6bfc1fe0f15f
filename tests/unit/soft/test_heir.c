/* SPDX-License-Identifier: MIT */
/*
 * A process dies, and a child that it forked lives on with copies of all its
 * sockets: it is dead all the same, at once, to its peers and to who looks for
 * it. (The receive that a UD sender had claimed: test_ud_death.c.)
 */
#include "ud_rig.h"

#include "unit/patience.h"

#include "dev/soft/soft.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* Forks a child that stays, and tells its pid. */
static void leave_heir(int sock)
{
	pid_t pid = fork();

	if (pid == 0)
		for (;;)
			pause();
	rig_put(sock, &pid, sizeof(pid));
}

static void rc_end(int sock, void *arg)
{
	struct rig_addr peer;
	struct rig_end e;

	rig_meet(&e, sock, NULL, &peer);
	leave_heir(sock);
	for (;;)
		pause();
}

static void ud_end_of(int sock, void *arg)
{
	struct ud_end e;

	ud_open(&e, NULL);
	ud_recv(&e, 1, 0, 256);
	rig_put(sock, &e.r.qp->qp_num, sizeof(uint32_t));
	leave_heir(sock);
	for (;;)
		pause();
}

static void kill_it(struct rig_child *c)
{
	kill(c->pid, SIGKILL);
	assert_true(WIFSIGNALED(rig_join(c)));
}

/* Notice of its end; and who connects to its QP afterwards is told that
 * nobody is there, and does not wait for an answer. */
static void test_rc(void **state)
{
	struct rig_addr mine, peer;
	struct pollfd p;
	struct rig_child c;
	struct rig_end e, late;
	uint64_t begun;
	pid_t heir;

	rig_open(&e, NULL);
	rig_open(&late, NULL);
	rig_fork(&c, rc_end, NULL);
	rig_get(c.sock, &peer, sizeof(peer));
	rig_addr(&e, &mine);
	rig_put(c.sock, &mine, sizeof(mine));
	rig_connect(&e, &peer);
	rig_get(c.sock, &heir, sizeof(heir));
	kill(c.pid, SIGKILL);
	p = (struct pollfd){.fd = e.dev->verbs->async_fd, .events = POLLIN};
	assert_int_equal(poll(&p, 1, patience_ms(4)), 1);
	assert_true(WIFSIGNALED(rig_join(&c)));
	rig_async(&e, IBV_EVENT_QP_FATAL);
	begun = rig_now_ns();
	late.o.qp.timeout = 8;
	late.o.qp.retry_cnt = 1;
	rig_connect(&late, &peer);
	assert_true(rig_now_ns() - begun < patience_ns(4));
	assert_int_equal(rig_post(&late, IBV_WR_SEND, 1, late.buf, 8, 0, 0,
				  IBV_SEND_SIGNALED),
			 0);
	rig_expect(&late, 1, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(kill(heir, 0), 0);
	kill(heir, SIGKILL);
	rig_close(&e);
	rig_close(&late);
}

static bool nothing_waits(void *arg)
{
	struct ud_end *e = arg;

	return !atomic_load(&soft_of_dev(e->r.dev)->ud_waits);
}

/* What is sent to it is dropped as for nobody, not kept: whether it dies before
 * it is looked for, or meanwhile. */
static void test_ud(void **state)
{
	struct rig_child c;
	struct ud_end b;
	uint32_t qpn;
	pid_t heir;
	int i, st;

	ud_open(&b, NULL);
	for (i = 0; i < 2; i++) {
		rig_fork(&c, ud_end_of, NULL);
		rig_get(c.sock, &qpn, sizeof(qpn));
		rig_get(c.sock, &heir, sizeof(heir));
		if (i == 0) {
			kill_it(&c);
		} else {
			kill(c.pid, SIGSTOP);
			waitpid(c.pid, &st, WUNTRACED);
		}
		ud_send_to(&b, qpn, 1, b.r.buf, 8, 0);
		rig_expect(&b.r, 1, IBV_WC_SUCCESS);
		if (i == 1) {
			assert_false(nothing_waits(&b));
			kill_it(&c);
		}
		rig_until(nothing_waits, &b);
		assert_int_equal(kill(heir, 0), 0);
		kill(heir, SIGKILL);
	}
	ud_close(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rc),
		cmocka_unit_test(test_ud),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
