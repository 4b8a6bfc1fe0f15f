/* SPDX-License-Identifier: MIT */
/*
 * workload.h - YCSB's core workloads (Cooper et al., SoCC 2010): which
 * operation comes next, on which key. Parameters and defaults are those of
 * YCSB's CoreWorkload, but operationcount is 100,000, and an update of one field
 * is an UPDATE of its bytes.
 *
 * Key number i becomes the key "user" and the decimal FNV-1a hash of i
 * (insertorder=hashed). Popularity is scrambled zipfian: a zipfian number out
 * of 10^10, hashed onto the records, as YCSB does it, with room for twice the
 * expected inserts; so the most popular keys are spread over the key space.
 * Numbers that are not there yet are drawn again.
 *
 * Thread rule: ycsb_keys may be used by many threads; a ycsb_gen by one.
 */
#ifndef KV_YCSB_WORKLOAD_H
#define KV_YCSB_WORKLOAD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/prng.h"
#include "kv/ycsb/zipf.h"

enum ycsb_op {
	YCSB_READ,
	YCSB_UPDATE,
	YCSB_INSERT,
	YCSB_SCAN,
	YCSB_RMW, /* read, then update */
	YCSB_OPS,
};

enum ycsb_dist {
	YCSB_BY_WORKLOAD,
	YCSB_ZIPFIAN,
	YCSB_UNIFORM,
	YCSB_LATEST,
};

struct ycsb_mix {
	char name;
	const char *what;
	double part[YCSB_OPS]; /* sums to 1 */
	enum ycsb_dist dist;
};

/* The workload of this letter, or NULL. */
const struct ycsb_mix *ycsb_mix_find(char name);
const char *ycsb_op_name(enum ycsb_op op);

struct ycsb_params {
	uint64_t records;    /* recordcount */
	uint64_t operations; /* operationcount: sizes E's key space */
	uint32_t field_count;
	uint32_t field_len;
	uint32_t scan_max;   /* maxscanlength; lengths are uniform from 1 */
	enum ycsb_dist dist; /* YCSB_BY_WORKLOAD: the workload's own */
	uint64_t seed;
	bool write_all; /* writeallfields */
	bool cache;	/* keys of 16 bytes; a missing record is a miss */
};

#define YCSB_ACK_WINDOW 65536u

/* Which keys exist: numbers below `known` surely do. */
struct ycsb_keys {
	_Atomic uint64_t known;
	_Atomic uint64_t next;
	pthread_mutex_t lock; /* of acked */
	uint8_t acked[YCSB_ACK_WINDOW];
};

void ycsb_keys_init(struct ycsb_keys *k, uint64_t known);
void ycsb_keys_fini(struct ycsb_keys *k);
/* A number to insert. */
uint64_t ycsb_keys_take(struct ycsb_keys *k);
/* It was inserted. At most YCSB_ACK_WINDOW may be under way: -EOVERFLOW. */
int ycsb_keys_ack(struct ycsb_keys *k, uint64_t number);
/* It will never be (the run failed or ended): the lowest number taken is the
 * next again. No insert may be under way. */
void ycsb_keys_settle(struct ycsb_keys *k);

struct ycsb_gen {
	const struct ycsb_mix *mix;
	const struct ycsb_params *params;
	struct ycsb_keys *keys;
	enum ycsb_dist dist;
	uint64_t space; /* numbers that the scramble chooses among */
	struct prng rng;
	struct kv_zipf zipf;
};

struct ycsb_request {
	enum ycsb_op op;
	uint64_t number; /* INSERT: the caller takes one when it starts */
	uint32_t count;	 /* SCAN */
	uint32_t field;	 /* UPDATE, RMW */
};

/* stream tells the threads of one run apart. */
void ycsb_gen_init(struct ycsb_gen *g, const struct ycsb_mix *mix,
		   const struct ycsb_params *params, struct ycsb_keys *keys,
		   uint64_t stream);
void ycsb_gen_next(struct ycsb_gen *g, struct ycsb_request *req);

#define YCSB_KEY_MAX 24
#define YCSB_CACHE_KEY 16u
/* The key of a number; returns its length. With cache: the same hash in 16
 * hexadecimal digits. */
size_t ycsb_key(bool cache, uint64_t number, char key[YCSB_KEY_MAX]);
uint64_t ycsb_fnv(uint64_t number);

#endif
