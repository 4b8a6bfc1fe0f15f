/* SPDX-License-Identifier: MIT */
/*
 * stream.h - byte streams between two contexts: one end reads the bytes that
 * the other writes, in order, without bounds of messages. RR-Compound's rings,
 * which `skein run` puts under TCP programs. Manual page: skein-stream(3);
 * protocol: docs/protocol/stream.md.
 *
 * One end opens a listener of its context (skein_listener_open()) and listens
 * for streams of a number; the other end opens a stream to that address and
 * number. Each end has a ring in its memory; the other writes it by RDMA WRITE.
 *
 * The streams that one engine opens to one address and shard share a connection
 * and a queue pair (SKEIN_STREAM_QPS: up to 4, or one each), which stay for a
 * while after the last of these streams is closed. A stream has two rings of
 * memory at each end: one to read from, and a copy of the bytes written.
 *
 * Bytes that skein_stream_write() has accepted are in the peer's ring; on the
 * soft device they get there without this process, so the peer reads them even
 * if this process exits at once. On a device that is still busy with them
 * skein_stream_close() waits for it, and a kill may lose them.
 *
 * Waiting. Blocking calls run the engine of the stream (skein_engine_run()). In
 * a loop of its own the application passes timeout_ns 0 to all calls (they
 * return -EAGAIN), and sleeps on skein_engine_fd(). When a stream becomes
 * readable or writable the engine's fd does, or skein_engine_progress() returns
 * more than 0: read until -EAGAIN before sleeping. A process that seldom runs
 * its engine keeps its peers awake: they look once a millisecond.
 *
 * Thread rule: any thread; skein_stream_close() once. Several threads may write
 * and read; the bytes of two writes do not mix.
 */
#ifndef SKEIN_STREAM_H
#define SKEIN_STREAM_H

#include <skein/conn.h>

