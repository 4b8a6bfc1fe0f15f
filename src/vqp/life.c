/* SPDX-License-Identifier: MIT */
/*
 * life.c - peers that die without a word. A node that only receives posts nothing
 * to its senders, so no request of its own shows that one of them is dead. The
 * engine asks: a peer that has vqps here, which its messages made, and was not
 * heard of for VQP_QUIET_NS, is sent a WRITE of no byte. Its device answers; its
 * process need not run. If that fails twice, VQP_LOST_NS apart, the peer is dead:
 * its vqps fail, and the front hears of each as of one that was freed.
 *
 * The question has a queue pair of its own, made with the first one. So a peer
 * that does not answer holds up no requests. One question is under way at a time,
 * and none has a verdict that takes longer than VQP_ASKED_NS: the device may wait
 * for a process that is stopped.
 *
 * A peer that DC does not reach is not asked here: rc.c asks by the queue pair that
 * the peer sends on. If that fails, and nothing is heard for VQP_LOST_RC_NS, the
 * peer is dead, too.
 *
 * Invariants: engine.parents has the peers that have children and are not known to
 * be dead, the one that was looked at last at its end. engine.asked has a
 * reference, and its question counts in cq_used.
 */
#include "vqp/engine.h"

/* --- peers with children -------------------------------------------------- */

void vqp_parent_add(struct vqp_engine *e, struct vqp_peer *p)
{
	list_add_tail(&e->parents, &p->parents);
	e->n_parents++;
}

void vqp_parent_del(struct vqp_engine *e, struct vqp_peer *p)
{
	if (!list_linked(&p->parents))
		return;
	list_del(&p->parents);
	e->n_parents--;
}

/* --- the dead ------------------------------------------------------------ */

void vqp_life_died(struct vqp_engine *e, struct vqp_peer *p)
{
	struct vqp *v;
	uint32_t i;

	p->refs++;
	vqp_parent_del(e, p);
	for (i = 0; i < e->vqps_cap; i++) {
		v = e->vqps[i];
		if (!v || v->peer != p)
			continue;
		/* What is posted fails by itself. */
		if (v->state == VQP_CONNECTED && !v->n_posted)
			vqp_fail(v, IBV_WC_RETRY_EXC_ERR);
		vqp_end_died(v);
	}
	e->events++;
	vqp_peer_forget(e, p);
	vqp_peer_put(e, p);
}

void vqp_life_lost(struct vqp_engine *e, struct vqp_peer *p)
{
	uint64_t after = p->dc ? VQP_LOST_NS : VQP_LOST_RC_NS;

	if (!p->lost_ns || (p->lost_ns <= p->heard_ns && !PLANTED(e, LIFE_OLD)))
		p->lost_ns = e->now_ns;
	if (e->now_ns - p->lost_ns >= after || PLANTED(e, LIFE_ONCE))
		vqp_life_died(e, p);
}

/* --- the question -------------------------------------------------------- */

static uint32_t asker(const struct vqp_engine *e)
{
	return e->conf.dcis + 2 * e->conf.rcs;
}

static void over(struct vqp_engine *e)
{
	e->cq_used--;
	vqp_peer_put(e, e->asked);
	e->asked = NULL;
}

static void ask(struct vqp_engine *e, struct vqp_peer *p)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, /* of no byte */
				 .send_flags = IBV_SEND_SIGNALED};

	if (e->cq_used >= e->conf.cq_max)
		return;
	if (!e->can_ask)
		e->can_ask = !e->conf.port->replace(e->conf.arg, asker(e));
	if (!e->can_ask)
		return;
	wr.wr_id = (uint64_t)++e->ask << 32 | VQP_WR_ASK;
	wr.wr.rdma.remote_addr = p->node.table;
	wr.wr.rdma.rkey = p->node.table_rkey;
	if (e->conf.port->post(e->conf.arg, asker(e), &wr, 1, p)) {
		e->can_ask = false;
		return;
	}
	e->cq_used++;
	p->refs++;
	p->asked_ns = e->now_ns;
	e->asked = p;
}

void vqp_life_answer(struct vqp_engine *e, uint32_t ask,
		     enum ibv_wc_status status)
{
	struct vqp_peer *p = e->asked;

	if (!p || ask != e->ask)
		return; /* a late one, of a queue pair that is gone */
	p->refs++;
	over(e);
	if (status == IBV_WC_SUCCESS)
		p->heard_ns = e->now_ns;
	else
		e->can_ask = false;
	/* Flushed: the queue pair broke by itself. */
	if (status != IBV_WC_SUCCESS && status != IBV_WC_WR_FLUSH_ERR)
		vqp_life_lost(e, p);
	vqp_peer_put(e, p);
}

/* --- in turn -------------------------------------------------------------- */

static void look(struct vqp_engine *e, struct vqp_peer *p)
{
	uint64_t since = p->heard_ns > p->asked_ns && !PLANTED(e, LIFE_BUSY)
				 ? p->heard_ns
				 : p->asked_ns;

	list_del(&p->parents);
	list_add_tail(&e->parents, &p->parents);
	if (!p->dc && p->lost_ns > p->heard_ns && !PLANTED(e, LIFE_RC))
		vqp_life_lost(e, p);
	else if (p->dc && e->now_ns - since >= VQP_QUIET_NS &&
		 !PLANTED(e, LIFE))
		ask(e, p);
}

int vqp_life_run(struct vqp_engine *e)
{
	int moved = 0;

	if (e->asked && e->now_ns - e->asked->asked_ns >= VQP_ASKED_NS &&
	    !PLANTED(e, LIFE_STUCK)) {
		over(e);
		e->can_ask = false;
	}
	if (e->now_ns - e->looked_ns >= VQP_LOOK_NS) {
		e->looked_ns = e->now_ns;
		e->looks = e->n_parents < VQP_LOOKS ? e->n_parents : VQP_LOOKS;
	}
	/* A device may carry the question out in the post. */
	while (e->looks && !e->asked && e->n_parents) {
		e->looks--;
		look(e,
		     container_of(e->parents.next, struct vqp_peer, parents));
		if (e->asked)
			moved += vqp_reap(e);
	}
	return moved;
}

void vqp_life_fini(struct vqp_engine *e)
{
	if (e->asked)
		over(e);
}
