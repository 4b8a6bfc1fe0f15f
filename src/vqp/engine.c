/* SPDX-License-Identifier: MIT */
/*
 * engine.c - requests of virtual queue pairs on DC queue pairs: queues, posting to
 * the device, completions, the failure of a DCI. See engine.h.
 */
#include "vqp/check.h"

#include "base/assert.h"
#include "base/prng.h"

#include <errno.h>
#include <string.h>

static void *alloc(struct vqp_engine *e, size_t len)
{
	return e->conf.port->alloc(e->conf.arg, len);
}

static void release(struct vqp_engine *e, void *p)
{
	e->conf.port->free(e->conf.arg, p);
}

void vqp_say(struct vqp_engine *e, unsigned bit, const char *line)
{
	if (e->said & bit)
		return;
	e->said |= bit;
	e->conf.port->log(e->conf.arg, line);
}

/* --- vqps --------------------------------------------------------------- */

static int vqps_grow(struct vqp_engine *e)
{
	uint32_t cap = e->vqps_cap ? 2 * e->vqps_cap : 64;
	struct vqp **v = alloc(e, cap * sizeof(struct vqp *));

	if (!v)
		return -ENOMEM;
	if (e->vqps_cap)
		memcpy(v, e->vqps, e->vqps_cap * sizeof(struct vqp *));
	release(e, e->vqps);
	e->vqps = v;
	e->vqps_cap = cap;
	return 0;
}

static int id_get(struct vqp_engine *e, uint32_t *id)
{
	uint32_t i, n;

	for (i = 0; i < e->vqps_cap; i++) {
		n = e->next_id++ % e->vqps_cap;
		if (n && !e->vqps[n]) {
			*id = n;
			return 0;
		}
	}
	if (e->vqps_cap > VQP_MAX)
		return -ENOMEM;
	n = e->vqps_cap;
	if (vqps_grow(e))
		return -ENOMEM;
	*id = n ? n : 1;
	return 0;
}

bool vqp_ring_grow(struct vqp_engine *e, struct vqp_ring *r, size_t each,
		   uint32_t head, uint32_t n)
{
	uint32_t cap = r->cap ? r->cap : VQP_RING_MIN, i;
	uint8_t *at;

	while (cap < n)
		cap *= 2;
	if (cap == r->cap)
		return true;
	at = alloc(e, cap * each);
	if (!at)
		return false;
	for (i = head; i != head + r->cap; i++)
		memcpy(at + i % cap * each,
		       (uint8_t *)r->at + i % r->cap * each, each);
	release(e, r->at);
	*r = (struct vqp_ring){at, cap};
	return true;
}

int vqp_new(struct vqp_engine *e, struct vqp **out)
{
	struct vqp *v = alloc(e, sizeof(*v));
	uint32_t id;

	if (!v)
		return -ENOMEM;
	if (id_get(e, &id)) {
		release(e, v);
		return -ENOMEM;
	}
	v->e = e;
	v->id = id;
	v->gen = ++e->last_gen;
	v->qp = VQP_NO_QP;
	list_init(&v->queue);
	list_init(&v->messages);
	list_init(&v->ahead);
	e->vqps[id] = v;
	*out = v;
	return 0;
}

static void busy_add(struct vqp *v)
{
	if (!list_linked(&v->link))
		list_add_tail(&v->e->busy, &v->link);
}

static void busy_del(struct vqp *v)
{
	if (list_linked(&v->link))
		list_del(&v->link);
}

void vqp_share_set(struct vqp *v, uint32_t *share)
{
	if (!share && v->peer)
		share = &v->peer->slots;
	if (v->share)
		*v->share -= v->n_slots;
	v->share = share;
	if (share)
		*share += v->n_slots;
}

void vqp_join(struct vqp *v, struct vqp_peer *p)
{
	v->peer = p;
	v->dci = p->dci[p->turn++ % VQP_PEER_DCIS];
	v->state = VQP_CONNECTED;
	p->connected += v->by_port;
	if (!v->share)
		vqp_share_set(v, NULL);
	v->qp = vqp_rc_choose(v);
}

/* --- slots -------------------------------------------------------------- */

uint8_t *vqp_cell(struct vqp_engine *e, const struct vqp_slot *s)
{
	return e->conf.cells + (size_t)s->at * VQP_CELL;
}

static struct vqp_slot *slot_of(struct list_node *n)
{
	return container_of(n, struct vqp_slot, link);
}

struct vqp_slot *vqp_slot_get(struct vqp *v)
{
	struct vqp_engine *e = v->e;
	struct vqp_slot *s;
	uint32_t gen, at;

	if (list_empty(&e->free_slots))
		return NULL;
	s = slot_of(e->free_slots.next);
	list_del(&s->link);
	e->n_free--;
	gen = s->gen;
	at = s->at;
	memset(s, 0, sizeof(*s));
	s->gen = gen;
	s->at = at;
	s->v = v;
	v->n_slots++;
	if (v->share)
		++*v->share;
	return s;
}

/* It counts for its vqp no more. */
static void slot_part(struct vqp_slot *s)
{
	s->v->n_slots--;
	if (s->v->share)
		--*s->v->share;
}

void vqp_slot_put(struct vqp_engine *e, struct vqp_slot *s)
{
	if (s->v)
		slot_part(s);
	if (s->held)
		*s->held = false;
	if (s->region)
		vqp_region_over(s);
	if (s->announced)
		vqp_announce_over(e, s);
	if (s->fetch)
		vqp_fetch_over(e, s);
	if (s->v && s->kind == SLOT_PROBE)
		s->v->probe_out = false;
	s->v = NULL;
	s->posted = false;
	s->gen++;
	list_add_tail(&e->free_slots, &s->link);
	e->n_free++;
}

