/* SPDX-License-Identifier: MIT */
/*
 * test_refused.c - the memory of the verbs interposer in a sandbox that comes
 * while the program runs: what was there goes on, what needs a refused call is
 * an error, or memory that no peer can map. Each case is a child, for a filter
 * cannot be taken back.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "bind/verbs/shm.h"
#include "bind/verbs/window.h"
#include "sandbox.h"

#define KIB 1024ul
#define MIB (1024 * KIB)

static void refuse(const int *calls, unsigned n)
{
	if (sandbox_enter(calls, n, EPERM))
		_exit(99);
}

/* Ends the child: its parent tells by the number what did not hold. */
static void want(bool is, int what)
{
	if (!is)
		_exit(what);
}

static void in_child(void (*fn)(void))
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		fn();
		_exit(0);
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void window_before(void)
{
	static const int calls[] = {SYS_memfd_create};
	static struct window w = WINDOW_INIT;

	refuse(calls, 1);
	want(!window_alloc(&w, MIB, 1, WINDOW_HEAP, false), 1);
	want(!window_alloc(&w, MIB, 1, WINDOW_MAP, true), 2);
}

static void window_later(void)
{
	static const int calls[] = {SYS_memfd_create, SYS_openat, SYS_open,
				    SYS_fallocate, SYS_madvise};
	static struct window w = WINDOW_INIT;
	char *a, *b;
	uint64_t off;
	int fd;

	a = window_alloc(&w, 4 * MIB, 1, WINDOW_HEAP, false);
	want(a, 1);
	memset(a, 1, 4 * MIB);
	want(!window_file(&w, a, MIB, &fd, &off), 2);
	refuse(calls, sizeof(calls) / sizeof(*calls));
	/* Nobody can say what is mapped there: no file, so no peer maps it. */
	want(window_file(&w, a, MIB, &fd, &off) == -ENOENT, 3);
	want(a[0] == 1 && a[4 * MIB - 1] == 1, 4);
	/* Pages that cannot be given back are not given out as zeroes. */
	window_free(&w, a);
	b = window_alloc(&w, 4 * MIB, 1, WINDOW_MAP, true);
	for (size_t i = 0; b && i < 4 * MIB; i++)
		want(!b[i], 5);
}

static void shm_new(const int *calls, unsigned n)
{
	static struct vb_shm s = VB_SHM_INIT;
	int id;

	refuse(calls, n);
	errno = 0;
	id = vb_shm_get(&s, MIB, 0600);
	want(id == -1, 1);
	want(errno != 0, 2);
	for (unsigned i = 0; i < VB_SHM_SEGS; i++)
		want(!s.segs[i].used, 3);
}

static void shm_no_file(void)
{
	static const int calls[] = {SYS_memfd_create};

	shm_new(calls, 1);
}

static void shm_no_room(void)
{
	static const int calls[] = {SYS_fallocate};

	shm_new(calls, 1);
}

static void shm_no_stat(void)
{
	static const int calls[] = {SYS_fstat, SYS_newfstatat};

	shm_new(calls, 2);
}

static void test_window(void **state)
{
	in_child(window_before);
	in_child(window_later);
}

static void test_shm(void **state)
{
	in_child(shm_no_file);
	in_child(shm_no_room);
	in_child(shm_no_stat);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_window),
		cmocka_unit_test(test_shm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
