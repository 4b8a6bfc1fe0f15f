/* SPDX-License-Identifier: MIT */
/*
 * lock.h - the lock of a queue, in two kinds.
 *
 * Shared: a spin lock. Biased: for an object that its user serialises
 * (DEV_QP_SINGLE_THREADED, DEV_QP_SERIAL); the user pays two plain stores and a
 * load; the control thread comes seldom and pays a membarrier(2). Where a
 * sandbox refuses that call, the first to revoke waits instead
 * (env/membarrier.h), and the lock is a shared one from then on.
 *
 * Biased lock(): busy = 1, then mode is read. Revoke: mode |= WANT, then
 * membarrier, then busy is read. The membarrier puts a full fence into every
 * running thread of the process between the two accesses, so either the user
 * sees WANT, or the revoker sees busy. Without it the user's load may pass its
 * own store, and both threads would be inside. mode only gains SHARED while
 * revoked.
 *
 * Young: a shared lock that may become a biased one. A QP's locks are young
 * until the QP may send, and again once it leaves for ERR or RESET, when only
 * the control path uses them. mode loses SHARED only while the word is held, so
 * a thread that has taken the word of a shared lock reads mode once more.
 */
#ifndef SKEIN_DEV_SOFT_LOCK_H
#define SKEIN_DEV_SOFT_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
	SOFT_LOCK_WANT = 1,
	SOFT_LOCK_SHARED = 2,
	SOFT_LOCK_YOUNG = 2 | 4,
};

struct soft_lock {
	_Atomic uint32_t mode;
	_Atomic uint32_t busy; /* biased: the user is inside */
	_Atomic uint32_t word; /* shared, and among revokers: held */
};

static inline void soft_lock_init(struct soft_lock *l, bool biased)
{
	atomic_init(&l->mode, biased ? 0 : SOFT_LOCK_SHARED);
	atomic_init(&l->busy, 0);
	atomic_init(&l->word, 0);
}

static inline void soft_lock_init_young(struct soft_lock *l)
{
	atomic_init(&l->mode, SOFT_LOCK_YOUNG);
	atomic_init(&l->busy, 0);
	atomic_init(&l->word, 0);
}

void soft_lock_slow(struct soft_lock *l);
/* Excludes the user of a biased lock; the same as soft_lock() on a shared
 * one. For the control thread and the control path. */
void soft_lock_revoke(struct soft_lock *l);
/* The same, but false where a shared lock is held. */
bool soft_lock_revoke_try(struct soft_lock *l);
void soft_lock_return(struct soft_lock *l);
/* Turns a biased lock into a shared one, for good. Not held by the caller. */
void soft_lock_share(struct soft_lock *l);
/* Turns a young lock into a biased one, and that back; others stay what they
 * are. Not held by the caller; one thread at a time. */
void soft_lock_bias(struct soft_lock *l);
void soft_lock_unbias(struct soft_lock *l);
/* The same, called by the lock's user itself while it is not inside: no
 * membarrier is needed. */
void soft_lock_unbias_own(struct soft_lock *l);

static inline void soft_lock(struct soft_lock *l)
{
	/* acquire: pairs with the revoker's release of mode */
	uint32_t mode = atomic_load_explicit(&l->mode, memory_order_acquire);
	uint32_t zero = 0;

	if (mode == 0) {
		atomic_store_explicit(&l->busy, 1, memory_order_relaxed);
		atomic_signal_fence(memory_order_seq_cst);
		if (atomic_load_explicit(&l->mode, memory_order_acquire) == 0)
			return;
		atomic_store_explicit(&l->busy, 0, memory_order_release);
	} else if (mode == SOFT_LOCK_SHARED &&
		   atomic_compare_exchange_strong_explicit(
			   &l->word, &zero, 1, memory_order_acquire,
			   memory_order_relaxed)) {
		return;
	}
	soft_lock_slow(l);
}

static inline void soft_unlock(struct soft_lock *l)
{
	/* release: pairs with the acquire of the next thread that takes the
	 * lock */
	if (atomic_load_explicit(&l->mode, memory_order_relaxed) &
	    SOFT_LOCK_SHARED)
		atomic_store_explicit(&l->word, 0, memory_order_release);
	else
		atomic_store_explicit(&l->busy, 0, memory_order_release);
}

#endif
