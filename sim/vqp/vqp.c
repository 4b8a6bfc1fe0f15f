/* SPDX-License-Identifier: MIT */
/* vqp.c - nodes and meta servers of the scenario "vqp", and its run; see
 * vqp.h. */
#include "sim/vqp/vqp.h"

#include "conn/ctx.h"
#include "dev/sim/link.h"

#include <errno.h>
#include <skein/skein.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS PARTY_MS
#define FINISH_NS (20000 * MS)

static struct node *node_of(struct actor *a)
{
	return container_of(a, struct node, a);
}

/* --- meta servers ------------------------------------------------------- */

static int meta_up(struct actor *a, struct skein_meta **meta)
{
	struct skein_ctx_attr ca = {.size = sizeof(ca),
				    .wait = SKEIN_WAIT_EVENT};
	int rc = ctx_open_env(actor_env(a), &ca, &a->ctx);

	if (rc)
		return rc;
	rc = skein_meta_open(a->ctx, ":7010", 512, meta);
	if (rc) {
		skein_ctx_close(a->ctx);
		a->ctx = NULL;
	}
	return rc;
}

static void meta_main(void *arg)
{
	struct node *n = arg;
	struct party *p = n->a.party;
	struct skein_meta *meta = NULL;

	while (!p->over && meta_up(&n->a, &meta))
		sim_sleep(p->w, 5 * MS);
	while (!p->over && n->a.ctx) {
		skein_engine_run(skein_ctx_engine(n->a.ctx), 20 * MS);
		skein_meta_progress(meta, NULL);
	}
	if (n->a.ctx) {
		skein_meta_close(meta);
		actor_close(&n->a);
	}
	n->a.ended = true;
}

static void meta_stop(struct actor *a)
{
	if (a->ctx)
		skein_engine_stop(skein_ctx_engine(a->ctx));
}

/* --- a node's memory ---------------------------------------------------- */

static void region_check(struct node *n)
{
	const uint64_t *at = n->region->base.addr;

	for (unsigned i = 0; i < REGION / 8; i++)
		if (at[i] != n->region_id)
			report_fail(n->run->party.rep,
				    "node %u: a region that was given up is "
				    "written to",
				    n->a.i);
}

static int region_make(struct node *n)
{
	int rc = pool_mem_make(n->pool, REGION,
			       IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
			       0, &n->region);
	uint64_t *at;

	if (rc) {
		n->region = NULL;
		return rc;
	}
	at = n->region->base.addr;
	for (unsigned i = 0; i < REGION / 8; i++)
		at[i] = n->region->base.id;
	n->region_addr = n->region->base.raddr;
	n->region_id = n->region->base.id;
	cache_region(n, n->region);
	n->run->regions++;
	return 0;
}

/* Gives the region up, and makes another: after some time, or several at
 * once. */
static void region_turn(struct node *n)
{
	if (node_now(n) < n->region_due_ns)
		return;
	if (n->region) {
		region_check(n);
		pool_mem_retire(n->region);
		n->region = NULL;
		n->region_id = 0;
	}
	(void)region_make(n);
	if (!n->regions_fast && !node_draw(n, 4))
		n->regions_fast = 20;
	n->regions_fast -= n->regions_fast != 0;
	n->region_due_ns =
		node_now(n) + (n->regions_fast ? node_draw(n, 20000)
					       : node_draw(n, 1500 * MS));
}

static int memory_make(struct node *n)
{
	uint64_t *at;
	size_t len = 16 + CLIENTS * (16ul + BUFFERS * IDS * sizeof(*at));
	int rc = pool_mem_make(n->pool, len, 0, 0, &n->local);

	if (!rc)
		rc = pool_mem_make(n->pool, 8ul * WORDS,
				   IBV_ACCESS_REMOTE_READ |
					   IBV_ACCESS_REMOTE_WRITE |
					   IBV_ACCESS_REMOTE_ATOMIC,
				   0, &n->words);
	if (!rc)
		rc = region_make(n);
	if (rc)
		return rc;
	at = n->local->base.addr;
	n->rx = (struct payload *)at;
	at += 2;
	for (unsigned i = 0; i < CLIENTS; i++) {
		struct client *c = &n->clients[i];

		for (unsigned k = 0; k < BUFFERS; k++, at += IDS)
			c->buffer[k] = at;
		c->answer = (struct payload *)at;
		at += 2;
	}
	n->words_addr = n->words->base.raddr;
	n->words_id = n->words->base.id;
	cache_region(n, n->words);
	return 0;
}

