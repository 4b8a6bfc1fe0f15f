/* SPDX-License-Identifier: MIT */
/*
 * soft.h - the private state of the software RDMA device.
 *
 * struct soft is one open device: one NIC file, one control thread, one or
 * more blocks of QPNs. Everything hangs from it.
 *
 * Lock order: soft.lock, then a QP's lock, then its rq_lock, then peer.lock,
 * then a CQ's lock, then the leaves (async, channel). The data path never
 * takes soft.lock. The control thread never waits for a peer.
 *
 * How it works: docs/soft.md.
 */
#ifndef SKEIN_DEV_SOFT_SOFT_H
#define SKEIN_DEV_SOFT_SOFT_H

#include "base/list.h"
#include "dev/dev.h"
#include "dev/soft/lock.h"
#include "dev/soft/shm.h"
#include "env/env.h"

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>

#define SOFT_GID_MAX 64
#define SOFT_INLINE_MAX 1024u
#define SOFT_SGE_MAX 32u
#define SOFT_WR_MAX 8192u
#define SOFT_CQE_MAX (1u << 20)
#define SOFT_RD_ATOMIC 128u
#define SOFT_MSG_MAX (1ull << 31)
#define SOFT_XLATS 8u
#define SOFT_MAPS 64u	     /* buckets */
#define SOFT_READY_PAGES 17u /* SHM_QP_MAX / SHM_CQ_READY, rounded up */

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

struct soft;
struct soft_peer;
struct soft_qp;

/* A descriptor the control thread sleeps on. */
struct soft_src {
	enum {
		SOFT_SRC_LISTEN,
		SOFT_SRC_KICK,
		SOFT_SRC_CONN,	    /* obj: struct soft_conn */
		SOFT_SRC_PEER_SOCK, /* obj: struct soft_peer */
		SOFT_SRC_PEER_PID,  /* obj: struct soft_peer */
	} kind;
	int fd;
	void *obj;
};

struct soft_pd {
	struct ibv_pd pd;
	uint32_t id;
	_Atomic uint32_t refs;
};

struct soft_mr {
	struct ibv_mr mr;
	struct soft_pd *pd;
	uint32_t access;
	int fd; /* -1: ordinary memory */
	uint64_t off;
};

/* A peer's MR, mapped here. Owned by the peer's table. */
struct soft_map {
	struct soft_map *next;
	uint32_t key;
	void *base; /* NULL: ordinary memory, not mapped */
	size_t base_len;
	char *ptr; /* where start is */
	uint64_t len;
	bool refused; /* cannot be mapped, said once */
};

/* What a QP knows of one rkey: checked once, valid while *live == key. */
struct soft_xlat {
	uint32_t key;
	uint32_t access;
	uint64_t start;
	uint64_t len;
	char *ptr;		/* NULL: ordinary memory */
	_Atomic uint32_t *live; /* NULL: empty */
};

/* An eventfd of a peer's completion channel. */
struct soft_bell {
	struct list_node link;
	uint32_t id;
	int fd;
};

/* Another soft device (perhaps this one) that our QPs are connected to. */
struct soft_peer {
	struct list_node link;
	struct soft *s;
	uint64_t nic_id;
	char *base; /* its NIC file, SHM_SPAN of address space */
	struct shm_nic *nic;
	pid_t pid;
	int sock;   /* to its control thread */
	int pid_fd; /* -1 unknown */
	int kick_fd;
	int mem_fd; /* /proc/PID/mem; -1 not opened yet, -2 refused */
	uint32_t refs;
	/* of its NIC file, when last seen; it only grows */
	_Atomic uint64_t size;
	_Atomic bool dead; /* found dead by the control thread */
	_Atomic bool gone; /* no thread of it runs any more */
	struct soft_src src_sock, src_pid;
	pthread_mutex_t lock; /* maps, mem_fd, sending on sock */
	struct soft_map *maps[SOFT_MAPS];
	struct list_node bells;
};

