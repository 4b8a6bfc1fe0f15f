/* SPDX-License-Identifier: MIT */
/*
 * pair.c - two ends of an RPC connection in one thread, and a device between
 * them that is as unkind as the rules allow.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "unit/cm.h"
#include "base/list.h"
#include "conn/conn.h"
#include "pair.h"

static struct pair_end *end_of(struct rpc_port *port)
{
	return container_of(port, struct pair_end, port);
}

static void lock(struct pair *p)
{
	if (p->opts.lock)
		pthread_mutex_lock(p->opts.lock);
}

static void unlock(struct pair *p)
{
	if (p->opts.lock)
		pthread_mutex_unlock(p->opts.lock);
}

static bool chance(struct pair *p, unsigned percent)
{
	return percent && prng_below(&p->rng, 100) < percent;
}

static struct pair_op *op_new(struct pair_end *e, enum pair_op_kind kind)
{
	struct pair_op *op;

	if (e->op_count == PAIR_OPS ||
	    chance(e->pair, e->pair->opts.eagain_percent))
		return NULL;
	op = &e->ops[(e->op_head + e->op_count++) % PAIR_OPS];
	*op = (struct pair_op){.kind = kind};
	return op;
}

static bool overlap(const struct pair_op *op, uint64_t off, uint32_t len)
{
	return off < op->off + op->len && op->off < off + len;
}

/* Is an operation of this kind under way that touches these bytes? */
static bool touched(const struct pair_end *e, enum pair_op_kind kind,
		    uint64_t off, uint32_t len)
{
	for (unsigned i = 0; i < e->op_count; i++) {
		const struct pair_op *op = &e->ops[(e->op_head + i) % PAIR_OPS];

		if (op->kind == kind && overlap(op, off, len))
			return true;
	}
	return false;
}

static int pair_write(struct rpc_port *port, uint64_t off, uint32_t len,
		      bool *wake)
{
	struct pair_end *e = end_of(port);
	struct pair_op *op = op_new(e, PAIR_WRITE);

	if (!op)
		return -EAGAIN;
	assert_true(off >= RPC_CTL_LEN);
	assert_true(off + len <= rpc_geom_len(&port->geom));
	assert_false(touched(e->peer, PAIR_READ_RESP, off, len));
	op->off = off;
	op->len = len;
	op->data = malloc(len);
	op->taken = calloc(1, len / 8);
	memcpy(op->data, port->base + off, len);
	if (wake)
		*wake = e->credits > 0;
	if (wake && *wake) {
		e->credits--;
		op->wake = true;
		op->imm = CONN_IMM(CONN_IMM_WAKE, 0);
	}
	return 0;
}

static int pair_signal(struct rpc_port *port, uint32_t imm)
{
	struct pair_end *e = end_of(port);
	struct pair_op *op;

	if (!e->credits)
		return -EAGAIN;
	op = op_new(e, PAIR_SIGNAL);
	if (!op)
		return -EAGAIN;
	e->credits--;
	op->imm = imm;
	op->wake = true;
	return 0;
}

static int pair_read_head(struct rpc_port *port, struct rpc_read *rd)
{
	struct pair_end *e = end_of(port);
	struct pair_op *op = op_new(e, PAIR_READ_HEAD);

	if (!op)
		return -EAGAIN;
	op->rd = rd;
	return 0;
}

static int pair_read(struct rpc_port *port, struct rpc_buf *buf,
		     const struct rpc_large *from, uint64_t off, uint32_t len,
		     struct rpc_read *rd)
{
	struct pair_end *e = end_of(port);
	struct pair_buf *b = NULL;
	struct pair_op *op;

	for (unsigned i = 0; i < PAIR_BUFS; i++)
		if (e->peer->bufs[i].used &&
		    e->peer->bufs[i].buf.rkey == from->rkey)
			b = &e->peer->bufs[i];
	/* A READ of memory that its owner has freed is a bug of ours. */
	assert_non_null(b);
	assert_true((uint64_t)(uintptr_t)b->buf.addr == from->addr);
	assert_true(from->len <= b->buf.len && from->len <= buf->len);
	op = op_new(e, PAIR_READ);
	if (!op)
		return -EAGAIN;
	op->rd = rd;
	assert_true(len && len <= port->read_max && off + len <= from->len);
	op->dst = buf;
	op->src = (uint8_t *)b->buf.addr + off;
	op->off = off;
	op->len = len;
	return 0;
}

static uint64_t pair_resp_head(const struct pair *p)
{
	return atomic_load(&p->client.rx.resp_head);
}

