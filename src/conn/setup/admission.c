/* SPDX-License-Identifier: MIT */
/*
 * admission.c - the counters of admission.h.
 *
 * Relaxed throughout: each counter is a limit by itself and orders nothing.
 */
#include "conn/setup/admission.h"

#include "base/assert.h"

static bool take(atomic_uint *n, unsigned max)
{
	unsigned was = atomic_load_explicit(n, memory_order_relaxed);

	do
		if (was >= max)
			return false;
	while (!atomic_compare_exchange_weak_explicit(
		n, &was, was + 1, memory_order_relaxed, memory_order_relaxed));
	return true;
}

static void give(atomic_uint *n)
{
	unsigned was = atomic_fetch_sub_explicit(n, 1, memory_order_relaxed);

	skein_assert(was > 0);
}

void admission_init(struct admission *a, unsigned handshakes_max,
		    unsigned conns_max)
{
	a->handshakes_max = handshakes_max;
	a->conns_max = conns_max;
	atomic_init(&a->handshakes, 0);
	atomic_init(&a->conns, 0);
	atomic_init(&a->crowd, 0);
}

bool admission_enter(struct admission *a, uint32_t *retry_ms)
{
	unsigned crowd, hint;

	if (atomic_load_explicit(&a->conns, memory_order_relaxed) <
		    a->conns_max &&
	    take(&a->handshakes, a->handshakes_max)) {
		atomic_store_explicit(&a->crowd, 0, memory_order_relaxed);
		return true;
	}
	crowd = atomic_fetch_add_explicit(&a->crowd, 1, memory_order_relaxed);
	hint = ADMISSION_HINT_MS * (1 + crowd / (a->handshakes_max + 1));
	*retry_ms = hint < ADMISSION_HINT_MAX_MS ? hint : ADMISSION_HINT_MAX_MS;
	return false;
}

void admission_shaken(struct admission *a)
{
	give(&a->handshakes);
}

bool admission_conn(struct admission *a)
{
	return take(&a->conns, a->conns_max);
}

bool admission_has(const struct admission *a, unsigned n)
{
	unsigned used = atomic_load_explicit(&a->conns, memory_order_relaxed);

	return used <= a->conns_max && n <= a->conns_max - used;
}

void admission_conn_gone(struct admission *a)
{
	give(&a->conns);
}
