/* SPDX-License-Identifier: MIT */
/*
 * perf.h - `skein perf`: what its files share.
 *
 * Two processes, the client (which measures and prints) and the server, talk
 * through a control link (ctl.h). With --self they are parent and child,
 * pinned to different cores, and share a page: steps (what the server is to do
 * next) then go through that page and not through a system call, and probes
 * (probe.h) run between slices of the operation on the very same two cores.
 *
 *	cmd_perf.c	options
 *	pair.c		makes the two ends and their control link
 *	terms.c		the client's options become the server's
 *	step.c		the client tells the server what to do next
 *	run.c		alternates probes and slices, gathers figures
 *	slice.c		which slices count; medians
 *	op_raw*.c	write, read, send, atomic on verbs through dev.h
 *	op_rpc*.c	rpc, through the public interface
 *	op_stream.c	a byte stream, as skein run has it
 *	report.c	the table and the JSON object
 */
#ifndef SKEIN_TOOLS_PERF_PERF_H
#define SKEIN_TOOLS_PERF_PERF_H

#include "base/hist.h"
#include "dev/dev.h"
#include "perf/slice.h"

#include "skein/rpc.h"

#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define PERF_CMD "skein perf"
/* A peer that has not moved for so long has failed. That its process has ended
 * is seen at once, by the control link: this is for one that hangs. */
#define PERF_PATIENCE_NS 60000000000ull
/* More for each byte: 16 MiB/s, on a machine with other things to do. */
#define PERF_PATIENCE_BYTE_NS 60ull
#define PERF_SIZE_MAX (1ull << 30)
#define PERF_QPS_MAX 16384
#define PERF_WINDOW_MAX 16384
#define PERF_BATCH_MAX 4096
#define PERF_THREADS_MAX 256
#define PERF_INLINE_MAX 4096
#define PERF_LINE 64

enum perf_op_id {
	PERF_WRITE,
	PERF_READ,
	PERF_SEND,
	PERF_ATOMIC,
	PERF_RPC,
	PERF_STREAM,
};

enum perf_atomic {
	PERF_FETCH_ADD,
	PERF_CMP_SWAP,
};

enum perf_wait {
	PERF_WAIT_SPIN,
	PERF_WAIT_POLL,
	PERF_WAIT_ADAPTIVE,
	PERF_WAIT_EVENT,
};

struct perf_opts {
	uint32_t op; /* enum perf_op_id */
	bool lat;
	bool rate; /* throughput; set when lat is not */
	bool all;
	bool self;
	bool insecure; /* server: other hosts are served, too */
	bool json;
	bool outside;	   /* rpc: calls are made outside done() */
	bool flush;	   /* so, and each batch by itself, be it of one call */
	bool shared;	   /* rpc: all threads on one handle of qps QPs */
	bool no_combining; /* shared: under a spin lock instead */
	bool both_ways;	   /* stream: bytes flow in both directions */
	bool no_copy;	   /* stream: written and read in place */
	uint32_t degree;   /* shared: forced, or 0 */
	uint64_t size;
	uint32_t iterations; /* 0: by duration */
	uint64_t duration_ns;
	uint64_t slice_ns;
	uint32_t qps;
	uint32_t window;
	uint32_t batch;
	uint32_t threads;
	uint32_t inline_max;
	uint32_t atomic; /* enum perf_atomic */
	uint32_t wait;	 /* enum perf_wait */
	uint32_t ret;	 /* enum skein_return */
	uint32_t port;
	uint32_t gid_index; /* UINT32_MAX: chosen */
	const char *device;
	const char *require;
	const char *cores;
	const char *host;
};

struct perf;
struct perf_ctl;
struct perf_shm;

/* One thread of one end. */
struct perf_worker {
	struct perf *p;
	unsigned index;
	struct hist *lat; /* of the current slice, in ns */
	uint64_t n;	  /* operations of the current slice */
	/* Throughput: how long each chunk of operations took, so that a core
	 * taken away for a while costs one chunk and not the slice. */
	struct hist *chunks;
	uint64_t chunk_ops;
	uint64_t chunk_at;   /* operations done when the next one is full */
	uint64_t chunk_from; /* ticks and operations when it began */
	uint64_t chunk_done;
	uint64_t begin; /* ticks */
	uint64_t end;
	uint32_t spins; /* fruitless rounds: see perf_spin() */
	uint64_t spin_until;
	int rc;
	struct dev_stats stats;
	void *state; /* the operation's */
};

/* What an operation counted, over all its slices. */
struct perf_counts {
	uint64_t wrs;
	uint64_t doorbells;
	uint64_t messages;
	bool has_wrs; /* rpc does not see its work requests */
	/* rpc */
	uint64_t calls;
	uint64_t answers; /* messages of the server's */
	uint64_t answer_doorbells;
	uint64_t fetched, replied; /* results */
	uint64_t fetch_reads, fetch_empty, fetch_rests, recalls, switches;
	uint64_t fetch_len, fetch_len_changes; /* the first: at the end */
	uint64_t grants, declines, migrations;
	uint64_t head_fetches;
	uint64_t credits; /* left, at the end */
	uint64_t active;  /* QPs, at the end */
	uint64_t degrees[SKEIN_RPC_DEGREES];
	const char *link; /* at the end: dev_qp_link() of the first QP */
};

