/* SPDX-License-Identifier: MIT */
/* krcore_bed.c - see krcore_bed.h. */
#include "sim/krcore/krcore_bed.h"

#include "env/sim/sim.h"
#include "vqp/pool.h"

#include <errno.h>
#include <skein/skein.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TARGETS_MAX 16u
#define DEPTH_MAX 64u
#define MEM 65536u
#define MS 1000000ull
#define SETUP_NS (20000 * MS)

struct bed;
struct tenant;

/* A process that serves nothing but its memory. */
struct target {
	struct bed *bed;
	struct sim_node *node;
	struct sim_proc *proc;
	uint8_t gid[16];
	uint32_t port, rkey;
	uint64_t addr;
};

struct client {
	struct tenant *t;
	bool dead;	     /* its target is */
	uint64_t longest_ns; /* of its operations */
	struct vqp *v;
	struct target *to;
	bool connecting;
	/* the request is at the pool then; READs: the next batch */
	uint64_t due_ns;
	unsigned outstanding;
	uint64_t begun[DEPTH_MAX]; /* by number modulo */
	uint32_t posted, done;
};

/* A pool and its clients. */
struct tenant {
	struct bed *bed;
	struct sim_node *node;
	struct sim_proc *proc;
	struct pool *pool;
	struct pool_mem *mem;
	struct client *clients;
	struct prng r;
};

struct bed {
	const struct krcore_bed_conf *conf;
	struct krcore_bed_result *res;
	struct sim_world *w;
	struct sim_node *meta_node[VQP_METAS];
	struct sim_proc *meta_proc[VQP_METAS];
	char meta_addrs[48];
	struct target targets[TARGETS_MAX];
	struct sim_node **nodes;
	struct tenant *tenants;
	struct client *clients;
	unsigned n_tenants;
	unsigned up, ready; /* targets; tenants */
	unsigned metas_up;
	bool go, counting, over;
	int rc;
};

static void failed(struct bed *bed, int rc)
{
	if (rc && !bed->rc)
		bed->rc = rc;
}

/* --- the meta server and the targets ------------------------------------ */

static int ctx_up(struct sim_proc *proc, struct skein_ctx **ctx)
{
	struct skein_ctx_attr a = {.size = sizeof(a), .wait = SKEIN_WAIT_EVENT};

	return ctx_open_env(sim_proc_env(proc), &a, ctx);
}

static unsigned metas_of(const struct bed *bed)
{
	return bed->conf->metas ? bed->conf->metas : 1;
}

static void meta_main(void *arg)
{
	struct bed *bed = arg;
	struct skein_meta *meta;
	struct skein_ctx *ctx;
	int rc = ctx_up(sim_self(bed->w), &ctx);

	if (!rc)
		rc = skein_meta_open(ctx, ":7010", 1024, &meta);
	failed(bed, rc);
	bed->metas_up += !rc;
	while (!rc && !bed->over) {
		skein_engine_run(skein_ctx_engine(ctx), 100 * MS);
		skein_meta_progress(meta, NULL);
	}
}

static int pool_up(struct bed *bed, struct sim_proc *proc, struct pool **p)
{
	struct skein_pool_attr a = {.size = sizeof(a),
				    .meta = bed->meta_addrs,
				    .dcis = bed->conf->dcis,
				    .rcs = bed->conf->rcs};
	struct skein_ctx *ctx;
	int rc = ctx_up(proc, &ctx);

	return rc ? rc : pool_make(ctx, &a, NULL, NULL, p);
}

static void target_main(void *arg)
{
	struct target *to = arg;
	struct bed *bed = to->bed;
	struct pool_mem *mem;
	struct pool *p;
	int rc = pool_up(bed, to->proc, &p);

	if (!rc)
		rc = pool_mem_make(p, MEM,
				   IBV_ACCESS_REMOTE_READ |
					   IBV_ACCESS_REMOTE_WRITE,
				   0, &mem);
	failed(bed, rc);
	if (rc)
		return;
	memcpy(to->gid, p->own.gid, sizeof(to->gid));
	to->port = p->own.port;
	to->addr = mem->base.raddr;
	to->rkey = mem->base.id;
	bed->up++;
	while (!bed->over) {
		pool_round(p); /* renews its record */
		sim_sleep(bed->w, 100 * MS);
	}
}

