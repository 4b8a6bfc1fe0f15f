/* SPDX-License-Identifier: MIT */
/*
 * thread.c - thread records: found, taken, left, given to the next thread.
 *
 * The hash. Its slots point to thread records, and only rec->thread says which
 * thread a record belongs to. So a slot may be out of date (its record is free,
 * or another thread's) without harm, and a thread that leaves does not touch
 * the hash. Only one thread finds its own name in rec->thread: the one that has
 * written it. Names are used again, but a thread zeroes rec->thread before it
 * ends (env_exit), so a later thread of the same name does not find it. A
 * lookup that finds nothing may be wrong while the hash is rebuilt: the thread
 * repeats it under the lock.
 *
 * Memory: chunks of doubling size that stay. A hash that has become too small
 * stays too, as threads may be reading it: all old ones together are as large
 * as the last.
 */
#include "conn/handle/thread.h"

#include "base/assert.h"
#include "conn/state.h"

#include <errno.h>

#define SLOTS_FIRST 16u
#define LOOKS 16u /* at records of ended threads, for one attach */

struct thread_table {
	struct thread_table *older;
	uint32_t mask;
	uint32_t used; /* slots that are not NULL */
	_Atomic(struct conn_thread *) slots[];
};

/* Chunk k begins with record CONN_THREADS_FIRST * (2^k - 1). */
static unsigned chunk_of(unsigned number, unsigned *at)
{
	unsigned n = number / CONN_THREADS_FIRST + 1;
	unsigned k = 31u - (unsigned)__builtin_clz(n);

	*at = number - CONN_THREADS_FIRST * ((1u << k) - 1);
	return k;
}

static inline uint32_t hash_of(uint64_t self)
{
	/* Names are addresses, or small numbers. */
	return (uint32_t)((self * 0x9e3779b97f4a7c15ull) >> 32);
}

static struct conn_thread *look(struct conn_threads *s, uint64_t self)
{
	struct thread_table *t;
	struct conn_thread *rec;
	uint32_t i = hash_of(self);

	/* Acquire: pairs with the releases in insert() and grow(). */
	t = atomic_load_explicit(&s->table, memory_order_acquire);
	if (!t)
		return NULL;
	for (;; i++) {
		rec = atomic_load_explicit(&t->slots[i & t->mask],
					   memory_order_acquire);
		if (!rec)
			return NULL;
		if (atomic_load_explicit(&rec->thread, memory_order_relaxed) ==
		    self)
			return rec;
	}
}

static struct conn_thread *find(struct conn_threads *s, uint64_t self)
{
	struct conn_thread *rec = conn_thread_if_first(&s->first, s->env);

	/* A program with one thread needs no hash. */
	return rec ? rec : look(s, self);
}

struct conn_thread *conn_thread_find(struct skein_conn *handle)
{
	struct conn_threads *s = &conn_lane_head(handle)->lanes->recs;
	uint64_t self = env_thread_self(s->env);
	struct conn_thread *rec = find(s, self);

	if (__builtin_expect(rec != NULL, 1))
		return rec;
	env_mutex_lock(s->env, &s->lock);
	rec = look(s, self);
	env_mutex_unlock(s->env, &s->lock);
	return rec;
}

/* --- the hash, under the lock ------------------------------------------ */

static void insert(struct thread_table *t, struct conn_thread *rec,
		   uint64_t self)
{
	uint32_t i = hash_of(self);
	struct conn_thread *was;

	/* A slot of a free record will do: it is not NULL, so chains of slots
	 * stay whole. */
	for (;; i++) {
		was = atomic_load_explicit(&t->slots[i & t->mask],
					   memory_order_relaxed);
		if (!was)
			t->used++;
		if (!was ||
		    !atomic_load_explicit(&was->thread, memory_order_relaxed))
			break;
	}
	/* Release pairs with the acquire in look(): a thread that finds the
	 * record also sees what is in it. */
	atomic_store_explicit(&t->slots[i & t->mask], rec,
			      memory_order_release);
}

