/* SPDX-License-Identifier: MIT */
/*
 * fuzz_mcast.c - a member of a multicast group whose neighbours say whatever the
 * input has: handshake sections, and records in either channel. Input: one byte
 * for rank, algorithm, checksums, and whether an object is resumed, then
 * operations (see enum). One operation sends the record that the member waits
 * for, with a byte changed, so the input gets deep into a message; the bytes of
 * its block do not travel. Another sends the small message that may come next,
 * with its bytes.
 */
#include "base/assert.h"
#include "mcast/eng.h"

#include <errno.h>
#include <stdlib.h>
#include <skein/error.h>

#define MEMBERS 6u
#define BLOCK 4096u
#define BLOCKS_MAX 20u
#define SLOTS 3u
#define SMALL_MAX 300u
#define MS 1000000ull

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
	OP_POLL,    /* ms u8 */
	OP_NEXT,    /* offset u8, xor u8: what is waited for, changed */
	OP_RECORD,  /* neighbour u8, channel u8, immediate u32, 64 bytes */
	OP_DOWN,    /* neighbour u8 */
	OP_HURT,    /* neighbour u8 */
	OP_SECTION, /* 56 bytes */
	OP_CLOSE,
	OP_SMALL, /* size u16, ahead u8, offset u8, xor u8, length u8: the
		   * small message that may come, changed */
	OPS,
};

struct member {
	struct mcast_port port;
	struct mcast_eng eng;
	uint64_t now;
	struct mcast_op *under_way[MCAST_SENDS + MEMBERS * SLOTS];
	unsigned flying;
	unsigned allocs, begun, done, failed;
	uint8_t object[BLOCKS_MAX * BLOCK];
	bool stream;
};

static struct member *member_of(struct mcast_port *port)
{
	return container_of(port, struct member, port);
}

/* --- the port ----------------------------------------------------------- */

static int p_record(struct mcast_port *port, uint32_t nb,
		    enum mcast_channel channel, const struct mcast_rec *rec)
{
	struct mcast_eng *e = &member_of(port)->eng;

	/* What this end says the other one understands. */
	skein_assert(mcast_rec_valid(rec, channel, e->nbs[nb].out[channel],
				     mcast_imm_value(rec)));
	return 0;
}

static bool within(const struct mcast_buf *buf, const void *mem, size_t len,
		   uint32_t n)
{
	const uint8_t *p = mem;

	return buf->addr >= p && n <= len && buf->addr + n <= p + len;
}

static int p_block(struct mcast_port *port, uint32_t nb,
		   const struct mcast_rec *rec, const struct mcast_buf *from,
		   uint64_t to, uint32_t rkey, struct mcast_op *op)
{
	struct member *m = member_of(port);
	struct mcast_ring *r = &m->eng.ring;

	/* Only of the message's own memory, and as much as a block has. */
	skein_assert(rec->len <= BLOCK);
	skein_assert(
		!rec->len ||
		within(from, m->object, sizeof(m->object), rec->len) ||
		within(from, r->mem.addr, (size_t)r->count * BLOCK, rec->len));
	skein_assert(m->eng.flying < MCAST_SENDS);
	m->under_way[m->flying++] = op;
	return 0;
}

static int p_small(struct mcast_port *port, uint32_t nb,
		   const struct mcast_buf *from, uint32_t len, uint64_t to,
		   uint32_t rkey, uint32_t slot, struct mcast_op *op)
{
	struct member *m = member_of(port);
	const struct mcast_slots *s = &m->eng.slots;
	const struct mcast_rec *rec = (const void *)from->addr;

	skein_assert(
		within(from, s->mem.addr, (size_t)s->count * s->stride, len));
	skein_assert(m->eng.nbs[nb].has_ring && slot < SLOTS);
	skein_assert(rec->type == MCAST_SMALL &&
		     len == sizeof(*rec) + rec->size && len <= s->stride);
	m->under_way[m->flying++] = op;
	return 0;
}

static void p_cut(struct mcast_port *port, uint32_t nb, int err)
{
}

