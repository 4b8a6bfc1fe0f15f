/* SPDX-License-Identifier: MIT */
/*
 * hostport.h - addresses as people write them: "HOST:PORT", "[V6]:PORT", ":PORT".
 *
 * Strict on purpose: a port is decimal digits, an IPv6 address stands in brackets,
 * so that "::1:7000" is refused rather than guessed at. Pure: no look-up happens
 * here (that is env_resolve()).
 */
#ifndef SKEIN_BASE_HOSTPORT_H
#define SKEIN_BASE_HOSTPORT_H

#define HOSTPORT_HOST_MAX 253 /* a DNS name */

struct hostport {
	char host[HOSTPORT_HOST_MAX + 1]; /* without brackets; "": the wildcard */
	char port[6];			  /* "0" to "65535" */
};

/* -EINVAL for a text that is none of the three forms; NULL is none. */
int hostport_parse(const char *text, struct hostport *to);

#endif