static void fill(struct conn_threads *s, struct thread_table *t)
{
	struct conn_thread *rec;
	struct list_node *n;

	for (uint32_t i = 0; i <= t->mask; i++)
		atomic_store_explicit(&t->slots[i], NULL, memory_order_relaxed);
	t->used = 0;
	list_for_each(n, &s->taken) {
		rec = container_of(n, struct conn_thread, link);
		insert(t, rec,
		       atomic_load_explicit(&rec->thread,
					    memory_order_relaxed));
	}
}

/* Makes room in the hash for one record more. */
static int reserve(struct conn_threads *s)
{
	struct thread_table *t, *old;
	uint32_t slots;

	old = atomic_load_explicit(&s->table, memory_order_relaxed);
	if (old && old->used < (old->mask + 1) / 2)
		return 0;
	if (old && s->n_taken < (old->mask + 1) / 4) {
		fill(s, old); /* half of it is out of date */
		return 0;
	}
	slots = old ? 2 * (old->mask + 1) : SLOTS_FIRST;
	t = env_alloc(s->env, sizeof(*t) + slots * sizeof(t->slots[0]));
	if (!t)
		return -ENOMEM;
	t->mask = slots - 1;
	t->older = old;
	fill(s, t);
	atomic_store_explicit(&s->table, t, memory_order_release);
	return 0;
}

/* --- taking a record, under the lock ----------------------------------- */

bool conn_thread_idle(struct conn_thread *rec)
{
	const struct conn_module *m;

	/* Acquire pairs with the release in memop.c: results of operations on
	 * the old lane are seen before anything is sent on the new one. */
	if (atomic_load_explicit(&rec->wrs_ended, memory_order_acquire) !=
	    rec->wrs_begun)
		return false;
	for (unsigned i = 0; (m = conn_modules[i]); i++)
		if (m->thread_idle && !m->thread_idle(rec->handle, rec))
			return false;
	return true;
}

static struct conn_thread *used_one(struct skein_conn *handle)
{
	struct conn_threads *s = &handle->lanes->recs;
	struct list_node *n = list_pop_head(&s->free);
	struct conn_thread *rec;
	unsigned looks = s->n_left;

	if (n)
		return container_of(n, struct conn_thread, link);
	/* At most LOOKS records, from the head of the list, and a busy one goes
	 * to its tail. When no new record can be made, look at all. */
	if (looks > LOOKS && atomic_load_explicit(&s->n, memory_order_relaxed) <
				     CONN_THREADS_MAX)
		looks = LOOKS;
	while (looks--) {
		n = list_pop_head(&s->left);
		rec = container_of(n, struct conn_thread, link);
		if (conn_thread_idle(rec)) {
			s->n_left--;
			return rec;
		}
		list_add_tail(&s->left, n);
	}
	return NULL;
}

static void left(struct env_exit *x);

static void thread_init(struct skein_conn *handle, struct conn_thread *rec,
			unsigned number)
{
	rec->number = (uint16_t)number;
	rec->handle = handle;
	rec->lanes = handle->lanes->lane;
	rec->on_exit.fn = left;
	conn_req_init(&rec->req);
}

/* attach() counts it later: until then no other thread sees it. */
static int new_one(struct skein_conn *handle, struct conn_thread **rec)
{
	struct conn_threads *s = &handle->lanes->recs;
	unsigned n = atomic_load_explicit(&s->n, memory_order_relaxed);
	unsigned at, k = chunk_of(n, &at);

	if (n == CONN_THREADS_MAX)
		return -EAGAIN;
	if (!s->chunks[k])
		s->chunks[k] = env_alloc_aligned(
			s->env, alignof(struct conn_thread),
			sizeof(struct conn_thread) * (CONN_THREADS_FIRST << k));
	if (!s->chunks[k])
		return -ENOMEM;
	*rec = &s->chunks[k][at];
	thread_init(handle, *rec, n);
	return 0;
}

