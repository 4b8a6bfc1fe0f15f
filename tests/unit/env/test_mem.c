/* SPDX-License-Identifier: MIT */
/*
 * test_mem.c - shareable memory: whole, sealed, not inherited, and refused
 * rather than promised when there is not enough.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "env/env.h"
#include "unit/cm.h"

static int setup(void **state)
{
	return env_real_new((struct skein_env **)state);
}

static int teardown(void **state)
{
	env_real_free(*state);
	return 0;
}

static void test_whole_and_shared(void **state)
{
	struct skein_env *env = *state;
	const char zeros[10000] = {0};
	struct stat st;
	char *a, *b;
	void *p;
	int fd;

	assert_int_equal(env_mem_alloc(env, "test", sizeof(zeros), &fd, &p), 0);
	a = p;
	assert_memory_equal(a, zeros, sizeof(zeros));
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, 12288);
	/* Allocated, not promised: a hole would be SIGBUS in a peer. */
	assert_true(st.st_blocks * 512 >= st.st_size);
	b = mmap(NULL, 12288, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(b, MAP_FAILED);
	strcpy(b + 9000, "seen");
	assert_string_equal(a + 9000, "seen");
	munmap(b, 12288);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	env_mem_free(env, fd, p, sizeof(zeros));
	assert_int_equal(fcntl(fd, F_GETFD), -1);
}

static void test_peer_cannot_resize(void **state)
{
	struct skein_env *env = *state;
	void *p;
	int fd;

	assert_int_equal(env_mem_alloc(env, "test", 8192, &fd, &p), 0);
	assert_int_equal(ftruncate(fd, 0), -1);
	assert_int_equal(errno, EPERM);
	assert_int_equal(ftruncate(fd, 1 << 20), -1);
	assert_int_equal(fallocate(fd, FALLOC_FL_KEEP_SIZE, 1 << 20, 4096), -1);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	env_mem_free(env, fd, p, 8192);
}

/* A forked child does not have it: it is the parent's device state. */
static void test_not_inherited(void **state)
{
	struct skein_env *env = *state;
	unsigned char in_core;
	int fd, status;
	void *p;
	pid_t pid;

	assert_int_equal(env_mem_alloc(env, "test", 4096, &fd, &p), 0);
	pid = fork();
	if (pid == 0)
		_exit(mincore(p, 4096, &in_core) == -1 && errno == ENOMEM ? 0
									  : 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	env_mem_free(env, fd, p, 4096);
}

static void test_refused(void **state)
{
	struct skein_env *env = *state;
	void *p = state;
	int fd = -7;

	assert_int_equal(env_mem_alloc(env, "t", 0, &fd, &p), -EINVAL);
	assert_int_equal(env_mem_alloc(env, "t", SIZE_MAX, &fd, &p), -ENOMEM);
	assert_int_equal(env_mem_alloc(env, "t", SIZE_MAX / 2, &fd, &p),
			 -ENOMEM);
	/* 64 TiB: more than there is, and nobody is killed for the asking. */
	assert_int_equal(env_mem_alloc(env, "t", 1ull << 46, &fd, &p), -ENOMEM);
	assert_int_equal(fd, -7);
	assert_ptr_equal(p, state);
}

/* An error, and not SIGXFSZ; the program's way with the signal stays. */
static void test_above_the_file_limit(void **state)
{
	struct rlimit old, small = {.rlim_cur = 4096};
	struct skein_env *env = *state;
	struct sigaction was;
	sigset_t set;
	size_t filled;
	void *p;
	int fd;

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	small.rlim_max = old.rlim_max;
	env->log_level = 0; /* errors alone */
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	assert_int_equal(env_mem_alloc(env, "t", 8192, &fd, &p), -EFBIG);
	assert_int_equal(env_mem_reserve(env, "t", 8192, &fd, &p, &filled),
			 -EFBIG);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_int_equal(sigpending(&set), 0);
	assert_false(sigismember(&set, SIGXFSZ));
	assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &set), 0);
	assert_false(sigismember(&set, SIGXFSZ));
	assert_int_equal(sigaction(SIGXFSZ, NULL, &was), 0);
	assert_true(was.sa_handler == SIG_DFL);
}

/* By the kernel's own word; and what is reserved has its pages by use alone. */
static void test_on_demand(void **state)
{
	FILE *f = fopen("/proc/sys/vm/overcommit_memory", "re");
	struct skein_env *env = *state;
	int how = f ? fgetc(f) : EOF, fd;
	struct stat st;
	size_t filled;
	void *p;

	if (f)
		fclose(f);
	assert_int_equal(env_mem_on_demand(env), how == '0' || how == '1');
	assert_int_equal(env_mem_reserve(env, "t", 1 << 20, &fd, &p, &filled),
			 0);
	assert_true(filled == 0);
	if (env_mem_on_demand(env)) {
		((char *)p)[70000] = 1;
		assert_int_equal(((char *)p)[5000], 0);
		assert_int_equal(fstat(fd, &st), 0);
		assert_int_equal(st.st_blocks * 512, 8192);
	}
	env_mem_free(env, fd, p, 1 << 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		T(test_whole_and_shared),     T(test_peer_cannot_resize),
		T(test_not_inherited),	      T(test_refused),
		T(test_above_the_file_limit), T(test_on_demand),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
