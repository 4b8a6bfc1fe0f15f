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
#include "vqp/room.h"

#include "base/assert.h"
#include "base/prng.h"

#include <errno.h>
#include <string.h>

/* --- sending ------------------------------------------------------------ */

static enum msg_kind kind_of(const struct vqp_slot *s)
{
	if (s->kind == SLOT_CREDIT)
		return MSG_KIND_CREDIT;
	if (s->kind == SLOT_REFUSE)
		return MSG_KIND_REFUSE;
	if (s->kind == SLOT_END)
		return MSG_KIND_END;
	return s->announced ? MSG_KIND_ANNOUNCE : MSG_KIND_DATA;
}

void vqp_head_fill(struct vqp *v, struct vqp_slot *s)
{
	struct msg_head h = {.kind = kind_of(s),
			     .with_imm = s->wr.opcode == IBV_WR_SEND_WITH_IMM,
			     .asks = s->asks,
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
		if (s->announced)
			vqp_announce_hold(s);
	}
	h.seq = s->kind == SLOT_CREDIT || s->kind == SLOT_END ? v->sent
							      : s->seq;
	/* The vqp that has bound the port takes the message; credit is for the
	 * sender's vqp. The generation: of the vqp that sent what was taken. */
	if (v->by_port &&
	    (s->kind == SLOT_MESSAGE || s->kind == SLOT_END ||
	     (s->kind == SLOT_CREDIT && s->asks) || PLANTED(v->e, F2)))
		h.dst_vqp = 0;
	v->taken_sent = v->taken;
	v->tells = false;
	if (s->kind == SLOT_CREDIT && v->ack)
		v->ack = VQP_ACK_OUT;
	msg_head_encode(&h, vqp_cell(v->e, s));
	if (s->announced)
		s->sge[0].length =
			MSG_HEADER + (uint32_t)vqp_announce_fill(
					     s, vqp_cell(v->e, s) + MSG_HEADER);
}

bool vqp_credit_due(const struct vqp *v)
{
	return v->state == VQP_CONNECTED && v->far_vqp &&
	       (v->taken - v->taken_sent >= VQP_WINDOW / 2 || v->tells ||
		v->ack == VQP_ACK_DUE);
}

/* False: no slot. */
static bool credit_queue(struct vqp *v, bool asks)
{
	struct vqp_engine *e = v->e;
	struct vqp_slot *s = vqp_slot_get(v);

	if (!s)
		return false;
	s->kind = SLOT_CREDIT;
	s->asks = asks;
	s->wr.opcode = IBV_WR_SEND;
	s->wr.num_sge = 1;
	s->sge[0] = (struct ibv_sge){(uintptr_t)vqp_cell(e, s), MSG_HEADER,
				     e->conf.cells_lkey};
	v->credit_out = true;
	/* Before messages that wait for the other end's credit: it may wait for
	 * this one. */
	vqp_slot_queue(v, s, !PLANTED(e, F3));
	return true;
}

void vqp_credit_look(struct vqp *v)
{
	if (vqp_credit_due(v) && !v->credit_out && !credit_queue(v, false))
		v->e->credits_due = true;
}

static uint64_t ask_after_ns(const struct vqp *v)
{
	return VQP_ASK_NS << (v->asks < 3 ? v->asks : 3);
}

void vqp_credit_ask(struct vqp *v)
{
	const struct vqp_slot *s =
		container_of(v->queue.next, struct vqp_slot, link);

	if (s->kind != SLOT_MESSAGE || s->numbered || v->lent ||
	    v->sent - v->sent_taken < VQP_WINDOW)
		return;
	if (!v->asked_ns)
		v->asked_ns = v->e->now_ns;
	if (v->credit_out || v->asks == VQP_ASKS_MAX || PLANTED(v->e, ASK) ||
	    v->e->now_ns - v->asked_ns < ask_after_ns(v) ||
	    !credit_queue(v, true))
		return;
	v->asked_ns = v->e->now_ns;
	v->asks++;
}

