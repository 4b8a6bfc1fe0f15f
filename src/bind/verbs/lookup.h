/* SPDX-License-Identifier: MIT */
/*
 * lookup.h - dlsym() and dlvsym(). Programs that load libibverbs by dlopen() ask
 * for its functions by handle, where the order of libraries does not help: for
 * what comes from libibverbs and is interposed, they get this library's.
 *
 * Thread rule: any thread.
 */
#ifndef SKEIN_BIND_VERBS_LOOKUP_H
#define SKEIN_BIND_VERBS_LOOKUP_H

/* The C library's own, which this library uses itself. */
void *lookup_dlsym(void *handle, const char *name);
void *lookup_dlvsym(void *handle, const char *name, const char *version);

#endif
