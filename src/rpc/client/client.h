/* SPDX-License-Identifier: MIT */
/*
 * client.h - the calling end: gathers calls into messages, finds responses. The
 * engine does no I/O: bytes go through the port, time comes in with poll(). The
 * calling end owns both reservations, so it keeps the books of the request ring
 * (req_*) and of the response space (resp_*): docs/protocol/rpc.md, sections 1,
 * 3, 4 and 7.
 *
 * It has two sides, which share no cache line. The *sending side*
 * (send.c) builds messages. It belongs to the thread that leads the
 * lane's combiner, or that holds the send queue (docs/handles.md). The *owner's
 * side* (client.c) finds responses and ends calls. It belongs to the engine's
 * owner.
 *
 *	field		written by	read by the other side
 *	rx.req_head	owner, release	sender, acquire: copied when it lacks
 *	rx.resp_head		"	room. It uses no place anew before
 *	rx.calls.head		"	that.
 *	published:
 *	 sent		sender, release	owner, acquire: the slots before it
 *					are the owner's
 *	 valid,		sender, release	owner, acquire: what a response may
 *	 req_valid			name
 *	 full		both, relaxed	the owner READs Head
 *	 look		sender, others	the owner of a lane, in each round:
 *					see rpc_client_want_look()
 *
 * `sent` and `valid` are two. The sender publishes `valid` before it posts the
 * message, so no response names a call beyond it, and takes it back when the
 * post fails. The sender publishes `sent` after the post, and never takes it
 * back: so the owner ends a call, or the sender refuses it, never both. A
 * response to a call between the two waits for the sender's next store.
 *
 * Invariants: req_head <= req_tail; the open message begins at req_tail and is
 * not counted in it. resp_head is the position of reservation `used`, the
 * oldest one without an answer; resp_tail is the position that the next call
 * gets. Answers may come in any order, each into the oldest reservation
 * (section 4), so head <= used: a call that is answered out of turn stays in
 * the window until the calls before it are answered, or are parked (park.h).
 * Every call ends by done() exactly once. No call is in the open message while
 * no thread leads.
 *
 * Thread rule: as above.
 */
#ifndef SKEIN_RPC_CLIENT_CLIENT_H
#define SKEIN_RPC_CLIENT_CLIENT_H

#include <stdalign.h>

#include "rpc/large.h"
#include "rpc/client/park.h"
#include "rpc/port.h"
#include "rpc/client/rfetch.h"

/* The sending side. */
struct rpc_client_tx {
	alignas(RPC_LINE) struct rpc_port *port;
	uint8_t *open;	   /* the open message; built from req_tail on */
	uint32_t open_len; /* without tail */
	/* most bytes that it may have, tail included, by the Head known here */
	uint32_t open_max;
	uint32_t open_count;
	uint32_t resp_mask; /* S - 1 */
	uint64_t resp_tail;
	uint64_t resp_head; /* as read when room was last short */

	struct rpc_call *slots;
	uint64_t mask; /* slots - 1 */
	uint64_t tail; /* the next call's number */
	uint64_t head; /* as resp_head */
	uint64_t req_tail;
	uint64_t req_head;   /* as resp_head */
	uint32_t inline_max; /* the largest request payload in a message */
	uint32_t resp_inline_max;
	/* rpc_client_return_any() judges calls with smaller results. 0: all is
	 * replied. */
	uint32_t returns_below;
	uint32_t fetch_ids; /* by RPC_MODE_BIT() */
	uint8_t *mode_of;   /* rpc_modes.of; NULL: nobody decides */
	uint16_t asks; /* RPC_REQ_TIME or 0: of one call in RPC_TIME_ASKS */
	uint64_t posted_resp; /* end of the last reservation posted */
	/* counts of leaders: calls sent alone, one a message; the other calls
	 * and their messages; bytes of all messages */
	uint64_t alone;
	uint64_t calls, messages, bytes;
	bool open_alone; /* it takes no further pair */
};

/* What the sending side publishes. */
struct rpc_client_published {
	alignas(RPC_LINE) _Atomic(uint64_t) sent;
	_Atomic(uint64_t) valid;
	_Atomic(uint64_t) req_valid; /* the position behind the last message */
	atomic_bool full;
	atomic_bool look; /* rpc_client_want_look() */
};

/* The owner's side. */
struct rpc_client_rx {
	alignas(RPC_LINE) struct rpc_port *port;
	const uint8_t *resp_base;
	uint64_t resp_canary; /* of resp_head */
	_Atomic(uint64_t) resp_head;
	uint32_t resp_mask; /* S - 1 */
	bool owes_head;	    /* large response consumed, Head not yet sent */
	bool in_active;	    /* a message is being consumed */
	bool head_reading;
	/* READs of Head: its value when the last READ was posted. The next READ
	 * is not posted before head_ns, which is head_gap_ns later. */
	uint64_t head_was, head_ns, head_gap_ns;
	/* The owner has work besides looking for responses. */
	bool look;
	uint64_t used; /* count of reservations used; resp_head: the next */
	struct rpc_calls calls;

