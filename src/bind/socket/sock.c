/* SPDX-License-Identifier: MIT */
/*
 * sock.c - a connection's way from TCP onto a stream, and its end.
 */
#include "bind/socket/sock.h"

#include "base/assert.h"
#include "bind/own/own.h"
#include "bind/socket/back.h"
#include "bind/socket/counts.h"
#include "bind/socket/idle.h"
#include "bind/socket/set.h"
#include "bind/socket/wait.h"
#include "env/env.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- the way there ------------------------------------------------------- */

static struct sock *sock_new(void)
{
	struct sock *s = st.spare;

	if (!s)
		return st.used < FD_MAX ? &st.all[st.used++] : NULL;
	st.spare = s->next;
	memset(s, 0, sizeof(*s));
	return s;
}

static bool is_tcp(int fd)
{
	int protocol = 0;
	socklen_t len = sizeof(protocol);

	return !getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &len) &&
	       protocol == IPPROTO_TCP;
}

#define HOLDER_PROBES 64
/* Beside the count: the stream that the parent had is on TCP again. */
#define HOLDER_BACK 0x80000000u

/* Without one of its own it stays on TCP from the first fork on. A process that
 * is killed, or starts another program, leaves its share behind: too many
 * holders keep a connection on TCP, too few never happen. */
static uint32_t holder_get(void)
{
	uint32_t i, at, none;

	for (i = 0; i < HOLDER_PROBES; i++) {
		at = st.holder_next++ % FD_MAX;
		none = 0;
		if (atomic_compare_exchange_strong(&st.holders[at], &none, 1))
			return at + 1;
	}
	return 0;
}

void sock_put_holder(struct sock *s)
{
	_Atomic uint32_t *at = s->holder ? &st.holders[s->holder - 1] : NULL;

	if (at && atomic_fetch_sub(at, 1) - 1 == HOLDER_BACK)
		atomic_store(at, 0);
	s->holder = 0;
}

bool sock_is_sole(const struct sock *s)
{
	return !s->holder ||
	       (atomic_load(&st.holders[s->holder - 1]) & ~HOLDER_BACK) == 1;
}

void sock_tell_children(const struct sock *s)
{
	if (s->holder)
		atomic_fetch_or(&st.holders[s->holder - 1], HOLDER_BACK);
}

static bool parent_is_back(const struct sock *s)
{
	return s->holder &&
	       atomic_load(&st.holders[s->holder - 1]) & HOLDER_BACK;
}

bool sock_must_leave(const struct sock *s)
{
	return atomic_load(&s->mode) == SOCK_ON && s->shared &&
	       !s->back_failed && (!s->holder || !sock_is_sole(s));
}

static bool fork_leaves(const struct sock *s)
{
	return atomic_load(&s->mode) == SOCK_TCP && s->holder && !s->set &&
	       !s->queued && !atomic_load(&s->calls) &&
	       !atomic_load(&s->inflight);
}

void sock_fork_prepare(struct sock *s)
{
	if (s->holder)
		atomic_fetch_add(&st.holders[s->holder - 1], 1);
}

void sock_fork_parent(struct sock *s)
{
	if (fork_leaves(s))
		return;
	if (atomic_load(&s->mode) == SOCK_TCP)
		sock_tie_locked(s, "a forked child may have it too");
	s->shared = true;
	if (atomic_load(&s->mode) == SOCK_ON)
		atomic_store(&st.shares, true);
}

/* The rings of a stream are the parent's. */
void sock_fork_child(struct sock *s)
{
	bool on = atomic_load(&s->mode) >= SOCK_ON;

	if (s->closed) {
		REAL(close)(s->fd);
		atomic_store(&st.socks[s->fd], NULL);
		return;
	}
	if (!fork_leaves(s) || atomic_load(&st.helper_runs))
		atomic_store(&s->mode, on ? SOCK_LOST : SOCK_TIED);
	s->set = NULL; /* the parent's, as its bell is */
}

/* The kernel forgets the peer of a connection that is reset, and the report is
 * written after that. Before the socket is connected it knows none: then the first call
 * that moves bytes tries once more. Returns after how many calls there is something to
 * do. */
static unsigned take_names(struct sock *s)
{
	bool wanted = (st.report && *st.report) || st.require;

	return wanted && names_of(s->fd, &s->names) ? 1 : st.after;
}

static struct sock *track_locked(int fd, bool accepting)
{
	struct sock *s = atomic_load(&st.socks[fd]);

