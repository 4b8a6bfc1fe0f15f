/* SPDX-License-Identifier: MIT */
/*
 * flow.c - see flow.h. docs/protocol/link.md, "Source port".
 */
#include "dev/soft/link/flow.h"

#include "base/prng.h"
#include "dev/soft/link/packet.h"

#include <errno.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PORT_FIRST 0xc000u
#define PORT_MASK 0x3fffu
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

void flow_table_init(struct flow_table *t)
{
	memset(t, 0, sizeof(*t));
	for (uint32_t i = 0; i < FLOW_MAX; i++)
		t->at[i].src.fd = -1;
}

void flow_table_fini(struct flow_table *t)
{
	for (uint32_t i = 0; i < FLOW_MAX; i++)
		flow_close(&t->at[i]);
}

uint16_t flow_port(const uint8_t src[16], uint32_t src_block,
		   const uint8_t dst[16], uint32_t dst_block)
{
	uint64_t h = (uint64_t)src_block << 32 | dst_block;
	const uint8_t *end[] = {src, dst};
	unsigned i, b;
	uint64_t half;

	for (i = 0; i < 4; i++) {
		for (b = 0, half = 0; b < 8; b++)
			half = half << 8 | end[i / 2][i % 2 * 8 + b];
		h += half;
		h = prng_mix(h);
	}
	return htons((uint16_t)(PORT_FIRST | (h & PORT_MASK)));
}

struct flow *flow_find(const struct flow_table *t, const struct icrc_flow *f,
		       bool sends)
{
	const struct flow *w;
	uint32_t i;

	for (i = 0; i < FLOW_MAX; i++) {
		w = &t->at[i];
		if (w->src.fd < 0 || w->f.sport != f->sport)
			continue;
		if (sends ? icrc_flow_is_v4(&w->f) == icrc_flow_is_v4(f)
			  : !memcmp(&w->f, f, sizeof(*f)))
			return (struct flow *)(uintptr_t)w;
	}
	return NULL;
}

struct flow *flow_place(struct flow_table *t)
{
	struct flow *w;
	uint32_t i;

	for (i = 0; i < FLOW_MAX; i++)
		if (t->at[i].src.fd < 0)
			return &t->at[i];
	for (i = 0; i < FLOW_MAX; i++) {
		w = &t->at[t->next++ % FLOW_MAX];
		if (w->refs)
			continue;
		flow_close(w);
		return w;
	}
	return NULL;
}

static void on(int fd, int level, int name, int v)
{
	/* Without it less is possible, and what is not then says so. */
	(void)!setsockopt(fd, level, name, &v, sizeof(v));
}

/* PMTUDISC_PROBE: "don't fragment", and what ICMP says of the route is not
 * believed: anybody can forge it. */
int flow_socket(bool v6)
{
	int fd = socket(v6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	if (v6) {
		on(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
		on(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE);
		on(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
		on(fd, IPPROTO_UDP, UDP_NO_CHECK6_RX, 1);
		on(fd, IPPROTO_IPV6, IPV6_TCLASS, IPTOS_ECN_ECT0);
		on(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
	} else {
		on(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE);
		on(fd, IPPROTO_IP, IP_PKTINFO, 1);
		on(fd, IPPROTO_IP, IP_TOS, IPTOS_ECN_ECT0);
		on(fd, IPPROTO_IP, IP_RECVTOS, 1);
	}
	return fd;
}

void flow_socket_shared(int fd)
{
	on(fd, SOL_SOCKET, SO_REUSEPORT, 1);
	on(fd, SOL_SOCKET, SO_RCVBUF, FLOW_RECEIVE_BYTES);
	on(fd, IPPROTO_UDP, UDP_GRO, 1);
}

static socklen_t address(const uint8_t gid[16], bool v6, uint16_t port,
			 struct sockaddr_storage *to)
{
	struct sockaddr_in *in = (void *)to;
	struct sockaddr_in6 *in6 = (void *)to;

	memset(to, 0, sizeof(*to));
	if (v6) {
		in6->sin6_family = AF_INET6;
		in6->sin6_port = port;
		memcpy(&in6->sin6_addr, gid, 16);
		return sizeof(*in6);
	}
	in->sin_family = AF_INET;
	in->sin_port = port;
	memcpy(&in->sin_addr, gid + 12, 4);
	return sizeof(*in);
}

/* Connected to no one: a connected socket counts identifications of IPv4,
 * which the ICRC covers. Nobody sends to its port. */
int flow_send_open(struct flow *w, const struct icrc_flow *f)
{
	static const uint8_t any[16];
	bool v6 = !icrc_flow_is_v4(f);
	struct sockaddr_storage a;
	int fd = flow_socket(v6);
	int err;

	if (fd < 0)
		return fd;
	if (bind(fd, (struct sockaddr *)&a, address(any, v6, f->sport, &a))) {
		err = -errno;
		close(fd);
		return err;
	}
	w->f = *f;
	w->refs = 0;
	w->src.fd = fd;
	return 0;
}

/* For this process alone from connect() on. What comes between bind() and
 * connect() is anybody's, as on the shared socket. */
int flow_receive_open(struct flow *w, const struct icrc_flow *f)
{
	bool v6 = !icrc_flow_is_v4(f);
	struct sockaddr_storage here, there;
	socklen_t len;
	int fd, err;

	/* Which link it is, the addresses do not say. */
	if (v6 && f->dst[0] == 0xfe && (f->dst[1] & 0xc0) == 0x80)
		return -EADDRNOTAVAIL;
	fd = flow_socket(v6);
	if (fd < 0)
		return fd;
	flow_socket_shared(fd);
	len = address(f->dst, v6, f->dport, &here);
	address(f->src, v6, f->sport, &there);
	if (bind(fd, (struct sockaddr *)&here, len) ||
	    connect(fd, (struct sockaddr *)&there, len)) {
		err = -errno;
		close(fd);
		return err;
	}
	w->f = *f;
	w->refs = 0;
	w->src.fd = fd;
	return 0;
}

void flow_close(struct flow *w)
{
	if (w->src.fd >= 0)
		close(w->src.fd);
	w->src.fd = -1;
	w->refs = 0;
}
