/* SPDX-License-Identifier: MIT */
/*
 * settings.c - see settings.h. The library's own parsers say what is wrong, one
 * setting a time: that one is taken away, and the next is looked for.
 */
#include "settings.h"

#include "conn/lanes_in.h"

#include <skein/ctx.h>

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_LEN 64

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

	*reason = '\0';
	if (!skein_ctx_open(&attr, &ctx))
		skein_ctx_close(ctx);
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

unsigned settings_look(const char *device, struct doctor_finding *out)
{
	char reason[sizeof(out->text)];
	struct refused r[DOCTOR_MAX];
	unsigned n = 0;

	while (n < DOCTOR_MAX && refuses(device, reason) &&
	       find_name(reason, r[n].name)) {
		r[n].value = strdup(getenv(r[n].name));
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
	return n;
}
