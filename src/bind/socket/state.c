/* SPDX-License-Identifier: MIT */
/*
 * state.c - the process-wide state, its first moments, fork(), and the way to
 * the real functions.
 */
#include "bind/own/own.h"
#include "bind/socket/back.h"
#include "bind/socket/pollers.h"
#include "bind/socket/set.h"
#include "bind/socket/sock.h"

#include "env/env.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Ready before any code of this library has run: close() may come first. */
struct sock_state st = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.after = 8,
	.idle_ns = 10000000000,
	.wake_fd = -1,
	.bells_fd = -1,
	.helper_set = -1,
	.ask_fd = -1,
	.page_fd = -1,
	.back_cond = PTHREAD_COND_INITIALIZER,
};

_Thread_local struct signal_counts st_signals;
_Thread_local struct poll_asked st_poll_asked;

#define REAL_NAME(fn, result, args) #fn,
static const char *const real_names[REAL_COUNT] = {REAL_LIST(REAL_NAME)};

static void *find_real(enum real_fn which)
{
	void *fn = dlsym(RTLD_NEXT, real_names[which]);

	atomic_store_explicit(&st.real[which], fn, memory_order_relaxed);
	return fn;
}

void *real_get(enum real_fn which)
{
	void *fn = atomic_load_explicit(&st.real[which], memory_order_relaxed);

	if (__builtin_expect(fn != NULL, 1))
		return fn;
	fn = find_real(which);
	if (!fn) {
		fprintf(stderr, "libskein-socket: libc has no %s\n",
			real_names[which]);
		abort();
	}
	return fn;
}

/* Before a thread can hold st.lock: dlsym() waits for a thread that loads a library,
 * and that thread, in a constructor, may wait for st.lock. */
static void find_all_real(void)
{
	int i;

	for (i = 0; i < REAL_COUNT; i++)
		find_real((enum real_fn)i);
	dlerror(); /* the program did not ask */
}

uint64_t state_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void state_say(const char *fmt, ...)
{
	char line[512];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(line, sizeof(line) - 1, fmt, ap);
	va_end(ap);
	if (n < 0)
		return;
	if ((size_t)n > sizeof(line) - 2)
		n = sizeof(line) - 2;
	line[n++] = '\n';
	REAL(write)(2, line, (size_t)n);
}

static void each_sock(void (*fn)(struct sock *s))
{
	int i;

	for (i = 0; i < st.fd_top; i++) {
		struct sock *s = atomic_load(&st.socks[i]);

		if (s && s->fd == i)
			fn(s);
	}
}

static void fork_prepare(void)
{
	int i;

	pthread_mutex_lock(&st.lock);
	each_sock(sock_fork_prepare);
	for (i = 0; i < st.fd_top; i++)
		if (atomic_load(&st.sets[i]))
			set_fork(atomic_load(&st.sets[i]));
}

static void fork_parent(void)
{
	ENV_HOLD_CANCEL();

	each_sock(sock_fork_parent);
	pthread_mutex_unlock(&st.lock);
}

/* The child has neither rings nor helper: its first use of a stream of the
 * parent's has the parent hand it back (back.c). Where the parent had none either (a
 * daemon, a server's worker), what the child opens itself may be promoted. */
static void fork_child(void)
{
	ENV_HOLD_CANCEL();
	int i;

	each_sock(sock_fork_child);
	for (i = 0; i < st.fd_top; i++)
		if (atomic_load(&st.sets[i]))
			atomic_store(&st.sets[i], NULL);
	pthread_mutex_init(&st.lock, NULL);
	pthread_cond_init(&st.back_cond, NULL);
	st.backs = NULL;
	st.askers = NULL;
	st.draining = 0; /* by a thread of the parent's */
	st.host = NULL;	 /* the parent's */
	st.env = NULL;	 /* the parent's */
	st.waiters = NULL;
	pollers_fork();
	st.pid = getpid();
	status_fork();
	/* Else a parent that has gone would seem to listen. */
	own_close(st.bells_fd);
	st.ask_fd = st.wake_fd = -1;
	if (atomic_load(&st.helper_runs))
		atomic_store(&st.forked, true);
}

/* `skein run` has checked it. */
static uint64_t idle_seconds(const char *text)
{
	double s = strtod(text, NULL);

	return s > 0 && s < 1e9 ? (uint64_t)(s * 1e9) : 0;
}

/* Any bytes may be a program's name; these stand in JSON as they are. */
static void name_program(void)
{
	char *c;

	snprintf(st.program, sizeof(st.program), "%s",
		 program_invocation_short_name);
	for (c = st.program; *c; c++)
		if (*c < ' ' || *c > '~' || *c == '"' || *c == '\\')
			*c = '?';
}

