/* SPDX-License-Identifier: MIT */
/*
 * race_vqp.h - a RACE table over a virtual queue pair: where it is, as text, and
 * the port that a client of it needs.
 */
#ifndef SKEIN_RACE_RACE_VQP_H
#define SKEIN_RACE_RACE_VQP_H

#include "race/race.h"

#include <skein/vqp.h>

#define RACE_NAME_MAX 128u

/* "NODE/ID/ADDRESS", the two last in hex. */
void race_name_print(const char *node, uint32_t id, uint64_t addr,
		     char name[RACE_NAME_MAX]);
/* -EINVAL. node: RACE_NAME_MAX bytes. */
int race_name_parse(const char *name, char *node, uint32_t *id, uint64_t *addr);

struct race_vqp {
	struct skein_vqp *vqp;
	struct skein_vqp_mem *mem;
	uint32_t id;
	uint64_t addr;
	uint64_t timeout_ns;
	uint64_t (*now_ns)(void *arg);
	void (*idle)(void *arg); /* nothing has completed; may be NULL */
	void *arg;
};

/* Connects, and takes scratch memory of the pool. now_ns, idle and arg are set
 * by the caller. */
int race_vqp_open(struct race_vqp *v, struct skein_pool *pool, const char *name,
		  uint64_t timeout_ns);
void race_vqp_close(struct race_vqp *v);
/* The port; v stays the caller's. */
struct race_port race_vqp_port(struct race_vqp *v);

#endif
