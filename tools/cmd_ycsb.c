/* SPDX-License-Identifier: MIT */
/*
 * cmd_ycsb.c - `skein ycsb`: YCSB's core workloads against a key-value server,
 * or against several in alternating slices, to compare transports.
 */
#include "cmd.h"
#include "cmds.h"
#include "opt.h"
#include "out.h"
#include "ycsb_report.h"

#include "base/hostport.h"
#include "kv/server/serve.h"

#include <skein/error.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CMD "skein ycsb"
#define OPERATIONS_DEFAULT 100000u

static const char workloads_default[] = "a,b,c,e";

struct ycsb_opts {
	const char *workload;
	const char *server;
	uint32_t transport;
	const char *against;
	const char *device;
	uint32_t wait, ret;
	uint32_t threads, window;
	const char *pin;
	int cpu; /* of pin */
	uint64_t operations, records;
	uint64_t time_ns, slice_ns, warm_ns, timeout_ns;
	uint32_t dist, arrival;
	uint64_t rate;
	uint64_t seed;
	struct ycsb_params params;
	bool no_load, json, rows;
	char *against_copy;
	struct out_log logs[YCSB_TARGETS_MAX];
};

static const char *const dists[] = {
	[YCSB_BY_WORKLOAD] = "workload",
	[YCSB_ZIPFIAN] = "zipfian",
	[YCSB_UNIFORM] = "uniform",
	[YCSB_LATEST] = "latest",
	NULL,
};

static const char *const arrivals[] = {"poisson", "even", NULL};

static enum opt_verdict check(enum opt_verdict v, struct ycsb_opts *o)
{
	struct ycsb_params *p = &o->params;
	struct hostport addr;

	if (v != OPT_RUN)
		return v;
	if (!p->field_count)
		p->field_count = p->cache ? 1 : 10;
	if (!p->field_len)
		p->field_len = p->cache ? 32 : 100;
	if (!o->server)
		out_error(CMD, "--server is missing: see --help");
	else if ((uint64_t)p->field_count * p->field_len > YCSB_VALUE_MAX)
		out_error(CMD, "a value of %u x %u bytes is too large",
			  p->field_count, p->field_len);
	else if (o->ret && o->transport != KV_SKEIN)
		out_error(CMD, "--return is for --transport=skein");
	else if (o->ret == SKEIN_RETURN_FETCH && o->wait == SKEIN_WAIT_EVENT)
		out_error(CMD, "--return=fetch needs a client that polls, and "
			       "--wait=event sleeps: give --wait=poll or spin");
	else if (o->json && o->rows)
		out_error(CMD, "--json and --rows exclude each other");
	else if (hostport_parse(o->server, &addr) || !strcmp(addr.port, "0"))
		out_error(CMD,
			  "--server=%s is no HOST:PORT (an IPv6 address in "
			  "brackets)",
			  o->server);
	else if (kv_pin_parse(o->pin, o->threads, &o->cpu))
		out_error(CMD, "--pin=%s: there are not that many CPUs",
			  o->pin);
	else
		return OPT_RUN;
	return OPT_BAD;
}

static enum opt_verdict parse_by(const struct opt *opts, int argc, char **argv,
				 struct ycsb_opts *o)
{
	const struct opt_usage usage = {
		.cmd = CMD,
		.args = "--server ADDR [options]",
		.about = "Loads a key-value server with records and runs "
			 "YCSB's core workloads on it, in a\nclosed loop or "
			 "at a rate. Every value that is read is verified.",
		.opts = opts,
	};

	return check(opt_parse(&usage, argc, argv, NULL), o);
}

