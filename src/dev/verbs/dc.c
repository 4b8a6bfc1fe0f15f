/* SPDX-License-Identifier: MIT */
/*
 * dc.c - see dc.h. KRCore, section 4, is what it is for.
 *
 * Written from the manual pages mlx5dv_create_qp(3), mlx5dv_wr_post(3) and
 * ibv_wr_post(3), which are quoted where they are followed; the masks of
 * ibv_modify_qp() are those that Linux' mlx5 driver checks for
 * (modify_dci_qp_is_ok(), mlx5_ib_modify_dct()). Tested against a mock of these
 * calls (tests/unit/verbs/test_dc.c); it has not run on hardware.
 */
#include "dev/verbs/verbs.h"

#ifdef SKEIN_HAVE_MLX5DV

#include "env/env.h"

#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <string.h>

#define QPN_MASK 0xffffffu
#define INLINE_PIECES 16

/* The operations that vqp posts: all of RC but those on memory windows. */
#define SEND_OPS                                                          \
	(IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |             \
	 IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | \
	 IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |   \
	 IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)

/* --- states ------------------------------------------------------------ */

static int modify(struct verbs_dev *vd, struct ibv_qp *qp,
		  struct ibv_qp_attr *attr, int mask)
{
	return vd->dev.ops->modify_qp(&vd->dev, qp, attr, mask);
}

static enum ibv_mtu path_mtu(const struct dev_path *path,
			     const struct dev_qp_opts *opts)
{
	if (opts->mtu && opts->mtu < path->port.active_mtu)
		return (enum ibv_mtu)opts->mtu;
	return path->port.active_mtu;
}

/* A DCI has no peer: each request names its destination by an address
 * handle. */
static int dci_up(struct verbs_dev *vd, struct ibv_qp *qp,
		  const struct dev_qp_opts *opts)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
				   .port_num = vd->dev.port};
	struct dev_path path;
	int rc;

	dev_path_now(&vd->dev, &path);
	rc = modify(vd, qp, &attr,
		    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT);
	if (rc)
		return rc;
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = path_mtu(&path, opts);
	rc = modify(vd, qp, &attr, IBV_QP_STATE | IBV_QP_PATH_MTU);
	if (rc)
		return rc;
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = opts->timeout;
	attr.retry_cnt = opts->retry_cnt;
	attr.rnr_retry = opts->rnr_retry;
	attr.max_rd_atomic = dev_rd_atomic(&vd->dev);
	return modify(vd, qp, &attr,
		      IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
			      IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			      IBV_QP_MAX_QP_RD_ATOMIC);
}

/* RTR is the last state of a DCT. In this transition the driver creates the DCT
 * and gives it its number. The address vector says from which address it
 * answers. */
static int dct_up(struct verbs_dev *vd, struct ibv_qp *qp, int access,
		  const struct dev_qp_opts *opts)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
				   .port_num = vd->dev.port,
				   .qp_access_flags = (unsigned)access};
	struct dev_path path;
	int rc;

	dev_path_now(&vd->dev, &path);
	if (path.gid.index < 0)
		return -EADDRNOTAVAIL;
	rc = modify(vd, qp, &attr,
		    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			    IBV_QP_ACCESS_FLAGS);
	if (rc)
		return rc;
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = path_mtu(&path, opts);
	attr.min_rnr_timer = opts->min_rnr_timer;
	attr.ah_attr.port_num = vd->dev.port;
	attr.ah_attr.sl = opts->sl;
	attr.ah_attr.is_global =
		path.port.link_layer != IBV_LINK_LAYER_INFINIBAND ||
		(path.port.flags & IBV_QPF_GRH_REQUIRED);
	attr.ah_attr.grh.sgid_index = (uint8_t)path.gid.index;
	attr.ah_attr.grh.hop_limit = DEV_HOP_LIMIT;
	attr.ah_attr.grh.traffic_class = opts->traffic_class;
	return modify(vd, qp, &attr,
		      IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER | IBV_QP_AV |
			      IBV_QP_PATH_MTU);
}

/* --- making ------------------------------------------------------------ */

static int make(struct verbs_dev *vd, struct ibv_qp_init_attr_ex *ex,
		struct mlx5dv_qp_init_attr *dv, struct ibv_qp **qp)
{
	struct ibv_qp *q = NULL;

