/* SPDX-License-Identifier: MIT */
/*
 * tx.c - what the leader of a lane does.
 *
 * The work requests of a list complete together: all but the last go
 * unsignalled, and their operations hang from the last one's (conn_op.chain),
 * for one QP's requests complete in order. A list that the device refuses in
 * its middle breaks the connection: no completion would end what was taken.
 */
#include "conn/tx.h"

#include "base/assert.h"
#include "base/list.h"
#include "conn/handle.h"

#include <errno.h>

/* A list under construction; the leader's stack. */
struct batch {
	struct conn_tx *tx;
	struct ibv_send_wr *head, **end;
	unsigned room;	       /* WRs that may still join */
	struct conn_op *chain; /* operations so far, oldest first */
	struct conn_op **chain_end;
	struct conn_req *last; /* the last WR of a thread */
	unsigned wrs, calls;
	struct conn_tx_wr msg[CONN_TX_MSG_WRS];
	unsigned msg_wrs;
};

void conn_req_init(struct conn_req *r)
{
	tcq_node_init(&r->node);
	r->calls = 1;
}

static struct conn_req *req_of(struct tcq_node *n)
{
	return container_of(n, struct conn_req, node);
}

/* The owner must break it. */
static void tx_broke(struct conn_tx *tx, int rc)
{
	struct skein_engine *eng = tx->conn->eng;

	tx->open = false;
	atomic_store_explicit(&tx->broke, rc, memory_order_relaxed);
	/* Release: who sees it sees broke. */
	atomic_store_explicit(&eng->tx_broke, true, memory_order_release);
	engine_kick(eng->e);
}

