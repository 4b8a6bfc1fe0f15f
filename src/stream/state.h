/* SPDX-License-Identifier: MIT */
/*
 * state.h - streams of a context: what belongs to the context, to a listener,
 * to a connection and to a stream of the public interface.
 *
 *	module.c	connections that streams share: handshake, rounds,
 *			sleep, end
 *	open.c		a stream on a connection: opening, both sides
 *	api.c		the public calls
 *	stream.c, qp.c	the stream itself, and the QP
 *
 * A stream outlives its connection until the application closes it: what the
 * peer wrote before it ended is still read from the ring. A connection stays as
 * long as it has users; the one that opened it keeps it IDLE_NS longer.
 *
 * Locks: a stream_conn's before the context's.
 */
#ifndef SKEIN_STREAM_STATE_H
#define SKEIN_STREAM_STATE_H

#include "conn/state.h"
#include "stream/conf.h"
#include "stream/section.h"
#include "stream/stream.h"

#include <skein/stream.h>
#include <stdatomic.h>

struct stream_ctx {
	struct skein_ctx *ctx;
	struct stream_conf conf;
	/* Guards what follows, and the host. */
	struct env_mutex lock;
	struct list_node conns;	    /* stream_conn.link */
	struct list_node streams;   /* skein_stream.link */
	struct list_node listeners; /* skein_stream_listener.link */
	struct stream_host host;
};

struct skein_stream_listener {
	struct stream_ctx *sx;
	struct list_node link;
	struct list_node queue; /* skein_stream.queued */
	uint32_t number;
	unsigned backlog, n; /* n: in the queue, or on their way to it */
	atomic_uint waiting; /* in the queue */
};

/* A connection and its QP, which streams share. */
struct stream_conn {
	struct stream_ctx *sx;
	struct skein_engine *eng;
	bool dialled;
	struct skein_conn *handle; /* dialled */
	char *addr;		   /* dialled: to there */
	unsigned shard;

	/* under sx->lock */
	struct list_node link; /* in sx->conns */
	unsigned users;	       /* streams, and threads that open one */
	bool spent;	       /* it takes no more streams */
	bool down;	       /* ... and its connection is gone */
	uint64_t idle_ns;      /* without users since */

	/* the engine owner's */
	struct skein_conn *conn;
	bool leaving;	  /* dialled: its handle was closed */
	bool naps;	  /* a peer has not answered yet that it will ring */
	bool found;	  /* arm() did; the next round says so */
	uint64_t look_ns; /* of the QP, when arm() saw it */
	struct engine_call leave_call;

	struct env_mutex lock; /* guards what follows, and the streams */
	struct stream_qp *q;
	struct list_node active; /* skein_stream.at: streams to look at */
	struct list_node asleep; /* ... that ring */
	int err;		 /* the connection has ended: why */
	/* counters.h: of streams as last looked at, and how many there are */
	uint64_t read, written, records, streams;
	char peer[CONN_ADDR_TEXT_MAX + 32];
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
	struct stream_conn *sc;
	struct list_node link, queued; /* under sx->lock */
	char peer[CONN_ADDR_TEXT_MAX + 32];
	uint32_t number;
	bool dialled;

	/* under sc->lock */
	struct list_node at; /* in sc->active or sc->asleep */
	struct stream *s;
	int err;	    /* it has ended: why */
	uint64_t failed_ns; /* when a call met that the QP has failed, or 0 */
	uint64_t moved_ns;  /* the last round that found something */
	uint64_t live_by_ns;
	struct stream_turn tx, rx;
	uint64_t written, read, copied, full;
	uint64_t counted[3]; /* by stream_count() */

	atomic_bool live; /* each end has reached the other's memory */
	atomic_bool over; /* err is set */
	/* any thread; set by rounds, cleared by calls that found nothing */
	atomic_bool readable, writable;
	atomic_bool opened; /* dialled: it is live, or err is set */
};

/* module.c */
extern const struct conn_module stream_module;
/* A connection to addr that takes a stream, perhaps a new one, with the caller
 * as a user of it. attr: of the new one; *mine: it is one. */
int stream_conn_get(struct stream_ctx *sx, const char *addr,
		    const struct skein_conn_attr *attr, struct stream_conn **sc,
		    bool *mine);
void stream_conn_put(struct stream_conn *sc);
/* It takes no more streams. */
void stream_conn_spend(struct stream_conn *sc);
bool stream_conn_spent(struct stream_conn *sc);
/* Adds what st has done since it was last looked at to the connection's
 * counts. Locked. */
void stream_count(struct skein_stream *st);
/* Takes in what has come for the connection's streams. Locked. */
void stream_conn_poll(struct stream_conn *sc);
/* Frees what both ends have left. Not locked. */
void stream_conn_sweep(struct stream_conn *sc);
void stream_sweep_idle(struct stream_ctx *sx, bool all);

/* open.c */
int stream_handle_new(struct stream_conn *sc, struct skein_stream **st);
/* Frees st; its end of the stream is left to the QP. */
void stream_handle_free(struct skein_stream *st);
/* Memory, and a number on the connection's QP. grows: the ring does. -ENOMEM.
 * Locked. */
int stream_make(struct skein_stream *st, uint32_t ring, bool grows);
void stream_opens(struct stream_qp *q, const struct stream_msg *m);
/* The answer to st's OPEN has come. Locked. */
void stream_answered(struct skein_stream *st);
/* Each end has reached the other's memory; or that was not to be. At the
 * accepting end these may free st. Locked, by the engine's owner. */
void stream_go_live(struct skein_stream *st);
void stream_not_live(struct skein_stream *st, int err);
/* st is over. Locked. */
void stream_fail(struct skein_stream *st, int err);
void stream_listed(struct skein_stream *st, bool listed);
/* The listener of a number, or NULL. Under sx->lock. */
struct skein_stream_listener *stream_listener(struct stream_ctx *sx,
					      uint32_t number);

#endif
