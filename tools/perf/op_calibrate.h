/* SPDX-License-Identifier: MIT */
/*
 * op_calibrate.h - `skein perf calibrate`, with options and processes of its
 * own.
 */
#ifndef SKEIN_TOOLS_PERF_OP_CALIBRATE_H
#define SKEIN_TOOLS_PERF_OP_CALIBRATE_H

/* argv[0] is the operation's name. Returns an exit status. */
int op_calibrate(int argc, char **argv);

#endif
