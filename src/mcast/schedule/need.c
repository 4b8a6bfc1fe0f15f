/* SPDX-License-Identifier: MIT */
/*
 * need.c - see need.h. The first pass counts the sends of each block. The
 * second walks receives and sends in step order, as if all members kept step,
 * and finds the most blocks that are here at once: received, and with a send
 * still to come.
 */
#include "mcast/schedule/need.h"

#include <errno.h>

#include "base/assert.h"
#include "mcast/eng.h"

/* Does the item belong to the gathering, in which each block goes up once? */
static bool goes_up(const struct mcast_eng *e, const struct mcast_item *item)
{
	return mcast_resume_active(e) && item->step < e->resume->plan.turn;
}

uint32_t mcast_need_unsent(const struct mcast_eng *e,
			   const struct mcast_item *recv)
{
	if (goes_up(e, recv))
		return !mcast_is_root(e);
	return e->x.left[recv->block];
}

static void sides_reset(struct mcast_eng *e)
{
	struct mcast_need *n = &e->x.need;

	n->sends = (struct mcast_need_side){
		.it = {.member = e->conf.rank, .sends = true}};
	n->recvs = (struct mcast_need_side){.it = {.member = e->conf.rank}};
}

int mcast_need_begin(struct mcast_eng *e)
{
	struct mcast_xfer *x = &e->x;

	x->left = e->port->ops->alloc(e->port, x->msg.blocks);
	x->need.left = e->port->ops->alloc(e->port, x->msg.blocks);
	if (!x->left || !x->need.left)
		return -ENOMEM;
	sides_reset(e);
	return 0;
}

/* The next item of a resumed object. Sends supplied by fill() need no buffer of
 * the receives, so they are skipped. */
static enum mcast_resume_found next_resumed(struct mcast_eng *e,
					    struct mcast_need_side *s,
					    uint32_t *looks)
{
	const struct mcast_resume_plan *p = &e->resume->plan;
	enum mcast_resume_found f;

	f = mcast_resume_look(p, &s->it, looks, &s->item);
	if (f != MCAST_RESUME_ITEM || !s->it.sends ||
	    !mcast_resume_from_own(p, e->conf.rank, &s->item))
		return f;
	e->x.need.own = true;
	return MCAST_RESUME_MORE;
}

static enum mcast_resume_found next_planned(const struct mcast_eng *e,
					    struct mcast_need_side *s,
					    uint32_t *looks)
{
	const struct mcast_plan *p = &e->x.plan;
	bool found;

	--*looks;
	found = s->it.sends ? mcast_plan_next_send(p, e->conf.rank, s->from,
						   &s->item)
			    : mcast_plan_next_recv(p, e->conf.rank, s->from,
						   &s->item);
	if (!found)
		return MCAST_RESUME_END;
	s->from = s->item.step + 1;
	return MCAST_RESUME_ITEM;
}

/* Makes s->item valid. False: not found yet. */
static bool find(struct mcast_eng *e, struct mcast_need_side *s,
		 uint32_t *looks)
{
	enum mcast_resume_found f;

	if (s->known)
		return true;
	if (!*looks)
		return false;
	f = mcast_resume_active(e) ? next_resumed(e, s, looks)
				   : next_planned(e, s, looks);
	s->known = f != MCAST_RESUME_MORE;
	s->is = f == MCAST_RESUME_ITEM;
	return s->known;
}

static void count_send(struct mcast_eng *e, uint32_t *looks)
{
	struct mcast_need *n = &e->x.need;
	uint64_t block;

	if (!find(e, &n->sends, looks))
		return;
	if (!n->sends.is) {
		n->counted = true;
		sides_reset(e);
		return;
	}
	n->sends.known = false;
	block = n->sends.item.block;
	if (goes_up(e, &n->sends.item))
		return;
	skein_assert(e->x.left[block] < UINT8_MAX);
	e->x.left[block]++;
	n->left[block]++;
}

/* True: no further receive. */
static bool keep_step(struct mcast_eng *e, uint32_t *looks)
{
	struct mcast_need *n = &e->x.need;
	const struct mcast_item *send = &n->sends.item, *recv = &n->recvs.item;

	if (!find(e, &n->sends, looks) || !find(e, &n->recvs, looks))
		return false;
	if (!n->recvs.is)
		return true;
	/* A block received in a step arrives before the send of the same step
	 * leaves. */
	if (n->sends.is && send->step < recv->step) {
		n->now -= goes_up(e, send) || --n->left[send->block] == 0;
		n->sends.known = false;
		return false;
	}
	if (++n->now > n->most)
		n->most = n->now;
	n->now -=
		goes_up(e, recv) ? mcast_is_root(e) : n->left[recv->block] == 0;
	n->recvs.known = false;
	return false;
}

bool mcast_need_step(struct mcast_eng *e)
{
	struct mcast_need *n = &e->x.need;
	uint32_t looks = MCAST_NEED_LOOKS;
	bool done = false;

	while (looks && !done) {
		if (n->counted)
			done = keep_step(e, &looks);
		else
			count_send(e, &looks);
	}
	if (done) {
		e->port->ops->free(e->port, n->left);
		n->left = NULL;
	}
	return done;
}
