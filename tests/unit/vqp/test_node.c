/* SPDX-License-Identifier: MIT */
/*
 * A node service in real processes: a meta server, a service, clients that
 * answer and clients that ask. Messages, one-sided operations, bad input, clients
 * that are killed after each step, rings full of garbage, a service that is
 * killed.
 */
#include "bed.h"

#include "base/prng.h"
#include "env/local.h"
#include "vqp/node/attach.h"
#include "vqp/node/ring.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define PORT 1
#define MEM 8192u
#define ONCE 99u /* bytes: the last message of its sender */

/* What a process says of itself. */
struct hello {
	char node[72];
	uint64_t addr;
	uint32_t rkey;
};

/* Of the service, in memory that the test shares with it. */
static struct skein_node_stats *shown;
static char folder[64], path[96], path2[96];
static pid_t meta_pid, node_pid, echo_pid;
static struct hello far;

/* --- the other processes ------------------------------------------------ */

static void node_main(int out)
{
	struct rlimit few = {256, 256};
	struct skein_node_attr a = {.size = sizeof(a),
				    .meta = meta_addr,
				    .mem_max = 1 << 20,
				    .clients_max = 8};
	struct skein_node_stats st;
	struct skein_node *n;

	if (setrlimit(RLIMIT_NOFILE, &few) ||
	    skein_node_open(ctx_quiet(), path, &a, &n) ||
	    skein_node_listen(n, path2, "other") || write(out, "+", 1) != 1)
		_exit(1);
	for (;;) {
		skein_node_run(n, SKEIN_MS(1), NULL);
		st.size = sizeof(st);
		skein_node_get_stats(n, &st);
		*shown = st;
	}
}

static void pool_open(struct skein_pool **pool)
{
	struct skein_pool_attr a = {.size = sizeof(a), .node = path};

	assert_int_equal(skein_pool_open(NULL, &a, pool), 0);
}

/* A client of the service that answers each message with the same bytes. */
static void echo_main(int out)
{
	struct skein_vqp_mem *rx, *mem;
	struct skein_pool *pool;
	struct ibv_send_wr *bad;
	struct skein_vqp_msg m;
	struct hello h = {0};
	struct skein_vqp *v;
	int n;

	pool_open(&pool);
	assert_int_equal(skein_vqp_mem_new(pool, 64 * 256, 0, &rx), 0);
	assert_int_equal(skein_vqp_mem_new(pool, MEM, REMOTE, &mem), 0);
	assert_int_equal(skein_vqp_new(pool, &v), 0);
	assert_int_equal(skein_vqp_bind(v, PORT), 0);
	for (uint64_t i = 0; i < 64; i++)
		assert_int_equal(recv_post(v, rx, i), 0);
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

		n = skein_vqp_pop(v, 1, &m);
		if (n < 0)
			_exit(n == -SKEIN_EDEAD ? 0 : 1);
		if (!n)
			continue;
		sge = (struct ibv_sge){(uintptr_t)skein_vqp_mem_addr(rx) +
					       m.wr_id * 256,
				       m.len, 0};
		skein_vqp_post_send(m.from, &wr, &bad);
		if (m.len == ONCE)
			skein_vqp_free(m.from);
		recv_post(v, rx, m.wr_id);
	}
}

static int setup(void **state)
{
	char up;

	(void)state;
	snprintf(folder, sizeof(folder), "/tmp/skein-node-XXXXXX");
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/s", folder);
	snprintf(path2, sizeof(path2), "%s/other", folder);
	shown = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(shown != MAP_FAILED);
	meta_addr[0] = '\0';
	start(&meta_pid, meta_main, meta_addr, sizeof(meta_addr));
	start(&node_pid, node_main, &up, 1);
	start(&echo_pid, echo_main, &far, sizeof(far));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	reap(&echo_pid);
	reap(&node_pid);
	reap(&meta_pid);
	unlink(path);
	unlink(path2);
	rmdir(folder);
	munmap(shown, 4096);
	return 0;
}

/* --- a client ----------------------------------------------------------- */

static struct skein_pool *pool;
static struct skein_vqp_mem *mem;

static void client_open(void)
{
	pool_open(&pool);
	assert_int_equal(skein_vqp_mem_new(pool, MEM, 0, &mem), 0);
}

static struct skein_vqp *connected(void)
{
	struct skein_vqp *v;

	assert_int_equal(skein_vqp_new(pool, &v), 0);
	assert_int_equal(skein_vqp_connect(v, far.node, PORT, patience_ns(60)),
			 0);
	return v;
}

