/* SPDX-License-Identifier: MIT */
/*
 * sendq.c - what the leader of a lane does.
 *
 * The threads' work requests in a list complete together: only the last is
 * signalled, and all their operations hang in one chain (conn_op.chain), as one
 * QP's requests complete in order. If the device refuses a list in its middle
 * the connection breaks: no completion would end the part that was taken.
 */
#include "conn/handle/sendq.h"

#include "base/assert.h"
#include "base/list.h"
#include "conn/state.h"

#include <errno.h>

/* A list under construction, on the leader's stack. */
struct batch {
	struct conn_sendq *sendq;
	struct ibv_send_wr *head, **end;
	unsigned room;	       /* WRs that may still join */
	struct conn_op *chain; /* operations so far, oldest first */
	struct conn_op **chain_end;
	struct conn_req *last; /* the last WR of a thread */
	unsigned wrs, calls;
	struct conn_sendq_wr msg[CONN_SENDQ_MSG_WRS];
	unsigned msg_wrs;
};

void conn_req_init(struct conn_req *r)
{
	combiner_node_init(&r->node);
	r->calls = 1;
}

static struct conn_req *req_of(struct combiner_node *n)
{
	return container_of(n, struct conn_req, node);
}

/* Called by the leader: tells the engine's owner to break the connection. */
static void sendq_broke(struct conn_sendq *sendq, int rc)
{
	struct skein_engine *eng = sendq->conn->eng;

	sendq->open = false;
	atomic_store_explicit(&sendq->broke, rc, memory_order_relaxed);
	/* Release pairs with the acquire in conn_sendq_take_broken(): an owner
	 * that reads true also sees broke. */
	atomic_store_explicit(&eng->sendq_broke, true, memory_order_release);
	engine_kick(eng->e);
}

void conn_sendq_take_broken(struct skein_engine *eng)
{
	struct skein_conn *conn;
	int rc;

	/* Acquire pairs with the release in sendq_broke(). */
	if (!atomic_exchange_explicit(&eng->sendq_broke, false,
				      memory_order_acquire))
		return;
	for (uint32_t i = 0; i < eng->table_cap; i++) {
		conn = eng->table[i];
		rc = conn && conn->sendq
			     ? atomic_exchange_explicit(&conn->sendq->broke, 0,
							memory_order_relaxed)
			     : 0;
		if (rc)
			conn_break(conn, rc,
				   "the device refused a work request");
	}
}

static void link_wr(struct batch *b, struct ibv_send_wr *wr)
{
	wr->next = NULL;
	wr->send_flags &= ~(unsigned)IBV_SEND_SIGNALED;
	*b->end = wr;
	b->end = &wr->next;
	b->room--;
}

static int take_wr(struct batch *b, struct conn_req *r)
{
	struct conn_sendq *sendq = b->sendq;
	int rc;

	if (b->room <= CONN_SENDQ_MSG_WRS)
		return -EAGAIN;
	rc = sendq->ops && sendq->ops->charge
		     ? sendq->ops->charge(sendq->state, b->wrs)
		     : 0;
	if (rc)
		return rc;
	r->op->chain = NULL;
	*b->chain_end = r->op;
	b->chain_end = &r->op->chain;
	link_wr(b, r->wr);
	b->last = r;
	b->wrs++;
	return 0;
}

static int take_call(struct batch *b, struct combiner_node *n)
{
	struct conn_sendq *sendq = b->sendq;
	int rc;

	if (!sendq->ops || b->room < CONN_SENDQ_MSG_WRS)
		return sendq->ops ? -EAGAIN : -EOPNOTSUPP;
	rc = sendq->ops->add(sendq->state, n);
	b->calls += !rc;
	return rc;
}

/* Sets wr_ids in the order of the list, once its last work request is known. */
static void name_wrs(struct batch *b)
{
	struct optable *t = &b->sendq->conn->ops;
	struct ibv_send_wr *wr;
	unsigned i = 0;

	for (wr = b->head; i < b->wrs; wr = wr->next, i++) {
		if (wr != b->last->wr) {
			optable_take_chained(t, i, &wr->wr_id);
			continue;
		}
		optable_take(t, b->chain, &wr->wr_id);
		wr->send_flags |= IBV_SEND_SIGNALED;
	}
	for (; wr; wr = wr->next)
		if (optable_take(t, NULL, &wr->wr_id))
			wr->send_flags |= IBV_SEND_SIGNALED;
}

