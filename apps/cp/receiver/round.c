/* SPDX-License-Identifier: MIT */
/*
 * round.c - a round of multicast at a receiver: blocks come in the
 * engine's thread and wait in the group's ring until the worker has written
 * them. See session.h.
 */
#include "cp/receiver/session_state.h"

#include "base/assert.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A group that is through, or that fails, does so by itself: the deadline is
 * for what nobody has thought of. */
#define CLOSE_NS SKEIN_S(600)

static int on_incoming(void *arg, struct skein_mcast *group,
		       const struct skein_mcast_msg *msg,
		       struct skein_mcast_dest *dest)
{
	struct cp_session *s = arg;
	uint64_t bytes =
		cp_round_bytes(&s->round, s->m.stream_len, s->m.block_size);

	/* one message, of just what the round has announced */
	return msg->seq || msg->size != bytes ||
			       msg->block_size != s->m.block_size
		       ? -EPROTO
		       : 0;
}

static int grow_queue(struct cp_session *s)
{
	size_t room = s->q.room ? 2 * s->q.room : 16;
	struct skein_mcast_block *block = malloc(room * sizeof(*block));

	if (!block)
		return -ENOMEM;
	for (size_t i = s->q.head; i != s->q.tail; i++)
		block[i & (room - 1)] = s->q.block[i & (s->q.room - 1)];
	free(s->q.block);
	s->q.block = block;
	s->q.room = room;
	return 0;
}

static int on_block(void *arg, struct skein_mcast *group,
		    const struct skein_mcast_msg *msg,
		    const struct skein_mcast_block *block)
{
	struct cp_session *s = arg;
	int rc;

	pthread_mutex_lock(&s->lock);
	rc = s->q.tail - s->q.head == s->q.room ? grow_queue(s) : 0;
	if (!rc) {
		s->q.block[s->q.tail++ & (s->q.room - 1)] = *block;
		s->q.seq = msg->seq;
		pthread_cond_signal(&s->wake);
	}
	pthread_mutex_unlock(&s->lock);
	return rc ? rc : SKEIN_MCAST_LATER;
}

static void on_done(void *arg, struct skein_mcast *group,
		    const struct skein_mcast_msg *msg, int status)
{
	struct cp_session *s = arg;

	pthread_mutex_lock(&s->lock);
	s->q.done = true;
	if (!s->q.status)
		s->q.status = status;
	pthread_cond_signal(&s->wake);
	pthread_mutex_unlock(&s->lock);
}

static void on_failed(void *arg, struct skein_mcast *group,
		      const struct skein_mcast_failure *why)
{
	struct cp_session *s = arg;

	pthread_mutex_lock(&s->lock);
	s->q.done = true;
	s->q.status = why->err;
	strncpy(s->q.why, why->text, sizeof(s->q.why) - 1);
	pthread_cond_signal(&s->wake);
	pthread_mutex_unlock(&s->lock);
}

static int open_group(struct cp_session *s, struct skein_mcast **group)
{
	const struct cp_round *r = &s->round;
	struct skein_mcast_attr attr = {
		.size = sizeof(attr),
		.number = r->number,
		.members = r->members,
		.count = r->count,
		.rank = r->rank,
		.racks = r->algorithm == SKEIN_MCAST_HYBRID ? r->racks : NULL,
		.algorithm = (enum skein_mcast_algorithm)r->algorithm,
		/* the sums are checked before anything gets its name */
		.flags = SKEIN_MCAST_NO_CHECKSUM,
		.poll_ns = CP_POLL_NS,
		.block_size = s->m.block_size,
		.member_timeout_ns = r->patience_ns,
		.ops = {.incoming = on_incoming,
			.block = on_block,
			.done = on_done,
			.failed = on_failed},
		.arg = s,
	};

	memset(&s->q, 0, sizeof(s->q));
	return s->attr.mcast->open(s->attr.ctx, &attr, group);
}

/* The next block, or false: no more come. A drop ends the wait, too. */
static bool next_block(struct cp_session *s, struct skein_mcast_block *block,
		       uint64_t *seq)
{
	bool have;

	pthread_mutex_lock(&s->lock);
	while (s->q.head == s->q.tail && !s->q.done && !s->dropped)
		pthread_cond_wait(&s->wake, &s->lock);
	have = s->q.head != s->q.tail && !s->dropped;
	*seq = s->q.seq;
	if (have)
		*block = s->q.block[s->q.head++ & (s->q.room - 1)];
	pthread_mutex_unlock(&s->lock);
	return have;
}

static void count_have(struct cp_session *s)
{
	pthread_mutex_lock(&s->lock);
	s->st.have = s->stage.have;
	pthread_mutex_unlock(&s->lock);
}

/* Writes what comes until nothing does. After the first error of the disk the
 * rest is let go. */
static int write_all(struct cp_session *s, struct skein_mcast *group,
		     struct cp_err *err)
{
	uint64_t n = cp_round_blocks(&s->round);
	struct skein_mcast_block block;
	uint64_t seq;
	int rc = 0;

	while (next_block(s, &block, &seq)) {
		if (!rc && block.index >= n)
			rc = cp_fail(err, -EPROTO, "a block too many came");
		if (!rc)
			rc = cp_stage_write(&s->stage,
					    cp_round_block(&s->round,
							   block.index),
					    block.data, err);
		count_have(s);
		s->attr.mcast->block_done(group, seq, block.index, rc);
	}
	return rc;
}

static bool dropped(struct cp_session *s)
{
	bool yes;

	pthread_mutex_lock(&s->lock);
	yes = s->dropped;
	pthread_mutex_unlock(&s->lock);
	return yes;
}

int cp_session_do_round(struct cp_session *s, bool *fatal, struct cp_err *err)
{
	struct skein_mcast *group;
	int rc = open_group(s, &group), closed;

	if (rc) {
		/* blocks may have come before it was over */
		free(s->q.block);
		return cp_fail_sys(err, rc, "joining the group");
	}
	rc = write_all(s, group, err);
	*fatal = rc != 0;
	if (rc)
		s->attr.mcast->abort(group, rc);
	closed = s->attr.mcast->close(group, rc || dropped(s) ? 0 : CLOSE_NS);
	free(s->q.block);
	if (rc)
		return rc;
	if (!closed)
		closed = s->q.status;
	if (closed)
		cp_fail_sys(err, closed, "%s",
			    s->q.why[0] ? s->q.why : "the group");
	return closed;
}
