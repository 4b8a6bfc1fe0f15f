/* SPDX-License-Identifier: MIT */
/*
 * copy.c - the ascending copy.
 *
 * libc's memcpy writes the end of a buffer before its middle, so a reader that
 * polls the last byte would see a message with a hole. Here stores are issued
 * in ascending order and x86 keeps the order of ordinary stores (SDM 3A,
 * 8.2.2; neither string nor non-temporal stores are used, which are exempt
 * from it). Compilers may not merge or reorder the stores: they are volatile
 * or separated by compiler fences. A 32-byte store is aligned, hence within
 * one cache line. docs/soft.md, "Copies".
 */
#include "base/fence.h"
#include "dev/soft/copy.h"

#include <immintrin.h>

/* Stores of bytes up to an alignment, then of words. */
static void copy_words(char *dst, const char *src, size_t len)
{
	while (len && ((uintptr_t)dst & 7)) {
		*(volatile char *)dst++ = *(volatile const char *)src++;
		len--;
	}
	for (; len >= 8; len -= 8, dst += 8, src += 8) {
		uint64_t v;

		memcpy(&v, src, 8);
		*(volatile uint64_t *)dst = v;
		/* the next load stays behind: READs are ascending too */
		atomic_signal_fence(memory_order_seq_cst);
	}
	for (; len; len--)
		*(volatile char *)dst++ = *(volatile const char *)src++;
}

__attribute__((target("avx"))) static void copy_vector(char *dst,
						       const char *src,
						       size_t len)
{
	size_t head = -(uintptr_t)dst & 31;
	size_t i;

	copy_words(dst, src, head);
	dst += head;
	src += head;
	len -= head;
	for (i = 0; i + 128 <= len; i += 128) {
		__m256i a, b, c, d;

		a = _mm256_loadu_si256((const __m256i *)(src + i));
		atomic_signal_fence(memory_order_seq_cst);
		b = _mm256_loadu_si256((const __m256i *)(src + i + 32));
		atomic_signal_fence(memory_order_seq_cst);
		c = _mm256_loadu_si256((const __m256i *)(src + i + 64));
		atomic_signal_fence(memory_order_seq_cst);
		d = _mm256_loadu_si256((const __m256i *)(src + i + 96));
		atomic_signal_fence(memory_order_seq_cst);
		__builtin_prefetch(src + i + 512);
		_mm256_store_si256((__m256i *)(dst + i), a);
		atomic_signal_fence(memory_order_seq_cst);
		_mm256_store_si256((__m256i *)(dst + i + 32), b);
		atomic_signal_fence(memory_order_seq_cst);
		_mm256_store_si256((__m256i *)(dst + i + 64), c);
		atomic_signal_fence(memory_order_seq_cst);
		_mm256_store_si256((__m256i *)(dst + i + 96), d);
		atomic_signal_fence(memory_order_seq_cst);
	}
	copy_words(dst + i, src + i, len - i);
}

void soft_copy_body(void *dst, const void *src, size_t len)
{
	if (len >= 256 && __builtin_cpu_supports("avx"))
		copy_vector(dst, src, len);
	else
		copy_words(dst, src, len);
}

void soft_copy_tail(void *dst, const void *src, size_t len)
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
