/* SPDX-License-Identifier: MIT */
/*
 * race.c - KRCore's figure 16: a RACE table under a load spike. 180 processes
 * start and connect; then all GET.
 *
 * Of its machines the paper says that eight are more than RACE's five. Assumed:
 * eight nodes of clients, a process for each of their 192 cores, so that the 180
 * join 12. One node has the table: then the cable is full, and with two, which
 * the testbed would have too, the model has twice the paper's rate. A process has
 * eight GETs under way (RACE's coroutines; assumed). KRCore and verbs post a
 * GET's two buckets as one list; LITE's calls take one READ, and wait for it.
 *
 * Where the model is far off:
 * - Starts. The storage node's NIC makes 712 QPs a second. 1.0 s of LITE's are 712
 *   QPs, four for each of 180 processes, and verbs' 1.4 s five and a half; the
 *   paper does not say how many a process has. With one it takes 0.25 s.
 * - DC. The cable is as full as with RC. 18 M GETs are 54 M READs, half of what
 *   the paper's figure 10b has for DC: a READ would cost the NIC 170 ns more than
 *   over RC (--set dc_rx=170), where 10b has 20.
 * - LITE. Its calls would take 2 us, not KRCore's 1.
 *
 * apps/race READs the marks of a GET's buckets once more, which the paper on RACE
 * does not: seven READs in place of three, and the NIC's units are the limit.
 */
#include "sim/control_path.h"
#include "sim/krcore/krcore.h"
#include "sim/krcore/race_bed.h"

#define NODES 8u
#define STARTS 180u
#define GETS 8u
#define WARM_NS 200000u
#define RUN_NS 200000u

/* Of the tail: 3 s, in steps of a millisecond; the load as a share of what all
 * 192 processes carry (assumed: the paper does not say). */
#define STEPS 3000u
#define LOAD .7

/* --- the start ------------------------------------------------------------ */

/* open: the devices are open before. */
static const struct start {
	const char *name;
	enum krcore_kind kind;
	unsigned qps;
	bool open;
	double paper;
} start_points[] = {
	{"16: start, KRCore, ms", KRCORE_FITTED, 0, true, 244},
	{"16: start, LITE, ms", KRCORE_PREDICTED, 1, true, 1000},
	{"16: start, verbs, ms", KRCORE_PREDICTED, 1, false, 1400},
	{"start, LITE, 4 QPs each, ms", KRCORE_OURS, 4, true, 0},
	{"start, verbs, 4 QPs each, ms", KRCORE_OURS, 4, false, 0},
};

static int start(struct figure *f, const struct start *s)
{
	struct control_start conf = {.procs = STARTS,
				     .nodes = NODES,
				     .servers = 1,
				     .qps = s->qps,
				     .open = s->open,
				     .spawn_ns = KRCORE_SPAWN_NS};
	struct control_times t = {0};
	int rc = control_start(&f->nic, f->sc->seed, &conf, &t);

	if (rc)
		return rc;
	report_add(f->rep, t.hash, t.virtual_ns, t.events);
	krcore_point(f, s->kind, s->name, s->paper, t.start_ms);
	return 0;
}

static int starts(struct figure *f)
{
	int rc = 0;

	for (unsigned i = 0;
	     i < sizeof(start_points) / sizeof(*start_points) && !rc; i++)
		rc = start(f, &start_points[i]);
	return rc;
}

/* --- GETs ----------------------------------------------------------------- */

static struct race_bed_conf clients(const struct figure *f, unsigned storages)
{
	return (struct race_bed_conf){.seed = f->sc->seed,
				      .nic = &f->nic,
				      .nodes = NODES,
				      .clients = KRCORE_CORES,
				      .storages = storages,
				      .gets = GETS,
				      .warm_ns = WARM_NS,
				      .run_ns = RUN_NS};
}

static int run(struct figure *f, const struct race_bed_conf *conf,
	       struct race_bed_result *r)
{
	int rc = race_bed_run(conf, r);

	if (!rc)
		report_add(f->rep, r->hash, r->virtual_ns, r->events);
	return rc;
}

static int mops(struct figure *f, const struct race_bed_conf *conf, double *m)
{
	struct race_bed_result r;
	int rc = run(f, conf, &r);

	*m = r.mops;
	return rc;
}

/* With QPs of the kernel: RC and DC. */
static int krcore(struct figure *f, unsigned storages, double *of_rc,
		  double *of_dc)
{
	struct race_bed_conf conf = clients(f, storages);
	int rc;

	conf.entry_ns = KRCORE_ENTRY_NS;
	rc = mops(f, &conf, of_rc);
	conf.dc = true;
	return rc ? rc : mops(f, &conf, of_dc);
}

