/* SPDX-License-Identifier: MIT */
/*
 * test_resume_plan.c - the plans by which members finish an object: every member
 * receives each block that it lacks once, from one that has it by then, and
 * nothing that it has, unless it cannot give it again; at most one send and one
 * receive a step. All plans of up
 * to 4 members and 4 blocks, larger ones at random, and mistakes planted.
 */
#include <stdlib.h>
#include <string.h>

#include "base/prng.h"
#include "mcast/resume/plan.h"
#include "unit/cm.h"

#define N_MAX 130u
#define K_MAX 400u
#define WORDS (K_MAX / 64 + 1)
#define MOVES_MAX (N_MAX * K_MAX + 8)

static void *p_alloc(struct mcast_port *port, size_t len)
{
	return calloc(1, len ? len : 1);
}

static void p_free(struct mcast_port *port, void *p)
{
	free(p);
}

static const struct mcast_port_ops port_ops = {.alloc = p_alloc,
					       .free = p_free};
static struct mcast_port port = {.ops = &port_ops};

/* --- a case ------------------------------------------------------------- */

static struct {
	uint32_t n, k;
	struct mcast_plan how;
	struct mcast_racks racks;
	uint32_t rack_of[N_MAX], storage[MCAST_RACKS_STORAGE(N_MAX)];
	uint32_t parents[N_MAX];
	uint64_t have[N_MAX][WORDS];
	bool gone[N_MAX]; /* what it has it can give to nobody */
	struct mcast_table tables[N_MAX];
	struct mcast_run runs[N_MAX][K_MAX / 2 + 1];
	struct mcast_resume_plan plan;
} c;

static bool has(uint64_t have[][WORDS], uint32_t r, uint32_t b)
{
	return have[r][b / 64] >> b % 64 & 1;
}

static void give(uint64_t have[][WORDS], uint32_t r, uint32_t b)
{
	have[r][b / 64] |= 1ull << b % 64;
}

static void case_begin(uint32_t n, uint32_t k, enum mcast_algorithm a)
{
	struct mcast_plan one;
	struct mcast_item item;

	c.n = n;
	c.k = k;
	memset(c.have, 0, sizeof(c.have));
	memset(c.gone, 0, sizeof(c.gone));
	assert_int_equal(mcast_racks_init(&c.racks, c.rack_of, n, c.storage),
			 0);
	assert_int_equal(mcast_plan_init(&one, a, n, 1,
					 a == MCAST_HYBRID ? &c.racks : NULL),
			 0);
	c.how = one;
	for (uint32_t r = 1; r < n; r++) {
		assert_true(mcast_plan_next_recv(&one, r, 0, &item));
		c.parents[r] = item.peer;
	}
}

static void case_plan(void)
{
	for (uint32_t r = 0; r < c.n; r++) {
		c.tables[r] = (struct mcast_table){.runs = c.runs[r],
						   .gone = c.gone[r]};
		c.tables[r].n =
			mcast_runs_of(c.have[r], c.k, c.runs[r], K_MAX / 2 + 1);
	}
	assert_int_equal(mcast_resume_plan_begin(&c.plan, &port, &c.how, c.k,
						 c.tables, c.parents),
			 0);
	while (!mcast_resume_plan_step(&c.plan, &port))
		;
}

/* --- the check ---------------------------------------------------------- */

struct move {
	uint64_t step;
	uint32_t from, to, block;
};

static struct move sends[MOVES_MAX], recvs[MOVES_MAX];
static uint32_t n_sends, n_recvs;

static uint32_t list_of(bool sending, struct move *moves)
{
	struct mcast_item item = {0};
	enum mcast_resume_found f;
	uint32_t n = 0;

	for (uint32_t r = 0; r < c.n; r++) {
		struct mcast_resume_iter it = {.member = r, .sends = sending};

		while ((f = mcast_resume_next(&c.plan, &it, &item)) !=
		       MCAST_RESUME_END) {
			if (f == MCAST_RESUME_MORE)
				continue;
			assert_true(n < MOVES_MAX);
			moves[n++] =
				(struct move){.step = item.step,
					      .from = sending ? r : item.peer,
					      .to = sending ? item.peer : r,
					      .block = (uint32_t)item.block};
		}
	}
	return n;
}

