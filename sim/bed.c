/* SPDX-License-Identifier: MIT */
/* bed.c - see bed.h. */
#include "sim/bed.h"

#include "base/assert.h"
#include "sim/end.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define POLL_MAX 16
#define BATCH_MAX 32u
#define DCIS_MAX 16u

struct lane {
	struct ibv_qp *qp;
	struct ibv_ah *ah; /* over a DCI */
	struct target *to;
	uint64_t *begun; /* by request, modulo depth */
	uint32_t head, tail;
};

struct bed;

struct target {
	struct end end;
	struct ibv_qp *dct;
};

struct issuer {
	struct bed *bed;
	struct end end;
	struct lane *lanes;
	struct ibv_qp *dci[DCIS_MAX];
	unsigned outstanding;
	uint64_t burst_at;
	struct dev_stats stats;
	struct prng r;
};

struct bed {
	const struct bed_conf *conf;
	struct sim_world *w;
	struct sim_node **nodes; /* targets, then issuers' */
	struct target *targets;
	struct issuer *issuers;
	unsigned n_issuers;
	bool counting, over;
	uint64_t ops, lat_sum, bursts, burst_sum;
	int rc;
};

/* --- making it --------------------------------------------------------- */

static unsigned dcis_of(const struct bed_conf *conf)
{
	return conf->dcis ? conf->dcis : 1;
}

static int dcis_up(struct issuer *is)
{
	int rc = 0;

	for (unsigned i = 0; i < dcis_of(is->bed->conf) && !rc; i++)
		rc = end_dci(&is->end, is->bed->conf->depth, true, &is->dci[i]);
	return rc;
}

static int dc_lane_up(struct issuer *is, struct lane *l)
{
	l->qp = is->dci[(unsigned)(l - is->lanes) % dcis_of(is->bed->conf)];
	return end_ah(&is->end, &l->to->end, l->to->dct, &l->ah);
}

static int rc_lane_up(struct issuer *is, struct lane *l)
{
	const struct bed_conf *conf = is->bed->conf;

	return end_rc(&is->end, &l->to->end, conf->depth,
		      conf->inlined ? conf->len : 0, true, &l->qp);
}

static int lane_up(struct issuer *is, struct lane *l)
{
	const struct bed_conf *conf = is->bed->conf;

	l->begun = calloc(conf->depth, sizeof(*l->begun));
	if (!l->begun)
		return -ENOMEM;
	return conf->dc ? dc_lane_up(is, l) : rc_lane_up(is, l);
}

static int issuer_up(struct bed *bed, unsigned i)
{
	const struct bed_conf *conf = bed->conf;
	struct issuer *is = &bed->issuers[i];
	int rc;

	skein_assert(conf->targets > 0);
	is->bed = bed;
	sim_prng(bed->w, 1000 + i, &is->r);
	rc = end_up(&is->end, bed->nodes[conf->targets + i / conf->issuers],
		    conf->len, conf->qps * conf->depth + 1);
	if (!rc && conf->dc)
		rc = dcis_up(is);
	is->lanes = calloc(conf->qps, sizeof(*is->lanes));
	if (!is->lanes)
		rc = -ENOMEM;
	for (unsigned k = 0; k < conf->qps && !rc; k++) {
		is->lanes[k].to =
			&bed->targets[(i * conf->qps + k) % conf->targets];
		rc = lane_up(is, &is->lanes[k]);
	}
	return rc;
}

static int nodes_up(struct bed *bed)
{
	const struct bed_conf *conf = bed->conf;
	unsigned n = conf->targets + conf->issuer_nodes;
	int rc = 0;

	for (unsigned i = 0; i < n && !rc; i++)
		rc = sim_node_new(bed->w, i < conf->targets ? "target" : "node",
				  conf->cores, &bed->nodes[i]);
	for (unsigned i = 0; i < conf->targets && !rc; i++) {
		rc = end_up(&bed->targets[i].end, bed->nodes[i], conf->len, 1);
		if (!rc && conf->dc)
			rc = end_dct(&bed->targets[i].end,
				     &bed->targets[i].dct);
	}
	for (unsigned i = 0; i < bed->n_issuers && !rc; i++)
		rc = issuer_up(bed, i);
	return rc;
}

/* --- running it -------------------------------------------------------- */

