/* SPDX-License-Identifier: MIT */
/*
 * rpc_handles.h - the parts of the scenario rpc-handles: rpc_handles.c has the
 * run, what it checks, and the clients; visit.c what their threads do,
 * server.c their servers,
 * tune.c their settings, handles_books.c the comparison of both ends'
 * credits.
 */
#ifndef SKEIN_SIM_HANDLES_RPC_HANDLES_H
#define SKEIN_SIM_HANDLES_RPC_HANDLES_H

#include "sim/ledger.h"
#include "sim/party.h"

#define HANDLES_ECHO 7 /* + enum ledger_how */
#define HANDLES_SHARDS_MAX 3
#define HANDLES_LATER_MAX 256u /* requests that the answerer has */
#define HANDLES_SERVED_MAX 64u
#define HANDLES 2u   /* of a client, at most */
#define VISITORS 16u /* of a session */
#define WRITES 3u    /* of a thread, under way */

#define HANDLES 2u
#define VISITORS 16u /* of a session */
#define WRITES 3u    /* of a thread, under way */
/* After the faults no call waits as long as this. During the faults a call may
 * wait so long for a stalled thread. */
#define PATIENCE_NS SKEIN_S(5)

/* The memory that a server shares: the number of its life, the words for
 * atomics, and slots, each for one client thread. */
#define AREA_SUMS 8u
#define AREA_TOPS (AREA_SUMS + 8 * LEDGER_WORDS)
#define AREA_SLOTS 4096u
#define SLOT_LEN 512u
#define SLOTS 256u
#define AREA_LEN (AREA_SLOTS + SLOTS * SLOT_LEN)

/* A server's process. */
struct serving {
	struct skein_engine *engines[HANDLES_SHARDS_MAX];
	unsigned n_engines;
	uint64_t *area;
	struct skein_mem *mem;
	uint32_t life;
	uint32_t slots; /* given away */
	struct {
		struct skein_rpc_req *req;
		uint32_t uid;
	} later[HANDLES_LATER_MAX];
	unsigned n_later;
	/* lanes 0 of handles that are ready */
	struct skein_conn *served[HANDLES_SERVED_MAX];
	unsigned n_served;
};

struct handle {
	struct skein_conn *conn;
	bool ordered; /* never made anew */
	bool mem;     /* area is good */
	bool flips;   /* the mode of return changes every few calls */
	uint32_t life;
	struct serving *server;
	struct skein_remote area;
};

/* A thread on a handle. */
struct book {
	struct visitor *v;
	struct handle *h;
	uint32_t session;
	uint32_t slot, len; /* in the area, its own; slot SLOTS: none */
	uint32_t version;   /* of what it has written there */
	bool lost;	    /* nobody knows what is there */
	bool writing[WRITES];
	uint64_t seen[LEDGER_WORDS]; /* of words that are swapped */
};

struct visitor {
	struct handles_peer *p;
	uint16_t number;
	bool left;
	bool inside; /* of a call: a call that is made meanwhile may overtake it */
	uint64_t self;
	uint32_t seq;
	unsigned outstanding;
	struct book books[HANDLES];
};

struct client {
	struct handle handles[HANDLES];
	unsigned n_handles;
	struct skein_mem *local; /* all visitors' buffers */
	struct visitor visitors[VISITORS];
	unsigned outstanding;
	uint16_t threads; /* so far */
	uint64_t memory_ok;
	bool faults_over; /* the faults are over */
};

struct handles_peer {
	struct actor a;
	struct ledger *ledger;
	struct serving s;
	struct client *c; /* a client's */
};

static inline uint64_t handles_draw(struct handles_peer *p, uint64_t n)
{
	return actor_draw(&p->a, n);
}

static inline bool handle_usable(const struct handle *h)
{
	return skein_conn_get_state(h->conn) == SKEIN_CONN_READY;
}

/* visit.c: threads come and leave, until all have left. */
void handles_visit(struct handles_peer *p);

/* tune.c. The peer's context: small rings, few active QPs, short
 * intervals. */
void handles_tune(struct handles_peer *p);
/* Leaders of this handle wait for company. */
void handles_gather(struct handles_peer *p, struct skein_conn *conn);

/* server.c */
void handles_server(void *actor);
void handles_server_born(struct handles_peer *p);
void handles_server_killed(struct handles_peer *p);
void handles_server_stop(struct handles_peer *p);

/* books.c */
enum books {
	BOOKS_AGREE,
	BOOKS_UNSETTLED, /* something is under way */
	BOOKS_WRONG
};
/* Compares the credits of all lanes of a handle at both ends. The served end
 * belongs to one of these peers. why: what is not settled or wrong. */
enum books handles_books(struct skein_conn *conn, struct handles_peer *peers,
			 unsigned n_peers, char *why, size_t why_len);

#endif
