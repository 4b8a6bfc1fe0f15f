/* SPDX-License-Identifier: MIT */
/*
 * park.c - requests that cannot be executed yet, and those behind them.
 *
 * They wait in the poster's process, in order, under the QP's lock. The
 * poster's next post executes them, or its control thread. The other end rings
 * that thread (attn byte and eventfd) because it sees this QP's parked word.
 * Timers: the control thread.
 *
 * Lost rings: the parked word is stored, then membarrier(2), then the way is
 * tried once more. The other end opens the way first and then reads the word.
 * Where membarrier(2) is refused the control thread tries once more later, when
 * the other end's store has reached memory (env/membarrier.h).
 */
#include "dev/soft/dc/dc.h"
#include "dev/soft/link/link.h"
#include "dev/soft/mw.h"
#include "dev/soft/ud/ud.h"
#include "dev/states.h"

#include <errno.h>
#include <string.h>

/* A NIC answers for a busy process; here the process's control thread has to
 * run. A missing process is known at once. */
#define DIAL_NS 2000000000ull

uint64_t soft_park_rnr_ns(const struct soft_qp *q)
{
	return dev_rnr_ns(shm_once(q->far->rnr_timer));
}

uint64_t soft_park_patience(const struct soft_qp *q, enum soft_park why)
{
	switch (why) {
	case SOFT_PARK_RNR:
		/* The receiver's timer, as often as we may retry; 7: always */
		if (q->attr.rnr_retry < 7)
			return q->attr.rnr_retry * soft_park_rnr_ns(q);
		return ENV_NEVER;
	case SOFT_PARK_ROUTE:
		if (q->dc && soft_dc_dials(q))
			return DIAL_NS;
		if (q->attr.timeout)
			return (4096ull << q->attr.timeout) *
			       (q->attr.retry_cnt + 1u);
		return ENV_NEVER;
	default:
		return ENV_NEVER;
	}
}

static void set_deadline(struct soft_qp *q, struct soft_wqe *w)
{
	uint64_t wait = soft_park_patience(q, w->park);

	w->deadline_ns =
		wait == ENV_NEVER ? wait : env_now_ns(q->s->env) + wait;
}

bool soft_park_retries(const struct soft_qp *q)
{
	const struct soft_wqe *w = q->parked;

	/* A DC target does not know which senders wait for its receives. */
	return q->ring_lost || w->park == SOFT_PARK_XLAT ||
	       w->park == SOFT_PARK_INV ||
	       (w->park == SOFT_PARK_RNR && q->dc) ||
	       (w->park == SOFT_PARK_FAR && w->sent_no);
}

bool soft_park_waits(const struct soft_qp *q)
{
	return q->ring_lost || (q->parked->park == SOFT_PARK_XLAT &&
				atomic_load(&q->asked_for));
}

/* Does its head wait for an answer that our control thread takes in? Then a
 * polling thread gives way to the control thread: soft_poll_cq(). */
static void note_asks(struct soft_qp *q)
{
	bool asks = q->parked && !q->harsh &&
		    (q->parked->park == SOFT_PARK_XLAT ||
		     q->parked->park == SOFT_PARK_FAR ||
		     q->parked->park == SOFT_PARK_INV);

	if (asks == q->asks)
		return;
	q->asks = asks;
	if (asks)
		atomic_fetch_add(&q->s->asking_qps, 1);
	else
		atomic_fetch_sub(&q->s->asking_qps, 1);
}

/* The control thread sleeps until a deadline that may be too late now. An
 * answer wakes it by itself. */
static void new_timer(struct soft_qp *q)
{
	if (q->parked->deadline_ns != ENV_NEVER || q->ring_lost ||
	    (soft_park_retries(q) && !soft_park_waits(q)))
		soft_kick(q->s);
}

static struct soft_wqe *wqe_new(struct soft_qp *q, const struct ibv_send_wr *wr)
{
	size_t len = 0, sges = (size_t)wr->num_sge * sizeof(struct ibv_sge);
	struct soft_wqe *w;
	char *data;
	int i;

	if (wr->send_flags & IBV_SEND_INLINE)
		for (i = 0; i < wr->num_sge; i++)
			len += wr->sg_list[i].length;
	w = env_alloc(q->s->env, sizeof(*w) + sges + len);
	if (!w)
		return NULL;
	w->wr = *wr;
	soft_mw_keep(&w->wr);
	w->wr.next = NULL;
	w->wr.sg_list = w->sge;
	data = (char *)w->sge + sges;
	for (i = 0; i < wr->num_sge; i++) {
		w->sge[i] = wr->sg_list[i];
		if (!(wr->send_flags & IBV_SEND_INLINE))
			continue;
		/* Inline buffers are the caller's again at once. */
		memcpy(data, soft_ptr(wr->sg_list[i].addr),
		       wr->sg_list[i].length);
		w->sge[i].addr = (uintptr_t)data;
		data += wr->sg_list[i].length;
	}
	return w;
}

