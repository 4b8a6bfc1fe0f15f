/* SPDX-License-Identifier: MIT */
/*
 * peer_server.c - answers calls, and keeps count for each connection of those
 * that came twice, out of reach, or with wrong bytes. Prints a line for each
 * connection that comes or goes, and the totals at the end.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "peer.h"

/* Calls of one connection may overtake each other by this many at most. */
#define SPREAD 1024

struct tally {
	uint64_t low; /* all below have come */
	uint64_t high;
	uint8_t came[SPREAD]; /* by seq modulo SPREAD, for low.. */
	uint64_t calls;
	uint64_t twice;
	uint64_t wrong;
};

struct server {
	struct skein_stop *stop;
	struct tally total;
	unsigned live;
};

static struct server server;

static void on_signal(int number)
{
	skein_stop_set(server.stop);
}

static void count(struct tally *t, uint64_t seq)
{
	t->calls++;
	if (seq < t->low || (seq < t->low + SPREAD && t->came[seq % SPREAD])) {
		t->twice++;
		return;
	}
	if (seq >= t->low + SPREAD) {
		t->wrong++;
		return;
	}
	t->came[seq % SPREAD] = 1;
	if (seq >= t->high)
		t->high = seq + 1;
	while (t->came[t->low % SPREAD]) {
		t->came[t->low % SPREAD] = 0;
		t->low++;
	}
}

static int on_call(struct skein_rpc_req *req, void *arg)
{
	struct tally *t = skein_conn_data(skein_rpc_req_conn(req));
	const uint8_t *data = skein_rpc_req_data(req);
	size_t len = skein_rpc_req_len(req);
	struct peer_head head;
	uint8_t *resp;

	if (!t)
		return -EPROTO;
	if (len < sizeof(head))
		goto err_wrong;
	memcpy(&head, data, sizeof(head));
	if (len - sizeof(head) != head.fill_len ||
	    head.fill_len != peer_fill_len(head.seq) ||
	    !peer_fill_ok(data + sizeof(head), head.seq, head.fill_len, 0))
		goto err_wrong;
	count(t, head.seq);
	resp = skein_rpc_resp_buf(req, len);
	if (!resp)
		return -ENOMEM;
	memcpy(resp, &head, sizeof(head));
	peer_fill(resp + sizeof(head), head.seq, head.fill_len, 0xff);
	return 0;
err_wrong:
	t->wrong++;
	return -EBADMSG;
}

static void on_conn(void *arg, struct skein_conn *conn,
		    enum skein_conn_state state)
{
	struct tally *t = skein_conn_data(conn);

	if (state == SKEIN_CONN_READY) {
		skein_conn_set_data(conn, calloc(1, sizeof(*t)));
		printf("ready, %u live\n", ++server.live);
	} else if (t) {
		/* Calls below high that never came were lost. */
		printf("ended, %u live, %" PRIu64 " calls, %" PRIu64
		       " missing, %" PRIu64 " twice, %" PRIu64 " wrong\n",
		       --server.live, t->calls, t->high - (t->calls - t->twice),
		       t->twice, t->wrong);
		server.total.calls += t->calls;
		server.total.twice += t->twice;
		server.total.wrong += t->wrong;
		skein_conn_set_data(conn, NULL);
		free(t);
	}
	fflush(stdout);
}

int peer_serve(const char *addr)
{
	struct skein_listener_attr attr = {
		.size = sizeof(attr),
		.on_conn = on_conn,
	};
	struct skein_listener *listener;
	struct skein_ctx *ctx;
	int err;

	err = skein_stop_new(&server.stop);
	if (err)
		goto err_out;
	signal(SIGTERM, on_signal);
	err = skein_ctx_open(NULL, &ctx);
	if (err)
		goto err_out;
	err = skein_rpc_handle(ctx, PEER_CALL, on_call, NULL);
	if (err)
		goto err_close;
	err = skein_listener_open(ctx, addr, &attr, &listener);
	if (err)
		goto err_close;
	printf("listening on %s\n", skein_listener_addr(listener));
	fflush(stdout);
	err = skein_engine_run_stop(skein_ctx_engine(ctx), SKEIN_FOREVER,
				    server.stop);
	skein_listener_close(listener);
	printf("served %" PRIu64 " calls, %" PRIu64 " twice, %" PRIu64
	       " wrong, %u live\n",
	       server.total.calls, server.total.twice, server.total.wrong,
	       server.live);
err_close:
	skein_ctx_close(ctx);
err_out:
	if (err)
		fprintf(stderr, "server: %s\n", skein_strerror(err));
	return err ? 1 : 0;
}
