/* SPDX-License-Identifier: MIT */
/*
 * polls.h - which connections of an engine a round looks at.
 *
 * Three groups in one array, so that each round walks the first alone:
 *	active		every round polls them
 *	swept		silent: a round looks at one word of a few of them, in
 *			turns
 *	notified	silent: nothing looks at them, for an immediate comes with
 *			whatever comes next
 * A connection that was silent for POLLS_SILENT_NS is asked where it may go
 * (conn_module.rest). What brings it back: the sweep, a receive completion
 * (conn_post.c), or its module (conn_active()).
 *
 * Pure but for memory: no clock. Thread rule: the engine's owner.
 */
#ifndef SKEIN_CONN_POLLS_H
#define SKEIN_CONN_POLLS_H

#include "conn/conn.h"

#define POLLS_SILENT_NS (5 * 1000 * 1000ull)
/* Looks at swept ones in a round: what they cost a round beside one active
 * connection is a tenth of it. */
#define POLLS_SWEEP 4u

/* One for each connection, in its memory. */
struct polls_entry {
	int (*poll)(struct skein_conn *conn, void *state, uint64_t now_ns);
	struct skein_conn *conn;
	void *state;
	const struct conn_module *module;
	uint64_t moved_ns;     /* when poll() last moved something */
	struct conn_word word; /* swept: see conn.h */
	uint32_t at;	       /* index in polls.e + 1; 0: not there */
};

struct polls {
	struct polls_entry **e;
	/* active: [0, active); swept: [active, swept); notified: [swept, n) */
	unsigned active, swept, n, cap;
	unsigned next; /* of the sweep */
};

void polls_fini(struct polls *p, struct skein_env *env);
/* Among the active ones: 0 or -ENOMEM. */
int polls_add(struct polls *p, struct skein_env *env, struct polls_entry *e);
void polls_del(struct polls *p, struct polls_entry *e);
/* Puts it into a group. Others change their places. */
void polls_move(struct polls *p, struct polls_entry *e, enum conn_quiet to);
/* Asks the active ones that are silent where they may go: how many went. */
unsigned polls_rest(struct polls *p, uint64_t now_ns);
/* Looks at the next n swept ones: how many are active now. */
unsigned polls_sweep(struct polls *p, unsigned n, uint64_t now_ns);
/* Is there something in its ring, if it is swept? */
static inline bool polls_has_word(const struct polls_entry *e)
{
	/* Relaxed: poll() looks again, with the order that it needs. */
	return __atomic_load_n(e->word.at, __ATOMIC_RELAXED) == e->word.value;
}

#endif
