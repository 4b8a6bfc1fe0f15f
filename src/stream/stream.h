/* SPDX-License-Identifier: MIT */
/*
 * stream.h - a byte stream each way between two processes, over an RC QP of its
 * own (RR-Compound's way; docs/protocol/stream.md).
 *
 * A stream is made (stream_new), its address travels to the peer by whatever
 * carrier the caller has, and with the peer's address it is connected. Each end
 * then says that it reads the ring (stream_accept); only what was accepted is
 * written. The first record of each direction is a SWITCH: it says how many
 * bytes the reader has had, or will have, from elsewhere.
 *
 * Waiting: a WRITE wakes nobody. A reader that wants to sleep asks
 * (stream_ask); the writer's end answers behind all that it has written, and
 * rings a bell with what it writes next, once.
 *
 * Thread rule: one thread at a time in all calls of one stream: the caller has
 * a lock. stream_new() and stream_free() belong to one thread of the host.
 * Nothing here blocks but stream_drain(), which has a deadline.
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
	struct ibv_comp_channel *channel; /* its fd: somebody rang a bell */
	struct stream_chunk *chunks;
	uint32_t ring_size;
	bool lent; /* device, domain and channels are somebody else's */
	struct dev_stats stats; /* of all streams, unless lent */
};

/* What the peer must know of an end. */
struct stream_addr {
	struct dev_qp_addr qp;
	uint64_t secret; /* of the ring that lies at this end */
	uint64_t mem;	 /* address of struct stream_ctl, the ring behind */
	uint32_t rkey;
	uint32_t ring_size;
	bool checksum; /* this end's device writes in any order */
};

/* The peer writes it, by WRITEs of one aligned word. */
struct stream_ctl {
	uint64_t head;	 /* how far it has read our records */
	uint64_t accept; /* 1: it reads them */
	uint64_t stop;	 /* 1 and the bytes it has read: it reads no more */
	uint64_t moved;	 /* 1 and the bytes it wrote: all went by TCP */
	uint64_t reserved[4];
};
_Static_assert(sizeof(struct stream_ctl) == 64, "on the wire");
_Static_assert(offsetof(struct stream_ctl, head) == 0, "on the wire");
_Static_assert(offsetof(struct stream_ctl, accept) == 8, "on the wire");
_Static_assert(offsetof(struct stream_ctl, stop) == 16, "on the wire");
_Static_assert(offsetof(struct stream_ctl, moved) == 24, "on the wire");

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
	STREAM_POLLED, /* nobody rings: it must look */
	STREAM_ASKED,  /* the answer is on its way: it wakes us */
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
	uint8_t *mirror; /* ours, of the peer's ring */
	uint32_t mirror_size;
	struct stream_addr peer;
	struct stream_out out;
	struct stream_in in;
	uint64_t secret;
	uint32_t psn;
	uint32_t posted, done; /* requests; done of them are over */
	uint32_t flushed;      /* stream_flush() asked for so many */
	enum stream_wait sleep;
	bool peer_asleep; /* the next record rings */
	bool owes_ack, owes_head, owes_accept, owes_stop, owes_moved;
	struct stream_place reserved; /* room 0: nothing is */
	struct stream_back back;
	bool ended;	 /* END was written */
	uint32_t end_at; /* ... by this request */
	int broken;	 /* a negative errno: the end of it */
	uint64_t bells, records;
	void *user;
};

/* Opens the device for streams. err: one line that says why not. */
int stream_host_init(struct stream_host *h, struct skein_env *env,
		     const char *device, char *err, size_t err_len);
/* The same on an open device, which is the host's once it returns 0. */
int stream_host_init_on(struct stream_host *h, struct skein_env *env,
			struct dev *dev);
/* The same where a context has the device: streams are made by stream_new_on(),
 * by one thread at a time. Nothing to fail. */
void stream_host_init_lent(struct stream_host *h, struct skein_env *env,
			   struct dev *dev, struct ibv_pd *pd,
			   uint32_t ring_size);
