/* SPDX-License-Identifier: MIT */
/*
 * test_parts.c - the small pure parts: addresses, retries, admission, the
 * operation table, frames of the control link.
 */
#include "unit/cm.h"

#include "conn/setup/addr.h"
#include "conn/setup/admission.h"
#include "conn/conn.h"
#include "conn/peer/ctlframe.h"
#include "conn/optable.h"
#include "conn/setup/retry.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <skein/error.h>
#include <stdio.h>
#include <string.h>

/* --- addresses --------------------------------------------------------- */

static void test_addr_format(void **state)
{
	struct sockaddr_storage ss = {0};
	struct sockaddr_in *in = (void *)&ss;
	struct sockaddr_in6 *in6 = (void *)&ss;
	char buf[CONN_ADDR_TEXT_MAX];

	in->sin_family = AF_INET;
	in->sin_port = htons(7000);
	in->sin_addr.s_addr = htonl(0x0a000007);
	conn_addr_format(&ss, buf, sizeof(buf));
	assert_string_equal(buf, "10.0.0.7:7000");
	memset(&ss, 0, sizeof(ss));
	in6->sin6_family = AF_INET6;
	in6->sin6_port = htons(1);
	in6->sin6_addr = in6addr_loopback;
	conn_addr_format(&ss, buf, sizeof(buf));
	assert_string_equal(buf, "[::1]:1");
}

/* --- retries ----------------------------------------------------------- */

static void test_retry(void **state)
{
	static const unsigned pauses_ms[] = {10,  20,  40,   80,  160,
					     320, 640, 1000, 1000};
	uint64_t now = 5, at;
	struct retry r;

	retry_init(&r, 9, UINT64_MAX);
	for (int i = 0; i < 9; i++) {
		assert_true(retry_next(&r, -ECONNREFUSED, now, 0, &at));
		assert_int_equal(at - now, pauses_ms[i] * 1000000ull);
		now = at;
	}
	assert_false(retry_next(&r, -ECONNREFUSED, now, 0, &at));

	/* What does not go away by itself is the answer at once. */
	retry_init(&r, 9, UINT64_MAX);
	assert_false(retry_next(&r, -SKEIN_EAUTH, now, 0, &at));
	assert_false(retry_next(&r, -SKEIN_EVERSION, now, 0, &at));
	assert_false(retry_next(&r, -SKEIN_EPEER, now, 0, &at));
	/* A shortage does, whose ever it is. */
	assert_true(retry_helps(-ENOMEM) && retry_helps(-EMFILE));
	assert_true(retry_helps(-SKEIN_ERESOURCE));
	/* The peer's hint is the least pause. */
	assert_true(retry_next(&r, -SKEIN_EBUSY, 100, 50000000, &at));
	assert_int_equal(at, 50000100);
	/* Never past the deadline. */
	retry_init(&r, 9, 100 + RETRY_PAUSE_MIN_NS);
	assert_false(retry_next(&r, -ECONNREFUSED, 100, 0, &at));
	assert_true(retry_next(&r, -ECONNREFUSED, 99, 0, &at));
	/* Without retries the first failure is the answer. */
	retry_init(&r, 0, UINT64_MAX);
	assert_false(retry_next(&r, -ECONNREFUSED, 0, 0, &at));
	assert_false(retry_next(&r, -SKEIN_EBUSY, 0, 0, &at));
	/* But a busy server that says when is tried until the deadline. */
	retry_init(&r, 0, 100 + 2 * RETRY_PAUSE_MIN_NS);
	assert_true(retry_next(&r, -SKEIN_EBUSY, 100, 1, &at));
	assert_int_equal(at, 100 + RETRY_PAUSE_MIN_NS);
	assert_false(retry_next(&r, -SKEIN_EBUSY, at, 1, &at));
	assert_false(retry_next(&r, -ECONNREFUSED, 0, 1, &at));
}

/* --- admission --------------------------------------------------------- */

static void test_admission(void **state)
{
	struct admission a;
	uint32_t ms = 0;

	admission_init(&a, 2, 3);
	assert_true(admission_enter(&a, &ms));
	assert_true(admission_enter(&a, &ms));
	assert_false(admission_enter(&a, &ms));
	assert_int_equal(ms, ADMISSION_HINT_MS);
	/* A crowd is spread over more time, within a limit. */
	for (int i = 0; i < 1000; i++)
		assert_false(admission_enter(&a, &ms));
	assert_int_equal(ms, ADMISSION_HINT_MAX_MS);
	assert_true(admission_conn(&a));
	admission_shaken(&a);
	assert_true(admission_enter(&a, &ms));
	assert_true(admission_conn(&a));
	assert_true(admission_conn(&a));
	assert_false(admission_conn(&a));
	/* No use to shake hands when there is no room for a connection. */
	admission_shaken(&a);
	admission_shaken(&a);
	assert_false(admission_enter(&a, &ms));
	admission_conn_gone(&a);
	assert_true(admission_enter(&a, &ms));
}

