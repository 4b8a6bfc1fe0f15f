/* SPDX-License-Identifier: MIT */
/*
 * tcp.h - the sockets of the link on TCP 4791: dialling, accepting, handing a
 * connection over to the process that owns the QPN that it is for, until it is
 * up; and its end. What goes over it meanwhile is framing.h's. Knows nothing of
 * QPs. docs/protocol/link.md, "TCP".
 *
 * All calls are under soft.lock. Nothing here waits for a peer.
 */
#ifndef SKEIN_DEV_SOFT_LINK_TCP_H
#define SKEIN_DEV_SOFT_LINK_TCP_H

#include "dev/soft/link/frame.h"
#include "dev/soft/link/icrc.h"
#include "dev/soft/soft.h"

#define TCP_UNPROVED 64u /* that have not said hello, at most */
#define TCP_CONNS 1024u
#define TCP_HELLO_NS 1000000000ull /* for a hello, and for its answer */

struct tcp;
struct framing;

struct tcp_conn {
	struct list_node node;
	struct soft_src src;
	enum {
		TCP_DIALS,   /* connect() is on its way */
		TCP_ASKS,    /* our hello is sent, theirs is awaited */
		TCP_ACCEPTS, /* theirs is awaited */
		TCP_HANDED,  /* a local socket, over which one comes */
		TCP_HEARS,   /* their part of the sealed handshake is awaited */
		TCP_PROVES,  /* ... and their first record, which proves it */
		TCP_UP,
		TCP_GONE, /* nobody uses it any more */
	} state;
	bool dialled;	       /* by us */
	bool ours;	       /* from ourselves: it only receives */
	bool is_bulk;	       /* the second one, for long messages */
	bool knows_bulk;       /* the peer takes a second one */
	bool unheard;	       /* it ended for want of an answer */
	struct icrc_flow flow; /* ours as the source */
	uint32_t block;	       /* of the peer's QPNs */
	uint8_t id[16];	       /* the peer */
	uint32_t users;	       /* QPs; the user's own */
	uint64_t deadline;
	struct frame_hello mine; /* of one that we dial */
	struct seal *seal;	 /* NULL: clear */
	size_t part_len;
	/* framing.c's, under its lock of sending */
	uint8_t *rest; /* what the socket did not take, or NULL */
	size_t rest_at, rest_len;
	bool failed; /* what is sent is lost */
	/* What came and is not whole: of a hello, a frame or a record. */
	uint8_t part[];
};

struct tcp_ops {
	void *owner;
	/* A packet; c NULL: the end of a batch. */
	void (*take)(void *owner, struct tcp_conn *c, const uint8_t *pkt,
		     size_t len);
	/* It is there, and may be sent on. */
	void (*up)(void *owner, struct tcp_conn *c);
	/* It ends, or dialling was in vain (was_up false). */
	void (*down)(void *owner, struct tcp_conn *c, bool was_up);
	/* It takes packets again. */
	void (*room)(void *owner, struct tcp_conn *c);
};

struct tcp_counts {
	uint64_t dialled, accepted, handed, up, broken;
	uint64_t refused; /* too many, or nobody has that QPN */
	uint64_t garbage, silent;
	uint64_t unsealed;  /* one end seals, the other one does not */
	uint64_t other_key; /* both do, by different keys */
	uint64_t forged;    /* a record was changed, repeated or cut */
};

/* -errno, with *what failed. */
int tcp_open(struct soft *s, const struct tcp_ops *ops, struct tcp **t,
	     const char **what);
void tcp_close(struct tcp *t);
/* Connections for QPNs of this block are ours. */
int tcp_own_block(struct tcp *t, uint32_t block);
/* The connection from src to the owner of the block at dst that is up, or
 * (dials) on its way. NULL: none. */
struct tcp_conn *tcp_find(struct tcp *t, const struct icrc_flow *f,
			  uint32_t block, bool bulk, bool dials);
/* Begins one; up() or down() will follow. -errno: it did not begin. */
int tcp_dial(struct tcp *t, const struct icrc_flow *f, uint32_t ifindex,
	     uint32_t from_qpn, uint32_t to_qpn, bool bulk);
/* Takes in what is there, up to a bound; does not wait. */
void tcp_poll(struct tcp *t);
/* All its sockets. */
struct soft_src *tcp_src(struct tcp *t);
/* Closes those that have been silent. When to come again. */
uint64_t tcp_timers(struct tcp *t, uint64_t now);
/* framing.h: sends on connections that are up. */
struct framing *tcp_framing(struct tcp *t);
const struct tcp_counts *tcp_counts(const struct tcp *t);

#endif
