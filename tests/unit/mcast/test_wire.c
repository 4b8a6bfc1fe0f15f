/* SPDX-License-Identifier: MIT */
/*
 * test_wire.c - docs/protocol/mcast.md and wire.h say the same: every field of
 * a record and every type stands in the page, and none besides. What cannot be
 * is refused.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mcast/wire.h"
#include "unit/cm.h"
#include <skein/error.h>

#define FIELD(f)                                           \
	{                                                  \
#f, offsetof(struct mcast_rec, f),         \
			sizeof(((struct mcast_rec *)0)->f) \
	}
static const struct {
	const char *name;
	unsigned offset, size;
} fields[] = {FIELD(type), FIELD(flags), FIELD(rank),  FIELD(number),
	      FIELD(msg),  FIELD(size),	 FIELD(block), FIELD(len),
	      FIELD(sum),  FIELD(rkey),	 FIELD(err),   FIELD(zero)};
#define FIELDS (sizeof(fields) / sizeof(fields[0]))

static const char *const types[MCAST_TYPE_END] = {
	[MCAST_HELLO] = "HELLO", [MCAST_READY] = "READY",
	[MCAST_BLOCK] = "BLOCK", [MCAST_ACK] = "ACK",
	[MCAST_CLOSE] = "CLOSE", [MCAST_FAIL] = "FAIL",
	[MCAST_PING] = "PING",	 [MCAST_PONG] = "PONG",
	[MCAST_BYE] = "BYE",	 [MCAST_BEGIN] = "BEGIN",
	[MCAST_HAVE] = "HAVE",	 [MCAST_RUN] = "RUN",
	[MCAST_SUM] = "SUM",

	[MCAST_RING] = "RING",	 [MCAST_SMALL] = "SMALL"};

static void test_page(void **state)
{
	unsigned offset, size, n_fields = 0, n_types = 0, type;
	char line[512], name[32];
	FILE *page = fopen(MCAST_DOC, "r");

	assert_non_null(page);
	while (fgets(line, sizeof(line), page)) {
		if (sscanf(line, "| `mcast_rec.%31[a-z]` | %u | %u |", name,
			   &offset, &size) == 3) {
			assert_true(n_fields < FIELDS);
			assert_string_equal(name, fields[n_fields].name);
			assert_int_equal(offset, fields[n_fields].offset);
			assert_int_equal(size, fields[n_fields].size);
			n_fields++;
		} else if (sscanf(line, "| %u | %31[A-Z] |", &type, name) ==
			   2) {
			assert_true(type && type < MCAST_TYPE_END);
			assert_string_equal(name, types[type]);
			n_types++;
		}
	}
	fclose(page);
	assert_int_equal(n_fields, FIELDS);
	assert_int_equal(n_types, MCAST_TYPE_END - 1);
}

static void test_immediate(void **state)
{
	struct mcast_rec rec = {.type = MCAST_BLOCK, .size = 4711};

	assert_int_equal(mcast_imm_value(&rec), 0x3001267);
	rec.size = 1ull << 40;
	assert_int_equal(mcast_imm_value(&rec), 0x3ffffff);
	rec = (struct mcast_rec){.type = MCAST_READY, .size = 4711};
	assert_int_equal(mcast_imm_value(&rec), 0x2000000);
	rec = (struct mcast_rec){.type = MCAST_SMALL, .size = 4711};
	assert_int_equal(mcast_imm_value(&rec), 0xf001267);
}

static bool valid(const struct mcast_rec *rec)
{
	enum mcast_channel channel =
		rec->type == MCAST_BLOCK ? MCAST_BLOCKS : MCAST_WORDS;

	return mcast_rec_valid(rec, channel, 9, mcast_imm_value(rec));
}

/* Each byte of a record that its type does not use. */
static void test_refused(void **state)
{
	static const struct {
		unsigned type;
		bool used[FIELDS]; /* in the order of fields */
	} cases[] = {
		{MCAST_HELLO, {1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0}},
		{MCAST_READY, {1, 0, 0, 1, 1, 1, 1, 1, 0, 1, 0, 0}},
		{MCAST_BLOCK, {1, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0}},
		{MCAST_ACK, {1, 0, 1, 1, 1, 0, 1, 0, 0, 0, 0, 0}},
		{MCAST_CLOSE, {1, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0}},
		{MCAST_PING, {1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0}},
		{MCAST_BYE, {1, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0}},
		{MCAST_BEGIN, {1, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0}},
		{MCAST_HAVE, {1, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0}},
		{MCAST_RUN, {1, 0, 1, 1, 0, 0, 1, 1, 1, 0, 0, 0}},
		{MCAST_SUM, {1, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0}},
		{MCAST_RING, {1, 0, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0}},
		{MCAST_SMALL, {1, 0, 0, 1, 1, 1, 0, 0, 1, 0, 0, 0}},
	};
	struct mcast_rec rec;

	for (unsigned c = 0; c < sizeof(cases) / sizeof(cases[0]); c++)
		for (unsigned f = 1; f < FIELDS; f++) {
			rec = (struct mcast_rec){.type = (uint8_t)cases[c].type,
						 .number = 9};
			assert_true(valid(&rec));
			if (f == 3)
				continue;
			((uint8_t *)&rec)[fields[f].offset] = 1;
			assert_int_equal(valid(&rec), cases[c].used[f]);
		}
	rec = (struct mcast_rec){.type = MCAST_PING, .number = 8};
	assert_false(valid(&rec));
	rec = (struct mcast_rec){.type = MCAST_TYPE_END, .number = 9};
	assert_false(valid(&rec));
	/* FAIL says why. */
	rec = (struct mcast_rec){.type = MCAST_FAIL, .number = 9};
	assert_false(valid(&rec));
	rec.err = 5;
	assert_true(valid(&rec));
	/* And how many blocks are lost, if that is why. */
	rec.block = 7;
	assert_false(valid(&rec));
	rec.err = ENODATA;
	assert_true(valid(&rec));
	rec.block = 0;
	rec.err = 5;
	assert_false(mcast_rec_valid(&rec, MCAST_WORDS, 9,
				     mcast_imm_value(&rec) + 1));
	/* Behind the blocks too; words are not, nor blocks among words. */
	assert_true(
		mcast_rec_valid(&rec, MCAST_BLOCKS, 9, mcast_imm_value(&rec)));
	rec = (struct mcast_rec){.type = MCAST_READY, .number = 9};
	assert_false(
		mcast_rec_valid(&rec, MCAST_BLOCKS, 9, mcast_imm_value(&rec)));
	rec.type = MCAST_BLOCK;
	assert_false(
		mcast_rec_valid(&rec, MCAST_WORDS, 9, mcast_imm_value(&rec)));
}

