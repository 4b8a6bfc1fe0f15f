/* SPDX-License-Identifier: MIT */
/* A peer that dies while it is met: its end is ready in the control thread's
 * epoll set before the thread that connects has looked at its life word. */
#include "rig.h"

#include "dev/soft/peer/msg.h"
#include "dev/soft/peer/peer.h"
#include "dev/soft/soft.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#define ROUNDS 20
/* The control thread may stand before the device's lock already, which the
 * thread that meets the peer holds: such a round shows nothing. */
#define WAKE_NS 100000000ull

/* The order of two threads, by their system calls: the one that meets the peer
 * takes it out of the set only once the control thread has woken up for it. */
static pthread_t meeting;
static _Atomic bool met, woken;

static int woke(int n)
{
	if (n > 0 && atomic_load(&met) &&
	    !pthread_equal(pthread_self(), meeting))
		atomic_store(&woken, true);
	return n;
}

int epoll_wait(int ep, struct epoll_event *ev, int max, int ms)
{
	return woke((int)syscall(SYS_epoll_wait, ep, ev, max, ms));
}

int poll(struct pollfd *p, nfds_t n, int ms)
{
	return woke((int)syscall(SYS_poll, p, n, ms));
}

int epoll_ctl(int ep, int op, int fd, struct epoll_event *ev)
{
	uint64_t limit = rig_now_ns() + WAKE_NS;
	bool mine = pthread_equal(pthread_self(), meeting);

	if (mine && op == EPOLL_CTL_ADD)
		atomic_store(&met, true);
	while (mine && op == EPOLL_CTL_DEL && atomic_load(&met) &&
	       !atomic_load(&woken) && rig_now_ns() < limit)
		sched_yield();
	return (int)syscall(SYS_epoll_ctl, ep, op, fd, ev);
}

/* A process that has just died: its socket answers, its life word says so. */
struct ghost {
	int listener, nic, kick;
	uint32_t block;
	pthread_t thread;
};

static void ghost_nic(struct ghost *g)
{
	struct shm_nic *nic;

	g->nic = memfd_create("ghost", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_int_equal(ftruncate(g->nic, SHM_ARENA_OFF), 0);
	nic = mmap(NULL, sizeof(*nic), PROT_READ | PROT_WRITE, MAP_SHARED,
		   g->nic, 0);
	assert_ptr_not_equal(nic, MAP_FAILED);
	nic->magic = SHM_MAGIC;
	nic->version = SHM_VERSION;
	nic->nic_id = 0x67686f7374;
	nic->life = SHM_LIFE_DIED;
	munmap(nic, sizeof(*nic));
	assert_int_equal(fcntl(g->nic, F_ADD_SEALS, F_SEAL_SHRINK), 0);
}

static void ghost_listen(struct ghost *g)
{
	struct sockaddr_un un;
	int len, rc = -1;

	g->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	for (g->block = (uint32_t)getpid() % 4095; rc; g->block++) {
		len = soft_block_name(1 + g->block % 4095, &un);
		rc = bind(g->listener, (struct sockaddr *)&un, (socklen_t)len);
	}
	g->block = 1 + (g->block - 1) % 4095;
	assert_int_equal(listen(g->listener, 1), 0);
}

static void *ghost_main(void *arg)
{
	struct ghost *g = arg;
	struct msg_buf b;
	int fds[MSG_FDS], nfds, fd, i;

	for (i = 0; i < ROUNDS; i++) {
		fd = accept(g->listener, NULL, NULL);
		if (msg_recv(fd, &b, fds, &nfds) < 0)
			abort();
		b.m.op |= MSG_REPLY;
		b.m.status = -ENOENT;
		b.m.a = 0x67686f7374;
		fds[0] = g->nic;
		fds[1] = g->kick;
		if (msg_send(fd, &b.m, 0, fds, 2))
			abort();
		close(fd);
	}
	return NULL;
}

static void test_meet_the_dead(void **state)
{
	struct dev_qp_addr addr;
	struct ghost g;
	struct rig_end e;
	int i, shown = 0;

	rig_open(&e, NULL);
	ghost_nic(&g);
	ghost_listen(&g);
	g.kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	assert_int_equal(pthread_create(&g.thread, NULL, ghost_main, &g), 0);
	meeting = pthread_self();
	for (i = 0; i < ROUNDS; i++) {
		struct ibv_qp *qp = rig_qp(&e);

		rig_qp_addr(&e, qp, &addr);
		addr.qpn = g.block * SHM_BLOCK_QPS + 1;
		atomic_store(&met, false);
		atomic_store(&woken, false);
		/* Nobody there is no error of modify_qp(). */
		rig_connect_qp(&e, qp, &addr);
		shown += atomic_load(&woken);
		e.dev->ops->destroy_qp(e.dev, qp);
	}
	atomic_store(&met, false);
	pthread_join(g.thread, NULL);
	assert_true(shown > 0);
	close(g.kick);
	close(g.nic);
	close(g.listener);
	rig_close(&e);
}

static void sleeper(int sock, void *arg)
{
	char go;

	rig_get(sock, &go, 1); /* until it is killed */
}

/* A process that is slow is waited for longer than one that is stopped or
 * dead, and nobody for ever. */
static void test_patience(void **state)
{
	struct rig_child c;
	pid_t pid;

	rig_fork(&c, sleeper, NULL);
	pid = c.pid;
	assert_true(soft_peer_patient(pid, 20));
	assert_false(soft_peer_patient(pid, 60));
	rig_stop(&c);
	assert_true(soft_peer_patient(pid, 1));
	assert_false(soft_peer_patient(pid, 20));
	kill(pid, SIGKILL);
	rig_join(&c);
	assert_true(soft_peer_patient(pid, 1));
	assert_false(soft_peer_patient(pid, 20));
	assert_false(soft_peer_patient(0, 20)); /* another pid namespace's */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_meet_the_dead),
		cmocka_unit_test(test_patience),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
