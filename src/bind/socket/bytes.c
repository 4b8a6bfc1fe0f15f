/* SPDX-License-Identifier: MIT */
/*
 * bytes.c - reads, writes and readiness of a socket on a stream.
 *
 * What is read comes by TCP up to the byte that the peer's SWITCH names
 * (rx_known, rx_left), then from the ring. On the way back to TCP (back.on) what
 * the ring has comes first, then TCP again.
 */
#include "bind/socket/sock.h"

#include "bind/socket/back.h"
#include "bind/socket/counts.h"
#include "bind/socket/reach.h"
#include "bind/socket/wait.h"
#include "env/env.h"

#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>

#define PIECES 16      /* of a blocking call, at a time after the first */
#define LOOK_NS 20000u /* the kernel is asked about the socket that often */
/* Flags that change nothing of what happens on a stream. */
#define RECV_FLAGS                                              \
	(MSG_DONTWAIT | MSG_PEEK | MSG_NOSIGNAL | MSG_WAITALL | \
	 MSG_CMSG_CLOEXEC)
#define SEND_FLAGS (MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE)

/* --- reading ------------------------------------------------------------- */

static bool is_broken(const struct sock *s)
{
	return s->stream->broken || s->stream->qp->broken;
}

static bool is_gone(const struct sock *s)
{
	return is_broken(s) || stream_peer_dead(s->stream);
}

/* The peer's process is gone, and TCP has not said how the connection ended: the
 * kernel ends a process's memory before it closes its files. True: it is about to
 * say so. Not for ever: a forked child of the peer's may have the socket. */
static bool end_comes(struct sock *s)
{
	const uint64_t now = state_now_ns();

	if (!s->gone_ns)
		s->gone_ns = now;
	return now - s->gone_ns < SOCK_GONE_NS;
}

/* The SWITCH, when it has come. */
static int find_switch(struct sock *s)
{
	enum stream_type type;
	const uint8_t *data;
	uint64_t at;
	uint32_t len;
	int rc;

	if (s->rx_known || s->stream->back.on)
		return 0;
	rc = stream_peek(s->stream, &type, &data, &len);
	/* Of one that broke before it, TCP has all that the peer wrote. */
	if (rc <= 0)
		return rc == -EPROTO ? rc : 0;
	if (type != STREAM_SWITCH)
		return -EPROTO;
	memcpy(&at, data, sizeof(at));
	if (at < s->tcp_read)
		return -EPROTO;
	s->rx_left = at - s->tcp_read;
	s->rx_from = at;
	s->rx_known = s->switch_seen = true;
	stream_consume(s->stream, len);
	if (!s->tx_on)
		status_update(s);
	return 0;
}

static bool by_tcp(const struct sock *s)
{
	return !s->rx_known || s->rx_left;
}

/* What TCP has to say: 1 bytes, 0 the end, -EAGAIN, or -ECONNRESET: it broke. The
 * error stays in the socket, for the call of the program that is to get it: a
 * recv() that only peeks would take it. */
static int tcp_says(struct sock *s)
{
	struct pollfd pfd = {.fd = s->fd, .events = POLLIN | POLLRDHUP};
	int n = 0;

	s->look_ns = state_now_ns();
	if (REAL(poll)(&pfd, 1, 0) < 1)
		pfd.revents = 0;
	s->tcp_over = pfd.revents & POLLHUP;
	if (pfd.revents & POLLERR) {
		s->tcp_broke = true;
		return -ECONNRESET;
	}
	if (pfd.revents && !REAL(ioctl)(s->fd, FIONREAD, &n) && n)
		return 1;
	if (pfd.revents & (POLLRDHUP | POLLHUP))
		return 0;
	s->tcp_event = false;
	return -EAGAIN;
}

/* What a read of the program gets when TCP broke: an error once, and then the
 * end. */
static int read_broken(struct sock *s)
{
	char byte;
	ssize_t n = REAL(recv)(s->fd, &byte, 1, MSG_DONTWAIT);

	return !n ? 0 : n > 0 || errno == EAGAIN ? -ECONNRESET : -errno;
}

