/* SPDX-License-Identifier: MIT */
/*
 * resume.c - see resume.h.
 *
 * A table goes on as soon as it is here whole: to the parent those of this
 * member's part of the tree, in the order in which they came; to the children all,
 * in the order of ranks. The root begins with the second when the first has
 * reached it from everybody, so nobody hears from above before he has said all.
 */
#include "mcast/eng.h"

#include <errno.h>

#include "base/assert.h"

/* Records that are said to one neighbour in a round. */
#define SAY_MOST 32u
/* The root's digests are summed up so many blocks at a time. */
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

	/* NULL says that it is not known yet. */
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
	r->shares = port->ops->alloc(port, (e->n_nbs + 1) * sizeof(*r->shares));
	if (!r->tables || !r->parents || !r->order || !r->shares)
		return -ENOMEM;
	rc = find_parents(e);
	/* Nothing is read of what is in memory, or gone. */
	if (c.store != SKEIN_MCAST_REREAD)
		r->read_at = c.n_runs;
	if (rc == 0 && mcast_resume_reading(e))
		return mcast_ring_reserve(e);
	return rc ? rc : mcast_resume_own_table(e);
}

/* What is needed until the object is here; the tables as long as the plan. */
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
	port->ops->free(port, r->shares);
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

/* --- what the others say ------------------------------------------------ */

static uint32_t blocks_of(const struct mcast_eng *e, uint64_t size)
{
	struct skein_mcast_msg msg;

	mcast_msg_set(e, &msg, 0, size, NULL);
	return msg.blocks;
}

/* From whom a member's table comes up to me. */
static uint32_t comes_by(const struct mcast_eng *e, uint32_t rank)
{
	const uint32_t *parents = e->resume->parents;

	while (rank && parents[rank] != e->conf.rank)
		rank = parents[rank];
	return rank;
}

static bool is_parent(const struct mcast_eng *e, const struct mcast_nb *nb)
{
	return e->parent == (uint32_t)(nb - e->nbs);
}

/* Has everything that I had to say been said to the parent? */
static bool said_up(const struct mcast_eng *e)
{
	const struct mcast_resume *r = e->resume;

	return e->parent != MCAST_NONE && r->n_order == r->below &&
	       r->shares[e->parent].at == r->below;
}

static bool head_right(const struct mcast_eng *e, const struct mcast_nb *nb,
		       const struct mcast_rec *rec)
{
	const struct mcast_resume *r = e->resume;
	uint64_t most = (uint64_t)e->conf.block_size * SKEIN_MCAST_BLOCKS_MAX;

	if (rec->rank >= e->conf.n || rec->msg > 1 || rec->size > most ||
	    rec->block > mcast_runs_max(e->conf.n) || rec->len > !!rec->rank ||
	    (!rec->msg && (rec->size || rec->block)))
		return false;
	if (is_parent(e, nb))
		return said_up(e) && rec->rank == r->n_all;
	return nb->child && comes_by(e, rec->rank) == nb->rank &&
	       !r->tables[rec->rank].runs;
}

static void table_here(struct mcast_eng *e, struct mcast_nb *nb)
{
	struct mcast_resume *r = e->resume;
	struct mcast_share *s = &r->shares[nb - e->nbs];

	s->talks = false;
	if (is_parent(e, nb))
		r->n_all++;
	else
		r->order[r->n_order++] = s->rank;
}

static bool take_have(struct mcast_eng *e, struct mcast_nb *nb,
		      const struct mcast_rec *rec)
{
	struct mcast_resume *r = e->resume;
	struct mcast_share *s = &r->shares[nb - e->nbs];
	struct mcast_table *t;

	if (s->talks || r->started || !head_right(e, nb, rec))
		return false;
	t = &r->tables[rec->rank];
	e->port->ops->free(e->port, t->runs);
	t->knows = rec->msg;
	t->gone = rec->len;
	t->size = rec->size;
	t->n = rec->block;
	t->runs = e->port->ops->alloc(e->port, (t->n + 1) * sizeof(*t->runs));
	if (!t->runs) {
		t->n = 0;
		mcast_eng_fail(e, e->conf.rank, -ENOMEM, e->conf.rank);
		return true;
	}
	*s = (struct mcast_share){
		.talks = true, .rank = rec->rank, .at = s->at, .run = s->run};
	if (!t->n)
		table_here(e, nb);
	return true;
}

