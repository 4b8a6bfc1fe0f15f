/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "mcast/world_port.h"

#define MEMBER_TIMEOUT (1500 * 1000 * 1000ull)
#define SLOTS 3u

uint8_t world_byte(uint64_t msg, uint64_t i)
{
	return (uint8_t)(msg * 37 + i * 11 + (i >> 8) * 3 + 1);
}

/* --- up and down -------------------------------------------------------- */

static void make_links(struct world *w)
{
	struct member *m;

	for (uint32_t i = 0; i < w->n; i++) {
		m = &w->m[i];
		for (uint32_t k = 0; k < m->eng.n_nbs; k++) {
			struct link *l = &w->links[i][world_rank_of(m, k)];

			l->exists = true;
			l->dst_nb = mcast_nb_find(
				&w->m[world_rank_of(m, k)].eng, i);
			skein_assert(l->dst_nb != MCAST_NONE);
		}
	}
}

void world_init(struct world *w, uint64_t seed, uint32_t n,
		enum mcast_algorithm algorithm, uint32_t block_size)
{
	memset(w, 0, sizeof(*w));
	prng_init(&w->prng, seed);
	w->n = n;
	w->now = 1000 * 1000 * 1000;
	w->stream_odds = 40;
	w->later_odds = 30;
	w->slots = n <= 16 && n > 1 && seed & 1 ? SLOTS : 0;
	for (uint32_t i = 0; i < n; i++)
		w->rack_of[i] = (uint32_t)prng_below(&w->prng, 1 + n / 4);
	skein_assert(mcast_racks_init(&w->racks, w->rack_of, n, w->storage) ==
		     0);
	for (uint32_t i = 0; i < n; i++) {
		struct mcast_eng_conf conf = {
			.n = n,
			.rank = i,
			.algorithm = algorithm,
			.racks = algorithm == MCAST_HYBRID ? &w->racks : NULL,
			.block_size = block_size,
			.ring_blocks = 3,
			.checksum = true,
			.slots = w->slots,
			.small_max = w->slots ? WORLD_SMALL : 0,
			.list = 12345,
			.open_deadline_ns = w->now + 10 * MEMBER_TIMEOUT,
			.member_timeout_ns = MEMBER_TIMEOUT};

		w->m[i].w = w;
		w->m[i].rank = i;
		w->m[i].port.ops = &world_port_ops;
		skein_assert(mcast_eng_init(&w->m[i].eng, &w->m[i].port, &conf,
					    w->now) == 0);
		w->conf = conf;
	}
	make_links(w);
}

static void link_fini(struct link *l)
{
	for (unsigned channel = 0; channel < MCAST_CHANNELS; channel++)
		for (unsigned p = 0; p < l->channels[channel].n; p++)
			free(l->channels[channel].packets[p].payload);
}

void world_fini(struct world *w)
{
	for (uint32_t i = 0; i < w->n; i++) {
		for (uint32_t k = 0; k < w->n; k++)
			link_fini(&w->links[i][k]);
		for (unsigned k = 0; k < WORLD_MESSAGES; k++) {
			free(w->m[i].seen[k].buf);
			free(w->m[i].seen[k].copy);
		}
		while (w->m[i].n_late)
			free(w->m[i].late[--w->m[i].n_late].payload);
		mcast_eng_fini(&w->m[i].eng);
		skein_assert(!w->m[i].mems);
	}
	skein_assert(!w->allocs);
}

/* The runs of c->have, with their digests, and its checksums. */
static void claim_sums(struct member *m, struct mcast_claim *c,
		       const uint8_t *bytes)
{
	uint64_t seed = mcast_seed(m->eng.conf.list, 0);
	struct skein_mcast_msg msg;

	mcast_msg_set(&m->eng, &msg, 0, c->size, NULL);
	c->sums = world_alloc(m, msg.blocks * sizeof(*c->sums));
	c->runs = world_alloc(m, (msg.blocks / 2 + 1) * sizeof(*c->runs));
	c->n_runs =
		mcast_runs_of(c->have, msg.blocks, c->runs, msg.blocks / 2 + 1);
	for (uint32_t i = 0; i < c->n_runs; i++) {
		struct mcast_run *r = &c->runs[i];

		for (uint32_t b = r->first; bytes && b < r->first + r->count;
		     b++) {
			c->sums[b] =
				mcast_sum(bytes + (size_t)b * msg.block_size,
					  mcast_block_len(&msg, b), seed, b);
			r->digest = mcast_digest_add(r->digest, c->sums[b], b);
		}
	}
}

