/* SPDX-License-Identifier: MIT */
/*
 * over.c - how a group ends: ACKs up the tree, CLOSE down, FAIL to all.
 * docs/protocol/mcast.md, sections 5 and 6.
 */
#include "mcast/eng.h"

#include <errno.h>

/* --- acknowledgement ---------------------------------------------------- */

/* Of the members in this member's part of the tree that work on message
 * e->delivered: the fewest blocks that a member has, and its rank. UINT32_MAX:
 * no member works on it. */
static uint32_t least_have(const struct mcast_eng *e, uint32_t *rank)
{
	const struct mcast_nb *nb;
	uint32_t least = UINT32_MAX;

	*rank = 0;
	if (!mcast_is_root(e) && e->done == e->delivered) {
		least = e->x.active ? e->x.n_have : 0;
		*rank = e->conf.rank;
	}
	for (uint32_t i = 0; i < e->n_nbs; i++) {
		nb = &e->nbs[i];
		if (!nb->below || nb->ack != e->delivered || nb->least >= least)
			continue;
		least = nb->least;
		*rank = nb->slowest;
	}
	return least;
}

void mcast_over_fill_ack(const struct mcast_eng *e, struct mcast_rec *rec)
{
	uint32_t rank, least = least_have(e, &rank);

	rec->type = MCAST_ACK;
	rec->msg = e->delivered;
	if (least != UINT32_MAX) {
		rec->block = least;
		rec->rank = (uint16_t)rank;
	}
}

void mcast_over_ack(struct mcast_eng *e, struct mcast_nb *nb,
		    const struct mcast_rec *rec)
{
	uint64_t sent = e->done + (e->x.active ? 1 : 0);

	if (!nb->below || rec->msg < nb->ack || rec->rank >= e->conf.n ||
	    (mcast_is_root(e) && rec->msg > sent)) {
		mcast_protocol_error(e, nb, "an ACK that cannot be");
		return;
	}
	nb->acked = true;
	nb->ack = rec->msg;
	nb->least = rec->block;
	nb->slowest = rec->rank ? rec->rank : nb->rank;
}

static uint64_t part_done(const struct mcast_eng *e)
{
	uint64_t n = e->done;

	for (uint32_t i = 0; i < e->n_nbs; i++)
		if (e->nbs[i].below && e->nbs[i].ack < n)
			n = e->nbs[i].ack;
	return n;
}

/* Has every member in this member's part of the tree opened the group? */
static bool part_up(const struct mcast_eng *e)
{
	for (uint32_t i = 0; i < e->n_nbs; i++)
		if (e->nbs[i].below && !e->nbs[i].acked)
			return false;
	return e->up || !e->n_nbs;
}

static int acknowledge(struct mcast_eng *e)
{
	uint64_t n = part_done(e);
	bool due, rose = n > e->delivered;
	uint32_t rank, least;

	if (!part_up(e))
		return 0;
	if (rose) {
		e->delivered = n;
		if (mcast_is_root(e))
			e->port->ops->changed(e->port);
	}
	if (e->now_ns - e->reported_ns < MCAST_REPORT_NS &&
	    e->reported_ack == n && e->reported_up)
		return 0;
	least = least_have(e, &rank);
	due = !e->reported_up || e->reported_ack != n ||
	      (least != e->reported_least && least);
	if (mcast_is_root(e)) {
		e->stats.least_have = least == UINT32_MAX ? 0 : least;
		e->stats.slowest = rank;
		due = false;
	}
	if (e->reported_ns + MCAST_REPORT_NS <= e->now_ns || due)
		e->reported_ns = e->now_ns;
	if (!due || e->above == MCAST_NONE)
		return rose; /* a slot may be free now */
	e->reported_up = true;
	e->reported_ack = n;
	e->reported_least = least;
	e->nbs[e->above].owe |= MCAST_OWE_ACK;
	return 1;
}

/* --- closing ------------------------------------------------------------ */

static void close_now(struct mcast_eng *e)
{
	e->closed = true;
	for (uint32_t i = 0; i < e->n_nbs; i++) {
		e->nbs[i].owe &= ~(unsigned)MCAST_OWE_ACK;
		e->nbs[i].owe |= MCAST_OWE_BYE;
		if (e->nbs[i].below)
			e->nbs[i].owe |= MCAST_OWE_CLOSE;
	}
	e->port->ops->changed(e->port);
}

void mcast_over_close(struct mcast_eng *e, struct mcast_nb *nb,
		      const struct mcast_rec *rec)
{
	bool bye = rec->type == MCAST_BYE;
	bool above = e->above == (uint32_t)(nb - e->nbs);

	nb->bye_in |= bye;
	/* BYE of another neighbour may have closed the group already. */
	if (e->closed && (bye || above))
		return;
	if (mcast_is_root(e) || (!bye && !above) || rec->msg != e->done ||
	    e->x.active || mcast_resume_pending(e)) {
		mcast_protocol_error(e, nb, "a CLOSE that cannot be");
		return;
	}
	if (rec->sum != e->digest) {
		mcast_eng_fail(e, nb->rank, -EBADMSG, e->conf.rank);
		return;
	}
	close_now(e);
}

