/* SPDX-License-Identifier: MIT */
/*
 * qp.h - an RC QP that streams of two processes share, and what is counted for
 * all of them: send slots, receives for immediates and messages, the numbers of
 * streams (docs/protocol/stream.md, "The QP").
 *
 * stream_qp_new() makes a QP; the caller carries its address to the peer, and
 * connects it with the peer's. A stream joins it (stream.h) at both ends. A
 * stream that its owner has left stays until the peer has said that it writes
 * to it no more: a WRITE to memory that is gone would break the QP for all.
 *
 * Each immediate and each message takes a receive at the peer. The peer gives
 * receives back half of them at a time. What finds no receive, or no send slot,
 * waits, and is posted by a later stream_qp_poll().
 *
 * Thread rule: one thread at a time in all calls of a QP and its streams, by
 * the caller's lock. stream_qp_new(), _connect() and _free() belong to one
 * thread of the host.
 */
#ifndef SKEIN_STREAM_QP_H
#define SKEIN_STREAM_QP_H

#include "base/list.h"
#include "dev/dev.h"
#include "stream/host.h"
#include "stream/ring.h"

#include <stdbool.h>
#include <stdint.h>

struct stream;
struct stream_msg;
struct stream_qp;

#define STREAM_NUMBER_MAX 0xffffffu /* of the immediate's 24 bits */
#define STREAM_MSG_MAX 64u
#define STREAM_RECVS 256u
#define STREAM_SEND_SLOTS 256u
/* Of one stream at most two bursts, each of so many bytes and a WRITE, are in
 * the send queue: no longer is the wait of another stream behind it. */
#define STREAM_BURST (128u << 10)

/* The immediates: kind 4, then 4 bits of these, then the number that the
 * receiving end has given the stream (STREAM_CREDIT: a count). */
enum stream_imm {
	STREAM_ASK = 1,	   /* "I want to sleep" */
	STREAM_ACK = 2,	   /* "from here on I ring" */
	STREAM_BELL = 3,   /* "there is something" */
	STREAM_BACK = 4,   /* with stop and moved: "take them in" */
	STREAM_CLOSE = 5,  /* "I write to this stream no more" */
	STREAM_CREDIT = 6, /* so many receives are posted again */
	STREAM_GROW = 7,   /* "your ring was full: I want a larger one" */
	STREAM_EACH = 8,   /* "I sleep before each record" */
};
#define STREAM_IMM_KIND 4u
#define STREAM_IMM(op, number) \
	(STREAM_IMM_KIND << 28 | (uint32_t)(op) << 24 | (uint32_t)(number))

/* What the peer must know of an end's QP. */
struct stream_qp_addr {
	struct dev_qp_addr qp;
	uint32_t recvs; /* that it has posted for the peer */
};

/* What the peer must know of an end of a stream. */
struct stream_addr {
	uint64_t secret; /* of the ring at this end */
	uint64_t mem;	 /* address of struct stream_ctl; the ring follows it */
	uint32_t rkey;
	uint32_t ring_size;
	uint32_t number; /* that this end has given the stream */
	bool checksum;	 /* this end's device writes in any order */
	bool grows;	 /* this end makes larger rings */
};

/* The control words, which the peer writes by WRITEs of one aligned word. */
struct stream_ctl {
	uint64_t head;	 /* how far the peer has read this end's records */
	uint64_t accept; /* 1: the peer reads them */
	uint64_t stop;	 /* 1 and the bytes it has read: it reads no more; and
			  * STREAM_STOP_AGAIN */
	uint64_t moved;	 /* 1 and the bytes it wrote: all went by TCP */
	uint64_t reserved[4];
};
_Static_assert(sizeof(struct stream_ctl) == 64, "on the wire");
_Static_assert(offsetof(struct stream_ctl, head) == 0, "on the wire");
_Static_assert(offsetof(struct stream_ctl, accept) == 8, "on the wire");
_Static_assert(offsetof(struct stream_ctl, stop) == 16, "on the wire");
_Static_assert(offsetof(struct stream_ctl, moved) == 24, "on the wire");

