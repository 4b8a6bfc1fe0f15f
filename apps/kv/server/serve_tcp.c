/* SPDX-License-Identifier: MIT */
/*
 * serve_tcp.c - the plain TCP server: one thread a shard, and one that accepts.
 *
 * The accepting thread reads the first frame of a connection, which names the
 * shard, and hands the connection to that shard's thread by a list and an
 * eventfd. A shard's thread reads all requests that are there in one recv() and
 * answers them in one send(). Spinning, it calls recv() on its few connections
 * directly, or epoll_wait() without a timeout when they are many.
 *
 * Thread rule: a tcp_conn belongs to one thread at a time.
 */
#include "kv/server/serve.h"

#include "base/assert.h"
#include "base/list.h"
#include "kv/net/addr.h"
#include "kv/clock.h"
#include "kv/net/stream.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define FEW_CONNS 4u /* up to here recv() alone is cheaper than epoll first */
#define GREETING_MAX 64u
#define GREETING_NS (5 * 1000000000ull)
#define UNSENT_MAX (4u << 20) /* a client that does not read waits */
#define ROUNDS_PER_YIELD 256u

struct tcp_conn {
	struct list_node link;
	struct kv_stream stream;
	bool watch_out;
};

struct tcp_shard {
	struct tcp_serve *serve;
	unsigned number;
	pthread_t thread;
	int epfd;
	int wake; /* eventfd */
	struct list_node conns;
	unsigned conn_count;
	_Atomic bool called; /* inbox or stop: look */
	pthread_mutex_t lock;
	struct list_node inbox; /* under lock */
};

struct tcp_serve {
	struct kv_serve base;
	struct kv_server *server;
	bool spin;
	int pin;
	int fd;
	int stop_fd; /* eventfd: the accepting thread ends */
	_Atomic bool stop;
	unsigned shard_count, started;
	bool accepting;
	pthread_t acceptor;
	char addr[KV_ADDR_MAX];
	struct tcp_shard shards[KV_SHARDS_MAX];
};

struct tcp_reply {
	struct kv_reply base;
	struct kv_stream *stream;
	uint32_t len;
};

static void *reply_buf(struct kv_reply *reply, size_t len)
{
	struct tcp_reply *r = (struct tcp_reply *)reply;
	void *p = kv_stream_reserve(r->stream, len);

	if (p)
		r->len = (uint32_t)len;
	return p;
}

static int answer(struct tcp_shard *sh, struct tcp_conn *c,
		  const struct kv_frame *req)
{
	struct tcp_reply r = {.stream = &c->stream};
	struct kv_frame f = {.op = req->op, .seq = req->seq};
	int rc;

	r.base.buf = reply_buf;
	r.base.max = req->aux < KV_FRAME_MAX ? req->aux : KV_FRAME_MAX;
	rc = kv_server_handle(sh->serve->server, sh->number, req->op, req->data,
			      req->len, &r.base);
	if (rc == -EBADMSG)
		return -EPROTO; /* garbage ends the connection */
	f.len = rc ? 0 : r.len;
	f.aux = (uint32_t)rc;
	if (!kv_stream_reserve(&c->stream, f.len))
		return -ENOMEM;
	kv_stream_commit(&c->stream, &f);
	return 0;
}

static void conn_free(struct tcp_conn *c)
{
	kv_stream_fini(&c->stream);
	free(c);
}

static void free_all(struct list_node *conns)
{
	struct list_node *n, *tmp;

	list_for_each_safe(n, tmp, conns)
		conn_free(container_of(n, struct tcp_conn, link));
}

static int conn_watch(struct tcp_shard *sh, struct tcp_conn *c, int op,
		      bool out)
{
	struct epoll_event ev = {.data.ptr = c};

	/* a client that does not read is not read from */
	ev.events = out ? EPOLLOUT : EPOLLIN;
	c->watch_out = out;
	return epoll_ctl(sh->epfd, op, c->stream.fd, &ev) ? -errno : 0;
}

/* Answers what was read until the client must read first: 1, else 0. */
static int conn_answer(struct tcp_shard *sh, struct tcp_conn *c)
{
	struct kv_frame f;
	int rc;

	for (;;) {
		while (kv_stream_unsent(&c->stream) < UNSENT_MAX) {
			rc = kv_stream_frame(&c->stream, KV_REQ_MAX, &f);
			if (rc > 0)
				rc = answer(sh, c, &f);
			else if (!rc)
				return kv_stream_send(&c->stream);
			if (rc < 0)
				return rc;
		}
		rc = kv_stream_send(&c->stream);
		if (rc)
			return rc;
	}
}

/* Frees the connection when rc says that it has ended: 1 then, else 0. */
static int conn_check(struct tcp_shard *sh, struct tcp_conn *c, int rc)
{
	if (rc >= 0)
		return 0;
	if (rc != -ECONNRESET && rc != -EPIPE)
		fprintf(stderr, "skein kv: connection dropped: %s\n",
			strerror(-rc));
	list_del(&c->link);
	sh->conn_count--;
	conn_free(c);
	return 1;
}

