/* SPDX-License-Identifier: MIT */
/*
 * mem.c - the application's regions: made, shared, found, freed.
 *
 * skein_mem_free() withdraws the name first and waits, for at most
 * MEM_WITHDRAW_NS, until every peer has acknowledged that. A slow or stopped
 * peer that uses the region later gets an access error, never other memory.
 */
#include "base/assert.h"
#include "conn/state.h"
#include "conn/mem/mem_handle.h"

#include <errno.h>

#define MEM_WITHDRAW_NS (500 * 1000 * 1000ull)
#define SLICE_NS (1000 * 1000ull)
#define ACCESS_ALL (SKEIN_MEM_READ | SKEIN_MEM_WRITE | SKEIN_MEM_ATOMIC)

/* --- made -------------------------------------------------------------- */

static int mem_make(struct skein_ctx *ctx, void *addr, size_t len,
		    struct skein_mem **out)
{
	uint32_t id = conn_region_id(ctx);
	struct skein_mem *mem;
	int rc;

	if (ctx_forked(ctx))
		return -SKEIN_EFORKED;
	if (!len)
		return -EINVAL;
	mem = env_alloc(ctx->env, sizeof(*mem));
	if (!mem)
		return -ENOMEM;
	mem->ctx = ctx;
	if (addr)
		rc = mem_region_wrap(ctx->dev, ctx->pd, addr, len,
				     IBV_ACCESS_LOCAL_WRITE, id, &mem->region);
	else
		rc = mem_region_new(ctx->dev, ctx->pd, "skein-mem", len,
				    IBV_ACCESS_LOCAL_WRITE, id, &mem->region);
	if (rc) {
		env_log(ctx->env, ENV_LOG_ERROR,
			"cannot make a region of %zu bytes: %s (check ulimit "
			"-l, free memory and /dev/shm)",
			len, skein_strerror(rc));
		env_free(ctx->env, mem);
		return rc;
	}
	env_mutex_lock(ctx->env, &ctx->lock);
	list_add_head(&ctx->mems, &mem->ctx_link);
	env_mutex_unlock(ctx->env, &ctx->lock);
	*out = mem;
	return 0;
}

int skein_mem_new(struct skein_ctx *ctx, size_t len, struct skein_mem **mem)
{
	return mem_make(ctx, NULL, len, mem);
}

int skein_mem_wrap(struct skein_ctx *ctx, void *addr, size_t len,
		   struct skein_mem **mem)
{
	return addr ? mem_make(ctx, addr, len, mem) : -EINVAL;
}

void *skein_mem_addr(struct skein_mem *mem)
{
	return mem->region->addr;
}

size_t skein_mem_len(struct skein_mem *mem)
{
	return mem->region->len;
}

/* --- shared ------------------------------------------------------------ */

static void kick_engines(struct skein_ctx *ctx)
{
	struct list_node *n;

	env_mutex_lock(ctx->env, &ctx->lock);
	list_for_each(n, &ctx->engines)
		engine_kick(container_of(n, struct skein_engine, ctx_link)->e);
	env_mutex_unlock(ctx->env, &ctx->lock);
}

static bool name_taken(struct skein_ctx *ctx, const char *name)
{
	struct skein_mem *mem;
	struct list_node *n;

	list_for_each(n, &ctx->mems) {
		mem = container_of(n, struct skein_mem, ctx_link);
		if (mem->share_seq && !mem->withdraw_seq &&
		    !strcmp(mem->name, name))
			return true;
	}
	return false;
}

static int verbs_access(unsigned access)
{
	int verbs = IBV_ACCESS_LOCAL_WRITE;

	if (access & SKEIN_MEM_READ)
		verbs |= IBV_ACCESS_REMOTE_READ;
	if (access & SKEIN_MEM_WRITE)
		verbs |= IBV_ACCESS_REMOTE_WRITE;
	if (access & SKEIN_MEM_ATOMIC)
		verbs |= IBV_ACCESS_REMOTE_ATOMIC;
	return verbs;
}

