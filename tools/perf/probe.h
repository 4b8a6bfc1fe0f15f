/* SPDX-License-Identifier: MIT */
/*
 * probe.h - the yardsticks that a figure is divided by, and the page that
 * both ends of --self share.
 *
 * line	one cache line each way between the two pinned processes, spinning
 *	without pause: what the machine itself needs to carry a word there and
 *	one back.
 * event	one eventfd each way, both sides asleep in poll(): what the kernel
 *	needs to wake a process there and one here.
 * memcpy	copying the same size on one core, between memory of the kind
 *	that the operation uses.
 *
 * Both ends call a probe with the same n. The client records every round trip
 * in w->lat.
 */
#ifndef SKEIN_TOOLS_PERF_PROBE_H
#define SKEIN_TOOLS_PERF_PROBE_H

#include "perf/perf.h"

enum step_kind {
	STEP_NONE,
	STEP_RESIZE, /* n: the new size */
	STEP_LINE,   /* n round trips */
	STEP_EVENT,  /* n round trips */
	STEP_RUN,    /* n operations in all workers together */
	STEP_QUIT,
	STEP_KINDS,
};

/* One line to a writer, and a line between, since cores fetch lines in pairs.
 */
struct perf_shm {
	/* client writes: the step, and its number last */
	_Alignas(2 * PERF_LINE) struct {
		uint64_t seq;
		uint32_t kind;
		uint64_t n;
	} step;
	/* server writes: the number of the step it has finished */
	_Alignas(2 * PERF_LINE) uint64_t done;
	_Alignas(2 * PERF_LINE) uint64_t ping; /* client writes */
	_Alignas(2 * PERF_LINE) uint64_t pong; /* server writes */
};

int shm_new(struct perf_shm **shm);
void shm_free(struct perf_shm *shm);

/* All return 0 or a negative errno, told by perf_fail(). */
int probe_line_client(struct perf_worker *w, uint64_t n);
int probe_line_server(struct perf_worker *w, uint64_t n);
int probe_event_client(struct perf_worker *w, uint64_t n);
int probe_event_server(struct perf_worker *w, uint64_t n);

struct probe_copy {
	struct skein_env *env;
	int fd[2];
	void *buf[2];
	size_t len;
};

/* Memory for the memcpy probe. */
int probe_copy_new(struct perf *p, size_t len, struct probe_copy *c);
void probe_copy_free(struct probe_copy *c);
/* n copies; returns ns for one, p50. */
double probe_copy_run(struct perf *p, struct probe_copy *c, uint64_t n);

/* step.c: the client's half. A step begins when the last one is done. */
int step_begin(struct perf *p, enum step_kind kind, uint64_t n);
int step_wait_done(struct perf *p);
/* The server's half: waits for the next step. */
int step_next(struct perf *p, enum step_kind *kind, uint64_t *n);
int step_done(struct perf *p);

#endif
