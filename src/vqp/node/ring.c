/* SPDX-License-Identifier: MIT */
/*
 * ring.c - both ends of a client's rings; see ring.h.
 */
#include "vqp/node/ring.h"

#include <errno.h>
#include <string.h>

/* Both ends are on one host: numbers are in its byte order. */
static void put32(uint8_t *at, uint32_t v)
{
	memcpy(at, &v, sizeof(v));
}

static void put64(uint8_t *at, uint64_t v)
{
	memcpy(at, &v, sizeof(v));
}

static uint32_t get32(const uint8_t *at)
{
	uint32_t v;

	memcpy(&v, at, sizeof(v));
	return v;
}

static uint64_t get64(const uint8_t *at)
{
	uint64_t v;

	memcpy(&v, at, sizeof(v));
	return v;
}

/* Places in the body of a first line: those of ring.h less 4. */
enum {
	AT_OP = 0,
	AT_FLAGS = 1,
	AT_MORE = 2,
	AT_SGES = 3,
	AT_VQP = 4,
	AT_RKEY = 8,
	AT_WR_ID = 12,
	AT_ADDR = 20,
	AT_MEM = 28,
	AT_LEN = 32,
	AT_DATA = 36, /* inline data, a GID, or: */
	AT_OFF = 36,
	AT_COMPARE = 44,
	AT_SWAP = 52,
};

#define FLAG_INLINE 8u /* IBV_SEND_INLINE */

void ring_init(struct ring *r, void *mem)
{
	uint8_t *at = mem;

	memset(r, 0, sizeof(*r));
	r->heads = mem;
	r->lines = (struct ring_line *)(void *)(at + RING_AT_LINES);
	r->comps = (struct ring_comp_line *)(void *)(at + RING_AT_COMPS);
}

/* --- requests ----------------------------------------------------------- */

/* Bytes that do not fit into the first line. */
static uint32_t rest_of(uint8_t flags, uint8_t num_sge, uint32_t data_len)
{
	if (flags & FLAG_INLINE)
		return data_len > RING_INLINE ? data_len - RING_INLINE : 0;
	return num_sge > 1 ? (num_sge - 1u) * 16u : 0;
}

static uint32_t lines_of(uint32_t rest)
{
	return (rest + RING_NEXT - 1) / RING_NEXT;
}

static void sge_put(uint8_t *at, const struct ring_sge *g)
{
	put32(at, g->mem);
	put32(at + 4, g->len);
	put64(at + 8, g->off);
}

static void sge_get(const uint8_t *at, struct ring_sge *g)
{
	g->mem = get32(at);
	g->len = get32(at + 4);
	g->off = get64(at + 8);
}

static void first_encode(const struct ring_req *q, uint32_t more, uint8_t *b)
{
	memset(b, 0, RING_NEXT);
	b[AT_OP] = q->op;
	b[AT_FLAGS] = q->flags;
	b[AT_MORE] = (uint8_t)more;
	b[AT_SGES] = q->num_sge;
	put32(b + AT_VQP, q->vqp);
	put32(b + AT_RKEY, q->rkey);
	put64(b + AT_WR_ID, q->wr_id);
	put64(b + AT_ADDR, q->addr);
	if (q->flags & FLAG_INLINE) {
		put32(b + AT_LEN, q->data_len);
		memcpy(b + AT_DATA, q->data,
		       q->data_len < RING_INLINE ? q->data_len : RING_INLINE);
		return;
	}
	if (q->op == RING_OP_CONNECT) {
		memcpy(b + AT_DATA, q->gid, sizeof(q->gid));
		return;
	}
	put32(b + AT_MEM, q->sge[0].mem);
	put32(b + AT_LEN, q->sge[0].len);
	put64(b + AT_OFF, q->sge[0].off);
	put64(b + AT_COMPARE, q->compare_add);
	put64(b + AT_SWAP, q->swap);
}

static void publish(struct ring_line *l, uint32_t seq, const uint8_t *body,
		    uint32_t len)
{
	memcpy(l->body, body, len);
	/* Release pairs with the acquire in ring_take(); without it the service
	 * may see the number before the body. */
	atomic_store_explicit(&l->seq, seq, memory_order_release);
}

int ring_put(struct ring *r, const struct ring_req *q)
{
	uint32_t rest = rest_of(q->flags, q->num_sge, q->data_len);
	uint32_t n = lines_of(rest), i, k;
	uint8_t more[RING_MORE * RING_NEXT], b[RING_NEXT];

	if (r->line + n - r->far >= RING_LINES) {
		/* Acquire pairs with the release in ring_take(): the service
		 * has copied the lines that it has counted. */
		r->far = atomic_load_explicit(&r->heads->lines_taken,
					      memory_order_acquire);
		if (r->line + n - r->far >= RING_LINES)
			return -EAGAIN;
	}
	if (q->flags & FLAG_INLINE) {
		if (rest)
			memcpy(more, q->data + RING_INLINE, rest);
	} else {
		for (i = 1; i < q->num_sge; i++)
			sge_put(more + (i - 1) * 16u, &q->sge[i]);
	}
	for (i = 0; i < n; i++) {
		k = rest - i * RING_NEXT;
		publish(&r->lines[(r->line + 1 + i) % RING_LINES],
			r->line + 2 + i, more + i * RING_NEXT,
			k < RING_NEXT ? k : RING_NEXT);
	}
	first_encode(q, n, b);
	publish(&r->lines[r->line % RING_LINES], r->line + 1, b, RING_NEXT);
	r->line += 1 + n;
	return 0;
}

