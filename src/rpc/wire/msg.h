/* SPDX-License-Identifier: MIT */
/*
 * msg.h - the codec of messages: docs/protocol/rpc.md, sections 2 to 6.
 *
 * Pure. The decoder reads memory that the peer may still be writing: every
 * word of a header or metadata is loaded once and checked on the copy, so what
 * was checked is what is used. Nothing is read outside [at, at + room).
 */
#ifndef SKEIN_RPC_WIRE_MSG_H
#define SKEIN_RPC_WIRE_MSG_H

#include <string.h>

#include "base/assert.h"
#include "rpc/wire/layout.h"
#include <skein/error.h>
#include <skein/rpc.h>

/* How the tail of a direction is made: section 2. */
enum rpc_tail {
	RPC_TAIL_CANARY,
	RPC_TAIL_CHECKSUM,
};

/* A message that has arrived, on its way through the decoder. */
struct rpc_msg_in {
	const uint8_t *at;
	uint32_t len;
	uint32_t pos;  /* of the next pair */
	uint32_t left; /* pairs */
	uint32_t head;
	uint16_t count;
	uint16_t flags; /* of the header */
};

/* What the receiver of requests checks them against. */
struct rpc_req_limits {
	struct rpc_geom geom;
	uint64_t resp_pos; /* where the next reservation must be */
};

/* The XXH3-64 of the message before its tail. */
uint64_t rpc_msg_checksum(const void *at, uint32_t len, uint64_t canary);

static inline uint64_t rpc_msg_word(const void *at)
{
	/* Relaxed: the tail gives the order. Atomic, so that it is loaded once,
	 * whatever a hostile peer writes meanwhile. */
	return __atomic_load_n((const uint64_t *)at, __ATOMIC_RELAXED);
}

/* The whole message is there; w0: its first word. 1, or -SKEIN_EPEER for a
 * header that makes no sense. */
static inline int rpc_msg_begin(struct rpc_msg_in *in, const void *at,
				uint64_t w0)
{
	if (__builtin_expect(w0 >> 48 & ~(uint64_t)RPC_HDR_RECALL, 0))
		return -SKEIN_EPEER; /* flags */
	in->flags = (uint16_t)(w0 >> 48);
	in->at = at;
	in->len = (uint32_t)w0;
	in->pos = sizeof(struct rpc_hdr);
	in->left = in->count = (uint16_t)(w0 >> 32);
	in->head = (uint32_t)rpc_msg_word((const uint8_t *)at +
					  offsetof(struct rpc_hdr, head));
	return 1;
}

void rpc_msg_fetch_lines(const void *at, uint32_t len);

/* The head's canary was seen, and the tail is a checksum: as rpc_msg_poll(). */
int rpc_msg_check_sum(struct rpc_msg_in *in, const void *at, uint32_t room,
		      uint64_t canary);

/*
 * Looks for the message with this canary at `at`, where at most room bytes may
 * be its own: 1 when the whole message is there, 0 when not yet, -SKEIN_EPEER
 * for a header that makes no sense. The hot path of pollers: one load when
 * nothing is there.
 */
static inline int rpc_msg_poll(struct rpc_msg_in *in, const void *at,
			       uint32_t room, uint64_t canary,
			       enum rpc_tail tail)
{
	const struct rpc_hdr *hdr = at;
	uint64_t w0;
	uint32_t len;

	/* Acquire pairs with the device, which makes the bytes of a WRITE
	 * visible in ascending order: a thread that sees the canary also sees
	 * len, before it. Without it an old lap's len could be read. */
	if (__builtin_expect(__atomic_load_n(&hdr->canary, __ATOMIC_ACQUIRE) !=
				     canary,
			     1))
		return 0;
	if (__builtin_expect(tail != RPC_TAIL_CANARY, 0))
		return rpc_msg_check_sum(in, at, room, canary);
	w0 = rpc_msg_word(at);
	len = (uint32_t)w0;
	if (__builtin_expect(len < RPC_MSG_MIN || len > room || len % 8, 0))
		return -SKEIN_EPEER;
	if (__builtin_expect(len > 2 * RPC_LINE, 0))
		rpc_msg_fetch_lines(at, len);
	/* Acquire pairs with the device's release of the last 8 bytes of a
	 * WRITE. Without it the body could be read before it was written. */
	if (__atomic_load_n((const uint64_t *)((const uint8_t *)at + len -
					       RPC_TAIL_LEN),
			    __ATOMIC_ACQUIRE) != canary)
		return 0;
	return rpc_msg_begin(in, at, w0);
}

