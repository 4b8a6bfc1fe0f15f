/* SPDX-License-Identifier: MIT */
/*
 * op.c - the life of one request in harsh mode, and how the requests of a QP
 * may overtake each other.
 *
 * A request begins (in the order of posting: all that can refuse it is looked
 * at), moves its bytes piece by piece, finishes (the receive of a message
 * completes, an atomic is carried out), has landed, and completes (in the order
 * of posting). A piece is a request of its own to exec.c, so every check is
 * made again for each, and nothing is held between two steps.
 *
 * The order kept is that of IBA 10.8.3.3 and no more. The responder takes
 * requests in order, but what is behind a READ goes on while the READ's pieces
 * are fetched, unless it is fenced, and of two WRITEs the second may be seen
 * first. READs and atomics begin after all before them. Datagrams have no order
 * at all but that of their completions.
 */
#include "dev/soft/dc/dc.h"
#include "dev/soft/harsh/harsh.h"
#include "dev/soft/link/dma.h"
#include "dev/soft/mw.h"
#include "dev/soft/ud/ud.h"

#include "base/prng.h"

#include <errno.h>
#include <string.h>

#define US 1000ull
#define MS 1000000ull
/* Requests that move at the same time. */
#define AT_ONCE 8u
/* Cells of a request; of one in memory that is reached by system calls. */
#define CELLS 128u
#define CELLS_PLAIN 8u
#define CELL_PLAIN 4096u
#define BURST_BYTES (1ull << 20)
/* A file that was asked for, a peer that does not answer: looks again. */
#define FILE_RETRY_NS (20 * MS)
#define ROUTE_RETRY_NS (1 * MS)
/* A NIC would go on for half a second by default, also where nobody will ever
 * answer; tests have less time. Where somebody may, it is as long here, too: a
 * peer that does not run for a while is not gone. At least so long, at most
 * twice: more than all delays of requests that have landed. */
#define GONE_PATIENCE_NS (15 * MS)
#define RNR_NAP_NS (5 * MS)
/* A look that comes so much too late. */
#define OVERSLEPT_NS (5 * MS)

uint64_t soft_harsh_draw(uint64_t *rng)
{
	*rng += 0x9e3779b97f4a7c15ull;
	return prng_mix(*rng);
}

/* 0: hardly any; 1: some tens of microseconds; 2: hundreds, up to 2 ms. */
uint64_t soft_harsh_delay(uint64_t *rng, uint8_t rough)
{
	uint64_t r = soft_harsh_draw(rng), kind = r & 63;

	r >>= 8;
	switch (rough) {
	case 0:
		return kind < 56 ? 0 : r % (20 * US);
	case 1:
		return kind < 32 ? 0 : kind ? r % (60 * US) : r % (500 * US);
	default:
		return kind ? r % (200 * US) : r % (2 * MS);
	}
}

static uint64_t delay(struct soft_wqe *w, enum harsh_place place)
{
	return soft_harsh_delay(&w->h.rng, w->h.rough[place]);
}

