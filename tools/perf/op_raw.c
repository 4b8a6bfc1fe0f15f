/* SPDX-License-Identifier: MIT */
/*
 * op_raw.c - both ends of write, read, send and atomic: the device, the QPs
 * and their exchange; the loops are in op_raw_lat.c and op_raw_rate.c.
 */
#include "perf/op_raw.h"

#include "conn/setup/path.h"
#include "conn/wc_status.h"
#include "env/env.h"
#include "perf/ctl.h"
#include "perf/device.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	STRIDE_ALIGN = 4096,
	PING_DEPTH = 2 * RAW_SIGNAL_EVERY,
	RECV_DEPTH_MIN = 64,
	RECV_DEPTH_MAX = 4096,
	PSN_STEP = 0x1001,
};

int raw_wc_failed(struct raw_worker *rw, const struct ibv_wc *wc)
{
	return perf_fail(rw->w->p, -EIO,
			 "%s: completion with status %d (%s) on QP 0x%x",
			 rw->w->p->op->name, wc->status,
			 wc_status_text(wc->status), wc->qp_num);
}

int raw_post_failed(struct raw_worker *rw, int rc)
{
	return perf_fail(rw->w->p, rc, "%s: posting failed: %s",
			 rw->w->p->op->name, strerror(-rc));
}

static bool sends_data(const struct perf_opts *o)
{
	return o->op == PERF_WRITE || o->op == PERF_SEND;
}

/* The next power of two: the stamps' ring is as deep. */
static uint32_t pow2_up(uint32_t v)
{
	uint32_t p = 1;

	while (p < v)
		p *= 2;
	return p;
}

static int plan_depths(struct perf *p, struct raw *raw)
{
	const struct perf_opts *o = &p->o;
	const struct dev_caps *caps = &raw->dev->caps;
	uint32_t depth = o->rate ? o->window : PING_DEPTH;
	uint32_t recv = 2 * o->window;

	raw->send_depth = pow2_up(depth);
	if (depth > caps->qp_wr_max)
		return perf_fail(p, -EINVAL,
				 "a window of %u is more than %s takes (%u)",
				 depth, raw->dev->name, caps->qp_wr_max);
	/* Large enough to spare completions, small enough that the window
	 * never waits for one that was not asked for. */
	raw->signal_every = o->window / 4;
	if (raw->signal_every < o->batch)
		raw->signal_every = o->batch;
	if (recv < RECV_DEPTH_MIN)
		recv = RECV_DEPTH_MIN;
	if (recv > RECV_DEPTH_MAX)
		recv = RECV_DEPTH_MAX;
	if (recv > caps->qp_wr_max)
		recv = caps->qp_wr_max;
	raw->recv_depth = recv / RAW_RECV_CHAIN * RAW_RECV_CHAIN;
	raw->inline_max = o->inline_max;
	if (raw->inline_max > caps->inline_max)
		raw->inline_max = caps->inline_max;
	raw->stride =
		(p->o.size + STRIDE_ALIGN - 1) & ~(size_t)(STRIDE_ALIGN - 1);
	return 0;
}

static const char *lookup(void *arg, const char *name)
{
	(void)arg;
	return getenv(name);
}

int raw_opts(struct perf *p, struct dev_qp_opts *opts)
{
	const struct skein_path none = {0};
	struct skein_path path;
	char err[256] = "";
	int rc = path_configure(&none, lookup, NULL, &path, err, sizeof(err));

	if (rc)
		return perf_fail(p, rc, "%s", err);
	path_opts(&path, opts);
	return 0;
}

static int open_device(struct perf *p, struct raw *raw)
{
	char err[256] = "";
	int rc = raw_opts(p, &raw->opts);

	if (rc)
		return rc;
	rc = device_open(p->o.device, p->o.require, (int)p->o.gid_index,
			 &raw->env, err, sizeof(err), &raw->dev);
	if (rc)
		return perf_fail(p, rc, "%s", err);
	device_name(raw->dev, p->device, sizeof(p->device));
	device_describe(raw->dev, p->device_why, sizeof(p->device_why));
	if (p->o.op == PERF_ATOMIC &&
	    raw->dev->caps.atomic_scope == DEV_ATOMIC_NONE)
		return perf_fail(p, -EOPNOTSUPP, "%s has no atomic operations",
				 raw->dev->name);
	if (p->o.size > raw->dev->caps.msg_sz_max)
		return perf_fail(p, -EMSGSIZE,
				 "%s takes messages of %llu bytes at most",
				 raw->dev->name,
				 (unsigned long long)raw->dev->caps.msg_sz_max);
	rc = raw->dev->ops->alloc_pd(raw->dev, &raw->pd);
	if (rc)
		return perf_fail(p, rc, "alloc_pd: %s", strerror(-rc));
	return plan_depths(p, raw);
}

