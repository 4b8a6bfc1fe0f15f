/* SPDX-License-Identifier: MIT */
/*
 * sock.c - stream sockets between simulated processes.
 *
 * Bytes arrive in order, one delay after they were sent; at most SOCK_WINDOW
 * bytes are on their way or unread. Node number n has the address 10.x.y.z of
 * that number, and its name resolves to it; 127.0.0.1 is the caller's own node.
 * A node that is cut off (sim_node_cut()) neither gets nor loses bytes: they
 * arrive when it is back, as with TCP's retries.
 */
#include "env/sim/world.h"

#include "base/assert.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#define SOCK_WINDOW (256u * 1024)
#define NET_10 0x0a000000u
#define CUT_RETRY_NS 1000000u
#define TAG_SOCK 2u

enum sock_state {
	SOCK_LISTEN,
	SOCK_CONNECTING,
	SOCK_UP,
	SOCK_FAILED,
};

/* What is on its way to a socket, or waits in it. */
struct chunk {
	struct sim_event ev;
	struct list_node link; /* sock.rx */
	struct sock *to;
	size_t len, used;
	bool eof;
	char data[];
};

struct sock {
	struct sim_fd fd;
	struct sim_proc *proc;
	struct sim_node *node; /* outlives the process */
	enum sock_state state;
	int err;
	struct sockaddr_in self, other;
	struct list_node link; /* sim_node.listeners */
	/* a listener's: accept_link of waiting sockets */
	struct list_node todo;
	struct list_node accept_link;
	int backlog, n_todo;
	struct sock *peer;
	struct list_node rx;   /* arrived */
	struct list_node wire; /* on their way here */
	size_t unread;	       /* on the way here, or in rx */
	uint64_t last_at;      /* the latest arrival scheduled */
	bool eof;
	struct sim_event ev; /* of connecting */
};

/* --- addresses --------------------------------------------------------- */

static struct sim_node *node_by_id(struct sim_world *w, uint32_t id)
{
	struct list_node *n;

	list_for_each(n, &w->nodes) {
		struct sim_node *node = container_of(n, struct sim_node, link);

		if (node->id == id)
			return node;
	}
	return NULL;
}

static struct sim_node *node_by_name(struct sim_world *w, const char *name)
{
	struct list_node *n;

	list_for_each(n, &w->nodes) {
		struct sim_node *node = container_of(n, struct sim_node, link);

		if (!strcmp(node->name, name))
			return node;
	}
	return NULL;
}

static void addr_set(struct sockaddr_in *a, uint32_t host, uint32_t port)
{
	memset(a, 0, sizeof(*a));
	a->sin_family = AF_INET;
	a->sin_addr.s_addr = htonl(host);
	a->sin_port = htons((uint16_t)port);
}

int sim_resolve(struct skein_env *env, const char *host, const char *port,
		bool passive, struct sockaddr_storage *addrs, int max, int *n)
{
	struct sim_proc *p = sim_proc_of(env);
	struct sim_node *node;
	struct in_addr in;
	uint32_t ip;

	if (max < 1)
		return -EINVAL;
	if (!host || !*host)
		ip = passive ? INADDR_ANY : INADDR_LOOPBACK;
	else if (inet_pton(AF_INET, host, &in) == 1)
		ip = ntohl(in.s_addr);
	else if (!strcmp(host, "localhost"))
		ip = INADDR_LOOPBACK;
	else if ((node = node_by_name(p->w, host)))
		ip = NET_10 | node->id;
	else
		return -EADDRNOTAVAIL;
	addr_set((struct sockaddr_in *)(void *)&addrs[0], ip,
		 (uint32_t)strtoul(port ? port : "0", NULL, 10));
	*n = 1;
	return 0;
}