/* --- the operation table ----------------------------------------------- */

#define DEPTH 7u

static void test_optable(void **state)
{
	struct optable_slot slots[8];
	struct conn_op op[4], *got;
	struct optable t;
	uint64_t id[16];

	optable_init(&t, slots, 8, DEPTH, 5, 0xfffffffeu);
	assert_true(optable_idle(&t));
	assert_true(optable_take(&t, &op[0], &id[0]));
	assert_true(optable_take(&t, &op[1], &id[1]));
	assert_false(optable_take(&t, NULL, &id[2]));
	assert_int_equal(id[0] >> OPTABLE_CONN_SHIFT, 5);
	assert_int_equal((uint32_t)id[0], 0xfffffffeu);
	assert_true(id[2] & OPTABLE_UNSIGNALLED);
	assert_int_equal(optable_room(&t), DEPTH - 3);
	/* not the oldest, never given out, and one that was done before */
	assert_int_equal(optable_complete(&t, (uint32_t)id[1], &got), -EPROTO);
	assert_int_equal(optable_complete(&t, 17, &got), -EPROTO);
	assert_int_equal(optable_complete(&t, (uint32_t)id[0], &got), 0);
	assert_ptr_equal(got, &op[0]);
	assert_int_equal(optable_complete(&t, (uint32_t)id[0], &got), -EPROTO);
	assert_int_equal(optable_complete(&t, (uint32_t)id[1], &got), 0);
	assert_ptr_equal(got, &op[1]);
	assert_true(optable_idle(&t));
	/* the unsignalled one still holds its room, until one after it ends */
	assert_int_equal(optable_room(&t), DEPTH - 1);
	assert_true(optable_take(&t, &op[2], &id[3]));
	assert_int_equal(optable_complete(&t, (uint32_t)id[3], &got), 0);
	assert_int_equal(optable_room(&t), DEPTH);
	assert_int_equal(optable_complete(&t, (uint32_t)id[3], &got), -EPROTO);
}

/* However posts and completions alternate, a full queue has a signalled WR
 * under way, and room comes back to the last WR. */
static void test_optable_never_stuck(void **state)
{
	struct optable_slot slots[128];
	struct conn_op op, *got;
	uint64_t pending[128], id, n = 0, seed = 1;
	struct optable t, was;
	unsigned head = 0, tail = 0;

	optable_init(&t, slots, 128, 127, 1, 7);
	for (int i = 0; i < 100000; i++) {
		seed = seed * 6364136223846793005ull + 1442695040888963407ull;
		if (optable_room(&t) && seed >> 62) {
			was = t;
			if (optable_take(&t, seed >> 60 & 1 ? &op : NULL, &id))
				pending[tail++ % 128] = id;
			n++;
			/* Some the device does not take. */
			if (seed >> 57 & 7)
				continue;
			tail -= !(id & OPTABLE_UNSIGNALLED);
			optable_untake(&t, !(id & OPTABLE_UNSIGNALLED));
			assert_int_equal(optable_room(&t), optable_room(&was));
			assert_int_equal(t.tail, was.tail);
			assert_int_equal(t.unsignalled, was.unsignalled);
			continue;
		}
		assert_true(optable_room(&t) || head != tail);
		if (head == tail)
			continue;
		assert_int_equal(optable_complete(&t,
						  (uint32_t)pending[head % 128],
						  &got),
				 0);
		head++;
	}
	while (head != tail)
		assert_int_equal(
			optable_complete(&t, (uint32_t)pending[head++ % 128],
					 &got),
			0);
	assert_int_equal(optable_room(&t) + t.unsignalled, 127);
	assert_true(n > 10000);
}

/* --- frames ------------------------------------------------------------ */

static void test_frames(void **state)
{
	struct ctlframe_region r = {.seq = 1,
				    .addr = 0x1000,
				    .len = 64,
				    .rkey = 2,
				    .id = 3,
				    .access = 7,
				    .name = "board"};
	struct ctlframe_region got;
	struct ctlframe f;
	uint8_t buf[256];
	struct bytes_out out = bytes_out(buf, sizeof(buf));
	uint64_t seq;
	uint32_t v;
	size_t used;

	ctlframe_put_region(&out, &r);
	for (size_t cut = 0; cut < out.pos; cut++)
		assert_int_equal(ctlframe_decode(buf, cut, &f, &used), 0);
	assert_int_equal(ctlframe_decode(buf, out.pos, &f, &used), 1);
	assert_int_equal(used, out.pos);
	assert_int_equal(ctlframe_get_region(&f, &got), 0);
	assert_memory_equal(&got, &r, offsetof(struct ctlframe_region, name));
	assert_string_equal(got.name, "board");

	out.pos = 0;
	ctlframe_put_del(&out, 9, 3);
	assert_int_equal(ctlframe_decode(buf, out.pos, &f, &used), 1);
	assert_int_equal(ctlframe_get_del(&f, &seq, &v), 0);
	assert_int_equal(seq, 9);
	assert_int_equal(v, 3);
	out.pos = 0;
	ctlframe_put_ack(&out, 9);
	assert_int_equal(ctlframe_decode(buf, out.pos, &f, &used), 1);
	assert_int_equal(ctlframe_get_ack(&f, &seq), 0);
	out.pos = 0;
	ctlframe_put_close(&out, 77, 5);
	assert_int_equal(ctlframe_decode(buf, out.pos, &f, &used), 1);
	assert_int_equal(f.conn, 77);
	assert_int_equal(ctlframe_get_close(&f, &v), 0);
	assert_int_equal(v, 5);
}