int skein_mem_share(struct skein_mem *mem, const char *name, unsigned access)
{
	struct skein_ctx *ctx = mem->ctx;
	struct mem_region *r = mem->region;
	struct ibv_mr *mr;
	int rc;

	if (!name || !name[0] || strlen(name) > CTLFRAME_NAME_MAX || !access ||
	    access & ~(unsigned)ACCESS_ALL)
		return -EINVAL;
	rc = ctx->dev->ops->reg_mr(ctx->dev, ctx->pd, r->addr, r->len,
				   verbs_access(access), r->fd, r->off, &mr);
	if (rc)
		return rc;
	env_mutex_lock(ctx->env, &ctx->lock);
	if (mem->share_seq || name_taken(ctx, name)) {
		rc = -EEXIST;
	} else {
		memcpy(mem->name, name, strlen(name) + 1);
		mem->access = access;
		mem->shared = mr;
		mem->share_seq = atomic_fetch_add(&ctx->region_seq, 1) + 1;
	}
	env_mutex_unlock(ctx->env, &ctx->lock);
	if (rc)
		ctx->dev->ops->dereg_mr(ctx->dev, mr);
	else
		kick_engines(ctx);
	return rc;
}

int mem_keys(struct skein_mem *mem, uint32_t *lkey, uint32_t *rkey)
{
	struct mem_region *r = mem->region;
	struct dev *dev = mem->ctx->dev;
	int rc;

	if (!mem->inner) {
		rc = dev->ops->reg_mr(dev, mem->ctx->pd, r->addr, r->len,
				      IBV_ACCESS_LOCAL_WRITE |
					      IBV_ACCESS_REMOTE_WRITE,
				      r->fd, r->off, &mem->inner);
		if (rc)
			return rc;
	}
	*lkey = mem->inner->lkey;
	*rkey = mem->inner->rkey;
	return 0;
}

/* --- freed ------------------------------------------------------------- */

static bool withdrawn(void *arg)
{
	struct skein_mem *mem = arg;

	/* Acquire pairs with the release in regions.c's acked(). */
	return !atomic_load_explicit(&mem->waiting, memory_order_acquire);
}

static void withdraw(struct skein_mem *mem)
{
	struct skein_ctx *ctx = mem->ctx;
	unsigned waiting = 0;
	struct list_node *n;

	env_mutex_lock(ctx->env, &ctx->lock);
	mem->withdraw_seq = atomic_fetch_add(&ctx->region_seq, 1) + 1;
	list_del(&mem->ctx_link);
	list_add_tail(&ctx->mems, &mem->ctx_link);
	list_for_each(n, &ctx->peers)
		waiting++;
	atomic_store(&mem->waiting, waiting);
	env_mutex_unlock(ctx->env, &ctx->lock);
	kick_engines(ctx);
}

/* Runs all engines in turn, as each may have no thread of its own. */
static void wait_withdrawn(struct skein_mem *mem)
{
	struct skein_ctx *ctx = mem->ctx;
	uint64_t deadline = env_now_ns(ctx->env) + MEM_WITHDRAW_NS;
	struct skein_engine *engines[64];
	struct list_node *n;
	unsigned count = 0;

	env_mutex_lock(ctx->env, &ctx->lock);
	list_for_each(n, &ctx->engines)
		if (count < 64)
			engines[count++] =
				container_of(n, struct skein_engine, ctx_link);
	env_mutex_unlock(ctx->env, &ctx->lock);
	while (!withdrawn(mem) && env_now_ns(ctx->env) < deadline)
		for (unsigned i = 0; i < count; i++)
			/* -EDEADLK: from inside a round, without waiting */
			if (engine_run_until(engines[i]->e, withdrawn, mem,
					     env_now_ns(ctx->env) + SLICE_NS) ==
			    -EDEADLK)
				return;
}

void skein_mem_free(struct skein_mem *mem)
{
	struct skein_ctx *ctx;

	if (!mem || ctx_forked(mem->ctx))
		return;
	ctx = mem->ctx;
	if (mem->share_seq) {
		withdraw(mem);
		wait_withdrawn(mem);
	}
	env_mutex_lock(ctx->env, &ctx->lock);
	list_del(&mem->ctx_link);
	env_mutex_unlock(ctx->env, &ctx->lock);
	if (mem->shared)
		ctx->dev->ops->dereg_mr(ctx->dev, mem->shared);
	if (mem->inner)
		ctx->dev->ops->dereg_mr(ctx->dev, mem->inner);
	mem_region_free(mem->region);
	env_free(ctx->env, mem);
}

void ctx_mems_close(struct skein_ctx *ctx)
{
	while (!list_empty(&ctx->mems))
		skein_mem_free(container_of(ctx->mems.next, struct skein_mem,
					    ctx_link));
}

/* --- found ------------------------------------------------------------- */

static void find_done(struct mem_find *f, int rc)
{
	list_del(&f->link);
	f->rc = rc;
	/* Release pairs with the acquire in find_is_done(). The waiting thread
	 * frees f, unless it has posted the cancel. */
	atomic_store_explicit(&f->done, true, memory_order_release);
}

