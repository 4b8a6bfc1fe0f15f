/* SPDX-License-Identifier: MIT */
/*
 * The control path: what a call costs on its core, and in the NIC, which does
 * one thing at a time for all processes of its node; CQs of other sizes, and
 * too small ones.
 */
#include "rig_sim.h"

#define SERVERS 3u
#define QPS 20u

static struct nic_model model;

static uint64_t since(struct rig *r, uint64_t from)
{
	return sim_thread_now(r->w) - from;
}

/* One after another, by one thread: both parts add up. A sleeper takes `wake`
 * and `context` to come back: hence the room. */
static void took(struct rig *r, uint64_t from, uint64_t cpu, uint64_t nic)
{
	assert_in_range(since(r, from), cpu + nic, cpu + nic + 6000);
}

static void drive_calls(struct rig *r)
{
	struct end *a = &r->end[0], *b = &r->end[1];
	struct ibv_srq_init_attr sa = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_qp_attr err = {.qp_state = IBV_QPS_ERR};
	const struct dev_ops *ops = a->dev->ops;
	struct dev_qp_addr addr;
	struct ibv_srq *srq;
	struct ibv_qp *qp, *qb = rig_qp(b, IBV_QPT_RC, NULL);
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_ah *ah;
	uint64_t t;

	t = sim_thread_now(r->w);
	assert_int_equal(ops->create_cq(a->dev, 16, NULL, NULL, &cq), 0);
	took(r, t, model.create_cq_cpu_ns, model.create_cq_nic_ns);
	t = sim_thread_now(r->w);
	assert_int_equal(ops->create_srq(a->dev, a->pd, &sa, &srq), 0);
	took(r, t, model.create_srq_cpu_ns, model.create_srq_nic_ns);
	t = sim_thread_now(r->w);
	qp = rig_qp(a, IBV_QPT_RC, NULL);
	took(r, t, model.create_qp_cpu_ns, model.create_qp_nic_ns);
	t = sim_thread_now(r->w);
	assert_int_equal(dev_qp_init(a->dev, qp, RIG_ACCESS), 0);
	took(r, t, model.modify_cpu_ns, model.modify_init_nic_ns);
	dev_qp_addr(b->dev, qb, 1, &addr);
	t = sim_thread_now(r->w);
	assert_int_equal(dev_qp_rtr(a->dev, qp, &addr, NULL), 0);
	took(r, t, model.modify_cpu_ns, model.modify_rtr_nic_ns);
	t = sim_thread_now(r->w);
	assert_int_equal(dev_qp_rts(a->dev, qp, 1, &addr, NULL), 0);
	took(r, t, model.modify_cpu_ns, model.modify_rts_nic_ns);
	t = sim_thread_now(r->w);
	assert_int_equal(ops->modify_qp(a->dev, qp, &err, IBV_QP_STATE), 0);
	took(r, t, model.modify_cpu_ns, model.modify_nic_ns);
	t = sim_thread_now(r->w);
	rig_destroy(a, qp);
	took(r, t, model.destroy_cpu_ns, model.destroy_nic_ns);
	t = sim_thread_now(r->w);
	/* 15 pages, and the one that it may begin in */
	assert_int_equal(ops->reg_mr(a->dev, a->pd, a->mem, 15 * 4096 + 1, 0,
				     -1, 0, &mr),
			 0);
	took(r, t, model.reg_mr_cpu_ns + 16ull * model.reg_page_ns,
	     model.reg_mr_nic_ns);
	t = sim_thread_now(r->w);
	ah = rig_ah(a, b);
	assert_int_equal(since(r, t), model.create_ah_cpu_ns);
	ops->destroy_ah(a->dev, ah);
	ops->dereg_mr(a->dev, mr);
	ops->destroy_srq(a->dev, srq);
	ops->destroy_cq(a->dev, cq);
	rig_destroy(b, qb);
}

