/* SPDX-License-Identifier: MIT */
/*
 * gid.c - the GID table: every address of the network namespace, IPv4 as
 * ::ffff:a.b.c.d, all of them RoCEv2. 127.0.0.1 is one of them, so the table
 * is empty only where the loopback interface is down: then the port is down
 * too. An address keeps its index while it is there. The control thread hears
 * of changes by netlink(7).
 */
#include "dev/soft/soft.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

static bool gid_from(const struct ifaddrs *ifa, union ibv_gid *gid)
{
	if (!ifa->ifa_addr || !(ifa->ifa_flags & IFF_UP))
		return false;
	if (ifa->ifa_addr->sa_family == AF_INET) {
		const struct sockaddr_in *in = (void *)ifa->ifa_addr;

		memset(gid, 0, sizeof(*gid));
		gid->raw[10] = gid->raw[11] = 0xff;
		memcpy(&gid->raw[12], &in->sin_addr, 4);
		return true;
	}
	if (ifa->ifa_addr->sa_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = (void *)ifa->ifa_addr;

		memcpy(gid->raw, &in6->sin6_addr, 16);
		return true;
	}
	return false;
}

static bool same(const struct dev_gid *x, const struct dev_gid *y)
{
	return !memcmp(&x->gid, &y->gid, sizeof(x->gid)) &&
	       !strcmp(x->netdev, y->netdev);
}

static bool used(const struct dev_gid *g)
{
	return g->netdev[0];
}

static bool is_loopback(const struct ifaddrs *ifa)
{
	return ifa->ifa_flags & IFF_LOOPBACK;
}

/* Addresses of the loopback come last: a program that takes the first GID can
 * then be reached from other hosts. */
static int collect(struct dev_gid *to)
{
	struct ifaddrs *list, *ifa;
	struct dev_gid *g;
	int n = 0, pass;

	if (getifaddrs(&list))
		return -errno;
	for (pass = 0; pass < 2; pass++) {
		for (ifa = list; ifa && n < SOFT_GID_MAX; ifa = ifa->ifa_next) {
			g = &to[n];
			memset(g, 0, sizeof(*g));
			if (is_loopback(ifa) != (pass == 1) ||
			    !gid_from(ifa, &g->gid))
				continue;
			g->type = DEV_GID_ROCE_V2;
			snprintf(g->netdev, sizeof(g->netdev), "%s",
				 ifa->ifa_name);
			n++;
		}
	}
	freeifaddrs(list);
	return n;
}

static int find(const struct dev_gid *in, int n, const struct dev_gid *g)
{
	int i;

	for (i = 0; i < n; i++)
		if (used(&in[i]) && same(&in[i], g))
			return i;
	return -1;
}

/* An entry keeps its index while its address is there. */
static bool table_update(struct soft *s, const struct dev_gid *now, int n)
{
	bool changed = false;
	int i, at;

	for (i = 0; i < s->n_gids; i++) {
		if (!used(&s->gids[i]) || find(now, n, &s->gids[i]) >= 0)
			continue;
		memset(&s->gids[i], 0, sizeof(s->gids[i]));
		changed = true;
	}
	for (i = 0; i < n; i++) {
		if (find(s->gids, s->n_gids, &now[i]) >= 0)
			continue;
		for (at = 0; at < SOFT_GID_MAX && used(&s->gids[at]); at++)
			;
		if (at == SOFT_GID_MAX)
			break;
		s->gids[at] = now[i];
		s->gids[at].index = at;
		if (at >= s->n_gids)
			s->n_gids = at + 1;
		changed = true;
	}
	return changed;
}

bool soft_port_up(const struct soft *s)
{
	int i;

	for (i = 0; i < s->n_gids; i++)
		if (used(&s->gids[i]))
			return true;
	return false;
}

int soft_gids_load(struct soft *s)
{
	struct dev_gid now[SOFT_GID_MAX] = {0};
	bool was = soft_port_up(s), is;
	int n = collect(now);

	if (n < 0)
		return n;
	if (!table_update(s, now, n) || !s->thread_up)
		return 0;
	is = soft_port_up(s);
	soft_async_port(s, IBV_EVENT_GID_CHANGE);
	if (was != is)
		soft_async_port(s, is ? IBV_EVENT_PORT_ACTIVE
				      : IBV_EVENT_PORT_ERR);
	return 0;
}

bool soft_gid_local(struct soft *s, const union ibv_gid *gid)
{
	int i, again;

	for (again = 0; again < 2; again++) {
		for (i = 0; i < s->n_gids; i++)
			if (used(&s->gids[i]) &&
			    !memcmp(&s->gids[i].gid, gid, sizeof(*gid)))
				return true;
		soft_gids_load(s); /* an address may be new */
	}
	return false;
}

int soft_addr_watch(struct soft *s)
{
	struct sockaddr_nl nl = {.nl_family = AF_NETLINK,
				 .nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR |
					      RTMGRP_IPV6_IFADDR};
	struct soft_src *src = &s->src_addr;

	src->kind = SOFT_SRC_ADDR;
	src->fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK,
			 NETLINK_ROUTE);
	if (src->fd < 0)
		return -errno;
	if (bind(src->fd, (struct sockaddr *)&nl, sizeof(nl)))
		return -errno;
	return soft_src_add(s, src, EPOLLIN);
}

void soft_addr_event(struct soft *s)
{
	char buf[4096];

	/* What changed, the table tells; messages lost (ENOBUFS) as well. */
	while (recv(s->src_addr.fd, buf, sizeof(buf), 0) > 0 ||
	       errno == ENOBUFS)
		;
	soft_gids_load(s);
}

/* Lower is better: IPv4, global IPv6, link-local, then the loopback's. */
static int rank(const struct dev_gid *g, const char **why)
{
	const unsigned char *r = g->gid.raw;
	bool v4 = r[10] == 0xff && r[11] == 0xff && !r[0] && !r[8];

	if ((v4 && r[12] == 127) ||
	    (!v4 && IN6_IS_ADDR_LOOPBACK((const struct in6_addr *)r))) {
		*why = "loopback: the namespace has no other address";
		return v4 ? 3 : 4;
	}
	if (v4) {
		*why = "RoCEv2 over IPv4";
		return 0;
	}
	if (r[0] == 0xfe && (r[1] & 0xc0) == 0x80) {
		*why = "RoCEv2 over link-local IPv6";
		return 2;
	}
	*why = "RoCEv2 over global IPv6";
	return 1;
}

int soft_gid_choose(struct soft *s, int index, struct dev_gid *out)
{
	const char *why = "", *w;
	int best = -1, best_rank = 100, i, r;

	if (index >= 0) {
		if (index >= s->n_gids || !used(&s->gids[index]))
			return -ENODATA;
		*out = s->gids[index];
		snprintf(out->why, sizeof(out->why), "asked for by index");
		return 0;
	}
	for (i = 0; i < s->n_gids; i++) {
		if (!used(&s->gids[i]))
			continue;
		r = rank(&s->gids[i], &w);
		if (r < best_rank) {
			best = i;
			best_rank = r;
			why = w;
		}
	}
	if (best < 0)
		return -ENODATA;
	*out = s->gids[best];
	snprintf(out->why, sizeof(out->why), "%s", why);
	return 0;
}
