/* SPDX-License-Identifier: MIT */
/*
 * export.h - a function under the C library's name. Inside it is call_NAME, so
 * that no header's attributes, macros or 64-bit names are in the way.
 */
#ifndef SKEIN_BIND_SOCKET_EXPORT_H
#define SKEIN_BIND_SOCKET_EXPORT_H

#include <stdbool.h>

#define EXPORT(result, name, ...)                       \
	result call_##name(__VA_ARGS__) __asm__(#name)  \
		__attribute__((visibility("default"))); \
	result call_##name(__VA_ARGS__)

/* The number will mean another file, or none; errno is kept. */
void calls_forget(int fd);
/* A program's syscall() that ends or replaces a number, or a socket's connection.
 * False: it is another one. */
bool calls_numbers(long number, long a, long b, long c, long *rc);
/* One by which a child gets a copy of the memory. */
bool exec_clones(long number, const long args[6], long *rc);
/* Before it, if it is one that forbids others. */
void sandbox_syscall(long number, const long args[6]);

#endif
