/* SPDX-License-Identifier: MIT */
/*
 * cmd_sim.c - `skein sim`: the library in a simulated world, from a seed; and
 * many seeds by sim_fuzz.c.
 */
#include "cmd.h"
#include "cmds.h"
#include "opt.h"
#include "out.h"
#include "sim/faults.h"
#include "sim/scenario.h"
#include "sim_fuzz.h"
#include "sim_trace.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SIM_CMD "skein sim"
#define SEED_NONE UINT32_MAX
#define SEED_DEFAULT 1u

struct sim_opts {
	uint32_t seed, nodes, threads; /* seed: or SEED_NONE */
	uint64_t ops;
	const char *seeds; /* "A..B" */
	const char *nic_name, *set, *cost;
	bool nic_given;
	struct nic_model nic;
	struct sim_costs costs;
	bool json, list, no_faults, log, twice;
	const char *fault;
	struct fault_script script; /* of fault */
	const char *trace;
	const struct sim_tracer *tracer; /* of the first run */
};

static void log_line(void *arg, uint64_t now_ns, const char *line)
{
	fprintf(arg, "%12" PRIu64 " ns  %s\n", now_ns, line);
}

static int list(bool json)
{
	json_t *all = json_object(), *rows = json_array();
	const struct scenario *s;

	for (unsigned i = 0; (s = scenario_at(i)); i++) {
		if (json)
			json_array_append_new(
				rows, json_pack("{s:s, s:s}", "scenario",
						s->name, "what", s->what));
		else
			printf("  %-18s %s\n", s->name, s->what);
	}
	json_object_set_new(all, "scenarios", rows);
	if (json)
		return out_json(all) ? CMD_FAILED : CMD_OK;
	json_decref(all);
	return CMD_OK;
}

static json_t *table_json(const struct report_table *t)
{
	json_t *lines = json_array();

	for (unsigned i = 0; i < t->n_lines; i++) {
		json_t *line = json_object();

		if (*t->labels[i])
			json_object_set_new(line, "name",
					    json_string(t->labels[i]));
		for (unsigned c = 0; c < t->n_cols; c++)
			json_object_set_new(line, t->cols[c],
					    out_num(t->cells[i][c]));
		json_array_append_new(lines, line);
	}
	return lines;
}

static int report_json(const struct scenario *s, const struct sim_opts *o,
		       const struct report *rep)
{
	json_t *j, *rows = json_object();
	char hash[24];

	snprintf(hash, sizeof(hash), "%016" PRIx64, rep->hash);
	for (unsigned i = 0; i < rep->n_rows; i++)
		json_object_set_new(rows, rep->rows[i].name,
				    out_num(rep->rows[i].value));
	j = json_pack("{s:s, s:I, s:b, s:s, s:I, s:I, s:b, s:s, s:o}",
		      "scenario", s->name, "seed", (json_int_t)o->seed,
		      "faults", !o->no_faults && s->fuzz, "event_log_hash",
		      hash, "virtual_ns", (json_int_t)rep->virtual_ns, "events",
		      (json_int_t)rep->events, "ok", rep->ok, "why", rep->why,
		      "figures", rows);
	if (rep->table.n_lines)
		json_object_set_new(j, "table", table_json(&rep->table));
	return out_json(j);
}

static void table_text(const struct report_table *t)
{
	bool named = t->n_lines && *t->labels[0];

	if (!t->n_lines)
		return;
	printf(named ? "  %-44s" : "  ", "");
	for (unsigned c = 0; c < t->n_cols; c++)
		printf(" %11s", t->cols[c]);
	printf("\n");
	for (unsigned i = 0; i < t->n_lines; i++) {
		printf(named ? "  %-44s" : "  ", t->labels[i]);
		for (unsigned c = 0; c < t->n_cols; c++) {
			if (isfinite(t->cells[i][c]))
				printf(" %11.5g", t->cells[i][c]);
			else
				printf(" %11s", "-");
		}
		printf("\n");
	}
}

/* Which faults it had: those asked for, or by chance all kinds. */
static const char *faults_text(const struct scenario *s,
			       const struct sim_opts *o)
{
	if (o->no_faults || !s->fuzz)
		return "no faults";
	return o->fault ? o->fault : "all faults";
}

static void report_text(const struct scenario *s, const struct sim_opts *o,
			const struct report *rep)
{
	printf("%s, seed %" PRIu32 ", %s%s: %s%s\n", s->name, o->seed,
	       o->fault && s->fuzz && !o->no_faults ? "fault " : "",
	       faults_text(s, o), rep->ok ? "ok" : "FAILED: ", rep->why);
	for (unsigned i = 0; i < rep->n_rows; i++)
		printf("  %-24s %.6g\n", rep->rows[i].name, rep->rows[i].value);
	table_text(&rep->table);
	printf("  %-24s %.6g ms\n", "virtual time",
	       (double)rep->virtual_ns / 1e6);
	printf("  %-24s %" PRIu64 "\n", "events", rep->events);
	printf("  %-24s %016" PRIx64 "\n", "event log hash", rep->hash);
}

