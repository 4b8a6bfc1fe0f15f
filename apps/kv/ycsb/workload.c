/* SPDX-License-Identifier: MIT */
/*
 * workload.c - the core workloads; see workload.h.
 */
#include "kv/ycsb/workload.h"

#include "base/assert.h"

#include <errno.h>
#include <string.h>

/* YCSB's ScrambledZipfianGenerator: this many numbers, and their zeta */
#define SCRAMBLE_ITEMS 10000000000ull
#define SCRAMBLE_ZETAN 26.46902820178302

static const struct ycsb_mix mixes[] = {
	{'a',
	 "update heavy: 50% read, 50% update",
	 {[YCSB_READ] = 0.5, [YCSB_UPDATE] = 0.5},
	 YCSB_ZIPFIAN},
	{'b',
	 "read mostly: 95% read, 5% update",
	 {[YCSB_READ] = 0.95, [YCSB_UPDATE] = 0.05},
	 YCSB_ZIPFIAN},
	{'c', "read only", {[YCSB_READ] = 1}, YCSB_ZIPFIAN},
	{'d',
	 "read latest: 95% read, 5% insert",
	 {[YCSB_READ] = 0.95, [YCSB_INSERT] = 0.05},
	 YCSB_LATEST},
	{'e',
	 "short ranges: 95% scan, 5% insert",
	 {[YCSB_SCAN] = 0.95, [YCSB_INSERT] = 0.05},
	 YCSB_ZIPFIAN},
	{'f',
	 "read-modify-write: 50% read, 50% read and update",
	 {[YCSB_READ] = 0.5, [YCSB_RMW] = 0.5},
	 YCSB_ZIPFIAN},
};

const struct ycsb_mix *ycsb_mix_find(char name)
{
	for (size_t i = 0; i < sizeof(mixes) / sizeof(mixes[0]); i++)
		if (mixes[i].name == (name | 0x20))
			return &mixes[i];
	return NULL;
}

const char *ycsb_op_name(enum ycsb_op op)
{
	static const char *const names[YCSB_OPS] = {
		"read", "update", "insert", "scan", "read-modify-write",
	};

	skein_assert(op < YCSB_OPS);
	return names[op];
}

void ycsb_keys_init(struct ycsb_keys *k, uint64_t known)
{
	atomic_init(&k->known, known);
	atomic_init(&k->next, known);
	pthread_mutex_init(&k->lock, NULL);
	memset(k->acked, 0, sizeof(k->acked));
}

void ycsb_keys_fini(struct ycsb_keys *k)
{
	pthread_mutex_destroy(&k->lock);
}

uint64_t ycsb_keys_take(struct ycsb_keys *k)
{
	/* relaxed: only the number counts, nothing is published by it */
	return atomic_fetch_add_explicit(&k->next, 1, memory_order_relaxed);
}

int ycsb_keys_ack(struct ycsb_keys *k, uint64_t number)
{
	uint64_t known;
	int rc = 0;

	pthread_mutex_lock(&k->lock);
	known = atomic_load_explicit(&k->known, memory_order_relaxed);
	if (number - known >= YCSB_ACK_WINDOW) {
		rc = -EOVERFLOW;
		goto out;
	}
	k->acked[number % YCSB_ACK_WINDOW] = 1;
	for (; k->acked[known % YCSB_ACK_WINDOW]; known++)
		k->acked[known % YCSB_ACK_WINDOW] = 0;
	/* relaxed: the record lives in the server, which has answered */
	atomic_store_explicit(&k->known, known, memory_order_relaxed);
out:
	pthread_mutex_unlock(&k->lock);
	return rc;
}

void ycsb_keys_settle(struct ycsb_keys *k)
{
	pthread_mutex_lock(&k->lock);
	atomic_store(&k->next, atomic_load(&k->known));
	memset(k->acked, 0, sizeof(k->acked));
	pthread_mutex_unlock(&k->lock);
}

