/* SPDX-License-Identifier: MIT */
/*
 * fake.h - a device for the engine: DC queue pairs that carry requests out when
 * the test says so, in any order among each other, and note what a real one
 * would not stand.
 */
#ifndef SKEIN_TESTS_UNIT_VQP_FAKE_H
#define SKEIN_TESTS_UNIT_VQP_FAKE_H

#include "../cm.h"
#include "base/prng.h"
#include "vqp/engine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define FAKE_MEM 131072u
#define FAKE_DCIS 4u
#define FAKE_SQ 16u
#define FAKE_CQ 40u
#define FAKE_RKEY 7u /* of the device */
#define FAKE_TABLE 49152u
#define FAKE_REGION 0x10001u /* [0, FAKE_TABLE) with all rights */
#define FAKE_LIE 0x10002u    /* the same, and the device knows no such rkey */
#define FAKE_RO 0x10003u     /* the same, for READs */
#define FAKE_DOMAIN 0x10004u /* the same as the first, of domain 3 */
#define FAKE_LKEY 9u
#define FAKE_NODES 6u

/* Another node: memory, and an engine for its messages. */
struct fake_node {
	struct meta_node id;
	struct vqp_engine *e; /* NULL: messages vanish */
	uint8_t mem[FAKE_MEM];
	bool dead;
	bool slow; /* nothing to it is carried out now */
};

struct fake_wr {
	struct ibv_send_wr wr;
	struct ibv_sge sge[VQP_SGES + 1];
	struct fake_node *to;
	bool done; /* its slot is not free before its completion was polled */
};

struct fake_dci {
	struct fake_wr q[64];
	uint32_t head, next, tail; /* freed, to be done, posted */
	bool err;
	unsigned life;
};

struct fake {
	struct fake_dci dci[FAKE_DCIS];
	struct {
		struct ibv_wc wc;
		unsigned dci, life;
		uint32_t frees; /* tail of the queue after it */
	} cq[256];
	unsigned n_cq;
	struct fake_node *node; /* FAKE_NODES of them */
	struct prng rng;
	char wrong[128]; /* "": nothing */
	unsigned replaced;
	unsigned poll_max; /* completions of one poll; 0: any */
	unsigned replace_fails;
	/* Posts that are refused: the next ones; those with this address, ever;
	 * all of a DCI until it is replaced, which completes nothing either. */
	unsigned refuse;
	uint64_t refuse_at;
	bool stuck[FAKE_DCIS];
	enum ibv_wc_status breaks; /* the next request ends so; 0: as it does */
	unsigned fail_alloc;	   /* the n-th from now on; 0: none */
	unsigned allocs;
};

static inline void fake_wrong(struct fake *f, const char *what)
{
	if (!f->wrong[0])
		snprintf(f->wrong, sizeof(f->wrong), "%s", what);
}

static inline bool fake_refuses(struct fake *f, unsigned dci,
				const struct ibv_send_wr *wr)
{
	if (f->refuse) {
		f->refuse--;
		return true;
	}
	for (; wr && f->refuse_at; wr = wr->next)
		if (wr->wr.rdma.remote_addr == f->refuse_at)
			return true;
	return f->stuck[dci];
}

static inline int fake_post(void *arg, unsigned dci, struct ibv_send_wr *wr,
			    unsigned n, const struct vqp_peer *to)
{
	struct fake *f = arg;
	struct fake_dci *d = &f->dci[dci];
	struct fake_wr *w;
	uint32_t i;

	if (d->tail - d->head + n > FAKE_SQ) {
		fake_wrong(f, "a send queue overflows");
		return -ENOMEM;
	}
	for (i = d->next; i != d->tail; i++)
		if (d->q[i % 64].to != to->way)
			fake_wrong(f, "behind another target's request");
	if (fake_refuses(f, dci, wr))
		return -EINVAL;
	for (; wr; wr = wr->next) {
		w = &d->q[d->tail++ % 64];
		w->wr = *wr;
		w->to = to->way;
		memcpy(w->sge, wr->sg_list,
		       (size_t)wr->num_sge * sizeof(*w->sge));
		w->wr.sg_list = w->sge;
		if (!wr->next && !(wr->send_flags & IBV_SEND_SIGNALED))
			fake_wrong(f, "the last one is not signalled");
	}
	return 0;
}

