/* SPDX-License-Identifier: MIT */
/*
 * eng.c - one progress object per engine: completions, modules, control links.
 *
 * An idle round polls the module of each active connection and the completion
 * queues, and looks at a few silent connections; one flag (attention) guards
 * the rest. Control sockets, timers and announcements wait for the beat.
 */
#include "base/assert.h"

#include "base/pow2.h"
#include "conn/eng.h"
#include "conn/events.h"
#include "conn/pool.h"
#include "conn/state.h"
#include "conn/setup/listener.h"

#include <errno.h>
#include <sys/epoll.h>

#define WC_BATCH 16

/* While polls of rings move messages the CQs wait: many messages make one
 * completion, and a look costs more than a message. But not for ever:
 * completions free the send queues, and report failures. */
#define CQ_PATIENCE 16
#define CQS_A_ROUND 2
/* Silent connections wait so many busy rounds. */
#define LOOK_PATIENCE 8
_Static_assert((ENG_CQ_NOW + 1) % LOOK_PATIENCE == 0 &&
		       CQ_PATIENCE % LOOK_PATIENCE == 0,
	       "the CQs are looked at when the silent ones are");
#define LINKS_A_BEAT 16

/* Bytes of memory that is freed in a round. */
#define REGION_DROP (128u << 10)

/* --- rounds ------------------------------------------------------------ */

static void cq_failed(struct skein_engine *eng, struct eng_cq *cq)
{
	for (uint32_t i = 0; i < eng->table_cap; i++) {
		struct skein_conn *conn = eng->table[i];

		if (conn && conn->cq == cq)
			conn_break(conn, -EIO,
				   "its completion queue has failed");
	}
}

static int poll_cq(struct skein_engine *eng, struct eng_cq *cq)
{
	struct ibv_wc wc[WC_BATCH];
	int n;

	/* No QP uses it: so the first CQ, where all connections have send
	 * queues. */
	if (!cq->used)
		return 0;
	n = dev_poll_cq(&eng->stats, cq->cq, WC_BATCH, wc);
	if (__builtin_expect(n < 0, 0)) {
		cq_failed(eng, cq);
		return 0;
	}
	for (int k = 0; k < n; k++)
		conn_complete(eng, &wc[k]);
	return n;
}

static int poll_cqs(struct skein_engine *eng)
{
	int moved = 0;

	eng->cq_waits = 0;
	for (unsigned i = 0; i < eng->n_cqs; i++)
		moved += poll_cq(eng, &eng->cqs[i]);
	return moved;
}

void eng_region_end(struct skein_engine *eng, struct mem_region *region)
{
	if (!mem_region_end(region))
		return;
	list_add_tail(&eng->regions, &region->link);
	eng->attention = true;
}

static struct mem_region *region_first(struct skein_engine *eng)
{
	return container_of(eng->regions.next, struct mem_region, link);
}

static int regions_drop(struct skein_engine *eng)
{
	struct mem_region *r = region_first(eng);

	list_del(&r->link);
	if (!mem_region_drop(r, REGION_DROP))
		list_add_tail(&eng->regions, &r->link);
	eng->again |= !list_empty(&eng->regions);
	return 1;
}

/* Does what callbacks have marked. */
static int service(struct skein_engine *eng, uint64_t now_ns)
{
	struct list_node *n, *next;
	struct skein_conn *conn;
	int moved = 0;

	while (eng->attention) {
		eng->attention = false;
		list_for_each_safe(n, next, &eng->pending) {
			conn = container_of(n, struct skein_conn, pending_link);
			conn_service(conn, now_ns);
		}
		moved++;
	}
	while ((n = list_pop_head(&eng->dead))) {
		conn_free(container_of(n, struct skein_conn, pending_link));
		moved++;
	}
	conn_peer_reap(eng);
	if (!list_empty(&eng->regions))
		moved += regions_drop(eng);
	eng->attention |= eng->again;
	eng->again = false;
	return moved;
}

