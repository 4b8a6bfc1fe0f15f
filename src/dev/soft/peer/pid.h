/* SPDX-License-Identifier: MIT */
/*
 * pid.h - the life of the process at the other end of a socket. The end of the
 * socket says too little: a forked child that did not exec holds the socket as
 * well.
 */
#ifndef SKEIN_DEV_SOFT_PID_H
#define SKEIN_DEV_SOFT_PID_H

#include <stdbool.h>
#include <sys/types.h>

/* A descriptor that becomes readable when the process ends. -ESRCH: it has
 * ended already; -EOPNOTSUPP: it is not of our PID namespace. */
int soft_pid_open(pid_t pid);
/* Has every thread of it left user space? False where nobody can tell. */
bool soft_pid_gone(pid_t pid);
/* Running, or asleep: not stopped, not dead, and in sight. */
bool soft_pid_up(pid_t pid);
/* Waits for an answer on sock: 0, -ECONNREFUSED when the process ends first,
 * -ETIMEDOUT. */
int soft_pid_answer(pid_t pid, int sock, int timeout_ms);

#endif