static int by_step(const void *a, const void *b)
{
	const struct move *x = a, *y = b;

	if (x->step != y->step)
		return x->step < y->step ? -1 : 1;
	if (x->to != y->to)
		return x->to < y->to ? -1 : 1;
	return (x->block > y->block) - (x->block < y->block);
}

/* What has come to each: on the way up, and down again. */
static uint64_t came[2][N_MAX][WORDS];

static const char *move_right(uint64_t have[][WORDS], const struct move *m)
{
	bool down = m->step >= c.plan.turn, relayed;
	struct mcast_item item = {.step = m->step, .block = m->block};

	if (m->from >= c.n || m->to >= c.n || m->block >= c.k)
		return "out of range";
	relayed = has(came[down], m->from, m->block);
	if (c.gone[m->from] ? !relayed : !has(have, m->from, m->block))
		return "sent by one that has it not";
	if (c.gone[m->to] ? has(came[down], m->to, m->block)
			  : has(have, m->to, m->block))
		return "sent to one that has it";
	if (mcast_resume_from_own(&c.plan, m->from, &item) == relayed)
		return "it has it from elsewhere";
	return NULL;
}

/* One step's moves, [from, to): NULL, or what is wrong. */
static const char *step_right(uint64_t have[][WORDS], uint32_t from,
			      uint32_t to)
{
	const struct move *m;
	const char *bad;

	for (uint32_t i = from; i < to; i++) {
		m = &recvs[i];
		bad = move_right(have, m);
		if (bad)
			return bad;
		for (uint32_t j = from; j < i; j++)
			if (recvs[j].from == m->from || recvs[j].to == m->to)
				return "two in a step";
	}
	for (uint32_t i = from; i < to; i++) {
		give(have, recvs[i].to, recvs[i].block);
		give(came[recvs[i].step >= c.plan.turn], recvs[i].to,
		     recvs[i].block);
	}
	return NULL;
}

/* NULL: the lists in sends and recvs are right. */
static const char *verdict(void)
{
	static uint64_t have[N_MAX][WORDS];
	const char *bad = NULL;
	uint32_t end;

	if (n_sends != n_recvs)
		return "sends and receives differ";
	qsort(sends, n_sends, sizeof(*sends), by_step);
	qsort(recvs, n_recvs, sizeof(*recvs), by_step);
	for (uint32_t i = 0; i < n_sends; i++)
		if (sends[i].step != recvs[i].step ||
		    sends[i].from != recvs[i].from ||
		    sends[i].to != recvs[i].to ||
		    sends[i].block != recvs[i].block)
			return "sends and receives differ";
	memcpy(have, c.have, sizeof(have));
	memset(came, 0, sizeof(came));
	for (uint32_t i = 0; i < n_recvs && !bad; i = end) {
		for (end = i;
		     end < n_recvs && recvs[end].step == recvs[i].step;)
			end++;
		bad = step_right(have, i, end);
	}
	for (uint32_t r = 0; r < c.n && !bad; r++)
		for (uint32_t b = 0; b < c.k && !bad; b++)
			if (!has(have, r, b))
				bad = "lacking at the end";
	return bad;
}

static uint32_t count_lost(void)
{
	uint32_t lost = 0, r;

	for (uint32_t b = 0; b < c.k; b++) {
		for (r = 0; r < c.n && (c.gone[r] || !has(c.have, r, b)); r++)
			;
		lost += r == c.n;
	}
	return lost;
}

/* Blocks that the root lacks, and those that anybody does. */
static uint32_t count_lacking(uint32_t members)
{
	uint32_t lacking = 0, r;

	for (uint32_t b = 0; b < c.k; b++) {
		for (r = 0; r < members && has(c.have, r, b); r++)
			;
		lacking += r < members;
	}
	return lacking;
}

static void case_lists(void)
{
	n_sends = list_of(true, sends);
	n_recvs = list_of(false, recvs);
}

