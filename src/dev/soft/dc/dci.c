/* SPDX-License-Identifier: MIT */
/*
 * dci.c - the sending QP of DC: its destinations, how it turns from one to
 * another, what a post does.
 *
 * A destination that this process does not know is dialled by the control
 * thread, as a UD QP's is; requests for it, and those behind them, are parked
 * meanwhile. A post waits for no other process.
 */
#include "dev/soft/dc/dc.h"
#include "dev/soft/ud/ud.h"

#include "base/assert.h"

#include <errno.h>
#include <string.h>

int soft_create_dci(struct dev *dev, struct ibv_pd *pd,
		    struct ibv_qp_init_attr *attr,
		    const struct dev_qp_opts *opts, struct ibv_qp **qp)
{
	struct dev_qp_opts o = dev_qp_opts_full(opts);
	struct soft *s = soft_of_dev(dev);
	struct ibv_qp_init_attr a = *attr;
	struct soft_qp *q;
	int err;

	if (!soft_here(s))
		return -EPERM;
	a.qp_type = IBV_QPT_DRIVER;
	a.srq = NULL;
	a.cap.max_recv_wr = a.cap.max_recv_sge = 0;
	if (!a.recv_cq)
		a.recv_cq = a.send_cq;
	err = soft_qp_make(s, pd, &a, 0, &q);
	if (err)
		return err;
	q->attr.timeout = o.timeout;
	q->attr.retry_cnt = o.retry_cnt;
	q->attr.rnr_retry = o.rnr_retry;
	q->attr.path_mtu = s->dev.port_attr.active_mtu;
	q->met_said = q->met_heard = true; /* no news for a DCT */
	soft_qp_begin(q, IBV_QPS_RTS);
	attr->cap = a.cap;
	*qp = &q->ex.qp_base;
	return 0;
}

/* --- destinations ------------------------------------------------------- */

static bool is_over(const struct dc_dest *d)
{
	return d->state == DC_DEST_NOBODY ||
	       (d->state == DC_DEST_READY && !soft_life(d->peer->nic));
}

static struct dc_dest *dest_find(struct soft_qp *q, uint32_t dctn, uint64_t key)
{
	struct dc_dest *d = q->dc->cur;
	struct list_node *n;

	if (likely(d && d->dctn == dctn && d->key == key && !is_over(d)))
		return d;
	for (n = q->dc->age.prev; n != &q->dc->age; n = n->prev) {
		d = container_of(n, struct dc_dest, age);
		if (d->dctn != dctn || d->key != key || is_over(d))
			continue;
		list_del(&d->age);
		list_add_tail(&q->dc->age, &d->age);
		return d;
	}
	return NULL;
}

/* soft.lock is held. */
static void dest_free(struct soft_qp *q, struct dc_dest *d)
{
	struct soft *s = q->s;

	if (q->dc->cur == d) {
		q->dc->cur = NULL;
		q->peer = NULL;
		q->far = NULL;
		q->far_bell = -1;
		q->gate_ok = 0;
		q->inside = &q->self->hazard;
	}
	list_del(&d->age);
	q->dc->n_dests--;
	/* release: the owner that finds the word free finds it even */
	if (d->word)
		atomic_store_explicit(&d->word->by, 0, memory_order_release);
	if (d->bell && q->harsh)
		soft_harsh_hush(q); /* a count may be owed by it */
	soft_bell_put(s, d->bell);
	if (d->peer)
		soft_peer_put(s, d->peer);
	env_free(s->env, d);
}

/* Those that are over, and the oldest when there are too many. soft.lock is
 * held. */
static void trim(struct soft_qp *q)
{
	struct list_node *n, *next;
	struct dc_dest *d;

	for (n = q->dc->age.next; n != &q->dc->age; n = next) {
		next = n->next;
		d = container_of(n, struct dc_dest, age);
		if (!d->refs && (is_over(d) || q->dc->n_dests >= DC_DEST_MAX))
			dest_free(q, d);
	}
}

static void dest_ready(struct dc_dest *d, struct soft_peer *peer, uint64_t area,
		       struct soft_bell *bell)
{
	d->peer = peer;
	d->bell = bell;
	d->far = (struct shm_qp *)(void *)(peer->base + area);
	d->state = DC_DEST_READY;
}

/* Neither lock is held: soft.lock comes first. */
static int dest_new(struct soft_qp *q, uint32_t dctn, uint64_t key)
{
	struct soft *s = q->s;
	struct soft_bell *bell;
	struct soft_peer *peer;
	struct dc_dest *d;
	uint64_t area;

	d = env_alloc(s->env, sizeof(*d));
	if (!d)
		return -ENOMEM;
	d->dctn = dctn;
	d->key = key;
	pthread_mutex_lock(&s->lock);
	if (soft_peer_known(s, dctn, &peer, &area, &bell))
		dest_ready(d, peer, area, bell);
	soft_lock(&q->lock);
	trim(q);
	list_add_tail(&q->dc->age, &d->age);
	q->dc->n_dests++;
	soft_unlock(&q->lock);
	pthread_mutex_unlock(&s->lock);
	return 0;
}

void soft_dci_free(struct soft_qp *q)
{
	while (!list_empty(&q->dc->age))
		dest_free(q,
			  container_of(q->dc->age.next, struct dc_dest, age));
}

void soft_dci_service(struct soft_qp *q)
{
	struct list_node *n;
	struct dc_dest *d;

	for (n = q->dc->age.next; n != &q->dc->age; n = n->next) {
		d = container_of(n, struct dc_dest, age);
		if (d->state != DC_DEST_NEW)
			continue;
		d->state = DC_DEST_DIALS;
		soft_dial(q->s, d->dctn);
	}
}

