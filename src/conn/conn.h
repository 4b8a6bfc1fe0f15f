/* SPDX-License-Identifier: MIT */
/*
 * conn.h - what the modules above (rpc, stream, mcast) see of a connection.
 *
 * A conn_peer joins two contexts: it owns the control link (a TCP socket),
 * liveness, and the region table. A skein_conn is a light handle on it with one
 * RC QP. One CQ of its engine takes a connection's completions. Only the engine
 * polls it; each completion goes to the operation that wr_id names.
 *
 * Life of a connection, as a module sees it:
 *	offer()/accept()	its opaque section of the handshake, both ways
 *	ready()		the QP is up: posts are allowed from now on
 *	poll(), arm()		while ready, by the engine
 *	broken()		no post is allowed any more, and every operation
 *			has had its done(); the module ends calls as unknown or
 *			not sent. A new offer() may follow, when the connection
 *			reconnects
 *	closed()		the module frees its state: after each attempt
 *			that fails, but after a ready() only at the close, as
 *			any thread may read the state until then
 *
 * Thread rule: the owner of the connection's engine, except where a comment
 * says otherwise.
 */
#ifndef SKEIN_CONN_CONN_H
#define SKEIN_CONN_CONN_H

#include "base/bytes.h"
#include "dev/dev.h"
#include "dev/mem.h"
#include "env/engine/engine.h"
#include <skein/conn.h>

struct conn_op;
struct conn_thread;

/* 4 bits of kind and 28 of value: docs/protocol/immediate.md */
enum conn_imm_kind {
	CONN_IMM_WAKE = 1,	 /* rpc: look at your ring; value unused */
	CONN_IMM_EVENT_MODE = 2, /* rpc: the switch to event mode and its ack */
	CONN_IMM_CREDITS = 3,	 /* rpc: a lane asks for credits; the answer */
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

/* How rounds treat a silent connection. */
enum conn_quiet {
	CONN_ACTIVE,   /* every round polls it */
	CONN_SWEPT,    /* some rounds look at one word of it */
	CONN_NOTIFIED, /* no round: its next message has an immediate */
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
	/* Its connections are its own, by conn_open_sole(), without any other
	 * module. Other connections do not have this module. */
	bool sole;

	/* The context opens and closes. *state is the module's own, and
	 * conn_ctx_module() returns it. May be NULL. */
	int (*ctx_open)(struct skein_ctx *ctx, void **state);
	void (*ctx_close)(struct skein_ctx *ctx, void *state);
	/* skein_ctx_close() begins and connections still work: the module ends
	 * what the application has left open. May block. May be NULL. */
	void (*ctx_stop)(struct skein_ctx *ctx, void *state);

	/* Called by each engine's owner every ENG_TICK_NS, while the engine has
	 * links. May be NULL. */
	void (*ctx_tick)(struct skein_ctx *ctx, void *state, uint64_t now_ns);

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

	/* poll(), arm() and next_deadline() as an engine object's, for each
	 * ready connection. poll is on the hot path; a negative return breaks
	 * the connection (-SKEIN_EPEER for garbage). At most one module of a
	 * connection has it. */
	int (*poll)(struct skein_conn *conn, void *state, uint64_t now_ns);
	/* Rounds poll it again, after rest() has let them leave it out. May be
	 * NULL. */
	void (*active)(struct skein_conn *conn, void *state);
	/* poll() has moved nothing for POLLS_SILENT_NS (polls.h): how may
	 * rounds treat the connection? For CONN_SWEPT sets *word. An immediate
	 * or conn_active() makes it active again. May be NULL. */
	enum conn_quiet (*rest)(struct skein_conn *conn, void *state,
				struct conn_word *word);
	int (*arm)(struct skein_conn *conn, void *state);
	uint64_t (*next_deadline)(struct skein_conn *conn, void *state);
	/* A receive with an immediate of one of the module's kinds, in host
	 * order. */
	void (*imm)(struct skein_conn *conn, uint32_t imm, uint32_t byte_len);
	/* Shall imm() be called, until broken(), also for receives that came
	 * before the connection ended? Nothing can be posted then. */
	bool hears_out;
	/* Has the module anything under way that a polite close waits for? */
	bool (*busy)(struct skein_conn *conn, void *state);
	/* Adds to of[] (counters.h) what the connection has done so far: at
	 * ready(), from then on now and then, and last before broken(). May be
	 * NULL. */
	void (*counters)(struct skein_conn *conn, void *state, uint64_t *of);

	void (*broken)(struct skein_conn *conn, int err);
	void (*closed)(struct skein_conn *conn, void *state);

