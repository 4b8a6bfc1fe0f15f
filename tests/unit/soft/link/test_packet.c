/* SPDX-License-Identifier: MIT */
/*
 * test_packet.c - packets of the link between hosts: golden bytes, each way of
 * being none, the check value, and docs/protocol/link.md against the tables
 * (argument 1 is the source folder).
 */
#include "unit/cm.h"

#include "dev/soft/link/icrc.h"
#include "dev/soft/link/packet.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

static const char *source_dir;

static size_t unhex(const char *hex, uint8_t *out)
{
	size_t n = 0;
	unsigned v;

	for (; *hex; hex += 2, n++) {
		assert_int_equal(sscanf(hex, "%2x", &v), 1);
		out[n] = (uint8_t)v;
	}
	return n;
}

/* What each opcode is on the wire. These bytes may never change. */
static const struct {
	struct packet p;
	const char *head;
} golden[] = {
	{{.op = PACKET_SEND_ONLY_IMM,
	  .solicited = true,
	  .ack_req = true,
	  .qpn = 0x123456,
	  .psn = 0xabcdef,
	  .payload_len = 5,
	  .imm = 0x44332211},
	 "05f0ffff0012345680abcdef11223344"},
	{{.op = PACKET_SEND_MIDDLE, .qpn = 1, .psn = 2, .payload_len = 1024},
	 "0140ffff0000000100000002"},
	{{.op = PACKET_WRITE_FIRST,
	  .qpn = 0x11,
	  .psn = 0xffffff,
	  .va = 0x1122334455667788,
	  .rkey = 0xa1b2c3d4,
	  .len = 0x10000,
	  .payload_len = 4096},
	 "0640ffff0000001100ffffff1122334455667788a1b2c3d400010000"},
	{{.op = PACKET_WRITE_ONLY_IMM,
	  .ack_req = true,
	  .qpn = 0x11,
	  .psn = 1,
	  .va = 0x10,
	  .rkey = 2,
	  .len = 4,
	  .imm = 0x78563412,
	  .payload_len = 4},
	 "0b40ffff00000011800000010000000000000010000000020000000412345678"},
	{{.op = PACKET_READ_REQUEST,
	  .qpn = 0x11,
	  .psn = 1,
	  .va = 0x10,
	  .rkey = 2,
	  .len = 0x80000000},
	 "0c40ffff0000001100000001000000000000001000000002"
	 "80000000"},
	{{.op = PACKET_READ_LAST,
	  .qpn = 3,
	  .psn = 4,
	  .syndrome = 0x1f,
	  .msn = 0x010203,
	  .payload_len = 3},
	 "0f50ffff00000003000000041f010203"},
	{{.op = PACKET_ACK, .qpn = 3, .psn = 4, .syndrome = 0x60, .msn = 9},
	 "1140ffff000000030000000460000009"},
	{{.op = PACKET_ATOMIC_ACK,
	  .qpn = 3,
	  .psn = 4,
	  .syndrome = 0x1f,
	  .msn = 9,
	  .orig = 0x0102030405060708},
	 "1240ffff00000003000000041f0000090102030405060708"},
	{{.op = PACKET_CMP_SWAP,
	  .qpn = 3,
	  .psn = 4,
	  .va = 0x1000,
	  .rkey = 5,
	  .swap = 6,
	  .compare = 7},
	 "1340ffff0000000300000004000000000000100000000005"
	 "00000000000000060000000000000007"},
	{{.op = PACKET_FETCH_ADD,
	  .qpn = 3,
	  .psn = 4,
	  .va = 0x1000,
	  .rkey = 5,
	  .swap = 6},
	 "1440ffff0000000300000004000000000000100000000005"
	 "00000000000000060000000000000000"},
	{{.op = PACKET_SEND_LAST_INV,
	  .ack_req = true,
	  .qpn = 3,
	  .psn = 4,
	  .rkey = 0xa1b2c3d4,
	  .payload_len = 6},
	 "1660ffff0000000380000004a1b2c3d4"},
	{{.op = 0x2a, /* RDMA WRITE Only of UC */
	  .qpn = 0x11,
	  .psn = 1,
	  .va = 0x10,
	  .rkey = 2,
	  .len = 4,
	  .payload_len = 4},
	 "2a40ffff0000001100000001000000000000001000000002"
	 "00000004"},
	{{.op = 0x65, /* SEND Only with Immediate of UD */
	  .solicited = true,
	  .qpn = 0x11,
	  .psn = 1,
	  .qkey = 0x11111111,
	  .src_qp = 0x22,
	  .imm = 0x78563412,
	  .payload_len = 3},
	 "65d0ffff0000001100000001111111110000002212345678"},
	{{.op = PACKET_CNP, .becn = true, .qpn = 0x11},
	 "8140ffff400000110000000000000000000000000000000000000000"},
};