/* n requests on a QP, with one doorbell. */
static int issue(struct issuer *is, unsigned k, unsigned n)
{
	const struct bed_conf *conf = is->bed->conf;
	struct ibv_send_wr wr[BATCH_MAX], *bad;
	struct lane *l = &is->lanes[k];
	struct ibv_sge sge = {.addr = (uintptr_t)is->end.mem,
			      .length = conf->len,
			      .lkey = is->end.mr->lkey};
	uint64_t now = sim_thread_now(is->bed->w);

	memset(wr, 0, sizeof(wr));
	for (unsigned i = 0; i < n; i++) {
		wr[i].wr_id = k;
		wr[i].sg_list = &sge;
		wr[i].num_sge = 1;
		wr[i].opcode = conf->opcode;
		wr[i].send_flags = conf->inlined ? IBV_SEND_INLINE : 0;
		wr[i].wr.rdma.remote_addr = (uintptr_t)l->to->end.mem;
		wr[i].wr.rdma.rkey = l->to->end.mr->rkey;
		wr[i].next = i + 1 < n ? &wr[i + 1] : NULL;
		l->begun[l->head++ % conf->depth] = now;
	}
	sim_charge(is->bed->w, conf->entry_ns);
	is->outstanding += n;
	return conf->dc ? is->end.dev->ops->post_dc(is->end.dev, l->qp, wr,
						    l->ah, l->to->dct->qp_num,
						    END_DC_KEY)
			: dev_post_send(&is->stats, l->qp, wr, &bad);
}

static int take(struct issuer *is, const struct ibv_wc *wc)
{
	struct lane *l = &is->lanes[wc->wr_id];
	struct bed *bed = is->bed;
	uint64_t ns;

	if (wc->status != IBV_WC_SUCCESS)
		return -EIO;
	if (bed->counting) {
		bed->ops++;
		ns = sim_thread_now(bed->w) -
		     l->begun[l->tail % bed->conf->depth];
		bed->lat_sum += ns;
		if (bed->conf->hist)
			hist_record(bed->conf->hist, ns);
	}
	l->tail++;
	is->outstanding--;
	return 0;
}

/* Posts the whole burst on QPs drawn at random, once the burst before it has
 * completed. */
static int burst(struct issuer *is)
{
	const struct bed_conf *conf = is->bed->conf;
	uint64_t now = sim_thread_now(is->bed->w);
	int rc = 0;

	if (is->outstanding)
		return 0;
	if (is->bed->counting && is->burst_at) {
		is->bed->bursts++;
		is->bed->burst_sum += now - is->burst_at;
	}
	is->burst_at = now;
	for (unsigned i = 0; i < conf->window && !rc; i++)
		rc = issue(is, (unsigned)prng_below(&is->r, conf->qps), 1);
	return rc;
}

/* What is free is issued again. */
static int refill(struct issuer *is, unsigned k)
{
	const struct bed_conf *conf = is->bed->conf;
	struct lane *l = &is->lanes[k];

	if (conf->window)
		return burst(is);
	while (l->head - l->tail + conf->batch <= conf->depth) {
		int rc = issue(is, k, conf->batch);

		if (rc)
			return rc;
	}
	return 0;
}

static int begin(struct issuer *is)
{
	const struct bed_conf *conf = is->bed->conf;
	int rc = 0;

	/* Not all at one moment. */
	sim_charge(is->bed->w, prng_below(&is->r, 2000));
	for (unsigned k = 0; k < (conf->window ? 1 : conf->qps) && !rc; k++)
		rc = refill(is, k);
	return rc;
}

static int round_of(struct issuer *is, int *n)
{
	struct ibv_wc wc[POLL_MAX];
	int rc = 0;

	*n = dev_poll_cq(&is->stats, is->end.cq, POLL_MAX, wc);
	for (int i = 0; i < *n && !rc; i++) {
		rc = take(is, &wc[i]);
		if (!rc)
			rc = refill(is, (unsigned)wc[i].wr_id);
	}
	return *n < 0 ? *n : rc;
}

