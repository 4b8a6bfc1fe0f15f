/* SPDX-License-Identifier: MIT */
/*
 * Sleeping on skein_pool_fd(), with a pool of the process's own and through a node
 * service. Both ends of each test sleep, so a wake-up that is lost at either
 * end ends the test: the timer of an own pool, which would hide it for 100 ms,
 * is put off after each arm().
 */
#include "bed.h"

#include "env/local.h"
#include "vqp/node/ring.h"
#include "vqp/pool.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>

#define PORT 1
#define MEM 65536u
#define ROUNDS 4000u
#define THREADS 4u
#define LONG 20000u
#define LATE 9u /* bytes */

struct hello {
	char node[72];
	uint64_t addr;
	uint32_t rkey;
};

static bool by_node;
static char folder[64], path[96];
static pid_t meta_pid, node_pid, echo_pid;
static struct hello far;

/* --- sleeping ----------------------------------------------------------- */

struct bed {
	struct skein_ctx *ctx; /* NULL: a node service's */
	struct skein_pool *pool;
	int fd;
	_Atomic(uint32_t) sleeps;
};

/* Without a descriptor. */
static void pool_open(struct bed *b)
{
	struct skein_pool_attr a = {.size = sizeof(a), .meta = meta_addr};

	*b = (struct bed){0};
	if (by_node)
		a.node = path;
	else
		b->ctx = ctx_quiet();
	assert_int_equal(skein_pool_open(b->ctx, &a, &b->pool), 0);
}

static void bed_open(struct bed *b)
{
	pool_open(b);
	b->fd = skein_pool_fd(b->pool);
	assert_true(b->fd >= 0);
	assert_int_equal(skein_pool_fd(b->pool), b->fd);
}

static void bed_close(struct bed *b)
{
	skein_pool_close(b->pool);
	if (b->ctx)
		skein_ctx_close(b->ctx);
}

static void timer_put_off(struct bed *b)
{
	if (!by_node)
		local_timer_set(pool_of(b->pool)->fd.timer,
				(now_ms() + 3600000) * 1000000);
}

/* False: not armed, there is work. */
static bool doze(struct bed *b)
{
	struct pollfd p = {.fd = b->fd, .events = POLLIN};
	int n = skein_pool_arm(b->pool);

	if (n)
		assert_int_equal(n, 1);
	if (n)
		return false;
	timer_put_off(b);
	b->sleeps++;
	n = poll(&p, 1, patience_ms(20));
	/* In any thread or process: others wait for this one. */
	if (n != 1) {
		fprintf(stderr, "not within 20 s: a wake-up\n");
		abort();
	}
	return true;
}

/* Until nothing is there, and the pool sleeps. */
static void rests(struct bed *b)
{
	struct pollfd p = {.fd = b->fd, .events = POLLIN};
	uint64_t end = now_ms() + patience_ms(20);

	/* the pool's own work comes to an end */
	do {
		while (skein_pool_arm(b->pool) == 1 && now_ms() < end)
			;
		timer_put_off(b);
	} while (poll(&p, 1, 5) && now_ms() < end);
	assert_int_equal(poll(&p, 1, 0), 0);
}

/* Sometimes a little while, so that what comes meets each step of arming. */
static void linger(uint32_t i)
{
	for (volatile uint32_t k = 0; k < i * 2654435761u % 32768u; k++)
		;
}

/* --- the other processes ------------------------------------------------ */

static void node_main(int out)
{
	struct skein_node_attr a = {.size = sizeof(a), .meta = meta_addr};
	struct skein_node *n;

	if (skein_node_open(ctx_quiet(), path, &a, &n) ||
	    write(out, "+", 1) != 1)
		_exit(1);
	for (;;)
		skein_node_run(n, SKEIN_S(1), NULL);
}

