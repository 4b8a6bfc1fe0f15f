/* SPDX-License-Identifier: MIT */
/*
 * sandbox.c - the program is about to forbid itself system calls (seccomp). Which
 * ones this library may still make is not known, and a wrong one ends the process:
 * so its streams go back to TCP, its threads end, and its device is closed,
 * before the filter is there. From then on the program's calls are the kernel's.
 */
#include "bind/socket/export.h"
#include "bind/socket/set.h"
#include "bind/socket/sock.h"

#include "env/env.h"

#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char filter[] = "the process has a seccomp filter";

/* All begin before the first one is waited for. What cannot go back stays. */
static void hand_back(void)
{
	int fd, round;

	for (round = 0; round < 2; round++) {
		for (fd = 0; fd < st.fd_top; fd++) {
			struct sock *s = sock_at(fd);

			if (s && !round)
				sock_start_back(s, filter);
			else if (s)
				sock_refuse(fd, filter);
		}
	}
}

static bool helper_is_over(void *arg)
{
	return !atomic_load(&st.helper_runs);
}

static void end_helper(void)
{
	bool over;

	if (atomic_load(&st.forked) || !atomic_load(&st.helper_runs))
		return;
	atomic_store(&st.ending, true);
	env_bell(st.wake_fd);
	pthread_mutex_lock(&st.lock);
	over = sock_wait(helper_is_over, NULL);
	pthread_mutex_unlock(&st.lock);
	if (over)
		env_thread_join(st.env, st.helper);
}

/* True: nothing of the program's is left here. Their lines of the report are
 * written now. */
static bool forget_all(void)
{
	bool all = true;
	int fd;

	pthread_mutex_lock(&st.lock);
	st.page_tried = true; /* no new file */
	for (fd = 0; fd < st.fd_top; fd++) {
		struct sock *s = sock_at(fd);

		if (s && atomic_load(&s->mode) >= SOCK_ON) {
			all = false;
		} else if (s) {
			if (s->fd == fd)
				report_line(s);
			if (s->set)
				set_remove(s->set, s);
			atomic_store(&st.socks[fd], NULL);
		}
	}
	for (fd = 0; fd < st.fd_top; fd++)
		all &= set_leave(fd);
	pthread_mutex_unlock(&st.lock);
	return all;
}

static void sandbox_comes(void)
{
	ENV_HOLD_CANCEL();

	if (!atomic_load(&st.on) || st.pid != getpid())
		return;
	atomic_store(&st.no_more, filter);
	atomic_store(&st.sandboxed, true);
	hand_back();
	end_helper();
	if (forget_all())
		atomic_store(&st.on, false);
}

/* Not where a program only asks whether there are filters: without a program. */
EXPORT(int, prctl, int option, unsigned long a, unsigned long b,
       unsigned long c, unsigned long d)
{
	if (option == PR_SET_SECCOMP && (a == SECCOMP_MODE_STRICT || b))
		sandbox_comes();
	return REAL(prctl)(option, a, b, c, d);
}

void sandbox_syscall(long number, const long args[6])
{
	if (number == SYS_seccomp &&
	    (args[0] == SECCOMP_SET_MODE_STRICT ||
	     (args[0] == SECCOMP_SET_MODE_FILTER && args[2])))
		sandbox_comes();
	if (number == SYS_prctl && args[0] == PR_SET_SECCOMP &&
	    (args[1] == SECCOMP_MODE_STRICT || args[2]))
		sandbox_comes();
}