static __attribute__((noinline)) void poll_failed(const struct polls_entry *e,
						  int rc)
{
	conn_break(e->conn, rc, "%s: the peer sent %s", e->module->name,
		   rc == -SKEIN_EPEER ? "garbage" : skein_strerror(rc));
}

static int poll_active(struct skein_engine *eng, uint64_t now_ns)
{
	struct polls *p = &eng->polls;
	struct polls_entry *e;
	int rc, moved = 0;

	/* poll() may add and delete entries; e's memory stays for this
	 * round. */
	for (unsigned i = 0; i < p->active; i++) {
		e = p->e[i];
		rc = e->poll(e->conn, e->state, now_ns);
		if (rc > 0) {
			e->moved_ns = now_ns;
			moved += rc;
		} else if (__builtin_expect(rc < 0, 0)) {
			poll_failed(e, rc);
		}
	}
	return moved;
}

/* Looks at silent connections; every POLLS_SILENT_NS / 2 also lets active ones
 * that have become silent leave their group. */
static __attribute__((noinline)) int look(struct skein_engine *eng,
					  unsigned looks, uint64_t now_ns)
{
	struct polls *p = &eng->polls;
	int found;

	env_charge(eng->env, ENV_COST_LOOK, looks);
	found = (int)polls_sweep(p, eng->parks ? p->n : looks, now_ns);
	if (__builtin_expect(now_ns >= eng->rest_ns, 0)) {
		eng->rest_ns = now_ns + POLLS_SILENT_NS / 2;
		if (polls_rest(p, now_ns))
			eng->swept_until_ns = 0;
	}
	eng->look_ns = p->swept != p->active ? 0 : eng->rest_ns;
	return found;
}

/* Polls all CQs; where there are many, one of them. */
static int poll_cqs_due(struct skein_engine *eng)
{
	if (eng->n_cqs <= CQS_A_ROUND || eng->cq_waits >= ENG_CQ_NOW ||
	    eng->parks)
		return poll_cqs(eng);
	/* The next CQ's turn comes after some rounds. */
	if (eng->cq_waits >= CQ_PATIENCE)
		eng->cq_waits -= CQ_PATIENCE / 2;
	if (++eng->cq_next >= eng->n_cqs)
		eng->cq_next = 0;
	return poll_cq(eng, &eng->cqs[eng->cq_next]);
}

static inline int after_none(struct skein_engine *eng, uint64_t now_ns)
{
	int found = 0;

	if (now_ns >= eng->look_ns)
		found = look(eng, POLLS_SWEEP, now_ns);
	return found + poll_cqs_due(eng);
}

/* Active connections have moved something: all else waits for some rounds. */
static inline int after_many(struct skein_engine *eng, uint64_t now_ns)
{
	int found = 0;

	if (__builtin_expect((eng->cq_waits++ + 1) % LOOK_PATIENCE != 0, 1))
		return 0;
	if (now_ns >= eng->look_ns)
		found = look(eng, LOOK_PATIENCE / 2 * POLLS_SWEEP, now_ns);
	return eng->cq_waits < CQ_PATIENCE ? found : found + poll_cqs_due(eng);
}

void conn_active(struct skein_conn *conn)
{
	struct polls *p = &conn->eng->polls;
	struct polls_entry *e = &conn->polls;

	/* Active already, or not ready (0). */
	if (e->at <= p->active)
		return;
	e->moved_ns = engine_now_ns(conn->eng->e);
	polls_move(p, e, CONN_ACTIVE);
}

static void woken(struct engine_call *call)
{
	struct skein_conn *conn =
		container_of(call, struct skein_conn, wake_call);

	/* First: a thread that wakes it from here on posts another call. */
	atomic_store(&conn->waking, false);
	conn_active(conn);
	if (conn->phase == CONN_P_GONE)
		eng_pend(conn->eng, conn);
}

