/* SPDX-License-Identifier: MIT */
/*
 * mw.c - see mw.h.
 *
 * A window is an entry of the table of regions (shm.h) for as long as it is
 * there. Its keys have the entry's index; the low byte is another one with each
 * bind. Whether it is bound is what its entry's life says: nothing else is kept,
 * so the peer of its QP can end it (SEND_WITH_INV).
 *
 * A bind writes the entry under the lock of the QP that it was posted to, without
 * soft.lock. Readers read its life before and after (soft_entry_read()). From its
 * look at region and window until the entry is written it holds bind_lock; with
 * that a region ends (its life is cleared) if no window is bound to it, and a
 * window leaves soft.mrs. So either the bind finds them gone, or their end finds
 * the bind: a region that has a life, seen with bind_lock, is there, and stays
 * until the lock is given back.
 *
 * An invalidation clears the life, makes a barrier (quiesce.c), notes the hazards
 * of all that may be inside, and is over when each of them has changed. Copies
 * that this process makes for others are not covered by hazards: those of the
 * link and of messages are made under soft.lock and, for a window of type 2,
 * with its QP held. So type 2 is looked at with q->lock, type 1 with soft.lock.
 */
#include "dev/soft/mw.h"

#include "base/fence.h"
#include "dev/soft/dc/dc.h"
#include "env/membarrier.h"

#include <errno.h>
#include <string.h>

#define LOW 0xffu
/* For a process that has stopped inside: as dereg_mr(). */
#define PATIENCE_NS 1000000000ull
#define REMOTE_CHANGE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)
/* LOCAL_WRITE says nothing here: programs give it as they do for regions. */
#define RIGHTS                                              \
	(unsigned)(REMOTE_CHANGE | IBV_ACCESS_REMOTE_READ | \
		   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED)

struct soft_mw {
	struct ibv_mw mw;
	struct soft_mr place; /* in soft.mrs */
	struct list_node link;
	uint32_t key; /* its keys without their low byte */
};

/* One that was inside: of a QP's peer, or of a DC target's table. */
struct inside {
	uint32_t idx;	 /* of the QP; from SHM_QP_MAX on: of the table */
	uint32_t hazard; /* odd */
	const struct shm_qp *far; /* compared only: the QP has this peer still */
};

/* An invalidation that waits; q->lock. */
struct soft_mw_wait {
	uint32_t pos; /* of its request in the send queue */
	bool all;     /* anybody may be inside; else the peer of the QP */
	bool fenced;
	bool noted; /* those inside */
	bool quiet; /* they have left */
	uint64_t since_ns;
	uint64_t settled_ns;
	uint32_t n, cap;
	struct inside *in;
};

static struct soft_mw *mw_of(struct ibv_mw *mw)
{
	return container_of(mw, struct soft_mw, mw);
}

static struct soft_mw *mw_find(const struct soft *s, uint32_t key)
{
	struct soft_mr *m = s->mrs[key >> 16];
	struct soft_mw *w;

	if (!m || !m->window)
		return NULL;
	w = container_of(m, struct soft_mw, place);
	return w->key == (key & ~LOW) ? w : NULL;
}

static struct shm_mr *entry_of(const struct soft *s, uint32_t key)
{
	return &s->mr_table[key >> 16];
}

/* acquire: the fields that are read next are of this bind, or a later one */
static bool is_bound(const struct shm_mr *e)
{
	return atomic_load_explicit(&e->life, memory_order_acquire) != 0;
}

static void shut(struct shm_mr *e)
{
	/* release: as all that clear a life; soft_barrier() comes next */
	atomic_store_explicit(&e->life, 0, memory_order_release);
}

/* A key that no window had before, nor will have a region after it. */
static int place_take(struct soft *s, struct soft_mw *w)
{
	uint32_t key;
	int err;

	pthread_mutex_lock(&s->lock);
	do
		err = soft_key_new(s, &key);
	while (!err && !(key & 0xff00)); /* with any low byte it is a key */
	if (!err) {
		w->key = key & ~LOW;
		w->mw.rkey = key;
		w->mw.handle = key >> 16;
		s->mrs[key >> 16] = &w->place;
		s->n_mrs++;
		list_add_tail(&s->mws, &w->link);
	}
	pthread_mutex_unlock(&s->lock);
	return err;
}