static bool take_run(struct mcast_eng *e, struct mcast_nb *nb,
		     const struct mcast_rec *rec)
{
	struct mcast_resume *r = e->resume;
	struct mcast_share *s = &r->shares[nb - e->nbs];
	const struct mcast_run *last;
	struct mcast_table *t;
	uint32_t blocks;

	if (!s->talks || rec->rank != s->rank || !rec->len)
		return false;
	t = &r->tables[s->rank];
	blocks = blocks_of(e, t->size);
	if (!t->runs || rec->block >= blocks || rec->len > blocks - rec->block)
		return false;
	last = s->got ? &t->runs[s->got - 1] : NULL;
	if (last && rec->block <= last->first + last->count)
		return false;
	t->runs[s->got++] = (struct mcast_run){
		.first = rec->block, .count = rec->len, .digest = rec->sum};
	if (s->got == t->n)
		table_here(e, nb);
	return true;
}

static bool take_sum(struct mcast_eng *e, const struct mcast_nb *nb,
		     const struct mcast_rec *rec)
{
	struct mcast_resume *r = e->resume;

	if (!is_parent(e, nb) || r->sum_known || r->n_all != e->conf.n)
		return false;
	r->sum_known = true;
	r->sum = rec->sum;
	return true;
}

void mcast_resume_record(struct mcast_eng *e, struct mcast_nb *nb,
			 const struct mcast_rec *rec)
{
	bool right = false;

	if (!e->resume)
		right = false;
	else if (rec->type == MCAST_HAVE)
		right = take_have(e, nb, rec);
	else if (rec->type == MCAST_RUN)
		right = take_run(e, nb, rec);
	else
		right = take_sum(e, nb, rec);
	if (!right)
		mcast_garbage(e, nb, "what it cannot have");
}

/* --- what is said ------------------------------------------------------- */

/* The table that is next for a neighbour; NULL: none now. */
static const struct mcast_table *next_table(const struct mcast_eng *e,
					    uint32_t nb, uint32_t *rank)
{
	const struct mcast_resume *r = e->resume;
	uint32_t at = r->shares[nb].at;

	if (!mcast_nb_open(&e->nbs[nb]) || !r->tables)
		return NULL;
	if (nb == e->parent) {
		if (at == r->n_order)
			return NULL;
		*rank = r->order[at];
	} else {
		if (!e->nbs[nb].child || at == r->n_all)
			return NULL;
		*rank = at;
	}
	return &r->tables[*rank];
}

static bool sum_due(const struct mcast_eng *e, uint32_t nb)
{
	const struct mcast_resume *r = e->resume;
	const struct mcast_share *s = &r->shares[nb];

	return r->sum_known && !s->sum_told && e->nbs[nb].child &&
	       s->at == e->conf.n && mcast_nb_open(&e->nbs[nb]);
}

static bool say_next(struct mcast_eng *e, uint32_t nb)
{
	struct mcast_share *s = &e->resume->shares[nb];
	struct mcast_rec rec = {.type = MCAST_SUM, .sum = e->resume->sum};
	const struct mcast_table *t;
	const struct mcast_run *run;
	uint32_t rank;

	t = next_table(e, nb, &rank);
	if (!t) {
		if (!sum_due(e, nb) ||
		    mcast_say(e, &e->nbs[nb], MCAST_WORDS, &rec))
			return false;
		return s->sum_told = true;
	}
	rec = (struct mcast_rec){.type = MCAST_HAVE,
				 .rank = (uint16_t)rank,
				 .msg = t->knows,
				 .size = t->size,
				 .block = t->n,
				 .len = t->gone};
	if (s->run) {
		run = &t->runs[s->run - 1];
		rec = (struct mcast_rec){.type = MCAST_RUN,
					 .rank = (uint16_t)rank,
					 .block = run->first,
					 .len = run->count,
					 .sum = run->digest};
	}
	if (mcast_say(e, &e->nbs[nb], MCAST_WORDS, &rec))
		return false;
	if (s->run++ == t->n) {
		s->run = 0;
		s->at++;
	}
	return true;
}