void conn_wake(struct skein_conn *conn)
{
	if (atomic_exchange(&conn->waking, true))
		return;
	conn->wake_call.fn = woken;
	engine_post(conn->eng->e, &conn->wake_call);
}

static int eng_poll(struct engine_obj *obj, uint64_t now_ns)
{
	struct skein_engine *eng = container_of(obj, struct skein_engine, obj);
	int moved;

	/* A forked child shares its parent's sockets: touch nothing. */
	if (__builtin_expect(env_forked(eng->env), 0))
		return 0;
	env_charge(eng->env, ENV_COST_LOOK, eng->polls.active);
	moved = poll_active(eng, now_ns);
	if (__builtin_expect(!list_empty(&eng->pools), 0))
		moved += conn_pools_poll(eng, now_ns);
	moved += moved ? after_many(eng, now_ns) : after_none(eng, now_ns);
	/* Relaxed: a hint; conn_sendq_take_broken() loads it with acquire. */
	if (__builtin_expect(atomic_load_explicit(&eng->sendq_broke,
						  memory_order_relaxed),
			     0))
		conn_sendq_take_broken(eng);
	/* Relaxed: a hint, as above. */
	if (__builtin_expect(atomic_load_explicit(&eng->reached,
						  memory_order_relaxed),
			     0)) {
		atomic_exchange(&eng->reached, false);
		eng->attention = true;
	}
	if (__builtin_expect(eng->attention, 0))
		moved += service(eng, now_ns);
	return moved;
}

/* --- sleeping ---------------------------------------------------------- */

