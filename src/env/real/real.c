/* SPDX-License-Identifier: MIT */
/*
 * real.c - the real world: clock, randomness, log, and the table of functions.
 *
 * The clock is clock_gettime(CLOCK_MONOTONIC) through the vDSO, not the TSC.
 * The vDSO reads the TSC too, but the kernel scales it, NTP slews it, and it
 * never goes back across cores or after a suspend.
 */
#ifdef __x86_64__
#include <cpuid.h>
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "env/membarrier.h"
#include "env/real/real.h"

#define FORK_PAGE 4096u

static uint64_t real_now_ns(struct skein_env *env)
{
	struct timespec ts;

	(void)env;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* What is left where getrandom(2) is refused. */
static ssize_t random_file(void *buf, size_t len)
{
	int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -1;
	n = read(fd, buf, len);
	close(fd);
	return n;
}

#ifdef __x86_64__
static __attribute__((target("rdrnd"))) ssize_t random_core(void *buf,
							    size_t len)
{
	size_t part = len < sizeof(unsigned long long)
			      ? len
			      : sizeof(unsigned long long);
	unsigned a, b, c, d;
	unsigned long long v;

	if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_RDRND) ||
	    !__builtin_ia32_rdrand64_step(&v))
		return -1;
	memcpy(buf, &v, part);
	return (ssize_t)part;
}
#else
static ssize_t random_core(void *buf, size_t len)
{
	(void)buf;
	(void)len;
	return -1;
}
#endif

static void real_random(struct skein_env *env, void *buf, size_t len)
{
	unsigned char *p = buf;
	ssize_t n;

	(void)env;
	while (len) {
		n = getrandom(p, len, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			n = random_file(p, len);
		if (n <= 0)
			n = random_core(p, len);
		/* A predictable secret would be worse than no process. */
		skein_assert(n > 0);
		p += n;
		len -= (size_t)n;
	}
}

static uint32_t real_pid(struct skein_env *env)
{
	(void)env;
	return (uint32_t)getpid();
}

static void real_log(void *arg, enum env_log_level level, const char *msg)
{
	static const char *const names[] = {"error", "warning", "info",
					    "debug"};

	(void)arg;
	/* One write call per line, so lines of several threads do not mix. */
	fprintf(stderr, "skein: %s: %s\n", names[level], msg);
}

static const struct env_ops real_ops = {
	.now_ns = real_now_ns,
	.charge = NULL,
	.random = real_random,
	.pid = real_pid,
	.thread_start = real_thread_start,
	.thread_join = real_thread_join,
	.thread_on_exit = real_thread_on_exit,
	.thread_off_exit = real_thread_off_exit,
	.yield = real_yield,
	.mutex_init = real_mutex_init,
	.mutex_fini = real_mutex_fini,
	.mutex_lock = real_mutex_lock,
	.mutex_unlock = real_mutex_unlock,
	.waiter_new = real_waiter_new,
	.waiter_free = real_waiter_free,
	.idle = real_idle,
	.core_wanted = real_core_wanted,
	.idle_yields = real_idle_yields,
	.waiter_arm = real_waiter_arm,
	.waiter_disarm = real_waiter_disarm,
	.waiter_sleep = real_waiter_sleep,
	.waiter_wake = real_waiter_wake,
	.waiter_watch = real_waiter_watch,
	.waiter_unwatch = real_waiter_unwatch,
	.waiter_ready = real_waiter_ready,
	.waiter_ready_fds = real_waiter_ready_fds,
	.waiter_saw = real_waiter_saw,
	.waiter_fd = real_waiter_fd,
	.mem_alloc = real_mem_alloc,
	.mem_free = real_mem_free,
	.mem_reserve = real_mem_reserve,
	.mem_on_demand = real_mem_on_demand,
	.mem_fill = real_mem_fill,
	.mem_drop = real_mem_drop,
	.resolve = real_resolve,
	.sock_listen = real_sock_listen,
	.sock_connect = real_sock_connect,
	.sock_error = real_sock_error,
	.sock_accept = real_sock_accept,
	.sock_name = real_sock_name,
	.sock_send = real_sock_send,
	.sock_recv = real_sock_recv,
	.sock_close = real_sock_close,
};

/* A page that the kernel empties in a forked child. Before Linux 4.14 it does
 * not, and forks go unnoticed. */
static int fork_mark_new(const volatile uint32_t **mark)
{
	uint32_t *page = mmap(NULL, FORK_PAGE, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED)
		return -errno;
	if (madvise(page, FORK_PAGE, MADV_WIPEONFORK)) {
		munmap(page, FORK_PAGE);
		return 0;
	}
	*page = 1;
	*mark = page;
	return 0;
}

static void real_fence_all(void)
{
	membarrier_fence(MEMBARRIER_PROCESS);
}

int env_real_new(struct skein_env **env)
{
	struct real_env *real = calloc(1, sizeof(*real));

	int rc;

	if (!real)
		return -ENOMEM;
	rc = fork_mark_new(&real->env.fork_mark);
	if (rc) {
		free(real);
		return rc;
	}
	real->env.ops = &real_ops;
	real->env.log = real_log;
	real->env.log_level = ENV_LOG_WARN;
	if (!membarrier_register(MEMBARRIER_PROCESS))
		real->env.fence_all = real_fence_all;
	*env = &real->env;
	return 0;
}

void env_real_free(struct skein_env *env)
{
	if (!env)
		return;
	if (env->fork_mark)
		munmap((void *)env->fork_mark, FORK_PAGE);
	free(real_env_of(env));
}
