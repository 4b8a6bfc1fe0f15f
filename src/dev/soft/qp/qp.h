/* SPDX-License-Identifier: MIT */
/*
 * qp.h - a queue pair: what it knows of its peer, its queues, what is parked.
 *
 * The posting side is under q->lock, the receiving side under q->rq_lock. The
 * link to the peer changes under soft.lock and both. The control thread takes a
 * QP by soft_qp_hold(), which excludes the user of a single-threaded one as
 * well.
 */
#ifndef SKEIN_DEV_SOFT_QP_H
#define SKEIN_DEV_SOFT_QP_H

#include "dev/soft/cq/cq.h"
#include "dev/soft/harsh/harsh.h"
#include "dev/soft/lock.h"
#include "dev/soft/mr.h"
#include "dev/soft/peer/peer.h"
#include "dev/soft/shm.h"
#include "dev/soft/soft.h"
#include "dev/soft/srq/srq.h"

#define SOFT_XLATS 8u

/* The user serialises its calls, so the QP's locks are biased. */
#define SOFT_SERIALISED ((unsigned)(DEV_QP_SINGLE_THREADED | DEV_QP_SERIAL))

/* READs and atomics: they write the requester's memory. */
static inline bool soft_is_answered(const struct ibv_send_wr *wr)
{
	return (unsigned)wr->opcode - IBV_WR_RDMA_READ <=
	       IBV_WR_ATOMIC_FETCH_AND_ADD - IBV_WR_RDMA_READ;
}

/* What a QP knows of one rkey: checked once, valid while *live == life. */
struct soft_xlat {
	uint32_t key;
	uint32_t life;
	uint32_t access;
	uint64_t start;
	uint64_t at; /* of start in its owner */
	uint64_t len;
	char *ptr;		/* NULL: ordinary memory */
	_Atomic uint32_t *live; /* NULL: empty */
};

enum soft_park {
	SOFT_PARK_NONE,
	SOFT_PARK_RNR,	  /* no receive posted */
	SOFT_PARK_ROUTE,  /* the peer's QP is not there, or not for us, yet */
	SOFT_PARK_XLAT,	  /* a file is being fetched */
	SOFT_PARK_FAR,	  /* the peer's control thread works for us */
	SOFT_PARK_INV,	  /* others are inside the window that it invalidates */
	SOFT_PARK_GONE,	  /* harsh: the peer's QP will not come any more */
	SOFT_PARK_QUEUED, /* behind one of the above */
};

/* What executing a work request came to: 0 done; > 0 an ibv_wc_status; < 0
 * parked, minus an enum soft_park. */

/* A parked work request. */
struct soft_wqe {
	struct soft_wqe *next;
	enum soft_park park;
	uint64_t deadline_ns;
	uint8_t rnr_left;
	/* work by the peer's control thread */
	bool asked;    /* a request is under way */
	bool answered; /* its answer is below */
	bool sent_no;  /* could not be sent: try again soon */
	int32_t far_status;
	uint64_t far_done; /* bytes done */
	uint32_t far_seq;
	uint32_t far_chunk;   /* bytes asked for */
	uint32_t pos;	      /* in the send queue */
	struct dc_dest *dest; /* of a DCI: its target, a reference */
	struct soft_harsh_op h;
	struct ibv_send_wr wr;
	struct ibv_sge sge[]; /* then inline bytes */
};

/* What a QP in INIT has asked of its peer's process: dial.c. Under soft.lock. */
struct soft_reach {
	enum {
		SOFT_REACH_NONE,
		SOFT_REACH_ASKED,
		SOFT_REACH_ANSWERED
	} state;
	uint32_t qpn;
	struct list_node link; /* asked: of the dial */
	struct soft_dial *dial;
	struct dev_reach *user;
	/* Told: the answer, with references. */
	int err;
	struct soft_peer *peer;
	struct soft_bell *bell;
	uint64_t area;
};

