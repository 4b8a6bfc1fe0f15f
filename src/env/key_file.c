/* SPDX-License-Identifier: MIT */
/*
 * key_file.c - see key_file.h.
 */
#include "env/key_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int key_file_open(const char *path, int *fd, const char **why)
{
	int opened = open(path, O_RDONLY | O_CLOEXEC), err;
	struct stat st;

	if (opened < 0 || fstat(opened, &st)) {
		err = -errno;
		*why = strerror(-err);
	} else if (st.st_mode & 077) {
		err = -EACCES;
		*why = "others may read it: chmod 600 it";
	} else {
		*fd = opened;
		return 0;
	}
	if (opened >= 0)
		close(opened);
	return err;
}

int key_file_line(int fd, void *buf, size_t size, size_t *len, const char **why)
{
	char *line = buf;
	ssize_t n = 1;
	size_t at = 0;

	/* byte by byte: what follows the line is not the key's */
	while (at < size) {
		n = read(fd, line + at, 1);
		if (n < 0 && errno == EINTR)
			continue;
		if (n != 1 || line[at] == '\n')
			break;
		at++;
	}
	if (n < 0 || !at || at == size) {
		*why = "a key is one line of 1 to 4095 bytes";
		return -EINVAL;
	}
	*len = at;
	return 0;
}
