/* SPDX-License-Identifier: MIT */
/* The copy: exact at every alignment and length, ascending for a reader that
 * looks on, the tail last; and the one past the caches, and who takes it. */
#include "rig.h"

#include "base/prng.h"
#include "dev/soft/exec/copy.h"
#include "dev/soft/qp/qp.h"

#include <pthread.h>
#include <sched.h>

#define LAPS 20000
#define BODY 4096
#define STREAM 20480 /* four pages in turns, and one more */

static void exact(void (*copy)(void *dst, const void *src, size_t len))
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
				copy(dst + to, src + from, len);
				assert_memory_equal(dst, want, sizeof(dst));
			}
		}
	}
}

static void test_exact(void **state)
{
	exact(soft_copy);
	exact(soft_copy_stream);
}

/* As long as that pages are taken in turns, once and more often. */
static void test_exact_pages(void **state)
{
	enum {
		MOST = 64 << 10
	};
	char *src = test_malloc(MOST), *dst = test_malloc(MOST),
	     *want = test_malloc(MOST);
	struct prng p;
	size_t to, from, len;

	prng_init(&p, 1);
	for (size_t i = 0; i < MOST; i++)
		src[i] = (char)prng_u64(&p);
	for (unsigned i = 0; i < 2000; i++) {
		to = prng_below(&p, 100);
		from = prng_below(&p, 100);
		len = i < 200 ? (12 << 10) + i * 64 - to % 40
			      : prng_below(&p, MOST - 200);
		memset(dst, 0, MOST);
		memset(want, 0, MOST);
		memcpy(want + to, src + from, len);
		soft_copy_stream(dst + to, src + from, len);
		assert_memory_equal(dst, want, MOST);
	}
	test_free(want);
	test_free(dst);
	test_free(src);
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
	void (*copy)(void *dst, const void *src, size_t len);
	size_t len;
	uint64_t laps;
	_Alignas(64) uint64_t word[STREAM / 8];
	_Atomic uint64_t done;
};

static void *writer(void *arg)
{
	static uint64_t src[STREAM / 8];
	struct shared *s = arg;
	uint64_t lap;
	size_t i;

	for (lap = 1; lap <= s->laps; lap++) {
		for (i = 0; i < s->len / 8; i++)
			src[i] = lap;
		s->copy(s->word, src, s->len);
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
	static struct shared s = {soft_copy, .len = BODY, .laps = LAPS};
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

/* In any order, but a thread that sees the tail sees all. Without the fence
 * behind the body it fails in one run of two or three, if two cores are free. */
static void test_stream_tail(void **state)
{
	static struct shared s = {soft_copy_stream, .len = STREAM,
				  .laps = LAPS};
	volatile uint64_t *w = s.word;
	uint64_t lap, late = 0;
	pthread_t t;
	int i;

	pthread_create(&t, NULL, writer, &s);
	for (lap = 1; lap <= LAPS; lap++) {
		spin_for(&w[STREAM / 8 - 1], lap);
		for (i = STREAM / 8 - 2; i >= 0; i--)
			late += w[i] != lap;
		atomic_store(&s.done, lap);
	}
	pthread_join(t, NULL);
	assert_int_equal(late, 0);
}
#endif

#define LARGE (24u << 20)
#define PIECE ((512u << 10) + 40)

/* WRITEs with immediate from the first n bytes of a to b, size bytes in all, each
 * beside the one before it. */
static void write_upwards(struct rig_end *a, struct rig_end *b,
			  const struct mem_region *to, uint64_t size)
{
	struct ibv_wc wc;

	for (uint64_t at = 0; at < size; at += PIECE) {
		uint32_t len =
			size - at < PIECE ? (uint32_t)(size - at) : PIECE;

		assert_int_equal(rig_recv(b, at, NULL, 0), 0);
		assert_int_equal(rig_post(a, IBV_WR_RDMA_WRITE_WITH_IMM, at,
					  a->buf + at % 64, len,
					  (uint64_t)(uintptr_t)to->addr + at,
					  to->mr->rkey, IBV_SEND_SIGNALED),
				 0);
		rig_expect(a, at, IBV_WC_SUCCESS);
		rig_wait(b, &wc);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_memory_equal((char *)to->addr + at, a->buf + at % 64,
				    len);
	}
}

/* Who writes through much memory goes past the caches, who writes to the same
 * place again and again does not. (Harsh mode has copies of its own.) */
static void test_streams(void **state)
{
	struct rig_opts o = {0};
	struct mem_region *to;
	struct rig_end a, b;

	rig_pair(&a, &b, &o);
	assert_int_equal(mem_region_new(b.dev, b.pd, "large", LARGE, RIG_ACCESS,
					2, &to),
			 0);
	for (size_t i = 0; i < RIG_MEM; i++)
		a.buf[i] = (char)(i * 31 + i / 253);
	write_upwards(&a, &b, to, LARGE);
	assert_true(soft_qp_of(a.qp)->harsh ||
		    soft_qp_of(a.qp)->stream_len > LARGE / 2);
	for (int i = 0; i < 24; i++) {
		write_upwards(&a, &b, to, 1u << 20);
		assert_true(soft_qp_of(a.qp)->stream_len <= 1u << 20);
	}
	mem_region_free(to);
	rig_unpair(&a, &b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exact),
		cmocka_unit_test(test_exact_pages),
		cmocka_unit_test(test_tail),
#ifndef __SANITIZE_THREAD__
		cmocka_unit_test(test_ascending),
		cmocka_unit_test(test_stream_tail),
#endif
		cmocka_unit_test(test_streams),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
