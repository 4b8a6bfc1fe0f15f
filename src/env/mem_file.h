/* SPDX-License-Identifier: MIT */
/*
 * mem_file.h - the length of a file that is memory (memfd).
 *
 * A length above RLIMIT_FSIZE is -EFBIG, and not SIGXFSZ, which by default ends
 * the process. What the program does about signals is not changed.
 *
 * Thread rule: no state.
 */
#ifndef SKEIN_ENV_MEM_FILE_H
#define SKEIN_ENV_MEM_FILE_H

#include <stdint.h>

/* fallocate(2), which makes the file longer where need be: 0 or -errno. */
int mem_file_alloc(int fd, uint64_t off, uint64_t len);
/* ftruncate(2): 0 or -errno. */
int mem_file_resize(int fd, uint64_t len);

#endif