	if (s)
		return s;
	s = sock_new();
	if (!s)
		return NULL;
	s->fd = fd;
	s->numbers = 1;
	s->accepting = accepting;
	s->holder = holder_get();
	s->born_ns = s->tcp_ns = state_now_ns();
	atomic_store(&s->next_try, take_names(s));
	atomic_store(&s->mode, SOCK_TCP);
	status_update(s);
	atomic_store(&st.socks[fd], s);
	state_top(fd);
	return s;
}

static bool may_track(int fd)
{
	return (unsigned)fd < FD_MAX && atomic_load(&st.on) &&
	       !atomic_load(&st.forked) && !atomic_load(&st.sandboxed) &&
	       is_tcp(fd);
}

void sock_track(int fd, bool accepting)
{
	ENV_HOLD_CANCEL();
	int err = errno;

	if (may_track(fd)) {
		pthread_mutex_lock(&st.lock);
		track_locked(fd, accepting);
		pthread_mutex_unlock(&st.lock);
	}
	errno = err;
}

void sock_pin(int fd, const char *reason)
{
	ENV_HOLD_CANCEL();
	int err = errno;
	struct tcp_info ti;
	socklen_t len = sizeof(ti);
	struct sock *s;

	if (!sock_at(fd) && may_track(fd) &&
	    !getsockopt(fd, IPPROTO_TCP, TCP_INFO, &ti, &len) &&
	    ti.tcpi_state == TCP_CLOSE) {
		pthread_mutex_lock(&st.lock);
		s = track_locked(fd, false);
		if (s)
			sock_tie_locked(s, reason);
		pthread_mutex_unlock(&st.lock);
	}
	errno = err;
}

/* --- several numbers ----------------------------------------------------- */

struct sock *sock_copy_begin(int fd)
{
	struct sock *s = sock_at(fd);

	if (!s || st.pid != getpid())
		return NULL;
	pthread_mutex_lock(&st.lock);
	if (sock_at(fd) == s && atomic_load(&s->mode) >= SOCK_ON)
		return s;
	pthread_mutex_unlock(&st.lock);
	return NULL;
}

/* The C library's streams write to 0, 1 and 2 past any preload. */
bool sock_copy_end(struct sock *s, int copy)
{
	bool carried = copy < 0 || (copy > 2 && copy < FD_MAX);

	if (copy >= 0 && carried) {
		s->numbers++;
		atomic_store(&st.socks[copy], s);
		state_top(copy);
	}
	pthread_mutex_unlock(&st.lock);
	return carried;
}

void sock_renumber(struct sock *s, int fd)
{
	s->fd = fd;
	status_update(s);
}

/* The program closes one of several. As epoll has it, its set reports the socket
 * for as long as there is another number. */
static void leave_number(struct sock *s, int fd)
{
	int other;

	atomic_store(&st.socks[fd], NULL);
	s->numbers--;
	wait_wake(s);
	if (s->fd != fd)
		return;
	if (s->set && !s->in_set)
		set_drop(s->set, s);
	if (s->set)
		sock_tie_locked(s, "its number in an epoll set is closed");
	s->in_kernel = false;
	s->set_fd = -1;
	for (other = 0; atomic_load(&st.socks[other]) != s; other++)
		;
	sock_renumber(s, other);
}

bool sock_ask(struct sock *s)
{
	s->asks += sock_must_ask(s);
	if (sock_looks_again(s))
		return false;
	return stream_ask(s->stream, poller_mode(&st.poller) == POLLER_EVENT) &&
	       stream_drained(s->stream);
}

/* Bytes that a stream has carried; what TCP took over from it is the kernel's to
 * count. */
static struct counts carried(const struct stream *t)
{
	const struct stream_back *b = &t->back;
	uint64_t read = b->on && !b->rescued ? t->in.bytes : t->in.ahead.bytes;

	return (struct counts){t->out.bytes - b->took, read};
}

void sock_add_info(struct sock *s, void *value, socklen_t len)
{
	struct counts c;
	bool ended = false, peer_ended = false;

	pthread_mutex_lock(&st.lock);
	c = (struct counts){s->tx_gone, s->rx_gone};
	if (atomic_load(&s->mode) == SOCK_ON) {
		struct counts now;

		peer_ended = stream_in_ahead(&s->stream->in)->end;
		ended = s->stream->ended;
		now = carried(s->stream);
		c.written += now.written;
		c.read += now.read;
	}
	pthread_mutex_unlock(&st.lock);
	counts_add(&c, ended, peer_ended, value, len);
}

