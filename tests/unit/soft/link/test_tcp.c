/* SPDX-License-Identifier: MIT */
/*
 * test_tcp.c - the TCP carrier of the link between two devices of this process:
 * which connection there is, nothing is sent twice on it, what happens when it
 * breaks, and what strangers do to the port. In a network namespace of its own
 * where that is allowed: the port is nobody else's then.
 */
#include "key_file.h"
#include "rig.h"

#include "dev/soft/link/seal.h"
#include "dev/soft/link/state.h"
#include "dev/soft/qp/qp.h"
#include "unit/patience.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define LEN (1u << 20)
#define FDS 1024
#define HALF (RIG_MEM / 2)

static struct rig_end a, b;
static bool alone; /* on the port */

/* A machine with other work is not a dead peer. */
static const struct rig_opts patient = {.qp = {.timeout = 18, .retry_cnt = 7}};

static void go_alone(void)
{
	struct ifreq r = {.ifr_name = "lo", .ifr_flags = IFF_UP};
	int fd;

	if (unshare(CLONE_NEWUSER | CLONE_NEWNET))
		return;
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	alone = fd >= 0 && !ioctl(fd, SIOCSIFFLAGS, &r);
	/* a connection carries any path MTU */
	r.ifr_mtu = 1500;
	alone = alone && !ioctl(fd, SIOCSIFMTU, &r);
	close(fd);
}

static int up(void **state)
{
	(void)state;
	setenv("SKEIN_LINK", "tcp", 1);
	rig_pair(&a, &b, &patient);
	return 0;
}

static int down(void **state)
{
	(void)state;
	rig_unpair(&a, &b);
	return 0;
}

static struct soft_link_qp *link_of(struct rig_end *e)
{
	return soft_qp_of(e->qp)->link;
}

static struct tcp_counts counts_of(struct rig_end *e)
{
	struct soft *s = soft_of_dev(e->dev);
	struct tcp_counts c;

	pthread_mutex_lock(&s->lock);
	c = *tcp_counts(s->link->tcp);
	pthread_mutex_unlock(&s->lock);
	return c;
}

static uint64_t again_of(struct rig_end *e)
{
	struct soft *s = soft_of_dev(e->dev);
	struct rc *r = &link_of(e)->rc;
	uint64_t n;

	pthread_mutex_lock(&s->lock);
	soft_qp_hold(soft_qp_of(e->qp));
	n = r->retries + r->gaps + r->rnrs + r->drops[RC_DROP_REPEATED] +
	    r->drops[RC_DROP_GAP];
	soft_qp_release(soft_qp_of(e->qp));
	pthread_mutex_unlock(&s->lock);
	return n;
}

static bool is_port(const struct sockaddr_in *in)
{
	return in->sin_family == AF_INET && ntohs(in->sin_port) == 4791;
}

/* Connections of this process on the port, both ends counted; cut: they end. */
static unsigned ends(bool cut)
{
	unsigned n = 0;
	int fd;

	for (fd = 3; fd < FDS; fd++) {
		struct sockaddr_in here, there;
		socklen_t len = sizeof(here), len2 = sizeof(there);
		int type = 0;
		socklen_t tl = sizeof(type);

		if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &tl) ||
		    type != SOCK_STREAM ||
		    getsockname(fd, (struct sockaddr *)&here, &len) ||
		    getpeername(fd, (struct sockaddr *)&there, &len2) ||
		    (!is_port(&here) && !is_port(&there)))
			continue;
		n++;
		if (cut)
			shutdown(fd, SHUT_RDWR);
	}
	return n;
}

static bool has_conn(void *arg)
{
	struct rig_end *e = arg;
	struct soft *s = soft_of_dev(e->dev);
	bool is;

	pthread_mutex_lock(&s->lock);
	is = link_of(e)->conn != NULL;
	pthread_mutex_unlock(&s->lock);
	return is;
}

static bool one_connection(void *arg)
{
	(void)arg;
	return has_conn(&a) && has_conn(&b) && ends(false) == 2;
}

