/* SPDX-License-Identifier: MIT */
/*
 * map.c - mmap() and shmget() and what goes with them: large anonymous private
 * memory comes from the window, private System V segments from shm.c.
 *
 * Shared memory differs from private memory in fork() (fork.c makes it good)
 * and in madvise(): what should read as zero afterwards is punched out here.
 */
/* Without this, mmap() would be another name for mmap64(), and would not be
 * defined. */
#undef _FILE_OFFSET_BITS
#include "bind/verbs/state.h"
#include "bind/verbs/sys.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#define LARGE (128ul << 10)
#define EXPORT __attribute__((visibility("default")))

/* Reservations, stacks, fixed places, huge pages and odd protections stay what
 * they are. */
static bool wanted(const void *addr, size_t len, int prot, int flags)
{
	return vb.back_map && !addr && len >= LARGE &&
	       prot == (PROT_READ | PROT_WRITE) &&
	       (flags & ~MAP_POPULATE) == (MAP_PRIVATE | MAP_ANONYMOUS);
}

EXPORT void *mmap(void *addr, size_t len, int prot, int flags, int fd,
		  off_t off)
{
	void *p = NULL;

	if (wanted(addr, len, prot, flags))
		p = window_alloc(&vb.window, len, 1, WINDOW_MAP, true);
	if (!p)
		return sys_mmap(addr, len, prot, flags, fd, off);
	if (flags & MAP_POPULATE)
		sys_madvise(p, len, MADV_POPULATE_WRITE); /* if it can */
	return p;
}

EXPORT void *mmap64(void *addr, size_t len, int prot, int flags, int fd,
		    off64_t off) __attribute__((alias("mmap")));

/* How much of len bytes from addr on lies in the window. */
static size_t inside(const void *addr, size_t len)
{
	uintptr_t base = atomic_load(&vb.window.base);
	size_t left = base + vb.window.span - (uintptr_t)addr;

	return len < left ? len : left;
}

EXPORT int munmap(void *addr, size_t len)
{
	size_t part;

	if (!window_has(&vb.window, addr))
		return sys_munmap(addr, len);
	if ((uintptr_t)addr % WINDOW_PAGE || !len) {
		errno = EINVAL;
		return -1;
	}
	part = inside(addr, len);
	window_unmap(&vb.window, addr, part);
	return part < len ? sys_munmap((char *)addr + part, len - part) : 0;
}

EXPORT int madvise(void *addr, size_t len, int advice)
{
	int rc;

	if ((advice != MADV_DONTNEED && advice != MADV_FREE) || !len ||
	    !window_has(&vb.window, addr))
		return sys_madvise(addr, len, advice);
	rc = window_clean(&vb.window, addr, inside(addr, len));
	if (!rc)
		return 0;
	errno = -rc;
	return -1;
}

/* New memory for what is moved out of the window. */
static void *target(size_t len, int flags, void *at)
{
	if (!(flags & MREMAP_FIXED))
		return mmap(NULL, len, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return sys_mmap(at, len, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

static void *move(void *old, size_t old_len, size_t len, int flags, void *at)
{
	void *p;

	if (!(flags & MREMAP_FIXED) && len <= old_len) {
		if (len < old_len)
			munmap((char *)old + len, old_len - len);
		return old;
	}
	if (!(flags & MREMAP_MAYMOVE)) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	p = target(len, flags, at);
	if (p == MAP_FAILED)
		return p;
	memcpy(p, old, old_len < len ? old_len : len);
	munmap(old, old_len);
	return p;
}

EXPORT void *mremap(void *old, size_t old_len, size_t len, int flags, ...)
{
	void *at = NULL;
	va_list ap;

	if (flags & MREMAP_FIXED) {
		va_start(ap, flags);
		at = va_arg(ap, void *);
		va_end(ap);
	}
	if (!window_has(&vb.window, old))
		return (void *)syscall(SYS_mremap, old, old_len, len, flags,
				       at);
	return move(old, (old_len + WINDOW_PAGE - 1) & ~(WINDOW_PAGE - 1),
		    (len + WINDOW_PAGE - 1) & ~(WINDOW_PAGE - 1), flags, at);
}

EXPORT int shmget(key_t key, size_t size, int flags)
{
	if (key != IPC_PRIVATE || size < LARGE || !vb.back_shm)
		return (int)syscall(SYS_shmget, key, size, flags);
	return vb_shm_get(&vb.shm, size, flags);
}

EXPORT void *shmat(int id, const void *addr, int flags)
{
	if (!vb_shm_is_id(id))
		return (void *)syscall(SYS_shmat, id, addr, flags);
	return vb_shm_attach(&vb.shm, id, addr, flags);
}

EXPORT int shmdt(const void *addr)
{
	if (vb_shm_detach(&vb.shm, addr))
		return 0;
	return (int)syscall(SYS_shmdt, addr);
}

EXPORT int shmctl(int id, int cmd, struct shmid_ds *ds)
{
	if (vb_shm_is_id(id))
		return vb_shm_ctl(&vb.shm, id, cmd, ds);
	return (int)syscall(SYS_shmctl, id, cmd, ds);
}
