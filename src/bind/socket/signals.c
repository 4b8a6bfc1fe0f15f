/* SPDX-License-Identifier: MIT */
/*
 * signals.c - the C library's functions that set a signal handler; see
 * signals.h.
 *
 * What the program sets is kept in st.handlers before ours is set in the kernel:
 * a signal that arrives between the two runs the new handler a moment early.
 * SIG_DFL and SIG_IGN go to the kernel alone: a child of vfork() sets them in
 * memory that is its parent's.
 */
#include "bind/socket/signals.h"

#include "bind/socket/export.h"
#include "bind/socket/state.h"

#include <stddef.h>

struct signal_counts signals_now(void)
{
	return (struct signal_counts){st_signals.handled,
				      st_signals.interrupted};
}

static void count(const struct signal_handler *h)
{
	st_signals.handled++;
	st_signals.interrupted += !atomic_load(&h->restarts);
}

static void run_one(int sig)
{
	struct signal_handler *h = &st.handlers[sig];

	count(h);
	atomic_load (&h->one)(sig);
}

static void run_three(int sig, siginfo_t *info, void *context)
{
	struct signal_handler *h = &st.handlers[sig];

	count(h);
	atomic_load (&h->three)(sig, info, context);
}

/* May the handler of this signal be counted? */
static bool is_counted(int sig)
{
	switch (sig) {
	case SIGSEGV:
	case SIGBUS:
	case SIGFPE:
	case SIGILL:
	case SIGTRAP:
	case SIGSYS:
		return false;
	default:
		return sig > 0 && sig < NSIG;
	}
}

static bool is_handler(void (*handler)(int))
{
	return handler != SIG_DFL && handler != SIG_IGN && handler != SIG_ERR &&
	       handler != SIG_HOLD;
}

/* What the program has set where the kernel has ours. */
static void translate(int sig, struct sigaction *sa,
		      const struct signal_handler *h)
{
	if (sa->sa_flags & SA_SIGINFO) {
		if (sa->sa_sigaction == run_three)
			sa->sa_sigaction = atomic_load(&h->three);
	} else if (sa->sa_handler == run_one) {
		sa->sa_handler = atomic_load(&h->one);
	}
}

EXPORT(int, sigaction, int sig, const struct sigaction *act,
       struct sigaction *old)
{
	struct signal_handler *h, was;
	struct sigaction ours;
	int rc;

	if (!is_counted(sig))
		return REAL(sigaction)(sig, act, old);
	h = &st.handlers[sig];
	was.one = atomic_load(&h->one);
	was.three = atomic_load(&h->three);
	if (act && is_handler(act->sa_handler)) {
		ours = *act;
		if (act->sa_flags & SA_SIGINFO) {
			atomic_store(&h->three, act->sa_sigaction);
			ours.sa_sigaction = run_three;
		} else {
			atomic_store(&h->one, act->sa_handler);
			ours.sa_handler = run_one;
		}
		atomic_store(&h->restarts, act->sa_flags & SA_RESTART);
		act = &ours;
	}
	rc = REAL(sigaction)(sig, act, old);
	if (!rc && old)
		translate(sig, old, &was);
	return rc;
}

/* The flags that another function has set. */
static void learn_flags(int sig)
{
	struct sigaction sa;

	if (is_counted(sig) && !REAL(sigaction)(sig, NULL, &sa))
		atomic_store(&st.handlers[sig].restarts,
			     sa.sa_flags & SA_RESTART);
}

/* signal() and its kin: set is one of them. */
static sighandler_t set_by(sighandler_t (*set)(int, sighandler_t), int sig,
			   sighandler_t handler)
{
	struct signal_handler was;
	struct sigaction sa = {0};
	sighandler_t old;

	if (!is_counted(sig))
		return set(sig, handler);
	was.one = atomic_load(&st.handlers[sig].one);
	was.three = atomic_load(&st.handlers[sig].three);
	if (is_handler(handler)) {
		atomic_store(&st.handlers[sig].one, handler);
		handler = run_one;
	}
	old = set(sig, handler);
	learn_flags(sig);
	if (old == (sighandler_t)(void (*)(void))run_three)
		sa.sa_flags = SA_SIGINFO;
	sa.sa_handler = old;
	translate(sig, &sa, &was);
	return sa.sa_handler;
}

EXPORT(sighandler_t, signal, int sig, sighandler_t handler)
{
	return set_by(REAL(signal), sig, handler);
}

EXPORT(sighandler_t, bsd_signal, int sig, sighandler_t handler)
{
	return set_by(REAL(signal), sig, handler);
}

EXPORT(sighandler_t, ssignal, int sig, sighandler_t handler)
{
	return set_by(REAL(signal), sig, handler);
}

EXPORT(sighandler_t, __sysv_signal, int sig, sighandler_t handler)
{
	return set_by(REAL(__sysv_signal), sig, handler);
}

EXPORT(sighandler_t, sysv_signal, int sig, sighandler_t handler)
{
	return set_by(REAL(__sysv_signal), sig, handler);
}

EXPORT(sighandler_t, sigset, int sig, sighandler_t handler)
{
	return set_by(REAL(sigset), sig, handler);
}

EXPORT(int, siginterrupt, int sig, int flag)
{
	int rc = REAL(siginterrupt)(sig, flag);

	learn_flags(sig);
	return rc;
}
