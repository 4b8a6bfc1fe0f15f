/* SPDX-License-Identifier: MIT */
/*
 * addr.h - a socket's address as text, which base/hostport.h takes apart.
 */
#ifndef SKEIN_CONN_SETUP_ADDR_H
#define SKEIN_CONN_SETUP_ADDR_H

#include <stddef.h>
#include <sys/socket.h>

#define CONN_ADDR_TEXT_MAX 72 /* "[v6%scope]:port" and the NUL */

/* "10.0.0.7:7000" or "[fe80::1]:7000". */
void conn_addr_format(const struct sockaddr_storage *ss, char *buf, size_t len);

#endif
