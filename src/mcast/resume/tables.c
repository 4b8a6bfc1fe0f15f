/* SPDX-License-Identifier: MIT */
/*
 * resume/tables.c - members of a resumed object exchange tables of what they
 * have.
 *
 * A member passes a table on once it has the whole table. To its parent it
 * sends the tables of its part of the tree, in the order of their arrival; to
 * its children it sends all tables, in the order of ranks. The root begins with
 * the second when all tables have reached it. So a member receives nothing from
 * above before it has sent everything up.
 */
#include "mcast/eng.h"

#include <errno.h>

/* Records sent to one neighbour in a round. */
#define SAY_MOST 32u

/* --- what the others say ------------------------------------------------ */

/* The child from which a member's table comes up. */
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

/* Has this member sent everything to its parent? */
static bool said_up(const struct mcast_eng *e)
{
	const struct mcast_resume *r = e->resume;

	return e->parent != MCAST_NONE && r->n_order == r->below &&
	       r->exchanges[e->parent].at == r->below;
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
	struct mcast_exchange *s = &r->exchanges[nb - e->nbs];

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
	struct mcast_exchange *s = &r->exchanges[nb - e->nbs];
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
	*s = (struct mcast_exchange){
		.talks = true, .rank = rec->rank, .at = s->at, .run = s->run};
	if (!t->n)
		table_here(e, nb);
	return true;
}

static bool take_run(struct mcast_eng *e, struct mcast_nb *nb,
		     const struct mcast_rec *rec)
{
	struct mcast_resume *r = e->resume;
	struct mcast_exchange *s = &r->exchanges[nb - e->nbs];
	const struct mcast_run *last;
	struct mcast_table *t;
	uint32_t blocks;

	if (!s->talks || rec->rank != s->rank || !rec->len)
		return false;
	t = &r->tables[s->rank];
	blocks = mcast_resume_blocks(e, t->size);
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
		mcast_protocol_error(e, nb, "what it cannot have");
}

/* --- what is said ------------------------------------------------------- */

/* The next table for a neighbour; NULL: none now. */
static const struct mcast_table *next_table(const struct mcast_eng *e,
					    uint32_t nb, uint32_t *rank)
{
	const struct mcast_resume *r = e->resume;
	uint32_t at = r->exchanges[nb].at;

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
	const struct mcast_exchange *s = &r->exchanges[nb];

	return r->sum_known && !s->sum_sent && e->nbs[nb].child &&
	       s->at == e->conf.n && mcast_nb_open(&e->nbs[nb]);
}

static bool say_next(struct mcast_eng *e, uint32_t nb)
{
	struct mcast_exchange *s = &e->resume->exchanges[nb];
	struct mcast_rec rec = {.type = MCAST_SUM, .sum = e->resume->sum};
	const struct mcast_table *t;
	const struct mcast_run *run;
	uint32_t rank;

	t = next_table(e, nb, &rank);
	if (!t) {
		if (!sum_due(e, nb) ||
		    mcast_say(e, &e->nbs[nb], MCAST_WORDS, &rec))
			return false;
		return s->sum_sent = true;
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

int mcast_resume_say(struct mcast_eng *e)
{
	int moved = 0;

	for (uint32_t i = 0; i < e->n_nbs; i++)
		for (unsigned k = 0; k < SAY_MOST && say_next(e, i); k++)
			moved++;
	return moved;
}

bool mcast_resume_says(const struct mcast_eng *e)
{
	uint32_t rank;

	for (uint32_t i = 0; i < e->n_nbs; i++)
		if (next_table(e, i, &rank) || sum_due(e, i))
			return true;
	return false;
}
