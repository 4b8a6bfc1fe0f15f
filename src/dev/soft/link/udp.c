/* SPDX-License-Identifier: MIT */
/*
 * udp.c - see udp.h.
 *
 * The sending sockets are never connected, and have IP_PMTUDISC_PROBE: so the
 * kernel writes identification 0, 1, 2, ... into the IPv4 headers of a run's
 * segments, 0 into that of a single packet, and "don't fragment", as the ICRC
 * says. With SO_REUSEPORT the kernel gives a flow of packets to one
 * of the processes on the port; the sockets of flow.h see to it that this is
 * the owner of their QPs, from the second packet at the latest. Any other
 * passes them on over a SOCK_SEQPACKET connection to the owner of the QPN's
 * block.
 */
#include "dev/soft/link/udp.h"

#include "dev/soft/link/segment.h"
#include "dev/soft/link/sender.h"
#include "dev/soft/link/watch.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/un.h>
#include <unistd.h>

#define ROUNDS 8
#define ARRIVALS 16u
#define ARRIVAL_BYTES 65536u /* packets that the kernel has merged */
#define OUTS 8u
#define EVENTS 8
#define ARMED_POLLS 8u
#define AGAIN_NS 1000000000ull /* after a flow got no socket */

struct out {
	uint32_t block; /* 0: none */
	int fd;
};

struct arrival {
	struct iovec iov;
	struct sockaddr_storage from;
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(struct in6_pktinfo)) +
			  2 * CMSG_SPACE(sizeof(int))];
	} info;
};

/* What the kernel says of a message: one packet, or equal ones. */
struct rx_message {
	struct icrc_flow f;
	int seg;     /* the length of its packets */
	bool marked; /* ECN: congestion experienced */
};

/* Of pages that nothing was received into there are none. */
struct udp_rx {
	struct mmsghdr msg[ARRIVALS];
	struct arrival a[ARRIVALS];
	uint8_t buf[ARRIVALS][ARRIVAL_BYTES];
};

struct udp {
	struct soft *s;
	struct soft_src all; /* an epoll of those below, for polling */
	struct soft_src src4, src6;
	struct soft_src listen[SHM_BLOCK_MAX];
	uint32_t blocks[SHM_BLOCK_MAX], n_blocks;
	struct soft_src pass[UDP_PASSES];
	struct flow_table receives; /* s->lock */
	struct list_node hosts;	    /* s->lock */
	uint32_t rx_bytes;	    /* a socket's receive buffer */
	struct watch watch;	    /* s->lock */
	struct soft_src *also;	    /* of connections, or NULL */
	atomic_bool left;	    /* of it, for a thread without the lock */
	/* Polls until the program counts as polling: one that goes to sleep
	 * looks once more before. */
	atomic_uint armed;
	bool stray; /* what is taken in now came by the shared socket */
	uint64_t met_again_ns;
	struct out out[OUTS];
	uint32_t out_next;
	struct udp_counts counts;
	uint16_t id;	      /* likely, of the packet that comes next */
	pthread_mutex_t lock; /* of sending */
	struct flow_table sends;
	struct sender tx;
	struct udp_rx rx;
};

static int src_add(struct udp *u, struct soft_src *src)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = src};

	return epoll_ctl(u->all.fd, EPOLL_CTL_ADD, src->fd, &ev) ? -errno : 0;
}

static int udp_socket(struct udp *u, struct soft_src *src, int family)
{
	in_port_t port = htons(u->s->link_port);
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = port};
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = port};
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

static void rx_init(struct udp_rx *r)
{
	for (uint32_t i = 0; i < ARRIVALS; i++) {
		struct msghdr *h = &r->msg[i].msg_hdr;

		r->a[i].iov = (struct iovec){r->buf[i], ARRIVAL_BYTES};
		h->msg_iov = &r->a[i].iov;
		h->msg_iovlen = 1;
		h->msg_control = r->a[i].info.room;
		h->msg_name = &r->a[i].from;
	}
}

