/* SPDX-License-Identifier: MIT */
/*
 * sender.c - see sender.h.
 */
#include "dev/soft/link/sender.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/udp.h>
#include <poll.h>
#include <string.h>

#define FULL_MS 10 /* a wait for room, and so many of them */
#define FULL_TRIES 10
#define SAY_NS 1000000000ull

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

void sender_init(struct sender *s, struct skein_env *env)
{
	s->env = env;
	for (uint32_t i = 0; i < SENDER_PACKETS; i++) {
		struct msghdr *h = &s->msg[i].msg_hdr;

		h->msg_control = s->run[i].info.room;
		s->iov[i].iov_base = s->buf[i];
	}
}

uint8_t *sender_begin(struct sender *s)
{
	if (s->n == SENDER_PACKETS)
		sender_flush(s);
	return s->buf[s->n];
}

static bool takes_segments(const struct sender *s, const struct udp_path *p)
{
	uint32_t i;

	for (i = 0; i < s->n_plain; i++)
		if (s->plain[i] == p->dev)
			return false;
	return s->n_plain < SENDER_DEVICES;
}

/* The same source, destination and device: one run's packets share them. */
static bool is_same_way(const struct udp_path *a, const struct udp_path *b)
{
	return a == b || (!memcmp(&a->flow, &b->flow, sizeof(a->flow)) &&
			  a->ifindex == b->ifindex && a->dev == b->dev);
}

/* The source address: the kernel would choose one by the route. */
static struct cmsghdr *put_source(struct msghdr *h, const struct udp_path *p)
{
	struct cmsghdr *c = h->msg_control;

	if (p->v6) {
		struct in6_pktinfo i6 = {.ipi6_ifindex = p->ifindex};

		memcpy(&i6.ipi6_addr, p->flow.src, 16);
		c->cmsg_level = IPPROTO_IPV6;
		c->cmsg_type = IPV6_PKTINFO;
		c->cmsg_len = CMSG_LEN(sizeof(i6));
		memcpy(CMSG_DATA(c), &i6, sizeof(i6));
		h->msg_controllen = CMSG_SPACE(sizeof(i6));
	} else {
		struct in_pktinfo i4 = {.ipi_ifindex = 0};

		memcpy(&i4.ipi_spec_dst, p->flow.src + 12, 4);
		c->cmsg_level = IPPROTO_IP;
		c->cmsg_type = IP_PKTINFO;
		c->cmsg_len = CMSG_LEN(sizeof(i4));
		memcpy(CMSG_DATA(c), &i4, sizeof(i4));
		h->msg_controllen = CMSG_SPACE(sizeof(i4));
	}
	return (struct cmsghdr *)(void *)((char *)h->msg_control +
					  h->msg_controllen);
}

/* One message for a run from its first packet on. */
static void message(struct sender *s, struct msghdr *h, struct sender_run *r)
{
	uint16_t seg = (uint16_t)r->seg.len;
	struct cmsghdr *c;

	h->msg_name = (void *)(uintptr_t)&r->path->to;
	h->msg_namelen = r->path->to_len;
	h->msg_iov = &s->iov[r->first];
	h->msg_iovlen = r->seg.n;
	c = put_source(h, r->path);
	if (r->seg.n == 1)
		return;
	c->cmsg_level = IPPROTO_UDP;
	c->cmsg_type = UDP_SEGMENT;
	c->cmsg_len = CMSG_LEN(sizeof(seg));
	memcpy(CMSG_DATA(c), &seg, sizeof(seg));
	h->msg_controllen += CMSG_SPACE(sizeof(seg));
}

void sender_add(struct sender *s, int fd, const struct udp_path *p, size_t len)
{
	uint8_t *buf = s->buf[s->n];
	struct sender_run *r = s->runs ? &s->run[s->runs - 1] : NULL;

	if (s->n && fd != s->fd) {
		sender_flush(s);
		memmove(s->buf[0], buf, len);
		buf = s->buf[0];
		r = NULL;
	}
	if (!r || !is_same_way(r->path, p) || !takes_segments(s, p) ||
	    !segment_add(&r->seg, len + PACKET_ICRC)) {
		r = &s->run[s->runs++];
		r->path = p;
		r->first = s->n;
		memset(&r->seg, 0, sizeof(r->seg));
		segment_add(&r->seg, len + PACKET_ICRC);
	}
	s->fd = fd;
	s->iov[s->n++].iov_len = len + PACKET_ICRC;
	icrc_put(&p->flow, (uint16_t)(r->seg.n - 1), buf, len);
}

