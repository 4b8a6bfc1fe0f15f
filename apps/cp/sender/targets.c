/* SPDX-License-Identifier: MIT */
/*
 * targets.c - targets from text; see targets.h.
 */
#include "cp/sender/targets.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
	GROUPS_MAX = 4,	   /* bracket groups of one host */
	RANGES_MAX = 64,   /* ranges of one group */
	DIGITS_MAX = 9,	   /* of a number */
	FILE_MAX = 1 << 20 /* bytes of a file of targets */
};

struct range {
	uint32_t first, last;
	int width;
};

/* A piece of a host: literal text, or a choice of ranges. */
struct piece {
	const char *text;
	size_t len;
	size_t n; /* ranges; 0: literal */
	struct range range[RANGES_MAX];
};

/* Where the reader stands, and how to say so. */
struct scan {
	struct cp_targets *t;
	struct cp_err *err;
	const char *file; /* NULL: the command line */
	unsigned line;
	const char *begin; /* of the line */
	const char *at;
	const char *end;
	size_t pieces;
	struct piece piece[2 * GROUPS_MAX + 1];
	uint16_t port;
	const char *path;
	size_t path_len;
};

static int bad(const struct scan *s, const char *at, const char *why)
{
	char place[128];
	size_t left = (size_t)(s->end - at);

	if (s->file)
		snprintf(place, sizeof(place), "%.80s, line %u, ", s->file,
			 s->line);
	else
		snprintf(place, sizeof(place), "targets, ");
	if (!left)
		return cp_fail(s->err, -EINVAL, "%sat the end: %s", place, why);
	return cp_fail(s->err, -EINVAL, "%scharacter %zu, at \"%.*s\": %s",
		       place, (size_t)(at - s->begin) + 1,
		       (int)(left < 24 ? left : 24), at, why);
}

static bool more(const struct scan *s)
{
	return s->at < s->end;
}

static int number(struct scan *s, uint32_t *value, int *digits)
{
	const char *begin = s->at;
	uint32_t v = 0;

	while (more(s) && isdigit((unsigned char)*s->at)) {
		if (s->at - begin == DIGITS_MAX)
			return bad(s, begin, "the number is too large");
		v = v * 10 + (uint32_t)(*s->at++ - '0');
	}
	if (s->at == begin)
		return bad(s, begin, "a range wants a number here");
	*value = v;
	*digits = (int)(s->at - begin);
	return 0;
}

static int one_range(struct scan *s, struct range *r)
{
	const char *begin = s->at;
	int digits, rc = number(s, &r->first, &r->width);

	if (rc)
		return rc;
	r->last = r->first;
	if (!more(s) || *s->at != '-')
		return 0;
	s->at++;
	rc = number(s, &r->last, &digits);
	if (rc)
		return rc;
	if (r->last < r->first)
		return bad(s, begin, "the range ends before it begins");
	if (r->last - r->first >= CP_TARGETS_MAX)
		return bad(s, begin, "the range is too long");
	return 0;
}

/* After "[": ranges up to "]". */
static int group(struct scan *s, struct piece *p)
{
	const char *begin = s->at - 1;
	int rc;

	p->n = 0;
	do {
		if (p->n == RANGES_MAX)
			return bad(s, s->at, "too many ranges in one bracket");
		rc = one_range(s, &p->range[p->n++]);
		if (rc)
			return rc;
	} while (more(s) && *s->at == ',' && s->at++);
	if (!more(s))
		return bad(s, begin, "the bracket is not closed");
	if (*s->at != ']')
		return bad(s, s->at, "only 1-9 or 1,2 may stand in a bracket");
	s->at++;
	return 0;
}

static bool host_char(char c)
{
	return isalnum((unsigned char)c) || (c && strchr(".-_@%+", c));
}

/* "[fe80::1%eth0]" as it stands. Returns whether it was one; else nothing is
 * taken. */
static bool ipv6(struct scan *s)
{
	const char *close = memchr(s->at, ']', (size_t)(s->end - s->at));
	const char *c;

	if (*s->at != '[' || !close ||
	    !memchr(s->at, ':', (size_t)(close - s->at)))
		return false;
	for (c = s->at + 1; c < close; c++)
		if (*c != ':' && (!host_char(*c) || *c == '@'))
			return false;
	s->piece[0] = (struct piece){.text = s->at,
				     .len = (size_t)(close + 1 - s->at)};
	s->pieces = 1;
	s->at = close + 1;
	return true;
}