/* What the kernel gave of what flow.c asked for; it counts twice the bytes. */
static void rx_bytes_look(struct udp *u)
{
	socklen_t len = sizeof(int);
	int bytes = 0;

	if (getsockopt(u->src4.fd, SOL_SOCKET, SO_RCVBUF, &bytes, &len))
		bytes = 0;
	u->rx_bytes = (uint32_t)bytes;
	if (bytes / 2 < FLOW_RECEIVE_BYTES)
		env_log(u->s->env, ENV_LOG_INFO,
			"skein0: link: a receive buffer of %d bytes instead of "
			"%d: net.core.rmem_max bounds it, and with it what is "
			"on its way",
			bytes / 2, FLOW_RECEIVE_BYTES);
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
	list_init(&u->hosts);
	sender_init(&u->tx, s->env);
	rx_init(&u->rx);
	*what = "epoll";
	err = u->all.fd < 0 ? -errno : soft_src_add(s, &u->all, EPOLLIN);
	if (err) {
		udp_close(u);
		return err;
	}
	*what = "its UDP port (4791, or SKEIN_LINK_PORT)";
	err = udp_socket(u, &u->src4, AF_INET);
	if (err == -EADDRINUSE)
		*what = "its UDP port (4791, or SKEIN_LINK_PORT), which is held "
			"by the kernel's rxe (then use SKEIN_DEVICE=verbs) or "
			"by another user (then set SKEIN_LINK_PORT at both "
			"ends)";
	if (err) {
		udp_close(u);
		return err;
	}
	rx_bytes_look(u);
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
	while (!list_empty(&u->hosts)) {
		struct udp_host *h =
			container_of(u->hosts.next, struct udp_host, node);

		list_del(&h->node);
		env_free(u->s->env, h);
	}
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
	p->dev = if_nametoindex(netdev);
	if (is_v4(from) == p->v6)
		return -EINVAL;
	if (p->v6 && u->src6.fd < 0)
		return -EAFNOSUPPORT;
	memcpy(p->flow.src, from->raw, 16);
	memcpy(p->flow.dst, to->raw, 16);
	p->flow.sport = p->flow.dport = htons(u->s->link_port);
	if (p->v6) {
		in6->sin6_family = AF_INET6;
		in6->sin6_port = p->flow.dport;
		memcpy(&in6->sin6_addr, to->raw, 16);
		if (IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr))
			p->ifindex = in6->sin6_scope_id = p->dev;
		p->to_len = sizeof(*in6);
	} else {
		in->sin_family = AF_INET;
		in->sin_port = p->flow.dport;
		memcpy(&in->sin_addr, to->raw + 12, 4);
		p->to_len = sizeof(*in);
	}
	return route_mtu(p);
}

void udp_lock(struct udp *u)
{
	pthread_mutex_lock(&u->lock);
}

uint8_t *udp_begin(struct udp *u)
{
	return sender_begin(&u->tx);
}

/* u->lock held: what waits to be sent may be for the socket that goes. */
static struct flow *send_flow(struct udp *u, const struct icrc_flow *f)
{
	struct flow *w = flow_find(&u->sends, f, true);

	if (w)
		return w;
	sender_flush(&u->tx);
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

/* s->lock held. NULL: no memory. */
static struct udp_host *host_get(struct udp *u, const struct udp_path *p)
{
	uint32_t packet = p->mtu < UDP_SLOT ? p->mtu : UDP_SLOT, max;
	struct list_node *n;
	struct udp_host *h;