/* What a write gets when the peer has left the stream: as TCP has it, once TCP
 * knows. */
static int write_broken(struct sock *s)
{
	ssize_t n = REAL(send)(s->fd, "", 0, MSG_DONTWAIT | MSG_NOSIGNAL);

	return n < 0 && errno != EAGAIN ? -errno : -ECONNRESET;
}

/* Into as many of the pieces as the bytes before the peer's SWITCH may fill. */
static ssize_t take_tcp(struct sock *s, const struct iovec *iov, int pieces,
			int flags)
{
	struct iovec part[PIECES];
	struct msghdr msg = {.msg_iov = part};
	size_t left = s->rx_known ? s->rx_left : SIZE_MAX;
	ssize_t n;

	for (int i = 0; i < pieces && i < PIECES && left; i++) {
		part[i] = iov[i];
		if (part[i].iov_len > left)
			part[i].iov_len = left;
		left -= part[i].iov_len;
		msg.msg_iovlen++;
	}
	n = REAL(recvmsg)(s->fd, &msg, (flags & MSG_PEEK) | MSG_DONTWAIT);
	if (n < 0) {
		if (errno == EAGAIN)
			s->tcp_event = false;
		return -errno;
	}
	if (n > 0 && !(flags & MSG_PEEK)) {
		s->tcp_read += (uint64_t)n;
		status_count(&sock_row(s)->rx_tcp, (uint64_t)n);
		s->rx_left -= s->rx_known ? (uint64_t)n : 0;
	}
	return n;
}

static size_t iov_total(const struct iovec *iov, int n)
{
	size_t all = 0;

	while (n-- > 0)
		all += (iov++)->iov_len;
	return all;
}

/* As many of the bytes as there is room for, from byte `at` of iov on; or
 * -EFAULT. */
static ssize_t scatter(const struct iovec *iov, int n, size_t at,
		       const uint8_t *data, size_t len)
{
	size_t done = 0;

	for (; n && done < len; iov++, n--) {
		size_t room, writes;
		uint8_t *to;

		if (at >= iov->iov_len) {
			at -= iov->iov_len;
			continue;
		}
		room = iov->iov_len - at;
		if (room > len - done)
			room = len - done;
		to = (uint8_t *)iov->iov_base + at;
		writes = reach_write(to, room);
		memcpy(to, data + done, writes);
		done += writes;
		if (writes < room)
			return -EFAULT; /* of a segment TCP takes none */
		at = 0;
	}
	return (ssize_t)done;
}

/* Bytes of all records that have arrived, behind the first `got` of iov; they
 * stay. Returns how many iov has now, or -EFAULT. */
static ssize_t peek_ring(const struct sock *s, const struct iovec *iov, int n,
			 size_t got)
{
	const struct stream_in *in = &s->stream->in;
	size_t all = iov_total(iov, n);
	enum stream_type type;
	struct stream_walk w;
	const uint8_t *data;
	uint32_t len;

	stream_in_walk(in, &w);
	while (got < all && stream_in_next(in, &w, &type, &data, &len) == 1 &&
	       type == STREAM_DATA) {
		ssize_t more = scatter(iov, n, got, data, len);

		if (more < 0)
			return got ? (ssize_t)got : more;
		got += (size_t)more;
	}
	return (ssize_t)got;
}

/* Bytes from the ring; 0 with *end: the last one was read. */
static ssize_t take_ring(struct sock *s, const struct iovec *iov, int n,
			 int flags, bool *end)
{
	enum stream_type type;
	const uint8_t *data;
	ssize_t got = 0, more;
	uint32_t len;
	int rc;

	*end = false;
	while ((rc = stream_peek(s->stream, &type, &data, &len)) == 1) {
		if (type == STREAM_END) {
			*end = true;
			break;
		}
		if (type != STREAM_DATA)
			return got ? got : -EPROTO;
		if (flags & MSG_PEEK)
			return peek_ring(s, iov, n, 0);
		more = scatter(iov, n, (size_t)got, data, len);
		if (more < 0)
			return got ? got : more;
		got += more;
		stream_consume(s->stream, (uint32_t)more);
		status_count(&sock_row(s)->rx_stream, (uint64_t)more);
		if ((uint32_t)more < len)
			break;
	}
	if (got || rc >= 0)
		return got;
	return rc;
}

