/* SPDX-License-Identifier: MIT */
/*
 * quiesce.c - knowing that no peer is still inside our memory.
 *
 * The owner makes the way in invalid (an MR's key, a QP's gate), calls
 * soft_barrier(), and looks at the hazard word of each peer QP. A poster
 * raises its hazard before it looks at the key and the gate. The barrier is a
 * full fence in every running thread of every process that has a soft device,
 * so a poster either sees the invalid key, or its hazard is seen here. It is
 * membarrier(2), or where that is refused a wait (env/membarrier.h).
 */
#include "dev/soft/dc/dc.h"
#include "dev/soft/ud/ud.h"
#include "env/membarrier.h"

#include <errno.h>
#include <sched.h>
#include <time.h>

#define QUIESCE_PATIENCE_NS 1000000000ull
#define QUIESCE_DEAD_NS 200000000ull

void soft_barrier(void)
{
	membarrier_fence(MEMBARRIER_HOST);
}

bool soft_barrier_try(void)
{
	return membarrier_try(MEMBARRIER_HOST);
}

static uint32_t hazard_of(struct soft_qp *q)
{
	/* acquire: pairs with soft_hazard_off(): the copy is done */
	return atomic_load_explicit(&q->far->hazard, memory_order_acquire);
}

bool soft_quiet(struct soft_qp *q)
{
	if (q->ud)
		return soft_ud_quiet(q) &&
		       (!soft_is_dct(q) || soft_dc_quiet(q->s));
	return !q->far || !(hazard_of(q) & 1) || soft_peer_gone(q->peer);
}

static int quiesce(struct soft_qp *q)
{
	uint64_t start, now;
	struct timespec nap = {.tv_nsec = 50000};
	uint32_t was;
	unsigned round;

	if (soft_is_dct(q) && soft_dc_quiesce(q->s, false))
		return -EBUSY;
	if (q->ud)
		return soft_ud_quiesce(q, false);
	if (!q->far)
		return 0;
	was = hazard_of(q);
	if (!(was & 1))
		return 0;
	start = env_now_ns(q->s->env);
	for (round = 0; hazard_of(q) == was; round++) {
		if (round < 100) {
			sched_yield();
			continue;
		}
		if (soft_peer_gone(q->peer))
			return 0;
		now = env_now_ns(q->s->env);
		/* The life word is dead, but neither the pid nor the socket has
		 * ended: the peer exec'ed, and a child holds the socket. */
		if (!soft_life(q->peer->nic) && now - start > QUIESCE_DEAD_NS)
			return 0;
		if (now - start > QUIESCE_PATIENCE_NS)
			return -EBUSY;
		nanosleep(&nap, NULL);
	}
	return 0;
}

/* Not a point of cancellation: a poster that fails its QP comes here too. */
int soft_quiesce(struct soft_qp *q)
{
	int was = env_cancel_off(NULL), rc = quiesce(q);

	env_cancel_back(NULL, was);
	return rc;
}
