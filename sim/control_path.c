/* SPDX-License-Identifier: MIT */
/*
 * control_path.c - see control_path.h.
 *
 * A connection is made as KRCore (2.3.1) has it: the client opens its device
 * and registers memory, then both ends make a CQ and a QP at the same time,
 * exchange their addresses, and configure. KRCore exchanges addresses over UD,
 * which the model leaves out: both ends sleep for the time that KRCore gives
 * for it.
 */
#include "sim/control_path.h"

#include "dev/dev.h"
#include "dev/sim/link.h"
#include "env/sim/sim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MANY 24u /* cores, and threads, of KRCore's nodes */
#define EACH 10u
#define HANDSHAKE_NS 377000u /* KRCore 2.3.1: 2.4 % of 15.7 ms */
#define START_MAX_NS (60 * 1000 * 1000 * 1000ull)

/* A process, and what its threads share. */
struct place {
	struct sim_world *w;
	struct sim_node *node;
	struct sim_proc *proc;
	struct skein_env *env;
	struct dev *dev;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	char *mem;
	struct dev_qp_addr peer;
	unsigned running;
	bool whole; /* not create_qp alone */
	uint64_t ended_at;
	int rc;
};

struct half {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

static int place_open(struct place *p)
{
	char err[160];
	int rc = dev_open(p->env, "sim", -1, err, sizeof(err), &p->dev);

	if (!rc)
		rc = p->dev->ops->alloc_pd(p->dev, &p->pd);
	p->mem = env_alloc(p->env, 4096);
	if (!p->mem)
		rc = -ENOMEM;
	if (!rc)
		rc = p->dev->ops->reg_mr(p->dev, p->pd, p->mem, 4096,
					 IBV_ACCESS_LOCAL_WRITE, -1, 0, &p->mr);
	return rc;
}

static int place_new(struct sim_world *w, struct place *p)
{
	int rc;

	memset(p, 0, sizeof(*p));
	p->w = w;
	rc = sim_node_new(w, "n", MANY, &p->node);
	if (!rc)
		rc = sim_proc_new(p->node, "p", &p->proc);
	if (!rc)
		p->env = sim_proc_env(p->proc);
	return rc;
}

static int make_qp(struct place *p, struct half *h)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = h->cq,
		.recv_cq = h->cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 16,
			.max_recv_wr = 16,
			.max_send_sge = 1,
			.max_recv_sge = 1},
	};

	return p->dev->ops->create_qp(p->dev, p->pd, &attr, 0, &h->qp);
}

static int make_cq(struct place *p, struct half *h)
{
	return p->dev->ops->create_cq(p->dev, 32, NULL, NULL, &h->cq);
}

/* A CQ, and a QP in INIT. */
static int make(struct place *p, struct half *h)
{
	int rc = make_cq(p, h);

	if (!rc)
		rc = make_qp(p, h);
	return rc ? rc : dev_qp_init(p->dev, h->qp, 0);
}

static int configure(struct place *p, struct half *h,
		     const struct dev_qp_addr *peer)
{
	int rc = dev_qp_rtr(p->dev, h->qp, peer, NULL);

	return rc ? rc : dev_qp_rts(p->dev, h->qp, 0, peer, NULL);
}

/* --- one NIC, alone and busy ------------------------------------------- */

static void maker(void *arg)
{
	struct place *p = arg;
	struct half h;
	int rc = 0;

	if (!p->whole)
		rc = make_cq(p, &h);
	for (unsigned i = 0; i < EACH && !rc; i++) {
		rc = p->whole ? make(p, &h) : make_qp(p, &h);
		if (!rc && p->whole)
			rc = configure(p, &h, &p->peer);
	}
	if (rc)
		p->rc = rc;
	p->ended_at = sim_thread_now(p->w);
	p->running--;
}

/* How long n makers take, each EACH times. */
static int makers(struct place *p, unsigned n, bool whole, double *ns)
{
	uint64_t from = sim_now(p->w);

	p->whole = whole;
	p->running = n;
	for (unsigned i = 0; i < n; i++) {
		int rc = sim_spawn(p->proc, "maker", maker, p);

		if (rc)
			return rc;
	}
	sim_run(p->w, from + 60000000000);
	*ns = (double)(p->ended_at - from);
	return p->running ? -EDEADLK : p->rc;
}

