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
#define FAKE_RCS 2u
#define FAKE_QPS (FAKE_DCIS + FAKE_RCS)
#define FAKE_ASKER (FAKE_QPS + FAKE_RCS) /* those of peers that send, too */
#define FAKE_ALL (FAKE_ASKER + 1)	 /* and the DCI for questions */
#define FAKE_SQ 16u
#define FAKE_CQ 40u
#define FAKE_RKEY 7u /* of the device */
#define FAKE_TABLE 49152u
#define FAKE_REGION 0x10001u /* [0, FAKE_TABLE) with all rights */
#define FAKE_LIE 0x10002u    /* the same, and the device knows no such rkey */
#define FAKE_RO 0x10003u     /* the same, for READs */
#define FAKE_DOMAIN 0x10004u /* the same as the first, of domain 3 */
#define FAKE_LKEY 9u
#define FAKE_OWN 11u /* rkey of a poster's memory: READs, real addresses */
#define FAKE_NODES 6u

/* Another node: memory, and an engine for its messages. */
struct fake_node {
	struct meta_node id;
	struct vqp_engine *e; /* NULL: messages vanish */
	uint8_t mem[FAKE_MEM];
	bool dead;
	bool slow;    /* nothing to it is carried out now */
	bool full;    /* it has no receive left */
	bool stopped; /* its process is: datagrams to it wait */
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

/* An RC queue pair: what it tells, what it was told. */
struct fake_rc {
	bool made, joined;
	struct rc_addr own, far;
};

/* A datagram under way. */
struct fake_told {
	struct fake_node *to;
	uint8_t msg[RC_MSG];
};

struct fake {
	struct fake_dci dci[FAKE_ALL];
	struct fake_rc rc[2 * FAKE_RCS];
	struct fake_told told[64];
	struct fake_told old[4]; /* come once more, much later */
	/* look-ups of two records at a meta server: node 4 or 5 */
	struct {
		unsigned server;
		uint32_t place[2];
		uint64_t token;
	} look[16];
	unsigned n_looks;
	unsigned n_told, rcs_made;
	bool lossy; /* datagrams get lost, and come twice and late */
	bool rc_refuse;
	/* messages that have arrived; their receives complete late */
	struct {
		uint8_t buf[MSG_BUF];
		size_t len;
		unsigned from; /* queue pair of the sender */
		bool there;
	} late[32];
	bool late_recvs;
	bool keeps_late; /* a mistake: past the end of the queue pair */
	struct {
		struct ibv_wc wc;
		unsigned dci, life;
		uint32_t frees; /* tail of the queue after it */
	} cq[256];
	unsigned n_cq;
	struct fake_node *node; /* FAKE_NODES of them */
	struct vqp_engine *node_e;
	struct prng rng;
	char wrong[128]; /* "": nothing */
	unsigned replaced;
	unsigned poll_max; /* completions of one poll; 0: any */
	unsigned replace_fails;
	/* Posts that are refused: the next ones; those with this address, ever;
	 * all of a DCI until it is replaced, which completes nothing either. */
	unsigned refuse;
	uint64_t refuse_at;
	bool stuck[FAKE_ALL];
	bool dumb;	 /* it does not say which queue pairs are broken */
	bool sick;	 /* all that are made anew are broken, too */
	bool knows_dead; /* the device says which peers live */
	bool all_dead;	 /* it says that none does */
	unsigned probes, asks;
	enum ibv_wc_status breaks; /* the next request ends so; 0: as it does */
	bool reads_fail;	   /* of memory that was announced */
	/* called before such a READ is carried out, once */
	void (*before_read)(void);
	unsigned fail_alloc; /* the n-th from now on; 0: none */
	unsigned allocs;
	bool no_memory;
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
	f->probes += dci >= FAKE_QPS && dci < FAKE_ASKER;
	f->asks += dci == FAKE_ASKER;
	for (i = d->next; i != d->tail; i++)
		if (d->q[i % 64].to != to->way)
			fake_wrong(f, "behind another target's request");
	if (fake_refuses(f, dci, wr))
		return -EINVAL;
	for (; wr; wr = wr->next) {
		w = &d->q[d->tail++ % 64];
		w->wr = *wr;
		w->to = to->way;
		if (wr->num_sge)
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

static inline void fake_arrive(struct fake *f, unsigned from,
			       const uint8_t *buf, size_t len);

static inline uint8_t *fake_at(uint64_t addr)
{
	return (uint8_t *)(uintptr_t)addr;
}

/* Receives of one queue pair complete in order, of two in any order. */
static inline bool fake_late_one(struct fake *f)
{
	unsigned at = (unsigned)prng_below(&f->rng, 32), i, k;

	for (k = 0; k < 32; k++) {
		i = (at + k) % 32;
		if (!f->late[i].there)
			continue;
		/* the oldest of its queue pair is first in the array */
		for (unsigned j = 0; j < i; j++)
			if (f->late[j].there &&
			    f->late[j].from == f->late[i].from) {
				i = j;
				break;
			}
		f->late[i].there = false;
		vqp_engine_receive(f->node_e, f->late[i].buf, f->late[i].len);
		return true;
	}
	return false;
}

/* All that have come by this queue pair. */
static inline void fake_late_of(struct fake *f, unsigned from)
{
	for (unsigned i = 0; i < 32; i++) {
		if (!f->late[i].there || f->late[i].from != from)
			continue;
		f->late[i].there = false;
		vqp_engine_receive(f->node_e, f->late[i].buf, f->late[i].len);
	}
}

static inline void fake_arrive(struct fake *f, unsigned from,
			       const uint8_t *buf, size_t len)
{
	unsigned i, n = 0;

	if (!f->late_recvs) {
		vqp_engine_receive(f->node_e, buf, len);
		return;
	}
	/* packed, oldest first */
	for (i = 0; i < 32; i++)
		if (f->late[i].there) {
			if (i != n) {
				f->late[n] = f->late[i];
				f->late[i].there = false;
			}
			n++;
		}
	if (n == 32) {
		while (fake_late_one(f))
			;
		n = 0;
	}
	memcpy(f->late[n].buf, buf, len);
	f->late[n].len = len;
	f->late[n].from = from;
	f->late[n].there = true;
}

/* An RC queue pair is another one each time that it is made. */
static inline unsigned fake_id(const struct fake *f, unsigned dci)
{
	return dci < FAKE_DCIS ? dci
			       : FAKE_QPS + f->rc[dci - FAKE_DCIS].own.qpn;
}

static inline void fake_send(const struct fake *f, const struct fake_wr *w,
			     unsigned dci)
{
	uint8_t buf[MSG_BUF];
	size_t len = 0;

	for (int i = 0; i < w->wr.num_sge; i++) {
		memcpy(buf + len, fake_at(w->sge[i].addr), w->sge[i].length);
		len += w->sge[i].length;
	}
	if (w->to->e)
		fake_arrive(w->to->e->conf.arg, fake_id(f, dci), buf, len);
}

/* The other end of an RC queue pair of f, which has to be there. */
static inline bool fake_rc_there(struct fake *f, unsigned rc,
				 const struct fake_node *to)
{
	const struct fake_rc *own = &f->rc[rc], *far;
	struct fake *g;

	if (!to->e || !own->joined)
		return false;
	g = to->e->conf.arg;
	far = &g->rc[own->far.qpn % (2 * FAKE_RCS)];
	return far->joined && far->own.qpn == own->far.qpn &&
	       far->far.qpn == own->own.qpn;
}

static inline enum ibv_wc_status fake_read_own(struct fake *f,
					       struct fake_wr *w)
{
	uint64_t at = w->wr.wr.rdma.remote_addr;
	void (*before)(void) = f->before_read;

	f->before_read = NULL;
	if (before)
		before();
	if (f->reads_fail)
		return IBV_WC_REM_ACCESS_ERR;
	for (int i = 0; i < w->wr.num_sge; i++) {
		memcpy(fake_at(w->sge[i].addr), fake_at(at), w->sge[i].length);
		at += w->sge[i].length;
	}
	return IBV_WC_SUCCESS;
}

static inline enum ibv_wc_status fake_do(struct fake *f, unsigned dci,
					 struct fake_wr *w)
{
	uint64_t at = w->wr.wr.rdma.remote_addr, old;
	uint32_t rkey = w->wr.wr.rdma.rkey, len = 0;
	bool atomic = w->wr.opcode >= IBV_WR_ATOMIC_CMP_AND_SWP;

	if (w->to->dead)
		return IBV_WC_RETRY_EXC_ERR;
	if (dci >= FAKE_DCIS && dci < FAKE_ASKER &&
	    !fake_rc_there(f, dci - FAKE_DCIS, w->to))
		return IBV_WC_RETRY_EXC_ERR;
	if (w->wr.opcode == IBV_WR_SEND && w->to->full)
		return IBV_WC_RNR_RETRY_EXC_ERR;
	if (w->wr.opcode == IBV_WR_SEND) {
		fake_send(f, w, dci);
		return IBV_WC_SUCCESS;
	}
	if (atomic) {
		at = w->wr.wr.atomic.remote_addr;
		rkey = w->wr.wr.atomic.rkey;
	}
	for (int i = 0; i < w->wr.num_sge; i++)
		len += w->sge[i].length;
	if (!len && w->wr.opcode == IBV_WR_RDMA_WRITE)
		return IBV_WC_SUCCESS;
	if (rkey == FAKE_OWN && w->wr.opcode == IBV_WR_RDMA_READ)
		return fake_read_own(f, w);
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

static inline bool fake_broken(void *arg, unsigned dci)
{
	struct fake *f = arg;

	if (f->dci[dci].tail != f->dci[dci].head)
		fake_wrong(f, "it is asked of a queue pair in use");
	return f->dci[dci].err && !f->dumb;
}

static inline void fake_flush(struct fake *f, unsigned dci)
{
	struct fake_dci *d = &f->dci[dci];

	while (d->next != d->tail)
		fake_complete(f, dci, d->q[d->next++ % 64].wr.wr_id,
			      IBV_WC_WR_FLUSH_ERR);
}

/* Carries the next request of a DCI out. False: it has none. */
static inline bool fake_step(struct fake *f, unsigned dci)
{
	struct fake_dci *d = &f->dci[dci];
	enum ibv_wc_status status;
	struct fake_wr *w;

	if (d->next == d->tail)
		return false;
	if (d->err) {
		fake_flush(f, dci);
		return true;
	}
	if (d->q[d->next % 64].to->slow)
		return false;
	w = &d->q[d->next % 64];
	/* an RC queue pair waits for a receive */
	if (dci >= FAKE_DCIS && w->to->full && w->wr.opcode == IBV_WR_SEND)
		return false;
	d->next++;
	status = fake_do(f, dci, w);
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
	fake_flush(f, dci);
	return true;
}

/* Delivers a datagram. */
static inline bool fake_tell_one(struct fake *f)
{
	unsigned at, n = f->n_told;
	struct fake_told t;

	if (!n)
		return false;
	at = f->lossy ? (unsigned)prng_below(&f->rng, n) : 0;
	t = f->told[at];
	if (t.to->stopped)
		return false;
	/* some come once more, later */
	if (!f->lossy || prng_below(&f->rng, 4)) {
		f->n_told--;
		memmove(&f->told[at], &f->told[at + 1],
			(f->n_told - at) * sizeof(t));
	}
	if (f->lossy && !prng_below(&f->rng, 3)) {
		struct fake_told *o = &f->old[prng_below(&f->rng, 4)], was = *o;

		*o = t;
		if (was.to && was.to->e && !was.to->dead)
			vqp_engine_datagram(was.to->e, was.msg, RC_MSG);
	}
	if (t.to->e && !t.to->dead && !(f->lossy && !prng_below(&f->rng, 4)))
		vqp_engine_datagram(t.to->e, t.msg, RC_MSG);
	return true;
}

static inline int fake_meta_read(void *arg, unsigned server,
				 const uint32_t place[2], uint64_t token)
{
	struct fake *f = arg;

	if (f->n_looks == 16)
		return -ENOMEM;
	f->look[f->n_looks].server = server;
	memcpy(f->look[f->n_looks].place, place, sizeof(f->look[0].place));
	f->look[f->n_looks++].token = token;
	return 0;
}

/* Answers the oldest look-up, but for a node that is slow. */
static inline bool fake_look_one(struct fake *f)
{
	uint8_t rec[2 * META_RECORD];
	const struct fake_node *n;
	uint64_t token;
	unsigned i;

	for (i = 0; i < f->n_looks && f->node[4 + f->look[i].server].slow; i++)
		;
	if (i == f->n_looks)
		return false;
	n = &f->node[4 + f->look[i].server];
	token = f->look[i].token;
	for (unsigned k = 0; k < 2; k++)
		memcpy(rec + (size_t)k * META_RECORD,
		       n->mem + (size_t)(1 + f->look[i].place[k]) * META_RECORD,
		       META_RECORD);
	memmove(&f->look[i], &f->look[i + 1],
		(--f->n_looks - i) * sizeof(f->look[0]));
	vqp_engine_meta_read(f->node_e, token, !n->dead, rec);
	return true;
}

static inline bool fake_any(struct fake *f)
{
	unsigned at = (unsigned)prng_below(&f->rng, FAKE_QPS);

	for (unsigned i = 0; i < FAKE_QPS; i++)
		if (fake_step(f, (at + i) % FAKE_QPS))
			return true;
	for (unsigned i = FAKE_QPS; i < FAKE_ALL; i++)
		if (fake_step(f, i))
			return true;
	return fake_tell_one(f) || fake_late_one(f) || fake_look_one(f);
}

static inline int fake_rc_make(void *arg, unsigned rc, struct rc_addr *own)
{
	struct fake *f = arg;

	if (f->rc_refuse)
		return -ENOMEM;
	if (f->rc[rc].made)
		fake_wrong(f, "an RC queue pair is made twice");
	/* the number again in the lowest digits */
	f->rc[rc] = (struct fake_rc){
		.made = true,
		.own = {.qpn = ++f->rcs_made * 2 * FAKE_RCS + rc,
			.mtu = 5,
			.rd_atomic = 1}};
	*own = f->rc[rc].own;
	return 0;
}

static inline int fake_rc_join(void *arg, unsigned rc,
			       const struct rc_addr *far,
			       const struct vqp_peer *peer)
{
	struct fake *f = arg;

	if (!f->rc[rc].made || f->rc[rc].joined)
		fake_wrong(f, "joins what is not there, or twice");
	f->rc[rc].far = *far;
	f->rc[rc].joined = true;
	return 0;
}

static inline void fake_rc_free(void *arg, unsigned rc)
{
	struct fake *f = arg;
	struct fake_dci *d = &f->dci[FAKE_DCIS + rc];
	unsigned far = FAKE_QPS + f->rc[rc].far.qpn, kept = 0;

	f->rc[rc] = (struct fake_rc){0};
	for (unsigned i = 0; i < f->n_cq; i++)
		if (rc < FAKE_RCS || f->cq[i].dci != FAKE_DCIS + rc)
			f->cq[kept++] = f->cq[i];
	f->n_cq = kept;
	if (rc >= FAKE_RCS && !f->keeps_late)
		fake_late_of(f, far);
	else if (rc < FAKE_RCS && d->next != d->tail && !d->err &&
		 !f->stuck[FAKE_DCIS + rc] && !d->q[d->next % 64].to->full)
		fake_wrong(f, "freed with requests under way");
	f->replaced += d->err;
	f->stuck[FAKE_DCIS + rc] = false;
	d->head = d->next = d->tail;
	d->err = false;
	d->life++;
}

static inline int fake_rc_probe(void *arg, unsigned rc)
{
	const struct fake *f = arg;

	if (f->all_dead)
		return -ENOTCONN;
	return f->knows_dead ? 0 : -EOPNOTSUPP;
}

static inline void fake_tell(void *arg, const struct vqp_peer *to,
			     const uint8_t *msg)
{
	struct fake *f = arg;

	if (f->n_told == 64)
		return;
	f->told[f->n_told].to = to->way;
	memcpy(f->told[f->n_told++].msg, msg, RC_MSG);
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
	d->err = f->sick;
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

static inline bool fake_rkey_of(void *arg, uint32_t lkey, uint64_t addr,
				uint32_t len, uint32_t *rkey)
{
	*rkey = FAKE_OWN;
	return lkey == FAKE_LKEY;
}

static inline void *fake_alloc(void *arg, size_t len)
{
	struct fake *f = arg;

	f->allocs++;
	if (f->no_memory || (f->fail_alloc && !--f->fail_alloc))
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
	.broken = fake_broken,
	.replace = fake_replace,
	.way = fake_way,
	.way_free = fake_way_free,
	.local_ok = fake_local,
	.rkey_of = fake_rkey_of,
	.alloc = fake_alloc,
	.free = fake_free,
	.log = fake_log,
	.rc_make = fake_rc_make,
	.rc_join = fake_rc_join,
	.rc_free = fake_rc_free,
	.rc_probe = fake_rc_probe,
	.tell = fake_tell,
	.meta_read = fake_meta_read,
};

/* One engine with its device. */
struct half {
	struct fake f;
	struct vqp_engine e;
	uint8_t *cells;
	uint64_t words[VQP_SLOTS];
};

static inline void half_open(struct half *h, struct fake_node *nodes,
			     unsigned self, uint64_t seed)
{
	struct vqp_conf c = {.port = &fake_port,
			     .arg = &h->f,
			     .dcis = FAKE_DCIS,
			     .rcs = FAKE_RCS,
			     .rc_busy = 200,
			     .sq_max = FAKE_SQ,
			     .cq_max = FAKE_CQ,
			     .self = nodes[self].id,
			     .cells_lkey = FAKE_LKEY,
			     .words = h->words,
			     .words_rkey = FAKE_OWN};

	memset(h, 0, sizeof(*h));
	h->cells = calloc(VQP_SLOTS, VQP_CELL);
	c.cells = h->cells;
	h->f.node = nodes;
	prng_init(&h->f.rng, seed);
	assert_int_equal(vqp_engine_init(&h->e, &c), 0);
	h->f.node_e = &h->e;
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
					     .udqpn = 2000 + i,
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
