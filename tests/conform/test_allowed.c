/* SPDX-License-Identifier: MIT */
/*
 * test_allowed.c - what the specification leaves open, as traces written by
 * hand: the model accepts each, and rejects it without its reason. On a device
 * they depend on how its threads are timed.
 */
#include "check.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct program p;
static struct epoch e, before; /* .n 0: e is the first */

static const struct piece good = {.mr = MR_ALL, .at = RCV_AT, .len = 104};
static const struct piece foreign = {
	.mr = MR_FOREIGN, .at = RCV_AT, .len = 104};
static const struct piece mortal = {.mr = MR_MORTAL, .at = RCV_AT, .len = 104};

static void begin(enum ibv_qp_type type)
{
	int d;

	memset(&p, 0, sizeof(p));
	memset(&e, 0, sizeof(e));
	before.n = 0;
	p.pairs = 1;
	p.cfg[0] = (struct pair_cfg){.type = type, .mtu = IBV_MTU_1024};
	for (d = 0; d < 2; d++)
		p.cfg[0].qp[d] =
			(struct qp_cfg){.rcq = 1,
					.depth_s = 8,
					.depth_r = 8,
					.access = IBV_ACCESS_REMOTE_WRITE};
}

static struct ev *event(enum ev_kind kind, int side)
{
	struct ev *v = &e.ev[e.n++];

	v->kind = (uint8_t)kind;
	v->side = (uint8_t)side;
	v->wc.qp_ok = true;
	return v;
}

/* A step of the program, which was answered with ret. */
static struct step *did(enum step_kind kind, int side, int ret)
{
	struct step *s = &p.step[p.n++];
	struct ev *v = event(EV_STEP, side);

	*s = (struct step){.kind = (uint8_t)kind, .side = (uint8_t)side};
	v->step = s;
	v->ret = ret;
	return s;
}

static struct step *moved(int side, enum ibv_qp_state to, int ret)
{
	struct step *s = did(STEP_STATE, side, ret);

	s->arg = to;
	return s;
}

static void connected(void)
{
	did(STEP_CONNECT, 0, 0)->arg = IBV_QPS_RTS;
}

/* One more request in the list of s. */
static struct wr *with(struct step *s, int op, struct piece piece)
{
	struct wr *w = &s->wr[s->n++];

	*w = (struct wr){.op = op, .n = 1, .sge = {piece}};
	e.ev[e.n - 1].n = s->n;
	return w;
}

static struct step *received(struct piece piece)
{
	struct step *s = did(STEP_RECV, 1, 0);

	with(s, -1, piece);
	return s;
}

static struct wr *sent(uint32_t len)
{
	struct step *s = did(STEP_SEND, 0, 0);
	struct piece from = {.mr = MR_ALL, .at = SRC_AT, .len = len};

	return with(s, IBV_WR_SEND, from);
}

/* The completion of the first request of step s. */
static struct ev *completed(const struct step *s, enum ibv_wc_status status)
{
	bool recv = s->kind != STEP_SEND;
	struct ev *v = event(EV_WC, s->side);
	int pair = s->kind == STEP_SRQ_RECV ? SRQ_PAIR : 0;

	v->cq = recv;
	v->wc.id = id_make(pair, s->side, recv, id_no(&p, s, 0));
	v->wc.status = (int)status;
	v->wc.opcode = recv ? IBV_WC_RECV : IBV_WC_SEND;
	return v;
}

static const struct granted plenty = {8, 8, SGES, SGES, INLINE_MAX};

static bool is_allowed(void)
{
	granted_all granted;
	struct check c;
	bool ok;
	int d, i;

	for (d = 0; d < 2; d++)
		for (i = 0; i <= PAIRS; i++)
			granted[i][d] = plenty;
	check_init(&c, &p, granted, 0);
	if (before.n)
		assert_true(check_epoch(&c, &before));
	ok = check_epoch(&c, &e);
	if (!ok)
		print_message("not allowed: %s\n", c.why);
	check_fini(&c);
	return ok;
}

static void fill(void)
{
	uint32_t at;
	int d;

	for (d = 0; d < 2; d++) {
		e.qpn[0][d] = 7 + (uint32_t)d;
		for (at = 0; at < LANE; at++) {
			e.mem[0][d][at] = lane_byte(p.seed, 0, d, at);
			e.srq_mem[d][at] = lane_byte(p.seed, SRQ_PAIR, d, at);
		}
	}
}

static void ends(enum ibv_qp_state a, enum ibv_qp_state b)
{
	e.state[0][0] = a;
	e.state[0][1] = b;
	fill();
}

/* UD: a datagram meets a bad receive, which breaks the QP; nobody polls that
 * completion before the RESET takes it back. */
static void broken_unseen(bool is_bad, bool is_sent, bool is_reset)
{
	struct piece room = is_bad ? foreign : good;

	begin(IBV_QPT_UD);
	connected();
	received(room);
	if (is_sent)
		sent(8);
	moved(1, IBV_QPS_RTS, EINVAL);
	if (is_reset)
		moved(1, IBV_QPS_RESET, 0);
	ends(IBV_QPS_RTS, is_reset ? IBV_QPS_RESET : IBV_QPS_RTS);
}

static void test_ud_broken_unseen(void **unused)
{
	(void)unused;
	broken_unseen(true, true, true);
	assert_true(is_allowed());
	broken_unseen(false, true, true);
	assert_false(is_allowed());
	broken_unseen(true, false, true);
	assert_false(is_allowed());
	broken_unseen(true, true, false);
	assert_false(is_allowed());
}

