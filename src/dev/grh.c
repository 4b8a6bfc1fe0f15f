/* SPDX-License-Identifier: MIT */
/*
 * grh.c - see grh.h. All of the header that does not change from message to
 * message is made once, with the address handle.
 */
#include "dev/grh.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <stddef.h>
#include <string.h>

#define UDP_BYTES 8u
#define BTH_BYTES 12u
#define DETH_BYTES 8u
#define IMM_BYTES 4u
#define ICRC_BYTES 4u

_Static_assert(sizeof(struct ip6_hdr) == DEV_GRH, "IPv6 header");
_Static_assert(sizeof(struct iphdr) == DEV_GRH / 2, "IPv4 header");

static bool is_v4(const union ibv_gid *gid)
{
	return IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)gid->raw);
}

static void grh_v4(struct dev_grh *h, const union ibv_gid *sgid,
		   const struct ibv_global_route *g)
{
	struct iphdr ip = {.version = 4,
			   .ihl = 5,
			   .tos = g->traffic_class,
			   .frag_off = htons(IP_DF),
			   .ttl = g->hop_limit,
			   .protocol = IPPROTO_UDP};

	memcpy(&ip.saddr, sgid->raw + 12, 4);
	memcpy(&ip.daddr, g->dgid.raw + 12, 4);
	memcpy(h->bytes + DEV_GRH - sizeof(ip), &ip, sizeof(ip));
}

static void grh_v6(struct dev_grh *h, const union ibv_gid *sgid,
		   const struct ibv_global_route *g)
{
	struct ip6_hdr ip;

	memset(&ip, 0, sizeof(ip));
	ip.ip6_flow = htonl(6u << 28 | (uint32_t)g->traffic_class << 20 |
			    (g->flow_label & 0xfffff));
	ip.ip6_nxt = IPPROTO_UDP;
	ip.ip6_hlim = g->hop_limit;
	memcpy(&ip.ip6_src, sgid->raw, 16);
	memcpy(&ip.ip6_dst, g->dgid.raw, 16);
	memcpy(h->bytes, &ip, sizeof(ip));
}

int dev_grh_init(struct dev_grh *h, const union ibv_gid *sgid,
		 const struct ibv_global_route *g)
{
	if (is_v4(sgid) != is_v4(&g->dgid))
		return -EINVAL;
	memset(h, 0, sizeof(*h));
	h->v4 = is_v4(sgid);
	if (h->v4)
		grh_v4(h, sgid, g);
	else
		grh_v6(h, sgid, g);
	return 0;
}

/* RFC 1071 */
static uint16_t ip_sum(const unsigned char *p, size_t len)
{
	uint32_t sum = 0;
	uint16_t half;
	size_t i;

	for (i = 0; i < len; i += sizeof(half)) {
		memcpy(&half, p + i, sizeof(half));
		sum += half;
	}
	sum = (sum & 0xffff) + (sum >> 16);
	sum += sum >> 16;
	return (uint16_t)~sum;
}

void dev_grh_fill(const struct dev_grh *h, uint32_t len, bool imm,
		  unsigned char grh[DEV_GRH])
{
	uint32_t udp = UDP_BYTES + BTH_BYTES + DETH_BYTES +
		       (imm ? IMM_BYTES : 0) + ((len + 3) & ~3u) + ICRC_BYTES;
	unsigned char *ip = grh + DEV_GRH - sizeof(struct iphdr);
	uint16_t v;

	memcpy(grh, h->bytes, DEV_GRH);
	if (!h->v4) {
		v = htons((uint16_t)udp);
		memcpy(grh + offsetof(struct ip6_hdr, ip6_plen), &v, sizeof(v));
		return;
	}
	v = htons((uint16_t)(sizeof(struct iphdr) + udp));
	memcpy(ip + offsetof(struct iphdr, tot_len), &v, sizeof(v));
	v = ip_sum(ip, sizeof(struct iphdr));
	memcpy(ip + offsetof(struct iphdr, check), &v, sizeof(v));
}
