/* SPDX-License-Identifier: MIT */
/*
 * one_thread.c - of a test that is said to be one thread: what would start
 * another, or a process, or load code that might, ends it.
 */
#include <stdio.h>
#include <stdlib.h>

void *__wrap_pthread_create(void);
void *__wrap_fork(void);
void *__wrap_dlopen(void);

static void *never(const char *what)
{
	fprintf(stderr, "a test of the suite one-thread has called %s()\n",
		what);
	abort();
}

void *__wrap_pthread_create(void)
{
	return never("pthread_create");
}

void *__wrap_fork(void)
{
	return never("fork");
}

void *__wrap_dlopen(void)
{
	return never("dlopen");
}
