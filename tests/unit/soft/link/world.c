/* SPDX-License-Identifier: MIT */
/*
 * world.c - see world.h.
 */
#include "world.h"

#include "dev/soft/link/icrc.h"

#include <stdlib.h>
#include <string.h>

uint64_t world_random(struct world *w, uint64_t below)
{
	w->rng ^= w->rng << 13;
	w->rng ^= w->rng >> 7;
	w->rng ^= w->rng << 17;
	return (w->rng * 0x2545f4914f6cdd1dull >> 33) % below;
}

static uint8_t pattern(const struct end *e, int n, uint32_t at)
{
	return (uint8_t)(at * 7 + at / 251 + (uint32_t)n * 31 +
			 (e == e->w->ends[0] ? 5 : 90));
}

static uint8_t rom(uint64_t at)
{
	return (uint8_t)(at * 13 + at / 239);
}

static bool op_may_begin(void *o, const struct rc_wqe *w, bool idle)
{
	struct end *e = o;
	bool wants = w->len > e->bulk;

	if (!e->bulk || wants == e->out_bulk)
		return true;
	assert_int_equal(idle, e->rc->rq.next == e->rc->rq.una);
	if (idle) {
		e->out_bulk = wants;
		e->moves++;
	}
	return idle || !wants;
}

static uint8_t *op_begin(void *o, bool answers)
{
	struct end *e = o;

	e->tx_bulk = answers ? e->back_bulk : e->out_bulk;
	return e->no_room ? NULL : e->out;
}

/* IPv6: the check value has no identification to be solved for, so that a
 * packet with one wrong bit never passes. */
static const struct icrc_flow flow = {{0x20, 1}, {0x20, 2}, 1, 2};

static void fly(struct world *w, struct end *to, uint64_t at, size_t len)
{
	struct flight *f = &w->air[w->n_air];

	if (w->n_air == FLIGHT) {
		w->wire.counts[FAULT_FULL]++;
		return;
	}
	w->n_air++;
	f->by_bulk = to->peer->tx_bulk;
	f->at = at + (f->by_bulk ? w->bulk_ns : w->calls_ns);
	f->to = to;
	f->len = len + PACKET_ICRC;
	memcpy(f->bytes, to->peer->out, len);
	icrc_put(&flow, 0, f->bytes, len);
}

static void sum_up(struct world *w, const uint8_t *buf, size_t len)
{
	w->sum = (w->sum ^ w->now) * 0x100000001b3ull;
	for (size_t i = 0; i < len; i++)
		w->sum = (w->sum ^ buf[i]) * 0x100000001b3ull;
}

static void op_send(void *o, size_t len)
{
	struct end *e = o;
	struct world *w = e->w;
	struct flight *f;
	struct fate fate;

	assert_true(len >= PACKET_BTH && len % 4 == 0);
	memcpy(e->last, e->out, len);
	e->packets++;
	if (e->packets == e->shrink_at)
		e->rc->own.window = 2;
	w->sent++;
	sum_up(w, e->out, len);
	fault_next(&w->wire, w->now, len + PACKET_ICRC, &fate);
	if (fate.gone)
		return;
	if (fate.again_at)
		fly(w, e->peer, fate.again_at, len);
	if (w->n_air == FLIGHT)
		return;
	f = &w->air[w->n_air];
	fly(w, e->peer, fate.at, len);
	if (fate.flip)
		f->bytes[(fate.flip - 1) / 8] ^=
			(uint8_t)(1 << (fate.flip - 1) % 8);
	if (fate.marked)
		packet_mark(f->bytes, f->len);
	f->len = fate.len;
}

static struct request *req_of(const struct rc_wqe *w)
{
	return (struct request *)(void *)w;
}

static int op_local(void *o, const struct rc_wqe *w)
{
	struct end *e = o;

	return e->fail_local == 1 + req_of(w)->n ? IBV_WC_LOC_PROT_ERR : 0;
}

static int op_gather(void *o, const struct rc_wqe *w, uint32_t at, uint8_t *dst,
		     size_t len)
{
	struct end *e = o;

	assert_true(at + len <= w->len);
	for (size_t i = 0; i < len; i++)
		dst[i] = pattern(e, req_of(w)->n, at + (uint32_t)i);
	return 0;
}

