/* SPDX-License-Identifier: MIT */
/*
 * pair.h - two ends of an RPC connection in one thread, joined by a device
 * that does exactly what docs/design/semantics.md lets a device do:
 * operations start late, bytes arrive in pieces (in ascending order, or in any when the device
 * is not ordered), READs and immediates in their order on the queue pair, a
 * full send queue and missing credits at random. All of it from a seed.
 */
#ifndef SKEIN_TEST_RPC_PAIR_H
#define SKEIN_TEST_RPC_PAIR_H

#include <pthread.h>

#include "base/prng.h"
#include "rpc/client/client.h"
#include "rpc/server/server.h"

#define PAIR_OPS 64
#define PAIR_BUFS 256
#define PAIR_WINDOW 64

enum pair_op_kind {
	PAIR_WRITE,
	PAIR_SIGNAL,
	PAIR_READ,
	PAIR_READ_HEAD,
	PAIR_READ_RESP, /* word by word; lands as a whole */
};

struct pair_op {
	enum pair_op_kind kind;
	uint64_t off;
	uint64_t to; /* READ_RESP: where it lands */
	uint32_t len, moved;
	uint8_t *data;	/* a copy: the source is read at post time */
	uint8_t *taken; /* unordered: which 8-byte words have moved */
	bool wake;
	uint32_t imm;
	struct rpc_buf *dst;
	const uint8_t *src;
	struct rpc_read *rd;
	uint64_t head; /* READ_RESP: of the response space, when posted */
	uint32_t last; /* ... the word that is taken last, in no order */
};

struct pair_buf {
	struct rpc_buf buf;
	bool used;
};

struct pair_end {
	struct rpc_port port;
	struct pair *pair;
	struct pair_end *peer;
	struct pair_op ops[PAIR_OPS];
	unsigned op_head, op_count;
	/* shared, the calling end: READs whose done() is to come */
	struct rpc_read *ended[PAIR_OPS];
	unsigned ended_count;
	atomic_bool any_ended;
	unsigned credits;
	unsigned bufs_used;
	struct pair_buf bufs[PAIR_BUFS];
	bool woken; /* a receive with immediate completed */
	bool asleep;
	bool held;	/* nothing that it has posted moves */
	bool buf_fails; /* registered memory is short */
};

struct pair_opts {
	uint64_t seed;
	struct rpc_geom geom; /* all 0: a small one */
	bool unordered;
	bool unordered_read;	 /* words of answers are taken in any order */
	bool shared;		 /* the calling end's sides are two threads' */
	unsigned eagain_percent; /* send queue full at random */
	unsigned batch_max;	 /* 0: 8 */
	unsigned credits;	 /* 0: plenty */
	uint64_t start_pos;	 /* of both rings: to see 2^32 go by */
	struct skein_env *env;	 /* NULL: nothing is deferred */
	bool in_order;		 /* the caller takes no others */
	uint32_t read_max;	 /* 0: plenty */
	unsigned reads_max;	 /* 0: one */
	unsigned later_max;	 /* 0: the window */
	size_t later_len;	 /* 0: plenty */
	/* shared: taken around whatever two threads touch */
	pthread_mutex_t *lock;
};

struct pair {
	struct prng rng;
	struct pair_opts opts;
	uint64_t now_ns;
	struct pair_end ends[2]; /* 0 calls, 1 serves */
	struct rpc_client client;
	struct rpc_server server;
	struct rpc_handlers handlers;
	struct rpc_orphans orphans;
	struct rpc_call slots[PAIR_WINDOW];
};

void pair_init(struct pair *p, const struct pair_opts *opts);
void pair_fini(struct pair *p);
/* The calling end, not shared: this thread leads, and owns the engine. Calls are
 * gathered until the message has batch_max of them, or is flushed; a round of
 * pair_poll() flushes. Errors as skein_rpc_call_async(). */
int pair_call(struct pair *p, uint16_t id, const void *req, size_t len,
	      size_t resp_max, uint64_t timeout_ns, skein_rpc_done_fn *done,
	      void *arg);
int pair_flush(struct pair *p);
int pair_poll(struct pair *p, uint64_t now_ns);
/* Moves one thing or a part of it at one of the ends; false: nothing is under
 * way. */
bool pair_move(struct pair *p);
/* Moves all that is under way. */
void pair_settle(struct pair *p);
/* And both ends look at it, until calls of a window are answered. */
void pair_exchange(struct pair *p);

/* How calls have ended; pair_count() is their callback, with one as its arg. */
struct pair_tally {
	int done, not_sent, unknown;
	int status; /* of the last one */
	size_t len;
	uint8_t data[64]; /* its first bytes */
};
void pair_count(void *arg, const struct skein_rpc_result *res);
bool pair_quiet(const struct pair *p);
/* shared: done() of the READs that have ended; by the end's owner. */
void pair_complete(struct pair_end *e);
/* Gives credits back. */
void pair_credits(struct pair *p);

#endif
