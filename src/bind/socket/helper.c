/* SPDX-License-Identifier: MIT */
/*
 * helper.c - the library's own thread, the helper: it meets the peers, makes
 * and frees streams, and wakes the program's threads when a peer rings. The
 * first connection with enough calls for a meeting starts it.
 *
 * Thread rule: the helper alone touches meetings and the device's control path;
 * what it shares with the program's threads is under st.lock.
 */
#include "bind/socket/back.h"
#include "bind/socket/idle.h"
#include "bind/socket/set.h"
#include "bind/socket/sock.h"
#include "bind/socket/wait.h"

#include "env/env.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

#define LISTEN_NS 10000000000ull /* the accepting end waits that long */
#define TALK_NS 10000000000ull	 /* no call waits for a meeting */
#define POLL_MAX 4096
#define BACK_TICK_MS 5 /* between looks for a dead peer on the way back */

enum meeting_step {
	MEET_DIAL,   /* connecting: nobody listens yet; again at `deadline` */
	MEET_LISTEN, /* accepting: the other end has not dialled yet */
	MEET_OFFER,  /* the peer's offer is awaited */
	MEET_READY,  /* accepting: waits until the peer's QP is connected */
};

struct meeting {
	struct meeting *next;
	struct sock *s; /* NULL: it was closed */
	enum meeting_step step;
	bool accepting;
	int fd;
	unsigned dials;
	uint64_t deadline;
	struct meet_names names;
	struct stream *stream;
};

struct helper {
	struct stream_host host;
	bool host_up, host_failed;
	struct meeting *meetings;
	struct pollfd fds[POLL_MAX];
	struct meeting *of[POLL_MAX];
};

void meeting_drop(struct meeting *m)
{
	if (m->s)
		m->s->meeting = NULL;
	m->s = NULL;
	env_bell(st.wake_fd);
}

/* --- facts of a socket --------------------------------------------------- */

int names_of(int fd, struct meet_names *names)
{
	struct sockaddr_storage sa;
	socklen_t len = sizeof(sa);
	int rc;

	if (getsockname(fd, (void *)&sa, &len))
		return -errno;
	rc = meet_end_from(&sa, &names->local);
	len = sizeof(sa);
	if (!rc && getpeername(fd, (void *)&sa, &len))
		return -errno;
	return rc ? rc : meet_end_from(&sa, &names->remote);
}

static uint64_t netns_of(int fd)
{
	uint64_t cookie = 0;
	socklen_t len = sizeof(cookie);

	if (getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &len))
		return 0;
	return cookie;
}

static bool established(int fd)
{
	struct tcp_info ti;
	socklen_t len = sizeof(ti);

	return !getsockopt(fd, IPPROTO_TCP, TCP_INFO, &ti, &len) &&
	       ti.tcpi_state == TCP_ESTABLISHED;
}

/* --- messages ------------------------------------------------------------ */

static int send_offer(struct meeting *m, int tcp_fd)
{
	struct meet_offer offer = {.names = m->names};
	uint8_t buf[MEET_OFFER_LEN];
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	struct iovec iov = {buf, sizeof(buf)};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control.buf,
			     .msg_controllen = sizeof(control.buf)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	stream_addr(m->stream, &offer.stream);
	meet_encode(&offer, buf);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &tcp_fd, sizeof(int));
	if (REAL(sendmsg)(m->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return -errno;
	return 0;
}

/* *tcp_fd: the socket that came along, or -1. */
static int recv_offer(struct meeting *m, struct meet_offer *offer, int *tcp_fd)
{
	uint8_t buf[MEET_OFFER_LEN + 1];
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = {buf, sizeof(buf)};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control.buf,
			     .msg_controllen = sizeof(control.buf)};
	struct cmsghdr *c;
	ssize_t n;

	*tcp_fd = -1;
	n = REAL(recvmsg)(m->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n < 0)
		return -errno;
	c = CMSG_FIRSTHDR(&msg);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
	    c->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(tcp_fd, CMSG_DATA(c), sizeof(int));
	if (!n)
		return -ECONNRESET;
	return meet_decode(buf, (size_t)n, offer);
}

/* --- steps --------------------------------------------------------------- */

/* Ends a meeting; reason: the connection stays on TCP. */
static void leave(struct meeting *m, const char *reason)
{
	if (m->fd >= 0)
		REAL(close)(m->fd);
	m->fd = -1;
	if (m->stream)
		stream_free(m->stream);
	m->stream = NULL;
	pthread_mutex_lock(&st.lock);
	if (m->s) {
		m->s->meeting = NULL;
		if (reason && m->s->rests)
			sock_rest(m->s);
		else if (reason)
			sock_tie_locked(m->s, reason);
		m->s = NULL;
	}
	pthread_mutex_unlock(&st.lock);
}