static enum opt_verdict parse(int argc, char **argv, struct ycsb_opts *o)
{
	struct ycsb_params *p = &o->params;
	const struct opt opts[] = {
		{'w', "workload", OPT_STR, &o->workload, "LIST",
		 "letters from a to f, with commas; empty: load alone"},
		{'s', "server", OPT_STR, &o->server, "ADDR",
		 "HOST:PORT of `skein kv serve`"},
		{0, "transport", OPT_CHOICE, &o->transport, "NAME",
		 "what the server speaks", 0, 0, kv_transport_names},
		{0, "against", OPT_STR, &o->against, "LIST",
		 "further servers, as tcp-spin=ADDR,tcp-block=ADDR"},
		{'n', "records", OPT_COUNT, &o->records, "N", "recordcount", 1,
		 1ull << 40},
		{'o', "operations", OPT_COUNT, &o->operations, "N",
		 "operationcount a workload; 0: 100000, or what --time says"},
		{0, "time", OPT_NS, &o->time_ns, "TIME",
		 "run each workload for so long instead"},
		{0, "slice", OPT_NS, &o->slice_ns, "TIME",
		 "with --against: length of a turn", 1000000, 60000000000},
		{0, "warm", OPT_NS, &o->warm_ns, "TIME",
		 "begin of each slice that is not counted"},
		{'t', "threads", OPT_U32, &o->threads, "N", "client threads", 1,
		 YCSB_THREADS_MAX},
		{'W', "window", OPT_U32, &o->window, "N",
		 "operations under way a thread", 1, YCSB_WINDOW_MAX},
		{0, "rate", OPT_COUNT, &o->rate, "N",
		 "operations a second of all threads; 0: as fast as it goes", 0,
		 1000000000},
		{0, "arrival", OPT_CHOICE, &o->arrival, "NAME",
		 "at a rate: gaps like independent users', or all the same", 0,
		 0, arrivals},
		{0, "fields", OPT_U32, &p->field_count, "N", "fieldcount", 1,
		 1024},
		{0, "field-length", OPT_U32, &p->field_len, "BYTES",
		 "fieldlength, checksum included", 16, 1u << 20},
		{0, "scan-max", OPT_U32, &p->scan_max, "N", "maxscanlength", 1,
		 KV_SCAN_MAX},
		{0, "distribution", OPT_CHOICE, &o->dist, "NAME",
		 "requestdistribution", 0, 0, dists},
		{0, "write-all", OPT_FLAG, &p->write_all, NULL,
		 "updates write all fields"},
		{0, "cache", OPT_FLAG, &p->cache, NULL,
		 "small records for --store=cache, no SCAN; counts misses"},
		{0, "seed", OPT_COUNT, &o->seed, "N", "of all random choices"},
		{0, "no-load", OPT_FLAG, &o->no_load, NULL,
		 "the records are there already"},
		{0, "wait", OPT_CHOICE, &o->wait, "MODE", "how threads wait", 0,
		 0, kv_wait_names},
		{0, "return", OPT_CHOICE, &o->ret, "HOW",
		 "how results come over Skein", 0, 0, kv_return_names},
		{0, "device", OPT_STR, &o->device, "NAME",
		 "soft, verbs, verbs:NAME"},
		{0, "pin", OPT_STR, &o->pin, "CPU", "run thread i on CPU + i"},
		{0, "timeout", OPT_NS, &o->timeout_ns, "TIME",
		 "of a connection and of an operation", 1000000, 3600000000000},
		{0, "json", OPT_FLAG, &o->json, NULL, "one JSON object"},
		{0, "rows", OPT_FLAG, &o->rows, NULL,
		 "lines with tabs, for scripts"},
		{0},
	};
	return parse_by(opts, argc, argv, o);
}

static int parse_workloads(const char *list, struct ycsb_report *r)
{
	bool chosen = list != workloads_default;

	for (const char *c = list; *c; c++) {
		const struct ycsb_mix *mix = ycsb_mix_find(*c);

		if (*c == ',')
			continue;
		if (!mix || r->mix_count == YCSB_MIXES_MAX) {
			out_error(CMD,
				  "--workload: \"%s\" is no list of a to f",
				  list);
			return CMD_USAGE;
		}
		if (r->params->cache && mix->part[YCSB_SCAN] > 0) {
			if (!chosen)
				continue;
			out_error(CMD,
				  "--workload: %c scans, and --store=cache has "
				  "no SCAN: leave it out, or --cache",
				  mix->name);
			return CMD_USAGE;
		}
		r->mixes[r->mix_count++] = mix;
	}
	return CMD_OK;
}

