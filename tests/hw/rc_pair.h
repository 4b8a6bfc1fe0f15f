/* SPDX-License-Identifier: MIT */
/*
 * rc_pair.h - the rig of the device tests: two QPs of one process, on the
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
#define UD_QKEY 0x11223344
#define WAIT_NS (20 * 1000 * 1000 * 1000ull)

struct end {
	struct dev *dev;
	struct dev_stats st;
	struct ibv_pd *pd;
	bool lent; /* the PD is not ours */
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

/* One end, its address filled; both, connected. RC and UC ends are in INIT, UD
 * ends in RTS. */
void end_open(struct end *e, struct dev *dev, uint32_t psn);
void end_open_as(struct end *e, struct dev *dev, uint32_t psn,
		 enum ibv_qp_type type);
/* In the PD of an SRQ, which stays its owner's. */
void end_open_srq(struct end *e, struct dev *dev, uint32_t psn,
		  struct ibv_srq *srq, struct ibv_pd *pd);
void end_close(struct end *e);
void pair_open(struct pair *p, const struct dev_qp_opts *opts);
void pair_open_as(struct pair *p, enum ibv_qp_type type,
		  const struct dev_qp_opts *opts);
void pair_connect(struct pair *p, const struct dev_qp_opts *opts);
void pair_close(struct pair *p);

unsigned char *mem(struct end *e);
void fill(struct end *e, size_t off, size_t len, unsigned seed);
struct ibv_sge sge(struct end *e, size_t off, size_t len);
/* A signalled one-sided request into the peer's memory. */
struct ibv_send_wr rdma(enum ibv_wr_opcode op, uint64_t id,
			struct ibv_sge *list, struct end *peer, size_t off);
void post(struct end *e, struct ibv_send_wr *wr);
void post_recv(struct end *e, uint64_t id, size_t off, size_t len);

/* Ends the program as skipped (77) unless both devices can do it. */
void need(bool ability_a, bool ability_b, const char *what);

/* The next completion, within 20 s. */
void wait_wc(struct end *e, struct ibv_cq *cq, struct ibv_wc *wc);
void expect(struct end *e, struct ibv_cq *cq, uint64_t id,
	    enum ibv_wc_status status);
/* Posts a request and takes its completion, a success. */
void carry_out(struct end *e, struct ibv_send_wr *wr);
/* wc is that of a receive which a WRITE with immediate has used up. */
void check_write_imm(const struct ibv_wc *wc, uint64_t id, uint32_t len,
		     uint32_t imm);
/* Is it soft's harsh mode? It loses what is sent unreliably, but a request
 * that has completed has arrived or is lost; and it completes late. */
bool harsh(void);
/* Sends and takes what arrives; where it may be lost, until it does. */
void deliver(struct end *from, struct ibv_send_wr *wr, struct end *to,
	     struct ibv_wc *wc);
void expect_none(struct end *e, struct ibv_cq *cq);
/* Until the byte at off of its memory, written by the device, is value. */
void wait_byte(struct end *e, size_t off, unsigned char value);
void wait_readable(int fd);
enum ibv_qp_state qp_state(struct end *e);

#endif
