/* SPDX-License-Identifier: MIT */
/*
 * tcp.c - see tcp.h.
 *
 * All processes of one uid listen on the port (SO_REUSEPORT): the kernel gives
 * a connection to any of them, which reads its hello and hands it over to the
 * owner of the QPN, over a local socket named after the QPN's block.
 */
#include "dev/soft/link/tcp.h"

#include "dev/soft/link/framing.h"
#include "dev/soft/link/hand.h"
#include "dev/soft/link/sealing.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define EVENTS 8
#define ACCEPTS 16
#define NOTSENT (128 << 10)

struct tcp {
	struct soft *s;
	struct tcp_ops ops;
	struct soft_src all; /* an epoll of those below */
	struct soft_src src4, src6;
	struct soft_src own[SHM_BLOCK_MAX]; /* for those handed over */
	uint32_t blocks[SHM_BLOCK_MAX], n_blocks;
	struct list_node conns, gone;
	uint32_t n_conns, n_unproved, n_up;
	uint8_t id[16];
	struct tcp_counts counts;
	uint64_t say_ns[SEALING_FAULTS];
	struct framing *framing;
};

/* Sockets. */

static void on(int fd, int level, int name, int v)
{
	/* What is not there is slower, not wrong. */
	(void)!setsockopt(fd, level, name, &v, sizeof(v));
}

static bool is_v4(const uint8_t gid[16])
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	return !memcmp(gid, mapped, sizeof(mapped));
}

static socklen_t address(const uint8_t gid[16], uint16_t port, uint32_t ifindex,
			 struct sockaddr_storage *a)
{
	struct sockaddr_in *in = (void *)a;
	struct sockaddr_in6 *in6 = (void *)a;

	memset(a, 0, sizeof(*a));
	if (is_v4(gid)) {
		in->sin_family = AF_INET;
		in->sin_port = htons(port);
		memcpy(&in->sin_addr, gid + 12, 4);
		return sizeof(*in);
	}
	in6->sin6_family = AF_INET6;
	in6->sin6_port = htons(port);
	memcpy(&in6->sin6_addr, gid, 16);
	if (IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr))
		in6->sin6_scope_id = ifindex;
	return sizeof(*in6);
}

static void gid_of(const struct sockaddr_storage *a, uint8_t gid[16])
{
	const struct sockaddr_in *in = (const void *)a;
	const struct sockaddr_in6 *in6 = (const void *)a;

	if (a->ss_family == AF_INET6) {
		memcpy(gid, &in6->sin6_addr, 16);
		return;
	}
	memset(gid, 0, 10);
	gid[10] = gid[11] = 0xff;
	memcpy(gid + 12, &in->sin_addr, 4);
}

static bool flow_of(int fd, struct icrc_flow *f)
{
	struct sockaddr_storage a = {0};
	socklen_t len = sizeof(a);

	memset(f, 0, sizeof(*f));
	if (getsockname(fd, (struct sockaddr *)&a, &len) ||
	    (a.ss_family != AF_INET && a.ss_family != AF_INET6))
		return false;
	gid_of(&a, f->src);
	len = sizeof(a);
	if (getpeername(fd, (struct sockaddr *)&a, &len))
		return false;
	gid_of(&a, f->dst);
	return true;
}

static int src_add(struct tcp *t, struct soft_src *src, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.ptr = src};

	return epoll_ctl(t->all.fd, EPOLL_CTL_ADD, src->fd, &ev) ? -errno : 0;
}

static void src_mod(struct tcp *t, struct soft_src *src, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.ptr = src};

	epoll_ctl(t->all.fd, EPOLL_CTL_MOD, src->fd, &ev);
}

/* Another process may have it, too: closing is not enough for epoll. */
static void src_close(struct tcp *t, struct soft_src *src)
{
	if (src->fd < 0)
		return;
	epoll_ctl(t->all.fd, EPOLL_CTL_DEL, src->fd, NULL);
	close(src->fd);
	src->fd = -1;
}