struct soft_qp {
	struct ibv_qp_ex ex;
	struct soft *s;
	/* the posting side, under lock */
	struct soft_lock lock;
	uint32_t sq_posted;
	_Atomic uint32_t sq_done; /* written by the send CQ's poller */
	uint32_t sq_max;
	uint32_t sge_max;
	uint32_t inline_max;
	bool sig_all;
	bool unreliable;  /* UC, UD: failures at the peer are not reported */
	uint32_t ops;	  /* a bit for each enum ibv_wr_opcode that it takes */
	bool direct;	  /* RTS, connected, nothing parked */
	bool held;	  /* by the control path: soft_qp_hold() */
	bool shut;	  /* the send CQ, by us: soft_park_shut() */
	uint32_t gate_ok; /* the peer's gate that was checked; 0 none */
	uint32_t hazard;
	/* the hazard word: in our area, or in a DC target's table */
	_Atomic uint32_t *inside;
	struct shm_qp *self; /* our area */
	/* These two change under soft.lock, lock and rq_lock together. */
	struct shm_qp *far; /* the peer's, or NULL */
	struct soft_peer *peer;
	char *far_rq;
	uint32_t far_mask; /* slots - 1 */
	uint32_t far_slots;
	uint32_t far_stride;
	uint32_t far_sges;
	uint32_t far_head;
	uint32_t far_pd;
	uint32_t far_conn; /* its conn when we went to RTR */
	_Atomic uint32_t *far_ready;
	uint32_t far_ready_n;
	struct shm_cq *far_cq;
	uint32_t far_group; /* of far_ready, there */
	int far_bell;	    /* eventfd of its receive CQ's channel, or -1 */
	/* The peer's receives are shared: far_rq, far_mask and far_stride are
	 * the SRQ's, far_head counts the entries of the order ring. */
	struct shm_srq *far_srq;
	uint32_t far_srq_id;
	uint32_t far_name; /* of a DC target, in the SRQ's receives */
	bool taken;	   /* this one: */
	uint32_t take_slot;
	uint64_t take_pos;
	bool met_said;
	bool met_heard;
	bool failed; /* by a request of ours; not serviced since */
	struct soft_xlat xlat[SOFT_XLATS];
	/* the life of an MR: its file is on its way; 0: none */
	_Atomic uint32_t asked_for;
	struct soft_wqe *parked, **parked_end;
	uint64_t retry_ns; /* when its head is tried again; 0: not reckoned
			    * yet */
	bool ring_lost;	   /* perhaps: the barrier was refused */
	bool asks;	   /* counted in soft.asking_qps */
	struct soft_mw_wait *mw_wait; /* NULL: no invalidation waits: mw.c */
	struct soft_harsh_qp *harsh;  /* NULL: not in harsh mode */
	/* harsh mode only looks whether this would be refused; else NULL */
	struct soft_wqe *look;
	bool early; /* pieces before their turn: a refusal does not break the
		     * peer's QP */
	uint32_t far_seq;
	uint32_t far_idx; /* of the peer's QP in its NIC */
	/* Long WRITEs with immediate, one above the other: where the last one
	 * ended, and how much they are. */
	uint64_t stream_end, stream_len;

	/* the receiving side; with an SRQ rq_slots is 0, rq_reap counts the
	 * entries of the order ring */
	struct soft_srq *srq;
	uint32_t srq_id; /* this life's */
	struct soft_lock rq_lock;
	uint64_t *rq_wr_id;
	uint32_t *rq_len; /* bytes of a receive: a message has no more */
	uint32_t rq_tail;
	_Atomic uint32_t rq_reap; /* the receive CQ's lock */
	uint32_t rq_mask, rq_slots, rq_stride, rq_sges;
	bool rq_flush; /* the receive CQ's lock */
	uint32_t rq_pos;

	/* control */
	struct soft_link_qp *link; /* its peer is on another host, or NULL */
	struct soft_bell *bell;	   /* far_bell is its fd; soft.lock */
	struct soft_reach reach;
	struct soft_pd *pd;
	uint32_t idx;
	uint64_t area_off;
	size_t area_len;
	uint32_t conn;
	uint32_t epoch;
	_Atomic bool quiesce_due; /* in ERR, the peer may still be inside */
	uint64_t settled_ns; /* the control thread's: when the fence that was
			      * refused is made up for by time; 0: not asked */
	bool sqd_notify;
	bool dying;
	uint32_t fault_seen;
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	unsigned flags;
	_Atomic uint32_t async_events; /* handed out */
	struct soft_wrs *wrs;	       /* ibv_wr_*, or NULL: wr.c */
	struct soft_ud *ud;	       /* NULL unless UD, or a DC target */
	struct soft_dci *dc;	       /* NULL unless a DCI */
};

static inline struct soft_qp *soft_qp_of(struct ibv_qp *qp)
{
	return container_of(qp, struct soft_qp, ex.qp_base);
}

static inline enum ibv_qp_state soft_qp_state(const struct soft_qp *q)
{
	return __atomic_load_n(&q->ex.qp_base.state, __ATOMIC_ACQUIRE);
}

/* qp.c */
int soft_create_qp(struct dev *dev, struct ibv_pd *pd,
		   struct ibv_qp_init_attr *attr, unsigned flags,
		   struct ibv_qp **qp);
/* attr was checked. A QPT_DRIVER with an SRQ is a DC target, without one a
 * DCI. */
