/* SPDX-License-Identifier: MIT */
/*
 * stream.h - a byte stream each way between two processes, over an RC QP of its
 * own (RR-Compound's way; docs/protocol/stream.md).
 *
 * stream_new() makes a stream. The caller carries its address to the peer by
 * any means, and connects it with the peer's address. Each end then says that
 * it reads the ring (stream_accept); the other end writes nothing before. The
 * first record of each direction is a SWITCH: it says how many bytes the reader
 * gets from elsewhere first.
 *
 * Waiting: a WRITE wakes no thread. A reader that wants to sleep asks
 * (stream_ask). The writer's end answers behind all that it has written, and
 * rings a bell with its next record, once.
 *
 * Thread rule: one thread at a time in all calls of one stream, by the caller's
 * lock. stream_new() and stream_free() belong to one thread of the host. Only
 * stream_drain() blocks, until its deadline.
 */
#ifndef SKEIN_STREAM_STREAM_H
#define SKEIN_STREAM_STREAM_H

#include "dev/dev.h"
#include "stream/back.h"
#include "stream/ring.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

struct env_mutex;
struct stream_chunk;

#define STREAM_RING_DEFAULT (64u << 10)

/* What the streams of a process share. */
struct stream_host {
	struct skein_env *env;
	struct dev *dev;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel; /* its fd: a bell rang */
	struct stream_chunk *chunks;
	uint32_t ring_size;
	bool lent; /* device, domain and channels belong to a context */
	struct dev_stats stats; /* of all streams, unless lent */
};

/* What the peer must know of an end. */
struct stream_addr {
	struct dev_qp_addr qp;
	uint64_t secret; /* of the ring at this end */
	uint64_t mem;	 /* address of struct stream_ctl; the ring follows it */
	uint32_t rkey;
	uint32_t ring_size;
	bool checksum; /* this end's device writes in any order */
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

/* In stop: the connection may be promoted again. */
#define STREAM_STOP_AGAIN (1ull << 63)

/* The immediates, kind 4. */
enum stream_imm {
	STREAM_ASK = 1,	 /* "I want to sleep" */
	STREAM_ACK = 2,	 /* "from here on I ring" */
	STREAM_BELL = 3, /* "there is something" */
	STREAM_BACK = 4, /* with stop and moved: "take them in" */
};
#define STREAM_IMM_KIND 4u

/* The reader's way into sleep and out of it. */
enum stream_wait {
	STREAM_POLLED, /* no bell rings: the reader must poll */
	STREAM_ASKED,  /* the peer's answer will wake the reader */
	STREAM_ASLEEP, /* the next record rings */
};

struct stream {
	struct stream_host *host;
	struct dev_stats *stats; /* the host's, or own */
	struct dev_stats own_stats;
	struct ibv_qp *qp;
	struct ibv_cq *scq, *rcq;
	struct ibv_mr *ring_mr, *mirror_mr;
	struct stream_chunk *chunk;
	uint32_t slot;
	struct stream_ctl *ctl;
	uint8_t *ring;	 /* the peer writes it */
	uint8_t *mirror; /* this end's copy of the peer's ring */
	uint32_t mirror_size;
	struct stream_addr peer;
	struct stream_out out;
	struct stream_in in;
	uint64_t secret;
	uint32_t psn;
	uint32_t posted, done; /* requests posted; of these, ended */
	uint32_t flushed;      /* `posted` at the last stream_flush() */
	enum stream_wait sleep;
	bool peer_asleep; /* the next record rings */
	bool owes_ack, owes_head, owes_accept, owes_stop, owes_moved;
	struct stream_place reserved; /* room 0: nothing is reserved */
	struct stream_back back;
	bool again;	 /* this end's stop has STREAM_STOP_AGAIN */
	bool ended;	 /* END was written */
	uint32_t end_at; /* by this request */
	int broken;	 /* a negative errno: why the stream is over */
	uint64_t bells, records;
	void *user;
};

/* Opens the device for streams. err: one line that says why not. */
int stream_host_init(struct stream_host *h, struct skein_env *env,
		     const char *device, char *err, size_t err_len);
/* The same on an open device, which belongs to the host once this returns 0. */
int stream_host_init_on(struct stream_host *h, struct skein_env *env,
			struct dev *dev);
/* The same on a context's device: streams are made by stream_new_on(), by one
 * thread at a time. It cannot fail. */
void stream_host_init_lent(struct stream_host *h, struct skein_env *env,
			   struct dev *dev, struct ibv_pd *pd,
			   uint32_t ring_size);
/* No stream is left. */
void stream_host_fini(struct stream_host *h);
/* Memory for one stream's ring and mirror; in host.c. */
int stream_host_get(struct stream_host *h, struct stream_chunk **chunk,
		    uint32_t *slot, uint8_t **mem, int *fd, uint64_t *off);
void stream_host_put(struct stream_host *h, struct stream_chunk *chunk,
		     uint32_t slot);
/* The next stream that has a bell, or NULL. */
struct stream *stream_host_event(struct stream_host *h);

int stream_new(struct stream_host *h, struct stream **s);
/* The same, with bells by the caller's channel. */
int stream_new_on(struct stream_host *h, struct ibv_comp_channel *channel,
		  struct stream **s);
void stream_addr(struct stream *s, struct stream_addr *addr);
/* -EINVAL: the address makes no sense. Afterwards the peer may write. */
int stream_connect(struct stream *s, const struct stream_addr *peer);
/* Afterwards the peer writes nothing any more. */
void stream_free(struct stream *s);

/* This end reads the ring from now on. */
void stream_accept(struct stream *s);
/* Does the peer's end read its ring? */
bool stream_accepted(const struct stream *s);
/* The first record: "bytes from this offset on come here". -EAGAIN. */
int stream_switch(struct stream *s, uint64_t offset);

/* Returns bytes taken, that is placed in the peer's ring; -EAGAIN, or the error
 * that broke the stream. Each byte is copied once here, and once by the
 * device. */
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

/* Takes completions and immediates in, and posts what is owed. True: a thread
 * that sleeps should look again. */
bool stream_poll(struct stream *s);
/* Asks for a bell, to sleep. True: the caller may sleep after one more look at
 * the ring; what comes after that makes stream_poll() return true. */
bool stream_ask(struct stream *s);
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
bool stream_peer_dead(struct stream *s);

#endif
