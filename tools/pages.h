/* SPDX-License-Identifier: MIT */
/*
 * pages.h - finds the pages that processes of Skein write of themselves: memfds
 * of a name among the descriptors in /proc/PID/fd. Nobody is asked; what a page
 * says is its process's word, and readers check it.
 */
#ifndef SKEIN_TOOLS_PAGES_H
#define SKEIN_TOOLS_PAGES_H

#include <stddef.h>

/* errno, if it says that no descriptor was left (EMFILE, ENFILE), negative;
 * else 0. */
int pages_short(void);

/* Calls page(arg, fd) for each descriptor of the process (proc: its folder) that
 * is a memfd of this name, opened for reading. None: it has none, or is not
 * ours to look at. 0, -EMFILE or -ENFILE. */
int pages_each(int proc, const char *name, void (*page)(void *arg, int fd),
	       void *arg);

/* Text that a process wrote may be no text: what cannot be printed becomes
 * '?'. */
void pages_text(char *text, size_t len);

#endif
