/* SPDX-License-Identifier: MIT */
/*
 * test_msg.c - the codec: what is sealed is decoded, a message that is not
 * there as a whole is not seen, and every kind of garbage is refused.
 */
#include <string.h>

#include "unit/cm.h"
#include "rpc/wire/msg.h"

#define ROOM 1024u

static const struct rpc_geom geom = {64, 64, 16};
static const uint64_t canary = 0x1122334455667788u;

struct msg {
	_Alignas(64) uint8_t bytes[ROOM];
	uint32_t len;
};

/* A request message of n pairs of size bytes each. */
static void build(struct msg *m, unsigned n, uint32_t size, enum rpc_tail tail)
{
	uint64_t pos = 0;

	memset(m, 0x5a, sizeof(*m));
	m->len = sizeof(struct rpc_hdr);
	for (unsigned i = 0; i < n; i++) {
		struct rpc_req_meta meta = {.size = size,
					    .rpc_id = 3,
					    .seq = i,
					    .resp_max = 64,
					    .resp_pos = (uint32_t)pos,
					    .resp_lines = 2};

		memcpy(m->bytes + m->len, &meta, sizeof(meta));
		memset(m->bytes + m->len + sizeof(meta), (int)i,
		       RPC_PAD8(size));
		m->len += (uint32_t)sizeof(meta) + RPC_PAD8(size);
		pos = rpc_pos_next(geom.resp_lines, pos, 2);
	}
	m->len += RPC_TAIL_LEN;
	rpc_msg_seal(m->bytes, m->len, (uint16_t)n, 77, canary, tail);
}

/* Decodes all: the number of pairs, or what the decoder says. */
static int decode(const void *at, uint32_t room, enum rpc_tail tail)
{
	struct rpc_req_limits limits = {geom, 0};
	struct rpc_req_meta meta;
	const void *payload;
	struct rpc_msg_in in;
	int rc, n = 0;

	rc = rpc_msg_poll(&in, at, room, canary, tail);
	if (rc <= 0)
		return rc ? rc : -1;
	assert_int_equal(in.head, 77);
	while (in.left) {
		rc = rpc_msg_next_req(&in, &limits, &meta, &payload);
		if (rc)
			return rc;
		assert_int_equal(meta.seq, n);
		n++;
	}
	rc = rpc_msg_end(&in);
	return rc ? rc : n;
}

static void test_round_trip(void **state)
{
	struct msg m;

	for (int tail = RPC_TAIL_CANARY; tail <= RPC_TAIL_CHECKSUM; tail++) {
		for (unsigned n = 0; n < 9; n++) {
			for (uint32_t size = 0; size < 65; size += 7) {
				build(&m, n, size, tail);
				assert_int_equal(decode(m.bytes, ROOM, tail),
						 n);
				/* exactly what room it needs */
				assert_int_equal(decode(m.bytes, m.len, tail),
						 n);
			}
		}
	}
}

/* Bytes arrive in ascending order: no prefix is taken for the message. */
static void test_prefixes(void **state)
{
	_Alignas(64) uint8_t mem[ROOM];
	struct msg m;

	build(&m, 3, 40, RPC_TAIL_CANARY);
	for (uint32_t got = 0; got < m.len; got += 8) {
		memset(mem, 0xee, sizeof(mem));
		memcpy(mem, m.bytes, got);
		assert_int_equal(decode(mem, ROOM, RPC_TAIL_CANARY), -1);
	}
	memcpy(mem, m.bytes, m.len);
	assert_int_equal(decode(mem, ROOM, RPC_TAIL_CANARY), 3);
}

/* Bytes arrive in any order: with any one word missing it is not there. */
static void test_holes(void **state)
{
	struct msg m, old;

	build(&m, 3, 40, RPC_TAIL_CHECKSUM);
	for (uint32_t hole = 0; hole < m.len; hole += 8) {
		old = m;
		memset(old.bytes + hole, 0xee, 8);
		assert_int_equal(decode(old.bytes, ROOM, RPC_TAIL_CHECKSUM),
				 -1);
	}
}

