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
 * READs land at rpc_geom_landing(), not in the response space.
 *
 *	field		written by		read by the other side
 *	tx.fetch_ids	the sending side	-
 *	rx.rf		owner			-
 *
 * The owner decides. It holds the sending side when it recalls, or changes how
 * later calls are returned: no call slips in between.
 *
 * Thread rule: the engine's owner, holding the sending side where a comment
 * says so.
 */
#ifndef SKEIN_RPC_CLIENT_RFETCH_H
#define SKEIN_RPC_CLIENT_RFETCH_H

#include "rpc/port.h"
#include "rpc/client/fetch_size.h"
#include "rpc/client/return_mode.h"

struct rpc_client;
struct rpc_calib;

#define RPC_FETCH_LEN_MAX 8192u /* the server sends longer results */
#define RPC_FETCH_F 256u	/* bytes of the first READ, unless chosen */
#define RPC_FETCH_R 5u		/* READs in a row that may find nothing */
#define RPC_FETCH_SLOW 2u	/* messages in a row beyond R: a recall */
#define RPC_TIME_ASKS 16u	/* one call of so many asks for the time */
#define RPC_FETCH_WAIT_NS 1000u /* initial delay of the first READ */
#define RPC_FETCH_WAIT_MAX_NS 100000u
/* between two READs while a recall waits for room */
#define RPC_FETCH_BLOCKED_MAX_NS 1000000u

/* Ids that agree in the low bits have one mode. */
#define RPC_MODES 16u
#define RPC_MODE_OF(id) ((id) % RPC_MODES)
#define RPC_MODE_BIT(id) (UINT32_C(1) << RPC_MODE_OF(id))
#define RPC_MODE_ALL (RPC_MODE_BIT(RPC_MODES - 1) * 2 - 1)

/* F of a lane on a device with a calibration, by id. */
struct rpc_fetch_sizes {
	struct fetch_costs times;
	struct fetch_size of[RPC_MODES];
};

/* What a lane chooses by id. */
struct rpc_modes {
	bool decide; /* fetched or replied; else all is fetched */
	struct return_mode mode[RPC_MODES];
	uint32_t fetch; /* bits of the modes that want to fetch */
	const struct rpc_calib *calib; /* of the device; NULL: unknown */
	struct rpc_fetch_sizes *sizes; /* NULL: RPC_FETCH_F */
	/* of each call in the window; the sending side's, as the slots are */
	uint8_t of[];
};

struct rpc_rfetch {
	struct rpc_read rd;
	enum {
		RPC_RFETCH_IDLE,
		RPC_RFETCH_POST, /* a READ is to be posted */
		RPC_RFETCH_WAIT, /* it is under way */
		RPC_RFETCH_HERE, /* its bytes are to be looked at */
	} state;
	bool able;	 /* both ends can fetch, and the handle is to do so */
	uint32_t wanted; /* modes of which later calls are to be fetched */
	uint32_t on;	 /* modes of which later calls are fetched */
	bool recall;	 /* calls under way are to be recalled */
	bool blocked;	 /* the ring has no room for the recall; until at_ns */
	bool due;	 /* at_ns is valid */
	bool fresh;	 /* no answer of the last READ was taken yet */
	bool sums;	 /* the server's QP has no ordered_read */
	struct rpc_modes *modes; /* NULL: all is fetched, with RPC_FETCH_F */
	int err;
	unsigned tries;	   /* READs in a row that found nothing */
	unsigned slow;	   /* messages in a row that took more than R */
	unsigned messages; /* replies since the program last wanted to sleep */
	uint64_t replied;  /* calls before this number were recalled */
	uint64_t pos;	   /* where the last READ of a message began */
	uint32_t got;	   /* bytes from there that READs have brought */
	uint32_t piece;	   /* bytes of the READ under way */
	/* RPC_FETCH_F, or the last message if that was longer: the first READ,
	 * without modes->sizes */
	uint32_t size;
	uint64_t at_ns;	  /* no READ before this time */
	uint64_t wait_ns; /* time that an answer takes, as READs have shown */
};

/* Before any call: results are fetched from now on, or as modes decide. sums: as
 * above. */
void rpc_rfetch_start(struct rpc_client *c, bool sums, struct rpc_modes *modes);
/* The modes of a window of so many calls; NULL without memory. They live longer
 * than the client's last call. decide: as in rpc_modes. */
struct rpc_modes *rpc_modes_new(struct skein_env *env, uint64_t window,
				const struct rpc_calib *calib, bool decide);
void rpc_modes_free(struct skein_env *env, struct rpc_modes *modes);

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

/* A message has come, fetched or replied: counts it for the choice. sent: as
 * above. */
void rpc_rfetch_answered(struct rpc_client *c, bool was_fetched, uint64_t sent);
/* The server's response time to the call with reservation n has come. */
void rpc_rfetch_time(struct rpc_client *c, uint64_t n, uint16_t time);

/* When a round must run for fetching; or ENV_NEVER. */
static inline uint64_t rpc_rfetch_next(const struct rpc_rfetch *f)
{
	return f->able && f->due && f->state == RPC_RFETCH_IDLE ? f->at_ns
								: ENV_NEVER;
}

#endif
