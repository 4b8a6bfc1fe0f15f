/* SPDX-License-Identifier: MIT */
/*
 * rc.h - the engine of one connected queue pair on the link between hosts:
 * requester and responder, IBA 9.7 to 9.9. docs/protocol/link.md has the rules.
 *
 * UC is what is left of RC without answers: a request is over when its last
 * packet has been sent, and the responder drops a message that it does not
 * accept.
 *
 * Packets, requests and the time go in; packets, copies, completions and the
 * next deadline come out, through struct rc_ops. No socket, clock, thread, lock
 * or allocation: its user serialises all calls, and no call blocks. A test
 * links requester.c, responder.c and rc.c alone.
 *
 * Nothing that a peer sends makes the engine hold memory: what waits is bounded
 * by the attributes of the QP. A packet that does not belong here changes
 * nothing and is counted by its cause.
 */
#ifndef SKEIN_DEV_SOFT_LINK_RC_H
#define SKEIN_DEV_SOFT_LINK_RC_H

#include "dev/soft/link/cong.h"
#include "dev/soft/link/packet.h"

#include <infiniband/verbs.h>

#define RC_NEVER UINT64_MAX
#define RC_NONE UINT32_MAX /* no PSN */
#define RC_WINDOW 128u	   /* packets of a QP on their way, as rxe's */
#define RC_WINDOW_BYTES (128u << 10)
/* On a connection the window is what the socket takes; PSNs bound it. */
#define RC_STREAM_WINDOW 8192u
#define RC_ASK_EACH 32u /* packets without a request for an ACK, at most */
/* Packets of one READ request. A longer READ is several requests, cut at
 * multiples of this from its beginning: so a repeated request never reaches
 * beyond the one that it repeats. */
#define RC_READ_CHUNK 32u
/* A request of this end alone that could not be carried out is tried again. */
#define RC_LOCAL_NS 100000u
#define RC_ANSWERS 64u /* packets of READ responses made in one turn */
/* A packet that nothing acknowledges is sent again after its round trip and four
 * times the deviation of that, but at least so much: an end that its host has
 * taken off a core for a moment has lost nothing. */
#define RC_PROBE_NS 10000000u
#define RC_PROBE_FIRST_NS 100000000u /* where no round trip is known */
#define RC_PROBES_MAX 6u /* so many wait twice as long as the one before */
/* An ACK waits so long, at most, for a packet of our own to go with. */
#define RC_HOLD_NS 30000u
#define RC_HOLD_AFTER 2u /* messages in a row that were answered in that time */

/* A request. Its owner fills in the first part. */
struct rc_wqe {
	struct rc_wqe *next;
	enum ibv_wr_opcode op;
	bool solicited;
	bool fenced; /* waits for all READs and atomics before it */
	uint32_t len;
	uint32_t imm;
	uint32_t rkey;
	uint64_t va;
	uint64_t compare_add, swap;
	/* the engine's */
	uint32_t psn;	  /* of its first packet */
	uint32_t packets; /* PSNs that it takes; 0: not begun */
};

enum rc_event {
	RC_MET,	    /* the first packet from the peer */
	RC_ACCESS,  /* the peer broke the QP: a bad rkey, range or right */
	RC_REQUEST, /* ... an invalid request */
	RC_RECEIVE, /* ... a receive that completed in error */
};

/* Why a packet was dropped. */
enum rc_outcome {
	RC_TAKEN,
	RC_DROP_STATE,	   /* nobody waits for it: an answer before RTS */
	RC_DROP_GAP,	   /* one before it is missing */
	RC_DROP_REPEATED,  /* carried out before, or answered before */
	RC_DROP_STRANGE,   /* an answer to nothing that was asked */
	RC_DROP_NOT_READY, /* no receive is posted */
	RC_DROP_REFUSED,   /* UC: what RC would answer by a NAK */
	RC_DROPS
};

struct rc_ops {
	/* On a connection: a request begins; idle: all before it has arrived.
	 * False: it waits until that is so. */
	bool (*may_begin)(void *owner, const struct rc_wqe *w, bool idle);
	/* Where the next packet goes, at least PACKET_HEAD_MAX and the MTU; or
	 * NULL: not now, rc_run() is to come again. Then its length, with pad
	 * and without ICRC. answers: it is the responder's. */
	uint8_t *(*begin)(void *owner, bool answers);
	void (*send)(void *owner, size_t len);

