/* SPDX-License-Identifier: MIT */
/*
 * recv.c - messages between vqps: headers, receivers, credits, messages that
 * wait to be taken.
 *
 * The device's receives belong to all vqps. So a message is copied out of them
 * at once, and a sender may have at most VQP_WINDOW messages that its receiver
 * has not taken: a vqp that takes none stops its own senders only. A receiver
 * tells its sender what it has taken with each message the other way, or by a
 * message of credit at half of the window.
 */
#include "vqp/engine.h"

#include "base/prng.h"

#include <errno.h>
#include <string.h>

/* --- sending ------------------------------------------------------------ */

void vqp_head_fill(struct vqp *v, struct vqp_slot *s)
{
	struct msg_head h = {.kind = s->kind == SLOT_CREDIT ? MSG_KIND_CREDIT
							    : MSG_KIND_DATA,
			     .with_imm = s->wr.opcode == IBV_WR_SEND_WITH_IMM,
			     .len = s->len,
			     .dst_vqp = v->far_vqp,
			     .dst_gen = v->far_gen,
			     .dst_port = v->far_port,
			     .src_vqp = v->id,
			     .src_gen = v->gen,
			     .src_domain = v->domain,
			     .src = v->e->conf.self,
			     .taken = v->taken};

	if (h.with_imm)
		h.imm = s->wr.imm_data;
	/* Once: a message that is posted again keeps its number. */
	if (s->kind == SLOT_MESSAGE && !s->numbered) {
		s->numbered = true;
		s->seq = v->sent++;
	}
	h.seq = s->seq;
	/* The vqp that has bound the port takes the message; credit is for the
	 * sender's vqp. */
	if (v->by_port && (s->kind == SLOT_MESSAGE || PLANTED(v->e, F2)))
		h.dst_vqp = h.dst_gen = 0;
	v->taken_sent = v->taken;
	msg_head_encode(&h, vqp_cell(v->e, s));
}

void vqp_credit_look(struct vqp *v)
{
	struct vqp_engine *e = v->e;
	struct vqp_slot *s;

	if (v->state != VQP_CONNECTED || v->credit_out || !v->far_vqp ||
	    v->taken - v->taken_sent < VQP_WINDOW / 2)
		return;
	s = vqp_slot_get(v);
	if (!s) {
		e->credits_due = true;
		return;
	}
	s->kind = SLOT_CREDIT;
	s->wr.opcode = IBV_WR_SEND;
	s->wr.num_sge = 1;
	s->sge[0] = (struct ibv_sge){(uintptr_t)vqp_cell(e, s), MSG_HEADER,
				     e->conf.cells_lkey};
	v->credit_out = true;
	vqp_slot_queue(v, s);
}

void vqp_credits_look(struct vqp_engine *e)
{
	uint32_t i;

	e->credits_due = false;
	for (i = 0; i < e->vqps_cap; i++)
		if (e->vqps[i])
			vqp_credit_look(e->vqps[i]);
}

/* --- ports and senders -------------------------------------------------- */

static struct vqp **port_bucket(struct vqp_engine *e, uint16_t port)
{
	return &e->ports[port % VQP_PORT_BUCKETS];
}

static struct vqp *port_find(struct vqp_engine *e, uint16_t port)
{
	struct vqp *v = *port_bucket(e, port);

	while (v && v->port != port)
		v = v->port_next;
	return v;
}

int vqp_bind(struct vqp *v, uint16_t port)
{
	struct vqp **at = port_bucket(v->e, port);

	if (v->state != VQP_NEW)
		return -EISCONN;
	if (!port || port_find(v->e, port))
		return port ? -EADDRINUSE : -EINVAL;
	v->port = port;
	v->state = VQP_BOUND;
	v->port_next = *at;
	*at = v;
	if (v->e->conf.port->bound)
		v->e->conf.port->bound(v->e->conf.arg, port, v->domain);
	return 0;
}

static struct vqp **child_bucket(struct vqp_engine *e, const struct vqp *bound,
				 const struct meta_node *n, uint32_t id)
{
	uint64_t h = prng_mix(n->incarnation ^ (uint64_t)id << 32 ^ bound->id);

	return &e->children[h % VQP_CHILD_BUCKETS];
}

static struct vqp *child_find(struct vqp_engine *e, struct vqp *bound,
			      const struct msg_head *h)
{
	struct vqp *v = *child_bucket(e, bound, &h->src, h->src_vqp);

	for (; v; v = v->child_next)
		if (v->bound == bound && v->far_vqp == h->src_vqp &&
		    v->far_gen == h->src_gen &&
		    v->peer->node.incarnation == h->src.incarnation &&
		    meta_same(&v->peer->node, h->src.gid, h->src.port))
			return v;
	return NULL;
}

/* Makes a vqp for a sender. All that is known of the sender is in its
 * message. */
