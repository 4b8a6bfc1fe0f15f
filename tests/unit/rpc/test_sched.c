/* SPDX-License-Identifier: MIT */
/*
 * test_sched.c - FLOCK's credits and its two schedulers: what must hold of
 * every distribution, for random ones, and the cases that the paper names.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/prng.h"
#include "rpc/sched/credit.h"
#include "rpc/sched/qpsched.h"
#include "rpc/sched/thrsched.h"

#include <skein/error.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 20000
#define SENDERS 40u
#define COUNT(a) ((unsigned)(sizeof(a) / sizeof((a)[0])))

/* --- equation 3.1 --------------------------------------------------------- */

static void test_proportional(void **state)
{
	struct qpsched_sender s[] = {{.util = 300, .qps = 256},
				     {.util = 100, .qps = 256},
				     {.util = 0, .qps = 256}};

	qpsched_share(s, 2, QPSCHED_MAX_AQP);
	assert_int_equal(s[0].aqp, 192);
	assert_int_equal(s[1].aqp, 64);
	/* a dormant one keeps one: 255 for the others */
	qpsched_share(s, 3, QPSCHED_MAX_AQP);
	assert_int_equal(s[2].aqp, 1);
	assert_int_equal(s[0].aqp, 191);
	assert_int_equal(s[1].aqp, 64);
}

/* What one does not have goes to the others, what one needs comes from them. */
static void test_bounds(void **state)
{
	struct qpsched_sender s[] = {{.util = 1000, .qps = 10},
				     {.util = 10, .qps = 100},
				     {.util = 10, .qps = 100},
				     {.util = 1, .qps = 100}};

	qpsched_share(s, COUNT(s), 64);
	assert_int_equal(s[0].aqp, 10);
	assert_int_equal(s[1].aqp + s[2].aqp + s[3].aqp, 54);
	assert_true(s[1].aqp - s[2].aqp <= 1);
	assert_in_range(s[3].aqp, 2, 3);
}

static void test_more_senders_than_qps(void **state)
{
	struct qpsched_sender s[SENDERS];
	unsigned i;

	for (i = 0; i < SENDERS; i++)
		s[i] = (struct qpsched_sender){.util = i, .qps = 4};
	qpsched_share(s, SENDERS, 8);
	for (i = 0; i < SENDERS; i++)
		assert_int_equal(s[i].aqp, 1);
}

static void check_share(struct qpsched_sender *s, unsigned n, unsigned max)
{
	uint64_t sum = 0, all = 0, util = 0, dormant = 0;
	unsigned i, j, bound = 0;

	for (i = 0; i < n; i++) {
		assert_in_range(s[i].aqp, 1, s[i].qps);
		assert_true(s[i].util || s[i].aqp == 1);
		sum += s[i].aqp;
		all += s[i].util ? s[i].qps : 1;
		util += s[i].util;
		dormant += !s[i].util;
		for (j = 0; j < n; j++)
			if (s[i].qps == s[j].qps && s[i].util > s[j].util)
				assert_true(s[i].aqp >= s[j].aqp);
	}
	if (max < n)
		assert_int_equal(sum, n);
	else
		assert_int_equal(sum, all < max ? all : max);
	if (max < n)
		return;
	/* no bound was met: each is its share, rounded up or down */
	for (i = 0; i < n; i++) {
		double v = (double)(max - dormant) * (double)s[i].util /
			   (double)util;

		bound += s[i].util && (v < 1 || v > s[i].qps);
	}
	for (i = 0; !bound && i < n; i++) {
		double v = (double)(max - dormant) * (double)s[i].util /
			   (double)util;

		if (s[i].util)
			assert_true(s[i].aqp > v - 1.001 &&
				    s[i].aqp < v + 1.001);
	}
}

static void test_random_shares(void **state)
{
	struct qpsched_sender s[SENDERS];
	unsigned i, n, max;
	struct prng r;

	prng_init(&r, 1);
	for (int round = 0; round < ROUNDS; round++) {
		n = 1 + (unsigned)prng_below(&r, SENDERS);
		max = 1 + (unsigned)prng_below(&r, 300);
		memset(s, 0, sizeof(s));
		for (i = 0; i < n; i++) {
			s[i].qps = 1 + (uint32_t)prng_below(&r, 64);
			if (prng_below(&r, 4))
				s[i].util = prng_below(
					&r, 1ull << prng_below(&r, 40));
		}
		qpsched_share(s, n, max);
		check_share(s, n, max);
	}
}