static int post(struct skein_vqp *v, enum ibv_wr_opcode op, uint32_t rkey,
		uint32_t lkey, uint64_t add)
{
	struct ibv_sge sge = {(uintptr_t)skein_vqp_mem_addr(mem), 8, lkey};
	struct ibv_send_wr wr = {.wr_id = op,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = op,
				 .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;

	if (op >= IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = far.addr;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = add;
	} else {
		wr.wr.rdma.remote_addr = far.addr;
		wr.wr.rdma.rkey = rkey;
	}
	return skein_vqp_post_send(v, &wr, &bad);
}

static struct ibv_wc next(struct skein_vqp *v)
{
	uint64_t end = now_ms() + patience_ms(20);
	struct ibv_wc wc = {0};
	int n = 0;

	while (!n && now_ms() < end)
		n = skein_vqp_poll(v, 1, &wc);
	patience_met(n, 20, "a completion");
	assert_int_equal(n, 1);
	return wc;
}

static enum ibv_wc_status result(struct skein_vqp *v, enum ibv_wr_opcode op)
{
	assert_int_equal(post(v, op, far.rkey, skein_vqp_lkey(mem), 5), 0);
	return next(v).status;
}

/* len bytes there and back: inline up to 128, else from memory, in pieces. */
static void echo(struct skein_vqp *v, uint32_t len)
{
	uint8_t *at = skein_vqp_mem_addr(mem);
	struct ibv_sge sge[3];
	struct ibv_send_wr wr = {
		.sg_list = sge, .num_sge = 3, .opcode = IBV_WR_SEND};
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	uint32_t i, part = len / 3;

	for (i = 0; i < len; i++)
		at[i] = (uint8_t)(i * 7 + len);
	for (i = 0; i < 3; i++)
		sge[i] = (struct ibv_sge){(uintptr_t)at + i * part,
					  i < 2 ? part : len - 2 * part,
					  skein_vqp_lkey(mem)};
	if (len <= 128)
		wr.send_flags = IBV_SEND_INLINE;
	assert_int_equal(recv_post(v, mem, 4), 0);
	memset(at + 4 * 256, 0, 256);
	assert_int_equal(skein_vqp_post_send(v, &wr, &bad), 0);
	wc = next(v);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_RECV);
	assert_int_equal(wc.byte_len, len);
	assert_memory_equal(at, at + 4 * 256, len);
}

/* Echoes have at most 128 bytes: they come back inline. */
static void test_work(void **state)
{
	struct skein_vqp *v, *w;
	struct stat st;
	uint64_t *word;

	(void)state;
	assert_int_equal(lstat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	client_open();
	word = skein_vqp_mem_addr(mem);
	v = connected();
	w = connected();
	*word = 37;
	assert_int_equal(result(v, IBV_WR_RDMA_WRITE), IBV_WC_SUCCESS);
	*word = 0;
	assert_int_equal(result(w, IBV_WR_RDMA_READ), IBV_WC_SUCCESS);
	assert_int_equal(*word, 37);
	assert_int_equal(result(v, IBV_WR_ATOMIC_FETCH_AND_ADD),
			 IBV_WC_SUCCESS);
	assert_int_equal(*word, 37);
	assert_int_equal(result(v, IBV_WR_RDMA_READ), IBV_WC_SUCCESS);
	assert_int_equal(*word, 42);
	for (uint32_t len = 0; len < ONCE; len++)
		echo(len % 3 ? v : w, len);
	/* those of which the far end frees its vqp at once */
	for (int i = 0; i < 100; i++) {
		skein_vqp_free(v);
		v = connected();
		echo(v, ONCE);
	}
	skein_pool_close(pool);
}

/* More requests than there is room for: refused by the call, and carried out in
 * order; signalled or not. */
static void test_room(void **state)
{
	struct patience p = {0};
	uint64_t sum = 0, seen = 0;
	uint64_t *word;
	struct skein_vqp *v;
	struct ibv_wc wc;
	int err, n;

	(void)state;
	client_open();
	word = skein_vqp_mem_addr(mem);
	v = connected();
	for (uint64_t i = 1; i <= 2000; i++) {
		struct ibv_sge sge = {(uintptr_t)word, 8, skein_vqp_lkey(mem)};
		struct ibv_send_wr wr = {.wr_id = i,
					 .sg_list = &sge,
					 .num_sge = 1,
					 .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
					 .send_flags =
						 i % 7 ? 0 : IBV_SEND_SIGNALED,
					 .wr.atomic = {.remote_addr = far.addr,
						       .rkey = far.rkey,
						       .compare_add = i}};
		struct ibv_send_wr *bad;

		do {
			err = skein_vqp_post_send(v, &wr, &bad);
			n = skein_vqp_poll(v, 1, &wc);
			assert_true(n >= 0);
			if (!n)
				continue;
			assert_int_equal(wc.status, IBV_WC_SUCCESS);
			assert_int_equal(wc.wr_id, seen += 7);
		} while (err == -ENOMEM &&
			 !patience_ends(&p, seen, now_ms() * 1000000, 20));
		patience_met(err != -ENOMEM, 20, "room for a request");
		assert_int_equal(err, 0);
		sum += i;
	}
	while (seen < 1995) {
		wc = next(v);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.wr_id, seen += 7);
	}
	assert_int_equal(result(v, IBV_WR_RDMA_READ), IBV_WC_SUCCESS);
	assert_int_equal(*word, sum);
	skein_pool_close(pool);
}

/* Lines of the log that say how to start a service. */
static unsigned said;

static void log_count(void *arg, enum skein_log_level level, const char *line)
{
	said += strstr(line, ": start it with skein node --listen /nowhere") !=
		NULL;
}

