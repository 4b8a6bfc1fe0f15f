/* SPDX-License-Identifier: MIT */
/*
 * mem.c - memory that another process may map.
 *
 * A memfd is allocated in full before any peer maps it, and sealed against
 * changes of its size. Otherwise a peer could truncate it, or a page could be
 * missing at the time of a copy, and SIGBUS would kill every process that
 * copies into it. Of memory that is reserved that holds for what was filled, or
 * for all of it where the system never refuses a page: with overcommit it ends a
 * process of its choice instead, as it does for memory of the heap.
 *
 * Huge pages are either a memfd's own property (MFD_HUGETLB, from the pool that
 * the administrator reserved) or the kernel's choice (transparent ones, where
 * shared memory may have them). docs/design/env.md.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "env/mem_file.h"
#include "env/real/real.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

/* Smaller than this is not worth a look at /proc. */
#define CHECK_LEN (16u << 20)

#define SHMEM_ENABLED "/sys/kernel/mm/transparent_hugepage/shmem_enabled"

#define OVERCOMMIT "/proc/sys/vm/overcommit_memory"

size_t env_mem_page(int fd)
{
	struct statfs fs;

	if (!fstatfs(fd, &fs) && fs.f_type == HUGETLBFS_MAGIC)
		return (size_t)fs.f_bsize;
	return (size_t)sysconf(_SC_PAGESIZE);
}

static int round_to_pages(size_t len, size_t page, size_t *rounded)
{
	if (!len || len > SIZE_MAX / 2)
		return len ? -ENOMEM : -EINVAL;
	*rounded = (len + page - 1) & ~(page - 1);
	return 0;
}

/* Allocating more than there is would not fail: the OOM killer would run. */
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

static int memfd_open(const char *name, unsigned flags)
{
	int fd;

	flags |= MFD_CLOEXEC | MFD_ALLOW_SEALING;
	fd = memfd_create(name, flags | MFD_NOEXEC_SEAL);

	if (fd < 0 && errno == EINVAL) /* kernels before 6.3 refuse the flag */
		fd = memfd_create(name, flags);
	return fd < 0 ? -errno : fd;
}

static int memfd_fill_range(int fd, size_t off, size_t len)
{
	int rc = mem_file_alloc(fd, off, len);

	return rc == -ENOSPC ? -ENOMEM : rc;
}

static int memfd_seal(int fd)
{
	return fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
		       ? -errno
		       : 0;
}

static int memfd_fill(int fd, size_t len)
{
	int rc = memfd_fill_range(fd, 0, len);

	return rc ? rc : memfd_seal(fd);
}

static int memfd_map(int fd, size_t len, void **addr)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	int rc;

	if (p == MAP_FAILED)
		return -errno;
	if (madvise(p, len, MADV_DONTFORK)) {
		rc = -errno;
		munmap(p, len);
		return rc;
	}
	*addr = p;
	return 0;
}

/* Allocates, seals and maps the file; owns it from now on, also on failure. */
static int memfd_make(int fd, size_t len, void **addr)
{
	int rc = memfd_fill(fd, len);

	if (!rc)
		rc = memfd_map(fd, len, addr);
	if (rc)
		close(fd);
	return rc;
}

/* The same, but first touches pages through the mapping that has the advice.
 * The allocation then adds the missing ones as small pages. */
static int memfd_make_transparent(int fd, size_t len, void **addr)
{
	int rc = mem_file_resize(fd, len);
	void *p = NULL;

	if (rc)
		goto err_close;
	rc = memfd_map(fd, len, &p);
	if (rc)
		goto err_close;
	if (!madvise(p, len, MADV_HUGEPAGE))
		madvise(p, len, MADV_POPULATE_WRITE);
	rc = memfd_fill(fd, len);
	if (rc)
		goto err_unmap;
	*addr = p;
	return 0;

err_unmap:
	munmap(p, len);
err_close:
	close(fd);
	return rc;
}

/* Does the kernel make transparent huge pages of shared memory? */
static bool transparent_allowed(void)
{
	char line[128] = "";
	FILE *f = fopen(SHMEM_ENABLED, "re");

	if (!f)
		return false;
	if (!fgets(line, sizeof(line), f))
		line[0] = '\0';
	fclose(f);
	return strchr(line, '[') && !strstr(line, "[never]") &&
	       !strstr(line, "[deny]");
}

/* Logged once: a program makes many regions. */
static void tell_fallback(struct skein_env *env, size_t len, size_t page,
			  bool transparent)
{
	if (atomic_exchange(&real_env_of(env)->huge_logged, true))
		return;
	env_log(env, ENV_LOG_INFO,
		"no huge pages of %zu KiB are free for a region of %zu bytes: "
		"%s pages are used (SKEIN_HUGEPAGES=auto; vm.nr_hugepages "
		"reserves huge ones)",
		page >> 10, len, transparent ? "transparent" : "ordinary");
}

