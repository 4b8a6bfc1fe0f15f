/* SPDX-License-Identifier: MIT */
/*
 * test_schedule.c - the schedules of docs/design/mcast.md, by exhaustion: every group
 * up to 130 members, every object up to 40 blocks; and spot checks of large
 * ones.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/prng.h"
#include "unit/cm.h"
#include "unit/mcast/proof.h"
#include "unit/part.h"

#define N 130
#define K 40

static uint32_t log2_ceil(uint32_t n)
{
	uint32_t l = 0;

	while (((uint64_t)1 << l) < n)
		l++;
	return l;
}

static uint32_t log2_floor(uint32_t n)
{
	return 31 - (uint32_t)__builtin_clz(n);
}

static void plan(struct mcast_plan *p, enum mcast_algorithm a, uint32_t n,
		 uint64_t k, const struct mcast_racks *racks)
{
	assert_int_equal(mcast_plan_init(p, a, n, k, racks), 0);
}

/* Each block enters each rack once. */
static void each_rack_once(const struct mcast_plan *p, const struct moves *m)
{
	const struct mcast_racks *r = p->racks;
	uint64_t across = 0;

	for (size_t i = 0; i < m->send_count; i++)
		across += r->rack[m->sends[i].member] !=
			  r->rack[m->sends[i].peer];
	assert_int_equal(across, (r->racks - 1) * p->blocks);
}

static void prove(const struct mcast_plan *p)
{
	struct moves m;
	const char *why;

	moves_of_plan(&m, p);
	why = proof(&m);
	if (why)
		print_error("%s, n %u, k %llu: %s\n",
			    mcast_algorithm_name(p->algorithm), p->members,
			    (unsigned long long)p->blocks, why);
	assert_null(why);
	for (size_t i = 0; i < m.recv_count; i++)
		assert_int_equal(mcast_plan_recv_step(p, m.recvs[i].member,
						      m.recvs[i].block),
				 m.recvs[i].step);
	if (p->racks)
		each_rack_once(p, &m);
	moves_free(&m);
}

/* The iterators leave nothing out: they agree with a walk over all steps. */
static void walk(const struct mcast_plan *p)
{
	struct mcast_item send, recv;
	struct mcast_step s;
	uint64_t last = 0;

	for (uint32_t i = 0; i < p->members; i++) {
		bool sends = mcast_plan_next_send(p, i, 0, &send);
		bool recvs = mcast_plan_next_recv(p, i, 0, &recv);

		for (uint64_t j = 0; j < p->steps; j++) {
			mcast_plan_step(p, i, j, &s);
			if (s.send_to != MCAST_NONE) {
				assert_true(sends && send.step == j);
				assert_int_equal(s.send_to, send.peer);
				assert_int_equal(s.send_block, send.block);
				sends = mcast_plan_next_send(p, i, j + 1,
							     &send);
				last = j > last ? j : last;
			}
			if (s.recv_from != MCAST_NONE) {
				assert_true(recvs && recv.step == j);
				assert_int_equal(s.recv_from, recv.peer);
				assert_int_equal(s.recv_block, recv.block);
				recvs = mcast_plan_next_recv(p, i, j + 1,
							     &recv);
			}
		}
		assert_false(sends || recvs);
	}
	if (p->algorithm != MCAST_HYBRID && p->steps > 0)
		assert_int_equal(last, p->steps - 1);
}

static uint64_t bound(enum mcast_algorithm a, uint32_t n, uint64_t k)
{
	switch (a) {
	case MCAST_SEQUENTIAL:
		return (n - 1) * k;
	case MCAST_CHAIN:
		return n - 2 + k;
	case MCAST_TREE:
		return log2_ceil(n) * k;
	default: /* the optimum, for every n */
		return log2_ceil(n) + k - 1;
	}
}

/* Small groups, and those about a multiple of 32: the next after n. */
static uint32_t next_size(uint32_t n)
{
	do
		n++;
	while (!part_is_whole() && n > 34 && n < N && (n + 1) % 32 > 2);
	return n;
}

