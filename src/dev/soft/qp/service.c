/* SPDX-License-Identifier: MIT */
/*
 * service.c - what the control thread does about QPs: it takes note of what
 * peers broke or began, runs parked requests, fires timers, and ends a QP's
 * move to ERR once the peer has left. soft.lock is held throughout.
 */
#include "base/fence.h"
#include "dev/soft/dc/dc.h"
#include "dev/soft/mw.h"
#include "dev/soft/ud/ud.h"
#include "env/membarrier.h"

#define QUIESCE_RETRY_NS 1000000ull
#define PARK_RETRY_NS 20000000ull
#define INV_RETRY_NS 1000000ull

_Static_assert(PARK_RETRY_NS >= MEMBARRIER_WAIT_NS, "a lost ring is there");

static bool connected(const struct soft_qp *q)
{
	enum ibv_qp_state st = soft_qp_state(q);

	return q->far && (st == IBV_QPS_RTR || st == IBV_QPS_RTS ||
			  st == IBV_QPS_SQD || st == IBV_QPS_SQE);
}

static void take_met(struct soft_qp *q)
{
	/* Only from the QP that we are connected to. */
	if (q->met_heard || shm_once(q->far->qpn) != q->attr.dest_qp_num ||
	    shm_once(q->far->conn) != q->far_conn ||
	    !atomic_load_explicit(&q->far->met, memory_order_acquire))
		return;
	q->met_heard = true;
	if (soft_qp_state(q) == IBV_QPS_RTR)
		soft_async(q->s, IBV_EVENT_COMM_EST, q);
}

static void take_fault(struct soft_qp *q)
{
	/* acquire: pairs with fault() in exec.c */
	uint32_t f =
		atomic_load_explicit(&q->self->fault, memory_order_acquire);

	if (f == SHM_FAULT_NONE)
		return;
	if (f == SHM_FAULT_ACCESS)
		soft_async(q->s, IBV_EVENT_QP_ACCESS_ERR, q);
	else if (f == SHM_FAULT_REQUEST)
		soft_async(q->s, IBV_EVENT_QP_REQ_ERR, q);
	soft_qp_to_err(q);
}

/* relaxed: see overflow() in cq.c */
static bool cq_broken(struct soft_qp *q)
{
	return __atomic_load_n(&soft_cq_of(q->ex.qp_base.send_cq)->error,
			       __ATOMIC_RELAXED) ||
	       __atomic_load_n(&soft_cq_of(q->ex.qp_base.recv_cq)->error,
			       __ATOMIC_RELAXED);
}

/* The last step of a move to ERR: the peer has left. */
static void left(struct soft_qp *q, bool user)
{
	if (!atomic_exchange(&q->quiesce_due, false))
		return;
	q->settled_ns = 0;
	atomic_fetch_sub(&q->s->quiesce_qps, 1);
	if (q->srq) {
		if (!q->ud)
			soft_order_sweep(q);
		soft_async(q->s, IBV_EVENT_QP_LAST_WQE_REACHED, q);
		return;
	}
	soft_cq_flush_recv(soft_cq_of(q->ex.qp_base.recv_cq), q, user);
}

/* The control thread does not wait: its timer comes back until the time is
 * over. */
static bool settled(struct soft_qp *q)
{
	uint64_t now;

	/* before the clock: the gate is shut in memory, see membarrier.c */
	fence_full();
	now = env_now_ns(q->s->env);
	if (!q->settled_ns) {
		q->settled_ns = now + MEMBARRIER_WAIT_NS;
		soft_kick(q->s); /* the caller may be modify_qp()'s */
	}
	return now >= q->settled_ns;
}

static void try_quiesce(struct soft_qp *q)
{
	if (!soft_barrier_try() && !settled(q))
		return;
	if (soft_quiet(q))
		left(q, false); /* else the timer comes back to it */
}

