/* SPDX-License-Identifier: MIT */
/*
 * open.c - the device is opened, asked and closed; its table of operations.
 */
#include "dev/soft/dc/dc.h"
#include "dev/soft/ext.h"
#include "dev/soft/ud/mcast.h"
#include "dev/soft/link/key.h"
#include "dev/soft/link/link.h"
#include "dev/soft/mw.h"
#include "dev/soft/ud/ud.h"
#include "env/membarrier.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

static int soft_query_device(struct dev *dev, struct ibv_device_attr *a)
{
	struct soft *s = soft_of_dev(dev);

	if (!soft_here(s))
		return -EPERM;
	memset(a, 0, sizeof(*a));
	snprintf(a->fw_ver, sizeof(a->fw_ver), "soft.1");
	a->node_guid = dev_soft_guid();
	a->sys_image_guid = a->node_guid;
	a->max_mr_size = UINT64_MAX;
	a->page_size_cap = SHM_PAGE;
	a->vendor_id = 0xffffff; /* of nobody: as the kernel's rxe has it */
	a->max_qp = SHM_QP_MAX;
	a->max_qp_wr = SOFT_WR_MAX;
	a->device_cap_flags =
		IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_PORT_ACTIVE_EVENT |
		IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN |
		IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
	a->max_sge = SOFT_SGE_MAX;
	a->max_sge_rd = SOFT_SGE_MAX;
	a->max_cq = 65536;
	a->max_cqe = SOFT_CQE_MAX;
	a->max_mr = SHM_MR_MAX;
	a->max_mw = SHM_MR_MAX; /* of the same table */
	a->max_pd = 65536;
	a->max_ah = 65536;
	a->max_qp_rd_atom = SOFT_RD_ATOMIC;
	a->max_qp_init_rd_atom = SOFT_RD_ATOMIC;
	a->max_res_rd_atom = SOFT_RD_ATOMIC * SHM_QP_MAX;
	a->atomic_cap = IBV_ATOMIC_HCA;
	a->max_srq = SOFT_SRQ_MAX;
	a->max_srq_wr = SOFT_SRQ_WR_MAX;
	a->max_srq_sge = SOFT_SGE_MAX;
	a->max_mcast_grp = SHM_QP_MAX;
	a->max_mcast_qp_attach = UD_DEST_MAX;
	a->max_total_mcast_qp_attach = SHM_QP_MAX;
	a->max_pkeys = 1;
	a->phys_port_cnt = 1;
	return 0;
}

static void port_fill(struct soft *s, struct ibv_port_attr *a)
{
	memset(a, 0, sizeof(*a));
	a->state = soft_port_up(s) ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
	a->max_mtu = IBV_MTU_4096;
	a->active_mtu = s->link_mode == SOFT_LINK_UDP ? soft_link_port_mtu(s)
						      : IBV_MTU_4096;
	a->gid_tbl_len = s->n_gids;
	a->max_msg_sz = (uint32_t)SOFT_MSG_MAX;
	a->pkey_tbl_len = 1;
	a->active_width = 2; /* 4x */
	a->active_speed = 64;
	/* link up, or disabled */
	a->phys_state = soft_port_up(s) ? 5 : 3;
	a->link_layer = IBV_LINK_LAYER_ETHERNET;
}

static int soft_query_port(struct dev *dev, uint8_t port,
			   struct ibv_port_attr *a)
{
	struct soft *s = soft_of_dev(dev);

	if (!soft_here(s))
		return -EPERM;
	if (port != 1)
		return -EINVAL;
	pthread_mutex_lock(&s->lock);
	port_fill(s, a);
	pthread_mutex_unlock(&s->lock);
	return 0;
}

static int soft_query_gid(struct dev *dev, uint8_t port, int index,
			  struct dev_gid *gid)
{
	struct soft *s = soft_of_dev(dev);
	int err = 0;

	if (!soft_here(s))
		return -EPERM;
	if (port != 1 || index < 0)
		return -EINVAL;
	pthread_mutex_lock(&s->lock);
	if (index < s->n_gids && s->gids[index].netdev[0])
		*gid = s->gids[index];
	else
		err = -ENODATA;
	pthread_mutex_unlock(&s->lock);
	return err;
}

static void soft_free(struct soft *s)
{
	struct soft_event *e;

	/* First the thread: everything below belongs to it too. */
	soft_ctl_stop(s);
	soft_link_close(s);
	soft_link_key_free(s);
	soft_conns_free(s);
	soft_dials_free(s);
	soft_peers_free(s);
	soft_nic_free(s);
	if (s->harsh)
		soft_harsh_close(s);
	while ((e = s->events)) {
		s->events = e->next;
		env_free(s->env, e);
	}
	if (s->vctx.context.async_fd >= 0)
		close(s->vctx.context.async_fd);
	pthread_mutex_destroy(&s->lock);
	pthread_mutex_destroy(&s->bind_lock);
	pthread_mutex_destroy(&s->async_lock);
	pthread_cond_destroy(&s->acked);
	pthread_mutex_destroy(&s->vctx.context.mutex);
	env_free(s->env, s);
}

