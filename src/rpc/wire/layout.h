/* SPDX-License-Identifier: MIT */
/*
 * layout.h - the bytes that two ends of an RPC connection share.
 *
 * Frozen: docs/protocol/rpc.md is the text, tests/unit/rpc/test_layout.c
 * compares the two. Also the arithmetic of positions (section 1) and the
 * canary (section 2). Pure.
 */
#ifndef SKEIN_RPC_WIRE_LAYOUT_H
#define SKEIN_RPC_WIRE_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
	       "messages are built in place, in the wire's byte order");

#define RPC_LINE 64u
#define RPC_TAIL_LEN 8u
#define RPC_PAD8(n) (((n) + 7u) & ~7u)
#define RPC_LINES(bytes) (((bytes) + (RPC_LINE - 1)) / RPC_LINE)

/* Section 2. */
struct rpc_hdr {
	uint32_t len;
	uint16_t count;
	uint16_t flags;
	uint64_t canary;
	uint32_t head;
	uint16_t credits;
	uint16_t aux;
};

/* Section 3. */
struct rpc_req_meta {
	uint32_t size;
	uint16_t rpc_id;
	uint16_t thread;
	uint32_t seq;
	uint32_t resp_max;
	uint32_t resp_pos;
	uint16_t resp_lines;
	uint16_t flags;
};

/* Section 4. */
struct rpc_resp_meta {
	uint32_t size;
	int16_t status;
	uint16_t thread;
	uint32_t seq;
	uint16_t time;
	uint16_t flags;
};

#define RPC_TIME_UNIT_NS 256u /* of rpc_resp_meta.time */

/* Section 5. */
struct rpc_large {
	uint64_t addr;
	uint64_t len;
	uint32_t rkey;
	uint32_t region;
};

/* Section 6. */
enum {
	RPC_REQ_LARGE = 1,
	RPC_REQ_SKIP = 2,
	RPC_REQ_FETCH = 4,
	RPC_REQ_TIME = 8,
	RPC_RESP_LARGE = 1,
	RPC_HDR_RECALL = 1, /* a request message, of count 0 */
};

/* rpc_hdr.credits of a response, in the 8-byte word that begins with `head`:
 * section 4. */
#define RPC_WORD_STARVED (UINT64_C(1) << 32)

/* Section 8. */
enum {
	RPC_EVENT_ASK = 1,
	RPC_EVENT_GRANTED = 2,
	RPC_EVENT_POLL = 3,
};

/* Section 11: the value of a question. */
#define RPC_CREDITS_ASK(degree, ops) ((degree) | (uint32_t)(ops) << 8)
#define RPC_CREDITS_DEGREE(value) ((value)&0xffu)
#define RPC_CREDITS_OPS(value) ((value) >> 8)

/* docs/protocol/rpc.md, section 2 */
_Static_assert(sizeof(struct rpc_hdr) == 24, "section 2");
_Static_assert(offsetof(struct rpc_hdr, len) == 0, "section 2");
_Static_assert(offsetof(struct rpc_hdr, count) == 4, "section 2");
_Static_assert(offsetof(struct rpc_hdr, flags) == 6, "section 2");
_Static_assert(offsetof(struct rpc_hdr, canary) == 8, "section 2");
_Static_assert(offsetof(struct rpc_hdr, head) == 16, "section 2");
_Static_assert(offsetof(struct rpc_hdr, credits) == 20, "section 2");
_Static_assert(offsetof(struct rpc_hdr, aux) == 22, "section 2");
/* section 3 */
_Static_assert(sizeof(struct rpc_req_meta) == 24, "section 3");
_Static_assert(offsetof(struct rpc_req_meta, size) == 0, "section 3");
_Static_assert(offsetof(struct rpc_req_meta, rpc_id) == 4, "section 3");
_Static_assert(offsetof(struct rpc_req_meta, thread) == 6, "section 3");
_Static_assert(offsetof(struct rpc_req_meta, seq) == 8, "section 3");
_Static_assert(offsetof(struct rpc_req_meta, resp_max) == 12, "section 3");
_Static_assert(offsetof(struct rpc_req_meta, resp_pos) == 16, "section 3");
_Static_assert(offsetof(struct rpc_req_meta, resp_lines) == 20, "section 3");
_Static_assert(offsetof(struct rpc_req_meta, flags) == 22, "section 3");
/* section 4 */
_Static_assert(sizeof(struct rpc_resp_meta) == 16, "section 4");
_Static_assert(offsetof(struct rpc_resp_meta, size) == 0, "section 4");
_Static_assert(offsetof(struct rpc_resp_meta, status) == 4, "section 4");
_Static_assert(offsetof(struct rpc_resp_meta, thread) == 6, "section 4");
_Static_assert(offsetof(struct rpc_resp_meta, seq) == 8, "section 4");
_Static_assert(offsetof(struct rpc_resp_meta, time) == 12, "section 4");
_Static_assert(offsetof(struct rpc_resp_meta, flags) == 14, "section 4");
/* section 5 */
_Static_assert(sizeof(struct rpc_large) == 24, "section 5");
_Static_assert(offsetof(struct rpc_large, addr) == 0, "section 5");
_Static_assert(offsetof(struct rpc_large, len) == 8, "section 5");
_Static_assert(offsetof(struct rpc_large, rkey) == 16, "section 5");
_Static_assert(offsetof(struct rpc_large, region) == 20, "section 5");

