/* SPDX-License-Identifier: MIT */
/*
 * slot.c - small messages by slots: docs/protocol/mcast.md, section 9.
 *
 * Like any other message, a small one is the message that this member works on
 * (e->x), but it has no schedule, no READY and no memory of its own: its bytes
 * are copied out of the slot, or given to block() in place.
 */
#include "mcast/slot.h"

#include <errno.h>

#include "base/assert.h"
#include "mcast/eng.h"

#define HEAD ((uint32_t)sizeof(struct mcast_rec))

/* --- memory ------------------------------------------------------------- */

static void send_done(struct mcast_op *op, int err)
{
	struct mcast_slot_send *send =
		container_of(op, struct mcast_slot_send, op);

	send->eng->slots.flying[send->slot]--;
	send->eng->slots.under_way--;
}

static int root_init(struct mcast_eng *e)
{
	struct mcast_slots *s = &e->slots;
	struct mcast_port *port = e->port;

	s->seqs = port->ops->alloc(port, s->count * sizeof(*s->seqs));
	s->flying = port->ops->alloc(port, s->count * sizeof(*s->flying));
	s->sends = port->ops->alloc(port, (size_t)s->count * e->n_nbs *
						  sizeof(*s->sends));
	if (!s->seqs || !s->flying || !s->sends)
		return -ENOMEM;
	for (uint32_t i = 0; i < s->count * e->n_nbs; i++) {
		s->sends[i].op.done = send_done;
		s->sends[i].eng = e;
		s->sends[i].slot = i / e->n_nbs;
	}
	return 0;
}

int mcast_slots_init(struct mcast_eng *e)
{
	struct mcast_slots *s = &e->slots;
	struct mcast_port *port = e->port;
	int rc;

	if (!e->conf.slots || e->conf.n < 2)
		return 0;
	skein_assert(e->conf.small_max <= e->conf.block_size);
	s->count = e->conf.slots;
	s->stride = mcast_slot_stride(e->conf.small_max);
	rc = port->ops->mem_get(port, (size_t)s->count * s->stride, &s->mem,
				&s->handle);
	if (rc)
		return rc;
	if (mcast_is_root(e))
		return root_init(e);
	s->recs = port->ops->alloc(port, s->count * sizeof(*s->recs));
	return s->recs ? 0 : -ENOMEM;
}

void mcast_slots_fini(struct mcast_eng *e)
{
	struct mcast_slots *s = &e->slots;
	struct mcast_port *port = e->port;

	if (s->handle)
		port->ops->mem_put(port, s->handle);
	port->ops->free(port, s->recs);
	port->ops->free(port, s->seqs);
	port->ops->free(port, s->flying);
	port->ops->free(port, s->sends);
	*s = (struct mcast_slots){0};
}

static uint32_t slot_of(const struct mcast_slots *s, uint64_t number)
{
	return (uint32_t)(number % s->count);
}

static struct mcast_buf slot_buf(const struct mcast_slots *s, uint64_t number)
{
	struct mcast_buf buf = s->mem;

	buf.addr += (size_t)slot_of(s, number) * s->stride;
	return buf;
}

/* --- rings -------------------------------------------------------------- */

void mcast_slot_fill_ring(const struct mcast_eng *e, struct mcast_rec *rec)
{
	rec->type = MCAST_RING;
	rec->size = (uint64_t)(uintptr_t)e->slots.mem.addr;
	rec->len = e->slots.count * e->slots.stride;
	rec->rkey = e->slots.mem.rkey;
}

void mcast_slot_ring(struct mcast_eng *e, struct mcast_nb *nb,
		     const struct mcast_rec *rec)
{
	if (!mcast_is_root(e) || nb->has_ring || !e->slots.count ||
	    rec->len != e->slots.count * e->slots.stride) {
		mcast_protocol_error(e, nb, "a RING that cannot be");
		return;
	}
	nb->has_ring = true;
	nb->ring_addr = rec->size;
	nb->ring_rkey = rec->rkey;
}

/* --- the root ----------------------------------------------------------- */

bool mcast_slot_fits(const struct mcast_eng *e, uint64_t size)
{
	return e->slots.count && size <= e->conf.small_max;
}

void mcast_slot_start(struct mcast_eng *e, const struct skein_mcast_msg *msg,
		      const struct mcast_dest *dest)
{
	struct mcast_xfer *x = &e->x;

	x->msg = *msg;
	x->msg.tag = dest->tag;
	x->base = dest->buf;
	x->stream = !dest->buf.addr && msg->size;
	x->active = x->small = true;
	e->slots.to = 0;
	e->slots.filled = false;
}

/* Has every receiver finished with the message in the next slot, and the device
 * with its WRITEs? */
static bool slot_free(const struct mcast_eng *e)
{
	const struct mcast_slots *s = &e->slots;
	uint32_t slot = slot_of(s, s->next);

	return !s->flying[slot] &&
	       (s->next < s->count || s->seqs[slot] < e->delivered);
}

