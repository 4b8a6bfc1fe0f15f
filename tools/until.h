/* SPDX-License-Identifier: MIT */
/*
 * until.h - a subcommand that serves until SIGTERM or SIGINT.
 */
#ifndef SKEIN_TOOLS_UNTIL_H
#define SKEIN_TOOLS_UNTIL_H

#include <skein/ctx.h>

/* serve() with a stop that the signals set: its exit status, or CMD_FAILED, told
 * in cmd's name. One at a time. */
int until_signal(const char *cmd,
		 int (*serve)(const void *opts, struct skein_stop *stop),
		 const void *opts);

#endif
