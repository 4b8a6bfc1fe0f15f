/* SPDX-License-Identifier: MIT */
/*
 * ops.c - the control path over libibverbs.
 *
 * Thin: each call is the library's, with its three ways of reporting errors
 * (NULL and errno, positive errno, -1 and errno) made into one. Nothing here
 * is on the data path, which goes straight through context->ops.
 *
 * Thread rule: libibverbs' own: any thread.
 */
#include "dev/verbs/port.h"

#include "env/env.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

int verbs_errno(void)
{
	return errno ? -errno : -EIO;
}

/* The library's int calls: 0, a positive errno, or -1 with errno. */
static int ret(int rc)
{
	if (rc == 0)
		return 0;
	return rc > 0 ? -rc : verbs_errno();
}

static const struct verbs_lib *lib(struct dev *dev)
{
	return &verbs_dev(dev)->lib;
}

static void op_close(struct dev *dev)
{
	struct verbs_dev *vd = verbs_dev(dev);

	vd->lib.close_device(dev->verbs);
	verbs_dc_close(vd);
	env_mutex_fini(dev->env, &vd->lock);
	verbs_lib_unload(&vd->lib);
	env_free(dev->env, vd);
}

static int op_query_device(struct dev *dev, struct ibv_device_attr *attr)
{
	struct ibv_device_attr a = {0};
	int rc = ret(lib(dev)->query_device(dev->verbs, &a));

	if (!rc)
		*attr = a;
	return rc;
}

static int op_query_port(struct dev *dev, uint8_t port,
			 struct ibv_port_attr *attr)
{
	struct ibv_port_attr a;
	int rc = verbs_lib_query_port(lib(dev), dev->verbs, port, &a);

	if (!rc)
		*attr = a;
	return rc;
}

static int op_query_gid(struct dev *dev, uint8_t port, int index,
			struct dev_gid *gid)
{
	struct ibv_gid_entry e = {0};
	struct dev_gid g = {.index = index};
	int rc;

	if (index < 0)
		return -EINVAL;
	rc = ret(lib(dev)->query_gid_ex(dev->verbs, port, (uint32_t)index, &e,
					0, sizeof(e)));
	if (rc)
		return rc;
	g.gid = e.gid;
	g.type = (enum dev_gid_type)e.gid_type;
	if (!e.ndev_ifindex || !if_indextoname(e.ndev_ifindex, g.netdev))
		g.netdev[0] = '\0';
	*gid = g;
	return 0;
}

static int op_alloc_pd(struct dev *dev, struct ibv_pd **pd)
{
	struct ibv_pd *p;

	errno = 0;
	p = lib(dev)->alloc_pd(dev->verbs);
	if (!p)
		return verbs_errno();
	*pd = p;
	return 0;
}

static int op_dealloc_pd(struct dev *dev, struct ibv_pd *pd)
{
	return ret(lib(dev)->dealloc_pd(pd));
}

/* fd and off do not matter to a NIC: it pins the pages behind the address. */
static int op_reg_mr(struct dev *dev, struct ibv_pd *pd, void *addr, size_t len,
		     int access, int fd, uint64_t off, struct ibv_mr **mr)
{
	struct ibv_mr *m;
	int rc;

	(void)fd;
	(void)off;
	errno = 0;
	m = lib(dev)->reg_mr(pd, addr, len, access);
	if (!m) {
		rc = verbs_errno();
		verbs_log_refused(dev, "register memory", len, rc);
		return rc;
	}
	*mr = m;
	return 0;
}

static int op_dereg_mr(struct dev *dev, struct ibv_mr *mr)
{
	return ret(lib(dev)->dereg_mr(mr));
}

static int op_destroy_comp_channel(struct dev *dev, struct ibv_comp_channel *ch)
{
	return ret(lib(dev)->destroy_comp_channel(ch));
}

static int set_nonblock(int fd)
{
	int fl = fcntl(fd, F_GETFL);

	if (fl < 0 || fcntl(fd, F_SETFL, fl | O_NONBLOCK) < 0)
		return -errno;
	return 0;
}

