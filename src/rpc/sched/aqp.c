/* SPDX-License-Identifier: MIT */
/*
 * aqp.c - shares active QPs among the handles that a context serves; see aqp.h.
 */
#include "rpc/sched/aqp.h"

#include <errno.h>

#include "base/assert.h"
#include "base/pow2.h"

void aqp_init(struct aqp *a, struct skein_env *env, uint32_t max,
	      uint64_t interval_ns)
{
	*a = (struct aqp){.env = env, .max = max, .interval_ns = interval_ns};
	atomic_init(&a->due_ns, ENV_NEVER);
	env_mutex_init(env, &a->lock);
	list_init(&a->senders);
}

void aqp_fini(struct aqp *a)
{
	skein_assert(list_empty(&a->senders));
	env_mutex_fini(a->env, &a->lock);
	env_free(a->env, a->table);
}

static struct aqp_sender *sender_of(const struct list_node *n)
{
	return container_of(n, struct aqp_sender, link);
}

static struct rpc_lane_server *lane_of(const struct list_node *n)
{
	return container_of(n, struct rpc_lane_server, link);
}

static struct aqp_sender *find(struct aqp *a, const void *key)
{
	struct list_node *n;

	list_for_each(n, &a->senders)
		if (sender_of(n)->key == key)
			return sender_of(n);
	return NULL;
}

/* --- coming and going --------------------------------------------------- */

static int table_grow(struct aqp *a, unsigned n)
{
	struct qpsched_sender *table;
	uint32_t room;

	if (n <= a->room)
		return 0;
	room = pow2_at_least(n);
	table = env_alloc(a->env, room * sizeof(*table));
	if (!table)
		return -ENOMEM;
	env_free(a->env, a->table);
	a->table = table;
	a->room = room;
	return 0;
}

static int sender_new(struct aqp *a, const void *key, uint64_t now_ns,
		      struct aqp_sender **sender)
{
	struct aqp_sender *s;

	if (table_grow(a, a->count + 1))
		return -ENOMEM;
	s = env_alloc(a->env, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->key = key;
	s->joined_ns = now_ns;
	s->fresh = true;
	list_init(&s->lanes);
	list_add_tail(&a->senders, &s->link);
	a->count++;
	*sender = s;
	return 0;
}

int aqp_add(struct aqp *a, struct rpc_lane_server *lane, const void *key,
	    uint64_t now_ns)
{
	struct aqp_sender *s;
	int rc = 0;

	env_mutex_lock(a->env, &a->lock);
	s = find(a, key);
	if (!s)
		rc = sender_new(a, key, now_ns, &s);
	if (!rc) {
		lane->sender = s;
		list_add_tail(&s->lanes, &lane->link);
		s->count++;
		atomic_store_explicit(&a->changed, true, memory_order_relaxed);
		aqp_note(a, now_ns);
	}
	env_mutex_unlock(a->env, &a->lock);
	return rc;
}

void aqp_del(struct aqp *a, struct rpc_lane_server *lane)
{
	struct aqp_sender *s = lane->sender;

	if (!s)
		return;
	env_mutex_lock(a->env, &a->lock);
	list_del(&lane->link);
	lane->sender = NULL;
	if (!--s->count) {
		list_del(&s->link);
		env_free(a->env, s);
		a->count--;
	}
	/* The other senders share its QPs. */
	atomic_store_explicit(&a->changed, a->count > 0, memory_order_relaxed);
	env_mutex_unlock(a->env, &a->lock);
}

/* --- sharing ------------------------------------------------------------ */

/* U of the interval that is over. */
static void gather(struct aqp *a, uint64_t now_ns)
{
	struct list_node *n, *k;
	struct aqp_sender *s;
	struct rpc_lane_server *l;

	list_for_each(n, &a->senders) {
		s = sender_of(n);
		s->util = 0;
		list_for_each(k, &s->lanes) {
			l = lane_of(k);
			/* Relaxed: a count. */
			l->util_last = atomic_exchange_explicit(
				&l->util, 0, memory_order_relaxed);
			s->util += l->util_last;
		}
		if (s->joined_ns <= a->last_ns || s->util)
			s->fresh = false;
	}
	a->last_ns = now_ns;
}

/* With keep, the active lane that has the lowest U; without, the first inactive
 * lane. NULL: the sender has none. */
static struct rpc_lane_server *pick(struct aqp_sender *s, bool keep)
{
	struct rpc_lane_server *best = NULL, *l;
	struct list_node *n;