static int lite(struct figure *f, uint32_t entry_ns, double *m)
{
	struct race_bed_conf conf = clients(f, 1);

	conf.entry_ns = entry_ns;
	conf.one_by_one = true;
	conf.gets = 1;
	return mops(f, &conf, m);
}

static int gets(struct figure *f)
{
	struct race_bed_conf conf = clients(f, 1);
	double m = 0, of_rc = 0, of_dc = 0;
	int rc = mops(f, &conf, &m);

	if (!rc)
		rc = krcore(f, 1, &of_rc, &of_dc);
	if (rc)
		return rc;
	krcore_point(f, KRCORE_PREDICTED, "16: verbs, M/s", 26, m);
	krcore_point(f, KRCORE_PREDICTED, "16: KRCore (RC), M/s", 26, of_rc);
	krcore_point(f, KRCORE_PREDICTED, "16: KRCore (DC), M/s", 18, of_dc);
	rc = lite(f, KRCORE_ENTRY_NS, &m);
	if (rc)
		return rc;
	krcore_point(f, KRCORE_PREDICTED, "16: LITE, M/s", 15, m);
	krcore_point(f, KRCORE_PREDICTED, "16: KRCore (RC) over LITE", 1.73,
		     of_rc / m);
	rc = lite(f, 2 * KRCORE_ENTRY_NS, &m);
	if (!rc)
		rc = krcore(f, 2, &of_rc, &of_dc);
	if (rc)
		return rc;
	krcore_point(f, KRCORE_OURS, "LITE, calls of 2 us, M/s", 0, m);
	krcore_point(f, KRCORE_OURS, "2 tables, KRCore (RC), M/s", 0, of_rc);
	krcore_point(f, KRCORE_OURS, "2 tables, KRCore (DC), M/s", 0, of_dc);
	return 0;
}

/* apps/race READs the marks of both buckets once more: four READs of 8 bytes. */
static int ours(struct figure *f)
{
	struct race_bed_conf conf = clients(f, 1);
	struct race_bed_result r;
	int rc;

	conf.marks = true;
	rc = run(f, &conf, &r);
	if (rc)
		return rc;
	report_row(f->rep, "reads_of_a_get", r.reads);
	krcore_point(f, KRCORE_OURS, "apps/race, M/s", 0, r.mops);
	conf.nodes = conf.clients = conf.gets = 1;
	rc = run(f, &conf, &r);
	if (!rc)
		krcore_point(f, KRCORE_OURS, "apps/race, 1 client, us", 0,
			     (double)hist_mean(&r.hist) / 1e3);
	return rc;
}

/* --- the tail ------------------------------------------------------------- */

/* How many steps the requests of 3 s wait, p99, by the mean of each step's. They
 * come at a steady rate and are served in turn; 180 of 192 processes begin to
 * serve one after another until start_ms. */
static double wait_p99(double start_ms)
{
	double old = 1.0 - (double)STARTS / (NODES * KRCORE_CORES);
	double served = 0, up;
	struct hist h;
	unsigned t = 0;

	hist_init(&h);
	for (unsigned i = 1; i <= STEPS; i++) {
		while (served < LOAD * i) {
			up = ++t < start_ms ? t / start_ms : 1;
			served += old + (1 - old) * up;
			/* What has not come yet cannot be served. */
			if (t <= i && served > LOAD * t)
				served = LOAD * t;
		}
		hist_record(&h, t > i ? t - i : 0);
	}
	return (double)hist_percentile(&h, 99);
}

static void tail(struct figure *f)
{
	krcore_point(f, KRCORE_PREDICTED,
		     "16: p99, verbs over KRCore, by the paper's starts", 4.9,
		     wait_p99(1400) / wait_p99(244));
}

static int krcore_race(const struct scenario_conf *sc, struct report *rep)
{
	struct figure f;
	int rc = krcore_begin(&f, sc, rep);

	if (!rc)
		rc = starts(&f);
	if (!rc)
		rc = gets(&f);
	if (!rc)
		rc = ours(&f);
	if (!rc)
		tail(&f);
	krcore_end(&f);
	return rc;
}

const struct scenario scenario_krcore_race = {
	.name = "krcore-race",
	.what = "a RACE table under a load spike (KRCore fig. 16)",
	.nic = "connectx4",
	.run = krcore_race,
};
