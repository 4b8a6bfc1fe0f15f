/* SPDX-License-Identifier: MIT */
/*
 * client.h - the calling end: gathers calls into messages, finds responses.
 *
 * Engine without I/O: bytes go through the port, time comes in with poll().
 * The request ring's bookkeeping is here (req_*), the response space's too
 * (resp_*), for the caller owns both reservations: docs/protocol/rpc.md,
 * sections 1, 3, 4 and 7.
 *
 * It has two sides, which share no line. The *sending side* (client_send.c)
 * builds messages; the *owner's* (client.c) finds responses and ends calls.
 * The sending side belongs to the thread that leads the lane's combining queue or
 * holds it (docs/handles.md), the other to the engine's owner.
 *
 *	field			written by	read by the other side
 *	rx.req_head		owner, release	sender, acquire: when it lacks
 *	rx.resp_head			"	room, into its own copy. What
 *	rx.calls.head			"	is before it is used anew.
 *	published.sent		sender, release	owner, acquire: the slots before
 *						it are the owner's
 *	published.valid, req_valid	sender, release	owner, acquire: what a response
 *						may speak of
 *	published.full		both, relaxed	the owner READs Head
 *	published.look		sender, others	the owner of a lane, in each
 *						round: see rpc_client_want_look()
 *
 * Why sent and valid are two: valid is published before the message is posted,
 * so that no response can be older than what it answers, and goes back when
 * the post fails; sent is published when it was posted, and never goes back,
 * so that a call is ended by the owner or refused by the sender, never both. A
 * response to a call between the two waits for the sender's next store.
 *
 * Invariants: req_head <= req_tail; the open message begins at req_tail and is
 * not counted in it. resp_head is the position of reservation `used`, the
 * oldest without an answer; resp_tail the one that the next call gets. Answers
 * may come in any order, each into the oldest reservation (section 4), so head
 * <= used: a call that is answered out of turn stays in the window until those
 * before it are, or have left it (park.h). Every call ends by done() exactly
 * once. On a lane no call is open when nobody leads.
 *
 * Thread rule: as above.
 */
#ifndef SKEIN_RPC_CLIENT_H
#define SKEIN_RPC_CLIENT_H

#include <stdalign.h>

#include "rpc/large.h"
#include "rpc/park.h"
#include "rpc/port.h"
#include "rpc/rfetch.h"

/* The sending side. */
struct rpc_client_tx {
	alignas(RPC_LINE) struct rpc_port *port;
	uint8_t *open;	   /* the open message; built from req_tail on */
	uint32_t open_len; /* without tail */
	/* bytes that it may have, tail included, by what is known of Head */
	uint32_t open_max;
	uint32_t open_count;
	uint32_t resp_mask; /* S - 1 */
	uint64_t resp_tail;
	uint64_t resp_head; /* as it was when there was no room */

	struct rpc_call *slots;
	uint64_t mask; /* slots - 1 */
	uint64_t tail; /* the next call's number */
	uint64_t head; /* as resp_head */
	uint64_t req_tail;
	uint64_t req_head;   /* as resp_head */
	uint32_t inline_max; /* the largest request payload in a message */
	uint32_t resp_inline_max;
	uint32_t fetch_below; /* results that are fetched are smaller */
	uint64_t posted_resp; /* the reservation behind what was posted */
	/* of leaders: calls that left alone, a message each; the others; bytes
	 * of all */
	uint64_t alone;
	uint64_t calls, messages, bytes;
	bool open_alone; /* the open message takes no further pair */
};

/* What it publishes. */
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
	bool owes_head;	    /* a large response was consumed, Head not told */
	bool in_active;	    /* a message is being consumed */
	bool head_reading;
	/* READs of Head: how far it was when the last was posted; the next is not
	 * posted before head_ns, which is head_gap_ns behind that. */
	uint64_t head_was, head_ns, head_gap_ns;
	/* Of a lane: the owner knows of more to do than to look for answers. */
	bool look;
	uint64_t used; /* reservations that hold an answer; resp_head: the next */
	struct rpc_calls calls;

	_Atomic(uint64_t) req_head;
	uint64_t req_head_seen; /* the last Head in a response */
	struct rpc_msg_in in;	/* the response message being consumed */
	uint64_t in_lines;	/* reserved by its calls so far */
	uint32_t in_lap_left;	/* lines from its start to the lap's end */
	int broken;		/* 0, or why */

	struct rpc_park park; /* calls that were overtaken */
	struct rpc_pull pull; /* a large response on its way in */
	uint32_t pull_seq;    /* ... and its call */
	struct rpc_rfetch rf;
	struct rpc_buf *large, **large_end; /* of requests, oldest first */
	struct rpc_read head_read;
	/* During done() of a fetched response: its memory. Who sets it to NULL
	 * has taken it. */
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

/* The flag of a request with such a result. Space is reserved for all of it, or
 * it is longer than any that is fetched. */
