/* SPDX-License-Identifier: MIT */
/*
 * basic.c - RDMC's figures from the schedules of src/mcast: time against the
 * number of copies (8), the algorithms side by side (4), the block's size (6),
 * overlapping groups (10), racks, one slow link (section 4.5).
 *
 * The paper gives objects, blocks and group sizes; where it gives none, this
 * file and docs/measurements/mcast.md say ours. Nothing is fitted: the NICs are
 * those of sim/models. A run fails when it misses a bar of this file with the
 * NIC for which the bar was set.
 */
#include "sim/mcast/mcast_bed.h"
#include "sim/mcast/mcast_engine.h"
#include "sim/scenario.h"

#include <errno.h>
#include <stdio.h>

#define KIB 1024ull
#define MIB (1024 * KIB)

static uint32_t at_most(uint32_t n, uint32_t limit)
{
	return limit && n > limit ? limit : n;
}

static uint32_t log2_ceil(uint32_t n)
{
	uint32_t l = 0;

	while (((uint64_t)1 << l) < n)
		l++;
	return l;
}

typedef int bed_fn(const struct mcast_bed_conf *conf,
		   struct mcast_bed_result *res);

static int run_on(struct report *rep, bed_fn *bed,
		  const struct mcast_bed_conf *conf,
		  struct mcast_bed_result *res)
{
	int rc = bed(conf, res);

	report_add(rep, res->hash, res->virtual_ns, res->events);
	if (rc)
		report_fail(rep, "%s to %u nodes, %llu bytes: error %d",
			    mcast_algorithm_name(conf->algorithm), conf->nodes,
			    (unsigned long long)conf->object, -rc);
	return rc;
}

/* With the library's own groups. */
static int run(struct report *rep, const struct mcast_bed_conf *conf,
	       struct mcast_bed_result *res)
{
	return run_on(rep, mcast_engine_run, conf, res);
}

/* Measured with the least relay (mcast_bed.h) instead of the engine: for
 * comparison, and where both give the same curve. */
static int run_relay(struct report *rep, const struct mcast_bed_conf *conf,
		     struct mcast_bed_result *res)
{
	return run_on(rep, mcast_bed_run, conf, res);
}

static double ms(const struct mcast_bed_result *res)
{
	return (double)res->ns / 1e6;
}

static double gbps(uint64_t bytes, const struct mcast_bed_result *res)
{
	return (double)bytes * 8 / (double)res->ns;
}

static void columns(struct report *rep, const char *const *names)
{
	rep->ok = true;
	for (unsigned i = 0; names[i]; i++)
		rep->table.cols[rep->table.n_cols++] = names[i];
}

static int nic_of(const struct scenario_conf *sc, const char *name,
		  uint32_t link_gbps, struct nic_model *nic)
{
	int rc = 0;

	if (sc->nic)
		*nic = *sc->nic;
	else
		rc = nic_model_find(name, nic);
	if (!rc && !sc->nic && link_gbps)
		nic->link_gbps = link_gbps;
	return rc;
}

/* --- figure 8: many copies --------------------------------------------- */

/* The paper's cluster Sierra: 40 Gb/s; 256 MB. Blocks of 1 MB, as in the
 * paper's table 1. */
struct copies {
	const struct scenario_conf *sc;
	struct mcast_bed_conf conf; /* to so many nodes */
	bool last;		    /* there are no more */
};

typedef int copies_fn(struct copies *c, struct report *rep, void *arg);

/* For each size up to the nodes that are asked for. */
static int each_size(const struct scenario_conf *sc, struct report *rep,
		     const uint32_t *sizes, unsigned n, copies_fn *fn,
		     void *arg)
{
	struct nic_model nic;
	struct copies c = {.sc = sc};
	int rc = nic_of(sc, "connectx3", 40, &nic);

	for (unsigned i = 0; i < n && !rc; i++) {
		if (sc->nodes && sizes[i] > sc->nodes)
			break;
		c.last = i + 1 == n || (sc->nodes && sizes[i + 1] > sc->nodes);
		c.conf = (struct mcast_bed_conf){.seed = sc->seed,
						 .nic = &nic,
						 .nodes = sizes[i],
						 .algorithm = MCAST_PIPELINE,
						 .object = 256 * MIB,
						 .block = MIB};
		rc = fn(&c, rep, arg);
	}
	return rc;
}

