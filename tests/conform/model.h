/* SPDX-License-Identifier: MIT */
/*
 * model.h - the reference model: what the InfiniBand specification lets one
 * connection do. Program in, set of allowed outcomes out.
 *
 * One struct m_pair is the two QPs of a connection, with their memory. It
 * moves by actions, of which several may be possible at a time: the program's
 * next step, or something that a device does in its own time (enum m_act).
 * An outcome is allowed when some order of actions leads to it; search.c looks
 * for that order. Nothing here knows of any device's code.
 */
#ifndef SKEIN_TESTS_CONFORM_MODEL_H
#define SKEIN_TESTS_CONFORM_MODEL_H

#include "trace.h"

#define M_QUEUE 64
#define MSRQ_RECVS 192

/* A byte of memory: its value; or M_ANY, which the specification leaves open;
 * or M_OR: the one of bits 0 to 7 or that of bits 16 to 23. */
typedef uint32_t m_byte;
#define M_ANY 0x100u
#define M_OR 0x200u
#define M_OTHERS 0x400u /* of an SRQ's memory: this pair has not written it */

/* Deviations that a device is known and documented to have. */
enum m_quirk {
	/* Harsh mode: requests behind one that fails have begun (which
	 * semantics.md allows of every device); a READ may be flushed though
	 * its bytes have come. */
	M_QUIRK_HARSH = 1 << 0,
	/* rxe's, of Linux 6.1. A queue takes more than was granted, and a slot
	 * is free when its request is done, polled or not. */
	RXE_RING = 1 << 1,
	/* Requests that post_send refuses before RTS (EINVAL, *bad_wr NULL)
	 * stay in the queue, and are carried out after RTS. */
	RXE_GHOST = 1 << 2,
	/* A READ on UC or UD, or inline, is accepted; on UC and UD it fails
	 * with LOC_QP_OP_ERR. An atomic that is not 8 bytes or not aligned is
	 * EINVAL. */
	RXE_FORM = 1 << 3,
	/* A bad lkey is LOC_QP_OP_ERR; a bad or too short receive too, at its
	 * requester REM_OP_ERR. */
	RXE_NAMES = 1 << 4,
	/* A failed send breaks a UC or UD QP: ERR, not SQE. */
	RXE_NO_SQE = 1 << 5,
	/* A UC request completes before its message has arrived. */
	RXE_EARLY = 1 << 6,
	/* Armed for solicited completions, a CQ makes an event for what bears
	 * the bit, and for a flushed receive; not for a failed request or
	 * receive. */
	RXE_EVENTS = 1 << 7,
	/* The first packets of a request with bad later pieces are sent. */
	RXE_PACKETS = 1 << 8,
	/* A WRITE_WITH_IMM of one packet with a bad rkey takes its receive,
	 * which completes with REM_ACCESS_ERR. */
	RXE_TAKES = 1 << 9,
	/* A message too long for its receive breaks UC and UD QPs; the receive
	 * is LOC_QP_OP_ERR. */
	RXE_SHORT = 1 << 10,
	/* UC: behind a WRITE_WITH_IMM of several packets that finds no receive
	 * nothing arrives any more, until RESET. */
	RXE_DEAF = 1 << 11,
	/* From RESET there is no way to ERR (EINVAL). */
	RXE_NO_RESET_ERR = 1 << 12,
	M_QUIRK_RXE = (1 << 13) - (1 << 1),
	/* The link between hosts: requests are on their way for a time
	 * (M_FLY, M_SENT), and one of UC completes before that. */
	M_QUIRK_LINK = 1 << 13,
};

enum m_act {
	M_STEP,	     /* the program goes on */
	M_EXEC,	     /* the next request of a side is carried out */
	M_ACK,	     /* its requester learns how it went */
	M_BREAK,     /* a responder's QP breaks on what it was asked */
	M_LATE,	     /* carried out before its local buffers are looked at */
	M_OTHER,     /* two things wrong: the other one is named */
	M_LOST,	     /* carried out, but the answer is lost */
	M_DROP,	     /* UC: the message is lost on its way */
	M_CUT,	     /* a READ: its region goes before its last byte came */
	M_CUT_HERE,  /* the same, of its own region */
	M_STOP,	     /* SQD: the next request had not been started */
	M_GONE,	     /* it took an SRQ's receive; RESET takes the completion */
	M_GONE_LONG, /* and that was too short */
	M_GONE_BAD,  /* and that was bad */
	M_WAKE, /* RXE_GHOST: a timer of the QP's last life tries a request */
	M_FLY,	/* sent before its QP broke or was reset: it arrives */
	M_SENT, /* sent before its own region went: it arrives */
	M_ACTS,
};

