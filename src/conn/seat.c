/* SPDX-License-Identifier: MIT */
/*
 * seat.c - threads' seats: found, taken, left, given on.
 *
 * The hash. Its slots point to seats, never to memory that may go; a slot says
 * nothing by itself, seat->thread does. So a slot that is out of date (its seat
 * is free, or another thread's by now) leads nobody astray, and leaving a seat
 * costs the hash nothing. Only one thread can find seat->thread equal to its own
 * name: that which has written it, or, as names are used again, one that
 * began after the last bearer had ended, which zeroed it before (env_exit).
 * A look that finds nothing may be wrong (the hash is being swept); it is done
 * once more under the lock.
 *
 * Memory: chunks of doubling size that stay. A hash that has become too small
 * stays too, for those who look into it at this moment: all of them together
 * are as large as the last.
 */
#include "conn/seat.h"

#include "base/assert.h"
#include "conn/handle.h"

#include <errno.h>

#define SLOTS_FIRST 16u
#define LOOKS 16u /* at seats that may be given on */

struct seat_table {
	struct seat_table *older;
	uint32_t mask;
	uint32_t used; /* slots that are not NULL */
	_Atomic(struct conn_seat *) slots[];
};

/* Chunk k begins with seat FIRST * (2^k - 1). */
static unsigned chunk_of(unsigned number, unsigned *at)
{
	unsigned n = number / CONN_SEATS_FIRST + 1;
	unsigned k = 31u - (unsigned)__builtin_clz(n);

	*at = number - CONN_SEATS_FIRST * ((1u << k) - 1);
	return k;
}

static inline uint32_t hash_of(uint64_t self)
{
	/* Names are addresses, or small numbers. */
	return (uint32_t)((self * 0x9e3779b97f4a7c15ull) >> 32);
}

static struct conn_seat *look(struct conn_seats *s, uint64_t self)
{
	struct seat_table *t;
	struct conn_seat *seat;
	uint32_t i = hash_of(self);

	/* Acquire: pairs with the releases in insert() and grow(). */
	t = atomic_load_explicit(&s->table, memory_order_acquire);
	if (!t)
		return NULL;
	for (;; i++) {
		seat = atomic_load_explicit(&t->slots[i & t->mask],
					    memory_order_acquire);
		if (!seat)
			return NULL;
		if (atomic_load_explicit(&seat->thread, memory_order_relaxed) ==
		    self)
			return seat;
	}
}

static struct conn_seat *find(struct conn_seats *s, uint64_t self)
{
	struct conn_seat *seat = conn_seat_if_first(&s->first, s->env);

	/* The thread that came first, so that one alone needs no hash. */
	return seat ? seat : look(s, self);
}

struct conn_seat *conn_seat_find(struct skein_conn *handle)
{
	struct conn_seats *s = &conn_lane_head(handle)->lanes->seats;
	uint64_t self = env_thread_self(s->env);
	struct conn_seat *seat = find(s, self);

	if (__builtin_expect(seat != NULL, 1))
		return seat;
	env_mutex_lock(s->env, &s->lock);
	seat = look(s, self);
	env_mutex_unlock(s->env, &s->lock);
	return seat;
}

/* --- the hash, under the lock ------------------------------------------ */

static void insert(struct seat_table *t, struct conn_seat *seat, uint64_t self)
{
	uint32_t i = hash_of(self);
	struct conn_seat *was;

	/* A free seat's slot will do: chains of slots do not break. */
	for (;; i++) {
		was = atomic_load_explicit(&t->slots[i & t->mask],
					   memory_order_relaxed);
		if (!was)
			t->used++;
		if (!was ||
		    !atomic_load_explicit(&was->thread, memory_order_relaxed))
			break;
	}
	/* Release: who finds the seat sees what is in it. */
	atomic_store_explicit(&t->slots[i & t->mask], seat,
			      memory_order_release);
}

static void fill(struct conn_seats *s, struct seat_table *t)
{
	struct conn_seat *seat;
	struct list_node *n;

	for (uint32_t i = 0; i <= t->mask; i++)
		atomic_store_explicit(&t->slots[i], NULL, memory_order_relaxed);
	t->used = 0;
	list_for_each(n, &s->taken) {
		seat = container_of(n, struct conn_seat, link);
		insert(t, seat,
		       atomic_load_explicit(&seat->thread,
					    memory_order_relaxed));
	}
}

