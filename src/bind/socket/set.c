/* SPDX-License-Identifier: MIT */
/*
 * set.c - epoll_ctl() and epoll_wait() where sockets are on streams.
 *
 * The kernel's set keeps all sockets: one on a stream is there for the events
 * of its TCP socket (edge-triggered, under a token of ours). The set's own
 * eventfd is there too: the helper writes to it to wake the sleeper, once. A
 * round looks at the streams, and each POLLER_KERNEL_NS at the kernel's set, as does
 * one of a wait without time that finds no stream ready. A thread that finds
 * nothing for long asks the peers to ring, looks once more, and sleeps in the
 * kernel.
 */
#include "bind/socket/set.h"

#include "bind/socket/back.h"
#include "bind/socket/bells.h"
#include "bind/socket/pollers.h"
#include "bind/socket/reach.h"
#include "env/env.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define NEVER INT64_MAX
/* The longest sleep while written bytes are not in the peer's ring yet. */
#define SHORT_NS 1000000

/* Tokens are odd addresses of ours: no program has them as its data. */
static uint64_t token(const void *p)
{
	return (uint64_t)(uintptr_t)p | 1;
}

/* --- membership ---------------------------------------------------------- */

static struct set *set_get(int epfd)
{
	struct epoll_event ev = {.events = EPOLLIN};
	struct set *set;

	if ((unsigned)epfd >= FD_MAX)
		return NULL;
	set = atomic_load(&st.sets[epfd]);
	if (set)
		return set;
	if (!st.env && env_real_new(&st.env))
		return NULL;
	set = calloc(1, sizeof(*set));
	if (!set)
		return NULL;
	set->fd = epfd;
	if (env_waiter_new(st.env, ENV_WAIT_ADAPTIVE, &set->waiter))
		goto err_free;
	set->bell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (set->bell_fd < 0)
		goto err_waiter;
	ev.data.u64 = token(&st.sets[epfd]);
	if (REAL(epoll_ctl)(epfd, EPOLL_CTL_ADD, set->bell_fd, &ev))
		goto err_bell;
	atomic_store(&st.sets[epfd], set);
	state_top(epfd);
	return set;

err_bell:
	close(set->bell_fd);
err_waiter:
	env_waiter_free(st.env, set->waiter);
err_free:
	free(set);
	return NULL;
}

static const uint32_t kinds = EPOLLONESHOT | EPOLLEXCLUSIVE;

/* epoll_ctl() for a socket on TCP: the kernel decides, and the set keeps what it
 * has accepted, for the time when the socket is on a stream. */
static int ctl_tcp(int epfd, int op, int fd, struct sock *s,
		   struct epoll_event *ev)
{
	int rc = REAL(epoll_ctl)(epfd, op, fd, ev);

	if (rc)
		return rc;
	if (fd != s->fd) {
		sock_tie_locked(s, "an epoll set has a copy of it");
		return 0;
	}
	if (op == EPOLL_CTL_DEL) {
		if (s->set && s->set->fd == epfd) {
			s->in_set = s->in_kernel = false;
			s->set = NULL;
		}
		return 0;
	}
	if (ev->events & kinds) {
		sock_tie_locked(s, "an epoll set has it for one shot or "
				   "exclusively");
		return 0;
	}
	if (s->set && s->set->fd != epfd) {
		sock_tie_locked(s, "two epoll sets have it");
		return 0;
	}
	s->set = set_get(epfd);
	if (!s->set || s->set->tied) {
		sock_tie_locked(s, "its epoll set is not carried");
		return 0;
	}
	s->in_set = s->in_kernel = true;
	s->set_fd = fd;
	s->events = ev->events;
	s->data = ev->data.u64;
	return 0;
}

static int member_add(struct set *set, struct sock *s)
{
	struct sock **more;
	unsigned cap;

	if (set->count == set->cap) {
		cap = set->cap ? 2 * set->cap : 16;
		more = realloc(set->members, cap * sizeof(*more));
		if (!more)
			return -ENOMEM;
		set->members = more;
		set->cap = cap;
	}
	set->members[set->count++] = s;
	return 0;
}

static void leave_kernel(struct set *set, struct sock *s)
{
	REAL(epoll_ctl)(set->fd, EPOLL_CTL_DEL, s->fd, NULL);
	s->in_kernel = false;
}

