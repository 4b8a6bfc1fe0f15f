/* SPDX-License-Identifier: MIT */
/*
 * out.h - what a subcommand prints: aligned tables, JSON, progress, errors.
 *
 * With --json stdout gets exactly one object, whatever happens: a subcommand
 * prints its own, or it fails, and out_end() prints one with the error's words;
 * or SIGTERM or SIGINT ends it, and the object says so.
 *
 * Thread rule: one thread of the tool prints; out_log_line() is for any.
 */
#ifndef SKEIN_TOOLS_OUT_H
#define SKEIN_TOOLS_OUT_H

#include <skein/ctx.h>

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct table;

/* heads: n column heads, kept by pointer. A head that begins with '<' is
 * aligned left (the mark is not printed); others right. Never NULL: a tool
 * without memory for its table ends. */
struct table *table_new(const char *const *heads, unsigned n);
/* The next cell, row by row. */
void table_cell(struct table *t, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* A cell with a real number, with as many digits as people read: "-" when it
 * is not a number. */
void table_num(struct table *t, double v);
/* Heads and rows; the last row may be incomplete. */
void table_print(const struct table *t, FILE *f);
void table_free(struct table *t);

/* Prints the object on stdout with a newline and drops it. 0, or the errno for
 * which stdout did not take it all, -ENOMEM when json is NULL. */
int out_json(json_t *json);

/* A real number, or null when v is not finite. */
json_t *out_num(double v);

/* --json is among the options: from here on a failure is an object, too. */
void out_json_wanted(void);
/* The last thing before the process ends with this status: where --json was
 * given, the command failed and no object was printed, prints
 * {"error": ..., "status": ...} with the words of the first out_error().
 * Returns the status. */
int out_end(int status);

/* One line on stderr: "skein perf: ..." */
void out_error(const char *cmd, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/*
 * The library's log of a context that a subcommand opens: lines as the library
 * itself prints them. But while the context is opened its errors are kept, so
 * that the subcommand says the reason once, as its own. A line that was printed
 * within the last two seconds is not printed again: several connections to one
 * peer are lost together. All zero at first; outlives the context.
 */
struct out_log {
	atomic_bool opened;	    /* from here on errors are printed */
	char reason[512];	    /* the first error before */
	atomic_bool claimed, later; /* there is one afterwards: */
	char later_reason[256];
	pthread_mutex_t lock; /* of the lines printed of late */
	struct {
		uint64_t hash, ns;
	} late[8];
	unsigned n_late;
};
/* For skein_ctx_attr's log, with the struct as log_arg. */
void out_log_line(void *arg, enum skein_log_level level, const char *line);
/* Why nothing was opened: the kept error, or rc's words. */
const char *out_log_reason(const struct out_log *log, int rc);
/* The first error since it was opened, or "". */
const char *out_log_later(struct out_log *log);
/* It was opened. */
void out_log_opened(struct out_log *log);

/* A progress line "label  42 %" on stderr, rewritten in place; silent when
 * stderr is no terminal. Cheap enough for every call: it draws at most when the
 * percentage changes. */
struct progress {
	const char *label;
	int shown; /* percent; -1 before the first; -2 silent */
};
void progress_start(struct progress *p, const char *label);
void progress_set(struct progress *p, uint64_t done, uint64_t total);
void progress_end(struct progress *p);

#endif