static void test_frames_refused(void **state)
{
	static const struct {
		uint32_t len;
		uint8_t type, zero;
		int rc;
	} rows[] = {
		{CTLFRAME_BODY_MAX, CTLFRAME_SHAKE, 0, 0}, /* to be continued */
		{CTLFRAME_BODY_MAX + 1, CTLFRAME_SHAKE, 0, -EPROTO},
		{7, CTLFRAME_SHAKE, 0, -EPROTO},
		{0, CTLFRAME_ALIVE, 0, 1},
		{1, CTLFRAME_ALIVE, 0, -EPROTO},
		{0, CTLFRAME_ALIVE, 1, -EPROTO},
		{36, CTLFRAME_REGION_ADD, 0, -EPROTO},
		{99, CTLFRAME_REGION_ADD, 0, 0},
		{100, CTLFRAME_REGION_ADD, 0, -EPROTO},
		{11, CTLFRAME_REGION_DEL, 0, -EPROTO},
		{9, CTLFRAME_REGION_ACK, 0, -EPROTO},
		{3, CTLFRAME_CLOSE, 0, -EPROTO},
		{1, CTLFRAME_CLOSE_ACK, 0, -EPROTO},
		{0, 0, 0, -EPROTO},
		{0, 8, 0, -EPROTO},
		{0, 0x7f, 0, -EPROTO},
		{0, 0x80, 0, 1}, /* may be ignored */
		{0xffffffffu, 0x80, 0, -EPROTO},
	};
	struct ctlframe f;
	size_t used;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint8_t buf[8];
		struct bytes_out out = bytes_out(buf, sizeof(buf));

		bytes_put_u32(&out, rows[i].len);
		bytes_put_u8(&out, rows[i].type);
		bytes_put_u8(&out, rows[i].zero);
		bytes_put_u16(&out, 0);
		assert_int_equal(ctlframe_decode(buf, 8, &f, &used),
				 rows[i].rc);
	}
}

static void test_region_bodies_refused(void **state)
{
	struct ctlframe_region r = {
		.seq = 1, .addr = UINT64_MAX - 63, .len = 64, .name = "x"};
	struct ctlframe_region got;
	uint8_t buf[128];
	struct bytes_out out = bytes_out(buf, sizeof(buf));
	struct ctlframe f;
	size_t used;

	ctlframe_put_region(&out, &r);
	ctlframe_decode(buf, out.pos, &f, &used);
	assert_int_equal(ctlframe_get_region(&f, &got), -EPROTO); /* wraps */
	buf[8 + 8] = 0xbf; /* one lower: ends at the top */
	assert_int_equal(ctlframe_get_region(&f, &got), 0);
	buf[8 + 16] = 0; /* no length */
	assert_int_equal(ctlframe_get_region(&f, &got), -EPROTO);
	buf[8 + 16] = 1;
	buf[8 + 36] = 0; /* a name with a NUL in it */
	assert_int_equal(ctlframe_get_region(&f, &got), -EPROTO);
}

static void test_strerror(void **state)
{
	for (int e = SKEIN_EVERSION; e <= SKEIN_ERESOURCE; e++) {
		assert_string_not_equal(skein_strerror(-e), "unknown error");
		assert_string_equal(skein_strerror(-e), skein_strerror(e));
	}
	assert_string_equal(skein_strerror(-ECONNREFUSED),
			    "Connection refused");
	assert_non_null(strstr(skein_strerror(-EADDRNOTAVAIL), "no such host"));
	assert_string_equal(skein_strerror(-99999), "unknown error");
	assert_string_equal(skein_version(), "0.1.0");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_addr_format),
		cmocka_unit_test(test_retry),
		cmocka_unit_test(test_admission),
		cmocka_unit_test(test_optable),
		cmocka_unit_test(test_optable_never_stuck),
		cmocka_unit_test(test_frames),
		cmocka_unit_test(test_frames_refused),
		cmocka_unit_test(test_region_bodies_refused),
		cmocka_unit_test(test_strerror),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
