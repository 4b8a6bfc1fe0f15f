/* SPDX-License-Identifier: MIT */
/*
 * lock.c - the slow halves of lock.h. A waiter pauses, then yields: it waits
 * for a few hundred instructions of the holder, which may be preempted but
 * never sleeps.
 */
#include "dev/soft/lock.h"

#include "env/membarrier.h"

#include <sched.h>

static void wait_round(unsigned *round)
{
	if (++*round < 64)
		__builtin_ia32_pause();
	else
		sched_yield();
}

static void word_take(struct soft_lock *l)
{
	uint32_t zero = 0;
	unsigned round = 0;

	while (!atomic_compare_exchange_weak_explicit(&l->word, &zero, 1,
						      memory_order_acquire,
						      memory_order_relaxed)) {
		zero = 0;
		wait_round(&round);
	}
}

void soft_lock_slow(struct soft_lock *l)
{
	unsigned round = 0;
	uint32_t mode;

	for (;;) {
		mode = atomic_load_explicit(&l->mode, memory_order_acquire);
		if (mode & SOFT_LOCK_SHARED) {
			word_take(l);
			/* acquire: word_take()'s, of the word that
			 * soft_lock_bias() released behind the mode */
			if (atomic_load_explicit(&l->mode,
						 memory_order_relaxed) &
			    SOFT_LOCK_SHARED)
				return;
			atomic_store_explicit(&l->word, 0,
					      memory_order_release);
			continue;
		}
		if (mode == 0) {
			atomic_store_explicit(&l->busy, 1,
					      memory_order_relaxed);
			atomic_signal_fence(memory_order_seq_cst);
			if (atomic_load_explicit(&l->mode,
						 memory_order_acquire) == 0)
				return;
			atomic_store_explicit(&l->busy, 0,
					      memory_order_release);
		}
		wait_round(&round);
	}
}

/* From the user of a biased lock, which may be inside. The word is held. */
static void wrest(struct soft_lock *l)
{
	unsigned round = 0;
	bool quick;

	if (atomic_load_explicit(&l->mode, memory_order_relaxed) &
	    SOFT_LOCK_SHARED)
		return;
	atomic_store_explicit(&l->mode, SOFT_LOCK_WANT, memory_order_relaxed);
	quick = membarrier_try(MEMBARRIER_PROCESS);
	if (!quick)
		membarrier_wait();
	/* acquire: pairs with the user's release in soft_unlock() */
	while (atomic_load_explicit(&l->busy, memory_order_acquire))
		wait_round(&round);
	/* The wait is paid once: from here on it is a shared lock. release:
	 * the user that sees the mode sees what the owner before it did */
	if (!quick)
		atomic_store_explicit(&l->mode, SOFT_LOCK_SHARED,
				      memory_order_release);
}

void soft_lock_revoke(struct soft_lock *l)
{
	word_take(l);
	wrest(l);
}

bool soft_lock_revoke_try(struct soft_lock *l)
{
	uint32_t zero = 0;

	if (!atomic_compare_exchange_strong_explicit(&l->word, &zero, 1,
						     memory_order_acquire,
						     memory_order_relaxed))
		return false;
	wrest(l);
	return true;
}

void soft_lock_return(struct soft_lock *l)
{
	if (!(atomic_load_explicit(&l->mode, memory_order_relaxed) &
	      SOFT_LOCK_SHARED))
		atomic_store_explicit(&l->mode, 0, memory_order_release);
	atomic_store_explicit(&l->word, 0, memory_order_release);
}

void soft_lock_share(struct soft_lock *l)
{
	soft_lock_revoke(l);
	atomic_store_explicit(&l->mode, SOFT_LOCK_SHARED, memory_order_release);
	atomic_store_explicit(&l->word, 0, memory_order_release);
}

void soft_lock_bias(struct soft_lock *l)
{
	if (membarrier_refused())
		return; /* to take it back would cost a wait */
	word_take(l);
	/* release: as in soft_lock_return() */
	if (atomic_load_explicit(&l->mode, memory_order_relaxed) ==
	    SOFT_LOCK_YOUNG)
		atomic_store_explicit(&l->mode, 0, memory_order_release);
	atomic_store_explicit(&l->word, 0, memory_order_release);
}

/* The word is held, and the user not inside. */
static void age_back(struct soft_lock *l)
{
	if (!(atomic_load_explicit(&l->mode, memory_order_relaxed) &
	      SOFT_LOCK_SHARED))
		atomic_store_explicit(&l->mode, SOFT_LOCK_YOUNG,
				      memory_order_release);
	atomic_store_explicit(&l->word, 0, memory_order_release);
}

void soft_lock_unbias(struct soft_lock *l)
{
	soft_lock_revoke(l);
	age_back(l);
}

void soft_lock_unbias_own(struct soft_lock *l)
{
	word_take(l);
	age_back(l);
}