	_Atomic(uint64_t) req_head;
	uint64_t req_head_seen; /* the last Head in a response */
	struct rpc_msg_in in;	/* the response message being consumed */
	uint64_t in_lines;	/* reserved by its calls so far */
	uint32_t in_lap_left;	/* lines from its start to the lap's end */
	int broken;		/* 0, or why */

	struct rpc_park park; /* calls that were overtaken */
	struct rpc_pull pull; /* a large response on its way in */
	uint32_t pull_seq;    /* and its call */
	struct rpc_rfetch rf;
	struct rpc_buf *large, **large_end; /* of requests, oldest first */
	struct rpc_read head_read;
	/* The memory of a fetched response, while its done() runs. A callee
	 * that sets it to NULL has taken the memory. */
	struct rpc_buf *result_buf;
};

struct rpc_client {
	struct rpc_client_tx tx;
	struct rpc_client_published published;
	struct rpc_client_rx rx;
};

/* slots: the window's, a power of two. */
void rpc_client_init(struct rpc_client *c, struct rpc_port *port,
		     struct rpc_call *slots, uint64_t window);

/* How many lines of response space a result of at most resp_max takes. */
static inline uint32_t rpc_client_resp_lines(const struct rpc_client *c,
					     size_t resp_max)
{
	uint32_t n = c->tx.resp_inline_max;

	if (resp_max < n)
		n = (uint32_t)resp_max;
	n = (uint32_t)RPC_LINES(RPC_RESP_ROOM + RPC_PAD8(n));
	return n < RPC_RESP_LINES_MIN ? RPC_RESP_LINES_MIN : n;
}

/* The flags of the next call, with this id and a result of at most resp_max. The
 * reservation of a fetched one holds the whole result, or the result is longer
 * than any that is fetched. */
uint16_t rpc_client_return_any(struct rpc_client_tx *tx, uint16_t id,
			       size_t resp_max);
static inline uint16_t rpc_client_return(struct rpc_client_tx *tx, uint16_t id,
					 size_t resp_max)
{
	return __builtin_expect(resp_max < tx->returns_below, 0)
		       ? rpc_client_return_any(tx, id, resp_max)
		       : 0;
}

/* One call, as it is made. */
struct rpc_client_req {
	const void *payload;
	size_t len, resp_max;
	uint64_t timeout_ns;
	skein_rpc_done_fn *done;
	void *arg;
	uint16_t id;
	uint16_t thread;
};

/* Writes the pair of call n to `at`, and enters the call into the window. There
 * is room for it. resp: the position of its reservation. size: bytes of the
 * pair's payload in the message. */
static inline void rpc_client_put_pair(struct rpc_client_tx *tx, uint64_t n,
				       uint64_t resp, uint8_t *at, uint16_t id,
				       uint16_t thread, const void *payload,
				       uint32_t size, uint16_t flags,
				       size_t resp_max, uint32_t lines,
				       uint64_t timeout_ns,
				       skein_rpc_done_fn *done, void *arg)
{
	struct rpc_call *call = &tx->slots[n & tx->mask];

	call->done = done;
	call->arg = arg;
	call->deadline_ns = timeout_ns;
	call->resp_max = (uint32_t)resp_max;
	call->lines =
		(uint16_t)(lines | (flags & RPC_REQ_FETCH) *
					   (RPC_CALL_FETCH / RPC_REQ_FETCH));
	call->thread = thread;
	rpc_msg_put_word(at,
			 size | (uint64_t)id << 32 | (uint64_t)thread << 48);
	rpc_msg_put_word(at + 8, (uint32_t)n | (uint64_t)resp_max << 32);
	rpc_msg_put_word(at + 16, (uint32_t)resp | (uint64_t)lines << 32 |
					  (uint64_t)flags << 48);
	rpc_copy_pad(at + sizeof(struct rpc_req_meta), payload, size);
}

/* The same for the next call, at the end of the open message. */
static inline void rpc_client_add_pair(struct rpc_client_tx *tx, uint16_t id,
				       uint16_t thread, const void *payload,
				       uint32_t size, uint16_t flags,
				       size_t resp_max, uint32_t lines,
				       uint64_t timeout_ns,
				       skein_rpc_done_fn *done, void *arg)
{
	rpc_client_put_pair(tx, tx->tail, tx->resp_tail,
			    tx->open + tx->open_len, id, thread, payload, size,
			    flags, resp_max, lines, timeout_ns, done, arg);
	tx->tail++;
	tx->open_len += (uint32_t)sizeof(struct rpc_req_meta) + RPC_PAD8(size);
	tx->open_count++;
	tx->resp_tail = rpc_pos_next(tx->resp_mask + 1, tx->resp_tail, lines);
}

/* As far as the sending side knows: is there room for all that a call needs? */
static inline bool rpc_client_fits(const struct rpc_client_tx *tx, size_t len,
				   uint32_t lines)
{
	return tx->open_len + sizeof(struct rpc_req_meta) + RPC_PAD8(len) +
			       RPC_TAIL_LEN <=
		       tx->open_max &&
	       tx->resp_tail + lines - tx->resp_head <=
		       (uint64_t)tx->resp_mask + 1 &&
	       tx->tail - tx->head <= tx->mask;
}

