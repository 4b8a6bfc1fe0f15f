/* SPDX-License-Identifier: MIT */
/*
 * test_layout.c - docs/protocol/rpc.md and layout.h say the same: every row of
 * the page's tables of offsets and flags is looked up here, and every field
 * here is in the page. Also the sizes that the page promises.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit/cm.h"
#include "rpc/wire/layout.h"

struct field {
	const char *name;
	unsigned offset, size;
	bool seen;
};

#define FIELD(s, f)                                                           \
	{                                                                     \
#s "." #f, offsetof(struct s, f), sizeof(((struct s *)0)->f), \
			false                                                 \
	}

static struct field fields[] = {
	FIELD(rpc_hdr, len),	       FIELD(rpc_hdr, count),
	FIELD(rpc_hdr, flags),	       FIELD(rpc_hdr, canary),
	FIELD(rpc_hdr, head),	       FIELD(rpc_hdr, credits),
	FIELD(rpc_hdr, aux),	       FIELD(rpc_req_meta, size),
	FIELD(rpc_req_meta, rpc_id),   FIELD(rpc_req_meta, thread),
	FIELD(rpc_req_meta, seq),      FIELD(rpc_req_meta, resp_max),
	FIELD(rpc_req_meta, resp_pos), FIELD(rpc_req_meta, resp_lines),
	FIELD(rpc_req_meta, flags),    FIELD(rpc_resp_meta, size),
	FIELD(rpc_resp_meta, status),  FIELD(rpc_resp_meta, thread),
	FIELD(rpc_resp_meta, seq),     FIELD(rpc_resp_meta, time),
	FIELD(rpc_resp_meta, flags),   FIELD(rpc_large, addr),
	FIELD(rpc_large, len),	       FIELD(rpc_large, rkey),
	FIELD(rpc_large, region),
};
#define FIELDS (sizeof(fields) / sizeof(fields[0]))

static struct {
	const char *name;
	unsigned value;
	bool seen;
} flags[] = {
	{"RPC_REQ_LARGE", RPC_REQ_LARGE, false},
	{"RPC_REQ_SKIP", RPC_REQ_SKIP, false},
	{"RPC_REQ_FETCH", RPC_REQ_FETCH, false},
	{"RPC_REQ_TIME", RPC_REQ_TIME, false},
	{"RPC_RESP_LARGE", RPC_RESP_LARGE, false},
	{"RPC_HDR_RECALL", RPC_HDR_RECALL, false},
};
#define FLAGS (sizeof(flags) / sizeof(flags[0]))

static void check_field(const char *name, unsigned offset, unsigned size)
{
	for (unsigned i = 0; i < FIELDS; i++) {
		if (strcmp(fields[i].name, name) != 0)
			continue;
		assert_false(fields[i].seen);
		fields[i].seen = true;
		if (fields[i].offset != offset || fields[i].size != size)
			fail_msg("%s: the page says %u, %u; the code %u, %u",
				 name, offset, size, fields[i].offset,
				 fields[i].size);
		return;
	}
	fail_msg("%s is in the page but not in the code", name);
}

static void check_flag(const char *name, unsigned value)
{
	for (unsigned i = 0; i < FLAGS; i++) {
		if (strcmp(flags[i].name, name) != 0)
			continue;
		flags[i].seen = true;
		assert_int_equal(flags[i].value, value);
		return;
	}
	fail_msg("%s is in the page but not in the code", name);
}

static void test_page(void **state)
{
	char line[512], name[64];
	FILE *page = fopen(RPC_DOC, "r");
	unsigned a, b;

	assert_non_null(page);
	while (fgets(line, sizeof(line), page)) {
		if (sscanf(line, "| `%63[a-z_.]` | %u | %u |", name, &a, &b) ==
		    3)
			check_field(name, a, b);
		if (sscanf(line, "| `%63[A-Z_]` | %u |", name, &a) == 2)
			check_flag(name, a);
	}
	fclose(page);
	for (unsigned i = 0; i < FIELDS; i++)
		if (!fields[i].seen)
			fail_msg("%s is not in the page", fields[i].name);
	for (unsigned i = 0; i < FLAGS; i++)
		if (!flags[i].seen)
			fail_msg("%s is not in the page", flags[i].name);
}

static void test_sizes(void **state)
{
	struct rpc_geom g = {64, 128, 16};

	assert_int_equal(RPC_REQ_ROOM + 64, 120);
	assert_int_equal(RPC_RESP_ROOM + 64, 112);
	assert_int_equal(RPC_LINES(RPC_REQ_ROOM + 64), 2);
	assert_int_equal(rpc_geom_req(&g), 256);
	assert_int_equal(rpc_geom_resp(&g), 256 + 64 * 80);
	assert_int_equal(rpc_geom_len(&g), 256 + 64 * 80 + 64 * 144);
	assert_true(rpc_geom_valid(&g));
	g.req_lines = 63;
	assert_false(rpc_geom_valid(&g));
	g.req_lines = 8; /* smaller than the spill */
	assert_false(rpc_geom_valid(&g));
}

static void test_positions(void **state)
{
	/* A message behind the end of a lap starts the next one. */
	assert_int_equal(rpc_pos_next(64, 0, 2), 2);
	assert_int_equal(rpc_pos_next(64, 62, 1), 63);
	assert_int_equal(rpc_pos_next(64, 62, 2), 64);
	assert_int_equal(rpc_pos_next(64, 63, 16), 64);
	assert_int_equal(rpc_pos_next(64, 64 + 63, 16), 128);
	assert_true(rpc_pos_fits(64, 16, 0, 48, 16));
	assert_false(rpc_pos_fits(64, 16, 0, 49, 16));
	assert_false(rpc_pos_fits(64, 16, 0, 0, 17));
	/* The low half is enough, also when it goes through zero. */
	assert_int_equal(rpc_pos_extend(0xfffffff0u, 4), 0x100000004u);
	assert_int_equal(rpc_pos_extend(0x1234, 0x1234), 0x1234);
}

/* No two positions that can be mistaken for each other share a canary, and
 * the secret matters. */
static void test_canary(void **state)
{
	struct rpc_secret a = {1, 2}, b = {1, 3}, c = {2, 2};

	for (uint64_t pos = 0; pos < 1000; pos++) {
		assert_true(rpc_canary(&a, pos) != rpc_canary(&a, pos + 64));
		assert_true(rpc_canary(&a, pos) !=
			    rpc_canary(&a, pos + (1ull << 32)));
		assert_true(rpc_canary(&a, pos) != rpc_canary(&b, pos));
		assert_true(rpc_canary(&a, pos) != rpc_canary(&c, pos));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_page),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_positions),
		cmocka_unit_test(test_canary),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
