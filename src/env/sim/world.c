/* SPDX-License-Identifier: MIT */
/*
 * world.c - virtual time, the event log's hash, and the world's life.
 */
#include "env/sim/world.h"

#include "base/assert.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

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

/* --- time -------------------------------------------------------------- */

void sim_at(struct sim_world *w, struct sim_event *ev, uint64_t at)
{
	agenda_add(&w->agenda, ev, at < w->agenda.now ? w->agenda.now : at);
}

void sim_cancel(struct sim_world *w, struct sim_event *ev)
{
	agenda_del(&w->agenda, ev);
}

/* The log is hashed a block at a time: an event costs two stores. */
static void log_flush(struct sim_world *w)
{
	w->hash = XXH3_64bits_withSeed(w->log, w->log_n * sizeof(w->log[0]),
				       w->hash);
	w->log_n = 0;
}

void sim_note(struct sim_world *w, uint64_t a, uint64_t b)
{
	w->log[w->log_n++] = a;
	w->log[w->log_n++] = b;
	if (w->log_n == SIM_LOG)
		log_flush(w);
}

uint64_t sim_hash(struct sim_world *w)
{
	if (w->log_n)
		log_flush(w);
	return w->hash;
}

uint64_t sim_events(const struct sim_world *w)
{
	return w->done;
}

uint64_t sim_now(const struct sim_world *w)
{
	return w->agenda.now;
}

enum sim_end sim_run(struct sim_world *w, uint64_t until_ns)
{
	struct sim_event *ev;

	skein_assert(!w->cur);
	w->stop = false;
	while ((ev = agenda_take(&w->agenda, until_ns))) {
		w->done++;
		sim_note(w, w->agenda.now, ev->tag);
		ev->fn(ev);
		if (!list_empty(&w->zombies))
			fibers_reap(w);
		if (w->stop)
			return SIM_END_STOPPED;
	}
	return agenda_empty(&w->agenda) ? SIM_END_QUIET : SIM_END_TIME;
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
	agenda_fini(&w->agenda);
	free(w->fibers);
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

bool sim_tracing(const struct sim_world *w)
{
	return w->conf.tracer != NULL;
}

void sim_trace(struct sim_world *w, const struct sim_span *span)
{
	const struct sim_tracer *t = w->conf.tracer;

	if (t && span->end > span->begin)
		t->span(t->arg, span);
}

void sim_trace_name(struct sim_world *w, uint32_t node, uint32_t track,
		    const char *name)
{
	const struct sim_tracer *t = w->conf.tracer;

	if (t)
		t->name(t->arg, node, track, name);
}

bool sim_checking(const struct sim_world *w)
{
	return w->conf.check;
}

void sim_blame(struct sim_world *w, const char *fmt, ...)
{
	va_list ap;

	if (w->blame[0])
		return;
	va_start(ap, fmt);
	vsnprintf(w->blame, sizeof(w->blame), fmt, ap);
	va_end(ap);
	sim_log_line(w, w->blame);
}

const char *sim_blamed(const struct sim_world *w)
{
	return w->blame;
}

void sim_log_line(struct sim_world *w, const char *line)
{
	if (w->conf.log)
		w->conf.log(w->conf.log_arg, sim_thread_now(w), line);
}