	for (n = u->hosts.next; n != &u->hosts; n = n->next) {
		h = container_of(n, struct udp_host, node);
		if (!memcmp(h->addr, p->flow.dst, 16))
			goto found;
	}
	h = env_alloc(u->s->env, sizeof(*h));
	if (!h)
		return NULL;
	memcpy(h->addr, p->flow.dst, 16);
	/* READs bring in as much as goes out: no more than our own buffer
	 * holds, in which a packet takes twice its length and a header. */
	max = u->rx_bytes / (2 * packet + 1024);
	max = max < CONG_FIRST ? CONG_FIRST : max;
	cong_init(&h->cong, max < CONG_MAX ? max : CONG_MAX);
	list_add_tail(&u->hosts, &h->node);
found:
	h->refs++;
	return h;
}

static void host_put(struct udp *u, struct udp_host *h)
{
	if (!h || --h->refs)
		return;
	list_del(&h->node);
	env_free(u->s->env, h);
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
	p->host = host_get(u, p);
}

static void flow_put(struct flow *w)
{
	if (w && !--w->refs)
		flow_close(w);
}

void udp_path_put(struct udp *u, struct udp_path *p)
{
	udp_lock(u);
	sender_flush(&u->tx); /* by that socket */
	flow_put(p->out);
	udp_unlock(u);
	flow_put(p->in);
	host_put(u, p->host);
	p->out = p->in = NULL;
	p->host = NULL;
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

void udp_send(struct udp *u, const struct udp_path *p, size_t len)
{
	int fd = p->out ? p->out->src.fd : p->v6 ? u->src6.fd : u->src4.fd;

	sender_add(&u->tx, fd, p, len);
}

void udp_unlock(struct udp *u)
{
	sender_flush(&u->tx);
	pthread_mutex_unlock(&u->lock);
}

static void take_info(const struct cmsghdr *c, struct rx_message *p)
{
	const unsigned char *data = CMSG_DATA(c);
	struct in_pktinfo i4;
	struct in6_pktinfo i6;
	int v;

	if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO) {
		memcpy(&p->seg, data, sizeof(p->seg));
	} else if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS) {
		p->marked = (*data & IPTOS_ECN_MASK) == IPTOS_ECN_CE;
	} else if (c->cmsg_level == IPPROTO_IPV6 &&
		   c->cmsg_type == IPV6_TCLASS) {
		memcpy(&v, data, sizeof(v));
		p->marked = (v & IPTOS_ECN_MASK) == IPTOS_ECN_CE;
	} else if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
		memcpy(&i4, data, sizeof(i4));
		memset(p->f.dst + 10, 0xff, 2);
		memcpy(p->f.dst + 12, &i4.ipi_addr, 4);
	} else if (c->cmsg_level == IPPROTO_IPV6 &&
		   c->cmsg_type == IPV6_PKTINFO) {
		memcpy(&i6, data, sizeof(i6));
		memcpy(p->f.dst, &i6.ipi6_addr, 16);
	}
}

/* False: the kernel does not say for which address it was. */
static bool message_of(struct msghdr *h, bool v6, in_port_t port,
		       struct rx_message *p)
{
	static const uint8_t none[16];
	const struct sockaddr_in *in = h->msg_name;
	const struct sockaddr_in6 *in6 = h->msg_name;
	struct cmsghdr *c;

	memset(p, 0, sizeof(*p));
	p->f.dport = port;
	if (v6) {
		memcpy(p->f.src, &in6->sin6_addr, 16);
		p->f.sport = in6->sin6_port;
	} else {
		memset(p->f.src + 10, 0xff, 2);
		memcpy(p->f.src + 12, &in->sin_addr, 4);
		p->f.sport = in->sin_port;
	}
	for (c = CMSG_FIRSTHDR(h); c; c = CMSG_NXTHDR(h, c))
		take_info(c, p);
	return memcmp(p->f.dst, none, 16) != 0;
}

bool udp_check(struct udp *u, const struct icrc_flow *f, const uint8_t *buf,
	       size_t len)
{
	if (!icrc_solve(f, &u->id, buf, len))
		return false;
	u->id++;
	return true;
}

static void take_message(struct udp *u, uint32_t i, bool v6, udp_take *take,
			 void *owner)
{
	struct msghdr *h = &u->rx.msg[i].msg_hdr;
	struct segment_iter it;
	struct rx_message p;
	uint8_t *buf;
	size_t len;

	if (h->msg_flags & MSG_TRUNC ||
	    !message_of(h, v6, htons(u->s->link_port), &p)) {
		u->counts.cut_off++;
		return;
	}
	segment_iter(&it, u->rx.buf[i], u->rx.msg[i].msg_len, p.seg);
	for (u->id = 0; (buf = segment_next(&it, &len)); u->counts.taken++) {
		if (p.marked)
			packet_mark(buf, len);
		take(owner, &p.f, buf, len);
	}
}

