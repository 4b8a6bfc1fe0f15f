/* SPDX-License-Identifier: MIT */
/*
 * time.c - RF-RPC's figures 5 and 9: fetched and replied by how long the
 * server's handler takes, with one to 16 threads of the server's.
 *
 * A crossover is the service time from which on fetching gives less than NEAR
 * times what the other way gives, by lines between the points: so the paper has
 * its 7 us (section 3.2: "within 10 %").
 */
#include "sim/rfrpc/rfrpc.h"

#include "rpc/client/calib.h"
#include "rpc/client/return_mode.h"

#define NEAR 1.1
#define WARM_TURNS 3
#define RUN_TURNS 12
/* Of auto: a trial, maybe one back, and what comes after them. */
#define AUTO_WARM_NS (9 * RETURN_MODE_INTERVAL_NS / 2)
#define AUTO_RUN_NS (2 * RETURN_MODE_INTERVAL_NS)

/* The calibration: as many threads of the server's as the device can use. */
#define CALIB_SERVERS 16

static const unsigned servers[] = {1, 2, 4, 16};
static const unsigned windows[] = {1, 8};
static const double times_us[] = {0, 1, 2, 5, 7, 10, 20};

#define N_SERVERS (sizeof(servers) / sizeof(servers[0]))
#define N_WINDOWS (sizeof(windows) / sizeof(windows[0]))
#define N_TIMES (sizeof(times_us) / sizeof(times_us[0]))

static const enum rfrpc_way ways[] = {RFRPC_REPLY, RFRPC_FETCH,
				      RFRPC_REPLY_WAIT, RFRPC_AUTO};

#define N_WAYS (sizeof(ways) / sizeof(ways[0]))

/* Millions of calls a second. */
struct cell {
	double mops[RFRPC_WAYS];
};

struct sums {
	double mops[RFRPC_WAYS]; /* calls of the whole mix */
	double least;		 /* auto over the better of both */
	unsigned fetch_wins, reply_wins;
};

/* As long as the server takes for the calls of all that are outstanding. */
static uint64_t turn_ns(const struct rpc_bed_conf *c)
{
	return (uint64_t)c->nodes * c->threads * c->window * c->handler_ns /
	       c->servers;
}

/* The base's handler_ns, and what the point has besides. */
static int point(struct figure *f, double us, struct cell *cell)
{
	const struct rpc_bed_conf was = f->conf;
	struct rpc_bed_result r;
	uint64_t turn;
	int rc = 0;

	f->conf.handler_ns += (uint32_t)(us * 1000);
	turn = turn_ns(&f->conf);
	f->conf.warm_ns += WARM_TURNS * turn;
	f->conf.run_ns += RUN_TURNS * turn;
	/* All ways in one stretch of time: what fetching with a window brings
	 * changes within milliseconds, as the callers get out of step. */
	if (!f->sc->ops) {
		f->conf.warm_ns += AUTO_WARM_NS;
		f->conf.run_ns += AUTO_RUN_NS;
	}
	for (unsigned w = 0; w < N_WAYS && !rc; w++) {
		if (ways[w] == RFRPC_AUTO && f->sc->ops) {
			f->conf.warm_ns += AUTO_WARM_NS;
			f->conf.run_ns += AUTO_RUN_NS;
			f->conf.ops = 0;
		}
		rc = rfrpc_point(f, ways[w], &r);
		cell->mops[ways[w]] = r.mops;
	}
	f->conf = was;
	return rc;
}

static double better(const struct cell *c)
{
	return c->mops[RFRPC_FETCH] > c->mops[RFRPC_REPLY]
		       ? c->mops[RFRPC_FETCH]
		       : c->mops[RFRPC_REPLY];
}

static void add(struct figure *f, double us, const struct cell *c,
		struct sums *s)
{
	double over = c->mops[RFRPC_AUTO] / better(c);

	for (unsigned w = 0; w < N_WAYS; w++)
		s->mops[ways[w]] += c->mops[ways[w]];
	s->least = s->least > 0 && s->least < over ? s->least : over;
	if (c->mops[RFRPC_FETCH] > c->mops[RFRPC_REPLY])
		s->fetch_wins++;
	else
		s->reply_wins++;
	report_line(f->rep, "",
		    (double[]){f->conf.servers, f->conf.window, us,
			       c->mops[RFRPC_REPLY], c->mops[RFRPC_FETCH],
			       c->mops[RFRPC_REPLY_WAIT], c->mops[RFRPC_AUTO],
			       over});
}