/* The memory of an end, with the place where its READs of answers land. */
static uint64_t end_len(const struct rpc_port *port)
{
	return rpc_geom_landing(&port->geom) +
	       rpc_geom_landing_len(&port->geom);
}

/* The rules for READs of answers: one at a time, none of what was taken; no
 * reservation is free under one; and they land where no WRITE does. */
static int pair_read_resp(struct rpc_port *port, uint64_t to, uint64_t off,
			  uint32_t len, struct rpc_read *rd)
{
	uint64_t base = rpc_geom_resp(&port->geom), line;
	struct pair_end *e = end_of(port);
	struct pair_op *op;

	line = pair_resp_head(e->pair) & (port->geom.resp_lines - 1);
	assert_true(len && len % 8 == 0 && off % 8 == 0);
	assert_true(off >= base + line * RPC_LINE);
	assert_true(off + len <= rpc_geom_len(&port->geom));
	assert_true(to >= rpc_geom_len(&port->geom));
	assert_true(to + len <= end_len(port));
	assert_false(touched(e, PAIR_READ_RESP, base, UINT32_MAX));
	op = op_new(e, PAIR_READ_RESP);
	if (!op)
		return -EAGAIN;
	op->off = off;
	op->to = to;
	op->len = len;
	op->rd = rd;
	op->head = pair_resp_head(e->pair);
	/* often the first canary */
	op->last = chance(e->pair, 50)
			   ? 1
			   : (uint32_t)prng_below(&e->pair->rng, len / 8);
	op->data = malloc(len);
	op->taken = calloc(1, len / 8);
	return 0;
}

static struct rpc_buf *pair_buf_get(struct rpc_port *port, size_t len,
				    bool to_read)
{
	struct pair_end *e = end_of(port);

	if (e->buf_fails)
		return NULL;
	for (unsigned i = 0; i < PAIR_BUFS; i++) {
		struct pair_buf *b = &e->bufs[i];

		if (b->used)
			continue;
		b->used = true;
		e->bufs_used++;
		b->buf = (struct rpc_buf){.addr = malloc(len),
					  .len = len,
					  .room = to_read ? 0 : len,
					  .rkey = i + 1,
					  .region = i};
		return &b->buf;
	}
	return NULL;
}

static void pair_buf_put(struct rpc_port *port, struct rpc_buf *buf)
{
	struct pair_end *e = end_of(port);
	struct pair_buf *b = container_of(buf, struct pair_buf, buf);

	assert_true(b->used);
	memset(buf->addr, 0xdd, buf->len);
	free(buf->addr);
	b->used = false;
	e->bufs_used--;
}

static void pair_buf_end(struct rpc_buf *buf)
{
	struct pair_buf *b = container_of(buf, struct pair_buf, buf);

	free(buf->addr);
	b->used = false;
}

static void pair_buf_let(struct rpc_port *port, struct rpc_buf *buf)
{
	end_of(port)->bufs_used--;
	buf->end = pair_buf_end;
}

/* Nothing is built there: see later.buf_new. */
static int pair_buf_adopt(struct rpc_port *port, struct rpc_buf *buf)
{
	fail();
	return -ENOMEM;
}

static void pair_wake(void *arg)
{
	struct pair_end *e = arg;

	e->woken = true;
}

#define LOCKED(type, name, args, ...)                \
	static type locked_##name args               \
	{                                            \
		struct pair *p = end_of(port)->pair; \
		type rc;                             \
                                                     \
		lock(p);                             \
		rc = pair_##name(__VA_ARGS__);       \
		unlock(p);                           \
		return rc;                           \
	}

LOCKED(int, write,
       (struct rpc_port * port, uint64_t off, uint32_t len, bool *wake), port,
       off, len, wake)
LOCKED(int, signal, (struct rpc_port * port, uint32_t imm), port, imm)
LOCKED(int, read_head, (struct rpc_port * port, struct rpc_read *rd), port, rd)
LOCKED(int, read,
       (struct rpc_port * port, struct rpc_buf *buf,
	const struct rpc_large *from, uint64_t off, uint32_t len,
	struct rpc_read *rd),
       port, buf, from, off, len, rd)
LOCKED(int, read_resp,
       (struct rpc_port * port, uint64_t to, uint64_t off, uint32_t len,
	struct rpc_read *rd),
       port, to, off, len, rd)
LOCKED(struct rpc_buf *, buf_get,
       (struct rpc_port * port, size_t len, bool to_read), port, len, to_read)

