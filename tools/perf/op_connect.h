/* SPDX-License-Identifier: MIT */
/*
 * op_connect.h - `skein perf connect`, with options and processes of its own.
 */
#ifndef SKEIN_TOOLS_PERF_OP_CONNECT_H
#define SKEIN_TOOLS_PERF_OP_CONNECT_H

/* argv[0] is the operation's name. Returns an exit status. */
int op_connect(int argc, char **argv);

#endif
