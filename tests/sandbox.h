/* SPDX-License-Identifier: MIT */
/*
 * sandbox.h - a process forbids itself system calls, in all its threads, as
 * sandboxes do while a program runs. It cannot be taken back: tests do it in a
 * child.
 */
#ifndef SKEIN_TEST_SANDBOX_H
#define SKEIN_TEST_SANDBOX_H

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SANDBOX_CALLS 24u

/* From now on these calls, at most SANDBOX_CALLS, fail with `error`. 0 or a
 * negative errno. */
static inline int sandbox_enter(const int *calls, unsigned n, int error)
{
	struct sock_filter f[2 + 2 * SANDBOX_CALLS] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, nr)),
	};
	struct sock_fprog prog = {.filter = f, .len = 1};
	unsigned i;

	if (n > SANDBOX_CALLS)
		return -E2BIG;
	for (i = 0; i < n; i++) {
		f[prog.len++] = (struct sock_filter)BPF_JUMP(
			BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i], 0, 1);
		f[prog.len++] = (struct sock_filter)BPF_STMT(
			BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error);
	}
	f[prog.len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K,
						     SECCOMP_RET_ALLOW);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
		    SECCOMP_FILTER_FLAG_TSYNC, &prog))
		return -errno;
	return 0;
}

#endif