static inline uint16_t rpc_client_return(const struct rpc_client_tx *tx,
					 size_t resp_max)
{
	return resp_max < tx->fetch_below ? RPC_REQ_FETCH : 0;
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

/* There is room: writes the pair of call n, whose reservation is at resp, to
 * `at`, and enters it into the window. size: of what stands in the message. */
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

/* The same for the next one, behind the open message. */
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

/* Is there room, as far as the sending side knows, for all that a call needs? */
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

/* --- by the thread that leads or holds the queue ------------------------ */

/* One more request for the open message, its payload inline: 0, or -EAGAIN
 * when there is no room. */
int rpc_client_add(struct rpc_client *c, const struct rpc_client_req *r);
/* The same, but the payload is written to *place by whoever has it, before the
 * message is closed. */
int rpc_client_add_place(struct rpc_client *c, const struct rpc_client_req *r,
			 void **place);
/* Closes the open message (there is one): its place and length. */
void rpc_client_seal(struct rpc_client *c, uint64_t *off, uint32_t *len);
/* What was sealed was posted; or was not (rc): every add() since is undone. */
void rpc_client_posted(struct rpc_client *c, int rc);
/* A request that goes by memory of its own, by the owner, who holds: sends it at
 * once, or an error: -EAGAIN, -ENOMEM, or the port's. */
int rpc_client_add_large(struct rpc_client *c, const struct rpc_client_req *r);

/* The owner: when a READ of Head is due, for threads that lack room. */
static inline uint64_t rpc_client_head_next(const struct rpc_client *c)
{
	if (c->rx.head_reading ||
	    !atomic_load_explicit(&c->published.full, memory_order_relaxed))
		return ENV_NEVER;
	return c->rx.head_ns;
}

/* The owner, who does not hold: is there something that only it may send? */
static inline bool rpc_client_wants_send(struct rpc_client *c)
{
	return c->rx.owes_head || rpc_pull_wants_post(&c->rx.pull) ||
	       rpc_rfetch_wants_send(&c->rx.rf) ||
	       rpc_client_head_next(c) <= c->rx.calls.now_ns;
}
/* The owner, who holds: sends it. What moved, or an error of the port. */
int rpc_client_send_own(struct rpc_client *c);

/*
 * A lane: there is something for its owner besides answers, which looks at this
 * one word in each round and not at all that may be. Whoever leaves a reason
 * writes that first.
 *
 * Nothing is lost: the owner takes the word by an exchange (acquire) before it
 * looks at the reasons, so it sees those of everybody who was before it in the
 * order of the word, and who comes behind it leaves the word set. A
 * read-modify-write here too, so that the exchange synchronizes with all of
 * them and not with the last alone. What an owner leaves to itself, and what it
 * could not do yet, is rx.look.
 */
static inline void rpc_client_want_look(struct rpc_client *c)
{
	struct rpc_port *port = c->tx.port;

	/* Sequentially consistent, as is the look behind it:
	 * rpc_lane_client_rest() */
	atomic_exchange(&c->published.look, true);
	if (__builtin_expect(rpc_event_rests(&port->event), 0))
		port->ops->wake(port);
}

/* What leaders have sent; any thread. */
static inline uint64_t rpc_client_messages(const struct rpc_client *c)
{
	return __atomic_load_n(&c->tx.alone, __ATOMIC_RELAXED) +
	       __atomic_load_n(&c->tx.messages, __ATOMIC_RELAXED);
}

/* How many calls have been posted: the owner looks at those before. */
static inline uint64_t rpc_client_end(struct rpc_client *c)
{
	/* Acquire pairs with the release behind the post: the slots are as
	 * the sender has filled them. */
	return atomic_load_explicit(&c->published.sent, memory_order_acquire);
}

/* --- both: by the engine's owner ---------------------------------------- */

/* A round: responses and deadlines. Returns what moved, or a negative error: the
 * connection must be broken. */
int rpc_client_poll(struct rpc_client *c, uint64_t now_ns);

/* Is a response there, or is something to be sent, or has a call not been seen
 * yet by a round? For the look before a sleep. */
bool rpc_client_has_work(struct rpc_client *c);

static inline bool rpc_client_busy(struct rpc_client *c)
{
	return rpc_calls_head(&c->rx.calls) != rpc_client_end(c);
}

/* client_send.c, for client.c */
void rpc_client_tx_init(struct rpc_client *c, struct rpc_port *port,
			struct rpc_call *slots, uint64_t window);
/* Holding: a message of count 0 with these flags: 1, 0 not now, or an error. */
int rpc_client_send_bare(struct rpc_client *c, uint16_t flags);
/* Is there room for it? */
bool rpc_client_bare_fits(struct rpc_client *c);
/* As if that much had gone through both rings: for tests. */
void rpc_client_start_at(struct rpc_client *c, uint64_t pos);

/* Ends the oldest call that is wanted with -ECANCELED; -ENOENT. */
int rpc_client_cancel(struct rpc_client *c, const struct rpc_wanted *wanted);

/* No port operation is under way any more, and on a lane nobody sends any
 * more: ends every call. */
void rpc_client_break(struct rpc_client *c, int err);

#endif
