/* SPDX-License-Identifier: MIT */
/*
 * ends.c - both ends of a connection, and what the helper would do for them.
 */
#include "unit/socket/ends.h"

#include "bind/socket/back.h"
#include "bind/socket/set.h"
#include "bind/socket/wait.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct end ends[2];
struct stream_pair ends_pair;
static struct skein_env *env;

/* --- what the helper's thread would do ----------------------------------- */

void helper_ask(struct sock *s)
{
	(void)s;
	fail();
}

void helper_free(struct stream *stream)
{
	stream_leave(stream);
}

void meeting_drop(struct meeting *m, bool refuses)
{
	(void)m;
	fail();
}

int names_of(int fd, struct meet_names *names)
{
	(void)fd;
	(void)names;
	return -EINVAL;
}

void report_with(const struct sock *s, char *buf, size_t len)
{
	(void)s;
	snprintf(buf, len, " with a peer");
}

void report_line(struct sock *s)
{
	(void)s;
}

void ends_bury(void)
{
	uint64_t end = state_now_ns() + ENDS_WAIT_NS;

	pthread_mutex_lock(&st.lock);
	while ((!list_empty(&ends_pair.qp[0]->left) ||
		!list_empty(&ends_pair.qp[1]->left)) &&
	       state_now_ns() < end)
		stream_pair_poll(&ends_pair);
	pthread_mutex_unlock(&st.lock);
}

int end_mode(const struct end *e)
{
	return atomic_load(&e->s->mode);
}

void end_step(struct end *e)
{
	struct stream *heard;
	struct stream_qp *q;
	struct set *set;

	if (e->closed)
		return;
	pthread_mutex_lock(&st.lock);
	if (e->s->stream) {
		q = e->s->stream->qp;
		stream_qp_poll(q);
		while ((heard = stream_qp_woken(q))) {
			set = heard == e->s->stream ? wait_hear(e->s) : NULL;
			if (set)
				set_wake(set);
		}
		if (end_mode(e) == SOCK_TCP && e->s->stream &&
		    stream_peer_stopped(e->s->stream))
			sock_unprepare(e->s);
	}
	/* Of a socket that is not on its way it asks what the peer says. */
	back_step(e->s);
	pthread_mutex_unlock(&st.lock);
}

bool end_promote(struct end *e)
{
	struct stream *its = ends[e == ends].s->stream;
	uint64_t end = state_now_ns() + ENDS_WAIT_NS;
	bool on;

	pthread_mutex_lock(&st.lock);
	on = sock_commit(e->s);
	/* The first WRITE of a QP may wait for the peer's. */
	while (on && its && !stream_accepted(its) && state_now_ns() < end) {
		stream_pair_poll(&ends_pair);
	}
	pthread_mutex_unlock(&st.lock);
	return on;
}

void end_hand_back(struct end *e)
{
	pthread_mutex_lock(&st.lock);
	back_start(e->s, "the test", false);
	pthread_mutex_unlock(&st.lock);
}

bool end_rests(const struct end *e)
{
	return end_mode(e) == SOCK_TCP && !e->s->stream && e->s->rests;
}

/* On TCP for good. One that had shut down before it was promoted counts as
 * ended. */
static bool is_back(const struct end *e)
{
	return end_mode(e) == SOCK_TIED ||
	       (end_mode(e) == SOCK_TCP && !e->s->stream &&
		(e->shut || ends[e == ends].shut) &&
		atomic_load(&e->s->next_try) == UINT_MAX);
}

bool ends_are_back(void)
{
	return is_back(&ends[0]) && is_back(&ends[1]);
}

void ends_go_back(void)
{
	uint64_t end = state_now_ns() + ENDS_WAIT_NS;
	int i;

	for (i = 0; !ends_are_back() && state_now_ns() < end; i++) {
		end_step(&ends[i & 1]);
		ends_bury();
		if (i > 20)
			end_get(&ends[i & 1], ENDS_MUCH);
	}
	assert_true(ends_are_back());
}

