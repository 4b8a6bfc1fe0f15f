/* SPDX-License-Identifier: MIT */
/*
 * vqp_mem.c - what cached peers cost (KRCore fig. 15a).
 *
 *	vqp_mem [--json]
 *
 * A pool meets 5,000 and 15,000 nodes, as look-ups would have found them; another
 * process has 5,000 RC queue pairs. Printed: growth of resident memory, shared
 * memory included, all of which is also what is registered. KRCore's 6.3 MB are
 * with 48 DC queue pairs; ours are the 8 of a pool.
 */
#include "vqp/pool.h"

#include <errno.h>
#include <signal.h>
#include <skein/skein.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define FEW 5000u
#define MANY 15000u

/* Bytes, by the process that measures itself. */
static struct shared {
	char meta[64];
	double few, many, pool, rc;
	int rc_error;
} * all;

static _Noreturn void die(const char *what, int rc)
{
	fprintf(stderr, "vqp_mem: %s: %s\n", what, skein_strerror(rc));
	_exit(1);
}

static double resident(void)
{
	FILE *f = fopen("/proc/self/smaps_rollup", "re");
	unsigned long kb = 0;
	char line[128];

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "Rss: %lu", &kb) == 1)
			break;
	if (f)
		fclose(f);
	return (double)kb * 1024;
}

static struct skein_ctx *ctx_new(void)
{
	struct skein_ctx_attr a = {.size = sizeof(a)};
	struct skein_ctx *ctx;
	int rc = skein_ctx_open(&a, &ctx);

	if (rc)
		die("context", rc);
	return ctx;
}

static void meta_main(int ready)
{
	struct skein_ctx *ctx = ctx_new();
	struct skein_meta *meta;
	int rc = skein_meta_open(ctx, "127.0.0.1:0", 64, &meta);

	if (rc)
		die("meta server", rc);
	snprintf(all->meta, sizeof(all->meta), "%s", skein_meta_addr(meta));
	if (write(ready, "m", 1) != 1)
		die("pipe", -errno);
	for (;;) {
		skein_engine_run(skein_ctx_engine(ctx), SKEIN_MS(100));
		skein_meta_progress(meta, NULL);
	}
}

/* Peers from..to of this host's address. */
static void meet(struct pool *p, unsigned from, unsigned to)
{
	struct meta_node n = p->own;

	for (unsigned i = from; i < to; i++) {
		struct vqp_peer *peer;

		n.port = 1 + i;
		n.key = i;
		peer = vqp_peer_get(&p->e, &n);
		if (!peer)
			die("a peer", -ENOMEM);
		vqp_peer_put(&p->e, peer); /* it stays in the cache */
	}
}

static void pool_main(void)
{
	struct skein_pool_attr a = {.size = sizeof(a), .meta = all->meta};
	double begin = resident(), open, few;
	struct skein_pool *pool;
	int rc = skein_pool_open(ctx_new(), &a, &pool);

	if (rc)
		die("pool", rc);
	open = resident();
	meet(pool_of(pool), 0, FEW);
	few = resident();
	meet(pool_of(pool), FEW, MANY);
	all->pool = open - begin;
	all->few = few - begin;
	all->many = (resident() - few) / (MANY - FEW);
	skein_pool_close(pool);
	_exit(0);
}

/* The queues that KRCore names for LITE. */
static void rc_main(void)
{
	struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC,
					.cap = {.max_send_wr = 292,
						.max_recv_wr = 1,
						.max_send_sge = 1,
						.max_recv_sge = 1}};
	struct skein_ctx *ctx = ctx_new();
	struct dev *dev = ctx->dev;
	double begin = resident();
	struct ibv_cq *cq;
	struct ibv_qp *qp;

	for (unsigned i = 0; i < FEW && !all->rc_error; i++) {
		all->rc_error = dev->ops->create_cq(dev, 257, NULL, NULL, &cq);
		attr.send_cq = attr.recv_cq = cq;
		if (!all->rc_error)
			all->rc_error = dev->ops->create_qp(dev, ctx->pd, &attr,
							    0, &qp);
	}
	all->rc = resident() - begin;
	_exit(all->rc_error ? 1 : 0);
}

static pid_t child(void (*fn)(void))
{
	pid_t pid = fork();

	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		fn();
	}
	return pid;
}

static int ended(pid_t pid)
{
	int status = 1;

	return waitpid(pid, &status, 0) == pid && !status ? 0 : -EIO;
}

int main(int argc, char **argv)
{
	bool json = argc > 1 && !strcmp(argv[1], "--json");
	int ready[2], rc;
	pid_t meta;
	char c;

	all = mmap(NULL, sizeof(*all), PROT_READ | PROT_WRITE,
		   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (all == MAP_FAILED || pipe(ready))
		return 1;
	meta = fork();
	if (!meta) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		meta_main(ready[1]);
	}
	close(ready[1]);
	rc = read(ready[0], &c, 1) == 1 ? 0 : -EIO;
	if (!rc)
		rc = ended(child(pool_main));
	if (!rc)
		rc = ended(child(rc_main));
	kill(meta, SIGKILL);
	waitpid(meta, NULL, 0);
	if (rc)
		return 1;
	printf(json ? "{\"peers\": %u, \"bytes_per_peer\": %.1f, "
		      "\"pool_mb\": %.2f, \"peers_mb\": %.2f, "
		      "\"rc_mb\": %.1f}\n"
		    : "%u peers: %.1f bytes each; pool %.2f MB, with peers "
		      "%.2f MB; as many RC queue pairs %.1f MB\n",
	       FEW, all->many, all->pool / 1e6, all->few / 1e6, all->rc / 1e6);
	return 0;
}
