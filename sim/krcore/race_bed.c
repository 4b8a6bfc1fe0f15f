/* SPDX-License-Identifier: MIT */
/* race_bed.c - see race_bed.h. */
#include "sim/krcore/race_bed.h"

#include "dev/sim/link.h"
#include "race/race.h"
#include "sim/end.h"
#include "sim/krcore/krcore.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TABLE ((size_t)4 << 20)
#define DIR_BITS 6u
#define KEYS 4096u
/* With a key of 8 bytes a record of one line. Assumed. */
#define VALUE_LEN 32u
/* A GET that finds another record with the key's fingerprint READs that too. */
#define LISTS_MAX 4u
#define READS_MAX 6u
#define STORAGES_MAX 4u
#define GETS_MAX 32u
#define GET_BUF 512u
#define POLL_MAX 16

struct list {
	unsigned n;
	struct {
		uint32_t at, len;
	} read[READS_MAX];
};

struct get {
	unsigned n;
	struct list list[LISTS_MAX];
};

/* apps/race on plain memory. */
struct table {
	uint8_t *mem;
	struct get *get; /* where the lists are kept; NULL: nowhere */
	bool marks;
};

struct storage {
	struct end end;
	struct ibv_qp *dct;
};

struct run {
	const struct get *get;
	struct storage *from;
	unsigned list, read; /* read: one_by_one */
	uint64_t begun;
};

struct client {
	struct bed *bed;
	struct end end;
	struct ibv_qp *qp[STORAGES_MAX];
	struct ibv_ah *ah[STORAGES_MAX];
	struct run runs[GETS_MAX];
	struct dev_stats stats;
	struct prng r;
};

struct bed {
	const struct race_bed_conf *conf;
	struct race_bed_result *res;
	struct sim_world *w;
	struct sim_node **nodes;
	struct table table;
	struct get *gets; /* of each key */
	struct storage storages[STORAGES_MAX];
	struct client *clients;
	unsigned n_clients;
	uint64_t ops, reads;
	bool counting, over;
	int rc;
};

/* --- the table ------------------------------------------------------------ */

static void keep(struct table *t, const struct race_req *reqs, unsigned n)
{
	struct get *g = t->get;
	struct list *l;

	if (g->n == LISTS_MAX)
		return;
	l = &g->list[g->n++];
	for (unsigned i = 0; i < n; i++) {
		if (!t->marks && reqs[i].len == 8)
			continue;
		l->read[l->n].at = (uint32_t)reqs[i].at;
		l->read[l->n++].len = reqs[i].len;
	}
}

static int table_run(void *arg, const struct race_req *reqs, unsigned n)
{
	struct table *t = arg;

	if (t->get)
		keep(t, reqs, n);
	for (unsigned i = 0; i < n; i++) {
		const struct race_req *q = &reqs[i];
		uint8_t *at = t->mem + q->at;
		uint64_t was, is = q->value;

		if (q->verb == RACE_READ) {
			memcpy(q->buf, at, q->len);
			continue;
		}
		if (q->verb == RACE_WRITE) {
			memcpy(at, q->buf, q->len);
			continue;
		}
		memcpy(&was, at, 8);
		is += q->verb == RACE_FAA ? was : 0;
		memcpy(q->buf, &was, 8);
		if (q->verb == RACE_FAA || was == q->compare)
			memcpy(at, &is, 8);
	}
	return 0;
}

static int table_use(struct bed *bed, struct race *r)
{
	uint8_t value[VALUE_LEN];
	size_t len;
	int rc = race_open(r, &r->port);

	for (uint64_t key = 0; key < KEYS && !rc; key++) {
		memset(value, (int)key, sizeof(value));
		rc = race_insert(r, &key, sizeof(key), value, sizeof(value));
	}
	/* By now no subtable is split any more. */
	for (uint64_t key = 0; key < KEYS && !rc; key++) {
		bed->table.get = &bed->gets[key];
		len = sizeof(value);
		rc = race_get(r, &key, sizeof(key), value, &len);
	}
	return rc;
}

static int table_make(struct bed *bed)
{
	struct race *r = calloc(1, sizeof(*r));
	int rc = -ENOMEM;

	bed->table.marks = bed->conf->marks;
	bed->table.mem = calloc(1, TABLE);
	bed->gets = calloc(KEYS, sizeof(*bed->gets));
	if (!r || !bed->table.mem || !bed->gets)
		goto out;
	r->port = (struct race_port){table_run, &bed->table,
				     malloc(RACE_SCRATCH)};
	if (!r->port.scratch)
		goto out;
	rc = race_format(bed->table.mem, TABLE, DIR_BITS, RACE_GROUPS_MAX);
	if (!rc)
		rc = table_use(bed, r);
	free(r->port.scratch);
out:
	free(r);
	return rc;
}

