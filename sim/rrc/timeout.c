/* SPDX-License-Identifier: MIT */
/*
 * timeout.c - RR-Compound's figure 13: one client by bp_timeout, its round trip
 * with one call outstanding, and its rate with 32.
 *
 * The paper's two numbers at each end do not belong to one load: 252 K/s at
 * 6.80 us would be 1.7 calls outstanding. So the round trip is taken for one
 * call at a time (as table III), the rate for 32 (as section V-A).
 *
 * "paper" is algorithm 2 as it is printed, without a look before the sleep;
 * "ours" looks once more, as it must; "measured" has bp_timeout measured.
 */
#include "sim/rrc/rrc.h"

static const double timeouts_us[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 20};

#define N_TIMEOUTS (sizeof(timeouts_us) / sizeof(timeouts_us[0]))

static void columns(struct report *rep)
{
	static const char *const cols[] = {"timeout_us",   "p50_us",
					   "p50_paper",	   "p50_error_%",
					   "krate",	   "rate_paper",
					   "rate_error_%", "fitted"};

	rep->ok = true;
	rep->table.n_cols = 8;
	for (unsigned c = 0; c < 8; c++)
		rep->table.cols[c] = cols[c];
}

static int point(struct report *rep, const struct scenario_conf *sc,
		 const char *label, double timeout_us, bool blind,
		 bool measured)
{
	struct rrc_result one, many;
	struct rrc_conf c = {.seed = sc->seed};
	double p50 = 0, rate = 0;
	int rc;

	rrc_stream(&c, 1);
	c.blind = blind;
	c.measured = measured;
	c.bp_timeout_ns = (uint64_t)(timeout_us * 1000);
	c.window = 1;
	c.server_ns = c.client_ns = RRC_CALL_NS;
	rc = rrc_point(rep, &c, &one);
	c.window = 32;
	c.server_ns = c.client_ns = RRC_STREAM_NS;
	if (!rc)
		rc = rrc_point(rep, &c, &many);
	if (rc)
		return rc;
	if (blind && timeout_us == 0) {
		p50 = 17.07;
		rate = 78;
	} else if (blind && timeout_us > 6) {
		p50 = 6.80;
		rate = 252;
	}
	report_line(rep, label,
		    (double[]){measured ? one.timeout_us : timeout_us,
			       one.p50_us, report_paper(p50),
			       report_error(one.p50_us, p50), many.rate / 1000,
			       report_paper(rate),
			       report_error(many.rate / 1000, rate),
			       blind && p50 > 0});
	return 0;
}

static int rrc_timeout(const struct scenario_conf *sc, struct report *rep)
{
	int rc = 0;

	columns(rep);
	for (unsigned i = 0; i < N_TIMEOUTS && !rc; i++)
		rc = point(rep, sc, "paper", timeouts_us[i], true, false);
	for (unsigned i = 0; i < N_TIMEOUTS && !rc; i++)
		rc = point(rep, sc, "ours", timeouts_us[i], false, false);
	if (!rc)
		rc = point(rep, sc, "measured", 0, false, true);
	return rc;
}

const struct scenario scenario_rrc_timeout = {
	.name = "rrc-timeout",
	.what = "one client by bp_timeout (RR-Compound fig. 13)",
	.own_nics = true,
	.run = rrc_timeout,
};
