/* SPDX-License-Identifier: MIT */
/*
 * world.c - virtual time: what is due, in which order, and the log's hash.
 *
 * The queue is a 4-ary heap of (time, number of its scheduling): equal times
 * come out in the order of scheduling, so packets of one link stay in order,
 * and nothing depends on an address.
 */
#include "env/sim/world.h"

#include "base/assert.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HEAP_ARITY 4u

static const struct sim_costs costs_default = {
	.round = 60,
	.detect = 40,
	.wake = 3000,
	.context = 1200,
	.syscall = 400,
	.slice_us = 3000,
	.tcp_ns = 15000,
	.local_ns = 8000,
};

/* --- the queue --------------------------------------------------------- */

static bool slot_before(const struct sim_heap_slot *a,
			const struct sim_heap_slot *b)
{
	return a->at != b->at ? a->at < b->at : a->seq < b->seq;
}

static void slot_put(struct sim_world *w, uint32_t i, struct sim_heap_slot s)
{
	w->heap[i] = s;
	s.ev->pos = i + 1;
}

static void heap_up(struct sim_world *w, uint32_t i, struct sim_heap_slot s)
{
	uint32_t up;

	while (i) {
		up = (i - 1) / HEAP_ARITY;
		if (!slot_before(&s, &w->heap[up]))
			break;
		slot_put(w, i, w->heap[up]);
		i = up;
	}
	slot_put(w, i, s);
}

static void heap_down(struct sim_world *w, uint32_t i, struct sim_heap_slot s)
{
	uint32_t c, k, best;

	for (;;) {
		c = i * HEAP_ARITY + 1;
		if (c >= w->heap_n)
			break;
		best = c;
		for (k = c + 1; k < c + HEAP_ARITY && k < w->heap_n; k++)
			if (slot_before(&w->heap[k], &w->heap[best]))
				best = k;
		if (!slot_before(&w->heap[best], &s))
			break;
		slot_put(w, i, w->heap[best]);
		i = best;
	}
	slot_put(w, i, s);
}

static void heap_take(struct sim_world *w, uint32_t i)
{
	struct sim_heap_slot last = w->heap[--w->heap_n];

	w->heap[i].ev->pos = 0;
	if (i == w->heap_n)
		return;
	if (i && slot_before(&last, &w->heap[(i - 1) / HEAP_ARITY]))
		heap_up(w, i, last);
	else
		heap_down(w, i, last);
}

void sim_at(struct sim_world *w, struct sim_event *ev, uint64_t at)
{
	struct sim_heap_slot s;

	if (ev->pos)
		heap_take(w, ev->pos - 1);
	if (at < w->now)
		at = w->now;
	if (w->heap_n == w->heap_cap) {
		w->heap_cap = w->heap_cap ? 2 * w->heap_cap : 1024;
		w->heap = realloc(w->heap, w->heap_cap * sizeof(*w->heap));
		/* The world itself has no way to be short of memory. */
		skein_assert(w->heap);
	}
	ev->at = at;
	ev->seq = w->seq++;
	s = (struct sim_heap_slot){at, ev->seq, ev};
	heap_up(w, w->heap_n++, s);
}

void sim_cancel(struct sim_world *w, struct sim_event *ev)
{
	if (ev->pos)
		heap_take(w, ev->pos - 1);
}

/* --- time -------------------------------------------------------------- */

void sim_note(struct sim_world *w, uint64_t a, uint64_t b)
{
	w->hash = prng_mix(w->hash ^ a) + b;
}

uint64_t sim_hash(const struct sim_world *w)
{
	return prng_mix(w->hash);
}

uint64_t sim_events(const struct sim_world *w)
{
	return w->done;
}

uint64_t sim_now(const struct sim_world *w)
{
	return w->now;
}

enum sim_end sim_run(struct sim_world *w, uint64_t until_ns)
{
	struct sim_event *ev;

	skein_assert(!w->cur);
	w->stop = false;
	while (w->heap_n) {
		if (w->heap[0].at > until_ns) {
			w->now = until_ns;
			return SIM_END_TIME;
		}
		ev = w->heap[0].ev;
		w->now = ev->at;
		heap_take(w, 0);
		w->done++;
		sim_note(w, w->now, ev->tag);
		ev->fn(ev);
		if (!list_empty(&w->zombies))
			fibers_reap(w);
		if (w->stop)
			return SIM_END_STOPPED;
	}
	return SIM_END_QUIET;
}

void sim_stop(struct sim_world *w)
{
	w->stop = true;
}

/* --- life -------------------------------------------------------------- */

static void costs_fill(struct sim_costs *c, const struct sim_costs *given)
{
	const struct sim_costs *d = &costs_default;

	c->round = given->round ? given->round : d->round;
	c->detect = given->detect ? given->detect : d->detect;
	c->wake = given->wake ? given->wake : d->wake;
	c->context = given->context ? given->context : d->context;
	c->syscall = given->syscall ? given->syscall : d->syscall;
	c->slice_us = given->slice_us ? given->slice_us : d->slice_us;
	c->tcp_ns = given->tcp_ns ? given->tcp_ns : d->tcp_ns;
	c->local_ns = given->local_ns ? given->local_ns : d->local_ns;
}

int sim_world_new(const struct sim_conf *conf, struct sim_world **world)
{
	struct sim_world *w = calloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	w->conf = *conf;
	if (!w->conf.stack_len)
		w->conf.stack_len = 64 * 1024;
	costs_fill(&w->costs, &conf->costs);
	w->hash = prng_mix(conf->seed);
	list_init(&w->nodes);
	list_init(&w->zombies);
	fiber_main_init(&w->main);
	*world = w;
	return 0;
}

static void node_free(struct sim_node *node)
{
	struct list_node *n, *tmp;

	list_for_each_safe(n, tmp, &node->procs)
		proc_fini(container_of(n, struct sim_proc, link));
	free(node->cores);
	free(node);
}

void sim_world_free(struct sim_world *w)
{
	struct list_node *n, *p;

	if (!w)
		return;
	skein_assert(!w->cur);
	/* All processes first: what a dying one tells its peers must find the
	 * nodes. */
	list_for_each(n, &w->nodes) {
		struct sim_node *node = container_of(n, struct sim_node, link);

		list_for_each(p, &node->procs)
			sim_proc_kill(container_of(p, struct sim_proc, link));
	}
	if (w->net)
		w->net_fini(w->net);
	list_for_each_safe(n, p, &w->nodes)
		node_free(container_of(n, struct sim_node, link));
	fibers_reap(w);
	free(w->heap);
	free(w);
}

void sim_prng(const struct sim_world *w, uint64_t key, struct prng *r)
{
	prng_init(r, prng_mix(w->conf.seed ^ prng_mix(key)));
}

const struct sim_costs *sim_costs(const struct sim_world *w)
{
	return &w->costs;
}

void sim_set_net(struct sim_world *w, void *net, void (*fini)(void *net))
{
	w->net = net;
	w->net_fini = fini;
}

void *sim_net(const struct sim_world *w)
{
	return w->net;
}

void sim_log_line(struct sim_world *w, const char *line)
{
	if (w->conf.log)
		w->conf.log(w->conf.log_arg, sim_thread_now(w), line);
}
