/* SPDX-License-Identifier: MIT */
/*
 * rc.h - RC queue pairs of a pool beside its DCIs (docs/protocol/vqp.md, "RC
 * queue pairs"): to peers that get many requests, and to peers that DC does not
 * reach. The engine of a busy node asks the peer's engine for one; the peer
 * makes its end and says so; then vqps go over.
 *
 * Only the end that asked posts on it. So two nodes that are busy with each
 * other have two, and no handshake meets its like from the other side.
 */
#ifndef SKEIN_VQP_RC_H
#define SKEIN_VQP_RC_H

#include "vqp/meta.h"

#include <stddef.h>

#define RC_MSG 96u

struct vqp;
struct vqp_engine;
struct vqp_peer;
struct vqp_qp;

enum rc_kind {
	RC_ASK = 1,	/* make a queue pair for mine */
	RC_READY = 2,	/* it can receive */
	RC_REFUSED = 3, /* no room for it now */
	RC_END = 4,	/* nothing is under way on it, and nothing will be */
	RC_ENDED = 5,	/* it is gone, and its messages were taken */
	RC_BACK = 6,	/* end it: others wait for one */
};

/* What one end's queue pair tells the other's. */
struct rc_addr {
	uint32_t qpn, psn; /* 24 bits each */
	uint8_t mtu;	   /* enum ibv_mtu */
	uint8_t rd_atomic;
};

/* The engines' datagrams: each may get lost, come twice, or late. */
struct rc_msg {
	enum rc_kind kind;
	uint32_t at;  /* the number that the end which asked has for it */
	uint32_t gen; /* of that number: one more each time it is used */
	struct rc_addr addr;
	uint64_t to; /* the receiver's incarnation, as the sender knows it */
	struct meta_node from;
};

void rc_msg_encode(const struct rc_msg *m, uint8_t *buf);
/* 0, or -EBADMSG. */
int rc_msg_decode(const uint8_t *buf, size_t len, struct rc_msg *m);

#define VQP_RCS_MAX 64u
#define VQP_NO_QP UINT32_MAX
#define VQP_RC_SAMPLE_NS 100000000ull
#define VQP_RC_BUSY 256u	     /* requests in a sample */
#define VQP_RC_IDLE_NS 1000000000ull /* unused so long: given up */
#define VQP_RC_TELL_NS 20000000ull
#define VQP_RC_TRIES 50u
#define VQP_RC_TURN_TRIES 5u /* while others wait: a turn of a sample */
#define VQP_RC_PAUSE_NS 1000000000ull /* after a refusal */
#define VQP_RC_WAIT_NS 5000000000ull  /* for a peer without DC */
/* The asking end takes no answer later than this after its first question. The
 * asked end probes it once an interval, not before so long after its last
 * question: then it has an end that answers, or will never use it. */
#define VQP_RC_TAKE_NS 1200000000ull
#define VQP_RC_QUIET_NS 1500000000ull
#define VQP_RC_PROBE_NS 1000000000ull
/* A probe of a link that is down for less does not fail. All three together are
 * less than VQP_RC_WAIT_NS. */
#define VQP_RC_PATIENCE_NS 1000000000ull

enum vqp_rc_state {
	VQP_RC_FREE,
	VQP_RC_ASKED,  /* the peer is asked until it answers */
	VQP_RC_USED,   /* the peer has said that it is ready */
	VQP_RC_ENDING, /* ours is gone; the peer is told until it says so */
};

/* One that this engine asked for. Its place in engine.qp is conf.dcis plus its
 * number. */
struct vqp_rc {
	enum vqp_rc_state state;
	uint32_t gen;
	struct vqp_peer *peer; /* unless free */
	struct rc_addr own;
	uint64_t sent_ns, used_ns;
	uint64_t made_ns; /* asked for, then: used from */
	unsigned tries;
	bool back; /* others wait for it */
};

/* One that a peer asked for: receives, and serves one-sided requests. */
struct vqp_rc_in {
	struct vqp_peer *peer; /* NULL: free */
	uint32_t at, gen;      /* as the peer has them */
	struct rc_addr own;
	uint64_t asked_ns; /* the peer's last question */
	uint32_t probe;	   /* the number of the one under way; 0: none */
};

/* A datagram has arrived. */
void vqp_engine_datagram(struct vqp_engine *e, const uint8_t *buf, size_t len);

/* For the engine's other files. */
/* The place in engine.qp for v's next request; VQP_NO_QP: there is none yet, and
 * one is asked for. */
uint32_t vqp_rc_choose(struct vqp *v);
/* May v's messages go another way than those before them? */
bool vqp_rc_may_switch(const struct vqp *v);
/* n requests were posted to the peer. */
void vqp_rc_count(struct vqp_engine *e, struct vqp_peer *p, unsigned n);
/* A probe of one that a peer asked for has ended. */
void vqp_rc_probed(struct vqp_engine *e, uint32_t in, uint32_t probe, bool ok);
/* It has failed, and nothing is outstanding on it. */
void vqp_rc_failed(struct vqp_engine *e, struct vqp_qp *q);
void vqp_rcs_run(struct vqp_engine *e);
/* The peer has a newer incarnation: the older one's are gone. */
void vqp_rc_forget_in(struct vqp_engine *e, const struct vqp_peer *p);
void vqp_rcs_fini(struct vqp_engine *e);

#endif