	/* Bytes of a request's local memory: 0, or the ibv_wc_status that the
	 * request ends with. local looks whether its memory is in order. */
	int (*local)(void *owner, const struct rc_wqe *w);
	int (*gather)(void *owner, const struct rc_wqe *w, uint32_t at,
		      uint8_t *dst, size_t len);
	int (*scatter)(void *owner, const struct rc_wqe *w, uint32_t at,
		       const uint8_t *src, size_t len);
	/* A bind or a local invalidation, all before it is over: 0, a status,
	 * or -1: not yet. */
	int (*carry_out)(void *owner, const struct rc_wqe *w);
	/* A request is over, in the order of posting; w is the owner's again.
	 * After a failure the owner is expected to take all others out. */
	void (*done)(void *owner, struct rc_wqe *w, int status);

	/* The oldest receive is for the message that begins: false: there is
	 * none. put and end say whether it fits. */
	bool (*recv_begin)(void *owner);
	int (*recv_put)(void *owner, uint32_t at, const uint8_t *src,
			size_t len);
	/* status is a receive's; last is the message's last packet. */
	void (*recv_end)(void *owner, int status, uint32_t len,
			 const struct packet *last);

	/* Is all of it there for a peer with this access? Then it may be
	 * written or read: by one call of check for each. */
	bool (*check)(void *owner, uint32_t rkey, uint64_t va, uint64_t len,
		      int access);
	/* The key of a window that this QP alone opens is not valid any more.
	 * False: it was none. */
	bool (*invalidate)(void *owner, uint32_t rkey);
	/* ascending; last: the message's last bytes */
	void (*write)(void *owner, uint64_t va, const uint8_t *src, size_t len,
		      bool last);
	void (*read)(void *owner, uint64_t va, uint8_t *dst, size_t len);
	uint64_t (*atomic)(void *owner, uint64_t va, bool swaps,
			   uint64_t compare, uint64_t swap_add);
	void (*event)(void *owner, enum rc_event what);
};

/* An answer that is being sent: READ responses, or that of an atomic. */
struct rc_answer {
	bool is_atomic;
	uint32_t psn, packets, sent, msn;
	uint32_t rkey, len;
	uint64_t va;
	uint64_t orig;
};

struct rc_result {
	uint32_t psn; /* above 24 bits: empty */
	uint64_t orig;
};

struct rc_requester {
	bool on;     /* in RTS */
	bool paused; /* in SQD: begins nothing */
	struct rc_wqe *head, **tail;
	struct rc_wqe *cur; /* the next packet is of it, NULL: nothing is left */
	uint32_t cur_at;    /* and is its n-th */
	uint32_t una;	    /* the oldest PSN that was not acknowledged */
	uint32_t next;	    /* of the next packet */
	uint32_t top;	    /* of the next packet that was never sent */
	uint32_t reads;	    /* READ requests and atomics on their way */
	uint32_t asked;	    /* packets since an ACK was asked for */
	uint32_t ask_psn;   /* the last packet that asked for an answer */
	uint64_t retry_ns, rnr_ns; /* RC_NEVER: not waited for */
	uint64_t local_ns;	   /* carry_out() is tried again */
	uint64_t since_ns;	   /* what una names is waited for since then */
	/* Of datagrams: when to look whether the last packets were lost, behind
	 * which no packet tells of a gap; long before retry_ns. */
	uint64_t probe_ns;
	uint8_t probes;	       /* in vain, since una moved */
	uint64_t rtt, rtt_var; /* smoothed; 0: not known */
	uint32_t timed;	       /* its acknowledgement is timed */
	uint64_t timed_ns;     /* when it was sent; RC_NEVER: none is */
	uint8_t retry_left, rnr_left;
	struct cong_part cong;
	bool alone; /* after a timeout: one packet, until it is acknowledged */
	uint32_t missing; /* una when a gap was last told, or RC_NONE */
};

struct rc_responder {
	uint32_t psn; /* expected */
	uint32_t msn;
	enum {
		RC_IDLE,
		RC_SEND,
		RC_WRITE
	} message; /* in the middle of one */
	bool met;
	bool has_recv;
	bool gap_said; /* or RNR: not again before the expected one comes */
	bool ack_due, nak_due;
	bool held;	   /* the ACK that is due: rc_hold() */
	uint8_t answered;  /* messages in a row that we answered soon */
	uint64_t acked_ns; /* an ACK went alone, and nothing of ours since */
	bool marked;	   /* the peer is to be told of congestion */
	bool broken;	   /* nothing is taken any more; its NAK may be due */
	enum rc_event why;
	uint8_t nak; /* syndrome */
	uint32_t nak_psn;
	uint32_t got; /* bytes of the message so far */
	uint32_t rkey, len;
	uint64_t va;
	/* answers under way, in order */
	uint32_t first, answers;
	uint32_t saved_next;
};

