/* SPDX-License-Identifier: MIT */
/*
 * mud.h - the reference model of UD QPs. Datagrams have no order and nobody
 * answers, so nothing is searched: each completion must have its reason, and
 * what must arrive must have arrived.
 */
#ifndef SKEIN_TESTS_CONFORM_MUD_H
#define SKEIN_TESTS_CONFORM_MUD_H

#include "model.h"

#define MUD_SENT 512
#define MUD_RECVS 64
#define MUD_SLOTS 256

struct mud_sent {
	struct dgram d;
	const struct wr *w;
	uint8_t pair, side;
	bool gone; /* it has arrived */
};

struct mud_recv {
	uint64_t id;
	const struct wr *w; /* NULL: a marker */
	bool old;	    /* from before a RESET */
};

struct mud_side {
	enum ibv_qp_state state; /* as the owner asked for */
	bool failed;		 /* a send failed: SQE */
	bool broken;		 /* a receive failed: ERR */
	int lives;
	uint32_t posted[2], freed[2];
	uint64_t sq_id[MUD_SLOTS];
	int n;
	struct mud_recv rq[MUD_RECVS];
};

struct mud {
	const struct program *p;
	unsigned quirks;
	granted_all granted;
	const struct mud *was; /* at the start of the epoch */
	struct mud_side s[PAIRS][2];
	int n_sent;
	struct mud_sent sent[MUD_SENT];
	bool sol[2][CQS];
	char *why;
	size_t why_len;
};

void mud_init(struct mud *u, const struct program *p, granted_all granted,
	      unsigned quirks);
/* Is the epoch allowed? Moves u to its end; else u is spoilt, and why says so. */
bool mud_epoch(struct mud *u, const struct epoch *e, char *why, size_t len);

#endif