static void *p_alloc(struct mcast_port *port, size_t len)
{
	member_of(port)->allocs++;
	return calloc(1, len ? len : 1);
}

static void p_free(struct mcast_port *port, void *p)
{
	member_of(port)->allocs -= p != NULL;
	free(p);
}

static void p_out_free(struct mcast_port *port, struct mcast_out *out)
{
	p_free(port, out);
}

static int p_mem_get(struct mcast_port *port, size_t len, struct mcast_buf *buf,
		     void **handle)
{
	*handle = p_alloc(port, len);
	*buf = (struct mcast_buf){.addr = *handle};
	return *handle ? 0 : -ENOMEM;
}

static void p_mem_put(struct mcast_port *port, void *handle)
{
	p_free(port, handle);
}

static int p_incoming(struct mcast_port *port,
		      const struct skein_mcast_msg *msg,
		      struct mcast_dest *dest)
{
	struct member *m = member_of(port);

	skein_assert(m->eng.conf.rank || m->eng.resume);
	if (msg->blocks > BLOCKS_MAX)
		return -EFBIG;
	m->begun++;
	if (!m->stream && msg->size)
		dest->buf.addr = m->object;
	return 0;
}

static int p_app_block(struct mcast_port *port,
		       const struct skein_mcast_msg *msg,
		       const struct skein_mcast_block *block)
{
	const struct mcast_slots *s = &member_of(port)->eng.slots;
	const struct mcast_ring *r = &member_of(port)->eng.ring;
	struct mcast_buf buf = {.addr = block->data};

	skein_assert(block->off + block->len <= msg->size);
	skein_assert(within(&buf, r->mem.addr, (size_t)r->count * BLOCK,
			    block->len) ||
		     within(&buf, s->mem.addr, (size_t)s->count * s->stride,
			    block->len));
	return 0;
}

/* The same whenever it is asked. */
static int p_fill(struct mcast_port *port, const struct skein_mcast_msg *msg,
		  const struct skein_mcast_block *block)
{
	memset(block->data, 0, block->len);
	return p_app_block(port, msg, block);
}

static void p_done(struct mcast_port *port, const struct skein_mcast_msg *msg,
		   int status)
{
	struct member *m = member_of(port);

	m->done++;
	skein_assert(m->done <= m->begun);
	skein_assert(!status || m->failed);
}

static void p_failed(struct mcast_port *port)
{
	struct member *m = member_of(port);

	skein_assert(!m->failed++ && m->eng.over_rank < MEMBERS);
}

static void p_changed(struct mcast_port *port)
{
}

static const struct mcast_port_ops ops = {
	.record = p_record,
	.block = p_block,
	.small = p_small,
	.cut = p_cut,
	.alloc = p_alloc,
	.free = p_free,
	.out_free = p_out_free,
	.mem_get = p_mem_get,
	.mem_put = p_mem_put,
	.incoming = p_incoming,
	.block_in = p_app_block,
	.fill = p_fill,
	.done = p_done,
	.failed = p_failed,
	.changed = p_changed,
};

/* --- what neighbours say ------------------------------------------------ */

static void poll_all(struct member *m)
{
	/* Blocks that are under way arrive. */
	while (m->flying) {
		struct mcast_op *op = m->under_way[--m->flying];

		op->done(op, 0);
	}
	for (unsigned i = 0; mcast_eng_poll(&m->eng, m->now); i++)
		skein_assert(i < 10000);
}

static void hear(struct member *m, uint32_t nb, enum mcast_channel channel,
		 const struct mcast_rec *rec, uint32_t imm)
{
	bool can_be =
		mcast_rec_valid(rec, channel, m->eng.nbs[nb].in[channel], imm);
	bool heeded = !(m->eng.nbs[nb].fail_in & 1u << channel);

	mcast_eng_record(&m->eng, nb, channel, imm, rec, m->now);
	skein_assert(can_be || !heeded || m->eng.over || m->eng.closed);
}

/* What is resumed: OBJECT bytes. Even ranks have the blocks of OWN. */
#define OBJECT (6 * BLOCK + 1)
#define OWN 0x13u

