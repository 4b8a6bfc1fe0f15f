/* SPDX-License-Identifier: MIT */
/*
 * ycsb.h - YCSB's client: loads a server, then runs a workload against it, in a
 * closed loop or at a given rate, and verifies every value it reads.
 *
 * Work is done in slices: a slice connects, runs for a time or a number of
 * operations, and disconnects, so that several servers (which sleep while
 * nobody is connected) can be measured in turns.
 *
 * Thread rule: one thread calls; slices start threads of their own.
 */
#ifndef KV_YCSB_YCSB_H
#define KV_YCSB_YCSB_H

#include "base/hist.h"
#include "kv/client.h"
#include "kv/ycsb/workload.h"

#define YCSB_THREADS_MAX 64u
#define YCSB_WINDOW_MAX 1024u
#define YCSB_VALUE_MAX KV_VAL_MAX

struct ycsb_target_attr {
	const char *addr;
	enum kv_transport transport;
	const char *device;
	enum skein_wait wait;
	enum skein_return ret; /* Skein: how results come */
	unsigned threads;
	unsigned window;     /* operations under way a thread */
	int pin;	     /* thread i runs on CPU pin + i; -1: anywhere */
	uint64_t timeout_ns; /* of a connection, and of an operation */
	const struct ycsb_params *params; /* outlives the target */
	/* as skein_ctx_attr's */
	void (*log)(void *arg, enum skein_log_level level, const char *line);
	void *log_arg;
};

struct ycsb_target;

int ycsb_target_open(const struct ycsb_target_attr *attr,
		     struct ycsb_target **target);
void ycsb_target_close(struct ycsb_target *t);
const char *ycsb_target_device(struct ycsb_target *t);
enum kv_transport ycsb_target_transport(struct ycsb_target *t);
/* The server's shards, after the first slice. */
unsigned ycsb_target_shards(struct ycsb_target *t);
/* One line about what went wrong in the last slice; "" when nothing did. */
const char *ycsb_target_error(struct ycsb_target *t);

/* What one slice saw, or several, summed. */
struct ycsb_tally {
	struct hist op[YCSB_OPS];
	uint64_t ops;	   /* after warming up */
	uint64_t ns;	   /* during which they completed */
	uint64_t verified; /* values that were read and are right */
	uint64_t bad;	   /* that are wrong or missing */
	uint64_t misses;   /* of a cache: records that it did not have */
	uint64_t scanned;  /* records that scans returned */
	uint64_t late;	   /* due at a rate, and not begun when time was up */
};

void ycsb_tally_init(struct ycsb_tally *t);
void ycsb_tally_add(struct ycsb_tally *into, const struct ycsb_tally *from);
/* Operations a second. */
double ycsb_tally_rate(const struct ycsb_tally *t);

struct ycsb_slice {
	const struct ycsb_mix *mix; /* NULL: the load phase */
	uint64_t ops;		    /* as many, over all threads; or */
	uint64_t time_ns;	    /* for as long, when ops is 0 */
	uint64_t warm_ns;	    /* the first of it is not counted */
	double rate;	 /* of all threads, a second; 0: closed loop */
	bool even;	 /* arrivals at a rate: evenly */
	unsigned number; /* tells the slices' random keys apart */
	/* Now and then; may be NULL. */
	void (*progress)(void *arg, uint64_t done);
	void *arg;
};

/*
 * Runs one slice and adds to tally. -EIO: a value was wrong or missing; else
 * what failed first: ycsb_target_error() tells. Blocks.
 */
int ycsb_run(struct ycsb_target *t, const struct ycsb_slice *slice,
	     struct ycsb_tally *tally);

#endif
