/* SPDX-License-Identifier: MIT */
/*
 * ycsb_report.c - see ycsb_report.h.
 */
#include "ycsb_report.h"

#include "out.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#define FIXED_COLS 8u

static const char *target_name(const struct ycsb_report *r, unsigned target)
{
	return kv_transport_names[ycsb_target_transport(r->targets[target])];
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

double ycsb_report_ratio(const struct ycsb_report *r, unsigned mix,
			 unsigned target, unsigned base)
{
	const double *x = ycsb_report_cell(r, mix, target)->rates;
	const double *y = ycsb_report_cell(r, mix, base)->rates;
	unsigned n = r->rounds[mix], kept = 0;
	double *q = malloc((n + !n) * sizeof(*q)), mid = NAN;

	for (unsigned i = 0; q && i < n; i++)
		if (y[i] > 0)
			q[kept++] = x[i] / y[i];
	if (kept) {
		qsort(q, kept, sizeof(*q), by_value);
		mid = (q[(kept - 1) / 2] + q[kept / 2]) / 2;
	}
	free(q);
	return mid;
}

/* Latencies of all operations together; NULL without memory. */
static struct hist *all_ops(const struct ycsb_tally *t)
{
	struct hist *h = malloc(sizeof(*h));

	if (!h)
		return NULL;
	hist_init(h);
	for (unsigned op = 0; op < YCSB_OPS; op++)
		hist_merge(h, &t->op[op]);
	return h;
}

static void cell_us(struct table *t, const struct hist *h, double percent)
{
	table_num(t, h && h->count ? (double)hist_percentile(h, percent) / 1e3
				   : NAN);
}

static void row(struct table *t, const struct ycsb_report *r, unsigned mix,
		unsigned target, const char *what, const struct hist *h,
		double rate)
{
	if (mix < r->mix_count)
		table_cell(t, "%c", r->mixes[mix]->name);
	else
		table_cell(t, "load");
	table_cell(t, "%s", target_name(r, target));
	table_cell(t, "%s", what);
	table_cell(t, "%.0f", rate);
	cell_us(t, h, 50);
	cell_us(t, h, 95);
	cell_us(t, h, 99);
	cell_us(t, h, 99.9);
	for (unsigned base = 1; base < r->target_count; base++) {
		if (mix < r->mix_count)
			table_num(t, ycsb_report_ratio(r, mix, target, base));
		else
			table_cell(t, "-");
	}
}

/* With one target: a row for each kind of operation, when there are several. */
static void op_rows(struct table *t, const struct ycsb_report *r, unsigned mix)
{
	const struct ycsb_tally *tally = &ycsb_report_cell(r, mix, 0)->tally;

	for (unsigned op = 0; op < YCSB_OPS; op++) {
		const struct hist *h = &tally->op[op];

		if (h->count && h->count != tally->ops)
			row(t, r, mix, 0, ycsb_op_name((enum ycsb_op)op), h,
			    (double)h->count * 1e9 / (double)tally->ns);
	}
}

static const char *only_op(const struct ycsb_tally *t)
{
	for (unsigned op = 0; op < YCSB_OPS; op++)
		if (t->op[op].count && t->op[op].count == t->ops)
			return ycsb_op_name((enum ycsb_op)op);
	return "all";
}

static void print_set_up(const struct ycsb_report *r)
{
	const struct ycsb_params *p = r->params;

	printf("%" PRIu64 " records of %u x %u bytes, %u thread%s, %u "
	       "operation%s under way each\n",
	       p->records, p->field_count, p->field_len, r->threads,
	       r->threads == 1 ? "" : "s", r->window,
	       r->window == 1 ? "" : "s");
	if (r->rate)
		printf("%" PRIu64 " operations a second, arrivals %s; latency "
		       "counts from when each was due\n",
		       r->rate, r->arrival);
	for (unsigned i = 0; i < r->target_count; i++)
		printf("%s: %s, %u shard%s, device %s\n", target_name(r, i),
		       r->addrs[i], ycsb_target_shards(r->targets[i]),
		       ycsb_target_shards(r->targets[i]) == 1 ? "" : "s",
		       ycsb_target_device(r->targets[i]));
}

static void print_verified(const struct ycsb_report *r)
{
	uint64_t verified = 0, bad = 0, misses = 0, late = 0;

	for (unsigned i = 0; i < r->mix_count * r->target_count; i++) {
		verified += r->cells[i].tally.verified;
		bad += r->cells[i].tally.bad;
		misses += r->cells[i].tally.misses;
		late += r->cells[i].tally.late;
	}
	if (late)
		printf("due, and not begun when time was up: %" PRIu64 "\n",
		       late);
	if (r->params->cache)
		printf("misses: %" PRIu64 "\n", misses);
	printf("values verified: %" PRIu64 ", wrong or missing: %" PRIu64 "\n",
	       verified, bad);
}

void ycsb_report_table(const struct ycsb_report *r)
{
	const char *heads[FIXED_COLS + YCSB_TARGETS_MAX] = {
		"<workload", "<transport", "<operation", "ops/s",
		"p50 us",    "p95 us",	   "p99 us",	 "p99.9 us"};
	char names[YCSB_TARGETS_MAX][32];
	struct table *t;

	for (unsigned i = 1; i < r->target_count; i++) {
		snprintf(names[i], sizeof(names[i]), "x %s", target_name(r, i));
		heads[FIXED_COLS + i - 1] = names[i];
	}
	t = table_new(heads, FIXED_COLS + r->target_count - 1);
	for (unsigned g = 0; r->loaded && g < r->target_count; g++)
		row(t, r, r->mix_count, g, "insert",
		    &r->loads[g].op[YCSB_INSERT],
		    ycsb_tally_rate(&r->loads[g]));
	for (unsigned m = 0; m < r->mix_count; m++) {
		if (r->target_count == 1)
			op_rows(t, r, m);
		for (unsigned g = 0; g < r->target_count; g++) {
			const struct ycsb_tally *tally =
				&ycsb_report_cell(r, m, g)->tally;
			struct hist *h = all_ops(tally);

			row(t, r, m, g, only_op(tally), h,
			    ycsb_tally_rate(tally));
			free(h);
		}
	}
	print_set_up(r);
	table_print(t, stdout);
	table_free(t);
	print_verified(r);
}

void ycsb_report_rows(const struct ycsb_report *r)
{
	for (unsigned m = 0; m < r->mix_count; m++)
		for (unsigned g = 0; g < r->target_count; g++) {
			const struct ycsb_tally *tally =
				&ycsb_report_cell(r, m, g)->tally;
			struct hist *h = all_ops(tally);

			if (!h)
				return;
			printf("%c: %s\t%s\t%.0f\t%.2f\t%.2f",
			       r->mixes[m]->name, r->mixes[m]->what,
			       target_name(r, g), ycsb_tally_rate(tally),
			       (double)hist_percentile(h, 50) / 1e3,
			       (double)hist_percentile(h, 99) / 1e3);
			for (unsigned b = 1; b < r->target_count; b++)
				printf("\t%.2f", ycsb_report_ratio(r, m, g, b));
			putchar('\n');
			free(h);
		}
}

static json_t *json_hist(const struct hist *h)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "count",
			 (json_int_t)h->count, "mean_ns",
			 (json_int_t)hist_mean(h), "p50_ns",
			 (json_int_t)hist_percentile(h, 50), "p95_ns",
			 (json_int_t)hist_percentile(h, 95), "p99_ns",
			 (json_int_t)hist_percentile(h, 99), "p999_ns",
			 (json_int_t)hist_percentile(h, 99.9), "max_ns",
			 (json_int_t)h->max_ns);
}

