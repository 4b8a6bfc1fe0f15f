/* SPDX-License-Identifier: MIT */
/* The copy: exact at every alignment and length, ascending for a reader that
 * looks on, the tail last. */
#include "rig.h"

#include "dev/soft/copy.h"

#include <pthread.h>
#include <sched.h>

#define LAPS 20000
#define BODY 4096

static void test_exact(void **state)
{
	static char src[1024], dst[1024], want[1024];
	size_t to, from, len, i;

	for (i = 0; i < sizeof(src); i++)
		src[i] = (char)(i * 11 + 1);
	for (to = 0; to < 40; to++) {
		for (from = 0; from < 9; from += 4) {
			for (len = 0; len < 700; len += len < 70 ? 1 : 37) {
				memset(dst, 0, sizeof(dst));
				memset(want, 0, sizeof(want));
				memcpy(want + to, src + from, len);
				soft_copy(dst + to, src + from, len);
				assert_memory_equal(dst, want, sizeof(dst));
			}
		}
	}
}

static void test_tail(void **state)
{
	assert_int_equal(soft_copy_tail_len(64, 8), 8);
	assert_int_equal(soft_copy_tail_len(64, 100), 4);
	assert_int_equal(soft_copy_tail_len(60, 100), 8);
	assert_int_equal(soft_copy_tail_len(61, 2), 2);
	assert_int_equal(soft_copy_tail_len(64, 1), 1);
	assert_int_equal(soft_copy_tail_len(0, 1001), 1);
}

#ifndef __SANITIZE_THREAD__ /* races on purpose: it looks on at the copy */
struct shared {
	_Alignas(64) uint64_t word[BODY / 8];
	_Atomic uint64_t done;
};

static void *writer(void *arg)
{
	static uint64_t src[BODY / 8];
	struct shared *s = arg;
	uint64_t lap;
	int i;

	for (lap = 1; lap <= LAPS; lap++) {
		for (i = 0; i < BODY / 8; i++)
			src[i] = lap;
		soft_copy(s->word, src, BODY);
		while (atomic_load(&s->done) != lap)
			sched_yield();
	}
	return NULL;
}

static void spin_for(volatile uint64_t *w, uint64_t lap)
{
	unsigned n;

	for (n = 1; *w != lap; n++)
		if (n % 4096 == 0)
			sched_yield();
}

/* A word seen new proves those before it; the tail proves all. With libc's
 * memcpy this fails within a few hundred laps, if two cores are free. */
static void test_ascending(void **state)
{
	static struct shared s;
	volatile uint64_t *w = s.word;
	uint64_t lap, late = 0;
	pthread_t t;
	int i, at;

	pthread_create(&t, NULL, writer, &s);
	for (lap = 1; lap <= LAPS; lap++) {
		at = lap % 2 ? BODY / 8 - 1 : (int)(lap * 37 % (BODY / 8));
		spin_for(&w[at], lap);
		for (i = at; i >= 0; i -= 8)
			late += w[i] != lap;
		spin_for(&w[BODY / 8 - 1], lap);
		for (i = 0; i < BODY / 8; i++)
			late += w[i] != lap;
		atomic_store(&s.done, lap);
	}
	pthread_join(t, NULL);
	assert_int_equal(late, 0);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exact),
		cmocka_unit_test(test_tail),
#ifndef __SANITIZE_THREAD__
		cmocka_unit_test(test_ascending),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
