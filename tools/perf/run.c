/* SPDX-License-Identifier: MIT */
/*
 * run.c - alternates probes and slices, and gathers the figures of each size.
 *
 * The client sizes the first probe and the first slices by what short trial
 * runs took, so that each lasts about slice_ns; then probe, slice, probe, ...
 * until enough slices were kept, or three times as many were tried.
 */
#include "out.h"
#include "perf/ctl.h"
#include "perf/probe.h"
#include "perf/ticks.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
	TRIES_FACTOR = 3,
	TRIES_MIN = 20,
	OVERTIME_FACTOR = 10,
	CHUNK_WINDOWS = 2,
	TRIAL_OPS = 64,
	TRIAL_BYTES = 4 << 20,
	TRIALS_MAX = 12,
	SLICES_MOST = 100, /* of a number of operations */
	TRIAL_PROBES = 2000,
	TRIAL_EVENTS = 20,
	SIZES_MAX = 32,
	COPY_YARD_MIN = 4096, /* below it memcpy measures the call */
};

#define GROWTH_MAX 16.0 /* of a trial over the one before */
#define OPS_MAX (1ull << 32)

/* What one size is measured with. */
struct plan {
	enum slice_yard yard;
	bool copy; /* memcpy is the second yardstick; else eventfd, if any */
	struct probe_copy mem;
	uint64_t line_n;
	uint64_t aux_n;
	uint64_t slice_n;
	unsigned wanted;
	unsigned tries;
};

struct track {
	struct slice *slices;
	struct slice_probe *probes; /* one more than slices */
	unsigned n;
	unsigned kept;
};

void perf_chunks_begin(struct perf_worker *w)
{
	hist_init(w->chunks);
	w->chunk_done = 0;
	w->chunk_at = w->chunk_ops;
	w->chunk_from = ticks_now();
}

/* Recorded as the picoseconds of one operation: a whole number of nanoseconds
 * would be too coarse. */
void perf_chunk_full(struct perf_worker *w, uint64_t done)
{
	uint64_t now = ticks_now();
	double ns = (double)(now - w->chunk_from) * w->p->ns_per_tick;

	hist_record(w->chunks,
		    (uint64_t)(ns * 1000 / (double)(done - w->chunk_done)));
	w->chunk_from = now;
	w->chunk_done = done;
	w->chunk_at = done + w->chunk_ops;
}

static void *worker_thread(void *arg)
{
	struct perf_worker *w = arg;
	struct perf *p = w->p;

	perf_chunks_begin(w);
	w->begin = w->chunk_from;
	w->rc = p->server ? p->op->server(w) : p->op->client(w);
	w->end = ticks_now();
	if (!w->rc && !p->server && p->op->client_end)
		w->rc = p->op->client_end(w);
	return NULL;
}

/* Runs all workers of this end, each its share of n; worker 0 in this thread,
 * which is pinned. */
static int run_workers(struct perf *p, uint64_t n)
{
	unsigned i, started, t = p->o.threads;
	pthread_t *threads = calloc(t, sizeof(*threads));
	int rc = 0;

	if (!threads)
		return -ENOMEM;
	for (i = 0; i < t; i++)
		p->workers[i].n = n / t;
	for (started = 1; started < t; started++) {
		rc = -pthread_create(&threads[started], NULL, worker_thread,
				     &p->workers[started]);
		if (rc) {
			perf_fail(p, rc, "cannot start thread %u: %s", started,
				  strerror(-rc));
			break;
		}
	}
	if (!rc)
		worker_thread(&p->workers[0]);
	for (i = 1; i < started; i++)
		pthread_join(threads[i], NULL);
	free(threads);
	for (i = 0; i < t && !rc; i++)
		rc = p->workers[i].rc;
	return rc;
}

/* ns of one operation of all workers together: the median chunk of each, or
 * the slice's mean where none was full. */
static double chunk_ns(const struct perf *p, double mean_ns)
{
	double ops_per_ns = 0;

	for (unsigned i = 0; i < p->o.threads; i++) {
		const struct hist *h = p->workers[i].chunks;

		if (!h->count)
			return mean_ns;
		ops_per_ns += 1000 / (double)hist_percentile(h, 50);
	}
	return 1 / ops_per_ns;
}

