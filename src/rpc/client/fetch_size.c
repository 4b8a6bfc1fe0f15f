/* SPDX-License-Identifier: MIT */
/*
 * fetch_size.c - see fetch_size.h.
 *
 * F is L, or the length of a message. An F between two lengths leaves as many
 * second READs as the shorter of them. Where bandwidth limits it may even take
 * the NIC as little time as the longer one; but callers wait for a second READ.
 */
#include "rpc/client/fetch_size.h"

#include <string.h>

#include "rpc/client/calib.h"
#include "rpc/wire/layout.h"

#define SPARES 0.95f /* times what READs take now */

void fetch_costs_init(struct fetch_costs *t, const struct rpc_calib *calib)
{
	uint32_t most;

	rpc_calib_range(calib, &t->least, &most);
	t->least = RPC_LINES(t->least);
	if (t->least > FETCH_SIZE_LINES)
		t->least = FETCH_SIZE_LINES;
	for (uint32_t n = 0; n <= FETCH_SIZE_LINES; n++)
		t->ns[n] = (float)rpc_calib_read_ns(calib, n * RPC_LINE);
}

/* What all READs take with F of so many lines. */
static float cost(const struct fetch_costs *t, const uint16_t count[],
		  const uint8_t seen[], unsigned n, uint32_t f)
{
	float sum = 0;

	for (unsigned i = 0; i < n; i++) {
		sum += count[seen[i]] * t->ns[f];
		if (seen[i] > f)
			sum += count[seen[i]] * t->ns[seen[i] - f];
	}
	return sum;
}

uint32_t fetch_size_best(const struct fetch_costs *t,
			 const uint16_t count[FETCH_SIZE_LINES + 1],
			 uint32_t now)
{
	uint8_t seen[FETCH_SIZE_LINES];
	uint32_t best = t->least;
	float least, is;
	unsigned n = 0;

	for (uint32_t i = 1; i <= FETCH_SIZE_LINES; i++)
		if (count[i])
			seen[n++] = (uint8_t)i;
	least = cost(t, count, seen, n, best);
	for (unsigned i = 0; i < n; i++) {
		if (seen[i] <= t->least)
			continue;
		is = cost(t, count, seen, n, seen[i]);
		if (is >= least)
			continue;
		least = is;
		best = seen[i];
	}
	is = cost(t, count, seen, n, now / RPC_LINE);
	return least < SPARES * is ? best * RPC_LINE : now;
}

void fetch_size_init(struct fetch_size *f, uint32_t len)
{
	memset(f, 0, sizeof(*f));
	f->len = len;
}

bool fetch_size_add(struct fetch_size *f, const struct fetch_costs *t,
		    uint32_t len)
{
	uint8_t *at = &f->last[f->n % FETCH_SIZE_SAMPLES];
	uint32_t lines = RPC_LINES(len), was = f->len;

	if (f->n >= FETCH_SIZE_SAMPLES)
		f->count[*at]--;
	*at = (uint8_t)(lines < FETCH_SIZE_LINES ? lines : FETCH_SIZE_LINES);
	f->count[*at]++;
	if (++f->n % FETCH_SIZE_EVERY == 0)
		f->len = fetch_size_best(t, f->count, was);
	return f->len != was;
}
