/* SPDX-License-Identifier: MIT */
#include "rig.h"

#include "dev/soft/soft.h"
#include "unit/patience.h"

#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_S 60
#define PATIENCE_NS patience_ns(PATIENCE_S)

uint64_t rig_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

unsigned rig_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

void rig_until(bool (*done)(void *arg), void *arg)
{
	uint64_t end = rig_now_ns() + PATIENCE_NS;

	while (!done(arg)) {
		patience_met(rig_now_ns() < end, PATIENCE_S,
			     "what the test waits for");
		sched_yield();
	}
}

#define GUARDED 64

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static struct soft *guarded[GUARDED];
static bool guarding;

static void guards(int (*turn)(pthread_mutex_t *m))
{
	for (unsigned i = 0; i < GUARDED; i++)
		if (guarded[i])
			turn(&guarded[i]->lock);
}

static void fork_begin(void)
{
	pthread_mutex_lock(&guard);
	guards(pthread_mutex_lock);
}

static void fork_end(void)
{
	guards(pthread_mutex_unlock);
	pthread_mutex_unlock(&guard);
}

/* The devices are the parent's. */
static void fork_child(void)
{
	guards(pthread_mutex_unlock);
	memset(guarded, 0, sizeof(guarded));
	pthread_mutex_unlock(&guard);
}

static void guard_put(struct soft *was, struct soft *s)
{
	unsigned i = 0;

	pthread_mutex_lock(&guard);
	if (!guarding)
		pthread_atfork(fork_begin, fork_end, fork_child);
	guarding = true;
	while (i < GUARDED && guarded[i] != was)
		i++;
	if (i < GUARDED)
		guarded[i] = s;
	pthread_mutex_unlock(&guard);
}

void rig_guard(struct dev *dev)
{
	guard_put(NULL, soft_of_dev(dev));
}

void rig_unguard(struct dev *dev)
{
	guard_put(soft_of_dev(dev), NULL);
}

static void log_line(void *arg, enum env_log_level level, const char *msg)
{
	if (getenv("SKEIN_TEST_LOG"))
		fprintf(stderr, "[%d] %s\n", (int)level, msg);
}

void rig_open(struct rig_end *e, const struct rig_opts *o)
{
	static const struct rig_opts none;
	char err[256] = "";

	memset(e, 0, sizeof(*e));
	e->o = o ? *o : none;
	e->psn = 0x1234;
	assert_int_equal(env_real_new(&e->env), 0);
	e->env->log = e->o.log ? e->o.log : log_line;
	e->env->log_level = ENV_LOG_DEBUG;
	e->env->huge = e->o.huge;
	if (dev_soft_open(e->env, "", -1, err, sizeof(err), &e->dev))
		fail_msg("%s", err);
	rig_guard(e->dev);
	/* Before there is a connection whose death it could tell. */
	if (e->o.silent)
		e->dev->caps.death_notice = false;
	assert_int_equal(e->dev->ops->alloc_pd(e->dev, &e->pd), 0);
	assert_int_equal(e->dev->ops->create_comp_channel(e->dev, &e->ch), 0);
	assert_int_equal(e->dev->ops->create_cq(e->dev,
						e->o.cqe ? e->o.cqe : 256, NULL,
						e->ch, &e->cq),
			 0);
	if (e->o.plain) {
		e->buf = aligned_alloc(4096, RIG_MEM);
		memset(e->buf, 0, RIG_MEM);
		assert_int_equal(mem_region_wrap(e->dev, e->pd, e->buf, RIG_MEM,
						 RIG_ACCESS, 1, &e->mem),
				 0);
	} else {
		assert_int_equal(mem_region_new(e->dev, e->pd, "rig", RIG_MEM,
						RIG_ACCESS, 1, &e->mem),
				 0);
		e->buf = e->mem->addr;
	}
	e->lkey = e->mem->mr->lkey;
	e->qp = rig_qp(e);
}

struct ibv_qp *rig_qp(struct rig_end *e)
{
	struct ibv_qp_init_attr a = {
		.send_cq = e->cq,
		.recv_cq = e->cq,
		.qp_type = e->o.type ? e->o.type : IBV_QPT_RC,
		.sq_sig_all = e->o.sig_all,
		.cap = {.max_send_wr = e->o.wr ? e->o.wr : RIG_WR,
			.max_recv_wr = e->o.wr ? e->o.wr : RIG_WR,
			.max_send_sge = e->o.sge ? e->o.sge : 4,
			.max_recv_sge = e->o.sge ? e->o.sge : 4,
			.max_inline_data = 256}};
	struct ibv_qp *qp;

	assert_int_equal(
		e->dev->ops->create_qp(e->dev, e->pd, &a, e->o.flags, &qp), 0);
	assert_int_equal(dev_qp_init(e->dev, qp, RIG_ACCESS), 0);
	return qp;
}

void rig_close(struct rig_end *e)
{
	if (e->qp)
		assert_int_equal(e->dev->ops->destroy_qp(e->dev, e->qp), 0);
	if (e->mem)
		mem_region_free(e->mem);
	if (e->o.plain)
		free(e->buf);
	assert_int_equal(e->dev->ops->destroy_cq(e->dev, e->cq), 0);
	assert_int_equal(e->dev->ops->destroy_comp_channel(e->dev, e->ch), 0);
	assert_int_equal(e->dev->ops->dealloc_pd(e->dev, e->pd), 0);
	rig_unguard(e->dev);
	dev_close(e->dev);
	env_real_free(e->env);
}

