/* SPDX-License-Identifier: MIT */
/*
 * data.c - KRCore's figures 10, 12a and 13: READs and WRITEs, one at a time and
 * by 240 clients in batches; and figure 14: one client's 64 READs at once to ten
 * nodes, by how many DC QPs the pool has, and the tail of READs to five servers.
 *
 * KRCore's own QPs are RC or DC QPs with an entry for each post. Our design is
 * the production pool, called by its own process or through a service's ring.
 *
 * Erratum: 8 DC QPs for each core are 192 of a node of 24 cores; figure 15a
 * counts 48. Figure 14 varies those of one core.
 */
#include "sim/krcore/krcore.h"

#include "sim/bed.h"
#include "sim/krcore/krcore_bed.h"

#include <stdio.h>

#define WARM_NS 100000u
#define RUN_NS 100000u
#define POLLERS 4u

static struct bed_conf lone(const struct figure *f, enum ibv_wr_opcode opcode,
			    uint32_t len)
{
	return (struct bed_conf){.seed = f->sc->seed,
				 .nic = &f->nic,
				 .issuer_nodes = 1,
				 .issuers = 1,
				 .targets = 1,
				 .qps = 1,
				 .cores = KRCORE_CORES,
				 .opcode = opcode,
				 .len = len,
				 .inlined = opcode == IBV_WR_RDMA_WRITE &&
					    len <= 64,
				 .depth = 1,
				 .batch = 1,
				 .warm_ns = WARM_NS,
				 .run_ns = 4 * RUN_NS};
}

static int run(struct figure *f, const struct bed_conf *conf,
	       struct bed_result *r)
{
	int rc;

	*r = (struct bed_result){0};
	rc = bed_run(conf, r);
	if (!rc)
		report_add(f->rep, r->hash, r->virtual_ns, r->events);
	return rc;
}

/* --- one at a time ------------------------------------------------------- */

static int sync_us(struct figure *f, enum ibv_wr_opcode opcode, uint32_t len,
		   uint32_t entry_ns, bool dc, double *us)
{
	struct bed_conf conf = lone(f, opcode, len);
	struct bed_result r;
	int rc;

	conf.entry_ns = entry_ns;
	conf.dc = dc;
	conf.inlined &= !dc;
	rc = run(f, &conf, &r);
	*us = r.lat_ns / 1e3;
	return rc;
}

static int slowdown(struct figure *f, enum ibv_wr_opcode opcode, uint32_t len,
		    const char *row)
{
	double verbs = 0, krcore = 0;
	int rc = sync_us(f, opcode, len, 0, false, &verbs);

	if (!rc)
		rc = sync_us(f, opcode, len, KRCORE_ENTRY_NS, true, &krcore);
	if (!rc)
		report_row(f->rep, row, (krcore / verbs - 1) * 100);
	return rc;
}

static int latencies(struct figure *f)
{
	double us = 0, record = 0;
	int rc = sync_us(f, IBV_WR_RDMA_READ, 8, 0, false, &us);

	if (rc)
		return rc;
	krcore_point(f, KRCORE_FITTED, "10a: verbs, us", 2.15, us);
	rc = sync_us(f, IBV_WR_RDMA_READ, 8, KRCORE_ENTRY_NS, false, &us);
	krcore_point(f, KRCORE_FITTED, "10a: KRCore (RC), us", 3.15, us);
	if (!rc)
		rc = sync_us(f, IBV_WR_RDMA_READ, 8, KRCORE_ENTRY_NS, true,
			     &us);
	krcore_point(f, KRCORE_PREDICTED, "10a: KRCore (DC), us", 3.24, us);
	if (!rc)
		rc = sync_us(f, IBV_WR_RDMA_READ, KRCORE_BUCKET_LEN, 0, false,
			     &record);
	krcore_point(f, KRCORE_PREDICTED, "12a: a region's two READs, us", 4.5,
		     2 * record);
	if (!rc)
		rc = slowdown(f, IBV_WR_RDMA_READ, 256 << 10,
			      "read_256k_slower_percent");
	return rc ? rc
		  : slowdown(f, IBV_WR_RDMA_WRITE, 64 << 10,
			     "write_64k_slower_percent");
}

