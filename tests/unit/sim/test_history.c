/* SPDX-License-Identifier: MIT */
/*
 * The history checker of the key-value scenario: what may be read passes, and
 * each planted violation is seen.
 */
#include "unit/cm.h"
#include "sim/fifo.h"
#include "sim/kv_history.h"

#include <stdlib.h>
#include <string.h>

static struct report rep;
static struct history *h;
static unsigned char val[256];

static int setup(void **state)
{
	h = calloc(1, sizeof(*h));
	if (!h)
		return -1;
	memset(&rep, 0, sizeof(rep));
	rep.ok = true;
	h->rep = &rep;
	return hist_key_new(h) ? -1 : 0;
}

static int teardown(void **state)
{
	free(h);
	return 0;
}

static void wrote(uint32_t len, uint32_t body, bool absent,
		  enum hist_outcome outcome)
{
	struct hist_span s;

	hist_write(h, 0, len, body, absent, &s);
	hist_write_end(h, 0, &s, outcome);
}

static struct hist_span reads(void)
{
	struct hist_span s;

	hist_read(h, 0, &s);
	return s;
}

static void found(struct hist_span s, uint32_t version)
{
	if (version)
		hist_value(h, 0, version, val);
	hist_read_end(h, 0, &s, version ? val : NULL,
		      version ? h->keys[0].v[version].len : 0);
}

static void says(const char *what)
{
	assert_false(rep.ok);
	if (!strstr(rep.why, what))
		fail_msg("\"%s\" does not say \"%s\"", rep.why, what);
}

/* Before, beside and after a write; a partial one; a deletion; a restart. */
static void test_right(void **state)
{
	struct hist_span early = reads(), s;

	found(early, 0);
	wrote(100, 0, false, HIST_DONE);
	found(early, 1); /* it overlapped */
	found(reads(), 1);
	early = reads();
	hist_write(h, 0, 0, 1, false, &s);
	found(reads(), 1);
	found(early, 2); /* not acknowledged yet, and there */
	hist_write_end(h, 0, &s, HIST_DONE);
	found(reads(), 2);
	wrote(16, 0, true, HIST_DONE);
	found(reads(), 0);
	wrote(30, 0, false, HIST_DONE);
	hist_server_died(h);
	found(reads(), 0);
	wrote(30, 0, false, HIST_UNKNOWN);
	assert_false(hist_writable(h, 0));
	found(reads(), 0);
	found(reads(), 5);
	assert_true(rep.ok);
}

static void test_lost(void **state)
{
	wrote(100, 0, false, HIST_DONE);
	found(reads(), 0);
	says("is gone");
}

static void test_stale(void **state)
{
	wrote(100, 0, false, HIST_DONE);
	wrote(100, 0, false, HIST_DONE);
	found(reads(), 1);
	says("read after version 2");
}

/* Two reads, one after another, of a write that is not acknowledged. */
static void test_back_and_forth(void **state)
{
	struct hist_span s;

	wrote(100, 0, false, HIST_DONE);
	hist_write(h, 0, 100, 0, false, &s);
	found(reads(), 2);
	assert_true(rep.ok);
	found(reads(), 1);
	says("read after version 2");
}

static void test_not_sent(void **state)
{
	wrote(100, 0, false, HIST_DONE);
	wrote(100, 0, false, HIST_NEVER);
	found(reads(), 2);
	says("never written");
}

static void test_deleted(void **state)
{
	wrote(100, 0, false, HIST_DONE);
	wrote(0, 0, true, HIST_DONE);
	found(reads(), 1);
	says("read after version 2");
}

static void test_of_the_dead(void **state)
{
	wrote(100, 0, false, HIST_DONE);
	hist_server_died(h);
	found(reads(), 1);
	says("killed");
}

static void test_torn(void **state)
{
	struct hist_span s;

	wrote(100, 0, false, HIST_DONE);
	s = reads();
	hist_value(h, 0, 1, val);
	val[77] ^= 1;
	hist_read_end(h, 0, &s, val, 100);
	says("byte 77 is wrong");
}

static void test_another_key(void **state)
{
	struct hist_span s;

	assert_int_equal(hist_key_new(h), 1);
	wrote(100, 0, false, HIST_DONE);
	hist_read(h, 1, &s);
	hist_value(h, 0, 1, val);
	hist_read_end(h, 1, &s, val, 100);
	says("a value of key 0");
}

static void test_fifo(void **state)
{
	struct fifo f;

	fifo_begin(&f, 3);
	fifo_take(&f, 3, 0, "ended", &rep);
	fifo_take(&f, 3, 7, "ended", &rep);
	fifo_take(&f, 2, 5, "ended", &rep); /* of a session before */
	fifo_take(&f, 3, 9, "ended", &rep);
	assert_true(rep.ok);
	fifo_take(&f, 3, 8, "ended", &rep);
	says("call 8 ended after call 9");
}

static void test_key_bytes(void **state)
{
	char bytes[HIST_KEY_LEN + 1];

	for (uint32_t key = 0; key < HIST_KEYS; key++) {
		hist_key_bytes(key, bytes);
		assert_int_equal(strlen(bytes), HIST_KEY_LEN);
		assert_int_equal(hist_key_parse(bytes, HIST_KEY_LEN), key);
	}
	bytes[5] ^= 1;
	assert_int_equal(hist_key_parse(bytes, HIST_KEY_LEN), HIST_KEYS);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_right),	CASE(test_lost),
		CASE(test_stale),	CASE(test_back_and_forth),
		CASE(test_not_sent),	CASE(test_deleted),
		CASE(test_of_the_dead), CASE(test_torn),
		CASE(test_another_key), CASE(test_fifo),
		CASE(test_key_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