/* What an earlier lap left is another canary's. */
static void test_old_lap(void **state)
{
	struct rpc_msg_in in;
	struct msg m;

	build(&m, 1, 64, RPC_TAIL_CANARY);
	assert_int_equal(rpc_msg_poll(&in, m.bytes, ROOM, canary + 1,
				      RPC_TAIL_CANARY),
			 0);
	/* The head of the new lap over the old body: the tail is the old's. */
	((struct rpc_hdr *)(void *)m.bytes)->canary = canary + 1;
	assert_int_equal(rpc_msg_poll(&in, m.bytes, ROOM, canary + 1,
				      RPC_TAIL_CANARY),
			 0);
}

struct patch {
	const char *what;
	uint32_t at, len;
	uint64_t value;
};

#define META(f) \
	((uint32_t)(sizeof(struct rpc_hdr) + offsetof(struct rpc_req_meta, f)))

static void test_garbage(void **state)
{
	static const struct patch patches[] = {
		{"len 0", 0, 4, 0},
		{"len too small", 0, 4, 24},
		{"len odd", 0, 4, 121},
		{"len beyond room", 0, 4, ROOM + 8},
		{"len huge", 0, 4, 0xfffffff8u},
		{"flags of the header", 6, 2, 2},
		{"more pairs than bytes", 4, 2, 3},
		{"fewer pairs than bytes", 4, 2, 1},
		{"no pairs but bytes", 4, 2, 0},
		{"size beyond the message", META(size), 4, 600},
		{"size 2^32-1", META(size), 4, 0xffffffffu},
		{"size 2^32-8", META(size), 4, 0xfffffff8u},
		{"size smaller", META(size), 4, 8},
		{"resp_pos elsewhere", META(resp_pos), 4, 2},
		{"resp_lines 0", META(resp_lines), 2, 0},
		{"resp_lines 1", META(resp_lines), 2, 1},
		{"resp_lines beyond the spill", META(resp_lines), 2, 17},
		{"unknown flag", META(flags), 2, 16},
		{"fetch and large", META(flags), 2,
		 RPC_REQ_FETCH | RPC_REQ_LARGE},
		{"large, with company", META(flags), 2, RPC_REQ_LARGE},
	};
	struct msg m;
	int rc;

	for (unsigned i = 0; i < sizeof(patches) / sizeof(patches[0]); i++) {
		const struct patch *p = &patches[i];

		build(&m, 2, 24, RPC_TAIL_CANARY);
		assert_int_equal(decode(m.bytes, ROOM, RPC_TAIL_CANARY), 2);
		memcpy(m.bytes + p->at, &p->value, p->len);
		/* A wrong len takes the tail from elsewhere: put one there. */
		rc = decode(m.bytes, ROOM, RPC_TAIL_CANARY);
		if (rc != -SKEIN_EPEER)
			fail_msg("%s: %d", p->what, rc);
	}
}

static void test_garbage_checksum_is_not_yet(void **state)
{
	struct msg m;
	uint32_t len = 0xfffffff8u;

	build(&m, 2, 24, RPC_TAIL_CHECKSUM);
	memcpy(m.bytes, &len, 4);
	assert_int_equal(decode(m.bytes, ROOM, RPC_TAIL_CHECKSUM), -1);
}

