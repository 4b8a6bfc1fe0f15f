/* SPDX-License-Identifier: MIT */
/*
 * eng.c - opening and closing of links, incoming records, owed records, time.
 */
#include "mcast/eng.h"

#include <errno.h>

#include "base/assert.h"
#include "env/env.h"

/* --- up and down -------------------------------------------------------- */

uint32_t mcast_nb_find(const struct mcast_eng *e, uint32_t rank)
{
	for (uint32_t i = 0; i < e->n_nbs; i++)
		if (e->nbs[i].rank == rank)
			return i;
	return MCAST_NONE;
}

/* The member that sends `rank` its first block, for any number of blocks. */
static uint32_t first_sender(const struct mcast_plan *one, uint32_t rank)
{
	struct mcast_item item;

	if (!rank || !mcast_plan_next_recv(one, rank, 0, &item))
		return MCAST_NONE;
	return item.peer;
}

static bool among(const uint32_t *ranks, uint32_t n, uint32_t rank)
{
	while (n)
		if (ranks[--n] == rank)
			return true;
	return false;
}

static void neighbour_add(struct mcast_eng *e, const struct mcast_plan *one,
			  uint32_t rank, bool scheduled)
{
	uint32_t i = e->n_nbs++;
	struct mcast_nb *nb = &e->nbs[i];

	nb->rank = rank;
	nb->owe = MCAST_OWE_HELLO;
	nb->channels = scheduled ? MCAST_CHANNELS : 1;
	nb->child = scheduled && first_sender(one, rank) == e->conf.rank;
	nb->below = e->conf.slots ? mcast_is_root(e) : nb->child;
	if (first_sender(one, e->conf.rank) == rank)
		e->parent = i;
	if (e->conf.slots && !rank) {
		nb->owe |= MCAST_OWE_RING;
		e->above = i;
	}
}

/* The schedule's neighbours. With slots also the root; at the root all
 * members. */
static int make_neighbours(struct mcast_eng *e, const struct mcast_plan *one)
{
	uint32_t n = mcast_plan_neighbours(one, e->conf.rank, NULL, 0), *ranks;
	uint32_t all = e->conf.slots ? e->conf.n : 0;

	e->parent = e->above = MCAST_NONE;
	if (!n)
		return 0;
	e->nbs = e->port->ops->alloc(e->port, (n + all) * sizeof(*e->nbs));
	ranks = e->port->ops->alloc(e->port, n * sizeof(*ranks));
	if (!e->nbs || !ranks) {
		e->port->ops->free(e->port, ranks);
		return -ENOMEM;
	}
	mcast_plan_neighbours(one, e->conf.rank, ranks, n);
	for (uint32_t rank = 0; rank < e->conf.n; rank++) {
		bool scheduled = among(ranks, n, rank);
		bool besides = e->conf.slots && rank != e->conf.rank &&
			       (mcast_is_root(e) || !rank);

		if (scheduled || besides)
			neighbour_add(e, one, rank, scheduled);
	}
	if (!e->conf.slots)
		e->above = e->parent;
	e->port->ops->free(e->port, ranks);
	return 0;
}

static void send_done(struct mcast_op *op, int err)
{
	struct mcast_sendop *s = container_of(op, struct mcast_sendop, op);
	struct mcast_eng *e = s->eng;

	s->busy = false;
	e->flying--;
	if (s->buffer != MCAST_NO_BUFFER) {
		e->ring.buffers[s->buffer].flying--;
		mcast_ring_release(e, s->buffer);
	}
}

int mcast_eng_init(struct mcast_eng *e, struct mcast_port *port,
		   const struct mcast_eng_conf *conf, uint64_t now_ns)
{
	struct mcast_plan one;
	int rc;

	memset(e, 0, sizeof(*e));
	e->port = port;
	e->conf = *conf;
	e->now_ns = e->looked_ns = now_ns;
	list_init(&e->queue);
	for (unsigned i = 0; i < MCAST_SENDS; i++) {
		e->sends[i].op.done = send_done;
		e->sends[i].eng = e;
	}
	rc = mcast_plan_init(&one, conf->algorithm, conf->n, 1, conf->racks);
	if (rc)
		return rc;
	rc = make_neighbours(e, &one);
	if (rc == 0 && !mcast_is_root(e))
		rc = port->ops->mem_get(port,
					mcast_first_room(conf->block_size),
					&e->first, &e->first_handle);
	if (rc == 0)
		rc = mcast_slots_init(e);
	if (rc)
		mcast_eng_fini(e);
	e->stats.neighbours = e->n_nbs;
	e->reported_least = UINT32_MAX;
	e->left_nb = MCAST_NONE;
	return rc;
}