/* The node that an address means to proc. */
static struct sim_node *addr_node(struct sim_proc *p,
				  const struct sockaddr_in *a)
{
	uint32_t ip = ntohl(a->sin_addr.s_addr);

	if (ip == INADDR_LOOPBACK || ip == INADDR_ANY)
		return p->node;
	return (ip & 0xff000000u) == NET_10 ? node_by_id(p->w, ip & 0xffffff)
					    : NULL;
}

static struct sock *listener_find(struct sim_node *node, uint16_t port)
{
	struct list_node *n;

	list_for_each(n, &node->listeners) {
		struct sock *s = container_of(n, struct sock, link);

		if (s->self.sin_port == port)
			return s;
	}
	return NULL;
}

/* --- arriving ---------------------------------------------------------- */

static uint64_t sock_delay(const struct sim_node *a, const struct sim_node *b)
{
	return a == b ? a->w->costs.local_ns : a->w->costs.tcp_ns;
}

static bool cut(const struct sock *s)
{
	return s->node->cut || (s->peer && s->peer->node->cut);
}

static void chunk_take(struct chunk *c)
{
	struct sock *s = c->to;

	sim_cancel(s->node->w, &c->ev);
	sim_note(s->node->w, (uint64_t)s->fd.num, c->len);
	list_del(&c->link);
	if (c->eof) {
		s->eof = true;
		free(c);
	} else {
		list_add_tail(&s->rx, &c->link);
	}
}

/* With all bytes before them that were held up. */
static void chunk_arrives(struct sim_event *ev)
{
	struct chunk *c = container_of(ev, struct chunk, ev);
	struct sock *s = c->to;
	struct list_node *n, *tmp;
	bool last = false;

	if (cut(s)) {
		sim_at(s->node->w, ev, s->node->w->agenda.now + CUT_RETRY_NS);
		return;
	}
	list_for_each_safe(n, tmp, &s->wire) {
		last = n == &c->link;
		chunk_take(container_of(n, struct chunk, link));
		if (last)
			break;
	}
	fd_changed(&s->fd);
}

static int chunk_send(struct sock *to, const struct sim_node *from,
		      const void *buf, size_t len, bool eof)
{
	struct sim_world *w = to->node->w;
	struct chunk *c = calloc(1, sizeof(*c) + len);
	uint64_t at = sim_thread_now(w) + sock_delay(from, to->node);

	if (!c)
		return -ENOMEM;
	c->to = to;
	c->len = len;
	c->eof = eof;
	c->ev.fn = chunk_arrives;
	c->ev.tag = TAG_SOCK;
	if (len)
		memcpy(c->data, buf, len);
	list_add_tail(&to->wire, &c->link);
	to->unread += len;
	if (at < to->last_at)
		at = to->last_at;
	to->last_at = at;
	sim_at(w, &c->ev, at);
	return 0;
}

/* --- life -------------------------------------------------------------- */

static uint32_t sock_ready(struct sim_fd *fd)
{
	struct sock *s = container_of(fd, struct sock, fd);
	uint32_t r = 0;

	switch (s->state) {
	case SOCK_LISTEN:
		return s->n_todo ? EPOLLIN : 0;
	case SOCK_CONNECTING:
		return 0;
	case SOCK_FAILED:
		return EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP;
	case SOCK_UP:
		break;
	}
	if (!list_empty(&s->rx) || s->eof)
		r |= EPOLLIN;
	if (!s->peer || s->peer->unread < SOCK_WINDOW)
		r |= EPOLLOUT;
	return r;
}

static void chunks_drop(struct sock *s, struct list_node *head)
{
	struct list_node *n, *tmp;

	list_for_each_safe(n, tmp, head) {
		struct chunk *c = container_of(n, struct chunk, link);

		sim_cancel(s->node->w, &c->ev);
		free(c);
	}
}

