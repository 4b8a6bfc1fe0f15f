/* SPDX-License-Identifier: MIT */
/*
 * test_helper.c - the helper's work, called by the test instead of its thread,
 * with the program's calls at chosen places in between.
 */
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

static int socket_between(int domain, int type, int protocol);

#define socket socket_between
#include "bind/socket/helper.c" /* NOLINT */
#undef socket

static void (*between)(void);

static int socket_between(int domain, int type, int protocol)
{
	void (*fn)(void) = between;

	between = NULL;
	if (fn)
		fn();
	return socket(domain, type, protocol);
}

static int listener, dialled, taken;

/* A connection whose accepting end waits for the helper. */
static void connection(void)
{
	struct sockaddr_in sin = {.sin_family = AF_INET};
	socklen_t len = sizeof(sin);

	assert_int_equal(getsockname(listener, (void *)&sin, &len), 0);
	dialled = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(connect(dialled, (void *)&sin, len), 0);
	taken = accept(listener, NULL, NULL);
	assert_true(taken >= 0);
	sock_track(taken, true);
	pthread_mutex_lock(&st.lock);
	helper_ask(sock_at(taken));
	pthread_mutex_unlock(&st.lock);
}

static void closed(void)
{
	sock_forget(taken);
	close(taken);
	close(dialled);
}

static void another(void)
{
	closed();
	connection();
}

static unsigned meetings_of(const struct helper *h, const struct sock *s)
{
	const struct meeting *m;
	unsigned n = 0;

	for (m = h->meetings; m; m = m->next)
		n += m->s == s;
	return n;
}

/* The connection that the helper is about to take up is closed, and another one
 * comes in its place, and waits too. */
static void test_closed_and_queued_again(void **state)
{
	static struct helper h = {.host_up = true};
	struct sock *s;
	uint64_t deadline;

	(void)state;
	connection();
	s = sock_at(taken);
	between = another;
	take_work(&h);
	assert_ptr_equal(sock_at(taken), s);
	assert_int_equal(atomic_load(&s->mode), SOCK_TCP);
	assert_int_equal(meetings_of(&h, s), 1);
	closed();
	assert_int_equal(meetings_of(&h, s), 0);
	h.host_up = false;
	gather(&h, &deadline);
	assert_null(h.meetings);
	assert_null(st.todo);
}

/* It is closed, and no other comes. */
static void test_closed_before_the_meeting(void **state)
{
	static struct helper h = {.host_up = true};
	uint64_t deadline;

	(void)state;
	connection();
	between = closed;
	take_work(&h);
	h.host_up = false;
	gather(&h, &deadline);
	assert_null(h.meetings);
}

/* --- two helpers, as of two processes -------------------------------------- */

#define LINES 5

static struct helper sides[2]; /* accepting, connecting */
static int fds[LINES][2];

/* One round of a helper's loop. */
static void turn(struct helper *h)
{
	uint64_t deadline;
	unsigned i, n = gather(h, &deadline);

	assert_true(poll(h->fds, n, 0) >= 0);
	for (i = h->host_up ? 3 : 2; i < n; i++)
		if (h->fds[i].revents && h->of[i])
			step(h, h->of[i]);
	/* A process has one host, and here are two of them. */
	if (h->host_up) {
		st.host = &h->peers.host;
		take_bells(h);
	}
}

static void open_line(int line)
{
	struct sockaddr_in sin = {.sin_family = AF_INET};
	socklen_t len = sizeof(sin);
	int i;

	assert_int_equal(getsockname(listener, (void *)&sin, &len), 0);
	fds[line][1] = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(connect(fds[line][1], (void *)&sin, len), 0);
	fds[line][0] = accept(listener, NULL, NULL);
	assert_true(fds[line][0] >= 0);
	for (i = 0; i < 2; i++) {
		sock_track(fds[line][i], !i);
		pthread_mutex_lock(&st.lock);
		helper_ask(sock_at(fds[line][i]));
		pthread_mutex_unlock(&st.lock);
		take_work(&sides[i]);
	}
}

static void close_line(int line)
{
	for (int i = 0; i < 2; i++) {
		if (fds[line][i] < 0)
			continue;
		sock_forget(fds[line][i]);
		close(fds[line][i]);
		fds[line][i] = -1;
	}
}

static bool is_on(int fd)
{
	return atomic_load(&sock_at(fd)->mode) == SOCK_ON;
}