/* --- making it ------------------------------------------------------------ */

static int storage_up(struct storage *s, struct sim_node *node,
		      const struct bed *bed)
{
	int rc = end_up(&s->end, node, TABLE, 1);

	if (rc)
		return rc;
	memcpy(s->end.mem, bed->table.mem, TABLE);
	return bed->conf->dc ? end_dct(&s->end, &s->dct) : 0;
}

static int join(struct client *c, unsigned i)
{
	const struct race_bed_conf *conf = c->bed->conf;
	struct storage *s = &c->bed->storages[i];
	unsigned depth = conf->gets * READS_MAX;
	int rc;

	if (!conf->dc)
		return end_rc(&c->end, &s->end, depth, 0, false, &c->qp[i]);
	rc = end_dci(&c->end, depth, false, &c->qp[i]);
	return rc ? rc : end_ah(&c->end, &s->end, s->dct, &c->ah[i]);
}

static int client_up(struct bed *bed, unsigned i, struct sim_node *node)
{
	const struct race_bed_conf *conf = bed->conf;
	struct client *c = &bed->clients[i];
	int rc;

	c->bed = bed;
	sim_prng(bed->w, 1000 + i, &c->r);
	rc = end_up(&c->end, node, (size_t)conf->gets * GET_BUF,
		    conf->gets + 1);
	for (unsigned k = 0; k < conf->storages && !rc; k++)
		rc = join(c, k);
	return rc;
}

static int nodes_up(struct bed *bed)
{
	const struct race_bed_conf *conf = bed->conf;
	struct sim_node **node = bed->nodes;
	int rc = 0;

	for (unsigned i = 0; i < conf->storages && !rc; i++) {
		rc = sim_node_new(bed->w, "storage", KRCORE_CORES, &node[i]);
		if (!rc)
			rc = storage_up(&bed->storages[i], node[i], bed);
	}
	node += conf->storages;
	for (unsigned i = 0; i < conf->nodes && !rc; i++)
		rc = sim_node_new(bed->w, "node", KRCORE_CORES, &node[i]);
	for (unsigned i = 0; i < bed->n_clients && !rc; i++)
		rc = client_up(bed, i, node[i / conf->clients]);
	return rc;
}

/* --- running it ----------------------------------------------------------- */

static uint8_t *buf_of(struct client *c, unsigned i)
{
	return (uint8_t *)c->end.mem + (size_t)i * GET_BUF;
}

/* Posts READs first to last - 1 of the list, with one doorbell; the last one
 * has a completion. */
static int post(struct client *c, unsigned i, unsigned first, unsigned last)
{
	struct run *run = &c->runs[i];
	const struct list *l = &run->get->list[run->list];
	struct ibv_send_wr wr[READS_MAX] = {0}, *bad;
	uint64_t to = (uintptr_t)buf_of(c, i);
	struct ibv_sge sge[READS_MAX];
	size_t s = (size_t)(run->from - c->bed->storages);
	unsigned n = 0;

	for (unsigned k = 0; k < last; to += l->read[k++].len) {
		if (k < first)
			continue;
		sge[n] = (struct ibv_sge){to, l->read[k].len, c->end.mr->lkey};
		wr[n].wr_id = i;
		wr[n].sg_list = &sge[n];
		wr[n].num_sge = 1;
		wr[n].opcode = IBV_WR_RDMA_READ;
		wr[n].wr.rdma.remote_addr =
			(uintptr_t)run->from->end.mem + l->read[k].at;
		wr[n].wr.rdma.rkey = run->from->end.mr->rkey;
		wr[n].next = &wr[n + 1];
		n++;
	}
	wr[n - 1].next = NULL;
	wr[n - 1].send_flags = IBV_SEND_SIGNALED;
	sim_charge(c->bed->w, c->bed->conf->entry_ns);
	c->bed->reads += c->bed->counting ? n : 0;
	return c->bed->conf->dc ? c->end.dev->ops->post_dc(
					  c->end.dev, c->qp[s], wr, c->ah[s],
					  run->from->dct->qp_num, END_DC_KEY)
				: dev_post_send(&c->stats, c->qp[s], wr, &bad);
}

static int list_begin(struct client *c, unsigned i)
{
	struct run *run = &c->runs[i];

	run->read = 1;
	return post(c, i, 0,
		    c->bed->conf->one_by_one ? 1 : run->get->list[run->list].n);
}

