/* SPDX-License-Identifier: MIT */
/*
 * settings.c - see settings.h. The library's own parsers say what is wrong, one
 * setting a time: that one is taken away, and the next is looked for.
 */
#include "settings.h"

#include "run_settings.h"

#include "conn/handle/state.h"
#include "conn/pool.h"

#include <skein/ctx.h>

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_LEN 64

/* As in docs/settings.md, each with SKEIN_ before it. */
static const char *const known[] = {
	"DEVICE",
	"WAIT",
	"LOG",
	"META",
	"NODE",
	"HUGEPAGES",
	"LINK",
	"LINK_KEY",
	"LINK_PORT",
	"LINK_CLEAR",
	"SOFT_DC",
	"SOFT_HARSH",
	"PATH_MTU",
	"TRAFFIC_CLASS",
	"SERVICE_LEVEL",
	"RETRY_TIMEOUT",
	"RETRY_COUNT",
	"RNR_RETRY",
	"QPS",
	"POOLED",
	"COMBINE",
	"COMBINE_LEAST",
	"MAX_AQP",
	"QP_INTERVAL",
	"THREAD_INTERVAL",
	"RPC_RING",
	"RPC_RESP_RING",
	"RPC_MSG_MAX",
	"RPC_RESP_INLINE",
	"RPC_WINDOW",
	"RPC_BATCH",
	"RPC_RETURN",
	"RPC_LATENCY_BOUND",
	"RPC_LATENCY_TOLERANCE",
	"RPC_LATER",
	"RPC_LATER_LEN",
	"RPC_LARGE_MAX",
	"SOCKET_LIB",
	"RUN_AFTER",
	"RUN_WAIT",
	"RUN_POLLERS",
	"RUN_REPORT",
	"RUN_REQUIRE",
	"RUN_IDLE",
	"RPC_SLOW",
	"VERBS_LIB",
	"VERBS_DEVICES",
	"VERBS_LINK",
	"VERBS_BACK",
	"STREAM_MEM",
	"STREAM_QPS",
	"STREAM_RING",
	"VM_DIR",
	"RPC_CALIBRATION",
};

#define SETTINGS_LETTERS                                       \
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" \
	"0123456789_"

/* Of the project's own tests and scripts: their beginnings. */
static const char *const others[] = {"TEST_",  "BUILD", "CI_",
				     "BENCH_", "DEMO_", "VM_"};

struct refused {
	char name[NAME_LEN];
	char *value;
};

static void keep_error(void *arg, enum skein_log_level level, const char *line)
{
	char *reason = arg;

	if (level == SKEIN_LOG_ERROR && !*reason)
		snprintf(reason, sizeof(((struct doctor_finding *)0)->text),
			 "%s", line);
}

/* The first that a context or a connection refuses, in its words. */
static bool refuses(const char *device, char *reason)
{
	struct skein_ctx_attr attr = {
		.size = sizeof(attr),
		.device = device,
		.log = keep_error,
		.log_arg = reason,
	};
	struct lanes_conf own = {0}, lanes;
	struct skein_ctx *ctx;
	bool pooled;

	*reason = '\0';
	if (!skein_ctx_open(&attr, &ctx)) {
		(void)conn_pooled(ctx, SKEIN_POOLED_DEFAULT, &pooled);
		skein_ctx_close(ctx);
	}
	if (strstr(reason, "SKEIN_"))
		return true;
	return conn_lanes_conf(&own, &lanes, reason,
			       sizeof(((struct doctor_finding *)0)->text)) != 0;
}

/* The setting that the reason names, if the environment has it. */
static bool find_name(const char *reason, char *name)
{
	for (const char *at = reason; (at = strstr(at, "SKEIN_")); at++) {
		size_t n = 0;

		while (n < NAME_LEN - 1 &&
		       (isupper((unsigned char)at[n]) || at[n] == '_'))
			n++;
		snprintf(name, NAME_LEN, "%.*s", (int)n, at);
		if (getenv(name))
			return true;
	}
	return false;
}

/* "SKEIN_QPS=0x: not understood; ...": its own words have the value, or not. */
static void say(struct doctor_finding *f, const struct refused *r,
		const char *reason)
{
	const char *at = strstr(reason, r->name);

	memset(f, 0, sizeof(*f));
	f->error = true;
	if (at && at[strlen(r->name)] == '=')
		snprintf(f->text, sizeof(f->text), "%.300s", at);
	else
		snprintf(f->text, sizeof(f->text), "%.40s=%.32s: %.200s",
			 r->name, r->value, reason);
	snprintf(f->fix, sizeof(f->fix),
		 "unset %.40s, or another value: no program can open with it",
		 r->name);
}