struct rc {
	const struct rc_ops *ops;
	void *owner;
	const struct ibv_qp_attr *attr;
	uint32_t mtu;
	bool unreliable; /* UC */
	/* On a connection: in order, and nothing is lost while it is there. */
	bool stream;
	bool heard;	/* ... and the peer takes our packets from it */
	uint32_t limit; /* of answers, and of saved atomics */
	bool blocked;	/* begin() had no room */
	struct rc_requester rq;
	struct rc_responder rs;
	uint64_t sent;		      /* packets */
	uint64_t retries, gaps, rnrs; /* counted, of the requester */
	uint64_t probes;
	uint64_t marks;		/* congestion that it was told of */
	struct cong own;	/* until rc_share() */
	struct cong *datagrams; /* the window of packets that go so */
	uint64_t drops[RC_DROPS];
	struct rc_answer *answer; /* limit of them */
	struct rc_result *saved;
};

/* Bytes of a QP that takes so many READs and atomics at once. */
size_t rc_bytes(unsigned max_dest_rd_atomic);
/* In zeroed memory of that size. attr stays the owner's, holds what is needed
 * to go to RTR, and may change while it lives; mtu in bytes. */
void rc_init(struct rc *r, const struct rc_ops *ops, void *owner,
	     const struct ibv_qp_attr *attr, uint32_t mtu);
/* The same for UC. */
void rc_init_uc(struct rc *r, const struct rc_ops *ops, void *owner,
		const struct ibv_qp_attr *attr, uint32_t mtu);
/* Before RTS: its datagrams share a window with others. */
void rc_share(struct rc *r, struct cong *c);
/* To RTS: attr now has what is needed for that. */
void rc_start(struct rc *r);
void rc_pause(struct rc *r, bool paused);
/* UC: from SQE back to RTS. */
void rc_resume(struct rc *r);
/* From here on packets go another way, a connection (stream) or datagrams. What
 * was on its way may be lost with the old one. */
void rc_carrier(struct rc *r, bool stream);
/* Behind all others; rc_run() sends it. */
void rc_post(struct rc *r, struct rc_wqe *w);
/* A packet of this QP's peer. It may complete requests and receives; answers
 * to it are sent by the next rc_run(). */
enum rc_outcome rc_input(struct rc *r, uint64_t now, const struct packet *p);
/* Sends what may be sent, and does what is due. */
void rc_run(struct rc *r, uint64_t now);
/* Before rc_run(): keeps the ACK that is due for the next packets that we send,
 * where the peer's messages are answered soon. True: it is kept; after
 * RC_HOLD_NS rc_unhold() and rc_run() send it. */
bool rc_hold(struct rc *r, uint64_t now);
void rc_unhold(struct rc *r);
/* Retries would be in vain: the next rc_run() fails the oldest request. */
void rc_give_up(struct rc *r);
/* When rc_run() is to be called again without a reason: 0: at once. */
uint64_t rc_deadline(const struct rc *r);
/* Takes the oldest request out: to flush it, or to forget it. */
struct rc_wqe *rc_take(struct rc *r);
/* Has a request begun that is not over? */
bool rc_is_busy(const struct rc *r);

/* The same of what it has posted. */
uint64_t rc_requester_deadline(const struct rc *r);

/* between the two halves */
void rc_requester_run(struct rc *r, uint64_t now);
void rc_requester_marked(struct rc *r);
enum rc_outcome rc_requester_input(struct rc *r, uint64_t now,
				   const struct packet *p);
void rc_responder_run(struct rc *r, uint64_t now);
/* Packets of the requester have gone: a held ACK goes behind them. */
void rc_responder_sent(struct rc *r, uint64_t now);
enum rc_outcome rc_responder_input(struct rc *r, const struct packet *p);
/* Encodes p into buf, where the payload of p->payload_len is behind the
 * headers already, pads and sends it. */
void rc_send(struct rc *r, uint8_t *buf, struct packet *p);

static inline uint32_t rc_packets(const struct rc *r, uint32_t len)
{
	return len ? (uint32_t)(((uint64_t)len + r->mtu - 1) / r->mtu) : 1;
}

#endif
