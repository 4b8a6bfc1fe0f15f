/* SPDX-License-Identifier: MIT */
/*
 * run_srq.c - the runner's shared receive queues, and the asynchronous events
 * that belong to them. A side has at most one.
 */
#include "run.h"

#include <errno.h>

int srq_open(struct node *n, const struct srq_cfg *c, struct granted *g)
{
	struct ibv_srq_init_attr a = {
		.attr = {.max_wr = c->depth, .max_sge = SGES}};
	int rc;

	if (!c->on)
		return 0;
	rc = n->dev->ops->create_srq(n->dev, n->pd, &a, &n->srq);
	*g = (struct granted){.recv_wr = a.attr.max_wr,
			      .recv_sge = a.attr.max_sge};
	return rc;
}

int srq_close(struct node *n)
{
	struct ibv_srq *srq = n->srq;

	n->srq = NULL;
	return srq ? n->dev->ops->destroy_srq(n->dev, srq) : 0;
}

int srq_close_early(struct world *w, const struct program *p)
{
	int i, d, rc;

	for (d = 0; d < 2; d++)
		for (i = 0; i < p->pairs; i++) {
			struct node *n = &w->node[d];

			if (!n->srq || !p->cfg[i].qp[d].srq || !n->qp[i])
				continue;
			rc = n->dev->ops->destroy_srq(n->dev, n->srq);
			if (rc == -EBUSY)
				continue;
			n->srq = rc ? n->srq : NULL;
			return rc ? rc : -EEXIST;
		}
	return 0;
}

int srq_step(struct node *n, const struct step *s, struct ev *e)
{
	struct ibv_srq_attr a = {.srq_limit = (uint32_t)s->arg};
	int rc;

	if (s->kind == STEP_SRQ_LIMIT)
		return n->dev->ops->modify_srq(n->dev, n->srq, &a,
					       IBV_SRQ_LIMIT);
	rc = n->dev->ops->query_srq(n->dev, n->srq, &a);
	e->n = (int)a.max_wr;
	e->id = a.srq_limit;
	return rc;
}

int srq_pair_of(const struct node *n, uint32_t qpn)
{
	int i = 0;

	while (i < PAIRS && (!n->qp[i] || n->qp[i]->qp_num != qpn))
		i++;
	return i;
}

bool srq_async(struct node *n, struct ev *e)
{
	struct ibv_async_event ev;
	int i;

	if (n->dev->ops->get_async_event(n->dev, &ev))
		return false;
	e->n = (int)ev.event_type;
	e->pair = SRQ_PAIR;
	for (i = 0; i < PAIRS; i++)
		if (ev.element.qp == n->qp[i] && n->qp[i])
			e->pair = (uint8_t)i;
	n->dev->ops->ack_async_event(n->dev, &ev);
	return true;
}