int soft_park(struct soft_qp *q, const struct ibv_send_wr *wr, uint32_t pos,
	      int why)
{
	struct soft_wqe *w = wqe_new(q, wr);
	bool first = !q->parked;

	if (!w)
		return ENOMEM;
	w->park = (enum soft_park)why;
	w->pos = pos;
	w->dest = q->dc ? q->dc->to : NULL;
	if (w->dest)
		w->dest->refs++;
	w->deadline_ns = ENV_NEVER;
	*q->parked_end = w;
	q->parked_end = &w->next;
	q->direct = false;
	if (q->harsh)
		soft_harsh_post(q, w);
	if (!first)
		return 0;
	atomic_fetch_add(&q->s->parked_qps, 1);
	if (q->harsh)
		return 0; /* it comes back by itself: no ring is wanted */
	set_deadline(q, w);
	atomic_store_explicit(&q->self->parked, 1, memory_order_relaxed);
	/* See the file head. */
	q->ring_lost = !soft_barrier_try();
	note_asks(q);
	if (soft_qp_state(q) == IBV_QPS_RTS)
		soft_progress(q);
	if (q->parked)
		new_timer(q);
	return 0;
}

static void unpark(struct soft_qp *q)
{
	atomic_fetch_sub(&q->s->parked_qps, 1);
	atomic_store_explicit(&q->self->parked, 0, memory_order_relaxed);
	q->parked_end = &q->parked;
	q->direct = soft_qp_state(q) == IBV_QPS_RTS && !q->ud && !q->dc &&
		    !q->harsh;
}

static struct soft_wqe *head_take(struct soft_qp *q)
{
	struct soft_wqe *w = q->parked;

	q->parked = w->next;
	q->retry_ns = 0;
	if (w->dest)
		w->dest->refs--;
	/* It is not carried out any more. (In harsh mode: if it was, the
	 * receive is for a message behind it that has begun.) */
	if (unlikely(q->taken) && (!w->h.landed || w->h.status)) {
		soft_hazard_on(q);
		soft_take_back(q);
		soft_hazard_off(q);
	}
	if (!q->parked)
		unpark(q);
	note_asks(q);
	return w;
}

/*
 * Here the control thread, not the poster, carries out the request. Without
 * this the peer's answer may arrive, and wake the poster, before the request's
 * own completion is there: programs that wait for both on one channel take the
 * one for the other.
 */
void soft_park_shut(struct soft_qp *q, const struct ibv_send_wr *wr)
{
	if (!q->held || q->harsh ||
	    !(q->sig_all || wr->send_flags & IBV_SEND_SIGNALED))
		return;
	soft_cq_shut(soft_cq_of(q->ex.qp_base.send_cq));
	q->shut = true;
}

void soft_progress(struct soft_qp *q)
{
	struct soft_wqe *w;
	int r;

	if (q->harsh) {
		soft_harsh_progress(q);
		return;
	}
	while ((w = q->parked) && (soft_qp_state(q) == IBV_QPS_RTS ||
				   (soft_qp_state(q) == IBV_QPS_SQD &&
				    w->park != SOFT_PARK_QUEUED))) {
		if (q->dc)
			soft_dc_turn(q, w->dest);
		r = q->ud ? soft_ud_exec(q, &w->wr) : soft_exec(q, &w->wr, w);
		if (r < 0 && w->park != (enum soft_park) - r) {
			w->park = (enum soft_park) - r;
			note_asks(q);
			set_deadline(q, w);
			new_timer(q);
		}
		if (r < 0)
			return;
		head_take(q);
		soft_complete(q, &w->wr, w->pos, r);
		env_free(q->s->env, w);
	}
}

void soft_park_expire_as(struct soft_qp *q, int status)
{
	struct soft_wqe *w = head_take(q);

	soft_complete(q, &w->wr, w->pos, status);
	env_free(q->s->env, w);
}

/* The head of the queue has waited too long. */
void soft_park_expire(struct soft_qp *q)
{
	soft_park_expire_as(q, q->parked->park == SOFT_PARK_RNR
				       ? IBV_WC_RNR_RETRY_EXC_ERR
				       : IBV_WC_RETRY_EXC_ERR);
}

bool soft_sqd_busy(const struct soft_qp *q)
{
	if (q->link)
		return soft_link_busy(q);
	if (q->harsh)
		return soft_harsh_busy(q);
	return q->parked && q->parked->park != SOFT_PARK_QUEUED;
}

void soft_flush_parked(struct soft_qp *q)
{
	struct soft_wqe *w;

	if (q->link)
		soft_link_flush(q);
	if (q->harsh)
		soft_harsh_hush(q);
	while (q->parked) {
		w = head_take(q);
		soft_complete(q, &w->wr, w->pos,
			      soft_mw_flush(q, &w->wr, w->pos));
		env_free(q->s->env, w);
	}
	soft_mw_wait_free(q);
}

void soft_drop_parked(struct soft_qp *q)
{
	if (q->link)
		soft_link_drop(q);
	if (q->harsh)
		soft_harsh_hush(q);
	while (q->parked)
		env_free(q->s->env, head_take(q));
	/* Its place in the queue may come again. */
	soft_mw_wait_free(q);
}