	/* mlx5dv_create_qp(3): "on error NULL will be returned and errno will
	 * be set"; mlx5dv_wr_post(3): "attr_ex.qp_type = IBV_QPT_DRIVER". */
	ex->qp_type = IBV_QPT_DRIVER;
	ex->comp_mask |= IBV_QP_INIT_ATTR_PD;
	/* mlx5dv_create_qp(3): "MLX5DV_QP_INIT_ATTR_MASK_DC: valid values in
	 * dc_init_attr". */
	dv->comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
	errno = 0;
	q = vd->dc.create_qp(vd->dev.verbs, ex, dv);
	if (!q)
		return verbs_errno();
	*qp = q;
	return 0;
}

static int make_dci(struct verbs_dev *vd, struct ibv_pd *pd,
		    struct ibv_qp_init_attr *attr, struct ibv_qp **qp)
{
	/* mlx5dv_wr_post(3): "To use these APIs a QP must be created using
	 * mlx5dv_create_qp() with send_ops_flags of struct
	 * ibv_qp_init_attr_ex set", and the example: MLX5DV_DCTYPE_DCI. */
	struct ibv_qp_init_attr_ex ex = {
		.qp_context = attr->qp_context,
		.send_cq = attr->send_cq,
		.recv_cq = attr->recv_cq,
		.cap = attr->cap,
		.sq_sig_all = attr->sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = SEND_OPS,
		.pd = pd,
	};
	struct mlx5dv_qp_init_attr dv = {
		.dc_init_attr = {.dc_type = MLX5DV_DCTYPE_DCI}};
	int rc;

	/* It receives nothing. */
	ex.cap.max_recv_wr = 0;
	ex.cap.max_recv_sge = 0;
	rc = make(vd, &ex, &dv, qp);
	if (rc == 0)
		attr->cap = ex.cap;
	return rc;
}

static int make_dct(struct verbs_dev *vd, struct ibv_pd *pd, struct ibv_cq *cq,
		    struct ibv_srq *srq, uint64_t dc_key, struct ibv_qp **qp)
{
	/* No send queue, hence no send_ops_flags; its receives are the SRQ's.
	 * mlx5dv_create_qp(3): "dct_access_key: used to create a DCT QP". */
	struct ibv_qp_init_attr_ex ex = {
		.send_cq = cq,
		.recv_cq = cq,
		.srq = srq,
		.pd = pd,
	};
	struct mlx5dv_qp_init_attr dv = {
		.dc_init_attr = {.dc_type = MLX5DV_DCTYPE_DCT,
				 .dct_access_key = dc_key}};

	return make(vd, &ex, &dv, qp);
}

int verbs_create_dci(struct dev *dev, struct ibv_pd *pd,
		     struct ibv_qp_init_attr *attr,
		     const struct dev_qp_opts *opts, struct ibv_qp **qp)
{
	struct dev_qp_opts o = dev_qp_opts_full(opts);
	struct ibv_qp_init_attr a = *attr;
	struct ibv_qp *q = NULL;
	int rc;

	rc = make_dci(verbs_dev(dev), pd, &a, &q);
	if (rc)
		return rc;
	rc = dci_up(verbs_dev(dev), q, &o);
	if (rc) {
		dev->ops->destroy_qp(dev, q);
		return rc;
	}
	attr->cap = a.cap;
	*qp = q;
	return 0;
}

int verbs_create_dct(struct dev *dev, struct ibv_pd *pd, struct ibv_cq *cq,
		     struct ibv_srq *srq, uint64_t dc_key, int access,
		     const struct dev_qp_opts *opts, struct ibv_qp **qp)
{
	struct dev_qp_opts o = dev_qp_opts_full(opts);
	struct ibv_qp *q = NULL;
	int rc;

	rc = make_dct(verbs_dev(dev), pd, cq, srq, dc_key, &q);
	if (rc)
		return rc;
	rc = dct_up(verbs_dev(dev), q, access, &o);
	if (rc) {
		dev->ops->destroy_qp(dev, q);
		return rc;
	}
	*qp = q;
	return 0;
}

/* --- posting ----------------------------------------------------------- */

