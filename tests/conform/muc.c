/* SPDX-License-Identifier: MIT */
/*
 * muc.c - the reference model's requests on unreliable connections (IBA 9.8.2).
 * As on RC there is one peer, and messages come in order; but nobody answers:
 *
 * 9.8.2.2	what a responder does not accept it drops, and the requester
 *		hears of nothing: a bad R_Key, range or right, no receive, a
 *		message longer than its receive (which stays for the next one).
 * 9.8.2.2.7	a WRITE_WITH_IMM without a receive may have placed its bytes.
 * 9.8.2.2	a receive that is bad itself breaks the responder's QP.
 * 10.3.1.6	the requester's own mistakes move its QP to SQE: sends are
 *		flushed, receives go on; RTS is asked for by the owner.
 * 9.8.2.1	a request is complete when it was sent, before or after its
 *		message has arrived (M_ACK may come before M_EXEC: on rxe; soft
 *		completes behind the arrival), and the message may be lost
 *		(M_DROP: in harsh mode; the others lose none). On the link a
 *		mistake may be found, too, before those in front have arrived.
 */
#include "minner.h"

bool m_uc(const struct m_pair *m)
{
	return m->p->cfg[m->pair].type == IBV_QPT_UC;
}

static bool can_exec(const struct m_side *a)
{
	if (a->exec < a->ack) /* sent: it arrives, whatever its QP does */
		return true;
	return a->exec < a->n && !a->stuck && a->exec < a->held &&
	       (a->state == IBV_QPS_RTS || a->state == IBV_QPS_SQD);
}

/* It fails by its own mistake, and those in front of it are on their way. */
static bool fails_early(const struct m_side *a, int i)
{
	return i > a->exec && !m_local_ok(a, &a->sq[i]);
}

/* Sent, and not known to have arrived. */
static bool can_ack(const struct m_pair *m, const struct m_side *a)
{
	if (a->ack < a->exec)
		return true;
	return m->quirks & (RXE_EARLY | M_QUIRK_LINK) && a->ack < a->n &&
	       can_exec(a) && a->ack < a->held && !a->stuck &&
	       (a->state == IBV_QPS_RTS || a->state == IBV_QPS_SQD) &&
	       !op_fetches(a->sq[a->ack].w->op) &&
	       (m_local_ok(a, &a->sq[a->ack]) ||
		(m->quirks & M_QUIRK_LINK && fails_early(a, a->ack)));
}

/* On an SRQ the receive at its head, which nobody knows, may be too short: the
 * message is dropped, and what this QP takes next is for another one. */
static bool srq_too_short(const struct m_pair *m, int d)
{
	const struct m_side *a = &m->s[d], *b = &m->s[!d];
	const struct wr *w = a->sq[a->exec].w;

	return b->srq && op_is_send(w->op) &&
	       wr_len(w) > b->sure->shortest[b->srq_seen];
}

/* It finds a receive in an SRQ that cannot have been empty, and which one is to
 * be seen yet. */
static bool waits_for_srq(const struct m_pair *m, int d)
{
	const struct m_side *a = &m->s[d], *b = &m->s[!d];
	const struct m_req *r = &a->sq[a->exec];

	if (!b->srq || !op_is_message(r->w->op) || !m_accepts(a, b) ||
	    !m_local_ok(a, r) || m_remote_check(m, d, r) != IBV_WC_SUCCESS)
		return false;
	if (b->rhead == b->rn)
		return !m_maybe_empty(b);
	return op_is_send(r->w->op) && wr_len(r->w) > wr_len(b->rq[b->rhead].w);
}

bool m_uc_can(const struct m_pair *m, int d, enum m_act act)
{
	const struct m_side *a = &m->s[d], *b = &m->s[!d];

	switch (act) {
	case M_EXEC:
		return can_exec(a) && !waits_for_srq(m, d);
	case M_ACK:
		return can_ack(m, a);
	case M_DROP:
		return can_exec(a) &&
		       (m->quirks & M_QUIRK_HARSH || srq_too_short(m, d)) &&
		       op_is_message(a->sq[a->exec].w->op) &&
		       (b->srq || b->rhead < b->rn) &&
		       m_local_ok(a, &a->sq[a->exec]) && m_accepts(a, b);
	case M_OTHER: /* too long for a receive that is bad, too */
		return can_exec(a) && m_accepts(a, b) && b->rhead < b->rn &&
		       op_is_send(a->sq[a->exec].w->op) &&
		       !m_reach_ok(b, &b->rq[b->rhead], UINT32_MAX,
				   IBV_ACCESS_LOCAL_WRITE);
	default:
		return false;
	}
}

/* A plain WRITE that may be lost is no choice of its own: nothing else tells.
 * Each of its bytes is there or not. */
static bool lossy(const struct m_pair *m, const struct wr *w)
{
	return m->quirks & M_QUIRK_HARSH && w->op == IBV_WR_RDMA_WRITE;
}

static void place(m_byte *at, m_byte byte, bool maybe)
{
	if (!maybe || *at == byte)
		*at = byte;
	else if (*at & (M_ANY | M_OR))
		*at = M_ANY;
	else
		*at = byte | *at << 16 | M_OR;
}

enum fate {
	DEAF,	 /* nobody there */
	REFUSED, /* by key, range, right */
	NO_RECV,
	TOO_LONG,
	THERE,
};