static int open_target(struct ycsb_opts *o, struct ycsb_report *r,
		       enum kv_transport transport, const char *addr)
{
	struct out_log *log = &o->logs[r->target_count];
	struct ycsb_target_attr ta = {
		.addr = addr,
		.transport = transport,
		.device = o->device,
		.wait = (enum skein_wait)o->wait,
		.ret = (enum skein_return)o->ret,
		.threads = o->threads,
		.window = o->window,
		.pin = o->cpu,
		.timeout_ns = o->timeout_ns,
		.params = &o->params,
		.log = out_log_line,
		.log_arg = log,
	};
	int rc;

	rc = ycsb_target_open(&ta, &r->targets[r->target_count]);
	if (rc) {
		out_error(CMD, "%s: %s", kv_transport_names[transport],
			  out_log_reason(log, rc));
		return CMD_FAILED;
	}
	out_log_opened(log);
	r->addrs[r->target_count++] = addr;
	return CMD_OK;
}

static int parse_target(struct ycsb_opts *o, struct ycsb_report *r, char *item)
{
	char *addr = strchr(item, '=');

	if (addr)
		*addr++ = 0;
	for (unsigned i = 0; addr && i < KV_TRANSPORTS; i++) {
		if (strcmp(kv_transport_names[i], item) != 0)
			continue;
		if (r->target_count == YCSB_TARGETS_MAX)
			break;
		return open_target(o, r, (enum kv_transport)i, addr);
	}
	out_error(CMD, "--against wants TRANSPORT=ADDR, at most %u of them",
		  YCSB_TARGETS_MAX - 1);
	return CMD_USAGE;
}

static int open_targets(struct ycsb_opts *o, struct ycsb_report *r)
{
	int rc = open_target(o, r, (enum kv_transport)o->transport, o->server);
	char *item, *rest = NULL;

	if (rc || !o->against)
		return rc;
	o->against_copy = strdup(o->against);
	if (!o->against_copy) {
		out_error(CMD, "out of memory");
		return CMD_FAILED;
	}
	for (item = strtok_r(o->against_copy, ",", &rest); item && !rc;
	     item = strtok_r(NULL, ",", &rest))
		rc = parse_target(o, r, item);
	return rc;
}

static int make_cells(struct ycsb_report *r)
{
	unsigned n = r->mix_count * r->target_count;

	r->loads = malloc(r->target_count * sizeof(*r->loads));
	r->cells = calloc(n + !n, sizeof(*r->cells));
	if (!r->loads || !r->cells)
		return -ENOMEM;
	for (unsigned i = 0; i < r->target_count; i++)
		ycsb_tally_init(&r->loads[i]);
	for (unsigned i = 0; i < n; i++)
		ycsb_tally_init(&r->cells[i].tally);
	return 0;
}

struct bar {
	struct progress progress;
	uint64_t before, total;
};

static void show(void *arg, uint64_t done)
{
	struct bar *b = arg;

	progress_set(&b->progress, b->before + done, b->total);
}

static int run_slice(struct ycsb_report *r, unsigned target,
		     const struct ycsb_slice *slice, struct ycsb_tally *tally)
{
	int rc = ycsb_run(r->targets[target], slice, tally);

	if (!rc)
		return 0;
	out_error(CMD, "%s: %s",
		  kv_transport_names[ycsb_target_transport(r->targets[target])],
		  ycsb_target_error(r->targets[target]));
	return rc;
}

static int load(struct ycsb_report *r)
{
	struct bar bar = {.total = r->params->records};
	struct ycsb_slice slice = {.arg = &bar};
	char label[64];
	int rc = 0;

	for (unsigned g = 0; g < r->target_count && !rc; g++) {
		snprintf(label, sizeof(label), "loading over %s",
			 kv_transport_names[ycsb_target_transport(
				 r->targets[g])]);
		progress_start(&bar.progress, label);
		slice.progress = bar.progress.shown == -1 ? show : NULL;
		rc = run_slice(r, g, &slice, &r->loads[g]);
		progress_end(&bar.progress);
	}
	r->loaded = true;
	return rc;
}