/* --- a node's process --------------------------------------------------- */

/* Small queues, and RC queue pairs soon. */
static void engine_draw(struct node *n)
{
	struct vqp_engine *e = &n->pool->e;

	e->plant = n->run->plant;
	e->conf.rc_busy = 1 + (uint32_t)node_draw(n, 60);
	e->conf.sq_max = 2 + (uint32_t)node_draw(n, POOL_SQ - 1);
	e->conf.cq_max = 8 + (uint32_t)node_draw(n, 200);
}

static int bound_make(struct node *n)
{
	struct ibv_sge sge = {(uintptr_t)n->rx, sizeof(*n->rx),
			      n->local->base.lkey};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
	int rc = vqp_new(&n->pool->e, &n->bound);

	n->frees = node_draw(n, 3) ? 40 : FREES;
	if (!rc)
		rc = vqp_bind(n->bound, PORT);
	for (unsigned i = 0; i < VQP_RECVS && !rc; i++)
		rc = vqp_post_recv(n->bound, &wr, &bad);
	return rc;
}

static int pool_up(struct node *n)
{
	struct skein_pool_attr a = {.size = sizeof(a),
				    .meta = n->run->meta,
				    .node_port = (uint16_t)n->port,
				    .timeout_ns = SKEIN_MS(200)};
	int rc;

	a.dcis = (unsigned)(node_draw(n, 2) ? 1 + node_draw(n, 2)
					    : node_draw(n, 9));
	a.rcs = (unsigned)node_draw(n, 5);
	if (node_draw(n, 2))
		a.retry_ns = REGION_RETRY_NS;
	rc = pool_make(n->a.ctx, &a, NULL, NULL, &n->pool);
	if (rc) {
		n->pool = NULL;
		n->unsure = true;
		return rc;
	}
	cache_node(n);
	engine_draw(n);
	rc = memory_make(n);
	if (!rc)
		rc = bound_make(n);
	return rc;
}

static void node_down(struct node *n)
{
	n->words_id = n->region_id = 0;
	if (n->pool) {
		n->run->transfers += n->pool->e.counts.transfers;
		n->run->replaced += n->pool->e.counts.dcis_replaced;
		pool_free(n->pool);
	}
	n->pool = NULL;
	n->region = NULL;
	if (n->a.ctx)
		actor_close(&n->a);
}

static int node_up(struct node *n)
{
	struct skein_ctx_attr ca = {.size = sizeof(ca)};
	int rc;

	ca.wait = (enum skein_wait)node_draw(n, 4);
	rc = ctx_open_env(actor_env(&n->a), &ca, &n->a.ctx);
	if (rc)
		return rc;
	/* a device without DC */
	if (!n->run->naps && !node_draw(n, 4))
		n->a.ctx->dev->caps.dc = false;
	/* Others look it up from now on, before it has written its record. */
	memcpy(n->gid, n->a.ctx->dev->gid.gid.raw, sizeof(n->gid));
	n->known = true;
	rc = pool_up(n);
	if (rc)
		node_down(n);
	return rc;
}

/* A request that comes to memory that is not there breaks a queue pair which
 * others use. */
static void strangers_check(struct node *n)
{
	struct sim_nic_counts c;

	sim_nic_counts(n->a.node, &c);
	if (c.strangers)
		report_fail(n->run->party.rep,
			    "node %u: %lu requests have come to memory that is "
			    "gone",
			    n->a.i, (unsigned long)c.strangers);
}

