/* SPDX-License-Identifier: MIT */
/*
 * verbs_program.h - a program that knows of libibverbs alone: its data path is
 * ibv_post_send(), ibv_post_recv() and ibv_poll_cq(). It runs on a pair of RC
 * queue pairs, and on vqps of either front, and expects the same of each.
 */
#ifndef SKEIN_TESTS_UNIT_VQP_VERBS_PROGRAM_H
#define SKEIN_TESTS_UNIT_VQP_VERBS_PROGRAM_H

#include <infiniband/verbs.h>

#define PROGRAM_MEM 8192u

/* One end: its queue pair, PROGRAM_MEM bytes, and their names there and here. */
struct program_end {
	struct ibv_qp *qp;
	char *buf;
	uint32_t lkey;
	uint64_t raddr;
	uint32_t rkey;
};

/* Requests of each kind, from a to b's memory; messages from b to a. */
void program_work(const struct program_end *a, const struct program_end *b);
/* More unsignalled requests than the queue has room for. */
void program_batches(const struct program_end *a, const struct program_end *b);
/* Lists with an invalid request in the middle. */
void program_bad(const struct program_end *a, const struct program_end *b);
/* An lkey that there is not. refused: the post says so itself. */
void program_lkey(const struct program_end *a, const struct program_end *b,
		  int refused);
/* b does not live any more. */
void program_dead(const struct program_end *a, const struct program_end *b);

#endif
