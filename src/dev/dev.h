/* SPDX-License-Identifier: MIT */
/*
 * dev.h - the device seam: libibverbs is the interface.
 *
 * The data path (ibv_post_send, ibv_post_recv, ibv_post_srq_recv, ibv_poll_cq,
 * ibv_req_notify_cq) is inline in <infiniband/verbs.h> and goes through
 * context->ops; a device of ours fills that table, so a real NIC pays nothing.
 * The control path needs the table below. Objects are libibverbs' own structs:
 * a device allocates verbs_context, ibv_qp_ex and ibv_cq_ex from the first day
 * and hands out the embedded ibv_context, ibv_qp, ibv_cq. The extended verbs
 * (ibv_create_qp_ex, ibv_create_cq_ex, ibv_query_device_ex) are reached through
 * verbs_context, as libibverbs does it, and need no entry here.
 *
 * docs/design/semantics.md says what every device promises. Abilities are
 * queried (struct dev_caps), never assumed.
 *
 * Thread rule: control path calls may block and may be made by any thread; the
 * data path follows the verbs rules (thread safe per QP and CQ). Both unless
 * DEV_QP_SINGLE_THREADED or DEV_QP_SERIAL was asked for.
 *
 * Errors: 0 or a negative errno; out-parameters come last and are untouched on
 * failure.
 */
#ifndef SKEIN_DEV_DEV_H
#define SKEIN_DEV_DEV_H

#include <infiniband/verbs.h>
#include <net/if.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct skein_env;
struct dev;

enum dev_atomic_scope {
	DEV_ATOMIC_NONE,
	DEV_ATOMIC_HCA,	 /* atomic among the operations of one device */
	DEV_ATOMIC_GLOB, /* atomic with the CPU too */
};

/* What fork() does to memory that is registered. */
enum dev_fork {
	DEV_FORK_SAFE,	  /* nothing: the device or the kernel sees to it */
	DEV_FORK_GUARDED, /* children do not have it: ibv_fork_init() */
	DEV_FORK_UNSAFE,  /* private memory may move under the device */
};

/* Of a device. Between hosts a QP has others: ask dev_qp_caps() for
 * ordered_read, death_notice, poster_copies, dc and timeout. */
struct dev_caps {
	/* bytes of one WRITE into this device's memory become visible in
	 * ascending address order, so a tail canary proves the body: the
	 * receiver's ability */
	bool ordered_write;
	/* a READ returns bytes as of ascending moments */
	bool ordered_read;
	/* a plain WRITE into memory wakes a sleeper on a completion channel */
	bool wake_on_write;
	/* the death of a peer is reported without traffic. On soft the opener
	 * of the device may clear it before the first QP: the device is then as
	 * silent as a NIC, for programs that take a notice for a failure */
	bool death_notice;
	/* the thread that posts or polls does the copying: long operations take
	 * its time */
	bool poster_copies;
	bool dc;
	/* honours DEV_QP_SINGLE_THREADED and DEV_QP_SERIAL */
	bool single_threaded;
	bool uc, ud, srq;
	/* posting sends to a QP made with DEV_QP_SERIAL, and polling a CQ, are
	 * no points of cancellation (pthreads(7)) */
	bool no_cancel;
	enum dev_atomic_scope atomic_scope;
	enum dev_fork fork;
	/* what dev_qp_opts.timeout is by default; 0: 14 */
	uint8_t timeout;
	uint64_t msg_sz_max;
	uint32_t inline_max; /* bytes; what an RC QP is asked for at most */
	uint32_t qp_wr_max;
	uint32_t sge_max;
	uint32_t cqe_max;
	uint32_t rd_atomic_max;
	uint64_t mr_len_max;
	uint32_t qp_max;
	/* the number of QPs in use at once that the device serves at full
	 * speed; with more, their contexts drive each other out of its cache;
	 * 0: unknown */
	uint32_t qp_fast;
	uint32_t mr_max;
	uint32_t srq_wr_max;
};