static int access_of(const struct perf_opts *o)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
		     IBV_ACCESS_REMOTE_READ;

	if (o->op == PERF_ATOMIC)
		access |= IBV_ACCESS_REMOTE_ATOMIC;
	return access;
}

static int make_qp(struct raw_worker *rw, struct raw_qp *q)
{
	struct raw *raw = rw->raw;
	struct perf *p = rw->w->p;
	struct ibv_qp_init_attr attr = {
		.send_cq = rw->scq,
		.recv_cq = rw->rcq,
		.cap = {.max_send_wr = raw->send_depth,
			.max_recv_wr = raw->recv_depth,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = raw->inline_max},
		.qp_type = IBV_QPT_RC,
	};
	unsigned flags =
		raw->dev->caps.single_threaded ? DEV_QP_SINGLE_THREADED : 0;
	int rc;

	q->wr = calloc(p->o.batch, sizeof(*q->wr));
	q->stamps = calloc(raw->send_depth, sizeof(*q->stamps));
	if (!q->wr || !q->stamps)
		return -ENOMEM;
	/* The first ping is waited for: it may be executed by a thread of the
	 * device, when the peer's memory is mapped, and reads the buffer that
	 * the second one writes. */
	if (!p->o.rate)
		q->since_signal = RAW_SIGNAL_EVERY - 1;
	rc = raw->dev->ops->create_qp(raw->dev, raw->pd, &attr, flags, &q->qp);
	if (rc)
		return perf_fail(p, rc, "create_qp: %s", strerror(-rc));
	rc = dev_qp_init(raw->dev, q->qp, access_of(&p->o));
	if (rc)
		return perf_fail(p, rc, "QP to INIT: %s", strerror(-rc));
	return 0;
}

static int make_cqs(struct raw_worker *rw)
{
	struct raw *raw = rw->raw;
	struct perf *p = rw->w->p;
	uint64_t want[2] = {(uint64_t)raw->send_depth * p->o.qps,
			    (uint64_t)raw->recv_depth * p->o.qps};
	struct ibv_cq **cq[2] = {&rw->scq, &rw->rcq};

	for (int i = 0; i < 2; i++) {
		int rc;

		if (want[i] > raw->dev->caps.cqe_max)
			return perf_fail(p, -EINVAL,
					 "%u QPs with a window of %u need a CQ "
					 "of %llu entries; %s has %u",
					 p->o.qps, p->o.window,
					 (unsigned long long)want[i],
					 raw->dev->name,
					 raw->dev->caps.cqe_max);
		rc = raw->dev->ops->create_cq(raw->dev, (int)want[i], NULL,
					      NULL, cq[i]);
		if (rc)
			return perf_fail(p, rc, "create_cq: %s", strerror(-rc));
	}
	return 0;
}

static int make_worker(struct perf *p, struct raw *raw, unsigned index)
{
	struct raw_worker *rw = &raw->workers[index];
	/* Messages of two QPs may come at once: each has a place of its own. */
	size_t places = p->o.op == PERF_SEND ? p->o.qps : 1;
	size_t len = (1 + places) * raw->stride;
	uint32_t i;
	int rc;

	rw->w = &p->workers[index];
	rw->w->state = rw;
	rw->raw = raw;
	rc = mem_region_new(raw->dev, raw->pd, "perf", len, access_of(&p->o),
			    index + 1, &rw->mem);
	if (rc)
		return perf_fail(p, rc, "cannot get %zu bytes of memory: %s",
				 len, strerror(-rc));
	rw->tx = rw->mem->addr;
	rw->rx = rw->tx + raw->stride;
	rw->tx_sge = (struct ibv_sge){(uintptr_t)rw->tx, (uint32_t)p->o.size,
				      rw->mem->mr->lkey};
	rw->rx_sge = (struct ibv_sge){(uintptr_t)rw->rx, (uint32_t)p->o.size,
				      rw->mem->mr->lkey};
	rc = make_cqs(rw);
	if (rc)
		return rc;
	rw->qps = calloc(p->o.qps, sizeof(*rw->qps));
	if (!rw->qps)
		return -ENOMEM;
	for (i = 0; i < p->o.qps && !rc; i++)
		rc = make_qp(rw, &rw->qps[i]);
	return rc;
}

