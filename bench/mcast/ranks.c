/* SPDX-License-Identifier: MIT */
#include "ranks.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ADDR_LEN 64

static char addrs[RANKS_MAX][ADDR_LEN];
static const char *members[RANKS_MAX];
static int up, down; /* in a child: its pipes to and from rank 0 */

void must(const char *what, int rc)
{
	if (!rc)
		return;
	fprintf(stderr, "%s: %s\n", what, skein_strerror(rc));
	exit(1);
}

uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

int ranks_start(unsigned n, int (*fn)(unsigned rank, void *arg), void *arg)
{
	int to[RANKS_MAX][2], from[2];

	for (unsigned i = 0; i < n; i++)
		members[i] = addrs[i];
	snprintf(addrs[0], ADDR_LEN, "sender");
	for (unsigned i = 1; i < n; i++) {
		if (pipe(from) || pipe(to[i]))
			return -1;
		if (!fork()) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			up = from[1];
			down = to[i][0];
			exit(fn(i, arg));
		}
		close(from[1]);
		close(to[i][0]);
		if (read(from[0], addrs[i], ADDR_LEN) != ADDR_LEN)
			return -1;
		close(from[0]);
	}
	for (unsigned i = 1; i < n; i++)
		if (write(to[i][1], addrs, sizeof(addrs)) != sizeof(addrs))
			return -1;
	return 0;
}

void ranks_meet(struct skein_ctx *ctx, unsigned rank)
{
	struct skein_listener *listener;

	must("listener",
	     skein_listener_open(ctx, "127.0.0.1:0", NULL, &listener));
	snprintf(addrs[rank], ADDR_LEN, "%s", skein_listener_addr(listener));
	if (write(up, addrs[rank], ADDR_LEN) != ADDR_LEN ||
	    read(down, addrs, sizeof(addrs)) != sizeof(addrs))
		exit(1);
}

const char *const *ranks_members(void)
{
	return members;
}

int ranks_end(void)
{
	int status, wrong = 0;

	while (wait(&status) > 0)
		wrong |= status;
	return wrong != 0;
}
