/* SPDX-License-Identifier: MIT */
/*
 * cq.h - completion queues and channels. Send completions are in a private
 * ring; receives complete in their slots, and poll merges. A CQ's lock comes
 * after the locks of QPs, a channel's is a leaf.
 */
#ifndef SKEIN_DEV_SOFT_CQ_H
#define SKEIN_DEV_SOFT_CQ_H

#include "dev/soft/lock.h"
#include "dev/soft/soft.h"

#define SOFT_READY_PAGES 18u /* SHM_QP_MAX / SHM_CQ_READY, rounded up */

struct soft_cqe {
	uint64_t wr_id;
	struct soft_qp *qp;
	uint32_t qpn;
	union {
		uint32_t pos;	 /* send: the position that this frees */
		uint32_t src_qp; /* receive: the sender, on UD */
	};
	uint32_t byte_len;
	uint32_t imm;
	uint8_t status;
	uint8_t opcode;
	uint8_t flags;
	uint8_t sl;
	bool recv;
};

struct soft_chan {
	struct ibv_comp_channel ch;
	struct list_node link;
	uint32_t id;
	pthread_mutex_t lock;
	struct list_node cqs;
};

struct soft_cq {
	struct ibv_cq_ex ex;
	struct soft *s;
	struct soft_lock lock;
	bool error; /* overflow: for good */
	/* the private ring */
	struct soft_cqe *ring;
	uint32_t mask;
	uint32_t head, tail; /* free-running; tail is pushed to */
	/* receives: QPs by position, and how many each has completed */
	struct soft_qp **rqs;
	uint32_t rq_top;  /* positions in use below this */
	uint32_t rq_cap;  /* of rqs and seen */
	uint32_t rq_next; /* where the next look starts */
	uint32_t *seen;
	uint32_t in_a_row;  /* sends returned by polls that did not look at
			     * receives */
	uint32_t recvs_end; /* of the ring: behind the last receive in it */
	uint32_t flushing;  /* QPs that flush their receives */
	/* most completions that can be outstanding */
	_Atomic uint64_t load;
	/* shared pages: offset in our NIC file, 0 none */
	uint64_t page[SOFT_READY_PAGES];
	struct shm_cq *shm; /* page[0] */
	struct soft_chan *chan;
	/* chan->lock: events fired before it was armed again; counts that may
	 * come without an event */
	uint32_t owed, spare;
	uint32_t spares_taken; /* of the latter, by the program */
	/* chan.c, uncounted(): those that the control thread waits for, and
	 * until when; soft.lock */
	uint32_t bell_late;
	uint64_t bell_due_ns;
	struct list_node chan_link;
	struct list_node link;	 /* soft.cqs */
	_Atomic uint32_t events; /* handed out */
	_Atomic uint32_t async_events;
	uint32_t qps; /* that use it; soft.lock */
	/* poll.c: from start_poll() to end_poll() */
	struct soft_lock poll_lock;
	struct ibv_wc cur;
	/* harsh mode: an event that is late, or ENV_NEVER */
	_Atomic uint64_t late_ns;
	uint32_t late_event;
};

static inline struct soft_cq *soft_cq_of(struct ibv_cq *cq)
{
	return container_of((struct ibv_cq_ex *)(void *)cq, struct soft_cq, ex);
}

/* cq.c */
int soft_create_cq(struct dev *dev, int cqe, void *cq_context,
		   struct ibv_comp_channel *ch, struct ibv_cq **cq);
int soft_resize_cq(struct dev *dev, struct ibv_cq *cq, int cqe);
int soft_destroy_cq(struct dev *dev, struct ibv_cq *cq);
int soft_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
int soft_req_notify_cq(struct ibv_cq *cq, int solicited_only);
/* A completion of q's send queue; takes the CQ's lock. */
void soft_cq_push(struct soft_cq *cq, const struct soft_cqe *e, bool held);
/* The same in two steps: no thread polls from the first to the end of the
 * second. */
