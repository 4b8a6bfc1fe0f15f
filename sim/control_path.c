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
#include <string.h>

#define MANY 24u /* cores, and threads, of KRCore's nodes */
#define EACH 10u
#define HANDSHAKE_NS 377000u /* KRCore 2.3.1: 2.4 % of 15.7 ms */

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
	struct place client, server;
	struct dev_qp_addr at_client, at_server;
	bool asked, server_made, exchanged, connected;
	uint64_t opened_at;
};

static void wait_for(struct sim_world *w, const bool *flag)
{
	while (!*flag)
		sim_sleep(w, 100);
}

static void connect_server(void *arg)
{
	struct pair *c = arg;
	struct place *p = &c->server;
	struct half h;

	wait_for(p->w, &c->asked);
	p->rc = make(p, &h);
	if (p->rc)
		return;
	dev_qp_addr(p->dev, h.qp, 0, &c->at_server);
	c->server_made = true;
	wait_for(p->w, &c->exchanged);
	p->rc = configure(p, &h, &c->at_client);
	c->connected = !p->rc;
}

static void connect_client(void *arg)
{
	struct pair *c = arg;
	struct place *p = &c->client;
	struct half h;

	p->rc = place_open(p);
	c->opened_at = sim_thread_now(p->w);
	c->asked = true;
	if (!p->rc)
		p->rc = make(p, &h);
	if (p->rc)
		return;
	dev_qp_addr(p->dev, h.qp, 0, &c->at_client);
	wait_for(p->w, &c->server_made);
	sim_sleep(p->w, HANDSHAKE_NS);
	c->exchanged = true;
	p->rc = configure(p, &h, &c->at_server);
	wait_for(p->w, &c->connected);
	p->ended_at = sim_thread_now(p->w);
}

static int connection(struct pair *c, struct control_times *t)
{
	struct sim_world *w = c->client.w;
	uint64_t from = sim_now(w);
	int rc = sim_spawn(c->server.proc, "server", connect_server, c);

	if (!rc)
		rc = sim_spawn(c->client.proc, "client", connect_client, c);
	if (rc)
		return rc;
	sim_run(w, from + 100000000);
	if (c->client.rc || c->server.rc || !c->connected)
		return -EIO;
	t->first_us = (double)(c->client.ended_at - from) / 1e3;
	t->connect_us = (double)(c->client.ended_at - c->opened_at) / 1e3;
	return 0;
}

/* --- */

static int measure(struct sim_world *w, const struct nic_model *nic,
		   struct control_times *t)
{
	struct pair c = {.opened_at = 0};
	struct place many;
	int rc = place_new(w, &c.client);

	if (!rc)
		rc = place_new(w, &c.server);
	if (!rc)
		rc = place_new(w, &many);
	/* Outside of all threads nothing takes time. */
	if (!rc)
		rc = place_open(&c.server);
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
