/* SPDX-License-Identifier: MIT */
/*
 * test_sender.c - packets into the kernel, with the linker's --wrap=sendmmsg:
 * how many calls, which segments and identifications, and what becomes of each
 * error. A socket on 127.0.0.1 takes what was sent.
 */
#include "unit/cm.h"

#include "dev/soft/link/sender.h"
#include "env/env.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
	int calls, singles; /* messages without segments */
	int fail_runs;	    /* errno for messages with segments */
	int fail_all;	    /* for all of them */
	int times;	    /* so often */
} kernel;

static int logged;

static bool has_segments(const struct msghdr *h)
{
	struct cmsghdr *c;

	for (c = CMSG_FIRSTHDR(h); c;
	     c = CMSG_NXTHDR((struct msghdr *)(uintptr_t)h, c))
		if (c->cmsg_level == IPPROTO_UDP)
			return true;
	return false;
}

int __wrap_sendmmsg(int fd, struct mmsghdr *m, unsigned n, int flags);
int __real_sendmmsg(int fd, struct mmsghdr *m, unsigned n, int flags);

int __wrap_sendmmsg(int fd, struct mmsghdr *m, unsigned n, int flags)
{
	int err = has_segments(&m->msg_hdr) ? kernel.fail_runs : 0;

	kernel.calls++;
	if (!err)
		err = kernel.fail_all;
	if (err && kernel.times) {
		kernel.times--;
		errno = err;
		return -1;
	}
	for (unsigned i = 0; i < n; i++)
		kernel.singles += !has_segments(&m[i].msg_hdr);
	return __real_sendmmsg(fd, m, n, flags);
}

struct bed {
	struct skein_env *env;
	struct sender *s;
	struct udp_path path, other;
	int in, out;
};

static void log_line(void *arg, enum env_log_level level, const char *text)
{
	logged++;
}

static int setup(void **state)
{
	struct bed *b = calloc(1, sizeof(*b));
	struct sockaddr_in *to = (void *)&b->path.to;
	socklen_t len = sizeof(*to);

	memset(&kernel, 0, sizeof(kernel));
	logged = 0;
	assert_int_equal(env_real_new(&b->env), 0);
	b->env->log = log_line;
	b->env->log_level = ENV_LOG_INFO;
	b->s = calloc(1, sizeof(*b->s));
	sender_init(b->s, b->env);
	b->in = socket(AF_INET, SOCK_DGRAM, 0);
	b->out = flow_socket(false);
	to->sin_family = AF_INET;
	to->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(b->in, (void *)to, sizeof(*to)), 0);
	assert_int_equal(getsockname(b->in, (void *)to, &len), 0);
	b->path.to_len = sizeof(*to);
	b->path.dev = 1;
	b->path.mtu = 65536;
	memset(b->path.flow.src + 10, 0xff, 2);
	memset(b->path.flow.dst + 10, 0xff, 2);
	memcpy(b->path.flow.src + 12, &to->sin_addr, 4);
	memcpy(b->path.flow.dst + 12, &to->sin_addr, 4);
	b->path.flow.dport = to->sin_port;
	b->other = b->path;
	b->other.flow.sport = 1;
	*state = b;
	return 0;
}

static int teardown(void **state)
{
	struct bed *b = *state;

	close(b->in);
	close(b->out);
	env_real_free(b->env);
	free(b->s);
	free(b);
	return 0;
}

/* A WRITE's packet n, of so many bytes with headers and ICRC. */
static void add(struct bed *b, const struct udp_path *p, uint32_t n, size_t len)
{
	struct packet pkt = {.op = PACKET_WRITE_MIDDLE, .psn = n};
	uint8_t *buf = sender_begin(b->s);

	len -= PACKET_ICRC;
	memset(buf, (int)n, len);
	packet_encode(buf, &pkt);
	sender_add(b->s, b->out, p, len);
}

/* The next packet is n, and has that identification in its ICRC. */
static void expect(struct bed *b, const struct udp_path *p, uint32_t n,
		   size_t len, uint16_t id)
{
	static uint8_t buf[PACKET_MAX];
	struct packet pkt;
	uint32_t crc;
	ssize_t got = recv(b->in, buf, sizeof(buf), MSG_DONTWAIT);

	assert_int_equal(got, len);
	len -= PACKET_ICRC;
	assert_int_equal(packet_decode(buf, len, &pkt), PACKET_OK);
	assert_int_equal(pkt.psn, n);
	crc = icrc_of(&p->flow, id, buf, len);
	for (int i = 0; i < 4; i++)
		assert_int_equal(buf[len + (size_t)i],
				 (uint8_t)(crc >> (8 * i)));
}

static void expect_none(const struct bed *b)
{
	char c;

	assert_int_equal(recv(b->in, &c, 1, MSG_DONTWAIT), -1);
}