static int text_send(struct skein_vqp *v, struct skein_vqp_mem *m, uint32_t len)
{
	struct ibv_sge sge = {(uintptr_t)skein_vqp_mem_addr(m) + MEM / 2, len,
			      skein_vqp_lkey(m)};
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
	struct ibv_send_wr *bad;

	if (len <= 128)
		wr.send_flags = IBV_SEND_INLINE;
	return skein_vqp_post_send(v, &wr, &bad);
}

/* Answers each message with eight bytes, one of LATE bytes after a while. It sleeps for ever, once it was asked:
 * until then its record has to be renewed. */
static void echo_main(int out)
{
	struct skein_vqp_mem *mem;
	struct skein_vqp_msg m;
	struct hello h = {0};
	struct pollfd p = {.events = POLLIN};
	struct skein_vqp *v;
	bool asked = false;
	struct bed b;
	int n;

	bed_open(&b);
	p.fd = b.fd;
	assert_int_equal(skein_vqp_mem_new(b.pool, MEM, REMOTE, &mem), 0);
	assert_int_equal(skein_vqp_new(b.pool, &v), 0);
	assert_int_equal(skein_vqp_bind(v, PORT), 0);
	for (uint64_t i = 0; i < 64; i++)
		assert_int_equal(recv_post(v, mem, i), 0);
	snprintf(h.node, sizeof(h.node), "%s", skein_pool_addr(b.pool));
	h.addr = skein_vqp_raddr(mem);
	h.rkey = skein_vqp_rkey(mem);
	if (write(out, &h, sizeof(h)) != sizeof(h))
		_exit(1);
	for (uint32_t i = 0;; i++) {
		while ((n = skein_vqp_pop(v, 1, &m)) == 1) {
			asked = true;
			recv_post(v, mem, m.wr_id);
			if (m.len == LATE)
				usleep(300000);
			if (m.status == -ECONNRESET)
				skein_vqp_free(m.from);
			else
				text_send(m.from, mem, 8);
		}
		linger(i);
		if (n < 0 || (n = skein_pool_arm(b.pool)) < 0)
			_exit(0);
		if (n)
			continue;
		if (asked)
			timer_put_off(&b);
		poll(&p, 1, -1);
	}
}

static void others_start(void)
{
	char up;

	if (by_node)
		start(&node_pid, node_main, &up, 1);
	start(&echo_pid, echo_main, &far, sizeof(far));
}

static int setup(void **state)
{
	by_node = *state;
	meta_addr[0] = '\0';
	start(&meta_pid, meta_main, meta_addr, sizeof(meta_addr));
	snprintf(folder, sizeof(folder), "/tmp/skein-sleep-XXXXXX");
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/s", folder);
	others_start();
	return 0;
}

static int teardown(void **state)
{
	reap(&echo_pid);
	reap(&node_pid);
	reap(&meta_pid);
	unlink(path);
	rmdir(folder);
	return 0;
}

/* --- asking ------------------------------------------------------------- */

static struct skein_vqp *connected(struct bed *b)
{
	struct skein_vqp *v;

	assert_int_equal(skein_vqp_new(b->pool, &v), 0);
	assert_int_equal(skein_vqp_connect(v, far.node, PORT, patience_ns(60)),
			 0);
	return v;
}

static void answer_wait(struct bed *b, struct skein_vqp *v)
{
	struct ibv_wc wc;
	int n;

	while (!(n = skein_vqp_poll(v, 1, &wc)))
		doze(b);
	assert_int_equal(n, 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_RECV);
}

static void ask(struct bed *b, struct skein_vqp *v, struct skein_vqp_mem *m,
		uint32_t i)
{
	assert_int_equal(recv_post(v, m, i % 64), 0);
	assert_int_equal(text_send(v, m, 8), 0);
	linger(i);
	answer_wait(b, v);
}

