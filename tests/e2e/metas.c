/* SPDX-License-Identifier: MIT */
/*
 * Pools for tests. "nodes N PORT": pools with that port and 8 bytes that peers
 * READ. "client": connects to each node that a line of its input names, and READs
 * its bytes; it goes on between lines. Two more words of a line: milliseconds to
 * connect in, and the port.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <poll.h>
#include <skein/skein.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define POOLS 16u

static uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

/* The number behind the last colon of a node's address. */
static uint64_t number_of(const char *addr)
{
	return strtoull(strrchr(addr, ':') + 1, NULL, 10);
}

static int die(const char *what, int err)
{
	fprintf(stderr, "metas: %s: %s\n", what, skein_strerror(err));
	return 1;
}

static int nodes(struct skein_ctx *ctx, unsigned n, uint16_t port)
{
	struct skein_pool *pool[POOLS];
	struct skein_vqp_mem *mem;
	struct skein_vqp *v;
	unsigned i;
	int err;

	for (i = 0; i < n && i < POOLS; i++) {
		err = skein_pool_open(ctx, NULL, &pool[i]);
		if (!err)
			err = skein_vqp_mem_new(pool[i], 8,
						IBV_ACCESS_REMOTE_READ, &mem);
		if (!err)
			err = skein_vqp_new(pool[i], &v);
		if (!err)
			err = skein_vqp_bind(v, port);
		if (err)
			return die("pool", err);
		*(uint64_t *)skein_vqp_mem_addr(mem) =
			number_of(skein_pool_addr(pool[i]));
		printf("node %s %" PRIu64 " %u\n", skein_pool_addr(pool[i]),
		       skein_vqp_raddr(mem), skein_vqp_rkey(mem));
	}
	printf("all\n");
	fflush(stdout);
	for (;;) {
		for (i = 0; i < n; i++)
			skein_pool_progress(pool[i]);
		poll(NULL, 0, 1);
	}
}

static int bytes_read(struct skein_pool *pool, struct skein_vqp *v,
		      struct skein_vqp_mem *mem, uint64_t addr, uint32_t rkey)
{
	struct ibv_sge sge = {(uintptr_t)skein_vqp_mem_addr(mem), 8,
			      skein_vqp_lkey(mem)};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_READ,
				 .send_flags = IBV_SEND_SIGNALED};
	uint64_t end = now_us() + 10000000;
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	int err, n = 0;

	wr.wr.rdma.remote_addr = addr;
	wr.wr.rdma.rkey = rkey;
	err = skein_vqp_post_send(v, &wr, &bad);
	if (err)
		return err;
	while (!n && now_us() < end)
		n = skein_vqp_poll(v, 1, &wc);
	if (n != 1)
		return n < 0 ? n : -ETIMEDOUT;
	if (wc.status == IBV_WC_REM_ACCESS_ERR)
		return -EACCES;
	return wc.status ? -EIO : 0;
}

static void visit(struct skein_pool *pool, struct skein_vqp_mem *mem,
		  const char *line)
{
	uint64_t addr, *word = skein_vqp_mem_addr(mem), from, ms = 10000;
	struct skein_vqp *v;
	uint16_t port = 1;
	uint32_t rkey;
	char to[96];
	int err;

	if (sscanf(line, "%95s %" SCNu64 " %u %" SCNu64 " %" SCNu16, to, &addr,
		   &rkey, &ms, &port) < 3)
		return;
	*word = 0;
	err = skein_vqp_new(pool, &v);
	if (err) {
		die(to, err);
		return;
	}
	from = now_us();
	err = skein_vqp_connect(v, to, port, SKEIN_MS(ms));
	from = now_us() - from;
	if (!err)
		err = bytes_read(pool, v, mem, addr, rkey);
	if (!err && *word != number_of(to))
		err = -EBADMSG;
	if (err)
		printf("failed %s: %s\n", to, skein_strerror(err));
	else
		printf("connected %s in %" PRIu64 " us\n", to, from);
	fflush(stdout);
	skein_vqp_free(v);
}

static int client(struct skein_ctx *ctx)
{
	struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
	struct skein_vqp_mem *mem;
	struct skein_pool *pool;
	char line[256];
	int err;

	setvbuf(stdin, NULL, _IONBF, 0); /* poll() sees all that is there */
	err = skein_pool_open(ctx, NULL, &pool);
	if (!err)
		err = skein_vqp_mem_new(pool, 8, 0, &mem);
	if (err)
		return die("pool", err);
	printf("client\n");
	fflush(stdout);
	for (;;) {
		skein_pool_progress(pool);
		if (poll(&in, 1, 1) <= 0)
			continue;
		if (!fgets(line, sizeof(line), stdin))
			break;
		visit(pool, mem, line);
	}
	skein_vqp_mem_free(mem);
	skein_pool_close(pool);
	return 0;
}

int main(int argc, char **argv)
{
	struct skein_ctx *ctx = NULL;
	int rc;

	/* a node service's client has no device */
	if (argc < 2 || (!getenv("SKEIN_NODE") && skein_ctx_open(NULL, &ctx)))
		return 1;
	if (!strcmp(argv[1], "nodes") && argc == 4)
		return nodes(ctx, (unsigned)atoi(argv[2]),
			     (uint16_t)atoi(argv[3]));
	rc = client(ctx);
	if (ctx)
		skein_ctx_close(ctx);
	return rc;
}