void conn_tx_heed(struct skein_engine *eng)
{
	struct skein_conn *conn;
	int rc;

	/* Acquire pairs with the release in tx_broke(). */
	if (!atomic_exchange_explicit(&eng->tx_broke, false,
				      memory_order_acquire))
		return;
	for (uint32_t i = 0; i < eng->table_cap; i++) {
		conn = eng->table[i];
		rc = conn && conn->tx
			     ? atomic_exchange_explicit(&conn->tx->broke, 0,
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
	struct conn_tx *tx = b->tx;
	int rc;

	if (b->room <= CONN_TX_MSG_WRS)
		return -EAGAIN;
	rc = tx->ops && tx->ops->charge ? tx->ops->charge(tx->state, b->wrs)
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

static int take_call(struct batch *b, struct tcq_node *n)
{
	struct conn_tx *tx = b->tx;
	int rc;

	if (!tx->ops || b->room < CONN_TX_MSG_WRS)
		return tx->ops ? -EAGAIN : -EOPNOTSUPP;
	rc = tx->ops->add(tx->state, n);
	b->calls += !rc;
	return rc;
}

/* wr_ids, in the order of the list: what is signalled is known by then. */
static void name_wrs(struct batch *b)
{
	struct optable *t = &b->tx->conn->ops;
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

/* Nothing was posted: as if nothing had been named. */
static void unname_wrs(struct batch *b, int rc, struct tcq_node *first,
		       unsigned n)
{
	struct optable *t = &b->tx->conn->ops;
	struct tcq_node *node = first;
	unsigned i;

	for (i = b->msg_wrs; i--;)
		optable_untake(t, b->msg[i].wr.send_flags & IBV_SEND_SIGNALED);
	for (i = b->wrs; i--;)
		optable_untake(t, i + 1 == b->wrs);
	for (i = 0; i < n; i++, node = i < n ? tcq_next(node) : NULL)
		if (!node->result && req_of(node)->kind == CONN_REQ_WR)
			node->result = rc;
}

static void calls_failed(struct tcq_node *first, unsigned n, int rc)
{
	struct tcq_node *node = first;

	for (unsigned i = 0; i < n; i++, node = i < n ? tcq_next(node) : NULL)
		if (!node->result && req_of(node)->kind == CONN_REQ_CALL)
			node->result = rc;
}

static void post_batch(struct batch *b, struct tcq_node *first, unsigned n)
{
	struct conn_tx *tx = b->tx;
	struct ibv_send_wr *bad = NULL;
	unsigned posted = b->msg_wrs;
	int rc;

	name_wrs(b);
	rc = dev_post_send(&tx->stats, tx->conn->qp, b->head, &bad);
	if (__builtin_expect(rc != 0, 0)) {
		for (posted = 0; posted < b->msg_wrs; posted++)
			if (bad == &b->msg[posted].wr)
				break;
		/* in front of the message: none of it left */
		if (posted == b->msg_wrs)
			posted = 0;
		if (rc == -ENOMEM && bad == b->head) {
			rc = -EAGAIN;
			unname_wrs(b, rc, first, n);
		} else {
			tx_broke(tx, rc);
			rc = -ENOTCONN;
		}
		if (!posted)
			calls_failed(first, n, rc);
	}
	if (b->calls)
		tx->ops->posted(tx->state, posted, rc);
}

static void seal_message(struct batch *b, struct tcq_node *first, unsigned n)
{
	struct conn_tx *tx = b->tx;

	b->msg_wrs = tx->ops->seal(tx->state, first, n, b->msg);
	skein_assert(b->msg_wrs >= 1 && b->msg_wrs <= CONN_TX_MSG_WRS);
	for (unsigned i = 0; i < b->msg_wrs; i++)
		link_wr(b, &b->msg[i].wr);
}

static void tx_send(struct tcq *q, struct tcq_node *first, unsigned n)
{
	struct conn_tx *tx = container_of(q, struct conn_tx, q);
	struct tcq_node *node = first;
	struct batch b;
	unsigned i;

	b.tx = tx;
	b.end = &b.head;
	b.chain_end = &b.chain;
	b.wrs = b.calls = b.msg_wrs = 0;
	b.room = tx->open ? conn_post_room(tx->conn) : 0;
	for (i = 0; node;
	     node = ++i < n ? tcq_next(node) : tcq_more(q, first)) {
		if (__builtin_expect(!tx->open, 0))
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

int conn_tx_refused(struct conn_tx *tx, const struct ibv_send_wr *wr, int rc)
{
	if (rc != -ENOMEM) {
		tx_broke(tx, rc);
		return -ENOTCONN;
	}
	optable_untake(tx->table, wr->send_flags & IBV_SEND_SIGNALED);
	return -EAGAIN;
}

int conn_tx_post_two(struct conn_tx *tx, struct ibv_send_wr *wr,
		     struct ibv_send_wr *behind, unsigned *n)
{
	struct ibv_send_wr *bad = NULL;
	int rc;

	wr->next = behind;
	behind->next = NULL;
	conn_tx_name(tx, wr);
	conn_tx_name(tx, behind);
	rc = dev_post_send(&tx->stats, tx->qp, wr, &bad);
	*n = 2;
	if (__builtin_expect(rc == 0, 1))
		return 0;
	*n = bad == behind;
	if (*n) {
		tx_broke(tx, rc);
		return 0;
	}
	if (rc == -ENOMEM)
		optable_untake(tx->table,
			       behind->send_flags & IBV_SEND_SIGNALED);
	return conn_tx_refused(tx, wr, rc);
}

static const struct tcq_ops tx_ops = {tx_send};

int conn_tx_new(struct skein_conn *conn, unsigned bound, unsigned least)
{
	struct conn_tx *tx;

	tx = env_alloc_aligned(conn->ctx->env, 64, sizeof(*tx));
	if (!tx)
		return -ENOMEM;
	tcq_init(&tx->q, conn->ctx->env, &tx_ops, bound);
	if (least > 1)
		tx->q.least = least < tx->q.bound ? least : tx->q.bound;
	tcq_node_init(&tx->own);
	tx->conn = conn;
	tx->table = &conn->ops;
	conn->tx = tx;
	conn->post_stats = &tx->stats;
	return 0;
}

void conn_tx_free(struct skein_conn *conn)
{
	struct conn_tx *tx = conn->tx;

	if (!tx)
		return;
	skein_assert(!tx->open && !tx->held);
	tcq_node_settle(&tx->q, &tx->own);
	conn->tx = NULL;
	conn->post_stats = &conn->eng->stats;
	env_free(conn->ctx->env, tx);
}

void conn_tx_hooks(struct skein_conn *conn, const struct conn_tx_ops *ops,
		   void *state)
{
	conn_tx_hold(conn);
	conn->tx->ops = ops;
	conn->tx->state = state;
	conn_tx_release(conn);
}

void conn_tx_open(struct skein_conn *conn)
{
	if (!conn->tx)
		return;
	/* What a leader asked for when it was open last has come about. */
	atomic_store_explicit(&conn->tx->broke, 0, memory_order_relaxed);
	conn_tx_hold(conn);
	conn->tx->open = true;
	conn->tx->qp = conn->qp;
	conn_tx_release(conn);
}

void conn_tx_close(struct skein_conn *conn)
{
	struct conn_tx *tx = conn->tx;

	if (!tx)
		return;
	skein_assert_debug(engine_is_owner(conn->eng->e));
	tcq_hold(&tx->q, &tx->own);
	tx->open = false;
	tx->qp = conn->qp;
	tcq_release(&tx->q, &tx->own);
}

void conn_tx_hold(struct skein_conn *conn)
{
	struct conn_tx *tx = conn->tx;

	if (!tx)
		return;
	skein_assert_debug(engine_is_owner(conn->eng->e));
	tcq_hold(&tx->q, &tx->own);
	tx->held = true;
}

void conn_tx_release(struct skein_conn *conn)
{
	struct conn_tx *tx = conn->tx;

	if (!tx)
		return;
	tx->held = false;
	tcq_release(&tx->q, &tx->own);
}

int conn_tx_submit(struct skein_conn *lane, struct conn_req *r)
{
	return tcq_submit(&lane->tx->q, &r->node);
}

struct conn_tx *conn_tx_of(struct skein_conn *lane)
{
	return lane->tx;
}

struct tcq *conn_tx_queue(struct skein_conn *lane)
{
	return &lane->tx->q;
}

const struct dev_stats *conn_tx_stats(struct skein_conn *lane)
{
	return &lane->tx->stats;
}