static bool can_post(const struct ibv_send_wr *wr)
{
	/* "Valid only for SEND and RDMA_WRITE" (ibv_wr_post(3), inline). */
	bool is_inline = wr->send_flags & IBV_SEND_INLINE;

	switch (wr->opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return !is_inline || wr->num_sge <= INLINE_PIECES;
	case IBV_WR_RDMA_READ:
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return !is_inline;
	default:
		return false;
	}
}

static void build(struct ibv_qp_ex *qpx, const struct ibv_send_wr *wr)
{
	switch (wr->opcode) {
	case IBV_WR_SEND:
		ibv_wr_send(qpx);
		break;
	case IBV_WR_SEND_WITH_IMM:
		ibv_wr_send_imm(qpx, wr->imm_data);
		break;
	case IBV_WR_RDMA_WRITE:
		ibv_wr_rdma_write(qpx, wr->wr.rdma.rkey,
				  wr->wr.rdma.remote_addr);
		break;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		ibv_wr_rdma_write_imm(qpx, wr->wr.rdma.rkey,
				      wr->wr.rdma.remote_addr, wr->imm_data);
		break;
	case IBV_WR_RDMA_READ:
		ibv_wr_rdma_read(qpx, wr->wr.rdma.rkey,
				 wr->wr.rdma.remote_addr);
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		ibv_wr_atomic_cmp_swp(qpx, wr->wr.atomic.rkey,
				      wr->wr.atomic.remote_addr,
				      wr->wr.atomic.compare_add,
				      wr->wr.atomic.swap);
		break;
	default: /* can_post() has left no other */
		ibv_wr_atomic_fetch_add(qpx, wr->wr.atomic.rkey,
					wr->wr.atomic.remote_addr,
					wr->wr.atomic.compare_add);
		break;
	}
}

/* "one of the following setters should be called once after the WR builder"
 * (ibv_wr_post(3), DATA transfer setters). */
static void set_data(struct ibv_qp_ex *qpx, const struct ibv_send_wr *wr)
{
	struct ibv_data_buf bufs[INLINE_PIECES];
	int i;

	if (!(wr->send_flags & IBV_SEND_INLINE)) {
		ibv_wr_set_sge_list(qpx, (size_t)wr->num_sge, wr->sg_list);
		return;
	}
	for (i = 0; i < wr->num_sge; i++) {
		bufs[i].addr = (void *)(uintptr_t)wr->sg_list[i].addr;
		bufs[i].length = wr->sg_list[i].length;
	}
	ibv_wr_set_inline_data_list(qpx, (size_t)wr->num_sge, bufs);
}

int verbs_post_dc(struct dev *dev, struct ibv_qp *qp, struct ibv_send_wr *wr,
		  struct ibv_ah *ah, uint32_t dctn, uint64_t dc_key)
{
	struct verbs_dev *vd = verbs_dev(dev);
	/* mlx5dv_wr_post(3): "The mlx5dv_qp_ex is extracted from the IBV_QP by
	 * ibv_qp_to_qp_ex() and mlx5dv_qp_ex_from_ibv_qp_ex()." */
	struct ibv_qp_ex *qpx = vd->lib.qp_to_qp_ex(qp);
	struct mlx5dv_qp_ex *mqpx = vd->dc.from_qp_ex(qpx);
	struct ibv_send_wr *w;

	/* "Applications should use this API in a way that does not create
	 * failures" (ibv_wr_post(3)): all is checked before it is begun. */
	for (w = wr; w; w = w->next)
		if (!can_post(w))
			return -EINVAL;
	ibv_wr_start(qpx);
	for (w = wr; w; w = w->next) {
		/* "These values should be set before invoking the WR builder
		 * function"; inline data has a setter and no flag. */
		qpx->wr_id = w->wr_id;
		qpx->wr_flags = w->send_flags & ~(unsigned)IBV_SEND_INLINE;
		build(qpx, w);
		set_data(qpx, w);
		/* mlx5dv_wr_post(3): "mlx5dv_wr_set_dc_addr() must be called
		 * to set the DCI WR properties", after the data as in its
		 * example. */
		mlx5dv_wr_set_dc_addr(mqpx, ah, dctn & QPN_MASK, dc_key);
	}
	/* "ibv_wr_complete() will return failure and the entire posting will
	 * be aborted." */
	return -ibv_wr_complete(qpx);
}

/* --- is it there? ------------------------------------------------------ */