static double line_ms(const struct copies *c)
{
	return (double)c->conf.object * 8 / c->conf.nic->link_gbps / 1e6;
}

static double bound_ms(const struct copies *c,
		       const struct mcast_bed_result *res)
{
	return line_ms(c) *
	       (double)(log2_ceil(c->conf.nodes) + res->blocks - 1) /
	       (double)res->blocks;
}

struct took {
	double last, at_128;
};

static int scaling_line(struct copies *c, struct report *rep, void *arg)
{
	struct mcast_bed_result pipe, seq;
	struct took *took = arg;
	double bound;
	int rc = run(rep, &c->conf, &pipe);

	c->conf.algorithm = MCAST_SEQUENTIAL;
	if (!rc)
		rc = run_relay(rep, &c->conf, &seq);
	if (rc)
		return rc;
	bound = bound_ms(c, &pipe);
	took->last = ms(&pipe);
	if (c->conf.nodes == 128)
		took->at_128 = took->last;
	report_line(rep, "",
		    (double[]){c->conf.nodes, ms(&pipe), bound,
			       ms(&pipe) / bound,
			       (double)(pipe.ns - pipe.first_ns) / 1e6,
			       ms(&seq), pipe.peers_max});
	if (!c->sc->nic && ms(&pipe) > 1.15 * bound)
		report_fail(rep, "%u nodes: %.1f ms, more than 1.15 x %.1f",
			    c->conf.nodes, ms(&pipe), bound);
	return 0;
}

static int scaling(const struct scenario_conf *sc, struct report *rep)
{
	static const char *const cols[] = {"nodes",	"pipeline_ms",
					   "bound_ms",	"ratio",
					   "skew_ms",	"sequential_ms",
					   "peers_max", NULL};
	static const uint32_t sizes[] = {2,  3,	  4,   8,   16,	 32,  48,
					 64, 100, 128, 200, 256, 300, 512};
	struct took took = {0};
	int rc;

	columns(rep, cols);
	rc = each_size(sc, rep, sizes, sizeof(sizes) / sizeof(*sizes),
		       scaling_line, &took);
	if (took.at_128 > 0)
		report_row(rep, "most_to_127_copies", took.last / took.at_128);
	if (!rc && !sc->nic && took.at_128 > 0 &&
	    took.last > 1.05 * took.at_128)
		report_fail(rep, "%.1f ms for most copies, %.1f for 127",
			    took.last, took.at_128);
	return rc;
}

const struct scenario scenario_mcast_scaling = {
	.name = "mcast-scaling",
	.what = "multicast of 256 MB at 40 Gb/s against the number of copies",
	.nic = "connectx3",
	.sizes = SCENARIO_NODES,
	.run = scaling,
};

/* --- the engine beside the least relay ---------------------------------- */

static int engine_line(struct copies *c, struct report *rep, void *arg)
{
	struct mcast_bed_result eng, relay, seq;
	double bound, *worst = arg;
	int rc = run_relay(rep, &c->conf, &relay);

	/* The largest is the one to trace. */
	if (c->last)
		c->conf.tracer = c->sc->tracer;
	if (!rc)
		rc = run(rep, &c->conf, &eng);
	c->conf.tracer = NULL;
	c->conf.algorithm = MCAST_SEQUENTIAL;
	if (!rc)
		rc = run(rep, &c->conf, &seq);
	if (rc)
		return rc;
	bound = line_ms(c) * (double)relay.steps / (double)relay.blocks;
	*worst = ms(&eng) / bound > *worst ? ms(&eng) / bound : *worst;
	report_line(rep, "",
		    (double[]){c->conf.nodes, ms(&eng), ms(&relay), bound,
			       ms(&eng) / bound,
			       (double)(eng.ns - eng.first_ns) / 1e6,
			       ms(&seq)});
	return 0;
}

