/* SPDX-License-Identifier: MIT */
/*
 * engine.c - rounds, sleeping, and the thread that owns them.
 *
 * One word names the owner. A thread that must wait while another owns the
 * engine takes a place: a waiter of its own in e->places. After a round that
 * moved something the owner wakes each place whose done() has become true. On
 * leaving it wakes the oldest place, whose thread takes over. A thread that
 * leaves its place without taking over, while the engine is free, wakes the
 * next: a wake-up that it no longer needs is passed on.
 *
 * Invariants: objs, cursor, now_ns, hot state: the owner's. places, spare:
 * under lock. n_places counts places and is read without the lock.
 */
#include <errno.h>

#include "base/assert.h"
#include "base/fence.h"
#include "env/engine/state.h"

/* Fruitless rounds are some 20 ns long, the clock costs nearly as much. */
#define CLOCK_ROUNDS 8

/* So many fruitless rounds before a polling engine, to which nothing can come
 * but by an fd, sleeps. */
#define FD_ROUNDS 64

/* For one beat's time after a control socket has spoken: handshakes. */
#define HOT_BEAT_NS (50 * 1000ull)

/* A thread that waits while another one owns the engine. */
struct place {
	struct list_node link;
	struct env_waiter *w;
	bool (*done)(void *arg);
	void *arg;
};

/* --- places ------------------------------------------------------------ */

static int place_new(struct engine *e, struct place **place)
{
	struct place *p = env_alloc(e->env, sizeof(*p));
	enum env_wait_mode mode = ENV_WAIT_ADAPTIVE;
	int rc;

	if (!p)
		return -ENOMEM;
	/* A second thread has nothing to poll: it never spins for long. */
	if (e->mode == ENV_WAIT_EVENT)
		mode = ENV_WAIT_EVENT;
	rc = env_waiter_new(e->env, mode, &p->w);
	if (rc) {
		env_free(e->env, p);
		return rc;
	}
	*place = p;
	return 0;
}

static void place_free(struct engine *e, struct place *p)
{
	env_waiter_free(e->env, p->w);
	env_free(e->env, p);
}

static void place_join(struct engine *e, struct place *p)
{
	env_mutex_lock(e->env, &e->lock);
	list_add_tail(&e->places, &p->link);
	atomic_fetch_add(&e->n_places, 1);
	env_mutex_unlock(e->env, &e->lock);
}

/* A spare place belongs to the engine and serves the next thread that waits. */
static void place_quit(struct engine *e, struct place *p, bool spare)
{
	env_mutex_lock(e->env, &e->lock);
	list_del(&p->link);
	atomic_fetch_sub(&e->n_places, 1);
	if (spare)
		list_add_head(&e->spare, &p->link);
	env_mutex_unlock(e->env, &e->lock);
}

/* NULL when no memory or fd is left for one. */
static struct place *place_take(struct engine *e, bool (*done)(void *arg),
				void *arg)
{
	struct list_node *n;
	struct place *p;

	env_mutex_lock(e->env, &e->lock);
	n = list_pop_head(&e->spare);
	env_mutex_unlock(e->env, &e->lock);
	if (n)
		p = container_of(n, struct place, link);
	else if (place_new(e, &p))
		return NULL;
	p->done = done;
	p->arg = arg;
	place_join(e, p);
	/* Pairs with the fence in engine_leave(): an owner that leaves sees
	 * this place, or this thread sees the engine free. */
	fence_full();
	return p;
}

static __attribute__((noinline)) void wake_first_place(struct engine *e)
{
	struct list_node *n;

	env_mutex_lock(e->env, &e->lock);
	if (!list_empty(&e->places)) {
		n = e->places.next;
		env_waiter_wake(e->env, container_of(n, struct place, link)->w);
	}
	env_mutex_unlock(e->env, &e->lock);
}

