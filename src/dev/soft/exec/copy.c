/* SPDX-License-Identifier: MIT */
/*
 * copy.c - the ascending copy.
 *
 * libc's memcpy writes the end of a buffer before its middle, so a reader that
 * polls the last byte would see a message with a hole. Here stores are issued
 * in ascending order and x86 keeps the order of ordinary stores (SDM 3A,
 * 8.2.2; neither string nor non-temporal stores are used, which are exempt
 * from it, but for soft_copy_stream(), which only promises that the tail is
 * last). Compilers may not merge or reorder the stores: they are volatile
 * or separated by compiler fences. A 32-byte store is aligned, hence within
 * one cache line. docs/soft.md, "Copies".
 */
#include "base/fence.h"
#include "dev/soft/exec/copy.h"

#include <immintrin.h>
#include <stdbool.h>

/* How far ahead of the stores their lines are asked for. Full lines that are
 * stored one after the other wait for each line's old content, and past L1 the
 * processor asks for too few of them by itself: this is what libc's copy (by
 * string instructions) has ahead of a plain one, about a tenth at 1 MiB. A
 * prefetch writes nothing, so it has no part in the order. */
#define AHEAD 256

/* From here on vectors pay. */
#define SHORT 256u

static inline void copy_word(char *dst, const char *src)
{
	uint64_t v;

	memcpy(&v, src, 8);
	*(volatile uint64_t *)dst = v;
	/* the next load stays behind: READs are ascending too */
	atomic_signal_fence(memory_order_seq_cst);
}

/* Stores of bytes up to an alignment, then of words. */
static inline void copy_words(char *dst, const char *src, size_t len)
{
	while (len && ((uintptr_t)dst & 7)) {
		*(volatile char *)dst++ = *(volatile const char *)src++;
		len--;
	}
	for (; len >= 32; len -= 32, dst += 32, src += 32) {
		copy_word(dst, src);
		copy_word(dst + 8, src + 8);
		copy_word(dst + 16, src + 16);
		copy_word(dst + 24, src + 24);
	}
	for (; len >= 8; len -= 8, dst += 8, src += 8)
		copy_word(dst, src);
	for (; len; len--)
		*(volatile char *)dst++ = *(volatile const char *)src++;
}

#define VECTOR __attribute__((target("avx,prfchw")))

VECTOR static inline void copy_32(char *dst, const char *src)
{
	_mm256_store_si256((__m256i *)dst,
			   _mm256_loadu_si256((const __m256i *)src));
	atomic_signal_fence(memory_order_seq_cst);
}

/* ask: are the lines AHEAD of dst within the range? */
VECTOR static inline void copy_128(char *dst, const char *src, bool ask)
{
	__m256i a, b, c, d;

	a = _mm256_loadu_si256((const __m256i *)src);
	atomic_signal_fence(memory_order_seq_cst);
	b = _mm256_loadu_si256((const __m256i *)(src + 32));
	atomic_signal_fence(memory_order_seq_cst);
	c = _mm256_loadu_si256((const __m256i *)(src + 64));
	atomic_signal_fence(memory_order_seq_cst);
	d = _mm256_loadu_si256((const __m256i *)(src + 96));
	atomic_signal_fence(memory_order_seq_cst);
	if (ask) {
		__builtin_prefetch(dst + AHEAD, 1);
		__builtin_prefetch(dst + AHEAD + 64, 1);
	}
	_mm256_store_si256((__m256i *)dst, a);
	atomic_signal_fence(memory_order_seq_cst);
	_mm256_store_si256((__m256i *)(dst + 32), b);
	atomic_signal_fence(memory_order_seq_cst);
	_mm256_store_si256((__m256i *)(dst + 64), c);
	atomic_signal_fence(memory_order_seq_cst);
	_mm256_store_si256((__m256i *)(dst + 96), d);
	atomic_signal_fence(memory_order_seq_cst);
}

VECTOR static void copy_vector(char *dst, const char *src, size_t len)
{
	size_t head = -(uintptr_t)dst & 31, i;

	for (i = 0; i < AHEAD; i += 64)
		__builtin_prefetch(dst + i, 1);
	copy_words(dst, src, head);
	dst += head;
	src += head;
	len -= head;
	/* Never ahead of the range itself: the line behind it may be one that
	 * its owner polls. */
	for (i = 0; i + AHEAD + 128 <= len; i += 128)
		copy_128(dst + i, src + i, true);
	for (; i + 128 <= len; i += 128)
		copy_128(dst + i, src + i, false);
	for (; i + 32 <= len; i += 32)
		copy_32(dst + i, src + i);
	copy_words(dst + i, src + i, len - i);
}

