/* SPDX-License-Identifier: MIT */
/*
 * watchdog.h - has a thread been inside one handler for too long?
 *
 * The thread counts before and after each handler: odd means inside. The watcher
 * looks now and then. An odd count that it has seen before is the same handler.
 * The thread reads no clock.
 *
 * Thread rule: begin and end by the thread; slow by one watcher at a time.
 */
#ifndef SKEIN_RPC_SERVER_WATCHDOG_H
#define SKEIN_RPC_SERVER_WATCHDOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct rpc_watchdog {
	atomic_uint count;
	/* the watcher's: */
	unsigned seen;
	uint64_t since_ns; /* when it first saw this count */
};

static inline void watchdog_count(struct rpc_watchdog *s)
{
	/* Only the thread writes it: no locked operation. Release pairs with
	 * the acquire in rpc_watchdog_slow(): what the thread wrote before is
	 * seen. */
	atomic_store_explicit(
		&s->count,
		atomic_load_explicit(&s->count, memory_order_relaxed) + 1,
		memory_order_release);
}

static inline void rpc_watchdog_begin(struct rpc_watchdog *s)
{
	watchdog_count(s);
}

static inline void rpc_watchdog_end(struct rpc_watchdog *s)
{
	watchdog_count(s);
}

/* For how long, at least: 0 where no handler has run for limit_ns. */
static inline uint64_t rpc_watchdog_slow(struct rpc_watchdog *s,
					 uint64_t now_ns, uint64_t limit_ns)
{
	unsigned count = atomic_load_explicit(&s->count, memory_order_acquire);

	if (count % 2 == 0 || count != s->seen) {
		s->seen = count;
		s->since_ns = now_ns;
		return 0;
	}
	return now_ns - s->since_ns >= limit_ns ? now_ns - s->since_ns : 0;
}

#endif
