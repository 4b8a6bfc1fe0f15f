/* SPDX-License-Identifier: MIT */
/*
 * run.h - carries a program out on a device, through dev.h.
 *
 * The world (devices, memory, keys) stays from program to program; queues are
 * new in each. One thread does all; the device may have its own.
 */
#ifndef SKEIN_TESTS_CONFORM_RUN_H
#define SKEIN_TESTS_CONFORM_RUN_H

#include "check.h"
#include "dev/dev.h"
#include "env/env.h"

struct lane {
	uint8_t *mem;
	int fd;
	struct ibv_mr *mr[MR_KINDS];
	struct ibv_mr dead; /* the keys of MR_MORTAL when it is gone */
	struct ibv_mw *mw;  /* by which peers reach MR_MORTAL, or NULL */
};

struct node {
	struct skein_env *env;
	struct dev *dev;
	struct ibv_pd *pd, *foreign;
	struct ibv_ah *ah; /* to the other node */
	struct lane lane[LANES];
	/* of one program */
	struct ibv_comp_channel *ch;
	struct ibv_cq *cq[CQS];
	struct ibv_qp *qp[PAIRS];
	struct dev_qp_addr addr[PAIRS];
	struct ibv_srq *srq;
};

/* One more connection. When its atomics on ordinary memory have completed, all
 * that QPs in ERR had under way has arrived. */
struct broom {
	struct ibv_cq *cq[2];
	struct ibv_qp *qp[2];
	struct ibv_mr *mr[2];
	uint64_t word[2][2]; /* target, result */
};

struct world {
	struct skein_env *env;
	struct node node[2];
	struct broom broom;
	struct features features;
	unsigned quirks;
	uint32_t psn;
	uint64_t patience_ns; /* for what must come */
	uint64_t round;	      /* harsh mode: what else a program meets */
	struct dev_qp_opts opts;
	FILE *complain; /* NULL, or where a failed epoch is told */
};

/* Called for each epoch that was explained. */
struct audience {
	void (*epoch)(void *arg, const struct epoch *e);
	void *arg;
};

struct outcome {
	bool ok;
	unsigned used;
	int epochs;
	granted_all granted;
	char why[240];
};

/* spec, spec2: as for dev_open(). 0, or -1 after a message on stderr. */
int world_open(struct world *w, const char *spec, const char *spec2);
void world_close(struct world *w);
/* A program begins: what it meets in harsh mode follows from the device's seed,
 * its own and the round, not from what was run before. */
void world_begin(struct world *w, uint64_t seed);
/* Registers one kind of a lane. */
int lane_reg(struct node *n, int i, int kind);
/* The peer's key of a lane's kind. */
uint32_t lane_rkey(const struct lane *l, int kind);
/* Opens MR_MORTAL to peers by the lane's window, or shuts it again; nothing where
 * there is no window. 0 or a negative errno. */
int lane_show(struct world *w, int side, int lane, bool open);
/* How often this side has got an event twice, because a thread of the device was
 * stopped between the event and its count (dev/soft/cq/chan.c). */
uint32_t world_spares(const struct node *n);
/* Both ends have seen all that was sent before. 0 or a negative errno. */
int world_sweep(struct world *w);
/* Makes wr, a READ by side, one of a word that no program uses. */
void world_peek(struct world *w, int side, struct ibv_sge *g,
		struct ibv_send_wr *wr);
/* run_ud.c: the address of a datagram; what it carries, for the model; what has
 * come. */
#define UD_QKEY 0x1234u
void ud_address(struct world *w, const struct step *s, const struct wr *r,
		struct ibv_send_wr *out);
void ud_record(struct world *w, const struct program *p, const struct step *s,
	       struct epoch *e);
void ud_came(struct world *w, const struct program *p, const struct ibv_wc *wc,
	     struct ev *e);
/* run_srq.c: one side's SRQ; nothing is there where a program has none. */
int srq_open(struct node *n, const struct srq_cfg *c, struct granted *g);
/* When the QPs are gone. 0 or a negative errno. */
int srq_close(struct node *n);
/* Must be refused as long as there are QPs. */
int srq_close_early(struct world *w, const struct program *p);
int srq_step(struct node *n, const struct step *s, struct ev *e);
/* The QP of a receive's completion; PAIRS: none of this side's. */
int srq_pair_of(const struct node *n, uint32_t qpn);
/* Takes an asynchronous event of a QP or of the SRQ: false, there is none. */
bool srq_async(struct node *n, struct ev *e);
/* With print, what happened goes there as it happens. */
void program_run(struct world *w, const struct program *p, FILE *print,
		 const struct audience *to, struct outcome *o);

#endif
