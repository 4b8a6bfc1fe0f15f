/* SPDX-License-Identifier: MIT */
/*
 * send.c - a UD message from its sender's memory into a claimed receive.
 *
 * Everything that may refuse the message is looked at before the claim; what
 * the owner may take away meanwhile (its gate, its regions) once more after it,
 * because the claim is the hazard that the owner waits for. What is dropped is
 * dropped without a word: IBA 9.8.3 (no receive, wrong Q_Key, receive too
 * short), C10-93.1.1 (longer than the MTU).
 */
#include "base/fence.h"
#include "dev/soft/exec/copy.h"
#include "dev/soft/link/datagram.h"
#include "dev/soft/ud/ud.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define ROUNDS (1u << 20)
#define QPN_GROUP 0xffffffu
#define QKEY_OWN 0x80000000u /* of a request: take the QP's (IBA 10.2.5) */

/* A part of a receive that the message reaches. */
struct place {
	char *ptr; /* NULL: ordinary memory */
	uint64_t addr;
	uint32_t len;
	uint32_t life;
	_Atomic uint32_t *live;
};

/* A queue of its own. */
static bool rq_load(struct ud_dest *d, const struct shm_qp *f, uint64_t size)
{
	char *base = d->peer->base;
	uint64_t off = (uint64_t)((const char *)f - base);
	uint64_t slots = shm_once(f->rq_slots), stride = shm_once(f->rq_stride);
	uint64_t claim = shm_once(f->claim_off) * SHM_PAGE;

	/* 0: it was another number when gate_check() read it */
	if (!slots || slots & (slots - 1) || slots > SOFT_WR_MAX ||
	    stride > SHM_PAGE || stride % 8 ||
	    stride < sizeof(struct shm_slot) ||
	    off + sizeof(*f) + slots * stride > size)
		return false;
	if (claim < SHM_ARENA_OFF || claim > size - SHM_PAGE ||
	    claim + claim_bytes((uint32_t)slots) > size)
		return false;
	d->slots = (uint32_t)slots;
	d->stride = (uint32_t)stride;
	d->srq = NULL;
	d->claim = (struct shm_claim *)(void *)(base + claim);
	d->rq = base + off + sizeof(*f);
	return true;
}

static bool srq_load(struct ud_dest *d, const struct shm_qp *f, uint64_t size)
{
	char *base = d->peer->base;
	uint64_t off = shm_once(f->srq_off) * SHM_PAGE;

	d->srq = soft_srq_at(base, size, off, &d->slots, &d->stride);
	if (!d->srq)
		return false;
	d->claim = shm_srq_claim(d->srq);
	d->rq = (char *)d->srq + shm_srq_slots_off(d->slots);
	d->dest = shm_srq_id((uint64_t)((const char *)f - base),
			     shm_once(f->conn));
	return true;
}

static bool area_load(struct ud_dest *d, const struct shm_qp *f)
{
	struct soft_peer *p = d->peer;
	uint64_t ready = (uint64_t)shm_once(f->ready_off) * 4;
	uint64_t cq = (uint64_t)shm_once(f->cq_off) * SHM_PAGE;
	uint32_t group = shm_once(f->rq_group);
	uint64_t size = soft_peer_size(p);

	if (ready < SHM_ARENA_OFF || ready > size - 4 || cq < SHM_ARENA_OFF ||
	    cq > size - SHM_PAGE || group >= SHM_CQ_GROUPS)
		return false;
	if (!(shm_once(f->srq_off) ? srq_load : rq_load)(d, f, size))
		return false;
	d->sges = (uint32_t)((d->stride - sizeof(struct shm_slot)) /
			     sizeof(struct shm_sge));
	d->idx = shm_once(f->idx);
	d->pd = shm_once(f->pd);
	d->qkey = shm_once(f->qkey);
	d->ready = (_Atomic uint32_t *)(void *)(p->base + ready);
	d->cq = (struct shm_cq *)(void *)(p->base + cq);
	d->group = group;
	return true;
}

/* 0: its gate is the one that was checked; -ENOENT: another QP's, or nobody's;
 * -EACCES: it takes nothing now. */
static int gate_check(struct ud_dest *d)
{
	const struct shm_qp *f = d->far;
	uint32_t gate;

	/* acquire: pairs with soft_qp_gate(): the fields are older */
	gate = atomic_load_explicit(&f->gate, memory_order_acquire);
	if (gate & SHM_GATE_DEAD || shm_once(f->qpn) != d->qpn ||
	    shm_once(f->type) != IBV_QPT_UD)
		return -ENOENT;
	if (!(gate & SHM_GATE_ACCEPT) ||
	    (!shm_once(f->rq_slots) && !shm_once(f->srq_off)))
		return -EACCES;
	memset(d->xlat, 0, sizeof(d->xlat));
	if (!area_load(d, f))
		return -ENOENT;
	d->gate_ok = gate;
	return 0;
}

