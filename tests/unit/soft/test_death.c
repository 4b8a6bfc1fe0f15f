/* SPDX-License-Identifier: MIT */
/* Ends of processes and of memory: kill -9, SIGSTOP, exec, fork, deregistration
 * under fire; what a survivor sees, and what is left behind. */
#include "rig.h"

#include "unit/patience.h"
#include "unit/hugepool.h"

#include <stdio.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static bool in_err(void *arg)
{
	struct rig_end *e = arg;
	struct ibv_qp_attr attr;

	e->dev->ops->query_qp(e->dev, e->qp, &attr, IBV_QP_STATE, NULL);
	return attr.qp_state == IBV_QPS_ERR;
}

static void idle_main(int sock, void *arg)
{
	struct rig_addr peer;
	struct rig_end e;
	char c;

	rig_meet(&e, sock, NULL, &peer);
	rig_put(sock, "r", 1);
	while (read(sock, &c, 1) > 0)
		;
	pause();
}

/* A sleeper on its channel, with receives posted and a SEND parked. */
static void test_kill(void **state)
{
	struct rig_addr peer;
	struct rig_child c;
	struct rig_end e;
	struct ibv_cq *cq;
	struct pollfd p;
	char go;

	rig_fork(&c, idle_main, NULL);
	rig_meet(&e, c.sock, NULL, &peer);
	rig_get(c.sock, &go, 1);
	rig_recv(&e, 10, e.buf, 8);
	assert_int_equal(rig_post(&e, IBV_WR_SEND, 1, e.buf, 8, 0, 0, 0), 0);
	assert_int_equal(rig_post(&e, IBV_WR_RDMA_WRITE, 2, e.buf, 8, peer.buf,
				  peer.rkey, 0),
			 0);
	assert_int_equal(e.dev->ops->probe(e.dev, e.qp), 0);
	ibv_req_notify_cq(e.cq, 0);
	kill(c.pid, SIGKILL);
	p = (struct pollfd){.fd = e.ch->fd, .events = POLLIN};
	patience_met(poll(&p, 1, patience_ms(60)) == 1, 60, "the death");
	assert_int_equal(e.dev->ops->get_cq_event(e.dev, e.ch, &cq), 0);
	e.dev->ops->ack_cq_events(e.dev, cq, 1);
	rig_expect(&e, 1, IBV_WC_RETRY_EXC_ERR);
	rig_expect(&e, 2, IBV_WC_WR_FLUSH_ERR);
	rig_expect(&e, 10, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(e.dev->ops->probe(e.dev, e.qp), -ENOTCONN);
	rig_async(&e, IBV_EVENT_QP_FATAL);
	assert_true(WIFSIGNALED(rig_join(&c)));
	rig_close(&e);
}

static bool knows_of_death(void *arg)
{
	struct rig_end *e = arg;

	return e->dev->ops->probe(e->dev, e->qp) == -ENOTCONN;
}

/* Told to be as silent as a NIC: the receives of one who only waits stay, and
 * it learns of the death by what it posts next. */
static void test_silent(void **state)
{
	const struct rig_opts silent = {.silent = true};
	struct rig_addr peer;
	struct rig_child c;
	struct ibv_cq *cq;
	struct rig_end e;
	struct pollfd p;
	char go;

	rig_fork(&c, idle_main, NULL);
	rig_meet(&e, c.sock, &silent, &peer);
	rig_get(c.sock, &go, 1);
	rig_recv(&e, 10, e.buf, 8);
	kill(c.pid, SIGKILL);
	rig_until(knows_of_death, &e);
	assert_false(in_err(&e));
	assert_true(rig_quiet(&e));
	assert_int_equal(rig_post(&e, IBV_WR_RDMA_WRITE, 2, e.buf, 8, peer.buf,
				  peer.rkey, 0),
			 0);
	rig_expect(&e, 2, IBV_WC_RETRY_EXC_ERR);
	rig_expect(&e, 10, IBV_WC_WR_FLUSH_ERR);
	/* The channel was not armed, and tells of events alone. */
	p = (struct pollfd){.fd = e.ch->fd, .events = POLLIN};
	assert_int_equal(poll(&p, 1, 0), 0);
	assert_int_equal(e.dev->ops->get_cq_event(e.dev, e.ch, &cq), -EAGAIN);
	assert_true(WIFSIGNALED(rig_join(&c)));
	rig_close(&e);
}

/* A stopped peer is slow, not dead: nothing is lost or doubled. */
static void test_stop(void **state)
{
	uint64_t word = 7;
	struct rig_addr peer;
	struct rig_child c;
	struct rig_end e;
	char go;

	rig_fork(&c, idle_main, NULL);
	rig_meet(&e, c.sock, NULL, &peer);
	rig_get(c.sock, &go, 1);
	kill(c.pid, SIGSTOP);
	assert_int_equal(waitpid(c.pid, NULL, WUNTRACED), c.pid);
	memcpy(e.buf, &word, 8);
	/* its file has to be handed out first: by a stopped process */
	assert_int_equal(rig_post(&e, IBV_WR_RDMA_WRITE, 1, e.buf, 8, peer.buf,
				  peer.rkey, IBV_SEND_SIGNALED),
			 0);
	assert_int_equal(rig_post(&e, IBV_WR_RDMA_READ, 2, e.buf + 64, 8,
				  peer.buf, peer.rkey, IBV_SEND_SIGNALED),
			 0);
	usleep(1500000);
	assert_true(rig_quiet(&e));
	assert_int_equal(e.dev->ops->probe(e.dev, e.qp), 0);
	kill(c.pid, SIGCONT);
	rig_expect(&e, 1, IBV_WC_SUCCESS);
	rig_expect(&e, 2, IBV_WC_SUCCESS);
	assert_memory_equal(e.buf, e.buf + 64, 8);
	/* mapped now: a stopped process's memory is still there */
	kill(c.pid, SIGSTOP);
	assert_int_equal(waitpid(c.pid, NULL, WUNTRACED), c.pid);
	assert_int_equal(rig_post(&e, IBV_WR_RDMA_READ, 3, e.buf + 128, 8,
				  peer.buf, peer.rkey, IBV_SEND_SIGNALED),
			 0);
	rig_expect(&e, 3, IBV_WC_SUCCESS);
	kill(c.pid, SIGKILL);
	rig_join(&c);
	rig_until(in_err, &e);
	rig_close(&e);
}

static void exec_main(int sock, void *arg)
{
	struct rig_addr peer;
	struct rig_end e;
	char c;

	rig_meet(&e, sock, NULL, &peer);
	rig_put(sock, "r", 1);
	rig_get(sock, &c, 1);
	execl("/bin/sleep", "sleep", "30", (char *)NULL);
	_exit(1);
}

/* exec(2): the pid lives on, the device does not. */
static void test_exec(void **state)
{
	struct rig_addr peer;
	struct rig_child c;
	struct rig_end e;
	char go;

	rig_fork(&c, exec_main, NULL);
	rig_meet(&e, c.sock, NULL, &peer);
	rig_get(c.sock, &go, 1);
	rig_recv(&e, 1, e.buf, 8);
	rig_put(c.sock, "x", 1);
	rig_expect(&e, 1, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(e.dev->ops->probe(e.dev, e.qp), -ENOTCONN);
	kill(c.pid, SIGKILL);
	rig_join(&c);
	rig_close(&e);
}

/* A child of a process with a device: refused everywhere, and the parent's
 * connection does not notice. */
static void test_fork(void **state)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	struct ibv_mr *mr;
	struct rig_end a, b;
	struct ibv_wc wc;
	int st;
	pid_t pid;

	rig_pair(&a, &b, NULL);
	rig_recv(&b, 1, b.buf, 8);
	pid = fork();
	if (pid == 0) {
		int bad = 0;

		bad |= rig_post(&a, IBV_WR_SEND, 1, a.buf, 8, 0, 0, 0) != EPERM;
		bad |= rig_recv(&a, 1, a.buf, 8) != EPERM;
		bad |= ibv_poll_cq(b.cq, 1, &wc) != -EPERM;
		bad |= ibv_req_notify_cq(b.cq, 0) != EPERM;
		bad |= a.dev->ops->modify_qp(a.dev, a.qp, &attr,
					     IBV_QP_STATE) != -EPERM;
		bad |= a.dev->ops->destroy_qp(a.dev, a.qp) != -EPERM;
		bad |= a.dev->ops->reg_mr(a.dev, a.pd, a.env, 8, 0, -1, 0,
					  &mr) != -EPERM;
		bad |= a.dev->ops->dereg_mr(a.dev, a.mem->mr) != -EPERM;
		dev_close(a.dev);
		_exit(bad);
	}
	assert_int_equal(waitpid(pid, &st, 0), pid);
	assert_int_equal(st, 0);
	assert_int_equal(rig_post(&a, IBV_WR_SEND, 1, a.buf, 8, 0, 0, 0), 0);
	rig_expect(&b, 1, IBV_WC_SUCCESS);
	rig_unpair(&a, &b);
}

static void writer_main(int sock, void *arg)
{
	struct rig_opts o = {.flags = DEV_QP_SINGLE_THREADED};
	struct rig_addr peer;
	struct rig_end e;
	struct ibv_wc wc;
	char go;

	rig_meet(&e, sock, arg ? arg : &o, &peer);
	memset(e.buf, 0xee, RIG_MEM);
	rig_put(sock, "r", 1);
	do {
		if (rig_post(&e, IBV_WR_RDMA_WRITE, 1, e.buf, 16384, peer.buf,
			     peer.rkey, IBV_SEND_SIGNALED))
			break;
		rig_wait(&e, &wc);
	} while (wc.status == IBV_WC_SUCCESS);
	rig_put(sock, (char *)&wc.status, 1);
	rig_get(sock, &go, 1);
	rig_close(&e);
}

/* When dereg_mr() has returned not one byte is written any more. */
static void quiesce(void *opts)
{
	struct rig_addr peer;
	struct rig_child c;
	struct rig_end e;
	size_t i;
	char go;

	rig_fork(&c, writer_main, opts);
	rig_meet(&e, c.sock, NULL, &peer);
	rig_get(c.sock, &go, 1);
	while (((volatile char *)e.buf)[16383] == 0)
		;
	assert_int_equal(e.dev->ops->dereg_mr(e.dev, e.mem->mr), 0);
	memset(e.buf, 0x11, 16384);
	rig_get(c.sock, &go, 1);
	assert_int_equal(go, IBV_WC_REM_ACCESS_ERR);
	for (i = 0; i < 16384; i++)
		assert_int_equal(e.buf[i], 0x11);
	rig_put(c.sock, "d", 1);
	assert_int_equal(rig_join(&c), 0);
	if (e.mem->fd >= 0)
		env_mem_free(e.env, e.mem->fd, e.mem->addr, e.mem->len);
	env_free(e.env, e.mem);
	e.mem = NULL;
	rig_close(&e);
}

static void test_quiesce(void **state)
{
	struct rig_opts shared = {0};
	int i;

	for (i = 0; i < 30; i++)
		quiesce(i & 1 ? &shared : NULL);
}

/* The peer is stopped in the middle of a copy: dereg_mr() returns all the same
 * and the memory is ours alone. */
static void quiesce_stopped(const struct rig_opts *opts)
{
	struct rig_addr peer;
	struct rig_child c;
	struct rig_end e;
	size_t i;
	char go;

	rig_fork(&c, writer_main, NULL);
	rig_meet(&e, c.sock, opts, &peer);
	rig_get(c.sock, &go, 1);
	while (((volatile char *)e.buf)[16383] == 0)
		;
	kill(c.pid, SIGSTOP);
	assert_int_equal(waitpid(c.pid, NULL, WUNTRACED), c.pid);
	assert_int_equal(e.dev->ops->dereg_mr(e.dev, e.mem->mr), 0);
	memset(e.buf, 0x11, 16384);
	kill(c.pid, SIGCONT);
	rig_get(c.sock, &go, 1);
	for (i = 0; i < 16384; i++)
		assert_int_equal(e.buf[i], 0x11);
	rig_put(c.sock, "d", 1);
	assert_int_equal(rig_join(&c), 0);
	env_mem_free(e.env, e.mem->fd, e.mem->addr, e.mem->len);
	env_free(e.env, e.mem);
	e.mem = NULL;
	rig_close(&e);
}

static void test_quiesce_stopped(void **state)
{
	quiesce_stopped(NULL);
}

/* The same where the memory is one huge page, which is replaced as a whole. */
static void test_quiesce_stopped_huge(void **state)
{
	const struct rig_opts opts = {.huge = ENV_HUGE_AUTO};

	quiesce_stopped(&opts);
}

static int pool_open(void **state)
{
	static struct hugepool pool;

	hugepool_open(&pool, 1);
	*state = &pool;
	return 0;
}

static int pool_close(void **state)
{
	hugepool_close(*state);
	return 0;
}

/* destroy_qp() while the peer sends without end. */
static void sender_main(int sock, void *arg)
{
	struct rig_addr peer;
	struct rig_end e;
	struct ibv_wc wc;
	char go;

	rig_meet(&e, sock, NULL, &peer);
	rig_put(sock, "r", 1);
	do {
		rig_post(&e, IBV_WR_SEND, 1, e.buf, 8, 0, 0, IBV_SEND_SIGNALED);
		rig_wait(&e, &wc);
	} while (wc.status == IBV_WC_SUCCESS);
	if (wc.status != IBV_WC_RETRY_EXC_ERR)
		_exit(1);
	rig_get(sock, &go, 1);
	rig_close(&e);
}

static void test_destroy_under_fire(void **state)
{
	struct rig_addr peer;
	struct rig_child c;
	struct rig_end e;
	struct ibv_wc wc;
	int i, round;
	char go;

	for (round = 0; round < 10; round++) {
		rig_fork(&c, sender_main, NULL);
		rig_meet(&e, c.sock, NULL, &peer);
		for (i = 0; i < 32; i++)
			rig_recv(&e, 1, e.buf, 8);
		rig_get(c.sock, &go, 1);
		for (i = 0; i < 300; i++) {
			rig_wait(&e, &wc);
			assert_int_equal(wc.status, IBV_WC_SUCCESS);
			rig_recv(&e, 1, e.buf, 8);
		}
		assert_int_equal(e.dev->ops->destroy_qp(e.dev, e.qp), 0);
		assert_true(rig_quiet(&e));
		e.qp = rig_qp(&e); /* the area is used again */
		rig_put(c.sock, "d", 1);
		assert_int_equal(rig_join(&c), 0);
		rig_close(&e);
	}
}

/* A file that its owner could truncate is not mapped by anybody: it is
 * ordinary memory. One that is sealed cannot be truncated. */
static void test_truncate(void **state)
{
	struct rig_end a, b;
	struct ibv_mr *mr;
	void *p;
	int fd;

	rig_pair(&a, &b, NULL);
	fd = memfd_create("loose", MFD_CLOEXEC);
	assert_int_equal(ftruncate(fd, 8192), 0);
	p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_int_equal(b.dev->ops->reg_mr(b.dev, b.pd, p, 8192, RIG_ACCESS,
					    fd, 0, &mr),
			 0);
	memset(a.buf, 5, 4096);
	assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE, 1, a.buf, 4096,
				  (uintptr_t)p + 4096, mr->rkey,
				  IBV_SEND_SIGNALED),
			 0);
	rig_expect(&a, 1, IBV_WC_SUCCESS);
	assert_memory_equal(a.buf, (char *)p + 4096, 4096);
	assert_int_equal(ftruncate(fd, 4096), 0);
	assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE, 2, a.buf, 4096,
				  (uintptr_t)p + 4096, mr->rkey,
				  IBV_SEND_SIGNALED),
			 0);
	rig_expect(&a, 2, IBV_WC_REM_OP_ERR);
	assert_int_equal(b.dev->ops->dereg_mr(b.dev, mr), 0);
	munmap(p, 8192);
	close(fd);
	assert_int_equal(ftruncate(b.mem->fd, 0), -1);
	rig_unpair(&a, &b);
}