/* A round moved something: wakes each place of which done() has become true. */
static void wake_done_places(struct engine *e)
{
	struct list_node *n;
	struct place *p;

	/* Relaxed: a place that is taken now and not seen here calls done()
	 * itself before it sleeps. */
	if (!atomic_load_explicit(&e->n_places, memory_order_relaxed))
		return;
	env_mutex_lock(e->env, &e->lock);
	list_for_each(n, &e->places) {
		p = container_of(n, struct place, link);
		if (p->done && p->done(p->arg))
			env_waiter_wake(e->env, p->w);
	}
	env_mutex_unlock(e->env, &e->lock);
}

/* --- ownership --------------------------------------------------------- */

static inline void wake_successor(struct engine *e)
{
	if (__builtin_expect(atomic_load_explicit(&e->n_places,
						  memory_order_relaxed) != 0,
			     0))
		wake_first_place(e);
	else if (__builtin_expect(atomic_load_explicit(&e->back_parked,
						       memory_order_relaxed),
				  0))
		env_waiter_wake(e->env, e->back_w);
}

void engine_leave(struct engine *e)
{
	skein_assert_debug(engine_is_owner(e));
	atomic_store_explicit(&e->lead.owner, 0, memory_order_release);
	/* Pairs with the fence in place_take() and the one behind
	 * env_waiter_arm() in back_park(). Without it both sides may read the
	 * old value: no thread owns the engine, and the thread of the next
	 * place sleeps on. */
	fence_full();
	wake_successor(e);
}

static bool is_done(bool (*done)(void *arg), void *arg)
{
	return done && done(arg);
}

/* Without memory or descriptors for a place the thread waits by yielding: it is
 * correct, but never asleep. */
static int wait_without_place(struct engine *e, const struct run *run)
{
	while (!is_done(run->done, run->arg) && !engine_is_free(e)) {
		if (env_now_ns(e->env) >= run->deadline_ns)
			return -ETIMEDOUT;
		env_yield(e->env);
	}
	return 0;
}

/* For a thread that waits for the owner: 1 when it may sleep now, else 0, or
 * -ETIMEDOUT. */
static int idle_round(struct engine *e, struct env_waiter *w,
		      uint64_t deadline_ns, unsigned *round)
{
	bool parks = env_idle_parks(e->env);
	enum env_idle_verdict verdict;

	if (parks)
		env_idle_until(e->env, w, deadline_ns);
	verdict = env_idle(e->env, w, (*round)++);
	if (verdict == ENV_IDLE_SLEEP)
		return 1;
	if (!parks && verdict == ENV_IDLE_AGAIN && *round % CLOCK_ROUNDS != 1)
		return 0;
	return env_now_ns(e->env) >= deadline_ns ? -ETIMEDOUT : 0;
}

/* joined: p is in the line, else only while it sleeps. */
static int wait_in_place(struct engine *e, struct place *p, bool joined,
			 const struct run *run)
{
	unsigned round = 0;
	int rc = 0;

	while (!is_done(run->done, run->arg) && !engine_is_free(e)) {
		if (rc < 0)
			return rc;
		rc = idle_round(e, p->w, run->deadline_ns, &round);
		if (rc <= 0)
			continue;
		if (!joined)
			place_join(e, p);
		/* The fence in here pairs with the one in engine_leave(), as
		 * that of place_take() does, and with those of w's wakers. */
		env_waiter_arm(e->env, p->w);
		if (is_done(run->done, run->arg) || engine_is_free(e))
			env_waiter_disarm(e->env, p->w);
		else
			rc = env_waiter_sleep(e->env, p->w, run->deadline_ns);
		if (!joined)
			place_quit(e, p, false);
		round = 0;
	}
	return 0;
}

/* Waits until done, or the engine is free: 0; or until the deadline. w: NULL,
 * or the caller's own. */
