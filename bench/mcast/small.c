/* SPDX-License-Identifier: MIT */
/*
 * small.c - small messages to other processes of this machine, by slots and
 * along the tree, in turns.
 *
 *	small RECEIVERS TURNS
 *
 * Two groups of the same processes, one of them without slots, take turns of
 * 40 ms: one message at a time (from the send to the knowledge that every
 * receiver has it), then up to 64 under way. Prints a line for each size: microseconds a
 * message and messages a second by slots, each as the median over the turns,
 * and the medians of the ratios of neighbouring turns. Bytes are not compared here.
 */
#include "ranks.h"

#include <stdio.h>
#include <stdlib.h>

#define TURNS_MAX 1000
#define TURN_NS 40000000u
#define WINDOW 64u
#define PATIENCE SKEIN_S(120)

enum {
	SLOTS,
	TREE,
	WAYS
};

struct member {
	struct skein_ctx *ctx;
	struct skein_mem *mem;
	struct skein_mcast *groups[WAYS];
	struct skein_mcast_attr attr;
	int wrong;
};

static int on_incoming(void *arg, struct skein_mcast *group,
		       const struct skein_mcast_msg *msg,
		       struct skein_mcast_dest *dest)
{
	dest->mem = ((struct member *)arg)->mem;
	return 0;
}

static void on_done(void *arg, struct skein_mcast *group,
		    const struct skein_mcast_msg *msg, int status)
{
	((struct member *)arg)->wrong |= status != 0;
}

static void member_open(struct member *m, unsigned count)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr), .background = true};

	m->attr = (struct skein_mcast_attr){.size = sizeof(m->attr),
					    .members = ranks_members(),
					    .count = count,
					    .ops = {.incoming = on_incoming,
						    .done = on_done},
					    .arg = m};
	must("ctx", skein_ctx_open(&attr, &m->ctx));
	must("memory", skein_mem_new(m->ctx, SKEIN_MCAST_SMALL_BYTES, &m->mem));
}

static void groups_open(struct member *m)
{
	for (unsigned way = 0; way < WAYS; way++) {
		m->attr.number = way;
		m->attr.flags = way == TREE ? SKEIN_MCAST_NO_SLOTS : 0;
		must("group",
		     skein_mcast_open(m->ctx, &m->attr, &m->groups[way]));
	}
}

static void member_close(struct member *m)
{
	for (unsigned way = 0; way < WAYS; way++)
		must("close", skein_mcast_close(m->groups[way], PATIENCE));
	skein_mem_free(m->mem);
	skein_ctx_close(m->ctx);
}

/* Receives until the end. */
static int receiver(unsigned rank, void *arg)
{
	struct member m = {0};

	member_open(&m, *(unsigned *)arg);
	ranks_meet(m.ctx, rank);
	m.attr.rank = rank;
	groups_open(&m);
	member_close(&m);
	return m.wrong;
}

/* Nanoseconds a message, `window` of them at a time. */
static double turn(struct member *m, unsigned way, uint32_t size,
		   unsigned window)
{
	uint64_t begun = now_ns(), now;
	struct skein_mcast *g = m->groups[way];
	unsigned sent = 0;

	do {
		for (unsigned i = 0; i < window; i++, sent++)
			must("send",
			     skein_mcast_send(g, m->mem, 0, size, NULL));
		must("flush", skein_mcast_flush(g, PATIENCE));
		now = now_ns();
	} while (now - begun < TURN_NS);
	return (double)(now - begun) / sent;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *values, unsigned n)
{
	qsort(values, n, sizeof(*values), by_value);
	return n & 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

static void measure(struct member *m, uint32_t size, unsigned window,
		    unsigned turns, double *ns, double *ratio)
{
	static double slots[TURNS_MAX], ratios[TURNS_MAX];

	turn(m, SLOTS, size, window); /* a warm-up of each */
	turn(m, TREE, size, window);
	for (unsigned i = 0; i < turns; i++) {
		slots[i] = turn(m, SLOTS, size, window);
		ratios[i] = turn(m, TREE, size, window) / slots[i];
	}
	*ns = median(slots, turns);
	*ratio = median(ratios, turns);
}

static void root(unsigned count, unsigned turns)
{
	static const uint32_t sizes[] = {64, 1024, 4096,
					 SKEIN_MCAST_SMALL_BYTES};
	struct member m = {0};
	double one, many, one_ratio, many_ratio;

	member_open(&m, count);
	groups_open(&m);
	printf("| bytes | us, one at a time | x tree | messages/s, up to %u "
	       "| x tree |\n|---|---|---|---|---|\n",
	       WINDOW);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		measure(&m, sizes[i], 1, turns, &one, &one_ratio);
		measure(&m, sizes[i], WINDOW, turns, &many, &many_ratio);
		printf("| %u | %.1f | %.2f | %.0f | %.2f |\n", sizes[i],
		       one / 1e3, one_ratio, 1e9 / many, many_ratio);
		fflush(stdout);
	}
	member_close(&m);
}

int main(int argc, char **argv)
{
	unsigned n;

	if (argc != 3 || atoi(argv[1]) < 1 ||
	    atoi(argv[1]) >= (int)SKEIN_MCAST_SMALL_MEMBERS ||
	    atoi(argv[2]) < 1 || atoi(argv[2]) > TURNS_MAX) {
		fprintf(stderr, "usage: small RECEIVERS TURNS\n");
		return 2;
	}
	n = 1 + (unsigned)atoi(argv[1]);
	if (ranks_start(n, receiver, &n))
		return 1;
	root(n, (unsigned)atoi(argv[2]));
	return ranks_end();
}
