/* SPDX-License-Identifier: MIT */
/*
 * test_dev_rc.c - what RC does, through dev.h, the same on every device.
 *
 * It asks for nothing that a real NIC does not promise (docs/design/semantics.md), so
 * that a pass on soft means something, and runs unchanged in the VM lane
 * between two rxe devices.
 */
#include "rc_pair.h"

#include <poll.h>

static void test_write(void **state)
{
	struct pair p;
	struct ibv_sge s;
	struct ibv_send_wr wr;
	struct ibv_wc wc;

	(void)state;
	pair_open(&p, NULL);
	/* Unaligned and over many packets. */
	fill(&p.a, 3, 50000, 1);
	s = sge(&p.a, 3, 50000);
	wr = rdma(IBV_WR_RDMA_WRITE, 7, &s, &p.b, 101);
	post(&p.a, &wr);
	wait_wc(&p.a, p.a.scq, &wc);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.wr_id, 7);
	assert_int_equal(wc.opcode, IBV_WC_RDMA_WRITE);
	assert_memory_equal(mem(&p.b) + 101, mem(&p.a) + 3, 50000);
	assert_int_equal(mem(&p.b)[100], 0);
	assert_int_equal(mem(&p.b)[50101], 0);
	expect_none(&p.b, p.b.rcq);
	assert_int_equal(p.a.st.send_wrs, 1);
	assert_int_equal(p.a.st.bytes, 50000);
	pair_close(&p);
}

static void test_write_imm(void **state)
{
	struct pair p;
	struct ibv_sge s;
	struct ibv_send_wr wr;
	struct ibv_wc wc;

	(void)state;
	pair_open(&p, NULL);
	post_recv(&p.b, 40, 0, 0);
	fill(&p.a, 0, 64, 9);
	s = sge(&p.a, 0, 64);
	wr = rdma(IBV_WR_RDMA_WRITE_WITH_IMM, 1, &s, &p.b, 4096);
	wr.imm_data = htobe32(0xa1b2c3d4);
	post(&p.a, &wr);
	wait_wc(&p.b, p.b.rcq, &wc);
	check_write_imm(&wc, 40, 64, 0xa1b2c3d4);
	/* The completion promises the bytes. */
	assert_memory_equal(mem(&p.b) + 4096, mem(&p.a), 64);
	expect(&p.a, p.a.scq, 1, IBV_WC_SUCCESS);
	pair_close(&p);
}

static void test_send(void **state)
{
	struct pair p;
	struct ibv_sge s[2];
	struct ibv_send_wr wr = {.wr_id = 2,
				 .sg_list = s,
				 .num_sge = 2,
				 .opcode = IBV_WR_SEND_WITH_IMM,
				 .send_flags = IBV_SEND_SIGNALED};
	struct ibv_wc wc;
	char text[] = "inline";

	(void)state;
	pair_open(&p, NULL);
	post_recv(&p.b, 50, 1000, 8192);
	post_recv(&p.b, 51, 20000, 64);
	fill(&p.a, 0, 6000, 3);
	s[0] = sge(&p.a, 0, 1000);
	s[1] = sge(&p.a, 1000, 5000);
	wr.imm_data = htobe32(5);
	post(&p.a, &wr);
	/* Inline: the source may change as soon as post returns. */
	wr = (struct ibv_send_wr){.wr_id = 3,
				  .sg_list = s,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags =
					  IBV_SEND_SIGNALED | IBV_SEND_INLINE};
	s[0] = (struct ibv_sge){(uintptr_t)text, sizeof(text), 0};
	post(&p.a, &wr);
	memset(text, 'x', sizeof(text));
	wait_wc(&p.b, p.b.rcq, &wc);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.wr_id, 50);
	assert_int_equal(wc.opcode, IBV_WC_RECV);
	assert_int_equal(wc.byte_len, 6000);
	assert_true(wc.wc_flags & IBV_WC_WITH_IMM);
	assert_int_equal(be32toh(wc.imm_data), 5);
	assert_memory_equal(mem(&p.b) + 1000, mem(&p.a), 6000);
	wait_wc(&p.b, p.b.rcq, &wc);
	assert_int_equal(wc.wr_id, 51);
	assert_int_equal(wc.byte_len, sizeof(text));
	assert_false(wc.wc_flags & IBV_WC_WITH_IMM);
	assert_string_equal((char *)mem(&p.b) + 20000, "inline");
	expect(&p.a, p.a.scq, 2, IBV_WC_SUCCESS);
	expect(&p.a, p.a.scq, 3, IBV_WC_SUCCESS);
	pair_close(&p);
}