	list_for_each(n, &s->lanes) {
		l = lane_of(n);
		if (atomic_load_explicit(&l->keep, memory_order_relaxed) !=
		    keep)
			continue;
		/* of equals the last one: the first lane rests last */
		if (!best || (keep && l->util_last <= best->util_last))
			best = l;
	}
	return best;
}

static void set(struct rpc_lane_server *l, bool keep)
{
	atomic_store_explicit(&l->keep, keep, memory_order_relaxed);
	if (!keep)
		return;
	/* The lane may have been declined, or be about to be. kick() has the
	 * fence. */
	atomic_store_explicit(&l->wake, true, memory_order_relaxed);
	l->kick(l->kick_arg);
}

static void apply(struct aqp_sender *s, unsigned aqp)
{
	struct rpc_lane_server *l;
	struct list_node *n;
	unsigned kept = 0;

	list_for_each(n, &s->lanes)
		kept += atomic_load_explicit(&lane_of(n)->keep,
					     memory_order_relaxed);
	for (; kept > aqp && (l = pick(s, true)); kept--)
		set(l, false);
	for (; kept < aqp && (l = pick(s, false)); kept++)
		set(l, true);
}

static void share(struct aqp *a)
{
	struct list_node *n;
	uint64_t newcomer;
	unsigned i = 0;

	list_for_each(n, &a->senders)
		a->table[i++] = (struct qpsched_sender){
			.util = sender_of(n)->fresh ? 0 : sender_of(n)->util,
			.qps = sender_of(n)->count};
	newcomer = qpsched_newcomer_util(a->table, i);
	i = 0;
	list_for_each(n, &a->senders)
		if (sender_of(n)->fresh)
			a->table[i++].util = newcomer;
		else
			i++;
	qpsched_share(a->table, i, a->max);
	i = 0;
	list_for_each(n, &a->senders)
		apply(sender_of(n), a->table[i++].aqp);
}

static bool anybody_works(const struct aqp *a)
{
	struct list_node *n;

	list_for_each(n, &a->senders)
		if (sender_of(n)->util || sender_of(n)->fresh)
			return true;
	return false;
}

void aqp_share(struct aqp *a, uint64_t now_ns)
{
	uint64_t due;

	env_mutex_lock(a->env, &a->lock);
	/* Once: a second thread finds it done. */
	due = atomic_load_explicit(&a->due_ns, memory_order_relaxed);
	if (now_ns >= due) {
		/* Before the counts are taken: a lane that adds to one later
		 * calls aqp_note() again. */
		atomic_store(&a->due_ns, ENV_NEVER);
		gather(a, now_ns);
		if (anybody_works(a))
			aqp_note(a, now_ns);
	} else if (!atomic_load_explicit(&a->changed, memory_order_relaxed)) {
		env_mutex_unlock(a->env, &a->lock);
		return;
	}
	atomic_store_explicit(&a->changed, false, memory_order_relaxed);
	share(a);
	env_mutex_unlock(a->env, &a->lock);
}

bool aqp_stats(struct aqp *a, const void *key, struct aqp_stats *st)
{
	struct aqp_sender *s;
	struct rpc_lane_server *l;
	struct list_node *n;

	*st = (struct aqp_stats){0};
	env_mutex_lock(a->env, &a->lock);
	s = find(a, key);
	if (s)
		list_for_each(n, &s->lanes) {
			l = lane_of(n);
			/* Relaxed: counts. */
#define SUM(x) st->x += atomic_load_explicit(&l->stats.x, memory_order_relaxed)
			SUM(calls);
			SUM(messages);
			SUM(grants);
			SUM(declines);
			SUM(questions);
			SUM(degrees);
#undef SUM
			st->lanes++;
			st->active += atomic_load_explicit(
				&l->active, memory_order_relaxed);
		}
	env_mutex_unlock(a->env, &a->lock);
	return s != NULL;
}