static void test_turns(void **state)
{
	struct skein_vqp_mem *m;
	struct skein_vqp *v;
	struct bed b;

	bed_open(&b);
	assert_int_equal(skein_vqp_mem_new(b.pool, MEM, 0, &m), 0);
	v = connected(&b);
	for (uint32_t i = 0; i < ROUNDS; i++)
		ask(&b, v, m, i);
	printf("%u sleeps in %u rounds\n", b.sleeps, ROUNDS);
	assert_true(b.sleeps > ROUNDS / 10);
	bed_close(&b);
}

/* --- several threads ---------------------------------------------------- */

struct asker {
	pthread_t thread;
	struct bed *b;
	struct skein_vqp *v;
	struct skein_vqp_mem *m;
};

static void *asker_main(void *arg)
{
	struct asker *a = arg;

	for (uint32_t i = 0; i < ROUNDS / THREADS; i++)
		ask(a->b, a->v, a->m, i);
	return NULL;
}

/* Calls that wait inside the library, at the same socket. */
static void *caller_main(void *arg)
{
	struct bed *b = arg;

	for (uint32_t i = 0; i < ROUNDS / THREADS; i++) {
		struct skein_vqp *v = connected(b);

		skein_vqp_free(v);
		usleep(i % 64 ? 0 : 200);
	}
	return NULL;
}

/* An own pool's timer, which each other test puts off, wakes. */
static void test_timer(void **state)
{
	struct pollfd p = {.events = POLLIN};
	struct bed b;

	(void)state;
	bed_open(&b);
	rests(&b);
	p.fd = b.fd;
	local_timer_set(pool_of(b.pool)->fd.timer, 1);
	assert_int_equal(poll(&p, 1, patience_ms(20)), 1);
	bed_close(&b);
}

/* All sleep on one descriptor: what one thread's round brings for another's vqp
 * wakes that one. */
static void test_threads(void **state)
{
	struct asker a[THREADS];
	pthread_t caller;
	struct bed b;

	bed_open(&b);
	for (unsigned i = 0; i < THREADS; i++) {
		a[i].b = &b;
		a[i].v = connected(&b);
		assert_int_equal(skein_vqp_mem_new(b.pool, MEM, 0, &a[i].m), 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_create(&a[i].thread, NULL, asker_main, &a[i]);
	pthread_create(&caller, NULL, caller_main, &b);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(a[i].thread, NULL);
	pthread_join(caller, NULL);
	printf("%u sleeps\n", b.sleeps);
	assert_true(b.sleeps > 0);
	bed_close(&b);
}

/* One thread sleeps for the answers, another one polls all the time, and has the
 * completions in its rounds. */
static atomic_bool over;

static void *poller_main(void *arg)
{
	struct bed *b = arg;

	while (!over)
		skein_pool_progress(b->pool);
	return NULL;
}

static void test_beside_poller(void **state)
{
	struct skein_vqp_mem *m;
	struct skein_vqp *v;
	pthread_t poller;
	struct bed b;

	bed_open(&b);
	assert_int_equal(skein_vqp_mem_new(b.pool, MEM, 0, &m), 0);
	v = connected(&b);
	over = false;
	pthread_create(&poller, NULL, poller_main, &b);
	for (uint32_t i = 0; i < ROUNDS / 4; i++)
		ask(&b, v, m, i);
	over = true;
	pthread_join(poller, NULL);
	assert_true(b.sleeps > 0);
	bed_close(&b);
}

/* A completion that no event announces: another thread posts a request to memory
 * that is not there, and the pool itself makes the completion. */
struct poster {
	struct skein_vqp *v;
	struct skein_vqp_mem *m;
};

static void *poster_main(void *arg)
{
	struct poster *o = arg;
	struct ibv_sge sge = {(uintptr_t)skein_vqp_mem_addr(o->m), 8,
			      skein_vqp_lkey(o->m)};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_READ,
				 .wr.rdma.remote_addr = far.addr + MEM,
				 .wr.rdma.rkey = far.rkey};
	struct ibv_send_wr *bad;

	usleep(20000);
	assert_int_equal(skein_vqp_post_send(o->v, &wr, &bad), 0);
	return NULL;
}

static void read_once(struct bed *b, struct poster *o)
{
	struct ibv_sge sge = {(uintptr_t)skein_vqp_mem_addr(o->m), 8,
			      skein_vqp_lkey(o->m)};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_READ,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.rdma.remote_addr = far.addr,
				 .wr.rdma.rkey = far.rkey};
	struct ibv_send_wr *bad;
	struct ibv_wc wc;

	assert_int_equal(skein_vqp_post_send(o->v, &wr, &bad), 0);
	while (!skein_vqp_poll(o->v, 1, &wc))
		doze(b);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
}