/* The runs of a table that a neighbour says. */
static void table_said(const struct mcast_eng *e, uint32_t rank, uint32_t run,
		       struct mcast_rec *rec)
{
	const struct mcast_claim *c = &e->resume->claim;

	rec->rank = (uint16_t)rank;
	if (rec->type == MCAST_HAVE) {
		rec->msg = rank != e->conf.rank || c->knows;
		rec->size = rec->msg ? OBJECT : 0;
		rec->block = rank == e->conf.rank ? c->n_runs : 2;
		rec->len = rank == e->conf.rank
				   ? c->store == SKEIN_MCAST_CONSUMED
				   : rank == 5;
	} else if (rank == e->conf.rank) { /* mine comes back */
		rec->block = c->runs[run].first;
		rec->len = c->runs[run].count;
		rec->sum = c->runs[run].digest;
	} else {
		rec->block = 4 * run;
		rec->len = 3;
	}
}

static bool awaits_table(const struct mcast_eng *e, uint32_t *nb,
			 struct mcast_rec *rec)
{
	const struct mcast_resume *r = e->resume;
	uint32_t rank, from;

	for (*nb = 0; *nb < e->n_nbs; ++*nb)
		if (r->exchanges[*nb].talks) {
			rec->type = MCAST_RUN;
			table_said(e, r->exchanges[*nb].rank,
				   r->exchanges[*nb].got, rec);
			return true;
		}
	rec->type = MCAST_HAVE;
	for (rank = 0; rank < MEMBERS; rank++) {
		for (from = rank; from && r->parents[from] != e->conf.rank;)
			from = r->parents[from];
		*nb = mcast_nb_find(e, from);
		if (from && !r->tables[rank].runs) {
			table_said(e, rank, 0, rec);
			return true;
		}
	}
	*nb = e->parent;
	table_said(e, r->n_all, 0, rec);
	return e->parent != MCAST_NONE;
}

/* The record that this member waits for, as it should be; false: none. */
static bool awaited(const struct mcast_eng *e, uint32_t *nb,
		    struct mcast_rec *rec)
{
	const struct mcast_xfer *x = &e->x;

	*rec = (struct mcast_rec){.type = MCAST_HELLO, .msg = 0};
	for (*nb = 0; *nb < e->n_nbs; ++*nb)
		if (!e->nbs[*nb].hello_in)
			return true;
	if (mcast_resume_pending(e))
		return awaits_table(e, nb, rec);
	if (mcast_resume_active(e) && x->n_have == x->msg.blocks &&
	    !e->resume->sum_known) {
		*nb = e->parent;
		rec->type = MCAST_SUM;
		rec->sum = x->msg.digest;
		return true;
	}
	for (*nb = 0; e->slots.count && mcast_is_root(e) && *nb < e->n_nbs;
	     ++*nb)
		if (!e->nbs[*nb].has_ring) {
			rec->type = MCAST_RING;
			rec->len = e->slots.count * e->slots.stride;
			return true;
		}
	rec->msg = e->done;
	/* Small ones go on when they are acknowledged. */
	if (mcast_is_root(e) && e->x.small) {
		for (*nb = 0; *nb + 1 < e->n_nbs; ++*nb)
			if (e->nbs[*nb].ack < e->done)
				break;
		rec->type = MCAST_ACK;
		return true;
	}
	if (e->n_grants) {
		*nb = e->grants[0].nb;
		rec->type = MCAST_BLOCK;
		rec->size = x->msg.size;
		rec->block = e->grants[0].block;
		rec->len = mcast_block_len(&x->msg, rec->block);
		return true;
	}
	if (e->first_granted) {
		*nb = e->parent;
		rec->type = e->done & 1 ? MCAST_BLOCK : MCAST_BEGIN;
		rec->size = e->done & 1 ? 77 : 5 * BLOCK + 5;
		rec->len = e->done & 1 ? 77 : 0;
		return true;
	}
	if (!x->active || !x->sends)
		return false;
	*nb = mcast_nb_find(e, x->send.peer);
	rec->type = MCAST_READY;
	rec->block = (uint32_t)x->send.block;
	rec->len = BLOCK;
	for (uint32_t i = 0; i < e->n_nbs; i++)
		if (e->nbs[i].begins) { /* first asks for the message */
			*nb = i;
			rec->block = MCAST_BLOCK_FIRST;
		}
	return true;
}