static int host(struct scan *s)
{
	const char *begin = s->at;
	unsigned groups = 0;
	int rc;

	s->pieces = 0;
	if (!more(s))
		return bad(s, begin, "a host is missing");
	if (*s->at == '@')
		return bad(s, begin, "no @FILE here");
	if (ipv6(s))
		return 0;
	while (more(s)) {
		struct piece *p = &s->piece[s->pieces];
		const char *from = s->at;

		while (more(s) && host_char(*s->at))
			s->at++;
		if (s->at > from) {
			p->text = from;
			p->len = (size_t)(s->at - from);
			p->n = 0;
			s->pieces++;
			continue;
		}
		if (*from != '[')
			break;
		if (groups++ == GROUPS_MAX)
			return bad(s, from, "too many brackets in one host");
		s->at++;
		rc = group(s, p);
		if (rc)
			return rc;
		s->pieces++;
	}
	return s->at > begin ? 0 : bad(s, begin, "a host is missing");
}

static int port(struct scan *s)
{
	const char *begin = s->at;
	uint32_t v = 0;
	int digits, rc = number(s, &v, &digits);

	if (rc)
		return rc;
	if (!v || v > UINT16_MAX)
		return bad(s, begin, "a port is from 1 to 65535");
	s->port = (uint16_t)v;
	return 0;
}

static int path(struct scan *s)
{
	s->path = s->at;
	if (more(s) && *s->at == ':')
		return bad(s, s->at, "an IPv6 address stands in brackets");
	while (more(s) && *s->at != ',') {
		if (iscntrl((unsigned char)*s->at) || *s->at == '[' ||
		    *s->at == ']')
			return bad(s, s->at, "no path has that here");
		s->at++;
	}
	s->path_len = (size_t)(s->at - s->path);
	return s->path_len ? 0 : bad(s, s->at, "a path is missing after \":\"");
}

/* Do digits stand here, up to the end of the item or a ":"? */
static bool port_here(const struct scan *s)
{
	const char *c = s->at;

	while (c < s->end && isdigit((unsigned char)*c))
		c++;
	return c > s->at && (c == s->end || *c == ',' || *c == ':');
}

static int port_and_path(struct scan *s)
{
	int rc;

	s->port = 0;
	s->path = NULL;
	if (!more(s) || *s->at != ':')
		return 0;
	s->at++;
	if (port_here(s)) {
		rc = port(s);
		if (rc || !more(s) || *s->at != ':')
			return rc;
		s->at++;
	}
	return path(s);
}

static int add(struct scan *s, const char *name)
{
	struct cp_targets *t = s->t;
	struct cp_target *v = t->v, *one;

	if (t->n == CP_TARGETS_MAX)
		return cp_fail(s->err, -E2BIG, "more than %d targets",
			       CP_TARGETS_MAX);
	if (t->n == t->room) {
		size_t room = t->room ? 2 * t->room : 16;

		v = realloc(t->v, room * sizeof(*v));
		if (!v)
			return cp_fail(s->err, -ENOMEM, "no memory");
		t->v = v;
		t->room = room;
	}
	one = &v[t->n];
	*one = (struct cp_target){
		.host = strdup(name), .port = s->port, .line = s->line};
	if (s->path)
		one->path = strndup(s->path, s->path_len);
	if (!one->host || (s->path && !one->path)) {
		free(one->host);
		free(one->path);
		return cp_fail(s->err, -ENOMEM, "no memory");
	}
	t->n++;
	return 0;
}

/* Every host that the pieces from i on make, behind the len bytes of name. */
static int expand(struct scan *s, size_t i, char name[CP_HOST_MAX + 1],
		  size_t len)
{
	struct piece *p = &s->piece[i];
	int rc = 0;

	if (i == s->pieces)
		return add(s, name);
	if (!p->n) {
		if (len + p->len > CP_HOST_MAX)
			return bad(s, p->text, "the host is too long");
		memcpy(name + len, p->text, p->len);
		name[len + p->len] = 0;
		return expand(s, i + 1, name, len + p->len);
	}
	for (size_t r = 0; r < p->n && !rc; r++) {
		const struct range *in = &p->range[r];

		for (uint32_t v = in->first; v <= in->last && !rc; v++) {
			int n = snprintf(name + len, CP_HOST_MAX + 1 - len,
					 "%0*u", in->width, v);

			if (n < 0 || (size_t)n > CP_HOST_MAX - len)
				return bad(s, s->at, "the host is too long");
			rc = expand(s, i + 1, name, len + (size_t)n);
		}
	}
	return rc;
}

static int from_file(struct scan *s)
{
	const char *comma = memchr(s->at, ',', (size_t)(s->end - s->at));
	size_t len = (size_t)((comma ? comma : s->end) - s->at);
	char *name;
	int rc;

	if (!len)
		return bad(s, s->at, "a file's name is missing after \"@\"");
	name = strndup(s->at, len);
	if (!name)
		return cp_fail(s->err, -ENOMEM, "no memory");
	s->at += len;
	rc = cp_targets_add_file(s->t, name, s->err);
	free(name);
	return rc;
}

