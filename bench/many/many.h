/* SPDX-License-Identifier: MIT */
/*
 * many.h - the small programs behind connect.py, storm.py, quiet.py, big.py,
 * wake.py, crowd.py, elastic.py and pass.py: a server, and clients that each do one
 * thing and print one line of "name=value" words.
 *
 *	many.c		the table of words; processes, clocks
 *	many_skein.c	over Skein
 *	many_big.c	over Skein, with large payloads
 *	many_sock.c	over TCP and Unix sockets
 *	many_vqp.c	over virtual queue pairs
 */
#ifndef SKEIN_BENCH_MANY_H
#define SKEIN_BENCH_MANY_H

#include <skein/ctx.h>

#include <stdbool.h>
#include <stdint.h>

#define MANY_LEN 64u /* bytes of a call */
#define EOF_ROUNDS 256u
#define PASS_MAX 65536u /* bytes that are passed on */

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
/* Has standard input ended? Looks each EOF_ROUNDS-th time. */
bool many_eof(void);

/* Each: argv[0] is the word; returns an exit status. */
int many_big_serve(int argc, char **argv);
int many_big(int argc, char **argv);
int many_serve(int argc, char **argv);
int many_first(int argc, char **argv);
int many_one(int argc, char **argv);
int many_idle(int argc, char **argv);
int many_calls(int argc, char **argv);
int many_load(int argc, char **argv);
int many_pass(int argc, char **argv);
int many_tcp_serve(int argc, char **argv);
int many_tcp_calls(int argc, char **argv);
int many_tcp_take(int argc, char **argv);
int many_tcp_pass(int argc, char **argv);
int many_floor(int argc, char **argv);
int many_floor_child(int argc, char **argv);
int many_unix_calls(int argc, char **argv);
int many_vqp_serve(int argc, char **argv);
int many_vqp_one(int argc, char **argv);
int many_vqp_calls(int argc, char **argv);
int many_vqp_pass(int argc, char **argv);

#endif
