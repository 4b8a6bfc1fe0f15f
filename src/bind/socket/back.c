/* SPDX-License-Identifier: MIT */
/*
 * back.c - the steps of the way back to TCP (docs/protocol/stream.md, "The way
 * back"): which calls wait for it, what goes by the TCP socket, and the forked
 * child that asks its parent. Which bytes go is stream/back.c's.
 */
#include "bind/socket/back.h"

#include "bind/socket/counts.h"
#include "bind/socket/set.h"
#include "bind/socket/wait.h"
#include "env/env.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define TICK_NS 2000000u /* a waiting call looks that often by itself */

/* What a child says: which socket of its parent's. */
struct back_ask {
	uint64_t index, born_ns;
};

/* A child that waits. */
struct asker {
	struct asker *next;
	int fd;
	struct sock *s; /* NULL: it has not said yet */
	uint64_t born_ns, deadline;
};

static void wake_all(struct sock *s)
{
	s->tcp_event = s->edge = true;
	if (s->set)
		set_wake(s->set);
	wait_wake(s);
	pthread_cond_broadcast(&st.back_cond);
}

void back_leave(struct sock *s)
{
	struct sock **at = &st.backs;

	while (*at && *at != s)
		at = &(*at)->back_next;
	if (*at)
		*at = s->back_next;
}

void back_start(struct sock *s, const char *why, bool again)
{
	if (atomic_load(&s->mode) != SOCK_ON)
		return;
	if (s->stream->back.on) {
		if (!again)
			s->back_why = why;
		stream_hand_back(s->stream, again);
		return;
	}
	s->back_why = why;
	s->back_next = st.backs;
	st.backs = s;
	/* From here on the kernel is asked: all that has not been read comes
	 * by TCP. */
	s->rx_known = false;
	stream_hand_back(s->stream, again);
	wake_all(s);
	env_bell(st.wake_fd);
}

/* Did both ends stop for now? One that has freed its end unused does not say. */
static bool may_again(const struct stream *t)
{
	if (t->back.on && !t->again)
		return false;
	return stream_peer_stopped(t) ? stream_peer_again(t) : t->back.on;
}

/* The program has said its end, so far in the ring only. */
static void end_by_tcp(struct sock *s)
{
	const real_shutdown_t real = REAL(shutdown);

	if (s->wr_shut)
		real(s->fd, SHUT_WR);
}

/* It is the kernel's again. over: because the connection ends. */
static void finish(struct sock *s, const char *why, bool over)
{
	bool again = may_again(s->stream);

	end_by_tcp(s); /* where nothing was moved */
	back_leave(s);
	if (s->set && set_demote(s->set, s)) {
		set_remove(s->set, s);
		again = false;
	}
	s->tcp_ns = state_now_ns();
	s->demotions += s->on_ns != 0;
	atomic_store(&s->mode, SOCK_TCP);
	sock_tell_children(s);
	if (again)
		sock_rest(s);
	else if (over)
		sock_over(s);
	else
		sock_tie_locked(s, why);
	wake_all(s);
}

/* Does the connection end? An end that stays on TCP stops before it leaves. */
static bool is_over(struct sock *s)
{
	struct stream *t = s->stream;

	return !t->back.on && !stream_peer_stopped(t) &&
	       (t->peer_closed || stream_peer_dead(t) || counts_ended(s->fd));
}

bool back_unused(struct sock *s)
{
	struct stream *t = s->stream;
	enum stream_type type;
	const uint8_t *data;
	uint32_t len;

	if (t->out.seq || t->in.seq || t->broken == -EPROTO ||
	    !(t->broken || t->peer_closed || stream_peer_dead(t) ||
	      stream_peer_stopped(t)) ||
	    stream_peek(t, &type, &data, &len) == 1)
		return false;
	if (!t->back.on)
		s->on_ns = 0;
	finish(s,
	       t->back.on ? s->back_why : "the other end could not be promoted",
	       is_over(s));
	return true;
}

/* What the peer has not read, by TCP. True: all of it. */
static bool move(struct sock *s)
{
	const uint8_t *data;
	uint32_t len;
	ssize_t n;
	int rc;

	while ((rc = stream_back_next(s->stream, &data, &len)) == 1) {
		n = REAL(send)(s->fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0) {
			s->back_failed = errno != EAGAIN && errno != EINTR;
			return false;
		}
		stream_back_took(&s->stream->back, (uint32_t)n);
	}
	return rc == 0 && s->stream->back.peer_stopped;
}

