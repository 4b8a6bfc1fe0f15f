/* SPDX-License-Identifier: MIT */
/*
 * allow.h - which hosts a receiver has to do with: "node[1-64],10.0.0.0/8,::1".
 *
 * A numeric address is allowed when it lies in one of the list's networks, or
 * is one that a name of the list stood for when the list was read. A name is
 * allowed when the list has that very name: nothing is looked up later.
 *
 * Thread rule: constant once it is made.
 */
#ifndef CP_ALLOW_H
#define CP_ALLOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cp/err.h"

struct cp_net {
	uint8_t addr[16]; /* IPv4 as ::ffff:a.b.c.d */
	unsigned bits;
};

struct cp_allow {
	struct cp_net *net;
	size_t nets;
	char **name;
	size_t names;
};

/* Adds the items of a list: hosts as targets write them, without port and path,
 * and networks as ADDRESS/BITS. Looks names up, and blocks for it. -EINVAL with
 * the item in err, -ENOMEM. */
int cp_allow_add(struct cp_allow *a, const char *list, struct cp_err *err);
/* Adds this host's own: 127.0.0.0/8, ::1, "localhost". -ENOMEM. */
int cp_allow_loopback(struct cp_allow *a);
/* addr: "HOST:PORT", an IPv6 address in brackets; what follows a blank does not
 * count. */
bool cp_allow_has(const struct cp_allow *a, const char *addr);
void cp_allow_fini(struct cp_allow *a);

#endif
