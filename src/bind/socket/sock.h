/* SPDX-License-Identifier: MIT */
/*
 * sock.h - one TCP connection of the program: on TCP, or on a stream.
 *
 * A stream carries the bytes. The TCP socket stays open: it keeps names and
 * options, and its end is the end of the connection. Each direction moves to
 * the stream by itself: the writer's first record says how many bytes went by
 * TCP, and the reader takes these first.
 *
 * Thread rule: st.lock. Calls on TCP use `mode` and `inflight` without it
 * (sock_begin()).
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
	SOCK_LOST, /* in a forked child: on the parent's stream, unused */
};

/* A call found that the socket is on TCP after all: it goes to the kernel. */
#define SOCK_RETRY (-2)
/* How long sock_wait() waits at most. */
#ifndef SOCK_DRAIN_NS
#define SOCK_DRAIN_NS 1000000000u
#endif

/* A peer's process is gone: how long TCP may take to tell the end. */
#define SOCK_GONE_NS 1000000000u

struct meeting;
struct sock_waiter;

struct sock {
	struct sock *next; /* spare, or the helper's list */
	atomic_int mode;
	/* calls of the program that are in the kernel for this socket; 0 while
	 * it is promoted */
	atomic_int inflight;
	atomic_uint calls; /* that moved bytes */
	atomic_uint next_try;
	int fd;		  /* one of its numbers; its set's, if it has one */
	unsigned numbers; /* of the program for it: copies by dup() */
	bool accepting, queued, prepared;
	bool rests; /* gave its stream back; traffic promotes it again */
	unsigned tries;
	const char *reason;
	struct meet_names names;
	struct meeting *meeting;
	/* epoll */
	struct set *set;
	bool in_set;	/* as the program knows it */
	bool in_kernel; /* the kernel's set has fd, with our token */
	int set_fd;	/* the program's number there; -1: closed since */
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
	bool back_failed; /* the peer ended before the way back was over */
	int tcp_end;	  /* 0 or -errno: TCP's end, after back_rescue() */
	bool shared;	  /* on a stream, and a forked child has it too */
	bool closed;	  /* by the program: fd is ours, until it is on TCP */
	bool ends;	  /* its program closes it, or ends */
	uint32_t holder;  /* 1 and the index in st.holders; 0: none */
	bool tcp_event;	  /* the kernel's set has reported an event of it */
	/* TCP was seen to be broken, perhaps before the ring says so: nothing
	 * more is written */
	bool tcp_broke;
	bool tcp_over; /* TCP says at its end that both directions are over */
	uint64_t gone_ns; /* the peer's process was seen to be gone; 0: it is not */
	bool reset_seen; /* the program has had ECONNRESET: EPIPE from now on */
	bool nonblock;	 /* O_NONBLOCK */
	bool inq;	 /* TCP_INQ */
	int64_t rcv_timeout, snd_timeout; /* ns; 0: none */
	/* edge-triggered: */
	bool edge;	   /* new: an event, or what the program waits for */
	bool blocked;	   /* a write found no room */
	int edge_broken;   /* stream->broken at the last look */
	uint32_t edge_seq; /* stream_arrival.seq at the last look */
	struct sock_waiter
		*waiters; /* threads that wait for it outside of a set */
	uint64_t look_ns;
	/* the report */
	uint64_t born_ns, asked_ns, on_ns;
	uint64_t promote_ns; /* what its last promotion took */
	uint64_t tcp_ns;     /* on TCP since then */
	unsigned demotions;
	/* What carrying it took. records and bells: of the streams that it has
	 * left; sock_count() adds them. */
	uint64_t records, bells;
	uint64_t tx_gone, rx_gone; /* bytes that those have carried */
	uint64_t asks;		   /* questions to the peer for a bell */
	uint64_t full;		   /* writes that met a full ring */
	/* idle.c: its bytes at the last look, and since when they are that */
	uint64_t idle_bytes, idle_ns;
};

/* Its row in the status page. */
static inline struct status_row *sock_row(const struct sock *s)
{
	return &st.page->rows[s - st.all];
}

/* Has the stream carried a record? A stream that carried none is reported as
 * TCP. */
static inline bool sock_on_stream(const struct sock *s)
{
	return atomic_load(&s->mode) == SOCK_ON && (s->tx_on || s->switch_seen);
}

/* A connection begins that may be promoted; fd is its socket. */
void sock_track(int fd, bool accepting);
/* Around a call that gives a socket on a stream another number. NULL: on none,
 * or the number of a copy says nothing (a child of vfork()). Else the lock is
 * held until the second one; copy: the new number, or -1. False: it cannot be
 * carried by that number. */
struct sock *sock_copy_begin(int fd);
bool sock_copy_end(struct sock *s, int copy);
/* This one of its numbers is `fd` from now on. Locked. */
void sock_renumber(struct sock *s, int fd);
/* The program uses a socket, before it is connected, in a way that a stream
 * does not carry: once connected it stays on TCP. */
void sock_pin(int fd, const char *reason);
/* The socket stays on TCP from now on. One that is on a stream goes back to TCP
 * first, which may take 10 s. Not 0: it could not go back; errno is set, and
 * the call of the program must fail. what: the name of that call. Any thread,
 * without the lock. */
int sock_refuse(int fd, const char *what);
/* The first part of sock_refuse(), so that many need not wait one after the
 * other. */
