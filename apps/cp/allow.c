/* SPDX-License-Identifier: MIT */
/*
 * allow.c - see allow.h.
 */
#include "cp/allow.h"

#include "cp/sender/targets.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define ITEM_MAX 512

static bool parse_addr(const char *host, uint8_t addr[16])
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	memcpy(addr, mapped, sizeof(mapped));
	return inet_pton(AF_INET, host, addr + 12) == 1 ||
	       inet_pton(AF_INET6, host, addr) == 1;
}

static int add_net(struct cp_allow *a, const uint8_t addr[16], unsigned bits)
{
	struct cp_net *p = realloc(a->net, (a->nets + 1) * sizeof(*p));

	if (!p)
		return -ENOMEM;
	a->net = p;
	memcpy(p[a->nets].addr, addr, 16);
	p[a->nets++].bits = bits;
	return 0;
}

static int add_name(struct cp_allow *a, const char *name)
{
	char **p = realloc(a->name, (a->names + 1) * sizeof(char *));

	if (!p)
		return -ENOMEM;
	a->name = p;
	p[a->names] = strdup(name);
	if (!p[a->names])
		return -ENOMEM;
	a->names++;
	return 0;
}

/* "ADDRESS/BITS" */
static int add_prefix(struct cp_allow *a, char *item, struct cp_err *err)
{
	char *slash = strchr(item, '/'), *end;
	unsigned long bits = strtoul(slash + 1, &end, 10), max;
	uint8_t addr[16];

	*slash = 0;
	max = strchr(item, ':') ? 128 : 32;
	if (!parse_addr(item, addr) || end == slash + 1 || *end || bits > max)
		return cp_fail(err, -EINVAL,
			       "--allow: \"%s/%s\" is no ADDRESS/BITS", item,
			       slash + 1);
	return add_net(a, addr, (unsigned)(128 - max + bits));
}

/* What a name stands for now; a name that stands for nothing is no error. */
static int add_looked_up(struct cp_allow *a, const char *name)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list, *i;
	int rc = 0;

	/* Without /etc/hosts a name server would be asked, in vain. */
	if (!strcasecmp(name, "localhost"))
		name = NULL;
	if (getaddrinfo(name, "0", &hints, &list))
		return 0;
	for (i = list; i && !rc; i = i->ai_next) {
		char text[INET6_ADDRSTRLEN];
		uint8_t addr[16];

		if (!getnameinfo(i->ai_addr, i->ai_addrlen, text, sizeof(text),
				 NULL, 0, NI_NUMERICHOST) &&
		    parse_addr(text, addr))
			rc = add_net(a, addr, 128);
	}
	freeaddrinfo(list);
	return rc;
}

static int add_host(struct cp_allow *a, const char *host)
{
	char bare[CP_HOST_MAX + 1];
	uint8_t addr[16];
	size_t len = strlen(host);
	int rc;

	if (len >= 2 && host[0] == '[' && host[len - 1] == ']') {
		host++;
		len -= 2;
	}
	snprintf(bare, sizeof(bare), "%.*s", (int)len, host);
	if (parse_addr(bare, addr))
		return add_net(a, addr, 128);
	rc = add_name(a, bare);
	return rc ? rc : add_looked_up(a, bare);
}

static int add_item(struct cp_allow *a, char *item, struct cp_err *err)
{
	struct cp_targets hosts = {0};
	uint8_t addr[16];
	int rc;

	if (strchr(item, '/'))
		return add_prefix(a, item, err);
	if (parse_addr(item, addr)) /* IPv6 without brackets, too */
		return add_net(a, addr, 128);
	rc = cp_targets_add(&hosts, item, false, err);
	for (size_t i = 0; i < hosts.n && !rc; i++) {
		if (hosts.v[i].port || hosts.v[i].path)
			rc = cp_fail(err, -EINVAL,
				     "--allow: \"%s\": hosts alone, without "
				     "port or path",
				     item);
		else
			rc = add_host(a, hosts.v[i].host);
	}
	cp_targets_fini(&hosts);
	return rc;
}

/* The length of the first item: up to a comma that is in no brackets. */
static size_t item_len(const char *list)
{
	size_t n = 0;
	int deep = 0;

	for (; list[n] && (deep || list[n] != ','); n++)
		deep += (list[n] == '[') - (list[n] == ']');
	return n;
}

int cp_allow_add(struct cp_allow *a, const char *list, struct cp_err *err)
{
	int rc = 0;

	for (;;) {
		char item[ITEM_MAX];
		size_t len = item_len(list);

		if (!len || len >= sizeof(item))
			return cp_fail(err, -EINVAL, "--allow: an item is %s",
				       len ? "too long" : "empty");
		memcpy(item, list, len);
		item[len] = 0;
		rc = add_item(a, item, err);
		if (rc == -ENOMEM)
			cp_fail(err, rc, "no memory");
		if (rc || !list[len])
			return rc;
		list += len + 1;
	}
}

int cp_allow_loopback(struct cp_allow *a)
{
	uint8_t addr[16];
	int rc;

	parse_addr("127.0.0.0", addr);
	rc = add_net(a, addr, 96 + 8);
	parse_addr("::1", addr);
	if (!rc)
		rc = add_net(a, addr, 128);
	return rc ? rc : add_name(a, "localhost");
}

static bool in_net(const struct cp_net *net, const uint8_t addr[16])
{
	unsigned whole = net->bits / 8, rest = net->bits % 8;

	if (memcmp(net->addr, addr, whole) != 0)
		return false;
	return !rest || !((net->addr[whole] ^ addr[whole]) >> (8 - rest));
}

bool cp_allow_has(const struct cp_allow *a, const char *addr)
{
	char host[CP_HOST_MAX + 1];
	size_t len = strcspn(addr, " ");
	const char *colon = memrchr(addr, ':', len);
	uint8_t bytes[16];

	if (colon)
		len = (size_t)(colon - addr);
	if (len >= 2 && addr[0] == '[' && addr[len - 1] == ']') {
		addr++;
		len -= 2;
	}
	if (!len || len >= sizeof(host))
		return false;
	memcpy(host, addr, len);
	host[len] = 0;
	if (parse_addr(host, bytes)) {
		for (size_t i = 0; i < a->nets; i++)
			if (in_net(&a->net[i], bytes))
				return true;
		return false;
	}
	for (size_t i = 0; i < a->names; i++)
		if (!strcasecmp(a->name[i], host))
			return true;
	return false;
}

void cp_allow_fini(struct cp_allow *a)
{
	for (size_t i = 0; i < a->names; i++)
		free(a->name[i]);
	free(a->name);
	free(a->net);
	*a = (struct cp_allow){0};
}