/* The device maps files, shared: its own, its peers', regions. What is private
 * is the C library's and the sanitizers', which keep stacks and arenas of threads
 * that are gone, as many as there happened to be at once. */
static unsigned shared_maps(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[512], access[5];
	unsigned n = 0;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		assert_int_equal(sscanf(line, "%*s %4s", access), 1);
		n += access[3] == 's';
	}
	fclose(f);
	return n;
}

/* Connections, deaths, and nothing left: descriptors, mappings. */
static void test_nothing_left(void **state)
{
	unsigned fds = rig_fds(), maps = shared_maps();
	int i;

	for (i = 0; i < 12; i++) {
		struct rig_end a, b;

		rig_pair(&a, &b, NULL);
		rig_post(&a, IBV_WR_RDMA_WRITE, 1, a.buf, 8, (uintptr_t)b.buf,
			 b.mem->mr->rkey, IBV_SEND_SIGNALED);
		rig_expect(&a, 1, IBV_WC_SUCCESS);
		assert_true(shared_maps() > maps);
		rig_unpair(&a, &b);
		if (i & 1)
			test_kill(NULL);
	}
	assert_int_equal(rig_fds(), fds);
	assert_int_equal(shared_maps(), maps);
}

/* A peer's mapping of a region goes when the region goes. */
static int mapped(const char *what)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[512];
	int n = 0;

	while (fgets(line, sizeof(line), f))
		n += strstr(line, what) != NULL;
	fclose(f);
	return n;
}