/* 0: fetching is never ahead by so much; the last time: it is to the end. */
static double crossover_us(const struct cell *c, enum rfrpc_way way)
{
	double is = 0, then = 0;

	for (unsigned i = N_TIMES; i-- > 0; then = is) {
		is = c[i].mops[RFRPC_FETCH] / c[i].mops[way];
		if (is < NEAR)
			continue;
		if (i == N_TIMES - 1)
			return times_us[i];
		return times_us[i] + (times_us[i + 1] - times_us[i]) *
					     (is - NEAR) / (is - then);
	}
	return 0;
}

/* The names of rows are kept by pointer. */
static const char *const crossover_names[N_SERVERS][2] = {
	{"crossover_us_reply_1", "crossover_us_reply_wait_1"},
	{"crossover_us_reply_2", "crossover_us_reply_wait_2"},
	{"crossover_us_reply_4", "crossover_us_reply_wait_4"},
	{"crossover_us_reply_16", "crossover_us_reply_wait_16"},
};

static int curve(struct figure *f, unsigned i, struct sums *s)
{
	struct cell c[N_TIMES] = {0};
	int rc = 0;

	for (unsigned t = 0; t < N_TIMES && !rc; t++) {
		rc = point(f, times_us[t], &c[t]);
		if (!rc)
			add(f, times_us[t], &c[t], s);
	}
	if (rc || f->conf.window > 1)
		return rc;
	report_row(f->rep, crossover_names[i][0], crossover_us(c, RFRPC_REPLY));
	report_row(f->rep, crossover_names[i][1],
		   crossover_us(c, RFRPC_REPLY_WAIT));
	return 0;
}

static int calibrate_at(struct figure *f, double us, struct rpc_calib_row *at)
{
	struct rpc_bed_result replied, fetched;
	int rc;

	f->conf.handler_ns += (uint32_t)(us * 1000);
	f->conf.warm_ns += WARM_TURNS * turn_ns(&f->conf);
	f->conf.run_ns += RUN_TURNS * turn_ns(&f->conf);
	rc = rfrpc_point(f, RFRPC_REPLY, &replied);
	if (!rc)
		rc = rfrpc_point(f, RFRPC_FETCH, &fetched);
	if (!rc)
		*at = (struct rpc_calib_row){f->conf.handler_ns,
					     (uint32_t)(replied.mops * 1e6),
					     (uint32_t)(fetched.mops * 1e6)};
	return rc;
}

/* What auto knows of the device: as `skein perf calibrate` measures it. */
static int calibrate(struct figure *f, struct rpc_calib *calib)
{
	const struct rpc_bed_conf was = f->conf;
	int rc = 0;

	for (unsigned i = 0; i < N_TIMES && !rc; i++) {
		f->conf.servers = CALIB_SERVERS;
		f->conf.ops = 0;
		rc = calibrate_at(f, times_us[i], &calib->times[i]);
		f->conf = was;
	}
	calib->n_times = N_TIMES;
	f->conf.calib = calib;
	return rc;
}

static void columns(struct report *rep)
{
	static const char *const cols[] = {"servers", "window",
					   "time_us", "reply",
					   "fetch",   "reply_wait",
					   "auto",    "auto_over_best"};

	rep->table.n_cols = 8;
	for (unsigned c = 0; c < 8; c++)
		rep->table.cols[c] = cols[c];
}

static int rfrpc_time(const struct scenario_conf *sc, struct report *rep)
{
	struct rpc_calib calib = {0};
	struct sums s = {0};
	struct figure f;
	int rc = rfrpc_begin(&f, sc, rep, RFRPC_CLIENTS, RFRPC_CALLERS);

	columns(rep);
	if (!rc)
		rc = calibrate(&f, &calib);
	for (unsigned i = 0; i < N_SERVERS && !rc; i++) {
		if (sc->threads && servers[i] != sc->threads)
			continue;
		for (unsigned w = 0; w < N_WINDOWS && !rc; w++) {
			f.conf.servers = servers[i];
			f.conf.window = windows[w];
			rc = curve(&f, i, &s);
		}
	}
	if (rc)
		return rc;
	report_row(rep, "crossover_us_paper", 7);
	report_row(rep, "auto_over_best_min", s.least);
	FIGURE_CLAIM(&f, "auto_over_fetch_mix", s.mops[RFRPC_AUTO],
		     s.mops[RFRPC_FETCH], 0);
	FIGURE_CLAIM(&f, "auto_over_reply_mix", s.mops[RFRPC_AUTO],
		     s.mops[RFRPC_REPLY], 0);
	report_row(rep, "points_that_fetch_wins", s.fetch_wins);
	report_row(rep, "points_that_reply_wins", s.reply_wins);
	return 0;
}

const struct scenario scenario_rfrpc_time = {
	.name = "rfrpc-time",
	.what = "fetched, replied and auto, by service time (RF-RPC fig. 5, 9)",
	.nic = "connectx3",
	.costs = true,
	.sizes = SCENARIO_SIZES,
	.run = rfrpc_time,
};
