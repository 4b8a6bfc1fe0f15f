/* SPDX-License-Identifier: MIT */
/*
 * verbs_rate.c - how fast the simulator itself is: every thread of every node
 * keeps a window of WRITEs and READs of 64 bytes under way, raw through dev.h,
 * each signalled and each posted alone.
 *
 * A thread has a CQ, a queue pair to a thread of another node, and the passive
 * end of one that leads to it. Figures of wall time and of memory depend on the
 * machine; all others follow from the seed.
 */
#include "dev/dev.h"
#include "dev/sim/link.h"
#include "sim/scenario.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define NODES_MAX 4096u
#define THREADS_MAX 256u
#define WINDOW 16u
#define LEN 64u
#define BATCH 16
#define MS 1000000ull
/* Memory of a window: for each slot the source of a WRITE, the target of a
 * READ, and the bytes that the other end writes and reads. */
#define MEM ((size_t)4 * WINDOW * LEN)

struct rate;

struct rate_thread {
	struct rate *r;
	struct rate_node *node;
	unsigned i;
	struct ibv_cq *cq;
	struct ibv_qp *out, *in;
	struct env_waiter *waiter;
	unsigned char *mem; /* of the node's */
	uint64_t posted, done;
	bool ended;
};

struct rate_node {
	struct rate *r;
	unsigned i;
	struct sim_node *node;
	struct sim_proc *proc;
	struct dev *dev;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	unsigned char *mem;
	int fd;
	struct rate_thread *threads;
};

struct rate {
	struct sim_world *w;
	struct report *rep;
	unsigned n_nodes, n_threads;
	uint64_t ops; /* of a thread */
	struct rate_node *nodes;
	unsigned n_made, n_joined, n_worked;
};

/* The threads that t sends requests to (dir 1), and those that send to t (dir
 * -1). */
static struct rate_thread *other(struct rate_thread *t, int dir)
{
	struct rate *r = t->r;
	unsigned step = 1 + t->i % (r->n_nodes - 1);

	if (dir < 0)
		step = r->n_nodes - step;
	return &r->nodes[(t->node->i + step) % r->n_nodes].threads[t->i];
}

/* --- one thread -------------------------------------------------------- */

static int post(struct rate_thread *t)
{
	struct rate_thread *far = other(t, 1);
	uint64_t n = t->posted;
	size_t slot = n % WINDOW * LEN;
	bool read = n & 1;
	struct ibv_sge sge = {
		.addr = (uintptr_t)t->mem + slot + (read ? WINDOW * LEN : 0),
		.length = LEN,
		.lkey = t->node->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = n,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = (uintptr_t)far->mem + slot +
					   2 * (size_t)WINDOW * LEN,
			    .rkey = far->node->mr->rkey},
	};
	struct ibv_send_wr *bad;

	t->posted++;
	return ibv_post_send(t->out, &wr, &bad);
}

static bool take(struct rate_thread *t, const struct ibv_wc *wc, int n)
{
	for (int i = 0; i < n; i++) {
		if (wc[i].status != IBV_WC_SUCCESS || wc[i].wr_id != t->done) {
			report_fail(t->r->rep,
				    "node %u, thread %u: operation %lu ended "
				    "with status %d",
				    t->node->i, t->i, (unsigned long)t->done,
				    wc[i].status);
			return false;
		}
		t->done++;
	}
	return true;
}

static void work(void *arg)
{
	struct rate_thread *t = arg;
	struct skein_env *env = t->node->dev->env;
	struct ibv_wc wc[BATCH];
	unsigned round = 0;
	int n;

	/* This thread polls its CQ, and no memory that a WRITE changes. */
	sim_watch_memory(t->r->w, false);
	while (t->done < t->r->ops) {
		while (t->posted < t->r->ops && t->posted - t->done < WINDOW)
			if (post(t))
				goto out;
		n = ibv_poll_cq(t->cq, BATCH, wc);
		if (n < 0 || !take(t, wc, n))
			goto out;
		round = n ? 0 : round + 1;
		if (!n)
			env_idle(env, t->waiter, round - 1);
	}
	t->ended = true;
out:
	/* Timers of queue pairs are all that is left. */
	if (++t->r->n_worked == t->r->n_nodes * t->r->n_threads)
		sim_stop(t->r->w);
}

/* --- one node ---------------------------------------------------------- */

static int qp_new(struct rate_thread *t, uint32_t window, struct ibv_qp **qp)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = t->cq,
		.recv_cq = t->cq,
		.cap = {.max_send_wr = window, .max_send_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
	struct dev *dev = t->node->dev;

	return dev->ops->create_qp(dev, t->node->pd, &attr, 0, qp);
}