void world_part(struct world *w, uint32_t rank, enum skein_mcast_store store,
		const uint8_t *bytes, uint64_t size, const uint64_t *have)
{
	struct member *m = &w->m[rank];
	struct seen *s = &m->seen[0];
	struct mcast_claim c = {.knows = bytes, .begun = bytes, .store = store};
	size_t words = size / w->conf.block_size / 64 + 1;

	w->messages = 1;
	w->sizes[0] = size;
	w->stream_odds = 0;
	m->store = store;
	if (bytes) {
		c.size = size;
		s->stream = store != SKEIN_MCAST_MEMORY;
		s->begun = true;
		s->size = size;
		s->buf = malloc(size + 1);
		memcpy(s->buf, bytes, size);
		if (!store)
			c.buf = (struct mcast_buf){s->buf, rank, rank + 1000};
		c.tag = s;
	}
	if (bytes && size) {
		c.have = world_alloc(m, words * sizeof(*c.have));
		memcpy(c.have, have, words * sizeof(*c.have));
		m->had = have[0];
		claim_sums(m, &c, store ? NULL : bytes);
	}
	skein_assert(mcast_resume_init(&m->eng, &c) == 0);
}

void world_send(struct world *w, uint64_t size)
{
	struct member *root = &w->m[0];
	struct seen *s = &root->seen[w->messages];
	struct mcast_out *out = world_alloc(root, sizeof(*out));

	w->sizes[w->messages] = size;
	out->size = size;
	s->size = size;
	if (!world_chance(w, w->stream_odds)) {
		s->buf = malloc(size + 1);
		for (uint64_t i = 0; i < size; i++)
			s->buf[i] = world_byte(w->messages, i);
		out->buf = (struct mcast_buf){size ? s->buf : NULL, 0, 1000};
	}
	w->messages++;
	mcast_eng_send(&root->eng, out);
}

void world_kill(struct world *w, uint32_t rank)
{
	w->m[rank].dead = true;
	for (uint32_t i = 0; i < w->n; i++)
		if (w->links[rank][i].exists || w->links[i][rank].exists) {
			world_break_link(w, rank, i, -SKEIN_EDEAD);
			world_break_link(w, i, rank, -SKEIN_EDEAD);
		}
}

/* --- steps -------------------------------------------------------------- */

/* In which channel something is under way; either, when both have. */
static bool some_channel(struct world *w, const struct link *l,
			 enum mcast_channel *channel)
{
	bool words = l->channels[MCAST_WORDS].n,
	     blocks = l->channels[MCAST_BLOCKS].n;

	*channel = blocks && (!words || world_chance(w, 50)) ? MCAST_BLOCKS
							     : MCAST_WORDS;
	return words || blocks;
}

/* Until the device says so it may read the bytes again. */
static void late_end(struct member *m, unsigned i, int err)
{
	struct packet p = m->late[i];

	m->n_late--;
	m->late[i] = m->late[m->n_late];
	m->late_to[i] = m->late_to[m->n_late];
	skein_assert(m->dead || !p.from || !memcmp(p.from, p.payload, p.small));
	free(p.payload);
	p.op->done(p.op, err);
}

static bool late_step(struct member *m)
{
	if (!m->n_late || m->w->late_hold)
		return false;
	late_end(m, (unsigned)prng_below(&m->w->prng, m->n_late), 0);
	return true;
}

static void late_end_all(struct member *m, uint32_t to)
{
	for (unsigned i = m->n_late; i--;)
		if (m->late_to[i] == to)
			late_end(m, i, -EIO);
}

