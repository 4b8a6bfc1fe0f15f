/* SPDX-License-Identifier: MIT */
/* test_ctl.c - skein perf's control link: what both ends send at once. */
#include "unit/cm.h"
#include "unit/patience.h"

#include "perf/ctl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define LEN (1u << 20) /* more than the sockets of both ends hold */
#define OBJECTS 2
#define WAIT_NS patience_ns(30)
#define ALARM_S 300 /* ends a process that waits for ever */

static json_t *large(int number)
{
	char *text = malloc(LEN + 1);
	json_t *j;

	assert_non_null(text);
	memset(text, 'a' + number, LEN);
	text[LEN] = '\0';
	j = json_pack("{s:i, s:s}", "number", number, "text", text);
	free(text);
	return j;
}

/* Sends all, then receives as much. 0, or which step failed. */
static int talk(struct perf_ctl *c)
{
	json_t *j, *want;
	int same;

	for (int i = 0; i < OBJECTS; i++)
		if (ctl_send(c, large(i)))
			return 1;
	for (int i = 0; i < OBJECTS; i++) {
		if (ctl_recv(c, WAIT_NS, &j))
			return 2;
		want = large(i);
		same = json_equal(j, want);
		json_decref(want);
		json_decref(j);
		if (!same)
			return 3;
	}
	return 0;
}

static void test_both_send(void **state)
{
	struct perf_ctl *c;
	int sv[2], status;
	pid_t pid;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), 0);
	pid = fork();
	assert_true(pid >= 0);
	alarm(ALARM_S);
	c = ctl_new(sv[pid ? 0 : 1]);
	close(sv[pid ? 1 : 0]);
	if (!pid)
		_exit(c ? talk(c) : 4);
	assert_non_null(c);
	assert_int_equal(talk(c), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	alarm(0);
	ctl_free(c);
}

static void test_peer_gone(void **state)
{
	struct perf_ctl *c;
	json_t *j;
	int sv[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), 0);
	c = ctl_new(sv[0]);
	assert_non_null(c);
	close(sv[1]);
	assert_int_equal(ctl_send(c, large(0)), -EPIPE);
	assert_int_equal(ctl_recv(c, WAIT_NS, &j), -ECONNRESET);
	ctl_free(c);
}

/* Port 0 takes a free one, which the words for a failure name. */
static void test_nobody_comes(void **state)
{
	char why[200];
	int fd;

	assert_int_equal(ctl_accept_one(0, true, 1000000, why, sizeof(why),
					&fd),
			 -ETIMEDOUT);
	assert_non_null(strstr(why, "no client came to port "));
	assert_null(strstr(why, "port 0:"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_both_send),
		cmocka_unit_test(test_peer_gone),
		cmocka_unit_test(test_nobody_comes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