/* A CQ of another size keeps what is in it, in its order. */
static void drive_resize(struct rig *r)
{
	struct end *a = &r->end[0], *b = &r->end[1];
	const struct dev_ops *ops = a->dev->ops;
	struct ibv_qp *qa = rig_qp(a, IBV_QPT_RC, NULL);
	struct ibv_qp *qb = rig_qp(b, IBV_QPT_RC, NULL);
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	unsigned i, done = 0;

	rig_connect(a, qa, b, qb, NULL);
	assert_int_equal(ops->resize_cq(a->dev, a->cq, 0), -EINVAL);
	assert_int_equal(ops->resize_cq(a->dev, a->cq, 64), 0);
	/* its ring has gone round once when it grows */
	for (i = 0; i < 40; i++) {
		wr.wr_id = i;
		assert_int_equal(ibv_post_send(qa, &wr, &bad), 0);
		rig_ok(r, a, i);
	}
	for (; i < 100; i++) {
		wr.wr_id = i;
		assert_int_equal(ibv_post_send(qa, &wr, &bad), 0);
	}
	rig_wait(r, 100000);
	assert_int_equal(ops->resize_cq(a->dev, a->cq, 32), -EINVAL);
	assert_int_equal(ops->resize_cq(a->dev, a->cq, 200), 0);
	assert_int_equal(a->cq->cqe, 256);
	for (; i < 200; i++) {
		wr.wr_id = i;
		assert_int_equal(ibv_post_send(qa, &wr, &bad), 0);
	}
	for (done = 40; done < 200; done++)
		rig_ok(r, a, done);
	rig_destroy(a, qa);
	rig_destroy(b, qb);
}

static bool next_async(struct end *e, enum ibv_event_type *type, void **element)
{
	struct ibv_async_event ev;

	if (e->dev->ops->get_async_event(e->dev, &ev))
		return false;
	*type = ev.event_type;
	*element = ev.element.qp;
	e->dev->ops->ack_async_event(e->dev, &ev);
	return true;
}

/* A CQ with more completions than places breaks, and its QPs with it; not one in
 * RESET: out of there a QP goes by its owner's will. */
static void drive_overflow(struct rig *r)
{
	struct end *a = &r->end[0], *b = &r->end[1];
	struct ibv_cq *large = a->cq;
	struct ibv_qp *qa, *spare, *qb = rig_qp(b, IBV_QPT_RC, NULL);
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	enum ibv_event_type type;
	struct ibv_wc wc;
	void *element;
	int i;

	assert_int_equal(a->dev->ops->create_cq(a->dev, 4, NULL, NULL, &a->cq),
			 0);
	qa = rig_qp(a, IBV_QPT_RC, NULL);
	spare = rig_qp(a, IBV_QPT_RC, NULL);
	rig_connect(a, qa, b, qb, NULL);
	for (i = 0; i <= a->cq->cqe; i++)
		assert_int_equal(ibv_post_send(qa, &wr, &bad), 0);
	rig_wait(r, 100000);
	assert_int_equal(ibv_poll_cq(a->cq, 1, &wc), -EIO);
	assert_int_equal(qa->state, IBV_QPS_ERR);
	assert_int_equal(spare->state, IBV_QPS_RESET);
	assert_true(next_async(a, &type, &element));
	assert_int_equal(type, IBV_EVENT_CQ_ERR);
	assert_true(next_async(a, &type, &element));
	assert_int_equal(type, IBV_EVENT_QP_FATAL);
	assert_ptr_equal(element, qa);
	assert_false(next_async(a, &type, &element));
	assert_int_equal(dev_qp_init(a->dev, spare, RIG_ACCESS), 0);
	rig_destroy(a, spare);
	rig_destroy(a, qa);
	rig_destroy(b, qb);
	assert_int_equal(a->dev->ops->destroy_cq(a->dev, a->cq), 0);
	a->cq = large;
}

/* A request fails, and its completion is the one too many: ERR is the last
 * word, though a failed request alone would bring a UC QP to SQE. */
static void drive_overflow_failed(struct rig *r)
{
	struct end *a = &r->end[0], *b = &r->end[1];
	struct ibv_cq *large = a->cq;
	struct ibv_sge wrong = {.lkey = a->mr->lkey ^ 0xffff00, .length = 8};
	struct ibv_qp *qa, *qb = rig_qp(b, IBV_QPT_UC, NULL);
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE,
				 .sg_list = &wrong,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	int i;

	assert_int_equal(a->dev->ops->create_cq(a->dev, 4, NULL, NULL, &a->cq),
			 0);
	qa = rig_qp(a, IBV_QPT_UC, NULL);
	rig_connect(a, qa, b, qb, NULL);
	for (i = 0; i <= a->cq->cqe; i++) {
		wr.num_sge = i == a->cq->cqe;
		assert_int_equal(ibv_post_send(qa, &wr, &bad), 0);
	}
	rig_wait(r, 100000);
	assert_int_equal(qa->state, IBV_QPS_ERR);
	rig_destroy(a, qa);
	rig_destroy(b, qb);
	assert_int_equal(a->dev->ops->destroy_cq(a->dev, a->cq), 0);
	a->cq = large;
}

