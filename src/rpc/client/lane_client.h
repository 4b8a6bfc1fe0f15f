/* SPDX-License-Identifier: MIT */
/*
 * lane_client.h - the calling end of a connection, which is a handle of one
 * lane or several: docs/handles.md.
 *
 *	lane_client.c	a lane: what its leader does, what the owner does
 *	thread.c	a thread: how its calls are sent; blocking calls
 *	replies.c	its asynchronous calls, and the ring of their results
 *	gather.c	asynchronous calls that leave together
 *	handle.c	the handle: threads without room, the scheduler of
 *			threads, statistics
 *
 * Thread rule: said at each part.
 */
#ifndef SKEIN_RPC_CLIENT_LANE_CLIENT_H
#define SKEIN_RPC_CLIENT_LANE_CLIENT_H

#include <errno.h>

#include "conn/handle/lanes.h"
#include "conn/handle/thread.h"
#include "conn/handle/sendq.h"
#include "rpc/client/tuner.h"
#include "rpc/sched/credit.h"
#include "rpc/state.h"
#include "rpc/sched/thrsched.h"

#define RPC_DEGREES 64u /* larger degrees count as this one */

#define RPC_WANT_ROOM UINT64_C(1)
#define RPC_LEAVING (UINT64_C(1) << 32)

/* --- a handle ----------------------------------------------------------- */

/* A thread that waits for room. */
struct rpc_room_waiter {
	struct list_node link;
	struct conn_thread *rec;
	atomic_bool look; /* there may be room: try again */
};

struct rpc_handle {
	struct skein_env *env;
	struct skein_conn *head;
	struct engine *engine; /* of all lanes */
	/* What threads want of every lane's round: RPC_WANT_ROOM for each
	 * thread that waits for room, RPC_LEAVING for each that has ended and
	 * was not swept. */
	_Atomic(uint64_t) wants;
	const _Atomic(struct conn_thread *) *first; /* conn_thread_first() */
	struct rpc_conn **lanes; /* NULL: not up yet, or gone */
	struct env_mutex lock;
	struct list_node room_waiters; /* oldest first; under lock */

	/* the engine's owner's */
	uint64_t interval_ns;
	uint64_t migrations;
	unsigned threads_left; /* conn_threads_left() as last read */
	struct thrsched_thread *threads;
	uint32_t *active; /* lanes */
	unsigned threads_cap;
};

int rpc_handle_new(struct skein_conn *head, struct rpc_handle **h);
void rpc_handle_free(struct rpc_handle *h);
/* Relaxed is enough. A thread that waits for room joins the list first and
 * tries once more before it sleeps, and every change of room wakes the list.
 * Owners look again in a later round. */
static inline uint64_t rpc_handle_wants(const struct rpc_handle *h)
{
	return atomic_load_explicit(&h->wants, memory_order_relaxed);
}
static inline bool rpc_handle_wants_room(const struct rpc_handle *h)
{
	return (uint32_t)rpc_handle_wants(h) != 0;
}
/* Any thread: adds RPC_WANT_ROOM or RPC_LEAVING for one thread. */
void rpc_handle_want(struct rpc_handle *h, uint64_t want);
/* Owner, in rounds of lane 0: runs the scheduler, sweeps threads that have
 * ended. */
int rpc_handle_poll(struct rpc_handle *h, uint64_t now_ns);
/* Owner: the scheduler runs with the next round of lane 0. */
void rpc_handle_schedule(struct rpc_handle *h);
/* The calling thread joins the list, and leaves it when it has found room or
 * gives up. */
void rpc_handle_join(struct rpc_handle *h, struct rpc_room_waiter *room_waiter);
void rpc_handle_leave(struct rpc_handle *h,
		      struct rpc_room_waiter *room_waiter);
/* Owner: there may be room: wakes the threads that wait for it. */
void rpc_handle_feed(struct rpc_handle *h);
/* Owner: the statistics of all lanes together. */
void rpc_handle_stats(struct rpc_handle *h, struct skein_rpc_stats *stats);

/* --- a lane ------------------------------------------------------------- */

struct rpc_lane_client {
	struct rpc_handle *handle;
	struct conn_sendq *sendq;

