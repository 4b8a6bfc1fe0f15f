/* SPDX-License-Identifier: MIT */
/*
 * state.h - streams of a context: what hangs from the context, from a listener
 * and from a stream of the public interface.
 *
 *	module.c	a connection each: handshake, rounds, sleep, end
 *	api.c		the public calls
 *	stream.c	the stream itself, on its QP
 *
 * A stream outlives its connection until the application closes it: what the
 * peer wrote before it went is read from the ring. It is freed in its engine.
 */
#ifndef SKEIN_STREAM_STATE_H
#define SKEIN_STREAM_STATE_H

#include "conn/handle.h"
#include "stream/section.h"

#include <skein/stream.h>
#include <stdatomic.h>

#define STREAM_SIZES 9u /* of rings: 16 KiB to 4 MiB */

struct stream_ctx {
	struct skein_ctx *ctx;
	/* Of what follows, and of the hosts' memory. */
	struct env_mutex lock;
	struct list_node streams;   /* skein_stream.link */
	struct list_node listeners; /* skein_stream_listener.link */
	struct stream_host hosts[STREAM_SIZES];
	uint64_t mem;
};

struct skein_stream_listener {
	struct stream_ctx *sx;
	struct list_node link;
	struct list_node queue; /* skein_stream.queued */
	uint32_t number;
	unsigned backlog, n; /* n: in the queue, or on their way to it */
	atomic_uint waiting; /* in the queue */
};

/* One reader or writer at a time has what only it may touch: a place that was
 * reserved, bytes that were peeked at, a write of several parts. */
struct stream_turn {
	atomic_bool taken;
	bool held;	/* over the end of a call, by reserve or peek */
	uint32_t room;	/* then: bytes */
	unsigned waits; /* threads; under the lock */
};

struct skein_stream {
	struct stream_ctx *sx;
	struct skein_engine *eng;
	struct list_node link, queued;
	char peer[CONN_ADDR_TEXT_MAX + 32];
	uint32_t number, ring;
	bool dialled;
	struct skein_conn *handle; /* dialled */

	/* the engine's owner */
	struct skein_conn *conn;
	bool up; /* the handshake was done */
	uint64_t live_by_ns;
	atomic_bool live; /* each end has reached the other's memory */
	bool owned;	  /* in a queue, or the application's */
	bool leaving;	  /* the application's no more */
	bool naps;	  /* the peer has not said yet that it will ring */
	struct engine_call leave_call;

	struct env_mutex lock; /* of what follows, and of *s */
	struct stream *s;
	int err; /* the connection has ended: why */
	struct stream_turn tx, rx;
	uint64_t written, read, copied, full;

	/* any thread; set by rounds, cleared by calls that found nothing */
	atomic_bool readable, writable;
	atomic_bool opened; /* dialled: it is live, or its connection has ended */
};

/* module.c */
extern const struct conn_module stream_module;
int stream_handle_new(struct stream_ctx *sx, struct skein_stream **st);
void stream_handle_free(struct skein_stream *st);
void stream_listed(struct skein_stream *st, bool listed);
/* Engine's owner: the application is through with st. */
void stream_leave(struct engine_call *call);
/* Looks at st: has it become readable or writable? Locked. */
bool stream_look(struct skein_stream *st);

#endif
