/* SPDX-License-Identifier: MIT */
/*
 * stream.h - a byte stream each way between two processes, on an RC QP that it
 * shares with others (qp.h; docs/protocol/stream.md).
 *
 * stream_new() makes a stream and stream_join() gives it a number on a QP. The
 * caller carries its address to the peer by any means, and connects it with the
 * peer's address. Each end then says that it reads the ring (stream_accept);
 * the other end writes nothing before. Under TCP programs the first record of
 * each direction is a SWITCH: it says how many bytes the reader gets from
 * elsewhere first.
 *
 * The end: stream_leave() says CLOSE. The peer answers with its own, and after
 * that it writes nothing to this end. Only then stream_qp_over() hands the
 * stream out, to be freed. An end that was closed by its peer is not broken: its
 * ring is read to the end, and what it writes is -ECONNRESET.
 *
 * Waiting: a WRITE wakes no thread. A reader that wants to sleep asks
 * (stream_ask). The writer's end answers behind all that it has written, and
 * rings a bell with its next record, or with each one.
 *
 * Thread rule: one thread at a time in all calls of the streams of one QP, by
 * the caller's lock. stream_new() and stream_free() belong to one thread of the
 * host, and need no lock. Only stream_drain() blocks, until its deadline.
 */
#ifndef SKEIN_STREAM_STREAM_H
#define SKEIN_STREAM_STREAM_H

#include "stream/back.h"
#include "stream/grow.h"
#include "stream/qp.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

/* In stop: the connection may be promoted again. */
#define STREAM_STOP_AGAIN (1ull << 63)

/* The reader's way into sleep and out of it. */
enum stream_wait {
	STREAM_POLLED, /* no bell rings: the reader must poll */
	STREAM_ASKED,  /* the peer's answer will wake the reader */
	STREAM_ASLEEP, /* the next record rings; if `each`, every one does */
};

struct stream {
	struct stream_host *host;
	struct dev_stats *stats; /* the host's, or own */
	struct dev_stats own_stats;
	struct stream_qp *qp;
	/* in lists of qp */
	struct list_node owing, woken, left_link, tending, large;
	uint32_t number;
	struct ibv_mr *ring_mr, *mirror_mr;
	struct stream_slot slot;
	struct stream_ctl *ctl;
	uint8_t *ring;	    /* the peer writes it: the first one */
	uint8_t *mirror;    /* this end's copy of the peer's ring in use */
	uint64_t out_mem;   /* ... and where that ring is, */
	uint32_t out_rkey;  /* ... its rkey, */
	uint32_t out_lkey;  /* ... and the mirror's */
	uint32_t ring_size; /* of the first one */
	struct stream_addr peer;
	struct stream_out out;
	struct stream_in in;
	uint64_t secret;
	uint32_t last;	     /* the QP's request that was this stream's last */
	uint32_t burst;	     /* bytes posted in this burst */
	uint32_t burst_end;  /* the request that ended it */
	uint32_t burst_done; /* ... the burst before it */
	enum stream_wait sleep;
	bool asked;	  /* OPEN was sent, OPENED has not come */
	bool connected;	  /* peer is known */
	bool each;	  /* this end has asked for a bell with each record */
	bool peer_asleep; /* the next record rings */
	bool peer_each;	  /* ... and all behind it */
	bool owes_ack, owes_head, owes_accept, owes_stop, owes_moved;
	bool owes_bell, owes_close, owes_grow, owes_grant, owes_probe;
	bool closed;	  /* this end has said CLOSE: it writes no more */
	bool peer_closed; /* ... the peer has */
	bool left;	  /* it has no owner */
	bool refused;	  /* ... and its stop is said before CLOSE */
	struct stream_place reserved; /* room 0: nothing is reserved */
	struct stream_back back;
	struct stream_grow grow;
	bool again;	 /* this end's stop has STREAM_STOP_AGAIN */
	bool ended;	 /* END was written */
	uint32_t end_at; /* by this request */
	int broken;	 /* a negative errno: why the stream is over */
	int answer;	 /* of OPENED: enum stream_answer */
	uint64_t bells, records;
	void *user;
};

/* -ENOMEM; others of the device. ring_size: a power of two, STREAM_RING_MIN to
 * STREAM_RING_MAX; grow_max: this end's ring grows up to that; at most ring_size:
 * it does not. */
int stream_new(struct stream_host *h, uint32_t ring_size, uint32_t grow_max,
	       struct stream **s);
