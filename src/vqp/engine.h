/* SPDX-License-Identifier: MIT */
/*
 * engine.h - virtual queue pairs on a few DC and RC queue pairs: algorithms 1
 * and 2 of KRCore (section 4), corrected (docs/vqp.md, "Algorithm 2").
 *
 * The engine has no thread, clock, socket or device of its own: a port posts
 * and polls for it, time is a number. A request is checked and copied into a
 * slot, waits in its vqp's queue, is posted to the vqp's DCI when that is free
 * for its target, and completes into the vqp's own queue. wr_id is slot and
 * generation: so a late completion of a replaced DCI is ignored.
 *
 * Invariants: all posted requests of a vqp are on one queue pair, v->qp: a DCI
 * of the two of its peer, or the peer's RC queue pair (rc.h). All requests
 * outstanding on a DCI are for one peer. sq_used of a queue pair, and cq_used,
 * never exceed what the port says; each request counts as one completion, for a
 * failing DCI flushes each. The entries of a vqp's completion queue are in the
 * order of posting, and those before comp_ready are ready. n_slots of a vqp is
 * at most VQP_QUEUE. *v->share counts the slots of all vqps that have that share.
 *
 * Thread rule: one thread at a time.
 */
#ifndef SKEIN_VQP_ENGINE_H
#define SKEIN_VQP_ENGINE_H

#include "base/list.h"
#include "vqp/meta.h"
#include "vqp/msg.h"
#include "vqp/rc.h"
#include "vqp/region.h"

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stddef.h>

#define VQP_DCIS_MAX 32u
#define VQP_PEER_DCIS 2u
#define VQP_QUEUE 128u /* requests of a vqp, posted or not */
#define VQP_COMPS 256u /* completions of a vqp that were not polled */
#define VQP_RECVS 128u /* receives of a vqp */
#define VQP_RING_MIN 8u
#define VQP_SGES 4u	       /* of a request */
#define VQP_INLINE 128u	       /* bytes */
#define VQP_CELL 256u	       /* of a slot: header, inline data, or records */
#define VQP_CHAIN 16u	       /* requests of one post at most */
#define VQP_TURN 64u	       /* requests to one peer while another waits */
#define VQP_PIECE (256u << 10) /* bytes of a node service's clients in a post */
#define VQP_WINDOW 16u /* messages of a pair that the receiver has not taken */
#define VQP_MAX 65535u
/* Vqps made by messages. Nodes have shares of them (room.h). */
#define VQP_CHILDREN 16384u
#define VQP_CHILDREN_LEAST 64u
/* So have clients, or nodes, of the slots: that of one that comes late is for as
 * many messages as a vqp may send at once. */
#define VQP_SLOTS 1024u
#define VQP_SHARE_LEAST VQP_WINDOW
#define VQP_LIVES 4u	   /* of a node, that were replaced */
#define VQP_ROOM_ROUNDS 4u /* of the loop that waits for room */
#define VQP_TORN_MAX 3u
#define VQP_METAS 2u /* meta servers, which have the same records */
#define VQP_LOOKUP_AGAIN_NS 1000000ull
#define VQP_LOOKUP_WAIT_NS 50000ull
#define VQP_RETAKE_NS 100000000ull
/* How long requests of a vqp that its front has closed may still wait. */
#define VQP_LINGER_NS 5000000000ull
/* How often the engine asks whether the node lives that is to READ an announced
 * message. */
#define VQP_PROBE_NS 100000000ull
/* A vqp with messages that wait for credit asks its other end after so long,
 * then less and less often, up to eight times as long, and not more than
 * VQP_ASKS_MAX times without an answer: a process that is stopped keeps its
 * receives for others. */
#define VQP_ASK_NS 500000000ull
#define VQP_ASKS_MAX 8u
/* A peer that has no receive left is sent nothing for a while, again and again:
 * its DCIs are others' too, and the device's budget for it is short. After
 * VQP_RNR_NS without any progress all vqps to it fail. */
#define VQP_RNR_PAUSE_NS 100000000ull
#define VQP_RNR_NS 5000000000ull
/* life.c. So many peers are looked at each time. */
#define VQP_QUIET_NS 1000000000ull
#define VQP_ASKED_NS 1000000000ull
#define VQP_LOST_NS 1000000000ull
#define VQP_LOST_RC_NS 15000000000ull
#define VQP_LOOK_NS 100000000ull
#define VQP_LOOKS 32u
/* wr_id of what is no slot's: rc.c's questions, and life.c's */
#define VQP_WR_RC VQP_SLOTS
#define VQP_WR_ASK (VQP_SLOTS + VQP_RCS_MAX)

/* Mistakes that a test asks for, to prove that it finds them. Only in objects
 * built with VQP_PLANT. */