/* The next pair, or -SKEIN_EPEER. meta is a copy; *payload points into the
 * message. To be called at most in->left times. */
int rpc_msg_next_req_any(struct rpc_msg_in *in, struct rpc_req_limits *limits,
			 struct rpc_req_meta *meta, const void **payload);
/* max: the caller's resp_max; seq, thread: the call's. */
int rpc_msg_next_resp_any(struct rpc_msg_in *in, uint32_t resp_max,
			  uint32_t seq, uint16_t thread,
			  struct rpc_resp_meta *meta, const void **payload);

/* Masks of flags and the low word, in the third word of a request and the
 * second of a response: one comparison checks both. */
#define RPC_FLAGS_AND_LOW 0xffff0000ffffffffu
/* The same, but for the flag of a fetched request. */
#define RPC_PLAIN_AND_LOW 0xfffb0000ffffffffu

/* Metadata are loaded and stored by whole words: a load of another width than
 * the store waits for the store buffer. */
static inline void rpc_msg_put_word(void *at, uint64_t word)
{
	memcpy(at, &word, sizeof(word));
}

/* rpc_msg_next_req_any() with the common case first: a request in order,
 * without flags or with that of a fetched one. rpc_msg_next_req_any() judges
 * all others. The caller judges whether it may be fetched. */
static inline int rpc_msg_next_req(struct rpc_msg_in *in,
				   struct rpc_req_limits *limits,
				   struct rpc_req_meta *meta,
				   const void **payload)
{
	uint64_t pos = limits->resp_pos, w0, w1, w2, pad, room;
	const uint8_t *p = in->at + in->pos;
	uint8_t *to = (void *)meta;
	uint32_t lines;

	room = (uint64_t)in->len - RPC_TAIL_LEN - in->pos;
	if (__builtin_expect(room < sizeof(*meta), 0))
		return -SKEIN_EPEER;
	w0 = rpc_msg_word(p);
	w1 = rpc_msg_word(p + 8);
	w2 = rpc_msg_word(p + 16);
	pad = ((w0 & UINT32_MAX) + 7) & ~7ull;
	lines = (uint16_t)(w2 >> 32);
	if (__builtin_expect((w2 & RPC_PLAIN_AND_LOW) != (uint32_t)pos ||
				     pad > room - sizeof(*meta) ||
				     lines - RPC_RESP_LINES_MIN >
					     limits->geom.spill -
						     RPC_RESP_LINES_MIN,
			     0))
		return rpc_msg_next_req_any(in, limits, meta, payload);
	limits->resp_pos = rpc_pos_next(limits->geom.resp_lines, pos, lines);
	in->pos += (uint32_t)(sizeof(*meta) + pad);
	in->left--;
	rpc_msg_put_word(to, w0);
	rpc_msg_put_word(to + 8, w1);
	rpc_msg_put_word(to + 16, w2);
	*payload = p + sizeof(*meta);
	return 0;
}

/* The same for responses. True: a plain one, without flags and status, that
 * answers this call. False: nothing was taken. */
static inline bool rpc_msg_next_resp(struct rpc_msg_in *in, uint32_t resp_max,
				     uint32_t seq, uint16_t thread,
				     struct rpc_resp_meta *meta,
				     const void **payload)
{
	const uint8_t *p = in->at + in->pos;
	uint64_t w0, w1, size, pad, room;
	uint8_t *to = (void *)meta;

	room = (uint64_t)in->len - RPC_TAIL_LEN - in->pos;
	if (__builtin_expect(room < sizeof(*meta), 0))
		return false;
	w0 = rpc_msg_word(p);
	w1 = rpc_msg_word(p + 8);
	/* status and thread are in the upper half: a size is never so large */
	size = w0 - ((uint64_t)thread << 48);
	pad = (size + 7) & ~7ull;
	if (__builtin_expect((w1 & RPC_FLAGS_AND_LOW) != seq ||
				     size > resp_max ||
				     pad > room - sizeof(*meta),
			     0))
		return false;
	in->pos += (uint32_t)(sizeof(*meta) + pad);
	in->left--;
	rpc_msg_put_word(to, w0);
	rpc_msg_put_word(to + 8, w1);
	*payload = p + sizeof(*meta);
	return true;
}

