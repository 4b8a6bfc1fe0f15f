/* SPDX-License-Identifier: MIT */
/*
 * handlers.h - handlers by id, one table in each context.
 *
 * The table is read without a lock for every request, and written rarely. A
 * page of entries appears by one release store, an entry by another; a page
 * lives as long as the table. A removed entry has a function that says so,
 * until no thread runs the old handler any more. Only then may the id be used
 * again: so no thread pairs the old function with a new arg.
 *
 * Thread rule: find by any thread; add, remove, free by any thread under the
 * caller's mutex; fini when no thread uses the table.
 */
#ifndef SKEIN_RPC_SERVER_HANDLERS_H
#define SKEIN_RPC_SERVER_HANDLERS_H

#include <stdatomic.h>
#include <stddef.h>

#include <skein/rpc.h>

#define RPC_PAGE 256u

struct skein_env;

struct rpc_handler {
	_Atomic(skein_rpc_fn *) fn; /* NULL: no handler */
	void *arg;
	/* How often the id was used: tells a removal which handler it means. */
	uint32_t epoch;
};

struct rpc_handlers {
	_Atomic(struct rpc_handler *) pages[65536u / RPC_PAGE];
};

/* NULL when the id has no handler. */
static inline struct rpc_handler *rpc_handlers_find(
	const struct rpc_handlers *h, uint16_t id)
{
	struct rpc_handler *page;

	/* Acquire pairs with the releases in rpc_handlers_add(): a page is seen
	 * zeroed, an entry with its arg. */
	page = atomic_load_explicit(&h->pages[id / RPC_PAGE],
				    memory_order_acquire);
	return page ? &page[id % RPC_PAGE] : NULL;
}

/* -EEXIST, -ENOMEM. */
int rpc_handlers_add(struct rpc_handlers *h, struct skein_env *env, uint16_t id,
		     skein_rpc_fn *fn, void *arg);
/* From now on requests of this id get no handler. *epoch says which handler was
 * removed, *arg is its arg. -ENOENT: there is none. For a handler that is
 * removed and not yet free: the same again. */
int rpc_handlers_remove(struct rpc_handlers *h, uint16_t id, uint32_t *epoch,
			void **arg);
/* No thread runs that handler any more: the id may be used again. */
void rpc_handlers_free(struct rpc_handlers *h, uint16_t id, uint32_t epoch);
void rpc_handlers_fini(struct rpc_handlers *h, struct skein_env *env);

#endif