/* Nothing was posted: takes the wr_ids back, the last one first, and sets the
 * results. */
static void unname_wrs(struct batch *b, int rc, struct combiner_node *first,
		       unsigned n)
{
	struct optable *t = &b->sendq->conn->ops;
	struct combiner_node *node = first;
	unsigned i;

	for (i = b->msg_wrs; i--;)
		optable_untake(t, b->msg[i].wr.send_flags & IBV_SEND_SIGNALED);
	for (i = b->wrs; i--;)
		optable_untake(t, i + 1 == b->wrs);
	for (i = 0; i < n; i++, node = i < n ? combiner_next(node) : NULL)
		if (!node->result && req_of(node)->kind == CONN_REQ_WR)
			node->result = rc;
}

static void calls_failed(struct combiner_node *first, unsigned n, int rc)
{
	struct combiner_node *node = first;

	for (unsigned i = 0; i < n;
	     i++, node = i < n ? combiner_next(node) : NULL)
		if (!node->result && req_of(node)->kind == CONN_REQ_CALL)
			node->result = rc;
}

static void post_batch(struct batch *b, struct combiner_node *first, unsigned n)
{
	struct conn_sendq *sendq = b->sendq;
	struct ibv_send_wr *bad = NULL;
	unsigned posted = b->msg_wrs;
	int rc;

	name_wrs(b);
	rc = dev_post_send(&sendq->stats, sendq->conn->qp, b->head, &bad);
	if (__builtin_expect(rc != 0, 0)) {
		for (posted = 0; posted < b->msg_wrs; posted++)
			if (bad == &b->msg[posted].wr)
				break;
		/* refused in front of the message: none of that was posted */
		if (posted == b->msg_wrs)
			posted = 0;
		if (rc == -ENOMEM && bad == b->head) {
			rc = -EAGAIN;
			unname_wrs(b, rc, first, n);
		} else {
			sendq_broke(sendq, rc);
			rc = -ENOTCONN;
		}
		if (!posted)
			calls_failed(first, n, rc);
	}
	if (b->calls)
		sendq->ops->posted(sendq->state, posted, rc);
}

static void seal_message(struct batch *b, struct combiner_node *first,
			 unsigned n)
{
	struct conn_sendq *sendq = b->sendq;

	b->msg_wrs = sendq->ops->seal(sendq->state, first, n, b->msg);
	skein_assert(b->msg_wrs >= 1 && b->msg_wrs <= CONN_SENDQ_MSG_WRS);
	for (unsigned i = 0; i < b->msg_wrs; i++)
		link_wr(b, &b->msg[i].wr);
}

static void sendq_send(struct combiner *q, struct combiner_node *first,
		       unsigned n)
{
	struct conn_sendq *sendq = container_of(q, struct conn_sendq, q);
	struct combiner_node *node = first;
	struct batch b;
	unsigned i;

	b.sendq = sendq;
	b.end = &b.head;
	b.chain_end = &b.chain;
	b.wrs = b.calls = b.msg_wrs = 0;
	b.room = sendq->open ? conn_post_room(sendq->conn) : 0;
	for (i = 0; node;
	     node = ++i < n ? combiner_next(node) : combiner_more(q, first)) {
		if (__builtin_expect(!sendq->open, 0))
			node->result = -ENOTCONN;
		else if (req_of(node)->kind == CONN_REQ_WR)
			node->result = take_wr(&b, req_of(node));
		else
			node->result = take_call(&b, node);
	}
	n = i;
	if (b.calls)
		seal_message(&b, first, n);
	if (b.calls | b.wrs)
		post_batch(&b, first, n);
}

int conn_sendq_refused(struct conn_sendq *sendq, const struct ibv_send_wr *wr,
		       int rc)
{
	if (rc != -ENOMEM) {
		sendq_broke(sendq, rc);
		return -ENOTCONN;
	}
	optable_untake(sendq->table, wr->send_flags & IBV_SEND_SIGNALED);
	return -EAGAIN;
}