static void locked_buf_put(struct rpc_port *port, struct rpc_buf *buf)
{
	struct pair *p = end_of(port)->pair;

	lock(p);
	pair_buf_put(port, buf);
	unlock(p);
}

static const struct rpc_port_ops pair_ops = {
	.write = locked_write,
	.signal = locked_signal,
	.read_head = locked_read_head,
	.read = locked_read,
	.read_resp = locked_read_resp,
	.buf_get = locked_buf_get,
	.buf_put = locked_buf_put,
	.buf_adopt = pair_buf_adopt,
	.buf_let = pair_buf_let,
};

/* --- moving ------------------------------------------------------------- */

/* A word, as a device stores it. */
static void store8(uint8_t *dst, const uint8_t *src)
{
	uint64_t w;

	memcpy(&w, src, 8);
	__atomic_store_n((uint64_t *)(void *)dst, w, __ATOMIC_RELEASE);
}

/* Moves some words of a WRITE; true when all have moved. */
static bool write_some(struct pair_end *e, struct pair_op *op)
{
	uint32_t words = op->len / 8, n, w;
	uint8_t *dst = e->peer->port.base + op->off;

	n = 1 + (uint32_t)prng_below(&e->pair->rng, words);
	while (n-- && op->moved < words) {
		w = op->moved;
		if (e->pair->opts.unordered) {
			w = (uint32_t)prng_below(&e->pair->rng, words);
			while (op->taken[w])
				w = (w + 1) % words;
		}
		op->taken[w] = 1;
		store8(dst + w * 8, op->data + w * 8);
		op->moved++;
	}
	return op->moved == words;
}

/* Takes some words of a READ at this moment; true when all are taken. */
static bool read_some(struct pair_end *e, struct pair_op *op)
{
	const uint8_t *src = e->peer->port.base + op->off;
	uint32_t words = op->len / 8, n, w;

	n = (uint32_t)prng_below(&e->pair->rng, words + 1);
	if (!op->moved && chance(e->pair, 50))
		n = words - 1; /* all but the last, and it pauses */
	while (n-- && op->moved < words) {
		w = op->moved;
		if (e->pair->opts.unordered_read) {
			w = (uint32_t)prng_below(&e->pair->rng, words);
			while (op->taken[w] ||
			       (w == op->last && op->moved + 1 < words))
				w = (w + 1) % words;
		}
		op->taken[w] = 1;
		memcpy(op->data + w * 8, src + w * 8, 8);
		op->moved++;
	}
	return op->moved == words;
}

static void deliver_imm(struct pair_end *to, uint32_t imm)
{
	to->woken = true;
	if (CONN_IMM_KIND(imm) == CONN_IMM_EVENT_MODE)
		assert_int_equal(rpc_event_signal(&to->port.event,
						  CONN_IMM_VALUE(imm)),
				 0);
}

static void op_end(struct pair_end *e, struct pair_op *op)
{
	if (op->kind == PAIR_READ)
		memcpy((uint8_t *)op->dst->addr + op->off, op->src, op->len);
	if (op->kind == PAIR_READ_RESP) {
		assert_int_equal(op->head, pair_resp_head(e->pair));
		memcpy(e->port.base + op->to, op->data, op->len);
	}
	if (op->kind == PAIR_READ_HEAD)
		memcpy(e->port.base + RPC_CTL_HEAD_DST,
		       e->peer->port.base + RPC_CTL_HEAD, 8);
	free(op->data);
	free(op->taken);
	e->op_head = (e->op_head + 1) % PAIR_OPS;
	e->op_count--;
	if (op->rd && e->pair->opts.shared && e == &e->pair->ends[0]) {
		e->ended[e->ended_count++] = op->rd;
		atomic_store(&e->any_ended, true);
	} else if (op->rd) {
		op->rd->done(op->rd, 0);
		e->woken = true;
	}
	if (op->wake)
		deliver_imm(e->peer, op->imm);
}

/* What a reply changes is in reservations that are not free. A word that is
 * there already, from the lap before, is not missed. */
static void check_reply(const struct pair *p, const struct pair_op *op)
{
	uint64_t base = rpc_geom_resp(&p->opts.geom), head = pair_resp_head(p);
	uint64_t line = (op->off - base) / RPC_LINE;
	const uint8_t *dst = p->ends[0].port.base + op->off;

	line = (line - head) & (p->opts.geom.resp_lines - 1);
	if (line < p->client.tx.resp_tail - head)
		return;
	for (uint32_t at = 0; at < op->len; at += 8)
		assert_true(op->taken[at / 8] ||
			    !memcmp(dst + at, op->data + at, 8));
}