static int engine_await(struct engine *e, struct env_waiter *w,
			const struct run *run)
{
	struct place own = {.w = w}; /* no done(): the owner need not look */
	struct place *p = w ? &own : place_take(e, run->done, run->arg);
	/* A thread that spins sees by itself that the engine is free, and needs
	 * no place. A thread that is parked must be woken. */
	bool joined = !w || env_idle_parks(e->env);
	int rc;

	if (!p)
		return wait_without_place(e, run);
	if (w && joined)
		place_join(e, p);
	/* The owner may sleep and not know of what we wait for. */
	if (w || atomic_load_explicit(&e->has_back, memory_order_relaxed))
		env_waiter_wake(e->env, e->w);
	rc = wait_in_place(e, p, joined, run);
	if (joined)
		place_quit(e, p, !w);
	return rc;
}

/* This thread does not want the engine: if it was woken to take over, the next
 * one must be. The thread that woke us released the engine first and took the
 * lock second. We took the lock after it (place_quit()), so we see the engine
 * free, or it has an owner again, which wakes the next. */
static void engine_pass_on(struct engine *e)
{
	if (engine_is_free(e))
		wake_successor(e);
}

int engine_enter(struct engine *e, uint64_t deadline_ns)
{
	struct run run = {.deadline_ns = deadline_ns};
	int rc;

	if (engine_is_owner(e))
		return -EDEADLK;
	while (!engine_try_enter(e)) {
		rc = engine_await(e, NULL, &run);
		if (rc) {
			engine_pass_on(e);
			return rc;
		}
	}
	return 0;
}

/* --- objects and rounds ------------------------------------------------ */

void engine_add(struct engine *e, struct engine_obj *obj)
{
	skein_assert(!list_linked(&obj->link));
	list_add_tail(&e->objs, &obj->link);
	/* It may bring a fd along that has much to say. */
	engine_expect(e);
}

void engine_del(struct engine *e, struct engine_obj *obj)
{
	if (e->cursor == &obj->link)
		e->cursor = obj->link.next;
	list_del(&obj->link);
}

/* The next object of this round; safe against any engine_del() in between. */
static struct engine_obj *engine_next(struct engine *e)
{
	struct list_node *n = e->cursor;

	if (n == &e->objs)
		return NULL;
	e->cursor = n->next;
	return container_of(n, struct engine_obj, link);
}

static int run_calls(struct engine *e)
{
	struct engine_call *c, *next, *oldest = NULL;
	int n = 0;

	if (!atomic_load_explicit(&e->calls, memory_order_relaxed))
		return 0;
	/* Acquire pairs with the release in engine_post(): what the poster
	 * wrote into its call is seen. */
	c = atomic_exchange_explicit(&e->calls, NULL, memory_order_acquire);
	for (; c; c = next) {
		next = c->next;
		c->next = oldest;
		oldest = c;
	}
	for (c = oldest; c; c = next, n++) {
		next = c->next; /* the call is its poster's once run */
		c->fn(c);
	}
	return n;
}

static int run_beats(struct engine *e)
{
	struct engine_obj *obj;
	int moved = 0;

	if (!e->fd_ready && e->now_ns < e->next_beat_ns)
		return 0;
	if (!e->fd_ready)
		e->fd_ready = env_waiter_ready(e->env, e->w) > 0;
	e->cursor = e->objs.next;
	while ((obj = engine_next(e)))
		if (obj->ops->beat)
			moved += obj->ops->beat(obj, e->now_ns);
	/* fds are level-triggered: go on until a beat finds nothing. */
	e->fd_ready = moved > 0;
	if (moved)
		engine_expect(e);
	e->next_beat_ns =
		e->now_ns +
		(e->now_ns < e->hot_until_ns ? HOT_BEAT_NS : ENGINE_BEAT_NS);
	return moved;
}