static int engine(const struct scenario_conf *sc, struct report *rep)
{
	static const char *const cols[] = {"nodes",	    "engine_ms",
					   "relay_ms",	    "bound_ms",
					   "ratio",	    "skew_ms",
					   "sequential_ms", NULL};
	static const uint32_t sizes[] = {2, 4, 6, 8, 16, 48, 64};
	double worst = 0;
	int rc;

	columns(rep, cols);
	rc = each_size(sc, rep, sizes, sizeof(sizes) / sizeof(*sizes),
		       engine_line, &worst);
	report_row(rep, "worst_ratio", worst);
	if (!rc && !sc->nic && worst > 1.15)
		report_fail(rep, "%.2f times the steps at line rate, not 1.15",
			    worst);
	return rc;
}

const struct scenario scenario_mcast_engine = {
	.name = "mcast-engine",
	.what = "mcast-scaling beside the least that a relay must do",
	.nic = "connectx3",
	.sizes = SCENARIO_NODES,
	.run = engine,
};

/* --- a group's first message ------------------------------------------- */

/* Members take their memory when it begins. */
static int first_line(struct copies *c, struct report *rep, void *arg)
{
	struct mcast_bed_result first, next;
	double bound;
	int rc = run(rep, &c->conf, &next);

	c->conf.cold = true;
	if (!rc)
		rc = run(rep, &c->conf, &first);
	if (rc)
		return rc;
	bound = bound_ms(c, &first);
	report_line(rep, "",
		    (double[]){c->conf.nodes, ms(&first), ms(&next), bound,
			       ms(&first) / bound, ms(&next) / bound});
	if (!c->sc->nic && ms(&first) > 1.05 * bound)
		report_fail(rep, "%u nodes: %.1f ms, more than 1.05 x %.1f",
			    c->conf.nodes, ms(&first), bound);
	return 0;
}

static int first(const struct scenario_conf *sc, struct report *rep)
{
	static const char *const cols[] = {"nodes",    "first_ms",    "next_ms",
					   "bound_ms", "first_ratio", "ratio",
					   NULL};
	static const uint32_t sizes[] = {2, 4, 7, 16, 48, 64, 100, 128, 300};

	columns(rep, cols);
	return each_size(sc, rep, sizes, sizeof(sizes) / sizeof(*sizes),
			 first_line, NULL);
}

const struct scenario scenario_mcast_first = {
	.name = "mcast-first",
	.what = "mcast-scaling, with what a group's first message takes",
	.nic = "connectx3",
	.sizes = SCENARIO_NODES,
	.run = first,
};

/* --- figure 4: the algorithms ------------------------------------------ */

static int algorithms_line(const struct scenario_conf *sc, uint64_t object,
			   uint32_t nodes, const struct nic_model *nic,
			   struct report *rep)
{
	struct mcast_bed_conf conf = {.seed = sc->seed,
				      .nic = nic,
				      .nodes = nodes,
				      .object = object,
				      .block = MIB};
	double cells[6] = {(double)object / MIB, nodes};
	struct mcast_bed_result res;
	int rc = 0;

	for (int a = MCAST_SEQUENTIAL; a <= MCAST_PIPELINE && !rc; a++) {
		conf.algorithm = (enum mcast_algorithm)a;
		rc = run(rep, &conf, &res);
		cells[2 + a] = ms(&res);
	}
	if (rc)
		return rc;
	report_line(rep, "", cells);
	if (!sc->nic &&
	    (cells[5] > 1.03 * cells[2] || cells[5] > 1.03 * cells[3] ||
	     cells[5] > 1.03 * cells[4]))
		report_fail(rep, "%u nodes: the pipeline is not the fastest",
			    nodes);
	return 0;
}

/* Fractus: 16 nodes, 100 Gb/s. */
static int algorithms(const struct scenario_conf *sc, struct report *rep)
{
	static const char *const cols[] = {"mib",   "nodes", "sequential",
					   "chain", "tree",  "pipeline",
					   NULL};
	uint32_t most = at_most(16, sc->nodes);
	struct nic_model nic;
	int rc = nic_of(sc, "connectx5", 0, &nic);

	columns(rep, cols);
	for (uint32_t n = 2; n <= most && !rc; n++)
		rc = algorithms_line(sc, 256 * MIB, n, &nic, rep);
	for (uint32_t n = 2; n <= most && !rc; n++)
		rc = algorithms_line(sc, 8 * MIB, n, &nic, rep);
	return rc;
}

