/* SPDX-License-Identifier: MIT */
/*
 * test_orphan.c - a peer that dies while our QP goes to RTR: at each place of
 * that way its death is told, as it is to QPs that were connected before. The
 * moments are forced: this program is linked with wrappers round two functions
 * that the way to RTR goes through without the device's lock.
 */
#include "rig.h"

#include "dev/soft/peer/peer.h"
#include "dev/soft/qp/qp.h"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Of the thread that sets it: control threads have none. */
static _Thread_local struct {
	struct rig_end *e;
	pid_t pid;	   /* 0: not armed */
	int closes, locks; /* which call kills; 0: none */
} trap;

int __real_close(int fd);
int __wrap_close(int fd);
void __real_soft_lock_revoke(struct soft_lock *l);
void __wrap_soft_lock_revoke(struct soft_lock *l);

static bool known_dead(void *arg)
{
	struct soft *s = soft_of_dev(trap.e->dev);
	struct list_node *n;
	bool dead = false;

	pthread_mutex_lock(&s->lock);
	for (n = s->peers.next; n != &s->peers; n = n->next)
		dead |= atomic_load(
			&container_of(n, struct soft_peer, link)->dead);
	pthread_mutex_unlock(&s->lock);
	return dead;
}

/* The peer dies, and our control thread deals with it, before this returns. */
static void spring(int *left)
{
	pid_t pid = trap.pid;

	if (!pid || !*left || --*left)
		return;
	trap.pid = 0;
	assert_int_equal(kill(pid, SIGKILL), 0);
	rig_until(known_dead, NULL);
}

int __wrap_close(int fd)
{
	spring(&trap.closes);
	return __real_close(fd);
}

void __wrap_soft_lock_revoke(struct soft_lock *l)
{
	spring(&trap.locks);
	__real_soft_lock_revoke(l);
}

static void peer_main(int sock, void *arg)
{
	struct rig_addr mine;
	struct rig_end e;
	char c;

	rig_open(&e, NULL);
	rig_addr(&e, &mine);
	rig_put(sock, &mine, sizeof(mine));
	rig_get(sock, &c, 1);
	_exit(1);
}

static void die_at(int closes, int locks)
{
	struct rig_addr peer;
	struct rig_child c;
	struct rig_end e;

	rig_fork(&c, peer_main, NULL);
	rig_open(&e, NULL);
	rig_get(c.sock, &peer, sizeof(peer));
	assert_int_equal(rig_recv(&e, 10, e.buf, 8), 0);
	trap.e = &e;
	trap.closes = closes;
	trap.locks = locks;
	trap.pid = c.pid;
	assert_int_equal(dev_qp_rtr(e.dev, e.qp, &peer.qp, &e.o.qp), 0);
	assert_int_equal(trap.pid, 0); /* it did die on the way */
	/* The notice: an event, and what was posted is flushed. */
	rig_async(&e, IBV_EVENT_QP_FATAL);
	rig_expect(&e, 10, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(e.dev->ops->probe(e.dev, e.qp), -ENOTCONN);
	assert_true(WIFSIGNALED(rig_join(&c)));
	rig_close(&e);
}

/* Of its life, while it was to answer: one, where the kernel has them and the
 * tool that runs us lets them through (valgrind 3.19 does not). */
static int pidfds_closed(void)
{
	int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);

	if (fd < 0)
		return 0;
	close(fd);
	return 1;
}

/* The way to it was found, and is not yet the QP's. */
static void test_before_link(void **state)
{
	die_at(pidfds_closed() + 1, 0);
}

/* It is the QP's, which is not yet in RTR: the fifth lock of that way, the third
 * that is taken without the device's; the first is where the state is read, the
 * second where the attributes are taken. */
static void test_before_state(void **state)
{
	die_at(0, 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_before_link),
		cmocka_unit_test(test_before_state),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
