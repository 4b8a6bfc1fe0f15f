/* SPDX-License-Identifier: MIT */
/*
 * program.h - a random program of verbs calls, made from a seed.
 *
 * The world: two devices (sides 0 and 1), up to PAIRS connections, each with
 * one QP and one lane of memory a side. A lane is registered once for each
 * kind of MR below. All that a program is stands in struct program: the same
 * seed gives the same program on every machine, and leaving out steps gives
 * another valid one (that is how a failing program is made small).
 *
 * What a program keeps clear of, because the specification leaves the result
 * open: see gen.c. Between two SYNCs nobody but the device
 * touches a lane, save that inline sources are overwritten after the post.
 */
#ifndef SKEIN_TESTS_CONFORM_PROGRAM_H
#define SKEIN_TESTS_CONFORM_PROGRAM_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define PAIRS 3
/* In place of a pair, where a shared receive queue is meant, or its memory; one
 * a side. Its other lane is ordinary memory. */
#define SRQ_PAIR PAIRS
#define LANES (PAIRS + 2)
#define CQS 3 /* a side */
#define STEPS 256
#define LIST 4 /* requests in one post */
#define SGES 3 /* that a QP is created with; posts try one more */
#define INLINE_MAX 64
#define LIST_DEPTH 8 /* the deepest queue asked for */

/* A lane. Sources, what READs and atomics bring, what the peer's one-sided
 * requests name, receives: apart, so that the two directions of a connection
 * do not race. */
#define LANE 8192
#define SRC_AT 0
#define SRC_LEN 1536
#define INL_AT 1536
#define INL_LEN 512
#define DST_AT 2048
#define DST_LEN 1536
#define REM_AT 3584
#define REM_LEN 2048
#define RCV_AT 5632
#define RCV_LEN 2560
#define MSG_MAX 1100
/* Datagrams: bytes, with the 40 before them, and places for receives. */
#define DGRAM_MAX 64
#define DGRAM_GRH 40
#define DGRAM_ROOM (DGRAM_GRH + DGRAM_MAX)
#define DGRAM_SLOTS 24

enum mr_kind {
	MR_ALL,
	MR_LOCAL,    /* no remote right */
	MR_RO,	     /* remote READ, not even written locally */
	MR_WO,	     /* remote WRITE */
	MR_NOATOMIC, /* all but atomics */
	MR_SHORT,    /* all rights, SHORT_AT..SHORT_END only */
	MR_FOREIGN,  /* all rights, another protection domain */
	MR_MORTAL,   /* all rights until a DEREG */
	MR_KINDS,
};

#define SHORT_AT 256
#define SHORT_END 6656

struct mr_def {
	const char *name;
	int access;
	bool foreign;
	uint32_t at, end;
};

extern const struct mr_def mr_defs[MR_KINDS];

struct piece {
	uint8_t mr;  /* enum mr_kind */
	bool bad;    /* a key that was never issued */
	uint32_t at; /* in the lane */
	uint32_t len;
};

struct wr {
	int op;	       /* enum ibv_wr_opcode; -1 in a receive */
	uint8_t flags; /* enum ibv_send_flags */
	uint8_t n;     /* pieces */
	struct piece sge[SGES + 1];
	struct piece to; /* in the peer's lane; len unused */
	uint32_t imm;
	uint64_t a, b; /* add or compare; swap */
	uint8_t dest;  /* UD: to the other side's QP of this pair */
	bool bad_qkey;
};

enum step_kind {
	STEP_SEND, /* wr[n] as one list */
	STEP_RECV,
	STEP_POLL,	/* arg: entries; of CQ cq */
	STEP_ARM,	/* arg: solicited only; CQ cq */
	STEP_STATE,	/* the QP to state arg */
	STEP_CONNECT,	/* both QPs through RESET to RTS; side 1 to state arg */
	STEP_DEREG,	/* MR_MORTAL of this side */
	STEP_REG,	/* again */
	STEP_SYNC,	/* wait until all is done, compare */
	STEP_SRQ_RECV,	/* wr[n] to the SRQ of this side; pair: SRQ_PAIR */
	STEP_SRQ_LIMIT, /* arg: the limit */
	STEP_SRQ_QUERY,
};

struct step {
	uint8_t kind; /* enum step_kind */
	uint8_t pair, side, cq;
	uint8_t n;
	int arg;
	struct wr wr[LIST];
};

struct qp_cfg {
	uint8_t scq, rcq;
	uint8_t depth_s, depth_r;
	bool sig_all, single;
	bool srq;   /* receives from its side's SRQ */
	int access; /* remote rights of the QP */
};

/* Receives have places of their own in its lane, each for once. */
struct srq_cfg {
	bool on;
	bool plain; /* memory that is no shared file */
	uint8_t depth;
	uint16_t len; /* of messages, as a rule */
};

struct pair_cfg {
	enum ibv_qp_type type;
	enum ibv_mtu mtu;
	uint8_t rnr_retry; /* 7: for ever */
	bool plain;	   /* memory that is no shared file */
	struct qp_cfg qp[2];
};

struct program {
	uint64_t seed;
	int pairs;
	struct pair_cfg cfg[PAIRS];
	struct srq_cfg srq[2];
	int n;
	struct step step[STEPS];
};

/* What the programs are made of. */
struct features {
	bool tame;	/* nothing fails: no wrong request, no state but RTS, no
		    * DEREG, no finite patience, no full queue */
	unsigned types; /* 1 << enum ibv_qp_type; 0: all */
	bool srq;	/* all have shared receive queues; else each eighth */
	bool no_srq;	/* none has */
	bool rxe;	/* without what hangs rxe, or its kernel: gen.c */
};

void program_make(struct program *p, uint64_t seed, const struct features *f);
void program_print(const struct program *p, FILE *out);
void step_print(const struct step *s, FILE *out);
const char *op_name(int op);
const char *state_name(int state);
const char *status_name(int status);

/* What lanes hold at the start. */
uint8_t lane_byte(uint64_t seed, int pair, int side, uint32_t at);

_Static_assert(DGRAM_SLOTS *DGRAM_ROOM <= RCV_LEN, "receives of UD");

/* Which lane receives to pair's QPs, or to an SRQ, name. */
static inline int lane_of(const struct program *p, int pair, int side)
{
	return pair == SRQ_PAIR && p->srq[side].plain ? SRQ_PAIR + 1 : pair;
}

static inline bool step_is_srq(const struct step *s)
{
	return s->kind >= STEP_SRQ_RECV;
}

static inline bool op_is_message(int op)
{
	return op == IBV_WR_SEND || op == IBV_WR_SEND_WITH_IMM ||
	       op == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static inline bool op_is_send(int op)
{
	return op == IBV_WR_SEND || op == IBV_WR_SEND_WITH_IMM;
}

static inline bool op_has_imm(int op)
{
	return op == IBV_WR_SEND_WITH_IMM || op == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static inline bool op_is_atomic(int op)
{
	return op == IBV_WR_ATOMIC_CMP_AND_SWP ||
	       op == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* Brings bytes into local memory. */
static inline bool op_fetches(int op)
{
	return op == IBV_WR_RDMA_READ || op_is_atomic(op);
}

static inline uint32_t wr_len(const struct wr *w)
{
	uint32_t len = 0;
	int i;

	for (i = 0; i < w->n; i++)
		len += w->sge[i].len;
	return len;
}

#endif