const struct scenario scenario_mcast_algorithms = {
	.name = "mcast-algorithms",
	.what = "multicast of 256 MB and 8 MB by each algorithm, in ms",
	.sizes = SCENARIO_NODES,
	.run = algorithms,
};

/* --- figure 6: the block's size ---------------------------------------- */

#define OBJECTS 7

/* The paper's cluster Fractus, groups of 4, and the paper's sizes of
 * objects. */
static int blocks(const struct scenario_conf *sc, struct report *rep)
{
	static const char *const cols[] = {"block_kib", "obj_16k",  "obj_128k",
					   "obj_1m",	"obj_8m",   "obj_32m",
					   "obj_64m",	"obj_128m", NULL};
	static const uint64_t objects[OBJECTS] = {16 * KIB, 128 * KIB, MIB,
						  8 * MIB,  32 * MIB,  64 * MIB,
						  128 * MIB};
	struct mcast_bed_conf conf = {
		.seed = sc->seed, .nodes = 4, .algorithm = MCAST_PIPELINE};
	struct mcast_bed_result res;
	struct nic_model nic;
	int rc = nic_of(sc, "connectx5", 0, &nic);

	columns(rep, cols);
	conf.nic = &nic;
	for (uint64_t b = 16 * KIB; b <= 16 * MIB && !rc; b *= 2) {
		double cells[1 + OBJECTS] = {(double)b / KIB};

		for (int i = 0; i < OBJECTS && !rc; i++) {
			conf.block = (uint32_t)b;
			conf.object = objects[i];
			/* One block is one block, and takes less memory. */
			if (b > objects[i])
				conf.block = (uint32_t)objects[i];
			rc = run(rep, &conf, &res);
			cells[1 + i] = rc ? 0 : gbps(conf.object, &res);
		}
		if (!rc)
			report_line(rep, "", cells);
	}
	return rc;
}

const struct scenario scenario_mcast_blocks = {
	.name = "mcast-blocks",
	.what = "multicast to 3 receivers, Gb/s against the size of blocks",
	.run = blocks,
};

/* --- figure 10: overlapping groups ------------------------------------- */

static int overlap_cells(const struct scenario_conf *sc,
			 const struct nic_model *nic, uint32_t nodes,
			 struct report *rep, double *cells)
{
	static const uint64_t objects[] = {100 * MIB, MIB};
	const uint32_t senders[] = {nodes, nodes / 2, 1};
	struct mcast_bed_result res;
	int rc = 0;

	*cells++ = nodes;
	for (int i = 0; i < 2; i++) {
		for (int s = 0; s < 3 && !rc; s++) {
			struct mcast_bed_conf conf = {
				.seed = sc->seed,
				.nic = nic,
				.nodes = nodes,
				.groups = senders[s],
				.algorithm = MCAST_PIPELINE,
				.object = objects[i],
				.block = (uint32_t)(i ? MIB / 8 : MIB)};

			rc = run(rep, &conf, &res);
			*cells++ = gbps(objects[i] * senders[s], &res);
		}
	}
	return rc;
}

/* The paper's cluster Fractus. Blocks of 1 MB, and of 128 KB for objects of 1
 * MB. */
static int overlap(const struct scenario_conf *sc, struct report *rep)
{
	static const char *const cols[] = {"nodes",    "all_100m", "half_100m",
					   "one_100m", "all_1m",   "half_1m",
					   "one_1m",   NULL};
	uint32_t most = at_most(16, sc->nodes);
	double cells[TABLE_COLS];
	struct nic_model nic;
	int rc = nic_of(sc, "connectx5", 0, &nic);

	columns(rep, cols);
	for (uint32_t n = 2; n <= most && !rc; n += 2) {
		rc = overlap_cells(sc, &nic, n, rep, cells);
		if (rc)
			break;
		report_line(rep, "", cells);
		if (!sc->nic && (cells[1] < 0.9 * nic.link_gbps ||
				 cells[4] < 0.9 * nic.link_gbps))
			report_fail(rep, "%u roots: a cable has room", n);
	}
	return rc;
}

const struct scenario scenario_mcast_overlap = {
	.name = "mcast-overlap",
	.what = "groups of the same members with different roots, Gb/s",
	.sizes = SCENARIO_NODES,
	.run = overlap,
};

/* --- racks ------------------------------------------------------------- */