static void every(enum mcast_algorithm a, uint32_t walk_to)
{
	struct mcast_plan p;

	for (uint32_t n = 1; n <= N; n = next_size(n)) {
		for (uint64_t k = 0; k <= K; k++) {
			plan(&p, a, n, k, NULL);
			assert_int_equal(mcast_plan_steps(&p),
					 n == 1 || k == 0 ? 0 : bound(a, n, k));
			prove(&p);
			if (n <= walk_to)
				walk(&p);
		}
	}
}

static void sequential(void **state)
{
	every(MCAST_SEQUENTIAL, 12);
}

static void chain(void **state)
{
	every(MCAST_CHAIN, 40);
}

static void tree(void **state)
{
	every(MCAST_TREE, 40);
}

static void pipeline(void **state)
{
	every(MCAST_PIPELINE, N);
}

/* Section 4.4's formula, the paper's way, with the erratum's correction. */
static uint64_t rotated_right(uint64_t i, uint32_t by, uint32_t l)
{
	return (i >> by | i << (l - by)) & (((uint64_t)1 << l) - 1);
}

static bool paper_sends(uint32_t i, uint64_t j, uint32_t l, uint64_t k,
			uint64_t *block)
{
	uint64_t turned = rotated_right(i, (uint32_t)(j % l), l), r,
		 last = k - 1;

	if (i == 0) {
		*block = j < last ? j : last;
		return true;
	}
	r = (uint64_t)__builtin_ctzll(turned);
	if (turned == 1 || j + r < l)
		return false;
	*block = j - l + r < last ? j - l + r : last;
	return true;
}

static void pipeline_is_the_papers(void **state)
{
	struct mcast_plan p;
	struct mcast_step s;
	uint64_t block;

	for (uint32_t l = 1; l <= 7; l++) {
		for (uint64_t k = 1; k <= K; k++) {
			plan(&p, MCAST_PIPELINE, 1u << l, k, NULL);
			for (uint32_t i = 0; i < p.members; i++) {
				for (uint64_t j = 0; j < p.steps; j++) {
					mcast_plan_step(&p, i, j, &s);
					if (!paper_sends(i, j, l, k, &block)) {
						assert_int_equal(s.send_to,
								 MCAST_NONE);
						continue;
					}
					assert_int_equal(s.send_to,
							 i ^ 1u << j % l);
					assert_int_equal(s.send_block, block);
				}
			}
		}
	}
}

/* Section 4.5: 2 * (1 - (l - 1) / (n - 2)) in every steady step. */
static void slack_is_the_papers(void **state)
{
	struct mcast_plan p;
	uint64_t sum;
	uint32_t senders;

	for (uint32_t l = 2; l <= 10; l++) {
		uint32_t n = 1u << l;

		for (uint64_t k = 1; k <= K; k++) {
			plan(&p, MCAST_PIPELINE, n, k, NULL);
			for (uint64_t j = l; j < p.steps; j++) {
				mcast_plan_slack(&p, j, &sum, &senders);
				assert_int_equal(senders, n - 2);
				assert_int_equal(sum, 2 * (n - 1 - l));
			}
		}
	}
}

/* As docs/design/mcast.md has it. */
static void slack_of_any_group(void **state)
{
	struct mcast_plan p;
	uint64_t sum;
	uint32_t senders;
	double least = 1e9, most = 0;

	for (uint32_t n = 5; n <= N; n++) {
		plan(&p, MCAST_PIPELINE, n, K, NULL);
		for (uint64_t j = log2_ceil(n) + 1; j < p.steps - 1; j++) {
			mcast_plan_slack(&p, j, &sum, &senders);
			assert_true(senders > 0);
			if ((double)sum / senders < least)
				least = (double)sum / senders;
			if ((double)sum / senders > most)
				most = (double)sum / senders;
		}
	}
	print_message("average slack, n 5 to %u: %.3f to %.3f\n", N, least,
		      most);
	assert_true(least >= 1 && most < 2.08);
}

/* The chain sends what it got in the step before: slack 1. */
static void slack_of_a_chain(void **state)
{
	struct mcast_plan p;
	uint64_t sum;
	uint32_t senders;

	plan(&p, MCAST_CHAIN, 10, 20, NULL);
	mcast_plan_slack(&p, 15, &sum, &senders);
	assert_int_equal(senders, 8);
	assert_int_equal(sum, 8);
}