static bool look(struct mem_find *f)
{
	struct conn_peer *peer = f->conn->peer;
	struct conn_remote_region *r;
	struct list_node *n;

	list_for_each(n, &peer->regions) {
		r = container_of(n, struct conn_remote_region, link);
		if (strcmp(r->name, f->name))
			continue;
		f->remote.addr = r->addr;
		f->remote.len = r->len;
		f->remote.rkey = r->rkey;
		f->remote.id = r->id;
		f->remote.access = r->access;
		return true;
	}
	return false;
}

/* What the engine's owner knows at this moment. */
static int find_now(struct mem_find *f)
{
	if (!f->conn->postable || !f->conn->peer)
		return -ENOTCONN;
	return look(f) ? 0 : -ENOENT;
}

static int find_fill(const struct mem_find *f, struct skein_remote *remote)
{
	return ctx_struct_fill(remote, MEM_REMOTE_MIN, &f->remote,
			       sizeof(f->remote));
}

static void find_call(struct engine_call *call)
{
	struct mem_find *f = container_of(call, struct mem_find, call);

	int rc = find_now(f);

	if (rc == -ENOENT)
		list_add_tail(&f->conn->finds, &f->link);
	else
		find_done(f, rc);
}

/* The second of two calls frees f. Release by the first, acquire by the second:
 * all that the other thread did with f comes before the free. */
static void find_leave(struct mem_find *f)
{
	if (atomic_exchange_explicit(&f->left, true, memory_order_acq_rel))
		env_free(f->env, f);
}

static void find_cancel(struct engine_call *call)
{
	struct mem_find *f = container_of(call, struct mem_find, cancel);

	if (!atomic_load_explicit(&f->done, memory_order_relaxed))
		find_done(f, -ENOENT);
	find_leave(f);
}

void mem_finds_look(struct skein_conn *conn)
{
	struct list_node *n, *next;
	struct mem_find *f;

	list_for_each_safe(n, next, &conn->finds) {
		f = container_of(n, struct mem_find, link);
		if (look(f))
			find_done(f, 0);
	}
}

void mem_finds_end(struct skein_conn *conn)
{
	while (!list_empty(&conn->finds))
		find_done(container_of(conn->finds.next, struct mem_find, link),
			  -ENOTCONN);
}

static bool find_is_done(void *arg)
{
	struct mem_find *f = arg;

	return atomic_load_explicit(&f->done, memory_order_acquire);
}

/* Waits until the region is found, or for the deadline. After that the engine's
 * owner gets a call to end the search. */
static int find_wait(struct mem_find *f, uint64_t deadline_ns,
		     struct skein_remote *remote)
{
	struct engine *e = f->conn->eng->e;
	bool late;
	int rc;

	f->call.fn = find_call;
	engine_post(e, &f->call);
	late = engine_run_until(e, find_is_done, f, deadline_ns) != 0;
	if (late) {
		/* A second call: while another thread owns the engine the
		 * deadline may come before f->call has run. Calls run in the
		 * order of posting, so f->call runs before this one. */
		f->cancel.fn = find_cancel;
		engine_post(e, &f->cancel);
		engine_run_until(e, find_is_done, f,
				 env_now_ns(f->env) + CONN_GRACE_NS);
	}
	rc = find_is_done(f) ? f->rc : -ENOENT;
	if (rc == 0)
		rc = find_fill(f, remote);
	if (late)
		find_leave(f);
	else
		env_free(f->env, f);
	return rc;
}

int skein_mem_find(struct skein_conn *conn, const char *name,
		   uint64_t timeout_ns, struct skein_remote *remote)
{
	ENV_HOLD_CANCEL();
	struct skein_env *env = conn->ctx->env;
	uint64_t now = env_now_ns(env);
	struct mem_find *f;
	bool owner;
	int rc;

	if (!name || !name[0] || strlen(name) > CTLFRAME_NAME_MAX ||
	    remote->size < MEM_REMOTE_MIN)
		return -EINVAL;
	if (ctx_forked(conn->ctx))
		return -SKEIN_EFORKED;
	owner = engine_is_owner(conn->eng->e);
	if (owner && timeout_ns)
		return -EDEADLK;
	f = env_alloc(env, sizeof(*f));
	if (!f)
		return -ENOMEM;
	f->conn = conn;
	f->env = env;
	memcpy(f->name, name, strlen(name) + 1);
	if (!owner)
		return find_wait(f, env_deadline(now, timeout_ns), remote);
	rc = find_now(f);
	if (rc == 0)
		rc = find_fill(f, remote);
	env_free(env, f);
	return rc;
}
