/* SPDX-License-Identifier: MIT */
/*
 * fuzz_calib.c - a calibration's file as it is, and the same text behind a
 * checksum that is right. What is taken makes sense, and is the same when it is
 * encoded again.
 */
#define XXH_INLINE_ALL
#include "base/assert.h"
#include "rpc/client/calib.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#define KEY "soft (skein0), soft.1, 0.1.0"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void rows(const struct rpc_calib *c)
{
	skein_assert(c->n_times >= 1 && c->n_times <= RPC_CALIB_POINTS);
	skein_assert(c->n_reads <= RPC_CALIB_POINTS);
	for (unsigned i = 0; i < c->n_times; i++) {
		skein_assert(c->times[i].replied && c->times[i].fetched);
		skein_assert(!i || c->times[i].ns > c->times[i - 1].ns);
	}
	for (unsigned i = 0; i < c->n_reads; i++) {
		skein_assert(c->reads[i].rate);
		skein_assert(!i || c->reads[i].bytes > c->reads[i - 1].bytes);
	}
	for (uint32_t time = 1; time <= UINT16_MAX; time *= 3)
		rpc_calib_fetch(c, (uint16_t)time);
}

static void decode(const char *text, size_t len)
{
	struct rpc_calib c, d;
	char again[RPC_CALIB_TEXT_MAX];
	const char *why = NULL;
	size_t n;

	if (rpc_calib_decode(text, len, KEY, &c, &why)) {
		skein_assert(why && *why);
		return;
	}
	rows(&c);
	n = rpc_calib_encode(&c, KEY, again, sizeof(again));
	skein_assert(n && !rpc_calib_decode(again, n, KEY, &d, &why));
	skein_assert(!memcmp(&c, &d, sizeof(c)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char text[RPC_CALIB_TEXT_MAX];
	int n;

	decode((const char *)data, size);
	if (size < 32 || size > sizeof(text) - 32)
		return 0;
	/* without its own line of the sum, if it has one */
	memcpy(text, data, size);
	n = (int)size - 21;
	n += snprintf(text + n, sizeof(text) - (size_t)n,
		      "sum %016" PRIx64 "\n", XXH3_64bits(text, (size_t)n));
	decode(text, (size_t)n);
	return 0;
}
