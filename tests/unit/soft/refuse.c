/* SPDX-License-Identifier: MIT */
/* refuse.c - linked with a test of soft: a sandbox that lets a process register
 * for membarrier(2) and refuses the call itself ever after. */
#include <dlfcn.h>
#include <errno.h>
#include <linux/membarrier.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

/* It reads six arguments, however many were passed. */
__attribute__((no_sanitize("address"))) long syscall(long nr, ...)
{
	static long (*next)(long nr, ...);
	long a[6];
	va_list ap;

	va_start(ap, nr);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (nr == SYS_membarrier &&
	    a[0] != MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED &&
	    a[0] != MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) {
		errno = EPERM;
		return -1;
	}
	if (!next)
		*(void **)&next = dlsym(RTLD_NEXT, "syscall");
	return next(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
}