static void test_newcomer(void **state)
{
	struct qpsched_sender s[4] = {{.util = 90, .qps = 256},
				      {.util = 30, .qps = 256},
				      {.util = 0, .qps = 256}};

	assert_int_equal(qpsched_newcomer_util(s, 0), 1);
	s[3] = (struct qpsched_sender){.util = qpsched_newcomer_util(s, 3),
				       .qps = 256};
	assert_int_equal(s[3].util, 60);
	qpsched_share(s, 4, 256);
	assert_int_equal(s[3].aqp, 85); /* the average of the functioning */
	assert_int_equal(s[0].aqp + s[1].aqp + s[2].aqp + s[3].aqp, 256);
}

/* --- algorithm 1 ---------------------------------------------------------- */

static void test_median(void **state)
{
	struct thrsched_sizes z = {0};
	uint32_t size, m;

	assert_int_equal(thrsched_sizes_median(&z), 0);
	for (size = 0; size < 8; size++) {
		memset(&z, 0, sizeof(z));
		thrsched_sizes_add(&z, size);
		assert_int_equal(thrsched_sizes_median(&z), size);
	}
	for (size = 8; size < 1u << 30; size += 1 + size / 7) {
		memset(&z, 0, sizeof(z));
		thrsched_sizes_add(&z, size);
		m = thrsched_sizes_median(&z);
		assert_true(m <= size && m >= size - size / 4);
	}
	memset(&z, 0, sizeof(z));
	thrsched_sizes_add(&z, UINT32_MAX);
	thrsched_sizes_add(&z, 64);
	assert_int_equal(thrsched_sizes_median(&z), 64);
	thrsched_sizes_add(&z, UINT32_MAX);
	assert_true(thrsched_sizes_median(&z) > 3u << 30);
	/* a full part: older ones count half */
	memset(&z, 0, sizeof(z));
	for (uint32_t i = 0; i < 3 * UINT16_MAX; i++)
		thrsched_sizes_add(&z, i < UINT16_MAX ? 8 : 64);
	assert_int_equal(thrsched_sizes_median(&z), 64);
}

static const struct thrsched_thread *thread(const struct thrsched_thread *t,
					    unsigned n, uint32_t id)
{
	while (n && t->id != id)
		t++, n--;
	assert_int_not_equal(n, 0);
	return t;
}

/* Small ones together, away from the large; each QP the same bytes. */
static void test_sorted_and_equal(void **state)
{
	struct thrsched_thread t[] = {
		{.id = 0, .median = 4096, .requests = 10, .bytes = 40960},
		{.id = 1, .median = 64, .requests = 200, .bytes = 12800},
		{.id = 2, .median = 64, .requests = 440, .bytes = 28160},
		{.id = 3, .median = 4096, .requests = 10, .bytes = 40960},
	};
	const uint32_t active[] = {7, 3, 5};

	thrsched_map(t, 4, active, 3);
	assert_int_equal(thread(t, 4, 1)->qp, 7);
	assert_int_equal(thread(t, 4, 2)->qp, 7);
	assert_int_equal(thread(t, 4, 0)->qp, 3);
	assert_int_equal(thread(t, 4, 3)->qp, 5);
}

/* No QP is left without threads when all do alike, whatever is left over. */
static void test_all_used(void **state)
{
	struct thrsched_thread t[SENDERS];
	uint32_t active[16];
	unsigned n, n_active, i, q, count, most;

	for (n_active = 1; n_active <= 16; n_active++)
		for (n = n_active; n <= SENDERS; n++) {
			most = (n + n_active - 1) / n_active;
			for (q = 0; q < n_active; q++)
				active[q] = q;
			for (i = 0; i < n; i++)
				t[i] = (struct thrsched_thread){.id = i,
								.qp = 99,
								.median = 64,
								.requests = i,
								.bytes = 880};
			thrsched_map(t, n, active, n_active);
			for (q = 0; q < n_active; q++) {
				for (count = 0, i = 0; i < n; i++)
					count += t[i].qp == q;
				assert_in_range(count, 1, most + 1);
			}
		}
}