static void test_wrong(void **state)
{
	struct skein_ctx_attr ca = {.size = sizeof(ca), .log = log_count};
	struct skein_pool_attr a = {.size = sizeof(a), .node = path};
	struct skein_ctx *ctx;
	struct skein_vqp_mem *more;
	struct skein_vqp *v, *w, *bound;
	struct ibv_sge sge = {0};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 9}, *bad;
	uint32_t lkey;
	int status;
	pid_t pid;

	(void)state;
	client_open();
	lkey = skein_vqp_lkey(mem);
	v = connected();
	w = connected();
	assert_int_equal(skein_vqp_post_send(v, &wr, &bad), -EINVAL);
	assert_ptr_equal(bad, &wr);
	assert_int_equal(skein_vqp_connect(v, far.node, PORT, 1), -EISCONN);
	/* memory that the service did not make */
	assert_int_equal(post(v, IBV_WR_RDMA_WRITE, far.rkey, lkey + 1, 0),
			 -EFAULT);
	assert_int_equal(skein_vqp_mem_new(pool, 2 << 20, 0, &more), -EDQUOT);
	assert_int_equal(skein_vqp_mem_new(pool, 0, 0, &more), -EINVAL);
	/* a region that is not there: this vqp is in error, the other is not */
	assert_int_equal(post(v, IBV_WR_RDMA_WRITE, far.rkey + 1, lkey, 0), 0);
	assert_int_equal(next(v).status, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(result(v, IBV_WR_RDMA_WRITE), IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(result(w, IBV_WR_RDMA_WRITE), IBV_WC_SUCCESS);
	skein_vqp_free(v);
	assert_int_equal(skein_vqp_new(pool, &v), 0);
	assert_int_equal(connect_nobody(v, "127.0.0.1:9", PORT), -EHOSTUNREACH);
	assert_int_equal(skein_vqp_connect(v, "127.0.0.1", PORT, 1), -EINVAL);
	assert_int_equal(skein_vqp_post_send(v, &wr, &bad), -ENOTCONN);
	/* one name space of ports for all clients */
	assert_int_equal(skein_vqp_new(pool, &bound), 0);
	assert_int_equal(skein_vqp_bind(bound, 3), 0);
	assert_int_equal(skein_vqp_bind(v, 3), -EADDRINUSE);
	assert_int_equal(skein_vqp_bind(v, PORT), -EADDRINUSE);
	skein_vqp_free(bound);
	assert_int_equal(skein_vqp_bind(v, 3), 0);
	pid = fork();
	if (!pid)
		_exit(skein_pool_progress(pool) != -SKEIN_EFORKED ||
		      skein_vqp_new(pool, &v) != -SKEIN_EFORKED ||
		      skein_vqp_bind(v, 1) != -SKEIN_EFORKED);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && !WEXITSTATUS(status));
	assert_int_equal(shown->detached, 0);
	skein_pool_close(pool);
	a.node = "/nowhere/at/all";
	assert_int_equal(skein_ctx_open(&ca, &ctx), 0);
	assert_int_equal(skein_pool_open(ctx, &a, &pool), -ENOENT);
	assert_int_equal(said, 1);
	skein_ctx_close(ctx);
	assert_int_equal(skein_pool_open(NULL, NULL, &pool), -EINVAL);
}

/* The vqp that a message makes reaches what its sender's domain has, and nothing
 * else. */
static void test_sender_domain(void **state)
{
	struct skein_pool_attr a = {.size = sizeof(a), .node = path2};
	char text[] = "x";
	struct ibv_sge sge = {(uintptr_t)text, 1, 0};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_INLINE},
			   *bad;
	uint64_t end = now_ms() + patience_ms(20);
	struct skein_vqp_msg m[2];
	struct skein_pool *other;
	struct skein_vqp_mem *own;
	struct skein_vqp *bound, *v;
	int n = 0, i;

	(void)state;
	client_open();
	assert_int_equal(skein_pool_open(NULL, &a, &other), 0);
	assert_int_equal(skein_vqp_mem_new(other, MEM, REMOTE, &own), 0);
	assert_int_equal(skein_vqp_new(pool, &bound), 0);
	assert_int_equal(skein_vqp_bind(bound, 4), 0);
	for (i = 0; i < 2; i++) {
		assert_int_equal(recv_post(bound, mem, 4 + (uint64_t)i), 0);
		assert_int_equal(skein_vqp_new(other, &v), 0);
		assert_int_equal(
			skein_vqp_connect(v, far.node, 4, patience_ns(60)), 0);
		assert_int_equal(skein_vqp_post_send(v, &wr, &bad), 0);
	}
	while (n < 2 && now_ms() < end) {
		i = skein_vqp_pop(bound, 1, &m[n]);
		assert_true(i >= 0);
		n += i;
	}
	patience_met(n == 2, 20, "both messages");
	assert_int_equal(result(m[0].from, IBV_WR_RDMA_READ),
			 IBV_WC_REM_ACCESS_ERR);
	far.addr = skein_vqp_raddr(own);
	far.rkey = skein_vqp_rkey(own);
	assert_int_equal(result(m[1].from, IBV_WR_RDMA_READ), IBV_WC_SUCCESS);
	skein_pool_close(other);
	skein_pool_close(pool);
}

/* A client of the other domain, which knows all that there is to know of a region:
 * it reaches it through the region's port, and through no other. Nor does anybody
 * reach its own memory through a port that is not its domain's. */