/* What must hold of an engine at any time. */
static void engine_check(struct node *n)
{
	const struct vqp_engine *e = &n->pool->e;
	const struct vqp_counts *c = &e->counts;
	struct report *rep = n->run->party.rep;

	if (!(n->rounds++ % 32)) {
		strangers_check(n);
		cache_check(n);
	}
	if (e->cq_used > e->conf.cq_max)
		report_fail(rep, "node %u: %u completions for %u", n->a.i,
			    e->cq_used, e->conf.cq_max);
	for (unsigned i = 0; i < e->conf.dcis + e->conf.rcs; i++)
		if (e->qp[i].sq_used > e->conf.sq_max)
			report_fail(rep,
				    "node %u: %u requests in a queue of %u",
				    n->a.i, e->qp[i].sq_used, e->conf.sq_max);
	if (!n->run->books.trouble &&
	    (c->dcis_replaced != c->rnrs || c->rcs_failed || c->refused))
		report_fail(rep,
			    "node %u: %lu DCIs and %lu RC queue pairs have "
			    "failed, %lu posts were refused, in no trouble",
			    n->a.i, (unsigned long)(c->dcis_replaced - c->rnrs),
			    (unsigned long)c->rcs_failed,
			    (unsigned long)c->refused);
}

/* True: something has moved. */
static bool serve(struct node *n)
{
	struct vqp_pop_out m;
	bool moved = pool_round(n->pool) > 0;

	while (vqp_pop(n->bound, &m)) {
		client_message(n, &m);
		moved = true;
	}
	engine_check(n);
	return moved;
}

/* The process does nothing for a while; its NIC goes on. */
static void nap(struct node *n)
{
	static const uint64_t most[] = {20000, 20000, 20000,   20000,
					MS,    MS,    20 * MS, 250 * MS};
	uint64_t ns = most[node_draw(n, 8)];

	if (ns > 20 * MS && n->run->naps)
		ns = 650 * MS;
	sim_sleep(n->run->party.w, 1 + node_draw(n, ns));
}

static void serve_until(struct node *n, uint64_t until_ns, uint64_t pause_ns)
{
	while (node_now(n) < until_ns && n->run->party.rep->ok) {
		serve(n);
		sim_sleep(n->run->party.w, pause_ns);
	}
}

/* A region is read, and given up at once. Its reader does nothing for half a
 * lease or more, then READs it again while the owner's link is down: the request
 * may come when the region is gone, unless the lease was over. */
static void lease_try(struct node *n)
{
	static const struct sim_link sound, down = {.down = true};
	struct client *c = &n->clients[node_draw(n, CLIENTS)];
	struct books *b = &n->run->books;
	uint64_t addr, until;
	struct node *to;
	uint32_t id;

	if (!c->v || !c->rec->connected)
		return;
	to = &n->run->nodes[c->rec->to];
	id = to->region_id;
	addr = to->region_addr;
	if (to == n || !id || !client_region_read(c, id, addr))
		return;
	serve_until(n, node_now(n) + 200000, 2000);
	to->region_due_ns = 0;
	until = node_now(n) + (550 + node_draw(n, 450)) * MS;
	books_trouble(b, n->a.i, FAULT_PAUSE, node_now(n), until);
	sim_sleep(n->run->party.w, until - node_now(n));
	until = node_now(n) + (1 + node_draw(n, 400)) * MS;
	books_trouble(b, to->a.i, FAULT_LINK_DOWN, node_now(n), until);
	sim_link_set(to->a.node, &down);
	if (client_region_read(c, id, addr))
		serve_until(n, until, 100000);
	sim_link_set(to->a.node, &sound);
}

