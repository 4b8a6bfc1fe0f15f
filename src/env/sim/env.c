/* SPDX-License-Identifier: MIT */
/*
 * env.c - the table through which production code meets a simulated world.
 */
#include "env/sim/world.h"

#include "base/assert.h"

#include <string.h>

static uint64_t sim_env_now(struct skein_env *env)
{
	return sim_thread_now(sim_proc_of(env)->w);
}

static void sim_env_random(struct skein_env *env, void *buf, size_t len)
{
	prng_fill(&sim_proc_of(env)->prng, buf, len);
}

static uint32_t sim_pid(struct skein_env *env)
{
	return sim_proc_id(sim_proc_of(env));
}

/* What each kind of work costs, in ns; copies per byte. */
static void sim_env_charge(struct skein_env *env, enum env_cost cost,
			   uint64_t n)
{
	struct sim_world *w = sim_proc_of(env)->w;
	const struct sim_costs *c = &w->costs;
	const uint32_t table[] = {
		[ENV_COST_LOOK] = c->look,     [ENV_COST_MESSAGE] = c->message,
		[ENV_COST_ENCODE] = c->encode, [ENV_COST_DECODE] = c->decode,
		[ENV_COST_SUM] = c->sum,       [ENV_COST_HANDLER] = c->handler,
		[ENV_COST_SWAP] = c->swap,     [ENV_COST_PAUSE] = c->pause,
	};

	if (cost == ENV_COST_COPY)
		sim_charge(w, 5 + n / 16);
	else
		sim_charge(w, table[cost] * n);
	if (cost == ENV_COST_SWAP || cost == ENV_COST_PAUSE)
		sim_flush(w, 0);
}

/* --- threads and locks ------------------------------------------------- */

static int sim_thread_start(struct skein_env *env, const char *name,
			    void (*fn)(void *arg), void *arg,
			    struct env_thread **thread)
{
	struct sim_proc *p = sim_proc_of(env);
	struct sim_fiber *f;
	int rc;

	sim_charge(p->w, p->w->costs.syscall);
	rc = fiber_new(p, name, fn, arg, &f);
	if (!rc)
		*thread = (struct env_thread *)(void *)f;
	return rc;
}

static void sim_thread_join(struct skein_env *env, struct env_thread *thread)
{
	struct sim_fiber *f = (struct sim_fiber *)(void *)thread;
	struct sim_world *w = sim_proc_of(env)->w;

	/* The wait may end while this thread pays its charges, so it pays
	 * before it arms. */
	thread_flush(w->cur);
	while (f->state != SIM_FIBER_DONE) {
		f->joiner = w->cur;
		w->cur->waits_for = "a thread's end";
		thread_sleep(w->cur, ENV_NEVER);
		w->cur->waits_for = "";
	}
	fiber_kill(f);
}

static uint64_t sim_thread_self(struct skein_env *env)
{
	struct sim_world *w = sim_proc_of(env)->w;

	return w->cur ? w->cur->id : UINT32_MAX;
}

enum {
	EXIT_IDLE,
	EXIT_LINKED,
	EXIT_RUNS
};

void thread_exits(struct sim_fiber *f)
{
	struct env_exit *x;

	while (!list_empty(&f->exits)) {
		x = container_of(f->exits.next, struct env_exit, link);
		list_del(&x->link);
		x->state = EXIT_RUNS;
		x->fn(x);
		x->state = EXIT_IDLE;
	}
}

/* fn may stop for a lock. */
static void exit_wait(struct skein_env *env, const struct env_exit *x)
{
	while (x->state == EXIT_RUNS)
		thread_yield(sim_proc_of(env)->w->cur);
}

static int sim_thread_on_exit(struct skein_env *env, struct env_exit *x)
{
	struct sim_fiber *f = sim_proc_of(env)->w->cur;

	exit_wait(env, x);
	if (!f)
		/* outside of all threads nothing ends: fn never runs */
		return 0;
	list_add_tail(&f->exits, &x->link);
	x->state = EXIT_LINKED;
	return 0;
}