static void test_domains(void **state)
{
	struct skein_pool_attr a = {.size = sizeof(a), .node = path2};
	struct skein_vqp_mem *own, *first;
	struct skein_vqp *v, *bound;
	struct hello echoes = far;

	(void)state;
	client_open();
	v = connected();
	assert_int_equal(result(v, IBV_WR_RDMA_READ), IBV_WC_SUCCESS);
	skein_pool_close(pool);
	assert_int_equal(skein_pool_open(NULL, &a, &pool), 0);
	assert_int_equal(skein_vqp_mem_new(pool, MEM, 0, &mem), 0);
	assert_int_equal(skein_vqp_mem_new(pool, MEM, REMOTE, &own), 0);
	v = connected();
	assert_int_equal(result(v, IBV_WR_RDMA_READ), IBV_WC_SUCCESS);
	echo(v, 40);
	/* through its own port, and one that nobody has bound */
	assert_int_equal(skein_vqp_new(pool, &bound), 0);
	assert_int_equal(skein_vqp_bind(bound, 3), 0);
	for (uint16_t port = 3; port < 5; port++) {
		assert_int_equal(skein_vqp_new(pool, &v), 0);
		assert_int_equal(skein_vqp_connect(v, far.node, port,
						   patience_ns(60)),
				 0);
		assert_int_equal(result(v, IBV_WR_RDMA_READ),
				 IBV_WC_REM_ACCESS_ERR);
	}
	/* its own memory: not through the port of the first domain */
	far.addr = skein_vqp_raddr(own);
	far.rkey = skein_vqp_rkey(own);
	v = connected();
	assert_int_equal(result(v, IBV_WR_RDMA_WRITE), IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(skein_vqp_new(pool, &v), 0);
	assert_int_equal(skein_vqp_connect(v, far.node, 3, patience_ns(60)), 0);
	assert_int_equal(result(v, IBV_WR_RDMA_WRITE), IBV_WC_SUCCESS);
	/* nor through one that it has given up */
	skein_vqp_free(bound);
	assert_int_equal(skein_vqp_new(pool, &v), 0);
	assert_int_equal(skein_vqp_connect(v, far.node, 3, patience_ns(60)), 0);
	assert_int_equal(result(v, IBV_WR_RDMA_WRITE), IBV_WC_REM_ACCESS_ERR);
	far = echoes;
	/* a port that has changed hands is its new domain's */
	skein_pool_close(pool);
	client_open();
	assert_int_equal(skein_vqp_mem_new(pool, MEM, REMOTE, &first), 0);
	assert_int_equal(skein_vqp_new(pool, &bound), 0);
	assert_int_equal(skein_vqp_bind(bound, 3), 0);
	assert_int_equal(skein_vqp_new(pool, &v), 0);
	assert_int_equal(skein_vqp_connect(v, far.node, 3, patience_ns(60)), 0);
	assert_int_equal(result(v, IBV_WR_RDMA_READ), IBV_WC_SUCCESS);
	assert_int_equal(shown->detached, 0);
	skein_pool_close(pool);
}

/* --- ends --------------------------------------------------------------- */

static void clients_become(uint64_t n)
{
	uint64_t end = now_ms() + patience_ms(20);

	while (__atomic_load_n(&shown->clients, __ATOMIC_RELAXED) != n &&
	       now_ms() < end)
		usleep(1000);
	patience_met(__atomic_load_n(&shown->clients, __ATOMIC_RELAXED) == n,
		     20, "the number of clients");
}

static void detached_become(uint64_t n)
{
	uint64_t end = now_ms() + patience_ms(20);

	while (__atomic_load_n(&shown->detached, __ATOMIC_RELAXED) != n &&
	       now_ms() < end)
		usleep(1000);
	patience_met(__atomic_load_n(&shown->detached, __ATOMIC_RELAXED) == n,
		     20, "the number of detached clients");
}

static void die_at(int step, int at)
{
	if (step == at)
		raise(SIGKILL);
}

/* A client that is killed after the at-th of its steps. */
static void victim(int at)
{
	struct skein_vqp *v, *b, *w;
	struct attach_msg m;
	int fd, step = 0;

	if (local_connect(path, &fd))
		_exit(1);
	die_at(step++, at);
	attach_fill(&m, ATTACH_HELLO);
	local_send(fd, &m, sizeof(m), NULL, 0);
	die_at(step++, at);
	pool_open(&pool);
	die_at(step++, at);
	assert_int_equal(skein_vqp_mem_new(pool, MEM, REMOTE, &mem), 0);
	die_at(step++, at);
	assert_int_equal(skein_vqp_new(pool, &v), 0);
	die_at(step++, at);
	assert_int_equal(skein_vqp_new(pool, &b), 0);
	assert_int_equal(skein_vqp_bind(b, 7), 0);
	die_at(step++, at);
	assert_int_equal(skein_vqp_connect(v, far.node, PORT, patience_ns(60)),
			 0);
	die_at(step++, at);
	recv_post(v, mem, 4);
	die_at(step++, at);
	for (int i = 0; i < 100; i++)
		post(v, IBV_WR_RDMA_READ, far.rkey, skein_vqp_lkey(mem), 0);
	die_at(step++, at);
	assert_int_equal(skein_vqp_new(pool, &w), 0);
	skein_vqp_connect(w, "127.0.0.1:9", 1, SKEIN_MS(2));
	die_at(step++, at);
	skein_vqp_mem_free(mem);
	die_at(step++, at);
	skein_vqp_free(v);
	die_at(step++, at);
	skein_pool_close(pool);
	die_at(step++, at);
	_exit(42);
}

static void test_client_dies(void **state)
{
	struct skein_vqp *v, *bound;
	int status = 0, at;
	pid_t pid;

	(void)state;
	client_open();
	v = connected();
	for (at = 0; !WIFEXITED(status) || !at; at++) {
		pid = fork();
		if (!pid)
			victim(at);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 42);
		echo(v, 40);
		clients_become(2);
	}
	assert_true(at > 10);
	/* nothing is left of them: their port is free */
	assert_int_equal(skein_vqp_new(pool, &bound), 0);
	assert_int_equal(skein_vqp_bind(bound, 7), 0);
	assert_int_equal(shown->detached, 0);
	skein_pool_close(pool);
	clients_become(1);
}

