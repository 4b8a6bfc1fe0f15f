/* SPDX-License-Identifier: MIT */
/* faults.c - trouble at random; see faults.h. */
#include "sim/faults.h"

#include "base/conf.h"
#include "dev/sim/link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TAG_FAULT 32u
#define MS 1000000ull

const struct fault_name fault_names[FAULT_KINDS] = {
	[FAULT_KILL] = {"kill", 0.10},
	[FAULT_CRASH] = {"crash", 0.10},
	[FAULT_LINK_DOWN] = {"link-down", 0.10},
	[FAULT_LOSS] = {"loss", 0.15},
	[FAULT_LINK_SLOW] = {"link-slow", 0.10},
	[FAULT_DELAY] = {"delay", 0.10},
	[FAULT_NODE_SLOW] = {"node-slow", 0.10},
	[FAULT_PAUSE] = {"pause", 0.05},
	[FAULT_STALL] = {"stall", 0.05},
	[FAULT_QP] = {"qp-error", 0.05},
	[FAULT_MEMORY] = {"memory", 0.10},
};

static void heal_node(struct faults *f, unsigned i)
{
	static const struct sim_link sound;
	struct fault_heal *h = &f->heal[i];

	sim_cancel(f->w, &h->ev);
	sim_link_set(f->nodes[i], &sound);
	sim_node_slow(f->nodes[i], 1);
	if (h->env)
		h->env->alloc_fails = NULL;
	h->env = NULL;
}

static void heal_event(struct sim_event *ev)
{
	struct fault_heal *h = container_of(ev, struct fault_heal, ev);

	heal_node(h->f, h->i);
}

static bool alloc_fails(void *arg)
{
	struct fault_heal *h = arg;

	return !prng_below(&h->r, 50);
}

/* Between 1 ms and max ms, short ones more often. */
static uint64_t span(struct faults *f, uint64_t max_ms)
{
	uint64_t limit = 1 + prng_below(&f->r, max_ms);

	return MS + prng_below(&f->r, limit * MS);
}

static enum fault pick_any(struct faults *f)
{
	double x = prng_double(&f->r);
	unsigned k;

	for (k = 0; k < FAULT_KINDS - 1; k++) {
		x -= fault_names[k].share;
		if (x < 0)
			break;
	}
	return (enum fault)k;
}

static enum fault pick(struct faults *f)
{
	enum fault kind = pick_any(f);

	while (f->kinds && !(f->kinds & 1u << kind))
		kind = pick_any(f);
	return kind;
}

static void link_fault(struct faults *f, unsigned i, enum fault kind)
{
	struct sim_link link = {0};

	link.down = kind == FAULT_LINK_DOWN || kind == FAULT_CRASH;
	if (kind == FAULT_LOSS)
		link.loss_ppm = 10000;
	if (kind == FAULT_LINK_SLOW)
		link.slow = 2 + (uint32_t)prng_below(&f->r, 49);
	if (kind == FAULT_DELAY)
		link.extra_delay = 1 + prng_below(&f->r, MS);
	sim_link_set(f->nodes[i], &link);
}

static void memory_fault(struct faults *f, unsigned i)
{
	struct sim_proc *p = f->proc(f->arg, i);
	struct fault_heal *h = &f->heal[i];

	if (!p)
		return;
	h->env = sim_proc_env(p);
	sim_prng(f->w, prng_u64(&f->r), &h->r);
	h->env->alloc_arg = h;
	h->env->alloc_fails = alloc_fails;
}

static void trace(struct faults *f, unsigned i, enum fault kind, uint64_t until)
{
	struct sim_span span = {.name = fault_names[kind].name,
				.node = sim_node_id(f->nodes[i]),
				.track = SIM_TRACK_FAULTS,
				.begin = sim_now(f->w),
				.end = until,
				.id = ++f->n};

	/* These are over at once. */
	if (kind == FAULT_KILL || kind == FAULT_QP)
		span.end = span.begin + 1000;
	sim_trace(f->w, &span);
}

/* How long it lasts, when chance has it. */
static uint64_t duration(struct faults *f, enum fault kind)
{
	switch (kind) {
	case FAULT_LINK_DOWN:
	case FAULT_CRASH:
	case FAULT_PAUSE:
	case FAULT_STALL:
		return span(f, 1000);
	default:
		return span(f, 100);
	}
}

