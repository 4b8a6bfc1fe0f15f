/* SPDX-License-Identifier: MIT */
/*
 * lanes_in.h - a handle's lanes and thread records from inside: private to
 * src/conn.
 */
#ifndef SKEIN_CONN_LANES_IN_H
#define SKEIN_CONN_LANES_IN_H

#include "conn/handshake.h"
#include "conn/lanes.h"
#include "conn/thread.h"

#define CONN_THREADS_FIRST 8u /* in the first chunk; then twice as many each */
#define CONN_THREADS_CHUNKS 14u

struct thread_table;

/* Invariants: thread names are in the table for thread records that are taken;
 * n only grows, and thread records below it exist. first, table, n and leavings
 * may be read by any thread; all is written under the lock. */
struct conn_threads {
	_Atomic(struct conn_thread *) first; /* of those taken, or NULL */
	_Atomic(struct thread_table *) table;
	struct skein_env *env;
	atomic_uint n, leavings;
	alignas(64) struct env_mutex lock;
	unsigned n_taken, n_left;
	struct list_node free, left, taken; /* conn_thread.link */
	struct conn_thread *chunks[CONN_THREADS_CHUNKS];
};

/* As of SKEIN_QPS, SKEIN_COMBINE and SKEIN_COMBINE_LEAST. */
struct lanes_conf {
	uint32_t qps, combine, least;
	int fetch; /* SKEIN_RPC_RETURN: 0 reply, 1 fetch, or */
#define LANES_RETURN_AUTO 2
};

/*
 * The lanes of one handle at one end. Where it was opened all are one
 * engine's, whose owner has all of this; lane[] is constant until the close.
 *
 * Where it was accepted each lane is its own engine's. What they have in common
 * is under ctx->lock: lane[] (NULL: not come, or gone), here, link, broken and
 * why. A lane tells others by conn_poke() that this has changed, and each draws
 * its own conclusions in its engine (conn_lanes_step()).
 */
struct conn_lanes {
	struct conn_threads recs; /* the end that opened it */
	struct skein_ctx *ctx;
	uint64_t id;
	unsigned count;
	unsigned combine, least;
	int fetch;	   /* as in lanes_conf */
	atomic_uint refs;  /* lanes that exist */
	atomic_uint ready; /* those whose handshake is done, in this attempt */
	atomic_bool up;	   /* all were: the application knows */
	bool ending;	   /* opened: one has failed, the others follow */
	/* Of a close: lanes with a QP that works, those of them that have
	 * nothing under way. None says CLOSE before all can. */
	atomic_uint live, drained;
	uint8_t peer_id[HANDSHAKE_ID_LEN]; /* of the context at the other end */
	uint32_t engines;		   /* opened: the server's */

	/* accepted */
	struct skein_listener *listener;
	struct list_node link; /* skein_ctx.handles: others may join */
	unsigned here;
	int broken;
	char why[160];
	struct skein_conn *lane[];
};

/* lanes.c */
/* Zeros in own are the configuration's. -ERANGE, with a line in err. */
int conn_lanes_conf(const struct lanes_conf *own, struct lanes_conf *conf,
		    char *err, size_t err_len);
/* conn is not one of them any more, as it is freed. */
void conn_lanes_put(struct skein_conn *conn);
/* The lane's QP works; does no more. */
void conn_lane_live(struct skein_conn *conn);
void conn_lane_dead(struct skein_conn *conn);
/* Draining, with something under way or not: must it stay? */
bool conn_lane_stays(struct skein_conn *conn, bool busy);
/* Its handshake is done. */
void conn_lane_up(struct skein_conn *conn);
/* It was lost, or never came up: so all are. */
void conn_lane_ended(struct skein_conn *conn, int err, const char *why);
/* Opened, closing and down: may conn be freed? Lane 0 is the last, and tells the
 * others. */
bool conn_lanes_freed(struct skein_conn *conn);
/* Lane 0: are all others down? */
bool conn_lanes_down(struct skein_conn *head);
/* What others have left to do for conn; before each service. */
void conn_lanes_step(struct skein_conn *conn);
/* May conn be freed? */
bool conn_lane_gone(struct skein_conn *conn);

/* lanes_open.c */
int conn_lanes_make(struct skein_conn *head, const struct lanes_conf *conf);
/* Frees head too; nothing has begun. */
void conn_lanes_unmake(struct skein_conn *head);
/* A new attempt of lane 0 begins. */
void conn_lanes_again(struct skein_conn *head);
/* Asks for handle in an offer; is an answer right? -SKEIN_EVERSION,
 * -SKEIN_EPEER. */
void conn_lanes_ask(struct skein_conn *conn, struct handshake_handle *h);
int conn_lanes_check(struct skein_conn *conn, const struct handshake_params *p);
void conn_lanes_close(struct skein_conn *head, uint64_t timeout_ns);
void conn_opened_lane_up(struct skein_conn *conn);
void conn_opened_lane_ended(struct skein_conn *conn, int err, const char *why);
/* Lane 0: is the handle still on its way up? Then its end is that of an attempt:
 * kept, and taken back when all lanes are down. */
bool conn_lanes_coming(const struct skein_conn *head);
void conn_lanes_failed(struct skein_conn *head, int err, const char *why);
/* Not closed, but in phase DOWN. */
void conn_opened_lane_down(struct skein_conn *conn);

/* lanes_accept.c */
/* An offer with a handle: joins it, or founds it. 0 and the answer, or an error
 * and what to say. */
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
/* No thread asks for a thread record any more; some may be ending. */
void conn_threads_fini(struct skein_conn *handle);
struct conn_thread *conn_threads_at(struct conn_threads *s, unsigned number);

#endif