/* Sends one message to port 6, and dies when it has arrived. */
static void sender_main(int out)
{
	char text[] = "x";
	struct ibv_sge sge = {(uintptr_t)text, 1, 0};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_INLINE},
			   *bad;
	struct skein_pool *own;
	struct skein_vqp *v;

	pool_open(&own);
	if (skein_vqp_new(own, &v) ||
	    skein_vqp_connect(v, far.node, 6, patience_ns(60)) ||
	    skein_vqp_post_send(v, &wr, &bad) || write(out, "+", 1) != 1)
		_exit(1);
	pause();
}

static struct skein_vqp_msg popped(struct skein_vqp *bound)
{
	uint64_t end = now_ms() + patience_ms(20);
	struct skein_vqp_msg m;
	int n;

	while (!(n = skein_vqp_pop(bound, 1, &m)) && now_ms() < end)
		;
	patience_met(n == 1, 20, "a message");
	return m;
}

/* The program that popped its message is told, and frees what it popped. */
static void test_sender_dies(void **state)
{
	struct skein_vqp_msg first, m;
	struct skein_vqp *bound;
	pid_t pid;
	char x;

	(void)state;
	client_open();
	assert_int_equal(skein_vqp_new(pool, &bound), 0);
	assert_int_equal(skein_vqp_bind(bound, 6), 0);
	assert_int_equal(recv_post(bound, mem, 4), 0);
	assert_int_equal(recv_post(bound, mem, 5), 0);
	start(&pid, sender_main, &x, 1);
	first = popped(bound);
	assert_int_equal(first.status, 0);
	reap(&pid);
	m = popped(bound);
	assert_int_equal(m.status, -ECONNRESET);
	assert_ptr_equal(m.from, first.from);
	assert_int_equal(m.wr_id, 5);
	assert_int_not_equal(result(m.from, IBV_WR_RDMA_READ), IBV_WC_SUCCESS);
	skein_vqp_free(m.from);
	skein_pool_close(pool);
	clients_become(1);
}

/* Processes that connect and say nothing do not shut the door. */
static void test_silent(void **state)
{
	int fd[8], i;

	(void)state;
	for (i = 0; i < 8; i++)
		assert_int_equal(local_connect(path, &fd[i]), 0);
	usleep(200000);
	client_open();
	skein_pool_close(pool);
	for (i = 0; i < 8; i++)
		close(fd[i]);
	clients_become(1);
}

/* The clients of one domain take all memories that they get; a client of another
 * one has its own, and they work. */
static void test_mems_share(void **state)
{
	struct skein_pool_attr a = {.size = sizeof(a), .node = path2};
	struct skein_vqp_mem *m[8 * 64];
	unsigned n = 0, i, pools = 0;
	struct skein_pool *p[6];
	struct skein_vqp *v;
	char text[] = "x";
	struct ibv_sge sge = {(uintptr_t)text, 1, 0};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_INLINE},
			   *bad;
	int err = 0;

	(void)state;
	for (i = 0; i < 6; i++) {
		pool_open(&p[pools++]);
		while (!(err = skein_vqp_mem_new(p[i], 1, REMOTE, &m[n])))
			n++;
		assert_int_equal(err, -EDQUOT);
	}
	/* 256 descriptors are for 88, and 22 are kept for domains with few; the
	 * echo, of the same domain, has two */
	assert_int_equal(n, 31);
	assert_int_equal(skein_pool_open(NULL, &a, &pool), 0);
	for (i = 0; i < 16; i++)
		assert_int_equal(skein_vqp_mem_new(pool, 256, REMOTE, &mem), 0);
	assert_int_equal(skein_vqp_new(pool, &v), 0);
	assert_int_equal(skein_vqp_connect(v, far.node, PORT, patience_ns(60)),
			 0);
	assert_int_equal(recv_post(v, mem, 0), 0);
	assert_int_equal(skein_vqp_post_send(v, &wr, &bad), 0);
	assert_int_equal(next(v).status, IBV_WC_SUCCESS);
	skein_pool_close(pool);
	while (pools)
		skein_pool_close(p[--pools]);
	clients_become(1);
}

#define LONG 100000u