static void same(const struct packet *a, const struct packet *b)
{
	assert_int_equal(a->op, b->op);
	assert_int_equal(a->solicited, b->solicited);
	assert_int_equal(a->ack_req, b->ack_req);
	assert_int_equal(a->qpn, b->qpn);
	assert_int_equal(a->psn, b->psn);
	assert_true(a->va == b->va && a->rkey == b->rkey && a->len == b->len);
	assert_true(a->swap == b->swap && a->compare == b->compare);
	assert_true(a->qkey == b->qkey && a->src_qp == b->src_qp);
	assert_int_equal(a->syndrome, b->syndrome);
	assert_int_equal(a->becn, b->becn);
	assert_int_equal(a->msn, b->msn);
	assert_true(a->orig == b->orig && a->imm == b->imm);
	assert_int_equal(a->payload_len, b->payload_len);
}

static void test_golden(void **state)
{
	uint8_t buf[PACKET_MAX], want[64];
	struct packet back;
	size_t head, pad;

	for (size_t i = 0; i < sizeof(golden) / sizeof(golden[0]); i++) {
		const struct packet *p = &golden[i].p;

		memset(buf, 0, sizeof(buf));
		pad = packet_encode(buf, p);
		head = unhex(golden[i].head, want);
		assert_int_equal(head, packet_head_len(p->op));
		assert_memory_equal(buf, want, head);
		assert_int_equal((p->payload_len + pad) % 4, 0);
		assert_int_equal(packet_decode(buf, head + p->payload_len + pad,
					       &back),
				 PACKET_OK);
		same(p, &back);
		assert_true(back.payload == buf + head);
		/* any length less is no packet, or another payload */
		for (size_t n = 0; n < head; n++)
			assert_int_equal(packet_decode(buf, n, &back),
					 PACKET_SHORT);
	}
}

static void test_faults(void **state)
{
	struct packet p = {.op = PACKET_ACK}, got;
	uint8_t buf[PACKET_MAX + 8] = {0};

	packet_encode(buf, &p);
	assert_int_equal(packet_decode(buf, 16, &got), PACKET_OK);
	assert_int_equal(packet_decode(buf, 20, &got), PACKET_LONG);
	buf[1] |= 0x30;
	assert_int_equal(packet_decode(buf, 16, &got), PACKET_PAD);
	buf[1] = 0x41;
	assert_int_equal(packet_decode(buf, 16, &got), PACKET_VERSION);
	buf[1] = 0;
	assert_int_equal(packet_decode(buf, 16, &got), PACKET_OK); /* MigReq */
	buf[2] = 0x7f;
	assert_int_equal(packet_decode(buf, 16, &got), PACKET_OK); /* limited */
	buf[3] = 0xfe;
	assert_int_equal(packet_decode(buf, 16, &got), PACKET_KEY);
	buf[3] = 0xff;
	for (unsigned op = PACKET_OPS; op < 256; op++) {
		if ((op >= 0x20 && op <= 0x2b) || op == 0x64 || op == 0x65 ||
		    op == PACKET_CNP)
			continue;
		buf[0] = (uint8_t)op;
		assert_int_equal(packet_decode(buf, 64, &got), PACKET_OPCODE);
	}
	buf[0] = PACKET_SEND_ONLY;
	assert_int_equal(packet_decode(buf, 12 + 4096, &got), PACKET_OK);
	assert_int_equal(packet_decode(buf, 12 + 4100, &got), PACKET_LONG);
	assert_int_equal(packet_decode(buf, 12 + 5, &got), PACKET_PAD);
	buf[1] = 0x30;
	assert_int_equal(packet_decode(buf, 12, &got), PACKET_PAD);
	assert_int_equal(packet_decode(buf, 12 + 4, &got), PACKET_OK);
	assert_int_equal(got.payload_len, 1);
}

