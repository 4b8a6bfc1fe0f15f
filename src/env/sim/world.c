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

/* The cost of the software: instructions of rpc as bench/instructions.sh counts
 * them (a lone call against one of eight in a message, both ends), at 5.9 per
 * nanosecond: docs/design/simulation.md. */
static const struct cost {
	const char *name;
	size_t at;
	uint32_t is;
} cost_rows[] = {
#define COST(name, is)                                      \
	{                                                   \
#name, offsetof(struct sim_costs, name), is \
	}
	COST(round, 60),     COST(detect, 40),	   COST(wake, 3000),
	COST(context, 1200), COST(syscall, 400),   COST(slice_us, 3000),
	COST(tcp_ns, 15000), COST(local_ns, 8000), COST(look, 5),
	COST(message, 50),   COST(encode, 25),	   COST(decode, 25),
	COST(handler, 20),   COST(swap, 20),	   COST(pause, 40),
	COST(sum, 20),
#undef COST
};

#define N_COSTS (sizeof(cost_rows) / sizeof(cost_rows[0]))
_Static_assert(N_COSTS * sizeof(uint32_t) == sizeof(struct sim_costs),
	       "a row each");

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

static uint32_t *cost_of(struct sim_costs *c, const struct cost *row)
{
	return (uint32_t *)(void *)((char *)c + row->at);
}

static void costs_fill(struct sim_costs *c, struct sim_costs given)
{
	for (size_t i = 0; i < N_COSTS; i++) {
		uint32_t value = *cost_of(&given, &cost_rows[i]);

		*cost_of(c, &cost_rows[i]) = value ? value : cost_rows[i].is;
	}
}

const char *sim_costs_name(size_t i)
{
	return i < N_COSTS ? cost_rows[i].name : NULL;
}

int sim_costs_set(struct sim_costs *c, const char *name, uint32_t value)
{
	for (size_t i = 0; i < N_COSTS && value; i++) {
		if (strcmp(cost_rows[i].name, name) != 0)
			continue;
		*cost_of(c, &cost_rows[i]) = value;
		return 0;
	}
	return -EINVAL;
}

int sim_world_new(const struct sim_conf *conf, struct sim_world **world)
{
	struct sim_world *w = calloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	w->conf = *conf;
	if (!w->conf.stack_len)
		w->conf.stack_len = 64 * 1024;
	costs_fill(&w->costs, conf->costs);
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
	/* Processes first: what a dying one sends to its peers needs the nodes. */
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
