/* SPDX-License-Identifier: MIT */
/*
 * test_stream.c - frames over a socket pair: in pieces of any size, larger than
 * the buffers, past a full socket, and such as must be refused.
 */
#include "base/prng.h"
#include "kv/net/stream.h"

#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

static struct kv_stream a;
static int raw; /* the other end, blocking */

/* A connected pair of TCP sockets: Unix ones know no TCP_NODELAY. */
static int setup(void **state)
{
	struct sockaddr_in sin = {.sin_family = AF_INET};
	socklen_t len = sizeof(sin);
	int l = socket(AF_INET, SOCK_STREAM, 0), fd;

	sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(l, (struct sockaddr *)&sin, len) || listen(l, 1) ||
	    getsockname(l, (struct sockaddr *)&sin, &len))
		return -1;
	fd = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(fd, (struct sockaddr *)&sin, len))
		return -1;
	raw = accept(l, NULL, NULL);
	close(l);
	return kv_stream_init(&a, fd);
}

static int teardown(void **state)
{
	kv_stream_fini(&a);
	close(raw);
	return 0;
}

static void put(uint32_t len, uint32_t seq)
{
	struct kv_frame f = {.len = len, .op = 7, .seq = seq, .aux = ~seq};
	uint8_t *p = kv_stream_reserve(&a, len);

	assert_non_null(p);
	memset(p, (int)seq, len);
	kv_stream_commit(&a, &f);
}

static void check(const struct kv_frame *f, uint32_t len, uint32_t seq)
{
	assert_int_equal(f->len, len);
	assert_int_equal(f->op, 7);
	assert_int_equal(f->seq, seq);
	assert_int_equal(f->aux, ~seq);
	for (uint32_t i = 0; i < len; i++)
		if (f->data[i] != (uint8_t)seq)
			fail_msg("byte %u of frame %u", i, seq);
}

static size_t frame_len(struct prng *rng)
{
	return prng_below(rng, 8) ? prng_below(rng, 2000)
				  : prng_below(rng, 700000);
}

/* What `a` sends comes back in random pieces, and is what was sent. */
static void test_pieces(void **state)
{
	static uint8_t buf[1 << 20];
	struct prng rng, sizes, again;
	uint32_t sent = 0, got = 0;
	size_t have = 0, echoed = 0;

	prng_init(&rng, 5);
	prng_init(&sizes, 6);
	prng_init(&again, 6);
	while (got < 300) {
		struct kv_frame f;
		int rc;

		if (sent < 300 && kv_stream_unsent(&a) < 100000) {
			put((uint32_t)frame_len(&sizes), sent);
			sent++;
		}
		assert_true(kv_stream_send(&a) >= 0);
		if (echoed == have) {
			ssize_t n = recv(raw, buf,
					 1 + prng_below(&rng, sizeof(buf)),
					 MSG_DONTWAIT);

			have = n > 0 ? (size_t)n : 0;
			echoed = 0;
		}
		if (echoed < have) {
			size_t n = 1 + prng_below(&rng, have - echoed);
			ssize_t m = send(raw, buf + echoed, n, MSG_DONTWAIT);

			echoed += m > 0 ? (size_t)m : 0;
		}
		assert_true(kv_stream_recv(&a) >= 0);
		while ((rc = kv_stream_frame(&a, 1 << 20, &f)) > 0) {
			check(&f, (uint32_t)frame_len(&again), got);
			got++;
		}
		assert_int_equal(rc, 0);
	}
}

static void say(const void *bytes, size_t len)
{
	assert_int_equal(send(raw, bytes, len, 0), len);
	while (!kv_stream_recv(&a))
		;
}

static void test_refused(void **state)
{
	struct kv_frame f;

	/* a length past the bound, before its payload has come */
	say("\1\1\0\0\7\0\x56\x4b\0\0\0\0\0\0\0\0", 16);
	assert_int_equal(kv_stream_frame(&a, 256, &f), -EPROTO);
	assert_int_equal(kv_stream_frame(&a, 257, &f), 0);
	/* another mark */
	teardown(NULL);
	assert_int_equal(setup(NULL), 0);
	say("\0\0\0\0\7\0\x56\x4c\0\0\0\0\0\0\0\0", 16);
	assert_int_equal(kv_stream_frame(&a, 256, &f), -EPROTO);
}

static void test_end(void **state)
{
	struct kv_frame f;
	int rc;

	assert_int_equal(kv_stream_recv(&a), 0);
	say("\1\0\0\0\7\0\x56\x4b\2\0\0\0\3\0\0\0x", 17);
	shutdown(raw, SHUT_WR);
	assert_int_equal(kv_stream_frame(&a, 256, &f), 1);
	assert_int_equal(f.seq, 2);
	assert_int_equal(f.aux, 3);
	assert_int_equal(f.data[0], 'x');
	while (!(rc = kv_stream_recv(&a)))
		;
	assert_int_equal(rc, -ECONNRESET);
}

static void test_full_socket(void **state)
{
	static uint8_t buf[1 << 20];
	uint64_t total = 0, taken = 0;
	uint32_t seq = 0;

	while (kv_stream_send(&a) == 0) {
		put(500000, seq++);
		total += 500000 + KV_FRAME_HEAD;
	}
	assert_true(kv_stream_unsent(&a) > 0);
	while (taken < total) {
		ssize_t n = recv(raw, buf, sizeof(buf), MSG_DONTWAIT);

		taken += n > 0 ? (uint64_t)n : 0;
		assert_true(kv_stream_send(&a) >= 0);
	}
	assert_int_equal(kv_stream_unsent(&a), 0);
	assert_int_equal(taken, total);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_pieces, setup, teardown),
		cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(test_end, setup, teardown),
		cmocka_unit_test_setup_teardown(test_full_socket, setup,
						teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