static void end_move(struct pair_end *e)
{
	struct pair_op *op = &e->ops[e->op_head];
	struct pair_op *ahead;

	if (op->kind == PAIR_WRITE && e == &e->pair->ends[1] &&
	    e->pair->client.rx.rf.able)
		check_reply(e->pair, op);
	/* Bytes of a later WRITE may overtake; its completion may not. One
	 * behind a READ may be there before what the READ has taken. */
	ahead = &e->ops[(e->op_head + 1) % PAIR_OPS];
	if (e->op_count > 1 && ahead->kind == PAIR_WRITE &&
	    ((e->pair->opts.unordered && op->kind == PAIR_WRITE) ||
	     (op->kind == PAIR_READ_RESP && op->moved * 8 == op->len)) &&
	    chance(e->pair, 30))
		write_some(e, ahead);
	if (op->kind == PAIR_WRITE && !write_some(e, op))
		return;
	if (op->kind == PAIR_READ_RESP &&
	    (!read_some(e, op) || chance(e->pair, 50)))
		return; /* all is taken: it may land later */
	op_end(e, op);
}

bool pair_quiet(const struct pair *p)
{
	return !p->ends[0].op_count && !p->ends[1].op_count;
}

static bool may_move(const struct pair_end *e)
{
	return e->op_count && !e->held;
}

bool pair_move(struct pair *p)
{
	unsigned i = (unsigned)prng_below(&p->rng, 2);

	if (!may_move(&p->ends[i]))
		i = !i;
	if (!may_move(&p->ends[i]))
		return false;
	end_move(&p->ends[i]);
	return true;
}

void pair_complete(struct pair_end *e)
{
	struct rpc_read *ended[PAIR_OPS];
	unsigned n;

	if (!atomic_load_explicit(&e->any_ended, memory_order_relaxed))
		return;
	lock(e->pair);
	n = e->ended_count;
	atomic_store(&e->any_ended, false);
	memcpy(ended, e->ended, n * sizeof(ended[0]));
	e->ended_count = 0;
	unlock(e->pair);
	for (unsigned i = 0; i < n; i++)
		ended[i]->done(ended[i], 0);
}

void pair_settle(struct pair *p)
{
	while (pair_move(p))
		;
}

void pair_exchange(struct pair *p)
{
	for (int i = 0; i < 8; i++) {
		assert_true(pair_poll(p, p->now_ns) >= 0);
		pair_settle(p);
		assert_true(rpc_server_poll(&p->server) >= 0);
		pair_settle(p);
	}
}

void pair_count(void *arg, const struct skein_rpc_result *res)
{
	struct pair_tally *t = arg;

	t->done += res->outcome == SKEIN_DONE;
	t->not_sent += res->outcome == SKEIN_NOT_SENT;
	t->unknown += res->outcome == SKEIN_UNKNOWN;
	t->status = res->status;
	t->len = res->len;
	if (res->len)
		memcpy(t->data, res->data,
		       res->len < sizeof(t->data) ? res->len : sizeof(t->data));
}

void pair_credits(struct pair *p)
{
	unsigned n = p->opts.credits ? p->opts.credits : 1000000;

	p->ends[0].credits = p->ends[1].credits = n;
}

/* --- life --------------------------------------------------------------- */

static void end_init(struct pair *p, unsigned i)
{
	struct pair_end *e = &p->ends[i];
	struct rpc_port *port = &e->port;

	e->pair = p;
	e->peer = &p->ends[!i];
	port->ops = &pair_ops;
	port->geom = p->opts.geom;
	port->base = aligned_alloc(64, (size_t)end_len(port));
	/* An old lap's rubbish, as it were. */
	prng_fill(&p->rng, port->base, (size_t)end_len(port));
	port->tail_in = port->tail_out =
		p->opts.unordered ? RPC_TAIL_CHECKSUM : RPC_TAIL_CANARY;
	port->batch_max = p->opts.batch_max;
	port->msg_max = port->geom.spill * RPC_LINE;
	port->read_max = p->opts.read_max ? p->opts.read_max : 1u << 30;
	port->reads_max = p->opts.reads_max ? p->opts.reads_max : 1;
	port->resp_inline_max = port->msg_max - 128;
}

/* As if that much had gone through both rings; a multiple of their sizes. */
static void start_at(struct pair *p, uint64_t pos)
{
	struct rpc_server *s = &p->server;

	rpc_client_start_at(&p->client, pos);
	s->req_head = s->limits.resp_pos = s->caller_head = pos;
	s->req_canary = rpc_canary(&p->ends[1].port.secret_in, pos);
}

