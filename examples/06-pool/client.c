/* SPDX-License-Identifier: MIT */
/*
 * 06-pool, client: connects a virtual queue pair to a port of a node, sends a
 * message and waits for the answer; then once more, when the node is known. What
 * is connected is an ibv_qp: requests and completions go through libibverbs' own
 * calls, which need no libibverbs at link time.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <skein/skein.h>

#define TIMEOUT SKEIN_S(5)
#define PORT 1

static uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

static int send_text(struct ibv_qp *qp, char *text)
{
	struct ibv_sge sge = {(uintptr_t)text, (uint32_t)strlen(text) + 1, 0};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_INLINE};
	struct ibv_send_wr *bad;

	return -ibv_post_send(qp, &wr, &bad);
}

/* What became of the message or of the receive, in words. */
static const char *status_text(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_RETRY_EXC_ERR:
		return "the node does not answer";
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return "nobody receives at the port";
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_REM_INV_REQ_ERR:
	case IBV_WC_REM_OP_ERR:
		return "the node refuses it";
	case IBV_WC_LOC_LEN_ERR:
		return "it is longer than the buffer";
	case IBV_WC_WR_FLUSH_ERR:
		return "the connection has ended";
	default:
		return "see enum ibv_wc_status";
	}
}

static int recv_post(struct ibv_qp *qp, struct skein_vqp_mem *mem)
{
	struct ibv_sge sge = {(uintptr_t)skein_vqp_mem_addr(mem), 256,
			      skein_vqp_lkey(mem)};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1};
	struct ibv_recv_wr *bad;

	return -ibv_post_recv(qp, &wr, &bad);
}

static int answer_wait(struct ibv_qp *qp, struct skein_vqp_mem *mem)
{
	uint64_t end = now_us() + 5000000;
	struct ibv_wc wc;
	int n = 0;

	while (!n && now_us() < end)
		n = ibv_poll_cq(qp->recv_cq, 1, &wc);
	if (n != 1)
		return n < 0 ? n : -ETIMEDOUT;
	if (wc.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "client: completion status %d: %s\n", wc.status,
			status_text(wc.status));
		return -EIO;
	}
	printf("client: \"%s\"\n", (char *)skein_vqp_mem_addr(mem));
	return 0;
}

static int talk(struct skein_pool *pool, const char *node, char *text)
{
	struct skein_vqp_mem *mem;
	struct skein_vqp *vqp;
	struct ibv_qp *qp;
	uint64_t from;
	int err;

	err = skein_vqp_mem_new(pool, 256, 0, &mem);
	if (!err)
		err = skein_vqp_new(pool, &vqp);
	if (err)
		return err;
	qp = skein_vqp_ibv_qp(vqp);
	from = now_us();
	err = skein_vqp_connect(vqp, node, PORT, TIMEOUT);
	if (!err) {
		printf("client: connected in %u us\n",
		       (unsigned)(now_us() - from));
		err = recv_post(qp, mem);
	}
	if (!err)
		err = send_text(qp, text);
	if (!err)
		err = answer_wait(qp, mem);
	skein_vqp_free(vqp);
	skein_vqp_mem_free(mem);
	return err;
}

int main(int argc, char **argv)
{
	struct skein_pool_attr attr = {.size = sizeof(attr),
				       .meta = argc > 2 ? argv[2] : NULL};
	char first[] = "hello", second[] = "hello again";
	struct skein_pool *pool;
	struct skein_ctx *ctx;
	int err;

	if (argc < 2) {
		fprintf(stderr, "usage: client NODE [META]\n");
		return 2;
	}
	err = skein_ctx_open(NULL, &ctx);
	if (err)
		goto err_out;
	err = skein_pool_open(ctx, &attr, &pool);
	if (err)
		goto err_ctx;
	err = talk(pool, argv[1], first);
	if (!err)
		err = talk(pool, argv[1], second);
	skein_pool_close(pool);
err_ctx:
	skein_ctx_close(ctx);
err_out:
	if (err)
		fprintf(stderr, "client: %s\n", skein_strerror(err));
	return err ? 1 : 0;
}
