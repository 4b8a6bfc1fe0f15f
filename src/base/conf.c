/* SPDX-License-Identifier: MIT */
/*
 * conf.c - see conf.h.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/assert.h"
#include "base/conf.h"

#define NAME_MAX_LEN 64

struct unit {
	const char *name;
	uint64_t factor;
};

static const struct unit size_units[] = {
	{"", 1},	   {"K", 1ull << 10}, {"M", 1ull << 20},
	{"G", 1ull << 30}, {"T", 1ull << 40}, {NULL},
};

static const struct unit time_units[] = {
	{"ns", 1},
	{"us", 1000},
	{"ms", 1000 * 1000},
	{"s", 1000 * 1000 * 1000},
	{"m", 60ull * 1000 * 1000 * 1000},
	{"min", 60ull * 1000 * 1000 * 1000},
	{NULL},
};

static const struct unit *find_unit(const struct unit *units, const char *name,
				    size_t len)
{
	for (; units->name; units++)
		if (strlen(units->name) == len &&
		    !strncasecmp(units->name, name, len))
			return units;
	return NULL;
}

/* Digits from *p on, which moves behind them. */
static int parse_digits(const char **p, uint64_t *v)
{
	uint64_t sum = 0;

	if (!isdigit((unsigned char)**p))
		return -EINVAL;
	for (; isdigit((unsigned char)**p); ++*p)
		if (__builtin_mul_overflow(sum, 10, &sum) ||
		    __builtin_add_overflow(sum, (uint64_t)(**p - '0'), &sum))
			return -ERANGE;
	*v = sum;
	return 0;
}

/* The value of ".25" times factor; digits worth less than 1 are dropped. */
static uint64_t parse_fraction(const char **p, uint64_t factor)
{
	uint64_t sum = 0;

	for (++*p; isdigit((unsigned char)**p); ++*p) {
		/* As accurate as integers allow: factor shrinks, sum grows. */
		sum += factor * (uint64_t)(**p - '0') / 10;
		factor /= 10;
	}
	return sum;
}

/* Where the unit of a value begins: after its digits, a point and more
 * digits. */
static const char *skip_number(const char *p)
{
	p += strspn(p, "0123456789");
	if (*p == '.' && isdigit((unsigned char)p[1]))
		p += 1 + strspn(p + 1, "0123456789");
	return p;
}

static int parse_scaled(const char *value, const struct unit *u,
			uint64_t *result)
{
	uint64_t v, part = 0;
	int rc = parse_digits(&value, &v);

	if (rc)
		return rc;
	if (*value == '.')
		part = parse_fraction(&value, u->factor);
	if (__builtin_mul_overflow(v, u->factor, &v) ||
	    __builtin_add_overflow(v, part, &v))
		return -ERANGE;
	*result = v;
	return 0;
}

int conf_parse_size(const char *value, uint64_t *size)
{
	const char *name = skip_number(value);
	size_t len = strlen(name);
	const struct unit *u;

	if (len >= 2 && !strcasecmp(name + len - 2, "ib") && len == 3)
		len -= 2;
	else if (len >= 1 && tolower((unsigned char)name[len - 1]) == 'b')
		len -= 1;
	u = find_unit(size_units, name, len);
	if (!u ||
	    (u->factor == 1 && memchr(value, '.', (size_t)(name - value))))
		return -EINVAL; /* there is no half a byte */
	return parse_scaled(value, u, size);
}

int conf_parse_time(const char *value, uint64_t *ns)
{
	const char *name = skip_number(value);
	const struct unit *u = find_unit(time_units, name, strlen(name));

	if (!strcmp(value, "0")) {
		*ns = 0;
		return 0;
	}
	return u ? parse_scaled(value, u, ns) : -EINVAL;
}

static int parse_u64(const char *value, uint64_t max, uint64_t *v)
{
	uint64_t parsed;
	int rc = parse_digits(&value, &parsed);

	if (rc)
		return rc;
	if (*value)
		return -EINVAL;
	if (parsed > max)
		return -ERANGE;
	*v = parsed;
	return 0;
}

static bool in_range(const struct conf_row *row, uint64_t v)
{
	return v >= row->min && (!row->max || v <= row->max);
}

int conf_u32(const struct conf_row *row, const char *value, void *field)
{
	uint64_t v;
	int rc = parse_u64(value, UINT32_MAX, &v);

	skein_assert(row->size == sizeof(uint32_t));
	if (!rc && !in_range(row, v))
		rc = -ERANGE;
	if (!rc)
		*(uint32_t *)field = (uint32_t)v;
	return rc;
}

int conf_u64(const struct conf_row *row, const char *value, void *field)
{
	uint64_t v;
	int rc = parse_u64(value, UINT64_MAX, &v);

	skein_assert(row->size == sizeof(uint64_t));
	if (!rc && !in_range(row, v))
		rc = -ERANGE;
	if (!rc)
		*(uint64_t *)field = v;
	return rc;
}

int conf_size(const struct conf_row *row, const char *value, void *field)
{
	uint64_t v;
	int rc = conf_parse_size(value, &v);

	skein_assert(row->size == sizeof(size_t));
	if (rc)
		return rc;
	if (v > SIZE_MAX || !in_range(row, v))
		return -ERANGE;
	*(size_t *)field = (size_t)v;
	return 0;
}

