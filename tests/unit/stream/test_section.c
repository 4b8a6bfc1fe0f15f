/* SPDX-License-Identifier: MIT */
/*
 * test_section.c - addresses and messages, byte by byte
 * (docs/protocol/stream.md, "The QP" and "Opening").
 */
#include <errno.h>
#include <string.h>

#include "stream/section.h"
#include "unit/cm.h"

static const struct stream_msg one = {
	.type = STREAM_OPENED,
	.number = 0x01020304,
	.addr = {.secret = 0x4142434445464748,
		 .mem = 0x5152535455565758,
		 .rkey = 0x61626364,
		 .ring_size = 65536,
		 .number = 0x717273,
		 .checksum = true},
};

static const uint8_t golden[] = {
	2,    0,    0,	  0,	0x04, 0x03, 0x02, 0x01, 0,    0,    0,
	0,    0x48, 0x47, 0x46, 0x45, 0x44, 0x43, 0x42, 0x41, 0x58, 0x57,
	0x56, 0x55, 0x54, 0x53, 0x52, 0x51, 0x64, 0x63, 0x62, 0x61, 0,
	0,    1,    0,	  0x73, 0x72, 0x71, 0,	  1,
};

static size_t encode(const struct stream_msg *m, uint8_t *buf)
{
	struct bytes_out out = bytes_out(buf, STREAM_MSG_MAX);

	stream_msg_put(m, &out);
	assert_false(out.failed);
	return out.pos;
}

static int decode(const uint8_t *buf, size_t len, struct stream_msg *m)
{
	struct bytes_in in = bytes_in(buf, len);

	return stream_msg_get(&in, m);
}

/* What differs in the answer of an end that makes larger rings. */
static void one_grows(void)
{
	struct stream_msg m = one, back;
	uint8_t buf[STREAM_MSG_MAX];
	size_t len;

	m.type = STREAM_GROWN;
	m.addr.checksum = false;
	m.addr.grows = true;
	len = encode(&m, buf);
	assert_int_equal(buf[0], 3);
	assert_int_equal(buf[40], 2);
	assert_int_equal(decode(buf, len, &back), 0);
	assert_int_equal(back.type, STREAM_GROWN);
	assert_true(back.addr.grows && !back.addr.checksum);
}

static void test_golden(void **state)
{
	struct stream_msg back;
	uint8_t buf[STREAM_MSG_MAX];

	(void)state;
	assert_int_equal(encode(&one, buf), sizeof(golden));
	assert_int_equal(sizeof(golden), 12 + STREAM_ADDR_LEN);
	assert_memory_equal(buf, golden, sizeof(golden));
	assert_int_equal(decode(buf, sizeof(golden), &back), 0);
	assert_int_equal(back.type, STREAM_OPENED);
	assert_int_equal(back.number, one.number);
	assert_int_equal(back.addr.secret, one.addr.secret);
	assert_int_equal(back.addr.ring_size, one.addr.ring_size);
	assert_int_equal(back.addr.number, one.addr.number);
	assert_true(back.addr.checksum);
	assert_false(back.addr.grows);
	one_grows();
}

static void refused(const struct stream_msg *m, size_t at, uint8_t value)
{
	uint8_t buf[STREAM_MSG_MAX];
	size_t len = encode(m, buf);
	struct stream_msg back;

	buf[at] = value;
	assert_int_equal(decode(buf, len, &back), -EPROTO);
}

static void test_refusals(void **state)
{
	struct stream_msg m = one, back;
	uint8_t buf[STREAM_MSG_MAX];
	size_t len, i;

	(void)state;
	for (i = STREAM_NOBODY; i < STREAM_ANSWERS; i++) {
		m.answer = (enum stream_answer)i;
		len = encode(&m, buf);
		assert_int_equal(len, 12);
		assert_int_equal(decode(buf, len, &back), 0);
		assert_int_equal(back.answer, i);
		assert_int_equal(decode(buf, len + 1, &back), -EPROTO);
	}
	refused(&m, 0, STREAM_OPEN); /* which refuses nothing */
	refused(&m, 8, STREAM_ANSWERS);
	refused(&one, 0, 0);
	refused(&one, 0, 4);
	refused(&one, 8, STREAM_ANSWERS);
	refused(&one, 20, 0x51); /* an address between two words */
	refused(&one, 32, 1);	 /* a ring of 65537 bytes */
	refused(&one, 34, 0);	 /* ... of none */
	refused(&one, 39, 1);	 /* a number of 25 bits */
	refused(&one, 40, 4);	 /* a bit that means nothing */
	len = encode(&one, buf);
	for (i = 0; i < len; i++)
		assert_int_equal(decode(buf, i, &back), -EPROTO);
	assert_int_equal(decode(buf, len + 1, &back), -EPROTO);
	memset(buf + 36, 0, 3); /* number 0 */
	assert_int_equal(decode(buf, len, &back), -EPROTO);
}

static void test_qp(void **state)
{
	static const uint8_t bytes[] = {
		0xfe, 0x80, 0,	  0,	0, 0,	 0,    0,    0, 0,    0,
		0,    0,    0,	  0,	1, 0x13, 0x12, 0x11, 0, 0x23, 0x22,
		0x21, 0,    0x32, 0x31, 3, 16,	 0,    1,    0, 0,
	};
	struct stream_qp_addr a = {.qp = {.qpn = 0x111213,
					  .psn = 0x212223,
					  .lid = 0x3132,
					  .mtu = 3,
					  .rd_atomic = 16},
				   .recvs = 256},
			      back;
	uint8_t buf[STREAM_QP_ADDR_LEN];
	struct bytes_out out = bytes_out(buf, sizeof(buf));
	struct bytes_in in = bytes_in(buf, sizeof(buf));

	(void)state;
	a.qp.gid.raw[0] = 0xfe;
	a.qp.gid.raw[1] = 0x80;
	a.qp.gid.raw[15] = 1;
	stream_qp_addr_put(&a, &out);
	assert_false(out.failed);
	assert_int_equal(out.pos, sizeof(bytes));
	assert_memory_equal(buf, bytes, sizeof(bytes));
	assert_int_equal(stream_qp_addr_get(&in, &back), 0);
	assert_memory_equal(&back, &a, sizeof(a));
	for (size_t n = 0; n < sizeof(buf); n++) {
		in = bytes_in(buf, n);
		assert_int_equal(stream_qp_addr_get(&in, &back), -EPROTO);
	}
	memset(buf + 28, 0, 4);
	in = bytes_in(buf, sizeof(buf));
	assert_int_equal(stream_qp_addr_get(&in, &back), -EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_golden),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_qp),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
