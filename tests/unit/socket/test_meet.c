/* SPDX-License-Identifier: MIT */
/*
 * test_meet.c - where two ends of a connection meet, and what they believe.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "bind/socket/meet.h"

static void end4(struct meet_end *end, uint32_t addr, uint16_t port)
{
	struct sockaddr_storage sa = {0};
	struct sockaddr_in *in = (void *)&sa;

	in->sin_family = AF_INET;
	in->sin_addr.s_addr = htonl(addr);
	in->sin_port = htons(port);
	assert_int_equal(meet_end_from(&sa, end), 0);
}

static struct meet_names client_names(void)
{
	struct meet_names names;

	end4(&names.local, 0x7f000001, 40000);
	end4(&names.remote, 0x7f000002, 6379);
	return names;
}

static struct meet_names turned(struct meet_names names)
{
	return (struct meet_names){names.remote, names.local};
}

static void test_where(void **state)
{
	struct meet_names client = client_names(), server = turned(client);
	struct sockaddr_un a, b;
	socklen_t n;

	(void)state;
	n = meet_where(&client, false, &a);
	assert_int_equal(meet_where(&server, true, &b), n);
	assert_memory_equal(&a, &b, n);
	assert_int_equal(a.sun_path[0], 0);
	/* A connection the other way round meets elsewhere. */
	meet_where(&client, true, &b);
	assert_memory_not_equal(&a, &b, n);
	client.local.port++;
	meet_where(&client, false, &b);
	assert_memory_not_equal(&a, &b, n);
}

static void test_mapped(void **state)
{
	struct sockaddr_storage sa = {0};
	struct sockaddr_in6 *in6 = (void *)&sa;
	struct meet_end four, six;

	(void)state;
	end4(&four, 0x7f000001, 80);
	in6->sin6_family = AF_INET6;
	in6->sin6_port = htons(80);
	assert_int_equal(
		inet_pton(AF_INET6, "::ffff:127.0.0.1", &in6->sin6_addr), 1);
	assert_int_equal(meet_end_from(&sa, &six), 0);
	assert_memory_equal(&four, &six, sizeof(four));
	sa.ss_family = AF_UNIX;
	assert_int_equal(meet_end_from(&sa, &six), -EAFNOSUPPORT);
}

static struct meet_offer an_offer(void)
{
	struct meet_offer o = {.names = client_names()};

	o.word = MEET_OFFER;
	o.alone = true;
	memset(o.id, 0xcd, sizeof(o.id));
	o.paired = 0x31323334;
	o.qp.qp.qpn = 0x123456;
	o.qp.qp.psn = 0x654321;
	o.qp.qp.mtu = 5;
	memset(o.qp.qp.gid.raw, 0xab, 16);
	o.qp.recvs = 256;
	o.stream.number = 0x654321;
	o.stream.secret = 0x1122334455667788ull;
	o.stream.mem = 0x7f0000001000ull;
	o.stream.rkey = 0xdeadbeef;
	o.stream.ring_size = 65536;
	o.stream.checksum = true;
	return o;
}

static void test_offer(void **state)
{
	static const uint8_t front[] = {0x74, 0x73, 0x6b, 0x73, 6, 0, 2, 1};
	struct meet_offer o = an_offer(), back;
	uint8_t buf[MEET_OFFER_LEN + 1];
	size_t n;

	(void)state;
	meet_encode(&o, buf);
	assert_memory_equal(buf, front, sizeof(front));
	assert_int_equal(buf[44], 0xcd);
	assert_int_equal(buf[60], 0x34);
	assert_int_equal(buf[64], 0xab);
	assert_int_equal(buf[92] | buf[93] << 8, 256);
	assert_int_equal(buf[116] | buf[117] << 8 | buf[118] << 16, 65536);
	memset(&back, 0, sizeof(back));
	assert_int_equal(meet_decode(buf, MEET_OFFER_LEN, &back), 0);
	assert_memory_equal(&back.names, &o.names, sizeof(o.names));
	assert_int_equal(back.word, MEET_OFFER);
	assert_true(back.alone);
	assert_memory_equal(back.id, o.id, sizeof(o.id));
	assert_int_equal(back.paired, o.paired);
	assert_memory_equal(&back.qp.qp.gid, &o.qp.qp.gid, 16);
	assert_int_equal(back.qp.qp.qpn, o.qp.qp.qpn);
	assert_int_equal(back.qp.qp.psn, o.qp.qp.psn);
	assert_int_equal(back.qp.recvs, 256);
	assert_int_equal(back.stream.number, o.stream.number);
	assert_int_equal(back.stream.secret, o.stream.secret);
	assert_int_equal(back.stream.mem, o.stream.mem);
	assert_int_equal(back.stream.rkey, o.stream.rkey);
	assert_true(back.stream.checksum);
	for (n = 0; n < sizeof(buf); n++)
		if (n != MEET_OFFER_LEN)
			assert_int_equal(meet_decode(buf, n, &back), -EPROTO);
	buf[4] = 1;
	assert_int_equal(meet_decode(buf, MEET_OFFER_LEN, &back),
			 -EPROTONOSUPPORT);
	buf[4] = 6;
	buf[124] = 4;
	assert_int_equal(meet_decode(buf, MEET_OFFER_LEN, &back), -EPROTO);
	buf[124] = 1;
	buf[6] = 6; /* no word */
	assert_int_equal(meet_decode(buf, MEET_OFFER_LEN, &back), -EPROTO);
	buf[6] = 2;
	buf[93] = 0; /* no receives */
	assert_int_equal(meet_decode(buf, MEET_OFFER_LEN, &back), -EPROTO);
	buf[93] = 1;
	buf[116] = 1; /* no power of two */
	assert_int_equal(meet_decode(buf, MEET_OFFER_LEN, &back), -EPROTO);
}

static void test_doubt(void **state)
{
	struct meet_names mine = turned(client_names());
	struct meet_offer o = an_offer();
	struct meet_proof good = {.established = true,
				  .names = client_names(),
				  .netns = 7,
				  .my_netns = 7,
				  .uid = 1000,
				  .my_uid = 1000};
	struct meet_proof p = good;

	(void)state;
	assert_null(meet_refusal(&o, &p, &mine));
	p.uid = 0;
	assert_non_null(meet_refusal(&o, &p, &mine));
	p = good;
	p.established = false;
	assert_non_null(meet_refusal(&o, &p, &mine));
	p = good;
	p.netns = 8;
	assert_non_null(meet_refusal(&o, &p, &mine));
	p = good; /* its own end, or a third one's, for ours */
	p.names = mine;
	assert_non_null(meet_refusal(&o, &p, &mine));
	p.names = client_names();
	p.names.local.port++;
	assert_non_null(meet_refusal(&o, &p, &mine));
	p = good; /* the right socket, with an offer for another connection */
	o.names.remote.port++;
	assert_non_null(meet_refusal(&o, &p, &mine));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_where),
		cmocka_unit_test(test_mapped),
		cmocka_unit_test(test_offer),
		cmocka_unit_test(test_doubt),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
