/* SPDX-License-Identifier: MIT */
/*
 * fmt.c - see fmt.h.
 */
#include <stdio.h>

#include "base/fmt.h"

/* Three significant digits of v < 1000 or so. */
static const char *fmt_digits(char *buf, size_t len, double v, const char *unit)
{
	int decimals = v < 9.995 ? 2 : v < 99.95 ? 1 : 0;

	snprintf(buf, len, "%.*f %s", decimals, v, unit);
	return buf;
}

static const char *fmt_scaled(char *buf, size_t len, double v, double step,
			      const char *const *units)
{
	/* 999.6 would be written as 1000: the next unit is its place. */
	for (; v >= step - 0.5 && units[1]; units++)
		v /= step;
	return fmt_digits(buf, len, v, *units);
}

const char *fmt_bytes(char *buf, size_t len, uint64_t bytes)
{
	static const char *const units[] = {"KiB", "MiB", "GiB", "TiB",
					    "PiB", "EiB", NULL};

	if (bytes >= 1024)
		return fmt_scaled(buf, len, (double)bytes / 1024, 1024, units);
	snprintf(buf, len, "%u B", (unsigned)bytes);
	return buf;
}

const char *fmt_count(char *buf, size_t len, double v)
{
	static const char *const units[] = {"k", "M", "G", "T", NULL};

	if (v >= 999.5)
		return fmt_scaled(buf, len, v / 1000, 1000, units);
	snprintf(buf, len, "%.*f", v < 10 && v != (double)(int)v ? 2 : 0, v);
	return buf;
}

const char *fmt_ns(char *buf, size_t len, uint64_t ns)
{
	static const char *const units[] = {"us", "ms", "s", NULL};

	if (ns >= 1000)
		return fmt_scaled(buf, len, (double)ns / 1000, 1000, units);
	snprintf(buf, len, "%u ns", (unsigned)ns);
	return buf;
}
