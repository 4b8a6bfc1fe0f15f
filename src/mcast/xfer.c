/* SPDX-License-Identifier: MIT */
/*
 * xfer.c - one message at one member. The member grants the next receive of its
 * schedule, and sends the next block of its schedule once the block is here and
 * the receiver is ready. docs/protocol/mcast.md, section 4.
 *
 * Why it never stops (unless the application does): of all transfers that are
 * not done, take one with the lowest step. All transfers of earlier steps are
 * done. So its sender has the block and has no earlier send, and its receiver
 * has no earlier receive to grant.
 */
#include "mcast/eng.h"

#include <errno.h>

#include "base/assert.h"

/* --- a message begins and ends ------------------------------------------ */

void mcast_msg_set(const struct mcast_eng *e, struct skein_mcast_msg *msg,
		   uint64_t seq, uint64_t size, void *tag)
{
	uint64_t blocks =
		size / e->conf.block_size + (size % e->conf.block_size != 0);

	*msg = (struct skein_mcast_msg){
		.seq = seq,
		.size = size,
		.blocks = blocks ? (uint32_t)blocks : 1,
		.block_size = e->conf.block_size,
		.tag = tag,
	};
}

void mcast_left_keep(struct mcast_eng *e, const struct skein_mcast_msg *msg,
		     uint64_t *have)
{
	if (e->left.is) { /* the oldest is kept */
		e->port->ops->free(e->port, have);
		return;
	}
	e->left = (struct mcast_left){
		.is = true,
		.whole = mcast_is_root(e) && (!e->resume || msg->seq),
		.msg = *msg,
		.have = have,
	};
}

static void xfer_clear(struct mcast_eng *e)
{
	struct mcast_xfer *x = &e->x;

	e->port->ops->free(e->port, x->have);
	e->port->ops->free(e->port, x->sums);
	e->port->ops->free(e->port, x->left);
	e->port->ops->free(e->port, x->need.left);
	memset(x, 0, sizeof(*x));
}

/*
 * A member that registers memory begins later than the others. With two READYs
 * under way a group that began out of step may stay so, because of two blocks
 * the later one may take the receiver's bandwidth first. So receives are
 * granted one at a time until each member has heard from each of its
 * neighbours. That brings all members into step, and then they stay in step.
 */
static int make_ring(struct mcast_eng *e)
{
	uint64_t had = e->ring.count;
	int rc;

	rc = mcast_ring_begin(e);
	if (rc == -EAGAIN)
		return 0;
	e->x.ring_due = false;
	for (uint32_t n = 1; e->ring.count != had && n < e->conf.n; n *= 2)
		e->x.in_turn += 2;
	return rc;
}

/* Does BEGIN announce the message? Otherwise it comes into the kept memory. */
static bool begun(const struct mcast_eng *e, const struct skein_mcast_msg *msg)
{
	return msg->size > mcast_first_room(e->conf.block_size);
}

/* The part that is the same for root and receivers. */
static int xfer_make(struct mcast_eng *e, const struct skein_mcast_msg *msg,
		     const struct mcast_dest *dest)
{
	struct mcast_xfer *x = &e->x;
	struct mcast_port *port = e->port;
	int rc;

	x->msg = *msg;
	x->msg.tag = dest->tag;
	x->base = dest->buf;
	x->stream = !dest->buf.addr && msg->size;
	x->seed = mcast_seed(e->conf.list, msg->seq);
	rc = mcast_plan_init(&x->plan, e->conf.algorithm, e->conf.n,
			     msg->blocks, e->conf.racks);
	skein_assert(rc == 0);
	x->have = port->ops->alloc(port,
				   (msg->blocks / 64 + 1) * sizeof(uint64_t));
	if (!x->stream && e->conf.checksum)
		x->sums =
			port->ops->alloc(port, msg->blocks * sizeof(uint64_t));
	if (!x->have || (!x->stream && e->conf.checksum && !x->sums))
		return -ENOMEM;
	x->active = true;
	x->sends = mcast_plan_next_send(&x->plan, e->conf.rank, 0, &x->send);
	x->grants = !mcast_is_root(e) &&
		    mcast_plan_next_recv(&x->plan, e->conf.rank, 0, &x->grant);
	x->feed = x->send;
	x->feeds = x->sends && x->stream && mcast_is_root(e);
	for (uint32_t i = 0; i < e->n_nbs; i++)
		e->nbs[i].begins = e->nbs[i].child && begun(e, msg);
	x->ring_due = x->stream && e->conf.n > 1;
	/* There is no child to wait for: the only block is here. */
	while (!begun(e, msg) && x->ring_due && !rc)
		rc = make_ring(e);
	return rc;
}

