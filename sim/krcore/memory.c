/* SPDX-License-Identifier: MIT */
/*
 * memory.c - KRCore's figure 15: memory by the number of nodes that are
 * connected, and READs of 64 bytes by a pool of 32 connections.
 *
 * LITE has an RC QP for each node; KRCore some DC QPs and 12 bytes for each
 * node; ours is the production pool with that many nodes in its cache.
 *
 * Erratum: 8 DC QPs for each core are 192 of a node of 24 cores, and figure 15a
 * has 48. At the size that the paper gives for a QP, its 6.3 MB are 40.
 * The paper's MB are 2^20 bytes: 10,000 QPs of 159 KB are its 1.52 GB only so.
 */
#include "sim/krcore/memory.h"

#include "dev/sim/sim_dev.h"
#include "env/sim/sim.h"
#include "sim/bed.h"
#include "sim/krcore/krcore.h"
#include "sim/krcore/krcore_bed.h"
#include "vqp/pool.h"

#include <stdio.h>

#define FEW 5000u
#define MANY 15000u
#define MIB 1048576.0

/* KRCore 2.3.1: LITE's queues */
#define SQ_ENTRIES 292u
#define CQ_ENTRIES 257
#define SQ_ENTRY 448u
#define CQ_ENTRY 64u
#define RECV_ENTRY 32u /* assumed: mlx5, one piece */

#define CONNECTIONS 32u /* of 15b */
#define LITE_THREADS 6u /* more, and its queues overflow */
#define THREADS 16u	/* of 24 cores: each has two of the 32 */
#define RUN_NS 400000u

/* KRCore 4.2: what is cached of a node */
struct dct_meta {
	uint32_t number, key[2];
};

/* --- counting ------------------------------------------------------------ */

static uint64_t queue_bytes(uint64_t entries, uint64_t entry)
{
	uint64_t bytes = 4096;

	while (bytes < entries * entry)
		bytes *= 2;
	return entries ? bytes : 0;
}

void krcore_mem_of_dev(struct dev *dev, struct krcore_mem *m)
{
	struct sim_dev *d = sim_dev_of(dev);
	struct list_node *n;

	list_for_each(n, &d->qps) {
		const struct sim_qp *q = container_of(n, struct sim_qp, link);

		const struct ibv_qp_cap *cap = &q->init.cap;

		m->qps += cap->max_send_wr > 0;
		m->queues += queue_bytes(cap->max_send_wr, SQ_ENTRY) +
			     queue_bytes(cap->max_recv_wr, RECV_ENTRY);
	}
	list_for_each(n, &d->cqs)
		m->queues += queue_bytes(
			container_of(n, struct sim_cq, link)->cap, CQ_ENTRY);
	list_for_each(n, &d->srqs)
		m->queues += queue_bytes(
			container_of(n, struct sim_srq, link)->rq.cap,
			RECV_ENTRY);
	list_for_each(n, &d->mrs)
		m->registered +=
			container_of(n, struct sim_mr, link)->mr.length;
}

void krcore_mem_of_pool(const struct pool *p, struct krcore_mem *m)
{
	krcore_mem_of_dev(p->dev, m);
	m->n_peers = p->e.n_peers;
	m->peers = p->e.n_peers *
		   (uint64_t)(sizeof(struct vqp_peer) + sizeof(struct sim_ah));
	m->engine = sizeof(*p) + VQP_SLOTS * sizeof(*p->e.slots);
}

/* --- 15a: the paper's ---------------------------------------------------- */

static int make(struct dev *dev, struct ibv_pd *pd, bool dc)
{
	struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_RC,
				     .cap = {.max_send_wr = SQ_ENTRIES,
					     .max_send_sge = 1}};
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	int rc = dev->ops->create_cq(dev, CQ_ENTRIES, NULL, NULL, &cq);

	if (rc)
		return rc;
	a.send_cq = a.recv_cq = cq;
	return dc ? dev->ops->create_dci(dev, pd, &a, NULL, &qp)
		  : dev->ops->create_qp(dev, pd, &a, 0, &qp);
}

static int made(struct sim_world *w, unsigned n, bool dc, double *mib)
{
	struct krcore_mem m = {0};
	struct sim_node *node;
	struct sim_proc *proc;
	struct ibv_pd *pd = NULL;
	struct dev *dev = NULL;
	char err[160];
	int rc = sim_node_new(w, "n", 1, &node);

	if (!rc)
		rc = sim_proc_new(node, "p", &proc);
	if (!rc)
		rc = dev_open(sim_proc_env(proc), "sim", -1, err, sizeof(err),
			      &dev);
	if (!rc)
		rc = dev->ops->alloc_pd(dev, &pd);
	for (unsigned i = 0; i < n && !rc; i++)
		rc = make(dev, pd, dc);
	if (rc)
		return rc;
	krcore_mem_of_dev(dev, &m);
	*mib = (double)krcore_mem_sum(&m) / MIB;
	return 0;
}

/* n QPs, made on a device: their memory. */
static int queues(struct figure *f, unsigned n, bool dc, double *mib)
{
	struct sim_conf wc = {.seed = f->sc->seed};
	struct sim_world *w;
	int rc = sim_world_new(&wc, &w);

	if (rc)
		return rc;
	sim_net_set_model(w, &f->nic);
	rc = made(w, n, dc, mib);
	report_add(f->rep, sim_hash(w), sim_now(w), sim_events(w));
	sim_world_free(w);
	return rc;
}

