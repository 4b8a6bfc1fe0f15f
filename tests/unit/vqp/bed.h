/* SPDX-License-Identifier: MIT */
/*
 * bed.h - what tests of pools and node services share: other processes, a meta
 * server in one of them, receives.
 */
#ifndef SKEIN_TESTS_UNIT_VQP_BED_H
#define SKEIN_TESTS_UNIT_VQP_BED_H

#include "../cm.h"
#include "../patience.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <signal.h>
#include <skein/skein.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define REMOTE                                              \
	(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_ATOMIC)

/* Where the meta server listens; "" before the first. */
static char meta_addr[64];

static inline uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u;
}

static inline void bed_no_log(void *arg, enum skein_log_level level,
			      const char *line)
{
	(void)arg, (void)level, (void)line;
}

static inline struct skein_ctx *ctx_quiet(void)
{
	struct skein_ctx_attr a = {.size = sizeof(a), .log = bed_no_log};
	struct skein_ctx *ctx;

	if (skein_ctx_open(&a, &ctx))
		_exit(1);
	return ctx;
}

/* Of a node that nobody has: the call ends with its deadline, and before that
 * the meta server has to answer. */
static inline int connect_nobody(struct skein_vqp *v, const char *node,
				 uint16_t port)
{
	uint64_t ns = SKEIN_MS(100);
	int err;

	do {
		err = skein_vqp_connect(v, node, port, ns);
		ns *= 2;
	} while ((err == -ENETUNREACH || err == -ETIMEDOUT) &&
		 ns < patience_ns(40));
	return err;
}

/* Runs fn in a process of its own until it has written len bytes to out. */
static inline void start(pid_t *pid, void (*fn)(int out), void *buf, size_t len)
{
	int p[2];

	assert_int_equal(pipe(p), 0);
	*pid = fork();
	if (!*pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(p[0]);
		fn(p[1]);
		_exit(1);
	}
	close(p[1]);
	assert_true(read(p[0], buf, len) > 0);
	close(p[0]);
}

static inline void reap(pid_t *pid)
{
	if (!*pid)
		return;
	kill(*pid, SIGKILL);
	waitpid(*pid, NULL, 0);
	*pid = 0;
}

/* At meta_addr, if that is known. */
static inline void meta_main(int out)
{
	const char *at = meta_addr[0] ? meta_addr : "127.0.0.1:0";
	struct skein_ctx *ctx = ctx_quiet();
	struct skein_meta *meta;
	uint64_t end = now_ms() + patience_ms(30);
	int err;

	/* the port of one that was just killed may need a moment */
	while ((err = skein_meta_open(ctx, at, 64, &meta)) && now_ms() < end)
		usleep(20000);
	if (err || write(out, skein_meta_addr(meta),
			 strlen(skein_meta_addr(meta)) + 1) < 0)
		_exit(1);
	for (;;) {
		skein_engine_run(skein_ctx_engine(ctx), SKEIN_MS(50));
		skein_meta_progress(meta, NULL);
	}
}

/* The i-th 256 bytes of m. */
static inline int recv_post(struct skein_vqp *v, struct skein_vqp_mem *m,
			    uint64_t i)
{
	struct ibv_sge sge = {(uintptr_t)skein_vqp_mem_addr(m) + i * 256, 256,
			      skein_vqp_lkey(m)};
	struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1};
	struct ibv_recv_wr *bad;

	return skein_vqp_post_recv(v, &wr, &bad);
}

#endif