static unsigned qps_of(const struct helper *h)
{
	const struct peer_qp *pq;
	unsigned n = 0;

	for (pq = h->peers.all; pq; pq = pq->next)
		n++;
	return n;
}

static unsigned streams_of(const struct helper *h)
{
	const struct peer_qp *pq;
	unsigned n = 0;

	for (pq = h->peers.all; pq; pq = pq->next)
		n += pq->q->streams;
	return n;
}

static void until_met(int lines)
{
	bool all;

	do {
		turn(&sides[0]);
		turn(&sides[1]);
		all = true;
		for (int i = 0; i < lines; i++)
			all &= is_on(fds[i][0]) && is_on(fds[i][1]);
	} while (!all);
}

static void until_streams(unsigned n)
{
	while (streams_of(&sides[0]) != n || streams_of(&sides[1]) != n) {
		turn(&sides[0]);
		turn(&sides[1]);
	}
}

/* The second line closes: its meeting and its stream end, the first one's stay. */
static void end_second(void)
{
	close_line(1);
	while (sides[0].meetings || sides[1].meetings) {
		turn(&sides[0]);
		turn(&sides[1]);
	}
	until_streams(1);
}

/* All meetings at once: qps QPs, and a stream each. */
static void share(uint32_t qps, unsigned wanted)
{
	int i;

	st.stream.qps = qps;
	memset(sides, 0, sizeof(sides));
	for (i = 0; i < LINES - 1; i++)
		open_line(i);
	until_met(LINES - 1);
	assert_int_equal(qps_of(&sides[0]), wanted);
	assert_int_equal(qps_of(&sides[1]), wanted);
	assert_int_equal(streams_of(&sides[0]), LINES - 1);
	/* One more, when all the QPs are there. */
	open_line(LINES - 1);
	until_met(LINES);
	assert_int_equal(qps_of(&sides[0]), qps ? wanted : LINES);
	assert_int_equal(qps_of(&sides[1]), qps ? wanted : LINES);
	/* What both ends have left is given back; a shared QP stays. */
	for (i = 0; i < LINES; i++)
		close_line(i);
	until_streams(0);
	turn(&sides[0]);
	turn(&sides[1]);
	for (i = 0; i < 2; i++) {
		assert_int_equal(qps_of(&sides[i]), qps ? wanted : 0);
		while (sides[i].peers.all)
			peers_drop(&sides[i].peers, sides[i].peers.all);
		assert_int_equal(sides[i].peers.host.mem, 0);
		stream_host_fini(&sides[i].peers.host);
	}
}

static void test_streams_share(void **state)
{
	(void)state;
	share(1, 1);
	share(2, 2);
	share(0, LINES - 1);
}

/* A QP is for the process at its other end, and for that as long as it works. */
static void test_choice(void **state)
{
	const uint8_t another[MEET_ID_LEN] = {1};
	struct peers *p = &sides[0].peers;
	const uint8_t *id = sides[1].peers.id;
	struct peer_qp *pq;
	bool making;
	int i;

	(void)state;
	st.stream.qps = 1;
	memset(sides, 0, sizeof(sides));
	open_line(0);
	until_met(1);
	pq = peers_choose(p, id, &making);
	assert_non_null(pq);
	assert_false(making);
	assert_ptr_equal(peers_find(p, id, pq->q->qp->qp_num, pq->peer_qpn),
			 pq);
	assert_null(peers_find(p, id, pq->q->qp->qp_num + 1, pq->peer_qpn));
	assert_null(peers_choose(p, another, &making));
	assert_null(peers_find(p, another, pq->q->qp->qp_num, pq->peer_qpn));
	pq->q->broken = -ECONNRESET;
	assert_null(peers_choose(p, id, &making));
	assert_false(making);
	assert_null(peers_find(p, id, pq->q->qp->qp_num, pq->peer_qpn));
	/* It was made to look broken: it ends as others do. */
	pq->q->broken = 0;
	close_line(0);
	until_streams(0);
	turn(&sides[0]);
	turn(&sides[1]);
	for (i = 0; i < 2; i++) {
		while (sides[i].peers.all)
			peers_drop(&sides[i].peers, sides[i].peers.all);
		stream_host_fini(&sides[i].peers.host);
	}
}

/* The meeting of line 0 makes the QP. Line 1 is offered that QP, and its OFFER is
 * read before line 0's DONE. */
