/* SPDX-License-Identifier: MIT */
/*
 * test_window.c - the window of the verbs interposer: what it gives out and
 * takes back, what it says of files, and that a forked child has a copy.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "bind/verbs/window.h"
#include "sandbox.h"

#define KIB 1024ul
#define MIB (1024 * KIB)

static struct window *fresh(void)
{
	static const struct window init = WINDOW_INIT;
	/* one at a time: what it maps stays with the process */
	static struct window w;

	w = init;
	return &w;
}

static bool all(const char *p, size_t len, char c)
{
	size_t i;

	for (i = 0; i < len; i++)
		if (p[i] != c)
			return false;
	return true;
}

static void gives_and_takes(void **state)
{
	struct window *w = fresh();
	char *a, *b, *c;

	assert_false(window_has(w, w));
	a = window_alloc(w, 200 * KIB, 1, WINDOW_HEAP, false);
	b = window_alloc(w, 1, 1, WINDOW_HEAP, false);
	assert_non_null(a);
	assert_non_null(b);
	assert_true(window_has(w, a) && window_has(w, b + 1));
	assert_false(window_has(w, w));
	memset(a, 1, 200 * KIB);
	memset(b, 2, 1);
	assert_true(window_usable(w, a) >= 200 * KIB);
	assert_true(b >= a + 200 * KIB || b < a);
	window_free(w, a);
	c = window_alloc(w, 100 * KIB, 1, WINDOW_HEAP, false);
	assert_ptr_equal(c, a); /* the lowest place */
	assert_int_equal(*b, 2);
	assert_int_equal(w->used, 3);
}

static void aligns(void **state)
{
	struct window *w = fresh();
	size_t align;
	char *p;

	for (align = 4096; align <= WINDOW_ALIGN_MAX; align *= 2) {
		p = window_alloc(w, 3 * KIB, align, WINDOW_HEAP, false);
		assert_non_null(p);
		assert_int_equal((uintptr_t)p % align, 0);
		assert_true(all(p, 3 * KIB, 0));
	}
	assert_null(window_alloc(w, 1, 2 * WINDOW_ALIGN_MAX, WINDOW_HEAP, 0));
	assert_null(
		window_alloc(w, WINDOW_SPAN_MAX + 1, 1, WINDOW_HEAP, false));
	assert_null(window_alloc(w, WINDOW_SPAN_MAX, 1, WINDOW_HEAP, false));
}

/* A caller that asks for zeros does not see what an earlier owner left. */
static void zeroes(void **state)
{
	struct window *w = fresh();
	char *p, *q;

	p = window_alloc(w, MIB, 1, WINDOW_HEAP, false);
	memset(p, 7, MIB);
	window_free(w, p);
	assert_int_equal(w->dirty, MIB);
	q = window_alloc(w, MIB, 1, WINDOW_HEAP, true);
	assert_ptr_equal(q, p);
	assert_true(all(q, MIB, 0));
	assert_int_equal(w->dirty, 0);
	memset(q, 7, MIB);
	assert_int_equal(window_clean(w, q + 4096, 8192), 0);
	assert_true(all(q, 4096, 7));
	assert_true(all(q + 4096, 8192, 0));
	assert_true(all(q + 12288, 4096, 7));
}

/* More than is kept goes back to the system at once. */
static void gives_back(void **state)
{
	size_t len = WINDOW_DIRTY_MAX + WINDOW_UNIT;
	struct window *w = fresh();
	char *p;

	p = window_alloc(w, len, 1, WINDOW_HEAP, false);
	memset(p, 7, len);
	window_free(w, p);
	assert_int_equal(w->dirty, 0);
	assert_int_equal(lseek(w->fd, 0, SEEK_DATA), -1);
	assert_int_equal(errno, ENXIO);
	/* locked memory too, which the kernel does not give back so */
	p = window_alloc(w, len, 1, WINDOW_HEAP, false);
	*p = 7;
	if (!mlock(p, 4096)) {
		window_free(w, p);
		assert_ptr_equal(window_alloc(w, len, 1, WINDOW_HEAP, 0), p);
		assert_int_equal(*p, 0);
	}
}

