/* SPDX-License-Identifier: MIT */
/*
 * op_raw_rate.c - throughput on verbs: a window of operations outstanding on
 * each QP, posted in lists, with few of them signalled.
 *
 * wr_id is the QP's index (high half) and how many WRs a completion frees (low
 * half). Latency is sampled on the signalled ones, post to completion.
 */
#include "perf/op_raw.h"

#include <errno.h>

/* Posts one list of `batch` on q; last says that nothing follows it. */
static int post_list(struct raw_worker *rw, struct raw_qp *q, uint32_t index,
		     bool last)
{
	struct raw *raw = rw->raw;
	uint32_t batch = rw->w->p->o.batch;
	struct ibv_send_wr *tail = &q->wr[batch - 1], *bad;
	int rc;

	q->since_signal += batch;
	q->in_flight += batch;
	if (q->since_signal < raw->signal_every && !last) {
		tail->send_flags &= ~(unsigned)IBV_SEND_SIGNALED;
	} else {
		tail->send_flags |= IBV_SEND_SIGNALED;
		tail->wr_id = (uint64_t)index << 32 | q->since_signal;
		q->since_signal = 0;
		q->stamps[q->stamp_in++ & (raw->send_depth - 1)] = ticks_now();
	}
	rc = dev_post_send(&rw->w->stats, q->qp, q->wr, &bad);
	return rc ? raw_post_failed(rw, rc) : 0;
}

/* Frees what completed; returns how many WRs, or a negative errno. */
static int reap(struct raw_worker *rw)
{
	struct raw *raw = rw->raw;
	struct ibv_wc wc[RAW_POLL_MAX];
	int i, n, freed = 0;

	n = dev_poll_cq(&rw->w->stats, rw->scq, RAW_POLL_MAX, wc);
	if (n < 0)
		return perf_fail(rw->w->p, -EIO, "polling a CQ failed (%d)", n);
	for (i = 0; i < n; i++) {
		struct raw_qp *q;
		uint64_t t0;

		if (wc[i].status != IBV_WC_SUCCESS)
			return raw_wc_failed(rw, &wc[i]);
		q = &rw->qps[wc[i].wr_id >> 32];
		q->in_flight -= (uint32_t)wc[i].wr_id;
		freed += (int)(uint32_t)wc[i].wr_id;
		t0 = q->stamps[q->stamp_out++ & (raw->send_depth - 1)];
		hist_record(rw->w->lat, (uint64_t)((double)(ticks_now() - t0) *
						   rw->w->p->ns_per_tick));
	}
	return freed;
}

/* Fills q's window; returns how many WRs, or a negative errno. */
static int fill(struct raw_worker *rw, struct raw_qp *q, uint32_t index)
{
	const struct perf_opts *o = &rw->w->p->o;
	int posted = 0, rc;

	while (q->left && q->in_flight + o->batch <= o->window) {
		q->left -= o->batch;
		rc = post_list(rw, q, index, !q->left);
		if (rc)
			return rc;
		posted += (int)o->batch;
	}
	return posted;
}

int raw_rate(struct raw_worker *rw)
{
	const struct perf_opts *o = &rw->w->p->o;
	uint64_t freed = 0;
	uint32_t i;

	/* a slice is a whole number of lists on every QP */
	for (i = 0; i < o->qps; i++)
		rw->qps[i].left = rw->w->n / o->qps;
	while (freed < rw->w->n) {
		int got, moved = 0;

		for (i = 0; i < o->qps; i++) {
			got = fill(rw, &rw->qps[i], i);
			if (got < 0)
				return got;
			moved |= got;
		}
		got = reap(rw);
		if (got < 0)
			return got;
		freed += (uint64_t)got;
		perf_chunk(rw->w, freed);
		if (got || moved)
			perf_spun(rw->w);
		else if (!perf_spin(rw->w))
			return rw->w->rc;
	}
	return 0;
}

static int repost(struct raw_worker *rw, struct raw_qp *q)
{
	struct ibv_recv_wr *bad;
	int rc;

	if (++q->to_repost < RAW_RECV_CHAIN)
		return 0;
	q->to_repost = 0;
	rc = dev_post_recv(&rw->w->stats, q->qp, q->recv, &bad);
	return rc ? raw_post_failed(rw, rc) : 0;
}

/* Takes a slice's messages in and gives the room back. */
int raw_rate_send_server(struct raw_worker *rw)
{
	struct ibv_wc wc[RAW_POLL_MAX];
	uint64_t taken = 0;
	int i, n, rc;

	while (taken < rw->w->n) {
		n = dev_poll_cq(&rw->w->stats, rw->rcq, RAW_POLL_MAX, wc);
		if (n < 0)
			return perf_fail(rw->w->p, -EIO,
					 "polling a CQ failed (%d)", n);
		for (i = 0; i < n; i++) {
			if (wc[i].status != IBV_WC_SUCCESS)
				return raw_wc_failed(rw, &wc[i]);
			rc = repost(rw, &rw->qps[wc[i].wr_id]);
			if (rc)
				return rc;
		}
		taken += (uint64_t)n;
		if (n)
			perf_spun(rw->w);
		else if (!perf_spin(rw->w))
			return rw->w->rc;
	}
	return 0;
}
