/* SPDX-License-Identifier: MIT */
/*
 * Pools in real processes: a meta server, nodes that answer, a client. Messages,
 * one-sided operations, every bad input, a node that is killed, a meta server
 * that is killed and comes back.
 */
#include "bed.h"

#include "conn/ctx.h"
#include "dev/states.h"
#include "vqp/pool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define PORT 1
#define MEM 8192u

/* What a node says of itself. */
struct hello {
	char node[72];
	uint64_t addr;
	uint32_t rkey;
};

static pid_t meta_pid, node_pid[2];
static struct hello node[2];

/* --- the other processes ------------------------------------------------ */

static void meta_start(void)
{
	start(&meta_pid, meta_main, meta_addr, sizeof(meta_addr));
}

static void pool_open(struct skein_ctx **ctx, struct skein_pool **pool)
{
	struct skein_pool_attr a = {.size = sizeof(a), .meta = meta_addr};

	assert_int_equal(skein_ctx_open(NULL, ctx), 0);
	assert_int_equal(skein_pool_open(*ctx, &a, pool), 0);
}

/* In a node's memory: how many vqps of others it has heard to be freed. */
static uint64_t *ends_of(void *at)
{
	return (uint64_t *)at + MEM / 8 - 1;
}

/* Answers each message with the same bytes. */
static void node_main(int out)
{
	struct skein_vqp_mem *rx, *mem;
	struct skein_pool *pool;
	struct ibv_send_wr *bad;
	struct skein_vqp_msg m;
	struct skein_ctx *ctx;
	struct skein_vqp *v;
	struct hello h = {0};

	pool_open(&ctx, &pool);
	assert_int_equal(skein_vqp_mem_new(pool, 64 * 256, 0, &rx), 0);
	assert_int_equal(skein_vqp_mem_new(pool, MEM, REMOTE, &mem), 0);
	assert_int_equal(skein_vqp_new(pool, &v), 0);
	assert_int_equal(skein_vqp_bind(v, PORT), 0);
	for (uint64_t i = 0; i < 64; i++)
		recv_post(v, rx, i);
	snprintf(h.node, sizeof(h.node), "%s", skein_pool_addr(pool));
	h.addr = skein_vqp_raddr(mem);
	h.rkey = skein_vqp_rkey(mem);
	if (write(out, &h, sizeof(h)) != sizeof(h))
		_exit(1);
	for (;;) {
		struct ibv_sge sge;
		struct ibv_send_wr wr = {.sg_list = &sge,
					 .num_sge = 1,
					 .opcode = IBV_WR_SEND,
					 .send_flags = IBV_SEND_INLINE};

		if (skein_vqp_pop(v, 1, &m) != 1)
			continue;
		if (m.status == -ECONNRESET) {
			++*ends_of(skein_vqp_mem_addr(mem));
			skein_vqp_free(m.from);
			recv_post(v, rx, m.wr_id);
			continue;
		}
		sge = (struct ibv_sge){(uintptr_t)skein_vqp_mem_addr(rx) +
					       m.wr_id * 256,
				       m.len, 0};
		skein_vqp_post_send(m.from, &wr, &bad);
		recv_post(v, rx, m.wr_id);
	}
}

static void node_start(unsigned i)
{
	start(&node_pid[i], node_main, &node[i], sizeof(node[i]));
}

static int setup(void **state)
{
	meta_addr[0] = '\0';
	meta_start();
	node_start(0);
	node_start(1);
	return 0;
}

static int teardown(void **state)
{
	reap(&node_pid[0]);
	reap(&node_pid[1]);
	reap(&meta_pid);
	return 0;
}

/* --- the client --------------------------------------------------------- */

static struct skein_ctx *ctx;
static struct skein_pool *pool;
static struct skein_pool *far; /* of this process too; or NULL */
static struct skein_vqp_mem *mem;

static void client_open(void)
{
	pool_open(&ctx, &pool);
	assert_int_equal(skein_vqp_mem_new(pool, MEM, 0, &mem), 0);
}

static void client_close(void)
{
	skein_pool_close(pool);
	skein_ctx_close(ctx);
}

static struct skein_vqp *connect_to(unsigned i)
{
	struct skein_vqp *v;

	assert_int_equal(skein_vqp_new(pool, &v), 0);
	assert_int_equal(
		skein_vqp_connect(v, node[i].node, PORT, patience_ns(60)), 0);
	return v;
}

