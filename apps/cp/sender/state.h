/* SPDX-License-Identifier: MIT */
/*
 * state.h - the inside of the sender, for job.c (the order of things),
 * connect.c (which targets take part), fan.c (one call to all receivers),
 * lack.c (which blocks a target lacks) and round.c (a round of multicast).
 */
#ifndef CP_SENDER_STATE_H
#define CP_SENDER_STATE_H

#include <pthread.h>
#include <skein/rpc.h>

#include "cp/sender/job.h"
#include "cp/sender/source.h"

struct cp_job;

/* One receiver. */
struct cp_peer {
	struct cp_job *job;
	struct cp_result *result;
	const char *path;
	struct skein_conn *conn;
	bool live;     /* takes part */
	bool asked;    /* a call is under way */
	bool skip;     /* is not called by the next fan */
	bool finished; /* has been found right */
	uint64_t session;
	struct cp_status st;
	uint8_t *lacks; /* a bit a block */
	uint64_t lacking;
	/* of the call under way */
	int status;
	void *reply;
	size_t reply_len;
};

/* Not 0: on_state() may be under way, and must not outlast the job. */
#define CP_CLOSE_NS 1

struct cp_job {
	struct cp_job_attr attr;
	struct cp_err *err;
	struct cp_peer *peer;
	size_t n;
	struct cp_layout layout;
	struct cp_source source;
	uint64_t blocks;
	struct cp_totals totals;

	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool changed; /* a connection has another state */
};

uint64_t cp_now_ns(void);
void cp_nap_ns(uint64_t ns);
/* A pause before looking again at what began then: an eighth of the time it has
 * taken so far, so what ends is seen late by as little, and what takes long is
 * seldom asked for. */
void cp_nap_since(uint64_t begun_ns);

/* The peer takes no further part; the first reason stands. */
void cp_peer_fail(struct cp_peer *p, int status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
unsigned cp_job_live(const struct cp_job *job);

/* connect.c: connects to all; each that takes no part is failed. -ENOMEM, else
 * 0. */
int cp_connect(struct cp_job *job);
/* fan.c. */
/* A call to every live peer that is not skipped; waits for all answers. make()
 * writes the request; take() reads an answer, in the caller's thread: an error
 * fails the peer. Either may be NULL. */
struct cp_fan {
	enum cp_call call;
	const char *what; /* "preparing", for errors */
	size_t req_max, resp_max;
	void (*make)(struct cp_peer *p, struct bytes_out *out, void *arg);
	int (*take)(struct cp_peer *p, struct bytes_in *in, void *arg);
	void *arg;
};
/* -ENOMEM, else 0: each peer's own failure is its own. */
int cp_fan(struct cp_job *job, const struct cp_fan *fan);
/* Calls that say nothing but the session. */
int cp_fan_plain(struct cp_job *job, enum cp_call call, const char *what);
/* For answers that are a status: FAILED fails the peer. */
int cp_take_status(struct cp_peer *p, struct bytes_in *in, void *arg);
/* Asks for the status of all once. */
int cp_fan_status(struct cp_job *job);
/* ... until all are in one of the two phases. FAILED ones are failed. */
int cp_fan_until(struct cp_job *job, enum cp_phase a, enum cp_phase b,
		 const char *what);

/* lack.c: asks each target which blocks it has. all: no target has any. */
int cp_lack_ask(struct cp_job *job, bool all);
/* Those of a peer that the round gave it are there. */
void cp_lack_none(struct cp_peer *p, uint64_t blocks);
/* The blocks that some live target lacks, as ranges; these targets are the
 * members. -ENOMEM. */
int cp_lack_round(struct cp_job *job, struct cp_round *r,
		  struct cp_peer **members);

/* round.c: one round; members[i] has rank i + 1. 0 also when it failed
 * for a receiver's sake. */
int cp_job_round(struct cp_job *job, struct cp_round *r,
		 struct cp_peer **members);

#endif