static const char *refusal_of(struct meeting *m, const struct meet_offer *offer,
			      int tcp_fd)
{
	struct meet_proof proof = {.my_uid = geteuid()};
	struct ucred cred = {0};
	socklen_t len = sizeof(cred);

	if (getsockopt(m->fd, SOL_SOCKET, SO_PEERCRED, &cred, &len))
		return "the offer's sender is unknown";
	proof.uid = cred.uid;
	if (tcp_fd >= 0) {
		proof.established =
			established(tcp_fd) && !names_of(tcp_fd, &proof.names);
		proof.netns = netns_of(tcp_fd);
	}
	pthread_mutex_lock(&st.lock);
	if (m->s)
		proof.my_netns = netns_of(m->s->fd);
	pthread_mutex_unlock(&st.lock);
	return meet_refusal(offer, &proof, &m->names);
}

/* Both ends are connected: the next call that finds nobody in the kernel, or
 * this thread, promotes it. */
static void prepared(struct meeting *m)
{
	struct sock *s;

	pthread_mutex_lock(&st.lock);
	s = m->s;
	if (s && atomic_load(&s->mode) == SOCK_TCP) {
		s->stream = m->stream;
		s->stream->user = s;
		m->stream = NULL;
		s->prepared = true;
		atomic_store(&s->next_try, 0);
		/* A socket that turns out unfit drops its meeting: m->s is gone. */
		if (!sock_commit(s))
			status_update(s);
	}
	pthread_mutex_unlock(&st.lock);
	leave(m, NULL);
}

/* Why the connection cannot be promoted now; NULL: it can. Asked before each word
 * after which the other end may promote: it does not ask us again. */
static const char *unfit(struct meeting *m)
{
	const char *why = "the connection is closed";

	pthread_mutex_lock(&st.lock);
	if (m->s)
		why = sock_unfit(m->s);
	pthread_mutex_unlock(&st.lock);
	return why;
}

/* Our offer, with the socket itself. */
static int offer(struct meeting *m)
{
	int rc = -ECANCELED;

	pthread_mutex_lock(&st.lock);
	if (m->s)
		rc = send_offer(m, m->s->fd);
	pthread_mutex_unlock(&st.lock);
	return rc;
}

static void take_offer(struct helper *h, struct meeting *m)
{
	static const char word = 'R';
	struct meet_offer peer;
	const char *why;
	int tcp_fd, rc;

	rc = recv_offer(m, &peer, &tcp_fd);
	if (rc == -EAGAIN)
		return;
	if (rc == -ECONNRESET)
		why = "the other end has gone, or cannot be promoted";
	else
		why = rc ? "the other end said nothing that we understand"
			 : refusal_of(m, &peer, tcp_fd);
	if (tcp_fd >= 0)
		REAL(close)(tcp_fd);
	if (!why && !m->stream && stream_new(&h->host, &m->stream))
		why = "no memory for a stream";
	if (!why && stream_connect(m->stream, &peer.stream))
		why = "the stream could not be connected";
	if (!why)
		why = unfit(m);
	if (!why && m->accepting && offer(m))
		why = "the other end has gone";
	if (!why && !m->accepting &&
	    REAL(send)(m->fd, &word, 1, MSG_DONTWAIT | MSG_NOSIGNAL) != 1)
		why = "the other end has gone";
	if (why) {
		leave(m, why);
		return;
	}
	if (!m->accepting) {
		prepared(m);
		return;
	}
	m->step = MEET_READY;
}

static void take_ready(struct meeting *m)
{
	char word = 0;
	ssize_t n = REAL(recv)(m->fd, &word, 1, MSG_DONTWAIT);

	if (n < 0 && errno == EAGAIN)
		return;
	if (n == 1 && word == 'R')
		prepared(m);
	else
		leave(m, "the other end has gone");
}

static void take_caller(struct meeting *m)
{
	int fd = REAL(accept4)(m->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0)
		return;
	REAL(close)(m->fd);
	m->fd = fd;
	m->step = MEET_OFFER;
	m->deadline = state_now_ns() + TALK_NS;
}

/* --- beginning ----------------------------------------------------------- */

static bool host_ready(struct helper *h)
{
	char err[256];

	if (h->host_up || h->host_failed)
		return h->host_up;
	if (stream_host_init(&h->host, st.env, "soft", err, sizeof(err))) {
		state_say("skein run: no device: %s: all stays on TCP", err);
		h->host_failed = true;
		return false;
	}
	h->host_up = true;
	return true;
}