enum vqp_plant {
	VQP_PLANT_NONE,
	VQP_PLANT_A,	       /* a list is not checked as a whole */
	VQP_PLANT_B,	       /* a list is not cut to the room there is */
	VQP_PLANT_C,	       /* the last request is counted twice */
	VQP_PLANT_D,	       /* the head is marked, not the oldest */
	VQP_PLANT_E,	       /* the CQ is not counted */
	VQP_PLANT_E2,	       /* generations are not looked at */
	VQP_PLANT_F,	       /* no credits */
	VQP_PLANT_G,	       /* behind another target's requests */
	VQP_PLANT_G2,	       /* all vqps of a failed DCI are in error */
	VQP_PLANT_SUM,	       /* a torn record counts as no node */
	VQP_PLANT_REGION,      /* ranges and rights are not looked at */
	VQP_PLANT_LEASE,       /* a lease has no end */
	VQP_PLANT_LEASE_LATE,  /* it begins with the answer */
	VQP_PLANT_RENEW,       /* it is renewed behind what waits for that */
	VQP_PLANT_REGION_SUM,  /* a torn record is no region */
	VQP_PLANT_DOMAIN,      /* domains are not looked at */
	VQP_PLANT_H,	       /* a refused post ends its DCI */
	VQP_PLANT_H2,	       /* what may be done is posted again */
	VQP_PLANT_H3,	       /* no request fails alone */
	VQP_PLANT_BROKEN,      /* nobody asks whether one is broken */
	VQP_PLANT_BROKEN_READ, /* a READ is not posted again */
	VQP_PLANT_BROKEN_EVER, /* or again and again */
	VQP_PLANT_BROKEN_DEAD, /* that its peer is dead is no matter */
	VQP_PLANT_META_WAIT,   /* the other is not asked in time */
	VQP_PLANT_META_NOBODY, /* one that knows nothing is enough */
	VQP_PLANT_META_TORN,   /* the other is not asked if torn */
	VQP_PLANT_META_LATE,   /* a late answer is taken */
	VQP_PLANT_META_ANEW,   /* a look-up hangs on a server gone */
	VQP_PLANT_META_DCI,    /* both may be on one DCI */
	VQP_PLANT_F2,	       /* credit is sent to the port */
	VQP_PLANT_F3,	       /* credit waits behind messages */
	VQP_PLANT_F4,	       /* a vqp made anew tells late what was taken */
	VQP_PLANT_RC_EARLY,    /* used before the peer's word */
	VQP_PLANT_RC_DRAIN,    /* the old queue pair is not drained */
	VQP_PLANT_RC_IN_USE,   /* one in use is given up */
	VQP_PLANT_RC_GEN,      /* generations are not looked at */
	VQP_PLANT_AHEAD,       /* no message waits for those before */
	VQP_PLANT_RC_FIRST,    /* vqps that no answer has met move */
	VQP_PLANT_CLOSE,       /* a vqp that is closed drops what waits */
	VQP_PLANT_LINGER,      /* it waits for ever */
	VQP_PLANT_META_TOKEN,  /* any answer is taken */
	VQP_PLANT_RC_END,      /* used before the peer has ended the last */
	VQP_PLANT_RC_SILENT,   /* that it has not said so is no matter */
	VQP_PLANT_RC_BACK,     /* a full far end asks for none back */
	VQP_PLANT_RC_TURN,     /* one in use is never given back */
	VQP_PLANT_RC_MUTE,     /* nor one that nobody answers */
	VQP_PLANT_RC_MUTE_END, /* or only once the peer has ended it */
	VQP_PLANT_RC_ANEW,     /* such a peer waits as if it had not yet */
	VQP_PLANT_RC_ONCE,     /* or not again, if no other waits */
	VQP_PLANT_RC_PROBE,    /* nobody asks whether the asking end lives */
	VQP_PLANT_RC_PROBED,   /* the answer to that is not looked at */
	VQP_PLANT_RC_SOON,     /* it is asked before it can answer */
	VQP_PLANT_HOLD,	       /* an announcement that has left is complete */
	VQP_PLANT_HOLD_ORDER,  /* requests behind it are posted */
	VQP_PLANT_WORD,	       /* that the sender still holds it is no matter */
	VQP_PLANT_REFUSE,      /* what is not READ is not refused */
	VQP_PLANT_ORPHAN,      /* what nobody takes any more is READ */
	VQP_PLANT_PROBE,       /* nobody asks whether the receiver lives */
	VQP_PLANT_ACK,	       /* a vqp that is freed drops what it owes */
	VQP_PLANT_POSTED,      /* the same of what it has posted */
	VQP_PLANT_F5,	       /* the same of credit that is due */
	VQP_PLANT_ASK,	       /* nobody asks for credit that does not come */
	VQP_PLANT_ASK_LOST,    /* nor is it if some were lost */
	VQP_PLANT_ASK_AHEAD,   /* what a question overtakes counts as lost */
	VQP_PLANT_ASK_DEAF,    /* that there is none any more is no matter */
	VQP_PLANT_CHILDREN,    /* nor all vqps that messages may make */
	VQP_PLANT_SHARE,       /* one user may have all slots */
	VQP_PLANT_SHARE_LEAST, /* or all but a few */
	VQP_PLANT_END_SLOTS,   /* or those that are freed or not there */
	VQP_PLANT_LIVES,       /* one that was replaced comes back */
	VQP_PLANT_RNR,	       /* a peer that does not receive is dead */
	VQP_PLANT_RNR_PAUSE,   /* it is sent more all the time */
	VQP_PLANT_RNR_OLD,     /* that it did not once counts for ever */
	VQP_PLANT_RNR_OTHER,   /* a time begins anew while another DCI waits */
	VQP_PLANT_RNR_EVER,    /* without an end */
	VQP_PLANT_REAP,	       /* a peer is judged before all is polled */
	VQP_PLANT_RC_SIGNAL,   /* or by a SEND that may be complete */
	VQP_PLANT_LOST,	       /* a message that nobody takes is not refused */
	VQP_PLANT_LOST_LATE,   /* nor is one for a vqp that was before */
	VQP_PLANT_ANSWER,      /* an answer to a vqp that is freed is refused */
	VQP_PLANT_END,	       /* a vqp that is freed does not say so */
	VQP_PLANT_END_EARLY,   /* nor does that wait for its messages */
	VQP_PLANT_END_BEHIND,  /* or is lost behind one that fails */
	VQP_PLANT_END_CREDIT,  /* or waits for credit that is dropped */
	VQP_PLANT_END_READ,    /* nor for one of them that is READ */
	VQP_PLANT_END_FREED,   /* a front is told of a vqp that it has freed */
	VQP_PLANT_WHY,	       /* no completion says why a vqp has failed */
	VQP_PLANT_SHARE_SAID,  /* nor does the log that vqps are refused */
	VQP_PLANT_LIFE,	       /* nobody asks whether a sender lives */
	VQP_PLANT_LIFE_BUSY,   /* or each second one that is heard of */
	VQP_PLANT_LIFE_ONCE,   /* one answer that does not come is enough */
	VQP_PLANT_LIFE_RC,     /* one that sent by RC is no matter */
	VQP_PLANT_RC_WANT,     /* a vqp with nothing to send asks for one */
	VQP_PLANT_RC_KEPT,     /* a queue pair that is idle ends always */
	VQP_PLANT_LIFE_STUCK,  /* or is waited for without an end */
	VQP_PLANT_LIFE_OLD,    /* that one did not come counts for ever */
	VQP_PLANT_END_DIED,    /* the front is not told of a dead one */
	VQP_PLANT_FREE,	       /* and its messages that were not popped */
	VQP_PLANT_NO_SUM,      /* a node's record is taken torn */
	VQP_PLANT_REGION_NO_SUM, /* a region's record is taken torn */
	VQP_PLANT_WHOLE,	 /* a long request is posted whole */
	VQP_PLANT_WHOLE_FREED,	 /* of a vqp that is freed, all of it is */
	VQP_PLANT_WHOLE_ORDER,	 /* requests come between its pieces */
	VQP_PLANT_WHOLE_FIRST,	 /* a piece goes before what it waits for */
	VQP_PLANT_WHOLE_END,	 /* a vqp's end comes before the last piece */
	VQP_PLANT_WHOLE_LIST,	 /* a list of requests is */
	VQP_PLANT_LEASE_MARGIN,	 /* retries may last longer than a lease */
};