enum soft_park {
	SOFT_PARK_NONE,
	SOFT_PARK_RNR,	  /* no receive posted */
	SOFT_PARK_ROUTE,  /* the peer's QP is not there, or not for us, yet */
	SOFT_PARK_XLAT,	  /* a file is being fetched */
	SOFT_PARK_FAR,	  /* the peer's control thread works for us */
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
	uint32_t far_chunk; /* bytes asked for */
	uint32_t pos;	    /* in the send queue */
	struct ibv_send_wr wr;
	struct ibv_sge sge[]; /* then inline bytes */
};

struct soft_cqe {
	uint64_t wr_id;
	struct soft_qp *qp;
	uint32_t qpn;
	uint32_t pos; /* send queue position that this frees */
	uint32_t byte_len;
	uint32_t imm;
	uint8_t status;
	uint8_t opcode;
	uint8_t flags;
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
	uint32_t flushing; /* QPs whose receives are flushed */
	uint64_t load;	   /* most completions that can be outstanding */
	/* shared pages: offset in our NIC file, 0 none */
	uint64_t page[SOFT_READY_PAGES];
	struct shm_cq *shm; /* page[0] */
	struct soft_chan *chan;
	uint32_t owed; /* events fired before it was armed again; chan->lock */
	struct list_node chan_link;
	struct list_node link;	 /* soft.cqs */
	_Atomic uint32_t events; /* handed out */
	_Atomic uint32_t async_events;
	_Atomic uint32_t parked_qps; /* with this send CQ */
	uint32_t qps;		     /* that use it; soft.lock */
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
	bool direct;	  /* RTS, connected, nothing parked */
	bool held;	  /* by the control path: soft_qp_hold() */
	uint32_t gate_ok; /* the peer's gate that was checked; 0 none */
	uint32_t hazard;
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
	_Atomic uint32_t *far_armed;
	int far_bell; /* eventfd of its receive CQ's channel, or -1 */
	bool met_said;
	bool met_heard;
	struct soft_xlat xlat[SOFT_XLATS];
	_Atomic uint32_t asked_key; /* whose file is on its way; 0: none */
	struct soft_wqe *parked, **parked_end;
	uint32_t far_seq;
	uint32_t far_idx; /* of the peer's QP in its NIC */

	/* the receiving side */
	struct soft_lock rq_lock;
	uint64_t *rq_wr_id;
	uint32_t rq_tail;
	_Atomic uint32_t rq_reap; /* the receive CQ's lock */
	uint32_t rq_mask, rq_slots, rq_stride, rq_sges;
	bool rq_flush; /* the receive CQ's lock */
	uint32_t rq_pos;

	/* control */
	struct soft_pd *pd;
	uint32_t idx;
	uint64_t area_off;
	size_t area_len;
	uint32_t conn;
	uint32_t epoch;
	_Atomic bool quiesce_due; /* in ERR, the peer may still be inside */
	bool sqd_notify;
	bool dying;
	uint32_t fault_seen;
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	unsigned flags;
	_Atomic uint32_t async_events; /* handed out */
};

struct soft_event {
	struct soft_event *next;
	struct ibv_async_event ev;
};

struct soft_arena_class {
	uint64_t *free; /* a ring: reused last */
	uint32_t head, count, cap;
	uint32_t out; /* allocated */
};

/* Descriptors for a moment without any: spare.c */
#define SOFT_SPARES 3

struct soft {
	struct dev dev;
	struct skein_env *env;
	struct ibv_device ibdev;
	struct verbs_context vctx;
	/* Zero in a forked child (MADV_WIPEONFORK). */
	const _Atomic uint64_t *here;
	struct skein_env *log_env;

	int nic_fd;
	char *base;
	struct shm_nic *nic;
	struct shm_mr *mr_table;
	uint64_t nic_size;
	uint64_t mr_backed;
	/* [0]: QP areas, [1]: CQ pages; never exchanged; by log2 of pages */
	struct soft_arena_class arena[2][16];