static int engine_round(struct engine *e)
{
	struct engine_obj *obj;
	int moved = 0;

	if (e->fruitless)
		e->busy_since_ns = e->now_ns;
	/* Relaxed: the kick orders nothing. Each object orders its own data;
	 * before a sleep engine_sleep() looks behind a fence. */
	if (atomic_load_explicit(&e->kicked, memory_order_relaxed)) {
		atomic_exchange_explicit(&e->kicked, false,
					 memory_order_acq_rel);
		moved++;
	}
	moved += run_calls(e);
	e->cursor = e->objs.next;
	while ((obj = engine_next(e)))
		moved += obj->ops->poll(obj, e->now_ns);
	moved += run_beats(e);
	if (moved)
		wake_done_places(e);
	e->fruitless = !moved;
	return moved;
}

uint64_t engine_busy_ns(struct engine *e)
{
	return e->now_ns - e->busy_since_ns;
}

bool engine_fd_ready(struct engine *e, int fd)
{
	return e->fd_ready && env_waiter_saw(e->env, e->w, fd);
}

void engine_expect(struct engine *e)
{
	e->hot_until_ns = e->now_ns + ENGINE_BEAT_NS;
}

int engine_poll(struct engine *e)
{
	e->now_ns = env_now_ns(e->env);
	return engine_round(e);
}

static uint64_t first_deadline(struct engine *e)
{
	uint64_t t, first = ENV_NEVER;
	struct engine_obj *obj;
	struct list_node *n;

	list_for_each(n, &e->objs) {
		obj = container_of(n, struct engine_obj, link);
		if (!obj->ops->next_deadline)
			continue;
		t = obj->ops->next_deadline(obj);
		if (t < first)
			first = t;
	}
	return first;
}

static bool objs_arm(struct engine *e)
{
	struct engine_obj *obj;
	struct list_node *n;

	list_for_each(n, &e->objs) {
		obj = container_of(n, struct engine_obj, link);
		if (obj->ops->arm && obj->ops->arm(obj))
			return false;
	}
	return true;
}

int engine_arm(struct engine *e, uint64_t *deadline_ns)
{
	uint64_t deadline;

	env_waiter_arm(e->env, e->w);
	/* Each object's arm() looks at its sources once more; what came in
	 * from other threads is looked at here. All of it behind the fence in
	 * env_waiter_arm(), which pairs with the one in env_waiter_wake(). */
	if (atomic_load_explicit(&e->calls, memory_order_relaxed) ||
	    atomic_load_explicit(&e->kicked, memory_order_relaxed) ||
	    !objs_arm(e)) {
		env_waiter_disarm(e->env, e->w);
		return 1;
	}
	deadline = first_deadline(e);
	*deadline_ns = deadline;
	return 0;
}

void engine_disarm(struct engine *e)
{
	env_waiter_disarm(e->env, e->w);
	/* A foreign loop would find the token of a late wake-up readable for
	 * ever; the round that follows looks at everything anyway. */
	if (env_waiter_ready(e->env, e->w) > 0)
		e->fd_ready = true;
}

/* --- running ----------------------------------------------------------- */

static bool run_must_end(struct engine *e, const struct run *run)
{
	if (is_done(run->done, run->arg))
		return true;
	return run->gives_way &&
	       atomic_load_explicit(&e->n_places, memory_order_relaxed);
}

/* True when it has slept, false when there was a reason not to. */
static bool engine_sleep(struct engine *e, const struct run *run)
{
	uint64_t deadline;
	int rc;

	if (engine_arm(e, &deadline))
		return false;
	/* Behind the fence as well: a thread that takes a place wakes us after
	 * it, so we see the place, or it sees us armed. */
	if (run_must_end(e, run)) {
		env_waiter_disarm(e->env, e->w);
		return false;
	}
	if (run->deadline_ns < deadline)
		deadline = run->deadline_ns;
	rc = env_waiter_sleep(e->env, e->w, deadline);
	/* The deadline may be one that beat() looks after. */
	if (rc == -ETIMEDOUT)
		e->next_beat_ns = 0;
	if (rc > 0)
		e->fd_ready = true;
	return true;
}

