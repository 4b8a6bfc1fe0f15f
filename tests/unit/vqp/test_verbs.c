/* SPDX-License-Identifier: MIT */
/*
 * A vqp as an ibv_qp: a program of libibverbs' calls alone (verbs_program.c)
 * runs on RC queue pairs of the software device, on vqps of two pools of this
 * process, and on vqps of two clients of a node service, with the same results.
 */
#include "../soft/rig.h"
#include "bed.h"
#include "verbs_program.h"

#include <errno.h>
#include <stdio.h>

#define PORT 1
#define PEER_PORT 2

/* A node of another process, which is killed. */
struct hello {
	char node[72];
	uint64_t addr;
	uint32_t rkey;
};

static char folder[64], path[96];
static pid_t meta_pid, node_pid, peer_pid;

/* --- the other processes ------------------------------------------------ */

static void node_main(int out)
{
	struct skein_node_attr a = {.size = sizeof(a), .meta = meta_addr};
	struct skein_node *n;

	if (skein_node_open(ctx_quiet(), path, &a, &n) ||
	    write(out, "+", 1) != 1)
		_exit(1);
	skein_node_run(n, SKEIN_S(600), NULL);
}

static void peer_main(int out)
{
	struct skein_pool_attr a = {.size = sizeof(a), .meta = meta_addr};
	struct skein_vqp_mem *mem;
	struct skein_pool *pool;
	struct hello h = {0};

	if (skein_pool_open(ctx_quiet(), &a, &pool) ||
	    skein_vqp_mem_new(pool, PROGRAM_MEM, REMOTE, &mem))
		_exit(1);
	snprintf(h.node, sizeof(h.node), "%s", skein_pool_addr(pool));
	h.addr = skein_vqp_raddr(mem);
	h.rkey = skein_vqp_rkey(mem);
	if (write(out, &h, sizeof(h)) != sizeof(h))
		_exit(1);
	for (;;) {
		skein_pool_progress(pool);
		usleep(1000);
	}
}

static int setup(void **state)
{
	(void)state;
	snprintf(folder, sizeof(folder), "/tmp/skein-verbs-XXXXXX");
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/s", folder);
	meta_addr[0] = '\0';
	start(&meta_pid, meta_main, meta_addr, sizeof(meta_addr));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	reap(&peer_pid);
	reap(&node_pid);
	reap(&meta_pid);
	unlink(path);
	rmdir(folder);
	return 0;
}

/* --- the ends ----------------------------------------------------------- */

struct end {
	struct skein_ctx *ctx;
	struct skein_pool *pool;
	struct skein_vqp_mem *mem;
	struct skein_vqp *v;
	struct program_end p;
};

static void end_open(struct end *e, bool node)
{
	struct skein_pool_attr a = {.size = sizeof(a), .meta = meta_addr};

	*e = (struct end){0};
	if (node)
		a.node = path;
	else
		assert_int_equal(skein_ctx_open(NULL, &e->ctx), 0);
	assert_int_equal(skein_pool_open(e->ctx, &a, &e->pool), 0);
	assert_int_equal(
		skein_vqp_mem_new(e->pool, PROGRAM_MEM, REMOTE, &e->mem), 0);
	assert_int_equal(skein_vqp_new(e->pool, &e->v), 0);
	e->p = (struct program_end){.qp = skein_vqp_ibv_qp(e->v),
				    .buf = skein_vqp_mem_addr(e->mem),
				    .lkey = skein_vqp_lkey(e->mem),
				    .raddr = skein_vqp_raddr(e->mem),
				    .rkey = skein_vqp_rkey(e->mem)};
	assert_int_equal(e->p.qp->state, IBV_QPS_RESET);
	assert_ptr_equal(e->p.qp->send_cq, e->p.qp->recv_cq);
}

static void end_close(struct end *e)
{
	skein_pool_close(e->pool);
	if (e->ctx)
		skein_ctx_close(e->ctx);
}

/* The first message of a makes b's vqp; a program of verbs alone would not know
 * how to pop it. */