static bool gate_still(const struct ud_dest *d)
{
	/* After claim_head(), and again after claim_take(): both are acquires,
	 * so neither look passes before them. */
	return atomic_load_explicit(&d->far->gate, memory_order_acquire) ==
	       d->gate_ok;
}

static struct soft_xlat *xlat(struct soft_qp *q, struct ud_dest *d,
			      uint32_t key, int *why)
{
	struct soft_xlat *x = &d->xlat[(key >> 16) % UD_XLATS];
	struct soft_dest to = {0, 0};

	if (likely(x->key == key && x->live &&
		   atomic_load_explicit(x->live, memory_order_relaxed) ==
			   x->life))
		return x;
	to.pd = d->pd;
	*why = soft_xlat_load(d->peer, &to, x, key, q->ex.qp_base.qp_num,
			      &d->asked_for);
	return *why ? NULL : x;
}

static uint32_t sges_of(const struct ud_dest *d, const struct shm_slot *slot)
{
	uint32_t n = shm_once(slot->num_sge);

	return n < d->sges ? n : d->sges;
}

/* A slot that is posted may be claimed, completed and posted anew while it is
 * read; then the claim fails, and nothing was done with it before. */
static bool too_short(const struct ud_dest *d, const struct shm_slot *slot,
		      uint64_t need)
{
	uint32_t n = sges_of(d, slot), i;
	uint64_t have = 0;

	for (i = 0; i < n && have < need; i++)
		have += shm_once(slot->sge[i].len);
	return have < need;
}

/* Where the message goes: 0, -EAGAIN, or the status of the receive. */
static int places_find(struct soft_qp *q, struct ud_dest *d,
		       const struct shm_slot *slot, uint64_t need,
		       struct place *at, int *n_at)
{
	uint32_t n = sges_of(d, slot), i;
	struct soft_xlat *x;
	struct shm_sge g;
	uint64_t part;
	int why;

	*n_at = 0;
	for (i = 0; need && i < n && i < SOFT_SGE_MAX; i++) {
		g = shm_sge_once(&slot->sge[i]);
		part = g.len < need ? g.len : need;
		if (!part)
			continue;
		x = xlat(q, d, g.lkey, &why);
		if (!x)
			return why == -EAGAIN ? why : IBV_WC_LOC_PROT_ERR;
		if (!(x->access & IBV_ACCESS_LOCAL_WRITE) ||
		    g.addr < x->start || part > x->len ||
		    g.addr - x->start > x->len - part)
			return IBV_WC_LOC_PROT_ERR;
		at[(*n_at)++] = (struct place){
			.ptr = x->ptr ? x->ptr + (g.addr - x->start) : NULL,
			.addr = x->at + (g.addr - x->start),
			.len = (uint32_t)part,
			.life = x->life,
			.live = x->live};
		need -= part;
	}
	/* It was long enough: somebody has scribbled on it since. */
	return need ? IBV_WC_LOC_PROT_ERR : 0;
}

static bool places_alive(const struct place *at, int n)
{
	int i;

	for (i = 0; i < n; i++)
		if (atomic_load_explicit(at[i].live, memory_order_acquire) !=
		    at[i].life)
			return false;
	return true;
}

static bool put(struct soft_peer *p, struct place *at, const void *src,
		size_t len)
{
	if (likely(at->ptr)) {
		soft_copy_body(at->ptr, src, len);
		at->ptr += len;
	} else {
		if (pwrite(p->mem_fd, src, len, (off_t)at->addr) !=
		    (ssize_t)len)
			return false;
		at->addr += len;
	}
	at->len -= (uint32_t)len;
	return true;
}

/* len bytes to where the last ones ended. */
static bool scatter(struct soft_peer *p, struct place **at, const char *src,
		    size_t len)
{
	size_t n;

	while (len) {
		while (!(*at)->len)
			++*at;
		n = (*at)->len < len ? (*at)->len : len;
		if (!put(p, *at, src, n))
			return false;
		src += n;
		len -= n;
	}
	return true;
}