void rig_qp_addr(struct rig_end *e, struct ibv_qp *qp, struct dev_qp_addr *a)
{
	dev_qp_addr(e->dev, qp, e->psn, a);
}

void rig_addr(struct rig_end *e, struct rig_addr *a)
{
	memset(a, 0, sizeof(*a));
	rig_qp_addr(e, e->qp, &a->qp);
	a->buf = (uintptr_t)e->buf;
	a->rkey = e->mem->mr->rkey;
	a->pid = getpid();
}

void rig_connect_qp(struct rig_end *e, struct ibv_qp *qp,
		    const struct dev_qp_addr *peer)
{
	assert_int_equal(dev_qp_rtr(e->dev, qp, peer, &e->o.qp), 0);
	assert_int_equal(dev_qp_rts(e->dev, qp, e->psn, peer, &e->o.qp), 0);
}

void rig_connect(struct rig_end *e, const struct rig_addr *peer)
{
	rig_connect_qp(e, e->qp, &peer->qp);
}

void rig_pair(struct rig_end *a, struct rig_end *b, const struct rig_opts *o)
{
	struct rig_addr aa, ba;

	rig_open(a, o);
	rig_open(b, o);
	rig_addr(a, &aa);
	rig_addr(b, &ba);
	rig_connect(a, &ba);
	rig_connect(b, &aa);
}

void rig_unpair(struct rig_end *a, struct rig_end *b)
{
	rig_close(a);
	rig_close(b);
}

int rig_post(struct rig_end *e, enum ibv_wr_opcode op, uint64_t id, void *src,
	     uint32_t len, uint64_t raddr, uint32_t rkey, unsigned flags)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)src, .length = len, .lkey = e->lkey};
	struct ibv_send_wr wr = {.wr_id = id,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = op,
				 .send_flags = flags},
			   *bad;

	wr.imm_data = 0x01020304;
	wr.wr.rdma.remote_addr = raddr;
	wr.wr.rdma.rkey = rkey;
	return ibv_post_send(e->qp, &wr, &bad);
}

int rig_recv(struct rig_end *e, uint64_t id, void *dst, uint32_t len)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)dst, .length = len, .lkey = e->lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1},
			   *bad;

	return ibv_post_recv(e->qp, &wr, &bad);
}

void rig_wait(struct rig_end *e, struct ibv_wc *wc)
{
	uint64_t end = rig_now_ns() + PATIENCE_NS;
	int n;

	while ((n = ibv_poll_cq(e->cq, 1, wc)) == 0) {
		patience_met(rig_now_ns() < end, PATIENCE_S, "a completion");
		sched_yield();
	}
	assert_int_equal(n, 1);
}

void rig_expect(struct rig_end *e, uint64_t id, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	rig_wait(e, &wc);
	assert_int_equal(wc.wr_id, id);
	assert_int_equal(wc.status, status);
}

bool rig_quiet(struct rig_end *e)
{
	struct ibv_wc wc;

	return ibv_poll_cq(e->cq, 1, &wc) == 0;
}

void rig_async(struct rig_end *e, enum ibv_event_type type)
{
	struct pollfd p = {.fd = e->dev->verbs->async_fd, .events = POLLIN};
	struct ibv_async_event ev;

	patience_met(poll(&p, 1, patience_ms(PATIENCE_S)) == 1, PATIENCE_S,
		     "an event of the device");
	assert_int_equal(e->dev->ops->get_async_event(e->dev, &ev), 0);
	assert_int_equal(ev.event_type, type);
	e->dev->ops->ack_async_event(e->dev, &ev);
}

void rig_fork(struct rig_child *c, void (*fn)(int sock, void *arg), void *arg)
{
	int sv[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), 0);
	c->pid = fork();
	assert_true(c->pid >= 0);
	if (c->pid == 0) {
		close(sv[0]);
		fn(sv[1], arg);
		_exit(0);
	}
	close(sv[1]);
	c->sock = sv[0];
}

void rig_stop(struct rig_child *c)
{
	int st;

	assert_int_equal(kill(c->pid, SIGSTOP), 0);
	assert_int_equal(waitpid(c->pid, &st, WUNTRACED), c->pid);
	assert_true(WIFSTOPPED(st));
}

int rig_join(struct rig_child *c)
{
	int st = -1;

	close(c->sock);
	assert_int_equal(waitpid(c->pid, &st, 0), c->pid);
	return st;
}

void rig_put(int sock, const void *p, size_t len)
{
	assert_int_equal(write(sock, p, len), (ssize_t)len);
}

void rig_get(int sock, void *p, size_t len)
{
	assert_int_equal(recv(sock, p, len, MSG_WAITALL), (ssize_t)len);
}

void rig_meet(struct rig_end *e, int sock, const struct rig_opts *o,
	      struct rig_addr *peer)
{
	struct rig_addr mine;

	rig_open(e, o);
	rig_addr(e, &mine);
	rig_put(sock, &mine, sizeof(mine));
	rig_get(sock, peer, sizeof(*peer));
	rig_connect(e, peer);
}