/* --- what the program does ----------------------------------------------- */

uint8_t end_byte_at(const struct end *writer, uint64_t at)
{
	uint64_t x = (at + 1) * 0x9e3779b97f4a7c15ull;

	return (uint8_t)(x >> 33) ^ (uint8_t)(writer - ends);
}

uint32_t end_put(struct end *e, uint32_t n)
{
	static uint8_t buf[ENDS_MUCH];
	struct iovec iov = {buf, n};
	ssize_t rc;
	uint32_t i;

	for (i = 0; i < n; i++)
		buf[i] = end_byte_at(e, e->wrote + i);
	do {
		if (sock_begin(e->s))
			rc = sock_done(e->s, send(e->fd, buf, n, MSG_NOSIGNAL),
				       &sock_row(e->s)->tx_tcp);
		else
			rc = sock_send(e->fd, e->s, &iov, 1, MSG_NOSIGNAL);
	} while (rc == SOCK_RETRY);
	if (rc < 0) {
		assert_int_equal(errno, EAGAIN);
		return 0;
	}
	e->wrote += (uint64_t)rc;
	return (uint32_t)rc;
}

uint32_t end_get(struct end *e, uint32_t n)
{
	static uint8_t buf[ENDS_MUCH];
	struct end *peer = &ends[e == ends];
	struct iovec iov = {buf, n};
	ssize_t rc, i;

	do {
		if (sock_begin(e->s))
			rc = sock_done(e->s, recv(e->fd, buf, n, 0),
				       &sock_row(e->s)->rx_tcp);
		else
			rc = sock_recv(e->fd, e->s, &iov, 1, 0, NULL);
	} while (rc == SOCK_RETRY);
	if (rc < 0) {
		assert_int_equal(errno, EAGAIN);
		return 0;
	}
	for (i = 0; i < rc; i++)
		if (buf[i] != end_byte_at(peer, e->read + (uint64_t)i))
			fail_msg("end %d: byte %llu", (int)(e - ends),
				 (unsigned long long)e->read +
					 (unsigned long long)i);
	e->read += (uint64_t)rc;
	assert_true(e->read <= peer->wrote);
	e->eof = !rc;
	assert_true(!e->eof || peer->shut || peer->closed);
	return (uint32_t)rc;
}

void end_get_to(struct end *e, uint64_t at, uint32_t piece)
{
	uint64_t end = state_now_ns() + ENDS_WAIT_NS;

	while (e->read < at && state_now_ns() < end)
		end_get(e, piece < at - e->read ? piece
						: (uint32_t)(at - e->read));
	assert_int_equal(e->read, at);
}

void end_get_all(struct end *e)
{
	end_get_to(e, ends[e == ends].wrote, ENDS_MUCH);
}

void end_get_eof(struct end *e)
{
	uint64_t end = state_now_ns() + ENDS_WAIT_NS;

	end_get_all(e);
	while (!e->eof && state_now_ns() < end) {
		uint32_t ready = 0;

		pthread_mutex_lock(&st.lock);
		if (end_mode(e) == SOCK_ON)
			ready = sock_ready(e->s, EPOLLIN);
		pthread_mutex_unlock(&st.lock);
		assert_false(ready & EPOLLERR);
		end_get(e, ENDS_MUCH);
	}
	assert_true(e->eof);
}

void end_shut(struct end *e)
{
	int rc;

	do {
		if (sock_begin(e->s)) {
			rc = shutdown(e->fd, SHUT_WR);
			sock_end(e->s);
		} else {
			rc = sock_shutdown(e->fd, e->s, SHUT_WR);
		}
	} while (rc == SOCK_RETRY);
	assert_int_equal(rc, 0);
	e->shut = true;
}

/* The status page counts the program's bytes, each once, whatever carried it. */
static void count_all(const struct end *e)
{
	const struct status_row *row = sock_row(e->s);

	assert_int_equal(row->tx_tcp + row->tx_stream, e->wrote);
	assert_int_equal(row->rx_tcp + row->rx_stream, e->read);
}

