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
#include "dev/grh.h"
#include "dev/sim/link.h"
#include "dev/sim/lru.h"
#include "dev/sim/model.h"
#include "env/sim/sim.h"

#define SIM_UNITS_MAX 64u
#define SIM_SGE_MAX 16u
#define SIM_INLINE_MAX 256u
#define SIM_WR_MAX 16384u
#define SIM_CQE_MAX (1u << 20)
#define SIM_RD_ATOMIC 16u
#define SIM_SRQ_WR_MAX 65536u
#define SIM_MSG_MAX (1ull << 31)

struct sim_msg;
struct sim_qp;

/* The kind of a QP. A QP takes messages of one kind only. */
enum sim_kind {
	SIM_RC,
	SIM_UC,
	SIM_UD,
	SIM_DCI,
	SIM_DCT,
};

/* Serves one thing at a time, in the order of asking. */
struct sim_server {
	uint64_t free_at;
};

/* As a server, but a short message need not wait for the end of a long one
 * (cable.c). */
struct sim_cable {
	uint64_t free_at;
	uint64_t slip_at; /* the last that slipped in is through */
};

struct sim_rack {
	struct sim_cable up, down;
};

/* The one way that may be slow. */
struct sim_path {
	const struct sim_nic *a, *b;
	uint32_t slow;
};

struct sim_net {
	struct sim_world *w;
	struct nic_model model;
	struct list_node nics;
	struct list_node spare, live; /* sim_msg.link */
	struct prng loss_rng;
	struct sim_racks racks; /* nodes 0: one switch for all */
	struct sim_rack *rack;	/* by number */
	uint32_t rack_cap;
	struct sim_path path;
	uint32_t hollow_from; /* 0: never */
	uint32_t send_wr_max; /* of a QP */
	struct sim_tear tear;
	struct prng tear_rng;
	uint64_t sent, lost;
};

struct sim_nic {
	struct list_node link;
	struct sim_net *net;
	struct sim_node *node;
	uint32_t id; /* the node's */
	struct sim_server units[SIM_UNITS_MAX];
	struct sim_cable egress; /* from here */
	struct sim_cable port;	 /* from the switch to here */
	struct sim_server loop;	 /* to itself */
	struct sim_server irq;
	struct sim_server commands; /* of the control path */
	uint64_t out_at; /* the next request goes out, at the earliest */
	struct lru ctx, mtt;
	struct sim_qp **qps; /* by QPN - 1 */
	uint32_t qps_cap, qp_next, n_qps;
	uint32_t epochs, srqs; /* that there have been */
	struct sim_mr **mrs;   /* by key >> 8 */
	uint32_t mrs_cap, mr_next, mr_gen;
	/* faults */
	bool down;
	uint32_t loss_ppm;
	uint32_t slow; /* the link is so many times slower; 0: not */
	uint64_t extra_delay;
	/* counts */
	uint64_t tx_msgs, rx_msgs, tx_bytes, doorbells, interrupts, rnr_naks;
	uint64_t strangers;
	uint64_t dc_connects;
};

struct sim_dev {
	struct dev dev;
	struct ibv_device ibdev;
	struct verbs_context vctx;
	struct sim_world *w;
	struct sim_nic *nic;
	struct sim_proc *proc;
	struct sim_hook killed;
	struct list_node qps, cqs, mrs, srqs; /* of this device */
	struct list_node events;	      /* struct sim_async */
	uint32_t refs;			      /* PDs, channels, AHs */
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
	struct sim_poller poller;
	struct sim_event irq_ev;
	uint32_t fired; /* events not taken yet */
	struct list_node fired_link;
};

struct sim_ah {
	struct ibv_ah ah;
	struct sim_nic *to;
	struct dev_grh grh;
};

/* Where a request of a UD QP or a DCI goes. */
struct sim_dest {
	struct sim_nic *to;
	uint32_t qpn;
	uint32_t qkey;
	uint64_t dc_key;
	struct dev_grh grh; /* of UD */
};