static int thread_up(struct rate_thread *t)
{
	struct dev *dev = t->node->dev;
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
		     IBV_ACCESS_REMOTE_READ;
	int rc = dev->ops->create_cq(dev, 2 * WINDOW, NULL, NULL, &t->cq);

	if (!rc)
		rc = qp_new(t, WINDOW, &t->out);
	if (!rc)
		rc = qp_new(t, 1, &t->in);
	if (!rc)
		rc = dev_qp_init(dev, t->out, access);
	if (!rc)
		rc = dev_qp_init(dev, t->in, access);
	if (!rc)
		rc = env_waiter_new(dev->env, ENV_WAIT_POLL, &t->waiter);
	return rc;
}

static int node_up(struct rate_node *node)
{
	size_t len = node->r->n_threads * MEM;
	struct skein_env *env = sim_proc_env(node->proc);
	char err[128];
	int rc;

	rc = dev_sim_open(env, "", -1, err, sizeof(err), &node->dev);
	if (!rc)
		rc = node->dev->ops->alloc_pd(node->dev, &node->pd);
	if (!rc)
		rc = env_mem_alloc(env, "rate", len, &node->fd,
				   (void **)&node->mem);
	if (!rc)
		rc = node->dev->ops->reg_mr(node->dev, node->pd, node->mem, len,
					    IBV_ACCESS_LOCAL_WRITE |
						    IBV_ACCESS_REMOTE_WRITE |
						    IBV_ACCESS_REMOTE_READ,
					    -1, 0, &node->mr);
	for (unsigned i = 0; !rc && i < node->r->n_threads; i++) {
		node->threads[i].mem = node->mem + i * MEM;
		rc = thread_up(&node->threads[i]);
	}
	return rc;
}

static int connect_to(struct dev *dev, struct ibv_qp *qp, struct dev *far,
		      struct ibv_qp *far_qp)
{
	struct dev_qp_addr peer;
	int rc;

	dev_qp_addr(far, far_qp, 0, &peer);
	rc = dev_qp_rtr(dev, qp, &peer, NULL);
	return rc ? rc : dev_qp_rts(dev, qp, 0, &peer, NULL);
}

/* Both ends that are this node's. */
static int node_join(struct rate_node *node)
{
	int rc = 0;

	for (unsigned i = 0; !rc && i < node->r->n_threads; i++) {
		struct rate_thread *t = &node->threads[i];
		struct rate_thread *to = other(t, 1), *from = other(t, -1);

		rc = connect_to(node->dev, t->out, to->node->dev, to->in);
		if (!rc)
			rc = connect_to(node->dev, t->in, from->node->dev,
					from->out);
	}
	return rc;
}

static void node_end(void *arg)
{
	struct rate_node *node = arg;
	struct dev *dev = node->dev;

	for (unsigned i = 0; i < node->r->n_threads; i++) {
		struct rate_thread *t = &node->threads[i];

		env_waiter_free(dev->env, t->waiter);
		dev->ops->destroy_qp(dev, t->out);
		dev->ops->destroy_qp(dev, t->in);
		dev->ops->destroy_cq(dev, t->cq);
	}
	dev->ops->dereg_mr(dev, node->mr);
	dev->ops->dealloc_pd(dev, node->pd);
	env_mem_free(dev->env, node->fd, node->mem, node->r->n_threads * MEM);
	dev_close(dev);
}

/* A node's first thread: it sets the node up and runs in each phase. */
static void node_main(void *arg)
{
	struct rate_node *node = arg;
	struct rate *r = node->r;
	int rc = node_up(node);

	r->n_made++;
	while (r->n_made < r->n_nodes)
		sim_sleep(r->w, MS);
	if (!rc)
		rc = node_join(node);
	if (rc)
		report_fail(r->rep, "node %u: %s", node->i, strerror(-rc));
	else
		r->n_joined++;
}

/* --- the run ----------------------------------------------------------- */