#ifdef __cplusplus
extern "C" {
#endif

struct skein_stream;
struct skein_stream_listener;

#define SKEIN_STREAM_RING_MIN 16384u
#define SKEIN_STREAM_RING_MAX (4u << 20)

struct skein_stream_attr {
	size_t size; /* sizeof(struct skein_stream_attr) */
	/* the number that the peer's listener has; any value */
	uint32_t number;
	/* Bytes of each end's ring: a power of two. A writer waits when so many
	 * bytes have not been read. Default: it begins with 16 KiB and grows up
	 * to SKEIN_STREAM_RING. */
	uint32_t ring;
	struct skein_engine *engine; /* NULL: the default engine */
	/* as of struct skein_conn_attr */
	unsigned shard;
	uint64_t timeout_ns; /* to open it; default 5 s */
	unsigned retries;    /* also while no listener has the number */
};

struct skein_stream_listener_attr {
	size_t size;
	uint32_t number;
	/* streams that wait to be accepted; further ones are -SKEIN_EBUSY at
	 * the end that opens. Default 128. */
	unsigned backlog;
};

/*
 * Opens a stream to "HOST:PORT" and waits until it is up. attr may be NULL.
 * -ECONNREFUSED: no process listens there, or none for the number;
 * -SKEIN_EBUSY; -ENOMEM, -SKEIN_ERESOURCE (of the peer); -EINVAL: a ring that
 * cannot be; others of skein_conn_open(). -EDEADLK inside the engine. Blocks.
 */
SKEIN_API int skein_stream_open(struct skein_ctx *ctx, const char *addr,
				const struct skein_stream_attr *attr,
				struct skein_stream **stream);

/* From now on streams of this number are accepted, by every skein_listener of
 * the context. attr may be NULL. -EADDRINUSE: the number is taken. */
SKEIN_API int skein_stream_listen(struct skein_ctx *ctx,
				  const struct skein_stream_listener_attr *attr,
				  struct skein_stream_listener **listener);
/* Waits for the next stream, at most timeout_ns. -EAGAIN (timeout_ns 0),
 * -ETIMEDOUT. The stream belongs to the engine of its connection; closing the
 * skein_listener ends it. Runs the default engine. */
SKEIN_API int skein_stream_accept(struct skein_stream_listener *listener,
				  uint64_t timeout_ns,
				  struct skein_stream **stream);
/* Resets streams that were not accepted. No thread may be in
 * skein_stream_accept(). */
SKEIN_API void skein_stream_listener_close(
	struct skein_stream_listener *listener);

/*
 * Writes len bytes, and waits for room at most timeout_ns. 0: *written bytes
 * were accepted, all of them unless the time is over or the stream has ended
 * meanwhile. An error: none were. -EAGAIN (of timeout 0), -ETIMEDOUT; -EPIPE
 * after skein_stream_end(); -ECONNRESET: the peer has closed the stream or reset
 * it, or a queue pair has failed; -SKEIN_EDEAD: its process is gone, without a
 * close (until it is known which of the two, at most a second, calls wait, or
 * time out); -SKEIN_EPEER: it sent garbage; -SKEIN_EFORKED.
 */
SKEIN_API int skein_stream_write(struct skein_stream *stream, const void *buf,
				 size_t len, uint64_t timeout_ns,
				 size_t *written);

/*
 * Reads the bytes that are there, at most len, and waits for the first one at
 * most timeout_ns. 0: *got bytes; *got 0: the peer writes no more (or len was
 * 0). Errors as of skein_stream_write(), after all bytes that came before.
 */
SKEIN_API int skein_stream_read(struct skein_stream *stream, void *buf,
				size_t len, uint64_t timeout_ns, size_t *got);

/*
 * The same without a copy, for programs that build their bytes in place.
 * reserve: up to *room bytes, at least one, may be written at *buf; commit: the
 * first len of them are sent, 0 of them drops it. Other writers wait in
 * between. Errors as of skein_stream_write(); -EINVAL: commit of more than
 * room, or of nothing that was reserved.
 */
SKEIN_API int skein_stream_reserve(struct skein_stream *stream,
				   uint64_t timeout_ns, void **buf,
				   size_t *room);
SKEIN_API int skein_stream_commit(struct skein_stream *stream, size_t len);
/* peek: the next bytes, in place; *len 0: the peer writes no more, and nothing
 * is to be consumed. consume: n of them are read, 0 to len; the rest comes
 * again. Other readers wait in between. -EINVAL: as of commit. */
SKEIN_API int skein_stream_peek(struct skein_stream *stream,
				uint64_t timeout_ns, const void **data,
				size_t *len);
SKEIN_API int skein_stream_consume(struct skein_stream *stream, size_t n);

enum {
	SKEIN_STREAM_IN = 1 << 0,  /* a read would not wait */
	SKEIN_STREAM_OUT = 1 << 1, /* a write would not wait */
	SKEIN_STREAM_ERR = 1 << 2, /* the stream is over */
};
/* The bits that are true now. Never blocks. */
SKEIN_API unsigned skein_stream_ready(struct skein_stream *stream);

/* Half close: this end writes no more. The peer's reads say so after the last
 * byte. Reading goes on. Errors as of skein_stream_write(). */
SKEIN_API int skein_stream_end(struct skein_stream *stream,
			       uint64_t timeout_ns);

/*
 * Ends writing, waits until all bytes written are in the peer's ring, at most
 * timeout_ns, and frees the handle, in any case except -EDEADLK (inside an
 * engine). 0: they are there, and the peer can read them without this end.
 * Bytes of the peer that were not read are lost; its later writes get
 * -ECONNRESET. timeout_ns 0: a reset; the peer does not hear of the end of
 * writing, and a busy device may lose the last bytes. -ETIMEDOUT, or why the
 * stream had ended before. Blocks, at most timeout_ns.
 */
SKEIN_API int skein_stream_close(struct skein_stream *stream,
				 uint64_t timeout_ns);

/* As skein_conn_peer(); valid as long as the stream. */
SKEIN_API const char *skein_stream_peer(struct skein_stream *stream);
SKEIN_API uint32_t skein_stream_number(struct skein_stream *stream);

struct skein_stream_stats {
	size_t size; /* sizeof(struct skein_stream_stats), set by the caller */
	uint64_t written, read; /* bytes */
	uint64_t copied;	/* of both: bytes copied here */
	uint64_t records;	/* that were written */
	uint64_t full;		/* times a write met a full ring */
	uint64_t bells;		/* that woke the peer */
	uint64_t wrs, doorbells;
};
/* -EINVAL: stats->size is not set. */
SKEIN_API int skein_stream_get_stats(struct skein_stream *stream,
				     struct skein_stream_stats *stats);

#ifdef __cplusplus
}
#endif
#endif
