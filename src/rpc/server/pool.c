/* SPDX-License-Identifier: MIT */
/*
 * pool.c - threads that run handlers.
 *
 * A request of a pool's handler is deferred (deferred.h) and queued; a thread
 * of the pool runs the handler and answers. The producers are the owners of
 * engines: they never wait (a swap and a store). There is one consumer at a
 * time, the thread that has taken `consuming`. The queue needs no bound: each
 * connection has its own.
 *
 * A thread that finds nothing sets its bit in `sleepers` and sleeps; a producer
 * wakes one thread. Each has a full fence between its write and its read of the
 * other's word: so either the thread sees the request, or the producer sees the
 * bit.
 *
 * Thread rule: new, free and skein_rpc_handle_workers() by any thread.
 */
#include <errno.h>

#include "base/assert.h"
#include "conn/ctx.h"
#include "rpc/state.h"
#include "rpc/server/watchdog.h"

#define THREADS_MAX 64u

struct worker {
	struct skein_rpc_pool *pool;
	struct env_waiter *waiter;
	struct env_thread *thread;
	unsigned n;
	bool kept; /* its handler has deferred the request in work again */
	struct rpc_watchdog watchdog;
	_Atomic(struct pooled *) handler; /* the one that it runs, or ran last */
};

/* The arg of a pool's handler in the table of handlers. */
struct pooled {
	struct skein_rpc_pool *pool;
	struct pooled *next;
	skein_rpc_fn *fn;
	void *arg;
	atomic_uint under_way; /* its requests in the queue and in workers */
	uint16_t id;
	bool logged; /* as slow; under the lock of the context */
};

struct skein_rpc_pool {
	/* producers: */
	alignas(64) _Atomic(struct rpc_deferred *) tail;
	atomic_uint inside; /* producers inside push() */
	atomic_bool closed;
	atomic_uint queued;
	_Atomic uint64_t sleepers; /* one bit for each thread */
	/* the consumer: */
	alignas(64) atomic_bool consuming;
	struct rpc_deferred *head;
	struct rpc_deferred *stub;

	struct skein_env *env;
	struct rpc_ctx *rx;
	struct engine *engine;	     /* the context's default one */
	struct skein_rpc_pool *next; /* the context's */
	struct pooled *handlers;
	unsigned threads;
	bool stopped; /* under the context's lock */
	struct worker workers[];
};

/* --- the queue ---------------------------------------------------------- */

/* `next` is shared between the producer that appends after l, and the
 * consumer. */
static void next_set(struct rpc_deferred *l, struct rpc_deferred *next,
		     int order)
{
	__atomic_store_n(&l->next, next, order);
}

static void append(struct skein_rpc_pool *p, struct rpc_deferred *l)
{
	struct rpc_deferred *prev;

	next_set(l, NULL, __ATOMIC_RELAXED);
	/* Release pairs with the acquire of next in pop(), through next_set()
	 * below. */
	prev = atomic_exchange_explicit(&p->tail, l, memory_order_acq_rel);
	next_set(prev, l, __ATOMIC_RELEASE);
}

/* The oldest request. NULL: there is none, or a producer is still linking
 * it. */
static struct rpc_deferred *pop(struct skein_rpc_pool *p)
{
	struct rpc_deferred *l = p->head, *next;

	/* Acquire pairs with the release in append(): the consumer sees the
	 * request. */
	next = __atomic_load_n(&l->next, __ATOMIC_ACQUIRE);
	if (l == p->stub) {
		if (!next)
			return NULL;
		p->head = l = next;
		next = __atomic_load_n(&l->next, __ATOMIC_ACQUIRE);
	}
	if (!next) {
		/* The last request: the stub is appended after it, so that the
		 * request can leave with no producer writing to its `next`. */
		if (l != atomic_load_explicit(&p->tail, memory_order_relaxed))
			return NULL;
		append(p, p->stub);
		next = __atomic_load_n(&l->next, __ATOMIC_ACQUIRE);
		if (!next)
			return NULL;
	}
	p->head = next;
	return l;
}

static void wake_one(struct skein_rpc_pool *p)
{
	uint64_t bits, bit;

	while ((bits = atomic_load(&p->sleepers))) {
		bit = bits & -bits;
		if (!(atomic_fetch_and(&p->sleepers, ~bit) & bit))
			continue;
		env_waiter_wake(p->env,
				p->workers[__builtin_ctzll(bit)].waiter);
		return;
	}
}

/* False: the pool is closed. */
static bool push(struct skein_rpc_pool *p, struct rpc_deferred *l)
{
	bool open;

	atomic_fetch_add(&p->inside, 1);
	open = !atomic_load(&p->closed);
	if (open) {
		append(p, l);
		/* seq_cst, before the read of the sleepers: see
		 * worker_sleep(). */
		atomic_fetch_add(&p->queued, 1);
		wake_one(p);
	}
	atomic_fetch_sub(&p->inside, 1);
	return open;
}

static struct rpc_deferred *take(struct skein_rpc_pool *p)
{
	struct rpc_deferred *l;

