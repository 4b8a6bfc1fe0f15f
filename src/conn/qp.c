/* SPDX-License-Identifier: MIT */
/*
 * qp.c - a connection's QP: made, connected, and put away.
 *
 * Both queues complete to one CQ of the engine, which an idle round polls once.
 */
#include "conn/state.h"

#include <errno.h>
#include <stdio.h>

#define PSN_MASK 0xffffffu
#define SEQ_STEP 0x10000u

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* May any thread post sends? At either end a combiner's leader does, one thread
 * at a time; the engine's owner posts receives. On a module's own connection
 * only the engine's owner posts. */
static bool any_thread(const struct skein_conn *conn)
{
	return !conn->sole;
}

static uint32_t sq_depth(const struct skein_conn *conn)
{
	return conn->pool
		       ? CONN_POOL_DEPTH
		       : least(CONN_SQ_DEPTH, conn->eng->dev->caps.qp_wr_max);
}

/* The combiner's bound: no more requests than the QP's queue takes at once, or
 * a leader would wait for more than it can send. */
static unsigned combine_bound(const struct skein_conn *conn)
{
	uint32_t depth = sq_depth(conn);
	uint32_t own = CONN_SQ_OWN + CONN_SENDQ_MSG_WRS;

	return least(conn_combine(conn), depth > own ? depth - own : 1);
}

static int make(struct skein_conn *conn)
{
	struct skein_engine *eng = conn->eng;
	const struct dev_caps *caps = &eng->dev->caps;
	uint32_t depth = sq_depth(conn);
	struct ibv_qp_init_attr attr = {
		.qp_context = conn,
		.send_cq = conn->cq->cq,
		.recv_cq = conn->cq->cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = depth,
			.max_recv_wr = CONN_RECVS + CONN_RECVS_OWN,
			.max_send_sge = least(CONN_SGE_MAX, caps->sge_max),
			.max_recv_sge = 1,
			.max_inline_data =
				least(CONN_INLINE_MAX, caps->inline_max)},
	};
	unsigned flags = 0;
	int rc;

	if (caps->single_threaded)
		flags = any_thread(conn) ? DEV_QP_SERIAL
					 : DEV_QP_SINGLE_THREADED;
	rc = eng->dev->ops->create_qp(eng->dev, eng->ctx->pd, &attr, flags,
				      &conn->qp);
	if (rc)
		return rc;
	conn->inline_max = attr.cap.max_inline_data;
	return 0;
}

/* A pooled connection's: it is its link's, and connected. */
static int make_pooled(struct skein_conn *conn)
{
	conn->vqp = conn->peer->link.vqp;
	conn->vqp->refs++;
	conn->qp = &conn->vqp->qp;
	conn->inline_max = conn_pool_ops->inline_max;
	return 0;
}

static int to_init(struct skein_conn *conn)
{
	struct dev *dev = conn->eng->dev;
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
		     IBV_ACCESS_REMOTE_READ;
	int rc;

	if (dev->caps.atomic_scope != DEV_ATOMIC_NONE)
		access |= IBV_ACCESS_REMOTE_ATOMIC;
	rc = dev_qp_init(dev, conn->qp, access);
	if (rc)
		return rc;
	return conn_recvs_post(conn, CONN_RECVS + CONN_RECVS_OWN - 1);
}

static void destroy(struct skein_conn *conn)
{
	struct dev *dev = conn->eng->dev;
	int rc = 0;

	if (conn->vqp)
		conn_vqp_put(conn->vqp);
	else
		rc = dev->ops->destroy_qp(dev, conn->qp);
	if (rc) {
		conn->stuck = true;
		env_log(conn->eng->env, ENV_LOG_ERROR,
			"%s: cannot destroy QP 0x%x: %s", dev->name,
			conn->qp->qp_num, skein_strerror(rc));
	}
	conn->vqp = NULL;
	conn->qp = NULL;
}

