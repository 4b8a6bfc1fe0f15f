/* SPDX-License-Identifier: MIT */
/*
 * ud.h - what a UD QP has more than others: receives that any number of QPs of
 * any number of processes claim (claim.h), and destinations.
 *
 * The sender executes, as on RC, once it knows the place of the destination's
 * QP. Until then its messages are kept in a copy, and the requests are done: a
 * datagram's completion says that the NIC has taken it over, no more. Nothing
 * of a UD QP waits for a peer, hence no peer, dead or stopped, holds a send
 * queue up. docs/soft.md, "Claimed slots".
 *
 * Locks: the sending side, destinations included, under q->lock; posting
 * receives under q->rq_lock; reaping them under the receive CQ's lock.
 */
#ifndef SKEIN_DEV_SOFT_UD_H
#define SKEIN_DEV_SOFT_UD_H

#include "dev/soft/ud/ah.h"
#include "dev/soft/srq/claim.h"
#include "dev/soft/srq/outs.h"
#include "dev/soft/qp/qp.h"

#define UD_MTU 4096u
#define UD_DESTS 256u	  /* buckets */
#define UD_DEST_MAX 1024u /* destinations that are remembered */
#define UD_XLATS 4u	  /* regions of receives, a destination */
#define UD_WAITING 1024u  /* messages kept for one destination */

/* A message: of a work request, or kept. */
struct ud_msg {
	const struct ibv_sge *sge;
	int num_sge;
	uint32_t len;
	uint32_t qkey;
	uint32_t imm;
	bool with_imm;
	bool solicited;
	uint64_t group; /* the bit of the group it is for, or 0 */
	bool v4;
	unsigned char grh[DEV_GRH];
};

/* One that is kept. */
struct ud_kept {
	struct ud_kept *next;
	union ibv_gid gid; /* of a group */
	struct ud_msg m;
	struct ibv_sge sge;
	unsigned char data[];
};

enum ud_dest_state {
	UD_DEST_NEW,   /* the control thread is to dial */
	UD_DEST_DIALS, /* it does */
	UD_DEST_READY, /* its place is known */
	UD_DEST_NOBODY /* no such QP: messages to it are dropped until
		        * again_ns */
};

/* Another UD QP, by its number: all GIDs are of this host. */
struct ud_dest {
	struct ud_dest *next; /* in its bucket */
	struct list_node age; /* in soft_ud.age */
	struct list_node busy;
	uint32_t qpn;
	enum ud_dest_state state;
	uint64_t again_ns;
	/* READY: */
	struct soft_peer *peer; /* a reference */
	struct shm_qp *far;
	struct soft_bell *bell; /* a reference, or NULL */
	_Atomic uint32_t asked_for;
	/* while gate_ok is its gate: */
	uint32_t gate_ok;
	uint32_t qkey;
	uint32_t pd;
	uint32_t slots, stride, sges;
	struct shm_claim *claim;
	struct shm_srq *srq; /* the claims are this SRQ's; or NULL */
	char *rq;	     /* the receives */
	uint32_t idx;	     /* in its attn[] */
	uint32_t dest;	     /* its name among the QPs of the SRQ */
	_Atomic uint32_t *ready;
	struct shm_cq *cq;
	uint32_t group; /* of ready, there */
	struct soft_xlat xlat[UD_XLATS];
	/* what waits for its place, or for a region to be mapped */
	struct ud_kept *kept, **kept_end;
	uint32_t n_kept;
};

struct soft_ud {
	/* receiving */
	struct claim claim;
	struct soft_outs outs;
	uint64_t claim_off;
	/* with an SRQ instead, under soft_srq_ud.lock: ud/srq.c */
	struct soft_qp *q;
	struct soft_ud *next; /* in its bucket; joined: it is in one */
	bool joined;
	bool fault;    /* a receive of it has failed */
	uint32_t dest; /* how its senders name it: shm_srq_id() */
	/* completed and not polled, by soft_srq_ud.next */
	uint32_t first_done, last_done, n_done;
	/* sending */
	struct ud_dest *dests[UD_DESTS];
	struct ud_dest *last;
	struct list_node age; /* destinations, the last one used at the end */
	uint32_t n_dests;
	/* messages to groups; the control thread looks up the members */
	struct ud_kept *cast, **cast_end;
	uint32_t n_cast;
	struct list_node groups; /* it is attached to: mcast.c; soft.lock */
	struct list_node busy;	 /* with something kept, or to be dialled */
	_Atomic uint32_t waits;	 /* destinations in busy */
};

/* ud.c: with its QP */
int soft_ud_new(struct soft_qp *q);
void soft_ud_free(struct soft_qp *q);
/* Its claims in the NIC file. s->lock held. */
int soft_ud_place(struct soft *s, struct soft_qp *q);
void soft_ud_unplace(struct soft *s, struct soft_qp *q, bool keep_area);
/* The gate is shut: no new claims. q->lock held. */
void soft_ud_shut(struct soft_qp *q);
/* Waits until nobody is inside a receive of q any more; locked: s->lock is
 * held. -EBUSY when one has stopped there. */
int soft_ud_quiesce(struct soft_qp *q, bool locked);
bool soft_ud_quiet(struct soft_qp *q);
/* The process of this claimant is gone. s->lock held. */
void soft_ud_swept(struct soft *s, uint32_t claimant);
/* Has a receive failed? */
bool soft_ud_fault(struct soft_qp *q);

