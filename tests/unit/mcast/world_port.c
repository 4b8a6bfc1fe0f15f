/* SPDX-License-Identifier: MIT */
/*
 * world_port.c - what the engines of a world ask of it: links that take records
 * and blocks, memory that is counted, and an application that looks at all it
 * is given.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "mcast/world_port.h"

#define ARRIVES_NS (100 * 1000 * 1000ull)

static struct member *member_of(struct mcast_port *port)
{
	return container_of(port, struct member, port);
}

/* --- links -------------------------------------------------------------- */

static int push(struct member *m, uint32_t nb, enum mcast_channel channel,
		const struct mcast_rec *rec, const uint8_t *payload,
		uint64_t to, struct mcast_op *op)
{
	struct world *w = m->w;
	struct link *l = &w->links[m->rank][world_rank_of(m, nb)];
	struct channel *q = &l->channels[channel];
	struct packet *p;

	skein_assert(l->exists || l->down);
	if (l->down)
		return -ENOTCONN;
	if (q->n == WORLD_LINK_MAX || world_chance(w, 3))
		return -EAGAIN;
	p = &q->packets[q->n++];
	*p = (struct packet){
		.rec = *rec, .to = to, .op = op, .posted_ns = w->now};
	if (op && rec->len) {
		p->payload = malloc(rec->len);
		memcpy(p->payload, payload, rec->len);
		if (w->flip)
			p->payload[rec->len / 2] ^= 0x10;
		w->flip = false;
	}
	return 0;
}

static int w_record(struct mcast_port *port, uint32_t nb,
		    enum mcast_channel channel, const struct mcast_rec *rec)
{
	struct member *m = member_of(port);

	/* Once its group is over, a member asks for nothing more. */
	skein_assert(!m->eng.over || rec->type != MCAST_READY);
	return push(m, nb, channel, rec, NULL, 0, NULL);
}

static int w_block(struct mcast_port *port, uint32_t nb,
		   const struct mcast_rec *rec, const struct mcast_buf *from,
		   uint64_t to, uint32_t rkey, struct mcast_op *op)
{
	skein_assert(rkey == world_rank_of(member_of(port), nb) + 1000);
	return push(member_of(port), nb, MCAST_BLOCKS, rec, from->addr, to, op);
}

static int w_small(struct mcast_port *port, uint32_t nb,
		   const struct mcast_buf *from, uint32_t len, uint64_t to,
		   uint32_t rkey, uint32_t slot, struct mcast_op *op)
{
	struct member *m = member_of(port);
	const struct mcast_rec *rec = (const void *)from->addr;
	struct link *l = &m->w->links[m->rank][world_rank_of(m, nb)];
	struct channel *q = &l->channels[MCAST_WORDS];
	int rc = push(m, nb, MCAST_WORDS, rec, NULL, to, NULL);
	struct packet *p;

	skein_assert(rkey == world_rank_of(m, nb) + 1000 && !m->rank);
	skein_assert(slot < m->w->slots && len == sizeof(*rec) + rec->size);
	if (rc)
		return rc;
	p = &q->packets[q->n - 1];
	p->op = op;
	p->small = len;
	p->from = from->addr;
	p->payload = malloc(len);
	memcpy(p->payload, from->addr, len);
	if (m->w->flip && rec->size) {
		p->payload[sizeof(*rec) + rec->size / 2] ^= 0x10;
		p->from = NULL; /* it is not what was posted */
		m->w->flip = false;
	}
	return 0;
}

/* What was posted a while ago has arrived; of the rest any beginning. */
static void break_channel(struct world *w, struct channel *q, bool held)
{
	unsigned old = 0, arrived;

	while (!held && old < q->n &&
	       q->packets[old].posted_ns + ARRIVES_NS <= w->now)
		old++;
	if (q->n && q->packets[q->n - 1].there)
		old = q->n;
	arrived = old + (unsigned)prng_below(&w->prng, q->n - old + 1);
	for (unsigned p = arrived; p < q->n; p++)
		q->packets[p].lost = true;
}

void world_break_link(struct world *w, uint32_t from, uint32_t to, int err)
{
	struct link *l = &w->links[from][to];

	if (l->down)
		return;
	l->down = true;
	l->err = err;
	for (unsigned channel = 0; channel < MCAST_CHANNELS; channel++)
		break_channel(w, &l->channels[channel], l->held);
}

static void w_cut(struct mcast_port *port, uint32_t nb, int err)
{
	struct member *m = member_of(port);

	/* A connection does not say why its other end has cut it. */
	world_break_link(m->w, m->rank, world_rank_of(m, nb), -ECONNRESET);
	world_break_link(m->w, world_rank_of(m, nb), m->rank, err);
}

static void *w_alloc(struct mcast_port *port, size_t len)
{
	member_of(port)->w->allocs++;
	return calloc(1, len ? len : 1);
}

static void w_free(struct mcast_port *port, void *p)
{
	if (p)
		member_of(port)->w->allocs--;
	free(p);
}

static void w_out_free(struct mcast_port *port, struct mcast_out *out)
{
	w_free(port, out);
}

static int w_mem_get(struct mcast_port *port, size_t len, struct mcast_buf *buf,
		     void **handle)
{
	struct member *m = member_of(port);

	if (m->no_mem)
		return -ENOMEM;
	*handle = calloc(1, len);
	*buf = (struct mcast_buf){*handle, m->rank, m->rank + 1000};
	m->mems++;
	return 0;
}

