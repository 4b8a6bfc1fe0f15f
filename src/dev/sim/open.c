/* SPDX-License-Identifier: MIT */
/*
 * open.c - the simulated device is opened, asked and closed, or dies with its
 * process.
 */
#include "dev/sim/sim_dev.h"

#include "base/assert.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* --- queries ----------------------------------------------------------- */

static int sim_query_device(struct dev *dev, struct ibv_device_attr *a)
{
	struct sim_dev *d = sim_dev_of(dev);

	memset(a, 0, sizeof(*a));
	snprintf(a->fw_ver, sizeof(a->fw_ver), "sim.1");
	a->node_guid = d->nic->id;
	a->sys_image_guid = d->nic->id;
	a->max_mr_size = UINT64_MAX;
	a->page_size_cap = 4096;
	a->max_qp = (int)dev->caps.qp_max;
	a->max_qp_wr = SIM_WR_MAX;
	a->max_sge = a->max_sge_rd = SIM_SGE_MAX;
	a->max_cq = 65536;
	a->max_cqe = SIM_CQE_MAX;
	a->max_mr = (int)dev->caps.mr_max;
	a->max_pd = 65536;
	a->max_qp_rd_atom = a->max_qp_init_rd_atom = SIM_RD_ATOMIC;
	a->atomic_cap = IBV_ATOMIC_HCA;
	a->max_pkeys = 1;
	a->max_ah = 65536;
	a->max_srq = 65536;
	a->max_srq_wr = SIM_SRQ_WR_MAX;
	a->max_srq_sge = SIM_SGE_MAX;
	a->device_cap_flags = IBV_DEVICE_SRQ_RESIZE;
	a->phys_port_cnt = 1;
	return 0;
}

static enum ibv_mtu mtu_of(const struct sim_nic *nic)
{
	int mtu = IBV_MTU_256;

	while (128u << mtu < sim_nic_mtu(nic))
		mtu++;
	return (enum ibv_mtu)mtu;
}

static int sim_query_port(struct dev *dev, uint8_t port,
			  struct ibv_port_attr *a)
{
	struct sim_dev *d = sim_dev_of(dev);

	if (port != 1)
		return -EINVAL;
	memset(a, 0, sizeof(*a));
	a->state = d->nic->down ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
	a->max_mtu = a->active_mtu = mtu_of(d->nic);
	a->gid_tbl_len = 1;
	a->max_msg_sz = (uint32_t)SIM_MSG_MAX;
	a->pkey_tbl_len = 1;
	a->active_width = 2;
	a->active_speed = 64;
	a->phys_state = 5;
	a->link_layer = IBV_LINK_LAYER_ETHERNET;
	return 0;
}

static int sim_query_gid(struct dev *dev, uint8_t port, int index,
			 struct dev_gid *gid)
{
	struct sim_dev *d = sim_dev_of(dev);

	if (port != 1 || index < 0)
		return -EINVAL;
	if (index)
		return -ENODATA;
	memset(gid, 0, sizeof(*gid));
	sim_nic_gid(d->nic, &gid->gid);
	gid->type = DEV_GID_ROCE_V2;
	snprintf(gid->netdev, sizeof(gid->netdev), "sim%u", d->nic->id);
	snprintf(gid->why, sizeof(gid->why), "the only one");
	return 0;
}

