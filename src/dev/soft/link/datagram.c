/* SPDX-License-Identifier: MIT */
/*
 * datagram.c - see datagram.h. docs/protocol/link.md, "Datagrams".
 */
#include "dev/soft/link/datagram.h"

#include "base/fence.h"
#include "dev/soft/link/dma.h"
#include "dev/soft/link/key.h"
#include "dev/soft/link/packet.h"
#include "dev/soft/link/take.h"
#include "dev/soft/link/udp.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define HOPS 64 /* Linux's own */

struct soft_link_ah {
	struct udp_path path;
	uint32_t payload_max;
};

/* The QPNs of all UD QPs that there are. s->lock held. */
static int serve_all(struct soft *s, const char **what)
{
	uint32_t i;
	int err = 0;

	for (i = 0; i < s->n_blocks && !err; i++)
		err = soft_link_open(s, s->blocks[i], what);
	return err;
}

int soft_link_ah_new(struct soft *s, const struct ibv_ah_attr *a, bool far,
		     struct soft_link_ah **link)
{
	struct soft_link_ah *w;
	const char *what;
	int err;

	*link = NULL;
	if (s->link_mode == SOFT_LINK_OFF)
		return far ? -EHOSTUNREACH : 0;
	if (!far && s->link_mode != SOFT_LINK_UDP)
		return 0;
	if (!soft_link_clear(s)) {
		env_log(s->env, ENV_LOG_ERROR,
			"skein0: an address handle: datagrams cannot be sealed: "
			"SKEIN_LINK_CLEAR=1, or no SKEIN_LINK_KEY");
		return -EHOSTUNREACH;
	}
	w = env_alloc(s->env, sizeof(*w));
	if (!w)
		return -ENOMEM;
	err = serve_all(s, &what);
	if (!err)
		err = soft_link_path(s, a, &w->path, &what);
	if (err) {
		env_log(s->env, ENV_LOG_ERROR,
			"skein0: an address handle: no link to another host "
			"for want of %s: %s",
			what, strerror(-err));
		env_free(s->env, w);
		return err;
	}
	w->payload_max = 128u << soft_link_mtu(w->path.mtu);
	*link = w;
	return 0;
}

int soft_link_serve(struct soft_qp *q)
{
	struct soft *s = q->s;
	const char *what = "";
	int err = 0;

	pthread_mutex_lock(&s->lock);
	if (soft_link_clear(s) &&
	    (s->link || s->link_mode == SOFT_LINK_SERVES ||
	     s->link_mode == SOFT_LINK_UDP || s->link_mode == SOFT_LINK_TCP))
		err = soft_link_open(s, q->ex.qp_base.qp_num / SHM_BLOCK_QPS,
				     &what);
	pthread_mutex_unlock(&s->lock);
	if (err)
		env_log(s->env, ENV_LOG_ERROR,
			"skein0: UD QP 0x%x: no link to other hosts for want "
			"of %s: %s",
			q->ex.qp_base.qp_num, what, strerror(-err));
	return err;
}

static void gather(const struct ud_msg *m, uint8_t *to)
{
	for (int i = 0; i < m->num_sge; i++) {
		if (!m->sge[i].length)
			continue;
		dma_begin();
		memcpy(to, soft_ptr(m->sge[i].addr), m->sge[i].length);
		dma_end();
		to += m->sge[i].length;
	}
}

void soft_link_datagram(struct soft_qp *q, struct soft_link_ah *w, uint32_t qpn,
			const struct ud_msg *m)
{
	struct udp *u = soft_link_udp(q->s);
	struct udp_path path = w->path;
	struct packet p = {
		.op = packet_op_of(PACKET_UD, m->with_imm ? PACKET_SEND_ONLY_IMM
							  : PACKET_SEND_ONLY),
		.solicited = m->solicited,
		.qpn = qpn,
		.psn = q->attr.sq_psn & PACKET_PSN_MASK,
		.qkey = m->qkey,
		.src_qp = q->ex.qp_base.qp_num,
		.imm = m->imm,
		.payload_len = m->len,
	};
	size_t head = packet_head_len(p.op), pad;
	uint8_t *buf;

	if (m->len > w->payload_max)
		return;
	q->attr.sq_psn = packet_psn_add(p.psn, 1);
	udp_lock(u);
	udp_path_borrow(u, &path, p.src_qp / SHM_BLOCK_QPS,
			qpn / SHM_BLOCK_QPS);
	buf = udp_begin(u);
	pad = packet_encode(buf, &p);
	gather(m, buf + head);
	memset(buf + head + m->len, 0, pad);
	udp_send(u, &path, head + m->len + pad);
	udp_unlock(u);
}

/* The receives of q: its own, or an SRQ's. */
struct queue {
	struct shm_claim *claim;
	uint32_t slots, sges;
};

static struct queue queue_of(const struct soft_qp *q)
{
	const struct soft_srq *r = q->srq;

	return r ? (struct queue){r->c.shm, r->c.slots, r->sges}
		 : (struct queue){q->ud->claim.shm, q->ud->claim.slots,
				  q->rq_sges};
}

