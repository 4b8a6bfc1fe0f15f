/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "mcast/world.h"

#define MEMBER_TIMEOUT (1500 * 1000 * 1000ull)
#define SLOTS 3u
#define ARRIVES_NS (100 * 1000 * 1000ull)

uint8_t world_byte(uint64_t msg, uint64_t i)
{
	return (uint8_t)(msg * 37 + i * 11 + (i >> 8) * 3 + 1);
}

static bool chance(struct world *w, int percent)
{
	return (int)prng_below(&w->prng, 100) < percent;
}

static struct member *member_of(struct mcast_port *port)
{
	return container_of(port, struct member, port);
}

/* --- the port ----------------------------------------------------------- */

static uint32_t rank_of(struct member *m, uint32_t nb)
{
	return m->eng.nbs[nb].rank;
}

static int push(struct member *m, uint32_t nb, enum mcast_lane lane,
		const struct mcast_rec *rec, const uint8_t *payload,
		uint64_t to, struct mcast_op *op)
{
	struct world *w = m->w;
	struct link *l = &w->links[m->rank][rank_of(m, nb)];
	struct lane *q = &l->lanes[lane];
	struct packet *p;

	skein_assert(l->exists || l->down);
	if (l->down)
		return -ENOTCONN;
	if (q->n == WORLD_LINK_MAX || chance(w, 3))
		return -EAGAIN;
	p = &q->packets[q->n++];
	*p = (struct packet){
		.rec = *rec, .to = to, .op = op, .posted_ns = w->now};
	if (op && rec->len) {
		p->payload = malloc(rec->len);
		memcpy(p->payload, payload, rec->len);
		if (w->flip)
			p->payload[rec->len / 2] ^= 0x10;
		w->flip = false;
	}
	return 0;
}

static int w_record(struct mcast_port *port, uint32_t nb, enum mcast_lane lane,
		    const struct mcast_rec *rec)
{
	return push(member_of(port), nb, lane, rec, NULL, 0, NULL);
}

static int w_block(struct mcast_port *port, uint32_t nb,
		   const struct mcast_rec *rec, const struct mcast_buf *from,
		   uint64_t to, uint32_t rkey, struct mcast_op *op)
{
	skein_assert(rkey == rank_of(member_of(port), nb) + 1000);
	return push(member_of(port), nb, MCAST_BLOCKS, rec, from->addr, to, op);
}

static int w_small(struct mcast_port *port, uint32_t nb,
		   const struct mcast_buf *from, uint32_t len, uint64_t to,
		   uint32_t rkey, uint32_t slot, struct mcast_op *op)
{
	struct member *m = member_of(port);
	const struct mcast_rec *rec = (const void *)from->addr;
	struct link *l = &m->w->links[m->rank][rank_of(m, nb)];
	struct lane *q = &l->lanes[MCAST_WORDS];
	int rc = push(m, nb, MCAST_WORDS, rec, NULL, to, NULL);
	struct packet *p;

	skein_assert(rkey == rank_of(m, nb) + 1000 && !m->rank);
	skein_assert(slot < m->w->slots && len == sizeof(*rec) + rec->size);
	if (rc)
		return rc;
	p = &q->packets[q->n - 1];
	p->op = op;
	p->small = len;
	p->from = from->addr;
	p->payload = malloc(len);
	memcpy(p->payload, from->addr, len);
	if (m->w->flip && rec->size) {
		p->payload[sizeof(*rec) + rec->size / 2] ^= 0x10;
		p->from = NULL; /* it is not what was posted */
		m->w->flip = false;
	}
	return 0;
}

/* What was posted a while ago has arrived; of the rest any beginning. */
static void break_lane(struct world *w, struct lane *q, bool held)
{
	unsigned old = 0, arrived;

	while (!held && old < q->n &&
	       q->packets[old].posted_ns + ARRIVES_NS <= w->now)
		old++;
	if (q->n && q->packets[q->n - 1].there)
		old = q->n;
	arrived = old + (unsigned)prng_below(&w->prng, q->n - old + 1);
	for (unsigned p = arrived; p < q->n; p++)
		q->packets[p].lost = true;
}

/* err: as the far end will hear it. */
static void break_link(struct world *w, uint32_t from, uint32_t to, int err)
{
	struct link *l = &w->links[from][to];

	if (l->down)
		return;
	l->down = true;
	l->err = err;
	for (unsigned lane = 0; lane < MCAST_LANES; lane++)
		break_lane(w, &l->lanes[lane], l->held);
}