enum dev_gid_type {
	DEV_GID_IB,
	DEV_GID_ROCE_V1,
	DEV_GID_ROCE_V2,
};

/* The chosen GID, and why it was chosen, in words for people. */
struct dev_gid {
	union ibv_gid gid;
	int index;
	enum dev_gid_type type;
	char netdev[IF_NAMESIZE]; /* "" when unknown */
	char why[96];
};

/* Where the device is reached now. */
struct dev_path {
	struct dev_gid gid; /* index -1: nowhere; why says so */
	struct ibv_port_attr port;
};

/* What refresh() found. */
enum {
	/* the chosen GID, or on InfiniBand the LID, is another: QPs that were
	 * connected with the old one reach nobody */
	DEV_CHANGE_ADDR = 1 << 0,
	/* the port's state or MTU */
	DEV_CHANGE_PORT = 1 << 1,
};

/* Counts that carry over to real NICs; one per engine (or thread), so that no
 * two threads write one line. */
struct dev_stats {
	uint64_t send_wrs;
	uint64_t recv_wrs;
	uint64_t doorbells; /* post calls */
	uint64_t completions;
	uint64_t bytes;	  /* of posted sends and writes; READs count too */
	uint64_t wakeups; /* completion events taken */
};

/* QP creation flags */
enum {
	/* the caller serialises all calls with this QP and its CQs: post, poll,
	 * and the control path, from creation to destruction */
	DEV_QP_SINGLE_THREADED = 1 << 0,
	/* the caller serialises the post_send() calls of this QP with each
	 * other, and the post_recv() calls with each other; not the calls of
	 * its CQs */
	DEV_QP_SERIAL = 1 << 1,
};

/* What one end tells the other so that an RC QP can be connected. */
struct dev_qp_addr {
	union ibv_gid gid;
	uint32_t qpn;	   /* 24 bits */
	uint32_t psn;	   /* 24 bits; where this end starts sending */
	uint16_t lid;	   /* 0 on Ethernet */
	uint8_t mtu;	   /* enum ibv_mtu */
	uint8_t rd_atomic; /* READs and atomics this end accepts at once */
};

/* How a QP's packets travel; all zero is the default. */
struct dev_qp_opts {
	uint8_t mtu;	       /* enum ibv_mtu, at most; default: the port's */
	uint8_t timeout;       /* 4.096 us * 2^timeout; default: caps' */
	uint8_t retry_cnt;     /* default 7 */
	uint8_t rnr_retry;     /* default 7: for ever */
	uint8_t min_rnr_timer; /* default 12 */
	uint8_t traffic_class;
	uint8_t sl;
};

/* A question to the process of a QP's peer. The caller's, until on_answer() or the
 * QP's destruction. */
struct dev_reach {
	/* Runs once, in any thread, and calls nothing of the device. */
	void (*on_answer)(struct dev_reach *r);
};

struct dev_ops {
	const char *kind; /* "soft", "verbs", "sim" */
	void (*close)(struct dev *dev);

	int (*query_device)(struct dev *dev, struct ibv_device_attr *attr);
	int (*query_port)(struct dev *dev, uint8_t port,
			  struct ibv_port_attr *attr);
	int (*query_gid)(struct dev *dev, uint8_t port, int index,
			 struct dev_gid *gid); /* -ENODATA: empty entry */

	int (*alloc_pd)(struct dev *dev, struct ibv_pd **pd);
	int (*dealloc_pd)(struct dev *dev, struct ibv_pd *pd);

