/* SPDX-License-Identifier: MIT */
/*
 * udp.c - see udp.h.
 *
 * The sending sockets are never connected, and have IP_PMTUDISC_DO: so the
 * kernel writes identification 0 and "don't fragment" into IPv4's header, as
 * the ICRC says. With SO_REUSEPORT the kernel gives a flow of packets to one
 * of the processes on the port; the sockets of flow.h see to it that this is
 * the owner of their QPs, from the second packet at the latest. Any other
 * passes them on over a SOCK_SEQPACKET connection to the owner of the QPN's
 * block.
 */
#include "dev/soft/link/udp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/un.h>
#include <unistd.h>

#define ROUNDS 8
#define OUTS 8u
#define EVENTS 8
#define AGAIN_NS 1000000000ull /* after a flow got no socket */

struct out {
	uint32_t block; /* 0: none */
	int fd;
};

struct message {
	struct iovec iov;
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(struct in6_pktinfo))];
	} info;
};

struct batch {
	struct mmsghdr msg[UDP_BATCH];
	struct message m[UDP_BATCH];
	uint8_t buf[UDP_BATCH][UDP_SLOT];
};

struct udp {
	struct soft *s;
	struct soft_src all; /* an epoll of those below, for polling */
	struct soft_src src4, src6;
	struct soft_src listen[SHM_BLOCK_MAX];
	uint32_t blocks[SHM_BLOCK_MAX], n_blocks;
	struct soft_src pass[UDP_PASSES];
	struct flow_table receives; /* s->lock */
	bool stray; /* what is taken in now came by the shared socket */
	uint64_t met_again_ns;
	struct out out[OUTS];
	uint32_t out_next;
	struct udp_counts counts;
	pthread_mutex_t lock; /* of sending */
	struct flow_table sends;
	int tx_fd;
	uint32_t tx_n;
	struct batch tx, rx;
	struct sockaddr_storage from[UDP_BATCH];
};

static int src_add(struct udp *u, struct soft_src *src)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = src};

	return epoll_ctl(u->all.fd, EPOLL_CTL_ADD, src->fd, &ev) ? -errno : 0;
}

static int udp_socket(struct udp *u, struct soft_src *src, int family)
{
	struct sockaddr_in in = {.sin_family = AF_INET,
				 .sin_port = htons(PACKET_UDP_PORT)};
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6,
				   .sin6_port = htons(PACKET_UDP_PORT)};
	bool v6 = family == AF_INET6;
	int fd, err;

	fd = flow_socket(v6);
	if (fd < 0)
		return fd;
	flow_socket_shared(fd);
	err = v6 ? bind(fd, (struct sockaddr *)&in6, sizeof(in6))
		 : bind(fd, (struct sockaddr *)&in, sizeof(in));
	src->fd = fd;
	err = err ? -errno : src_add(u, src);
	if (err) {
		close(fd);
		src->fd = -1;
	}
	return err;
}

static void batch_init(struct batch *b)
{
	for (uint32_t i = 0; i < UDP_BATCH; i++) {
		struct msghdr *h = &b->msg[i].msg_hdr;

		b->m[i].iov = (struct iovec){b->buf[i], UDP_SLOT};
		h->msg_iov = &b->m[i].iov;
		h->msg_iovlen = 1;
		h->msg_control = b->m[i].info.room;
		h->msg_controllen = sizeof(b->m[i].info);
	}
}

