/* SPDX-License-Identifier: MIT */
/*
 * polls.h - which connections of an engine a round looks at.
 *
 * Three groups in one array, of which each round walks the first:
 *	active		every round polls them
 *	swept		silent: a round looks at one word of a few of them, in
 *			turns
 *	notified	silent: no round looks at them; the next message comes
 *			with an immediate
 * After POLLS_SILENT_NS without news the module of a connection says which
 * group it may go to (conn_module.rest). The sweep, a receive completion
 * (post.c) or the module (conn_active()) makes it active again.
 *
 * Pure, except that it allocates: no clock. Thread rule: the engine's owner.
 */
#ifndef SKEIN_CONN_POLLS_H
#define SKEIN_CONN_POLLS_H

#include "conn/conn.h"

#define POLLS_SILENT_NS (5 * 1000 * 1000ull)
/* Looks at swept connections in one round: they add a tenth to a round with one
 * active connection. */
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
	/* An entry is about to leave the active group. May be NULL. */
	void (*left)(struct polls_entry *e);
};

void polls_fini(struct polls *p, struct skein_env *env);
/* Adds e to the active group: 0 or -ENOMEM. */
int polls_add(struct polls *p, struct skein_env *env, struct polls_entry *e);
void polls_del(struct polls *p, struct polls_entry *e);
/* Moves e to a group. Other entries change their places. */
void polls_move(struct polls *p, struct polls_entry *e, enum conn_quiet to);
/* Asks the modules of active connections that are silent: how many have left
 * the active group. */
unsigned polls_rest(struct polls *p, uint64_t now_ns);
/* Looks at the next n swept connections: how many became active. */
unsigned polls_sweep(struct polls *p, unsigned n, uint64_t now_ns);
/* Has a swept connection's word the value that means news? */
static inline bool polls_has_word(const struct polls_entry *e)
{
	/* Relaxed: poll() looks again, with the order that it needs. */
	return __atomic_load_n(e->word.at, __ATOMIC_RELAXED) == e->word.value;
}

#endif