static void w_cut(struct mcast_port *port, uint32_t nb, int err)
{
	struct member *m = member_of(port);

	/* A connection does not say why its other end has cut it. */
	break_link(m->w, m->rank, rank_of(m, nb), -ECONNRESET);
	break_link(m->w, rank_of(m, nb), m->rank, err);
}

static void *w_alloc(struct mcast_port *port, size_t len)
{
	member_of(port)->w->allocs++;
	return calloc(1, len ? len : 1);
}

static void w_free(struct mcast_port *port, void *p)
{
	if (p)
		member_of(port)->w->allocs--;
	free(p);
}

static void w_out_free(struct mcast_port *port, struct mcast_out *out)
{
	w_free(port, out);
}

static int w_mem_get(struct mcast_port *port, size_t len, struct mcast_buf *buf,
		     void **handle)
{
	struct member *m = member_of(port);

	*handle = calloc(1, len);
	*buf = (struct mcast_buf){*handle, m->rank, m->rank + 1000};
	m->mems++;
	return 0;
}

static void w_mem_put(struct mcast_port *port, void *handle)
{
	member_of(port)->mems--;
	free(handle);
}

/* --- the application ---------------------------------------------------- */

static int w_incoming(struct mcast_port *port,
		      const struct skein_mcast_msg *msg,
		      struct mcast_dest *dest)
{
	struct member *m = member_of(port);
	struct seen *s = &m->seen[msg->seq];

	skein_assert(msg->seq < WORLD_MESSAGES && !s->begun && !m->told);
	skein_assert(!msg->seq || m->seen[msg->seq - 1].done);
	if (m->gives_up && chance(m->w, 50))
		return m->gives_up;
	s->begun = true;
	s->size = msg->size;
	s->buf = calloc(1, msg->size + 1);
	s->stream = chance(m->w, m->w->stream_odds);
	if (m->eng.resume && !msg->seq)
		s->stream = m->store != SKEIN_MCAST_MEMORY;
	dest->tag = s;
	if (m->gives_up && chance(m->w, 50))
		dest->err = m->gives_up;
	if (!s->stream)
		dest->buf = (struct mcast_buf){s->buf, m->rank, m->rank + 1000};
	return 0;
}

static int later(struct member *m, const struct skein_mcast_msg *msg,
		 const struct skein_mcast_block *b, bool fill)
{
	skein_assert(m->n_later < 64);
	m->later[m->n_later].seq = msg->seq;
	m->later[m->n_later].b = *b;
	m->later[m->n_later++].fill = fill;
	return SKEIN_MCAST_LATER;
}

static void take_block(struct member *m, uint64_t seq,
		       const struct skein_mcast_block *b)
{
	memcpy(m->seen[seq].buf + b->off, b->data, b->len);
	m->seen[seq].blocks++;
	if (seq)
		return;
	/* Each once, also of those that were there; but what the root has
	 * refused. */
	skein_assert(b->index >= 64 || !(m->had >> b->index & 1) ||
		     (m->store == SKEIN_MCAST_REREAD &&
		      m->eng.stats.blocks_refused));
	m->had |= b->index < 64 ? 1ull << b->index : 0;
}

static int w_block_in(struct mcast_port *port,
		      const struct skein_mcast_msg *msg,
		      const struct skein_mcast_block *b)
{
	struct member *m = member_of(port);

	skein_assert(m->seen[msg->seq].begun && !m->seen[msg->seq].done);
	if (m->gives_up)
		return m->gives_up;
	if (chance(m->w, m->w->later_odds))
		return later(m, msg, b, false);
	take_block(m, msg->seq, b);
	return 0;
}

static void fill_block(struct member *m, uint64_t seq,
		       const struct skein_mcast_block *b)
{
	if (m->eng.resume && !seq) {
		/* Only what it has, and can read. */
		skein_assert(m->store == SKEIN_MCAST_REREAD &&
			     m->had >> b->index & 1);
		memcpy(b->data, m->seen[0].buf + b->off, b->len);
		return;
	}
	for (uint32_t i = 0; i < b->len; i++)
		((uint8_t *)b->data)[i] = world_byte(seq, b->off + i);
}

static int w_fill(struct mcast_port *port, const struct skein_mcast_msg *msg,
		  const struct skein_mcast_block *b)
{
	struct member *m = member_of(port);

	if (m->gives_up)
		return m->gives_up;
	if (chance(m->w, m->w->later_odds))
		return later(m, msg, b, true);
	fill_block(m, msg->seq, b);
	return 0;
}