static bool unmapped(void *arg)
{
	return mapped("memfd:passing") == 0 &&
	       mapped("memfd:skein-passing") == 0;
}

static void test_unmapped(void **state)
{
	struct rig_end a, b;
	struct mem_region *r;

	rig_pair(&a, &b, NULL);
	assert_int_equal(mem_region_new(b.dev, b.pd, "passing", 8192,
					RIG_ACCESS, 2, &r),
			 0);
	assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE, 1, a.buf, 8,
				  (uintptr_t)r->addr, r->mr->rkey,
				  IBV_SEND_SIGNALED),
			 0);
	rig_expect(&a, 1, IBV_WC_SUCCESS);
	assert_int_equal(mapped("passing"), 2);
	mem_region_free(r);
	rig_until(unmapped, NULL);
	rig_unpair(&a, &b);
}

/* Traffic in both directions; the other end is killed at any moment. A new
 * connection of the same device works at once; nothing is left behind. */
static void traffic(struct rig_end *e, const struct rig_addr *peer)
{
	struct ibv_wc wc;
	unsigned n = 0;
	int got;

	for (;;) {
		rig_recv(e, 1, e->buf + 64, 64);
		rig_post(e, n++ & 1 ? IBV_WR_SEND : IBV_WR_RDMA_WRITE_WITH_IMM,
			 2, e->buf, 64, peer->buf + 4096, peer->rkey,
			 IBV_SEND_SIGNALED);
		while ((got = ibv_poll_cq(e->cq, 1, &wc)) > 0)
			if (wc.status != IBV_WC_SUCCESS)
				return;
		assert_int_equal(got, 0);
	}
}