static int post(struct skein_vqp *v, unsigned i, enum ibv_wr_opcode op,
		uint32_t rkey, uint32_t lkey)
{
	struct ibv_sge sge = {(uintptr_t)skein_vqp_mem_addr(mem), 8, lkey};
	struct ibv_send_wr wr = {.wr_id = op,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = op,
				 .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;

	if (op >= IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = node[i].addr;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = 5;
	} else {
		wr.wr.rdma.remote_addr = node[i].addr;
		wr.wr.rdma.rkey = rkey;
	}
	return skein_vqp_post_send(v, &wr, &bad);
}

static enum ibv_wc_status next(struct skein_vqp *v, enum ibv_wc_opcode *op)
{
	uint64_t end = now_ms() + patience_ms(60);
	struct ibv_wc wc = {0};
	int n = 0;

	while (!n && now_ms() < end) {
		n = skein_vqp_poll(v, 1, &wc);
		if (far)
			skein_pool_progress(far);
	}
	patience_met(n, 60, "a completion");
	assert_int_equal(n, 1);
	if (op)
		*op = wc.opcode;
	return wc.status;
}

static enum ibv_wc_status result(struct skein_vqp *v, unsigned i,
				 enum ibv_wr_opcode op)
{
	assert_int_equal(post(v, i, op, node[i].rkey, skein_vqp_lkey(mem)), 0);
	return next(v, NULL);
}

/* The first WRITE that fails, to node 0, which was killed: until the device is
 * told of the death WRITEs go to memory that it still has mapped. */
static enum ibv_wc_status result_dead(struct skein_vqp *v)
{
	uint64_t end = now_ms() + patience_ms(30);
	enum ibv_wc_status status;

	do
		status = result(v, 0, IBV_WR_RDMA_WRITE);
	while (status == IBV_WC_SUCCESS && now_ms() < end);
	patience_met(status != IBV_WC_SUCCESS, 30, "the death of the node");
	return status;
}

static void echo(struct skein_vqp *v, const char *text)
{
	char *at = skein_vqp_mem_addr(mem);
	struct ibv_sge sge = {(uintptr_t)at, (uint32_t)strlen(text) + 1,
			      skein_vqp_lkey(mem)};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED};
	enum ibv_wc_opcode op[2];
	struct ibv_send_wr *bad;

	memcpy(at, text, strlen(text) + 1);
	recv_post(v, mem, 4);
	memset(at + 4 * 256, 0, 256);
	assert_int_equal(skein_vqp_post_send(v, &wr, &bad), 0);
	/* in any order: a completion may be late */
	assert_int_equal(next(v, &op[0]), IBV_WC_SUCCESS);
	assert_int_equal(next(v, &op[1]), IBV_WC_SUCCESS);
	assert_true(op[0] == IBV_WC_SEND
			    ? op[1] == IBV_WC_RECV
			    : op[0] == IBV_WC_RECV && op[1] == IBV_WC_SEND);
	assert_string_equal(at + 4 * 256, text);
}

static void test_work(void **state)
{
	uint64_t *word;
	struct skein_pool_stats st = {.size = sizeof(st)};
	struct skein_vqp *v, *w, *u;

	client_open();
	word = skein_vqp_mem_addr(mem);
	v = connect_to(0);
	w = connect_to(0);
	u = connect_to(1);
	*word = 37;
	assert_int_equal(result(v, 0, IBV_WR_RDMA_WRITE), IBV_WC_SUCCESS);
	*word = 0;
	assert_int_equal(result(w, 0, IBV_WR_RDMA_READ), IBV_WC_SUCCESS);
	assert_int_equal(*word, 37);
	assert_int_equal(result(v, 0, IBV_WR_ATOMIC_FETCH_AND_ADD),
			 IBV_WC_SUCCESS);
	assert_int_equal(*word, 37);
	assert_int_equal(result(v, 0, IBV_WR_RDMA_READ), IBV_WC_SUCCESS);
	assert_int_equal(*word, 42);
	for (int i = 0; i < 20; i++) {
		echo(v, "to the first");
		echo(u, "to the second");
		echo(w, "to the first, once more");
	}
	skein_pool_get_stats(pool, &st);
	assert_int_equal(st.lookups, 2);
	assert_int_equal(st.cache_hits, 1);
	assert_int_equal(st.garbage, 0);
	assert_int_equal(st.dcis_replaced, 0);
	client_close();
}

/* What is wrong with one vqp is nothing to another of the same node. */
static void test_wrong(void **state)
{
	static const char *const wrong[] = {"127.0.0.1", "127.0.0.1:70000",
					    "127.0.0.1:+9", "::1:9", ":9"};
	struct skein_pool_stats st = {.size = sizeof(st)};
	uint32_t lkey;
	struct skein_vqp *v, *w, *bound;
	struct ibv_sge sge = {0};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 9}, *bad;
	int status;
	pid_t pid;

	client_open();
	lkey = skein_vqp_lkey(mem);
	w = connect_to(0);
	v = connect_to(0);
	assert_int_equal(skein_vqp_post_send(v, &wr, &bad), -EINVAL);
	assert_ptr_equal(bad, &wr);
	assert_int_equal(skein_vqp_connect(v, node[0].node, PORT, 1), -EISCONN);
	assert_int_equal(post(v, 0, IBV_WR_RDMA_WRITE, node[0].rkey, lkey + 1),
			 0);
	assert_int_equal(post(v, 0, IBV_WR_RDMA_WRITE, node[0].rkey, lkey), 0);
	assert_int_equal(next(v, NULL), IBV_WC_LOC_PROT_ERR);
	assert_int_equal(next(v, NULL), IBV_WC_WR_FLUSH_ERR);
	skein_vqp_free(v);
	v = connect_to(0);
	assert_int_equal(post(w, 0, IBV_WR_RDMA_WRITE, node[0].rkey, lkey), 0);
	assert_int_equal(post(v, 0, IBV_WR_RDMA_WRITE, node[0].rkey + 1, lkey),
			 0);
	assert_int_equal(post(w, 0, IBV_WR_RDMA_READ, node[0].rkey, lkey), 0);
	assert_int_equal(next(v, NULL), IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(next(w, NULL), IBV_WC_SUCCESS);
	assert_int_equal(next(w, NULL), IBV_WC_SUCCESS);
	echo(w, "still here");
	skein_pool_get_stats(pool, &st);
	assert_int_equal(st.dcis_replaced, 0);
	/* nobody of that name; no name at all */
	skein_vqp_free(v);
	assert_int_equal(skein_vqp_new(pool, &v), 0);
	assert_int_equal(connect_nobody(v, "127.0.0.1:9", PORT), -EHOSTUNREACH);
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(skein_vqp_connect(v, wrong[i], PORT, 1),
				 -EINVAL);
	assert_int_equal(skein_vqp_post_send(v, &wr, &bad), -ENOTCONN);
	assert_int_equal(skein_vqp_new(pool, &bound), 0);
	assert_int_equal(skein_vqp_bind(bound, 3), 0);
	assert_int_equal(skein_vqp_bind(v, 3), -EADDRINUSE);
	/* a child has none of it */
	pid = fork();
	if (!pid)
		_exit(skein_pool_progress(pool) != -SKEIN_EFORKED ||
		      skein_vqp_new(pool, &v) != -SKEIN_EFORKED);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && !WEXITSTATUS(status));
	client_close();
}

