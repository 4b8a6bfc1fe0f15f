/* SPDX-License-Identifier: MIT */
/*
 * gid.c - the order of GIDs, and which belong to our network namespace.
 *
 * A RoCE GID is an IP address of the port's netdev (IPv4 as ::ffff:a.b.c.d)
 * or, as the default entry, fe80:: with the EUI-64 of its MAC. That is what
 * makes "is it ours?" answerable without trusting interface numbers, which
 * every namespace counts for itself.
 */
#include "dev/verbs/gid.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
#include <stdio.h>
#include <string.h>

enum gid_rank {
	RANK_V2_IPV4,
	RANK_V2_GLOBAL,
	RANK_V2_LINK_LOCAL,
	RANK_V1,
	RANK_IB,
	RANK_NONE,
};

static const char *const rank_words[] = {
	[RANK_V2_IPV4] = "RoCE v2 over IPv4",
	[RANK_V2_GLOBAL] = "RoCE v2 over global IPv6",
	[RANK_V2_LINK_LOCAL] = "RoCE v2 over link-local IPv6",
	[RANK_V1] = "RoCE v1 (same Ethernet segment only)",
	[RANK_IB] = "InfiniBand",
};

static const struct in6_addr *gid_in6(const union ibv_gid *gid)
{
	return (const struct in6_addr *)(const void *)gid->raw;
}

static bool gid_is_zero(const union ibv_gid *gid)
{
	return IN6_IS_ADDR_UNSPECIFIED(gid_in6(gid));
}

static enum gid_rank rank(const struct gid_row *row)
{
	if (gid_is_zero(&row->gid))
		return RANK_NONE;
	switch (row->type) {
	case DEV_GID_IB:
		return RANK_IB;
	case DEV_GID_ROCE_V1:
		return RANK_V1;
	case DEV_GID_ROCE_V2:
		break;
	}
	if (IN6_IS_ADDR_V4MAPPED(gid_in6(&row->gid)))
		return RANK_V2_IPV4;
	if (IN6_IS_ADDR_LINKLOCAL(gid_in6(&row->gid)))
		return RANK_V2_LINK_LOCAL;
	return RANK_V2_GLOBAL;
}

void gid_text(const union ibv_gid *gid, char *buf, size_t len)
{
	if (IN6_IS_ADDR_V4MAPPED(gid_in6(gid)))
		inet_ntop(AF_INET, gid->raw + 12, buf, (socklen_t)len);
	else
		inet_ntop(AF_INET6, gid->raw, buf, (socklen_t)len);
}

static void take(const struct gid_row *row, const char *how,
		 struct dev_gid *gid)
{
	struct dev_gid g = {
		.gid = row->gid,
		.index = row->index,
		.type = row->type,
	};

	memcpy(g.netdev, row->netdev, sizeof(g.netdev));
	snprintf(g.why, sizeof(g.why), "%s, %s", rank_words[rank(row)], how);
	*gid = g;
}

static int choose_index(const struct gid_row *rows, size_t n, int want,
			char *err, size_t err_len, struct dev_gid *gid)
{
	size_t i;

	for (i = 0; i < n; i++) {
		if (rows[i].index != want || rank(&rows[i]) == RANK_NONE)
			continue;
		take(&rows[i],
		     rows[i].here ? "asked for by index"
				  : "asked for by index; not of this netns",
		     gid);
		return 0;
	}
	snprintf(err, err_len, "its GID table has no entry %d", want);
	return -ENODATA;
}

int gid_choose(const struct gid_row *rows, size_t n, int want, char *err,
	       size_t err_len, struct dev_gid *gid)
{
	const struct gid_row *best = NULL;
	size_t i, elsewhere = 0;

	if (want >= 0)
		return choose_index(rows, n, want, err, err_len, gid);
	for (i = 0; i < n; i++) {
		if (rank(&rows[i]) == RANK_NONE)
			continue;
		if (!rows[i].here) {
			elsewhere++;
			continue;
		}
		if (!best || rank(&rows[i]) < rank(best) ||
		    (rank(&rows[i]) == rank(best) &&
		     rows[i].index < best->index))
			best = &rows[i];
	}
	if (best) {
		take(best, "best of its table", gid);
		return 0;
	}
	if (elsewhere)
		snprintf(err, err_len,
			 "all its %zu GIDs belong to another network "
			 "namespace: run there, or move its interface here",
			 elsewhere);
	else
		snprintf(err, err_len,
			 "its GID table is empty: give its interface an "
			 "address (ip addr add) and set it up");
	return -ENODATA;
}

void gid_place(struct gid_row *row, const struct gid_local *locals, size_t n)
{
	size_t i;

	row->here = row->type == DEV_GID_IB;
	for (i = 0; i < n && !row->here; i++)
		row->here = !strcmp(locals[i].netdev, row->netdev) &&
			    !memcmp(locals[i].gid.raw, row->gid.raw,
				    sizeof(row->gid.raw));
}

/* fe80:: with the EUI-64 that IEEE and RFC 4291 (appendix A) make of a MAC. */
static void gid_of_mac(const unsigned char *mac, union ibv_gid *gid)
{
	memset(gid, 0, sizeof(*gid));
	gid->raw[0] = 0xfe;
	gid->raw[1] = 0x80;
	memcpy(gid->raw + 8, mac, 3);
	gid->raw[8] ^= 2;
	gid->raw[11] = 0xff;
	gid->raw[12] = 0xfe;
	memcpy(gid->raw + 13, mac + 3, 3);
}

static bool gid_of_sockaddr(const struct sockaddr *sa, union ibv_gid *gid)
{
	const struct sockaddr_in *in = (const void *)sa;
	const struct sockaddr_in6 *in6 = (const void *)sa;
	const struct sockaddr_ll *ll = (const void *)sa;

	switch (sa->sa_family) {
	case AF_INET:
		memset(gid, 0, sizeof(*gid));
		gid->raw[10] = gid->raw[11] = 0xff;
		memcpy(gid->raw + 12, &in->sin_addr, 4);
		return true;
	case AF_INET6:
		memcpy(gid->raw, &in6->sin6_addr, 16);
		return true;
	case AF_PACKET:
		if (ll->sll_halen != 6)
			return false;
		gid_of_mac(ll->sll_addr, gid);
		return true;
	default:
		return false;
	}
}

int gid_locals(struct gid_local *locals, size_t max)
{
	struct ifaddrs *list, *ifa;
	struct gid_local local;
	size_t n = 0;

	if (getifaddrs(&list))
		return -errno;
	for (ifa = list; ifa; ifa = ifa->ifa_next) {
		if (!ifa->ifa_addr ||
		    !gid_of_sockaddr(ifa->ifa_addr, &local.gid))
			continue;
		if (n < max) {
			snprintf(local.netdev, sizeof(local.netdev), "%s",
				 ifa->ifa_name);
			locals[n] = local;
		}
		n++;
	}
	freeifaddrs(list);
	return (int)n;
}