/* How many operations of one worker last a chunk, when all do one in ns. */
static void size_chunks(struct perf *p, double ns)
{
	uint64_t qps = p->o.shared ? 1 : p->o.qps; /* of a thread's own */
	uint64_t least = p->o.window * qps * CHUNK_WINDOWS;
	double n = PERF_CHUNK_NS / (ns * p->o.threads);

	for (unsigned i = 0; i < p->o.threads; i++)
		p->workers[i].chunk_ops =
			n > (double)least ? (uint64_t)n : least;
}

/* One slice of n operations at both ends. */
static int run_slice(struct perf *p, uint64_t n, struct slice *s,
		     struct hist *lat)
{
	uint64_t begin = UINT64_MAX, end = 0;
	unsigned i;
	int rc;

	for (i = 0; i < p->o.threads; i++)
		hist_init(p->workers[i].lat);
	rc = step_begin(p, STEP_RUN, n);
	if (!rc)
		rc = run_workers(p, n);
	if (!rc)
		rc = step_wait_done(p);
	if (rc)
		return rc;
	hist_init(lat);
	for (i = 0; i < p->o.threads; i++) {
		const struct perf_worker *w = &p->workers[i];

		hist_merge(lat, w->lat);
		begin = w->begin < begin ? w->begin : begin;
		end = w->end > end ? w->end : end;
	}
	memset(s, 0, sizeof(*s));
	s->ops = n;
	s->elapsed_ns = (double)(end - begin) * p->ns_per_tick;
	s->ns_per_op = chunk_ns(p, s->elapsed_ns / (double)n);
	s->p50_ns = lat->count ? (double)hist_percentile(lat, 50) : NAN;
	s->p99_ns = lat->count ? (double)hist_percentile(lat, 99) : NAN;
	return 0;
}

static int probe_line(struct perf *p, uint64_t n, struct slice_probe *pr)
{
	struct perf_worker *w = &p->workers[0];
	int rc;

	hist_init(w->lat);
	rc = step_begin(p, STEP_LINE, n);
	if (!rc)
		rc = probe_line_client(w, n);
	if (rc)
		return rc;
	pr->line_ns = (double)hist_percentile(w->lat, 50);
	pr->line_p99_ns = (double)hist_percentile(w->lat, 99);
	return step_wait_done(p);
}

static int probe_event(struct perf *p, uint64_t n, struct slice_probe *pr)
{
	struct perf_worker *w = &p->workers[0];
	int rc;

	hist_init(w->lat);
	rc = step_begin(p, STEP_EVENT, n);
	if (!rc)
		rc = probe_event_client(w, n);
	if (rc)
		return rc;
	pr->aux_ns = (double)hist_percentile(w->lat, 50);
	return step_wait_done(p);
}

static int probe_aux(struct perf *p, struct plan *plan, uint64_t n,
		     struct slice_probe *pr)
{
	if (plan->copy) {
		pr->aux_ns = probe_copy_run(p, &plan->mem, n);
		return 0;
	}
	return probe_event(p, n, pr);
}

static int probe(struct perf *p, struct plan *plan, struct slice_probe *pr)
{
	int rc = 0;

	*pr = (struct slice_probe){NAN, NAN, NAN};
	if (plan->yard == SLICE_YARD_NONE)
		return 0;
	if (plan->yard == SLICE_YARD_AUX)
		rc = probe_aux(p, plan, plan->aux_n, pr);
	if (!rc)
		rc = probe_line(p, plan->line_n, pr);
	return rc;
}

/* Slices are whole multiples of it, so that every batch is full, and every
 * message of a forced degree. */
static uint64_t quantum(const struct perf_opts *o)
{
	if (o->degree)
		return (uint64_t)o->threads * o->degree;
	return (uint64_t)o->threads * (o->shared ? 1 : o->qps) * o->batch;
}

static uint64_t round_up(uint64_t n, uint64_t q)
{
	return (n + q - 1) / q * q;
}