static void case_end(void)
{
	uint32_t lost = count_lost();
	uint64_t l = 0;
	const char *bad;

	assert_int_equal(c.plan.lost, lost);
	assert_int_equal(c.plan.missing, count_lacking(c.n));
	if (!lost) {
		case_lists();
		bad = verdict();
		if (bad)
			print_error("n %u k %u algorithm %d: %s\n", c.n, c.k,
				    c.how.algorithm, bad);
		assert_null(bad);
		for (uint32_t i = 0; i < n_recvs; i++)
			assert_true(recvs[i].step <
				    mcast_resume_plan_steps(&c.plan));
	}
	/* A root that has everything waits for nobody. */
	if (!count_lacking(1)) {
		assert_int_equal(c.plan.turn, 0);
		while (1u << l < c.n)
			l++;
		if (c.how.algorithm == MCAST_PIPELINE && c.plan.missing)
			assert_true(mcast_resume_plan_steps(&c.plan) ==
				    (c.n > 1 ? l + c.plan.missing - 1 : 0));
	}
	mcast_resume_plan_fini(&c.plan, &port);
}

/* --- cases -------------------------------------------------------------- */

static void test_all_small(void **state)
{
	for (uint32_t n = 1; n <= 4; n++)
		for (uint32_t k = 1; k <= 4; k++)
			for (uint32_t bits = 0; bits < 1u << n * k; bits++) {
				/* of the largest every algorithm in turn */
				uint32_t a = bits % 5;

				for (uint32_t r = 0; r < n; r++)
					c.rack_of[r] = r / 2;
				case_begin(n, k, (enum mcast_algorithm)a);
				for (uint32_t i = 0; i < n * k; i++)
					if (bits >> i & 1)
						give(c.have, i / k, i % k);
				case_plan();
				case_end();
			}
}

/* Some of the members cannot give what they have. */
static void small_gone(uint32_t n, uint32_t k, uint32_t bits, uint32_t gone)
{
	for (uint32_t r = 0; r < n; r++)
		c.rack_of[r] = r / 2;
	case_begin(n, k, (enum mcast_algorithm)((bits + gone) % 5));
	for (uint32_t i = 0; i < n * k; i++)
		if (bits >> i & 1)
			give(c.have, i / k, i % k);
	for (uint32_t r = 1; r < n; r++)
		c.gone[r] = gone >> r & 1;
	case_plan();
	case_end();
}

static void test_all_small_gone(void **state)
{
	for (uint32_t n = 2; n <= 4; n++)
		for (uint32_t k = 1; k <= 3; k++)
			for (uint32_t bits = 0; bits < 1u << n * k; bits++)
				for (uint32_t gone = 2; gone < 1u << n;
				     gone += 2)
					small_gone(n, k, bits, gone);
}

/* A member has: nothing, all, a beginning, that with holes, or anything. */
static void draw_member(struct prng *prng, uint32_t r)
{
	uint32_t upto = (uint32_t)prng_below(prng, c.k + 1);
	uint64_t odds = prng_below(prng, 101);

	switch (prng_below(prng, 5)) {
	case 0:
		upto = 0;
		break;
	case 1:
		upto = c.k;
		odds = 100;
		break;
	case 2:
		odds = 100;
		break;
	case 3:
		odds = 90;
		break;
	default:
		upto = c.k;
	}
	for (uint32_t b = 0; b < upto; b++)
		if (prng_below(prng, 100) < odds)
			give(c.have, r, b);
}

static void draw_case(struct prng *prng, uint32_t n_max, uint32_t k_max)
{
	uint32_t n = 1 + (uint32_t)prng_below(prng, n_max), spare;

	for (uint32_t r = 0; r < n; r++)
		c.rack_of[r] = (uint32_t)prng_below(prng, 1 + n / 4);
	case_begin(n, 1 + (uint32_t)prng_below(prng, k_max),
		   (enum mcast_algorithm)prng_below(prng, 5));
	for (uint32_t r = 0; r < n; r++)
		draw_member(prng, r);
	if (prng_below(prng, 3) == 0)
		for (uint32_t b = 0; b < c.k; b++)
			give(c.have, 0, b);
	/* Most can be finished. */
	spare = (uint32_t)prng_below(prng, n);
	for (uint32_t b = 0; b < c.k && prng_below(prng, 1000); b++)
		give(c.have, prng_below(prng, 2) ? spare : (b * 7) % n, b);
}

static void test_random(void **state)
{
	struct prng prng;

	prng_init(&prng, 1);
	for (unsigned i = 0; i < 600; i++) {
		draw_case(&prng, i % 3 ? 20 : N_MAX, i % 3 ? 60 : K_MAX);
		for (uint32_t r = 1; i % 2 && r < c.n; r++)
			c.gone[r] = prng_below(&prng, 3) == 0;
		case_plan();
		case_end();
	}
}