/* The stream was never joined, or stream_qp_over() has returned it. */
void stream_free(struct stream *s);
/* -ENOMEM. */
int stream_join(struct stream *s, struct stream_qp *q);
/* s is joined. */
void stream_addr(struct stream *s, struct stream_addr *addr);
/* -EINVAL: the ring has another size. Afterwards the peer may write. */
int stream_connect(struct stream *s, const struct stream_addr *peer);
/* Opens s by a message on its QP: stream_qp_woken() returns it when the answer
 * has come. -ENOMEM. */
int stream_ask_open(struct stream *s, uint32_t listener);
/* The owner lets go of it. */
void stream_leave(struct stream *s);
/* The same of a stream that this end has not used and will not use, while the
 * connection goes on by TCP: the peer hears a stop before the end. */
void stream_refuse(struct stream *s);

/* This end reads the ring from now on. */
void stream_accept(struct stream *s);
/* Does the peer's end read its ring? */
bool stream_accepted(const struct stream *s);
/* The first record: "bytes from this offset on come here". -EAGAIN. */
int stream_switch(struct stream *s, uint64_t offset);

/* Returns bytes taken, that is placed in the peer's ring; -EAGAIN, -EFAULT
 * (host.reads), or the error that broke the stream. Each byte is copied once
 * here, and once by the device. */
ssize_t stream_write(struct stream *s, const struct iovec *iov, int n);
/* The same without the first copy (RR-Compound, IV-F): the caller writes up to
 * *room bytes at *buf, then commits them; nothing else is written to the stream
 * in between. -EAGAIN: no room now. */
int stream_reserve(struct stream *s, uint8_t **buf, uint32_t *room);
/* Sends the first len of them, 1 to room; 0 drops the reservation. Returns 0,
 * or the error that broke the stream. */
int stream_commit(struct stream *s, uint32_t len);
/* Is there room for more? */
bool stream_writable(struct stream *s);
/* Writes END: nothing follows. -EAGAIN: no room now. */
int stream_end(struct stream *s);
/* As stream_in_peek(); a negative errno is the stream's end. */
int stream_peek(struct stream *s, enum stream_type *type, const uint8_t **data,
		uint32_t *len);
void stream_consume(struct stream *s, uint32_t n);

/* This end stops: from now on it neither reads its ring nor writes the peer's,
 * and bytes that the peer has not read go by TCP. A hand-back cannot be
 * undone. again: the connection may be promoted again, on another stream; a
 * second call can only take that back. */
void stream_hand_back(struct stream *s, bool again);
/* Has the peer begun a hand-back? */
bool stream_peer_stopped(const struct stream *s);
/* ... after which the connection may be promoted again? */
bool stream_peer_again(const struct stream *s);
/* Takes in the peer's words of the hand-back. 0, or the error that broke the
 * stream. */
int stream_back_poll(struct stream *s);
/* Sends this end's stop again: if the peer has freed its end, that breaks the
 * stream. */
void stream_back_nudge(struct stream *s);
/* As stream_back_peek(); 0 bytes until the peer has stopped. */
int stream_back_next(struct stream *s, const uint8_t **data, uint32_t *len);
/* TCP has taken all bytes of this end: tells the peer. */
void stream_back_moved(struct stream *s);
/* TCP has taken both ends' bytes, and the peer was told: the stream may be
 * freed. */
bool stream_back_done(const struct stream *s);

/* Asks for a bell, to sleep. True: the caller may sleep after one more look at
 * the ring; what comes after that makes stream_qp_woken() return s. each: for a
 * reader that sleeps before each record; from now on all of them ring, and no
 * further question is asked. */
bool stream_ask(struct stream *s, bool each);
/* Is all that was posted in the peer's memory? */
bool stream_drained(struct stream *s);
/* Is END, and so all that was written, in the peer's memory? */
bool stream_end_there(struct stream *s);
/* Waits for stream_drained(). -ETIMEDOUT. */
int stream_drain(struct stream *s, uint64_t timeout_ns);
/* Posts a request that lets stream_drained() become true. False: no room
 * now. */
bool stream_flush(struct stream *s);
/* Is the peer's process known to be dead? */
static inline bool stream_peer_dead(struct stream *s)
{
	return stream_qp_dead(s->qp);
}

/* For grow.c: writes a RING: what follows is in a ring of that size; the first
 * one is in use; takes in the peer's Head. Errors as of stream_write(). */
int stream_post_ring(struct stream *s, uint32_t size);
void stream_first_ring(struct stream *s);
int stream_take_head(struct stream *s);
int stream_break(struct stream *s, int rc);

/* For qp.c: what has come for it; posts what it owes; have both ends left it? */
void stream_imm(struct stream *s, enum stream_imm op);
void stream_opened(struct stream *s, const struct stream_msg *m);
void stream_pay(struct stream *s);
bool stream_is_over(const struct stream *s);

#endif