	if (!atomic_load_explicit(&p->queued, memory_order_relaxed))
		return NULL;
	/* Acquire and release hand the head on from consumer to consumer. */
	if (atomic_exchange_explicit(&p->consuming, true, memory_order_acquire))
		return NULL;
	l = pop(p);
	if (l)
		atomic_fetch_sub_explicit(&p->queued, 1, memory_order_relaxed);
	atomic_store_explicit(&p->consuming, false, memory_order_release);
	return l;
}

/* --- threads ------------------------------------------------------------ */

/* Both are seq_cst, in this order, and pair with those in handler_end.c: either
 * the thread that removes the handler sees that no request is left, or this
 * thread sees that there is a removal, and wakes it. */
static void is_over(struct skein_rpc_pool *p, struct pooled *h)
{
	atomic_fetch_sub(&h->under_way, 1);
	if (atomic_load(&p->rx->removals))
		engine_kick(p->engine);
}

static void run(struct worker *w, struct rpc_deferred *l)
{
	struct pooled *h = l->arg;
	int status;

	w->kept = false;
	l->kept = &w->kept;
	atomic_store_explicit(&w->handler, h, memory_order_relaxed);
	rpc_watchdog_begin(&w->watchdog);
	status = h->fn(&l->req, h->arg);
	rpc_watchdog_end(&w->watchdog);
	is_over(w->pool, h);
	/* Kept: the thread that has the request now may have answered it, so it
	 * may be freed. */
	if (!w->kept)
		rpc_deferred_answer(l, status);
}

static void worker_sleep(struct worker *w)
{
	struct skein_rpc_pool *p = w->pool;
	uint64_t bit = 1ull << w->n;

	env_waiter_arm(p->env, w->waiter);
	/* seq_cst, before the read of `queued`: either this thread sees what
	 * push() has counted, or push() sees this thread's bit. */
	atomic_fetch_or(&p->sleepers, bit);
	if (atomic_load(&p->queued) || atomic_load(&p->closed))
		env_waiter_disarm(p->env, w->waiter);
	else
		(void)env_waiter_sleep(p->env, w->waiter, ENV_NEVER);
	atomic_fetch_and(&p->sleepers, ~bit);
}

static void worker_main(void *arg)
{
	struct worker *w = arg;
	struct skein_rpc_pool *p = w->pool;
	struct rpc_deferred *l;
	unsigned round = 0;

	while (!atomic_load_explicit(&p->closed, memory_order_relaxed)) {
		l = take(p);
		if (l) {
			run(w, l);
			round = 0;
			continue;
		}
		/* Where env_idle() parks, no thread would wake this one. */
		if (!env_idle_parks(p->env) &&
		    env_idle(p->env, w->waiter, round++) != ENV_IDLE_SLEEP)
			continue;
		worker_sleep(w);
		round = 0;
	}
}

/* --- life --------------------------------------------------------------- */

/* Ends the threads that were started, and answers what is queued. */
static void stop(struct skein_rpc_pool *p, unsigned started)
{
	struct rpc_deferred *l;

	atomic_store(&p->closed, true);
	while (atomic_load(&p->inside))
		env_yield(p->env);
	for (unsigned i = 0; i < started; i++)
		env_waiter_wake(p->env, p->workers[i].waiter);
	for (unsigned i = 0; i < started; i++)
		env_thread_join(p->env, p->workers[i].thread);
	while ((l = take(p))) {
		is_over(p, l->arg);
		rpc_deferred_answer(l, -ECANCELED);
	}
	for (unsigned i = 0; i < p->threads; i++)
		if (p->workers[i].waiter)
			env_waiter_free(p->env, p->workers[i].waiter);
}

static int start(struct skein_rpc_pool *p)
{
	struct worker *w;
	unsigned i;
	int rc = 0;

	for (i = 0; i < p->threads && !rc; i++) {
		w = &p->workers[i];
		w->pool = p;
		w->n = i;
		rc = env_waiter_new(p->env, ENV_WAIT_ADAPTIVE, &w->waiter);
	}
	for (i = 0; i < p->threads && !rc; i += !rc)
		rc = env_thread_start(p->env, "skein-worker", worker_main,
				      &p->workers[i], &p->workers[i].thread);
	if (rc)
		stop(p, p->workers[p->threads - 1].waiter ? i : 0);
	return rc;
}

int skein_rpc_pool_new(struct skein_ctx *ctx, unsigned threads,
		       struct skein_rpc_pool **pool)
{
	struct skein_rpc_pool *p;
	struct rpc_ctx *rx;
	int rc;

