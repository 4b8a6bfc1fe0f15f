/* SPDX-License-Identifier: MIT */
/*
 * grow.c - larger rings: see grow.h.
 *
 * Each ring that is asked for is twice the last one that was granted, and the
 * writer goes back to its first ring only when the peer has read all. So the
 * rings between the reader's and the writer's are of all sizes between these.
 *
 * A mirror is freed when the peer's Head is beyond its last record, and that
 * record's WRITE has ended: a device may read it until then. A ring is freed
 * when this end has read the RING record: the peer posts nothing to it behind
 * that.
 */
#include "stream/stream.h"

#include "base/assert.h"
#include "stream/section.h"

#include <errno.h>

/* --- memory -------------------------------------------------------------- */

static int part_make(struct stream *s, struct stream_part *part, uint32_t size,
		     unsigned access)
{
	struct stream_host *h = s->host;
	struct stream_slot *p = &part->slot;
	int rc = stream_host_get(h, STREAM_PART, size, p);

	if (rc)
		return rc;
	rc = h->dev->ops->reg_mr(h->dev, h->pd, p->mem, size,
				 IBV_ACCESS_LOCAL_WRITE | access, p->fd, p->off,
				 &part->mr);
	if (rc)
		stream_host_put(h, p);
	else
		part->size = size;
	return rc;
}

static void part_free(struct stream *s, struct stream_part *part)
{
	struct stream_host *h = s->host;

	if (!part->size)
		return;
	h->dev->ops->dereg_mr(h->dev, part->mr);
	stream_host_put(h, &part->slot);
	part->size = 0;
}

void grow_free(struct stream *s)
{
	uint32_t i;

	for (i = 0; i < STREAM_SIZES; i++) {
		part_free(s, &s->grow.mirrors[i]);
		part_free(s, &s->grow.rings[i]);
	}
}

bool grow_is_large(const struct stream *s)
{
	uint32_t i;

	for (i = 0; i < STREAM_SIZES; i++)
		if (s->grow.mirrors[i].size || s->grow.rings[i].size)
			return true;
	return s->out.left;
}

/* stream_qp_tend() comes. */
static void tend(struct stream *s)
{
	if (!list_linked(&s->tending))
		list_add_tail(&s->qp->tending, &s->tending);
}

/* Nothing is written any more. */
static bool is_over(const struct stream *s)
{
	return s->broken || s->qp->broken || s->closed || s->peer_closed ||
	       s->left;
}

/* --- the writing half ---------------------------------------------------- */

/* The peer has read all of a ring that was left. */
static void settle_old(struct stream *s)
{
	struct stream_grow *g = &s->grow;
	uint32_t i;

	for (i = 0; i < STREAM_SIZES; i++) {
		if (!(s->out.left & 1u << i) ||
		    s->out.head < s->out.old[i].end ||
		    (int32_t)(s->qp->done - g->turn_at[i]) < 0)
			continue;
		part_free(s, &g->mirrors[i]);
		s->out.left &= ~(1u << i);
	}
}

bool grow_ready(const struct stream *s)
{
	return s->grow.step == GROW_GRANTED && !s->owes_probe &&
	       (int32_t)(s->qp->done - s->grow.probe) >= 0 && !s->back.on &&
	       !s->ended && !s->reserved.room;
}

/* Leads the peer into the ring that was granted, or, for want of one, into its
 * first one. */
static bool turn(struct stream *s)
{
	struct stream_grow *g = &s->grow;
	bool up = g->step == GROW_GRANTED;
	uint32_t size = up ? g->next : s->ring_size;
	const struct stream_part *part;

	if (stream_post_ring(s, size))
		return false;
	g->turn_at[stream_size_index(s->out.size)] = s->last;
	stream_out_turn(&s->out, s->mirror, size);
	if (up) {
		part = &g->mirrors[stream_size_index(size)];
		g->next = 0;
		g->step = GROW_NONE;
		s->mirror = part->slot.mem;
		s->out_lkey = part->mr->lkey;
		s->out_rkey = g->next_rkey;
		s->out_mem = g->next_mem;
	} else {
		stream_first_ring(s);
	}
	return true;
}

/* Its owner is woken, once: it may have another way. */
static void refuse(struct stream *s)
{
	if (s->grow.refused)
		return;
	s->grow.refused = true;
	tend(s);
	stream_qp_wake(s->qp, s);
}

void grow_wish(struct stream *s)
{
	struct stream_grow *g = &s->grow;

	if (!s->peer.grows)
		refuse(s);
	if (g->step != GROW_NONE || !s->peer.grows ||
	    s->out.size >= STREAM_RING_MAX || s->back.on ||
	    s->out.pos < g->ask_pos ||
	    (stream_out_went_down(&s->out) && s->out.head < s->out.turn))
		return;
	g->step = GROW_WANTED;
	tend(s);
}

bool grow_full(struct stream *s)
{
	struct stream_place p;

	if (stream_out_place(&s->out, STREAM_DATA, &p))
		return false;
	if (grow_ready(s))
		return turn(s);
	grow_wish(s);
	return false;
}

/* The writer asks again later. */
static void give_up(struct stream *s)
{
	struct stream_grow *g = &s->grow;

	g->step = GROW_NONE;
	g->ask_pos = s->out.pos + (uint64_t)GROW_PATIENCE * s->out.size;
	tend(s);
	refuse(s);
}

