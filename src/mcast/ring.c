/* SPDX-License-Identifier: MIT */
/*
 * ring.c - buffers of registered memory for streamed messages, such as files
 * larger than memory.
 *
 * A receiver grants a buffer, a block comes into it, and the buffer is free
 * again when the block has been sent as often as the schedule says and the
 * application has finished with it. need.c counts beforehand how many buffers
 * that takes; with so many, the argument in xfer.c that a message never stops
 * holds for streams too. The root's buffers hold the next sends; the root asks
 * the application again for a block that it sends again later. A member of a
 * resumed object may have buffers of both kinds: resume/stream.c.
 */
#include "mcast/eng.h"

#include <errno.h>

/* Buffers for fill() beside those for receives: resume/stream.c. */
#define FED_SLOTS 2u

/* --- up and down -------------------------------------------------------- */

static int make(struct mcast_eng *e, uint32_t count)
{
	struct mcast_ring *r = &e->ring;
	uint64_t len = (uint64_t)count * e->conf.block_size;

	if (r->count >= count)
		return 0;
	mcast_ring_free(e);
	if (count > e->conf.ring_blocks && len > MCAST_RING_MAX)
		return -EFBIG;
	r->buffers = e->port->ops->alloc(e->port, count * sizeof(*r->buffers));
	if (!r->buffers)
		return -ENOMEM;
	if (e->port->ops->mem_get(e->port, len, &r->mem, &r->handle)) {
		e->port->ops->free(e->port, r->buffers);
		r->buffers = NULL;
		return -ENOMEM;
	}
	r->count = count;
	return 0;
}

int mcast_ring_reserve(struct mcast_eng *e)
{
	return make(e, e->conf.ring_blocks > 2 ? e->conf.ring_blocks : 2);
}

/* How many buffers; -EAGAIN: the count is not finished. */
static int find_count(struct mcast_eng *e, uint32_t *count)
{
	struct mcast_xfer *x = &e->x;
	const struct mcast_need *n = &x->need;
	int rc = 0;

	if (mcast_is_root(e) && !mcast_resume_active(e)) {
		x->feed_most = UINT32_MAX;
		*count = 2;
		return 0;
	}
	if (!x->left)
		rc = mcast_need_begin(e);
	if (rc)
		return rc;
	if (!mcast_need_step(e))
		return -EAGAIN;
	x->feed_most = n->own ? FED_SLOTS : 0;
	if (n->own && !n->most)
		x->feed_most = UINT32_MAX; /* all buffers */
	/* One more: a block is written while another is read. */
	*count = n->most + (n->most && n->most < x->msg.blocks) +
		 (n->own ? FED_SLOTS : 0);
	return 0;
}

int mcast_ring_begin(struct mcast_eng *e)
{
	uint32_t count;
	int rc = find_count(e, &count);

	if (rc)
		return rc;
	if (count < e->conf.ring_blocks)
		count = e->conf.ring_blocks;
	rc = make(e, count);
	if (rc)
		return rc;
	memset(e->ring.buffers, 0, e->ring.count * sizeof(*e->ring.buffers));
	if (e->x.feed_most > e->ring.count)
		e->x.feed_most = e->ring.count;
	return 0;
}

void mcast_ring_free(struct mcast_eng *e)
{
	if (e->ring.handle)
		e->port->ops->mem_put(e->port, e->ring.handle);
	e->port->ops->free(e->port, e->ring.buffers);
	e->ring = (struct mcast_ring){0};
}

/* --- slots -------------------------------------------------------------- */

bool mcast_ring_room(const struct mcast_eng *e, bool fed)
{
	uint32_t most = e->x.feed_most, used = 0;

	if (!fed)
		most = e->ring.count - most;
	for (uint32_t i = 0; i < e->ring.count; i++)
		used += e->ring.buffers[i].state != MCAST_BUFFER_FREE &&
			e->ring.buffers[i].fed == fed;
	return used < most;
}

uint32_t mcast_ring_take(struct mcast_eng *e, bool fed, uint32_t unsent)
{
	uint32_t i = 0;

	if (!mcast_ring_room(e, fed))
		return MCAST_NO_BUFFER;
	while (e->ring.buffers[i].state != MCAST_BUFFER_FREE)
		i++;
	e->ring.buffers[i] =
		(struct mcast_buffer){.state = MCAST_BUFFER_GRANTED,
				      .fed = fed,
				      .unsent = unsent,
				      .order = ++e->x.taken};
	return i;
}

/* The oldest buffer with this block and a send left. */
uint32_t mcast_ring_find(const struct mcast_eng *e, uint32_t block)
{
	const struct mcast_buffer *s, *best = NULL;

	for (uint32_t i = 0; i < e->ring.count; i++) {
		s = &e->ring.buffers[i];
		if (s->state >= MCAST_BUFFER_FILLING && s->block == block &&
		    s->unsent && (!best || s->order < best->order))
			best = s;
	}
	if (!best || best->state != MCAST_BUFFER_HAVE)
		return MCAST_NO_BUFFER;
	return (uint32_t)(best - e->ring.buffers);
}

void mcast_ring_release(struct mcast_eng *e, uint32_t i)
{
	struct mcast_buffer *s = &e->ring.buffers[i];

	if (s->state == MCAST_BUFFER_HAVE && !s->app && !s->unsent &&
	    !s->flying)
		s->state = MCAST_BUFFER_FREE;
}

struct mcast_buf mcast_ring_buf(const struct mcast_eng *e, uint32_t buffer)
{
	struct mcast_buf buf = e->ring.mem;

