/* SPDX-License-Identifier: MIT */
/*
 * opt.c - parses options by a table and prints their help from the same rows.
 */
#include "opt.h"

#include "base/conf.h"
#include "base/fmt.h"
#include "out.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	OPTS_MAX = 64,
	LONG_BASE = 256, /* getopt values of options: above every letter */
	HELP_COL = 28,
};

int opt_ns(const char *s, uint64_t *ns)
{
	char seconds[32];
	size_t len = strlen(s);

	/* on a command line a bare number is seconds */
	if (len && len < sizeof(seconds) - 1 &&
	    isdigit((unsigned char)s[len - 1])) {
		snprintf(seconds, sizeof(seconds), "%ss", s);
		s = seconds;
	}
	return conf_parse_time(s, ns);
}

static int parse_u64(const char *s, uint64_t *v)
{
	char *end;

	if (!isdigit((unsigned char)*s))
		return -EINVAL;
	errno = 0;
	*v = strtoull(s, &end, 0);
	if (*end)
		return -EINVAL;
	return errno ? -ERANGE : 0;
}

static int parse_choice(const struct opt *o, const char *s)
{
	for (uint32_t i = 0; o->choices[i]; i++) {
		if (strcmp(o->choices[i], s) != 0)
			continue;
		*(uint32_t *)o->to = i;
		return 0;
	}
	return -EINVAL;
}

static int parse_amount(const struct opt *o, const char *s)
{
	uint64_t v = 0;
	int rc;

	if (o->kind == OPT_SIZE || o->kind == OPT_COUNT)
		rc = conf_parse_size(s, &v);
	else if (o->kind == OPT_NS)
		rc = opt_ns(s, &v);
	else
		rc = parse_u64(s, &v);
	if (rc)
		return rc;
	if (o->kind == OPT_U32 && v > UINT32_MAX)
		return -ERANGE;
	if ((o->min || o->max) && (v < o->min || v > o->max))
		return -ERANGE;
	if (o->kind == OPT_U32)
		*(uint32_t *)o->to = (uint32_t)v;
	else
		*(uint64_t *)o->to = v;
	return 0;
}

static int parse_f64(const struct opt *o, const char *s)
{
	char *end;
	double v = strtod(s, &end);

	if (end == s || *end || !isfinite(v))
		return -EINVAL;
	*(double *)o->to = v;
	return 0;
}

static int parse_one(const struct opt *o, const char *s)
{
	struct opt_strs *strs;

	switch (o->kind) {
	case OPT_FLAG:
		*(bool *)o->to = true;
		return 0;
	case OPT_STR:
		*(const char **)o->to = s;
		return 0;
	case OPT_STRS:
		strs = o->to;
		if (strs->n == OPT_STRS_MAX)
			return -EINVAL;
		strs->at[strs->n++] = s;
		return 0;
	case OPT_CHOICE:
		return parse_choice(o, s);
	case OPT_F64:
		return parse_f64(o, s);
	case OPT_U32:
	case OPT_SIZE:
	case OPT_COUNT:
	case OPT_NS:
		return parse_amount(o, s);
	}
	return -EINVAL;
}

static void choices_text(const struct opt *o, char *buf, size_t len)
{
	size_t n = 0;

	buf[0] = '\0';
	for (uint32_t i = 0; o->choices[i] && n < len; i++)
		n += (size_t)snprintf(buf + n, len - n, "%s%s", i ? ", " : "",
				      o->choices[i]);
}

static void complain(const struct opt_usage *u, const struct opt *o,
		     const char *s, int rc)
{
	static const char *const wants[OPT_CHOICE + 1] = {
		[OPT_U32] = "a whole number",
		[OPT_SIZE] = "bytes, with K, M or G if wanted",
		[OPT_COUNT] = "a whole number, with K, M or G if wanted",
		[OPT_NS] = "a time as 10s, 50ms, 3us",
		[OPT_F64] = "a number",
	};
	char want[256], from[FMT_LEN], to[FMT_LEN];
	int n;

	if (o->kind == OPT_CHOICE) {
		n = snprintf(want, sizeof(want), "one of ");
		choices_text(o, want + n, sizeof(want) - (size_t)n);
	} else if (rc == -ERANGE && (o->min || o->max) && o->kind == OPT_NS) {
		snprintf(want, sizeof(want), "from %s to %s",
			 fmt_ns(from, sizeof(from), o->min),
			 fmt_ns(to, sizeof(to), o->max));
	} else if (rc == -ERANGE && (o->min || o->max)) {
		snprintf(want, sizeof(want), "from %llu to %llu",
			 (unsigned long long)o->min,
			 (unsigned long long)o->max);
	} else if (o->kind == OPT_U32 && o->max) {
		snprintf(want, sizeof(want), "a whole number from %llu to %llu",
			 (unsigned long long)o->min,
			 (unsigned long long)o->max);
	} else {
		snprintf(want, sizeof(want), "%s",
			 rc == -ERANGE ? "too large" : wants[o->kind]);
	}
	out_error(u->cmd, "--%s cannot be \"%s\": %s", o->name, s, want);
}

