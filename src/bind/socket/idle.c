/* SPDX-License-Identifier: MIT */
/*
 * idle.c - finds connections that no byte passes. Each is looked at four times in
 * st.idle_ns, so it goes a quarter of that late at the most.
 */
#include "bind/socket/idle.h"

#include "bind/socket/back.h"
#include "bind/socket/sock.h"
#include "env/env.h"

#define SLICE 128	  /* descriptors under one hold of the lock */
#define PAUSE_NS 1000000u /* between slices: the way back of these goes first */

void idle_watch(void)
{
	if (!st.idle_ns || st.watched)
		return;
	st.watched = true;
	env_bell(st.wake_fd);
}

static uint64_t bytes_of(const struct sock *s)
{
	const struct status_row *row = sock_row(s);

	return row->rx_stream + row->tx_stream + row->rx_tcp + row->tx_tcp;
}

/* Bytes that nobody has taken yet, and half a connection, stay as they are. */
static bool is_quiet(struct sock *s)
{
	const struct stream_arrival *ahead = stream_in_ahead(&s->stream->in);

	return !s->stream->broken && !s->stream->back.on && !s->wr_shut &&
	       !s->blocked && !ahead->end &&
	       ahead->bytes == s->stream->in.bytes;
}

static void look(struct sock *s, uint64_t now_ns)
{
	uint64_t bytes = bytes_of(s);

	if (!s->idle_ns || bytes != s->idle_bytes || !is_quiet(s)) {
		s->idle_bytes = bytes;
		s->idle_ns = now_ns;
		return;
	}
	if (now_ns - s->idle_ns >= st.idle_ns)
		back_start(s, "it was idle", true);
}

/* True: that was the last slice. */
static bool look_at_some(struct idle *idle, uint64_t now_ns)
{
	int end = idle->at + SLICE;
	bool last;

	pthread_mutex_lock(&st.lock);
	if (!idle->at)
		st.watched = false;
	last = end >= st.fd_top;
	for (; idle->at < end && idle->at < st.fd_top; idle->at++) {
		struct sock *s = atomic_load(&st.socks[idle->at]);

		if (!s || atomic_load(&s->mode) != SOCK_ON)
			continue;
		st.watched = true;
		look(s, now_ns);
	}
	pthread_mutex_unlock(&st.lock);
	return last;
}

uint64_t idle_round(struct idle *idle, uint64_t now_ns)
{
	bool watched;

	if (!st.idle_ns)
		return UINT64_MAX;
	if (!idle->due_ns) {
		pthread_mutex_lock(&st.lock);
		watched = st.watched;
		pthread_mutex_unlock(&st.lock);
		if (!watched)
			return UINT64_MAX;
		idle->due_ns = now_ns + 1;
	}
	if (now_ns < idle->due_ns)
		return idle->due_ns;
	if (!look_at_some(idle, now_ns)) {
		idle->due_ns = now_ns + PAUSE_NS;
		return idle->due_ns;
	}
	idle->at = 0;
	pthread_mutex_lock(&st.lock);
	watched = st.watched;
	pthread_mutex_unlock(&st.lock);
	idle->due_ns = watched ? now_ns + st.idle_ns / 4 + 1 : 0;
	return watched ? idle->due_ns : UINT64_MAX;
}