/* Nothing is in the ring: does TCP know more? */
static ssize_t ask_tcp(struct sock *s, bool *again)
{
	int rc = tcp_says(s);

	*again = false;
	if (rc == -EAGAIN && (!is_gone(s) || end_comes(s)))
		return -EAGAIN;
	if (rc == 1) /* a byte that cannot be */
		return -ECONNRESET;
	/* What the peer wrote before its end, by either way, was not in the
	 * ring a moment ago, and is there now. */
	*again = true;
	return rc == -EAGAIN ? -ECONNRESET : rc;
}

static ssize_t take(struct sock *s, const struct iovec *iov, int n, int flags)
{
	bool again = false, last = false, end;
	ssize_t rc, status = 0;

	for (;;) {
		rc = find_switch(s);
		if (rc < 0)
			return rc;
		if (by_tcp(s)) {
			bool known = s->rx_known;

			rc = take_tcp(s, iov, n, flags);
			if (rc > 0 && known && flags & MSG_PEEK &&
			    (uint64_t)rc == s->rx_left)
				return peek_ring(s, iov, n, (size_t)rc);
			if (rc > 0 || (known && rc == -EAGAIN))
				return rc;
			if (s->stream->back.on) {
				int saved = rc == -EAGAIN
						    ? 0
						    : back_rescue(s, (int)rc);

				if (saved <= 0)
					return saved ? saved : rc;
				continue;
			}
			/* The SWITCH may have come since. */
			if (find_switch(s) < 0)
				return -ECONNRESET;
			if (!known && by_tcp(s) && rc == -EAGAIN &&
			    is_gone(s) && !end_comes(s))
				return -ECONNRESET;
			if (known || by_tcp(s))
				return known && !rc ? -ECONNRESET : rc;
			continue;
		}
		rc = take_ring(s, iov, n, flags, &end);
		if (rc > 0 || end || rc == -EPROTO || rc == -EFAULT)
			return rc;
		/* That the stream is broken then says nothing more. */
		if (s->stream->back.rescued)
			return s->tcp_end;
		/* The peer has ended by TCP: it was killed, or resets. */
		if (rc) {
			status = tcp_says(s);
			last = !status || status == -ECONNRESET;
			if (!last)
				return end_comes(s) ? -EAGAIN : rc;
		}
		if (last)
			return status ? read_broken(s) : 0;
		if (!s->tcp_event && state_now_ns() - s->look_ns < LOOK_NS)
			return -EAGAIN;
		status = ask_tcp(s, &again);
		if (!again)
			return status;
		last = true;
	}
}

static int reset_error(struct sock *s, ssize_t rc)
{
	if (rc != -EPROTO)
		return (int)-rc;
	state_say("skein run: descriptor %d: the peer sent what the protocol "
		  "does not allow",
		  s->fd);
	return ECONNRESET;
}

/* A call of a program, of several goes where it waits. */
struct call {
	struct sock *s;
	int fd;
	uint64_t born_ns; /* of s at the first go, 0 before */
};

/* Not on a stream any more, or never again: what the call returns. Locked. */
static int lost(struct call *c)
{
	struct sock *s = c->s;

	if (!c->born_ns)
		c->born_ns = s->born_ns;
	if (sock_at(c->fd) != s || s->born_ns != c->born_ns) {
		/* Closed meanwhile by another thread; s is of another socket,
		 * or the number is. */
		errno = EBADF;
		return -1;
	}
	switch (atomic_load(&s->mode)) {
	case SOCK_ON:
		return 0;
	case SOCK_LOST:
		if (!sock_inherit(s))
			break;
		errno = ECONNRESET;
		return -1;
	case SOCK_FREE:
		errno = EBADF;
		return -1;
	}
	return SOCK_RETRY;
}

