/* SPDX-License-Identifier: MIT */
/*
 * wait.c - poll() and blocking calls where sockets are on streams.
 *
 * As in set.c: a round looks at the streams, and each POLLER_KERNEL_NS asks the
 * kernel: about the other descriptors, and what TCP has to say of ours. A thread
 * that finds nothing for long asks the peers to ring, looks once more, and sleeps
 * in the kernel's poll. One that never sleeps asks the kernel for signals, too. A
 * socket on TCP counts as one with a call in the kernel meanwhile, so it is
 * not promoted during the wait.
 */
#include "bind/socket/wait.h"

#include "bind/socket/back.h"
#include "bind/socket/export.h"
#include "bind/socket/pollers.h"
#include "bind/socket/reach.h"
#include "bind/socket/set.h"
#include "env/env.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#define SHORT_NS 1000000
#define NEVER INT64_MAX
#define FEW 64u
#define SPREAD 0x9e3779b97f4a7c15ull /* odd: no two words become one */

/* A thread in the list of a socket that it waits for. */
struct sock_waiter {
	struct sock_waiter *next;
	struct env_waiter *waiter;
	short events;
};

struct spare_waiter {
	struct spare_waiter *next;
	struct env_waiter *waiter;
};

/* What is known of a descriptor of a wait. */
struct waiting {
	struct sock *s; /* NULL: no socket that may be promoted */
	bool on;	/* on a stream; else it counts as in the kernel */
	struct sock_waiter entry;
};

/* One wait; k has room for one more than n. */
struct wait {
	struct waiting *all;
	struct pollfd *fds, *k;
	nfds_t n, others;
	uint64_t which; /* of the others, and asked for what: a hash */
	const sigset_t *mask;
	struct env_waiter *waiter;
	struct spare_waiter *spare;   /* has waiter */
	int cancel;		      /* the caller's cancel state */
	struct signal_counts signals; /* when it began */
	uint64_t asked_ns; /* when this thread asked the kernel, or began */
	bool listed;	   /* its entries are in the sockets' lists */
	bool heap;	   /* all and k are to be freed */
};

/* --- waiters ------------------------------------------------------------- */

static struct spare_waiter *waiter_get(void)
{
	struct spare_waiter *w;

	pthread_mutex_lock(&st.lock);
	w = st.waiters;
	if (w)
		st.waiters = w->next;
	pthread_mutex_unlock(&st.lock);
	if (w)
		return w;
	w = calloc(1, sizeof(*w));
	if (w && !env_waiter_new(st.env, ENV_WAIT_ADAPTIVE, &w->waiter))
		return w;
	free(w);
	errno = ENOMEM;
	return NULL;
}

static void waiter_put(struct spare_waiter *w)
{
	pthread_mutex_lock(&st.lock);
	w->next = st.waiters;
	st.waiters = w;
	pthread_mutex_unlock(&st.lock);
}

void wait_wake(struct sock *s)
{
	struct sock_waiter *entry;

	for (entry = s->waiters; entry; entry = entry->next)
		env_waiter_wake(st.env, entry->waiter);
}

static void waiter_leave(struct waiting *w)
{
	struct sock_waiter **at = &w->s->waiters;

	while (*at && *at != &w->entry)
		at = &(*at)->next;
	if (*at)
		*at = w->entry.next;
}

/* --- looking ------------------------------------------------------------- */

/* What poll() would say of a socket on a stream; its bits are epoll's. */
static short ready_of(struct sock *s, short events)
{
	uint32_t wanted = (uint32_t)(unsigned short)events, found;

	if (wanted & POLLRDNORM)
		wanted |= POLLIN;
	if (wanted & POLLWRNORM)
		wanted |= POLLOUT;
	found = sock_ready(s, wanted);
	if (found & POLLIN)
		found |= POLLRDNORM;
	if (found & POLLOUT)
		found |= POLLWRNORM;
	return (short)(found &
		       ((uint32_t)(unsigned short)events | POLLERR | POLLHUP));
}

bool wait_finds(struct sock *s)
{
	struct sock_waiter *entry;

	for (entry = s->waiters; entry; entry = entry->next)
		if (ready_of(s, entry->events))
			return true;
	return false;
}

struct set *wait_hear(struct sock *s)
{
	struct stream *t = s->stream;

