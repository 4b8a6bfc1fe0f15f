/* SPDX-License-Identifier: MIT */
/*
 * round.c - a round of multicast at the sender: a thread reads the blocks
 * that the group asks for, at the rate that is allowed; this one watches. See
 * state.h.
 */
#include "cp/sender/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define CLOSE_NS SKEIN_S(10)
/* Most that a limited rate may send at once after a pause. */
#define BURST_NS 50000000u

struct sending {
	struct cp_job *job;
	const struct cp_round *round;
	struct skein_mcast *group;
	pthread_t reader;

	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct skein_mcast_block *block; /* that are asked for */
	size_t head, tail, room;	 /* room: a power of two */
	uint64_t seq;
	bool over; /* no more are asked for */
	bool failed;
	int status; /* of the group */
	char why[CP_ERR_MAX];
	uint64_t sent, blocks; /* that were read: bytes, and in how many */

	/* the reader's */
	uint64_t due_ns; /* when the next block may leave */
	int rc;		 /* of reading: the sender's own failure */
	struct cp_err err;
};

static int grow_queue(struct sending *s)
{
	size_t room = s->room ? 2 * s->room : 16;
	struct skein_mcast_block *block = malloc(room * sizeof(*block));

	if (!block)
		return -ENOMEM;
	for (size_t i = s->head; i != s->tail; i++)
		block[i & (room - 1)] = s->block[i & (s->room - 1)];
	free(s->block);
	s->block = block;
	s->room = room;
	return 0;
}

static int on_fill(void *arg, struct skein_mcast *group,
		   const struct skein_mcast_msg *msg,
		   const struct skein_mcast_block *block)
{
	struct sending *s = arg;
	int rc;

	pthread_mutex_lock(&s->lock);
	rc = s->tail - s->head == s->room ? grow_queue(s) : 0;
	if (!rc) {
		s->block[s->tail++ & (s->room - 1)] = *block;
		s->seq = msg->seq;
		pthread_cond_signal(&s->wake);
	}
	pthread_mutex_unlock(&s->lock);
	return rc ? rc : SKEIN_MCAST_LATER;
}

static void on_done(void *arg, struct skein_mcast *group,
		    const struct skein_mcast_msg *msg, int status)
{
	struct sending *s = arg;

	pthread_mutex_lock(&s->lock);
	if (status && !s->failed) {
		s->failed = true;
		s->status = status;
	}
	pthread_mutex_unlock(&s->lock);
}

static void on_failed(void *arg, struct skein_mcast *group,
		      const struct skein_mcast_failure *why)
{
	struct sending *s = arg;

	pthread_mutex_lock(&s->lock);
	s->failed = true;
	s->status = why->err;
	strncpy(s->why, why->text, sizeof(s->why) - 1);
	pthread_mutex_unlock(&s->lock);
}

static bool is_over(struct sending *s)
{
	bool over;

	pthread_mutex_lock(&s->lock);
	over = s->over;
	pthread_mutex_unlock(&s->lock);
	return over;
}

/* Waits until the rate allows so many bytes more. */
static void pace(struct sending *s, uint32_t len)
{
	uint64_t rate = s->job->attr.limit_rate, now = cp_now_ns();

	if (!rate)
		return;
	if (now > s->due_ns + BURST_NS)
		s->due_ns = now - BURST_NS;
	while (now < s->due_ns && !is_over(s)) {
		uint64_t left = s->due_ns - now;

		cp_nap_ns(left < BURST_NS ? left : BURST_NS);
		now = cp_now_ns();
	}
	s->due_ns += (uint64_t)((double)len * 1e9 / (double)rate);
}

static void *reader(void *arg)
{
	struct sending *s = arg;

	for (;;) {
		struct skein_mcast_block block;
		uint64_t seq;
		bool over;

		pthread_mutex_lock(&s->lock);
		while (s->head == s->tail && !s->over)
			pthread_cond_wait(&s->wake, &s->lock);
		over = s->over;
		seq = s->seq;
		if (!over)
			block = s->block[s->head++ & (s->room - 1)];
		pthread_mutex_unlock(&s->lock);
		if (over)
			return NULL;
		pace(s, block.len);
		if (!s->rc)
			s->rc = cp_source_read(&s->job->source,
					       cp_round_block(s->round,
							      block.index),
					       block.data, &s->err);
		pthread_mutex_lock(&s->lock);
		s->sent += block.len;
		s->blocks++;
		pthread_mutex_unlock(&s->lock);
		s->job->attr.mcast->block_done(s->group, seq, block.index,
					       s->rc);
	}
}