int udp_open(struct soft *s, struct udp **out, const char **what)
{
	struct udp *u = env_alloc(s->env, sizeof(*u));
	uint32_t i;
	int err;

	*what = "memory";
	if (!u)
		return -ENOMEM;
	u->s = s;
	u->src4.fd = u->src6.fd = -1;
	u->all.kind = SOFT_SRC_LINK;
	u->all.fd = epoll_create1(EPOLL_CLOEXEC);
	for (i = 0; i < UDP_PASSES; i++)
		u->pass[i].fd = -1;
	flow_table_init(&u->sends);
	flow_table_init(&u->receives);
	pthread_mutex_init(&u->lock, NULL);
	batch_init(&u->tx);
	batch_init(&u->rx);
	*what = "epoll";
	err = u->all.fd < 0 ? -errno : soft_src_add(s, &u->all, EPOLLIN);
	if (err) {
		udp_close(u);
		return err;
	}
	*what = "UDP 4791";
	err = udp_socket(u, &u->src4, AF_INET);
	if (err == -EADDRINUSE)
		*what = "UDP 4791, which is held by the kernel's rxe (then use "
			"SKEIN_DEVICE=verbs) or by another user";
	if (err) {
		udp_close(u);
		return err;
	}
	/* Optional: where there is no IPv6 there are no such GIDs. */
	udp_socket(u, &u->src6, AF_INET6);
	*out = u;
	return 0;
}

void udp_close(struct udp *u)
{
	uint32_t i;

	if (u->all.fd >= 0)
		close(u->all.fd);
	if (u->src4.fd >= 0)
		close(u->src4.fd);
	if (u->src6.fd >= 0)
		close(u->src6.fd);
	for (i = 0; i < u->n_blocks; i++)
		close(u->listen[i].fd);
	for (i = 0; i < UDP_PASSES; i++)
		if (u->pass[i].fd >= 0)
			close(u->pass[i].fd);
	for (i = 0; i < OUTS; i++)
		if (u->out[i].block)
			close(u->out[i].fd);
	flow_table_fini(&u->sends);
	flow_table_fini(&u->receives);
	pthread_mutex_destroy(&u->lock);
	env_free(u->s->env, u);
}

static socklen_t block_name(uint32_t block, struct sockaddr_un *un)
{
	int n;

	memset(un, 0, sizeof(*un));
	un->sun_family = AF_UNIX;
	n = snprintf(un->sun_path + 1, sizeof(un->sun_path) - 1,
		     "skein0.udp.%03x", block);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			   (size_t)n);
}

int udp_own_block(struct udp *u, uint32_t block)
{
	struct sockaddr_un un;
	struct soft_src *src = &u->listen[u->n_blocks];
	uint32_t i;
	int err;

	for (i = 0; i < u->n_blocks; i++)
		if (u->blocks[i] == block)
			return 0;
	src->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK,
			 0);
	if (src->fd < 0)
		return -errno;
	err = bind(src->fd, (struct sockaddr *)&un, block_name(block, &un)) ||
			      listen(src->fd, (int)UDP_PASSES)
		      ? -errno
		      : src_add(u, src);
	if (err) {
		close(src->fd);
		return err;
	}
	u->blocks[u->n_blocks++] = block;
	return 0;
}

static bool is_v4(const union ibv_gid *gid)
{
	struct icrc_flow f;

	memcpy(f.dst, gid->raw, 16);
	return icrc_flow_is_v4(&f);
}

/* What the route carries, asked of a socket that sends nothing. */
static int route_mtu(struct udp_path *p)
{
	int fd, mtu = 0, err = 0;
	socklen_t len = sizeof(mtu);

	fd = socket(p->to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&p->to, p->to_len) ||
	    (p->v6 ? getsockopt(fd, IPPROTO_IPV6, IPV6_MTU, &mtu, &len)
		   : getsockopt(fd, IPPROTO_IP, IP_MTU, &mtu, &len)))
		err = -errno;
	close(fd);
	p->mtu = mtu > 0 ? (uint32_t)mtu : 0;
	return err;
}

