/* SPDX-License-Identifier: MIT */
/*
 * Cables: short messages slip in between the packets of long ones, but not out
 * of their own QP's order; a slow way between two nodes; messages without
 * bytes.
 */
#include "rig_sim.h"

#define LONG RIG_MEM /* 16 packets */

/* A packet takes 33 us, a long message 535. */
static struct nic_model wires(void)
{
	struct nic_model m;

	assert_int_equal(nic_model_find("connectx5", &m), 0);
	m.link_gbps = 1;
	m.pcie_gbps = 1000;
	return m;
}

static uint64_t on_wire(uint64_t bytes, uint64_t packets)
{
	struct nic_model m = wires();

	return (bytes + packets * m.packet_overhead) * 8 / m.link_gbps;
}

static const struct dev_qp_opts patient = {.timeout = 20};

struct way {
	struct end *a, *b;
	struct ibv_qp *qa, *qb;
};

static void way_open(struct rig *r, struct way *v, unsigned a, unsigned b)
{
	v->a = &r->end[a];
	v->b = &r->end[b];
	v->qa = rig_qp(v->a, IBV_QPT_RC, NULL);
	v->qb = rig_qp(v->b, IBV_QPT_RC, NULL);
	rig_connect(v->a, v->qa, v->b, v->qb, &patient);
}

static void way_close(struct way *v)
{
	rig_destroy(v->a, v->qa);
	rig_destroy(v->b, v->qb);
}

static void post_as(struct way *v, uint32_t len, uint64_t wr_id, uint32_t rkey)
{
	struct ibv_sge sge = rig_sge(v->a, 0, len);
	struct ibv_send_wr wr = {
		.wr_id = wr_id,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = (uintptr_t)v->b->mem, .rkey = rkey}};
	struct ibv_send_wr *bad;

	assert_int_equal(ibv_post_send(v->qa, &wr, &bad), 0);
}

static void post(struct way *v, uint32_t len, uint64_t wr_id)
{
	post_as(v, len, wr_id, v->b->mr->rkey);
}

static uint64_t took(struct rig *r, struct end *e, uint64_t wr_id,
		     uint64_t from)
{
	rig_ok(r, e, wr_id);
	return sim_now(r->w) - from;
}

static void drive_slip(struct rig *r)
{
	uint64_t from, packet = on_wire(4096, 1), all = on_wire(LONG, 16), t;
	struct way far, near, back;

	way_open(r, &far, 0, 1);
	way_open(r, &near, 0, 2);
	way_open(r, &back, 1, 0);
	/* out of the same NIC, and into another: behind one packet */
	post(&far, LONG, 1);
	rig_wait(r, 50000);
	from = sim_now(r->w);
	post(&near, 8, 2);
	t = took(r, near.a, 2, from);
	print_message("beside a long one: %lu ns\n", (unsigned long)t);
	assert_in_range(t, packet, 2 * packet);
	rig_ok(r, far.a, 1);
	/* the other way on the same two cables: the answer slips as well */
	post(&far, LONG, 1);
	post(&back, LONG, 2);
	from = sim_now(r->w);
	t = took(r, far.a, 1, from);
	assert_in_range(t, all, all + 4 * packet);
	rig_ok(r, back.a, 2);
	/* on the same QP: in its turn */
	post(&far, LONG, 1);
	post(&far, 8, 2);
	from = sim_now(r->w);
	t = took(r, far.a, 1, from);
	assert_true(t > all);
	rig_ok(r, far.a, 2);
	way_close(&far);
	way_close(&near);
	way_close(&back);
}