static uint64_t count_for(double target_ns, double each_ns, uint64_t min)
{
	double n = target_ns / (each_ns > 0.1 ? each_ns : 0.1);

	if (n < (double)min)
		return min;
	return n > (double)OPS_MAX ? OPS_MAX : (uint64_t)n;
}

/* How many of each last one slice; the trials warm everything up too. */
static int calibrate_probes(struct perf *p, struct plan *plan)
{
	double slice = (double)p->o.slice_ns;
	struct slice_probe pr = {NAN, NAN, NAN};
	int rc;

	if (plan->yard == SLICE_YARD_NONE)
		return 0;
	rc = probe_line(p, TRIAL_PROBES, &pr);
	if (rc)
		return rc;
	plan->line_n = count_for(slice, pr.line_ns, TRIAL_PROBES);
	if (plan->yard != SLICE_YARD_AUX)
		return 0;
	rc = probe_aux(p, plan, TRIAL_EVENTS, &pr);
	plan->aux_n = count_for(slice, pr.aux_ns, TRIAL_EVENTS);
	return rc;
}

/* Of the first trial: not many where each moves much, nor more than asked for. */
static uint64_t trial_ops(const struct perf *p)
{
	uint64_t n = TRIAL_BYTES / p->size;

	n = n < 1 ? 1 : n > TRIAL_OPS ? TRIAL_OPS : n;
	return p->o.iterations && n > p->o.iterations ? p->o.iterations : n;
}

/* Grows a trial until it lasts as long as a slice should, give or take half: a
 * single pause of the machine must not decide the size of every slice. */
static int calibrate_slice(struct perf *p, struct plan *plan,
			   struct hist *scratch)
{
	uint64_t q = quantum(&p->o), n = round_up(trial_ops(p), q), before;
	double target = (double)p->o.slice_ns;
	struct slice s;
	int rc;

	size_chunks(p, 1e9);
	rc = run_slice(p, n, &s, scratch); /* maps memory, warms caches */
	for (int i = 0; i < TRIALS_MAX && !rc; i++) {
		double factor;

		rc = run_slice(p, n, &s, scratch);
		factor = target / (s.elapsed_ns > 1 ? s.elapsed_ns : 1);
		if (rc || (factor > 0.5 && factor < 1.5))
			break;
		if (factor > GROWTH_MAX)
			factor = GROWTH_MAX;
		before = n;
		n = round_up(count_for((double)n * factor, 1, q), q);
		if (n == before)
			break; /* it cannot be shorter */
	}
	plan->slice_n = n;
	if (!rc)
		size_chunks(p, s.ns_per_op);
	return rc;
}

static int plan_size(struct perf *p, struct plan *plan, struct hist *scratch)
{
	const struct perf_opts *o = &p->o;
	bool copies =
		o->op == PERF_WRITE || o->op == PERF_READ || o->op == PERF_SEND;
	uint64_t total = o->iterations, least;
	int rc = 0;

	memset(plan, 0, sizeof(*plan));
	plan->yard = SLICE_YARD_LINE;
	if (!p->shm)
		plan->yard = SLICE_YARD_NONE;
	else if (o->wait == PERF_WAIT_EVENT)
		plan->yard = SLICE_YARD_AUX;
	else if (o->rate && copies && p->size >= COPY_YARD_MIN)
		plan->copy = true;
	if (plan->copy) {
		plan->yard = SLICE_YARD_AUX;
		rc = probe_copy_new(p, p->size, &plan->mem);
	}
	if (!rc)
		rc = calibrate_probes(p, plan);
	if (!rc)
		rc = calibrate_slice(p, plan, scratch);
	if (rc)
		return rc;
	if (total) {
		total = round_up(total, quantum(o));
		/* On a busy machine a trial of one operation may last a slice:
		 * each slice costs a probe, and many turns of the scheduler. */
		least = round_up((total + SLICES_MOST - 1) / SLICES_MOST,
				 quantum(o));
		if (plan->slice_n < least)
			plan->slice_n = least;
		if (plan->slice_n > total)
			plan->slice_n = total;
		plan->wanted =
			(unsigned)((total + plan->slice_n - 1) / plan->slice_n);
	} else {
		plan->wanted = (unsigned)((o->duration_ns + o->slice_ns - 1) /
					  o->slice_ns);
	}
	if (!plan->wanted)
		plan->wanted = 1;
	plan->tries = plan->wanted < 7 ? 20 : plan->wanted * TRIES_FACTOR;
	return 0;
}