/* The same: what the broken QP sends is flushed. */
static void flushed_unseen(bool is_bad)
{
	struct piece from = {.mr = MR_ALL, .at = SRC_AT, .len = 8};
	struct piece room = is_bad ? foreign : good;
	struct step *s;

	begin(IBV_QPT_UD);
	connected();
	received(room);
	sent(8);
	s = did(STEP_SEND, 1, 0);
	with(s, IBV_WR_SEND, from)->flags = IBV_SEND_SIGNALED;
	completed(s, IBV_WC_WR_FLUSH_ERR);
	moved(1, IBV_QPS_RESET, 0);
	ends(IBV_QPS_RTS, IBV_QPS_RESET);
}

static void test_ud_flushed_unseen(void **unused)
{
	(void)unused;
	flushed_unseen(true);
	assert_true(is_allowed());
	flushed_unseen(false);
	assert_false(is_allowed());
}

/* A datagram of 8 bytes from side 0, and its arrival. */
static void datagram(uint8_t byte)
{
	struct dgram *d = &e.dgram[e.dgrams++];

	sent(8);
	d->id = id_make(0, 0, false, id_no(&p, &p.step[p.n - 1], 0));
	d->ev = e.n - 1;
	d->len = 8;
	memset(d->data, byte, 8);
}

static void arrived(const struct step *recv, uint8_t byte)
{
	struct ev *v = completed(recv, IBV_WC_SUCCESS);

	v->wc.byte_len = DGRAM_GRH + 8;
	v->wc.src_qp = 7;
	v->wc.grh_ok = true;
	memset(v->wc.data, byte, 8);
}

/* UD: one datagram is lost for want of a receive; the next arrives. */
static void two(uint8_t first, uint8_t second, uint8_t came)
{
	struct step *recv;

	begin(IBV_QPT_UD);
	connected();
	datagram(first);
	ends(IBV_QPS_RTS, IBV_QPS_RTS);
	before = e;
	memset(&e, 0, sizeof(e));
	recv = received(good);
	with(recv, -1, good);
	datagram(second);
	if (came)
		arrived(recv, came);
	ends(IBV_QPS_RTS, IBV_QPS_RTS);
}

static void test_ud_same_bytes(void **unused)
{
	(void)unused;
	two(1, 2, 2);
	assert_true(is_allowed());
	two(1, 1, 1);
	assert_true(is_allowed());
	two(1, 2, 3);
	assert_false(is_allowed());
	two(1, 1, 0);
	assert_false(is_allowed());
}

/* UC, on an SRQ: a bad receive, and a RESET, as above. */
static void srq_broken_unseen(bool is_reset, uint32_t len)
{
	struct piece from = {.mr = MR_ALL, .at = SRC_AT, .len = 8};
	struct step *s;

	begin(IBV_QPT_UC);
	p.srq[1] = (struct srq_cfg){.on = true, .depth = 8, .len = 104};
	p.cfg[0].qp[1].srq = true;
	connected();
	s = did(STEP_SRQ_RECV, 1, 0);
	e.ev[e.n - 1].pair = s->pair = SRQ_PAIR;
	with(s, -1, foreign);
	if (len)
		sent(len);
	s = did(STEP_SEND, 1, 0);
	with(s, IBV_WR_SEND, from)->flags = IBV_SEND_SIGNALED;
	completed(s, IBV_WC_WR_FLUSH_ERR);
	if (is_reset)
		moved(1, IBV_QPS_RESET, 0);
	ends(IBV_QPS_RTS, is_reset ? IBV_QPS_RESET : IBV_QPS_RTS);
}

static void test_srq_broken_unseen(void **unused)
{
	(void)unused;
	srq_broken_unseen(true, 8);
	assert_true(is_allowed());
	srq_broken_unseen(false, 8);
	assert_false(is_allowed());
	srq_broken_unseen(true, 0);
	assert_false(is_allowed());
}

/* UC: peers' key goes by a call of its own, before the region does. A WRITE that
 * comes in between is dropped, and a SEND behind it finds its receive good. */
static void between(bool is_hidden)
{
	struct piece from = {.mr = MR_ALL, .at = SRC_AT, .len = 8};
	struct step *recv, *send;
	int i;

	begin(IBV_QPT_UC);
	connected();
	recv = received(mortal);
	send = did(STEP_SEND, 0, 0);
	with(send, IBV_WR_RDMA_WRITE, from)->to =
		(struct piece){.mr = MR_MORTAL, .at = REM_AT};
	with(send, IBV_WR_SEND, from);
	if (is_hidden)
		event(EV_HIDE, 1)->step = &p.step[p.n];
	did(STEP_DEREG, 1, 0);
	completed(recv, IBV_WC_SUCCESS)->wc.byte_len = 8;
	ends(IBV_QPS_RTS, IBV_QPS_RTS);
	for (i = 0; i < 8; i++)
		e.mem[0][1][RCV_AT + i] = e.mem[0][0][SRC_AT + i];
}

static void test_between(void **unused)
{
	(void)unused;
	between(true);
	assert_true(is_allowed());
	between(false);
	assert_false(is_allowed());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ud_broken_unseen),
		cmocka_unit_test(test_ud_flushed_unseen),
		cmocka_unit_test(test_ud_same_bytes),
		cmocka_unit_test(test_srq_broken_unseen),
		cmocka_unit_test(test_between),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