void mcast_eng_finish(struct mcast_eng *e)
{
	e->finish = true;
}

void mcast_eng_close(struct mcast_eng *e)
{
	e->finish = true;
	e->closing = true;
}

static bool may_close(const struct mcast_eng *e)
{
	return mcast_is_root(e) && e->finish && !e->closed && !e->over &&
	       !mcast_resume_pending(e) && part_up(e) &&
	       list_empty(&e->queue) && !e->x.active && e->delivered == e->done;
}

/* --- failure ------------------------------------------------------------ */

void mcast_eng_fail(struct mcast_eng *e, uint32_t rank, int err, uint32_t by)
{
	if (e->over || e->closed)
		return;
	e->over = err;
	e->over_rank = rank;
	e->over_by = by;
	/* The next round sets it: the time of the last round may be long past. */
	e->over_deadline_ns = 0;
	e->failure_due = true;
	for (uint32_t i = 0; i < e->n_nbs; i++)
		e->nbs[i].owe =
			MCAST_OWE_FAIL |
			(e->nbs[i].channels == MCAST_CHANNELS ? MCAST_OWE_STOP
							      : 0);
	e->port->ops->changed(e->port);
}

void mcast_over_fail(struct mcast_eng *e, struct mcast_nb *nb,
		     const struct mcast_rec *rec)
{
	if (e->closed)
		return; /* it cannot know yet; it has every message */
	if (rec->rank >= e->conf.n || rec->err > UINT16_MAX) {
		mcast_protocol_error(e, nb, "a FAIL that cannot be");
		return;
	}
	if (!e->over)
		e->over_lost = rec->block;
	mcast_eng_fail(e, rec->rank, -(int)rec->err, nb->rank);
}

void mcast_eng_leave(struct mcast_eng *e)
{
	e->leaving = true;
}

void mcast_eng_fail_there(struct mcast_eng *e, uint32_t nb,
			  enum mcast_channel channel)
{
	e->nbs[nb].fail_there |= 1u << channel;
}

/* Its link may still come up. No other member will tell it that the group is
 * over, so without us it would wait for its whole open timeout. */
static bool may_come(const struct mcast_eng *e, const struct mcast_nb *nb)
{
	return !nb->up && !nb->down && !e->leaving &&
	       e->now_ns < e->conf.open_deadline_ns;
}

/* Does the neighbour write nothing more, and does it know? */
static bool settled(const struct mcast_eng *e, const struct mcast_nb *nb)
{
	if (!nb->up)
		return !may_come(e, nb);
	return nb->bye_in ||
	       (nb->fail_out == mcast_nb_channels(nb) &&
		(nb->fail_in == mcast_nb_channels(nb) || !nb->hello_in));
}

static void end_messages(struct mcast_eng *e)
{
	struct mcast_port *port = e->port;
	struct skein_mcast_msg msg;
	struct mcast_out *out;
	struct list_node *n;

	if (e->x.active)
		mcast_xfer_end(e, e->over);
	else if (mcast_resume_pending(e))
		mcast_resume_end(e, e->over);
	while ((n = list_pop_head(&e->queue))) {
		out = container_of(n, struct mcast_out, link);
		mcast_msg_set(e, &msg, e->done++, out->size, out->tag);
		port->ops->out_free(port, out);
		mcast_left_keep(e, &msg, NULL);
		port->ops->done(port, &msg, e->over);
	}
}

/* Has the neighbour had enough time to come, or to answer? When this member
 * leaves, a shorter time is enough, but FAIL must have arrived before the cut.
 * On a slow link only fail_there proves that. */
static bool too_slow(const struct mcast_eng *e, const struct mcast_nb *nb)
{
	return e->now_ns >= e->over_deadline_ns ||
	       (e->leave_deadline_ns && e->now_ns >= e->leave_deadline_ns &&
		nb->fail_there == mcast_nb_channels(nb));
}

static int settle(struct mcast_eng *e)
{
	bool all = !e->flying && !e->slots.under_way;
	struct mcast_nb *nb;

	if (e->ended || e->failure_due)
		return 0;
	if (!e->over_deadline_ns)
		e->over_deadline_ns = e->now_ns + MCAST_SETTLE_NS;
	if (e->leaving && !e->leave_deadline_ns)
		e->leave_deadline_ns = e->now_ns + MCAST_LEAVE_NS;
	for (uint32_t i = 0; i < e->n_nbs; i++) {
		nb = &e->nbs[i];
		if (!nb->up && too_slow(e, nb))
			nb->down = true;
		if (settled(e, nb))
			continue;
		all = false;
		if (too_slow(e, nb))
			e->port->ops->cut(e->port, i, -ECONNABORTED);
	}
	if (e->now_ns >= e->over_deadline_ns)
		e->over_deadline_ns = e->now_ns + MCAST_SETTLE_NS;
	if (!all)
		return 0;
	end_messages(e);
	e->ended = true;
	e->port->ops->changed(e->port);
	return 1;
}

int mcast_over_step(struct mcast_eng *e)
{
	int moved = 0;

	if (e->over)
		return settle(e);
	if (e->closed)
		return 0;
	moved = acknowledge(e);
	if (may_close(e)) {
		close_now(e);
		moved++;
	}
	return moved;
}