static void say_too_long(struct sender *s, const struct sender_run *r)
{
	uint64_t now = env_now_ns(s->env);
	char to[INET6_ADDRSTRLEN] = "?";

	if (now < s->say_again_ns)
		return;
	s->say_again_ns = now + SAY_NS;
	inet_ntop(AF_INET6, r->path->flow.dst, to, sizeof(to));
	env_log(s->env, ENV_LOG_ERROR,
		"skein0: link: a packet of %zu bytes with its headers does not "
		"fit into the route to %s, which carried %u when it was asked: "
		"use a smaller path MTU",
		r->seg.len + (r->path->v6 ? 48 : 28), to, r->path->mtu);
}

/* Waits for room in the socket. False: for long enough. */
static bool wait_room(struct sender *s, int err, int *tries)
{
	struct pollfd p = {.fd = s->fd, .events = POLLOUT};

	if (++*tries > FULL_TRIES)
		return false;
	s->waits++;
	if (err == EAGAIN)
		poll(&p, 1, FULL_MS);
	else /* ENOBUFS: of a queue below, which tells nobody */
		poll(NULL, 0, 1);
	return true;
}

/* How many of these messages were taken: n, or 0 with *err of the first. */
static uint32_t give(struct sender *s, struct mmsghdr *msg, uint32_t n,
		     int *err)
{
	int tries = 0, got;

	for (;;) {
		got = sendmmsg(s->fd, msg, n, MSG_DONTWAIT | MSG_NOSIGNAL);
		s->calls++;
		if (got > 0)
			return (uint32_t)got;
		*err = errno;
		if (*err == EINTR)
			continue;
		if ((*err != EAGAIN && *err != ENOBUFS) ||
		    !wait_room(s, *err, &tries))
			return 0;
	}
}

/* A run as single packets. True: the first went. */
static bool give_singly(struct sender *s, const struct sender_run *run)
{
	const struct udp_path *p = run->path;
	struct mmsghdr m = {{0}};
	bool first = false;
	uint32_t i;
	int err;

	for (i = run->first; i < run->first + run->seg.n; i++) {
		struct sender_run r = *run;

		r.first = i;
		r.seg.n = 1;
		m.msg_hdr.msg_control = r.info.room;
		icrc_put(&p->flow, 0, s->buf[i],
			 s->iov[i].iov_len - PACKET_ICRC);
		message(s, &m.msg_hdr, &r);
		if (give(s, &m, 1, &err)) {
			s->sent++;
			first |= i == run->first;
			continue;
		}
		s->failed++;
		if (err == EMSGSIZE)
			say_too_long(s, &r);
	}
	return first;
}

/* EIO: the device computes no checksums; EINVAL: no such option. What goes in
 * single packets shows that it is so; then that device gets no more runs. */
static void fall_back(struct sender *s, const struct sender_run *r, int err)
{
	if (!give_singly(s, r) || !takes_segments(s, r->path))
		return;
	s->plain[s->n_plain++] = r->path->dev;
	env_log(s->env, ENV_LOG_INFO,
		"skein0: link: no segmentation on interface %u from now on: %s",
		r->path->dev, strerror(err));
}

/* The first of what is left was not taken. */
static void refused(struct sender *s, const struct sender_run *r, int err)
{
	if (r->seg.n > 1 && (err == EIO || err == EINVAL)) {
		fall_back(s, r, err);
		return;
	}
	s->failed += r->seg.n;
	if (err == EMSGSIZE)
		say_too_long(s, r);
}

void sender_flush(struct sender *s)
{
	uint32_t at = 0, n, i;
	int was, err;

	if (!s->n)
		return;
	for (i = 0; i < s->runs; i++)
		message(s, &s->msg[i].msg_hdr, &s->run[i]);
	was = env_cancel_off(NULL);
	while (at < s->runs) {
		n = give(s, s->msg + at, s->runs - at, &err);
		for (i = at; i < at + n; i++)
			s->sent += s->run[i].seg.n;
		at += n;
		if (!n)
			refused(s, &s->run[at++], err);
	}
	env_cancel_back(NULL, was);
	s->n = s->runs = 0;
}
