/* SPDX-License-Identifier: MIT */
/*
 * calib.c - see calib.h.
 */
#define XXH_INLINE_ALL
#include "rpc/client/calib.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "rpc/wire/layout.h"

#define FIRST_LINE "skein-calibration 1"
#define SUM_LEN (sizeof("sum 0123456789abcdef\n") - 1)

/* --- what it says ------------------------------------------------------- */

/* Compares by cross products: no division, and exact at the measured points. */
bool rpc_calib_fetch(const struct rpc_calib *c, uint16_t time)
{
	uint64_t ns = (uint64_t)time * RPC_TIME_UNIT_NS;
	const struct rpc_calib_row *a = &c->times[0], *b = a;
	double part, replied, fetched;

	for (unsigned i = 1; i < c->n_times && b->ns < ns; i++) {
		a = b;
		b = &c->times[i];
	}
	if (ns >= b->ns || ns <= a->ns)
		return ns >= b->ns ? b->fetched > b->replied
				   : a->fetched > a->replied;
	part = (double)(ns - a->ns) / (b->ns - a->ns);
	replied = a->replied + part * ((double)b->replied - a->replied);
	fetched = a->fetched + part * ((double)b->fetched - a->fetched);
	return fetched > replied;
}

#define NEAR 1.1

static double ahead(const struct rpc_calib_row *r)
{
	return (double)r->fetched / r->replied;
}

uint32_t rpc_calib_crossover_ns(const struct rpc_calib *c)
{
	const struct rpc_calib_row *a;
	unsigned i = c->n_times;

	while (i && ahead(&c->times[i - 1]) < NEAR)
		i--;
	if (!i)
		return 0;
	a = &c->times[i - 1];
	if (i == c->n_times)
		return a->ns;
	return a->ns + (uint32_t)((a[1].ns - a->ns) * (ahead(a) - NEAR) /
				  (ahead(a) - ahead(&a[1])));
}

/* A rate within a tenth of the best counts as the best. */
void rpc_calib_range(const struct rpc_calib *c, uint32_t *least, uint32_t *most)
{
	const struct rpc_calib_read *r = c->reads;
	double rate = 0, bandwidth = 0;
	unsigned i;

	*least = *most = 0;
	if (!c->n_reads)
		return;
	for (i = 0; i < c->n_reads; i++) {
		if (r[i].rate > rate)
			rate = r[i].rate;
		if ((double)r[i].rate * r[i].bytes > bandwidth)
			bandwidth = (double)r[i].rate * r[i].bytes;
	}
	for (i = 0; i < c->n_reads && r[i].rate * NEAR >= rate; i++)
		*least = r[i].bytes;
	for (i = c->n_reads;
	     i-- > 0 && (double)r[i].rate * r[i].bytes * NEAR >= bandwidth;)
		*most = r[i].bytes;
	if (!*least)
		*least = r->bytes;
	if (*most < *least)
		*most = *least;
}

double rpc_calib_read_ns(const struct rpc_calib *c, uint32_t bytes)
{
	const struct rpc_calib_read *a = c->reads, *b = a;
	double ns;

	for (unsigned i = 1; i < c->n_reads && b->bytes < bytes; i++) {
		a = b;
		b = &c->reads[i];
	}
	ns = 1e9 / b->rate;
	if (bytes >= b->bytes)
		return ns * bytes / b->bytes;
	if (bytes <= a->bytes)
		return 1e9 / a->rate;
	return ns - (ns - 1e9 / a->rate) * (b->bytes - bytes) /
			    (b->bytes - a->bytes);
}

/* --- its text ----------------------------------------------------------- */

struct text {
	char *at;
	size_t len, used;
};

static __attribute__((format(printf, 2, 3))) void put(struct text *t,
						      const char *format, ...)
{
	size_t left = t->len - t->used;
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(t->at + t->used, left, format, args);
	va_end(args);
	/* The text is full: what follows would not fit either. */
	t->used = n < 0 || (size_t)n >= left ? t->len : t->used + (size_t)n;
}