	/* TCP takes what the ring has no room for. */
	if (t->grow.refused)
		back_start(s, "no memory for a larger ring", false);
	if (stream_peer_stopped(t)) {
		if (atomic_load(&s->mode) == SOCK_ON)
			back_step(s);
		else
			sock_unprepare(s);
	} else if (t->peer_closed) {
		if (atomic_load(&s->mode) == SOCK_ON)
			back_unused(s);
	} else if (t->sleep == STREAM_ASLEEP && !t->broken && !t->qp->broken &&
		   !(s->blocked && t->grow.step == GROW_GRANTED) &&
		   !set_finds(s) && !wait_finds(s)) {
		/* The answer: from now on the peer rings. What it wrote before
		 * that was said to nobody, so it is looked for here: a look
		 * costs less than a wake-up. The same where every record
		 * rings, and a thread that is awake has taken it. A larger ring
		 * has room once the first WRITE there has ended, of which
		 * nobody is told: a thread that waits for room is woken. */
		return NULL;
	}
	pollers_bell();
	wait_wake(s);
	return s->set;
}

/* How many of ours are ready; -1: one is on no stream any more. Locked. */
static int mark(struct wait *w)
{
	int ready = 0;
	nfds_t i;

	for (i = 0; i < w->n; i++) {
		struct waiting *one = &w->all[i];

		if (!one->on)
			continue;
		if (atomic_load(&one->s->mode) != SOCK_ON ||
		    sock_at(w->fds[i].fd) != one->s)
			return -1;
		w->fds[i].revents = ready_of(one->s, w->fds[i].events);
		if (atomic_load(&one->s->mode) != SOCK_ON)
			return -1;
		ready += w->fds[i].revents != 0;
	}
	return ready;
}

static int real_ppoll(struct pollfd *fds, nfds_t n, int64_t timeout_ns,
		      const sigset_t *mask)
{
	struct timespec ts = {timeout_ns / 1000000000, timeout_ns % 1000000000};

	return REAL(ppoll)(fds, n, timeout_ns == NEVER ? NULL : &ts, mask);
}

static void leave_lists(struct wait *w)
{
	nfds_t i;

	env_waiter_disarm(st.env, w->waiter);
	for (i = 0; i < w->n; i++)
		if (w->all[i].on)
			waiter_leave(&w->all[i]);
	w->listed = false;
}

static void let_go(struct wait *w)
{
	nfds_t i;

	for (i = 0; i < w->n; i++)
		if (w->all[i].s && !w->all[i].on)
			sock_end(w->all[i].s);
}

static void wait_free(struct wait *w)
{
	if (!w->heap)
		return;
	free(w->all);
	free(w->k);
}

/* The thread was cancelled, while it slept or polled. */
static void cancelled(void *arg)
{
	struct wait *w = arg;

	pthread_mutex_lock(&st.lock);
	if (w->listed)
		leave_lists(w);
	pthread_mutex_unlock(&st.lock);
	if (w->spare)
		waiter_put(w->spare);
	let_go(w);
	wait_free(w);
}

/* Here, and nowhere else in a wait, the thread may be cancelled. It does not sleep
 * where timeout_ns is 0. */
static int ppoll_cancellable(struct wait *w, struct pollfd *fds, nfds_t n,
			     int64_t timeout_ns, const sigset_t *mask)
{
	int rc, off;

	if (timeout_ns && signals_handled(&w->signals)) {
		errno = EINTR;
		return -1;
	}
	pthread_cleanup_push(cancelled, w);
	pthread_setcancelstate(w->cancel, &off);
	rc = real_ppoll(fds, n, timeout_ns, mask);
	pthread_setcancelstate(off, NULL);
	pthread_cleanup_pop(0);
	return rc;
}

/* What would end a sleep of the thread ends its polling. */
static bool interrupted(struct wait *w, unsigned round)
{
	return pollers_check(round, w->mask) &&
	       ppoll_cancellable(w, NULL, 0, 0, w->mask) < 0 && errno == EINTR;
}

/* Asks the kernel: about the others, and what TCP has to say of ours. Returns
 * how many of the others are ready, or -errno. */