static void show(struct sending *s, const struct skein_mcast_stats *st,
		 uint64_t total)
{
	struct cp_job *job = s->job;
	uint64_t done = (uint64_t)st->least_have * job->layout.block_size;
	struct cp_progress p = {
		.what = "sending",
		.done = done < total ? done : total,
		.total = total,
		.receivers = s->round->count - 1,
	};

	if (!job->attr.progress)
		return;
	pthread_mutex_lock(&s->lock);
	p.sent = s->sent;
	pthread_mutex_unlock(&s->lock);
	if (st->slowest && st->slowest < s->round->count)
		p.slowest = s->round->members[st->slowest];
	job->attr.progress(job->attr.arg, &p);
}

/* Until all have all, or the group is over. */
static void watch(struct sending *s, uint64_t total)
{
	struct skein_mcast_stats st = {.size = sizeof(st)};
	uint64_t begun = cp_now_ns();

	for (;;) {
		bool failed;

		pthread_mutex_lock(&s->lock);
		failed = s->failed;
		pthread_mutex_unlock(&s->lock);
		if (failed || s->job->attr.mcast->stats(s->group, &st) ||
		    st.delivered)
			return;
		show(s, &st, total);
		cp_nap_since(begun);
	}
}

static int open_group(struct sending *s)
{
	struct cp_job *job = s->job;
	struct skein_mcast_attr attr = {
		.size = sizeof(attr),
		.number = s->round->number,
		.members = s->round->members,
		.count = s->round->count,
		.racks = s->round->algorithm == SKEIN_MCAST_HYBRID
				 ? s->round->racks
				 : NULL,
		.algorithm = (enum skein_mcast_algorithm)s->round->algorithm,
		/* the sums are checked before anything gets its name */
		.flags = SKEIN_MCAST_NO_CHECKSUM,
		.poll_ns = CP_POLL_NS,
		.block_size = job->layout.block_size,
		.member_timeout_ns = s->round->patience_ns,
		.ops = {.fill = on_fill, .done = on_done, .failed = on_failed},
		.arg = s,
	};

	return job->attr.mcast->open(job->attr.ctx, &attr, &s->group);
}

static void make_round(struct cp_peer *p, struct bytes_out *out, void *arg)
{
	struct cp_round r = *(struct cp_round *)arg;

	for (r.rank = 1; r.rank < r.count; r.rank++)
		if (!strcmp(r.members[r.rank], p->result->addr))
			break;
	cp_put_round(out, p->session, &r);
}

static int tell_members(struct cp_job *job, struct cp_round *r,
			struct cp_peer **members)
{
	struct cp_fan fan = {
		.call = CP_CALL_ROUND,
		.what = "joining the group",
		.req_max = cp_round_len(r),
		.resp_max = 8,
		.make = make_round,
		.arg = r,
	};
	int rc;

	for (size_t i = 0; i < job->n; i++)
		job->peer[i].skip = true;
	for (uint32_t i = 0; i + 1 < r->count; i++)
		members[i]->skip = false;
	rc = cp_fan(job, &fan);
	for (size_t i = 0; i < job->n; i++)
		job->peer[i].skip = false;
	return rc;
}

static void send_stream(struct sending *s)
{
	const struct cp_mcast_ops *mcast = s->job->attr.mcast;
	uint64_t total = cp_round_bytes(s->round, s->job->layout.len,
					s->job->layout.block_size);
	int rc = -pthread_create(&s->reader, NULL, reader, s);
	bool failed;

	if (rc) {
		s->rc = cp_fail(&s->err, rc, "no thread to read in");
		mcast->close(s->group, 0);
		return;
	}
	rc = mcast->send_stream(s->group, total, NULL);
	if (!rc) {
		mcast->finish(s->group);
		watch(s, total);
	}
	/* the reader writes into the group's ring: it goes first */
	pthread_mutex_lock(&s->lock);
	s->over = true;
	failed = s->failed || rc;
	pthread_cond_signal(&s->wake);
	pthread_mutex_unlock(&s->lock);
	pthread_join(s->reader, NULL);
	mcast->close(s->group, failed ? 0 : CLOSE_NS);
	s->job->totals.bytes_sent += s->sent;
	s->job->totals.blocks_sent += s->blocks;
}

int cp_job_round(struct cp_job *job, struct cp_round *r,
		 struct cp_peer **members)
{
	struct sending s = {
		.job = job,
		.round = r,
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.wake = PTHREAD_COND_INITIALIZER,
	};
	int rc;

	r->round = ++job->totals.rounds;
	r->algorithm = job->attr.algorithm;
	r->patience_ns = job->attr.patience_ns;
	if (getrandom(&r->number, sizeof(r->number), 0) < 0)
		r->number = r->round;
	rc = tell_members(job, r, members);
	if (rc)
		return rc;
	rc = open_group(&s);
	if (!rc)
		send_stream(&s);
	/* a receiver's failure shows in its status, which is asked for next;
	 * ours ends the job */
	if (s.rc)
		rc = cp_fail(job->err, s.rc, "%s", s.err.text);
	else
		rc = 0;
	free(s.block);
	return rc;
}