static inline void copy_body(char *dst, const char *src, size_t len)
{
	if (len >= SHORT && __builtin_cpu_supports("avx"))
		copy_vector(dst, src, len);
	else
		copy_words(dst, src, len);
}

void soft_copy_body(void *dst, const void *src, size_t len)
{
	copy_body(dst, src, len);
}

/* Past the caches: no old line is fetched to be overwritten, and none that is
 * in use makes room. */
VECTOR static inline void past_128(char *dst, const char *src)
{
	for (size_t k = 0; k < 128; k += 32)
		_mm256_stream_si256(
			(__m256i *)(dst + k),
			_mm256_loadu_si256((const __m256i *)(src + k)));
}

/* Of so many pages in turns: the processor asks for lines ahead of a reader, but
 * not beyond the page, so one page alone begins with waiting, for its address
 * and for its first lines, each time. Two and eight are less good than four. */
#define PAST_PAGE 4096u
#define PAST_PAGES 4u

VECTOR static void copy_past(char *dst, const char *src, size_t len)
{
	size_t head = -(uintptr_t)dst & 31, i = 0, k, page;

	copy_words(dst, src, head);
	dst += head;
	src += head;
	len -= head;
	for (; i + PAST_PAGES * PAST_PAGE <= len; i += PAST_PAGES * PAST_PAGE)
		for (k = i; k < i + PAST_PAGE; k += 128)
			for (page = 0; page < PAST_PAGES; page++)
				past_128(dst + k + page * PAST_PAGE,
					 src + k + page * PAST_PAGE);
	for (; i + 128 <= len; i += 128)
		past_128(dst + i, src + i);
	copy_words(dst + i, src + i, len - i);
	/* Non-temporal stores wait in buffers of their own, which no store of
	 * the tail, and no release, drains (SDM 1, 10.4.6.2). */
	_mm_sfence();
}

static inline void copy_tail(void *dst, const void *src, size_t len)
{
	uintptr_t at = (uintptr_t)dst;
	const char *s = src;
	char *d = dst;

	/* release: pairs with the acquire by which the reader polls the tail;
	 * without it the compiler could sink the body below. */
	fence_release();
	if (len == 8 && (at & 7) == 0) {
		uint64_t v;

		memcpy(&v, s, 8);
		atomic_store_explicit((_Atomic uint64_t *)dst, v,
				      memory_order_release);
		return;
	}
	if (len >= 4 && (at & 3) == 0) {
		uint32_t v;

		memcpy(&v, s, 4);
		atomic_store_explicit((_Atomic uint32_t *)dst, v,
				      memory_order_release);
		d += 4;
		s += 4;
		len -= 4;
	}
	for (; len; len--, d++, s++)
		atomic_store_explicit((_Atomic char *)d, *s,
				      memory_order_release);
}

void soft_copy_tail(void *dst, const void *src, size_t len)
{
	copy_tail(dst, src, len);
}

/* A short message, and most are: whole words, of which the last is the tail. */
static inline void copy_short(char *dst, const char *src, size_t len)
{
	size_t last = len - 8, i;
	uint64_t v;

	for (i = 0; i + 32 <= last; i += 32) {
		copy_word(dst + i, src + i);
		copy_word(dst + i + 8, src + i + 8);
		copy_word(dst + i + 16, src + i + 16);
		copy_word(dst + i + 24, src + i + 24);
	}
	if (last & 16) {
		copy_word(dst + i, src + i);
		copy_word(dst + i + 8, src + i + 8);
		i += 16;
	}
	if (last & 8)
		copy_word(dst + i, src + i);
	memcpy(&v, src + last, 8);
	/* release: as in copy_tail() */
	atomic_store_explicit((_Atomic uint64_t *)(void *)(dst + last), v,
			      memory_order_release);
}

/* Out of line: its registers need not be saved for a short one. */
static __attribute__((noinline)) void copy_long(void *dst, const void *src,
						size_t len)
{
	size_t tail = soft_copy_tail_len((uintptr_t)dst, len);

	copy_body(dst, src, len - tail);
	copy_tail((char *)dst + (len - tail), (const char *)src + (len - tail),
		  tail);
}

void soft_copy_stream(void *dst, const void *src, size_t len)
{
	size_t tail = soft_copy_tail_len((uintptr_t)dst, len);

	if (len >= SHORT && __builtin_cpu_supports("avx"))
		copy_past(dst, src, len - tail);
	else
		copy_words(dst, src, len - tail);
	copy_tail((char *)dst + (len - tail), (const char *)src + (len - tail),
		  tail);
}

void soft_copy_all(void *dst, const void *src, size_t len)
{
	if (len && len <= SHORT && (((uintptr_t)dst | len) & 7) == 0)
		copy_short(dst, src, len);
	else
		copy_long(dst, src, len);
}