void mcast_eng_fini(struct mcast_eng *e)
{
	struct mcast_port *port = e->port;
	struct list_node *n;

	while ((n = list_pop_head(&e->queue)))
		port->ops->out_free(port,
				    container_of(n, struct mcast_out, link));
	port->ops->free(port, e->x.have);
	port->ops->free(port, e->x.sums);
	port->ops->free(port, e->x.left);
	port->ops->free(port, e->x.need.left);
	port->ops->free(port, e->left.have);
	mcast_resume_fini(e);
	mcast_ring_free(e);
	mcast_slots_fini(e);
	if (e->first_handle)
		port->ops->mem_put(port, e->first_handle);
	e->first_handle = NULL;
	port->ops->free(port, e->nbs);
	e->nbs = NULL;
	e->n_nbs = 0;
}

void mcast_eng_link_up(struct mcast_eng *e, uint32_t nb, uint64_t now_ns)
{
	e->nbs[nb].up = true;
	e->nbs[nb].heard_ns = now_ns;
}

/* Did the other end cut the link for a reason of its own? Then its process is
 * alive. */
static bool cut_there(int err)
{
	return err == -ECONNRESET || err == -ECONNABORTED || err == -ESHUTDOWN;
}

bool mcast_eng_channel_down(struct mcast_eng *e, uint32_t i, int err)
{
	struct mcast_nb *nb = &e->nbs[i];

	/* A neighbour that has said BYE knows that every member has every
	 * message. */
	if (nb->bye_in || e->closed || e->over)
		return false;
	if (e->left_nb == i)
		return true;
	if (!err || !cut_there(err)) {
		mcast_eng_fail(e, nb->rank, err ? err : -ECONNRESET,
			       e->conf.rank);
	} else if (e->left_nb == MCAST_NONE) {
		e->left_nb = i;
		e->left_err = err;
	}
	return true;
}

void mcast_eng_link_down(struct mcast_eng *e, uint32_t i, int err)
{
	struct mcast_nb *nb = &e->nbs[i];

	nb->up = false;
	nb->down = true;
	mcast_eng_channel_down(e, i, err);
}

/* --- what comes in ------------------------------------------------------ */

void mcast_protocol_error(struct mcast_eng *e, struct mcast_nb *nb,
			  const char *what)
{
	if (!e->over)
		e->wrong = what;
	mcast_eng_fail(e, nb->rank, -SKEIN_EPEER, e->conf.rank);
	e->port->ops->cut(e->port, (uint32_t)(nb - e->nbs), -SKEIN_EPEER);
}

static void take_hello(struct mcast_eng *e, struct mcast_nb *nb)
{
	if (nb->hello_in) {
		mcast_protocol_error(e, nb, "a second HELLO");
		return;
	}
	nb->hello_in = true;
	for (uint32_t i = 0; i < e->n_nbs; i++)
		if (!e->nbs[i].hello_in)
			return;
	e->up = true;
	e->port->ops->changed(e->port);
}

