/* SPDX-License-Identifier: MIT */
/*
 * fuzz_rpc_msg.c - the decoder of RPC messages on bytes of anybody's.
 *
 * The first byte chooses: bit 0 requests or responses, bit 1 the tail, bit 2
 * whether head canary and tail are made right (else nothing is decoded at
 * all: also a case), bit 3 that a READ has brought them, of which bit 4 says
 * that its end is missing. The rest is the memory of the ring. Whatever it is,
 * nothing outside is read, and what was accepted keeps its promises.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "rpc/wire/msg.h"

#define CANARY 0x0123456789abcdefu

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void inside(const struct rpc_msg_in *in, const void *payload,
		   uint32_t len)
{
	const uint8_t *p = payload;

	skein_assert(p >= in->at + sizeof(struct rpc_hdr));
	skein_assert(p + len <= in->at + in->len - RPC_TAIL_LEN);
}

static void requests(struct rpc_msg_in *in)
{
	struct rpc_req_limits limits = {{64, 64, 16}, 0};
	struct rpc_req_meta meta;
	struct rpc_large large;
	const void *payload;

	while (in->left) {
		if (rpc_msg_next_req(in, &limits, &meta, &payload))
			return;
		inside(in, payload, meta.size);
		skein_assert(meta.resp_lines >= RPC_RESP_LINES_MIN &&
			     meta.resp_lines <= 16);
		if (meta.flags & RPC_REQ_LARGE &&
		    !rpc_msg_large(payload, SKEIN_RPC_LEN_MAX, &large))
			skein_assert(large.len <= SKEIN_RPC_LEN_MAX);
	}
	(void)rpc_msg_end(in);
}

static void responses(struct rpc_msg_in *in)
{
	struct rpc_resp_meta meta;
	const void *payload;

	for (uint32_t seq = 0; in->left; seq++) {
		uint16_t thread = seq & 1; /* ours, and another's */

		if (!rpc_msg_next_resp(in, 256, seq, thread, &meta, &payload) &&
		    rpc_msg_next_resp_any(in, 256, seq, thread, &meta,
					  &payload))
			return;
		inside(in, payload, meta.size);
		skein_assert(meta.flags & RPC_RESP_LARGE || meta.size <= 256);
	}
	(void)rpc_msg_end(in);
}

/* Makes a message of what is there, as far as its length makes sense. */
static void forge(uint8_t *mem, uint32_t room, enum rpc_tail tail, bool fetched)
{
	struct rpc_hdr hdr;
	uint64_t t = CANARY;

	memcpy(&hdr, mem, sizeof(hdr));
	hdr.canary = CANARY;
	memcpy(mem, &hdr, sizeof(hdr));
	if (hdr.len < RPC_MSG_MIN || hdr.len > room || hdr.len % 8)
		return;
	if (tail == RPC_TAIL_CHECKSUM)
		t = rpc_msg_checksum(mem, hdr.len, CANARY);
	if (fetched)
		t = rpc_msg_fetched_tail(mem, hdr.len, rpc_msg_word(mem),
					 CANARY, tail == RPC_TAIL_CHECKSUM);
	memcpy(mem + hdr.len - RPC_TAIL_LEN, &t, sizeof(t));
}

static bool poll(struct rpc_msg_in *in, const uint8_t *mem, uint32_t room,
		 enum rpc_tail tail, uint8_t how)
{
	uint32_t have = how & 16 ? room / 2 & ~7u : room, len = 0;
	int rc;

	if (!(how & 8))
		return rpc_msg_poll(in, mem, room, CANARY, tail) > 0;
	/* `have` bytes alone are there. */
	rc = rpc_msg_fetched(in, mem, have, room, CANARY,
			     tail == RPC_TAIL_CHECKSUM, &len);
	skein_assert(rc != 1 || in->len <= have);
	skein_assert(!len || (rc == 0 && len > have && len <= room));
	return rc > 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	enum rpc_tail tail;
	struct rpc_msg_in in;
	uint32_t room;
	uint8_t *mem;

	if (size < 1 + sizeof(struct rpc_hdr))
		return 0;
	room = (uint32_t)(size - 1) & ~7u;
	/* of exact size, so that a sanitizer sees one byte too far */
	mem = aligned_alloc(8, room);
	if (!mem)
		abort();
	memcpy(mem, data + 1, room);
	tail = data[0] & 2 ? RPC_TAIL_CHECKSUM : RPC_TAIL_CANARY;
	if (data[0] & 4)
		forge(mem, room, tail, data[0] & 8);
	if (poll(&in, mem, room, tail, data[0])) {
		if (data[0] & 1)
			responses(&in);
		else
			requests(&in);
	}
	free(mem);
	return 0;
}