static int run_once(const struct scenario *s, const struct sim_opts *o,
		    const struct sim_tracer *tracer, struct report *rep)
{
	struct scenario_conf conf = {.seed = o->seed,
				     .faults = !o->no_faults,
				     .nodes = o->nodes,
				     .threads = o->threads,
				     .ops = o->ops,
				     .script = o->fault ? &o->script : NULL,
				     .tracer = tracer,
				     .nic = o->nic_given ? &o->nic : NULL,
				     .costs = o->costs};
	int rc;

	if (o->log) {
		conf.log = log_line;
		conf.log_arg = stderr;
	}
	memset(rep, 0, sizeof(*rep));
	rc = s->run(&conf, rep);
	if (rc)
		out_error(SIM_CMD, "%s could not be run: %s", s->name,
			  strerror(-rc));
	return rc;
}

static int run_one(const struct scenario *s, const struct sim_opts *o,
		   struct report *rep)
{
	struct report second;
	int rc = run_once(s, o, o->tracer, rep);

	if (rc || !o->twice)
		return rc;
	rc = run_once(s, o, NULL, &second);
	if (!rc && (second.hash != rep->hash || second.events != rep->events))
		report_fail(rep, "a second run went another way");
	return rc;
}

/* Says which size the scenario does not ask for. */
static bool sizes_fit(const struct scenario *s, const struct sim_opts *o)
{
	const char *not = NULL;

	if (o->nodes && !(s->sizes & SCENARIO_NODES))
		not = "--nodes";
	else if (o->threads && !(s->sizes & SCENARIO_THREADS))
		not = "--threads";
	else if (o->ops && !(s->sizes & SCENARIO_OPS))
		not = "--ops";
	if (not )
		out_error(SIM_CMD, "%s has no %s: its size is fixed", s->name,
			  not );
	return !not ;
}

/* Says which option would be ignored. */
static bool options_fit(const struct sim_opts *o, bool many)
{
	const char *why = NULL;

	if (o->no_faults && o->fault)
		why = "--no-faults and --fault exclude each other";
	else if (!many && o->seeds)
		why = "--seeds is for fuzz: a single run has --seed";
	else if (many && o->seed != SEED_NONE)
		why = "--seed is for a single run: fuzz has --seeds A..B";
	else if (many && o->trace)
		why = "--trace is for a single run, not for fuzz";
	else if (many && o->fault)
		why = "--fault is for a single run, not for fuzz";
	if (why)
		out_error(SIM_CMD, "%s", why);
	return !why;
}

static bool faults_fit(const struct scenario *s, const struct sim_opts *o)
{
	if (!o->fault || s->fuzz)
		return true;
	out_error(SIM_CMD, "%s has no faults: leave --fault out", s->name);
	return false;
}

/* --- many seeds -------------------------------------------------------- */

static bool fuzz_run(void *arg, const struct scenario *s, uint32_t seed)
{
	struct sim_opts o = *(const struct sim_opts *)arg;
	struct report rep;

	o.seed = seed;
	return !run_one(s, &o, &rep) && rep.ok;
}

static int fuzz(char **names, int n, const struct sim_opts *o)
{
	char options[256];
	struct sim_fuzz f = {
		.seeds = o->seeds,
		.names = (const char *const *)names,
		.n_names = (unsigned)n,
		.json = o->json,
		.options = options,
		.run = fuzz_run,
		.arg = (void *)o,
	};

	snprintf(options, sizeof(options), "%s%s%s%s%s%s",
		 o->no_faults ? " --no-faults" : "", o->twice ? " --twice" : "",
		 o->nic_name ? " --nic " : "", o->nic_name ? o->nic_name : "",
		 o->set ? " --set " : "", o->set ? o->set : "");
	for (int i = 0; i < n; i++) {
		const struct scenario *s = scenario_find(names[i]);

		if (s && !sizes_fit(s, o))
			return CMD_USAGE;
	}
	return sim_fuzz(&f);
}

/* --- the NIC ----------------------------------------------------------- */

#define NIC_FILE_MAX 65536u
#define COST_MAX 1000000u