static int modules_taken(struct skein_conn *handle, struct conn_thread *rec)
{
	const struct conn_module *m;
	int rc;

	for (unsigned i = 0; (m = conn_modules[i]); i++) {
		if (!m->thread_taken)
			continue;
		rc = m->thread_taken(handle, rec);
		if (rc)
			return rc;
	}
	return 0;
}

static int take(struct skein_conn *handle, struct conn_thread *rec)
{
	struct conn_threads *s = &handle->lanes->recs;
	uint64_t self = env_thread_self(s->env);
	uint16_t lane;
	int rc;

	lane = (uint16_t)(env_random_u64(s->env) % handle->lanes->count);
	atomic_store_explicit(&rec->lane, lane, memory_order_relaxed);
	atomic_store_explicit(&rec->lane_wanted, lane, memory_order_relaxed);
	atomic_store_explicit(&rec->drain_ns, 0, memory_order_relaxed);
	rc = modules_taken(handle, rec);
	if (rc == 0)
		rc = env_thread_on_exit(s->env, &rec->on_exit);
	if (rc)
		return rc;
	insert(atomic_load_explicit(&s->table, memory_order_relaxed), rec,
	       self);
	atomic_store_explicit(&rec->thread, self, memory_order_relaxed);
	/* Release, here and of n in attach(), pairs with the acquires of state
	 * and of n: a thread that reads them also sees what the modules' hooks
	 * wrote. */
	atomic_store_explicit(&rec->state, CONN_THREAD_TAKEN,
			      memory_order_release);
	if (!atomic_load_explicit(&s->first, memory_order_relaxed))
		atomic_store_explicit(&s->first, rec, memory_order_release);
	list_add_tail(&s->taken, &rec->link);
	s->n_taken++;
	return 0;
}

static int attach(struct skein_conn *handle, struct conn_thread **out)
{
	struct conn_threads *s = &handle->lanes->recs;
	struct conn_thread *rec;
	bool fresh = false;
	int rc;

	rc = reserve(s);
	if (rc)
		return rc;
	rec = used_one(handle);
	if (!rec) {
		fresh = true;
		rc = new_one(handle, &rec);
	}
	if (rc)
		return rc;
	rc = take(handle, rec);
	if (rc) {
		/* Kept: modules may have state in it already. */
		atomic_store_explicit(&rec->state, CONN_THREAD_FREE,
				      memory_order_release);
		list_add_tail(&s->free, &rec->link);
	}
	if (fresh)
		atomic_fetch_add_explicit(&s->n, 1, memory_order_release);
	if (rc == 0)
		*out = rec;
	return rc;
}

/* The thread has no record, or the hash was being rebuilt. */
static __attribute__((noinline)) int thread_anew(struct skein_conn *handle,
						 struct conn_thread **out)
{
	struct conn_threads *s = &handle->lanes->recs;
	struct conn_thread *rec;
	int rc = 0;

	handle = conn_lane_head(handle);
	env_mutex_lock(s->env, &s->lock);
	rec = look(s, env_thread_self(s->env));
	if (!rec)
		rc = attach(handle, &rec);
	env_mutex_unlock(s->env, &s->lock);
	if (rc == 0)
		*out = rec;
	return rc;
}

int conn_thread(struct skein_conn *handle, struct conn_thread **out)
{
	struct conn_threads *s = &handle->lanes->recs;
	struct conn_thread *rec = find(s, env_thread_self(s->env));

	skein_assert_debug(handle->client);
	if (__builtin_expect(!rec, 0))
		return thread_anew(handle, out);
	*out = rec;
	return 0;
}

const _Atomic(struct conn_thread *) *conn_thread_first(struct skein_conn *handle)
{
	return &handle->lanes->recs.first;
}

/* --- replies ----------------------------------------------------------- */