static void remember(struct sock *s, int fd, const struct epoll_event *ev)
{
	s->in_set = true;
	s->set_fd = fd;
	s->events = ev->events;
	s->data = ev->data.u64;
	s->edge = true;
}

static int add_on(int epfd, int fd, struct sock *s, struct epoll_event *ev)
{
	struct set *set;

	if (s->in_set)
		return s->set->fd == epfd && s->set_fd == fd ? -EEXIST
							     : -EOPNOTSUPP;
	if (s->set && (s->set->fd != epfd || s->fd != fd))
		set_drop(s->set, s);
	if (s->fd != fd)
		sock_renumber(s, fd);
	set = set_get(epfd);
	if (!set || set->tied)
		return -EOPNOTSUPP;
	if (!s->set) {
		s->set = set;
		if (set_promote(set, s)) {
			s->set = NULL;
			return -ENOMEM;
		}
	}
	remember(s, fd, ev);
	return 0;
}

/* Of one on a stream: no system call but for the first. */
static int ctl_on(int epfd, int op, int fd, struct sock *s,
		  struct epoll_event *ev)
{
	if (op != EPOLL_CTL_DEL && !reach_reads(ev, sizeof(*ev)))
		return -EFAULT;
	if (op != EPOLL_CTL_DEL && ev->events & kinds)
		return -EOPNOTSUPP;
	if (op == EPOLL_CTL_ADD)
		return add_on(epfd, fd, s, ev);
	if (!s->set || s->set->fd != epfd || !s->in_set || s->set_fd != fd)
		return -ENOENT;
	if (op == EPOLL_CTL_DEL) {
		s->in_set = false;
		return 0;
	}
	if (op != EPOLL_CTL_MOD)
		return -EINVAL;
	remember(s, fd, ev);
	return 0;
}

int set_ctl(int epfd, int op, int fd, struct sock *s, struct epoll_event *ev)
{
	ENV_HOLD_CANCEL();
	int rc, mode;

	pthread_mutex_lock(&st.lock);
	mode = atomic_load(&s->mode);
	rc = 0;
	if (mode == SOCK_ON)
		rc = ctl_on(epfd, op, fd, s, ev);
	else if (mode == SOCK_LOST)
		rc = sock_inherit(s);
	if (rc == -EOPNOTSUPP)
		rc = back_wait(s, "epoll_ctl that is not carried");
	if (rc) {
		errno = -rc;
		rc = -1;
	} else if (mode == SOCK_ON && atomic_load(&s->mode) == SOCK_ON) {
		/* done */
	} else if (mode == SOCK_TCP) {
		rc = ctl_tcp(epfd, op, fd, s, ev);
	} else {
		rc = REAL(epoll_ctl)(epfd, op, fd, ev);
	}
	pthread_mutex_unlock(&st.lock);
	return rc;
}

int set_promote(struct set *set, struct sock *s)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP |
					   EPOLLET,
				 .data.u64 = token(s)};
	int rc = member_add(set, s);

	if (rc)
		return rc;
	if (!REAL(epoll_ctl)(set->fd,
			     s->in_kernel ? EPOLL_CTL_MOD : EPOLL_CTL_ADD,
			     s->fd, &ev)) {
		s->in_kernel = true;
		return 0;
	}
	set->count--;
	return -errno;
}

void set_remove(struct set *set, struct sock *s)
{
	unsigned i;

	for (i = 0; i < set->count; i++) {
		if (set->members[i] != s)
			continue;
		set->members[i] = set->members[--set->count];
		break;
	}
	s->set = NULL;
}

void set_drop(struct set *set, struct sock *s)
{
	leave_kernel(set, s);
	set_remove(set, s);
}

int set_demote(struct set *set, struct sock *s)
{
	struct epoll_event ev = {.events = s->events, .data.u64 = s->data};

	if (!s->in_set) {
		set_drop(set, s);
		return 0;
	}
	/* Where the program has closed the number that the kernel's set has,
	 * what that one reports is our token. */
	if (REAL(epoll_ctl)(set->fd,
			    s->in_kernel ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, s->fd,
			    &ev))
		return -errno;
	s->in_kernel = true;
	set_remove(set, s);
	s->set = set;
	set_wake(set);
	return 0;
}

void set_wake(struct set *set)
{
	if (!set->armed)
		return;
	set->armed = false;
	env_bell(set->bell_fd);
}