/* One turn of one target. Its rate is kept beside its neighbours'. */
static int turn(struct ycsb_report *r, unsigned mix, unsigned target,
		const struct ycsb_slice *slice, struct ycsb_tally *one)
{
	struct ycsb_cell *cell = ycsb_report_cell(r, mix, target);
	int rc;

	ycsb_tally_init(one);
	rc = run_slice(r, target, slice, one);
	cell->rates[r->rounds[mix]] = ycsb_tally_rate(one);
	ycsb_tally_add(&cell->tally, one);
	return rc;
}

static int run_mix(const struct ycsb_opts *o, struct ycsb_report *r,
		   unsigned mix, unsigned *slices, struct ycsb_tally *one)
{
	bool beside = r->target_count > 1;
	char label[] = "workload ?";
	struct bar bar = {.total = o->operations};
	struct ycsb_slice slice = {
		.mix = r->mixes[mix],
		.ops = o->operations,
		.time_ns = beside ? o->slice_ns : o->time_ns,
		.warm_ns = o->warm_ns,
		.rate = (double)o->rate,
		.even = o->arrival == 1,
		.arg = &bar,
	};
	uint64_t turns = 1;
	int rc = 0;

	label[sizeof(label) - 2] = r->mixes[mix]->name;
	if (!slice.ops && beside)
		turns = (o->time_ns + o->slice_ns - 1) / o->slice_ns;
	if (turns > YCSB_ROUNDS_MAX)
		turns = YCSB_ROUNDS_MAX;
	progress_start(&bar.progress, label);
	if (slice.ops && !beside && bar.progress.shown == -1)
		slice.progress = show;
	for (uint64_t i = 0; i < turns && !rc; i++, r->rounds[mix]++) {
		slice.number = ++*slices;
		for (unsigned g = 0; g < r->target_count && !rc; g++)
			rc = turn(r, mix, g, &slice, one);
		progress_set(&bar.progress, i + 1, turns);
	}
	progress_end(&bar.progress);
	return rc;
}

static int run_all(const struct ycsb_opts *o, struct ycsb_report *r)
{
	struct ycsb_tally *one = malloc(sizeof(*one));
	unsigned slices = 0;
	int rc = one ? make_cells(r) : -ENOMEM;

	if (rc)
		out_error(CMD, "out of memory");
	if (!rc && !o->no_load)
		rc = load(r);
	for (unsigned m = 0; m < r->mix_count && !rc; m++)
		rc = run_mix(o, r, m, &slices, one);
	free(one);
	if (rc)
		return CMD_FAILED;
	if (o->rows)
		ycsb_report_rows(r);
	else if (o->json)
		rc = ycsb_report_json(r);
	else
		ycsb_report_table(r);
	return rc || fflush(stdout) ? CMD_FAILED : CMD_OK;
}

static void clean_up(struct ycsb_opts *o, struct ycsb_report *r)
{
	for (unsigned i = 0; i < r->target_count; i++)
		ycsb_target_close(r->targets[i]);
	free(r->cells);
	free(r->loads);
	free(o->against_copy);
}

int cmd_ycsb(int argc, char **argv)
{
	struct ycsb_opts o = {
		.workload = workloads_default,
		.threads = 1,
		.window = 1,
		.records = 1000,
		.slice_ns = SKEIN_MS(50),
		.timeout_ns = SKEIN_S(10),
		.seed = 1,
		.params = {.scan_max = 100},
	};
	struct ycsb_report r = {.params = &o.params};
	int rc;

	switch (parse(argc, argv, &o)) {
	case OPT_HELP:
		return CMD_OK;
	case OPT_BAD:
		return CMD_USAGE;
	case OPT_RUN:
		break;
	}
	if (o.time_ns)
		o.operations = 0;
	else if (!o.operations)
		o.operations = OPERATIONS_DEFAULT;
	o.params.records = o.records;
	o.params.operations = o.operations ? o.operations : o.records;
	o.params.dist = (enum ycsb_dist)o.dist;
	o.params.seed = o.seed;
	r.threads = o.threads;
	r.window = o.window;
	r.rate = o.rate;
	r.arrival = arrivals[o.arrival];
	rc = parse_workloads(o.workload, &r);
	if (!rc)
		rc = open_targets(&o, &r);
	if (!rc)
		rc = run_all(&o, &r);
	clean_up(&o, &r);
	return rc;
}
