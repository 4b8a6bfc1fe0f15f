/* SPDX-License-Identifier: MIT */
/*
 * cq.c - completion queues and channels of the simulated device.
 *
 * A CQ is a ring that the NIC writes; a completion for an armed CQ raises an
 * interrupt, which one core of the node serves, one after another.
 */
#include "dev/sim/sim_dev.h"

#include "base/pow2.h"
#include "base/assert.h"

#include <errno.h>

#define TAG_IRQ 17u

/* --- channels ---------------------------------------------------------- */

static struct sim_chan *chan_of(struct ibv_comp_channel *ch)
{
	return container_of(ch, struct sim_chan, ch);
}

int sim_create_chan(struct dev *dev, struct ibv_comp_channel **ch)
{
	struct sim_dev *d = sim_dev_of(dev);
	struct sim_chan *c = env_alloc(dev->env, sizeof(*c));
	int rc;

	if (!c)
		return -ENOMEM;
	rc = sim_fd_new(d->proc, &c->ch.fd);
	if (rc) {
		env_free(dev->env, c);
		return rc;
	}
	c->ch.context = dev->verbs;
	c->d = d;
	list_init(&c->fired);
	d->refs++;
	*ch = &c->ch;
	return 0;
}

int sim_destroy_chan(struct dev *dev, struct ibv_comp_channel *ch)
{
	struct sim_chan *c = chan_of(ch);

	if (c->refs)
		return -EBUSY;
	sim_fd_close(c->d->proc, ch->fd);
	c->d->refs--;
	env_free(dev->env, c);
	return 0;
}

int sim_get_cq_event(struct dev *dev, struct ibv_comp_channel *ch,
		     struct ibv_cq **cq)
{
	struct sim_chan *c = chan_of(ch);
	struct sim_cq *q;

	sim_charge(c->d->w, sim_costs(c->d->w)->syscall);
	if (list_empty(&c->fired))
		return -EAGAIN;
	q = container_of(c->fired.next, struct sim_cq, fired_link);
	if (!--q->fired)
		list_del(&q->fired_link);
	sim_fd_add(c->d->proc, ch->fd, -1);
	*cq = (struct ibv_cq *)(void *)&q->ex;
	return 0;
}

void sim_ack_cq_events(struct dev *dev, struct ibv_cq *cq, unsigned n)
{
	(void)dev;
	(void)cq;
	(void)n;
}

static void irq_served(struct sim_event *ev)
{
	struct sim_cq *cq = container_of(ev, struct sim_cq, irq_ev);

	if (!cq->fired++)
		list_add_tail(&cq->chan->fired, &cq->fired_link);
	sim_fd_add(cq->d->proc, cq->chan->ch.fd, 1);
}

static void irq_raise(struct sim_cq *cq)
{
	struct sim_nic *nic = cq->d->nic;
	uint64_t at = nic->irq.free_at;

	cq->armed = SIM_ARM_NOT;
	if (!cq->chan)
		return;
	nic->interrupts++;
	if (at < sim_now(cq->d->w))
		at = sim_now(cq->d->w);
	nic->irq.free_at = at + nic->net->model.irq;
	/* The CQ was armed again before the last interrupt was served: one
	 * event for both. */
	if (!cq->irq_ev.pos)
		sim_at(cq->d->w, &cq->irq_ev, nic->irq.free_at);
}

/* --- queues ------------------------------------------------------------ */

int sim_create_cq(struct dev *dev, int cqe, void *cq_context,
		  struct ibv_comp_channel *ch, struct ibv_cq **cq)
{
	struct sim_dev *d = sim_dev_of(dev);
	const struct nic_model *model = &d->nic->net->model;
	uint32_t cap;
	struct sim_cq *q;

	if (cqe < 1 || (uint32_t)cqe > SIM_CQE_MAX)
		return -EINVAL;
	cap = pow2_at_least((uint32_t)cqe);
	q = env_alloc(dev->env, sizeof(*q));
	if (!q)
		return -ENOMEM;
	q->ring = env_alloc(dev->env, cap * sizeof(*q->ring));
	if (!q->ring) {
		env_free(dev->env, q);
		return -ENOMEM;
	}
	q->ex.context = dev->verbs;
	q->ex.channel = ch;
	q->ex.cq_context = cq_context;
	q->ex.cqe = (int)cap;
	q->cap = cap;
	q->d = d;
	q->chan = ch ? chan_of(ch) : NULL;
	if (q->chan)
		q->chan->refs++;
	q->irq_ev.fn = irq_served;
	q->irq_ev.tag = TAG_IRQ;
	list_add_tail(&d->cqs, &q->link);
	sim_control(d, model->create_cq_cpu_ns, model->create_cq_nic_ns);
	*cq = (struct ibv_cq *)(void *)&q->ex;
	return 0;
}

