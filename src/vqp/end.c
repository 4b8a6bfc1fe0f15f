/* SPDX-License-Identifier: MIT */
/*
 * end.c - the ends of a pair of vqps hear of each other's end. A vqp that has
 * sent messages to a port, and is freed, says so in a last message (kind 5): the
 * vqp which its messages made is of no use any more, and the program that popped
 * it can free it. A message for a vqp that is not there, or not any more, is refused:
 * then its sender fails.
 *
 * A vqp that its front has freed:
 *
 *	where                    until                        then
 *	ours, in vqps (keeps())  its messages are popped      a front's again
 *	closing, end NONE        all it posted is complete    destroyed
 *	closing, end OWED        all it has is posted         the end is queued
 *	closing, end OUT         the end is complete          destroyed
 *	closing, ERROR, OWED     the next round               CONNECTED, OWED: its
 *	                                                      queue pair is as good
 *	closing, ERROR, no end   the next round               destroyed
 *
 * A peer that took nothing for 5 s hears no end: what it has of the vqp stays until
 * its program frees it. A dead one sends none: life.c finds that out, and all that
 * its messages made ends in the same way.
 *
 * Invariants: the last message has the number behind the last one sent, and is
 * told to the front behind all of those. A vqp that owes it is in engine.closing
 * until it is sent, or VQP_LINGER_NS are over.
 */
#include "vqp/engine.h"

/* --- the end that goes --------------------------------------------------- */

bool vqp_end_owed(const struct vqp *v)
{
	if (v->e->ending || !v->by_port || list_linked(&v->closing))
		return false;
	return v->state == VQP_CONNECTED ||
	       (v->state == VQP_ERROR && !vqp_is_dead(v->why));
}

void vqp_end_unsent(struct vqp *v, const struct vqp_slot *s)
{
	if (s->kind == SLOT_MESSAGE && s->numbered &&
	    (int32_t)(s->seq - v->sent) < 0)
		v->sent = s->seq;
}

bool vqp_end_queue(struct vqp *v)
{
	struct vqp_engine *e = v->e;
	struct vqp_slot *s;

	/* Those of many vqps to a peer that does not receive keep no room from
	 * others. */
	if (!vqp_has_slots(e, v->share, 1) && !PLANTED(e, END_SLOTS))
		return false;
	s = vqp_slot_get(v);
	if (!s)
		return false;
	s->kind = SLOT_END;
	s->wr.opcode = IBV_WR_SEND;
	s->wr.num_sge = 1;
	s->sge[0] = (struct ibv_sge){(uintptr_t)vqp_cell(e, s), MSG_HEADER,
				     e->conf.cells_lkey};
	v->end = VQP_END_OUT;
	vqp_slot_queue(v, s, false);
	return true;
}

/* --- the end that stays -------------------------------------------------- */

void vqp_end_take(struct vqp *v, const struct msg_head *h, struct vqp *to)
{
	v->far_ends = true;
	v->far_sent = h->seq;
	vqp_end_look(v, to);
}

void vqp_end_look(struct vqp *v, struct vqp *to)
{
	const struct vqp_conf *c = &v->e->conf;
	struct vqp_message *m;

	if (!v->far_ends || v->end_queued ||
	    ((int32_t)(v->expect - v->far_sent) < 0 &&
	     !PLANTED(v->e, END_EARLY)))
		return;
	m = c->port->alloc(c->arg, sizeof(*m));
	if (!m) {
		vqp_say(v->e, 4, "vqp: no memory for a message: it is lost");
		return;
	}
	v->end_queued = true;
	m->from = v;
	m->ends = true;
	list_add_tail(&to->messages, &m->link);
	vqp_ready_note(to);
}

void vqp_end_died(struct vqp *v)
{
	if (!v->bound || PLANTED(v->e, END_DIED))
		return;
	v->far_ends = true;
	v->far_sent = v->expect;
	vqp_end_look(v, v->bound);
}

void vqp_far_gone(struct vqp *v)
{
	/* The last message goes all the same: the other end's vqp may be there,
	 * in error. */
	if (v->state != VQP_CONNECTED || v->end == VQP_END_OUT)
		return;
	v->far_gone = true;
	if (!list_linked(&v->link))
		list_add_tail(&v->e->busy, &v->link);
}
