/* SPDX-License-Identifier: MIT */
/*
 * terms.c - the client says what is measured, the server takes it on.
 *
 * Only the operation must be the same on both command lines; all else that
 * both ends need to know comes from the client, and is checked as any input.
 */
#include "perf/ctl.h"
#include "perf/perf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TERMS_VERSION 3

/* A term's name, bounds, and where it is kept. */
struct term {
	const char *name;
	uint64_t min;
	uint64_t max;
	size_t off;
	bool wide; /* uint64_t, else uint32_t */
};

#define TERM32(f, min, max)                                        \
	{                                                          \
#f, min, max, offsetof(struct perf_opts, f), false \
	}
#define TERM64(f, min, max)                                       \
	{                                                         \
#f, min, max, offsetof(struct perf_opts, f), true \
	}

static const struct term table[] = {
	TERM64(size, 1, PERF_SIZE_MAX),
	TERM32(qps, 1, PERF_QPS_MAX),
	TERM32(window, 1, PERF_WINDOW_MAX),
	TERM32(batch, 1, PERF_BATCH_MAX),
	TERM32(threads, 1, PERF_THREADS_MAX),
	TERM32(wait, 0, PERF_WAIT_EVENT),
	TERM32(atomic, 0, PERF_CMP_SWAP),
	TERM32(inline_max, 0, PERF_INLINE_MAX),
	TERM32(degree, 0, PERF_THREADS_MAX),
};

#define N_TERMS (sizeof(table) / sizeof(table[0]))

static uint64_t get(const struct perf_opts *o, const struct term *t)
{
	const char *at = (const char *)o + t->off;

	return t->wide ? *(const uint64_t *)at : *(const uint32_t *)at;
}

/* Not inlined: gcc's sanitizer builds see the wide store happen to a narrow
 * field and warn. */
__attribute__((noinline)) static void set(struct perf_opts *o,
					  const struct term *t, uint64_t v)
{
	char *at = (char *)o + t->off;

	if (t->wide)
		*(uint64_t *)at = v;
	else
		*(uint32_t *)at = (uint32_t)v;
}

static int offer(struct perf *p)
{
	json_t *j =
		json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "skein_perf",
			  TERMS_VERSION, "op", perf_op_names[p->o.op], "rate",
			  p->o.rate, "shared", p->o.shared, "no_combining",
			  p->o.no_combining, "both_ways", p->o.both_ways,
			  "no_copy", p->o.no_copy);

	for (size_t i = 0; j && i < N_TERMS; i++)
		json_object_set_new(
			j, table[i].name,
			json_integer((json_int_t)get(&p->o, &table[i])));
	return ctl_send(p->ctl, j);
}

static int take(struct perf *p, const json_t *j)
{
	const char *op = json_string_value(json_object_get(j, "op"));

	if (json_integer_value(json_object_get(j, "skein_perf")) !=
		    TERMS_VERSION ||
	    !op)
		return perf_fail(p, -EPROTO,
				 "the other end is no skein perf of this "
				 "version");
	if (strcmp(op, perf_op_names[p->o.op]) != 0)
		return perf_fail(p, -EINVAL,
				 "the client asks for %.16s, this server runs "
				 "%s",
				 op, perf_op_names[p->o.op]);
	for (size_t i = 0; i < N_TERMS; i++) {
		const json_t *v = json_object_get(j, table[i].name);
		json_int_t n = json_integer_value(v);

		if (!json_is_integer(v) || n < 0 ||
		    (uint64_t)n < table[i].min || (uint64_t)n > table[i].max)
			return perf_fail(p, -EPROTO,
					 "the client's %s makes no sense",
					 table[i].name);
		set(&p->o, &table[i], (uint64_t)n);
	}
	p->o.rate = json_is_true(json_object_get(j, "rate"));
	p->o.shared = json_is_true(json_object_get(j, "shared"));
	p->o.no_combining = json_is_true(json_object_get(j, "no_combining"));
	p->o.both_ways = json_is_true(json_object_get(j, "both_ways"));
	p->o.no_copy = json_is_true(json_object_get(j, "no_copy"));
	if (p->o.shared && p->o.qps > p->o.threads)
		return perf_fail(p, -EPROTO, "the client's qps make no sense");
	return 0;
}

static int workers_new(struct perf *p)
{
	p->workers = calloc(p->o.threads, sizeof(*p->workers));
	if (!p->workers)
		return -ENOMEM;
	for (unsigned i = 0; i < p->o.threads; i++) {
		p->workers[i].p = p;
		p->workers[i].index = i;
		p->workers[i].lat = malloc(sizeof(struct hist));
		p->workers[i].chunks = malloc(sizeof(struct hist));
		if (!p->workers[i].lat || !p->workers[i].chunks)
			return -ENOMEM;
		hist_init(p->workers[i].lat);
		hist_init(p->workers[i].chunks);
	}
	return 0;
}

int terms_agree(struct perf *p)
{
	json_t *j;
	int rc;

	if (!p->server) {
		rc = offer(p);
		return rc ? perf_gone(p, rc) : workers_new(p);
	}
	rc = perf_recv(p, PERF_PATIENCE_NS, &j);
	if (rc)
		return rc;
	rc = take(p, j);
	json_decref(j);
	return rc ? rc : workers_new(p);
}