static void want(struct stream *s)
{
	struct stream_grow *g = &s->grow;
	uint32_t size = 2 * s->out.size;

	if (is_over(s) || stream_out_went_down(&s->out) || s->back.on) {
		g->step = GROW_NONE; /* a full ring says it again */
	} else if (part_make(s, &g->mirrors[stream_size_index(size)], size,
			     0)) {
		give_up(s);
	} else {
		g->next = size;
		g->step = GROW_ASKED;
	}
	s->owes_grow = g->step == GROW_ASKED;
}

void grow_answer(struct stream *s, const struct stream_msg *m)
{
	struct stream_grow *g = &s->grow;

	if (is_over(s))
		return;
	if (!s->connected || g->step != GROW_ASKED ||
	    (m->answer == STREAM_TAKEN && (m->addr.ring_size != g->next ||
					   m->addr.secret != s->peer.secret))) {
		stream_break(s, -EPROTO);
		return;
	}
	if (m->answer != STREAM_TAKEN || s->back.on) {
		give_up(s);
		return;
	}
	g->next_mem = m->addr.mem;
	g->next_rkey = m->addr.rkey;
	g->step = GROW_GRANTED;
	s->owes_probe = true;
	stream_pay(s);
	/* A writer that waits for room has some. */
	stream_qp_wake(s->qp, s);
}

/* --- the reading half ----------------------------------------------------- */

void grow_turned(struct stream *s)
{
	stream_in_turned(&s->in);
	s->owes_head = !s->back.on;
	tend(s);
}

static void free_left(struct stream *s)
{
	struct stream_part *part;
	uint32_t i;

	for (i = 0; i < STREAM_SIZES; i++) {
		part = &s->grow.rings[i];
		if (part->size && !s->in.next[i] &&
		    s->in.at.ring != part->slot.mem)
			part_free(s, part);
	}
}

void grow_ask(struct stream *s)
{
	struct stream_grow *g = &s->grow;

	if (g->asked || s->owes_grant || g->max <= s->ring_size) {
		stream_break(s, -EPROTO);
		return;
	}
	g->asked = true;
	tend(s);
}

static void grant(struct stream *s)
{
	struct stream_grow *g = &s->grow;
	uint32_t size = s->in.at.size, i;

	g->asked = false;
	g->granted = 0;
	if (is_over(s))
		return;
	do {
		size *= 2;
		i = stream_size_index(size);
	} while (size <= g->max && s->in.next[i]);
	if (size <= g->max &&
	    !part_make(s, &g->rings[i], size, IBV_ACCESS_REMOTE_WRITE)) {
		s->in.next[i] = g->rings[i].slot.mem;
		g->granted = size;
	}
	s->owes_grant = true;
}

bool grow_post_answer(struct stream *s)
{
	const struct stream_part *part;
	struct stream_msg m = {.type = STREAM_GROWN,
			       .number = s->peer.number,
			       .answer = STREAM_SHORT};

	if (s->grow.granted) {
		part = &s->grow.rings[stream_size_index(s->grow.granted)];
		m.answer = STREAM_TAKEN;
		stream_addr(s, &m.addr);
		m.addr.mem = (uintptr_t)part->slot.mem;
		m.addr.rkey = part->mr->rkey;
		m.addr.ring_size = part->size;
	}
	return stream_qp_try_send(s->qp, &m);
}

/* --- by the host's thread -------------------------------------------------- */

void grow_tend(struct stream *s)
{
	struct stream_grow *g = &s->grow;

	free_left(s);
	stream_qp_reap(s->qp);
	settle_old(s);
	if (g->step == GROW_NONE && g->next) {
		part_free(s, &g->mirrors[stream_size_index(g->next)]);
		g->next = 0;
	}
	if (g->step == GROW_WANTED)
		want(s);
	if (g->asked)
		grant(s);
	stream_pay(s);
}

static void look_in(struct stream *s, uint64_t now_ns)
{
	struct stream_grow *g = &s->grow;
	enum stream_type type;
	const uint8_t *data;
	uint32_t len;

	/* A RING without a record behind it. */
	stream_in_peek(&s->in, &type, &data, &len);
	if (s->in.turned)
		grow_turned(s);
	if (s->in.pos != g->in_pos) {
		g->in_pos = s->in.pos;
		g->in_ns = now_ns;
	} else if (now_ns - g->in_ns >= GROW_QUIET_NS &&
		   s->in.head_sent != s->in.pos) {
		/* The writer learns that all was read. */
		s->owes_head = true;
	}
}

static void look_out(struct stream *s, uint64_t now_ns)
{
	struct stream_grow *g = &s->grow;

	if (stream_take_head(s) || s->ended || s->reserved.room)
		return;
	if (s->out.pos != g->out_pos) {
		g->out_pos = s->out.pos;
		g->out_ns = now_ns;
		return;
	}
	if (now_ns - g->out_ns < GROW_QUIET_NS || s->out.head != s->out.pos ||
	    s->out.left)
		return;
	/* A ring that was granted and never used goes by being used. */
	if (grow_ready(s) ||
	    (g->step == GROW_NONE && s->mirror != s->ring + s->ring_size))
		turn(s);
}

void grow_look(struct stream *s, uint64_t now_ns)
{
	if (!is_over(s) && !s->back.on) {
		look_in(s, now_ns);
		look_out(s, now_ns);
	}
	grow_tend(s);
}