static void service_locked(struct soft_qp *q)
{
	enum ibv_qp_state st = soft_qp_state(q);

	soft_mw_look(q);
	if (connected(q)) {
		take_met(q);
		take_fault(q);
	} else if (q->far && q->failed) {
		/* Refused by us, the peer broke its QP, and a request of ours
		 * met that before we came here: the cause is told all the same.
		 * The peer has written it before it shut its gate. */
		q->failed = false;
		take_fault(q);
	}
	if (q->ud && !soft_is_dct(q) && st != IBV_QPS_RESET &&
	    st != IBV_QPS_ERR && soft_ud_fault(q))
		soft_qp_to_err(q);
	if (st != IBV_QPS_RESET && st != IBV_QPS_ERR && cq_broken(q)) {
		soft_async(q->s, IBV_EVENT_QP_FATAL, q);
		soft_qp_to_err(q);
	}
	soft_progress(q);
	if (q->ud)
		soft_ud_service(q);
	if (q->dc)
		soft_dci_service(q);
	if (q->sqd_notify && !soft_sqd_busy(q) &&
	    soft_qp_state(q) == IBV_QPS_SQD) {
		q->sqd_notify = false;
		soft_async(q->s, IBV_EVENT_SQ_DRAINED, q);
	}
}

static void service(struct soft_qp *q)
{
	soft_qp_hold(q);
	service_locked(q);
	soft_qp_release(q);
	if (q->srq && q->ud)
		soft_srq_limit(q->srq);
	else if (q->srq)
		soft_order_service(q);
}

void soft_qp_service(struct soft *s, struct soft_qp *q)
{
	(void)s;
	if (q->dying)
		return;
	service(q);
	if (q->quiesce_due)
		try_quiesce(q);
	soft_bells_ask_cq(soft_cq_of(q->ex.qp_base.recv_cq));
}

void soft_qp_left(struct soft_qp *q)
{
	service(q);
	left(q, true);
}

/* Is it time to try a head that no ring comes for? *due: when it will be. */
static bool tries_again(struct soft_qp *q, uint64_t now, uint64_t *due)
{
	uint64_t pause = PARK_RETRY_NS;

	*due = ENV_NEVER;
	if (!q->parked || !soft_park_retries(q))
		return false;
	/* Its answer is on its way. A try before that would ask once more, and
	 * be answered once more. */
	if (soft_park_waits(q)) {
		if (!q->retry_ns)
			q->retry_ns = now + PARK_RETRY_NS;
		*due = q->retry_ns;
		if (now < q->retry_ns)
			return false;
	}
	q->ring_lost = false; /* it is not any more */
	if (q->parked->park == SOFT_PARK_RNR)
		pause = soft_park_rnr_ns(q);
	if (q->parked->park == SOFT_PARK_INV)
		pause = INV_RETRY_NS;
	q->retry_ns = *due = now + pause;
	return true;
}

static uint64_t qp_timer(struct soft_qp *q, uint64_t now)
{
	uint64_t due = ENV_NEVER, again;

	soft_qp_hold(q);
	if (tries_again(q, now, &again) ||
	    (q->parked && q->parked->deadline_ns <= now)) {
		/* Once more: a ring may be on its way, or a request or its
		 * answer was lost. */
		atomic_store(&q->asked_for, 0);
		soft_mw_look(q);
		soft_progress(q);
		if (q->parked && q->parked->deadline_ns <= now)
			soft_park_expire(q);
	}
	if (soft_ud_waits(q))
		due = soft_ud_timer(q, now);
	if (q->parked && q->parked->deadline_ns < due)
		due = q->parked->deadline_ns;
	if (q->parked && again < due)
		due = again;
	soft_qp_release(q);
	if (q->quiesce_due)
		try_quiesce(q);
	if (q->quiesce_due && now + QUIESCE_RETRY_NS < due)
		due = now + QUIESCE_RETRY_NS;
	return due;
}

uint64_t soft_qps_timers(struct soft *s, uint64_t now)
{
	uint64_t due = soft_dials_timer(s, now), t;
	struct soft_qp *q;
	uint32_t i;

	if (!atomic_load(&s->parked_qps) && !atomic_load(&s->quiesce_qps) &&
	    !atomic_load(&s->ud_waits))
		return due;
	for (i = 0; i < s->n_blocks * SHM_BLOCK_QPS; i++) {
		q = s->qps[i];
		if (!q || q->dying ||
		    (!atomic_load_explicit(&q->self->parked,
					   memory_order_relaxed) &&
		     !atomic_load(&q->quiesce_due) && !soft_ud_waits(q)))
			continue;
		t = qp_timer(q, now);
		if (t < due)
			due = t;
	}
	return due;
}

/* A UC QP gets no notice: requests that waited for the peer count as sent, and
 * are lost. */