static void strike(struct faults *f, unsigned i, enum fault kind,
		   uint64_t span_ns)
{
	uint64_t until = sim_now(f->w) + span_ns;
	struct sim_proc *p;

	heal_node(f, i);
	f->counts[kind]++;
	sim_note(f->w, kind, i);
	trace(f, i, kind, until);
	if (f->struck)
		f->struck(f->arg, i, kind, until);
	switch (kind) {
	case FAULT_KILL:
		f->kill(f->arg, i, sim_now(f->w));
		return;
	case FAULT_CRASH:
		/* silent first: nobody hears its sockets close */
		link_fault(f, i, kind);
		f->kill(f->arg, i, until);
		break;
	case FAULT_STALL:
		p = f->proc(f->arg, i);
		if (p)
			sim_thread_stall(p, (uint32_t)prng_u64(&f->r), until);
		return;
	case FAULT_QP:
		sim_qp_break(f->nodes[i], (uint32_t)prng_u64(&f->r));
		return;
	case FAULT_PAUSE:
		sim_node_pause(f->nodes[i], until);
		return;
	case FAULT_NODE_SLOW:
		sim_node_slow(f->nodes[i], 2 + (unsigned)prng_below(&f->r, 29));
		break;
	case FAULT_MEMORY:
		memory_fault(f, i);
		break;
	default:
		link_fault(f, i, kind);
		break;
	}
	sim_at(f->w, &f->heal[i].ev, until);
}

static void next(struct faults *f)
{
	uint64_t at;

	if (f->script) {
		if (f->n_scripted < f->script->n)
			sim_at(f->w, &f->ev,
			       f->script->line[f->n_scripted].at_ns);
		return;
	}
	at = sim_now(f->w) + prng_below(&f->r, 2 * f->mean_ns);
	if (at < f->end_ns)
		sim_at(f->w, &f->ev, at);
}

static void fault_event(struct sim_event *ev)
{
	struct faults *f = container_of(ev, struct faults, ev);
	const struct fault_line *l;
	enum fault kind;
	unsigned i;

	if (f->script) {
		l = &f->script->line[f->n_scripted++];
		strike(f, l->node % f->n_nodes, l->kind,
		       l->span_ns ? l->span_ns : duration(f, l->kind));
	} else {
		i = (unsigned)prng_below(&f->r, f->n_nodes);
		kind = pick(f);
		strike(f, i, kind, duration(f, kind));
	}
	next(f);
}

static int line_parse(char *text, struct fault_line *l)
{
	char *node = strchr(text, ':'), *at, *span;
	unsigned k;

	if (!node)
		return -EINVAL;
	*node++ = 0;
	for (k = 0; k < FAULT_KINDS && strcmp(text, fault_names[k].name); k++)
		;
	l->kind = (enum fault)k;
	l->node = (unsigned)strtoul(node, &at, 10);
	if (k == FAULT_KINDS || at == node || *at != '@')
		return -EINVAL;
	*at++ = 0;
	span = strchr(at, '+');
	if (span)
		*span++ = 0;
	l->span_ns = 0;
	if (conf_parse_time(at, &l->at_ns) ||
	    (span && (conf_parse_time(span, &l->span_ns) || !l->span_ns)))
		return -EINVAL;
	return 0;
}

static int by_time(const void *a, const void *b)
{
	const struct fault_line *x = a, *y = b;

	return (x->at_ns > y->at_ns) - (x->at_ns < y->at_ns);
}

int fault_script_parse(const char *text, struct fault_script *script)
{
	char *copy = strdup(text), *item, *rest = NULL;
	int rc = copy ? 0 : -ENOMEM;

	script->n = 0;
	for (item = copy ? strtok_r(copy, ",", &rest) : NULL; item && !rc;
	     item = strtok_r(NULL, ",", &rest)) {
		if (script->n == FAULT_SCRIPT)
			rc = -E2BIG;
		else
			rc = line_parse(item, &script->line[script->n++]);
	}
	free(copy);
	qsort(script->line, script->n, sizeof(script->line[0]), by_time);
	return rc;
}

void faults_start(struct faults *f)
{
	memset(&f->ev, 0, sizeof(f->ev));
	memset(f->counts, 0, sizeof(f->counts));
	memset(f->heal, 0, sizeof(f->heal));
	sim_prng(f->w, 0x6661756c74, &f->r);
	f->ev.fn = fault_event;
	f->ev.tag = TAG_FAULT;
	f->n = f->n_scripted = 0;
	for (unsigned i = 0; i < f->n_nodes; i++) {
		sim_trace_name(f->w, sim_node_id(f->nodes[i]), SIM_TRACK_FAULTS,
			       "faults");
		f->heal[i].f = f;
		f->heal[i].i = i;
		f->heal[i].ev.fn = heal_event;
		f->heal[i].ev.tag = TAG_FAULT;
	}
	next(f);
}

void faults_heal(struct faults *f)
{
	sim_cancel(f->w, &f->ev);
	for (unsigned i = 0; i < f->n_nodes; i++) {
		heal_node(f, i);
		sim_node_pause(f->nodes[i], 0);
	}
}
