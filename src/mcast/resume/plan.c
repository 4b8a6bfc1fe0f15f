/* SPDX-License-Identifier: MIT */
/*
 * resume/plan.c - see plan.h.
 *
 * The object falls into segments in which the same members have every block.
 * One sweep over the beginnings and ends of all runs finds the segments, and
 * with them the gaps, the lost blocks, and the member that gives the root what
 * it lacks. There may be 2^16 runs, so one step looks at some of them.
 */
#include "mcast/resume/plan.h"

#include <errno.h>

#include "base/assert.h"
#include "base/heap.h"

#define RUNS_ALL 65536u
#define RUNS_LEAST 64u
#define RUNS_MOST 4096u
/* The largest gather: so many blocks, or this part of the object. Then the next
 * holder has its turn. */
#define PIECE 64u
#define PIECES 4096u
/* Blocks that one call of mcast_resume_next() looks at. */
#define LOOKS 512u
/* Beginnings and ends of runs, and hops of gathers, that one step looks at: a
 * few hundred us. */
#define SWEEPS 4096u

/* --- runs --------------------------------------------------------------- */

uint32_t mcast_runs_max(uint32_t members)
{
	uint32_t max = RUNS_ALL / members;

	if (max > RUNS_MOST)
		return RUNS_MOST;
	return max < RUNS_LEAST ? RUNS_LEAST : max;
}

/* The first block from `from` on with the bit `set`; `blocks`: there is
 * none. */
static uint32_t next_bit(const uint64_t *have, uint32_t blocks, uint32_t from,
			 bool set)
{
	uint64_t word;

	while (from < blocks) {
		word = (set ? have[from / 64] : ~have[from / 64]) >> from % 64;
		if (word) {
			from += (uint32_t)__builtin_ctzll(word);
			return from < blocks ? from : blocks;
		}
		from = (from / 64 + 1) * 64;
	}
	return blocks;
}

/* Counts the runs of at least `len` blocks, and stores them unless runs is
 * NULL. */
static uint32_t runs_from(const uint64_t *have, uint32_t blocks, uint32_t len,
			  struct mcast_run *runs)
{
	uint32_t n = 0, end, at = next_bit(have, blocks, 0, true);

	for (; at < blocks; at = next_bit(have, blocks, end, true)) {
		end = next_bit(have, blocks, at, false);
		if (end - at < len)
			continue;
		if (runs)
			runs[n] = (struct mcast_run){.first = at,
						     .count = end - at};
		n++;
	}
	return n;
}

uint32_t mcast_runs_of(const uint64_t *have, uint32_t blocks,
		       struct mcast_run *runs, uint32_t max)
{
	/* Runs of at least hi blocks fit; runs of at least lo blocks do not. */
	uint32_t lo = 1, hi = blocks + 1, mid;

	if (runs_from(have, blocks, 1, NULL) <= max)
		return runs_from(have, blocks, 1, runs);
	while (hi - lo > 1) {
		mid = lo + (hi - lo) / 2;
		if (runs_from(have, blocks, mid, NULL) <= max)
			hi = mid;
		else
			lo = mid;
	}
	return runs_from(have, blocks, hi, runs);
}

void mcast_run_set(uint64_t *have, const struct mcast_run *run)
{
	uint32_t at = run->first, end = run->first + run->count, bits;

	for (; at < end; at += bits) {
		bits = 64 - at % 64;
		if (bits > end - at)
			bits = end - at;
		have[at / 64] |= ~0ull >> (64 - bits) << at % 64;
	}
}