static int get_begin(struct client *c, unsigned i)
{
	struct bed *bed = c->bed;
	uint64_t s = prng_below(&c->r, bed->conf->storages);

	c->runs[i] = (struct run){.get = &bed->gets[prng_below(&c->r, KEYS)],
				  .from = &bed->storages[s],
				  .begun = sim_thread_now(bed->w)};
	return list_begin(c, i);
}

/* Is what the list has brought what the table has? */
static bool same(struct client *c, unsigned i)
{
	const struct run *run = &c->runs[i];
	const struct list *l = &run->get->list[run->list];
	const uint8_t *buf = buf_of(c, i);

	for (unsigned k = 0; k < l->n; buf += l->read[k++].len)
		if (memcmp(buf, c->bed->table.mem + l->read[k].at,
			   l->read[k].len))
			return false;
	return true;
}

static int take(struct client *c, const struct ibv_wc *wc)
{
	unsigned i = (unsigned)wc->wr_id;
	struct run *run = &c->runs[i];
	struct bed *bed = c->bed;

	if (wc->status != IBV_WC_SUCCESS)
		return -EIO;
	if (bed->conf->one_by_one && run->read < run->get->list[run->list].n) {
		run->read++;
		return post(c, i, run->read - 1, run->read);
	}
	if (!same(c, i))
		return -EBADMSG;
	if (++run->list < run->get->n)
		return list_begin(c, i);
	if (bed->counting) {
		bed->ops++;
		hist_record(&bed->res->hist,
			    sim_thread_now(bed->w) - run->begun);
	}
	return get_begin(c, i);
}

static int work(struct client *c, struct env_waiter *waiter)
{
	struct ibv_wc wc[POLL_MAX];
	unsigned idle = 0;
	int rc = 0, n;

	/* Not all at one moment. */
	sim_charge(c->bed->w, prng_below(&c->r, 2000));
	for (unsigned i = 0; i < c->bed->conf->gets && !rc; i++)
		rc = get_begin(c, i);
	while (!rc && !c->bed->over) {
		n = dev_poll_cq(&c->stats, c->end.cq, POLL_MAX, wc);
		for (int i = 0; i < n && !rc; i++)
			rc = take(c, &wc[i]);
		if (n > 0)
			idle = 0;
		else
			env_idle(c->end.env, waiter, idle++);
	}
	return rc;
}

static void client_main(void *arg)
{
	struct client *c = arg;
	struct env_waiter *waiter;
	int rc = env_waiter_new(c->end.env, ENV_WAIT_SPIN, &waiter);

	if (!rc) {
		rc = work(c, waiter);
		env_waiter_free(c->end.env, waiter);
	}
	if (rc && !c->bed->rc)
		c->bed->rc = rc;
}

static int play(struct bed *bed)
{
	const struct race_bed_conf *conf = bed->conf;
	uint64_t from;
	int rc = nodes_up(bed);

	for (unsigned i = 0; i < bed->n_clients && !rc; i++)
		rc = sim_spawn(bed->clients[i].end.proc, "client", client_main,
			       &bed->clients[i]);
	if (rc)
		return rc;
	sim_run(bed->w, conf->warm_ns);
	from = sim_now(bed->w);
	bed->counting = true;
	sim_run(bed->w, from + conf->run_ns);
	bed->counting = false;
	bed->over = true;
	return bed->rc;
}

int race_bed_run(const struct race_bed_conf *conf, struct race_bed_result *res)
{
	struct sim_conf wc = {.seed = conf->seed};
	struct bed bed = {.conf = conf,
			  .res = res,
			  .n_clients = conf->nodes * conf->clients};
	int rc = -ENOMEM;

	if (!conf->storages || conf->storages > STORAGES_MAX || !conf->gets ||
	    conf->gets > GETS_MAX)
		return -EINVAL;
	*res = (struct race_bed_result){0};
	hist_init(&res->hist);
	bed.nodes = calloc(conf->storages + conf->nodes, sizeof(*bed.nodes));
	bed.clients = calloc(bed.n_clients, sizeof(*bed.clients));
	if (bed.nodes && bed.clients)
		rc = table_make(&bed);
	if (!rc)
		rc = sim_world_new(&wc, &bed.w);
	if (!rc) {
		sim_net_set_model(bed.w, conf->nic);
		rc = play(&bed);
		res->mops = (double)bed.ops * 1e3 / (double)conf->run_ns;
		res->reads = (double)bed.reads / (double)(bed.ops + !bed.ops);
		res->hash = sim_hash(bed.w);
		res->virtual_ns = sim_now(bed.w);
		res->events = sim_events(bed.w);
		sim_world_free(bed.w);
	}
	free(bed.nodes);
	free(bed.clients);
	free(bed.gets);
	free(bed.table.mem);
	return rc;
}
