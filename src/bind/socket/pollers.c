/* SPDX-License-Identifier: MIT */
/* pollers.c - see pollers.h. */
#include "bind/socket/pollers.h"

#include "bind/socket/set.h"
#include "bind/socket/wait.h"
#include "env/env.h"

#include <sched.h>
#include <stdlib.h>

/* Sockets that one hold of the lock looks at. */
#define BATCH 64

struct polling {
	unsigned index;
	struct env_waiter *waiter;
};

static unsigned cores(void)
{
	cpu_set_t cpus;

	return sched_getaffinity(0, sizeof(cpus), &cpus)
		       ? 1
		       : (unsigned)CPU_COUNT(&cpus);
}

void pollers_init(enum poller_mode mode, const char *count)
{
	poller_init(&st.poller, mode);
	st.pollers = count && *count ? (unsigned)atoi(count)
				     : poller_threads(cores());
	if (st.pollers > POLLER_THREADS_MAX)
		st.pollers = POLLER_THREADS_MAX;
}

void pollers_fork(void)
{
	st.pollers = 0;
	st.pollers_awake = false;
	st.polling = NULL;
}

/* --- waiting ------------------------------------------------------------- */

bool pollers_idle(struct env_waiter *w, struct poller_wait *pw, unsigned round)
{
	enum poller_mode mode = poller_mode(&st.poller);
	uint64_t now;

	if (mode == POLLER_EVENT) {
		/* Later rounds: a peer has not answered yet. */
		if (round)
			env_yield(st.env);
		return true;
	}
	if (mode == POLLER_BPEV) {
		now = state_now_ns();
		if (!pw->begun_ns)
			pw->begun_ns = now;
		if (poller_step(&st.poller, pw, now) == POLLER_SLEEP)
			return true;
	}
	if (env_idle(st.env, w, round) != ENV_IDLE_SLEEP)
		return false;
	/* From here on each round gives the core away. But a thread that
	 * computes does not give it back, and then it is a sleep that costs
	 * less (env/real_wait.c). */
	return mode == POLLER_ADAPTIVE || env_core_wanted(st.env, w);
}

void pollers_found(const struct poller_wait *pw)
{
	if (pw->begun_ns)
		poller_found(&st.poller, pw, state_now_ns());
}

/* --- polling threads ----------------------------------------------------- */

/* Wakes the threads that sleep there, if it is ready. Locked. */
static bool look_at(struct sock *s)
{
	bool by_set = s->set && s->set->sleepers && set_finds(s);

	if (by_set)
		set_wake(s->set);
	if (!wait_finds(s))
		return by_set;
	wait_wake(s);
	return true;
}

static bool sleeps(const struct sock *s)
{
	return (s->set && s->set->sleepers) || s->waiters;
}

static struct sock *on_stream(int fd)
{
	struct sock *s = atomic_load(&st.socks[fd]);

	return s && atomic_load(&s->mode) == SOCK_ON ? s : NULL;
}

/* One look at its share of the sockets, a batch under the lock at a time. */
static bool look(const struct polling *me)
{
	bool moved = false, more = true;
	int fd = (int)me->index, i;

	while (more) {
		pthread_mutex_lock(&st.lock);
		for (i = 0; i < BATCH && fd < st.fd_top; i++) {
			struct sock *s = on_stream(fd);

			if (s)
				moved |= look_at(s);
			fd += (int)st.pollers;
		}
		more = fd < st.fd_top;
		pthread_mutex_unlock(&st.lock);
	}
	return moved;
}

/* Nothing has moved for a while: from now on the peers ring. They are asked in
 * the step that ends the watch. A thread that goes to sleep later asks by
 * itself. Where a question cannot leave yet, the threads look on. */
static void rest(void)
{
	bool may = true;
	int fd;

	pthread_mutex_lock(&st.lock);
	for (fd = 0; fd < st.fd_top; fd++) {
		struct sock *s = on_stream(fd);

		if (s && sleeps(s))
			may &= sock_ask(s);
	}
	if (may)
		st.pollers_awake = false;
	pthread_mutex_unlock(&st.lock);
}

static bool is_awake(void)
{
	bool awake;

	pthread_mutex_lock(&st.lock);
	awake = st.pollers_awake;
	pthread_mutex_unlock(&st.lock);
	return awake;
}

/* Sleeps until pollers_bell(): it sets the word first and wakes second. */
static void sleep_until_bell(const struct polling *me)
{
	env_waiter_arm(st.env, me->waiter);
	if (is_awake())
		env_waiter_disarm(st.env, me->waiter);
	else
		env_waiter_sleep(st.env, me->waiter, ENV_NEVER);
}

/* RDMAPoll of algorithm 2. */
static void polling_main(void *arg)
{
	struct polling *me = arg;
	uint64_t moved_ns = state_now_ns(), now;
	unsigned round = 0;

	for (;;) {
		if (!is_awake()) {
			sleep_until_bell(me);
			moved_ns = state_now_ns();
			round = 0;
			continue;
		}
		now = state_now_ns();
		if (look(me)) {
			moved_ns = now;
			/* The threads that it woke want the lock. */
			env_yield(st.env);
			round = 0;
			continue;
		}
		/* One of them decides for all: what the others find wakes a
		 * thread, and that one asks when it sleeps again. */
		if (!me->index && (now - moved_ns >= POLLERS_REST_NS ||
				   poller_mode(&st.poller) != POLLER_BPEV))
			rest();
		env_idle(st.env, me->waiter, round++);
	}
}

/* Locked. */
static bool start(void)
{
	struct env_thread *thread;
	unsigned i;

	st.polling = calloc(st.pollers, sizeof(*st.polling));
	for (i = 0; st.polling && i < st.pollers; i++) {
		struct polling *p = &st.polling[i];

		p->index = i;
		if (env_waiter_new(st.env, ENV_WAIT_POLL, &p->waiter) ||
		    env_thread_start(st.env, "skein-poll", polling_main, p,
				     &thread))
			break;
	}
	/* The first n look at all sockets. */
	st.pollers = i;
	st.pollers_awake = i > 0;
	return st.pollers_awake;
}

bool pollers_watch(void)
{
	if (poller_mode(&st.poller) != POLLER_BPEV || !st.pollers)
		return false;
	return st.polling ? st.pollers_awake : start();
}

void pollers_bell(void)
{
	unsigned i;

	if (!st.polling || st.pollers_awake ||
	    poller_mode(&st.poller) != POLLER_BPEV)
		return;
	st.pollers_awake = true;
	for (i = 0; i < st.pollers; i++)
		env_waiter_wake(st.env, st.polling[i].waiter);
}
