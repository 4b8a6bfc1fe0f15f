/* SPDX-License-Identifier: MIT */
/*
 * route.c - which QPs take the link to other hosts, and with which MTU.
 */
#include "dev/soft/link/key.h"
#include "dev/soft/link/link.h"
#include "dev/soft/link/packet.h"
#include "dev/soft/link/udp.h"

#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* IPv6, UDP, BTH, AtomicETH, ICRC: what is no payload, at most. */
#define OVERHEAD (40u + 8u + PACKET_HEAD_MAX + PACKET_ICRC)

int soft_link_mode(enum soft_link_mode *mode)
{
	const char *v = getenv("SKEIN_LINK");

	if (!v || !*v)
		*mode = SOFT_LINK_AUTO;
	else if (!strcmp(v, "auto"))
		*mode = SOFT_LINK_SERVES;
	else if (!strcmp(v, "udp"))
		*mode = SOFT_LINK_UDP;
	else if (!strcmp(v, "tcp"))
		*mode = SOFT_LINK_TCP;
	else if (!strcmp(v, "off"))
		*mode = SOFT_LINK_OFF;
	else
		return -EINVAL;
	return 0;
}

enum ibv_mtu soft_link_mtu(uint32_t route)
{
	enum ibv_mtu m = IBV_MTU_4096;

	while (m > IBV_MTU_256 && (128u << m) + OVERHEAD > route)
		m--;
	return m;
}

enum ibv_mtu soft_link_port_mtu(const struct soft *s)
{
	struct ifreq r = {0};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	enum ibv_mtu m = IBV_MTU_1024;

	if (fd < 0)
		return m;
	memcpy(r.ifr_name, s->dev.gid.netdev, sizeof(r.ifr_name));
	r.ifr_name[sizeof(r.ifr_name) - 1] = 0;
	if (!ioctl(fd, SIOCGIFMTU, &r))
		m = soft_link_mtu((uint32_t)r.ifr_mtu);
	close(fd);
	return m;
}

void soft_link_words(const struct soft *s, char *buf, size_t len)
{
	unsigned mtu = 128u << soft_link_port_mtu(s);

	if (s->link_mode != SOFT_LINK_OFF && !soft_link_clear(s)) {
		snprintf(buf, len, "TCP %d, sealed, MTU %u", PACKET_UDP_PORT,
			 PACKET_PAYLOAD_MAX);
		return;
	}
	switch ((enum soft_link_mode)s->link_mode) {
	case SOFT_LINK_AUTO:
	case SOFT_LINK_SERVES:
		snprintf(buf, len,
			 "TCP %d%s where the peer listens, else UDP %d; MTU %u",
			 PACKET_UDP_PORT, s->link_key ? ", sealed" : "",
			 PACKET_UDP_PORT, mtu);
		return;
	case SOFT_LINK_UDP:
		snprintf(buf, len, "UDP %d, MTU %u", PACKET_UDP_PORT, mtu);
		return;
	case SOFT_LINK_TCP:
		snprintf(buf, len, "TCP %d%s, MTU %u", PACKET_UDP_PORT,
			 s->link_key ? ", sealed or clear" : "",
			 PACKET_PAYLOAD_MAX);
		return;
	case SOFT_LINK_OFF:
		snprintf(buf, len, "off (SKEIN_LINK=off)");
		return;
	}
}

bool soft_link_wants(struct soft *s, const struct soft_qp *q,
		     const union ibv_gid *dgid)
{
	enum ibv_qp_type t = q->ex.qp_base.qp_type;

	if ((t != IBV_QPT_RC && t != IBV_QPT_UC) ||
	    s->link_mode == SOFT_LINK_OFF)
		return false;
	return s->link_mode == SOFT_LINK_UDP || s->link_mode == SOFT_LINK_TCP ||
	       !soft_gid_local(s, dgid);
}

int soft_link_path(struct soft *s, const struct ibv_ah_attr *a,
		   struct udp_path *p, const char **what)
{
	int i = a->grh.sgid_index;

	*what = "the GID of that index, which is not there";
	if (i >= s->n_gids || !s->gids[i].netdev[0])
		return -EINVAL;
	*what = "a route to the peer";
	return udp_path(soft_link_udp(s), &s->gids[i].gid, s->gids[i].netdev,
			&a->grh.dgid, p);
}
