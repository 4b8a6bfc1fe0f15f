/* SPDX-License-Identifier: MIT */
/*
 * sim_trace.c - Chrome-trace JSON; see sim_trace.h. Names are the simulation's
 * own: no quote, backslash or control character is among them.
 */
#include "sim_trace.h"

#include <errno.h>
#include <inttypes.h>

/* Right after a write: stdio keeps that one failed, and not why. */
static void look(struct sim_trace_file *t)
{
	if (!t->err && ferror(t->f))
		t->err = errno ? -errno : -EIO;
}

static void begin(struct sim_trace_file *t)
{
	fputs(t->begun ? ",\n" : "", t->f);
	t->begun = true;
}

/* Microseconds, as the format wants them. */
static void put_time(FILE *f, const char *field, uint64_t ns)
{
	fprintf(f, ",\"%s\":%" PRIu64 ".%03u", field, ns / 1000,
		(unsigned)(ns % 1000));
}

static void put_span(void *arg, const struct sim_span *s)
{
	struct sim_trace_file *t = arg;

	begin(t);
	fprintf(t->f, "{\"name\":\"%s\",\"pid\":%u,\"tid\":%u", s->name,
		s->node, s->track);
	put_time(t->f, "ts", s->begin);
	if (!s->id) {
		put_time(t->f, "dur", s->end - s->begin);
		fputs(",\"ph\":\"X\"}", t->f);
		look(t);
		return;
	}
	fprintf(t->f,
		",\"cat\":\"t%u\",\"id\":\"%u-%" PRIx64 "\",\"ph\":\"b\"}",
		s->track, s->node, s->id);
	begin(t);
	fprintf(t->f,
		"{\"name\":\"%s\",\"pid\":%u,\"tid\":%u,\"cat\":\"t%u\","
		"\"id\":\"%u-%" PRIx64 "\",\"ph\":\"e\"",
		s->name, s->node, s->track, s->track, s->node, s->id);
	put_time(t->f, "ts", s->end);
	fputs("}", t->f);
	look(t);
}

static void put_name(void *arg, uint32_t node, uint32_t track, const char *name)
{
	struct sim_trace_file *t = arg;

	begin(t);
	fprintf(t->f,
		"{\"name\":\"%s_name\",\"ph\":\"M\",\"pid\":%u,\"tid\":%u,"
		"\"args\":{\"name\":\"%s\"}}",
		track ? "thread" : "process", node, track, name);
	look(t);
}

int sim_trace_open(struct sim_trace_file *t, const char *path)
{
	t->f = fopen(path, "w");
	if (!t->f)
		return -errno;
	t->begun = false;
	t->err = 0;
	t->tracer = (struct sim_tracer){put_span, put_name, t};
	fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n", t->f);
	return 0;
}

int sim_trace_close(struct sim_trace_file *t)
{
	fputs("\n]}\n", t->f);
	look(t);
	if (fclose(t->f) && !t->err)
		t->err = errno ? -errno : -EIO;
	t->f = NULL;
	return t->err;
}