/* Where idling parks the thread, it does not look at the clock meanwhile. */
static void tell_deadline(struct engine *e, const struct run *run)
{
	uint64_t t = first_deadline(e);

	if (e->next_beat_ns < t)
		t = e->next_beat_ns;
	if (run->deadline_ns < t)
		t = run->deadline_ns;
	env_idle_until(e->env, e->w, t);
}

/* Polling finds nothing, and takes the core from the process that is to
 * answer. */
static bool polls_in_vain(struct engine *e, unsigned round)
{
	struct engine_obj *obj;
	struct list_node *n;

	if (e->mode != ENV_WAIT_POLL || round < FD_ROUNDS ||
	    env_idle_parks(e->env))
		return false;
	list_for_each(n, &e->objs) {
		obj = container_of(n, struct engine_obj, link);
		if (!obj->ops->by_fd || !obj->ops->by_fd(obj))
			return false;
	}
	return true;
}

/* *round: of fruitless ones, counts. */
static enum env_idle_verdict engine_idle(struct engine *e, struct run *run,
					 unsigned *round)
{
	struct env_waiter *w = e->w;
	enum env_idle_verdict verdict;

	if (__builtin_expect(env_idle_parks(e->env), 0)) {
		tell_deadline(e, run);
	} else if (run->w) {
		w = run->w;
		if (run->sleep_next) {
			run->sleep_next = false;
			return ENV_IDLE_SLEEP;
		}
	}
	verdict = env_idle(e->env, w, (*round)++);
	return __builtin_expect(polls_in_vain(e, *round), 0) ? ENV_IDLE_SLEEP
							     : verdict;
}

static bool wants_to_let_go(struct engine *e, const struct run *run,
			    unsigned round)
{
	return run->w && !run->sleep_next &&
	       env_idle_yields(e->env, run->w, round);
}

/* now_ns is of this moment. */
static inline int engine_rounds(struct engine *e, struct run *run)
{
	enum env_idle_verdict verdict;
	unsigned round = run->round;
	int moved;

	for (;;) {
		moved = engine_round(e);
		if (run_must_end(e, run))
			return 0;
		if (e->now_ns >= run->deadline_ns)
			return -ETIMEDOUT;
		if (moved) {
			round = 0;
			run->sleep_next = false;
			e->now_ns = env_now_ns(e->env);
			continue;
		}
		if (wants_to_let_go(e, run, round)) {
			run->round = round;
			return -EAGAIN;
		}
		verdict = engine_idle(e, run, &round);
		if (verdict == ENV_IDLE_SLEEP && engine_sleep(e, run))
			round = 0;
		if (verdict != ENV_IDLE_AGAIN || round % CLOCK_ROUNDS == 1)
			e->now_ns = env_now_ns(e->env);
	}
}

int engine_run_rounds(struct engine *e, struct run *run)
{
	e->now_ns = env_now_ns(e->env);
	return engine_rounds(e, run);
}

/* Gives the core away, and the engine with it: a thread that gets the core may
 * run the engine itself. No successor is woken, because this thread comes back:
 * it enters again, waits behind the thread that has entered, or passes on. */
static void let_go(struct engine *e, struct run *run)
{
	/* Release, and the fence: as in engine_leave(). If engine_pass_on() is
	 * next, it sees the place of each thread that saw us as the owner. */
	atomic_store_explicit(&e->lead.owner, 0, memory_order_release);
	fence_full();
	run->sleep_next =
		env_idle(e->env, run->w, run->round++) == ENV_IDLE_SLEEP;
}

static int run_or_wait(struct engine *e, struct run *run)
{
	int rc;

	if (engine_is_owner(e))
		return -EDEADLK;
	for (;;) {
		if (run->done(run->arg)) {
			engine_pass_on(e);
			return 0;
		}
		if (engine_try_enter(e)) {
			rc = engine_run_rounds(e, run);
			if (rc == -EAGAIN) {
				let_go(e, run);
				continue;
			}
			engine_leave(e);
			return rc;
		}
		rc = engine_await(e, run->w, run);
		run->round = 0;
		run->sleep_next = false;
		if (rc && !run->done(run->arg)) {
			engine_pass_on(e);
			return rc;
		}
	}
}