static int track_new(unsigned tries, struct track *t)
{
	memset(t, 0, sizeof(*t));
	t->slices = calloc(tries, sizeof(*t->slices));
	t->probes = calloc(tries + 1u, sizeof(*t->probes));
	return t->slices && t->probes ? 0 : -ENOMEM;
}

static void track_free(struct track *t)
{
	free(t->slices);
	free(t->probes);
}

/* Merges a slice into the result when the probe after it says that it counts.
 */
static void settle(struct perf_result *r, struct track *t, unsigned i,
		   enum slice_yard yard, const struct hist *lat)
{
	if (!slices_judge(&t->slices[i], 1, &t->probes[i], yard))
		return;
	t->kept++;
	hist_merge(r->lat, lat);
	r->ops += t->slices[i].ops;
	r->elapsed_ns += (uint64_t)t->slices[i].elapsed_ns;
}

static int run_track(struct perf *p, struct plan *plan, struct perf_result *r,
		     struct track *t, struct hist *lat, struct progress *bar)
{
	unsigned must; /* however long they take */
	uint64_t stop;
	int rc;

	/* A machine that others use up must not make a run of a second last
	 * for minutes: it ends with fewer slices. */
	stop = clock_ns() + p->o.duration_ns * OVERTIME_FACTOR;
	must = p->o.iterations ? plan->wanted : 1;
	rc = probe(p, plan, &t->probes[0]);
	while (!rc && t->kept < plan->wanted && t->n < plan->tries &&
	       (t->n < must || clock_ns() < stop)) {
		unsigned i = t->n++;

		rc = run_slice(p, plan->slice_n, &t->slices[i], lat);
		if (!rc)
			rc = probe(p, plan, &t->probes[i + 1]);
		if (!rc)
			settle(r, t, i, plan->yard, lat);
		progress_set(bar, t->kept, plan->wanted);
	}
	return rc;
}

/* With no slice kept the absolute figures are those of all, and there is no
 * ratio: the machine never held still. */
static void keep_absolute(struct perf_result *r, const struct track *t,
			  const struct hist *last)
{
	if (t->kept)
		return;
	hist_merge(r->lat, last);
	for (unsigned i = 0; i < t->n; i++) {
		r->ops += t->slices[i].ops;
		r->elapsed_ns += (uint64_t)t->slices[i].elapsed_ns;
	}
}

static void counts_since(struct perf *p, const struct perf_counts *before,
			 struct perf_counts *c)
{
	p->op->counts(p, c);
	c->wrs -= before->wrs;
	c->doorbells -= before->doorbells;
	c->messages -= before->messages;
	c->calls -= before->calls;
	c->answers -= before->answers;
	c->answer_doorbells -= before->answer_doorbells;
	c->fetched -= before->fetched;
	c->replied -= before->replied;
	c->fetch_reads -= before->fetch_reads;
	c->fetch_empty -= before->fetch_empty;
	c->fetch_rests -= before->fetch_rests;
	c->fetch_len_changes -= before->fetch_len_changes;
	c->recalls -= before->recalls;
	c->switches -= before->switches;
	c->grants -= before->grants;
	c->declines -= before->declines;
	c->migrations -= before->migrations;
	c->head_fetches -= before->head_fetches;
	for (unsigned i = 0; i < SKEIN_RPC_DEGREES; i++)
		c->degrees[i] -= before->degrees[i];
}

