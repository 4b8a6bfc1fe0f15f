/* SPDX-License-Identifier: MIT */
/*
 * report.c - the table for people and the JSON object for programs.
 */
#include "cmd.h"
#include "out.h"
#include "perf/perf.h"

#include <errno.h>
#include <math.h>

#define MIB 1048576.0

static double rate_of(const struct perf_result *r)
{
	return r->elapsed_ns ? (double)r->ops * 1e9 / (double)r->elapsed_ns
			     : NAN;
}

static double percentile(const struct perf_result *r, double percent)
{
	return r->lat->count ? (double)hist_percentile(r->lat, percent) : NAN;
}

/* Bytes a second of the yardstick; NaN when it was not taken. */
static double copy_rate(const struct perf_result *r)
{
	return r->copy_yard ? (double)r->size * 1e9 / r->fig.aux_ns : NAN;
}

static double copy_ratio(const struct perf_result *r)
{
	return r->copy_yard ? 1 / r->fig.aux_ns_ratio : NAN;
}

static double event_rtt(const struct perf_result *r)
{
	return r->copy_yard ? NAN : r->fig.aux_ns;
}

static double event_ratio(const struct perf_result *r)
{
	return r->copy_yard ? NAN : r->fig.aux_p50_ratio;
}

static void set(json_t *j, const char *key, json_t *v)
{
	json_object_set_new(j, key, v);
}

static void set_num(json_t *j, const char *key, double v)
{
	set(j, key, out_num(v));
}

static void set_count(json_t *j, const char *key, uint64_t v)
{
	set(j, key, json_integer((json_int_t)v));
}

/* The lower median of how many calls a message had; NaN where nobody counts. */
static double degree_median(const struct perf_counts *c)
{
	uint64_t sum = 0, before = 0;

	for (unsigned i = 0; i < SKEIN_RPC_DEGREES; i++)
		sum += c->degrees[i];
	for (unsigned i = 0; i < SKEIN_RPC_DEGREES && sum; i++) {
		before += c->degrees[i];
		if (before >= (sum + 1) / 2)
			return i + 1;
	}
	return NAN;
}

static double by(uint64_t n, uint64_t d)
{
	return d ? (double)n / (double)d : NAN;
}

/* Of threads that share QPs; each figure by the calls that were made. */
/* Posts of the server: answers, grants. */
static json_t *fetching(const struct perf *p, const struct perf_result *r)
{
	const struct perf_counts *c = &r->counts;
	json_t *j;

	if (p->o.op != PERF_RPC)
		return json_null();
	j = json_object();
	set(j, "return", json_string(c->fetched ? "fetch" : "reply"));
	set_count(j, "server_posts", c->answer_doorbells);
	set_count(j, "fetched", c->fetched);
	set_count(j, "replied", c->replied);
	set_count(j, "reads", c->fetch_reads);
	set_count(j, "reads_that_found_nothing", c->fetch_empty);
	set_count(j, "reads_of_a_rest", c->fetch_rests);
	set_count(j, "first_read_bytes", c->fetch_len);
	set_count(j, "first_read_changes", c->fetch_len_changes);
	set_count(j, "recalls", c->recalls);
	set_count(j, "switches", c->switches);
	set_num(j, "reads_per_call", by(c->fetch_reads, c->calls));
	return j;
}

static json_t *sharing(const struct perf *p, const struct perf_result *r)
{
	const struct perf_counts *c = &r->counts;
	bool combining = !p->o.no_combining;
	json_t *j;

	if (!p->o.shared)
		return json_null();
	j = json_object();
	set(j, "combining", json_boolean(combining));
	set(j, "forced_degree",
	    p->o.degree ? json_integer(p->o.degree) : json_null());
	set_count(j, "calls", c->calls);
	set_count(j, "answers", c->answers);
	set_count(j, "answer_doorbells", c->answer_doorbells);
	set_num(j, "degree", by(c->calls, c->messages));
	set_num(j, "degree_median", combining ? degree_median(c) : NAN);
	set_num(j, "answer_degree", by(c->calls, c->answers));
	set_num(j, "messages_per_call", by(c->messages, c->calls));
	set_num(j, "doorbells_per_call", by(c->doorbells, c->calls));
	set_num(j, "answers_per_call", by(c->answers, c->calls));
	set_num(j, "answer_doorbells_per_call",
		by(c->answer_doorbells, c->calls));
	set_num(j, "credits", combining ? (double)c->credits : NAN);
	set_num(j, "credit_grants", combining ? (double)c->grants : NAN);
	set_num(j, "credit_declines", combining ? (double)c->declines : NAN);
	set_num(j, "migrations", combining ? (double)c->migrations : NAN);
	set_num(j, "active_qps", combining ? (double)c->active : NAN);
	set_count(j, "head_fetches", c->head_fetches);
	return j;
}

