/* SPDX-License-Identifier: MIT */
/*
 * modify.c - the QP state machine: what each transition of dev/states.c does.
 * One modify_qp() at a time runs on a QP; it may wait for the peer's control
 * thread (INIT to RTR, without the answer of soft_reach_qp()), and for a poster
 * to leave (to ERR, RESET).
 */
#include "base/fence.h"
#include "dev/soft/dc/dc.h"
#include "dev/soft/link/datagram.h"
#include "dev/soft/ud/ud.h"
#include "dev/states.h"

#include <errno.h>
#include <string.h>

void soft_qp_gate(struct soft_qp *q)
{
	uint32_t was = atomic_load(&q->self->gate), gate = 0;
	unsigned right = q->attr.qp_access_flags;

	switch (soft_qp_state(q)) {
	case IBV_QPS_RTR:
		gate = SHM_GATE_ACCEPT | SHM_GATE_FIRST;
		break;
	case IBV_QPS_RTS:
	case IBV_QPS_SQD:
	case IBV_QPS_SQE:
		gate = SHM_GATE_ACCEPT;
		break;
	case IBV_QPS_ERR:
		gate = SHM_GATE_DEAD;
		break;
	default:
		break;
	}
	if (right & IBV_ACCESS_REMOTE_WRITE)
		gate |= SHM_GATE_WRITE;
	/* An end that takes none at once takes none. */
	if (q->ex.qp_base.qp_type == IBV_QPT_RC && !q->attr.max_dest_rd_atomic)
		right &= ~(unsigned)(IBV_ACCESS_REMOTE_READ |
				     IBV_ACCESS_REMOTE_ATOMIC);
	if (right & IBV_ACCESS_REMOTE_READ)
		gate |= SHM_GATE_READ;
	if (right & IBV_ACCESS_REMOTE_ATOMIC)
		gate |= SHM_GATE_ATOMIC;
	/* Nothing changes for a sender: one that has claimed a receive of a UD
	 * QP must not find the gate shut, and flush it, for RTS to RTS. */
	if (gate & SHM_GATE_ACCEPT && gate == (was & (SHM_GATE_EPOCH - 1u)) &&
	    shm_once(q->self->rnr_timer) == q->attr.min_rnr_timer &&
	    shm_once(q->self->qkey) == q->attr.qkey)
		return;
	/* The epoch lives in the area and goes on from the QP before. */
	gate |= (was & ~(SHM_GATE_EPOCH - 1u)) + SHM_GATE_EPOCH;
	/* The link's thread of this process reads them, too. A reader that
	 * still has the old gate may meet either value: the change is under
	 * way. */
	shm_set(q->self->rnr_timer, q->attr.min_rnr_timer);
	shm_set(q->self->qkey, q->attr.qkey);
	/* release: pairs with soft_gate_check(), gate_check() of ud/send.c,
	 * soft_dc_gate() and gate_of() of link/datagram.c; the area's fields
	 * are older */
	atomic_store_explicit(&q->self->gate, gate, memory_order_release);
}

static void set_state(struct soft_qp *q, enum ibv_qp_state st)
{
	__atomic_store_n(&q->ex.qp_base.state, st, __ATOMIC_RELEASE);
	q->direct = st == IBV_QPS_RTS && !q->parked && !q->ud && !q->dc &&
		    !q->harsh && !q->link;
	q->gate_ok = 0;
}

void soft_qp_begin(struct soft_qp *q, enum ibv_qp_state st)
{
	soft_qp_hold(q);
	set_state(q, st);
	soft_qp_gate(q);
	soft_qp_release(q);
}

static bool to_err(struct soft_qp *q)
{
	if (soft_qp_state(q) == IBV_QPS_ERR)
		return false;
	set_state(q, IBV_QPS_ERR);
	soft_qp_gate(q);
	if (q->ud)
		soft_ud_shut(q);
	soft_flush_parked(q);
	atomic_fetch_add(&q->s->quiesce_qps, 1);
	atomic_store(&q->quiesce_due, true);
	/* A peer with something parked for us must learn it. */
	if (q->far && atomic_load(&q->far->parked))
		soft_ring(q);
	return true;
}

