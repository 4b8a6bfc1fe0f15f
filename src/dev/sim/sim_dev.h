/* SPDX-License-Identifier: MIT */
/*
 * sim_dev.h - the simulated device from inside: NICs, their network, and the
 * verbs objects of simulated processes.
 *
 * One struct sim_nic a node, shared by the devices that its processes open.
 * Messages between NICs name QPs by number, never by pointer: a QP may be gone
 * when its message comes. Everything runs in the world's one OS thread: no
 * locks.
 */
#ifndef SKEIN_DEV_SIM_SIM_DEV_H
#define SKEIN_DEV_SIM_SIM_DEV_H

#include "base/list.h"
#include "base/prng.h"
#include "dev/dev.h"
#include "dev/sim/lru.h"
#include "dev/sim/model.h"
#include "env/sim/sim.h"

#define SIM_UNITS_MAX 64u
#define SIM_SGE_MAX 16u
#define SIM_INLINE_MAX 256u
#define SIM_WR_MAX 16384u
#define SIM_CQE_MAX (1u << 20)
#define SIM_RD_ATOMIC 16u
#define SIM_MSG_MAX (1ull << 31)

struct sim_msg;
struct sim_qp;

/* Serves one thing at a time, in the order of asking. */
struct sim_server {
	uint64_t free_at;
};

struct sim_net {
	struct sim_world *w;
	struct nic_model model;
	struct list_node nics;
	struct list_node spare, live; /* sim_msg.link */
	struct prng loss_rng;
	uint64_t sent, lost;
};

struct sim_nic {
	struct list_node link;
	struct sim_net *net;
	struct sim_node *node;
	uint32_t id; /* the node's */
	struct sim_server units[SIM_UNITS_MAX];
	struct sim_server egress; /* the cable from here */
	struct sim_server port;	  /* the switch's cable to here */
	struct sim_server irq;
	struct sim_server commands; /* of the control path */
	struct lru ctx, mtt;
	struct sim_qp **qps; /* by QPN - 1 */
	uint32_t qps_cap, qp_next, n_qps;
	struct sim_mr **mrs; /* by key >> 8 */
	uint32_t mrs_cap, mr_next, mr_gen;
	/* faults */
	bool down;
	uint32_t loss_ppm;
	uint32_t slow; /* the link is so many times slower; 0: not */
	uint64_t extra_delay;
	/* counts */
	uint64_t tx_msgs, rx_msgs, tx_bytes, doorbells, interrupts;
};

struct sim_dev {
	struct dev dev;
	struct ibv_device ibdev;
	struct verbs_context vctx;
	struct sim_world *w;
	struct sim_nic *nic;
	struct sim_proc *proc;
	struct sim_hook killed;
	struct list_node qps, cqs, mrs; /* of this device */
	struct list_node events;	/* struct sim_async */
	uint32_t refs;			/* PDs and channels */
};

struct sim_async {
	struct list_node link;
	struct ibv_async_event ev;
};

struct sim_mr {
	struct ibv_mr mr;
	struct list_node link;
	struct sim_dev *d;
	uint32_t access;
};

struct sim_chan {
	struct ibv_comp_channel ch;
	struct sim_dev *d;
	struct list_node fired; /* sim_cq.fired_link */
	uint32_t refs;
};

struct sim_cqe {
	struct ibv_wc wc;
	bool send;
	uint32_t freed; /* the send queue is free before this position */
};

struct sim_cq {
	struct ibv_cq_ex ex;
	struct list_node link;
	struct sim_dev *d;
	struct sim_chan *chan;
	struct sim_cqe *ring;
	uint32_t cap, head, tail; /* free-running */
	uint32_t refs;		  /* QPs */
	bool error;
	enum {
		SIM_ARM_NOT,
		SIM_ARM_ANY,
		SIM_ARM_SOLICITED
	} armed;
	struct sim_event irq_ev;
	uint32_t fired; /* events not taken yet */
	struct list_node fired_link;
};

struct sim_wqe {
	uint64_t wr_id;
	uint64_t raddr, compare_add, swap;
	uint32_t rkey, imm, len;
	uint8_t opcode, flags, num_sge;
	uint64_t sent_at;
	struct ibv_sge *sge; /* in the QP's pool */
	unsigned char *data; /* inline, in the QP's pool; or NULL */
};

