/* SPDX-License-Identifier: MIT */
/*
 * lane_client.h - the calling end of a handle with lanes: docs/handles.md.
 *
 *	lane_client.c		a lane: what its leader does, what the owner does
 *	thread.c		a thread: how its calls are sent, and those that block
 *	replies.c		its other calls, and where it finds their answers
 *	handle.c	the handle: threads without room, the scheduler of
 *			threads, statistics
 *
 * Thread rule: said at each part.
 */
#ifndef SKEIN_RPC_LANE_CLIENT_H
#define SKEIN_RPC_LANE_CLIENT_H

#include <errno.h>

#include "conn/lanes.h"
#include "conn/thread.h"
#include "conn/sendq.h"
#include "rpc/credit.h"
#include "rpc/state.h"
#include "rpc/thrsched.h"

#define RPC_DEGREES 64u /* larger ones count as that */

#define RPC_WANT_ROOM UINT64_C(1)
#define RPC_LEAVING (UINT64_C(1) << 32)

/* --- a handle ----------------------------------------------------------- */

/* A thread that waits for room. */
struct rpc_room_waiter {
	struct list_node link;
	struct conn_thread *rec;
	atomic_bool look; /* something has changed */
};

struct rpc_handle {
	struct skein_env *env;
	struct skein_conn *head;
	struct engine *engine; /* of all lanes */
	/* What threads want of every lane's round: those that wait for room,
	 * and RPC_LEAVING for each that has ended and was not swept. */
	_Atomic(uint64_t) wants;
	const _Atomic(struct conn_thread *) *first; /* conn_thread_first() */
	struct rpc_conn **lanes; /* NULL: not up yet, or gone */
	struct env_mutex lock;
	struct list_node room_waiters; /* oldest first; under lock */

	/* the engine's owner's */
	uint64_t interval_ns;
	uint64_t migrations;
	unsigned threads_left; /* as last looked */
	struct thrsched_thread *threads;
	uint32_t *active; /* lanes */
	unsigned threads_cap;
};

int rpc_handle_new(struct skein_conn *head, struct rpc_handle **h);
void rpc_handle_free(struct rpc_handle *h);
/* Relaxed: who wants room is told of every change, and tries once more after it
 * has come to stand here; and owners look again. */
static inline uint64_t rpc_handle_wants(const struct rpc_handle *h)
{
	return atomic_load_explicit(&h->wants, memory_order_relaxed);
}
static inline bool rpc_handle_wants_room(const struct rpc_handle *h)
{
	return (uint32_t)rpc_handle_wants(h) != 0;
}
/* Any thread: RPC_WANT_ROOM or RPC_LEAVING, as of one thread more. */
void rpc_handle_want(struct rpc_handle *h, uint64_t want);
/* Owner, in rounds of lane 0: the scheduler, and threads that have ended. */
int rpc_handle_poll(struct rpc_handle *h, uint64_t now_ns);
/* Owner: the scheduler runs with the next round of lane 0. */
void rpc_handle_schedule(struct rpc_handle *h);
/* The calling thread waits for room, until it has found it or gives up. */
void rpc_handle_join(struct rpc_handle *h, struct rpc_room_waiter *room_waiter);
void rpc_handle_leave(struct rpc_handle *h,
		      struct rpc_room_waiter *room_waiter);
/* Owner: there may be room. */
void rpc_handle_feed(struct rpc_handle *h);
/* Owner: of all lanes together. */
void rpc_handle_stats(struct rpc_handle *h, struct skein_rpc_stats *stats);

/* --- a lane ------------------------------------------------------------- */

struct rpc_lane_client {
	struct rpc_handle *handle;
	struct conn_sendq *sendq;

	bool has_credits; /* of several lanes */
	/* the sending side's */
	alignas(64) struct credit credit;
	uint32_t ops;	       /* memory operations since the last question */
	uint32_t ops_reported; /* by the last question */
	unsigned asking;  /* WRs of the question behind the sealed message */
	bool waking;	  /* the sealed message wakes */
	unsigned offered; /* places that await a payload */
	uint64_t wakeups, questions, all_ops;
	/* messages of so many calls, but for those that left alone */
	uint64_t degrees[RPC_DEGREES + 1];