static bool all_right(const uint8_t *buf, uint64_t seq, uint64_t size)
{
	for (uint64_t i = 0; i < size; i++)
		if (buf[i] != world_byte(seq, i))
			return false;
	return true;
}

static void w_done(struct mcast_port *port, const struct skein_mcast_msg *msg,
		   int status)
{
	struct member *m = member_of(port);
	struct seen *s = &m->seen[msg->seq];

	skein_assert(!s->done && (status == 0 || m->told));
	skein_assert(m->rank == 0 || s->begun || (m->eng.resume && !msg->seq));
	s->done = true;
	s->status = status;
	s->digest = msg->digest;
	if (s->buf && !status && (m->rank || m->eng.resume)) {
		skein_assert(all_right(s->buf, msg->seq, s->size));
		skein_assert(!s->stream || !s->size ||
			     (m->eng.resume && !msg->seq
				      ? (uint32_t)__builtin_popcountll(m->had)
				      : s->blocks) == msg->blocks);
	}
	if (m->w->keep && s->buf) {
		s->copy = malloc(s->size + 1);
		memcpy(s->copy, s->buf, s->size);
	}
	/* From now on it is the application's again: a write to it is seen by
	 * the sanitizer. */
	free(s->buf);
	s->buf = NULL;
}

static void w_failed(struct mcast_port *port)
{
	struct member *m = member_of(port);

	skein_assert(!m->told && m->eng.over);
	m->told = true;
	m->told_ns = m->w->now;
}

static void w_changed(struct mcast_port *port)
{
}

static const struct mcast_port_ops ops = {
	.record = w_record,
	.block = w_block,
	.small = w_small,
	.cut = w_cut,
	.alloc = w_alloc,
	.free = w_free,
	.out_free = w_out_free,
	.mem_get = w_mem_get,
	.mem_put = w_mem_put,
	.incoming = w_incoming,
	.block_in = w_block_in,
	.fill = w_fill,
	.done = w_done,
	.failed = w_failed,
	.changed = w_changed,
};

/* --- up and down -------------------------------------------------------- */

static void make_links(struct world *w)
{
	struct member *m;

	for (uint32_t i = 0; i < w->n; i++) {
		m = &w->m[i];
		for (uint32_t k = 0; k < m->eng.n_nbs; k++) {
			struct link *l = &w->links[i][rank_of(m, k)];

			l->exists = true;
			l->dst_nb = mcast_nb_find(&w->m[rank_of(m, k)].eng, i);
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
		w->m[i].port.ops = &ops;
		skein_assert(mcast_eng_init(&w->m[i].eng, &w->m[i].port, &conf,
					    w->now) == 0);
		w->conf = conf;
	}
	make_links(w);
}

static void link_fini(struct link *l)
{
	for (unsigned lane = 0; lane < MCAST_LANES; lane++)
		for (unsigned p = 0; p < l->lanes[lane].n; p++)
			free(l->lanes[lane].packets[p].payload);
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
	c->sums = w_alloc(&m->port, msg.blocks * sizeof(*c->sums));
	c->runs = w_alloc(&m->port, (msg.blocks / 2 + 1) * sizeof(*c->runs));
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
		c.have = w_alloc(&m->port, words * sizeof(*c.have));
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
	struct mcast_out *out = w_alloc(&root->port, sizeof(*out));

	w->sizes[w->messages] = size;
	out->size = size;
	s->size = size;
	if (!chance(w, w->stream_odds)) {
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
			break_link(w, rank, i, -SKEIN_EDEAD);
			break_link(w, i, rank, -SKEIN_EDEAD);
		}
}

/* --- steps -------------------------------------------------------------- */

/* In which lane something is under way; either, when both have. */
static bool some_lane(struct world *w, const struct link *l,
		      enum mcast_lane *lane)
{
	bool words = l->lanes[MCAST_WORDS].n, blocks = l->lanes[MCAST_BLOCKS].n;

	*lane = blocks && (!words || chance(w, 50)) ? MCAST_BLOCKS
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
	    (!m->w->late_hold && chance(m->w, 30)))
		return false;
	m->late[m->n_late] = *p;
	m->late_to[m->n_late++] = to;
	return true;
}

