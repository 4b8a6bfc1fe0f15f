/* SPDX-License-Identifier: MIT */
/*
 * handle.c - what the lanes of a connection share at the calling end: the list
 * of threads that wait for room, the scheduler of threads (FLOCK, section
 * 3.4.2), and statistics.
 *
 * The list is ordered, oldest first. The owner wakes all of it when something
 * has changed. A thread that has found room wakes the first of the list, so
 * that room for several threads reaches all of them. A blocking call that comes
 * later goes to the end of the list.
 *
 * Thread rule: the engine's owner, unless lane_client.h says otherwise.
 */
#include <errno.h>

#include "rpc/client/lane_client.h"

/* A thread that changes lanes sends nothing for this long at most. */
#define DRAIN_MAX_NS 5000000u

/* --- without room ------------------------------------------------------- */

static void tell(struct rpc_room_waiter *room_waiter)
{
	/* Release pairs with the acquire in may_look(): a thread that reads
	 * `look` also sees what has changed. */
	atomic_store_explicit(&room_waiter->look, true, memory_order_release);
	conn_thread_wake(room_waiter->rec);
}

void rpc_handle_want(struct rpc_handle *h, uint64_t want)
{
	struct rpc_conn *rc = rpc_conn_of(h->head);

	atomic_fetch_add(&h->wants, want);
	if (rpc_event_rests(&rc->port.event))
		conn_wake(h->head);
}

void rpc_handle_join(struct rpc_handle *h, struct rpc_room_waiter *room_waiter)
{
	env_mutex_lock(h->env, &h->lock);
	list_add_tail(&h->room_waiters, &room_waiter->link);
	/* Sequentially consistent. The owner reads the word relaxed, after its
	 * change: if it misses this thread, the attempt that follows here sees
	 * the change. */
	rpc_handle_want(h, RPC_WANT_ROOM);
	env_mutex_unlock(h->env, &h->lock);
	/* The owner may sleep, or may have read the word in this round
	 * already. */
	engine_kick(conn_engine(h->head));
}

void rpc_handle_leave(struct rpc_handle *h, struct rpc_room_waiter *room_waiter)
{
	env_mutex_lock(h->env, &h->lock);
	list_del(&room_waiter->link);
	atomic_fetch_sub(&h->wants, RPC_WANT_ROOM);
	if (!list_empty(&h->room_waiters))
		tell(container_of(h->room_waiters.next, struct rpc_room_waiter,
				  link));
	env_mutex_unlock(h->env, &h->lock);
}

void rpc_handle_feed(struct rpc_handle *h)
{
	struct list_node *n;

	if (!rpc_handle_wants_room(h))
		return;
	env_mutex_lock(h->env, &h->lock);
	list_for_each(n, &h->room_waiters) {
		tell(container_of(n, struct rpc_room_waiter, link));
	}
	env_mutex_unlock(h->env, &h->lock);
}

/* --- the scheduler of threads ------------------------------------------- */

static bool arrays(struct rpc_handle *h, unsigned n)
{
	if (n <= h->threads_cap)
		return true;
	env_free(h->env, h->threads);
	h->threads_cap = 0;
	h->threads = env_alloc(h->env, 2 * n * sizeof(*h->threads));
	if (h->threads)
		h->threads_cap = 2 * n;
	return h->threads != NULL;
}

static unsigned active_lanes(struct rpc_handle *h)
{
	unsigned n = 0, lanes = conn_lanes(h->head);
	struct rpc_conn *rc;

	for (unsigned i = 0; i < lanes; i++) {
		rc = h->lanes[i];
		if (rc && rc->up && rc->lane_client->active)
			h->active[n++] = i;
	}
	return n;
}

/* Bytes that a request takes besides its payload. */
#define REQUEST_OWN sizeof(struct rpc_req_meta)

static bool load_of(struct conn_thread *rec, struct thrsched_thread *t)
{
	struct rpc_thread *s;
	uint32_t requests;
	uint64_t bytes;

	/* Acquire: a thread that reads the state TAKEN also sees what modules
	 * have put into the record. */
	if (atomic_load_explicit(&rec->state, memory_order_acquire) !=
	    CONN_THREAD_TAKEN)
		return false;
	s = rpc_thread_of(rec);
	requests = atomic_load_explicit(&s->requests, memory_order_relaxed);
	bytes = atomic_load_explicit(&s->bytes, memory_order_relaxed);
	*t = (struct thrsched_thread){
		.id = rec->number,
		.median =
			atomic_load_explicit(&s->median, memory_order_relaxed),
		.requests = requests - s->requests_seen,
		.bytes = bytes - s->bytes_seen +
			 REQUEST_OWN * (requests - s->requests_seen),
		.qp = atomic_load_explicit(&rec->lane_wanted,
					   memory_order_relaxed)};
	s->requests_seen = requests;
	s->bytes_seen = bytes;
	return true;
}

