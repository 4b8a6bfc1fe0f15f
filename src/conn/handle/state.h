/* SPDX-License-Identifier: MIT */
/*
 * state.h - a handle's lanes and thread records from inside: private to
 * src/conn.
 */
#ifndef SKEIN_CONN_HANDLE_STATE_H
#define SKEIN_CONN_HANDLE_STATE_H

#include "conn/setup/handshake.h"
#include "conn/handle/lanes.h"
#include "conn/handle/thread.h"

#define CONN_THREADS_FIRST 8u /* in the first chunk; then twice as many each */
#define CONN_THREADS_CHUNKS 14u

struct thread_table;

/* Invariants: the table holds every record that is taken, under its thread's
 * name; n only grows, and records below n exist. Any thread reads first, table,
 * n and leavings; everything is written under the lock. */
struct conn_threads {
	_Atomic(struct conn_thread *) first; /* the first thread's, or NULL */
	_Atomic(struct thread_table *) table;
	struct skein_env *env;
	atomic_uint n, leavings;
	alignas(64) struct env_mutex lock;
	unsigned n_taken, n_left;
	struct list_node free, left, taken; /* conn_thread.link */
	struct conn_thread *chunks[CONN_THREADS_CHUNKS];
};

/* SKEIN_QPS, SKEIN_COMBINE, SKEIN_COMBINE_LEAST, SKEIN_RPC_RETURN. */
struct lanes_conf {
	uint32_t qps, combine, least;
	int fetch; /* SKEIN_RPC_RETURN: 0 reply, 1 fetch, or */
#define LANES_RETURN_AUTO 2
	uint64_t latency_bound_ns;  /* 0: none */
	uint32_t latency_tolerance; /* percent */
#define LANES_TOLERANCE_MAX 50u
};

/*
 * The lanes of one handle at one end. At the end that opened it all lanes
 * belong to one engine, and all fields to its owner; lane[] is constant until
 * the close.
 *
 * At the end that accepted it each lane has its own engine. ctx->lock protects
 * lane[] (NULL: has not come, or is gone), here, link, broken and why. A lane
 * that has changed them pokes the other lanes, and each acts on it in its own
 * engine (conn_lanes_step()).
 */
struct conn_lanes {
	struct conn_threads recs; /* the end that opened it */
	struct skein_ctx *ctx;
	uint64_t id;
	unsigned count;
	unsigned combine, least;
	int fetch; /* as in lanes_conf */
	uint64_t latency_bound_ns;
	uint32_t latency_tolerance;
	atomic_uint refs;  /* lanes that exist */
	atomic_uint ready; /* lanes that came up in this attempt */
	atomic_bool up;	   /* all have: the application was told */
	bool ending;	   /* opened: one has failed, the others follow */
	/* For a close: lanes with a working QP, and how many of them have
	 * nothing under way. No lane says CLOSE before all have nothing. */
	atomic_uint live, drained;
	uint8_t peer_id[HANDSHAKE_ID_LEN]; /* of the context at the other end */
	uint32_t engines;		   /* opened: the server's */

	/* accepted */
	struct skein_listener *listener;
	struct list_node link; /* skein_ctx.handles, until a lane ends */
	unsigned here;	       /* lanes in lane[] */
	int broken;
	char why[160];
	struct skein_conn *lane[];
};

/* lanes.c */
/* Zeros in own are the configuration's. -ERANGE, with a line in err. */
int conn_lanes_conf(const struct lanes_conf *own, struct lanes_conf *conf,
		    char *err, size_t err_len);
/* conn is about to be freed: leaves its handle. */
void conn_lanes_put(struct skein_conn *conn);
/* The lane's QP works; it does so no more. */
void conn_lane_live(struct skein_conn *conn);
void conn_lane_dead(struct skein_conn *conn);
/* conn drains; busy: it has something under way. Must it go on draining? */
bool conn_lane_stays(struct skein_conn *conn, bool busy);
/* Its handshake is done. */
void conn_lane_up(struct skein_conn *conn);
/* The lane was lost, or never came up: the handle ends. */
void conn_lane_ended(struct skein_conn *conn, int err, const char *why);
/* At the end that opened it, closing and down: may conn be freed? Lane 0 is the
 * last, and has the others serviced. */
bool conn_lanes_freed(struct skein_conn *conn);
/* Lane 0: are all others down? */
bool conn_lanes_down(struct skein_conn *head);
/* Before each service: does for conn what other lanes have caused. */
void conn_lanes_step(struct skein_conn *conn);
/* At the end that accepted it: may conn be freed? */
bool conn_lane_gone(struct skein_conn *conn);

/* lanes_open.c */
int conn_lanes_make(struct skein_conn *head, const struct lanes_conf *conf);
/* Frees the lanes and head, before anything has begun. */
void conn_lanes_unmake(struct skein_conn *head);
/* A new attempt of lane 0 begins. */
void conn_lanes_again(struct skein_conn *head);
/* Writes the handle into an offer; checks the answer: 0, -SKEIN_EVERSION,
 * -SKEIN_EPEER. */
void conn_lanes_ask(struct skein_conn *conn, struct handshake_handle *h);
int conn_lanes_check(struct skein_conn *conn, const struct handshake_params *p);
void conn_lanes_close(struct skein_conn *head, uint64_t timeout_ns);
void conn_opened_lane_up(struct skein_conn *conn);
void conn_opened_lane_ended(struct skein_conn *conn, int err, const char *why);
/* Is the handle still on its way up? Then the end of lane 0 ends an attempt
 * only: conn_lanes_failed() keeps the cause until all lanes are down. */
bool conn_lanes_coming(const struct skein_conn *head);
void conn_lanes_failed(struct skein_conn *head, int err, const char *why);
/* A lane other than 0 is in phase DOWN: lane 0 is serviced. */
void conn_opened_lane_down(struct skein_conn *conn);

/* lanes_accept.c */
/* For an offer with a handle: joins it, or founds it (lane 0). 0 and the
 * answer, or an error and the text for the client. */
int conn_lanes_join(struct skein_conn *conn, const struct handshake_params *p,
		    struct handshake_handle *answer, const char **text);
void conn_accepted_lane_up(struct skein_conn *conn);
void conn_accepted_lane_ended(struct skein_conn *conn, int err,
			      const char *why);
void conn_accepted_lanes_step(struct skein_conn *conn);
bool conn_accepted_lane_gone(struct skein_conn *conn);
bool conn_accepted_lanes_down(struct skein_conn *head);

/* thread.c */
void conn_threads_init(struct conn_threads *s, struct skein_env *env);
/* Frees all records. No thread asks for one any more; some may be ending. */
void conn_threads_fini(struct skein_conn *handle);
struct conn_thread *conn_threads_at(struct conn_threads *s, unsigned number);

#endif
