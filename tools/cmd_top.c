/* SPDX-License-Identifier: MIT */
/*
 * cmd_top.c - `skein top`: live counters of the processes on this host.
 */
#include "cmd.h"
#include "cmds.h"
#include "opt.h"
#include "out.h"
#include "top.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TOP_CMD "skein top"
#define TOP_CLEAR "\033[H\033[2J"

struct top_opts {
	uint64_t interval_ns;
	uint32_t count, pid;
	bool json, prometheus;
};

static void pause_ns(uint64_t ns)
{
	struct timespec ts = {.tv_sec = (time_t)(ns / 1000000000u),
			      .tv_nsec = (long)(ns % 1000000000u)};

	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
}

static int read_now(const struct top_opts *o, bool says, struct top *t)
{
	int rc = top_read(TOP_CMD, (int)o->pid, says, t);

	if (rc) {
		out_error(TOP_CMD, "/proc cannot be read: %s", strerror(-rc));
		return CMD_FAILED;
	}
	if (o->pid && !t->n && !t->n_peers) {
		out_error(TOP_CMD,
			  "process %u has no Skein context, or it is another "
			  "user's; one shows within 0.1 s",
			  o->pid);
		return CMD_FAILED;
	}
	return CMD_OK;
}

static int prometheus(const struct top_opts *o)
{
	struct top t;
	int rc = read_now(o, true, &t);

	if (rc)
		return rc;
	top_prometheus(&t, stdout);
	top_free(&t);
	return fflush(stdout) ? CMD_FAILED : CMD_OK;
}

static int show(const struct top_opts *o, const struct top *before,
		const struct top *t)
{
	if (o->json)
		return top_json(before, t) ? CMD_FAILED : CMD_OK;
	if (isatty(STDOUT_FILENO))
		fputs(TOP_CLEAR, stdout);
	top_table(before, t);
	return fflush(stdout) ? CMD_FAILED : CMD_OK;
}

static int watch(const struct top_opts *o)
{
	bool ever = !o->count && !o->json && isatty(STDOUT_FILENO);
	uint32_t left = o->count ? o->count : 1;
	struct top before, t;
	int rc = read_now(o, true, &before);

	if (rc)
		return rc;
	while (rc == CMD_OK && (ever || left--)) {
		pause_ns(o->interval_ns);
		rc = read_now(o, false, &t);
		if (rc)
			break;
		rc = show(o, &before, &t);
		top_free(&before);
		before = t;
	}
	top_free(&before);
	return rc;
}

static bool fits(const struct top_opts *o)
{
	if (o->json && o->prometheus) {
		out_error(TOP_CMD, "--json or --prometheus: one of them");
		return false;
	}
	if (o->count && (o->json || o->prometheus)) {
		out_error(TOP_CMD, "--count goes with tables: --json and "
				   "--prometheus print once");
		return false;
	}
	return true;
}

int cmd_top(int argc, char **argv)
{
	struct top_opts o = {.interval_ns = 1000000000u};
	const struct opt opts[] = {
		{'i', "interval", OPT_NS, &o.interval_ns, "TIME",
		 "between two looks: 100ms to 60min", .min = COUNTERS_PERIOD_NS,
		 .max = 3600000000000ull},
		{'n', "count", OPT_U32, &o.count, "N",
		 "tables (default: one; on a terminal: until it is ended)",
		 .min = 1, .max = UINT32_MAX},
		{'p', "pid", OPT_U32, &o.pid, "PID", "this process alone",
		 .min = 1, .max = INT32_MAX},
		{0, "prometheus", OPT_FLAG, &o.prometheus,
		 .help = "the counters as Prometheus text, once"},
		{0, "json", OPT_FLAG, &o.json, .help = "one JSON object"},
		{0},
	};
	const struct opt_usage u = {
		TOP_CMD, "[options]",
		"Shows live counters of this user's processes (of root: of "
		"all) that have a Skein\ncontext or run under skein run. No "
		"process is asked.",
		opts, NULL};

	switch (opt_parse(&u, argc, argv, NULL)) {
	case OPT_HELP:
		return CMD_OK;
	case OPT_BAD:
		return CMD_USAGE;
	case OPT_RUN:
		break;
	}
	if (!fits(&o))
		return CMD_USAGE;
	return o.prometheus ? prometheus(&o) : watch(&o);
}