/* Nobody listens: the connecting end dials again after 1, 4, 16 and 64 ms, for
 * the other end may be about to; and all that again after 8, 64 and 512 further
 * calls. */
static void again_later(struct meeting *m)
{
	static const unsigned more[] = {8, 64, 512};
	struct sock *s;

	if (m->dials < 4) {
		m->step = MEET_DIAL;
		m->deadline = state_now_ns() + (1000000ull << (2 * m->dials++));
		return;
	}
	pthread_mutex_lock(&st.lock);
	s = m->s;
	if (s) {
		m->s = NULL;
		s->meeting = NULL;
		if (s->tries < 3 || s->rests) {
			unsigned which = s->tries < 3 ? s->tries++ : 2;

			s->queued = false;
			atomic_store(&s->next_try,
				     atomic_load(&s->calls) + more[which]);
			status_update(s);
		} else {
			sock_tie_locked(s, "the other end does not run under "
					   "skein run");
		}
	}
	pthread_mutex_unlock(&st.lock);
	leave(m, NULL);
}

static void dial(struct helper *h, struct meeting *m)
{
	struct sockaddr_un un;
	socklen_t len = meet_where(&m->names, false, &un);

	m->deadline = state_now_ns() + TALK_NS;
	m->step = MEET_OFFER;
	if (REAL(connect)(m->fd, (void *)&un, len)) {
		again_later(m);
		return;
	}
	if (stream_new(&h->host, &m->stream))
		leave(m, "no memory for a stream");
	else if (offer(m))
		leave(m, "the other end has gone");
}

static void listen_there(struct meeting *m)
{
	struct sockaddr_un un;
	socklen_t len = meet_where(&m->names, true, &un);

	m->deadline = state_now_ns() + LISTEN_NS;
	m->step = MEET_LISTEN;
	if (bind(m->fd, (void *)&un, len) || listen(m->fd, 1))
		leave(m, errno == EADDRINUSE
				 ? "the name of the meeting is taken"
				 : "no socket for the meeting");
}

/* The meeting of the next that waits for one. False: none does. */
static bool begin(struct helper *h)
{
	const char *why = NULL;
	bool gone = true;
	struct meeting *m;
	struct sock *s;

	pthread_mutex_lock(&st.lock);
	s = st.todo;
	pthread_mutex_unlock(&st.lock);
	m = s ? calloc(1, sizeof(*m)) : NULL;
	if (!m)
		return false;
	m->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK,
		       0);
	m->next = h->meetings;
	h->meetings = m;
	pthread_mutex_lock(&st.lock);
	/* It leaves the list and gets its meeting in one step: a socket that is
	 * closed leaves the list too, and may be in it again as another one. */
	s = st.todo;
	if (s)
		st.todo = s->next;
	if (s && atomic_load(&s->mode) == SOCK_TCP && m->fd >= 0 &&
	    !names_of(s->fd, &m->names)) {
		gone = false;
		s->names = m->names;
		s->meeting = m;
		m->s = s;
		m->accepting = s->accepting;
		why = sock_unfit(s);
	}
	pthread_mutex_unlock(&st.lock);
	if (gone || why)
		leave(m, why);
	else if (!host_ready(h))
		leave(m, "no device");
	else if (m->accepting)
		listen_there(m);
	else
		dial(h, m);
	return true;
}

/* --- the loop ------------------------------------------------------------ */

static void take_work(struct helper *h)
{
	struct stream *dead, *next;
	uint64_t n;

	REAL(read)(st.wake_fd, &n, sizeof(n));
	while (begin(h))
		;
	pthread_mutex_lock(&st.lock);
	dead = st.dead;
	st.dead = NULL;
	pthread_mutex_unlock(&st.lock);
	for (; dead; dead = next) {
		next = dead->user;
		stream_free(dead);
	}
}

/* A bell, or an answer, or the end: threads that sleep look again. */
static void take_bells(struct helper *h)
{
	struct stream *s;

	pthread_mutex_lock(&st.lock);
	while ((s = stream_host_event(&h->host))) {
		struct sock *sock = NULL;
		struct stream *d;

		for (d = st.dead; d && d != s; d = d->user)
			;
		if (!d)
			sock = s->user;
		if (!stream_poll(s) || !sock)
			continue;
		if (stream_peer_stopped(s)) {
			if (atomic_load(&sock->mode) == SOCK_ON)
				back_step(sock);
			else if (sock->stream == s)
				sock_unprepare(sock);
		}
		if (sock->set)
			set_wake(sock->set);
		wait_wake(sock);
	}
	pthread_mutex_unlock(&st.lock);
}