/* Was a message of the other end lost? The number in its question does not tell:
 * the question may come by another queue pair than the messages before and behind
 * it, so in any order. */
static bool has_lost(const struct vqp *v, const struct msg_head *h)
{
	if (PLANTED(v->e, ASK_AHEAD) && h->seq != v->expect)
		return true;
	return v->lacks && !PLANTED(v->e, ASK_LOST);
}

/* The other end asks what was taken. */
static void credit_tell(struct vqp *v, const struct msg_head *h)
{
	if (v->state != VQP_CONNECTED || has_lost(v, h)) {
		vqp_refuse(v->e, h);
		return;
	}
	v->tells = true;
	vqp_credit_look(v);
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

static bool has_share(struct vqp_engine *e, const struct vqp_peer *p)
{
	if (room_allows(p->children, 1, VQP_CHILDREN - e->n_children,
			VQP_CHILDREN,
			PLANTED(e, SHARE_LEAST) ? 0 : VQP_CHILDREN_LEAST) ||
	    PLANTED(e, CHILDREN))
		return true;
	if (!PLANTED(e, SHARE_SAID))
		vqp_say(e, 512,
			"vqp: a node has as many vqps here as its share is: "
			"what its others send is refused until some are freed");
	return false;
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
	if (!has_share(e, p) || vqp_new(e, &v)) {
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
	 * been freed. It may not have told all that was taken, so this one tells
	 * what is taken with the first message: else the sender's window would
	 * shrink with each vqp that is freed. */
	v->first = v->expect = v->taken = v->taken_sent = h->seq;
	if (h->seq && !PLANTED(e, F4))
		v->taken_sent -= VQP_WINDOW / 2;
	at = child_bucket(e, bound, &h->src, h->src_vqp);
	v->child_next = *at;
	*at = v;
	e->n_children++;
	if (!p->children++)
		vqp_parent_add(e, p);
	return v;
}

static void child_unlink(struct vqp *v)
{
	struct vqp **at =
		child_bucket(v->e, v->bound, &v->peer->node, v->far_vqp);

	while (*at != v)
		at = &(*at)->child_next;
	*at = v->child_next;
	v->e->n_children--;
	if (!--v->peer->children)
		vqp_parent_del(v->e, v->peer);
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

static struct vqp_message *message_of(struct list_node *n)
{
	return container_of(n, struct vqp_message, link);
}

static void garbage(struct vqp_engine *e)
{
	e->counts.garbage++;
	vqp_say(e, 2, "vqp: a message that makes no sense was dropped");
}

void vqp_message_free(struct vqp_engine *e, struct vqp_message *m)
{
	e->conf.port->free(e->conf.arg, m->fetch);
	e->conf.port->free(e->conf.arg, m);
}

/* Nobody takes the message any more. */
static void message_drop(struct vqp_engine *e, struct vqp_message *m)
{
	struct vqp_fetch *f = m->fetch;
	struct vqp *from;

	if (f && !f->over)
		vqp_refuse(e, &m->head);
	if (m->ends)
		vqp_far_gone(m->from);
	list_del(&m->link);
	if (!f || !f->begun || f->over) {
		vqp_message_free(e, m);
		return;
	}
	skein_assert(m->from);
	from = m->from;
	f->orphan = true; /* READs are under way */
	from->fetch = NULL;
	m->from = NULL;
	if (!PLANTED(e, ORPHAN))
		vqp_fetch_drop(from, m);
}

static void ahead_drop(struct vqp *v)
{
	while (!list_empty(&v->ahead))
		message_drop(v->e, message_of(v->ahead.next));
}

/* Is the message of the other end that this vqp knows? The far end may have
 * freed the vqp that this one's messages made; the next message then makes a
 * later one, which counts its messages from 0. */
static bool far_fits(struct vqp *v, const struct msg_head *h)
{
	if (v->far_vqp == h->src_vqp && v->far_gen == h->src_gen)
		return true;
	if (v->far_vqp) {
		if (!v->by_port || (int32_t)(h->src_gen - v->far_gen) <= 0)
			return false;
		ahead_drop(v);
		v->expect = v->taken = v->taken_sent = 0;
		v->lacks = false;
	}
	v->far_vqp = h->src_vqp;
	v->far_gen = h->src_gen;
	return true;
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
	    v->peer->node.incarnation != h->src.incarnation || !far_fits(v, h))
		return NULL;
	*to = v;
	return v;
}

static bool credit_take(struct vqp *v, const struct msg_head *h)
{
	if (h->dst_gen != v->gen)
		return true; /* the sender has heard of another vqp, or none */
	if (h->taken - v->sent_taken > v->sent - v->sent_taken)
		return (int32_t)(h->taken - v->sent_taken) < 0;
	if (v->sent_taken != h->taken)
		v->asked_ns = 0;
	v->asks = 0;
	v->sent_taken = h->taken;
	if (vqp_announce_waits(v) && vqp_announce_taken(v->lent))
		vqp_lent_done(v);
	if (!list_empty(&v->queue) && !list_linked(&v->link))
		list_add_tail(&v->e->busy, &v->link);
	return true;
}

/* Two queue pairs, of which the sender has used one after the other, may
 * complete their receives in any order. So a message waits for those before
 * it. False: it is there already. */
static bool ahead_add(struct vqp *v, struct vqp_message *m)
{
	struct list_node *at = v->ahead.prev;

	while (at != &v->ahead &&
	       (int32_t)(message_of(at)->head.seq - m->head.seq) > 0)
		at = at->prev;
	if (at != &v->ahead && message_of(at)->head.seq == m->head.seq)
		return false;
	list_add_head(at, &m->link);
	return true;
}

static void ahead_deliver(struct vqp *v, struct vqp *to)
{
	struct vqp_message *m;

	while (!list_empty(&v->ahead)) {
		m = message_of(v->ahead.next);
		if (m->head.seq != v->expect)
			return;
		v->expect++;
		list_del(&m->link);
		list_add_tail(&to->messages, &m->link);
		vqp_ready_note(to);
	}
	vqp_end_look(v, to);
}

/* NULL: no memory. */
static struct vqp_message *message_new(struct vqp *from,
				       const struct msg_head *h,
				       const struct msg_announce *where,
				       const uint8_t *data)
{
	const struct vqp_conf *c = &from->e->conf;
	uint32_t here = h->kind == MSG_KIND_DATA ? h->len : 0;
	struct vqp_message *m = c->port->alloc(c->arg, sizeof(*m) + here);

	if (!m)
		return NULL;
	m->head = *h;
	m->from = from;
	memcpy(m->data, data, here);
	if (h->kind == MSG_KIND_DATA)
		return m;
	m->fetch = c->port->alloc(c->arg, sizeof(*m->fetch));
	if (!m->fetch) {
		c->port->free(c->arg, m);
		return NULL;
	}
	m->fetch->at = *where;
	return m;
}

/* A message without a receiver. Its sender hears so, and fails: what it sends is
 * lost. */
static void lost(struct vqp_engine *e, const struct msg_head *h)
{
	struct msg_head r = *h;

	e->counts.dropped++;
	r.asks |= h->kind == MSG_KIND_DATA && !PLANTED(e, LOST);
	if (h->kind == MSG_KIND_ANNOUNCE || r.asks)
		vqp_refuse(e, &r);
}

/* The vqp of ours that the sender of a refusal names; or NULL. */
static struct vqp *refused_of(struct vqp_engine *e, const struct msg_head *h)
{
	struct vqp *v = h->dst_vqp < e->vqps_cap ? e->vqps[h->dst_vqp] : NULL;

	if (!v || v->gen != h->dst_gen || v->state != VQP_CONNECTED ||
	    !meta_same(&v->peer->node, h->src.gid, h->src.port) ||
	    v->peer->node.incarnation != h->src.incarnation)
		return NULL;
	return v;
}

static void refused(struct vqp_engine *e, const struct msg_head *h)
{
	struct vqp *v;

	if (!h->asks) {
		vqp_announce_refused(e, h);
		return;
	}
	v = refused_of(e, h);
	if (v && !PLANTED(e, ASK_DEAF))
		vqp_far_gone(v);
}

static void ended(struct vqp_engine *e, const struct msg_head *h)
{
	struct vqp *to = port_find(e, h->dst_port);
	struct vqp *v = to ? child_find(e, to, h) : NULL;

	if (v)
		vqp_end_take(v, h, to);
}

/* Is the message one that v never waits for? It was for the vqp before v, which is
 * freed, and comes late: v began with one that was sent behind it. */
static bool is_before(const struct vqp *v, const struct msg_head *h)
{
	return v->bound && v->first - h->seq - 1 < VQP_WINDOW &&
	       !PLANTED(v->e, LOST_LATE);
}

/* A message of v's other end, for `to`. */
static void message_receive(struct vqp *v, struct vqp *to,
			    const struct msg_head *h,
			    const struct msg_announce *where,
			    const uint8_t *data)
{
	struct vqp_engine *e = v->e;
	struct vqp_message *m;

	/* Its end comes behind what it still sends. Only an announced message
	 * waits for an answer. */
	if (list_linked(&v->closing)) {
		if (h->kind == MSG_KIND_ANNOUNCE || PLANTED(e, ANSWER))
			lost(e, h);
		else
			e->counts.dropped++;
		return;
	}
	if ((int32_t)(h->seq - v->expect) < 0) {
		if (is_before(v, h))
			lost(e, h);
		else
			e->counts.dropped++; /* a repeated message */
		return;
	}
	if (h->seq - v->taken >= VQP_WINDOW ||
	    (h->seq != v->expect && PLANTED(e, AHEAD))) {
		garbage(e); /* it was sent without a credit */
		v->lacks = true;
		return;
	}
	m = message_new(v, h, where, data);
	if (!m) {
		v->lacks = true;
		lost(e, h);
		vqp_say(e, 4, "vqp: no memory for a message: it is lost");
		return;
	}
	if (!ahead_add(v, m)) {
		e->counts.dropped++;
		vqp_message_free(e, m);
		return;
	}
	ahead_deliver(v, to);
}

void vqp_engine_receive(struct vqp_engine *e, const uint8_t *buf, size_t len)
{
	struct msg_announce where;
	struct vqp *v, *to = NULL;
	struct msg_head h;
	int err;

	err = msg_head_decode(buf, len, &h);
	if (err == -EPROTONOSUPPORT)
		vqp_say(e, 128,
			"vqp: a node of another version of Skein sends "
			"messages: they are dropped");
	if (err || (h.kind == MSG_KIND_ANNOUNCE &&
		    msg_announce_decode(buf + MSG_HEADER, len - MSG_HEADER,
					h.len, &where))) {
		garbage(e);
		return;
	}
	if (h.kind == MSG_KIND_REFUSE) {
		refused(e, &h);
		return;
	}
	if (h.kind == MSG_KIND_END) {
		ended(e, &h);
		return;
	}
	v = pair_of(e, &h, &to);
	if (!v) {
		lost(e, &h);
		return;
	}
	v->peer->heard_ns = e->now_ns;
	if (!credit_take(v, &h)) {
		garbage(e);
		return;
	}
	if (h.kind != MSG_KIND_CREDIT)
		message_receive(v, to, &h, &where, buf + MSG_HEADER);
	else if (h.asks)
		credit_tell(v, &h);
}

/* Drops the messages that this vqp would take. */
void vqp_messages_drop(struct vqp *v)
{
	ahead_drop(v);
	while (!list_empty(&v->messages))
		message_drop(v->e, message_of(v->messages.next));
}

/* Does a bound vqp have messages from v that were not popped? */
bool vqp_is_waited(const struct vqp *v)
{
	struct list_node *n;

	if (!v->bound)
		return false;
	for (n = v->bound->messages.next; n != &v->bound->messages; n = n->next)
		if (message_of(n)->from == v)
			return true;
	return !list_empty(&v->ahead);
}

void vqp_messages_refuse(struct vqp *v)
{
	struct list_node *n, *next;
	struct vqp_message *m;

	ahead_drop(v);
	for (n = v->messages.next; n != &v->messages; n = next) {
		next = n->next;
		m = message_of(n);
		if (m->fetch && !m->fetch->begun)
			message_drop(v->e, m);
	}
}

int vqp_post_recv(struct vqp *v, struct ibv_recv_wr *wr,
		  struct ibv_recv_wr **bad)
{
	struct vqp_recv *r;
	uint32_t n;

	for (; wr; wr = wr->next) {
		*bad = wr;
		if (wr->num_sge < 0 || wr->num_sge > (int)VQP_SGES ||
		    (wr->num_sge && !wr->sg_list))
			return -EINVAL;
		n = v->recv_tail - v->recv_head;
		if (n == VQP_RECVS ||
		    !vqp_ring_grow(v->e, &v->recvs, sizeof(*r), v->recv_head,
				   n + 1))
			return -ENOMEM;
		r = vqp_recv_at(v, v->recv_tail++);
		r->wr_id = wr->wr_id;
		r->num_sge = wr->num_sge;
		if (wr->num_sge)
			memcpy(r->sge, wr->sg_list,
			       (size_t)wr->num_sge * sizeof(*r->sge));
		if (v->state == VQP_ERROR)
			vqp_ready_note(v); /* it is flushed */
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
		memcpy((void *)(uintptr_t)r->sge[i].addr, data, n);
		data += n;
		len -= n;
	}
	return len ? IBV_WC_LOC_LEN_ERR : IBV_WC_SUCCESS;
}

/* The end of a sender, of which the front is not told: it has freed the vqp, or
 * sees it fail. */
static void end_drop(struct vqp_message *m)
{
	struct vqp *from = m->from;

	list_del(&m->link);
	vqp_message_free(from->e, m);
	if (from->ours)
		vqp_free(from);
	else
		vqp_far_gone(from);
}

/* Has the list a message of the same sender before m, one that is READ? */
static bool is_behind(const struct vqp *v, const struct vqp_message *m)
{
	const struct list_node *n;

	for (n = v->messages.next; n != &m->link; n = n->next)
		if (container_of(n, struct vqp_message, link)->from == m->from)
			return !PLANTED(v->e, END_READ);
	return false;
}

/* The oldest message that can be taken now. One that is READ holds up no others:
 * its sender sends nothing more until it is taken, but its end. */
static struct vqp_message *message_next(struct vqp *v)
{
	struct list_node *n, *next;
	struct vqp_message *m;

	for (n = v->messages.next; n != &v->messages; n = next) {
		next = n->next;
		m = message_of(n);
		if (m->ends && is_behind(v, m))
			continue;
		if (m->ends && m->from->ours && !PLANTED(v->e, END_FREED)) {
			end_drop(m);
			continue;
		}
		if (!m->fetch)
			return v->recv_head != v->recv_tail ? m : NULL;
		switch (vqp_fetch_go(v, m)) {
		case VQP_FETCH_NOT_NOW:
			return NULL;
		case VQP_FETCH_OVER:
			return m;
		default:
			break;
		}
	}
	return NULL;
}

/* Of a vqp in error: a message that was READ before, or could not be. */
static struct vqp_message *message_left(const struct vqp *v)
{
	struct list_node *n;

	for (n = v->messages.next; n != &v->messages; n = n->next)
		if (message_of(n)->fetch)
			return message_of(n);
	return NULL;
}

/* Would message_next() take a message, begin to READ one, or drop one? */
static bool message_is_next(const struct vqp *v)
{
	const struct vqp_message *m;
	const struct list_node *n;

	for (n = v->messages.next; n != &v->messages; n = n->next) {
		m = container_of(n, struct vqp_message, link);
		if (m->ends && is_behind(v, m))
			continue;
		if (m->ends && m->from->ours)
			return true;
		if (!m->fetch)
			return v->recv_head != v->recv_tail;
		if (m->fetch->begun ? m->fetch->over
				    : m->from->state != VQP_CONNECTED)
			return true;
		if (!m->fetch->begun && !m->from->fetch)
			return vqp_fetch_may(v, m);
	}
	return false;
}

bool vqp_recv_ready(const struct vqp *v)
{
	if (v->state == VQP_ERROR)
		return message_left(v) || v->recv_head != v->recv_tail;
	return message_is_next(v);
}

/* Puts a message into a receive; NULL: one of them is missing. */
static struct vqp_message *message_take(struct vqp *v, struct vqp_recv **r,
					enum ibv_wc_status *status)
{
	struct vqp_message *m = message_next(v);

	if (!m)
		return NULL;
	list_del(&m->link);
	if (m->fetch) {
		*r = &m->fetch->into;
		*status = m->fetch->status;
		return m;
	}
	*r = vqp_recv_at(v, v->recv_head++);
	if (m->ends) {
		*status = IBV_WC_WR_FLUSH_ERR;
		vqp_far_gone(m->from);
		return m;
	}
	*status = scatter(v->e, *r, m->data, m->head.len);
	if (m->head.src_gen == m->from->far_gen) {
		m->from->taken++;
		vqp_credit_look(m->from);
	}
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
	else if (status == IBV_WC_REM_ABORT_ERR)
		out->status = -ECONNABORTED;
	else if (status == IBV_WC_WR_FLUSH_ERR)
		out->status = -ECONNRESET;
	else if (status)
		out->status = -EFAULT;
	vqp_message_free(v->e, m);
	return true;
}

struct vqp_message *vqp_take(struct vqp *v)
{
	struct vqp_message *m;

	while (!list_empty(&v->messages)) {
		m = message_of(v->messages.next);
		if (m->fetch) {
			message_drop(v->e, m);
			continue;
		}
		if (m->ends) {
			end_drop(m);
			continue;
		}
		list_del(&m->link);
		if (m->head.src_gen == m->from->far_gen) {
			m->from->taken++;
			vqp_credit_look(m->from);
		}
		return m;
	}
	return NULL;
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

static void message_wc(struct vqp *v, struct vqp_message *m,
		       const struct vqp_recv *r, enum ibv_wc_status status,
		       struct ibv_wc *wc)
{
	recv_wc(v, r, status, wc);
	wc->byte_len = m->head.len;
	wc->imm_data = m->head.imm;
	if (m->head.with_imm)
		wc->wc_flags = IBV_WC_WITH_IMM;
	vqp_message_free(v->e, m);
}

int vqp_recv_poll(struct vqp *v, int n, struct ibv_wc *wc)
{
	enum ibv_wc_status status;
	struct vqp_message *m;
	struct vqp_recv *r;
	int got = 0;

	while (got < n && v->state == VQP_CONNECTED &&
	       (m = message_take(v, &r, &status)))
		message_wc(v, m, r, status, &wc[got++]);
	while (got < n && v->state == VQP_ERROR && (m = message_left(v))) {
		list_del(&m->link);
		v->has_why |= m->fetch->status != IBV_WC_SUCCESS;
		message_wc(v, m, &m->fetch->into, m->fetch->status, &wc[got++]);
	}
	while (got < n && v->state == VQP_ERROR && v->recv_head != v->recv_tail)
		recv_wc(v, vqp_recv_at(v, v->recv_head++), vqp_error_next(v),
			&wc[got++]);
	return got;
}
