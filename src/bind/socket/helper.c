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
#include "bind/socket/bells.h"
#include "bind/socket/counts.h"
#include "bind/socket/idle.h"
#include "bind/socket/peers.h"
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
	STEP_DIAL,   /* connecting: nobody listens yet; again at `deadline` */
	STEP_LISTEN, /* accepting: the other end has not dialled yet */
	STEP_HELLO,  /* accepting: HELLO is awaited */
	STEP_HELD,   /* accepting: another meeting makes a QP for both */
	STEP_OFFER,  /* connecting: OFFER is awaited */
	STEP_TAKE,   /* accepting: TAKE is awaited */
	STEP_DONE,   /* connecting: DONE is awaited */
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
	uint8_t id[MEET_ID_LEN]; /* of the process at the other end */
	struct peer_qp *pq;
	bool refuses; /* s stays on TCP: the other end is told */
	bool over;    /* the connection has ended */
	bool makes;   /* pq is not up yet, and is this meeting's */
	struct stream *stream;
};

struct helper {
	struct peers peers;
	bool host_up, host_failed;
	struct meeting *meetings;
	struct pollfd fds[POLL_MAX];
	struct meeting *of[POLL_MAX];
};

/* From OFFER on the other end may use this end's memory: the meeting goes to
 * its end, also when the socket was closed. */
static bool must_end(const struct meeting *m)
{
	return m->step == STEP_TAKE || m->step == STEP_DONE;
}