static void long_send(struct skein_vqp *v, struct skein_vqp_mem *m)
{
	uint8_t *at = skein_vqp_mem_addr(m);
	struct ibv_sge sge = {(uintptr_t)at, LONG, skein_vqp_lkey(m)};
	struct ibv_send_wr wr = {.wr_id = 3,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;

	for (uint32_t i = 0; i < LONG; i++)
		at[i] = (uint8_t)(i + (i >> 8));
	assert_int_equal(skein_vqp_post_send(v, &wr, &bad), 0);
}

static struct skein_vqp *long_connected(uint16_t port)
{
	struct skein_vqp *v;

	assert_int_equal(skein_vqp_new(pool, &v), 0);
	assert_int_equal(skein_vqp_connect(v, far.node, port, patience_ns(60)),
			 0);
	return v;
}

/* A message that the service READs, out of one client's memory into another's;
 * the receives of the echo are too short for it. */
static void test_long(void **state)
{
	struct skein_vqp_mem *src, *dst;
	struct skein_pool *pool2;
	struct skein_vqp *v, *b;
	struct skein_vqp_msg m;
	struct ibv_recv_wr *bad;
	struct ibv_sge sge;
	struct ibv_recv_wr wr = {.wr_id = 8, .sg_list = &sge, .num_sge = 1};
	uint64_t end = now_ms() + patience_ms(60);
	int n = 0;

	(void)state;
	client_open();
	pool_open(&pool2);
	assert_int_equal(skein_vqp_mem_new(pool, LONG, 0, &src), 0);
	assert_int_equal(skein_vqp_mem_new(pool2, LONG, 0, &dst), 0);
	assert_int_equal(skein_vqp_new(pool2, &b), 0);
	assert_int_equal(skein_vqp_bind(b, 7), 0);
	v = long_connected(7);
	sge = (struct ibv_sge){(uintptr_t)skein_vqp_mem_addr(dst), LONG,
			       skein_vqp_lkey(dst)};
	long_send(v, src);
	assert_int_equal(skein_vqp_post_recv(b, &wr, &bad), 0);
	while (!n && now_ms() < end)
		n = skein_vqp_pop(b, 1, &m);
	patience_met(n, 60, "the long message");
	assert_int_equal(n, 1);
	assert_int_equal(m.status, 0);
	assert_int_equal(m.wr_id, 8);
	assert_int_equal(m.len, LONG);
	assert_memory_equal(skein_vqp_mem_addr(dst), skein_vqp_mem_addr(src),
			    LONG);
	assert_int_equal(next(v).status, IBV_WC_SUCCESS);
	v = long_connected(PORT);
	long_send(v, src);
	assert_int_equal(next(v).status, IBV_WC_REM_OP_ERR);
	echo(connected(), 40);
	skein_pool_close(pool2);
	skein_pool_close(pool);
}

static void mute_main(int to)
{
	struct skein_vqp *b;

	pool_open(&pool);
	assert_int_equal(skein_vqp_new(pool, &b), 0);
	assert_int_equal(skein_vqp_bind(b, 7), 0);
	if (write(to, "+", 1) != 1)
		_exit(1);
	for (;;)
		pause();
}

/* The receiver is killed before it has posted a receive. */
static void test_long_ends(void **state)
{
	struct skein_vqp_mem *src;
	struct skein_vqp *v;
	pid_t pid;
	char up;

	(void)state;
	start(&pid, mute_main, &up, 1);
	client_open();
	assert_int_equal(skein_vqp_mem_new(pool, LONG, 0, &src), 0);
	v = long_connected(7);
	long_send(v, src);
	echo(connected(), 40);
	reap(&pid);
	assert_int_equal(next(v).status, IBV_WC_REM_OP_ERR);
	echo(connected(), 40);
	skein_pool_close(pool);
}

/* The service says so before it sleeps, for what wakes it is sent only then; and
 * says when the sleep is over. */
static void sleep_is_said(int life_fd)
{
	uint64_t end = now_ms() + patience_ms(20), sleeps = shown->sleeps;
	struct local_life *life;
	void *page;

	assert_int_equal(local_map(life_fd, LOCAL_LIFE_LEN, false, &page), 0);
	life = page;
	while (!(atomic_load(&life->asleep) & 1) && now_ms() < end)
		usleep(100);
	patience_met(now_ms() < end, 20, "the service's sleep");
	assert_true(atomic_load(&life->asleep) >= 2 * sleeps);
	assert_true(local_lives(life));
	local_unmap(page, LOCAL_LIFE_LEN);
}

/* A client that attaches by hand. */
static int raw_attach(void **rings)
{
	int fd, fds[LOCAL_FDS], n;
	uint8_t buf[ATTACH_LEN];
	struct attach_msg m;

	assert_int_equal(local_connect(path, &fd), 0);
	attach_fill(&m, ATTACH_HELLO);
	assert_int_equal(local_send(fd, &m, sizeof(m), NULL, 0), 0);
	assert_true(local_wait(fd, SKEIN_S(20)));
	assert_int_equal(local_recv(fd, buf, sizeof(buf), fds, &n), ATTACH_LEN);
	assert_int_equal(attach_decode(buf, sizeof(buf), &m), 0);
	assert_int_equal(n, 2);
	assert_int_equal(local_map(fds[0], RING_LEN, true, rings), 0);
	/* nobody can shrink it, nor write to the page that says who lives */
	assert_int_not_equal(ftruncate(fds[0], 4096), 0);
	assert_true(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fds[1],
			 0) == MAP_FAILED);
	sleep_is_said(fds[1]);
	close(fds[0]);
	close(fds[1]);
	return fd;
}

