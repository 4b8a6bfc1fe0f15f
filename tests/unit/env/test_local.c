/* SPDX-License-Identifier: MIT */
/*
 * test_local.c - a Unix socket: its service ends between connect() and accept().
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "env/local.h"
#include "unit/cm.h"

/* A free name: a process id is that of a test in another container, too. */
static void path_make(char *path, size_t len)
{
	int fd;

	snprintf(path, len, "/tmp/skein-test-local-XXXXXX");
	fd = mkstemp(path);
	assert_true(fd >= 0);
	close(fd);
	unlink(path);
}

/* The kernel reports ECONNRESET once, for a connection that nobody accepted.
 * Its callers know one answer for a peer that is gone. */
static void test_not_accepted(void **state)
{
	char path[64], byte = 1;
	int listener, fd, fds[LOCAL_FDS], n, rc;

	(void)state;
	path_make(path, sizeof(path));
	rc = local_listen(path, &listener);
	assert_int_equal(rc, 0);
	rc = local_connect(path, &fd);
	assert_int_equal(rc, 0);
	close(listener);
	rc = local_send(fd, &byte, 1, NULL, 0);
	assert_int_equal(rc, -EPIPE);
	rc = local_send(fd, &byte, 1, NULL, 0);
	assert_int_equal(rc, -EPIPE);
	rc = (int)local_recv(fd, &byte, 1, fds, &n);
	assert_int_equal(rc, 0);
	close(fd);
	rc = local_connect(path, &fd);
	assert_int_equal(rc, -ECONNREFUSED);
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_not_accepted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
