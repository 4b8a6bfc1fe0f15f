/* SPDX-License-Identifier: MIT */
/*
 * fuzz_link_rc.c - the engine of the link between hosts: packets from a peer
 * that follows no rules, requests and times between them.
 *
 * Nothing is written or read outside the one region, requests end once and in
 * order, what is held is bounded, and a packet makes at most one answer but for
 * READs. Input: one command after the other; see step().
 */
#include "base/assert.h"
#include "base/bytes.h"
#include "dev/soft/link/rc.h"

#include <string.h>

#define REGION 8192u
#define REGION_VA 0x4000ull
#define KEY 9u
#define RD 3u
#define REQUESTS 16u
#define MTU 256u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct fuzz {
	struct ibv_qp_attr attr;
	uint64_t now;
	uint8_t out[PACKET_MAX];
	bool begun, has_recv, broken;
	unsigned posted, over;
	struct rc_wqe w[REQUESTS];
	union {
		struct rc rc;
		char room[sizeof(struct rc) + RD * (sizeof(struct rc_answer) +
						    sizeof(struct rc_result))];
	} u;
};

static bool op_may_begin(void *o, const struct rc_wqe *w, bool idle)
{
	return true;
}

static uint8_t *op_begin(void *o, bool answers)
{
	struct fuzz *f = o;

	f->begun = true;
	return f->out;
}

static void op_send(void *o, size_t len)
{
	struct fuzz *f = o;

	skein_assert(f->begun);
	skein_assert(len >= PACKET_BTH && len <= PACKET_HEAD_MAX + MTU);
	f->begun = false;
}

static int op_local(void *o, const struct rc_wqe *w)
{
	return w->imm == 13 ? IBV_WC_LOC_PROT_ERR : 0;
}

static int op_gather(void *o, const struct rc_wqe *w, uint32_t at, uint8_t *dst,
		     size_t len)
{
	skein_assert(at + len <= w->len && len <= MTU);
	memset(dst, 1, len);
	return 0;
}

static int op_scatter(void *o, const struct rc_wqe *w, uint32_t at,
		      const uint8_t *src, size_t len)
{
	skein_assert(at + len <= w->len);
	return 0;
}

static void op_done(void *o, struct rc_wqe *w, int status)
{
	struct fuzz *f = o;

	skein_assert(w == &f->w[f->over]);
	f->over++;
	while (status && (w = rc_take(&f->u.rc)))
		skein_assert(w == &f->w[f->over++]);
}

static bool op_recv_begin(void *o)
{
	struct fuzz *f = o;

	skein_assert(!f->has_recv);
	f->has_recv = f->now & 1;
	return f->has_recv;
}

static int op_recv_put(void *o, uint32_t at, const uint8_t *src, size_t len)
{
	skein_assert(((struct fuzz *)o)->has_recv);
	return at + len > 1000 ? IBV_WC_LOC_LEN_ERR : 0;
}

static void op_recv_end(void *o, int status, uint32_t len,
			const struct packet *last)
{
	struct fuzz *f = o;

	skein_assert(f->has_recv);
	f->has_recv = false;
}

static bool inside(uint64_t va, uint64_t len)
{
	return va >= REGION_VA && len <= REGION &&
	       va - REGION_VA <= REGION - len;
}

static bool op_check(void *o, uint32_t rkey, uint64_t va, uint64_t len,
		     int access)
{
	return rkey == KEY && inside(va, len);
}

static bool op_invalidate(void *o, uint32_t rkey)
{
	return rkey == KEY;
}

static int op_carry_out(void *o, const struct rc_wqe *w)
{
	return (int)(w->imm & 3) - 1;
}

static void op_write(void *o, uint64_t va, const uint8_t *src, size_t len,
		     bool last)
{
	skein_assert(inside(va, len) && !((struct fuzz *)o)->broken);
}

static void op_read(void *o, uint64_t va, uint8_t *dst, size_t len)
{
	skein_assert(inside(va, len) && len <= MTU);
	memset(dst, 2, len);
}

static uint64_t op_atomic(void *o, uint64_t va, bool swaps, uint64_t compare,
			  uint64_t swap_add)
{
	skein_assert(inside(va, 8) && !(va & 7));
	return 0;
}

static void op_event(void *o, enum rc_event what)
{
	struct fuzz *f = o;

	if (what == RC_MET)
		return;
	skein_assert(!f->broken);
	f->broken = true;
}

