/* SPDX-License-Identifier: MIT */
/*
 * resume/resume.c - see resume.h. The root compares all tables, the object
 * begins, and goes on along its plan.
 */
#include "mcast/eng.h"

#include <errno.h>

#include "base/assert.h"

/* The root keeps one digest per so many blocks. */
#define STRIDE 256u

/* --- up and down -------------------------------------------------------- */

static int find_parents(struct mcast_eng *e)
{
	struct mcast_resume *r = e->resume;
	struct mcast_plan one;
	struct mcast_item item;
	uint32_t x;
	int rc;

	rc = mcast_plan_init(&one, e->conf.algorithm, e->conf.n, 1,
			     e->conf.racks);
	for (uint32_t i = 1; i < e->conf.n && !rc; i++) {
		skein_assert(mcast_plan_next_recv(&one, i, 0, &item));
		r->parents[i] = item.peer;
	}
	for (uint32_t i = 0; i < e->conf.n; i++) {
		for (x = i; x && x != e->conf.rank; x = r->parents[x])
			;
		r->below += x == e->conf.rank;
	}
	return rc;
}

static void claim_free(struct mcast_port *port, struct mcast_claim *c)
{
	port->ops->free(port, c->have);
	port->ops->free(port, c->sums);
	port->ops->free(port, c->runs);
	c->have = c->sums = NULL;
	c->runs = NULL;
}

int mcast_resume_own_table(struct mcast_eng *e)
{
	struct mcast_resume *r = e->resume;
	struct mcast_table *t = &r->tables[e->conf.rank];
	size_t len = r->claim.n_runs * sizeof(*t->runs);

	/* runs == NULL means that the table is not known yet, so allocate even
	 * for none. */
	t->runs = e->port->ops->alloc(e->port, len + sizeof(*t->runs));
	if (!t->runs)
		return -ENOMEM;
	if (len)
		memcpy(t->runs, r->claim.runs, len);
	t->n = r->claim.n_runs;
	t->knows = r->claim.knows;
	t->gone = r->claim.store == SKEIN_MCAST_CONSUMED;
	t->size = r->claim.size;
	r->order[r->n_order++] = e->conf.rank;
	return 0;
}

int mcast_resume_init(struct mcast_eng *e, const struct mcast_claim *claim)
{
	struct mcast_port *port = e->port;
	struct mcast_claim c = *claim;
	struct mcast_resume *r = port->ops->alloc(port, sizeof(*r));
	uint32_t n = e->conf.n;
	int rc;

	if (!r) {
		claim_free(port, &c);
		return -ENOMEM;
	}
	e->resume = r;
	r->claim = c;
	r->tables = port->ops->alloc(port, n * sizeof(*r->tables));
	r->parents = port->ops->alloc(port, n * sizeof(*r->parents));
	r->order = port->ops->alloc(port, n * sizeof(*r->order));
	r->exchanges =
		port->ops->alloc(port, (e->n_nbs + 1) * sizeof(*r->exchanges));
	if (!r->tables || !r->parents || !r->order || !r->exchanges)
		return -ENOMEM;
	rc = find_parents(e);
	/* Nothing is read if the blocks are in memory, or consumed. */
	if (c.store != SKEIN_MCAST_REREAD)
		r->read_at = c.n_runs;
	if (rc == 0 && mcast_resume_reading(e))
		return mcast_ring_reserve(e);
	return rc ? rc : mcast_resume_own_table(e);
}

/* Needed until the object is complete; the tables live as long as the plan. */
static void tables_free(struct mcast_eng *e)
{
	struct mcast_resume *r = e->resume;

	for (uint32_t i = 0; r->tables && i < e->conf.n; i++)
		e->port->ops->free(e->port, r->tables[i].runs);
	e->port->ops->free(e->port, r->tables);
	r->tables = NULL;
}

