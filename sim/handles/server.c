/* SPDX-License-Identifier: MIT */
/*
 * server.c - a server of rpc-handles: one to three engines, a pool, a
 * thread that answers what was deferred, and an area of memory.
 */
#include "conn/ctx.h"
#include "sim/handles/rpc_handles.h"

#include <errno.h>
#include <string.h>

#define MS PARTY_MS

static struct skein_env *env_of(struct handles_peer *p)
{
	return actor_env(&p->a);
}

static uint64_t draw(struct handles_peer *p, uint64_t n)
{
	return actor_draw(&p->a, n);
}

/* --- handlers ----------------------------------------------------------- */

static int give(struct handles_peer *p, struct skein_rpc_req *req, uint32_t uid)
{
	uint32_t len = p->ledger->calls[uid].tag.resp_len;
	void *resp = skein_rpc_resp_buf(req, len);

	if (!resp)
		return -ENOMEM;
	ledger_response(p->ledger, uid, resp);
	return 0;
}

static int serve(struct skein_rpc_req *req, void *arg)
{
	struct handles_peer *p = arg;
	size_t len = skein_rpc_req_len(req);
	uint32_t uid = ledger_executed(p->ledger, skein_rpc_req_data(req), len);

	if (uid == LEDGER_NONE)
		return -EBADMSG;
	sim_charge(p->a.party->w, 100 + len / 8);
	return give(p, req, uid);
}

static int serve_slowly(struct skein_rpc_req *req, void *arg)
{
	struct handles_peer *p = arg;

	sim_sleep(p->a.party->w, draw(p, 4) ? draw(p, 20000) : draw(p, MS));
	return serve(req, arg);
}

static int serve_later(struct skein_rpc_req *req, void *arg)
{
	struct handles_peer *p = arg;
	struct serving *s = &p->s;
	uint32_t uid = ledger_executed(p->ledger, skein_rpc_req_data(req),
				       skein_rpc_req_len(req));
	struct skein_rpc_req *later;

	if (uid == LEDGER_NONE)
		return -EBADMSG;
	if (s->n_later == HANDLES_LATER_MAX || skein_rpc_defer(req, &later))
		return give(p, req, uid);
	s->later[s->n_later].req = later;
	s->later[s->n_later++].uid = uid;
	return 0;
}

static void answer_one(struct handles_peer *p)
{
	struct serving *s = &p->s;
	unsigned i = (unsigned)draw(p, s->n_later);
	struct skein_rpc_req *req = s->later[i].req;
	uint32_t uid = s->later[i].uid;
	int rc;

	s->later[i] = s->later[--s->n_later];
	rc = skein_rpc_answer(req, give(p, req, uid));
	if (rc && rc != -ENOTCONN)
		report_fail(p->ledger->rep, "call %u cannot be answered: %d",
			    uid, rc);
}

/* Answers deferred requests until the run is over. It may leave some
 * unanswered, for the context to free. */
static void answerer(void *arg)
{
	struct handles_peer *p = arg;

	while (!p->a.party->over) {
		sim_sleep(p->a.party->w, draw(p, p->s.n_later ? 50000 : MS));
		for (uint64_t n = draw(p, 8); n && p->s.n_later; n--)
			answer_one(p);
	}
}

static int handlers_up(struct handles_peer *p)
{
	struct skein_rpc_pool *pool;
	int rc;

	rc = skein_rpc_handle(p->a.ctx, HANDLES_ECHO + LEDGER_INLINE, serve, p);
	if (!rc)
		rc = skein_rpc_handle(p->a.ctx, HANDLES_ECHO + LEDGER_LATER,
				      serve_later, p);
	if (!rc)
		rc = skein_rpc_pool_new(p->a.ctx, 1 + (unsigned)draw(p, 4),
					&pool);
	if (!rc)
		rc = skein_rpc_handle_workers(p->a.ctx,
					      HANDLES_ECHO + LEDGER_POOL,
					      serve_slowly, p, pool);
	return rc;
}

/* --- up and down -------------------------------------------------------- */

static void on_conn(void *arg, struct skein_conn *conn,
		    enum skein_conn_state state)
{
	struct serving *s = &((struct handles_peer *)arg)->s;

	if (state == SKEIN_CONN_READY) {
		if (s->n_served < HANDLES_SERVED_MAX)
			s->served[s->n_served++] = conn;
		return;
	}
	for (unsigned i = 0; i < s->n_served; i++)
		if (s->served[i] == conn)
			s->served[i] = s->served[--s->n_served];
}