static struct vqp *child_new(struct vqp_engine *e, struct vqp *bound,
			     const struct msg_head *h)
{
	struct vqp_peer *p = vqp_peer_get(e, &h->src);
	struct vqp **at, *v;

	if (!p)
		return NULL;
	if (vqp_new(e, &v)) {
		vqp_peer_put(e, p);
		return NULL;
	}
	vqp_join(v, p);
	v->far_vqp = h->src_vqp;
	v->far_gen = h->src_gen;
	v->far_domain = h->src_domain;
	v->knows_domain = true;
	v->bound = bound;
	v->ours = true;
	/* The first number may be any: an earlier vqp for this sender may have
	 * been freed. */
	v->expect = v->taken = v->taken_sent = h->seq;
	at = child_bucket(e, bound, &h->src, h->src_vqp);
	v->child_next = *at;
	*at = v;
	return v;
}

static void child_unlink(struct vqp *v)
{
	struct vqp **at =
		child_bucket(v->e, v->bound, &v->peer->node, v->far_vqp);

	while (*at != v)
		at = &(*at)->child_next;
	*at = v->child_next;
	v->bound = NULL;
}

void vqp_unbind(struct vqp *v)
{
	struct vqp_engine *e = v->e;
	struct vqp **at, *c;
	uint32_t i;

	if (v->bound)
		child_unlink(v);
	if (v->state != VQP_BOUND)
		return;
	at = port_bucket(e, v->port);
	while (*at != v)
		at = &(*at)->port_next;
	*at = v->port_next;
	if (e->conf.port->bound)
		e->conf.port->bound(e->conf.arg, v->port, 0);
	vqp_messages_drop(v);
	for (i = 0; i < e->vqps_cap; i++) {
		c = e->vqps[i];
		if (!c || c->bound != v)
			continue;
		child_unlink(c);
		if (c->ours)
			vqp_free(c);
	}
}

/* --- receiving ---------------------------------------------------------- */

static void garbage(struct vqp_engine *e)
{
	e->counts.garbage++;
	vqp_say(e, 2, "vqp: a message that makes no sense was dropped");
}

/* The pair of the message; *to: the vqp that takes it. NULL: no such pair. */
static struct vqp *pair_of(struct vqp_engine *e, const struct msg_head *h,
			   struct vqp **to)
{
	struct vqp *v;

	if (!h->dst_vqp) {
		*to = port_find(e, h->dst_port);
		if (!*to)
			return NULL;
		v = child_find(e, *to, h);
		return v ? v : child_new(e, *to, h);
	}
	v = h->dst_vqp < e->vqps_cap ? e->vqps[h->dst_vqp] : NULL;
	if (!v || v->gen != h->dst_gen || v->state != VQP_CONNECTED ||
	    !meta_same(&v->peer->node, h->src.gid, h->src.port) ||
	    v->peer->node.incarnation != h->src.incarnation)
		return NULL;
	if (v->far_vqp &&
	    (v->far_vqp != h->src_vqp || v->far_gen != h->src_gen))
		return NULL; /* another vqp has that place */
	v->far_vqp = h->src_vqp;
	v->far_gen = h->src_gen;
	*to = v;
	return v;
}

static bool credit_take(struct vqp *v, const struct msg_head *h)
{
	if (h->taken - v->sent_taken > v->sent - v->sent_taken)
		return (int32_t)(h->taken - v->sent_taken) < 0;
	v->sent_taken = h->taken;
	if (!list_empty(&v->queue) && !list_linked(&v->link))
		list_add_tail(&v->e->busy, &v->link);
	return true;
}

void vqp_engine_receive(struct vqp_engine *e, const uint8_t *buf, size_t len)
{
	struct vqp_message *m;
	struct msg_head h;
	struct vqp *v, *to = NULL;

	if (msg_head_decode(buf, len, &h)) {
		garbage(e);
		return;
	}
	v = pair_of(e, &h, &to);
	if (!v) {
		e->counts.dropped++;
		return;
	}
	if (!credit_take(v, &h)) {
		garbage(e);
		return;
	}
	if (h.kind == MSG_KIND_CREDIT)
		return;
	if (h.seq != v->expect) { /* a repeated message, or one is missing */
		if ((int32_t)(h.seq - v->expect) < 0)
			e->counts.dropped++;
		else
			garbage(e);
		return;
	}
	if (v->expect - v->taken >= VQP_WINDOW) {
		garbage(e); /* it was sent without a credit */
		return;
	}
	m = e->conf.port->alloc(e->conf.arg, sizeof(*m) + h.len);
	if (!m) {
		e->counts.dropped++;
		vqp_say(e, 4, "vqp: no memory for a message: it is lost");
		return;
	}
	v->expect++;
	m->head = h;
	m->from = v;
	memcpy(m->data, buf + MSG_HEADER, h.len);
	list_add_tail(&to->messages, &m->link);
}

/* Drops the messages that this vqp would take, and those that it sent to a
 * bound one. */
