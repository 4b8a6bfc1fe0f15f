/* SPDX-License-Identifier: MIT */
/*
 * key_file.h - a file with a key for SKEIN_LINK_KEY.
 */
#ifndef SKEIN_TESTS_LINK_KEY_FILE_H
#define SKEIN_TESTS_LINK_KEY_FILE_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of this process; its descriptor stays open, its name is of that. */
static inline void key_file_use(const char *line)
{
	char path[] = "/tmp/skein-test-key-XXXXXX", name[64];
	int fd = mkstemp(path);

	if (fd < 0 || write(fd, line, strlen(line)) < 0) {
		perror(path);
		exit(1);
	}
	unlink(path);
	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	setenv("SKEIN_LINK_KEY", name, 1);
}

#endif