static void moved(struct sock *s)
{
	/* These bytes were in the peer's ring. A reset behind them must not throw
	 * them away. */
	sock_push(s);
	/* What the program writes now goes by TCP. */
	s->tx_on = false;
	end_by_tcp(s);
	stream_back_moved(s->stream);
	wake_all(s);
}

/* The peer will say no more. Where nothing of its bytes lies in our ring, the
 * kernel has all of the connection. */
static bool without_peer(struct sock *s)
{
	struct stream *t = s->stream;

	if (stream_back_poll(t) != -EPROTO && !stream_in_unread(&t->in) &&
	    !t->back.rescued) {
		finish(s, s->back_why, false);
		return true;
	}
	if (!s->back_failed)
		wake_all(s);
	s->back_failed = true;
	return false;
}

bool back_step(struct sock *s)
{
	struct stream *t = s->stream;

	if (atomic_load(&s->mode) != SOCK_ON)
		return true;
	if (!t->back.on) {
		if (!stream_peer_stopped(t))
			return false;
		if (back_unused(s))
			return true;
		back_start(s, "the other end went back to TCP",
			   stream_peer_again(t));
	}
	if (s->back_failed)
		return false;
	stream_back_nudge(t);
	/* Asked first: what it said before it died, or left, is there. One that
	 * left before it heard of our stop had not used its end: it says no
	 * "moved". */
	if (stream_peer_dead(t) || t->broken || t->peer_closed) {
		stream_back_poll(t);
		if (!t->back.peer_moved)
			return back_unused(s) || without_peer(s);
	}
	if (stream_back_poll(t) && !t->back.peer_moved)
		return without_peer(s);
	if (!t->back.moved && move(s))
		moved(s);
	/* A peer that has freed its end had all of ours from TCP's hands. */
	if (!stream_back_done(t) && !(stream_back_over(&t->back) && t->broken))
		return false;
	finish(s, s->back_why, false);
	return true;
}

static void wait_tick(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	ts.tv_nsec += TICK_NS;
	if (ts.tv_nsec >= 1000000000) {
		ts.tv_nsec -= 1000000000;
		ts.tv_sec++;
	}
	pthread_cond_clockwait(&st.back_cond, &st.lock, CLOCK_MONOTONIC, &ts);
}

/* The helper's steps in a child of vfork(): its numbers may be other files. */
static bool is_back(struct sock *s)
{
	return st.pid == getpid() ? back_step(s)
				  : atomic_load(&s->mode) != SOCK_ON;
}

int back_wait(struct sock *s, const char *what)
{
	const uint64_t born_ns = s->born_ns, end = state_now_ns() + BACK_NS;
	int rc = 0;

	back_start(s, what, false);
	while (s->born_ns == born_ns && !is_back(s)) {
		if (s->back_failed)
			rc = -ECONNRESET;
		else if (state_now_ns() >= end)
			rc = -ETIMEDOUT;
		if (rc) {
			state_say("skein run: %s on descriptor %d: its stream "
				  "could not be handed back to TCP: %s",
				  what, s->fd,
				  rc == -ETIMEDOUT ? "the other end does not "
						     "take its bytes"
						   : "the other end has gone");
			return rc;
		}
		wait_tick();
	}
	return s->born_ns == born_ns ? 0 : -EBADF;
}

static bool step_shared(const char *why)
{
	bool over = true;
	int fd;

	for (fd = 0; fd < st.fd_top; fd++) {
		struct sock *s = atomic_load(&st.socks[fd]);

		if (!s || !sock_must_leave(s))
			continue;
		s->ends = true;
		back_start(s, why, false);
		over &= back_step(s) || s->back_failed;
	}
	return over;
}

void back_shared(const char *why)
{
	const uint64_t end = state_now_ns() + BACK_NS;

	while (!step_shared(why) && state_now_ns() < end)
		wait_tick();
}

void back_soon(struct sock *s)
{
	const uint64_t born_ns = s->born_ns,
		       end = state_now_ns() + BACK_SOON_NS;

	while (s->born_ns == born_ns && atomic_load(&s->mode) == SOCK_ON &&
	       s->stream->back.on && s->stream->again && !s->back_failed &&
	       state_now_ns() < end && !back_step(s))
		wait_tick();
}

