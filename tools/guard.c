/* SPDX-License-Identifier: MIT */
/*
 * guard.c - see guard.h.
 */
#include "guard.h"

#include "out.h"

#include "base/hostport.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>

#define HOST_MAX 256

static bool is_loopback(const struct sockaddr *sa)
{
	const struct sockaddr_in6 *a6 = (const struct sockaddr_in6 *)sa;
	const struct sockaddr_in *a4 = (const struct sockaddr_in *)sa;

	if (sa->sa_family == AF_INET)
		return ntohl(a4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
	if (sa->sa_family != AF_INET6)
		return false;
	if (IN6_IS_ADDR_V4MAPPED(&a6->sin6_addr))
		return a6->sin6_addr.s6_addr[12] == IN_LOOPBACKNET;
	return IN6_IS_ADDR_LOOPBACK(&a6->sin6_addr);
}

bool guard_is_loopback(const char *host)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list, *i;
	size_t len = strlen(host);
	char bare[HOST_MAX];
	bool all = true;

	if (len >= 2 && host[0] == '[' && host[len - 1] == ']') {
		host++;
		len -= 2;
	}
	if (!len || len >= sizeof(bare))
		return false;
	memcpy(bare, host, len);
	bare[len] = 0;
	if (getaddrinfo(bare, NULL, &hints, &list))
		return false;
	for (i = list; i; i = i->ai_next)
		all &= is_loopback(i->ai_addr);
	freeaddrinfo(list);
	return all;
}

/* Is there such a host? */
static bool is_found(const char *cmd, const char *host)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list;
	int rc;

	if (!*host)
		return true;
	rc = getaddrinfo(host, NULL, &hints, &list);
	if (rc)
		out_error(cmd,
			  "cannot find host %s: check the name, or give an "
			  "address (%s)",
			  host, gai_strerror(rc));
	else
		freeaddrinfo(list);
	return !rc;
}

bool guard_may_listen(const char *cmd, const char *addr, const char *words)
{
	struct hostport at;

	if (hostport_parse(addr, &at)) {
		out_error(cmd,
			  "\"%.64s\" is no HOST:PORT (an IPv6 address in "
			  "brackets), with a port from 0 to 65535",
			  addr);
		return false;
	}
	if (!is_found(cmd, at.host))
		return false;
	if (guard_is_loopback(at.host))
		return true;
	out_error(cmd,
		  "%s is reached from other hosts, and nothing is asked of "
		  "them: give %s",
		  at.host[0] ? at.host : "every address", words);
	return false;
}