static int ask_kernel(struct wait *w, bool waiter, int64_t timeout_ns,
		      const sigset_t *mask)
{
	int ready = 0, n;
	nfds_t i;

	for (i = 0; i < w->n; i++) {
		const struct sock *s = w->all[i].s;
		short events = w->fds[i].events;

		w->k[i] = (struct pollfd){w->fds[i].fd, events, 0};
		if (!w->all[i].on)
			continue;
		w->k[i].events = 0;
		if (events & (POLLIN | POLLRDNORM | POLLRDHUP))
			w->k[i].events |= POLLIN | POLLRDHUP;
		if (events & (POLLOUT | POLLWRNORM) && !s->tx_on)
			w->k[i].events |= POLLOUT;
	}
	w->k[w->n] = (struct pollfd){
		waiter ? env_waiter_fd(st.env, w->waiter) : -1, POLLIN, 0};
	n = ppoll_cancellable(w, w->k, w->n + 1, timeout_ns, mask);
	if (n < 0)
		return -errno;
	pthread_mutex_lock(&st.lock);
	for (i = 0; i < w->n; i++) {
		if (w->all[i].on) {
			if (w->k[i].revents)
				w->all[i].s->tcp_event = true;
			continue;
		}
		w->fds[i].revents = w->k[i].revents;
		ready += w->k[i].revents != 0;
	}
	pthread_mutex_unlock(&st.lock);
	if (w->k[w->n].revents)
		env_waiter_ready(st.env, w->waiter);
	return ready;
}

/* Sleeps in the kernel. As ask_kernel(); 0: look again. */
static int sleep_there(struct wait *w, int64_t left_ns)
{
	bool may = true, watched;
	int ready;
	nfds_t i;

	pthread_mutex_lock(&st.lock);
	watched = pollers_watch();
	for (i = 0; i < w->n; i++) {
		struct waiting *one = &w->all[i];

		if (!watched && one->on &&
		    atomic_load(&one->s->mode) == SOCK_ON)
			may &= sock_ask(one->s);
	}
	if (mark(w)) {
		pthread_mutex_unlock(&st.lock);
		return 0;
	}
	for (i = 0; i < w->n; i++) {
		struct waiting *one = &w->all[i];

		if (!one->on)
			continue;
		may &= !sock_looks_again(one->s);
		one->entry = (struct sock_waiter){one->s->waiters, w->waiter,
						  w->fds[i].events};
		one->s->waiters = &one->entry;
	}
	w->listed = true;
	env_waiter_arm(st.env, w->waiter);
	pthread_mutex_unlock(&st.lock);

	if (!may && left_ns > SHORT_NS)
		left_ns = SHORT_NS;
	ready = ask_kernel(w, true, left_ns, w->mask);

	pthread_mutex_lock(&st.lock);
	leave_lists(w);
	pthread_mutex_unlock(&st.lock);
	return ready;
}

/* --- waiting ------------------------------------------------------------- */

/* The kernel has said how many of the others are ready, or -errno: so many are, with
 * ours. What is ready comes before a signal. As mark(), or -errno below -1. */
static int with_ours(struct wait *w, int others)
{
	int ready;

	if (others < 0 && others != -EINTR)
		return others == -EPERM ? -EIO : others;
	pthread_mutex_lock(&st.lock);
	ready = mark(w);
	pthread_mutex_unlock(&st.lock);
	if (others < 0)
		return ready > 0 ? ready : others;
	return ready < 0 ? ready : ready + others;
}

/* One look. As with_ours(). */
static int look(struct wait *w, bool hurry, uint64_t now)
{
	/* Of ours the kernel may know more, too: what came by TCP before the
	 * switch, and an end for which the ring had no room. */
	bool due = w->others ? poller_asks(&st.poller, w->asked_ns, now)
			     : now - w->asked_ns >= POLLER_KERNEL_NS;
	int ready;

	pthread_mutex_lock(&st.lock);
	ready = mark(w);
	pthread_mutex_unlock(&st.lock);
	if (ready < 0 || (!hurry && !due) || (ready && !w->others))
		return ready;
	w->asked_ns = now;
	if (w->others)
		st_poll_asked = (struct poll_asked){now, w->which};
	/* The time is over: a signal that the mask lets through comes now. */
	return with_ours(w, ask_kernel(w, false, 0,
				       hurry && !ready ? w->mask : NULL));
}

/* No errno: some of ours went back to TCP. */
#define WENT_BACK (-5000)