/* The peers met over all k are the neighbours; the relation is symmetric. */
static void neighbours(void **state)
{
	static bool met[N][N];
	uint32_t peers[N], count;
	struct mcast_plan p;
	struct mcast_item it;

	for (int a = 0; a < MCAST_HYBRID; a++) {
		for (uint32_t n = 1; n <= N; n = next_size(n)) {
			memset(met, 0, sizeof(met));
			plan(&p, (enum mcast_algorithm)a, n, K, NULL);
			for (uint32_t i = 0; i < n; i++) {
				for (uint64_t s = 0;
				     mcast_plan_next_send(&p, i, s, &it);
				     s = it.step + 1)
					met[i][it.peer] = met[it.peer][i] =
						true;
			}
			for (uint32_t i = 0; i < n; i++) {
				uint32_t at = 0;

				count = mcast_plan_neighbours(&p, i, peers, N);
				for (uint32_t j = 0; j < n; j++) {
					if (met[i][j])
						assert_int_equal(peers[at++],
								 j);
				}
				assert_int_equal(at, count);
				if (a == MCAST_PIPELINE)
					assert_true(count <=
						    2 * log2_floor(n) + 1);
			}
		}
	}
	plan(&p, MCAST_SEQUENTIAL, 10, 1, NULL);
	peers[3] = 77;
	assert_int_equal(mcast_plan_neighbours(&p, 0, peers, 3), 9);
	assert_int_equal(peers[3], 77);
	assert_int_equal(mcast_plan_neighbours(&p, 0, NULL, 0), 9);
}

/* Ways to place n members; false when there are no more. */
static bool placed(uint32_t way, uint32_t n, struct prng *r, uint32_t *rack_of)
{
	static const uint32_t sizes[] = {1, 2, 3, 4, 6, 8, 16, N};
	uint32_t runs = sizeof(sizes) / sizeof(sizes[0]);
	uint32_t racks = (uint32_t)prng_below(r, n) + 1;

	for (uint32_t i = 0; i < n; i++) {
		if (way < runs)
			rack_of[i] = i / sizes[way];
		else if (way == runs) /* dealt out in turn */
			rack_of[i] = i % ((n + 7) / 8);
		else
			rack_of[i] = (uint32_t)prng_below(r, racks);
	}
	return way < runs + 3;
}

/* As docs/design/mcast.md has it. */
static uint64_t hybrid_bound(const struct mcast_racks *r, uint64_t k)
{
	uint32_t l0 = log2_floor(r->first[1]), odd = 0, first, twin;
	uint64_t inside, end;

	first = r->first[1];
	inside = first == 1 ? 0 : log2_ceil(first) + k - 1;
	if (r->racks == 1)
		return inside;
	for (uint32_t v = 1; v < r->racks; v++) {
		uint32_t size = r->first[v + 1] - r->first[v];

		twin = size == 1 ? 0 : 1 + (size & (size - 1) ? 1 : 0);
		odd = twin > odd ? twin : odd;
	}
	end = k + (r->dims_max + 1) * (log2_ceil(r->racks) - 1) + l0;
	if (odd > 0)
		end += r->dims_max + odd - 1;
	return end > inside ? end : inside;
}

static void hybrid_one(uint32_t n, uint64_t k, const struct mcast_racks *r,
		       bool also_walk)
{
	struct mcast_plan p;

	plan(&p, MCAST_HYBRID, n, k, r);
	assert_int_equal(p.steps, n == 1 || k == 0 ? 0 : hybrid_bound(r, k));
	prove(&p);
	if (also_walk)
		walk(&p);
}

static void hybrid(void **state)
{
	static uint32_t rack_of[N], storage[MCAST_RACKS_STORAGE(N)];
	struct mcast_racks r;
	struct prng rnd;

	prng_init(&rnd, 6);
	for (uint32_t n = 1; n <= N; n = next_size(n)) {
		bool more = true;

		for (uint32_t way = 0; more; way++) {
			more = placed(way, n, &rnd, rack_of);
			assert_int_equal(
				mcast_racks_init(&r, rack_of, n, storage), 0);
			/* Each k with one or more of the ways. */
			for (uint64_t k = (n + way) % 8; k <= K; k += 8)
				hybrid_one(n, k, &r, way % 4 == n % 4);
		}
	}
}