void vqp_slot_queue(struct vqp *v, struct vqp_slot *s, bool first)
{
	if (first)
		list_add_head(&v->queue, &s->link);
	else
		list_add_tail(&v->queue, &s->link);
	busy_add(v);
}

static bool is_users(const struct vqp_slot *s)
{
	return s->kind == SLOT_USER || s->kind == SLOT_MESSAGE;
}

void vqp_slot_requeue(struct vqp *v, struct vqp_slot *s)
{
	struct list_node *n = v->queue.next;

	while (n != &v->queue && !is_users(slot_of(n)) &&
	       !(s->fetch && slot_of(n)->fetch == s->fetch) &&
	       !PLANTED(v->e, WHOLE_FIRST))
		n = n->next;
	list_add_tail(n, &s->link); /* before n */
	busy_add(v);
}

/* --- completions of a vqp ----------------------------------------------- */

static enum ibv_wc_opcode wc_opcode(enum ibv_wr_opcode op)
{
	switch (op) {
	case IBV_WR_RDMA_READ:
		return IBV_WC_RDMA_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return IBV_WC_COMP_SWAP;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return IBV_WC_FETCH_ADD;
	case IBV_WR_RDMA_WRITE:
		return IBV_WC_RDMA_WRITE;
	default:
		return IBV_WC_SEND;
	}
}

void vqp_comp_add(struct vqp *v, const struct ibv_send_wr *wr, uint32_t len)
{
	struct ibv_wc *wc = vqp_comp_at(v, v->comp_tail++);

	memset(wc, 0, sizeof(*wc));
	wc->wr_id = wr->wr_id;
	wc->opcode = wc_opcode(wr->opcode);
	wc->qp_num = v->id;
	wc->byte_len =
		wr->opcode == IBV_WR_RDMA_READ || is_atomic(wr) ? len : 0;
}

void vqp_comp_error(struct vqp *v, const struct ibv_send_wr *wr,
		    enum ibv_wc_status status)
{
	vqp_comp_add(v, wr, 0);
	vqp_comp_at(v, v->comp_ready++)->status = status;
	vqp_ready_note(v);
}

/* Marks the oldest entry that is not ready: the head may be ready and not
 * polled yet. */
static void comp_ready(struct vqp *v)
{
	if (PLANTED(v->e, D) && v->comp_ready != v->comp_head)
		return;
	skein_assert(v->comp_ready != v->comp_tail);
	v->comp_ready++;
	vqp_ready_note(v);
}

void vqp_ready_note(struct vqp *v)
{
	if (!list_linked(&v->ready))
		list_add_tail(&v->e->ready, &v->ready);
}

static bool has_message(const struct vqp *v)
{
	return !list_empty(&v->messages);
}

bool vqp_any_ready(struct vqp_engine *e)
{
	struct list_node *n, *next;
	struct vqp *v;

	list_for_each_safe(n, next, &e->ready) {
		v = container_of(n, struct vqp, ready);
		if (v->front &&
		    (v->comp_head != v->comp_ready || vqp_recv_ready(v)))
			return true;
		/* A message may be ready later, by a receive or a READ. */
		if (v->comp_head == v->comp_ready && !has_message(v))
			list_del(&v->ready);
	}
	return false;
}

int vqp_poll(struct vqp *v, int n, struct ibv_wc *wc)
{
	int got = 0;

	while (got < n && v->comp_head != v->comp_ready)
		wc[got++] = *vqp_comp_at(v, v->comp_head++);
	return got + vqp_recv_poll(v, n - got, wc + got);
}

/* --- errors ------------------------------------------------------------- */

static void lookup_part(struct vqp_slot *s, bool ok)
{
	struct vqp_meta_lookup *at = s->asked;

	if (!at)
		return;
	at->pending--;
	at->failed |= !ok;
	if (ok)
		memcpy(at->record[s->wr.wr_id], vqp_cell(s->v->e, s),
		       META_RECORD);
}

enum ibv_wc_status vqp_error_next(struct vqp *v)
{
	bool is_behind = v->has_why || PLANTED(v->e, WHY);

	v->has_why = true;
	return is_behind ? IBV_WC_WR_FLUSH_ERR : v->why;
}

void vqp_fail(struct vqp *v, enum ibv_wc_status status)
{
	bool first = true;
	struct vqp_slot *s;

	skein_assert(!v->n_posted);
	if (vqp_announce_waits(v))
		list_add_head(&v->queue, &v->lent->link);
	v->state = VQP_ERROR;
	v->why = status;
	v->has_why = false;
	v->e->events++;
	vqp_ready_note(v); /* its receives are flushed */
	v->comp_tail = v->comp_ready;
	if (!vqp_is_dead(status))
		vqp_fetch_refuse(v);
	vqp_messages_refuse(v);
	while (!list_empty(&v->queue)) {
		s = slot_of(v->queue.next);
		list_del(&s->link);
		vqp_end_unsent(v, s);
		if (is_users(s)) {
			vqp_comp_error(v, &s->wr, status);
			status = IBV_WC_WR_FLUSH_ERR;
			v->has_why = true;
		} else if (s->kind == SLOT_LOOKUP) {
			lookup_part(s, false);
		} else if (s->kind == SLOT_CREDIT) {
			v->credit_out = false;
		} else if (s->kind == SLOT_END) {
			/* not this one has failed: it is queued again */
			v->end = !first && !vqp_is_dead(v->why) &&
						 !PLANTED(v->e, END_BEHIND)
					 ? VQP_END_OWED
					 : VQP_END_NONE;
		}
		first = false;
		vqp_slot_put(v->e, s);
	}
	busy_del(v);
	if (v->why == IBV_WC_RETRY_EXC_ERR)
		vqp_end_died(v);
}