struct sim_wqe {
	uint64_t wr_id;
	uint64_t raddr, compare_add, swap;
	uint32_t rkey, imm, len;
	uint8_t opcode, flags, num_sge;
	uint64_t sent_at;
	struct ibv_sge *sge;   /* in the QP's pool */
	unsigned char *data;   /* inline, in the QP's pool; or NULL */
	struct sim_dest *dest; /* in the QP's pool, of UD and DCI */
	uint64_t sum;	       /* of its bytes when it was posted; 0: none */
};

struct sim_rqe {
	uint64_t wr_id;
	uint32_t len;
	int num_sge;
	struct ibv_sge *sge;
};

/* Receives: a QP's own, or an SRQ's. Positions are free-running; a place is
 * free again when its completion was polled. */
struct sim_recvq {
	struct sim_rqe *e;
	struct ibv_sge *sge;
	uint32_t cap, max_wr, max_sge, head, tail;
	uint32_t freed; /* of them, in any order */
};

struct sim_srq {
	struct ibv_srq srq;
	struct list_node link;
	struct sim_dev *d;
	struct sim_recvq rq;
	uint32_t num; /* in the NIC's context cache */
	uint32_t limit;
	uint32_t refs; /* QPs */
};

/* What a responder remembers of one requester. */
struct sim_flow {
	uint64_t key;	      /* of a DCI: its NIC and number */
	uint32_t epoch, base; /* of a DCI: which connection of its */
	uint32_t expect;      /* the number of the next request */
	uint32_t n_results;
	bool broken; /* of a DCI: one was refused, none is taken after it */
	uint64_t landed_at;   /* when the last one's bytes are in memory */
	uint64_t answered_at; /* when its answer left */
	/* Results of the last atomics, for requests that come twice. At most
	 * SIM_RD_ATOMIC are under way. */
	struct {
		uint32_t num;
		uint64_t old;
	} results[SIM_RD_ATOMIC];
};

struct sim_qp {
	struct ibv_qp_ex ex;
	struct list_node link;
	struct sim_dev *d;
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	enum sim_kind kind;
	uint32_t epoch; /* unique in the NIC; another one behind each RESET */
	struct sim_nic *far;
	/* send queue: positions are free-running and are the messages' numbers
	 * too; freed behind the polled completion */
	struct sim_wqe *sq;
	struct ibv_sge *sq_sge;
	unsigned char *sq_data;
	struct sim_dest *sq_dest;
	uint32_t sq_cap, sq_freed, sq_head, sq_next, sq_tail;
	uint32_t sq_stop; /* in SQD: what was not begun begins here */
	uint32_t reads;	  /* on their way */
	struct sim_event tx_ev;
	struct sim_event timer; /* unreliable: the next completion */
	uint64_t tx_free;	/* a QP is on one unit at a time */
	uint8_t retries, rnr_retries;
	bool rnr_wait;
	bool sqd_notify;
	bool halted;	  /* on its way to ERR or RESET: sends nothing more */
	uint64_t came_at; /* at the requester: the last answer */
	/* How many messages that are not to be overtaken are under way: of its
	 * requests, of its answers (cable.c). */
	uint32_t held[2];
	/* of a DCI: far, and the first request to it */
	struct sim_dest dc;
	uint32_t dc_base;
	bool dc_met;
	/* responder */
	struct sim_srq *srq; /* or NULL */
	struct sim_recvq rq;
	struct sim_flow flow; /* of the one peer */
	bool met;
	/* of a DCT: a hash table of flows; its size is a power of two */
	uint64_t dc_key;
	struct sim_flow **flows;
	uint32_t flows_cap, n_flows;
};