int conn_qp_make(struct skein_conn *conn)
{
	struct skein_engine *eng = conn->eng;
	uint32_t cqe = CONN_SQ_DEPTH + CONN_RECVS + CONN_RECVS_OWN;
	uint16_t index;
	int rc = 0;

	if (ctx_port_lost(conn->ctx))
		return -ENETDOWN;
	if (any_thread(conn) && !conn->sendq)
		rc = conn_sendq_new(conn, combine_bound(conn),
				    conn_combine_least(conn));
	if (rc == 0 && any_thread(conn) && conn->client)
		rc = eng_scratch_make(eng); /* only the owner may */
	if (rc)
		return rc;
	if (!conn->pool)
		rc = eng_cq_get(eng, cqe, any_thread(conn), &conn->cq);
	if (rc)
		return rc;
	rc = conn->pool ? make_pooled(conn) : make(conn);
	if (rc)
		goto err_cq;
	optable_init(&conn->ops, conn->slots, CONN_SQ_DEPTH + 1, sq_depth(conn),
		     conn->index, eng->epoch += SEQ_STEP);
	rc = eng_index_get(eng, conn, &index);
	if (rc)
		goto err_qp;
	conn->index = index;
	conn->index_held = true;
	conn->ops.tag = (uint64_t)index << OPTABLE_CONN_SHIFT;
	conn->recv_head = conn->recv_tail = conn->ops.head;
	conn->recv_owed = 0;
	atomic_store(&conn->imm_taken, 0);
	atomic_store(&conn->imm_given, CONN_RECVS);
	conn->sq_flushed = conn->rq_flushed = false;
	env_random(eng->env, &conn->psn, sizeof(conn->psn));
	conn->psn &= PSN_MASK;
	rc = conn->pool ? 0 : to_init(conn);
	if (rc)
		conn_qp_free(conn);
	return rc;

err_qp:
	destroy(conn);
err_cq:
	if (conn->cq)
		eng_cq_put(conn->cq, cqe);
	conn->cq = NULL;
	return rc;
}

void conn_qp_params(struct skein_conn *conn, struct handshake_params *p)
{
	memset(p, 0, sizeof(*p));
	memcpy(p->ctx_id, conn->ctx->id, sizeof(p->ctx_id));
	p->pid = conn->ctx->pid;
	p->shard = conn->shard;
	p->recvs = CONN_RECVS;
	snprintf(p->device, sizeof(p->device), "%s", conn->eng->dev->ops->kind);
	dev_qp_addr(conn->eng->dev, conn->qp, conn->psn, &p->qp);
	if (conn->opts.mtu && conn->opts.mtu < p->qp.mtu)
		p->qp.mtu = conn->opts.mtu;
}

/* Any thread, in which the device holds a lock of its own. The engine is there
 * as long as the QP. */
static void on_reached(struct dev_reach *r)
{
	struct skein_conn *conn = container_of(r, struct skein_conn, reach);

	/* Release pairs with the acquires in conn_service() and eng_poll(). */
	atomic_store_explicit(&conn->reached, true, memory_order_release);
	atomic_store_explicit(&conn->eng->reached, true, memory_order_release);
	engine_kick(conn->eng->e);
}

int conn_qp_reach(struct skein_conn *conn, const struct handshake_params *p)
{
	struct dev *dev = conn->eng->dev;
	int rc;

	if (!dev->ops->reach || conn->pool)
		return 0;
	conn->reach.on_answer = on_reached;
	atomic_store(&conn->reached, false);
	rc = dev->ops->reach(dev, conn->qp, &p->qp, &conn->reach);
	conn->reaching = rc == -EINPROGRESS;
	return rc;
}

int conn_qp_connect(struct skein_conn *conn, const struct handshake_params *p)
{
	struct dev *dev = conn->eng->dev;
	struct dev_caps caps;
	int rc = 0;

	if (!conn->pool)
		rc = dev_qp_rtr(dev, conn->qp, &p->qp, &conn->opts);
	if (rc == 0 && !conn->pool)
		rc = dev_qp_rts(dev, conn->qp, conn->psn, &p->qp, &conn->opts);
	if (rc)
		return rc;
	conn->connected = true;
	if (!conn->pool)
		atomic_store(&conn->patience_ns,
			     dev_qp_patience_ns(dev, conn->qp, &conn->opts));
	conn_caps(conn, &caps);
	conn->poster_copies = caps.poster_copies;
	if (p->recvs < CONN_RECVS)
		atomic_store(&conn->imm_given, p->recvs);
	return 0;
}

void conn_qp_free(struct skein_conn *conn)
{
	if (!conn->qp)
		return;
	destroy(conn);
	if (conn->index_held)
		eng_index_put(conn->eng, conn->index);
	conn->index_held = false;
	conn->connected = conn->reaching = false;
	if (conn->cq)
		eng_cq_put(conn->cq,
			   CONN_SQ_DEPTH + CONN_RECVS + CONN_RECVS_OWN);
	conn->cq = NULL;
}

int conn_qp_probe(struct skein_conn *conn)
{
	struct dev *dev = conn->eng->dev;

	return dev->ops->probe && !conn->pool ? dev->ops->probe(dev, conn->qp)
					      : -EOPNOTSUPP;
}

int conn_qp_err(struct skein_conn *conn)
{
	if (!conn->pool)
		return dev_qp_err(conn->eng->dev, conn->qp);
	/* The queue pairs below are other connections' too. The peer can write
	 * until the memory is deregistered. */
	conn->stuck = true;
	conn->rq_flushed = true;
	return 0;
}