static void set_run(json_t *j, const struct perf *p)
{
	const struct perf_opts *o = &p->o;

	set(j, "op", json_string(perf_op_names[o->op]));
	set(j, "device", json_string(p->device));
	set(j, "device_why", json_string(p->device_why));
	set(j, "kind", json_string(o->rate ? "throughput" : "latency"));
	set(j, "wait", json_string(perf_wait_names[o->wait]));
	set(j, "self", json_boolean(o->self));
	set_count(j, "window", o->window);
	set_count(j, "batch", o->batch);
	set(j, "outside", json_boolean(o->outside || o->flush));
	set(j, "flush", json_boolean(o->flush));
	set_count(j, "threads", o->threads);
	set_count(j, "qps", o->qps);
	set(j, "both_ways",
	    o->op == PERF_STREAM ? json_boolean(o->both_ways) : json_null());
	set(j, "copy",
	    o->op == PERF_STREAM ? json_boolean(!o->no_copy) : json_null());
}

static void set_result(json_t *j, const struct perf *p,
		       const struct perf_result *r)
{
	const struct slice_figures *f = &r->fig;
	const char *mode = slice_mode(f->line_ns);

	set_count(j, "size", r->size);
	set_count(j, "iterations", r->ops);
	set_count(j, "operations_run", r->run);
	set_num(j, "p50_ns", percentile(r, 50));
	set_num(j, "p99_ns", percentile(r, 99));
	set_num(j, "p999_ns", percentile(r, 99.9));
	set_num(j, "mean_ns", r->lat->count ? (double)hist_mean(r->lat) : NAN);
	set_num(j, "min_ns", percentile(r, 0));
	set_num(j, "max_ns", percentile(r, 100));
	set_num(j, "rate_per_s", rate_of(r));
	set_num(j, "bytes_per_s", rate_of(r) * (double)r->size);
	set_num(j, "ns_per_op", f->ns_per_op);
	set_num(j, "cacheline_rtt_ns", f->line_ns);
	set_num(j, "cacheline_rtt_p99_ns", f->line_p99_ns);
	set_num(j, "rtt_ratio", f->p50_ratio);
	set_num(j, "rtt_ratio_p99", f->p99_ratio);
	set_num(j, "ns_per_op_ratio", f->ns_per_op_ratio);
	set(j, "mode", mode ? json_string(mode) : json_null());
	set_num(j, "eventfd_rtt_ns", event_rtt(r));
	set_num(j, "event_ratio", event_ratio(r));
	set_num(j, "memcpy_bytes_per_s", copy_rate(r));
	set_num(j, "memcpy_ratio", copy_ratio(r));
	set_count(j, "slices_kept", f->kept);
	set_count(j, "slices_dropped", f->dropped);
	set_count(j, "doorbells", r->counts.doorbells);
	set(j, "wrs",
	    r->counts.has_wrs ? json_integer((json_int_t)r->counts.wrs)
			      : json_null());
	set_count(j, "messages", r->counts.messages);
	set(j, "link",
	    r->counts.link ? json_string(r->counts.link) : json_null());
	set(j, "sharing", sharing(p, r));
	set(j, "fetch", fetching(p, r));
}

static int report_json(const struct perf *p, const struct perf_result *r,
		       unsigned n)
{
	json_t *j = json_object(), *list;

	set_run(j, p);
	if (!p->o.all) {
		set_result(j, p, r);
		return out_json(j);
	}
	list = json_array();
	for (unsigned i = 0; i < n; i++) {
		json_t *one = json_object();

		set_run(one, p);
		set_result(one, p, &r[i]);
		json_array_append_new(list, one);
	}
	set(j, "results", list);
	return out_json(j);
}