uint64_t ycsb_fnv(uint64_t number)
{
	uint64_t h = 0xcbf29ce484222325ull;

	for (int i = 0; i < 8; i++) {
		h ^= number & 0xff;
		h *= 1099511628211ull;
		number >>= 8;
	}
	/* YCSB takes the absolute value of a signed hash */
	return h >> 63 ? 0 - h : h;
}

size_t ycsb_key(bool cache, uint64_t number, char key[YCSB_KEY_MAX])
{
	uint64_t h = ycsb_fnv(number);
	char digits[20];
	size_t n = 0;

	if (cache) {
		for (; n < YCSB_CACHE_KEY; n++, h >>= 4)
			key[YCSB_CACHE_KEY - 1 - n] =
				"0123456789abcdef"[h & 15];
		return n;
	}
	do
		digits[n++] = (char)('0' + h % 10);
	while (h /= 10);
	memcpy(key, "user", 4);
	for (size_t i = 0; i < n; i++)
		key[4 + i] = digits[n - 1 - i];
	return 4 + n;
}

void ycsb_gen_init(struct ycsb_gen *g, const struct ycsb_mix *mix,
		   const struct ycsb_params *params, struct ycsb_keys *keys,
		   uint64_t stream)
{
	double inserts = 2 * mix->part[YCSB_INSERT];

	memset(g, 0, sizeof(*g));
	g->mix = mix;
	g->params = params;
	g->keys = keys;
	g->dist = params->dist ? params->dist : mix->dist;
	/* Room for what will be inserted, so that an insert does not change
	 * which of the other keys are popular. */
	g->space = params->records +
		   (uint64_t)(inserts * (double)params->operations);
	prng_init(&g->rng, params->seed ^ stream * 0x9e3779b97f4a7c15ull);
	if (g->dist == YCSB_LATEST)
		kv_zipf_init(&g->zipf, atomic_load(&keys->known), KV_ZIPF_THETA,
			     0, NULL, NULL);
	else
		kv_zipf_init(&g->zipf, SCRAMBLE_ITEMS, KV_ZIPF_THETA,
			     SCRAMBLE_ZETAN, NULL, NULL);
}

static uint64_t choose(struct ycsb_gen *g, uint64_t known)
{
	uint64_t i;

	switch (g->dist) {
	case YCSB_UNIFORM:
		return prng_below(&g->rng, known);
	case YCSB_LATEST:
		kv_zipf_grow(&g->zipf, known);
		i = kv_zipf_next(&g->zipf, &g->rng);
		/* the sum may cover more than this thread knows of */
		return i < known ? known - 1 - i : 0;
	case YCSB_ZIPFIAN:
	case YCSB_BY_WORKLOAD:
		break;
	}
	/* The space holds numbers of records that are still to be inserted:
	 * draw again until the record is there. */
	do
		i = ycsb_fnv(kv_zipf_next(&g->zipf, &g->rng)) % g->space;
	while (i >= known);
	return i;
}

static enum ycsb_op choose_op(struct ycsb_gen *g)
{
	double u = prng_double(&g->rng);
	enum ycsb_op op, last = YCSB_READ;

	for (op = YCSB_READ; op < YCSB_OPS; op++) {
		if (g->mix->part[op] <= 0)
			continue;
		last = op;
		if (u < g->mix->part[op])
			return op;
		u -= g->mix->part[op];
	}
	return last; /* rounding */
}

void ycsb_gen_next(struct ycsb_gen *g, struct ycsb_request *req)
{
	const struct ycsb_params *p = g->params;

	*req = (struct ycsb_request){.op = choose_op(g)};
	if (req->op == YCSB_INSERT)
		return;
	/* relaxed: see ycsb_keys_ack() */
	req->number = choose(g, atomic_load_explicit(&g->keys->known,
						     memory_order_relaxed));
	if (req->op == YCSB_SCAN)
		req->count = 1 + (uint32_t)prng_below(&g->rng, p->scan_max);
	if (req->op == YCSB_UPDATE || req->op == YCSB_RMW)
		req->field = (uint32_t)prng_below(&g->rng, p->field_count);
}