static void sock_close(struct sim_fd *fd)
{
	struct sock *s = container_of(fd, struct sock, fd);
	struct list_node *n;

	sim_cancel(s->node->w, &s->ev);
	while (s->state == SOCK_LISTEN && (n = list_pop_head(&s->todo))) {
		struct sock *c = container_of(n, struct sock, accept_link);

		c->fd.close(&c->fd);
	}
	list_del(&s->link);
	list_del(&s->accept_link);
	if (s->peer) {
		s->peer->peer = NULL;
		if (chunk_send(s->peer, s->node, NULL, 0, true))
			s->peer->eof = true;
	}
	chunks_drop(s, &s->rx);
	chunks_drop(s, &s->wire);
	fd_forget(fd);
	free(s);
}

static int sock_new(struct sim_proc *p, struct sock **sock)
{
	struct sock *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return -ENOMEM;
	s->proc = p;
	s->node = p->node;
	s->fd.ready = sock_ready;
	s->fd.close = sock_close;
	list_init(&s->rx);
	list_init(&s->wire);
	list_init(&s->todo);
	rc = fd_open(p, &s->fd);
	if (rc) {
		free(s);
		return rc;
	}
	*sock = s;
	return 0;
}

static struct sock *sock_get(struct skein_env *env, int num)
{
	struct sim_fd *fd = fd_get(sim_proc_of(env), num);

	return fd && fd->ready == sock_ready ? container_of(fd, struct sock, fd)
					     : NULL;
}

int sim_sock_listen(struct skein_env *env, const struct sockaddr_storage *addr,
		    int backlog, int *fd)
{
	const struct sockaddr_in *a = (const void *)addr;
	struct sim_proc *p = sim_proc_of(env);
	struct sock *s;
	int rc;

	sim_charge(p->w, p->w->costs.syscall);
	if (addr_node(p, a) != p->node)
		return -EADDRNOTAVAIL;
	if (a->sin_port && listener_find(p->node, a->sin_port))
		return -EADDRINUSE;
	rc = sock_new(p, &s);
	if (rc)
		return rc;
	s->state = SOCK_LISTEN;
	s->backlog = backlog;
	s->self = *a;
	if (!a->sin_port)
		s->self.sin_port = htons((uint16_t)p->node->next_port++);
	list_add_tail(&p->node->listeners, &s->link);
	*fd = s->fd.num;
	return 0;
}

/* The listener's answer has reached the connecting socket. */
static void connect_ends(struct sim_event *ev)
{
	struct sock *s = container_of(ev, struct sock, ev);

	s->state = s->peer ? SOCK_UP : SOCK_FAILED;
	if (!s->peer && !s->eof)
		s->err = -ECONNREFUSED;
	fd_changed(&s->fd);
}

static void connect_arrives(struct sim_event *ev)
{
	struct sock *s = container_of(ev, struct sock, ev);
	struct sim_node *node = addr_node(s->proc, &s->other);
	struct sock *l, *c;

	if (s->node->cut || node->cut) {
		sim_at(s->node->w, ev, s->node->w->agenda.now + CUT_RETRY_NS);
		return;
	}
	s->ev.fn = connect_ends;
	sim_at(s->node->w, &s->ev,
	       s->node->w->agenda.now + sock_delay(s->node, node));
	l = listener_find(node, s->other.sin_port);
	if (!l || l->n_todo >= l->backlog || sock_new(l->proc, &c))
		return;
	c->state = SOCK_UP;
	c->self = l->self;
	c->other = s->self;
	c->peer = s;
	s->peer = c;
	list_add_tail(&l->todo, &c->accept_link);
	l->n_todo++;
	fd_changed(&l->fd);
}

int sim_sock_connect(struct skein_env *env, const struct sockaddr_storage *addr,
		     int *fd)
{
	const struct sockaddr_in *a = (const void *)addr;
	struct sim_proc *p = sim_proc_of(env);
	struct sim_node *to = addr_node(p, a);
	struct sock *s;
	int rc;

	sim_charge(p->w, p->w->costs.syscall);
	if (!to)
		return -EHOSTUNREACH;
	rc = sock_new(p, &s);
	if (rc)
		return rc;
	s->state = SOCK_CONNECTING;
	s->err = -EINPROGRESS;
	s->other = *a;
	addr_set(&s->self, NET_10 | p->node->id, p->node->next_port++);
	s->ev.fn = connect_arrives;
	s->ev.tag = TAG_SOCK;
	sim_at(p->w, &s->ev, sim_thread_now(p->w) + sock_delay(p->node, to));
	*fd = s->fd.num;
	return 0;
}