/* Different at each end and for each QP, as a real start would be. */
static uint32_t psn_of(const struct perf *p, uint32_t index)
{
	return ((index + 1) * PSN_STEP + (p->server ? 0x5a5a : 0)) & 0xffffff;
}

json_t *raw_addr_json(const struct dev_qp_addr *a)
{
	char gid[33];

	for (int b = 0; b < 16; b++)
		sprintf(gid + 2 * b, "%02x", a->gid.raw[b]);
	return json_pack("[s, I, I, i, i, i]", gid, (json_int_t)a->qpn,
			 (json_int_t)a->psn, a->lid, a->mtu, a->rd_atomic);
}

static json_t *describe_worker(const struct perf *p, struct raw_worker *rw)
{
	json_t *qps = json_array();

	for (uint32_t i = 0; i < p->o.qps; i++) {
		struct dev_qp_addr a;

		dev_qp_addr(rw->raw->dev, rw->qps[i].qp, psn_of(p, i), &a);
		json_array_append_new(qps, raw_addr_json(&a));
	}
	return json_pack("{s:I, s:I, s:I, s:o}", "tx",
			 (json_int_t)(uintptr_t)rw->tx, "rx",
			 (json_int_t)(uintptr_t)rw->rx, "rkey",
			 (json_int_t)rw->mem->mr->rkey, "qps", qps);
}

static bool parse_gid(const char *s, union ibv_gid *gid)
{
	for (int b = 0; b < 16; b++) {
		unsigned v;

		if (sscanf(s + 2 * b, "%2x", &v) != 1)
			return false;
		gid->raw[b] = (uint8_t)v;
	}
	return s[32] == 0;
}

bool raw_addr_parse(json_t *j, struct dev_qp_addr *a)
{
	json_int_t qpn, psn;
	int lid, mtu, rd;
	const char *gid;

	if (json_unpack(j, "[s, I, I, i, i, i]", &gid, &qpn, &psn, &lid, &mtu,
			&rd) ||
	    strlen(gid) != 32 || !parse_gid(gid, &a->gid))
		return false;
	if (qpn < 0 || qpn > 0xffffff || psn < 0 || psn > 0xffffff || lid < 0 ||
	    lid > UINT16_MAX || rd < 0 || rd > UINT8_MAX || mtu < IBV_MTU_256 ||
	    mtu > IBV_MTU_4096)
		return false;
	a->qpn = (uint32_t)qpn;
	a->psn = (uint32_t)psn;
	a->lid = (uint16_t)lid;
	a->mtu = (uint8_t)mtu;
	a->rd_atomic = (uint8_t)rd;
	return true;
}

static int connect_worker(struct raw_worker *rw, json_t *j)
{
	struct perf *p = rw->w->p;
	json_int_t tx, rx, rkey;
	json_t *qps;
	int rc;

	if (json_unpack(j, "{s:I, s:I, s:I, s:o}", "tx", &tx, "rx", &rx, "rkey",
			&rkey, "qps", &qps) ||
	    json_array_size(qps) != p->o.qps)
		return perf_fail(p, -EPROTO,
				 "the other end's addresses make no sense");
	rw->peer_tx = (uint64_t)tx;
	rw->peer_rx = (uint64_t)rx;
	rw->peer_rkey = (uint32_t)rkey;
	for (uint32_t i = 0; i < p->o.qps; i++) {
		struct ibv_qp *qp = rw->qps[i].qp;
		struct dev_qp_addr a = {0};

		if (!raw_addr_parse(json_array_get(qps, i), &a))
			return perf_fail(p, -EPROTO,
					 "the other end's QP makes no sense");
		rc = dev_qp_rtr(rw->raw->dev, qp, &a, &rw->raw->opts);
		if (rc)
			return perf_fail(p, rc, "QP 0x%x to RTR: %s",
					 qp->qp_num, dev_qp_rtr_error(rc));
		rc = dev_qp_rts(rw->raw->dev, qp, psn_of(p, i), &a,
				&rw->raw->opts);
		if (rc)
			return perf_fail(p, rc, "QP 0x%x to RTS: %s",
					 qp->qp_num, strerror(-rc));
	}
	return 0;
}