static int decode_resp_of(uint16_t thread, const struct rpc_resp_meta *meta,
			  uint32_t extra, uint32_t resp_max)
{
	struct rpc_resp_meta got;
	struct rpc_msg_in in;
	const void *payload;
	struct msg m;
	uint32_t seq;
	bool plain;
	int rc;

	memset(&m, 0, sizeof(m));
	m.len = (uint32_t)(sizeof(struct rpc_hdr) + sizeof(*meta)) + extra +
		RPC_TAIL_LEN;
	memcpy(m.bytes + sizeof(struct rpc_hdr), meta, sizeof(*meta));
	rpc_msg_seal(m.bytes, m.len, 1, 0, canary, RPC_TAIL_CANARY);
	assert_int_equal(
		rpc_msg_poll(&in, m.bytes, ROOM, canary, RPC_TAIL_CANARY), 1);
	assert_int_equal(rpc_msg_peek_seq(&in, &seq), 0);
	assert_int_equal(seq, meta->seq);
	plain = rpc_msg_next_resp(&in, resp_max, 9, thread, &got, &payload);
	rc = plain ? 0
		   : rpc_msg_next_resp_any(&in, resp_max, 9, thread, &got,
					   &payload);
	if (!rc)
		assert_int_equal(plain, !meta->status && !meta->flags);
	return rc ? rc : rpc_msg_end(&in);
}

static int decode_resp(const struct rpc_resp_meta *meta, uint32_t extra,
		       uint32_t resp_max)
{
	return decode_resp_of(0, meta, extra, resp_max);
}

static void test_responses(void **state)
{
	struct rpc_resp_meta ok = {.size = 16, .seq = 9}, m;

	assert_int_equal(decode_resp(&ok, 16, 16), 0);
	assert_int_equal(decode_resp(&ok, 16, 15), -SKEIN_EPEER);
	assert_int_equal(decode_resp(&ok, 24, 16), -SKEIN_EPEER);
	assert_int_equal(decode_resp(&ok, 8, 16), -SKEIN_EPEER);
	m = ok;
	m.seq = 8;
	assert_int_equal(decode_resp(&m, 16, 16), -SKEIN_EPEER);
	m = ok;
	m.thread = 1;
	assert_int_equal(decode_resp(&m, 16, 16), -SKEIN_EPEER);
	assert_int_equal(decode_resp_of(1, &m, 16, 16), 0);
	assert_int_equal(decode_resp_of(1, &m, 16, 15), -SKEIN_EPEER);
	assert_int_equal(decode_resp_of(2, &m, 16, 16), -SKEIN_EPEER);
	assert_int_equal(decode_resp_of(1, &ok, 16, 16), -SKEIN_EPEER);
	m.thread = UINT16_MAX;
	m.status = -1;
	assert_int_equal(decode_resp_of(UINT16_MAX, &m, 16, 16), 0);
	m = ok;
	m.status = 1;
	assert_int_equal(decode_resp(&m, 16, 16), -SKEIN_EPEER);
	m.status = -2;
	assert_int_equal(decode_resp(&m, 16, 16), 0);
	m = ok;
	m.flags = 2;
	assert_int_equal(decode_resp(&m, 16, 16), -SKEIN_EPEER);
	m.flags = RPC_RESP_LARGE; /* wrong size */
	assert_int_equal(decode_resp(&m, 16, 16), -SKEIN_EPEER);
	m.size = sizeof(struct rpc_large);
	assert_int_equal(decode_resp(&m, 24, 16), 0);
}

static void test_large(void **state)
{
	struct rpc_large l = {.addr = 1, .len = 100, .rkey = 2}, got;

	assert_int_equal(rpc_msg_large(&l, 100, &got), 0);
	assert_int_equal(got.len, 100);
	assert_int_equal(rpc_msg_large(&l, 99, &got), -SKEIN_EPEER);
	l.len = 0;
	assert_int_equal(rpc_msg_large(&l, 99, &got), -SKEIN_EPEER);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_prefixes),
		cmocka_unit_test(test_holes),
		cmocka_unit_test(test_old_lap),
		cmocka_unit_test(test_garbage),
		cmocka_unit_test(test_garbage_checksum_is_not_yet),
		cmocka_unit_test(test_responses),
		cmocka_unit_test(test_large),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
