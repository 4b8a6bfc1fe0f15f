/* SPDX-License-Identifier: MIT */
/*
 * link.h - the control link: a stream of ctlframe.h's frames, on a socket or, of
 * a pooled connection, in messages of a vqp.
 *
 * Owns the socket or a reference to the vqp, the received part of an incomplete
 * frame, and bytes that could not be sent yet. Both buffers are bounded: a peer
 * that does not read is cut off. An idle link owns no memory.
 *
 * Thread rule: the owner of the engine that watches it.
 */
#ifndef SKEIN_CONN_PEER_LINK_H
#define SKEIN_CONN_PEER_LINK_H

#include "conn/peer/ctlframe.h"
#include "conn/pool.h"
#include "env/env.h"

#define CONN_LINK_OUT_MAX (256u * 1024u)
#define CONN_LINK_IN_MAX (2 * (CTLFRAME_HEAD + CTLFRAME_BODY_MAX))

struct conn_link {
	struct skein_env *env;
	struct env_waiter *w; /* watched there, or NULL */
	int fd;		      /* -1: none */
	struct conn_vqp *vqp; /* NULL: a socket */
	const uint8_t *in;    /* the message that has just come */
	uint32_t in_len;
	bool watch_out;
	uint8_t *carry; /* the beginning of a frame */
	uint32_t carry_len;
	uint8_t *out; /* not sent yet */
	uint32_t out_len, out_cap;
};

/* vqp: NULL, or instead of fd (-1). */
void conn_link_init(struct conn_link *l, struct skein_env *env, int fd,
		    struct conn_vqp *vqp);
void conn_link_fini(struct conn_link *l);
/* Watches the socket by w; out: also for the end of a connect. */
int conn_link_attach(struct conn_link *l, struct env_waiter *w, bool out);
void conn_link_detach(struct conn_link *l);

/* Sends now or later. -ENOBUFS when more than CONN_LINK_OUT_MAX bytes wait,
 * -ENOMEM, or the socket's error. */
int conn_link_send(struct conn_link *l, const void *buf, size_t len);
/* Sends bytes that wait. */
int conn_link_flush(struct conn_link *l);

/* As env_sock_recv(), and env_sock_error() of a connect. */
ssize_t conn_link_recv(struct conn_link *l, void *buf, size_t len);
int conn_link_error(struct conn_link *l);

/* Copies the carried bytes to buf (room for CONN_LINK_IN_MAX), returns how
 * many; the link carries nothing afterwards. */
size_t conn_link_uncarry(struct conn_link *l, uint8_t *buf);
int conn_link_carry(struct conn_link *l, const uint8_t *buf, size_t len);

#endif