static int nic_file(const char *path, struct nic_model *m)
{
	char *text, err[200];
	FILE *f = fopen(path, "r");
	size_t n;
	int rc;

	if (!f) {
		out_error(SIM_CMD,
			  "--nic: neither a model's name nor a file: %s (%s)",
			  path, strerror(errno));
		return -ENOENT;
	}
	text = calloc(1, NIC_FILE_MAX);
	n = text ? fread(text, 1, NIC_FILE_MAX, f) : NIC_FILE_MAX;
	fclose(f);
	rc = -EFBIG;
	snprintf(err, sizeof(err), "too long");
	if (n < NIC_FILE_MAX)
		rc = nic_model_parse(text, m, err, sizeof(err));
	if (rc)
		out_error(SIM_CMD, "%s: %s", path, err);
	free(text);
	return rc;
}

#define NAMES_MAX 900u

/* 'no "nosuch"; there are a, b, c' */
static void no_name(const char *name, const char *(*name_of)(size_t i),
		    char *err, size_t err_len)
{
	size_t n =
		(size_t)snprintf(err, err_len, "no \"%.32s\"; there are", name);

	for (size_t i = 0; name_of(i) && n < err_len; i++)
		n += (size_t)snprintf(err + n, err_len - n, "%s %s",
				      i ? "," : "", name_of(i));
}

/* "NAME=VALUE,NAME=VALUE": each to set(). */
static int each_pair(const char *option, const char *list,
		     int (*set)(struct sim_opts *o, const char *name,
				const char *value, char *err, size_t err_len),
		     struct sim_opts *o)
{
	char *copy = strdup(list), *save = NULL, err[NAMES_MAX];
	int rc = copy ? 0 : -ENOMEM;

	for (char *s = strtok_r(copy, ",", &save); s && !rc;
	     s = strtok_r(NULL, ",", &save)) {
		char *value = strchr(s, '=');

		snprintf(err, sizeof(err), "%s: not NAME=VALUE", s);
		rc = -EINVAL;
		if (value) {
			*value++ = '\0';
			rc = set(o, s, value, err, sizeof(err));
		}
		if (rc)
			out_error(SIM_CMD, "%s: %s", option, err);
	}
	free(copy);
	return rc;
}

static int nic_set(struct sim_opts *o, const char *name, const char *value,
		   char *err, size_t err_len)
{
	int rc = nic_model_set(&o->nic, name, value, err, err_len);

	if (rc == -ENOENT)
		no_name(name, nic_model_parameter, err, err_len);
	return rc;
}

static int cost_set(struct sim_opts *o, const char *name, const char *value,
		    char *err, size_t err_len)
{
	char *end;
	unsigned long ns = strtoul(value, &end, 10);

	if (*end || !ns || ns > COST_MAX) {
		snprintf(err, err_len, "%.32s=%.32s: from 1 to %u", name, value,
			 COST_MAX);
		return -EINVAL;
	}
	if (!sim_costs_set(&o->costs, name, (uint32_t)ns))
		return 0;
	no_name(name, sim_costs_name, err, err_len);
	return -EINVAL;
}

static int costs_choose(struct sim_opts *o, const char *scenario)
{
	const struct scenario *s = scenario_find(scenario);

	if (!o->cost)
		return 0;
	if (!s || !s->costs) {
		out_error(SIM_CMD, "--cost is for flock-* and rfrpc-*");
		return -EINVAL;
	}
	return each_pair("--cost", o->cost, cost_set, o);
}

static int nic_choose(struct sim_opts *o, const char *scenario)
{
	const struct scenario *s = scenario_find(scenario);
	const char *name = o->nic_name;

	if (!o->nic_name && !o->set)
		return 0;
	if (s && s->own_nics) {
		out_error(SIM_CMD, "%s has NICs of its own", s->name);
		return -EINVAL;
	}
	if (!name)
		name = s && s->nic ? s->nic : "connectx5";
	o->nic_given = true;
	if (nic_model_find(name, &o->nic) && nic_file(name, &o->nic))
		return -EINVAL;
	return o->set ? each_pair("--set", o->set, nic_set, o) : 0;
}

/* --- the command ------------------------------------------------------- */

static const struct scenario *find(const char *name)
{
	const struct scenario *s = scenario_find(name);

	if (!s)
		out_error(SIM_CMD,
			  "no scenario is called \"%s\": --list names them",
			  name);
	return s;
}

static int script_read(struct sim_opts *o)
{
	if (!o->fault || !fault_script_parse(o->fault, &o->script))
		return 0;
	out_error(SIM_CMD,
		  "--fault=%s: not KIND:NODE@TIME[+SPAN], as in "
		  "link-down:1@10ms+300ms",
		  o->fault);
	return -EINVAL;
}

static int run_traced(const struct scenario *s, const struct sim_opts *opts,
		      struct report *rep)
{
	struct sim_opts o = *opts;
	struct sim_trace_file t;
	int rc, closed;

	rc = sim_trace_open(&t, o.trace);
	if (rc) {
		out_error(SIM_CMD, "%s: %s", o.trace, strerror(-rc));
		return rc;
	}
	o.tracer = &t.tracer;
	rc = run_one(s, &o, rep);
	closed = sim_trace_close(&t);
	if (closed)
		out_error(SIM_CMD, "%s: %s", o.trace, strerror(-closed));
	return rc ? rc : closed;
}

