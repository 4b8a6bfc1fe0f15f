/* SPDX-License-Identifier: MIT */
/*
 * engine.h - virtual queue pairs on a few DC queue pairs: algorithms 1 and 2 of
 * KRCore (section 4), corrected (docs/vqp.md, "Algorithm 2").
 *
 * The engine has no thread, clock, socket or device of its own: a port posts
 * and polls for it, time is a number. A request is checked and copied into a
 * slot, waits in its vqp's queue, is posted to the vqp's DCI when that is free
 * for its target, and completes into the vqp's own queue. wr_id is slot and
 * generation: so a late completion of a replaced DCI is ignored.
 *
 * Invariants: a vqp uses one DCI, from the two of its peer, and all requests
 * outstanding on a DCI are for one peer. sq_used of a DCI, and cq_used of all,
 * never exceed what the port says; each request counts as one completion, for a
 * failing DCI flushes each. The entries of a vqp's completion queue are in the
 * order of posting, and those before comp_ready are ready. n_slots of a vqp is
 * at most VQP_QUEUE.
 *
 * Thread rule: one thread at a time.
 */
#ifndef SKEIN_VQP_ENGINE_H
#define SKEIN_VQP_ENGINE_H

#include "base/list.h"
#include "vqp/meta.h"
#include "vqp/msg.h"
#include "vqp/region.h"

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stddef.h>

#define VQP_DCIS_MAX 32u
#define VQP_PEER_DCIS 2u
#define VQP_QUEUE 128u	/* requests of a vqp, posted or not */
#define VQP_COMPS 256u	/* completions of a vqp that were not polled */
#define VQP_RECVS 128u	/* receives of a vqp */
#define VQP_SGES 4u	/* of a request */
#define VQP_INLINE 128u /* bytes */
#define VQP_CELL 256u	/* of a slot: header, inline data, or records */
#define VQP_CHAIN 16u	/* requests of one post at most */
#define VQP_TURN 64u	/* requests to one peer while another waits */
#define VQP_WINDOW 16u	/* messages of a pair that the receiver has not taken */
#define VQP_MAX 65535u
#define VQP_SLOTS 1024u
#define VQP_ROOM_ROUNDS 4u /* of the loop that waits for room */
#define VQP_TORN_MAX 3u
#define VQP_METAS 2u /* meta servers, which have the same records */
#define VQP_LOOKUP_AGAIN_NS 1000000ull
#define VQP_LOOKUP_WAIT_NS 50000ull
#define VQP_RETAKE_NS 100000000ull

/* Mistakes that a test asks for, to prove that it finds them. Only in objects
 * built with VQP_PLANT. */
enum vqp_plant {
	VQP_PLANT_A = 1 << 0,	    /* a list is not checked as a whole */
	VQP_PLANT_B = 1 << 1,	    /* a list is not cut to the room there is */
	VQP_PLANT_C = 1 << 2,	    /* the last request is counted twice */
	VQP_PLANT_D = 1 << 3,	    /* the head is marked, not the oldest */
	VQP_PLANT_E = 1 << 4,	    /* the CQ is not counted */
	VQP_PLANT_E2 = 1 << 5,	    /* generations are not looked at */
	VQP_PLANT_F = 1 << 6,	    /* no credits */
	VQP_PLANT_G = 1 << 7,	    /* behind another target's requests */
	VQP_PLANT_G2 = 1 << 8,	    /* all vqps of a failed DCI are in error */
	VQP_PLANT_SUM = 1 << 9,	    /* a torn record counts as no node */
	VQP_PLANT_REGION = 1 << 10, /* ranges and rights are not looked at */
	VQP_PLANT_LEASE = 1 << 11,  /* a lease has no end */
	VQP_PLANT_LEASE_LATE = 1 << 12,	 /* it begins with the answer */
	VQP_PLANT_REGION_SUM = 1 << 13,	 /* a torn record is no region */
	VQP_PLANT_DOMAIN = 1 << 14,	 /* domains are not looked at */
	VQP_PLANT_H = 1 << 15,		 /* a refused post ends its DCI */
	VQP_PLANT_H2 = 1 << 16,		 /* what may be done is posted again */
	VQP_PLANT_H3 = 1 << 17,		 /* no request fails alone */
	VQP_PLANT_META_WAIT = 1 << 18,	 /* the other is not asked in time */
	VQP_PLANT_META_NOBODY = 1 << 19, /* one that knows nothing is enough */
	VQP_PLANT_META_TORN = 1 << 20,	 /* the other is not asked if torn */
	VQP_PLANT_META_LATE = 1 << 21,	 /* a late answer is taken */
	VQP_PLANT_META_ANEW = 1 << 22,	 /* a look-up hangs on a server gone */
	VQP_PLANT_META_DCI = 1 << 23,	 /* both may be on one DCI */
	VQP_PLANT_F2 = 1 << 24,		 /* credit is sent to the port */
};