/* --- completions of a DCI ----------------------------------------------- */

static bool is_rc(const struct vqp_engine *e, const struct vqp_qp *d)
{
	return d >= e->qp + e->conf.dcis;
}

static void qp_drained(struct vqp_engine *e, struct vqp_qp *d)
{
	if (d->n_posted || !d->target)
		return;
	if (is_rc(e, d)) { /* it has no other peer */
		d->refused = false;
		return;
	}
	vqp_peer_put(e, d->target);
	d->target = NULL;
	d->wanted = false;
	d->refused = false;
}

static void credit_done(struct vqp *v)
{
	v->credit_out = false;
	if (v->ack == VQP_ACK_OUT)
		v->ack = VQP_ACK_NONE;
	vqp_credit_look(v);
}

/* An announcement has left. False: its message is not taken yet, or was refused
 * and fails in its turn. */
static bool lend(struct vqp_slot *s)
{
	if (vqp_announce_taken(s))
		return true;
	s->posted = false;
	if (s->status)
		vqp_slot_queue(s->v, s, true);
	return false;
}

void vqp_lent_done(struct vqp *v)
{
	if (v->lent->signaled)
		comp_ready(v);
	vqp_slot_put(v->e, v->lent);
}

/* Does it take a receive of the peer's? */
static bool is_send(const struct vqp_slot *s)
{
	return s->kind == SLOT_MESSAGE || s->kind == SLOT_CREDIT ||
	       s->kind == SLOT_REFUSE || s->kind == SLOT_END;
}

/* The oldest request of a DCI is done. */
static void slot_done(struct vqp_engine *e, struct vqp_qp *d,
		      struct vqp_slot *s)
{
	struct vqp *v = s->v;

	list_del(&s->link);
	d->n_posted--;
	d->moved_ns = e->now_ns;
	if (d->target && is_send(s))
		d->target->rnr_ns = d->target->rnr_until_ns = 0;
	if (v) {
		v->n_posted--;
		if (!vqp_piece_done(s))
			return;
		if (s->kind == SLOT_LOOKUP)
			lookup_part(s, true);
		else if (s->kind == SLOT_REGION)
			vqp_region_read(e, s);
		else if (s->kind == SLOT_PORT)
			vqp_port_read(s);
		else if (s->kind == SLOT_CREDIT)
			credit_done(v);
		else if (s->kind == SLOT_END)
			v->end = VQP_END_NONE;
		else if (s->announced && !lend(s))
			return;
		else if (s->signaled)
			comp_ready(v);
	}
	s->carried = true;
	vqp_slot_put(e, s);
}

/* May the request be carried out twice? */
static bool may_repeat(const struct vqp_slot *s)
{
	return s->wr.opcode == IBV_WR_RDMA_READ || s->kind == SLOT_CREDIT ||
	       s->kind == SLOT_REFUSE || s->kind == SLOT_PROBE ||
	       s->kind == SLOT_END;
}

/* Requests come back before the READ of a record that waits in v, and may wait
 * for it: the READ is given up, and they ask again. */
static void region_reads_drop(struct vqp *v)
{
	struct list_node *n, *next;

	list_for_each_safe(n, next, &v->queue) {
		if (slot_of(n)->kind != SLOT_REGION || PLANTED(v->e, RENEW))
			continue;
		list_del(n);
		vqp_slot_put(v->e, slot_of(n));
	}
}

/* All requests outstanding on d go back to their vqps, in order and before what
 * waits there. done: they may have been carried out. Then they end as flushed,
 * which means unknown, and are not posted again, unless a second time does no
 * harm. */
static void take_back(struct vqp_engine *e, struct vqp_qp *d, bool done)
{
	struct vqp_slot *s;

	while (!list_empty(&d->posted)) {
		s = slot_of(d->posted.prev);
		list_del(&s->link);
		d->n_posted--;
		s->gen++;
		s->posted = false;
		if (s->v)
			s->v->n_posted--;
		if (s->v && s->v->cut == s)
			s->v->cut = NULL;
		/* No vqp waits for it; or requests that are now before it wait
		 * for its answer, and ask again. */
		if (!s->v || s->kind == SLOT_REGION || s->kind == SLOT_PORT) {
			if (s->v && s->kind == SLOT_PORT)
				s->v->asks_domain = false;
			vqp_slot_put(e, s);
			continue;
		}
		region_reads_drop(s->v);
		list_add_head(&s->v->queue, &s->link);
		busy_add(s->v);
		if (done && !may_repeat(s) && !PLANTED(e, H2))
			s->status = IBV_WC_WR_FLUSH_ERR;
		else
			e->counts.reposted++;
	}
	e->cq_used -= d->sq_used;
	d->sq_used = 0;
}

static void qp_replace(struct vqp_engine *e, struct vqp_qp *d)
{
	if (is_rc(e, d)) {
		vqp_rc_failed(e, d);
		return;
	}
	d->down =
		e->conf.port->replace(e->conf.arg, (unsigned)(d - e->qp)) != 0;
	if (d->down)
		vqp_say(e, 1,
			"vqp: a DC queue pair failed, and there is no "
			"other one yet");
	else
		e->counts.dcis_replaced++;
}

