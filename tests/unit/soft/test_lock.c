/* SPDX-License-Identifier: MIT */
/* The two-kind lock: its user and a revoker exclude each other, also while a
 * biased lock becomes a shared one, or a young one a biased one and that back. */
#include "rig.h"

#include "unit/patience.h"

#include "dev/soft/lock.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REVOKES 30000
#define ROUNDS 3000000

static struct soft_lock lock;
static char young;    /* that it begins so, for race() */
static uint64_t x, y; /* always equal outside */
static _Atomic uint64_t wrong;
static _Atomic int revokers;

static void inside(void)
{
	volatile int i;

	if (x != y)
		wrong++;
	x++;
	/* long enough to be met inside */
	for (i = 0; i < 30; i++)
		atomic_signal_fence(memory_order_seq_cst);
	y++;
}

static void *user(void *arg)
{
	uint64_t *rounds = arg;

	/* both sides have their fill, however they are scheduled */
	while (revokers || *rounds < ROUNDS) {
		soft_lock(&lock);
		inside();
		soft_unlock(&lock);
		++*rounds;
	}
	return NULL;
}

static void *revoker(void *arg)
{
	int i;

	for (i = 0; i < REVOKES; i++) {
		soft_lock_revoke(&lock);
		inside();
		soft_lock_return(&lock);
		if (arg == &lock && i == REVOKES / 2)
			soft_lock_share(&lock);
		if (arg == &young)
			(i % 2 ? soft_lock_unbias : soft_lock_bias)(&lock);
	}
	revokers--;
	return NULL;
}

static void race(bool biased, void *share)
{
	uint64_t rounds = 0;
	pthread_t t[3];
	int i;

	if (share == &young)
		soft_lock_init_young(&lock);
	else
		soft_lock_init(&lock, biased);
	x = y = 0;
	revokers = 2;
	pthread_create(&t[0], NULL, user, &rounds);
	pthread_create(&t[1], NULL, revoker, share);
	pthread_create(&t[2], NULL, revoker, NULL);
	for (i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	assert_int_equal(wrong, 0);
	assert_int_equal(x, rounds + 2 * REVOKES);
	assert_int_equal(y, x);
}

static void test_biased(void **state)
{
	race(true, NULL);
}

static void test_becomes_shared(void **state)
{
	race(true, &lock);
}

static void test_shared(void **state)
{
	race(false, NULL);
}

static void test_young_and_biased(void **state)
{
	race(false, &young);
	assert_int_equal(lock.mode, SOFT_LOCK_YOUNG);
}

#define FRESH 4096
#define FRESH_NS 1000000000ull

/* The user of the current one of many locks. */
struct fresh {
	struct soft_lock l;
	uint64_t x, y;
};

static struct fresh fresh[FRESH];
static _Atomic int current;
static _Atomic uint64_t uses;

static void fresh_inside(struct fresh *f)
{
	volatile int i;

	if (f->x != f->y)
		wrong++;
	f->x++;
	for (i = 0; i < 30; i++)
		atomic_signal_fence(memory_order_seq_cst);
	f->y++;
}

static void *fresh_user(void *arg)
{
	struct fresh *f;
	int i;

	while ((i = current) < FRESH) {
		f = &fresh[i];
		soft_lock(&f->l);
		fresh_inside(f);
		soft_unlock(&f->l);
		uses++;
	}
	return NULL;
}

/* Each lock is revoked for the first time while its user comes and goes: that is
 * when a refused membarrier(2) is made up for. */
static void test_first_revoke(void **state)
{
	uint64_t end = rig_now_ns() + FRESH_NS, until;
	pthread_t t;
	int i;

	for (i = 0; i < FRESH; i++)
		soft_lock_init(&fresh[i].l, true);
	current = 0;
	pthread_create(&t, NULL, fresh_user, NULL);
	for (i = 0; i < FRESH && (i <= 10 || rig_now_ns() < end); i++) {
		current = i;
		until = uses + 100;
		while (uses < until)
			sched_yield();
		soft_lock_revoke(&fresh[i].l);
		fresh_inside(&fresh[i]);
		soft_lock_return(&fresh[i].l);
	}
	current = FRESH;
	pthread_join(t, NULL);
	assert_int_equal(wrong, 0);
}

/* The user takes its own bias back, and gives it again, beside a revoker. */
static void *fickle(void *arg)
{
	uint64_t *rounds = arg;

	while (revokers || *rounds < ROUNDS / 10) {
		soft_lock_bias(&lock);
		soft_lock(&lock);
		inside();
		soft_unlock(&lock);
		soft_lock_unbias_own(&lock);
		soft_lock(&lock);
		inside();
		soft_unlock(&lock);
		++*rounds;
	}
	return NULL;
}

static void test_own(void **state)
{
	uint64_t rounds = 0;
	pthread_t t[2];

	soft_lock_init_young(&lock);
	x = y = 0;
	revokers = 1;
	pthread_create(&t[0], NULL, fickle, &rounds);
	pthread_create(&t[1], NULL, revoker, NULL);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	assert_int_equal(wrong, 0);
	assert_int_equal(x, 2 * rounds + REVOKES);
	assert_int_equal(y, x);
	assert_int_equal(lock.mode, SOFT_LOCK_YOUNG);
}

/* What is young no more does not become so. */
static void test_others_stay(void **state)
{
	soft_lock_init(&lock, false);
	soft_lock_bias(&lock);
	assert_int_equal(lock.mode, SOFT_LOCK_SHARED);
	soft_lock_unbias(&lock);
	assert_int_equal(lock.mode, SOFT_LOCK_SHARED);
	soft_lock_init_young(&lock);
	soft_lock_share(&lock);
	assert_int_equal(lock.mode, SOFT_LOCK_SHARED);
	assert_int_equal(lock.word, 0);
}

/* A try does not wait for the user of a shared lock, and has a biased
 * one as with soft_lock_revoke(). */
static void test_try(void **state)
{
	soft_lock_init(&lock, false);
	soft_lock(&lock);
	assert_false(soft_lock_revoke_try(&lock));
	soft_unlock(&lock);
	assert_true(soft_lock_revoke_try(&lock));
	assert_false(soft_lock_revoke_try(&lock));
	soft_lock_return(&lock);
	soft_lock_init(&lock, true);
	assert_true(soft_lock_revoke_try(&lock));
	assert_int_not_equal(lock.mode, 0);
	soft_lock_return(&lock);
	assert_int_equal(lock.mode & SOFT_LOCK_WANT, 0);
	soft_lock(&lock);
	soft_unlock(&lock);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_biased),
		cmocka_unit_test(test_becomes_shared),
		cmocka_unit_test(test_shared),
		cmocka_unit_test(test_young_and_biased),
		cmocka_unit_test(test_own),
		cmocka_unit_test(test_others_stay),
		cmocka_unit_test(test_first_revoke),
		cmocka_unit_test(test_try),
	};

	syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0,
		0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