/* --- by the thread that leads the combiner or holds the send queue ------- */

/* Adds a request, with its payload, to the open message: 0, or -EAGAIN when
 * there is no room. */
int rpc_client_add(struct rpc_client *c, const struct rpc_client_req *r);
/* The same without the payload: the calling thread writes it to *place before
 * the message is closed. */
int rpc_client_add_place(struct rpc_client *c, const struct rpc_client_req *r,
			 void **place);
/* Closes the open message (there is one): its place and length. */
void rpc_client_seal(struct rpc_client *c, uint64_t *off, uint32_t *len);
/* The sealed message was posted (rc 0), or not: then every add() since the last
 * message is undone. */
void rpc_client_posted(struct rpc_client *c, int rc);
/* Owner, holding the send queue: sends a request that has memory of its own at
 * once. 0, or an error: -EAGAIN, -ENOMEM, or the port's. */
int rpc_client_add_large(struct rpc_client *c, const struct rpc_client_req *r);

/* Owner: when a READ of Head is due for threads that lack room. */
static inline uint64_t rpc_client_head_next(const struct rpc_client *c)
{
	if (c->rx.head_reading ||
	    !atomic_load_explicit(&c->published.full, memory_order_relaxed))
		return ENV_NEVER;
	return c->rx.head_ns;
}

/* Owner, not holding: is there something that only the owner may send? */
static inline bool rpc_client_wants_send(struct rpc_client *c)
{
	return c->rx.owes_head || rpc_pull_wants_post(&c->rx.pull) ||
	       rpc_rfetch_wants_send(&c->rx.rf) ||
	       rpc_client_head_next(c) <= c->rx.calls.now_ns;
}
/* Owner, holding: sends that. What moved, or an error of the port. */
int rpc_client_send_own(struct rpc_client *c);

/*
 * The owner of a lane has work besides responses. In each round it reads this
 * one word, and none of the reasons. A thread that leaves work writes the
 * reason first, then sets this word.
 *
 * Nothing is lost: the owner takes the word by an exchange (acquire) before it
 * looks at the reasons. So it sees the reasons of all threads that set the word
 * before. A thread that sets the word later leaves it set for the next round.
 * The store here is a read-modify-write too: so the exchange synchronizes with
 * all of these threads, and not with the last one alone. Work that an owner
 * leaves to itself, or could not do yet, is in rx.look.
 */
static inline void rpc_client_want_look(struct rpc_client *c)
{
	struct rpc_port *port = c->tx.port;

	/* Sequentially consistent, like the load of `rests` after it: see
	 * rpc_lane_client_rest(). */
	atomic_exchange(&c->published.look, true);
	if (__builtin_expect(rpc_event_rests(&port->event), 0))
		port->ops->wake(port);
}

/* Messages that leaders have sent. Any thread. */
static inline uint64_t rpc_client_messages(const struct rpc_client *c)
{
	return __atomic_load_n(&c->tx.alone, __ATOMIC_RELAXED) +
	       __atomic_load_n(&c->tx.messages, __ATOMIC_RELAXED);
}

/* How many calls have been posted: the owner looks at calls before this
 * number. */
static inline uint64_t rpc_client_end(struct rpc_client *c)
{
	/* Acquire pairs with the release in message_sent(): the owner sees the
	 * slots as the sender has filled them. */
	return atomic_load_explicit(&c->published.sent, memory_order_acquire);
}

/* --- by the engine's owner ------------------------------------------------ */

/* A round: responses and deadlines. Returns what moved, or a negative error:
 * the caller breaks the connection. */
int rpc_client_poll(struct rpc_client *c, uint64_t now_ns);

/* Is a response there, or something to send, or a call that no round has seen
 * yet? For the look before a sleep. */
bool rpc_client_has_work(struct rpc_client *c);

static inline bool rpc_client_busy(struct rpc_client *c)
{
	return rpc_calls_head(&c->rx.calls) != rpc_client_end(c);
}

/* send.c, for client.c */
void rpc_client_tx_init(struct rpc_client *c, struct rpc_port *port,
			struct rpc_call *slots, uint64_t window);
/* Holding: sends a message of count 0 with these flags: 1, 0 not now, or an
 * error. */
int rpc_client_send_bare(struct rpc_client *c, uint16_t flags);
/* Is there room for such a message? */
bool rpc_client_bare_fits(struct rpc_client *c);
/* For tests: both rings start as if they had carried messages up to pos. */
void rpc_client_start_at(struct rpc_client *c, uint64_t pos);

/* Ends the oldest call that `wanted` matches with -ECANCELED. -ENOENT: none. */
int rpc_client_cancel(struct rpc_client *c, const struct rpc_wanted *wanted);

/* Ends every call. No port operation is under way any more, and no thread
 * sends. */
void rpc_client_break(struct rpc_client *c, int err);

#endif