int conf_time(const struct conf_row *row, const char *value, void *field)
{
	uint64_t v;
	int rc = conf_parse_time(value, &v);

	skein_assert(row->size == sizeof(uint64_t));
	if (!rc && !in_range(row, v))
		rc = -ERANGE;
	if (!rc)
		*(uint64_t *)field = v;
	return rc;
}

static int find_name(const char *const *names, const char *value)
{
	int i;

	for (i = 0; names[i]; i++)
		if (!strcasecmp(names[i], value))
			return i;
	return -EINVAL;
}

int conf_bool(const struct conf_row *row, const char *value, void *field)
{
	static const char *const names[] = {"no",   "yes", "off", "on", "false",
					    "true", "0",   "1",	  NULL};
	int i = find_name(names, value);

	skein_assert(row->size == sizeof(bool));
	if (i < 0)
		return i;
	*(bool *)field = i & 1;
	return 0;
}

int conf_enum(const struct conf_row *row, const char *value, void *field)
{
	int i = find_name(row->arg, value);

	skein_assert(row->size == sizeof(int));
	if (i < 0)
		return i;
	*(int *)field = i;
	return 0;
}

int conf_string(const struct conf_row *row, const char *value, void *field)
{
	skein_assert(row->size == sizeof(const char *));
	*(const char **)field = value;
	return 0;
}

static int row_set(const struct conf_row *row, void *obj, const char *value)
{
	return row->parse(row, value, (char *)obj + row->offset);
}

void conf_defaults(const struct conf_row *rows, void *obj)
{
	int rc;

	for (; rows->name; rows++) {
		rc = row_set(rows, obj, rows->def);
		skein_assert(rc == 0);
	}
}

/* As it may be written: 64K rather than 65536. */
static void amount(const struct conf_row *row, uint64_t v, char *buf,
		   size_t len)
{
	const struct unit *units = row->parse == conf_size   ? size_units
				   : row->parse == conf_time ? time_units
							     : NULL;
	const struct unit *best = units;

	if (!units) {
		snprintf(buf, len, "%llu", (unsigned long long)v);
		return;
	}
	for (; units->name; units++)
		if (v && v % units->factor == 0)
			best = units;
	snprintf(buf, len, "%llu%s", (unsigned long long)(v / best->factor),
		 best->name);
}

/* ", from 64 to 64K" */
static void describe_range(const struct conf_row *row, char *buf, size_t len)
{
	char least[24], most[24];

	*buf = '\0';
	if (!row->min && !row->max)
		return;
	amount(row, row->min, least, sizeof(least));
	amount(row, row->max, most, sizeof(most));
	if (row->max)
		snprintf(buf, len, ", from %s to %s", least, most);
	else
		snprintf(buf, len, ", at least %s", least);
}

/* "one of a, b, c", or what the parser takes by its kind. */
static void describe_values(const struct conf_row *row, char *buf, size_t len)
{
	const char *const *names = row->arg;
	size_t n = 0;

	if (row->parse == conf_size) {
		snprintf(buf, len, "a size such as 4096, 64K or 4M");
	} else if (row->parse == conf_time) {
		snprintf(buf, len, "a time such as 50us, 10ms or 1.5s");
	} else if (row->parse == conf_bool) {
		snprintf(buf, len, "yes or no");
	} else if (row->parse == conf_enum) {
		n = (size_t)snprintf(buf, len, "one of");
		for (; *names && n < len; names++)
			n += (size_t)snprintf(buf + n, len - n, " %s", *names);
	} else {
		snprintf(buf, len, "a number");
	}
}

static int row_fails(const struct conf_row *row, const char *value, int rc,
		     char *err, size_t err_len)
{
	char want[160], range[64];

	describe_values(row, want, sizeof(want));
	describe_range(row, range, sizeof(range));
	/* the rows of a NIC's model are in small letters: no variables */
	snprintf(err, err_len, "%s%s=%.64s: %s; expected %s%s (%s)",
		 islower((unsigned char)*row->name) ? "" : "SKEIN_", row->name,
		 value, rc == -ERANGE ? "out of range" : "not understood", want,
		 range, row->help);
	return rc;
}

int conf_set(const struct conf_row *rows, void *obj, const char *name,
	     const char *value, char *err, size_t err_len)
{
	int rc;

	for (; rows->name; rows++) {
		if (strcasecmp(rows->name, name))
			continue;
		rc = row_set(rows, obj, value);
		return rc ? row_fails(rows, value, rc, err, err_len) : 0;
	}
	snprintf(err, err_len, "%s: no such setting", name);
	return -ENOENT;
}

int conf_load(const struct conf_row *rows, void *obj, conf_lookup_fn lookup,
	      void *arg, char *err, size_t err_len)
{
	char name[NAME_MAX_LEN];
	const char *value;
	int rc;

	for (; rows->name; rows++) {
		snprintf(name, sizeof(name), "SKEIN_%s", rows->name);
		value = lookup(arg, name);
		if (!value)
			continue;
		rc = row_set(rows, obj, value);
		if (rc)
			return row_fails(rows, value, rc, err, err_len);
	}
	return 0;
}
