/* SPDX-License-Identifier: MIT */
/*
 * gid.c - the GID table: every address of the network namespace, IPv4 as
 * ::ffff:a.b.c.d, all of them RoCEv2. 127.0.0.1 is one of them, so the table
 * is empty only where the loopback interface is down.
 */
#include "dev/soft/soft.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

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

void soft_gids_load(struct soft *s)
{
	struct ifaddrs *list, *ifa;
	struct dev_gid *g;
	int n = 0;

	if (getifaddrs(&list))
		return;
	for (ifa = list; ifa && n < SOFT_GID_MAX; ifa = ifa->ifa_next) {
		g = &s->gids[n];
		memset(g, 0, sizeof(*g));
		if (!gid_from(ifa, &g->gid))
			continue;
		g->index = n++;
		g->type = DEV_GID_ROCE_V2;
		snprintf(g->netdev, sizeof(g->netdev), "%s", ifa->ifa_name);
	}
	freeifaddrs(list);
	s->n_gids = n;
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
		if (index >= s->n_gids)
			return -ENODATA;
		*out = s->gids[index];
		snprintf(out->why, sizeof(out->why), "asked for by index");
		return 0;
	}
	for (i = 0; i < s->n_gids; i++) {
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