static inline int fake_poll(void *arg, int n, struct ibv_wc *wc)
{
	struct fake *f = arg;
	int got = 0;

	if (f->poll_max && n > (int)f->poll_max)
		n = (int)f->poll_max;
	while (got < n && (unsigned)got < f->n_cq) {
		struct fake_dci *d = &f->dci[f->cq[got].dci];

		if (d->life == f->cq[got].life)
			d->head = f->cq[got].frees;
		wc[got] = f->cq[got].wc;
		got++;
	}
	f->n_cq -= (unsigned)got;
	memmove(f->cq, f->cq + got, f->n_cq * sizeof(f->cq[0]));
	return got;
}

static inline void fake_complete(struct fake *f, unsigned dci, uint64_t id,
				 enum ibv_wc_status status)
{
	struct fake_dci *d = &f->dci[dci];

	/* what a broken one flushed may be there beside its heir's */
	if (f->n_cq >= FAKE_CQ && !f->replaced)
		fake_wrong(f, "the completion queue overflows");
	if (f->n_cq == 256)
		return;
	f->cq[f->n_cq].wc = (struct ibv_wc){.wr_id = id, .status = status};
	f->cq[f->n_cq].dci = dci;
	f->cq[f->n_cq].life = d->life;
	f->cq[f->n_cq++].frees = d->next;
}

static inline uint8_t *fake_at(uint64_t addr)
{
	return (uint8_t *)(uintptr_t)addr;
}

static inline void fake_send(const struct fake_wr *w)
{
	uint8_t buf[MSG_BUF];
	size_t len = 0;

	for (int i = 0; i < w->wr.num_sge; i++) {
		memcpy(buf + len, fake_at(w->sge[i].addr), w->sge[i].length);
		len += w->sge[i].length;
	}
	if (w->to->e)
		vqp_engine_receive(w->to->e, buf, len);
}

static inline enum ibv_wc_status fake_do(struct fake_wr *w)
{
	uint64_t at = w->wr.wr.rdma.remote_addr, old;
	uint32_t rkey = w->wr.wr.rdma.rkey, len = 0;
	bool atomic = w->wr.opcode >= IBV_WR_ATOMIC_CMP_AND_SWP;

	if (w->to->dead)
		return IBV_WC_RETRY_EXC_ERR;
	if (w->wr.opcode == IBV_WR_SEND) {
		fake_send(w);
		return IBV_WC_SUCCESS;
	}
	if (atomic) {
		at = w->wr.wr.atomic.remote_addr;
		rkey = w->wr.wr.atomic.rkey;
	}
	for (int i = 0; i < w->wr.num_sge; i++)
		len += w->sge[i].length;
	if (rkey != FAKE_RKEY || at > FAKE_MEM || len > FAKE_MEM - at)
		return IBV_WC_REM_ACCESS_ERR;
	if (atomic) {
		memcpy(&old, w->to->mem + at, 8);
		memcpy(fake_at(w->sge[0].addr), &old, 8);
		old += w->wr.wr.atomic.compare_add;
		memcpy(w->to->mem + at, &old, 8);
		return IBV_WC_SUCCESS;
	}
	for (int i = 0; i < w->wr.num_sge; i++) {
		if (w->wr.opcode == IBV_WR_RDMA_READ)
			memcpy(fake_at(w->sge[i].addr), w->to->mem + at,
			       w->sge[i].length);
		else
			memcpy(w->to->mem + at, fake_at(w->sge[i].addr),
			       w->sge[i].length);
		at += w->sge[i].length;
	}
	return IBV_WC_SUCCESS;
}

/* Carries the next request of a DCI out. False: it has none. */
static inline bool fake_step(struct fake *f, unsigned dci)
{
	struct fake_dci *d = &f->dci[dci];
	enum ibv_wc_status status;
	struct fake_wr *w;

	if (d->next == d->tail || d->err || d->q[d->next % 64].to->slow)
		return false;
	w = &d->q[d->next++ % 64];
	status = fake_do(w);
	if (f->stuck[dci]) /* carried out, and it never says so */
		return true;
	if (f->breaks) {
		status = f->breaks;
		f->breaks = 0;
	}
	if (status || w->wr.send_flags & IBV_SEND_SIGNALED)
		fake_complete(f, dci, w->wr.wr_id, status);
	if (!status)
		return true;
	d->err = true;
	while (d->next != d->tail) {
		w = &d->q[d->next++ % 64];
		fake_complete(f, dci, w->wr.wr_id, IBV_WC_WR_FLUSH_ERR);
	}
	return true;
}