/* One answer stands for several that were lost, and the CQ breaks before it is
 * through them. */
static void drive_overflow_by_one_answer(struct rig *r)
{
	struct end *a = &r->end[0], *b = &r->end[1];
	struct sim_link lossy = {.loss_ppm = 300000}, sound = {0};
	struct ibv_cq *large = a->cq;
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	struct ibv_qp *qa, *qb;

	for (int k = 0; k < 20; k++) {
		assert_int_equal(a->dev->ops->create_cq(a->dev, 4, NULL, NULL,
							&a->cq),
				 0);
		qa = rig_qp(a, IBV_QPT_RC, NULL);
		qb = rig_qp(b, IBV_QPT_RC, NULL);
		rig_connect(a, qa, b, qb, NULL);
		sim_link_set(b->node, &lossy);
		for (int i = 0; i < a->cq->cqe + 4; i++)
			assert_int_equal(ibv_post_send(qa, &wr, &bad), 0);
		while (qa->state != IBV_QPS_ERR)
			rig_wait(r, 100000);
		sim_link_set(b->node, &sound);
		rig_destroy(a, qa);
		rig_destroy(b, qb);
		assert_int_equal(a->dev->ops->destroy_cq(a->dev, a->cq), 0);
	}
	a->cq = large;
}

/* --- one NIC for all --------------------------------------------------- */

struct maker {
	struct sim_proc *proc;
	uint64_t begin, end;
};

static void make(void *arg)
{
	struct maker *m = arg;
	struct skein_env *env = sim_proc_env(m->proc);
	struct ibv_qp *qp[QPS];
	struct end e = {.proc = m->proc};

	rig_end_open(&e);
	sim_sleep(sim_proc_world(m->proc), 100000000 - env_now_ns(env));
	m->begin = env_now_ns(env);
	for (unsigned i = 0; i < QPS; i++)
		qp[i] = rig_qp(&e, IBV_QPT_RC, NULL);
	m->end = env_now_ns(env);
	for (unsigned i = 0; i < QPS; i++)
		rig_destroy(&e, qp[i]);
	rig_end_close(&e);
}

/* Processes of one node share what its NIC makes in a second; another node's
 * has a NIC of its own. */
static void test_rate(void **state)
{
	struct sim_conf conf = {
		.seed = 1, .log = two_log, .log_level = ENV_LOG_WARN};
	struct maker m[SERVERS + 1] = {0};
	uint64_t nic = (uint64_t)QPS * model.create_qp_nic_ns;
	struct sim_world *w;
	struct sim_node *node;
	unsigned i;

	assert_int_equal(sim_world_new(&conf, &w), 0);
	sim_net_set_model(w, &model);
	for (i = 0; i <= SERVERS; i++) {
		if (i == 0 || i == SERVERS)
			assert_int_equal(
				sim_node_new(w, i ? "b" : "a", 8, &node), 0);
		assert_int_equal(sim_proc_new(node, "p", &m[i].proc), 0);
		sim_spawn(m[i].proc, "make", make, &m[i]);
	}
	assert_int_equal(sim_run(w, ENV_NEVER), SIM_END_QUIET);
	for (i = 0; i < SERVERS; i++)
		assert_in_range(m[i].end - m[i].begin, SERVERS * nic * 9 / 10,
				SERVERS * nic * 11 / 10);
	assert_in_range(m[SERVERS].end - m[SERVERS].begin, nic,
			nic + (uint64_t)QPS *
					(model.create_qp_cpu_ns + 6000ull));
	sim_world_free(w);
}

static void test_calls(void **state)
{
	rig_run(2, &model, NULL, drive_calls);
}

static void test_resize(void **state)
{
	rig_run(2, &model, NULL, drive_resize);
}

static void test_overflow(void **state)
{
	rig_run(2, &model, NULL, drive_overflow);
	rig_run(2, &model, NULL, drive_overflow_failed);
	rig_run(2, &model, NULL, drive_overflow_by_one_answer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_calls),
		cmocka_unit_test(test_rate),
		cmocka_unit_test(test_resize),
		cmocka_unit_test(test_overflow),
	};

	if (nic_model_find("connectx4", &model))
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