static void deliver(struct world *w, struct link *l, enum mcast_lane lane,
		    uint32_t to)
{
	struct member *from = &w->m[w->m[to].eng.nbs[l->dst_nb].rank];
	struct lane *q = &l->lanes[lane];
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
		mcast_eng_record(&m->eng, l->dst_nb, lane,
				 mcast_imm_value(&p.rec), &p.rec, w->now);
	}
	if (late_put(from, to, &p))
		return;
	free(p.payload);
	if (p.op)
		p.op->done(p.op, m->dead ? -EIO : 0);
}

/* Its sender's operations have ended; it may be here all the same. */
static void ops_end(struct lane *q)
{
	struct mcast_op *op;

	for (unsigned p = 0; p < q->n; p++) {
		op = q->packets[p].op;
		q->packets[p].op = NULL;
		if (op)
			op->done(op, -EIO);
	}
}

static void lane_end(struct lane *q)
{
	ops_end(q);
	while (q->n)
		free(q->packets[--q->n].payload);
}

/* One lane is gone before the other, where something may still be under way. */
static void hurt(struct world *w, uint32_t from, uint32_t to)
{
	enum mcast_lane lane = (enum mcast_lane)prng_below(&w->prng, 2);
	struct link *l = &w->links[from][to];

	l->hurt = true;
	ops_end(&w->links[to][from].lanes[lane]);
	if (!w->m[to].dead)
		mcast_eng_link_hurt(&w->m[to].eng, l->dst_nb, l->err);
}

/* One end hears that the link is down: all that it had under way has ended. */
static void go_down(struct world *w, uint32_t from, uint32_t to)
{
	struct link *l = &w->links[from][to];

	for (unsigned lane = 0; lane < MCAST_LANES; lane++) {
		lane_end(&l->lanes[lane]);
		ops_end(&w->links[to][from].lanes[lane]);
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
	struct lane *q;

	for (unsigned lane = 0; !l->held && lane < MCAST_LANES; lane++) {
		q = &l->lanes[lane];
		if (!q->n)
			continue;
		p = &q->packets[q->n - 1];
		if (p->rec.type != MCAST_FAIL || p->there)
			continue;
		p->there = true;
		mcast_eng_fail_there(&w->m[from].eng, w->links[to][from].dst_nb,
				     lane);
		return true;
	}
	return false;
}

static bool link_step(struct world *w, uint32_t from, uint32_t to)
{
	struct link *l = &w->links[from][to];
	struct member *m = &w->m[from];
	enum mcast_lane lane;
	uint32_t nb;

	if (!l->exists)
		return false;
	if (l->down) {
		if (w->m[to].stopped)
			return false;
		if (!w->m[to].dead && some_lane(w, l, &lane))
			deliver(w, l, lane, to);
		else if (!l->hurt && chance(w, 50))
			hurt(w, from, to);
		else
			go_down(w, from, to);
		return true;
	}
	nb = w->links[to][from].dst_nb;
	if (!m->dead && !m->eng.nbs[nb].up && chance(w, 50)) {
		mcast_eng_link_up(&m->eng, nb, w->now);
		return true;
	}
	if (!m->dead && !m->stopped && fail_arrives(w, l, from, to))
		return true;
	if (l->held || !some_lane(w, l, &lane) || w->m[to].stopped ||
	    w->m[from].dead || !w->m[to].eng.nbs[l->dst_nb].up)
		return false;
	deliver(w, l, lane, to);
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
				fill_block(m, m->later[i].seq, &m->later[i].b);
			else
				take_block(m, m->later[i].seq, &m->later[i].b);
		}
	}
	mcast_eng_block_done(&m->eng, m->later[i].seq, m->later[i].b.index, 0);
	m->later[i] = m->later[--m->n_later];
	return true;
}

static bool member_step(struct world *w, struct member *m)
{
	if (m->dead || m->stopped)
		return false;
	if (chance(w, 30) && app_step(m))
		return true;
	if (chance(w, 10) && late_step(m))
		return true;
	if (mcast_eng_poll(&m->eng, w->now))
		return true;
	/* What has ended gives its memory back. */
	skein_assert(!m->eng.ended || !m->n_late);
	skein_assert(!mcast_eng_has_work(&m->eng) || m->eng.again);
	return app_step(m) || late_step(m);
}

bool world_step(struct world *w)
{
	uint32_t start = (uint32_t)prng_below(&w->prng, w->n), i, k;
	bool links_first = chance(w, 50);

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
	/* Links that are not up yet have their chance. */
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