int soft_qp_make(struct soft *s, struct ibv_pd *pd,
		 struct ibv_qp_init_attr *attr, unsigned flags,
		 struct soft_qp **qp);
int soft_destroy_qp(struct dev *dev, struct ibv_qp *qp);
int soft_query_qp(struct dev *dev, struct ibv_qp *qp, struct ibv_qp_attr *attr,
		  int mask, struct ibv_qp_init_attr *init);
int soft_quiesce_qp(struct dev *dev, struct ibv_qp *qp);
int soft_probe(struct dev *dev, struct ibv_qp *qp);
void soft_qp_caps(const struct dev *dev, struct ibv_qp *qp,
		  struct dev_caps *caps);
const char *soft_qp_link(struct ibv_qp *qp);

/* modify.c */
int soft_modify_qp(struct dev *dev, struct ibv_qp *qp, struct ibv_qp_attr *attr,
		   int mask);
/* What breaks a QP moves it to ERR, but not out of RESET: that is its owner's,
 * by modify_qp() (IBA 10.3.1.1). q->lock held. The control thread starts to
 * flush the receives once the peer is known to have left. */
void soft_qp_to_err(struct soft_qp *q);
/* What a failed request of the send queue does to its QP: ERR, or SQE where
 * the transport is unreliable (IBA 10.3.1.7). q->lock held. */
void soft_qp_send_failed(struct soft_qp *q);
void soft_qp_gate(struct soft_qp *q);
/* A DC QP's first state, and its last but ERR. */
void soft_qp_begin(struct soft_qp *q, enum ibv_qp_state st);
/* The QP is in ERR, and its peer is known to have left since. The peer finds
 * the gate shut, so there is nothing to wait for. q->lock held. */
bool soft_qp_is_left(struct soft_qp *q);

/* send.c, exec.c, park.c, far.c */
int soft_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		   struct ibv_send_wr **bad);
/* All n, or none; q->lock held. A positive errno. */
int soft_post_all_held(struct soft_qp *q, struct ibv_send_wr *wr, uint32_t n);
int soft_exec(struct soft_qp *q, const struct ibv_send_wr *wr,
	      struct soft_wqe *w);
/* Returns what soft_exec() would return now, but changes and breaks nothing;
 * w->h then says what memory the request goes to. */
int soft_exec_look(struct soft_qp *q, struct soft_wqe *w);
/* Executes several pieces inside one hazard, so the peer's move to ERR or
 * RESET, or its destruction, waits for all of them. open returns 0 or as
 * soft_exec(); then inside for each piece; then close. */
int soft_exec_open(struct soft_qp *q);
int soft_exec_inside(struct soft_qp *q, const struct ibv_send_wr *wr,
		     struct soft_wqe *w);
void soft_exec_close(struct soft_qp *q);
void soft_complete(struct soft_qp *q, const struct ibv_send_wr *wr,
		   uint32_t pos, int status);
int soft_gate_check(struct soft_qp *q);
/* What the far area says, checked against its file. */
bool soft_area_load(struct soft_qp *q);
/* Work by the peer's control thread: the length is within one range; or the
 * pieces of a receive. 0, a status, or -SOFT_PARK_FAR. */
int soft_far(struct soft_qp *q, const struct ibv_send_wr *wr,
	     struct soft_wqe *w, size_t len);
int soft_far_send(struct soft_qp *q, const struct shm_slot *slot,
		  const struct ibv_send_wr *wr, struct soft_wqe *w, size_t len);
void soft_scatter8(const struct ibv_send_wr *wr, uint64_t old);
struct msg;
void soft_far_answer(struct soft_qp *q, const struct msg *m,
		     const unsigned char *data, size_t len);
/* SEND_WITH_INV: the key of a window of the peer; as soft_mw_shut(). */
bool soft_far_shut(struct soft_qp *q, uint32_t key);
struct soft_xlat *soft_xlat_fill(struct soft_qp *q, uint32_t key, int *why);
/* What is behind a key of p, for to: 0; -EACCES; -EAGAIN: its file was asked
 * for, and the answer comes to qpn. */
int soft_xlat_load(struct soft_peer *p, const struct soft_dest *to,
		   struct soft_xlat *x, uint32_t key, uint32_t qpn,
		   _Atomic uint32_t *asked);
int soft_park(struct soft_qp *q, const struct ibv_send_wr *wr, uint32_t pos,
	      int why);
/* Runs what is parked as far as it goes; q->lock held. */
void soft_progress(struct soft_qp *q);
/* A parked request is about to be seen by the peer, and will succeed: from here
 * on nobody polls the send CQ until its completion is there. */