__attribute__((constructor)) static void start(void)
{
	const char *after = getenv("SKEIN_RUN_AFTER");
	const char *idle = getenv("SKEIN_RUN_IDLE");
	const char *wait = getenv("SKEIN_RUN_WAIT");
	const char *report, *require = getenv("SKEIN_RUN_REQUIRE");
	enum poller_mode mode = POLLER_ADAPTIVE;
	const size_t len = FD_MAX * sizeof(*st.socks), page = status_len(),
		     named = FD_MAX / 8;
	char *mem, why[320];

	find_all_real();
	if (wait && !poller_mode_find(wait, &mode) && mode == POLLER_TCP)
		return;
	/* Pages come when a descriptor in them is used. */
	mem = mmap(NULL, page + named + 2 * len + FD_MAX * sizeof(*st.all),
		   PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	st.holders =
		mmap(NULL, FD_MAX * sizeof(*st.holders), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (mem == MAP_FAILED || st.holders == MAP_FAILED ||
	    pthread_atfork(fork_prepare, fork_parent, fork_child))
		return;
	status_init(mem);
	mem += page;
	st.named = (void *)mem;
	mem += named;
	st.socks = (void *)mem;
	st.sets = (void *)(mem + len);
	st.all = (void *)(mem + 2 * len);
	/* A copy: programs write their title over the environment. */
	report = getenv("SKEIN_RUN_REPORT");
	st.report = report ? strdup(report) : NULL;
	name_program();
	st.require = require && !strcmp(require, "1");
	pollers_init(mode, getenv("SKEIN_RUN_POLLERS"));
	if (after && atoi(after) > 0)
		st.after = (uint32_t)atoi(after);
	if (idle && *idle)
		st.idle_ns = idle_seconds(idle);
	st.pid = getpid();
	own_init();
	if (stream_conf_load(&st.stream, why, sizeof(why))) {
		state_say("skein run: %s: all stays on TCP", why);
		return;
	}
	atomic_store_explicit(&st.on, true, memory_order_release);
}

/* Has everything that was written come to the peers' rings? Locked. */
static bool all_drained(void *arg)
{
	bool all = !st.draining;
	int i;

	for (i = 0; i < st.fd_top; i++) {
		struct sock *s = atomic_load(&st.socks[i]);

		if (s && atomic_load(&s->mode) == SOCK_ON)
			all &= stream_flush(s->stream) &&
			       stream_drained(s->stream);
	}
	return all;
}

/* An end may come where the lock is held, in a signal handler. */
static bool lock_at_end(void)
{
	struct timespec end;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec++;
	return !pthread_mutex_timedlock(&st.lock, &end);
}

/* Not a child of vfork(); a forked child has no streams of its own. */
static bool has_streams(void)
{
	if (!atomic_load(&st.on) || st.pid != getpid())
		return false;
	if (!atomic_load(&st.forked))
		return true;
	each_sock(sock_put_holder);
	return false;
}

static const char leaves[] = "exit of a forked child's parent";

/* What was written is in the peers' rings before the sockets close. Locked. */
static void drain(const char *before)
{
	if (!sock_wait(all_drained, NULL))
		state_say("skein run: a peer has not taken what was written "
			  "before %s, bytes may be lost",
			  before);
}

static void leave_rings(void)
{
	if (atomic_load(&st.shares))
		back_shared(leaves);
	drain("the program's end");
}

void state_drain(void)
{
	ENV_HOLD_CANCEL();

	if (!atomic_load(&st.on) || !lock_at_end())
		return;
	drain("exec");
	pthread_mutex_unlock(&st.lock);
}

void state_end(void)
{
	ENV_HOLD_CANCEL();

	if (!has_streams() || !lock_at_end())
		return;
	leave_rings();
	pthread_mutex_unlock(&st.lock);
}

/* The report is whole. */
__attribute__((destructor)) static void stop(void)
{
	ENV_HOLD_CANCEL();
	bool fell_back = false;
	int i;

	if (!has_streams() || !lock_at_end())
		return;
	leave_rings();
	for (i = 0; i < st.fd_top; i++) {
		struct sock *s = atomic_load(&st.socks[i]);

		if (!s || s->fd != i)
			continue;
		report_line(s);
		fell_back |= sock_require(s, false);
	}
	pthread_mutex_unlock(&st.lock);
	if (!fell_back)
		return;
	fflush(NULL);
	REAL(_exit)(70);
}
