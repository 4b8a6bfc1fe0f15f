/* SPDX-License-Identifier: MIT */
/*
 * opts.h - the options of ud_rpc.
 */
#ifndef SKEIN_BENCH_UD_OPTS_H
#define SKEIN_BENCH_UD_OPTS_H

#include <stdbool.h>
#include <stdint.h>

enum {
	UD_THREADS_MAX = 256,
	UD_WINDOW_MAX = 4096,
};

struct ud_opts {
	const char *host; /* NULL: this end is the server */
	const char *device;
	uint64_t port;
	uint64_t threads;
	uint64_t size;
	uint64_t window;
	uint64_t credits; /* 0: as many as the window */
	uint64_t calls;	  /* of each thread; 0: by duration */
	uint64_t duration_ns;
	uint64_t timeout_ns;
	uint64_t lose;	/* one datagram in so many; 0: none */
	uint64_t recvs; /* the server's, of each session; 0: its credits */
	bool check;
	bool json;
};

/* -1: go on; else the exit status of a program that has said why. */
int ud_opts_parse(int argc, char **argv, struct ud_opts *o);

#endif
