/* SPDX-License-Identifier: MIT */
/*
 * ycsb.c - targets and slices; see ycsb.h.
 */
#include "kv/ycsb/ycsb.h"

#include "kv/ycsb/worker.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PROGRESS_NS SKEIN_MS(200)

struct ycsb_target {
	struct ycsb_target_attr attr;
	struct kv_fabric *fabric;
	struct kv_net *nets[YCSB_THREADS_MAX];
	struct ycsb_keys keys;
	unsigned shards;
	char error[YCSB_ERROR_MAX];
};

static int open_nets(struct ycsb_target *t)
{
	int rc = 0;

	for (unsigned i = 0; i < t->attr.threads && !rc; i++)
		rc = kv_net_open(t->fabric, &t->nets[i]);
	return rc;
}

int ycsb_target_open(const struct ycsb_target_attr *attr,
		     struct ycsb_target **target)
{
	struct kv_fabric_attr fa = {
		.transport = attr->transport,
		.device = attr->device,
		.wait = attr->wait,
		.ret = attr->ret,
		.log = attr->log,
		.log_arg = attr->log_arg,
	};
	struct ycsb_target *t;
	int rc;

	if (!attr->threads || attr->threads > YCSB_THREADS_MAX ||
	    !attr->window || attr->window > YCSB_WINDOW_MAX ||
	    attr->params->field_len < 16 || !attr->params->field_count ||
	    (uint64_t)attr->params->field_len * attr->params->field_count >
		    YCSB_VALUE_MAX)
		return -EINVAL;
	t = calloc(1, sizeof(*t));
	if (!t)
		return -ENOMEM;
	t->attr = *attr;
	ycsb_keys_init(&t->keys, attr->params->records);
	rc = kv_fabric_open(&fa, &t->fabric);
	if (!rc)
		rc = open_nets(t);
	if (rc) {
		ycsb_target_close(t);
		return rc;
	}
	*target = t;
	return 0;
}

void ycsb_target_close(struct ycsb_target *t)
{
	if (!t)
		return;
	for (unsigned i = 0; i < YCSB_THREADS_MAX; i++)
		kv_net_close(t->nets[i]);
	kv_fabric_close(t->fabric);
	ycsb_keys_fini(&t->keys);
	free(t);
}

const char *ycsb_target_device(struct ycsb_target *t)
{
	return kv_fabric_device(t->fabric);
}

enum kv_transport ycsb_target_transport(struct ycsb_target *t)
{
	return t->attr.transport;
}

unsigned ycsb_target_shards(struct ycsb_target *t)
{
	return t->shards;
}

const char *ycsb_target_error(struct ycsb_target *t)
{
	return t->error;
}

void ycsb_tally_init(struct ycsb_tally *t)
{
	memset(t, 0, sizeof(*t));
	for (unsigned i = 0; i < YCSB_OPS; i++)
		hist_init(&t->op[i]);
}

/* Sums but for the time. */
static void add_counts(struct ycsb_tally *into, const struct ycsb_tally *from)
{
	for (unsigned i = 0; i < YCSB_OPS; i++)
		hist_merge(&into->op[i], &from->op[i]);
	into->ops += from->ops;
	into->verified += from->verified;
	into->bad += from->bad;
	into->misses += from->misses;
	into->scanned += from->scanned;
	into->late += from->late;
}

void ycsb_tally_add(struct ycsb_tally *into, const struct ycsb_tally *from)
{
	add_counts(into, from);
	into->ns += from->ns;
}

double ycsb_tally_rate(const struct ycsb_tally *t)
{
	return t->ns ? (double)t->ops * 1e9 / (double)t->ns : 0;
}

static void *thread_main(void *arg)
{
	ycsb_worker_run(arg);
	return NULL;
}

static void show(const struct ycsb_slice *sl, struct ycsb_worker *w, unsigned n)
{
	uint64_t done = 0;

	for (unsigned i = 0; i < n; i++)
		done += atomic_load_explicit(&w[i].done, memory_order_relaxed);
	if (sl->progress)
		sl->progress(sl->arg, done);
}

/* Waits for all, showing how far they are. */
static void join_all(const struct ycsb_slice *sl, struct ycsb_worker *w,
		     unsigned started, unsigned n)
{
	struct timespec ts;

	for (unsigned i = 0; i < started;) {
		if (!sl->progress) {
			pthread_join(w[i++].thread, NULL);
			continue;
		}
		clock_gettime(CLOCK_REALTIME, &ts);
		ts.tv_nsec += PROGRESS_NS;
		if (ts.tv_nsec >= 1000000000) {
			ts.tv_nsec -= 1000000000;
			ts.tv_sec++;
		}
		i += !pthread_timedjoin_np(w[i].thread, NULL, &ts);
		show(sl, w, n);
	}
}

/* What worker i of the slice has to do. */
static void assign(struct ycsb_target *t, const struct ycsb_slice *sl,
		   _Atomic bool *stop, struct ycsb_worker *w, unsigned i)
{
	const struct ycsb_target_attr *a = &t->attr;
	uint64_t total = sl->mix ? sl->ops : a->params->records;
	uint64_t first = total * i / a->threads;

	memset(w, 0, sizeof(*w));
	w->net = t->nets[i];
	w->addr = a->addr;
	w->slice = sl;
	w->params = a->params;
	w->keys = &t->keys;
	w->stop = stop;
	w->number = i;
	w->workers = a->threads;
	w->window = a->window;
	w->pin = a->pin < 0 ? -1 : a->pin + (int)i;
	w->timeout_ns = a->timeout_ns;
	w->quota = total ? total * (i + 1) / a->threads - first : UINT64_MAX;
	w->load_first = first;
}

/* Sums the workers and frees what they have. */
static int collect(struct ycsb_target *t, struct ycsb_worker *w, unsigned n,
		   struct ycsb_tally *tally)
{
	uint64_t longest = 0;
	int rc = 0;

	for (unsigned i = 0; i < n; i++) {
		add_counts(tally, &w[i].tally);
		if (w[i].tally.ns > longest)
			longest = w[i].tally.ns;
		if (w[i].shards)
			t->shards = w[i].shards;
		if (w[i].failed && !rc) {
			rc = w[i].failed;
			snprintf(t->error, sizeof(t->error), "%s", w[i].error);
		}
		ycsb_worker_fini(&w[i]);
	}
	tally->ns += longest;
	return rc;
}

int ycsb_run(struct ycsb_target *t, const struct ycsb_slice *slice,
	     struct ycsb_tally *tally)
{
	unsigned n = t->attr.threads, ready = 0, started = 0;
	_Atomic bool stop = false;
	struct ycsb_worker *w = malloc(n * sizeof(*w));
	int rc = w ? 0 : -ENOMEM, failed;

	t->error[0] = 0;
	for (; ready < n && !rc; ready += !rc) {
		assign(t, slice, &stop, &w[ready], ready);
		rc = ycsb_worker_init(&w[ready]);
	}
	for (; started < n && !rc; started += !rc)
		rc = -pthread_create(&w[started].thread, NULL, thread_main,
				     &w[started]);
	if (rc) {
		atomic_store(&stop, true);
		snprintf(t->error, sizeof(t->error), "cannot start: %s",
			 strerror(-rc));
	}
	if (w)
		join_all(slice, w, started, ready);
	failed = collect(t, w, ready, tally);
	free(w);
	ycsb_keys_settle(&t->keys);
	return rc ? rc : failed;
}
