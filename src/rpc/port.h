/* SPDX-License-Identifier: MIT */
/*
 * port.h - what the RPC engines need of the world below: a way to move bytes to
 * the other end, and registered memory.
 *
 * post.c implements it on a connection; tests implement it on arrays. The
 * engines above it (client.c, server.c, event.c) do no I/O of their own, read
 * no clock, and never block.
 *
 * Thread rule: the owner of the connection's engine.
 */
#ifndef SKEIN_RPC_PORT_H
#define SKEIN_RPC_PORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "env/env.h"
#include "rpc/event.h"
#include "rpc/wire/layout.h"
#include "rpc/wire/msg.h"

struct rpc_port;

/* A piece of registered memory for one large payload. */
struct rpc_buf {
	void *addr;
	size_t len;  /* at least what was asked for */
	size_t room; /* bytes that may be written here, unless it is to_read */
	uint32_t rkey;
	uint32_t region;
	struct rpc_buf *next;		  /* its holder's */
	uint64_t mark;			  /* its holder's */
	void (*end)(struct rpc_buf *buf); /* set by buf_let() */
};

/* A READ under way; done() runs exactly once after a successful read(), never
 * inside it. */
struct rpc_read {
	void (*done)(struct rpc_read *rd, int err);
};

struct rpc_port_ops {
	/* Sends [off, off + len) of this end's region to the same offset at the
	 * other end. wake NULL: no more than that. Else with a wake-up; *wake
	 * says whether it went with one: false for want of a receive credit. 0,
	 * -EAGAIN (send queue full), or an error: the connection is gone. */
	int (*write)(struct rpc_port *port, uint64_t off, uint32_t len,
		     bool *wake);
	/* A zero-byte message with this immediate. 0, -EAGAIN (no credit, or
	 * send queue full), or an error. */
	int (*signal)(struct rpc_port *port, uint32_t imm);
	/* READs the published Head into RPC_CTL_HEAD_DST. Errors as write. */
	int (*read_head)(struct rpc_port *port, struct rpc_read *rd);
	/* READs len bytes at off of the other end's memory into buf, at off; at
	 * most read_max. Errors as write; -EAGAIN also when the engine has
	 * moved enough in this round; -ENOMEM when there is no memory for that
	 * part of buf. */
	int (*read)(struct rpc_port *port, struct rpc_buf *buf,
		    const struct rpc_large *from, uint64_t off, uint32_t len,
		    struct rpc_read *rd);
	/* READs [off, off + len) of the other end's region to `to` of this
	 * end's. Errors as write. */
	int (*read_resp)(struct rpc_port *port, uint64_t to, uint64_t off,
			 uint32_t len, struct rpc_read *rd);
	/* NULL when memory is short. to_read: READs into the buffer make its
	 * memory, each from where the one before ended. */
	struct rpc_buf *(*buf_get)(struct rpc_port *port, size_t len,
				   bool to_read);
	void (*buf_put)(struct rpc_port *port, struct rpc_buf *buf);
	/* A buffer of rpc_deferred_conf.buf_new() becomes one of buf_get(). 0;
	 * or -ENOMEM: the connection has too much already, and the buffer is
	 * freed. */
	int (*buf_adopt)(struct rpc_port *port, struct rpc_buf *buf);
	/* Instead of buf_put(): the buffer outlives the connection, until any
	 * thread calls buf->end(). */
	void (*buf_let)(struct rpc_port *port, struct rpc_buf *buf);
	/* Any thread: the engine's rounds poll a resting connection again. */
	void (*wake)(struct rpc_port *port);
};

struct rpc_stats {
	uint64_t calls;
	uint64_t messages_sent;
	uint64_t messages_received;
	uint64_t call_messages; /* of those: with requests */
	uint64_t reads;		/* each a doorbell, as each message is */
	uint64_t bytes_sent;
	uint64_t head_reads;
	uint64_t full;
	uint64_t wakeups_sent;
	uint64_t later;	  /* requests that were deferred */
	uint64_t fetched; /* answers taken by READs; serving end: left */
	uint64_t fetched_messages;
	uint64_t fetch_reads;	    /* of reads: for answers */
	uint64_t fetch_empty;	    /* of these: found no answer */
	uint64_t fetch_rests;	    /* of these: for what the first one left */
	uint64_t fetch_len_changes; /* of F */
	uint32_t fetch_len;	    /* F of the last READ */
	uint64_t recalls;	    /* messages */
	uint64_t resent;   /* built to be fetched, but sent after a recall */
	uint64_t replied;  /* answers that were sent */
	uint64_t switches; /* of the mode, by return_mode.h */
	uint64_t signals;
};

/* One end of one connection: what client.c and server.c share. */
struct rpc_port {
	const struct rpc_port_ops *ops;
	uint8_t *base; /* of this end's region */
	struct rpc_geom geom;
	struct rpc_secret secret_in;  /* for what is written to us */
	struct rpc_secret secret_out; /* for what we write */
	enum rpc_tail tail_in, tail_out;
	unsigned batch_max; /* pairs in a message */
	uint32_t msg_max;   /* bytes of a message */
	uint32_t read_max;  /* bytes of one READ of a large payload */
	unsigned reads_max; /* READs of one under way */
	/* the largest result that space is reserved for; the caller READs
	 * longer ones */
	uint32_t resp_inline_max;
	uint64_t word; /* of responses: RPC_WORD_STARVED or 0 */
	struct rpc_event event;
	struct skein_env *model; /* charged for messages; NULL in production */
	struct rpc_stats stats;
};

/* A message of count pairs was built or found: charges what it costs in a
 * model. */
void rpc_port_charge(struct rpc_port *port, enum env_cost pair, unsigned count);

/* RPC_CTL_QUIET: the caller's copy, or the word that the server WRITEs from. */
static inline uint64_t *rpc_port_quiet(const struct rpc_port *port)
{
	return (uint64_t *)(void *)(port->base + RPC_CTL_QUIET);
}

/* The piece of a large payload that is READ next. */
static inline uint32_t rpc_port_piece(const struct rpc_port *port, uint64_t len,
				      uint64_t off)
{
	return len - off < port->read_max ? (uint32_t)(len - off)
					  : port->read_max;
}

/* Sends with a wake-up, or a wake-up is owed. */
int rpc_port_send_wake(struct rpc_port *port, uint64_t off, uint32_t len);

/* Sends a message built at off; counts it. As ops->write(). */
static inline int rpc_port_send(struct rpc_port *port, uint64_t off,
				uint32_t len)
{
	int rc;

	if (__builtin_expect(port->model != NULL, 0))
		rpc_port_charge(port, ENV_COST_ENCODE,
				rpc_msg_count(port->base + off));
	if (__builtin_expect(port->event.wake, 0))
		rc = rpc_port_send_wake(port, off, len);
	else
		rc = port->ops->write(port, off, len, NULL);
	if (__builtin_expect(rc != 0, 0))
		return rc;
	port->stats.messages_sent++;
	port->stats.bytes_sent += len;
	return 0;
}

#endif