static int fill_receives(struct raw_worker *rw)
{
	struct raw *raw = rw->raw;
	struct perf *p = rw->w->p;

	for (uint32_t i = 0; i < p->o.qps; i++) {
		struct raw_qp *q = &rw->qps[i];
		struct ibv_recv_wr *bad;
		int rc;

		q->recv_sge = rw->rx_sge;
		q->recv_sge.addr += i * raw->stride;
		for (int k = 0; k < RAW_RECV_CHAIN; k++) {
			q->recv[k].wr_id = i;
			q->recv[k].sg_list = &q->recv_sge;
			q->recv[k].num_sge = 1;
			q->recv[k].next =
				k + 1 < RAW_RECV_CHAIN ? &q->recv[k + 1] : NULL;
		}
		for (uint32_t n = 0; n < raw->recv_depth; n += RAW_RECV_CHAIN) {
			rc = dev_post_recv(&rw->w->stats, q->qp, q->recv, &bad);
			if (rc)
				return raw_post_failed(rw, rc);
		}
	}
	return 0;
}

/* Addresses cross, QPs go to RTS, and nobody starts before both are there. */
static int exchange(struct perf *p, struct raw *raw)
{
	json_t *mine = json_array(), *msg, *theirs;
	unsigned i;
	int rc;

	for (i = 0; i < p->o.threads; i++)
		json_array_append_new(mine,
				      describe_worker(p, &raw->workers[i]));
	rc = ctl_send(p->ctl, json_pack("{s:o}", "workers", mine));
	if (rc)
		return perf_gone(p, rc);
	rc = perf_recv(p, PERF_PATIENCE_NS, &msg);
	if (rc)
		return rc;
	theirs = json_object_get(msg, "workers");
	if (json_array_size(theirs) != p->o.threads)
		rc = perf_fail(p, -EPROTO,
			       "the other end's addresses make no sense");
	for (i = 0; i < p->o.threads && !rc; i++)
		rc = connect_worker(&raw->workers[i],
				    json_array_get(theirs, i));
	json_decref(msg);
	for (i = 0; i < p->o.threads && !rc && p->o.op == PERF_SEND; i++)
		rc = fill_receives(&raw->workers[i]);
	if (rc)
		return rc;
	rc = ctl_send(p->ctl, json_pack("{s:b}", "ready", 1));
	if (rc)
		return perf_gone(p, rc);
	rc = perf_recv(p, PERF_PATIENCE_NS, &msg);
	if (!rc)
		json_decref(msg);
	return rc;
}

static int raw_open(struct perf *p)
{
	struct raw *raw = calloc(1, sizeof(*raw));
	int rc;

	p->state = raw;
	if (!raw)
		return -ENOMEM;
	rc = open_device(p, raw);
	if (rc)
		return rc;
	raw->workers = calloc(p->o.threads, sizeof(*raw->workers));
	if (!raw->workers)
		return -ENOMEM;
	for (unsigned i = 0; i < p->o.threads && !rc; i++)
		rc = make_worker(p, raw, i);
	return rc ? rc : exchange(p, raw);
}

static void fini_qp(struct raw *raw, struct raw_qp *q)
{
	if (q->qp)
		raw->dev->ops->destroy_qp(raw->dev, q->qp);
	free(q->wr);
	free(q->stamps);
}

static void fini_worker(struct raw *raw, struct raw_worker *rw, uint32_t qps)
{
	for (uint32_t i = 0; rw->qps && i < qps; i++)
		fini_qp(raw, &rw->qps[i]);
	free(rw->qps);
	if (rw->scq)
		raw->dev->ops->destroy_cq(raw->dev, rw->scq);
	if (rw->rcq)
		raw->dev->ops->destroy_cq(raw->dev, rw->rcq);
	mem_region_free(rw->mem);
}

static void raw_close(struct perf *p)
{
	struct raw *raw = p->state;

	if (!raw)
		return;
	for (unsigned i = 0; raw->workers && i < p->o.threads; i++)
		fini_worker(raw, &raw->workers[i], p->o.qps);
	free(raw->workers);
	if (raw->pd)
		raw->dev->ops->dealloc_pd(raw->dev, raw->pd);
	device_close(raw->env, raw->dev);
	free(raw);
	p->state = NULL;
}