static void soft_close(struct dev *dev)
{
	struct soft *s = soft_of_dev(dev);

	/* A forked child holds copies of descriptors and none of the memory;
	 * the device is its parent's. */
	if (!soft_here(s))
		return;
	soft_free(s);
}

static const struct dev_ops soft_ops = {
	.kind = "soft",
	.close = soft_close,
	.query_device = soft_query_device,
	.query_port = soft_query_port,
	.query_gid = soft_query_gid,
	.alloc_pd = soft_alloc_pd,
	.dealloc_pd = soft_dealloc_pd,
	.reg_mr = soft_reg_mr,
	.reg_mr_iova = soft_reg_mr_iova,
	.new_mr = soft_new_mr,
	.dereg_mr = soft_dereg_mr,
	.rereg_mr = soft_rereg_mr,
	.create_comp_channel = soft_create_chan,
	.destroy_comp_channel = soft_destroy_chan,
	.get_cq_event = soft_get_cq_event,
	.ack_cq_events = soft_ack_cq_events,
	.create_cq = soft_create_cq,
	.destroy_cq = soft_destroy_cq,
	.resize_cq = soft_resize_cq,
	.create_srq = soft_create_srq,
	.modify_srq = soft_modify_srq,
	.query_srq = soft_query_srq,
	.destroy_srq = soft_destroy_srq,
	.create_ah = soft_create_ah,
	.destroy_ah = soft_destroy_ah,
	.attach_mcast = soft_attach_mcast,
	.detach_mcast = soft_detach_mcast,
	.create_qp = soft_create_qp,
	.modify_qp = soft_modify_qp,
	.reach = soft_reach_qp,
	.query_qp = soft_query_qp,
	.destroy_qp = soft_destroy_qp,
	.create_dci = soft_create_dci,
	.create_dct = soft_create_dct,
	.post_dc = soft_post_dc,
	.get_async_event = soft_get_async,
	.ack_async_event = soft_ack_async,
	.quiesce_mr = soft_quiesce_mr,
	.quiesce_qp = soft_quiesce_qp,
	.probe = soft_probe,
	.qp_caps = soft_qp_caps,
	.qp_link = soft_qp_link,
};

static void context_fill(struct soft *s)
{
	struct ibv_context *c = &s->vctx.context;

	snprintf(s->ibdev.name, sizeof(s->ibdev.name), "skein0");
	s->ibdev.node_type = IBV_NODE_CA;
	s->ibdev.transport_type = IBV_TRANSPORT_IB;
	s->vctx.sz = sizeof(s->vctx);
	c->device = &s->ibdev;
	c->num_comp_vectors = 1;
	c->abi_compat = __VERBS_ABI_IS_EXTENDED;
	pthread_mutex_init(&c->mutex, NULL);
	soft_ext_fill(&s->vctx);
	c->ops.alloc_mw = soft_alloc_mw;
	c->ops.bind_mw = soft_bind_mw;
	c->ops.dealloc_mw = soft_dealloc_mw;
	c->ops.post_send = soft_post_send;
	c->ops.post_recv = soft_post_recv;
	c->ops.post_srq_recv = soft_post_srq_recv;
	c->ops.poll_cq = s->harsh ? soft_harsh_poll_cq : soft_poll_cq;
	c->ops.req_notify_cq = soft_req_notify_cq;
}

static void caps_fill(struct soft *s, struct dev_caps *c)
{
	c->ordered_write = true;
	c->ordered_read = true;
	c->wake_on_write = false;
	c->death_notice = true;
	c->poster_copies = true;
	c->dc = !s->no_dc;
	c->uc = true;
	c->srq = true;
	c->srq_wr_max = SOFT_SRQ_WR_MAX;
	c->ud = true;
	c->single_threaded = true;
	c->no_cancel = true;
	c->atomic_scope = DEV_ATOMIC_HCA;
	c->msg_sz_max = SOFT_MSG_MAX;
	c->inline_max = SOFT_INLINE_MAX;
	c->qp_wr_max = SOFT_WR_MAX;
	c->sge_max = SOFT_SGE_MAX;
	c->cqe_max = SOFT_CQE_MAX;
	c->rd_atomic_max = SOFT_RD_ATOMIC;
	c->mr_len_max = UINT64_MAX;
	c->qp_max = SHM_QP_MAX;
	c->mr_max = SHM_MR_MAX;
	if (s->harsh)
		soft_harsh_caps(s, c);
}

static int barrier_register(void)
{
	int err = membarrier_register(MEMBARRIER_HOST);

	return err ? err : membarrier_register(MEMBARRIER_PROCESS);
}

/* A failure's words stand where the reason for the choice of this device
 * would. */
static int gid_choose(struct soft *s, int index)
{
	int err = soft_gid_choose(s, index, &s->dev.gid);

	if (err && index >= 0)
		snprintf(s->dev.why, sizeof(s->dev.why),
			 "cannot set up GID %d: its table has no such", index);
	else if (err)
		snprintf(s->dev.why, sizeof(s->dev.why),
			 "no address in this network namespace gives a GID (is "
			 "lo up?)");
	return err;
}