static void step(struct helper *h, struct meeting *m)
{
	switch (m->step) {
	case MEET_DIAL:
		break;
	case MEET_LISTEN:
		take_caller(m);
		break;
	case MEET_OFFER:
		take_offer(h, m);
		break;
	case MEET_READY:
		take_ready(m);
		break;
	}
}

/* Sockets on their way back that wait until TCP takes more. */
static unsigned gather_backs(struct helper *h, unsigned n)
{
	struct sock *s;

	pthread_mutex_lock(&st.lock);
	for (s = st.backs; s && n < POLL_MAX; s = s->back_next) {
		if (!s->stream->back.left)
			continue;
		h->of[n] = NULL;
		h->fds[n++] = (struct pollfd){.fd = s->fd, .events = POLLOUT};
	}
	pthread_mutex_unlock(&st.lock);
	return n;
}

static unsigned gather(struct helper *h, uint64_t *deadline)
{
	struct meeting **at = &h->meetings, *m;
	uint64_t now = state_now_ns();
	unsigned n = 0;

	*deadline = UINT64_MAX;
	h->fds[n++] = (struct pollfd){.fd = st.wake_fd, .events = POLLIN};
	h->fds[n++] = (struct pollfd){.fd = st.ask_fd, .events = POLLIN};
	if (h->host_up)
		h->fds[n++] = (struct pollfd){.fd = h->host.channel->fd,
					      .events = POLLIN};
	while ((m = *at)) {
		bool here;

		if (m->fd >= 0 && now >= m->deadline && m->step == MEET_DIAL)
			dial(h, m);
		else if (m->fd >= 0 && now >= m->deadline)
			leave(m, m->step == MEET_LISTEN
					 ? "the other end does not run under "
					   "skein run"
					 : "the other end does not answer");
		pthread_mutex_lock(&st.lock);
		here = m->s != NULL;
		pthread_mutex_unlock(&st.lock);
		if (!here) {
			leave(m, NULL);
			*at = m->next;
			free(m);
			continue;
		}
		if (m->deadline < *deadline)
			*deadline = m->deadline;
		if (n < POLL_MAX && m->step != MEET_DIAL) {
			h->of[n] = m;
			h->fds[n++] =
				(struct pollfd){.fd = m->fd, .events = POLLIN};
		}
		at = &m->next;
	}
	return gather_backs(h, n);
}

static void helper_main(void *arg)
{
	struct helper *h = arg;
	struct idle idle = {0};

	for (;;) {
		uint64_t look = idle_round(&idle, state_now_ns());
		bool backs = back_round();
		uint64_t deadline, now;
		unsigned i, first, n = gather(h, &deadline);
		bool had_host = h->host_up;
		int timeout = -1;

		now = state_now_ns();
		if (look < deadline)
			deadline = look;
		if (deadline != UINT64_MAX)
			timeout =
				deadline <= now
					? 0
					: (int)((deadline - now) / 1000000 + 1);
		if (backs && (timeout < 0 || timeout > BACK_TICK_MS))
			timeout = BACK_TICK_MS;
		if (REAL(poll)(h->fds, n, timeout) <= 0)
			continue;
		first = had_host ? 3 : 2;
		if (h->fds[1].revents)
			back_answer();
		if (had_host && h->fds[2].revents)
			take_bells(h);
		for (i = first; i < n; i++)
			if (h->fds[i].revents && h->of[i])
				step(h, h->of[i]);
		if (h->fds[0].revents)
			take_work(h);
	}
}

static bool start(void)
{
	struct env_thread *thread;
	struct helper *h;

	if (atomic_load(&st.helper_runs))
		return true;
	if (!st.env && env_real_new(&st.env))
		return false;
	if (st.wake_fd < 0)
		st.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	h = calloc(1, sizeof(*h));
	if (!h || st.wake_fd < 0 || back_listen() ||
	    env_thread_start(st.env, "skein-run", helper_main, h, &thread)) {
		free(h);
		return false;
	}
	atomic_store(&st.helper_runs, true);
	return true;
}

void helper_ask(struct sock *s)
{
	if (atomic_load(&st.forked))
		return;
	if (!start()) {
		sock_tie_locked(s, "no thread for the meeting");
		return;
	}
	s->queued = true;
	if (!s->asked_ns)
		s->asked_ns = state_now_ns();
	s->next = st.todo;
	st.todo = s;
	status_update(s);
	env_bell(st.wake_fd);
}

void helper_free(struct stream *stream)
{
	stream->user = st.dead;
	st.dead = stream;
	env_bell(st.wake_fd);
}