/* Fails all vqps that use this DCI to reach the peer. */
static void fail_all(struct vqp_engine *e, const struct vqp_qp *d,
		     const struct vqp_peer *p, enum ibv_wc_status status)
{
	unsigned qp = (unsigned)(d - e->qp);
	struct vqp *v;
	uint32_t i;

	for (i = 0; i < e->vqps_cap; i++) {
		v = e->vqps[i];
		if (v && v->state == VQP_CONNECTED && v->qp == qp &&
		    (v->peer == p || PLANTED(e, G2)))
			vqp_fail(v, status);
	}
}

/* The target has refused the request, so it has not carried out those after it.
 * After an error at this end that is not certain. */
static bool none_behind(enum ibv_wc_status status)
{
	return status == IBV_WC_REM_ACCESS_ERR ||
	       status == IBV_WC_REM_INV_REQ_ERR || status == IBV_WC_REM_OP_ERR;
}

/* The peer has no receive left: the request that needs one, and all behind it,
 * were not carried out. They wait, and the DCI is free for other peers. False:
 * that has lasted too long. */
static bool rnr_waits(struct vqp_engine *e, struct vqp_qp *d,
		      enum ibv_wc_status status)
{
	struct vqp_peer *p = d->target;

	if (status != IBV_WC_RNR_RETRY_EXC_ERR || !p || is_rc(e, d) ||
	    PLANTED(e, RNR))
		return false;
	/* The last time was another: nothing was sent since. The pause may still
	 * go on, which another queue pair has begun. */
	if (!p->rnr_ns ||
	    (e->now_ns > p->rnr_until_ns + 10 * VQP_RNR_PAUSE_NS &&
	     !PLANTED(e, RNR_OLD)) ||
	    (e->now_ns < p->rnr_until_ns && PLANTED(e, RNR_OTHER)))
		p->rnr_ns = e->now_ns;
	if (e->now_ns - p->rnr_ns >= VQP_RNR_NS && !PLANTED(e, RNR_EVER))
		return false;
	p->rnr_until_ns = e->now_ns + VQP_RNR_PAUSE_NS;
	e->counts.rnrs++;
	take_back(e, d, false);
	qp_drained(e, d);
	qp_replace(e, d);
	return true;
}

/* The queue pair of s has broken by itself: no request has failed on it. What may
 * be carried out twice is posted again, unless that happens to the next request,
 * too. */
static bool broke_once(struct vqp_qp *d, const struct vqp_slot *s,
		       enum ibv_wc_status status)
{
	bool again = d->broke && !PLANTED(s->v->e, BROKEN_EVER);

	d->broke = status == IBV_WC_WR_FLUSH_ERR;
	return d->broke && !again && may_repeat(s) &&
	       !PLANTED(s->v->e, BROKEN_READ);
}

/* Does the device say that the process at the other end is dead? */
static bool rc_is_dead(struct vqp_engine *e, const struct vqp_qp *d)
{
	return is_rc(e, d) &&
	       e->conf.port->rc_probe(e->conf.arg,
				      (unsigned)(d - e->qp) - e->conf.dcis) ==
		       -ENOTCONN;
}

/* s, or the whole DCI (s NULL), has failed. */
static void qp_failed(struct vqp_engine *e, struct vqp_qp *d,
		      struct vqp_slot *s, enum ibv_wc_status status)
{
	struct vqp_peer *p = d->target;
	struct vqp *v = s ? s->v : NULL;

	/* A device that is told of the peer's death flushes what is there. */
	if (status == IBV_WC_WR_FLUSH_ERR && rc_is_dead(e, d))
		status = IBV_WC_RETRY_EXC_ERR;
	while (s && slot_of(d->posted.next) != s)
		slot_done(e, d, slot_of(d->posted.next));
	if (rnr_waits(e, d, status))
		return;
	if (v && broke_once(d, s, status))
		v = NULL;
	if (p)
		p->refs++;
	take_back(e, d, !none_behind(status));
	qp_drained(e, d);
	qp_replace(e, d);
	if (s && p && (vqp_is_dead(status) || PLANTED(e, G2)))
		fail_all(e, d, p, status);
	else if (v)
		vqp_fail(v, status);
	if (!p)
		return;
	/* The node may be another process by now. */
	if (vqp_is_dead(status) || status == IBV_WC_REM_ACCESS_ERR)
		vqp_peer_forget(e, p);
	vqp_peer_put(e, p);
}

static void take(struct vqp_engine *e, const struct ibv_wc *wc)
{
	uint32_t at = (uint32_t)wc->wr_id, gen = (uint32_t)(wc->wr_id >> 32);
	struct vqp_slot *s, *t;
	struct vqp_qp *d;

	if (at == VQP_WR_ASK) {
		vqp_life_answer(e, gen, wc->status);
		return;
	}
	if (at >= VQP_WR_RC) {
		vqp_rc_probed(e, at - VQP_WR_RC, gen,
			      wc->status == IBV_WC_SUCCESS);
		return;
	}
	s = &e->slots[at];
	if (!s->posted || (s->gen != gen && !PLANTED(e, E2)))
		return; /* a late completion of a replaced DCI */
	d = &e->qp[s->qp];
	e->events++;
	if (wc->status != IBV_WC_SUCCESS) {
		qp_failed(e, d, s, wc->status);
		return;
	}
	d->broke = false;
	if (d->target)
		d->target->heard_ns = e->now_ns;
	d->sq_used -= s->covers;
	e->cq_used -= s->covers;
	do {
		t = slot_of(d->posted.next);
		slot_done(e, d, t);
	} while (t != s);
	qp_drained(e, d);
}

