/* SPDX-License-Identifier: MIT */
/*
 * announce.c - messages that are too long to be copied (docs/protocol/vqp.md,
 * "Announced messages"). The sender says where the bytes are, the receiver
 * READs them into its receive and says that the message is taken. Until then
 * the sender holds the bytes: its request is not complete.
 *
 * A sender may give up before: its program frees the vqp, or the vqp fails. So
 * each announcement names a word that has a value of its own while the bytes are
 * held. The receiver READs it last, behind a fence: if it is as announced, no
 * byte was given back before the receiver had it.
 *
 * Invariants: a vqp has one announced message that is not taken, v->lent, and
 * posts no request of its user's behind it. The engine's own requests go on: two
 * vqps may announce to each other. The READs of a message are on its pair, in
 * the order of the pieces, the word last. A pair READs one message at a time.
 */
#include "vqp/check.h"

#include <endian.h>
#include <string.h>

/* --- the sender --------------------------------------------------------- */

bool vqp_announce_keys(struct vqp_slot *s, const struct ibv_send_wr *wr)
{
	const struct vqp_conf *c = &s->v->e->conf;
	const struct ibv_sge *g = wr->sg_list;
	int i;

	s->announced = true;
	s->pieces = (uint8_t)wr->num_sge;
	for (i = 0; i < wr->num_sge; i++, g++)
		if (g->length && (!c->port->rkey_of ||
				  !c->port->rkey_of(c->arg, g->lkey, g->addr,
						    g->length, &s->rkey[i])))
			return false;
	return true;
}

void vqp_announce_hold(struct vqp_slot *s)
{
	struct vqp *v = s->v;
	struct vqp_engine *e = v->e;

	__atomic_store_n(&e->conf.words[s->at], htole64(++e->last_word),
			 __ATOMIC_RELAXED);
	v->lent = s;
	v->probed_ns = e->now_ns;
	list_add_tail(&e->lending, &v->lending);
	e->counts.announced++;
}

void vqp_announce_over(struct vqp_engine *e, struct vqp_slot *s)
{
	if (!s->numbered)
		return; /* it was never posted */
	__atomic_store_n(&e->conf.words[s->at], 0, __ATOMIC_RELAXED);
	/* The program may write to the bytes from here on. A receiver that has
	 * READ such a byte READs the word behind it, and finds it changed. */
	__atomic_thread_fence(__ATOMIC_RELEASE);
	if (!s->v || s->v->lent != s)
		return;
	s->v->lent = NULL;
	list_del(&s->v->lending);
}

size_t vqp_announce_fill(struct vqp_slot *s, uint8_t *buf)
{
	const struct vqp_conf *c = &s->v->e->conf;
	struct msg_announce a = {.word_addr = (uintptr_t)&c->words[s->at],
				 .word = le64toh(c->words[s->at]),
				 .word_rkey = c->words_rkey};
	unsigned i;

	for (i = 0; i < s->pieces; i++) {
		if (!s->sge[1 + i].length)
			continue;
		a.piece[a.n].addr = s->sge[1 + i].addr;
		a.piece[a.n].len = s->sge[1 + i].length;
		a.piece[a.n++].rkey = s->rkey[i];
	}
	return msg_announce_encode(&a, buf);
}

bool vqp_announce_taken(const struct vqp_slot *s)
{
	return (int32_t)(s->v->sent_taken - s->seq) > 0 ||
	       PLANTED(s->v->e, HOLD);
}

void vqp_announce_refused(struct vqp_engine *e, const struct msg_head *h)
{
	struct vqp *v = h->dst_vqp < e->vqps_cap ? e->vqps[h->dst_vqp] : NULL;
	struct vqp_slot *s;

	if (!v || v->gen != h->dst_gen || v->state != VQP_CONNECTED ||
	    !meta_same(&v->peer->node, h->src.gid, h->src.port) ||
	    v->peer->node.incarnation != h->src.incarnation || !v->lent ||
	    v->lent->seq != h->seq) {
		e->counts.dropped++;
		return;
	}
	s = v->lent;
	s->status = IBV_WC_REM_OP_ERR;
	e->counts.refusals++;
	/* Its turn to fail. If it is posted the device completes it first. */
	if (vqp_announce_waits(v))
		vqp_slot_queue(v, s, true);
}

