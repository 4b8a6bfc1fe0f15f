/* SPDX-License-Identifier: MIT */
/*
 * port.h - what a group's engine needs from outside: links to its neighbours,
 * registered memory, and the application.
 *
 * The implementation on connections is mcast_group_port in group.c, with
 * post.c; tests implement it on arrays. The engine does no I/O, reads no clock
 * and never blocks.
 *
 * A neighbour is named by its index in the engine's list of neighbours, which
 * is in ascending order of ranks: the schedule's neighbours and, with slots,
 * the root (at the root: all members).
 *
 * Thread rule: the owner of the context's default engine.
 */
#ifndef SKEIN_MCAST_PORT_H
#define SKEIN_MCAST_PORT_H

#include "mcast/wire.h"
#include <skein/mcast.h>

struct mcast_port;

/* Registered memory that blocks come from or go to. */
struct mcast_buf {
	uint8_t *addr;
	uint32_t lkey, rkey;
};

/* A block under way. done() runs exactly once after a successful block() or
 * small(), never inside it. */
struct mcast_op {
	void (*done)(struct mcast_op *op, int err);
};

struct mcast_dest {
	struct mcast_buf buf; /* addr NULL: streamed */
	void *tag;
	/* The application took the message, but it cannot go there: the message
	 * ends with done() and this error. */
	int err;
};

struct mcast_out;

struct mcast_port_ops {
	/* Writes one record into the neighbour's ring. 0; -EAGAIN (no link yet,
	 * no credit, queue full); any other error: the link is going down and
	 * link_down() follows. */
	int (*record)(struct mcast_port *port, uint32_t nb,
		      enum mcast_channel channel, const struct mcast_rec *rec);
	/* Writes a BLOCK record and rec->len bytes to the neighbour's memory,
	 * by MCAST_BLOCKS; the immediate comes after both. Errors as record();
	 * after -EAGAIN the record may have gone. */
	int (*block)(struct mcast_port *port, uint32_t nb,
		     const struct mcast_rec *rec, const struct mcast_buf *from,
		     uint64_t to, uint32_t rkey, struct mcast_op *op);
	/* Writes len bytes, a record followed by a small message, into the
	 * neighbour's slot, by MCAST_WORDS. Errors as record(). */
	int (*small)(struct mcast_port *port, uint32_t nb,
		     const struct mcast_buf *from, uint32_t len, uint64_t to,
		     uint32_t rkey, uint32_t slot, struct mcast_op *op);
	/* Ends all channels of a link. link_down() follows, but not inside. */
	void (*cut)(struct mcast_port *port, uint32_t nb, int err);

	/* Zeroed memory; NULL if there is none. */
	void *(*alloc)(struct mcast_port *port, size_t len);
	void (*free)(struct mcast_port *port, void *p);
	/* A message that mcast_eng_send() took has left the queue. */
	void (*out_free)(struct mcast_port *port, struct mcast_out *out);
	/* Registered memory that neighbours may write; mem_put() takes the
	 * handle. 0 or -ENOMEM. */
	int (*mem_get)(struct mcast_port *port, size_t len,
		       struct mcast_buf *buf, void **handle);
	void (*mem_put)(struct mcast_port *port, void *handle);

	/* The application: skein/mcast.h, struct skein_mcast_ops. */
	int (*incoming)(struct mcast_port *port,
			const struct skein_mcast_msg *msg,
			struct mcast_dest *dest);
	int (*block_in)(struct mcast_port *port,
			const struct skein_mcast_msg *msg,
			const struct skein_mcast_block *block);
	int (*fill)(struct mcast_port *port, const struct skein_mcast_msg *msg,
		    const struct skein_mcast_block *block);
	void (*done)(struct mcast_port *port, const struct skein_mcast_msg *msg,
		     int status);
	void (*failed)(struct mcast_port *port);
	/* The engine's up, delivered, closed or ended has changed; threads may
	 * wait for it. */
	void (*changed)(struct mcast_port *port);
};

struct mcast_port {
	const struct mcast_port_ops *ops;
};

#endif