	pthread_mutex_t lock;
	struct soft_qp *qps[SHM_QP_MAX];
	uint32_t qp_next;
	uint32_t blocks[SHM_BLOCK_MAX];
	struct soft_src listeners[SHM_BLOCK_MAX];
	uint32_t n_blocks;
	uint32_t n_qps;
	struct soft_mr *mrs[SHM_MR_MAX];
	uint16_t mr_gen[SHM_MR_MAX];
	uint32_t mr_next, mr_window;
	uint32_t n_mrs;
	uint32_t pd_next;
	uint32_t chan_next;
	struct list_node peers;
	struct list_node cqs;
	struct list_node chans;
	struct list_node conns; /* struct soft_conn */

	int epoll_fd;
	int kick_fd;
	int spare_fds[SOFT_SPARES]; /* the control thread's; -1: given up */
	struct soft_src src_kick;
	pthread_t thread;
	bool thread_up;
	_Atomic bool stop;
	_Atomic uint32_t parked_qps;
	_Atomic uint32_t quiesce_qps;

	pthread_mutex_t async_lock;
	pthread_cond_t acked;
	struct soft_event *events, **events_end;

	struct dev_gid gids[SOFT_GID_MAX];
	int n_gids;
};

#define SOFT_HERE 0x736b65696e736f66ull

/* Where the device lives: everybody's first question. False in a forked
 * child, which must leave all of it alone. */
static inline bool soft_here(const struct soft *s)
{
	return likely(atomic_load_explicit(s->here, memory_order_relaxed) ==
		      SOFT_HERE);
}

/* The verbs carry addresses as numbers. */
static inline void *soft_ptr(uint64_t addr)
{
	/* NOLINTNEXTLINE(performance-no-int-to-ptr) */
	return (void *)(uintptr_t)addr;
}

static inline struct soft *soft_of(struct ibv_context *ctx)
{
	return container_of(ctx, struct soft, vctx.context);
}

static inline struct soft *soft_of_dev(struct dev *dev)
{
	return container_of(dev, struct soft, dev);
}

static inline struct soft_qp *soft_qp_of(struct ibv_qp *qp)
{
	return container_of(qp, struct soft_qp, ex.qp_base);
}

static inline struct soft_cq *soft_cq_of(struct ibv_cq *cq)
{
	return container_of((struct ibv_cq_ex *)(void *)cq, struct soft_cq, ex);
}

static inline bool soft_life(const struct shm_nic *nic)
{
	uint32_t w = atomic_load_explicit(&nic->life, memory_order_acquire);

	return w != 0 && !(w & SHM_LIFE_DIED);
}

static inline enum ibv_qp_state soft_qp_state(const struct soft_qp *q)
{
	return __atomic_load_n(&q->ex.qp_base.state, __ATOMIC_ACQUIRE);
}

/* nic.c: the NIC file and its arena */
int soft_nic_new(struct soft *s);
void soft_nic_free(struct soft *s);
/* kind 0: QP area, 1: CQ page. s->lock held. */
int soft_arena_alloc(struct soft *s, int kind, size_t len, uint64_t *off);
void soft_arena_free(struct soft *s, int kind, size_t len, uint64_t off);
/* Backs MR entries up to idx. s->lock held. */
int soft_mr_back(struct soft *s, uint32_t idx);
/* Binds one more block of QPNs. s->lock held. */
int soft_block_new(struct soft *s);
int soft_block_name(uint32_t block, void *sockaddr_un);

/* spare.c: fills up what was given up: -errno when it cannot; gives one up:
 * false when there is none */
int soft_spares_fill(struct soft *s);
bool soft_spare_give(struct soft *s);

/* ctl.c: the control thread */
int soft_ctl_start(struct soft *s);
void soft_ctl_stop(struct soft *s);
void soft_kick(struct soft *s);
/* Asks the control thread to look at a QP of ours. */
void soft_attend(struct soft *s, uint32_t idx);
/* Asks the peer of q to look at its QP. */
void soft_ring(struct soft_qp *q);
int soft_src_add(struct soft *s, struct soft_src *src, uint32_t events);