int udp_path(struct udp *u, const union ibv_gid *from, const char *netdev,
	     const union ibv_gid *to, struct udp_path *p)
{
	struct sockaddr_in *in = (void *)&p->to;
	struct sockaddr_in6 *in6 = (void *)&p->to;

	memset(p, 0, sizeof(*p));
	p->v6 = !is_v4(to);
	if (is_v4(from) == p->v6)
		return -EINVAL;
	if (p->v6 && u->src6.fd < 0)
		return -EAFNOSUPPORT;
	memcpy(p->flow.src, from->raw, 16);
	memcpy(p->flow.dst, to->raw, 16);
	p->flow.sport = p->flow.dport = htons(PACKET_UDP_PORT);
	if (p->v6) {
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons(PACKET_UDP_PORT);
		memcpy(&in6->sin6_addr, to->raw, 16);
		if (IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr))
			p->ifindex = in6->sin6_scope_id =
				if_nametoindex(netdev);
		p->to_len = sizeof(*in6);
	} else {
		in->sin_family = AF_INET;
		in->sin_port = htons(PACKET_UDP_PORT);
		memcpy(&in->sin_addr, to->raw + 12, 4);
		p->to_len = sizeof(*in);
	}
	return route_mtu(p);
}

void udp_lock(struct udp *u)
{
	pthread_mutex_lock(&u->lock);
}

/* What the kernel does not take is lost, as on the wire: retries follow. */
static void flush(struct udp *u)
{
	uint32_t at = 0;
	int n, was;

	if (!u->tx_n)
		return;
	was = env_cancel_off(NULL);
	while (at < u->tx_n) {
		n = sendmmsg(u->tx_fd, u->tx.msg + at, u->tx_n - at, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			u->counts.send_failed++;
			n = 1;
		} else {
			u->counts.sent += (uint64_t)n;
		}
		at += (uint32_t)n;
	}
	env_cancel_back(NULL, was);
	u->tx_n = 0;
}

uint8_t *udp_begin(struct udp *u)
{
	if (u->tx_n == UDP_BATCH)
		flush(u);
	return u->tx.buf[u->tx_n];
}

/* u->lock held: what waits to be sent may be for the socket that goes. */
static struct flow *send_flow(struct udp *u, const struct icrc_flow *f)
{
	struct flow *w = flow_find(&u->sends, f, true);

	if (w)
		return w;
	flush(u);
	w = flow_place(&u->sends);
	return w && !flow_send_open(w, f) ? w : NULL;
}

/* s->lock held. */
static struct flow *receive_flow(struct udp *u, const struct icrc_flow *f)
{
	struct flow *w = flow_find(&u->receives, f, false);

	if (w)
		return w;
	w = flow_place(&u->receives);
	if (!w || flow_receive_open(w, f))
		return NULL;
	if (!src_add(u, &w->src))
		return w;
	flow_close(w);
	return NULL;
}

void udp_path_borrow(struct udp *u, struct udp_path *p, uint32_t block,
		     uint32_t peer_block)
{
	struct icrc_flow *f = &p->flow;

	f->sport = flow_port(f->src, block, f->dst, peer_block);
	p->out = send_flow(u, f);
	if (!p->out)
		f->sport = f->dport;
}

void udp_path_own(struct udp *u, struct udp_path *p, uint32_t block,
		  uint32_t peer_block)
{
	struct icrc_flow *f = &p->flow, back = {.dport = f->dport};

	memcpy(back.src, f->dst, 16);
	memcpy(back.dst, f->src, 16);
	back.sport = flow_port(f->dst, peer_block, f->src, block);
	udp_lock(u);
	udp_path_borrow(u, p, block, peer_block);
	if (p->out)
		p->out->refs++;
	udp_unlock(u);
	p->in = receive_flow(u, &back);
	if (p->in)
		p->in->refs++;
}

static void flow_put(struct flow *w)
{
	if (w && !--w->refs)
		flow_close(w);
}

void udp_path_put(struct udp *u, struct udp_path *p)
{
	udp_lock(u);
	flush(u); /* by that socket */
	flow_put(p->out);
	udp_unlock(u);
	flow_put(p->in);
	p->out = p->in = NULL;
}