	/* Memory addr..addr+len; fd/off name the shared file it is a mapping
	 * of, or fd is -1 for ordinary memory. The device dups what it keeps.
	 * -ENOMEM names RLIMIT_MEMLOCK in the log when that is the cause. */
	int (*reg_mr)(struct dev *dev, struct ibv_pd *pd, void *addr,
		      size_t len, int access, int fd, uint64_t off,
		      struct ibv_mr **mr);
	/* The same, and requests name its memory by iova..iova+len. NULL: they
	 * cannot. */
	int (*reg_mr_iova)(struct dev *dev, struct ibv_pd *pd, void *addr,
			   size_t len, uint64_t iova, int access, int fd,
			   uint64_t off, struct ibv_mr **mr);
	/* A zeroed region of the device's own memory, which connected peers
	 * have mapped already; (*mr)->addr says where. It is freed with the MR.
	 * -E2BIG: too large; -ENOMEM. NULL: the device has no such memory. */
	int (*new_mr)(struct dev *dev, struct ibv_pd *pd, size_t len,
		      int access, struct ibv_mr **mr);
	/* After it has returned, no peer is still reading or writing. */
	int (*dereg_mr)(struct dev *dev, struct ibv_mr *mr);
	/* mr becomes the region that reg_mr() would make, and keeps its keys;
	 * on an error it stays as it is. flags: IBV_REREG_MR_CHANGE_*; what
	 * they do not name is not read. */
	int (*rereg_mr)(struct dev *dev, struct ibv_mr *mr, int flags,
			struct ibv_pd *pd, void *addr, size_t len, int access,
			int fd, uint64_t off);

	int (*create_comp_channel)(struct dev *dev,
				   struct ibv_comp_channel **ch);
	int (*destroy_comp_channel)(struct dev *dev,
				    struct ibv_comp_channel *ch);
	/* Nonblocking: -EAGAIN when no event waits. The device has set
	 * ch->fd so; leave its flags alone. */
	int (*get_cq_event)(struct dev *dev, struct ibv_comp_channel *ch,
			    struct ibv_cq **cq);
	void (*ack_cq_events)(struct dev *dev, struct ibv_cq *cq, unsigned n);

	int (*create_cq)(struct dev *dev, int cqe, void *cq_context,
			 struct ibv_comp_channel *ch, struct ibv_cq **cq);
	int (*destroy_cq)(struct dev *dev, struct ibv_cq *cq);
	/* To at least cqe entries; what is in it stays. -EINVAL when more
	 * completions wait than would fit. */
	int (*resize_cq)(struct dev *dev, struct ibv_cq *cq, int cqe);

	/* The next four are NULL where caps.srq is false. attr->attr is updated
	 * to what was given. Receives are posted by ibv_post_srq_recv(). */
	int (*create_srq)(struct dev *dev, struct ibv_pd *pd,
			  struct ibv_srq_init_attr *attr, struct ibv_srq **srq);
	int (*modify_srq)(struct dev *dev, struct ibv_srq *srq,
			  struct ibv_srq_attr *attr, int mask);
	int (*query_srq)(struct dev *dev, struct ibv_srq *srq,
			 struct ibv_srq_attr *attr);
	/* -EBUSY while a QP uses it. */
	int (*destroy_srq)(struct dev *dev, struct ibv_srq *srq);

	/* Address handles, for UD; NULL where caps.ud is false. */
	int (*create_ah)(struct dev *dev, struct ibv_pd *pd,
			 struct ibv_ah_attr *attr, struct ibv_ah **ah);
	int (*destroy_ah)(struct dev *dev, struct ibv_ah *ah);

	/* A UD QP takes what is sent to the group (QPN 0xffffff) from here on;
	 * lid is InfiniBand's. NULL where the device has no multicast.
	 * destroy_qp is -EBUSY while a QP is attached. */
	int (*attach_mcast)(struct dev *dev, struct ibv_qp *qp,
			    const union ibv_gid *gid, uint16_t lid);
	int (*detach_mcast)(struct dev *dev, struct ibv_qp *qp,
			    const union ibv_gid *gid, uint16_t lid);