static void hear_next(struct member *m, struct bytes_in *in)
{
	unsigned off = bytes_get_u8(in), flip = bytes_get_u8(in);
	enum mcast_channel channel;
	struct mcast_rec rec;
	uint32_t nb;

	if (!awaited(&m->eng, &nb, &rec))
		return;
	channel = rec.type == MCAST_BLOCK ? MCAST_BLOCKS : MCAST_WORDS;
	rec.number = m->eng.nbs[nb].in[channel];
	((uint8_t *)&rec)[off % sizeof(rec)] ^= (uint8_t)flip;
	hear(m, nb, channel, &rec, mcast_imm_value(&rec));
}

static void hear_record(struct member *m, struct bytes_in *in)
{
	uint32_t nb = bytes_get_u8(in) % m->eng.n_nbs;
	enum mcast_channel channel = bytes_get_u8(in) % MCAST_CHANNELS;
	uint32_t imm = bytes_get_u32(in);
	const void *bytes = bytes_get(in, sizeof(struct mcast_rec));
	struct mcast_rec rec;

	if (!bytes)
		return;
	memcpy(&rec, bytes, sizeof(rec));
	hear(m, nb, channel, &rec, imm);
}

/* What is in the next slot, and an immediate that says so. */
static void hear_small(struct member *m, struct bytes_in *in)
{
	struct mcast_slots *s = &m->eng.slots;
	uint32_t size = bytes_get_u16(in) % (SMALL_MAX + 2), imm;
	unsigned ahead = bytes_get_u8(in), off = bytes_get_u8(in);
	unsigned flip = bytes_get_u8(in), longer = bytes_get_u8(in);
	uint64_t msg = m->eng.done + s->next - s->taken;
	struct mcast_rec rec = {.type = MCAST_SMALL,
				.number = (uint32_t)s->next,
				.msg = msg + ahead % 3,
				.size = size};
	uint8_t *slot;

	if (!s->count || !m->eng.conf.rank)
		return; /* it has no ring that the root could write */
	slot = s->mem.addr + s->next % s->count * s->stride;
	memset(slot + sizeof(rec), (int)size, s->stride - sizeof(rec));
	rec.sum = m->eng.conf.checksum
			  ? mcast_sum(slot + sizeof(rec),
				      size <= SMALL_MAX ? size : SMALL_MAX,
				      mcast_seed(m->eng.conf.list, rec.msg), 0)
			  : 0;
	imm = mcast_imm_value(&rec);
	((uint8_t *)&rec)[off % sizeof(rec)] ^= (uint8_t)flip;
	memcpy(slot, &rec, sizeof(rec));
	mcast_slot_in(&m->eng, (longer >> 4) % m->eng.n_nbs, imm,
		      (uint32_t)sizeof(rec) + size + longer % 16, m->now);
	skein_assert(s->next - s->taken <= SLOTS);
}

static void link_ends(struct member *m, uint32_t nb, bool down)
{
	nb %= m->eng.n_nbs;
	if (m->eng.nbs[nb].down)
		return;
	if (down)
		mcast_eng_link_down(&m->eng, nb, -ECONNRESET);
	else
		mcast_eng_channel_down(&m->eng, nb, -ECONNRESET);
}

static void section(struct bytes_in *in)
{
	const uint8_t *bytes = bytes_get(in, MCAST_SECTION_LEN);
	uint8_t again[MCAST_SECTION_LEN];
	struct bytes_out out = bytes_out(again, sizeof(again));
	struct mcast_section s;
	struct bytes_in from;

	if (!bytes)
		return;
	from = bytes_in(bytes, MCAST_SECTION_LEN);
	if (mcast_section_get(&s, &from))
		return;
	mcast_section_put(&s, &out);
	skein_assert(!out.failed && out.pos == MCAST_SECTION_LEN);
	skein_assert(!memcmp(again, bytes, sizeof(again)));
}

