/* SPDX-License-Identifier: MIT */
/* krcore.c - see krcore.h. */
#include "sim/krcore/krcore.h"

#include "sim/krcore/krcore_bed.h"

#include <math.h>

#define FITTED_PCT 15
#define PREDICTED_PCT 25

int krcore_run(struct figure *f, const struct krcore_bed_conf *conf,
	       struct krcore_bed_result *r)
{
	int rc = krcore_bed_run(conf, r);

	if (!rc)
		report_add(f->rep, r->hash, r->virtual_ns, r->events);
	return rc;
}

int krcore_begin(struct figure *f, const struct scenario_conf *sc,
		 struct report *rep)
{
	static const char *const cols[] = {"paper", "ours", "error_%",
					   "fitted"};
	int rc = figure_begin(f, sc, rep, "connectx4");

	rep->table.n_cols = 4;
	for (unsigned c = 0; c < 4; c++)
		rep->table.cols[c] = cols[c];
	return rc;
}

void krcore_point(struct figure *f, enum krcore_kind kind, const char *name,
		  double paper, double ours)
{
	double error = report_error(ours, paper);

	report_line(f->rep, name,
		    (double[]){report_paper(paper), ours, error,
			       kind == KRCORE_FITTED});
	if (kind == KRCORE_FITTED && !(fabs(error) <= FITTED_PCT))
		report_fail(f->rep, "%s: %.4g, the paper has %.4g", name, ours,
			    paper);
}

void krcore_end(struct figure *f)
{
	const struct report_table *t = &f->rep->table;
	unsigned fitted = 0, predicted = 0, beyond = 0;

	for (unsigned i = 0; i < t->n_lines; i++) {
		const double *cell = t->cells[i];

		if (cell[3] > 0) {
			fitted++;
		} else if (cell[0] > 0) {
			predicted++;
			beyond += fabs(cell[2]) > PREDICTED_PCT;
		}
	}
	report_row(f->rep, "fitted", fitted);
	report_row(f->rep, "predicted", predicted);
	report_row(f->rep, "beyond_25_percent", beyond);
}
