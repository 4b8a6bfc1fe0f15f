/* SPDX-License-Identifier: MIT */
/*
 * cmd.h - the table of subcommands of `skein`.
 *
 * One file a subcommand (cmd_NAME.c), one row in main.c. A subcommand parses
 * its own options (opt.h), writes a table for people or, with --json, exactly
 * one JSON object on stdout (out.h), also when it fails, and then one line on
 * stderr that has the cause and what would help.
 */
#ifndef SKEIN_TOOLS_CMD_H
#define SKEIN_TOOLS_CMD_H

/* Exit statuses of every subcommand. */
enum {
	CMD_OK = 0,
	CMD_FAILED = 1, /* the work could not be done */
	CMD_USAGE = 2,	/* the command line makes no sense */
};

struct cmd {
	const char *name;
	const char *help; /* one line */
	/* argv[0] is the subcommand's name. Returns an exit status. */
	int (*run)(int argc, char **argv);
};

#endif
