/* SPDX-License-Identifier: MIT */
/*
 * qp.c - QPs are created, asked and destroyed. A QP's index in its block is
 * used again as late as possible; its area in the NIC file keeps its epoch.
 */
#include "dev/soft/dc/dc.h"
#include "dev/soft/link/state.h"
#include "dev/soft/mw.h"
#include "dev/soft/ud/ud.h"

#include "base/fence.h"
#include "base/pow2.h"
#include "dev/soft/qp/wr.h"

#include <errno.h>
#include <string.h>

static int check_caps(struct ibv_pd *pd, const struct ibv_qp_init_attr *a)
{
	if (a->srq && soft_pd_of(a->srq->pd) != soft_pd_of(pd))
		return -EINVAL;
	if (!a->send_cq || !a->recv_cq || a->cap.max_send_wr > SOFT_WR_MAX ||
	    a->cap.max_recv_wr > SOFT_WR_MAX ||
	    a->cap.max_send_sge > SOFT_SGE_MAX ||
	    a->cap.max_recv_sge > SOFT_SGE_MAX ||
	    a->cap.max_inline_data > SOFT_INLINE_MAX)
		return -EINVAL;
	return 0;
}

/* s->lock held. */
static int qp_index(struct soft *s, uint32_t *idx)
{
	uint32_t n, i, err;

	/* Half of the block empty, so that a number rests before it returns */
	if (s->n_qps + 1 > s->n_blocks * (SHM_BLOCK_QPS / 2)) {
		err = (uint32_t)soft_block_new(s);
		if (err && s->n_qps == s->n_blocks * SHM_BLOCK_QPS)
			return -ENOMEM;
	}
	for (n = 0; n < s->n_blocks * SHM_BLOCK_QPS; n++) {
		i = s->qp_next++ % (s->n_blocks * SHM_BLOCK_QPS);
		if (!s->qps[i]) {
			*idx = i;
			return 0;
		}
	}
	return -ENOMEM;
}

static void qp_layout(struct soft_qp *q, const struct ibv_qp_cap *cap,
		      enum ibv_qp_type type)
{
	size_t stride;

	q->sq_max = cap->max_send_wr;
	q->sge_max = cap->max_send_sge;
	q->inline_max = cap->max_inline_data;
	q->rq_slots = q->srq || !cap->max_recv_wr
			      ? 0
			      : pow2_at_least(cap->max_recv_wr);
	q->rq_mask = q->rq_slots - 1;
	q->rq_sges = q->srq ? 0 : cap->max_recv_sge;
	/* whole lines: a slot is one peer's to write, one owner's to read */
	stride = sizeof(struct shm_slot) + q->rq_sges * sizeof(struct shm_sge);
	q->rq_stride = (uint32_t)((stride + SHM_LINE - 1) & ~(SHM_LINE - 1ul));
	q->area_len =
		sizeof(struct shm_qp) + (size_t)q->rq_slots * q->rq_stride;
	if (q->srq && type != IBV_QPT_UD &&
	    type != IBV_QPT_DRIVER) /* the order ring */
		q->area_len += q->srq->c.slots * sizeof(uint32_t);
}

static void area_init(struct soft_qp *q)
{
	struct shm_qp *a = q->self;
	uint32_t i;

	/* A peer of the QP that was here before may read them now. */
	shm_set(a->qpn, q->ex.qp_base.qp_num);
	shm_set(a->idx, q->idx);
	shm_set(a->pd, q->pd->id);
	shm_set(a->type, q->ex.qp_base.qp_type);
	/* goes on from that QP */
	q->conn = shm_once(a->conn) + 1;
	shm_set(a->conn, q->conn);
	q->srq_id = shm_srq_id(q->area_off, q->conn);
	shm_set(a->bell, q->init.recv_cq->channel
				 ? container_of(q->init.recv_cq->channel,
						struct soft_chan, ch)
					   ->id
				 : 0);
	shm_set(a->srq_off,
		q->srq ? (uint32_t)(q->srq->area_off / SHM_PAGE) : 0);
	shm_set(a->dest_qpn, 0);
	shm_set(a->dest_nic, 0);
	shm_set(a->dest_conn, 0);
	shm_set(a->rq_slots, q->rq_slots);
	shm_set(a->rq_stride, q->rq_stride);
	shm_set(a->inside_off, 0);
	q->hazard = atomic_load(&a->hazard);
	q->inside = &a->hazard;
	atomic_store(&a->parked, 0);
	atomic_store(&a->fault, SHM_FAULT_NONE);
	atomic_store(&a->met, 0);
	atomic_store(&a->groups, 0);
	for (i = 0; i < q->rq_slots; i++)
		atomic_store(&soft_slot(q, i)->word, SHM_SLOT_FREE);
	if (q->srq && !q->ud)
		memset(a->slots, 0, q->area_len - sizeof(*a));
	soft_qp_gate(q);
}