/* The call that the next pair of a response answers; -SKEIN_EPEER when there is
 * no room for a pair. */
static inline int rpc_msg_peek_seq(const struct rpc_msg_in *in, uint32_t *seq)
{
	if (in->pos + sizeof(struct rpc_resp_meta) + RPC_TAIL_LEN > in->len)
		return -SKEIN_EPEER;
	*seq = (uint32_t)rpc_msg_word(in->at + in->pos +
				      offsetof(struct rpc_resp_meta, seq));
	return 0;
}

/* After the last pair: 0, or -SKEIN_EPEER when bytes are left over. */
static inline int rpc_msg_end(const struct rpc_msg_in *in)
{
	return !in->left && in->pos == in->len - RPC_TAIL_LEN ? 0
							      : -SKEIN_EPEER;
}

/* A descriptor of a large payload, copied; -SKEIN_EPEER when it is longer than
 * len_max or empty. */
int rpc_msg_large(const void *payload, uint64_t len_max,
		  struct rpc_large *large);

void rpc_msg_seal_sum(void *at, uint32_t len, uint64_t canary);
/* The XXH3-64 of what follows the canary, up to the tail. */
uint64_t rpc_msg_checksum_body(const void *at, uint32_t len, uint64_t seed);

/* The tail of a fetched message; w0: its first word. Section 4. */
static inline uint64_t rpc_msg_fetched_tail(const void *at, uint32_t len,
					    uint64_t w0, uint64_t canary,
					    bool sums)
{
	return sums ? rpc_msg_checksum_body(at, len, canary ^ w0)
		    : canary ^ w0 * 0x9e3779b97f4a7c15u;
}

/* Closes a message that the caller READs, perhaps while a READ is under way:
 * the canary is written last. */
static inline void rpc_msg_seal_fetched(void *at, uint32_t len, uint16_t count,
					uint64_t head, uint64_t canary,
					bool sums)
{
	uint64_t w0 = len | count * (UINT64_C(1) << 32), tail;
	uint8_t *to = at;

	rpc_msg_put_word(to + offsetof(struct rpc_hdr, head), head);
	tail = rpc_msg_fetched_tail(at, len, w0, canary, sums);
	rpc_msg_put_word(to + len - RPC_TAIL_LEN, tail);
	rpc_msg_put_word(to, w0);
	/* Release pairs with the caller's READ: a READ that brings the canary,
	 * and takes the other words after it, brings them as they are now. */
	__atomic_store_n(
		(uint64_t *)(void *)(to + offsetof(struct rpc_hdr, canary)),
		canary, __ATOMIC_RELEASE);
}

/* Looks at `have` bytes that READs have brought to `at`. room: bytes that the
 * message may have. 1: the whole message is there. 0: not yet; *len is its
 * length when only its end is missing. */
int rpc_msg_fetched(struct rpc_msg_in *in, const void *at, uint32_t have,
		    uint32_t room, uint64_t canary, bool sums, uint32_t *len);

/* Closes a message built at `at`: all before len - 8 is in place but the
 * header. count: pairs, and flags above it. */
/* head: the Head, and above it the next field of the header. */
static inline void rpc_msg_seal(void *at, uint32_t len, uint32_t count,
				uint64_t head, uint64_t canary,
				enum rpc_tail tail)
{
	uint8_t *to = at;

	skein_assert_debug(len >= RPC_MSG_MIN && !(len % 8));
	rpc_msg_put_word(to, len | count * (UINT64_C(1) << 32));
	rpc_msg_put_word(to + offsetof(struct rpc_hdr, canary), canary);
	rpc_msg_put_word(to + offsetof(struct rpc_hdr, head), head);
	if (__builtin_expect(tail == RPC_TAIL_CANARY, 1))
		rpc_msg_put_word(to + len - RPC_TAIL_LEN, canary);
	else
		rpc_msg_seal_sum(at, len, canary);
}

/* How many pairs a sealed message has. */
static inline unsigned rpc_msg_count(const void *at)
{
	return ((const struct rpc_hdr *)at)->count;
}

/* Copies a small payload, inline where the compiler can; pads to 8 bytes with
 * zeroes, so that no old byte of this process leaves it. */
static inline void rpc_copy_pad(void *dst, const void *src, uint32_t len)
{
	if (len & 7)
		memset((uint8_t *)dst + (len & ~7u), 0, 8);
	if (len)
		memcpy(dst, src, len);
}

#endif
