/* SPDX-License-Identifier: MIT */
/*
 * group.c - one message from memory to the memory of other processes of this
 * machine, by a multicast group.
 *
 *	group RECEIVERS BYTES ROUNDS ALGORITHM BLOCK CHECKSUM
 *
 * ALGORITHM is a number of enum skein_mcast_algorithm, BLOCK bytes (0: the
 * default), CHECKSUM 0 or 1. Prints, a round a line, the seconds from the send
 * to the knowledge that every receiver has it. The first round is a warm-up
 * for a reader of the lines: memory is touched for the first time. What arrived
 * is compared, out of the time.
 */
#include "ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE SKEIN_S(120)
#define SAMPLE 4099u /* bytes between two that are compared */

struct member {
	struct skein_ctx *ctx;
	struct skein_mem *mem;
	struct skein_mcast *group;
	struct skein_mcast_attr attr;
	size_t bytes;
	int wrong;
};

static uint8_t sample(uint64_t round, size_t i)
{
	return (uint8_t)(round * 7 + i / SAMPLE);
}

static int on_incoming(void *arg, struct skein_mcast *group,
		       const struct skein_mcast_msg *msg,
		       struct skein_mcast_dest *dest)
{
	struct member *m = arg;

	dest->mem = m->mem;
	return 0;
}

static void on_done(void *arg, struct skein_mcast *group,
		    const struct skein_mcast_msg *msg, int status)
{
	struct member *m = arg;
	const uint8_t *data = skein_mem_addr(m->mem);

	m->wrong |= status != 0;
	for (size_t i = 0; i < m->bytes; i += SAMPLE)
		m->wrong |= data[i] != sample(msg->seq, i);
}

static void member_open(struct member *m, char **argv)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr), .background = true};

	m->bytes = strtoull(argv[2], NULL, 10);
	m->attr = (struct skein_mcast_attr){
		.size = sizeof(m->attr),
		.members = ranks_members(),
		.count = 1 + (unsigned)atoi(argv[1]),
		.algorithm = (enum skein_mcast_algorithm)atoi(argv[4]),
		.block_size = (uint32_t)atol(argv[5]),
		.flags = atoi(argv[6]) ? 0 : SKEIN_MCAST_NO_CHECKSUM,
		.arg = m};
	must("ctx", skein_ctx_open(&attr, &m->ctx));
	must("memory", skein_mem_new(m->ctx, m->bytes, &m->mem));
	memset(skein_mem_addr(m->mem), 0, m->bytes);
}

static void member_close(struct member *m)
{
	must("close", skein_mcast_close(m->group, PATIENCE));
	skein_mem_free(m->mem);
	skein_ctx_close(m->ctx);
}

/* Receives until the end. */
static int receiver(unsigned rank, void *arg)
{
	struct member m = {0};

	member_open(&m, arg);
	ranks_meet(m.ctx, rank);
	m.attr.rank = rank;
	m.attr.ops.incoming = on_incoming;
	m.attr.ops.done = on_done;
	must("group", skein_mcast_open(m.ctx, &m.attr, &m.group));
	member_close(&m);
	return m.wrong;
}

static void sender(struct member *m, unsigned rounds)
{
	uint8_t *data = skein_mem_addr(m->mem);
	uint64_t begun;

	for (unsigned r = 0; r < rounds; r++) {
		for (size_t i = 0; i < m->bytes; i += SAMPLE)
			data[i] = sample(r, i);
		begun = now_ns();
		must("send",
		     skein_mcast_send(m->group, m->mem, 0, m->bytes, NULL));
		must("flush", skein_mcast_flush(m->group, PATIENCE));
		printf("%.6f\n", (double)(now_ns() - begun) * 1e-9);
	}
}

int main(int argc, char **argv)
{
	struct member m = {0};

	if (argc != 7 || atoi(argv[1]) < 1 || atoi(argv[1]) >= RANKS_MAX) {
		fprintf(stderr, "usage: group RECEIVERS BYTES ROUNDS ALGORITHM "
				"BLOCK CHECKSUM\n");
		return 2;
	}
	if (ranks_start(1 + (unsigned)atoi(argv[1]), receiver, argv))
		return 1;
	member_open(&m, argv);
	must("group", skein_mcast_open(m.ctx, &m.attr, &m.group));
	sender(&m, (unsigned)atoi(argv[3]));
	member_close(&m);
	if (!ranks_end())
		return 0;
	fprintf(stderr, "group: a receiver did not get what was sent\n");
	return 1;
}