/* Frees one that is closed and that no thread waits at. Locked. */
static void set_put(struct set *set)
{
	if (!set->closed || set->users)
		return;
	close(set->bell_fd);
	env_waiter_free(st.env, set->waiter);
	free(set->members);
	free(set);
}

struct set *set_wake_later(struct set *set)
{
	if (!set->armed)
		return NULL;
	set->armed = false;
	set->users++; /* it stays until it has rung */
	return set;
}

void set_ring(struct set *set)
{
	env_bell(set->bell_fd);
	pthread_mutex_lock(&st.lock);
	set->users--;
	set_put(set);
	pthread_mutex_unlock(&st.lock);
}

int set_tie(int epfd, const char *what)
{
	ENV_HOLD_CANCEL();
	struct set *set = set_at(epfd);
	int rc = 0;

	if (!set)
		return 0;
	pthread_mutex_lock(&st.lock);
	set->tied = true; /* none is promoted from now on */
	if (set->hears)
		bells_leave(epfd);
	set->hears = false;
	set->users++;
	while (!rc && set->count && !set->closed)
		rc = back_wait(set->members[0], what);
	set->users--;
	set_put(set);
	if (rc)
		errno = -rc;
	pthread_mutex_unlock(&st.lock);
	return rc;
}

void set_fork(struct set *set)
{
	set->hears = true;
}

void set_forget(int epfd)
{
	ENV_HOLD_CANCEL();
	struct set *set;
	unsigned i;

	if (st.pid != getpid())
		return;
	pthread_mutex_lock(&st.lock);
	set = atomic_exchange(&st.sets[epfd], NULL);
	if (set) {
		for (i = 0; i < FD_MAX && i < 65536; i++) {
			struct sock *s = atomic_load(&st.socks[i]);

			if (s && s->set == set) {
				s->set = NULL;
				s->in_set = s->in_kernel = false;
			}
		}
		set->count = 0;
		set->closed = true;
		set_wake(set);
		set_put(set);
	}
	pthread_mutex_unlock(&st.lock);
}

bool set_leave(int epfd)
{
	struct set *set = atomic_load(&st.sets[epfd]);

	if (!set)
		return true;
	if (set->users || set->count)
		return false;
	if (set->hears)
		bells_leave(epfd);
	atomic_store(&st.sets[epfd], NULL);
	set->closed = true;
	set_put(set); /* its bell leaves the kernel's set */
	return true;
}

/* --- waiting ------------------------------------------------------------- */

/* The events of one in a set. Locked. */
static uint32_t look_at(struct sock *s)
{
	if (!s->in_set || (s->events & EPOLLET && !sock_edge(s)))
		return 0;
	return sock_ready(s, s->events);
}

bool set_finds(struct sock *s)
{
	return s->set && look_at(s);
}

/* The kernel has said it, with the program's own word for it. A socket may come
 * onto a stream after that, before we have the lock. */
static bool said(const struct sock *s, const struct epoll_event *events, int n)
{
	while (n-- > 0)
		if (events[n].data.u64 == s->data)
			return true;
	return false;
}

/* Streams that are ready, the next in turn first, behind the kernel's had
 * events: none twice, for a program reads once for each, and its socket may
 * block. Returns how many there are then. Locked. */
static int harvest(struct set *set, struct epoll_event *events, int had,
		   int max)
{
	unsigned i, at = set->turn;
	int n = had;

	for (i = 0; i < set->count && n < max; i++, at++) {
		struct sock *s;
		uint32_t ready;

		if (at >= set->count)
			at = 0;
		s = set->members[at];
		if (!s->in_set || (had && said(s, events, had)))
			continue;
		ready = look_at(s);
		s->edge = false;
		if (!ready)
			continue;
		events[n].events = ready;
		events[n++].data.u64 = s->data;
	}
	set->turn = n == max ? at : 0;
	return n;
}

/* Is it a token of any socket or set of ours? It may have left the set, or be
 * closed, since the kernel said so. */
static bool is_token(uint64_t data)
{
	return data & 1 && data > (uintptr_t)st.sets &&
	       data < (uintptr_t)(st.all + FD_MAX);
}

/* Takes our own tokens out of what the kernel says: n of at most max events; a
 * bell may be behind them. mine: the set if its streams are looked at next, or
 * NULL. Locked. */
