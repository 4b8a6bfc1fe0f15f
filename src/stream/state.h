/* SPDX-License-Identifier: MIT */
/*
 * state.h - streams of a context: what belongs to the context, to a listener
 * and to a stream of the public interface.
 *
 *	module.c	a connection each: handshake, rounds, sleep, end
 *	api.c		the public calls
 *	stream.c	the stream itself, on its QP
 *
 * A stream outlives its connection until the application closes it: what the
 * peer wrote before it ended is still read from the ring. The stream's engine
 * frees it.
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
	/* Guards what follows, and the hosts' memory. */
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

/* The turn to read, or to write: one thread at a time has it, and with it a
 * place that was reserved, bytes that were peeked at, or a write of several
 * parts. */
struct stream_turn {
	atomic_bool taken;
	bool held;	/* kept beyond the end of a call, by reserve or peek */
	uint32_t room;	/* if held: bytes reserved */
	unsigned waits; /* threads that wait for it; under the lock */
};

struct skein_stream {
	struct stream_ctx *sx;
	struct skein_engine *eng;
	struct list_node link, queued;
	char peer[CONN_ADDR_TEXT_MAX + 32];
	uint32_t number, ring;
	bool dialled;
	struct skein_conn *handle; /* dialled */

	/* the engine owner's */
	struct skein_conn *conn;
	bool up; /* the handshake is done */
	uint64_t live_by_ns;
	atomic_bool live; /* each end has reached the other's memory */
	bool owned;	  /* in a listener's queue, or the application's */
	bool leaving;	  /* the application has closed it */
	bool naps;	  /* the peer has not answered yet that it will ring */
	bool found;	  /* arm() did; the next round says so */
	struct engine_call leave_call;

	struct env_mutex lock; /* guards what follows, and *s */
	struct stream *s;
	int err;	    /* the connection has ended: why */
	uint64_t failed_ns; /* when a call met that the QP has failed, or 0 */
	struct stream_turn tx, rx;
	uint64_t written, read, copied, full;

	atomic_bool over; /* err is set */
	/* any thread; set by rounds, cleared by calls that found nothing */
	atomic_bool readable, writable;
	atomic_bool opened; /* dialled: it is live, or its connection has
			     * ended */
};

/* module.c */
extern const struct conn_module stream_module;
int stream_handle_new(struct stream_ctx *sx, struct skein_stream **st);
void stream_handle_free(struct skein_stream *st);
void stream_listed(struct skein_stream *st, bool listed);
/* Engine's owner: the application has closed st. */
void stream_leave(struct engine_call *call);
/* Looks at st: has it become readable or writable? Locked. */
bool stream_look(struct skein_stream *st);

#endif