static void traffic_main(int sock, void *arg)
{
	struct rig_addr peer;
	struct rig_end e;

	rig_meet(&e, sock, NULL, &peer);
	rig_put(sock, "r", 1);
	traffic(&e, &peer);
	_exit(1);
}

static long rounds(void)
{
	const char *s = getenv("SKEIN_TEST_ROUNDS");

	return s && atol(s) > 0 ? atol(s) : 50;
}

static void random_kill(struct rig_end *e, long n)
{
	struct ibv_qp *own = e->qp;
	struct rig_addr mine, peer;
	struct rig_child c;
	struct ibv_wc wc;
	pid_t killer;
	char go;

	e->qp = rig_qp(e);
	rig_addr(e, &mine);
	rig_fork(&c, traffic_main, NULL);
	rig_get(c.sock, &peer, sizeof(peer));
	rig_put(c.sock, &mine, sizeof(mine));
	rig_connect(e, &peer);
	rig_get(c.sock, &go, 1);
	killer = fork();
	if (killer == 0) {
		usleep((useconds_t)(n * 7919 % 5000));
		kill(c.pid, SIGKILL);
		_exit(0);
	}
	traffic(e, &peer);
	rig_until(in_err, e);
	while (ibv_poll_cq(e->cq, 1, &wc) > 0)
		assert_int_equal(wc.qp_num, e->qp->qp_num);
	assert_int_equal(e->dev->ops->destroy_qp(e->dev, e->qp), 0);
	assert_int_equal(waitpid(killer, NULL, 0), killer);
	assert_true(WIFSIGNALED(rig_join(&c)));
	e->qp = own;
}

