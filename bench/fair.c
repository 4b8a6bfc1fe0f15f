/* SPDX-License-Identifier: MIT */
/*
 * fair.c - do two clients of a node service spoil it for the others?
 *
 *	fair [--json] [SECONDS]
 *
 * 16 clients of one service: 14 READ 8 bytes of another node, one each 5 ms; one
 * keeps 4,096 requests outstanding; one posts nonsense, by the calls and by hand
 * into its rings. In slices of a quarter of a second these two rest, burn their
 * cores without the service, and work, by turns. Printed: p99 and rate of the others,
 * with the two at work over each of the other cases; the queue pairs of the service
 * that failed.
 */
#include "base/hist.h"
#include "base/prng.h"
#include "env/local.h"
#include "vqp/node/attach.h"
#include "vqp/node/ring.h"
#include "vqp/node/service.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <sched.h>
#include <signal.h>
#include <skein/skein.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	CLIENTS = 16,
	GOOD = 14, /* then the hog, then the one that posts garbage */
	OUTSTANDING = 4096,
	HOG_VQPS = 35,
	HOG_EACH = 118,
	PORT = 1,
};

/* What the two do, by the slice. */
enum slice_kind {
	REST,
	BURN,
	WORK,
	KINDS,
};

#define TICK_NS 5000000u
#define SLICE_NS 250000000u

/* Of all processes. */
static struct shared {
	char meta[64], path[64], node[72];
	uint64_t raddr;
	uint32_t rkey;
	atomic_int meta_up, far_up, node_up, ready, errors;
	atomic_uint slice; /* 0: it begins */
	atomic_bool over, served;
	struct {
		struct hist hist[KINDS];
		uint64_t ops[KINDS];
	} good[GOOD];
	uint64_t hog_ops, hog_most, refused, detached, cut;
	uint64_t dcis_replaced;
} * all;

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static _Noreturn void die(const char *what, int rc)
{
	fprintf(stderr, "fair: %s: %s\n", what, skein_strerror(rc));
	atomic_fetch_add(&all->errors, 1);
	_exit(1);
}

static void no_log(void *arg, enum skein_log_level level, const char *line)
{
	(void)arg, (void)level, (void)line;
}

static struct skein_ctx *ctx_new(void)
{
	struct skein_ctx_attr a = {.size = sizeof(a), .log = no_log};
	struct skein_ctx *ctx;
	int rc = skein_ctx_open(&a, &ctx);

	if (rc)
		die("context", rc);
	return ctx;
}

/* --- the others' processes ---------------------------------------------- */

static void meta_main(void)
{
	struct skein_ctx *ctx = ctx_new();
	struct skein_meta *meta;
	int rc = skein_meta_open(ctx, "127.0.0.1:0", 64, &meta);

	if (rc)
		die("meta server", rc);
	snprintf(all->meta, sizeof(all->meta), "%s", skein_meta_addr(meta));
	atomic_store(&all->meta_up, 1);
	for (;;) {
		skein_engine_run(skein_ctx_engine(ctx), SKEIN_MS(100));
		skein_meta_progress(meta, NULL);
	}
}

/* The node with the memory that is READ. */
static void far_main(void)
{
	struct skein_pool_attr a = {.size = sizeof(a), .meta = all->meta};
	struct skein_vqp_mem *mem;
	struct skein_pool *pool;
	int rc = skein_pool_open(ctx_new(), &a, &pool);

	if (!rc)
		rc = skein_vqp_mem_new(pool, 4096, IBV_ACCESS_REMOTE_READ,
				       &mem);
	if (rc)
		die("far node", rc);
	snprintf(all->node, sizeof(all->node), "%s", skein_pool_addr(pool));
	all->raddr = skein_vqp_raddr(mem);
	all->rkey = skein_vqp_rkey(mem);
	atomic_store(&all->far_up, 1);
	for (;;) {
		skein_pool_progress(pool);
		usleep(1000);
	}
}

static void node_main(void)
{
	struct skein_node_attr a = {.size = sizeof(a),
				    .meta = all->meta,
				    .clients_max = CLIENTS + 1,
				    .requests_max = OUTSTANDING,
				    .user_times = CLIENTS};
	struct skein_node *node;
	int rc = skein_node_open(ctx_new(), all->path, &a, &node);

	if (rc)
		die("node service", rc);
	atomic_store(&all->node_up, 1);
	while (!atomic_load(&all->served)) {
		skein_node_run(node, SKEIN_MS(50), NULL);
		all->dcis_replaced = node->pool->e.counts.dcis_replaced;
		all->detached = node->stats.detached;
	}
	skein_node_close(node);
	_exit(0);
}

/* --- clients ------------------------------------------------------------ */

static struct skein_pool *pool;
static struct skein_vqp_mem *mem;

static void client_open(void)
{
	struct skein_pool_attr a = {.size = sizeof(a), .node = all->path};
	int rc = skein_pool_open(NULL, &a, &pool);

	if (!rc)
		rc = skein_vqp_mem_new(pool, 4096, 0, &mem);
	if (rc)
		die("client", rc);
}