struct stream_qp {
	struct stream_host *host;
	struct dev_stats *stats; /* the host's, or own */
	struct dev_stats own_stats;
	struct ibv_qp *qp;
	struct ibv_cq *scq, *rcq;
	uint8_t *msgs; /* receives' memory */
	int msgs_fd;
	struct ibv_mr *msgs_mr;
	uint32_t psn;
	uint32_t posted, done; /* requests posted; of these, ended */
	uint32_t signalled;    /* the last one that makes a completion */
	uint32_t credit;       /* receives that the peer has for this end */
	uint32_t credit_max;
	uint32_t used;		  /* receives of this end, not given back yet */
	struct list_node outbox;  /* messages that wait */
	struct list_node owing;	  /* streams that could not post all */
	struct list_node woken;	  /* streams to look at */
	struct list_node left;	  /* streams without an owner */
	struct list_node tending; /* streams that want memory, or free some */
	struct list_node large;	  /* streams with larger rings */
	uint64_t look_ns;	  /* when these are looked at */
	struct stream **table;	  /* by number */
	uint32_t table_len, next, streams;
	int broken; /* a negative errno */
	/* A peer opens a stream. NULL: nobody does. */
	void (*open)(struct stream_qp *q, const struct stream_msg *m);
	void *user;
};

/* channel: where an event comes when the peer has sent something. -EOPNOTSUPP:
 * the device sends no STREAM_MSG_MAX bytes inline. */
int stream_qp_new(struct stream_host *h, struct ibv_comp_channel *channel,
		  struct stream_qp **q);
void stream_qp_addr(struct stream_qp *q, struct stream_qp_addr *addr);
/* -EINVAL: the address makes no sense. */
int stream_qp_connect(struct stream_qp *q, const struct stream_qp_addr *peer,
		      const struct dev_qp_opts *opts);
/* Every stream has been left; frees those that are still there too. */
void stream_qp_free(struct stream_qp *q);

/* Takes completions, immediates and messages in, and posts what waits. True:
 * stream_qp_woken() has something, or the QP is broken. */
bool stream_qp_poll(struct stream_qp *q);
/* The next stream that a sleeping thread should look at, or NULL. */
struct stream *stream_qp_woken(struct stream_qp *q);
/* The next stream that both ends have left, or NULL: for stream_free(). */
struct stream *stream_qp_over(struct stream_qp *q);
/* Is it time for stream_qp_tend()? */
static inline bool stream_qp_tends(const struct stream_qp *q, uint64_t now_ns)
{
	return !list_empty(&q->tending) || now_ns >= q->look_ns;
}
/* Makes and frees the memory of rings that grow; q->look_ns says when it is
 * called again at the latest. By one thread of the host. */
void stream_qp_tend(struct stream_qp *q, uint64_t now_ns);
/* Is the peer's process known to be dead? */
bool stream_qp_dead(struct stream_qp *q);
/* Sends a message, now or later. -ENOMEM. */
int stream_qp_send(struct stream_qp *q, const struct stream_msg *m);

/* For stream.c. */
/* Sends a message now; false: it cannot. */
bool stream_qp_try_send(struct stream_qp *q, const struct stream_msg *m);
/* Gives s a number. -ENOMEM. */
int stream_qp_add(struct stream_qp *q, struct stream *s);
void stream_qp_del(struct stream_qp *q, struct stream *s);
/* Free send slots; takes completions in if there are few. */
uint32_t stream_qp_slots(struct stream_qp *q);
/* Takes send completions in: only they free slots. */
void stream_qp_reap(struct stream_qp *q);
/* Posts a list of requests, of n slots and imms credits that the caller has
 * looked for. signal: the last one makes a completion. 0, or the error that
 * broke the QP. */
int stream_qp_post(struct stream_qp *q, struct dev_stats *stats,
		   struct ibv_send_wr *wr, uint32_t n, uint32_t imms,
		   bool signal);
void stream_qp_wake(struct stream_qp *q, struct stream *s);

#endif
