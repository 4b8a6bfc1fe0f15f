/* SPDX-License-Identifier: MIT */
/*
 * net_tcp.c - the client's side of the plain TCP transport.
 *
 * It is meant to be as good as sockets get, for it is what Skein is measured
 * against: calls that are started in one round leave in one send(), one recv()
 * takes all responses that are there, and the spinning kind calls recv() on the
 * sockets that owe it something, without epoll between. Responses come in the
 * order of requests, so that the calls under way are a queue.
 */
#include "kv/net/net.h"

#include "kv/net/addr.h"
#include "kv/clock.h"
#include "kv/net/stream.h"

#include <skein/error.h>

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define LINKS_MAX 256
#define CALLS_MAX 1024u /* under way on a link; a power of two */
#define CHECK_NS (50 * 1000 * 1000ull)
#define ROUNDS_PER_LOOK 256 /* fruitless rounds between looks at the clock */

struct call {
	skein_rpc_done_fn *done;
	void *arg;
	uint64_t deadline_ns;
	size_t resp_max;
};

struct tcp_link {
	struct kv_link base;
	struct tcp_net *net;
	struct kv_stream stream;
	uint32_t head, tail; /* of calls: sequence numbers */
	bool watch_out;	     /* EPOLLOUT is asked for */
	int err;
	char peer[64];
	char error[160];
	struct call calls[CALLS_MAX];
};

struct tcp_net {
	struct kv_net base;
	bool spin;
	bool stop;
	int epfd;
	uint64_t check_ns;
	unsigned link_count;
	struct tcp_link *links[LINKS_MAX];
};

struct tcp_fabric {
	struct kv_fabric base;
	bool spin;
};

static int fabric_open(const struct kv_fabric_attr *attr,
		       struct kv_fabric **fabric)
{
	struct tcp_fabric *f = calloc(1, sizeof(*f));

	if (!f)
		return -ENOMEM;
	f->base.ops = &kv_net_tcp;
	f->spin = attr->transport == KV_TCP_SPIN;
	*fabric = &f->base;
	return 0;
}

static void fabric_close(struct kv_fabric *fabric)
{
	free(fabric);
}

static const char *device(struct kv_fabric *fabric)
{
	return ((struct tcp_fabric *)fabric)->spin
		       ? "plain TCP sockets, spinning"
		       : "plain TCP sockets, blocking";
}

static int net_open(struct kv_fabric *fabric, struct kv_net **net)
{
	struct tcp_net *n = calloc(1, sizeof(*n));

	if (!n)
		return -ENOMEM;
	n->base.ops = &kv_net_tcp;
	n->spin = ((struct tcp_fabric *)fabric)->spin;
	n->epfd = epoll_create1(EPOLL_CLOEXEC);
	if (n->epfd < 0) {
		free(n);
		return -errno;
	}
	*net = &n->base;
	return 0;
}

static void net_close(struct kv_net *net)
{
	struct tcp_net *n = (struct tcp_net *)net;

	close(n->epfd);
	free(n);
}

static void stop(struct kv_net *net)
{
	((struct tcp_net *)net)->stop = true;
}

static void finish(struct tcp_link *l, const struct skein_rpc_result *res)
{
	struct call c = l->calls[l->head++ % CALLS_MAX];

	c.done(c.arg, res);
}

/* Ends the link and all its calls. */
static void link_break(struct tcp_link *l, int err)
{
	struct skein_rpc_result res = {.outcome = SKEIN_UNKNOWN, .status = err};

	if (l->err)
		return;
	l->err = err;
	snprintf(l->error, sizeof(l->error), "TCP connection to %s: %s",
		 l->peer,
		 err == -ECONNRESET ? "the server ended it" : strerror(-err));
	epoll_ctl(l->net->epfd, EPOLL_CTL_DEL, l->stream.fd, NULL);
	while (l->head != l->tail)
		finish(l, &res);
}

