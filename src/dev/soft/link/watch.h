/* SPDX-License-Identifier: MIT */
/*
 * watch.h - packets are taken in by the control thread, which sleeps until there
 * are some, or by the threads of the program that poll. A thread that polls all the
 * time is there before the control thread has woken, and the two stand in each
 * other's way: so the control thread leaves the sockets to it, and looks from
 * time to time whether it still polls. Where it did not while packets waited,
 * the control thread stays for a while: twice as long each time, for the program
 * computes between its polls; half as long for each look that found it polling,
 * for a busy machine had only taken its core away.
 *
 * Pure; for one thread at a time.
 */
#ifndef SKEIN_DEV_SOFT_LINK_WATCH_H
#define SKEIN_DEV_SOFT_LINK_WATCH_H

#include <stdbool.h>
#include <stdint.h>

/* A poller comes again so soon, also where its send woke a thread of the peer:
 * some 50 us on a virtual machine. With a shorter time each end
 * took the other for absent and woke for each packet, for ever. */
#define WATCH_POLLED_NS 100000u
#define WATCH_LOOK_NS 200000u /* the longest that a packet waits */
#define WATCH_STAY_NS 1000000u
#define WATCH_STAY_MAX_NS 100000000u

struct watch {
	bool left;	    /* to pollers */
	uint64_t polled_ns; /* when one did last */
	uint64_t look_ns;   /* when to look; where it is left */
	uint64_t stay_ns;   /* not left before */
	uint64_t stayed_ns; /* the last stay, less than that after good looks */
};

static inline bool watch_is_polled(const struct watch *w, uint64_t now)
{
	return now - w->polled_ns <= WATCH_POLLED_NS;
}

/* There are packets. True: somebody else takes them in. */
static inline bool watch_leave(struct watch *w, uint64_t now)
{
	if (now < w->stay_ns || !watch_is_polled(w, now))
		return false;
	w->left = true;
	w->look_ns = now + WATCH_LOOK_NS;
	return true;
}

/* At look_ns: do packets wait? True: the control thread takes them in again. */
static inline bool watch_look(struct watch *w, uint64_t now, bool waiting)
{
	if (watch_is_polled(w, now)) {
		w->look_ns = now + WATCH_LOOK_NS;
		w->stayed_ns /= 2;
		return false;
	}
	if (waiting) {
		w->stayed_ns *= 2;
		if (w->stayed_ns < WATCH_STAY_NS)
			w->stayed_ns = WATCH_STAY_NS;
		if (w->stayed_ns > WATCH_STAY_MAX_NS)
			w->stayed_ns = WATCH_STAY_MAX_NS;
		w->stay_ns = now + w->stayed_ns;
	}
	w->left = false;
	return true;
}

#endif