void sock_count(struct sock *s)
{
	struct counts c;

	if (!s->stream)
		return;
	c = carried(s->stream);
	s->tx_gone += c.written;
	s->rx_gone += c.read;
	s->records += s->stream->records;
	s->bells += s->stream->bells;
}

/* It leaves its meeting and its stream; refuses: the other end is told that it
 * stays on TCP. */
static void leave_stream(struct sock *s, bool refuses)
{
	if (s->meeting)
		meeting_drop(s->meeting, refuses);
	sock_count(s);
	if (s->stream && refuses)
		stream_refuse(s->stream);
	if (s->stream)
		helper_free(s->stream);
	s->stream = NULL;
	s->prepared = false;
}

/* A child of vfork() shares the lock: it may be about to take it, or have it now.
 * Then its parent ends at its next close, or at its own end. Locked. */
static _Noreturn void end_required(void)
{
	atomic_store(&st.refused, true);
	pthread_mutex_unlock(&st.lock);
	REAL(_exit)(70);
	abort();
}

void sock_tie_locked(struct sock *s, const char *reason)
{
	char with[80];

	if (atomic_load(&s->mode) != SOCK_TCP)
		return;
	atomic_store(&s->mode, SOCK_TIED);
	s->reason = reason;
	leave_stream(s, true);
	status_update(s);
	/* One that rests was on a stream, one that ends is on it to its end. */
	if (st.require && !s->rests && !s->ends) {
		report_with(s, with, sizeof(with));
		state_say("skein run: a connection%s stays on TCP: %s", with,
			  reason);
		end_required();
	}
}

void sock_over(struct sock *s)
{
	if (atomic_load(&s->mode) != SOCK_TCP)
		return;
	leave_stream(s, false);
	/* The other end had answered, or had no time to. */
	s->tries = 0;
	s->reason = "it ended before it was promoted";
	atomic_store(&s->next_try, UINT_MAX);
	status_update(s);
}

void sock_rest(struct sock *s)
{
	leave_stream(s, false);
	s->rests = true;
	s->queued = s->tx_on = s->switch_seen = false;
	s->rx_known = s->back_failed = s->reset_seen = s->blocked =
		s->tcp_broke = s->tcp_over = false;
	s->tries = s->edge_seq = 0;
	s->edge_broken = s->tcp_end = 0;
	s->asked_ns = s->on_ns = s->idle_ns = s->gone_ns = 0;
	/* Half a connection is no more promoted. */
	atomic_store(&s->next_try,
		     s->wr_shut ? UINT_MAX : atomic_load(&s->calls) + st.after);
	status_update(s);
}

void sock_unprepare(struct sock *s)
{
	if (atomic_load(&s->mode) == SOCK_TCP && stream_peer_again(s->stream))
		sock_rest(s);
	else
		sock_tie_locked(s, "the other end went back to TCP");
}

bool sock_require(const struct sock *s, bool now)
{
	const char *why = sock_reason(s);
	char with[80];

	if (atomic_load(&st.refused) && now)
		end_required();
	if (atomic_load(&st.refused))
		return true;
	if (!st.require || atomic_load(&s->mode) != SOCK_TCP || !s->tries ||
	    s->rests)
		return false;
	report_with(s, with, sizeof(with));
	state_say("skein run: a connection%s was on TCP to its end: %s%s", with,
		  why,
		  why == sock_unanswered
			  ? "; it has to be started by skein run, too"
			  : "");
	if (now)
		end_required();
	return true;
}

void sock_start_back(struct sock *s, const char *what)
{
	ENV_HOLD_CANCEL();

	pthread_mutex_lock(&st.lock);
	back_start(s, what, false);
	pthread_mutex_unlock(&st.lock);
}

int sock_refuse(int fd, const char *what)
{
	ENV_HOLD_CANCEL();
	struct sock *s = sock_at(fd);
	int rc = 0, mode;

	if (!s)
		return 0;
	pthread_mutex_lock(&st.lock);
	mode = atomic_load(&s->mode);
	if (mode == SOCK_ON)
		rc = back_wait(s, what);
	else if (mode == SOCK_LOST)
		rc = sock_inherit(s);
	else
		sock_tie_locked(s, what);
	pthread_mutex_unlock(&st.lock);
	/* A child of vfork() starts no program behind its parent's end. */
	if (atomic_load(&st.refused))
		REAL(_exit)(70);
	if (rc)
		errno = -rc;
	return rc;
}