static int link_watch(struct tcp_link *l, int op, bool out)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = l};

	if (out)
		ev.events |= EPOLLOUT;
	l->watch_out = out;
	return epoll_ctl(l->net->epfd, op, l->stream.fd, &ev) ? -errno : 0;
}

static void link_flush(struct tcp_link *l)
{
	int rc;

	if (l->err || !kv_stream_unsent(&l->stream))
		return;
	rc = kv_stream_send(&l->stream);
	if (rc < 0)
		link_break(l, rc);
	else if (!l->net->spin && l->watch_out != (rc == 1))
		link_watch(l, EPOLL_CTL_MOD, rc == 1);
}

/* Takes the responses that are there; how many. */
static int link_drain(struct tcp_link *l)
{
	struct kv_frame f;
	int rc, n = 0;

	if (l->err)
		return 0;
	rc = kv_stream_recv(&l->stream);
	if (rc < 0) {
		link_break(l, rc);
		return 1;
	}
	if (!rc)
		return 0;
	while (!l->err &&
	       (rc = kv_stream_frame(&l->stream, KV_FRAME_MAX, &f)) > 0) {
		struct skein_rpc_result res = {
			.outcome = SKEIN_DONE,
			.status = (int)f.aux,
			.data = f.data,
			.len = f.len,
		};

		if (l->head == l->tail || f.seq != l->head ||
		    f.len > l->calls[l->head % CALLS_MAX].resp_max) {
			rc = -EPROTO;
			break;
		}
		finish(l, &res);
		n++;
	}
	if (rc < 0)
		link_break(l, rc);
	return n;
}

/* A call past its deadline: the order of responses is lost with it, so the
 * link is too. */
static void check_deadlines(struct tcp_net *n, uint64_t now_ns)
{
	n->check_ns = now_ns + CHECK_NS;
	for (unsigned i = 0; i < n->link_count; i++) {
		struct tcp_link *l = n->links[i];

		if (!l->err && l->head != l->tail &&
		    l->calls[l->head % CALLS_MAX].deadline_ns <= now_ns)
			link_break(l, -ETIMEDOUT);
	}
}

static int round_spin(struct tcp_net *n)
{
	int moved = 0;

	for (unsigned i = 0; i < n->link_count; i++)
		if (n->links[i]->head != n->links[i]->tail)
			moved += link_drain(n->links[i]);
	return moved;
}

static int round_block(struct tcp_net *n, uint64_t wait_ns)
{
	struct epoll_event ev[16];
	int ms = (int)((wait_ns + 999999) / 1000000), moved = 0, count;

	count = epoll_wait(n->epfd, ev, 16, ms);
	for (int i = 0; i < count; i++) {
		struct tcp_link *l = ev[i].data.ptr;

		if (ev[i].events & ~(uint32_t)EPOLLOUT)
			moved += link_drain(l);
	}
	return moved;
}

static int run(struct kv_net *net, uint64_t timeout_ns)
{
	struct tcp_net *n = (struct tcp_net *)net;
	uint64_t now = kv_now_ns(), end = now + timeout_ns;
	unsigned idle = 0;

	if (end < now)
		end = UINT64_MAX;
	while (!n->stop) {
		for (unsigned i = 0; i < n->link_count; i++)
			link_flush(n->links[i]);
		if (n->stop)
			break;
		if (n->spin && round_spin(n)) {
			idle = 0;
			continue;
		}
		if (!n->spin)
			round_block(n, end - now < CHECK_NS ? end - now
							    : CHECK_NS);
		else if (++idle % ROUNDS_PER_LOOK)
			continue;
		else
			sched_yield(); /* more spinners than cores, maybe */
		now = kv_now_ns();
		if (now >= n->check_ns)
			check_deadlines(n, now);
		if (now >= end && !n->stop)
			return -ETIMEDOUT;
	}
	n->stop = false;
	return 0;
}