static void root_seal(struct mcast_eng *e)
{
	struct mcast_slots *s = &e->slots;
	struct mcast_xfer *x = &e->x;
	struct mcast_buf buf = slot_buf(s, s->next);
	struct mcast_rec rec = {.type = MCAST_SMALL,
				.number = (uint32_t)s->next,
				.msg = x->msg.seq,
				.size = x->msg.size};

	if (e->conf.checksum)
		rec.sum = mcast_sum(buf.addr + HEAD, x->msg.size,
				    mcast_seed(e->conf.list, x->msg.seq), 0);
	memcpy(buf.addr, &rec, HEAD);
	x->msg.digest = mcast_digest_add(0, rec.sum, 0);
	s->seqs[slot_of(s, s->next)] = x->msg.seq;
	s->filled = true;
}

static struct skein_mcast_block whole(const struct mcast_eng *e,
				      uint64_t number)
{
	return (struct skein_mcast_block){
		.len = (uint32_t)e->x.msg.size,
		.data = slot_buf(&e->slots, number).addr + HEAD,
	};
}

static void root_fill(struct mcast_eng *e)
{
	struct skein_mcast_block b = whole(e, e->slots.next);
	struct mcast_xfer *x = &e->x;
	int rc;

	if (x->stream) {
		/* Before the call: the application may finish inside. */
		x->n_app = 1;
		rc = e->port->ops->fill(e->port, &x->msg, &b);
		if (rc != SKEIN_MCAST_LATER)
			mcast_slot_block_done(e, rc);
		return;
	}
	if (x->base.addr)
		memcpy(b.data, x->base.addr, b.len);
	root_seal(e);
}

static bool nb_takes(const struct mcast_nb *nb)
{
	return nb->has_ring && mcast_nb_open(nb);
}

/* Posts to the next neighbour. 0 or an error. */
static int root_post(struct mcast_eng *e)
{
	struct mcast_slots *s = &e->slots;
	struct mcast_nb *nb = &e->nbs[s->to];
	struct mcast_buf from = slot_buf(s, s->next);
	uint32_t slot = slot_of(s, s->next);
	uint32_t len = (uint32_t)e->x.msg.size;
	int rc;

	rc = e->port->ops->small(e->port, s->to, &from, HEAD + len,
				 nb->ring_addr + (uint64_t)slot * s->stride,
				 nb->ring_rkey, slot,
				 &s->sends[slot * e->n_nbs + s->to].op);
	if (rc) {
		e->again = true;
		return rc;
	}
	s->flying[slot]++;
	s->under_way++;
	s->to++;
	e->stats.blocks_sent++;
	e->stats.bytes_sent += len;
	return 0;
}

static bool root_may_fill(const struct mcast_eng *e)
{
	return !e->slots.filled && !e->x.n_app && slot_free(e);
}

static int root_step(struct mcast_eng *e)
{
	struct mcast_slots *s = &e->slots;
	int moved = 0;

	if (!e->x.active || !e->x.small)
		return 0;
	if (root_may_fill(e)) {
		root_fill(e);
		moved++;
	}
	while (!e->over && s->filled && s->to < e->n_nbs &&
	       nb_takes(&e->nbs[s->to]) && root_post(e) == 0)
		moved++;
	if (e->over || !s->filled || s->to < e->n_nbs)
		return moved;
	s->next++;
	e->stats.small++;
	return moved + mcast_xfer_end(e, 0);
}

static bool root_works(const struct mcast_eng *e)
{
	const struct mcast_slots *s = &e->slots;

	if (!e->x.active || !e->x.small)
		return false;
	return root_may_fill(e) ||
	       (s->filled &&
		(s->to == e->n_nbs || (!e->again && nb_takes(&e->nbs[s->to]))));
}

/* --- receivers ---------------------------------------------------------- */

bool mcast_slot_may_precede(const struct mcast_eng *e, uint64_t msg)
{
	/* The small message that is leaving its slot now precedes msg, and is
	 * not counted in done yet. */
	uint64_t least = e->done + (e->x.active && e->x.small);

	return msg >= least && msg - e->done <= e->slots.count;
}

/* May the root send this now? */
static bool in_right(const struct mcast_eng *e, const struct mcast_nb *nb,
		     const struct mcast_rec *rec, uint32_t imm_value,
		     uint32_t byte_len)
{
	const struct mcast_slots *s = &e->slots;
	uint64_t last;

	if (!mcast_rec_valid(rec, MCAST_WORDS, (uint32_t)s->next, imm_value) ||
	    rec->type != MCAST_SMALL || rec->size > e->conf.small_max ||
	    byte_len != HEAD + rec->size || nb->bye_in || rec->msg < e->done ||
	    (e->resume && !rec->msg))
		return false;
	last = s->next ? s->recs[slot_of(s, s->next - 1)].msg : 0;
	return !s->next || rec->msg > last;
}

