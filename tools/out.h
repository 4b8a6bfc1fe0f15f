/* SPDX-License-Identifier: MIT */
/*
 * out.h - what a subcommand prints: aligned tables, JSON, progress, errors.
 *
 * Thread rule: one thread of the tool prints.
 */
#ifndef SKEIN_TOOLS_OUT_H
#define SKEIN_TOOLS_OUT_H

#include <jansson.h>
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

/* Prints the object on stdout with a newline and drops it. 0, or -EIO when
 * stdout did not take it all, -ENOMEM when json is NULL. */
int out_json(json_t *json);

/* A real number, or null when v is not finite. */
json_t *out_num(double v);

/* One line on stderr: "skein perf: ..." */
void out_error(const char *cmd, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

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
