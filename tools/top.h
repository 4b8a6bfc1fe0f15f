/* SPDX-License-Identifier: MIT */
/*
 * top.h - what `skein top` knows: the processes of this host that have a context
 * or run under `skein run`, and their counters, at one moment. Read from the
 * pages of conn/counters.h, dev/soft/link/counts.h and bind/socket/status.h.
 *
 *	top.c		finds and reads the pages
 *	top_print.c	a table, a JSON object, Prometheus text
 *	cmd_top.c	the command
 */
#ifndef SKEIN_TOOLS_TOP_H
#define SKEIN_TOOLS_TOP_H

#include "conn/counters.h"
#include "dev/soft/link/counts.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* A process's link between hosts to one peer. */
struct top_peer {
	int pid;
	char program[32];
	char addr[64]; /* "": COUNTS_REST */
	uint64_t n[COUNTS];
};

/* A process's contexts on one device together; or the process as a program
 * under `skein run`. */
struct top_row {
	int pid;
	uid_t uid;
	bool run;
	char program[32], device[96];
	/* When the values were so: the page's time as long as the process
	 * writes, else now. */
	uint64_t time_ns;
	unsigned contexts;
	uint8_t last_ctx[16]; /* to count them */
	uint32_t run_tcp;     /* connections on TCP under skein run */
	uint64_t values[COUNTERS];
};

struct top {
	struct top_row *rows; /* by pid, then by device */
	size_t n, cap;
	struct top_peer *peers; /* by pid, then by address */
	size_t n_peers, peers_cap;
};

/* All processes of this user (of root: all), or pid alone if it is not 0.
 * says: a page that cannot be understood gets a line in cmd's name. 0, or a
 * negative errno. */
int top_read(const char *cmd, int pid, bool says, struct top *t);
void top_free(struct top *t);

/* The same row at an earlier moment, or NULL. */
const struct top_row *top_before(const struct top *before,
				 const struct top_row *row);

void top_table(const struct top *before, const struct top *t);
/* 0 or -EIO, -ENOMEM. */
int top_json(const struct top *before, const struct top *t);
void top_prometheus(const struct top *t, FILE *f);

#endif
