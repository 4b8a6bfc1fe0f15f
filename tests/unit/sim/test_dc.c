/* SPDX-License-Identifier: MIT */
/*
 * DC on the simulated device: every operation, one DCI to many targets, what a
 * reconnect costs, the key, errors, loss, and what is left of a DCI that is no
 * more.
 */
#include "rig_sim.h"

#define KEY 0x1122334455667788ull
#define TARGETS 4u

struct target {
	struct end *e;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_ah *ah; /* from end 0 */
};

static void target_open(struct rig *r, struct target *t, unsigned i)
{
	struct ibv_srq_init_attr a = {.attr = {.max_wr = 64, .max_sge = 1}};
	struct dev_qp_opts opts = {.min_rnr_timer = 1};

	t->e = &r->end[i];
	assert_int_equal(t->e->dev->ops->create_srq(t->e->dev, t->e->pd, &a,
						    &t->srq),
			 0);
	assert_int_equal(t->e->dev->ops->create_dct(t->e->dev, t->e->pd,
						    t->e->cq, t->srq, KEY + i,
						    RIG_ACCESS, &opts, &t->qp),
			 0);
	t->ah = rig_ah(&r->end[0], t->e);
}

static void target_close(struct rig *r, struct target *t)
{
	struct dev *dev = t->e->dev;

	rig_destroy(t->e, t->qp);
	assert_int_equal(dev->ops->destroy_srq(dev, t->srq), 0);
	r->end[0].dev->ops->destroy_ah(r->end[0].dev, t->ah);
}

static struct ibv_qp *dci_new(struct end *e)
{
	struct dev_qp_opts opts = {.timeout = 4, .retry_cnt = 7};
	struct ibv_qp_init_attr a = {.send_cq = e->cq,
				     .recv_cq = e->cq,
				     .cap = {.max_send_wr = 64,
					     .max_send_sge = 1,
					     .max_inline_data = 64}};
	struct ibv_qp *qp;

	assert_int_equal(e->dev->ops->create_dci(e->dev, e->pd, &a, &opts, &qp),
			 0);
	return qp;
}

static struct ibv_send_wr wr_of(const struct target *t, struct ibv_sge *sge,
				enum ibv_wr_opcode op)
{
	struct ibv_send_wr wr = {.wr_id = op,
				 .sg_list = sge,
				 .num_sge = 1,
				 .opcode = op,
				 .imm_data = 7,
				 .send_flags = IBV_SEND_SIGNALED};

	if (op >= IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = (uintptr_t)t->e->mem + 512;
		wr.wr.atomic.rkey = t->e->mr->rkey;
		wr.wr.atomic.compare_add = 5;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)t->e->mem + 1024;
		wr.wr.rdma.rkey = t->e->mr->rkey;
	}
	return wr;
}

static int post_key(struct rig *r, struct ibv_qp *dci, const struct target *t,
		    struct ibv_send_wr *wr, uint64_t key)
{
	struct dev *dev = r->end[0].dev;

	return dev->ops->post_dc(dev, dci, wr, t->ah, t->qp->qp_num, key);
}

static void post(struct rig *r, struct ibv_qp *dci, const struct target *t,
		 enum ibv_wr_opcode op, uint32_t at)
{
	struct ibv_sge sge = rig_sge(&r->end[0], at, 8);
	struct ibv_send_wr wr = wr_of(t, &sge, op);

	assert_int_equal(
		post_key(r, dci, t, &wr, KEY + (unsigned)(t->e - r->end)), 0);
}

static void done(struct rig *r, struct ibv_qp *dci, const struct target *t,
		 enum ibv_wr_opcode op, uint32_t at)
{
	post(r, dci, t, op, at);
	rig_ok(r, &r->end[0], op);
}