struct ibv_mw *soft_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct soft *s = soft_of(pd->context);
	struct soft_mw *w = NULL;
	int err = 0;

	if (!soft_here(s))
		err = -EPERM;
	else if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2)
		err = -EINVAL;
	else if (!(w = env_alloc(s->env, sizeof(*w))))
		err = -ENOMEM;
	if (!err) {
		w->mw.context = pd->context;
		w->mw.pd = pd;
		w->mw.type = type;
		w->place.window = true;
		w->place.pd = soft_pd_of(pd);
		w->place.fd = -1;
		err = place_take(s, w);
	}
	if (err) {
		env_free(s->env, w);
		errno = -err;
		return NULL;
	}
	soft_pd_get(pd);
	return &w->mw;
}

int soft_dealloc_mw(struct ibv_mw *mw)
{
	struct soft_mw *w = mw_of(mw);
	struct soft *s = soft_of(mw->context);
	int err;

	if (!soft_here(s))
		return EPERM;
	pthread_mutex_lock(&s->lock);
	pthread_mutex_lock(&s->bind_lock);
	shut(entry_of(s, w->key));
	s->mrs[w->key >> 16] = NULL; /* no bind finds it */
	pthread_mutex_unlock(&s->bind_lock);
	err = soft_quiesce_all(s);
	if (err) {
		pthread_mutex_lock(&s->bind_lock);
		s->mrs[w->key >> 16] = &w->place;
		pthread_mutex_unlock(&s->bind_lock);
	} else {
		/* Its other keys rest as long as the one it had last. */
		s->mr_gen[w->key >> 16] |= LOW;
		s->n_mrs--;
		list_del(&w->link);
	}
	pthread_mutex_unlock(&s->lock);
	if (err)
		return -err;
	soft_pd_put(mw->pd);
	env_free(s->env, w);
	return 0;
}

int soft_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *b)
{
	struct ibv_send_wr wr = {.wr_id = b->wr_id,
				 .opcode = IBV_WR_BIND_MW,
				 .send_flags = b->send_flags},
			   *bad;
	int err;

	if (b->bind_info.mw_access_flags & ~RIGHTS)
		return EINVAL;
	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	wr.bind_mw.bind_info = b->bind_info;
	err = soft_post_send(qp, &wr, &bad);
	if (!err)
		mw->rkey = wr.bind_mw.rkey;
	return err;
}

bool soft_mw_valid(const struct soft_qp *q, const struct ibv_send_wr *wr)
{
	if (!soft_is_local(wr))
		return true;
	if (wr->num_sge || wr->send_flags & IBV_SEND_INLINE)
		return false;
	return wr->opcode != IBV_WR_BIND_MW ||
	       (wr->bind_mw.mw &&
		wr->bind_mw.mw->context == q->ex.qp_base.context);
}

static uint32_t lkey_of(const struct ibv_mw_bind_info *b)
{
	return b->mr ? b->mr->lkey : 0;
}

void soft_mw_keep(struct ibv_send_wr *wr)
{
	if (wr->opcode != IBV_WR_BIND_MW)
		return;
	/* no field of a bind */
	wr->wr.rdma.remote_addr = mw_of(wr->bind_mw.mw)->key;
	wr->wr.rdma.rkey = lkey_of(&wr->bind_mw.bind_info);
	wr->bind_mw.mw = NULL;
	wr->bind_mw.bind_info.mr = NULL;
}

/* --- invalidation ------------------------------------------------------- */

void soft_mw_wait_free(struct soft_qp *q)
{
	if (!q->mw_wait)
		return;
	env_free(q->s->env, q->mw_wait->in);
	env_free(q->s->env, q->mw_wait);
	q->mw_wait = NULL;
}