	buf.addr += (uint64_t)buffer * e->conf.block_size;
	return buf;
}

static struct skein_mcast_block block_at(const struct mcast_eng *e, uint32_t i,
					 uint32_t block)
{
	return (struct skein_mcast_block){
		.index = block,
		.len = mcast_block_len(&e->x.msg, block),
		.off = (uint64_t)block * e->x.msg.block_size,
		.data = mcast_ring_buf(e, i).addr,
	};
}

void mcast_ring_have(struct mcast_eng *e, uint32_t i, uint32_t block,
		     uint64_t sum, bool had)
{
	struct skein_mcast_block b = block_at(e, i, block);
	struct mcast_buffer *s = &e->ring.buffers[i];
	int rc;

	s->state = MCAST_BUFFER_HAVE;
	s->block = block;
	s->sum = sum;
	if (had) {
		mcast_ring_release(e, i);
		return;
	}
	/* Before the call: the application may finish with it inside. */
	s->app = true;
	e->x.n_app++;
	rc = e->port->ops->block_in(e->port, &e->x.msg, &b);
	if (rc == SKEIN_MCAST_LATER)
		return;
	mcast_eng_block_done(e, e->x.msg.seq, block, rc);
}

/* --- the application is through with a block ---------------------------- */

static struct mcast_buffer *held(const struct mcast_eng *e, uint32_t block)
{
	struct mcast_buffer *s, *best = NULL;

	for (uint32_t i = 0; i < e->ring.count; i++) {
		s = &e->ring.buffers[i];
		if (s->app && s->block == block &&
		    (!best || s->order < best->order))
			best = s;
	}
	return best;
}

static void filled(struct mcast_eng *e, uint32_t i)
{
	struct mcast_buffer *s = &e->ring.buffers[i];

	s->state = MCAST_BUFFER_HAVE;
	if (e->conf.checksum)
		s->sum = mcast_sum(mcast_ring_buf(e, i).addr,
				   mcast_block_len(&e->x.msg, s->block),
				   e->x.seed, s->block);
	/* A resumed block that is read again must be the block that was read,
	 * or came, before. */
	if (mcast_resume_active(e) && e->conf.checksum &&
	    e->x.sums[s->block] != s->sum)
		mcast_eng_fail(e, e->conf.rank, -EBADMSG, e->conf.rank);
	mcast_have_set(e, s->block, s->sum);
}

void mcast_eng_block_done(struct mcast_eng *e, uint64_t seq, uint32_t block,
			  int status)
{
	struct mcast_buffer *s;
	uint32_t i;

	if (!seq && mcast_resume_reading(e)) {
		mcast_resume_read_done(e, block, status);
		return;
	}
	if (!e->x.active || !e->x.stream || e->x.msg.seq != seq)
		return; /* a failure has ended that message */
	if (e->x.small) {
		if (!block)
			mcast_slot_block_done(e, status);
		return;
	}
	s = held(e, block);
	if (!s)
		return;
	i = (uint32_t)(s - e->ring.buffers);
	s->app = false;
	e->x.n_app--;
	if (status) {
		mcast_eng_fail(e, e->conf.rank, status, e->conf.rank);
		return;
	}
	if (s->state == MCAST_BUFFER_FILLING)
		filled(e, i);
	mcast_ring_release(e, i);
}

/* --- the root's source -------------------------------------------------- */

/* The buffer asked for last, if it is for this block. */
static struct mcast_buffer *same_again(const struct mcast_eng *e,
				       uint32_t block)
{
	struct mcast_buffer *s;

	for (uint32_t i = 0; e->x.fed && i < e->ring.count; i++) {
		s = &e->ring.buffers[i];
		if (s->state >= MCAST_BUFFER_FILLING && s->block == block &&
		    s->order == e->x.fed)
			return s;
	}
	return NULL;
}

/* fill() is not asked for a block while it still fills another buffer with the
 * same block: block_done() could not tell the two apart. */
bool mcast_ring_may_feed(const struct mcast_eng *e)
{
	uint32_t block = (uint32_t)e->x.feed.block;

	if (!e->x.active || !e->x.feeds || e->x.ring_due ||
	    (mcast_resume_active(e) && !mcast_resume_may_feed(e)))
		return false;
	return same_again(e, block) ||
	       (!held(e, block) && mcast_ring_room(e, true));
}

static void ask(struct mcast_eng *e, uint32_t i, uint32_t block)
{
	struct skein_mcast_block b = block_at(e, i, block);
	struct mcast_buffer *s = &e->ring.buffers[i];
	int rc;

	s->state = MCAST_BUFFER_FILLING;
	s->app = true;
	s->block = block;
	e->x.fed = s->order;
	e->x.n_app++;
	rc = e->port->ops->fill(e->port, &e->x.msg, &b);
	if (rc != SKEIN_MCAST_LATER)
		mcast_eng_block_done(e, e->x.msg.seq, block, rc);
}

/* One block a round. */
int mcast_ring_feed(struct mcast_eng *e)
{
	struct mcast_xfer *x = &e->x;
	uint32_t block = (uint32_t)x->feed.block;
	struct mcast_buffer *same;

	if (!mcast_ring_may_feed(e))
		return 0;
	same = same_again(e, block);
	if (same)
		same->unsent++;
	else
		ask(e, mcast_ring_take(e, true, 1), block);
	if (mcast_resume_active(e))
		mcast_resume_next_feed(e);
	else
		x->feeds = mcast_plan_next_send(&x->plan, e->conf.rank,
						x->feed.step + 1, &x->feed);
	return 1;
}