struct vqp;
struct vqp_engine;

/* A node to which requests go. */
struct vqp_peer {
	struct vqp_peer *next; /* in its bucket */
	struct meta_node node;
	uint64_t was[VQP_LIVES]; /* its earlier incarnations; 0: none */
	bool dc, dc_back;	 /* DC reaches it; and this node from there */
	struct vqp_rc *rc;	 /* asked for, or used; NULL: none */
	/* in engine.want_rc, since when; not asked for before */
	struct list_node wants_rc;
	uint64_t wanted_ns, rc_again_ns;
	/* requests posted since then */
	uint64_t sample_ns;
	uint32_t sampled;
	/* It has had no receive left since then; 0: it has. And it is sent
	 * nothing by DC until then. */
	uint64_t rnr_ns, rnr_until_ns;
	void *way;	    /* the port's: its address handle */
	uint32_t slots;	    /* of vqps that have this peer as share */
	uint32_t children;  /* vqps that its messages made */
	uint32_t connected; /* vqps of ours to a port of it */
	/* life.c: in engine.parents while it has children and may live; its last
	 * sign of life, the last question, the first one without an answer */
	struct list_node parents;
	uint64_t heard_ns, asked_ns, lost_ns;
	uint32_t refs;
	uint8_t dci[VQP_PEER_DCIS];
	uint8_t turn;
	bool stale; /* out of the cache */
	struct vqp_region *regions;
	uint32_t n_regions;
};