/* Bytes of a message with one payload, besides the payload. */
#define RPC_REQ_ROOM \
	(sizeof(struct rpc_hdr) + sizeof(struct rpc_req_meta) + RPC_TAIL_LEN)
#define RPC_RESP_ROOM \
	(sizeof(struct rpc_hdr) + sizeof(struct rpc_resp_meta) + RPC_TAIL_LEN)
#define RPC_MSG_MIN (sizeof(struct rpc_hdr) + RPC_TAIL_LEN)

/* Room for a descriptor: what every reservation must hold. */
#define RPC_RESP_LINES_MIN RPC_LINES(RPC_RESP_ROOM + sizeof(struct rpc_large))
_Static_assert(RPC_RESP_LINES_MIN == 2, "section 3");
_Static_assert(RPC_REQ_ROOM + 64 <= 128, "a 64-byte call is two lines");
_Static_assert(RPC_RESP_ROOM + 64 <= 128, "a 64-byte result is two lines");

/* Section 1: where things are in each end's region. */
#define RPC_CTL_LEN 256u
#define RPC_CTL_HEAD 0u	     /* server: the published Head */
#define RPC_CTL_HEAD_DST 64u /* caller: where a READ of it lands */
/* caller: the position at which the server waits without looking often: section
 * 8 */
#define RPC_CTL_QUIET 128u
#define RPC_QUIET_NOT UINT64_MAX /* a position that is never reached */

struct rpc_geom {
	uint32_t req_lines;  /* R */
	uint32_t resp_lines; /* S */
	uint32_t spill;	     /* P */
};

#define RPC_RING_LINES_MAX (1u << 22) /* 256 MiB */
#define RPC_SPILL_MAX 4096u	      /* fits resp_lines; 256 KiB */

static inline bool rpc_geom_valid(const struct rpc_geom *g)
{
	return g->req_lines && !(g->req_lines & (g->req_lines - 1)) &&
	       g->req_lines <= RPC_RING_LINES_MAX && g->resp_lines &&
	       !(g->resp_lines & (g->resp_lines - 1)) &&
	       g->resp_lines <= RPC_RING_LINES_MAX && g->spill >= 2 &&
	       g->spill <= RPC_SPILL_MAX && g->spill <= g->req_lines &&
	       g->spill <= g->resp_lines;
}

static inline uint64_t rpc_geom_req(const struct rpc_geom *g)
{
	return RPC_CTL_LEN;
}

static inline uint64_t rpc_geom_resp(const struct rpc_geom *g)
{
	return RPC_CTL_LEN + (uint64_t)(g->req_lines + g->spill) * RPC_LINE;
}

static inline uint64_t rpc_geom_len(const struct rpc_geom *g)
{
	return rpc_geom_resp(g) +
	       (uint64_t)(g->resp_lines + g->spill) * RPC_LINE;
}

/* Caller: READs of answers land behind the rest, in as much memory as the
 * response space has. No WRITE of the server reaches it. Without ordered_write,
 * bytes of a reply may come after it was taken: the checksum does not miss bytes
 * that the lap before has left alike. They must not come over an answer that
 * was READ. */
static inline uint64_t rpc_geom_landing(const struct rpc_geom *g)
{
	return rpc_geom_len(g);
}

static inline uint64_t rpc_geom_landing_len(const struct rpc_geom *g)
{
	return (uint64_t)(g->resp_lines + g->spill) * RPC_LINE;
}

/* The position behind n lines at pos: the start of the next lap at most.
 * lines: of the ring, a power of two; n <= lines. */
static inline uint64_t rpc_pos_next(uint32_t lines, uint64_t pos, uint32_t n)
{
	uint64_t next = pos + n, mask = lines - 1;

	return __builtin_expect((pos ^ next) > mask, 0) ? next & ~mask : next;
}

/* May n lines at tail be written when all before head is consumed? */
static inline bool rpc_pos_fits(uint32_t lines, uint32_t spill, uint64_t head,
				uint64_t tail, uint32_t n)
{
	return n <= spill && tail + n - head <= lines;
}

/* The position that a wire value names: at or after known. */
static inline uint64_t rpc_pos_extend(uint64_t known, uint32_t wire)
{
	return known + (uint32_t)(wire - (uint32_t)known);
}

struct rpc_secret {
	uint64_t k0, k1;
};

static inline uint64_t rpc_canary(const struct rpc_secret *s, uint64_t pos)
{
	uint64_t z = s->k0 + pos * 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return (z ^ (z >> 31)) ^ s->k1;
}

#endif