/* Ready ones, 0: the time is up, -errno, or WENT_BACK. */
static int wait_mixed(struct wait *w, int64_t timeout_ns)
{
	struct spare_waiter *spare = waiter_get();
	uint64_t begun = state_now_ns(), now = begun;
	struct poller_wait pw = {0};
	unsigned round = 0;
	int rc;

	if (!spare)
		return -ENOMEM;
	w->spare = spare;
	w->waiter = spare->waiter;
	w->asked_ns = begun;
	/* Short calls that all find a stream ready ask about the others, too. A
	 * thread may poll several arrays by turns: what was asked about the one
	 * before says nothing of this one. */
	if (w->others)
		w->asked_ns = st_poll_asked.which == w->which
				      ? st_poll_asked.ns
				      : begun - POLLER_KERNEL_NS;
	for (;; now = state_now_ns()) {
		int64_t left = timeout_ns == NEVER
				       ? NEVER
				       : timeout_ns - (int64_t)(now - begun);

		rc = look(w, left <= 0, now);
		if (rc == -1)
			rc = WENT_BACK;
		if (!rc && left > 0 && signals_handled(&w->signals))
			rc = -EINTR;
		if (rc || left <= 0)
			break;
		if (!pollers_idle(w->waiter, &pw, round)) {
			if (!interrupted(w, round++))
				continue;
			rc = -EINTR;
			break;
		}
		round = 0;
		rc = sleep_there(w, left);
		if (!rc)
			continue;
		rc = with_ours(w, rc);
		if (rc == -1)
			rc = WENT_BACK;
		break;
	}
	if (rc > 0)
		pollers_found(&pw);
	w->spare = NULL;
	waiter_put(spare);
	return rc;
}

/* Do all handlers have SA_RESTART? */
static bool all_restart(void)
{
	struct sigaction sa;
	int sig;

	for (sig = 1; sig < SIGRTMAX; sig++)
		if (!sigaction(sig, NULL, &sa) && sa.sa_handler != SIG_DFL &&
		    sa.sa_handler != SIG_IGN && !(sa.sa_flags & SA_RESTART))
			return false;
	return true;
}

/* A handler has run. Does a blocking read or write go on? One that was set
 * without the C library is not counted: nobody knows which of them ran. */
static bool goes_on(struct wait *w)
{
	const struct signal_counts then = w->signals;

	w->signals = signals_now();
	return signals_handled(&then) ? !signals_interrupted(&then)
				      : all_restart();
}

int wait_one(struct sock *s, short events, int cancel)
{
	struct pollfd fd = {s->fd, events, 0}, k[2];
	struct waiting one = {.s = s, .on = true};
	struct wait w = {.all = &one,
			 .fds = &fd,
			 .k = k,
			 .n = 1,
			 .cancel = cancel,
			 .signals = signals_now()};
	int64_t timeout = events & POLLIN ? s->rcv_timeout : s->snd_timeout;
	int rc;

	do
		rc = wait_mixed(&w, timeout ? timeout : NEVER);
	while (rc == -EINTR && !timeout && goes_on(&w));
	if (rc > 0 || rc == WENT_BACK)
		return 0;
	errno = rc ? -rc : EAGAIN;
	return -1;
}

/* Does any of them concern us? -1: one cannot be carried. */
static int concerns(const struct pollfd *fds, nfds_t n, const char *what)
{
	ENV_HOLD_CANCEL();
	int any = 0;
	nfds_t i;

	/* Else the kernel says what is wrong. */
	if (!atomic_load(&st.on) || n > FD_MAX ||
	    !reach_reads(fds, n * sizeof(*fds)))
		return 0;
	for (i = 0; i < n; i++) {
		if (sock_at(fds[i].fd))
			any = 1;
		if (set_at(fds[i].fd) && set_tie(fds[i].fd, what))
			return -1;
	}
	return any;
}

static uint64_t word_of_entry(const struct pollfd *fd)
{
	return (uint64_t)(unsigned)fd->fd << 16 | (unsigned short)fd->events;
}

