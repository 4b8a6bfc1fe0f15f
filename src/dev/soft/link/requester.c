/* SPDX-License-Identifier: MIT */
/*
 * requester.c - the half of an RC QP that posts: packets of requests in the
 * order of PSNs, a window, acknowledgements, and the ways back (IBA 9.7.5.1,
 * 9.9.2). What is missing is sent again from the oldest PSN on that was not
 * acknowledged: `next` goes back to `una`, and `top` remembers how far the
 * packets had come.
 */
#include "dev/soft/link/rc.h"
#include "dev/states.h"

#include <string.h>

static bool is_atomic(const struct rc_wqe *w)
{
	return w->op == IBV_WR_ATOMIC_CMP_AND_SWP ||
	       w->op == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* Does it end by an answer of its own? */
static bool is_answered(const struct rc_wqe *w)
{
	return w->op == IBV_WR_RDMA_READ || is_atomic(w);
}

/* Is it carried out at this end alone? It takes no PSN. */
static bool is_local(const struct rc_wqe *w)
{
	return w->op == IBV_WR_LOCAL_INV || w->op == IBV_WR_BIND_MW;
}

static uint32_t diff(uint32_t a, uint32_t b)
{
	return (a - b) & PACKET_PSN_MASK;
}

void rc_start(struct rc *r)
{
	struct rc_requester *q = &r->rq;

	q->una = q->next = q->top = r->attr->sq_psn & PACKET_PSN_MASK;
	q->ask_psn = packet_psn_add(q->una, PACKET_PSN_MASK);
	cong_join(&q->cong, q->cong.cong, q->una);
	q->retry_left = r->attr->retry_cnt;
	q->rnr_left = r->attr->rnr_retry;
	q->missing = RC_NONE;
	q->on = true;
}

void rc_pause(struct rc *r, bool paused)
{
	r->rq.paused = paused;
}

void rc_resume(struct rc *r)
{
	r->rq.on = true;
}

void rc_post(struct rc *r, struct rc_wqe *w)
{
	w->next = NULL;
	w->packets = 0;
	*r->rq.tail = w;
	r->rq.tail = &w->next;
	if (!r->rq.cur) {
		r->rq.cur = w;
		r->rq.cur_at = 0;
	}
}

struct rc_wqe *rc_take(struct rc *r)
{
	struct rc_requester *q = &r->rq;
	struct rc_wqe *w = q->head;

	if (!w)
		return NULL;
	q->head = w->next;
	if (!q->head)
		q->tail = &q->head;
	if (q->cur == w) {
		q->cur = w->next;
		q->cur_at = 0;
	}
	if (!q->head) {
		q->retry_ns = q->rnr_ns = q->probe_ns = RC_NEVER;
		q->timed_ns = q->local_ns = RC_NEVER;
		q->reads = 0;
		cong_idle(&q->cong);
	}
	return w;
}

bool rc_is_busy(const struct rc *r)
{
	return r->rq.head &&
	       (r->rq.head->packets || r->rq.local_ns != RC_NEVER);
}

/* The owner takes out all others, as of now or within the call. */
static void fail(struct rc *r, int status)
{
	struct rc_wqe *w = rc_take(r);

	r->rq.on = false;
	r->rq.retry_ns = r->rq.rnr_ns = r->rq.probe_ns = RC_NEVER;
	r->rq.local_ns = RC_NEVER;
	r->ops->done(r->owner, w, status);
}

static uint64_t timeout_ns(const struct rc *r)
{
	return r->attr->timeout ? 4096ull << (r->attr->timeout & 31) : 0;
}

/* As of TCP (RFC 6298), in integers. */
static void rtt_add(struct rc_requester *q, uint64_t rtt)
{
	uint64_t off = rtt > q->rtt ? rtt - q->rtt : q->rtt - rtt;

	if (!q->rtt) {
		q->rtt = rtt;
		q->rtt_var = rtt / 2;
		return;
	}
	q->rtt_var = (3 * q->rtt_var + off) / 4;
	q->rtt = (7 * q->rtt + rtt) / 8;
}

static void probe_set(struct rc *r, uint64_t now)
{
	struct rc_requester *q = &r->rq;
	uint64_t off = 4 * q->rtt_var, wait;

	wait = q->rtt + (off > RC_PROBE_NS ? off : RC_PROBE_NS);
	if (!q->rtt || r->stream)
		wait = RC_PROBE_FIRST_NS;
	wait <<= q->probes;
	/* On a connection the peer drops packets until it is in RTR. */
	q->probe_ns = !(r->stream && r->heard) && q->una != q->next &&
				      wait < timeout_ns(r)
			      ? now + wait
			      : RC_NEVER;
}

static void retry_set(struct rc *r, uint64_t now)
{
	uint64_t wait = timeout_ns(r);

	r->rq.retry_ns = wait ? now + wait : RC_NEVER;
	if (r->rq.retry_left == r->attr->retry_cnt)
		r->rq.since_ns = now;
}

static void timer_set(struct rc *r, uint64_t now)
{
	cong_timer(&r->rq.cong);
	if (r->rq.una != r->rq.next)
		retry_set(r, now);
	else
		r->rq.retry_ns = RC_NEVER;
	probe_set(r, now);
}

/* The next packet is the oldest that was not acknowledged. */
static void go_back(struct rc *r)
{
	struct rc_requester *q = &r->rq;

	q->next = q->una;
	q->cur = q->head;
	q->cur_at = q->cur && q->cur->packets ? diff(q->una, q->cur->psn) : 0;
	q->reads = 0;
	q->asked = 0;
	q->ask_psn = packet_psn_add(q->una, PACKET_PSN_MASK);
	q->retry_ns = q->probe_ns = RC_NEVER;
	q->timed_ns = RC_NEVER; /* which of two is acknowledged, nobody knows */
	cong_idle(&q->cong);
}

void rc_carrier(struct rc *r, bool stream)
{
	struct rc_requester *q = &r->rq;

	r->stream = stream;
	r->heard = false;
	q->missing = RC_NONE;
	q->alone = false;
	if (q->on && q->una != q->next)
		go_back(r);
	cong_idle(&q->cong);
	cong_join(&q->cong, stream ? NULL : r->datagrams, q->next);
}

/* What una names is missing. Once for each place: what was on its way behind it
 * says the same again, and says nothing of what is sent now. */
static bool gap(struct rc *r)
{
	if (r->rq.missing == r->rq.una)
		return false;
	r->gaps++;
	cong_gap(&r->rq.cong, r->rq.una);
	go_back(r);
	r->rq.missing = r->rq.una;
	return true;
}

/* una moves to psn: everything before it has arrived. */
static void advance(struct rc *r, uint64_t now, uint32_t psn)
{
	struct rc_requester *q = &r->rq;

	cong_acked(&q->cong, diff(psn, q->una));
	if (q->timed_ns != RC_NEVER && packet_psn_diff(psn, q->timed) > 0) {
		rtt_add(q, now - q->timed_ns);
		q->timed_ns = RC_NEVER;
	}
	q->probes = 0;
	r->heard = true;
	q->una = psn;
	q->alone = false;
	q->missing = RC_NONE;
	q->retry_left = r->attr->retry_cnt;
	q->rnr_left = r->attr->rnr_retry;
	if (packet_psn_diff(q->next, psn) < 0) {
		/* more had arrived than was sent since it went back */
		q->next = psn;
		while (q->cur && q->cur->packets &&
		       diff(psn, q->cur->psn) >= q->cur->packets)
			q->cur = q->cur->next;
		q->cur_at =
			q->cur && q->cur->packets ? diff(psn, q->cur->psn) : 0;
	}
	if (q->next == psn)
		cong_idle(&q->cong);
	timer_set(r, now);
}

static void finish_head(struct rc *r)
{
	struct rc_requester *q = &r->rq;
	struct rc_wqe *w = q->head;
	uint64_t retry = q->retry_ns, rnr = q->rnr_ns;

	rc_take(r);
	if (q->head) {
		q->retry_ns = retry;
		q->rnr_ns = rnr;
	}
	r->ops->done(r->owner, w, IBV_WC_SUCCESS);
}

/* Everything before psn has arrived at the peer; but a READ or an atomic is
 * over by its own answer only. False: one of those is missing, una stands at
 * it. */
static bool arrived(struct rc *r, uint64_t now, uint32_t psn)
{
	struct rc_requester *q = &r->rq;

	while (q->head && q->head->packets &&
	       packet_psn_diff(psn, q->una) > 0) {
		struct rc_wqe *w = q->head;
		uint32_t end = packet_psn_add(w->psn, w->packets);

		if (is_answered(w))
			return false;
		if (packet_psn_diff(psn, end) < 0) {
			advance(r, now, psn);
			return true;
		}
		advance(r, now, end);
		finish_head(r);
		if (!q->on) /* the completion queue overflowed */
			return true;
	}
	return true;
}

/* An answer that was sent before this one did not come. */
static enum rc_outcome answer_lost(struct rc *r)
{
	gap(r);
	return RC_DROP_GAP;
}

/* An acknowledged READ or atomic, or a piece of it. */
static void answered(struct rc *r, uint64_t now, bool ends_request)
{
	struct rc_requester *q = &r->rq;
	struct rc_wqe *w = q->head;
	uint32_t psn = packet_psn_add(q->una, 1);

	if (ends_request && q->reads)
		q->reads--;
	advance(r, now, psn);
	if (diff(psn, w->psn) == w->packets)
		finish_head(r);
}

static enum rc_outcome take_answer(struct rc *r, uint64_t now,
				   const struct packet *p)
{
	struct rc_requester *q = &r->rq;
	struct rc_wqe *w;
	uint32_t at, n, want;
	int status;

	if (!arrived(r, now, p->psn))
		return answer_lost(r);
	w = q->head;
	if (!q->on || !w || !w->packets || p->psn != q->una || !is_answered(w))
		return RC_DROP_STRANGE;
	if (is_atomic(w)) {
		if (p->op != PACKET_ATOMIC_ACK)
			return RC_DROP_STRANGE;
		status = r->ops->scatter(r->owner, w, 0,
					 (const uint8_t *)&p->orig, 8);
		if (status)
			fail(r, status);
		else
			answered(r, now, true);
		return RC_TAKEN;
	}
	n = diff(p->psn, w->psn);
	at = n * r->mtu;
	want = w->len - at < r->mtu ? w->len - at : r->mtu;
	if (p->op == PACKET_ATOMIC_ACK || p->payload_len != want)
		return RC_DROP_STRANGE;
	status = want ? r->ops->scatter(r->owner, w, at, p->payload, want) : 0;
	if (status)
		fail(r, status);
	else
		answered(r, now,
			 (n + 1) % RC_READ_CHUNK == 0 || n + 1 == w->packets);
	return RC_TAKEN;
}

static enum rc_outcome take_rnr(struct rc *r, uint64_t now,
				const struct packet *p)
{
	struct rc_requester *q = &r->rq;

	if (p->psn != q->una || q->rnr_ns != RC_NEVER)
		return RC_DROP_REPEATED;
	r->rnrs++;
	if (q->rnr_left == 0) {
		fail(r, IBV_WC_RNR_RETRY_EXC_ERR);
		return RC_TAKEN;
	}
	if (q->rnr_left < 7)
		q->rnr_left--;
	go_back(r);
	q->rnr_ns = now + dev_rnr_ns(p->syndrome & PACKET_SYN_VALUE);
	return RC_TAKEN;
}

static enum rc_outcome take_nak(struct rc *r, uint64_t now,
				const struct packet *p)
{
	static const uint8_t status[] = {
		[PACKET_NAK_REQUEST] = IBV_WC_REM_INV_REQ_ERR,
		[PACKET_NAK_ACCESS] = IBV_WC_REM_ACCESS_ERR,
		[PACKET_NAK_OPERATION] = IBV_WC_REM_OP_ERR,
	};
	uint8_t code = p->syndrome & PACKET_SYN_VALUE;

	if (code == PACKET_NAK_SEQUENCE)
		return gap(r) ? RC_TAKEN : RC_DROP_REPEATED;
	if (code >= sizeof(status) || p->psn != r->rq.una)
		return RC_DROP_STRANGE;
	fail(r, status[code]);
	return RC_TAKEN;
}

static enum rc_outcome take_ack(struct rc *r, uint64_t now,
				const struct packet *p)
{
	switch (p->syndrome & PACKET_SYN_KIND) {
	case PACKET_SYN_ACK:
		if (!arrived(r, now, packet_psn_add(p->psn, 1)))
			return answer_lost(r);
		return RC_TAKEN;
	case PACKET_SYN_RNR:
	case PACKET_SYN_NAK:
		/* all before it has arrived */
		if (!arrived(r, now, p->psn))
			return answer_lost(r);
		if (!r->rq.on || !r->rq.head)
			return RC_DROP_STRANGE;
		if ((p->syndrome & PACKET_SYN_KIND) == PACKET_SYN_RNR)
			return take_rnr(r, now, p);
		return take_nak(r, now, p);
	default:
		return RC_DROP_STRANGE;
	}
}

enum rc_outcome rc_requester_input(struct rc *r, uint64_t now,
				   const struct packet *p)
{
	struct rc_requester *q = &r->rq;

	if (!q->on)
		return RC_DROP_STATE;
	if (packet_psn_diff(p->psn, q->una) < 0)
		return RC_DROP_REPEATED;
	/* of what was sent, at most */
	if (packet_psn_diff(p->psn, q->top) >= 0)
		return RC_DROP_STRANGE;
	return p->op == PACKET_ACK ? take_ack(r, now, p)
				   : take_answer(r, now, p);
}

void rc_requester_marked(struct rc *r)
{
	if (!r->rq.on || r->unreliable)
		return;
	r->marks++;
	cong_mark(&r->rq.cong, r->rq.una);
}

static uint32_t window_of(const struct rc *r)
{
	uint32_t most = RC_WINDOW_BYTES / r->mtu, n;

	if (r->rq.alone)
		return 1;
	if (r->stream)
		return RC_STREAM_WINDOW;
	n = cong_share(&r->rq.cong);
	if (most > RC_WINDOW)
		most = RC_WINDOW;
	return n < most ? n : most;
}

static enum packet_op op_of(const struct rc_wqe *w, bool first, bool last)
{
	bool imm = w->op == IBV_WR_SEND_WITH_IMM ||
		   w->op == IBV_WR_RDMA_WRITE_WITH_IMM;
	bool write = w->op == IBV_WR_RDMA_WRITE ||
		     w->op == IBV_WR_RDMA_WRITE_WITH_IMM;
	int op;

	if (first)
		op = last ? PACKET_SEND_ONLY : PACKET_SEND_FIRST;
	else
		op = last ? PACKET_SEND_LAST : PACKET_SEND_MIDDLE;
	if (last && w->op == IBV_WR_SEND_WITH_INV)
		return first ? PACKET_SEND_ONLY_INV : PACKET_SEND_LAST_INV;
	if (last && imm)
		op++;
	return (enum packet_op)(write ? op + PACKET_WRITE_FIRST : op);
}

/* The n-th packet of a SEND or WRITE, into buf. */
static int make_data(struct rc *r, struct rc_wqe *w, uint32_t n, uint8_t *buf,
		     struct packet *p)
{
	uint32_t at = n * r->mtu;
	bool last = n + 1 == w->packets;

	p->op = (uint8_t)op_of(w, n == 0, last);
	p->va = w->va;
	p->rkey = w->rkey;
	p->len = w->len;
	p->imm = w->imm;
	p->solicited = last && w->solicited;
	p->payload_len = last ? w->len - at : r->mtu;
	return p->payload_len ? r->ops->gather(r->owner, w, at,
					       buf + packet_head_len(p->op),
					       p->payload_len)
			      : 0;
}

/* A READ from its n-th packet on, or an atomic: how many PSNs it takes. */
static uint32_t make_question(struct rc *r, struct rc_wqe *w, uint32_t n,
			      struct packet *p)
{
	uint32_t end = (n / RC_READ_CHUNK + 1) * RC_READ_CHUNK, at = n * r->mtu;

	p->rkey = w->rkey;
	p->va = w->va + at;
	if (w->op == IBV_WR_RDMA_READ) {
		p->op = PACKET_READ_REQUEST;
		end = end < w->packets ? end : w->packets;
		p->len = end == w->packets ? w->len - at : (end - n) * r->mtu;
		return end - n;
	}
	if (w->op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		p->op = PACKET_FETCH_ADD;
		p->swap = w->compare_add;
	} else {
		p->op = PACKET_CMP_SWAP;
		p->swap = w->swap;
		p->compare = w->compare_add;
	}
	return 1;
}

static uint32_t chunk_left(const struct rc *r, const struct rc_wqe *w,
			   uint32_t n)
{
	uint32_t packets = w->packets ? w->packets : rc_packets(r, w->len);
	uint32_t end = (n / RC_READ_CHUNK + 1) * RC_READ_CHUNK;

	if (w->op != IBV_WR_RDMA_READ)
		return 1;
	return (end < packets ? end : packets) - n;
}

/* May its next packet go now? *takes: so many PSNs. */
static bool may_send(const struct rc *r, const struct rc_wqe *w,
		     uint32_t *takes)
{
	const struct rc_requester *q = &r->rq;
	uint32_t out = diff(q->next, q->una);
	uint32_t most = r->attr->max_rd_atomic;

	if (!w->packets && (q->paused || (w->fenced && q->reads)))
		return false;
	if (!w->packets && r->stream &&
	    !r->ops->may_begin(r->owner, w, out == 0))
		return false;
	if (r->unreliable) {
		*takes = 1;
		return true;
	}
	if (is_answered(w) && q->reads >= (most ? most : 1))
		return false;
	*takes = chunk_left(r, w, q->cur_at);
	/* The window may have shrunk since the last packet, which asked for no
	 * answer then: one more asks. */
	return out == 0 || out + *takes <= window_of(r) ||
	       packet_psn_diff(q->ask_psn, q->una) < 0;
}

/* 0: sent; else a status, or -1: no room. */
static int send_one(struct rc *r, uint64_t now, uint32_t takes)
{
	struct rc_requester *q = &r->rq;
	struct rc_wqe *w = q->cur;
	struct packet p = {.psn = q->next};
	uint32_t out = diff(q->next, q->una);
	uint8_t *buf;
	int status;

	if (is_answered(w) && !r->attr->max_rd_atomic)
		return IBV_WC_LOC_QP_OP_ERR;
	status = q->cur_at == 0 ? r->ops->local(r->owner, w) : 0;
	if (status)
		return status;
	buf = r->ops->begin(r->owner, false);
	if (!buf)
		return -1;
	if (!w->packets) {
		w->psn = q->next;
		w->packets = is_atomic(w) ? 1 : rc_packets(r, w->len);
	}
	if (is_answered(w)) {
		make_question(r, w, q->cur_at, &p);
		q->reads++;
		q->asked = 0;
		q->ask_psn = packet_psn_add(q->next, takes - 1);
	} else {
		status = make_data(r, w, q->cur_at, buf, &p);
		if (status)
			return status;
		p.ack_req = q->cur_at + 1 == w->packets ||
			    ++q->asked >= RC_ASK_EACH ||
			    out + 1 >= window_of(r);
		if (p.ack_req) {
			q->asked = 0;
			q->ask_psn = q->next;
		}
	}
	if (!r->unreliable)
		cong_sent(&q->cong, q->next);
	rc_send(r, buf, &p);
	if ((p.ack_req || is_answered(w)) && q->timed_ns == RC_NEVER &&
	    q->next == q->top) {
		q->timed = q->next;
		q->timed_ns = now;
	}
	q->next = packet_psn_add(q->next, takes);
	if (packet_psn_diff(q->next, q->top) > 0)
		q->top = q->next;
	if (q->retry_ns == RC_NEVER && !r->unreliable)
		timer_set(r, now);
	else if (q->probe_ns == RC_NEVER && !r->unreliable)
		probe_set(r, now);
	q->cur_at += takes;
	if (q->cur_at == w->packets) {
		q->cur = w->next;
		q->cur_at = 0;
	}
	if (r->unreliable) {
		q->una = q->next;
		if (q->cur != w)
			finish_head(r);
	}
	return 0;
}

/* Nothing came for longer than it ever takes: the oldest packet goes once more,
 * by itself. Its answer, or that of one that had arrived, says where the gap is.
 * No retry of the QP: those count a peer that is gone. */
static void probe(struct rc *r, uint64_t now)
{
	struct rc_requester *q = &r->rq;
	uint64_t retry_ns = q->retry_ns;

	if (q->probes < RC_PROBES_MAX)
		q->probes++;
	r->probes++;
	cong_gap(&q->cong, q->una);
	go_back(r);
	q->retry_ns = retry_ns;
	q->alone = true;
	q->missing = RC_NONE;
}

static void timers(struct rc *r, uint64_t now)
{
	struct rc_requester *q = &r->rq;

	if (q->rnr_ns <= now)
		q->rnr_ns = RC_NEVER;
	if (q->local_ns <= now)
		q->local_ns = RC_NEVER;
	if (q->probe_ns <= now && q->retry_ns > now)
		probe(r, now);
	if (q->retry_ns > now)
		return;
	if (q->retry_left == 0) {
		fail(r, IBV_WC_RETRY_EXC_ERR);
		return;
	}
	q->retry_left--;
	r->retries++;
	if (r->stream && r->heard) {
		/* It is there or on its way: the peer is slow, or stopped. */
		timer_set(r, now);
		return;
	}
	cong_timeout(&q->cong, q->una);
	q->alone = true;
	q->missing = RC_NONE;
	go_back(r);
}

void rc_give_up(struct rc *r)
{
	if (!r->rq.on || !r->rq.head)
		return;
	r->rq.retry_left = 0;
	r->rq.retry_ns = 0;
}

/* The next request is of this end alone. When all before it is over: what they
 * did at the peer, and the peer at us, is then done. False: not yet. */
static bool carry_out(struct rc *r, uint64_t now)
{
	struct rc_requester *q = &r->rq;
	int status;

	if (q->cur != q->head || q->paused || q->local_ns != RC_NEVER)
		return false;
	status = r->ops->carry_out(r->owner, q->cur);
	if (status < 0)
		q->local_ns = now + RC_LOCAL_NS;
	else if (status)
		fail(r, status);
	else
		finish_head(r);
	return status >= 0;
}

static void send_all(struct rc *r, uint64_t now)
{
	struct rc_requester *q = &r->rq;
	uint32_t takes;
	int status;

	while (q->on && q->cur && q->rnr_ns == RC_NEVER) {
		if (is_local(q->cur)) {
			if (!carry_out(r, now))
				return;
			continue;
		}
		if (!may_send(r, q->cur, &takes))
			return;
		status = send_one(r, now, takes);
		if (status < 0) {
			r->blocked = true;
			/* no room for ever: the peer is not there */
			if (q->retry_ns == RC_NEVER)
				retry_set(r, now);
			return;
		}
		/* Those before it end first. */
		if (status && q->cur != q->head)
			return;
		if (status)
			fail(r, status);
	}
}

void rc_requester_run(struct rc *r, uint64_t now)
{
	uint32_t next;

	if (!r->rq.on)
		return;
	timers(r, now);
	next = r->rq.next;
	send_all(r, now);
	if (r->rq.next != next)
		rc_responder_sent(r, now);
}