/* A region that its node gives up: requests go through, or are refused by the
 * pool that posts them. */
static void test_region_ends(void **state)
{
	struct skein_pool_stats st = {.size = sizeof(st)};
	struct skein_vqp_mem *m, *again;
	enum ibv_wc_status status;
	struct skein_ctx *c;
	struct hello was = node[0];
	uint64_t end;
	struct skein_vqp *v;

	client_open();
	pool_open(&c, &far);
	assert_int_equal(skein_vqp_mem_new(far, 4096, 0, &m), 0);
	assert_int_equal(skein_vqp_rkey(m), 0);
	skein_vqp_mem_free(m);
	assert_int_equal(skein_vqp_mem_new(far, 4096, REMOTE, &m), 0);
	snprintf(node[0].node, sizeof(node[0].node), "%s",
		 skein_pool_addr(far));
	node[0].addr = (uintptr_t)skein_vqp_mem_addr(m);
	node[0].rkey = skein_vqp_rkey(m);
	v = connect_to(0);
	assert_int_equal(result(v, 0, IBV_WR_RDMA_WRITE), IBV_WC_SUCCESS);
	skein_vqp_mem_free(m);
	/* its place is another's at once */
	assert_int_equal(skein_vqp_mem_new(far, 4096, REMOTE, &again), 0);
	assert_int_not_equal(skein_vqp_rkey(again), node[0].rkey);
	end = now_ms() + patience_ms(20);
	do {
		status = result(v, 0, IBV_WR_RDMA_WRITE);
		skein_pool_progress(far);
	} while (status == IBV_WC_SUCCESS && now_ms() < end);
	patience_met(status != IBV_WC_SUCCESS, 20, "the end of the region");
	assert_int_equal(status, IBV_WC_REM_ACCESS_ERR);
	skein_pool_get_stats(pool, &st);
	assert_int_equal(st.dcis_replaced, 0);
	assert_true(st.region_reads >= 2);
	skein_pool_close(far);
	far = NULL;
	skein_ctx_close(c);
	node[0] = was;
	client_close();
}

/* A node without DC that stands still while it is met is waited for, also when it
 * has answered none of the questions for one queue pair. */
static void test_node_late(void **state)
{
	struct patience p = {0};
	struct vqp_engine *e;
	struct skein_vqp *v;
	struct ibv_wc wc;
	int st;

	client_open();
	if (ctx->dev->caps.dc) {
		client_close();
		skip();
	}
	e = &pool_of(pool)->e;
	kill(node_pid[0], SIGSTOP);
	assert_int_equal(waitpid(node_pid[0], &st, WUNTRACED), node_pid[0]);
	v = connect_to(0);
	assert_int_equal(post(v, 0, IBV_WR_RDMA_WRITE, node[0].rkey,
			      skein_vqp_lkey(mem)),
			 0);
	while (e->rc[0].gen < 2 &&
	       !patience_ends(&p, e->rc[0].tries, now_ms() * 1000000, 30))
		assert_int_equal(skein_vqp_poll(v, 1, &wc), 0);
	patience_met(e->rc[0].gen >= 2, 30, "questions for a second one");
	kill(node_pid[0], SIGCONT);
	assert_int_equal(next(v, NULL), IBV_WC_SUCCESS);
	echo(v, "late");
	client_close();
}

