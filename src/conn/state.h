/* SPDX-License-Identifier: MIT */
/*
 * state.h - struct skein_conn, and its life step by step.
 *
 *	open.c	the side that opens: dial, try again, the public calls
 *	shake.c	the handshake of both sides, up to READY
 *	down.c	drain, ERR, markers, quiesce, free
 *	post.c	the hot path: posts, completions, immediates
 *	conn.c		memory, state, story, and what others read of it
 *
 * Thread rule: the engine's owner, except where a comment says otherwise.
 */
#ifndef SKEIN_CONN_STATE_H
#define SKEIN_CONN_STATE_H

#include "conn/ctx.h"
#include "conn/handle/state.h"
#include "conn/optable.h"
#include "conn/peer/peer.h"
#include "conn/pool.h"
#include "conn/setup/retry.h"
#include "conn/handle/sendq.h"

/* CONN_SQ_DEPTH + 1 slots make an operation table of 128. */
#define CONN_SQ_DEPTH 127u
#define CONN_INLINE_MAX 256u
#define CONN_SGE_MAX 4u
/* Receives beyond the peer's credits: for messages that return credits (at most
 * two are under way, as each returns CONN_RECVS / 2) and for a marker. */
#define CONN_RECVS_OWN 4u
#define CONN_TARGETS_MAX 8
#define CONN_TIMEOUT_NS (5 * 1000 * 1000 * 1000ull)
/* skein_conn_open() waits so much longer than its timeout, for the engine's
 * owner to end the attempt and say why. */
#define CONN_GRACE_NS (1000 * 1000 * 1000ull)
#define CONN_FLUSH_NS (1000 * 1000 * 1000ull)
#define CONN_BYE_NS (1000 * 1000 * 1000ull)
#define CONN_SUSPECT_NS (500 * 1000 * 1000ull)
#define CONN_STORY_MAX 320

enum conn_phase {
	CONN_P_NEW,   /* its engine has not begun with it */
	CONN_P_PAUSE, /* waits to try again */
	CONN_P_LINK,  /* waits for the control link */
	CONN_P_SHAKE, /* the handshake is under way */
	CONN_P_READY, /* posts go through */
	CONN_P_DRAIN, /* closing: operations and calls under way may end */
	CONN_P_BYE,   /* CLOSE sent: waits for the peer's answer */
	CONN_P_BREAK, /* broken, by conn_break(): flush comes next */
	CONN_P_FLUSH, /* QP in ERR: waits for the markers */
	CONN_P_DOWN,  /* no QP; the handle waits to be closed */
	CONN_P_GONE,  /* to be freed */
};

/* What a client remembers so that it can try again. */
struct conn_dial {
	char *target;
	struct sockaddr_storage addrs[CONN_TARGETS_MAX];
	int n, i;
	struct retry retry;
	bool reconnect;
	bool ever_ready;
	uint64_t timeout_ns;
	unsigned retries;
};

struct skein_conn {
	/* hot */
	struct ibv_qp *qp;
	struct skein_engine *eng;
	struct optable ops;
	bool postable;
	uint32_t inline_max;
	struct dev_stats *post_stats; /* the engine's, or the send queue's */
	/* given - taken: how many immediates the peer has receives for. The
	 * owner of the sending side writes taken, the engine's owner given. */
	_Atomic uint32_t imm_taken, imm_given;
	uint32_t recv_head; /* sequence of the next receive completion */
	uint32_t recv_tail;
	uint32_t recv_owed;	      /* credits to give back */
	struct list_node mem_waiting; /* memop.c: they wait for room */
	struct conn_lanes *lanes;     /* NULL: sole, or accepted with one QP */
	uint16_t lane;
	struct polls_entry polls;
	void *modules[CONN_MODULE_MAX];
	/* The one module that it is for. NULL: all that are not sole. */
	const struct conn_module *sole;
	void *sole_arg; /* client */

	struct conn_pool *pool;	  /* of a pooled connection */
	struct conn_vqp *vqp;	  /* then: has its QP; NULL: it has none */
	struct conn_sendq *sendq; /* NULL: only the engine's owner posts */
	struct skein_ctx *ctx;
	struct eng_cq *cq;
	_Atomic(int) state; /* enum skein_conn_state; any thread */
	enum conn_phase phase;
	bool client;
	bool connected;	    /* the QP is, or was, in RTS */
	bool poster_copies; /* dev_caps, as its QP has them */
	bool was_ready;	    /* the QP has been up, and broken() has not run */
	bool index_held;
	bool stuck;	 /* conn_stuck() */
	bool bye_got;	 /* the peer has sent CLOSE */
	bool bye_acked;	 /* ... or has answered our CLOSE */
	bool closing;	 /* the application closes it */
	bool free_self;	 /* no thread waits for its end: the engine frees it */
	bool with_ctx;	 /* skein_ctx_close() closes it; under ctx->lock */
	bool announced;	 /* the application was told of READY */
	bool keyless_up; /* up by a receive that came before READY */
	bool begun;	 /* modules have had ready(), and no broken() yet */
	bool live;	 /* counted in lanes->live */
	bool drained;	 /* ... and in lanes->drained */
	struct numbers_entry number; /* on the link */
	uint16_t index;		     /* in the engine's table */
	uint32_t shard;
	uint32_t psn;
	struct dev_qp_opts opts;
	_Atomic uint64_t patience_ns; /* conn_patience_ns() */