static int single(const char *name, struct sim_opts *o)
{
	const struct scenario *s = find(name);
	struct report rep;

	if (!s || !sizes_fit(s, o) || !faults_fit(s, o))
		return CMD_USAGE;
	if (o->trace ? run_traced(s, o, &rep) : run_one(s, o, &rep))
		return CMD_FAILED;
	if (o->json) {
		if (report_json(s, o, &rep))
			return CMD_FAILED;
	} else {
		report_text(s, o, &rep);
	}
	return rep.ok ? CMD_OK : CMD_FAILED;
}

static int one_named(char **names, int n, struct sim_opts *o)
{
	if (!n) {
		out_error(SIM_CMD, "which scenario? --list names them");
		return CMD_USAGE;
	}
	if (n > 1 && find(names[0])) {
		out_error(SIM_CMD, "\"%s\" is too much: one scenario a run",
			  names[1]);
		return CMD_USAGE;
	}
	return n > 1 ? CMD_USAGE : single(names[0], o);
}

static int as_asked(char **words, int n, struct sim_opts *o)
{
	bool many = n && !strcmp(words[0], "fuzz");

	if (!options_fit(o, many))
		return CMD_USAGE;
	if (o->seed == SEED_NONE)
		o->seed = SEED_DEFAULT;
	return many ? fuzz(words + 1, n - 1, o) : one_named(words, n, o);
}

int cmd_sim(int argc, char **argv)
{
	struct sim_opts o = {.seed = SEED_NONE};
	const struct opt opts[] = {
		{'s', "seed", OPT_U32, &o.seed, "N",
		 "what the run is made of (default 1)", 0, SEED_NONE - 1, NULL},
		{0, "seeds", OPT_STR, &o.seeds, "A..B", "for fuzz", 0, 0, NULL},
		{0, "nodes", OPT_U32, &o.nodes, "N", "of the simulated world",
		 0, 0, NULL},
		{0, "threads", OPT_U32, &o.threads, "N", "of a node", 0, 0,
		 NULL},
		{0, "ops", OPT_COUNT, &o.ops, "N", "operations of a thread", 0,
		 0, NULL},
		{0, "twice", OPT_FLAG, &o.twice, NULL,
		 "run each seed again, and compare the hashes", 0, 0, NULL},
		{0, "nic", OPT_STR, &o.nic_name, "NAME|FILE",
		 "the NIC: connectx3, connectx3-outbound, connectx3-roce, "
		 "connectx4, connectx5, or a file",
		 0, 0, NULL},
		{0, "set", OPT_STR, &o.set, "NAME=VALUE,...",
		 "other values of the NIC's parameters", 0, 0, NULL},
		{0, "cost", OPT_STR, &o.cost, "NAME=NS,...",
		 "other costs of software, of flock-*, rfrpc-*", 0, 0, NULL},
		{0, "no-faults", OPT_FLAG, &o.no_faults, NULL, "no faults", 0,
		 0, NULL},
		{0, "fault", OPT_STR, &o.fault, "LIST",
		 "these faults: KIND:NODE@TIME[+SPAN], with commas", 0, 0,
		 NULL},
		{0, "log", OPT_FLAG, &o.log, NULL,
		 "what the simulated processes log, on stderr", 0, 0, NULL},
		{0, "trace", OPT_STR, &o.trace, "FILE",
		 "what everybody did when, as Chrome-trace JSON", 0, 0, NULL},
		{0, "list", OPT_FLAG, &o.list, NULL, "the scenarios", 0, 0,
		 NULL},
		{0, "json", OPT_FLAG, &o.json, NULL, "one JSON object", 0, 0,
		 NULL},
		{0},
	};
	const struct opt_usage usage = {
		.cmd = SIM_CMD,
		.args = "SCENARIO [options] | fuzz [SCENARIO...] --seeds A..B | "
			"--list",
		.about = "Runs the library in a simulated world, in virtual "
			 "time, under faults, all from a\nseed: the same seed "
			 "is the same run, event by event.",
		.opts = opts,
	};
	int first;

	switch (opt_parse(&usage, argc, argv, &first)) {
	case OPT_HELP:
		return CMD_OK;
	case OPT_BAD:
		return CMD_USAGE;
	case OPT_RUN:
		break;
	}
	if (o.list)
		return list(o.json);
	if (first < argc && (nic_choose(&o, argv[argc - 1]) ||
			     costs_choose(&o, argv[argc - 1])))
		return CMD_USAGE;
	if (script_read(&o))
		return CMD_USAGE;
	return as_asked(argv + first, argc - first, &o);
}
