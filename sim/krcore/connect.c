/* SPDX-License-Identifier: MIT */
/*
 * connect.c - KRCore's figure 8: connections to one server by 1 to 240
 * clients, and a full mesh; and figure 9a: the same look-up by an RPC.
 *
 * Erratum: 240 workers that all connect to each other are 57,360 connections, and
 * 81 us would be 708 M a second. At 22 M a second 81 us are 1,782; at 712 a
 * second 2.7 s and 2.3 s are 1,922 and 1,638. We take 1,920: eight of each
 * worker.
 */
#include "sim/krcore/krcore.h"

#include "sim/bed.h"
#include "sim/control_path.h"
#include "sim/krcore/krcore_bed.h"

#include <stdio.h>

#define MESH 1920u
#define RUN_NS 100000u
#define WARM_NS 50000u

struct krcore_bed_conf krcore_clients(const struct figure *f, unsigned nodes,
				      unsigned clients, unsigned pollers)
{
	return (struct krcore_bed_conf){
		.seed = f->sc->seed,
		.nic = &f->nic,
		.nodes = nodes,
		.pools = pollers ? pollers : clients / nodes,
		.clients = pollers ? clients / nodes / pollers : 1,
		.targets = 1,
		.batch = 1,
		.depth = 1,
		.entry_ns = pollers ? 0 : KRCORE_ENTRY_NS,
		.line_ns = pollers ? KRCORE_LINE_NS : 0,
		.serve_ns = pollers ? KRCORE_SERVE_NS : 0,
		.warm_ns = WARM_NS,
		.run_ns = RUN_NS,
	};
}

static double mean_us(const struct krcore_bed_result *r)
{
	return (double)hist_mean(&r->hist) / 1e3;
}

/* --- the paper's design: two READs, one after the other ------------------ */

/* Each thread READs, enters the kernel for every second READ, and READs again:
 * its rate is twice that of connections, and its connections take twice the
 * mean of a READ with half an entry. */
static int two_reads(struct figure *f, unsigned clients, uint32_t len,
		     double *us, double *mops)
{
	struct bed_conf conf = {
		.seed = f->sc->seed,
		.nic = &f->nic,
		.issuer_nodes = clients < KRCORE_NODES ? 1 : KRCORE_NODES,
		.targets = 1,
		.qps = 1,
		.cores = KRCORE_CORES,
		.opcode = IBV_WR_RDMA_READ,
		.len = len,
		.depth = 1,
		.batch = 1,
		.entry_ns = KRCORE_ENTRY_NS / 2,
		.warm_ns = WARM_NS,
		.run_ns = RUN_NS,
	};
	struct bed_result r = {0};
	int rc;

	conf.issuers = clients / conf.issuer_nodes;
	rc = bed_run(&conf, &r);
	if (rc)
		return rc;
	report_add(f->rep, r.hash, r.virtual_ns, r.events);
	*us = 2 * r.lat_ns / 1e3;
	*mops = r.mops / 2;
	return 0;
}

static int papers(struct figure *f, double *us, double *mops)
{
	static const uint32_t lens[] = {64, 256};
	double one, all, u;
	char name[64];
	int rc = two_reads(f, 1, KRCORE_BUCKET_LEN, us, &one);

	if (!rc)
		rc = two_reads(f, KRCORE_CLIENTS, KRCORE_BUCKET_LEN, &u, mops);
	if (rc)
		return rc;
	report_row(f->rep, "meta_read_bytes", KRCORE_BUCKET_LEN);
	krcore_point(f, KRCORE_PREDICTED, "8a: 1 client, two READs, us", 5.4,
		     *us);
	krcore_point(f, KRCORE_PREDICTED, "8a: 240 clients, two READs, M/s", 22,
		     *mops);
	for (unsigned i = 0; i < 2; i++) {
		rc = two_reads(f, KRCORE_CLIENTS, lens[i], &u, &all);
		if (rc)
			return rc;
		snprintf(name, sizeof(name), "8a: the same, of %u bytes, M/s",
			 lens[i]);
		krcore_point(f, KRCORE_OURS, name, 0, all);
	}
	return rc;
}

/* --- our design ----------------------------------------------------------- */

