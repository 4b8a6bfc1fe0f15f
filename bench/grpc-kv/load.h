/* SPDX-License-Identifier: MIT */
/*
 * load.h - YCSB's operations, keys and values for a client in C++: apps/kv has
 * them in C11, with atomics that C++ does not know.
 *
 * Records are YCSB's: 10 fields of 100 bytes, each with a checksum over its key
 * (kv/store/value.h).
 *
 * Thread rule: a load may be used by many threads, a load_client by one.
 */
#ifndef GRPC_KV_LOAD_H
#define GRPC_KV_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LOAD_FIELDS 10u
#define LOAD_FIELD_LEN 100u
#define LOAD_VALUE_LEN (LOAD_FIELDS * LOAD_FIELD_LEN)
#define LOAD_KEY_MAX 24u

enum load_op {
	LOAD_READ,
	LOAD_UPDATE,
	LOAD_INSERT,
	LOAD_SCAN,
	LOAD_RMW
};

/* What a client does next. */
struct load_step {
	enum load_op op;
	uint64_t number; /* of the key */
	char key[LOAD_KEY_MAX];
	size_t key_len;
	uint32_t count; /* SCAN */
	uint32_t field; /* UPDATE, RMW */
};

struct load;
struct load_client;

/* NULL: no workload has this letter, or no memory. */
struct load *load_new(char workload, uint64_t records, uint64_t operations);
void load_free(struct load *l);
/* number tells the clients apart. NULL: no memory. */
struct load_client *load_client_new(struct load *l, unsigned number);
void load_client_free(struct load_client *c);

void load_client_next(struct load_client *c, struct load_step *step);
/* The insertion of a record: of the load phase. */
void load_client_record(uint64_t number, struct load_step *step);
/* The insertion is done: others may read it. False: too many are under way. */
bool load_client_inserted(struct load_client *c, const struct load_step *step);

/* A new value of LOAD_VALUE_LEN for the step's key, or LOAD_FIELD_LEN for its
 * field. */
void load_client_value(struct load_client *c, const struct load_step *step,
		       void *value);
void load_client_field(struct load_client *c, const struct load_step *step,
		       void *field);
/* Is it a value that some client has written for this key? */
bool load_value_ok(const void *key, size_t key_len, const void *value,
		   size_t len);

#ifdef __cplusplus
}
#endif

#endif