struct vqp;
struct vqp_engine;

/* A node to which requests go. */
struct vqp_peer {
	struct vqp_peer *next; /* in its bucket */
	struct meta_node node;
	void *way; /* the port's: its address handle */
	uint32_t refs;
	uint8_t dci[VQP_PEER_DCIS];
	uint8_t turn;
	bool stale; /* out of the cache */
	struct vqp_region *regions;
	uint32_t n_regions;
};

/* What the engine needs of the world. Errors are negative errnos. */
struct vqp_port {
	/* Posts a chain of n to a DCI, all or nothing. An error: nothing. */
	int (*post)(void *arg, unsigned dci, struct ibv_send_wr *wr, unsigned n,
		    const struct vqp_peer *to);
	/* Completions of all DCIs. */
	int (*poll)(void *arg, int n, struct ibv_wc *wc);
	/* The DCI has failed: puts a new one in its place. Requests outstanding
	 * on the old one complete no more, or late. */
	int (*replace)(void *arg, unsigned dci);
	/* How to reach a node; freed by way_free(). */
	int (*way)(void *arg, const struct meta_node *n, void **way);
	void (*way_free)(void *arg, void *way);
	/* Is this memory of this process, and may it be written if `write`? */
	bool (*local_ok)(void *arg, uint32_t lkey, uint64_t addr, uint32_t len,
			 bool write);
	/* A vqp of this domain has bound the port. 0: a vqp of no domain, or
	 * the port is free again. May be NULL. */
	void (*bound)(void *arg, uint16_t port, uint16_t domain);
	void *(*alloc)(void *arg, size_t len); /* zeroed */
	void (*free)(void *arg, void *p);
	void (*log)(void *arg, const char *line); /* once per kind of trouble */
};

struct vqp_conf {
	const struct vqp_port *port;
	void *arg;
	unsigned dcis;
	uint32_t sq_max, cq_max;
	struct meta_node self;
	/* VQP_SLOTS cells of VQP_CELL bytes that the device may write to */
	uint8_t *cells;
	uint32_t cells_lkey;
	uint64_t seed;
	/* The engine asks the other meta server too when the first has not
	 * answered for so long; 0: VQP_LOOKUP_WAIT_NS. */
	uint64_t lookup_wait_ns;
};

enum vqp_state {
	VQP_NEW,
	VQP_LOOKS_UP,
	VQP_CONNECTED,
	VQP_BOUND,
	VQP_ERROR,
};

enum slot_kind {
	SLOT_USER,
	SLOT_MESSAGE, /* the user's, with a header */
	SLOT_CREDIT,  /* the engine's */
	SLOT_LOOKUP,  /* the engine's: one record of two */
	SLOT_REGION,  /* the engine's: the record of a region */
	SLOT_PORT,    /* the engine's: the domain of a port */
};

struct vqp_slot {
	struct list_node link; /* free, queued in a vqp, or posted on a DCI */
	uint32_t gen;
	uint32_t at;   /* its index */
	struct vqp *v; /* NULL: the vqp is gone or waits for it no more */
	enum slot_kind kind;
	uint8_t status; /* set by the engine: the request is not posted */
	uint8_t dci;	/* where it is posted */
	bool numbered;	/* a message with its sequence number */
	bool refused;	/* refused while alone on a DCI, now replaced */
	uint32_t seq;
	uint32_t len;
	bool signaled; /* the user's */
	bool posted;
	uint16_t covers; /* send queue slots that its completion frees */
	struct vqp_meta_lookup *asked; /* of a look-up */
	struct vqp_region *region;
	uint64_t since_ns;     /* posted by the user */
	struct ibv_send_wr wr; /* as the user gave it; sg_list is below */
	struct ibv_sge sge[VQP_SGES + 1];
};

