/* SPDX-License-Identifier: MIT */
/*
 * cq.c - completion channels and queues, and events of both kinds. The
 * device's calls never block; the program's do, unless it made the descriptor
 * nonblocking.
 */
#include "bind/verbs/state.h"
#include "dev/dev.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *ctx)
{
	struct ibv_comp_channel *ch = NULL;
	struct dev *dev;
	int flags;

	if (!vb_ours(ctx))
		return VB_REAL(ibv_create_comp_channel)(ctx);
	dev = vb_dev(ctx);
	if (vb_errno(dev->ops->create_comp_channel(dev, &ch)))
		return NULL;
	/* The descriptor blocks until the program makes it nonblocking. The
	 * device and its peers only add to its count, and never wait for it. */
	flags = fcntl(ch->fd, F_GETFL);
	if (flags >= 0)
		fcntl(ch->fd, F_SETFL, flags & ~O_NONBLOCK);
	return ch;
}

EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *ch)
{
	struct dev *dev;

	if (!vb_ours(ch->context))
		return VB_REAL(ibv_destroy_comp_channel)(ch);
	dev = vb_dev(ch->context);
	return vb_errno(dev->ops->destroy_comp_channel(dev, ch));
}

EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *ctx, int cqe,
				    void *cq_context,
				    struct ibv_comp_channel *ch, int vector)
{
	struct ibv_cq *cq = NULL;
	struct dev *dev;

	if (!vb_ours(ctx))
		return VB_REAL(ibv_create_cq)(ctx, cqe, cq_context, ch, vector);
	dev = vb_dev(ctx);
	if (vector < 0 || vector >= ctx->num_comp_vectors) {
		errno = EINVAL;
		return NULL;
	}
	vb_errno(dev->ops->create_cq(dev, cqe, cq_context, ch, &cq));
	return cq;
}

EXPORT int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	struct dev *dev;

	if (!vb_ours(cq->context))
		return VB_REAL(ibv_resize_cq)(cq, cqe);
	dev = vb_dev(cq->context);
	if (!dev->ops->resize_cq)
		return vb_errno(-EOPNOTSUPP);
	return vb_errno(dev->ops->resize_cq(dev, cq, cqe));
}

EXPORT int ibv_destroy_cq(struct ibv_cq *cq)
{
	struct dev *dev;

	if (!vb_ours(cq->context))
		return VB_REAL(ibv_destroy_cq)(cq);
	dev = vb_dev(cq->context);
	return vb_errno(dev->ops->destroy_cq(dev, cq));
}

/*
 * Waits until the count of the descriptor is not zero: 0, or -1 with errno. It
 * uses read() and gives back the 1 that it took (the descriptor is a
 * semaphore), not poll(): a signal restarts or interrupts read() as its handler
 * asks, which programs expect of ibv_get_cq_event(). A signal always interrupts
 * poll().
 */
static int wait_count(int fd)
{
	uint64_t n;
	ssize_t rc;

	if (read(fd, &n, sizeof(n)) < 0)
		return -1;
	rc = write(fd, &n, sizeof(n));
	return rc < 0 ? -1 : 0;
}

EXPORT int ibv_get_cq_event(struct ibv_comp_channel *ch, struct ibv_cq **cq,
			    void **cq_context)
{
	struct dev *dev;
	int rc;

	if (!vb_ours(ch->context))
		return VB_REAL(ibv_get_cq_event)(ch, cq, cq_context);
	dev = vb_dev(ch->context);
	while ((rc = dev->ops->get_cq_event(dev, ch, cq)) == -EAGAIN)
		if (wait_count(ch->fd))
			return -1;
	if (rc) {
		errno = -rc;
		return -1;
	}
	*cq_context = (*cq)->cq_context;
	return 0;
}

EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned n)
{
	struct dev *dev;

	if (!vb_ours(cq->context)) {
		VB_REAL(ibv_ack_cq_events)(cq, n);
		return;
	}
	dev = vb_dev(cq->context);
	dev->ops->ack_cq_events(dev, cq, n);
}

EXPORT int ibv_get_async_event(struct ibv_context *ctx,
			       struct ibv_async_event *event)
{
	struct dev *dev;
	int rc;

	if (!vb_ours(ctx))
		return VB_REAL(ibv_get_async_event)(ctx, event);
	dev = vb_dev(ctx);
	while ((rc = dev->ops->get_async_event(dev, event)) == -EAGAIN)
		if (wait_count(ctx->async_fd))
			return -1;
	if (rc) {
		errno = -rc;
		return -1;
	}
	return 0;
}

/* The context of the object of an event. The kind of event says what the object
 * is. Events of a port or device have no object. */
static struct ibv_context *event_context(const struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
		return event->element.cq->context;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return event->element.qp->context;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return event->element.srq->context;
	case IBV_EVENT_WQ_FATAL:
		return event->element.wq->context;
	default:
		return NULL;
	}
}

EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
	struct ibv_context *ctx = event_context(event);
	struct dev *dev;

	/* Neither the program nor the device counts an event without an
	 * object. */
	if (!ctx)
		return;
	if (!vb_ours(ctx)) {
		VB_REAL(ibv_ack_async_event)(event);
		return;
	}
	dev = vb_dev(ctx);
	dev->ops->ack_async_event(dev, event);
}
