/* SPDX-License-Identifier: MIT */
/*
 * sys.h - the system calls that this library interposes, made directly. Calling
 * the function of that name would call our own, and libc's cannot be looked up
 * when malloc() runs first.
 */
#ifndef SKEIN_BIND_VERBS_SYS_H
#define SKEIN_BIND_VERBS_SYS_H

#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static inline void *sys_mmap(void *addr, size_t len, int prot, int flags,
			     int fd, off_t off)
{
	return (void *)syscall(SYS_mmap, addr, len, prot, flags, fd, off);
}

static inline int sys_munmap(void *addr, size_t len)
{
	return (int)syscall(SYS_munmap, addr, len);
}

static inline int sys_madvise(void *addr, size_t len, int advice)
{
	return (int)syscall(SYS_madvise, addr, len, advice);
}

#endif