static void test_section(void **state)
{
	struct mcast_section s = {7, 0x1122334455667788, 99, 1, 2, 0xabcdef,
				  5, MCAST_BLOCKS,	 77};
	struct mcast_section got;
	uint8_t buf[MCAST_SECTION_LEN + 1];
	struct bytes_out out = bytes_out(buf, sizeof(buf));
	struct bytes_in in;

	mcast_section_put(&s, &out);
	assert_int_equal(out.pos, MCAST_SECTION_LEN);
	in = bytes_in(buf, MCAST_SECTION_LEN);
	assert_int_equal(mcast_section_get(&got, &in), 0);
	assert_true(got.number == s.number && got.list == s.list &&
		    got.params == s.params && got.from == s.from &&
		    got.to == s.to && got.addr == s.addr);
	assert_int_equal(got.rkey, s.rkey);
	assert_int_equal(got.channel, s.channel);
	assert_int_equal(got.pair, s.pair);
	for (unsigned len = 0; len <= sizeof(buf); len++) {
		if (len == MCAST_SECTION_LEN)
			continue;
		in = bytes_in(buf, len);
		assert_int_equal(mcast_section_get(&got, &in), -SKEIN_EPEER);
	}
	buf[0] = MCAST_VERSION + 1;
	in = bytes_in(buf, MCAST_SECTION_LEN);
	assert_int_equal(mcast_section_get(&got, &in), -SKEIN_EVERSION);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_page),
		cmocka_unit_test(test_immediate),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_section),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
