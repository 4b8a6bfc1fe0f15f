/* SPDX-License-Identifier: MIT */
/*
 * deferred.c - the table of deferrals, and the requests put into it; see
 * deferred.h.
 */
#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/pow2.h"
#include "rpc/server/deferred.h"
#include <skein/error.h>

/* Room for a result behind the request; a longer one gets memory of its own
 * when its length is known. */
#define RESP_MIN 512u

const struct rpc_buf rpc_deferred_mark;

/* --- orphans ------------------------------------------------------------ */

void rpc_orphans_init(struct rpc_orphans *o, struct skein_env *env)
{
	o->env = env;
	env_mutex_init(env, &o->lock);
	list_init(&o->list);
}

static void later_free(struct skein_env *env, struct rpc_deferred *l)
{
	if (l->buf)
		l->buf->end(l->buf);
	if (l->out)
		l->out->end(l->out);
	env_free(env, l->resp);
	env_free(env, l);
}

/* Under the orphans' lock, or when no thread answers any more. */
static void orphan_free(struct rpc_orphans *o, struct rpc_deferred *l)
{
	struct rpc_deferrals *d = l->deferrals;

	list_del(&l->link);
	later_free(o->env, l);
	if (!--d->refs)
		env_free(o->env, d);
}

void rpc_orphans_fini(struct rpc_orphans *o)
{
	while (!list_empty(&o->list))
		orphan_free(o, container_of(o->list.next, struct rpc_deferred,
					    link));
	env_mutex_fini(o->env, &o->lock);
}

/* --- the table ------------------------------------------------------------ */

struct rpc_deferrals *rpc_deferrals_new(const struct rpc_deferred_conf *conf)
{
	/* One more: for the request that is being taken up. */
	uint32_t slots = pow2_at_least(conf->max + 1);
	struct rpc_deferrals *d;

	d = env_alloc_aligned(conf->env, alignof(struct rpc_deferrals),
			      sizeof(*d) + slots * sizeof(d->lines[0]));
	if (!d)
		return NULL;
	d->conf = *conf;
	d->mask = slots - 1;
	d->ready_end = &d->ready;
	list_init(&d->held);
	return d;
}

struct rpc_deferred *rpc_deferrals_put(struct rpc_deferrals *d,
				       const struct skein_rpc_req *req,
				       struct rpc_buf *buf)
{
	size_t len = buf ? 0 : RPC_PAD8((size_t)req->len);
	size_t room =
		req->meta.resp_max < RESP_MIN ? req->meta.resp_max : RESP_MIN;
	struct rpc_deferred *l;

	l = env_alloc(d->conf.env, sizeof(*l) + len + room);
	if (!l)
		return NULL;
	l->deferrals = d;
	l->buf = buf;
	l->len = sizeof(*l) + len + room;
	l->req = (struct skein_rpc_req){.data = buf ? req->data : l->bytes,
					.len = req->len,
					.meta = req->meta,
					.resp = l->bytes + len,
					.inline_max = (uint32_t)room};
	if (!buf && req->len)
		memcpy(l->bytes, req->data, req->len);
	list_add_tail(&d->held, &l->link);
	d->count++;
	d->len += l->len;
	return l;
}

void rpc_deferrals_collect(struct rpc_deferrals *d)
{
	struct rpc_deferred *l, *next, *batch = NULL;

	if (!atomic_load_explicit(&d->stack, memory_order_relaxed))
		return;
	/* Acquire pairs with the release in push(): the owner sees the result
	 * and the status. */
	l = atomic_exchange_explicit(&d->stack, NULL, memory_order_acquire);
	for (; l; l = next) {
		next = l->next;
		l->next = batch;
		batch = l;
	}
	for (l = batch; l; l = l->next) {
		list_del(&l->link);
		*d->ready_end = l;
		d->ready_end = &l->next;
	}
}

void rpc_deferrals_sent(struct rpc_deferrals *d, struct rpc_port *port)
{
	struct rpc_deferred *l = d->ready;

	d->ready = l->next;
	if (!d->ready)
		d->ready_end = &d->ready;
	d->count--;
	d->len -= l->len;
	if (l->buf)
		port->ops->buf_put(port, l->buf);
	l->buf = NULL;
	if (l->out && !port->ops->buf_adopt(port, l->out))
		port->ops->buf_put(port, l->out);
	l->out = NULL;
	later_free(d->conf.env, l);
}

void rpc_deferrals_close(struct rpc_deferrals *d, struct rpc_port *port)
{
	struct rpc_orphans *o = d->conf.orphans;
	struct list_node *n, *next;
	struct rpc_deferred *l;

	/* A thread that answers from now on sees `closed`; one that answers
	 * already is counted in `inside`. Both words are sequentially
	 * consistent, here and in rpc_deferred_answer(). */
	atomic_store(&d->closed, true);
	while (atomic_load(&d->inside))
		env_yield(d->conf.env);
	rpc_deferrals_collect(d);
	while (d->ready)
		rpc_deferrals_sent(d, port);
	env_mutex_lock(o->env, &o->lock);
	d->refs = 1;
	for (n = d->held.next; n != &d->held; n = next) {
		next = n->next;
		l = container_of(n, struct rpc_deferred, link);
		if (l->buf)
			port->ops->buf_let(port, l->buf);
		list_del(&l->link);
		list_add_tail(&o->list, &l->link);
		l->orphan = true;
		d->refs++;
		if (l->answered)
			orphan_free(o, l);
	}
	if (!--d->refs)
		env_free(o->env, d);
	env_mutex_unlock(o->env, &o->lock);
}

/* --- answering ---------------------------------------------------------- */

static void push(struct rpc_deferrals *d, struct rpc_deferred *l)
{
	struct rpc_deferred *head;

	head = atomic_load_explicit(&d->stack, memory_order_relaxed);
	do
		l->next = head;
	while (!atomic_compare_exchange_weak_explicit(&d->stack, &head, l,
						      memory_order_release,
						      memory_order_relaxed));
}

/* The connection is gone, or is ending: the answer is not sent. */
static void answer_nobody(struct rpc_orphans *o, struct rpc_deferred *l)
{
	env_mutex_lock(o->env, &o->lock);
	l->answered = true;
	if (l->orphan)
		orphan_free(o, l);
	env_mutex_unlock(o->env, &o->lock);
}

int rpc_deferred_answer(struct rpc_deferred *l, int status)
{
	struct rpc_deferrals *d = l->deferrals;
	struct rpc_orphans *o = d->conf.orphans;

	if (env_forked(o->env))
		return -SKEIN_EFORKED;
	l->status = status;
	atomic_fetch_add(&d->inside, 1);
	if (__builtin_expect(atomic_load(&d->closed), 0)) {
		/* d lives as long as l */
		atomic_fetch_sub(&d->inside, 1);
		answer_nobody(o, l);
		return -ENOTCONN;
	}
	push(d, l);
	/* The owner may free l from here on, but not d while `inside` counts
	 * this thread. */
	d->conf.wake(d->conf.wake_arg);
	atomic_fetch_sub(&d->inside, 1);
	return 0;
}