int mcast_xfer_start_next(struct mcast_eng *e)
{
	struct skein_mcast_msg msg;
	struct mcast_dest dest;
	struct mcast_out *out;
	int rc;

	if (e->x.active || e->over || list_empty(&e->queue) ||
	    mcast_resume_pending(e))
		return 0;
	out = container_of(list_pop_head(&e->queue), struct mcast_out, link);
	mcast_msg_set(e, &msg, e->done, out->size, NULL);
	dest = (struct mcast_dest){.buf = out->buf, .tag = out->tag};
	e->port->ops->out_free(e->port, out);
	if (mcast_slot_fits(e, msg.size)) {
		mcast_slot_start(e, &msg, &dest);
		return 1;
	}
	rc = xfer_make(e, &msg, &dest);
	e->x.active = true; /* also on failure: it ends with done() */
	if (rc)
		mcast_eng_fail(e, e->conf.rank, rc, e->conf.rank);
	return 1;
}

bool mcast_xfer_complete(const struct mcast_eng *e)
{
	const struct mcast_xfer *x = &e->x;

	if (!x->active || x->small || x->sends || e->flying || x->n_app ||
	    e->n_arrivals ||
	    (!mcast_is_root(e) && x->n_have != x->msg.blocks) ||
	    (mcast_resume_active(e) &&
	     (x->grants || e->n_grants || !mcast_resume_whole(e))))
		return false;
	for (uint32_t i = 0; i < e->n_nbs; i++)
		if (e->nbs[i].begins)
			return false;
	return true;
}

int mcast_xfer_end(struct mcast_eng *e, int status)
{
	struct skein_mcast_msg msg = e->x.msg;

	if (status) {
		msg.digest = 0;
		mcast_left_keep(e, &msg, e->x.have);
		e->x.have = NULL;
	}
	/* Small messages only: what comes along the tree now is of a later
	 * message. */
	if (!e->x.small)
		e->n_grants = e->n_arrivals = 0;
	xfer_clear(e);
	e->done++;
	if (!status) {
		e->digest = mcast_digest_add(e->digest, msg.digest, msg.seq);
		e->stats.messages++;
	}
	e->port->ops->done(e->port, &msg, status);
	return 1;
}

void mcast_have_set(struct mcast_eng *e, uint32_t block, uint64_t sum)
{
	struct mcast_xfer *x = &e->x;

	if (mcast_have(x, block))
		return; /* the root asked for the block again */
	x->have[block / 64] |= 1ull << (block % 64);
	x->n_have++;
	x->msg.digest = mcast_digest_add(x->msg.digest, sum, block);
	if (x->sums)
		x->sums[block] = sum;
}

/* --- READY -------------------------------------------------------------- */

static int say_ready(struct mcast_eng *e, struct mcast_nb *nb, uint64_t msg,
		     uint32_t block, uint32_t len, const struct mcast_buf *to)
{
	struct mcast_rec rec = {.type = MCAST_READY,
				.msg = msg,
				.size = (uint64_t)(uintptr_t)to->addr,
				.block = block,
				.len = len,
				.rkey = to->rkey};

	return mcast_say(e, nb, MCAST_WORDS, &rec);
}

static bool wants_first(const struct mcast_eng *e)
{
	return e->parent != MCAST_NONE && !e->x.active && !e->first_granted &&
	       !mcast_resume_pending(e) && !e->n_arrivals &&
	       mcast_nb_open(&e->nbs[e->parent]);
}

static int grant_first(struct mcast_eng *e)
{
	if (!wants_first(e) ||
	    say_ready(e, &e->nbs[e->parent], e->done, MCAST_BLOCK_FIRST,
		      mcast_first_room(e->conf.block_size), &e->first))
		return 0;
	e->first_granted = true;
	return 1;
}

/* Is the next item of a resumed object not found yet? */
static bool seeks(const struct mcast_eng *e, bool send)
{
	return mcast_resume_active(e) &&
	       (send ? e->resume->seek_send : e->resume->seek_grant);
}

static uint32_t grants_most(const struct mcast_eng *e)
{
	return e->x.in_turn ? 1 : MCAST_GRANTS;
}

