/* SPDX-License-Identifier: MIT */
/*
 * world.c - two open devices with memory in lanes, each registered once for
 * every kind of MR.
 */
#include "run.h"
#include "stage.h"

#include "dev/soft/cq/cq.h"
#include "dev/soft/harsh/harsh.h"
#include "dev/soft/soft.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PLAIN_LANE 1
#define NO_WINDOW 2

static void say(void *arg, enum env_log_level level, const char *msg)
{
	(void)arg;
	(void)level;
	if (getenv("CONFORM_LOG"))
		fprintf(stderr, "log: %s\n", msg);
}

static bool is_plain(int lane)
{
	return lane == PLAIN_LANE || lane == SRQ_PAIR + 1;
}

static bool is_soft(const struct node *n)
{
	return !strcmp(n->dev->ops->kind, "soft");
}

/* Where the device has memory windows, most lanes show MR_MORTAL by one: what is
 * true of a region is then true of a window, and its end is an invalidation. */
static bool has_window(const struct node *n, int lane)
{
	return is_soft(n) && lane != NO_WINDOW;
}

int lane_reg(struct node *n, int i, int kind)
{
	const struct mr_def *def = &mr_defs[kind];
	struct lane *l = &n->lane[i];
	int bind =
		kind == MR_MORTAL && has_window(n, i) ? IBV_ACCESS_MW_BIND : 0;

	return n->dev->ops->reg_mr(n->dev, def->foreign ? n->foreign : n->pd,
				   l->mem + def->at, def->end - def->at,
				   def->access | bind, l->fd, def->at,
				   &l->mr[kind]);
}

static int lane_open(struct node *n, int i)
{
	struct lane *l = &n->lane[i];
	void *mem;
	int k, rc;

	if (is_plain(i)) {
		l->fd = -1;
		mem = aligned_alloc(4096, LANE);
		rc = mem ? 0 : -1;
	} else {
		rc = env_mem_alloc(n->env, "lane", LANE, &l->fd, &mem);
	}
	if (rc)
		return rc;
	l->mem = mem;
	memset(mem, 0, LANE);
	for (k = 0; k < MR_KINDS; k++) {
		rc = lane_reg(n, i, k);
		if (rc)
			return rc;
	}
	return 0;
}

static void lane_close(struct node *n, int i)
{
	struct lane *l = &n->lane[i];
	int k;

	if (l->mw)
		ibv_dealloc_mw(l->mw);
	for (k = 0; k < MR_KINDS; k++)
		if (l->mr[k] && l->mr[k] != &l->dead)
			n->dev->ops->dereg_mr(n->dev, l->mr[k]);
	if (is_plain(i))
		free(l->mem);
	else if (l->mem)
		env_mem_free(n->env, l->fd, l->mem, LANE);
}

static int node_open(struct node *n, const char *spec)
{
	char err[256] = "";
	int i, rc;

	rc = dev_open(n->env, spec, -1, err, sizeof(err), &n->dev);
	if (rc) {
		fprintf(stderr, "conform: %s: %s\n", spec, err);
		return rc;
	}
	rc = n->dev->ops->alloc_pd(n->dev, &n->pd);
	if (!rc)
		rc = n->dev->ops->alloc_pd(n->dev, &n->foreign);
	for (i = 0; i < LANES && !rc; i++)
		rc = lane_open(n, i);
	if (rc)
		fprintf(stderr, "conform: %s: no memory: %s\n", spec,
			strerror(-rc));
	return rc;
}

static void node_close(struct node *n)
{
	int i;

	if (!n->dev)
		return;
	if (n->ah)
		n->dev->ops->destroy_ah(n->dev, n->ah);
	for (i = 0; i < LANES; i++)
		lane_close(n, i);
	if (n->foreign)
		n->dev->ops->dealloc_pd(n->dev, n->foreign);
	if (n->pd)
		n->dev->ops->dealloc_pd(n->dev, n->pd);
	dev_close(n->dev);
}