void mcast_eng_record(struct mcast_eng *e, uint32_t i,
		      enum mcast_channel channel, uint32_t imm_value,
		      const struct mcast_rec *rec, uint64_t now_ns)
{
	struct mcast_nb *nb = &e->nbs[i];

	nb->heard_ns = now_ns;
	if (nb->fail_in & 1u << channel)
		return; /* a neighbour that goes on after FAIL is ignored */
	if (!mcast_rec_valid(rec, channel, nb->in[channel]++, imm_value) ||
	    nb->bye_in ||
	    (!nb->hello_in && rec->type != MCAST_HELLO &&
	     rec->type != MCAST_FAIL)) {
		mcast_protocol_error(e, nb, "a record that cannot be");
		return;
	}
	if (rec->type == MCAST_FAIL) {
		nb->fail_in |= 1u << channel;
		mcast_over_fail(e, nb, rec);
		return;
	}
	if (rec->type == MCAST_HELLO) {
		take_hello(e, nb);
		return;
	}
	if (e->over)
		return;
	switch (rec->type) {
	case MCAST_READY:
		mcast_xfer_ready(e, nb, rec);
		return;
	case MCAST_BLOCK:
		mcast_xfer_block(e, nb, rec);
		return;
	case MCAST_BEGIN:
		mcast_xfer_begin(e, nb, rec);
		return;
	case MCAST_RING:
		mcast_slot_ring(e, nb, rec);
		return;
	case MCAST_ACK:
		mcast_over_ack(e, nb, rec);
		return;
	case MCAST_CLOSE:
	case MCAST_BYE:
		mcast_over_close(e, nb, rec);
		return;
	case MCAST_HAVE:
	case MCAST_RUN:
	case MCAST_SUM:
		mcast_resume_record(e, nb, rec);
		return;
	case MCAST_PING:
		nb->owe |= MCAST_OWE_PONG;
		return;
	default: /* PONG: heard_ns is enough */
		return;
	}
}

/* --- what is owed ------------------------------------------------------- */

int mcast_say(struct mcast_eng *e, struct mcast_nb *nb,
	      enum mcast_channel channel, struct mcast_rec *rec)
{
	int rc;

	rec->number = nb->out[channel];
	rc = e->port->ops->record(e->port, (uint32_t)(nb - e->nbs), channel,
				  rec);
	if (rc == 0)
		nb->out[channel]++;
	else /* no room, or a link that is going down */
		e->again = true;
	return rc;
}

static enum mcast_channel channel_of(unsigned what)
{
	return what == MCAST_OWE_STOP ? MCAST_BLOCKS : MCAST_WORDS;
}

/* May it be sent now? Nothing follows FAIL and BYE; only HELLO and FAIL come
 * before HELLO. */
static bool may_say(const struct mcast_eng *e, const struct mcast_nb *nb,
		    unsigned what)
{
	if (!nb->up || nb->bye_out)
		return false;
	if (what == MCAST_OWE_HELLO)
		return !e->over;
	if (what == MCAST_OWE_FAIL || what == MCAST_OWE_STOP)
		return true;
	if (e->over || !nb->hello_in || !nb->hello_out)
		return false;
	/* BYE says that all below have got CLOSE, so CLOSE goes first. */
	return what != MCAST_OWE_BYE || !(nb->owe & MCAST_OWE_CLOSE);
}

static void build(const struct mcast_eng *e, unsigned what,
		  struct mcast_rec *rec)
{
	memset(rec, 0, sizeof(*rec));
	switch (what) {
	case MCAST_OWE_HELLO:
		rec->type = MCAST_HELLO;
		return;
	case MCAST_OWE_FAIL:
	case MCAST_OWE_STOP:
		rec->type = MCAST_FAIL;
		rec->rank = (uint16_t)e->over_rank;
		rec->err = (uint32_t)-e->over;
		rec->block = e->over_lost;
		return;
	case MCAST_OWE_ACK:
		mcast_over_fill_ack(e, rec);
		return;
	case MCAST_OWE_CLOSE:
	case MCAST_OWE_BYE:
		rec->type = what == MCAST_OWE_BYE ? MCAST_BYE : MCAST_CLOSE;
		rec->msg = e->done;
		rec->sum = e->digest;
		return;
	case MCAST_OWE_RING:
		mcast_slot_fill_ring(e, rec);
		return;
	case MCAST_OWE_PING:
		rec->type = MCAST_PING;
		return;
	default:
		rec->type = MCAST_PONG;
		return;
	}
}

static void said(struct mcast_nb *nb, unsigned what)
{
	nb->owe &= ~what;
	if (what == MCAST_OWE_HELLO)
		nb->hello_out = true;
	if (what == MCAST_OWE_FAIL || what == MCAST_OWE_STOP)
		nb->fail_out |= 1u << channel_of(what);
	if (what == MCAST_OWE_BYE)
		nb->bye_out = true;
}

