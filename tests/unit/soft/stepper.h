/* SPDX-License-Identifier: MIT */
/*
 * stepper.h - kill at every instruction: a child is single-stepped through a
 * piece of work and killed after the n-th instruction, for every n.
 */
#ifndef SKEIN_TESTS_SOFT_STEPPER_H
#define SKEIN_TESTS_SOFT_STEPPER_H

#include "rig.h"

#define STEP_LEN 48 /* bytes of a message: body and tail */

/* Its bytes, never 0. */
void step_pattern(char *p, unsigned seed);

/* In the child: what stands between the two is stepped. */
void step_begin(void);
void step_end(void) __attribute__((noreturn));

/* Returns once the child stands at step_begin(). */
void step_await(struct rig_child *c);
/* Steps at most n instructions; returns how many there were before the end. */
long step_child(struct rig_child *c, long n);
void step_kill(struct rig_child *c);

/* A run: begin() leads up to step_await(), end() kills and looks. */
struct step_run {
	struct rig_child c;
	int coarse; /* so many strides a run; 0: one */
	bool over;  /* the child came to its step_end() */
	void (*begin)(struct step_run *r);
	void (*end)(struct step_run *r);
};

/* A whole run: how many instructions it had. */
long step_count(struct step_run *r);
/* A run for every n, in steps of SKEIN_STEP_STRIDE: default 37, and 1 in `make
 * soak`. */
void step_sweep(struct step_run *r);

#endif
