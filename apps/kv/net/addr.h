/* SPDX-License-Identifier: MIT */
/*
 * addr.h - "HOST:PORT" for the plain TCP transport: a name, an IPv4 address, or
 * an IPv6 address in brackets, as skein/conn.h describes them.
 */
#ifndef KV_NET_ADDR_H
#define KV_NET_ADDR_H

#include <stddef.h>
#include <stdint.h>

#define KV_ADDR_MAX 96

/* Blocks. -EINVAL for an address that nobody understands, -EADDRNOTAVAIL for
 * a name without one, -ETIMEDOUT, or what connect said. */
int kv_addr_connect(const char *addr, uint64_t timeout_ns, int *fd);
/* A listening socket, and in text the real "HOST:PORT" of it. */
int kv_addr_listen(const char *addr, int *fd, char text[KV_ADDR_MAX]);

#endif
