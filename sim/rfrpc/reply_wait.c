/* SPDX-License-Identifier: MIT */
/* reply_wait.c - see reply_wait.h. */
#include "sim/rfrpc/reply_wait.h"

#include "dev/sim/sim_dev.h"

#include <errno.h>

/* A post that was the last before an error, or that no peer answers. */
#define LIMIT_NS 10000000u

static bool done(const struct sim_qp *q, uint32_t tail)
{
	return q->ex.qp_base.state != IBV_QPS_RTS ||
	       (int32_t)(q->sq_head - tail) >= 0;
}

/* Looks at the completion queue again and again, then takes what is there. */
static int post_and_wait(struct ibv_qp *qp, struct ibv_send_wr *wr,
			 struct ibv_send_wr **bad)
{
	struct sim_qp *q = sim_qp_of(qp);
	const struct nic_model *model = &q->d->nic->net->model;
	struct sim_world *w = q->d->w;
	int rc = sim_post_send(qp, wr, bad);
	uint64_t limit = sim_thread_now(w) + LIMIT_NS;
	uint32_t tail = q->sq_tail;

	if (rc || q->kind != SIM_RC)
		return rc;
	while (!done(q, tail) && sim_thread_now(w) < limit) {
		sim_charge(w, model->cpu_poll);
		sim_flush(w, 1);
	}
	sim_charge(w, model->cpu_cqe);
	return 0;
}

void reply_wait_on(struct dev *dev)
{
	dev->verbs->ops.post_send = post_and_wait;
}