static int busy(struct place *p, const struct nic_model *nic,
		struct control_times *t)
{
	double cq = (double)(nic->create_cq_cpu_ns + nic->create_cq_nic_ns);
	double ns = 0;
	int rc = makers(p, 1, false, &ns);

	/* The thread's CQ comes first. */
	t->create_qp_us = (ns - cq) / EACH / 1e3;
	if (!rc)
		rc = makers(p, MANY, false, &ns);
	t->create_qp_nic_us =
		(ns - MANY * (double)nic->create_cq_nic_ns) / MANY / EACH / 1e3;
	if (!rc)
		rc = makers(p, MANY, true, &ns);
	t->qps_per_s = MANY * EACH / ns * 1e9;
	return rc;
}

/* --- a connection ------------------------------------------------------ */

struct pair {
	struct place *client, *server;
	struct dev_qp_addr at_client, at_server;
	bool asked, server_made, exchanged, connected;
	uint64_t opened_at;
	uint64_t look_ns; /* how often an end looks for the other's word */
};

static void wait_for(const struct pair *c, const bool *flag)
{
	while (!*flag)
		sim_sleep(c->client->w, c->look_ns);
}

static void connect_server(void *arg)
{
	struct pair *c = arg;
	struct place *p = c->server;
	struct half h;
	int rc;

	wait_for(c, &c->asked);
	rc = make(p, &h);
	if (!rc) {
		dev_qp_addr(p->dev, h.qp, 0, &c->at_server);
		c->server_made = true;
		wait_for(c, &c->exchanged);
		rc = configure(p, &h, &c->at_client);
	}
	if (rc)
		p->rc = rc;
	c->connected = !rc;
}

/* The client's device is open. */
static int connect_to(struct pair *c)
{
	struct place *p = c->client;
	struct half h;
	int rc;

	c->asked = true;
	rc = make(p, &h);
	if (rc)
		return rc;
	dev_qp_addr(p->dev, h.qp, 0, &c->at_client);
	wait_for(c, &c->server_made);
	sim_sleep(p->w, HANDSHAKE_NS);
	c->exchanged = true;
	rc = configure(p, &h, &c->at_server);
	wait_for(c, &c->connected);
	return rc;
}

static void connect_client(void *arg)
{
	struct pair *c = arg;
	struct place *p = c->client;

	p->rc = place_open(p);
	c->opened_at = sim_thread_now(p->w);
	if (!p->rc)
		p->rc = connect_to(c);
	p->ended_at = sim_thread_now(p->w);
}

static int connection(struct pair *c, struct control_times *t)
{
	struct sim_world *w = c->client->w;
	uint64_t from = sim_now(w);
	int rc = sim_spawn(c->server->proc, "server", connect_server, c);

	if (!rc)
		rc = sim_spawn(c->client->proc, "client", connect_client, c);
	if (rc)
		return rc;
	sim_run(w, from + 100000000);
	if (c->client->rc || c->server->rc || !c->connected)
		return -EIO;
	t->first_us = (double)(c->client->ended_at - from) / 1e3;
	t->connect_us = (double)(c->client->ended_at - c->opened_at) / 1e3;
	return 0;
}

/* --- */

static int measure(struct sim_world *w, const struct nic_model *nic,
		   struct control_times *t)
{
	struct place client, server, many;
	struct pair c = {.client = &client, .server = &server, .look_ns = 100};
	int rc = place_new(w, &client);

	if (!rc)
		rc = place_new(w, &server);
	if (!rc)
		rc = place_new(w, &many);
	/* Outside of all threads nothing takes time. */
	if (!rc)
		rc = place_open(&server);
	if (!rc)
		rc = place_open(&many);
	if (!rc)
		rc = connection(&c, t);
	if (rc)
		return rc;
	many.peer = c.at_server;
	return busy(&many, nic, t);
}

int control_path(const struct nic_model *nic, uint64_t seed,
		 struct control_times *t)
{
	struct sim_conf wc = {.seed = seed};
	struct sim_world *w;
	int rc = sim_world_new(&wc, &w);

	if (rc)
		return rc;
	sim_net_set_model(w, nic);
	rc = measure(w, nic, t);
	t->hash = sim_hash(w);
	t->virtual_ns = sim_now(w);
	t->events = sim_events(w);
	sim_world_free(w);
	return rc;
}