void mcast_resume_fini(struct mcast_eng *e)
{
	struct mcast_resume *r = e->resume;
	struct mcast_port *port = e->port;

	if (!r)
		return;
	if (r->has_plan)
		mcast_resume_plan_fini(&r->plan, port);
	claim_free(port, &r->claim);
	tables_free(e);
	port->ops->free(port, r->parents);
	port->ops->free(port, r->order);
	port->ops->free(port, r->exchanges);
	port->ops->free(port, r->compare.upto);
	port->ops->free(port, r);
	e->resume = NULL;
}

bool mcast_resume_pending(const struct mcast_eng *e)
{
	return e->resume && !e->resume->started;
}

bool mcast_resume_active(const struct mcast_eng *e)
{
	return e->resume && e->resume->started && e->x.active && !e->x.msg.seq;
}

uint32_t mcast_resume_blocks(const struct mcast_eng *e, uint64_t size)
{
	struct skein_mcast_msg msg;

	mcast_msg_set(e, &msg, 0, size, NULL);
	return msg.blocks;
}

/* --- the root compares -------------------------------------------------- */

static uint64_t digest_of(const struct mcast_claim *c, uint32_t b, uint32_t end,
			  uint64_t d)
{
	for (; b < end; b++)
		if (c->have[b / 64] >> b % 64 & 1)
			d = mcast_digest_add(d, c->sums[b], b);
	return d;
}

static uint64_t digest_upto(const struct mcast_resume *r, uint32_t end)
{
	return digest_of(&r->claim, end / STRIDE * STRIDE, end,
			 r->compare.upto[end / STRIDE]);
}

/* Is a run of another member equal to the root's, or can the root not tell? */
static bool run_right(const struct mcast_resume *r, const struct mcast_run *run)
{
	const struct mcast_run *own = mcast_run_find(&r->tables[0], run->first);
	uint32_t end = run->first + run->count;

	if (!own || own->first + own->count < end)
		return true;
	return digest_upto(r, end) - digest_upto(r, run->first) == run->digest;
}

/* A table with another size is not compared: start() fails the group. */
static bool comparable(const struct mcast_resume *r,
		       const struct mcast_table *t)
{
	return t->knows && t->size == r->tables[0].size && !t->gone;
}

static void compare_next(struct mcast_resume *r)
{
	struct mcast_compare *j = &r->compare;
	struct mcast_table *t = &r->tables[j->member];

	if (comparable(r, t) && j->run < t->n) {
		if (run_right(r, &t->runs[j->run]))
			t->runs[j->kept++] = t->runs[j->run];
		j->run++;
		return;
	}
	if (comparable(r, t))
		t->n = j->kept;
	j->member++;
	j->run = j->kept = 0;
}

/* All tables have come up. A round looks at some blocks: there may be 2^24. */
static int compare(struct mcast_eng *e)
{
	struct mcast_resume *r = e->resume;
	struct mcast_compare *j = &r->compare;
	uint32_t strides, looks = 0;

	if (!r->tables[0].n) {
		r->n_all = e->conf.n;
		return 0;
	}
	strides = mcast_resume_blocks(e, r->claim.size) / STRIDE + 1;
	if (!j->upto) {
		j->upto = e->port->ops->alloc(e->port,
					      strides * sizeof(*j->upto));
		j->at = j->member = 1;
	}
	if (!j->upto)
		return -ENOMEM;
	for (; j->at < strides && looks < MCAST_COMPARE_LOOKS;
	     looks += STRIDE) {
		uint32_t end = j->at * STRIDE;

		j->upto[j->at] = digest_of(&r->claim, end - STRIDE, end,
					   j->upto[j->at - 1]);
		j->at++;
	}
	for (; j->member < e->conf.n && looks < MCAST_COMPARE_LOOKS;
	     looks += 2 * STRIDE)
		compare_next(r);
	if (j->member < e->conf.n)
		return 0;
	e->port->ops->free(e->port, j->upto);
	j->upto = NULL;
	r->n_all = e->conf.n;
	return 0;
}

