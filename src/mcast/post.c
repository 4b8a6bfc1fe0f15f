/* SPDX-License-Identifier: MIT */
/*
 * post.c - records and blocks as work requests on a connection.
 *
 * A record goes inline and unsignalled. If the device's inline limit is too
 * small, the record is posted from its place in the mirror ring. That place is
 * used again 128 records later. By then at least 64 credits have come back,
 * which proves that the neighbour has read this record. FAIL is signalled: a
 * member that leaves cuts the link after it.
 */
#include <arpa/inet.h>
#include <errno.h>

#include "mcast/state.h"

/* The memory that the record is posted from. */
static const struct mcast_rec *mirror(const struct mcast_link *link,
				      const struct mcast_rec *rec)
{
	struct mcast_rec *slot;

	if (!link->mirror.recs) /* inline: the post copies it */
		return rec;
	slot = &link->mirror.recs[link->out % MCAST_RECORDS];
	*slot = *rec;
	return slot;
}

static int posted(struct mcast_link *link, int rc)
{
	if (rc == 0) {
		link->out++;
		return 0;
	}
	conn_imm_refund(link->conn);
	return rc == -ENOMEM ? -EAGAIN : rc;
}

/* Writes the record into its place in the neighbour's ring. */
static int write_record(struct mcast_link *link, const struct mcast_rec *rec,
			enum ibv_wr_opcode opcode, struct conn_op *op)
{
	struct ibv_sge sge = {.addr = (uint64_t)(uintptr_t)mirror(link, rec),
			      .length = sizeof(*rec),
			      .lkey = link->mirror.lkey};
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = link->mirror.recs ? 0 : IBV_SEND_INLINE,
		.imm_data =
			htonl(CONN_IMM(CONN_IMM_MCAST, mcast_imm_value(rec))),
		.wr.rdma.remote_addr = link->peer.addr +
				       link->out % MCAST_RECORDS * sizeof(*rec),
		.wr.rdma.rkey = link->peer.rkey};

	return conn_post(link->conn, &wr, op);
}

static void fail_done(struct conn_op *op, enum ibv_wc_status status)
{
	struct mcast_link *link = container_of(op, struct mcast_link, fail_op);

	if (status != IBV_WC_SUCCESS || !link->group)
		return;
	mcast_eng_fail_there(&link->group->eng, link->nb, link->channel);
	mcast_group_kick(link->group);
}

int mcast_post_record(struct mcast_link *link, const struct mcast_rec *rec)
{
	struct conn_op *op = rec->type == MCAST_FAIL ? &link->fail_op : NULL;

	if (!link->ready || !conn_send_room(link->conn) ||
	    !conn_imm_credit(link->conn))
		return -EAGAIN;
	link->fail_op.done = fail_done;
	return posted(link,
		      write_record(link, rec, IBV_WR_RDMA_WRITE_WITH_IMM, op));
}

static void block_done(struct conn_op *op, enum ibv_wc_status status)
{
	struct mcast_block_op *b = container_of(op, struct mcast_block_op, op);
	struct mcast_op *user = b->user;

	b->user = NULL;
	user->done(user, status == IBV_WC_SUCCESS ? 0 : -EIO);
	if (!b->link->group)
		return;
	b->link->group->eng.stats.rnr += status == IBV_WC_RNR_RETRY_EXC_ERR;
	mcast_group_kick(b->link->group);
}

static void small_done(struct conn_op *op, enum ibv_wc_status status)
{
	struct mcast_small_op *s = container_of(op, struct mcast_small_op, op);
	struct mcast_op *user = s->user;

	s->user = NULL;
	if (!user)
		/* every receiver had it, and the group has been closed */
		return;
	user->done(user, status == IBV_WC_SUCCESS ? 0 : -EIO);
	if (s->link->group)
		mcast_group_kick(s->link->group);
}

/* The bytes begin with the record: one WRITE, and its immediate wakes the
 * receiver. */
int mcast_post_small(struct mcast_link *link, const struct mcast_buf *from,
		     uint32_t len, uint64_t to, uint32_t rkey, uint32_t slot,
		     struct mcast_op *op)
{
	struct mcast_small_op *s = &link->small[slot];
	struct ibv_sge sge = {.addr = (uint64_t)(uintptr_t)from->addr,
			      .length = len,
			      .lkey = from->lkey};
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.send_flags = len <= link->inline_max ? IBV_SEND_INLINE : 0,
		.imm_data = htonl(CONN_IMM(
			CONN_IMM_MCAST,
			mcast_imm_value((const struct mcast_rec *)(const void *)
						from->addr))),
		.wr.rdma.remote_addr = to,
		.wr.rdma.rkey = rkey};
	int rc;

	if (!link->ready || !conn_send_room(link->conn) ||
	    !conn_imm_credit(link->conn))
		return -EAGAIN;
	s->op.done = small_done;
	s->link = link;
	s->user = op;
	rc = conn_post(link->conn, &wr, &s->op);
	if (rc == 0)
		return 0;
	s->user = NULL;
	conn_imm_refund(link->conn);
	return rc == -ENOMEM ? -EAGAIN : rc;
}

static int write_payload(struct mcast_link *link, const struct mcast_rec *rec,
			 const struct mcast_buf *from, uint64_t to,
			 uint32_t rkey, struct conn_op *op)
{
	struct ibv_sge sge = {.addr = (uint64_t)(uintptr_t)from->addr,
			      .length = rec->len,
			      .lkey = from->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = rec->len ? 1 : 0,
				 .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
				 .imm_data = htonl(CONN_IMM(
					 CONN_IMM_MCAST, mcast_imm_value(rec))),
				 .wr.rdma.remote_addr = to,
				 .wr.rdma.rkey = rkey};

	return conn_post(link->conn, &wr, op);
}

/* The record goes before the block. After the block, it would wait whenever
 * another sender has taken the receiver's bandwidth. */
int mcast_post_block(struct mcast_link *link, const struct mcast_rec *rec,
		     const struct mcast_buf *from, uint64_t to, uint32_t rkey,
		     struct mcast_op *op)
{
	struct mcast_block_op *b = NULL;
	int rc;

	for (unsigned i = 0; !b && i < MCAST_SENDS; i++)
		if (!link->ops[i].user)
			b = &link->ops[i];
	if (!b || !link->ready || conn_send_room(link->conn) < 2 ||
	    !conn_imm_credit(link->conn))
		return -EAGAIN;
	b->op.done = block_done;
	b->link = link;
	b->user = op;
	rc = write_record(link, rec, IBV_WR_RDMA_WRITE, NULL);
	if (rc == 0)
		rc = write_payload(link, rec, from, to, rkey, &b->op);
	if (rc)
		b->user = NULL;
	return posted(link, rc);
}
