/* SPDX-License-Identifier: MIT */
/*
 * reach.h - may memory that the program names be read, or written? A call on a
 * stream copies in user space, where a bad pointer would end the process; the
 * kernel says EFAULT.
 *
 * Thread rule: any thread, no lock.
 */
#ifndef SKEIN_BIND_SOCKET_REACH_H
#define SKEIN_BIND_SOCKET_REACH_H

#include <stdbool.h>
#include <stddef.h>

struct iovec;

/* How many of the len bytes from p on, without a gap. The bytes of reach_write()
 * may be changed: the caller is about to write them. */
size_t reach_read(const void *p, size_t len);
size_t reach_write(void *p, size_t len);

/* All of them? Else errno is EFAULT. */
bool reach_reads(const void *p, size_t len);
bool reach_writes(void *p, size_t len);
/* Can n pieces be read from iov? Else errno is EFAULT or EINVAL. */
bool reach_iov(const struct iovec *iov, int n);

#endif
