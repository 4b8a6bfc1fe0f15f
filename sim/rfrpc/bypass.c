/* SPDX-License-Identifier: MIT */
/* bypass.c - see bypass.h. */
#include "sim/rfrpc/bypass.h"

#include "sim/rfrpc/pilaf.h"

#include <errno.h>
#include <skein/skein.h>
#include <stdlib.h>

/* Three quarters full, as Pilaf's was measured. */
#define SLOTS 16384u
#define KEYS (SLOTS / 4 * 3)
#define PUT 3
#define READ_LEN 32u
#define TABLE "pilaf"
#define WAIT_NS SKEIN_S(10)

struct reader {
	struct bypass *b;
	struct skein_conn *conn;
	struct skein_mem *mem;
	struct skein_remote table;
	struct skein_env *env;
};

struct bypass {
	const struct rpc_bed_conf *conf;
	struct pilaf t; /* base: the server's memory */
	struct sim_world *w;
	uint64_t version;
	unsigned reads; /* 0: as the table has it */
	uint64_t n_gets, n_reads, n_torn;
	struct reader *readers;
	unsigned n_readers;
};

/* --- the server -------------------------------------------------------- */

static int serve_put(struct skein_rpc_req *req, void *arg)
{
	struct bypass *b = arg;
	const uint64_t *key = skein_rpc_req_data(req);
	uint64_t version = ++b->version;

	pilaf_put(&b->t, *key, version, 0);
	sim_charge(b->w, b->conf->handler_ns);
	sim_flush(b->w, 1); /* READs come in between */
	pilaf_put(&b->t, *key, version, 1);
	return 0;
}

static int serve(struct skein_ctx *ctx, struct sim_world *w, void *arg)
{
	struct bypass *b = arg;
	struct skein_mem *mem;
	int rc = skein_mem_new(ctx, pilaf_bytes(SLOTS, KEYS), &mem);

	if (rc)
		return rc;
	b->w = w;
	b->t.base = skein_mem_addr(mem);
	rc = pilaf_fill(&b->t);
	if (!rc)
		rc = skein_mem_share(mem, TABLE, SKEIN_MEM_READ);
	return rc ? rc : skein_rpc_handle(ctx, PUT, serve_put, b);
}

/* --- a client ---------------------------------------------------------- */

static int join(struct skein_ctx *ctx, struct skein_conn *conn,
		struct skein_env *env, void *arg, void **caller)
{
	struct bypass *b = arg;
	struct reader *r = &b->readers[b->n_readers++];
	int rc;

	*r = (struct reader){.b = b, .conn = conn, .env = env};
	r->table.size = sizeof(r->table);
	rc = skein_mem_new(ctx, 4096, &r->mem);
	*caller = r;
	return rc ? rc : skein_mem_find(conn, TABLE, WAIT_NS, &r->table);
}

static int read_at(struct reader *r, uint64_t off, uint32_t len)
{
	r->b->n_reads++;
	return skein_mem_read(r->conn, r->mem, 0, &r->table, off, len, WAIT_NS);
}

static int get(struct reader *r, uint64_t key)
{
	enum pilaf_step step = PILAF_MORE;
	struct pilaf_get g;
	uint64_t off;
	uint32_t len;
	int rc = 0;

	pilaf_get_begin(&g, &r->b->t, key);
	while (step == PILAF_MORE && !rc) {
		off = pilaf_get_next(&g, &len);
		rc = read_at(r, off, len);
		env_charge(r->env, ENV_COST_SUM, 1);
		if (!rc)
			step = pilaf_get_took(&g, skein_mem_addr(r->mem));
	}
	r->b->n_gets++;
	r->b->n_torn += g.torn;
	return rc || step == PILAF_FOUND ? rc : -EIO;
}

static int put(struct reader *r, uint64_t key)
{
	uint64_t req[6] = {key, ~key}; /* a key of 16 bytes, a value of 32 */

	return skein_rpc_call(r->conn, PUT, req, sizeof(req), NULL, 0, WAIT_NS,
			      NULL);
}

static int some_reads(struct reader *r, struct prng *rng)
{
	int rc = 0;

	for (unsigned i = 0; i < r->b->reads && !rc; i++)
		rc = read_at(r, prng_below(rng, SLOTS) * 8, READ_LEN);
	r->b->n_gets++;
	return rc;
}

static int one(void *caller, struct prng *rng)
{
	struct reader *r = caller;
	uint64_t key;

	if (r->b->reads)
		return some_reads(r, rng);
	key = prng_below(rng, KEYS);
	if (prng_below(rng, 100) < r->b->conf->put_pct)
		return put(r, key);
	return get(r, key);
}

/* --- */

int bypass_point(struct figure *f, unsigned reads, struct bypass_result *res)
{
	static const struct rpc_bed_app app = {serve, join, one};
	unsigned callers = f->conf.nodes * f->conf.procs * f->conf.threads;
	struct bypass b = {
		.conf = &f->conf,
		.t = {.slots = SLOTS, .keys = KEYS, .seed = f->conf.seed},
		.reads = reads,
		.readers = calloc(callers, sizeof(*b.readers)),
	};
	struct rpc_bed_result r = {0};
	int rc = b.readers ? 0 : -ENOMEM;

	f->conf.app = &app;
	f->conf.app_arg = &b;
	f->conf.return_mode = SKEIN_RETURN_REPLY;
	f->conf.reply_wait = f->conf.server_inlines_not = false;
	if (!rc)
		rc = figure_point(f, &r);
	f->conf.app = NULL;
	free(b.readers);
	if (rc)
		return rc;
	*res = (struct bypass_result){
		.mops = r.answered_mops,
		.mean_us = r.mean_ns / 1000,
		.p50_us = r.p50_ns / 1000,
		.p99_us = r.p99_ns / 1000,
		.reads = (double)b.n_reads / (double)b.n_gets,
		.torn = (double)b.n_torn / (double)b.n_gets,
	};
	return 0;
}
