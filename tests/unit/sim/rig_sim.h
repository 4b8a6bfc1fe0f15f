/* SPDX-License-Identifier: MIT */
/*
 * rig_sim.h - nodes with simulated devices, driven by one thread of the first
 * node: what the other devices do costs it time, which no test here minds.
 */
#ifndef SKEIN_TESTS_UNIT_SIM_RIG_SIM_H
#define SKEIN_TESTS_UNIT_SIM_RIG_SIM_H

#include "cm_sim.h"
#include "dev/dev.h"
#include "dev/sim/link.h"
#include "dev/sim/model.h"

/* Some tests let buffers overlap, which a world that checks does not like. */
#ifndef RIG_CHECK
#define RIG_CHECK false
#endif
#define RIG_NODES 12
#define RIG_MEM 65536u

struct end {
	struct sim_node *node;
	struct sim_proc *proc;
	struct dev *dev;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	unsigned char *mem; /* RIG_MEM */
};

struct rig {
	struct sim_world *w;
	struct end end[RIG_NODES];
	unsigned n;
	void (*drive)(struct rig *r);
	bool done;
	bool blames; /* buffers are misused on purpose */
};

#define RIG_ACCESS                                          \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | \
	 IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

static inline void rig_end_open(struct end *e)
{
	struct skein_env *env = sim_proc_env(e->proc);
	char err[128];

	assert_int_equal(dev_open(env, "sim", -1, err, sizeof(err), &e->dev),
			 0);
	assert_int_equal(e->dev->ops->alloc_pd(e->dev, &e->pd), 0);
	assert_int_equal(
		e->dev->ops->create_cq(e->dev, 4096, NULL, NULL, &e->cq), 0);
	e->mem = env_alloc(env, RIG_MEM);
	assert_int_equal(e->dev->ops->reg_mr(e->dev, e->pd, e->mem, RIG_MEM,
					     RIG_ACCESS, -1, 0, &e->mr),
			 0);
}

static inline void rig_end_close(struct end *e)
{
	const struct dev_ops *ops = e->dev->ops;

	assert_int_equal(ops->dereg_mr(e->dev, e->mr), 0);
	assert_int_equal(ops->destroy_cq(e->dev, e->cq), 0);
	assert_int_equal(ops->dealloc_pd(e->dev, e->pd), 0);
	dev_close(e->dev);
	env_free(sim_proc_env(e->proc), e->mem);
}

static inline void rig_main(void *arg)
{
	struct rig *r = arg;
	unsigned i;

	for (i = 0; i < r->n; i++)
		rig_end_open(&r->end[i]);
	r->drive(r);
	for (i = 0; i < r->n; i++)
		rig_end_close(&r->end[i]);
	r->done = true;
}

/* model: NULL for the default. setup: NULL, or what is to be done before the
 * first device is opened. */
static inline void rig_run(unsigned n, const struct nic_model *model,
			   void (*setup)(struct rig *r),
			   void (*drive)(struct rig *r))
{
	struct sim_conf conf = {.seed = 1,
				.log = two_log,
				.log_level = ENV_LOG_WARN,

				.check = RIG_CHECK};
	struct rig *r = calloc(1, sizeof(*r));

	r->n = n;
	r->drive = drive;
	assert_int_equal(sim_world_new(&conf, &r->w), 0);
	if (model)
		sim_net_set_model(r->w, model);
	for (unsigned i = 0; i < n; i++) {
		char name[8];

		snprintf(name, sizeof(name), "n%u", i);
		assert_int_equal(sim_node_new(r->w, name, 4, &r->end[i].node),
				 0);
		assert_int_equal(
			sim_proc_new(r->end[i].node, "p", &r->end[i].proc), 0);
	}
	if (setup)
		setup(r);
	sim_spawn(r->end[0].proc, "drive", rig_main, r);
	sim_run(r->w, ENV_NEVER);
	assert_true(r->done);
	if (!r->blames)
		assert_string_equal(sim_blamed(r->w), "");
	for (unsigned i = 0; i < n; i++) {
		assert_int_equal(sim_proc_bytes(r->end[i].proc), 0);
		assert_int_equal(sim_proc_fds(r->end[i].proc), 0);
	}
	sim_world_free(r->w);
	free(r);
}

/* A QP in RTS, of UD; or in RESET. */
static inline struct ibv_qp *rig_qp(struct end *e, enum ibv_qp_type type,
				    struct ibv_srq *srq)
{
	struct ibv_qp_init_attr a = {.qp_type = type,
				     .send_cq = e->cq,
				     .recv_cq = e->cq,
				     .srq = srq,
				     .cap = {.max_send_wr = 256,
					     .max_recv_wr = 256,
					     .max_send_sge = 2,
					     .max_recv_sge = 2,
					     .max_inline_data = 64}};
	struct ibv_qp *qp;