static void wake(int fd)
{
	struct attach_msg m;

	attach_fill(&m, ATTACH_WAKE);
	local_send(fd, &m, sizeof(m), NULL, 0);
}

static void garbage_put(void *rings, int fd, unsigned kind, struct prng *rng)
{
	struct ring_heads *h = rings;
	struct ring_req q = {.op = RING_OP_FREE, .vqp = 0x10007};
	uint32_t *line = (void *)((char *)rings + RING_AT_LINES);
	struct ring r;

	ring_init(&r, rings);
	switch (kind) {
	case 0: /* a cursor that is none; the service looks when it has to */
		atomic_store(&h->comps_taken, 100000);
		q.op = RING_OP_NEW;
		for (unsigned i = 0; i < RING_COMPS && !h->closed;)
			if (ring_put(&r, &q))
				wake(fd);
			else
				i++;
		break;
	case 1: /* a vqp that is not there */
		ring_put(&r, &q);
		break;
	case 2: /* an op that is none */
		q.op = RING_OPS;
		ring_put(&r, &q);
		break;
	case 3: /* lines that are not there */
		line[1] = RING_OP_NEW | 2u << 16;
		line[0] = 1;
		break;
	default: /* anything */
		for (unsigned i = 1; i < RING_LINES * 16; i++)
			line[i] = (uint32_t)prng_u64(rng);
		line[0] = 1;
		break;
	}
}

static void test_garbage(void **state)
{
	struct attach_msg m;
	struct skein_vqp *v;
	struct prng rng;
	uint64_t was;
	void *rings;
	int fd;

	(void)state;
	prng_init(&rng, 7);
	client_open();
	v = connected();
	for (unsigned kind = 0; kind < 20; kind++) {
		was = shown->detached;
		fd = raw_attach(&rings);
		garbage_put(rings, fd, kind, &rng);
		wake(fd);
		detached_become(was + 1);
		clients_become(2);
		assert_int_equal(
			atomic_load(&((struct ring_heads *)rings)->closed), 1);
		local_unmap(rings, RING_LEN);
		close(fd);
		echo(v, 40);
	}
	/* messages of the socket */
	was = shown->detached;
	assert_int_equal(local_connect(path, &fd), 0);
	assert_int_equal(local_send(fd, "nonsense", 8, NULL, 0), 0);
	detached_become(was + 1);
	close(fd);
	fd = raw_attach(&rings);
	attach_fill(&m, ATTACH_MEM_FREE);
	m.id = 0x10001;
	assert_int_equal(local_send(fd, &m, sizeof(m), NULL, 0), 0);
	detached_become(was + 2);
	local_unmap(rings, RING_LEN);
	close(fd);
	echo(v, 40);
	skein_pool_close(pool);
}

/* One too many is told so, and nobody else sees it. */
static void test_crowd(void **state)
{
	struct skein_pool_attr a = {.size = sizeof(a), .node = path};
	struct skein_pool *p[8];
	unsigned n = 0;
	int err;

	(void)state;
	while (!(err = skein_pool_open(NULL, &a, &p[n])))
		assert_true(++n < 8);
	assert_int_equal(err, -SKEIN_EBUSY);
	assert_int_equal(n, 7); /* and the one that answers */
	while (n)
		skein_pool_close(p[--n]);
	clients_become(1);
}

/* What every call says while there is no service, at once. */
static void all_dead(struct skein_vqp *v)
{
	struct skein_vqp_mem *more;
	struct skein_vqp *w;
	struct ibv_wc wc;

	assert_int_equal(skein_vqp_poll(v, 1, &wc), -SKEIN_EDEAD);
	assert_int_equal(post(v, IBV_WR_RDMA_READ, far.rkey,
			      skein_vqp_lkey(mem), 0),
			 -SKEIN_EDEAD);
	assert_int_equal(recv_post(v, mem, 4), -SKEIN_EDEAD);
	assert_int_equal(skein_vqp_connect(v, far.node, 1, patience_ns(60)),
			 -SKEIN_EDEAD);
	assert_int_equal(skein_vqp_bind(v, 8), -SKEIN_EDEAD);
	assert_int_equal(skein_vqp_new(pool, &w), -SKEIN_EDEAD);
	assert_int_equal(skein_vqp_mem_new(pool, MEM, 0, &more), -SKEIN_EDEAD);
	assert_int_equal(skein_pool_progress(pool), -SKEIN_EDEAD);
}

/* The test's pool is its first client. */
static void node_again(void)
{
	char up;

	start(&node_pid, node_main, &up, 1);
	assert_int_equal(skein_pool_progress(pool), 0);
	start(&echo_pid, echo_main, &far, sizeof(far));
}

/* The service is killed. Its memory is still there; what was made of its vqps
 * stays dead when the next service is there, and all the rest goes on. */