static int entry_arm(const struct polls_entry *e)
{
	return e->module->arm ? e->module->arm(e->conn, e->state) : 0;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t entry_next(const struct polls_entry *e)
{
	return e->module->next_deadline
		       ? e->module->next_deadline(e->conn, e->state)
		       : ENV_NEVER;
}

/* Swept connections sleep with a deadline, as their peers have not agreed to
 * wake them. Arms all of them when the first deadline has come, not before each
 * sleep. */
static int swept_arm(struct skein_engine *eng)
{
	struct polls *p = &eng->polls;
	uint64_t until = ENV_NEVER;
	struct polls_entry *e;
	int awake = 0;

	if (p->active == p->swept ||
	    engine_now_ns(eng->e) < eng->swept_until_ns)
		return 0;
	for (unsigned i = p->active; i < p->swept; i++) {
		e = p->e[i];
		if (entry_arm(e))
			awake = 1;
		until = least(until, entry_next(e));
		if (polls_has_word(e)) {
			polls_move(p, e, CONN_ACTIVE);
			awake = 1;
		}
	}
	eng->swept_until_ns = awake ? 0 : until;
	return awake;
}

/* Notified connections need no arming: their news comes by a CQ. */
static int modules_arm(struct skein_engine *eng)
{
	int awake = 0;

	/* All of them: each asks its peer now, without waiting for the answer
	 * to the one before. */
	for (unsigned i = 0; i < eng->polls.active; i++)
		if (entry_arm(eng->polls.e[i]))
			awake = 1;
	return awake | swept_arm(eng);
}

static int eng_arm(struct engine_obj *obj)
{
	struct skein_engine *eng = container_of(obj, struct skein_engine, obj);

	for (unsigned i = 0; i < eng->n_cqs; i++)
		if (dev_req_notify_cq(eng->cqs[i].cq, 0))
			return 1;
	if (modules_arm(eng) || conn_pools_arm(eng))
		return 1;
	/* A completion before the request makes no event. */
	if (poll_cqs(eng))
		return 1;
	if (!eng->attention)
		counters_arm(eng);
	return eng->attention;
}

static uint64_t eng_next_deadline(struct engine_obj *obj)
{
	struct skein_engine *eng = container_of(obj, struct skein_engine, obj);
	uint64_t t = least(counters_deadline(eng), conn_pools_deadline(eng));
	struct list_node *n;

	for (unsigned i = 0; i < eng->polls.active; i++)
		t = least(t, entry_next(eng->polls.e[i]));
	/* A deadline that has passed is eng_arm()'s work. */
	if (eng->polls.active != eng->polls.swept &&
	    eng->swept_until_ns > engine_now_ns(eng->e))
		t = least(t, eng->swept_until_ns);
	list_for_each(n, &eng->pending)
		t = least(t, conn_next_deadline(container_of(
				     n, struct skein_conn, pending_link)));
	list_for_each(n, &eng->listeners)
		t = least(t, listener_next_deadline(container_of(
				     n, struct skein_listener, eng_link)));
	if (!list_empty(&eng->peers))
		t = least(t, eng->next_tick_ns);
	return t;
}

/* --- the beat ---------------------------------------------------------- */

/* One event, as a rule there is no other: to ask again would cost a system call.
 * Another one keeps the fd ready, so the next sleep ends at once. */
static void take_event(struct skein_engine *eng)
{
	struct dev *dev = eng->dev;
	struct ibv_cq *cq;

	if (dev->ops->get_cq_event(dev, eng->channel, &cq))
		return;
	eng->stats.wakeups++;
	dev->ops->ack_cq_events(dev, cq, 1);
}

/* fd was a control link's or a listener's when the beat began; it may be closed
 * now. */
static int socket_beat(struct skein_engine *eng, int fd, uint64_t now_ns)
{
	struct skein_listener *l;
	struct list_node *n;

	if ((unsigned)fd < eng->by_fd_cap && eng->by_fd[fd])
		return conn_peer_beat(eng->by_fd[fd], now_ns);
	list_for_each(n, &eng->listeners) {
		l = container_of(n, struct skein_listener, eng_link);
		if (l->fd == fd)
			return listener_beat(l, now_ns);
	}
	return 0;
}

/* Without links there may be no modules: the context may be opening. */
static void modules_tick(struct skein_engine *eng, uint64_t now_ns)
{
	const struct conn_module *m;

	if (list_empty(&eng->peers))
		return;
	for (unsigned i = 0; (m = conn_modules[i]); i++)
		if (m->ctx_tick)
			m->ctx_tick(eng->ctx, conn_ctx_module(eng->ctx, m->id),
				    now_ns);
}

/* Reads control sockets that have input. Where a deadline waits for that, the
 * kernel is asked for them, and not the last wake-up, which may be older. It
 * names them in turn: after so many looks each that was ready at the first has
 * been read, although others may have become ready since. */
static int links_beat(struct skein_engine *eng, uint64_t now_ns)
{
	int fds[LINKS_A_BEAT], i, count, moved = 0;

	if (!eng->asked_ns && !engine_fd_ready(eng->e, eng->links_fd))
		return 0;
	count = env_waiter_ready_fds(eng->env, eng->links, fds, LINKS_A_BEAT);
	for (i = 0; i < count; i++)
		moved += socket_beat(eng, fds[i], now_ns);
	if (count < LINKS_A_BEAT)
		eng->heard_ns = now_ns;
	else if (eng->asked_ns && ++eng->looks > eng->by_fd_cap / LINKS_A_BEAT)
		eng->heard_ns = eng->asked_ns;
	if (eng->heard_ns >= eng->asked_ns)
		eng->asked_ns = 0;
	return moved;
}

bool eng_is_late(struct skein_engine *eng, uint64_t deadline_ns,
		 uint64_t now_ns)
{
	if (now_ns < deadline_ns)
		return false;
	if (eng->heard_ns >= deadline_ns)
		return true;
	if (!eng->asked_ns) {
		eng->asked_ns = now_ns;
		eng->looks = 0;
	}
	eng->next_tick_ns = 0; /* no sleep before the next beat */
	return false;
}

static int peers_beat(struct skein_engine *eng, uint64_t now_ns)
{
	struct list_node *n, *next;
	struct conn_peer *peer;
	int moved = links_beat(eng, now_ns);

	if (now_ns < eng->next_tick_ns)
		return moved;
	eng->next_tick_ns = now_ns + ENG_TICK_NS;
	list_for_each_safe(n, next, &eng->peers) {
		peer = container_of(n, struct conn_peer, eng_link);
		conn_peer_tick(peer, now_ns);
	}
	modules_tick(eng, now_ns);
	return moved;
}

static void announce(struct skein_engine *eng)
{
	uint64_t seq = atomic_load_explicit(&eng->ctx->region_seq,
					    memory_order_acquire);
	struct list_node *n, *next;

	if (seq == eng->regions_seen)
		return;
	eng->regions_seen = seq;
	list_for_each_safe(n, next, &eng->peers)
		conn_peer_announce(container_of(n, struct conn_peer, eng_link));
}

static int eng_beat(struct engine_obj *obj, uint64_t now_ns)
{
	struct skein_engine *eng = container_of(obj, struct skein_engine, obj);
	struct list_node *n, *next;
	struct skein_listener *l;
	int moved = 0;

	if (env_forked(eng->env))
		return 0;
	if (engine_fd_ready(eng->e, eng->channel->fd))
		take_event(eng);
	/* Listeners that are not watched; the others come when ready. */
	list_for_each_safe(n, next, &eng->listeners) {
		l = container_of(n, struct skein_listener, eng_link);
		if (!l->watched)
			moved += listener_beat(l, now_ns);
	}
	announce(eng);
	moved += events_beat(eng);
	moved += peers_beat(eng, now_ns);
	if (!list_empty(&eng->pending)) {
		eng->attention = true;
		/* A handshake has several messages of either side. */
		engine_expect(eng->e);
	}
	if (eng->attention)
		service(eng, now_ns);
	conn_peer_reap(eng);
	counters_beat(eng, now_ns);
	return moved;
}

/* Where all connections wait for the answer to their handshake or to their
 * CLOSE, only control sockets can say something. */
static bool eng_by_fd(struct engine_obj *obj)
{
	struct skein_engine *eng = container_of(obj, struct skein_engine, obj);

	for (unsigned i = 0; i < eng->polls.n; i++)
		if (eng->polls.e[i]->conn->phase != CONN_P_BYE)
			return false;
	return list_empty(&eng->pools);
}

static const struct engine_obj_ops eng_ops = {
	.poll = eng_poll,
	.arm = eng_arm,
	.next_deadline = eng_next_deadline,
	.beat = eng_beat,
	.by_fd = eng_by_fd,
};

/* --- queues, indices, polls -------------------------------------------- */

static int cq_more(struct skein_engine *eng, uint32_t n, bool shared)
{
	uint32_t cqe = ENG_CQE_FIRST, max = eng->dev->caps.cqe_max;
	struct eng_cq *cq = &eng->cqs[eng->n_cqs];
	int rc;

	if (eng->n_cqs == ENG_CQS_MAX)
		return -ENOSPC;
	for (unsigned i = 0; i < eng->n_cqs && cqe < max; i++)
		cqe *= 2;
	if (cqe > max)
		cqe = max;
	if (cqe < n)
		return -ENOSPC;
	rc = eng->dev->ops->create_cq(eng->dev, (int)cqe, eng, eng->channel,
				      &cq->cq);
	if (rc)
		return rc;
	cq->cqe = cqe;
	cq->used = 0;
	cq->shared = shared;
	eng->n_cqs++;
	return 0;
}

int eng_cq_get(struct skein_engine *eng, uint32_t n, bool shared,
	       struct eng_cq **cq)
{
	int rc;

	for (;;) {
		for (unsigned i = 0; i < eng->n_cqs; i++) {
			if (eng->cqs[i].shared != shared ||
			    eng->cqs[i].cqe - eng->cqs[i].used < n)
				continue;
			eng->cqs[i].used += n;
			*cq = &eng->cqs[i];
			return 0;
		}
		rc = cq_more(eng, n, shared);
		if (rc)
			return rc;
	}
}

void eng_cq_put(struct eng_cq *cq, uint32_t n)
{
	skein_assert(cq->used >= n);
	cq->used -= n;
}

static int table_grow(struct skein_engine *eng)
{
	uint32_t cap = eng->table_cap ? eng->table_cap * 2 : 64;
	struct skein_conn **table;

	if (cap > ENG_CONNS_MAX)
		cap = ENG_CONNS_MAX;
	if (cap == eng->table_cap)
		return -ENOSPC;
	table = env_alloc(eng->env, cap * sizeof(struct skein_conn *));
	if (!table)
		return -ENOMEM;
	if (eng->table_cap)
		memcpy(table, eng->table,
		       eng->table_cap * sizeof(struct skein_conn *));
	env_free(eng->env, eng->table);
	eng->table = table;
	eng->table_cap = cap;
	return 0;
}

int eng_index_get(struct skein_engine *eng, struct skein_conn *conn,
		  uint16_t *index)
{
	uint32_t i, at;
	int rc;

	for (;;) {
		for (i = 0; i < eng->table_cap; i++) {
			at = (eng->next_index + i) % eng->table_cap;
			if (eng->table[at])
				continue;
			eng->next_index = at + 1;
			eng->table[at] = conn;
			*index = (uint16_t)at;
			return 0;
		}
		rc = table_grow(eng);
		if (rc)
			return rc;
	}
}

void eng_index_put(struct skein_engine *eng, uint16_t index)
{
	eng->table[index] = NULL;
}

int eng_polls_add(struct skein_engine *eng, struct skein_conn *conn)
{
	const struct conn_module *m;
	void *state;
	int rc = 0;

	for (unsigned i = 0; (m = conn_modules[i]) && !rc; i++) {
		state = conn_module_state(conn, m->id);
		if (!m->poll || !state)
			continue;
		skein_assert(!conn->polls.at); /* one module polls */
		conn->polls = (struct polls_entry){
			.poll = m->poll,
			.conn = conn,
			.state = state,
			.module = m,
			.moved_ns = engine_now_ns(eng->e),
		};
		rc = polls_add(&eng->polls, eng->env, &conn->polls);
	}
	return rc;
}

void eng_polls_del(struct skein_engine *eng, struct skein_conn *conn)
{
	polls_del(&eng->polls, &conn->polls);
}

void eng_pend(struct skein_engine *eng, struct skein_conn *conn)
{
	if (!list_linked(&conn->pending_link))
		list_add_tail(&eng->pending, &conn->pending_link);
	eng->attention = true;
}

/* --- control links ----------------------------------------------------- */

static int by_fd_reserve(struct skein_engine *eng, unsigned fd)
{
	unsigned cap = eng->by_fd_cap ? eng->by_fd_cap : 64;
	struct conn_peer **by_fd;

	if (fd < eng->by_fd_cap)
		return 0;
	cap = (unsigned)doubled_to(cap, fd + 1ull);
	by_fd = env_alloc(eng->env, cap * sizeof(struct conn_peer *));
	if (!by_fd)
		return -ENOMEM;
	if (eng->by_fd_cap)
		memcpy(by_fd, eng->by_fd,
		       eng->by_fd_cap * sizeof(struct conn_peer *));
	env_free(eng->env, eng->by_fd);
	eng->by_fd = by_fd;
	eng->by_fd_cap = cap;
	return 0;
}

int eng_link_add(struct skein_engine *eng, struct conn_peer *peer, bool out)
{
	int rc;

	if (peer->link.vqp)
		return 0;
	rc = by_fd_reserve(eng, (unsigned)peer->link.fd);
	if (rc == 0)
		rc = conn_link_attach(&peer->link, eng->links, out);
	if (rc == 0)
		eng->by_fd[peer->link.fd] = peer;
	return rc;
}

void eng_link_del(struct skein_engine *eng, struct conn_peer *peer)
{
	if (!peer->link.w)
		return;
	eng->by_fd[peer->link.fd] = NULL;
	conn_link_detach(&peer->link);
}

/* --- results of atomics ------------------------------------------------ */

#define SCRATCH_WORDS \
	(64 * sizeof(((struct skein_engine *)0)->scratch_used) / 8)

int eng_scratch_make(struct skein_engine *eng)
{
	if (eng->scratch)
		return 0;
	return mem_region_near(eng->dev, eng->ctx->pd, "skein-atomics",
			       SCRATCH_WORDS * 8, IBV_ACCESS_LOCAL_WRITE,
			       conn_region_id(eng->ctx), &eng->scratch);
}

uint64_t *eng_scratch_get(struct skein_engine *eng, uint32_t *lkey)
{
	for (unsigned i = 0; i < SCRATCH_WORDS / 64; i++) {
		_Atomic(uint64_t) *used = &eng->scratch_used[i];
		uint64_t was = atomic_load_explicit(used, memory_order_relaxed);

		/* Acquire pairs with the release in eng_scratch_put(): the
		 * thread that had the word has read it. */
		while (~was &&
		       !atomic_compare_exchange_weak_explicit(
			       used, &was, was | (was + 1),
			       memory_order_acquire, memory_order_relaxed))
			;
		if (!~was)
			continue;
		*lkey = eng->scratch->mr->lkey;
		return (uint64_t *)eng->scratch->addr + 64 * i +
		       (unsigned)__builtin_ctzll(~was);
	}
	return NULL;
}

void eng_scratch_put(struct skein_engine *eng, uint64_t *word)
{
	size_t i = (size_t)(word - (uint64_t *)eng->scratch->addr);

	atomic_fetch_and_explicit(&eng->scratch_used[i / 64], ~(1ull << i % 64),
				  memory_order_release);
}

/* --- life -------------------------------------------------------------- */

static void cqs_free(struct skein_engine *eng)
{
	while (eng->n_cqs)
		eng->dev->ops->destroy_cq(eng->dev, eng->cqs[--eng->n_cqs].cq);
}

static int device_side(struct skein_engine *eng)
{
	struct dev *dev = eng->dev;
	int rc;

	rc = dev->ops->create_comp_channel(dev, &eng->channel);
	if (rc)
		return rc;
	rc = cq_more(eng, 1, false);
	if (rc)
		goto err_channel;
	rc = env_waiter_new(eng->env, ENV_WAIT_EVENT, &eng->links);
	if (rc)
		goto err_cq;
	eng->links_fd = env_waiter_fd(eng->env, eng->links);
	rc = env_waiter_watch(eng->env, engine_waiter(eng->e), eng->channel->fd,
			      EPOLLIN);
	if (rc == 0)
		rc = env_waiter_watch(eng->env, engine_waiter(eng->e),
				      eng->links_fd, EPOLLIN);
	if (rc == 0)
		rc = events_watch(eng);
	if (rc)
		goto err_links;
	return 0;

err_links:
	env_waiter_free(eng->env, eng->links);
err_cq:
	cqs_free(eng);
err_channel:
	dev->ops->destroy_comp_channel(dev, eng->channel);
	return rc;
}

int eng_new(struct skein_ctx *ctx, enum skein_wait wait,
	    struct skein_engine **engine)
{
	static const enum env_wait_mode modes[] = {
		[SKEIN_WAIT_ADAPTIVE] = ENV_WAIT_ADAPTIVE,
		[SKEIN_WAIT_POLL] = ENV_WAIT_POLL,
		[SKEIN_WAIT_SPIN] = ENV_WAIT_SPIN,
		[SKEIN_WAIT_EVENT] = ENV_WAIT_EVENT,
	};
	struct skein_engine *eng;
	int rc;

	if ((unsigned)wait > SKEIN_WAIT_EVENT)
		return -EINVAL;
	eng = env_alloc_aligned(ctx->env, 64, sizeof(*eng));
	if (!eng)
		return -ENOMEM;
	eng->ctx = ctx;
	eng->env = ctx->env;
	eng->dev = ctx->dev;
	eng->obj.ops = &eng_ops;
	eng->parks = env_idle_parks(eng->env);
	list_init(&eng->pools);
	list_init(&eng->peers);
	list_init(&eng->listeners);
	list_init(&eng->pending);
	list_init(&eng->dead);
	list_init(&eng->regions);
	list_init(&eng->replies);
	env_mutex_init(eng->env, &eng->replies_lock);
	env_mutex_init(eng->env, &eng->pool_lock);
	eng->wait_mode = modes[wait];
	counters_init(eng);
	rc = engine_new(ctx->env, modes[wait], &eng->e);
	if (rc)
		goto err_free;
	rc = device_side(eng);
	if (rc)
		goto err_engine;
	rc = engine_enter(eng->e, ENV_NEVER);
	skein_assert(rc == 0);
	engine_add(eng->e, &eng->obj);
	engine_leave(eng->e);
	env_mutex_lock(ctx->env, &ctx->lock);
	list_add_tail(&ctx->engines, &eng->ctx_link);
	env_mutex_unlock(ctx->env, &ctx->lock);
	*engine = eng;
	return 0;

err_engine:
	engine_free(eng->e);
err_free:
	env_mutex_fini(eng->env, &eng->replies_lock);
	env_mutex_fini(eng->env, &eng->pool_lock);
	env_free(ctx->env, eng);
	return rc;
}

static bool no_conns(void *arg)
{
	struct skein_engine *eng = arg;

	return !atomic_load_explicit(&eng->n_conns, memory_order_acquire);
}

void eng_free(struct skein_engine *eng)
{
	struct skein_ctx *ctx = eng->ctx;
	int rc;

	engine_background_stop(eng->e);
	/* Connections that were closed without waiting end by deadlines. */
	rc = engine_run_until(eng->e, no_conns, eng, ENV_NEVER);
	skein_assert(rc == 0);
	rc = engine_enter(eng->e, ENV_NEVER);
	skein_assert(rc == 0);
	engine_poll(eng->e); /* closures that are under way */
	service(eng, engine_now_ns(eng->e));
	skein_assert(list_empty(&eng->pending));
	skein_assert(list_empty(&eng->listeners));
	/* From here on no thread kicks it. */
	env_mutex_lock(ctx->env, &ctx->lock);
	list_del(&eng->ctx_link);
	env_mutex_unlock(ctx->env, &ctx->lock);
	while (!list_empty(&eng->peers)) {
		conn_peer_down(container_of(eng->peers.next, struct conn_peer,
					    eng_link),
			       -ESHUTDOWN, "the context closes");
		conn_peer_reap(eng);
	}
	engine_del(eng->e, &eng->obj);
	engine_leave(eng->e);
	events_unwatch(eng);
	env_waiter_unwatch(eng->env, engine_waiter(eng->e), eng->channel->fd);
	while (!list_empty(&eng->regions))
		regions_drop(eng);
	counters_fini(eng);
	mem_region_free(eng->scratch);
	cqs_free(eng);
	eng->dev->ops->destroy_comp_channel(eng->dev, eng->channel);
	env_waiter_free(eng->env, atomic_load(&eng->app));
	engine_free(eng->e);
	env_waiter_free(eng->env, eng->links);
	env_mutex_fini(eng->env, &eng->replies_lock);
	env_mutex_fini(eng->env, &eng->pool_lock);
	env_free(ctx->env, eng->table);
	polls_fini(&eng->polls, ctx->env);
	env_free(ctx->env, eng->by_fd);
	env_free(ctx->env, eng);
}