static void probe(struct vqp *v)
{
	struct vqp_slot *s = vqp_slot_get(v);

	if (!s)
		return;
	s->kind = SLOT_PROBE;
	s->wr.opcode = IBV_WR_RDMA_WRITE; /* of no byte */
	s->wr.wr.rdma.remote_addr = v->peer->node.table;
	s->wr.wr.rdma.rkey = v->peer->node.table_rkey;
	v->probe_out = true;
	v->probed_ns = v->e->now_ns;
	vqp_slot_queue(v, s, true);
}

/* The sender has nothing posted while it waits for the receiver. A request that
 * fails shows that the receiver is dead. */
void vqp_announce_run(struct vqp_engine *e)
{
	struct list_node *n;
	struct vqp *v;

	for (n = e->lending.next; n != &e->lending; n = n->next) {
		v = container_of(n, struct vqp, lending);
		if (vqp_announce_waits(v) && !v->probe_out &&
		    e->now_ns - v->probed_ns >= VQP_PROBE_NS &&
		    !PLANTED(e, PROBE))
			probe(v);
	}
}

/* --- refusals ----------------------------------------------------------- */

/* By a vqp of its own: the pair of the message may be gone, or never was. If
 * there is no memory, the sender waits until it frees its vqp. One that does not
 * wait (`asks`) sends or asks again: its peer's share is enough for that. */
void vqp_refuse(struct vqp_engine *e, const struct msg_head *h)
{
	struct vqp_peer *p;
	struct vqp_slot *s;
	struct vqp *v;

	if (e->ending || PLANTED(e, REFUSE))
		return;
	p = vqp_peer_get(e, &h->src);
	if (!p)
		return;
	if ((h->asks && !vqp_has_slots(e, &p->slots, 1) &&
	     !PLANTED(e, END_SLOTS)) ||
	    vqp_new(e, &v)) {
		vqp_peer_put(e, p);
		return;
	}
	vqp_join(v, p);
	v->far_vqp = h->src_vqp;
	v->far_gen = h->src_gen;
	s = vqp_slot_get(v);
	if (!s) {
		vqp_free(v);
		return;
	}
	s->kind = SLOT_REFUSE;
	s->asks = h->asks;
	s->seq = h->seq;
	s->wr.opcode = IBV_WR_SEND;
	s->wr.num_sge = 1;
	s->sge[0] = (struct ibv_sge){(uintptr_t)vqp_cell(e, s), MSG_HEADER,
				     e->conf.cells_lkey};
	vqp_slot_queue(v, s, false);
	e->counts.refusals++;
	vqp_close(v); /* freed once it is posted */
}

void vqp_fetch_refuse(struct vqp *v)
{
	struct msg_head h = {.src_vqp = v->far_vqp,
			     .src_gen = v->far_gen,
			     .seq = v->taken - 1};

	if (v->fetch) {
		vqp_refuse(v->e, &v->fetch->head);
	} else if (v->ack != VQP_ACK_NONE) { /* it may not arrive any more */
		h.src = v->peer->node;
		vqp_refuse(v->e, &h);
	}
	v->ack = VQP_ACK_NONE;
}

/* --- the receiver ------------------------------------------------------- */

static enum ibv_wc_status into_check(struct vqp_engine *e,
				     const struct vqp_recv *r, uint32_t len)
{
	uint32_t n;
	int i;

	for (i = 0; i < r->num_sge && len; i++) {
		n = r->sge[i].length < len ? r->sge[i].length : len;
		if (n && !e->conf.port->local_ok(e->conf.arg, r->sge[i].lkey,
						 r->sge[i].addr, n, true))
			return IBV_WC_LOC_PROT_ERR;
		len -= n;
	}
	return len ? IBV_WC_LOC_LEN_ERR : IBV_WC_SUCCESS;
}

/* The next len bytes of the receive, from its piece *i on, of which *off are
 * used. */
static void into_next(const struct vqp_recv *r, int *i, uint32_t *off,
		      uint32_t len, struct vqp_slot *s)
{
	const struct ibv_sge *g;
	uint32_t n;

	s->len = len;
	for (; len; len -= n) {
		g = &r->sge[*i];
		n = g->length - *off < len ? g->length - *off : len;
		if (n)
			s->sge[s->wr.num_sge++] =
				(struct ibv_sge){g->addr + *off, n, g->lkey};
		*off += n;
		if (*off < g->length)
			continue;
		*off = 0;
		++*i;
	}
}