static struct shm_slot *slot_of(struct soft_qp *q, uint32_t n)
{
	return q->srq ? soft_srq_slot(q->srq, n) : soft_slot(q, n);
}

static bool fits(const struct queue *rq, const struct shm_slot *slot,
		 uint64_t need)
{
	uint32_t n = shm_once(slot->num_sge), i;
	uint64_t have = 0;

	for (i = 0; i < n && i < rq->sges; i++)
		have += shm_once(slot->sge[i].len);
	return have >= need;
}

/* A receive of that length at least, the oldest. False: there is none. */
static bool claim_one(struct soft_qp *q, const struct queue *rq, uint64_t need,
		      uint64_t *pos, uint32_t *n)
{
	int err;

	/* Another claim is in the way: then that one has moved on. */
	do {
		*pos = claim_head(rq->claim);
		err = claim_look(rq->claim, rq->slots, *pos, n);
		if (err == -ENOENT)
			return false;
		if (!err && !fits(rq, slot_of(q, *n), need) &&
		    claim_head(rq->claim) == *pos)
			return false;
	} while (err || !claim_take(rq->claim, *pos, *n, SOFT_LINK_ID));
	return true;
}

static int fill(struct soft_qp *q, const struct shm_slot *slot,
		const struct icrc_flow *f, const struct packet *p)
{
	struct ibv_global_route g = {.hop_limit = HOPS};
	unsigned char grh[DEV_GRH];
	struct dev_grh h;
	union ibv_gid from;
	int status;

	memcpy(from.raw, f->src, 16);
	memcpy(g.dgid.raw, f->dst, 16);
	dev_grh_init(&h, &from, &g);
	dev_grh_fill(&h, (uint32_t)p->payload_len,
		     packet_has(p->op) & PACKET_HAS_IMM, grh);
	status = link_take_put(q, slot, 0, grh, sizeof(grh));
	return status ? status
		      : link_take_put(q, slot, sizeof(grh), p->payload,
				      p->payload_len);
}

/* As finish() of ud/send.c, by the owner itself. */
static void finish(struct soft_qp *q, const struct queue *rq, uint64_t pos,
		   uint32_t n, const struct icrc_flow *f,
		   const struct packet *p, int status)
{
	struct soft_cq *c = soft_cq_of(q->ex.qp_base.recv_cq);
	bool imm = packet_has(p->op) & PACKET_HAS_IMM;
	bool void_it = q->srq && status == IBV_WC_WR_FLUSH_ERR;
	struct shm_slot *slot = slot_of(q, n);

	slot->status = (uint32_t)status;
	slot->byte_len = (uint32_t)p->payload_len + DEV_GRH;
	slot->imm = imm ? p->imm : 0;
	slot->flags = (imm ? SHM_SLOT_IMM : 0) |
		      (icrc_flow_is_v4(f) ? SHM_SLOT_V4 : 0);
	if (void_it)
		slot->flags = SHM_SLOT_VOID;
	slot->src_qp = p->src_qp;
	claim_done(rq->claim, pos, n, SOFT_LINK_ID);
	soft_cq_add_ready(q);
	if (void_it) {
		/* release: a reader that sees it sees DONE */
		atomic_store_explicit(&q->srq->shm->voided, 1,
				      memory_order_release);
		soft_ask_service(q->s, q->idx);
	} else if (status && status != IBV_WC_WR_FLUSH_ERR) {
		/* of an SRQ's receive it is read by itself */
		if (!q->srq)
			atomic_store_explicit(&rq->claim->fault, 1,
					      memory_order_release);
		soft_ask_service(q->s, q->idx);
	}
	if (!c->ex.channel)
		return;
	/* pairs with req_notify_cq(), as in finish() */
	fence_full();
	soft_cq_ring(c, p->solicited || status);
}

static uint32_t gate_of(const struct soft_qp *q)
{
	return atomic_load_explicit(&q->self->gate, memory_order_acquire);
}

bool soft_link_take_datagram(struct soft_qp *q, const struct icrc_flow *f,
			     const struct packet *p)
{
	struct queue rq = queue_of(q);
	uint32_t gate = gate_of(q), n;
	uint64_t pos;
	int status;

	if (!(gate & SHM_GATE_ACCEPT) || p->qkey != shm_once(q->self->qkey) ||
	    p->payload_len > UD_MTU || !rq.slots ||
	    !claim_one(q, &rq, p->payload_len + DEV_GRH, &pos, &n))
		return false;
	if (q->srq) {
		/* relaxed, both: as in into_slot() of ud/send.c */
		shm_set(slot_of(q, n)->dest, q->ud->dest);
		if (pos >= atomic_load_explicit(&q->srq->shm->limit_at,
						memory_order_relaxed))
			soft_ask_service(q->s, q->idx);
	}
	/* The second look, as in into_slot(). */
	atomic_signal_fence(memory_order_seq_cst);
	status = gate_of(q) == gate ? fill(q, slot_of(q, n), f, p)
				    : IBV_WC_WR_FLUSH_ERR;
	finish(q, &rq, pos, n, f, p, status);
	return true;
}