struct perf_op {
	const char *name;
	/* Opens this end and connects it with the other through p->ctl. */
	int (*open)(struct perf *p);
	/* p->size changed, and nothing is under way. May be NULL. */
	int (*resize)(struct perf *p);
	/* One slice of one worker; NULL: this end has nothing to do. */
	int (*client)(struct perf_worker *w);
	int (*server)(struct perf_worker *w);
	/* The client's worker tells the server's, from within the operation,
	 * that the slice is over. May be NULL. */
	int (*client_end)(struct perf_worker *w);
	/* Client: the counters so far. */
	void (*counts)(struct perf *p, struct perf_counts *c);
	void (*close)(struct perf *p);
};

struct perf {
	struct perf_opts o;
	bool server;
	const struct perf_op *op;
	struct perf_ctl *ctl;
	struct perf_shm *shm; /* NULL without --self */
	int event_fd[2];      /* client's, server's; -1 without --self */
	double ns_per_tick;
	uint64_t size;	/* of the current step */
	bool step_open; /* client: the server has not said done */
	struct perf_worker *workers;
	void *state; /* the operation's */
	char device[96];
	char device_why[512];
	char host[256]; /* where the client reached the server */
	pthread_mutex_t err_lock;
	char err[512];	/* the first error, in words */
	bool err_known; /* the peer reported it, or has been told */
};

/* How long an operation of the current size may take, with all that are
 * outstanding beside it. */
static inline uint64_t perf_patience(const struct perf *p)
{
	uint64_t bytes = p->size * p->o.window * p->o.threads;

	return PERF_PATIENCE_NS + PERF_PATIENCE_BYTE_NS * bytes;
}

/* One line of the result: one size. */
struct perf_result {
	uint64_t size;
	uint64_t run;	  /* operations, dropped slices included */
	struct hist *lat; /* of the kept slices */
	struct slice_figures fig;
	uint64_t elapsed_ns; /* of the kept slices, and their operations: */
	uint64_t ops;
	struct perf_counts counts;
	bool copy_yard; /* fig.aux_ns is memcpy's, not eventfd's */
};

/* The longest chunk that a pause of the scheduler seldom meets, and the
 * shortest that a window's burst does not dominate. */
#define PERF_CHUNK_NS 100000.0

/* A slice of n operations begins: chunks of chunk_ops. */
void perf_chunks_begin(struct perf_worker *w);
/* The slow part of perf_chunk(): a chunk is full. */
void perf_chunk_full(struct perf_worker *w, uint64_t done);

/* done operations of the slice have completed. */
static inline void perf_chunk(struct perf_worker *w, uint64_t done)
{
	if (__builtin_expect(done >= w->chunk_at, 0))
		perf_chunk_full(w, done);
}

extern const struct perf_op perf_op_write;
extern const struct perf_op perf_op_read;
extern const struct perf_op perf_op_send;
extern const struct perf_op perf_op_atomic;
extern const struct perf_op perf_op_rpc;
extern const struct perf_op perf_op_stream;
extern const char *const perf_op_names[];
extern const char *const perf_wait_names[];
extern const char *const perf_atomic_names[];

/* pair.c: runs one end or both; returns an exit status. */
int perf_main(const struct perf_opts *o);

/* run.c: the client's whole measurement, the server's whole service. */
int perf_client(struct perf *p);
int perf_server(struct perf *p);

/* terms.c: the client's options become the server's; makes the workers. */
int terms_agree(struct perf *p);

/* step.c: the next message of the other end, owned by the caller; one that
 * tells of a failure there is this end's failure too. */
int perf_recv(struct perf *p, uint64_t timeout_ns, json_t **msg);
/* Remembers that the control link failed. Returns rc. */
int perf_gone(struct perf *p, int rc);
/* Something failed here: what the other end says of it, soon, is this end's
 * failure too. 0: nothing. */
int perf_last_words(struct perf *p);
/* This end has failed, and no worker runs. If the other end has gone without a
 * word, p->err begins with that: the rest is how this end noticed. */
void perf_blame(struct perf *p);
/* A message or the end of the control link came while an operation waited:
 * 0 when that was to be expected. */
int perf_out_of_turn(struct perf *p);

/* report.c */
int perf_report(struct perf *p, const struct perf_result *r, unsigned n);
/* The server's object with --json: an exit status. */
int perf_report_served(const struct perf *p, uint32_t port);

/* Remembers what failed, first error wins. Any thread. Returns rc. */
int perf_fail(struct perf *p, int rc, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* The slow part of perf_spin(): gives up when the peer is gone or the wait
 * takes too long. Sets w->rc. */
bool perf_spin_slow(struct perf_worker *w);

/* Every PERF_SPIN_ROUNDS fruitless rounds. Where the ends were started apart
 * nothing pins them: it gives way, as both may be on one core, where each would
 * spin away its slice before the other comes to answer. With --self each has a
 * core of its own, which others may use, too: it gives way after
 * PERF_SELF_ROUNDS, some milliseconds, which is no part of any figure. */
#define PERF_SPIN_ROUNDS 4096u
#define PERF_SELF_ROUNDS (16 * PERF_SPIN_ROUNDS)
bool perf_spin_on(struct perf_worker *w);

/* One fruitless round of a spinning wait: false when it is time to give up.
 * No pause: it would hide the latency that is measured. */
static inline bool perf_spin(struct perf_worker *w)
{
	if (__builtin_expect(++w->spins % PERF_SPIN_ROUNDS, 1))
		return true;
	return perf_spin_on(w);
}

/* A wait bore fruit: the next one has the whole patience again. */
static inline void perf_spun(struct perf_worker *w)
{
	w->spin_until = 0;
}

#endif
