/* SPDX-License-Identifier: MIT */
/*
 * wr.c - ibv_wr_*: requests that are built call by call, then posted together.
 *
 * wr_start() to wr_complete() or wr_abort() is one thread's, under a lock of
 * its own: the QP's lock is taken by wr_complete() alone, so a thread that
 * lingers in between holds up only other builders. Inline data is copied when
 * it is set. A mistake is kept and returned by wr_complete(), which posts all
 * or nothing.
 */
#include "dev/soft/qp/wr.h"

#include <errno.h>
#include <string.h>

/* One request: its pieces and its inline bytes lie behind it. */
struct built {
	struct ibv_send_wr wr;
	struct ibv_sge sge[];
};

struct soft_wrs {
	struct soft_lock lock; /* from wr_start() on */
	int err;
	uint32_t n, cap, sge_max;
	size_t stride, inline_off;
	char *built;
};

static struct soft_wrs *wrs_of(struct ibv_qp_ex *ex)
{
	return container_of(ex, struct soft_qp, ex)->wrs;
}

static struct built *at(const struct soft_wrs *b, uint32_t i)
{
	return (struct built *)(void *)(b->built + i * b->stride);
}

static int grow(struct soft_qp *q, struct soft_wrs *b)
{
	uint32_t cap = b->cap ? b->cap * 2 : 16;
	char *p;

	if (cap > q->sq_max)
		cap = q->sq_max;
	if (cap <= b->cap)
		return ENOMEM;
	p = env_alloc(q->s->env, cap * b->stride);
	if (!p)
		return ENOMEM;
	if (b->n)
		memcpy(p, b->built, b->n * b->stride);
	env_free(q->s->env, b->built);
	b->built = p;
	b->cap = cap;
	return 0;
}

static void wr_start(struct ibv_qp_ex *ex)
{
	struct soft_wrs *b = wrs_of(ex);

	soft_lock(&b->lock);
	b->err = 0;
	b->n = 0;
}

static void wr_abort(struct ibv_qp_ex *ex)
{
	soft_unlock(&wrs_of(ex)->lock);
}

/* NULL after a mistake. */
static struct ibv_send_wr *add(struct ibv_qp_ex *ex, enum ibv_wr_opcode op)
{
	struct soft_qp *q = container_of(ex, struct soft_qp, ex);
	struct soft_wrs *b = q->wrs;
	struct ibv_send_wr *wr;

	if (unlikely(b->n == b->cap) && !b->err)
		b->err = grow(q, b);
	if (unlikely(b->err))
		return NULL;
	wr = &at(b, b->n++)->wr;
	memset(wr, 0, sizeof(*wr));
	wr->wr_id = ex->wr_id;
	wr->opcode = op;
	/* Inline is what the data's setter says. */
	wr->send_flags = ex->wr_flags & ~(unsigned)IBV_SEND_INLINE;
	return wr;
}

static void wr_send(struct ibv_qp_ex *ex)
{
	add(ex, IBV_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *ex, __be32 imm)
{
	struct ibv_send_wr *wr = add(ex, IBV_WR_SEND_WITH_IMM);

	if (wr)
		wr->imm_data = imm;
}

static struct ibv_send_wr *add_rdma(struct ibv_qp_ex *ex, enum ibv_wr_opcode op,
				    uint32_t rkey, uint64_t addr)
{
	struct ibv_send_wr *wr = add(ex, op);

	if (wr) {
		wr->wr.rdma.rkey = rkey;
		wr->wr.rdma.remote_addr = addr;
	}
	return wr;
}

static void wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr)
{
	add_rdma(ex, IBV_WR_RDMA_WRITE, rkey, addr);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey,
			      uint64_t addr, __be32 imm)
{
	struct ibv_send_wr *wr =
		add_rdma(ex, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, addr);

	if (wr)
		wr->imm_data = imm;
}

static void wr_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr)
{
	add_rdma(ex, IBV_WR_RDMA_READ, rkey, addr);
}

