/* SPDX-License-Identifier: MIT */
/*
 * open.c - groups that come and go, a process a member.
 *
 *	open RECEIVERS ROUNDS
 *
 * Prints, a group a line, the milliseconds from when all members are about to
 * open it until the last has, and those of processor that all have taken for it
 * (each until it had opened it): half of these is the least that two cores need.
 */
#include "ranks.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#define PATIENCE SKEIN_S(60)

static struct {
	pthread_barrier_t barrier;
	uint64_t begun_ns; /* the barrier is behind it */
	_Atomic uint64_t took_ns, used_ns;
} * shared;

static uint64_t used_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Before there are others. */
static int shared_make(unsigned n)
{
	pthread_barrierattr_t attr;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return -1;
	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	return pthread_barrier_init(&shared->barrier, &attr, n) ? -1 : 0;
}

/* By the last member. */
static void opened(uint64_t used)
{
	uint64_t ns = now_ns() - shared->begun_ns;
	uint64_t most = atomic_load(&shared->took_ns);

	atomic_fetch_add(&shared->used_ns, used_ns() - used);
	while (most < ns &&
	       !atomic_compare_exchange_weak(&shared->took_ns, &most, ns))
		;
}

static void rounds(struct skein_ctx *ctx, unsigned rank, char **argv)
{
	struct skein_mcast_attr attr = {.size = sizeof(attr),
					.members = ranks_members(),
					.count = 1 + (unsigned)atoi(argv[1]),
					.rank = rank,
					.open_timeout_ns = PATIENCE};
	struct skein_mcast *group;
	uint64_t used;

	for (int i = 0; i < atoi(argv[2]); i++) {
		if (!rank)
			shared->begun_ns = now_ns();
		pthread_barrier_wait(&shared->barrier);
		used = used_ns();
		must("open", skein_mcast_open(ctx, &attr, &group));
		opened(used);
		must("close", skein_mcast_close(group, PATIENCE));
		/* Nobody is on the way to the next before this is told. */
		pthread_barrier_wait(&shared->barrier);
		if (!rank)
			printf("%.3f %.3f\n",
			       (double)atomic_exchange(&shared->took_ns, 0) *
				       1e-6,
			       (double)atomic_exchange(&shared->used_ns, 0) *
				       1e-6);
	}
}

static int receiver(unsigned rank, void *arg)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr)};
	struct skein_ctx *ctx;

	must("ctx", skein_ctx_open(&attr, &ctx));
	ranks_meet(ctx, rank);
	rounds(ctx, rank, arg);
	skein_ctx_close(ctx);
	return 0;
}

int main(int argc, char **argv)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr)};
	struct skein_ctx *ctx;
	unsigned n = argc == 3 ? 1 + (unsigned)atoi(argv[1]) : 0;

	if (n < 2 || n > RANKS_MAX) {
		fprintf(stderr, "usage: open RECEIVERS ROUNDS\n");
		return 2;
	}
	if (shared_make(n) || ranks_start(n, receiver, argv))
		return 1;
	must("ctx", skein_ctx_open(&attr, &ctx));
	rounds(ctx, 0, argv);
	skein_ctx_close(ctx);
	return ranks_end();
}
