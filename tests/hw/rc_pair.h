/* SPDX-License-Identifier: MIT */
/*
 * rc_pair.h - the rig of the device tests: two RC QPs of one process, on the
 * devices named by SKEIN_TEST_DEVICE and SKEIN_TEST_DEVICE2 (default: soft,
 * and the same again), each with memory, queues and a completion channel.
 *
 * All checks fail the running cmocka test.
 */
#ifndef SKEIN_TESTS_HW_RC_PAIR_H
#define SKEIN_TESTS_HW_RC_PAIR_H

#include "dev/dev.h"
#include "dev/mem.h"
#include "env/env.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MEM_LEN (256 * 1024)
#define DEPTH 16

struct end {
	struct dev *dev;
	struct dev_stats st;
	struct ibv_pd *pd;
	struct ibv_comp_channel *ch;
	struct ibv_cq *scq, *rcq;
	struct ibv_qp *qp;
	struct mem_region *mem;
	struct dev_qp_addr addr;
};

struct pair {
	struct end a, b;
};

extern struct dev *dev_a, *dev_b;

/* cmocka group fixtures: open and close both devices. */
int rig_setup(void **state);
int rig_teardown(void **state);

/* One end in INIT, its address filled; both, connected. */
void end_open(struct end *e, struct dev *dev, uint32_t psn);
void end_close(struct end *e);
void pair_open(struct pair *p, const struct dev_qp_opts *opts);
void pair_close(struct pair *p);

unsigned char *mem(struct end *e);
void fill(struct end *e, size_t off, size_t len, unsigned seed);
struct ibv_sge sge(struct end *e, size_t off, size_t len);
/* A signalled one-sided request into the peer's memory. */
struct ibv_send_wr rdma(enum ibv_wr_opcode op, uint64_t id,
			struct ibv_sge *list, struct end *peer, size_t off);
void post(struct end *e, struct ibv_send_wr *wr);
void post_recv(struct end *e, uint64_t id, size_t off, size_t len);

/* The next completion, within 20 s. */
void wait_wc(struct end *e, struct ibv_cq *cq, struct ibv_wc *wc);
void expect(struct end *e, struct ibv_cq *cq, uint64_t id,
	    enum ibv_wc_status status);
void expect_none(struct end *e, struct ibv_cq *cq);
enum ibv_qp_state qp_state(struct end *e);

#endif