/* attend.c: what the control thread does about QPs. s->lock held. */
void soft_qp_attend(struct soft *s, struct soft_qp *q);
/* All QPs with something parked or due; the earliest deadline. */
uint64_t soft_qps_timers(struct soft *s, uint64_t now);
void soft_peer_died(struct soft *s, struct soft_peer *p);

/* serve.c: the owner's end of control connections */
struct soft_conn;
int soft_conn_accept(struct soft *s, int listen_fd);
void soft_conn_event(struct soft *s, struct soft_conn *c, uint32_t events);
void soft_conns_free(struct soft *s);

/* peer.c: the asking end */
int soft_peer_connect(struct soft *s, struct soft_qp *q, uint32_t qpn,
		      struct soft_peer **peer, uint64_t *area, int *bell);
void soft_peer_put(struct soft *s, struct soft_peer *p);
void soft_peer_event(struct soft *s, struct soft_peer *p);
/* Its descriptors leave the control thread's epoll set. */
void soft_peer_unwatch(struct soft *s, struct soft_peer *p);
void soft_peer_sweep(struct soft *s);
void soft_peers_free(struct soft *s);
/* Finds the mapping of a peer's MR: 0, or -EAGAIN when it was asked for. */
int soft_peer_map(struct soft_peer *p, struct soft_qp *q, uint32_t key,
		  struct soft_map **map);
int soft_peer_mem_fd(struct soft_peer *p);
/* Has every thread of it left user space? */
bool soft_peer_gone(struct soft_peer *p);

/* relaxed: only a bound, of a file that is mapped as far as it may grow; what
 * lies below it was there before the connection that leads to it */
static inline uint64_t soft_peer_size(const struct soft_peer *p)
{
	return atomic_load_explicit(&p->size, memory_order_relaxed);
}

/* mr.c */
int soft_alloc_pd(struct dev *dev, struct ibv_pd **pd);
int soft_dealloc_pd(struct dev *dev, struct ibv_pd *pd);
int soft_reg_mr(struct dev *dev, struct ibv_pd *pd, void *addr, size_t len,
		int access, int fd, uint64_t off, struct ibv_mr **mr);
int soft_dereg_mr(struct dev *dev, struct ibv_mr *mr);
int soft_quiesce_mr(struct dev *dev, struct ibv_mr *mr);
/* Local memory: true when lkey covers it with the access asked for. */
static inline bool soft_mr_local(const struct soft *s, const struct soft_pd *pd,
				 uint32_t lkey, uint64_t addr, uint64_t len,
				 uint32_t access)
{
	const struct soft_mr *m = s->mrs[lkey >> 16];

	return likely(m && m->mr.lkey == lkey && m->pd == pd &&
		      (m->access & access) == access &&
		      addr >= (uintptr_t)m->mr.addr && len <= m->mr.length &&
		      addr - (uintptr_t)m->mr.addr <= m->mr.length - len);
}

/* quiesce.c */
void soft_barrier(void);
/* Waits until the peer of q has left our memory, once since the last
 * soft_barrier(). -EBUSY when it has stopped inside. */
int soft_quiesce(struct soft_qp *q);
bool soft_quiet(struct soft_qp *q);

/* cq.c */
int soft_create_cq(struct dev *dev, int cqe, void *cq_context,
		   struct ibv_comp_channel *ch, struct ibv_cq **cq);
int soft_destroy_cq(struct dev *dev, struct ibv_cq *cq);
int soft_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
int soft_req_notify_cq(struct ibv_cq *cq, int solicited_only);
/* A completion of q's send queue; takes the CQ's lock. */
void soft_cq_push(struct soft_cq *cq, const struct soft_cqe *e, bool held);
/* s->lock held. */
int soft_cq_attach_recv(struct soft_cq *cq, struct soft_qp *q);
void soft_cq_detach_send(struct soft_cq *cq, struct soft_qp *q);
void soft_cq_detach_recv(struct soft_cq *cq, struct soft_qp *q);
void soft_cq_reset_recv(struct soft_cq *cq, struct soft_qp *q);
void soft_cq_flush_recv(struct soft_cq *cq, struct soft_qp *q);
/* For whoever asked for completions of any kind, or for all. */
void soft_cq_fire_any(struct soft_cq *cq);
void soft_cq_fire(struct soft_cq *cq);

