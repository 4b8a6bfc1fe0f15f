/* SPDX-License-Identifier: MIT */
/*
 * sendq.h - the send queue: the sending side of one lane, shared by threads.
 * Their requests meet in the combiner. Its leader makes them one list of work
 * requests and posts that with one doorbell (FLOCK, sections 3.3.2 and 3.5).
 *
 * Two kinds of requests: a work request that its thread has prepared (a memory
 * operation), and a call. The module (rpc) puts all calls of a list into one
 * message, which goes behind the work requests.
 *
 * The sending side has one owner at a time, the leader or the engine's owner
 * between hold and release: the QP's posts, the optable's sending half,
 * imm_taken, the fields of conn_sendq, and what the module's hooks touch. A
 * leader never breaks a connection: it asks the engine's owner to do so.
 *
 * A module's own connection (mcast's links) has conn->sendq NULL: only the
 * engine's owner posts there, and hold and release do nothing.
 *
 * Thread rule: conn_sendq_submit() by any thread. "Owner": the engine's owner.
 */
#ifndef SKEIN_CONN_HANDLE_SENDQ_H
#define SKEIN_CONN_HANDLE_SENDQ_H

#include "conn/conn.h"
#include "conn/optable.h"
#include "conn/handle/combiner.h"

/* WRs of a QP that modules may not use: probe, return of credits, marker. */
#define CONN_SQ_OWN 3u
/* WRs that a module's message may take. */
#define CONN_SENDQ_MSG_WRS 2u

enum conn_req_kind {
	CONN_REQ_CALL, /* the module's: node.request says what */
	CONN_REQ_WR,   /* wr, completed by op */
};

/* A thread's request, valid until conn_sendq_submit() has returned; op, and the
 * memory that wr names, until op->done(). */
struct conn_req {
	/* In one cache line with what the leader reads of the node. */
	enum conn_req_kind kind;
	/* For calls. calls: how many node.request holds, as node.requests; 1
	 * except while several are submitted. taken: for more than one call,
	 * how many were sent, from the first on, when the result is 0. */
	uint16_t calls, taken;
	struct ibv_send_wr *wr; /* wr_id, next and SIGNALED are set here */
	struct conn_op *op;
	struct combiner_node node;
};

void conn_req_init(struct conn_req *r);

/* A WR of a module's message, with its one piece. */
struct conn_sendq_wr {
	struct ibv_send_wr wr; /* seal() sets sg_list too */
	struct ibv_sge sge;
};

/* A module's hooks, which the leader calls. For each list: add() for each call,
 * charge() for each WR, then seal() and posted() if an add() has returned 0. */
struct conn_sendq_ops {
	/* Takes the call into the message: 0, or the call's error, as -EAGAIN
	 * when there is no room. Of several calls: 0 if it has taken one at
	 * least. A payload longer than COMBINER_INLINE is offered
	 * (combiner_offer()), and settled in seal(). */
	int (*add)(void *state, struct combiner_node *n);
	/* A thread's own WR joins the list behind `before` others: 0, or
	 * -EAGAIN, which is its result. May be NULL. */
	int (*charge)(void *state, unsigned before);
	/* Ends the message: fills out[] in order, and returns how many, 1 at
	 * least. first: the list's first node, of n. */
	unsigned (*seal)(void *state, struct combiner_node *first, unsigned n,
			 struct conn_sendq_wr out[CONN_SENDQ_MSG_WRS]);
	/* n of out[] were posted. If not all were, rc says why; if n is 0, the
	 * module undoes what it has added. */
	void (*posted)(void *state, unsigned n, int rc);
};

struct conn_sendq {
	struct combiner q;
	struct skein_conn *conn;
	const struct conn_sendq_ops *ops; /* NULL: no calls */
	void *state;
	bool open; /* posts may be made */
	struct optable *table;
	struct ibv_qp *qp; /* while open */
	struct dev_stats stats;
	struct combiner_node own; /* the engine's owner's, for holding */
	bool held;
	_Atomic int broke; /* set by a leader: the owner breaks conn with it */
};

/* Owner. bound, least: combiner.h. */
int conn_sendq_new(struct skein_conn *conn, unsigned bound, unsigned least);
void conn_sendq_free(struct skein_conn *conn);
/* Owner, before the first conn_sendq_open(). */
void conn_sendq_hooks(struct skein_conn *conn, const struct conn_sendq_ops *ops,
		      void *state);
/* Owner. Posts are allowed from open on. When close has returned no leader is
 * posting, and later requests get -ENOTCONN. */
void conn_sendq_open(struct skein_conn *conn);
void conn_sendq_close(struct skein_conn *conn);

/* Owner: breaks the lanes that their leaders have reported as broken. */
void conn_sendq_take_broken(struct skein_engine *eng);

/* Owner. Between them the sending side is the owner's, and conn_post() may be
 * called. No callback of a user, no done(), no wait for a thread in between. */
void conn_sendq_hold(struct skein_conn *conn);
void conn_sendq_release(struct skein_conn *conn);

/* Any thread, but not between hold and release. Waits for the leader only
 * (combiner.h). 0: posted; for a WR, op->done() follows. -EAGAIN: no room in
 * the queue or the ring, or no credit; nothing was sent. -ENOTCONN. */
int conn_sendq_submit(struct skein_conn *lane, struct conn_req *r);

/*
 * The short way, for a leader with one call and no follower (combiner_alone()):
 * no list, no hooks. May its message be posted? If not, combiner_go_on() does
 * the rest.
 */
static inline bool conn_sendq_clear(const struct conn_sendq *sendq)
{
	return sendq->open &&
	       optable_room(sendq->table) >= CONN_SQ_OWN + CONN_SENDQ_MSG_WRS;
}

/* The device has refused wr with rc: returns what conn_sendq_post() does. */
int conn_sendq_refused(struct conn_sendq *sendq, const struct ibv_send_wr *wr,
		       int rc);

static inline void conn_sendq_name(struct conn_sendq *sendq,
				   struct ibv_send_wr *wr)
{
	if (__builtin_expect(optable_take(sendq->table, NULL, &wr->wr_id), 0))
		wr->send_flags |= IBV_SEND_SIGNALED;
}

/* Posts one WR of one sge. wr_id, next and SIGNALED are set here. 0; -EAGAIN:
 * nothing was posted; -ENOTCONN: the same, and the owner breaks the lane. */
static inline int conn_sendq_post(struct conn_sendq *sendq,
				  struct ibv_send_wr *wr)
{
	int rc;

	wr->next = NULL;
	conn_sendq_name(sendq, wr);
	rc = dev_post_one(&sendq->stats, sendq->qp, wr);
	return __builtin_expect(rc == 0, 1) ? 0
					    : conn_sendq_refused(sendq, wr, rc);
}

/* Posts two, `behind` second. *n: how many were posted. 0: one at least; after
 * one alone the owner breaks the lane. An error: none, as conn_sendq_post(). */
int conn_sendq_post_two(struct conn_sendq *sendq, struct ibv_send_wr *wr,
			struct ibv_send_wr *behind, unsigned *n);

/* Owner, between hold and release: what was posted on the lane. */
const struct dev_stats *conn_sendq_stats(struct skein_conn *lane);

/* For a lane at the end that opened it; stays as long as the lane. */
struct conn_sendq *conn_sendq_of(struct skein_conn *lane);

/* For combiner_settle() in a module's seal(). */
struct combiner *conn_sendq_queue(struct skein_conn *lane);

#endif