static int broom_open(struct world *w, int d)
{
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
			   IBV_ACCESS_REMOTE_ATOMIC;
	struct broom *b = &w->broom;
	struct node *n = &w->node[d];
	struct ibv_qp_init_attr a = {
		.cap = {.max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1},
		.qp_type = IBV_QPT_RC};
	int rc;

	rc = n->dev->ops->create_cq(n->dev, 4, NULL, NULL, &b->cq[d]);
	a.send_cq = a.recv_cq = b->cq[d];
	if (!rc)
		rc = n->dev->ops->create_qp(n->dev, n->pd, &a, 0, &b->qp[d]);
	if (!rc)
		rc = n->dev->ops->reg_mr(n->dev, n->pd, b->word[d],
					 sizeof(b->word[d]), access, -1, 0,
					 &b->mr[d]);
	return rc ? rc : dev_qp_init(n->dev, b->qp[d], access & ~1);
}

static int ah_open(struct node *n, const struct dev_qp_addr *to)
{
	struct ibv_ah_attr attr;
	int rc = dev_ah_attr(n->dev, to, NULL, &attr);

	return rc ? rc : n->dev->ops->create_ah(n->dev, n->pd, &attr, &n->ah);
}

static int broom_connect(struct world *w)
{
	/* It serves all programs, and no peer dies: on a busy machine half a
	 * second without an answer is no failure. */
	static const struct dev_qp_opts patient = {.timeout = 18};
	struct dev_qp_addr addr[2];
	int d, rc = 0;

	for (d = 0; d < 2; d++)
		dev_qp_addr(w->node[d].dev, w->broom.qp[d], 1, &addr[d]);
	for (d = 0; d < 2 && !rc; d++)
		rc = ah_open(&w->node[d], &addr[!d]);
	for (d = 0; d < 2 && !rc; d++)
		rc = dev_qp_rtr(w->node[d].dev, w->broom.qp[d], &addr[!d],
				&patient);
	for (d = 0; d < 2 && !rc; d++)
		rc = dev_qp_rts(w->node[d].dev, w->broom.qp[d], 1, &addr[!d],
				&patient);
	return rc;
}

static void broom_close(struct world *w)
{
	struct broom *b = &w->broom;
	int d;

	for (d = 0; d < 2; d++) {
		struct dev *dev = w->node[d].dev;

		if (b->qp[d])
			dev->ops->destroy_qp(dev, b->qp[d]);
		if (b->cq[d])
			dev->ops->destroy_cq(dev, b->cq[d]);
		if (b->mr[d])
			dev->ops->dereg_mr(dev, b->mr[d]);
	}
}

void world_peek(struct world *w, int side, struct ibv_sge *g,
		struct ibv_send_wr *wr)
{
	struct broom *b = &w->broom;

	*g = (struct ibv_sge){.addr = (uintptr_t)&b->word[side][1],
			      .length = 8,
			      .lkey = b->mr[side]->lkey};
	wr->sg_list = g;
	wr->num_sge = 1;
	wr->wr.rdma.remote_addr = (uintptr_t)&b->word[!side][0];
	wr->wr.rdma.rkey = b->mr[!side]->rkey;
}

/* The next completion of the broom. */
static int broom_wait(struct world *w, int side)
{
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(w->broom.cq[side], 1, &wc)))
		if (stage_env(side)) /* where time does not pass alone */
			stage_sleep(1000);
	return n < 0 || wc.status != IBV_WC_SUCCESS ? -EIO : 0;
}

uint32_t lane_rkey(const struct lane *l, int kind)
{
	return kind == MR_MORTAL && l->mw ? l->mw->rkey : l->mr[kind]->rkey;
}

int lane_show(struct world *w, int side, int lane, bool open)
{
	const struct mr_def *def = &mr_defs[MR_MORTAL];
	struct lane *l = &w->node[side].lane[lane];
	struct ibv_mw_bind b = {.send_flags = IBV_SEND_SIGNALED};
	uint32_t key;
	int rc;

	if (!l->mw)
		return 0;
	key = l->mw->rkey;
	if (open)
		b.bind_info = (struct ibv_mw_bind_info){
			l->mr[MR_MORTAL], (uintptr_t)l->mem + def->at,
			def->end - def->at, (unsigned)def->access};
	rc = -ibv_bind_mw(w->broom.qp[side], l->mw, &b);
	if (!open) /* requests go on naming it */
		l->mw->rkey = key;
	return rc ? rc : broom_wait(w, side);
}

