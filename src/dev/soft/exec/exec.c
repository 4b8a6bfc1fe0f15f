/* SPDX-License-Identifier: MIT */
/*
 * exec.c - one work request, executed by its poster in the peer's memory.
 *
 * Everything happens between soft_hazard_on() and soft_hazard_off(), which is
 * what dereg_mr(), destroy_qp() and moves to RESET or ERR wait for. Nothing
 * read from the peer is used as an address before it was checked against what
 * is mapped here. A request that cannot go on has changed nothing that a
 * second execution would not change in the same way.
 */
#include "base/fence.h"
#include "dev/soft/exec/copy.h"
#include "dev/soft/exec/known.h"
#include "dev/soft/mw.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* streams(): a message that may be part of it, and how many bytes of them there
 * must have been. Each core's second-level cache and a good part of the third
 * are less. */
#define STREAM_PIECE (64u << 10)
#define STREAM_LEN (8u << 20)

/* A fault at the peer is written there: the peer's QP goes to ERR as well, even
 * if this QP is gone before the peer looks. On UC a bad request is dropped in
 * silence; only a broken receive breaks the QP. A DC target serves on. */
static __attribute__((noinline, cold)) int fault(struct soft_qp *q,
						 enum shm_fault what,
						 int status)
{
	if (q->look || q->early || q->dc ||
	    (q->unreliable && what != SHM_FAULT_RECV))
		return status;
	/* release: pairs with take_fault(): a receive in error before it */
	atomic_store_explicit(&q->far->fault, what, memory_order_release);
	/* UC goes on sending: the next one looks, and finds it broken */
	q->gate_ok = 0;
	soft_ring(q);
	return status;
}

static inline bool xlat_live(const struct soft_xlat *x, uint32_t key)
{
	/* relaxed: after soft_hazard_on(); pairs with the membarrier of
	 * dereg_mr() */
	return x->key == key && x->live &&
	       atomic_load_explicit(x->live, memory_order_relaxed) == x->life;
}

static inline struct soft_xlat *xlat(struct soft_qp *q, uint32_t key, int *why)
{
	struct soft_xlat *x = &q->xlat[(key >> 16) % SOFT_XLATS];

	if (likely(xlat_live(x, key)))
		return x;
	return soft_xlat_fill(q, key, why);
}

static inline bool piece_ok(struct soft_qp *q, const struct ibv_send_wr *wr,
			    const struct ibv_sge *g, uint32_t access)
{
	return wr->send_flags & IBV_SEND_INLINE || g->length == 0 ||
	       likely(soft_mr_local(q->s, q->pd, g->lkey, g->addr, g->length,
				    access));
}

/* The sum of the pieces, or a status < 0 as -ibv_wc_status. */
static __attribute__((noinline)) int64_t local_check_all(
	struct soft_qp *q, const struct ibv_send_wr *wr, uint32_t access)
{
	int64_t len = 0;
	int i;

	for (i = 0; i < wr->num_sge; i++) {
		len += wr->sg_list[i].length;
		if (!piece_ok(q, wr, &wr->sg_list[i], access))
			return -IBV_WC_LOC_PROT_ERR;
	}
	return unlikely(len > (int64_t)SOFT_MSG_MAX) ? -IBV_WC_LOC_LEN_ERR
						     : len;
}

/* The same, for one piece in line: nearly all requests have one. */
static inline int64_t local_check(struct soft_qp *q,
				  const struct ibv_send_wr *wr, uint32_t access)
{
	const struct ibv_sge *g = wr->sg_list;

	if (unlikely(wr->num_sge != 1 || g->length > SOFT_MSG_MAX ||
		     !piece_ok(q, wr, g, access)))
		return local_check_all(q, wr, access);
	return g->length;
}

