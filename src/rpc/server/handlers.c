/* SPDX-License-Identifier: MIT */
/*
 * handlers.c - handlers by id: adding and removing them, the end of the table.
 */
#include <errno.h>

#include "env/env.h"
#include "rpc/server/handlers.h"

int rpc_handlers_add(struct rpc_handlers *h, struct skein_env *env, uint16_t id,
		     skein_rpc_fn *fn, void *arg)
{
	struct rpc_handler *page, *entry;

	page = atomic_load_explicit(&h->pages[id / RPC_PAGE],
				    memory_order_relaxed);
	if (!page) {
		page = env_alloc(env, RPC_PAGE * sizeof(*page));
		if (!page)
			return -ENOMEM;
		/* Release pairs with the acquire in rpc_handlers_find();
		 * without it a thread could see the page before its zeroes. */
		atomic_store_explicit(&h->pages[id / RPC_PAGE], page,
				      memory_order_release);
	}
	entry = &page[id % RPC_PAGE];
	if (atomic_load_explicit(&entry->fn, memory_order_relaxed))
		return -EEXIST;
	entry->arg = arg;
	entry->epoch++;
	/* Release pairs with the acquire load of fn in server.c: a thread that
	 * reads fn also sees arg. */
	atomic_store_explicit(&entry->fn, fn, memory_order_release);
	return 0;
}

static int handler_gone(struct skein_rpc_req *req, void *arg)
{
	return -SKEIN_ENOHANDLER;
}

static struct rpc_handler *taken(struct rpc_handlers *h, uint16_t id)
{
	struct rpc_handler *entry = rpc_handlers_find(h, id);

	return entry && atomic_load_explicit(&entry->fn, memory_order_relaxed)
		       ? entry
		       : NULL;
}

int rpc_handlers_remove(struct rpc_handlers *h, uint16_t id, uint32_t *epoch,
			void **arg)
{
	struct rpc_handler *entry = taken(h, id);

	if (!entry)
		return -ENOENT;
	/* Relaxed: the caller next waits for engines that still read the old
	 * function. */
	atomic_store_explicit(&entry->fn, handler_gone, memory_order_relaxed);
	*epoch = entry->epoch;
	*arg = entry->arg;
	return 0;
}

void rpc_handlers_free(struct rpc_handlers *h, uint16_t id, uint32_t epoch)
{
	struct rpc_handler *entry = taken(h, id);

	/* Another thread may have removed the handler too, and a third may have
	 * used the id again. */
	if (entry && entry->epoch == epoch &&
	    atomic_load_explicit(&entry->fn, memory_order_relaxed) ==
		    handler_gone)
		atomic_store_explicit(&entry->fn, NULL, memory_order_relaxed);
}

void rpc_handlers_fini(struct rpc_handlers *h, struct skein_env *env)
{
	for (unsigned i = 0; i < 65536u / RPC_PAGE; i++)
		env_free(env, atomic_load_explicit(&h->pages[i],
						   memory_order_relaxed));
}
