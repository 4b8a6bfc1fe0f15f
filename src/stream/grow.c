/* SPDX-License-Identifier: MIT */
/*
 * grow.c - larger rings: see grow.h.
 *
 * One turn at a time: the writer asks for a ring, or goes back to its first
 * one, only when the peer has read all of the ring before (out.old). So when
 * the peer hears the question it reads in the ring that is full.
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
	struct stream_grow *g = &s->grow;

	part_free(s, &g->mirror);
	part_free(s, &g->next);
	part_free(s, &g->old);
	part_free(s, &g->ring);
	part_free(s, &g->granted);
	part_free(s, &g->left[0]);
	part_free(s, &g->left[1]);
}

bool grow_is_large(const struct stream *s)
{
	const struct stream_grow *g = &s->grow;

	return g->mirror.size || g->next.size || g->old.size || g->ring.size ||
	       g->granted.size || s->out.old.size;
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

/* The peer has read all of the ring that was left. */
static void settle_old(struct stream *s)
{
	struct stream_grow *g = &s->grow;

	if (!s->out.old.size || s->out.head < s->out.turn ||
	    (int32_t)(s->qp->done - g->turn_at) < 0)
		return;
	part_free(s, &g->old);
	s->out.old.size = 0;
}

bool grow_ready(const struct stream *s)
{
	return s->grow.step == GROW_GRANTED && !s->owes_probe &&
	       (int32_t)(s->qp->done - s->grow.probe) >= 0 &&
	       !s->out.old.size && !s->back.on && !s->ended &&
	       !s->reserved.room;
}

/* Leads the peer into the ring that was granted, or, for want of one, into its
 * first one. */
static bool turn(struct stream *s)
{
	struct stream_grow *g = &s->grow;
	bool up = g->step == GROW_GRANTED;
	uint32_t size = up ? g->next.size : s->ring_size;
	const uint8_t *was = s->mirror;

	if (stream_post_ring(s, size))
		return false;
	stream_out_turn(&s->out, was, size);
	g->turn_at = s->last;
	g->old = g->mirror;
	g->mirror.size = 0;
	if (up) {
		g->mirror = g->next;
		g->next.size = 0;
		g->step = GROW_NONE;
		s->mirror = g->mirror.slot.mem;
		s->out_lkey = g->mirror.mr->lkey;
		s->out_rkey = g->next_rkey;
		s->out_mem = g->next_mem;
	} else {
		stream_first_ring(s);
	}
	return true;
}

bool grow_full(struct stream *s)
{
	struct stream_grow *g = &s->grow;
	struct stream_place p;

	if (stream_out_place(&s->out, STREAM_DATA, &p))
		return false;
	if (grow_ready(s))
		return turn(s);
	if (g->step != GROW_NONE || !s->peer.grows ||
	    s->out.size >= STREAM_RING_MAX || s->back.on ||
	    s->out.pos < g->ask_pos ||
	    (s->out.old.size && s->out.head < s->out.turn))
		return false;
	g->step = GROW_WANTED;
	tend(s);
	return false;
}

/* The writer asks again later. */
static void give_up(struct stream *s)
{
	struct stream_grow *g = &s->grow;

	g->step = GROW_NONE;
	g->ask_pos = s->out.pos + (uint64_t)GROW_PATIENCE * s->out.size;
	tend(s);
}

static void want(struct stream *s)
{
	struct stream_grow *g = &s->grow;

	if (is_over(s) || s->out.old.size || s->back.on)
		g->step = GROW_NONE; /* a full ring says it again */
	else if (part_make(s, &g->next, 2 * s->out.size, 0))
		give_up(s);
	else
		g->step = GROW_ASKED;
	s->owes_grow = g->step == GROW_ASKED;
}

void grow_answer(struct stream *s, const struct stream_msg *m)
{
	struct stream_grow *g = &s->grow;

	if (is_over(s))
		return;
	if (!s->connected || g->step != GROW_ASKED ||
	    (m->answer == STREAM_TAKEN && (m->addr.ring_size != g->next.size ||
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

static void leave(struct stream *s, struct stream_part *part)
{
	struct stream_part *left = s->grow.left;

	if (!part->size)
		return;
	skein_assert(!left[0].size || !left[1].size);
	left[left[0].size != 0] = *part;
	part->size = 0;
	tend(s);
}

/* Between two calls of grow_tend(), which grants a ring, at most two are
 * left. */
void grow_turned(struct stream *s)
{
	struct stream_grow *g = &s->grow;

	if (g->granted.size && !s->in.next.size) {
		leave(s, &g->ring);
		g->ring = g->granted;
		g->granted.size = 0;
	}
	if (g->ring.size && s->in.at.ring != g->ring.slot.mem)
		leave(s, &g->ring);
	stream_in_turned(&s->in);
	s->owes_head = !s->back.on;
}

void grow_ask(struct stream *s)
{
	struct stream_grow *g = &s->grow;

	if (g->asked || g->granted.size || s->owes_grant ||
	    g->max <= s->ring_size) {
		stream_break(s, -EPROTO);
		return;
	}
	g->asked = true;
	tend(s);
}

static void grant(struct stream *s)
{
	struct stream_grow *g = &s->grow;
	uint32_t size = 2 * s->in.at.size;

	g->asked = false;
	if (is_over(s))
		return;
	if (size <= g->max &&
	    !part_make(s, &g->granted, size, IBV_ACCESS_REMOTE_WRITE))
		s->in.next = (struct stream_ring){g->granted.slot.mem, size};
	s->owes_grant = true;
}

bool grow_post_answer(struct stream *s)
{
	const struct stream_part *part = &s->grow.granted;
	struct stream_msg m = {.type = STREAM_GROWN,
			       .number = s->peer.number,
			       .answer = STREAM_SHORT};

	if (part->size) {
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

	part_free(s, &g->left[0]);
	part_free(s, &g->left[1]);
	stream_qp_reap(s->qp);
	settle_old(s);
	if (g->step == GROW_NONE)
		part_free(s, &g->next);
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
	    s->out.old.size)
		return;
	/* A ring that was granted and never used goes by being used. */
	if (grow_ready(s) || (g->step == GROW_NONE && g->mirror.size))
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
