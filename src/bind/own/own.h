/* SPDX-License-Identifier: MIT */
/*
 * own.h - the descriptors that a preloaded library of ours has opened in a
 * program's process.
 *
 * They are high numbers, for programs count on the lowest ones; close-on-exec;
 * and the calls that end or replace a number leave them alone: a program that
 * closes every number that it does not know (a daemon) would otherwise give them
 * to its next files, and the library would write there.
 *
 * wrap.c brings every descriptor here. Thread rule: any thread, no lock. One
 * that is closed leaves before its number is free.
 */
#ifndef SKEIN_BIND_OWN_OWN_H
#define SKEIN_BIND_OWN_OWN_H

#include <stdbool.h>

/* Before the program's first thread starts: the kernel's table has room for the
 * high numbers then. It grows in a process of several threads as slowly as
 * synchronize_rcu() is. */
void own_init(void);
/* Takes in a descriptor that the library has just opened. Returns its number from
 * now on: a high one where the limit of open files has room for it. -1 stays -1;
 * errno is kept. */
int own_keep(int fd);
/* The library is about to close it, or it is the program's from now on. */
void own_drop(int fd);
bool own_has(int fd);
/* The library's first number that is at least `from`, or -1. */
int own_next(unsigned from);
/* A forked child: the parent's descriptors are of no use to it, but for `but`
 * (-1: none), and it may close them. */
void own_fork(int but);

/* The same, and closes them: a socket of the parent's would live on here, and with
 * it the connection of the program that is on its way there (SCM_RIGHTS). */
void own_close(int but);

/* close_range() without the library's numbers: real(first, last, arg) for the
 * ranges between them. 0, or -1 if one of the calls has failed. */
int own_around(unsigned first, unsigned last,
	       int (*real)(unsigned first, unsigned last, int arg), int arg);

#endif
