/* SPDX-License-Identifier: MIT */
#include "ud_rig.h"

struct ibv_qp *ud_qp(struct ud_end *e)
{
	struct ibv_qp_init_attr a = {
		.send_cq = e->r.cq,
		.recv_cq = e->r.cq,
		.srq = e->srq,
		.qp_type = IBV_QPT_UD,
		.cap = {.max_send_wr = e->r.o.wr ? e->r.o.wr : RIG_WR,
			.max_recv_wr = e->r.o.wr ? e->r.o.wr : RIG_WR,
			.max_send_sge = 4,
			.max_recv_sge = 4,
			.max_inline_data = 256}};
	struct ibv_qp *qp;

	assert_int_equal(e->r.dev->ops->create_qp(e->r.dev, e->r.pd, &a,
						  e->r.o.flags, &qp),
			 0);
	return qp;
}

void ud_ready(struct ud_end *e, struct ibv_qp *qp)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT,
				.port_num = e->r.dev->port,
				.qkey = UD_QKEY};
	const struct dev_ops *ops = e->r.dev->ops;

	assert_int_equal(ops->modify_qp(e->r.dev, qp, &a,
					IBV_QP_STATE | IBV_QP_PKEY_INDEX |
						IBV_QP_PORT | IBV_QP_QKEY),
			 0);
	a.qp_state = IBV_QPS_RTR;
	assert_int_equal(ops->modify_qp(e->r.dev, qp, &a, IBV_QP_STATE), 0);
	a.qp_state = IBV_QPS_RTS;
	assert_int_equal(ops->modify_qp(e->r.dev, qp, &a,
					IBV_QP_STATE | IBV_QP_SQ_PSN),
			 0);
}

void ud_ah_attr(struct ud_end *e, struct ibv_ah_attr *a)
{
	*a = (struct ibv_ah_attr){.is_global = 1,
				  .port_num = e->r.dev->port,
				  .grh = {.dgid = e->r.dev->gid.gid,
					  .sgid_index =
						  (uint8_t)e->r.dev->gid.index,
					  .traffic_class = 0x20,
					  .hop_limit = 9}};
}

static void open_end(struct ud_end *e, const struct rig_opts *o, bool shared)
{
	struct ibv_srq_init_attr at = {
		.attr = {.max_wr = RIG_WR, .max_sge = 4}};
	struct ibv_ah_attr attr;

	rig_open(&e->r, o);
	e->srq = NULL;
	if (shared)
		assert_int_equal(e->r.dev->ops->create_srq(e->r.dev, e->r.pd,
							   &at, &e->srq),
				 0);
	e->r.dev->ops->destroy_qp(e->r.dev, e->r.qp);
	e->r.qp = ud_qp(e);
	ud_ready(e, e->r.qp);
	ud_ah_attr(e, &attr);
	assert_int_equal(
		e->r.dev->ops->create_ah(e->r.dev, e->r.pd, &attr, &e->ah), 0);
}

void ud_open(struct ud_end *e, const struct rig_opts *o)
{
	open_end(e, o, false);
}

void ud_open_srq(struct ud_end *e, const struct rig_opts *o)
{
	open_end(e, o, true);
}

void ud_close(struct ud_end *e)
{
	assert_int_equal(e->r.dev->ops->destroy_ah(e->r.dev, e->ah), 0);
	if (e->srq) {
		if (e->r.qp)
			e->r.dev->ops->destroy_qp(e->r.dev, e->r.qp);
		e->r.qp = NULL;
		assert_int_equal(e->r.dev->ops->destroy_srq(e->r.dev, e->srq),
				 0);
	}
	rig_close(&e->r);
}

void ud_state(struct ud_end *e, enum ibv_qp_state st)
{
	struct ibv_qp_attr a = {.qp_state = st};

	assert_int_equal(e->r.dev->ops->modify_qp(e->r.dev, e->r.qp, &a,
						  IBV_QP_STATE),
			 0);
}

enum ibv_qp_state ud_query(struct ud_end *e)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	assert_int_equal(e->r.dev->ops->query_qp(e->r.dev, e->r.qp, &a,
						 IBV_QP_STATE, &init),
			 0);
	return a.qp_state;
}

void ud_wr_to(struct ud_end *e, uint32_t qpn, struct ibv_send_wr *wr,
	      struct ibv_sge *sge)
{
	memset(wr, 0, sizeof(*wr));
	wr->wr_id = 11;
	wr->sg_list = sge;
	wr->num_sge = 1;
	wr->opcode = IBV_WR_SEND;
	wr->send_flags = IBV_SEND_SIGNALED;
	wr->wr.ud.ah = e->ah;
	wr->wr.ud.remote_qpn = qpn;
	wr->wr.ud.remote_qkey = UD_QKEY;
}

void ud_wr(struct ud_end *e, struct ud_end *to, struct ibv_send_wr *wr,
	   struct ibv_sge *sge)
{
	ud_wr_to(e, to->r.qp->qp_num, wr, sge);
}

void ud_send_to(struct ud_end *e, uint32_t qpn, uint64_t id, void *src,
		uint32_t len, unsigned flags)
{
	struct ibv_sge g = {(uintptr_t)src, len, e->r.lkey};
	struct ibv_send_wr wr, *bad;

	ud_wr_to(e, qpn, &wr, &g);
	wr.wr_id = id;
	wr.send_flags |= flags;
	assert_int_equal(ibv_post_send(e->r.qp, &wr, &bad), 0);
}

void ud_send(struct ud_end *e, struct ud_end *to, uint64_t id, void *src,
	     uint32_t len, unsigned flags)
{
	ud_send_to(e, to->r.qp->qp_num, id, src, len, flags);
}

void ud_recv(struct ud_end *e, uint64_t id, size_t off, uint32_t len)
{
	struct ibv_sge g = {(uintptr_t)e->r.buf + off, len, e->r.lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &g, .num_sge = 1},
			   *bad;

	if (e->srq)
		assert_int_equal(ibv_post_srq_recv(e->srq, &wr, &bad), 0);
	else
		assert_int_equal(ibv_post_recv(e->r.qp, &wr, &bad), 0);
}
