/* SPDX-License-Identifier: MIT */
/*
 * pages.c - see pages.h.
 */
#include "pages.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int pages_short(void)
{
	return errno == EMFILE || errno == ENFILE ? -errno : 0;
}

static bool is_named(int dirfd, const char *entry, const char *link)
{
	char is[128];
	ssize_t n = readlinkat(dirfd, entry, is, sizeof(is) - 1);

	if (n < 0)
		return false;
	is[n] = '\0';
	return !strcmp(is, link);
}

int pages_each(int proc, const char *name, void (*page)(void *arg, int fd),
	       void *arg)
{
	int dirfd = openat(proc, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = dirfd >= 0 ? fdopendir(dirfd) : NULL;
	struct dirent *entry;
	char link[64];
	int rc = dir ? 0 : pages_short();

	snprintf(link, sizeof(link), "/memfd:%s (deleted)", name);
	while (dir && (entry = readdir(dir))) {
		struct stat sb;
		int fd;

		if (!is_named(dirfd, entry->d_name, link))
			continue;
		fd = openat(dirfd, entry->d_name,
			    O_RDONLY | O_NONBLOCK | O_CLOEXEC);
		if (fd < 0) {
			rc = rc ? rc : pages_short();
			continue;
		}
		/* The number may mean another file by now. */
		if (!fstat(fd, &sb) && S_ISREG(sb.st_mode))
			page(arg, fd);
		close(fd);
	}
	if (dir)
		closedir(dir);
	else if (dirfd >= 0)
		close(dirfd);
	return rc;
}

void pages_text(char *text, size_t len)
{
	text[len - 1] = '\0';
	for (; *text; text++)
		if (!isprint((unsigned char)*text))
			*text = '?';
}