static uint64_t cq_load(const struct soft_qp *q, bool send)
{
	if (send)
		return q->sq_max;
	/* Several QPs may share the SRQ: then the sum is more than there can
	 * be, and the CQ looks for an overflow in vain. */
	return q->srq ? q->srq->c.slots : q->rq_slots;
}

static void cq_use(struct soft_cq *c, struct soft_qp *q, bool send, int by)
{
	c->qps += (uint32_t)by;
	/* relaxed: the QP's user synchronises with the thread that makes it
	 * before the first completion, and with the thread that destroys it
	 * after the last */
	atomic_fetch_add_explicit(&c->load,
				  (uint64_t)((int64_t)cq_load(q, send) * by),
				  memory_order_relaxed);
	if (by > 0 && !(q->flags & DEV_QP_SINGLE_THREADED))
		soft_lock_share(&c->lock);
}

/* s->lock held. */
static int qp_place(struct soft *s, struct soft_qp *q)
{
	struct soft_cq *scq = soft_cq_of(q->init.send_cq);
	struct soft_cq *rcq = soft_cq_of(q->init.recv_cq);
	int err;

	err = qp_index(s, &q->idx);
	if (err)
		return err;
	err = s->harsh ? soft_harsh_qp_new(q) : 0;
	if (err)
		return err;
	err = soft_arena_alloc(s, SOFT_ARENA_QP, q->area_len, &q->area_off);
	if (err)
		return err;
	q->self = (struct shm_qp *)(void *)(s->base + q->area_off);
	q->ex.qp_base.qp_num =
		s->blocks[q->idx / SHM_BLOCK_QPS] * SHM_BLOCK_QPS +
		q->idx % SHM_BLOCK_QPS;
	area_init(q);
	err = q->ud ? soft_ud_place(s, q) : 0;
	if (err)
		goto err_area;
	err = soft_cq_attach_recv(rcq, q);
	if (err)
		goto err_claims;
	cq_use(scq, q, true, 1);
	cq_use(rcq, q, false, 1);
	soft_pd_get(q->ex.qp_base.pd);
	if (q->srq)
		q->srq->qps++;
	s->qps[q->idx] = q;
	/* release: a peer that sees the place also sees the area's fields */
	atomic_store_explicit(&s->nic->place[q->idx],
			      (uint32_t)(q->area_off / SHM_PAGE),
			      memory_order_release);
	s->n_qps++;
	s->n_uds += q->ud != NULL;
	return 0;

err_claims:
	if (q->ud)
		soft_ud_unplace(s, q, false);
err_area:
	soft_arena_free(s, SOFT_ARENA_QP, q->area_len, q->area_off);
	return err;
}

/* modify.c makes them biased, and young again. */
static void locks_init(struct soft_qp *q)
{
	if (q->flags & SOFT_SERIALISED) {
		soft_lock_init_young(&q->lock);
		soft_lock_init_young(&q->rq_lock);
		return;
	}
	soft_lock_init(&q->lock, false);
	soft_lock_init(&q->rq_lock, false);
}

static void qp_base_init(struct soft *s, struct soft_qp *q, struct ibv_pd *pd,
			 const struct ibv_qp_init_attr *a)
{
	struct ibv_qp *qp = &q->ex.qp_base;

	qp->context = &s->vctx.context;
	qp->qp_context = a->qp_context;
	qp->pd = pd;
	qp->send_cq = a->send_cq;
	qp->recv_cq = a->recv_cq;
	qp->srq = a->srq;
	qp->state = IBV_QPS_RESET;
	qp->qp_type = a->qp_type;
	pthread_mutex_init(&qp->mutex, NULL);
	pthread_cond_init(&qp->cond, NULL);
}

#define OP(op) (1u << IBV_WR_##op)
#define OPS_UD (OP(SEND) | OP(SEND_WITH_IMM))
#define OPS_DC                                                               \
	(OPS_UD | OP(RDMA_WRITE) | OP(RDMA_WRITE_WITH_IMM) | OP(RDMA_READ) | \
	 OP(ATOMIC_CMP_AND_SWP) | OP(ATOMIC_FETCH_AND_ADD))
#define OPS_UC                                                               \
	(OPS_UD | OP(RDMA_WRITE) | OP(RDMA_WRITE_WITH_IMM) | OP(LOCAL_INV) | \
	 OP(BIND_MW))
#define OPS_RC (OPS_DC | OP(LOCAL_INV) | OP(BIND_MW) | OP(SEND_WITH_INV))