struct vqp_recv {
	uint64_t wr_id;
	int num_sge;
	struct ibv_sge sge[VQP_SGES];
};

/* A message that the user has not taken yet. */
struct vqp_message {
	struct list_node link;
	struct vqp *from; /* its pair */
	struct msg_head head;
	uint8_t data[];
};

/* What one meta server was asked, and its answer. */
struct vqp_meta_lookup {
	uint64_t since_ns;
	uint64_t again_ns; /* when to ask again: it had no such node */
	uint8_t pending, torn;
	bool asked, failed;
	uint8_t record[2][META_RECORD];
};

struct vqp_lookup {
	struct list_node link;
	uint8_t gid[16];
	uint32_t port;
	struct vqp_meta_lookup at[VQP_METAS];
};

/* A meta server's table, and the vqp that READs it. */
struct vqp_meta {
	struct vqp *v; /* NULL: none */
	uint64_t addr;
	uint32_t rkey, places;
};

struct vqp {
	struct vqp_engine *e;
	struct list_node link; /* in engine.busy while it has a queue */
	uint32_t id, gen;
	enum vqp_state state;
	struct vqp_peer *peer;
	unsigned dci;
	struct list_node queue; /* slots not posted */
	uint32_t n_slots, n_posted;
	uint32_t alone; /* so many are posted one by one: a chain was refused */
	/* completions: [comp_head, comp_ready) can be polled */
	uint32_t comp_head, comp_ready, comp_tail;
	struct ibv_wc *comp;
	struct vqp_recv *recv;
	uint32_t recv_head, recv_tail;
	struct list_node messages; /* struct vqp_message */
	/* of a pair */
	uint32_t far_vqp, far_gen;
	uint16_t far_port;
	bool by_port;		   /* its messages go to the port */
	uint32_t sent, sent_taken; /* messages sent; of those, taken */
	uint32_t expect;	   /* the number of the next message */
	uint32_t taken, taken_sent;
	bool credit_out; /* a credit message is under way */
	/* domain of this vqp, set by its front; domain of its other end */
	uint16_t domain, far_domain;
	bool knows_domain, asks_domain; /* the other end's domain */
	/* of a bound vqp */
	uint16_t port;
	struct vqp *port_next;
	/* the bound vqp, if a message to it made this one */
	struct vqp *bound;
	struct vqp *child_next;
	struct vqp_lookup lookup;
	void *front; /* the front's handle */
	bool ours;   /* the front does not know of it yet, or has freed it */
};

struct vqp_dci {
	struct vqp_peer *target; /* the peer of all outstanding requests */
	struct list_node posted; /* in order */
	uint32_t sq_used, n_posted;
	uint32_t turn; /* requests posted to target in its turn */
	bool wanted;   /* a vqp of another peer waits for it */
	bool down;     /* its replacement failed, and is tried again */
	bool refused;  /* a post; until nothing is outstanding */
	uint64_t refused_ns;
};

struct vqp_counts {
	uint64_t lookups, lookups_torn, cache_hits, posts, requests;
	uint64_t dcis_replaced, reposted, garbage, dropped;
	uint64_t region_reads, refused;
};

#define VQP_PEER_BUCKETS 1024u
#define VQP_CHILD_BUCKETS 1024u
#define VQP_PORT_BUCKETS 256u

struct vqp_engine {
	struct vqp_conf conf;
	struct vqp_dci dci[VQP_DCIS_MAX];
	uint32_t cq_used;
	struct vqp_slot *slots;
	struct list_node free_slots;
	uint32_t n_free;
	struct vqp **vqps;
	uint32_t *gens; /* by id */
	uint32_t vqps_cap, next_id;
	struct list_node busy;
	struct list_node lookups;
	struct vqp_peer *peers[VQP_PEER_BUCKETS];
	uint32_t n_peers;
	struct vqp *children[VQP_CHILD_BUCKETS];
	struct vqp *ports[VQP_PORT_BUCKETS];
	bool credits_due; /* a message of credit found no slot */
	struct vqp_meta meta[VQP_METAS];
	uint64_t now_ns;
	unsigned said; /* bits: troubles logged once */
	unsigned plant;
	struct vqp_counts counts;
};

