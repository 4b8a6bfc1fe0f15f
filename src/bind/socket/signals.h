/* SPDX-License-Identifier: MIT */
/*
 * signals.h - which of the program's signal handlers have run in a thread.
 *
 * The kernel ends a call with EINTR when a handler has run in it. A wait here is
 * mostly not in the kernel. So the program's handlers are called by ours, which
 * count. A wait reads the counts when it begins and before it sleeps.
 *
 * Handlers of SIGSEGV and what else a program's own instruction raises are left
 * alone. What asks the kernel without the C library sees our handler.
 */
#ifndef SKEIN_BIND_SOCKET_SIGNALS_H
#define SKEIN_BIND_SOCKET_SIGNALS_H

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>

/* What the program wants to run: as the kernel's struct sigaction has it, by one
 * or by three arguments. */
struct signal_handler {
	_Atomic(void (*)(int)) one;
	_Atomic(void (*)(int, siginfo_t *, void *)) three;
	atomic_bool restarts; /* SA_RESTART */
};

/* Of a thread. */
struct signal_counts {
	unsigned handled;
	unsigned interrupted; /* handlers without SA_RESTART, of these */
};

struct signal_counts signals_now(void);

/* Has any handler run since then, and so every wait but a blocking read or write
 * ends? */
static inline bool signals_handled(const struct signal_counts *then)
{
	return signals_now().handled != then->handled;
}

/* Has one without SA_RESTART? */
static inline bool signals_interrupted(const struct signal_counts *then)
{
	return signals_now().interrupted != then->interrupted;
}

#endif
