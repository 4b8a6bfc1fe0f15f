/* SPDX-License-Identifier: MIT */
/*
 * sendq.h - the sending side of one lane of a handle, shared by threads: their
 * requests meet in the combining queue, and who leads it makes one list of work
 * requests of them and posts it with one doorbell (FLOCK, sections 3.3.2 and
 * 3.5).
 *
 * Two kinds of requests: a work request that its thread has prepared (a memory
 * operation), and a call, of which the module (rpc) makes a message. The calls
 * of a list go into one message, behind the work requests.
 *
 * Everything of the sending side has one owner at a time, the leader or whoever
 * holds: the QP's posts, the optable's sending half, imm_taken, send queue's
 * fields, and what the module's hooks touch. A leader never breaks a
 * connection: it asks the engine's owner to.
 *
 * A module's own connection (mcast's links) has conn->sendq NULL: its engine's
 * owner is alone, and conn_sendq_hold() and conn_sendq_release() are nothing.
 *
 * Thread rule: conn_sendq_submit() by any thread; what is behind "owner" by the
 * engine's owner.
 */
#ifndef SKEIN_CONN_SENDQ_H
#define SKEIN_CONN_SENDQ_H

#include "conn/conn.h"
#include "conn/optable.h"
#include "conn/combiner.h"

/* Of a send queue, beyond what modules may use: probe, credit return, marker. */
#define CONN_SQ_OWN 3u
/* WRs that a module's message may take. */
#define CONN_SENDQ_MSG_WRS 2u

enum conn_req_kind {
	CONN_REQ_CALL, /* the module's: node.request says what */
	CONN_REQ_WR,   /* wr, completed by op */
};

/* A thread's request; its memory until conn_sendq_submit() has returned (op and
 * what wr names: until op->done()). */
struct conn_req {
	/* In a line with what the leader reads of the node. */
	enum conn_req_kind kind;
	/* Of calls: how many node.request says (node.requests is the same), 1
	 * but while they are submitted; and how many of them, from the first
	 * on, were taken, where they are more and the result is 0. */
	uint16_t calls, taken;
	struct ibv_send_wr *wr; /* wr_id, next and SIGNALED are set here */
	struct conn_op *op;
	struct combiner_node node;
};

void conn_req_init(struct conn_req *r);

/* A WR of a module's message, with its one piece. */
struct conn_sendq_wr {
	struct ibv_send_wr wr; /* sg_list is to be set by who fills it */
	struct ibv_sge sge;
};

/* What a module does for the leader, of one list at a time: add() for each call,
 * charge() for each WR, then seal() and posted() when there was an add(). */
struct conn_sendq_ops {
	/* Takes the call into the message: 0, or the call's result: -EAGAIN
	 * when there is no room; of several, 0 when one was taken at least. A
	 * payload beyond COMBINER_INLINE is offered (combiner_offer()) and
	 * settled in seal(). */
	int (*add)(void *state, struct combiner_node *n);
	/* A thread's own WR goes along, behind `before` others: 0, or its
	 * result: -EAGAIN. May be NULL. */
	int (*charge)(void *state, unsigned before);
	/* Ends the message: fills so many of out[], in order, 0 when all adds
	 * failed. first: the list's first node. */
	unsigned (*seal)(void *state, struct combiner_node *first, unsigned n,
			 struct conn_sendq_wr out[CONN_SENDQ_MSG_WRS]);
	/* n of them were posted; not all: rc says why, and what was added is to
	 * be undone when n is 0. */
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
	struct combiner_node own; /* the owner's, for holding */
	bool held;
	_Atomic int broke; /* the leader's: why the owner must break it */
};

/* Owner. bound, least: combiner.h. */
int conn_sendq_new(struct skein_conn *conn, unsigned bound, unsigned least);
void conn_sendq_free(struct skein_conn *conn);
/* Owner, before the first conn_sendq_open(). */
void conn_sendq_hooks(struct skein_conn *conn, const struct conn_sendq_ops *ops,
		      void *state);
/* Owner. Posts are allowed from here on, or not any more: when close has
 * returned no leader is posting, and later requests are -ENOTCONN. */
void conn_sendq_open(struct skein_conn *conn);
void conn_sendq_close(struct skein_conn *conn);

/* Owner: breaks the lanes whose leaders ask for it. */
void conn_sendq_take_broken(struct skein_engine *eng);

/* Owner. Between them the sending side is the owner's, and conn_post() may be
 * called. No callback of a user, no done(), no wait for a thread in between. */
void conn_sendq_hold(struct skein_conn *conn);
void conn_sendq_release(struct skein_conn *conn);

/* Any thread, not one that holds. Waits for the leader only (combiner.h). 0:
 * posted, or for a WR: op->done() will tell. -EAGAIN: no room in the queue or
 * the ring, or no credit: nothing was sent. -ENOTCONN. */
int conn_sendq_submit(struct skein_conn *lane, struct conn_req *r);

/*
 * The straight way of one call that nobody stands behind (combiner_alone()), by
 * who leads: no list, no hooks. May its message be posted? If not, all is said
 * and done by combiner_go_on().
 */
static inline bool conn_sendq_clear(const struct conn_sendq *sendq)
{
	return sendq->open &&
	       optable_room(sendq->table) >= CONN_SQ_OWN + CONN_SENDQ_MSG_WRS;
}

/* As conn_sendq_post(), of what the device has not taken. */
int conn_sendq_refused(struct conn_sendq *sendq, const struct ibv_send_wr *wr,
		       int rc);

static inline void conn_sendq_name(struct conn_sendq *sendq,
				   struct ibv_send_wr *wr)
{
	if (__builtin_expect(optable_take(sendq->table, NULL, &wr->wr_id), 0))
		wr->send_flags |= IBV_SEND_SIGNALED;
}

/* One of one piece. wr_id, next and SIGNALED are set here. 0; -EAGAIN: nothing
 * was posted; -ENOTCONN: nor was it, and the owner breaks the lane. */
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

/* Two, the second behind the first. *n: how many were posted. 0: one at least;
 * of one alone the owner breaks the lane. Else none, as conn_sendq_post(). */
int conn_sendq_post_two(struct conn_sendq *sendq, struct ibv_send_wr *wr,
			struct ibv_send_wr *behind, unsigned *n);

/* Owner, who holds. What was posted on the lane. */
const struct dev_stats *conn_sendq_stats(struct skein_conn *lane);

/* Of a lane at the end that opened it; stays as long as the lane. */
struct conn_sendq *conn_sendq_of(struct skein_conn *lane);

/* For combiner_settle() in a module's seal(). */
struct combiner *conn_sendq_queue(struct skein_conn *lane);

#endif