/* MR_MORTAL has an even number while it lives. */
#define M_LIFE_DEAD(life) ((life)&1)
#define M_EVER (UINT32_MAX - 1)

struct m_cqe {
	uint64_t id;
	int status, opcode;
	bool has_len, has_imm, solicited;
	bool optional; /* RESET may have taken it back */
	uint32_t byte_len, imm;
	uint32_t pos; /* of its request in its queue */
};

struct m_req {
	uint64_t id;
	const struct wr *w;
	uint32_t pos;
	int status;	  /* -1: not carried out */
	uint32_t life[2]; /* of MR_MORTAL here and there when posted: own_life
			   * here, shown_life there */
	m_byte inl[INLINE_MAX];
};

struct msrq_sure;

struct m_side {
	enum ibv_qp_state state;
	uint64_t history; /* of what was carried out, for the search */
	bool linked;	  /* connected with the peer's present life */
	bool fault;	  /* will break */
	bool deaf;	  /* RXE_DEAF: it drops all that comes */
	bool stuck;	  /* a request failed: none behind it starts */
	/* Which key MR_MORTAL has for this side's own requests, and which for
	 * its peer's: that of a window is gone first (EV_HIDE). */
	uint32_t own_life, shown_life;
	bool sig_all;
	int held; /* requests from here on wait for the end of SQD */
	int n, exec, ack;
	struct m_req sq[M_QUEUE];
	/* M_QUIRK_LINK: what may be on its way from a QP that is no more */
	int n_fly, flown;
	struct m_req fly[M_QUEUE];
	int rn, rhead;
	struct m_req rq[M_QUEUE];
	uint32_t posted[2], freed[2]; /* send queue, receive queue */
	struct m_cqe out[2][2 * M_QUEUE];
	int n_out[2], taken[2];
	m_byte mem[LANE];
	/* Where receives are an SRQ's (msrq.c): rq is what this QP took in this
	 * epoch, in order, and those before rn have been posted. */
	bool srq;
	bool srq_open; /* receives that were not taken may hold anything */
	int srq_seen;  /* posted so far */
	int n_took;
	const struct msrq_sure *sure;
	int resets; /* that are still to come in this epoch */
};

/* What is known of how full an SRQ is. */
struct msrq_sure {
	/* of the receives posted before the k-th so many are not taken by the
	 * end of the epoch; less the slack of broken QPs */
	int n[MSRQ_RECVS + 1];
	int slack;
	/* the shortest of them, taken or not */
	uint32_t shortest[MSRQ_RECVS + 1];
};

/* Memory of SRQs, by side. */
typedef m_byte m_srq_mem[2][LANE];

struct m_pair {
	const struct program *p;
	int pair;
	unsigned quirks;
	struct granted granted[2];
	struct m_side s[2];
	bool thorough;	   /* the last look: the search may take its time */
	bool sol[2][CQS];  /* a solicited completion was polled there */
	unsigned used;	   /* 1 << enum m_act: what the accepted order needed */
	m_srq_mem srq_mem; /* last: copied only where there is one */
};

void m_init(struct m_pair *m, const struct program *p, int pair,
	    const struct granted granted[2], unsigned quirks);
/* May side d do this now? */
bool m_can(const struct m_pair *m, int d, enum m_act act);
void m_do(struct m_pair *m, int d, enum m_act act);
/* The program's step, or a marker: false when the device's answer to the call
 * is not the specification's. */
bool m_step(struct m_pair *m, const struct ev *e);
/* A completion was polled: false when it is not the next one of its queue. */
bool m_poll(struct m_pair *m, const struct ev *e, bool *solicited);
/* Is it this completion? */
bool m_same(const struct m_pair *m, const struct m_cqe *c, const struct ev *e);
/* To ERR, with what is queued; to RESET. */
void m_to_err(struct m_pair *m, int d);
void m_to_reset(struct m_pair *m, int d);
/* An epoch ends: what is done is forgotten. */
void m_tidy(struct m_pair *m);

/* search.c: is there an order of actions that explains the epoch? Moves m to
 * its end; else leaves it, and says the first thing that cannot be. */
bool m_explain(struct m_pair *m, const struct epoch *e, char *why,
	       size_t why_len);

#endif