/* --- clients ------------------------------------------------------------ */

static void ended(struct client *c, uint64_t begun)
{
	struct bed *bed = c->t->bed;
	uint64_t now = sim_thread_now(bed->w) + bed->conf->line_ns;

	if (!bed->counting)
		return;
	if (c->longest_ns < now - begun)
		c->longest_ns = now - begun;
	bed->res->ops++;
	hist_record(&bed->res->hist, now - begun);
}

/* The client sees the end a line later, and its next request is there after
 * one more. */
static void next_due(struct client *c)
{
	const struct krcore_bed_conf *conf = c->t->bed->conf;

	c->due_ns = sim_thread_now(c->t->bed->w) + 2ull * conf->line_ns +
		    conf->rest_ns;
}

static void enter(struct client *c)
{
	const struct krcore_bed_conf *conf = c->t->bed->conf;

	sim_charge(c->t->bed->w, conf->entry_ns + conf->serve_ns);
}

static int vqp_join_to(struct client *c)
{
	struct vqp_engine *e = &c->t->pool->e;
	int rc = vqp_new(e, &c->v);

	if (rc)
		return rc;
	vqp_engine_at(e, env_now_ns(c->t->pool->env));
	rc = vqp_connect(c->v, c->to->gid, c->to->port, 1);
	return rc == -EINPROGRESS ? 0 : rc;
}

static void connected(struct client *c)
{
	bool forget = c->t->bed->conf->op == KRCORE_CONNECT;
	struct vqp_engine *e = &c->t->pool->e;
	struct vqp_peer *p = c->v->peer;

	ended(c, c->begun[0]);
	c->connecting = false;
	vqp_free(c->v);
	c->v = NULL;
	/* Others may have found it meanwhile. */
	if (forget && vqp_peer_find(e, c->to->gid, c->to->port) == p)
		vqp_peer_forget(e, p);
	next_due(c);
}

static int connect_begin(struct client *c, uint64_t now, bool *moved)
{
	int rc;

	if (c->connecting || now < c->due_ns)
		return 0;
	c->begun[0] = c->due_ns - c->t->bed->conf->line_ns;
	*moved = true;
	enter(c);
	rc = vqp_join_to(c);
	c->connecting = true;
	if (!rc && c->v->state == VQP_CONNECTED)
		connected(c);
	return rc;
}

static int post_batch(struct client *c)
{
	const struct krcore_bed_conf *conf = c->t->bed->conf;
	struct ibv_send_wr wr[DEPTH_MAX], *bad;
	struct ibv_sge sge = {(uintptr_t)c->t->mem->base.addr, conf->len,
			      c->t->mem->base.lkey};
	unsigned i;

	memset(wr, 0, conf->batch * sizeof(wr[0]));
	enter(c);
	vqp_engine_at(&c->t->pool->e, env_now_ns(c->t->pool->env));
	for (i = 0; i < conf->batch; i++) {
		wr[i].sg_list = &sge;
		wr[i].num_sge = 1;
		wr[i].send_flags = IBV_SEND_SIGNALED;
		wr[i].opcode = conf->op == KRCORE_READ ? IBV_WR_RDMA_READ
						       : IBV_WR_RDMA_WRITE;
		if (conf->op == KRCORE_WRITE && conf->len <= VQP_INLINE)
			wr[i].send_flags |= IBV_SEND_INLINE;
		wr[i].wr.rdma.remote_addr = c->to->addr;
		wr[i].wr.rdma.rkey = c->to->rkey;
		wr[i].next = i + 1 < conf->batch ? &wr[i + 1] : NULL;
		c->begun[c->posted++ % DEPTH_MAX] = c->due_ns - conf->line_ns;
	}
	c->outstanding += conf->batch;
	return vqp_post_send(c->v, wr, &bad);
}