/* What slips takes its time from what comes after it. */
static void drive_share(struct rig *r)
{
	uint64_t from, quiet, busy, each = on_wire(2048, 1);
	struct way far, near;

	way_open(r, &far, 0, 1);
	way_open(r, &near, 0, 2);
	post(&far, 8, 0);
	rig_ok(r, far.a, 0);
	from = sim_now(r->w);
	post(&far, LONG, 1);
	rig_wait(r, on_wire(LONG, 16) / 2);
	post(&far, LONG, 2);
	rig_ok(r, far.a, 1);
	quiet = took(r, far.a, 2, from);
	from = sim_now(r->w);
	post(&far, LONG, 1);
	for (uint64_t i = 0; i < 4; i++) {
		post(&near, 2048, 10 + i);
		rig_ok(r, near.a, 10 + i);
	}
	post(&far, LONG, 2);
	rig_ok(r, far.a, 1);
	busy = took(r, far.a, 2, from);
	print_message("two long ones: %lu ns, with four short: %lu\n",
		      (unsigned long)quiet, (unsigned long)busy);
	assert_in_range(busy - quiet, 3 * each, 5 * each);
	way_close(&far);
	way_close(&near);
}

static void drive_path(struct rig *r)
{
	uint64_t from, all = on_wire(LONG, 16), t;
	struct way slow, back, other;

	sim_path_slow(r->end[0].node, r->end[1].node, 2);
	way_open(r, &slow, 0, 1);
	way_open(r, &back, 1, 0);
	way_open(r, &other, 0, 2);
	from = sim_now(r->w);
	post(&slow, LONG, 1);
	t = took(r, slow.a, 1, from);
	assert_in_range(t, 2 * all, 2 * all + all / 4);
	from = sim_now(r->w);
	post(&back, LONG, 1);
	t = took(r, back.a, 1, from);
	assert_in_range(t, 2 * all, 2 * all + all / 4);
	from = sim_now(r->w);
	post(&other, LONG, 1);
	t = took(r, other.a, 1, from);
	assert_in_range(t, all, all + all / 4);
	way_close(&slow);
	way_close(&back);
	way_close(&other);
}

static void hollow(struct rig *r)
{
	sim_net_set_hollow(r->w, 1024);
}

static void drive_hollow(struct rig *r)
{
	uint64_t from, all = on_wire(LONG, 16), t;
	struct ibv_sge sge;
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	struct way v;

	way_open(r, &v, 0, 1);
	memset(v.a->mem, 7, RIG_MEM);
	memset(v.b->mem, 1, RIG_MEM);
	from = sim_now(r->w);
	post(&v, LONG, 1);
	t = took(r, v.a, 1, from);
	assert_in_range(t, all, all + all / 4);
	assert_int_equal(v.b->mem[0], 1);
	rig_recv(v.b, v.qb, 5, 0, RIG_MEM);
	sge = rig_sge(v.a, 0, 2000);
	assert_int_equal(ibv_post_send(v.qa, &wr, &bad), 0);
	rig_ok(r, v.a, 0);
	assert_int_equal(rig_ok(r, v.b, 5).byte_len, 2000);
	assert_int_equal(v.b->mem[0], 1);
	/* a READ, which brings its bytes in the answer */
	wr.opcode = IBV_WR_RDMA_READ;
	wr.wr.rdma.remote_addr = (uintptr_t)v.b->mem;
	wr.wr.rdma.rkey = v.b->mr->rkey;
	assert_int_equal(ibv_post_send(v.qa, &wr, &bad), 0);
	rig_ok(r, v.a, 0);
	assert_int_equal(v.a->mem[0], 7);
	post(&v, 1023, 2);
	rig_ok(r, v.a, 2);
	assert_int_equal(v.b->mem[1022], 7);
	assert_int_equal(v.b->mem[1023], 1);
	/* checked like any other */
	post_as(&v, LONG, 3, v.b->mr->rkey + 1);
	assert_int_equal(rig_wc(r, v.a).status, IBV_WC_REM_ACCESS_ERR);
	way_close(&v);
}

static void test_slip(void **state)
{
	struct nic_model m = wires();

	rig_run(3, &m, NULL, drive_slip);
}

static void test_share(void **state)
{
	struct nic_model m = wires();

	rig_run(3, &m, NULL, drive_share);
}

static void test_path(void **state)
{
	struct nic_model m = wires();

	rig_run(3, &m, NULL, drive_path);
}

static void test_hollow(void **state)
{
	struct nic_model m = wires();

	rig_run(2, &m, hollow, drive_hollow);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_slip),
		cmocka_unit_test(test_share),
		cmocka_unit_test(test_path),
		cmocka_unit_test(test_hollow),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