static int op_create_comp_channel(struct dev *dev, struct ibv_comp_channel **ch)
{
	struct ibv_comp_channel *c;
	int rc;

	errno = 0;
	c = lib(dev)->create_comp_channel(dev->verbs);
	if (!c)
		return verbs_errno();
	rc = set_nonblock(c->fd);
	if (rc) {
		lib(dev)->destroy_comp_channel(c);
		return rc;
	}
	*ch = c;
	return 0;
}

static int op_get_cq_event(struct dev *dev, struct ibv_comp_channel *ch,
			   struct ibv_cq **cq)
{
	struct ibv_cq *c;
	void *cq_context;
	int rc;

	errno = 0;
	rc = ret(lib(dev)->get_cq_event(ch, &c, &cq_context));
	if (!rc)
		*cq = c;
	return rc;
}

static void op_ack_cq_events(struct dev *dev, struct ibv_cq *cq, unsigned n)
{
	lib(dev)->ack_cq_events(cq, n);
}

static int op_create_cq(struct dev *dev, int cqe, void *cq_context,
			struct ibv_comp_channel *ch, struct ibv_cq **cq)
{
	struct ibv_cq *c;
	int rc;

	errno = 0;
	c = lib(dev)->create_cq(dev->verbs, cqe, cq_context, ch, 0);
	if (!c) {
		rc = verbs_errno();
		if (rc == -ENOMEM)
			verbs_log_refused(dev, "create a CQ", 0, rc);
		return rc;
	}
	*cq = c;
	return 0;
}

static int op_destroy_cq(struct dev *dev, struct ibv_cq *cq)
{
	return ret(lib(dev)->destroy_cq(cq));
}

/* Providers without it say ENOSYS, the kernel ENOSYS or EOPNOTSUPP. */
static int op_resize_cq(struct dev *dev, struct ibv_cq *cq, int cqe)
{
	int rc = ret(lib(dev)->resize_cq(cq, cqe));

	return rc == -ENOSYS ? -EOPNOTSUPP : rc;
}

/* The provider writes into the attributes, on failure too. So it gets a copy,
 * and the caller's attributes stay untouched on failure. */
static int op_create_srq(struct dev *dev, struct ibv_pd *pd,
			 struct ibv_srq_init_attr *attr, struct ibv_srq **srq)
{
	struct ibv_srq_init_attr a = *attr;
	struct ibv_srq *s;

	errno = 0;
	s = lib(dev)->create_srq(pd, &a);
	if (!s)
		return verbs_errno();
	attr->attr = a.attr;
	*srq = s;
	return 0;
}

static int op_modify_srq(struct dev *dev, struct ibv_srq *srq,
			 struct ibv_srq_attr *attr, int mask)
{
	return ret(lib(dev)->modify_srq(srq, attr, mask));
}

static int op_query_srq(struct dev *dev, struct ibv_srq *srq,
			struct ibv_srq_attr *attr)
{
	struct ibv_srq_attr a = {0};
	int rc = ret(lib(dev)->query_srq(srq, &a));

	if (!rc)
		*attr = a;
	return rc;
}

static int op_destroy_srq(struct dev *dev, struct ibv_srq *srq)
{
	return ret(lib(dev)->destroy_srq(srq));
}

static int op_create_ah(struct dev *dev, struct ibv_pd *pd,
			struct ibv_ah_attr *attr, struct ibv_ah **ah)
{
	struct ibv_ah *a;

	errno = 0;
	a = lib(dev)->create_ah(pd, attr);
	if (!a)
		return verbs_errno();
	*ah = a;
	return 0;
}

static int op_destroy_ah(struct dev *dev, struct ibv_ah *ah)
{
	return ret(lib(dev)->destroy_ah(ah));
}

static bool can_type(const struct dev_caps *c, enum ibv_qp_type type)
{
	switch (type) {
	case IBV_QPT_RC:
		return true;
	case IBV_QPT_UC:
		return c->uc;
	case IBV_QPT_UD:
		return c->ud;
	default:
		return false;
	}
}

