/* SPDX-License-Identifier: MIT */
/*
 * rc.c - the engine's life, and what its two halves share. See rc.h.
 */
#include "dev/soft/link/rc.h"

#include <string.h>

/* At least one: a QP that takes none refuses them by their right. */
static uint32_t limit_of(unsigned max_dest_rd_atomic)
{
	return max_dest_rd_atomic ? max_dest_rd_atomic : 1;
}

size_t rc_bytes(unsigned max_dest_rd_atomic)
{
	return sizeof(struct rc) +
	       limit_of(max_dest_rd_atomic) *
		       (sizeof(struct rc_answer) + sizeof(struct rc_result));
}

void rc_init(struct rc *r, const struct rc_ops *ops, void *owner,
	     const struct ibv_qp_attr *attr, uint32_t mtu)
{
	r->ops = ops;
	r->owner = owner;
	r->attr = attr;
	r->mtu = mtu;
	r->limit = limit_of(attr->max_dest_rd_atomic);
	r->answer = (struct rc_answer *)(void *)(r + 1);
	r->saved = (struct rc_result *)(void *)(r->answer + r->limit);
	for (uint32_t i = 0; i < r->limit; i++)
		r->saved[i].psn = UINT32_MAX;
	r->rs.psn = attr->rq_psn & PACKET_PSN_MASK;
	r->rq.tail = &r->rq.head;
	r->rq.retry_ns = r->rq.rnr_ns = r->rq.local_ns = RC_NEVER;
	r->rq.probe_ns = r->rq.timed_ns = RC_NEVER;
	cong_init(&r->own, RC_WINDOW);
	r->datagrams = r->rq.cong.cong = &r->own;
}

void rc_share(struct rc *r, struct cong *c)
{
	r->datagrams = r->rq.cong.cong = c;
}

void rc_init_uc(struct rc *r, const struct rc_ops *ops, void *owner,
		const struct ibv_qp_attr *attr, uint32_t mtu)
{
	rc_init(r, ops, owner, attr, mtu);
	r->unreliable = true;
}

void rc_send(struct rc *r, uint8_t *buf, struct packet *p)
{
	size_t len = packet_head_len(p->op), pad;

	if (r->unreliable && packet_transport(p->op) == PACKET_RC) {
		p->op = packet_op_of(PACKET_UC, p->op);
		p->ack_req = false;
	}
	p->qpn = r->attr->dest_qp_num;
	pad = packet_encode(buf, p);
	len += p->payload_len;
	memset(buf + len, 0, pad);
	r->ops->send(r->owner, len + pad);
	r->sent++;
}

/* A switch marked the packet: the peer's packets are too many; or those that we
 * asked for are. */
static void marked(struct rc *r, const struct packet *p)
{
	if (packet_has(p->op) & PACKET_ANSWERS)
		rc_requester_marked(r);
	else
		r->rs.marked = true;
}

enum rc_outcome rc_input(struct rc *r, uint64_t now, const struct packet *p)
{
	enum rc_outcome why;

	if (p->op == PACKET_CNP) {
		rc_requester_marked(r);
		return RC_TAKEN;
	}
	if (p->fecn)
		marked(r, p);
	if (packet_has(p->op) & PACKET_ANSWERS)
		why = rc_requester_input(r, now, p);
	else
		why = rc_responder_input(r, p);
	r->drops[why]++;
	if (!r->rs.met && why == RC_TAKEN) {
		r->rs.met = true;
		r->ops->event(r->owner, RC_MET);
	}
	return why;
}

/* Answers go first: the peer may wait for them to let us go on. */
void rc_run(struct rc *r, uint64_t now)
{
	r->blocked = false;
	rc_responder_run(r, now);
	rc_requester_run(r, now);
}

uint64_t rc_requester_deadline(const struct rc *r)
{
	const struct rc_requester *q = &r->rq;

	uint64_t due = q->retry_ns < q->rnr_ns ? q->retry_ns : q->rnr_ns;

	due = due < q->local_ns ? due : q->local_ns;
	return due < q->probe_ns ? due : q->probe_ns;
}

uint64_t rc_deadline(const struct rc *r)
{
	if (r->blocked || r->rs.marked || r->rs.answers || r->rs.nak_due ||
	    (r->rs.ack_due && !r->rs.held))
		return 0;
	return rc_requester_deadline(r);
}