/* A map that is nearly as good as a new one stays, else a new one comes. */
static void test_kept(void **state)
{
	const uint32_t active[] = {0, 1, 2, 3};
	struct thrsched_thread t[12], was[12];
	unsigned i, q, count[4];

	for (i = 0; i < 12; i++)
		t[i] = (struct thrsched_thread){.id = i,
						.qp = i % 4,
						.median = 64,
						.requests = 100 + i,
						.bytes = 8800 + 88 * i};
	memcpy(was, t, sizeof(t));
	thrsched_map(t, 12, active, 4);
	for (i = 0; i < 12; i++)
		assert_int_equal(thread(t, 12, i)->qp, was[i].qp);
	/* one QP more */
	for (i = 0; i < 12; i++)
		t[i].qp %= 3;
	thrsched_map(t, 12, active, 4);
	memset(count, 0, sizeof(count));
	for (i = 0; i < 12; i++)
		count[t[i].qp]++;
	for (q = 0; q < 4; q++)
		assert_int_equal(count[q], 3);
	/* most of them on one */
	for (i = 0; i < 12; i++)
		t[i].qp = i < 4 ? i : 0;
	thrsched_map(t, 12, active, 4);
	memset(count, 0, sizeof(count));
	for (i = 0; i < 12; i++)
		count[t[i].qp]++;
	for (q = 0; q < 4; q++)
		assert_int_equal(count[q], 3);
	/* large requests beside small ones */
	for (i = 0; i < 12; i++) {
		t[i].qp = i % 4;
		t[i].bytes = 8800;
		t[i].median = i < 3 ? 4096 : 64;
	}
	thrsched_map(t, 12, active, 4);
	for (q = 4, i = 0; i < 12; i++)
		if (t[i].median == 4096)
			q = t[i].qp;
	for (i = 0; i < 12; i++)
		assert_int_equal(t[i].qp == q, t[i].median == 4096);
}

/* Some of n threads, on QPs of which some are active, 100 and up; or on none of
 * these. Returns the bytes of the largest. */
static uint64_t draw_threads(struct prng *r, struct thrsched_thread *t,
			     unsigned n, bool fresh)
{
	uint64_t largest = 0;
	unsigned i;

	memset(t, 0, n * sizeof(*t));
	for (i = 0; i < n; i++) {
		t[i].id = i;
		t[i].qp = fresh ? 95 : 98 + (uint32_t)prng_below(r, 18);
		t[i].median = 8u << prng_below(r, 10);
		t[i].bytes = prng_below(r, 3) ? prng_below(r, 100000) : 0;
		if (t[i].bytes > largest)
			largest = t[i].bytes;
	}
	return largest;
}

static void test_random_maps(void **state)
{
	struct thrsched_thread t[SENDERS], again[SENDERS];
	uint64_t total, load[16], most;
	unsigned n, n_active, i, q;
	uint32_t active[16];
	struct prng r;

	prng_init(&r, 2);
	for (int round = 0; round < ROUNDS; round++) {
		n = (unsigned)prng_below(&r, SENDERS + 1);
		n_active = 1 + (unsigned)prng_below(&r, 16);
		for (q = 0; q < n_active; q++)
			active[q] = 100 + q;
		total = 0;
		memset(load, 0, sizeof(load));
		most = draw_threads(&r, t, n, round % 2);
		for (i = 0; i < n; i++)
			total += t[i].bytes;
		most += total / n_active + 1;
		/* one that stays is a half fuller at most */
		if (round % 2 == 0)
			most += most / 2;
		thrsched_map(t, n, active, n_active);
		for (i = 0; i < n; i++) {
			/* never past the last QP */
			assert_in_range(t[i].qp, 100, 100 + n_active - 1);
			load[t[i].qp - 100] += t[i].bytes;
			if (i && t[i].bytes && t[i - 1].bytes)
				assert_true(t[i - 1].median <= t[i].median);
			if (i && t[i].bytes && t[i - 1].bytes && round % 2)
				assert_true(t[i - 1].qp <= t[i].qp);
		}
		for (q = 0; q < n_active; q++)
			assert_true(load[q] <= most);
		/* the same loads: nobody goes anywhere */
		memcpy(again, t, sizeof(t));
		thrsched_map(again, n, active, n_active);
		for (i = 0; i < n; i++)
			assert_int_equal(again[i].qp,
					 thread(t, n, again[i].id)->qp);
	}
}