/* What is left of the dead goes by and by. */
static bool has_fds(void *arg)
{
	return rig_fds() <= *(unsigned *)arg;
}

static bool has_maps(void *arg)
{
	return shared_maps() <= *(unsigned *)arg;
}

static void test_random_kill(void **state)
{
	long n, all = rounds();
	struct rig_end e;
	unsigned fds = 0, maps = 0;

	rig_open(&e, NULL);
	for (n = 0; n < all; n++) {
		random_kill(&e, n);
		if (n == 3) {
			fds = rig_fds();
			maps = shared_maps();
		}
	}
	rig_until(has_fds, &fds);
	rig_until(has_maps, &maps);
	rig_close(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kill),
		cmocka_unit_test(test_silent),
		cmocka_unit_test(test_stop),
		cmocka_unit_test(test_exec),
		cmocka_unit_test(test_fork),
		cmocka_unit_test(test_quiesce),
		cmocka_unit_test(test_quiesce_stopped),
		cmocka_unit_test_setup_teardown(test_quiesce_stopped_huge,
						pool_open, pool_close),
		cmocka_unit_test(test_destroy_under_fire),
		cmocka_unit_test(test_truncate),
		cmocka_unit_test(test_nothing_left),
		cmocka_unit_test(test_unmapped),
		cmocka_unit_test(test_random_kill),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