/* ud/recv.c */
int soft_ud_post_recv(struct soft_qp *q, struct ibv_recv_wr *wr,
		      struct ibv_recv_wr **bad);
/* As soft_reap(). *seen is what ready was before there was nothing. */
bool soft_ud_reap(struct soft_qp *q, struct soft_cqe *e,
		  _Atomic uint32_t *ready, uint32_t *seen);
/* Back to the beginning; the receive CQ's lock is held. */
void soft_ud_reset_recv(struct soft_qp *q);
/* Gives what a dead claimant has claimed back to be claimed. True: a receive is
 * complete, and nobody may have rung for it. s->lock held. */
bool soft_ud_sweep_recv(struct soft_qp *q, uint32_t claimant);

/* The completion of a receive that took a message. */
void soft_ud_fill(const struct shm_slot *slot, uint32_t len,
		  struct soft_cqe *e);

/* ud/srq.c: UD QPs on an SRQ, at their owner */
int soft_ud_srq_new(struct soft_srq *r);
void soft_ud_srq_free(struct soft_srq *r);
/* join: from here on q gets the messages for its name of this life. leave: no
 * more, and what was not polled is forgotten. */
void soft_ud_srq_join(struct soft_qp *q);
void soft_ud_srq_leave(struct soft_qp *q);
/* As soft_reap(). */
bool soft_ud_srq_reap(struct soft_qp *q, struct soft_cqe *e);
/* Would it? Of those that were handed out. */
bool soft_ud_srq_due(struct soft_qp *q);
bool soft_ud_srq_fault(struct soft_qp *q);
/* Is a UD or DC sender inside that claimed before position since, for the QP
 * named dest, or (0) for any? */
bool soft_ud_srq_busy(const struct soft_srq *r, uint32_t dest, uint64_t since);
/* Waits for those; as soft_ud_quiesce(), s->lock held. */
int soft_ud_srq_quiesce(struct soft_srq *r);
void soft_ud_srq_swept(struct soft_srq *r, uint32_t claimant);
/* What was given back unused is posted again. s->lock held. */
void soft_ud_srqs_service(struct soft *s);

/* ud/send.c; q->lock held */
int soft_ud_exec(struct soft_qp *q, const struct ibv_send_wr *wr);
/* Only what is wrong at the requester's own end: 0 or a status. */
int soft_ud_look(struct soft_qp *q, const struct ibv_send_wr *wr);
/* 0: delivered or dropped; -EAGAIN: a region is being fetched; -ENOENT: that
 * QP is not there any more. */
int soft_ud_deliver(struct soft_qp *q, struct ud_dest *d,
		    const struct ud_msg *m);

/* ud/dest.c; q->lock held, and soft.lock from soft_ud_service() on */
struct ud_dest *soft_ud_dest(struct soft_qp *q, uint32_t qpn);
/* A message on its way to a QP: delivered, kept, or dropped. */
void soft_ud_to(struct soft_qp *q, uint32_t qpn, const struct ud_msg *m);
/* The same to a group, by the control thread. */
void soft_ud_cast(struct soft_qp *q, const union ibv_gid *gid,
		  const struct ud_msg *m);
/* Keeps a copy; drops where there are too many. */
void soft_ud_keep(struct soft_qp *q, struct ud_dest *d, const struct ud_msg *m);
/* There is no such QP: drops what is kept, and for a while what is sent. */
void soft_ud_nobody(struct soft_qp *q, struct ud_dest *d);
/* Dials for new ones, delivers what is kept. */
void soft_ud_service(struct soft_qp *q);
/* The same for a timer: when to come back. */
uint64_t soft_ud_timer(struct soft_qp *q, uint64_t now);
/* p is dead. */
void soft_ud_bereft(struct soft_qp *q, struct soft_peer *p);
/* p cannot be reached for a region now: what waits for it is lost. */
void soft_ud_unreached(struct soft_qp *q, struct soft_peer *p);
/* The mapping of this region of p goes. */
void soft_ud_forget(struct soft_qp *q, struct soft_peer *p, uint32_t key);
/* All destinations, for good or for a new life of the QP. */
void soft_ud_drop(struct soft_qp *q);
/* Gives messages that were sent a moment to leave before the QP goes. No lock
 * is held. */
void soft_ud_linger(struct soft_qp *q);
/* A dial is over: peer is NULL where nobody was. */
void soft_ud_met(struct soft_qp *q, uint32_t qpn, struct soft_peer *peer,
		 uint64_t area, struct soft_bell *bell);
/* Lets go of what destinations hold of p that are not there any more. */
void soft_ud_tidy(struct soft_qp *q, struct soft_peer *p);

/* dial.c; the control thread's, s->lock held. All UD QPs that wait for qpn are
 * told. */
void soft_dial(struct soft *s, uint32_t qpn);
void soft_dial_event(struct soft *s, void *dial);
/* The process that was to answer has ended. */
void soft_dial_died(struct soft *s, void *dial);
uint64_t soft_dials_timer(struct soft *s, uint64_t now);
void soft_dials_free(struct soft *s);

static inline bool soft_ud_waits(const struct soft_qp *q)
{
	return q->ud && atomic_load(&q->ud->waits);
}

static inline struct shm_slot *soft_ud_slot(const struct ud_dest *d, uint32_t n)
{
	return (void *)(d->rq + (size_t)n * d->stride);
}

#endif
