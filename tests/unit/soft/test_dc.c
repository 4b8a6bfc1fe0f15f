/* SPDX-License-Identifier: MIT */
/*
 * DC between processes: a target's process dies with a message waiting for it
 * and without, and a sender's process dies at any moment.
 */
#include "rig.h"
#include "dev/dev.h"
#include "env/env.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEY 77u
#define MEM 8192u
#define SENDER_S 60 /* a sender that nobody kills ends itself */
#define ACCESS                                              \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | \
	 IBV_ACCESS_REMOTE_READ)

struct target {
	uint32_t dctn, rkey;
	uint64_t addr;
};

struct end {
	struct skein_env *env;
	struct dev *dev;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *dct, *dci;
	struct ibv_mr *mr;
	struct ibv_ah *ah;
	unsigned char *mem;
	int fd;
};

static void end_open(struct end *e)
{
	struct ibv_srq_init_attr a = {.attr = {.max_wr = 64, .max_sge = 1}};
	const struct dev_ops *ops;
	struct dev_qp_addr peer;
	struct ibv_ah_attr at;
	char err[200];
	void *mem;

	assert_int_equal(env_real_new(&e->env), 0);
	assert_int_equal(
		dev_soft_open(e->env, "", -1, err, sizeof(err), &e->dev), 0);
	rig_guard(e->dev);
	ops = e->dev->ops;
	assert_int_equal(ops->alloc_pd(e->dev, &e->pd), 0);
	assert_int_equal(ops->create_cq(e->dev, 256, NULL, NULL, &e->cq), 0);
	assert_int_equal(ops->create_srq(e->dev, e->pd, &a, &e->srq), 0);
	assert_int_equal(env_mem_alloc(e->env, "dc", MEM, &e->fd, &mem), 0);
	e->mem = mem;
	assert_int_equal(ops->reg_mr(e->dev, e->pd, mem, MEM, ACCESS, e->fd, 0,
				     &e->mr),
			 0);
	assert_int_equal(ops->create_dct(e->dev, e->pd, e->cq, e->srq, KEY,
					 ACCESS, NULL, &e->dct),
			 0);
	peer = (struct dev_qp_addr){
		.gid = e->dev->gid.gid, .qpn = 1, .mtu = IBV_MTU_4096};
	assert_int_equal(dev_ah_attr(e->dev, &peer, NULL, &at), 0);
	assert_int_equal(ops->create_ah(e->dev, e->pd, &at, &e->ah), 0);
}

static struct ibv_qp *dci_new(struct end *e)
{
	struct dev_qp_opts opts = {.timeout = 10, .retry_cnt = 4};
	struct ibv_qp_init_attr a = {.send_cq = e->cq,
				     .cap = {.max_send_wr = 64,
					     .max_send_sge = 1}};
	struct ibv_qp *qp;

	assert_int_equal(e->dev->ops->create_dci(e->dev, e->pd, &a, &opts, &qp),
			 0);
	return qp;
}

static void end_close(struct end *e)
{
	const struct dev_ops *ops = e->dev->ops;

	if (e->dct)
		ops->destroy_qp(e->dev, e->dct);
	ops->destroy_srq(e->dev, e->srq);
	ops->destroy_ah(e->dev, e->ah);
	if (e->mr)
		ops->dereg_mr(e->dev, e->mr);
	ops->destroy_cq(e->dev, e->cq);
	ops->dealloc_pd(e->dev, e->pd);
	rig_unguard(e->dev);
	dev_close(e->dev);
	env_mem_free(e->env, e->fd, e->mem, MEM);
	env_real_free(e->env);
}

static int post(struct end *e, struct ibv_qp *dci, const struct target *t,
		enum ibv_wr_opcode op)
{
	struct ibv_sge sge = {(uintptr_t)e->mem, 4096, e->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = op,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = op,
				 .send_flags = IBV_SEND_SIGNALED};