void soft_park_shut(struct soft_qp *q, const struct ibv_send_wr *wr);
/* How long it waits for a receive, or for the peer's QP: ENV_NEVER for ever. */
uint64_t soft_park_patience(const struct soft_qp *q, enum soft_park why);
/* The receiver's min_rnr_timer. */
uint64_t soft_park_rnr_ns(const struct soft_qp *q);
/* No ring comes for its head: the control thread tries again by itself. */
bool soft_park_retries(const struct soft_qp *q);
/* Such a head is not tried at once: it waits for a file that was asked for, or
 * its ring may be lost. */
bool soft_park_waits(const struct soft_qp *q);
/* Fails the head: its deadline is over. */
void soft_park_expire(struct soft_qp *q);
void soft_park_expire_as(struct soft_qp *q, int status);
/* In SQD: has a request begun that is not done? */
bool soft_sqd_busy(const struct soft_qp *q);
void soft_flush_parked(struct soft_qp *q);
void soft_drop_parked(struct soft_qp *q);

/* recv.c */
int soft_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
		   struct ibv_recv_wr **bad);
/* Takes a receive completion of q, if there is one. The receive CQ's lock is
 * held. */
bool soft_reap(struct soft_qp *q, struct soft_cqe *e);
/* Would it? False also where that is not known: receives of an SRQ, and of UD. */
bool soft_reap_due(struct soft_qp *q);
/* len: the bytes of the receive. */
void soft_reap_fill(const struct shm_slot *slot, uint32_t len,
		    struct soft_cqe *e);

/* The pieces of a receive into its slot; how many bytes a message may have. A
 * UD sender may read a slot that was claimed, and is posted anew, meanwhile:
 * too_short() in ud/send.c. */
static inline uint32_t soft_slot_fill(struct shm_slot *slot,
				      const struct ibv_recv_wr *wr)
{
	const struct ibv_sge *g = wr->sg_list;
	int i, n = wr->num_sge;
	uint64_t len = 0;

	for (i = 0; i < n; i++) {
		len += g[i].length;
		shm_set(slot->sge[i].addr, g[i].addr);
		shm_set(slot->sge[i].len, g[i].length);
		shm_set(slot->sge[i].lkey, g[i].lkey);
	}
	shm_set(slot->num_sge, (uint32_t)n);
	return len < SOFT_MSG_MAX ? (uint32_t)len : (uint32_t)SOFT_MSG_MAX;
}

/* A QP's lock for the control thread and the control path: excludes the user
 * of a single-threaded QP as well. The CQs are then taken in the same way. */
static inline void soft_qp_hold(struct soft_qp *q)
{
	soft_lock_revoke(&q->lock);
	q->held = true;
}

/* False: a thread posts just now. */
static inline bool soft_qp_hold_try(struct soft_qp *q)
{
	if (!soft_lock_revoke_try(&q->lock))
		return false;
	q->held = true;
	return true;
}

static inline void soft_qp_release(struct soft_qp *q)
{
	q->held = false;
	soft_lock_return(&q->lock);
}

static inline struct shm_slot *soft_slot(struct soft_qp *q, uint32_t n)
{
	return (void *)(q->self->slots +
			(size_t)(n & q->rq_mask) * q->rq_stride);
}

static inline void soft_hazard_on(struct soft_qp *q)
{
	/* The owner invalidates, then membarrier(2), then reads this: the
	 * compiler fence keeps our checks behind the store, the membarrier
	 * does the rest. Without it a copy could outlive dereg_mr(). */
	atomic_store_explicit(q->inside, ++q->hazard, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
}

static inline void soft_hazard_off(struct soft_qp *q)
{
	/* release: an owner that sees the even value also sees the end of the
	 * copy */
	atomic_store_explicit(q->inside, ++q->hazard, memory_order_release);
}

/* quiesce.c */
/* A full fence in all posters; it may take 20 ms where membarrier(2) is
 * refused. The other one returns false instead. */
void soft_barrier(void);
bool soft_barrier_try(void);
/* Waits until the peer of q has left our memory, once since the last
 * soft_barrier(). -EBUSY when it has stopped inside. */
int soft_quiesce(struct soft_qp *q);
bool soft_quiet(struct soft_qp *q);

/* ctl.c: asks the peer of q to look at its QP */
void soft_ring(struct soft_qp *q);

/* service.c: what the control thread does about QPs. s->lock held. */
void soft_qp_service(struct soft *s, struct soft_qp *q);
/* The same, called by its user once it is in ERR and its peer has left. */
void soft_qp_left(struct soft_qp *q);
/* All QPs with something parked or due; the earliest deadline. */
uint64_t soft_qps_timers(struct soft *s, uint64_t now);

#endif