struct sim_rqe {
	uint64_t wr_id;
	uint32_t len;
	int num_sge;
	struct ibv_sge *sge;
};

#define SIM_RESULTS 32u /* of atomics, for requests that come twice */

struct sim_qp {
	struct ibv_qp_ex ex;
	struct list_node link;
	struct sim_dev *d;
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	uint32_t epoch; /* counts ways out of RESET */
	struct sim_nic *far;
	/* send queue: positions are free-running and are the messages' numbers
	 * too; freed behind the polled completion */
	struct sim_wqe *sq;
	struct ibv_sge *sq_sge;
	unsigned char *sq_data;
	uint32_t sq_cap, sq_freed, sq_head, sq_next, sq_tail;
	uint32_t reads; /* on their way */
	struct sim_event tx_ev;
	struct sim_event timer;
	uint64_t tx_free; /* a QP is on one unit at a time */
	uint8_t retries, rnr_retries;
	bool rnr_wait;
	/* responder */
	struct sim_rqe *rq;
	struct ibv_sge *rq_sge;
	uint32_t rq_cap, rq_head, rq_tail;
	uint32_t expect;      /* the number of the next request */
	uint64_t landed_at;   /* when the last one's bytes are in memory */
	uint64_t answered_at; /* when its answer left */
	uint64_t came_at;     /* at the requester: the last answer */
	uint64_t results[SIM_RESULTS];
	bool met;
};

/* What travels. */
struct sim_msg {
	struct sim_event ev;
	struct list_node link;
	struct sim_nic *from, *to;
	uint32_t src_qpn, dst_qpn, src_epoch;
	bool answer;
	uint8_t opcode; /* enum ibv_wr_opcode */
	uint8_t flags;
	uint8_t status; /* of an answer: enum ibv_wc_status */
	bool rnr;	/* of an answer: come again */
	uint8_t rnr_timer;
	uint32_t num; /* of the request */
	uint32_t len, imm, rkey;
	uint64_t raddr, compare_add, swap;
	uint64_t served_at; /* a unit had done with it */
	unsigned char *data;
	uint32_t data_cap;
};

static inline struct sim_dev *sim_dev_of(struct dev *dev)
{
	return container_of(dev, struct sim_dev, dev);
}

static inline struct sim_dev *sim_dev_of_ctx(struct ibv_context *ctx)
{
	return container_of(ctx, struct sim_dev, vctx.context);
}

static inline struct sim_qp *sim_qp_of(struct ibv_qp *qp)
{
	return container_of(qp, struct sim_qp, ex.qp_base);
}

static inline struct sim_cq *sim_cq_of(struct ibv_cq *cq)
{
	return container_of((struct ibv_cq_ex *)(void *)cq, struct sim_cq, ex);
}

/* The verbs carry addresses as numbers. */
static inline void *sim_ptr(uint64_t addr)
{
	/* NOLINTNEXTLINE(performance-no-int-to-ptr) */
	return (void *)(uintptr_t)addr;
}

/* net.c */
/* The NIC of a node; made at first use. NULL: no memory. */
struct sim_nic *sim_nic_of(struct sim_node *node);
struct sim_nic *sim_nic_by_gid(struct sim_net *net, const union ibv_gid *gid);
void sim_nic_gid(const struct sim_nic *nic, union ibv_gid *gid);
struct sim_msg *sim_msg_new(struct sim_net *net, uint32_t len);
void sim_msg_free(struct sim_net *net, struct sim_msg *m);
/* Puts m on the cable at depart; it reaches arrive(m's event) at m->to, or is
 * lost and freed. */
void sim_net_send(struct sim_msg *m, uint64_t depart,
		  void (*arrive)(struct sim_event *ev));
/* Takes a unit for ns from at least `from` on; returns when it has done. */
uint64_t sim_nic_work(struct sim_nic *nic, uint64_t from, uint64_t ns);
/* What fetching contexts and translations adds. */
uint64_t sim_nic_ctx(struct sim_nic *nic, uint32_t qpn);
uint64_t sim_nic_mtt(struct sim_nic *nic, uint32_t key, uint64_t addr,
		     uint64_t len);