	bool has_credits; /* the handle has several lanes */
	/* the sending side's */
	alignas(64) struct credit credit;
	uint32_t ops;	       /* memory operations since the last question */
	uint32_t ops_reported; /* by the last question */
	unsigned asking;  /* WRs of the question behind the sealed message */
	bool waking;	  /* the sealed message wakes */
	unsigned offered; /* places awaiting a thread's payload */
	uint64_t wakeups, questions, all_ops;
	/* [n]: messages of n calls, but for calls that left alone */
	uint64_t degrees[RPC_DEGREES + 1];

	/* Grants and declines, which the owner adds and the sending side takes;
	 * and what the sending side leaves to the owner. */
	alignas(64) _Atomic(uint64_t) answers;
	atomic_bool want_question, want_wake;
	/* Set by a thread that wants to change lanes: it must know how far the
	 * server has read (rpc_thread.passed). */
	atomic_bool want_head;

	/* the owner's */
	alignas(64) bool active;
	bool in_round;
	uint32_t room; /* of the send queue, as last read */
	/* A round may end many calls of one thread in a row. The thread record
	 * that got results in this round, while its thread was not woken
	 * yet. */
	struct conn_thread *unwoken;
	/* In a round: the thread that runs it, if it has gathered calls. */
	struct rpc_thread *gathered;
	/* When the scheduler runs next. ENV_NEVER on other lanes than lane 0,
	 * and on a handle of one lane. */
	uint64_t sched_ns;
	uint64_t head_ns; /* no READ for want_head before */
	uint64_t grants, declines;
	uint64_t granted;  /* credits */
	uint64_t answered; /* of questions */
};

int rpc_lane_client_new(struct rpc_conn *rc);
/* Any thread: sends a call by the lane's combiner; req is the thread's own. 0,
 * -EAGAIN when there is no room or credit, -ENOTCONN. */
int rpc_lane_client_call(struct rpc_conn *rc, struct conn_req *req,
			 struct rpc_client_req *r);
/* The same for n calls: the first *sent of them leave, in one message. A
 * message has at most the combiner's bound. */
int rpc_lane_client_calls(struct rpc_conn *rc, struct conn_req *req,
			  struct rpc_client_req *r, unsigned n, unsigned *sent);
void rpc_lane_client_free(struct rpc_conn *rc);
/* Owner: a round of a lane, as a module's poll(); the most frequent steps are
 * inline. poll_more() is the rest of a round that has work besides
 * responses. */
int rpc_lane_client_poll_more(struct rpc_conn *rc, uint64_t now_ns, int moved);
void rpc_lane_client_wake_thread(struct rpc_lane_client *sh);
void rpc_lane_client_send_gathered(struct rpc_lane_client *sh);
/* Has this round work besides responses? Mostly not, and each round asks: one
 * branch for all reasons. */
static inline bool rpc_lane_client_more_due(const struct rpc_conn *rc,
					    uint64_t now_ns)
{
	const struct rpc_lane_client *sh = rc->lane_client;
	const struct rpc_client *c = &rc->client;
	uint64_t more = (uintptr_t)rc->waiting | rc->port.event.owes |
			c->rx.look | rpc_handle_wants(sh->handle);

	/* Relaxed: poll_more() takes the word by an exchange. */
	more |= atomic_load_explicit(&c->published.look, memory_order_relaxed);
	return (more != 0) | (now_ns >= sh->sched_ns);
}
static inline int rpc_lane_client_poll(struct rpc_conn *rc, uint64_t now_ns)
{
	struct rpc_lane_client *sh = rc->lane_client;
	int moved;

	sh->in_round = true;
	moved = rpc_client_poll(&rc->client, now_ns);
	sh->in_round = false;
	if (sh->unwoken)
		rpc_lane_client_wake_thread(sh);
	if (sh->gathered)
		rpc_lane_client_send_gathered(sh);
	if (__builtin_expect(moved < 0, 0))
		return moved == -ENOTCONN ? 0 : moved;
	if (__builtin_expect(rpc_lane_client_more_due(rc, now_ns), 0))
		return rpc_lane_client_poll_more(rc, now_ns, moved);
	return moved;
}
bool rpc_lane_client_has_work(struct rpc_conn *rc);
/* Owner: may rounds leave the lane out until a thread sends? The thread that
 * sends then makes the engine poll it again. */