const struct mcast_run *mcast_run_find(const struct mcast_table *t,
				       uint32_t block)
{
	uint32_t lo = 0, hi = t->n, mid;

	while (lo < hi) {
		mid = lo + (hi - lo) / 2;
		if (t->runs[mid].first + t->runs[mid].count <= block)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < t->n && t->runs[lo].first <= block ? &t->runs[lo] : NULL;
}

/* --- the sweep ---------------------------------------------------------- */

struct mcast_sweep {
	struct mcast_resume_plan *p;
	uint32_t at;	/* everything before this block is done */
	uint32_t looks; /* looks of the current step */
	/* the next beginning or end at each member, by block */
	struct heap events;
	struct heap_node *next;
	uint32_t *been; /* [member]: events so far */
	/* Members by their distance from the root, and their places in that
	 * order. */
	uint32_t *depth, *order, *place;
	uint32_t *level; /* [depth]: its first place in order */
	uint32_t levels;
	uint32_t *last;	 /* [depth]: the place that gave last */
	uint64_t *holds; /* a bit per place: this member can give the block */
	uint32_t held;	 /* members that have it, or had and consumed it */
	uint32_t givers;
	uint64_t *send_free, *recv_free; /* steps */
};

/* Queues the member's next event, if there is one. */
static void event_push(struct mcast_sweep *s, uint32_t rank)
{
	const struct mcast_table *t = &s->p->tables[rank];
	const struct mcast_run *run = &t->runs[s->been[rank] / 2];

	if (s->been[rank] == 2 * t->n)
		return;
	heap_push(&s->events, &s->next[rank],
		  run->first + (s->been[rank] % 2 ? run->count : 0));
}

static void by_depth(struct mcast_sweep *s)
{
	const struct mcast_resume_plan *p = s->p;
	uint32_t n = p->members, at = 0;

	for (uint32_t r = 0; r < n; r++)
		for (uint32_t x = r; x; x = p->parents[x])
			s->depth[r]++;
	for (uint32_t d = 0; at < n; d++) {
		s->level[d] = s->last[d] = at;
		for (uint32_t r = 0; r < n; r++)
			if (s->depth[r] == d) {
				s->place[r] = at;
				s->order[at++] = r;
			}
		s->levels = d + 1;
	}
	s->level[s->levels] = n;
}

/* The first place in [from, to) that can give the block; to: there is none. */
static uint32_t holder_in(const struct mcast_sweep *s, uint32_t from,
			  uint32_t to)
{
	return next_bit(s->holds, to, from, true);
}

/* A member nearest to the root; members of the same depth take turns. */
static uint32_t choose_holder(struct mcast_sweep *s)
{
	uint32_t first = holder_in(s, 0, s->p->members), d, lo, hi, at;

	d = s->depth[s->order[first]];
	lo = s->level[d];
	hi = s->level[d + 1];
	at = s->last[d] + 1 < hi ? holder_in(s, s->last[d] + 1, hi) : hi;
	if (at == hi)
		at = holder_in(s, lo, hi);
	s->last[d] = at;
	return s->order[at];
}

static uint64_t most(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static void add_gather(struct mcast_sweep *s, uint32_t first, uint32_t count)
{
	struct mcast_resume_plan *p = s->p;
	uint32_t holder = choose_holder(s), hop = 0;
	uint64_t base = 0, at;

	/* The first step from which every member on the way is free when its
	 * turn comes. */
	for (uint32_t x = holder; x; x = p->parents[x], hop++) {
		at = most(s->send_free[x], s->recv_free[p->parents[x]]);
		base = most(base, at > hop ? at - hop : 0);
	}
	s->looks += hop;
	hop = 0;
	for (uint32_t x = holder; x; x = p->parents[x], hop++) {
		at = base + hop + count;
		s->send_free[x] = s->recv_free[p->parents[x]] = at;
		p->turn = most(p->turn, at);
	}
	p->gathers[p->n_gathers++] = (struct mcast_gather){
		.first = first, .count = count, .holder = holder, .base = base};
}

static uint32_t piece_of(uint32_t blocks)
{
	return blocks / PIECES > PIECE ? blocks / PIECES : PIECE;
}

static void segment(struct mcast_sweep *s, uint32_t first, uint32_t end)
{
	struct mcast_resume_plan *p = s->p;
	struct mcast_gap *gap = &p->gaps[p->n_gaps];

	if (s->held == p->members)
		return;
	/* A segment that touches the last gap extends it. */
	if (!p->n_gaps || gap[-1].first + (p->missing - gap[-1].at) != first)
		p->gaps[p->n_gaps++] =
			(struct mcast_gap){.first = first, .at = p->missing};
	p->missing += end - first;
	if (s->holds[0] & 1) /* the root, at place 0, has them */
		return;
	if (s->givers)
		add_gather(s, first, end - first);
	else
		p->lost += end - first;
}

static void happens(struct mcast_sweep *s, uint32_t rank)
{
	uint32_t place = s->place[rank], more = s->been[rank]++ % 2 ? -1u : 1;

	s->held += more;
	if (s->p->tables[rank].gone)
		return;
	s->givers += more;
	s->holds[place / 64] ^= 1ull << place % 64;
}

/* From `at` to the next event the same members have every block. Takes a piece
 * of that. */
static void sweep_on(struct mcast_sweep *s)
{
	uint32_t piece = piece_of(s->p->blocks), end = s->p->blocks, rank;
	uint64_t next;

	while (heap_first_key(&s->events) == s->at) {
		rank = (uint32_t)(heap_pop(&s->events) - s->next);
		happens(s, rank);
		event_push(s, rank);
		s->looks++;
	}
	next = heap_first_key(&s->events);
	if (next < end)
		end = (uint32_t)next;
	if (end - s->at > piece)
		end = s->at + piece;
	segment(s, s->at, end);
	s->looks++;
	s->at = end;
}

/* All arrays of a sweep are one allocation, in 64-bit words. */
static size_t sweep_size(size_t members)
{
	return sizeof(struct mcast_sweep) + members * sizeof(struct heap_node) +
	       (2 * members + members / 64 + 1) * sizeof(uint64_t) +
	       (6 * members + 1) * sizeof(uint32_t);
}

static void sweep_carve(struct mcast_sweep *s)
{
	uint32_t n = s->p->members;

	s->next = (struct heap_node *)(s + 1);
	s->send_free = (uint64_t *)(s->next + n);
	s->recv_free = s->send_free + n;
	s->holds = s->recv_free + n;
	s->depth = (uint32_t *)(s->holds + n / 64 + 1);
	s->been = s->depth + n;
	s->order = s->been + n;
	s->place = s->order + n;
	s->last = s->place + n;
	s->level = s->last + n; /* [n + 1] */
}

static int sweep_begin(struct mcast_resume_plan *p, struct mcast_port *port)
{
	uint32_t pieces = p->blocks / piece_of(p->blocks) + 1, runs = 0;
	struct mcast_sweep *s;

	for (uint32_t r = 0; r < p->members; r++)
		runs += p->tables[r].n;
	p->gaps = port->ops->alloc(port, (runs + 1) * sizeof(*p->gaps));
	p->gathers = port->ops->alloc(port, (2 * (size_t)runs + 1 + pieces) *
						    sizeof(*p->gathers));
	p->sweep = s = port->ops->alloc(port, sweep_size(p->members));
	if (!p->gaps || !p->gathers || !s)
		return -ENOMEM;
	s->p = p;
	sweep_carve(s);
	by_depth(s);
	for (uint32_t r = 0; r < p->members; r++)
		event_push(s, r);
	return 0;
}

int mcast_resume_plan_begin(struct mcast_resume_plan *p,
			    struct mcast_port *port,
			    const struct mcast_plan *how, uint32_t blocks,
			    const struct mcast_table *tables,
			    const uint32_t *parents)
{
	int rc;

	*p = (struct mcast_resume_plan){.members = how->members,
					.blocks = blocks,
					.tables = tables,
					.parents = parents,
					.down = *how};
	rc = sweep_begin(p, port);
	if (rc)
		mcast_resume_plan_fini(p, port);
	return rc;
}

bool mcast_resume_plan_step(struct mcast_resume_plan *p,
			    struct mcast_port *port)
{
	struct mcast_sweep *s = p->sweep;
	int rc;

	s->looks = 0;
	while (s->at < p->blocks && s->looks < SWEEPS)
		sweep_on(s);
	if (s->at < p->blocks)
		return false;
	port->ops->free(port, s);
	p->sweep = NULL;
	rc = mcast_plan_init(&p->down, p->down.algorithm, p->members,
			     p->missing, p->down.racks);
	skein_assert(rc == 0);
	return true;
}

void mcast_resume_plan_fini(struct mcast_resume_plan *p,
			    struct mcast_port *port)
{
	port->ops->free(port, p->gathers);
	port->ops->free(port, p->gaps);
	port->ops->free(port, p->sweep);
	p->sweep = NULL;
	p->gathers = NULL;
	p->gaps = NULL;
}

uint64_t mcast_resume_plan_steps(const struct mcast_resume_plan *p)
{
	return p->turn + mcast_plan_steps(&p->down);
}

/* --- a member's items --------------------------------------------------- */

/* The number of hops from the holder up to the member, and the member before it
 * on that way. False: the member is not on it. */
static bool on_way(const struct mcast_resume_plan *p, uint32_t holder,
		   uint32_t member, uint32_t *hop, uint32_t *before)
{
	uint32_t x = holder;

	*before = MCAST_NONE;
	for (*hop = 0; x && x != member; ++*hop) {
		*before = x;
		x = p->parents[x];
	}
	return x == member;
}

/* The next item of the gathering; false: this gather has none for the
 * member. */
static bool next_up(const struct mcast_resume_plan *p,
		    struct mcast_resume_iter *it, struct mcast_item *out)
{
	const struct mcast_gather *g = &p->gathers[it->gather];
	uint32_t hop, before;
	bool has;

	has = on_way(p, g->holder, it->member, &hop, &before) &&
	      (it->sends ? it->member != 0 : before != MCAST_NONE);
	if (has) {
		out->step = g->base + hop + it->i - !it->sends;
		out->block = g->first + it->i;
		out->peer = it->sends ? p->parents[it->member] : before;
	}
	if (!has || ++it->i == g->count) {
		it->gather++;
		it->i = 0;
	}
	return has;
}

/* The block with number `at` in `down`. */
static uint32_t missing_block(const struct mcast_resume_plan *p, uint32_t at)
{
	uint32_t lo = 0, hi = p->n_gaps, mid;

	while (hi - lo > 1) {
		mid = lo + (hi - lo) / 2;
		if (p->gaps[mid].at <= at)
			lo = mid;
		else
			hi = mid;
	}
	return p->gaps[lo].first + (at - p->gaps[lo].at);
}

/* How many blocks before `end` does some member lack? */
static uint32_t missing_before(const struct mcast_resume_plan *p, uint32_t end)
{
	uint32_t lo = 0, hi = p->n_gaps, mid, len;
	const struct mcast_gap *gap;

	while (lo < hi) {
		mid = lo + (hi - lo) / 2;
		if (p->gaps[mid].first < end)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo)
		return 0;
	gap = &p->gaps[lo - 1];
	len = (lo < p->n_gaps ? gap[1].at : p->missing) - gap->at;
	return gap->at + (end - gap->first < len ? end - gap->first : len);
}

uint32_t mcast_resume_missing(const struct mcast_resume_plan *p, uint32_t first,
			      uint32_t count)
{
	return missing_before(p, first + count) - missing_before(p, first);
}

/* Did the member get this block on its way up to the root? */
static bool gathered(const struct mcast_resume_plan *p, uint32_t member,
		     uint32_t block)
{
	uint32_t lo = 0, hi = p->n_gathers, mid, hop, before;
	const struct mcast_gather *g;

	while (lo < hi) {
		mid = lo + (hi - lo) / 2;
		if (p->gathers[mid].first + p->gathers[mid].count <= block)
			lo = mid + 1;
		else
			hi = mid;
	}
	g = &p->gathers[lo];
	return lo < p->n_gathers && g->first <= block &&
	       on_way(p, g->holder, member, &hop, &before) &&
	       before != MCAST_NONE;
}

static bool gives(const struct mcast_resume_plan *p, uint32_t member,
		  uint32_t block)
{
	return !p->tables[member].gone &&
	       mcast_run_find(&p->tables[member], block);
}

/* Can the member give this block at any time after the gathering? */
static bool keeps(const struct mcast_resume_plan *p, uint32_t member,
		  uint32_t block)
{
	return !p->tables[member].gone &&
	       (mcast_run_find(&p->tables[member], block) ||
		gathered(p, member, block));
}

bool mcast_resume_from_own(const struct mcast_resume_plan *p, uint32_t member,
			   const struct mcast_item *send)
{
	uint32_t block = (uint32_t)send->block;

	return send->step < p->turn ? gives(p, member, block)
				    : keeps(p, member, block);
}

static enum mcast_resume_found next_down(const struct mcast_resume_plan *p,
					 struct mcast_resume_iter *it,
					 struct mcast_item *out)
{
	struct mcast_item item;
	uint32_t block, to;
	bool found;

	found = it->sends ? mcast_plan_next_send(&p->down, it->member, it->step,
						 &item)
			  : mcast_plan_next_recv(&p->down, it->member, it->step,
						 &item);
	if (!found)
		return MCAST_RESUME_END;
	it->step = item.step + 1;
	block = missing_block(p, (uint32_t)item.block);
	to = it->sends ? item.peer : it->member;
	if (keeps(p, to, block))
		return MCAST_RESUME_MORE;
	*out = item;
	out->step += p->turn;
	out->block = block;
	return MCAST_RESUME_ITEM;
}

enum mcast_resume_found mcast_resume_look(const struct mcast_resume_plan *p,
					  struct mcast_resume_iter *it,
					  uint32_t *looks,
					  struct mcast_item *out)
{
	enum mcast_resume_found found = MCAST_RESUME_MORE;

	for (; *looks && found == MCAST_RESUME_MORE; --*looks) {
		if (it->gather == p->n_gathers)
			found = next_down(p, it, out);
		else if (next_up(p, it, out))
			found = MCAST_RESUME_ITEM;
	}
	return found;
}

enum mcast_resume_found mcast_resume_next(const struct mcast_resume_plan *p,
					  struct mcast_resume_iter *it,
					  struct mcast_item *out)
{
	uint32_t looks = LOOKS;

	return mcast_resume_look(p, it, &looks, out);
}