uint64_t sim_pcie_ns(const struct sim_nic *nic, uint64_t len);

/* The calling thread makes a call of the control path: cpu_ns on its core,
 * then it waits for the NIC, which carries out one command at a time. */
void sim_control(struct sim_dev *d, uint64_t cpu_ns, uint64_t nic_ns);
void sim_control_destroy(struct sim_dev *d);

/* mr.c */
int sim_reg_mr(struct dev *dev, struct ibv_pd *pd, void *addr, size_t len,
	       int access, int fd, uint64_t off, struct ibv_mr **mr);
int sim_dereg_mr(struct dev *dev, struct ibv_mr *mr);
void sim_mr_free(struct sim_mr *m);
/* 0, or the status that a request fails with. */
enum ibv_wc_status sim_mr_remote(struct sim_qp *q, uint32_t rkey, uint64_t addr,
				 uint64_t len, uint32_t access);
bool sim_mr_local(struct sim_qp *q, const struct ibv_sge *sge, uint32_t access);
/* Between a scatter list and bytes; false when a piece is not covered. */
bool sim_gather(struct sim_qp *q, const struct ibv_sge *sge, int n,
		unsigned char *to);
bool sim_scatter(struct sim_qp *q, const struct ibv_sge *sge, int n,
		 const unsigned char *from, uint32_t len);

/* cq.c */
int sim_create_chan(struct dev *dev, struct ibv_comp_channel **ch);
int sim_destroy_chan(struct dev *dev, struct ibv_comp_channel *ch);
int sim_get_cq_event(struct dev *dev, struct ibv_comp_channel *ch,
		     struct ibv_cq **cq);
void sim_ack_cq_events(struct dev *dev, struct ibv_cq *cq, unsigned n);
int sim_create_cq(struct dev *dev, int cqe, void *cq_context,
		  struct ibv_comp_channel *ch, struct ibv_cq **cq);
int sim_destroy_cq(struct dev *dev, struct ibv_cq *cq);
void sim_cq_free(struct sim_cq *cq);
int sim_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
int sim_req_notify_cq(struct ibv_cq *cq, int solicited_only);
void sim_cq_push(struct sim_cq *cq, const struct sim_cqe *e, bool solicited);
/* Forgets what a QP has in it. */
void sim_cq_purge(struct sim_cq *cq, uint32_t qpn);

/* async.c */
void sim_async(struct sim_dev *d, enum ibv_event_type type, struct sim_qp *q,
	       struct sim_cq *cq);
int sim_get_async(struct dev *dev, struct ibv_async_event *ev);
void sim_ack_async(struct dev *dev, struct ibv_async_event *ev);
void sim_async_drop(struct sim_dev *d, const void *object);

/* qp.c */
int sim_create_qp(struct dev *dev, struct ibv_pd *pd,
		  struct ibv_qp_init_attr *attr, unsigned flags,
		  struct ibv_qp **qp);
int sim_modify_qp(struct dev *dev, struct ibv_qp *qp, struct ibv_qp_attr *attr,
		  int mask);
int sim_query_qp(struct dev *dev, struct ibv_qp *qp, struct ibv_qp_attr *attr,
		 int mask, struct ibv_qp_init_attr *init);
int sim_destroy_qp(struct dev *dev, struct ibv_qp *qp);
void sim_qp_free(struct sim_qp *q);
struct sim_qp *sim_qp_find(struct sim_nic *nic, uint32_t qpn);
void sim_qp_to_err(struct sim_qp *q);

/* post.c */
int sim_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		  struct ibv_send_wr **bad);
int sim_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
		  struct ibv_recv_wr **bad);

/* send.c: the requester's NIC */
void sim_qp_tx(struct sim_event *ev);
void sim_qp_timer(struct sim_event *ev);
/* An answer has come. */
void sim_answer_arrives(struct sim_event *ev);
void sim_flush_send(struct sim_qp *q);
void sim_send_completes(struct sim_qp *q, enum ibv_wc_status status);

/* recv.c: the responder's NIC */
void sim_request_arrives(struct sim_event *ev);
void sim_flush_recv(struct sim_qp *q);

#endif