/* To another ring; what is in the old one stays. */
int sim_resize_cq(struct dev *dev, struct ibv_cq *cq, int cqe)
{
	struct sim_dev *d = sim_dev_of(dev);
	const struct nic_model *model = &d->nic->net->model;
	struct sim_cq *q = sim_cq_of(cq);
	struct sim_cqe *ring;
	uint32_t cap, n, i;

	if (cqe < 1 || (uint32_t)cqe > SIM_CQE_MAX)
		return -EINVAL;
	sim_control(d, model->modify_cpu_ns, model->modify_nic_ns);
	cap = pow2_at_least((uint32_t)cqe);
	n = q->tail - q->head;
	if (n > cap)
		return -EINVAL;
	ring = env_alloc(dev->env, cap * sizeof(*ring));
	if (!ring)
		return -ENOMEM;
	for (i = 0; i < n; i++)
		ring[i] = q->ring[(q->head + i) & (q->cap - 1)];
	env_free(dev->env, q->ring);
	q->ring = ring;
	q->cap = cap;
	q->head = 0;
	q->tail = n;
	q->ex.cqe = (int)cap;
	return 0;
}

void sim_cq_free(struct sim_cq *q)
{
	sim_cancel(q->d->w, &q->irq_ev);
	list_del(&q->link);
	list_del(&q->fired_link);
	env_free(q->d->dev.env, q->ring);
	env_free(q->d->dev.env, q);
}

int sim_destroy_cq(struct dev *dev, struct ibv_cq *cq)
{
	struct sim_cq *q = sim_cq_of(cq);
	struct sim_dev *d = q->d;

	if (q->refs)
		return -EBUSY;
	if (q->chan) {
		q->chan->refs--;
		sim_fd_add(q->d->proc, q->chan->ch.fd, -(int)q->fired);
	}
	sim_async_drop(d, &q->ex);
	sim_cq_free(q);
	sim_control_destroy(d);
	return 0;
}

static void cq_overflow(struct sim_cq *cq)
{
	struct sim_dev *d = cq->d;
	struct list_node *n;

	cq->error = true;
	sim_async(d, IBV_EVENT_CQ_ERR, &cq->ex);
	list_for_each(n, &d->qps) {
		struct sim_qp *q = container_of(n, struct sim_qp, link);

		if (sim_cq_of(q->init.send_cq) != cq &&
		    sim_cq_of(q->init.recv_cq) != cq)
			continue;
		/* out of RESET it goes by modify_qp() alone */
		if (q->ex.qp_base.state == IBV_QPS_RESET)
			continue;
		sim_qp_to_err(q);
		sim_async(d, IBV_EVENT_QP_FATAL, &q->ex.qp_base);
	}
}

void sim_cq_push(struct sim_cq *cq, const struct sim_cqe *e, bool solicited)
{
	if (cq->error)
		return;
	if (cq->tail - cq->head == cq->cap) {
		cq_overflow(cq);
		return;
	}
	cq->ring[cq->tail++ & (cq->cap - 1)] = *e;
	if (cq->armed == SIM_ARM_ANY ||
	    (cq->armed == SIM_ARM_SOLICITED &&
	     (solicited || e->wc.status != IBV_WC_SUCCESS)))
		irq_raise(cq);
	sim_poller_notify(&cq->poller, cq->d->proc);
}

/* Frees the place of a receive, or the places of a send request and of all
 * requests before it. */
static void place_free(struct sim_cq *cq, const struct sim_cqe *e)
{
	struct sim_qp *q = sim_qp_find(cq->d->nic, e->wc.qp_num);

	if (!q)
		return;
	if (e->send)
		q->sq_freed = e->freed;
	else
		sim_recvq_of(q)->freed++;
}

int sim_poll_cq(struct ibv_cq *ibcq, int n, struct ibv_wc *wc)
{
	struct sim_cq *cq = sim_cq_of(ibcq);
	const struct nic_model *model = &cq->d->nic->net->model;
	int got = 0;

	sim_poller_looks(cq->d->w, &cq->poller);
	if (cq->error)
		return -EIO;
	while (got < n && cq->head != cq->tail) {
		struct sim_cqe *e = &cq->ring[cq->head++ & (cq->cap - 1)];

		place_free(cq, e);
		wc[got++] = e->wc;
	}
	sim_charge(cq->d->w, model->cpu_poll + (unsigned)got * model->cpu_cqe);
	return got;
}

int sim_req_notify_cq(struct ibv_cq *ibcq, int solicited_only)
{
	struct sim_cq *cq = sim_cq_of(ibcq);

	sim_charge(cq->d->w, cq->d->nic->net->model.cpu_post);
	if (cq->armed != SIM_ARM_ANY)
		cq->armed = solicited_only ? SIM_ARM_SOLICITED : SIM_ARM_ANY;
	return 0;
}

void sim_cq_purge(struct sim_cq *cq, uint32_t qpn)
{
	uint32_t from, to = cq->head;

	for (from = cq->head; from != cq->tail; from++) {
		struct sim_cqe *e = &cq->ring[from & (cq->cap - 1)];

		if (e->wc.qp_num != qpn)
			cq->ring[to++ & (cq->cap - 1)] = *e;
		else
			place_free(cq, e);
	}
	cq->tail = to;
}
