/* SPDX-License-Identifier: MIT */
/* cmds.h - what each subcommand's file defines, for main.c's table. */
#ifndef SKEIN_TOOLS_CMDS_H
#define SKEIN_TOOLS_CMDS_H

int cmd_cp(int argc, char **argv);
int cmd_info(int argc, char **argv);
int cmd_kv(int argc, char **argv);
int cmd_meta(int argc, char **argv);
int cmd_node(int argc, char **argv);
int cmd_perf(int argc, char **argv);
int cmd_race(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_sim(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_ycsb(int argc, char **argv);

#endif
