/* SPDX-License-Identifier: MIT */
/* window_fd.h - what window.c and fork.c share. */
#ifndef SKEIN_BIND_VERBS_WINDOW_FD_H
#define SKEIN_BIND_VERBS_WINDOW_FD_H

#include <stdbool.h>

struct window;

/* A new, empty, sealed file of the window's size; sets dev and ino. -1 with
 * errno. */
int window_memfd(struct window *w);
/* Is its descriptor still its file? */
bool window_fd_ours(const struct window *w);

#endif
