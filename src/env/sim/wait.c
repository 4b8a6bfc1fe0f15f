/* SPDX-License-Identifier: MIT */
/*
 * wait.c - waiters in virtual time: what src/env/real/wait.c does, with a
 * parked thread in place of a spin.
 */
#include "env/sim/world.h"

#include "base/assert.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>

#define IDLE_SLEEP_NS 30000u /* as in real/wait.c */

struct env_waiter {
	struct env_waiter_lead lead;
	struct sim_fd fd; /* readable when a sleep would end at once */
	struct sim_proc *proc;
	enum env_wait_mode mode;
	bool armed;
	bool token; /* a wake-up */
	bool nudge; /* a wake-up while no thread was armed: look again */
	struct sim_fiber *sleeper;
	struct sim_fiber *spinner;
	struct list_node watches; /* sim_watch.link */
	uint64_t idle_since;
	uint64_t idle_until;
	uint64_t change; /* of the process, when it last looked */
};

struct sim_watch {
	struct list_node link;	  /* env_waiter.watches */
	struct list_node fd_link; /* sim_fd.watches */
	struct env_waiter *w;
	struct sim_fd *fd;
	uint32_t events;
};

static bool watch_ready(const struct sim_watch *x)
{
	return (x->fd->ready(x->fd) & x->events) != 0;
}

static bool any_ready(const struct env_waiter *w)
{
	struct list_node *n;

	list_for_each(n, &w->watches)
		if (watch_ready(container_of(n, struct sim_watch, link)))
			return true;
	return false;
}

static uint32_t waiter_fd_ready(struct sim_fd *fd)
{
	struct env_waiter *w = container_of(fd, struct env_waiter, fd);

	return w->token || any_ready(w) ? EPOLLIN : 0;
}

static void watch_free(struct sim_watch *x)
{
	list_del(&x->link);
	list_del(&x->fd_link);
	free(x);
}

static void waiter_close(struct sim_fd *fd)
{
	struct env_waiter *w = container_of(fd, struct env_waiter, fd);
	struct list_node *n, *tmp;

	list_for_each_safe(n, tmp, &w->watches)
		watch_free(container_of(n, struct sim_watch, link));
	fd_forget(fd);
	free(w);
}

int sim_waiter_new(struct skein_env *env, enum env_wait_mode mode, bool second,
		   struct env_waiter **waiter)
{
	struct env_waiter *w = calloc(1, sizeof(*w));
	int rc;

	if (!w)
		return -ENOMEM;
	/* a waiter that is not armed is nudged */
	atomic_init(&w->lead.used, true);
	w->proc = sim_proc_of(env);
	w->mode = mode;
	w->idle_until = ENV_NEVER;
	w->fd.ready = waiter_fd_ready;
	w->fd.close = waiter_close;
	list_init(&w->watches);
	rc = fd_open(w->proc, &w->fd);
	if (rc) {
		free(w);
		return rc;
	}
	*waiter = w;
	return 0;
}

void sim_waiter_free(struct env_waiter *w)
{
	skein_assert(!w->sleeper && !w->spinner);
	waiter_close(&w->fd);
}

/* --- idling ------------------------------------------------------------ */

void sim_idle_until(struct env_waiter *w, uint64_t deadline_ns)
{
	w->idle_until = deadline_ns;
}

static bool changed(struct env_waiter *w, struct sim_fiber *f)
{
	bool change = w->nudge || f->fresh ||
		      (!f->blind && w->change != w->proc->change);

	w->nudge = false;
	f->fresh = false;
	w->change = w->proc->change;
	return change;
}

enum env_idle_verdict sim_idle(struct env_waiter *w, unsigned round)
{
	struct sim_world *world = w->proc->w;
	struct sim_fiber *f = world->cur;
	uint64_t until = w->idle_until;

	w->idle_until = ENV_NEVER;
	sim_charge(world, world->costs.round);
	if (w->mode == ENV_WAIT_EVENT) {
		if (round)
			thread_yield(f);
		return ENV_IDLE_SLEEP;
	}
	thread_flush(f);
	if (!round)
		w->idle_since = world->agenda.now;
	if (changed(w, f))
		return ENV_IDLE_AGAIN;
	if (w->mode == ENV_WAIT_ADAPTIVE) {
		if (world->agenda.now - w->idle_since >= IDLE_SLEEP_NS)
			return ENV_IDLE_SLEEP;
		if (until > w->idle_since + IDLE_SLEEP_NS)
			until = w->idle_since + IDLE_SLEEP_NS;
	}
	f->no_yield = w->mode == ENV_WAIT_SPIN;
	f->waits_for = "a change for its engine";
	w->spinner = f;
	thread_spin(f, until);
	w->spinner = NULL;
	f->waits_for = "";
	(void)changed(w, f);
	return ENV_IDLE_AGAIN;
}