static void test_read(void **state)
{
	struct pair p;
	struct ibv_sge s;
	struct ibv_send_wr wr;
	struct ibv_wc wc;

	(void)state;
	pair_open(&p, NULL);
	fill(&p.b, 77, 65536, 5);
	s = sge(&p.a, 512, 65536);
	wr = rdma(IBV_WR_RDMA_READ, 8, &s, &p.b, 77);
	post(&p.a, &wr);
	wait_wc(&p.a, p.a.scq, &wc);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_RDMA_READ);
	assert_memory_equal(mem(&p.a) + 512, mem(&p.b) + 77, 65536);
	pair_close(&p);
}

static uint64_t atomic_op(struct pair *p, enum ibv_wr_opcode op, uint64_t arg,
			  uint64_t swap)
{
	struct ibv_sge s = sge(&p->a, 64, 8);
	struct ibv_send_wr wr = {
		.wr_id = 9,
		.sg_list = &s,
		.num_sge = 1,
		.opcode = op,
		.send_flags = IBV_SEND_SIGNALED,
	};
	uint64_t old;

	wr.wr.atomic.remote_addr = (uintptr_t)mem(&p->b) + 128;
	wr.wr.atomic.rkey = p->b.mem->mr->rkey;
	wr.wr.atomic.compare_add = arg;
	wr.wr.atomic.swap = swap;
	carry_out(&p->a, &wr);
	memcpy(&old, mem(&p->a) + 64, 8);
	return old;
}

static void test_atomic(void **state)
{
	struct pair p;
	uint64_t v = 100;

	(void)state;
	pair_open(&p, NULL);
	memcpy(mem(&p.b) + 128, &v, 8);
	assert_int_equal(atomic_op(&p, IBV_WR_ATOMIC_FETCH_AND_ADD, 11, 0),
			 100);
	assert_int_equal(atomic_op(&p, IBV_WR_ATOMIC_CMP_AND_SWP, 100, 1), 111);
	assert_int_equal(atomic_op(&p, IBV_WR_ATOMIC_CMP_AND_SWP, 111, 5000),
			 111);
	assert_int_equal(atomic_op(&p, IBV_WR_ATOMIC_FETCH_AND_ADD, -1ull, 0),
			 5000);
	memcpy(&v, mem(&p.b) + 128, 8);
	assert_int_equal(v, 4999);
	pair_close(&p);
}

/* The liveness probe: no bytes, no key, no sge, and an answer. */
static void test_zero_byte_write(void **state)
{
	struct pair p;
	struct ibv_send_wr wr = {.wr_id = 5,
				 .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED};

	(void)state;
	pair_open(&p, NULL);
	carry_out(&p.a, &wr);
	expect_none(&p.b, p.b.rcq);
	pair_close(&p);
}

/* As many READs at once as the send queue holds, more than the peer answers
 * at once: the device paces them. */
static void test_many_reads(void **state)
{
	struct pair p;
	struct ibv_sge s[DEPTH];
	struct ibv_send_wr wr[DEPTH];
	int i;

	(void)state;
	pair_open(&p, NULL);
	fill(&p.b, 0, DEPTH * 1000, 3);
	for (i = 0; i < DEPTH; i++) {
		s[i] = sge(&p.a, (size_t)i * 1000, 1000);
		wr[i] = rdma(IBV_WR_RDMA_READ, (uint64_t)i, &s[i], &p.b,
			     (size_t)i * 1000);
		wr[i].next = i + 1 < DEPTH ? &wr[i + 1] : NULL;
	}
	post(&p.a, wr);
	for (i = 0; i < DEPTH; i++)
		expect(&p.a, p.a.scq, (uint64_t)i, IBV_WC_SUCCESS);
	assert_memory_equal(mem(&p.a), mem(&p.b), DEPTH * 1000);
	pair_close(&p);
}

