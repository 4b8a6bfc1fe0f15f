/* SPDX-License-Identifier: MIT */
/*
 * sched.c - nodes, their cores, and which thread has which core.
 *
 * A thread holds a core while it works and while it spins. A thread that wants
 * a core takes an idle one, or that of a spinner, or waits in line. (A spinner
 * yields, as the idle policy says; a no_yield one only after its slice.) A
 * worker gives way when its slice is over and others wait. A spinner that has
 * lost its core is benched: it gets an idle core back, and a turn in the line
 * when something that it polls has changed.
 */
#include "env/sim/world.h"

#include "base/assert.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TAG_THREAD 1u
#define TAG_SLICE 3u

/* --- cores ------------------------------------------------------------- */

static void fiber_event(struct sim_event *ev);

static void core_give(struct sim_core *core, struct sim_fiber *f)
{
	struct sim_world *w = f->proc->w;

	list_del(&f->link);
	core->cur = f;
	f->core = core;
	f->slice_at = w->agenda.now;
}

static void core_leave(struct sim_fiber *f)
{
	if (f->core)
		f->core->cur = NULL;
	f->core = NULL;
}

static uint64_t slice_end(const struct sim_fiber *f)
{
	return f->slice_at + f->proc->w->costs.slice_us * 1000ull;
}

static bool slice_over(const struct sim_fiber *f)
{
	return f->proc->w->agenda.now >= slice_end(f);
}

/* Finds a core for a thread that has work: an idle core, or that of a
 * spinner. */
static struct sim_core *core_find(struct sim_node *node)
{
	struct sim_core *spun = NULL;

	for (unsigned i = 0; i < node->n_cores; i++) {
		struct sim_fiber *f = node->cores[i].cur;

		if (!f)
			return &node->cores[i];
		/* A spinner that is about to look at a change keeps its core. */
		if (f->state == SIM_FIBER_SPIN && !spun &&
		    (!f->no_yield || slice_over(f)))
			spun = &node->cores[i];
	}
	return spun;
}

static void bench(struct sim_fiber *f)
{
	core_leave(f);
	list_add_tail(&f->proc->node->benched, &f->link);
}

static void slice_event(struct sim_event *ev)
{
	sched_dispatch(container_of(ev, struct sim_node, slice));
}

/* A thread waits for a core: take that of the first no_yield spinner at the end
 * of its slice. It may spin for ever, and nothing else would make it stop. */
static void await_slice(struct sim_node *node)
{
	uint64_t end, first = ENV_NEVER;

	for (unsigned i = 0; i < node->n_cores; i++) {
		const struct sim_fiber *f = node->cores[i].cur;

		end = f && f->state == SIM_FIBER_SPIN ? slice_end(f)
						      : ENV_NEVER;
		first = end < first ? end : first;
	}
	if (first != ENV_NEVER)
		sim_at(node->w, &node->slice, first);
}

void sched_dispatch(struct sim_node *node)
{
	struct sim_world *w = node->w;
	struct sim_core *core;
	struct sim_fiber *f;

	while (!list_empty(&node->ready) && (core = core_find(node))) {
		if (core->cur)
			bench(core->cur);
		f = container_of(node->ready.next, struct sim_fiber, link);
		core_give(core, f);
		f->state = SIM_FIBER_RUN;
		sim_at(w, &f->ev, w->agenda.now + w->costs.context);
	}
	if (!list_empty(&node->ready))
		await_slice(node);
	for (unsigned i = 0; i < node->n_cores; i++) {
		if (node->cores[i].cur || list_empty(&node->benched))
			continue;
		f = container_of(node->benched.next, struct sim_fiber, link);
		core_give(&node->cores[i], f);
	}
}

void fiber_ready(struct sim_fiber *f)
{
	sim_cancel(f->proc->w, &f->ev);
	list_del(&f->link); /* it may be benched */
	list_del(&f->spin_link);
	core_leave(f);
	f->state = SIM_FIBER_READY;
	list_add_tail(&f->proc->node->ready, &f->link);
	sched_dispatch(f->proc->node);
}

