/* SPDX-License-Identifier: MIT */
/*
 * server.h - the serving end: finds requests, runs handlers, answers.
 *
 * The engine does no I/O, like client.h. Responses are built in the mirror, at
 * the offset that the caller reserved, and leave together when their
 * reservations adjoin: docs/protocol/rpc.md, sections 3 to 5.
 *
 * The server takes requests up in the order sent, and answers in that order,
 * except for deferred requests (deferred.h). It never waits for the caller's
 * software (section 7): a message that cannot leave now is kept in `sealed`,
 * and no further request is taken up until it has left.
 *
 * Thread rule: the owner of the connection's engine; handlers run in it.
 */
#ifndef SKEIN_RPC_SERVER_SERVER_H
#define SKEIN_RPC_SERVER_SERVER_H

#include "rpc/server/handlers.h"
#include "rpc/large.h"
#include "rpc/server/deferred.h"
#include "rpc/server/mirror.h"
#include "rpc/port.h"

struct conn_word;

/* What a round has to do beyond the usual. */
enum rpc_server_special {
	RPC_SRV_STOP = 1, /* no pair may be taken: poll_special() says why */
	RPC_SRV_OWES = 2, /* reservations wait for answers */
};

/* Complete messages that found no room in the send queue. The server seals at
 * most three between two looks at this: one that ends where reservations do not
 * adjoin, one before a large result, and the large result. */
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
	uint64_t open_end; /* end of its last reservation, before any wrap */
	/* RPC_REQ_FETCH: the open message stays in the mirror. So does the
	 * next, while requests are of the same mode. */
	uint16_t open_fetch;
	struct rpc_mirror *mirror; /* NULL: the caller fetches nothing */

	struct rpc_sealed sealed[RPC_SEALED_MAX];
	unsigned sealed_count;
	int broken;

	struct skein_rpc_req req;
	void *conn; /* for skein_rpc_req_conn() */

	struct rpc_deferred_conf later;
	struct rpc_deferrals *deferrals; /* NULL: nothing was ever deferred */
	/* of the large request that its handler has; NULL: deferred */
	struct rpc_buf *req_buf;

	/* a large request on its way in */
	struct rpc_pull pull;
	struct rpc_req_meta pull_meta;

	/* large results that the caller has not read, oldest first */
	struct rpc_buf *held, **held_end;
	uint64_t caller_head; /* Head of the response space */
	uint64_t begun_ns;    /* the handler of a call that asks for the time */
};

void rpc_server_init(struct rpc_server *s, struct rpc_port *port,
		     const struct rpc_handlers *handlers,
		     const struct rpc_deferred_conf *later, void *conn);

/* From inside a handler: as skein_rpc_defer(). */
int rpc_server_defer(struct rpc_server *s, struct rpc_deferred **later);

/* A round. Returns what moved, or a negative error: the caller breaks the
 * connection. */
int rpc_server_poll(struct rpc_server *s);

/* Is a request there, or something to be sent? For the look before a sleep. */
bool rpc_server_has_work(const struct rpc_server *s);

/* Has the server taken up all that has arrived? */
bool rpc_server_drained(const struct rpc_server *s);

/* With no request taken up or deferred: the word that changes when a request
 * comes. False: the server has work. */
bool rpc_server_rest(const struct rpc_server *s, struct conn_word *word);

/* Is any request taken up but not answered, workers' requests too? */
bool rpc_server_busy(const struct rpc_server *s);

/* Ends all. No port operation is under way any more. */
void rpc_server_break(struct rpc_server *s, int err);

#endif