static void drive_ops(struct rig *r)
{
	struct end *a = &r->end[0];
	struct ibv_qp *dci = dci_new(a);
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_READ,
				 .send_flags = IBV_SEND_INLINE};
	struct ibv_send_wr *bad;
	struct target t[TARGETS];
	struct sim_nic_counts c;
	uint64_t word = 3;
	unsigned i;

	for (i = 0; i < TARGETS; i++)
		target_open(r, &t[i], i + 1);
	memcpy(a->mem, "original", 8);
	for (i = 0; i < TARGETS; i++) {
		memcpy(t[i].e->mem + 512, &word, 8);
		done(r, dci, &t[i], IBV_WR_RDMA_WRITE, 0);
		assert_memory_equal(t[i].e->mem + 1024, "original", 8);
		done(r, dci, &t[i], IBV_WR_RDMA_READ, 64);
		assert_memory_equal(a->mem + 64, "original", 8);
		done(r, dci, &t[i], IBV_WR_ATOMIC_FETCH_AND_ADD, 128);
		assert_memory_equal(a->mem + 128, &word, 8);
		assert_int_equal(t[i].e->mem[512], 8);
		rig_srq_recv(t[i].e, t[i].srq, 40 + i, 0, 64);
		rig_srq_recv(t[i].e, t[i].srq, 80 + i, 0, 64);
		done(r, dci, &t[i], IBV_WR_SEND, 0);
		assert_int_equal(rig_ok(r, t[i].e, 40 + i).qp_num,
				 t[i].qp->qp_num);
		done(r, dci, &t[i], IBV_WR_RDMA_WRITE_WITH_IMM, 0);
		assert_int_equal(rig_ok(r, t[i].e, 80 + i).imm_data, 7);
	}
	sim_nic_counts(a->node, &c);
	assert_int_equal(c.dc_connects, TARGETS);
	/* one context here, and one SRQ and one target there */
	assert_int_equal(c.ctx_misses, 1);
	sim_nic_counts(t[0].e->node, &c);
	assert_int_equal(c.ctx_misses, 2);
	/* a message that finds no receive comes again */
	post(r, dci, &t[0], IBV_WR_SEND, 0);
	rig_none(r, a);
	rig_srq_recv(t[0].e, t[0].srq, 9, 0, 64);
	rig_ok(r, a, IBV_WR_SEND);
	rig_ok(r, t[0].e, 9);
	/* what does not go together, and what is no DCI */
	assert_int_equal(post_key(r, dci, &t[0], &wr, KEY), -EINVAL);
	assert_int_equal(ibv_post_send(dci, &wr, &bad), EINVAL);
	for (i = 0; i < TARGETS; i++)
		target_close(r, &t[i]);
	rig_destroy(a, dci);
}

static uint64_t time_of(struct rig *r, struct ibv_qp *dci,
			const struct target *t)
{
	struct ibv_wc wc;
	uint64_t from;

	rig_work(r, 0);
	from = sim_now(r->w);
	post(r, dci, t, IBV_WR_RDMA_READ, 0);
	while (!ibv_poll_cq(r->end[0].cq, 1, &wc))
		rig_work(r, 1);
	return sim_now(r->w) - from;
}

/* A list to several targets goes one after another; two DCIs side by side. */
static void drive_cost(struct rig *r)
{
	struct ibv_qp *dci[2] = {dci_new(&r->end[0]), dci_new(&r->end[0])};
	struct nic_model m;
	struct target t[2];
	uint64_t same, other, apart;
	struct sim_nic_counts c;
	unsigned i;

	assert_int_equal(nic_model_find("connectx5", &m), 0);
	for (i = 0; i < 2; i++)
		target_open(r, &t[i], i + 1);
	time_of(r, dci[0], &t[1]); /* caches */
	time_of(r, dci[0], &t[0]);
	same = time_of(r, dci[0], &t[0]);
	other = time_of(r, dci[0], &t[1]);
	assert_in_range(other - same, m.dc_connect_ns - 40,
			m.dc_connect_ns + 40);
	assert_true(m.dc_connect_ns < 1000);
	time_of(r, dci[1], &t[0]);
	rig_work(r, 0);
	apart = sim_now(r->w);
	for (i = 0; i < 20; i++)
		post(r, dci[0], &t[i % 2], IBV_WR_RDMA_READ, 0);
	for (i = 0; i < 20; i++)
		rig_ok(r, &r->end[0], IBV_WR_RDMA_READ);
	same = sim_now(r->w) - apart;
	sim_nic_counts(r->end[0].node, &c);
	/* the last one was to t[1]; each of the 20 is to another target */
	assert_int_equal(c.dc_connects, 3 + 1 + 20);
	apart = sim_now(r->w);
	for (i = 0; i < 20; i++)
		post(r, dci[i % 2], &t[!(i % 2)], IBV_WR_RDMA_READ, 0);
	for (i = 0; i < 20; i++)
		rig_ok(r, &r->end[0], IBV_WR_RDMA_READ);
	apart = sim_now(r->w) - apart;
	print_message("20 READs to two targets: %lu ns, by two DCIs %lu ns\n",
		      (unsigned long)same, (unsigned long)apart);
	assert_true(same > 20 * (uint64_t)m.dc_connect_ns);
	assert_true(3 * apart < same);
	for (i = 0; i < 2; i++) {
		target_close(r, &t[i]);
		rig_destroy(&r->end[0], dci[i]);
	}
}

