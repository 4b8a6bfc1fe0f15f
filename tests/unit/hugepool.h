/* SPDX-License-Identifier: MIT */
/*
 * hugepool.h - huge pages for a test: those that the machine has reserved, or
 * some more, put back at the end, where the test may reserve (root may). One
 * test at a time: the others wait at a lock of the file itself. Where there are
 * none a test checks what is promised for that.
 */
#ifndef SKEIN_TESTS_HUGEPOOL_H
#define SKEIN_TESTS_HUGEPOOL_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

struct hugepool {
	int fd;	      /* holds the lock; -1: may not reserve */
	long before;  /* pages reserved when the test began */
	bool changed; /* to be put back */
};

/* A row of /proc/meminfo, as a number; -1: no such row. */
static inline long hugepool_row(const char *row)
{
	FILE *f = fopen("/proc/meminfo", "re");
	char line[128];
	long v = -1;

	while (f && v < 0 && fgets(line, sizeof(line), f))
		if (!strncmp(line, row, strlen(row)))
			sscanf(line + strlen(row), ": %ld", &v);
	if (f)
		fclose(f);
	return v;
}

static inline void hugepool_set(struct hugepool *pool, long n)
{
	char text[32];
	int len = snprintf(text, sizeof(text), "%ld", n);

	if (pwrite(pool->fd, text, (size_t)len, 0) == len)
		pool->changed = n != pool->before;
}

/* Tries for n free pages; returns how many there are. */
static inline long hugepool_open(struct hugepool *pool, long n)
{
	long free_now;

	pool->changed = false;
	pool->fd = open("/proc/sys/vm/nr_hugepages", O_RDWR | O_CLOEXEC);
	if (pool->fd >= 0)
		flock(pool->fd, LOCK_EX);
	pool->before = hugepool_row("HugePages_Total");
	free_now = hugepool_row("HugePages_Free");
	if (pool->fd >= 0 && free_now >= 0 && free_now < n)
		hugepool_set(pool, pool->before + n - free_now);
	free_now = hugepool_row("HugePages_Free");
	if (free_now < n)
		printf("%ld huge pages free, %ld wanted (root may reserve "
		       "them): what happens without is tested\n",
		       free_now, n);
	return free_now < 0 ? 0 : free_now;
}

static inline void hugepool_close(struct hugepool *pool)
{
	if (pool->changed)
		hugepool_set(pool, pool->before);
	if (pool->fd >= 0)
		close(pool->fd);
}

#endif
