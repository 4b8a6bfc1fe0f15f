/* SPDX-License-Identifier: MIT */
/*
 * responder.c - the half of an RC QP that carries out the peer's requests: each
 * one once, in the order of PSNs, then an answer (IBA 9.7.4, 9.7.5.1, 9.9.3).
 *
 * An acknowledgement says that the data are where they belong, so it is only
 * noted here and sent by the next turn, behind all answers that are due before
 * it. Of a NAK the same. What breaks the QP is told to its owner when the NAK
 * has been sent.
 */
#include "dev/soft/link/rc.h"

#include <string.h>

#define RIGHTS(r) ((r)->attr->qp_access_flags)
#define LENGTH_MAX (1u << 31)

static bool is_send(unsigned op)
{
	return op <= PACKET_SEND_ONLY_IMM || op == PACKET_SEND_LAST_INV ||
	       op == PACKET_SEND_ONLY_INV;
}

static bool is_write(unsigned op)
{
	return op >= PACKET_WRITE_FIRST && op <= PACKET_WRITE_ONLY_IMM;
}

static void nak(struct rc *r, uint8_t syndrome)
{
	r->rs.nak = syndrome;
	r->rs.nak_psn = r->rs.psn;
	r->rs.nak_due = true;
}

/* UC: the rest of the message, until one begins, is dropped as well. A receive
 * that it had begun is for the next one. */
static enum rc_outcome give_up(struct rc *r, enum rc_outcome why)
{
	r->rs.message = RC_IDLE;
	r->rs.got = 0;
	return why;
}

static enum rc_outcome broken(struct rc *r, enum packet_nak code,
			      enum rc_event why)
{
	if (r->unreliable && why != RC_RECEIVE)
		return give_up(r, RC_DROP_REFUSED);
	if (r->unreliable) {
		r->rs.broken = true;
		r->ops->event(r->owner, why);
		return RC_TAKEN;
	}
	nak(r, (uint8_t)(PACKET_SYN_NAK | code));
	r->rs.broken = true;
	r->rs.why = why;
	return RC_TAKEN;
}

static enum rc_outcome invalid(struct rc *r)
{
	return broken(r, PACKET_NAK_REQUEST, RC_REQUEST);
}

static enum rc_outcome not_ready(struct rc *r)
{
	if (r->unreliable)
		return give_up(r, RC_DROP_NOT_READY);
	nak(r, (uint8_t)(PACKET_SYN_RNR |
			 (r->attr->min_rnr_timer & PACKET_SYN_VALUE)));
	r->rs.gap_said = true;
	return RC_DROP_NOT_READY;
}

/* It was carried out: n PSNs of it. */
static void step(struct rc *r, const struct packet *p, uint32_t n)
{
	r->rs.psn = packet_psn_add(r->rs.psn, n);
	r->rs.gap_said = false;
	r->rs.nak_due = false;
	r->rs.ack_due |= p->ack_req && !r->unreliable;
}

static void message_end(struct rc *r)
{
	r->rs.msn = packet_psn_add(r->rs.msn, 1);
	r->rs.message = RC_IDLE;
	r->rs.got = 0;
	r->rs.has_recv = false;
}

static bool has_imm(const struct packet *p)
{
	return packet_has(p->op) & PACKET_HAS_IMM;
}

/* Packets of a message: are their sizes those of its place in it? */
static bool is_sized(const struct rc *r, const struct packet *p)
{
	unsigned h = packet_has(p->op);

	if (!(h & PACKET_ENDS))
		return p->payload_len == r->mtu;
	if (p->payload_len > r->mtu)
		return false;
	return h & PACKET_BEGINS || p->payload_len > 0;
}

static bool take_recv(struct rc *r)
{
	if (!r->rs.has_recv)
		r->rs.has_recv = r->ops->recv_begin(r->owner);
	return r->rs.has_recv;
}

static enum rc_outcome take_send(struct rc *r, const struct packet *p)
{
	struct rc_responder *s = &r->rs;
	unsigned h = packet_has(p->op);
	int status;

