/* SPDX-License-Identifier: MIT */
/*
 * server.h - the sessions of one server thread, in eRPC's manner.
 *
 * A session has as many receives as credits. Of each of its slots the server
 * knows the last request's number and keeps its response: a request that comes
 * again is answered again and not executed, one that is older is dropped.
 *
 * Thread rule: one thread. Errors: 0 or a negative errno.
 */
#ifndef SKEIN_BENCH_UD_SERVER_H
#define SKEIN_BENCH_UD_SERVER_H

#include "port.h"

struct ud_server_conf {
	struct ud_port_conf port; /* its bufs are set from here */
	unsigned sessions;
	unsigned slots; /* of each */
	/* Executes a request: writes at most port.size bytes, and says how
	 * many. */
	size_t (*handler)(void *arg, const void *data, size_t len, void *resp);
	void *arg;
};

struct ud_session {
	struct ud_peer client;
	uint64_t *numbers;   /* of the last request of each slot */
	unsigned first_slot; /* among the buffers */
};

struct ud_server_counts {
	uint64_t executed;
	uint64_t answered_again;
	uint64_t old; /* requests with a response that has arrived */
	uint64_t bursts;
};

struct ud_server {
	struct ud_server_conf conf;
	struct ud_port port;
	struct ud_session *sessions;
	uint64_t *numbers;
	struct ud_server_counts counts;
};

int ud_server_open(struct ud_server *s, const struct ud_server_conf *conf);
/* Of the session's client. */
int ud_server_connect(struct ud_server *s, unsigned session,
		      const struct dev_qp_addr *addr);
void ud_server_close(struct ud_server *s);
/* How many requests came in *n. */
int ud_server_round(struct ud_server *s, unsigned *n);

#endif