/* A WRITE is proved by the message behind it; both directions at once. */
static void test_write_then_send(void **state)
{
	struct pair p;
	struct end *from, *to;
	struct ibv_sge s, none;
	struct ibv_send_wr wr[2];
	int i;

	(void)state;
	pair_open(&p, NULL);
	for (i = 0; i < 20; i++) {
		from = i & 1 ? &p.b : &p.a;
		to = i & 1 ? &p.a : &p.b;
		post_recv(to, 7, 0, 64);
		fill(from, 4096, 9000, (unsigned)i * 3 + 1);
		s = sge(from, 4096, 9000);
		none = sge(from, 0, 0);
		wr[0] = rdma(IBV_WR_RDMA_WRITE, 1, &s, to, 40000);
		wr[0].send_flags = 0;
		wr[1] = (struct ibv_send_wr){.wr_id = 2,
					     .sg_list = &none,
					     .opcode = IBV_WR_SEND,
					     .send_flags = IBV_SEND_SIGNALED};
		wr[0].next = &wr[1];
		post(from, wr);
		expect(to, to->rcq, 7, IBV_WC_SUCCESS);
		assert_memory_equal(mem(to) + 40000, mem(from) + 4096, 9000);
		expect(from, from->scq, 2, IBV_WC_SUCCESS);
	}
	pair_close(&p);
}

static void test_selective_signalling(void **state)
{
	struct pair p;
	struct ibv_sge s;
	struct ibv_send_wr wr[4];
	int i;

	(void)state;
	pair_open(&p, NULL);
	fill(&p.a, 0, 64, 1);
	s = sge(&p.a, 0, 64);
	for (i = 0; i < 4; i++) {
		wr[i] = rdma(IBV_WR_RDMA_WRITE, (uint64_t)i, &s, &p.b,
			     (size_t)i * 64);
		wr[i].send_flags = i == 3 ? IBV_SEND_SIGNALED : 0;
		wr[i].next = i == 3 ? NULL : &wr[i + 1];
	}
	post(&p.a, wr);
	expect(&p.a, p.a.scq, 3, IBV_WC_SUCCESS);
	expect_none(&p.a, p.a.scq);
	for (i = 0; i < 4; i++)
		assert_memory_equal(mem(&p.b) + i * 64, mem(&p.a), 64);
	assert_int_equal(p.a.st.doorbells, 1);
	assert_int_equal(p.a.st.send_wrs, 4);
	pair_close(&p);
}

/* With the default (retry for ever) a SEND waits for its receive. */
static void test_late_receive(void **state)
{
	struct pair p;
	struct ibv_sge s;
	struct ibv_send_wr wr = {.wr_id = 4,
				 .sg_list = &s,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED};
	struct pollfd none = {.fd = -1};

	(void)state;
	pair_open(&p, NULL);
	fill(&p.a, 0, 64, 2);
	s = sge(&p.a, 0, 64);
	post(&p.a, &wr);
	poll(&none, 1, 5); /* not needed to pass: lets the NAK happen */
	expect_none(&p.a, p.a.scq);
	post_recv(&p.b, 80, 0, 64);
	expect(&p.b, p.b.rcq, 80, IBV_WC_SUCCESS);
	expect(&p.a, p.a.scq, 4, IBV_WC_SUCCESS);
	assert_memory_equal(mem(&p.b), mem(&p.a), 64);
	pair_close(&p);
}

static bool readable(int fd, int timeout_ms)
{
	struct pollfd pfd = {.fd = fd, .events = POLLIN};

	return poll(&pfd, 1, timeout_ms) == 1;
}

static void send_imm(struct end *from, struct end *to, uint64_t id)
{
	struct ibv_sge s = sge(from, 0, 8);
	struct ibv_send_wr wr = rdma(IBV_WR_RDMA_WRITE_WITH_IMM, id, &s, to, 0);

	post(from, &wr);
	expect(from, from->scq, id, IBV_WC_SUCCESS);
}