void soft_qp_to_err(struct soft_qp *q)
{
	/* Its owner takes it to RESET just now: what it broke on is its last
	 * life's. */
	if (soft_qp_state(q) == IBV_QPS_RESET)
		return;
	if (to_err(q))
		soft_ask_service(q->s, q->idx);
}

bool soft_qp_is_left(struct soft_qp *q)
{
	return !q->ud && soft_qp_state(q) == IBV_QPS_ERR &&
	       !atomic_load(&q->quiesce_due);
}

void soft_qp_send_failed(struct soft_qp *q)
{
	if (!q->unreliable) {
		q->failed |= soft_qp_state(q) != IBV_QPS_ERR;
		soft_qp_to_err(q);
		return;
	}
	if (soft_qp_state(q) == IBV_QPS_ERR)
		return;
	set_state(q, IBV_QPS_SQE);
	soft_flush_parked(q);
}

/* The control path's move to ERR: when it returns 0 the peer has left. The
 * control thread is asked only if the peer has not left in time. */
static int modify_err(struct soft_qp *q)
{
	bool was_left;
	int err;

	soft_qp_hold(q);
	was_left = soft_qp_is_left(q);
	to_err(q);
	soft_qp_release(q);
	if (was_left)
		return 0;
	soft_barrier();
	err = soft_quiesce(q);
	if (err) {
		soft_ask_service(q->s, q->idx);
		return err;
	}
	pthread_mutex_lock(&q->s->lock);
	if (q->ud) /* its claims are looked at once more */
		soft_qp_service(q->s, q);
	else
		soft_qp_left(q);
	pthread_mutex_unlock(&q->s->lock);
	return 0;
}

/* All locks under which a thread reads the QP's link to its peer. */
static void link_hold(struct soft_qp *q)
{
	pthread_mutex_lock(&q->s->lock);
	soft_qp_hold(q);
	soft_lock_revoke(&q->rq_lock);
}

static int modify_reset(struct soft_qp *q)
{
	struct soft_peer *p;
	int err;

	soft_qp_hold(q);
	soft_drop_parked(q);
	set_state(q, IBV_QPS_RESET);
	soft_qp_gate(q);
	if (q->ud)
		soft_ud_shut(q);
	/* A peer that waits for a receive must learn that none comes. */
	if (q->far && atomic_load(&q->far->parked))
		soft_ring(q);
	soft_qp_release(q);
	soft_barrier();
	err = soft_quiesce(q);
	if (err)
		return err;
	link_hold(q);
	soft_reach_drop(q);
	if (q->ud)
		soft_ud_drop(q);
	if (atomic_exchange(&q->quiesce_due, false))
		atomic_fetch_sub(&q->s->quiesce_qps, 1);
	q->settled_ns = 0;
	p = q->peer;
	q->peer = NULL;
	q->far = NULL;
	q->far_bell = -1;
	soft_bell_put(q->s, q->bell);
	q->bell = NULL;
	q->far_srq = NULL;
	soft_link_leave(q);
	q->taken = false;
	if (q->srq && !q->ud)
		soft_order_sweep(q);
	q->conn++;
	shm_set(q->self->conn, q->conn);
	shm_set(q->self->dest_qpn, 0);
	shm_set(q->self->dest_nic, 0);
	atomic_store(&q->self->fault, SHM_FAULT_NONE);
	atomic_store(&q->self->met, 0);
	q->met_said = q->met_heard = q->sqd_notify = q->failed = false;
	soft_lock_return(&q->rq_lock);
	soft_qp_release(q);
	soft_cq_detach_send(soft_cq_of(q->ex.qp_base.send_cq), q);
	soft_cq_reset_recv(soft_cq_of(q->ex.qp_base.recv_cq), q);
	q->srq_id = shm_srq_id(q->area_off, q->conn);
	if (q->srq && q->ud)
		soft_ud_srq_join(q);
	q->sq_posted = 0;
	atomic_store(&q->sq_done, 0);
	if (p)
		soft_peer_put(q->s, p);
	pthread_mutex_unlock(&q->s->lock);
	return 0;
}

/* Its peer is on another host: no posters come into its area. */
static int modify_rtr_link(struct soft_qp *q, const struct ibv_qp_attr *a)
{
	struct soft_link_qp *link;
	int err = soft_link_connect(q, a, &link);

	if (err)
		return err;
	link_hold(q);
	q->link = link;
	soft_lock_return(&q->rq_lock);
	soft_qp_release(q);
	pthread_mutex_unlock(&q->s->lock);
	return 0;
}

