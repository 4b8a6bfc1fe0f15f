/* SPDX-License-Identifier: MIT */
/*
 * state.h - what libskein-socket.so knows in a process: one struct, for read()
 * and close() bring no context to hang it from (an exception of
 * scripts/lint/globals.py).
 *
 * Thread rule: `lock` holds all that is not atomic and not said to be the
 * helper's: the sockets that are promoted, the sets, the report. A socket that
 * is on TCP is used without it. It is never held over a call that may block.
 */
#ifndef SKEIN_BIND_SOCKET_STATE_H
#define SKEIN_BIND_SOCKET_STATE_H

#include "bind/socket/real.h"
#include "bind/socket/signals.h"
#include "env/env.h"
#include "stream/conf.h"
#include "stream/poller.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct sock;
struct set;
struct asker;
struct spare_waiter;
struct polling;
struct stream_host;
struct status_page;

/* Descriptors beyond stay on TCP. */
#define FD_MAX 65536
/* Pages of the program's memory that are remembered. */
#define REACHED 512

struct sock_state {
	pthread_mutex_t lock;
	atomic_bool on;	    /* the constructor has run, and we may */
	atomic_bool forked; /* a child: nothing is promoted any more */
	atomic_bool shares; /* a child has a connection that is on a stream */
	atomic_bool sandboxed;	       /* no new connection is looked at */
	_Atomic(const char *) no_more; /* why nothing else is promoted */
	atomic_bool ending;	       /* the helper is to end */
	struct env_thread *helper;
	atomic_bool helper_runs;
	uint32_t after;		 /* calls before a meeting: SKEIN_RUN_AFTER */
	uint64_t idle_ns;	 /* without a byte, then to TCP; 0: never */
	bool watched;		 /* a connection has a stream; idle.c looks */
	bool require;		 /* a connection that stays on TCP is fatal */
	atomic_bool refused;	 /* one stays there, so the process ends */
	struct poller poller;	 /* how threads wait: --wait */
	unsigned pollers;	 /* polling threads: --pollers */
	bool pollers_awake;	 /* they look at streams of sleepers */
	struct polling *polling; /* NULL: not started yet */
	struct stream_conf stream;
	const char *report;
	char program[48]; /* its name; the title may become another one */
	_Atomic(struct sock *) *socks; /* by descriptor */
	_Atomic(struct set *) *sets;   /* of epoll, by descriptor */
	struct sock *spare;	       /* never given back: type-stable */
	struct sock *all;	       /* FD_MAX of them, side by side */
	uint32_t used;		       /* of all */
	_Atomic uint64_t *named;  /* a bit a number: posix_spawn()'s actions */
	int fd_top;		  /* no socket and no set at it, or above */
	int wake_fd;		  /* the helper sleeps here */
	struct stream_host *host; /* NULL: no bell can ring (bells.h) */
	int bells_fd;		  /* the channel's, where bells arrive */
	int helper_set;		  /* has it for the helper */
	bool bells_shared;	  /* sets of the program have it too */
	struct sock *todo;	  /* for the helper */
	unsigned draining;	  /* threads in sock_drain() */
	unsigned closed;	  /* sockets with `closed` */
	struct sock *backs;	  /* on their way back to TCP */
	struct asker *askers;	  /* children that wait for one */
	pthread_cond_t back_cond; /* a step of one was made */
	int ask_fd;		  /* children ask here */
	uint64_t ask_name[2];
	struct env_log_limit lost_said; /* of sockets of the parent's */
	struct spare_waiter *waiters;
	struct status_page *page; /* always there; st.all's indices */
	int page_fd;
	bool page_tried;
	/* how many processes have a connection; forked ones share it */
	_Atomic uint32_t *holders;
	uint32_t holder_next;
	_Atomic uint64_t reached[REACHED]; /* reach.c: pages */
	struct skein_env *env;
	int pid;
	struct signal_handler handlers[NSIG]; /* signals.c */
	_Atomic(void *) real[REAL_COUNT];
};

extern struct sock_state st;
/* A handler reads it: it is not allocated at the first use. */
extern _Thread_local struct signal_counts st_signals
	__attribute__((tls_model("initial-exec")));
/* When a poll() of this thread last asked the kernel about other descriptors, and
 * about which: a hash. Not of the process: another thread asks about others again. */
struct poll_asked {
	uint64_t ns, which;
};
extern _Thread_local struct poll_asked st_poll_asked
	__attribute__((tls_model("initial-exec")));

/* The socket at a descriptor, or NULL: none of ours. Two loads. */
static inline struct sock *sock_at(int fd)
{
	if ((unsigned)fd >= FD_MAX ||
	    !atomic_load_explicit(&st.on, memory_order_acquire))
		return NULL;
	return atomic_load_explicit(&st.socks[fd], memory_order_acquire);
}

static inline struct set *set_at(int fd)
{
	if ((unsigned)fd >= FD_MAX ||
	    !atomic_load_explicit(&st.on, memory_order_acquire))
		return NULL;
	return atomic_load_explicit(&st.sets[fd], memory_order_acquire);
}

/* Locked. */
static inline void state_top(int fd)
{
	if (st.fd_top <= fd)
		st.fd_top = fd + 1;
}

/* The process is about to end without the library's destructor. */
void state_end(void);
/* Before exec, which may fail: waits until what was written to streams is in the
 * peers' rings, SOCK_DRAIN_NS at most, and then says that bytes may be lost. It waits
 * a second for the lock, and does nothing where it does not get it. */
void state_drain(void);
uint64_t state_now_ns(void);
/* One line to stderr. */
void state_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