static bool fill(struct soft_peer *p, struct place *at, const struct ud_msg *m)
{
	int i;

	if (!scatter(p, &at, (const char *)m->grh, DEV_GRH))
		return false;
	for (i = 0; i < m->num_sge; i++)
		if (!scatter(p, &at, soft_ptr(m->sge[i].addr),
			     m->sge[i].length))
			return false;
	return true;
}

/* The owner's control thread looks at this QP, and at SRQs. */
static void ring(struct ud_dest *d)
{
	/* release: pairs with the exchange in service_all() */
	if (d->idx < SHM_QP_MAX)
		atomic_store_explicit(&d->peer->nic->attn[d->idx], 1,
				      memory_order_release);
	env_bell(d->peer->kick_fd);
}

/* It moves its QP to ERR; of an SRQ's receive it reads so itself. */
static void say_fault(struct ud_dest *d)
{
	if (!d->srq)
		atomic_store_explicit(&d->claim->fault, 1,
				      memory_order_release);
	ring(d);
}

/* The receive of an SRQ was claimed for a QP that takes none any more. The
 * owner has to post it again, and perhaps nobody polls there. */
static void give_back(struct ud_dest *d)
{
	/* release: an owner that sees the flag also sees DONE */
	atomic_store_explicit(&d->srq->voided, 1, memory_order_release);
	ring(d);
}

static void finish(struct soft_qp *q, struct ud_dest *d, uint64_t pos,
		   uint32_t n, const struct ud_msg *m, int status)
{
	bool void_it = d->srq && status == IBV_WC_WR_FLUSH_ERR;
	struct shm_slot *slot = soft_ud_slot(d, n);
	uint64_t life = d->bell ? soft_bell_life(d->cq) : 0;

	slot->status = (uint32_t)status;
	slot->byte_len = m->len + DEV_GRH;
	slot->imm = m->imm;
	slot->flags =
		(m->with_imm ? SHM_SLOT_IMM : 0) | (m->v4 ? SHM_SLOT_V4 : 0);
	if (void_it)
		slot->flags = SHM_SLOT_VOID;
	slot->src_qp = q->ex.qp_base.qp_num;
	claim_done(d->claim, pos, n, d->peer->claimant);
	/* A hint where to look. Several senders count here, so it is an
	 * addition. The sweep makes up for a sender that dies before it.
	 * release: an owner that sees the count also sees DONE */
	atomic_fetch_add_explicit(d->ready, 1, memory_order_release);
	shm_cq_mark(d->cq, d->group);
	if (void_it)
		give_back(d);
	else if (status && status != IBV_WC_WR_FLUSH_ERR)
		say_fault(d);
	if (!d->bell)
		return;
	if (q->harsh) {
		soft_harsh_bell(q, d->cq, d->bell->fd, life,
				m->solicited || status);
		return;
	}
	/* Pairs with the exchange in req_notify_cq(), as in finish_slot(). */
	fence_full();
	if (soft_bell_ring(d->cq, d->bell->fd, life, m->solicited || status))
		ring(d);
}

static void into_slot(struct soft_qp *q, struct ud_dest *d, uint64_t pos,
		      uint32_t n, const struct ud_msg *m, struct place *at,
		      int n_at, int status)
{
	if (d->srq) {
		/* relaxed: it is older than the look at the gate, and the
		 * owner reads it after a membarrier(2): ud/srq.c */
		shm_set(soft_ud_slot(d, n)->dest, d->dest);
		/* relaxed: as in take.c */
		if (pos >= atomic_load_explicit(&d->srq->limit_at,
						memory_order_relaxed))
			ring(d);
	}
	/* The second look: the owner shuts its gate, or clears a key, fences,
	 * and waits for the claims that it sees then. */
	atomic_signal_fence(memory_order_seq_cst);
	if (!gate_still(d))
		status = IBV_WC_WR_FLUSH_ERR;
	else if (!status && !places_alive(at, n_at))
		status = IBV_WC_LOC_PROT_ERR;
	if (!status && !fill(d->peer, at, m))
		status = IBV_WC_LOC_PROT_ERR;
	finish(q, d, pos, n, m, status);
}

/* Memory that neither can be mapped nor written from here. */
static bool out_of_reach(struct ud_dest *d, const struct place *at, int n)
{
	int i;

	for (i = 0; i < n; i++)
		if (!at[i].ptr && soft_peer_mem_fd(d->peer) < 0)
			return true;
	return false;
}