int vqp_reap(struct vqp_engine *e)
{
	struct ibv_wc wc[16];
	int n, i, all = 0;

	/* To the last one: how old the rest is tells of a peer only then. */
	do {
		n = e->conf.port->poll(e->conf.arg, 16, wc);
		for (i = 0; i < n; i++)
			take(e, &wc[i]);
		all += n > 0 ? n : 0;
	} while (n == 16 && !PLANTED(e, REAP));
	return all;
}

/* --- posting ------------------------------------------------------------ */

/* Requests to one target are not posted after outstanding ones to another: they
 * would wait for them on the device, and fail with them. */
static bool qp_free_for(struct vqp_qp *d, struct vqp *v)
{
	if (d->down || (d->refused && d->n_posted))
		return false;
	if (is_rc(v->e, d))
		return true;
	if (!d->n_posted || PLANTED(v->e, G)) {
		if (!d->target) {
			d->target = v->peer;
			d->target->refs++;
			d->turn = 0;
		}
		return true;
	}
	if (d->target != v->peer) {
		d->wanted = true;
		return false;
	}
	return !d->wanted || d->turn < VQP_TURN;
}

/* *rkey: the device's, for a one-sided request of the user's. */
static bool may_post(struct vqp *v, struct vqp_slot *s, uint32_t *rkey)
{
	enum region_verdict is;

	if (s->status)
		return false;
	if (is_send(s) && v->qp < v->e->conf.dcis &&
	    v->e->now_ns < v->peer->rnr_until_ns && !PLANTED(v->e, RNR_PAUSE))
		return false;
	if (is_users(s) &&
	    (vqp_announce_waits(v) || (v->lent && v->lent->posted)) &&
	    !PLANTED(v->e, HOLD_ORDER))
		return false;
	if (s->kind == SLOT_USER && v->raw) {
		*rkey = is_atomic(&s->wr) ? s->wr.wr.atomic.rkey
					  : s->wr.wr.rdma.rkey;
		return true;
	}
	if (s->kind == SLOT_USER && s->len) {
		is = vqp_region_check(v, s, rkey);
		if (is == REGION_WRONG)
			s->status = IBV_WC_REM_ACCESS_ERR;
		return is == REGION_GOOD;
	}
	return s->kind != SLOT_MESSAGE || s->numbered || PLANTED(v->e, F) ||
	       v->sent - v->sent_taken < VQP_WINDOW;
}

static void wr_fill(struct vqp *v, struct vqp_slot *s, uint32_t rkey,
		    struct ibv_send_wr *wr)
{
	if (is_send(s))
		vqp_head_fill(v, s);
	if (s->kind == SLOT_REGION)
		vqp_region_posted(s);
	*wr = s->wr;
	if (s->kind == SLOT_USER && is_atomic(wr))
		wr->wr.atomic.rkey = rkey;
	else if (s->kind == SLOT_USER)
		wr->wr.rdma.rkey = rkey;
	wr->sg_list = s->sge;
	wr->wr_id = (uint64_t)s->gen << 32 | s->at;
	wr->send_flags &= IBV_SEND_FENCE | IBV_SEND_SOLICITED;
	if (s->signaled)
		wr->send_flags |= IBV_SEND_SIGNALED;
	if (wr->opcode == IBV_WR_SEND_WITH_IMM)
		wr->opcode = IBV_WR_SEND; /* the immediate is in the header */
	wr->next = NULL;
}

/* The completion of s frees all since the signalled one before. */
static void covers_all(struct ibv_send_wr *wr, struct vqp_slot *s,
		       uint32_t *unsignaled)
{
	wr->send_flags |= IBV_SEND_SIGNALED;
	s->covers = (uint16_t)*unsignaled;
	*unsignaled = 0;
}

/* Takes as many requests of one vqp as there is room for. The last is
 * signalled. On RC the age of a SEND is judged once it is the oldest: so it has
 * a completion of its own, and what is before it too. */
static unsigned chain_make(struct vqp *v, struct vqp_qp *d,
			   struct ibv_send_wr *wr, struct vqp_slot **in,
			   struct ibv_sge *sge)
{
	struct vqp_engine *e = v->e;
	uint32_t room = e->conf.sq_max - d->sq_used, unsignaled = 0;
	struct list_node *at;
	uint32_t rkey = 0, len, all = 0;
	unsigned n = 0;

	if (room > e->conf.cq_max - e->cq_used && !PLANTED(e, E))
		room = e->conf.cq_max - e->cq_used;
	if (room > VQP_CHAIN || PLANTED(e, B))
		room = VQP_CHAIN;
	if (room && v->alone)
		room = 1;
	for (at = v->queue.next; n < room && at != &v->queue; at = at->next) {
		struct vqp_slot *s = slot_of(at);
		bool judged =
			is_rc(e, d) && is_send(s) && !PLANTED(e, RC_SIGNAL);

		len = vqp_piece_len(s);
		if (vqp_piece_waits(s, len, all) || !may_post(v, s, &rkey))
			break;
		all += len;
		if (judged && unsignaled)
			covers_all(&wr[n - 1], in[n - 1], &unsignaled);
		wr_fill(v, s, rkey, &wr[n]);
		s->covers = 0;
		unsignaled++;
		if (s->signaled || judged)
			covers_all(&wr[n], s, &unsignaled);
		if (n)
			wr[n - 1].next = &wr[n];
		in[n++] = s;
		if (len && len < s->len) {
			vqp_piece_fill(s, len, &wr[n - 1], sge);
			break;
		}
		if (s->announced && !PLANTED(e, HOLD_ORDER))
			break;
	}
	if (n && unsignaled) {
		unsignaled += !!PLANTED(e, C);
		covers_all(&wr[n - 1], in[n - 1], &unsignaled);
	}
	return n;
}

