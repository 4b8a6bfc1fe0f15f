/* SPDX-License-Identifier: MIT */
/*
 * handler_end.c - the removal of a handler, and the wait for its end.
 *
 * First the table says that the handler is gone. Then each engine runs a
 * closure. A handler runs inside a round, and a closure runs between two
 * rounds: so an engine that has run the closure is out of the old handler for
 * good. Last come the requests of the handler that a pool still has. A wait
 * that ends at its deadline leaves memory, which frees itself.
 *
 * Thread rule: any thread.
 */
#include <errno.h>

#include "base/list.h"
#include "conn/ctx.h"
#include "rpc/state.h"

struct handler_end;

struct end_call {
	struct engine_call call;
	struct handler_end *end;
	struct engine *engine;
	atomic_bool done;
};

struct handler_end {
	struct skein_env *env;
	atomic_uint users; /* the waiting thread, and each engine */
	unsigned count;
	struct end_call calls[];
};

static void end_put(struct handler_end *r)
{
	if (atomic_fetch_sub(&r->users, 1) == 1)
		env_free(r->env, r);
}

static void end_call_run(struct engine_call *call)
{
	struct end_call *p = container_of(call, struct end_call, call);

	/* Release pairs with the acquire in is_past(): the thread that removed
	 * the handler sees what the handler did. */
	atomic_store_explicit(&p->done, true, memory_order_release);
	end_put(p->end);
}

static bool is_past(void *arg)
{
	struct end_call *p = arg;

	return atomic_load_explicit(&p->done, memory_order_acquire);
}

static bool is_drained(void *arg)
{
	return !atomic_load((atomic_uint *)arg);
}

/* One closure for each engine of now: a later engine reads the table as it is.
 * NULL: no memory. */
static struct handler_end *end_new(struct skein_ctx *ctx)
{
	struct list_node *n;
	struct handler_end *r;
	unsigned count = 0;

	env_mutex_lock(ctx->env, &ctx->lock);
	list_for_each(n, &ctx->engines)
		count++;
	r = env_alloc(ctx->env, sizeof(*r) + count * sizeof(r->calls[0]));
	if (r) {
		r->env = ctx->env;
		atomic_init(&r->users, count + 1);
		list_for_each(n, &ctx->engines)
			r->calls[r->count++] = (struct end_call){
				.call.fn = end_call_run,
				.end = r,
				.engine = container_of(n, struct skein_engine,
						       ctx_link)
						  ->e};
	}
	env_mutex_unlock(ctx->env, &ctx->lock);
	return r;
}

static bool is_inside(const struct handler_end *r)
{
	for (unsigned i = 0; i < r->count; i++)
		if (engine_is_owner(r->calls[i].engine))
			return true;
	return false;
}

static int await(struct handler_end *r, struct rpc_ctx *rx, struct engine *e,
		 atomic_uint *under_way, uint64_t deadline_ns)
{
	int rc = 0;

	for (unsigned i = 0; i < r->count; i++)
		engine_post(r->calls[i].engine, &r->calls[i].call);
	for (unsigned i = 0; i < r->count && !rc; i++)
		rc = engine_run_until(r->calls[i].engine, is_past, &r->calls[i],
				      deadline_ns);
	if (rc || !under_way)
		return rc;
	/* seq_cst, before the read of under_way: see is_over() in pool.c. */
	atomic_fetch_add(&rx->removals, 1);
	rc = engine_run_until(e, is_drained, under_way, deadline_ns);
	atomic_fetch_sub(&rx->removals, 1);
	return rc;
}

int skein_rpc_handle_remove(struct skein_ctx *ctx, uint16_t id,
			    uint64_t timeout_ns)
{
	ENV_HOLD_CANCEL();
	atomic_uint *under_way = NULL;
	struct rpc_ctx *rx;
	struct handler_end *r;
	uint64_t deadline;
	uint32_t epoch;
	void *arg;
	int rc;

	if (!ctx)
		return -EINVAL;
	if (ctx_forked(ctx))
		return -SKEIN_EFORKED;
	rx = conn_ctx_module(ctx, CONN_MODULE_RPC);
	deadline = env_deadline(env_now_ns(ctx->env), timeout_ns);
	env_mutex_lock(ctx->env, &rx->lock);
	r = end_new(ctx);
	rc = r ? 0 : -ENOMEM;
	if (!rc && is_inside(r))
		rc = -EDEADLK;
	if (!rc)
		rc = rpc_handlers_remove(&rx->handlers, id, &epoch, &arg);
	if (!rc)
		under_way = rpc_pools_under_way(rx, arg);
	env_mutex_unlock(ctx->env, &rx->lock);
	if (rc) {
		if (r)
			env_free(ctx->env, r);
		return rc;
	}
	rc = await(r, rx, ctx->engine->e, under_way, deadline);
	end_put(r);
	if (rc)
		return rc;
	env_mutex_lock(ctx->env, &rx->lock);
	rpc_handlers_free(&rx->handlers, id, epoch);
	env_mutex_unlock(ctx->env, &rx->lock);
	return 0;
}