/* A request has failed. */
static int client_failed(struct client *c)
{
	struct bed *bed = c->t->bed;

	if (bed->conf->death != KRCORE_TARGET_DIES)
		return -EIO;
	if (c->to == &bed->targets[bed->conf->victim])
		bed->res->errors++;
	else
		bed->res->errors_elsewhere++;
	c->dead = true;
	return 0;
}

static int data_step(struct client *c, uint64_t now, bool *moved)
{
	const struct krcore_bed_conf *conf = c->t->bed->conf;
	struct ibv_wc wc[16];
	int n = c->dead ? 0 : vqp_poll(c->v, 16, wc), rc = 0, i;

	for (i = 0; i < n; i++) {
		if (wc[i].status != IBV_WC_SUCCESS)
			return client_failed(c);
		ended(c, c->begun[c->done++ % DEPTH_MAX]);
		c->outstanding--;
	}
	if (n > 0) {
		*moved = true;
		next_due(c);
	}
	if (c->dead || c->outstanding + conf->batch > conf->depth ||
	    now < c->due_ns)
		return n < 0 ? n : 0;
	*moved = true;
	while (c->outstanding + conf->batch <= conf->depth && !rc)
		rc = post_batch(c);
	return rc;
}

/* As look-ups would have found them. */
static int peers_meet(struct pool *p, unsigned n)
{
	struct meta_node node = p->own;

	for (unsigned i = 0; i < n; i++) {
		struct vqp_peer *peer;

		node.port = 1 + i;
		node.key = i;
		peer = vqp_peer_get(&p->e, &node);
		if (!peer)
			return -ENOMEM;
		vqp_peer_put(&p->e, peer); /* it stays in the cache */
	}
	return 0;
}

static int tenant_open(struct tenant *t)
{
	struct bed *bed = t->bed;
	bool connects = bed->conf->op <= KRCORE_CONNECT_CACHED;
	int rc = pool_up(bed, t->proc, &t->pool);

	if (!rc)
		rc = pool_mem_make(t->pool, MEM, 0, 0, &t->mem);
	if (!rc && t == bed->tenants)
		rc = peers_meet(t->pool, bed->conf->peers);
	for (unsigned i = 0; i < bed->conf->clients && !rc && !connects; i++) {
		struct client *c = &t->clients[i];

		rc = vqp_join_to(c);
		while (!rc && c->v->state == VQP_LOOKS_UP) {
			pool_round(t->pool);
			env_yield(t->pool->env);
		}
	}
	return rc;
}

static int round_of(struct tenant *t, bool *moved)
{
	const struct krcore_bed_conf *conf = t->bed->conf;
	bool connects = conf->op <= KRCORE_CONNECT_CACHED;
	struct client *c, *end = t->clients + conf->clients;
	int rc = 0;

	*moved = pool_round(t->pool) > 0;
	/* First all that are connected: the node has left the cache before the
	 * next client asks for it. */
	for (c = t->clients; c < end && connects; c++) {
		if (!c->connecting || c->v->state != VQP_CONNECTED)
			continue;
		connected(c);
		*moved = true;
	}
	for (c = t->clients; c < end && !rc; c++) {
		uint64_t now = sim_thread_now(t->bed->w);

		rc = connects ? connect_begin(c, now, moved)
			      : data_step(c, now, moved);
	}
	return rc;
}

/* Is a request on its way through the ring? */
static bool expects(const struct tenant *t)
{
	for (unsigned i = 0; i < t->bed->conf->clients; i++)
		if (t->clients[i].due_ns > sim_thread_now(t->bed->w))
			return true;
	return false;
}