static bool late_put(struct member *m, uint32_t to, const struct packet *p)
{
	if (!p->small || !p->op || m->n_late == WORLD_LATE ||
	    (!m->w->late_hold && world_chance(m->w, 30)))
		return false;
	m->late[m->n_late] = *p;
	m->late_to[m->n_late++] = to;
	return true;
}

static void deliver(struct world *w, struct link *l, enum mcast_channel channel,
		    uint32_t to)
{
	struct member *from = &w->m[w->m[to].eng.nbs[l->dst_nb].rank];
	struct channel *q = &l->channels[channel];
	struct packet p = q->packets[0];
	struct member *m = &w->m[to];

	q->n--;
	memmove(q->packets, q->packets + 1, q->n * sizeof(p));
	w->packets++;
	if (!m->dead && p.lost) {
		free(p.payload);
		if (p.op)
			p.op->done(p.op, -EIO);
		return;
	}
	if (!m->dead && p.small) {
		memcpy((void *)(uintptr_t)p.to, p.payload, p.small);
		mcast_slot_in(&m->eng, l->dst_nb, mcast_imm_value(&p.rec),
			      p.small, w->now);
	} else if (!m->dead) {
		if (p.payload)
			memcpy((void *)(uintptr_t)p.to, p.payload, p.rec.len);
		mcast_eng_record(&m->eng, l->dst_nb, channel,
				 mcast_imm_value(&p.rec), &p.rec, w->now);
	}
	if (late_put(from, to, &p))
		return;
	free(p.payload);
	if (p.op)
		p.op->done(p.op, m->dead ? -EIO : 0);
}

/* Its sender's operations have ended; it may be here all the same. */
static void ops_end(struct channel *q)
{
	struct mcast_op *op;

	for (unsigned p = 0; p < q->n; p++) {
		op = q->packets[p].op;
		q->packets[p].op = NULL;
		if (op)
			op->done(op, -EIO);
	}
}

static void channel_end(struct channel *q)
{
	ops_end(q);
	while (q->n)
		free(q->packets[--q->n].payload);
}

/* One channel is gone before the other, where something may still be under way. */
static void hurt(struct world *w, uint32_t from, uint32_t to)
{
	enum mcast_channel channel =
		(enum mcast_channel)prng_below(&w->prng, 2);
	struct link *l = &w->links[from][to];

	l->hurt = true;
	ops_end(&w->links[to][from].channels[channel]);
	if (!w->m[to].dead)
		mcast_eng_channel_down(&w->m[to].eng, l->dst_nb, l->err);
}

/* One end hears that the link is down: all that it had under way has ended. */
static void go_down(struct world *w, uint32_t from, uint32_t to)
{
	struct link *l = &w->links[from][to];

	for (unsigned channel = 0; channel < MCAST_CHANNELS; channel++) {
		channel_end(&l->channels[channel]);
		ops_end(&w->links[to][from].channels[channel]);
	}
	late_end_all(&w->m[to], from);
	l->exists = false;
	if (!w->m[to].dead)
		mcast_eng_link_down(&w->m[to].eng, l->dst_nb, l->err);
}

/* A device has FAIL whether its process runs or not, and the sender hears of
 * that at some time. */
static bool fail_arrives(struct world *w, struct link *l, uint32_t from,
			 uint32_t to)
{
	struct packet *p;
	struct channel *q;

	for (unsigned channel = 0; !l->held && channel < MCAST_CHANNELS;
	     channel++) {
		q = &l->channels[channel];
		if (!q->n)
			continue;
		p = &q->packets[q->n - 1];
		if (p->rec.type != MCAST_FAIL || p->there)
			continue;
		p->there = true;
		mcast_eng_fail_there(&w->m[from].eng, w->links[to][from].dst_nb,
				     channel);
		return true;
	}
	return false;
}