static json_t *json_tally(const struct ycsb_report *r, const char *workload,
			  unsigned target, const struct ycsb_tally *t)
{
	json_t *ops = json_object();
	struct hist *h = all_ops(t);

	for (unsigned op = 0; op < YCSB_OPS; op++)
		if (t->op[op].count)
			json_object_set_new(ops, ycsb_op_name((enum ycsb_op)op),
					    json_hist(&t->op[op]));
	json_object_set_new(ops, "all", h ? json_hist(h) : json_null());
	free(h);
	return json_pack(
		"{s:s, s:s, s:I, s:f, s:o, s:I, s:I, s:I, s:I, s:I, s:o}",
		"workload", workload, "transport", target_name(r, target),
		"ops", (json_int_t)t->ops, "seconds", (double)t->ns / 1e9,
		"ops_per_s", out_num(ycsb_tally_rate(t)), "verified",
		(json_int_t)t->verified, "bad", (json_int_t)t->bad, "misses",
		(json_int_t)t->misses, "scanned", (json_int_t)t->scanned,
		"late", (json_int_t)t->late, "latency", ops);
}

static json_t *json_cell(const struct ycsb_report *r, unsigned m, unsigned g)
{
	char name[2] = {r->mixes[m]->name, 0};
	json_t *o = json_tally(r, name, g, &ycsb_report_cell(r, m, g)->tally);
	json_t *ratios = json_object();

	for (unsigned base = 0; base < r->target_count; base++)
		if (base != g)
			json_object_set_new(
				ratios, target_name(r, base),
				out_num(ycsb_report_ratio(r, m, g, base)));
	json_object_set_new(o, "rounds", json_integer(r->rounds[m]));
	json_object_set_new(o, "ratio_to", ratios);
	return o;
}

int ycsb_report_json(const struct ycsb_report *r)
{
	const struct ycsb_params *p = r->params;
	json_t *results = json_array(), *loads = json_array();
	json_t *targets = json_array();

	for (unsigned g = 0; g < r->target_count; g++) {
		json_array_append_new(
			targets,
			json_pack("{s:s, s:s, s:s, s:i}", "transport",
				  target_name(r, g), "server", r->addrs[g],
				  "device", ycsb_target_device(r->targets[g]),
				  "shards",
				  (int)ycsb_target_shards(r->targets[g])));
		if (r->loaded)
			json_array_append_new(loads, json_tally(r, "load", g,
								&r->loads[g]));
	}
	for (unsigned m = 0; m < r->mix_count; m++)
		for (unsigned g = 0; g < r->target_count; g++)
			json_array_append_new(results, json_cell(r, m, g));
	return out_json(json_pack(
		"{s:I, s:i, s:i, s:i, s:i, s:i, s:I, s:s?, s:I, s:o, s:o, s:o}",
		"records", (json_int_t)p->records, "field_count",
		(int)p->field_count, "field_length", (int)p->field_len,
		"scan_max", (int)p->scan_max, "threads", (int)r->threads,
		"window", (int)r->window, "rate", (json_int_t)r->rate,
		"arrival", r->rate ? r->arrival : NULL, "seed",
		(json_int_t)p->seed, "targets", targets, "load", loads,
		"results", results));
}