/* A thread changes lanes when nothing of it is under way, and sends nothing for
 * a while until that is so: conn_thread_lane(). Relaxed: a thread that sees
 * only one of the two words changes, or waits, one call later. */
static void move(struct rpc_handle *h, struct conn_thread *rec, uint32_t lane,
		 uint64_t now_ns)
{
	uint64_t half = h->interval_ns / 2;

	atomic_store_explicit(&rec->drain_ns,
			      now_ns + (half < DRAIN_MAX_NS ? half
							    : DRAIN_MAX_NS),
			      memory_order_relaxed);
	atomic_store_explicit(&rec->lane_wanted, (uint16_t)lane,
			      memory_order_relaxed);
	h->migrations++;
}

static int schedule(struct rpc_handle *h, uint64_t now_ns)
{
	unsigned i, n = 0, recs = conn_threads(h->head), lanes;
	struct conn_thread *rec;
	int moved = 0;

	lanes = active_lanes(h);
	if (!lanes || !arrays(h, recs))
		return 0;
	for (i = 0; i < recs; i++)
		n += load_of(conn_thread_at(h->head, i), &h->threads[n]);
	if (n)
		thrsched_map(h->threads, n, h->active, lanes);
	for (i = 0; i < n; i++) {
		rec = conn_thread_at(h->head, h->threads[i].id);
		if (atomic_load_explicit(&rec->lane_wanted,
					 memory_order_relaxed) ==
		    h->threads[i].qp)
			continue;
		move(h, rec, h->threads[i].qp, now_ns);
		moved++;
	}
	if (moved)
		rpc_handle_feed(h); /* another lane may have room */
	return moved;
}

/* Runs done() of the calls of threads that have ended. */
static int sweep(struct rpc_handle *h)
{
	unsigned left = conn_threads_left(h->head), n;
	struct conn_thread *rec;
	int moved = 0;

	if (__builtin_expect(left == h->threads_left, 1))
		return 0;
	n = conn_threads(h->head);
	/* Each thread adds RPC_LEAVING before conn_threads_left() counts it. */
	atomic_fetch_sub_explicit(&h->wants,
				  RPC_LEAVING * (left - h->threads_left),
				  memory_order_relaxed);
	h->threads_left = left;
	for (unsigned i = 0; i < n; i++) {
		rec = conn_thread_at(h->head, i);
		/* Acquire: the thread that set the state touches the record no
		 * more. */
		if (atomic_load_explicit(&rec->state, memory_order_acquire) ==
		    CONN_THREAD_LEFT)
			moved += rpc_thread_sweep(rpc_thread_of(rec));
	}
	return moved;
}

void rpc_handle_schedule(struct rpc_handle *h)
{
	struct rpc_conn *rc = rpc_conn_of(h->head);

	if (rc && rc->lane_client && conn_lanes(h->head) > 1)
		rc->lane_client->sched_ns = 0;
}

int rpc_handle_poll(struct rpc_handle *h, uint64_t now_ns)
{
	struct rpc_lane_client *sh = rpc_conn_of(h->head)->lane_client;
	int moved = sweep(h);

	if (now_ns < sh->sched_ns)
		return moved;
	sh->sched_ns = now_ns + h->interval_ns;
	return moved + schedule(h, now_ns);
}

/* --- statistics --------------------------------------------------------- */

static uint64_t seen(const uint64_t *n)
{
	return __atomic_load_n(n, __ATOMIC_RELAXED);
}

static void add_lane(struct rpc_conn *rc, uint64_t *degrees,
		     struct skein_rpc_stats *st)
{
	const struct rpc_stats *own = &rc->port.stats;
	struct rpc_client_tx *tx = &rc->client.tx;
	struct rpc_lane_client *sh = rc->lane_client;
	uint64_t alone = seen(&tx->alone);
	uint64_t messages = rpc_client_messages(&rc->client);