static int filter(struct set *set, struct epoll_event *events, int n, int max,
		  const struct set *mine)
{
	bool bells = n == max && set->hears;
	int i, kept = 0;
	uint64_t rung;
	unsigned m;

	for (i = 0; i < n; i++) {
		uint64_t data = events[i].data.u64;

		if (data == token(&st.sets[set->fd])) {
			REAL(read)(set->bell_fd, &rung, sizeof(rung));
			set->armed = set->sleepers;
			continue;
		}
		if (bells_are(data)) {
			bells = true;
			continue;
		}
		for (m = 0; m < set->count; m++)
			if (token(set->members[m]) == data)
				break;
		if (m < set->count)
			set->members[m]->tcp_event = set->members[m]->edge =
				true;
		else if (!is_token(data))
			events[kept++] = events[i];
	}
	if (bells)
		bells_hear(set->fd, mine);
	return kept;
}

/* In a forked child, of a set that was its parent's. */
static int sift_inherited(int epfd, struct epoll_event *events, int n)
{
	int i, kept = 0;

	for (i = 0; i < n; i++)
		if (bells_are(events[i].data.u64))
			bells_hear(epfd, NULL);
		else if (!is_token(events[i].data.u64))
			events[kept++] = events[i];
	return kept || !n ? kept : -EAGAIN;
}

int set_sift(int epfd, struct epoll_event *events, int max, int n)
{
	ENV_HOLD_CANCEL();
	struct set *set;

	if (n > 0 && atomic_load(&st.forked) && !set_at(epfd))
		return sift_inherited(epfd, events, n);
	if (n <= 0 || !set_at(epfd))
		return n;
	pthread_mutex_lock(&st.lock);
	set = set_at(epfd);
	if (set)
		n = filter(set, events, n, max, NULL);
	pthread_mutex_unlock(&st.lock);
	return n ? n : -EAGAIN;
}

/* The kernel's set, without waiting. Returns events for the program. */
static int ask_kernel(struct set *set, struct epoll_event *events, int max,
		      uint64_t now)
{
	int n, kept;

	set->kernel_ns = now;
	do {
		n = REAL(epoll_wait)(set->fd, events, max, 0);
		kept = n > 0 ? filter(set, events, n, max, NULL) : 0;
		/* Tokens, each reported once, may stand before the program's
		 * events. */
	} while (n == max && !kept);
	return kept;
}

/* One round: what the kernel has, when it is its turn, then the streams.
 * sleeps: a round that finds nothing ends in the kernel, so it is not asked
 * before. only: no other round follows, so no event may wait for the next turn. */
static int look(struct set *set, struct epoll_event *events, int max,
		bool sleeps, bool only)
{
	uint64_t now = state_now_ns();
	int n;

	if (!poller_asks(&st.poller, set->kernel_ns, now)) {
		n = harvest(set, events, 0, max);
		if (n || !only)
			return n;
	} else if (sleeps && !set->turn) {
		/* After a round that was full of streams the kernel comes
		 * first. */
		n = harvest(set, events, 0, max);
		if (n && n < max)
			n += ask_kernel(set, events + n, max - n, now);
		return n;
	}
	n = ask_kernel(set, events, max, now);
	return harvest(set, events, n, max);
}

static int to_ms(int64_t left_ns)
{
	if (left_ns == NEVER)
		return -1;
	if (left_ns <= 0)
		return 0;
	if (left_ns > 2000000000ll * 1000000)
		return 2000000000;
	return (int)((left_ns + 999999) / 1000000);
}

/* Asks all peers to ring. False: some could not be asked. */
static bool ask_all(struct set *set)
{
	bool may = true;
	unsigned i;

	for (i = 0; i < set->count; i++)
		may &= sock_ask(set->members[i]);
	return may;
}

static bool looks_again(const struct set *set)
{
	bool again = false;
	unsigned i;

	for (i = 0; i < set->count; i++)
		again |= sock_looks_again(set->members[i]);
	return again;
}

/* Locked. */
static uint64_t asks_ns(const struct set *set)
{
	uint64_t ns = 0;
	unsigned i;

	for (i = 0; i < set->count; i++)
		ns += sock_must_ask(set->members[i]) ? SOCK_ASK_NS : 0;
	return ns;
}