void soft_dci_met(struct soft_qp *q, uint32_t qpn, struct soft_peer *peer,
		  uint64_t area, struct soft_bell *bell)
{
	bool any = false;
	struct list_node *n;
	struct dc_dest *d;

	for (n = q->dc->age.next; n != &q->dc->age; n = n->next) {
		d = container_of(n, struct dc_dest, age);
		if (d->dctn != qpn || d->state != DC_DEST_DIALS)
			continue;
		any = true;
		d->state = DC_DEST_NOBODY;
		if (!peer || !area)
			continue;
		peer->refs++;
		soft_bell_get(bell);
		dest_ready(d, peer, area, bell);
	}
	if (any)
		soft_progress(q);
}

/* --- turning ------------------------------------------------------------ */

/* A word for us in the target's table; NULL: none is free, or its place makes
 * no sense. */
static struct dc_inside *word_take(struct soft_qp *q, const struct dc_dest *d)
{
	uint64_t off = (uint64_t)shm_once(d->far->inside_off) * SHM_PAGE;
	uint64_t size = soft_peer_size(d->peer);
	struct dc_inside *t;
	uint32_t i, at, none;

	if (off < SHM_ARENA_OFF || off + DC_INSIDE_MAX * sizeof(*t) > size)
		return NULL;
	t = (struct dc_inside *)(void *)(d->peer->base + off);
	at = q->ex.qp_base.qp_num * 31u;
	for (i = 0; i < DC_INSIDE_MAX; i++) {
		none = 0;
		if (atomic_compare_exchange_strong(
			    &t[(at + i) % DC_INSIDE_MAX].by, &none,
			    d->peer->claimant))
			return &t[(at + i) % DC_INSIDE_MAX];
	}
	return NULL;
}

void soft_dc_turn(struct soft_qp *q, struct dc_dest *d)
{
	if (likely(q->dc->cur == d && d->word))
		return;
	skein_assert(!q->taken || q->dc->cur == d);
	if (d->state == DC_DEST_READY && !d->word)
		d->word = word_take(q, d);
	q->dc->cur = d;
	q->gate_ok = 0;
	q->peer = d->peer;
	q->far = d->far;
	q->far_bell = soft_bell_fd(d->bell);
	q->far_idx = d->far ? shm_once(d->far->idx) : SHM_QP_MAX;
	q->far_conn = d->far ? shm_once(d->far->conn) : 0;
	q->attr.dest_qp_num = d->dctn;
	q->inside = d->word ? &d->word->hazard : &q->self->hazard;
}

int soft_dc_gate(struct soft_qp *q)
{
	struct dc_dest *d = q->dc->cur;
	const struct shm_qp *f = d->far;
	uint32_t gate;

	q->gate_ok = 0;
	memset(q->xlat, 0, sizeof(q->xlat));
	atomic_store(&q->asked_for, 0);
	if (d->state == DC_DEST_NOBODY)
		return IBV_WC_RETRY_EXC_ERR;
	if (d->state != DC_DEST_READY)
		return -SOFT_PARK_ROUTE;
	/* acquire: pairs with soft_qp_gate(): the fields below are older */
	gate = atomic_load_explicit(&f->gate, memory_order_acquire);
	if (!soft_life(d->peer->nic) || gate & SHM_GATE_DEAD ||
	    shm_once(f->qpn) != d->dctn || !shm_once(f->inside_off)) {
		/* a number that is used again is looked for again */
		if (!(gate & SHM_GATE_ACCEPT))
			d->state = DC_DEST_NOBODY;
		return IBV_WC_RETRY_EXC_ERR;
	}
	if (!(gate & SHM_GATE_ACCEPT) || !d->word)
		return -SOFT_PARK_ROUTE;
	if (shm_once(f->dc_key) != d->key)
		return IBV_WC_REM_ACCESS_ERR;
	if (!soft_area_load(q))
		return IBV_WC_RETRY_EXC_ERR;
	q->gate_ok = gate;
	return 0;
}

/* --- posting ------------------------------------------------------------ */

int soft_post_dc(struct dev *dev, struct ibv_qp *qp, struct ibv_send_wr *wr,
		 struct ibv_ah *ah, uint32_t dctn, uint64_t dc_key)
{
	struct soft_qp *q = soft_qp_of(qp);
	struct ibv_send_wr *w;
	struct dc_dest *d;
	uint32_t n = 0;
	int err = 0;

	if (!soft_here(q->s))
		return -EPERM;
	if (!q->dc || !wr || soft_ah_of(ah)->pd != q->pd)
		return -EINVAL;
	if (soft_ah_of(ah)->far) /* the link has no DC */
		return -EHOSTUNREACH;
	for (w = wr; w; w = w->next)
		n++;
	dctn &= 0xffffff;
	soft_lock(&q->lock);
	d = dest_find(q, dctn, dc_key);
	while (unlikely(!d)) { /* twice, where its process ends meanwhile */
		soft_unlock(&q->lock);
		err = dest_new(q, dctn, dc_key);
		if (err)
			return err;
		soft_lock(&q->lock);
		d = dest_find(q, dctn, dc_key);
	}
	q->dc->to = d;
	err = -soft_post_all_held(q, wr, n);
	q->dc->to = NULL;
	if (unlikely(d->state == DC_DEST_NEW))
		soft_ask_service(q->s, q->idx);
	soft_unlock(&q->lock);
	return err;
}