static int say_all(struct mcast_eng *e)
{
	int moved = 0;

	for (uint32_t i = 0; i < e->n_nbs; i++)
		for (unsigned k = 0; k < SAY_MOST && say_next(e, i); k++)
			moved++;
	return moved;
}

/* Has somebody something to hear? */
static bool says(const struct mcast_eng *e)
{
	uint32_t rank;

	for (uint32_t i = 0; i < e->n_nbs; i++)
		if (next_table(e, i, &rank) || sum_due(e, i))
			return true;
	return false;
}

/* --- the root compares -------------------------------------------------- */

/* The digests of blocks before the first, the STRIDE-th, ... that the root has. */
struct sums {
	const struct mcast_claim *claim;
	uint64_t *upto;
};

static uint64_t digest_upto(const struct sums *s, uint32_t end)
{
	uint64_t d = s->upto[end / STRIDE];

	for (uint32_t b = end / STRIDE * STRIDE; b < end; b++)
		if (s->claim->have[b / 64] >> b % 64 & 1)
			d = mcast_digest_add(d, s->claim->sums[b], b);
	return d;
}

/* A run of another member is as the root has it, or the root has not all. */
static bool run_right(const struct sums *s, const struct mcast_table *root,
		      const struct mcast_run *run)
{
	const struct mcast_run *own = mcast_run_find(root, run->first);
	uint32_t end = run->first + run->count;

	if (!own || own->first + own->count < end)
		return true;
	return digest_upto(s, end) - digest_upto(s, run->first) == run->digest;
}

static void compare(const struct sums *s, const struct mcast_table *root,
		    struct mcast_table *t)
{
	uint32_t kept = 0;

	/* Another size is no part of this object: start() says so. */
	if (!t->knows || t->size != root->size || t->gone)
		return;
	for (uint32_t i = 0; i < t->n; i++)
		if (run_right(s, root, &t->runs[i]))
			t->runs[kept++] = t->runs[i];
	t->n = kept;
}

/* All tables have come up. */
static int judge(struct mcast_eng *e)
{
	struct mcast_resume *r = e->resume;
	struct sums s = {.claim = &r->claim};
	uint32_t strides;

	if (!r->tables[0].n) {
		r->n_all = e->conf.n;
		return 0;
	}
	strides = blocks_of(e, r->claim.size) / STRIDE + 1;
	s.upto = e->port->ops->alloc(e->port, strides * sizeof(*s.upto));
	if (!s.upto)
		return -ENOMEM;
	for (uint32_t i = 1; i < strides; i++) {
		/* what is before the (i - 1)-th is known */
		uint64_t d = s.upto[i - 1];

		for (uint32_t b = (i - 1) * STRIDE; b < i * STRIDE; b++)
			if (r->claim.have[b / 64] >> b % 64 & 1)
				d = mcast_digest_add(d, r->claim.sums[b], b);
		s.upto[i] = d;
	}
	for (uint32_t i = 1; i < e->conf.n; i++)
		compare(&s, &r->tables[0], &r->tables[i]);
	e->port->ops->free(e->port, s.upto);
	r->n_all = e->conf.n;
	return 0;
}

/* --- the object begins -------------------------------------------------- */