static void work(struct tenant *t)
{
	struct skein_env *env = t->pool->env;
	struct bed *bed = t->bed;
	struct env_waiter *waiter;
	unsigned idle = 0;
	bool moved;
	int rc = env_waiter_new(env, ENV_WAIT_SPIN, &waiter);

	if (rc) {
		failed(bed, rc);
		return;
	}
	for (unsigned i = 0; i < bed->conf->clients; i++)
		t->clients[i].due_ns =
			sim_thread_now(bed->w) + prng_below(&t->r, 4000);
	while (!rc && !bed->over) {
		rc = round_of(t, &moved);
		if (bed->conf->rest_ns) {
			sim_sleep(bed->w, bed->conf->rest_ns / 50);
		} else if (moved || expects(t)) {
			idle = 0;
			sim_flush(bed->w, 1);
		} else {
			env_idle(env, waiter, idle++);
		}
	}
	failed(bed, rc);
	env_waiter_free(env, waiter);
}

static void tenant_main(void *arg)
{
	struct tenant *t = arg;
	struct bed *bed = t->bed;
	int rc = tenant_open(t);

	failed(bed, rc);
	bed->ready++;
	while (!bed->go && !bed->over) {
		pool_round(t->pool);
		sim_sleep(bed->w, 10 * MS);
	}
	if (!rc && !bed->over)
		work(t);
}

/* --- the run ------------------------------------------------------------ */

static int spawn_at(struct bed *bed, const char *name, struct sim_node **node,
		    struct sim_proc **proc)
{
	int rc = *node ? 0
		       : sim_node_new(bed->w, name, bed->conf->pools + 1, node);

	return rc ? rc : sim_proc_new(*node, name, proc);
}

static int tenants_make(struct bed *bed)
{
	const struct krcore_bed_conf *conf = bed->conf;
	char name[16];
	int rc = 0;

	for (unsigned i = 0; i < bed->n_tenants && !rc; i++) {
		struct tenant *t = &bed->tenants[i];

		t->bed = bed;
		t->clients = &bed->clients[i * conf->clients];
		sim_prng(bed->w, 100 + i, &t->r);
		for (unsigned k = 0; k < conf->clients; k++)
			t->clients[k] = (struct client){
				.t = t,
				.to = &bed->targets[(i * conf->clients + k) %
						    conf->targets]};
		snprintf(name, sizeof(name), "n%u", i / conf->pools);
		rc = spawn_at(bed, name, &bed->nodes[i / conf->pools],
			      &t->proc);
		if (!rc)
			rc = sim_spawn(t->proc, "pool", tenant_main, t);
	}
	return rc;
}

static int servers_make(struct bed *bed)
{
	char name[16];
	int rc = 0;

	snprintf(bed->meta_addrs, sizeof(bed->meta_addrs), "meta0:7010%s",
		 metas_of(bed) > 1 ? ",meta1:7010" : "");
	for (unsigned i = 0; i < metas_of(bed) && !rc; i++) {
		snprintf(name, sizeof(name), "meta%u", i);
		rc = spawn_at(bed, name, &bed->meta_node[i],
			      &bed->meta_proc[i]);
		if (!rc)
			rc = sim_spawn(bed->meta_proc[i], "meta", meta_main,
				       bed);
	}
	while (!rc && bed->metas_up < metas_of(bed) && !bed->rc)
		if (sim_run(bed->w, sim_now(bed->w) + MS) == SIM_END_QUIET)
			return -EDEADLK;
	for (unsigned i = 0; i < bed->conf->targets && !rc; i++) {
		struct target *to = &bed->targets[i];

		to->bed = bed;
		snprintf(name, sizeof(name), "t%u", i);
		rc = spawn_at(bed, name, &to->node, &to->proc);
		if (!rc)
			rc = sim_spawn(to->proc, "target", target_main, to);
	}
	return rc ? rc : bed->rc;
}

static int wait_until(struct bed *bed, const unsigned *n, unsigned want)
{
	uint64_t end = sim_now(bed->w) + SETUP_NS;

	while (*n < want && !bed->rc && sim_now(bed->w) < end)
		sim_run(bed->w, sim_now(bed->w) + 5 * MS);
	if (bed->rc)
		return bed->rc;
	return *n < want ? -ETIMEDOUT : 0;
}

