/* SPDX-License-Identifier: MIT */
/*
 * file.h - the files behind memory regions, which are handed out to peers. One
 * descriptor serves all regions of a file: a program registers thousands of
 * pieces of one, and may have 1,024 descriptors.
 *
 * Thread rule: any thread; soft.lock is not held.
 */
#ifndef SKEIN_DEV_SOFT_FILE_H
#define SKEIN_DEV_SOFT_FILE_H

#include <stddef.h>
#include <stdint.h>

struct soft;

struct soft_file {
	struct soft_file *next;
	uint64_t dev, ino;
	int mode; /* of the descriptor: O_RDWR or another */
	int fd;
	uint32_t refs;
};

/* The file of fd if it can be handed out, that is, if nobody can shrink it while
 * a peer has it mapped; else NULL. The caller keeps fd. */
struct soft_file *soft_file_get(struct soft *s, int fd, uint64_t off,
				size_t len);
void soft_file_put(struct soft *s, struct soft_file *f); /* f may be NULL */

#endif
