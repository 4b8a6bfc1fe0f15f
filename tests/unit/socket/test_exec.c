/* SPDX-License-Identifier: MIT */
/*
 * test_exec.c - an exec ends what may become a stream, and hands streams back; but
 * not if there is no program to start.
 */
#include "unit/socket/ends.h"

#include "bind/socket/back.h"

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static char *const exec_argv[] = {"none", NULL};

/* A program for execv() that the kernel cannot start; with these rights. */
static int no_program(mode_t mode, char path[32])
{
	static const char text[] = "#!/none/such\n";
	int fd = memfd_create("program", MFD_CLOEXEC);

	assert_int_equal(write(fd, text, sizeof(text) - 1), sizeof(text) - 1);
	assert_int_equal(fchmod(fd, mode), 0);
	snprintf(path, 32, "/proc/self/fd/%d", fd);
	return fd;
}

/* Both ends have met, and the helper's thread may promote at any moment, also
 * behind the last look that exec has at its streams. */
static void test_exec_ends_meetings(void **state)
{
	(void)state;
	ends_meet(0);
	assert_int_equal(fexecve(-1, exec_argv, environ), -1);
	assert_false(end_promote(&ends[0]));
	assert_int_equal(end_put(&ends[0], 100), 100);
	end_get_all(&ends[1]);
	ends_part();
}

static int exec_errno(int rc)
{
	assert_int_equal(rc, -1);
	return errno;
}

static void still_on(void)
{
	int i;

	for (i = 0; i < 2; i++) {
		assert_int_equal(end_mode(&ends[i]), SOCK_ON);
		assert_false(ends[i].s->stream->back.on);
		assert_int_equal(end_put(&ends[i], 100), 100);
	}
	end_get_all(&ends[0]);
	end_get_all(&ends[1]);
}

/* What cannot be found, or may not be started, takes no stream away: in a folder,
 * in all of PATH, by a child. */
static void test_exec_of_nothing(void **state)
{
	static const char *const paths[] = {"/none:/none/such", "/:/none",
					    "/none:/proc/self/fd",
					    "/proc/self/fd:/none"};
	posix_spawn_file_actions_t actions;
	char dark[32], *name, *before = strdup(getenv("PATH"));
	int fd = no_program(0600, dark);
	unsigned i;
	pid_t pid;

	(void)state;
	ends_on_streams();
	still_on();
	assert_int_equal(exec_errno(execv("/none/such", exec_argv)), ENOENT);
	assert_int_equal(exec_errno(execv("", exec_argv)), ENOENT);
	assert_int_equal(exec_errno(execv("/dev/null/x", exec_argv)), ENOTDIR);
	assert_int_equal(exec_errno(execv("/", exec_argv)), EACCES);
	assert_int_equal(exec_errno(execv("/dev/null", exec_argv)), EACCES);
	assert_int_equal(exec_errno(execv(dark, exec_argv)), EACCES);
	assert_int_equal(exec_errno(execl("/none/such", "x", NULL)), ENOENT);
	still_on();
	name = strrchr(dark, '/') + 1;
	for (i = 0; i < 4; i++) {
		setenv("PATH", paths[i], 1);
		assert_int_equal(exec_errno(execvp("none-such", exec_argv)),
				 ENOENT);
		assert_int_equal(exec_errno(execvp("", exec_argv)), ENOENT);
		assert_int_equal(exec_errno(execvp(name, exec_argv)),
				 i < 2 ? ENOENT : EACCES);
		assert_int_equal(posix_spawnp(&pid, name, NULL, NULL, exec_argv,
					      environ),
				 i < 2 ? ENOENT : EACCES);
	}
	still_on();
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, ends[0].fd, 0);
	assert_int_equal(posix_spawn(&pid, "/none/such", &actions, NULL,
				     exec_argv, environ),
			 ENOENT);
	still_on();
	posix_spawn_file_actions_destroy(&actions);
	setenv("PATH", before, 1);
	free(before);
	close(fd);
	ends_part();
}

/* In the last folder of PATH there is a program. */
static void test_exec_of_the_last(void **state)
{
	char path[32], *before = strdup(getenv("PATH"));
	int fd = no_program(0700, path);

	(void)state;
	ends_meet(0);
	setenv("PATH", "/none:/:/proc/self/fd", 1);
	assert_int_equal(execvp(strrchr(path, '/') + 1, exec_argv), -1);
	assert_false(end_promote(&ends[0]));
	assert_int_equal(end_mode(&ends[0]), SOCK_TIED);
	setenv("PATH", before, 1);
	free(before);
	close(fd);
	ends_part();
}

/* A child may find a program that this process does not: in another folder, or with
 * other rights. */
static void test_spawn_elsewhere(void **state)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	pid_t pid;
	int i;

	(void)state;
	posix_spawn_file_actions_init(&actions);
	assert_int_equal(posix_spawn_file_actions_addchdir_np(&actions, "/"),
			 0);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_RESETIDS);
	for (i = 0; i < 3; i++) {
		ends_meet(0);
		assert_int_equal(
			posix_spawn(&pid, i == 2 ? "/none/such" : "none/such",
				    i ? NULL : &actions, i == 2 ? &attr : NULL,
				    exec_argv, environ),
			ENOENT);
		assert_int_equal(end_mode(&ends[0]),
				 i == 1 ? SOCK_TCP : SOCK_TIED);
		ends_part();
	}
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&actions);
}

/* The kernel asks for the rights of the effective user. */
static void test_exec_by_another(void **state)
{
	char path[32];
	int fd;

	(void)state;
	if (geteuid()) {
		print_message("skipped: needs root, to be another user too\n");
		skip();
	}
	fd = no_program(0700, path);
	ends_meet(0);
	assert_int_equal(setreuid(65534, 0), 0);
	assert_int_equal(exec_errno(execv(path, exec_argv)), ENOENT);
	assert_int_equal(setreuid(0, 0), 0);
	assert_int_equal(end_mode(&ends[0]), SOCK_TIED);
	close(fd);
	ends_part();
}

static int up(void **state)
{
	(void)state;
	return ends_up(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exec_ends_meetings),
		cmocka_unit_test(test_exec_of_nothing),
		cmocka_unit_test(test_exec_of_the_last),
		cmocka_unit_test(test_spawn_elsewhere),
		cmocka_unit_test(test_exec_by_another),
	};

	return cmocka_run_group_tests(tests, up, ends_down);
}