static void lat_row(struct table *t, const struct perf_result *r)
{
	table_num(t, percentile(r, 0));
	table_num(t, percentile(r, 50));
	table_num(t, r->lat->count ? (double)hist_mean(r->lat) : NAN);
	table_num(t, percentile(r, 99));
	table_num(t, percentile(r, 99.9));
	table_num(t, percentile(r, 100));
}

static void yard_row(struct table *t, const struct perf_result *r, double a,
		     double b)
{
	const char *mode = slice_mode(r->fig.line_ns);

	table_num(t, r->fig.line_ns);
	table_num(t, a);
	table_num(t, b);
	table_cell(t, "%s", mode ? mode : "-");
	table_cell(t, "%u/%u", r->fig.kept, r->fig.kept + r->fig.dropped);
}

static struct table *lat_table(const struct perf_result *r, unsigned n)
{
	static const char *const heads[] = {
		"#bytes",    "iterations", "t_min[ns]", "t_p50[ns]",
		"t_avg[ns]", "t_p99[ns]",  "t_p99.9",	"t_max[ns]",
		"line[ns]",  "p50/line",   "p99/line",	"mode",
		"slices"};
	struct table *t = table_new(heads, sizeof(heads) / sizeof(heads[0]));

	for (unsigned i = 0; i < n; i++) {
		table_cell(t, "%llu", (unsigned long long)r[i].size);
		table_cell(t, "%llu", (unsigned long long)r[i].ops);
		lat_row(t, &r[i]);
		yard_row(t, &r[i], r[i].fig.p50_ratio, r[i].fig.p99_ratio);
	}
	return t;
}

static struct table *event_table(const struct perf_result *r, unsigned n)
{
	static const char *const heads[] = {
		"#bytes",    "iterations",  "t_min[ns]",   "t_p50[ns]",
		"t_avg[ns]", "t_p99[ns]",   "t_p99.9",	   "t_max[ns]",
		"line[ns]",  "eventfd[ns]", "p50/eventfd", "mode",
		"slices"};
	struct table *t = table_new(heads, sizeof(heads) / sizeof(heads[0]));

	for (unsigned i = 0; i < n; i++) {
		table_cell(t, "%llu", (unsigned long long)r[i].size);
		table_cell(t, "%llu", (unsigned long long)r[i].ops);
		lat_row(t, &r[i]);
		yard_row(t, &r[i], event_rtt(&r[i]), event_ratio(&r[i]));
	}
	return t;
}

static struct table *rate_table(const struct perf_result *r, unsigned n)
{
	static const char *const heads[] = {
		"#bytes",   "iterations", "BW[MiB/s]",	   "rate[M/s]",
		"ns/op",    "t_p50[ns]",  "memcpy[MiB/s]", "BW/memcpy",
		"line[ns]", "ns/line",	  "doorbells/op",  "mode",
		"slices"};
	struct table *t = table_new(heads, sizeof(heads) / sizeof(heads[0]));

	for (unsigned i = 0; i < n; i++) {
		double ops = (double)r[i].run;

		table_cell(t, "%llu", (unsigned long long)r[i].size);
		table_cell(t, "%llu", (unsigned long long)r[i].ops);
		table_num(t, rate_of(&r[i]) * (double)r[i].size / MIB);
		table_num(t, rate_of(&r[i]) / 1e6);
		table_num(t, r[i].fig.ns_per_op);
		table_num(t, percentile(&r[i], 50));
		table_num(t, copy_rate(&r[i]) / MIB);
		table_num(t, copy_ratio(&r[i]));
		yard_row(t, &r[i], r[i].fig.ns_per_op_ratio,
			 (double)r[i].counts.doorbells / ops);
	}
	return t;
}

