/* SPDX-License-Identifier: MIT */
/*
 * resume_stream.c - what is resumed at a member that does not have it in memory.
 *
 * Before anything is told, what such a member says to have is read, if it can be
 * read again: one block at a time, through the ring, by fill(). Then what it sends
 * comes from one of two places (mcast_resume_from_own()): a slot of the ring, where
 * the block has just come; or fill(), for what was there before, and, behind the
 * gathering, for what came with it. Each has slots of its own, so neither takes
 * those that the other waits for: fill() is asked in the order of the sends, so the
 * oldest of its slots is always that of the next send from there; and of the others
 * there are as many as are in use at once when all keep step (the argument of
 * xfer.c).
 */
#include "mcast/eng.h"

#include <errno.h>

#include "base/assert.h"

/* Slots that fill() has while blocks come, too. */
#define FED_SLOTS 2u

/* --- what is there is read ---------------------------------------------- */

bool mcast_resume_reading(const struct mcast_eng *e)
{
	return e->resume && e->resume->read_at < e->resume->claim.n_runs;
}

bool mcast_resume_read_works(const struct mcast_eng *e)
{
	return mcast_resume_reading(e) && !e->resume->asked;
}

static uint32_t read_block(const struct mcast_resume *r)
{
	return r->claim.runs[r->read_at].first + r->read_in;
}

int mcast_resume_read(struct mcast_eng *e)
{
	struct mcast_resume *r = e->resume;
	struct skein_mcast_block b;
	struct skein_mcast_msg msg;
	int rc;

	if (!mcast_resume_read_works(e))
		return 0;
	mcast_msg_set(e, &msg, 0, r->claim.size, r->claim.tag);
	b = (struct skein_mcast_block){
		.index = read_block(r),
		.len = mcast_block_len(&msg, read_block(r)),
		.off = (uint64_t)read_block(r) * msg.block_size,
		.data = mcast_ring_buf(e, 0).addr};
	r->asked = true;
	rc = e->port->ops->fill(e->port, &msg, &b);
	if (rc != SKEIN_MCAST_LATER)
		mcast_resume_read_done(e, b.index, rc);
	return 1;
}

void mcast_resume_read_done(struct mcast_eng *e, uint32_t block, int status)
{
	struct mcast_resume *r = e->resume;
	struct skein_mcast_msg msg;
	struct mcast_run *run;
	uint64_t sum;

	if (!r->asked || block != read_block(r) || e->over)
		return;
	r->asked = false;
	if (status) {
		mcast_eng_fail(e, e->conf.rank, status, e->conf.rank);
		return;
	}
	mcast_msg_set(e, &msg, 0, r->claim.size, NULL);
	sum = mcast_sum(mcast_ring_buf(e, 0).addr, mcast_block_len(&msg, block),
			mcast_seed(e->conf.list, 0), block);
	run = &r->claim.runs[r->read_at];
	r->claim.sums[block] = sum;
	run->digest = mcast_digest_add(run->digest, sum, block);
	if (++r->read_in < run->count)
		return;
	r->read_in = 0;
	r->read_at++;
	status = mcast_resume_reading(e) ? 0 : mcast_resume_own_table(e);
	if (status)
		mcast_eng_fail(e, e->conf.rank, status, e->conf.rank);
}

/* --- slots -------------------------------------------------------------- */

static bool next_item(const struct mcast_eng *e, struct mcast_resume_iter *it,
		      struct mcast_item *out)
{
	enum mcast_resume_found f;

	do
		f = mcast_resume_next(&e->resume->plan, it, out);
	while (f == MCAST_RESUME_MORE);
	return f == MCAST_RESUME_ITEM;
}

static bool goes_up(const struct mcast_eng *e, const struct mcast_item *item)
{
	return item->step < e->resume->plan.turn;
}

/* The next send out of a slot where the block has just come; own: whether one
 * before it comes from fill(). */
static bool next_relayed(const struct mcast_eng *e,
			 struct mcast_resume_iter *it, struct mcast_item *out,
			 bool *own)
{
	while (next_item(e, it, out)) {
		if (!mcast_resume_from_own(&e->resume->plan, e->conf.rank, out))
			return true;
		*own = true;
	}
	return false;
}

/* Blocks that go up are sent once, but by the root. */
uint32_t mcast_resume_unsent(const struct mcast_eng *e,
			     const struct mcast_item *recv)
{
	if (goes_up(e, recv))
		return !mcast_is_root(e);
	return e->x.left[recv->block];
}

static void count_left(struct mcast_eng *e)
{
	struct mcast_resume_iter it = {.member = e->conf.rank, .sends = true};
	struct mcast_item item;
	bool own;

	while (next_relayed(e, &it, &item, &own)) {
		if (goes_up(e, &item))
			continue;
		skein_assert(e->x.left[item.block] < UINT8_MAX);
		e->x.left[item.block]++;
	}
}

/* The most slots of blocks that come, and whether some are asked of fill(). */
static uint32_t need(const struct mcast_eng *e, uint8_t *left, bool *own)
{
	struct mcast_resume_iter sending = {.member = e->conf.rank,
					    .sends = true},
				 granting = {.member = e->conf.rank};
	struct mcast_item send, recv;
	uint32_t now = 0, most = 0;
	bool sends = next_relayed(e, &sending, &send, own);
	bool recvs = next_item(e, &granting, &recv);

	while (recvs) {
		/* What comes in a step comes before what goes in it. */
		if (sends && send.step < recv.step) {
			now -= goes_up(e, &send) || --left[send.block] == 0;
			sends = next_relayed(e, &sending, &send, own);
			continue;
		}
		if (++now > most)
			most = now;
		now -= goes_up(e, &recv) ? mcast_is_root(e)
					 : left[recv.block] == 0;
		recvs = next_item(e, &granting, &recv);
	}
	while (sends)
		sends = next_relayed(e, &sending, &send, own);
	return most;
}

int mcast_resume_ring(struct mcast_eng *e, uint32_t *count, uint32_t *fed)
{
	uint32_t blocks = e->x.msg.blocks;
	bool own = false;
	uint8_t *left;

	e->x.left = e->port->ops->alloc(e->port, blocks);
	left = e->port->ops->alloc(e->port, blocks);
	if (!e->x.left || !left) {
		e->port->ops->free(e->port, left);
		return -ENOMEM;
	}
	count_left(e);
	memcpy(left, e->x.left, blocks);
	*count = need(e, left, &own);
	e->port->ops->free(e->port, left);
	*fed = own ? FED_SLOTS : 0;
	if (own && !*count)
		*fed = UINT32_MAX; /* all of them */
	/* One is written while another is read. */
	*count += (*count && *count < blocks) + (own ? FED_SLOTS : 0);
	return 0;
}

/* --- what is asked of fill() --------------------------------------------- */

void mcast_resume_next_feed(struct mcast_eng *e)
{
	struct mcast_resume *r = e->resume;
	enum mcast_resume_found f =
		mcast_resume_next(&r->plan, &r->feeding, &e->x.feed);

	r->seek_feed =
		f == MCAST_RESUME_MORE ||
		(f == MCAST_RESUME_ITEM &&
		 !mcast_resume_from_own(&r->plan, e->conf.rank, &e->x.feed));
	e->x.feeds = f != MCAST_RESUME_END;
}

bool mcast_resume_may_feed(const struct mcast_eng *e)
{
	return !e->resume->seek_feed &&
	       mcast_have(&e->x, (uint32_t)e->x.feed.block);
}