void fiber_wake(struct sim_fiber *f, uint64_t delay)
{
	struct sim_world *w = f->proc->w;

	if (f->state != SIM_FIBER_SLEEP && f->state != SIM_FIBER_SPIN)
		return;
	if (f->state == SIM_FIBER_SPIN && !f->core) {
		fiber_ready(f);
		return;
	}
	/* An earlier appointment stands. */
	if (!f->ev.pos || f->ev.at > w->agenda.now + delay)
		sim_at(w, &f->ev, w->agenda.now + delay);
}

/* --- running ----------------------------------------------------------- */

static void fiber_step(struct sim_fiber *f)
{
	struct sim_world *w = f->proc->w;

	skein_assert_debug(!w->cur);
	f->state = SIM_FIBER_RUN;
	list_del(&f->spin_link);
	w->cur = f;
	fiber_switch(&w->main, &f->stack);
	w->cur = NULL;
}

static void fiber_event(struct sim_event *ev)
{
	struct sim_fiber *f = container_of(ev, struct sim_fiber, ev);
	struct sim_node *node = f->proc->node;
	uint64_t still = node->paused_until;

	sim_note(f->proc->w, f->id, f->state);
	if (f->stalled_until > still)
		still = f->stalled_until;
	if (f->proc->w->agenda.now < still) {
		sim_at(f->proc->w, ev, still);
		return;
	}
	if (!f->core) {
		fiber_ready(f);
		return;
	}
	if (f->state == SIM_FIBER_RUN && !list_empty(&node->ready) &&
	    slice_over(f)) {
		fiber_ready(f);
		return;
	}
	fiber_step(f);
}

static void trace_stop(struct sim_fiber *f, const char *what, uint64_t since)
{
	struct sim_world *w = f->proc->w;
	struct sim_span span = {.name = what,
				.node = f->proc->node->id,
				.track = SIM_TRACK_THREADS + f->id,
				.begin = since,
				.end = w->agenda.now};

	sim_trace(w, &span);
}

/* The running thread stops here until its event. */
static void thread_stop(struct sim_fiber *f, const char *what)
{
	struct sim_world *w = f->proc->w;
	uint64_t since = w->agenda.now;

	fiber_switch(&f->stack, &w->main);
	if (w->conf.tracer)
		trace_stop(f, what, since);
}

void thread_flush(struct sim_fiber *f)
{
	struct sim_world *w = f->proc->w;
	uint64_t debt = f->debt;

	if (!debt)
		return;
	f->debt = 0;
	sim_at(w, &f->ev, w->agenda.now + debt);
	thread_stop(f, "works");
}

void thread_spin(struct sim_fiber *f, uint64_t until)
{
	struct sim_world *w = f->proc->w;

	skein_assert_debug(!f->debt);
	f->state = SIM_FIBER_SPIN;
	if (!f->blind)
		list_add_tail(&f->proc->spinners, &f->spin_link);
	if (until != ENV_NEVER)
		sim_at(w, &f->ev, until);
	if (!list_empty(&f->proc->node->ready))
		sched_dispatch(f->proc->node);
	thread_stop(f, "spins");
}

void thread_sleep(struct sim_fiber *f, uint64_t until)
{
	struct sim_world *w = f->proc->w;

	/* If the thread paid its charges here, it would miss events that happen
	 * meanwhile. */
	skein_assert_debug(!f->debt);
	f->state = SIM_FIBER_SLEEP;
	core_leave(f);
	if (until != ENV_NEVER)
		sim_at(w, &f->ev, until);
	sched_dispatch(f->proc->node);
	thread_stop(f, *f->waits_for ? f->waits_for : "sleeps");
}

