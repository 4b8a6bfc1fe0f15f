/* SPDX-License-Identifier: MIT */
/*
 * dest.c - where the messages of a UD QP go: destinations, found by the control
 * thread while messages wait in copies, in order for each destination; no
 * destination holds up another.
 *
 * Those used last are remembered; older ones, for which nothing is kept and
 * nobody dials, the control thread forgets. If there was no such QP, messages
 * to it are dropped for a moment; then the control thread looks again.
 */
#include "dev/soft/ud/mcast.h"
#include "dev/soft/ud/ud.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#define AGAIN_NS 20000000ull	/* between two looks for nobody */
#define RETRY_NS 20000000ull	/* for a lost question or answer */
#define LINGER_NS 2000000000ull /* before a QP goes */

static struct ud_dest **bucket(struct soft_qp *q, uint32_t qpn)
{
	return &q->ud->dests[(qpn ^ qpn >> 12) % UD_DESTS];
}

static void kept_free(struct soft_qp *q, struct ud_dest *d)
{
	struct ud_kept *k;

	while ((k = d->kept)) {
		d->kept = k->next;
		env_free(q->s->env, k);
	}
	d->kept_end = &d->kept;
	d->n_kept = 0;
}

static void busy_add(struct soft_qp *q, struct ud_dest *d)
{
	if (list_linked(&d->busy))
		return;
	list_add_tail(&q->ud->busy, &d->busy);
	atomic_fetch_add(&q->ud->waits, 1);
	atomic_fetch_add(&q->s->ud_waits, 1);
}

static void busy_del(struct soft_qp *q, struct ud_dest *d)
{
	if (!list_linked(&d->busy))
		return;
	list_del(&d->busy);
	atomic_fetch_sub(&q->ud->waits, 1);
	atomic_fetch_sub(&q->s->ud_waits, 1);
}

static void look_for(struct soft_qp *q, struct ud_dest *d)
{
	d->state = UD_DEST_NEW;
	busy_add(q, d);
	soft_ask_service(q->s, q->idx);
}

static struct ud_dest *dest_new(struct soft_qp *q, uint32_t qpn)
{
	struct ud_dest *d;

	/* As many again may be looked for at once: those are not trimmed. */
	if (q->ud->n_dests == 2 * UD_DEST_MAX)
		return NULL;
	d = env_alloc(q->s->env, sizeof(*d));
	if (!d)
		return NULL;
	d->qpn = qpn;
	d->kept_end = &d->kept;
	list_add_tail(&q->ud->age, &d->age);
	q->ud->n_dests++;
	d->next = *bucket(q, qpn);
	*bucket(q, qpn) = d;
	look_for(q, d);
	return d;
}

static struct ud_dest *dest_find(struct soft_qp *q, uint32_t qpn)
{
	struct ud_dest *d = *bucket(q, qpn);

	while (d && d->qpn != qpn)
		d = d->next;
	return d;
}

struct ud_dest *soft_ud_dest(struct soft_qp *q, uint32_t qpn)
{
	struct ud_dest *d = q->ud->last;

	if (unlikely(!d || d->qpn != qpn)) {
		d = dest_find(q, qpn);
		if (unlikely(!d))
			d = dest_new(q, qpn);
		if (unlikely(!d))
			return NULL;
		list_del(&d->age);
		list_add_tail(&q->ud->age, &d->age);
	}
	if (unlikely(d->state == UD_DEST_NOBODY) &&
	    env_now_ns(q->s->env) >= d->again_ns)
		look_for(q, d);
	q->ud->last = d;
	return d;
}

/* soft.lock is held. */
static void bell_drop(struct soft_qp *q, struct ud_dest *d)
{
	if (!d->bell)
		return;
	if (q->harsh)
		soft_harsh_hush(q); /* a count may be owed by it */
	soft_bell_put(q->s, d->bell);
	d->bell = NULL;
}

static void dest_free(struct soft_qp *q, struct ud_dest *d)
{
	struct ud_dest **at = bucket(q, d->qpn);

	while (*at != d)
		at = &(*at)->next;
	*at = d->next;
	list_del(&d->age);
	q->ud->n_dests--;
	if (q->ud->last == d)
		q->ud->last = NULL;
	kept_free(q, d);
	busy_del(q, d);
	bell_drop(q, d);
	if (d->peer)
		soft_peer_put(q->s, d->peer);
	env_free(q->s->env, d);
}

/* soft.lock is held: a peer may go with its last destination. */
static void trim(struct soft_qp *q)
{
	struct list_node *n, *next;
	struct ud_dest *d;

	for (n = q->ud->age.next;
	     n != &q->ud->age && q->ud->n_dests > UD_DEST_MAX; n = next) {
		next = n->next;
		d = container_of(n, struct ud_dest, age);
		if (!list_linked(&d->busy))
			dest_free(q, d);
	}
}