/* As it may be given: the largest unit that leaves a whole number. */
static void print_whole(uint64_t v, const char *const *units,
			const uint64_t *steps)
{
	while (*steps && v % *steps == 0) {
		v /= *steps++;
		units++;
	}
	printf(" (default %llu%s)", (unsigned long long)v, *units);
}

static void print_default(const struct opt *o)
{
	static const char *const sizes[] = {"", "K", "M", "G"};
	static const uint64_t size_steps[] = {1024, 1024, 1024, 0};
	static const char *const times[] = {"ns", "us", "ms", "s"};
	static const uint64_t time_steps[] = {1000, 1000, 1000, 0};
	char choices[256];

	switch (o->kind) {
	case OPT_U32:
		/* 0 and -1 stand for "as it comes": the help says how */
		if (*(uint32_t *)o->to + 1 > 1)
			printf(" (default %u)", *(uint32_t *)o->to);
		break;
	case OPT_SIZE:
		if (*(uint64_t *)o->to)
			print_whole(*(uint64_t *)o->to, sizes, size_steps);
		break;
	case OPT_COUNT:
		if (*(uint64_t *)o->to)
			printf(" (default %llu)",
			       (unsigned long long)*(uint64_t *)o->to);
		break;
	case OPT_NS:
		if (*(uint64_t *)o->to)
			print_whole(*(uint64_t *)o->to, times, time_steps);
		else
			printf(" (default 0)");
		break;
	case OPT_F64:
		printf(" (default %g)", *(double *)o->to);
		break;
	case OPT_STR:
		if (*(const char **)o->to)
			printf(" (default %s)", *(const char **)o->to);
		break;
	case OPT_CHOICE:
		choices_text(o, choices, sizeof(choices));
		printf(" [%s] (default %s)", choices,
		       o->choices[*(uint32_t *)o->to]);
		break;
	case OPT_STRS:
	case OPT_FLAG:
		break;
	}
}

static void print_row(int ch, const char *name, const char *arg,
		      const char *help)
{
	char left[64];

	snprintf(left, sizeof(left), "  %c%c%s--%s%s%s", ch ? '-' : ' ',
		 ch ? ch : ' ', ch ? ", " : "  ", name, arg ? "=" : "",
		 arg ? arg : "");
	printf("%-*s %s", HELP_COL, left, help);
}

static void print_help(const struct opt_usage *u)
{
	printf("usage: %s %s\n\n%s\n\noptions:\n", u->cmd, u->args, u->about);
	for (const struct opt *o = u->opts; o->name; o++) {
		print_row(o->ch, o->name, o->kind == OPT_FLAG ? NULL : o->arg,
			  o->help);
		print_default(o);
		putchar('\n');
	}
	print_row('h', "help", NULL, "this text");
	putchar('\n');
	if (u->more)
		printf("\n%s\n", u->more);
}

/* getopt's own tables from ours; returns how many rows. */
static int make_tables(const struct opt *opts, struct option *longs,
		       char *shorts)
{
	int i, n = 0;

	*shorts++ = ':';
	for (i = 0; i < OPTS_MAX - 2 && opts[i].name; i++) {
		bool arg = opts[i].kind != OPT_FLAG;

		longs[n++] =
			(struct option){opts[i].name, arg, NULL, LONG_BASE + i};
		if (!opts[i].ch)
			continue;
		*shorts++ = (char)opts[i].ch;
		if (arg)
			*shorts++ = ':';
	}
	longs[n++] = (struct option){"help", 0, NULL, 'h'};
	longs[n] = (struct option){0};
	*shorts++ = 'h';
	*shorts = 0;
	return i;
}

static const struct opt *row_of(const struct opt *opts, int n, int c)
{
	if (c >= LONG_BASE && c < LONG_BASE + n)
		return &opts[c - LONG_BASE];
	for (int i = 0; i < n; i++)
		if (opts[i].ch == c)
			return &opts[i];
	return NULL;
}

enum opt_verdict opt_parse(const struct opt_usage *u, int argc, char **argv,
			   int *first)
{
	struct option longs[OPTS_MAX];
	char shorts[3 * OPTS_MAX];
	int n = make_tables(u->opts, longs, shorts);
	int c, rc;

	optind = 0; /* glibc: start afresh */
	while ((c = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
		const struct opt *o;

		if (c == '?' || c == ':') {
			out_error(u->cmd, "%s %s: `%s --help` lists them",
				  argv[optind - 1],
				  c == ':' ? "wants an argument"
					   : "is no option here",
				  u->cmd);
			return OPT_BAD;
		}
		if (c == 'h') {
			print_help(u);
			return OPT_HELP;
		}
		o = row_of(u->opts, n, c);
		if (!strcmp(o->name, "json"))
			out_json_wanted();
		rc = parse_one(o, optarg);
		if (rc) {
			complain(u, o, optarg, rc);
			return OPT_BAD;
		}
	}
	if (first) {
		*first = optind;
	} else if (optind < argc) {
		out_error(u->cmd, "\"%s\" is too much: see --help",
			  argv[optind]);
		return OPT_BAD;
	}
	return OPT_RUN;
}
