/* SPDX-License-Identifier: MIT */
/*
 * pid.c - pidfds. If the process of a socket's credentials is dead, its id may
 * already be another process's. Then these answers are about that process, and
 * only the end of the socket tells of the death.
 */
#include "dev/soft/peer/pid.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int soft_pid_open(pid_t pid)
{
	int fd;

	if (pid <= 0) /* of another pid namespace */
		return -EOPNOTSUPP;
	fd = (int)syscall(SYS_pidfd_open, pid, 0);
	return fd < 0 ? -errno : fd;
}

bool soft_pid_gone(pid_t pid)
{
	struct pollfd p = {.fd = soft_pid_open(pid), .events = POLLIN};
	bool gone = p.fd == -ESRCH;

	if (p.fd >= 0) {
		gone = poll(&p, 1, 0) > 0;
		close(p.fd);
	}
	return gone;
}

bool soft_pid_up(pid_t pid)
{
	char path[32], stat[512], *at;
	ssize_t n;
	int fd;

	if (pid <= 0)
		return false;
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, stat, sizeof(stat) - 1);
	close(fd);
	if (n <= 0)
		return false;
	stat[n] = 0;
	/* "PID (NAME) STATE", and the name may hold anything */
	at = strrchr(stat, ')');
	return at && at[1] == ' ' && at[2] && strchr("RSDI", at[2]);
}

int soft_pid_answer(pid_t pid, int sock, int timeout_ms)
{
	/* poll(2) passes a negative descriptor by */
	struct pollfd p[2] = {{.fd = sock, .events = POLLIN},
			      {.fd = soft_pid_open(pid), .events = POLLIN}};
	int err = 0, n;

	if (p[1].fd == -ESRCH)
		return -ECONNREFUSED;
	do
		n = poll(p, 2, timeout_ms);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		err = -errno;
	else if (n == 0)
		err = -ETIMEDOUT;
	else if (!p[0].revents)
		err = -ECONNREFUSED;
	if (p[1].fd >= 0)
		close(p[1].fd);
	return err;
}