	struct conn_peer *peer;
	struct list_node peer_link;
	struct list_node pending_link;
	struct list_node ctx_link;
	uint64_t deadline_ns; /* of the phase */
	/* In READY: how a request has failed. Not SUCCESS: waits a moment for
	 * news of the peer's death, which would explain it. */
	enum ibv_wc_status suspected;
	/* In READY: the code of the peer's CLOSE, which the end of a request
	 * that is under way may explain; or 0. */
	uint32_t close_code;
	int fail_err;  /* the attempt has failed; conn_service() ends it */
	bool answered; /* ... as a module of the server's will not have it */
	uint64_t fail_hint_ns;
	char fail_text[HANDSHAKE_TEXT_MAX + 1];
	uint64_t drain_until_ns;
	struct handshake *hs;
	/* The device asks the peer's process before the QP can be connected;
	 * `reached` is set by the device's thread. */
	struct dev_reach reach;
	bool reaching;
	atomic_bool reached;
	struct handshake_handle handle; /* server: goes into ACCEPT */
	struct conn_dial *dial;		/* client */
	struct skein_listener *listener;

	/* Markers: the last WR and receive of a QP in ERR; what is flushed. */
	struct conn_op marker, probe;
	bool sq_flushed, rq_flushed;
	uint32_t recv_marker;

	void (*on_state)(void *arg, struct skein_conn *conn,
			 enum skein_conn_state state);
	void *on_state_arg;
	void *data;

	struct engine_call start_call, close_call;
	struct engine_call poke_call; /* posted by other lanes' engines */
	atomic_bool poked;
	struct engine_call wake_call; /* conn_wake() */
	atomic_bool waking;
	atomic_bool started, gone;
	atomic_uint mem_deferred;
	struct list_node finds; /* mem_find.link */

	/* counters.h: as last looked at; what carries it, or -1 */
	uint64_t counted[COUNTERS_OF_CONN];
	int carrier;

	int err;
	char story[CONN_STORY_MAX];
	char name[CONN_ADDR_TEXT_MAX + 32];
	struct optable_slot *slots;
};

/* post.c: a QP of a module's own has failed. The device or the link says
 * soon whether the peer has ended; else it breaks with -ECONNRESET, at the
 * latest after CONN_SUSPECT_NS. */
void conn_qp_failed(struct skein_conn *conn);
/* The peer says that it has broken the connection. False: no request of ours is
 * the reason. True: one that is under way may be; it breaks when one has failed,
 * or all have ended, at the latest after CONN_SUSPECT_NS. */
bool conn_suspect_own(struct skein_conn *conn, uint32_t code);
/* Nothing has explained conn->suspected, or conn->close_code: breaks the
 * connection with it. */
void conn_suspicion_over(struct skein_conn *conn);

/* conn.c */
int conn_new(struct skein_engine *eng, bool client, struct skein_conn **conn);
/* It is pooled; NULL: it is not. */
void conn_pool_set(struct skein_conn *conn, struct conn_pool *pool);
/* Frees conn, which has no QP and no peer any more. */
void conn_free(struct skein_conn *conn);
void conn_set_state(struct skein_conn *conn, enum skein_conn_state state);
/* Sets the error and its line, and logs the line: "cannot connect to X on soft
 * (skein0): Connection refused (is ... ?)". */
void conn_story(struct skein_conn *conn, int err, const char *doing,
		const char *detail);
void conn_set_name(struct skein_conn *conn, const char *addr, uint32_t pid);

/* qp.c: the QP, up to RTS and back */
int conn_qp_make(struct skein_conn *conn);
/* Before conn_qp_connect(): 0, or -EINPROGRESS: conn_reached() is called when it
 * will wait for nobody; or another error. */
int conn_qp_reach(struct skein_conn *conn, const struct handshake_params *p);
int conn_qp_connect(struct skein_conn *conn, const struct handshake_params *p);
void conn_qp_params(struct skein_conn *conn, struct handshake_params *p);
void conn_qp_free(struct skein_conn *conn);
/* Does the process at the other end live? 0; -ENOTCONN: no; -EOPNOTSUPP: the
 * device does not say. */