static bool has_bulk(struct rig_end *e, bool out)
{
	struct soft *s = soft_of_dev(e->dev);
	bool is;

	pthread_mutex_lock(&s->lock);
	soft_qp_hold(soft_qp_of(e->qp));
	is = out ? link_of(e)->out_bulk : link_of(e)->bulk != NULL;
	soft_qp_release(soft_qp_of(e->qp));
	pthread_mutex_unlock(&s->lock);
	return is;
}

/* The second one, for long messages, too. */
static bool two_connections(void *arg)
{
	(void)arg;
	return has_bulk(&a, false) && has_bulk(&b, false) && ends(false) == 4;
}

static bool four_ends(void *arg)
{
	(void)arg;
	return ends(false) == 4;
}

static void write_to(struct rig_end *from, struct rig_end *to, uint64_t id,
		     size_t at, uint32_t len)
{
	assert_int_equal(rig_post(from, IBV_WR_RDMA_WRITE, id, from->buf + at,
				  len, (uintptr_t)to->buf + at,
				  to->mem->mr->rkey, IBV_SEND_SIGNALED),
			 0);
}

static void test_one(void **state)
{
	unsigned i;

	(void)state;
	rig_until(one_connection, NULL);
	for (i = 0; i < LEN; i++)
		a.buf[i] = (char)(i * 7 ^ i >> 11);
	for (i = 0; i < 8; i++)
		write_to(&a, &b, i, 0, LEN);
	for (i = 0; i < 8; i++)
		rig_expect(&a, i, IBV_WC_SUCCESS);
	assert_memory_equal(a.buf, b.buf, LEN);
	memset(a.buf, 0, LEN);
	assert_int_equal(rig_post(&a, IBV_WR_RDMA_READ, 9, a.buf, LEN,
				  (uintptr_t)b.buf, b.mem->mr->rkey,
				  IBV_SEND_SIGNALED),
			 0);
	rig_expect(&a, 9, IBV_WC_SUCCESS);
	assert_memory_equal(a.buf, b.buf, LEN);
	assert_int_equal(link_of(&a)->rc.mtu, 4096);
	/* nothing twice */
	assert_int_equal(again_of(&a) - link_of(&a)->rc.retries, 0);
	assert_int_equal(again_of(&b) - link_of(&b)->rc.retries, 0);
}

/* A message above 64 KiB goes by a connection of its own, from the second one
 * on; a short one that finds nothing on its way does not. The second connection
 * breaks: nothing is lost, and there is another one. */
static void test_bulk(void **state)
{
	unsigned i, n = 0;

	(void)state;
	write_to(&a, &b, n++, 0, LEN);
	rig_expect(&a, n - 1, IBV_WC_SUCCESS);
	rig_until(two_connections, NULL);
	for (i = 0; i < 6; i++) {
		memset(a.buf, (int)i + 1, LEN);
		write_to(&a, &b, n++, 0, 65536);
		rig_expect(&a, n - 1, IBV_WC_SUCCESS);
		assert_false(has_bulk(&a, true));
		write_to(&a, &b, n++, 0, 65537);
		write_to(&a, &b, n++, 0, LEN);
		write_to(&a, &b, n++, 8, 8);
		if (i == 3)
			ends(true);
		rig_expect(&a, n - 3, IBV_WC_SUCCESS);
		rig_expect(&a, n - 2, IBV_WC_SUCCESS);
		rig_expect(&a, n - 1, IBV_WC_SUCCESS);
		assert_memory_equal(a.buf, b.buf, LEN);
		if (i < 3) {
			assert_true(has_bulk(&a, true));
			assert_false(has_bulk(&b, true));
		}
	}
	/* asked for again once a second */
	while (!two_connections(NULL)) {
		write_to(&a, &b, n++, 0, LEN);
		rig_expect(&a, n - 1, IBV_WC_SUCCESS);
	}
}

/* Both ways at once, more than the sockets hold. */
static void test_both_ways(void **state)
{
	unsigned i, round;

	(void)state;
	memset(a.buf, 0x5a, HALF);
	memset(b.buf + HALF, 0xa5, HALF);
	for (round = 0; round < 4; round++) {
		for (i = 0; i < 16; i++) {
			write_to(&a, &b, i, 0, HALF);
			write_to(&b, &a, i, HALF, HALF);
		}
		for (i = 0; i < 16; i++) {
			rig_expect(&a, i, IBV_WC_SUCCESS);
			rig_expect(&b, i, IBV_WC_SUCCESS);
		}
	}
	assert_memory_equal(a.buf, b.buf, RIG_MEM);
}