int back_rescue(struct sock *s, int tcp_end)
{
	struct stream *t = s->stream;
	enum stream_type type;
	const uint8_t *data;
	uint32_t len;

	if (!t->back.on || t->back.rescued)
		return 0;
	stream_back_poll(t);
	if (t->back.peer_moved)
		return 0;
	if (!s->switch_seen) {
		if (stream_peek(t, &type, &data, &len) != 1 ||
		    type != STREAM_SWITCH)
			return 0;
		memcpy(&s->rx_from, data, sizeof(s->rx_from));
		s->switch_seen = true;
		stream_consume(t, len);
	}
	/* TCP was to bring more than it did. */
	if (s->tcp_read < s->rx_from ||
	    stream_back_rescue(&t->back, &t->in, s->tcp_read - s->rx_from))
		return -ECONNRESET;
	s->rx_known = true;
	s->rx_left = 0;
	s->back_failed = true;
	s->tcp_end = tcp_end;
	return 1;
}

/* --- a forked child ------------------------------------------------------- */

static socklen_t ask_where(struct sockaddr_un *un)
{
	int n;

	memset(un, 0, sizeof(*un));
	un->sun_family = AF_UNIX;
	n = snprintf(un->sun_path + 1, sizeof(un->sun_path) - 1,
		     "skein-run-%016llx%016llx",
		     (unsigned long long)st.ask_name[0],
		     (unsigned long long)st.ask_name[1]);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			   (size_t)n);
}

int back_listen(void)
{
	struct sockaddr_un un;
	socklen_t len;

	env_random(st.env, st.ask_name, sizeof(st.ask_name));
	len = ask_where(&un);
	st.ask_fd = socket(AF_UNIX,
			   SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (st.ask_fd < 0 || bind(st.ask_fd, (void *)&un, len) ||
	    listen(st.ask_fd, 64))
		return -errno;
	return 0;
}

int back_ask_parent(struct sock *s)
{
	struct back_ask ask = {(uint64_t)(s - st.all), s->born_ns};
	struct timeval tv = {BACK_NS / 1000000000 + 1, 0};
	struct sockaddr_un un;
	socklen_t len = ask_where(&un);
	int32_t answer = -ECONNRESET;
	const real_connect_t dial = REAL(connect);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	if (REAL(setsockopt)(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)) ||
	    dial(fd, (void *)&un, len) ||
	    REAL(send)(fd, &ask, sizeof(ask), MSG_NOSIGNAL) != sizeof(ask) ||
	    REAL(recv)(fd, &answer, sizeof(answer), 0) != sizeof(answer))
		answer = -ECONNRESET;
	close(fd);
	return answer > 0 ? -ECONNRESET : answer;
}

void back_answer(void)
{
	int fd = accept4(st.ask_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct asker *a = fd >= 0 ? calloc(1, sizeof(*a)) : NULL;
	struct ucred cred = {0};
	socklen_t len = sizeof(cred);

	if (a && !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) &&
	    cred.uid == geteuid()) {
		a->fd = fd;
		a->deadline = state_now_ns() + BACK_NS;
		a->next = st.askers;
		st.askers = a;
		return;
	}
	free(a);
	if (fd >= 0)
		close(fd);
}

/* What it is told; 1: it waits on. */
static int answer_for(struct asker *a)
{
	struct back_ask ask;
	ssize_t n;

	if (!a->s) {
		n = REAL(recv)(a->fd, &ask, sizeof(ask), MSG_DONTWAIT);
		if (n < 0 && errno == EAGAIN)
			return state_now_ns() < a->deadline ? 1 : -ETIMEDOUT;
		if (n != sizeof(ask) || ask.index >= st.used)
			return -EINVAL;
		a->s = &st.all[ask.index];
		a->born_ns = ask.born_ns;
	}
	/* Not on a stream any more; a close hands it back first. */
	if (a->s->born_ns != a->born_ns || atomic_load(&a->s->mode) != SOCK_ON)
		return 0;
	back_start(a->s, "a forked child uses it too", false);
	if (back_step(a->s))
		return 0;
	if (a->s->back_failed)
		return -ECONNRESET;
	return state_now_ns() < a->deadline ? 1 : -ETIMEDOUT;
}

bool back_round(void)
{
	const real_send_t tell = REAL(send);
	struct sock *s, *next;
	struct asker **at = &st.askers, *a;
	bool closed;

	pthread_mutex_lock(&st.lock);
	for (s = st.backs; s; s = next) {
		next = s->back_next;
		if (!back_step(s) && s->back_failed)
			back_leave(s);
	}
	while ((a = *at)) {
		int32_t answer = answer_for(a);

		if (answer == 1) {
			at = &a->next;
			continue;
		}
		*at = a->next;
		tell(a->fd, &answer, sizeof(answer),
		     MSG_DONTWAIT | MSG_NOSIGNAL);
		close(a->fd);
		free(a);
	}
	s = st.backs;
	closed = st.closed;
	pthread_mutex_unlock(&st.lock);
	if (closed)
		sock_end_closed();
	return s || st.askers;
}