void udp_met(struct udp *u, const struct icrc_flow *f, struct udp_path *p)
{
	struct flow *w;

	if (!u->stray || env_now_ns(u->s->env) < u->met_again_ns)
		return;
	w = receive_flow(u, f);
	if (!w) {
		u->met_again_ns = env_now_ns(u->s->env) + AGAIN_NS;
	} else if (p && p->in != w) {
		w->refs++;
		flow_put(p->in);
		p->in = w;
	}
}

/* The source address: the kernel would choose one by the route. */
static void put_source(struct msghdr *h, const struct udp_path *p)
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
}

void udp_send(struct udp *u, const struct udp_path *p, size_t len)
{
	uint8_t *buf = u->tx.buf[u->tx_n];
	int fd = p->out ? p->out->src.fd : p->v6 ? u->src6.fd : u->src4.fd;
	struct msghdr *h;

	if (u->tx_n && fd != u->tx_fd) {
		uint8_t *first = u->tx.buf[0];

		flush(u);
		memmove(first, buf, len);
		buf = first;
	}
	icrc_put(&p->flow, buf, len);
	u->tx_fd = fd;
	h = &u->tx.msg[u->tx_n].msg_hdr;
	h->msg_name = (void *)(uintptr_t)&p->to;
	h->msg_namelen = p->to_len;
	put_source(h, p);
	u->tx.m[u->tx_n].iov.iov_len = len + PACKET_ICRC;
	u->tx_n++;
}

void udp_unlock(struct udp *u)
{
	flush(u);
	pthread_mutex_unlock(&u->lock);
}

static bool flow_of(struct msghdr *h, bool v6, struct icrc_flow *f)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	const struct sockaddr_in *in = h->msg_name;
	const struct sockaddr_in6 *in6 = h->msg_name;
	struct cmsghdr *c;

	f->dport = htons(PACKET_UDP_PORT);
	for (c = CMSG_FIRSTHDR(h); c; c = CMSG_NXTHDR(h, c)) {
		if (!v6 && c->cmsg_type == IP_PKTINFO) {
			struct in_pktinfo i4;

			memcpy(&i4, CMSG_DATA(c), sizeof(i4));
			memcpy(f->src, mapped, 12);
			memcpy(f->dst, mapped, 12);
			memcpy(f->src + 12, &in->sin_addr, 4);
			memcpy(f->dst + 12, &i4.ipi_addr, 4);
			f->sport = in->sin_port;
			return true;
		}
		if (v6 && c->cmsg_type == IPV6_PKTINFO) {
			struct in6_pktinfo i6;

			memcpy(&i6, CMSG_DATA(c), sizeof(i6));
			memcpy(f->src, &in6->sin6_addr, 16);
			memcpy(f->dst, &i6.ipi6_addr, 16);
			f->sport = in6->sin6_port;
			return true;
		}
	}
	return false;
}

static void receive(struct udp *u, int fd, bool v6, udp_take *take, void *owner)
{
	struct icrc_flow f;
	int round, n, i;

	for (round = 0; round < ROUNDS; round++) {
		for (i = 0; i < (int)UDP_BATCH; i++) {
			struct msghdr *h = &u->rx.msg[i].msg_hdr;

			h->msg_name = &u->from[i];
			h->msg_namelen = sizeof(u->from[i]);
			h->msg_controllen = sizeof(u->rx.m[i].info);
		}
		n = recvmmsg(fd, u->rx.msg, UDP_BATCH, MSG_DONTWAIT, NULL);
		for (i = 0; i < n; i++) {
			u->counts.taken++;
			if (!(u->rx.msg[i].msg_hdr.msg_flags & MSG_TRUNC) &&
			    flow_of(&u->rx.msg[i].msg_hdr, v6, &f))
				take(owner, &f, u->rx.buf[i],
				     u->rx.msg[i].msg_len);
		}
		take(owner, NULL, NULL, 0); /* the end of a batch */
		if (n < (int)UDP_BATCH)
			return;
	}
}

static bool is_ours(int fd)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) &&
	       cred.uid == geteuid();
}