	if ((s->message == RC_IDLE) != !!(h & PACKET_BEGINS) ||
	    s->message == RC_WRITE || !is_sized(r, p) ||
	    p->payload_len > LENGTH_MAX - s->got)
		return invalid(r);
	if (!take_recv(r))
		return not_ready(r);
	status = r->ops->recv_put(r->owner, s->got, p->payload, p->payload_len);
	if (status == IBV_WC_LOC_LEN_ERR && r->unreliable)
		return give_up(r, RC_DROP_REFUSED);
	if (status) {
		r->ops->recv_end(r->owner, status, s->got, p);
		s->has_recv = false;
		return broken(r,
			      status == IBV_WC_LOC_LEN_ERR
				      ? PACKET_NAK_REQUEST
				      : PACKET_NAK_OPERATION,
			      RC_RECEIVE);
	}
	if (h & PACKET_HAS_IETH && !r->ops->invalidate(r->owner, p->rkey)) {
		r->ops->recv_end(r->owner, IBV_WC_REM_INV_REQ_ERR, s->got, p);
		s->has_recv = false;
		return broken(r, PACKET_NAK_ACCESS, RC_RECEIVE);
	}
	s->message = RC_SEND;
	s->got += (uint32_t)p->payload_len;
	if (h & PACKET_ENDS) {
		r->ops->recv_end(r->owner, 0, s->got, p);
		message_end(r);
	}
	step(r, p, 1);
	return RC_TAKEN;
}

/* The whole of it, or what is left: the region may go between two packets. */
static bool reaches(struct rc *r, uint32_t rkey, uint64_t va, uint64_t len,
		    int access)
{
	return !len || r->ops->check(r->owner, rkey, va, len, access);
}

static enum rc_outcome take_write(struct rc *r, const struct packet *p)
{
	struct rc_responder *s = &r->rs;
	unsigned h = packet_has(p->op);
	bool ends = h & PACKET_ENDS;

	if ((s->message == RC_IDLE) != !!(h & PACKET_BEGINS) ||
	    s->message == RC_SEND || !is_sized(r, p) ||
	    !(RIGHTS(r) & IBV_ACCESS_REMOTE_WRITE))
		return invalid(r);
	if (h & PACKET_BEGINS) {
		s->va = p->va;
		s->rkey = p->rkey;
		s->len = p->len;
	}
	if (s->len > LENGTH_MAX || p->payload_len > s->len - s->got ||
	    ends != (s->got + p->payload_len == s->len))
		return invalid(r);
	if (!reaches(r, s->rkey, s->va + s->got, s->len - s->got,
		     IBV_ACCESS_REMOTE_WRITE))
		return broken(r, PACKET_NAK_ACCESS, RC_ACCESS);
	if (has_imm(p) && !take_recv(r))
		return not_ready(r);
	if (p->payload_len)
		r->ops->write(r->owner, s->va + s->got, p->payload,
			      p->payload_len, ends);
	s->message = RC_WRITE;
	s->got += (uint32_t)p->payload_len;
	if (has_imm(p))
		r->ops->recv_end(r->owner, 0, s->got, p);
	if (ends)
		message_end(r);
	step(r, p, 1);
	return RC_TAKEN;
}

/* NULL: as many as the QP takes are under way. */
static struct rc_answer *answer_new(struct rc *r, const struct packet *p)
{
	struct rc_responder *s = &r->rs;
	struct rc_answer *a;

	if (s->answers == r->limit)
		return NULL;
	a = &r->answer[(s->first + s->answers) % r->limit];
	memset(a, 0, sizeof(*a));
	a->psn = p->psn;
	a->packets = 1;
	s->answers++;
	return a;
}

static bool read_is_good(struct rc *r, const struct packet *p)
{
	return RIGHTS(r) & IBV_ACCESS_REMOTE_READ &&
	       r->attr->max_dest_rd_atomic && p->len <= LENGTH_MAX;
}

static bool answer_read(struct rc *r, const struct packet *p)
{
	struct rc_answer *a = answer_new(r, p);

	if (!a)
		return false;
	a->packets = rc_packets(r, p->len);
	a->rkey = p->rkey;
	a->va = p->va;
	a->len = p->len;
	a->msn = packet_psn_add(r->rs.msn, 1);
	return true;
}

static bool answer_atomic(struct rc *r, const struct packet *p, uint64_t orig)
{
	struct rc_answer *a = answer_new(r, p);

	if (!a)
		return false;
	a->is_atomic = true;
	a->orig = orig;
	a->msn = r->rs.msn;
	return true;
}

/* More at once than the QP takes: as if the packet had not come. */
static enum rc_outcome too_many(void)
{
	return RC_DROP_NOT_READY;
}

static enum rc_outcome take_read(struct rc *r, const struct packet *p)
{
	uint32_t packets = rc_packets(r, p->len);

	if (r->rs.message != RC_IDLE || !read_is_good(r, p))
		return invalid(r);
	if (!reaches(r, p->rkey, p->va, p->len, IBV_ACCESS_REMOTE_READ))
		return broken(r, PACKET_NAK_ACCESS, RC_ACCESS);
	if (!answer_read(r, p))
		return too_many();
	message_end(r);
	step(r, p, packets);
	return RC_TAKEN;
}

