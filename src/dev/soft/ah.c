/* SPDX-License-Identifier: MIT */
/*
 * ah.c - address handles. What a receive of a UD QP finds in its first 40
 * bytes is the IP header of the RoCEv2 packet that a NIC would have sent
 * (annex A17.4.5): an IPv6 header; or 20 bytes of zero and an IPv4 header.
 */
#include "dev/soft/ah.h"

#include "dev/soft/mr.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <string.h>

#define UDP_BYTES 8u
#define BTH_BYTES 12u
#define DETH_BYTES 8u
#define IMM_BYTES 4u
#define ICRC_BYTES 4u

_Static_assert(sizeof(struct ip6_hdr) == SOFT_GRH, "IPv6 header");
_Static_assert(sizeof(struct iphdr) == SOFT_GRH / 2, "IPv4 header");

static bool is_v4(const union ibv_gid *gid)
{
	return IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)gid->raw);
}

static void grh_v4(struct soft_ah *a, const union ibv_gid *sgid,
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
	memcpy(a->grh + SOFT_GRH - sizeof(ip), &ip, sizeof(ip));
}

static void grh_v6(struct soft_ah *a, const union ibv_gid *sgid,
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
	memcpy(a->grh, &ip, sizeof(ip));
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

void soft_ah_grh(const struct soft_ah *ah, uint32_t len, bool imm,
		 unsigned char grh[SOFT_GRH])
{
	uint32_t udp = UDP_BYTES + BTH_BYTES + DETH_BYTES +
		       (imm ? IMM_BYTES : 0) + ((len + 3) & ~3u) + ICRC_BYTES;
	unsigned char *ip = grh + SOFT_GRH - sizeof(struct iphdr);
	uint16_t v;

	memcpy(grh, ah->grh, SOFT_GRH);
	if (!ah->v4) {
		v = htons((uint16_t)udp);
		memcpy(grh + offsetof(struct ip6_hdr, ip6_plen), &v, sizeof(v));
		return;
	}
	v = htons((uint16_t)(sizeof(struct iphdr) + udp));
	memcpy(ip + offsetof(struct iphdr, tot_len), &v, sizeof(v));
	v = ip_sum(ip, sizeof(struct iphdr));
	memcpy(ip + offsetof(struct iphdr, check), &v, sizeof(v));
}

/* s->lock held: the table is read. */
static int ah_check(struct soft *s, const struct ibv_ah_attr *attr,
		    union ibv_gid *sgid)
{
	const struct ibv_global_route *g = &attr->grh;

	if (attr->port_num != 1 || !attr->is_global ||
	    g->sgid_index >= s->n_gids)
		return -EINVAL;
	*sgid = s->gids[g->sgid_index].gid;
	if (g->dgid.raw[0] == 0xff)
		return -EOPNOTSUPP;
	if (is_v4(sgid) != is_v4(&g->dgid))
		return -EINVAL;
	/* A NIC asks the neighbour for its MAC address, and hears nothing. */
	return soft_gid_local(s, &g->dgid) ? 0 : -EHOSTUNREACH;
}

int soft_create_ah(struct dev *dev, struct ibv_pd *pd, struct ibv_ah_attr *attr,
		   struct ibv_ah **ah)
{
	struct soft *s = soft_of_dev(dev);
	union ibv_gid sgid;
	struct soft_ah *a;
	int err;

	if (!soft_here(s))
		return -EPERM;
	pthread_mutex_lock(&s->lock);
	err = ah_check(s, attr, &sgid);
	pthread_mutex_unlock(&s->lock);
	if (err)
		return err;
	a = env_alloc(s->env, sizeof(*a));
	if (!a)
		return -ENOMEM;
	a->ah.context = &s->vctx.context;
	a->ah.pd = pd;
	a->pd = container_of(pd, struct soft_pd, pd);
	a->v4 = is_v4(&sgid);
	if (a->v4)
		grh_v4(a, &sgid, &attr->grh);
	else
		grh_v6(a, &sgid, &attr->grh);
	atomic_fetch_add(&a->pd->refs, 1);
	*ah = &a->ah;
	return 0;
}

int soft_destroy_ah(struct dev *dev, struct ibv_ah *ah)
{
	struct soft *s = soft_of_dev(dev);
	struct soft_ah *a = soft_ah_of(ah);

	if (!soft_here(s))
		return -EPERM;
	atomic_fetch_sub(&a->pd->refs, 1);
	env_free(s->env, a);
	return 0;
}
