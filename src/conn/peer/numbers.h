/* SPDX-License-Identifier: MIT */
/*
 * numbers.h - the connections of a control link by their numbers.
 *
 * A hash table that grows with its entries, so that a frame finds its connection
 * in the same time among thousands. Without memory it stays as it is: nothing
 * fails, and a look takes longer. An entry is in the memory of its connection.
 *
 * Thread rule: the engine's owner.
 */
#ifndef SKEIN_CONN_PEER_NUMBERS_H
#define SKEIN_CONN_PEER_NUMBERS_H

#include <stdint.h>

struct skein_env;

struct numbers_entry {
	struct numbers_entry *next;
	uint16_t number;
};

struct numbers {
	struct numbers_entry **heads; /* NULL: all entries are in `one` */
	struct numbers_entry *one;
	unsigned n, mask; /* entries; heads - 1 */
};

void numbers_fini(struct numbers *t, struct skein_env *env);
/* e->number is set, and no entry has it. */
void numbers_add(struct numbers *t, struct skein_env *env,
		 struct numbers_entry *e);
/* e is in the table. */
void numbers_del(struct numbers *t, struct numbers_entry *e);
/* NULL: there is none. */
struct numbers_entry *numbers_find(struct numbers *t, uint16_t number);

#endif