/* What `skein run` and the programs under it refuse. */
static unsigned look_at_run(struct doctor_finding *out, unsigned max)
{
	const char *name, *value, *wrong;
	unsigned n = 0;

	for (unsigned i = 0; n < max && (name = run_setting_name(i)); i++) {
		value = getenv(name);
		wrong = value ? run_setting_wrong(name, value) : NULL;
		if (!wrong)
			continue;
		memset(&out[n], 0, sizeof(out[n]));
		out[n].error = true;
		snprintf(out[n].text, sizeof(out[n].text), "%s=%.64s: it %s",
			 name, value, wrong);
		snprintf(out[n].fix, sizeof(out[n].fix),
			 "unset %s, or another value: `skein run` refuses it",
			 name);
		n++;
	}
	return n;
}

unsigned settings_look(const char *device, struct doctor_finding *out)
{
	char reason[sizeof(out->text)];
	struct refused r[DOCTOR_MAX];
	const char *value;
	unsigned n = 0;

	while (n < DOCTOR_MAX && refuses(device, reason) &&
	       find_name(reason, r[n].name)) {
		value = getenv(r[n].name);
		r[n].value = strdup(value ? value : "");
		if (!r[n].value)
			break;
		unsetenv(r[n].name);
		say(&out[n], &r[n], reason);
		n++;
	}
	for (unsigned i = 0; i < n; i++) {
		setenv(r[i].name, r[i].value, 1);
		free(r[i].value);
	}
	return n + look_at_run(out + n, DOCTOR_MAX - n);
}

/* --- names that nothing reads --------------------------------------------- */

static char upper(char c)
{
	return (char)toupper((unsigned char)c);
}

/* Letters to add, drop or change, of any case. */
static unsigned distance(const char *a, const char *b)
{
	unsigned row[NAME_LEN + 1], left, above, i, j;
	unsigned len = (unsigned)strnlen(b, NAME_LEN);

	for (j = 0; j <= len; j++)
		row[j] = j;
	for (i = 0; a[i]; i++) {
		left = row[0];
		row[0] = i + 1;
		for (j = 0; j < len; j++) {
			above = row[j + 1];
			left += upper(a[i]) != upper(b[j]);
			if (left > above + 1)
				left = above + 1;
			if (left > row[j] + 1)
				left = row[j] + 1;
			row[j + 1] = left;
			left = above;
		}
	}
	return row[len];
}

static bool is_other(const char *name)
{
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
		if (!strncmp(name, others[i], strlen(others[i])))
			return true;
	return false;
}

/* NULL: no name is near it. */
static const char *nearest(const char *name)
{
	unsigned len = (unsigned)strlen(name), d;
	unsigned best = len < 6 ? 2 : len / 3 + 1; /* beyond it is no typo */
	const char *found = NULL;

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
		d = distance(name, known[i]);
		if (d < best) {
			best = d;
			found = known[i];
		}
	}
	return found;
}

static bool is_known(const char *name)
{
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (!strcmp(name, known[i]))
			return true;
	return false;
}

unsigned settings_unknown(struct settings_unknown *out, unsigned max)
{
	static const char prefix[] = "SKEIN_";
	unsigned n = 0;

	for (char **e = environ; *e && n < max; e++) {
		size_t len = strcspn(*e, "=");

		if (strncmp(*e, prefix, sizeof(prefix) - 1) != 0 ||
		    len >= sizeof(out->name))
			continue;
		snprintf(out[n].name, sizeof(out->name), "%.*s", (int)len, *e);
		if (strspn(out[n].name, SETTINGS_LETTERS) != len ||
		    is_known(out[n].name + sizeof(prefix) - 1) ||
		    is_other(out[n].name + sizeof(prefix) - 1))
			continue;
		out[n].meant = nearest(out[n].name + sizeof(prefix) - 1);
		n++;
	}
	return n;
}

void settings_say_unknown(const char *cmd)
{
	struct settings_unknown all[SETTINGS_UNKNOWN_MAX];
	unsigned n = settings_unknown(all, SETTINGS_UNKNOWN_MAX);

	for (unsigned i = 0; i < n; i++)
		fprintf(stderr, "%s: %s: no such setting%s%s%s\n", cmd,
			all[i].name,
			all[i].meant ? "; did you mean SKEIN_" : "",
			all[i].meant ? all[i].meant : "",
			all[i].meant ? "?" : "");
}
