/* SPDX-License-Identifier: MIT */
/*
 * fuzz_race.c - a RACE client beside a table of any bytes: all that
 * it asks for lies in the table, and each call comes to an end.
 */
#include "base/assert.h"
#include "race/race.h"

#include <errno.h>
#include <string.h>

#define LEN 8192u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static _Alignas(64) uint8_t mem[LEN], scratch[RACE_SCRATCH];
static struct race client;

static int run(void *arg, const struct race_req *reqs, unsigned n)
{
	unsigned *left = arg;
	uint64_t was;

	skein_assert(n <= RACE_LIST);
	if (!*left)
		return -ETIMEDOUT;
	--*left;
	for (unsigned i = 0; i < n; i++) {
		const struct race_req *q = &reqs[i];

		skein_assert(q->at < LEN && q->len <= LEN - q->at);
		if (q->verb == RACE_READ) {
			memcpy(q->buf, mem + q->at, q->len);
		} else if (q->verb == RACE_WRITE) {
			memcpy(mem + q->at, q->buf, q->len);
		} else {
			memcpy(&was, mem + q->at, 8);
			if (q->verb == RACE_FAA)
				memcpy(mem + q->at, &(uint64_t){was + q->value},
				       8);
			else if (was == q->compare)
				memcpy(mem + q->at, &q->value, 8);
			memcpy(q->buf, &was, 8);
		}
	}
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	unsigned left = 2000;
	struct race_port port = {run, &left, scratch};
	struct race_head h;
	char val[64];
	size_t len;

	if (!race_head_parse(data, size, &h))
		skein_assert(h.dir_bits <= RACE_DIR_BITS_MAX);
	memset(mem, 0, LEN);
	skein_assert(!race_format(mem, LEN, 2, 2));
	if (size > LEN - RACE_LINE)
		size = LEN - RACE_LINE;
	for (size_t i = 0; i < size; i++)
		mem[RACE_LINE + i] ^= data[i];
	if (race_open(&client, &port))
		return 0;
	for (unsigned k = 0; k < 16; k++) {
		len = sizeof(val);
		(void)race_insert(&client, &k, sizeof(k), &k, sizeof(k));
		(void)race_get(&client, &k, sizeof(k), val, &len);
		(void)race_update(&client, &k, sizeof(k), "new", 3);
		(void)race_delete(&client, &k, sizeof(k));
	}
	return 0;
}