/* Who knows how large it is? All who do say the same. */
static int find_size(struct mcast_eng *e, uint64_t *size, uint32_t *who)
{
	const struct mcast_table *t = e->resume->tables;
	bool known = false;

	*who = 0;
	for (uint32_t i = 0; i < e->conf.n; i++) {
		if (!t[i].knows)
			continue;
		if (known && t[i].size != *size) {
			*who = i;
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

/* What the root has refused of mine is not here. The rest is. */
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

static void own_take(struct mcast_eng *e)
{
	const struct mcast_table *t = &e->resume->tables[e->conf.rank];
	const struct mcast_claim *c = &e->resume->claim;
	struct mcast_xfer *x = &e->x;
	uint32_t claimed = 0;

	if (!x->msg.size) { /* that is nowhere, and everywhere */
		mcast_have_set(e, 0, mcast_sum(x, 0, x->seed, 0));
		return;
	}
	for (uint32_t i = 0; i < c->n_runs; i++)
		claimed += c->runs[i].count;
	for (uint32_t i = 0; i < t->n; i++)
		for (uint32_t b = t->runs[i].first;
		     b < t->runs[i].first + t->runs[i].count; b++) {
			mcast_have_set(e, b, c->sums ? c->sums[b] : 0);
			/* It comes all the same, to be passed on. */
			if (t->gone &&
			    mcast_resume_missing(&e->resume->plan, b))
				continue;
			e->stats.blocks_kept++;
			e->stats.bytes_kept += mcast_block_len(&x->msg, b);
		}
	e->stats.blocks_refused = claimed - e->stats.blocks_kept;
	e->resume->believed = t->gone && t->n;
}

/* As xfer_make() does for others. */
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
	if (r->claim.store != SKEIN_MCAST_CONSUMED)
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
	/* To memory, or not: the others reckon with what part has said. */
	if (!rc && !dest->err && msg->size && !dest->buf.addr == !c->store)
		dest->err = -EINVAL;
	return rc;
}

static int make_plan(struct mcast_eng *e, uint32_t blocks)
{
	struct mcast_resume *r = e->resume;
	struct mcast_plan how;
	int rc;

	rc = mcast_plan_init(&how, e->conf.algorithm, e->conf.n, 1,
			     e->conf.racks);
	if (rc == 0)
		rc = mcast_resume_plan_init(&r->plan, e->port, &how, blocks,
					    r->tables, r->parents);
	r->has_plan = rc == 0;
	if (rc == 0 && r->plan.lost) {
		e->over_lost = r->plan.lost;
		rc = -ENODATA;
	}
	return rc;
}

static int start(struct mcast_eng *e, uint32_t *who)
{
	struct mcast_resume *r = e->resume;
	struct mcast_dest dest = {0};
	struct skein_mcast_msg msg;
	uint64_t size = 0;
	int rc = find_size(e, &size, who);

	if (rc)
		return rc;
	mcast_msg_set(e, &msg, 0, size, NULL);
	rc = make_plan(e, size ? msg.blocks : 0);
	*who = rc == -ENODATA ? 0 : e->conf.rank;
	if (rc)
		return rc;
	if (!own_right(e))
		return -SKEIN_EPEER;
	rc = ask_where(e, &msg, &dest);
	if (rc || e->over)
		return rc;
	r->started = true;
	e->x.msg = msg;
	e->x.active = true; /* it will end with done() */
	return dest.err ? dest.err : begin_xfer(e, &dest);
}

static void try_start(struct mcast_eng *e)
{
	uint32_t who;
	int rc = start(e, &who);

	if (rc)
		mcast_eng_fail(e, who, rc, e->conf.rank);
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

/* Of what was consumed nobody can say any more what it was. */
static bool sum_is_believed(const struct mcast_eng *e)
{
	return all_here(e) && e->resume->sum_known && e->resume->believed &&
	       e->resume->sum != e->x.msg.digest;
}

/* Everybody's blocks were what their senders had: so this member's own are
 * others than the root's. */
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

static bool judges(const struct mcast_eng *e)
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
	if (!e->over && judges(e)) {
		rc = judge(e);
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
	return moved + look_at_sum(e) + say_all(e);
}

bool mcast_resume_has_work(const struct mcast_eng *e)
{
	return e->resume &&
	       (mcast_resume_read_works(e) || judges(e) || starts(e) ||
		sought(e) || sum_is_due(e) || sum_is_believed(e) ||
		sum_differs(e) || (!e->again && says(e)));
}