static uint32_t ops_of(enum ibv_qp_type type)
{
	switch (type) {
	case IBV_QPT_RC:
		return OPS_RC;
	case IBV_QPT_UC:
		return OPS_UC;
	case IBV_QPT_UD:
		return OPS_UD;
	default:
		return OPS_DC;
	}
}

/* What its transport has more. */
static int kind_new(struct soft_qp *q)
{
	enum ibv_qp_type type = q->init.qp_type;

	if (type == IBV_QPT_UD || (type == IBV_QPT_DRIVER && q->srq))
		return soft_ud_new(q);
	if (type != IBV_QPT_DRIVER)
		return 0;
	q->dc = env_alloc(q->s->env, sizeof(*q->dc));
	if (!q->dc)
		return -ENOMEM;
	list_init(&q->dc->age);
	return 0;
}

static void kind_free(struct soft_qp *q)
{
	soft_ud_free(q);
	env_free(q->s->env, q->dc);
}

int soft_qp_make(struct soft *s, struct ibv_pd *pd,
		 struct ibv_qp_init_attr *attr, unsigned flags,
		 struct soft_qp **qp)
{
	struct soft_qp *q;
	int err;

	err = check_caps(pd, attr);
	if (err)
		return err;
	q = env_alloc_aligned(s->env, SHM_LINE, sizeof(*q));
	if (!q)
		return -ENOMEM;
	q->s = s;
	q->pd = soft_pd_of(pd);
	/* In harsh mode more than one thread works for it. */
	q->flags = s->harsh ? flags & ~SOFT_SERIALISED : flags;
	q->srq = attr->srq ? soft_srq_of(attr->srq) : NULL;
	q->sig_all = attr->sq_sig_all;
	q->unreliable =
		attr->qp_type == IBV_QPT_UC || attr->qp_type == IBV_QPT_UD;
	q->ops = ops_of(attr->qp_type);
	q->far_bell = -1;
	q->parked_end = &q->parked;
	locks_init(q);
	qp_layout(q, &attr->cap, attr->qp_type);
	q->rq_wr_id = env_alloc(s->env, (q->rq_slots + 1) * (sizeof(uint64_t) +
							     sizeof(uint32_t)));
	if (!q->rq_wr_id) {
		err = -ENOMEM;
		goto err_qp;
	}
	q->rq_len = (uint32_t *)(q->rq_wr_id + q->rq_slots + 1);
	attr->cap.max_recv_wr = q->rq_slots;
	q->init = *attr;
	err = kind_new(q);
	if (err)
		goto err_ids;
	qp_base_init(s, q, pd, attr);
	pthread_mutex_lock(&s->lock);
	err = qp_place(s, q);
	if (err && q->harsh)
		soft_harsh_qp_free(q);
	pthread_mutex_unlock(&s->lock);
	if (err)
		goto err_kind;
	*qp = q;
	return 0;

err_kind:
	kind_free(q);
err_ids:
	env_free(s->env, q->rq_wr_id);
err_qp:
	env_free(s->env, q);
	return err;
}

int soft_create_qp(struct dev *dev, struct ibv_pd *pd,
		   struct ibv_qp_init_attr *attr, unsigned flags,
		   struct ibv_qp **qp)
{
	struct soft *s = soft_of_dev(dev);
	struct soft_qp *q;
	int err;

	if (!soft_here(s))
		return -EPERM;
	if (attr->qp_type != IBV_QPT_RC && attr->qp_type != IBV_QPT_UC &&
	    attr->qp_type != IBV_QPT_UD)
		return -EOPNOTSUPP;
	err = soft_qp_make(s, pd, attr, flags, &q);
	if (!err)
		*qp = &q->ex.qp_base;
	return err;
}

/* s->lock held; the peer has left. */
static void qp_unplace(struct soft *s, struct soft_qp *q, bool keep_area)
{
	struct soft_cq *scq = soft_cq_of(q->init.send_cq);
	struct soft_cq *rcq = soft_cq_of(q->init.recv_cq);

	s->qps[q->idx] = NULL;
	s->n_qps--;
	if (atomic_load(&q->quiesce_due))
		atomic_fetch_sub(&s->quiesce_qps, 1);
	if (q->srq) {
		/* A peer that stopped inside keeps its receive. */
		if (!keep_area && !q->ud)
			soft_order_sweep(q);
		q->srq->given_up |= keep_area;
		q->srq->qps--;
	}
	soft_mw_leave(s, q);
	soft_cq_detach(scq, rcq, q);
	cq_use(scq, q, true, -1);
	cq_use(rcq, q, false, -1);
	if (q->harsh)
		soft_harsh_qp_free(q);
	soft_reach_drop(q);
	soft_bell_put(s, q->bell);
	if (q->peer)
		soft_peer_put(s, q->peer);
	if (q->ud) {
		s->n_uds--;
		soft_ud_drop(q);
		soft_ud_unplace(s, q, keep_area);
	}
	/* An area that a stopped poster may still write to is given up. */
	if (!keep_area)
		soft_arena_free(s, SOFT_ARENA_QP, q->area_len, q->area_off);
	soft_pd_put(q->ex.qp_base.pd);
}