static void add_atomic(struct ibv_qp_ex *ex, enum ibv_wr_opcode op,
		       uint32_t rkey, uint64_t addr, uint64_t a, uint64_t b)
{
	struct ibv_send_wr *wr = add(ex, op);

	if (!wr)
		return;
	wr->wr.atomic.rkey = rkey;
	wr->wr.atomic.remote_addr = addr;
	wr->wr.atomic.compare_add = a;
	wr->wr.atomic.swap = b;
}

static void wr_bind_mw(struct ibv_qp_ex *ex, struct ibv_mw *mw, uint32_t rkey,
		       const struct ibv_mw_bind_info *info)
{
	struct ibv_send_wr *wr = add(ex, IBV_WR_BIND_MW);

	if (!wr)
		return;
	wr->bind_mw.mw = mw;
	wr->bind_mw.rkey = rkey;
	wr->bind_mw.bind_info = *info;
}

static void add_inv(struct ibv_qp_ex *ex, enum ibv_wr_opcode op, uint32_t rkey)
{
	struct ibv_send_wr *wr = add(ex, op);

	if (wr)
		wr->invalidate_rkey = rkey;
}

static void wr_local_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	add_inv(ex, IBV_WR_LOCAL_INV, rkey);
}

static void wr_send_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	add_inv(ex, IBV_WR_SEND_WITH_INV, rkey);
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey,
			      uint64_t addr, uint64_t compare, uint64_t swap)
{
	add_atomic(ex, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, addr, compare, swap);
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey,
				uint64_t addr, uint64_t value)
{
	add_atomic(ex, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, addr, value, 0);
}

/* The request that is being built; NULL after a mistake. */
static struct built *last(struct soft_wrs *b)
{
	if (unlikely(!b->n && !b->err))
		b->err = EINVAL; /* a setter without a request */
	return b->err ? NULL : at(b, b->n - 1);
}

static void wr_set_ud_addr(struct ibv_qp_ex *ex, struct ibv_ah *ah,
			   uint32_t qpn, uint32_t qkey)
{
	struct built *w = last(wrs_of(ex));

	if (!w)
		return;
	w->wr.wr.ud.ah = ah;
	w->wr.wr.ud.remote_qpn = qpn;
	w->wr.wr.ud.remote_qkey = qkey;
}

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t n,
			    const struct ibv_sge *list)
{
	struct soft_wrs *b = wrs_of(ex);
	struct built *w = last(b);

	if (!w)
		return;
	if (unlikely(n > b->sge_max)) {
		b->err = EINVAL;
		return;
	}
	if (n)
		memcpy(w->sge, list, n * sizeof(*list));
	w->wr.num_sge = (int)n;
}

static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr,
		       uint32_t len)
{
	struct ibv_sge sge = {.addr = addr, .length = len, .lkey = lkey};

	wr_set_sge_list(ex, 1, &sge);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t n,
				    const struct ibv_data_buf *list)
{
	struct soft_wrs *b = wrs_of(ex);
	struct built *w = last(b);
	size_t len = 0, i;
	char *data;

	if (!w)
		return;
	data = (char *)w + b->inline_off;
	for (i = 0; i < n; i++) {
		if (unlikely(list[i].length >
			     b->stride - b->inline_off - len)) {
			b->err = EINVAL;
			return;
		}
		if (list[i].length)
			memcpy(data + len, list[i].addr, list[i].length);
		len += list[i].length;
	}
	w->sge[0] = (struct ibv_sge){.length = (uint32_t)len};
	w->wr.num_sge = 1;
	w->wr.send_flags |= IBV_SEND_INLINE;
}

static void wr_set_inline_data(struct ibv_qp_ex *ex, void *addr, size_t len)
{
	struct ibv_data_buf one = {.addr = addr, .length = len};

	wr_set_inline_data_list(ex, 1, &one);
}