static void test_made_by_pool(void **state)
{
	struct pollfd p = {.events = POLLIN};
	pthread_t poster;
	struct poster o;
	struct ibv_wc wc;
	struct bed b;
	int n;

	bed_open(&b);
	p.fd = b.fd;
	assert_int_equal(skein_vqp_mem_new(b.pool, MEM, 0, &o.m), 0);
	o.v = connected(&b);
	/* the region's record is known: the next request asks nothing */
	read_once(&b, &o);
	rests(&b);
	pthread_create(&poster, NULL, poster_main, &o);
	n = poll(&p, 1, patience_ms(20));
	patience_met(n == 1, 20, "a wake-up");
	pthread_join(poster, NULL);
	while (!skein_vqp_poll(o.v, 1, &wc))
		doze(&b);
	assert_int_equal(wc.status, IBV_WC_REM_ACCESS_ERR);
	bed_close(&b);
}

static void *nobody_main(void *arg)
{
	struct skein_vqp *v;
	struct bed *b = arg;

	assert_int_equal(skein_vqp_new(b->pool, &v), 0);
	assert_true(skein_vqp_connect(v, "127.0.0.1:3", 1, SKEIN_MS(30)) < 0);
	skein_vqp_free(v);
	return NULL;
}

/* Another thread's call waits at the same socket, and goes before the answer
 * comes that this thread sleeps for. */
static void test_beside_call(void **state)
{
	struct skein_vqp_mem *m;
	struct skein_vqp *v;
	pthread_t caller;
	struct bed b;

	bed_open(&b);
	assert_int_equal(skein_vqp_mem_new(b.pool, MEM, 0, &m), 0);
	v = connected(&b);
	assert_int_equal(recv_post(v, m, 0), 0);
	assert_int_equal(text_send(v, m, LATE), 0);
	rests(&b);
	pthread_create(&caller, NULL, nobody_main, &b);
	answer_wait(&b, v);
	pthread_join(caller, NULL);
	bed_close(&b);
}

/* --- several processes -------------------------------------------------- */

static void asking_main(int out)
{
	struct skein_vqp_mem *m;
	struct skein_vqp *v;
	struct bed b;

	bed_open(&b);
	assert_int_equal(skein_vqp_mem_new(b.pool, MEM, 0, &m), 0);
	v = connected(&b);
	for (uint32_t i = 0; i < ROUNDS / THREADS; i++)
		ask(&b, v, m, i);
	bed_close(&b);
	if (write(out, "+", 1) != 1)
		_exit(1);
}

static void test_processes(void **state)
{
	pid_t pid[THREADS];
	int p[2];
	char x;

	assert_int_equal(pipe(p), 0);
	for (unsigned i = 0; i < THREADS; i++) {
		pid[i] = fork();
		if (!pid[i]) {
			asking_main(p[1]);
			_exit(0);
		}
	}
	close(p[1]);
	for (unsigned i = 0; i < THREADS; i++) {
		struct pollfd f = {.fd = p[0], .events = POLLIN};

		patience_met(poll(&f, 1, patience_ms(60)) == 1, 60, "an asker");
		assert_int_equal(read(p[0], &x, 1), 1);
	}
	for (unsigned i = 0; i < THREADS; i++)
		reap(&pid[i]);
	close(p[0]);
}

