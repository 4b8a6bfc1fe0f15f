/* SPDX-License-Identifier: MIT */
/*
 * death.c - what a death costs the others. One of ten nodes dies under 240 vqps
 * of one pool, each with a READ at a time: each of the ten in a run of its own,
 * because nodes share the 8 DCIs with different others. And one of two
 * meta servers dies while nodes are looked up.
 *
 * The paper has no such figures. Nothing is fitted.
 */
#include "sim/krcore/krcore.h"

#include "sim/krcore/krcore_bed.h"

#include <skein/vqp.h>

#define TARGETS 10u
#define REST_NS 100000u
#define RUN_NS 60000000u
#define LOOKUPS_NS 40000000u

struct death_sum {
	uint64_t errors, elsewhere, others, stalled, longest_ns, rest_ns;
};

static int nodes_die(struct figure *f, bool by_rc, struct death_sum *sum)
{
	struct krcore_bed_conf conf = krcore_clients(f, 1, KRCORE_CLIENTS, 1);
	struct krcore_bed_result r;
	int rc = 0;

	*sum = (struct death_sum){0};
	conf.op = KRCORE_READ;
	conf.len = 8;
	conf.targets = TARGETS;
	conf.rcs = by_rc ? 0 : SKEIN_POOL_NO_RCS;
	conf.rest_ns = REST_NS;
	conf.warm_ns = by_rc ? 4 * RUN_NS : RUN_NS / 20;
	conf.run_ns = RUN_NS;
	conf.death = KRCORE_TARGET_DIES;
	for (unsigned i = 0; i < (by_rc ? 1 : TARGETS) && !rc; i++) {
		conf.victim = i;
		rc = krcore_run(f, &conf, &r);
		sum->errors += r.errors;
		sum->elsewhere += r.errors_elsewhere;
		sum->others += r.others;
		sum->stalled += r.stalled;
		if (sum->longest_ns < r.longest_ns)
			sum->longest_ns = r.longest_ns;
		if (sum->rest_ns < r.rest_longest_ns)
			sum->rest_ns = r.rest_longest_ns;
	}
	return rc;
}

static int meta_dies(struct figure *f, enum krcore_death death, double *p99_us)
{
	struct krcore_bed_conf conf = krcore_clients(f, 1, 8, 1);
	struct krcore_bed_result r;
	int rc;

	conf.op = KRCORE_CONNECT;
	conf.targets = 8;
	conf.metas = 2;
	conf.rest_ns = REST_NS;
	conf.run_ns = LOOKUPS_NS;
	conf.death = death;
	rc = krcore_run(f, &conf, &r);
	*p99_us = (double)hist_percentile(&r.hist, 99) / 1e3;
	return rc;
}

static int krcore_death(const struct scenario_conf *sc, struct report *rep)
{
	struct death_sum dc, by_rc;
	double sound_us, p99_us;
	struct figure f;
	int rc = krcore_begin(&f, sc, rep);

	if (!rc)
		rc = nodes_die(&f, false, &dc);
	if (!rc)
		rc = nodes_die(&f, true, &by_rc);
	if (!rc)
		rc = meta_dies(&f, KRCORE_NO_DEATH, &sound_us);
	if (!rc)
		rc = meta_dies(&f, KRCORE_META_DIES, &p99_us);
	if (rc)
		return rc;
	report_row(rep, "errors", (double)dc.errors);
	report_row(rep, "errors_elsewhere",
		   (double)(dc.elsewhere + by_rc.elsewhere));
	report_row(rep, "stalled_share",
		   (double)dc.stalled / (double)dc.others);
	report_row(rep, "stall_ms_max", (double)dc.longest_ns / 1e6);
	report_row(rep, "others_ms_max", (double)dc.rest_ns / 1e6);
	report_row(rep, "stalled_share_by_rc",
		   (double)by_rc.stalled / (double)by_rc.others);
	report_row(rep, "lookup_us_p99_sound", sound_us);
	report_row(rep, "lookup_us_p99", p99_us);
	return 0;
}

const struct scenario scenario_krcore_death = {
	.name = "krcore-death",
	.what = "what the death of a node or of a meta server costs the others",
	.nic = "connectx4",
	.run = krcore_death,
};
