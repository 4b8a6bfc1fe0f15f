/* SPDX-License-Identifier: MIT */
/*
 * conn.h - what the modules above (rpc, later vqp, stream, mcast) see of a
 * connection.
 *
 * A conn_peer is one pair of contexts: it owns the control link (a TCP
 * socket), liveness, and the region table. A skein_conn is a light handle on
 * it with one RC QP. Both CQs of a connection are its engine's; completions
 * are polled here and nowhere else, and handed to the operation that wr_id
 * names.
 *
 * Life of a connection, as a module sees it:
 *	offer()/accept()	its opaque section of the handshake, both ways
 *	ready()		the QP is up: posts are allowed from now on
 *	poll(), arm()		while ready, by the engine
 *	broken()		no post is allowed any more; every operation under
 *			way has already ended by its done(); calls must be
 *			ended as unknown or not sent. May be followed by a new
 *			offer() when the connection reconnects
 *	closed()		free what hangs from the connection: after each
 *			attempt that fails, but once it was ready() not before
 *			it is closed, for any thread may be looking
 *
 * Thread rule: everything here belongs to the owner of the connection's
 * engine, except where it says otherwise.
 */
#ifndef SKEIN_CONN_CONN_H
#define SKEIN_CONN_CONN_H

#include "base/bytes.h"
#include "dev/dev.h"
#include "dev/mem.h"
#include "env/engine.h"
#include <skein/conn.h>

struct conn_op;
struct conn_thread;

/* 4 bits of kind and 28 of value: docs/protocol/immediate.md */
enum conn_imm_kind {
	CONN_IMM_WAKE = 1,	 /* rpc: look at your ring; value unused */
	CONN_IMM_EVENT_MODE = 2, /* rpc: the switch to event mode and its ack */
	CONN_IMM_CREDITS = 3,	 /* rpc: of a handle's lane: question, answer */
	/* 4: streams */
	CONN_IMM_MCAST = 5,   /* mcast: a record; type and size */
	CONN_IMM_CREDIT = 15, /* conn: value receives are posted again */
};
#define CONN_IMM(kind, value) \
	((uint32_t)(kind) << 28 | ((uint32_t)(value)&0x0fffffffu))
#define CONN_IMM_KIND(imm) ((imm) >> 28)
#define CONN_IMM_VALUE(imm) ((imm)&0x0fffffffu)

enum conn_module_id {
	CONN_MODULE_RPC = 1,
	CONN_MODULE_MCAST = 4,
	CONN_MODULE_STREAM = 5,
	CONN_MODULE_MAX = 8,
};

/* May rounds leave a silent connection out? */
enum conn_quiet {
	CONN_ACTIVE,   /* no: every round polls it */
	CONN_SWEPT,    /* but for a look at one word of it, now and then */
	CONN_NOTIFIED, /* yes: an immediate comes with whatever comes next */
};

/* The connection is to be polled once *at has this value. */
struct conn_word {
	const uint64_t *at;
	uint64_t value;
};

/* One per module, const, listed in src/modules.c. */
struct conn_module {
	enum conn_module_id id;
	const char *name;
	/* May the module be absent at the peer? */
	bool must_understand;
	/* It has connections for itself, opened by conn_open_sole(), which have
	 * no other module; others have not this one. */
	bool sole;

	/* The context opens and closes: room for the module's own state,
	 * reached by conn_ctx_module(). May be NULL. */
	int (*ctx_open)(struct skein_ctx *ctx, void **state);
	void (*ctx_close)(struct skein_ctx *ctx, void *state);
	/* skein_ctx_close() begins: ends what the application has left open,
	 * while connections still work. May block. May be NULL. */
	void (*ctx_stop)(struct skein_ctx *ctx, void *state);

	/* The client writes its section (buffers, sizes, keys). Allocates the
	 * module's state of the connection: conn_module_set(). */
	int (*offer)(struct skein_conn *conn, struct bytes_out *out);
	/* The server reads the client's section and writes its own. A section
	 * that the protocol does not allow: -SKEIN_EPEER. */
	int (*accept)(struct skein_conn *conn, struct bytes_in *in,
		      struct bytes_out *out);
	/* The client reads the server's answer. */
	int (*confirm)(struct skein_conn *conn, struct bytes_in *in);
	void (*ready)(struct skein_conn *conn);

