/* SPDX-License-Identifier: MIT */
/*
 * srq.h - shared receive queues: claimed slots (claim.h) that the peers of many
 * QPs take, and per QP a ring of slot numbers that keeps the order of its
 * messages. docs/soft.md, "Claimed slots".
 *
 * A claimant is a QP; its id is the place of the owner's QP area and a few bits
 * of that QP's conn, so that no two that may be inside at once have the same.
 */
#ifndef SKEIN_DEV_SOFT_SRQ_H
#define SKEIN_DEV_SOFT_SRQ_H

#include "dev/soft/srq/claim.h"
#include "dev/soft/cq/cq.h"
#include "dev/soft/lock.h"
#include "dev/soft/mr.h"
#include "dev/soft/shm.h"

#define SOFT_SRQ_MAX 4096u
#define SOFT_SRQ_WR_MAX 8192u
#define SOFT_SRQ_NO_LIMIT UINT64_MAX

struct soft_qp;

/* In the NIC file: this, then struct shm_claim, then the receives. */
struct shm_srq {
	/* owner: a claimant of this position or a later one rings the owner */
	_Atomic uint64_t limit_at;
	/* any peer sets: a sender waits for a receive; the owner clears */
	_Atomic uint32_t waiting;
	uint32_t stride; /* owner: bytes a receive */
	/* any UD or DC sender sets: a receive was given back unused; the owner
	 * clears */
	_Atomic uint32_t voided;
	alignas(SHM_LINE) unsigned char claim[];
};

_Static_assert(sizeof(struct shm_srq) == SHM_LINE, "claim");

static inline struct shm_claim *shm_srq_claim(struct shm_srq *s)
{
	return (struct shm_claim *)(void *)s->claim;
}

/* Where the receives begin. */
static inline size_t shm_srq_slots_off(uint32_t slots)
{
	return (sizeof(struct shm_srq) + claim_bytes(slots) + SHM_LINE - 1) &
	       ~(SHM_LINE - 1ul);
}

/* The n-th entry of a QP's order ring, which has as many entries as the SRQ has
 * slots. The entry holds its own lap, so no other word has to be written with
 * it. */
static inline uint32_t shm_srq_entry(uint32_t n, uint32_t slots, uint32_t slot)
{
	return (n / slots + 1) << 16 | slot;
}

/* An area of a QP is another one's only after the life before was swept. */
static inline uint32_t shm_srq_id(uint64_t area_off, uint32_t conn)
{
	return (uint32_t)(area_off / SHM_PAGE) | conn % 15 << 18;
}

_Static_assert(SHM_SPAN / SHM_PAGE <= 1u << 18, "claimant's id");

struct soft_srq_recv {
	uint64_t wr_id;
	uint32_t len;	     /* bytes: a message has no more */
	_Atomic bool is_out; /* posted, and not given back yet */
};

struct soft_srq_ud; /* ud/srq.c */

struct soft_srq {
	struct ibv_srq srq;
	struct soft *s;
	struct soft_pd *pd;
	struct list_node link; /* soft.srqs */
	struct shm_srq *shm;
	char *slots;
	uint32_t stride, sges;
	/* by slot; private memory: peers may scribble on the slots
	 * themselves */
	struct soft_srq_recv *recv;
	struct claim c;
	struct soft_lock post_lock; /* claim_slot_get(), claim_post(), limit */
	struct soft_lock reap_lock; /* claim_slot_put() */
	uint32_t limit;		    /* 0: no event is asked for */
	uint64_t area_off;
	size_t area_len;
	uint32_t qps;	  /* soft.lock */
	bool given_up;	  /* a stopped peer may still write to the area */
	_Atomic bool due; /* peers wait that may go on */
	/* NULL until a UD QP uses it, then until its end */
	struct soft_srq_ud *_Atomic ud;
	_Atomic uint32_t async_events; /* handed out */
};

static inline struct soft_srq *soft_srq_of(struct ibv_srq *srq)
{
	return container_of(srq, struct soft_srq, srq);
}

/* acquire: pairs with soft_ud_srq_new() */
static inline struct soft_srq_ud *soft_srq_ud(const struct soft_srq *r)
{
	return atomic_load_explicit(&r->ud, memory_order_acquire);
}

static inline struct shm_slot *soft_srq_slot(struct soft_srq *r, uint32_t slot)
{
	return (struct shm_slot *)(void *)(r->slots + (size_t)slot * r->stride);
}

int soft_create_srq(struct dev *dev, struct ibv_pd *pd,
		    struct ibv_srq_init_attr *attr, struct ibv_srq **srq);
int soft_modify_srq(struct dev *dev, struct ibv_srq *srq,
		    struct ibv_srq_attr *attr, int mask);
int soft_query_srq(struct dev *dev, struct ibv_srq *srq,
		   struct ibv_srq_attr *attr);
int soft_destroy_srq(struct dev *dev, struct ibv_srq *srq);
int soft_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
		       struct ibv_recv_wr **bad);
/* The control thread's part: peers that wait, limits. s->lock held. */
void soft_srqs_service(struct soft *s);

/* order.c: the owner's end of a QP's order ring; q->srq is not NULL */
/* As soft_reap(); the receive CQ's lock is held. */
bool soft_order_reap(struct soft_qp *q, struct soft_cqe *e);
/* Posts again the receives that the peer gave back unused, and looks at the
 * limit. */
void soft_order_service(struct soft_qp *q);
/* The peer has left and cannot enter again: the receives that it claimed are
 * posted again; those that it completed are put into the ring. s->lock held. */
void soft_order_sweep(struct soft_qp *q);
/* For RESET and destroy: receives that are completed and not polled become
 * free. s->lock and the receive CQ's lock held, after soft_order_sweep(). */
void soft_order_forget(struct soft_qp *q);

/* srq.c, for order.c */
/* A completed receive is ours again, once. */
void soft_srq_give_back(struct soft_srq *r, uint32_t slot);
/* One that was not used after all. */
void soft_srq_post_again(struct soft_srq *r, uint32_t slot);
/* The same where UD senders' claims have been looked at up to it. False: it
 * was ours already. */
bool soft_srq_give_back_seen(struct soft_srq *r, uint32_t slot);
void soft_srq_post_again_seen(struct soft_srq *r, uint32_t slot);
void soft_srq_limit(struct soft_srq *r);

/* ud/srq.c: a slot is about to move on in the order of positions */
void soft_ud_srq_pass(struct soft_srq_ud *u, uint32_t slot);

/* take.c */
/* The SRQ at off of a peer's NIC file of that size; NULL where it makes no
 * sense. */
struct shm_srq *soft_srq_at(char *base, uint64_t size, uint64_t off,
			    uint32_t *slots, uint32_t *stride);

/* take.c: the poster's end, in the hazard */
/* What the peer's area says, checked against the size of its file. */
bool soft_take_load(struct soft_qp *q, uint64_t srq_off, uint64_t size);
/* A receive for a message of len bytes; it is this QP's until soft_take_done()
 * or soft_take_back(). NULL: there is none. */
struct shm_slot *soft_take(struct soft_qp *q, size_t len);
void soft_take_done(struct soft_qp *q);
void soft_take_back(struct soft_qp *q);

#endif