static bool fenced(struct soft_qp *q, struct soft_mw_wait *v)
{
	uint64_t now;

	if (!v->fenced && soft_barrier_try())
		v->fenced = true;
	if (v->fenced)
		return true;
	/* before the clock: the life is cleared in memory, see membarrier.c */
	fence_full();
	now = env_now_ns(q->s->env);
	if (!v->settled_ns)
		v->settled_ns = now + MEMBARRIER_WAIT_NS;
	v->fenced = now >= v->settled_ns;
	return v->fenced;
}

static uint32_t hazard_of(const struct soft_qp *q)
{
	/* acquire: pairs with soft_hazard_off(): the copy is done */
	return atomic_load_explicit(&q->far->hazard, memory_order_acquire);
}

static bool note(struct soft_qp *q, struct soft_mw_wait *v, uint32_t idx,
		 uint32_t hazard, const struct shm_qp *far)
{
	struct inside *in;

	if (!(hazard & 1))
		return true;
	if (v->n == v->cap) {
		in = env_alloc(q->s->env, (v->cap + 64) * sizeof(*in));
		if (!in)
			return false;
		if (v->n)
			memcpy(in, v->in, v->n * sizeof(*in));
		env_free(q->s->env, v->in);
		v->in = in;
		v->cap += 64;
	}
	v->in[v->n++] = (struct inside){idx, hazard, far};
	return true;
}

static bool note_peer(struct soft_qp *q, struct soft_mw_wait *v,
		      struct soft_qp *o)
{
	/* A DCI's far side does not come to us, UD names no keys of windows. */
	if (!o || o->ud || o->dc || !o->far)
		return true;
	return note(q, v, o->idx, hazard_of(o), o->far);
}

static bool note_all(struct soft_qp *q, struct soft_mw_wait *v)
{
	struct soft *s = q->s;
	bool good = true;
	uint32_t i;

	for (i = 0; good && i < s->n_blocks * SHM_BLOCK_QPS; i++)
		good = note_peer(q, v, s->qps[i]);
	for (i = 0; good && s->inside && i < DC_INSIDE_MAX; i++)
		good = note(q, v, SHM_QP_MAX + i,
			    /* acquire: as in hazard_of() */
			    atomic_load_explicit(&s->inside[i].hazard,
						 memory_order_acquire),
			    NULL);
	return good;
}

/* A peer that has broken the QP copies nothing after that, though it is still
 * inside when it rings. acquire: pairs with fault() in exec.c. */
static bool has_broken(const struct soft_qp *q)
{
	return atomic_load_explicit(&q->self->fault, memory_order_acquire) !=
	       SHM_FAULT_NONE;
}

static bool has_left(const struct soft *s, const struct inside *in)
{
	const struct soft_qp *o;

	if (in->idx >= SHM_QP_MAX)
		return atomic_load_explicit(
			       &s->inside[in->idx - SHM_QP_MAX].hazard,
			       memory_order_acquire) != in->hazard;
	o = s->qps[in->idx];
	/* What destroyed the QP, or took it to RESET, waited as we do. */
	return !o || has_broken(o) || o->far != in->far ||
	       hazard_of(o) != in->hazard || soft_peer_gone(o->peer);
}

static void look(struct soft_qp *q, struct soft_mw_wait *v)
{
	uint32_t i;

	/* needs no fence: only this peer may be inside */
	v->quiet |= !v->all && has_broken(q);
	if (v->quiet || !fenced(q, v))
		return;
	if (!v->noted) {
		v->n = 0;
		v->noted = v->all ? note_all(q, v) : note_peer(q, v, q);
	}
	for (i = 0; i < v->n;)
		if (has_left(q->s, &v->in[i]))
			v->in[i] = v->in[--v->n];
		else
			i++;
	v->quiet = v->noted && !v->n;
}

void soft_mw_look(struct soft_qp *q)
{
	if (q->mw_wait)
		look(q, q->mw_wait);
}

static bool is_ours(const struct soft_qp *q, bool parked, uint32_t pos)
{
	return parked && q->mw_wait && q->mw_wait->pos == pos;
}