void thread_yield(struct sim_fiber *f)
{
	f->debt += f->proc->w->costs.syscall;
	thread_flush(f);
	if (list_empty(&f->proc->node->ready))
		return;
	fiber_ready(f);
	thread_stop(f, "waits for a core");
}

/* --- threads ----------------------------------------------------------- */

static void fiber_main(void *arg)
{
	struct sim_fiber *f = arg;
	struct sim_world *w = f->proc->w;

	f->fn(f->arg);
	thread_exits(f);
	thread_flush(f);
	f->state = SIM_FIBER_DONE;
	core_leave(f);
	if (f->joiner)
		fiber_wake(f->joiner, w->costs.wake);
	list_add_tail(&w->zombies, &f->link);
	sched_dispatch(f->proc->node);
	thread_stop(f, "has ended");
}

static void trace_thread(struct sim_fiber *f)
{
	char name[2 * SIM_NAME + 16];

	snprintf(name, sizeof(name), "%s %u: %s", f->proc->name, f->proc->id,
		 f->name);
	sim_trace_name(f->proc->w, f->proc->node->id, SIM_TRACK_THREADS + f->id,
		       name);
}

static int fiber_number(struct sim_world *w, struct sim_fiber *f)
{
	uint32_t cap = w->fibers_cap ? 2 * w->fibers_cap : 64;
	struct sim_fiber **all;

	/* Names begin at 1; 0 names no thread. */
	if (w->n_fibers + 1 >= w->fibers_cap) {
		all = realloc(w->fibers, cap * sizeof(struct sim_fiber *));
		if (!all)
			return -ENOMEM;
		w->fibers = all;
		w->fibers_cap = cap;
	}
	f->id = ++w->n_fibers;
	w->fibers[f->id] = f;
	return 0;
}

int fiber_new(struct sim_proc *proc, const char *name, void (*fn)(void *arg),
	      void *arg, struct sim_fiber **fiber)
{
	struct sim_world *w = proc->w;
	struct sim_fiber *f = calloc(1, sizeof(*f));
	int rc;

	if (!f)
		return -ENOMEM;
	rc = fiber_init(&f->stack, w->conf.stack_len, fiber_main, f);
	if (rc)
		goto err_free;
	rc = fiber_number(w, f);
	if (rc)
		goto err_stack;
	f->proc = proc;
	f->fn = fn;
	f->arg = arg;
	f->ev.fn = fiber_event;
	f->ev.tag = TAG_THREAD;
	f->waits_for = "";
	list_init(&f->exits);
	snprintf(f->name, sizeof(f->name), "%s", name);
	list_add_tail(&proc->fibers, &f->proc_link);
	trace_thread(f);
	fiber_ready(f);
	*fiber = f;
	return 0;

err_stack:
	fiber_fini(&f->stack);
err_free:
	free(f);
	return rc;
}

void fiber_kill(struct sim_fiber *f)
{
	skein_assert(f != f->proc->w->cur);
	sim_cancel(f->proc->w, &f->ev);
	list_del(&f->link);
	list_del(&f->proc_link);
	list_del(&f->spin_link);
	f->proc->w->fibers[f->id] = NULL;
	core_leave(f);
	fiber_fini(&f->stack);
	free(f);
}

/* A stack cannot be freed by the thread that ends on it. */
void fibers_reap(struct sim_world *w)
{
	struct list_node *n;

	while ((n = list_pop_head(&w->zombies)))
		fiber_fini(&container_of(n, struct sim_fiber, link)->stack);
}

/* --- nodes ------------------------------------------------------------- */

int sim_node_new(struct sim_world *w, const char *name, unsigned cores,
		 struct sim_node **node)
{
	struct sim_node *n = calloc(1, sizeof(*n));