static void uc_bereft(struct soft_qp *q)
{
	q->gate_ok = 0; /* the next one looks, and finds nobody */
	while (q->parked && q->parked->park != SOFT_PARK_INV &&
	       soft_qp_state(q) == IBV_QPS_RTS)
		soft_park_expire_as(q, IBV_WC_SUCCESS);
}

/* With the notice of death the waiting head fails and all else is flushed, so
 * that a sleeper wakes up. Without it (dev.h, death_notice) it is as on a NIC:
 * the waiting head fails, and so do later posts; receives stay. */
static void rc_bereft(struct soft_qp *q)
{
	bool notice = q->s->dev.caps.death_notice;

	q->gate_ok = 0; /* the next one looks, and finds nobody */
	soft_mw_look(q);
	/* an invalidation that waits for it may be over now */
	if (q->parked && q->parked->park != SOFT_PARK_INV)
		soft_park_expire_as(q, IBV_WC_RETRY_EXC_ERR);
	if (notice && soft_qp_state(q) != IBV_QPS_ERR)
		soft_qp_to_err(q);
	if (notice)
		soft_async(q->s, IBV_EVENT_QP_FATAL, q);
	else if (q->srq && soft_qp_state(q) != IBV_QPS_ERR)
		soft_order_sweep(q);
}

/* The peer of this QP is dead. */
static void qp_bereft(struct soft_qp *q)
{
	enum ibv_qp_state st;

	soft_cq_mark(soft_cq_of(q->ex.qp_base.recv_cq), q);
	soft_qp_hold(q);
	st = soft_qp_state(q);
	if (q->harsh) {
		soft_harsh_progress(q); /* no notice: requests time out */
	} else if (q->unreliable) {
		uc_bereft(q);
		if (q->srq && st != IBV_QPS_ERR)
			soft_order_sweep(q); /* none of it is left */
	} else if (st == IBV_QPS_RTR || st == IBV_QPS_RTS ||
		   st == IBV_QPS_SQD) {
		rc_bereft(q);
	}
	soft_qp_release(q);
	if (q->quiesce_due)
		try_quiesce(q);
	/* A receive may be there without the event that the peer owed. */
	if (q->harsh || q->srq || soft_reap_due(q))
		soft_cq_fire(soft_cq_of(q->ex.qp_base.recv_cq));
	/* or an event without its count */
	soft_bells_ask_cq(soft_cq_of(q->ex.qp_base.recv_cq));
}

static void ud_bereft(struct soft_qp *q, struct soft_peer *p)
{
	soft_qp_hold(q);
	if (q->harsh)
		soft_harsh_hush(q); /* its word may be p's */
	soft_ud_bereft(q, p);
	soft_qp_release(q);
	if (q->harsh) /* as in qp_bereft() */
		soft_cq_fire(soft_cq_of(q->ex.qp_base.recv_cq));
}

/* Requests for the dead peer fail in their turn; a DCI with nothing outstanding
 * there goes on. */
static void dci_bereft(struct soft_qp *q)
{
	soft_qp_hold(q);
	q->gate_ok = 0;
	soft_progress(q);
	soft_qp_release(q);
	if (q->quiesce_due)
		try_quiesce(q);
}

void soft_peer_died(struct soft *s, struct soft_peer *p)
{
	struct soft_qp *q;
	uint32_t i;

	soft_peer_unwatch(s, p);
	if (atomic_exchange(&p->dead, true))
		return;
	p->refs++; /* not freed below */
	for (i = 0; i < s->n_blocks * SHM_BLOCK_QPS; i++) {
		q = s->qps[i];
		if (q && q->ud)
			ud_bereft(q, p);
		else if (q && !q->dying && q->dc)
			dci_bereft(q);
		else if (q && !q->dying && q->peer == p)
			qp_bereft(q);
	}
	soft_peer_put(s, p);
}

void soft_peer_late(struct soft_qp *q)
{
	struct soft *s = q->s;

	/* soft_peer_died() runs under this lock: either it came before, and is
	 * seen here, or it comes later and finds this QP in RTR. */
	pthread_mutex_lock(&s->lock);
	if (q->peer && atomic_load(&q->peer->dead))
		qp_bereft(q);
	pthread_mutex_unlock(&s->lock);
}
