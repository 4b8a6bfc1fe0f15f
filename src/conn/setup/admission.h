/* SPDX-License-Identifier: MIT */
/*
 * admission.h - how many handshakes and connections a listener takes on.
 *
 * Pure counters with limits. The hint when to try again grows with the number
 * of refused clients: a storm of clients comes back spread over the time that
 * the handshakes before them need.
 *
 * Thread rule: any thread.
 */
#ifndef SKEIN_CONN_SETUP_ADMISSION_H
#define SKEIN_CONN_SETUP_ADMISSION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define ADMISSION_HINT_MS 20u
#define ADMISSION_HINT_MAX_MS 500u

struct admission {
	unsigned handshakes_max, conns_max;
	atomic_uint handshakes; /* under way */
	atomic_uint conns;	/* live, those under way included */
	atomic_uint crowd;	/* links refused since one was let in */
};

void admission_init(struct admission *a, unsigned handshakes_max,
		    unsigned conns_max);
/* One more link: true, or false and the pause to ask the client for. */
bool admission_enter(struct admission *a, uint32_t *retry_ms);
/* A link's handshake has ended, well or not. */
void admission_shaken(struct admission *a);
/* One more connection: on a link that was admitted, or that joins later. */
bool admission_conn(struct admission *a);
/* Is there room for n more? Nothing is taken. */
bool admission_has(const struct admission *a, unsigned n);
void admission_conn_gone(struct admission *a);

#endif