void vqp_messages_drop(struct vqp *v)
{
	struct list_node *n, *next, *head = &v->messages;
	struct vqp_message *m;

	if (v->bound)
		head = &v->bound->messages;
	for (n = head->next; n != head; n = next) {
		next = n->next;
		m = container_of(n, struct vqp_message, link);
		if (v->bound && m->from != v)
			continue;
		list_del(n);
		v->e->conf.port->free(v->e->conf.arg, m);
	}
}

int vqp_post_recv(struct vqp *v, struct ibv_recv_wr *wr,
		  struct ibv_recv_wr **bad)
{
	struct vqp_recv *r;

	for (; wr; wr = wr->next) {
		*bad = wr;
		if (wr->num_sge < 0 || wr->num_sge > (int)VQP_SGES ||
		    (wr->num_sge && !wr->sg_list))
			return -EINVAL;
		if (v->recv_tail - v->recv_head == VQP_RECVS)
			return -ENOMEM;
		r = &v->recv[v->recv_tail++ % VQP_RECVS];
		r->wr_id = wr->wr_id;
		r->num_sge = wr->num_sge;
		if (wr->num_sge)
			memcpy(r->sge, wr->sg_list,
			       (size_t)wr->num_sge * sizeof(*r->sge));
	}
	return 0;
}

/* Copies into the receive's pieces: 0, or the status of the completion. */
static enum ibv_wc_status scatter(struct vqp_engine *e,
				  const struct vqp_recv *r, const uint8_t *data,
				  uint32_t len)
{
	uint32_t n;
	int i;

	for (i = 0; i < r->num_sge && len; i++) {
		n = r->sge[i].length < len ? r->sge[i].length : len;
		if (n && !e->conf.port->local_ok(e->conf.arg, r->sge[i].lkey,
						 r->sge[i].addr, n, true))
			return IBV_WC_LOC_PROT_ERR;
		/* NOLINTNEXTLINE(performance-no-int-to-ptr) */
		memcpy((void *)(uintptr_t)r->sge[i].addr, data, n);
		data += n;
		len -= n;
	}
	return len ? IBV_WC_LOC_LEN_ERR : IBV_WC_SUCCESS;
}

/* Puts the oldest message into the oldest receive; NULL: one of them is
 * missing. */
static struct vqp_message *message_take(struct vqp *v, struct vqp_recv **r,
					enum ibv_wc_status *status)
{
	struct vqp_message *m;

	if (list_empty(&v->messages) || v->recv_head == v->recv_tail)
		return NULL;
	m = container_of(v->messages.next, struct vqp_message, link);
	list_del(&m->link);
	*r = &v->recv[v->recv_head++ % VQP_RECVS];
	*status = scatter(v->e, *r, m->data, m->head.len);
	m->from->taken++;
	vqp_credit_look(m->from);
	return m;
}

bool vqp_pop(struct vqp *v, struct vqp_pop_out *out)
{
	enum ibv_wc_status status;
	struct vqp_message *m;
	struct vqp_recv *r;

	if (v->state != VQP_BOUND)
		return false;
	m = message_take(v, &r, &status);
	if (!m)
		return false;
	*out = (struct vqp_pop_out){.from = m->from,
				    .wr_id = r->wr_id,
				    .len = m->head.len,
				    .imm = m->head.imm,
				    .with_imm = m->head.with_imm};
	if (status == IBV_WC_LOC_LEN_ERR)
		out->status = -EMSGSIZE;
	else if (status)
		out->status = -EFAULT;
	v->e->conf.port->free(v->e->conf.arg, m);
	return true;
}

static void recv_wc(struct vqp *v, const struct vqp_recv *r,
		    enum ibv_wc_status status, struct ibv_wc *wc)
{
	memset(wc, 0, sizeof(*wc));
	wc->wr_id = r->wr_id;
	wc->status = status;
	wc->opcode = IBV_WC_RECV;
	wc->qp_num = v->id;
}

int vqp_recv_poll(struct vqp *v, int n, struct ibv_wc *wc)
{
	enum ibv_wc_status status;
	struct vqp_message *m;
	struct vqp_recv *r;
	int got = 0;

	while (got < n && v->state == VQP_CONNECTED &&
	       (m = message_take(v, &r, &status))) {
		recv_wc(v, r, status, &wc[got]);
		wc[got].byte_len = m->head.len;
		wc[got].imm_data = m->head.imm;
		if (m->head.with_imm)
			wc[got].wc_flags = IBV_WC_WITH_IMM;
		got++;
		v->e->conf.port->free(v->e->conf.arg, m);
	}
	while (got < n && v->state == VQP_ERROR && v->recv_head != v->recv_tail)
		recv_wc(v, &v->recv[v->recv_head++ % VQP_RECVS],
			IBV_WC_WR_FLUSH_ERR, &wc[got++]);
	return got;
}