static int racks_line(const struct scenario_conf *sc,
		      const struct nic_model *nic, uint32_t nodes,
		      uint32_t rack, uint32_t oversub_pct, struct report *rep)
{
	struct mcast_bed_conf conf = {.seed = sc->seed,
				      .nic = nic,
				      .nodes = nodes,
				      .object = 256 * MIB,
				      .block = MIB,
				      .rack = rack,
				      .oversub_pct = oversub_pct};
	static const struct {
		enum mcast_algorithm algorithm;
		bool scattered;
	} ways[] = {{MCAST_PIPELINE, true},
		    {MCAST_PIPELINE, false},
		    {MCAST_CHAIN, false},
		    {MCAST_HYBRID, true}};
	double cells[7] = {nodes, rack, oversub_pct / 100.0};
	struct mcast_bed_result res;
	int rc = 0;

	for (int i = 0; i < 4 && !rc; i++) {
		conf.algorithm = ways[i].algorithm;
		conf.scattered = ways[i].scattered;
		rc = run(rep, &conf, &res);
		cells[3 + i] = rc ? 0 : gbps(conf.object, &res);
	}
	if (rc)
		return rc;
	report_line(rep, "", cells);
	if (!sc->nic && oversub_pct >= 200 &&
	    (cells[6] <= cells[3] || cells[6] <= cells[4]))
		report_fail(rep, "%u nodes, %u to 100: the hybrid does not win",
			    nodes, oversub_pct);
	return 0;
}

static int racks(const struct scenario_conf *sc, struct report *rep)
{
	static const char *const cols[] = {"nodes",	"rack",	    "oversub",
					   "scattered", "in_order", "chain",
					   "hybrid",	NULL};
	static const struct {
		uint32_t nodes, rack;
	} places[] = {{16, 4}, {48, 12}, {64, 8}, {128, 16}, {256, 32}};
	static const uint32_t oversubs[] = {100, 200, 400, 800};
	struct nic_model nic;
	int rc = nic_of(sc, "connectx5", 0, &nic);

	columns(rep, cols);
	for (unsigned p = 0; p < sizeof(places) / sizeof(*places) && !rc; p++) {
		if (sc->nodes && places[p].nodes > sc->nodes)
			break;
		for (int i = 0; i < 4 && !rc; i++)
			rc = racks_line(sc, &nic, places[p].nodes,
					places[p].rack, oversubs[i], rep);
	}
	return rc;
}

const struct scenario scenario_mcast_racks = {
	.name = "mcast-racks",
	.what = "multicast across oversubscribed racks, Gb/s",
	.sizes = SCENARIO_NODES,
	.run = racks,
};

/* The paper's cluster Apt: 56 Gb/s, of which 16 Gb/s are left between racks
 * under load. We assume racks of 8. */
static int apt(const struct scenario_conf *sc, struct report *rep)
{
	static const char *const cols[] = {"nodes", "all", "half", "one", NULL};
	uint32_t most = at_most(64, sc->nodes);
	struct mcast_bed_result res;
	struct nic_model nic;
	int rc = nic_of(sc, "connectx3", 56, &nic);

	columns(rep, cols);
	if (!sc->nic)
		nic.pcie_gbps = 63; /* PCIe 3.0 x8, which FDR NICs have */
	for (uint32_t n = 4; n <= most && !rc; n += n < 16 ? 4 : 16) {
		const uint32_t senders[] = {n, n / 2, 1};
		double cells[4] = {n};

		for (int s = 0; s < 3 && !rc; s++) {
			struct mcast_bed_conf conf = {.seed = sc->seed,
						      .nic = &nic,
						      .nodes = n,
						      .groups = senders[s],
						      .algorithm =
							      MCAST_PIPELINE,
						      .object = 16 * MIB,
						      .block = MIB,
						      .rack = 8,
						      .oversub_pct = 350,
						      .scattered = true};

			rc = run(rep, &conf, &res);
			cells[1 + s] =
				rc ? 0 : gbps(conf.object * senders[s], &res);
		}
		if (!rc)
			report_line(rep, "", cells);
	}
	return rc;
}

const struct scenario scenario_mcast_apt = {
	.name = "mcast-apt",
	.what = "overlapping groups on 56 Gb/s and racks 3.5 to one, Gb/s",
	.nic = "connectx3",
	.sizes = SCENARIO_NODES,
	.run = apt,
};