static void plant(struct prng *prng, unsigned kind)
{
	uint32_t i = (uint32_t)prng_below(prng, n_recvs);
	struct move *s = &sends[i], *r = &recvs[i];

	switch (kind) {
	case 0: /* left out */
		*s = sends[--n_sends];
		*r = recvs[--n_recvs];
		break;
	case 1: /* twice */
		sends[n_sends] = *s;
		sends[n_sends++].step += 1000000;
		recvs[n_recvs] = *r;
		recvs[n_recvs++].step += 1000000;
		break;
	case 2: /* another block */
		s->block = r->block = (r->block + 1) % c.k;
		break;
	case 3: /* the receiver waits for another */
		r->from = (r->from + 1) % c.n;
		break;
	case 4: /* of the sender's alone */
		s->step++;
		break;
	case 5: /* from one that is not there */
		s->from = r->from = c.n;
		break;
	/* before anything else, from a member that does not have it yet */
	default:
		s->from = r->from = r->to;
	}
}

static void test_mistakes_are_found(void **state)
{
	struct prng prng;
	unsigned planted = 0;

	prng_init(&prng, 2);
	while (planted < 2000) {
		draw_case(&prng, 20, 40);
		case_plan();
		case_lists();
		if (!c.plan.lost && n_recvs && c.n > 1 && c.k > 1) {
			qsort(sends, n_sends, sizeof(*sends), by_step);
			qsort(recvs, n_recvs, sizeof(*recvs), by_step);
			plant(&prng, planted++ % 7);
			assert_non_null(verdict());
		}
		mcast_resume_plan_fini(&c.plan, &port);
	}
}

/* Everybody but the root has all: all of them give it a part. */
static void test_holders_take_turns(void **state)
{
	uint32_t sent[5] = {0};

	case_begin(5, 256, MCAST_SEQUENTIAL);
	for (uint32_t r = 1; r < 5; r++)
		for (uint32_t b = 0; b < c.k; b++)
			give(c.have, r, b);
	case_plan();
	case_lists();
	for (uint32_t i = 0; i < n_sends; i++)
		sent[sends[i].from]++;
	for (uint32_t r = 1; r < 5; r++)
		assert_int_equal(sent[r], 64);
	case_end();
}

/* One member comes with nothing to others that have everything: its neighbours
 * share the work, and it receives a block in each step. */
static void test_one_returns(void **state)
{
	uint32_t sent[16] = {0};

	case_begin(16, 400, MCAST_PIPELINE);
	for (uint32_t r = 0; r < 16; r++)
		for (uint32_t b = 0; b < c.k && r != 9; b++)
			give(c.have, r, b);
	case_plan();
	case_lists();
	assert_int_equal(n_recvs, 400);
	for (uint32_t i = 0; i < n_sends; i++)
		sent[sends[i].from]++;
	for (uint32_t r = 0; r < 16; r++)
		assert_true(sent[r] <= 201);
	case_end();
}

static void test_runs_are_bounded(void **state)
{
	static uint64_t have[16];
	struct mcast_run runs[8];
	uint32_t n;

	/* Every second block of 1000, but [100, 140) and [500, 501 + 7). */
	for (uint32_t b = 0; b < 1000; b++)
		if (b % 2 || (b >= 100 && b < 140) || (b >= 500 && b < 508))
			have[b / 64] |= 1ull << b % 64;
	n = mcast_runs_of(have, 1000, runs, 8);
	assert_int_equal(n, 2);
	assert_int_equal(runs[0].first, 99);
	assert_int_equal(runs[0].count, 41);
	assert_int_equal(runs[1].first, 499);
	assert_int_equal(runs[1].count, 9);
	assert_int_equal(mcast_runs_max(2), 4096);
	assert_int_equal(mcast_runs_max(100), 655);
	assert_int_equal(mcast_runs_max(4096), 64);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_small),
		cmocka_unit_test(test_all_small_gone),
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_mistakes_are_found),
		cmocka_unit_test(test_holders_take_turns),
		cmocka_unit_test(test_one_returns),
		cmocka_unit_test(test_runs_are_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