/* One list, from s->at to s->end. */
static int list(struct scan *s, bool files)
{
	char name[CP_HOST_MAX + 1];
	int rc;

	for (;;) {
		if (files && more(s) && *s->at == '@') {
			s->at++;
			rc = from_file(s);
		} else {
			rc = host(s);
			if (!rc)
				rc = port_and_path(s);
			if (!rc && more(s) && *s->at != ',')
				rc = bad(s, s->at, "no host has that here");
			if (!rc)
				rc = expand(s, 0, name, 0);
		}
		if (rc || !more(s))
			return rc;
		s->at++; /* the comma */
	}
}

int cp_targets_add(struct cp_targets *t, const char *text, bool files,
		   struct cp_err *err)
{
	struct scan s = {
		.t = t,
		.err = err,
		.begin = text,
		.at = text,
		.end = text + strlen(text),
	};

	return list(&s, files);
}

/* The lists of one line, which blanks separate. */
static int line(struct scan *s, const char *end)
{
	const char *hash = memchr(s->begin, '#', (size_t)(end - s->begin));
	int rc = 0;

	if (hash)
		end = hash;
	while (!rc && s->at < end) {
		if (isspace((unsigned char)*s->at)) {
			s->at++;
			continue;
		}
		for (s->end = s->at; s->end < end; s->end++)
			if (isspace((unsigned char)*s->end))
				break;
		rc = list(s, false);
	}
	return rc;
}

static int lines(struct scan *s, const char *text, size_t len)
{
	const char *all_end = text + len, *end;
	int rc = 0;

	for (; !rc && text < all_end; text = end + 1) {
		end = memchr(text, '\n', (size_t)(all_end - text));
		if (!end)
			end = all_end;
		s->line++;
		s->begin = s->at = text;
		rc = line(s, end);
	}
	return rc;
}

int cp_targets_add_file(struct cp_targets *t, const char *name,
			struct cp_err *err)
{
	bool own = strcmp(name, "-") != 0;
	struct scan s = {.t = t, .err = err, .file = own ? name : "stdin"};
	FILE *f = own ? fopen(name, "re") : stdin;
	char *text;
	size_t len;
	int rc;

	if (!f)
		return cp_fail_sys(err, -errno, "targets, %s", name);
	text = malloc(FILE_MAX + 1);
	if (!text) {
		rc = cp_fail(err, -ENOMEM, "no memory");
		goto out;
	}
	len = fread(text, 1, FILE_MAX + 1, f);
	if (ferror(f))
		rc = cp_fail_sys(err, -errno, "targets, %s", name);
	else if (len > FILE_MAX)
		rc = cp_fail(err, -E2BIG, "targets, %s: larger than 1 MiB",
			     name);
	else
		rc = lines(&s, text, len);
	free(text);
out:
	if (own)
		fclose(f);
	return rc;
}

static int by_name(const void *a, const void *b)
{
	const struct cp_target *x = *(struct cp_target *const *)a;
	const struct cp_target *y = *(struct cp_target *const *)b;
	int diff = strcasecmp(x->host, y->host);

	return diff ? diff : (int)x->port - (int)y->port;
}

static bool same_path(const struct cp_target *a, const struct cp_target *b)
{
	return !strcmp(a->path ? a->path : "", b->path ? b->path : "");
}

static int twice(const struct cp_target *one, struct cp_err *err)
{
	if (one->port)
		return cp_fail(err, -EINVAL, "targets: %s:%u is named twice",
			       one->host, one->port);
	return cp_fail(err, -EINVAL, "targets: %s is named twice", one->host);
}

int cp_targets_check(const struct cp_targets *t, bool by_path,
		     struct cp_err *err)
{
	struct cp_target **all;
	int rc = 0;

	if (!t->n)
		return cp_fail(err, -EINVAL, "targets: there are none");
	all = malloc(t->n * sizeof(struct cp_target *));
	if (!all)
		return cp_fail(err, -ENOMEM, "no memory");
	for (size_t i = 0; i < t->n; i++)
		all[i] = &t->v[i];
	qsort(all, t->n, sizeof(struct cp_target *), by_name);
	for (size_t i = 1; i < t->n && !rc; i++)
		/* few have the same host and port: all those before it */
		for (size_t j = i; j-- > 0 && !rc;) {
			if (by_name(&all[i], &all[j]) != 0)
				break;
			if (!by_path || same_path(all[i], all[j]))
				rc = twice(all[i], err);
		}
	free(all);
	return rc;
}

void cp_targets_fini(struct cp_targets *t)
{
	for (size_t i = 0; i < t->n; i++) {
		free(t->v[i].host);
		free(t->v[i].path);
	}
	free(t->v);
	*t = (struct cp_targets){0};
}