/* Holds what is on TCP there. True: something is on a stream. */
static bool take_hold(struct wait *w)
{
	bool any = false;
	nfds_t i;

	w->others = 0;
	w->which = 1;
	for (i = 0; i < w->n; i++) {
		struct waiting *one = &w->all[i];

		/* Where the kernel is not asked nothing else is written. */
		w->fds[i].revents = 0;
		one->s = sock_at(w->fds[i].fd);
		one->on = one->s && !sock_begin(one->s);
		if (one->on && atomic_load(&one->s->mode) == SOCK_LOST)
			sock_keep(w->fds[i].fd, "poll");
		if (one->on && atomic_load(&one->s->mode) != SOCK_ON) {
			/* Free, or the parent's: as the kernel has it. */
			one->on = false;
			one->s = NULL;
		}
		any |= one->on;
		if (one->on)
			continue;
		w->others++;
		w->which = (w->which ^ word_of_entry(&w->fds[i])) * SPREAD;
	}
	return any;
}

static int wait_held(struct wait *w, int64_t timeout_ns)
{
	uint64_t begun = state_now_ns();
	int64_t left = timeout_ns;
	int rc;

	do {
		if (timeout_ns != NEVER) {
			left = timeout_ns - (int64_t)(state_now_ns() - begun);
			left = left < 0 ? 0 : left;
		}
		if (take_hold(w)) {
			rc = wait_mixed(w, left);
		} else {
			rc = ppoll_cancellable(w, w->fds, w->n, left, w->mask);
			rc = rc < 0 ? -errno : rc;
		}
		let_go(w);
	} while (rc == WENT_BACK);
	return rc;
}

int wait_poll(struct pollfd *fds, nfds_t n, int64_t timeout_ns,
	      const sigset_t *mask, const char *what)
{
	struct waiting few[FEW];
	struct pollfd few_k[FEW + 1];
	struct wait w = {.all = few,
			 .fds = fds,
			 .k = few_k,
			 .n = n,
			 .mask = mask,
			 .signals = signals_now(),
			 .heap = n > FEW};
	int rc = concerns(fds, n, what);

	if (rc < 0)
		return -1;
	if (!rc)
		return real_ppoll(fds, n, timeout_ns, mask);
	w.cancel = env_cancel_point(NULL);
	if (n > FEW) {
		w.all = calloc(n, sizeof(*w.all));
		w.k = calloc(n + 1, sizeof(*w.k));
	}
	rc = w.all && w.k ? wait_held(&w, timeout_ns) : -ENOMEM;
	wait_free(&w);
	env_cancel_back(NULL, w.cancel);
	if (rc >= 0)
		return rc;
	errno = -rc;
	return -1;
}

/* --- the calls ----------------------------------------------------------- */

static int64_t from_ms(int ms)
{
	return ms < 0 ? NEVER : ms * 1000000ll;
}

bool wait_time(const struct timespec *timeout, int64_t *ns)
{
	*ns = NEVER;
	if (!timeout)
		return true;
	if (!reach_reads(timeout, sizeof(*timeout)) || timeout->tv_sec < 0 ||
	    timeout->tv_nsec < 0 || timeout->tv_nsec > 999999999)
		return false;
	*ns = wait_ns(timeout->tv_sec, timeout->tv_nsec, 1);
	return true;
}

EXPORT(int, poll, struct pollfd *fds, nfds_t n, int timeout)
{
	int rc = concerns(fds, n, "poll");

	if (rc < 0)
		return -1;
	/* The call that the program made: a sandbox may forbid another one. */
	if (!rc)
		return REAL(poll)(fds, n, timeout);
	return wait_poll(fds, n, from_ms(timeout), NULL, "poll");
}

EXPORT(int, ppoll, struct pollfd *fds, nfds_t n, const struct timespec *timeout,
       const sigset_t *mask)
{
	int64_t ns;

	if (!wait_time(timeout, &ns))
		return REAL(ppoll)(fds, n, timeout, mask);
	return wait_poll(fds, n, ns, mask, "ppoll");
}

EXPORT(int, __poll_chk, struct pollfd *fds, nfds_t n, int timeout, size_t room)
{
	if (room / sizeof(*fds) < n)
		return REAL(__poll_chk)(fds, n, timeout, room);
	return call_poll(fds, n, timeout);
}

EXPORT(int, __ppoll_chk, struct pollfd *fds, nfds_t n,
       const struct timespec *timeout, const sigset_t *mask, size_t room)
{
	if (room / sizeof(*fds) < n)
		return REAL(__ppoll_chk)(fds, n, timeout, mask, room);
	return call_ppoll(fds, n, timeout, mask);
}