static void w_mem_put(struct mcast_port *port, void *handle)
{
	member_of(port)->mems--;
	free(handle);
}

/* --- the application ---------------------------------------------------- */

static int w_incoming(struct mcast_port *port,
		      const struct skein_mcast_msg *msg,
		      struct mcast_dest *dest)
{
	struct member *m = member_of(port);
	struct seen *s = &m->seen[msg->seq];

	skein_assert(msg->seq < WORLD_MESSAGES && !s->begun && !m->told);
	skein_assert(!msg->seq || m->seen[msg->seq - 1].done);
	if (m->gives_up && world_chance(m->w, 50))
		return m->gives_up;
	s->begun = true;
	s->size = msg->size;
	s->buf = calloc(1, msg->size + 1);
	s->stream = world_chance(m->w, m->w->stream_odds);
	if (m->eng.resume && !msg->seq)
		s->stream = m->store != SKEIN_MCAST_MEMORY;
	dest->tag = s;
	if (m->gives_up && world_chance(m->w, 50))
		dest->err = m->gives_up;
	if (!s->stream)
		dest->buf = (struct mcast_buf){s->buf, m->rank, m->rank + 1000};
	return 0;
}

static int later(struct member *m, const struct skein_mcast_msg *msg,
		 const struct skein_mcast_block *b, bool fill)
{
	skein_assert(m->n_later < 64);
	m->later[m->n_later].seq = msg->seq;
	m->later[m->n_later].b = *b;
	m->later[m->n_later++].fill = fill;
	return SKEIN_MCAST_LATER;
}

void world_take_block(struct member *m, uint64_t seq,
		      const struct skein_mcast_block *b)
{
	memcpy(m->seen[seq].buf + b->off, b->data, b->len);
	m->seen[seq].blocks++;
	if (seq)
		return;
	/* Each once, also of those that were there; but what the root has
	 * refused. */
	skein_assert(b->index >= 64 || !(m->had >> b->index & 1) ||
		     (m->store == SKEIN_MCAST_REREAD &&
		      m->eng.stats.blocks_refused));
	m->had |= b->index < 64 ? 1ull << b->index : 0;
}

static int w_block_in(struct mcast_port *port,
		      const struct skein_mcast_msg *msg,
		      const struct skein_mcast_block *b)
{
	struct member *m = member_of(port);

	skein_assert(m->seen[msg->seq].begun && !m->seen[msg->seq].done);
	if (m->gives_up)
		return m->gives_up;
	if (world_chance(m->w, m->w->later_odds))
		return later(m, msg, b, false);
	world_take_block(m, msg->seq, b);
	return 0;
}

void world_fill_block(struct member *m, uint64_t seq,
		      const struct skein_mcast_block *b)
{
	if (m->eng.resume && !seq) {
		/* Only what it has, and can read. */
		skein_assert(m->store == SKEIN_MCAST_REREAD &&
			     m->had >> b->index & 1);
		memcpy(b->data, m->seen[0].buf + b->off, b->len);
		return;
	}
	for (uint32_t i = 0; i < b->len; i++)
		((uint8_t *)b->data)[i] = world_byte(seq, b->off + i);
}

static int w_fill(struct mcast_port *port, const struct skein_mcast_msg *msg,
		  const struct skein_mcast_block *b)
{
	struct member *m = member_of(port);

	skein_assert(!m->eng.over);
	if (m->gives_up)
		return m->gives_up;
	if (world_chance(m->w, m->w->later_odds))
		return later(m, msg, b, true);
	world_fill_block(m, msg->seq, b);
	return 0;
}

static bool all_right(const uint8_t *buf, uint64_t seq, uint64_t size)
{
	for (uint64_t i = 0; i < size; i++)
		if (buf[i] != world_byte(seq, i))
			return false;
	return true;
}

static void w_done(struct mcast_port *port, const struct skein_mcast_msg *msg,
		   int status)
{
	struct member *m = member_of(port);
	struct seen *s = &m->seen[msg->seq];

	skein_assert(!s->done && (status == 0 || m->told));
	skein_assert(m->rank == 0 || s->begun || (m->eng.resume && !msg->seq));
	s->done = true;
	s->status = status;
	s->digest = msg->digest;
	if (s->buf && !status && (m->rank || m->eng.resume)) {
		skein_assert(all_right(s->buf, msg->seq, s->size));
		skein_assert(!s->stream || !s->size ||
			     (m->eng.resume && !msg->seq
				      ? (uint32_t)__builtin_popcountll(m->had)
				      : s->blocks) == msg->blocks);
	}
	if (m->w->keep && s->buf) {
		s->copy = malloc(s->size + 1);
		memcpy(s->copy, s->buf, s->size);
	}
	/* From now on it is the application's again: a write to it is seen by
	 * the sanitizer. */
	free(s->buf);
	s->buf = NULL;
}

static void w_failed(struct mcast_port *port)
{
	struct member *m = member_of(port);

	skein_assert(!m->told && m->eng.over);
	m->told = true;
	m->reported_ns = m->w->now;
}

static void w_changed(struct mcast_port *port)
{
}

const struct mcast_port_ops world_port_ops = {
	.record = w_record,
	.block = w_block,
	.small = w_small,
	.cut = w_cut,
	.alloc = w_alloc,
	.free = w_free,
	.out_free = w_out_free,
	.mem_get = w_mem_get,
	.mem_put = w_mem_put,
	.incoming = w_incoming,
	.block_in = w_block_in,
	.fill = w_fill,
	.done = w_done,
	.failed = w_failed,
	.changed = w_changed,
};
