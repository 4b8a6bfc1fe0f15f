/* SPDX-License-Identifier: MIT */
/*
 * sock.h - one TCP connection of the program: on TCP, or on a stream.
 *
 * A stream carries the bytes; the TCP socket stays open, carries its state
 * (names, options, the end), and says when the peer is gone. Each direction is
 * switched for itself: its writer says in the ring's first record how many
 * bytes went by TCP, its reader takes these first.
 *
 * Thread rule: `mode` and `inflight` are how a call on TCP goes without a lock
 * (sock_begin); all else needs st.lock.
 */
#ifndef SKEIN_BIND_SOCKET_SOCK_H
#define SKEIN_BIND_SOCKET_SOCK_H

#include "bind/socket/meet.h"
#include "bind/socket/state.h"
#include "bind/socket/status.h"
#include "stream/stream.h"

#include <sys/epoll.h>

enum sock_mode {
	SOCK_FREE,
	SOCK_TCP,  /* on TCP, and may be promoted */
	SOCK_TIED, /* on TCP for good; `reason` says why */
	SOCK_ON,   /* reads and writes come to us */
	SOCK_LOST, /* the parent's stream, in a forked child that has not used it */
};

/* A call found that the socket is on TCP after all: it goes to the kernel. */
#define SOCK_RETRY (-2)
/* What was written is on its way for so long at the most when a call ends it. */
#ifndef SOCK_DRAIN_NS
#define SOCK_DRAIN_NS 1000000000u
#endif

struct meeting;
struct sock_waiter;

struct sock {
	struct sock *next; /* spare, or the helper's list */
	atomic_int mode;
	/* calls that are in the kernel on behalf of this socket: none while it
	 * is promoted */
	atomic_int inflight;
	atomic_uint calls; /* that moved bytes */
	atomic_uint next_try;
	int fd;
	bool accepting, queued, prepared;
	bool rests; /* gave its stream back; traffic promotes it again */
	unsigned tries;
	const char *reason;
	struct meet_names names;
	struct meeting *meeting;
	/* epoll */
	struct set *set;
	bool in_set;	/* as the program knows it */
	bool in_kernel; /* registered there, with our token */
	uint32_t events;
	uint64_t data;
	/* promoted */
	struct stream *stream;
	uint64_t tcp_read; /* bytes that the program read by TCP */
	uint64_t rx_left;  /* until the ring's first byte; once rx_known */
	uint64_t rx_from;  /* bytes by TCP before the ring's first */
	bool rx_known, tx_on, wr_shut;
	bool switch_seen;
	/* on its way back (back.c) */
	struct sock *back_next;
	const char *back_why;
	bool back_failed; /* the peer has gone on the way */
	int tcp_end;	 /* 0 or -errno: TCP's end, when the rest was rescued */
	bool shared;	 /* a forked child has it too, and it is on a stream */
	uint32_t holder; /* 1 and the index in st.holders; 0: none */
	bool tcp_event;	 /* the kernel's set had something to say of it */
	bool reset_seen; /* ECONNRESET was said: EPIPE from now on */
	bool nonblock;	 /* O_NONBLOCK */
	bool inq;	 /* TCP_INQ */
	int64_t rcv_timeout, snd_timeout; /* ns; 0: none */
	/* edge-triggered: */
	bool edge;	   /* something is new, if only the question */
	bool blocked;	   /* a write found no room */
	int edge_broken;   /* stream->broken, as it was looked at last */
	uint32_t edge_seq; /* stream_arrival.seq, the same */
	struct sock_waiter
		*waiters; /* threads that wait for it outside of a set */
	uint64_t look_ns;
	/* the report */
	uint64_t born_ns, asked_ns, on_ns;
	uint64_t promote_ns; /* what its last promotion took */
	uint64_t tcp_ns;     /* on TCP since then */
	unsigned demotions;
	/* idle.c: its bytes at the last look, and since when they are that */
	uint64_t idle_bytes, idle_ns;
};

/* What the status page says of it. */
static inline struct status_row *sock_row(const struct sock *s)
{
	return &st.page->rows[s - st.all];
}

/* Of one that is not on its way yet, or was never used there, nobody says that it
 * is on a stream. */
static inline bool sock_on_stream(const struct sock *s)
{
	return atomic_load(&s->mode) == SOCK_ON && (s->tx_on || s->switch_seen);
}

/* A connection of ours begins; fd is its socket. */
void sock_track(int fd, bool accepting);
/* A socket that is not connected yet is used in a way that we would have to know
 * of: once connected it stays on TCP. */
void sock_pin(int fd, const char *reason);
/* Stays on TCP from now on; one that is on a stream is handed back first, which
 * may take 10 s. Not 0, with errno: it could not be, and the call that asks for
 * this must fail. What: the call. Any thread, without the lock. */