static int link_hello(struct tcp_link *l, unsigned shard)
{
	struct kv_frame hello = {.op = KV_FRAME_HELLO, .aux = shard};

	if (!kv_stream_reserve(&l->stream, 0))
		return -ENOMEM;
	kv_stream_commit(&l->stream, &hello);
	return kv_stream_send(&l->stream) < 0 ? -ECONNRESET : 0;
}

static int link_open(struct kv_net *net, const char *addr, unsigned shard,
		     uint64_t timeout_ns, struct kv_link **link)
{
	struct tcp_net *n = (struct tcp_net *)net;
	struct tcp_link *l;
	int fd = -1, rc;

	if (n->link_count == LINKS_MAX)
		return -EMFILE;
	l = calloc(1, sizeof(*l));
	if (!l)
		return -ENOMEM;
	l->base.ops = &kv_net_tcp;
	l->net = n;
	snprintf(l->peer, sizeof(l->peer), "%s", addr);
	rc = kv_addr_connect(addr, timeout_ns, &fd);
	if (rc)
		goto err_link;
	rc = kv_stream_init(&l->stream, fd);
	if (rc)
		goto err_fd;
	rc = link_hello(l, shard);
	if (!rc)
		rc = link_watch(l, EPOLL_CTL_ADD, false);
	if (rc)
		goto err_stream;
	n->links[n->link_count++] = l;
	*link = &l->base;
	return 0;

err_stream:
	kv_stream_fini(&l->stream);
	fd = -1;
err_fd:
	if (fd >= 0)
		close(fd);
err_link:
	fprintf(stderr, "skein: cannot connect to %s over TCP: %s\n", addr,
		skein_strerror(rc));
	free(l);
	return rc;
}

static void link_close(struct kv_link *link)
{
	struct tcp_link *l = (struct tcp_link *)link;
	struct tcp_net *n = l->net;

	for (unsigned i = 0; i < n->link_count; i++) {
		if (n->links[i] != l)
			continue;
		n->links[i] = n->links[--n->link_count];
		break;
	}
	kv_stream_fini(&l->stream);
	free(l);
}

static const char *link_error(struct kv_link *link)
{
	return ((struct tcp_link *)link)->error;
}

static int call(struct kv_link *link, uint16_t op, const void *req, size_t len,
		size_t resp_max, uint64_t timeout_ns, skein_rpc_done_fn *done,
		void *arg)
{
	struct tcp_link *l = (struct tcp_link *)link;
	struct kv_frame f = {.len = (uint32_t)len, .op = op, .seq = l->tail};
	uint64_t now;
	uint8_t *p;

	if (l->err)
		return -ENOTCONN;
	if (len > KV_FRAME_MAX || resp_max > KV_FRAME_MAX)
		return -EMSGSIZE;
	if (l->tail - l->head == CALLS_MAX)
		return -EAGAIN;
	p = kv_stream_reserve(&l->stream, len);
	if (!p)
		return -ENOMEM;
	if (len)
		memcpy(p, req, len);
	f.aux = (uint32_t)resp_max;
	kv_stream_commit(&l->stream, &f);
	now = kv_now_ns();
	l->calls[l->tail++ % CALLS_MAX] = (struct call){
		.done = done,
		.arg = arg,
		.deadline_ns =
			now + timeout_ns < now ? UINT64_MAX : now + timeout_ns,
		.resp_max = resp_max,
	};
	return 0;
}

/* Sends only: a break found here would end calls inside the caller's own. */
static void flush(struct kv_link *link)
{
	struct tcp_link *l = (struct tcp_link *)link;

	if (!l->err && kv_stream_unsent(&l->stream))
		kv_stream_send(&l->stream);
}

const struct kv_net_ops kv_net_tcp = {
	.fabric_open = fabric_open,
	.fabric_close = fabric_close,
	.device = device,
	.net_open = net_open,
	.net_close = net_close,
	.run = run,
	.stop = stop,
	.link_open = link_open,
	.link_close = link_close,
	.link_error = link_error,
	.call = call,
	.flush = flush,
};
