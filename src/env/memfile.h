/* SPDX-License-Identifier: MIT */
/*
 * memfile.h - the length of a file that is memory (memfd).
 *
 * A length above RLIMIT_FSIZE is -EFBIG, and not SIGXFSZ, whose default is to end
 * the process. What the program does about signals is not changed.
 *
 * Thread rule: no state.
 */
#ifndef SKEIN_ENV_MEMFILE_H
#define SKEIN_ENV_MEMFILE_H

#include <stdint.h>

/* fallocate(2), which makes the file longer where need be: 0 or -errno. */
int memfile_alloc(int fd, uint64_t off, uint64_t len);
/* ftruncate(2): 0 or -errno. */
int memfile_resize(int fd, uint64_t len);

#endif
