/* SPDX-License-Identifier: MIT */
/*
 * opt.h - options of a subcommand: name, default, help and parser in one row.
 *
 * A row's `to` points at the variable; its value before parsing is the
 * default, shown in --help. Options and operands mix freely; "--" ends the
 * options.
 */
#ifndef SKEIN_TOOLS_OPT_H
#define SKEIN_TOOLS_OPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum opt_kind {
	OPT_FLAG,   /* bool: set to true */
	OPT_U32,    /* uint32_t, decimal or 0x */
	OPT_SIZE,   /* uint64_t, as conf_parse_size() of base/conf.h */
	OPT_COUNT,  /* the same, of what are no bytes */
	OPT_NS,	    /* uint64_t nanoseconds, as opt_ns() */
	OPT_F64,    /* double */
	OPT_STR,    /* const char * */
	OPT_STRS,   /* struct opt_strs: may be given several times */
	OPT_CHOICE, /* uint32_t: index into choices */
};

#define OPT_STRS_MAX 16u

struct opt_strs {
	const char *at[OPT_STRS_MAX];
	unsigned n;
};

struct opt {
	int ch;		  /* the letter, or 0 */
	const char *name; /* the long name; NULL ends the table */
	enum opt_kind kind;
	void *to;
	const char *arg;  /* what --help calls the argument */
	const char *help; /* one line */
	/* U32, SIZE, COUNT, NS: bounds; both 0: none */
	uint64_t min;
	uint64_t max;
	const char *const *choices; /* CHOICE: ends with NULL */
};

struct opt_usage {
	const char *cmd;   /* "skein perf" */
	const char *args;  /* "OP [options] [HOST]" */
	const char *about; /* one or more lines, without the last newline */
	const struct opt *opts;
	const char *more; /* printed after the options; may be NULL */
};

enum opt_verdict {
	OPT_RUN,  /* go on: operands are argv[*first..argc) */
	OPT_HELP, /* help was printed on stdout: exit with CMD_OK */
	OPT_BAD,  /* one line was printed on stderr: exit with CMD_USAGE */
};

/* Parses argv (argv[0] is skipped); --help and -h are always there. argv is
 * permuted so that operands come last. first NULL: there are to be none. */
enum opt_verdict opt_parse(const struct opt_usage *u, int argc, char **argv,
			   int *first);

/* As conf_parse_time() of base/conf.h, and a number without a unit is seconds:
 * 0, -EINVAL, -ERANGE. */
int opt_ns(const char *s, uint64_t *ns);

#endif
