/* SPDX-License-Identifier: MIT */
/*
 * turn.c - what an engine's connections may copy in one round; see turn.h.
 */
#include <stddef.h>

#include "base/assert.h"
#include "conn/turn.h"

/* A connection that does not take its turn for so many rounds loses it: it may
 * wait for something else, or be gone. */
#define TURN_ROUNDS 2u

bool conn_turn_take(struct conn_turn *t, const void *conn, uint64_t round_ns,
		    uint32_t len)
{
	skein_assert(len <= CONN_TURN_LEN); /* it would wait for ever */
	if (t->round_ns != round_ns) {
		t->round_ns = round_ns;
		t->left = CONN_TURN_LEN;
		t->had = NULL;
		if (t->next && ++t->rounds > TURN_ROUNDS)
			t->next = NULL;
	}
	if (t->next == conn)
		t->rounds = 0;
	if (len <= t->left && (!t->next || t->next == conn)) {
		t->left -= len;
		t->next = NULL;
		t->had = conn;
		return true;
	}
	if (!t->next && t->had != conn) {
		t->next = conn;
		t->rounds = 0;
	}
	return false;
}
