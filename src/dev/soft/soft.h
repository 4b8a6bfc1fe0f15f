/* SPDX-License-Identifier: MIT */
/*
 * soft.h - the private state of the software RDMA device; qp.h, cq.h, mr.h and
 * peer.h have its objects.
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
#include "dev/soft/shm.h"
#include "env/env.h"

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>

#define SOFT_GID_MAX 64
#define SOFT_FILES 256u /* buckets */
#define SOFT_INLINE_MAX 1024u
#define SOFT_SGE_MAX 32u
#define SOFT_WR_MAX 8192u
#define SOFT_CQE_MAX (1u << 20)
#define SOFT_RD_ATOMIC 128u
/* Mapped at once: memory of files up to this length. */
#define SOFT_POPULATE_MAX (1ul << 20)
#define SOFT_MSG_MAX (1ull << 31)

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

struct soft;
struct soft_harsh;
struct soft_link;
struct soft_link_key;
struct soft_peer;
struct soft_qp;

/* A descriptor the control thread sleeps on. */
struct soft_src {
	enum {
		SOFT_SRC_LISTEN,
		SOFT_SRC_KICK,
		SOFT_SRC_ADDR,	    /* netlink: an address came or went */
		SOFT_SRC_CONN,	    /* obj: struct soft_conn */
		SOFT_SRC_CONN_PID,  /* obj: struct soft_conn */
		SOFT_SRC_PEER_SOCK, /* obj: struct soft_peer */
		SOFT_SRC_PEER_PID,  /* obj: struct soft_peer */
		SOFT_SRC_DIAL,	    /* dial.c */
		SOFT_SRC_DIAL_PID,
		SOFT_SRC_LINK, /* link/udp.c */
	} kind;
	int fd;
	void *obj;
};

struct soft_event {
	struct soft_event *next;
	struct ibv_async_event ev;
};

/* What a piece of the NIC file is, now and ever after. */
enum soft_arena {
	SOFT_ARENA_QP,
	SOFT_ARENA_CQ,
	SOFT_ARENA_SRQ,
	SOFT_ARENA_CLAIM,  /* of UD QPs */
	SOFT_ARENA_INSIDE, /* of DC senders */
	SOFT_ARENA_MEM,	   /* regions: soft_new_mr() */
	SOFT_ARENAS,
};

/* Sizes of pieces: 1, 2, 3 and 4 pages, then powers of two, to 128 MiB. */
#define SOFT_ARENA_CLASSES 17

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
	uint64_t nic_size; /* given out */
	uint64_t near_len; /* ... of it to regions that are there */
	uint64_t nic_end;  /* there */
	uint64_t mr_backed;
	/* never exchanged; by size */
	struct soft_arena_class arena[SOFT_ARENAS][SOFT_ARENA_CLASSES];

	pthread_mutex_t lock;
	/* Binds against the end of what they name: mw.c. Taken with lock, or
	 * a QP's; nothing is taken with it. */
	pthread_mutex_t bind_lock;
	struct soft_qp *qps[SHM_QP_MAX];
	uint32_t qp_next;
	uint32_t blocks[SHM_BLOCK_MAX];
	struct soft_src listeners[SHM_BLOCK_MAX];
	uint32_t n_blocks;
	uint32_t n_qps;
	struct soft_mr *mrs[SHM_MR_MAX];
	uint16_t mr_gen[SHM_MR_MAX];
	uint32_t mr_next, mr_window;
	_Atomic uint32_t mr_lives;	     /* given out */
	_Atomic uint32_t moved_mrs;	     /* start is not the address here */
	uint32_t n_mrs;			     /* windows, too */
	struct list_node mws;		     /* struct soft_mw */
	struct soft_file *files[SOFT_FILES]; /* file.c */
	uint32_t pd_next;
	uint32_t chan_next;
	struct list_node peers;
	struct list_node cqs;
	uint64_t bells_due_ns; /* the next soft_bells_look(); lock */
	_Atomic bool bells_asked;
	struct list_node srqs;
	uint32_t n_srqs, n_srq_uds; /* that a UD QP uses, or has used */
	_Atomic bool srq_due; /* one has something for the control thread */
	struct list_node chans;
	struct list_node conns;	  /* struct soft_conn */
	struct list_node dials;	  /* dial.c */
	uint32_t claimants;	  /* ids given out: serve.c */
	struct dc_inside *inside; /* NULL: there was no DCT yet */
	uint64_t inside_off;
	uint32_t n_uds;

	int epoll_fd;
	int kick_fd;
	int spare_fds[SOFT_SPARES]; /* the control thread's; -1: given up */
	/* what a peer that asks again meets again; the control thread's */
	struct env_log_limit no_fd_said, under_way_said;
	struct soft_src src_kick, src_addr;
	pthread_t thread;
	bool thread_up;
	int thread_err; /* it could not begin */
	_Atomic bool stop;
	_Atomic uint32_t parked_qps;
	_Atomic uint32_t asking_qps; /* of those: park.c, note_asks() */
	_Atomic uint32_t ud_waits;   /* destinations of UD QPs that are busy */
	_Atomic uint32_t quiesce_qps;

	pthread_mutex_t async_lock;
	pthread_cond_t acked;
	struct soft_event *events, **events_end;

	struct soft_harsh *harsh; /* NULL: not in harsh mode */
	/* NULL until a QP has a peer on another host */
	struct soft_link *link;
	unsigned link_mode; /* enum soft_link_mode */
	uint16_t link_port; /* of UDP and of TCP, here and at the peers */
	bool no_dc;	    /* as on NICs without it */
	/* NULL: packets go clear */
	struct soft_link_key *link_key;
	struct dev_gid gids[SOFT_GID_MAX];
	int n_gids;
};