static bool may_grant(const struct mcast_eng *e)
{
	return e->x.active && e->x.grants && !e->x.ring_due &&
	       !seeks(e, false) &&
	       e->n_grants + e->n_arrivals < grants_most(e) && !e->over;
}

static struct mcast_nb *peer_of(struct mcast_eng *e, uint32_t rank)
{
	uint32_t i = mcast_nb_find(e, rank);

	skein_assert(i != MCAST_NONE);
	return &e->nbs[i];
}

/* 1: granted; 0: not now. */
static int grant_next(struct mcast_eng *e)
{
	struct mcast_xfer *x = &e->x;
	struct mcast_nb *nb = peer_of(e, x->grant.peer);
	uint32_t block = (uint32_t)x->grant.block, buffer = MCAST_NO_BUFFER;
	struct mcast_buf to = x->base;

	if (!mcast_nb_open(nb))
		return 0;
	if (x->stream) {
		buffer = mcast_ring_take(e, false,
					 mcast_need_unsent(e, &x->grant));
		if (buffer == MCAST_NO_BUFFER)
			return 0;
		to = mcast_ring_buf(e, buffer);
	} else {
		to.addr += (uint64_t)block * x->msg.block_size;
	}
	if (say_ready(e, nb, x->msg.seq, block, mcast_block_len(&x->msg, block),
		      &to)) {
		if (buffer != MCAST_NO_BUFFER)
			e->ring.buffers[buffer].state = MCAST_BUFFER_FREE;
		return 0;
	}
	e->grants[e->n_grants++] =
		(struct mcast_grant){.nb = (uint32_t)(nb - e->nbs),
				     .block = block,
				     .buffer = buffer};
	if (mcast_resume_active(e))
		mcast_resume_next_grant(e);
	else
		x->grants = mcast_plan_next_recv(&x->plan, e->conf.rank,
						 x->grant.step + 1, &x->grant);
	return 1;
}

int mcast_xfer_grants(struct mcast_eng *e)
{
	int moved = grant_first(e);

	while (may_grant(e) && grant_next(e))
		moved++;
	return moved;
}

void mcast_xfer_ready(struct mcast_eng *e, struct mcast_nb *nb,
		      const struct mcast_rec *rec)
{
	if (nb->n_ready == MCAST_READYS) {
		mcast_protocol_error(e, nb, "more READYs than there can be");
		return;
	}
	nb->ready[nb->n_ready++] = (struct mcast_ready){.msg = rec->msg,
							.addr = rec->size,
							.block = rec->block,
							.len = rec->len,
							.rkey = rec->rkey};
}

/* --- blocks that come --------------------------------------------------- */

/* May this message begin? It must be the next one of the tree, this member must
 * have asked its parent for it, and it must come from the parent. */
static bool begins_right(struct mcast_eng *e, const struct mcast_nb *nb,
			 const struct mcast_rec *rec,
			 struct skein_mcast_msg *msg)
{
	bool asked = e->first_granted;

	if ((e->x.active && !e->x.small) ||
	    !mcast_slot_may_precede(e, rec->msg) ||
	    rec->size > (uint64_t)e->conf.block_size * SKEIN_MCAST_BLOCKS_MAX)
		return false;
	e->first_granted = false;
	mcast_msg_set(e, msg, rec->msg, rec->size, NULL);
	return asked && e->parent == (uint32_t)(nb - e->nbs);
}

void mcast_xfer_begin(struct mcast_eng *e, struct mcast_nb *nb,
		      const struct mcast_rec *rec)
{
	struct mcast_arrival a = {.nb = (uint32_t)(nb - e->nbs),
				  .buffer = MCAST_NO_BUFFER,
				  .rec = *rec};
	struct skein_mcast_msg msg;

	if (!begins_right(e, nb, rec, &msg) || !begun(e, &msg))
		mcast_protocol_error(e, nb, "a BEGIN out of place");
	else
		e->arrivals[e->n_arrivals++] = a;
}

/* Takes the oldest READY that nb had; false: it had none. */
static bool take_grant(struct mcast_eng *e, uint32_t nb, struct mcast_grant *g)
{
	for (uint32_t i = 0; i < e->n_grants; i++) {
		if (e->grants[i].nb != nb)
			continue;
		*g = e->grants[i];
		e->x.in_turn -= e->x.in_turn != 0;
		e->n_grants--;
		memmove(&e->grants[i], &e->grants[i + 1],
			(e->n_grants - i) * sizeof(*g));
		return true;
	}
	return false;
}