bool rpc_lane_client_rest(struct rpc_conn *rc);
/* When rpc_lane_client_poll() must run though nothing happens. */
uint64_t rpc_lane_client_next(struct rpc_conn *rc);
/* Owner: sends the signals of the event mode that are owed, holding the send
 * queue. */
int rpc_lane_client_event_flush(struct rpc_conn *rc);
/* Owner: takes the answer to a question, or an unasked grant. */
int rpc_lane_client_imm(struct rpc_conn *rc, uint32_t value);

/* --- a thread ----------------------------------------------------------- */

/* An asynchronous call of a thread. The memory is the thread's; while the call
 * is under way the owner uses it. */
struct rpc_async {
	struct rpc_thread *rec;
	struct rpc_conn *rc;
	skein_rpc_done_fn *done;
	void *arg;
	uint32_t room; /* reserved in the replies */
	/* The oldest call of a batch, measured: when it was made. Else 0. */
	uint64_t begun_ns;
	struct rpc_async *next;
};

/* An entry of the replies. The result follows it, or is in buf. */
struct rpc_reply {
	struct rpc_async *call;
	struct rpc_buf *buf;
	uint32_t size; /* of the entry */
	uint32_t len;  /* of the result */
	int16_t outcome;
	int16_t status;
	uint32_t spare;
};
_Static_assert(sizeof(struct rpc_reply) % 8 == 0, "results are aligned");

enum rpc_waiting_state {
	RPC_WAITING_ENDED,
	RPC_WAITING,
	RPC_WAITING_TAKEN, /* the owner writes the result */
	/* The thread has returned at its deadline: the owner ends the call, and
	 * touches no memory of the caller. */
	RPC_WAITING_LEFT,
};

/* A blocking call: a thread that waits for its answer, or for room to send it.
 * It is part of the thread record; until the call has ended the owner uses it
 * too. */
struct rpc_waiting {
	struct rpc_conn *rc;
	struct env_waiter *sleep;
	void *resp;
	struct rpc_buf *buf; /* a fetched result that the thread copies */
	struct skein_rpc_result *res;
	_Atomic(enum rpc_waiting_state) state;
	struct rpc_pending pending; /* of a large request */
	struct rpc_room_waiter room_waiter;
};

/* A thread asks the owner to cancel a call. The owner uses this until under_way
 * is false. */
struct rpc_cancelling {
	struct engine_call call;
	struct rpc_wanted wanted;
	int err;
	atomic_bool under_way;
};

#define RPC_BATCH_LEN 2048u /* L: a batch's payloads, in bytes */
#define RPC_BATCHES 2u	    /* of a thread, under way */

#define RPC_GATHER_FROM 4u /* calls of a thread under way */

/*
 * Calls that a thread makes inside done(): they leave together after it. With a
 * latency bound, calls from anywhere: they leave as a batch of tuner.size, or
 * when the thread makes progress. Else also calls that a thread with
 * RPC_GATHER_FROM of them under way makes while no thread runs the engine: they
 * leave in the engine's next round (docs/design/combining.md).
 *
 * While `call` is posted the owner may send them. The thread that posted it has
 * RPC_POSTED set, and sets `taken` while it uses n, len, req, bytes, node or
 * posted; so does the owner. Without RPC_POSTED all is the thread's own.
 */
struct rpc_gather {
	struct tuner tuner; /* bound_ns 0: no bound */
	struct engine_call call;
	atomic_bool taken; /* a lock, held for a message at most */
	bool posted; /* set by the thread, cleared by the owner that ran it */
	struct rpc_thread *rec;
	struct conn_req node; /* by which they are sent */
	unsigned n;
	uint32_t len; /* of the payloads together */
	struct rpc_client_req req[COMBINER_BOUND];
	uint8_t bytes[COMBINER_BOUND][COMBINER_INLINE];
};