/* The device has taken none of n. It refuses one of them, or has no room while
 * others are outstanding, or is broken. So each is posted alone first, then
 * with nothing else on the DCI, then on another DCI; then it fails alone.
 * Outstanding requests go on. 0: the next try is due; -1: not yet. */
static int post_refused(struct vqp *v, struct vqp_qp *d, struct vqp_slot *s,
			unsigned n)
{
	struct vqp_engine *e = v->e;

	e->counts.refused++;
	if (PLANTED(e, H)) {
		take_back(e, d, false);
		qp_drained(e, d);
		qp_replace(e, d);
		return -1;
	}
	if (n > 1) {
		v->alone = n;
	} else if (d->n_posted) {
		d->refused = true;
		d->refused_ns = e->now_ns;
		return -1;
	} else if (!s->refused || PLANTED(e, H3)) {
		s->refused = true;
		qp_replace(e, d);
		return PLANTED(e, H3) ? -1 : 0;
	} else {
		s->status = IBV_WC_LOC_QP_OP_ERR;
		vqp_say(e, 16, "vqp: the device refuses a request");
	}
	return 0;
}

/* Makes another one in place of a queue pair that broke while it was idle. True:
 * v may use it. That of a dead peer flushes the request: v hears so at once. */
static bool qp_sound(struct vqp *v, struct vqp_qp *d)
{
	struct vqp_engine *e = v->e;

	if (d->n_posted || d->down || !e->conf.port->broken ||
	    !e->conf.port->broken(e->conf.arg, v->qp) || PLANTED(e, BROKEN) ||
	    (rc_is_dead(e, d) && !PLANTED(e, BROKEN_DEAD)))
		return true;
	qp_replace(e, d);
	return !is_rc(e, d);
}

/* Returns how many were posted; 0: none, and another try is due; -1: none. */
static int post_some(struct vqp *v)
{
	struct ibv_send_wr wr[VQP_CHAIN];
	struct vqp_slot *in[VQP_CHAIN];
	struct ibv_sge sge[VQP_SGES + 1];
	struct vqp_engine *e = v->e;
	struct vqp_qp *d = &e->qp[v->qp];
	unsigned n, i;
	int more = -1;

	if (!qp_sound(v, d))
		return 0;
	if (!qp_free_for(d, v))
		return -1;
	n = chain_make(v, d, wr, in, sge);
	if (n && e->conf.port->post(e->conf.arg, v->qp, wr, n, v->peer)) {
		more = post_refused(v, d, in[0], n);
		n = 0;
	}
	if (!n) {
		qp_drained(e, d);
		return more;
	}
	for (i = 0; i < n; i++) {
		list_del(&in[i]->link);
		list_add_tail(&d->posted, &in[i]->link);
		in[i]->posted = true;
		in[i]->qp = (uint16_t)v->qp;
		vqp_piece_posted(in[i]);
	}
	if (!d->n_posted)
		d->moved_ns = e->now_ns;
	d->n_posted += n;
	d->sq_used += n;
	d->turn += n;
	e->cq_used += n;
	v->n_posted += n;
	v->alone -= v->alone != 0;
	vqp_rc_count(e, v->peer, n);
	e->counts.posts++;
	e->counts.requests += n;
	return (int)n;
}

/* Puts v on the queue pair that it is to use: the transfer. What is posted ends
 * first: the last request of each chain is signalled, so that needs no request
 * of its own. What is new waits in v's queue meanwhile. True: v may post. */
static bool transfer(struct vqp *v)
{
	uint32_t to = vqp_rc_choose(v);

	if (to == v->qp)
		return to != VQP_NO_QP;
	if (v->n_posted && !PLANTED(v->e, RC_DRAIN))
		return false;
	/* Its RC queue pair ends: the peer takes its messages first. */
	if (v->qp != VQP_NO_QP && !vqp_rc_may_switch(v) &&
	    !PLANTED(v->e, RC_END))
		return false;
	if (v->qp != VQP_NO_QP)
		v->e->counts.transfers++;
	v->qp = to;
	return to != VQP_NO_QP;
}

static unsigned pump_one(struct vqp *v)
{
	unsigned all = 0;
	struct vqp_slot *s;
	int n;

	if (v->far_gone) {
		if (!v->n_posted)
			vqp_fail(v, IBV_WC_REM_OP_ERR);
		return 0;
	}
	while (!list_empty(&v->queue) &&
	       (!v->cut || PLANTED(v->e, WHOLE_ORDER))) {
		s = slot_of(v->queue.next);
		if (s->status) {
			if (!v->n_posted)
				vqp_fail(v, s->status);
			return all;
		}
		if (!transfer(v))
			return all;
		n = post_some(v);
		/* The check may have queued a READ of a region's record before
		 * it. */
		if (n < 0 && slot_of(v->queue.next) == s) {
			vqp_credit_ask(v);
			if (slot_of(v->queue.next) == s)
				return all;
			n = 0;
		}
		all += n > 0 ? (unsigned)n : 0;
	}
	if (list_empty(&v->queue))
		busy_del(v);
	return all;
}