/* --- the object begins -------------------------------------------------- */

/* The object's size. All members that know it must agree; *rank: one that does
 * not. */
static int find_size(struct mcast_eng *e, uint64_t *size, uint32_t *rank)
{
	const struct mcast_table *t = e->resume->tables;
	bool known = false;

	*rank = 0;
	for (uint32_t i = 0; i < e->conf.n; i++) {
		if (!t[i].knows)
			continue;
		if (known && t[i].size != *size) {
			*rank = i;
			return -EINVAL;
		}
		known = true;
		*size = t[i].size;
	}
	return known ? 0 : -ENODATA;
}

static void begin_seek(struct mcast_eng *e)
{
	struct mcast_resume *r = e->resume;

	r->granting = (struct mcast_resume_iter){.member = e->conf.rank};
	r->sending = (struct mcast_resume_iter){.member = e->conf.rank,
						.sends = true};
	r->feeding = r->sending;
	mcast_resume_next_grant(e);
	mcast_resume_next_send(e);
	if (e->x.stream)
		mcast_resume_next_feed(e);
}

/* Has the root changed nothing in this member's table but removed runs? What it
 * removed is treated as not here. */
static bool own_right(struct mcast_eng *e)
{
	const struct mcast_claim *c = &e->resume->claim;
	const struct mcast_table *t = &e->resume->tables[e->conf.rank];
	uint32_t at = 0;

	if (t->knows != c->knows || t->size != c->size ||
	    t->gone != (c->store == SKEIN_MCAST_CONSUMED))
		return false;
	for (uint32_t i = 0; i < t->n; i++) {
		while (at < c->n_runs && c->runs[at].first != t->runs[i].first)
			at++;
		if (at == c->n_runs || c->runs[at].count != t->runs[i].count ||
		    c->runs[at].digest != t->runs[i].digest)
			return false;
	}
	return true;
}

/* Takes a run of this member's own blocks. Consumed blocks that another member
 * lacks come once more, to be passed on. */
static void run_take(struct mcast_eng *e, const struct mcast_run *run,
		     bool gone)
{
	const struct mcast_resume_plan *p = &e->resume->plan;
	struct mcast_xfer *x = &e->x;
	uint32_t last = x->msg.blocks - 1, kept = run->count;
	bool has_last = run->first + run->count > last;

	mcast_run_set(x->have, run);
	x->n_have += run->count;
	x->msg.digest += run->digest; /* a sum: mcast_digest_add() */
	if (gone) {
		kept -= mcast_resume_missing(p, run->first, run->count);
		has_last = has_last && !mcast_resume_missing(p, last, 1);
	}
	e->stats.blocks_kept += kept;
	e->stats.bytes_kept += (uint64_t)kept * x->msg.block_size;
	if (has_last)
		e->stats.bytes_kept -=
			x->msg.block_size - mcast_block_len(&x->msg, last);
}

static void own_take(struct mcast_eng *e)
{
	const struct mcast_table *t = &e->resume->tables[e->conf.rank];
	const struct mcast_claim *c = &e->resume->claim;
	struct mcast_xfer *x = &e->x;
	uint32_t claimed = 0;

	if (!x->msg.size) { /* an empty object needs no memory */
		mcast_have_set(e, 0, mcast_sum(x, 0, x->seed, 0));
		return;
	}
	for (uint32_t i = 0; i < c->n_runs; i++)
		claimed += c->runs[i].count;
	for (uint32_t i = 0; i < t->n; i++)
		run_take(e, &t->runs[i], t->gone);
	e->stats.blocks_refused = claimed - e->stats.blocks_kept;
	e->resume->believed = t->gone && t->n;
}