static bool link_step(struct world *w, uint32_t from, uint32_t to)
{
	struct link *l = &w->links[from][to];
	struct member *m = &w->m[from];
	enum mcast_channel channel;
	uint32_t nb;

	if (!l->exists)
		return false;
	if (l->down) {
		if (w->m[to].stopped)
			return false;
		if (!w->m[to].dead && some_channel(w, l, &channel))
			deliver(w, l, channel, to);
		else if (!l->hurt && world_chance(w, 50))
			hurt(w, from, to);
		else
			go_down(w, from, to);
		return true;
	}
	nb = w->links[to][from].dst_nb;
	if (!m->dead && !m->eng.nbs[nb].up && world_chance(w, 50)) {
		mcast_eng_link_up(&m->eng, nb, w->now);
		return true;
	}
	if (!m->dead && !m->stopped && fail_arrives(w, l, from, to))
		return true;
	if (l->held || !some_channel(w, l, &channel) || w->m[to].stopped ||
	    w->m[from].dead || !w->m[to].eng.nbs[l->dst_nb].up)
		return false;
	deliver(w, l, channel, to);
	return true;
}

static bool app_step(struct member *m)
{
	unsigned i;

	if (!m->n_later)
		return false;
	i = (unsigned)prng_below(&m->w->prng, m->n_later);
	/* A failure may have ended the message. */
	if (m->seen[m->later[i].seq].buf || m->later[i].fill) {
		if (!m->seen[m->later[i].seq].done && !m->eng.over) {
			if (m->later[i].fill)
				world_fill_block(m, m->later[i].seq,
						 &m->later[i].b);
			else
				world_take_block(m, m->later[i].seq,
						 &m->later[i].b);
		}
	}
	mcast_eng_block_done(&m->eng, m->later[i].seq, m->later[i].b.index, 0);
	m->later[i] = m->later[--m->n_later];
	return true;
}

static uint64_t cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static bool poll_one(struct member *m)
{
	uint64_t from = m->w->polled ? cpu_ns() : 0;
	bool moved = mcast_eng_poll(&m->eng, m->w->now);

	if (m->w->polled)
		m->w->polled(m, cpu_ns() - from);
	return moved;
}

static bool member_step(struct world *w, struct member *m)
{
	if (m->dead || m->stopped)
		return false;
	if (world_chance(w, 30) && app_step(m))
		return true;
	if (world_chance(w, 10) && late_step(m))
		return true;
	if (poll_one(m))
		return true;
	/* What has ended gives its memory back. */
	skein_assert(!m->eng.ended || !m->n_late);
	skein_assert(!mcast_eng_has_work(&m->eng) || m->eng.again);
	return app_step(m) || late_step(m);
}

bool world_step(struct world *w)
{
	uint32_t start = (uint32_t)prng_below(&w->prng, w->n), i, k;
	bool links_first = world_chance(w, 50);

	w->now += prng_below(&w->prng, 2000);
	for (int pass = 0; pass < 2; pass++)
		for (uint32_t a = 0; a < w->n; a++) {
			i = (start + a) % w->n;
			if ((pass == 0) != links_first) {
				if (member_step(w, &w->m[i]))
					return true;
				continue;
			}
			for (uint32_t b = 1; b < w->n; b++) {
				k = (i + b * (1 + start % 3)) % w->n;
				if (k != i && link_step(w, i, k))
					return true;
			}
			for (k = 0; k < w->n; k++)
				if (k != i && link_step(w, i, k))
					return true;
		}
	return false;
}

void world_wait(struct world *w)
{
	/* Links that are not up yet have their world_chance. */
	uint64_t t = w->now + 100 * 1000 * 1000, d;

	for (uint32_t i = 0; i < w->n; i++) {
		if (w->m[i].dead || w->m[i].stopped)
			continue;
		d = mcast_eng_deadline(&w->m[i].eng);
		if (d < t)
			t = d;
	}
	if (t > w->now)
		w->now = t;
}

bool world_run(struct world *w, bool (*done)(struct world *w),
	       uint64_t limit_ns)
{
	uint64_t end = w->now + limit_ns;

	while (!done(w)) {
		if (w->now >= end)
			return false;
		if (!world_step(w))
			world_wait(w);
	}
	return true;
}

bool world_has(struct world *w, uint64_t msg)
{
	for (uint32_t i = 0; i < w->n; i++)
		if (!w->m[i].dead &&
		    (!w->m[i].seen[msg].done || w->m[i].seen[msg].status))
			return false;
	return true;
}