int soft_destroy_qp(struct dev *dev, struct ibv_qp *qp)
{
	struct soft *s = soft_of_dev(dev);
	struct soft_qp *q = soft_qp_of(qp);
	bool was_left;
	int busy = 0;

	if (!soft_here(s))
		return -EPERM;
	if (q->ud)
		soft_ud_linger(q);
	pthread_mutex_lock(&s->lock);
	if (q->ud && !list_empty(&q->ud->groups)) {
		pthread_mutex_unlock(&s->lock);
		return -EBUSY;
	}
	q->dying = true;
	atomic_store(&s->nic->place[q->idx], 0);
	/* Before the area is another's: pairs with the fence in known.c. */
	fence_release();
	soft_qp_hold(q);
	was_left = soft_qp_is_left(q);
	soft_link_ack(q);
	soft_drop_parked(q);
	soft_link_leave(q);
	if (q->dc)
		soft_dci_free(q);
	__atomic_store_n(&qp->state, IBV_QPS_ERR, __ATOMIC_RELEASE);
	q->direct = false;
	soft_qp_gate(q);
	if (q->ud)
		soft_ud_shut(q);
	soft_qp_release(q);
	pthread_mutex_unlock(&s->lock);
	/* A peer with something parked for us must learn it. */
	if (q->far && atomic_load(&q->far->parked))
		soft_ring(q);
	if (!was_left) {
		soft_barrier();
		busy = soft_quiesce(q);
	}
	pthread_mutex_lock(&s->lock);
	qp_unplace(s, q, busy);
	pthread_mutex_unlock(&s->lock);
	soft_async_forget(s, q, &q->async_events);
	pthread_mutex_destroy(&qp->mutex);
	pthread_cond_destroy(&qp->cond);
	soft_wrs_free(q);
	soft_mw_wait_free(q);
	kind_free(q);
	env_free(s->env, q->rq_wr_id);
	env_free(s->env, q);
	return 0;
}

int soft_query_qp(struct dev *dev, struct ibv_qp *qp, struct ibv_qp_attr *attr,
		  int mask, struct ibv_qp_init_attr *init)
{
	struct soft_qp *q = soft_qp_of(qp);

	if (!soft_here(q->s))
		return -EPERM;
	pthread_mutex_lock(&qp->mutex);
	soft_qp_hold(q);
	*attr = q->attr;
	attr->qp_state = attr->cur_qp_state = soft_qp_state(q);
	attr->cap = q->init.cap;
	attr->sq_draining = attr->qp_state == IBV_QPS_SQD && soft_sqd_busy(q);
	if (init)
		*init = q->init;
	soft_qp_release(q);
	pthread_mutex_unlock(&qp->mutex);
	return 0;
}

int soft_quiesce_qp(struct dev *dev, struct ibv_qp *qp)
{
	struct soft_qp *q = soft_qp_of(qp);

	bool was_left;

	if (!soft_here(q->s))
		return -EPERM;
	soft_qp_hold(q);
	was_left = soft_qp_is_left(q);
	soft_qp_release(q);
	if (was_left)
		return 0;
	soft_barrier();
	return soft_quiesce(q);
}

int soft_probe(struct dev *dev, struct ibv_qp *qp)
{
	struct soft_qp *q = soft_qp_of(qp);

	if (!soft_here(q->s))
		return -EPERM;
	if (q->harsh || q->link)
		return -EOPNOTSUPP; /* no NIC knows */
	if (!q->peer)
		return -ENOTCONN;
	return soft_life(q->peer->nic) ? 0 : -ENOTCONN;
}

void soft_qp_caps(const struct dev *dev, struct ibv_qp *qp,
		  struct dev_caps *caps)
{
	if (qp && !soft_qp_of(qp)->link)
		return;
	/* A READ's answers that were lost or late are read again: so older
	 * bytes may come after newer ones. */
	caps->ordered_read = false;
	caps->death_notice = false;
	caps->poster_copies = false;
	caps->dc = false;
	caps->timeout = SOFT_LINK_TIMEOUT;
}

/* A QP's link and its carrier change under soft.lock. */
const char *soft_qp_link(struct ibv_qp *qp)
{
	struct soft_qp *q = soft_qp_of(qp);
	const char *name;

	pthread_mutex_lock(&q->s->lock);
	if (!q->link)
		name = "shared memory";
	else
		name = q->link->conn ? "tcp" : "udp";
	pthread_mutex_unlock(&q->s->lock);
	return name;
}