static int flush_to(struct mcast_eng *e, struct mcast_nb *nb)
{
	struct mcast_rec rec;
	unsigned full = 0; /* a bit per channel */
	int moved = 0;

	for (unsigned what = 1; nb->owe >= what; what <<= 1) {
		if (!(nb->owe & what) || full & 1u << channel_of(what) ||
		    !may_say(e, nb, what))
			continue;
		build(e, what, &rec);
		if (mcast_say(e, nb, channel_of(what), &rec)) {
			full |= 1u << channel_of(what);
			continue;
		}
		said(nb, what);
		moved++;
	}
	return moved;
}

static int flush(struct mcast_eng *e)
{
	int moved = 0;

	for (uint32_t i = 0; i < e->n_nbs; i++)
		moved += flush_to(e, &e->nbs[i]);
	return moved;
}

static bool owes(const struct mcast_eng *e)
{
	const struct mcast_nb *nb;

	for (uint32_t i = 0; i < e->n_nbs; i++) {
		nb = &e->nbs[i];
		for (unsigned what = 1; nb->owe >= what; what <<= 1)
			if (nb->owe & what && may_say(e, nb, what))
				return true;
	}
	return false;
}

/* --- time --------------------------------------------------------------- */

bool mcast_eng_waits(const struct mcast_eng *e)
{
	if (e->over || e->closed)
		return false;
	return e->x.active || e->closing || !list_empty(&e->queue) ||
	       (e->up && mcast_resume_pending(e)) || mcast_slot_waiting(e) ||
	       (mcast_is_root(e) && e->delivered != e->done);
}

void mcast_eng_patience(struct mcast_eng *e, uint64_t ns)
{
	if (e->conf.member_timeout_ns < ns)
		e->conf.member_timeout_ns = ns;
}

static uint64_t quarter(const struct mcast_eng *e)
{
	return e->conf.member_timeout_ns / 4;
}

/* A member that has just begun to wait, or did not run for long, has not
 * listened: silence before now counts against no neighbour. */
static void listen_anew(struct mcast_eng *e)
{
	for (uint32_t i = 0; i < e->n_nbs; i++)
		if (e->nbs[i].heard_ns < e->now_ns)
			e->nbs[i].heard_ns = e->now_ns;
}

static void check_silence(struct mcast_eng *e, struct mcast_nb *nb)
{
	uint64_t silent =
		e->now_ns > nb->heard_ns ? e->now_ns - nb->heard_ns : 0;

	if (silent >= e->conf.member_timeout_ns) {
		mcast_eng_fail(e, nb->rank, -ETIMEDOUT, e->conf.rank);
	} else if (silent >= quarter(e) &&
		   e->now_ns - nb->pinged_ns >= quarter(e)) {
		nb->pinged_ns = e->now_ns;
		nb->owe |= MCAST_OWE_PING;
	}
}

static void not_up(struct mcast_eng *e)
{
	if (e->now_ns < e->conf.open_deadline_ns)
		return;
	for (uint32_t i = 0; i < e->n_nbs; i++)
		if (!e->nbs[i].hello_in) {
			mcast_eng_fail(e, e->nbs[i].rank, -ETIMEDOUT,
				       e->conf.rank);
			return;
		}
}

/* A neighbour that leaves knows that the group is over and why; its FAIL, or
 * that of another member, comes soon. Only after MCAST_SETTLE_NS is the broken
 * link itself the reason. */
static void check_left(struct mcast_eng *e)
{
	if (e->left_nb == MCAST_NONE)
		return;
	if (!e->left_deadline_ns)
		e->left_deadline_ns = e->now_ns + MCAST_SETTLE_NS;
	if (e->now_ns >= e->left_deadline_ns)
		mcast_eng_fail(e, e->nbs[e->left_nb].rank, e->left_err,
			       e->conf.rank);
}