size_t rpc_calib_encode(const struct rpc_calib *c, const char *key, char *text,
			size_t len)
{
	struct text t = {text, len, 0};

	put(&t, FIRST_LINE "\nkey %s\n", key);
	for (unsigned i = 0; i < c->n_times && t.used < len; i++)
		put(&t, "time %" PRIu32 " %" PRIu32 " %" PRIu32 "\n",
		    c->times[i].ns, c->times[i].replied, c->times[i].fetched);
	for (unsigned i = 0; i < c->n_reads && t.used < len; i++)
		put(&t, "read %" PRIu32 " %" PRIu32 "\n", c->reads[i].bytes,
		    c->reads[i].rate);
	if (t.used < len)
		put(&t, "sum %016" PRIx64 "\n", XXH3_64bits(text, t.used));
	return t.used < len ? t.used : 0;
}

/* Reads a number at *s and moves *s behind it. */
static bool number(const char **s, uint32_t *n)
{
	uint64_t value = 0;
	const char *p = *s;

	if (*p++ != ' ' || *p < '0' || *p > '9')
		return false;
	for (; *p >= '0' && *p <= '9'; p++) {
		value = value * 10 + (uint64_t)(*p - '0');
		if (value > UINT32_MAX)
			return false;
	}
	*n = (uint32_t)value;
	*s = p;
	return true;
}

static bool time_line(const char *s, struct rpc_calib *c)
{
	struct rpc_calib_row *t = &c->times[c->n_times];

	if (c->n_times == RPC_CALIB_POINTS || !number(&s, &t->ns) ||
	    !number(&s, &t->replied) || !number(&s, &t->fetched) || *s)
		return false;
	if (c->n_times++ && t->ns <= t[-1].ns)
		return false;
	return t->replied && t->fetched;
}

static bool read_line(const char *s, struct rpc_calib *c)
{
	struct rpc_calib_read *r = &c->reads[c->n_reads];

	if (c->n_reads == RPC_CALIB_POINTS || !number(&s, &r->bytes) ||
	    !number(&s, &r->rate) || *s)
		return false;
	if (c->n_reads++ && r->bytes <= r[-1].bytes)
		return false;
	return r->bytes && r->rate;
}

/* Cuts the next line off *rest, without its newline. False: none is left. */
static bool next_line(char **rest, char **line)
{
	char *end = strchr(*rest, '\n');

	if (!end)
		return false;
	*end = '\0';
	*line = *rest;
	*rest = end + 1;
	return true;
}

static int parse(char *rest, const char *key, struct rpc_calib *c,
		 const char **why)
{
	char *line;

	*why = "of another format";
	if (!next_line(&rest, &line) || strcmp(line, FIRST_LINE) != 0)
		return -EINVAL;
	*why = "measured on another device, firmware or version";
	if (!next_line(&rest, &line) || strncmp(line, "key ", 4) != 0 ||
	    strcmp(line + 4, key) != 0)
		return -EINVAL;
	*why = "damaged";
	while (next_line(&rest, &line))
		if (strncmp(line, "time", 4) == 0   ? !time_line(line + 4, c)
		    : strncmp(line, "read", 4) == 0 ? !read_line(line + 4, c)
						    : true)
			return -EINVAL;
	return *rest || !c->n_times ? -EINVAL : 0;
}

int rpc_calib_decode(const char *text, size_t len, const char *key,
		     struct rpc_calib *c, const char **why)
{
	struct rpc_calib got = {0};
	char copy[RPC_CALIB_TEXT_MAX], sum[32];
	size_t body;
	int rc;

	*why = "damaged";
	if (len >= sizeof(copy) || len < SUM_LEN)
		return -EINVAL;
	body = len - SUM_LEN;
	snprintf(sum, sizeof(sum), "sum %016" PRIx64 "\n",
		 XXH3_64bits(text, body));
	if (memcmp(text + body, sum, SUM_LEN) != 0 || memchr(text, '\0', len))
		return -EINVAL;
	memcpy(copy, text, body);
	copy[body] = '\0';
	rc = parse(copy, key, &got, why);
	if (!rc)
		*c = got;
	return rc;
}