/* Who sends nothing is left where it is. */
static void test_idle_stay(void **state)
{
	struct thrsched_thread t[] = {{.id = 0, .qp = 2},
				      {.id = 1, .qp = 9},
				      {.id = 2, .qp = 9},
				      {.id = 3, .qp = 1}};
	const uint32_t active[] = {1, 2};

	thrsched_map(t, 4, active, 2);
	assert_int_equal(thread(t, 4, 0)->qp, 2);
	assert_int_equal(thread(t, 4, 3)->qp, 1);
	assert_int_not_equal(thread(t, 4, 1)->qp, 9);
	assert_int_not_equal(thread(t, 4, 1)->qp, thread(t, 4, 2)->qp);
}

/* --- credits --------------------------------------------------------------- */

static void test_renewal(void **state)
{
	struct credit k;
	uint32_t i;

	credit_init(&k, CREDIT_C);
	/* A message costs one, whatever is in it. */
	for (i = 0; i < 16; i++) {
		assert_false(credit_low(&k));
		credit_spend(&k, i < 9 ? 5 : 1);
	}
	assert_true(credit_low(&k));
	assert_int_equal(credit_ask(&k), 5); /* the lower of two middles: 8th */
	assert_false(credit_low(&k));
	/* the other half goes on meanwhile */
	assert_int_equal(credit_room(&k, 100), 16);
	for (i = 0; i < 16; i++)
		credit_spend(&k, 16);
	assert_int_equal(credit_room(&k, 1), 0);
	credit_granted(&k, CREDIT_C);
	assert_int_equal(credit_room(&k, 100), 32);
	assert_int_equal(credit_ask(&k), 16);
	credit_declined(&k);
	assert_int_equal(credit_room(&k, 1), 0);
	assert_false(credit_low(&k));
	assert_int_equal(credit_ask(&k), 1);
}

