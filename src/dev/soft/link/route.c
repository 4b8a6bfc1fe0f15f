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

static int link_mode(const char *v, unsigned *mode)
{
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

static int link_port(const char *v, uint16_t *port)
{
	unsigned long n;
	char *end;

	*port = PACKET_UDP_PORT;
	if (!v || !*v)
		return 0;
	n = strtoul(v, &end, 10);
	*port = (uint16_t)n;
	return *v >= '1' && *v <= '9' && !*end && n <= UINT16_MAX ? 0 : -EINVAL;
}

int soft_link_settings(struct soft *s, char *why, size_t len)
{
	const char *mode = getenv("SKEIN_LINK");
	const char *port = getenv("SKEIN_LINK_PORT");
	int err = link_mode(mode, &s->link_mode);

	if (err) {
		snprintf(why, len,
			 "the link to other hosts: SKEIN_LINK is \"%.32s\", "
			 "not auto, udp, tcp or off",
			 mode);
		return err;
	}
	err = link_port(port, &s->link_port);
	if (err)
		snprintf(why, len,
			 "the link to other hosts: SKEIN_LINK_PORT is "
			 "\"%.32s\", not 1 to 65535",
			 port);
	return err;
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
		snprintf(buf, len, "TCP %u, sealed, MTU %u", s->link_port,
			 PACKET_PAYLOAD_MAX);
		return;
	}
	switch ((enum soft_link_mode)s->link_mode) {
	case SOFT_LINK_AUTO:
	case SOFT_LINK_SERVES:
		snprintf(buf, len,
			 "TCP %u%s where the peer listens, else UDP %u; MTU %u",
			 s->link_port, s->link_key ? ", sealed" : "",
			 s->link_port, mtu);
		return;
	case SOFT_LINK_UDP:
		snprintf(buf, len, "UDP %u, MTU %u", s->link_port, mtu);
		return;
	case SOFT_LINK_TCP:
		snprintf(buf, len, "TCP %u%s, MTU %u", s->link_port,
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