static inline bool fake_any(struct fake *f)
{
	unsigned at = (unsigned)prng_below(&f->rng, FAKE_DCIS);

	for (unsigned i = 0; i < FAKE_DCIS; i++)
		if (fake_step(f, (at + i) % FAKE_DCIS))
			return true;
	return false;
}

static inline int fake_replace(void *arg, unsigned dci)
{
	struct fake *f = arg;
	struct fake_dci *d = &f->dci[dci];

	if (f->replace_fails) {
		f->replace_fails--;
		return -ENOMEM;
	}
	f->replaced++;
	f->stuck[dci] = false;
	d->head = d->next = d->tail;
	d->err = false;
	d->life++;
	return 0;
}

static inline int fake_way(void *arg, const struct meta_node *n, void **way)
{
	struct fake *f = arg;

	for (unsigned i = 0; i < FAKE_NODES; i++)
		if (meta_same(&f->node[i].id, n->gid, n->port)) {
			*way = &f->node[i];
			return 0;
		}
	return -EHOSTUNREACH;
}

static inline void fake_way_free(void *arg, void *way)
{
}

static inline bool fake_local(void *arg, uint32_t lkey, uint64_t addr,
			      uint32_t len, bool write)
{
	return lkey == FAKE_LKEY;
}

static inline void *fake_alloc(void *arg, size_t len)
{
	struct fake *f = arg;

	f->allocs++;
	if (f->fail_alloc && !--f->fail_alloc)
		return NULL;
	return calloc(1, len);
}

static inline void fake_free(void *arg, void *p)
{
	free(p);
}

static inline void fake_log(void *arg, const char *line)
{
}

static const struct vqp_port fake_port = {
	.post = fake_post,
	.poll = fake_poll,
	.replace = fake_replace,
	.way = fake_way,
	.way_free = fake_way_free,
	.local_ok = fake_local,
	.alloc = fake_alloc,
	.free = fake_free,
	.log = fake_log,
};

/* One engine with its device. */
struct half {
	struct fake f;
	struct vqp_engine e;
	uint8_t *cells;
};

static inline void half_open(struct half *h, struct fake_node *nodes,
			     unsigned self, uint64_t seed)
{
	struct vqp_conf c = {.port = &fake_port,
			     .arg = &h->f,
			     .dcis = FAKE_DCIS,
			     .sq_max = FAKE_SQ,
			     .cq_max = FAKE_CQ,
			     .self = nodes[self].id,
			     .cells_lkey = FAKE_LKEY};

	memset(h, 0, sizeof(*h));
	h->cells = calloc(VQP_SLOTS, VQP_CELL);
	c.cells = h->cells;
	h->f.node = nodes;
	prng_init(&h->f.rng, seed);
	assert_int_equal(vqp_engine_init(&h->e, &c), 0);
	nodes[self].e = &h->e;
}

static inline void half_close(struct half *h)
{
	vqp_engine_fini(&h->e);
	free(h->cells);
}

static inline void fake_region(struct fake_node *n, uint32_t id, uint32_t rkey,
			       uint32_t access)
{
	struct region_record r = {.len = FAKE_TABLE,
				  .id = id,
				  .rkey = rkey,
				  .access = access,
				  .domain = id == FAKE_DOMAIN ? 3 : 0};

	region_encode(&r,
		      n->mem + FAKE_TABLE + region_place(id) * REGION_RECORD);
}

static inline struct fake_node *fake_nodes(void)
{
	const uint32_t all = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			     IBV_ACCESS_REMOTE_ATOMIC;
	struct fake_node *n = calloc(FAKE_NODES, sizeof(*n));

	for (unsigned i = 0; i < FAKE_NODES; i++) {
		n[i].id = (struct meta_node){.gid = {0xfe, 0x80},
					     .port = 100 + i,
					     .dctn = 1000 + i,
					     .key = 5 + i,
					     .incarnation = 1,
					     .table = FAKE_TABLE,
					     .table_rkey = FAKE_RKEY};
		fake_region(&n[i], FAKE_REGION, FAKE_RKEY, all);
		fake_region(&n[i], FAKE_LIE, FAKE_RKEY + 1, all);
		fake_region(&n[i], FAKE_RO, FAKE_RKEY, IBV_ACCESS_REMOTE_READ);
		fake_region(&n[i], FAKE_DOMAIN, FAKE_RKEY, all);
	}
	return n;
}

#endif