static int ours(struct figure *f, unsigned pollers, const char *entry,
		unsigned clients, double *us, double *mops)
{
	unsigned nodes = clients < KRCORE_NODES ? 1 : KRCORE_NODES;
	struct krcore_bed_conf conf =
		krcore_clients(f, nodes, clients, pollers);
	struct krcore_bed_result r;
	char name[64];
	int rc = krcore_run(f, &conf, &r);

	if (rc)
		return rc;
	*us = mean_us(&r);
	*mops = r.mops;
	snprintf(name, sizeof(name), "%s, %u client%s, one post, us", entry,
		 clients, clients == 1 ? "" : "s");
	krcore_point(f, KRCORE_OURS, name, 0, *us);
	if (r.lookups < r.ops * 99 / 100)
		report_fail(f->rep, "%lu connections, and %lu look-ups",
			    (unsigned long)r.ops, (unsigned long)r.lookups);
	if (clients == 1)
		return 0;
	snprintf(name, sizeof(name), "%s, %u client%s, one post, M/s", entry,
		 clients, "s");
	krcore_point(f, KRCORE_OURS, name, 0, *mops);
	return 0;
}

static int cached(struct figure *f, unsigned pollers, double *us)
{
	struct krcore_bed_conf conf = krcore_clients(f, 1, 1, pollers);
	struct krcore_bed_result r;
	int rc;

	conf.op = KRCORE_CONNECT_CACHED;
	rc = krcore_run(f, &conf, &r);
	*us = mean_us(&r);
	return rc;
}

static int all_ours(struct figure *f)
{
	double us = 0, mops = 0;
	int rc = ours(f, 0, "system call", 1, &us, &mops);

	if (!rc)
		rc = ours(f, 0, "system call", KRCORE_CLIENTS, &us, &mops);
	if (!rc)
		rc = ours(f, 1, "ring", 1, &us, &mops);
	report_row(f->rep, "ring_us", us);
	if (!rc)
		rc = ours(f, 1, "ring, 1 poller", KRCORE_CLIENTS, &us, &mops);
	report_row(f->rep, "ring_1_poller_mops", mops);
	if (!rc)
		rc = ours(f, 4, "ring, 4 pollers", KRCORE_CLIENTS, &us, &mops);
	report_row(f->rep, "ring_4_pollers_mops", mops);
	if (!rc)
		rc = cached(f, 0, &us);
	if (!rc)
		krcore_point(f, KRCORE_PREDICTED, "8a: cached, system call, us",
			     0.9, us);
	if (!rc)
		rc = cached(f, 1, &us);
	if (!rc)
		krcore_point(f, KRCORE_OURS, "8a: cached, ring, us", 0, us);
	return rc;
}

/* --- the others ----------------------------------------------------------- */

static int verbs(struct figure *f)
{
	struct control_times t = {0};
	int rc = control_path(&f->nic, f->sc->seed, &t);

	if (rc)
		return rc;
	report_add(f->rep, t.hash, t.virtual_ns, t.events);
	krcore_point(f, KRCORE_FITTED, "8a: verbs, 1 client, ms", 15.7,
		     t.first_us / 1e3);
	krcore_point(f, KRCORE_PREDICTED, "8a: LITE, 1 client, ms", 2,
		     t.connect_us / 1e3);
	krcore_point(f, KRCORE_FITTED, "8a: verbs, LITE, 240 clients, a second",
		     712, t.qps_per_s);
	krcore_point(f, KRCORE_PREDICTED, "8b: verbs, 1920 connections, s", 2.7,
		     MESH / t.qps_per_s + (t.first_us - t.connect_us) / 1e6);
	krcore_point(f, KRCORE_PREDICTED, "8b: LITE, 1920 connections, s", 2.3,
		     MESH / t.qps_per_s);
	return 0;
}

static int krcore_connect(const struct scenario_conf *sc, struct report *rep)
{
	double us = 0, mops = 0;
	struct figure f;
	int rc = krcore_begin(&f, sc, rep);

	if (!rc)
		rc = papers(&f, &us, &mops);
	if (!rc)
		krcore_point(&f, KRCORE_PREDICTED, "8b: 1920 connections, us",
			     81, MESH / mops);
	if (!rc)
		rc = verbs(&f);
	if (!rc)
		rc = all_ours(&f);
	krcore_end(&f);
	return rc;
}

const struct scenario scenario_krcore_connect = {
	.name = "krcore-connect",
	.what = "connections by virtual queue pairs (KRCore fig. 8)",
	.nic = "connectx4",
	.run = krcore_connect,
};