/* A parent that was killed leaves many at once. */
static void say_lost(const struct sock *s, int err)
{
	unsigned others = 0;
	char more[48] = "";
	uint32_t left_out;
	int fd;

	if (!env_log_due(&st.lost_said, state_now_ns(), &left_out))
		return;
	for (fd = 0; fd < st.fd_top; fd++) {
		const struct sock *o = sock_at(fd);

		others += o && o != s && o->fd == fd && !o->reset_seen &&
			  atomic_load(&o->mode) == SOCK_LOST &&
			  !parent_is_back(o);
	}
	if (others)
		snprintf(more, sizeof(more), "; %u more are on its streams",
			 others);
	state_say("skein run: descriptor %d is on a stream of the parent's, "
		  "which could not hand it back: %s%s",
		  s->fd, strerror(err), more);
}

int sock_inherit(struct sock *s)
{
	int rc = parent_is_back(s) ? 0
		 : s->reset_seen   ? -ECONNRESET
				   : back_ask_parent(s);

	/* It may have gone just now, in order. */
	if (!rc || parent_is_back(s)) {
		atomic_store(&s->mode, SOCK_TIED);
		return 0;
	}
	if (!s->reset_seen)
		say_lost(s, -rc);
	s->reset_seen = true;
	return -ECONNRESET;
}

void sock_try(struct sock *s)
{
	ENV_HOLD_CANCEL();
	int err = errno;

	pthread_mutex_lock(&st.lock);
	/* Another thread's call may have come here first. */
	if (atomic_load(&s->mode) == SOCK_TCP &&
	    atomic_load(&s->calls) >= atomic_load(&s->next_try)) {
		if (atomic_load(&s->next_try) == 1 && st.after > 1) {
			take_names(s);
			atomic_store(&s->next_try, st.after);
		} else if (s->prepared) {
			sock_commit(s);
		} else if (!sock_is_sole(s)) {
			atomic_fetch_add(&s->next_try, st.after);
		} else if (!s->queued) {
			s->shared = false;
			helper_ask(s);
		}
	}
	pthread_mutex_unlock(&st.lock);
	errno = err;
}

const char *sock_unfit(const struct sock *s)
{
	socklen_t len = sizeof(int);
	int low = 1;

	if (s->set && s->set->tied)
		return "its epoll set is not carried";
	/* A reader is to be woken by the kernel only, at so many bytes. */
	if (!getsockopt(s->fd, SOL_SOCKET, SO_RCVLOWAT, &low, &len) && low > 1)
		return "SO_RCVLOWAT";
	return atomic_load(&st.no_more);
}

bool sock_facts(struct sock *s)
{
	int flags = REAL(fcntl)(s->fd, F_GETFL), inq = 0;
	socklen_t len = sizeof(inq);
	struct timeval tv;

	if (flags < 0 || getsockopt(s->fd, IPPROTO_TCP, TCP_INQ, &inq, &len))
		return false;
	s->nonblock = flags & O_NONBLOCK;
	s->inq = inq;
	len = sizeof(tv);
	if (getsockopt(s->fd, SOL_SOCKET, SO_RCVTIMEO, &tv, &len))
		return false;
	s->rcv_timeout = wait_ns(tv.tv_sec, tv.tv_usec, 1000);
	if (getsockopt(s->fd, SOL_SOCKET, SO_SNDTIMEO, &tv, &len))
		return false;
	s->snd_timeout = wait_ns(tv.tv_sec, tv.tv_usec, 1000);
	return true;
}

bool sock_commit(struct sock *s)
{
	struct counts c;
	const char *why;

	if (atomic_load(&s->mode) != SOCK_TCP || !s->prepared)
		return false;
	why = sock_unfit(s);
	if (why) {
		sock_tie_locked(s, why);
		return false;
	}
	if (stream_peer_stopped(s->stream)) {
		sock_unprepare(s);
		return false;
	}
	/* No child has it any more. */
	if (s->holder)
		atomic_fetch_and(&st.holders[s->holder - 1], ~HOLDER_BACK);
	atomic_store(&s->mode, SOCK_ON);
	if (atomic_load(&s->inflight)) {
		/* A call is in the kernel: that one tries again when it is
		 * done. */
		atomic_store(&s->mode, SOCK_TCP);
		return false;
	}
	if (!sock_facts(s) || counts_take(s->fd, !s->accepting, &c) ||
	    (s->set && set_promote(s->set, s))) {
		atomic_store(&s->mode, SOCK_TCP);
		if (counts_ended(s->fd))
			sock_over(s);
		else
			sock_tie_locked(s, "a system call for it failed");
		return false;
	}
	s->tcp_read = c.read;
	s->tcp_event = s->edge = true;
	s->on_ns = state_now_ns();
	s->promote_ns = s->on_ns - s->asked_ns;
	s->idle_ns = 0;
	s->rests = false;
	stream_accept(s->stream);
	idle_watch();
	if (s->set)
		set_wake(s->set);
	status_update(s);
	return true;
}