	if (!ctx || !threads || threads > THREADS_MAX)
		return -EINVAL;
	rx = conn_ctx_module(ctx, CONN_MODULE_RPC);
	p = env_alloc_aligned(ctx->env, alignof(struct skein_rpc_pool),
			      sizeof(*p) + threads * sizeof(p->workers[0]));
	if (!p)
		return -ENOMEM;
	p->env = ctx->env;
	p->rx = rx;
	p->engine = ctx->engine->e;
	p->threads = threads;
	p->stub = env_alloc(p->env, sizeof(*p->stub));
	p->head = p->stub;
	atomic_init(&p->tail, p->stub);
	rc = p->stub ? start(p) : -ENOMEM;
	if (rc) {
		env_free(p->env, p->stub);
		env_free(p->env, p);
		return rc;
	}
	env_mutex_lock(p->env, &rx->lock);
	p->next = rx->pools;
	rx->pools = p;
	env_mutex_unlock(p->env, &rx->lock);
	*pool = p;
	return 0;
}

/* The pool itself lives until the context closes: its handlers are in the
 * table, and refuse requests from now on. */
void skein_rpc_pool_free(struct skein_rpc_pool *pool)
{
	bool stopped;

	if (!pool || env_forked(pool->env))
		return;
	env_mutex_lock(pool->env, &pool->rx->lock);
	stopped = pool->stopped;
	pool->stopped = true;
	env_mutex_unlock(pool->env, &pool->rx->lock);
	if (!stopped)
		stop(pool, pool->threads);
}

void rpc_pools_fini(struct rpc_ctx *rx)
{
	struct skein_rpc_pool *p;
	struct pooled *h;

	while ((p = rx->pools)) {
		skein_rpc_pool_free(p);
		rx->pools = p->next;
		while ((h = p->handlers)) {
			p->handlers = h->next;
			env_free(p->env, h);
		}
		env_free(p->env, p->stub);
		env_free(p->env, p);
	}
}

/* --- handlers ----------------------------------------------------------- */

/* The handler in the table: hands the request to the pool. */
static int pooled_handle(struct skein_rpc_req *req, void *arg)
{
	struct pooled *h = arg;
	struct rpc_deferred *l;
	int rc;

	if (atomic_load_explicit(&h->pool->closed, memory_order_relaxed))
		return -SKEIN_ENOHANDLER;
	rc = rpc_server_defer(req->server, &l);
	if (rc)
		return rc;
	l->arg = h;
	atomic_fetch_add(&h->under_way, 1);
	if (!push(h->pool, l)) {
		is_over(h->pool, h);
		rpc_deferred_answer(l, -SKEIN_ENOHANDLER);
	}
	return 0;
}

int skein_rpc_handle_workers(struct skein_ctx *ctx, uint16_t id,
			     skein_rpc_fn *fn, void *arg,
			     struct skein_rpc_pool *pool)
{
	struct rpc_ctx *rx;
	struct pooled *h;
	int rc;

	if (!ctx || !fn || !pool)
		return -EINVAL;
	rx = conn_ctx_module(ctx, CONN_MODULE_RPC);
	if (pool->rx != rx)
		return -EINVAL;
	h = env_alloc(ctx->env, sizeof(*h));
	if (!h)
		return -ENOMEM;
	*h = (struct pooled){.pool = pool, .fn = fn, .arg = arg, .id = id};
	env_mutex_lock(ctx->env, &rx->lock);
	rc = rpc_handlers_add(&rx->handlers, ctx->env, id, pooled_handle, h);
	if (!rc) {
		h->next = pool->handlers;
		pool->handlers = h;
	}
	env_mutex_unlock(ctx->env, &rx->lock);
	if (rc)
		env_free(ctx->env, h);
	return rc;
}

/* --- slow handlers ------------------------------------------------------ */

static void look_after(struct worker *w, uint64_t now_ns, uint64_t limit_ns)
{
	uint64_t ns = rpc_watchdog_slow(&w->watchdog, now_ns, limit_ns);
	struct pooled *h;

	/* The count may change from here on: then it is another handler, which
	 * the log names by mistake. It would have to begin after a handler that
	 * ran for so long, between these two lines. */
	h = ns ? atomic_load_explicit(&w->handler, memory_order_relaxed) : NULL;
	if (!h || h->logged)
		return;
	h->logged = true;
	env_log(w->pool->env, ENV_LOG_WARN,
		"the handler of rpc %u has run for %llu ms in a worker and has "
		"not returned (SKEIN_RPC_SLOW; said once for each handler)",
		h->id, (unsigned long long)(ns / 1000000));
}

void rpc_pools_tick(struct rpc_ctx *rx, struct skein_env *env, uint64_t now_ns)
{
	struct skein_rpc_pool *p;

	if (!rx->conf.slow_ns)
		return;
	env_mutex_lock(env, &rx->lock);
	for (p = rx->pools; p; p = p->next)
		for (unsigned i = 0; i < p->threads; i++)
			look_after(&p->workers[i], now_ns, rx->conf.slow_ns);
	env_mutex_unlock(env, &rx->lock);
}

atomic_uint *rpc_pools_under_way(struct rpc_ctx *rx, const void *arg)
{
	struct skein_rpc_pool *p;
	struct pooled *h;

	for (p = rx->pools; p; p = p->next)
		for (h = p->handlers; h; h = h->next)
			if (h == arg)
				return &h->under_way;
	return NULL;
}