static void test_offer_before_done(void **state)
{
	int i;

	(void)state;
	st.stream.qps = 1;
	memset(sides, 0, sizeof(sides));
	open_line(0);
	turn(&sides[0]); /* accepts */
	turn(&sides[0]); /* line 0: HELLO, OFFER */
	open_line(1);
	turn(&sides[1]); /* line 0: OFFER, TAKE */
	turn(&sides[0]); /* line 0: TAKE, DONE */
	turn(&sides[0]); /* line 1: HELLO, OFFER */
	assert_int_equal(sides[1].meetings->step, STEP_OFFER); /* line 1's */
	assert_int_equal(sides[1].meetings->next->step, STEP_DONE);
	for (i = 0; i < 8; i++)
		turn(&sides[i & 1]);
	for (i = 0; i < 2; i++)
		assert_true(is_on(fds[i][0]) && is_on(fds[i][1]));
	assert_int_equal(qps_of(&sides[1]), 1);
	close_line(0);
	close_line(1);
	until_streams(0);
	for (i = 0; i < 2; i++) {
		peers_drop(&sides[i].peers, sides[i].peers.all);
		stream_host_fini(&sides[i].peers.host);
	}
}

/* The program closes its socket at each point of the meeting: the other
 * connections stay, and no stream is left over. */
static void test_closed_in_between(void **state)
{
	unsigned at, side, i;

	(void)state;
	st.stream.qps = 1;
	memset(sides, 0, sizeof(sides));
	open_line(0);
	until_met(1);
	for (side = 0; side < 2; side++)
		for (at = 0; at < 8; at++) {
			open_line(1);
			for (i = 0; i < at; i++)
				turn(&sides[i & 1]);
			sock_forget(fds[1][side]);
			close(fds[1][side]);
			fds[1][side] = -1;
			/* The other end goes on for a while. */
			for (i = 0; i < 8; i++)
				turn(&sides[i & 1]);
			end_second();
			assert_true(is_on(fds[0][0]) && is_on(fds[0][1]));
			assert_int_equal(sides[0].peers.host.garbage, 0);
			assert_int_equal(sides[1].peers.host.garbage, 0);
		}
	close_line(0);
	until_streams(0);
	for (i = 0; i < 2; i++) {
		peers_drop(&sides[i].peers, sides[i].peers.all);
		stream_host_fini(&sides[i].peers.host);
	}
}

static void end_sides(void)
{
	close_line(0);
	until_streams(0);
	for (int i = 0; i < 2; i++) {
		peers_drop(&sides[i].peers, sides[i].peers.all);
		stream_host_fini(&sides[i].peers.host);
	}
}

/* The program of one end closes at each point of the meeting, or before it:
 * the other end's connection has ended, and is not refused. tcp_first: TCP tells
 * the other end before the meeting does; else long after it. */
static void end_at(unsigned at, int side, bool tcp_first)
{
	const struct sock *s = sock_at(fds[1][!side]);
	unsigned i;

	for (i = 0; i < at; i++)
		turn(&sides[i & 1]);
	if (tcp_first)
		shutdown(fds[1][side], SHUT_RDWR);
	else
		sock_forget(fds[1][side]);
	for (i = 0; i < 8; i++)
		turn(&sides[i & 1]);
	if (tcp_first && atomic_load(&s->mode) == SOCK_ON)
		sock_forget(fds[1][side]);
	while (atomic_load(&s->mode) == SOCK_ON) {
		turn(&sides[0]);
		turn(&sides[1]);
	}
	assert_int_equal(atomic_load(&s->mode), SOCK_TCP);
	assert_int_equal(s->tries, 0);
}

static void test_ended(void **state)
{
	unsigned at, how;

	(void)state;
	st.stream.qps = 1;
	memset(sides, 0, sizeof(sides));
	open_line(0);
	until_met(1);
	for (how = 0; how < 4; how++)
		for (at = 0; at < 8; at++) {
			open_line(1);
			end_at(at, how & 1, how & 2);
			end_second();
		}
	end_sides();
}

/* One end stays on TCP from a point of the meeting on, and its program goes on:
 * so does the other end, for good. */
