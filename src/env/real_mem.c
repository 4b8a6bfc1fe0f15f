/* SPDX-License-Identifier: MIT */
/*
 * real_mem.c - memory that another process may map.
 *
 * A memfd, filled before anyone maps it and sealed against changing its size:
 * a peer that could truncate it would kill every process that copies into it
 * with SIGBUS, and so would a page that cannot be had at the time of the copy.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "env/real.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

/* Smaller than this is not worth a look at /proc. */
#define CHECK_LEN (16u << 20)

static int round_to_pages(size_t len, size_t *rounded)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	if (!len || len > SIZE_MAX / 2)
		return len ? -ENOMEM : -EINVAL;
	*rounded = (len + page - 1) & ~(page - 1);
	return 0;
}

/* Filling more than there is would not fail: it would call the OOM killer. */
static int enough_memory(size_t len)
{
	unsigned long long kb;
	char line[128];
	int rc = 0;
	FILE *f;

	if (len < CHECK_LEN)
		return 0;
	f = fopen("/proc/meminfo", "re");
	if (!f)
		return 0;
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "MemAvailable: %llu", &kb) != 1)
			continue;
		if (len / 1024 > kb)
			rc = -ENOMEM;
		break;
	}
	fclose(f);
	return rc;
}

static int memfd_open(const char *name)
{
	unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	int fd = memfd_create(name, flags | MFD_NOEXEC_SEAL);

	if (fd < 0 && errno == EINVAL) /* a kernel before 6.3 */
		fd = memfd_create(name, flags);
	return fd < 0 ? -errno : fd;
}

static int memfd_fill(int fd, size_t len)
{
	int rc;

	do
		rc = fallocate(fd, 0, 0, (off_t)len);
	while (rc && errno == EINTR);
	if (rc)
		return errno == ENOSPC || errno == EFBIG ? -ENOMEM : -errno;
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return -errno;
	return 0;
}

int real_mem_alloc(struct skein_env *env, const char *name, size_t len, int *fd,
		   void **addr)
{
	int rc, memfd;
	void *p;

	(void)env;
	rc = round_to_pages(len, &len);
	if (rc)
		return rc;
	rc = enough_memory(len);
	if (rc)
		return rc;
	memfd = memfd_open(name);
	if (memfd < 0)
		return memfd;
	rc = memfd_fill(memfd, len);
	if (rc)
		goto err_close;
	p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	if (p == MAP_FAILED) {
		rc = -errno;
		goto err_close;
	}
	if (madvise(p, len, MADV_DONTFORK)) {
		rc = -errno;
		goto err_unmap;
	}
	*fd = memfd;
	*addr = p;
	return 0;

err_unmap:
	munmap(p, len);
err_close:
	close(memfd);
	return rc;
}

void real_mem_free(struct skein_env *env, int fd, void *addr, size_t len)
{
	(void)env;
	if (addr && !round_to_pages(len, &len))
		munmap(addr, len);
	if (fd >= 0)
		close(fd);
}