	/* Hooks for thread records (thread.h), at the end that opened the
	 * handle; each may be NULL. handle: lane 0. */
	/* Called by a thread that takes rec, before any other thread sees it:
	 * readies rec->modules[id - 1], which the thread before may have left
	 * there. The thread's call returns the error. */
	int (*thread_taken)(struct skein_conn *handle, struct conn_thread *rec);
	/* Called by rec's thread as it ends; never while the handle closes.
	 * Does not block. */
	void (*thread_left)(struct skein_conn *handle, struct conn_thread *rec);
	/* Called by rec's thread: it has sent a memory operation of len
	 * bytes. */
	void (*thread_wr)(struct conn_thread *rec, size_t len);
	/* Called by rec's thread after conn_thread_filled(): takes its replies.
	 * Returns how many. */
	int (*thread_reap)(struct conn_thread *rec);
	/* Is nothing of rec's last thread under way any more? Any thread. */
	bool (*thread_idle)(struct skein_conn *handle, struct conn_thread *rec);
	/* The handle ends, and the record's memory with it; no thread uses rec
	 * any more. Before closed() of lane 0. */
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
/* What both devices can do: from accept() and confirm() on. Before that, what
 * this device can do. */
void conn_caps(struct skein_conn *conn, struct dev_caps *caps);
/* As skein_conn_timeout(). */
uint64_t conn_patience_ns(struct skein_conn *conn);
/* What carries its bytes: dev_qp_link(). NULL: it is not connected, too. */
const char *conn_link(struct skein_conn *conn);
struct ibv_pd *conn_pd(struct skein_conn *conn);
/* May conn post a transfer of len bytes, at most CONN_TURN_LEN, in this round
 * (conn/turn.h)? Always where the device does the copying. */
bool conn_turn(struct skein_conn *conn, uint32_t len);
/* As eng_region_end(). */
void conn_region_end(struct skein_conn *conn, struct mem_region *region);
/* Has this side opened it? */
bool conn_is_client(struct skein_conn *conn);
/* Any thread. */
bool conn_is_ready(struct skein_conn *conn);
/* 0 if the application may use conn now; else what its call returns: -ENOTCONN,
 * or -SKEIN_EFORKED in a forked child. Any thread. */
int conn_check(struct skein_conn *conn);

/* For a module with connections of its own: as skein_conn_open_async().
 * conn_sole_arg() of the connection is arg, from offer() on. At the other end
 * the listener's on_conn() is not called for it. */
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
 * wr_id holds a slot number and a generation of the connection's operation
 * table, never a pointer: a completion for a slot or generation that is not
 * under way breaks the connection. On an error only wr_id, status and qp_num of
 * the work completion are read.
 *
 * With op NULL the WR goes unsignalled and is counted: only a polled signalled
 * completion frees slots of the QP's queue, so now and then the table signals
 * such a WR. Its buffer may be used again only when a later signalled operation
 * of this connection has completed, or when the protocol above proves arrival.
 */
struct conn_op {
	void (*done)(struct conn_op *op, enum ibv_wc_status status);
	/* src/conn's: the next operation that ends with the same completion */
	struct conn_op *chain;
};

/* Limit of inline data. */
uint32_t conn_inline_max(struct skein_conn *conn);
/* For closed(), when the QP is gone. True: the peer's process may have stopped
 * in the middle of a write, and may still write into memory that it knows from
 * this connection. Only dereg_mr ends that: do not use the memory again under
 * its key. */
bool conn_stuck(const struct skein_conn *conn);
/* How many WRs conn_post() takes now. */
unsigned conn_send_room(struct skein_conn *conn);
/* As conn_active(), in a coming round. Any thread that uses the connection. */
void conn_wake(struct skein_conn *conn);
/* Every round polls it again: there is work that neither an immediate nor the
 * word of rest() announces. Owner. */
void conn_active(struct skein_conn *conn);
/* The module waits for a receive: the next look at the CQs is not put off while
 * other work moves. */
void conn_expect_recv(struct skein_conn *conn);

/* Posts one WR; wr_id, next and IBV_SEND_SIGNALED are set here; imm_data is in
 * network order, as in verbs: htonl(CONN_IMM(kind, value)). 0, -EAGAIN when the
 * QP's queue is full, -ENOMEM when the device has no memory now (nothing was
 * posted: try again), -ENOTCONN when not ready. Any other error of the device
 * breaks the connection: without an op -ENOTCONN, with an op 0, and done()
 * comes with the flush. */
int conn_post(struct skein_conn *conn, struct ibv_send_wr *wr,
	      struct conn_op *op);

/*
 * Receive credits: a WRITE with immediate consumes a receive at the peer. Each
 * side posts CONN_RECVS receives at connect, and one more for each that is
 * used. conn counts the credits that the sender has: conn_imm_credit() takes
 * one (false: none now). The receiver gives them back by CONN_IMM_CREDIT,
 * CONN_RECVS / 2 at a time; further receives are kept for those immediates.
 */
#define CONN_RECVS 64
bool conn_imm_credit(struct skein_conn *conn);
/* Puts a credit back when its immediate was not posted. */
void conn_imm_refund(struct skein_conn *conn);

/* Event mode: the engine object's arm() requests notification on its CQs;
 * modules do nothing for it. */

/* Breaks the connection with err and one line of story. Ends all operations
 * with IBV_WC_WR_FLUSH_ERR. Safe inside any callback. */
void conn_break(struct skein_conn *conn, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#endif