	/* attr->qp_type: RC, and UC, UD where the caps say so (-EOPNOTSUPP
	 * else). attr->cap is updated to what was given. */
	int (*create_qp)(struct dev *dev, struct ibv_pd *pd,
			 struct ibv_qp_init_attr *attr, unsigned flags,
			 struct ibv_qp **qp);
	int (*modify_qp)(struct dev *dev, struct ibv_qp *qp,
			 struct ibv_qp_attr *attr, int mask);
	/* Where modify_qp() to RTR may wait for the peer's process: asks that
	 * process about peer, and does not wait. 0, or -EINPROGRESS and then
	 * on_answer(): from there on modify_qp() of this QP, in INIT, to RTR with
	 * peer waits for no other process; it returns what was found. Other
	 * errors are of this end. NULL: it never waits. */
	int (*reach)(struct dev *dev, struct ibv_qp *qp,
		     const struct dev_qp_addr *peer, struct dev_reach *r);
	int (*query_qp)(struct dev *dev, struct ibv_qp *qp,
			struct ibv_qp_attr *attr, int mask,
			struct ibv_qp_init_attr *init);
	/* After it has returned, no peer is still touching its queues. */
	int (*destroy_qp)(struct dev *dev, struct ibv_qp *qp);

	/* Async events of the context: dev->verbs->async_fd is pollable.
	 * Nonblocking: -EAGAIN when there is none. */
	int (*get_async_event)(struct dev *dev, struct ibv_async_event *ev);
	void (*ack_async_event)(struct dev *dev, struct ibv_async_event *ev);

	/* Looks at the port and its GID table again, as an event of the port
	 * asks for, and says what has changed since the last look. The chosen
	 * GID stays as long as it is there, by its index and its bytes; else
	 * another is chosen. NULL: nothing ever changes. */
	int (*refresh)(struct dev *dev, unsigned *changes);
	/* As of the last look; any thread. NULL: as at open. */
	void (*path)(struct dev *dev, struct dev_path *path);

	/* DC; the next three are only for devices with caps.dc. It needs SRQs.
	 * A DCI, ready to send to any target; attr's qp_type and receives do
	 * not matter, its cap is updated. A failed request leaves it in ERR:
	 * destroy it. opts may be NULL. */
	int (*create_dci)(struct dev *dev, struct ibv_pd *pd,
			  struct ibv_qp_init_attr *attr,
			  const struct dev_qp_opts *opts, struct ibv_qp **qp);
	/* A target: DCIs anywhere reach it by our address, its qp_num and
	 * dc_key, and their messages take the SRQ's receives. */
	int (*create_dct)(struct dev *dev, struct ibv_pd *pd, struct ibv_cq *cq,
			  struct ibv_srq *srq, uint64_t dc_key, int access,
			  const struct dev_qp_opts *opts, struct ibv_qp **qp);
	/* Operations (a list) of a DCI, all to one target: rkey and address in
	 * wr, target in ah, dctn, key. All or none. -EINVAL for an opcode or
	 * inline data that do not go together, or what the device says. */
	int (*post_dc)(struct dev *dev, struct ibv_qp *qp,
		       struct ibv_send_wr *wr, struct ibv_ah *ah, uint32_t dctn,
		       uint64_t dc_key);

	/* Waits until no remote operation that started before the call still
	 * touches the MR (or the QP's queues), as dereg and destroy do; for an
	 * owner that keeps the object. NULL: nothing to wait for beyond the
	 * last local operation (a real NIC keeps no copy going after dereg). */
	int (*quiesce_mr)(struct dev *dev, struct ibv_mr *mr);
	int (*quiesce_qp)(struct dev *dev, struct ibv_qp *qp);

	/* Is the process behind this connected QP alive? 0 alive, -ENOTCONN
	 * dead, -EOPNOTSUPP unknown here: probe by a zero-byte WRITE. Never
	 * blocks and makes no system call. */
	int (*probe)(struct dev *dev, struct ibv_qp *qp);

