/* SPDX-License-Identifier: MIT */
/*
 * test_list.c - order, deleting twice, deleting inside a loop.
 */
#include "base/list.h"
#include "unit/cm.h"

static void test_order(void **state)
{
	struct list_node head, a = {0}, b = {0}, c = {0};

	(void)state;
	list_init(&head);
	assert_true(list_empty(&head));
	assert_null(list_pop_head(&head));
	list_add_tail(&head, &b);
	list_add_tail(&head, &c);
	list_add_head(&head, &a);
	assert_true(list_linked(&a));
	assert_ptr_equal(list_pop_head(&head), &a);
	assert_false(list_linked(&a));
	list_del(&c);
	list_del(&c);
	assert_ptr_equal(list_pop_head(&head), &b);
	assert_true(list_empty(&head));
}

static void test_zeroed(void **state)
{
	struct list_node head = {0}, n = {0};

	(void)state;
	assert_true(list_empty(&head));
	assert_false(list_linked(&n));
	list_del(&n); /* harmless */
	assert_null(list_pop_head(&head));
}

static void test_delete_inside(void **state)
{
	struct list_node head, n[4] = {0}, *pos, *tmp;
	int i, seen = 0;

	(void)state;
	list_init(&head);
	for (i = 0; i < 4; i++)
		list_add_tail(&head, &n[i]);
	list_for_each_safe(pos, tmp, &head) {
		assert_ptr_equal(pos, &n[seen]);
		if (seen++ & 1)
			list_del(pos);
	}
	assert_int_equal(seen, 4);
	seen = 0;
	list_for_each(pos, &head)
		assert_ptr_equal(pos, &n[2 * seen++]);
	assert_int_equal(seen, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_zeroed),
		cmocka_unit_test(test_delete_inside),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