	assert_int_equal(e->dev->ops->create_qp(e->dev, e->pd, &a, 0, &qp), 0);
	return qp;
}

static inline void rig_connect(struct end *a, struct ibv_qp *qa, struct end *b,
			       struct ibv_qp *qb,
			       const struct dev_qp_opts *opts)
{
	struct end *e[2] = {a, b};
	struct ibv_qp *q[2] = {qa, qb};
	struct dev_qp_addr addr[2];
	int i;

	for (i = 0; i < 2; i++) {
		assert_int_equal(dev_qp_init(e[i]->dev, q[i], RIG_ACCESS), 0);
		dev_qp_addr(e[i]->dev, q[i], 100u + (unsigned)i, &addr[i]);
	}
	for (i = 0; i < 2; i++)
		assert_int_equal(dev_qp_rtr(e[i]->dev, q[i], &addr[!i], opts),
				 0);
	for (i = 0; i < 2; i++)
		assert_int_equal(dev_qp_rts(e[i]->dev, q[i], addr[i].psn,
					    &addr[!i], opts),
				 0);
}

static inline void rig_destroy(struct end *e, struct ibv_qp *qp)
{
	assert_int_equal(e->dev->ops->destroy_qp(e->dev, qp), 0);
}

static inline struct ibv_ah *rig_ah(struct end *from, struct end *to)
{
	struct dev_qp_addr peer = {
		.gid = to->dev->gid.gid, .qpn = 1, .mtu = IBV_MTU_4096};
	struct ibv_ah_attr attr;
	struct ibv_ah *ah;

	assert_int_equal(dev_ah_attr(from->dev, &peer, NULL, &attr), 0);
	assert_int_equal(
		from->dev->ops->create_ah(from->dev, from->pd, &attr, &ah), 0);
	return ah;
}

static inline struct ibv_sge rig_sge(const struct end *e, uint32_t at,
				     uint32_t len)
{
	return (struct ibv_sge){.addr = (uintptr_t)e->mem + at,
				.length = len,
				.lkey = e->mr->lkey};
}

static inline void rig_recv(struct end *e, struct ibv_qp *qp, uint64_t wr_id,
			    uint32_t at, uint32_t len)
{
	struct ibv_sge sge = rig_sge(e, at, len);
	struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1};
	struct ibv_recv_wr *bad;

	assert_int_equal(ibv_post_recv(qp, &wr, &bad), 0);
}

static inline void rig_srq_recv(struct end *e, struct ibv_srq *srq,
				uint64_t wr_id, uint32_t at, uint32_t len)
{
	struct ibv_sge sge = rig_sge(e, at, len);
	struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1};
	struct ibv_recv_wr *bad;

	assert_int_equal(ibv_post_srq_recv(srq, &wr, &bad), 0);
}

/* Time passes. */
static inline void rig_wait(struct rig *r, uint64_t ns)
{
	sim_sleep(r->w, ns);
}

/* The same by the thread's own work: exact, for no core is given away. */
static inline void rig_work(struct rig *r, uint64_t ns)
{
	sim_charge(r->w, ns);
	sim_flush(r->w, 0);
}

/* The next completion, within a millisecond. */
static inline struct ibv_wc rig_wc(struct rig *r, struct end *e)
{
	struct ibv_wc wc;
	int n, tries;

	for (tries = 0; tries < 10000; tries++) {
		n = ibv_poll_cq(e->cq, 1, &wc);
		assert_true(n >= 0);
		if (n)
			return wc;
		rig_wait(r, 100);
	}
	fail_msg("no completion");
	return wc;
}

static inline struct ibv_wc rig_ok(struct rig *r, struct end *e, uint64_t wr_id)
{
	struct ibv_wc wc = rig_wc(r, e);

	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.wr_id, wr_id);
	return wc;
}

/* There is none, and none comes soon. */
static inline void rig_none(struct rig *r, struct end *e)
{
	struct ibv_wc wc;

	rig_wait(r, 100000);
	assert_int_equal(ibv_poll_cq(e->cq, 1, &wc), 0);
}

/* An async event of this type, or none at all when it is -1. */
static inline void rig_event(struct end *e, int type)
{
	struct ibv_async_event ev;
	int rc = e->dev->ops->get_async_event(e->dev, &ev);

	if (type < 0) {
		assert_int_equal(rc, -EAGAIN);
		return;
	}
	assert_int_equal(rc, 0);
	assert_int_equal(ev.event_type, type);
	e->dev->ops->ack_async_event(e->dev, &ev);
}

#endif