/* How many bytes a read would find. The end of the stream counts as one byte,
 * so that a program which asks first does read it. -1: the program does not ask
 * (TCP_INQ). */
static int inq_of(struct sock *s)
{
	int n;

	if (!s->inq)
		return -1;
	n = sock_unread(s);
	if (!n && (s->tcp_event || s->stream->in.ahead.end))
		n = 1;
	return n;
}

/* Pieces without their first skip bytes: all of them, or as many of them as
 * there is room for; the caller comes again. */
static int rest_of(const struct iovec **iov, int n, size_t skip,
		   struct iovec rest[PIECES])
{
	const struct iovec *from = *iov;
	int kept = 0;

	if (!skip)
		return n;
	for (; n && kept < PIECES; from++, n--) {
		if (skip >= from->iov_len) {
			skip -= from->iov_len;
			continue;
		}
		rest[kept].iov_base = (uint8_t *)from->iov_base + skip;
		rest[kept++].iov_len = from->iov_len - skip;
		skip = 0;
	}
	*iov = rest;
	return kept;
}

/* One go of a receive. */
static ssize_t recv_once(struct call *c, const struct iovec *iov, int n,
			 int flags, int *inq, bool *waits)
{
	struct sock *s = c->s;
	ssize_t rc;

	pthread_mutex_lock(&st.lock);
	rc = lost(c);
	if (!rc) {
		for (; n && !iov->iov_len; iov++, n--)
			;
		rc = n ? take(s, iov, n, flags) : 0;
		*waits = rc == -EAGAIN && !s->nonblock &&
			 !(flags & MSG_DONTWAIT);
		if (rc < 0 && (rc != -EAGAIN || is_broken(s)) &&
		    back_unused(s)) {
			rc = SOCK_RETRY;
		} else if (rc < 0) {
			errno = rc == -EAGAIN ? EAGAIN : reset_error(s, rc);
			rc = -1;
		} else if (inq) {
			*inq = inq_of(s);
		}
	}
	pthread_mutex_unlock(&st.lock);
	return rc;
}

/* A blocking peek for all bytes would wait for more than is there, which only
 * the kernel can. */
static bool is_carried(int flags)
{
	return !(flags & ~RECV_FLAGS) &&
	       (flags & (MSG_PEEK | MSG_WAITALL | MSG_DONTWAIT)) !=
		       (MSG_PEEK | MSG_WAITALL);
}

/* The rest of a call of `all` bytes that a stream has begun: the stream went
 * back to TCP while the call waited. True: rc is what the call returns. */
static bool by_kernel(struct sock *s, int fd, const struct iovec *iov, int n,
		      int flags, bool writes, size_t *done, size_t all)
{
	struct msghdr msg = {.msg_iov = (struct iovec *)iov,
			     .msg_iovlen = (size_t)n};
	struct status_row *row = sock_row(s);
	ssize_t rc;

	if (!sock_begin(s))
		return false; /* on a stream again */
	if (writes)
		rc = sock_done(s, REAL(sendmsg)(fd, &msg, flags), &row->tx_tcp);
	else
		rc = sock_done(s, REAL(recvmsg)(fd, &msg, flags), &row->rx_tcp);
	*done += rc > 0 ? (size_t)rc : 0;
	return rc <= 0 || (size_t)rc < iov_total(iov, n) || *done == all;
}