/* First, equal ones, a shorter last: one call, three messages at most. */
static void test_runs(void **state)
{
	struct bed *b = *state;
	uint32_t i;

	add(b, &b->path, 0, 1056);
	for (i = 1; i < 9; i++)
		add(b, &b->path, i, 1040);
	add(b, &b->path, 9, 40);
	add(b, &b->path, 10, 40);
	sender_flush(b->s);
	assert_int_equal(kernel.calls, 1);
	assert_int_equal(b->s->sent, 11);
	/* the first packet's run is ended by the shorter one behind it */
	expect(b, &b->path, 0, 1056, 0);
	expect(b, &b->path, 1, 1040, 1);
	for (i = 2; i < 9; i++)
		expect(b, &b->path, i, 1040, (uint16_t)(i - 2));
	expect(b, &b->path, 9, 40, 7);
	expect(b, &b->path, 10, 40, 0);
	expect_none(b);
}

/* One path's packets are no part of another's run. */
static void test_paths(void **state)
{
	struct bed *b = *state;

	add(b, &b->path, 0, 40);
	add(b, &b->other, 1, 40);
	add(b, &b->path, 2, 40);
	sender_flush(b->s);
	assert_int_equal(kernel.calls, 1);
	assert_int_equal(kernel.singles, 3);
	expect(b, &b->path, 0, 40, 0);
	expect(b, &b->other, 1, 40, 0);
	expect(b, &b->path, 2, 40, 0);
}

/* The device takes no segments: nothing is lost, and it is asked once. */
static void falls_back(struct bed *b, int err)
{
	uint32_t i;

	kernel.fail_runs = err;
	kernel.times = 1000;
	for (i = 0; i < 3; i++)
		add(b, &b->path, i, 1040);
	sender_flush(b->s);
	for (i = 0; i < 3; i++)
		expect(b, &b->path, i, 1040, 0);
	assert_int_equal(kernel.times, 999);
	assert_int_equal(logged, 1);
	for (i = 0; i < 3; i++)
		add(b, &b->path, i, 1040);
	sender_flush(b->s);
	for (i = 0; i < 3; i++)
		expect(b, &b->path, i, 1040, 0);
	assert_int_equal(kernel.times, 999);
	assert_int_equal(b->s->sent, 6);
	assert_int_equal(b->s->failed, 0);
	/* another device is another matter */
	kernel.fail_runs = 0;
	kernel.singles = 0;
	b->other.dev = 2;
	add(b, &b->other, 0, 1040);
	add(b, &b->other, 1, 1040);
	sender_flush(b->s);
	assert_int_equal(kernel.singles, 0);
}

static void test_eio(void **state)
{
	falls_back(*state, EIO);
}

static void test_einval(void **state)
{
	falls_back(*state, EINVAL);
}

/* Nothing goes at all: that says nothing of segments. */
static void test_dead_end(void **state)
{
	struct bed *b = *state;

	kernel.fail_all = EINVAL;
	kernel.times = 3;
	add(b, &b->path, 0, 1040);
	add(b, &b->path, 1, 1040);
	sender_flush(b->s);
	assert_int_equal(b->s->failed, 2);
	assert_int_equal(b->s->n_plain, 0);
	assert_int_equal(logged, 0);
	expect_none(b);
}

/* Too long for the route: one line, and what is behind it goes. */
static void test_too_long(void **state)
{
	struct bed *b = *state;

	kernel.fail_runs = EMSGSIZE;
	kernel.times = 2;
	for (int again = 0; again < 2; again++) {
		add(b, &b->path, 0, 1040);
		add(b, &b->path, 1, 1040);
		add(b, &b->other, 2, 1040);
		sender_flush(b->s);
		expect(b, &b->other, 2, 1040, 0);
	}
	expect_none(b);
	assert_int_equal(b->s->failed, 4);
	assert_int_equal(b->s->n_plain, 0);
	assert_int_equal(logged, 1);
}

/* No room for a while: later, not lost, in the same order; for ever: lost. */
static void test_full(void **state)
{
	static const int errs[] = {EAGAIN, ENOBUFS};
	struct bed *b = *state;

	for (int i = 0; i < 2; i++) {
		kernel.fail_all = errs[i];
		kernel.times = 3;
		add(b, &b->path, 0, 1040);
		add(b, &b->path, 1, 1040);
		add(b, &b->other, 2, 1040);
		sender_flush(b->s);
		expect(b, &b->path, 0, 1040, 0);
		expect(b, &b->path, 1, 1040, 1);
		expect(b, &b->other, 2, 1040, 0);
		assert_int_equal(b->s->failed, 0);
	}
	assert_int_equal(b->s->waits, 6);
	kernel.fail_all = ENOBUFS;
	kernel.times = 1 << 30;
	add(b, &b->path, 0, 1040);
	sender_flush(b->s);
	assert_int_equal(b->s->failed, 1);
	assert_int_equal(b->s->n, 0);
	expect_none(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_runs, setup, teardown),
		cmocka_unit_test_setup_teardown(test_paths, setup, teardown),
		cmocka_unit_test_setup_teardown(test_eio, setup, teardown),
		cmocka_unit_test_setup_teardown(test_einval, setup, teardown),
		cmocka_unit_test_setup_teardown(test_dead_end, setup, teardown),
		cmocka_unit_test_setup_teardown(test_too_long, setup, teardown),
		cmocka_unit_test_setup_teardown(test_full, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