static void issuer_main(void *arg)
{
	struct issuer *is = arg;
	struct skein_env *env = is->end.env;
	struct env_waiter *waiter;
	unsigned idle = 0;
	int rc, n;

	rc = env_waiter_new(env, ENV_WAIT_SPIN, &waiter);
	if (rc) {
		is->bed->rc = rc;
		return;
	}
	rc = begin(is);
	while (!rc && !is->bed->over) {
		rc = round_of(is, &n);
		if (n)
			idle = 0;
		else
			env_idle(env, waiter, idle++);
	}
	if (rc)
		is->bed->rc = rc;
	env_waiter_free(env, waiter);
}

static void counts_since(struct sim_nic_counts *now,
			 const struct sim_nic_counts *then)
{
	now->messages_out -= then->messages_out;
	now->messages_in -= then->messages_in;
	now->bytes_out -= then->bytes_out;
	now->doorbells -= then->doorbells;
	now->interrupts -= then->interrupts;
	now->dc_connects -= then->dc_connects;
	now->ctx_hits -= then->ctx_hits;
	now->ctx_misses -= then->ctx_misses;
	now->mr_hits -= then->mr_hits;
	now->mr_misses -= then->mr_misses;
}

static int play(struct bed *bed, struct bed_result *res)
{
	const struct bed_conf *conf = bed->conf;
	struct sim_node *target = bed->nodes[0];
	struct sim_node *issuer = bed->nodes[conf->targets];
	struct sim_nic_counts t, i;
	uint64_t from;
	int rc = 0;

	for (unsigned k = 0; k < bed->n_issuers && !rc; k++)
		rc = sim_spawn(bed->issuers[k].end.proc, "issuer", issuer_main,
			       &bed->issuers[k]);
	if (rc)
		return rc;
	sim_run(bed->w, conf->warm_ns);
	sim_nic_counts(target, &t);
	sim_nic_counts(issuer, &i);
	from = sim_now(bed->w);
	bed->counting = true;
	sim_run(bed->w, from + conf->run_ns);
	bed->counting = false;
	sim_nic_counts(target, &res->target);
	sim_nic_counts(issuer, &res->issuer);
	counts_since(&res->target, &t);
	counts_since(&res->issuer, &i);
	res->ops = bed->ops;
	res->mops = (double)bed->ops * 1e3 / (double)conf->run_ns;
	res->lat_ns = bed->ops ? (double)bed->lat_sum / (double)bed->ops : 0;
	res->burst_ns =
		bed->bursts ? (double)bed->burst_sum / (double)bed->bursts : 0;
	bed->over = true;
	return bed->rc;
}

/* --- */

static void bed_free(struct bed *bed)
{
	if (bed->w)
		sim_world_free(bed->w);
	for (unsigned i = 0; bed->issuers && i < bed->n_issuers; i++) {
		struct issuer *is = &bed->issuers[i];

		for (unsigned k = 0; is->lanes && k < bed->conf->qps; k++)
			free(is->lanes[k].begun);
		free(is->lanes);
	}
	free(bed->issuers);
	free(bed->targets);
	free(bed->nodes);
}

int bed_run(const struct bed_conf *conf, struct bed_result *res)
{
	struct sim_conf wc = {.seed = conf->seed};
	struct bed bed = {
		.conf = conf,
		.n_issuers = conf->issuer_nodes * conf->issuers,
	};
	int rc;

	if (!conf->targets || !conf->issuers || !conf->qps || !conf->depth ||
	    !conf->batch || conf->batch > BATCH_MAX ||
	    conf->batch > conf->depth || conf->window > conf->depth ||
	    conf->dcis > DCIS_MAX)
		return -EINVAL;
	bed.nodes = calloc(conf->targets + conf->issuer_nodes,
			   sizeof(struct sim_node *));
	bed.targets = calloc(conf->targets, sizeof(*bed.targets));
	bed.issuers = calloc(bed.n_issuers, sizeof(*bed.issuers));
	rc = -ENOMEM;
	if (!bed.nodes || !bed.targets || !bed.issuers)
		goto out;
	rc = sim_world_new(&wc, &bed.w);
	if (rc)
		goto out;
	sim_net_set_model(bed.w, conf->nic);
	rc = nodes_up(&bed);
	if (!rc)
		rc = play(&bed, res);
	res->hash = sim_hash(bed.w);
	res->virtual_ns = sim_now(bed.w);
	res->events = sim_events(bed.w);
out:
	bed_free(&bed);
	return rc;
}