ssize_t sock_recv(int fd, struct sock *s, const struct iovec *iov, int n,
		  int flags, int *inq)
{
	ENV_CANCEL_POINT();
	struct call c = {.s = s, .fd = fd};
	struct iovec rest[PIECES];
	size_t all, got = 0;

	if (!reach_iov(iov, n))
		return -1;
	all = iov_total(iov, n);
	if (!is_carried(flags))
		return sock_refuse(fd, "a receive with flags") ? -1
							       : SOCK_RETRY;
	for (;;) {
		bool waits = false;
		const struct iovec *at = iov;
		int left = rest_of(&at, n, got, rest);
		ssize_t rc = recv_once(&c, at, left, flags, inq, &waits);

		if (rc == SOCK_RETRY && got) {
			if (by_kernel(s, fd, at, left, flags, false, &got, all))
				return (ssize_t)got;
			continue;
		}
		got += rc > 0 ? (size_t)rc : 0;
		if (rc < 0 && !waits)
			return got ? (ssize_t)got : rc;
		if (!waits &&
		    (!rc || got == all || s->nonblock ||
		     (flags & (MSG_WAITALL | MSG_DONTWAIT)) != MSG_WAITALL))
			return (ssize_t)got;
		if (waits && wait_one(s, POLLIN, held_cancel))
			return got ? (ssize_t)got : -1;
	}
}

int sock_unread(struct sock *s)
{
	uint64_t n = 0;
	int tcp = 0;

	find_switch(s);
	if (by_tcp(s) && !REAL(ioctl)(s->fd, FIONREAD, &tcp))
		n = s->rx_known && (uint64_t)tcp > s->rx_left ? s->rx_left
							      : (uint64_t)tcp;
	/* What is in the ring comes behind all of TCP's. */
	if (s->rx_known && n == s->rx_left)
		n += stream_in_unread(&s->stream->in);
	return n > INT_MAX ? INT_MAX : (int)n;
}

/* --- writing ------------------------------------------------------------- */

bool sock_push(struct sock *s)
{
	int on = 1, was = 0, cork = 0;
	socklen_t len = sizeof(was);

	if (getsockopt(s->fd, IPPROTO_TCP, TCP_CORK, &cork, &len) || cork)
		return false;
	len = sizeof(was);
	if (getsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &was, &len))
		return false;
	if (!was && (REAL(setsockopt)(s->fd, IPPROTO_TCP, TCP_NODELAY, &on,
				      sizeof(on)) ||
		     REAL(setsockopt)(s->fd, IPPROTO_TCP, TCP_NODELAY, &was,
				      sizeof(was))))
		return false;
	return true;
}

static void try_switch(struct sock *s)
{
	struct counts c;

	if (s->tx_on || s->stream->back.on || !stream_accepted(s->stream) ||
	    stream_peer_stopped(s->stream) || !sock_push(s) ||
	    counts_take(s->fd, !s->accepting, &c))
		return;
	s->tx_on = stream_switch(s->stream, c.written) == 0;
	if (s->tx_on && !s->switch_seen)
		status_update(s);
}

static ssize_t give(struct sock *s, const struct iovec *iov, int n, int flags)
{
	ssize_t rc;

	try_switch(s);
	if (s->tx_on && s->stream->back.on && !s->back_failed)
		return -EAGAIN; /* until all before it went by TCP */
	if (!s->tx_on || s->stream->back.on) {
		struct msghdr msg = {.msg_iov = (struct iovec *)iov,
				     .msg_iovlen = (size_t)n};

		rc = REAL(sendmsg)(s->fd, &msg,
				   flags | MSG_DONTWAIT | MSG_NOSIGNAL);
		if (rc < 0)
			return -errno;
		status_count(&sock_row(s)->tx_tcp, (uint64_t)rc);
		return rc;
	}
	rc = s->tcp_broke ? -ECONNRESET : stream_write(s->stream, iov, n);
	if (rc > 0)
		status_count(&sock_row(s)->tx_stream, (uint64_t)rc);
	if (rc >= 0 || rc == -EAGAIN || rc == -EFAULT)
		return rc;
	if (s->reset_seen)
		return -EPIPE;
	s->reset_seen = true;
	return rc == -ECONNRESET ? write_broken(s) : -reset_error(s, rc);
}