	/* The owner's answers, for the sending side to take; and what that
	 * leaves to the owner. */
	alignas(64) _Atomic(uint64_t) answers;
	atomic_bool want_question, want_wake;
	/* A thread's: it wants to leave, and must know how far the server has
	 * read (rpc_thread.passed). */
	atomic_bool want_head;

	/* the owner's */
	alignas(64) bool active;
	bool in_round;
	uint32_t room; /* of the send queue, as last seen */
	/* In a round, which answers many calls of a thread in a row: whose
	 * replies has got some that it was not woken for yet. */
	struct conn_thread *unwoken;
	/* In a round: the thread that runs it has gathered calls. */
	struct rpc_thread *gathered;
	/* Of lane 0: the scheduler's next time; else, and of one lane, never. */
	uint64_t sched_ns;
	uint64_t head_ns; /* no READ of the Head for want_head before */
	uint64_t grants, declines;
	uint64_t granted;  /* credits */
	uint64_t answered; /* of questions */
};

int rpc_lane_client_new(struct rpc_conn *rc);
/* Any thread: a call, by the lane's combining queue, req being the thread's own.
 * 0, -EAGAIN when there is no room or credit, -ENOTCONN. */
int rpc_lane_client_call(struct rpc_conn *rc, struct conn_req *req,
			 struct rpc_client_req *r);
/* The same of the first *sent of n calls, in one message: at most as many as a
 * message has. */
int rpc_lane_client_calls(struct rpc_conn *rc, struct conn_req *req,
			  struct rpc_client_req *r, unsigned n, unsigned *sent);
void rpc_lane_client_free(struct rpc_conn *rc);
/* Owner: a round of a lane, as a module's poll(), whose most frequent steps stand
 * here. The rest of one in which there is more; and of one that has news. */
int rpc_lane_client_poll_more(struct rpc_conn *rc, uint64_t now_ns, int moved);
void rpc_lane_client_wake_thread(struct rpc_lane_client *sh);
void rpc_lane_client_send_gathered(struct rpc_lane_client *sh);
/* Is there more than answers? Mostly not, and each round asks: one branch for all
 * reasons. */
static inline bool rpc_lane_client_more_due(const struct rpc_conn *rc,
					    uint64_t now_ns)
{
	const struct rpc_lane_client *sh = rc->lane_client;
	const struct rpc_client *c = &rc->client;
	uint64_t more = (uintptr_t)rc->waiting | rc->port.event.owes |
			c->rx.look | rpc_handle_wants(sh->handle);

	/* Relaxed: whoever finds it set takes it. */
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
/* Owner: may rounds leave the lane out, until somebody sends? Then whoever does
 * has it polled again. */
bool rpc_lane_client_rest(struct rpc_conn *rc);
/* When rpc_lane_client_poll() must run though nothing happens. */
uint64_t rpc_lane_client_next(struct rpc_conn *rc);
/* Owner: signals of the event mode, held. */
int rpc_lane_client_event_flush(struct rpc_conn *rc);
/* Owner: the answer to a question, or a grant unasked. */
int rpc_lane_client_imm(struct rpc_conn *rc, uint32_t value);

/* --- a thread ----------------------------------------------------------- */

/* An asynchronous call of a thread; the thread's memory, the owner's while the
 * call is under way. */
struct rpc_async {
	struct rpc_thread *rec;
	struct rpc_conn *rc;
	skein_rpc_done_fn *done;
	void *arg;
	uint32_t room; /* reserved in the replies */
	struct rpc_async *next;
};

/* What lies in replies; the result behind it, or in buf. */
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
	 * touches nothing of the caller's. */
	RPC_WAITING_LEFT,
};

/* A thread that waits for an answer, or for room to ask: its record's, until the
 * call has ended the owner's too. */
struct rpc_waiting {
	struct rpc_conn *rc;
	struct env_waiter *sleep;
	void *resp;
	struct rpc_buf *buf; /* where a large result lies */
	struct skein_rpc_result *res;
	_Atomic(enum rpc_waiting_state) state;
	struct rpc_pending pending; /* of a large request */
	struct rpc_room_waiter room_waiter;
};

/* A thread that gives a call up, by the owner, whose this is until it has
 * ended. */
struct rpc_cancelling {
	struct engine_call call;
	struct rpc_wanted wanted;
	int err;
	atomic_bool under_way;
};

