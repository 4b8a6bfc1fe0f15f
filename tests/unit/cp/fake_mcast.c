/* SPDX-License-Identifier: MIT */
/*
 * fake_mcast.c - a multicast among threads; see fake_mcast.h.
 */
#include "fake_mcast.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
	RING = 4,
};

struct fake_faults fake_faults;
unsigned fake_blocks, fake_members, fake_pollers;
_Atomic unsigned fake_open_s = FAKE_OPEN_S;

struct held {
	struct skein_mcast_block block;
	bool used;
};

/* A membership; the root's carries the group's thread. */
struct skein_mcast {
	struct group *group;
	struct skein_mcast_attr attr;
	unsigned rank;
	struct held held[RING]; /* given away with LATER */
	unsigned holding;
	int later; /* of the root: the status of a fill that was put off */
	bool later_done;
};

struct group {
	struct group *next;
	uint32_t number;
	unsigned count, joined, left;
	struct skein_mcast *member[64];
	bool refused; /* it never begins */
	bool sending, delivered;
	atomic_bool over; /* looked at without the lock too */
	int err;
	pthread_t thread;
	struct skein_mcast_msg msg;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static struct group *groups;

static struct group *find(const struct skein_mcast_attr *attr)
{
	struct group *g;

	for (g = groups; g; g = g->next)
		if (g->number == attr->number)
			return g;
	g = calloc(1, sizeof(*g));
	g->number = attr->number;
	g->count = attr->count;
	g->next = groups;
	groups = g;
	return g;
}

static void drop(struct group *g)
{
	struct group **p = &groups;

	if (++g->left < g->joined)
		return;
	while (*p != g)
		p = &(*p)->next;
	*p = g->next;
	free(g);
}

static int fake_open(struct skein_ctx *ctx, const struct skein_mcast_attr *attr,
		     struct skein_mcast **out)
{
	struct skein_mcast *m = calloc(1, sizeof(*m));
	struct timespec end;
	int rc = 0;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += fake_open_s;
	pthread_mutex_lock(&lock);
	if (!attr->rank && fake_faults.open_times) {
		/* its members fail with it */
		fake_faults.open_times--;
		find(attr)->err = -ETIMEDOUT;
		find(attr)->refused = true;
	}
	m->attr = *attr;
	m->rank = attr->rank;
	m->group = find(attr);
	m->group->member[m->rank] = m;
	m->group->joined++;
	fake_members = attr->count;
	fake_pollers += attr->poll_ns != 1;
	pthread_cond_broadcast(&wake);
	while (m->group->joined < m->group->count && !m->group->err && !rc)
		rc = -pthread_cond_timedwait(&wake, &lock, &end);
	/* the members are those that were there when it began */
	if (!rc && (m->group->refused || m->group->joined < m->group->count))
		rc = m->group->err;
	if (rc) {
		m->group->err = rc;
		pthread_cond_broadcast(&wake);
		drop(m->group);
		free(m);
	} else {
		*out = m;
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

/* Called without the lock. Everybody is told once. */
static void end_group(struct group *g, unsigned rank, int err)
{
	struct skein_mcast_failure why = {err, rank, "", "a member failed"};
	bool over;

	pthread_mutex_lock(&lock);
	over = g->over;
	g->over = true;
	if (!g->err)
		g->err = err;
	pthread_mutex_unlock(&lock);
	if (over)
		return;
	for (unsigned i = 0; i < g->count; i++) {
		struct skein_mcast *m = g->member[i];

		m->attr.ops.failed(m->attr.arg, m, &why);
		if (g->sending)
			m->attr.ops.done(m->attr.arg, m, &g->msg, err);
	}
	pthread_mutex_lock(&lock);
	pthread_cond_broadcast(&wake);
	pthread_mutex_unlock(&lock);
}

static int fill(struct skein_mcast *root, struct skein_mcast_block *block)
{
	int rc;

	root->later_done = false;
	rc = root->attr.ops.fill(root->attr.arg, root, &root->group->msg,
				 block);
	if (rc != SKEIN_MCAST_LATER)
		return rc;
	pthread_mutex_lock(&lock);
	while (!root->later_done)
		pthread_cond_wait(&wake, &lock);
	rc = root->later;
	pthread_mutex_unlock(&lock);
	return rc;
}

/* Waits for a place in the member's ring, and takes it. NULL: the group is
 * over. */
static struct held *place(struct skein_mcast *m)
{
	struct held *h = NULL;

	pthread_mutex_lock(&lock);
	while (m->holding == RING && !m->group->over)
		pthread_cond_wait(&wake, &lock);
	for (unsigned i = 0; i < RING && !m->group->over; i++)
		if (!m->held[i].used) {
			h = &m->held[i];
			h->used = true;
			m->holding++;
			break;
		}
	pthread_mutex_unlock(&lock);
	return h;
}

static void give_back(struct skein_mcast *m, struct held *h)
{
	pthread_mutex_lock(&lock);
	free(h->block.data);
	h->block.data = NULL;
	h->used = false;
	m->holding--;
	pthread_cond_broadcast(&wake);
	pthread_mutex_unlock(&lock);
}

static int give(struct skein_mcast *m, const struct skein_mcast_block *block)
{
	struct held *h = place(m);
	int rc;

	if (!h)
		return -ECONNABORTED;
	pthread_mutex_lock(&lock);
	h->block = *block;
	h->block.data = malloc(block->len);
	memcpy(h->block.data, block->data, block->len);
	pthread_mutex_unlock(&lock);
	if (m->rank == fake_faults.corrupt_rank && fake_faults.corrupt_times &&
	    block->index == fake_faults.corrupt_block) {
		fake_faults.corrupt_times--;
		((char *)h->block.data)[block->len / 2] ^= 1;
	}
	rc = m->attr.ops.block(m->attr.arg, m, &m->group->msg, &h->block);
	if (rc == SKEIN_MCAST_LATER)
		return 0;
	give_back(m, h);
	return rc;
}

static struct held *held_of(struct skein_mcast *m, uint32_t index)
{
	struct held *h = NULL;

	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < RING; i++)
		if (m->held[i].used && m->held[i].block.data &&
		    m->held[i].block.index == index)
			h = &m->held[i];
	pthread_mutex_unlock(&lock);
	return h;
}

static int fake_block_done(struct skein_mcast *m, uint64_t seq, uint32_t index,
			   int status)
{
	struct held *h;

	if (!m->rank) {
		pthread_mutex_lock(&lock);
		m->later = status;
		m->later_done = true;
		pthread_cond_broadcast(&wake);
		pthread_mutex_unlock(&lock);
		return 0;
	}
	h = held_of(m, index);
	if (!h)
		return -ENOENT;
	give_back(m, h);
	if (status)
		end_group(m->group, m->rank, status);
	return 0;
}

/* One block to all; false: the group is over. */
static bool relay(struct group *g, struct skein_mcast_block *block)
{
	int rc = fill(g->member[0], block);

	if (rc)
		end_group(g, 0, rc);
	fake_blocks++;
	for (unsigned i = 1; i < g->count && !g->over; i++) {
		if (i == fake_faults.fail_rank && fake_faults.fail_times &&
		    block->index == fake_faults.fail_block) {
			fake_faults.fail_times--;
			end_group(g, i, -ECONNRESET);
			break;
		}
		rc = give(g->member[i], block);
		if (rc)
			end_group(g, i, rc);
	}
	return !g->over;
}

static void *sender(void *arg)
{
	struct group *g = arg;
	struct skein_mcast_dest dest = {0};
	uint32_t size = g->msg.block_size;
	void *data = malloc(size);

	for (unsigned i = 1; i < g->count; i++) {
		struct skein_mcast *m = g->member[i];
		int rc = m->attr.ops.incoming(m->attr.arg, m, &g->msg, &dest);

		if (rc)
			end_group(g, i, rc);
	}
	for (uint32_t b = 0; b < g->msg.blocks && !g->over; b++) {
		struct skein_mcast_block block = {
			.index = b,
			.off = (uint64_t)b * size,
			.len = size,
			.data = data,
		};

		if (block.off + size > g->msg.size)
			block.len = (uint32_t)(g->msg.size - block.off);
		if (!relay(g, &block))
			break;
	}
	free(data);
	for (unsigned i = 0; i < g->count && !g->over; i++) {
		struct skein_mcast *m = g->member[i];

		pthread_mutex_lock(&lock);
		while (m->holding && !g->over)
			pthread_cond_wait(&wake, &lock);
		pthread_mutex_unlock(&lock);
		if (!g->over)
			m->attr.ops.done(m->attr.arg, m, &g->msg, 0);
	}
	pthread_mutex_lock(&lock);
	g->delivered = !g->over;
	pthread_cond_broadcast(&wake);
	pthread_mutex_unlock(&lock);
	return NULL;
}

static int fake_send(struct skein_mcast *m, uint64_t size, void *tag)
{
	struct group *g = m->group;
	uint32_t bs = m->attr.block_size;

	g->msg = (struct skein_mcast_msg){
		.size = size,
		.block_size = bs,
		.blocks = (uint32_t)((size + bs - 1) / bs),
	};
	g->sending = true;
	return -pthread_create(&g->thread, NULL, sender, g);
}

static void fake_finish(struct skein_mcast *m)
{
}

static int fake_stats(struct skein_mcast *m, struct skein_mcast_stats *st)
{
	pthread_mutex_lock(&lock);
	st->delivered = m->group->delivered;
	pthread_mutex_unlock(&lock);
	return 0;
}

static int fake_close(struct skein_mcast *m, uint64_t timeout_ns)
{
	struct group *g = m->group;
	int rc;

	if (!timeout_ns)
		end_group(g, m->rank, -ECANCELED);
	if (!m->rank && g->sending)
		pthread_join(g->thread, NULL);
	pthread_mutex_lock(&lock);
	/* no callback comes once the root is through */
	while (m->rank && g->member[0] && !g->delivered)
		pthread_cond_wait(&wake, &lock);
	rc = g->delivered ? 0 : g->err;
	if (!m->rank)
		g->member[0] = NULL;
	pthread_cond_broadcast(&wake);
	for (unsigned i = 0; i < RING; i++)
		if (m->held[i].used)
			free(m->held[i].block.data);
	drop(g);
	free(m);
	pthread_mutex_unlock(&lock);
	return rc;
}

static void fake_abort(struct skein_mcast *m, int err)
{
	end_group(m->group, m->rank, err);
}

const struct cp_mcast_ops fake_mcast = {
	.open = fake_open,
	.send_stream = fake_send,
	.block_done = fake_block_done,
	.finish = fake_finish,
	.stats = fake_stats,
	.close = fake_close,
	.abort = fake_abort,
};