static void meet(struct end *a, struct end *b)
{
	struct ibv_sge in = {(uintptr_t)b->p.buf, 64, b->p.lkey};
	struct ibv_sge out = {(uintptr_t)a->p.buf, 5, a->p.lkey};
	struct ibv_recv_wr r = {.wr_id = 3, .sg_list = &in, .num_sge = 1};
	struct ibv_send_wr w = {
		.sg_list = &out, .num_sge = 1, .opcode = IBV_WR_SEND};
	uint64_t end = now_ms() + patience_ms(20);
	struct ibv_send_wr *bad_send;
	struct ibv_recv_wr *bad_recv;
	struct skein_vqp_msg m;
	struct ibv_wc wc;
	int n;

	assert_int_equal(ibv_post_send(a->p.qp, &w, &bad_send), ENOTCONN);
	assert_ptr_equal(bad_send, &w);
	assert_int_equal(skein_vqp_bind(b->v, PORT), 0);
	assert_int_equal(b->p.qp->state, IBV_QPS_RTR);
	assert_int_equal(ibv_post_recv(b->p.qp, &r, &bad_recv), 0);
	assert_int_equal(skein_vqp_connect(a->v, skein_pool_addr(b->pool), PORT,
					   patience_ns(60)),
			 0);
	memcpy(a->p.buf, "hello", 5);
	assert_int_equal(ibv_post_send(a->p.qp, &w, &bad_send), 0);
	while (!(n = skein_vqp_pop(b->v, 1, &m)) && now_ms() < end)
		assert_int_equal(ibv_poll_cq(a->p.qp->send_cq, 1, &wc), 0);
	patience_met(n, 20, "the message");
	assert_int_equal(n, 1);
	assert_int_equal(m.len, 5);
	b->p.qp = skein_vqp_ibv_qp(m.from);
}

/* --- the tests ---------------------------------------------------------- */

/* So the program asks of a vqp what an RC queue pair does. */
static void test_rc(void **state)
{
	struct rig_end e[2];
	struct program_end p[2];

	(void)state;
	rig_pair(&e[0], &e[1], NULL);
	for (int i = 0; i < 2; i++)
		p[i] = (struct program_end){.qp = e[i].qp,
					    .buf = e[i].buf,
					    .lkey = e[i].lkey,
					    .raddr = (uintptr_t)e[i].buf,
					    .rkey = e[i].mem->mr->rkey};
	p[0].qp->state = p[1].qp->state = IBV_QPS_RTS; /* as libibverbs does */
	program_work(&p[0], &p[1]);
	program_batches(&p[0], &p[1]);
	program_bad(&p[0], &p[1]);
	program_lkey(&p[0], &p[1], 0);
	rig_unpair(&e[0], &e[1]);
}

static void run_all(bool node)
{
	struct program_end dead = {0};
	struct end a, b, c;
	struct hello far;
	int status;
	pid_t pid;

	start(&peer_pid, peer_main, &far, sizeof(far));
	end_open(&a, node);
	end_open(&b, node);
	end_open(&c, node);
	meet(&a, &b);
	program_work(&a.p, &b.p);
	program_batches(&a.p, &b.p);
	program_bad(&a.p, &b.p);
	assert_int_equal(skein_vqp_connect(c.v, far.node, PEER_PORT,
					   patience_ns(60)),
			 0);
	dead.raddr = far.addr;
	dead.rkey = far.rkey;
	reap(&peer_pid);
	program_dead(&c.p, &dead);
	program_work(&a.p, &b.p);
	pid = fork();
	if (!pid) {
		struct ibv_send_wr w = {.opcode = IBV_WR_RDMA_WRITE}, *bad;
		struct ibv_wc wc;

		_exit(ibv_post_send(a.p.qp, &w, &bad) != EPERM || bad != &w ||
		      ibv_poll_cq(a.p.qp->send_cq, 1, &wc) != -EPERM);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && !WEXITSTATUS(status));
	program_lkey(&a.p, &b.p, node ? EFAULT : 0);
	if (node) {
		struct ibv_send_wr w = {.opcode = IBV_WR_RDMA_WRITE}, *bad;
		struct ibv_wc wc;

		reap(&node_pid);
		assert_int_equal(ibv_post_send(a.p.qp, &w, &bad), EIO);
		assert_ptr_equal(bad, &w);
		assert_int_equal(ibv_poll_cq(a.p.qp->send_cq, 1, &wc), -EIO);
	}
	end_close(&c);
	end_close(&b);
	end_close(&a);
}

static void test_pool(void **state)
{
	(void)state;
	run_all(false);
}

static void test_node(void **state)
{
	char up;

	(void)state;
	start(&node_pid, node_main, &up, 1);
	run_all(true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rc),
		cmocka_unit_test_setup_teardown(test_pool, setup, teardown),
		cmocka_unit_test_setup_teardown(test_node, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