static void timers(struct mcast_eng *e)
{
	bool waits = mcast_eng_waits(e);

	if ((waits && !e->waits) || e->now_ns - e->looked_ns > 2 * quarter(e))
		listen_anew(e);
	e->waits = waits;
	e->looked_ns = e->now_ns;
	if (e->over || e->closed)
		return;
	check_left(e);
	if (!e->over && !e->up && e->n_nbs)
		not_up(e);
	for (uint32_t i = 0; waits && !e->over && i < e->n_nbs; i++)
		if (mcast_nb_open(&e->nbs[i]))
			check_silence(e, &e->nbs[i]);
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

uint64_t mcast_eng_deadline(const struct mcast_eng *e)
{
	uint64_t t = ENV_NEVER, asked;

	/* What found no room is tried again at the next completion. No event
	 * says that memory is free again, so there is a timer too. */
	if (e->again)
		t = e->now_ns + 10 * 1000 * 1000;
	if (e->over && e->ended)
		return ENV_NEVER;
	/* After leave_deadline_ns no timer is needed: each arrival of FAIL is
	 * an event. */
	if (e->over && e->leave_deadline_ns > e->now_ns)
		t = least(t, e->leave_deadline_ns);
	if (e->over)
		return least(t, e->over_deadline_ns);
	if (e->closed)
		return t;
	if (e->left_nb != MCAST_NONE)
		t = least(t, e->left_deadline_ns);
	if (!e->up && e->n_nbs)
		t = least(t, e->conf.open_deadline_ns);
	if (!mcast_eng_waits(e))
		return t;
	for (uint32_t i = 0; i < e->n_nbs; i++) {
		const struct mcast_nb *nb = &e->nbs[i];

		if (!mcast_nb_open(nb))
			continue;
		asked = nb->pinged_ns > nb->heard_ns ? nb->pinged_ns
						     : nb->heard_ns;
		t = least(t, asked + quarter(e));
		t = least(t, nb->heard_ns + e->conf.member_timeout_ns);
	}
	if (e->x.active && e->n_nbs)
		t = least(t, e->reported_ns + MCAST_REPORT_NS);
	return t;
}

/* --- rounds ------------------------------------------------------------- */

static int report_failure(struct mcast_eng *e)
{
	if (!e->failure_due)
		return 0;
	e->failure_due = false;
	e->port->ops->failed(e->port);
	return 1;
}

static int end_message(struct mcast_eng *e)
{
	return mcast_xfer_complete(e) ? mcast_xfer_end(e, 0) : 0;
}

static int (*const steps[])(struct mcast_eng *e) = {
	mcast_resume_step, mcast_xfer_arrivals, mcast_xfer_start_next,
	mcast_slot_step,   mcast_xfer_begins,	mcast_xfer_grants,
	mcast_xfer_sends,  end_message,
};

/* A step that fails ends the group, and what it was to set up is not there: a
 * ring without memory has no buffers. So no later step runs. */
static int work(struct mcast_eng *e)
{
	int moved = 0;

	for (unsigned i = 0; i < sizeof(steps) / sizeof(*steps) && !e->over;
	     i++)
		moved += steps[i](e);
	return moved;
}

int mcast_eng_poll(struct mcast_eng *e, uint64_t now_ns)
{
	int moved = 0;

	e->now_ns = now_ns;
	e->again = false;
	timers(e);
	if (!e->closed)
		moved += work(e);
	moved += mcast_over_step(e);
	moved += flush(e);
	moved += report_failure(e);
	return moved;
}

bool mcast_eng_has_work(const struct mcast_eng *e)
{
	if (e->failure_due || (owes(e) && !e->again))
		return true;
	if (e->over || e->closed)
		return false;
	return mcast_xfer_arrived(e) || mcast_xfer_complete(e) ||
	       mcast_slot_has_work(e) || mcast_resume_has_work(e) ||
	       (!e->again && mcast_xfer_has_work(e));
}

bool mcast_eng_quiet(const struct mcast_eng *e)
{
	const struct mcast_nb *nb;

	if (e->flying || e->slots.under_way || e->failure_due)
		return false;
	if (e->over)
		return e->ended;
	if (!e->closed)
		return false;
	for (uint32_t i = 0; i < e->n_nbs; i++) {
		nb = &e->nbs[i];
		if (nb->up && !nb->fail_in && !(nb->bye_in && nb->bye_out))
			return false;
	}
	return true;
}