static int papers(struct figure *f)
{
	static const unsigned dcs[] = {48, 40, 192};
	double cache = FEW * sizeof(struct dct_meta) / MIB, mib = 0;
	char name[64];
	int rc = queues(f, FEW, false, &mib);

	if (rc)
		return rc;
	krcore_point(f, KRCORE_PREDICTED, "15a: LITE, 5000 nodes, MiB", 780,
		     mib);
	for (unsigned i = 0; i < 3; i++) {
		rc = queues(f, dcs[i], true, &mib);
		if (rc)
			return rc;
		snprintf(name, sizeof(name),
			 "15a: KRCore, 5000 nodes, %u DC QPs, MiB", dcs[i]);
		krcore_point(f, i ? KRCORE_OURS : KRCORE_PREDICTED, name,
			     i ? 0 : 6.3, mib + cache);
	}
	return 0;
}

/* --- 15a: ours ----------------------------------------------------------- */

static int pool_of_peers(struct figure *f, unsigned peers, struct krcore_mem *m)
{
	struct krcore_bed_conf conf = krcore_clients(f, 1, 1, 0);
	struct krcore_bed_result r;
	char name[64];
	int rc;

	conf.op = KRCORE_READ;
	conf.len = 8;
	conf.peers = peers;
	rc = krcore_run(f, &conf, &r);
	if (rc)
		return rc;
	*m = r.mem;
	if (r.mem.n_peers < peers || !r.ops)
		report_fail(f->rep, "%u peers, %lu READs", r.mem.n_peers,
			    (unsigned long)r.ops);
	snprintf(name, sizeof(name), "15a: ours, %u nodes, MiB", peers);
	krcore_point(f, KRCORE_OURS, name, 0, (double)krcore_mem_sum(m) / MIB);
	return 0;
}

static int ours(struct figure *f)
{
	struct krcore_mem few, many;
	int rc = pool_of_peers(f, FEW, &few);

	if (!rc)
		rc = pool_of_peers(f, MANY, &many);
	if (rc)
		return rc;
	report_row(f->rep, "qps", few.qps);
	report_row(f->rep, "queues_kib", (double)few.queues / 1024);
	report_row(f->rep, "registered_kib", (double)few.registered / 1024);
	report_row(f->rep, "engine_kib", (double)few.engine / 1024);
	report_row(f->rep, "bytes_per_peer",
		   (double)(krcore_mem_sum(&many) - krcore_mem_sum(&few)) /
			   (many.n_peers - few.n_peers));
	return 0;
}

/* --- 15b ----------------------------------------------------------------- */

static int reads(struct figure *f, unsigned threads, bool dc, unsigned window,
		 double *mops)
{
	struct bed_conf conf = {.seed = f->sc->seed,
				.nic = &f->nic,
				.issuer_nodes = 1,
				.issuers = threads,
				.targets = KRCORE_NODES - 1,
				.qps = CONNECTIONS / threads,
				.cores = KRCORE_CORES,
				.opcode = IBV_WR_RDMA_READ,
				.len = 64,
				.dc = dc,
				.dcis = dc ? CONNECTIONS / threads : 0,
				.depth = window,
				.window = window,
				.batch = 1,
				.entry_ns = KRCORE_ENTRY_NS,
				.warm_ns = RUN_NS,
				.run_ns = RUN_NS};
	struct bed_result r = {0};
	int rc;

	/* Any node, by whichever DC QP. */
	if (dc)
		conf.qps = 2 * conf.targets;
	rc = bed_run(&conf, &r);
	if (!rc)
		report_add(f->rep, r.hash, r.virtual_ns, r.events);
	*mops = r.mops;
	return rc;
}

static int rates(struct figure *f)
{
	double lite = 0, krcore = 0, async = 0, lite_async = 0;
	int rc = reads(f, THREADS, false, 1, &lite);

	if (!rc)
		rc = reads(f, THREADS, true, 1, &krcore);
	if (!rc)
		rc = reads(f, LITE_THREADS, false, 16, &lite_async);
	if (!rc)
		rc = reads(f, THREADS, true, 16, &async);
	if (rc)
		return rc;
	krcore_point(f, KRCORE_PREDICTED, "15b: sync, KRCore over LITE", .8,
		     krcore / lite);
	krcore_point(f, KRCORE_PREDICTED, "15b: async, LITE, 6 threads, M/s",
		     5.2, lite_async);
	krcore_point(f, KRCORE_PREDICTED, "15b: async, KRCore, M/s", 15.6,
		     async);
	return 0;
}

static int krcore_memory(const struct scenario_conf *sc, struct report *rep)
{
	struct figure f;
	int rc = krcore_begin(&f, sc, rep);

	if (!rc)
		rc = papers(&f);
	if (!rc)
		rc = ours(&f);
	if (!rc)
		rc = rates(&f);
	krcore_end(&f);
	return rc;
}

const struct scenario scenario_krcore_memory = {
	.name = "krcore-memory",
	.what = "memory of connections, by nodes (KRCore fig. 15)",
	.nic = "connectx4",
	.run = krcore_memory,
};