static void accept_one(struct udp *u, int listen_fd)
{
	int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct soft_src *src;
	uint32_t i;

	if (fd < 0)
		return;
	for (i = 0; i < UDP_PASSES && u->pass[i].fd >= 0; i++)
		;
	if (i == UDP_PASSES || !is_ours(fd)) {
		close(fd);
		return;
	}
	src = &u->pass[i];
	src->fd = fd;
	if (src_add(u, src)) {
		close(fd);
		src->fd = -1;
	}
}

/* What another process has passed on: the flow, then the packet. */
static void take_passed(struct udp *u, struct soft_src *src, udp_take *take,
			void *owner)
{
	uint8_t *buf = u->rx.buf[0];
	struct icrc_flow f;
	ssize_t n;
	int i;

	for (i = 0; i < ROUNDS * (int)UDP_BATCH; i++) {
		n = recv(src->fd, buf, UDP_SLOT, 0);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			break;
		if (n <= 0) {
			close(src->fd);
			src->fd = -1;
			break;
		}
		if ((size_t)n < sizeof(f))
			continue;
		memcpy(&f, buf, sizeof(f));
		take(owner, &f, buf + sizeof(f), (size_t)n - sizeof(f));
	}
	take(owner, NULL, NULL, 0);
}

static bool is_flow(const struct udp *u, const struct soft_src *src)
{
	const char *at = (const char *)src, *first = (const char *)&u->receives;

	return at >= first && at < first + sizeof(u->receives);
}

static bool is_v6(const struct soft_src *src)
{
	return !icrc_flow_is_v4(&container_of(src, struct flow, src)->f);
}

void udp_poll(struct udp *u, udp_take *take, void *owner)
{
	struct epoll_event ev[EVENTS];
	struct soft_src *src;
	int n, i;

	n = epoll_wait(u->all.fd, ev, EVENTS, 0);
	for (i = 0; i < n; i++) {
		src = ev[i].data.ptr;
		if (src == &u->src4 || src == &u->src6) {
			u->stray = true;
			receive(u, src->fd, src == &u->src6, take, owner);
		} else if (is_flow(u, src)) {
			u->stray = false;
			if (src->fd >= 0)
				receive(u, src->fd, is_v6(src), take, owner);
		} else if (src >= u->listen &&
			   src < u->listen + SHM_BLOCK_MAX) {
			accept_one(u, src->fd);
		} else if (src->fd >= 0) {
			u->stray = true;
			take_passed(u, src, take, owner);
		}
	}
}

/* The connection to the owner of a block; the oldest one makes room. */
static struct out *out_to(struct udp *u, uint32_t block)
{
	struct sockaddr_un un;
	socklen_t len;
	struct out *o;
	uint32_t i;
	int fd;

	for (i = 0; i < OUTS; i++)
		if (u->out[i].block == block)
			return &u->out[i];
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	len = block_name(block, &un);
	if (fd < 0)
		return NULL;
	if (connect(fd, (struct sockaddr *)&un, len) || !is_ours(fd)) {
		close(fd);
		return NULL;
	}
	o = &u->out[u->out_next++ % OUTS];
	if (o->block)
		close(o->fd);
	o->block = block;
	o->fd = fd;
	return o;
}

void udp_pass(struct udp *u, uint32_t block, const struct icrc_flow *f,
	      const uint8_t *buf, size_t len)
{
	struct iovec iov[2] = {{(void *)(uintptr_t)f, sizeof(*f)},
			       {(void *)(uintptr_t)buf, len}};
	struct msghdr h = {.msg_iov = iov, .msg_iovlen = 2};
	struct out *o = block ? out_to(u, block) : NULL;

	if (o && sendmsg(o->fd, &h, MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
		u->counts.passed++;
		return;
	}
	u->counts.pass_failed++;
	if (o && errno != EAGAIN) {
		close(o->fd);
		o->block = 0;
	}
}

const struct udp_counts *udp_counts(const struct udp *u)
{
	return &u->counts;
}