static bool load(struct verbs_dev *vd)
{
	static const struct {
		const char *name, *version;
		size_t offset;
	} symbols[] = {
		{"mlx5dv_is_supported", "MLX5_1.8",
		 offsetof(struct verbs_dc, is_supported)},
		{"mlx5dv_create_qp", "MLX5_1.3",
		 offsetof(struct verbs_dc, create_qp)},
		{"mlx5dv_qp_ex_from_ibv_qp_ex", "MLX5_1.10",
		 offsetof(struct verbs_dc, from_qp_ex)},
	};
	const struct verbs_loader *loader = vd->lib.loader;
	struct verbs_dc dc = {0};
	char why[128];
	size_t i;
	void *p;

	dc.handle = loader->open(VERBS_DC_SONAME, why, sizeof(why));
	if (!dc.handle)
		return false;
	for (i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		p = loader->sym(dc.handle, symbols[i].name, symbols[i].version);
		if (!p) {
			loader->close(dc.handle);
			return false;
		}
		memcpy((char *)&dc + symbols[i].offset, &p, sizeof(p));
	}
	vd->dc = dc;
	return true;
}

/* A DCI and a DCT are made and thrown away: nothing else tells that the
 * device, its firmware and the driver have DC. */
static bool trial(struct verbs_dev *vd)
{
	struct ibv_srq_init_attr sa = {.attr = {.max_wr = 1, .max_sge = 1}};
	struct ibv_qp_init_attr qa = {
		.cap = {.max_send_wr = 1, .max_send_sge = 1}};
	const struct verbs_lib *lib = &vd->lib;
	struct ibv_qp *dci = NULL, *dct = NULL;
	struct ibv_srq *srq;
	struct ibv_pd *pd;
	bool good = false;

	pd = lib->alloc_pd(vd->dev.verbs);
	if (!pd)
		return false;
	qa.send_cq = lib->create_cq(vd->dev.verbs, 1, NULL, NULL, 0);
	if (!qa.send_cq)
		goto out_pd;
	qa.recv_cq = qa.send_cq;
	srq = lib->create_srq(pd, &sa);
	if (!srq)
		goto out_cq;
	if (make_dci(vd, pd, &qa, &dci))
		goto out_srq;
	if (make_dct(vd, pd, qa.recv_cq, srq, 1, &dct))
		goto out_dci;
	good = true;
	lib->destroy_qp(dct);
out_dci:
	lib->destroy_qp(dci);
out_srq:
	lib->destroy_srq(srq);
out_cq:
	lib->destroy_cq(qa.send_cq);
out_pd:
	lib->dealloc_pd(pd);
	return good;
}

void verbs_dc_open(struct verbs_dev *vd)
{
	/* A DCT receives into an SRQ. */
	if (!vd->dev.caps.srq || !load(vd))
		return;
	if (!vd->dc.is_supported(vd->dev.verbs->device) || !trial(vd)) {
		verbs_dc_close(vd);
		return;
	}
	vd->dev.caps.dc = true;
	vd->dev.ops = &verbs_dc_ops;
}

void verbs_dc_close(struct verbs_dev *vd)
{
	if (vd->dc.handle)
		vd->lib.loader->close(vd->dc.handle);
	vd->dc.handle = NULL;
}

#else /* no <infiniband/mlx5dv.h> when this was built */

#include <errno.h>

void verbs_dc_open(struct verbs_dev *vd)
{
	(void)vd;
}

void verbs_dc_close(struct verbs_dev *vd)
{
	(void)vd;
}

int verbs_create_dci(struct dev *dev, struct ibv_pd *pd,
		     struct ibv_qp_init_attr *attr,
		     const struct dev_qp_opts *opts, struct ibv_qp **qp)
{
	return -EOPNOTSUPP;
}

int verbs_create_dct(struct dev *dev, struct ibv_pd *pd, struct ibv_cq *cq,
		     struct ibv_srq *srq, uint64_t dc_key, int access,
		     const struct dev_qp_opts *opts, struct ibv_qp **qp)
{
	return -EOPNOTSUPP;
}

int verbs_post_dc(struct dev *dev, struct ibv_qp *qp, struct ibv_send_wr *wr,
		  struct ibv_ah *ah, uint32_t dctn, uint64_t dc_key)
{
	return -EOPNOTSUPP;
}

#endif