/* chan.c */
int soft_create_chan(struct dev *dev, struct ibv_comp_channel **ch);
int soft_destroy_chan(struct dev *dev, struct ibv_comp_channel *ch);
int soft_get_cq_event(struct dev *dev, struct ibv_comp_channel *ch,
		      struct ibv_cq **cq);
void soft_ack_cq_events(struct dev *dev, struct ibv_cq *cq, unsigned n);
/* Rings where armed is in a state that asks for it. */
void soft_bell_ring(_Atomic uint32_t *armed, int fd, bool solicited);

/* One more count: a peer may have died before its own. */
void soft_ring_again(struct ibv_comp_channel *ch);

/* async.c */
void soft_async(struct soft *s, enum ibv_event_type type, void *obj);
void soft_async_forget(struct soft *s, void *obj, _Atomic uint32_t *taken);
int soft_get_async(struct dev *dev, struct ibv_async_event *ev);
void soft_ack_async(struct dev *dev, struct ibv_async_event *ev);

/* gid.c; s->lock held */
void soft_gids_load(struct soft *s);
int soft_gid_choose(struct soft *s, int index, struct dev_gid *out);

/* qp.c */
int soft_create_qp(struct dev *dev, struct ibv_pd *pd,
		   struct ibv_qp_init_attr *attr, unsigned flags,
		   struct ibv_qp **qp);
int soft_destroy_qp(struct dev *dev, struct ibv_qp *qp);
int soft_query_qp(struct dev *dev, struct ibv_qp *qp, struct ibv_qp_attr *attr,
		  int mask, struct ibv_qp_init_attr *init);
int soft_quiesce_qp(struct dev *dev, struct ibv_qp *qp);
int soft_probe(struct dev *dev, struct ibv_qp *qp);

/* modify.c */
int soft_modify_qp(struct dev *dev, struct ibv_qp *qp, struct ibv_qp_attr *attr,
		   int mask);
/* 0 when the transition and its mask are allowed, else -EINVAL. */
int soft_qp_check_mask(enum ibv_qp_state from, enum ibv_qp_state to, int mask);
/* To ERR from anywhere; q->lock held. The control thread starts to flush the
 * receives once the peer is known to have left. */
void soft_qp_to_err(struct soft_qp *q);
void soft_qp_gate(struct soft_qp *q);

/* send.c, exec.c, park.c, far.c */
int soft_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		   struct ibv_send_wr **bad);
int soft_exec(struct soft_qp *q, const struct ibv_send_wr *wr,
	      struct soft_wqe *w);
void soft_complete(struct soft_qp *q, const struct ibv_send_wr *wr,
		   uint32_t pos, int status);
int soft_gate_check(struct soft_qp *q);
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
struct soft_xlat *soft_xlat_fill(struct soft_qp *q, uint32_t key, int *why);
int soft_park(struct soft_qp *q, const struct ibv_send_wr *wr, uint32_t pos,
	      int why);
/* Runs what is parked as far as it goes; q->lock held. */
void soft_progress(struct soft_qp *q);
/* Nobody rings for it: the control thread tries again by itself. */
bool soft_park_retries(const struct soft_wqe *w);
/* Fails the head, whose deadline is over. */
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

/* A QP's lock for the control thread and the control path: excludes the user
 * of a single-threaded QP as well. The CQs are then taken in the same way. */
static inline void soft_qp_hold(struct soft_qp *q)
{
	soft_lock_revoke(&q->lock);
	q->held = true;
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
	atomic_store_explicit(&q->self->hazard, ++q->hazard,
			      memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
}

static inline void soft_hazard_off(struct soft_qp *q)
{
	/* release: the copy is over for whoever sees the even value */
	atomic_store_explicit(&q->self->hazard, ++q->hazard,
			      memory_order_release);
}

#endif
