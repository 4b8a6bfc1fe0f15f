/* SPDX-License-Identifier: MIT */
/*
 * op_raw_lat.c - latency on verbs: one operation outstanding, each timed.
 *
 * write and send are ping-pongs and timed as whole round trips; read and
 * atomic are timed from post to completion. For write both ends poll the last
 * byte of their memory, as perftest's ib_write_lat does: soft and every NIC
 * that declares ordered_write stores it last.
 */
#include "perf/op_raw.h"

#include <errno.h>

static inline uint64_t ns_since(const struct raw_worker *rw, uint64_t t0)
{
	return (uint64_t)((double)(ticks_now() - t0) * rw->w->p->ns_per_tick);
}

/* One WR of a ping-pong: most are unsignalled, and every so often one's
 * completion frees the send queue. */
static inline int post_ping(struct raw_worker *rw, struct raw_qp *q)
{
	struct ibv_send_wr *bad;

	q->wr->next = NULL;
	if (++q->since_signal == RAW_SIGNAL_EVERY)
		q->wr->send_flags |= IBV_SEND_SIGNALED;
	return dev_post_send(&rw->w->stats, q->qp, q->wr, &bad);
}

/* Outside of the timed part. */
static inline int reap_ping(struct raw_worker *rw, struct raw_qp *q)
{
	struct ibv_wc wc;

	if (q->since_signal != RAW_SIGNAL_EVERY)
		return 0;
	q->since_signal = 0;
	q->wr->send_flags &= ~(unsigned)IBV_SEND_SIGNALED;
	return raw_poll_one(rw, rw->scq, &wc);
}

/* The acquire pairs with the device's release of a message's last bytes: a
 * thread that sees the flag sees the whole message. */
static inline bool await_flag(struct raw_worker *rw, const uint8_t *flag,
			      uint8_t seq)
{
	while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) != seq)
		if (!perf_spin(rw->w))
			return false;
	perf_spun(rw->w);
	return true;
}

int raw_lat_write(struct raw_worker *rw)
{
	uint64_t last = rw->w->p->size - 1;
	uint32_t qps = rw->w->p->o.qps, at = 0;
	int rc = 0;

	for (uint64_t i = 0; i < rw->w->n && !rc; i++) {
		struct raw_qp *q = &rw->qps[at];
		uint64_t t0 = ticks_now();

		at = at + 1 == qps ? 0 : at + 1;
		rw->tx[last] = ++rw->seq;
		rc = post_ping(rw, q);
		if (rc)
			return raw_post_failed(rw, rc);
		if (!await_flag(rw, &rw->rx[last], rw->seq))
			return rw->w->rc;
		hist_record(rw->w->lat, ns_since(rw, t0));
		rc = reap_ping(rw, q);
	}
	return rc;
}

int raw_lat_write_server(struct raw_worker *rw)
{
	uint64_t last = rw->w->p->size - 1;
	uint32_t qps = rw->w->p->o.qps, at = 0;
	int rc = 0;

	for (uint64_t i = 0; i < rw->w->n && !rc; i++) {
		struct raw_qp *q = &rw->qps[at];

		at = at + 1 == qps ? 0 : at + 1;
		if (!await_flag(rw, &rw->rx[last], ++rw->seq))
			return rw->w->rc;
		rw->tx[last] = rw->seq;
		rc = post_ping(rw, q);
		if (rc)
			return raw_post_failed(rw, rc);
		rc = reap_ping(rw, q);
	}
	return rc;
}

static int repost(struct raw_worker *rw, struct raw_qp *q)
{
	struct ibv_recv_wr one = q->recv[0], *bad;

	one.next = NULL;
	return dev_post_recv(&rw->w->stats, q->qp, &one, &bad);
}

int raw_lat_send(struct raw_worker *rw)
{
	uint32_t qps = rw->w->p->o.qps, at = 0;
	struct ibv_wc wc;
	int rc = 0;

	for (uint64_t i = 0; i < rw->w->n && !rc; i++) {
		struct raw_qp *q = &rw->qps[at];
		uint64_t t0 = ticks_now();

		at = at + 1 == qps ? 0 : at + 1;
		rc = post_ping(rw, q);
		if (rc)
			return raw_post_failed(rw, rc);
		rc = raw_poll_one(rw, rw->rcq, &wc);
		if (rc)
			return rc;
		hist_record(rw->w->lat, ns_since(rw, t0));
		rc = repost(rw, q);
		if (rc)
			return raw_post_failed(rw, rc);
		rc = reap_ping(rw, q);
	}
	return rc;
}

int raw_lat_send_server(struct raw_worker *rw)
{
	uint32_t qps = rw->w->p->o.qps, at = 0;
	struct ibv_wc wc;
	int rc = 0;

	for (uint64_t i = 0; i < rw->w->n && !rc; i++) {
		struct raw_qp *q = &rw->qps[at];

		at = at + 1 == qps ? 0 : at + 1;
		rc = raw_poll_one(rw, rw->rcq, &wc);
		if (rc)
			return rc;
		rc = post_ping(rw, q);
		if (!rc)
			rc = repost(rw, q);
		if (rc)
			return raw_post_failed(rw, rc);
		rc = reap_ping(rw, q);
	}
	return rc;
}

int raw_lat_one_sided(struct raw_worker *rw)
{
	uint32_t qps = rw->w->p->o.qps, at = 0;
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	int rc = 0;

	for (uint64_t i = 0; i < rw->w->n && !rc; i++) {
		struct raw_qp *q = &rw->qps[at];
		uint64_t t0 = ticks_now();

		at = at + 1 == qps ? 0 : at + 1;
		q->wr->next = NULL;
		q->wr->send_flags |= IBV_SEND_SIGNALED;
		rc = dev_post_send(&rw->w->stats, q->qp, q->wr, &bad);
		if (rc)
			return raw_post_failed(rw, rc);
		rc = raw_poll_one(rw, rw->scq, &wc);
		if (!rc)
			hist_record(rw->w->lat, ns_since(rw, t0));
	}
	return rc;
}
