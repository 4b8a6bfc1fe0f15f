/* SPDX-License-Identifier: MIT */
/*
 * resume/stream.c - a resumed object at a member that does not have it in
 * memory.
 *
 * Before tables are exchanged, fill() reads the blocks that such a member
 * claims to have, if they can be read again: one at a time, into the ring.
 * Later, a block that the member sends comes from one of two places
 * (mcast_resume_from_own()): from a buffer into which it has just come, or from
 * fill(), if the member had it before or got it in the gathering. Each kind has
 * its own buffers, so neither waits for the other's. fill() is asked in the
 * order of sends, so its oldest buffer is always that of the next such send.
 * The number of the others is what is in use at once when all members keep step
 * (need.c).
 */
#include "mcast/eng.h"

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