static int sim_alloc_pd(struct dev *dev, struct ibv_pd **pd)
{
	struct sim_dev *d = sim_dev_of(dev);
	struct ibv_pd *p = env_alloc(dev->env, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->context = dev->verbs;
	d->refs++;
	*pd = p;
	return 0;
}

static int sim_dealloc_pd(struct dev *dev, struct ibv_pd *pd)
{
	struct sim_dev *d = sim_dev_of(dev);
	struct list_node *n;

	list_for_each(n, &d->mrs)
		if (container_of(n, struct sim_mr, link)->mr.pd == pd)
			return -EBUSY;
	list_for_each(n, &d->qps)
		if (container_of(n, struct sim_qp, link)->ex.qp_base.pd == pd)
			return -EBUSY;
	list_for_each(n, &d->srqs)
		if (container_of(n, struct sim_srq, link)->srq.pd == pd)
			return -EBUSY;
	d->refs--;
	env_free(dev->env, pd);
	return 0;
}

/* --- life -------------------------------------------------------------- */

static void sim_close(struct dev *dev)
{
	struct sim_dev *d = sim_dev_of(dev);

	skein_assert(list_empty(&d->qps) && list_empty(&d->cqs) &&
		     list_empty(&d->mrs) && list_empty(&d->srqs) && !d->refs);
	list_del(&d->killed.link);
	sim_async_drop(d, NULL);
	sim_fd_close(d->proc, dev->verbs->async_fd);
	env_free(dev->env, d);
}

/* The process was killed: the NIC forgets the objects of this process. */
static void sim_killed(struct sim_hook *hook)
{
	struct sim_dev *d = container_of(hook, struct sim_dev, killed);

	while (!list_empty(&d->qps))
		sim_qp_free(container_of(d->qps.next, struct sim_qp, link));
	while (!list_empty(&d->cqs))
		sim_cq_free(container_of(d->cqs.next, struct sim_cq, link));
	while (!list_empty(&d->srqs))
		sim_srq_free(container_of(d->srqs.next, struct sim_srq, link));
	while (!list_empty(&d->mrs))
		sim_mr_free(container_of(d->mrs.next, struct sim_mr, link));
}

static const struct dev_ops sim_ops = {
	.kind = "sim",
	.close = sim_close,
	.query_device = sim_query_device,
	.query_port = sim_query_port,
	.query_gid = sim_query_gid,
	.alloc_pd = sim_alloc_pd,
	.dealloc_pd = sim_dealloc_pd,
	.reg_mr = sim_reg_mr,
	.dereg_mr = sim_dereg_mr,
	.create_comp_channel = sim_create_chan,
	.destroy_comp_channel = sim_destroy_chan,
	.get_cq_event = sim_get_cq_event,
	.ack_cq_events = sim_ack_cq_events,
	.create_cq = sim_create_cq,
	.destroy_cq = sim_destroy_cq,
	.resize_cq = sim_resize_cq,
	.create_srq = sim_create_srq,
	.modify_srq = sim_modify_srq,
	.query_srq = sim_query_srq,
	.destroy_srq = sim_destroy_srq,
	.create_ah = sim_create_ah,
	.destroy_ah = sim_destroy_ah,
	.create_qp = sim_create_qp,
	.modify_qp = sim_modify_qp,
	.query_qp = sim_query_qp,
	.destroy_qp = sim_destroy_qp,
	.get_async_event = sim_get_async,
	.ack_async_event = sim_ack_async,
	.create_dci = sim_create_dci,
	.create_dct = sim_create_dct,
	.post_dc = sim_post_dc,
};

static void context_fill(struct sim_dev *d)
{
	struct ibv_context *c = &d->vctx.context;

	snprintf(d->ibdev.name, sizeof(d->ibdev.name), "sim%u", d->nic->id);
	d->ibdev.node_type = IBV_NODE_CA;
	d->ibdev.transport_type = IBV_TRANSPORT_IB;
	d->vctx.sz = sizeof(d->vctx);
	c->device = &d->ibdev;
	c->cmd_fd = -1;
	c->num_comp_vectors = 1;
	c->abi_compat = __VERBS_ABI_IS_EXTENDED;
	c->ops.post_send = sim_post_send;
	c->ops.post_recv = sim_post_recv;
	c->ops.post_srq_recv = sim_post_srq_recv;
	c->ops.poll_cq = sim_poll_cq;
	c->ops.req_notify_cq = sim_req_notify_cq;
}

static void caps_fill(struct dev_caps *c, const struct sim_net *net)
{
	c->atomic_scope = DEV_ATOMIC_HCA;
	c->dc = c->uc = c->ud = c->srq = true;
	c->no_cancel = true;
	c->ordered_write = net->tear.ordered_write;
	c->ordered_read = net->tear.ordered_read;
	c->msg_sz_max = SIM_MSG_MAX;
	c->inline_max = SIM_INLINE_MAX;
	c->qp_wr_max = net->send_wr_max;
	c->sge_max = SIM_SGE_MAX;
	c->cqe_max = SIM_CQE_MAX;
	c->rd_atomic_max = SIM_RD_ATOMIC;
	c->mr_len_max = UINT64_MAX;
	c->qp_max = 1u << 21;
	c->qp_fast = net->model.ctx_entries;
	c->mr_max = 1u << 20;
	c->srq_wr_max = SIM_SRQ_WR_MAX;
}

static void dev_fill(struct sim_dev *d)
{
	struct dev *dev = &d->dev;

	dev->ops = &sim_ops;
	dev->verbs = &d->vctx.context;
	dev->port = 1;
	caps_fill(&dev->caps, d->nic->net);
	sim_query_port(dev, 1, &dev->port_attr);
	sim_query_gid(dev, 1, 0, &dev->gid);
	snprintf(dev->name, sizeof(dev->name), "sim%u", d->nic->id);
	snprintf(dev->why, sizeof(dev->why), "this world is simulated");
}

int dev_sim_open(struct skein_env *env, const char *name, int gid_index,
		 char *err, size_t err_len, struct dev **dev)
{
	struct sim_dev *d;
	int rc = -ENOMEM;

	if (!sim_is(env)) {
		snprintf(err, err_len,
			 "the simulated device exists in simulations only: "
			 "use \"soft\", which needs no hardware either");
		return -ENODEV;
	}
	if (*name || gid_index > 0) {
		snprintf(err, err_len, "sim: one device, with one GID");
		return -ENODEV;
	}
	d = env_alloc(env, sizeof(*d));
	if (!d)
		goto err_out;
	d->dev.env = env;
	d->proc = sim_proc_of(env);
	d->w = sim_proc_world(d->proc);
	d->nic = sim_nic_of(sim_proc_node(d->proc));
	if (!d->nic)
		goto err_free;
	rc = sim_fd_new(d->proc, &d->vctx.context.async_fd);
	if (rc)
		goto err_free;
	list_init(&d->qps);
	list_init(&d->cqs);
	list_init(&d->mrs);
	list_init(&d->srqs);
	list_init(&d->events);
	context_fill(d);
	dev_fill(d);
	d->killed.fn = sim_killed;
	sim_proc_on_kill(d->proc, &d->killed);
	/* Outside of all threads nothing takes time. */
	if (sim_self(d->w))
		sim_sleep(d->w, d->nic->net->model.open_us * 1000ull);
	*dev = &d->dev;
	return 0;

err_free:
	env_free(env, d);
err_out:
	snprintf(err, err_len, "sim: %s", strerror(-rc));
	return rc;
}