void mcast_xfer_block(struct mcast_eng *e, struct mcast_nb *nb,
		      const struct mcast_rec *rec)
{
	struct mcast_arrival a = {.nb = (uint32_t)(nb - e->nbs),
				  .buffer = MCAST_NO_BUFFER,
				  .rec = *rec};
	struct skein_mcast_msg msg;
	struct mcast_grant g;
	bool right;

	if (!e->x.active || e->x.small) {
		a.first = true;
		right = begins_right(e, nb, rec, &msg) && !begun(e, &msg) &&
			!rec->block && rec->len == msg.size;
	} else {
		right = take_grant(e, a.nb, &g) && rec->msg == e->x.msg.seq &&
			rec->block == g.block && rec->size == e->x.msg.size &&
			rec->len == mcast_block_len(&e->x.msg, rec->block);
		a.buffer = right ? g.buffer : MCAST_NO_BUFFER;
	}
	if (!right)
		mcast_protocol_error(e, nb,
				     "a BLOCK that the schedule has not");
	else
		e->arrivals[e->n_arrivals++] = a;
}

/* The memory of an arrival's bytes. */
static struct mcast_buf arrival_buf(const struct mcast_eng *e,
				    const struct mcast_arrival *a)
{
	struct mcast_buf buf = e->x.base;

	if (a->first)
		return e->first;
	if (a->buffer != MCAST_NO_BUFFER)
		return mcast_ring_buf(e, a->buffer);
	buf.addr += (uint64_t)a->rec.block * e->conf.block_size;
	return buf;
}

static bool sum_right(struct mcast_eng *e, const struct mcast_arrival *a)
{
	uint64_t seed = mcast_seed(e->conf.list, a->rec.msg);

	if (!e->conf.checksum || mcast_sum(arrival_buf(e, a).addr, a->rec.len,
					   seed, a->rec.block) == a->rec.sum)
		return true;
	e->stats.bad_blocks++;
	mcast_eng_fail(e, e->nbs[a->nb].rank, -EBADMSG, e->conf.rank);
	return false;
}

/* A message begins: the application says where it goes. */
static int begin(struct mcast_eng *e, struct mcast_arrival *a)
{
	struct mcast_dest dest = {0};
	struct skein_mcast_msg msg;
	struct mcast_buf to;
	int rc;

	mcast_msg_set(e, &msg, a->rec.msg, a->rec.size, NULL);
	rc = e->port->ops->incoming(e->port, &msg, &dest);
	if (rc)
		return rc;
	e->x.msg = msg;
	e->x.msg.tag = dest.tag;
	rc = dest.err ? dest.err : xfer_make(e, &msg, &dest);
	e->x.active = true; /* also on failure: it ends with done() */
	if (rc)
		return rc;
	if (e->over || !a->first)
		return 0;
	if (e->x.stream)
		a->buffer = mcast_ring_take(e, false, e->x.left[a->rec.block]);
	a->first = false;
	to = arrival_buf(e, a);
	if (a->rec.len)
		memcpy(to.addr, e->first.addr, a->rec.len);
	e->stats.copies += a->rec.len;
	e->x.grants = false;
	return 0;
}

static void arrive(struct mcast_eng *e, struct mcast_arrival *a)
{
	uint64_t sum = e->conf.checksum ? a->rec.sum : 0;
	bool begins = a->rec.type == MCAST_BEGIN, had;
	int rc = 0;

	if (!begins && !sum_right(e, a))
		return;
	if (begins || a->first)
		rc = begin(e, a);
	if (rc)
		mcast_eng_fail(e, e->conf.rank, rc, e->conf.rank);
	if (rc || e->over || begins)
		return;
	e->stats.blocks_received++;
	e->stats.bytes_received += a->rec.len;
	had = mcast_have(&e->x, a->rec.block);
	mcast_have_set(e, a->rec.block, sum);
	if (a->buffer != MCAST_NO_BUFFER)
		mcast_ring_have(e, a->buffer, a->rec.block, sum, had);
}

bool mcast_xfer_arrived(const struct mcast_eng *e)
{
	/* Small messages before it may still be missing. */
	return e->n_arrivals && e->arrivals[0].rec.msg == e->done;
}

