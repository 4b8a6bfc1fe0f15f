/* SPDX-License-Identifier: MIT */
/*
 * trace.h - what a device did with a program: one epoch from SYNC to SYNC,
 * in the order in which the one thread of the program saw it.
 */
#ifndef SKEIN_TESTS_CONFORM_TRACE_H
#define SKEIN_TESTS_CONFORM_TRACE_H

#include "program.h"

#define EPOCH_EVENTS 512

enum ev_kind {
	EV_STEP, /* a step of the program: ret, n requests accepted */
	EV_WC,
	EV_EVENT,     /* a completion event: side, cq */
	EV_MARK_SEND, /* the runner's marker: a zero-byte one-sided request */
	EV_MARK_RECV, /* a receive without pieces */
	EV_MARK_ERR,  /* ERR once more */
	EV_ASYNC,     /* n: enum ibv_event_type, of a QP or of SRQ_PAIR */
	EV_HIDE,      /* of a DEREG: peers' key is gone, the region not yet */
};

struct ev {
	uint8_t kind;
	uint8_t pair, side, cq;
	int ret;
	int n;
	const struct step *step;
	uint64_t id; /* of a marker; of STEP_SRQ_QUERY: the limit, and n is
		      * max_wr */
	struct {
		uint64_t id;
		int status, opcode;
		uint32_t byte_len, imm, flags;
		uint32_t src_qp;
		bool grh_ok; /* UD: the 40 bytes name the sender's port */
		uint8_t data[DGRAM_MAX]; /* UD: what came behind them */
		bool qp_ok; /* qp_num is that of the QP which wr_id names */
	} wc;
};

/* A datagram as it was posted. */
struct dgram {
	uint64_t id;
	int ev; /* of its post */
	uint32_t len;
	uint8_t data[DGRAM_MAX];
};

#define DGRAMS 128

struct epoch {
	int n;
	int dgrams;
	struct dgram dgram[DGRAMS];
	uint32_t qpn[PAIRS][2];
	struct ev ev[EPOCH_EVENTS];
	int state[PAIRS][2]; /* at the end */
	/* How far the lane is the peer's no more: what it held when a step to
	 * ERR or RESET had returned. */
	bool shut[PAIRS][2];
	uint8_t then[PAIRS][2][LANE - REM_AT];
	uint8_t mem[PAIRS][2][LANE];
	uint8_t srq_mem[2][LANE];
};

/* What create_qp gave; in the place of SRQ_PAIR, create_srq. */
struct granted {
	uint32_t send_wr, recv_wr, send_sge, recv_sge, inl;
};

typedef struct granted granted_all[PAIRS + 1][2];

/* wr_id: which request it is. The low 32 bits are unique in their queue. */
static inline uint64_t id_make(int pair, int side, bool recv, uint32_t no)
{
	return (uint64_t)pair << 40 | (uint64_t)side << 36 |
	       (uint64_t)recv << 32 | no;
}

static inline int id_pair(uint64_t id)
{
	return (int)(id >> 40);
}

static inline int id_side(uint64_t id)
{
	return (int)(id >> 36 & 1);
}

static inline bool id_recv(uint64_t id)
{
	return id >> 32 & 1;
}

/* Of the k-th request of a step; the step's place is its name. */
static inline uint32_t id_no(const struct program *p, const struct step *s,
			     int k)
{
	return (uint32_t)(s - p->step) * 8 + (uint32_t)k;
}

#define ID_MARK 0x80000000u

void ev_print(const struct ev *e, FILE *out);

#endif