/* The life of the peer's QP that we connect to. One in ERR takes messages in its
 * next life only: a NIC waits for it as well. */
static uint32_t conn_met(const struct shm_qp *far)
{
	uint32_t conn = shm_once(far->conn);
	/* acquire: the move out of ERR shows the next life behind its gate */
	uint32_t gate = atomic_load_explicit(&far->gate, memory_order_acquire);

	return gate & SHM_GATE_DEAD ? conn + 1 : conn;
}

static int modify_rtr(struct soft_qp *q, const struct ibv_qp_attr *a)
{
	struct soft *s = q->s;
	struct soft_peer *p = NULL;
	uint64_t area = 0;
	struct soft_bell *bell = NULL;
	uint32_t qpn = a->dest_qp_num & 0xffffff;
	bool here, wants, answered;
	int err;

	pthread_mutex_lock(&s->lock);
	here = soft_gid_local(s, &a->ah_attr.grh.dgid);
	wants = soft_link_wants(s, q, &a->ah_attr.grh.dgid);
	pthread_mutex_unlock(&s->lock);
	if (wants)
		return modify_rtr_link(q, a);
	if (!here) {
		env_log(s->env, ENV_LOG_ERROR,
			"skein0: QP 0x%x: the destination GID is not of this "
			"host; %s",
			q->ex.qp_base.qp_num,
			s->link_mode == SOFT_LINK_OFF
				? "SKEIN_LINK=off"
				: "the link between hosts is for RC alone");
		return -EHOSTUNREACH;
	}
	pthread_mutex_lock(&s->lock);
	answered = soft_reach_take(q, qpn, &err, &p, &area, &bell);
	pthread_mutex_unlock(&s->lock);
	if (!answered)
		err = soft_peer_connect(s, q, qpn, &p, &area, &bell);
	/* A missing peer is no error of modify_qp(): a real NIC finds out when
	 * it sends. */
	if (err && err != -ECONNREFUSED)
		return err;
	link_hold(q);
	q->peer = p;
	q->far = p && area ? (struct shm_qp *)(void *)(p->base + area) : NULL;
	q->bell = bell;
	q->far_bell = soft_bell_fd(bell);
	q->far_idx = SHM_QP_MAX;
	q->far_head = q->far_ready_n = 0;
	memset(q->xlat, 0, sizeof(q->xlat));
	if (q->far) {
		q->far_idx = shm_once(q->far->idx);
		q->far_conn = conn_met(q->far);
		shm_set(q->self->dest_conn, q->far_conn);
	}
	shm_set(q->self->dest_qpn, q->attr.dest_qp_num);
	shm_set(q->self->dest_nic, p ? p->nic_id : 0);
	shm_set(q->self->rq_psn, q->attr.rq_psn);
	soft_lock_return(&q->rq_lock);
	soft_qp_release(q);
	pthread_mutex_unlock(&s->lock);
	return 0;
}

/* It is not in `from` any more. */
#define MOVED 1

/* From here on only the control path uses the QP: it should pay no
 * membarriers. */
static void locks_unbias(struct soft_qp *q)
{
	if (q->flags & DEV_QP_SINGLE_THREADED) {
		soft_lock_unbias_own(&q->lock);
		soft_lock_unbias_own(&q->rq_lock);
	} else if (q->flags & DEV_QP_SERIAL) {
		soft_lock_unbias(&q->lock);
		soft_lock_unbias(&q->rq_lock);
	}
}