void pair_init(struct pair *p, const struct pair_opts *opts)
{
	struct rpc_deferred_conf later = {
		.env = opts->env,
		.wake = pair_wake,
		.max = opts->later_max ? opts->later_max : PAIR_WINDOW,
		.len_max = opts->later_len ? opts->later_len : 1 << 20,
		.in_any_order = !opts->in_order};

	memset(p, 0, sizeof(*p));
	p->opts = *opts;
	prng_init(&p->rng, opts->seed);
	if (!p->opts.geom.req_lines)
		p->opts.geom = (struct rpc_geom){32, 64, 16};
	if (!p->opts.batch_max)
		p->opts.batch_max = 8;
	end_init(p, 0);
	end_init(p, 1);
	p->ends[0].port.secret_in.k0 = p->ends[1].port.secret_out.k0 =
		prng_u64(&p->rng);
	p->ends[1].port.secret_in.k1 = p->ends[0].port.secret_out.k1 =
		prng_u64(&p->rng);
	pair_credits(p);
	p->now_ns = 1000;
	rpc_client_init(&p->client, &p->ends[0].port, p->slots, PAIR_WINDOW);
	p->client.rx.park.env = opts->env;
	if (opts->env)
		rpc_orphans_init(&p->orphans, opts->env);
	later.orphans = &p->orphans;
	later.wake_arg = &p->ends[1];
	rpc_server_init(&p->server, &p->ends[1].port, &p->handlers, &later,
			NULL);
	start_at(p, opts->start_pos);
}

/* --- the calling end, in one thread -------------------------------------- */

int pair_flush(struct pair *p)
{
	struct rpc_client *c = &p->client;
	uint64_t off;
	uint32_t len;
	int rc;

	if (c->rx.broken)
		return -ENOTCONN;
	if (!c->tx.open_count)
		return 0;
	rpc_client_seal(c, &off, &len);
	rc = rpc_port_send(c->tx.port, off, len);
	/* A leader would refuse its calls; here they have begun, and stay. */
	if (!rc)
		rpc_client_posted(c, 0);
	return rc;
}

int pair_call(struct pair *p, uint16_t id, const void *req, size_t len,
	      size_t resp_max, uint64_t timeout_ns, skein_rpc_done_fn *done,
	      void *arg)
{
	struct rpc_client_req r = {req,	 len, resp_max, timeout_ns,
				   done, arg, id,	0};
	struct rpc_client *c = &p->client;
	bool large = len > c->tx.inline_max;
	int rc = 0;

	if (c->rx.broken)
		return -ENOTCONN;
	if (large)
		rc = pair_flush(p);
	if (!rc)
		rc = large ? rpc_client_add_large(c, &r)
			   : rpc_client_add(c, &r);
	if (rc == -EAGAIN && c->tx.open_count && !large && !pair_flush(p))
		rc = rpc_client_add(c, &r);
	if (!rc && c->tx.open_count >= p->opts.batch_max)
		(void)pair_flush(p); /* or with the next round */
	return rc;
}

int pair_poll(struct pair *p, uint64_t now_ns)
{
	struct rpc_client *c = &p->client;
	int rc, moved, sent = c->tx.open_count != 0;

	rc = pair_flush(p);
	if (rc && rc != -EAGAIN)
		return c->rx.broken ? 0 : rc;
	sent = sent && !rc;
	moved = rpc_client_poll(c, now_ns);
	if (moved < 0 || c->rx.broken)
		return moved;
	/* done() may have made calls. */
	if (c->tx.open_count)
		rc = pair_flush(p);
	if (!rc)
		rc = rpc_client_send_own(c);
	if (rc < 0 && rc != -EAGAIN)
		return rc;
	return moved + sent + (rc > 0);
}

void pair_fini(struct pair *p)
{
	for (int i = 0; i < 2; i++) {
		while (p->ends[i].op_count) {
			struct pair_op *op =
				&p->ends[i].ops[p->ends[i].op_head];

			free(op->data);
			free(op->taken);
			p->ends[i].op_head =
				(p->ends[i].op_head + 1) % PAIR_OPS;
			p->ends[i].op_count--;
		}
	}
	rpc_client_break(&p->client, -ECONNRESET);
	rpc_server_break(&p->server, -ECONNRESET);
	if (p->opts.env)
		rpc_orphans_fini(&p->orphans);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(p->ends[i].bufs_used, 0);
		free(p->ends[i].port.base);
	}
}
