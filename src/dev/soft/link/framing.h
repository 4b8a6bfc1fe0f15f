/* SPDX-License-Identifier: MIT */
/*
 * framing.h - packets over connections that are up: out, collected into frames
 * and sealed where there is a key; and in. How a connection comes about, and what
 * becomes of one that ends, is tcp.c's. docs/protocol/link.md, "TCP".
 *
 * framing_read() and framing_write_rest() are under soft.lock. Senders come
 * between framing_lock() and framing_unlock(): they hold their QP's lock, and
 * this keeps its connection. Nothing here waits for a peer.
 */
#ifndef SKEIN_DEV_SOFT_LINK_FRAMING_H
#define SKEIN_DEV_SOFT_LINK_FRAMING_H

#include "dev/soft/link/tcp.h"

struct framing; /* of all connections of a device */

struct framing_ops {
	void *owner;
	/* A packet; c NULL: the end of a batch. */
	void (*take)(void *owner, struct tcp_conn *c, const uint8_t *pkt,
		     size_t len);
	/* The first record of one in TCP_PROVES. False: it is not used. */
	bool (*proved)(void *owner, struct tcp_conn *c);
	/* What its socket is to tell, of epoll. */
	void (*watch)(void *owner, struct tcp_conn *c, uint32_t events);
};

enum framing_end {
	FRAMING_GOES_ON,
	FRAMING_ENDED,
	FRAMING_CUT,	 /* ... within a record */
	FRAMING_GARBAGE, /* no frame */
	FRAMING_FORGED,	 /* no record, or one not of whole frames */
};

/* NULL: no memory. */
struct framing *framing_new(struct skein_env *env, bool seals,
			    const struct framing_ops *ops);
void framing_free(struct framing *f);

/* Takes in what is there, up to a bound. */
enum framing_end framing_read(struct framing *f, struct tcp_conn *c);
/* It takes bytes again. True: it has all that waited. */
bool framing_write_rest(struct framing *f, struct tcp_conn *c);
/* Its socket goes: nothing is sent on it any more. */
void framing_forget(struct framing *f, struct tcp_conn *c);

void framing_lock(struct framing *f);
/* Room for one packet, or NULL: tcp_ops.room() will tell. Then its length. */
uint8_t *framing_begin(struct framing *f, struct tcp_conn *c);
void framing_send(struct framing *f, struct tcp_conn *c, size_t len);
/* Sends all that was collected. */
void framing_unlock(struct framing *f);

#endif