/* One try: 1: again; else as soft_ud_deliver(). */
static int deliver_once(struct soft_qp *q, struct ud_dest *d,
			const struct ud_msg *m)
{
	uint64_t need = (uint64_t)m->len + DEV_GRH;
	uint64_t pos = claim_head(d->claim);
	struct place at[SOFT_SGE_MAX];
	struct shm_slot *slot;
	int r, status, n_at;
	uint32_t n;

	if (!gate_still(d)) {
		d->gate_ok = 0;
		return 1;
	}
	if (m->qkey != d->qkey)
		return 0;
	/* It may have been detached since it was looked up, or kept. */
	if (m->group &&
	    !(atomic_load_explicit(&d->far->groups, memory_order_relaxed) &
	      m->group))
		return 0;
	r = claim_look(d->claim, d->slots, pos, &n);
	if (r)
		return r == -EAGAIN;
	slot = soft_ud_slot(d, n);
	if (too_short(d, slot, need))
		return claim_head(d->claim) != pos;
	status = places_find(q, d, slot, need, at, &n_at);
	if (status == -EAGAIN)
		return status;
	if (!status && out_of_reach(d, at, n_at))
		return -EXDEV;
	if (!claim_take(d->claim, pos, n, d->peer->claimant))
		return 1;
	into_slot(q, d, pos, n, m, at, n_at, status);
	return 0;
}

int soft_ud_deliver(struct soft_qp *q, struct ud_dest *d,
		    const struct ud_msg *m)
{
	unsigned round;
	int r;

	if (!soft_life(d->peer->nic))
		return -ENOENT;
	/* In each round another sender succeeds. So many rounds come only if
	 * the peer writes nonsense. */
	for (round = 0; round < ROUNDS; round++) {
		r = d->gate_ok ? 0 : gate_check(d);
		if (r == -EACCES)
			return 0; /* dropped at its door */
		if (!r)
			r = deliver_once(q, d, m);
		if (r != 1)
			return r;
	}
	return 0;
}

/* The sum of the pieces, or minus a status. */
static int64_t local_check(struct soft_qp *q, const struct ibv_send_wr *wr)
{
	int64_t len = 0;
	int i;

	for (i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *g = &wr->sg_list[i];

		len += g->length;
		if (wr->send_flags & IBV_SEND_INLINE || g->length == 0)
			continue;
		if (!soft_mr_local(q->s, q->pd, g->lkey, g->addr, g->length, 0))
			return -IBV_WC_LOC_PROT_ERR;
	}
	return len;
}

static void msg_fill(struct soft_qp *q, const struct ibv_send_wr *wr,
		     uint32_t len, struct ud_msg *m)
{
	const struct soft_ah *ah = soft_ah_of(wr->wr.ud.ah);
	uint32_t qkey = wr->wr.ud.remote_qkey;

	m->sge = wr->sg_list;
	m->num_sge = wr->num_sge;
	m->len = len;
	m->qkey = qkey & QKEY_OWN ? q->attr.qkey : qkey;
	m->with_imm = wr->opcode == IBV_WR_SEND_WITH_IMM;
	m->imm = m->with_imm ? wr->imm_data : 0;
	m->solicited = wr->send_flags & IBV_SEND_SOLICITED;
	m->group = ah->group_bit;
	m->v4 = ah->grh.v4;
	dev_grh_fill(&ah->grh, len, m->with_imm, m->grh);
}

int soft_ud_look(struct soft_qp *q, const struct ibv_send_wr *wr)
{
	int64_t len = local_check(q, wr);

	if (len < 0)
		return (int)-len;
	return soft_ah_of(wr->wr.ud.ah)->pd != q->pd ? IBV_WC_LOC_QP_OP_ERR : 0;
}

int soft_ud_exec(struct soft_qp *q, const struct ibv_send_wr *wr)
{
	const struct soft_ah *ah = soft_ah_of(wr->wr.ud.ah);
	uint32_t qpn = wr->wr.ud.remote_qpn & 0xffffff;
	int64_t len = local_check(q, wr);
	struct ud_msg m;

	if (len < 0)
		return (int)-len;
	if (ah->pd != q->pd)
		return IBV_WC_LOC_QP_OP_ERR;
	if (len > UD_MTU)
		return 0; /* C10-93.1.1: not sent, and no error */
	msg_fill(q, wr, (uint32_t)len, &m);
	if (unlikely(ah->link))
		soft_link_datagram(q, ah->link, qpn, &m);
	else if (likely(!m.group))
		soft_ud_to(q, qpn, &m);
	else if (qpn == QPN_GROUP) /* IBA 9.6.1.3: else nobody takes it */
		soft_ud_cast(q, &ah->group, &m);
	return 0;
}