static void hybrid_neighbours(void **state)
{
	static uint32_t rack_of[N], storage[MCAST_RACKS_STORAGE(N)];
	static bool met[N][N], near[N][N];
	uint32_t peers[N], count, most = 0;
	struct mcast_racks r;
	struct mcast_plan p;
	struct mcast_item it;
	struct prng rnd;

	prng_init(&rnd, 7);
	for (uint32_t n = 1; n <= N; n += 1 + n / 8) {
		bool more = true;

		for (uint32_t way = 0; more; way++) {
			more = placed(way, n, &rnd, rack_of);
			assert_int_equal(
				mcast_racks_init(&r, rack_of, n, storage), 0);
			plan(&p, MCAST_HYBRID, n, 1000, &r);
			memset(met, 0, sizeof(met));
			memset(near, 0, sizeof(near));
			for (uint32_t i = 0; i < n; i++) {
				for (uint64_t s = 0;
				     mcast_plan_next_send(&p, i, s, &it);
				     s = it.step + 1)
					met[i][it.peer] = met[it.peer][i] =
						true;
				count = mcast_plan_neighbours(&p, i, peers, N);
				assert_true(count <= n - 1);
				most = count > most ? count : most;
				for (uint32_t j = 0; j < count; j++) {
					assert_true(peers[j] != i);
					assert_true(j == 0 ||
						    peers[j - 1] < peers[j]);
					near[i][peers[j]] = true;
				}
			}
			for (uint32_t i = 0; i < n; i++) {
				for (uint32_t j = 0; j < n; j++) {
					assert_true(near[i][j] == near[j][i]);
					assert_true(near[i][j] || !met[i][j]);
				}
			}
		}
	}
	print_message("a hybrid's member has at most %u neighbours\n", most);
}

/* The order of racks and leaders is that of their first members. */
static void racks(void **state)
{
	const uint32_t of[] = {4, 2, 4, 0, 2, 4}, bad[] = {0, 2};
	uint32_t storage[MCAST_RACKS_STORAGE(6)];
	struct mcast_racks r;
	struct mcast_plan p;

	assert_int_equal(mcast_racks_init(&r, of, 6, storage), 0);
	assert_int_equal(r.racks, 3);
	assert_int_equal(r.dims_max, 1);
	assert_memory_equal(r.rack, ((uint32_t[]){0, 1, 0, 2, 1, 0}), 24);
	assert_memory_equal(r.place, ((uint32_t[]){0, 0, 1, 0, 1, 2}), 24);
	assert_memory_equal(r.order, ((uint32_t[]){0, 2, 5, 1, 4, 3}), 24);
	assert_memory_equal(r.first, ((uint32_t[]){0, 3, 5, 6}), 16);
	assert_int_equal(mcast_racks_init(&r, bad, 2, storage), -EINVAL);
	assert_int_equal(mcast_racks_init(&r, of, 0, storage), -EINVAL);
	assert_int_equal(mcast_racks_init(&r, of, 6, storage), 0);
	assert_int_equal(mcast_plan_init(&p, MCAST_HYBRID, 5, 1, &r), -EINVAL);
}

static void bad_plans(void **state)
{
	struct mcast_plan p;
	enum mcast_algorithm a;

	assert_int_equal(mcast_plan_init(&p, MCAST_CHAIN, 0, 1, NULL), -EINVAL);
	assert_int_equal(mcast_plan_init(&p, MCAST_CHAIN, MCAST_MEMBERS_MAX + 1,
					 1, NULL),
			 -EINVAL);
	assert_int_equal(mcast_plan_init(&p, MCAST_CHAIN, 2,
					 MCAST_BLOCKS_MAX + 1, NULL),
			 -EINVAL);
	assert_int_equal(mcast_plan_init(&p, MCAST_HYBRID, 2, 1, NULL),
			 -EINVAL);
	assert_int_equal(mcast_plan_init(&p, (enum mcast_algorithm)5, 2, 1,
					 NULL),
			 -EINVAL);
	for (int i = MCAST_SEQUENTIAL; i <= MCAST_HYBRID; i++) {
		assert_int_equal(
			mcast_algorithm_parse(
				mcast_algorithm_name((enum mcast_algorithm)i),
				&a),
			0);
		assert_int_equal(a, i);
	}
	assert_int_equal(mcast_algorithm_parse("fastest", &a), -EINVAL);
}

