/* SPDX-License-Identifier: MIT */
/*
 * tear.c - WRITEs and READs that move their bytes at several moments.
 *
 * A NIC moves a message word by word, and other words of the same memory change
 * meanwhile. In a world with sim_net_set_tear() a share of the WRITEs and READs
 * does the same: each aligned word of 8 bytes belongs to one of two to four
 * pieces, and each piece moves at a moment of its own. Where the device declares
 * ordered_write (WRITEs) or ordered_read (READs), words move in ascending order;
 * else in a drawn one.
 *
 * What stays: a request that comes later on the same QP is carried out behind
 * the last piece, and the answer, or a receive's completion, follows it.
 */
#include "dev/sim/sim_dev.h"

#include "base/assert.h"

#include <string.h>

#define PIECES_MAX 4u
#define WORDS_MAX 8192u /* of longer messages several move together */

void sim_net_set_tear(struct sim_world *w, const struct sim_tear *tear)
{
	struct sim_net *net = sim_net_of(w);

	skein_assert(list_empty(&net->nics));
	net->tear = *tear;
	sim_prng(w, 0x74656172, &net->tear_rng);
}

static bool is_read(const struct sim_msg *m)
{
	return m->opcode == IBV_WR_RDMA_READ;
}

static bool is_write(const struct sim_msg *m)
{
	return m->opcode == IBV_WR_RDMA_WRITE ||
	       m->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

uint64_t sim_tear_plan(struct sim_msg *m)
{
	struct sim_net *net = m->to->net;
	const struct sim_tear *t = &net->tear;
	struct prng *r = &net->tear_rng;

	m->pieces = 0;
	if (!t->ppm || m->len <= 8 || m->hollow ||
	    (!is_read(m) && !is_write(m)))
		return 0;
	if (prng_below(r, 1000000) >= t->ppm)
		return 0;
	m->pieces = (uint8_t)(2 + prng_below(r, PIECES_MAX - 1));
	m->piece = 0;
	m->tear = prng_u64(r);
	m->tear_gap = (uint32_t)prng_below(r, t->span_ns / m->pieces + 1);
	/* One nanosecond more: of two events at one moment the older comes
	 * first, and the event of the next request is older than that of the
	 * last piece. */
	return (uint64_t)m->tear_gap * (m->pieces - 1u) + 1;
}

/* The piece that word i of n belongs to. */
static unsigned piece_of(const struct sim_msg *m, uint64_t i, uint64_t n)
{
	const struct sim_tear *t = &m->to->net->tear;
	bool ascends = is_read(m) ? t->ordered_read : t->ordered_write;
	unsigned piece = 0;

	if (!ascends)
		return prng_mix(m->tear ^ i) % m->pieces;
	/* Each cut is at a word of its own. */
	for (unsigned k = 1; k < m->pieces; k++)
		piece += i >= prng_mix(m->tear ^ k) % n;
	return piece;
}

void sim_tear_move(const struct sim_msg *m, unsigned char *to,
		   const unsigned char *from)
{
	uint64_t step = 8 * (1 + m->len / (8 * WORDS_MAX));
	uint64_t base = m->raddr / step, i = 0, n, at = 0;

	/* Words are those of the responder's memory. */
	n = (m->raddr + m->len - 1) / step - base + 1;
	for (; i < n; i++) {
		uint64_t end = (base + i + 1) * step - m->raddr;

		if (end > m->len)
			end = m->len;
		if (piece_of(m, i, n) == m->piece)
			memcpy(to + at, from + at, end - at);
		at = end;
	}
}
