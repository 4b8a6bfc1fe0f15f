/* SPDX-License-Identifier: MIT */
/*
 * guard.h - what listens beyond this host asks for a key or an explicit word.
 */
#ifndef SKEIN_TOOLS_GUARD_H
#define SKEIN_TOOLS_GUARD_H

#include <stdbool.h>

/* Does the host, a name or an address with or without the brackets of IPv6,
 * stand for addresses of this host's own loopback alone? "" is every address.
 * Looks names up, and blocks for it. */
bool guard_is_loopback(const char *host);

/* The same of "HOST:PORT"; where it is not, prints that cmd wants words
 * ("--key FILE or --insecure") and returns false. */
bool guard_may_listen(const char *cmd, const char *addr, const char *words);

#endif