/* --- what is there ------------------------------------------------------ */

/* Until arm() says 1 without that anything moves. */
static void becomes_ready(struct bed *b)
{
	uint64_t end = now_ms() + patience_ms(20);
	unsigned ones = 0;

	while (ones < 100 && now_ms() < end) {
		ones = skein_pool_arm(b->pool) == 1 ? ones + 1 : 0;
		if (!ones)
			usleep(100);
	}
	patience_met(ones == 100, 20, "something ready");
}

static void test_ready(void **state)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u32 = 7};
	struct skein_vqp_mem *m;
	struct skein_vqp *v, *w;
	struct ibv_wc wc;
	struct bed b;
	int ep, n;

	bed_open(&b);
	assert_int_equal(skein_vqp_mem_new(b.pool, MEM, 0, &m), 0);
	v = connected(&b);
	w = connected(&b);
	rests(&b);
	/* in the program's own epoll */
	ep = epoll_create1(EPOLL_CLOEXEC);
	assert_int_equal(epoll_ctl(ep, EPOLL_CTL_ADD, b.fd, &ev), 0);
	assert_int_equal(epoll_wait(ep, &ev, 1, 0), 0);
	assert_int_equal(recv_post(v, m, 0), 0);
	assert_int_equal(text_send(v, m, 8), 0);
	ev.data.u32 = 0;
	assert_int_equal(epoll_wait(ep, &ev, 1, patience_ms(20)), 1);
	assert_int_equal(ev.data.u32, 7);
	/* it stays until it is polled, whatever else is asked */
	becomes_ready(&b);
	assert_int_equal(skein_vqp_poll(w, 1, &wc), 0);
	assert_int_equal(skein_pool_arm(b.pool), 1);
	assert_int_equal(skein_vqp_poll(v, 1, &wc), 1);
	rests(&b);
	/* a message without a receive is nothing that can be polled */
	assert_int_equal(text_send(v, m, 8), 0);
	usleep(50000);
	rests(&b);
	assert_int_equal(recv_post(v, m, 1), 0);
	becomes_ready(&b);
	/* a vqp that is freed has nothing more, and another thread may sleep */
	skein_vqp_free(v);
	rests(&b);
	/* an error is something, too: the echo's receives are short */
	assert_int_equal(text_send(w, m, LONG), 0);
	while (!(n = skein_vqp_poll(w, 1, &wc)))
		doze(&b);
	assert_int_equal(wc.status, IBV_WC_REM_OP_ERR);
	rests(&b);
	close(ep);
	bed_close(&b);
}

/* A long message from this node to itself: each step of its READ wakes. */
static void test_long(void **state)
{
	struct skein_vqp_mem *m;
	struct skein_vqp_msg msg;
	struct skein_vqp *v, *w;
	struct bed b;
	int n;

	bed_open(&b);
	assert_int_equal(skein_vqp_mem_new(b.pool, MEM, 0, &m), 0);
	assert_int_equal(skein_vqp_new(b.pool, &w), 0);
	assert_int_equal(skein_vqp_bind(w, 9), 0);
	assert_int_equal(skein_vqp_new(b.pool, &v), 0);
	assert_int_equal(skein_vqp_connect(v, skein_pool_addr(b.pool), 9,
					   patience_ns(60)),
			 0);
	for (unsigned i = 0; i < 100; i++) {
		struct ibv_sge sge = {(uintptr_t)skein_vqp_mem_addr(m), LONG,
				      skein_vqp_lkey(m)};
		struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;

		assert_int_equal(skein_vqp_post_recv(w, &wr, &bad), 0);
		assert_int_equal(text_send(v, m, LONG), 0);
		while (!(n = skein_vqp_pop(w, 1, &msg)))
			doze(&b);
		assert_int_equal(n, 1);
		assert_int_equal(msg.status, 0);
		assert_int_equal(msg.len, LONG);
	}
	rests(&b);
	bed_close(&b);
}