	st->calls += own->calls + seen(&tx->calls) + alone;
	st->messages_sent += own->messages_sent + messages;
	st->messages_received += own->messages_received;
	conn_sendq_hold(rc->conn);
	st->doorbells += conn_sendq_stats(rc->conn)->doorbells;
	conn_sendq_release(rc->conn);
	st->bytes_sent += own->bytes_sent + seen(&tx->bytes);
	st->head_reads += own->head_reads;
	st->full += seen(&own->full);
	st->wakeups_sent += own->wakeups_sent + seen(&sh->wakeups);
	st->fetched += own->fetched;
	st->fetched_messages += own->fetched_messages;
	st->fetch_reads += own->fetch_reads;
	st->fetch_empty += own->fetch_empty;
	st->fetch_rests += own->fetch_rests;
	st->fetch_len_changes += own->fetch_len_changes;
	if (st->fetch_len < own->fetch_len)
		st->fetch_len = own->fetch_len;
	st->fetch_tries = RPC_FETCH_R;
	st->recalls += own->recalls;
	st->replied += own->replied;
	st->switches += own->switches;
	st->credit_grants += sh->grants;
	st->credit_declines += sh->declines;
	/* Each message that the owner sends has one call. */
	if (sh->has_credits)
		st->credits += CREDIT_C + sh->granted - own->calls - messages -
			       seen(&sh->all_ops);
	st->lanes_active += sh->active;
	degrees[1] += alone;
	for (unsigned i = 1; i <= RPC_DEGREES; i++)
		degrees[i] += seen(&sh->degrees[i]);
}

static void add_thread(struct rpc_thread *s, struct skein_rpc_stats *st)
{
	uint32_t batch = atomic_load_explicit(&s->batch, memory_order_relaxed);

	st->timed += atomic_load_explicit(&s->timed, memory_order_relaxed);
	st->late += atomic_load_explicit(&s->late, memory_order_relaxed);
	st->bound_unmet +=
		atomic_load_explicit(&s->unmet, memory_order_relaxed);
	if (st->batch < batch)
		st->batch = batch;
}

void rpc_handle_stats(struct rpc_handle *h, struct skein_rpc_stats *st)
{
	uint64_t degrees[RPC_DEGREES + 1] = {0}, sum = 0, before = 0;
	unsigned i, lanes = conn_lanes(h->head);
	struct rpc_thread *s;
	struct rpc_conn *rc;

	*st = (struct skein_rpc_stats){.lanes = lanes,
				       .migrations = h->migrations};
	for (i = 0; i < lanes; i++) {
		rc = h->lanes[i];
		if (rc)
			add_lane(rc, degrees, st);
	}
	for (i = 0; i < conn_threads(h->head); i++) {
		s = rpc_thread_of(conn_thread_at(h->head, i));
		if (s)
			add_thread(s, st);
	}
	for (i = 1; i <= RPC_DEGREES; i++) {
		sum += degrees[i];
		st->degrees[i < SKEIN_RPC_DEGREES ? i - 1
						  : SKEIN_RPC_DEGREES - 1] +=
			degrees[i];
	}
	for (i = 1; i <= RPC_DEGREES && sum && !st->degree_median; i++) {
		before += degrees[i];
		if (before >= (sum + 1) / 2)
			st->degree_median = i;
	}
}

/* --- life --------------------------------------------------------------- */

int rpc_handle_new(struct skein_conn *head, struct rpc_handle **out)
{
	struct rpc_ctx *rx = conn_ctx_module(conn_ctx(head), CONN_MODULE_RPC);
	struct skein_env *env = conn_env(head);
	struct rpc_handle *h;

	h = env_alloc_aligned(env, 64, sizeof(*h));
	if (!h)
		return -ENOMEM;
	h->active = env_alloc(env, conn_lanes(head) * sizeof(*h->active));
	h->lanes = env_alloc(env, conn_lanes(head) * sizeof(*h->lanes));
	if (!h->active || !h->lanes) {
		env_free(env, h->active);
		env_free(env, h->lanes);
		env_free(env, h);
		return -ENOMEM;
	}
	h->env = env;
	h->head = head;
	h->engine = conn_engine(head);
	h->first = conn_thread_first(head);
	h->interval_ns = rx->conf.thread_interval_ns;
	list_init(&h->room_waiters);
	env_mutex_init(env, &h->lock);
	*out = h;
	return 0;
}

void rpc_handle_free(struct rpc_handle *h)
{
	env_mutex_fini(h->env, &h->lock);
	env_free(h->env, h->threads);
	env_free(h->env, h->active);
	env_free(h->env, h->lanes);
	env_free(h->env, h);
}
