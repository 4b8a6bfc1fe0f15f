/* SPDX-License-Identifier: MIT */
/*
 * client.h - a session with a server, in eRPC's manner.
 *
 * Calls have slots, one call each. A request takes one of the session's credits
 * and its response gives it back, so that no more requests are under way than
 * the server has receives for; without one a call waits for its turn. A
 * request that was not answered in time is sent again, with its number and its
 * credit. No congestion control: the fabric is one machine.
 *
 * An engine: it has no clock, its caller says what time it is.
 * Thread rule: one thread. Errors: 0 or a negative errno.
 */
#ifndef SKEIN_BENCH_UD_CLIENT_H
#define SKEIN_BENCH_UD_CLIENT_H

#include "port.h"

struct ud_client_conf {
	struct ud_port_conf port; /* its recvs and bufs are set from here */
	unsigned slots;
	unsigned credits;
	uint64_t timeout_ns;
	/* The response of a slot's call; data is valid until it returns. May
	 * make the slot's next call. */
	void (*done)(void *arg, unsigned slot, const void *data, size_t len);
	void *arg;
};

struct ud_slot {
	struct ud_head *head;
	uint64_t sent_ns;
	bool busy; /* has a request that is not answered */
	bool sent;
};

struct ud_client_counts {
	uint64_t calls, answers;
	uint64_t again; /* requests sent once more */
	uint64_t stale; /* responses to what was answered before */
	unsigned under_way_max;
};

struct ud_client {
	struct ud_client_conf conf;
	struct ud_port port;
	struct ud_peer server;
	struct ud_slot *slots;
	unsigned credits; /* left */
	/* slots without a credit, in their order; a ring */
	unsigned *waiting;
	uint64_t wait_head, wait_tail;
	uint64_t now, look_ns;
	struct ud_client_counts counts;
	int rc;
};

int ud_client_open(struct ud_client *c, const struct ud_client_conf *conf);
/* The server's QP for this client, and the session's number there. */
int ud_client_connect(struct ud_client *c, const struct dev_qp_addr *addr,
		      uint16_t session);
void ud_client_close(struct ud_client *c);

/* Where the data of a slot's next call belongs, while it has none. */
static inline void *ud_client_data(struct ud_client *c, unsigned slot)
{
	return c->slots[slot].head + 1;
}

/* Begins the slot's call; it leaves with the round. Its number. */
uint64_t ud_client_call(struct ud_client *c, unsigned slot, size_t len);

/* Takes responses in and sends requests; now never goes back. How many
 * responses in *n. */
int ud_client_round(struct ud_client *c, uint64_t now, unsigned *n);

#endif