void sock_start_back(struct sock *s, const char *what);
/* The same for any descriptor. */
static inline int sock_keep(int fd, const char *what)
{
	return sock_at(fd) ? sock_refuse(fd, what) : 0;
}
void sock_tie_locked(struct sock *s, const char *reason);
/* The connection ends before it was promoted: it stays on TCP, undecided.
 * Locked. */
void sock_over(struct sock *s);
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

/* Does this process alone have it? True until this process forks. */
bool sock_is_sole(const struct sock *s);
/* The process has it no more: as sole, so all the others. */
void sock_put_holder(struct sock *s);
/* Its stream is on TCP again: forked children use it without asking. */
void sock_tell_children(const struct sock *s);
/* Before this process ends or becomes another program: is it on a stream that a
 * child would need? Locked. */
bool sock_must_leave(const struct sock *s);
/* Around fork(), with the lock held. They decide whether parent or child may
 * promote the socket once the other has closed it. A socket that was used, or
 * is in an epoll set, stays on TCP: neither process knows what the other one
 * has read by TCP. */
void sock_fork_prepare(struct sock *s);
void sock_fork_parent(struct sock *s);
void sock_fork_child(struct sock *s);

/* True: the call goes to the kernel; sock_done() or sock_end() follows it.
 * False: the socket is on a stream. */
static inline bool sock_begin(struct sock *s)
{
	/* Sequentially consistent, as are the store of mode and the load of
	 * inflight in sock_commit(): either sock_commit() sees this call, or
	 * this call sees the new mode. */
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

/* Calls on a socket that is on a stream; s is what sock_at(fd) has returned.
 * errno is set. SOCK_RETRY: it is not on a stream any more. inq: may be NULL;
 * what TCP_INQ reports, or -1. */
ssize_t sock_recv(int fd, struct sock *s, const struct iovec *iov, int n,
		  int flags, int *inq);
ssize_t sock_send(int fd, struct sock *s, const struct iovec *iov, int n,
		  int flags);
int sock_shutdown(int fd, struct sock *s, int how);
/* What was written by TCP leaves at once: none of it waits in the kernel, as
 * Nagle's algorithm has it, until the peer has acknowledged what came before. False:
 * the program corks it, or a call failed. Locked. */
bool sock_push(struct sock *s);
int sock_unread(struct sock *s);
/* connect() with AF_UNSPEC: the connection is reset, and the socket may be
 * connected again, to another peer. */
int sock_disconnect(int fd, struct sock *s, const struct sockaddr *addr,
		    socklen_t len);
/* The descriptor is about to be closed, or replaced by another file. The caller
 * makes the system call. */
void sock_forget(int fd);

/* Ends the sockets that the program has closed and that are on TCP by now. By the
 * helper, without the lock. */
void sock_end_closed(void);

/* Waits until done(), with the lock on entry and on return, but not while it
 * waits: other sockets go on. False: SOCK_DRAIN_NS were over. */
bool sock_wait(bool (*done)(void *arg), void *arg);
/* s is on a stream. Waits, as sock_wait() does, until the peer has what was written
 * to it. After SOCK_DRAIN_NS a line says that bytes may be lost. False: s is not on
 * that stream any more, or not the socket of fd. */
bool sock_drain(int fd, struct sock *s);
/* Under --require, for a socket that was on no stream because its meeting
 * failed: says so, and ends the program if `now`, else returns true. Locked. */
bool sock_require(const struct sock *s, bool now);

/* Why it cannot be promoted now, or NULL. Locked. */
const char *sock_unfit(const struct sock *s);
bool sock_commit(struct sock *s);
/* Reads the flags and options of the TCP socket that calls on a stream obey. */
bool sock_facts(struct sock *s);
/* The events that epoll would report; 0 also if it is on TCP again. */
uint32_t sock_ready(struct sock *s, uint32_t wanted);
/* Is there a new event for an edge-triggered waiter? */
bool sock_edge(struct sock *s);
/* What it costs to ask a peer for a bell: the question, the answer and the bell
 * are messages that wake a helper each. */
#define SOCK_ASK_NS 5000u
/* Must the peer be asked before a thread sleeps? */
static inline bool sock_must_ask(const struct sock *s)
{
	return s->stream->sleep == STREAM_POLLED;
}
/* The peer's process is gone, of which bells have told already, and TCP may tell
 * nothing: a sleeper looks again by itself. Asked behind the last look before the
 * sleep, for that one may have found it. */
static inline bool sock_looks_again(const struct sock *s)
{
	return s->gone_ns && !s->tcp_event;
}
/* Asks the peer for a bell. False: it could not be asked yet, or has not all
 * that was written. */
bool sock_ask(struct sock *s);
/* Adds to what the kernel has put into value, the len bytes of TCP_INFO, what
 * streams of s have carried. */
void sock_add_info(struct sock *s, void *value, socklen_t len);
/* Its stream leaves it: what the stream has counted stays. */
void sock_count(struct sock *s);

/* Asks the helper's thread to meet s's peer; starts the thread if it does not
 * run. Locked. */
void helper_ask(struct sock *s);
void helper_free(struct stream *stream);
/* The socket leaves its meeting. refuses: it stays on TCP, which the other end
 * is told; else it was closed. */
void meeting_drop(struct meeting *m, bool refuses);

/* The names of both ends of fd's connection. 0 or -errno. */
int names_of(int fd, struct meet_names *names);
/* Writes " with 10.0.0.7:6379", its peer; "" if it has no peer any more. */
void report_with(const struct sock *s, char *buf, size_t len);
/* A line of the report. Locked. */
void report_line(struct sock *s);

#endif