void meeting_drop(struct meeting *m, bool refuses)
{
	m->refuses = refuses;
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

/* tcp_fd: the socket that goes along, or -1. */
static int send_word(struct helper *h, struct meeting *m, enum meet_word word,
		     int tcp_fd)
{
	struct meet_offer offer = {.word = word, .names = m->names};
	uint8_t buf[MEET_OFFER_LEN];
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	struct iovec iov = {buf, sizeof(buf)};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	struct cmsghdr *c;

	memcpy(offer.id, h->peers.id, sizeof(offer.id));
	if (m->pq) {
		offer.alone = m->pq->alone;
		stream_qp_addr(m->pq->q, &offer.qp);
		if (word == MEET_OFFER && !m->makes)
			offer.paired = m->pq->peer_qpn;
	}
	if (word == MEET_OFFER || word == MEET_TAKE)
		stream_addr(m->stream, &offer.stream);
	meet_encode(&offer, buf);
	if (tcp_fd >= 0) {
		msg.msg_control = control.buf;
		msg.msg_controllen = sizeof(control.buf);
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &tcp_fd, sizeof(int));
	}
	if (REAL(sendmsg)(m->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return -errno;
	return 0;
}

/* *tcp_fd: the socket that came along, or -1. */
static int recv_word(struct meeting *m, struct meet_offer *offer, int *tcp_fd)
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
	n = recvmsg(m->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	/* It left before it read our word: its own word comes behind this. */
	if (n < 0 && errno == ECONNRESET)
		n = recvmsg(m->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
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

static void take_caller(struct meeting *m)
{
	int fd = accept4(m->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0)
		return;
	close(m->fd);
	m->fd = fd;
	m->step = STEP_HELLO;
	m->deadline = state_now_ns() + TALK_NS;
}

/* Tells the other end that this one stays on TCP. Where the connection
 * is over, it leaves without a word. */
static void say_leave(struct helper *h, struct meeting *m)
{
	if (m->step == STEP_LISTEN)
		take_caller(m);
	send_word(h, m, MEET_LEAVE, -1);
}

/* Ends a meeting; reason: the connection stays on TCP, or is over. */
static void leave(struct helper *h, struct meeting *m, const char *reason)
{
	bool refuses;

	pthread_mutex_lock(&st.lock);
	if (m->s && counts_ended(m->s->fd))
		m->over = true;
	if (m->s && reason && !m->over)
		m->refuses = true;
	refuses = m->refuses;
	pthread_mutex_unlock(&st.lock);
	if (m->fd >= 0 && refuses)
		say_leave(h, m);
	if (m->fd >= 0)
		close(m->fd);
	m->fd = -1;
	pthread_mutex_lock(&st.lock);
	if (m->stream && m->refuses)
		stream_refuse(m->stream);
	else if (m->stream)
		stream_leave(m->stream);
	m->stream = NULL;
	if (m->s) {
		m->s->meeting = NULL;
		if (reason && m->s->rests)
			sock_rest(m->s);
		else if (reason && m->over)
			sock_over(m->s);
		else if (reason)
			sock_tie_locked(m->s, reason);
		m->s = NULL;
	}
	pthread_mutex_unlock(&st.lock);
	if (m->makes && !m->pq->up)
		peers_drop(&h->peers, m->pq);
	m->makes = false;
	m->pq = NULL;
	peers_sweep(&h->peers);
}

/* A word could not be sent. An other end that has left without LEAVE has closed
 * the connection. */
static void leave_unsent(struct helper *h, struct meeting *m)
{
	struct meet_offer peer = {0};
	int fd = -1, rc = recv_word(m, &peer, &fd);

	if (fd >= 0)
		close(fd);
	m->over = rc == -ECONNRESET;
	leave(h, m,
	      m->over ? "the other end has gone"
	      : rc    ? "a word of the meeting could not be sent"
		      : "the other end cannot be promoted");
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
		m->over = proof.uid == proof.my_uid && counts_ended(tcp_fd);
	}
	pthread_mutex_lock(&st.lock);
	if (m->s)
		proof.my_netns = netns_of(m->s->fd);
	pthread_mutex_unlock(&st.lock);
	return meet_refusal(offer, &proof, &m->names);
}

/* Both ends are connected: the next call that finds nobody in the kernel, or
 * this thread, promotes it. */
static void prepared(struct helper *h, struct meeting *m)
{
	struct sock *s;

	m->pq->up = true;
	pthread_mutex_lock(&st.lock);
	s = m->s;
	if (s && atomic_load(&s->mode) == SOCK_TCP) {
		s->stream = m->stream;
		s->stream->user = s;
		m->stream = NULL;
		s->prepared = true;
		atomic_store(&s->next_try, 0);
		/* A socket that turns out unfit drops its meeting: m->s is
		 * gone. */
		if (!sock_commit(s))
			status_update(s);
	}
	pthread_mutex_unlock(&st.lock);
	leave(h, m, NULL);
}

/* Why the connection cannot be promoted now; NULL: it can. Asked before each
 * word after which the other end may promote: it does not ask us again. */
static const char *unfit(struct meeting *m)
{
	const char *why = "the connection is closed";

	pthread_mutex_lock(&st.lock);
	if (m->s)
		why = sock_unfit(m->s);
	pthread_mutex_unlock(&st.lock);
	return why;
}

/* Sends word to the other end, and the TCP socket itself as the proof. */
static int show(struct helper *h, struct meeting *m, enum meet_word word)
{
	int rc = -ECANCELED;

	pthread_mutex_lock(&st.lock);
	if (m->s)
		rc = send_word(h, m, word, m->s->fd);
	pthread_mutex_unlock(&st.lock);
	return rc;
}

/* This end of the stream, on m->pq. peer: of the other end, or NULL. */
static bool make_stream(struct helper *h, struct meeting *m,
			const struct stream_addr *peer)
{
	struct stream *s;
	int rc;

	if (stream_new(&h->peers.host, STREAM_RING_FIRST,
		       (uint32_t)st.stream.ring, &s))
		return false;
	pthread_mutex_lock(&st.lock);
	rc = stream_join(s, m->pq->q);
	if (!rc && peer)
		rc = stream_connect(s, peer);
	if (!rc)
		m->stream = s;
	else if (s->qp)
		stream_leave(s);
	pthread_mutex_unlock(&st.lock);
	if (rc && !s->qp)
		stream_free(s);
	return !rc;
}

/* Accepting: the other end is believed. The offer; or it waits until another
 * meeting has made a QP. */
static void answer_hello(struct helper *h, struct meeting *m)
{
	const char *why = unfit(m);
	bool making = false;

	if (!why) {
		m->pq = peers_choose(&h->peers, m->id, &making);
		m->step = making ? STEP_HELD : STEP_TAKE;
		if (making)
			return;
		m->makes = !m->pq;
	}
	if (!why && !m->pq)
		m->pq = peers_make(&h->peers, m->id, !h->peers.qps);
	if (!why && (!m->pq || !make_stream(h, m, NULL)))
		why = "no memory for a stream";
	m->makes = m->makes && m->pq;
	if (!why && show(h, m, MEET_OFFER))
		leave_unsent(h, m);
	else if (why)
		leave(h, m, why);
}

/* A QP has come up, or not: meetings that wait for it go on. */
static void answer_held(struct helper *h)
{
	struct meeting *m;

	for (m = h->meetings; m; m = m->next)
		if (m->step == STEP_HELD && m->fd >= 0)
			answer_hello(h, m);
}

static void take_hello(struct helper *h, struct meeting *m,
		       const struct meet_offer *peer, const char *why)
{
	if (!why && peer->word != MEET_HELLO)
		why = "the other end said nothing that we understand";
	memcpy(m->id, peer->id, sizeof(m->id));
	if (why)
		leave(h, m, why);
	else
		answer_hello(h, m);
}

/* Connecting: the QP that was offered, ready for this end's use. */
static const char *take_qp(struct helper *h, struct meeting *m,
			   const struct meet_offer *peer)
{
	struct peers *p = &h->peers;

	if (peer->paired) {
		m->pq = peers_find(p, peer->id, peer->paired, peer->qp.qp.qpn);
		if (!m->pq)
			return "the shared queue pair has failed";
		/* The other end offers what is up there. Its DONE of the
		 * meeting that makes the QP may be read after this OFFER: they
		 * come by two sockets. */
		m->pq->up = true;
		return NULL;
	}
	m->pq = peers_make(p, peer->id, peer->alone);
	if (!m->pq)
		return "no memory for a stream";
	m->makes = true;
	return peers_connect(m->pq, &peer->qp)
		       ? "the stream could not be connected"
		       : NULL;
}

static void take_offer(struct helper *h, struct meeting *m,
		       const struct meet_offer *peer, const char *why)
{
	if (!why && peer->word != MEET_OFFER)
		why = "the other end said nothing that we understand";
	if (!why)
		why = unfit(m);
	if (!why)
		why = take_qp(h, m, peer);
	if (!why && !make_stream(h, m, &peer->stream))
		why = "no memory for a stream";
	if (why) {
		leave(h, m, why);
		return;
	}
	m->step = STEP_DONE;
	if (send_word(h, m, MEET_TAKE, -1))
		leave_unsent(h, m);
}

static void take_take(struct helper *h, struct meeting *m,
		      const struct meet_offer *peer, const char *why)
{
	int rc;

	if (!why && peer->word != MEET_TAKE)
		why = "the other end cannot be promoted";
	if (!why && m->makes && peers_connect(m->pq, &peer->qp))
		why = "the stream could not be connected";
	if (!why) {
		pthread_mutex_lock(&st.lock);
		rc = stream_connect(m->stream, &peer->stream);
		pthread_mutex_unlock(&st.lock);
		if (rc)
			why = "the stream could not be connected";
	}
	if (!why && send_word(h, m, MEET_DONE, -1))
		leave_unsent(h, m);
	else if (why)
		leave(h, m, why);
	else
		prepared(h, m);
}

static void take_word(struct helper *h, struct meeting *m)
{
	struct meet_offer peer = {0};
	const char *why = NULL;
	bool made = m->makes;
	int tcp_fd, rc;

	rc = recv_word(m, &peer, &tcp_fd);
	if (rc == -EAGAIN)
		return;
	m->over = rc == -ECONNRESET;
	if (m->over)
		why = "the other end has gone";
	else if (rc)
		why = "the other end said nothing that we understand";
	else if (peer.word == MEET_LEAVE)
		why = "the other end cannot be promoted";
	else if (m->step == STEP_HELLO || m->step == STEP_OFFER)
		why = refusal_of(m, &peer, tcp_fd);
	if (tcp_fd >= 0)
		close(tcp_fd);
	if (m->step == STEP_HELLO)
		take_hello(h, m, &peer, why);
	else if (m->step == STEP_OFFER)
		take_offer(h, m, &peer, why);
	else if (m->step == STEP_TAKE)
		take_take(h, m, &peer, why);
	else if (!why && peer.word == MEET_DONE)
		prepared(h, m);
	else
		leave(h, m, why ? why : "the other end cannot be promoted");
	if (made && !m->makes)
		answer_held(h);
}

/* --- beginning ----------------------------------------------------------- */

static bool host_ready(struct helper *h)
{
	char err[256];

	if (h->host_up || h->host_failed)
		return h->host_up;
	if (stream_host_init(&h->peers.host, st.env, "soft", err,
			     sizeof(err))) {
		state_say("skein run: no device: %s: all stays on TCP", err);
		h->host_failed = true;
		return false;
	}
	peers_init(&h->peers);
	pthread_mutex_lock(&st.lock);
	bells_open(&h->peers.host);
	pthread_mutex_unlock(&st.lock);
	h->host_up = true;
	return true;
}

/* Nobody listens: the connecting end dials again after 1, 4, 16 and 64 ms, for
 * the other end may be about to; and all that again after 8, 64 and 512 further
 * calls. The last time it goes on for seconds, but for a connection that was on a
 * stream before: the calls of a busy one are over before the other end's helper gets
 * a core. */
static void again_later(struct helper *h, struct meeting *m)
{
	static const unsigned more[] = {8, 64, 512};
	struct sock *s;

	pthread_mutex_lock(&st.lock);
	s = m->s;
	if (m->dials < (s && s->tries == 3 && !s->rests ? 7 : 4)) {
		m->step = STEP_DIAL;
		m->deadline = state_now_ns() + (1000000ull << (2 * m->dials++));
		pthread_mutex_unlock(&st.lock);
		return;
	}
	if (s && !s->tries && !s->rests && counts_ended(s->fd)) {
		sock_over(s);
	} else if (s) {
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
	leave(h, m, NULL);
}

static void dial(struct helper *h, struct meeting *m)
{
	struct sockaddr_un un;
	socklen_t len = meet_where(&m->names, false, &un);

	m->deadline = state_now_ns() + TALK_NS;
	m->step = STEP_OFFER;
	if (REAL(connect)(m->fd, (void *)&un, len))
		again_later(h, m);
	else if (show(h, m, MEET_HELLO))
		leave_unsent(h, m);
}

static void listen_there(struct helper *h, struct meeting *m)
{
	struct sockaddr_un un;
	socklen_t len = meet_where(&m->names, true, &un);

	m->deadline = state_now_ns() + LISTEN_NS;
	m->step = STEP_LISTEN;
	if (bind(m->fd, (void *)&un, len) || listen(m->fd, 1))
		leave(h, m,
		      errno == EADDRINUSE ? "the name of the meeting is taken"
					  : "no socket for the meeting");
}

/* Takes the next socket that waits for a meeting and begins its meeting. False:
 * no socket waits. */
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
		leave(h, m, why);
	else if (!host_ready(h))
		leave(h, m, "no device");
	else if (m->accepting)
		listen_there(h, m);
	else
		dial(h, m);
	return true;
}

/* --- the loop ------------------------------------------------------------ */

static void take_work(struct helper *h)
{
	uint64_t n;

	REAL(read)(st.wake_fd, &n, sizeof(n));
	while (begin(h))
		;
	peers_tend(&h->peers);
	peers_sweep(&h->peers);
}

static void take_bells(struct helper *h)
{
	struct set *last;

	pthread_mutex_lock(&st.lock);
	bells_take(&last);
	pthread_mutex_unlock(&st.lock);
	if (last)
		set_ring(last);
	peers_tend(&h->peers);
	peers_sweep(&h->peers);
}

static void step(struct helper *h, struct meeting *m)
{
	if (m->step == STEP_LISTEN)
		take_caller(m);
	else if (m->step != STEP_DIAL && m->step != STEP_HELD)
		take_word(h, m);
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
	if (h->host_up) {
		pthread_mutex_lock(&st.lock);
		h->fds[n++] = (struct pollfd){.fd = bells_helper_fd(),
					      .events = POLLIN};
		pthread_mutex_unlock(&st.lock);
	}
	while ((m = *at)) {
		bool here;

		if (m->fd >= 0 && now >= m->deadline && m->step == STEP_DIAL)
			dial(h, m);
		else if (m->fd >= 0 && now >= m->deadline && !must_end(m))
			leave(h, m,
			      m->step == STEP_LISTEN
				      ? "the other end does not run under "
					"skein run"
				      : "the other end does not answer");
		pthread_mutex_lock(&st.lock);
		here = m->s != NULL || (m->fd >= 0 && must_end(m));
		pthread_mutex_unlock(&st.lock);
		if (!here) {
			leave(h, m, NULL);
			*at = m->next;
			free(m);
			continue;
		}
		if (m->deadline < *deadline && !must_end(m))
			*deadline = m->deadline;
		if (n < POLL_MAX && m->step != STEP_DIAL &&
		    m->step != STEP_HELD) {
			h->of[n] = m;
			h->fds[n++] =
				(struct pollfd){.fd = m->fd, .events = POLLIN};
		}
		at = &m->next;
	}
	return gather_backs(h, n);
}

/* True: the helper is to end, and no socket has a stream or a meeting. */
static bool may_end(const struct helper *h)
{
	bool may = !h->meetings;
	int fd;

	if (!may || !atomic_load(&st.ending))
		return false;
	pthread_mutex_lock(&st.lock);
	may = !st.todo && !st.backs && !st.askers;
	for (fd = 0; may && fd < st.fd_top; fd++) {
		struct sock *s = atomic_load(&st.socks[fd]);

		may = !s || !s->stream;
	}
	if (may)
		bells_close();
	pthread_mutex_unlock(&st.lock);
	return may;
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

		if (may_end(h))
			break;

		now = state_now_ns();
		if (look < deadline)
			deadline = look;
		if (h->peers.look_ns <= now)
			peers_tend(&h->peers);
		if (h->peers.look_ns < deadline)
			deadline = h->peers.look_ns;
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
	if (h->host_up)
		peers_end(&h->peers);
	free(h);
	atomic_store(&st.helper_runs, false);
}

static bool start(void)
{
	struct helper *h;

	if (atomic_load(&st.helper_runs))
		return true;
	if (!st.env && env_real_new(&st.env))
		return false;
	if (st.wake_fd < 0)
		st.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	h = calloc(1, sizeof(*h));
	if (!h || st.wake_fd < 0 || back_listen() ||
	    env_thread_start(st.env, "skein-run", helper_main, h, &st.helper)) {
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
	stream_leave(stream);
	env_bell(st.wake_fd);
}