/* What travels. */
struct sim_msg {
	struct sim_event ev;
	struct list_node link;
	struct sim_nic *from, *to;
	uint32_t src_qpn, dst_qpn, src_epoch;
	uint8_t kind; /* of the requester: enum sim_kind */
	bool answer;
	uint8_t opcode; /* enum ibv_wr_opcode */
	uint8_t flags;
	uint8_t status; /* of an answer: enum ibv_wc_status */
	bool rnr;	/* of an answer: come again */
	bool hollow;	/* brings no bytes */
	uint8_t rnr_timer;
	uint32_t num;  /* of the request */
	uint32_t base; /* RC: the PSN of number 0; DC: see sim_qp.dc_base */
	uint64_t key;  /* UD: the Q_Key; DC: the target's */
	uint32_t len, imm, rkey;
	uint64_t raddr, compare_add, swap;
	uint64_t served_at;  /* a unit had done with it */
	uint64_t sum;	     /* sim_wqe.sum */
	uint64_t tail;	     /* its last byte is at the station that sends it */
	bool slips;	     /* it need not wait for long ones */
	uint32_t held_epoch; /* it is counted in its QP of that epoch; 0: not */
	/* It moves its bytes in so many pieces (tear.c); 0: at once. */
	uint8_t pieces, piece;
	uint32_t tear_gap; /* ns between two of them */
	uint64_t tear;	   /* draws which word belongs to which */
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

static inline struct sim_srq *sim_srq_of(struct ibv_srq *srq)
{
	return container_of(srq, struct sim_srq, srq);
}

static inline struct sim_ah *sim_ah_of(struct ibv_ah *ah)
{
	return container_of(ah, struct sim_ah, ah);
}

static inline struct sim_recvq *sim_recvq_of(struct sim_qp *q)
{
	return q->srq ? &q->srq->rq : &q->rq;
}

/* Nobody answers. */
static inline bool sim_unreliable(const struct sim_qp *q)
{
	return q->kind == SIM_UC || q->kind == SIM_UD;
}

static inline struct sim_cq *sim_cq_of(struct ibv_cq *cq)
{
	return container_of((struct ibv_cq_ex *)(void *)cq, struct sim_cq, ex);
}

/* The verbs carry addresses as numbers. */
static inline void *sim_ptr(uint64_t addr)
{
	return (void *)(uintptr_t)addr;
}

/* net.c */
struct sim_net *sim_net_of(struct sim_world *w);
/* The NIC of a node; made at first use. NULL: no memory. */
struct sim_nic *sim_nic_of(struct sim_node *node);
struct sim_nic *sim_nic_by_gid(struct sim_net *net, const union ibv_gid *gid);
void sim_nic_gid(const struct sim_nic *nic, union ibv_gid *gid);
struct sim_msg *sim_msg_new(struct sim_net *net, uint32_t len);
void sim_msg_free(struct sim_net *net, struct sim_msg *m);
/* Puts m on the cable at `depart`, when its first bytes are there; the last are
 * there at m->tail, if that is later. m reaches arrive() at m->to, or is lost
 * and freed. */
void sim_net_send(struct sim_msg *m, uint64_t depart,
		  void (*arrive)(struct sim_event *ev));
/* Takes a unit for ns from at least `from` on; returns when it has done. */
uint64_t sim_nic_work(struct sim_nic *nic, uint64_t from, uint64_t ns);
/* The time that fetching contexts and translations adds. Contexts are named by
 * QPN, or by SIM_CTX_SRQ and an SRQ's number. */
#define SIM_CTX_SRQ 0x80000000u
uint64_t sim_nic_ctx(struct sim_nic *nic, uint32_t name);
uint64_t sim_nic_mtt(struct sim_nic *nic, uint32_t key, uint64_t addr,
		     uint64_t len);
/* The longest datagram. */
uint32_t sim_nic_mtu(const struct sim_nic *nic);
/* For the trace: one of its stations was busy. */
void sim_nic_span(struct sim_nic *nic, uint32_t track, const char *name,
		  uint64_t begin, uint64_t end);
uint64_t sim_pcie_ns(const struct sim_nic *nic, uint64_t len);
/* Bytes of m on the cable: for a READ the answer carries the data, and the
 * request none. */
uint64_t sim_msg_bytes(const struct sim_msg *m);
/* The message's first bytes are at the switch behind its node's cable; at the
 * last switch, at the port to its destination. */
void sim_net_at_switch(struct sim_event *ev);
void sim_net_at_port(struct sim_event *ev);
/* How many of len bytes must be at a station before it passes them on. */
uint64_t sim_first(const struct sim_nic *nic, uint64_t len);

/* The calling thread makes a call of the control path: cpu_ns on its core,
 * then it waits for the NIC, which carries out one command at a time. */
void sim_control(struct sim_dev *d, uint64_t cpu_ns, uint64_t nic_ns);
void sim_control_destroy(struct sim_dev *d);

/* tear.c */
/* Draws whether a request moves its bytes in pieces. Returns how long after the
 * first piece the next request may be carried out. */
uint64_t sim_tear_plan(struct sim_msg *m);
/* The words of m's current piece. */
void sim_tear_move(const struct sim_msg *m, unsigned char *to,
		   const unsigned char *from);

/* cable.c */
/* The longest packet, with its headers. */
uint64_t sim_packet_bytes(const struct nic_model *model);
/* A message to another NIC enters the network, and leaves it. */
void sim_flow_enters(struct sim_msg *m);
void sim_flow_leaves(const struct sim_msg *m);
/* The time at which m begins on cable c, at `from` or later; m then holds c to
 * its end. */
uint64_t sim_cable_begin(const struct sim_cable *c, const struct sim_msg *m,
			 uint64_t from, uint64_t packet_ns);
void sim_cable_hold(struct sim_cable *c, const struct sim_msg *m,
		    uint64_t begin, uint64_t end);

/* mr.c */
int sim_reg_mr(struct dev *dev, struct ibv_pd *pd, void *addr, size_t len,
	       int access, int fd, uint64_t off, struct ibv_mr **mr);
int sim_dereg_mr(struct dev *dev, struct ibv_mr *mr);
void sim_mr_free(struct sim_mr *m);
/* 0, or the status that a request fails with. */
enum ibv_wc_status sim_mr_remote(struct sim_qp *q, uint32_t rkey, uint64_t addr,
				 uint64_t len, uint32_t access);
bool sim_mr_local(struct sim_qp *q, const struct ibv_sge *sge, uint32_t access);
/* Copies between a scatter list and bytes. False: a memory region does not
 * cover a piece. With NULL for bytes it only checks that. */
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
int sim_resize_cq(struct dev *dev, struct ibv_cq *cq, int cqe);
void sim_cq_free(struct sim_cq *cq);
int sim_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
int sim_req_notify_cq(struct ibv_cq *cq, int solicited_only);
void sim_cq_push(struct sim_cq *cq, const struct sim_cqe *e, bool solicited);
/* Forgets what a QP has in it. */
void sim_cq_purge(struct sim_cq *cq, uint32_t qpn);

/* async.c */
/* element: the QP, CQ or SRQ as the verbs know it; NULL: the port. */
void sim_async(struct sim_dev *d, enum ibv_event_type type, void *element);
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
/* As create_qp(), without what it costs. */
int sim_qp_new(struct sim_dev *d, struct ibv_pd *pd,
	       struct ibv_qp_init_attr *attr, enum sim_kind kind,
	       struct sim_qp **qp);

/* recvq.c */
int sim_recvq_init(struct sim_recvq *r, struct skein_env *env, uint32_t max_wr,
		   uint32_t max_sge);
void sim_recvq_fini(struct sim_recvq *r, struct skein_env *env);
/* 0, EINVAL or ENOMEM; on failure sets *bad. Charges the calling thread. */
int sim_recvq_post(struct sim_recvq *r, struct sim_dev *d,
		   struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

static inline bool sim_recvq_empty(const struct sim_recvq *r)
{
	return r->head == r->tail;
}

static inline struct sim_rqe *sim_recvq_first(struct sim_recvq *r)
{
	return &r->e[r->head & (r->cap - 1)];
}

/* check.c */
void sim_check_posted(struct sim_qp *q, struct sim_wqe *e);
/* The bytes that the READ e has asked for are about to be written. */
void sim_check_read_lands(const struct sim_qp *q, const struct sim_wqe *e);
/* The responder q carries m out. */
void sim_check_carried(const struct sim_qp *q, const struct sim_msg *m);
void sim_check_recv_posted(const struct sim_dev *d, const struct sim_rqe *e);
void sim_check_recv_taken(const struct sim_dev *d, const struct sim_rqe *e);

/* srq.c */
int sim_create_srq(struct dev *dev, struct ibv_pd *pd,
		   struct ibv_srq_init_attr *attr, struct ibv_srq **srq);
int sim_modify_srq(struct dev *dev, struct ibv_srq *srq,
		   struct ibv_srq_attr *attr, int mask);
int sim_query_srq(struct dev *dev, struct ibv_srq *srq,
		  struct ibv_srq_attr *attr);
int sim_destroy_srq(struct dev *dev, struct ibv_srq *srq);
void sim_srq_free(struct sim_srq *r);
int sim_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
		      struct ibv_recv_wr **bad);
/* One of its receives has been taken. */
void sim_srq_taken(struct sim_srq *r);

/* ah.c */
int sim_create_ah(struct dev *dev, struct ibv_pd *pd, struct ibv_ah_attr *attr,
		  struct ibv_ah **ah);
int sim_destroy_ah(struct dev *dev, struct ibv_ah *ah);

/* dc.c */
int sim_create_dci(struct dev *dev, struct ibv_pd *pd,
		   struct ibv_qp_init_attr *attr,
		   const struct dev_qp_opts *opts, struct ibv_qp **qp);
int sim_create_dct(struct dev *dev, struct ibv_pd *pd, struct ibv_cq *cq,
		   struct ibv_srq *srq, uint64_t dc_key, int access,
		   const struct dev_qp_opts *opts, struct ibv_qp **qp);
int sim_post_dc(struct dev *dev, struct ibv_qp *qp, struct ibv_send_wr *wr,
		struct ibv_ah *ah, uint32_t dctn, uint64_t dc_key);
/* May the next request of a DCI go out now? False: the request is for another
 * target, so the DCI waits for answers of the old one, or connects and
 * schedules itself. */
bool sim_dci_ready(struct sim_qp *q, const struct sim_dest *to);
/* What a target remembers of a DCI. NULL: the message is of an old connection,
 * or there is no memory. */
struct sim_flow *sim_dct_flow(struct sim_qp *q, const struct sim_msg *m);
void sim_dct_fini(struct sim_qp *q);

/* post.c */
int sim_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		  struct ibv_send_wr **bad);
int sim_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
		  struct ibv_recv_wr **bad);
/* A list, all or none of it: 0, EINVAL or ENOMEM. dest may be NULL. */
int sim_post_all(struct sim_qp *q, struct ibv_send_wr *wr,
		 const struct sim_dest *dest);

/* send.c: the requester's NIC */
void sim_qp_tx(struct sim_event *ev);
void sim_qp_timer(struct sim_event *ev);
/* An answer has come. */
void sim_answer_arrives(struct sim_event *ev);
void sim_flush_send(struct sim_qp *q);
/* No request that was begun is under way any more: SQ_DRAINED is due, if it was
 * asked for. */
void sim_sqd_look(struct sim_qp *q);
void sim_send_completes(struct sim_qp *q, enum ibv_wc_status status);

/* recv.c: the responder's NIC */
void sim_request_arrives(struct sim_event *ev);
void sim_flush_recv(struct sim_qp *q);

#endif
