/* SPDX-License-Identifier: MIT */
/*
 * msg.c - the codec of messages: docs/protocol/rpc.md, sections 2 to 6, and the
 * checks of section 10. Pure.
 */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "rpc/wire/msg.h"

/* Beyond this length the processor prefetches by itself. */
#define FETCH_MAX 2048u

uint64_t rpc_msg_checksum(const void *at, uint32_t len, uint64_t canary)
{
	return XXH3_64bits_withSeed(at, len - RPC_TAIL_LEN, canary);
}

static bool checksum_is_there(const uint8_t *at, uint32_t len, uint64_t canary)
{
	uint64_t t;

	/* Acquire for the compiler only. Nothing orders the bytes of the
	 * message: bytes that were read too early do not match the checksum,
	 * and are read again. */
	t = __atomic_load_n((const uint64_t *)(at + len - RPC_TAIL_LEN),
			    __ATOMIC_ACQUIRE);
	return t == rpc_msg_checksum(at, len, canary);
}

/* The lines of a message are in the writer's cache. This fetches them together,
 * not one after the other. */
void rpc_msg_fetch_lines(const void *at, uint32_t len)
{
	if (len > FETCH_MAX)
		len = FETCH_MAX;
	for (uint32_t i = 2 * RPC_LINE; i < len; i += RPC_LINE)
		__builtin_prefetch((const uint8_t *)at + i);
}

int rpc_msg_check_sum(struct rpc_msg_in *in, const void *at, uint32_t room,
		      uint64_t canary)
{
	uint64_t w0 = rpc_msg_word(at);
	uint32_t len = (uint32_t)w0;

	if (len < RPC_MSG_MIN || len > room || len % 8)
		return 0;
	rpc_msg_fetch_lines(at, len);
	if (!checksum_is_there(at, len, canary))
		return 0;
	/* The checksum proved the bytes, not w0, which was read before and may
	 * be of an old lap: look again next time. */
	if (rpc_msg_word(at) != w0)
		return 0;
	return rpc_msg_begin(in, at, w0);
}

/* Where the payload of a pair with this much metadata ends, or 0. */
static uint32_t pair_end(const struct rpc_msg_in *in, uint32_t meta_len,
			 uint32_t size)
{
	uint32_t room = in->len - RPC_TAIL_LEN - in->pos - meta_len;

	/* size is checked before it is padded: it may be 2^32 - 1 */
	if (size > room || RPC_PAD8(size) > room)
		return 0;
	return in->pos + meta_len + RPC_PAD8(size);
}

static bool meta_fits(const struct rpc_msg_in *in, uint32_t meta_len)
{
	return in->left && in->pos + meta_len + RPC_TAIL_LEN <= in->len;
}

static bool req_meta_valid(const struct rpc_msg_in *in,
			   const struct rpc_req_limits *limits,
			   const struct rpc_req_meta *meta)
{
	if (meta->flags &
	    ~(RPC_REQ_LARGE | RPC_REQ_SKIP | RPC_REQ_FETCH | RPC_REQ_TIME))
		return false;
	if (meta->flags & RPC_REQ_FETCH && meta->flags & RPC_REQ_LARGE)
		return false;
	if (meta->flags & RPC_REQ_LARGE &&
	    (in->count != 1 || meta->size != sizeof(struct rpc_large)))
		return false;
	return meta->resp_lines >= RPC_RESP_LINES_MIN &&
	       meta->resp_lines <= limits->geom.spill &&
	       meta->resp_pos == (uint32_t)limits->resp_pos;
}

int rpc_msg_next_req_any(struct rpc_msg_in *in, struct rpc_req_limits *limits,
			 struct rpc_req_meta *meta, const void **payload)
{
	const uint8_t *p = in->at + in->pos;
	struct rpc_req_meta m;
	uint64_t w[3];
	uint32_t end;

