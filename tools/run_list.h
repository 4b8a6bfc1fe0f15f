/* SPDX-License-Identifier: MIT */
/*
 * run_list.h - `skein run --list`: the TCP connections of the processes that run
 * under `skein run`, and which of them are on streams.
 */
#ifndef SKEIN_TOOLS_RUN_LIST_H
#define SKEIN_TOOLS_RUN_LIST_H

#include <stdbool.h>
#include <stdint.h>

/* Prints a table, or a JSON object. Asks no process: reads the status pages
 * (bind/socket/status.h) of this user's processes, of root all. Returns the exit
 * status. */
int run_list(const char *cmd, bool json);

/* What the connections of a process under `skein run` have in common. */
struct run_sum {
	uint32_t streams, tcp; /* connections now: on a stream; on TCP */
	uint64_t rx, tx;       /* bytes on streams, of all that there were */
};
/* From a status page, as pages_each() gives it. False: it is none, or another
 * version's. */
bool run_sum_read(int fd, struct run_sum *sum);

#endif
