/* SPDX-License-Identifier: MIT */
/*
 * test_section.c - the section of the handshake, byte by byte
 * (docs/protocol/stream.md, "Opening").
 */
#include <string.h>

#include "stream/section.h"
#include "unit/cm.h"
#include <skein/error.h>

static const struct stream_section one = {
	.number = 0x01020304,
	.addr = {.qp = {.qpn = 0x111213,
			.psn = 0x212223,
			.lid = 0x3132,
			.mtu = 3,
			.rd_atomic = 16},
		 .secret = 0x4142434445464748,
		 .mem = 0x5152535455565758,
		 .rkey = 0x61626364,
		 .ring_size = 65536,
		 .checksum = true},
};

static const uint8_t golden[] = {
	0x04, 0x03, 0x02, 0x01, 0,    0,    0,	  0,	0xfe, 0x80, 0,
	0,    0,    0,	  0,	0,    0,    0,	  0,	0,    0,    0,
	0,    1,    0x13, 0x12, 0x11, 0,    0x23, 0x22, 0x21, 0,    0x32,
	0x31, 3,    16,	  0x48, 0x47, 0x46, 0x45, 0x44, 0x43, 0x42, 0x41,
	0x58, 0x57, 0x56, 0x55, 0x54, 0x53, 0x52, 0x51, 0x64, 0x63, 0x62,
	0x61, 0,    0,	  1,	0,    1,
};

static size_t encode(const struct stream_section *s, uint8_t *buf)
{
	struct bytes_out out = bytes_out(buf, 128);

	stream_section_put(s, &out);
	assert_false(out.failed);
	return out.pos;
}

static int decode(const uint8_t *buf, size_t len, struct stream_section *s)
{
	struct bytes_in in = bytes_in(buf, len);

	return stream_section_get(&in, s);
}

static void test_golden(void **state)
{
	struct stream_section s = one, back;
	uint8_t buf[128];

	(void)state;
	s.addr.qp.gid.raw[0] = 0xfe;
	s.addr.qp.gid.raw[1] = 0x80;
	s.addr.qp.gid.raw[15] = 1;
	assert_int_equal(encode(&s, buf), sizeof(golden));
	assert_int_equal(sizeof(golden), 8 + STREAM_ADDR_LEN);
	assert_memory_equal(buf, golden, sizeof(golden));
	assert_int_equal(decode(buf, sizeof(golden), &back), 0);
	assert_int_equal(back.number, s.number);
	assert_int_equal(back.addr.secret, s.addr.secret);
	assert_int_equal(back.addr.ring_size, s.addr.ring_size);
	assert_true(back.addr.checksum);
}

static void test_refusals(void **state)
{
	struct stream_section s = one, back;
	uint8_t buf[128];
	size_t len, i;

	(void)state;
	for (i = STREAM_NOBODY; i < STREAM_ANSWERS; i++) {
		s.answer = (enum stream_answer)i;
		len = encode(&s, buf);
		assert_int_equal(len, 8);
		assert_int_equal(decode(buf, len, &back), 0);
		assert_int_equal(back.answer, i);
		assert_int_equal(decode(buf, len + 1, &back), -SKEIN_EPEER);
	}
	buf[4] = STREAM_ANSWERS;
	assert_int_equal(decode(buf, 8, &back), -SKEIN_EPEER);
	len = encode(&one, buf);
	for (i = 0; i < len; i++)
		assert_int_equal(decode(buf, i, &back), -SKEIN_EPEER);
	assert_int_equal(decode(buf, len + 1, &back), -SKEIN_EPEER);
	buf[len - 1] = 2; /* neither with a checksum nor without */
	assert_int_equal(decode(buf, len, &back), -SKEIN_EPEER);
	buf[len - 1] = 1;
	buf[len - 5] = 1; /* a ring of 65537 bytes */
	assert_int_equal(decode(buf, len, &back), -SKEIN_EPEER);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_golden),
		cmocka_unit_test(test_refusals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