static int modify_step(struct soft_qp *q, enum ibv_qp_state from,
		       enum ibv_qp_state to, const struct ibv_qp_attr *a,
		       int mask)
{
	bool look = false;
	int err = 0;

	if (to == IBV_QPS_ERR || to == IBV_QPS_RESET) {
		locks_unbias(q);
		soft_qp_hold(q);
		soft_link_ack(q);
		soft_qp_release(q);
	}
	if (to == IBV_QPS_ERR)
		return modify_err(q);
	if (to == IBV_QPS_RESET)
		return modify_reset(q);
	if (from == IBV_QPS_INIT && to == IBV_QPS_RTR && !q->ud) {
		struct ibv_qp_attr was = q->attr;

		/* The control thread may move the QP to ERR meanwhile, and
		 * reads them under the QP's lock: soft_qp_gate(). */
		soft_qp_hold(q);
		dev_states_take(&q->attr, a, mask);
		soft_qp_release(q);
		err = modify_rtr(q, a);
		if (err) {
			soft_qp_hold(q);
			q->attr = was;
			soft_qp_release(q);
			return err;
		}
	}
	if (from == IBV_QPS_INIT && to == IBV_QPS_RTR &&
	    q->ex.qp_base.qp_type == IBV_QPT_UD) {
		err = soft_link_serve(q);
		if (err)
			return err;
	}
	soft_qp_hold(q);
	/* It may have broken since `from` was found good for this. */
	if (soft_qp_state(q) == from) {
		dev_states_take(&q->attr, a, mask);
		set_state(q, to);
		soft_qp_gate(q);
		if (q->link)
			soft_link_state(q);
		q->sqd_notify = to == IBV_QPS_SQD &&
				mask & IBV_QP_EN_SQD_ASYNC_NOTIFY &&
				a->en_sqd_async_notify;
		/* What waited in SQD goes on; SQ_DRAINED may be due. */
		look = q->parked || q->sqd_notify;
	} else {
		err = MOVED;
	}
	soft_qp_release(q);
	if (!err && to == IBV_QPS_RTS && q->flags & SOFT_SERIALISED &&
	    !q->link) {
		soft_lock_bias(&q->lock);
		soft_lock_bias(&q->rq_lock);
	}
	if (!err && to == IBV_QPS_RTR)
		soft_peer_late(q);
	/* seq_cst fence: the gate is open before the look; the other end
	 * parks, fences, and looks at the gate again. */
	fence_full();
	if (!err && q->far && atomic_load(&q->far->parked))
		soft_ring(q);
	if (look)
		soft_ask_service(q->s, q->idx);
	return err;
}

static bool gid_index_good(struct soft *s, const struct ibv_qp_attr *a)
{
	bool good;

	pthread_mutex_lock(&s->lock);
	good = a->ah_attr.grh.sgid_index < s->n_gids;
	pthread_mutex_unlock(&s->lock);
	return good;
}

/* Checks the request against the QP's present state, then carries it out. */
static int modify_once(struct soft_qp *q, struct ibv_qp_attr *attr, int mask)
{
	enum ibv_qp_state from, to;
	int err;

	/* A caller that has polled an error must find the state that it led to.
	 * The thread that pushes the error holds the QP until it has changed
	 * the state. */
	if (q->flags & DEV_QP_SINGLE_THREADED) {
		soft_lock(&q->lock);
		from = soft_qp_state(q);
		soft_unlock(&q->lock);
	} else {
		soft_qp_hold(q);
		from = soft_qp_state(q);
		soft_qp_release(q);
	}
	to = mask & IBV_QP_STATE ? attr->qp_state : from;
	if (q->ex.qp_base.qp_type == IBV_QPT_DRIVER && to != IBV_QPS_ERR)
		return -EINVAL; /* ready when made, and destroyed after */
	err = dev_states_check(q->ex.qp_base.qp_type, from, to, mask);
	if (!err && mask & IBV_QP_CUR_STATE && attr->cur_qp_state != from)
		err = -EINVAL;
	if (!err)
		err = dev_states_check_values(attr, mask, SOFT_RD_ATOMIC);
	if (!err && mask & IBV_QP_AV && !gid_index_good(q->s, attr))
		err = -EINVAL;
	if (!err)
		err = modify_step(q, from, to, attr, mask);
	return err;
}

int soft_modify_qp(struct dev *dev, struct ibv_qp *qp, struct ibv_qp_attr *attr,
		   int mask)
{
	struct soft_qp *q = soft_qp_of(qp);
	int err;

	if (!soft_here(q->s))
		return -EPERM;
	pthread_mutex_lock(&qp->mutex);
	/* A QP that fails meanwhile is in another state, once or twice: RTS is
	 * the way out of SQE, too. */
	do
		err = modify_once(q, attr, mask);
	while (err == MOVED);
	pthread_mutex_unlock(&qp->mutex);
	return err;
}
