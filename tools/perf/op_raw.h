/* SPDX-License-Identifier: MIT */
/*
 * op_raw.h - write, read, send and atomic: verbs through the device seam.
 *
 * Each worker has its own QPs, CQs and memory, paired with the worker of the
 * same index at the other end, and shares nothing with other workers; so its
 * QPs are single-threaded. Its memory is two buffers: tx, which it sends from
 * and which READs of the peer read, and rx, which WRITEs, SENDs and atomics of
 * the peer change and own READs fill.
 */
#ifndef SKEIN_TOOLS_PERF_OP_RAW_H
#define SKEIN_TOOLS_PERF_OP_RAW_H

#include "dev/mem.h"
#include "perf/perf.h"
#include "perf/ticks.h"

enum {
	RAW_RECV_CHAIN = 16,   /* receives reposted by one call */
	RAW_SIGNAL_EVERY = 32, /* ping-pong: one completion for so many */
	RAW_POLL_MAX = 16,
};

struct raw_qp {
	struct ibv_qp *qp;
	struct ibv_send_wr *wr;			 /* batch of them, linked */
	struct ibv_recv_wr recv[RAW_RECV_CHAIN]; /* linked */
	struct ibv_sge recv_sge; /* of all of them: takes any size */
	uint32_t in_flight;	 /* WRs posted and not known complete */
	uint32_t since_signal;	 /* WRs posted after the last signalled */
	uint32_t to_repost;
	uint64_t left; /* WRs of this slice not posted yet */
	/* When signalled WRs were posted, in their order. */
	uint64_t *stamps;
	uint32_t stamp_in;
	uint32_t stamp_out;
};

struct raw_worker {
	struct perf_worker *w;
	struct raw *raw;
	struct ibv_cq *scq;
	struct ibv_cq *rcq;
	struct mem_region *mem;
	uint8_t *tx;
	uint8_t *rx;
	struct ibv_sge tx_sge; /* of every send WR */
	struct ibv_sge rx_sge; /* of every READ */
	uint64_t peer_tx;
	uint64_t peer_rx;
	uint32_t peer_rkey;
	uint8_t seq; /* of the last ping, seen or sent */
	struct raw_qp *qps;
};

struct raw {
	struct skein_env *env;
	struct dev *dev;
	struct ibv_pd *pd;
	struct dev_qp_opts opts; /* SKEIN_RETRY_TIMEOUT and the like */
	struct raw_worker *workers;
	size_t stride; /* of tx and rx */
	uint32_t send_depth;
	uint32_t recv_depth;
	uint32_t inline_max;
	uint32_t signal_every; /* throughput */
};

/* op_raw_lat.c: one operation outstanding, each timed. */
int raw_lat_write(struct raw_worker *rw);
int raw_lat_write_server(struct raw_worker *rw);
int raw_lat_send(struct raw_worker *rw);
int raw_lat_send_server(struct raw_worker *rw);
int raw_lat_one_sided(struct raw_worker *rw);

/* op_raw_rate.c: a window of operations outstanding. */
int raw_rate(struct raw_worker *rw);
int raw_rate_send_server(struct raw_worker *rw);

/* A completion with an error; returns a negative errno. */
int raw_wc_failed(struct raw_worker *rw, const struct ibv_wc *wc);
int raw_post_failed(struct raw_worker *rw, int rc);

/* Exactly one completion, waited for spinning. */
static inline int raw_poll_one(struct raw_worker *rw, struct ibv_cq *cq,
			       struct ibv_wc *wc)
{
	int n;

	while (!(n = dev_poll_cq(&rw->w->stats, cq, 1, wc)))
		if (!perf_spin(rw->w))
			return rw->w->rc;
	perf_spun(rw->w);
	if (n < 0)
		return perf_fail(rw->w->p, -EIO, "polling a CQ failed (%d)", n);
	if (wc->status != IBV_WC_SUCCESS)
		return raw_wc_failed(rw, wc);
	return 0;
}

/* The settings of a connection's packets, for QPs of a measurement. */
int raw_opts(struct perf *p, struct dev_qp_opts *opts);
/* A QP's address for the other end, and back: false where it makes no sense. */
json_t *raw_addr_json(const struct dev_qp_addr *a);
bool raw_addr_parse(json_t *j, struct dev_qp_addr *a);

#endif