static void test_service_dies(void **state)
{
	struct skein_vqp_mem *shared, *gone;
	struct skein_vqp *v, *w, *b;
	uint32_t lkey, rkey;
	struct skein_vqp_msg msg;
	struct ibv_wc wc;
	int status;

	(void)state;
	client_open();
	assert_int_equal(skein_vqp_mem_new(pool, MEM, 0, &gone), 0);
	assert_int_equal(skein_vqp_mem_new(pool, MEM, REMOTE, &shared), 0);
	lkey = skein_vqp_lkey(shared);
	rkey = skein_vqp_rkey(shared);
	v = connected();
	echo(v, 40);
	for (int i = 0; i < 100; i++)
		assert_int_equal(result(v, IBV_WR_RDMA_READ), IBV_WC_SUCCESS);
	assert_int_equal(skein_vqp_new(pool, &b), 0);
	assert_int_equal(skein_vqp_bind(b, 9), 0);
	reap(&node_pid);
	all_dead(v);
	assert_int_equal(skein_vqp_pop(b, 1, &msg), -SKEIN_EDEAD);
	memset(skein_vqp_mem_addr(mem), 1, MEM);
	memset(skein_vqp_mem_addr(shared), 7, MEM);
	skein_vqp_mem_free(gone);
	/* the client that only waits learns it too */
	assert_int_equal(waitpid(echo_pid, &status, 0), echo_pid);
	assert_true(WIFEXITED(status) && !WEXITSTATUS(status));
	echo_pid = 0;
	/* the next one takes over the file that is left, and the memory */
	node_again();
	w = connected();
	echo(w, 40);
	/* it has the number of the vqp before, and nothing of it */
	assert_int_equal(result(w, IBV_WR_RDMA_READ), IBV_WC_SUCCESS);
	for (int i = 0; i < 60; i++)
		assert_int_equal(post(w, IBV_WR_RDMA_READ, far.rkey,
				      skein_vqp_lkey(mem), 0),
				 0);
	for (int i = 0; i < 60; i++)
		assert_int_equal(next(w).status, IBV_WC_SUCCESS);
	assert_int_equal(skein_vqp_poll(v, 1, &wc), -SKEIN_EDEAD);
	assert_int_equal(recv_post(v, mem, 4), -SKEIN_EDEAD);
	assert_int_equal(skein_vqp_pop(b, 1, &msg), -SKEIN_EDEAD);
	assert_int_equal(((uint8_t *)skein_vqp_mem_addr(shared))[MEM - 1], 7);
	assert_int_equal(skein_vqp_lkey(shared), lkey);
	/* the same place, another generation, which peers reach */
	assert_int_equal(skein_vqp_rkey(shared) & 0xffff, rkey & 0xffff);
	assert_int_not_equal(skein_vqp_rkey(shared), rkey);
	far.addr = skein_vqp_raddr(shared);
	far.rkey = skein_vqp_rkey(shared);
	assert_int_equal(result(w, IBV_WR_RDMA_READ), IBV_WC_SUCCESS);
	assert_int_equal(*(uint8_t *)skein_vqp_mem_addr(mem), 7);
	far.rkey = rkey;
	assert_int_equal(result(w, IBV_WR_RDMA_READ), IBV_WC_REM_ACCESS_ERR);
	/* handles of the life before end without touching the one there is now */
	skein_vqp_free(v);
	skein_vqp_free(b);
	skein_vqp_mem_free(shared);
	w = connected();
	echo(w, 40);
	assert_int_equal(shown->detached, 0);
	skein_pool_close(pool);
}

/* A service that is stopped is not dead: calls end by their deadlines. */
static void test_service_stops(void **state)
{
	struct skein_vqp *v, *w, *x;
	struct ibv_wc wc;

	(void)state;
	client_open();
	v = connected();
	assert_int_equal(skein_vqp_new(pool, &w), 0);
	kill(node_pid, SIGSTOP);
	waitpid(node_pid, NULL, WUNTRACED);
	assert_int_equal(skein_vqp_connect(w, "127.0.0.1:9", PORT, SKEIN_MS(5)),
			 -ETIMEDOUT);
	assert_int_equal(recv_post(v, mem, 4), 0);
	assert_int_equal(skein_vqp_poll(v, 1, &wc), 0);
	assert_int_equal(skein_pool_progress(pool), 0);
	kill(node_pid, SIGCONT);
	/* all is as it was, but the vqp with a call that has no answer */
	x = connected();
	echo(x, 40);
	assert_int_equal(post(w, IBV_WR_RDMA_READ, far.rkey,
			      skein_vqp_lkey(mem), 0),
			 -ENOTCONN);
	assert_int_equal(skein_vqp_connect(w, far.node, PORT, patience_ns(60)),
			 -EISCONN);
	skein_vqp_free(w);
	assert_int_equal(result(v, IBV_WR_RDMA_READ), IBV_WC_SUCCESS);
	assert_int_equal(shown->detached, 0);
	skein_pool_close(pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_work, setup, teardown),
		cmocka_unit_test_setup_teardown(test_room, setup, teardown),
		cmocka_unit_test_setup_teardown(test_wrong, setup, teardown),
		cmocka_unit_test_setup_teardown(test_domains, setup, teardown),
		cmocka_unit_test_setup_teardown(test_sender_domain, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_long, setup, teardown),
		cmocka_unit_test_setup_teardown(test_long_ends, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_client_dies, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_sender_dies, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_garbage, setup, teardown),
		cmocka_unit_test_setup_teardown(test_silent, setup, teardown),
		cmocka_unit_test_setup_teardown(test_mems_share, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_crowd, setup, teardown),
		cmocka_unit_test_setup_teardown(test_service_dies, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_service_stops, setup,
						teardown),
	};

	if (!getenv("SKEIN_DEVICE"))
		setenv("SKEIN_DEVICE", "soft", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
