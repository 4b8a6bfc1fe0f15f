/* SPDX-License-Identifier: MIT */
/*
 * fence.h - memory fences that the thread sanitizer accepts too.
 *
 * fence_full() orders every access before it against every access after it,
 * stores before later loads included: what Dekker-style protocols (arm and
 * re-check against publish and wake) need and acquire/release cannot give.
 * fence_acquire() and fence_release() are C11's, for data that is not atomic
 * itself. Each use names the fence on the other side.
 */
#ifndef SKEIN_BASE_FENCE_H
#define SKEIN_BASE_FENCE_H

#include <stdatomic.h>

#ifdef __SANITIZE_THREAD__
/* gcc refuses atomic_thread_fence() under TSan; a locked operation is at least
 * the same barrier to the processor and the compiler. */
static inline void fence_full(void)
{
	atomic_uint word = 0;

	atomic_fetch_or_explicit(&word, 1, memory_order_seq_cst);
}

static inline void fence_acquire(void)
{
	fence_full();
}

static inline void fence_release(void)
{
	fence_full();
}
#else
static inline void fence_full(void)
{
	atomic_thread_fence(memory_order_seq_cst);
}

static inline void fence_acquire(void)
{
	atomic_thread_fence(memory_order_acquire);
}

static inline void fence_release(void)
{
	atomic_thread_fence(memory_order_release);
}
#endif

/* Tells the processor that this is a spin loop. Orders nothing. */
static inline void cpu_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

#endif
