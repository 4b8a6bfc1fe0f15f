/* SPDX-License-Identifier: MIT */
/*
 * addr.h - addresses as people write them: "HOST:PORT", "[V6]:PORT", ":PORT".
 *
 * Pure: no look-up happens here (that is env_resolve()).
 */
#ifndef SKEIN_CONN_SETUP_ADDR_H
#define SKEIN_CONN_SETUP_ADDR_H

#include <stddef.h>
#include <sys/socket.h>

#define CONN_ADDR_HOST_MAX 253 /* a DNS name */
#define CONN_ADDR_TEXT_MAX 72  /* "[v6%scope]:port" and the NUL */

struct conn_addr {
	char host[CONN_ADDR_HOST_MAX + 1]; /* "" is the wildcard */
	char port[6];			   /* "0" to "65535" */
};

/* -EINVAL for a text that is none of the three forms. */
int conn_addr_parse(const char *text, struct conn_addr *addr);

/* "10.0.0.7:7000" or "[fe80::1]:7000". */
void conn_addr_format(const struct sockaddr_storage *ss, char *buf, size_t len);

#endif
