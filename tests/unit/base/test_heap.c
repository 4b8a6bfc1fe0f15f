/* SPDX-License-Identifier: MIT */
/*
 * test_heap.c - against a plain search, under random pushes, pops, deletes
 * and moves.
 */
#include "base/heap.h"
#include "base/prng.h"
#include "unit/cm.h"

#define N 64

static uint64_t slow_min(const struct heap_node *n)
{
	uint64_t min = UINT64_MAX;
	int i;

	for (i = 0; i < N; i++)
		if (n[i].linked && n[i].key < min)
			min = n[i].key;
	return min;
}

static void step(struct heap *h, struct heap_node *nodes, struct prng *r)
{
	struct heap_node *n = &nodes[prng_below(r, N)];
	uint64_t min = slow_min(nodes), key = prng_below(r, 40);

	switch (prng_below(r, 5)) {
	case 0:
		n = heap_pop(h);
		if (n) {
			assert_true(n->key == min);
			assert_false(n->linked);
		}
		break;
	case 1:
		heap_del(h, n);
		assert_false(n->linked);
		break;
	case 2:
		heap_move(h, n, key);
		break;
	default:
		if (!n->linked)
			heap_push(h, n, key);
	}
	assert_true(heap_first_key(h) == slow_min(nodes));
}

static void test_random(void **state)
{
	struct heap_node nodes[N] = {0};
	struct heap h = {0};
	struct prng r;
	int i;

	(void)state;
	prng_init(&r, 1);
	for (i = 0; i < 100000; i++)
		step(&h, nodes, &r);
}

static void test_sorts(void **state)
{
	struct heap_node nodes[N] = {0};
	struct heap h = {0};
	struct heap_node *n;
	uint64_t last = 0;
	int i, count = 0;

	(void)state;
	assert_null(heap_pop(&h));
	assert_null(heap_first(&h));
	for (i = 0; i < N; i++)
		heap_push(&h, &nodes[i], (uint64_t)(i * 37 % N));
	while ((n = heap_pop(&h))) {
		assert_true(n->key >= last);
		last = n->key;
		count++;
	}
	assert_int_equal(count, N);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_sorts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