static struct vqp_slot *read_of(struct vqp_message *m, uint64_t addr,
				uint32_t rkey)
{
	struct vqp_slot *s = vqp_slot_get(m->from);

	s->kind = SLOT_FETCH;
	s->fetch = m;
	s->wr.opcode = IBV_WR_RDMA_READ;
	s->wr.wr.rdma.remote_addr = addr;
	s->wr.wr.rdma.rkey = rkey;
	m->fetch->pending++;
	return s;
}

static void reads_queue(struct vqp_engine *e, struct vqp_message *m)
{
	const struct msg_announce *a = &m->fetch->at;
	struct vqp_slot *s[MSG_PIECES + 1];
	uint32_t off = 0;
	unsigned i;
	int at = 0;

	for (i = 0; i < a->n; i++) {
		s[i] = read_of(m, a->piece[i].addr, a->piece[i].rkey);
		into_next(&m->fetch->into, &at, &off, a->piece[i].len, s[i]);
	}
	s[i] = read_of(m, a->word_addr, a->word_rkey);
	s[i]->is_word = true;
	s[i]->wr.send_flags = IBV_SEND_FENCE;
	s[i]->wr.num_sge = 1;
	s[i]->sge[0] = (struct ibv_sge){(uintptr_t)vqp_cell(e, s[i]), 8,
					e->conf.cells_lkey};
	/* Before what waits in the pair: it may wait for the other end, which
	 * waits for this. The first one is queued last. */
	for (i = a->n + 1; i--;)
		vqp_slot_queue(m->from, s[i], true);
}

bool vqp_fetch_may(const struct vqp *v, const struct vqp_message *m)
{
	return v->recv_head != v->recv_tail && v->e->n_free > m->fetch->at.n;
}

enum vqp_fetch_verdict vqp_fetch_go(struct vqp *v, struct vqp_message *m)
{
	struct vqp_fetch *f = m->fetch;
	struct vqp_engine *e = v->e;

	if (f->begun)
		return f->over ? VQP_FETCH_OVER : VQP_FETCH_RUNS;
	if (m->from->state != VQP_CONNECTED) {
		vqp_refuse(e, &m->head);
		list_del(&m->link);
		vqp_message_free(e, m);
		return VQP_FETCH_GONE;
	}
	if (m->from->fetch)
		return VQP_FETCH_RUNS;
	if (!vqp_fetch_may(v, m))
		return VQP_FETCH_NOT_NOW;
	f->into = *vqp_recv_at(v, v->recv_head++);
	f->begun = true;
	f->status = into_check(e, &f->into, m->head.len);
	if (f->status) {
		f->over = true;
		vqp_refuse(e, &m->head);
		return VQP_FETCH_OVER;
	}
	m->from->fetch = m;
	reads_queue(e, m);
	return VQP_FETCH_RUNS;
}

void vqp_fetch_over(struct vqp_engine *e, struct vqp_slot *s)
{
	struct vqp_message *m = s->fetch;
	struct vqp_fetch *f = m->fetch;
	struct vqp *from = m->from;

	s->fetch = NULL;
	if (!s->carried || (s->is_word && !PLANTED(e, WORD) &&
			    get_le64(vqp_cell(e, s)) != f->at.word))
		f->failed = true;
	if (--f->pending)
		return;
	f->over = true;
	if (f->orphan) {
		vqp_message_free(e, m);
		return;
	}
	from->fetch = NULL;
	f->status = f->failed ? IBV_WC_REM_ABORT_ERR : IBV_WC_SUCCESS;
	if (f->failed)
		return;
	e->counts.fetched++;
	if (m->head.src_gen != from->far_gen)
		return;
	from->taken++;
	from->ack = VQP_ACK_DUE;
	vqp_credit_look(from);
}

void vqp_fetch_drop(struct vqp *v, const struct vqp_message *m)
{
	struct list_node *n, *next;
	struct vqp_slot *s;

	list_for_each_safe(n, next, &v->queue) {
		s = container_of(n, struct vqp_slot, link);
		if (s->fetch != m)
			continue;
		list_del(n);
		vqp_slot_put(v->e, s);
	}
}