static void tell_limit(struct skein_env *env, size_t len, int rc)
{
	if (rc == -EFBIG)
		env_log(env, ENV_LOG_ERROR,
			"shared memory is a file: RLIMIT_FSIZE does not allow "
			"one of %zu bytes (ulimit -f unlimited)",
			len);
}

/* From the reserved pool. -ENOENT: huge pages do not apply. */
static int huge_alloc(struct skein_env *env, const char *name, size_t len,
		      int *fd, void **addr)
{
	int memfd = memfd_open(name, MFD_HUGETLB), rc;
	size_t page, rounded = 0;

	if (memfd < 0 && env->huge == ENV_HUGE_ON) {
		env_log(env, ENV_LOG_ERROR,
			"this kernel has no huge pages, which "
			"SKEIN_HUGEPAGES=on asks for: %s",
			strerror(-memfd));
		return memfd;
	}
	if (memfd < 0)
		return -ENOENT;
	page = env_mem_page(memfd);
	rc = len < page ? -ENOENT : round_to_pages(len, page, &rounded);
	if (rc) {
		close(memfd);
		return rc;
	}
	rc = memfd_make(memfd, rounded, addr);
	if (!rc)
		*fd = memfd;
	else if (env->huge == ENV_HUGE_ON)
		env_log(env, ENV_LOG_ERROR,
			"no %zu huge pages of %zu KiB are free for a region of "
			"%zu bytes: %s (vm.nr_hugepages reserves them; "
			"SKEIN_HUGEPAGES=auto does without)",
			rounded / page, page >> 10, len, strerror(-rc));
	else
		tell_fallback(env, len, page, transparent_allowed());
	return rc;
}

int real_mem_alloc(struct skein_env *env, const char *name, size_t len, int *fd,
		   void **addr)
{
	size_t rounded;
	int rc, memfd;

	rc = round_to_pages(len, (size_t)sysconf(_SC_PAGESIZE), &rounded);
	if (rc)
		return rc;
	if (env->huge != ENV_HUGE_OFF) {
		rc = huge_alloc(env, name, len, fd, addr);
		if (!rc || (rc != -ENOENT && env->huge == ENV_HUGE_ON))
			return rc;
	}
	rc = enough_memory(rounded);
	if (rc)
		return rc;
	memfd = memfd_open(name, 0);
	if (memfd < 0)
		return memfd;
	if (env->huge != ENV_HUGE_OFF && transparent_allowed())
		rc = memfd_make_transparent(memfd, rounded, addr);
	else
		rc = memfd_make(memfd, rounded, addr);
	if (!rc)
		*fd = memfd;
	tell_limit(env, rounded, rc);
	return rc;
}

int real_mem_reserve(struct skein_env *env, const char *name, size_t len,
		     int *fd, void **addr)
{
	size_t rounded;
	int rc, memfd;

	rc = round_to_pages(len, (size_t)sysconf(_SC_PAGESIZE), &rounded);
	if (!rc)
		rc = enough_memory(rounded);
	if (rc)
		return rc;
	memfd = memfd_open(name, 0);
	if (memfd < 0)
		return memfd;
	rc = mem_file_resize(memfd, rounded);
	if (!rc)
		rc = memfd_seal(memfd);
	if (!rc)
		rc = memfd_map(memfd, rounded, addr);
	if (rc)
		close(memfd);
	else
		*fd = memfd;
	tell_limit(env, rounded, rc);
	return rc;
}

/* 0 and 1: pages of shared memory are not counted. */
static enum real_commit commit_read(void)
{
	FILE *f = fopen(OVERCOMMIT, "re");
	int how = f ? fgetc(f) : EOF;

	if (f)
		fclose(f);
	return how == '0' || how == '1' ? REAL_COMMIT_MAKES_IT
					: REAL_COMMIT_MAY_REFUSE;
}

bool real_mem_on_demand(struct skein_env *env)
{
	atomic_int *commit = &real_env_of(env)->commit;

	if (atomic_load(commit) == REAL_COMMIT_UNKNOWN)
		atomic_store(commit, commit_read());
	return atomic_load(commit) == REAL_COMMIT_MAKES_IT;
}

int real_mem_fill(struct skein_env *env, int fd, void *addr, size_t off,
		  size_t len)
{
	int rc = memfd_fill_range(fd, off, len);

	(void)env;
	/* They are about to be written: one call instead of a fault for each. */
	if (!rc)
		(void)madvise((char *)addr + off, len, MADV_POPULATE_WRITE);
	return rc ? -ENOMEM : 0;
}

void real_mem_drop(struct skein_env *env, int fd, size_t off, size_t len)
{
	(void)env;
	/* What stays for want of it goes with the file. */
	(void)fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			(off_t)off, (off_t)len);
}

void real_mem_free(struct skein_env *env, int fd, void *addr, size_t len)
{
	(void)env;
	if (addr && !round_to_pages(len, env_mem_page(fd), &len))
		munmap(addr, len);
	if (fd >= 0)
		close(fd);
}