int vqp_pump(struct vqp_engine *e)
{
	struct list_node *n, *next, *last = e->busy.prev;
	struct vqp *v;
	int moved = 0;

	for (n = e->busy.next; n != &e->busy; n = next) {
		bool end = n == last;
		unsigned k;

		next = n->next;
		v = container_of(n, struct vqp, link);
		k = pump_one(v);
		moved += (int)k;
		/* the vqp that waited longest is first */
		if (k && list_linked(&v->link)) {
			list_del(&v->link);
			list_add_tail(&e->busy, &v->link);
		}
		if (end || !list_linked(next))
			break;
	}
	return moved;
}

/* --- the whole ---------------------------------------------------------- */

static void closing_add(struct vqp *v)
{
	vqp_messages_drop(v);
	vqp_unbind(v);
	v->front = NULL;
	v->closed_ns = v->e->now_ns;
	list_add_tail(&v->e->closing, &v->closing);
}

/* What waits in v is dropped, but for what it owes. */
static void waiting_drop(struct vqp *v)
{
	struct list_node *n, *next;
	struct vqp_slot *s;

	for (n = v->queue.next; n != &v->queue; n = next) {
		next = n->next;
		s = slot_of(n);
		if (s->kind == SLOT_CREDIT)
			continue;
		list_del(&s->link);
		vqp_end_unsent(v, s);
		vqp_slot_put(v->e, s);
	}
	if (vqp_announce_waits(v))
		vqp_slot_put(v->e, v->lent);
	if (!PLANTED(v->e, WHOLE_FREED))
		v->cut = NULL; /* what is posted of it ends it */
}

/* v is of no use to its front any more, but owes its other end the word that an
 * announced message is taken, or that v is freed: it stays until that is
 * sent. */
static void close_owing(struct vqp *v)
{
	vqp_messages_drop(v);
	waiting_drop(v);
	closing_add(v);
}

static void end_note(struct vqp *v)
{
	if (vqp_end_owed(v) && !PLANTED(v->e, END))
		v->end = VQP_END_OWED;
}

/* If v has messages that were not popped, it stays: the next one popped tells
 * the front of it again, as of a new one. */
static bool keeps(struct vqp *v)
{
	uint32_t i;

	if (!vqp_is_waited(v) || PLANTED(v->e, FREE))
		return false;
	for (i = 0; i < VQP_SLOTS; i++)
		if (v->e->slots[i].v == v)
			v->e->slots[i].signaled = false;
	v->comp_head = v->comp_ready = v->comp_tail;
	v->recv_head = v->recv_tail;
	v->front = NULL;
	v->ours = true;
	return true;
}

void vqp_destroy(struct vqp *v)
{
	struct vqp_engine *e = v->e;
	struct vqp_slot *s;
	uint32_t i;

	vqp_lookup_drop(v);
	vqp_messages_drop(v);
	if (v->n_posted)
		for (i = 0; i < VQP_SLOTS; i++) {
			s = &e->slots[i];
			if (s->v != v || !s->posted)
				continue;
			if (s->kind == SLOT_LOOKUP && !PLANTED(e, META_ANEW))
				lookup_part(s, false);
			slot_part(s);
			s->v = NULL;
		}
	while (!list_empty(&v->queue)) {
		s = slot_of(v->queue.next);
		list_del(&s->link);
		if (s->kind == SLOT_LOOKUP)
			lookup_part(s, false);
		vqp_slot_put(e, s);
	}
	if (vqp_announce_waits(v))
		vqp_slot_put(e, v->lent);
	list_del(&v->lending);
	list_del(&v->ready);
	busy_del(v);
	if (list_linked(&v->closing))
		list_del(&v->closing);
	vqp_unbind(v);
	if (v->peer) {
		v->peer->connected -= v->by_port;
		vqp_peer_put(e, v->peer);
	}
	e->vqps[v->id] = NULL;
	release(e, v->comps.at);
	release(e, v->recvs.at);
	release(e, v);
}

void vqp_free(struct vqp *v)
{
	if (keeps(v))
		return;
	end_note(v);
	if ((v->end == VQP_END_OWED && v->sent) ||
	    (v->n_posted && !PLANTED(v->e, POSTED)) ||
	    (v->ack && v->state == VQP_CONNECTED && !PLANTED(v->e, ACK)))
		close_owing(v);
	else
		vqp_destroy(v);
}

/* Has v posted all that it has to say? Its end comes behind that. */
static bool has_said_all(const struct vqp *v)
{
	return v->state != VQP_CONNECTED ||
	       (list_empty(&v->queue) &&
		(!v->cut || PLANTED(v->e, WHOLE_END)) && !v->lent && !v->ack &&
		(!vqp_credit_due(v) || PLANTED(v->e, F5)));
}

/* Has a vqp that its front has closed nothing to do any more? What is posted may
 * come back: the peer has no receive for it. */
static bool is_through(const struct vqp *v)
{
	return v->state != VQP_CONNECTED ||
	       (has_said_all(v) && v->end != VQP_END_OUT &&
		(!v->n_posted || PLANTED(v->e, POSTED)));
}

/* v is freed once it has nothing to do; before that it sends the last message,
 * if it owes that. */
