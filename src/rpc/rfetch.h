/* SPDX-License-Identifier: MIT */
/*
 * rfetch.h - results that the calling end READs from the server's mirror
 * (RF-RPC, section 3): docs/protocol/rpc.md, "Fetching and recall".
 *
 * The server never writes the reservation of a fetched request, until the
 * caller recalls it. The owner READs from the oldest reservation without an
 * answer on, over the fetched reservations that adjoin it, F bytes at first.
 * One READ is under way at a time, and meanwhile no answer is taken: so no READ
 * covers a reservation that was taken, and none is freed under a READ.
 *
 *	field		written by		read by the other side
 *	tx.fetch_below	the sending side	-
 *	rx.rf		owner			-
 *
 * The owner decides. It holds the sending side when it recalls, or changes how
 * later calls are returned: no call slips in between.
 *
 * Thread rule: the engine's owner, holding the sending side where a comment
 * says so.
 */
#ifndef SKEIN_RPC_RFETCH_H
#define SKEIN_RPC_RFETCH_H

#include "rpc/port.h"
#include "rpc/return_mode.h"

struct rpc_client;

#define RPC_FETCH_LEN_MAX 8192u /* the server sends longer results */
#define RPC_FETCH_F 256u	/* bytes of the first READ */
#define RPC_FETCH_R 5u		/* READs in a row that may find nothing */
#define RPC_FETCH_SLOW 2u	/* messages in a row beyond R: a recall */
#define RPC_FETCH_WAIT_NS 1000u /* initial delay of the first READ */
#define RPC_FETCH_WAIT_MAX_NS 100000u
/* between two READs while a recall waits for room */
#define RPC_FETCH_BLOCKED_MAX_NS 1000000u

struct rpc_rfetch {
	struct rpc_read rd;
	enum {
		RPC_RFETCH_IDLE,
		RPC_RFETCH_POST, /* a READ is to be posted */
		RPC_RFETCH_WAIT, /* it is under way */
		RPC_RFETCH_HERE, /* its bytes are to be looked at */
	} state;
	bool able;    /* both ends can fetch, and the handle is to do so */
	bool wanted;  /* later calls are to be fetched */
	bool on;      /* later calls are fetched */
	bool recall;  /* calls under way are to be recalled */
	bool blocked; /* the ring has no room for the recall; until at_ns */
	bool due;     /* at_ns is valid */
	bool fresh;   /* no answer of the last READ was taken yet */
	bool sums;    /* the server's QP has no ordered_read */
	bool chooses; /* `mode` decides */
	struct return_mode mode;
	int err;
	unsigned tries;	   /* READs in a row that found nothing */
	unsigned slow;	   /* messages in a row that took more than R */
	unsigned messages; /* replies since the program last wanted to sleep */
	uint64_t replied;  /* calls before this number were recalled */
	uint64_t pos;	   /* where the last READ of a message began */
	uint32_t got;	   /* bytes from there that READs have brought */
	uint32_t piece;	   /* bytes of the READ under way */
	uint32_t size;	   /* F, or the last message if that was longer */
	uint64_t at_ns;	   /* no READ before this time */
	uint64_t wait_ns;  /* time that an answer takes, as READs have shown */
};

/* Before any call: results are fetched from now on, or, with `chooses`, as
 * `mode` says. sums: as above. */
void rpc_rfetch_start(struct rpc_client *c, bool sums, bool chooses);

/* In a round that waits for a reply: tries a blocked recall again. */
void rpc_rfetch_round(struct rpc_client *c);
/* Is the reservation of call n, which is not answered yet, fetched? */
bool rpc_rfetch_is(const struct rpc_client *c, uint64_t n);
/* Looks for the message at the oldest reservation, a fetched one, as
 * rpc_msg_poll(). Asks rpc_rfetch_send() for a READ when one is due. sent:
 * calls that were posted. */
int rpc_rfetch_poll(struct rpc_client *c, struct rpc_msg_in *in, uint64_t sent);

/* Has rpc_rfetch_send() work? */
static inline bool rpc_rfetch_wants_send(const struct rpc_rfetch *f)
{
	return f->state == RPC_RFETCH_POST || (f->recall && !f->blocked) ||
	       f->on != f->wanted;
}
/* Holding the sending side: posts the READ or the recall, switches later calls.
 * What moved, or an error. */
int rpc_rfetch_send(struct rpc_client *c);

/* The program wants to sleep. True: nothing is to be fetched, or the blocked
 * recall waits until at_ns. False: a recall begins. */
bool rpc_rfetch_may_sleep(struct rpc_client *c);

/* A message has come, fetched or replied: counts it for the choice. */
void rpc_rfetch_answered(struct rpc_client *c, bool was_fetched);

/* When a round must run for fetching; or ENV_NEVER. */
static inline uint64_t rpc_rfetch_next(const struct rpc_rfetch *f)
{
	return f->able && f->due && f->state == RPC_RFETCH_IDLE ? f->at_ns
								: ENV_NEVER;
}

#endif