	wr.wr.rdma.remote_addr = t->addr;
	wr.wr.rdma.rkey = t->rkey;
	return e->dev->ops->post_dc(e->dev, dci, &wr, e->ah, t->dctn, KEY);
}

static enum ibv_wc_status wait_wc(struct end *e)
{
	struct ibv_wc wc;

	for (unsigned i = 0; i < 200000; i++) {
		if (ibv_poll_cq(e->cq, 1, &wc) == 1)
			return wc.status;
		usleep(20);
	}
	fail_msg("no completion");
	return IBV_WC_GENERAL_ERR;
}

static bool nothing(struct end *e)
{
	struct ibv_wc wc;

	for (unsigned i = 0; i < 100; i++) {
		if (ibv_poll_cq(e->cq, 1, &wc))
			return false;
		usleep(20);
	}
	return true;
}

/* A process with a target. It is forked before this one has threads: a child of
 * one that has may find any lock taken. */
struct child {
	pid_t pid;
	int go, told;
};

static struct child child_fork(void)
{
	struct end e = {0};
	struct target me;
	int go[2], p[2];
	char byte;
	pid_t pid;

	assert_int_equal(pipe(go), 0);
	assert_int_equal(pipe(p), 0);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (read(go[0], &byte, 1) != 1)
			_exit(0);
		end_open(&e);
		me = (struct target){e.dct->qp_num, e.mr->rkey,
				     (uintptr_t)e.mem};
		if (write(p[1], &me, sizeof(me)) != sizeof(me))
			_exit(1);
		for (;;)
			pause();
	}
	close(go[0]);
	close(p[1]);
	return (struct child){pid, go[1], p[0]};
}

/* It makes its target, tells of it, and then waits. */
static void child_go(struct child *c, struct target *t)
{
	assert_int_equal(write(c->go, "", 1), 1);
	close(c->go);
	assert_int_equal(read(c->told, t, sizeof(*t)), sizeof(*t));
	close(c->told);
}

/* The device's own thread writes it. */
static enum ibv_qp_state state_of(const struct ibv_qp *qp)
{
	return __atomic_load_n(&qp->state, __ATOMIC_ACQUIRE);
}

static bool comes_to(const struct ibv_qp *qp, enum ibv_qp_state state)
{
	for (unsigned i = 0; i < 200000 && state_of(qp) != state; i++)
		usleep(20);
	return state_of(qp) == state;
}