int conn_sendq_post_two(struct conn_sendq *sendq, struct ibv_send_wr *wr,
			struct ibv_send_wr *behind, unsigned *n)
{
	struct ibv_send_wr *bad = NULL;
	int rc;

	wr->next = behind;
	behind->next = NULL;
	conn_sendq_name(sendq, wr);
	conn_sendq_name(sendq, behind);
	rc = dev_post_send(&sendq->stats, sendq->qp, wr, &bad);
	*n = 2;
	if (__builtin_expect(rc == 0, 1))
		return 0;
	*n = bad == behind;
	if (*n) {
		sendq_broke(sendq, rc);
		return 0;
	}
	if (rc == -ENOMEM)
		optable_untake(sendq->table,
			       behind->send_flags & IBV_SEND_SIGNALED);
	return conn_sendq_refused(sendq, wr, rc);
}

static const struct combiner_ops sendq_ops = {sendq_send};

int conn_sendq_new(struct skein_conn *conn, unsigned bound, unsigned least)
{
	struct conn_sendq *sendq;

	sendq = env_alloc_aligned(conn->ctx->env, 64, sizeof(*sendq));
	if (!sendq)
		return -ENOMEM;
	combiner_init(&sendq->q, conn->ctx->env, &sendq_ops, bound);
	if (least > 1)
		sendq->q.least =
			least < sendq->q.bound ? least : sendq->q.bound;
	combiner_node_init(&sendq->own);
	sendq->conn = conn;
	sendq->table = &conn->ops;
	conn->sendq = sendq;
	conn->post_stats = &sendq->stats;
	return 0;
}

void conn_sendq_free(struct skein_conn *conn)
{
	struct conn_sendq *sendq = conn->sendq;

	if (!sendq)
		return;
	skein_assert(!sendq->open && !sendq->held);
	combiner_node_settle(&sendq->q, &sendq->own);
	conn->sendq = NULL;
	conn->post_stats = &conn->eng->stats;
	env_free(conn->ctx->env, sendq);
}

void conn_sendq_hooks(struct skein_conn *conn, const struct conn_sendq_ops *ops,
		      void *state)
{
	conn_sendq_hold(conn);
	conn->sendq->ops = ops;
	conn->sendq->state = state;
	conn_sendq_release(conn);
}

static void set_open(struct skein_conn *conn, bool open)
{
	conn_sendq_hold(conn);
	conn->sendq->open = open;
	conn->sendq->qp = conn->qp;
	conn_sendq_release(conn);
}

void conn_sendq_open(struct skein_conn *conn)
{
	if (!conn->sendq)
		return;
	/* A report of the time before: the connection has broken since. */
	atomic_store_explicit(&conn->sendq->broke, 0, memory_order_relaxed);
	set_open(conn, true);
}

void conn_sendq_close(struct skein_conn *conn)
{
	if (conn->sendq)
		set_open(conn, false);
}

void conn_sendq_hold(struct skein_conn *conn)
{
	struct conn_sendq *sendq = conn->sendq;

	if (!sendq)
		return;
	skein_assert_debug(engine_is_owner(conn->eng->e));
	combiner_hold(&sendq->q, &sendq->own);
	sendq->held = true;
}

void conn_sendq_release(struct skein_conn *conn)
{
	struct conn_sendq *sendq = conn->sendq;

	if (!sendq)
		return;
	sendq->held = false;
	combiner_release(&sendq->q, &sendq->own);
}

int conn_sendq_submit(struct skein_conn *lane, struct conn_req *r)
{
	return combiner_submit(&lane->sendq->q, &r->node);
}

struct conn_sendq *conn_sendq_of(struct skein_conn *lane)
{
	return lane->sendq;
}

struct combiner *conn_sendq_queue(struct skein_conn *lane)
{
	return &lane->sendq->q;
}

const struct dev_stats *conn_sendq_stats(struct skein_conn *lane)
{
	return &lane->sendq->stats;
}