/* flags: DEV_QP_SINGLE_THREADED and DEV_QP_SERIAL are hints that caps.single_threaded says are
 * not honoured; the QP is merely safer than asked for. */
static int op_create_qp(struct dev *dev, struct ibv_pd *pd,
			struct ibv_qp_init_attr *attr, unsigned flags,
			struct ibv_qp **qp)
{
	struct ibv_qp_init_attr a = *attr;
	struct ibv_qp *q;
	int rc;

	(void)flags;
	if (!can_type(&dev->caps, attr->qp_type))
		return -EOPNOTSUPP;
	errno = 0;
	q = lib(dev)->create_qp(pd, &a);
	if (!q) {
		rc = verbs_errno();
		if (rc == -ENOMEM)
			verbs_log_refused(dev, "create a QP", 0, rc);
		return rc;
	}
	attr->cap = a.cap;
	*qp = q;
	return 0;
}

static int op_modify_qp(struct dev *dev, struct ibv_qp *qp,
			struct ibv_qp_attr *attr, int mask)
{
	return ret(lib(dev)->modify_qp(qp, attr, mask));
}

static int op_query_qp(struct dev *dev, struct ibv_qp *qp,
		       struct ibv_qp_attr *attr, int mask,
		       struct ibv_qp_init_attr *init)
{
	return ret(lib(dev)->query_qp(qp, attr, mask, init));
}

static int op_destroy_qp(struct dev *dev, struct ibv_qp *qp)
{
	return ret(lib(dev)->destroy_qp(qp));
}

static int op_get_async_event(struct dev *dev, struct ibv_async_event *ev)
{
	int rc;

	errno = 0;
	rc = ret(lib(dev)->get_async_event(dev->verbs, ev));
	/* The library learns of a state by modify and query alone. */
	if (rc == 0 && ev->event_type == IBV_EVENT_QP_FATAL)
		__atomic_store_n(&ev->element.qp->state, IBV_QPS_ERR,
				 __ATOMIC_RELEASE);
	return rc;
}

static void op_ack_async_event(struct dev *dev, struct ibv_async_event *ev)
{
	lib(dev)->ack_async_event(ev);
}

static int op_probe(struct dev *dev, struct ibv_qp *qp)
{
	(void)dev;
	(void)qp;
	return -EOPNOTSUPP;
}

#define VERBS_OPS                                                            \
	.kind = "verbs", .close = op_close, .query_device = op_query_device, \
	.query_port = op_query_port, .query_gid = op_query_gid,              \
	.alloc_pd = op_alloc_pd, .dealloc_pd = op_dealloc_pd,                \
	.reg_mr = op_reg_mr, .dereg_mr = op_dereg_mr,                        \
	.create_comp_channel = op_create_comp_channel,                       \
	.destroy_comp_channel = op_destroy_comp_channel,                     \
	.get_cq_event = op_get_cq_event, .ack_cq_events = op_ack_cq_events,  \
	.create_cq = op_create_cq, .destroy_cq = op_destroy_cq,              \
	.resize_cq = op_resize_cq, .create_srq = op_create_srq,              \
	.modify_srq = op_modify_srq, .query_srq = op_query_srq,              \
	.destroy_srq = op_destroy_srq, .create_ah = op_create_ah,            \
	.destroy_ah = op_destroy_ah, .create_qp = op_create_qp,              \
	.modify_qp = op_modify_qp, .query_qp = op_query_qp,                  \
	.destroy_qp = op_destroy_qp, .get_async_event = op_get_async_event,  \
	.ack_async_event = op_ack_async_event, .path = verbs_port_path,      \
	.refresh = verbs_port_refresh, .probe = op_probe

const struct dev_ops verbs_ops = {VERBS_OPS};

const struct dev_ops verbs_dc_ops = {
	VERBS_OPS,
	.create_dci = verbs_create_dci,
	.create_dct = verbs_create_dct,
	.post_dc = verbs_post_dc,
};
