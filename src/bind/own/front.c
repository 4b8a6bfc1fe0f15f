/* SPDX-License-Identifier: MIT */
/*
 * front.c - nothing: what LD_PRELOAD names is a library that needs none and
 * defines nothing. glibc's loader puts the library that it has as DT_AUXILIARY
 * before it; musl's, which would not start a program with that one, does not.
 */
extern int skein_front; /* no empty file */