#define SOFT_HERE 0x736b65696e736f66ull

/* Is this the process that opened the device? Every entry point asks first.
 * False in a forked child, which must leave the device alone. */
static inline bool soft_here(const struct soft *s)
{
	return likely(atomic_load_explicit(s->here, memory_order_relaxed) ==
		      SOFT_HERE);
}

/* The verbs carry addresses as numbers. */
static inline void *soft_ptr(uint64_t addr)
{
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

/* nic.c: the NIC file and its arena */
int soft_nic_new(struct soft *s);
void soft_nic_free(struct soft *s);
/* s->lock held. */
int soft_arena_alloc(struct soft *s, enum soft_arena kind, size_t len,
		     uint64_t *off);
void soft_arena_free(struct soft *s, enum soft_arena kind, size_t len,
		     uint64_t off);
/* Backs MR entries up to idx. s->lock held. */
int soft_mr_back(struct soft *s, uint32_t idx);
/* Binds one more block of QPNs. s->lock held. */
int soft_block_new(struct soft *s);
int soft_block_name(uint32_t block, void *sockaddr_un);

/* spare.c: fill opens the spares that were given up: -errno when it cannot.
 * give closes one: false when there is none. */
int soft_spares_fill(struct soft *s);
bool soft_spare_give(struct soft *s);

/* ctl.c: the control thread */
int soft_ctl_start(struct soft *s);
void soft_ctl_stop(struct soft *s);
void soft_kick(struct soft *s);
/* Asks the control thread to look at a QP of ours. */
void soft_ask_service(struct soft *s, uint32_t idx);
int soft_src_add(struct soft *s, struct soft_src *src, uint32_t events);

/* serve.c: the owner's end of control connections */
struct soft_conn;
int soft_conn_accept(struct soft *s, int listen_fd);
void soft_conn_event(struct soft *s, struct soft_conn *c, uint32_t events);
/* Its process has ended. */
void soft_conn_died(struct soft *s, struct soft_conn *c);
void soft_conns_free(struct soft *s);
/* Sweeps the claims of dead peers. s->lock held. */
void soft_conns_look(struct soft *s);

/* async.c */
void soft_async(struct soft *s, enum ibv_event_type type, void *obj);
/* Of the port. */
void soft_async_port(struct soft *s, enum ibv_event_type type);
void soft_async_forget(struct soft *s, void *obj, _Atomic uint32_t *taken);
int soft_get_async(struct dev *dev, struct ibv_async_event *ev);
void soft_ack_async(struct dev *dev, struct ibv_async_event *ev);

/* gid.c; s->lock held */
/* 0 or a negative errno: then the table is as it was. */
int soft_gids_load(struct soft *s);
bool soft_gid_local(struct soft *s, const union ibv_gid *gid);
/* Is there any GID? */
bool soft_port_up(const struct soft *s);
int soft_addr_watch(struct soft *s);
void soft_addr_event(struct soft *s);
int soft_gid_choose(struct soft *s, int index, struct dev_gid *out);

#endif
