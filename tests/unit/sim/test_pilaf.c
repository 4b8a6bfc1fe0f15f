/* SPDX-License-Identifier: MIT */
/*
 * Pilaf's table: each key is found, few READs find it, and bytes of a PUT under
 * way are not taken for a value.
 */
#include "sim/rfrpc/pilaf.h"
#include "unit/cm.h"

#include <errno.h>
#include <stdlib.h>

#define SLOTS 4096u
#define KEYS (SLOTS / 4 * 3)

static struct pilaf table(uint32_t slots, uint32_t keys)
{
	struct pilaf t = {.slots = slots, .keys = keys, .seed = 7};

	t.base = malloc(pilaf_bytes(slots, keys));
	assert_non_null(t.base);
	return t;
}

/* At most so many READs. */
static enum pilaf_step find(const struct pilaf *t, uint64_t key, unsigned most,
			    struct pilaf_get *g)
{
	/* A client has the table's sizes, and none of its bytes. */
	struct pilaf far = {
		.slots = t->slots, .keys = t->keys, .seed = t->seed};
	enum pilaf_step step = PILAF_MORE;
	uint64_t off;
	uint32_t len;

	pilaf_get_begin(g, &far, key);
	while (step == PILAF_MORE && g->reads < most) {
		off = pilaf_get_next(g, &len);
		assert_true(off + len <= pilaf_bytes(t->slots, t->keys));
		step = pilaf_get_took(g, t->base + off);
	}
	g->t = NULL;
	return step;
}

static void test_all_found(void **state)
{
	struct pilaf t = table(SLOTS, KEYS);
	struct pilaf_get g;
	unsigned reads = 0;

	assert_int_equal(pilaf_fill(&t), 0);
	for (uint64_t key = 0; key < KEYS; key++) {
		assert_int_equal(find(&t, key, 100, &g), PILAF_FOUND);
		assert_int_equal(g.version, 0);
		assert_int_equal(g.torn, 0);
		assert_in_range(g.reads, 2, 6);
		reads += g.reads;
	}
	/* Pilaf: 3.2 a GET. */
	assert_in_range(reads * 100 / KEYS, 300, 350);
	assert_int_equal(find(&t, KEYS, 100, &g), PILAF_MISSING);
	assert_true(g.reads >= 3 && g.reads <= 6);
	free(t.base);
}

static void test_put(void **state)
{
	struct pilaf t = table(SLOTS, KEYS);
	struct pilaf_get g;

	assert_int_equal(pilaf_fill(&t), 0);
	pilaf_put(&t, 5, 9, 0);
	/* Half of it is there: READ again and again. */
	assert_int_equal(find(&t, 5, 20, &g), PILAF_MORE);
	assert_true(g.torn >= 14);
	pilaf_put(&t, 5, 9, 1);
	assert_int_equal(find(&t, 5, 100, &g), PILAF_FOUND);
	assert_int_equal(g.version, 9);
	/* Two at once: the one that ends later. */
	pilaf_put(&t, 5, 10, 0);
	pilaf_put(&t, 5, 11, 0);
	pilaf_put(&t, 5, 11, 1);
	pilaf_put(&t, 5, 10, 1);
	assert_int_equal(find(&t, 5, 100, &g), PILAF_FOUND);
	assert_int_equal(g.version, 10);
	free(t.base);
}

/* A slot that is half of another one. */
static void test_torn_slot(void **state)
{
	struct pilaf t = table(SLOTS, KEYS);
	struct pilaf_slot *s;
	struct pilaf_get g;
	uint32_t len;

	assert_int_equal(pilaf_fill(&t), 0);
	pilaf_get_begin(&g, &t, 3);
	s = (void *)(t.base + pilaf_get_next(&g, &len));
	s->extent += 1;
	assert_int_equal(pilaf_get_took(&g, s), PILAF_MORE);
	assert_int_equal(g.torn, 1);
	assert_int_equal(g.extent, 0);
	free(t.base);
}

static void test_full(void **state)
{
	struct pilaf t = table(64, 65);

	assert_int_equal(pilaf_fill(&t), -ENOSPC);
	free(t.base);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_found),
		cmocka_unit_test(test_put),
		cmocka_unit_test(test_torn_slot),
		cmocka_unit_test(test_full),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