static void work(struct node *n)
{
	while (!actor_over(&n->a) && n->run->party.rep->ok) {
		unsigned rounds = 10 + (unsigned)node_draw(n, 200);

		while (rounds-- && !actor_over(&n->a)) {
			bool moved = serve(n);

			region_turn(n);
			for (unsigned i = 0; i < CLIENTS; i++)
				moved |= client_step(&n->clients[i]);
			sim_sleep(n->run->party.w,
				  1 + node_draw(n, moved ? 3000 : 30000));
		}
		if (n->run->leases && !node_draw(n, 6))
			lease_try(n);
		else
			nap(n);
	}
}

static bool all_through(const struct run *run)
{
	const struct party *p = &run->party;

	for (unsigned i = p->n_servers; i < party_actors(p); i++)
		if (!run->nodes[i].through)
			return false;
	return true;
}

static void hangs(struct node *n)
{
	const struct client *c = n->clients;

	while (!c->v && c < &n->clients[CLIENTS - 1])
		c++;
	report_fail(n->run->party.rep,
		    "node %u does not get through: it has reached %u nodes; a "
		    "vqp to %u is in state %d, on queue pair %d, with %u "
		    "requests, %lu of %lu messages",
		    n->a.i, n->proven, c->v ? c->rec->to : 0,
		    c->v ? (int)c->v->state : -1, c->v ? (int)c->v->qp : -1,
		    c->v ? c->v->n_slots : 0,
		    c->v ? (unsigned long)c->rec->popped : 0,
		    c->v ? (unsigned long)c->rec->sent : 0);
}

/* Serves until all nodes are through. */
static void finish(struct node *n)
{
	uint64_t limit = node_now(n) + FINISH_NS;

	while (!all_through(n->run) && n->run->party.rep->ok) {
		bool moved = serve(n), through = true;

		for (unsigned i = 0; i < CLIENTS; i++)
			through &= client_finish(&n->clients[i]);
		n->through = through && list_empty(&n->pool->e.closing) &&
			     client_ends_known(n) &&
			     n->proven == n->run->party.n_clients;
		if (node_now(n) >= limit && !n->through)
			hangs(n);
		sim_sleep(n->run->party.w, moved ? 2000 : 100000);
	}
}

static void node_main(void *arg)
{
	struct node *n = arg;

	while (!n->run->party.over && node_up(n))
		sim_sleep(n->run->party.w, 5 * MS);
	if (n->pool) {
		work(n);
		finish(n);
		n->a.got_through = true;
		node_down(n);
	}
	n->a.ended = true;
}

/* --- kills and births --------------------------------------------------- */

static void node_born(struct actor *a)
{
	struct node *n = node_of(a);

	n->life++;
	n->killed = false;
	n->port = 1000 * a->i + n->life;
	n->words_id = n->region_id = n->next_word = n->n_records = 0;
	n->pool = NULL;
	n->region = NULL;
	n->region_due_ns = 0;
	n->regions_fast = n->proven = 0;
	n->through = false;
	memset(n->clients, 0, sizeof(n->clients));
	for (unsigned i = 0; i < CLIENTS; i++)
		n->clients[i].node = n;
}

static void node_killed(struct actor *a)
{
	struct node *n = node_of(a);

	a->ctx = NULL; /* meta_stop() */
	n->killed = true;
	n->unsure |= !n->pool;
	n->words_id = n->region_id = 0;
	n->pool = NULL;
	n->through = false;
}

static const struct party_ops party_ops = {
	.servers_max = PARTY_SERVERS_MAX,
	.server = meta_main,
	.client = node_main,
	.born = node_born,
	.killed = node_killed,
	.stop = meta_stop,
};

/* --- the run ------------------------------------------------------------ */

static void struck(void *arg, unsigned i, enum fault kind, uint64_t until_ns)
{
	struct party *p = arg;
	struct run *run = container_of(p, struct run, party);

	books_trouble(&run->books, i, kind, sim_now(p->w), until_ns);
}

/* A third of the runs has deaths and no other trouble; a third has none but
 * what breaks nothing. */