static void sim_thread_off_exit(struct skein_env *env, struct env_exit *x)
{
	if (x->state == EXIT_LINKED) {
		list_del(&x->link);
		x->state = EXIT_IDLE;
	}
	exit_wait(env, x);
}

static void sim_yield(struct skein_env *env)
{
	thread_yield(sim_proc_of(env)->w->cur);
}

/* In struct env_mutex's opaque words. */
struct mutex {
	struct sim_fiber *owner;
	struct list_node waiters; /* sim_fiber.link */
};

_Static_assert(sizeof(struct mutex) <= sizeof(struct env_mutex), "it fits");

static struct mutex *mutex_of(struct env_mutex *m)
{
	return (struct mutex *)(void *)m->opaque;
}

static void sim_mutex_init(struct skein_env *env, struct env_mutex *m)
{
	memset(m, 0, sizeof(*m));
	list_init(&mutex_of(m)->waiters);
}

static void sim_mutex_fini(struct skein_env *env, struct env_mutex *m)
{
	skein_assert(!mutex_of(m)->owner);
}

static void sim_mutex_lock(struct skein_env *env, struct env_mutex *mutex)
{
	struct sim_fiber *f = sim_proc_of(env)->w->cur;
	struct mutex *m = mutex_of(mutex);

	if (!f)
		return; /* outside of all threads no other thread runs */
	skein_assert(m->owner != f);
	if (!m->owner) {
		m->owner = f;
		return;
	}
	thread_flush(f);
	if (!m->owner) {
		m->owner = f;
		return;
	}
	/* The thread joins the line before it sleeps. It holds a core now, so
	 * its link is free. */
	list_add_tail(&m->waiters, &f->link);
	f->waits_for = "a lock";
	while (m->owner != f)
		thread_sleep(f, ENV_NEVER);
	f->waits_for = "";
}

static void sim_mutex_unlock(struct skein_env *env, struct env_mutex *mutex)
{
	struct mutex *m = mutex_of(mutex);
	struct list_node *n = list_pop_head(&m->waiters);

	if (!sim_proc_of(env)->w->cur)
		return;
	m->owner = n ? container_of(n, struct sim_fiber, link) : NULL;
	if (m->owner)
		fiber_wake(m->owner, sim_proc_of(env)->w->costs.wake);
}

const struct env_ops sim_env_ops = {
	.now_ns = sim_env_now,
	.charge = sim_env_charge,
	.random = sim_env_random,
	.pid = sim_pid,
	.alloc = proc_alloc,
	.free = proc_free,
	.thread_start = sim_thread_start,
	.thread_join = sim_thread_join,
	.thread_self = sim_thread_self,
	.thread_on_exit = sim_thread_on_exit,
	.thread_off_exit = sim_thread_off_exit,
	.yield = sim_yield,
	.mutex_init = sim_mutex_init,
	.mutex_fini = sim_mutex_fini,
	.mutex_lock = sim_mutex_lock,
	.mutex_unlock = sim_mutex_unlock,
	.waiter_new = sim_waiter_new,
	.waiter_free = sim_waiter_free,
	.idle_until = sim_idle_until,
	.idle = sim_idle,
	.waiter_arm = sim_waiter_arm,
	.waiter_disarm = sim_waiter_disarm,
	.waiter_sleep = sim_waiter_sleep,
	.waiter_wake = sim_waiter_wake,
	.waiter_watch = sim_waiter_watch,
	.waiter_unwatch = sim_waiter_unwatch,
	.waiter_ready = sim_waiter_ready,
	.waiter_ready_fds = sim_waiter_ready_fds,
	.waiter_fd = sim_waiter_fd,
	.mem_alloc = proc_mem_alloc,
	.mem_free = proc_mem_free,
	.resolve = sim_resolve,
	.sock_listen = sim_sock_listen,
	.sock_connect = sim_sock_connect,
	.sock_error = sim_sock_error,
	.sock_accept = sim_sock_accept,
	.sock_name = sim_sock_name,
	.sock_send = sim_sock_send,
	.sock_recv = sim_sock_recv,
	.sock_close = sim_sock_close,
};
