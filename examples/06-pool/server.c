/* SPDX-License-Identifier: MIT */
/*
 * 06-pool, server: binds a port of its node and answers each message. It holds
 * nothing for clients that it has not heard of, and no queue pair for any.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <skein/skein.h>

#define PORT 1
#define RECVS 64
#define SIZE 256u

static struct skein_stop *stop;

static void on_signal(int sig)
{
	(void)sig;
	skein_stop_set(stop);
}

static int recv_post(struct skein_vqp *vqp, struct skein_vqp_mem *mem,
		     uint64_t slot)
{
	char *at = (char *)skein_vqp_mem_addr(mem) + slot * SIZE;
	struct ibv_sge sge = {(uintptr_t)at, SIZE, skein_vqp_lkey(mem)};
	struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1};
	struct ibv_recv_wr *bad;

	return skein_vqp_post_recv(vqp, &wr, &bad);
}

/* The sender's vqp comes with its message: no connection was made for it. */
static int answer(const struct skein_vqp_msg *m)
{
	char text[] = "hello back";
	struct ibv_sge sge = {(uintptr_t)text, sizeof(text), 0};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_INLINE};
	struct ibv_send_wr *bad;

	return m->from ? skein_vqp_post_send(m->from, &wr, &bad) : m->status;
}

/* Until there may be a message, or the stop. The program's other descriptors go
 * here too. */
static int sleep_on(struct skein_pool *pool)
{
	struct pollfd fds[] = {
		{.fd = skein_pool_fd(pool), .events = POLLIN},
		{.fd = skein_stop_fd(stop), .events = POLLIN},
	};
	int n;

	if (fds[0].fd < 0)
		return fds[0].fd;
	/* most messages arrive in memory: arm before each sleep */
	n = skein_pool_arm(pool);
	if (n)
		return n < 0 ? n : 0;
	return poll(fds, 2, -1) < 0 && errno != EINTR ? -errno : 0;
}

static int serve(struct skein_pool *pool, struct skein_vqp *vqp,
		 struct skein_vqp_mem *mem)
{
	struct skein_vqp_msg msg;
	int n;

	while (!skein_stop_is_set(stop)) {
		n = skein_vqp_pop(vqp, 1, &msg);
		if (!n)
			n = sleep_on(pool);
		if (n < 0)
			return n;
		if (!n)
			continue;
		if (msg.status == -ECONNRESET) {
			/* the sender has freed its vqp: this end's is of no
			 * use any more */
			skein_vqp_free(msg.from);
		} else {
			printf("server: \"%.*s\"\n", (int)msg.len,
			       (char *)skein_vqp_mem_addr(mem) +
				       msg.wr_id * SIZE);
			fflush(stdout);
			answer(&msg);
		}
		recv_post(vqp, mem, msg.wr_id);
	}
	return 0;
}

static int listen_at(struct skein_pool *pool, struct skein_vqp_mem *mem,
		     struct skein_vqp **vqp)
{
	uint64_t i;
	int err;

	err = skein_vqp_new(pool, vqp);
	if (err)
		return err;
	err = skein_vqp_bind(*vqp, PORT);
	for (i = 0; i < RECVS && !err; i++)
		err = recv_post(*vqp, mem, i);
	if (err)
		skein_vqp_free(*vqp);
	return err;
}

/* Through a node service: its death ends the vqp, not the pool and its memory.
 * The pool attaches again as soon as another service is there. */
static int run(struct skein_pool *pool, struct skein_vqp_mem *mem)
{
	const struct timespec pause = {.tv_nsec = 10000000};
	struct skein_vqp *vqp;
	bool told = false;
	int err;

	do {
		err = listen_at(pool, mem, &vqp);
		if (!err) {
			printf("server: node %s, port %d\n",
			       skein_pool_addr(pool), PORT);
			fflush(stdout);
			told = false;
			err = serve(pool, vqp, mem);
			skein_vqp_free(vqp);
		}
		if (err == -SKEIN_EDEAD && !told) {
			printf("server: the node service is gone\n");
			fflush(stdout);
			told = true;
		}
		if (err == -SKEIN_EDEAD)
			nanosleep(&pause, NULL);
	} while (err == -SKEIN_EDEAD && !skein_stop_is_set(stop));
	return err == -SKEIN_EDEAD ? 0 : err;
}

int main(int argc, char **argv)
{
	struct skein_pool_attr attr = {.size = sizeof(attr),
				       .meta = argc > 1 ? argv[1] : NULL};
	struct skein_vqp_mem *mem;
	struct skein_pool *pool;
	struct skein_ctx *ctx;
	int err;

	if (argc > 2 || (argc > 1 && argv[1][0] == '-')) {
		fprintf(stderr, "usage: server [META]\n");
		return 2;
	}
	err = skein_stop_new(&stop);
	if (err)
		goto err_out;
	signal(SIGTERM, on_signal);
	signal(SIGINT, on_signal);
	err = skein_ctx_open(NULL, &ctx);
	if (err)
		goto err_out;
	err = skein_pool_open(ctx, &attr, &pool);
	if (err)
		goto err_ctx;
	err = skein_vqp_mem_new(pool, RECVS * SIZE, 0, &mem);
	if (!err)
		err = run(pool, mem);
	skein_pool_close(pool);
err_ctx:
	skein_ctx_close(ctx);
err_out:
	if (err)
		fprintf(stderr, "server: %s\n", skein_strerror(err));
	return err ? 1 : 0;
}