	/* As an engine object's, for each ready connection. poll is on the
	 * hot path. A negative return breaks the connection (-SKEIN_EPEER for
	 * garbage). At most one module of a connection has it. */
	int (*poll)(struct skein_conn *conn, void *state, uint64_t now_ns);
	/* It is polled again, after rest() had it left out. May be NULL. */
	void (*active)(struct skein_conn *conn, void *state);
	/* poll() has moved nothing for POLLS_SILENT_NS (polls.h): may rounds
	 * leave the connection out? For CONN_SWEPT sets *word. An immediate
	 * makes it active again, and so does conn_active(). May be NULL. */
	enum conn_quiet (*rest)(struct skein_conn *conn, void *state,
				struct conn_word *word);
	int (*arm)(struct skein_conn *conn, void *state);
	uint64_t (*next_deadline)(struct skein_conn *conn, void *state);
	/* A receive with an immediate of one of the module's kinds, in host
	 * order. */
	void (*imm)(struct skein_conn *conn, uint32_t imm, uint32_t byte_len);
	/* Is imm() called, until broken(), for what had come before a
	 * connection ended too? Nothing can be posted then. */
	bool hears_out;
	/* Has it anything under way that a polite close should wait for? */
	bool (*busy)(struct skein_conn *conn, void *state);

	void (*broken)(struct skein_conn *conn, int err);
	void (*closed)(struct skein_conn *conn, void *state);

	/* Thread records of handles with lanes (thread.h), at the end that
	 * opened them; each may be NULL. handle: lane 0. */
	/* In a thread that attaches, before anybody else sees the thread record:
	 * readies rec->modules[id - 1], which may be there already, from
	 * the thread before. An error is that of the thread's call. */
	int (*thread_taken)(struct skein_conn *handle, struct conn_thread *rec);
	/* In a thread that ends; never while the handle closes. Does not
	 * block. */
	void (*thread_left)(struct skein_conn *handle, struct conn_thread *rec);
	/* In its thread: a memory operation of so many bytes was sent. */
	void (*thread_wr)(struct conn_thread *rec, size_t len);
	/* In its thread: runs what conn_thread_filled() was called for. */
	int (*thread_reap)(struct conn_thread *rec);
	/* Is nothing of its old thread under way any more? Any thread. */
	bool (*thread_idle)(struct skein_conn *handle, struct conn_thread *rec);
	/* The handle ends, and with it the thread record's memory; no thread
	 * uses it any more. Before closed() of lane 0. */
	void (*thread_free)(struct skein_conn *handle, struct conn_thread *rec);
};

/* All modules that are linked in; ends with NULL. src/modules.c */
extern const struct conn_module *const conn_modules[];

void *conn_ctx_module(struct skein_ctx *ctx, enum conn_module_id id);
void *conn_module_state(struct skein_conn *conn, enum conn_module_id id);
void conn_module_set(struct skein_conn *conn, enum conn_module_id id,
		     void *state);

struct skein_ctx *conn_ctx(struct skein_conn *conn);
struct skein_env *conn_env(struct skein_conn *conn);
struct engine *conn_engine(struct skein_conn *conn);
struct dev *conn_dev(struct skein_conn *conn);
/* What holds with its peer: from accept() and confirm() on; before, what the
 * device has at most. */
void conn_caps(struct skein_conn *conn, struct dev_caps *caps);
struct ibv_pd *conn_pd(struct skein_conn *conn);
/* May conn post a transfer of len bytes, at most CONN_TURN_LEN, in this round
 * (conn/turn.h)? Always where the device does the copying. */
