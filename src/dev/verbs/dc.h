/* SPDX-License-Identifier: MIT */
/*
 * dc.h - mlx5's dynamically connected transport.
 *
 * A DCI is a QP that sends, each request to a target of its own; a DCT is a
 * QP number that any DCI may send to if it knows the key. libmlx5 is loaded at
 * run time, as libibverbs is. It has not run on hardware:
 * docs/design/semantics.md.
 *
 * Thread rule: as dev.h; a DCI is posted to as any QP is.
 */
#ifndef SKEIN_DEV_VERBS_DC_H
#define SKEIN_DEV_VERBS_DC_H

#include "dev/dev.h"
#include "dev/verbs/lib.h"

struct verbs_dev;
struct ibv_qp_init_attr_ex;
struct mlx5dv_qp_init_attr;
struct mlx5dv_qp_ex;

#define VERBS_DC_SONAME "libmlx5.so.1"

struct verbs_dc {
	void *handle; /* NULL: no DC here */
	bool (*is_supported)(struct ibv_device *device);
	struct ibv_qp *(*create_qp)(struct ibv_context *context,
				    struct ibv_qp_init_attr_ex *qp_attr,
				    struct mlx5dv_qp_init_attr *mlx5_qp_attr);
	struct mlx5dv_qp_ex *(*from_qp_ex)(struct ibv_qp_ex *qp);
};

/* Loads libmlx5 and tries to make a DCI and a DCT. If both succeed, sets
 * caps.dc and the ops with DC. If not, changes nothing; that is no error. */
void verbs_dc_open(struct verbs_dev *vd);
void verbs_dc_close(struct verbs_dev *vd);

/* dev_ops.create_dci, create_dct, post_dc */
int verbs_create_dci(struct dev *dev, struct ibv_pd *pd,
		     struct ibv_qp_init_attr *attr,
		     const struct dev_qp_opts *opts, struct ibv_qp **qp);
int verbs_create_dct(struct dev *dev, struct ibv_pd *pd, struct ibv_cq *cq,
		     struct ibv_srq *srq, uint64_t dc_key, int access,
		     const struct dev_qp_opts *opts, struct ibv_qp **qp);
int verbs_post_dc(struct dev *dev, struct ibv_qp *qp, struct ibv_send_wr *wr,
		  struct ibv_ah *ah, uint32_t dctn, uint64_t dc_key);

#endif