/* One a round: then other groups run. */
int mcast_xfer_arrivals(struct mcast_eng *e)
{
	struct mcast_arrival a;

	if (!mcast_xfer_arrived(e) || e->over)
		return 0;
	a = e->arrivals[0];
	e->n_arrivals--;
	memmove(e->arrivals, e->arrivals + 1, e->n_arrivals * sizeof(a));
	arrive(e, &a);
	return 1;
}

/* --- sends -------------------------------------------------------------- */

/* Is the block of the next send here? *buffer: its buffer if it is streamed. */
static bool here(const struct mcast_eng *e, uint32_t *buffer)
{
	const struct mcast_xfer *x = &e->x;

	*buffer = MCAST_NO_BUFFER;
	if (x->stream) {
		*buffer = mcast_ring_find(e, (uint32_t)x->send.block);
		return *buffer != MCAST_NO_BUFFER;
	}
	return (mcast_is_root(e) && !mcast_resume_active(e)) ||
	       mcast_have(x, (uint32_t)x->send.block);
}

static struct mcast_sendop *free_op(struct mcast_eng *e)
{
	for (unsigned i = 0; i < MCAST_SENDS; i++)
		if (!e->sends[i].busy)
			return &e->sends[i];
	return NULL;
}

/* Is the neighbour's oldest READY one that it sent before it knew of this
 * message? Then the READY for this block comes after it. */
static bool first_ahead(const struct mcast_eng *e, const struct mcast_nb *nb)
{
	return nb->ready[0].block == MCAST_BLOCK_FIRST && nb->child &&
	       begun(e, &e->x.msg);
}

/* Does this READY ask for the next message of the tree? The child may not know
 * of small messages sent since. */
static bool asks(const struct mcast_eng *e, const struct mcast_ready *r)
{
	uint64_t ahead = e->x.msg.seq - r->msg;

	return r->block == MCAST_BLOCK_FIRST && r->msg <= e->x.msg.seq &&
	       (!ahead || e->slots.count);
}

static bool fits(const struct mcast_eng *e, const struct mcast_nb *nb)
{
	const struct mcast_ready *r = &nb->ready[0];
	uint32_t block = (uint32_t)e->x.send.block;

	return ((r->msg == e->x.msg.seq && r->block == block) ||
		(nb->child && asks(e, r))) &&
	       r->len >= mcast_block_len(&e->x.msg, block);
}

static void ready_used(struct mcast_nb *nb)
{
	nb->n_ready--;
	memmove(nb->ready, nb->ready + 1, nb->n_ready * sizeof(*nb->ready));
}

static bool may_begin(const struct mcast_eng *e, const struct mcast_nb *nb)
{
	return e->x.active && nb->begins && nb->n_ready && mcast_nb_open(nb);
}

/* Sends BEGIN to the children that have finished the message before. */
static int send_begins(struct mcast_eng *e)
{
	struct mcast_rec rec = {.type = MCAST_BEGIN,
				.msg = e->x.msg.seq,
				.size = e->x.msg.size};
	struct mcast_nb *nb;
	int moved = 0;

	for (uint32_t i = 0; i < e->n_nbs && !e->over; i++) {
		nb = &e->nbs[i];
		if (!may_begin(e, nb))
			continue;
		if (!asks(e, &nb->ready[0]))
			mcast_protocol_error(e, nb, "a READY before BEGIN");
		else if (mcast_say(e, nb, MCAST_WORDS, &rec))
			continue;
		ready_used(nb);
		nb->begins = false;
		moved++;
	}
	return moved;
}

static uint64_t sum_of(struct mcast_eng *e, uint32_t block, uint32_t buffer,
		       const struct mcast_buf *from)
{
	struct mcast_xfer *x = &e->x;
	uint64_t sum = 0;

	if (buffer != MCAST_NO_BUFFER)
		return e->ring.buffers[buffer].sum;
	if (mcast_have(x, block))
		return x->sums ? x->sums[block] : 0;
	/* The root, for the first time. */
	if (x->sums)
		sum = mcast_sum(from->addr, mcast_block_len(&x->msg, block),
				x->seed, block);
	mcast_have_set(e, block, sum);
	return sum;
}