static enum rc_outcome take_atomic(struct rc *r, const struct packet *p)
{
	struct rc_responder *s = &r->rs;
	bool swaps = p->op == PACKET_CMP_SWAP;
	uint64_t orig;

	if (s->message != RC_IDLE || p->va & 7 ||
	    !(RIGHTS(r) & IBV_ACCESS_REMOTE_ATOMIC) ||
	    !r->attr->max_dest_rd_atomic)
		return invalid(r);
	if (!reaches(r, p->rkey, p->va, 8, IBV_ACCESS_REMOTE_ATOMIC))
		return broken(r, PACKET_NAK_ACCESS, RC_ACCESS);
	if (s->answers == r->limit)
		return too_many();
	orig = r->ops->atomic(r->owner, p->va, swaps, p->compare, p->swap);
	r->saved[s->saved_next] = (struct rc_result){p->psn, orig};
	s->saved_next = (s->saved_next + 1) % r->limit;
	message_end(r);
	answer_atomic(r, p, orig);
	step(r, p, 1);
	return RC_TAKEN;
}

/* It was carried out before. Its answer was lost, or is on its way. */
static enum rc_outcome take_repeated(struct rc *r, const struct packet *p)
{
	struct rc_responder *s = &r->rs;
	uint32_t end, i, n;

	if (is_send(p->op) || is_write(p->op)) {
		s->ack_due = true;
	} else if (p->op == PACKET_READ_REQUEST) {
		end = packet_psn_add(p->psn, rc_packets(r, p->len));
		if (read_is_good(r, p) && packet_psn_diff(end, s->psn) <= 0 &&
		    reaches(r, p->rkey, p->va, p->len, IBV_ACCESS_REMOTE_READ))
			answer_read(r, p);
	} else {
		/* the newest first: PSNs come again */
		for (i = 0; i < r->limit; i++) {
			n = (s->saved_next + r->limit - 1 - i) % r->limit;
			if (r->saved[n].psn != p->psn)
				continue;
			answer_atomic(r, p, r->saved[n].orig);
			break;
		}
	}
	return RC_DROP_REPEATED;
}

/* IBA 9.8.2: a gap costs the message that it is in, and those that are wholly
 * in it. */
static enum rc_outcome uc_input(struct rc *r, const struct packet *uc)
{
	struct rc_responder *s = &r->rs;
	struct packet plain = *uc, *p = &plain;
	bool begins = packet_has(uc->op) & PACKET_BEGINS;

	p->op = (uint8_t)packet_plain_op(uc->op);

	if (begins || p->psn != s->psn)
		give_up(r, RC_DROP_GAP);
	s->psn = packet_psn_add(p->psn, 1);
	if (!begins && s->message == RC_IDLE)
		return RC_DROP_GAP;
	s->psn = p->psn;
	if (is_send(p->op))
		return take_send(r, p);
	return take_write(r, p);
}

enum rc_outcome rc_responder_input(struct rc *r, const struct packet *p)
{
	struct rc_responder *s = &r->rs;
	int32_t ahead = packet_psn_diff(p->psn, s->psn);

	if (s->broken)
		return RC_DROP_STATE;
	if (r->unreliable)
		return uc_input(r, p);
	if (ahead < 0)
		return take_repeated(r, p);
	if (ahead > 0) {
		if (!s->gap_said)
			nak(r, PACKET_SYN_NAK | PACKET_NAK_SEQUENCE);
		s->gap_said = true;
		return RC_DROP_GAP;
	}
	if (is_send(p->op))
		return take_send(r, p);
	if (is_write(p->op))
		return take_write(r, p);
	if (p->op == PACKET_READ_REQUEST)
		return take_read(r, p);
	return take_atomic(r, p);
}

static void send_aeth(struct rc *r, uint8_t *buf, uint8_t syndrome,
		      uint32_t psn)
{
	struct packet p = {.op = PACKET_ACK,
			   .psn = psn,
			   .syndrome = syndrome,
			   .msn = r->rs.msn};

	rc_send(r, buf, &p);
}

static enum packet_op read_op(const struct rc_answer *a)
{
	bool last = a->sent + 1 == a->packets;

	if (a->packets == 1)
		return PACKET_READ_ONLY;
	if (a->sent == 0)
		return PACKET_READ_FIRST;
	return last ? PACKET_READ_LAST : PACKET_READ_MIDDLE;
}