/* Not points of cancellation, as these calls of the kernel are. */
static bool plain_write(int fd, uint64_t at, const void *src, size_t len)
{
	int was = env_cancel_off(NULL);
	ssize_t n;

	while (len) {
		n = pwrite(fd, src, len, (off_t)at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		src = (const char *)src + n;
		at += (uint64_t)n;
		len -= (size_t)n;
	}
	env_cancel_back(NULL, was);
	return !len;
}

static bool plain_read(int fd, uint64_t at, void *dst, size_t len)
{
	int was = env_cancel_off(NULL);
	ssize_t n;

	while (len) {
		n = pread(fd, dst, len, (off_t)at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		dst = (char *)dst + n;
		at += (uint64_t)n;
		len -= (size_t)n;
	}
	env_cancel_back(NULL, was);
	return !len;
}

/* Where it is in the peer's own memory. */
static inline uint64_t plain_at(const struct soft_xlat *x, uint64_t addr)
{
	return x->at + (addr - x->start);
}

/* Puts bytes into mapped or ordinary memory of the peer. */
static bool put_body(struct soft_qp *q, const struct soft_xlat *x,
		     uint64_t addr, const void *src, size_t len)
{
	if (likely(x->ptr)) {
		soft_copy_body(x->ptr + (addr - x->start), src, len);
		return true;
	}
	return plain_write(q->peer->mem_fd, plain_at(x, addr), src, len);
}

static bool put_tail(struct soft_qp *q, const struct soft_xlat *x,
		     uint64_t addr, const void *src, size_t len)
{
	if (likely(x->ptr)) {
		soft_copy_tail(x->ptr + (addr - x->start), src, len);
		return true;
	}
	return plain_write(q->peer->mem_fd, plain_at(x, addr), src, len);
}

/* Pieces on their way into one range. at: where the next bytes go; the word
 * there is held back until it is whole, so that no reader sees half of one that
 * comes from two pieces. */
struct gathered {
	uint64_t at, body_end;
	size_t have;
	char held[8];
};

/* As many of n bytes as can go without tearing a word: -1 on an error. */
static ssize_t gather_put(struct soft_qp *q, const struct soft_xlat *x,
			  struct gathered *t, const char *src, size_t n)
{
	uint64_t end = t->at + n;

	if (end > t->body_end)
		end = t->body_end;
	else
		end &= ~7ull;
	if (t->have || end <= t->at)
		return 0;
	n = end - t->at;
	if (!put_body(q, x, t->at, src, n))
		return -1;
	t->at = end;
	return (ssize_t)n;
}

static bool gather_piece(struct soft_qp *q, const struct soft_xlat *x,
			 struct gathered *t, const char *src, size_t left)
{
	ssize_t done;
	size_t n;

	while (left) {
		done = gather_put(q, x, t, src, left);
		if (done < 0)
			return false;
		src += done;
		left -= (size_t)done;
		n = 8 - ((t->at + t->have) & 7);
		if (n > left)
			n = left;
		memcpy(t->held + t->have, src, n);
		t->have += n;
		src += n;
		left -= n;
		if ((t->at + t->have) & 7 || t->at >= t->body_end)
			continue;
		if (!put_body(q, x, t->at, t->held, t->have))
			return false;
		t->at += t->have;
		t->have = 0;
	}
	return true;
}

/* Several pieces into one range: words, and the tail, may come from more than
 * one. */
static __attribute__((noinline)) bool gather(struct soft_qp *q,
					     const struct soft_xlat *x,
					     uint64_t addr,
					     const struct ibv_send_wr *wr,
					     size_t len)
{
	size_t tail = soft_copy_tail_len((uintptr_t)addr, len);
	struct gathered t = {.at = addr, .body_end = addr + len - tail};
	const struct ibv_sge *g = wr->sg_list;

	for (int i = 0; i < wr->num_sge; i++)
		if (!gather_piece(q, x, &t, soft_ptr(g[i].addr), g[i].length))
			return false;
	return put_tail(q, x, t.at, t.held, t.have);
}

/* Ordinary memory without /proc/PID/mem goes by the peer's control thread. */
static inline bool far_only(struct soft_qp *q, const struct soft_xlat *x)
{
	return unlikely(!x->ptr) && soft_peer_mem_fd(q->peer) < 0;
}

/* All that can refuse it has been looked at. */
static int looked(struct soft_qp *q, const struct soft_xlat *x, bool whole)
{
	q->look->h.plain = !x->ptr;
	q->look->h.whole = whole;
	return 0;
}

/* A refusal there breaks the peer's QP as one that is found here does. */
static int far_away(struct soft_qp *q, const struct ibv_send_wr *wr,
		    struct soft_wqe *w, size_t len)
{
	int r = soft_far(q, wr, w, len);

	return r == IBV_WC_REM_ACCESS_ERR ? fault(q, SHM_FAULT_ACCESS, r) : r;
}

/* A stream: long messages at rising addresses, more bytes than a cache holds,
 * and a completion tells the arrival of each. The cache has no use for them: it
 * holds neither the lines about to be overwritten nor, at the next pass, the
 * lines written before. */
static bool streams(struct soft_qp *q, uint64_t addr, size_t len)
{
	bool on = addr >= q->stream_end && q->stream_end;

	q->stream_len = on ? q->stream_len + len : 0;
	q->stream_end = addr + len;
	return q->stream_len >= STREAM_LEN;
}

/* stream: may the bytes go past the caches? The tail is the last in any case. */
static inline int do_write(struct soft_qp *q, const struct ibv_send_wr *wr,
			   struct soft_wqe *w, size_t len, bool stream)
{
	uint64_t addr = wr->wr.rdma.remote_addr;
	struct soft_xlat *x;
	int why;

	if (unlikely(!(q->gate_ok & SHM_GATE_WRITE)))
		return fault(q, SHM_FAULT_REQUEST, IBV_WC_REM_INV_REQ_ERR);
	if (unlikely(len == 0))
		return 0;
	x = xlat(q, wr->wr.rdma.rkey, &why);
	if (unlikely(!x))
		return why < 0 ? why : fault(q, SHM_FAULT_ACCESS, why);
	if (unlikely(!(x->access & IBV_ACCESS_REMOTE_WRITE) ||
		     !soft_in_range(x, addr, len)))
		return fault(q, SHM_FAULT_ACCESS, IBV_WC_REM_ACCESS_ERR);
	if (unlikely(q->look))
		return looked(q, x, far_only(q, x));
	if (far_only(q, x))
		return far_away(q, wr, w, len);
	if (stream && wr->num_sge == 1 && x->ptr && streams(q, addr, len)) {
		soft_copy_stream(x->ptr + (addr - x->start),
				 soft_ptr(wr->sg_list[0].addr), len);
		return 0;
	}
	if (likely(wr->num_sge == 1 && x->ptr)) {
		soft_copy(x->ptr + (addr - x->start),
			  soft_ptr(wr->sg_list[0].addr), len);
		return 0;
	}
	return gather(q, x, addr, wr, len) ? 0 : IBV_WC_REM_OP_ERR;
}

/* A QP that may have no READ and no atomic under way. */
static inline bool asks_none(const struct soft_qp *q)
{
	return !q->attr.max_rd_atomic && q->ex.qp_base.qp_type == IBV_QPT_RC;
}

static int do_read(struct soft_qp *q, const struct ibv_send_wr *wr,
		   struct soft_wqe *w, size_t len)
{
	uint64_t addr = wr->wr.rdma.remote_addr;
	const struct ibv_sge *g = wr->sg_list;
	struct soft_xlat *x;
	int why, i;

	if (unlikely(asks_none(q)))
		return IBV_WC_LOC_QP_OP_ERR;
	if (!(q->gate_ok & SHM_GATE_READ))
		return fault(q, SHM_FAULT_REQUEST, IBV_WC_REM_INV_REQ_ERR);
	if (len == 0)
		return 0;
	x = xlat(q, wr->wr.rdma.rkey, &why);
	if (unlikely(!x))
		return why < 0 ? why : fault(q, SHM_FAULT_ACCESS, why);
	if (!(x->access & IBV_ACCESS_REMOTE_READ) ||
	    !soft_in_range(x, addr, len))
		return fault(q, SHM_FAULT_ACCESS, IBV_WC_REM_ACCESS_ERR);
	if (unlikely(q->look))
		return looked(q, x, far_only(q, x));
	if (far_only(q, x))
		return far_away(q, wr, w, len);
	/* acquire: what a peer published before the word that an earlier
	 * operation of ours saw is read after it */
	fence_acquire();
	for (i = 0; i < wr->num_sge; i++, g++) {
		void *dst = soft_ptr(g->addr);

		if (likely(x->ptr))
			soft_copy_body(dst, x->ptr + (addr - x->start),
				       g->length);
		else if (!plain_read(q->peer->mem_fd, plain_at(x, addr), dst,
				     g->length))
			return IBV_WC_REM_OP_ERR;
		addr += g->length;
	}
	return 0;
}

/* The old value into the local pieces, 8 bytes in all. */
void soft_scatter8(const struct ibv_send_wr *wr, uint64_t old)
{
	const char *src = (const char *)&old;
	int i;

	for (i = 0; i < wr->num_sge; i++) {
		memcpy(soft_ptr(wr->sg_list[i].addr), src,
		       wr->sg_list[i].length);
		src += wr->sg_list[i].length;
	}
}

static __attribute__((noinline)) int do_atomic(struct soft_qp *q,
					       const struct ibv_send_wr *wr,
					       struct soft_wqe *w, size_t len)
{
	uint64_t addr = wr->wr.atomic.remote_addr, old;
	_Atomic uint64_t *word;
	struct soft_xlat *x;
	int why;

	if (len != 8)
		return IBV_WC_LOC_LEN_ERR;
	/* The peer was asked: what it did or will do is the answer, even if
	 * the key is gone meanwhile. */
	if (w && (w->asked || w->answered))
		return far_away(q, wr, w, 8);
	if (unlikely(asks_none(q)))
		return IBV_WC_LOC_QP_OP_ERR;
	if (!(q->gate_ok & SHM_GATE_ATOMIC))
		return fault(q, SHM_FAULT_REQUEST, IBV_WC_REM_INV_REQ_ERR);
	if (addr & 7)
		return fault(q, SHM_FAULT_REQUEST, IBV_WC_REM_INV_REQ_ERR);
	x = xlat(q, wr->wr.atomic.rkey, &why);
	if (unlikely(!x))
		return why < 0 ? why : fault(q, SHM_FAULT_ACCESS, why);
	if (!(x->access & IBV_ACCESS_REMOTE_ATOMIC) ||
	    !soft_in_range(x, addr, 8))
		return fault(q, SHM_FAULT_ACCESS, IBV_WC_REM_ACCESS_ERR);
	if (unlikely(q->look))
		return looked(q, x, !x->ptr);
	/* Through /proc/PID/mem nothing is atomic: ordinary memory has one
	 * place where all atomics on it are done, its control thread. */
	if (unlikely(!x->ptr))
		return far_away(q, wr, w, 8);
	word = (_Atomic uint64_t *)(void *)(x->ptr + (addr - x->start));
	if (wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		old = atomic_fetch_add(word, wr->wr.atomic.compare_add);
	} else {
		old = wr->wr.atomic.compare_add;
		atomic_compare_exchange_strong(word, &old, wr->wr.atomic.swap);
	}
	soft_scatter8(wr, old);
	return 0;
}

static struct shm_slot *next_slot(struct soft_qp *q, size_t len)
{
	struct shm_slot *slot;
	uint32_t word;

	if (unlikely(!q->far_slots))
		return q->far_srq ? soft_take(q, len) : NULL;
	slot = (void *)(q->far_rq +
			(size_t)(q->far_head & q->far_mask) * q->far_stride);
	/* acquire: pairs with the owner's release of POSTED */
	word = atomic_load_explicit(&slot->word, memory_order_acquire);
	return likely(word == (q->far_head << 2 | SHM_SLOT_POSTED)) ? slot
								    : NULL;
}

static void finish_slot(struct soft_qp *q, struct shm_slot *slot,
			const struct ibv_send_wr *wr, int status, size_t len)
{
	bool imm = wr->opcode == IBV_WR_SEND_WITH_IMM ||
		   wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	bool inv = wr->opcode == IBV_WR_SEND_WITH_INV;
	uint64_t life = q->far_bell < 0 ? 0 : soft_bell_life(q->far_cq);

	slot->status = (uint32_t)status;
	slot->byte_len = (uint32_t)len;
	slot->imm = imm ? wr->imm_data : inv ? wr->invalidate_rkey : 0;
	slot->src_qp = q->ex.qp_base.qp_num;
	slot->flags =
		(imm ? SHM_SLOT_IMM : 0) | (inv ? SHM_SLOT_INV : 0) |
		(wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? SHM_SLOT_WRITE : 0);
	/* release: data and completion before DONE; pairs with soft_reap() */
	if (unlikely(q->far_srq))
		soft_take_done(q);
	else
		atomic_store_explicit(&slot->word,
				      q->far_head << 2 | SHM_SLOT_DONE,
				      memory_order_release);
	q->far_head++;
	/* release: a poller that sees the count also sees DONE. A DC target has
	 * other senders, too. */
	if (unlikely(q->dc))
		atomic_fetch_add_explicit(q->far_ready, 1,
					  memory_order_release);
	else
		atomic_store_explicit(q->far_ready, ++q->far_ready_n,
				      memory_order_release);
	shm_cq_mark(q->far_cq, q->far_group);
	if (q->far_bell < 0)
		return;
	if (unlikely(q->harsh)) {
		soft_harsh_bell(q, q->far_cq, q->far_bell, life,
				(wr->send_flags & IBV_SEND_SOLICITED) ||
					status != IBV_WC_SUCCESS);
		return;
	}
	/* Pairs with the exchange in req_notify_cq(): the receive is visible
	 * before the look at the armed word. Without it both sides could miss
	 * each other, and a sleeper sleeps on. */
	fence_full();
	if (soft_bell_ring(q->far_cq, q->far_bell, life,
			   (wr->send_flags & IBV_SEND_SOLICITED) ||
				   status != IBV_WC_SUCCESS))
		soft_ring(q);
}

/* A cursor over the local pieces. */
struct cursor {
	const struct ibv_sge *g;
	uint32_t at;
};

static int scatter_piece(struct soft_qp *q, struct cursor *c,
			 const struct soft_xlat *x, uint64_t addr, size_t len)
{
	size_t n;

	while (len) {
		n = c->g->length - c->at;
		if (n > len)
			n = len;
		if (n && !put_body(q, x, addr,
				   (char *)soft_ptr(c->g->addr) + c->at, n))
			return IBV_WC_REM_OP_ERR;
		addr += n;
		len -= n;
		c->at += (uint32_t)n;
		if (c->at == c->g->length) {
			c->g++;
			c->at = 0;
		}
	}
	return 0;
}

/* The message into the pieces of a receive: 0, a park, or the status that the
 * receiver gets. */
static __attribute__((noinline)) int scatter_all(struct soft_qp *q,
						 const struct shm_slot *slot,
						 const struct ibv_send_wr *wr,
						 size_t len)
{
	uint32_t n = shm_once(slot->num_sge), i;
	struct cursor c = {.g = wr->sg_list};
	struct soft_xlat *x;
	int why, r;

	for (i = 0; len && i < n && i < q->far_sges; i++) {
		struct shm_sge g = shm_sge_once(&slot->sge[i]);
		size_t part = g.len < len ? g.len : len;

		if (!part)
			continue;
		x = xlat(q, g.lkey, &why);
		if (unlikely(!x))
			return why < 0 ? why : IBV_WC_LOC_PROT_ERR;
		if (unlikely(!(x->access & IBV_ACCESS_LOCAL_WRITE) ||
			     !soft_in_range(x, g.addr, part)))
			return IBV_WC_LOC_PROT_ERR;
		if (far_only(q, x))
			return -SOFT_PARK_FAR;
		r = scatter_piece(q, &c, x, g.addr, part);
		if (r)
			return r;
		len -= part;
	}
	return len ? IBV_WC_LOC_LEN_ERR : 0;
}

/* The same. Nearly always one piece goes into one that is mapped; all else,
 * and whatever is wrong, is for the long way, which looks again. */
static inline int scatter(struct soft_qp *q, const struct shm_slot *slot,
			  const struct ibv_send_wr *wr, size_t len)
{
	const struct soft_xlat *x;
	struct shm_sge g;

	/* a slot of a queue without pieces ends before its first */
	if (unlikely(wr->num_sge != 1 || len == 0 || !q->far_sges ||
		     !shm_once(slot->num_sge)))
		return scatter_all(q, slot, wr, len);
	g = shm_sge_once(&slot->sge[0]);
	x = &q->xlat[(g.lkey >> 16) % SOFT_XLATS];
	if (unlikely(len > g.len || !xlat_live(x, g.lkey) || !x->ptr ||
		     !(x->access & IBV_ACCESS_LOCAL_WRITE) ||
		     !soft_in_range(x, g.addr, len)))
		return scatter_all(q, slot, wr, len);
	soft_copy_body(x->ptr + (g.addr - x->start),
		       soft_ptr(wr->sg_list->addr), len);
	return 0;
}

static int do_send(struct soft_qp *q, const struct ibv_send_wr *wr,
		   struct soft_wqe *w, size_t len)
{
	struct shm_slot *slot = next_slot(q, len);
	int r;

	if (unlikely(!slot))
		return -SOFT_PARK_RNR;
	if (unlikely(q->look))
		return 0;
	r = scatter(q, slot, wr, len);
	if (r == -SOFT_PARK_FAR)
		r = soft_far_send(q, slot, wr, w, len);
	if (r < 0)
		return r;
	/* IBA 9.8.2.2: UC drops it; the receive is for the next message. */
	if (unlikely(q->unreliable) && r == IBV_WC_LOC_LEN_ERR)
		return IBV_WC_REM_INV_REQ_ERR;
	/* Our requests before it are done, and nobody else uses the window. */
	if (unlikely(wr->opcode == IBV_WR_SEND_WITH_INV) && r == 0 &&
	    !soft_far_shut(q, wr->invalidate_rkey)) {
		finish_slot(q, slot, wr, IBV_WC_REM_INV_REQ_ERR, len);
		return fault(q, SHM_FAULT_RECV, IBV_WC_REM_ACCESS_ERR);
	}
	if (unlikely(w) && r == 0)
		soft_park_shut(q, wr);
	finish_slot(q, slot, wr, r, len);
	if (likely(r == 0))
		return 0;
	/* IBA 9.9.3: the responder's queue breaks with the local error, the
	 * requester learns an invalid request or a remote operation error. */
	fault(q, SHM_FAULT_RECV, 0);
	return r == IBV_WC_LOC_LEN_ERR ? IBV_WC_REM_INV_REQ_ERR
				       : IBV_WC_REM_OP_ERR;
}

static int do_write_imm(struct soft_qp *q, const struct ibv_send_wr *wr,
			struct soft_wqe *w, size_t len)
{
	/* What UC drops takes no receive from the others of an SRQ. */
	bool last = q->unreliable && q->far_srq;
	struct shm_slot *slot = last ? NULL : next_slot(q, 0);
	int r;

	/* Before the data moves: a second execution moves it again. */
	if (unlikely(!slot && !last))
		return -SOFT_PARK_RNR;
	r = w && w->h.moved ? 0 : do_write(q, wr, w, len, len >= STREAM_PIECE);
	if (r || unlikely(q->look))
		return r;
	if (last)
		slot = next_slot(q, 0);
	if (unlikely(!slot))
		return -SOFT_PARK_RNR;
	if (unlikely(w))
		soft_park_shut(q, wr);
	finish_slot(q, slot, wr, 0, len);
	return 0;
}

static __attribute__((noinline)) int dispatch(struct soft_qp *q,
					      const struct ibv_send_wr *wr,
					      struct soft_wqe *w)
{
	bool write_local = soft_is_answered(wr);
	int64_t len;

	len = local_check(q, wr, write_local ? IBV_ACCESS_LOCAL_WRITE : 0);
	if (unlikely(len < 0))
		return (int)-len;
	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE:
		return do_write(q, wr, w, (size_t)len, false);
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return do_write_imm(q, wr, w, (size_t)len);
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_SEND_WITH_INV:
		return do_send(q, wr, w, (size_t)len);
	case IBV_WR_RDMA_READ:
		return do_read(q, wr, w, (size_t)len);
	default:
		return do_atomic(q, wr, w, (size_t)len);
	}
}

/* The first message to a QP in RTR is news there (COMM_EST). */
static void say_met(struct soft_qp *q)
{
	q->met_said = true;
	atomic_store_explicit(&q->self->met, 1, memory_order_release);
	soft_ring(q);
}

/* A UC requester gets no answer: a mistake at its own end is an error; every
 * other failure counts as sent and lost (IBA 9.8.2). */
static __attribute__((noinline, cold)) int uc_outcome(
	struct soft_qp *q, const struct ibv_send_wr *wr, int r)
{
	int64_t len;

	switch (r) {
	case -SOFT_PARK_RNR:
	case -SOFT_PARK_ROUTE:
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_REM_INV_REQ_ERR:
	case IBV_WC_REM_OP_ERR:
	case IBV_WC_RETRY_EXC_ERR:
		/* not looked at yet when the way was closed */
		len = local_check(q, wr, 0);
		if (q->look)
			q->look->h.refused = len >= 0;
		return len < 0 ? (int)-len : 0;
	default:
		return r;
	}
}

static bool is_message(const struct ibv_send_wr *wr)
{
	return wr->opcode == IBV_WR_SEND ||
	       wr->opcode == IBV_WR_SEND_WITH_IMM ||
	       wr->opcode == IBV_WR_SEND_WITH_INV ||
	       wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static inline int gate_pass(struct soft_qp *q)
{
	/* acquire: the area's fields belong to the gate that was read; as for
	 * the order against the owner, see soft_hazard_on() */
	if (unlikely(!q->far ||
		     atomic_load_explicit(&q->far->gate,
					  memory_order_acquire) != q->gate_ok))
		return soft_gate_check(q);
	return 0;
}

static __attribute__((noinline)) int exec_long(struct soft_qp *q,
					       const struct ibv_send_wr *wr,
					       struct soft_wqe *w)
{
	int r = gate_pass(q);

	if (likely(r == 0))
		r = dispatch(q, wr, w);
	/* In harsh mode what fails may be another request than the one that
	 * has the receive; or comes once more, when all before it is done. */
	if (unlikely(r > 0) && q->taken && !q->look && is_message(wr))
		soft_take_back(q);
	if (unlikely(r))
		return q->unreliable ? uc_outcome(q, wr, r) : r;
	if (unlikely((q->gate_ok & SHM_GATE_FIRST) && !q->met_said))
		say_met(q);
	return 0;
}

int soft_exec(struct soft_qp *q, const struct ibv_send_wr *wr,
	      struct soft_wqe *w)
{
	int r = 0;

	/* Outside: a QP may be its own peer. */
	if (unlikely(soft_is_local(wr)))
		return soft_mw_exec(q, wr, w != NULL, w ? w->pos : 0);
	soft_hazard_on(q);
	if (!soft_is_write_1(wr) || !soft_write_known(q, wr))
		r = exec_long(q, wr, w);
	soft_hazard_off(q);
	return r;
}

int soft_exec_look(struct soft_qp *q, struct soft_wqe *w)
{
	int r;

	soft_hazard_on(q);
	q->look = w;
	r = exec_long(q, &w->wr, w);
	q->look = NULL;
	soft_hazard_off(q);
	return r;
}

int soft_exec_open(struct soft_qp *q)
{
	int r;

	soft_hazard_on(q);
	r = gate_pass(q);
	if (r)
		soft_hazard_off(q);
	return r;
}

int soft_exec_inside(struct soft_qp *q, const struct ibv_send_wr *wr,
		     struct soft_wqe *w)
{
	int r = 0;

	if (!soft_is_write_1(wr) || !soft_write_known(q, wr))
		r = dispatch(q, wr, w);
	/* a piece (no w) tells all, so that its message can be given up */
	return r && w && q->unreliable ? uc_outcome(q, wr, r) : r;
}

void soft_exec_close(struct soft_qp *q)
{
	soft_hazard_off(q);
}