	if (!meta_fits(in, sizeof(m)))
		return -SKEIN_EPEER;
	w[0] = rpc_msg_word(p);
	w[1] = rpc_msg_word(p + 8);
	w[2] = rpc_msg_word(p + 16);
	memcpy(&m, w, sizeof(m));
	end = pair_end(in, sizeof(m), m.size);
	if (!end || !req_meta_valid(in, limits, &m))
		return -SKEIN_EPEER;
	limits->resp_pos = rpc_pos_next(limits->geom.resp_lines,
					limits->resp_pos, m.resp_lines);
	in->pos = end;
	in->left--;
	*meta = m;
	*payload = p + sizeof(m);
	return 0;
}

int rpc_msg_next_resp_any(struct rpc_msg_in *in, uint32_t resp_max,
			  uint32_t seq, uint16_t thread,
			  struct rpc_resp_meta *meta, const void **payload)
{
	const uint8_t *p = in->at + in->pos;
	struct rpc_resp_meta m;
	uint64_t w[2];
	uint32_t end;

	if (!meta_fits(in, sizeof(m)))
		return -SKEIN_EPEER;
	w[0] = rpc_msg_word(p);
	w[1] = rpc_msg_word(p + 8);
	memcpy(&m, w, sizeof(m));
	end = pair_end(in, sizeof(m), m.size);
	if (!end || m.seq != seq || m.thread != thread || m.status > 0)
		return -SKEIN_EPEER;
	if (m.flags & RPC_RESP_LARGE) {
		if (m.flags != RPC_RESP_LARGE || in->count != 1 || m.status ||
		    m.size != sizeof(struct rpc_large))
			return -SKEIN_EPEER;
	} else if (m.flags || m.size > resp_max) {
		return -SKEIN_EPEER;
	}
	in->pos = end;
	in->left--;
	*meta = m;
	*payload = p + sizeof(m);
	return 0;
}

int rpc_msg_large(const void *payload, uint64_t len_max,
		  struct rpc_large *large)
{
	uint64_t w[3] = {rpc_msg_word(payload),
			 rpc_msg_word((const uint8_t *)payload + 8),
			 rpc_msg_word((const uint8_t *)payload + 16)};
	struct rpc_large l;

	memcpy(&l, w, sizeof(l));
	if (!l.len || l.len > len_max)
		return -SKEIN_EPEER;
	*large = l;
	return 0;
}

uint64_t rpc_msg_checksum_body(const void *at, uint32_t len, uint64_t seed)
{
	uint32_t from = offsetof(struct rpc_hdr, head);

	return XXH3_64bits_withSeed((const uint8_t *)at + from,
				    len - from - RPC_TAIL_LEN, seed);
}

int rpc_msg_fetched(struct rpc_msg_in *in, const void *at, uint32_t have,
		    uint32_t room, uint64_t canary, bool sums, uint32_t *len)
{
	const struct rpc_hdr *hdr = at;
	uint64_t w0;
	uint32_t n;

	/* Plain loads: the READ has ended, and no other is under way. */
	if (have < sizeof(*hdr) || hdr->canary != canary)
		return 0;
	w0 = rpc_msg_word(at);
	n = (uint32_t)w0;
	/* No valid length: the READ took it before the server wrote the canary.
	 * Garbage looks the same, and never ends: deadlines end the calls. */
	if (n < RPC_MSG_MIN || n > room || n % 8)
		return 0;
	if (n > have) {
		*len = n;
		return 0;
	}
	if (rpc_msg_word((const uint8_t *)at + n - RPC_TAIL_LEN) !=
	    rpc_msg_fetched_tail(at, n, w0, canary, sums))
		return 0;
	return rpc_msg_begin(in, at, w0);
}

void rpc_msg_seal_sum(void *at, uint32_t len, uint64_t canary)
{
	uint64_t t = rpc_msg_checksum(at, len, canary);

	memcpy((uint8_t *)at + len - RPC_TAIL_LEN, &t, sizeof(t));
}
