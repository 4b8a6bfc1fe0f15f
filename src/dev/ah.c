/* SPDX-License-Identifier: MIT */
/*
 * ah.c - the address handle for an answer: its attributes from a UD receive,
 * as ibv_init_ah_from_wc(3) makes them, for every device (libibverbs' function
 * asks the kernel's sysfs, which does not know our devices).
 *
 * The 40 bytes in front of the message are a GRH, which has the form of an IPv6
 * header; or, on RoCEv2 over IPv4, 20 bytes of no meaning and the IPv4 header.
 * An IPv6 header may look like the latter: the checksum decides.
 */
#include "dev/dev.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <string.h>

#define NEXT_HEADER_IBA 0x1b /* RoCEv1, InfiniBand */

static uint16_t sum16(const struct iphdr *ip)
{
	uint16_t half[sizeof(*ip) / 2];
	uint32_t sum = 0;
	unsigned i;

	memcpy(half, ip, sizeof(*ip));
	for (i = 0; i < sizeof(*ip) / 2; i++)
		sum += half[i];
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)(sum + (sum >> 16));
}

static int ip_version(const struct ibv_grh *grh, const struct iphdr *ip)
{
	bool six = ntohl(grh->version_tclass_flow) >> 28 == 6;

	if (ip->version != 4)
		return six ? 6 : 0;
	if (!six)
		return 4;
	return ip->ihl == 5 && sum16(ip) == 0xffff ? 4 : 6;
}

static void mapped(uint32_t v4, union ibv_gid *gid)
{
	memset(gid, 0, sizeof(*gid));
	gid->raw[10] = gid->raw[11] = 0xff;
	memcpy(gid->raw + 12, &v4, sizeof(v4));
}

static int gid_index(struct dev *dev, const union ibv_gid *gid,
		     enum dev_gid_type type, uint8_t *index)
{
	int i, n = dev->port_attr.gid_tbl_len;
	struct dev_gid g;

	for (i = 0; i < n && i < 256; i++) {
		if (dev->ops->query_gid(dev, dev->port, i, &g) ||
		    g.type != type || memcmp(&g.gid, gid, sizeof(*gid)))
			continue;
		*index = (uint8_t)i;
		return 0;
	}
	return -ENODATA;
}

static int from_v4(struct dev *dev, const struct iphdr *ip,
		   struct ibv_ah_attr *a)
{
	union ibv_gid own;

	if (IN_MULTICAST(ntohl(ip->daddr)))
		return -EINVAL;
	mapped(ip->daddr, &own);
	mapped(ip->saddr, &a->grh.dgid);
	a->grh.hop_limit = ip->ttl;
	a->grh.traffic_class = ip->tos;
	return gid_index(dev, &own, DEV_GID_ROCE_V2, &a->grh.sgid_index);
}

static int from_v6(struct dev *dev, const struct ibv_grh *grh,
		   struct ibv_ah_attr *a)
{
	bool eth = dev->port_attr.link_layer == IBV_LINK_LAYER_ETHERNET;
	uint32_t flow = ntohl(grh->version_tclass_flow);
	enum dev_gid_type type;

	if (grh->dgid.raw[0] == 0xff)
		return -EINVAL;
	if (grh->next_hdr == IPPROTO_UDP)
		type = DEV_GID_ROCE_V2;
	else if (grh->next_hdr == NEXT_HEADER_IBA)
		type = eth ? DEV_GID_ROCE_V1 : DEV_GID_IB;
	else
		return -EPROTONOSUPPORT;
	a->grh.dgid = grh->sgid;
	a->grh.flow_label = flow & 0xfffff;
	a->grh.hop_limit = grh->hop_limit;
	a->grh.traffic_class = (uint8_t)(flow >> 20);
	return gid_index(dev, &grh->dgid, type, &a->grh.sgid_index);
}

int dev_ah_from_wc(struct dev *dev, const struct ibv_wc *wc,
		   const struct ibv_grh *grh, struct ibv_ah_attr *attr)
{
	struct ibv_ah_attr a = {.dlid = wc->slid,
				.sl = wc->sl,
				.src_path_bits = wc->dlid_path_bits,
				.port_num = dev->port};
	struct iphdr ip;
	int err = 0;

	if (wc->wc_flags & IBV_WC_GRH) {
		memcpy(&ip, (const char *)grh + sizeof(*grh) - sizeof(ip),
		       sizeof(ip));
		a.is_global = 1;
		switch (ip_version(grh, &ip)) {
		case 4:
			err = from_v4(dev, &ip, &a);
			break;
		case 6:
			err = from_v6(dev, grh, &a);
			break;
		default:
			err = -EPROTONOSUPPORT;
		}
	}
	if (!err)
		*attr = a;
	return err;
}