/* --- many processes start ------------------------------------------------- */

struct starter {
	struct start *s;
	struct place place, *use; /* use: the device that it connects with */
	struct pair *pairs;
	uint64_t born_at;
};

struct start {
	const struct control_start *conf;
	struct sim_world *w;
	struct place *nodes, *servers;
	struct starter *starters;
	struct pair *pairs;
	unsigned up;
	uint64_t last_ns;
	int rc;
};

static void starter_main(void *arg)
{
	struct starter *st = arg;
	struct start *s = st->s;
	unsigned n = s->conf->servers * s->conf->qps;
	int rc = 0;

	sim_sleep(s->w, st->born_at);
	if (n && !s->conf->open)
		rc = place_open(&st->place);
	for (unsigned i = 0; i < n && !rc; i++) {
		struct pair *c = &st->pairs[i];

		c->client = st->use;
		c->server = &s->servers[i % s->conf->servers];
		/* A tenth of a millisecond is nothing beside the whole. */
		c->look_ns = 100000;
		rc = sim_spawn(c->server->proc, "server", connect_server, c);
		if (!rc)
			rc = connect_to(c);
	}
	if (rc && !s->rc)
		s->rc = rc;
	s->up++;
	s->last_ns = sim_thread_now(s->w);
}

static int starters_make(struct start *s)
{
	const struct control_start *conf = s->conf;
	unsigned n = conf->servers * conf->qps;
	int rc = conf->nodes ? 0 : -EINVAL;

	for (unsigned i = 0; i < conf->servers && !rc; i++) {
		rc = place_new(s->w, &s->servers[i]);
		if (!rc)
			rc = place_open(&s->servers[i]);
	}
	for (unsigned i = 0; i < conf->nodes && !rc; i++) {
		rc = place_new(s->w, &s->nodes[i]);
		if (!rc)
			rc = place_open(&s->nodes[i]);
	}
	for (unsigned i = 0; i < conf->procs && !rc; i++) {
		struct starter *st = &s->starters[i];
		struct place *node = &s->nodes[i % conf->nodes];

		*st = (struct starter){.s = s,
				       .use = conf->open ? node : &st->place,
				       .pairs = &s->pairs[i * n],
				       .born_at = (i + 1) * conf->spawn_ns};
		st->place = (struct place){.w = s->w, .node = node->node};
		rc = sim_proc_new(node->node, "p", &st->place.proc);
		if (rc)
			break;
		st->place.env = sim_proc_env(st->place.proc);
		rc = sim_spawn(st->use->proc, "starter", starter_main, st);
	}
	return rc;
}

static int start_play(struct start *s)
{
	int rc = starters_make(s);

	while (!rc && s->up < s->conf->procs && !s->rc &&
	       sim_now(s->w) < START_MAX_NS)
		sim_run(s->w, sim_now(s->w) + 10000000);
	if (!rc)
		rc = s->rc;
	return rc || s->up == s->conf->procs ? rc : -ETIMEDOUT;
}

int control_start(const struct nic_model *nic, uint64_t seed,
		  const struct control_start *conf, struct control_times *t)
{
	struct sim_conf wc = {.seed = seed};
	struct start s = {.conf = conf};
	int rc = -ENOMEM;

	s.nodes = calloc(conf->nodes, sizeof(*s.nodes));
	s.servers = calloc(conf->servers + 1, sizeof(*s.servers));
	s.starters = calloc(conf->procs, sizeof(*s.starters));
	s.pairs = calloc((size_t)conf->procs * conf->servers * conf->qps + 1,
			 sizeof(*s.pairs));
	if (s.nodes && s.servers && s.starters && s.pairs)
		rc = sim_world_new(&wc, &s.w);
	if (!rc) {
		sim_net_set_model(s.w, nic);
		rc = start_play(&s);
		t->start_ms = (double)s.last_ns / 1e6;
		t->hash = sim_hash(s.w);
		t->virtual_ns = sim_now(s.w);
		t->events = sim_events(s.w);
		sim_world_free(s.w);
	}
	free(s.nodes);
	free(s.servers);
	free(s.starters);
	free(s.pairs);
	return rc;
}