/* What the engine needs of the world. Errors are negative errnos. */
struct vqp_port {
	/* Posts a chain of n, all or nothing: to a DCI, or (qp >= conf.dcis) to
	 * RC queue pair qp - conf.dcis. An error: nothing. A request to one for
	 * a peer that sends fails only after VQP_RC_PATIENCE_NS. */
	int (*post)(void *arg, unsigned qp, struct ibv_send_wr *wr, unsigned n,
		    const struct vqp_peer *to);
	/* Completions of all queue pairs. */
	int (*poll)(void *arg, int n, struct ibv_wc *wc);
	/* Is this queue pair, on which nothing is outstanding, in ERR? Asked
	 * before a post: costs no system call, and may say so late. NULL: it
	 * is never known. */
	bool (*broken)(void *arg, unsigned qp);
	/* The DCI has failed: puts a new one in its place. Requests outstanding
	 * on the old one complete no more, or late. Number conf.dcis + 2 *
	 * conf.rcs is one more, for questions: there is none before. */
	int (*replace)(void *arg, unsigned dci);
	/* How to reach a node; freed by way_free(). */
	int (*way)(void *arg, const struct meta_node *n, void **way);
	void (*way_free)(void *arg, void *way);
	/* Is this memory of this process, and may it be written if `write`? */
	bool (*local_ok)(void *arg, uint32_t lkey, uint64_t addr, uint32_t len,
			 bool write);
	/* The device's key for READs of this memory of ours. NULL: messages that
	 * are announced end with LOC_PROT_ERR. */
	bool (*rkey_of)(void *arg, uint32_t lkey, uint64_t addr, uint32_t len,
			uint32_t *rkey);
	/* A vqp of this domain has bound the port. 0: a vqp of no domain, or
	 * the port is free again. May be NULL. */
	void (*bound)(void *arg, uint16_t port, uint16_t domain);
	void *(*alloc)(void *arg, size_t len); /* zeroed */
	void (*free)(void *arg, void *p);
	void (*log)(void *arg, const char *line); /* once per kind of trouble */
	/* The rest is needed if conf.rcs is not 0. RC queue pairs have numbers:
	 * below conf.rcs to send on, from there on for peers that send. */
	int (*rc_make)(void *arg, unsigned rc, struct rc_addr *own);
	int (*rc_join)(void *arg, unsigned rc, const struct rc_addr *far,
		       const struct vqp_peer *peer);
	/* Of one for a peer that sends: messages that have arrived on it go to
	 * vqp_engine_receive() first, unless that is what calls this. */
	void (*rc_free)(void *arg, unsigned rc);
	/* Does the process at its other end live? 0, -ENOTCONN: no,
	 * -EOPNOTSUPP: the device does not say. */
	int (*rc_probe)(void *arg, unsigned rc);
	/* Sends RC_MSG bytes to the peer's engine. They may get lost. */
	void (*tell)(void *arg, const struct vqp_peer *to, const uint8_t *msg);
	/* Does DC reach the node? NULL: yes. */
	bool (*has_dc)(void *arg, const struct meta_node *n);
	/* READs the records of two places at a meta server that DC does not
	 * reach. vqp_engine_meta_read() brings them, with this token. -ENOMEM,
	 * -ENOTCONN: not now. */
	int (*meta_read)(void *arg, unsigned server, const uint32_t place[2],
			 uint64_t token);
};

struct vqp_conf {
	const struct vqp_port *port;
	void *arg;
	unsigned dcis, rcs; /* rcs: 0, or VQP_RCS_MAX at most */
	uint32_t rc_busy;   /* requests in a sample; 0: VQP_RC_BUSY */
	uint32_t sq_max, cq_max;
	struct meta_node self;
	/* VQP_SLOTS cells of VQP_CELL bytes that the device may write to */
	uint8_t *cells;
	uint32_t cells_lkey;
	/* VQP_SLOTS words that peers may READ (announce.c) */
	uint64_t *words;
	uint32_t words_rkey;
	uint64_t seed;
	/* The engine asks the other meta server too when the first has not
	 * answered for so long; 0: VQP_LOOKUP_WAIT_NS. */
	uint64_t lookup_wait_ns;
	uint32_t piece; /* bytes (piece.c); 0: each request goes whole */
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
	SLOT_FETCH,   /* the engine's: bytes of an announced message */
	SLOT_REFUSE,  /* the engine's: such a message is not READ */
	SLOT_PROBE,   /* the engine's: does the peer live? */
	SLOT_END,     /* the engine's: this vqp is freed */
};

struct vqp_slot {
	struct list_node link; /* free, queued in a vqp, or posted on a DCI */
	uint32_t gen;
	uint32_t at;   /* its index */
	struct vqp *v; /* NULL: the vqp is gone or waits for it no more */
	enum slot_kind kind;
	uint8_t status; /* set by the engine: the request is not posted */
	uint16_t qp;	/* where it is posted */
	bool numbered;	/* a message with its sequence number */
	bool refused;	/* refused while alone on a DCI, now replaced */
	bool *held;	/* cleared when the slot is over; or NULL */
	uint32_t seq;
	uint32_t len;
	uint32_t done, piece; /* of len: carried out; posted last (piece.c) */
	bool signaled;	      /* the user's */
	bool posted;
	uint16_t covers; /* send queue slots that its completion frees */
	struct vqp_meta_lookup *asked; /* of a look-up */
	struct vqp_region *region;
	/* a message that is announced: its pieces are sge[1] and on */
	bool announced;
	bool asks; /* of SLOT_CREDIT, and its refusal */
	uint8_t pieces;
	uint32_t rkey[VQP_SGES];
	/* of SLOT_FETCH; NULL: the message needs it no more */
	struct vqp_message *fetch;
	bool carried, is_word;
	uint64_t since_ns;     /* posted by the user */
	struct ibv_send_wr wr; /* as the user gave it; sg_list is below */
	struct ibv_sge sge[VQP_SGES + 1];
};

struct vqp_recv {
	uint64_t wr_id;
	int num_sge;
	struct ibv_sge sge[VQP_SGES];
};

