/* SPDX-License-Identifier: MIT */
/* load.c - YCSB's operations for a client in C++; see load.h. */
#include "load.h"

#include "kv/store/hash.h"
#include "kv/store/value.h"
#include "kv/ycsb/workload.h"

#include <stdlib.h>

#define SEED 16u

struct load {
	const struct ycsb_mix *mix;
	struct ycsb_params params;
	struct ycsb_keys keys;
};

struct load_client {
	struct load *load;
	struct ycsb_gen gen;
	struct prng rng;
};

_Static_assert(LOAD_KEY_MAX == YCSB_KEY_MAX, "one key");

struct load *load_new(char workload, uint64_t records, uint64_t operations)
{
	const struct ycsb_mix *mix = ycsb_mix_find(workload);
	struct load *l = mix && records ? calloc(1, sizeof(*l)) : NULL;

	if (!l)
		return NULL;
	l->mix = mix;
	l->params = (struct ycsb_params){
		.records = records,
		.operations = operations,
		.field_count = LOAD_FIELDS,
		.field_len = LOAD_FIELD_LEN,
		.scan_max = 100,
		.seed = SEED,
	};
	ycsb_keys_init(&l->keys, records);
	return l;
}

void load_free(struct load *l)
{
	ycsb_keys_fini(&l->keys);
	free(l);
}

struct load_client *load_client_new(struct load *l, unsigned number)
{
	struct load_client *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->load = l;
	ycsb_gen_init(&c->gen, l->mix, &l->params, &l->keys, number);
	prng_init(&c->rng, SEED + number);
	return c;
}

void load_client_free(struct load_client *c)
{
	free(c);
}

static void set_key(struct load_step *step)
{
	step->key_len = ycsb_key(false, step->number, step->key);
}

void load_client_next(struct load_client *c, struct load_step *step)
{
	static const enum load_op ops[YCSB_OPS] = {
		[YCSB_READ] = LOAD_READ,     [YCSB_UPDATE] = LOAD_UPDATE,
		[YCSB_INSERT] = LOAD_INSERT, [YCSB_SCAN] = LOAD_SCAN,
		[YCSB_RMW] = LOAD_RMW,
	};
	struct ycsb_request req;

	ycsb_gen_next(&c->gen, &req);
	*step = (struct load_step){.op = ops[req.op],
				   .number = req.number,
				   .count = req.count,
				   .field = req.field};
	if (step->op == LOAD_INSERT)
		step->number = ycsb_keys_take(&c->load->keys);
	set_key(step);
}

void load_client_record(uint64_t number, struct load_step *step)
{
	*step = (struct load_step){.op = LOAD_INSERT, .number = number};
	set_key(step);
}

bool load_client_inserted(struct load_client *c, const struct load_step *step)
{
	return !ycsb_keys_ack(&c->load->keys, step->number);
}

void load_client_value(struct load_client *c, const struct load_step *step,
		       void *value)
{
	kv_value_fill(value, LOAD_FIELDS, LOAD_FIELD_LEN,
		      kv_hash(step->key, step->key_len), &c->rng);
}

void load_client_field(struct load_client *c, const struct load_step *step,
		       void *field)
{
	kv_field_fill(field, LOAD_FIELD_LEN, kv_hash(step->key, step->key_len),
		      step->field, &c->rng);
}

bool load_value_ok(const void *key, size_t key_len, const void *value,
		   size_t len)
{
	return kv_value_ok(value, len, LOAD_FIELDS, LOAD_FIELD_LEN,
			   kv_hash(key, key_len));
}