int sim_sock_error(struct skein_env *env, int fd)
{
	struct sock *s = sock_get(env, fd);

	if (!s)
		return -EBADF;
	return s->state == SOCK_UP ? 0 : s->err;
}

int sim_sock_accept(struct skein_env *env, int fd,
		    struct sockaddr_storage *peer, int *conn_fd)
{
	struct sock *l = sock_get(env, fd), *c;
	struct sim_world *w = sim_proc_of(env)->w;

	if (!l || l->state != SOCK_LISTEN)
		return -EINVAL;
	sim_charge(w, w->costs.syscall);
	if (!l->n_todo)
		return -EAGAIN;
	c = container_of(list_pop_head(&l->todo), struct sock, accept_link);
	l->n_todo--;
	memset(peer, 0, sizeof(*peer));
	memcpy(peer, &c->other, sizeof(c->other));
	*conn_fd = c->fd.num;
	return 0;
}

int sim_sock_name(struct skein_env *env, int fd, struct sockaddr_storage *local)
{
	struct sock *s = sock_get(env, fd);

	if (!s)
		return -EBADF;
	memset(local, 0, sizeof(*local));
	memcpy(local, &s->self, sizeof(s->self));
	return 0;
}

ssize_t sim_sock_send(struct skein_env *env, int fd, const void *buf,
		      size_t len)
{
	struct sock *s = sock_get(env, fd);
	struct sim_world *w = sim_proc_of(env)->w;
	int rc;

	if (!s || s->state != SOCK_UP)
		return s ? -ENOTCONN : -EBADF;
	sim_charge(w, w->costs.syscall);
	if (!s->peer)
		return -EPIPE;
	if (s->peer->unread >= SOCK_WINDOW)
		return -EAGAIN;
	if (len > SOCK_WINDOW - s->peer->unread)
		len = SOCK_WINDOW - s->peer->unread;
	rc = chunk_send(s->peer, s->node, buf, len, false);
	return rc ? rc : (ssize_t)len;
}

ssize_t sim_sock_recv(struct skein_env *env, int fd, void *buf, size_t len)
{
	struct sock *s = sock_get(env, fd);
	struct sim_world *w = sim_proc_of(env)->w;
	struct list_node *node, *tmp;
	bool was_full;
	size_t got = 0, n;

	if (!s || (s->state != SOCK_UP && s->state != SOCK_FAILED))
		return s ? -ENOTCONN : -EBADF;
	sim_charge(w, w->costs.syscall);
	was_full = s->unread >= SOCK_WINDOW;
	list_for_each_safe(node, tmp, &s->rx) {
		struct chunk *c = container_of(node, struct chunk, link);

		n = c->len - c->used < len - got ? c->len - c->used : len - got;
		memcpy((char *)buf + got, c->data + c->used, n);
		c->used += n;
		got += n;
		if (c->used < c->len)
			break;
		list_del(&c->link);
		free(c);
	}
	s->unread -= got;
	if (was_full && s->peer)
		fd_changed(&s->peer->fd);
	if (got)
		return (ssize_t)got;
	if (s->state == SOCK_FAILED)
		return s->err;
	return s->eof ? 0 : -EAGAIN;
}

void sim_sock_close(struct skein_env *env, int fd)
{
	struct sock *s = sock_get(env, fd);
	struct sim_world *w = sim_proc_of(env)->w;

	skein_assert(s);
	sim_charge(w, w->costs.syscall);
	s->fd.close(&s->fd);
}
