/* SPDX-License-Identifier: MIT */
/*
 * addr.c - takes addresses apart and puts them together.
 *
 * Strict on purpose: a port is decimal digits, an IPv6 address stands in
 * brackets, so that "::1:7000" is refused rather than guessed at.
 */
#include "conn/setup/addr.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define PORT_MAX 65535u

static bool name_char(char c, bool v6)
{
	if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
	    (c >= 'A' && c <= 'Z') || c == '-' || c == '.' || c == '_')
		return true;
	return v6 && (c == ':' || c == '%');
}

static bool name_ok(const char *s, size_t len, bool v6)
{
	if (len > CONN_ADDR_HOST_MAX)
		return false;
	for (size_t i = 0; i < len; i++)
		if (!name_char(s[i], v6))
			return false;
	return true;
}

static bool port_ok(const char *s)
{
	unsigned port = 0;
	size_t n = strlen(s);

	if (n < 1 || n > 5)
		return false;
	for (size_t i = 0; i < n; i++) {
		if (s[i] < '0' || s[i] > '9')
			return false;
		port = port * 10 + (unsigned)(s[i] - '0');
	}
	return port <= PORT_MAX;
}

int conn_addr_parse(const char *text, struct conn_addr *addr)
{
	const char *host = text, *end, *colon;
	bool v6;

	if (!text)
		return -EINVAL;
	v6 = text[0] == '[';
	if (v6) {
		host = text + 1;
		end = strchr(host, ']');
		if (!end || end == host || end[1] != ':')
			return -EINVAL;
		colon = end + 1;
	} else {
		end = colon = strrchr(text, ':');
		if (!colon)
			return -EINVAL;
	}
	if (!name_ok(host, (size_t)(end - host), v6) || !port_ok(colon + 1))
		return -EINVAL;
	memset(addr, 0, sizeof(*addr));
	memcpy(addr->host, host, (size_t)(end - host));
	memcpy(addr->port, colon + 1, strlen(colon + 1));
	return 0;
}

void conn_addr_format(const struct sockaddr_storage *ss, char *buf, size_t len)
{
	char host[INET6_ADDRSTRLEN] = "?";

	if (ss->ss_family == AF_INET) {
		const struct sockaddr_in *in = (const void *)ss;

		inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host));
		snprintf(buf, len, "%s:%u", host, ntohs(in->sin_port));
	} else if (ss->ss_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = (const void *)ss;

		inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof(host));
		snprintf(buf, len, "[%s]:%u", host, ntohs(in6->sin6_port));
	} else {
		snprintf(buf, len, "(no address)");
	}
}