/* Answers; frees the connection when it has ended. */
static void conn_serve(struct tcp_shard *sh, struct tcp_conn *c)
{
	int rc = conn_answer(sh, c);

	if (rc >= 0 && c->watch_out != (rc == 1))
		rc = conn_watch(sh, c, EPOLL_CTL_MOD, rc == 1);
	conn_check(sh, c, rc);
}

/* One turn of a connection. Returns what moved. */
static int conn_turn(struct tcp_shard *sh, struct tcp_conn *c)
{
	int n = 0;

	if (!c->watch_out)
		n = kv_stream_recv(&c->stream);
	if (n < 0)
		return conn_check(sh, c, n);
	if (n > 0 || c->watch_out)
		conn_serve(sh, c);
	return n;
}

static void take_inbox(struct tcp_shard *sh)
{
	struct list_node *n, *tmp;
	uint64_t v;

	if (read(sh->wake, &v, sizeof(v)) < 0 && errno != EAGAIN)
		fprintf(stderr, "skein kv: eventfd: %s\n", strerror(errno));
	/* Before the lock is taken, which pairs with hand_over(): a connection
	 * added later sets it again. */
	atomic_store(&sh->called, false);
	pthread_mutex_lock(&sh->lock);
	list_for_each_safe(n, tmp, &sh->inbox) {
		struct tcp_conn *c = container_of(n, struct tcp_conn, link);

		list_del(n);
		if (conn_watch(sh, c, EPOLL_CTL_ADD, false)) {
			conn_free(c);
			continue;
		}
		list_add_tail(&sh->conns, n);
		sh->conn_count++;
		/* requests may have come with the first frame */
		conn_serve(sh, c);
	}
	pthread_mutex_unlock(&sh->lock);
}

static int epoll_round(struct tcp_shard *sh, int ms)
{
	struct epoll_event ev[64];
	int n = epoll_wait(sh->epfd, ev, 64, ms), moved = 0;

	for (int i = 0; i < n; i++)
		if (ev[i].data.ptr)
			moved += conn_turn(sh, ev[i].data.ptr);
		else
			take_inbox(sh);
	return moved;
}

static int recv_round(struct tcp_shard *sh)
{
	struct list_node *n, *tmp;
	int moved = 0;

	list_for_each_safe(n, tmp, &sh->conns)
		moved += conn_turn(sh, container_of(n, struct tcp_conn, link));
	return moved;
}

static void *shard_main(void *arg)
{
	struct tcp_shard *sh = arg;
	struct tcp_serve *s = sh->serve;
	unsigned idle = 0;
	int moved;

	kv_pin(s->pin < 0 ? -1 : s->pin + (int)sh->number);
	while (!atomic_load(&s->stop)) {
		if (atomic_load_explicit(&sh->called, memory_order_acquire))
			take_inbox(sh);
		if (!s->spin || !sh->conn_count)
			moved = epoll_round(sh, -1);
		else if (sh->conn_count <= FEW_CONNS)
			moved = recv_round(sh);
		else
			moved = epoll_round(sh, 0);
		idle = moved ? 0 : idle + 1;
		if (idle % ROUNDS_PER_YIELD == ROUNDS_PER_YIELD - 1)
			sched_yield();
	}
	free_all(&sh->conns);
	return NULL;
}

static void call_shard(struct tcp_shard *sh)
{
	uint64_t one = 1;

	atomic_store(&sh->called, true);
	if (write(sh->wake, &one, sizeof(one)) < 0)
		fprintf(stderr, "skein kv: eventfd: %s\n", strerror(errno));
}

static void hand_over(struct tcp_serve *s, struct tcp_conn *c, unsigned shard)
{
	struct tcp_shard *sh = &s->shards[shard % s->shard_count];

	pthread_mutex_lock(&sh->lock);
	list_add_tail(&sh->inbox, &c->link);
	pthread_mutex_unlock(&sh->lock);
	call_shard(sh);
}

struct greeting {
	struct tcp_conn *conn;
	uint64_t deadline_ns;
};

/* Reads the first frame: true when the greeting is over, well or not. */
static bool greet(struct tcp_serve *s, struct greeting *g, bool readable)
{
	struct tcp_conn *c = g->conn;
	struct kv_frame f = {0};
	int rc = 0;

	if (readable)
		rc = kv_stream_recv(&c->stream);
	if (rc > 0)
		rc = kv_stream_frame(&c->stream, KV_REQ_MAX, &f);
	if (rc > 0 && f.op == KV_FRAME_HELLO && !f.len) {
		hand_over(s, c, f.aux);
		return true;
	}
	if (!rc && kv_now_ns() < g->deadline_ns)
		return false;
	conn_free(c);
	return true;
}

