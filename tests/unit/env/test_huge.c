/* SPDX-License-Identifier: MIT */
/*
 * test_huge.c - memory of huge pages: taken as the option says, whole, counted,
 * given back; and what is promised where there are none, which is tested on
 * every machine by asking for more than there are.
 */
#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "env/env.h"
#include "unit/cm.h"
#include "unit/hugepool.h"

#define PAGES 3

struct world {
	struct skein_env *env;
	struct hugepool pool;
	bool huge;   /* PAGES are free */
	size_t page; /* bytes of one; 0: this kernel has none */
	int lines;   /* logged */
	enum env_log_level level;
	char line[400];
};

static void keep_line(void *arg, enum env_log_level level, const char *msg)
{
	struct world *w = arg;

	w->lines++;
	w->level = level;
	snprintf(w->line, sizeof(w->line), "%s", msg);
}

static int setup(void **state)
{
	static struct world w;
	long kib;

	memset(&w, 0, sizeof(w));
	w.huge = hugepool_open(&w.pool, PAGES) >= PAGES;
	kib = hugepool_row("Hugepagesize");
	w.page = kib > 0 ? (size_t)kib << 10 : 0;
	*state = &w;
	if (env_real_new(&w.env))
		return -1;
	w.env->log = keep_line;
	w.env->log_arg = &w;
	w.env->log_level = ENV_LOG_DEBUG;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	env_real_free(w->env);
	hugepool_close(&w->pool);
	return 0;
}

/* KiB of huge pages that this process has mapped and touched. */
static long huge_kib(void)
{
	FILE *f = fopen("/proc/self/status", "re");
	char line[128];
	long v = 0;

	while (f && fgets(line, sizeof(line), f))
		sscanf(line, "HugetlbPages: %ld", &v);
	if (f)
		fclose(f);
	return v;
}

static void test_words(void **state)
{
	enum env_huge huge = ENV_HUGE_ON;

	assert_int_equal(env_huge_parse(NULL, &huge), 0);
	assert_int_equal(huge, ENV_HUGE_OFF);
	assert_int_equal(env_huge_parse("auto", &huge), 0);
	assert_int_equal(huge, ENV_HUGE_AUTO);
	assert_int_equal(env_huge_parse("on", &huge), 0);
	assert_int_equal(huge, ENV_HUGE_ON);
	assert_int_equal(env_huge_parse("", &huge), 0);
	assert_int_equal(huge, ENV_HUGE_OFF);
	huge = ENV_HUGE_ON;
	assert_int_equal(env_huge_parse("yes", &huge), -EINVAL);
	assert_int_equal(huge, ENV_HUGE_ON);
	assert_string_equal(env_huge_name(ENV_HUGE_AUTO), "auto");
}

/* A caller that has not asked for huge pages gets none. */
static void test_off(void **state)
{
	struct world *w = *state;
	size_t len = w->page ? w->page : 2u << 20;
	void *p;
	int fd;

	assert_int_equal(env_mem_alloc(w->env, "off", len, &fd, &p), 0);
	assert_int_equal(env_mem_page(fd), sysconf(_SC_PAGESIZE));
	env_mem_free(w->env, fd, p, len);
	assert_int_equal(w->lines, 0);
}

static void check_small(struct world *w, size_t len)
{
	struct stat st;
	void *p;
	int fd;

	assert_int_equal(env_mem_alloc(w->env, "small", len, &fd, &p), 0);
	assert_int_equal(env_mem_page(fd), sysconf(_SC_PAGESIZE));
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, len);
	env_mem_free(w->env, fd, p, len);
}