static ssize_t send_once(struct call *c, const struct iovec *iov, int n,
			 int flags, bool *waits)
{
	struct sock *s = c->s;
	ssize_t rc;

	pthread_mutex_lock(&st.lock);
	rc = lost(c);
	if (!rc) {
		size_t all = iov_total(iov, n);

		if (s->wr_shut)
			rc = -EPIPE;
		else
			rc = all ? give(s, iov, n, flags) : 0;
		s->blocked = rc == -EAGAIN || (rc >= 0 && (size_t)rc < all);
		if (s->blocked && s->tx_on) {
			s->full++;
			/* The ring is to grow: the helper makes the memory. */
			if (!list_empty(&s->stream->qp->tending))
				env_bell(st.wake_fd);
		}
		*waits = s->blocked && !s->nonblock && !(flags & MSG_DONTWAIT);
		if (rc < 0 && rc != -EAGAIN && back_unused(s)) {
			rc = SOCK_RETRY;
		} else if (rc == -EAGAIN && !*waits) {
			back_soon(s);
			rc = lost(c);
			errno = rc == -1 ? errno : EAGAIN;
			rc = rc ? rc : -1;
		} else if (rc < 0) {
			errno = (int)-rc;
			rc = -1;
		}
	}
	pthread_mutex_unlock(&st.lock);
	return rc;
}

ssize_t sock_send(int fd, struct sock *s, const struct iovec *iov, int n,
		  int flags)
{
	ENV_CANCEL_POINT();
	struct call c = {.s = s, .fd = fd};
	struct iovec rest[PIECES];
	size_t all, sent = 0;

	if (!reach_iov(iov, n))
		return -1;
	all = iov_total(iov, n);
	if (flags & ~SEND_FLAGS)
		return sock_refuse(fd, "a send with flags") ? -1 : SOCK_RETRY;
	for (;;) {
		bool waits = false;
		const struct iovec *at = iov;
		int left = rest_of(&at, n, sent, rest);
		ssize_t rc = send_once(&c, at, left, flags, &waits);

		if (rc == SOCK_RETRY && sent) {
			if (by_kernel(s, fd, at, left, flags | MSG_NOSIGNAL,
				      true, &sent, all))
				return (ssize_t)sent;
			continue;
		}
		sent += rc > 0 ? (size_t)rc : 0;
		if (rc > 0 && !waits && !s->nonblock && sent < all)
			continue;
		if (waits && !wait_one(s, POLLOUT, held_cancel))
			continue;
		if (sent || rc >= 0)
			return (ssize_t)sent;
		if (rc == -1 && errno == EPIPE && !(flags & MSG_NOSIGNAL)) {
			raise(SIGPIPE);
			errno = EPIPE;
		}
		return rc;
	}
}

int sock_shutdown(int fd, struct sock *s, int how)
{
	ENV_HOLD_CANCEL();
	struct call c = {.s = s, .fd = fd};
	bool ended = false;
	int rc;

	pthread_mutex_lock(&st.lock);
	rc = lost(&c);
	if (rc) {
		pthread_mutex_unlock(&st.lock);
		return rc;
	}
	if (how != SHUT_RD) {
		s->wr_shut = true;
		/* The END says it. TCP stays open for the way back; without
		 * room for an END it says the same. */
		ended = s->tx_on && !stream_end(s->stream) && how == SHUT_WR;
		/* TCP's end must not overtake the ring's bytes. */
		if (!ended && !sock_drain(fd, s)) {
			pthread_mutex_unlock(&st.lock);
			return SOCK_RETRY;
		}
	}
	rc = ended ? 0 : REAL(shutdown)(fd, how);
	s->tcp_event = s->edge = true;
	pthread_mutex_unlock(&st.lock);
	return rc;
}

/* --- readiness ----------------------------------------------------------- */

#define ALL_BROKEN (EPOLLIN | EPOLLRDHUP | EPOLLERR | EPOLLHUP)