static void accept_one(struct tcp_serve *s, struct greeting *g, unsigned *n)
{
	int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC);
	struct tcp_conn *c;

	if (fd < 0)
		return;
	c = calloc(1, sizeof(*c));
	if (!c || kv_stream_init(&c->stream, fd)) {
		fprintf(stderr, "skein kv: connection refused: no memory\n");
		free(c);
		close(fd);
		return;
	}
	g[(*n)++] = (struct greeting){c, kv_now_ns() + GREETING_NS};
}

static void *acceptor_main(void *arg)
{
	struct tcp_serve *s = arg;
	struct greeting g[GREETING_MAX] = {{0}};
	unsigned n = 0;

	for (;;) {
		struct pollfd p[GREETING_MAX + 2] = {
			{.fd = s->stop_fd, .events = POLLIN},
			{.fd = n < GREETING_MAX ? s->fd : -1, .events = POLLIN},
		};

		for (unsigned i = 0; i < n; i++)
			p[i + 2] = (struct pollfd){.fd = g[i].conn->stream.fd,
						   .events = POLLIN};
		if (poll(p, n + 2, n ? 1000 : -1) < 0 && errno != EINTR)
			break;
		if (p[0].revents)
			break;
		/* from the end, for one that is over takes the last's place */
		for (unsigned i = n; i-- > 0;)
			if (greet(s, &g[i], p[i + 2].revents))
				g[i] = g[--n];
		if (p[1].revents)
			accept_one(s, g, &n);
	}
	while (n)
		conn_free(g[--n].conn);
	return NULL;
}

static int shard_start(struct tcp_serve *s, unsigned number)
{
	struct tcp_shard *sh = &s->shards[number];
	struct epoll_event ev = {.events = EPOLLIN};
	int rc = 0;

	sh->serve = s;
	sh->number = number;
	list_init(&sh->conns);
	list_init(&sh->inbox);
	pthread_mutex_init(&sh->lock, NULL);
	sh->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	sh->epfd = epoll_create1(EPOLL_CLOEXEC);
	if (sh->wake < 0 || sh->epfd < 0 ||
	    epoll_ctl(sh->epfd, EPOLL_CTL_ADD, sh->wake, &ev))
		rc = -errno;
	if (!rc)
		rc = -pthread_create(&sh->thread, NULL, shard_main, sh);
	if (!rc)
		return 0;
	if (sh->wake >= 0)
		close(sh->wake);
	if (sh->epfd >= 0)
		close(sh->epfd);
	return rc;
}

static void shard_stop(struct tcp_shard *sh)
{
	call_shard(sh);
	pthread_join(sh->thread, NULL);
	free_all(&sh->inbox);
	pthread_mutex_destroy(&sh->lock);
	close(sh->wake);
	close(sh->epfd);
}

static void stop(struct kv_serve *serve)
{
	struct tcp_serve *s = (struct tcp_serve *)serve;
	uint64_t one = 1;

	if (s->accepting) {
		if (write(s->stop_fd, &one, sizeof(one)) < 0)
			fprintf(stderr, "skein kv: eventfd: %s\n",
				strerror(errno));
		pthread_join(s->acceptor, NULL);
	}
	atomic_store(&s->stop, true);
	while (s->started)
		shard_stop(&s->shards[--s->started]);
	if (s->stop_fd >= 0)
		close(s->stop_fd);
	if (s->fd >= 0)
		close(s->fd);
	free(s);
}

static void say_why(const struct kv_serve_attr *attr, int rc)
{
	char line[256];

	snprintf(line, sizeof(line), "cannot serve TCP on %s: %s", attr->listen,
		 strerror(-rc));
	if (attr->log)
		attr->log(attr->log_arg, SKEIN_LOG_ERROR, line);
	else
		fprintf(stderr, "skein kv: %s\n", line);
}

static int start(const struct kv_serve_attr *attr, struct kv_serve **serve)
{
	struct tcp_serve *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return -ENOMEM;
	s->base.ops = &kv_serve_tcp;
	s->base.addr = s->addr;
	s->spin = attr->transport == KV_TCP_SPIN;
	s->base.device = s->spin ? "plain TCP sockets, spinning"
				 : "plain TCP sockets, blocking";
	s->server = attr->server;
	s->shard_count = kv_server_shards(attr->server);
	s->pin = attr->pin;
	s->fd = -1;
	s->stop_fd = eventfd(0, EFD_CLOEXEC);
	rc = s->stop_fd < 0 ? -errno : 0;
	if (!rc)
		rc = kv_addr_listen(attr->listen, &s->fd, s->addr);
	while (!rc && s->started < s->shard_count) {
		rc = shard_start(s, s->started);
		s->started += !rc;
	}
	if (!rc)
		rc = -pthread_create(&s->acceptor, NULL, acceptor_main, s);
	s->accepting = !rc;
	if (rc) {
		say_why(attr, rc);
		stop(&s->base);
		return rc;
	}
	*serve = &s->base;
	return 0;
}

const struct kv_serve_ops kv_serve_tcp = {start, stop};