#ifdef VQP_PLANT
#define PLANTED(e, what) ((e)->plant & VQP_PLANT_##what)
#else
#define PLANTED(e, what) 0
#endif

/* -ENOMEM, -EINVAL. */
int vqp_engine_init(struct vqp_engine *e, const struct vqp_conf *conf);
void vqp_engine_fini(struct vqp_engine *e);
/* Sets the table of a meta server for look-ups; server 0 is asked first. addr:
 * the table's head. NULL node: none. */
int vqp_engine_meta(struct vqp_engine *e, unsigned server,
		    const struct meta_node *at, uint64_t addr, uint32_t rkey,
		    uint32_t places);
/* Is any meta server known? */
bool vqp_engine_has_meta(const struct vqp_engine *e);
/* Sets now_ns for the calls that follow: called before each that posts. */
static inline void vqp_engine_at(struct vqp_engine *e, uint64_t now_ns)
{
	e->now_ns = now_ns;
}
/* Polls, posts, looks up. Returns what moved. */
int vqp_engine_round(struct vqp_engine *e, uint64_t now_ns);
/* A message has arrived: copies it. */
void vqp_engine_receive(struct vqp_engine *e, const uint8_t *buf, size_t len);

int vqp_new(struct vqp_engine *e, struct vqp **v);
void vqp_free(struct vqp *v);
/* 0: connected; -EINPROGRESS: `state` changes when it is. */
int vqp_connect(struct vqp *v, const uint8_t gid[16], uint32_t node_port,
		uint16_t port);
/* The deadline is over: gives up. -EHOSTUNREACH; -ENETUNREACH: no meta server
 * is there. */
int vqp_connect_stop(struct vqp *v);
int vqp_bind(struct vqp *v, uint16_t port);
int vqp_post_send(struct vqp *v, struct ibv_send_wr *wr,
		  struct ibv_send_wr **bad);
int vqp_post_recv(struct vqp *v, struct ibv_recv_wr *wr,
		  struct ibv_recv_wr **bad);
int vqp_poll(struct vqp *v, int n, struct ibv_wc *wc);

/* What pop() returns: one message at a time. False: no message, or no
 * receive. */
struct vqp_pop_out {
	struct vqp *from;
	uint64_t wr_id;
	uint32_t len, imm;
	bool with_imm;
	int status;
};
bool vqp_pop(struct vqp *v, struct vqp_pop_out *out);

/* recv.c, for engine.c */
/* Queues a message of credit to v's other end if one is due: 0 or 1. */
void vqp_credit_look(struct vqp *v);
/* The same for all vqps. */
void vqp_credits_look(struct vqp_engine *e);
/* Fills the header of a slot that is about to be posted. */
void vqp_head_fill(struct vqp *v, struct vqp_slot *s);
void vqp_messages_drop(struct vqp *v);
int vqp_recv_poll(struct vqp *v, int n, struct ibv_wc *wc);
/* Frees its port, and unties its children. */
void vqp_unbind(struct vqp *v);

/* peer.c */
/* The cached node, without a reference; or NULL. */
struct vqp_peer *vqp_peer_find(struct vqp_engine *e, const uint8_t gid[16],
			       uint32_t port);
/* Takes it out of the cache: the next connect looks it up. */
void vqp_peer_forget(struct vqp_engine *e, struct vqp_peer *p);

/* lookup.c */
int vqp_lookups_run(struct vqp_engine *e);
/* Ends the look-up of v. */
void vqp_lookup_drop(struct vqp *v);

/* engine.c, for recv.c and lookup.c */
void vqp_slot_put(struct vqp_engine *e, struct vqp_slot *s);
/* Posts what may be posted. */
int vqp_pump(struct vqp_engine *e);
struct vqp_peer *vqp_peer_get(struct vqp_engine *e, const struct meta_node *n);
void vqp_peer_put(struct vqp_engine *e, struct vqp_peer *p);
void vqp_join(struct vqp *v, struct vqp_peer *p);
struct vqp_slot *vqp_slot_get(struct vqp *v);
void vqp_slot_queue(struct vqp *v, struct vqp_slot *s);
uint8_t *vqp_cell(struct vqp_engine *e, const struct vqp_slot *s);
void vqp_say(struct vqp_engine *e, unsigned bit, const char *line);

#endif