/* --- 240 clients --------------------------------------------------------- */

static int async_mops(struct figure *f, enum ibv_wr_opcode opcode, bool dc,
		      enum krcore_kind kind, double paper, const char *name)
{
	struct bed_conf conf = lone(f, opcode, 8);
	struct bed_result r;
	int rc;

	conf.issuer_nodes = 9;
	conf.issuers = conf.cores = 27;
	conf.depth = 16;
	conf.batch = 8;
	conf.inlined = false;
	conf.dc = dc;
	conf.entry_ns = KRCORE_ENTRY_NS;
	conf.run_ns = RUN_NS;
	rc = run(f, &conf, &r);
	if (!rc)
		krcore_point(f, kind, name, paper, r.mops);
	return rc;
}

static int rates(struct figure *f)
{
	int rc = async_mops(f, IBV_WR_RDMA_READ, false, KRCORE_PREDICTED, 138,
			    "10b: KRCore (RC), READs, M/s");

	if (!rc)
		rc = async_mops(f, IBV_WR_RDMA_READ, true, KRCORE_FITTED, 118,
				"10b: KRCore (DC), READs, M/s");
	if (!rc)
		rc = async_mops(f, IBV_WR_RDMA_WRITE, false, KRCORE_PREDICTED,
				145, "10d: KRCore (RC), WRITEs, M/s");
	return rc ? rc
		  : async_mops(f, IBV_WR_RDMA_WRITE, true, KRCORE_PREDICTED,
			       132, "10d: KRCore (DC), WRITEs, M/s");
}

/* --- our design ---------------------------------------------------------- */

static int ours(struct figure *f, unsigned pollers, bool direct,
		unsigned clients, unsigned depth, struct krcore_bed_result *r)
{
	unsigned nodes = clients < KRCORE_NODES ? 1 : KRCORE_NODES;
	struct krcore_bed_conf conf =
		krcore_clients(f, nodes, clients, pollers);
	int rc;

	conf.op = KRCORE_READ;
	conf.len = 8;
	conf.depth = depth;
	conf.batch = depth > 1 ? depth / 2 : 1;
	if (direct)
		conf.entry_ns = 0;
	rc = krcore_bed_run(&conf, r);
	if (!rc)
		report_add(f->rep, r->hash, r->virtual_ns, r->events);
	return rc;
}

static int reads_ours(struct figure *f)
{
	struct krcore_bed_result direct, ring;
	int rc = ours(f, 0, true, 1, 1, &direct);

	if (!rc)
		rc = ours(f, 1, false, 1, 1, &ring);
	if (rc)
		return rc;
	krcore_point(f, KRCORE_OURS, "pool of its own, READ, us", 0,
		     (double)hist_mean(&direct.hist) / 1e3);
	krcore_point(f, KRCORE_OURS, "ring, READ, us", 0,
		     (double)hist_mean(&ring.hist) / 1e3);
	rc = ours(f, 0, true, KRCORE_CLIENTS, 16, &direct);
	if (!rc)
		rc = ours(f, POLLERS, false, KRCORE_CLIENTS, 16, &ring);
	if (rc)
		return rc;
	krcore_point(f, KRCORE_OURS, "pools of their own, READs, M/s", 0,
		     direct.mops);
	krcore_point(f, KRCORE_OURS, "ring, READs, M/s", 0, ring.mops);
	report_row(f->rep, "pollers", POLLERS);
	report_row(f->rep, "ring_over_direct", ring.mops / direct.mops);
	return 0;
}

static int krcore_data(const struct scenario_conf *sc, struct report *rep)
{
	struct figure f;
	int rc = krcore_begin(&f, sc, rep);

	if (!rc)
		rc = latencies(&f);
	if (!rc)
		rc = rates(&f);
	if (!rc)
		rc = reads_ours(&f);
	krcore_end(&f);
	return rc;
}

