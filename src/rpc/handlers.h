/* SPDX-License-Identifier: MIT */
/*
 * handlers.h - handlers by id, one table a context.
 *
 * Read without a lock on every request, written rarely: a page of entries
 * appears by one release store, an entry by another; no page goes away before the
 * table does. An entry that is removed has a function that says so
 * until no thread runs the old one any more; only then may it be used again, so
 * that nobody pairs the old function with a new arg.
 *
 * Thread rule: find by any thread; add, remove, free by any thread (serialised by
 * the caller's mutex); fini when nobody uses it.
 */
#ifndef SKEIN_RPC_HANDLERS_H
#define SKEIN_RPC_HANDLERS_H

#include <stdatomic.h>
#include <stddef.h>

#include <skein/rpc.h>

#define RPC_PAGE 256u

struct skein_env;

struct rpc_handler {
	_Atomic(skein_rpc_fn *) fn; /* NULL: nobody */
	void *arg;
	/* How often the id was given: which of them a removal means. */
	uint32_t epoch;
};

struct rpc_handlers {
	_Atomic(struct rpc_handler *) pages[65536u / RPC_PAGE];
};

/* NULL when nobody handles this id. */
static inline struct rpc_handler *rpc_handlers_find(
	const struct rpc_handlers *h, uint16_t id)
{
	struct rpc_handler *page;

	/* Acquire: pairs with the release in rpc_handlers_add(); a page is
	 * seen zeroed, an entry with its arg. */
	page = atomic_load_explicit(&h->pages[id / RPC_PAGE],
				    memory_order_acquire);
	return page ? &page[id % RPC_PAGE] : NULL;
}

/* -EEXIST, -ENOMEM. */
int rpc_handlers_add(struct rpc_handlers *h, struct skein_env *env, uint16_t id,
		     skein_rpc_fn *fn, void *arg);
/* From now on the id is answered as one without a handler: *epoch says of which
 * handler, and *arg is its. -ENOENT: there is none. Again for one that is removed
 * and not yet free: as before. */
int rpc_handlers_remove(struct rpc_handlers *h, uint16_t id, uint32_t *epoch,
			void **arg);
/* Nobody runs that handler any more: the id may be given again. */
void rpc_handlers_free(struct rpc_handlers *h, uint16_t id, uint32_t epoch);
void rpc_handlers_fini(struct rpc_handlers *h, struct skein_env *env);

#endif
