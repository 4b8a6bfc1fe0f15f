/* SPDX-License-Identifier: MIT */
/*
 * rpc_bed.h - many threads on many nodes call one server: the rate of calls,
 * and how long they take (FLOCK, chapter 4). All code is production code but
 * for the baselines' spin lock.
 *
 * A client's node has processes with threads; each thread keeps a number of
 * calls outstanding. The server has a thread with its own engine for each of
 * its cores. Points differ in how threads share connections.
 */
#ifndef SKEIN_SIM_RPC_BED_H
#define SKEIN_SIM_RPC_BED_H

#include "dev/sim/model.h"
#include "env/sim/sim.h"

#include <skein/conn.h>
#include <stdbool.h>
#include <stdint.h>

/* FLOCK's, whatever the NIC's model says. */
#define RPC_BED_MAX_AQP 256u

enum rpc_bed_system {
	RPC_BED_PRIVATE, /* a connection and an engine for each thread */
	RPC_BED_LOCKED,	 /* `share` threads on one, under a spin lock */
	RPC_BED_LANES,	 /* `share` threads on a handle with `qps` lanes */
};

/* Of RPC_BED_PRIVATE: which of the server's threads a call goes to. */
enum rpc_bed_keys {
	RPC_BED_OWN_SHARD, /* each caller has one connection, to one thread */
	/* A caller has a connection to each thread; the key of a call, or of
	 * the first of a batch, says which. */
	RPC_BED_UNIFORM,
	RPC_BED_ZIPFIAN, /* 0.99, of RPC_BED_KEYS keys */
};

#define RPC_BED_KEYS 128000000.0 /* RF-RPC, section 5.1 */

struct hist;
struct prng;

/* What callers do in place of calls, one operation at a time. 0 or an error. */
struct rpc_bed_app {
	/* the server, before it listens */
	int (*serve)(struct skein_ctx *ctx, struct sim_world *w, void *arg);
	/* a caller, when its connection is ready */
	int (*join)(struct skein_ctx *ctx, struct skein_conn *conn,
		    struct skein_env *env, void *arg, void **caller);
	int (*one)(void *caller, struct prng *r);
};

struct rpc_bed_conf {
	uint64_t seed;
	const struct nic_model *nic;
	enum rpc_bed_system system;
	unsigned nodes, procs, threads; /* procs: of a node; threads: of one */
	unsigned share;			/* 0: all of a process's */
	unsigned qps;
	/* Most calls, or answers, of one message; 0: the default. 1: each is a
	 * message of its own, as in FLOCK's baselines. */
	unsigned batch;
	unsigned window; /* outstanding, of a thread */
	/* A thread without lanes makes `window` calls that leave together, each
	 * time all of them have ended. */
	bool whole;
	/* Not 0: calls that take longer do not count as held. tuned: each
	 * thread's calls leave in batches that keep it, and it has as many
	 * outstanding as it may. */
	uint64_t bound_ns;
	bool tuned;
	/* Not 0: after each so long it is drawn how many threads make calls. */
	uint64_t step_ns;
	unsigned cores;	       /* of a client's node */
	unsigned servers;      /* threads of the server's */
	unsigned server_cores; /* 0: one for each of them */
	uint32_t len;	       /* of request and response */
	uint32_t resp_len;     /* not 0: of the response alone */
	/* Percentage of calls, drawn, that have put_len bytes instead, and
	 * responses of put_resp_len bytes. */
	unsigned put_pct;
	uint32_t put_len, put_resp_len;
	enum skein_return return_mode;
	const struct rpc_calib *calib; /* of the clients' device, or NULL */
	/* RF-RPC's ServerReply: a thread of the server goes on when its WRITE
	 * is complete (reply_wait.h). */
	bool reply_wait;
	bool server_inlines_not;
	/* Of the clients: the NIC fetches each request; a thread goes on when
	 * its WRITE is complete, as with reply_wait. */
	bool client_inlines_not, client_waits;
	enum rpc_bed_keys keys;
	/* Percentage of a process's threads that make calls of large_len bytes;
	 * their responses have len bytes. */
	unsigned large_pct;
	uint32_t large_len;
	/* Not NULL: of RPC_BED_PRIVATE only. */
	const struct rpc_bed_app *app;
	void *app_arg;
	uint32_t handler_ns;
	/* The world catches up with each handler. Else a round of the server's
	 * engine is one moment for others, and a READ finds an answer before
	 * the handlers in front of it have run. */
	bool in_step;
	/* Time between two rounds of either end's scheduler. While clients
	 * connect, a handle has one active lane. A round of the server's
	 * scheduler makes the other lanes active, and then a round of the
	 * client's gives them threads. So warm_ns must be at least two of
	 * these. */
	uint64_t sched_ns;
	uint64_t warm_ns, run_ns;
	uint64_t ops; /* not 0: as long as so many calls of a thread take */
	struct sim_costs costs;
	struct hist *hist; /* not NULL: gets how long calls took */
};

struct rpc_bed_result {
	double mops;	      /* by the server's count */
	double answered_mops; /* by the callers' */
	double mean_ns, p15_ns, p50_ns, p99_ns;
	double held;	     /* calls that took bound_ns at most, of all */
	double degree;	     /* requests of a message, as the server met them */
	double answers;	     /* answers of a message */
	double out_per_call; /* messages that the server's NIC sent and took, */
	double in_per_call;  /* a call */
	unsigned qps;	     /* of the server, connected */
	double fetched;	     /* answers that came by READ, of all */
	double reads;	     /* READs for answers, a fetched answer */
	double posts;	     /* messages that the server posted, a call */
	/* Calls of the server's thread with the most of them and with the
	 * fewest, over the mean. */
	double most, fewest;
	uint64_t hash, virtual_ns, events;
};

/* 0 or a negative errno; -EIO: a call has failed. */
int rpc_bed_run(const struct rpc_bed_conf *conf, struct rpc_bed_result *res);

#endif