static void add_one(uint64_t id, uint64_t *word)
{
	struct ibv_sge sge = {.addr = (uintptr_t)a.buf + RIG_MEM - 16,
			      .length = 8,
			      .lkey = a.lkey};
	struct ibv_send_wr wr = {.wr_id = id,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;

	wr.wr.atomic.remote_addr = (uintptr_t)word;
	wr.wr.atomic.rkey = b.mem->mr->rkey;
	wr.wr.atomic.compare_add = 1;
	assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
}

/* The connection ends again and again under a stream of additions and writes:
 * each is carried out once. */
static void test_cut(void **state)
{
	uint64_t n = 0;
	unsigned i, round, cuts = 0;
	uint64_t *word = (uint64_t *)(void *)(b.buf + RIG_MEM - 8);

	(void)state;
	*word = 0;
	rig_until(one_connection, NULL);
	for (round = 0; round < 12; round++) {
		memset(a.buf, (int)round + 1, LEN);
		for (i = 0; i < 4; i++) {
			write_to(&a, &b, n++, 0, LEN);
			add_one(n++, word);
			if (i == round % 4)
				cuts += ends(true);
		}
		for (i = 0; i < 8; i++)
			rig_expect(&a, n - 8 + i, IBV_WC_SUCCESS);
		/* the other end's control thread adds */
		assert_int_equal(__atomic_load_n(word, __ATOMIC_SEQ_CST),
				 4 * (round + 1));
		assert_memory_equal(a.buf, b.buf, LEN);
	}
	assert_true(cuts > 0);
	assert_true(counts_of(&a).broken + counts_of(&b).broken > 0);
}

/* Both QPs of one device: it dials itself, and its connection has both ends
 * here. */
static void test_self(void **state)
{
	struct dev_qp_addr one, two;
	struct ibv_qp *other;

	(void)state;
	setenv("SKEIN_LINK", "tcp", 1);
	rig_open(&a, &patient);
	other = rig_qp(&a);
	rig_qp_addr(&a, a.qp, &one);
	rig_qp_addr(&a, other, &two);
	rig_connect_qp(&a, a.qp, &two);
	rig_connect_qp(&a, other, &one);
	a.buf[0] = 7;
	for (unsigned i = 0; i < 8; i++)
		write_to(&a, &a, i, HALF - LEN, LEN);
	for (unsigned i = 0; i < 8; i++)
		rig_expect(&a, i, IBV_WC_SUCCESS);
	rig_until(four_ends, NULL);
	assert_int_equal(counts_of(&a).broken, 0);
	assert_int_equal(a.dev->ops->destroy_qp(a.dev, other), 0);
	rig_close(&a);
}

static void *meet(void *arg)
{
	struct rig_addr *to = arg;

	rig_connect(&b, to);
	return NULL;
}

/* Both go to RTR at once, and both dial: one connection stays. */
static void test_both_dial(void **state)
{
	struct rig_addr aa, ba;
	pthread_t t;
	unsigned i;

	(void)state;
	setenv("SKEIN_LINK", "tcp", 1);
	for (i = 0; i < 10; i++) {
		rig_open(&a, &patient);
		rig_open(&b, &patient);
		rig_addr(&a, &aa);
		rig_addr(&b, &ba);
		assert_int_equal(pthread_create(&t, NULL, meet, &aa), 0);
		rig_connect(&a, &ba);
		pthread_join(t, NULL);
		rig_until(one_connection, NULL);
		write_to(&a, &b, 1, 0, 4096);
		write_to(&b, &a, 2, 8192, 4096);
		rig_expect(&a, 1, IBV_WC_SUCCESS);
		rig_expect(&b, 2, IBV_WC_SUCCESS);
		rig_until(one_connection, NULL);
		rig_unpair(&a, &b);
	}
}

static int stranger(void)
{
	struct sockaddr_in in = {.sin_family = AF_INET,
				 .sin_port = htons(4791),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&in, sizeof(in)), 0);
	return fd;
}