/* Room for one more. */
static int reserve(struct conn_seats *s)
{
	struct seat_table *t, *old;
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

/* --- taking one, under the lock ---------------------------------------- */

bool conn_seat_idle(struct conn_seat *seat)
{
	const struct conn_module *m;

	/* Acquire pairs with the release in memop.c: what the old lane brought
	 * is older than what the new one sends. */
	if (atomic_load_explicit(&seat->wrs_ended, memory_order_acquire) !=
	    seat->wrs_begun)
		return false;
	for (unsigned i = 0; (m = conn_modules[i]); i++)
		if (m->seat_idle && !m->seat_idle(seat->handle, seat))
			return false;
	return true;
}

static struct conn_seat *used_one(struct skein_conn *handle)
{
	struct conn_seats *s = &handle->lanes->seats;
	struct list_node *n = list_pop_head(&s->free);
	struct conn_seat *seat;
	unsigned looks = s->n_left;

	if (n)
		return container_of(n, struct conn_seat, link);
	/* Those that are long in the line have their turn by and by, all of
	 * them when there is no other seat. */
	if (looks > LOOKS &&
	    atomic_load_explicit(&s->n, memory_order_relaxed) < CONN_SEATS_MAX)
		looks = LOOKS;
	while (looks--) {
		n = list_pop_head(&s->left);
		seat = container_of(n, struct conn_seat, link);
		if (conn_seat_idle(seat)) {
			s->n_left--;
			return seat;
		}
		list_add_tail(&s->left, n);
	}
	return NULL;
}

static void left(struct env_exit *x);

static void seat_init(struct skein_conn *handle, struct conn_seat *seat,
		      unsigned number)
{
	seat->number = (uint16_t)number;
	seat->handle = handle;
	seat->lanes = handle->lanes->lane;
	seat->on_exit.fn = left;
	conn_req_init(&seat->req);
}

/* Not counted yet: nobody sees it. */
static int new_one(struct skein_conn *handle, struct conn_seat **seat)
{
	struct conn_seats *s = &handle->lanes->seats;
	unsigned n = atomic_load_explicit(&s->n, memory_order_relaxed);
	unsigned at, k = chunk_of(n, &at);

	if (n == CONN_SEATS_MAX)
		return -EAGAIN;
	if (!s->chunks[k])
		s->chunks[k] = env_alloc_aligned(
			s->env, alignof(struct conn_seat),
			sizeof(struct conn_seat) * (CONN_SEATS_FIRST << k));
	if (!s->chunks[k])
		return -ENOMEM;
	*seat = &s->chunks[k][at];
	seat_init(handle, *seat, n);
	return 0;
}

static int modules_taken(struct skein_conn *handle, struct conn_seat *seat)
{
	const struct conn_module *m;
	int rc;

	for (unsigned i = 0; (m = conn_modules[i]); i++) {
		if (!m->seat_taken)
			continue;
		rc = m->seat_taken(handle, seat);
		if (rc)
			return rc;
	}
	return 0;
}

static int take(struct skein_conn *handle, struct conn_seat *seat)
{
	struct conn_seats *s = &handle->lanes->seats;
	uint64_t self = env_thread_self(s->env);
	uint16_t lane;
	int rc;

	lane = (uint16_t)(env_random_u64(s->env) % handle->lanes->count);
	atomic_store_explicit(&seat->lane, lane, memory_order_relaxed);
	atomic_store_explicit(&seat->lane_wanted, lane, memory_order_relaxed);
	atomic_store_explicit(&seat->drain_ns, 0, memory_order_relaxed);
	rc = modules_taken(handle, seat);
	if (rc == 0)
		rc = env_thread_on_exit(s->env, &seat->on_exit);
	if (rc)
		return rc;
	insert(atomic_load_explicit(&s->table, memory_order_relaxed), seat,
	       self);
	atomic_store_explicit(&seat->thread, self, memory_order_relaxed);
	/* Release, here and of n in attach(): who sees the state sees what modules did. */
	atomic_store_explicit(&seat->state, CONN_SEAT_TAKEN,
			      memory_order_release);
	if (!atomic_load_explicit(&s->first, memory_order_relaxed))
		atomic_store_explicit(&s->first, seat, memory_order_release);
	list_add_tail(&s->taken, &seat->link);
	s->n_taken++;
	return 0;
}

static int attach(struct skein_conn *handle, struct conn_seat **out)
{
	struct conn_seats *s = &handle->lanes->seats;
	struct conn_seat *seat;
	bool fresh = false;
	int rc;

	rc = reserve(s);
	if (rc)
		return rc;
	seat = used_one(handle);
	if (!seat) {
		fresh = true;
		rc = new_one(handle, &seat);
	}
	if (rc)
		return rc;
	rc = take(handle, seat);
	if (rc) {
		/* Modules may keep something there already. */
		atomic_store_explicit(&seat->state, CONN_SEAT_FREE,
				      memory_order_release);
		list_add_tail(&s->free, &seat->link);
	}
	if (fresh)
		atomic_fetch_add_explicit(&s->n, 1, memory_order_release);
	if (rc == 0)
		*out = seat;
	return rc;
}

/* The thread has no seat, or the hash was being swept. */
static __attribute__((noinline)) int seat_anew(struct skein_conn *handle,
					       struct conn_seat **out)
{
	struct conn_seats *s = &handle->lanes->seats;
	struct conn_seat *seat;
	int rc = 0;

	handle = conn_lane_head(handle);
	env_mutex_lock(s->env, &s->lock);
	seat = look(s, env_thread_self(s->env));
	if (!seat)
		rc = attach(handle, &seat);
	env_mutex_unlock(s->env, &s->lock);
	if (rc == 0)
		*out = seat;
	return rc;
}

int conn_seat(struct skein_conn *handle, struct conn_seat **out)
{
	struct conn_seats *s = &handle->lanes->seats;
	struct conn_seat *seat = find(s, env_thread_self(s->env));

	skein_assert_debug(handle->client);
	if (__builtin_expect(!seat, 0))
		return seat_anew(handle, out);
	*out = seat;
	return 0;
}

const _Atomic(struct conn_seat *) *conn_seat_first(struct skein_conn *handle)
{
	return &handle->lanes->seats.first;
}

/* --- replies ----------------------------------------------------------- */

void conn_seat_filled(struct conn_seat *seat)
{
	struct skein_engine *eng = seat->handle->eng;
	struct env_waiter *app;

	env_mutex_lock(eng->env, &eng->replies_lock);
	if (!list_linked(&seat->filled)) {
		list_add_tail(&eng->replies, &seat->filled);
		atomic_fetch_add(&eng->n_replies, 1);
	}
	env_mutex_unlock(eng->env, &eng->replies_lock);
	conn_seat_wake(seat);
	app = atomic_load_explicit(&eng->app, memory_order_acquire);
	if (app)
		env_waiter_wake(eng->env, app);
}

static void not_filled(struct skein_engine *eng, struct conn_seat *seat)
{
	env_mutex_lock(eng->env, &eng->replies_lock);
	if (list_linked(&seat->filled)) {
		list_del(&seat->filled);
		atomic_fetch_sub(&eng->n_replies, 1);
	}
	env_mutex_unlock(eng->env, &eng->replies_lock);
}

static struct conn_seat *filled_of(struct skein_engine *eng, uint64_t thread)
{
	struct conn_seat *seat, *found = NULL;
	struct list_node *n;

	/* A thread that misses what is added now is woken after. */
	if (!atomic_load(&eng->n_replies))
		return NULL;
	env_mutex_lock(eng->env, &eng->replies_lock);
	list_for_each(n, &eng->replies) {
		seat = container_of(n, struct conn_seat, filled);
		if (atomic_load_explicit(&seat->thread, memory_order_relaxed) !=
		    thread)
			continue;
		found = seat;
		break;
	}
	env_mutex_unlock(eng->env, &eng->replies_lock);
	return found;
}

bool conn_seats_filled(struct skein_engine *eng, uint64_t thread)
{
	return filled_of(eng, thread) != NULL;
}

int conn_seats_reap(struct skein_engine *eng)
{
	const struct conn_module *m;
	struct conn_seat *seat;
	int moved = 0;

	if (__builtin_expect(!atomic_load_explicit(&eng->n_replies,
						   memory_order_relaxed),
			     1))
		return 0;
	while ((seat = filled_of(eng, env_thread_self(eng->env)))) {
		/* First: what comes behind the look fills it anew. */
		not_filled(eng, seat);
		for (unsigned i = 0; (m = conn_modules[i]); i++)
			if (m->seat_reap)
				moved += m->seat_reap(seat);
	}
	return moved;
}

int conn_replies_reap(struct skein_conn *conn)
{
	return conn_seats_reap(conn->eng);
}

/* --- leaving ----------------------------------------------------------- */

/* In the thread that ends. */
static void left(struct env_exit *x)
{
	struct conn_seat *seat = container_of(x, struct conn_seat, on_exit);
	struct skein_conn *handle = seat->handle;
	struct conn_seats *s = &handle->lanes->seats;
	const struct conn_module *m;

	/* It ends inside a callback of its own. */
	if (engine_is_owner(handle->eng->e))
		engine_leave(handle->eng->e);
	for (unsigned i = 0; (m = conn_modules[i]); i++)
		if (m->seat_left)
			m->seat_left(handle, seat);
	not_filled(handle->eng, seat);
	env_mutex_lock(s->env, &s->lock);
	if (atomic_load_explicit(&s->first, memory_order_relaxed) == seat)
		atomic_store_explicit(&s->first, NULL, memory_order_relaxed);
	atomic_store_explicit(&seat->thread, 0, memory_order_relaxed);
	atomic_store_explicit(&seat->state, CONN_SEAT_LEFT,
			      memory_order_release);
	list_del(&seat->link);
	list_add_tail(&s->left, &seat->link);
	s->n_left++;
	s->n_taken--;
	atomic_fetch_add_explicit(&s->leavings, 1, memory_order_release);
	env_mutex_unlock(s->env, &s->lock);
	engine_kick(handle->eng->e);
}

/* --- for modules ------------------------------------------------------- */

int conn_seat_moved(struct conn_seat *seat)
{
	uint16_t lane = atomic_load_explicit(&seat->lane, memory_order_relaxed);
	uint16_t wanted =
		atomic_load_explicit(&seat->lane_wanted, memory_order_relaxed);

	if (conn_seat_idle(seat)) {
		lane = wanted;
		atomic_store_explicit(&seat->lane, lane, memory_order_relaxed);
	} else if (conn_seat_drained_ns(seat) != ENV_NEVER) {
		return -EAGAIN;
	}
	return lane;
}

uint64_t conn_seat_drained_ns(struct conn_seat *seat)
{
	/* Relaxed: of no account by the next time. */
	uint64_t until =
		atomic_load_explicit(&seat->drain_ns, memory_order_relaxed);

	if (!until || env_now_ns(seat->handle->ctx->env) >= until ||
	    atomic_load_explicit(&seat->lane, memory_order_relaxed) ==
		    atomic_load_explicit(&seat->lane_wanted,
					 memory_order_relaxed))
		return ENV_NEVER;
	return until;
}

int conn_seat_waiter_new(struct conn_seat *seat, struct env_waiter **w)
{
	/* Who waits here does so in turns with the engine's owner: each alone
	 * would be told that it spins beside others. Where threads do, the
	 * first that loses its core to another says so. */
	int rc = env_waiter_new_second(seat->handle->ctx->env,
				       seat->handle->eng->wait_mode, w);

	/* Release: conn_seat_wake() in another thread. */
	if (!rc)
		atomic_store_explicit(&seat->waiter, *w, memory_order_release);
	return rc;
}

void conn_seat_wake(struct conn_seat *seat)
{
	struct env_waiter *w =
		atomic_load_explicit(&seat->waiter, memory_order_acquire);

	if (w)
		env_waiter_wake(seat->handle->ctx->env, w);
}

struct conn_seat *conn_seats_at(struct conn_seats *s, unsigned number)
{
	unsigned at, k = chunk_of(number, &at);

	return &s->chunks[k][at];
}

unsigned conn_seats(struct skein_conn *handle)
{
	/* Acquire pairs with the release in attach(). */
	return atomic_load_explicit(&handle->lanes->seats.n,
				    memory_order_acquire);
}

struct conn_seat *conn_seat_at(struct skein_conn *handle, unsigned number)
{
	return conn_seats_at(&handle->lanes->seats, number);
}

unsigned conn_seats_left(struct skein_conn *handle)
{
	return atomic_load_explicit(&handle->lanes->seats.leavings,
				    memory_order_acquire);
}

/* --- life -------------------------------------------------------------- */

void conn_seats_init(struct conn_seats *s, struct skein_env *env)
{
	s->env = env;
	env_mutex_init(env, &s->lock);
	list_init(&s->free);
	list_init(&s->left);
	list_init(&s->taken);
}

void conn_seats_fini(struct skein_conn *handle)
{
	struct conn_seats *s = &handle->lanes->seats;
	unsigned n = conn_seats(handle);
	const struct conn_module *m;
	struct seat_table *t, *older;
	struct conn_seat *seat;

	for (unsigned i = 0; i < n; i++) {
		seat = conn_seats_at(s, i);
		/* Those that are ending are through with it, the others come
		 * no more. */
		env_thread_off_exit(s->env, &seat->on_exit);
		not_filled(handle->eng, seat);
		for (unsigned k = 0; (m = conn_modules[k]); k++)
			if (m->seat_free)
				m->seat_free(handle, seat);
		env_waiter_free(s->env, atomic_load(&seat->waiter));
	}
	atomic_store(&s->n, 0);
	for (unsigned k = 0; k < CONN_SEATS_CHUNKS; k++) {
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
