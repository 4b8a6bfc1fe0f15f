/* SPDX-License-Identifier: MIT */
/*
 * vqp.h - the scenario "vqp": nodes with pools (src/vqp) on simulated devices,
 * and meta servers, under faults. Each node has clients, which connect to the
 * nodes one after another, post lists of all kinds and close; a bound vqp, which
 * answers; a region that stays, and one that is given up and made anew.
 *
 * What must hold (books.h): completions in the order of posting; a READ sees the
 * WRITEs before it; atomics are carried out once; messages are popped once and
 * in order; no error on a vqp between nodes in no trouble; no request
 * reaches memory that is gone; what a pool has in its cache was published by a
 * node; without trouble no queue pair of the device fails. party.h has what must
 * hold of every scenario.
 */
#ifndef SKEIN_SIM_VQP_VQP_H
#define SKEIN_SIM_VQP_VQP_H

#include "sim/party.h"
#include "sim/vqp/books.h"
#include "vqp/pool.h"

#define CLIENTS 4u /* of a node */
#define PORT 9u
#define FREES 3u
#define IDS 2048u    /* more requests than are outstanding or not polled */
#define BUFFERS 12u  /* of a client */
#define WORDS 4096u  /* of the region that stays: two for each vqp */
#define REGION 4096u /* bytes of the region that is made anew */
#define LIVES 64u    /* of a node: so many are known */
#define RECORDS 256u /* of regions, the newest ones of a life */

struct run;
struct node;

/* What a request is for. */
enum req_kind {
	REQ_WRITE, /* the vqp's own word counts its WRITEs */
	REQ_READ,
	REQ_ADD, /* of the vqp's other word */
	REQ_SEND,
	REQ_REGION_READ, /* of the region that is made anew */
	REQ_REGION_WRITE,
	REQ_LIE, /* it names memory that is not there */
};

struct req {
	enum req_kind kind;
	uint32_t region; /* its id */
	uint64_t want;	 /* what it must bring */
};

/* One vqp after another. */
struct client {
	struct node *node;
	struct vqp *v; /* NULL: none */
	struct record *rec;
	uint64_t give_up_ns; /* the look-up */
	uint64_t next_id, last_id;
	bool proof; /* at the end: a list that must succeed */
	bool posted_proof;
	struct req req[IDS];
	/* named in place of the target's region; 0: none */
	uint32_t old_id;
	uint64_t old_addr;
	/* of the node's own memory: IDS words each. A buffer rests until the
	 * requests of a vqp that was closed cannot bring anything any more */
	uint64_t *buffer[BUFFERS], rests_ns[BUFFERS];
	unsigned in_use; /* which one */
	struct payload *answer;
};

struct node {
	struct actor a;
	struct run *run;
	uint32_t life; /* which of its processes this is */
	bool killed;   /* that one was; none has begun since */
	/* what others need of it */
	bool known; /* its GID is */
	uint8_t gid[16];
	uint32_t port;
	uint64_t words_addr, region_addr;
	uint32_t words_id, region_id; /* 0: not there */
	uint32_t next_word;
	/* cache.c: what its processes have published, and whether one of them
	 * may have published more; the regions of this life */
	struct meta_node own[LIVES];
	unsigned n_own;
	bool unsure;
	struct region_record records[RECORDS];
	unsigned n_records;
	unsigned rounds;
	/* its process's */
	struct pool *pool;
	struct pool_mem *local, *words, *region;
	uint64_t region_due_ns;
	unsigned regions_fast; /* so many more follow at once */
	struct vqp *bound;
	struct payload *rx;
	unsigned frees; /* one of so many messages' vqps; FREES at least */
	struct client clients[CLIENTS];
	unsigned proven; /* nodes that it has reached after the faults */
	bool through;
};

struct run {
	struct party party;
	struct node nodes[PARTY_ACTORS_MAX]; /* meta servers come first */
	struct books books;
	enum vqp_plant plant;
	bool naps;   /* long ones too */
	bool leases; /* lease_try() */
	char meta[40];
	uint64_t connects, lists, requests, regions, transfers, replaced;
};

static inline uint64_t node_draw(struct node *n, uint64_t below)
{
	return actor_draw(&n->a, below);
}

static inline uint64_t node_now(struct node *n)
{
	return sim_thread_now(n->run->party.w);
}

/* Is that process of actor i there? */
static inline bool node_lives(const struct run *run, unsigned i, uint32_t life)
{
	return run->nodes[i].life == life && !run->nodes[i].killed;
}

/* Nodes have the numbers of their actors. */
static inline struct node *node_any(struct node *n)
{
	const struct party *p = &n->run->party;

	return &n->run->nodes[p->n_servers + node_draw(n, p->n_clients)];
}

/* client.c: one step. True: something has moved, or is under way. */
bool client_step(struct client *c);
/* After the faults: ends what it has, then reaches the nodes one after another.
 * True: it has done so. */
bool client_finish(struct client *c);
/* A message for the node's bound vqp; it may be answered. */
void client_message(struct node *n, const struct vqp_pop_out *m);

/* Does the node know of all vqps that have ended, also with their processes? */
bool client_ends_known(struct node *n);

/* Posts a READ of a region that the client's target had once. False: it cannot
 * now. */
bool client_region_read(struct client *c, uint32_t id, uint64_t addr);

/* cache.c */
void cache_node(struct node *n);
void cache_region(struct node *n, const struct pool_mem *m);
/* Has the node's pool anything in its cache that nobody has published? */
void cache_check(struct node *n);

/* plant: a mistake, in programs that are built with them. */
int vqp_play(const struct scenario_conf *conf, enum vqp_plant plant,
	     struct report *rep);

#endif
