/* SPDX-License-Identifier: MIT */
/*
 * count_post.c - what one operation through the device costs in instructions.
 *
 *	count_post OP SIZE PART N
 *
 * OP is write, read or send; PART says what is counted: post (the post alone)
 * or all (the post and the poll that takes its completion). The peer is a
 * forked child that only owns memory and receives. Run by instructions.sh
 * under callgrind; prints the number of operations that were counted.
 */
#include "count.h"

#include "dev/mem.h"
#include "env/env.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	DEPTH = 64,
	WARM = 128, /* operations before counting: first ones map memory */
	INLINE_MAX = 220,
	BUF = 1 << 20,
	N_MAX = 1000000,
};

/* One end. */
struct end {
	struct skein_env *env;
	struct dev *dev;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct mem_region *mem;
	struct dev_stats stats;
};

/* What the ends tell each other. */
struct card {
	struct dev_qp_addr addr;
	uint64_t mem;
	uint32_t rkey;
};

struct job {
	enum ibv_wr_opcode opcode;
	uint32_t size;
	bool poll_too;
	uint32_t n;
};

static _Noreturn void die(const char *what, int rc)
{
	fprintf(stderr, "count_post: %s: %s\n", what, strerror(-rc));
	exit(1);
}

static void must(const char *what, int rc)
{
	if (rc)
		die(what, rc);
}

static void end_open(struct end *e)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
		     IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	struct ibv_qp_init_attr attr = {
		.cap = {DEPTH, DEPTH, 1, 1, INLINE_MAX},
		.qp_type = IBV_QPT_RC,
	};
	char err[256] = "";

	must("env", env_real_new(&e->env));
	if (dev_open(e->env, getenv("SKEIN_DEVICE"), -1, err, sizeof(err),
		     &e->dev)) {
		fprintf(stderr, "count_post: %s\n", err);
		exit(1);
	}
	must("alloc_pd", e->dev->ops->alloc_pd(e->dev, &e->pd));
	must("create_cq",
	     e->dev->ops->create_cq(e->dev, 2 * DEPTH, NULL, NULL, &e->cq));
	attr.send_cq = attr.recv_cq = e->cq;
	must("create_qp",
	     e->dev->ops->create_qp(
		     e->dev, e->pd, &attr,
		     e->dev->caps.single_threaded ? DEV_QP_SINGLE_THREADED : 0,
		     &e->qp));
	must("INIT", dev_qp_init(e->dev, e->qp, access));
	must("memory",
	     mem_region_new(e->dev, e->pd, "count", BUF, access, 1, &e->mem));
}

static void end_connect(struct end *e, int fd, struct card *peer)
{
	struct card mine = {.mem = (uintptr_t)e->mem->addr,
			    .rkey = e->mem->mr->rkey};

	dev_qp_addr(e->dev, e->qp, 1, &mine.addr);
	if (write(fd, &mine, sizeof(mine)) != sizeof(mine) ||
	    read(fd, peer, sizeof(*peer)) != sizeof(*peer))
		die("exchange", -errno);
	must("RTR", dev_qp_rtr(e->dev, e->qp, &peer->addr, NULL));
	must("RTS", dev_qp_rts(e->dev, e->qp, 1, &peer->addr, NULL));
}

static void post_receive(struct end *e)
{
	struct ibv_sge sge = {(uintptr_t)e->mem->addr, BUF, e->mem->mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;

	must("post_recv", dev_post_recv(&e->stats, e->qp, &wr, &bad));
}

/* Takes messages in and gives their room back until the other end hangs up. */
static void serve(int fd)
{
	struct end e = {0};
	struct card peer;
	struct ibv_wc wc;
	char byte;

	end_open(&e);
	end_connect(&e, fd, &peer);
	for (int i = 0; i < DEPTH; i++)
		post_receive(&e);
	if (write(fd, "r", 1) != 1)
		die("ready", -errno);
	while (recv(fd, &byte, 1, MSG_DONTWAIT) != 0)
		while (dev_poll_cq(&e.stats, e.cq, 1, &wc) > 0)
			post_receive(&e);
}

static void take_one(struct end *e)
{
	struct ibv_wc wc;
	int n;

	do
		n = dev_poll_cq(&e->stats, e->cq, 1, &wc);
	while (n == 0);
	if (n < 0 || wc.status != IBV_WC_SUCCESS)
		die("completion", -EIO);
}

static void one(struct end *e, struct ibv_send_wr *wr, bool poll_too)
{
	struct ibv_send_wr *bad;
	int rc;

	COUNT_ON();
	rc = dev_post_send(&e->stats, e->qp, wr, &bad);
	if (poll_too)
		take_one(e);
	COUNT_OFF();
	must("post_send", rc);
	if (!poll_too)
		take_one(e);
}

static void measure(const struct job *job, int fd)
{
	struct end e = {0};
	struct card peer;
	struct ibv_sge sge;
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = job->opcode,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	char byte;

	end_open(&e);
	end_connect(&e, fd, &peer);
	if (read(fd, &byte, 1) != 1)
		die("the peer's ready", -errno);
	sge = (struct ibv_sge){(uintptr_t)e.mem->addr, job->size,
			       e.mem->mr->lkey};
	wr.wr.rdma.remote_addr = peer.mem;
	wr.wr.rdma.rkey = peer.rkey;
	if (job->opcode != IBV_WR_RDMA_READ && job->size <= INLINE_MAX)
		wr.send_flags |= IBV_SEND_INLINE;
	for (int i = 0; i < WARM; i++) {
		must("post_send", dev_post_send(&e.stats, e.qp, &wr, &bad));
		take_one(&e);
	}
	for (uint32_t i = 0; i < job->n; i++)
		one(&e, &wr, job->poll_too);
}

static bool parse(int argc, char **argv, struct job *job)
{
	if (argc != 5)
		return false;
	job->opcode = !strcmp(argv[1], "read")	 ? IBV_WR_RDMA_READ
		      : !strcmp(argv[1], "send") ? IBV_WR_SEND
						 : IBV_WR_RDMA_WRITE;
	job->size = (uint32_t)strtoul(argv[2], NULL, 10);
	job->poll_too = !strcmp(argv[3], "all");
	job->n = (uint32_t)strtoul(argv[4], NULL, 10);
	return job->size >= 1 && job->size <= BUF && job->n >= 1 &&
	       job->n <= N_MAX;
}

int main(int argc, char **argv)
{
	struct job job;
	int sv[2], status;
	pid_t pid;

	if (!parse(argc, argv, &job)) {
		fputs("usage: count_post write|read|send SIZE post|all N\n",
		      stderr);
		return 2;
	}
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv))
		die("socketpair", -errno);
	pid = fork();
	if (pid < 0)
		die("fork", -errno);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(sv[0]);
		serve(sv[1]);
		_exit(0);
	}
	close(sv[1]);
	measure(&job, sv[0]);
	close(sv[0]);
	if (waitpid(pid, &status, 0) < 0 || status)
		die("the peer failed", -ECHILD);
	printf("%u\n", job.n);
	return 0;
}