static int listen_on(struct tcp *t, struct soft_src *src, bool v6)
{
	static const uint8_t any6[16], any4[16] = {[10] = 0xff, [11] = 0xff};
	struct sockaddr_storage a;
	socklen_t len = address(v6 ? any6 : any4, t->s->link_port, 0, &a);
	int fd, err;

	fd = socket(a.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	on(fd, SOL_SOCKET, SO_REUSEADDR, 1);
	on(fd, SOL_SOCKET, SO_REUSEPORT, 1);
	if (v6)
		on(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
	src->fd = fd;
	err = bind(fd, (struct sockaddr *)&a, len) ||
			      listen(fd, (int)TCP_UNPROVED)
		      ? -errno
		      : src_add(t, src, EPOLLIN);
	if (err) {
		close(fd);
		src->fd = -1;
	}
	return err;
}

/* What framing.c asks for. */

static bool is_proved(struct tcp *t, struct tcp_conn *c);

static void framing_take(void *owner, struct tcp_conn *c, const uint8_t *pkt,
			 size_t len)
{
	struct tcp *t = owner;

	t->ops.take(t->ops.owner, c, pkt, len);
}

static bool framing_proved(void *owner, struct tcp_conn *c)
{
	return is_proved(owner, c);
}

static void framing_watch(void *owner, struct tcp_conn *c, uint32_t events)
{
	src_mod(owner, &c->src, events);
}

int tcp_open(struct soft *s, const struct tcp_ops *ops, struct tcp **out,
	     const char **what)
{
	struct tcp *t = env_alloc(s->env, sizeof(*t));
	const struct framing_ops framing_ops = {t, framing_take, framing_proved,
						framing_watch};
	uint64_t guid = dev_soft_guid();
	int err;

	*what = "memory";
	if (!t)
		return -ENOMEM;
	t->s = s;
	t->ops = *ops;
	t->src4.fd = t->src6.fd = -1;
	list_init(&t->conns);
	list_init(&t->gone);
	memcpy(t->id, &guid, 8);
	env_random(s->env, t->id + 8, 8);
	t->framing = framing_new(s->env, s->link_key, &framing_ops);
	t->all.kind = SOFT_SRC_LINK;
	t->all.fd = epoll_create1(EPOLL_CLOEXEC);
	if (!t->framing) {
		tcp_close(t);
		return -ENOMEM;
	}
	*what = "epoll";
	err = t->all.fd < 0 ? -errno : 0;
	if (!err) {
		*what = "its TCP port (4791, or SKEIN_LINK_PORT)";
		err = listen_on(t, &t->src4, false);
		if (err == -EADDRINUSE)
			*what = "its TCP port (4791, or SKEIN_LINK_PORT), "
				"which another user or program has (then set "
				"SKEIN_LINK_PORT at both ends)";
	}
	if (err) {
		tcp_close(t);
		return err;
	}
	/* Optional: where there is no IPv6 there are no such GIDs. */
	listen_on(t, &t->src6, true);
	*out = t;
	return 0;
}

static void conn_free(struct tcp *t, struct tcp_conn *c)
{
	list_del(&c->node);
	src_close(t, &c->src);
	env_free(t->s->env, c->rest);
	if (c->seal)
		explicit_bzero(c->seal, seal_bytes());
	env_free(t->s->env, c->seal);
	env_free(t->s->env, c);
}

static void reap(struct tcp *t)
{
	while (!list_empty(&t->gone))
		conn_free(t, container_of(t->gone.next, struct tcp_conn, node));
}

void tcp_close(struct tcp *t)
{
	uint32_t i;

	while (!list_empty(&t->conns))
		conn_free(t,
			  container_of(t->conns.next, struct tcp_conn, node));
	reap(t);
	if (t->all.fd >= 0)
		close(t->all.fd);
	if (t->src4.fd >= 0)
		close(t->src4.fd);
	if (t->src6.fd >= 0)
		close(t->src6.fd);
	for (i = 0; i < t->n_blocks; i++)
		close(t->own[i].fd);
	framing_free(t->framing);
	env_free(t->s->env, t);
}

struct framing *tcp_framing(struct tcp *t)
{
	return t->framing;
}

const struct tcp_counts *tcp_counts(const struct tcp *t)
{
	return &t->counts;
}

/* Connections. */

static bool is_unproved(const struct tcp_conn *c)
{
	return c->state == TCP_ACCEPTS || c->state == TCP_HANDED ||
	       c->state == TCP_HEARS || c->state == TCP_PROVES;
}

/* Takes the fd, also when it fails. */
static struct tcp_conn *conn_new(struct tcp *t, int fd, int state,
				 uint32_t events)
{
	struct tcp_conn *c = NULL;

	if (t->n_conns < TCP_CONNS)
		c = env_alloc(t->s->env,
			      sizeof(*c) + (t->s->link_key
						    ? SEAL_RECORD_MAX
						    : FRAME_HEAD + FRAME_MAX));
	if (!c) {
		close(fd);
		return NULL;
	}
	c->state = state;
	c->src.fd = fd;
	c->src.obj = c;
	c->deadline = env_now_ns(t->s->env) + TCP_HELLO_NS;
	list_add_tail(&t->conns, &c->node);
	if (src_add(t, &c->src, events)) {
		conn_free(t, c);
		return NULL;
	}
	t->n_conns++;
	t->n_unproved += is_unproved(c);
	return c;
}

/* Freed by the next poll: events that were fetched may name it. */
static void drop(struct tcp *t, struct tcp_conn *c)
{
	int was = c->state;

	framing_forget(t->framing, c);
	src_close(t, &c->src);
	t->n_unproved -= is_unproved(c);
	t->n_conns--;
	c->state = TCP_GONE;
	list_del(&c->node);
	list_add_tail(&t->gone, &c->node);
	if (was == TCP_UP) {
		t->counts.broken++;
		t->n_up--;
	}
	if (was == TCP_UP || was == TCP_DIALS || was == TCP_ASKS ||
	    was == TCP_PROVES)
		t->ops.down(t->ops.owner, c, was == TCP_UP);
}

static void garbage(struct tcp *t, struct tcp_conn *c)
{
	t->counts.garbage++;
	drop(t, c);
}

struct tcp_conn *tcp_find(struct tcp *t, const struct icrc_flow *f,
			  uint32_t block, bool bulk, bool dials)
{
	struct list_node *n;
	struct tcp_conn *c;

	for (n = t->conns.next; n != &t->conns; n = n->next) {
		c = container_of(n, struct tcp_conn, node);
		if (c->ours || c->block != block || c->is_bulk != bulk ||
		    memcmp(c->flow.src, f->src, 16) != 0 ||
		    memcmp(c->flow.dst, f->dst, 16) != 0)
			continue;
		if (c->state == TCP_UP ||
		    (dials && (c->state == TCP_DIALS || c->state == TCP_ASKS ||
			       c->state == TCP_PROVES)))
			return c;
	}
	return NULL;
}

/* Another one between the same two, which is no longer needed. */
static struct tcp_conn *rival(struct tcp *t, const struct tcp_conn *c)
{
	struct list_node *n;
	struct tcp_conn *r;

	for (n = t->conns.next; n != &t->conns; n = n->next) {
		r = container_of(n, struct tcp_conn, node);
		if (r != c && !r->ours && !is_unproved(r) &&
		    r->block == c->block && r->is_bulk == c->is_bulk &&
		    !memcmp(r->flow.src, c->flow.src, 16) &&
		    !memcmp(r->flow.dst, c->flow.dst, 16))
			return r;
	}
	return NULL;
}

int tcp_dial(struct tcp *t, const struct icrc_flow *f, uint32_t ifindex,
	     uint32_t from_qpn, uint32_t to_qpn, bool bulk)
{
	struct sockaddr_storage a;
	struct tcp_conn *c;
	socklen_t len = address(f->src, 0, ifindex, &a);
	int fd, err;

	fd = socket(a.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	on(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
	on(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	on(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, NOTSENT);
	err = bind(fd, (struct sockaddr *)&a, len) ? -errno : 0;
	len = address(f->dst, t->s->link_port, ifindex, &a);
	if (!err && connect(fd, (struct sockaddr *)&a, len) &&
	    errno != EINPROGRESS)
		err = -errno;
	if (err) {
		close(fd);
		return err;
	}
	c = conn_new(t, fd, TCP_DIALS, EPOLLOUT);
	if (!c)
		return -ENOMEM;
	c->dialled = true;
	c->flow = *f;
	c->block = to_qpn / SHM_BLOCK_QPS;
	c->is_bulk = bulk;
	c->mine = (struct frame_hello){.kind = FRAME_DIALS,
				       .to_qpn = to_qpn,
				       .from_qpn = from_qpn,
				       .sealed = t->s->link_key != NULL,
				       .bulk = bulk ? FRAME_BULK : FRAME_CALLS};
	memcpy(c->mine.id, t->id, sizeof(t->id));
	soft_kick(t->s); /* its deadline */
	t->counts.dialled++;
	return 0;
}

/* A new socket takes so little at once. */
static bool say(struct tcp_conn *c, const uint8_t *buf, size_t len)
{
	return send(c->src.fd, buf, len, MSG_NOSIGNAL | MSG_DONTWAIT) ==
	       (ssize_t)len;
}

static bool say_hello(struct tcp_conn *c, const struct frame_hello *h)
{
	uint8_t buf[FRAME_HELLO];

	frame_hello_encode(buf, h);
	return say(c, buf, sizeof(buf));
}

static bool say_dials(struct tcp *t, struct tcp_conn *c)
{
	uint8_t buf[SEALING_SAYS];
	size_t len;

	if (!c->mine.sealed)
		return say_hello(c, &c->mine);
	len = sealing_dial(t->s, c, buf);
	return len && say(c, buf, len);
}

static void connected(struct tcp *t, struct tcp_conn *c)
{
	socklen_t len = sizeof(int);
	int err = 0;

	if (getsockopt(c->src.fd, SOL_SOCKET, SO_ERROR, &err, &len) || err ||
	    !say_dials(t, c)) {
		c->unheard = err != ECONNREFUSED && err != ECONNRESET;
		drop(t, c);
		return;
	}
	c->state = TCP_ASKS;
	src_mod(t, &c->src, EPOLLIN);
}

static void is_up(struct tcp *t, struct tcp_conn *c)
{
	t->n_unproved -= is_unproved(c);
	c->state = TCP_UP;
	t->n_up++;
	t->counts.up++;
	c->part_len = 0;
	t->ops.up(t->ops.owner, c);
}

/* Not the new one: another process says that it has those QPNs; or both have
 * dialled, and that of the lower one stays. */
static bool stays(const struct tcp *t, const struct tcp_conn *r,
		  const struct tcp_conn *c)
{
	if (r->state == TCP_UP && memcmp(r->id, c->id, sizeof(c->id)) != 0)
		return true;
	return r->dialled && memcmp(t->id, c->id, sizeof(t->id)) < 0;
}

/* It cannot be used: why, for people at this end. */
static void mismatch(struct tcp *t, struct tcp_conn *c, enum sealing_fault what)
{
	if (what == SEALING_OTHER_KEY)
		t->counts.other_key++;
	else if (what >= SEALING_FORGED)
		t->counts.forged++;
	else
		t->counts.unsealed++;
	sealing_tell(t->s, c, what, t->say_ns);
	drop(t, c);
}

/* ... and for those at the other one, which has dialled. */
static void refuse(struct tcp *t, struct tcp_conn *c, enum frame_why why)
{
	static const enum sealing_fault what[] = {
		[FRAME_OTHER_KEY] = SEALING_OTHER_KEY,
		[FRAME_UNSEALED] = SEALING_UNSEALED,
		[FRAME_NO_KEY] = SEALING_NO_KEY,
	};
	const struct frame_hello h = {.kind = FRAME_REFUSES, .why = why};

	say_hello(c, &h);
	mismatch(t, c, what[why]);
}

/* The end that we have dialled said so. */
static void was_refused(struct tcp *t, struct tcp_conn *c, uint8_t why)
{
	if (why == FRAME_OTHER_KEY && t->s->link_key)
		mismatch(t, c, SEALING_OTHER_KEY);
	else
		mismatch(t, c,
			 t->s->link_key ? SEALING_UNSEALED : SEALING_NO_KEY);
}

/* One that was accepted may be used, if no other one is. */
static bool may_be_up(struct tcp *t, struct tcp_conn *c, struct tcp_conn **r)
{
	*r = c->ours ? NULL : rival(t, c);
	if (!*r || !stays(t, *r, c))
		return true;
	t->counts.refused++;
	drop(t, c);
	return false;
}

static struct frame_hello answer(const struct tcp *t,
				 const struct frame_hello *theirs)
{
	struct frame_hello mine = {.kind = FRAME_ANSWERS,
				   .to_qpn = theirs->from_qpn,
				   .from_qpn = theirs->to_qpn,
				   .sealed = theirs->sealed,
				   .bulk = theirs->bulk};

	memcpy(mine.id, t->id, sizeof(t->id));
	return mine;
}

static void up_instead(struct tcp *t, struct tcp_conn *c, struct tcp_conn *r)
{
	is_up(t, c);
	if (r) /* after its QPs have moved */
		drop(t, r);
}

/* It was accepted, and is for a QPN of ours. c->part has the hello. */
static void proved(struct tcp *t, struct tcp_conn *c,
		   const struct frame_hello *h)
{
	struct frame_hello mine = answer(t, h);
	struct tcp_conn *r;

	if (h->sealed && !t->s->link_key) {
		refuse(t, c, FRAME_NO_KEY);
		return;
	}
	if (!h->sealed && !soft_link_clear(t->s)) {
		refuse(t, c, FRAME_UNSEALED);
		return;
	}
	memcpy(c->id, h->id, sizeof(c->id));
	c->block = h->from_qpn / SHM_BLOCK_QPS;
	c->ours = !memcmp(c->id, t->id, sizeof(t->id));
	c->is_bulk = h->bulk == FRAME_BULK;
	c->knows_bulk = h->bulk;
	if (!may_be_up(t, c, &r))
		return;
	on(c->src.fd, IPPROTO_TCP, TCP_NODELAY, 1);
	on(c->src.fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, NOTSENT);
	if (h->sealed)
		c->state = TCP_HEARS;
	else if (say_hello(c, &mine))
		up_instead(t, c, r);
	else
		drop(t, c);
}

int tcp_own_block(struct tcp *t, uint32_t block)
{
	struct soft_src *src = &t->own[t->n_blocks];
	uint32_t i;
	int err;

	for (i = 0; i < t->n_blocks; i++)
		if (t->blocks[i] == block)
			return 0;
	src->fd = hand_listen(block, (int)TCP_UNPROVED);
	if (src->fd < 0)
		return src->fd;
	err = src_add(t, src, EPOLLIN);
	if (err) {
		close(src->fd);
		return err;
	}
	t->blocks[t->n_blocks++] = block;
	return 0;
}

static void said_hello(struct tcp *t, struct tcp_conn *c,
		       const struct frame_hello *h)
{
	uint32_t block = h->to_qpn / SHM_BLOCK_QPS, i;

	for (i = 0; i < t->n_blocks; i++) {
		if (t->blocks[i] == block) {
			proved(t, c, h);
			return;
		}
	}
	if (hand_over(c->src.fd, c->part, block))
		t->counts.handed++;
	else
		t->counts.refused++;
	drop(t, c);
}

/* Until want bytes are there. False: not yet, or it has ended. */
static bool read_part(struct tcp *t, struct tcp_conn *c, size_t want)
{
	ssize_t n;

	n = recv(c->src.fd, c->part + c->part_len, want - c->part_len, 0);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (n <= 0) {
		drop(t, c);
		return false;
	}
	c->part_len += (size_t)n;
	return c->part_len == want;
}

/* Theirs opens. Whether it was only repeated, their first record says. */
static void read_shake(struct tcp *t, struct tcp_conn *c)
{
	uint8_t buf[SEALING_SAYS];
	struct frame_hello h, mine;

	if (!read_part(t, c, FRAME_HELLO + SEALING_DIALS))
		return;
	if (!sealing_hear(t->s, c)) {
		if (c->seal)
			refuse(t, c, FRAME_OTHER_KEY);
		else /* no memory */
			drop(t, c);
		return;
	}
	frame_hello_decode(c->part, FRAME_HELLO, &h);
	mine = answer(t, &h);
	sealing_answer(c, &mine, buf);
	if (!say(c, buf, sizeof(buf))) {
		drop(t, c);
		return;
	}
	c->part_len = 0;
	c->state = TCP_PROVES;
}

/* A record came: nobody repeats what was said on another connection. */
static bool is_proved(struct tcp *t, struct tcp_conn *c)
{
	struct tcp_conn *r;

	if (!may_be_up(t, c, &r))
		return false;
	up_instead(t, c, r);
	return true;
}

/* True: their part of the sealed handshake is there, and right. */
static bool answer_opens(struct tcp *t, struct tcp_conn *c,
			 const struct frame_hello *h)
{
	uint8_t first[SEALING_FIRST];

	if (!h->sealed) {
		mismatch(t, c, SEALING_UNSEALED);
		return false;
	}
	if (!read_part(t, c, SEALING_SAYS))
		return false;
	if (!sealing_answered(c)) {
		mismatch(t, c, SEALING_OTHER_KEY);
		return false;
	}
	seal_put(c->seal, NULL, 0, first);
	if (say(c, first, sizeof(first)))
		return true;
	drop(t, c);
	return false;
}

/* Our own dialling has an answer. */
static void answered(struct tcp *t, struct tcp_conn *c,
		     const struct frame_hello *h)
{
	struct tcp_conn *r;

	if (c->mine.sealed && !answer_opens(t, c, h))
		return;
	memcpy(c->id, h->id, sizeof(c->id));
	c->knows_bulk = h->bulk;
	r = rival(t, c);
	if (r && r->state == TCP_UP &&
	    memcmp(t->id, c->id, sizeof(t->id)) > 0) {
		drop(t, c);
		return;
	}
	up_instead(t, c, r);
}

static void read_hello(struct tcp *t, struct tcp_conn *c)
{
	uint8_t kind = c->dialled ? FRAME_ANSWERS : FRAME_DIALS;
	struct frame_hello h;
	ssize_t n = 0;

	/* of a sealed answer it stays while the rest comes */
	if (c->part_len < FRAME_HELLO)
		n = recv(c->src.fd, c->part + c->part_len,
			 FRAME_HELLO - c->part_len, 0);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n < 0 || (!n && c->part_len < FRAME_HELLO)) {
		drop(t, c);
		return;
	}
	c->part_len += (size_t)n;
	switch (frame_hello_decode(
		c->part, c->part_len < FRAME_HELLO ? c->part_len : FRAME_HELLO,
		&h)) {
	case FRAME_MORE:
		return;
	case FRAME_OK:
		break;
	default:
		garbage(t, c);
		return;
	}
	if (c->dialled && h.kind == FRAME_REFUSES)
		was_refused(t, c, h.why);
	else if (h.kind != kind)
		garbage(t, c);
	else if (c->dialled)
		answered(t, c, &h);
	else
		said_hello(t, c, &h);
}

static void accept_some(struct tcp *t, int listen_fd, int state)
{
	struct tcp_conn *c;
	int i, fd;

	for (i = 0; i < ACCEPTS; i++) {
		fd = accept4(listen_fd, NULL, NULL,
			     SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0)
			return;
		if (t->n_unproved >= TCP_UNPROVED ||
		    (state == TCP_HANDED && !hand_is_ours(fd))) {
			t->counts.refused++;
			close(fd);
			continue;
		}
		c = conn_new(t, fd, state, EPOLLIN);
		if (!c) {
			t->counts.refused++;
			continue;
		}
		if (state == TCP_ACCEPTS && !flow_of(fd, &c->flow)) {
			drop(t, c);
			continue;
		}
		t->counts.accepted += state == TCP_ACCEPTS;
		soft_kick(t->s); /* its deadline */
	}
}

static void handed(struct tcp *t, struct tcp_conn *c)
{
	struct frame_hello h;
	int fd = hand_receive(c->src.fd, c->part);

	if (fd == -EAGAIN)
		return;
	if (fd < 0) {
		garbage(t, c);
		return;
	}
	src_close(t, &c->src);
	c->src.fd = fd;
	if (src_add(t, &c->src, EPOLLIN) || !flow_of(fd, &c->flow)) {
		drop(t, c);
		return;
	}
	c->part_len = FRAME_HELLO;
	if (frame_hello_decode(c->part, FRAME_HELLO, &h) != FRAME_OK ||
	    h.kind != FRAME_DIALS)
		garbage(t, c);
	else
		proved(t, c, &h);
}

/* Rounds. */

static void read_frames(struct tcp *t, struct tcp_conn *c)
{
	switch (framing_read(t->framing, c)) {
	case FRAMING_GOES_ON:
		return;
	case FRAMING_ENDED:
		drop(t, c);
		return;
	case FRAMING_GARBAGE:
		garbage(t, c);
		return;
	case FRAMING_CUT:
		mismatch(t, c, SEALING_CUT);
		return;
	case FRAMING_FORGED:
		mismatch(t, c, SEALING_FORGED);
		return;
	}
}

static void conn_event(struct tcp *t, struct tcp_conn *c, uint32_t events)
{
	switch (c->state) {
	case TCP_DIALS:
		connected(t, c);
		return;
	case TCP_ASKS:
	case TCP_ACCEPTS:
		read_hello(t, c);
		return;
	case TCP_HANDED:
		handed(t, c);
		return;
	case TCP_HEARS:
		read_shake(t, c);
		return;
	case TCP_PROVES:
	case TCP_UP:
		if (events & EPOLLOUT && framing_write_rest(t->framing, c))
			t->ops.room(t->ops.owner, c);
		if (events & ~(uint32_t)EPOLLOUT)
			read_frames(t, c);
		return;
	case TCP_GONE:
		return;
	}
}

/* It comes after the others. */
static bool is_bulk(const struct soft_src *src)
{
	const struct tcp_conn *c = src->obj;

	return c && c->is_bulk && c->state == TCP_UP;
}

void tcp_poll(struct tcp *t)
{
	struct epoll_event ev[EVENTS];
	struct soft_src *src;
	int n, i;

	reap(t);
	n = epoll_wait(t->all.fd, ev, EVENTS, 0);
	for (i = 0; i < n; i++) {
		src = ev[i].data.ptr;
		if (src == &t->src4 || src == &t->src6)
			accept_some(t, src->fd, TCP_ACCEPTS);
		else if (src >= t->own && src < t->own + SHM_BLOCK_MAX)
			accept_some(t, src->fd, TCP_HANDED);
		else if (!is_bulk(src))
			conn_event(t, src->obj, ev[i].events);
	}
	for (i = 0; i < n; i++)
		if (is_bulk(ev[i].data.ptr))
			conn_event(t, ((struct soft_src *)ev[i].data.ptr)->obj,
				   ev[i].events);
}

struct soft_src *tcp_src(struct tcp *t)
{
	return &t->all;
}

uint64_t tcp_timers(struct tcp *t, uint64_t now)
{
	struct list_node *n, *next;
	uint64_t due = ENV_NEVER;
	struct tcp_conn *c;

	if (t->n_conns == t->n_up)
		return ENV_NEVER;
	for (n = t->conns.next; n != &t->conns; n = next) {
		next = n->next;
		c = container_of(n, struct tcp_conn, node);
		if (c->state == TCP_UP)
			continue;
		if (c->deadline <= now) {
			t->counts.silent++;
			c->unheard = true;
			drop(t, c);
			/* its end may have ended others */
			next = t->conns.next;
			due = ENV_NEVER;
		} else if (c->deadline < due) {
			due = c->deadline;
		}
	}
	return due;
}
