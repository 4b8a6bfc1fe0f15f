/* SPDX-License-Identifier: MIT */
/*
 * event.h - the switch between polling and sleeping. docs/protocol/rpc.md,
 * section 8, argues that no wake-up is lost.
 *
 * Pure: signals in, owed signals out. One object serves both roles of an end:
 * receiver of what comes in, sender of what goes out.
 */
#ifndef SKEIN_RPC_EVENT_H
#define SKEIN_RPC_EVENT_H

#include <stdbool.h>
#include <stdint.h>

struct rpc_port;

enum rpc_event_rx {
	RPC_RX_POLLING, /* the peer sends plain messages */
	RPC_RX_ASKED,	/* ask is owed or under way */
	RPC_RX_EVENT,	/* every message wakes us */
};

/* So many messages without a wish to sleep make a receiver poll again. */
#define RPC_EVENT_BUSY 64

/* How long an ask may go unanswered before its sender dozes, and how long it
 * dozes at most. */
#define RPC_EVENT_PATIENCE_NS (1000 * 1000ull)
#define RPC_EVENT_DOZE_MAX_NS (20 * 1000 * 1000ull)

struct rpc_event {
	union {
		struct {
			bool owe_granted, owe_ask, owe_poll, owe_wake;
		};
		uint32_t owes; /* all four in one load, for each round */
	};
	union {
		struct {
			bool wake; /* as sender: messages must wake the peer */
			/* calling end: the engine's rounds leave the connection
			 * out, and a sending thread makes the engine poll it.
			 * Written by the owner, holding the sending side. */
			bool rests;
		};
		uint16_t special; /* both in one load, for a sending thread */
	};
	enum rpc_event_rx rx;
	uint32_t busy;	      /* messages since it last wanted to sleep */
	uint64_t asked_ns;    /* of the ask; 0 until the next look */
	uint64_t doze_ns;     /* how long the next doze is */
	uint64_t doze_end_ns; /* 0: not dozing */
};

_Static_assert(sizeof(bool) == 1, "four of them are owes, two are special");

/* Must messages wake the peer? The owner, or a leader of a lane. Relaxed: the
 * owner sets the bit holding the sending side, before it posts `granted`, and
 * leaders take the sending side after it. One wake-up too many does no harm. */
static inline bool rpc_event_wake(const struct rpc_event *ev)
{
	return __atomic_load_n(&ev->wake, __ATOMIC_RELAXED);
}

/* Is either so? Relaxed, for the same reason. */
static inline bool rpc_event_special(const struct rpc_event *ev)
{
	return __atomic_load_n(&ev->special, __ATOMIC_RELAXED);
}

/* By a thread that has left work to the owner: must it make the engine poll the
 * connection? */
static inline bool rpc_event_rests(const struct rpc_event *ev)
{
	return __atomic_load_n(&ev->rests, __ATOMIC_SEQ_CST);
}

/* The receiver wants to sleep: true when it may (after one more look at its
 * ring). False: poll on; signals may be owed now. */
bool rpc_event_want_sleep(struct rpc_event *ev, uint64_t now_ns);

/* Nothing can come: the receiver sleeps without asking. A doze that was
 * interrupted is over, for its end, which has passed, would keep the engine
 * awake. */
static inline void rpc_event_rest(struct rpc_event *ev)
{
	ev->doze_end_ns = 0;
}

/* A message was received. */
static inline void rpc_event_received(struct rpc_event *ev)
{
	if (__builtin_expect(ev->rx == RPC_RX_EVENT, 0) &&
	    ++ev->busy >= RPC_EVENT_BUSY) {
		ev->rx = RPC_RX_POLLING;
		ev->owe_poll = true;
	}
}

/* A signal came in: 0, or -SKEIN_EPEER: it is out of place. */
int rpc_event_signal(struct rpc_event *ev, uint32_t value);

static inline bool rpc_event_owes(const struct rpc_event *ev)
{
	return ev->owes != 0;
}

/* Sends the owed signals, as far as receive credits go. 0, or an error of the
 * port other than -EAGAIN. */
int rpc_event_flush(struct rpc_port *port);

#endif