static int post(struct mcast_eng *e, struct mcast_nb *nb, uint32_t buffer)
{
	struct mcast_xfer *x = &e->x;
	struct mcast_sendop *op = free_op(e);
	uint32_t block = (uint32_t)x->send.block;
	struct mcast_buf from = x->base;
	struct mcast_rec rec = {.type = MCAST_BLOCK,
				.number = nb->out[MCAST_BLOCKS],
				.msg = x->msg.seq,
				.size = x->msg.size,
				.block = block,
				.len = mcast_block_len(&x->msg, block)};
	int rc;

	if (buffer != MCAST_NO_BUFFER)
		from = mcast_ring_buf(e, buffer);
	else if (x->msg.size)
		from.addr += (uint64_t)block * x->msg.block_size;
	rec.sum = sum_of(e, block, buffer, &from);
	rc = e->port->ops->block(e->port, (uint32_t)(nb - e->nbs), &rec, &from,
				 nb->ready[0].addr, nb->ready[0].rkey, &op->op);
	if (rc) {
		e->again = true;
		return rc;
	}
	nb->out[MCAST_BLOCKS]++;
	op->busy = true;
	op->nb = (uint32_t)(nb - e->nbs);
	op->buffer = buffer;
	e->flying++;
	if (buffer != MCAST_NO_BUFFER) {
		e->ring.buffers[buffer].flying++;
		e->ring.buffers[buffer].unsent--;
	}
	e->stats.blocks_sent++;
	e->stats.bytes_sent += rec.len;
	return 0;
}

static int send_next(struct mcast_eng *e)
{
	struct mcast_xfer *x = &e->x;
	struct mcast_nb *nb;
	uint32_t buffer;

	if (!x->active || !x->sends || e->over || e->flying == MCAST_SENDS ||
	    seeks(e, true) || !here(e, &buffer))
		return 0;
	nb = peer_of(e, x->send.peer);
	if (!mcast_nb_open(nb))
		return 0;
	if (!nb->n_ready || first_ahead(e, nb)) {
		e->stats.not_ready += !x->waited;
		x->waited = true;
		return 0;
	}
	if (!fits(e, nb)) {
		mcast_protocol_error(e, nb,
				     "a READY that the schedule has not");
		return 1;
	}
	if (post(e, nb, buffer))
		return 0;
	ready_used(nb);
	x->waited = false;
	if (mcast_resume_active(e))
		mcast_resume_next_send(e);
	else
		x->sends = mcast_plan_next_send(&x->plan, e->conf.rank,
						x->send.step + 1, &x->send);
	return 1;
}

/*
 * The ring is registered after BEGIN has gone to the children: so all members
 * register at the same time. If each registered first, members would begin out
 * of step by that time for each hop, and such a group may stay out of step
 * (docs/design/mcast.md).
 */
int mcast_xfer_begins(struct mcast_eng *e)
{
	int moved = send_begins(e), rc;

	if (e->over || !e->x.ring_due)
		return moved;
	rc = make_ring(e);
	if (rc)
		mcast_eng_fail(e, e->conf.rank, rc, e->conf.rank);
	return moved + 1;
}

int mcast_xfer_sends(struct mcast_eng *e)
{
	return mcast_ring_feed(e) + send_next(e);
}

/* --- is there work? ----------------------------------------------------- */

static bool send_works(const struct mcast_eng *e)
{
	const struct mcast_xfer *x = &e->x;
	const struct mcast_nb *nb;
	uint32_t buffer;

	if (!x->active || !x->sends || e->flying == MCAST_SENDS ||
	    seeks(e, true) || !here(e, &buffer))
		return false;
	nb = &e->nbs[mcast_nb_find(e, x->send.peer)];
	return mcast_nb_open(nb) && nb->n_ready && !first_ahead(e, nb);
}

bool mcast_xfer_has_work(const struct mcast_eng *e)
{
	const struct mcast_xfer *x = &e->x;

	if (!x->active && !list_empty(&e->queue) && !mcast_resume_pending(e))
		return true;
	if (wants_first(e) || send_works(e) || x->ring_due)
		return true;
	for (uint32_t i = 0; i < e->n_nbs; i++)
		if (may_begin(e, &e->nbs[i]))
			return true;
	if (mcast_ring_may_feed(e))
		return true;
	return may_grant(e) &&
	       mcast_nb_open(&e->nbs[mcast_nb_find(e, x->grant.peer)]) &&
	       (!x->stream || mcast_ring_room(e, false));
}

void mcast_eng_send(struct mcast_eng *e, struct mcast_out *out)
{
	list_add_tail(&e->queue, &out->link);
}