void conn_thread_filled(struct conn_thread *rec)
{
	struct skein_engine *eng = rec->handle->eng;
	struct env_waiter *app;

	env_mutex_lock(eng->env, &eng->replies_lock);
	if (!list_linked(&rec->filled)) {
		list_add_tail(&eng->replies, &rec->filled);
		atomic_fetch_add(&eng->n_replies, 1);
	}
	env_mutex_unlock(eng->env, &eng->replies_lock);
	conn_thread_wake(rec);
	app = atomic_load_explicit(&eng->app, memory_order_acquire);
	if (app)
		env_waiter_wake(eng->env, app);
}

static void not_filled(struct skein_engine *eng, struct conn_thread *rec)
{
	env_mutex_lock(eng->env, &eng->replies_lock);
	if (list_linked(&rec->filled)) {
		list_del(&rec->filled);
		atomic_fetch_sub(&eng->n_replies, 1);
	}
	env_mutex_unlock(eng->env, &eng->replies_lock);
}

static struct conn_thread *filled_of(struct skein_engine *eng, uint64_t thread)
{
	struct conn_thread *rec, *found = NULL;
	struct list_node *n;

	/* A reply added after this load is followed by a wake-up. */
	if (!atomic_load(&eng->n_replies))
		return NULL;
	env_mutex_lock(eng->env, &eng->replies_lock);
	list_for_each(n, &eng->replies) {
		rec = container_of(n, struct conn_thread, filled);
		if (atomic_load_explicit(&rec->thread, memory_order_relaxed) !=
		    thread)
			continue;
		found = rec;
		break;
	}
	env_mutex_unlock(eng->env, &eng->replies_lock);
	return found;
}

bool conn_threads_filled(struct skein_engine *eng, uint64_t thread)
{
	return filled_of(eng, thread) != NULL;
}

static __attribute__((noinline)) int reap(struct skein_engine *eng)
{
	const struct conn_module *m;
	struct conn_thread *rec;
	int moved = 0;

	while ((rec = filled_of(eng, env_thread_self(eng->env)))) {
		/* First: a reply that comes after thread_reap() has looked puts
		 * the record on the list again. */
		not_filled(eng, rec);
		for (unsigned i = 0; (m = conn_modules[i]); i++)
			if (m->thread_reap)
				moved += m->thread_reap(rec);
	}
	return moved;
}

int conn_threads_reap(struct skein_engine *eng)
{
	/* Mostly there is none, and each round of an application asks. */
	return atomic_load_explicit(&eng->n_replies, memory_order_relaxed)
		       ? reap(eng)
		       : 0;
}

int conn_replies_reap(struct skein_conn *conn)
{
	return conn_threads_reap(conn->eng);
}

/* --- leaving ----------------------------------------------------------- */

/* Runs in the thread that ends. */
static void left(struct env_exit *x)
{
	struct conn_thread *rec = container_of(x, struct conn_thread, on_exit);
	struct skein_conn *handle = rec->handle;
	struct conn_threads *s = &handle->lanes->recs;
	const struct conn_module *m;

	/* The thread ends inside a callback that it runs as owner. */
	if (engine_is_owner(handle->eng->e))
		engine_leave(handle->eng->e);
	for (unsigned i = 0; (m = conn_modules[i]); i++)
		if (m->thread_left)
			m->thread_left(handle, rec);
	not_filled(handle->eng, rec);
	env_mutex_lock(s->env, &s->lock);
	if (atomic_load_explicit(&s->first, memory_order_relaxed) == rec)
		atomic_store_explicit(&s->first, NULL, memory_order_relaxed);
	atomic_store_explicit(&rec->thread, 0, memory_order_relaxed);
	atomic_store_explicit(&rec->state, CONN_THREAD_LEFT,
			      memory_order_release);
	list_del(&rec->link);
	list_add_tail(&s->left, &rec->link);
	s->n_left++;
	s->n_taken--;
	atomic_fetch_add_explicit(&s->leavings, 1, memory_order_release);
	env_mutex_unlock(s->env, &s->lock);
	engine_kick(handle->eng->e);
}

/* --- for modules ------------------------------------------------------- */