/* Requests without a completion: room for more is a wake-up too. */
static void test_room(void **state)
{
	struct skein_vqp_mem *m;
	struct ibv_send_wr *bad;
	struct skein_vqp *v;
	uint32_t done = 0;
	struct bed b;

	bed_open(&b);
	assert_int_equal(skein_vqp_mem_new(b.pool, MEM, 0, &m), 0);
	v = connected(&b);
	while (done < ROUNDS) {
		struct ibv_sge sge = {(uintptr_t)skein_vqp_mem_addr(m), 8,
				      skein_vqp_lkey(m)};
		struct ibv_send_wr wr = {.sg_list = &sge,
					 .num_sge = 1,
					 .opcode = IBV_WR_RDMA_READ,
					 .wr.rdma.remote_addr = far.addr,
					 .wr.rdma.rkey = far.rkey};
		int err = skein_vqp_post_send(v, &wr, &bad);

		done += !err;
		if (!err)
			continue;
		assert_true(err == -ENOMEM || err == -EDQUOT);
		doze(&b);
	}
	printf("%u sleeps in %u READs\n", b.sleeps, done);
	bed_close(&b);
}

static struct {
	struct skein_env env;
	struct env_ops ops;
	const struct env_ops *real;
	unsigned looks;
} fake;

/* From the second look on it is late. */
static uint64_t later_now(struct skein_env *env)
{
	return fake.real->now_ns(env) + (fake.looks++ ? VQP_RC_WAIT_NS : 0);
}

/* A vqp fails by time alone, in the round of arm() behind the request for an event:
 * it has waited for an RC queue pair long enough. Nothing has moved. */
