/* SPDX-License-Identifier: MIT */
/*
 * run_inside.h - what the parts of the runner share: run.c carries steps out,
 * run_sync.c takes what comes and waits until all is over.
 */
#ifndef SKEIN_TESTS_CONFORM_RUN_INSIDE_H
#define SKEIN_TESTS_CONFORM_RUN_INSIDE_H

#include "run.h"

struct run {
	struct world *w;
	const struct program *p;
	struct epoch *e;
	struct check check;
	granted_all granted;
	FILE *print;
	bool over; /* too many events */
	bool swept;
	uint32_t marks;
	int marked[PAIRS][2];  /* how far the marking got */
	int awaited[PAIRS][2]; /* markers that have not come back */
};

/* What happened: one more event, shown once it is filled in. */
struct ev *ev_new(struct run *r, int kind, int pair, int side);
void ev_show(struct run *r, const struct ev *e);

/* 7 when it cannot be told. */
enum ibv_qp_state qp_state(struct run *r, int pair, int side, bool *draining);
int bare_modify(struct node *n, struct ibv_qp *qp, int state);

/* At most max completions of a CQ. How many there were, or less than 0. */
int poll_cq(struct run *r, int side, int cq, int max);
void poll_all(struct run *r);
void take_events(struct run *r);
/* Polls until all is over and the model agrees. The time in which the model was
 * asked is not that in which nothing came. false: check.why. */
bool sync_up(struct run *r);

#endif