/* The peer has ended. */
static uint32_t end_ready(const struct sock *s)
{
	return EPOLLIN | EPOLLRDHUP |
	       (s->wr_shut || s->tcp_over ? EPOLLHUP : 0);
}

/* What the ring says; *rc as of stream_peek(). */
static uint32_t ring_ready(struct sock *s, uint32_t wanted, int *rc)
{
	enum stream_type type;
	const uint8_t *data;
	uint32_t len;

	*rc = stream_peek(s->stream, &type, &data, &len);
	if (*rc == 1) {
		/* The end shows behind bytes that are not read yet. */
		if (type == STREAM_END ||
		    ((wanted & EPOLLRDHUP || s->wr_shut) &&
		     stream_in_ahead(&s->stream->in)->end))
			return end_ready(s);
		return EPOLLIN;
	}
	if (*rc != -EPROTO && s->stream->back.rescued) {
		*rc = -ECONNRESET;
		return s->tcp_end ? ALL_BROKEN : end_ready(s);
	}
	return *rc == -EPROTO ? ALL_BROKEN : 0;
}

static uint32_t in_ready(struct sock *s, uint32_t wanted)
{
	uint32_t ready = 0;
	int rc;

	if (find_switch(s) < 0)
		return ALL_BROKEN;
	if (!by_tcp(s)) {
		ready = ring_ready(s, wanted, &rc);
		if (ready && rc < 0)
			return ready;
	}
	/* A peer that resets the connection has left the stream before. */
	if (!s->tcp_event && !s->stream->peer_closed && !is_broken(s))
		return ready;
	rc = tcp_says(s);
	if (rc == -EAGAIN && !ready && is_broken(s) && !s->stream->back.on &&
	    !end_comes(s))
		return ALL_BROKEN;
	if (rc == -EAGAIN)
		return ready;
	if (rc == 1)
		return ready | EPOLLIN;
	if (s->stream->back.on && back_rescue(s, rc) == 1)
		return in_ready(s, wanted);
	return ready | (rc < 0 ? ALL_BROKEN : end_ready(s));
}

/* The helper makes the memory of a ring that is to grow. */
static bool ring_writable(struct sock *s)
{
	bool tended = list_linked(&s->stream->tending);
	bool room = stream_writable(s->stream);

	if (!tended && list_linked(&s->stream->tending))
		env_bell(st.wake_fd);
	return room;
}

static uint32_t out_ready(struct sock *s)
{
	struct pollfd pfd = {.fd = s->fd, .events = POLLOUT};

	if (s->tx_on && s->stream->back.on && !s->back_failed)
		return 0;
	if (s->tx_on && !s->stream->back.on)
		return ring_writable(s) ? EPOLLOUT : 0;
	return REAL(poll)(&pfd, 1, 0) == 1 && pfd.revents & POLLOUT ? EPOLLOUT
								    : 0;
}

uint32_t sock_ready(struct sock *s, uint32_t wanted)
{
	uint32_t ready = in_ready(s, wanted);

	if ((ready == ALL_BROKEN || (!ready && is_broken(s))) && back_unused(s))
		return 0;
	if (wanted & EPOLLOUT)
		ready |= out_ready(s);
	return ready & (wanted | EPOLLERR | EPOLLHUP);
}

bool sock_edge(struct sock *s)
{
	uint32_t seq = s->edge_seq;
	int broken = s->stream->broken;

	/* It is an event when TCP tells its end, or will not. */
	if (broken && broken != -EPROTO && !s->tcp_event && end_comes(s))
		broken = 0;
	find_switch(s);
	if (s->rx_known)
		seq = stream_in_ahead(&s->stream->in)->seq;
	if (seq != s->edge_seq || broken != s->edge_broken)
		s->edge = true;
	s->edge_seq = seq;
	s->edge_broken = broken;
	/* By TCP the kernel says so. */
	if (s->blocked && s->tx_on && !s->stream->back.on && ring_writable(s)) {
		s->blocked = false;
		s->edge = true;
	}
	return s->edge;
}