static int by_size(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

/* The lower median, whatever the degrees. */
static void test_median_degree(void **state)
{
	int degrees[2 * CREDIT_C];
	unsigned i, n;
	struct credit k;
	struct prng r;

	prng_init(&r, 5);
	for (int round = 0; round < ROUNDS; round++) {
		credit_init(&k, 2 * CREDIT_C);
		n = 1 + (unsigned)prng_below(&r, COUNT(degrees));
		for (i = 0; i < n; i++) {
			degrees[i] = 1 + (int)prng_below(&r, 80);
			credit_spend(&k, (uint32_t)degrees[i]);
			if (degrees[i] > (int)CREDIT_DEGREES)
				degrees[i] = CREDIT_DEGREES;
		}
		qsort(degrees, n, sizeof(degrees[0]), by_size);
		assert_int_equal(credit_ask(&k), degrees[(n - 1) / 2]);
	}
}

/* Each operation costs a credit; those of one list are one degree. */
static void test_degree_of_operations(void **state)
{
	struct credit k;
	uint32_t i;

	credit_init(&k, CREDIT_C);
	for (i = 0; i < 7; i++)
		credit_spend_wr(&k, i);
	assert_int_equal(k.left, CREDIT_C - 7);
	assert_int_equal(k.messages, 1);
	credit_spend(&k, 3);
	credit_spend_wr(&k, 0);
	assert_int_equal(credit_ask(&k), 3); /* of 1, 3 and 7 */
	credit_granted(&k, 4 * CREDIT_C);
	for (i = 0; i < 100; i++)
		credit_spend_wr(&k, i);
	assert_int_equal(credit_ask(&k), CREDIT_DEGREES);
	/* A question between two of one list begins the count anew. */
	credit_spend_wr(&k, 5);
	assert_int_equal(k.messages, 1);
	assert_int_equal(credit_ask(&k), 6);
}

static void test_cheats(void **state)
{
	struct credit_grantor g;
	uint32_t granted;

	credit_grantor_init(&g, CREDIT_C);
	assert_int_equal(credit_asked(&g, 1, &granted), -SKEIN_EPEER);
	assert_int_equal(credit_used(&g, 33), -SKEIN_EPEER);
	assert_int_equal(credit_used(&g, 32), 0);
	assert_int_equal(credit_used(&g, 1), -SKEIN_EPEER);
	assert_int_equal(credit_asked(&g, 0, &granted), -SKEIN_EPEER);
	g.keep = false;
	assert_int_equal(credit_asked(&g, 1000000, &granted), 0);
	assert_int_equal(granted, 0);
	assert_int_equal(g.util, CREDIT_DEGREES);
	assert_int_equal(credit_asked(&g, 1, &granted), -SKEIN_EPEER);
}

/* On their way, either direction: a message (1) or a question (1000 and what it
 * tells); a grant, or a decline (0). In order, each with a delay of its own choosing. */
struct way {
	uint32_t item[4096];
	unsigned in, out;
};

static void way_put(struct way *w, uint32_t v)
{
	w->item[w->in++ % COUNT(w->item)] = v;
}

static uint32_t way_get(struct way *w)
{
	return w->item[w->out++ % COUNT(w->item)];
}

static void sender_acts(struct credit *k, struct way *up, struct prng *r,
			uint64_t *sent)
{
	if (credit_low(k)) {
		way_put(up, 1000 + credit_ask(k));
	} else if (credit_room(k, 1)) {
		credit_spend(k, 1 + (uint32_t)prng_below(r, 12));
		way_put(up, 1);
		++*sent;
	}
}

static void receiver_hears(struct credit_grantor *g, uint32_t v,
			   struct way *down)
{
	uint32_t granted;

	if (v < 1000) {
		assert_int_equal(credit_used(g, v), 0);
		return;
	}
	assert_int_equal(credit_asked(g, v - 1000, &granted), 0);
	way_put(down, granted);
}

static void sender_hears(struct credit *k, uint32_t granted)
{
	if (granted)
		credit_granted(k, granted);
	else
		credit_declined(k);
}

static void one_life(struct prng *r)
{
	static struct way up, down;
	struct credit_grantor g;
	uint64_t sent = 0;
	struct credit k;

	up.in = up.out = down.in = down.out = 0;
	credit_init(&k, CREDIT_C);
	credit_grantor_init(&g, CREDIT_C);
	for (int step = 0; step < 500; step++) {
		switch (prng_below(r, 5)) {
		case 0:
		case 1:
			sender_acts(&k, &up, r, &sent);
			break;
		case 2:
			if (up.out != up.in)
				receiver_hears(&g, way_get(&up), &down);
			break;
		case 3:
			if (down.out != down.in)
				sender_hears(&k, way_get(&down));
			break;
		case 4:
			g.keep = prng_below(r, 4);
			if (g.keep && !g.active)
				way_put(&down, credit_activate(&g));
			break;
		}
		assert_true(k.left <= 2 * CREDIT_C);
	}
	while (up.out != up.in)
		receiver_hears(&g, way_get(&up), &down);
	while (down.out != down.in)
		sender_hears(&k, way_get(&down));
	assert_int_equal(sent % CREDIT_C,
			 (CREDIT_C - k.left % CREDIT_C) % CREDIT_C);
	assert_int_equal(k.left, g.left);
	assert_int_equal(k.active, g.active);
}

static void test_conserved(void **state)
{
	struct prng r;

	prng_init(&r, 3);
	for (int i = 0; i < 2000; i++)
		one_life(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_proportional),
		cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_more_senders_than_qps),
		cmocka_unit_test(test_random_shares),
		cmocka_unit_test(test_newcomer),
		cmocka_unit_test(test_median),
		cmocka_unit_test(test_sorted_and_equal),
		cmocka_unit_test(test_random_maps),
		cmocka_unit_test(test_all_used),
		cmocka_unit_test(test_kept),
		cmocka_unit_test(test_idle_stay),
		cmocka_unit_test(test_renewal),
		cmocka_unit_test(test_median_degree),
		cmocka_unit_test(test_degree_of_operations),
		cmocka_unit_test(test_cheats),
		cmocka_unit_test(test_conserved),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