static double seconds(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static int build(struct rate *r)
{
	r->nodes = calloc(r->n_nodes, sizeof(*r->nodes));
	if (!r->nodes)
		return -ENOMEM;
	for (unsigned i = 0; i < r->n_nodes; i++) {
		struct rate_node *node = &r->nodes[i];
		char name[24];
		int rc;

		node->r = r;
		node->i = i;
		node->threads = calloc(r->n_threads, sizeof(*node->threads));
		if (!node->threads)
			return -ENOMEM;
		for (unsigned k = 0; k < r->n_threads; k++)
			node->threads[k] = (struct rate_thread){
				.r = r, .node = node, .i = k};
		snprintf(name, sizeof(name), "n%u", i);
		rc = sim_node_new(r->w, name, r->n_threads, &node->node);
		if (!rc)
			rc = sim_proc_new(node->node, name, &node->proc);
		if (!rc)
			rc = sim_spawn(node->proc, "main", node_main, node);
		if (rc)
			return rc;
	}
	return 0;
}

static int start(struct rate *r)
{
	int rc = 0;

	for (unsigned i = 0; i < r->n_nodes; i++)
		for (unsigned k = 0; !rc && k < r->n_threads; k++)
			rc = sim_spawn(r->nodes[i].proc, "work", work,
				       &r->nodes[i].threads[k]);
	return rc;
}

static int finish(struct rate *r)
{
	int rc = 0;

	for (unsigned i = 0; !rc && i < r->n_nodes; i++)
		rc = sim_spawn(r->nodes[i].proc, "end", node_end, &r->nodes[i]);
	sim_run(r->w, ENV_NEVER);
	for (unsigned i = 0; i < r->n_nodes; i++)
		if (sim_proc_bytes(r->nodes[i].proc) ||
		    sim_proc_fds(r->nodes[i].proc))
			report_fail(r->rep,
				    "node %u left %zu bytes, %u "
				    "descriptors",
				    i, sim_proc_bytes(r->nodes[i].proc),
				    sim_proc_fds(r->nodes[i].proc));
	return rc;
}

/* When the measured phase began. */
struct start {
	double wall, cpu;
	uint64_t virt, events;
};

static void figures(struct rate *r, const struct start *s)
{
	double wall = seconds(CLOCK_MONOTONIC) - s->wall;
	double cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - s->cpu;
	uint64_t virt = sim_now(r->w) - s->virt;
	uint64_t events = sim_events(r->w) - s->events;
	double ops = 0;
	struct rusage ru;

	for (unsigned i = 0; i < r->n_nodes; i++)
		for (unsigned k = 0; k < r->n_threads; k++) {
			ops += (double)r->nodes[i].threads[k].done;
			if (!r->nodes[i].threads[k].ended)
				report_fail(r->rep,
					    "node %u, thread %u came to no end",
					    i, k);
		}
	getrusage(RUSAGE_SELF, &ru);
	report_row(r->rep, "nodes", r->n_nodes);
	report_row(r->rep, "threads", r->n_threads);
	report_row(r->rep, "operations", ops);
	report_row(r->rep, "events_per_operation", (double)events / ops);
	report_row(r->rep, "virtual_mops", ops * 1e3 / (double)virt);
	report_row(r->rep, "wall_s", wall);
	report_row(r->rep, "ops_per_wall_s", ops / wall);
	report_row(r->rep, "ops_per_cpu_s", ops / cpu);
	report_row(r->rep, "peak_rss_mib", (double)ru.ru_maxrss / 1024);
}

static void play(struct rate *r)
{
	struct start s;

	sim_run(r->w, ENV_NEVER);
	if (r->n_joined != r->n_nodes) {
		report_fail(r->rep, "set up %u of %u nodes", r->n_joined,
			    r->n_nodes);
		return;
	}
	s = (struct start){seconds(CLOCK_MONOTONIC),
			   seconds(CLOCK_PROCESS_CPUTIME_ID), sim_now(r->w),
			   sim_events(r->w)};
	if (start(r)) {
		report_fail(r->rep, "threads could not be started");
		return;
	}
	sim_run(r->w, ENV_NEVER);
	figures(r, &s);
	if (finish(r))
		report_fail(r->rep, "threads could not be started");
}

static int verbs_rate(const struct scenario_conf *conf, struct report *rep)
{
	struct sim_conf wc = {.seed = conf->seed,
			      .log = conf->log,
			      .log_arg = conf->log_arg,
			      .log_level = ENV_LOG_INFO,
			      .tracer = conf->tracer};
	struct rate r = {.rep = rep};
	int rc;

	r.n_nodes = conf->nodes ? conf->nodes : 16;
	r.n_threads = conf->threads ? conf->threads : 4;
	if (r.n_nodes < 2 || r.n_nodes > NODES_MAX || r.n_threads > THREADS_MAX)
		return -EINVAL;
	r.ops = conf->ops ? conf->ops
			  : 1 + 1000000 / ((uint64_t)r.n_nodes * r.n_threads);
	rc = sim_world_new(&wc, &r.w);
	if (rc)
		return rc;
	if (conf->nic)
		sim_net_set_model(r.w, conf->nic);
	rep->ok = true;
	rc = build(&r);
	if (!rc) {
		play(&r);
		report_world(rep, r.w);
	}
	sim_world_free(r.w);
	for (unsigned i = 0; r.nodes && i < r.n_nodes; i++)
		free(r.nodes[i].threads);
	free(r.nodes);
	return rc;
}

const struct scenario scenario_verbs_rate = {
	.name = "verbs-rate",
	.what = "how fast the simulator is: WRITEs and READs by all threads of "
		"all nodes",
	.sizes = SCENARIO_SIZES,
	.run = verbs_rate,
};