static int soft_up(struct soft *s, int gid_index, const char **what)
{
	int err;

	*what = "membarrier(2) is refused here (kernel 4.16 or later, and a "
		"seccomp filter that lets it pass)";
	err = barrier_register();
	if (err)
		return err;
	*what = "the table of this network namespace's addresses";
	err = soft_gids_load(s);
	if (err)
		return err;
	err = gid_choose(s, gid_index);
	if (err) {
		*what = s->dev.why;
		return err;
	}
	*what = "eventfd";
	s->vctx.context.async_fd =
		eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
	if (s->vctx.context.async_fd < 0)
		return -errno;
	*what = "its shared memory (memfd)";
	err = soft_nic_new(s);
	if (err == -EFBIG)
		*what = "its shared memory, a file (memfd): RLIMIT_FSIZE is "
			"too small (ulimit -f unlimited)";
	if (err)
		return err;
	*what = "its control thread or socket";
	return soft_ctl_start(s);
}

static int harsh_up(struct soft *s, const char **what)
{
	const char *seed = getenv("SKEIN_SOFT_HARSH");

	*what = "harsh mode (SKEIN_SOFT_HARSH: a number)";
	return seed && *seed ? soft_harsh_open(s, seed) : 0;
}

static int dc_up(struct soft *s, const char **what)
{
	const char *mode = getenv("SKEIN_SOFT_DC");

	*what = "DC (SKEIN_SOFT_DC: on or off)";
	s->no_dc = mode && !strcmp(mode, "off");
	return !mode || !*mode || s->no_dc || !strcmp(mode, "on") ? 0 : -EINVAL;
}

static int link_up(struct soft *s, const char **what)
{
	/* where the reason for the choice of this device would stand */
	char *why = s->dev.why;
	int err = soft_link_settings(s, why, sizeof(s->dev.why));

	*what = why;
	return err ? err : soft_link_key_read(s, why, sizeof(s->dev.why));
}

static void lists_init(struct soft *s)
{
	list_init(&s->peers);
	list_init(&s->cqs);
	list_init(&s->srqs);
	list_init(&s->mws);
	list_init(&s->chans);
	list_init(&s->conns);
	list_init(&s->dials);
}

static void locks_init(struct soft *s)
{
	pthread_mutex_init(&s->lock, NULL);
	pthread_mutex_init(&s->bind_lock, NULL);
	pthread_mutex_init(&s->async_lock, NULL);
	pthread_cond_init(&s->acked, NULL);
}

int dev_soft_open(struct skein_env *env, const char *name, int gid_index,
		  char *err_buf, size_t err_len, struct dev **dev)
{
	const char *what;
	struct soft *s;
	int err;

	if (name && *name && strcmp(name, "skein0")) {
		snprintf(err_buf, err_len,
			 "soft: there is one device, skein0, and no \"%s\"",
			 name);
		return -ENODEV;
	}
	s = env_alloc_aligned(env, SHM_LINE, sizeof(*s));
	if (!s) {
		snprintf(err_buf, err_len, "soft: out of memory");
		return -ENOMEM;
	}
	s->env = env;
	s->nic_fd = s->epoll_fd = s->kick_fd = s->src_addr.fd = -1;
	memset(s->spare_fds, -1, sizeof(s->spare_fds));
	s->vctx.context.async_fd = -1;
	s->mr_window = 1024;
	s->events_end = &s->events;
	s->bells_due_ns = ENV_NEVER;
	lists_init(s);
	locks_init(s);
	err = harsh_up(s, &what);
	if (!err)
		err = dc_up(s, &what);
	if (!err)
		err = link_up(s, &what);
	context_fill(s);
	if (!err)
		err = soft_up(s, gid_index, &what);
	if (err) {
		/* these words have the cause */
		if (what == s->dev.why)
			snprintf(err_buf, err_len, "soft: %s", what);
		else
			snprintf(err_buf, err_len, "soft: cannot set up %s: %s",
				 what, strerror(-err));
		soft_free(s);
		return err;
	}
	s->dev.ops = &soft_ops;
	s->dev.env = env;
	s->dev.verbs = &s->vctx.context;
	s->dev.port = 1;
	/* No commands go there; one that was passed on tells its device. */
	s->vctx.context.cmd_fd = s->nic_fd;
	caps_fill(s, &s->dev.caps);
	port_fill(s, &s->dev.port_attr);
	snprintf(s->dev.name, sizeof(s->dev.name), "skein0");
	snprintf(s->dev.why, sizeof(s->dev.why),
		 "the software device: needs no hardware, reaches this host "
		 "by memory and others by sockets");
	soft_link_words(s, s->dev.link, sizeof(s->dev.link));
	if (s->harsh)
		snprintf(s->dev.mode, sizeof(s->dev.mode),
			 "harsh, seed %" PRIu64, s->harsh->seed);
	*dev = &s->dev;
	return 0;
}