static int measure(struct perf *p, struct hist *lat, struct perf_result *r)
{
	struct perf_counts before = {0};
	struct progress bar;
	struct plan plan;
	struct track t = {0};
	int rc;

	r->size = p->size;
	r->lat = malloc(sizeof(*r->lat));
	if (!r->lat)
		return -ENOMEM;
	hist_init(r->lat);
	progress_start(&bar, "measuring");
	progress_set(&bar, 0, 1); /* trials of a large size take long, too */
	rc = plan_size(p, &plan, lat);
	if (!rc)
		rc = track_new(plan.tries, &t);
	if (rc)
		goto out;
	p->op->counts(p, &before);
	rc = run_track(p, &plan, r, &t, lat, &bar);
	if (rc)
		goto out;
	counts_since(p, &before, &r->counts);
	for (unsigned i = 0; i < t.n; i++)
		r->run += t.slices[i].ops;
	keep_absolute(r, &t, lat);
	rc = slices_figures(t.slices, t.n, t.probes, &r->fig);
	r->copy_yard = plan.copy;
out:
	progress_end(&bar);
	track_free(&t);
	probe_copy_free(&plan.mem);
	return rc;
}

/* perftest's -a: powers of two from 2 to the size asked for. */
static unsigned list_sizes(const struct perf_opts *o, uint64_t *sizes)
{
	unsigned n = 0;

	if (!o->all) {
		sizes[0] = o->size;
		return 1;
	}
	for (uint64_t s = 2; s <= o->size && n < SIZES_MAX; s *= 2)
		sizes[n++] = s;
	return n;
}

static int resize(struct perf *p, uint64_t size)
{
	int rc = 0;

	p->size = size;
	if (p->op->resize)
		rc = p->op->resize(p);
	if (!rc)
		rc = step_begin(p, STEP_RESIZE, size);
	if (!rc)
		rc = step_wait_done(p);
	return rc;
}

static int measure_all(struct perf *p)
{
	struct perf_result results[SIZES_MAX] = {{0}};
	struct hist *lat = malloc(sizeof(*lat));
	uint64_t sizes[SIZES_MAX];
	unsigned i, n = list_sizes(&p->o, sizes);
	int rc = lat ? 0 : -ENOMEM;

	for (i = 0; i < n && !rc; i++) {
		rc = resize(p, sizes[i]);
		if (!rc)
			rc = measure(p, lat, &results[i]);
	}
	if (!rc)
		rc = step_begin(p, STEP_QUIT, 0);
	if (!rc)
		rc = step_wait_done(p);
	if (!rc)
		rc = perf_report(p, results, n);
	for (i = 0; i < n; i++)
		free(results[i].lat);
	free(lat);
	return rc;
}

int perf_client(struct perf *p)
{
	int rc = terms_agree(p);

	if (rc)
		return rc;
	rc = p->op->open(p);
	if (!rc)
		rc = measure_all(p);
	p->op->close(p);
	return rc;
}

/* Workers give up when the client is gone, or says that it has failed. */
static int serve_run(struct perf *p, uint64_t n)
{
	int rc = run_workers(p, n);

	if (rc == -ETIMEDOUT && !p->err[0] && ctl_pending(p->ctl))
		(void)perf_out_of_turn(p);
	return rc;
}

static int serve_step(struct perf *p, enum step_kind kind, uint64_t n)
{
	struct perf_worker *w = &p->workers[0];

	switch (kind) {
	case STEP_RESIZE:
		if (n > p->o.size)
			return perf_fail(p, -EPROTO, "a size not agreed on");
		p->size = n;
		return p->op->resize ? p->op->resize(p) : 0;
	case STEP_LINE:
		return p->shm ? probe_line_server(w, n) : -EPROTO;
	case STEP_EVENT:
		return p->shm ? probe_event_server(w, n) : -EPROTO;
	case STEP_RUN:
		return p->op->server ? serve_run(p, n) : 0;
	case STEP_QUIT:
		return 0;
	case STEP_NONE:
	case STEP_KINDS:
		break;
	}
	return -EPROTO;
}

int perf_server(struct perf *p)
{
	enum step_kind kind = STEP_NONE;
	uint64_t n = 0;
	int rc = terms_agree(p);

	if (rc)
		return rc;
	rc = p->op->open(p);
	while (!rc && kind != STEP_QUIT) {
		rc = step_next(p, &kind, &n);
		if (!rc)
			rc = serve_step(p, kind, n);
		if (!rc)
			rc = step_done(p);
	}
	p->op->close(p);
	return rc;
}