static void receive(struct udp *u, int fd, bool v6, udp_take *take, void *owner)
{
	int round, n, i;

	for (round = 0; round < ROUNDS; round++) {
		for (i = 0; i < (int)ARRIVALS; i++) {
			struct msghdr *h = &u->rx.msg[i].msg_hdr;

			h->msg_namelen = sizeof(u->rx.a[i].from);
			h->msg_controllen = sizeof(u->rx.a[i].info);
		}
		n = recvmmsg(fd, u->rx.msg, ARRIVALS, MSG_DONTWAIT, NULL);
		u->counts.take_calls++;
		/* Anybody can forge an ICMP packet: retries find out. */
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			u->counts.icmp++;
		for (i = 0; i < n; i++)
			take_message(u, (uint32_t)i, v6, take, owner);
		take(owner, NULL, NULL, 0); /* the end of a batch */
		if (n < (int)ARRIVALS)
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
		u->id = 0;
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

/* Does the control thread wake for packets? It finds those that are there. */
static void watch_set(struct udp *u, bool on)
{
	struct epoll_event ev = {.events = on ? EPOLLIN : 0,
				 .data.ptr = &u->all};

	epoll_ctl(u->s->epoll_fd, EPOLL_CTL_MOD, u->all.fd, &ev);
	atomic_store(&u->left, !on);
}

int udp_watch_also(struct udp *u, struct soft_src *also)
{
	u->also = also;
	return src_add(u, also);
}

bool udp_is_left(const struct udp *u)
{
	return u->watch.left;
}

/* Does anything wait in the sockets? */
static bool is_ready(const struct udp *u)
{
	struct epoll_event ev;

	return epoll_wait(u->all.fd, &ev, 1, 0) > 0;
}

bool udp_polled(struct udp *u, uint64_t now)
{
	unsigned n = atomic_load(&u->armed);
	bool again = watch_is_polled(&u->watch, now);

	if (!n)
		u->watch.polled_ns = now;
	else /* in vain where another thread arms it again */
		atomic_compare_exchange_strong(&u->armed, &n, n - 1);
	return !n && again;
}

void udp_leave_to_poller(struct udp *u, uint64_t now)
{
	if (u->watch.left || atomic_load(&u->armed) ||
	    !watch_leave(&u->watch, now))
		return;
	watch_set(u, false);
	soft_kick(u->s); /* it looks from time to time */
}

bool udp_leave(struct udp *u, uint64_t now)
{
	/* It may have been taken in already. */
	if (!is_ready(u) || atomic_load(&u->armed) ||
	    !watch_leave(&u->watch, now))
		return false;
	watch_set(u, false);
	return true;
}

uint64_t udp_look(struct udp *u, uint64_t now)
{
	if (!u->watch.left)
		return ENV_NEVER;
	if (now < u->watch.look_ns)
		return u->watch.look_ns;
	if (!watch_look(&u->watch, now, is_ready(u)))
		return u->watch.look_ns;
	watch_set(u, true);
	return ENV_NEVER;
}

bool udp_armed(struct udp *u)
{
	atomic_store(&u->armed, ARMED_POLLS);
	return atomic_load(&u->left);
}

void udp_take_back(struct udp *u)
{
	u->watch.left = false;
	watch_set(u, true);
}

bool udp_poll(struct udp *u, udp_take *take, void *owner)
{
	struct epoll_event ev[EVENTS];
	struct soft_src *src;
	bool also = false;
	int n, i;

	n = epoll_wait(u->all.fd, ev, EVENTS, 0);
	for (i = 0; i < n; i++) {
		src = ev[i].data.ptr;
		if (src == u->also) {
			also = true;
		} else if (src == &u->src4 || src == &u->src6) {
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
	return also;
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

void udp_counts(struct udp *u, struct udp_counts *c)
{
	*c = u->counts;
	pthread_mutex_lock(&u->lock);
	c->sent = u->tx.sent;
	c->send_calls = u->tx.calls;
	c->send_failed = u->tx.failed;
	c->send_waits = u->tx.waits;
	pthread_mutex_unlock(&u->lock);
}