	if (!n)
		return -ENOMEM;
	skein_assert(cores > 0);
	n->cores = calloc(cores, sizeof(*n->cores));
	if (!n->cores) {
		free(n);
		return -ENOMEM;
	}
	n->w = w;
	n->n_cores = cores;
	n->id = ++w->n_nodes;
	n->slow = 1;
	n->slice.fn = slice_event;
	n->slice.tag = TAG_SLICE;
	n->next_port = 32768;
	snprintf(n->name, sizeof(n->name), "%s", name);
	list_init(&n->ready);
	list_init(&n->benched);
	list_init(&n->procs);
	list_init(&n->listeners);
	list_add_tail(&w->nodes, &n->link);
	sim_trace_name(w, n->id, 0, n->name);
	*node = n;
	return 0;
}

uint32_t sim_node_id(const struct sim_node *node)
{
	return node->id;
}

struct sim_world *sim_node_world(struct sim_node *node)
{
	return node->w;
}

void sim_node_slow(struct sim_node *node, unsigned factor)
{
	node->slow = factor ? factor : 1;
}

void sim_node_pause(struct sim_node *node, uint64_t until_ns)
{
	node->paused_until = until_ns;
}

void sim_thread_stall(struct sim_proc *proc, uint32_t i, uint64_t until_ns)
{
	struct list_node *n;
	uint32_t count = 0;

	for (n = proc->fibers.next; n != &proc->fibers; n = n->next)
		count++;
	if (!count)
		return;
	n = proc->fibers.next;
	for (i %= count; i; i--)
		n = n->next;
	container_of(n, struct sim_fiber, proc_link)->stalled_until = until_ns;
}

void sim_node_cut(struct sim_node *node, bool cut)
{
	node->cut = cut;
}

/* --- what threads are charged ------------------------------------------ */

struct sim_proc *sim_self(const struct sim_world *w)
{
	return w->cur ? w->cur->proc : NULL;
}

uint64_t sim_thread_now(const struct sim_world *w)
{
	return w->agenda.now + (w->cur ? w->cur->debt : 0);
}

void sim_charge(struct sim_world *w, uint64_t ns)
{
	if (w->cur)
		w->cur->debt += ns * w->cur->proc->node->slow;
}

void sim_flush(struct sim_world *w, uint64_t min_ns)
{
	if (w->cur && w->cur->debt >= min_ns)
		thread_flush(w->cur);
}

void sim_sleep(struct sim_world *w, uint64_t ns)
{
	skein_assert(w->cur);
	uint64_t until = sim_thread_now(w) + ns;

	thread_flush(w->cur);
	w->cur->waits_for = "time to pass";
	thread_sleep(w->cur, until);
	w->cur->waits_for = "";
}

int sim_spawn(struct sim_proc *proc, const char *name, void (*fn)(void *arg),
	      void *arg)
{
	struct sim_fiber *f;

	return fiber_new(proc, name, fn, arg, &f);
}

/* --- what threads poll ------------------------------------------------- */

void sim_watch_memory(struct sim_world *w, bool watch)
{
	skein_assert(w->cur);
	w->cur->blind = !watch;
}

void sim_notify(struct sim_proc *proc)
{
	struct list_node *n, *tmp;

	proc->change++;
	list_for_each_safe(n, tmp, &proc->spinners)
		fiber_wake(container_of(n, struct sim_fiber, spin_link),
			   proc->w->costs.detect);
}

static void fiber_changed(struct sim_fiber *f)
{
	f->fresh = true;
	if (f->state == SIM_FIBER_SPIN)
		fiber_wake(f, f->proc->w->costs.detect);
}

void sim_poller_looks(struct sim_world *w, struct sim_poller *p)
{
	if (!w->cur || p->thread == w->cur->id)
		return;
	p->many = p->thread != 0;
	p->thread = w->cur->id;
}

void sim_poller_notify(struct sim_poller *p, struct sim_proc *proc)
{
	struct list_node *n;

	if (p->thread && !p->many && proc->w->fibers[p->thread]) {
		fiber_changed(proc->w->fibers[p->thread]);
		return;
	}
	list_for_each(n, &proc->fibers)
		fiber_changed(container_of(n, struct sim_fiber, proc_link));
}