static void unmaps_by_pages(void **state)
{
	struct window *w = fresh();
	char *p, *q;

	p = window_alloc(w, 3 * WINDOW_UNIT - 4096, 1, WINDOW_MAP, true);
	assert_int_equal(w->used, 3);
	memset(p, 1, 3 * WINDOW_UNIT - 4096);
	/* a hole in the middle unit, then what is around it */
	window_unmap(w, p + WINDOW_UNIT + 4096, 4096);
	assert_int_equal(w->used, 3);
	assert_int_equal(p[WINDOW_UNIT], 1);
	assert_int_equal(p[WINDOW_UNIT + 8192], 1);
	window_unmap(w, p, WINDOW_UNIT);
	assert_int_equal(w->used, 2);
	/* again: nothing there is ours any more */
	window_unmap(w, p, WINDOW_UNIT);
	assert_int_equal(w->used, 2);
	q = window_alloc(w, WINDOW_UNIT, 1, WINDOW_HEAP, true);
	assert_ptr_equal(q, p);
	window_unmap(w, q, WINDOW_UNIT); /* not a mapping: left alone */
	assert_int_equal(w->used, 3);
	window_unmap(w, p + WINDOW_UNIT, 2 * WINDOW_UNIT - 4096);
	assert_int_equal(w->used, 1);
	/* protected by its owner, it is whole again for the next */
	p = window_alloc(w, WINDOW_UNIT, 1, WINDOW_MAP, true);
	assert_int_equal(mprotect(p, WINDOW_UNIT, PROT_NONE), 0);
	window_unmap(w, p, WINDOW_UNIT);
	q = window_alloc(w, WINDOW_UNIT, 1, WINDOW_MAP, true);
	assert_ptr_equal(p, q);
	assert_true(all(q, WINDOW_UNIT, 0));
	memset(q, 1, WINDOW_UNIT);
}

/* A file that the program has mapped over its memory keeps its bytes. */
static void spares_what_is_mapped_over(void **state)
{
	struct window *w = fresh();
	char *p = window_alloc(w, 2 * WINDOW_UNIT, 1, WINDOW_MAP, true), c;
	int fd = memfd_create("theirs", MFD_CLOEXEC);
	size_t i;

	assert_int_equal(ftruncate(fd, 8192), 0);
	for (i = 0; i < 2; i++) {
		/* a part of a unit, then a whole one */
		assert_ptr_equal(mmap(p + i * WINDOW_UNIT, 4096,
				      PROT_READ | PROT_WRITE,
				      MAP_SHARED | MAP_FIXED, fd, 0),
				 p + i * WINDOW_UNIT);
		p[i * WINDOW_UNIT] = 7;
		p[i * WINDOW_UNIT + 4096] = 7;
		assert_int_equal(window_clean(w, p + i * WINDOW_UNIT, 4097), 0);
		assert_int_equal(p[i * WINDOW_UNIT], 7);
		assert_int_equal(p[i * WINDOW_UNIT + 4096], 0);
		window_unmap(w, p + i * WINDOW_UNIT, i ? WINDOW_UNIT : 4096);
		assert_int_equal(pread(fd, &c, 1, 0), 1);
		assert_int_equal(c, 7);
	}
	close(fd);
}

static void names_the_file(void **state)
{
	struct window *w = fresh();
	uint64_t off = 0;
	int fd = -1;
	char *p, c = 0;
	struct stat st;

	p = window_alloc(w, MIB, 1, WINDOW_HEAP, false);
	assert_int_equal(window_file(w, p + 5, MIB - 5, &fd, &off), 0);
	assert_int_equal(off % 4096, 5);
	/* the same bytes, and all of them there */
	p[7] = 42;
	assert_int_equal(pread(fd, &c, 1, (off_t)off + 2), 1);
	assert_int_equal(c, 42);
	assert_int_equal(fstat(fd, &st), 0);
	assert_true(st.st_blocks * 512 >= (off_t)MIB);
	assert_int_equal(fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK, F_SEAL_SHRINK);
	assert_int_equal(window_file(w, w, 8, &fd, &off), -ENOENT);
	assert_int_equal(window_file(w, p, 0, &fd, &off), -ENOENT);
	assert_int_equal(window_file(w, p, w->span, &fd, &off), -ENOENT);
	/* what a program maps over it is not in the file */
	assert_ptr_equal(mmap(p + 8192, 4096, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
			 p + 8192);
	assert_int_equal(window_file(w, p, MIB, &fd, &off), -ENOENT);
	assert_int_equal(window_file(w, p, 8192, &fd, &off), 0);
}

/* A program that closes what it does not know: no other file is taken for
 * ours, and what is there goes on working. */
static void survives_closed_descriptors(void **state)
{
	struct window *w = fresh();
	uint64_t off = 0;
	int fd = -1, other;
	char *p, *q;

	p = window_alloc(w, MIB, 1, WINDOW_HEAP, false);
	memset(p, 3, MIB);
	other = open("/dev/zero", O_RDWR);
	assert_int_equal(dup2(other, w->fd), w->fd);
	assert_int_equal(window_file(w, p, MIB, &fd, &off), -ENOENT);
	assert_null(window_alloc(w, 256 * MIB, 1, WINDOW_HEAP, false));
	q = window_alloc(w, MIB, 1, WINDOW_HEAP, true);
	assert_non_null(q); /* mapped before */
	assert_true(all(p, MIB, 3));
	window_free(w, p);
	close(other);
}

static void no_window_under_limits(void **state)
{
	struct rlimit files = {0, 0}, old;
	struct window *w = fresh();

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	files.rlim_cur = MIB;
	files.rlim_max = old.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &files), 0);
	assert_null(window_alloc(w, MIB, 1, WINDOW_HEAP, false));
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_null(window_alloc(w, MIB, 1, WINDOW_HEAP, false));
	assert_false(window_has(w, w));
}