static void reap(pid_t pid)
{
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void test_target_dies(void **state)
{
	struct ibv_qp *waits, *idle, *fresh;
	struct target t[2];
	struct end e = {0};
	struct child c[3];

	for (int i = 0; i < 3; i++)
		c[i] = child_fork();
	for (int i = 0; i < 2; i++)
		child_go(&c[i], &t[i]);
	end_open(&e);
	waits = dci_new(&e);
	idle = dci_new(&e);
	assert_int_equal(post(&e, idle, &t[0], IBV_WR_RDMA_WRITE), 0);
	assert_int_equal(wait_wc(&e), IBV_WC_SUCCESS);
	assert_int_equal(post(&e, waits, &t[0], IBV_WR_SEND), 0);
	assert_true(nothing(&e));
	reap(c[0].pid);
	assert_int_equal(wait_wc(&e), IBV_WC_RETRY_EXC_ERR);
	assert_true(comes_to(waits, IBV_QPS_ERR));
	/* one that has nothing there goes on */
	assert_int_equal(state_of(idle), IBV_QPS_RTS);
	assert_int_equal(post(&e, idle, &t[1], IBV_WR_RDMA_WRITE), 0);
	assert_int_equal(wait_wc(&e), IBV_WC_SUCCESS);
	/* what is sent to the dead one fails */
	assert_int_equal(post(&e, idle, &t[0], IBV_WR_RDMA_WRITE), 0);
	assert_int_equal(wait_wc(&e), IBV_WC_RETRY_EXC_ERR);
	/* and the number is another's, once there is one */
	reap(c[1].pid);
	child_go(&c[2], &t[0]);
	fresh = dci_new(&e);
	assert_int_equal(post(&e, fresh, &t[0], IBV_WR_RDMA_WRITE), 0);
	assert_int_equal(wait_wc(&e), IBV_WC_SUCCESS);
	reap(c[2].pid);
	e.dev->ops->destroy_qp(e.dev, waits);
	e.dev->ops->destroy_qp(e.dev, idle);
	e.dev->ops->destroy_qp(e.dev, fresh);
	end_close(&e);
}

static void sender(const struct target *t)
{
	struct end e = {0};
	struct ibv_qp *dci;
	struct ibv_wc wc;

	alarm(SENDER_S);
	end_open(&e);
	dci = dci_new(&e);
	for (;;) {
		post(&e, dci, t, IBV_WR_RDMA_WRITE);
		ibv_poll_cq(e.cq, 1, &wc);
		post(&e, dci, t, IBV_WR_SEND);
		if (ibv_poll_cq(e.cq, 1, &wc) == 1 && wc.status)
			_exit(1);
	}
}

/* Forks a sender for each target that it is told, and kills it at the next word:
 * a process of one thread. */
static pid_t forker(int *ask, int *answer)
{
	struct target t;
	int in[2], out[2];
	pid_t pid, forked;

	assert_int_equal(pipe(in), 0);
	assert_int_equal(pipe(out), 0);
	pid = fork();
	if (pid == 0) {
		close(in[1]);
		while (read(in[0], &t, sizeof(t)) == sizeof(t)) {
			forked = fork();
			if (forked == 0) {
				prctl(PR_SET_PDEATHSIG, SIGKILL);
				sender(&t);
			}
			if (read(in[0], &t, 1) != 1 || kill(forked, SIGKILL) ||
			    waitpid(forked, NULL, 0) != forked ||
			    write(out[1], "", 1) != 1)
				_exit(1);
		}
		_exit(0);
	}
	close(in[0]);
	close(out[1]);
	*ask = in[1];
	*answer = out[0];
	return pid;
}

static void recv_again(struct end *e)
{
	struct ibv_sge sge = {(uintptr_t)e->mem, 4096, e->mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;

	ibv_post_srq_recv(e->srq, &wr, &bad);
}

/* Whatever it was doing, what it held comes back: memory can be deregistered,
 * receives are taken by the next. */
static void test_sender_dies(void **state)
{
	const char *rounds = getenv("SKEIN_TEST_ROUNDS");
	unsigned n = rounds ? (unsigned)atoi(rounds) : 12, got;
	struct target me;
	struct end e = {0};
	struct ibv_qp *beside[4];
	int ask, answer;
	pid_t pid = forker(&ask, &answer);
	char byte;

	end_open(&e);
	/* So many that a poll goes by the marks. */
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(e.dev->ops->create_dct(e.dev, e.pd, e.cq,
							e.srq, KEY, ACCESS,
							NULL, &beside[i]),
				 0);
	me = (struct target){e.dct->qp_num, e.mr->rkey, (uintptr_t)e.mem};
	for (unsigned i = 0; i < n; i++) {
		for (unsigned k = 0; k < 8; k++)
			recv_again(&e);
		assert_int_equal(write(ask, &me, sizeof(me)), sizeof(me));
		for (got = 0; got < 50 + 31 * i; got++) {
			assert_int_equal(wait_wc(&e), IBV_WC_SUCCESS);
			recv_again(&e);
		}
		assert_int_equal(write(ask, "", 1), 1);
		assert_int_equal(read(answer, &byte, 1), 1);
	}
	close(ask);
	close(answer);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(e.dev->ops->destroy_qp(e.dev, beside[i]), 0);
	assert_int_equal(e.dev->ops->dereg_mr(e.dev, e.mr), 0);
	e.mr = NULL;
	end_close(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_target_dies),
		cmocka_unit_test(test_sender_dies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