/* --- section 4.5: one slow link ---------------------------------------- */

/* Measures which part of the bandwidth is left when the link between two
 * members is slow. */
static int slow_share(struct report *rep, const struct mcast_bed_conf *conf,
		      uint32_t from, uint32_t to, double *share)
{
	struct mcast_bed_conf slow = *conf;
	struct mcast_bed_result with, without;
	int rc = run(rep, conf, &without);

	slow.slow_from = from;
	slow.slow_to = to;
	slow.slow = 2;
	if (!rc)
		rc = run(rep, &slow, &with);
	if (!rc)
		*share = ms(&without) / ms(&with);
	return rc;
}

/* 64 members, a link of each direction of the hypercube, near the root and far
 * from it; the chain's links are 0-1 and 31-32. */
static int slow_link(const struct scenario_conf *sc, struct report *rep)
{
	static const char *const cols[] = {"from",    "to",    "pipeline",
					   "formula", "chain", NULL};
	struct mcast_bed_conf conf = {.seed = sc->seed,
				      .nodes = 64,
				      .object = 256 * MIB,
				      .block = MIB};
	double formula, least = 1, share = 0, chain = 0;
	struct nic_model nic;
	int rc = nic_of(sc, "connectx5", 0, &nic);

	columns(rep, cols);
	conf.nic = &nic;
	/* l T' / (T + (l - 1) T') with T' = T / 2 */
	formula = 6 * 0.5 / (1 + 5 * 0.5);
	conf.algorithm = MCAST_CHAIN;
	if (!rc)
		rc = slow_share(rep, &conf, 31, 32, &chain);
	conf.algorithm = MCAST_PIPELINE;
	for (uint32_t i = 0; i < 12 && !rc; i++) {
		uint32_t from = i < 6 ? 0 : 39 + i, to = from ^ 1u << i % 6;

		rc = slow_share(rep, &conf, from, to, &share);
		if (rc)
			break;
		report_line(rep, "",
			    (double[]){from, to, share, formula, chain});
		least = share < least ? share : least;
	}
	report_row(rep, "least_share", least);
	if (!rc && !sc->nic && least < 0.856)
		report_fail(rep, "%.3f of the bandwidth is left, not 0.856",
			    least);
	return rc;
}

const struct scenario scenario_mcast_slow_link = {
	.name = "mcast-slow-link",
	.what = "64 members, one link at half its rate: what is left",
	.run = slow_link,
};

/* --- with bytes -------------------------------------------------------- */

/* Objects drawn from the seed are carried byte by byte, and each receiver
 * compares every byte: so it sees every mistake of a schedule. */
static int relay(const struct scenario_conf *sc, struct report *rep)
{
	struct mcast_bed_result res;
	struct nic_model nic;
	struct prng r;
	int rc = nic_of(sc, "connectx5", 0, &nic);

	rep->ok = true;
	prng_init(&r, sc->seed);
	for (int a = MCAST_SEQUENTIAL; a <= MCAST_HYBRID && !rc; a++) {
		struct mcast_bed_conf conf = {
			.seed = sc->seed,
			.nic = &nic,
			.nodes = 2 + (uint32_t)prng_below(&r, 40),
			.groups = 1 + (uint32_t)prng_below(&r, 4),
			.algorithm = (enum mcast_algorithm)a,
			.object = 1 + prng_below(&r, 100000),
			.block = 1 + (uint32_t)prng_below(&r, 8192),
			.posted = 1 + (uint32_t)prng_below(&r, 4),
			.window = 1 + (uint32_t)prng_below(&r, 4),
			.rack = 1 + (uint32_t)prng_below(&r, 8),
			.oversub_pct = 100 + (uint32_t)prng_below(&r, 300),
			.scattered = prng_below(&r, 2),
			.carry = true};

		if (conf.object / conf.block > 200)
			conf.block = (uint32_t)(conf.object / 200);
		rc = run_relay(rep, &conf, &res);
	}
	return rc == -ENOMEM ? rc : 0;
}

const struct scenario scenario_mcast_relay = {
	.name = "mcast-relay",
	.what = "every multicast schedule over verbs, byte by byte",
	.run = relay,
};
