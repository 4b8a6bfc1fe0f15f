/* SPDX-License-Identifier: MIT */
/*
 * Racks with an oversubscribed upper tier: how much goes across and within,
 * and what it takes one message to cross.
 */
#include "rig_sim.h"

#define RACK 4u
#define LEN 65536u
#define DEPTH 8u
#define RUN_NS 4000000u

static const struct sim_racks racks = {.nodes = RACK, .oversub_pct = 400};

static void setup(struct rig *r)
{
	sim_net_set_racks(r->w, &racks);
}

/* Only cables count. */
static struct nic_model wires(void)
{
	struct nic_model m;

	assert_int_equal(nic_model_find("connectx5", &m), 0);
	m.link_gbps = 100;
	m.pcie_gbps = 1000;
	return m;
}

struct flow {
	struct end *a, *b;
	struct ibv_qp *qa, *qb;
	double gbps;
};

static void flow_post(struct flow *f, uint32_t len)
{
	struct ibv_sge sge = rig_sge(f->a, 0, len);
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.rdma = {.remote_addr =
						     (uintptr_t)f->b->mem,
					     .rkey = f->b->mr->rkey}};
	struct ibv_send_wr *bad;

	assert_int_equal(ibv_post_send(f->qa, &wr, &bad), 0);
}

static void flow_open(struct rig *r, struct flow *f, unsigned a, unsigned b)
{
	f->a = &r->end[a];
	f->b = &r->end[b];
	f->qa = rig_qp(f->a, IBV_QPT_RC, NULL);
	f->qb = rig_qp(f->b, IBV_QPT_RC, NULL);
	f->gbps = 0;
	rig_connect(f->a, f->qa, f->b, f->qb, NULL);
}

static void flow_close(struct flow *f)
{
	rig_destroy(f->a, f->qa);
	rig_destroy(f->b, f->qb);
}

/* All at once, for RUN_NS. Each has its sender for itself. */
static double flows_run(struct rig *r, struct flow *f, unsigned n)
{
	uint64_t end = sim_now(r->w) + RUN_NS;
	struct ibv_wc wc;
	double sum = 0;
	unsigned i, k;

	for (i = 0; i < n; i++)
		for (k = 0; k < DEPTH; k++)
			flow_post(&f[i], LEN);
	while (sim_now(r->w) < end) {
		for (i = 0; i < n; i++) {
			if (!ibv_poll_cq(f[i].a->cq, 1, &wc))
				continue;
			assert_int_equal(wc.status, IBV_WC_SUCCESS);
			f[i].gbps += LEN * 8.0 / RUN_NS;
			flow_post(&f[i], LEN);
		}
		rig_wait(r, 100);
	}
	for (i = 0; i < n; i++) {
		for (k = 0; k < DEPTH; k++)
			rig_ok(r, f[i].a, 0);
		sum += f[i].gbps;
		flow_close(&f[i]);
	}
	return sum;
}

static void near(double got, double want)
{
	print_message("%.1f Gbps (%.1f)\n", got, want);
	assert_true(got > 0.93 * want && got < 1.01 * want);
}

/* Goodput of a cable. */
static double cable(void)
{
	struct nic_model m = wires();

	return m.link_gbps * (double)m.mtu / (m.mtu + m.packet_overhead);
}

static void drive_racks(struct rig *r)
{
	struct flow f[2 * RACK];
	unsigned i;

	/* within: each has its cable */
	for (i = 0; i < RACK; i++)
		flow_open(r, &f[i], i, (i + 1) % RACK);
	near(flows_run(r, f, RACK), RACK * cable());
	/* across: four to one, shared fairly */
	for (i = 0; i < RACK; i++)
		flow_open(r, &f[i], i, RACK + i);
	near(flows_run(r, f, RACK), cable());
	for (i = 0; i < RACK; i++)
		near(f[i].gbps, cable() / RACK);
	/* one alone has its whole cable */
	flow_open(r, &f[0], 0, RACK);
	near(flows_run(r, f, 1), cable());
	/* two racks to a third: its cable down is what is short */
	for (i = 0; i < 2; i++)
		flow_open(r, &f[i], i * RACK, 2 * RACK + i);
	near(flows_run(r, f, 2), cable());
	/* up and down are two cables; those within do not mind */
	for (i = 0; i < 2; i++) {
		flow_open(r, &f[i], i, RACK + i);
		flow_open(r, &f[2 + i], RACK + 2 + i, 2 + i);
	}
	near(flows_run(r, f, 4), 2 * cable());
	for (i = 0; i < 2; i++) {
		flow_open(r, &f[i], i, RACK + i);
		flow_open(r, &f[2 + i], 2 + i, 3 - i);
	}
	near(flows_run(r, f, 4), 3 * cable());
}

static uint64_t one(struct rig *r, unsigned to)
{
	struct flow f;
	uint64_t from, took;
	struct ibv_wc wc;

	flow_open(r, &f, 0, to);
	flow_post(&f, 8); /* caches */
	rig_ok(r, f.a, 0);
	rig_work(r, 0);
	from = sim_now(r->w);
	flow_post(&f, 8);
	while (!ibv_poll_cq(f.a->cq, 1, &wc))
		rig_work(r, 1);
	took = sim_now(r->w) - from;
	flow_close(&f);
	return took;
}

/* Two more switches and cables, each way. */
static void drive_latency(struct rig *r)
{
	struct nic_model m = wires();
	uint64_t more = one(r, RACK) - one(r, 1);
	uint64_t want = 4ull * (m.hop + m.link_delay);

	print_message("across: %lu ns more (%lu and four times the cable)\n",
		      (unsigned long)more, (unsigned long)want);
	assert_in_range(more, want, want + 200);
}

static void test_racks(void **state)
{
	struct nic_model m = wires();

	rig_run(3 * RACK, &m, setup, drive_racks);
}

static void test_latency(void **state)
{
	struct nic_model m = wires();

	rig_run(2 * RACK, &m, setup, drive_latency);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_racks),
		cmocka_unit_test(test_latency),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