/* As xfer_make() does for other messages. */
static int begin_xfer(struct mcast_eng *e, const struct mcast_dest *dest)
{
	struct mcast_resume *r = e->resume;
	struct mcast_xfer *x = &e->x;
	struct mcast_port *port = e->port;
	size_t words = x->msg.blocks / 64 + 1;

	x->msg.tag = dest->tag;
	x->base = dest->buf;
	x->stream = r->claim.store && x->msg.size;
	x->ring_due = x->stream && e->conf.n > 1;
	x->seed = mcast_seed(e->conf.list, 0);
	x->have = port->ops->alloc(port, words * sizeof(*x->have));
	x->sums = r->claim.sums;
	r->claim.sums = NULL;
	if (!x->sums && r->claim.store != SKEIN_MCAST_CONSUMED)
		x->sums = port->ops->alloc(port,
					   x->msg.blocks * sizeof(*x->sums));
	if (!x->have || (!x->sums && r->claim.store != SKEIN_MCAST_CONSUMED))
		return -ENOMEM;
	own_take(e);
	begin_seek(e);
	claim_free(port, &r->claim);
	return 0;
}

static int ask_where(struct mcast_eng *e, const struct skein_mcast_msg *msg,
		     struct mcast_dest *dest)
{
	const struct mcast_claim *c = &e->resume->claim;
	int rc;

	if (c->begun) {
		*dest = (struct mcast_dest){.buf = c->buf, .tag = c->tag};
		return 0;
	}
	rc = e->port->ops->incoming(e->port, msg, dest);
	/* In memory or not must agree with what skein_mcast_resume() was told:
	 * the other members' plans count on it. */
	if (!rc && !dest->err && msg->size && !dest->buf.addr == !c->store)
		dest->err = -EINVAL;
	return rc;
}

static int plan_begin(struct mcast_eng *e, uint32_t *rank)
{
	struct mcast_resume *r = e->resume;
	struct mcast_plan how;
	uint64_t size = 0;
	int rc = find_size(e, &size, rank);

	if (rc)
		return rc;
	*rank = e->conf.rank;
	rc = mcast_plan_init(&how, e->conf.algorithm, e->conf.n, 1,
			     e->conf.racks);
	mcast_msg_set(e, &r->msg, 0, size, NULL);
	if (rc == 0)
		rc = mcast_resume_plan_begin(&r->plan, e->port, &how,
					     size ? r->msg.blocks : 0,
					     r->tables, r->parents);
	r->has_plan = rc == 0;
	return rc;
}

/* The plan is made. */
static int start(struct mcast_eng *e, uint32_t *rank)
{
	struct mcast_resume *r = e->resume;
	struct mcast_dest dest = {0};
	int rc;

	if (r->plan.lost) {
		e->over_lost = r->plan.lost;
		*rank = 0;
		return -ENODATA;
	}
	if (!own_right(e))
		return -SKEIN_EPEER;
	rc = ask_where(e, &r->msg, &dest);
	if (rc || e->over)
		return rc;
	r->started = true;
	e->x.msg = r->msg;
	e->x.active = true; /* it will end with done() */
	return dest.err ? dest.err : begin_xfer(e, &dest);
}

static void try_start(struct mcast_eng *e)
{
	struct mcast_resume *r = e->resume;
	uint32_t rank = e->conf.rank;
	int rc = r->has_plan ? 0 : plan_begin(e, &rank);

	if (!rc && !mcast_resume_plan_step(&r->plan, e->port))
		return;
	if (!rc)
		rc = start(e, &rank);
	if (rc)
		mcast_eng_fail(e, rank, rc, e->conf.rank);
}

int mcast_resume_end(struct mcast_eng *e, int status)
{
	struct mcast_resume *r = e->resume;
	struct skein_mcast_msg msg;

	r->started = true;
	e->done++;
	if (!r->claim.begun)
		return 0;
	mcast_msg_set(e, &msg, 0, r->claim.size, r->claim.tag);
	mcast_left_keep(e, &msg, r->claim.have);
	r->claim.have = NULL;
	e->port->ops->done(e->port, &msg, status);
	return 1;
}

/* --- while it is under way ---------------------------------------------- */

