/* SPDX-License-Identifier: MIT */
/*
 * books.c - the credits of a handle's lanes, both ends side by side
 * (docs/design/combining.md): granted = used + left, and the caller has as many
 * credits left as the server counts, except for memory operations of which the
 * server does not know yet. The comparison looks into both processes at one
 * moment of virtual time.
 */
#include "conn/state.h"
#include "rpc/server/lane_server.h"
#include "rpc/client/lane_client.h"
#include "sim/handles/rpc_handles.h"

#include <stdio.h>

static struct skein_conn *served_end(uint64_t id, struct handles_peer *peers,
				     unsigned n_peers)
{
	for (unsigned i = 0; i < n_peers; i++)
		for (unsigned k = 0; k < peers[i].s.n_served; k++)
			if (peers[i].s.served[k]->lanes &&
			    peers[i].s.served[k]->lanes->id == id)
				return peers[i].s.served[k];
	return NULL;
}

/* Messages; the owner's have a call each. */
static uint64_t messages(struct rpc_conn *rc)
{
	return rc->port.stats.calls + rpc_client_messages(&rc->client);
}

static uint64_t used(struct rpc_conn *rc)
{
	return messages(rc) + rc->lane_client->all_ops;
}

static enum books compare(struct rpc_conn *ours, struct rpc_conn *theirs,
			  unsigned i, char *why, size_t why_len)
{
	struct rpc_lane_client *sh = ours->lane_client;
	struct rpc_lane_server *l = theirs->lane_server;
	uint64_t answers = atomic_load(&sh->answers);
	uint32_t left = sh->credit.left + (uint32_t)answers;
	uint64_t sent = messages(ours);

	if (left != CREDIT_C + sh->granted - used(ours)) {
		snprintf(why, why_len,
			 "lane %u: %u credits are left, of %llu granted and "
			 "%llu used",
			 i, left, (unsigned long long)(CREDIT_C + sh->granted),
			 (unsigned long long)used(ours));
		return BOOKS_WRONG;
	}
	if (left > 2 * CREDIT_C) {
		snprintf(why, why_len, "lane %u: %u credits are left", i, left);
		return BOOKS_WRONG;
	}
	snprintf(why, why_len,
		 "lane %u: %u credits are left, %u and %u of memory operations "
		 "at the other end; %llu and %llu messages",
		 i, left, l->credit.left, sh->ops, (unsigned long long)sent,
		 (unsigned long long)l->messages);
	if (l->asked || l->owes || l->messages != sent ||
	    (!answers && sh->credit.asked))
		return BOOKS_UNSETTLED;
	if (left + sh->ops != l->credit.left)
		return BOOKS_UNSETTLED;
	return BOOKS_AGREE;
}

enum books handles_books(struct skein_conn *conn, struct handles_peer *peers,
			 unsigned n_peers, char *why, size_t why_len)
{
	enum books books = BOOKS_AGREE;
	struct skein_conn *head;

	/* One QP has no credits. */
	if (conn_lanes(conn) == 1)
		return BOOKS_AGREE;
	head = served_end(conn->lanes->id, peers, n_peers);
	snprintf(why, why_len, "nobody serves the handle");
	if (!head)
		return BOOKS_UNSETTLED;
	for (unsigned i = 0; i < conn_lanes(conn) && books == BOOKS_AGREE;
	     i++) {
		struct skein_conn *lane = head->lanes->lane[i];
		struct rpc_conn *ours = rpc_conn_of(conn_lane(conn, i));
		struct rpc_conn *theirs = lane ? rpc_conn_of(lane) : NULL;

		if (!ours || !ours->up || !theirs || !theirs->lane_server)
			return BOOKS_UNSETTLED;
		books = compare(ours, theirs, i, why, why_len);
	}
	return books;
}
