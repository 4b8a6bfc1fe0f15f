/* SPDX-License-Identifier: MIT */
/*
 * many.h - the small programs behind connect.py, storm.py, quiet.py, wake.py and
 * crowd.py: a server, and clients that each do one thing and print one line of
 * "name=value" words.
 *
 *	many.c		the table of words; processes, clocks
 *	many_skein.c	over Skein
 *	many_sock.c	over TCP and Unix sockets
 */
#ifndef SKEIN_BENCH_MANY_H
#define SKEIN_BENCH_MANY_H

#include <skein/ctx.h>

#include <stdint.h>

#define MANY_LEN 64u /* bytes of a call */

/* Latencies of a run. */
struct many_lat {
	uint32_t *ns;
	unsigned long n, room;
};

uint64_t many_now_ns(void);
_Noreturn void many_die(const char *what, int rc);
unsigned long many_number(const char *word);
enum skein_wait many_wait(const char *word);
void many_lat_add(struct many_lat *l, uint64_t ns);
/* Prints count, p50_ns and p99_ns as words, and frees. */
void many_lat_print(struct many_lat *l);
/* Voluntary context switches of this process so far. */
long many_switches(void);
/* Blocks until standard input ends. */
void many_await_eof(void);

/* Each: argv[0] is the word; returns an exit status. */
int many_serve(int argc, char **argv);
int many_first(int argc, char **argv);
int many_one(int argc, char **argv);
int many_idle(int argc, char **argv);
int many_calls(int argc, char **argv);
int many_tcp_serve(int argc, char **argv);
int many_tcp_calls(int argc, char **argv);
int many_floor(int argc, char **argv);
int many_floor_child(int argc, char **argv);
int many_unix_calls(int argc, char **argv);

#endif