static void seek(struct mcast_eng *e, struct mcast_resume_iter *it, bool *seeks,
		 bool *is, struct mcast_item *item)
{
	enum mcast_resume_found f =
		mcast_resume_next(&e->resume->plan, it, item);

	*seeks = f == MCAST_RESUME_MORE;
	*is = f != MCAST_RESUME_END;
}

void mcast_resume_next_grant(struct mcast_eng *e)
{
	struct mcast_resume *r = e->resume;

	seek(e, &r->granting, &r->seek_grant, &e->x.grants, &e->x.grant);
}

void mcast_resume_next_send(struct mcast_eng *e)
{
	struct mcast_resume *r = e->resume;

	seek(e, &r->sending, &r->seek_send, &e->x.sends, &e->x.send);
}

static bool all_here(const struct mcast_eng *e)
{
	return mcast_resume_active(e) && e->x.n_have == e->x.msg.blocks;
}

bool mcast_resume_whole(const struct mcast_eng *e)
{
	return all_here(e) && e->resume->sum_known &&
	       e->resume->sum == e->x.msg.digest;
}

static bool sum_is_due(const struct mcast_eng *e)
{
	return all_here(e) && mcast_is_root(e) && !e->resume->sum_known;
}

static bool sum_differs(const struct mcast_eng *e)
{
	return all_here(e) && e->resume->sum_known && !e->resume->believed &&
	       e->resume->sum != e->x.msg.digest;
}

/* Consumed blocks cannot be checked any more: the root's digest is taken. */
static bool sum_is_believed(const struct mcast_eng *e)
{
	return all_here(e) && e->resume->sum_known && e->resume->believed &&
	       e->resume->sum != e->x.msg.digest;
}

/* Every block that came equals its sender's. So if the digest differs, blocks
 * that this member had before differ from the root's. */
static int look_at_sum(struct mcast_eng *e)
{
	if (sum_is_due(e)) {
		e->resume->sum_known = true;
		e->resume->sum = e->x.msg.digest;
		return 1;
	}
	if (sum_is_believed(e)) {
		e->x.msg.digest = e->resume->sum;
		return 1;
	}
	if (!sum_differs(e))
		return 0;
	mcast_eng_fail(e, e->conf.rank, -EBADMSG, e->conf.rank);
	return 1;
}

static bool compares(const struct mcast_eng *e)
{
	const struct mcast_resume *r = e->resume;

	return mcast_is_root(e) && r->n_order == e->conf.n && !r->n_all;
}

static bool starts(const struct mcast_eng *e)
{
	return e->resume->n_all == e->conf.n && !e->resume->started;
}

static bool sought(const struct mcast_eng *e)
{
	return mcast_resume_active(e) &&
	       (e->resume->seek_grant || e->resume->seek_send ||
		e->resume->seek_feed);
}

int mcast_resume_step(struct mcast_eng *e)
{
	struct mcast_resume *r = e->resume;
	int moved = 0, rc;

	if (!r || e->over)
		return 0;
	moved = mcast_resume_read(e);
	if (!e->over && compares(e)) {
		rc = compare(e);
		if (rc)
			mcast_eng_fail(e, e->conf.rank, rc, e->conf.rank);
		moved++;
	}
	if (!e->over && starts(e)) {
		try_start(e);
		moved++;
	}
	if (e->over)
		return moved;
	if (sought(e)) {
		if (r->seek_grant)
			mcast_resume_next_grant(e);
		if (r->seek_send)
			mcast_resume_next_send(e);
		if (r->seek_feed)
			mcast_resume_next_feed(e);
		moved++;
	}
	return moved + look_at_sum(e) + mcast_resume_say(e);
}

bool mcast_resume_has_work(const struct mcast_eng *e)
{
	return e->resume &&
	       (mcast_resume_read_works(e) || compares(e) || starts(e) ||
		sought(e) || sum_is_due(e) || sum_is_believed(e) ||
		sum_differs(e) || (!e->again && mcast_resume_says(e)));
}