static void aim_wr(struct raw_worker *rw, struct ibv_send_wr *wr)
{
	const struct perf *p = rw->w->p;

	wr->sg_list = &rw->tx_sge;
	wr->num_sge = 1;
	wr->wr.rdma.remote_addr = rw->peer_rx;
	wr->wr.rdma.rkey = rw->peer_rkey;
	switch (p->o.op) {
	case PERF_WRITE:
		wr->opcode = IBV_WR_RDMA_WRITE;
		break;
	case PERF_SEND:
		wr->opcode = IBV_WR_SEND;
		break;
	case PERF_READ:
		wr->opcode = IBV_WR_RDMA_READ;
		wr->sg_list = &rw->rx_sge;
		wr->wr.rdma.remote_addr = rw->peer_tx;
		break;
	default:
		wr->opcode = p->o.atomic == PERF_CMP_SWAP
				     ? IBV_WR_ATOMIC_CMP_AND_SWP
				     : IBV_WR_ATOMIC_FETCH_AND_ADD;
		wr->wr.atomic.remote_addr = rw->peer_rx;
		wr->wr.atomic.rkey = rw->peer_rkey;
		wr->wr.atomic.compare_add = p->o.atomic != PERF_CMP_SWAP;
		wr->wr.atomic.swap = 0;
	}
}

/* Nothing is under way: the ping-pong begins again at 0, with memory in which
 * no old byte looks like the next flag. */
static int raw_resize(struct perf *p)
{
	struct raw *raw = p->state;

	for (unsigned t = 0; t < p->o.threads; t++) {
		struct raw_worker *rw = &raw->workers[t];

		memset(rw->tx, 0, 2 * raw->stride);
		rw->seq = 0;
		rw->tx_sge.length = (uint32_t)p->size;
		rw->rx_sge.length = (uint32_t)p->size;
		for (uint32_t i = 0; i < p->o.qps; i++) {
			struct ibv_send_wr *wr = rw->qps[i].wr;

			memset(wr, 0, sizeof(*wr) * p->o.batch);
			for (uint32_t k = 0; k < p->o.batch; k++) {
				aim_wr(rw, &wr[k]);
				if (sends_data(&p->o) &&
				    p->size <= raw->inline_max)
					wr[k].send_flags = IBV_SEND_INLINE;
				if (k + 1 < p->o.batch)
					wr[k].next = &wr[k + 1];
			}
		}
	}
	return 0;
}

static void raw_counts(struct perf *p, struct perf_counts *c)
{
	const struct raw *raw = p->state;

	*c = (struct perf_counts){.has_wrs = true};
	c->link = dev_qp_link(raw->dev, raw->workers[0].qps[0].qp);
	for (unsigned i = 0; i < p->o.threads; i++) {
		const struct dev_stats *s = &p->workers[i].stats;

		c->wrs += s->send_wrs;
		c->doorbells += s->doorbells;
		c->messages += s->send_wrs; /* each is a message of its own */
	}
}

static int write_client(struct perf_worker *w)
{
	return w->p->o.rate ? raw_rate(w->state) : raw_lat_write(w->state);
}

static int write_server(struct perf_worker *w)
{
	return w->p->o.rate ? 0 : raw_lat_write_server(w->state);
}

static int send_client(struct perf_worker *w)
{
	return w->p->o.rate ? raw_rate(w->state) : raw_lat_send(w->state);
}

static int send_server(struct perf_worker *w)
{
	return w->p->o.rate ? raw_rate_send_server(w->state)
			    : raw_lat_send_server(w->state);
}

static int one_sided_client(struct perf_worker *w)
{
	return w->p->o.rate ? raw_rate(w->state) : raw_lat_one_sided(w->state);
}

#define RAW_OP(name_, client_, server_)                                     \
	{                                                                   \
		.name = name_, .open = raw_open, .resize = raw_resize,      \
		.client = client_, .server = server_, .counts = raw_counts, \
		.close = raw_close,                                         \
	}

const struct perf_op perf_op_write =
	RAW_OP("write", write_client, write_server);
const struct perf_op perf_op_send = RAW_OP("send", send_client, send_server);
const struct perf_op perf_op_read = RAW_OP("read", one_sided_client, NULL);
const struct perf_op perf_op_atomic = RAW_OP("atomic", one_sided_client, NULL);
