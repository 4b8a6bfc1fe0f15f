/* SPDX-License-Identifier: MIT */
/*
 * test_dev_ud.c - datagrams through dev.h, on every device: address handles,
 * the 40 bytes before the payload, the sender, and silent drops.
 */
#include "rc_pair.h"

#define GRH_LEN 40
#define SLOT 8192

static struct ibv_ah *ah_to(struct end *from, struct end *to)
{
	struct ibv_ah_attr attr;
	struct ibv_ah *ah;

	assert_int_equal(dev_ah_attr(from->dev, &to->addr, NULL, &attr), 0);
	assert_int_equal(
		from->dev->ops->create_ah(from->dev, from->pd, &attr, &ah), 0);
	return ah;
}

static struct ibv_send_wr datagram(struct ibv_sge *s, struct ibv_ah *ah,
				   struct end *to, uint64_t id)
{
	struct ibv_send_wr wr = {.wr_id = id,
				 .sg_list = s,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED};

	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = to->addr.qpn;
	wr.wr.ud.remote_qkey = UD_QKEY;
	return wr;
}

/*
 * The first messages to a QP may be on their way for long, so what has
 * completed and is not there need not be lost (deliver()). Until the latest of
 * some is there, and with it all before it.
 */
static void meet(struct end *from, struct ibv_ah *ah, struct end *to)
{
	struct ibv_sge s = sge(from, 0, 1);
	struct ibv_send_wr wr = datagram(&s, ah, to, 0);
	uint64_t deadline = env_now_ns(from->dev->env) + WAIT_NS;
	struct ibv_wc wc = {0};
	uint32_t n = 0;

	if (!harsh())
		return;
	wr.opcode = IBV_WR_SEND_WITH_IMM;
	do {
		assert_true(env_now_ns(from->dev->env) < deadline);
		if (!n || wc.byte_len)
			post_recv(to, 0, MEM_LEN - SLOT, SLOT);
		wr.imm_data = htobe32(++n);
		post(from, &wr);
		expect(from, from->scq, 0, IBV_WC_SUCCESS);
		wc.byte_len = 0; /* nothing */
		dev_poll_cq(&to->st, to->rcq, 1, &wc);
		env_yield(from->dev->env);
	} while (!wc.byte_len || be32toh(wc.imm_data) != n);
}

/* UD ends, and the way from a to b. */
static struct ibv_ah *ends_open(struct pair *p)
{
	struct ibv_ah *ah;

	pair_open_as(p, IBV_QPT_UD, NULL);
	ah = ah_to(&p->a, &p->b);
	meet(&p->a, ah, &p->b);
	return ah;
}

static void ends_close(struct pair *p, struct ibv_ah *ah)
{
	assert_int_equal(dev_a->ops->destroy_ah(dev_a, ah), 0);
	pair_close(p);
}

/* Sends it; it must arrive in receive id. */
static void pass(struct end *from, struct ibv_send_wr *wr, struct end *to,
		 uint64_t id, size_t len, struct ibv_wc *wc)
{
	deliver(from, wr, to, wc);
	assert_int_equal(wc->status, IBV_WC_SUCCESS);
	assert_int_equal(wc->wr_id, id);
	assert_int_equal(wc->opcode, IBV_WC_RECV);
	assert_int_equal(wc->byte_len, GRH_LEN + len);
	assert_int_equal(wc->src_qp, from->qp->qp_num);
	assert_int_equal(wc->qp_num, to->qp->qp_num);
	assert_true(wc->wc_flags & IBV_WC_GRH);
}

static void test_send(void **state)
{
	struct ibv_send_wr wr;
	struct ibv_sge s;
	struct ibv_ah *ah;
	struct ibv_wc wc;
	struct pair p;

	ah = ends_open(&p);
	post_recv(&p.b, 1, SLOT, SLOT);
	post_recv(&p.b, 2, 2 * SLOT, SLOT);
	fill(&p.a, 0, 1024, 5);
	s = sge(&p.a, 0, 1024);
	wr = datagram(&s, ah, &p.b, 20);
	pass(&p.a, &wr, &p.b, 1, 1024, &wc);
	assert_false(wc.wc_flags & IBV_WC_WITH_IMM);
	assert_memory_equal(mem(&p.b) + SLOT + GRH_LEN, mem(&p.a), 1024);
	assert_int_equal(mem(&p.b)[SLOT + GRH_LEN + 1024], 0);
	wr = datagram(&s, ah, &p.b, 21);
	wr.opcode = IBV_WR_SEND_WITH_IMM;
	wr.imm_data = htobe32(0x5eed);
	s.length = 0;
	pass(&p.a, &wr, &p.b, 2, 0, &wc);
	assert_true(wc.wc_flags & IBV_WC_WITH_IMM);
	assert_int_equal(be32toh(wc.imm_data), 0x5eed);
	ends_close(&p, ah);
}

/* A whole MTU fits. */
static void test_mtu(void **state)
{
	struct ibv_send_wr wr;
	struct ibv_sge s;
	struct ibv_ah *ah;
	struct ibv_wc wc;
	struct pair p;
	size_t len;

	ah = ends_open(&p);
	len = (size_t)128 << (p.a.addr.mtu < p.b.addr.mtu ? p.a.addr.mtu
							  : p.b.addr.mtu);
	post_recv(&p.b, 3, SLOT, SLOT);
	fill(&p.a, 0, len, 8);
	s = sge(&p.a, 0, len);
	wr = datagram(&s, ah, &p.b, 22);
	pass(&p.a, &wr, &p.b, 3, len, &wc);
	assert_memory_equal(mem(&p.b) + SLOT + GRH_LEN, mem(&p.a), len);
	ends_close(&p, ah);
}

