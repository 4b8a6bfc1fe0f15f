/* SPDX-License-Identifier: MIT */
/*
 * Ends of virtual queue pairs, for tests. "server": takes messages, answers none,
 * and frees what has ended; it says how much of each it has had. "client ADDR N":
 * sends a message by each of N vqps, and once more for each line of its input;
 * between lines it calls nothing.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <skein/skein.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RECVS 64u
#define SIZE 64u

static int die(const char *what, int err)
{
	fprintf(stderr, "pool_ends: %s: %s\n", what, skein_strerror(err));
	return 1;
}

static int recv_post(struct skein_vqp *v, struct skein_vqp_mem *mem, uint64_t i)
{
	struct ibv_sge sge = {(uintptr_t)skein_vqp_mem_addr(mem) + i * SIZE,
			      SIZE, skein_vqp_lkey(mem)};
	struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1};
	struct ibv_recv_wr *bad;

	return skein_vqp_post_recv(v, &wr, &bad);
}

static int serve(struct skein_pool *pool, struct skein_vqp *v,
		 struct skein_vqp_mem *mem)
{
	struct pollfd fd = {.fd = skein_pool_fd(pool), .events = POLLIN};
	unsigned messages = 0, ended = 0, said = 0;
	struct skein_vqp_msg m;
	int n;

	for (;;) {
		n = skein_vqp_pop(v, 1, &m);
		if (n < 0)
			return n;
		if (n && m.status == -ECONNRESET) {
			skein_vqp_free(m.from);
			ended++;
		} else if (n && m.status) {
			return m.status;
		} else if (n) {
			messages++;
		}
		if (n) {
			recv_post(v, mem, m.wr_id);
			continue;
		}
		if (messages + ended != said) {
			printf("messages %u ended %u\n", messages, ended);
			fflush(stdout);
		}
		said = messages + ended;
		n = skein_pool_arm(pool);
		if (n < 0)
			return n;
		if (!n)
			poll(&fd, 1, -1);
	}
}

static int server(struct skein_pool *pool)
{
	struct skein_vqp_mem *mem;
	struct skein_vqp *v;
	int err;

	err = skein_vqp_mem_new(pool, (size_t)RECVS * SIZE, 0, &mem);
	if (!err)
		err = skein_vqp_new(pool, &v);
	if (!err)
		err = skein_vqp_bind(v, 1);
	for (uint64_t i = 0; i < RECVS && !err; i++)
		err = recv_post(v, mem, i);
	if (err)
		return die("server", err);
	printf("node %s\n", skein_pool_addr(pool));
	fflush(stdout);
	return die("server", serve(pool, v, mem));
}

static int text_send(struct skein_vqp *v)
{
	char text[] = "goose";
	struct ibv_sge sge = {(uintptr_t)text, sizeof(text), 0};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags =
					 IBV_SEND_INLINE | IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	int n;

	n = skein_vqp_post_send(v, &wr, &bad);
	while (!n)
		n = skein_vqp_poll(v, 1, &wc);
	if (n < 0)
		return n;
	if (wc.status)
		fprintf(stderr, "pool_ends: status %d\n", wc.status);
	return wc.status ? -EIO : 0;
}

static int client(struct skein_pool *pool, const char *to, unsigned n)
{
	struct skein_vqp **v = calloc(n, sizeof(struct skein_vqp *));
	int err = v ? 0 : -ENOMEM;
	char line[8];
	unsigned i;

	for (i = 0; i < n && !err; i++) {
		err = skein_vqp_new(pool, &v[i]);
		if (!err)
			err = skein_vqp_connect(v[i], to, 1, SKEIN_S(10));
	}
	do {
		for (i = 0; i < n && !err; i++)
			err = text_send(v[i]);
		if (err)
			break;
		printf("sent\n");
		fflush(stdout);
	} while (fgets(line, sizeof(line), stdin));
	free(v);
	return err ? die("client", err) : 0;
}

int main(int argc, char **argv)
{
	struct skein_ctx *ctx = NULL;
	struct skein_pool *pool;
	int rc;

	/* a node service's client has no device */
	if (argc < 2 || (!getenv("SKEIN_NODE") && skein_ctx_open(NULL, &ctx)))
		return 1;
	rc = skein_pool_open(ctx, NULL, &pool);
	if (rc)
		return die("pool", rc);
	rc = argc == 4 ? client(pool, argv[2], (unsigned)atoi(argv[3]))
		       : server(pool);
	skein_pool_close(pool);
	if (ctx)
		skein_ctx_close(ctx);
	return rc;
}