/* Entries of a vqp, by counters that only grow: a power of two of them, or none
 * yet. Most vqps have few. */
struct vqp_ring {
	void *at;
	uint32_t cap;
};

/* An announced message at its receiver. */
struct vqp_fetch {
	struct msg_announce at;
	struct vqp_recv into; /* taken when the READs begin */
	unsigned pending;     /* READs that are not over */
	bool begun, failed, over;
	bool orphan; /* its receiver is gone: freed when over */
	enum ibv_wc_status status;
};

/* A message that the user has not taken yet. */
struct vqp_message {
	struct list_node link;
	struct vqp *from; /* its pair; NULL: an orphan's */
	struct msg_head head;
	struct vqp_fetch *fetch; /* NULL: the bytes are in data */
	bool ends;		 /* no message: its sender is freed */
	uint8_t data[];
};

/* What one meta server was asked, and its answer. */
struct vqp_meta_lookup {
	uint64_t since_ns;
	uint64_t again_ns; /* when to ask again: it had no such node */
	uint8_t pending, torn;
	bool asked, failed;
	uint64_t token; /* of port.meta_read(); 0: none under way */
	uint8_t record[2][META_RECORD];
};

struct vqp_lookup {
	struct list_node link;
	uint8_t gid[16];
	uint32_t port;
	struct vqp_meta_lookup at[VQP_METAS];
};

/* A meta server's table, and the vqp that READs it; or the port does. */
struct vqp_meta {
	struct vqp *v; /* NULL: none */
	bool by_port;
	uint64_t addr;
	uint32_t rkey, places;
};

enum vqp_ack {
	VQP_ACK_NONE,
	VQP_ACK_DUE,
	VQP_ACK_OUT, /* in a message of credit that is under way */
};

enum vqp_end {
	VQP_END_NONE,
	VQP_END_OWED, /* sent behind what waits in the vqp */
	VQP_END_OUT,
};

struct vqp {
	struct vqp_engine *e;
	struct list_node link; /* in engine.busy while it has a queue */
	/* in engine.ready while it may have something for vqp_poll() or
	 * vqp_pop() */
	struct list_node ready;
	uint32_t id, gen;
	enum vqp_state state;
	/* Requests name the device's own keys, which are not looked at. */
	bool raw;
	enum ibv_wc_status why; /* in VQP_ERROR: of the first that failed */
	bool has_why;		/* a completion has had it */
	struct vqp_peer *peer;
	/* its DCI, where DC reaches the peer; the queue pair of what is
	 * posted, VQP_NO_QP: it has none yet */
	uint32_t dci, qp;
	struct list_node queue; /* slots not posted */
	uint32_t n_slots, n_posted;
	/* Slots of all vqps of one user: its client, or its peer. */
	uint32_t *share;
	struct vqp_slot *cut; /* a piece of it is posted, and more is left */
	/* bytes of READs and WRITEs posted in that round of the engine */
	uint64_t round;
	uint32_t round_len;
	uint32_t alone; /* so many are posted one by one: a chain was refused */
	/* completions: [comp_head, comp_ready) can be polled */
	uint32_t comp_head, comp_ready, comp_tail;
	struct vqp_ring comps; /* of struct ibv_wc */
	struct vqp_ring recvs; /* of struct vqp_recv */
	uint32_t recv_head, recv_tail;
	struct list_node messages; /* struct vqp_message */
	/* messages of the other end that came before an earlier one, in order */
	struct list_node ahead;
	/* of a pair */
	uint32_t far_vqp, far_gen;
	uint16_t far_port;
	bool by_port;		   /* its messages go to the port */
	uint32_t sent, sent_taken; /* messages sent; of those, taken */
	uint32_t expect;	   /* the number of the next message */
	uint32_t first;		   /* of the message that made this vqp */
	uint32_t taken, taken_sent;
	bool credit_out; /* a credit message is under way */
	bool tells;	 /* the other end has asked what was taken */
	bool lacks;	 /* a message of the other end is lost */
	/* messages wait for credit since then, or have asked for it; 0: none */
	uint64_t asked_ns;
	uint32_t asks; /* that have not been answered */
	/* The other end waits to hear that an announced message was taken. */
	enum vqp_ack ack;
	/* The announced message of this vqp that is not taken yet: it is
	 * posted, or in no list, or waits to be posted again. One at most. */
	struct vqp_slot *lent;
	struct list_node lending; /* in engine.lending while there is one */
	uint64_t probed_ns;
	bool probe_out;
	/* the announced message of the other end that is being READ */
	struct vqp_message *fetch;
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
	bool ours;   /* the front does not know of it yet */
	/* in engine.closing: the front has closed it, then; it takes no
	 * messages */
	struct list_node closing;
	uint64_t closed_ns;
	enum vqp_end end;
	/* The other end is freed, and has sent so many messages: told to the
	 * front behind them. */
	bool far_ends, end_queued;
	uint32_t far_sent;
	/* The other end is gone: v fails as soon as nothing is posted. */
	bool far_gone;
};