/* By the owner, after a run that returned rc: it leaves the engine; on -EAGAIN
 * it gives the core away and then waits like other threads. */
static inline int run_entered(struct engine *e, struct run *run, int rc)
{
	if (__builtin_expect(rc == -EAGAIN, 0)) {
		let_go(e, run);
		return run_or_wait(e, run);
	}
	engine_leave(e);
	return rc;
}

int engine_run(struct engine *e, const struct engine_run *how)
{
	struct run run = {.done = how->done,
			  .arg = how->arg,
			  .deadline_ns = how->deadline_ns,
			  .w = how->w};

	if (!how->entered && engine_is_owner(e))
		return -EDEADLK;
	if (!how->entered && !(how->timeout_ns && engine_try_enter(e))) {
		if (how->timeout_ns)
			run.deadline_ns = env_deadline(env_now_ns(e->env),
						       how->timeout_ns);
		return run_or_wait(e, &run);
	}
	skein_assert_debug(engine_is_owner(e));
	e->now_ns = env_now_ns(e->env);
	if (how->timeout_ns)
		run.deadline_ns = env_deadline(e->now_ns, how->timeout_ns);
	return run_entered(e, &run, engine_rounds(e, &run));
}

void engine_kick(struct engine *e)
{
	/* Release: orders the kicker's work before the flag for a round that
	 * takes it; the fence in env_waiter_wake() does the rest. */
	atomic_store_explicit(&e->kicked, true, memory_order_release);
	env_waiter_wake(e->env, e->w);
}

void engine_post(struct engine *e, struct engine_call *call)
{
	struct engine_call *head;

	head = atomic_load_explicit(&e->calls, memory_order_relaxed);
	do
		call->next = head;
	while (!atomic_compare_exchange_weak_explicit(&e->calls, &head, call,
						      memory_order_release,
						      memory_order_relaxed));
	env_waiter_wake(e->env, e->w);
}

/* --- life -------------------------------------------------------------- */

int engine_new(struct skein_env *env, enum env_wait_mode mode,
	       struct engine **engine)
{
	struct engine *e = env_alloc_aligned(env, 64, sizeof(*e));
	struct place *p;
	int rc;

	if (!e)
		return -ENOMEM;
	e->lead.env = e->env = env;
	e->fruitless = true;
	e->mode = mode;
	rc = env_waiter_new(env, mode, &e->w);
	if (rc)
		goto err_free;
	list_init(&e->objs);
	list_init(&e->places);
	list_init(&e->spare);
	e->cursor = &e->objs;
	/* One place ahead: a process that runs out of fds later still has it */
	rc = place_new(e, &p);
	if (rc)
		goto err_waiter;
	list_add_head(&e->spare, &p->link);
	env_mutex_init(env, &e->lock);
	e->now_ns = env_now_ns(env);
	*engine = e;
	return 0;

err_waiter:
	env_waiter_free(env, e->w);
err_free:
	env_free(env, e);
	return rc;
}

void engine_free(struct engine *e)
{
	struct list_node *n;

	if (!e)
		return;
	skein_assert(list_empty(&e->objs));
	skein_assert(!e->back);
	skein_assert(list_empty(&e->places));
	while ((n = list_pop_head(&e->spare)))
		place_free(e, container_of(n, struct place, link));
	env_waiter_free(e->env, e->back_w);
	env_mutex_fini(e->env, &e->lock);
	env_waiter_free(e->env, e->w);
	env_free(e->env, e);
}

struct env_waiter *engine_waiter(struct engine *e)
{
	return e->w;
}

uint64_t engine_now_ns(struct engine *e)
{
	return e->now_ns;
}