/* A thread would sleep by now. Waiting never costs more than twice the best
 * choice if the thread first waits for as long as the questions to the peers take:
 * 50 busy connections, asked in each short pause, spend most of the time with
 * that. But a core that others want is left at once. *from: when the sleep may
 * begin, 0 at first. */
static bool may_sleep(struct set *set, uint64_t *from)
{
	uint64_t now;

	if (poller_mode(&st.poller) != POLLER_ADAPTIVE ||
	    env_core_wanted(st.env, set->waiter))
		return true;
	now = env_now_ns(st.env);
	if (!*from) {
		pthread_mutex_lock(&st.lock);
		*from = now + asks_ns(set);
		pthread_mutex_unlock(&st.lock);
	}
	return now >= *from;
}

/* A call of set_wait(). */
struct set_call {
	struct set *set;
	bool mine;		      /* this thread has set.idling */
	int cancel;		      /* the caller's cancel state */
	struct signal_counts signals; /* when it began */
};

/* Locked. */
static void leave_set(struct set_call *call)
{
	struct set *set = call->set;

	if (call->mine)
		set->idling = false;
	set->users--;
	set_put(set);
}

/* The thread was cancelled while it polled, ... */
static void cancelled_awake(void *arg)
{
	pthread_mutex_lock(&st.lock);
	leave_set(arg);
	pthread_mutex_unlock(&st.lock);
}

/* ... or while it slept. */
static void cancelled(void *arg)
{
	struct set_call *call = arg;
	struct set *set = call->set;

	pthread_mutex_lock(&st.lock);
	if (!--set->sleepers)
		set->armed = false;
	/* A bell may have woken this thread alone. */
	if (set->hears)
		bells_hear(set->fd, NULL);
	leave_set(call);
	pthread_mutex_unlock(&st.lock);
}

static int sleep_in_kernel(int epfd, struct epoll_event *events, int max,
			   int64_t left_ns, const sigset_t *mask)
{
	struct timespec left = {.tv_nsec = left_ns};
	int n;

	/* A millisecond would be long for one that asked for less. */
	if (left_ns > 0 && left_ns < 1000000) {
		n = REAL(epoll_pwait2)(epfd, events, max, &left, mask);
		/* A sandbox may refuse it with any error. */
		if (n >= 0 || errno == EINTR)
			return n;
	}
	return REAL(epoll_pwait)(epfd, events, max, to_ms(left_ns), mask);
}

/* Here, and in interrupted(), the thread may be cancelled, and nowhere else in a
 * wait. */
static int sleep_cancellable(struct set_call *call, struct epoll_event *events,
			     int max, int64_t left_ns, const sigset_t *mask)
{
	int n, off;

	if (left_ns && signals_handled(&call->signals)) {
		errno = EINTR;
		return -1;
	}
	pthread_cleanup_push(cancelled, call);
	pthread_setcancelstate(call->cancel, &off);
	n = sleep_in_kernel(call->set->fd, events, max, left_ns, mask);
	pthread_setcancelstate(off, NULL);
	pthread_cleanup_pop(0);
	return n;
}

/* As that of wait.c. True: errno is EINTR. */
static bool interrupted(struct set_call *call, unsigned round,
			const sigset_t *mask)
{
	const real_ppoll_t real = REAL(ppoll);
	const struct timespec now = {0};
	int n, off;

	if (!pollers_check(round, mask))
		return false;
	pthread_cleanup_push(cancelled_awake, call);
	pthread_setcancelstate(call->cancel, &off);
	n = real(NULL, 0, &now, mask);
	pthread_setcancelstate(off, NULL);
	pthread_cleanup_pop(0);
	return n < 0 && errno == EINTR;
}