/* --- the end ------------------------------------------------------------- */

/* The peer reads ECONNRESET, as TCP has it where bytes were not read. */
static void reset_by_close(int fd)
{
	struct linger hard = {.l_onoff = 1, .l_linger = 0};
	const real_setsockopt_t set = REAL(setsockopt);

	set(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
}

/* Does the program want a close to reset the connection? Then no END says that
 * what the peer has read is all. */
static bool resets(const struct sock *s)
{
	struct linger l = {0};
	socklen_t len = sizeof(l);

	return !getsockopt(s->fd, SOL_SOCKET, SO_LINGER, &l, &len) &&
	       l.l_onoff && !l.l_linger;
}

static void end_stream(struct sock *s)
{
	/* On the way back the kernel knows what was not read, and a peer that is
	 * done with the stream breaks it: no reset may take the bytes that wait
	 * in TCP. */
	if (s->stream->back.on)
		;
	else if (s->stream->broken || sock_unread(s))
		reset_by_close(s->fd);
	else if (s->tx_on && !s->wr_shut && !resets(s))
		stream_end(s->stream);
}

bool sock_wait(bool (*done)(void *arg), void *arg)
{
	uint64_t end = state_now_ns() + SOCK_DRAIN_NS;

	while (!done(arg)) {
		if (state_now_ns() >= end)
			return false;
		pthread_mutex_unlock(&st.lock);
		env_yield(st.env);
		pthread_mutex_lock(&st.lock);
	}
	return true;
}

/* s is NULL: the stream has left its socket. */
struct sock_end {
	struct stream *stream;
	struct sock *s;
	int fd;
};

/* Another thread may have closed it meanwhile, or had it handed back. */
static bool is_same(const struct sock_end *e)
{
	return !e->s || (sock_at(e->fd) == e->s && e->s->stream == e->stream &&
			 atomic_load(&e->s->mode) == SOCK_ON);
}

static bool has_drained(void *arg)
{
	const struct sock_end *e = arg;

	return !is_same(e) ||
	       (stream_flush(e->stream) && stream_drained(e->stream));
}

static bool drain(struct sock_end e)
{
	st.draining++;
	if (!sock_wait(has_drained, &e))
		state_say("skein run: the peer has not taken what was written "
			  "before a stream's end, bytes may be lost");
	st.draining--;
	return is_same(&e);
}

bool sock_drain(int fd, struct sock *s)
{
	return drain((struct sock_end){s->stream, s, fd});
}

static void leave_todo(struct sock *s)
{
	struct sock **at = &st.todo;

	while (*at && *at != s)
		at = &(*at)->next;
	if (*at)
		*at = s->next;
}

/* The next connection begins as a new one does, but that its epoll set knows it
 * already. */
static void begin_again(struct sock *s)
{
	sock_count(s);
	report_line(s);
	back_leave(s);
	if (s->set && atomic_load(&s->mode) == SOCK_ON && set_demote(s->set, s))
		set_remove(s->set, s);
	if (atomic_load(&s->mode) == SOCK_ON)
		atomic_store(&s->mode, SOCK_TCP);
	sock_tell_children(s);
	leave_todo(s);
	sock_rest(s);
	s->rests = s->wr_shut = s->accepting = s->shared = false;
	s->reason = s->back_why = NULL;
	s->names = (struct meet_names){0};
	s->demotions = 0;
	s->records = s->bells = s->asks = s->full = 0;
	s->tx_gone = s->rx_gone = 0;
	s->tcp_ns = state_now_ns();
	atomic_store(&s->calls, 0);
	atomic_store(&s->next_try, take_names(s));
	status_end(s);
	if (s->set)
		set_wake(s->set);
	wait_wake(s);
	pthread_cond_broadcast(&st.back_cond);
}

int sock_disconnect(int fd, struct sock *s, const struct sockaddr *addr,
		    socklen_t len)
{
	ENV_HOLD_CANCEL();
	const real_connect_t real = REAL(connect);
	int rc = 0, err;

	skein_assert(s);
	pthread_mutex_lock(&st.lock);
	if (atomic_load(&s->mode) == SOCK_LOST)
		rc = sock_inherit(s);
	if (rc) {
		errno = -rc;
		rc = -1;
	} else {
		/* What the peer has not read stays in its ring; TCP's reset
		 * comes behind it. */
		if (atomic_load(&s->mode) == SOCK_ON)
			sock_drain(fd, s);
		rc = real(fd, addr, len);
	}
	err = errno;
	if (!rc && sock_at(fd) == s && atomic_load(&s->mode) != SOCK_TIED)
		begin_again(s);
	pthread_mutex_unlock(&st.lock);
	errno = err;
	return rc;
}

/* A child that has it too goes on by TCP. The program closes its number and goes
 * on; the helper keeps another one until all bytes went. */
static bool close_later(struct sock *s)
{
	static const char why[] = "close of what a forked child has too";
	const real_fcntl_t copy = REAL(fcntl);
	int fd;

	s->ends = true;
	back_start(s, why, false);
	if (back_step(s))
		return false;
	fd = own_keep(copy(s->fd, F_DUPFD_CLOEXEC, 3));
	if (fd < 0 || fd >= FD_MAX) {
		if (fd >= 0)
			close(fd);
		back_wait(s, why);
		return false;
	}
	if (s->set)
		set_drop(s->set, s);
	atomic_store(&st.socks[s->fd], NULL);
	s->fd = fd;
	s->closed = true;
	st.closed++;
	atomic_store(&st.socks[fd], s);
	state_top(fd);
	wait_wake(s);
	return true;
}

/* Its number, or -1. */
static int next_closed(void)
{
	struct sock *s;
	int fd, found = -1;

	pthread_mutex_lock(&st.lock);
	for (fd = 0; st.closed && fd < st.fd_top && found < 0; fd++) {
		s = atomic_load(&st.socks[fd]);
		if (!s || !s->closed ||
		    (atomic_load(&s->mode) == SOCK_ON && !s->back_failed))
			continue;
		s->closed = false;
		st.closed--;
		found = fd;
	}
	pthread_mutex_unlock(&st.lock);
	return found;
}

void sock_end_closed(void)
{
	int fd;

	while ((fd = next_closed()) >= 0) {
		sock_forget(fd);
		close(fd);
	}
}

void sock_forget(int fd)
{
	ENV_HOLD_CANCEL();
	struct stream *stream = NULL;
	bool drains = false;
	struct sock *s;

	/* A child of vfork() has our memory, and closes its own copies. */
	if (st.pid != getpid() && !atomic_load(&st.forked))
		return;
	pthread_mutex_lock(&st.lock);
	s = atomic_load(&st.socks[fd]);
	if (s && s->numbers > 1) {
		leave_number(s, fd);
		pthread_mutex_unlock(&st.lock);
		return;
	}
	/* Unless the peer has ended. */
	if (s && s->shared && atomic_load(&s->mode) == SOCK_ON &&
	    !s->back_failed && st.pid == getpid()) {
		if (close_later(s)) {
			pthread_mutex_unlock(&st.lock);
			return;
		}
		s = atomic_load(&st.socks[fd]);
	}
	if (s) {
		atomic_store(&st.socks[fd], NULL);
		drains = atomic_load(&s->mode) == SOCK_ON && !back_step(s);
		if (drains)
			end_stream(s);
		back_leave(s);
		sock_count(s);
		if (!atomic_load(&st.forked)) {
			report_line(s);
			sock_require(s, true);
		}
		if (s->set)
			set_remove(s->set, s);
		wait_wake(s);
		if (s->meeting)
			meeting_drop(s->meeting, false);
		if (!atomic_load(&st.forked))
			stream = s->stream;
		leave_todo(s);
		sock_put_holder(s);
		atomic_store(&s->mode, SOCK_FREE);
		status_end(s);
		s->stream = NULL;
		s->next = st.spare;
		st.spare = s;
	}
	if (stream) {
		/* Nobody else knows it now, while it drains. */
		stream->user = NULL;
		if (drains)
			drain((struct sock_end){.stream = stream});
		helper_free(stream);
	}
	pthread_mutex_unlock(&st.lock);
}