struct rpc_thread {
	struct conn_thread *rec;
	struct skein_env *env;
	struct rpc_conn *const *lanes; /* the handle's */
	/* the thread's */
	uint32_t begun;	   /* calls, also gathered ones */
	uint32_t reserved; /* bytes of the replies */
	uint64_t reaped;   /* asynchronous calls with done() run */
	uint32_t inner;	   /* of `reserved`: free when nesting ends */
	unsigned depth;	   /* nested calls of rpc_thread_reap() */
	/* Not 0: asynchronous calls are gathered. done() that run, those in a
	 * round too; and the flags. */
	unsigned gathers;
#define RPC_BOUNDED (1u << 31) /* the handle has a latency bound */
#define RPC_POSTED (1u << 30)  /* gather->call may be on its way */
#define RPC_FLAGS (RPC_BOUNDED | RPC_POSTED)
	uint32_t unreaped; /* asynchronous calls */
	struct rpc_gather *gather;
	uint64_t read;	       /* position in the replies */
	struct rpc_buf *shown; /* for running done(), inmost first */
	struct rpc_async *spare, *block;
	struct rpc_waiting waiting;
	struct rpc_cancelling cancelling;
	bool counts; /* several lanes: count requests for the scheduler */
	struct thrsched_sizes sizes;
	/* written by the thread, read by the scheduler */
	_Atomic(uint32_t) requests, median;
	_Atomic(uint64_t) bytes;
	/* written by the thread, for statistics: of its tuner */
	_Atomic(uint32_t) batch;
	_Atomic(uint64_t) timed, late, unmet;
	/* how many of these the scheduler has counted; the owner's */
	uint32_t requests_seen;
	uint64_t bytes_seen;

	/* The replies: positions count bytes, where those of rings count lines
	 * (docs/protocol/rpc.md, section 1). */
	uint8_t *replies;
	uint32_t replies_len, replies_max; /* bytes: ring; largest entry */
	atomic_bool orphan;		   /* the thread has ended */
	/* The owner has run done() of all calls of the ended thread, and
	 * touches the thread record no more: another thread may take it. The
	 * thread that ends resets this, not the next one that takes the record:
	 * so an owner that finds it false knows that no thread has taken the
	 * record. */
	atomic_bool swept;
	void *replies_mem; /* `replies` begins at its first line */

	/* the owner's */
	alignas(64) _Atomic(uint64_t) written;
	_Atomic(uint32_t) ended;
	/* Calls of the thread have ended without an answer. Before the thread
	 * sends on another lane the server must have read up to here, or new
	 * calls may overtake these. A position in the request ring of the
	 * thread record's lane; 0: none. */
	_Atomic(uint64_t) passed;
};

int rpc_thread_taken(struct skein_conn *handle, struct conn_thread *rec);
void rpc_thread_left(struct skein_conn *handle, struct conn_thread *rec);
void rpc_thread_wr(struct conn_thread *rec, size_t len);
int rpc_thread_take(struct conn_thread *rec);
bool rpc_thread_idle(struct skein_conn *handle, struct conn_thread *rec);
void rpc_thread_free(struct skein_conn *handle, struct conn_thread *rec);
/* Owner: ends what is left of a thread that has ended. Returns what moved. */
int rpc_thread_sweep(struct rpc_thread *s);
/* Owner: `waiting` requests of the thread wait on a lane that is not active. If
 * the thread has nothing else under way, and the lane that the scheduler wants
 * for it is active, that lane becomes the thread's, and is returned: the owner
 * moves each of the requests there. Else NULL. */
struct rpc_conn *rpc_thread_moves(struct rpc_conn *rc, uint16_t thread,
				  unsigned waiting);
void rpc_thread_moved(struct rpc_pending *p, struct rpc_conn *to);
/* Owner: all lanes are down: no thread has to wait for the server's Head
 * (rpc_thread.passed). */
void rpc_threads_reset(struct skein_conn *head);
/* Runs done() of what is in the replies. By the thread; by the owner when the
 * thread has ended. */
int rpc_thread_reap(struct rpc_thread *s);

static inline struct rpc_thread *rpc_thread_of(const struct conn_thread *rec)
{
	return rec->modules[CONN_MODULE_RPC - 1];
}

/* The public calls. */
/* rc: lane 0. r is changed. */
int rpc_handle_call(struct rpc_conn *rc, struct rpc_client_req *r, void *resp,
		    struct skein_rpc_result *res);
int rpc_handle_call_async(struct skein_conn *conn, struct rpc_client_req *r);
int rpc_handle_call_batch(struct skein_conn *conn,
			  const struct skein_rpc_entry *calls, unsigned n,
			  unsigned *begun);
int rpc_handle_cancel(struct skein_conn *conn, skein_rpc_done_fn *done,
		      const void *arg);

#endif
