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

/* A byte of memory: its value; or M_ANY, which the specification leaves open;
 * or M_OR: the one of bits 0 to 7 or that of bits 16 to 23. */
typedef uint32_t m_byte;
#define M_ANY 0x100u
#define M_OR 0x200u

/* Deviations that a device is known and documented to have. */
enum m_quirk {
	M_QUIRK_RXE = 1 << 0,
	/* Harsh mode: behind a request that fails others have begun (which
	 * semantics.md allows of every device); a READ whose bytes have come
	 * may yet be flushed. */
	M_QUIRK_HARSH = 1 << 1,
};

enum m_act {
	M_STEP,	 /* the program goes on */
	M_EXEC,	 /* the next request of a side is carried out */
	M_ACK,	 /* its requester learns how it went */
	M_BREAK, /* a responder's QP breaks on what it was asked */
	M_LATE,	 /* carried out before its local buffers are looked at */
	M_OTHER, /* two things wrong: the other one is named */
	M_LOST,	 /* carried out, but the answer is lost */
	M_DROP,	 /* UC: the message is lost on its way */
	M_CUT,	 /* a READ whose region goes before its last byte came */
	M_STOP,	 /* SQD: the next request had not been started */
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
	uint32_t life[2]; /* of MR_MORTAL here and there when posted */
	m_byte inl[INLINE_MAX];
};

struct m_side {
	enum ibv_qp_state state;
	uint64_t history; /* of what was carried out, for the search */
	bool linked;	  /* connected with the peer's present life */
	bool fault;	  /* will break */
	bool stuck;	  /* a request failed: none behind it starts */
	bool mortal_dead;
	uint32_t mortal_life; /* which key MR_MORTAL has */
	bool sig_all;
	int held; /* requests from here on wait for the end of SQD */
	int n, exec, ack;
	struct m_req sq[M_QUEUE];
	int rn, rhead;
	struct m_req rq[M_QUEUE];
	uint32_t posted[2], freed[2]; /* send queue, receive queue */
	struct m_cqe out[2][2 * M_QUEUE];
	int n_out[2], taken[2];
	m_byte mem[LANE];
};

struct m_pair {
	const struct program *p;
	int pair;
	unsigned quirks;
	struct granted granted[2];
	struct m_side s[2];
	bool sol[2][CQS]; /* a solicited completion was polled there */
	unsigned used;	  /* 1 << enum m_act: what the accepted order needed */
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
