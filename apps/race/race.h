/* SPDX-License-Identifier: MIT */
/*
 * race.h - a client of a RACE table: get, insert, update, delete by one-sided
 * operations alone. The storage runs no code.
 *
 * How it stays right:
 * - A record is whole in memory before an 8-byte CAS links it, and records are
 *   never freed: a slot's word names one record for ever, so a CAS of it cannot
 *   be fooled.
 * - An insert links its record as pending, reads both buckets again, and commits
 *   it by a second CAS. Of two inserts of a key the later one sees the other,
 *   and aborts it if it is pending still. So a client that dies leaves nothing
 *   that others wait for.
 * - A split first marks each bucket with its new depth, then freezes each record
 *   and moves it to the same slot of the new subtable, which was empty and which
 *   nobody uses yet. A client that finds another mark than its key's finishes
 *   the split: each step can be done by any client, and twice. A slot is never
 *   empty again, so a late step finds that it is late.
 *
 * Thread rule: one thread a client; any number of clients, in any process.
 */
#ifndef SKEIN_RACE_RACE_H
#define SKEIN_RACE_RACE_H

#include "race/layout.h"

#define RACE_LIST 16u /* requests of one list at most */

enum race_verb {
	RACE_READ,
	RACE_WRITE,
	RACE_CAS, /* 8 bytes: what was there, into buf */
	RACE_FAA,
};

struct race_req {
	enum race_verb verb;
	uint64_t at; /* offset in the table */
	void *buf;   /* in the port's memory */
	uint32_t len;
	uint64_t compare, value; /* value: also what FAA adds */
};

struct race_port {
	/* Carries out a list in order, and waits for all of it. 0 or a negative
	 * errno: then each of them may have been carried out. */
	int (*run)(void *arg, const struct race_req *reqs, unsigned n);
	void *arg;
	/* RACE_SCRATCH bytes that run() may read to and write from */
	uint8_t *scratch;
};

#define RACE_SCRATCH 98304u

/* Mistakes that a test asks for. Only in objects built with RACE_PLANT. */
enum race_plant {
	RACE_PLANT_EARLY = 1 << 0,  /* the record is written after the CAS */
	RACE_PLANT_MARK = 1 << 1,   /* a split marks buckets last */
	RACE_PLANT_AGAIN = 1 << 2,  /* an insert does not read again */
	RACE_PLANT_HEADS = 1 << 3,  /* marks are looked at once */
	RACE_PLANT_OPEN = 1 << 4,   /* the new subtable is open at once */
	RACE_PLANT_FREEZE = 1 << 5, /* a record is moved unfrozen */
	RACE_PLANT_NO_HELP = 1 << 6 /* a split is left to its client */
};

struct race_stats {
	uint64_t lists, reads, retries, splits, helped;
};

struct race {
	struct race_port port;
	struct race_head head;
	uint64_t dir[1u << RACE_DIR_BITS_MAX];
	uint64_t chunk_at, chunk_end; /* of the heap, this client's */
	struct race_stats stats;
	unsigned plant;
};

/* Reads head and directory. -EBADMSG: they do not parse. */
int race_open(struct race *r, const struct race_port *port);
/* val: room for *val_len bytes; *val_len: how long it is. -ENOENT, -EMSGSIZE;
 * -EBADMSG: the table is broken. */
int race_get(struct race *r, const void *key, size_t key_len, void *val,
	     size_t *val_len);
/* -EEXIST, -EMSGSIZE; -ENOSPC: the heap or the directory is used up. */
int race_insert(struct race *r, const void *key, size_t key_len,
		const void *val, size_t val_len);
/* -ENOENT, -EMSGSIZE, -ENOSPC. */
int race_update(struct race *r, const void *key, size_t key_len,
		const void *val, size_t val_len);
/* -ENOENT. */
int race_delete(struct race *r, const void *key, size_t key_len);

#endif