static void test_refused(void **state)
{
	unsigned at, i, side;
	const struct sock *other;

	(void)state;
	st.stream.qps = 1;
	memset(sides, 0, sizeof(sides));
	open_line(0);
	until_met(1);
	for (side = 0; side < 2; side++)
		for (at = 0; at < 8; at++) {
			open_line(1);
			for (i = 0; i < at; i++)
				turn(&sides[i & 1]);
			other = sock_at(fds[1][!side]);
			if (!is_on(fds[1][side])) {
				assert_int_equal(
					sock_refuse(fds[1][side], "dup"), 0);
				while (atomic_load(&other->mode) != SOCK_TIED) {
					turn(&sides[0]);
					turn(&sides[1]);
				}
			}
			end_second();
		}
	end_sides();
}

/* --- the report ------------------------------------------------------------ */

/* A call that moves a byte to a new peer, which is returned. */
static int used(int fd, bool track)
{
	struct sockaddr_in sin = {.sin_family = AF_INET};
	socklen_t len = sizeof(sin);
	struct sock *s;

	assert_int_equal(getsockname(listener, (void *)&sin, &len), 0);
	assert_int_equal(connect(fd, (void *)&sin, len), 0);
	if (track)
		sock_track(fd, false);
	s = sock_at(fd);
	assert_true(sock_begin(s));
	assert_int_equal(sock_done(s, send(fd, "x", 1, 0), NULL), 1);
	return accept(listener, NULL, NULL);
}

/* A connection that is used once, and then reset by its peer. early: known before it is
 * connected, as after a connect() that does not wait. again: it is the second one, and this
 * end has reset the first. The report goes to line. */
static void report_of_reset(bool early, bool again, char *line, size_t len)
{
	const struct sockaddr unspec = {.sa_family = AF_UNSPEC};
	const struct linger hard = {.l_onoff = 1};
	struct pollfd end = {.events = POLLRDHUP};
	int fd = memfd_create("report", MFD_CLOEXEC), peer;
	char name[32];
	ssize_t n;

	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	st.report = name;
	end.fd = socket(AF_INET, SOCK_STREAM, 0);
	if (early)
		sock_track(end.fd, false);
	peer = used(end.fd, !early);
	if (again) {
		assert_int_equal(sock_disconnect(end.fd, sock_at(end.fd),
						 &unspec, sizeof(unspec)),
				 0);
		close(peer);
		peer = used(end.fd, false);
	}
	setsockopt(peer, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
	close(peer);
	assert_int_equal(poll(&end, 1, -1), 1);
	sock_forget(end.fd);
	close(end.fd);
	st.report = NULL;
	n = read(fd, line, len - 1);
	assert_true(n > 0);
	line[n] = '\0';
	close(fd);
}

/* The kernel has forgotten the peer by then. */
static void test_report_names_the_peer(void **state)
{
	struct sockaddr_in sin;
	socklen_t len = sizeof(sin);
	char line[2048], peer[64], *at;
	int i, named;

	(void)state;
	assert_int_equal(getsockname(listener, (void *)&sin, &len), 0);
	snprintf(peer, sizeof(peer), "\"peer\": \"127.0.0.1:%u\"",
		 ntohs(sin.sin_port));
	for (i = 0; i < 4; i++) {
		report_of_reset(i & 1, i & 2, line, sizeof(line));
		named = 0;
		for (at = line; (at = strstr(at, peer)); at++)
			named++;
		if (named != 1 + (i >> 1))
			fail_msg("%d: %s", i, line);
	}
}

static int up(void **state)
{
	struct sockaddr_in sin = {.sin_family = AF_INET};

	(void)state;
	assert_int_equal(env_real_new(&st.env), 0);
	st.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	atomic_store(&st.helper_runs, true);
	st.stream.mem = STREAM_MEM_DEFAULT;
	assert_int_equal(back_listen(), 0);
	listener = socket(AF_INET, SOCK_STREAM, 0);
	sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(listener, (void *)&sin, sizeof(sin)), 0);
	return listen(listener, 8);
}

static int down(void **state)
{
	(void)state;
	atomic_store(&st.on, false);
	close(listener);
	close(st.wake_fd);
	env_real_free(st.env);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_closed_and_queued_again),
		cmocka_unit_test(test_closed_before_the_meeting),
		cmocka_unit_test(test_streams_share),
		cmocka_unit_test(test_choice),
		cmocka_unit_test(test_offer_before_done),
		cmocka_unit_test(test_closed_in_between),
		cmocka_unit_test(test_ended),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_report_names_the_peer),
	};

	return cmocka_run_group_tests(tests, up, down);
}