/* A byte more than a page takes two, and both come back. */
static void check_huge(struct world *w)
{
	size_t len = w->page + 1;
	struct stat st;
	char *a, *b;
	void *p;
	int fd;

	assert_int_equal(env_mem_alloc(w->env, "huge", len, &fd, &p), 0);
	assert_int_equal(env_mem_page(fd), w->page);
	assert_int_equal((uintptr_t)p % w->page, 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, 2 * w->page);
	/* Allocated, not promised. */
	assert_true(st.st_blocks * 512 >= st.st_size);
	assert_int_equal(ftruncate(fd, 0), -1);
	assert_int_equal(errno, EPERM);
	a = p;
	a[0] = a[w->page] = 1;
	assert_int_equal(huge_kib(), 2 * (w->page >> 10));
	b = mmap(NULL, 2 * w->page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(b, MAP_FAILED);
	b[w->page] = 7;
	assert_int_equal(a[w->page], 7);
	munmap(b, 2 * w->page);
	env_mem_free(w->env, fd, p, len);
	assert_int_equal(huge_kib(), 0);
	assert_int_equal(mincore(p, 4096, (unsigned char *)&len), -1);
}

/* Not by mincore(2): what the child itself maps may lie in the same place. */
static bool is_mapped(const char *file)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	bool found = false;

	while (maps && fgets(line, sizeof(line), maps))
		found |= strstr(line, file) != NULL;
	if (maps)
		fclose(maps);
	return !maps || found;
}

static void check_not_inherited(struct world *w)
{
	int fd, status;
	pid_t pid;
	void *p;

	assert_int_equal(env_mem_alloc(w->env, "huge", w->page, &fd, &p), 0);
	assert_true(is_mapped("/memfd:huge"));
	pid = fork();
	if (pid == 0)
		_exit(is_mapped("/memfd:huge"));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	env_mem_free(w->env, fd, p, w->page);
}

static void test_taken(void **state)
{
	struct world *w = *state;

	w->env->huge = ENV_HUGE_AUTO;
	check_small(w, 8192);
	assert_int_equal(w->lines, 0);
	if (w->huge) {
		check_huge(w);
		check_not_inherited(w);
		w->env->huge = ENV_HUGE_ON;
		check_huge(w);
		check_small(w, 8192);
	}
	assert_int_equal(w->lines, 0);
}

/* More than there are: the option decides. */
static size_t too_much(struct world *w)
{
	long n = hugepool_row("HugePages_Free");

	return (size_t)(n < 0 ? 1 : n + 1) * (w->page ? w->page : 2u << 20);
}

static void test_auto_does_without(void **state)
{
	struct world *w = *state;
	size_t len = too_much(w);
	int i, fd;
	char *a;
	void *p;

	w->env->huge = ENV_HUGE_AUTO;
	for (i = 0; i < 2; i++) {
		assert_int_equal(env_mem_alloc(w->env, "auto", len, &fd, &p),
				 0);
		assert_int_equal(env_mem_page(fd), sysconf(_SC_PAGESIZE));
		a = p;
		assert_int_equal(a[len - 1], 0);
		a[len - 1] = 1;
		env_mem_free(w->env, fd, p, len);
	}
	assert_int_equal(huge_kib(), 0);
	if (!w->page)
		return;
	/* said, and not again */
	assert_int_equal(w->lines, 1);
	assert_int_equal(w->level, ENV_LOG_INFO);
	assert_non_null(strstr(w->line, "SKEIN_HUGEPAGES=auto"));
}

static void test_on_refuses(void **state)
{
	struct world *w = *state;
	size_t len = too_much(w);
	void *p = state;
	int fd = -7;

	w->env->huge = ENV_HUGE_ON;
	assert_true(env_mem_alloc(w->env, "on", len, &fd, &p) < 0);
	assert_int_equal(fd, -7);
	assert_ptr_equal(p, state);
	assert_int_equal(w->lines, 1);
	assert_int_equal(w->level, ENV_LOG_ERROR);
	if (w->page)
		assert_non_null(strstr(w->line, "vm.nr_hugepages"));
	/* what was taken on the way is back: the same again, to the page */
	if (w->huge)
		check_huge(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		T(test_words),	    T(test_off),
		T(test_taken),	    T(test_auto_does_without),
		T(test_on_refuses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