/* Nobody comes in any more: 0 when nobody is inside either. */
static int wait_out(struct soft_qp *q, struct shm_mr *e, bool parked,
		    uint32_t pos, bool all)
{
	if (!parked)
		return -SOFT_PARK_INV;
	if (!is_ours(q, parked, pos)) {
		soft_mw_wait_free(q); /* of a request that was flushed */
		q->mw_wait = env_alloc(q->s->env, sizeof(*q->mw_wait));
		if (!q->mw_wait)
			return -SOFT_PARK_INV; /* tried again */
		q->mw_wait->pos = pos;
		q->mw_wait->all = all;
		q->mw_wait->since_ns = env_now_ns(q->s->env);
		shut(e);
	}
	if (!all)
		look(q, q->mw_wait);
	if (!q->mw_wait->quiet)
		return env_now_ns(q->s->env) - q->mw_wait->since_ns <
				       PATIENCE_NS
			       ? -SOFT_PARK_INV
			       : IBV_WC_MW_BIND_ERR;
	soft_mw_wait_free(q);
	return 0;
}

static int inv_exec(struct soft_qp *q, uint32_t key, bool parked, uint32_t pos)
{
	struct soft_mw *w = mw_find(q->s, key);
	struct shm_mr *e = entry_of(q->s, key);
	struct soft_entry x;

	if (!w)
		return IBV_WC_MW_BIND_ERR;
	if (!is_ours(q, parked, pos) &&
	    (!soft_entry_read(e, &x) || x.key != key ||
	     x.qpn != q->ex.qp_base.qp_num))
		return IBV_WC_MW_BIND_ERR;
	return wait_out(q, e, parked, pos, false);
}

bool soft_mw_shut(struct shm_mr *e, const struct soft_dest *to, uint32_t key)
{
	struct soft_entry x;

	/* seq_cst, and before the receive completes: a program that has polled
	 * that finds the window invalid */
	return soft_entry_read(e, &x) && x.kind == SHM_MR_WINDOW &&
	       x.key == key && x.pd == to->pd && x.qpn && x.qpn == to->qpn &&
	       atomic_compare_exchange_strong(&e->life, &x.life, 0);
}

/* --- binding ------------------------------------------------------------ */

/* The region that has this key, or NULL. bind_lock held. */
static const struct soft_mr *region_of(const struct soft *s, uint32_t lkey)
{
	const struct shm_mr *e = entry_of(s, lkey);
	struct soft_entry x;

	/* acquire: pairs with mr_publish(), which has written mrs before */
	return lkey && soft_entry_read(e, &x) && x.key == lkey &&
			       x.kind != SHM_MR_WINDOW
		       ? s->mrs[lkey >> 16]
		       : NULL;
}

/* IBA 10.6.7.2: what of m may w show? */
static bool may_bind(const struct soft_qp *q, const struct soft_mw *w,
		     const struct soft_mr *m, const struct ibv_mw_bind_info *b)
{
	return m && m->pd == w->place.pd && q->pd == w->place.pd &&
	       m->access & IBV_ACCESS_MW_BIND &&
	       (!(b->mw_access_flags & REMOTE_CHANGE) ||
		m->access & IBV_ACCESS_LOCAL_WRITE) &&
	       b->addr >= m->start && b->length <= m->mr.length &&
	       b->addr - m->start <= m->mr.length - b->length;
}

static void publish(struct soft_qp *q, const struct soft_mw *w,
		    const struct soft_mr *m, const struct ibv_mw_bind_info *b,
		    uint32_t key)
{
	struct shm_mr *e = entry_of(q->s, key);
	bool from_0 = b->mw_access_flags & IBV_ACCESS_ZERO_BASED;

	/* Pairs with the fence in soft_entry_read(): a reader of one of the
	 * fields below then reads a life that is not the one before. */
	fence_release();
	shm_set(e->key, key);
	shm_set(e->access, b->mw_access_flags & RIGHTS &
				   ~(unsigned)IBV_ACCESS_LOCAL_WRITE);
	shm_set(e->pd, w->place.pd->id);
	shm_set(e->kind, SHM_MR_WINDOW);
	shm_set(e->start, from_0 ? 0 : b->addr);
	shm_set(e->at, (uintptr_t)m->mr.addr + (b->addr - m->start));
	shm_set(e->len, b->length);
	shm_set(e->off, 0);
	shm_set(e->qpn, w->mw.type == IBV_MW_TYPE_2 ? q->ex.qp_base.qp_num : 0);
	shm_set(e->of, (uint64_t)m->life << 32 | m->mr.lkey);
	/* release: as in mr_publish() */
	atomic_store_explicit(&e->life, soft_life_new(q->s),
			      memory_order_release);
}