static bool is_message(const struct soft_wqe *w)
{
	return w->wr.opcode == IBV_WR_SEND ||
	       w->wr.opcode == IBV_WR_SEND_WITH_IMM ||
	       w->wr.opcode == IBV_WR_SEND_WITH_INV ||
	       w->wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static bool is_fetch(const struct soft_wqe *w)
{
	return w->wr.opcode == IBV_WR_RDMA_READ ||
	       w->wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	       w->wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static bool has_pieces(const struct soft_wqe *w)
{
	return !w->h.whole && w->h.len &&
	       (w->wr.opcode == IBV_WR_RDMA_WRITE ||
		w->wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM ||
		w->wr.opcode == IBV_WR_RDMA_READ);
}

/* --- pieces ------------------------------------------------------------- */

static uint32_t gcd(uint32_t a, uint32_t b)
{
	while (b) {
		uint32_t r = a % b;

		a = b;
		b = r;
	}
	return a;
}

static uint32_t cells(const struct soft_wqe *w, uint64_t unit)
{
	uint64_t from = w->wr.wr.rdma.remote_addr;
	uint64_t n = (from + w->h.len - 1) / unit - from / unit + 1;

	return n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}

/* Cells in ascending order for a peer that was promised it, else in any. */
static void plan_order(struct soft_wqe *w, bool ascending)
{
	struct harsh_plan *p = &w->h.plan;
	uint64_t r = soft_harsh_draw(&w->h.rng);
	unsigned tries = 8;

	p->mul = 1;
	p->add = 0;
	if (ascending || p->n < 2 || (r & 3) == 0)
		return;
	if ((r & 3) == 1) { /* backwards: the tail comes first */
		p->mul = p->n - 1;
		p->add = p->n - 1;
		return;
	}
	do {
		p->mul =
			1 + (uint32_t)(soft_harsh_draw(&w->h.rng) % (p->n - 1));
	} while (gcd(p->mul, p->n) != 1 && --tries);
	if (gcd(p->mul, p->n) != 1)
		p->mul = 1;
	p->add = (uint32_t)(soft_harsh_draw(&w->h.rng) % p->n);
}

static bool one_packet(const struct soft_qp *q, const struct soft_wqe *w)
{
	return w->h.len <= 128ull << q->attr.path_mtu;
}

static void dawdle(struct soft_qp *q, struct soft_wqe *w)
{
	uint64_t end =
		env_now_ns(q->s->env) + soft_harsh_draw(&w->h.rng) % (20 * US);

	while (env_now_ns(q->s->env) < end)
		__builtin_ia32_pause();
}

static void plan(struct soft_qp *q, struct soft_wqe *w)
{
	static const uint32_t units[] = {8,   64,   64,	  64,
					 256, 1024, 4096, 1u << 31};
	struct harsh_plan *p = &w->h.plan;
	uint64_t r = soft_harsh_draw(&w->h.rng);
	uint32_t bursts;

	p->unit = units[r & 7];
	if (w->h.plain && p->unit < CELL_PLAIN)
		p->unit = CELL_PLAIN;
	while (cells(w, p->unit) > (w->h.plain ? CELLS_PLAIN : CELLS))
		p->unit *= 2;
	p->n = cells(w, p->unit);
	p->next = 0;
	p->end = w->h.lost ? (uint32_t)(r >> 32) % p->n : p->n;
	plan_order(w, !is_fetch(w) && q->peer->nic->ordered);
	/* one to four, half of them one; more when it is long */
	bursts = r & 1 << 8 ? 1 : 1 + (r >> 9 & 3);
	if (w->h.len / BURST_BYTES >= bursts)
		bursts = (uint32_t)(w->h.len / BURST_BYTES) + 1;
	p->burst = (p->n + bursts - 1) / bursts;
	/* A packet is there or it is not, once all is over; on its way it is
	 * seen in pieces: a dawdle instead of a pause. */
	if (one_packet(q, w))
		p->burst = p->n;
	p->dawdle =
		(r >> 16 & 7) == 0 ? (uint32_t)(r >> 20) % p->n : UINT32_MAX;
}

/* Bytes off..off+n of the request's buffers, as pieces. */
static int slice(const struct soft_wqe *w, uint64_t off, uint64_t n,
		 struct ibv_sge *out)
{
	const struct ibv_sge *g = w->wr.sg_list;
	int k = 0;

	for (; n; g++) {
		uint64_t part;

		if (off >= g->length) {
			off -= g->length;
			continue;
		}
		part = g->length - off < n ? g->length - off : n;
		out[k].addr = g->addr + off;
		out[k].length = (uint32_t)part;
		out[k++].lkey = g->lkey;
		off = 0;
		n -= part;
	}
	return k;
}

static int one_cell(struct soft_qp *q, struct soft_wqe *w)
{
	const struct harsh_plan *p = &w->h.plan;
	uint64_t addr = w->wr.wr.rdma.remote_addr, from, to;
	struct ibv_sge sge[SOFT_SGE_MAX];
	struct ibv_send_wr wr = w->wr;
	uint64_t i;
	int r;

	i = ((uint64_t)p->mul * p->next + p->add) % p->n;
	from = (addr & ~(p->unit - 1)) + i * p->unit;
	to = from + p->unit;
	if (from < addr)
		from = addr;
	if (to > addr + w->h.len)
		to = addr + w->h.len;
	if (wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		wr.opcode = IBV_WR_RDMA_WRITE;
	wr.sg_list = sge;
	wr.num_sge = slice(w, from - addr, to - from, sge);
	wr.wr.rdma.remote_addr = from;
	dma_begin();
	r = soft_exec_inside(q, &wr, NULL);
	dma_end();
	return r;
}

/* --- what holds a request up -------------------------------------------- */

/* A dead peer is silent, and so is a peer with a broken queue: a NIC
 * retries. */
static int outcome(int r)
{
	return r == IBV_WC_RETRY_EXC_ERR ? -SOFT_PARK_GONE : r;
}

static bool peer_silent(const struct soft_qp *q)
{
	return q->peer && !soft_life(q->peer->nic);
}

static void fail(struct soft_wqe *w, int status)
{
	w->h.status = status;
	w->h.landed = true;
}

static uint64_t patience(struct soft_qp *q, struct soft_wqe *w)
{
	uint64_t all, some;

	if (w->park != SOFT_PARK_GONE)
		return soft_park_patience(q, w->park);
	all = soft_park_patience(q, SOFT_PARK_ROUTE);
	if (all == ENV_NEVER)
		return all;
	some = GONE_PATIENCE_NS + soft_harsh_draw(&w->h.rng) % GONE_PATIENCE_NS;
	return all < some ? all : some;
}

static uint64_t nap(struct soft_qp *q, const struct soft_wqe *w)
{
	uint64_t t;

	switch (w->park) {
	case SOFT_PARK_RNR:
		t = soft_park_rnr_ns(q);
		return t < RNR_NAP_NS ? t : RNR_NAP_NS;
	case SOFT_PARK_ROUTE:
	case SOFT_PARK_GONE:
	case SOFT_PARK_INV:
		return ROUTE_RETRY_NS;
	case SOFT_PARK_FAR:
		/* the answer comes to soft_harsh_progress() */
		return w->sent_no ? FILE_RETRY_NS : ENV_NEVER;
	default:
		return FILE_RETRY_NS;
	}
}

/* The peer is gone, the patience is over, and nobody has looked meanwhile, for
 * this process did not run. What else has become due since ends first, as it
 * would have: a program that has all it waits for ends then, and never hears of
 * what it sent beyond (ibv_srq_pingpong). Once. */
static bool overslept(struct soft_wqe *w, uint64_t now)
{
	if (w->park != SOFT_PARK_GONE || w->h.spared ||
	    now < w->h.due_ns + OVERSLEPT_NS)
		return false;
	w->h.spared = true;
	w->h.deadline_ns = now + ROUTE_RETRY_NS;
	return true;
}

/* A step came to r < 0: again later, or no more. */
static void wait_for(struct soft_qp *q, struct soft_wqe *w, int r, uint64_t now)
{
	uint64_t t;

	if (w->park != (enum soft_park) - r) {
		w->park = (enum soft_park) - r;
		t = patience(q, w);
		w->h.deadline_ns = t == ENV_NEVER ? t : now + t;
	}
	if (w->h.deadline_ns <= now && !overslept(w, now)) {
		fail(w, w->park == SOFT_PARK_RNR ? IBV_WC_RNR_RETRY_EXC_ERR
						 : IBV_WC_RETRY_EXC_ERR);
		return;
	}
	atomic_store(&q->asked_for, 0);
	t = nap(q, w);
	t = t == ENV_NEVER ? t : now + t;
	w->h.due_ns = t < w->h.deadline_ns ? t : w->h.deadline_ns;
}

static void waits_no_more(struct soft_wqe *w)
{
	w->park = SOFT_PARK_NONE;
	w->h.deadline_ns = ENV_NEVER;
}

/* --- steps -------------------------------------------------------------- */

static void land(struct soft_wqe *w, uint64_t now)
{
	w->h.landed = true;
	w->h.cqe_ns = now + delay(w, HARSH_CQE);
	waits_no_more(w);
}

static uint64_t wr_bytes(const struct ibv_send_wr *wr)
{
	uint64_t n = 0;
	int i;

	for (i = 0; i < wr->num_sge; i++)
		n += wr->sg_list[i].length;
	return n;
}

static void begin_datagram(struct soft_qp *q, struct soft_wqe *w, uint64_t now)
{
	int r = w->h.lost ? soft_ud_look(q, &w->wr) : soft_ud_exec(q, &w->wr);

	w->h.begun = true;
	if (r)
		fail(w, r);
	else
		land(w, now);
}

/* Looks at all that can refuse it, and draws its plan. */
static void begin(struct soft_qp *q, struct soft_wqe *w, bool alone,
		  uint64_t now)
{
	int r;

	w->h.len = wr_bytes(&w->wr);
	if (q->ud) {
		begin_datagram(q, w, now);
		return;
	}
	/* what will be lost, too: the requester's own mistakes are seen */
	if (peer_silent(q) && !q->unreliable)
		r = -SOFT_PARK_GONE;
	else
		r = outcome(soft_exec_look(q, w));
	if (r < 0) {
		wait_for(q, w, r, now);
		return;
	}
	if (!r && (w->h.refused || (w->h.lost && !has_pieces(w)))) {
		w->h.begun = true;
		land(w, now);
		return;
	}
	/* An error breaks the peer's queue: all before it must be there. What
	 * cannot be moved in pieces goes alone, too. */
	if (r > 0 || w->h.whole) {
		w->h.whole = true;
		w->h.begun = alone;
		w->h.due_ns = now;
		return;
	}
	w->h.begun = true;
	waits_no_more(w);
	if (has_pieces(w))
		plan(q, w);
	else
		w->h.moved = true;
	w->h.at_end = is_message(w) && one_packet(q, w) && !w->h.lost;
	w->h.moved |= w->h.at_end;
	w->h.due_ns = now + delay(w, w->h.moved ? HARSH_FINISH : HARSH_PAUSE);
}

/* A mistake of the requester, or a wait that ends by itself: every other
 * failure loses a UC message. */
static bool own_mistake(int r)
{
	return r == IBV_WC_LOC_PROT_ERR || r == IBV_WC_LOC_LEN_ERR ||
	       r == -SOFT_PARK_XLAT || r == -SOFT_PARK_FAR;
}

/* Up to n cells. */
static int move_cells(struct soft_qp *q, struct soft_wqe *w, uint32_t n)
{
	struct harsh_plan *p = &w->h.plan;
	int r;

	for (; n && p->next < p->end; n--) {
		r = one_cell(q, w);
		if (r && q->unreliable && !own_mistake(r)) {
			w->h.refused = true;
			return 0;
		}
		r = outcome(r);
		if (r)
			return r;
		if (p->next++ == p->dawdle)
			dawdle(q, w);
	}
	return 0;
}

/* The peer sees a part of the next WRITE before the end of w. Called only when
 * the last pieces of w come next: should a QP break in between, no peer may be
 * left with the second WRITE without the first, because the responder took
 * their packets in order. */
static void overtake(struct soft_qp *q, struct soft_wqe *w)
{
	struct soft_wqe *o = w->next;

	if (!o || o->dest != w->dest || !o->h.begun || o->h.landed ||
	    o->h.lost || o->h.moved || !has_pieces(o) ||
	    o->wr.opcode != IBV_WR_RDMA_WRITE || soft_harsh_draw(&w->h.rng) & 1)
		return;
	/* A piece that fails now fails again in its turn: the peer's QP must
	 * not break before it has w. */
	q->early = true;
	move_cells(q, o, o->h.plan.burst);
	q->early = false;
}

static void move(struct soft_qp *q, struct soft_wqe *w, uint64_t now)
{
	struct harsh_plan *p = &w->h.plan;
	int r = soft_exec_open(q);

	if (!r) {
		if (!is_fetch(w) && p->next + p->burst >= p->end)
			overtake(q, w);
		r = move_cells(q, w, p->burst);
		soft_exec_close(q);
	} else if (q->unreliable) {
		land(w, now);
		return;
	}
	if (w->h.refused) {
		land(w, now);
		return;
	}
	r = outcome(r);
	if (r < 0) {
		wait_for(q, w, r, now);
		return;
	}
	waits_no_more(w);
	if (r > 0) {
		fail(w, r);
		return;
	}
	w->h.moved = p->next == p->end;
	if (!w->h.moved)
		w->h.due_ns = now + delay(w, HARSH_PAUSE);
	else if (is_message(w) && !w->h.lost)
		w->h.due_ns = now + delay(w, HARSH_FINISH);
	else
		land(w, now);
}

/* The last step: a message arrives, an atomic is carried out, or all at once
 * of what goes alone or is empty. */
static void finish(struct soft_qp *q, struct soft_wqe *w, uint64_t now)
{
	int r;

	if (w->h.at_end && has_pieces(w)) {
		/* data and immediate are one packet */
		r = soft_exec_open(q);
		if (!r) {
			r = move_cells(q, w, w->h.plan.n);
			if (!r && !w->h.refused) {
				dma_begin();
				r = soft_exec_inside(q, &w->wr, w);
				dma_end();
			}
			soft_exec_close(q);
		} else if (q->unreliable) {
			r = 0;
		}
	} else {
		dma_begin();
		r = soft_exec(q, &w->wr, w);
		dma_end();
	}
	r = outcome(r);
	if (r < 0)
		wait_for(q, w, r, now);
	else if (r > 0)
		fail(w, r);
	else
		land(w, now);
}

/* What is before a request. */
struct before {
	bool landed;  /* all */
	bool sent;    /* all but READs */
	bool fetched; /* all READs and atomics */
	uint32_t moving;
};

static bool is_write(const struct soft_wqe *w)
{
	return w->wr.opcode == IBV_WR_RDMA_WRITE ||
	       w->wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/* Does it write where one before it is still writing? Of two WRITEs of a QP
 * to one place the later one's bytes stay (IBA 9.5). */
static bool overtakes(const struct soft_qp *q, const struct soft_wqe *w)
{
	uint64_t at = w->wr.wr.rdma.remote_addr, len = wr_bytes(&w->wr), from;
	const struct soft_wqe *p;

	for (p = q->parked; is_write(w) && p && p != w; p = p->next) {
		from = p->wr.wr.rdma.remote_addr;
		if (is_write(p) && !p->h.landed && from < at + len &&
		    at < from + wr_bytes(&p->wr))
			return true;
	}
	return false;
}

static bool may_begin(const struct soft_qp *q, const struct soft_wqe *w,
		      const struct before *b)
{
	if (b->moving >= AT_ONCE)
		return false;
	if (q->ud)
		return true;
	if (overtakes(q, w))
		return false;
	if (w->h.whole || is_fetch(w))
		return b->landed;
	if (w->wr.send_flags & IBV_SEND_FENCE && !b->fetched)
		return false;
	return b->sent || w->wr.opcode == IBV_WR_RDMA_WRITE;
}

/* Is its next step held up by what is before it? That one's step comes first
 * then, so nobody waits for this one's time. */
static bool may_step(const struct soft_qp *q, const struct soft_wqe *w,
		     const struct before *b, bool go)
{
	if (!w->h.begun)
		return go && may_begin(q, w, b);
	return is_fetch(w) || b->sent;
}

/* A bind, or an invalidation: in its turn, whatever the peer does. */
static void local(struct soft_qp *q, struct soft_wqe *w, bool alone,
		  uint64_t now)
{
	int r;

	if (!w->h.begun) {
		w->h.whole = true;
		w->h.begun = alone;
		w->h.due_ns = now;
		return;
	}
	r = soft_exec(q, &w->wr, w);
	if (r < 0)
		wait_for(q, w, r, now);
	else if (r > 0)
		fail(w, r);
	else
		land(w, now);
}

static void step(struct soft_qp *q, struct soft_wqe *w, const struct before *b,
		 uint64_t now)
{
	if (soft_is_local(&w->wr))
		local(q, w, b->landed, now);
	else if (!w->h.begun)
		begin(q, w, b->landed, now);
	else if (peer_silent(q) && q->unreliable)
		land(w, now);
	else if (peer_silent(q))
		wait_for(q, w, -SOFT_PARK_GONE, now);
	else if (w->h.moved || w->h.whole)
		finish(q, w, now);
	else
		move(q, w, now);
}

/* Takes the steps of w that are due. False: nothing behind it may begin. */
static bool steps(struct soft_qp *q, struct soft_wqe *w, struct before *b,
		  uint64_t now)
{
	bool go = soft_qp_state(q) == IBV_QPS_RTS;

	while (!w->h.landed && w->h.due_ns <= now && may_step(q, w, b, go))
		step(q, w, b, now);
	/* datagrams overtake each other */
	if ((!w->h.begun && !q->ud) || w->h.status)
		return false;
	if (w->h.landed)
		return true;
	b->landed = false;
	b->moving++;
	if (is_fetch(w))
		b->fetched = false;
	if (w->wr.opcode != IBV_WR_RDMA_READ)
		b->sent = false;
	return !w->h.whole;
}

/* Completes what has landed, in order. */
static void complete(struct soft_qp *q, uint64_t now)
{
	struct soft_wqe *w;
	int status;

	while ((w = q->parked) && w->h.landed) {
		if (w->h.cqe_ns < q->harsh->cqe_ns)
			w->h.cqe_ns = q->harsh->cqe_ns;
		if (w->h.cqe_ns > now)
			return;
		q->harsh->cqe_ns = w->h.cqe_ns;
		status = w->h.status;
		soft_park_expire_as(q, status);
		if (status)
			return; /* the rest was flushed */
	}
}

/* A step that is due and was not taken is held up by an earlier request. The
 * step of that request comes first. */
static uint64_t next_step(struct soft_qp *q, uint64_t now)
{
	uint64_t due = q->harsh->bell_ns;
	struct soft_wqe *w = q->parked;

	if (w && w->h.landed && w->h.cqe_ns < due)
		due = w->h.cqe_ns;
	for (; w; w = w->next) {
		if (!w->h.landed && w->h.due_ns > now && w->h.due_ns < due)
			due = w->h.due_ns;
		if (!w->h.begun && !q->ud)
			break;
	}
	return due;
}

/* A DCI has one target at a time: those of the head are taken, up to the first
 * of another. */
static void take_steps(struct soft_qp *q, uint64_t now)
{
	struct before b;
	struct dc_dest *to;
	struct soft_wqe *w;

	do {
		b = (struct before){
			.landed = true, .sent = true, .fetched = true};
		to = q->parked ? q->parked->dest : NULL;
		if (to)
			soft_dc_turn(q, to);
		w = q->parked;
		while (w && w->dest == to && steps(q, w, &b, now))
			w = w->next;
		complete(q, now);
	} while (q->parked && q->parked->dest != to);
}

uint64_t soft_harsh_run(struct soft_qp *q, uint64_t now)
{
	enum ibv_qp_state st = soft_qp_state(q);
	uint64_t due;

	if (q->harsh->bell_ns <= now)
		soft_harsh_hush(q);
	if (st == IBV_QPS_RTS || st == IBV_QPS_SQD)
		take_steps(q, now);
	if (soft_qp_state(q) == IBV_QPS_SQD && q->sqd_notify &&
	    !soft_harsh_busy(q))
		soft_ask_service(q->s, q->idx);
	due = next_step(q, now);
	atomic_store(&q->harsh->due_ns, due);
	return due;
}

bool soft_harsh_busy(const struct soft_qp *q)
{
	return q->parked && q->parked->h.begun;
}