/* --- sleeping ---------------------------------------------------------- */

void sim_waiter_arm(struct env_waiter *w)
{
	w->armed = true;
}

void sim_waiter_disarm(struct env_waiter *w)
{
	w->armed = false;
}

static int wake_reason(struct env_waiter *w)
{
	bool token = w->token;

	w->token = false;
	if (any_ready(w))
		return 1;
	return token ? 0 : -ETIMEDOUT;
}

int sim_waiter_sleep(struct env_waiter *w, uint64_t deadline_ns)
{
	struct sim_world *world = w->proc->w;
	struct sim_fiber *f = world->cur;
	int rc;

	sim_charge(world, world->costs.syscall);
	thread_flush(f);
	if (!w->token && !any_ready(w) && deadline_ns > world->agenda.now) {
		f->waits_for = "a wake-up";
		w->sleeper = f;
		thread_sleep(f, deadline_ns);
		w->sleeper = NULL;
		f->waits_for = "";
	}
	w->armed = false;
	rc = wake_reason(w);
	/* A sleep may end without a reason, but -ETIMEDOUT never comes
	 * early. */
	return rc == -ETIMEDOUT && world->agenda.now < deadline_ns ? 0 : rc;
}

static void waiter_rouse(struct env_waiter *w)
{
	if (w->sleeper)
		fiber_wake(w->sleeper, w->proc->w->costs.wake);
	else if (w->spinner)
		fiber_wake(w->spinner, w->proc->w->costs.detect);
}

void sim_waiter_wake(struct env_waiter *w)
{
	w->nudge = true;
	if (w->armed) {
		w->armed = false;
		w->token = true;
		fd_changed(&w->fd);
		sim_charge(w->proc->w, w->proc->w->costs.syscall);
	}
	waiter_rouse(w);
}

/* --- watching ---------------------------------------------------------- */

static struct sim_watch *watch_find(struct env_waiter *w, struct sim_fd *fd)
{
	struct list_node *n;

	list_for_each(n, &fd->watches) {
		struct sim_watch *x =
			container_of(n, struct sim_watch, fd_link);

		if (x->w == w)
			return x;
	}
	return NULL;
}

int sim_waiter_watch(struct env_waiter *w, int num, uint32_t events)
{
	struct sim_fd *fd = fd_get(w->proc, num);
	struct sim_watch *x;

	if (!fd)
		return -EBADF;
	x = watch_find(w, fd);
	if (!x) {
		x = calloc(1, sizeof(*x));
		if (!x)
			return -ENOMEM;
		x->w = w;
		x->fd = fd;
		list_add_tail(&w->watches, &x->link);
		list_add_tail(&fd->watches, &x->fd_link);
	}
	x->events = events | EPOLLHUP | EPOLLERR;
	if (watch_ready(x))
		waiter_rouse(w);
	return 0;
}

int sim_waiter_unwatch(struct env_waiter *w, int num)
{
	struct sim_fd *fd = fd_get(w->proc, num);
	struct sim_watch *x = fd ? watch_find(w, fd) : NULL;

	if (!x)
		return fd ? -ENOENT : -EBADF;
	watch_free(x);
	return 0;
}

void waiter_forget_fd(struct sim_fd *fd)
{
	struct list_node *n, *tmp;

	list_for_each_safe(n, tmp, &fd->watches)
		watch_free(container_of(n, struct sim_watch, fd_link));
}

void waiter_fd_changed(struct sim_fd *fd)
{
	struct list_node *n;

	list_for_each(n, &fd->watches) {
		struct sim_watch *x =
			container_of(n, struct sim_watch, fd_link);

		if (!watch_ready(x))
			continue;
		/* A spinner looks at descriptors at its beat only. */
		if (x->w->sleeper)
			waiter_rouse(x->w);
		fd_changed(&x->w->fd);
	}
}

int sim_waiter_ready(struct env_waiter *w)
{
	sim_charge(w->proc->w, w->proc->w->costs.syscall);
	w->token = false;
	return any_ready(w);
}

int sim_waiter_ready_fds(struct env_waiter *w, int *fds, int max)
{
	struct list_node *n, *last = w->watches.prev;
	int ready = 0;
	bool end = list_empty(&w->watches);

	sim_charge(w->proc->w, w->proc->w->costs.syscall);
	w->token = false;
	while (!end && ready < max) {
		struct sim_watch *x;

		n = w->watches.next;
		end = n == last;
		x = container_of(n, struct sim_watch, link);
		/* Descriptors that did not fit come first next time. */
		list_del(n);
		list_add_tail(&w->watches, n);
		if (watch_ready(x))
			fds[ready++] = x->fd->num;
	}
	return ready;
}

int sim_waiter_fd(struct env_waiter *w)
{
	return w->fd.num;
}
