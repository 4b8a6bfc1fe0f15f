/* SPDX-License-Identifier: MIT */
/*
 * cong.h - congestion: how many packets may be on their way to a host. All QPs
 * with a peer there share one window, each has an equal share of it, and at
 * least one packet: so none waits for another's.
 *
 * The window is 10 packets at first and doubles each round trip until it has
 * been cut once, then grows by one packet a round trip. A gap or a mark (CNP,
 * ECN) halves it, once for all packets that were on their way: what was sent
 * before a cut says nothing of the time after it. A timeout makes it one.
 *
 * Pure: no clock, no lock. QPs of several threads use one struct cong: its
 * counts are exact, and of two changes of the window at once one may get lost.
 * A cong_part is for one thread at a time.
 */
#ifndef SKEIN_DEV_SOFT_LINK_CONG_H
#define SKEIN_DEV_SOFT_LINK_CONG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define CONG_FIRST 10u
#define CONG_MAX 512u

/* Of a host. */
struct cong {
	uint32_t max; /* of the window */
	_Atomic uint32_t window, threshold;
	_Atomic uint32_t grown; /* acknowledged since it grew by one */
	_Atomic uint32_t users; /* QPs that have packets on their way */
	_Atomic uint32_t cuts;
	_Atomic uint32_t acked;
};

/* Of a QP. */
struct cong_part {
	struct cong *cong; /* NULL: no window, the carrier has its own */
	bool uses;
	uint32_t cuts;	/* that there were at its last packet */
	uint32_t fresh; /* the first PSN that was sent after the last of them */
	uint32_t acked; /* of cong, when its timer was set */
};

void cong_init(struct cong *c, uint32_t max);
/* psn: of its first packet. */
void cong_join(struct cong_part *p, struct cong *c, uint32_t psn);
/* Packets that this QP may have on their way. */
uint32_t cong_share(const struct cong_part *p);
/* It sends the packet of that PSN, has none on its way any more, sets its timer,
 * and has n more acknowledged. */
void cong_sent(struct cong_part *p, uint32_t psn);
void cong_idle(struct cong_part *p);
void cong_timer(struct cong_part *p);
void cong_acked(struct cong_part *p, uint32_t n);
/* The packet of that PSN is missing. True: the window was cut. */
bool cong_gap(struct cong_part *p, uint32_t psn);
/* Packets were marked; una is the oldest that was not acknowledged. */
bool cong_mark(struct cong_part *p, uint32_t una);
/* Nothing came for as long as the QP's timer runs. If other QPs' packets were
 * acknowledged meanwhile, it is not the way to the host. */
bool cong_timeout(struct cong_part *p, uint32_t una);

#endif