int conn_qp_probe(struct skein_conn *conn);
/* Begins to flush it. The device may still carry requests out: conn_stuck(). */
int conn_qp_err(struct skein_conn *conn);

/* sections.c: modules and the handshake */
struct conn_sections {
	struct bytes_out out;
	uint8_t buf[HANDSHAKE_MSG_MAX];
};
int conn_sections_offer(struct skein_conn *conn, struct conn_sections *s,
			struct handshake_params *own);
int conn_sections_accept(struct skein_conn *conn, struct conn_sections *s,
			 const struct handshake_params *peer,
			 struct handshake_params *own);
int conn_sections_confirm(struct skein_conn *conn,
			  const struct handshake_params *peer);

/* As conn_break(), but does not count -SKEIN_EPEER as garbage. */
void conn_end(struct skein_conn *conn, int err, const char *detail);

/* open.c and shake.c: attempts, and the handshake of both sides */
void conn_start(struct skein_conn *conn);
void conn_dial_again(struct skein_conn *conn);
void conn_offer(struct skein_conn *conn);
/* Marks the attempt as failed; conn_service() does the rest. */
void conn_fail(struct skein_conn *conn, int err, const char *text,
	       uint64_t hint_ns);
/* The same, and sends the other end REFUSE. */
void conn_give_up(struct skein_conn *conn, int err, const char *text);
/* The attempt is over: pauses for the next one, or gives up for good. */
void conn_attempt_next(struct skein_conn *conn, int err, const char *detail,
		       uint64_t hint_ns);
/* The attempt has failed: undoes it, then tries the next address, or ends as
 * conn_attempt_next(). */
void conn_attempt_failed(struct skein_conn *conn, int err, const char *detail,
			 uint64_t hint_ns);
/* The server has an offer: accepts it, refuses it, or hands it to the engine of
 * its shard. */
void conn_accept_decide(struct skein_conn *conn);
/* Either side: a handshake message came for conn. */
void conn_shake_input(struct skein_conn *conn, const uint8_t *msg, size_t len);
/* Either side: goes on after conn_qp_reach(). */
void conn_reached(struct skein_conn *conn);
/* The link is up: connections that waited for it make their offers. */
void conn_waiters_offer(struct conn_peer *peer);
/* The first message of a connection that the peer opens. */
void conn_shake_new(struct conn_peer *peer, uint16_t number, const uint8_t *msg,
		    size_t len);
/* The QP is up on both sides, as far as this side can know. */
void conn_up(struct skein_conn *conn);
/* Modules may use it: calls their ready(). False when it broke meanwhile. */
bool conn_begin(struct skein_conn *conn);
/* Then the application may: calls on_conn() or on_state(). */
void conn_tell_ready(struct skein_conn *conn);
struct handshake *conn_handshake_new(struct skein_conn *conn, bool client);

/* down.c */
void conn_service(struct skein_conn *conn, uint64_t now_ns);
void conn_close_start(struct skein_conn *conn, uint64_t timeout_ns);
/* Closes all connections (pooled: the pooled ones) that the application has left
 * open, at the same time, each as skein_conn_close() does. */
void conn_close_all(struct skein_ctx *ctx, bool pooled, uint64_t timeout_ns);
void conn_peer_lost(struct skein_conn *conn, int err, const char *why);
void conn_close_frame(struct skein_conn *conn, uint32_t code);
/* Breaks it, for the peer says this code. */
void conn_break_by_code(struct skein_conn *conn, uint32_t code);
void conn_close_acked(struct skein_conn *conn);
/* When conn_service() has to run again, even if nothing happens. */
uint64_t conn_next_deadline(const struct skein_conn *conn);
/* Undoes an attempt that never became ready. */
void conn_attempt_undo(struct skein_conn *conn);

/* post.c: WRs that modules and threads may post now. */
static inline unsigned conn_post_room(const struct skein_conn *conn)
{
	uint32_t room = optable_room(&conn->ops);

	return room > CONN_SQ_OWN ? room - CONN_SQ_OWN : 0;
}
void conn_complete(struct skein_engine *eng, const struct ibv_wc *wc);
/* Calls done() of a chain's operations, the oldest first; op may be NULL. */
void conn_chain_end(struct conn_op *op, enum ibv_wc_status status);
int conn_recvs_post(struct skein_conn *conn, unsigned n);
/* A pooled connection: an immediate has come. */
void conn_imm(struct skein_conn *conn, uint32_t imm);
int conn_post_own(struct skein_conn *conn, struct ibv_send_wr *wr,
		  struct conn_op *op);
void conn_return_credits(struct skein_conn *conn);
void conn_probe(struct skein_conn *conn);

/* memop.c */
void conn_mem_room(struct skein_conn *conn);

#endif
