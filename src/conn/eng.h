/* SPDX-License-Identifier: MIT */
/*
 * eng.h - an engine's part of the device: completion queues, the completion
 * channel, and the connections that complete to them.
 *
 * Invariants: eng->table[i] is the connection of index i or NULL; polls has an
 * entry for each ready connection with a module that has a poll function.
 * eng_beat() walks the lists that are not on the hot path. A callback only
 * marks a connection or a peer as ended; service() frees it.
 *
 * Thread rule: all fields belong to the engine's owner, except where a comment
 * says otherwise.
 */
#ifndef SKEIN_CONN_ENG_H
#define SKEIN_CONN_ENG_H

#include "base/list.h"
#include "conn/counters.h"
#include "conn/polls.h"
#include "conn/turn.h"
#include "dev/dev.h"
#include "dev/mem.h"
#include "env/engine/engine.h"

#include <skein/ctx.h>
#include <stdatomic.h>

#define ENG_CQS_MAX 24u
#define ENG_CQE_FIRST 4096u
#define ENG_CONNS_MAX 65535u
#define ENG_TICK_NS (250 * 1000 * 1000ull)

struct conn_peer;
struct conn_pool;
struct skein_conn;

/* A completion queue, shared by as many connections as its entries suffice
 * for. */
struct eng_cq {
	struct ibv_cq *cq;
	uint32_t cqe, used;
	bool shared;	 /* any thread posts to its QPs */
	unsigned events; /* taken, to be acknowledged */
};

/* In skein_engine.cq_waits: the next round polls all CQs. */
#define ENG_CQ_NOW 1007u

struct skein_engine {
	/* hot: read in every round */
	struct engine_obj obj;
	struct dev_stats stats;
	struct polls polls;
	bool parks; /* a simulator's: one idle round looks at everything */
	uint64_t rest_ns; /* when polls_rest() comes next */
	uint64_t look_ns; /* the same, or 0 while there are swept connections */
	unsigned n_cqs;
	bool attention;		 /* service() has work in this round */
	bool again;		 /* ... and in the next one */
	atomic_bool sendq_broke; /* conn_sendq_take_broken(); set by leaders */
	atomic_bool reached;	 /* a skein_conn.reached is set; any thread */
	/* Busy rounds since the CQs were polled, or ENG_CQ_NOW. */
	unsigned cq_waits;
	unsigned cq_next; /* index of the CQ polled last, where one is due */
	struct skein_conn **table;
	uint32_t table_cap;
	struct eng_cq cqs[ENG_CQS_MAX];

	struct engine *e;
	struct skein_ctx *ctx;
	struct skein_env *env;
	enum env_wait_mode wait_mode;
	struct dev *dev;
	struct ibv_comp_channel *channel;
	/* Watches all control links: after a wake-up by the device one look at
	 * it says whether any link has input. */
	struct env_waiter *links;
	int links_fd; /* readable while any of them is ready */
	struct conn_peer **by_fd;
	unsigned by_fd_cap;
	struct list_node ctx_link;
	uint32_t next_index;
	uint32_t epoch;	 /* of sequence numbers: optable_init() */
	uint32_t strays; /* completions of QPs that are gone */

	struct list_node pools;	    /* conn_pool.link */
	struct list_node peers;	    /* conn_peer.eng_link */
	struct list_node listeners; /* skein_listener.eng_link */
	struct list_node pending;   /* skein_conn.pending_link */
	struct list_node dead;	    /* skein_conn.pending_link: to be freed */
	struct list_node regions;   /* mem_region.link: memory that goes */
	uint64_t next_tick_ns;
	/* All that peers had said by then on control sockets has been read. */
	uint64_t heard_ns;
	uint64_t asked_ns; /* a deadline has waited since for heard_ns, or 0 */
	unsigned looks;	   /* since asked_ns: links_beat() */
	/* Until then a sleeping engine need not look at swept connections; 0:
	 * it arms them before it sleeps. */
	uint64_t swept_until_ns;
	uint64_t regions_seen; /* ctx->region_seq announced so far */
	uint64_t events_seen;  /* ctx->event_seq taken so far */
	struct conn_turn turn; /* of long transfers */
	struct counters counters;

	struct mem_region *scratch; /* results of atomics; made when needed */
	_Atomic(uint64_t) scratch_used[8]; /* any thread */

	/* For connections opened here; made under pool_lock. Any thread. */
	struct env_mutex pool_lock;
	_Atomic(struct conn_pool *) pool;

	/* conn_thread.filled, under replies_lock: records of threads that have
	 * replies to take, put there by another thread's round. */
	struct env_mutex replies_lock;
	struct list_node replies;
	atomic_uint n_replies;
	/* Where an application's own loop sleeps, once it asked for the fd. */
	_Atomic(struct env_waiter *) app;

	atomic_bool stop;
	unsigned stop_runs;  /* runs that watch a skein_stop; ctx->lock */
	atomic_uint n_conns; /* handles that exist; any thread */
};

int eng_new(struct skein_ctx *ctx, enum skein_wait wait,
	    struct skein_engine **eng);
/* Waits for the end of its connections. Not from inside a round. */
void eng_free(struct skein_engine *eng);

/* A CQ with room for n more entries. shared: for QPs to which any thread posts.
 * The two kinds of QP have CQs of their own: only shared ones need locks that
 * two threads may take. */
int eng_cq_get(struct skein_engine *eng, uint32_t n, bool shared,
	       struct eng_cq **cq);
void eng_cq_put(struct eng_cq *cq, uint32_t n);

/* A free index of the table, taken by conn. */
int eng_index_get(struct skein_engine *eng, struct skein_conn *conn,
		  uint16_t *index);
void eng_index_put(struct skein_engine *eng, uint16_t index);

int eng_polls_add(struct skein_engine *eng, struct skein_conn *conn);
void eng_polls_del(struct skein_engine *eng, struct skein_conn *conn);

/* Watches a link's socket; stops that. */
int eng_link_add(struct skein_engine *eng, struct conn_peer *peer, bool out);
void eng_link_del(struct skein_engine *eng, struct conn_peer *peer);

/* Has a wait for a peer's words lasted until its deadline? Not before what had
 * come by then is read: this process may have been stopped, or busy. */
bool eng_is_late(struct skein_engine *eng, uint64_t deadline_ns,
		 uint64_t now_ns);

/* Asks for conn_service() of conn in this round. */
void eng_pend(struct skein_engine *eng, struct skein_conn *conn);

/* Ends a region that peers may know. The following rounds free its memory in
 * pieces. */
void eng_region_end(struct skein_engine *eng, struct mem_region *region);

/* Makes the memory for the results of atomics, once. Owner. */
int eng_scratch_make(struct skein_engine *eng);
/* Eight bytes of it for one result: NULL when all are in use. Any thread. */
uint64_t *eng_scratch_get(struct skein_engine *eng, uint32_t *lkey);
void eng_scratch_put(struct skein_engine *eng, uint64_t *word);

#endif