static void closes(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	char buf[64];

	/* an answer may come first */
	do
		patience_met(poll(&p, 1, patience_ms(60)) == 1, 60,
			     "the end of the connection");
	while (recv(fd, buf, sizeof(buf), 0) > 0);
	close(fd);
}

static void says(const void *bytes, size_t len)
{
	int fd = stranger();

	assert_int_equal(send(fd, bytes, len, MSG_NOSIGNAL), (ssize_t)len);
	closes(fd);
}

/* Of a block that neither device has. */
static uint32_t strange_qpn(uint32_t block)
{
	while (block == a.qp->qp_num / SHM_BLOCK_QPS ||
	       block == b.qp->qp_num / SHM_BLOCK_QPS)
		block += 100;
	return block * SHM_BLOCK_QPS;
}

static void hello_from(uint32_t block, struct rig_end *e,
		       uint8_t buf[FRAME_HELLO])
{
	struct frame_hello h = {.kind = FRAME_DIALS,
				.to_qpn = e->qp->qp_num,
				.from_qpn = strange_qpn(block),
				.id = {0xff, 1}};

	frame_hello_encode(buf, &h);
}

static void hello_to(struct rig_end *e, uint8_t buf[FRAME_HELLO])
{
	hello_from(5, e, buf);
}

static void test_strangers(void **state)
{
	static const char http[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
	uint8_t buf[FRAME_HELLO + FRAME_HEAD + 64];
	struct tcp_counts ca, cb;
	struct tcp_conn *conn;
	uint64_t refused;

	(void)state;
	rig_until(one_connection, NULL);
	conn = link_of(&a)->conn;
	/* the first to go to RTR has met nobody */
	refused = counts_of(&a).refused + counts_of(&b).refused;
	memset(buf, 0, sizeof(buf));
	says(http, sizeof(http));
	hello_to(&a, buf);
	buf[4] = 2; /* version */
	says(buf, FRAME_HELLO);
	hello_to(&a, buf);
	buf[8] = FRAME_ANSWERS;
	says(buf, FRAME_HELLO);
	hello_to(&a, buf);
	frame_put(buf + FRAME_HELLO, FRAME_MAX + 1);
	says(buf, FRAME_HELLO + FRAME_HEAD);
	ca = counts_of(&a);
	cb = counts_of(&b);
	if (alone)
		assert_int_equal(ca.garbage + cb.garbage, 4);
	/* nobody has QPN 1 */
	hello_to(&a, buf);
	buf[5] = buf[6] = 0;
	buf[7] = 1;
	says(buf, FRAME_HELLO);
	/* says nothing */
	closes(stranger());
	ca = counts_of(&a);
	cb = counts_of(&b);
	if (alone) {
		assert_int_equal(ca.silent + cb.silent, 1);
		assert_int_equal(ca.refused + cb.refused, refused + 1);
	}
	write_to(&a, &b, 1, 0, LEN);
	rig_expect(&a, 1, IBV_WC_SUCCESS);
	assert_ptr_equal(link_of(&a)->conn, conn);
}

/* Another process says that it has the peer's QPNs. */
static void test_impostor(void **state)
{
	struct frame_hello h = {.kind = FRAME_DIALS, .id = {0xff, 1}};
	uint8_t buf[FRAME_HELLO];

	(void)state;
	rig_until(one_connection, NULL);
	h.to_qpn = a.qp->qp_num;
	h.from_qpn = b.qp->qp_num;
	frame_hello_encode(buf, &h);
	says(buf, sizeof(buf));
	memset(h.id, 0, sizeof(h.id));
	frame_hello_encode(buf, &h);
	says(buf, sizeof(buf));
	write_to(&a, &b, 1, 0, LEN);
	rig_expect(&a, 1, IBV_WC_SUCCESS);
	assert_int_equal(counts_of(&a).broken, 0);
	assert_int_equal(counts_of(&b).broken, 0);
}

static void test_crowd(void **state)
{
	int fd[2 * TCP_UNPROVED + 20];
	uint64_t refused;
	unsigned i, n = sizeof(fd) / sizeof(fd[0]);

	(void)state;
	rig_until(one_connection, NULL);
	refused = counts_of(&a).refused + counts_of(&b).refused;
	for (i = 0; i < n; i++)
		fd[i] = stranger();
	for (i = 0; i < n; i++)
		closes(fd[i]);
	if (alone)
		assert_true(counts_of(&a).refused + counts_of(&b).refused >
			    refused);
	write_to(&a, &b, 1, 0, LEN);
	rig_expect(&a, 1, IBV_WC_SUCCESS);
}

/* The kernel gives connections to either process; each gets its own. */
static void test_handed(void **state)
{
	uint8_t buf[FRAME_HELLO], back[FRAME_HELLO];
	unsigned i;
	int fd[40];

	(void)state;
	rig_until(one_connection, NULL);
	for (i = 0; i < 40; i++) {
		struct frame_hello h;

		fd[i] = stranger();
		hello_from(1 + i, i % 2 ? &a : &b, buf);
		assert_int_equal(send(fd[i], buf, sizeof(buf), 0), FRAME_HELLO);
		assert_int_equal(recv(fd[i], back, sizeof(back), MSG_WAITALL),
				 FRAME_HELLO);
		assert_int_equal(frame_hello_decode(back, sizeof(back), &h),
				 FRAME_OK);
		assert_int_equal(h.kind, FRAME_ANSWERS);
		assert_int_equal(h.from_qpn, (i % 2 ? &a : &b)->qp->qp_num);
	}
	if (alone)
		assert_true(counts_of(&a).handed + counts_of(&b).handed > 0);
	for (i = 0; i < 40; i++)
		close(fd[i]);
}

/* Before a QP needs the port it is nobody's, and where it is told to use
 * datagrams. */
static void test_closed(void **state)
{
	struct sockaddr_in in = {.sin_family = AF_INET,
				 .sin_port = htons(4791),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	unsigned i;
	int fd;

	(void)state;
	if (!alone)
		skip();
	for (i = 0; i < 2; i++) {
		if (i)
			setenv("SKEIN_LINK", "udp", 1);
		else
			unsetenv("SKEIN_LINK");
		rig_pair(&a, &b, &patient);
		write_to(&a, &b, 1, 0, 8);
		rig_expect(&a, 1, IBV_WC_SUCCESS);
		assert_int_equal(!!link_of(&a), i);
		fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		assert_int_equal(
			connect(fd, (struct sockaddr *)&in, sizeof(in)), -1);
		assert_int_equal(errno, ECONNREFUSED);
		close(fd);
		rig_unpair(&a, &b);
	}
}

/* The peer is gone and its host says so: a patient QP does not use up its
 * retries. */
static void test_refused(void **state)
{
	static const struct rig_opts long_ones = {
		.qp = {.timeout = SOFT_LINK_TIMEOUT, .retry_cnt = 7}};
	struct rig_addr to;

	(void)state;
	if (!alone)
		skip();
	setenv("SKEIN_LINK", "tcp", 1);
	rig_pair(&a, &b, &long_ones);
	write_to(&a, &b, 1, 0, 8);
	rig_expect(&a, 1, IBV_WC_SUCCESS);
	rig_addr(&b, &to);
	rig_close(&b);
	assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE, 2, a.buf, 8, to.buf,
				  to.rkey, IBV_SEND_SIGNALED),
			 0);
	rig_expect(&a, 2, IBV_WC_RETRY_EXC_ERR);
	assert_true(link_of(&a)->rc.retries < 7);
	rig_close(&a);
}

#define EACH(f) cmocka_unit_test_setup_teardown(f, up, down)

int main(int argc, char **argv)
{
	const struct CMUnitTest sealed[] = {
		EACH(test_one),
		EACH(test_bulk),
		EACH(test_both_ways),
		EACH(test_cut),
		cmocka_unit_test(test_self),
		cmocka_unit_test(test_both_dial),
	};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_closed),
		EACH(test_one),
		EACH(test_bulk),
		EACH(test_both_ways),
		EACH(test_cut),
		cmocka_unit_test(test_self),
		cmocka_unit_test(test_both_dial),
		EACH(test_strangers),
		EACH(test_impostor),
		EACH(test_crowd),
		EACH(test_handed),
		cmocka_unit_test(test_refused),
	};

	go_alone();
	if (argc > 1 && !strcmp(argv[1], "sealed")) {
		if (!seal_available())
			return 77;
		key_file_use("a key\n");
		return cmocka_run_group_tests(sealed, NULL, NULL);
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
