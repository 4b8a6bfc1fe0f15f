/* SPDX-License-Identifier: MIT */
/*
 * verbs.c - a vqp as libibverbs' ibv_qp (KRCore, section 4.1): the inline
 * functions of <infiniband/verbs.h> lead through ibv_context.ops to the calls
 * of skein/vqp.h, whichever the front. Nothing of libibverbs itself is linked.
 *
 * The context says nothing of extended verbs, so inline functions that need
 * them return EOPNOTSUPP by themselves.
 *
 * Thread rule: all is written when the pool or the vqp is made, but the state
 * of a queue pair, by connect and bind.
 */
#include "vqp/engine.h"
#include "vqp/front.h"

#include <errno.h>

/* errno has no words for errors of the library's own. */
static int verbs_error(int err)
{
	switch (err) {
	case -SKEIN_EDEAD:
		return -EIO; /* as a device that has failed */
	case -SKEIN_EFORKED:
		return -EPERM; /* as soft */
	default:
		return err;
	}
}

static struct skein_vqp *vqp_of(struct ibv_qp *qp)
{
	return container_of(qp, struct skein_vqp, qp);
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		     struct ibv_send_wr **bad)
{
	return -verbs_error(skein_vqp_post_send(vqp_of(qp), wr, bad));
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
		     struct ibv_recv_wr **bad)
{
	return -verbs_error(skein_vqp_post_recv(vqp_of(qp), wr, bad));
}

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	struct skein_vqp *v = container_of(cq, struct skein_vqp, cq);

	return verbs_error(skein_vqp_poll(v, n, wc));
}

/* A pool makes progress in its callers' calls alone: no thread would fire the
 * event. */
static int req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	(void)cq, (void)solicited_only;
	return EOPNOTSUPP;
}

void verbs_pool_init(struct skein_pool *p)
{
	p->verbs.ops.post_send = post_send;
	p->verbs.ops.post_recv = post_recv;
	p->verbs.ops.poll_cq = poll_cq;
	p->verbs.ops.req_notify_cq = req_notify_cq;
	p->verbs.cmd_fd = p->verbs.async_fd = -1;
}

void verbs_vqp_init(struct skein_vqp *v, struct skein_pool *p, uint32_t qp_num,
		    bool connected)
{
	v->pool = p;
	v->cq.context = v->qp.context = &p->verbs;
	v->cq.cqe = VQP_COMPS + VQP_RECVS;
	v->qp.send_cq = v->qp.recv_cq = &v->cq;
	v->qp.qp_num = qp_num;
	v->qp.qp_type = IBV_QPT_RC;
	v->qp.state = connected ? IBV_QPS_RTS : IBV_QPS_RESET;
}

struct ibv_qp *skein_vqp_ibv_qp(struct skein_vqp *v)
{
	return &v->qp;
}