static int area_up(struct handles_peer *p)
{
	struct serving *s = &p->s;
	int rc;

	s->area = env_alloc_aligned(env_of(p), 4096, AREA_LEN);
	if (!s->area)
		return -ENOMEM;
	memset(s->area, 0, AREA_LEN);
	rc = skein_mem_wrap(p->a.ctx, s->area, AREA_LEN, &s->mem);
	if (!rc)
		rc = skein_mem_share(s->mem, "area",
				     SKEIN_MEM_READ | SKEIN_MEM_WRITE |
					     SKEIN_MEM_ATOMIC);
	if (rc)
		return rc;
	s->life = ledger_life(p->ledger);
	s->area[0] = s->life;
	return 0;
}

static void life_over(struct handles_peer *p)
{
	struct serving *s = &p->s;

	if (s->life)
		ledger_life_over(p->ledger, s->life, s->area + AREA_SUMS / 8,
				 s->area + AREA_TOPS / 8);
	s->life = 0;
}

static void area_down(struct handles_peer *p)
{
	struct serving *s = &p->s;

	skein_mem_free(s->mem);
	s->mem = NULL;
	life_over(p);
	env_free(env_of(p), s->area);
	s->area = NULL;
}

static void server_down(struct handles_peer *p)
{
	p->s.n_engines = 0;
	area_down(p);
	actor_close(&p->a);
}

static int server_up(struct handles_peer *p)
{
	struct skein_ctx_attr ca = {.size = sizeof(ca)};
	struct skein_listener_attr la = {
		.size = sizeof(la), .on_conn = on_conn, .arg = p};
	struct skein_engine *engines[HANDLES_SHARDS_MAX];
	unsigned n = 1 + (unsigned)draw(p, HANDLES_SHARDS_MAX);
	struct skein_listener *listener;
	int rc;

	ca.wait = (enum skein_wait)draw(p, 4);
	rc = ctx_open_env(env_of(p), &ca, &p->a.ctx);
	if (rc)
		return rc;
	handles_tune(p);
	rc = handlers_up(p);
	if (!rc)
		rc = area_up(p);
	engines[0] = skein_ctx_engine(p->a.ctx);
	for (unsigned i = 1; i < n && !rc; i++)
		rc = skein_engine_new(p->a.ctx, ca.wait, &engines[i]);
	if (!rc) {
		memcpy(p->s.engines, engines, sizeof(engines));
		p->s.n_engines = n;
		la.engines = p->s.engines;
		la.engine_count = n;
		rc = skein_listener_open(p->a.ctx, ":7000", &la, &listener);
	}
	if (rc)
		server_down(p);
	return rc;
}

struct shard_arg {
	struct handles_peer *p;
	struct skein_engine *engine;
};

static void shard(void *arg)
{
	struct shard_arg *s = arg;

	while (!s->p->a.party->over)
		skein_engine_run(s->engine, SKEIN_FOREVER);
}

static void server_run(struct handles_peer *p)
{
	struct env_thread *threads[HANDLES_SHARDS_MAX];
	struct shard_arg args[HANDLES_SHARDS_MAX] = {{p, p->s.engines[0]}};
	unsigned n = 0;
	int rc;

	rc = env_thread_start(env_of(p), "answerer", answerer, p, &threads[0]);
	for (unsigned i = 1; i < p->s.n_engines; i++) {
		args[i] = (struct shard_arg){p, p->s.engines[i]};
		if (!rc)
			rc = env_thread_start(env_of(p), "shard", shard,
					      &args[i], &threads[++n]);
	}
	if (rc)
		report_fail(p->ledger->rep, "a thread could not be started");
	shard(&args[0]);
	for (unsigned i = 0; i <= n && !rc; i++)
		env_thread_join(env_of(p), threads[i]);
}

void handles_server(void *actor)
{
	struct handles_peer *p = container_of(actor, struct handles_peer, a);

	while (!p->a.party->over && server_up(p))
		sim_sleep(p->a.party->w, 10 * MS);
	if (p->a.ctx) {
		server_run(p);
		server_down(p);
	}
	p->a.ended = true;
}

void handles_server_born(struct handles_peer *p)
{
	memset(&p->s, 0, sizeof(p->s));
}

/* Its memory is there for one more moment. */
void handles_server_killed(struct handles_peer *p)
{
	life_over(p);
	p->s.n_served = p->s.n_engines = 0;
}

void handles_server_stop(struct handles_peer *p)
{
	for (unsigned i = 0; i < p->s.n_engines; i++)
		skein_engine_stop(p->s.engines[i]);
}