struct vqp_qp {
	struct vqp_peer *target; /* the peer of all outstanding requests */
	struct list_node posted; /* in order */
	uint32_t sq_used, n_posted;
	uint32_t turn; /* requests posted to target in its turn */
	bool wanted;   /* a vqp of another peer waits for it */
	bool down;     /* its replacement failed, and is tried again */
	bool broke;    /* it flushed its last request, and none had failed */
	bool refused;  /* a post; until nothing is outstanding */
	uint64_t refused_ns;
	uint64_t moved_ns; /* of RC: the last completion, or the first post */
};

struct vqp_counts {
	uint64_t lookups, lookups_torn, cache_hits, posts, requests;
	uint64_t dcis_replaced, reposted, garbage, dropped;
	uint64_t rnrs; /* of dcis_replaced: a peer had no receive left */
	uint64_t region_reads, refused;
	/* messages announced to peers; READ from peers; of either, refused */
	uint64_t announced, fetched, refusals;
	/* RC queue pairs: asked for and ready; of those, for busy peers;
	 * transfers of vqps from one queue pair to another */
	uint64_t rcs_made, rcs_busy, rcs_reclaimed, rcs_refused, rcs_failed;
	uint64_t transfers;
};

#define VQP_PEER_BUCKETS 1024u
#define VQP_CHILD_BUCKETS 1024u
#define VQP_PORT_BUCKETS 256u

struct vqp_engine {
	struct vqp_conf conf;
	struct vqp_qp qp[VQP_DCIS_MAX + VQP_RCS_MAX]; /* DCIs, then RC */
	uint32_t cq_used;
	struct vqp_slot *slots;
	struct list_node free_slots;
	uint32_t n_free;
	struct vqp **vqps;
	uint32_t last_gen; /* of all vqps: a later one has a higher number */
	uint32_t vqps_cap, next_id;
	struct list_node busy;
	struct list_node ready; /* vqps; vqp_any_ready() takes others out */
	struct list_node lookups;
	struct list_node closing; /* vqps, the oldest first */
	struct list_node lending; /* vqps */
	uint64_t last_word;
	bool ending; /* nobody is told anything any more */
	struct vqp_rc rc[VQP_RCS_MAX];
	struct vqp_rc_in rc_in[VQP_RCS_MAX];
	uint32_t rcs_open; /* not free */
	uint32_t rc_looked, rc_back;
	uint64_t rc_look_ns, rc_probed_ns;
	uint32_t rc_probes;
	struct list_node want_rc; /* peers */
	struct vqp_peer *peers[VQP_PEER_BUCKETS];
	uint32_t n_peers; /* in the cache */
	uint32_t peers_made;
	struct vqp *children[VQP_CHILD_BUCKETS];
	uint32_t n_children;
	struct list_node parents; /* peers */
	uint32_t n_parents;
	struct vqp_peer *asked; /* whether it lives; or NULL */
	uint32_t ask;		/* the number of the last question */
	bool can_ask;		/* the queue pair for it is there, and good */
	uint64_t looked_ns;
	uint32_t looks; /* left, until VQP_LOOK_NS later */
	struct vqp *ports[VQP_PORT_BUCKETS];
	bool credits_due; /* a message of credit found no slot */
	struct vqp_meta meta[VQP_METAS];
	uint64_t last_token;
	uint64_t now_ns;
	uint64_t rounds;
	uint64_t events; /* completions taken, and vqps failed */
	unsigned said;	 /* bits: troubles logged once */
	enum vqp_plant plant;
	struct vqp_counts counts;
};

#ifdef VQP_PLANT
#define PLANTED(e, what) ((e)->plant == VQP_PLANT_##what)
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
/* The answer to port.meta_read(): two records, or (ok false) none. */
void vqp_engine_meta_read(struct vqp_engine *e, uint64_t token, bool ok,
			  const uint8_t *records);
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
/* A front needs v no more. A pool closes it: what waits in v is posted yet. A
 * node service frees it, as its client may be dead: what waits is dropped. Either
 * way v stays, without its front, until no bound vqp has a message of it, what it
 * has posted is complete, and its other end has heard what v owes it (end.c). */
void vqp_close(struct vqp *v);
void vqp_free(struct vqp *v);
/* v is gone at once; of what it has posted nobody hears, nor whether it is
 * carried out. */
void vqp_destroy(struct vqp *v);
/* From now on v's slots count there; NULL: for its peer, if it has one. */
void vqp_share_set(struct vqp *v, uint32_t *share);
/* 0: connected; -EINPROGRESS: `state` changes when it is. */
int vqp_connect(struct vqp *v, const uint8_t gid[16], uint32_t node_port,
		uint16_t port);
/* The deadline is over: gives up. -EHOSTUNREACH; -ENETUNREACH: no meta server
 * is there. */
int vqp_connect_stop(struct vqp *v);
int vqp_bind(struct vqp *v, uint16_t port);
int vqp_post_send(struct vqp *v, struct ibv_send_wr *wr,
		  struct ibv_send_wr **bad);
/* The same of all or (-ENOMEM, *bad == wr) nothing, with WRITEs with immediate:
 * each is a WRITE and an empty message. */
int vqp_post_all(struct vqp *v, struct ibv_send_wr *wr,
		 struct ibv_send_wr **bad);
/* Sends a message out of memory that is held until the engine clears *held.
 * -ENOMEM, -ENOTCONN. */