static struct ud_kept *kept_new(struct soft_qp *q, const struct ud_msg *m)
{
	struct ud_kept *k = env_alloc(q->s->env, sizeof(*k) + m->len);
	unsigned char *at;
	int i;

	if (!k)
		return NULL;
	at = k->data;
	for (i = 0; i < m->num_sge; i++) {
		memcpy(at, soft_ptr(m->sge[i].addr), m->sge[i].length);
		at += m->sge[i].length;
	}
	k->m = *m;
	k->sge = (struct ibv_sge){.addr = (uintptr_t)k->data, .length = m->len};
	k->m.sge = &k->sge;
	k->m.num_sge = 1;
	return k;
}

void soft_ud_keep(struct soft_qp *q, struct ud_dest *d, const struct ud_msg *m)
{
	struct ud_kept *k;

	if (d->n_kept == UD_WAITING)
		return;
	k = kept_new(q, m);
	if (!k)
		return;
	*d->kept_end = k;
	d->kept_end = &k->next;
	if (d->n_kept++)
		return;
	busy_add(q, d);
	/* The control thread sleeps until a deadline that may be too late
	 * now. */
	soft_kick(q->s);
}

void soft_ud_to(struct soft_qp *q, uint32_t qpn, const struct ud_msg *m)
{
	struct ud_dest *d = soft_ud_dest(q, qpn);
	int r = -EAGAIN;

	if (!d || d->state == UD_DEST_NOBODY)
		return; /* no memory: lost on the way */
	/* In order: behind what is kept. */
	if (likely(d->state == UD_DEST_READY && !d->kept))
		r = soft_ud_deliver(q, d, m);
	if (r == -EAGAIN)
		soft_ud_keep(q, d, m);
	else if (r == -ENOENT)
		soft_ud_nobody(q, d);
}

void soft_ud_cast(struct soft_qp *q, const union ibv_gid *gid,
		  const struct ud_msg *m)
{
	struct soft_ud *u = q->ud;
	struct ud_kept *k;

	if (u->n_cast == UD_WAITING)
		return;
	k = kept_new(q, m);
	if (!k)
		return;
	k->gid = *gid;
	*u->cast_end = k;
	u->cast_end = &k->next;
	if (u->n_cast++)
		return;
	atomic_fetch_add(&u->waits, 1);
	atomic_fetch_add(&q->s->ud_waits, 1);
	soft_ask_service(q->s, q->idx);
}

static void cast_free(struct soft_qp *q)
{
	struct soft_ud *u = q->ud;
	struct ud_kept *k;

	if (!u->n_cast)
		return;
	while ((k = u->cast)) {
		u->cast = k->next;
		env_free(q->s->env, k);
	}
	u->cast_end = &u->cast;
	u->n_cast = 0;
	atomic_fetch_sub(&u->waits, 1);
	atomic_fetch_sub(&q->s->ud_waits, 1);
}

/* One read of the list of members, for all messages that wait: the read is
 * later than each of their posts. */
static void cast_out(struct soft_qp *q)
{
	struct soft_member *m = NULL;
	struct ud_kept *k;
	uint32_t n = 0, i;

	if (!q->ud->n_cast)
		return;
	if (!soft_members(q->s, &m, &n))
		for (k = q->ud->cast; k; k = k->next)
			for (i = 0; i < n; i++)
				if (!memcmp(&m[i].gid, &k->gid, sizeof(k->gid)))
					soft_ud_to(q, m[i].qpn, &k->m);
	env_free(q->s->env, m);
	cast_free(q);
}

void soft_ud_nobody(struct soft_qp *q, struct ud_dest *d)
{
	kept_free(q, d);
	busy_del(q, d);
	d->state = UD_DEST_NOBODY;
	d->gate_ok = 0;
	d->again_ns = env_now_ns(q->s->env) + AGAIN_NS;
}

/* What is kept, as far as it goes. */
static void push(struct soft_qp *q, struct ud_dest *d)
{
	struct ud_kept *k;
	int r;

	while (d->state == UD_DEST_READY && (k = d->kept)) {
		r = soft_ud_deliver(q, d, &k->m);
		if (r == -EAGAIN)
			return;
		if (r == -ENOENT) {
			soft_ud_nobody(q, d);
			return;
		}
		d->kept = k->next;
		if (!d->kept)
			d->kept_end = &d->kept;
		d->n_kept--;
		env_free(q->s->env, k);
	}
	if (d->state == UD_DEST_READY)
		busy_del(q, d);
}