static void test_channel(void **state)
{
	struct pair p;
	struct ibv_cq *cq = NULL;

	(void)state;
	pair_open(&p, NULL);
	post_recv(&p.b, 1, 0, 0);
	post_recv(&p.b, 2, 0, 0);
	post_recv(&p.b, 3, 0, 0);
	/* Not armed: no event. */
	send_imm(&p.a, &p.b, 10);
	expect(&p.b, p.b.rcq, 1, IBV_WC_SUCCESS);
	assert_false(readable(p.b.ch->fd, 0));
	assert_int_equal(dev_b->ops->get_cq_event(dev_b, p.b.ch, &cq), -EAGAIN);
	assert_null(cq);
	/* Armed: one event, for the one next completion. */
	assert_int_equal(dev_req_notify_cq(p.b.rcq, 0), 0);
	assert_false(readable(p.b.ch->fd, 0));
	send_imm(&p.a, &p.b, 11);
	send_imm(&p.a, &p.b, 12);
	assert_true(readable(p.b.ch->fd, 20000));
	assert_int_equal(dev_b->ops->get_cq_event(dev_b, p.b.ch, &cq), 0);
	assert_ptr_equal(cq, p.b.rcq);
	assert_ptr_equal(cq->cq_context, &p.b);
	expect(&p.b, p.b.rcq, 2, IBV_WC_SUCCESS);
	expect(&p.b, p.b.rcq, 3, IBV_WC_SUCCESS);
	assert_false(readable(p.b.ch->fd, 0));
	assert_int_equal(dev_b->ops->get_cq_event(dev_b, p.b.ch, &cq), -EAGAIN);
	dev_b->ops->ack_cq_events(dev_b, p.b.rcq, 1);
	pair_close(&p);
}

/* Asked for solicited only, a plain message does not wake. */
static void test_solicited(void **state)
{
	struct pair p;
	struct ibv_cq *cq = NULL;
	struct ibv_sge s;
	struct ibv_send_wr wr;

	(void)state;
	pair_open(&p, NULL);
	post_recv(&p.b, 1, 0, 0);
	post_recv(&p.b, 2, 0, 0);
	assert_int_equal(dev_req_notify_cq(p.b.rcq, 1), 0);
	send_imm(&p.a, &p.b, 10);
	expect(&p.b, p.b.rcq, 1, IBV_WC_SUCCESS);
	assert_false(readable(p.b.ch->fd, 0));
	s = sge(&p.a, 0, 8);
	wr = rdma(IBV_WR_RDMA_WRITE_WITH_IMM, 11, &s, &p.b, 0);
	wr.send_flags |= IBV_SEND_SOLICITED;
	post(&p.a, &wr);
	assert_true(readable(p.b.ch->fd, 20000));
	assert_int_equal(dev_b->ops->get_cq_event(dev_b, p.b.ch, &cq), 0);
	dev_b->ops->ack_cq_events(dev_b, cq, 1);
	expect(&p.b, p.b.rcq, 2, IBV_WC_SUCCESS);
	expect(&p.a, p.a.scq, 11, IBV_WC_SUCCESS);
	pair_close(&p);
}

/* caps.inline_max is a promise: create_qp takes it and post carries it. */
static void test_inline_max(void **state)
{
	struct pair p;
	struct ibv_qp_init_attr attr = {.cap = {.max_send_wr = 1,
						.max_recv_wr = 1,
						.max_send_sge = 1,
						.max_recv_sge = 1},
					.qp_type = IBV_QPT_RC};
	struct ibv_qp *qp;

	(void)state;
	pair_open(&p, NULL);
	attr.send_cq = p.a.scq;
	attr.recv_cq = p.a.rcq;
	attr.cap.max_inline_data = dev_a->caps.inline_max;
	assert_int_equal(dev_a->ops->create_qp(dev_a, p.a.pd, &attr, 0, &qp),
			 0);
	assert_true(attr.cap.max_inline_data >= dev_a->caps.inline_max);
	assert_int_equal(dev_a->ops->destroy_qp(dev_a, qp), 0);
	pair_close(&p);
}

static void test_quiet_context(void **state)
{
	struct ibv_async_event ev;

	(void)state;
	assert_int_equal(dev_a->ops->get_async_event(dev_a, &ev), -EAGAIN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_write),
		cmocka_unit_test(test_write_imm),
		cmocka_unit_test(test_send),
		cmocka_unit_test(test_read),
		cmocka_unit_test(test_atomic),
		cmocka_unit_test(test_zero_byte_write),
		cmocka_unit_test(test_many_reads),
		cmocka_unit_test(test_write_then_send),
		cmocka_unit_test(test_selective_signalling),
		cmocka_unit_test(test_late_receive),
		cmocka_unit_test(test_channel),
		cmocka_unit_test(test_solicited),
		cmocka_unit_test(test_inline_max),
		cmocka_unit_test(test_quiet_context),
	};

	return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
