/* SPDX-License-Identifier: MIT */
/*
 * worker.h - one thread of a YCSB slice: a window of operations. In a closed loop
 * each starts the next one when it has completed and been verified. At a rate,
 * operations are due at their times: one that is due takes an idle place of
 * the window, or waits for one, oldest first.
 *
 * Thread rule: its own thread, but `done` and `failed`, which any may read.
 */
#ifndef KV_YCSB_WORKER_H
#define KV_YCSB_WORKER_H

#include "kv/ycsb/pace.h"
#include "kv/ycsb/ycsb.h"

#include <pthread.h>
#include <stdatomic.h>

/* What was done, and the story of a connection (at most 320 bytes) or two. */
#define YCSB_ERROR_MAX 768

enum ycsb_slot_state {
	YCSB_SLOT_IDLE,	   /* draws an operation next */
	YCSB_SLOT_DRAWN,   /* has one to start, or the second half of one */
	YCSB_SLOT_STALLED, /* the same, but was told to come again */
	YCSB_SLOT_ACTIVE,  /* waits for its response */
};

/* An operation with its key. */
struct ycsb_todo {
	struct ycsb_request req;
	uint64_t hash;
	size_t key_len;
	char key[YCSB_KEY_MAX];
};

struct ycsb_slot {
	struct ycsb_worker *worker;
	enum ycsb_slot_state state;
	bool read_done; /* read-modify-write: at its second half */
	uint64_t start_ns;
	struct ycsb_todo todo;
};

struct ycsb_worker {
	/* set by the slice */
	struct kv_net *net;
	const char *addr;
	const struct ycsb_slice *slice;
	const struct ycsb_params *params;
	struct ycsb_keys *keys;
	_Atomic bool *stop; /* another worker failed */
	unsigned number, workers, window;
	int pin;
	uint64_t timeout_ns;
	uint64_t quota;	     /* operations; UINT64_MAX when time ends it */
	uint64_t load_first; /* load phase: first key number */
	pthread_t thread;

	/* its own */
	struct kv_client *client;
	struct ycsb_gen gen;
	struct prng rng;
	uint64_t issued;
	uint64_t warm_ns, end_ns, last_ns; /* points in time */
	unsigned active, stalled;
	bool ending;
	uint8_t *value; /* room to build one */
	struct ycsb_slot *slots;
	struct kv_pace pace;
	struct ycsb_slot **idle; /* at a rate: places to start in */
	unsigned n_idle;
	struct ycsb_todo next; /* prepared while others are under way */
	bool prepared;

	/* results */
	struct ycsb_tally tally;
	unsigned shards;
	_Atomic uint64_t done;
	int failed;
	char error[YCSB_ERROR_MAX];
};

/* Allocates. -ENOMEM. */
int ycsb_worker_init(struct ycsb_worker *w);
void ycsb_worker_fini(struct ycsb_worker *w);
/* Connects, works, disconnects: `failed` says how it went. */
void ycsb_worker_run(struct ycsb_worker *w);

#endif
