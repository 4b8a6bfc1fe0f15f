/* SPDX-License-Identifier: MIT */
/*
 * spare.c - descriptors kept for the moment when the process has none left.
 *
 * A peer's region is mapped at its first use, which takes a descriptor from
 * recvmsg(2) to mmap(2); a connection that is up must not fail for lack of it.
 * The control thread, and it alone, closes a spare descriptor for that time.
 * Another thread of the process may take the free number first, so there are
 * several spares.
 */
#include "dev/soft/soft.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int soft_spares_fill(struct soft *s)
{
	int i, fd;

	for (i = 0; i < SOFT_SPARES; i++) {
		if (s->spare_fds[i] >= 0)
			continue;
		fd = fcntl(s->kick_fd, F_DUPFD_CLOEXEC, 0);
		if (fd < 0)
			return -errno;
		s->spare_fds[i] = fd;
	}
	return 0;
}

bool soft_spare_give(struct soft *s)
{
	int i;

	for (i = 0; i < SOFT_SPARES; i++) {
		if (s->spare_fds[i] < 0)
			continue;
		close(s->spare_fds[i]);
		s->spare_fds[i] = -1;
		return true;
	}
	return false;
}
