/* SPDX-License-Identifier: MIT */
/*
 * port.h - what the engine of a group needs of the world: links to its
 * neighbours, registered memory, and the application.
 *
 * post.c and group.c implement it on connections; tests implement it on
 * arrays. The engine does no I/O, reads no clock and never blocks.
 *
 * Neighbours are named by their index in the ascending list of the schedule's
 * neighbours. Thread rule: the owner of the context's default engine.
 */
#ifndef SKEIN_MCAST_PORT_H
#define SKEIN_MCAST_PORT_H

#include "mcast/wire.h"
#include <skein/mcast.h>

struct mcast_port;

/* Registered memory: where blocks come from and go to. */
struct mcast_buf {
	uint8_t *addr;
	uint32_t lkey, rkey;
};

/* A block under way. done() runs exactly once after a successful block(),
 * never inside it. */
struct mcast_op {
	void (*done)(struct mcast_op *op, int err);
};

struct mcast_dest {
	struct mcast_buf buf; /* addr NULL: streamed */
	void *tag;
	/* The application has taken the message, but it cannot go there: it
	 * ends with done(). */
	int err;
};

struct mcast_out;

struct mcast_port_ops {
	/* One record into the neighbour's ring. 0; -EAGAIN (no link yet, no
	 * credit, queue full); else the link is going down: link_down()
	 * follows. */
	int (*record)(struct mcast_port *port, uint32_t nb,
		      enum mcast_channel channel, const struct mcast_rec *rec);
	/* rec->len bytes to the neighbour's memory, the record behind them,
	 * in MCAST_BLOCKS. Errors as record(); after -EAGAIN the payload may have gone. */
	int (*block)(struct mcast_port *port, uint32_t nb,
		     const struct mcast_rec *rec, const struct mcast_buf *from,
		     uint64_t to, uint32_t rkey, struct mcast_op *op);
	/* len bytes, a small message behind its record, to the neighbour's
	 * slot, in MCAST_WORDS. Errors as record(). */
	int (*small)(struct mcast_port *port, uint32_t nb,
		     const struct mcast_buf *from, uint32_t len, uint64_t to,
		     uint32_t rkey, uint32_t slot, struct mcast_op *op);
	/* Ends a link, both channels: link_down() follows, not inside. */
	void (*cut)(struct mcast_port *port, uint32_t nb, int err);

	/* Zeroed; NULL when memory is short. */
	void *(*alloc)(struct mcast_port *port, size_t len);
	void (*free)(struct mcast_port *port, void *p);
	/* What mcast_eng_send() was given has left the queue. */
	void (*out_free)(struct mcast_port *port, struct mcast_out *out);
	/* Registered memory that neighbours may write; handle is for mem_put().
	 * 0 or -ENOMEM. */
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
	/* Up, delivered, closed or ended has changed: somebody may wait. */
	void (*changed)(struct mcast_port *port);
};

struct mcast_port {
	const struct mcast_port_ops *ops;
};

#endif