static struct table *sharing_table(const struct perf_result *r, unsigned n)
{
	static const char *const heads[] = {
		"#bytes",	"degree",      "median",     "messages/op",
		"doorbells/op", "ans degree",  "answers/op", "ans dbells/op",
		"credits",	"grants",      "declines",   "migrations",
		"active QPs",	"head fetches"};
	struct table *t = table_new(heads, sizeof(heads) / sizeof(heads[0]));

	for (unsigned i = 0; i < n; i++) {
		const struct perf_counts *c = &r[i].counts;

		table_cell(t, "%llu", (unsigned long long)r[i].size);
		table_num(t, by(c->calls, c->messages));
		table_num(t, degree_median(c));
		table_num(t, by(c->messages, c->calls));
		table_num(t, by(c->doorbells, c->calls));
		table_num(t, by(c->calls, c->answers));
		table_num(t, by(c->answers, c->calls));
		table_num(t, by(c->answer_doorbells, c->calls));
		table_cell(t, "%llu", (unsigned long long)c->credits);
		table_cell(t, "%llu", (unsigned long long)c->grants);
		table_cell(t, "%llu", (unsigned long long)c->declines);
		table_cell(t, "%llu", (unsigned long long)c->migrations);
		table_cell(t, "%llu", (unsigned long long)c->active);
		table_cell(t, "%llu", (unsigned long long)c->head_fetches);
	}
	return t;
}

/* "threads 8, QPs 2, shared by combining". */
static void print_setup(const struct perf_opts *o, const char *link)
{
	printf("threads %u, ", o->threads);
	if (o->op == PERF_STREAM)
		printf("%s, %s", o->both_ways ? "both ways" : "one way",
		       o->no_copy ? "in place" : "copied");
	else if (o->op != PERF_RPC)
		printf("QPs %u each", o->qps);
	else if (!o->shared)
		printf("a connection each");
	else if (o->no_combining)
		printf("QPs %u, shared under a spin lock", o->qps);
	else if (o->degree)
		printf("QPs %u, shared by combining %u calls", o->qps,
		       o->degree);
	else
		printf("QPs %u, shared by combining", o->qps);
	printf(", window %u, batch %u, wait %s, %s%s%s\n\n", o->window,
	       o->batch, perf_wait_names[o->wait],
	       o->self ? "both ends on this host"
		       : "two ends started apart: no cache-line probe",
	       link ? ", by " : "", link ? link : "");
}

static int report_table(const struct perf *p, const struct perf_result *r,
			unsigned n)
{
	const struct perf_opts *o = &p->o;
	struct table *t;

	printf("%s %s on %s\n", perf_op_names[o->op],
	       o->rate ? "throughput" : "latency", p->device_why);
	print_setup(o, r->counts.link);
	if (o->rate)
		t = rate_table(r, n);
	else if (o->wait == PERF_WAIT_EVENT)
		t = event_table(r, n);
	else
		t = lat_table(r, n);
	table_print(t, stdout);
	table_free(t);
	if (o->shared) {
		printf("\n");
		t = sharing_table(r, n);
		table_print(t, stdout);
		table_free(t);
	}
	return fflush(stdout) ? -errno : 0;
}

int perf_report(struct perf *p, const struct perf_result *r, unsigned n)
{
	int rc;

	for (unsigned i = 0; i < n; i++)
		if (!r[i].fig.kept)
			out_error(PERF_CMD,
				  "size %llu: the machine changed under every "
				  "slice: no ratio, absolute figures only",
				  (unsigned long long)r[i].size);
	rc = p->o.json ? report_json(p, r, n) : report_table(p, r, n);
	if (!rc)
		return 0;
	p->err_known = true; /* the other end has ended in order */
	return perf_fail(p, rc, "cannot write the result: %s", strerror(-rc));
}

int perf_report_served(const struct perf *p, uint32_t port)
{
	const struct perf_opts *o = &p->o;

	if (!o->json)
		return CMD_OK;
	return out_json(json_pack("{s:s, s:s, s:i, s:s, s:s, s:s}", "op",
				  perf_op_names[o->op], "role", "server",
				  "port", (int)port, "device", p->device,
				  "device_why", p->device_why, "kind",
				  o->rate ? "throughput" : "latency"))
		       ? CMD_FAILED
		       : CMD_OK;
}