static void child_checks(struct window *w, char *p, char *hidden)
{
	uint64_t off;
	char *q;
	int fd;

	if (!all(p, MIB, 5))
		_exit(1);
	memset(p, 6, MIB);
	if (window_file(w, p, MIB, &fd, &off))
		_exit(2);
	q = window_alloc(w, MIB, 1, WINDOW_HEAP, true);
	if (!q || !all(q, MIB, 0))
		_exit(3);
	window_free(w, p);
	if (!all(hidden, 4096, 0)) /* MADV_DONTFORK: no copy of it */
		_exit(4);
	_exit(0);
}

static void forks(struct window *w, char *p, char *hidden)
{
	int status = 0;
	pid_t pid;

	window_fork_prepare(w);
	pid = fork();
	if (!pid) {
		window_fork_child(w);
		child_checks(w, p, hidden);
	}
	window_fork_parent(w);
	/* From here on the child has its copy: this must not reach it. */
	memset(p, 9, MIB);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_true(all(p, MIB, 9));
	memset(p, 5, MIB);
}

static void child_has_a_copy(void **state)
{
	struct window *w = fresh();
	char *p, *hidden, *dirty;

	/* before there is anything */
	window_fork_prepare(w);
	window_fork_parent(w);
	dirty = window_alloc(w, MIB, 1, WINDOW_HEAP, false);
	p = window_alloc(w, MIB, 1, WINDOW_HEAP, false);
	hidden = window_alloc(w, 4096, 1, WINDOW_HEAP, false);
	memset(dirty, 1, MIB);
	memset(p, 5, MIB);
	memset(hidden, 5, 4096);
	window_free(w, dirty);
	assert_int_equal(madvise(hidden, 4096, MADV_DONTFORK), 0);
	forks(w, p, hidden);
	assert_true(all(hidden, 4096, 5));
	/* and without the descriptor that says what was touched */
	close(w->fd);
	forks(w, p, hidden);
}

/* Nothing is lost without a word. */
static void ends_where_memory_is_scarce(void **state)
{
	const int calls[] = {SYS_pwrite64};
	const struct rlimit low = {MIB, MIB};
	struct window *w = fresh();
	char *p = window_alloc(w, MIB, 1, WINDOW_HEAP, false);
	pid_t scarce;
	int i, status;

	memset(p, 5, MIB);
	for (i = 0; i < 2; i++) {
		scarce = fork();
		if (!scarce) {
			close(STDERR_FILENO);
			if (i == 0 && setrlimit(RLIMIT_FSIZE, &low))
				_exit(1);
			if (i == 1 && sandbox_enter(calls, 1, ENOSPC))
				_exit(127); /* no sandbox here */
			window_fork_prepare(w);
			window_fork_child(w);
			_exit(0);
		}
		assert_int_equal(waitpid(scarce, &status, 0), scarce);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 127);
	}
}

static void invalid_free_ends_it(void **state)
{
	struct window *w = fresh();
	char *p = window_alloc(w, MIB, 1, WINDOW_HEAP, false);
	int status = 0;
	pid_t pid = fork();

	if (!pid) {
		close(STDERR_FILENO);
		window_free(w, p + WINDOW_UNIT);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gives_and_takes),
		cmocka_unit_test(aligns),
		cmocka_unit_test(zeroes),
		cmocka_unit_test(gives_back),
		cmocka_unit_test(unmaps_by_pages),
		cmocka_unit_test(spares_what_is_mapped_over),
		cmocka_unit_test(names_the_file),
		cmocka_unit_test(survives_closed_descriptors),
		cmocka_unit_test(no_window_under_limits),
		cmocka_unit_test(child_has_a_copy),
		cmocka_unit_test(ends_where_memory_is_scarce),
		cmocka_unit_test(invalid_free_ends_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