static struct skein_vqp *vqp_open(void)
{
	struct skein_vqp *v;
	int rc = skein_vqp_new(pool, &v);

	if (!rc)
		rc = skein_vqp_connect(v, all->node, PORT, SKEIN_S(10));
	if (rc)
		die("connect", rc);
	return v;
}

static int read_post(struct skein_vqp *v, uint64_t raddr, uint32_t rkey)
{
	struct ibv_sge sge = {(uintptr_t)skein_vqp_mem_addr(mem), 8,
			      skein_vqp_lkey(mem)};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_READ,
				 .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;

	wr.wr.rdma.remote_addr = raddr;
	wr.wr.rdma.rkey = rkey;
	return skein_vqp_post_send(v, &wr, &bad);
}

/* Ticks that a busy machine lets it miss are no requests: the rate shows them. */
static void good_main(unsigned me)
{
	struct skein_vqp *v;
	struct timespec at;
	struct ibv_wc wc;
	unsigned slice;
	uint64_t due, from;
	int n;

	client_open();
	v = vqp_open();
	for (n = 0; n < KINDS; n++)
		hist_init(&all->good[me].hist[n]);
	atomic_fetch_add(&all->ready, 1);
	due = now() + me * (TICK_NS / GOOD);
	while (!atomic_load(&all->over)) {
		due += TICK_NS;
		at = (struct timespec){(time_t)(due / 1000000000u),
				       (long)(due % 1000000000u)};
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
		slice = atomic_load(&all->slice);
		from = now();
		while (due + TICK_NS < from)
			due += TICK_NS;
		if (read_post(v, all->raddr, all->rkey))
			die("post", -EIO);
		for (n = 0; !n;) {
			n = skein_vqp_poll(v, 1, &wc);
			if (!n)
				sched_yield();
		}
		if (n < 0 || wc.status)
			die("a client that did nothing wrong", -EIO);
		/* of one slice alone */
		if (!slice || slice != atomic_load(&all->slice))
			continue;
		hist_record(&all->good[me].hist[slice % KINDS], now() - from);
		all->good[me].ops[slice % KINDS]++;
	}
	_exit(0);
}

static bool is_now(enum slice_kind kind)
{
	unsigned slice = atomic_load(&all->slice);

	return slice && slice % KINDS == kind;
}

static void pass_time(void)
{
	if (!is_now(BURN))
		usleep(1000);
}

static void hog_main(void)
{
	struct skein_vqp *v[HOG_VQPS];
	unsigned out[HOG_VQPS] = {0}, sum = 0, i;
	struct ibv_wc wc[32];
	int n;

	client_open();
	for (i = 0; i < HOG_VQPS; i++)
		v[i] = vqp_open();
	atomic_fetch_add(&all->ready, 1);
	while (!atomic_load(&all->over)) {
		if (!is_now(WORK) && !sum) {
			pass_time();
			continue;
		}
		for (i = 0; i < HOG_VQPS; i++) {
			while (is_now(WORK) && out[i] < HOG_EACH &&
			       sum < OUTSTANDING &&
			       !read_post(v[i], all->raddr, all->rkey)) {
				out[i]++;
				sum++;
			}
			if (sum > all->hog_most)
				all->hog_most = sum;
			n = skein_vqp_poll(v[i], 32, wc);
			if (n < 0)
				die("hog", n);
			out[i] -= (unsigned)n;
			sum -= (unsigned)n;
			all->hog_ops += (unsigned)n;
		}
	}
	_exit(0);
}

/* One that writes anything into its rings; the service closes them. */
static void rings_spoil(struct prng *rng)
{
	int fd, fds[LOCAL_FDS], n = 0, i;
	uint8_t buf[ATTACH_LEN];
	struct attach_msg m;
	uint32_t *line;
	void *rings;

	if (local_connect(all->path, &fd))
		return;
	attach_fill(&m, ATTACH_HELLO);
	if (!local_send(fd, &m, sizeof(m), NULL, 0) &&
	    local_wait(fd, SKEIN_S(5)) &&
	    local_recv(fd, buf, sizeof(buf), fds, &n) == ATTACH_LEN && n == 2 &&
	    !local_map(fds[0], RING_LEN, true, &rings)) {
		line = (void *)((char *)rings + RING_AT_LINES);
		for (i = 1; i < (int)RING_LINES * 16; i++)
			line[i] = (uint32_t)prng_u64(rng);
		line[0] = 1;
		attach_fill(&m, ATTACH_WAKE);
		local_send(fd, &m, sizeof(m), NULL, 0);
		(void)local_wait(fd, SKEIN_MS(100)); /* it is closed */
		local_unmap(rings, RING_LEN);
		all->cut++;
	}
	for (i = 0; i < n; i++)
		close(fds[i]);
	close(fd);
}

