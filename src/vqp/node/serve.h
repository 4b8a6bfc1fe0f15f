/* SPDX-License-Identifier: MIT */
/*
 * serve.h - one client of a node service: its requests become calls of the
 * engine, what the engine completes becomes completions of its ring.
 *
 * No process, socket or clock: memory for the rings comes from outside, time is
 * a number. All that a client can name is looked up in the tables below, by
 * place and generation; what a client may not say makes it `wrong`, and its
 * owner detaches it.
 *
 * Invariants:
 * - a vqp's requests on the engine are at most SERVE_QUEUE, and a client's at most
 *   its quota, unless the client does not count; then they wait in `held`, and so
 *   do all behind;
 * - a completion is taken from the engine, and a request from the ring, only when
 *   the ring has room for RING_REPLIES more.
 *
 * Thread rule: that of the engine.
 */
#ifndef SKEIN_VQP_NODE_SERVE_H
#define SKEIN_VQP_NODE_SERVE_H

#include "vqp/engine.h"
#include "vqp/node/quota.h"
#include "vqp/node/ring.h"

#define SERVE_VQPS 1024u
#define SERVE_MEMS 64u
/* Outstanding requests of a vqp. The engine's own need a place beside them. */
#define SERVE_QUEUE 120u
#define SERVE_BATCH RING_REPLIES /* requests of a client in a round */
#define SERVE_BYTES 65536	 /* of them in a round, on average */
/* A length may be anything: what a client pays for at most. */
#define SERVE_DEBT (64 << 20)
#define SERVE_TELL 32u /* retired requests that the client is told of */

struct serve;

struct serve_vqp {
	struct list_node link; /* serve.live */
	struct serve *s;
	struct vqp *v;
	uint32_t id;	   /* generation << 16 | place */
	uint32_t posted;   /* requests, ever */
	uint32_t retired;  /* of these */
	uint32_t reported; /* retired, as told */
	uint32_t messages; /* that the client was told are from this vqp */
	bool child;	   /* made by a message */
	bool connects;
};

struct serve_mem {
	uint8_t *addr;
	uint64_t len;
	uint32_t lkey; /* the device's */
	uint32_t id;   /* what the client names; 0: none here */
	uint16_t gen;
	void *owner; /* the service's */
};

struct serve {
	struct vqp_engine *e;
	struct ring ring;
	struct serve_vqp *vqp[SERVE_VQPS];
	uint16_t gen[SERVE_VQPS];
	uint32_t next;
	struct list_node live;
	struct serve_mem mem[SERVE_MEMS];
	struct ring_req held;
	bool holds; /* until the engine has room, which is a round of its own */
	int64_t credit; /* bytes that it may take; what one takes more is a debt */
	bool full;	/* the ring had no room: until the client has read it */
	/* its owner sets these after serve_init() */
	struct quota quota;
	uint16_t domain;
	const char *wrong; /* NULL; why it is to be detached */
	uint64_t requests, completions;
};

/* ring: RING_LEN bytes, zeroed. */
void serve_init(struct serve *s, struct vqp_engine *e, void *ring);
/* Its vqps go; what of them is on the device goes on, reported to nobody. */
void serve_fini(struct serve *s);
/* Requests, then completions. Returns how many moved. */
int serve_round(struct serve *s);
/* Is there something to do now that no other part of the service would notice?
 * What waits for room is nothing to do: the client that makes room sends a
 * wake-up (ring.h). */
bool serve_has(struct serve *s);

/* Memory that requests of this client may name: its id, or 0: no place. */
uint32_t serve_mem_add(struct serve *s, void *addr, uint64_t len, uint32_t lkey,
		       void *owner);
/* The same under an id that another service gave: false: none, or taken. */
bool serve_mem_put(struct serve *s, uint32_t id, void *addr, uint64_t len,
		   uint32_t lkey, void *owner);
/* Its owner; NULL: no such memory. Named no more from now on. */
void *serve_mem_del(struct serve *s, uint32_t id);

#endif
