/* SPDX-License-Identifier: MIT */
/* figure.c - see figure.h. */
#include "sim/figure.h"

int figure_begin(struct figure *f, const struct scenario_conf *sc,
		 struct report *rep, const char *nic)
{
	*f = (struct figure){.sc = sc, .rep = rep};
	rep->ok = true;
	if (!sc->nic)
		return nic_model_find(nic, &f->nic);
	f->nic = *sc->nic;
	return 0;
}

int figure_point(struct figure *f, struct rpc_bed_result *r)
{
	int rc = rpc_bed_run(&f->conf, r);

	if (!rc)
		report_add(f->rep, r->hash, r->virtual_ns, r->events);
	return rc;
}

void figure_claim(struct figure *f, const char *name, double a, double b,
		  const char *paper_name, const char *error_name, double paper)
{
	if (!(a > 0) || !(b > 0))
		return;
	report_row(f->rep, name, a / b);
	if (!(paper > 0))
		return;
	report_row(f->rep, paper_name, paper);
	report_row(f->rep, error_name, report_error(a / b, paper));
}