/* --- the member --------------------------------------------------------- */

static void operation(struct member *m, struct bytes_in *in)
{
	switch (bytes_get_u8(in) % OPS) {
	case OP_POLL:
		m->now += bytes_get_u8(in) * MS;
		break;
	case OP_NEXT:
		hear_next(m, in);
		break;
	case OP_RECORD:
		hear_record(m, in);
		break;
	case OP_DOWN:
		link_ends(m, bytes_get_u8(in), true);
		break;
	case OP_HURT:
		link_ends(m, bytes_get_u8(in), false);
		break;
	case OP_SECTION:
		section(in);
		break;
	case OP_SMALL:
		hear_small(m, in);
		break;
	default:
		mcast_eng_close(&m->eng);
	}
	poll_all(m);
}

static void send(struct member *m, uint64_t len)
{
	struct mcast_out *out = p_alloc(&m->port, sizeof(*out));

	if (!out)
		return;
	out->size = len;
	out->buf.addr = m->stream ? NULL : m->object;
	m->begun++;
	mcast_eng_send(&m->eng, out);
}

static bool resume(struct member *m)
{
	uint32_t rank = m->eng.conf.rank;
	struct mcast_claim c = {0};

	if (m->stream)
		c.store = rank < 3 ? SKEIN_MCAST_REREAD : SKEIN_MCAST_CONSUMED;
	if (rank % 2 == 0) {
		c = (struct mcast_claim){.knows = true,
					 .begun = true,
					 .store = c.store,
					 .size = OBJECT,
					 .buf.addr = c.store ? NULL : m->object,
					 .have = p_alloc(&m->port, 8),
					 .sums = p_alloc(&m->port, 7 * 8)};
		c.runs = p_alloc(&m->port, 4 * sizeof(*c.runs));
		if (!c.have || !c.sums || !c.runs)
			abort();
		c.have[0] = OWN;
		c.n_runs = mcast_runs_of(c.have, 7, c.runs, 4);
		m->begun++;
	}
	return mcast_resume_init(&m->eng, &c) == 0;
}

static bool member_new(struct member *m, unsigned how)
{
	struct mcast_eng_conf conf = {
		.n = MEMBERS,
		.rank = how % MEMBERS,
		.algorithm = (enum mcast_algorithm)(how / MEMBERS % 4),
		.block_size = BLOCK,
		.ring_blocks = 3,
		.checksum = how / 24 % 2,
		.slots = how / 192 ? SLOTS : 0,
		.small_max = how / 192 ? SMALL_MAX : 0,
		.open_deadline_ns = 1000 * MS,
		.member_timeout_ns = 100 * MS};

	m->port.ops = &ops;
	m->stream = how / 48 % 2;
	m->now = MS;
	if (mcast_eng_init(&m->eng, &m->port, &conf, m->now))
		return false;
	if (how / 96 % 2 && !resume(m))
		abort();
	for (uint32_t i = 0; i < m->eng.n_nbs; i++)
		mcast_eng_link_up(&m->eng, i, m->now);
	if (!conf.rank) {
		send(m, 6 * BLOCK + 1);
		send(m, 9);
		for (unsigned i = 0; m->eng.slots.count && i < 2 * SLOTS; i++)
			send(m, 50 * i);
		if (m->eng.slots.count)
			send(m, 2 * BLOCK);
	}
	return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bytes_in in = bytes_in(data, size);
	struct member *m = calloc(1, sizeof(*m));

	if (!m)
		return 0;
	if (member_new(m, bytes_get_u8(&in))) {
		poll_all(m);
		while (bytes_left(&in))
			operation(m, &in);
		/* Whatever was said: silence ends it, and all is handed back. */
		for (uint32_t i = 0; i < m->eng.n_nbs; i++)
			link_ends(m, i, true);
		poll_all(m);
		/* ... or that nobody says why. */
		m->now += MCAST_SETTLE_NS;
		poll_all(m);
		skein_assert(m->eng.closed || m->done == m->begun);
		mcast_eng_fini(&m->eng);
	}
	skein_assert(!m->allocs);
	free(m);
	return 0;
}