/* One mistake in a right list. */
static void plant(struct moves *m, uint32_t kind, struct prng *r)
{
	struct move *s = &m->sends[prng_below(r, m->send_count)];
	struct move *c = NULL, *o;

	for (size_t i = 0; i < m->recv_count; i++) {
		if (m->recvs[i].member == s->peer &&
		    m->recvs[i].step == s->step)
			c = &m->recvs[i];
	}
	assert_non_null(c);
	o = &m->recvs[prng_below(r, m->recv_count)];
	switch (kind) {
	case 0: /* a block is never sent */
		*s = m->sends[--m->send_count];
		*c = m->recvs[--m->recv_count];
		break;
	case 1: /* another block, at both ends */
		s->block = c->block = (s->block + 1) % m->blocks;
		break;
	case 2: /* at one end */
		s->block = (s->block + 1) % m->blocks;
		break;
	case 3: /* to another member */
		s->peer = (s->peer + 1) % m->members;
		break;
	case 4: /* waits for another member */
		c->peer = (c->peer + 1) % m->members;
		break;
	case 5: /* two at once: the receiver's next, or last but one */
		o = c + 1 < m->recvs + m->recv_count && c[1].member == c->member
			    ? c + 1
			    : c - 1;
		s->step = c->step = o->step;
		break;
	case 6: /* two members wait for each other's block */
		o->block = c->block;
		break;
	default: /* the same once more */
		m->sends[m->send_count++] = *s;
		m->recvs[m->recv_count++] = *c;
		break;
	}
}

static void mistakes_are_found(void **state)
{
	static uint32_t rack_of[N], storage[MCAST_RACKS_STORAGE(N)];
	struct mcast_racks racks;
	struct prng r;
	uint32_t planted = 0;

	prng_init(&r, 1);
	for (uint32_t i = 0; i < 8000; i++) {
		enum mcast_algorithm a = (enum mcast_algorithm)(i % 5);
		uint32_t n = 3 + (uint32_t)prng_below(&r, 30), kind = i / 5 % 8;
		uint64_t k = 2 + prng_below(&r, 20);
		struct mcast_plan p;
		struct moves m;
		struct move *before;

		placed(9, n, &r, rack_of);
		assert_int_equal(mcast_racks_init(&racks, rack_of, n, storage),
				 0);
		plan(&p, a, n, k, &racks);
		moves_of_plan(&m, &p);
		before = malloc(m.recv_count * sizeof(*before));
		assert_non_null(before);
		memcpy(before, m.recvs, m.recv_count * sizeof(*before));
		plant(&m, kind, &r);
		/* Kind 6 may hit the same receive twice: no mistake. */
		if (kind != 6 ||
		    memcmp(before, m.recvs, m.recv_count * sizeof(*before))) {
			planted++;
			if (!proof(&m))
				print_error("kind %u, %s, n %u\n", kind,
					    mcast_algorithm_name(a), n);
			assert_non_null(proof(&m));
		}
		free(before);
		moves_free(&m);
	}
	assert_true(planted > 7000);
}

/* A member's receives by its iterator: each block once, in time. */
static void receives_all(const struct mcast_plan *p, uint32_t member)
{
	unsigned char *got = calloc(p->blocks, 1);
	struct mcast_item it;
	uint64_t count = 0;

	assert_non_null(got);
	for (uint64_t s = 0; mcast_plan_next_recv(p, member, s, &it);
	     s = it.step + 1) {
		assert_true(it.block < p->blocks && it.step < p->steps);
		assert_false(got[it.block]);
		got[it.block] = 1;
		count++;
		assert_int_equal(mcast_plan_recv_step(p, member, it.block),
				 it.step);
	}
	assert_int_equal(count, p->blocks);
	free(got);
}