int vqp_send_held(struct vqp *v, struct ibv_send_wr *wr, bool *held);
int vqp_post_recv(struct vqp *v, struct ibv_recv_wr *wr,
		  struct ibv_recv_wr **bad);
int vqp_poll(struct vqp *v, int n, struct ibv_wc *wc);
/* Has any vqp of a front something for vqp_poll() or vqp_pop(), if only an
 * announced message that a call would begin to READ? Costs what waits, not what
 * is there. */
bool vqp_any_ready(struct vqp_engine *e);

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
/* Of a vqp without receives, bound or connected: the next message, to be freed by
 * vqp_message_free(); or NULL. One that is announced is refused. */
struct vqp_message *vqp_take(struct vqp *v);

/* recv.c, for engine.c */
/* Queues a message of credit to v's other end if one is due: 0 or 1. */
void vqp_credit_look(struct vqp *v);
/* The same for all vqps. */
void vqp_credits_look(struct vqp_engine *e);
/* Has v taken so much that its other end has to be told? */
bool vqp_credit_due(const struct vqp *v);
/* Would vqp_poll() or vqp_pop() take a receive or a message of v? */
bool vqp_recv_ready(const struct vqp *v);
/* The first of v's queue could not be posted. If that is a message which waits
 * for credit, asks for it in time. */
void vqp_credit_ask(struct vqp *v);
/* Fills the header of a slot that is about to be posted. */
void vqp_head_fill(struct vqp *v, struct vqp_slot *s);
void vqp_messages_drop(struct vqp *v);
int vqp_recv_poll(struct vqp *v, int n, struct ibv_wc *wc);
/* Frees its port, and unties its children. */
void vqp_unbind(struct vqp *v);

/* end.c */
/* v is to be freed: has its other end to hear so, once v has sent all that it
 * will? */
bool vqp_end_owed(const struct vqp *v);
/* s is dropped: the other end gets no such message. */
void vqp_end_unsent(struct vqp *v, const struct vqp_slot *s);
/* Queues the last message. False: no slot. */
bool vqp_end_queue(struct vqp *v);
/* That of the other end has come. to: the vqp that takes v's messages. */
void vqp_end_take(struct vqp *v, const struct msg_head *h, struct vqp *to);
/* Tells it, if all messages before it have come. */
void vqp_end_look(struct vqp *v, struct vqp *to);
/* The other end is gone: v fails. */
void vqp_far_gone(struct vqp *v);
/* Its process is dead: the front hears so behind the messages that have come. */
void vqp_end_died(struct vqp *v);

/* life.c */
/* The peer has its first child; it has none any more. */
void vqp_parent_add(struct vqp_engine *e, struct vqp_peer *p);
void vqp_parent_del(struct vqp_engine *e, struct vqp_peer *p);
/* Asks peers that were not heard of whether they live. Returns what moved. */
int vqp_life_run(struct vqp_engine *e);
void vqp_life_answer(struct vqp_engine *e, uint32_t ask,
		     enum ibv_wc_status status);
/* The peer has not answered; its process is dead. */
void vqp_life_lost(struct vqp_engine *e, struct vqp_peer *p);
void vqp_life_died(struct vqp_engine *e, struct vqp_peer *p);
void vqp_life_fini(struct vqp_engine *e);

/* peer.c */
/* The cached node, without a reference; or NULL. */
struct vqp_peer *vqp_peer_find(struct vqp_engine *e, const uint8_t gid[16],
			       uint32_t port);
bool vqp_dc_reaches(struct vqp_engine *e, const struct meta_node *n);
/* Takes it out of the cache: the next connect looks it up. */
void vqp_peer_forget(struct vqp_engine *e, struct vqp_peer *p);

/* lookup.c */
int vqp_lookups_run(struct vqp_engine *e);
/* Ends the look-up of v. */
void vqp_lookup_drop(struct vqp *v);

/* piece.c */
/* How many bytes of s the next post takes; 0: s is no READ or WRITE. */
uint32_t vqp_piece_len(const struct vqp_slot *s);
/* Do these len bytes of s wait for the next round? before: bytes of its vqp that
 * are about to be posted. */
bool vqp_piece_waits(const struct vqp_slot *s, uint32_t len, uint32_t before);
/* Makes *wr, a copy of s->wr, the request of s's next len bytes. sge: of
 * VQP_SGES + 1, until *wr is posted. */
void vqp_piece_fill(const struct vqp_slot *s, uint32_t len,
		    struct ibv_send_wr *wr, struct ibv_sge *sge);
void vqp_piece_posted(struct vqp_slot *s);
/* What was posted is carried out. False: s is queued again, with what is
 * left. */
bool vqp_piece_done(struct vqp_slot *s);

/*
 * announce.c: long messages. The sender's end.
 */