static struct icrc_flow flow4(uint16_t sport)
{
	return (struct icrc_flow){
		.src = {[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 1},
		.dst = {[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 2},
		.sport = htons(sport),
		.dport = htons(PACKET_UDP_PORT)};
}

/* A SEND of "hello!!!" from 10.0.0.1 to 10.0.0.2; the values were computed
 * beside this code, by zlib over bytes laid out by hand. */
static const char hello[] = "0440ffff00000012800000ab68656c6c6f212121";

static void test_icrc(void **state)
{
	struct icrc_flow f = flow4(4791), g = flow4(49152);
	uint8_t buf[64], want[4];
	size_t n = unhex(hello, buf);

	icrc_put(&f, 0, buf, n);
	unhex("9db4512d", want);
	assert_memory_equal(buf + n, want, 4);
	assert_true(icrc_check(&f, buf, n + 4));
	assert_false(icrc_check(&g, buf, n + 4));
	/* an identification that the receiver does not see */
	unhex("3414be55", buf + n);
	assert_true(icrc_check(&g, buf, n + 4));
	assert_false(icrc_check(&f, buf, n + 4));
	/* ECN marks do not count */
	buf[4] = 0xc0;
	assert_true(icrc_check(&g, buf, n + 4));
	buf[5] ^= 1;
	assert_false(icrc_check(&g, buf, n + 4));
	for (n = 0; n < 16; n++)
		assert_false(icrc_check(&g, buf, n));
}

/* Every identification passes, at any length; nearly nothing else does. */
static void test_icrc_solves(void **state)
{
	static uint8_t buf[PACKET_MAX];
	struct icrc_flow f = flow4(50000);
	unsigned passed = 0, i, j;
	uint32_t crc;
	uint16_t id;
	size_t n;

	for (n = PACKET_BTH; n <= PACKET_MAX - 4; n += 4 * (1 + n / 16)) {
		for (i = 0; i < n; i++)
			buf[i] = (uint8_t)(i * 37 + n);
		for (i = 0; i < 65536; i += 251) {
			crc = icrc_of(&f, (uint16_t)i, buf, n);
			for (j = 0; j < 4; j++)
				buf[n + j] = (uint8_t)(crc >> (8 * j));
			assert_true(icrc_check(&f, buf, n + 4));
			/* from any guess */
			id = (uint16_t)(i * 3 + n);
			assert_true(icrc_solve(&f, &id, buf, n + 4));
			assert_int_equal(id, i);
			/* one bit of the packet beside the identification */
			buf[i % n] ^= (uint8_t)(1 << i % 8);
			if (i % n != 4)
				passed += icrc_check(&f, buf, n + 4);
			buf[i % n] ^= (uint8_t)(1 << i % 8);
		}
	}
	assert_true(passed <= 2);
	/* IPv6 has no identification: nothing to solve for */
	memset(f.dst, 0x20, sizeof(f.dst));
	icrc_put(&f, 0, buf, 64);
	assert_true(icrc_check(&f, buf, 68));
	buf[66] ^= 1;
	assert_false(icrc_check(&f, buf, 68));
}

static void test_psn(void **state)
{
	assert_int_equal(packet_psn_diff(5, 3), 2);
	assert_int_equal(packet_psn_diff(1, 0xffffff), 2);
	assert_int_equal(packet_psn_diff(0xffffff, 1), -2);
	assert_int_equal(packet_psn_diff(0x800000, 0), -0x800000);
	assert_int_equal(packet_psn_add(0xfffffe, 3), 1);
}

/* "|0x0a|28|RDMA WRITE Only| RETH, payload||": the table of opcodes. Those of UC
 * have a line of their own. */
static void test_page(void **state)
{
	static const struct {
		const char *name;
		unsigned has;
	} parts[] = {
		{"DETH", PACKET_HAS_DETH},
		{" RETH", PACKET_HAS_RETH},
		{"AtomicETH", PACKET_HAS_ATOMIC},
		{" AETH", PACKET_HAS_AETH},
		{"AtomicAckETH", PACKET_HAS_ATOMIC_ACK},
		{"ImmDt", PACKET_HAS_IMM},
		{"IETH", PACKET_HAS_IETH},
		{"payload", PACKET_HAS_PAYLOAD},
		{"CNP", PACKET_HAS_CNP},
	};
	char path[1024], line[512], *rest;
	unsigned op, bytes, rows = 0, ud = 0x64, i;
	FILE *f;

	snprintf(path, sizeof(path), "%s/docs/protocol/link.md", source_dir);
	f = fopen(path, "r");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "| 0x%2x | %u |", &op, &bytes) != 2)
			continue;
		if (rows == PACKET_FETCH_ADD + 1)
			rows++; /* it was given to nothing */
		if (op != PACKET_CNP)
			assert_int_equal(op, rows < PACKET_OPS ? rows : ud++);
		rows++;
		assert_true(packet_has(op));
		assert_int_equal(bytes, packet_head_len(op));
		rest = line;
		for (i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
			assert_int_equal(!!strstr(rest, parts[i].name),
					 !!(packet_has(op) & parts[i].has));
		assert_int_equal(!!strstr(rest, "responder"),
				 !!(packet_has(op) & PACKET_ANSWERS));
	}
	fclose(f);
	assert_int_equal(rows, PACKET_OPS + 3);
	for (op = 0; op <= PACKET_WRITE_ONLY_IMM; op++)
		assert_int_equal(packet_has(0x20 + op), packet_has(op));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_golden),
		cmocka_unit_test(test_faults),
		cmocka_unit_test(test_icrc),
		cmocka_unit_test(test_icrc_solves),
		cmocka_unit_test(test_psn),
		cmocka_unit_test(test_page),
	};

	if (argc < 2)
		return 2;
	source_dir = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