bool conn_turn(struct skein_conn *conn, uint32_t len);
/* As eng_region_end(). */
void conn_region_end(struct skein_conn *conn, struct mem_region *region);
/* Did this side open it? */
bool conn_is_client(struct skein_conn *conn);
/* Any thread. */
bool conn_is_ready(struct skein_conn *conn);
/* Why the application's call on it must be refused: 0 when it need not be,
 * -ENOTCONN, or -SKEIN_EFORKED in a forked child. Any thread. */
int conn_check(struct skein_conn *conn);

/* For a module with connections of its own: as skein_conn_open_async().
 * conn_sole_arg() of the connection is arg, from offer() on. The listener's
 * application at the other end does not hear of it. */
int conn_open_sole(struct skein_ctx *ctx, const char *addr,
		   const struct skein_conn_attr *attr,
		   const struct conn_module *module, void *arg,
		   struct skein_conn **conn);
void *conn_sole_arg(struct skein_conn *conn);

/* A fresh region id, unique in the context, never used again. */
uint32_t conn_region_id(struct skein_ctx *ctx);

/*
 * Operations. An op is embedded in the module's own struct; it is under way
 * from a successful conn_post() until done(), which runs exactly once, inside
 * the engine's poll of the CQ (never inside conn_post()).
 *
 * wr_id is slot number and generation in the connection's operation table,
 * never a pointer: a completion that names a slot or generation that is not
 * under way breaks the connection. On an error only wr_id, status and qp_num
 * of the work completion are read.
 *
 * With op NULL the WR goes unsignalled and is accounted for: send-queue slots
 * are freed only by polled signalled completions, so every so often such a WR
 * is signalled for the table's own sake. Its buffer may be used again only
 * when a later signalled operation of this connection has completed, or when
 * the protocol above proves arrival.
 */
struct conn_op {
	void (*done)(struct conn_op *op, enum ibv_wc_status status);
	/* conn's: the next one that ends with the same completion */
	struct conn_op *chain;
};

/* Inline data limit, and how many WRs fit now. */
uint32_t conn_inline_max(struct skein_conn *conn);
/* When the QP is gone (closed()): may the peer, which has stopped inside, still
 * write into memory that it was told of on this connection? Then only dereg_mr
 * parts it from that: the memory is not to be used again under its key. */
bool conn_stuck(const struct skein_conn *conn);
unsigned conn_send_room(struct skein_conn *conn);
/* As conn_active(), in a coming round. Any thread that uses the connection. */
void conn_wake(struct skein_conn *conn);
/* Every round polls it again: something is to be done that comes neither with an
 * immediate nor with the word of rest(). Owner. */
void conn_active(struct skein_conn *conn);
/* A receive is on its way that somebody waits for: this round looks for it, be
 * there other news or not. */
void conn_expect_recv(struct skein_conn *conn);

/* Posts one WR; wr_id, next and IBV_SEND_SIGNALED are set here; imm_data is in
 * network order, as in verbs: htonl(CONN_IMM(kind, value)). 0, -EAGAIN
 * when the send queue is full, -ENOMEM when the device has no memory for it
 * now (nothing was posted: it may be tried again), -ENOTCONN when not ready.
 * Another error of the post itself breaks the connection: with an op this
 * still returns 0, and done() comes with the flush. */
int conn_post(struct skein_conn *conn, struct ibv_send_wr *wr,
	      struct conn_op *op);

/*
 * Receive credits: a WRITE with immediate consumes a receive at the peer. Each
 * side posts CONN_RECVS receives at connect and reposts as they are used; the
 * count that the sender may use is held here: conn_imm_credit() takes one
 * (false: none now). The receiver gives them back by immediates of conn's own
 * kind, 32 at a time, for which further receives are kept.
 */
#define CONN_RECVS 64
bool conn_imm_credit(struct skein_conn *conn);
/* Gives one back whose immediate was not posted. */
void conn_imm_refund(struct skein_conn *conn);

/* Event mode: requests notification on the engine's CQ; part of the engine
 * object's arm. Nothing for modules to do. */

/* Breaks the connection: err and one line of story. Ends all operations with
 * IBV_WC_WR_FLUSH_ERR. Safe from inside any callback. */
void conn_break(struct skein_conn *conn, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#endif