/* The DCI breaks; the target serves on. */
static void broken(struct rig *r, const struct target *t,
		   struct ibv_send_wr *wr, uint64_t key,
		   enum ibv_wc_status status)
{
	struct end *a = &r->end[0];
	struct ibv_qp *dci = dci_new(a);

	assert_int_equal(post_key(r, dci, t, wr, key), 0);
	wr->wr_id++;
	assert_int_equal(post_key(r, dci, t, wr, key), 0);
	assert_int_equal(rig_wc(r, a).status, status);
	assert_int_equal(rig_wc(r, a).status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(dci->state, IBV_QPS_ERR);
	rig_destroy(a, dci);
	dci = dci_new(a);
	done(r, dci, t, IBV_WR_RDMA_WRITE, 0);
	rig_destroy(a, dci);
}

static void drive_errors(struct rig *r)
{
	struct end *a = &r->end[0];
	struct ibv_sge sge = rig_sge(a, 0, 8);
	struct ibv_send_wr wr;
	struct target t, gone;
	struct ibv_qp nobody, *dci;

	target_open(r, &t, 1);
	wr = wr_of(&t, &sge, IBV_WR_RDMA_WRITE);
	broken(r, &t, &wr, KEY, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(t.qp->state, IBV_QPS_RTR);
	wr.wr.rdma.rkey ^= 0x100;
	broken(r, &t, &wr, KEY + 1, IBV_WC_REM_ACCESS_ERR);
	sge.lkey ^= 0x100;
	broken(r, &t, &wr, KEY + 1, IBV_WC_LOC_PROT_ERR);
	rig_event(t.e, -1);
	/* nobody answers for a number that is not there */
	gone = t;
	gone.qp = &nobody;
	nobody.qp_num = t.qp->qp_num + 1;
	sge = rig_sge(a, 0, 8);
	wr = wr_of(&t, &sge, IBV_WR_RDMA_WRITE);
	dci = dci_new(a);
	assert_int_equal(post_key(r, dci, &gone, &wr, KEY + 1), 0);
	assert_int_equal(rig_wc(r, a).status, IBV_WC_RETRY_EXC_ERR);
	rig_destroy(a, dci);
	target_close(r, &t);
}

/* Each is carried out once, whatever is lost, and by many DCIs of one number.
 */
static void drive_loss(struct rig *r)
{
	struct end *a = &r->end[0];
	struct sim_link lossy = {.loss_ppm = 50000}, sound = {0};
	struct target t[2];
	struct ibv_qp *dci;
	uint64_t sum[2];
	unsigned i, k;

	for (i = 0; i < 2; i++)
		target_open(r, &t[i], i + 1);
	sim_link_set(a->node, &lossy);
	for (k = 0; k < 40; k++) {
		dci = dci_new(a);
		for (i = 0; i < 24; i++)
			post(r, dci, &t[i / 3 % 2], IBV_WR_ATOMIC_FETCH_AND_ADD,
			     8 * i);
		for (i = 0; i < 24; i++)
			rig_ok(r, a, IBV_WR_ATOMIC_FETCH_AND_ADD);
		rig_destroy(a, dci);
	}
	sim_link_set(a->node, &sound);
	for (i = 0; i < 2; i++) {
		memcpy(&sum[i], t[i].e->mem + 512, 8);
		assert_int_equal(sum[i], 5 * 12 * 40);
		target_close(r, &t[i]);
	}
}

static void test_ops(void **state)
{
	rig_run(TARGETS + 1, NULL, NULL, drive_ops);
}

static void test_cost(void **state)
{
	rig_run(3, NULL, NULL, drive_cost);
}

static void test_errors(void **state)
{
	rig_run(2, NULL, NULL, drive_errors);
}

static void test_loss(void **state)
{
	rig_run(3, NULL, NULL, drive_loss);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ops),
		cmocka_unit_test(test_cost),
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_loss),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