/* With no stream left. */
void stream_host_fini(struct stream_host *h);
/* Memory for one stream's ring and mirror; in host.c. */
int stream_host_get(struct stream_host *h, struct stream_chunk **chunk,
		    uint32_t *slot, uint8_t **mem, int *fd, uint64_t *off);
void stream_host_put(struct stream_host *h, struct stream_chunk *chunk,
		     uint32_t slot);
/* The next stream with a bell that rang, or NULL. */
struct stream *stream_host_event(struct stream_host *h);

int stream_new(struct stream_host *h, struct stream **s);
/* Its bells come by a channel of the caller's. */
int stream_new_on(struct stream_host *h, struct ibv_comp_channel *channel,
		  struct stream **s);
void stream_addr(struct stream *s, struct stream_addr *addr);
/* -EINVAL: the address makes no sense. Afterwards the peer may write. */
int stream_connect(struct stream *s, const struct stream_addr *peer);
/* Afterwards the peer writes nothing any more. */
void stream_free(struct stream *s);

/* This end reads the ring from now on. */
void stream_accept(struct stream *s);
/* Does the peer's end? */
bool stream_accepted(const struct stream *s);
/* The first record: "bytes from this offset on come here". -EAGAIN. */
int stream_switch(struct stream *s, uint64_t offset);

/* Bytes taken, which is: placed in the peer's ring; -EAGAIN, or what broke it.
 * Each byte is copied once here, and once by the device. */
ssize_t stream_write(struct stream *s, const struct iovec *iov, int n);
/* The same without the first copy (RR-Compound, IV-F): up to *room bytes are
 * written at *buf, then committed; nothing else is written to the stream in
 * between. -EAGAIN: no room now. */
int stream_reserve(struct stream *s, uint8_t **buf, uint32_t *room);
/* The first len of them go, 1 to room; 0 drops what was reserved. Returns 0, or
 * what broke the stream. */
int stream_commit(struct stream *s, uint32_t len);
/* Is there room for more? */
bool stream_writable(struct stream *s);
/* Nothing follows. -EAGAIN: later. */
int stream_end(struct stream *s);
/* As stream_in_peek(); a negative errno is the stream's end. */
int stream_peek(struct stream *s, enum stream_type *type, const uint8_t **data,
		uint32_t *len);
void stream_consume(struct stream *s, uint32_t n);

/* This end stops: from now on it neither reads its ring nor writes the peer's,
 * and what the peer has not read goes by TCP. Once begun it goes to its end. */
void stream_hand_back(struct stream *s);
/* Has the peer begun? */
bool stream_peer_stopped(const struct stream *s);
/* Takes in what the peer says of it. 0, or what broke the stream. */
int stream_back_poll(struct stream *s);
/* Our stop once more: a peer that has freed its end breaks the stream so. */
void stream_back_nudge(struct stream *s);
/* As stream_back_peek(); nothing before the peer has stopped. */
int stream_back_next(struct stream *s, const uint8_t **data, uint32_t *len);
/* All of ours is in TCP's hands: the peer is told. */
void stream_back_moved(struct stream *s);
/* Both ends' bytes are, and the peer was told: the stream may be freed. */
bool stream_back_done(const struct stream *s);

/* Takes completions and immediates in, and posts what is owed. True: a sleeper
 * should look again. */
bool stream_poll(struct stream *s);
/* Wants to sleep. True: it may, once it has looked at the ring again; whatever
 * comes then ends in stream_poll() saying so. */
bool stream_ask(struct stream *s);
/* All that was posted is in the peer's memory. */
bool stream_drained(struct stream *s);
/* END, and so all that was written, is in the peer's memory. */
bool stream_end_there(struct stream *s);
/* Waits for stream_drained(). -ETIMEDOUT. */
int stream_drain(struct stream *s, uint64_t timeout_ns);
/* Posts what lets stream_drained() become true. False: no room now. */
bool stream_flush(struct stream *s);
/* Is the peer's process known to be dead? */
bool stream_peer_dead(struct stream *s);

#endif