static int wr_complete(struct ibv_qp_ex *ex)
{
	struct soft_wrs *b = wrs_of(ex);
	struct built *w;
	uint32_t i;
	int err;

	/* Only now: growing moved them. */
	for (i = 0; i < b->n; i++) {
		w = at(b, i);
		w->wr.sg_list = w->sge;
		w->wr.next = i + 1 < b->n ? &at(b, i + 1)->wr : NULL;
		if (w->wr.send_flags & IBV_SEND_INLINE)
			w->sge[0].addr = (uintptr_t)((char *)w + b->inline_off);
	}
	err = b->err;
	if (!err && b->n)
		err = soft_post_all(&ex->qp_base, &at(b, 0)->wr, b->n);
	soft_unlock(&b->lock);
	return err;
}

#define OPS_UD (IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM)
#define OPS_UC                                                           \
	(OPS_UD | IBV_QP_EX_WITH_RDMA_WRITE |                            \
	 IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_LOCAL_INV | \
	 IBV_QP_EX_WITH_BIND_MW)
#define OPS_RC                               \
	(OPS_UC | IBV_QP_EX_WITH_RDMA_READ | \
	 IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | \
	 IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_SEND_WITH_INV)

static uint64_t ops_of(enum ibv_qp_type type)
{
	switch (type) {
	case IBV_QPT_RC:
		return OPS_RC;
	case IBV_QPT_UC:
		return OPS_UC;
	case IBV_QPT_UD:
		return OPS_UD;
	default:
		return 0;
	}
}

/* Only what was asked for is there, as with real providers. */
static void table_fill(struct ibv_qp_ex *x, uint64_t ops, bool ud)
{
	x->wr_start = wr_start;
	x->wr_complete = wr_complete;
	x->wr_abort = wr_abort;
	x->wr_set_sge = wr_set_sge;
	x->wr_set_sge_list = wr_set_sge_list;
	x->wr_set_inline_data = wr_set_inline_data;
	x->wr_set_inline_data_list = wr_set_inline_data_list;
	if (ud)
		x->wr_set_ud_addr = wr_set_ud_addr;
	if (ops & IBV_QP_EX_WITH_SEND)
		x->wr_send = wr_send;
	if (ops & IBV_QP_EX_WITH_SEND_WITH_IMM)
		x->wr_send_imm = wr_send_imm;
	if (ops & IBV_QP_EX_WITH_RDMA_WRITE)
		x->wr_rdma_write = wr_rdma_write;
	if (ops & IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM)
		x->wr_rdma_write_imm = wr_rdma_write_imm;
	if (ops & IBV_QP_EX_WITH_RDMA_READ)
		x->wr_rdma_read = wr_rdma_read;
	if (ops & IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP)
		x->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	if (ops & IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)
		x->wr_atomic_fetch_add = wr_atomic_fetch_add;
	if (ops & IBV_QP_EX_WITH_BIND_MW)
		x->wr_bind_mw = wr_bind_mw;
	if (ops & IBV_QP_EX_WITH_LOCAL_INV)
		x->wr_local_inv = wr_local_inv;
	if (ops & IBV_QP_EX_WITH_SEND_WITH_INV)
		x->wr_send_inv = wr_send_inv;
}

int soft_wrs_check(enum ibv_qp_type type, uint64_t ops)
{
	return ops & ~ops_of(type) ? -EOPNOTSUPP : 0;
}

int soft_wrs_new(struct soft_qp *q, uint64_t ops)
{
	enum ibv_qp_type type = q->ex.qp_base.qp_type;
	struct soft_wrs *b = env_alloc(q->s->env, sizeof(*b));

	if (!b)
		return -ENOMEM;
	soft_lock_init(&b->lock, q->flags & DEV_QP_SINGLE_THREADED);
	b->sge_max = q->sge_max;
	b->inline_off = sizeof(struct built) +
			(q->sge_max ? q->sge_max : 1) * sizeof(struct ibv_sge);
	b->stride = (b->inline_off + q->inline_max + 7) & ~(size_t)7;
	q->wrs = b;
	table_fill(&q->ex, ops, type == IBV_QPT_UD);
	return 0;
}

void soft_wrs_free(struct soft_qp *q)
{
	if (!q->wrs)
		return;
	env_free(q->s->env, q->wrs->built);
	env_free(q->s->env, q->wrs);
}