/* Sleeps in the kernel. Returns events for the program, 0: look again, -1. */
static int sleep_there(struct set_call *call, struct epoll_event *events,
		       int max, int64_t left_ns, const sigset_t *mask)
{
	struct set *set = call->set;
	bool may;
	int n, err;

	pthread_mutex_lock(&st.lock);
	may = left_ns <= 0 || pollers_watch() || ask_all(set);
	/* After the question: what was written before the answer was said to
	 * nobody, and what comes after it rings. */
	n = harvest(set, events, 0, max);
	if (n) {
		pthread_mutex_unlock(&st.lock);
		return n;
	}
	if (left_ns > SHORT_NS && (!may || looks_again(set)))
		left_ns = SHORT_NS;
	if (!set->hears && set->count && !set->tied) {
		bells_join(set->fd);
		set->hears = true;
	}
	set->sleepers++;
	set->armed = true;
	pthread_mutex_unlock(&st.lock);

	n = sleep_cancellable(call, events, max, left_ns, mask);
	err = errno;

	pthread_mutex_lock(&st.lock);
	if (!--set->sleepers)
		set->armed = false;
	set->kernel_ns = state_now_ns();
	if (n > 0) {
		n = filter(set, events, n, max, set);
		n = harvest(set, events, n, max);
	}
	pthread_mutex_unlock(&st.lock);
	errno = err;
	return n;
}

/* One wait of a thread that uses the set. */
static int wait_there(struct set_call *call, struct epoll_event *events,
		      int max, int64_t timeout_ns, const sigset_t *mask)
{
	struct set *set = call->set;
	uint64_t begun = 0, sleep_from = 0;
	struct poller_wait pw = {0};
	bool at_once = timeout_ns && poller_mode(&st.poller) == POLLER_EVENT;
	unsigned round = 0;
	int64_t left = timeout_ns;
	bool ours, slept = false;
	int n;

	for (;; round++) {
		pthread_mutex_lock(&st.lock);
		ours = set->count;
		n = ours ? look(set, events, max, at_once, !timeout_ns) : 0;
		if (!call->mine && !set->idling)
			call->mine = set->idling = true;
		if (set->closed) {
			pthread_mutex_unlock(&st.lock);
			errno = EBADF;
			return -1;
		}
		pthread_mutex_unlock(&st.lock);
		if (n || (!timeout_ns && ours)) {
			pollers_found(&pw);
			return n;
		}
		if (timeout_ns && signals_handled(&call->signals)) {
			errno = EINTR;
			return -1;
		}
		if (timeout_ns != NEVER && (round % 16 == 1 || !timeout_ns)) {
			uint64_t now = state_now_ns();

			if (!begun)
				begun = now;
			left = timeout_ns - (int64_t)(now - begun);
		}
		if (ours && call->mine && left > 0 && !slept &&
		    (!pollers_idle(set->waiter, &pw, round) ||
		     !may_sleep(set, &sleep_from))) {
			if (interrupted(call, round, mask))
				return -1;
			continue;
		}
		sleep_from = 0;
		if (timeout_ns != NEVER && begun) {
			left = timeout_ns - (int64_t)(state_now_ns() - begun);
			left = left < 0 ? 0 : left;
		}
		n = sleep_there(call, events, max, left, mask);
		if (n) {
			pollers_found(&pw);
			return n;
		}
		/* It heard of other threads' streams, or looked too early. */
		slept = poller_sleeps(&st.poller);
		round = 0;
		if (timeout_ns != NEVER &&
		    (!timeout_ns ||
		     (begun && state_now_ns() - begun >= (uint64_t)timeout_ns)))
			return 0;
		if (!begun)
			begun = state_now_ns();
	}
}

/* A thread leaves with events, and may stay away for long. So those that still
 * sleep there are left as if it had gone to sleep as well: the peers ring, and
 * what it could not take wakes the next one. Locked. */
static void hand_over(struct set *set, bool more)
{
	if (!set->sleepers)
		return;
	if (!pollers_watch())
		(void)ask_all(set);
	if (more)
		set_wake(set);
}

int set_wait(int epfd, struct epoll_event *events, int max, int64_t timeout_ns,
	     const sigset_t *mask)
{
	ENV_CANCEL_POINT();
	struct set_call call = {.cancel = held_cancel,
				.signals = signals_now()};
	struct set *set;
	int n, err;

	if (!reach_reads(events, sizeof(*events)))
		return -1;
	pthread_mutex_lock(&st.lock);
	set = call.set = set_at(epfd);
	if (set)
		set->users++;
	pthread_mutex_unlock(&st.lock);
	if (!set) {
		errno = EBADF;
		return -1;
	}
	n = wait_there(&call, events, max, timeout_ns, mask);
	err = errno;
	pthread_mutex_lock(&st.lock);
	if (n > 0)
		hand_over(set, n == max);
	leave_set(&call);
	pthread_mutex_unlock(&st.lock);
	errno = err;
	return n;
}