void soft_ud_service(struct soft_qp *q)
{
	struct list_node *n, *next;
	struct ud_dest *d;

	cast_out(q);
	for (n = q->ud->busy.next; n != &q->ud->busy; n = next) {
		next = n->next;
		d = container_of(n, struct ud_dest, busy);
		if (d->state == UD_DEST_NEW) {
			d->state = UD_DEST_DIALS;
			soft_dial(q->s, d->qpn);
		}
		push(q, d);
	}
	trim(q);
}

uint64_t soft_ud_timer(struct soft_qp *q, uint64_t now)
{
	struct list_node *n;
	struct ud_dest *d;

	for (n = q->ud->busy.next; n != &q->ud->busy; n = n->next) {
		d = container_of(n, struct ud_dest, busy);
		/* a question, or its answer, may have been lost */
		atomic_store(&d->asked_for, 0);
	}
	soft_ud_service(q);
	return atomic_load(&q->ud->waits) ? now + RETRY_NS : ENV_NEVER;
}

/* Every destination of q, for loops that may change it. */
#define each_dest(q, n, tmp, d)                                              \
	for ((n) = (q)->ud->age.next;                                        \
	     (n) != &(q)->ud->age &&                                         \
	     ((tmp) = (n)->next, (d) = container_of(n, struct ud_dest, age), \
	     true);                                                          \
	     (n) = (tmp))

void soft_ud_bereft(struct soft_qp *q, struct soft_peer *p)
{
	struct list_node *n, *tmp;
	struct ud_dest *d;

	each_dest(q, n, tmp, d)
	{
		if (d->peer != p)
			continue;
		if (d->state == UD_DEST_READY)
			soft_ud_nobody(q, d);
		bell_drop(q, d);
		d->peer = NULL;
		soft_peer_put(q->s, p);
	}
}

void soft_ud_unreached(struct soft_qp *q, struct soft_peer *p)
{
	struct list_node *n, *tmp;
	struct ud_dest *d;

	each_dest(q, n, tmp, d)
	{
		if (d->peer != p || d->state != UD_DEST_READY)
			continue;
		kept_free(q, d);
		busy_del(q, d);
	}
}

void soft_ud_forget(struct soft_qp *q, struct soft_peer *p, uint32_t key)
{
	struct list_node *n, *tmp;
	struct ud_dest *d;
	unsigned j;

	each_dest(q, n, tmp, d)
	{
		if (d->peer != p)
			continue;
		for (j = 0; j < UD_XLATS; j++)
			if (d->xlat[j].key == key)
				d->xlat[j].live = NULL;
	}
}

void soft_ud_tidy(struct soft_qp *q, struct soft_peer *p)
{
	struct list_node *n, *tmp;
	struct ud_dest *d;

	each_dest(q, n, tmp, d)
	{
		if (d->peer != p || !d->bell || list_linked(&d->busy))
			continue;
		/* The same test as in gate_check(), with the same acquire. */
		if (d->state == UD_DEST_NOBODY ||
		    atomic_load_explicit(&d->far->gate, memory_order_acquire) &
			    SHM_GATE_DEAD ||
		    shm_once(d->far->qpn) != d->qpn)
			dest_free(q, d);
	}
}

void soft_ud_drop(struct soft_qp *q)
{
	cast_free(q);
	while (!list_empty(&q->ud->age))
		dest_free(q,
			  container_of(q->ud->age.next, struct ud_dest, age));
}

void soft_ud_linger(struct soft_qp *q)
{
	uint64_t end = env_now_ns(q->s->env) + LINGER_NS;
	struct timespec nap = {.tv_nsec = 50000};

	while (atomic_load(&q->ud->waits) && env_now_ns(q->s->env) < end)
		nanosleep(&nap, NULL);
}

void soft_ud_met(struct soft_qp *q, uint32_t qpn, struct soft_peer *peer,
		 uint64_t area, struct soft_bell *bell)
{
	struct ud_dest *d = dest_find(q, qpn);

	if (!d || d->state != UD_DEST_DIALS)
		return;
	if (!peer || !area) {
		soft_ud_nobody(q, d);
		return;
	}
	soft_bell_get(bell);
	bell_drop(q, d);
	if (d->peer)
		soft_peer_put(q->s, d->peer);
	peer->refs++;
	d->peer = peer;
	d->far = (struct shm_qp *)(void *)(peer->base + area);
	d->bell = bell;
	d->gate_ok = 0;
	atomic_store(&d->asked_for, 0);
	d->state = UD_DEST_READY;
	push(q, d);
	trim(q);
}
