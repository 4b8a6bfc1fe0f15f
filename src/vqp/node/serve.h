/* SPDX-License-Identifier: MIT */
/*
 * serve.h - one client of a node service: its requests become calls of the
 * engine, the engine's completions become completions of the client's ring.
 *
 * It has no process, socket or clock: the rings' memory comes from outside,
 * time is a number. All that a client can name is looked up in the tables
 * below, by place and generation. A client that says what it may not becomes
 * `wrong`, and the service detaches it.
 *
 * Invariants: the requests on the engine are at most SERVE_QUEUE for a vqp, and
 * at most the quota for a client. If the client does not keep to that, its
 * request waits in `held`, and all behind it wait. A completion is taken from
 * the engine, and a request from the ring, only when the ring has room for
 * RING_REPLIES more.
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
/* Outstanding requests of a vqp. The engine's own requests need places
 * besides. */
#define SERVE_QUEUE 120u
#define SERVE_BATCH RING_REPLIES /* requests of a client in a round */
#define SERVE_BYTES 65536	 /* of them in a round, on average */
/* The most bytes that a client pays for: a request's length may be anything. */
#define SERVE_DEBT (64 << 20)
/* Retired requests of a client, on all its vqps, before it is told; fewer if it
 * may have less than twice as many outstanding. */
#define SERVE_TELL 32u

struct serve;

struct serve_vqp {
	struct list_node link; /* serve.live */
	struct serve *s;
	struct vqp *v;
	uint32_t id;	   /* generation << 16 | place */
	uint32_t posted;   /* requests, ever */
	uint32_t retired;  /* of these */
	uint32_t reported; /* retired, as last reported */
	uint32_t messages; /* messages reported as from this vqp */
	bool child;	   /* made by a message */
	bool connects;
};

struct serve_mem {
	uint8_t *addr;
	uint64_t len;
	uint32_t lkey; /* the device's */
	uint32_t id;   /* its name for the client; 0: the place is free */
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
	uint32_t slots;	 /* the engine's, of its vqps */
	uint32_t untold; /* retired on live vqps, and not reported */
	struct serve_mem mem[SERVE_MEMS];
	struct ring_req held;
	bool holds;	/* until the engine has room: a round tries it */
	int64_t credit; /* bytes that its requests may move; below 0: a debt */
	bool full;	/* the ring had no room; until the client has read it */
	/* the service sets these after serve_init() */
	struct quota quota;
	uint16_t domain;
	const char *wrong; /* why the client is to be detached; or NULL */
	uint64_t requests, completions;
};

/* ring: RING_LEN bytes, zeroed. */
void serve_init(struct serve *s, struct vqp_engine *e, void *ring);
/* Frees its vqps. Their requests on the device go on, and are not reported. */
void serve_fini(struct serve *s);
/* Moves requests, then completions. Returns how many. */
int serve_round(struct serve *s);
/* Is there work now that no other part of the service would notice? Waiting for
 * room is not work: the client that makes room sends a wake-up (ring.h). */
bool serve_has(struct serve *s);

/* Adds memory that this client's requests may name. Returns its id; 0: no
 * place. */
uint32_t serve_mem_add(struct serve *s, void *addr, uint64_t len, uint32_t lkey,
		       void *owner);
/* The same under an id that an earlier service gave. False: no such place, or
 * it is taken. */
bool serve_mem_put(struct serve *s, uint32_t id, void *addr, uint64_t len,
		   uint32_t lkey, void *owner);
/* Removes the memory: it can be named no more. Returns its owner; NULL: no such
 * memory. */
void *serve_mem_del(struct serve *s, uint32_t id);

#endif