int sock_refuse(int fd, const char *what);
/* The same for one that may be no socket of ours at all. */
static inline int sock_keep(int fd, const char *what)
{
	return sock_at(fd) ? sock_refuse(fd, what) : 0;
}
void sock_tie_locked(struct sock *s, const char *reason);
/* It is on TCP, without a stream, until st.after further calls of its program.
 * Locked. */
void sock_rest(struct sock *s);
/* The peer has taken back a stream that s has not used: rests, or stays on TCP,
 * as the peer says. Locked. */
void sock_unprepare(struct sock *s);
/* In a forked child: the first use of a stream of the parent's, which hands it
 * back. -errno. Locked. */
int sock_inherit(struct sock *s);

void sock_try(struct sock *s);

/* Does no other process have it? Only our own fork makes it more again. */
bool sock_is_sole(const struct sock *s);
/* Around fork(), with the lock held: may parent or child promote it, once the
 * other has closed it? Not one that was used, or is in an epoll set: what one of
 * them has read by TCP the other one does not know. */
void sock_fork_prepare(struct sock *s);
void sock_fork_parent(struct sock *s);
void sock_fork_child(struct sock *s);

/* True: the call goes to the kernel, and sock_done() ends it. False: the socket
 * is on a stream. */
static inline bool sock_begin(struct sock *s)
{
	/* Both sequentially consistent, as are the store and the load in
	 * sock_commit(): either the call is seen there, or the mode here. */
	atomic_fetch_add(&s->inflight, 1);
	if (atomic_load(&s->mode) < SOCK_ON)
		return true;
	atomic_fetch_sub(&s->inflight, 1);
	return false;
}

static inline void sock_end(struct sock *s)
{
	atomic_fetch_sub(&s->inflight, 1);
}

/* bytes: where the n bytes are counted, or NULL. */
static inline ssize_t sock_done(struct sock *s, ssize_t n,
				_Atomic uint64_t *bytes)
{
	if (n > 0 && bytes)
		atomic_fetch_add_explicit(bytes, (uint64_t)n,
					  memory_order_relaxed);
	atomic_fetch_sub(&s->inflight, 1);
	if (n > 0 &&
	    atomic_load_explicit(&s->mode, memory_order_relaxed) == SOCK_TCP) {
		unsigned calls = atomic_fetch_add_explicit(
					 &s->calls, 1, memory_order_relaxed) +
				 1;

		if (calls >=
		    atomic_load_explicit(&s->next_try, memory_order_relaxed))
			sock_try(s);
	}
	return n;
}

/* Of a socket on a stream, s being sock_at(fd) of a moment ago; errno is set.
 * SOCK_RETRY: it is on none. inq: may be NULL; what TCP_INQ says, or -1. */
ssize_t sock_recv(int fd, struct sock *s, const struct iovec *iov, int n,
		  int flags, int *inq);
ssize_t sock_send(int fd, struct sock *s, const struct iovec *iov, int n,
		  int flags);
int sock_shutdown(int fd, struct sock *s, int how);
int sock_unread(struct sock *s);
/* The descriptor is about to be closed, or taken by another file. Real close is
 * the caller's. */
void sock_forget(int fd);

/* Waits until done(), with the lock on entry and on return, but not while it
 * waits: other sockets go on. False: SOCK_DRAIN_NS were over. */
bool sock_wait(bool (*done)(void *arg), void *arg);
/* Waits, so, until the peer has what was written to a stream, which the caller has
 * taken off its socket, or knows to be this one: go_on() says if it still is.
 * After SOCK_DRAIN_NS a line says that bytes may be lost. */
void sock_drain(struct stream *stream, bool (*go_on)(void *arg), void *arg);
/* Under --require: ends the program where s had a meeting that came to nothing,
 * and was on no stream. Locked. True: it would, and `now` is false. */
bool sock_require(const struct sock *s, bool now);

/* With the lock held. Why it cannot be promoted as it is now, or NULL. */
const char *sock_unfit(const struct sock *s);
bool sock_commit(struct sock *s);
/* Reads the flags and options that calls on a stream go by. */
bool sock_facts(struct sock *s);
/* What epoll would say. 0 also where it has fallen back to TCP. */
uint32_t sock_ready(struct sock *s, uint32_t wanted);
/* Is there something new, for an edge-triggered waiter? */
bool sock_edge(struct sock *s);

/* The helper's thread; starts it when it does not run. Locked. */
void helper_ask(struct sock *s);
void helper_free(struct stream *stream);
void meeting_drop(struct meeting *m);

/* As this end sees them. -errno. */
int names_of(int fd, struct meet_names *names);
/* " with 10.0.0.7:6379", its peer; "" where it has none, or none any more. */
void report_with(const struct sock *s, char *buf, size_t len);
/* A line of the report. Locked. */
void report_line(struct sock *s);

#endif