static void closing_look(struct vqp *v)
{
	struct vqp_engine *e = v->e;
	bool late = e->now_ns - v->closed_ns >= VQP_LINGER_NS &&
		    !PLANTED(e, LINGER);

	/* It has failed, and its other end lives: it posts that alone. */
	if (v->end == VQP_END_OWED && v->state == VQP_ERROR &&
	    !vqp_is_dead(v->why)) {
		v->state = VQP_CONNECTED;
		v->far_gone = false;
		/* nor waits for credit, which was dropped */
		if (!PLANTED(e, END_CREDIT))
			v->taken_sent = v->taken;
		v->tells = false;
	}
	if (v->end == VQP_END_OWED && v->state == VQP_CONNECTED) {
		if (late)
			waiting_drop(v);
		if (!late && !has_said_all(v))
			return;
		if (v->sent) {
			if (vqp_end_queue(v))
				v->closed_ns = e->now_ns;
			return;
		}
	}
	if (late || is_through(v))
		vqp_destroy(v);
}

void vqp_close(struct vqp *v)
{
	if (keeps(v))
		return;
	end_note(v);
	if (((v->end == VQP_END_NONE || !v->sent) && is_through(v)) ||
	    PLANTED(v->e, CLOSE)) {
		vqp_destroy(v);
		return;
	}
	closing_add(v);
	closing_look(v);
}

static void closing_run(struct vqp_engine *e)
{
	struct list_node *n, *next;

	for (n = e->closing.next; n != &e->closing; n = next) {
		next = n->next;
		closing_look(container_of(n, struct vqp, closing));
	}
}

int vqp_engine_round(struct vqp_engine *e, uint64_t now_ns)
{
	struct vqp_qp *d;
	int moved;

	e->now_ns = now_ns;
	e->rounds++;
	moved = vqp_reap(e);
	for (d = e->qp; d < e->qp + e->conf.dcis + e->conf.rcs; d++) {
		if (d->down)
			qp_replace(e, d);
		/* The DCI has neither carried out its requests nor failed. */
		if (d->refused && now_ns - d->refused_ns >= REGION_RETRY_NS)
			qp_failed(e, d, NULL, IBV_WC_WR_FLUSH_ERR);
		/* The device waits for a receive of the peer's for ever. */
		if (is_rc(e, d) && d->n_posted &&
		    is_send(slot_of(d->posted.next)) &&
		    now_ns - d->moved_ns >= VQP_RNR_NS && !PLANTED(e, RNR_EVER))
			qp_failed(e, d, slot_of(d->posted.next),
				  IBV_WC_RNR_RETRY_EXC_ERR);
	}
	if (!list_empty(&e->lookups))
		moved += vqp_lookups_run(e);
	if (e->credits_due)
		vqp_credits_look(e);
	if (!list_empty(&e->lending))
		vqp_announce_run(e);
	vqp_rcs_run(e);
	moved += vqp_life_run(e);
	moved += vqp_pump(e);
	if (!list_empty(&e->closing))
		closing_run(e);
	return moved;
}

int vqp_engine_init(struct vqp_engine *e, const struct vqp_conf *conf)
{
	uint32_t i;

	if (conf->dcis + conf->rcs == 0 || conf->dcis > VQP_DCIS_MAX ||
	    conf->rcs > VQP_RCS_MAX || conf->sq_max < 2 || conf->cq_max < 2)
		return -EINVAL;
	memset(e, 0, sizeof(*e));
	e->conf = *conf;
	if (!conf->lookup_wait_ns)
		e->conf.lookup_wait_ns = VQP_LOOKUP_WAIT_NS;
	list_init(&e->free_slots);
	list_init(&e->busy);
	list_init(&e->ready);
	list_init(&e->lookups);
	list_init(&e->closing);
	list_init(&e->lending);
	list_init(&e->want_rc);
	list_init(&e->parents);
	if (!conf->rc_busy)
		e->conf.rc_busy = VQP_RC_BUSY;
	e->slots = alloc(e, VQP_SLOTS * sizeof(*e->slots));
	if (!e->slots)
		return -ENOMEM;
	for (i = 0; i < VQP_SLOTS; i++) {
		e->slots[i].at = i;
		list_add_tail(&e->free_slots, &e->slots[i].link);
	}
	e->n_free = VQP_SLOTS;
	for (i = 0; i < conf->dcis + conf->rcs; i++)
		list_init(&e->qp[i].posted);
	return 0;
}

void vqp_engine_fini(struct vqp_engine *e)
{
	struct vqp_peer *p;
	uint32_t i;

	e->ending = true;
	for (i = 0; i < e->vqps_cap; i++)
		if (e->vqps[i] && e->vqps[i]->state == VQP_BOUND)
			vqp_destroy(e->vqps[i]);
	for (i = 0; i < e->vqps_cap; i++)
		if (e->vqps[i])
			vqp_destroy(e->vqps[i]);
	for (i = 0; i < VQP_SLOTS; i++)
		if (e->slots[i].fetch)
			vqp_fetch_over(e, &e->slots[i]);
	vqp_rcs_fini(e);
	vqp_life_fini(e);
	for (i = 0; i < e->conf.dcis; i++)
		if (e->qp[i].target)
			vqp_peer_put(e, e->qp[i].target);
	for (i = 0; i < VQP_PEER_BUCKETS; i++)
		while ((p = e->peers[i])) {
			skein_assert(!p->refs);
			vqp_peer_forget(e, p);
		}
	release(e, e->slots);
	release(e, e->vqps);
}