/* Finds the keys of its pieces. False: some are no memory of ours. */
bool vqp_announce_keys(struct vqp_slot *s, const struct ibv_send_wr *wr);
/* It is posted for the first time: the sender holds the bytes from now on. */
void vqp_announce_hold(struct vqp_slot *s);
/* The bytes behind its header. Returns how many. */
size_t vqp_announce_fill(struct vqp_slot *s, uint8_t *buf);
/* The slot is given up: the sender holds the bytes no more. */
void vqp_announce_over(struct vqp_engine *e, struct vqp_slot *s);
/* Has v an announced message that has left, and waits to be taken? */
static inline bool vqp_announce_waits(const struct vqp *v)
{
	return v->lent && !v->lent->posted && !list_linked(&v->lent->link);
}
/* Is the announced message of s taken? */
bool vqp_announce_taken(const struct vqp_slot *s);
/* The other end has refused one. */
void vqp_announce_refused(struct vqp_engine *e, const struct msg_head *h);
/* Asks whether receivers live. */
void vqp_announce_run(struct vqp_engine *e);
/* The receiver's end. */
enum vqp_fetch_verdict {
	VQP_FETCH_NOT_NOW, /* no receive, or no slots */
	VQP_FETCH_RUNS,	   /* or waits for an earlier one of its sender's */
	VQP_FETCH_OVER,
	VQP_FETCH_GONE, /* the message was refused and freed */
};
/* m is announced, of a vqp that lives and READs no other message: may its READs
 * begin? */
bool vqp_fetch_may(const struct vqp *v, const struct vqp_message *m);
/* Begins the READs of a message that v is to take, if they have not begun. */
enum vqp_fetch_verdict vqp_fetch_go(struct vqp *v, struct vqp_message *m);
/* The READ of s has ended, carried out or not. */
void vqp_fetch_over(struct vqp_engine *e, struct vqp_slot *s);
/* Nobody takes m, an orphan of v's: its READs that wait in v are not posted, for
 * the memory of the receive may be gone. The last one frees m. */
void vqp_fetch_drop(struct vqp *v, const struct vqp_message *m);
/* Tells the sender that its announced message is not READ. */
void vqp_refuse(struct vqp_engine *e, const struct msg_head *h);
/* v fails, and its other end lives: it hears that it waits for nothing. */
void vqp_fetch_refuse(struct vqp *v);
/* recv.c */
/* Does a bound vqp have messages of v that were not popped? */
bool vqp_is_waited(const struct vqp *v);
void vqp_message_free(struct vqp_engine *e, struct vqp_message *m);
/* v fails: what it has not begun to READ is refused. */
void vqp_messages_refuse(struct vqp *v);

/* The peer is dead, or does not receive. */
static inline bool vqp_is_dead(enum ibv_wc_status status)
{
	return status == IBV_WC_RETRY_EXC_ERR ||
	       status == IBV_WC_RNR_RETRY_EXC_ERR;
}

/* The i-th one. */
static inline struct ibv_wc *vqp_comp_at(const struct vqp *v, uint32_t i)
{
	return (struct ibv_wc *)v->comps.at + i % v->comps.cap;
}

static inline struct vqp_recv *vqp_recv_at(const struct vqp *v, uint32_t i)
{
	return (struct vqp_recv *)v->recvs.at + i % v->recvs.cap;
}

/* engine.c, for post.c, recv.c, announce.c and lookup.c */
/* Room for n entries of `each` bytes, from the counter head on. False: no
 * memory; nothing has changed. */
bool vqp_ring_grow(struct vqp_engine *e, struct vqp_ring *r, size_t each,
		   uint32_t head, uint32_t n);
/* v may have something for vqp_poll() or vqp_pop() now. */
void vqp_ready_note(struct vqp *v);
/* The announced message v->lent is taken. */
void vqp_lent_done(struct vqp *v);
void vqp_slot_put(struct vqp_engine *e, struct vqp_slot *s);
/* Takes completions of the device; posts what may be posted. What moved. */
int vqp_reap(struct vqp_engine *e);
int vqp_pump(struct vqp_engine *e);
/* A completion of the user's, not ready yet; one with an error is ready. */
void vqp_comp_add(struct vqp *v, const struct ibv_send_wr *wr, uint32_t len);
void vqp_comp_error(struct vqp *v, const struct ibv_send_wr *wr,
		    enum ibv_wc_status status);
struct vqp_peer *vqp_peer_get(struct vqp_engine *e, const struct meta_node *n);
void vqp_peer_put(struct vqp_engine *e, struct vqp_peer *p);
void vqp_join(struct vqp *v, struct vqp_peer *p);
/* The first request left ends with this status, all after it are flushed. None
 * is on a device. */
void vqp_fail(struct vqp *v, enum ibv_wc_status status);
/* v is in error: the status of its next completion. */
enum ibv_wc_status vqp_error_next(struct vqp *v);
struct vqp_slot *vqp_slot_get(struct vqp *v);
/* Are n more slots left for this share, behind those that the engine keeps for
 * credit and look-ups? */
bool vqp_has_slots(const struct vqp_engine *e, const uint32_t *share,
		   unsigned n);
void vqp_slot_queue(struct vqp *v, struct vqp_slot *s, bool first);
/* Before all that the user has queued, but behind what the engine has queued
 * before that meanwhile: s may wait for it, as for the READ of a record. */
void vqp_slot_requeue(struct vqp *v, struct vqp_slot *s);
uint8_t *vqp_cell(struct vqp_engine *e, const struct vqp_slot *s);
void vqp_say(struct vqp_engine *e, unsigned bit, const char *line);

#endif
