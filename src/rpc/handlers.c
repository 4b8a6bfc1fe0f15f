/* SPDX-License-Identifier: MIT */
/*
 * handlers.c - handlers by id: adding them, and the end of the table.
 */
#include <errno.h>

#include "env/env.h"
#include "rpc/handlers.h"

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
		/* Release: pairs with the acquire in rpc_handlers_find();
		 * without it a reader could see the page before its zeroes. */
		atomic_store_explicit(&h->pages[id / RPC_PAGE], page,
				      memory_order_release);
	}
	entry = &page[id % RPC_PAGE];
	if (atomic_load_explicit(&entry->fn, memory_order_relaxed))
		return -EEXIST;
	entry->arg = arg;
	/* Release: pairs with the acquire load of fn in server.c; whoever
	 * sees fn sees arg. */
	atomic_store_explicit(&entry->fn, fn, memory_order_release);
	return 0;
}

void rpc_handlers_fini(struct rpc_handlers *h, struct skein_env *env)
{
	for (unsigned i = 0; i < 65536u / RPC_PAGE; i++)
		env_free(env, atomic_load_explicit(&h->pages[i],
						   memory_order_relaxed));
}