/* The next packet of the oldest answer. False: its memory is gone. */
static bool send_answer(struct rc *r, struct rc_answer *a, uint8_t *buf)
{
	struct packet p = {.psn = packet_psn_add(a->psn, a->sent),
			   .syndrome = PACKET_SYN_ACK | PACKET_CREDIT_NONE,
			   .msn = a->msn};
	uint32_t at = a->sent * r->mtu;

	if (a->is_atomic) {
		p.op = PACKET_ATOMIC_ACK;
		p.orig = a->orig;
	} else {
		p.op = (uint8_t)read_op(a);
		p.payload_len = a->len - at < r->mtu ? a->len - at : r->mtu;
		if (!reaches(r, a->rkey, a->va + at, p.payload_len,
			     IBV_ACCESS_REMOTE_READ))
			return false;
		if (p.payload_len)
			r->ops->read(r->owner, a->va + at,
				     buf + packet_head_len(p.op),
				     p.payload_len);
	}
	rc_send(r, buf, &p);
	a->sent++;
	return true;
}

static void answer_over(struct rc *r)
{
	r->rs.first = (r->rs.first + 1) % r->limit;
	r->rs.answers--;
}

/* What stood behind it is not answered any more. */
static void answer_failed(struct rc *r, const struct rc_answer *a)
{
	r->rs.psn = packet_psn_add(a->psn, a->sent);
	r->rs.answers = 0;
	r->rs.ack_due = false;
	broken(r, PACKET_NAK_ACCESS, RC_ACCESS);
}

static bool send_answers(struct rc *r)
{
	unsigned n;

	for (n = 0; r->rs.answers; n++) {
		struct rc_answer *a = &r->answer[r->rs.first];
		uint8_t *buf;

		if (n == RC_ANSWERS)
			return false;
		buf = r->ops->begin(r->owner, true);
		if (!buf) {
			r->blocked = true;
			return false;
		}
		if (!send_answer(r, a, buf))
			answer_failed(r, a);
		else if (a->sent == a->packets)
			answer_over(r);
	}
	return true;
}

/* At most one a turn. */
static bool send_mark(struct rc *r)
{
	struct packet p = {.op = PACKET_CNP, .becn = true};
	uint8_t *buf;

	if (!r->rs.marked)
		return true;
	buf = r->ops->begin(r->owner, true);
	if (!buf) {
		r->blocked = true;
		return false;
	}
	rc_send(r, buf, &p);
	r->rs.marked = false;
	return true;
}

/* Is an ACK due, and nothing else? */
static bool is_ack_alone(const struct rc_responder *s)
{
	return s->ack_due && !s->nak_due && !s->answers && !s->marked;
}

bool rc_hold(struct rc *r, uint64_t now)
{
	struct rc_responder *s = &r->rs;

	s->held = s->message == RC_IDLE && s->answered >= RC_HOLD_AFTER &&
		  is_ack_alone(s);
	return s->held;
}

void rc_unhold(struct rc *r)
{
	r->rs.held = false;
	r->rs.answered = 0;
}

static void send_ack(struct rc *r, uint8_t *buf)
{
	send_aeth(r, buf, PACKET_SYN_ACK | PACKET_CREDIT_NONE,
		  packet_psn_add(r->rs.psn, PACKET_PSN_MASK));
	r->rs.ack_due = r->rs.held = false;
}

void rc_responder_sent(struct rc *r, uint64_t now)
{
	struct rc_responder *s = &r->rs;
	uint8_t *buf;

	if (s->held && is_ack_alone(s)) {
		buf = r->ops->begin(r->owner, true);
		if (buf)
			send_ack(r, buf);
		s->held = false;
	} else if (s->acked_ns) {
		if (now - s->acked_ns > RC_HOLD_NS)
			s->answered = 0;
		else if (s->answered < RC_HOLD_AFTER)
			s->answered++;
		s->acked_ns = 0;
	}
}

void rc_responder_run(struct rc *r, uint64_t now)
{
	struct rc_responder *s = &r->rs;
	uint8_t *buf;

	if (s->held && is_ack_alone(s))
		return;
	s->held = false;
	if (!send_mark(r))
		return;
	if (!send_answers(r) || !(s->ack_due || s->nak_due))
		return;
	buf = r->ops->begin(r->owner, true);
	if (!buf) {
		r->blocked = true;
		return;
	}
	/* a NAK acknowledges all that came before it */
	if (s->nak_due)
		send_aeth(r, buf, s->nak, s->nak_psn);
	else
		send_ack(r, buf);
	if (s->acked_ns) /* we answered nothing since the last one */
		s->answered = 0;
	s->acked_ns = now;
	s->ack_due = s->nak_due = false;
	if (s->broken)
		r->ops->event(r->owner, s->why);
}