const struct scenario scenario_krcore_data = {
	.name = "krcore-data",
	.what = "READs and WRITEs by virtual queue pairs (KRCore fig. 10, 12a, "
		"13)",
	.nic = "connectx4",
	.run = krcore_data,
};

/* --- figure 14 ----------------------------------------------------------- */

static int burst(struct figure *f, unsigned dcis, double *us)
{
	struct bed_conf conf = lone(f, IBV_WR_RDMA_READ, 8);
	struct bed_result r;
	int rc;

	conf.targets = conf.qps = 10;
	conf.dc = dcis > 0;
	conf.dcis = dcis;
	conf.depth = conf.window = 64;
	conf.run_ns = 4000000;
	/* 64 vqps on RC QPs are 64 calls; on DC QPs the list is one. */
	conf.entry_ns = dcis ? KRCORE_ENTRY_NS / 64 : KRCORE_ENTRY_NS;
	rc = run(f, &conf, &r);
	*us = r.burst_ns / 1e3;
	return rc;
}

static int pools(struct figure *f)
{
	static const unsigned sizes[] = {1, 2, 4, 8, 16};
	double us[5] = {0}, rc_us = 0;
	char name[48];
	int rc = burst(f, 0, &rc_us);

	if (rc)
		return rc;
	krcore_point(f, KRCORE_PREDICTED, "14a: RC, us", 75, rc_us);
	for (unsigned i = 0; i < 5 && !rc; i++) {
		rc = burst(f, sizes[i], &us[i]);
		snprintf(name, sizeof(name), "14a: %u DC QPs, us", sizes[i]);
		krcore_point(f, i ? KRCORE_OURS : KRCORE_FITTED, name,
			     i ? 0 : 99, us[i]);
	}
	if (rc)
		return rc;
	/* "larger than 2": by 28 to 78 %. */
	krcore_point(f, KRCORE_PREDICTED, "14a: RC over 4 DC QPs", 1.28,
		     rc_us / us[2]);
	krcore_point(f, KRCORE_PREDICTED, "14a: RC over 16 DC QPs", 1.78,
		     rc_us / us[4]);
	return 0;
}

static int tail(struct figure *f, uint32_t entry_ns, bool dc, double paper,
		const char *name)
{
	struct bed_conf conf = lone(f, IBV_WR_RDMA_READ, 8);
	struct bed_result r;
	struct hist h;
	int rc;

	hist_init(&h);
	conf.issuer_nodes = 5;
	conf.issuers = 10;
	conf.targets = conf.qps = 5;
	conf.window = 1;
	conf.dc = dc;
	conf.dcis = dc;
	conf.entry_ns = entry_ns;
	conf.run_ns = 1000000;
	conf.hist = &h;
	rc = run(f, &conf, &r);
	if (!rc)
		krcore_point(f, KRCORE_PREDICTED, name, paper,
			     (double)hist_percentile(&h, 99.9) / 1e3);
	return rc;
}

static int krcore_pool(const struct scenario_conf *sc, struct report *rep)
{
	struct figure f;
	int rc = krcore_begin(&f, sc, rep);

	if (!rc)
		rc = pools(&f);
	if (!rc)
		rc = tail(&f, 0, false, 2.8, "14b: verbs, p99.9, us");
	if (!rc)
		rc = tail(&f, KRCORE_ENTRY_NS, false, 3.8,
			  "14b: KRCore (RC), p99.9, us");
	if (!rc)
		rc = tail(&f, KRCORE_ENTRY_NS, true, 6,
			  "14b: KRCore (DC), p99.9, us");
	krcore_end(&f);
	return rc;
}

const struct scenario scenario_krcore_pool = {
	.name = "krcore-pool",
	.what = "how many DC queue pairs a pool needs (KRCore fig. 14)",
	.nic = "connectx4",
	.run = krcore_pool,
};