	/* Clears in *caps what does not hold between this QP, in RTR or RTS,
	 * and its peer; qp NULL: any QP with a peer on another host. NULL: all
	 * peers are alike. */
	void (*qp_caps)(const struct dev *dev, struct ibv_qp *qp,
			struct dev_caps *caps);

	/* What carries the bytes of this RC QP now, in RTR or RTS: "shared
	 * memory", "udp" or "tcp". NULL: the device's own wire. */
	const char *(*qp_link)(struct ibv_qp *qp);
};

struct dev {
	const struct dev_ops *ops;
	struct skein_env *env;
	struct ibv_context *verbs; /* data path table inside */
	struct dev_caps caps;
	char name[64]; /* "skein0", "rxe0", "mlx5_0" */
	char why[160]; /* why this device, in words for people */
	char mode[40]; /* "harsh, seed 7"; "" when there is nothing to say */
	char link[96]; /* how others are reached; "": by the device itself */
	uint8_t port;
	/* at open; later see dev_path_now() */
	struct ibv_port_attr port_attr;
	struct dev_gid gid; /* the chosen one */
};

/*
 * Opens a device. spec: NULL or "" (then automatic: a real device with an
 * active port if there is one, else soft), "soft", "verbs" or "verbs:NAME".
 * gid_index: -1 chooses (RoCEv2 over IPv4, then v2 over global IPv6, then
 * link-local, then v1; only GIDs whose netdev is in our network namespace).
 * err receives one line that says what failed and the likely fix.
 * -ENODEV no such device, -EINVAL a spec that is not understood.
 */
int dev_open(struct skein_env *env, const char *spec, int gid_index, char *err,
	     size_t err_len, struct dev **dev);
void dev_close(struct dev *dev);
/* "soft (skein0)", "soft (skein0, harsh, seed 7)" */
void dev_describe(const struct dev *dev, char *buf, size_t len);

/* The devices; used by dev_open() and tests. Same contract as dev_open();
 * name "" takes the first usable one. */
int dev_soft_open(struct skein_env *env, const char *name, int gid_index,
		  char *err, size_t err_len, struct dev **dev);
int dev_verbs_open(struct skein_env *env, const char *name, int gid_index,
		   char *err, size_t err_len, struct dev **dev);
int dev_sim_open(struct skein_env *env, const char *name, int gid_index,
		 char *err, size_t err_len, struct dev **dev);

/* The soft device's GUID, in network order: one for each network namespace of
 * a running machine, so that all processes there name the same device. */
uint64_t dev_soft_guid(void);

/* The caps between a QP, from RTR on, and its peer; qp NULL: between any QP and
 * a peer on another host. */
void dev_qp_caps(const struct dev *dev, struct ibv_qp *qp,
		 struct dev_caps *caps);

/* For people: as qp_link(); NULL where the device has one wire. */
const char *dev_qp_link(const struct dev *dev, struct ibv_qp *qp);

/* The port and the chosen GID, as of the last look. */
void dev_path_now(struct dev *dev, struct dev_path *path);

#define DEV_HOP_LIMIT 64

/* Fills *addr for a QP of this device (port, chosen GID, a given psn). */
void dev_qp_addr(struct dev *dev, struct ibv_qp *qp, uint32_t psn,
		 struct dev_qp_addr *addr);
/* RESET to INIT with remote access, and INIT to RTR to RTS, with the masks
 * the specification asks of an RC or UC QP (IBA 11.2.5.2). */
int dev_qp_init(struct dev *dev, struct ibv_qp *qp, int access);
/* Why dev_qp_rtr() failed, in words that the other end understands too; NULL: the
 * errno says it. */
const char *dev_qp_rtr_error(int err);
/* -EINVAL when peer makes no sense, -EADDRNOTAVAIL when this end has no GID. */
int dev_qp_rtr(struct dev *dev, struct ibv_qp *qp,
	       const struct dev_qp_addr *peer, const struct dev_qp_opts *opts);