static int windows_open(struct world *w)
{
	int d, i, rc = 0;

	for (d = 0; d < 2; d++)
		for (i = 0; i < LANES && !rc; i++) {
			if (!has_window(&w->node[d], i))
				continue;
			w->node[d].lane[i].mw =
				ibv_alloc_mw(w->node[d].pd, IBV_MW_TYPE_1);
			rc = w->node[d].lane[i].mw ? lane_show(w, d, i, true)
						   : -errno;
		}
	return rc;
}

uint32_t world_spares(const struct node *n)
{
	uint32_t sum = 0;
	int i;

	for (i = 0; i < CQS && is_soft(n); i++)
		sum += soft_cq_of(n->cq[i])->spares_taken;
	return sum;
}

int world_sweep(struct world *w)
{
	struct broom *b = &w->broom;
	struct ibv_send_wr *bad;
	int d, rc;

	for (d = 0; d < 2; d++) {
		struct ibv_sge g = {.addr = (uintptr_t)&b->word[d][1],
				    .length = 8,
				    .lkey = b->mr[d]->lkey};
		struct ibv_send_wr wr = {
			.sg_list = &g,
			.num_sge = 1,
			.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.atomic = {.remote_addr = (uintptr_t)&b->word[!d][0],
				      .rkey = b->mr[!d]->rkey}};

		rc = ibv_post_send(b->qp[d], &wr, &bad);
		if (rc)
			return -rc;
	}
	for (d = 0; d < 2; d++) {
		rc = broom_wait(w, d);
		if (rc)
			return rc;
	}
	return 0;
}

static int envs_open(struct world *w)
{
	int i;

	w->env = stage_env(0);
	if (!w->env) {
		if (env_real_new(&w->env))
			return -1;
		w->env->log = say;
		w->env->log_level = ENV_LOG_WARN;
	}
	for (i = 0; i < 2; i++)
		w->node[i].env = stage_env(i) ? stage_env(i) : w->env;
	return 0;
}

static bool over_link(void)
{
	const char *v = getenv("SKEIN_LINK");

	return v && (!strcmp(v, "udp") || !strcmp(v, "tcp"));
}

int world_open(struct world *w, const char *spec, const char *spec2)
{
	bool soft, sim;

	memset(w, 0, sizeof(*w));
	if (envs_open(w))
		return -1;
	if (node_open(&w->node[0], spec) || node_open(&w->node[1], spec2) ||
	    broom_open(w, 0) || broom_open(w, 1) || broom_connect(w) ||
	    windows_open(w)) {
		fprintf(stderr, "conform: the world does not open\n");
		world_close(w);
		return -1;
	}
	soft = is_soft(&w->node[0]);
	sim = stage_env(0) != NULL;
	if (!soft && !sim)
		w->quirks = M_QUIRK_RXE;
	else if (getenv("SKEIN_SOFT_HARSH") && *getenv("SKEIN_SOFT_HARSH"))
		w->quirks = M_QUIRK_HARSH;
	/* An answer that is lost for good is noticed after 2 ms on soft; an
	 * emulated machine may need longer to answer at all, and on the link
	 * one waits for a thread, on a busy machine. */
	w->opts.timeout = soft || sim ? 8 : 15;
	w->opts.retry_cnt = soft || sim ? 1 : 2;
	if (soft && over_link()) {
		w->quirks |= M_QUIRK_LINK;
		w->opts.timeout = 17;
		w->opts.retry_cnt = 2;
	}
	if (stage_loss())
		w->opts.retry_cnt = 7;
	w->patience_ns = 20 * 1000000000ull;
	w->opts.min_rnr_timer = 1;
	return 0;
}

void world_begin(struct world *w, uint64_t seed)
{
	uint64_t d;

	if (!(w->quirks & M_QUIRK_HARSH) || stage_env(0))
		return;
	for (d = 0; d < 2; d++)
		soft_harsh_begin(soft_of_dev(w->node[d].dev),
				 (w->round << 1 | d) << 40 ^ seed);
}

void world_close(struct world *w)
{
	broom_close(w);
	node_close(&w->node[1]);
	node_close(&w->node[0]);
	if (!stage_env(0))
		env_real_free(w->env);
}