/* A wrong Q_Key and a QP that is not there: dropped, and the sender hears of
 * neither. The receive that waited is there for the next. */
static void test_strangers(void **state)
{
	struct ibv_send_wr wr;
	struct ibv_sge s;
	struct ibv_ah *ah;
	struct ibv_wc wc;
	struct pair p;

	ah = ends_open(&p);
	post_recv(&p.b, 4, SLOT, SLOT);
	s = sge(&p.a, 0, 64);
	wr = datagram(&s, ah, &p.b, 24);
	wr.wr.ud.remote_qkey ^= 1;
	carry_out(&p.a, &wr);
	wr = datagram(&s, ah, &p.b, 25);
	wr.wr.ud.remote_qpn ^= 0x800000;
	carry_out(&p.a, &wr);
	s = sge(&p.a, 0, 9);
	wr = datagram(&s, ah, &p.b, 26);
	pass(&p.a, &wr, &p.b, 4, 9, &wc);
	expect_none(&p.b, p.b.rcq);
	assert_int_equal(qp_state(&p.a), IBV_QPS_RTS);
	ends_close(&p, ah);
}

/* No receive: dropped too, if it comes before there is one again; those that
 * arrive do so in order, and the last of all arrives. */
static void test_no_receive(void **state)
{
	struct ibv_send_wr wr;
	struct ibv_sge s;
	struct ibv_ah *ah;
	struct ibv_wc wc;
	struct pair p;
	uint32_t len, last = 0;

	ah = ends_open(&p);
	for (len = 1; len <= 3; len++) {
		s = sge(&p.a, 0, len);
		wr = datagram(&s, ah, &p.b, len);
		carry_out(&p.a, &wr);
	}
	for (len = 1; len <= 4; len++)
		post_recv(&p.b, len, SLOT, SLOT);
	s = sge(&p.a, 0, 4);
	wr = datagram(&s, ah, &p.b, 4);
	deliver(&p.a, &wr, &p.b, &wc);
	for (;;) {
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_true(wc.byte_len > GRH_LEN + last);
		last = wc.byte_len - GRH_LEN;
		if (last == 4)
			break;
		wait_wc(&p.b, p.b.rcq, &wc);
	}
	ends_close(&p, ah);
}

/* IBA C10-93.1.1: longer than the port's MTU is not sent, and is no error. */
static void test_too_long(void **state)
{
	struct ibv_send_wr wr;
	struct ibv_sge s;
	struct ibv_ah *ah;
	struct ibv_wc wc;
	struct pair p;

	ah = ends_open(&p);
	post_recv(&p.b, 7, SLOT, SLOT);
	s = sge(&p.a, 0, 4097);
	wr = datagram(&s, ah, &p.b, 27);
	carry_out(&p.a, &wr);
	s.length = 10;
	wr = datagram(&s, ah, &p.b, 28);
	pass(&p.a, &wr, &p.b, 7, 10, &wc);
	expect_none(&p.b, p.b.rcq);
	ends_close(&p, ah);
}

/* Many to one, and back over an address handle made from what came; inline
 * data. */
static void test_answer(void **state)
{
	static char text[] = "answer";
	struct ibv_ah_attr attr;
	struct ibv_ah *to, *back;
	struct ibv_send_wr wr;
	struct ibv_sge s;
	struct ibv_wc wc;
	struct end c;
	struct pair p;

	pair_open_as(&p, IBV_QPT_UD, NULL);
	end_open_as(&c, dev_a, 99, IBV_QPT_UD);
	to = ah_to(&c, &p.b);
	meet(&c, to, &p.b);
	post_recv(&p.b, 5, SLOT, SLOT);
	s = sge(&c, 0, 100);
	wr = datagram(&s, to, &p.b, 30);
	pass(&c, &wr, &p.b, 5, 100, &wc);
	assert_int_equal(dev_ah_from_wc(dev_b, &wc, (void *)(mem(&p.b) + SLOT),
					&attr),
			 0);
	assert_int_equal(dev_b->ops->create_ah(dev_b, p.b.pd, &attr, &back), 0);
	meet(&p.b, back, &c);
	post_recv(&c, 6, SLOT, SLOT);
	s = (struct ibv_sge){(uintptr_t)text, sizeof(text), 0};
	wr = datagram(&s, back, &c, 31);
	wr.wr.ud.remote_qpn = wc.src_qp;
	wr.send_flags |= IBV_SEND_INLINE;
	pass(&p.b, &wr, &c, 6, sizeof(text), &wc);
	assert_memory_equal(mem(&c) + SLOT + GRH_LEN, text, sizeof(text));
	expect_none(&p.a, p.a.rcq);
	assert_int_equal(dev_a->ops->destroy_ah(dev_a, to), 0);
	assert_int_equal(dev_b->ops->destroy_ah(dev_b, back), 0);
	end_close(&c);
	pair_close(&p);
}

static int setup(void **state)
{
	rig_setup(state);
	need(dev_a->caps.ud, dev_b->caps.ud, "UD");
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_send),
		cmocka_unit_test(test_mtu),
		cmocka_unit_test(test_too_long),
		cmocka_unit_test(test_strangers),
		cmocka_unit_test(test_no_receive),
		cmocka_unit_test(test_answer),
	};

	return cmocka_run_group_tests(tests, setup, rig_teardown);
}
