/* SPDX-License-Identifier: MIT */
/*
 * post.c - the port of the RPC engines on a connection: work requests.
 *
 * Messages are unsignalled: docs/protocol/rpc.md, section 1, says why their
 * buffers may be used again. READs have an operation each.
 *
 * Thread rule: the engine's owner; on a lane it holds the sending side
 * (lane_client.c).
 */
#include <arpa/inet.h>
#include <errno.h>

#include "base/list.h"
#include "rpc/state.h"

static struct rpc_conn *conn_of(struct rpc_port *port)
{
	return container_of(port, struct rpc_conn, port);
}

/* A post that failed for want of memory is tried again in a later round. */
static int not_posted(struct rpc_conn *rc, int err, bool credit)
{
	if (credit)
		conn_imm_refund(rc->conn);
	return err == -ENOMEM ? -EAGAIN : err;
}

/* Takes a receive credit for a message that will be posted. Not when the queue
 * is full, for a credit cannot be given back. */
static bool credit(struct rpc_conn *rc)
{
	return conn_send_room(rc->conn) && conn_imm_credit(rc->conn);
}

static int post_write(struct rpc_port *port, uint64_t off, uint32_t len,
		      bool *wake)
{
	struct rpc_conn *rc = conn_of(port);
	struct ibv_sge sge = {.addr = (uint64_t)(uintptr_t)(port->base + off),
			      .length = len,
			      .lkey = rc->lkey};
	struct ibv_send_wr wr;
	int err;

	/* Field by field: the struct is large and mostly not looked at. */
	wr.sg_list = &sge;
	wr.num_sge = 1;
	wr.opcode = IBV_WR_RDMA_WRITE;
	wr.send_flags = len <= rc->inline_max ? IBV_SEND_INLINE : 0;
	wr.wr.rdma.remote_addr = rc->peer_base + off;
	wr.wr.rdma.rkey = rc->peer_rkey;
	if (__builtin_expect(wake != NULL, 0)) {
		if (!conn_send_room(rc->conn))
			return -EAGAIN;
		*wake = conn_imm_credit(rc->conn);
		if (*wake) {
			wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
			wr.imm_data = htonl(CONN_IMM(CONN_IMM_WAKE, 0));
		}
	}
	err = conn_post(rc->conn, &wr, NULL);
	return __builtin_expect(err == 0, 1)
		       ? 0
		       : not_posted(rc, err, wake && *wake);
}

static int post_signal(struct rpc_port *port, uint32_t imm)
{
	struct rpc_conn *rc = conn_of(port);
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
				 .imm_data = htonl(imm)};
	int err;

	if (!credit(rc))
		return -EAGAIN;
	err = conn_post(rc->conn, &wr, NULL);
	port->stats.signals += !err;
	return err ? not_posted(rc, err, true) : 0;
}

static void read_done(struct conn_op *op, enum ibv_wc_status status)
{
	struct rpc_conn_read *r = container_of(op, struct rpc_conn_read, op);
	struct rpc_read *rd = r->rd;

	r->rd = NULL;
	rd->done(rd, status == IBV_WC_SUCCESS ? 0 : -EIO);
}

static int post_read(struct rpc_conn *rc, struct rpc_conn_read *r,
		     struct ibv_sge *sge, uint64_t addr, uint32_t rkey,
		     struct rpc_read *rd)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_READ,
				 .sg_list = sge,
				 .num_sge = 1,
				 .wr.rdma.remote_addr = addr,
				 .wr.rdma.rkey = rkey};
	int err;

	r->op.done = read_done;
	r->rd = rd;
	err = conn_post(rc->conn, &wr, &r->op);
	if (err)
		r->rd = NULL;
	return err ? not_posted(rc, err, false) : 0;
}

static int post_read_head(struct rpc_port *port, struct rpc_read *rd)
{
	struct rpc_conn *rc = conn_of(port);
	struct ibv_sge sge = {
		.addr = (uint64_t)(uintptr_t)(port->base + RPC_CTL_HEAD_DST),
		.length = sizeof(uint64_t),
		.lkey = rc->lkey};

	return post_read(rc, &rc->reads[0], &sge, rc->peer_base + RPC_CTL_HEAD,
			 rc->peer_rkey, rd);
}

static struct rpc_conn_read *read_free(struct rpc_conn *rc)
{
	for (unsigned i = 0; i < RPC_PIECES; i++)
		if (!rc->large_reads[i].rd)
			return &rc->large_reads[i];
	return NULL;
}

static int post_read_large(struct rpc_port *port, struct rpc_buf *buf,
			   const struct rpc_large *from, uint64_t off,
			   uint32_t len, struct rpc_read *rd)
{
	struct rpc_conn *rc = conn_of(port);
	struct rpc_conn_read *r = read_free(rc);
	struct ibv_sge sge = {.addr = (uint64_t)(uintptr_t)buf->addr + off,
			      .length = len,
			      .lkey = rpc_bufs_lkey(buf)};

	if (!r || !conn_send_room(rc->conn) || !conn_turn(rc->conn, len))
		return -EAGAIN;
	if (rpc_bufs_fill(buf, off + len))
		return -ENOMEM;
	return post_read(rc, r, &sge, from->addr + off, from->rkey, rd);
}

static int post_read_resp(struct rpc_port *port, uint64_t to, uint64_t off,
			  uint32_t len, struct rpc_read *rd)
{
	struct rpc_conn *rc = conn_of(port);
	struct ibv_sge sge = {.addr = (uint64_t)(uintptr_t)(port->base + to),
			      .length = len,
			      .lkey = rc->lkey};

	return post_read(rc, &rc->reads[1], &sge, rc->peer_base + off,
			 rc->peer_rkey, rd);
}

static struct rpc_buf *post_buf_get(struct rpc_port *port, size_t len,
				    bool to_read)
{
	return rpc_bufs_get(conn_of(port), len, to_read);
}

static void post_buf_put(struct rpc_port *port, struct rpc_buf *buf)
{
	rpc_bufs_put(conn_of(port), buf);
}

static int post_buf_adopt(struct rpc_port *port, struct rpc_buf *buf)
{
	return rpc_bufs_adopt(conn_of(port), buf);
}

static void post_buf_let(struct rpc_port *port, struct rpc_buf *buf)
{
	rpc_bufs_let(conn_of(port), buf);
}

static void post_wake(struct rpc_port *port)
{
	conn_wake(conn_of(port)->conn);
}

const struct rpc_port_ops rpc_post_ops = {
	.write = post_write,
	.signal = post_signal,
	.read_head = post_read_head,
	.read = post_read_large,
	.read_resp = post_read_resp,
	.buf_get = post_buf_get,
	.buf_put = post_buf_put,
	.buf_adopt = post_buf_adopt,
	.buf_let = post_buf_let,
	.wake = post_wake,
};
