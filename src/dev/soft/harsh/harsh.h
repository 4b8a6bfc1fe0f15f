/* SPDX-License-Identifier: MIT */
/*
 * harsh.h - harsh mode: `soft` does all that a NIC may do (docs/soft.md, "Harsh
 * mode"). Nothing is executed by post_send(): every request is parked, begins
 * late, moves its bytes in pieces in any order, and completes later still, as
 * far as docs/design/semantics.md, section 2, lets a device go.
 *
 * What a QP's n-th request meets is drawn from the seed, the QP's number of
 * creation and n alone, so a seed repeats it; when it meets it is up to the
 * clock and the scheduler.
 *
 * A due step is taken by the first of these that comes: a poll, the next post,
 * or the control thread. Per QP under q->lock, all QPs under soft.lock.
 */
#ifndef SKEIN_DEV_SOFT_HARSH_H
#define SKEIN_DEV_SOFT_HARSH_H

#include "base/list.h"

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dev_caps;
struct shm_cq;
struct soft;
struct soft_cq;
struct soft_qp;
struct soft_wqe;

/* What a device in harsh mode has more; soft.harsh, NULL in any other. */
struct soft_harsh {
	uint64_t seed;
	uint64_t made;	      /* QPs so far; soft.lock */
	struct list_node qps; /* struct soft_harsh_qp; soft.lock */
	/* The earliest step of all, or earlier: polls compare the time. */
	_Atomic uint64_t due_ns;
	/* The control thread sleeps until then. A thread that adds an earlier
	 * step kicks it. */
	_Atomic uint64_t wake_ns;
	_Atomic uint64_t busy_ns; /* when something was last posted */
};

/* The places where time is lost, each with a roughness of its own. */
enum harsh_place {
	HARSH_START,  /* after the post */
	HARSH_PAUSE,  /* between pieces */
	HARSH_FINISH, /* all pieces are there, the receive is not complete */
	HARSH_CQE,    /* after the last effect at the peer */
	HARSH_BELL,   /* a completion is there, its event is not */
	HARSH_PLACES,
};

/* What a QP has more; soft_qp.harsh. Under its lock. */
struct soft_harsh_qp {
	struct list_node link;
	struct soft_qp *q;
	uint64_t rng;
	uint32_t weather_left; /* requests until it changes */
	uint8_t rough[HARSH_PLACES];
	uint64_t cqe_ns; /* of the request before: they complete in order */
	_Atomic uint64_t due_ns;
	/* The event of a receive completed at the peer, not counted yet. */
	struct shm_cq *bell_cq; /* NULL: none */
	uint32_t bell_event;
	int bell_fd;
	uint64_t bell_ns; /* ENV_NEVER: none */
};

/* Where the pieces of a request go in which order: cell i of n, aligned at the
 * peer, is the (mul * i + add) mod n-th. */
struct harsh_plan {
	uint64_t unit; /* bytes of a cell, a power of two */
	uint32_t n, next;
	uint32_t end; /* n, or where it is lost */
	uint32_t mul, add;
	uint32_t burst;	 /* cells between pauses */
	uint32_t dawdle; /* after this cell, or UINT32_MAX */
};

/* What a parked request has more; soft_wqe.h. */
struct soft_harsh_op {
	uint64_t rng;
	uint64_t due_ns;
	uint64_t deadline_ns; /* of what it waits for; ENV_NEVER */
	uint64_t len;
	uint8_t rough[HARSH_PLACES];
	bool begun;   /* checked; its pieces move */
	bool moved;   /* they have */
	bool whole;   /* in one go, alone: an error, or work for the peer */
	bool at_end;  /* its bytes move with its last step */
	bool plain;   /* the peer's memory is not mapped here */
	bool landed;  /* nothing at the peer changes any more */
	bool lost;    /* dropped on its way (UC, UD) */
	bool refused; /* the responder drops it: nothing moves (UC) */
	bool spared;  /* its end was put off once: overslept() */
	uint64_t cqe_ns;
	int status;
	struct harsh_plan plan;
};

/* harsh.c: seed_text is SKEIN_SOFT_HARSH's. 0, -EINVAL or -ENOMEM. */
int soft_harsh_open(struct soft *s, const char *seed_text);
void soft_harsh_close(struct soft *s);
/* Clears the caps that no NIC promises. */
void soft_harsh_caps(struct soft *s, struct dev_caps *caps);
/* For tests that repeat a case: what QPs made from now on meet follows from the
 * device's seed and no, whatever was made before. */
void soft_harsh_begin(struct soft *s, uint64_t no);
/* s->lock held */
int soft_harsh_qp_new(struct soft_qp *q);
void soft_harsh_qp_free(struct soft_qp *q);
/* For ibv_context_ops: takes the steps that are due, then polls. */
int soft_harsh_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
/* The control thread begins: it leaves the core that its creator may be pinned
 * to, and spin on. */
void soft_harsh_thread(void);
/* The control thread's round, s->lock held: when it should come again. */
uint64_t soft_harsh_round(struct soft *s);
/* A request is parked; q->lock held. */
void soft_harsh_post(struct soft_qp *q, struct soft_wqe *w);
/* Called when something that this QP waits for may be there; q->lock held. */
void soft_harsh_progress(struct soft_qp *q);
/* In SQD: has a request begun that is not done? */
bool soft_harsh_busy(const struct soft_qp *q);
/* Requests that wait for the file of a region fail with status. */
void soft_harsh_no_file(struct soft_qp *q, int status);
/* Parked requests are about to go: counts now the event that is owed to the
 * peer. */
void soft_harsh_hush(struct soft_qp *q);
/* finish_slot()'s event, later. */
void soft_harsh_bell(struct soft_qp *q, struct shm_cq *cq, int fd,
		     uint64_t life, bool solicited);
/* The event of a completion in c's ring, later; c->lock held. */
void soft_harsh_cq_bell(struct soft_cq *c, bool solicited);
/* When it returns no step of this device is inside local memory; s->lock
 * held. */
void soft_harsh_barrier(struct soft *s);

/* harsh/op.c: takes the steps of q that are due; q->lock held. When the next
 * one is. */
uint64_t soft_harsh_run(struct soft_qp *q, uint64_t now);
uint64_t soft_harsh_delay(uint64_t *rng, uint8_t rough);
uint64_t soft_harsh_draw(uint64_t *rng);

#endif