static void test_fails_late(void **state)
{
	struct skein_vqp_mem *m;
	struct skein_env *env;
	struct skein_vqp *v;
	struct vqp *inner;
	struct pool *p;
	struct ibv_wc wc;
	struct bed b;

	if (by_node)
		return;
	bed_open(&b);
	assert_int_equal(skein_vqp_mem_new(b.pool, MEM, 0, &m), 0);
	v = connected(&b);
	p = pool_of(b.pool);
	inner = container_of(v, struct pool_vqp, base)->v;
	if (!inner->peer->dc) { /* connecting has asked for it */
		bed_close(&b);
		return;
	}
	inner->peer->dc = false;
	inner->peer->rc_again_ns = UINT64_MAX;
	assert_int_equal(text_send(v, m, 8), 0);
	rests(&b);
	env = p->env;
	fake.env = *env;
	fake.real = env->ops;
	fake.ops = *env->ops;
	fake.ops.now_ns = later_now;
	fake.env.ops = &fake.ops;
	fake.looks = 0;
	p->env = &fake.env;
	assert_int_equal(skein_pool_arm(b.pool), 1);
	p->env = env;
	assert_int_equal(skein_vqp_poll(v, 1, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_RETRY_EXC_ERR);
	bed_close(&b);
}

/* Receives until one is refused, with a service that stands still: what it does
 * not take fills the ring of requests. */
static void receives_fill(struct skein_vqp *const v[3], struct skein_vqp_mem *m)
{
	unsigned n = 0, i;
	int err = 0, status;

	kill(node_pid, SIGSTOP);
	assert_int_equal(waitpid(node_pid, &status, WUNTRACED), node_pid);
	assert_true(WIFSTOPPED(status));
	for (i = 0; i < 3; i++)
		while (!(err = recv_post(v[i], m, 0)))
			n++;
	assert_int_equal(err, -ENOMEM);
	assert_int_equal(n, RING_LINES);
}

/* Receives that are taken make no completion: the room alone wakes. */
static void test_room_for_receives(void **state)
{
	struct skein_vqp_mem *m;
	struct skein_vqp *v[6], *w;
	struct pollfd p = {.events = POLLIN};
	struct bed b;
	unsigned i;
	int n;

	if (!by_node)
		return;
	bed_open(&b);
	p.fd = b.fd;
	assert_int_equal(skein_vqp_mem_new(b.pool, MEM, 0, &m), 0);
	for (i = 0; i < 6; i++)
		assert_int_equal(skein_vqp_new(b.pool, &v[i]), 0);
	rests(&b);
	receives_fill(v, m);
	rests(&b);
	kill(node_pid, SIGCONT);
	n = poll(&p, 1, patience_ms(20));
	patience_met(n == 1, 20, "a wake-up for room");
	assert_int_equal(recv_post(v[2], m, 0), 0);
	assert_int_equal(skein_vqp_new(b.pool, &w), 0);
	rests(&b);
	/* Room that comes before the thread arms: the answer to a call comes
	 * behind all receives. */
	receives_fill(v + 3, m);
	kill(node_pid, SIGCONT);
	assert_int_equal(skein_vqp_new(b.pool, &w), 0);
	assert_int_equal(skein_pool_arm(b.pool), 1);
	rests(&b);
	bed_close(&b);
}

/* --- ends --------------------------------------------------------------- */

static void test_fork(void **state)
{
	struct skein_vqp_mem *m;
	struct skein_vqp *v;
	struct bed b;
	int status;
	pid_t pid;

	bed_open(&b);
	assert_int_equal(skein_vqp_mem_new(b.pool, MEM, 0, &m), 0);
	v = connected(&b);
	rests(&b);
	pid = fork();
	if (!pid)
		_exit(skein_pool_arm(b.pool) == -SKEIN_EFORKED &&
				      skein_pool_fd(b.pool) == -SKEIN_EFORKED
			      ? 42
			      : 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(WEXITSTATUS(status), 42);
	for (uint32_t i = 0; i < 100; i++)
		ask(&b, v, m, i);
	bed_close(&b);
}

static void *killer_main(void *arg)
{
	usleep(100000);
	kill(node_pid, SIGKILL);
	return NULL;
}

/* The service dies while its client sleeps; a forked child has the client's
 * socket open all the time. */
static void test_service_dies(void **state)
{
	struct pollfd p = {.events = POLLIN};
	struct skein_vqp_mem *m;
	struct skein_vqp_msg msg;
	struct skein_vqp *v, *w;
	pthread_t killer;
	struct ibv_wc wc;
	struct bed b;
	uint64_t end;
	pid_t child;
	int n;

	if (!by_node)
		return;
	bed_open(&b);
	p.fd = b.fd;
	assert_int_equal(skein_vqp_mem_new(b.pool, MEM, 0, &m), 0);
	v = connected(&b);
	assert_int_equal(skein_vqp_new(b.pool, &w), 0);
	assert_int_equal(skein_vqp_bind(w, 9), 0);
	child = fork();
	if (!child) {
		pause();
		_exit(0);
	}
	rests(&b);
	pthread_create(&killer, NULL, killer_main, NULL);
	n = poll(&p, 1, patience_ms(20));
	patience_met(n == 1, 20, "the service's end");
	pthread_join(killer, NULL);
	end = now_ms() + patience_ms(20);
	while ((n = skein_pool_arm(b.pool)) >= 0 && now_ms() < end)
		;
	assert_int_equal(n, -SKEIN_EDEAD);
	assert_int_equal(skein_vqp_poll(v, 1, &wc), -SKEIN_EDEAD);
	assert_int_equal(skein_vqp_pop(w, 1, &msg), -SKEIN_EDEAD);
	assert_int_equal(poll(&p, 1, 0), 1);
	skein_vqp_free(v);
	skein_vqp_free(w);
	reap(&node_pid);
	reap(&echo_pid);
	assert_int_equal(skein_pool_arm(b.pool), -SKEIN_EDEAD);
	others_start();
	end = now_ms() + patience_ms(20);
	while ((n = skein_pool_progress(b.pool)) == -SKEIN_EDEAD &&
	       now_ms() < end)
		;
	assert_true(n >= 0);
	/* the same descriptor, with nothing of the service before */
	assert_int_equal(skein_pool_fd(b.pool), b.fd);
	rests(&b);
	v = connected(&b);
	for (uint32_t i = 0; i < 100; i++)
		ask(&b, v, m, i);
	reap(&child);
	bed_close(&b);
}

static void test_not_open(void **state)
{
	struct bed b;

	pool_open(&b);
	assert_int_equal(skein_pool_arm(b.pool), -EINVAL);
	bed_close(&b);
}

/* --- skein-vqp(3), SLEEPING ---------------------------------------------- */

static struct {
	struct bed from; /* another pool's, that sends */
	struct skein_vqp *v;
	struct skein_vqp_mem *m;
	bool sent;
} page;

/* The page's poll(2): the message is sent once its loop sleeps. */
static int page_poll(struct pollfd *fds, nfds_t n, int timeout)
{
	uint64_t end = now_ms() + patience_ms(20);
	int rc;

	assert_int_equal(timeout, -1);
	if (!page.sent)
		assert_int_equal(text_send(page.v, page.m, 8), 0);
	page.sent = true;
	while (!(rc = poll(fds, n, 1)) && now_ms() < end)
		skein_pool_progress(page.from.pool);
	patience_met(rc == 1, 20, "a wake-up");
	return rc;
}

static int page_run(struct skein_pool *pool, struct skein_vqp *vqp)
{
	struct skein_vqp_msg msg;
	int n = 0;

#define poll page_poll
#include "vqp_page.h"
#undef poll
	if (n == 1)
		assert_int_equal(msg.len, 8);
	return n;
}

static void test_page(void **state)
{
	struct skein_vqp_mem *m;
	struct skein_vqp *v;
	struct bed to;

	bed_open(&page.from);
	page.sent = false;
	assert_int_equal(skein_vqp_mem_new(page.from.pool, MEM, 0, &page.m), 0);
	pool_open(&to);
	assert_int_equal(skein_vqp_mem_new(to.pool, MEM, 0, &m), 0);
	assert_int_equal(skein_vqp_new(to.pool, &v), 0);
	assert_int_equal(skein_vqp_bind(v, PORT + 1), 0);
	assert_int_equal(recv_post(v, m, 0), 0);
	assert_int_equal(skein_vqp_new(page.from.pool, &page.v), 0);
	assert_int_equal(skein_vqp_connect(page.v, skein_pool_addr(to.pool),
					   PORT + 1, patience_ns(60)),
			 0);
	assert_int_equal(page_run(to.pool, v), 1);
	bed_close(&to);
	bed_close(&page.from);
}

#define BOTH(name)                                               \
	{#name " (own pool)", name, setup, teardown, NULL},      \
	{                                                        \
#name " (node)", name, setup, teardown, far.node \
	}

int main(void)
{
	const struct CMUnitTest tests[] = {
		BOTH(test_turns),
		BOTH(test_threads),
		BOTH(test_beside_poller),
		BOTH(test_made_by_pool),
		BOTH(test_beside_call),
		BOTH(test_processes),
		BOTH(test_ready),
		BOTH(test_long),
		BOTH(test_room),
		BOTH(test_room_for_receives),
		BOTH(test_fails_late),
		BOTH(test_fork),
		BOTH(test_service_dies),
		BOTH(test_not_open),
		BOTH(test_page),
		{"test_timer", test_timer, setup, teardown, NULL},
	};

	if (!getenv("SKEIN_DEVICE"))
		setenv("SKEIN_DEVICE", "soft", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
