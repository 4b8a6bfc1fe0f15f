/* SPDX-License-Identifier: MIT */
/*
 * counters.h - the counters page: what `skein top` reads of an engine.
 *
 * The page is a memfd, so it goes with its process and leaves nothing to clean
 * up; /proc/PID/fd leads to it, for the same user and root. The process writes,
 * and is never asked: one that is stopped is read as well. A context that is
 * younger than COUNTERS_PERIOD_NS has none, nor has a simulator's.
 *
 * No call counts for it. Rounds of the engine make the totals from what there
 * is: connections keep their own counts, and what a connection has done since
 * it was last looked at is added. Looked at are active connections (polls.h), a
 * few of the others in turns, and each as it becomes silent or ends.
 *
 * Thread rule: the engine's owner writes; any process reads.
 */
#ifndef SKEIN_CONN_COUNTERS_H
#define SKEIN_CONN_COUNTERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define COUNTERS_NAME "skein-counters"
#define COUNTERS_MAGIC \
	0x31746e756f636b73ull /* with the layout: the last byte */
#define COUNTERS_PERIOD_NS (100 * 1000 * 1000ull)
/* Silent connections that a beat looks at. */
#define COUNTERS_TURN 64u

struct skein_conn;
struct skein_engine;

/* Totals, but for those that say "now". */
enum counter {
	/* of a connection */
	COUNTER_CALLS,	   /* made */
	COUNTER_SERVED,	   /* calls taken in */
	COUNTER_MESSAGES,  /* work requests posted to send queues */
	COUNTER_BYTES,	   /* of these */
	COUNTER_STREAMS,   /* now */
	COUNTER_STREAM_RX, /* bytes that programs read */
	COUNTER_STREAM_TX, /* ... and wrote */
#define COUNTERS_OF_CONN 7
	/* of an engine */
	COUNTER_CONNS_OPENED = COUNTERS_OF_CONN, /* now: opened here */
	COUNTER_CONNS_ACCEPTED,			 /* now */
	COUNTER_CONNS_UDP, /* now: between hosts, by this carrier */
	COUNTER_CONNS_TCP,
	COUNTER_OPENED,
	COUNTER_ACCEPTED,
	COUNTER_WAKEUPS, /* completion events taken */
	/* of a context: its first engine has them */
	COUNTER_BROKEN,	  /* connections that were lost */
	COUNTER_GARBAGE,  /* ... closed for what the peer sent */
	COUNTER_REFUSED,  /* handshakes refused as too many */
	COUNTER_TIMEOUTS, /* half-open handshakes given up */
	COUNTER_DEATHS,	  /* peers found dead */
	COUNTERS,
};

struct counters_page {
	/* Written last, with release: a reader that finds it has the rest. */
	_Atomic uint64_t magic;
	uint32_t len; /* of the page */
	uint32_t pid; /* a forked child has the descriptor, too */
	uint8_t ctx[16];
	char device[96]; /* "soft (skein0)"; ends with 0 */
	/* Each value is whole by itself, and no reader compares two of them: so
	 * relaxed loads and stores suffice. */
	_Atomic uint64_t time_ns; /* CLOCK_MONOTONIC */
	_Atomic uint64_t values[COUNTERS];
};
_Static_assert(sizeof(struct counters_page) == 136 + 8 * COUNTERS,
	       "the tool reads it");

/* A page as it was read. */
struct counters_record {
	uint32_t pid;
	uint8_t ctx[16];
	char device[96]; /* printable */
	uint64_t time_ns;
	uint64_t values[COUNTERS];
};

/* An engine's part. */
struct counters {
	struct counters_page *page; /* NULL: not yet, or never */
	int fd;
	bool off; /* there is none to be had */
	uint64_t next_ns;
	unsigned next; /* silent connection that has the next turn */
	/* Of connections, as last looked at; of the engine, what is kept
	 * here. */
	uint64_t sum[COUNTERS];
};

void counters_init(struct skein_engine *eng);
void counters_fini(struct skein_engine *eng);

/* Modules may use conn from now on; do so no more. */
void counters_up(struct skein_conn *conn);
void counters_down(struct skein_conn *conn);
/* Adds what conn has done since it was last looked at. */
void counters_take(struct skein_conn *conn);

/* From the engine's beat: publishes every COUNTERS_PERIOD_NS. */
void counters_beat(struct skein_engine *eng, uint64_t now_ns);
/* The engine is about to sleep: publishes, so that the page is right as long as
 * it sleeps. */
void counters_arm(struct skein_engine *eng);
/* When the first page is due, or ENV_NEVER. */
uint64_t counters_deadline(const struct skein_engine *eng);

/* Any process: copies a page of another, which may write meanwhile. */
void counters_copy(const struct counters_page *page,
		   struct counters_page *copy);
/* The bytes are any bytes. 0; -EAGAIN: the page is being made;
 * -EINVAL: it is none, or another version's. */
int counters_decode(const void *bytes, size_t len, struct counters_record *out);

#endif