/* Calls that a thread makes inside done(): they leave together, behind it. */
struct rpc_gather {
	unsigned n;
	struct rpc_client_req req[COMBINER_BOUND];
	uint8_t bytes[COMBINER_BOUND][COMBINER_INLINE];
};

struct rpc_thread {
	struct conn_thread *rec;
	struct skein_env *env;
	struct rpc_conn *const *lanes; /* the handle's */
	/* the thread's */
	uint32_t begun;	   /* calls */
	uint32_t reserved; /* bytes of the replies */
	uint64_t reaped;   /* asynchronous calls whose done() has run */
	uint32_t inner;	   /* of these, read by a done() inside another */
	unsigned depth;	   /* of done() in done() */
	unsigned in_done;  /* the same, those in a round too */
	struct rpc_gather *gather;
	uint64_t read;	       /* position in the replies */
	struct rpc_buf *shown; /* to a done() that runs, the inmost first */
	struct rpc_async *spare, *block;
	struct rpc_waiting waiting;
	struct rpc_cancelling cancelling;
	bool counts; /* what it sends, for the scheduler */
	struct thrsched_sizes sizes;
	/* told to the scheduler */
	_Atomic(uint32_t) requests, median;
	_Atomic(uint64_t) bytes;
	/* how many of these the scheduler has seen; the owner's */
	uint32_t requests_seen;
	uint64_t bytes_seen;

	/* The replies: positions count bytes, as those of rings count lines
	 * (docs/protocol/rpc.md, section 1). */
	uint8_t *replies;
	uint32_t replies_len, replies_max; /* of the ring; of an entry */
	atomic_bool orphan;		   /* its thread has ended */
	/* The owner has told all that the orphan's calls brought, and touches
	 * the thread record no more: another thread may have it. Reset by the
	 * thread that ends, not by the one that comes: so an owner that finds
	 * it unset knows that nobody has come. */
	atomic_bool swept;

	/* the owner's */
	alignas(64) _Atomic(uint64_t) written;
	_Atomic(uint32_t) ended;
	/* Calls of its thread have ended without an answer: the server must
	 * have read to here before the thread sends on another lane, or they
	 * may be overtaken. A position in the request ring of the thread
	 * record's lane; 0: none. */
	_Atomic(uint64_t) passed;
};

int rpc_thread_taken(struct skein_conn *handle, struct conn_thread *rec);
void rpc_thread_left(struct skein_conn *handle, struct conn_thread *rec);
void rpc_thread_wr(struct conn_thread *rec, size_t len);
int rpc_thread_take(struct conn_thread *rec);
bool rpc_thread_idle(struct skein_conn *handle, struct conn_thread *rec);
void rpc_thread_free(struct skein_conn *handle, struct conn_thread *rec);
/* Owner: what is left of a thread that has ended. Returns what moved. */
int rpc_thread_sweep(struct rpc_thread *s);
/* Owner: requests of the thread, so many, wait on a lane that rests. When they
 * are all of the thread that is under way: the lane on which it is wanted, if
 * that is active, which is the thread's from now on, and has to become that of
 * each of its requests; else NULL. */
struct rpc_conn *rpc_thread_moves(struct rpc_conn *rc, uint16_t thread,
				  unsigned waiting);
void rpc_thread_moved(struct rpc_pending *p, struct rpc_conn *to);
/* Owner: the connection, of all lanes, is down; what it had to pass is gone. */
void rpc_threads_reset(struct skein_conn *head);
/* Runs what has come: by its thread, or when that has ended by the owner. */
int rpc_thread_reap(struct rpc_thread *s);

static inline struct rpc_thread *rpc_thread_of(const struct conn_thread *rec)
{
	return rec->modules[CONN_MODULE_RPC - 1];
}

/* The public calls on a handle with lanes. */
/* rc: of lane 0. r: changed. */
int rpc_handle_call(struct rpc_conn *rc, struct rpc_client_req *r, void *resp,
		    struct skein_rpc_result *res);
int rpc_handle_call_async(struct skein_conn *conn, struct rpc_client_req *r);
int rpc_handle_call_batch(struct skein_conn *conn,
			  const struct skein_rpc_entry *calls, unsigned n,
			  unsigned *begun);
int rpc_handle_cancel(struct skein_conn *conn, skein_rpc_done_fn *done,
		      const void *arg);

#endif