int conn_thread_moved(struct conn_thread *rec)
{
	uint16_t lane = atomic_load_explicit(&rec->lane, memory_order_relaxed);
	uint16_t wanted =
		atomic_load_explicit(&rec->lane_wanted, memory_order_relaxed);

	if (conn_thread_idle(rec)) {
		lane = wanted;
		atomic_store_explicit(&rec->lane, lane, memory_order_relaxed);
	} else if (conn_thread_drained_ns(rec) != ENV_NEVER) {
		return -EAGAIN;
	}
	return lane;
}

uint64_t conn_thread_drained_ns(struct conn_thread *rec)
{
	/* Relaxed: an old value costs one more try. */
	uint64_t until =
		atomic_load_explicit(&rec->drain_ns, memory_order_relaxed);

	if (!until || env_now_ns(rec->handle->ctx->env) >= until ||
	    atomic_load_explicit(&rec->lane, memory_order_relaxed) ==
		    atomic_load_explicit(&rec->lane_wanted,
					 memory_order_relaxed))
		return ENV_NEVER;
	return until;
}

int conn_thread_waiter_new(struct conn_thread *rec, struct env_waiter **w)
{
	/* A second waiter: this thread and the engine's owner spin in turns,
	 * and must not be counted as two spinners in each other's way. If they
	 * do share a core, the first that loses it says so. */
	int rc = env_waiter_new_second(rec->handle->ctx->env,
				       rec->handle->eng->wait_mode, w);

	/* Release pairs with the acquire in conn_thread_wake(). */
	if (!rc)
		atomic_store_explicit(&rec->waiter, *w, memory_order_release);
	return rc;
}

void conn_thread_wake(struct conn_thread *rec)
{
	struct env_waiter *w =
		atomic_load_explicit(&rec->waiter, memory_order_acquire);

	if (w)
		env_waiter_wake(rec->handle->ctx->env, w);
}

struct conn_thread *conn_threads_at(struct conn_threads *s, unsigned number)
{
	unsigned at, k = chunk_of(number, &at);

	return &s->chunks[k][at];
}

unsigned conn_threads(struct skein_conn *handle)
{
	/* Acquire pairs with the release in attach(). */
	return atomic_load_explicit(&handle->lanes->recs.n,
				    memory_order_acquire);
}

struct conn_thread *conn_thread_at(struct skein_conn *handle, unsigned number)
{
	return conn_threads_at(&handle->lanes->recs, number);
}

unsigned conn_threads_left(struct skein_conn *handle)
{
	return atomic_load_explicit(&handle->lanes->recs.leavings,
				    memory_order_acquire);
}

/* --- life -------------------------------------------------------------- */

void conn_threads_init(struct conn_threads *s, struct skein_env *env)
{
	s->env = env;
	env_mutex_init(env, &s->lock);
	list_init(&s->free);
	list_init(&s->left);
	list_init(&s->taken);
}

void conn_threads_fini(struct skein_conn *handle)
{
	struct conn_threads *s = &handle->lanes->recs;
	unsigned n = conn_threads(handle);
	const struct conn_module *m;
	struct thread_table *t, *older;
	struct conn_thread *rec;

	for (unsigned i = 0; i < n; i++) {
		rec = conn_threads_at(s, i);
		/* After this, left() has returned for rec, or never runs. */
		env_thread_off_exit(s->env, &rec->on_exit);
		not_filled(handle->eng, rec);
		for (unsigned k = 0; (m = conn_modules[k]); k++)
			if (m->thread_free)
				m->thread_free(handle, rec);
		env_waiter_free(s->env, atomic_load(&rec->waiter));
	}
	atomic_store(&s->n, 0);
	for (unsigned k = 0; k < CONN_THREADS_CHUNKS; k++) {
		env_free(s->env, s->chunks[k]);
		s->chunks[k] = NULL;
	}
	for (t = atomic_load(&s->table); t; t = older) {
		older = t->older;
		env_free(s->env, t);
	}
	atomic_store(&s->table, NULL);
	env_mutex_fini(s->env, &s->lock);
}
