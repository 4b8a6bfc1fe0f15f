/* SPDX-License-Identifier: MIT */
/*
 * kv_history.h - may a read return this? A linearizability check for keys that
 * have one writer each.
 *
 * A key's writes are numbered in the order in which its writer makes them, one
 * at a time. A read must find a version that is not older than what had surely
 * taken effect when the read began: an acknowledged write, or what an earlier
 * read found. That version's write must have begun. The store dies with its
 * process: a new incarnation of the server begins empty and shows no version
 * from before. A write with an unknown outcome may take effect at any time; the
 * writer then leaves the key alone (it is tainted).
 *
 * Pure: no I/O, and no memory of the simulated processes.
 */
#ifndef SKEIN_SIM_KV_HISTORY_H
#define SKEIN_SIM_KV_HISTORY_H

#include "sim/scenario.h"

#include <stddef.h>

#define HIST_KEYS 2048u
#define HIST_VERSIONS 24u /* of a key; then its writer takes another */
#define HIST_VAL_MIN 16u
#define HIST_KEY_LEN 12u

struct hist_version {
	/* the version of the PUT that wrote the rest of the value */
	uint32_t body;
	uint32_t len;
	bool absent; /* it deletes */
	bool never;  /* it took no effect */
};

struct hist_key {
	struct hist_version v[1 + HIST_VERSIONS]; /* 0: nothing is there */
	uint32_t n;				  /* begun */
	uint32_t floor; /* took effect, in this incarnation */
	uint32_t base;	/* those before are gone */
	uint32_t incarnation;
	bool writing, tainted;
};

struct history {
	struct report *rep;
	uint32_t incarnation; /* of the server */
	uint32_t n_keys;
	uint64_t reads, absent, lost_sight; /* reads across incarnations */
	struct hist_key keys[HIST_KEYS];
};

/* What an operation knew when it began. */
struct hist_span {
	uint32_t incarnation;
	uint32_t floor;
};

enum hist_outcome {
	HIST_DONE,    /* took effect */
	HIST_NEVER,   /* took none, and never will */
	HIST_UNKNOWN, /* may have, or may yet */
};

/* Adds a key. Returns its number, or HIST_KEYS when there is no room for
 * more. */
uint32_t hist_key_new(struct history *h);
/* Is it worth writing to it? */
bool hist_writable(struct history *h, uint32_t key);
/* The server's process has been killed. */
void hist_server_died(struct history *h);

/* A PUT begins (body 0), or a DELETE, or an UPDATE of the head of the value
 * that version `body` has put. Returns the version of this write. */
uint32_t hist_write(struct history *h, uint32_t key, uint32_t len,
		    uint32_t body, bool absent, struct hist_span *span);
void hist_write_end(struct history *h, uint32_t key,
		    const struct hist_span *span, enum hist_outcome outcome);

void hist_read(struct history *h, uint32_t key, struct hist_span *span);
/* val NULL: there was nothing. */
void hist_read_end(struct history *h, uint32_t key,
		   const struct hist_span *span, const void *val, size_t len);

/* The bytes of key number i; and the number of a key, HIST_KEYS when it is none
 * of ours. */
void hist_key_bytes(uint32_t key, char bytes[HIST_KEY_LEN + 1]);
uint32_t hist_key_parse(const void *bytes, size_t len);
/* The value of a version: its head, and all of it. */
void hist_head(const struct history *h, uint32_t key, uint32_t version,
	       unsigned char head[HIST_VAL_MIN]);
void hist_value(const struct history *h, uint32_t key, uint32_t version,
		unsigned char *val);

#endif