static void test_node_dies(void **state)
{
	struct skein_vqp *v, *w;
	enum ibv_wc_status status;
	struct hello was;

	client_open();
	v = connect_to(0);
	w = connect_to(1);
	echo(v, "alive");
	echo(w, "alive"); /* met: no first request waits for a busy machine */
	reap(&node_pid[0]);
	status = result_dead(v);
	assert_int_equal(status, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(result(v, 0, IBV_WR_RDMA_WRITE), IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(result(w, 1, IBV_WR_RDMA_WRITE), IBV_WC_SUCCESS);
	for (int i = 0; i < 20; i++)
		echo(w, "still alive");
	/* another node is met as ever */
	was = node[0];
	node_start(0);
	assert_string_not_equal(was.node, node[0].node);
	skein_vqp_free(v);
	v = connect_to(0);
	echo(v, "a new one");
	client_close();
}

/* Queue pairs that break while nothing is posted on them: the next request, which
 * is not posted twice, comes through. */
static void test_idle_broken(void **state)
{
	struct skein_vqp *v;
	struct pool *p;
	unsigned i;

	client_open();
	p = pool_of(pool);
	v = connect_to(0);
	assert_int_equal(result(v, 0, IBV_WR_RDMA_WRITE), IBV_WC_SUCCESS);
	for (i = 0; i < p->n_dcis; i++)
		assert_int_equal(dev_qp_err(ctx->dev, p->dci[i]), 0);
	for (i = 0; i < p->n_rcs; i++)
		if (p->rc[i])
			assert_int_equal(dev_qp_err(ctx->dev, p->rc[i]), 0);
	assert_int_equal(result(v, 0, IBV_WR_RDMA_WRITE), IBV_WC_SUCCESS);
	skein_vqp_free(v);
	client_close();
}

/* Many vqps are freed, or not even that, and the pool is closed: the other end hears
 * of each. */
static void test_close_tells(void **state)
{
	const unsigned n = 300;
	struct skein_vqp *v[300];
	struct patience p = {0};
	uint64_t heard = 0;

	client_open();
	for (unsigned i = 0; i < n; i++) {
		v[i] = connect_to(0);
		echo(v[i], "hello");
	}
	for (unsigned i = 0; i < n / 2; i++)
		skein_vqp_free(v[i]);
	client_close();
	client_open();
	v[0] = connect_to(0);
	node[0].addr += MEM - 8;
	while (heard < n && !patience_ends(&p, heard, now_ms() * 1000000, 30)) {
		assert_int_equal(result(v[0], 0, IBV_WR_RDMA_READ), 0);
		heard = *(uint64_t *)skein_vqp_mem_addr(mem);
	}
	assert_int_equal(heard, n);
	client_close();
}

static void write_many(struct skein_vqp *v, unsigned n)
{
	unsigned posted = 0, done = 0;
	struct patience p = {0};
	struct ibv_wc wc[16];

	while (done < n && !patience_ends(&p, done, now_ms() * 1000000, 30)) {
		while (posted < n && !post(v, 0, IBV_WR_RDMA_WRITE,
					   node[0].rkey, skein_vqp_lkey(mem)))
			posted++;
		for (int k = skein_vqp_poll(v, 16, wc); k > 0; k--, done++)
			assert_int_equal(wc[k - 1].status, IBV_WC_SUCCESS);
	}
	patience_met(done >= n, 30, "a further completion");
	assert_int_equal(done, n);
}

/* Requests in a tenth of a second that a busy machine carries out, too: at what
 * rate a peer counts as busy is told by test_engine.c. */
#define FEW 8

/* A node with many requests gets an RC queue pair; its vqps go over with
 * messages and WRITEs under way, and nothing is lost. */
static void test_busy(void **state)
{
	struct skein_pool_stats st = {.size = sizeof(st)};
	uint64_t end = now_ms() + patience_ms(60);
	struct skein_vqp *v, *w;
	uint64_t *word;

	client_open();
	word = skein_vqp_mem_addr(mem);
	pool_of(pool)->e.conf.rc_busy = FEW;
	v = connect_to(0);
	w = connect_to(0);
	if (!ctx->dev->caps.dc) {
		client_close();
		skip();
	}
	echo(v, "by DC");
	while (st.transfers < 2 && now_ms() < end) {
		*word = now_ms();
		write_many(v, 200);
		echo(v, "before, or after");
		write_many(w, 3);
		skein_pool_get_stats(pool, &st);
	}
	patience_met(st.transfers >= 2, 60, "both vqps on the RC queue pair");
	assert_int_equal(st.rcs_made, 1);
	assert_int_equal(st.rcs_busy, 1);
	assert_int_equal(st.transfers, 2);
	*word = 4711;
	write_many(v, 1);
	*word = 0;
	assert_int_equal(result(v, 0, IBV_WR_RDMA_READ), IBV_WC_SUCCESS);
	assert_int_equal(*word, 4711);
	for (int i = 0; i < 20; i++) {
		echo(v, "by RC");
		echo(w, "by RC too");
	}
	/* a vqp made now begins there */
	w = connect_to(0);
	echo(w, "from the start");
	skein_pool_get_stats(pool, &st);
	assert_int_equal(st.transfers, 2);
	assert_int_equal(st.garbage, 0);
	assert_int_equal(st.dcis_replaced, 0);
	reap(&node_pid[0]);
	assert_int_equal(result_dead(v), IBV_WC_RETRY_EXC_ERR);
	skein_pool_get_stats(pool, &st);
	assert_int_equal(st.rcs_failed, 1);
	w = connect_to(1);
	echo(w, "another node");
	client_close();
}

/* The queue pair of the datagrams fails: RC queue pairs are made all the same. */
static void test_datagrams_fail(void **state)
{
	struct skein_pool_stats st = {.size = sizeof(st)};
	uint64_t end = now_ms() + patience_ms(60);
	struct skein_vqp *v;

	client_open();
	pool_of(pool)->e.conf.rc_busy = FEW;
	v = connect_to(0);
	assert_int_equal(dev_qp_err(ctx->dev, pool_of(pool)->ud), 0);
	while (!st.rcs_made && now_ms() < end) {
		write_many(v, 300);
		skein_pool_get_stats(pool, &st);
	}
	patience_met(st.rcs_made, 60, "an RC queue pair");
	assert_int_equal(st.rcs_made, 1);
	echo(v, "by RC");
	client_close();
}

/* --- long messages ------------------------------------------------------ */

#define LONG_MAX 300000u
#define LONG_NODE 4711u /* this process's second pool */
#define LONG_ADDR "127.0.0.1:4711"

static struct skein_ctx *far_ctx;
static struct skein_vqp_mem *out, *in;
static struct skein_vqp *ear;

static void ear_open(void)
{
	struct skein_pool_attr a = {
		.size = sizeof(a), .meta = meta_addr, .node_port = LONG_NODE};

	assert_int_equal(skein_ctx_open(NULL, &far_ctx), 0);
	assert_int_equal(skein_pool_open(far_ctx, &a, &far), 0);
	assert_int_equal(skein_vqp_mem_new(far, LONG_MAX, 0, &in), 0);
	assert_int_equal(skein_vqp_new(far, &ear), 0);
	assert_int_equal(skein_vqp_bind(ear, PORT), 0);
}

static void ear_close(void)
{
	skein_pool_close(far);
	far = NULL;
	skein_ctx_close(far_ctx);
}

static void mouth_open(void)
{
	client_open();
	assert_int_equal(skein_vqp_mem_new(pool, LONG_MAX, 0, &out), 0);
}

static struct skein_vqp *mouth_connect(const char *addr)
{
	struct skein_vqp *v;

	assert_int_equal(skein_vqp_new(pool, &v), 0);
	assert_int_equal(skein_vqp_connect(v, addr, PORT, patience_ns(60)), 0);
	return v;
}

static void long_post(struct skein_vqp *v, uint32_t len)
{
	uint8_t *at = skein_vqp_mem_addr(out);
	struct ibv_sge sge = {(uintptr_t)at, len, skein_vqp_lkey(out)};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;

	for (uint32_t i = 0; i < len; i++)
		at[i] = (uint8_t)(i + len + (i >> 8));
	assert_int_equal(skein_vqp_post_send(v, &wr, &bad), 0);
}

static void ear_recv(uint64_t id)
{
	struct ibv_sge sge = {(uintptr_t)skein_vqp_mem_addr(in), LONG_MAX,
			      skein_vqp_lkey(in)};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1};
	struct ibv_recv_wr *bad;

	assert_int_equal(skein_vqp_post_recv(ear, &wr, &bad), 0);
}

/* A message has come, and waits for a receive. */
static void ear_waits(void)
{
	struct vqp *v = container_of(ear, struct pool_vqp, base)->v;
	uint64_t end = now_ms() + patience_ms(60);

	while (list_empty(&v->messages) && now_ms() < end) {
		skein_pool_progress(far);
		if (pool)
			skein_pool_progress(pool);
	}
	patience_met(!list_empty(&v->messages), 60, "a message");
}

static struct skein_vqp_msg ear_pop(void)
{
	uint64_t end = now_ms() + patience_ms(60);
	struct skein_vqp_msg m = {0};
	int n = 0;

	while (!n && now_ms() < end) {
		n = skein_vqp_pop(ear, 1, &m);
		if (pool)
			skein_pool_progress(pool);
	}
	patience_met(n, 60, "the long message");
	assert_int_equal(n, 1);
	return m;
}

/* Complete only when the receiver has it; its bytes; there and back. */
static void test_long(void **state)
{
	static const uint32_t len[] = {SKEIN_VQP_COPY_MAX,
				       SKEIN_VQP_COPY_MAX + 1, 70000, LONG_MAX};
	struct skein_pool_stats st = {.size = sizeof(st)};
	struct skein_vqp_msg m;
	struct skein_vqp *v;
	struct ibv_wc wc;

	ear_open();
	mouth_open();
	v = mouth_connect(LONG_ADDR);
	for (unsigned i = 0; i < 4; i++) {
		long_post(v, len[i]);
		ear_waits();
		for (unsigned k = 0; k < 100 && i; k++) {
			skein_pool_progress(far);
			assert_int_equal(skein_vqp_poll(v, 1, &wc), 0);
		}
		ear_recv(i);
		m = ear_pop();
		assert_int_equal(m.status, 0);
		assert_int_equal(m.wr_id, i);
		assert_int_equal(m.len, len[i]);
		assert_memory_equal(skein_vqp_mem_addr(in),
				    skein_vqp_mem_addr(out), len[i]);
		assert_int_equal(next(v, NULL), IBV_WC_SUCCESS);
		skein_vqp_free(m.from);
	}
	skein_pool_get_stats(pool, &st);
	assert_int_equal(st.announced, 3);
	skein_pool_get_stats(far, &st);
	assert_int_equal(st.fetched, 3);
	assert_int_equal(st.garbage + st.dropped + st.refusals, 0);
	client_close();
	ear_close();
}

/* Receives that are too short; another vqp of their node goes on. */
static void test_long_refused(void **state)
{
	struct skein_vqp *v, *w;

	mouth_open();
	v = mouth_connect(node[0].node);
	w = connect_to(0);
	long_post(v, 5000);
	assert_int_equal(next(v, NULL), IBV_WC_REM_OP_ERR);
	echo(w, "goes on");
	client_close();
}

static void mute_main(int to)
{
	struct hello hello = {0};

	ear_open();
	snprintf(hello.node, sizeof(hello.node), "%s", skein_pool_addr(far));
	if (write(to, &hello, sizeof(hello)) != sizeof(hello))
		_exit(1);
	for (;;)
		skein_pool_progress(far);
}

/* The receiver dies before it has posted a receive. */
static void test_long_receiver_dies(void **state)
{
	struct hello mute;
	struct skein_vqp *v, *w;
	pid_t pid;

	start(&pid, mute_main, &mute, sizeof(mute));
	mouth_open();
	v = mouth_connect(mute.node);
	w = connect_to(0);
	long_post(v, LONG_MAX);
	echo(w, "it waits");
	reap(&pid);
	assert_int_equal(next(v, NULL), IBV_WC_RETRY_EXC_ERR);
	echo(w, "it ended");
	client_close();
}

/* The sender dies before the receiver READs: its receive comes back. */
static void test_long_sender_dies(void **state)
{
	struct skein_vqp_msg m;
	struct skein_vqp *v;
	pid_t pid = fork();

	if (!pid) {
		mouth_open();
		v = mouth_connect(LONG_ADDR);
		long_post(v, LONG_MAX);
		for (;;)
			skein_pool_progress(pool);
	}
	pool = NULL; /* this process has none */
	ear_open();
	ear_waits();
	reap(&pid);
	ear_recv(5);
	m = ear_pop();
	assert_int_equal(m.wr_id, 5);
	assert_int_equal(m.status, -ECONNABORTED);
	ear_close();
}

static void hello_main(void)
{
	struct skein_vqp *v;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	client_open();
	v = mouth_connect(LONG_ADDR);
	assert_int_equal(post(v, 0, IBV_WR_SEND, 0, skein_vqp_lkey(mem)), 0);
	assert_int_equal(next(v, NULL), IBV_WC_SUCCESS);
	for (;;)
		pause(); /* it calls nothing */
}

/* Until the pool has asked n times more whether a peer lives. No message comes. */
static void asks_wait(uint32_t n)
{
	struct vqp_engine *e = &pool_of(far)->e;
	uint32_t from = e->ask;
	struct patience p = {0};
	struct skein_vqp_msg m;

	while (e->ask - from < n &&
	       !patience_ends(&p, e->ask, now_ms() * 1000000, 60))
		assert_int_equal(skein_vqp_pop(ear, 1, &m), 0);
	patience_met(e->ask - from >= n, 60, "a question");
}

/* A sender that was never answered is stopped: its vqp stays. It is killed: the
 * receiver hears so. */
static void test_sender_dies(void **state)
{
	struct skein_vqp_msg m, end;
	pid_t pid = fork();

	if (!pid)
		hello_main();
	pool = NULL; /* this process has none */
	ear_open();
	ear_recv(1);
	ear_recv(2);
	m = ear_pop();
	assert_int_equal(m.status, 0);
	if (pool_of(far)->n_dcis)
		asks_wait(2);
	kill(pid, SIGSTOP);
	if (pool_of(far)->n_dcis)
		asks_wait(3);
	reap(&pid);
	end = ear_pop();
	assert_int_equal(end.status, -ECONNRESET);
	assert_ptr_equal(end.from, m.from);
	skein_vqp_free(m.from);
	assert_int_equal(pool_of(far)->e.n_children, 0);
	ear_close();
}

/* Lines of the log that say why a connect has failed. */
static unsigned said_nobody, said_no_meta;

static void log_count(void *arg, enum skein_log_level level, const char *line)
{
	(void)arg, (void)level;
	said_nobody += strstr(line, ":9: no meta server has") != NULL;
	said_no_meta += strstr(line, "no meta server answers") != NULL &&
			strstr(line, meta_addr) != NULL;
}

/* The last error of the log. */
static char last_error[512];

static void log_keep(void *arg, enum skein_log_level level, const char *line)
{
	if (level == SKEIN_LOG_ERROR)
		snprintf(last_error, sizeof(last_error), "%s", line);
}

static void says(const char *text)
{
	if (!strstr(last_error, text))
		fail_msg("\"%s\" does not say \"%s\"", last_error, text);
	last_error[0] = '\0';
}

/* A call that cannot work says what would. */
static void test_says(void **state)
{
	static const char *const no_nodes[] = {"garbage", "127.0.0.1", ":9",
					       "127.0.0.1:0", NULL};
	struct skein_ctx_attr ca = {.size = sizeof(ca), .log = log_keep};
	struct skein_pool_attr a = {.size = sizeof(a),
				    .meta = "127.0.0.1:1",
				    .timeout_ns = SKEIN_MS(50)};
	struct skein_vqp *v;
	char name[80];

	assert_int_equal(skein_ctx_open(&ca, &ctx), 0);
	assert_true(skein_pool_open(ctx, &a, &pool) < 0);
	says("start it there (skein meta --listen)");
	skein_ctx_close(ctx);
	a.meta = meta_addr;
	a.timeout_ns = 0;
	assert_int_equal(skein_ctx_open(&ca, &ctx), 0);
	assert_int_equal(skein_pool_open(ctx, &a, &pool), 0);
	assert_int_equal(skein_vqp_mem_new(pool, MEM, 0, &mem), 0);
	assert_int_equal(skein_vqp_new(pool, &v), 0);
	for (unsigned i = 0; i < 5; i++) {
		assert_int_equal(skein_vqp_connect(v, no_nodes[i], PORT, 1),
				 -EINVAL);
		says("is no address of a node: write HOST:NODEPORT");
	}
	memset(name, 'a', 70); /* too long: nobody is asked for it */
	memcpy(name + 70, ":9", 3);
	assert_int_equal(skein_vqp_connect(v, name, PORT, 1), -EINVAL);
	says("cannot find host aaa");
	assert_int_equal(skein_vqp_connect(v, node[0].node, 0, 1), -EINVAL);
	says("bound to port 1 to 65535");
	client_close();
}

/* No request lives longer than memory is kept for it (region.h). */
static void test_retries_end(void **state)
{
	static const uint64_t ns[] = {0, 1, SKEIN_MS(20), SKEIN_MS(399),
				      REGION_RETRY_NS};

	for (unsigned i = 0; i < 5; i++) {
		struct skein_pool_attr a = {.size = sizeof(a),
					    .meta = meta_addr,
					    .retry_ns = ns[i]};
		uint64_t each;

		assert_int_equal(skein_ctx_open(NULL, &ctx), 0);
		assert_int_equal(skein_pool_open(ctx, &a, &pool), 0);
		each = 4096ull << pool_of(pool)->opts.timeout;
		assert_true((pool_of(pool)->opts.retry_cnt + 1u) * each <=
			    REGION_RETRY_NS);
		/* 7 is for ever */
		assert_in_range(pool_of(pool)->opts.rnr_retry, 1, 6);
		assert_in_range(
			pool_of(pool)->opts.rnr_retry *
				dev_rnr_ns(pool_of(pool)->opts.min_rnr_timer),
			ns[i] / 2, REGION_RETRY_NS);
		skein_pool_close(pool);
		skein_ctx_close(ctx);
	}
	pool = NULL;
	ctx = NULL;
}

static bool was_off;

static int setup_link(void **state)
{
	was_off = getenv("SKEIN_SOFT_DC");
	setenv("SKEIN_LINK", "udp", 1);
	setenv("SKEIN_SOFT_DC", "off", 1);
	return setup(state);
}

static int teardown_link(void **state)
{
	unsetenv("SKEIN_LINK");
	if (!was_off)
		unsetenv("SKEIN_SOFT_DC");
	return teardown(state);
}

/* The timeout of the queue pair by which a pool reaches a node. */
static uint8_t timeout_of(uint64_t retry_ns, bool raw)
{
	struct skein_pool_attr a = {
		.size = sizeof(a), .meta = meta_addr, .retry_ns = retry_ns};
	struct ibv_qp_attr qa = {0};
	struct skein_vqp *v;
	struct pool *p;
	unsigned i;

	assert_int_equal(skein_ctx_open(NULL, &ctx), 0);
	assert_int_equal(skein_pool_open(ctx, &a, &pool), 0);
	assert_int_equal(skein_vqp_mem_new(pool, MEM, 0, &mem), 0);
	p = pool_of(pool);
	p->raw = raw;
	v = connect_to(0);
	assert_int_equal(result(v, 0, IBV_WR_RDMA_WRITE), IBV_WC_SUCCESS);
	for (i = 0; i < p->n_rcs && !p->rc[i]; i++)
		;
	assert_true(i < p->n_rcs);
	assert_int_equal(ctx->dev->ops->query_qp(ctx->dev, p->rc[i], &qa,
						 IBV_QP_TIMEOUT, NULL),
			 0);
	skein_vqp_free(v);
	client_close();
	return qa.timeout;
}

/* Between hosts a cable may be out for a moment: what names no region waits for as
 * long as a probe does, the rest for as long as a lease allows. */
static void test_link_patience(void **state)
{
	if (getenv("SKEIN_SOFT_HARSH"))
		skip(); /* its answers are later than that */
	assert_int_equal(timeout_of(0, false), 14);
	assert_int_equal(timeout_of(0, true), 16);
	assert_in_range(timeout_of(SKEIN_MS(400), true), 13, 15);
}

/* More messages than a stopped process has receives: what is for other nodes goes
 * on, on the same queue pairs, and all arrive when the process goes on. */
static void test_node_stops(void **state)
{
	struct skein_pool_attr a = {
		.size = sizeof(a), .meta = meta_addr, .dcis = 2};
	struct skein_pool_stats st = {.size = sizeof(st)};
	struct skein_vqp *v[24], *w[4];
	struct patience p = {0};
	unsigned i, k;

	assert_int_equal(skein_ctx_open(NULL, &ctx), 0);
	assert_int_equal(skein_pool_open(ctx, &a, &pool), 0);
	assert_int_equal(skein_vqp_mem_new(pool, MEM, 0, &mem), 0);
	for (i = 0; i < 4; i++)
		w[i] = connect_to(1);
	for (i = 0; i < 24; i++)
		v[i] = connect_to(0);
	echo(v[0], "alive");
	kill(node_pid[0], SIGSTOP);
	for (i = 1; i < 24; i++)
		for (k = 0; k < 16; k++)
			assert_int_equal(post(v[i], 0, IBV_WR_SEND, 0,
					      skein_vqp_lkey(mem)),
					 0);
	while (st.dcis_replaced < 2 && pool_of(pool)->n_dcis &&
	       !patience_ends(&p, st.dcis_replaced, now_ms() * 1000000, 30)) {
		for (i = 0; i < 4; i++)
			assert_int_equal(result(w[i], 1, IBV_WR_RDMA_READ),
					 IBV_WC_SUCCESS);
		skein_pool_get_stats(pool, &st);
	}
	patience_met(st.dcis_replaced >= 2 || !pool_of(pool)->n_dcis, 30,
		     "a queue pair that is free again");
	kill(node_pid[0], SIGCONT);
	for (i = 1; i < 24; i++)
		for (k = 0; k < 16; k++)
			assert_int_equal(next(v[i], NULL), IBV_WC_SUCCESS);
	client_close();
}

static void test_meta_dies(void **state)
{
	struct skein_ctx_attr ca = {.size = sizeof(ca), .log = log_count};
	struct skein_pool_attr a = {.size = sizeof(a), .meta = meta_addr};
	struct skein_pool_stats st = {.size = sizeof(st)};
	struct skein_vqp *v, *w;
	uint64_t end, asked;
	int err = -1;

	assert_int_equal(skein_ctx_open(&ca, &ctx), 0);
	assert_int_equal(skein_pool_open(ctx, &a, &pool), 0);
	assert_int_equal(skein_vqp_mem_new(pool, MEM, 0, &mem), 0);
	assert_int_equal(skein_vqp_new(pool, &w), 0);
	assert_int_equal(connect_nobody(w, "127.0.0.1:9", PORT), -EHOSTUNREACH);
	skein_vqp_free(w);
	assert_int_equal(said_nobody, 1);
	v = connect_to(0);
	echo(v, "first");
	reap(&meta_pid);
	/* Once the pool knows, it READs nothing there: what comes back has to
	 * be met first. */
	end = now_ms() + patience_ms(15);
	while (vqp_engine_has_meta(&pool_of(pool)->e) && now_ms() < end)
		skein_pool_progress(pool);
	patience_met(!vqp_engine_has_meta(&pool_of(pool)->e), 15,
		     "the death of the meta server");
	skein_pool_get_stats(pool, &st);
	asked = st.lookups;
	echo(v, "without a meta server");
	w = connect_to(0); /* it is known */
	echo(w, "known");
	skein_vqp_free(w);
	assert_int_equal(skein_vqp_new(pool, &w), 0);
	assert_int_equal(skein_vqp_connect(w, node[1].node, PORT,
					   SKEIN_MS(200)),
			 -ENETUNREACH);
	assert_int_equal(said_no_meta, 1);
	skein_pool_get_stats(pool, &st);
	assert_int_equal(st.lookups, asked);
	assert_int_equal(st.dcis_replaced, 0);
	/* it comes back empty: the nodes write themselves anew */
	meta_start();
	end = now_ms() + patience_ms(30);
	while (err && now_ms() < end)
		err = skein_vqp_connect(w, node[1].node, PORT, SKEIN_MS(200));
	patience_met(!err, 30, "the node's new entry");
	echo(w, "it is back");
	skein_pool_get_stats(pool, &st);
	assert_true(st.publishes >= 2);
	client_close();
}

/* An environment that counts the rounds in which a thread waits. */
static struct {
	const struct env_ops *real;
	struct env_ops ops;
	unsigned idle;
} counted;

static enum env_idle_verdict idle(struct env_waiter *w, unsigned round)
{
	counted.idle++;
	return counted.real->idle(w, round);
}

/* Listens where the meta server was, and has no table. */
static void tableless_main(void)
{
	struct skein_listener *l;
	struct skein_ctx *c;

	assert_int_equal(skein_ctx_open(NULL, &c), 0);
	while (skein_listener_open(c, meta_addr, NULL, &l))
		usleep(20000);
	for (;;)
		skein_engine_run(skein_ctx_engine(c), SKEIN_MS(50));
}

/* A server that has no table yet is asked again and again; no round of the pool
 * waits for it, for other threads would wait for the pool's lock. */
static void test_meta_slow(void **state)
{
	struct skein_pool_attr a = {.size = sizeof(a), .meta = meta_addr};
	uint64_t end = now_ms() + patience_ms(30), due = 0;
	struct skein_env *env;
	const struct publish *u;
	unsigned looks = 0;

	assert_int_equal(env_real_new(&env), 0);
	counted.real = env->ops;
	counted.ops = *env->ops;
	counted.ops.idle = idle;
	env->ops = &counted.ops;
	assert_int_equal(ctx_open_env(env, NULL, &ctx), 0);
	assert_int_equal(skein_pool_open(ctx, &a, &pool), 0);
	u = pool_of(pool)->publish;
	reap(&meta_pid);
	meta_pid = fork();
	if (!meta_pid)
		tableless_main();
	counted.idle = 0;
	while (looks < 5 && now_ms() < end) {
		assert_true(skein_pool_progress(pool) >= 0);
		if (u->step != PUBLISH_LOST ||
		    skein_conn_get_state(u->conn) != SKEIN_CONN_READY)
			continue;
		looks += u->due_ns != due;
		due = u->due_ns;
	}
	patience_met(looks >= 5, 30, "five looks");
	assert_int_equal(counted.idle, 0);
	client_close();
	env->ops = counted.real;
	env_real_free(env);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_work, setup, teardown),
		cmocka_unit_test_setup_teardown(test_wrong, setup, teardown),
		cmocka_unit_test_setup_teardown(test_says, setup, teardown),
		cmocka_unit_test_setup_teardown(test_retries_end, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_node_stops, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_region_ends, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_node_late, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_node_dies, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_close_tells, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_idle_broken, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_link_patience, setup_link,
						teardown_link),
		cmocka_unit_test_setup_teardown(test_busy, setup, teardown),
		cmocka_unit_test_setup_teardown(test_datagrams_fail, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_long, setup, teardown),
		cmocka_unit_test_setup_teardown(test_long_refused, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_long_receiver_dies, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_long_sender_dies, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_sender_dies, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_meta_dies, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_meta_slow, setup,
						teardown),
	};

	if (!getenv("SKEIN_DEVICE"))
		setenv("SKEIN_DEVICE", "soft", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