void mcast_slot_in(struct mcast_eng *e, uint32_t i, uint32_t imm_value,
		   uint32_t byte_len, uint64_t now_ns)
{
	struct mcast_slots *s = &e->slots;
	struct mcast_nb *nb = &e->nbs[i];
	struct mcast_rec rec;

	nb->heard_ns = now_ns;
	if (nb->fail_in & 1u << MCAST_WORDS || e->over)
		return; /* no check of what was under way before FAIL */
	if (nb->rank || !s->count || !nb->hello_in ||
	    nb->owe & MCAST_OWE_RING || s->next - s->taken == s->count) {
		mcast_protocol_error(e, nb, "a small message out of place");
		return;
	}
	/* A copy: what is checked is what is used. */
	memcpy(&rec, slot_buf(s, s->next).addr, HEAD);
	if (!in_right(e, nb, &rec, imm_value, byte_len)) {
		mcast_protocol_error(e, nb, "a small message that cannot be");
		return;
	}
	s->recs[slot_of(s, s->next)] = rec;
	s->next++;
}

static bool sum_right(struct mcast_eng *e, const struct mcast_rec *rec,
		      const uint8_t *data)
{
	if (!e->conf.checksum ||
	    mcast_sum(data, rec->size, mcast_seed(e->conf.list, rec->msg), 0) ==
		    rec->sum)
		return true;
	e->stats.bad_blocks++;
	mcast_eng_fail(e, 0, -EBADMSG, e->conf.rank);
	return false;
}

/* Gives it to the application, which says where the bytes go. */
static int hand_up(struct mcast_eng *e, const struct mcast_rec *rec)
{
	struct mcast_xfer *x = &e->x;
	struct mcast_dest dest = {0};
	struct skein_mcast_block b;
	int rc;

	mcast_msg_set(e, &x->msg, rec->msg, rec->size, NULL);
	rc = e->port->ops->incoming(e->port, &x->msg, &dest);
	if (rc)
		return rc;
	x->active = x->small = true; /* it will end with done() */
	x->msg.tag = dest.tag;
	if (dest.err || e->over)
		return dest.err;
	x->msg.digest = mcast_digest_add(0, e->conf.checksum ? rec->sum : 0, 0);
	b = whole(e, e->slots.taken);
	x->stream = !dest.buf.addr && rec->size;
	x->n_app = x->stream;
	if (x->stream) {
		rc = e->port->ops->block_in(e->port, &x->msg, &b);
		if (rc != SKEIN_MCAST_LATER)
			mcast_slot_block_done(e, rc);
		return 0;
	}
	if (dest.buf.addr)
		memcpy(dest.buf.addr, b.data, b.len);
	e->stats.copies += b.len;
	x->n_have = 1;
	return 0;
}

static bool may_take(const struct mcast_eng *e)
{
	const struct mcast_slots *s = &e->slots;

	return !e->x.active && s->next != s->taken &&
	       s->recs[slot_of(s, s->taken)].msg <= e->done;
}

static void take(struct mcast_eng *e)
{
	struct mcast_slots *s = &e->slots;
	const struct mcast_rec *rec = &s->recs[slot_of(s, s->taken)];
	int rc;

	if (rec->msg < e->done) {
		mcast_protocol_error(e, &e->nbs[e->above],
				     "a message in two ways");
		return;
	}
	if (!sum_right(e, rec, slot_buf(s, s->taken).addr + HEAD))
		return;
	rc = hand_up(e, rec);
	if (rc)
		mcast_eng_fail(e, e->conf.rank, rc, e->conf.rank);
	if (rc || e->over)
		return;
	e->stats.blocks_received++;
	e->stats.bytes_received += rec->size;
}

static bool all_here(const struct mcast_eng *e)
{
	return e->x.active && e->x.small && e->x.n_have;
}

static int receiver_step(struct mcast_eng *e)
{
	int moved = 0;

	if (may_take(e)) {
		take(e);
		moved++;
	}
	if (e->over || !all_here(e))
		return moved;
	e->slots.taken++;
	e->stats.small++;
	return moved + mcast_xfer_end(e, 0);
}

bool mcast_slot_waiting(const struct mcast_eng *e)
{
	return !mcast_is_root(e) && e->slots.next != e->slots.taken;
}

/* --- both --------------------------------------------------------------- */

void mcast_slot_block_done(struct mcast_eng *e, int status)
{
	struct mcast_xfer *x = &e->x;

	if (!x->n_app)
		return;
	x->n_app = 0;
	if (status)
		mcast_eng_fail(e, e->conf.rank, status, e->conf.rank);
	else if (mcast_is_root(e))
		root_seal(e);
	else
		x->n_have = 1;
}

int mcast_slot_step(struct mcast_eng *e)
{
	int moved = 0, now = 1;

	if (!e->slots.count)
		return 0;
	for (unsigned i = 0; i < MCAST_SLOT_BURST && now && !e->over; i++) {
		now = mcast_is_root(e) ? root_step(e) + mcast_xfer_start_next(e)
				       : receiver_step(e);
		moved += now;
	}
	return moved;
}

bool mcast_slot_has_work(const struct mcast_eng *e)
{
	if (!e->slots.count)
		return false;
	return mcast_is_root(e) ? root_works(e) : may_take(e) || all_here(e);
}