void soft_cq_shut(struct soft_cq *cq);
void soft_cq_push_shut(struct soft_cq *cq, const struct soft_cqe *e);
/* s->lock held, by the thread that makes, changes or destroys q. */
int soft_cq_attach_recv(struct soft_cq *cq, struct soft_qp *q);
void soft_cq_detach_send(struct soft_cq *cq, struct soft_qp *q);
/* The same with its receives, and its place among them. */
void soft_cq_detach(struct soft_cq *scq, struct soft_cq *rcq,
		    struct soft_qp *q);
void soft_cq_reset_recv(struct soft_cq *cq, struct soft_qp *q);
/* The ready word of q, for its owner. seen: a receive was taken that no poll
 * returns. set_ready: n were completed in all. The CQ's lock is held. */
void soft_cq_seen(struct soft_qp *q);
void soft_cq_set_ready(struct soft_qp *q, uint32_t n);
/* Counts one more where senders count as well: UD QPs. */
void soft_cq_add_ready(struct soft_qp *q);
/* user: the caller is q's user, not the control thread. */
void soft_cq_flush_recv(struct soft_cq *cq, struct soft_qp *q, bool user);
/* The next poll looks at the receives of q; the CQ's lock is held. */
void soft_cq_look(struct soft_cq *cq, struct soft_qp *q);
/* The next poll reads q's ready word: a peer died, perhaps between its store of
 * the word and the mark. */
void soft_cq_mark(struct soft_cq *cq, const struct soft_qp *q);
/* The first fires a CQ that is armed for any completion; the second also one
 * armed for solicited completions. */
void soft_cq_fire_any(struct soft_cq *cq);
void soft_cq_fire(struct soft_cq *cq);

/* chan.c */
int soft_create_chan(struct dev *dev, struct ibv_comp_channel **ch);
int soft_destroy_chan(struct dev *dev, struct ibv_comp_channel *ch);
int soft_get_cq_event(struct dev *dev, struct ibv_comp_channel *ch,
		      struct ibv_cq **cq);
void soft_ack_cq_events(struct dev *dev, struct ibv_cq *cq, unsigned n);
enum soft_bell_found {
	SOFT_BELL_NONE,	     /* no event is asked for, or it is there */
	SOFT_BELL_OURS,	     /* the caller has fired it, and has to count it */
	SOFT_BELL_UNDER_WAY, /* another has, and has not counted it yet */
};
/* Which of the CQs that the page had it is. A thread looks before it completes a
 * receive: then the owner may destroy the CQ and make another one there. */
static inline uint64_t soft_bell_life(const struct shm_cq *cq)
{
	/* relaxed: a release makes the receive the owner's behind it */
	return atomic_load_explicit(&cq->armed, memory_order_relaxed) &
	       SHM_ARMED_LIVES;
}
/* Rings if cq is armed for this, and in that life. True: an event is under way;
 * the caller asks the owner's control thread to look at it. */
bool soft_bell_ring(struct shm_cq *cq, int fd, uint64_t life, bool solicited);
/* Its two halves: event is written and read where it is SOFT_BELL_OURS. */
enum soft_bell_found soft_bell_claim(struct shm_cq *cq, uint64_t life,
				     bool solicited, uint32_t *event);
void soft_bell_count(struct shm_cq *cq, int fd, uint32_t event);
/* The end of the second half. */
void soft_bell_said(struct shm_cq *cq, uint32_t event);
/* The same for a CQ of this process, which has a channel. */
void soft_cq_ring(struct soft_cq *c, bool solicited);
/* Of req_notify_cq(): want is SHM_ARMED_ANY or _SOLICITED. */
void soft_cq_arm(struct soft_cq *c, uint32_t want);
/* Of create_cq() and destroy_cq(): joins chan, and leaves it with all events
 * that nobody has taken. soft.lock is held. */
void soft_chan_join(struct soft_cq *c, struct soft_chan *chan);
void soft_chan_leave(struct soft_cq *c);
/* The control thread is to look whether an event waits for its count: it may,
 * or a thread that adds counts may have died. Any thread. */
void soft_bells_ask(struct soft *s);
/* The same for one CQ, by the control thread: it asks if there is a reason. */
void soft_bells_ask_cq(struct soft_cq *c);
/* The control thread's look; soft.lock is held. When the next one is due. */
uint64_t soft_bells_look(struct soft *s, uint64_t now);

#endif