static void garbage_main(void)
{
	struct skein_vqp *v;
	struct prng rng;
	struct ibv_wc wc;
	unsigned round;
	uint64_t end;

	prng_init(&rng, 7);
	client_open();
	atomic_fetch_add(&all->ready, 1);
	for (round = 0; !atomic_load(&all->over); round++) {
		if (!is_now(WORK)) {
			pass_time();
			continue;
		}
		if (round % 16 == 0)
			rings_spoil(&rng);
		/* a region, a range, a place that are not there */
		v = vqp_open();
		read_post(v, prng_u64(&rng),
			  round & 1 ? all->rkey : (uint32_t)prng_u64(&rng));
		end = now() + 1000000000u;
		while (!skein_vqp_poll(v, 1, &wc) && now() < end)
			sched_yield();
		all->refused += wc.status == IBV_WC_REM_ACCESS_ERR;
		skein_vqp_free(v);
	}
	_exit(0);
}

/* --- the parent --------------------------------------------------------- */

static pid_t child(void (*fn)(void))
{
	pid_t pid = fork();

	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		fn();
	}
	return pid;
}

static void until(atomic_int *what, int n)
{
	uint64_t end = now() + 20000000000ull;

	while (atomic_load(what) < n && !atomic_load(&all->errors))
		if (now() > end || usleep(1000))
			die("start", -ETIMEDOUT);
}

static double p99_us(const struct hist *h)
{
	return (double)hist_percentile(h, 99) / 1000;
}

static void report(bool json, double seconds)
{
	double lo = 1e9, hi = 0, r, load = 0, p[KINDS];
	struct hist sum;
	unsigned i, k;

	for (k = 0; k < KINDS; k++) {
		hist_init(&sum);
		for (i = 0; i < GOOD; i++)
			hist_merge(&sum, &all->good[i].hist[k]);
		p[k] = p99_us(&sum);
	}
	for (i = 0; i < GOOD; i++) {
		r = (double)all->good[i].ops[WORK] /
		    (double)all->good[i].ops[REST];
		lo = r < lo ? r : lo;
		hi = r > hi ? r : hi;
	}
	(void)getloadavg(&load, 1);
	printf(json ? "{\"clients\": %d, \"outstanding\": %d, "
		      "\"outstanding_max\": %lu, \"seconds\": %.1f, "
		      "\"p99_us_alone\": %.1f, \"p99_us_burn\": %.1f, "
		      "\"p99_us\": %.1f, \"p99_ratio\": %.2f, "
		      "\"p99_ratio_burn\": %.2f, \"rate_ratio_min\": %.3f, "
		      "\"rate_ratio_max\": %.3f, \"shared_qp_errors\": %lu, "
		      "\"hog_requests\": %lu, \"garbage_refused\": %lu, "
		      "\"garbage_rings\": %lu, \"detached\": %lu, "
		      "\"cores\": %ld, \"load_1m\": %.1f}\n"
		    : "%d clients, %d outstanding (%lu), %.1f s\n"
		      "p99 alone %.1f us, beside two that burn their cores %.1f "
		      "us, with the two at work %.1f us: %.2f and %.2f\n"
		      "rates, with over without: %.3f to %.3f\n"
		      "shared queue pairs that failed: %lu\n"
		      "hog: %lu requests; garbage: %lu refused, %lu rings, "
		      "%lu detached\n%ld cores, load %.1f\n",
	       CLIENTS, OUTSTANDING, (unsigned long)all->hog_most, seconds,
	       p[REST], p[BURN], p[WORK], p[WORK] / p[REST], p[WORK] / p[BURN],
	       lo, hi, (unsigned long)all->dcis_replaced,
	       (unsigned long)all->hog_ops, (unsigned long)all->refused,
	       (unsigned long)all->cut, (unsigned long)all->detached,
	       sysconf(_SC_NPROCESSORS_ONLN), load);
}

int main(int argc, char **argv)
{
	bool json = argc > 1 && !strcmp(argv[1], "--json");
	double seconds = argc > 1 + json ? atof(argv[1 + json]) : 8;
	uint64_t end, cut;
	pid_t pid;
	int i;

	all = mmap(NULL, sizeof(*all), PROT_READ | PROT_WRITE,
		   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (all == MAP_FAILED)
		return 1;
	snprintf(all->path, sizeof(all->path), "/tmp/skein-fair.%d", getpid());
	child(meta_main);
	until(&all->meta_up, 1);
	child(far_main);
	until(&all->far_up, 1);
	child(node_main);
	until(&all->node_up, 1);
	for (i = 0; i < GOOD; i++) {
		pid = fork();
		if (!pid) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			good_main((unsigned)i);
		}
	}
	child(hog_main);
	child(garbage_main);
	until(&all->ready, CLIENTS);
	end = now() + (uint64_t)(seconds * 1e9);
	while (now() < end && !atomic_load(&all->errors)) {
		atomic_fetch_add(&all->slice, 1);
		cut = now() + SLICE_NS;
		while (now() < cut)
			usleep(5000);
	}
	atomic_store(&all->over, true);
	for (i = 0; i < CLIENTS; i++)
		wait(NULL);
	atomic_store(&all->served, true);
	wait(NULL); /* the service; the meta server and the node go with us */
	unlink(all->path);
	if (atomic_load(&all->errors))
		return 1;
	report(json, seconds);
	return 0;
}
