/* SPDX-License-Identifier: MIT */
/*
 * rfetch.h - results that the calling end READs from the server's mirror
 * (RF-RPC, section 3): docs/protocol/rpc.md, "Fetching and recall".
 *
 * A reservation made by a fetched request is never written by the server, until
 * it is recalled. The owner READs from the oldest reservation without an answer
 * on, over those fetched ones that adjoin, F bytes at first. One READ is under
 * way at a time, and nothing is taken meanwhile: so none goes over a
 * reservation that was taken, and none is free under a READ.
 *
 *	field		written by		read by the other side
 *	tx.fetch_below	who holds or leads	-
 *	rx.rf		owner			-
 *
 * The owner decides, and holds the sending side when it changes what later
 * calls do, or recalls: no call slips in between.
 *
 * Thread rule: the engine's owner; what says so, holding the sending side.
 */
#ifndef SKEIN_RPC_RFETCH_H
#define SKEIN_RPC_RFETCH_H

#include "rpc/port.h"
#include "rpc/return_mode.h"

struct rpc_client;

#define RPC_FETCH_LEN_MAX 8192u /* longer results are replied */
#define RPC_FETCH_F 256u	/* bytes of the first READ */
#define RPC_FETCH_R 5u		/* READs that may find nothing */
#define RPC_FETCH_SLOW 2u	/* messages in a row beyond R: a recall */
#define RPC_FETCH_WAIT_NS 1000u /* before the first READ, to begin with */
#define RPC_FETCH_WAIT_MAX_NS 100000u
/* between two READs while a recall waits for room */
#define RPC_FETCH_BLOCKED_MAX_NS 1000000u

struct rpc_rfetch {
	struct rpc_read rd;
	enum {
		RPC_RFETCH_IDLE,
		RPC_RFETCH_POST, /* a READ is to be posted */
		RPC_RFETCH_WAIT, /* it is under way */
		RPC_RFETCH_HERE, /* what it brought is looked at */
	} state;
	bool able;    /* both ends can, and the handle is asked to */
	bool wanted;  /* later calls shall be fetched */
	bool on;      /* they are */
	bool recall;  /* those under way shall be recalled */
	bool blocked; /* ... but the ring is full; until at_ns */
	bool due;     /* at_ns is set */
	bool fresh;   /* nothing was taken of the last READ yet */
	bool sums;    /* the server's QP has no ordered_read */
	bool chooses; /* by mode */
	struct return_mode mode;
	int err;
	unsigned tries;	   /* READs in a row that found nothing */
	unsigned slow;	   /* messages in a row that took more than R */
	unsigned messages; /* replied since the program wanted to sleep */
	uint64_t replied;  /* calls before this number were recalled */
	uint64_t pos;	   /* where the last READ of a message began */
	uint32_t got;	   /* bytes from there that READs have brought */
	uint32_t piece;	   /* bytes of the one under way */
	uint32_t size;	   /* F, or the last message if that was longer */
	uint64_t at_ns;	   /* no READ before */
	uint64_t wait_ns;  /* what an answer takes, as READs have shown */
};

/* Before any call: fetch from now on, or choose. sums: as above. */
void rpc_rfetch_start(struct rpc_client *c, bool sums, bool chooses);

/* A round that waits for a reply. */
void rpc_rfetch_round(struct rpc_client *c);
/* Is call n, which is not answered yet, one whose reservation is fetched? */
bool rpc_rfetch_is(const struct rpc_client *c, uint64_t n);
/* Looks for the message at the oldest reservation, which is a fetched one, as
 * rpc_msg_poll(); posts a READ, or leaves that to send(). sent: calls. */
int rpc_rfetch_poll(struct rpc_client *c, struct rpc_msg_in *in, uint64_t sent);

/* Is there something for rpc_rfetch_send()? */
static inline bool rpc_rfetch_wants_send(const struct rpc_rfetch *f)
{
	return f->state == RPC_RFETCH_POST || (f->recall && !f->blocked) ||
	       f->on != f->wanted;
}
/* Holding: posts the READ, the recall; switches. What moved, or an error. */
int rpc_rfetch_send(struct rpc_client *c);

/* The program wants to sleep: true when nothing has to be fetched, nor will be.
 * False: it is being recalled. */
bool rpc_rfetch_may_sleep(struct rpc_client *c);

/* A message is here, which was fetched or replied. */
void rpc_rfetch_answered(struct rpc_client *c, bool was_fetched);

/* When a round must run for it; ENV_NEVER. */
static inline uint64_t rpc_rfetch_next(const struct rpc_rfetch *f)
{
	return f->able && f->due && f->state == RPC_RFETCH_IDLE ? f->at_ns
								: ENV_NEVER;
}

#endif