/* The message, or the bytes of a WRITE, at the responder. */
static enum fate arrive(struct m_pair *m, int d, const struct m_req *r,
			bool other)
{
	struct m_side *a = &m->s[d], *b = &m->s[!d];
	const struct wr *w = r->w;
	uint32_t len = wr_len(w), i;
	m_byte data[MSG_MAX];
	bool too_long;

	if (!m_accepts(a, b) || b->deaf)
		return DEAF;
	if (m_remote_check(m, d, r) != IBV_WC_SUCCESS) {
		if (r->life[1] != b->shown_life)
			m_half_done(m, d, r);
		return REFUSED;
	}
	if (op_is_message(w->op) && b->rhead == b->rn) {
		if (!op_is_send(w->op))
			m_set_any(b, w->to.at, len);
		/* Or there was one, too short: a part is in it. */
		else if (m->quirks & M_QUIRK_LINK && b->srq &&
			 len > b->sure->shortest[b->srq_seen])
			b->srq_open = true;
		b->deaf = m->quirks & RXE_DEAF && !op_is_send(w->op) &&
			  m_long(m, r);
		return NO_RECV;
	}
	too_long = op_is_send(w->op) && len > wr_len(b->rq[b->rhead].w);
	if (too_long && !other && !(m->quirks & RXE_SHORT)) {
		m_recv_any(m, !d, b->rq[b->rhead].w);
		return TOO_LONG;
	}
	m_gather(a, r, data);
	for (i = 0; !op_is_send(w->op) && i < len; i++)
		place(&b->mem[w->to.at + i], data[i], lossy(m, w));
	if (op_is_message(w->op))
		m_receive(m, d, r, data, other && !too_long);
	return THERE;
}

/* Some of it may have come. */
static void lose(struct m_pair *m, int d, const struct m_req *r)
{
	if (m_remote_check(m, d, r) == IBV_WC_SUCCESS)
		m_half_done(m, d, r);
}

void m_uc_exec(struct m_pair *m, int d, enum m_act act)
{
	struct m_side *a = &m->s[d];
	struct m_req *r = &a->sq[a->exec];
	bool sent = a->exec++ < a->ack;
	enum fate fate = DEAF;

	r->status = IBV_WC_SUCCESS;
	if (op_fetches(r->w->op)) { /* RXE_FORM */
		r->status = IBV_WC_LOC_QP_OP_ERR;
		a->stuck = true;
	} else if (!sent && !m_local_ok(a, r)) {
		r->status = IBV_WC_LOC_PROT_ERR;
		a->stuck = true;
		m_begun(m, d, r);
		/* its own region went when some of it was there */
		if (r->life[0] != a->own_life &&
		    m_remote_check(m, d, r) == IBV_WC_SUCCESS)
			m_half_done(m, d, r);
	} else if (act == M_DROP) {
		lose(m, d, r);
	} else {
		fate = arrive(m, d, r, act == M_OTHER);
	}
	m_note(a, M_DID_EXEC, ((uint64_t)r->status << 8 | act) << 8 | fate);
}

/* Harsh mode: one that fails on its way, as its own region went, had begun, and
 * so may have the WRITEs behind it (docs/design/semantics.md, section 2:
 * what is behind a failed request is flushed, and may have been carried out).
 * Each of their bytes is there or not. A message begins when all before it has
 * landed. */
static void begun_behind(struct m_pair *m, int d, const struct m_req *failed)
{
	struct m_side *a = &m->s[d], *b = &m->s[!d];
	struct m_req was = m_in_its_prime(failed);
	m_byte data[MSG_MAX];
	uint32_t k;
	int i;

	if (!(m->quirks & M_QUIRK_HARSH) || !m_accepts(a, b) ||
	    !m_local_ok(a, &was))
		return;
	for (i = a->exec; i < a->n && i < a->held; i++) {
		was = m_in_its_prime(&a->sq[i]);
		if (was.w->op != IBV_WR_RDMA_WRITE || !m_local_ok(a, &was))
			return;
		if (m_remote_check(m, d, &was) != IBV_WC_SUCCESS)
			continue; /* dropped */
		m_gather(a, &was, data);
		for (k = 0; k < wr_len(was.w); k++)
			place(&b->mem[was.w->to.at + k], data[k], true);
	}
}

void m_uc_ack(struct m_pair *m, int d)
{
	struct m_side *s = &m->s[d];
	const struct m_req *r = &s->sq[s->ack++];

	if (fails_early(s, s->ack - 1)) {
		m_launch(m, d);
		m_push(s, 0, r->id, r->pos, IBV_WC_LOC_PROT_ERR);
		m_uc_to_sqe(m, d);
		return;
	}
	if (s->ack > s->exec || r->status == IBV_WC_SUCCESS) {
		m_done(s, r);
		return;
	}
	m_push(s, 0, r->id, r->pos, r->status);
	if (m->quirks & RXE_NO_SQE)
		m_to_err(m, d);
	else {
		begun_behind(m, d, r);
		m_uc_to_sqe(m, d);
	}
}

/* IBA 10.3.1.6. */
void m_uc_to_sqe(struct m_pair *m, int d)
{
	struct m_side *s = &m->s[d];

	m_note(s, M_DID_END, (uint64_t)s->ack);
	s->state = IBV_QPS_SQE;
	for (; s->ack < s->n; s->ack++)
		m_push(s, 0, s->sq[s->ack].id, s->sq[s->ack].pos,
		       IBV_WC_WR_FLUSH_ERR);
	s->exec = s->n;
}
