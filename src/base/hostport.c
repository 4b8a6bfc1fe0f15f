/* SPDX-License-Identifier: MIT */
/*
 * hostport.c - see hostport.h.
 */
#include "base/hostport.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
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
	if (len > HOSTPORT_HOST_MAX)
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

int hostport_parse(const char *text, struct hostport *to)
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
	memset(to, 0, sizeof(*to));
	memcpy(to->host, host, (size_t)(end - host));
	memcpy(to->port, colon + 1, strlen(colon + 1));
	return 0;
}