static int op_scatter(void *o, const struct rc_wqe *w, uint32_t at,
		      const uint8_t *src, size_t len)
{
	struct request *r = req_of(w);

	if (w->op != IBV_WR_RDMA_READ) {
		assert_int_equal(len, 8);
		memcpy(&r->before, src, 8);
		return 0;
	}
	assert_true(at + len <= w->len);
	if (len)
		memcpy(r->local + at, src, len);
	return 0;
}

static bool is_message(const struct rc_wqe *w)
{
	return w->op == IBV_WR_SEND || w->op == IBV_WR_SEND_WITH_IMM ||
	       w->op == IBV_WR_SEND_WITH_INV ||
	       w->op == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static void slot_check(struct end *e, const struct request *r)
{
	const uint8_t *slot = e->peer->mem + (size_t)r->n * SLOT;

	for (uint32_t i = 0; i < r->w.len; i++)
		assert_int_equal(slot[i], pattern(e, r->n, i));
}

/* What must be so when a request has succeeded. */
static void done_check(struct end *e, struct request *r)
{
	switch (r->w.op) {
	case IBV_WR_RDMA_READ:
		for (uint32_t i = 0; i < r->w.len; i++)
			assert_int_equal(r->local[i],
					 rom(r->w.va - ROM_VA + i));
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		/* we alone change it, by one each time */
		assert_int_equal(r->before, e->adds);
		e->adds++;
		break;
	default:
		break;
	}
	if (is_write(&r->w)) {
		slot_check(e, r);
		/* the peer's program goes on with its memory */
		memset(e->peer->mem + (size_t)r->n * SLOT, 0xee, r->w.len);
	}
	if (is_message(&r->w))
		assert_true(e->peer->expect > r->n);
}

static int op_carry_out(void *o, const struct rc_wqe *w)
{
	struct end *e = o;
	const struct request *r = req_of((struct rc_wqe *)(void *)(uintptr_t)w);

	/* all before it is over, nothing behind it has begun */
	assert_int_equal(e->over, r->n);
	assert_int_equal(e->rc->rq.una, e->rc->rq.next);
	if (e->not_yet)
		return e->not_yet--, -1;
	return e->fail_local;
}

static bool op_invalidate(void *o, uint32_t rkey)
{
	struct end *e = o;

	e->invalidated++;
	return rkey == MEM_KEY && !e->key_gone;
}

static void op_done(void *o, struct rc_wqe *w, int status)
{
	struct end *e = o;
	struct request *r = req_of(w);

	assert_false(r->over);
	assert_int_equal(r->n, e->over);
	r->over = true;
	r->status = status;
	e->over++;
	if (!status && !e->plain)
		done_check(e, r);
	while (status && (w = rc_take(e->rc))) {
		req_of(w)->over = true;
		req_of(w)->status = IBV_WC_WR_FLUSH_ERR;
		e->over++;
	}
}

static void next_message(struct end *e)
{
	while (e->expect < REQUESTS && !is_message(&e->peer->req[e->expect].w))
		e->expect++;
}

static bool op_recv_begin(void *o)
{
	struct end *e = o;

	if (e->recv_taken == e->recv_posted)
		return false;
	e->recv_taken++;
	e->recv_len = 0;
	return true;
}

static int op_recv_put(void *o, uint32_t at, const uint8_t *src, size_t len)
{
	struct end *e = o;

	if (at + len > SLOT)
		return IBV_WC_LOC_LEN_ERR;
	if (!at) /* UC: the message before was dropped */
		e->recv_len = 0;
	assert_int_equal(at, e->recv_len);
	if (len) /* else src may be NULL */
		memcpy(e->recv_buf + at, src, len);
	e->recv_len += (uint32_t)len;
	return 0;
}

static void op_recv_end(void *o, int status, uint32_t len,
			const struct packet *last)
{
	struct end *e = o;
	const struct request *r;

	if (e->plain)
		return;
	assert_int_equal(status, 0);
	next_message(e);
	assert_true(e->expect < e->peer->posted);
	r = &e->peer->req[e->expect];
	assert_int_equal(len, r->w.len);
	if (r->w.op == IBV_WR_SEND_WITH_INV)
		assert_int_equal(last->rkey, MEM_KEY);
	else if (r->w.op != IBV_WR_SEND)
		assert_int_equal(last->imm, r->w.imm);
	assert_int_equal(last->solicited, r->w.solicited);
	if (r->w.op != IBV_WR_RDMA_WRITE_WITH_IMM)
		for (uint32_t i = 0; i < len; i++)
			assert_int_equal(e->recv_buf[i],
					 pattern(e->peer, r->n, i));
	else
		slot_check(e->peer, r);
	e->expect++;
}

static bool op_check(void *o, uint32_t rkey, uint64_t va, uint64_t len,
		     int access)
{
	if (((struct end *)o)->key_gone)
		return false;
	switch (rkey) {
	case MEM_KEY:
		return access == IBV_ACCESS_REMOTE_WRITE && va >= MEM_VA &&
		       va - MEM_VA + len <= REQUESTS * SLOT;
	case ROM_KEY:
		return access == IBV_ACCESS_REMOTE_READ && va >= ROM_VA;
	case WORD_KEY:
		return access == IBV_ACCESS_REMOTE_ATOMIC && va == WORD_VA;
	default:
		return false;
	}
}

static void op_write(void *o, uint64_t va, const uint8_t *src, size_t len,
		     bool last)
{
	struct end *e = o;

	assert_true(va >= MEM_VA && va - MEM_VA + len <= REQUESTS * SLOT);
	if (len)
		memcpy(e->mem + (va - MEM_VA), src, len);
}

static void op_read(void *o, uint64_t va, uint8_t *dst, size_t len)
{
	for (size_t i = 0; i < len; i++)
		dst[i] = rom(va - ROM_VA + i);
}

static uint64_t op_atomic(void *o, uint64_t va, bool swaps, uint64_t compare,
			  uint64_t swap_add)
{
	struct end *e = o;
	uint64_t was = e->word;

	if (!swaps)
		e->word += swap_add;
	else if (e->word == compare)
		e->word = swap_add;
	return was;
}

static void op_event(void *o, enum rc_event what)
{
	struct end *e = o;

	if (what == RC_MET)
		e->met = true;
	else
		e->broken = 1 + (int)what;
}

static const struct rc_ops ops = {
	.may_begin = op_may_begin,
	.begin = op_begin,
	.send = op_send,
	.local = op_local,
	.gather = op_gather,
	.scatter = op_scatter,
	.carry_out = op_carry_out,
	.done = op_done,
	.recv_begin = op_recv_begin,
	.recv_put = op_recv_put,
	.recv_end = op_recv_end,
	.check = op_check,
	.invalidate = op_invalidate,
	.write = op_write,
	.read = op_read,
	.atomic = op_atomic,
	.event = op_event,
};

static void end_init(struct world *w, int n, uint32_t mtu, uint32_t psn,
		     uint32_t peer_psn, unsigned rd)
{
	struct end *e = calloc(1, sizeof(*e));

	w->ends[n] = e;
	e->w = w;
	e->mem = calloc(REQUESTS, SLOT);
	e->attr = (struct ibv_qp_attr){
		.dest_qp_num = 0x100 + (uint32_t)n,
		.sq_psn = psn,
		.rq_psn = peer_psn,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_ATOMIC,
		.timeout = 8, /* 1 ms */
		.retry_cnt = 7,
		.rnr_retry = 7,
		.min_rnr_timer = 1,
		.max_rd_atomic = (uint8_t)rd,
		.max_dest_rd_atomic = (uint8_t)rd,
	};
	e->rc = calloc(1, rc_bytes(rd));
	rc_init(e->rc, &ops, e, &e->attr, mtu);
	rc_start(e->rc);
}

struct world *world_new(uint64_t seed, uint32_t mtu, uint32_t psn_a,
			uint32_t psn_b, unsigned rd)
{
	struct world *w = calloc(1, sizeof(*w));

	w->rng = seed * 0x9e3779b97f4a7c15ull | 1;
	fault_init(&w->wire, seed);
	w->wire.delay_ns = 2000;
	w->air = calloc(FLIGHT, sizeof(*w->air));
	end_init(w, 0, mtu, psn_a, psn_b, rd);
	end_init(w, 1, mtu, psn_b, psn_a, rd);
	w->ends[0]->peer = w->ends[1];
	w->ends[1]->peer = w->ends[0];
	return w;
}

void world_free(struct world *w)
{
	for (int i = 0; i < 2; i++) {
		for (int j = 0; j < REQUESTS; j++)
			free(w->ends[i]->req[j].local);
		free(w->ends[i]->rc);
		free(w->ends[i]->mem);
		free(w->ends[i]);
	}
	free(w->air);
	free(w);
}

struct request *end_post(struct end *e, enum ibv_wr_opcode op, uint32_t len)
{
	struct request *r = &e->req[e->posted];

	r->n = e->posted++;
	r->w.op = op;
	r->w.len = len;
	r->w.imm = 0x1000u + (uint32_t)r->n;
	switch (op) {
	case IBV_WR_RDMA_READ:
		r->w.rkey = ROM_KEY;
		r->w.va = ROM_VA + (uint64_t)r->n * 1000;
		r->local = malloc(len + 1);
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		r->w.rkey = WORD_KEY;
		r->w.va = WORD_VA;
		r->w.len = 8;
		r->w.compare_add = 1;
		break;
	default:
		r->w.rkey = MEM_KEY;
		r->w.va = MEM_VA + (uint64_t)r->n * SLOT;
		break;
	}
	rc_post(e->rc, &r->w);
	return r;
}

void end_post_random(struct end *e)
{
	static const enum ibv_wr_opcode all[] = {
		IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
		IBV_WR_SEND,	   IBV_WR_SEND_WITH_IMM,
		IBV_WR_RDMA_READ,  IBV_WR_ATOMIC_FETCH_AND_ADD,
		IBV_WR_BIND_MW,	   IBV_WR_SEND_WITH_INV};
	struct world *w = e->w;
	uint32_t len = world_random(w, 3) ? (uint32_t)world_random(w, SLOT + 1)
					  : (uint32_t)world_random(w, 9);
	struct request *r = end_post(e, all[world_random(w, 8)], len);

	r->w.fenced = world_random(w, 4) == 0;
	r->w.solicited = r->w.op != IBV_WR_RDMA_WRITE && is_message(&r->w) &&
			 world_random(w, 2);
}

static void invariants(const struct end *e)
{
	const struct rc_requester *q = &e->rc->rq;
	uint32_t out = (q->next - q->una) & PACKET_PSN_MASK;

	assert_true(out <= (e->rc->stream ? RC_STREAM_WINDOW : RC_WINDOW));
	assert_true(e->rc->stream || out <= RC_READ_CHUNK ||
		    out * e->rc->mtu <= RC_WINDOW_BYTES);
	assert_true(e->rc->rs.answers <= e->rc->limit);
	assert_true(q->reads <=
		    (e->attr.max_rd_atomic ? e->attr.max_rd_atomic : 1u));
}

void end_run(struct end *e)
{
	rc_run(e->rc, e->w->now);
	invariants(e);
}

bool world_turn(struct world *w)
{
	uint64_t at = RC_NEVER, t;
	struct flight *f = NULL;
	struct packet p;
	unsigned i;

	for (i = 0; i < w->n_air; i++)
		if (w->air[i].at < at) {
			at = w->air[i].at;
			f = &w->air[i];
		}
	for (i = 0; i < 2; i++) {
		t = rc_deadline(w->ends[i]->rc);
		if (t < at) {
			at = t;
			f = NULL;
		}
	}
	if (at == RC_NEVER)
		return false;
	w->now = at > w->now ? at : w->now;
	if (f) {
		struct flight g = *f;

		*f = w->air[--w->n_air];
		if (g.len < PACKET_ICRC || !icrc_check(&flow, g.bytes, g.len))
			return true;
		assert_int_equal(packet_decode(g.bytes, g.len - PACKET_ICRC,
					       &p),
				 PACKET_OK);
		if (!(packet_has(p.op) & PACKET_ANSWERS))
			g.to->back_bulk = g.by_bulk;
		rc_input(g.to->rc, w->now, &p);
		end_run(g.to);
	} else {
		for (i = 0; i < 2; i++)
			if (rc_deadline(w->ends[i]->rc) <= w->now)
				end_run(w->ends[i]);
	}
	return true;
}

void world_settle(struct world *w)
{
	end_run(w->ends[0]);
	end_run(w->ends[1]);
	while (world_turn(w))
		;
}
