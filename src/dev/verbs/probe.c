/* SPDX-License-Identifier: MIT */
/*
 * probe.c - what the device can do.
 *
 * Abilities are what the device says, or what it was seen to accept with
 * throw-away objects; where nothing can be asked the answer is the cautious
 * one (docs/design/semantics.md).
 *
 * Thread rule: at open only, by the opening thread.
 */
#include "dev/verbs/verbs.h"

#include <errno.h>

static enum dev_atomic_scope atomic_scope(enum ibv_atomic_cap cap)
{
	switch (cap) {
	case IBV_ATOMIC_HCA:
		return DEV_ATOMIC_HCA;
	case IBV_ATOMIC_GLOB:
		return DEV_ATOMIC_GLOB;
	default:
		return DEV_ATOMIC_NONE;
	}
}

static uint32_t positive(int n)
{
	return n > 0 ? (uint32_t)n : 0;
}

static void read_caps(struct verbs_dev *vd, const struct ibv_device_attr *attr)
{
	struct dev_caps *c = &vd->dev.caps;
	int init = attr->max_qp_init_rd_atom, resp = attr->max_qp_rd_atom;

	/* ordered_read, wake_on_write and death_notice stay false: no NIC
	 * promises them. single_threaded: not built here. */
	c->atomic_scope = atomic_scope(attr->atomic_cap);
	c->msg_sz_max = vd->dev.port_attr.max_msg_sz;
	c->qp_wr_max = positive(attr->max_qp_wr);
	c->sge_max = positive(attr->max_sge);
	c->cqe_max = positive(attr->max_cqe);
	c->rd_atomic_max = positive(init < resp ? init : resp);
	c->mr_len_max = attr->max_mr_size;
	c->qp_max = positive(attr->max_qp);
	c->mr_max = positive(attr->max_mr);
	c->srq = attr->max_srq > 0 && attr->max_srq_wr > 0;
	c->srq_wr_max = c->srq ? positive(attr->max_srq_wr) : 0;
}

/* What a throw-away QP hangs from. */
struct bench {
	struct verbs_dev *vd;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
};

static struct ibv_qp *try_qp(struct bench *b, struct ibv_qp_init_attr *attr)
{
	attr->send_cq = b->cq;
	attr->recv_cq = b->cq;
	attr->cap.max_send_wr = 1;
	attr->cap.max_recv_wr = 1;
	attr->cap.max_send_sge = 1;
	attr->cap.max_recv_sge = 1;
	errno = 0;
	return b->vd->lib.create_qp(b->pd, attr);
}

/*
 * No verb tells how much inline data a QP may have: only create_qp knows. So we
 * ask for less and less with a throw-away QP until the provider makes one; it
 * says how much it granted, perhaps more than we asked for. We also ask that QP
 * whether inbound WRITEs land in ascending order. A provider that cannot tell
 * has not promised it.
 */
static int probe_rc(struct bench *b)
{
	static const uint32_t ask[] = {1024, 512, 256, 128, 64, 32, 0};
	const struct verbs_lib *lib = &b->vd->lib;
	struct dev_caps *caps = &b->vd->dev.caps;
	struct ibv_qp_init_attr attr;
	struct ibv_qp *qp = NULL;
	size_t i;

	for (i = 0; !qp && i < sizeof(ask) / sizeof(ask[0]); i++) {
		attr = (struct ibv_qp_init_attr){
			.qp_type = IBV_QPT_RC,
			.cap.max_inline_data = ask[i],
		};
		qp = try_qp(b, &attr);
		caps->inline_max = attr.cap.max_inline_data;
	}
	if (!qp)
		return verbs_errno();
	if (lib->query_qp_data_in_order)
		caps->ordered_write =
			lib->query_qp_data_in_order(qp, IBV_WR_RDMA_WRITE, 0) ==
			1;
	lib->destroy_qp(qp);
	return 0;
}

/* No verb lists the QP types either. */
static bool can_make(struct bench *b, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr attr = {.qp_type = type};
	struct ibv_qp *qp = try_qp(b, &attr);

	if (!qp)
		return false;
	b->vd->lib.destroy_qp(qp);
	return true;
}

int verbs_probe(struct verbs_dev *vd, const struct ibv_device_attr *attr)
{
	struct bench b = {.vd = vd};
	int rc;

	read_caps(vd, attr);
	errno = 0;
	b.pd = vd->lib.alloc_pd(vd->dev.verbs);
	if (!b.pd)
		return verbs_errno();
	b.cq = vd->lib.create_cq(vd->dev.verbs, 1, NULL, NULL, 0);
	if (!b.cq) {
		rc = verbs_errno();
		goto out_pd;
	}
	rc = probe_rc(&b);
	if (rc)
		goto out_cq;
	vd->dev.caps.uc = can_make(&b, IBV_QPT_UC);
	vd->dev.caps.ud = can_make(&b, IBV_QPT_UD);
out_cq:
	vd->lib.destroy_cq(b.cq);
out_pd:
	vd->lib.dealloc_pd(b.pd);
	return rc;
}
