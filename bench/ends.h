/* SPDX-License-Identifier: MIT */
/*
 * ends.h - both ends of a connection in one process, driven in turns, for
 * programs that count instructions.
 */
#ifndef SKEIN_BENCH_ENDS_H
#define SKEIN_BENCH_ENDS_H

#include "skein/skein.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENDS_ECHO 1
#define ENDS_ROUNDS_MAX 100000000l

struct ends {
	struct skein_ctx *server, *client;
	struct skein_listener *listener;
	struct skein_conn *conn;
};

static inline _Noreturn void die(const char *what, int rc)
{
	fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what,
		skein_strerror(rc));
	exit(1);
}

static int ends_echo(struct skein_rpc_req *req, void *arg)
{
	size_t len = skein_rpc_req_len(req);
	void *resp = skein_rpc_resp_buf(req, len);

	if (!resp)
		return -1;
	memcpy(resp, skein_rpc_req_data(req), len);
	return 0;
}

/* qps: of the client's handle; 0: a private connection. */
static void ends_open(struct ends *e, unsigned qps)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr),
				      .wait = SKEIN_WAIT_POLL};
	struct skein_conn_attr conn = {.size = sizeof(conn), .qps = qps};
	int rc = skein_ctx_open(&attr, &e->server);

	if (!rc)
		rc = skein_ctx_open(&attr, &e->client);
	if (!rc)
		rc = skein_rpc_handle(e->server, ENDS_ECHO, ends_echo, NULL);
	if (!rc)
		rc = skein_listener_open(e->server, "127.0.0.1:0", NULL,
					 &e->listener);
	if (!rc)
		rc = skein_conn_open_async(e->client,
					   skein_listener_addr(e->listener),
					   &conn, &e->conn);
	if (rc)
		die("set-up", rc);
	for (long i = 0; skein_conn_get_state(e->conn) != SKEIN_CONN_READY;
	     i++) {
		skein_ctx_progress(e->server);
		skein_ctx_progress(e->client);
		if (i == ENDS_ROUNDS_MAX ||
		    skein_conn_get_state(e->conn) == SKEIN_CONN_BROKEN)
			die("connection", skein_conn_error(e->conn, NULL));
	}
}

static void ends_close(struct ends *e)
{
	skein_conn_close(e->conn, SKEIN_MS(1));
	skein_listener_close(e->listener);
	skein_ctx_close(e->client);
	skein_ctx_close(e->server);
}

#endif