static void trouble_draw(struct run *run, const struct scenario_conf *conf)
{
	const unsigned harmless = 1u << FAULT_LINK_SLOW | 1u << FAULT_DELAY |
				  1u << FAULT_NODE_SLOW;
	struct party *p = &run->party;
	struct prng r;

	sim_prng(p->w, 0x767170, &r);
	run->naps = !prng_below(&r, 2);
	p->end_ns = 100 * MS + prng_below(&r, 2900 * MS);
	run->leases = run->naps && p->end_ns > 1500 * MS && conf->seed % 2;
	if (conf->script)
		return;
	p->faults.mean_ns = p->end_ns / (2 + prng_below(&r, 20));
	if (p->faults.end_ns)
		p->faults.end_ns = p->end_ns;
	switch (prng_below(&r, 3)) {
	case 0:
		p->faults.kinds = harmless;
		break;
	case 1:
		p->faults.kinds =
			harmless | 1u << FAULT_KILL | 1u << FAULT_CRASH;
		break;
	default:
		break;
	}
}

/* Every second seed tears what is read or written for so long that most look-ups
 * of a node that begins meet its record half written. */
static void tear_draw(struct run *run, const struct scenario_conf *conf)
{
	struct sim_tear tear = {.ppm = 500000, .span_ns = 200000};

	if (conf->seed % 2)
		sim_net_set_tear(run->party.w, &tear);
}

/* Both ends live, and no message is under way any more. */
static void records_judge(struct run *run)
{
	for (uint32_t i = 0; i < run->books.n_records; i++) {
		const struct record *r = &run->books.records[i];

		if (r->connected && run->nodes[r->from].life == r->from_life &&
		    run->nodes[r->to].life == r->to_life &&
		    !books_arrived(&run->books, r))
			report_fail(run->party.rep,
				    "from %u to %u: %lu messages of %lu",
				    r->from, r->to, (unsigned long)r->popped,
				    (unsigned long)r->sent);
	}
}

static void figures(struct run *run)
{
	struct report *rep = run->party.rep;

	report_row(rep, "nodes", run->party.n_clients);
	report_row(rep, "meta_servers", run->party.n_servers);
	report_row(rep, "connects", (double)run->connects);
	report_row(rep, "lists", (double)run->lists);
	report_row(rep, "requests", (double)run->requests);
	report_row(rep, "regions", (double)run->regions);
	report_row(rep, "transfers", (double)run->transfers);
	report_row(rep, "dcis_replaced", (double)run->replaced);
}

static int play(struct run *run, const struct scenario_conf *conf,
		struct report *rep)
{
	int rc = party_init(&run->party, &party_ops, conf, rep, run->nodes,
			    sizeof(run->nodes[0]));

	if (rc)
		return rc;
	snprintf(run->meta, sizeof(run->meta), "server:7010%s",
		 run->party.n_servers > 1 ? ",server1:7010" : "");
	run->party.faults.struck = struck;
	trouble_draw(run, conf);
	tear_draw(run, conf);
	party_play(&run->party);
	records_judge(run);
	figures(run);
	party_judge(&run->party);
	party_fini(&run->party);
	return 0;
}

int vqp_play(const struct scenario_conf *conf, enum vqp_plant plant,
	     struct report *rep)
{
	struct run *run = calloc(1, sizeof(*run));
	int rc = -ENOMEM;

	if (!run)
		return rc;
	run->plant = plant;
	run->books.rep = rep;
	run->books.records = calloc(RECORDS_MAX, sizeof(struct record));
	for (unsigned i = 0; i < PARTY_ACTORS_MAX; i++)
		run->nodes[i].run = run;
	if (run->books.records)
		rc = play(run, conf, rep);
	free(run->books.records);
	free(run);
	return rc;
}

static int vqp(const struct scenario_conf *conf, struct report *rep)
{
	return vqp_play(conf, VQP_PLANT_NONE, rep);
}

const struct scenario scenario_vqp = {
	.name = "vqp",
	.what = "pools of virtual queue pairs on one to four nodes, and meta "
		"servers",
	.fuzz = true,
	.run = vqp,
};