int dev_qp_rts(struct dev *dev, struct ibv_qp *qp, uint32_t psn,
	       const struct dev_qp_addr *peer, const struct dev_qp_opts *opts);
/* A UD QP from RESET to RTS: it takes what is sent with this Q_Key. */
int dev_qp_ud(struct dev *dev, struct ibv_qp *qp, uint32_t qkey, uint32_t psn);
/* The address of a peer's port, for create_ah; opts may be NULL. -EINVAL when
 * peer makes no sense. */
int dev_ah_attr(struct dev *dev, const struct dev_qp_addr *peer,
		const struct dev_qp_opts *opts, struct ibv_ah_attr *attr);
/* opts, or NULL, with defaults for what is zero but mtu, traffic_class, sl. */
struct dev_qp_opts dev_qp_opts_full(const struct dev_qp_opts *opts);
/* How long a QP in RTR or above asks a silent peer before its requests fail, at
 * least; opts as of dev_qp_rts(). */
uint64_t dev_qp_patience_ns(const struct dev *dev, struct ibv_qp *qp,
			    const struct dev_qp_opts *opts);
/* READs and atomics at once that this end accepts, and makes. */
uint8_t dev_rd_atomic(const struct dev *dev);
/* To ERR: what is queued is flushed. To be called again after posting the
 * marker receive of a teardown: not all devices look by themselves. */
int dev_qp_err(struct dev *dev, struct ibv_qp *qp);

/* The address handle that answers a UD receive: wc, and the first 40 bytes of
 * its buffer. -EINVAL: it was sent to a group; -ENODATA: to a GID that is not
 * in our table (any more); -EPROTONOSUPPORT: no header known to us. */
int dev_ah_from_wc(struct dev *dev, const struct ibv_wc *wc,
		   const struct ibv_grh *grh, struct ibv_ah_attr *attr);

/* Thin wrappers that count alike on every device. Return a negative errno. */
static inline int dev_post_send(struct dev_stats *st, struct ibv_qp *qp,
				struct ibv_send_wr *wr,
				struct ibv_send_wr **bad)
{
	int i;

	st->doorbells++;
	for (struct ibv_send_wr *w = wr; w; w = w->next) {
		st->send_wrs++;
		if (__builtin_expect(w->num_sge == 1, 1)) {
			st->bytes += w->sg_list->length;
			continue;
		}
		for (i = 0; i < w->num_sge; i++)
			st->bytes += w->sg_list[i].length;
	}
	return -ibv_post_send(qp, wr, bad);
}

/* The same of one, with one piece. */
static inline int dev_post_one(struct dev_stats *st, struct ibv_qp *qp,
			       struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	st->doorbells++;
	st->send_wrs++;
	st->bytes += wr->sg_list->length;
	return -ibv_post_send(qp, wr, &bad);
}

static inline int dev_post_recv(struct dev_stats *st, struct ibv_qp *qp,
				struct ibv_recv_wr *wr,
				struct ibv_recv_wr **bad)
{
	st->doorbells++;
	for (struct ibv_recv_wr *w = wr; w; w = w->next)
		st->recv_wrs++;
	return -ibv_post_recv(qp, wr, bad);
}

static inline int dev_post_srq_recv(struct dev_stats *st, struct ibv_srq *srq,
				    struct ibv_recv_wr *wr,
				    struct ibv_recv_wr **bad)
{
	st->doorbells++;
	for (struct ibv_recv_wr *w = wr; w; w = w->next)
		st->recv_wrs++;
	return -ibv_post_srq_recv(srq, wr, bad);
}

static inline int dev_poll_cq(struct dev_stats *st, struct ibv_cq *cq, int n,
			      struct ibv_wc *wc)
{
	int got = ibv_poll_cq(cq, n, wc);

	if (got > 0)
		st->completions += (uint64_t)got;
	return got;
}

static inline int dev_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	return -ibv_req_notify_cq(cq, solicited_only);
}

#endif
