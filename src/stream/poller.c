/* SPDX-License-Identifier: MIT */
/* poller.c - see poller.h. */
#include "stream/poller.h"

#include <errno.h>
#include <string.h>

/* What a wait adds to the smoothed wait: an eighth, as in TCP's estimator. */
#define SMOOTH 8

static const char *const names[POLLER_MODES] = {
	[POLLER_ADAPTIVE] = "adaptive",
	[POLLER_TCP] = "tcp",
	[POLLER_BP] = "bp",
	[POLLER_BPTS] = "bpts",
	[POLLER_EVENT] = "event",
	[POLLER_BPEV] = "bpev",
};

void poller_init(struct poller *p, enum poller_mode mode)
{
	atomic_init(&p->mode, mode);
	atomic_init(&p->bp_timeout_ns, 0);
	atomic_init(&p->wait_ns, 0);
}

/* Orders nothing: a thread that sees the old mode once more sleeps or looks by
 * rules that are right in each mode. */
void poller_set(struct poller *p, enum poller_mode mode)
{
	atomic_store_explicit(&p->mode, mode, memory_order_relaxed);
}

enum poller_mode poller_mode(const struct poller *p)
{
	return (enum poller_mode)atomic_load_explicit(&p->mode,
						      memory_order_relaxed);
}

int poller_mode_find(const char *name, enum poller_mode *mode)
{
	unsigned i;

	for (i = 0; i < POLLER_MODES; i++) {
		if (strcmp(names[i], name))
			continue;
		*mode = (enum poller_mode)i;
		return 0;
	}
	return -EINVAL;
}

const char *poller_mode_name(enum poller_mode mode)
{
	return names[mode];
}

uint64_t poller_timeout_ns(const struct poller *p)
{
	uint64_t set =
		atomic_load_explicit(&p->bp_timeout_ns, memory_order_relaxed);
	uint64_t ns = atomic_load_explicit(&p->wait_ns, memory_order_relaxed);

	if (set)
		return set;
	if (!ns)
		return POLLER_TIMEOUT_MAX_NS;
	/* Longer waits are not worth polling for. They are measured all the
	 * same, so a thread notices when they become short. */
	ns += ns / 4;
	if (ns < POLLER_TIMEOUT_MIN_NS)
		return POLLER_TIMEOUT_MIN_NS;
	return ns < POLLER_TIMEOUT_MAX_NS ? ns : POLLER_TIMEOUT_MIN_NS;
}

void poller_found(struct poller *p, const struct poller_wait *w,
		  uint64_t now_ns)
{
	uint64_t was = atomic_load_explicit(&p->wait_ns, memory_order_relaxed);
	uint64_t took = now_ns > w->begun_ns ? now_ns - w->begun_ns : 1;

	/* One long pause must not hide many short waits for long. */
	if (took > 2 * (uint64_t)POLLER_TIMEOUT_MAX_NS)
		took = 2 * (uint64_t)POLLER_TIMEOUT_MAX_NS;
	if (was)
		took = was - was / SMOOTH + took / SMOOTH;
	atomic_store_explicit(&p->wait_ns, took ? took : 1,
			      memory_order_relaxed);
}

/* Algorithm 2's loop is over. */
static bool is_over(const struct poller *p, const struct poller_wait *w,
		    uint64_t now_ns)
{
	return now_ns - w->begun_ns >= poller_timeout_ns(p);
}

bool poller_sleeps(const struct poller *p)
{
	enum poller_mode mode = poller_mode(p);

	return mode != POLLER_BP && mode != POLLER_BPTS;
}

bool poller_asks(const struct poller *p, uint64_t asked_ns, uint64_t now_ns)
{
	return poller_mode(p) == POLLER_BPTS ||
	       now_ns - asked_ns >= POLLER_KERNEL_NS;
}

enum poller_step poller_step(const struct poller *p,
			     const struct poller_wait *w, uint64_t now_ns)
{
	switch (poller_mode(p)) {
	case POLLER_TCP:
	case POLLER_EVENT:
		return POLLER_SLEEP;
	case POLLER_BPEV:
		if (is_over(p, w, now_ns))
			return POLLER_SLEEP;
		break;
	default:
		break;
	}
	return poller_asks(p, w->asked_ns, now_ns) ? POLLER_ASK : POLLER_LOOK;
}

uint64_t poller_until(const struct poller *p, const struct poller_wait *w,
		      uint64_t now_ns)
{
	uint64_t ask = w->asked_ns + POLLER_KERNEL_NS, end;

	switch (poller_mode(p)) {
	case POLLER_TCP:
	case POLLER_EVENT:
	case POLLER_BPTS:
		return UINT64_MAX;
	case POLLER_BPEV:
		end = w->begun_ns + poller_timeout_ns(p);
		if (end < ask)
			ask = end;
		break;
	default:
		break;
	}
	return ask > now_ns ? ask : now_ns;
}

unsigned poller_threads(unsigned cores)
{
	return cores < 4 ? 0 : cores < 16 ? 1 : 2;
}