static int bind_exec(struct soft_qp *q, const struct ibv_send_wr *wr,
		     bool parked, uint32_t pos)
{
	const struct ibv_mw_bind_info *b = &wr->bind_mw.bind_info;
	bool kept = !wr->bind_mw.mw;
	uint32_t lkey = kept ? wr->wr.rdma.rkey : lkey_of(b);
	uint32_t key = kept ? (uint32_t)wr->wr.rdma.remote_addr
			    : mw_of(wr->bind_mw.mw)->key;
	struct soft_mw *w = mw_find(q->s, key);
	const struct soft_mr *m = region_of(q->s, lkey);
	struct shm_mr *e = entry_of(q->s, key);
	int r;

	if (!w || (wr->bind_mw.rkey & ~LOW) != key ||
	    b->mw_access_flags & ~RIGHTS || q->pd != w->place.pd)
		return IBV_WC_MW_BIND_ERR;
	if (w->mw.type == IBV_MW_TYPE_2 && (!b->length || is_bound(e)))
		return IBV_WC_MW_BIND_ERR;
	if (b->length && !may_bind(q, w, m, b))
		return IBV_WC_MW_BIND_ERR;
	if (is_ours(q, parked, pos) || is_bound(e)) {
		r = wait_out(q, e, parked, pos, true);
		if (r)
			return r;
	}
	if (b->length)
		publish(q, w, m, b, wr->bind_mw.rkey);
	return 0;
}

int soft_mw_exec(struct soft_qp *q, const struct ibv_send_wr *wr, bool parked,
		 uint32_t pos)
{
	int r;

	pthread_mutex_lock(&q->s->bind_lock);
	r = wr->opcode == IBV_WR_BIND_MW
		    ? bind_exec(q, wr, parked, pos)
		    : inv_exec(q, wr->invalidate_rkey, parked, pos);
	pthread_mutex_unlock(&q->s->bind_lock);
	return r;
}

int soft_mw_flush(struct soft_qp *q, const struct ibv_send_wr *wr, uint32_t pos)
{
	if (soft_is_local(wr) && is_ours(q, true, pos) &&
	    !soft_mw_exec(q, wr, true, pos))
		return IBV_WC_SUCCESS;
	return IBV_WC_WR_FLUSH_ERR;
}

static bool is_used(const struct soft *s, uint32_t lkey)
{
	const struct shm_mr *e;
	struct list_node *n;

	for (n = s->mws.next; n != &s->mws; n = n->next) {
		e = entry_of(s, container_of(n, struct soft_mw, link)->key);
		if (is_bound(e) && (uint32_t)shm_once(e->of) == lkey)
			return true;
	}
	return false;
}

bool soft_mw_end(struct soft *s, uint32_t lkey)
{
	bool used;

	pthread_mutex_lock(&s->bind_lock);
	used = is_used(s, lkey);
	if (!used)
		shut(entry_of(s, lkey));
	pthread_mutex_unlock(&s->bind_lock);
	return !used;
}

void soft_mw_leave(struct soft *s, const struct soft_qp *q)
{
	struct list_node *n;
	struct shm_mr *e;

	for (n = s->mws.next; n != &s->mws; n = n->next) {
		e = entry_of(s, container_of(n, struct soft_mw, link)->key);
		if (is_bound(e) && shm_once(e->qpn) == q->ex.qp_base.qp_num)
			shut(e);
	}
}