static void large(void **state)
{
	static uint32_t rack_of[1024], storage[MCAST_RACKS_STORAGE(1024)];
	const uint32_t some[] = {1, 2, 3, 511, 512, 777, 999};
	struct mcast_racks racks;
	struct mcast_plan p;

	for (uint32_t i = 0; i < 1024; i++)
		rack_of[i] = i / 24;
	for (int a = MCAST_SEQUENTIAL; a <= MCAST_HYBRID; a++) {
		for (uint32_t n = 1000; n <= 1024; n += 24) {
			assert_int_equal(mcast_racks_init(&racks, rack_of, n,
							  storage),
					 0);
			plan(&p, (enum mcast_algorithm)a, n, 65536, &racks);
			for (size_t i = 0; i < sizeof(some) / sizeof(*some);
			     i++)
				receives_all(&p, some[i]);
		}
	}
}

/* Blocks at both ends of an object of 2^40 blocks, in the largest group. */
static void huge(void **state)
{
	static uint32_t rack_of[MCAST_MEMBERS_MAX];
	static uint32_t storage[MCAST_RACKS_STORAGE(MCAST_MEMBERS_MAX)];
	struct mcast_racks racks;
	struct mcast_plan p;
	struct mcast_step s, o;
	uint64_t blocks[] = {0, 1, MCAST_BLOCKS_MAX - 2, MCAST_BLOCKS_MAX - 1};

	for (uint32_t i = 0; i < MCAST_MEMBERS_MAX; i++)
		rack_of[i] = i / 40;
	assert_int_equal(mcast_racks_init(&racks, rack_of, MCAST_MEMBERS_MAX,
					  storage),
			 0);
	for (int a = MCAST_SEQUENTIAL; a <= MCAST_HYBRID; a++) {
		plan(&p, (enum mcast_algorithm)a, MCAST_MEMBERS_MAX,
		     MCAST_BLOCKS_MAX, &racks);
		for (uint32_t i = 1; i < p.members; i += 1237) {
			for (int b = 0; b < 4; b++) {
				uint64_t at =
					mcast_plan_recv_step(&p, i, blocks[b]);

				assert_true(at < p.steps);
				mcast_plan_step(&p, i, at, &s);
				assert_int_equal(s.recv_block, blocks[b]);
				assert_true(s.recv_from < p.members);
				mcast_plan_step(&p, s.recv_from, at, &o);
				assert_int_equal(o.send_to, i);
				assert_int_equal(o.send_block, blocks[b]);
			}
		}
	}
	assert_int_equal(bound(MCAST_SEQUENTIAL, MCAST_MEMBERS_MAX,
			       MCAST_BLOCKS_MAX),
			 UINT64_C(65535) << 40);
}

/* For a member that never sends no search over 2^40 steps takes place. */
static void silent_members(void **state)
{
	const uint32_t rack_of[] = {0, 0, 1, 1};
	uint32_t storage[MCAST_RACKS_STORAGE(4)];
	struct mcast_racks racks;
	struct mcast_plan p;
	struct mcast_item it = {5, 5, 5};

	plan(&p, MCAST_PIPELINE, 2, MCAST_BLOCKS_MAX, NULL);
	assert_false(mcast_plan_next_send(&p, 1, 0, &it));
	assert_int_equal(mcast_racks_init(&racks, rack_of, 4, storage), 0);
	plan(&p, MCAST_HYBRID, 4, MCAST_BLOCKS_MAX, &racks);
	assert_false(mcast_plan_next_send(&p, 3, 0, &it));
	assert_false(mcast_plan_next_recv(&p, 0, 0, &it));
	assert_true(it.step == 5 && it.block == 5 && it.peer == 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sequential),
		cmocka_unit_test(chain),
		cmocka_unit_test(tree),
		cmocka_unit_test(pipeline),
		cmocka_unit_test(pipeline_is_the_papers),
		cmocka_unit_test(slack_is_the_papers),
		cmocka_unit_test(slack_of_any_group),
		cmocka_unit_test(slack_of_a_chain),
		cmocka_unit_test(neighbours),
		cmocka_unit_test(hybrid),
		cmocka_unit_test(hybrid_neighbours),
		cmocka_unit_test(racks),
		cmocka_unit_test(bad_plans),
		cmocka_unit_test(mistakes_are_found),
		cmocka_unit_test(large),
		cmocka_unit_test(huge),
		cmocka_unit_test(silent_members),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
