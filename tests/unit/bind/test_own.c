/* SPDX-License-Identifier: MIT */
/* The registry of a preloaded library's descriptors: where they go, and what
 * close_range() leaves out. */
#include "bind/own/own.h"

#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* The program's own: a preloaded library's stands here, and takes its lock. */
static int came_back;

long syscall(long number, ...)
{
	came_back++;
	return -1;
}

static int low(void)
{
	int fd = open("/dev/null", O_RDONLY);

	assert_in_range(fd, 3, 100);
	return fd;
}

/* The number that the first descriptor gets under this limit. */
static int first_under(rlim_t limit)
{
	struct rlimit lim;
	int status, fd;
	pid_t pid = fork();

	if (!pid) {
		getrlimit(RLIMIT_NOFILE, &lim);
		lim.rlim_cur = limit < lim.rlim_max ? limit : lim.rlim_max;
		setrlimit(RLIMIT_NOFILE, &lim);
		fd = own_keep(low());
		_exit(own_has(fd) && fcntl(fd, F_GETFD) == FD_CLOEXEC ? fd / 4
								      : 255);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status) * 4;
}

static void test_where(void **state)
{
	assert_int_equal(first_under(64), 48);
	assert_int_equal(first_under(256), 192);
	assert_int_equal(first_under(1024), 768);
	assert_int_equal(first_under(1 << 20), 768);
}

static void test_kept(void **state)
{
	int was = low(), fd;

	assert_int_equal(own_keep(-1), -1);
	fd = own_keep(was);
	assert_int_equal(came_back, 0);
	assert_int_not_equal(fd, was);
	assert_int_equal(fcntl(was, F_GETFD), -1);
	assert_true(own_has(fd) && !own_has(was) && !own_has(-1));
	assert_int_equal(own_keep(fd), fd);
	assert_int_equal(own_next(0), fd);
	assert_int_equal(own_next((unsigned)fd), fd);
	assert_int_equal(own_next((unsigned)fd + 1), -1);
	own_drop(fd);
	assert_int_equal(own_next(0), -1);
	close(fd);
}

/* No number is free where it should go: it is the library's all the same. */
static void test_full(void **state)
{
	int fds[1024], n = 0, fd = low(), i;
	struct rlimit lim, was;

	getrlimit(RLIMIT_NOFILE, &was);
	close(own_keep(low())); /* it knows the limit by now */
	own_fork(-1);
	lim = was;
	lim.rlim_cur = 200;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &lim), 0);
	while (n < 1024 && (fds[n] = open("/dev/null", O_RDONLY)) >= 0)
		n++;
	assert_int_equal(own_keep(fd), fd);
	assert_true(own_has(fd));
	own_drop(fd);
	close(fd);
	for (i = 0; i < n; i++)
		close(fds[i]);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
}

static char said[256];

static int say(unsigned first, unsigned last, int arg)
{
	sprintf(said + strlen(said), " %u-%u", first, last);
	return arg;
}

static const char *around(unsigned first, unsigned last)
{
	said[0] = '\0';
	assert_int_equal(own_around(first, last, say, 0), 0);
	return said;
}

static void test_around(void **state)
{
	/* Only numbers: the files do not have to be. */
	static const int ours[] = {900, 901, 910};
	unsigned i;

	for (i = 0; i < 3; i++)
		own_keep(ours[i]);
	assert_string_equal(around(3, 899), " 3-899");
	assert_string_equal(around(3, 900), " 3-899");
	assert_string_equal(around(900, 901), "");
	assert_string_equal(around(901, 909), " 902-909");
	assert_string_equal(around(3, UINT_MAX),
			    " 3-899 902-909 911-4294967295");
	assert_string_equal(around(911, UINT_MAX), " 911-4294967295");
	assert_string_equal(around(70000, 70001), " 70000-70001");
	assert_int_equal(own_around(3, UINT_MAX, say, 1), -1);
	own_fork(901);
	assert_string_equal(around(3, UINT_MAX), " 3-900 902-4294967295");
	own_fork(-1);
}

static void test_close(void **state)
{
	int fd = own_keep(low()), kept = own_keep(low());

	own_close(kept);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
	assert_false(own_has(fd));
	assert_true(fcntl(kept, F_GETFD) >= 0);
	assert_int_equal(own_next(0), kept);
	own_close(-1);
	assert_int_equal(fcntl(kept, F_GETFD), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_where), cmocka_unit_test(test_kept),
		cmocka_unit_test(test_full),  cmocka_unit_test(test_around),
		cmocka_unit_test(test_close),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