static uint64_t lookups(const struct bed *bed)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < bed->n_tenants; i++)
		n += bed->tenants[i].pool->e.counts.lookups;
	return n;
}

/* Silent first: nobody hears its sockets close. */
static void die(struct bed *bed)
{
	static const struct sim_link down = {.down = true};
	bool target = bed->conf->death == KRCORE_TARGET_DIES;
	struct target *victim = &bed->targets[bed->conf->victim];

	if (bed->conf->death == KRCORE_NO_DEATH)
		return;
	sim_link_set(target ? victim->node : bed->meta_node[0], &down);
	sim_proc_kill(target ? victim->proc : bed->meta_proc[0]);
}

static void count_stalled(struct bed *bed)
{
	struct krcore_bed_result *res = bed->res;
	uint64_t *longest;
	bool stalled;

	for (unsigned i = 0; i < bed->n_tenants * bed->conf->clients; i++) {
		const struct client *c = &bed->clients[i];

		if (c->to == &bed->targets[bed->conf->victim])
			continue;
		res->others++;
		stalled = c->longest_ns > KRCORE_STALL_NS;
		longest = stalled ? &res->longest_ns : &res->rest_longest_ns;
		res->stalled += stalled;
		if (*longest < c->longest_ns)
			*longest = c->longest_ns;
	}
}

static void measure(struct bed *bed)
{
	struct krcore_bed_result *res = bed->res;
	uint64_t from, were;

	bed->go = true;
	/* All tenants look within 10 ms. */
	sim_run(bed->w, sim_now(bed->w) + 10 * MS + bed->conf->warm_ns);
	were = lookups(bed);
	from = sim_now(bed->w);
	bed->counting = true;
	die(bed);
	sim_run(bed->w, from + bed->conf->run_ns);
	bed->counting = false;
	count_stalled(bed);
	krcore_mem_of_pool(bed->tenants[0].pool, &res->mem);
	res->lookups = lookups(bed) - were;
	res->mops = (double)res->ops * 1e3 / (double)bed->conf->run_ns;
	bed->over = true;
}

static int play(struct bed *bed)
{
	int rc = servers_make(bed);

	if (!rc)
		rc = wait_until(bed, &bed->up, bed->conf->targets);
	if (!rc)
		rc = tenants_make(bed);
	if (!rc)
		rc = wait_until(bed, &bed->ready, bed->n_tenants);
	if (!rc)
		measure(bed);
	return rc ? rc : bed->rc;
}

int krcore_bed_run(const struct krcore_bed_conf *conf,
		   struct krcore_bed_result *res)
{
	struct sim_conf wc = {.seed = conf->seed};
	struct bed bed = {.conf = conf,
			  .res = res,
			  .n_tenants = conf->nodes * conf->pools};
	int rc = -ENOMEM;

	if (!conf->targets || conf->targets > TARGETS_MAX ||
	    conf->depth > DEPTH_MAX || conf->batch > conf->depth)
		return -EINVAL;
	*res = (struct krcore_bed_result){0};
	hist_init(&res->hist);
	bed.nodes = calloc(conf->nodes, sizeof(struct sim_node *));
	bed.tenants = calloc(bed.n_tenants, sizeof(*bed.tenants));
	bed.clients = calloc((size_t)bed.n_tenants * conf->clients,
			     sizeof(*bed.clients));
	if (bed.nodes && bed.tenants && bed.clients)
		rc = sim_world_new(&wc, &bed.w);
	if (!rc) {
		sim_net_set_model(bed.w, conf->nic);
		rc = play(&bed);
		res->hash = sim_hash(bed.w);
		res->virtual_ns = sim_now(bed.w);
		res->events = sim_events(bed.w);
		sim_world_free(bed.w);
	}
	free(bed.nodes);
	free(bed.tenants);
	free(bed.clients);
	return rc;
}