static int first_decode(const uint8_t *b, struct ring_req *q)
{
	memset(q, 0, offsetof(struct ring_req, data));
	q->op = b[AT_OP];
	q->flags = b[AT_FLAGS];
	q->num_sge = b[AT_SGES];
	q->vqp = get32(b + AT_VQP);
	q->rkey = get32(b + AT_RKEY);
	q->wr_id = get64(b + AT_WR_ID);
	q->addr = get64(b + AT_ADDR);
	if (!q->op || q->op >= RING_OPS || q->num_sge > RING_SGES)
		return -EBADMSG;
	if (q->flags & FLAG_INLINE) {
		q->data_len = get32(b + AT_LEN);
		if (q->data_len > RING_DATA)
			return -EBADMSG;
		memcpy(q->data, b + AT_DATA, RING_INLINE);
		return 0;
	}
	memcpy(q->gid, b + AT_DATA, sizeof(q->gid));
	q->sge[0].mem = get32(b + AT_MEM);
	q->sge[0].len = get32(b + AT_LEN);
	q->sge[0].off = get64(b + AT_OFF);
	q->compare_add = get64(b + AT_COMPARE);
	q->swap = get64(b + AT_SWAP);
	return 0;
}

static void rest_decode(const uint8_t *more, uint32_t rest, struct ring_req *q)
{
	uint32_t i;

	if (q->flags & FLAG_INLINE) {
		if (rest)
			memcpy(q->data + RING_INLINE, more, rest);
		return;
	}
	for (i = 1; i < q->num_sge; i++)
		sge_get(more + (i - 1) * 16u, &q->sge[i]);
}

int ring_take(struct ring *r, struct ring_req *q)
{
	uint8_t b[RING_NEXT], more[RING_MORE * RING_NEXT];
	struct ring_line *l = &r->lines[r->line % RING_LINES];
	uint32_t i, n, rest;

	/* Acquire pairs with the release in publish(). */
	if (atomic_load_explicit(&l->seq, memory_order_acquire) != r->line + 1)
		return -EAGAIN;
	/* The client may write to the line at any time: from here on only the
	 * copy counts. */
	memcpy(b, l->body, sizeof(b));
	if (first_decode(b, q))
		return -EBADMSG;
	rest = rest_of(q->flags, q->num_sge, q->data_len);
	n = lines_of(rest);
	if (n != b[AT_MORE] || n > RING_MORE)
		return -EBADMSG;
	for (i = 0; i < n; i++) {
		l = &r->lines[(r->line + 1 + i) % RING_LINES];
		/* the client writes these before the first */
		if (atomic_load_explicit(&l->seq, memory_order_acquire) !=
		    r->line + 2 + i)
			return -EBADMSG;
		memcpy(more + i * RING_NEXT, l->body, RING_NEXT);
	}
	r->line += 1 + n;
	/* Release: the copies are made before the client reads the cursor. */
	atomic_store_explicit(&r->heads->lines_taken, r->line,
			      memory_order_release);
	rest_decode(more, rest, q);
	return 0;
}

/* --- completions -------------------------------------------------------- */

int ring_comp_room(struct ring *r)
{
	uint32_t used = r->comp - r->far;

	if (RING_COMPS - used < RING_COMPS / 2) {
		/* Acquire pairs with the release in ring_comp_take(): the
		 * client has read the completions that it has counted. */
		r->far = atomic_load_explicit(&r->heads->comps_taken,
					      memory_order_acquire);
		used = r->comp - r->far;
	}
	return used > RING_COMPS ? -EBADMSG : (int)(RING_COMPS - used);
}

void ring_comp_put(struct ring *r, const struct ring_comp *c)
{
	struct ring_comp_line *l = &r->comps[r->comp % RING_COMPS];

	put32(l->body, c->vqp);
	put64(l->body + 4, c->wr_id);
	l->body[12] = c->kind;
	l->body[13] = c->status;
	l->body[14] = c->opcode;
	l->body[15] = c->with_imm;
	put32(l->body + 16, c->len);
	put32(l->body + 20, c->imm);
	put32(l->body + 24, c->value);
	/* Release pairs with the acquire in ring_comp_take(). */
	atomic_store_explicit(&l->seq, ++r->comp, memory_order_release);
}

bool ring_comp_take(struct ring *r, struct ring_comp *c)
{
	struct ring_comp_line *l = &r->comps[r->comp % RING_COMPS];

	if (atomic_load_explicit(&l->seq, memory_order_acquire) != r->comp + 1)
		return false;
	c->vqp = get32(l->body);
	c->wr_id = get64(l->body + 4);
	c->kind = l->body[12];
	c->status = l->body[13];
	c->opcode = l->body[14];
	c->with_imm = l->body[15];
	c->len = get32(l->body + 16);
	c->imm = get32(l->body + 20);
	c->value = get32(l->body + 24);
	/* Release: the completion is read before the service sees the
	 * cursor. */
	atomic_store_explicit(&r->heads->comps_taken, ++r->comp,
			      memory_order_release);
	return true;
}