static const struct rc_ops ops = {
	.may_begin = op_may_begin,
	.begin = op_begin,
	.send = op_send,
	.local = op_local,
	.gather = op_gather,
	.scatter = op_scatter,
	.done = op_done,
	.recv_begin = op_recv_begin,
	.recv_put = op_recv_put,
	.recv_end = op_recv_end,
	.check = op_check,
	.invalidate = op_invalidate,
	.carry_out = op_carry_out,
	.write = op_write,
	.read = op_read,
	.atomic = op_atomic,
	.event = op_event,
};

static void post(struct fuzz *f, struct bytes_in *in)
{
	struct rc_wqe *w;

	if (f->posted == REQUESTS)
		return;
	w = &f->w[f->posted++];
	w->op = (enum ibv_wr_opcode)(bytes_get_u8(in) %
				     (IBV_WR_SEND_WITH_INV + 1));
	w->len = bytes_get_u16(in) % (64 * MTU);
	if (w->op == IBV_WR_ATOMIC_CMP_AND_SWP ||
	    w->op == IBV_WR_ATOMIC_FETCH_AND_ADD)
		w->len = 8;
	w->imm = bytes_get_u8(in);
	w->fenced = w->imm & 1;
	rc_post(&f->u.rc, w);
}

/* Fields near what is expected: at random nearly all would be dropped. */
static void packet(struct fuzz *f, struct bytes_in *in)
{
	static const uint8_t zeros[PACKET_PAYLOAD_MAX];
	const struct rc *r = &f->u.rc;
	struct packet p = {.op = bytes_get_u8(in) % PACKET_OPS};
	uint8_t bits = bytes_get_u8(in);
	int32_t off = (int8_t)bytes_get_u8(in);
	uint32_t from =
		packet_has(p.op) & PACKET_ANSWERS ? r->rq.una : r->rs.psn;

	if (!packet_has(p.op)) /* none that is decoded */
		return;
	p.psn = (from + (uint32_t)off) & PACKET_PSN_MASK;
	p.ack_req = bits & 1;
	p.fecn = bits & 32;
	if (bits & 64)
		p.op = PACKET_CNP;
	p.rkey = bits & 2 ? KEY : bytes_get_u32(in);
	p.va = bits & 4 ? REGION_VA + bytes_get_u16(in) : bytes_get_u64(in);
	p.len = bits & 8 ? bytes_get_u16(in) : bytes_get_u32(in);
	p.syndrome = bytes_get_u8(in);
	p.payload = zeros;
	if (packet_has(p.op) & PACKET_HAS_PAYLOAD)
		p.payload_len = bits & 16 ? MTU : bytes_get_u16(in) % 5000;
	if (p.payload_len > PACKET_PAYLOAD_MAX)
		p.payload_len = PACKET_PAYLOAD_MAX;
	rc_input(&f->u.rc, f->now, &p);
}

static void step(struct fuzz *f, struct bytes_in *in)
{
	switch (bytes_get_u8(in) % 8) {
	case 0:
		post(f, in);
		break;
	case 1:
		f->now += bytes_get_u32(in);
		break;
	case 2:
		rc_pause(&f->u.rc, bytes_get_u8(in) & 1);
		break;
	case 3:
		rc_run(&f->u.rc, f->now);
		break;
	default:
		packet(f, in);
		break;
	}
	skein_assert(f->u.rc.rs.answers <= RD);
	skein_assert(f->u.rc.own.window >= 1 &&
		     f->u.rc.own.window <= RC_WINDOW);
	skein_assert(f->u.rc.own.users == f->u.rc.rq.cong.uses);
	skein_assert(((f->u.rc.rq.next - f->u.rc.rq.una) & PACKET_PSN_MASK) <=
		     RC_WINDOW);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bytes_in in = bytes_in(data, size);
	struct fuzz f;

	memset(&f, 0, sizeof(f));
	f.attr.sq_psn = 0xfffff0;
	f.attr.rq_psn = 0xfffffc;
	f.attr.timeout = 1;
	f.attr.retry_cnt = f.attr.rnr_retry = 3;
	f.attr.max_rd_atomic = 2;
	f.attr.max_dest_rd_atomic = RD;
	f.attr.qp_access_flags = 0xff;
	rc_init(&f.u.rc, &ops, &f, &f.attr, MTU);
	rc_start(&f.u.rc);
	while (bytes_left(&in))
		step(&f, &in);
	return 0;
}
