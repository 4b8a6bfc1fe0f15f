/* SPDX-License-Identifier: MIT */
/*
 * server.h - the serving end: finds requests, runs handlers, answers.
 *
 * Engine without I/O, like client.h. Responses are built in the mirror, at the
 * offset that the caller reserved, and leave together when their reservations
 * adjoin: docs/protocol/rpc.md, sections 3 to 5.
 *
 * Requests are taken up in the order sent, and answered in that order but for
 * those that were deferred (deferred.h). The server never waits for the caller's
 * software (section 7): what cannot leave now is kept in `sealed`, and no
 * further request is taken until it has left.
 *
 * Thread rule: the owner of the connection's engine; handlers run in it.
 */
#ifndef SKEIN_RPC_SERVER_H
#define SKEIN_RPC_SERVER_H

#include "rpc/handlers.h"
#include "rpc/large.h"
#include "rpc/deferred.h"
#include "rpc/mirror.h"
#include "rpc/port.h"

struct conn_word;

/* What makes a round another than the usual one. */
enum rpc_server_special {
	RPC_SRV_STOP = 1, /* no pair may be taken: sealed, a READ, broken, or as
			     many requests in other hands as may be */
	RPC_SRV_OWES = 2, /* reservations wait for later answers */
};

/* Messages that are complete and did not get into the send queue. At most
 * three are sealed between two looks at it: one that ends where reservations
 * do not adjoin, what preceded a large result, and the large result. */
#define RPC_SEALED_MAX 4

struct rpc_sealed {
	uint64_t off;
	uint32_t len;
};

struct rpc_server {
	/* hot */
	struct rpc_port *port;
	const struct rpc_handlers *handlers;
	const uint8_t *req_base;
	uint64_t req_head;
	uint64_t req_canary; /* of req_head */
	uint8_t *resp_base;
	struct rpc_msg_in in; /* the message being consumed */
	bool in_active;
	unsigned special; /* enum rpc_server_special */
	struct rpc_req_limits limits;

	uint8_t *open;	   /* the open response message */
	uint32_t open_len; /* without tail */
	uint32_t open_count;
	uint64_t open_pos; /* where it starts */
	uint64_t open_end; /* behind its last reservation, before any wrap */
	/* RPC_REQ_FETCH: it stays in the mirror; the next one too, if it is not
	 * another. */
	uint16_t open_fetch;
	struct rpc_mirror *mirror; /* NULL: the caller fetches nothing */

	struct rpc_sealed sealed[RPC_SEALED_MAX];
	unsigned sealed_count;
	int broken;

	struct skein_rpc_req req;
	void *conn; /* for skein_rpc_req_conn() */

	struct rpc_deferred_conf later;
	struct rpc_deferrals *deferrals; /* NULL: nothing was ever deferred */
	/* of the large request in its handler's hands; NULL: deferred */
	struct rpc_buf *req_buf;

	/* a large request on its way in */
	struct rpc_pull pull;
	struct rpc_req_meta pull_meta;

	/* large results that the caller has not consumed, oldest first */
	struct rpc_buf *held, **held_end;
	uint64_t caller_head; /* Head of the response space */
};

void rpc_server_init(struct rpc_server *s, struct rpc_port *port,
		     const struct rpc_handlers *handlers,
		     const struct rpc_deferred_conf *later, void *conn);

/* From inside a handler: as skein_rpc_defer(). */
int rpc_server_defer(struct rpc_server *s, struct rpc_deferred **later);

/* A round. Returns what moved, or a negative error: the connection must be
 * broken. */
int rpc_server_poll(struct rpc_server *s);

/* Is a request there, or something to be sent? For the look before a sleep. */
bool rpc_server_has_work(const struct rpc_server *s);

/* Has everything been taken up that had arrived? */
bool rpc_server_drained(const struct rpc_server *s);

/* With nothing taken up, or in others' hands: the word that changes when a
 * request comes. False: it has work. */
bool rpc_server_rest(const struct rpc_server *s, struct conn_word *word);

/* Is anything taken but not answered, by workers too? */
bool rpc_server_busy(const struct rpc_server *s);

/* No port operation is under way any more. */
void rpc_server_break(struct rpc_server *s, int err);

#endif