void end_close(struct end *e)
{
	if (e->closed)
		return;
	count_all(e);
	sock_forget(e->fd);
	close(e->fd);
	e->closed = true;
}

void ends_some_bytes(uint32_t n)
{
	int i;

	for (i = 0; i < 2; i++)
		assert_int_equal(end_put(&ends[i], n), n);
	for (i = 0; i < 2; i++)
		end_get_all(&ends[i]);
}

/* --- for each connection ------------------------------------------------- */

static void small(int fd, int buffers)
{
	if (!buffers)
		return;
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffers,
				    sizeof(buffers)),
			 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffers,
				    sizeof(buffers)),
			 0);
}

void ends_prepare(void)
{
	struct stream *two[2];
	int i;

	/* The helper would make larger rings. */
	stream_pair_grows(&ends_pair, 64 << 10, STREAM_RING_MAX, two);
	for (i = 0; i < 2; i++) {
		assert_null(ends[i].s->stream);
		two[i]->user = ends[i].s;
		ends[i].s->stream = two[i];
		ends[i].s->prepared = true;
	}
}

void ends_meet(int buffers)
{
	struct sockaddr_in sin = {.sin_family = AF_INET};
	socklen_t len = sizeof(sin);
	int at = socket(AF_INET, SOCK_STREAM, 0), i;

	memset(ends, 0, sizeof(ends));
	sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	small(at, buffers);
	assert_int_equal(bind(at, (void *)&sin, sizeof(sin)), 0);
	assert_int_equal(listen(at, 1), 0);
	assert_int_equal(getsockname(at, (void *)&sin, &len), 0);
	ends[0].fd = socket(AF_INET, SOCK_STREAM, 0);
	small(ends[0].fd, buffers);
	assert_int_equal(connect(ends[0].fd, (void *)&sin, sizeof(sin)), 0);
	ends[1].fd = accept(at, NULL, NULL);
	assert_true(ends[1].fd >= 0);
	close(at);
	for (i = 0; i < 2; i++) {
		fcntl(ends[i].fd, F_SETFL, O_NONBLOCK);
		sock_track(ends[i].fd, i == 1);
		ends[i].s = sock_at(ends[i].fd);
		assert_non_null(ends[i].s);
	}
	ends_prepare();
}

void ends_part(void)
{
	end_close(&ends[0]);
	end_close(&ends[1]);
	ends_bury();
}

void ends_on_streams(void)
{
	ends_meet(0);
	assert_true(end_promote(&ends[0]) && end_promote(&ends[1]));
}

void ends_in_use(void)
{
	ends_on_streams();
	ends_some_bytes(10);
}

int ends_in_set(struct epoll_event ev)
{
	int epfd = epoll_create1(EPOLL_CLOEXEC);

	ends_meet(0);
	assert_int_equal(
		set_ctl(epfd, EPOLL_CTL_ADD, ends[1].fd, ends[1].s, &ev), 0);
	assert_true(end_promote(&ends[0]) && end_promote(&ends[1]));
	ends_some_bytes(10);
	return epfd;
}

void ends_part_set(int epfd)
{
	ends_part();
	set_forget(epfd);
	close(epfd);
}

/* --- for each program ---------------------------------------------------- */

int ends_up(void (*hook)(struct env_ops *ops))
{
	static struct env_ops ops;

	assert_int_equal(env_real_new(&env), 0);
	if (hook) {
		ops = *env->ops;
		hook(&ops);
		env->ops = &ops;
	}
	stream_pair_up(&ends_pair, env);
	st.env = env;
	st.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	st.after = UINT32_MAX / 2; /* the test promotes */
	return st.wake_fd < 0;
}

int ends_down(void **state)
{
	(void)state;
	/* Where a test failed sockets are left. */
	atomic_store(&st.on, false);
	stream_pair_down(&ends_pair);
	close(st.wake_fd);
	env_real_free(env);
	return 0;
}
