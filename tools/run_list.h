/* SPDX-License-Identifier: MIT */
/*
 * run_list.h - `skein run --list`: the TCP connections of the processes that run
 * under `skein run`, and which of them are on streams.
 */
#ifndef SKEIN_TOOLS_RUN_LIST_H
#define SKEIN_TOOLS_RUN_LIST_H

#include <stdbool.h>

/* Prints a table, or a JSON object. Asks no process: reads the status pages
 * (bind/socket/status.h) of this user's processes, of root all. Returns the exit
 * status. */
int run_list(const char *cmd, bool json);

#endif
