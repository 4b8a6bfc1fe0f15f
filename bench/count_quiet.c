/* SPDX-License-Identifier: MIT */
/*
 * count_quiet.c - instructions of a server beside connections that say nothing.
 *
 *	count_quiet round|call|open IDLE N
 *
 * IDLE further connections have made one call each. Then N rounds of the
 * server's engine in which nothing comes, or N calls of one client, of which the
 * server's rounds are counted, or N more connections with a call each, of which
 * both ends are counted. Prints how many that were. Both ends are driven in
 * turns by one thread; run under callgrind (count.h).
 */
#include "count.h"
#include "ends.h"

#define WARM 64

static void on_done(void *arg, const struct skein_rpc_result *res)
{
	if (res->status)
		die("call", res->status);
	++*(unsigned long *)arg;
}

/* One call; the server's rounds are counted when on. */
static void call(struct ends *e, struct skein_conn *conn, bool on)
{
	unsigned long done = 0;
	char req[64] = {1};
	int rc = skein_rpc_call_async(conn, ENDS_ECHO, req, sizeof(req),
				      sizeof(req), SKEIN_S(60), on_done, &done);

	if (rc)
		die("call", rc);
	while (!done) {
		if (on)
			COUNT_ON();
		skein_ctx_progress(e->server);
		if (on)
			COUNT_OFF();
		skein_ctx_progress(e->client);
	}
}

static void open_idle(struct ends *e)
{
	struct skein_conn *conn;
	int rc = skein_conn_open_async(
		e->client, skein_listener_addr(e->listener), NULL, &conn);

	if (rc)
		die("connection", rc);
	while (skein_conn_get_state(conn) == SKEIN_CONN_CONNECTING) {
		skein_ctx_progress(e->server);
		skein_ctx_progress(e->client);
	}
	if (skein_conn_get_state(conn) != SKEIN_CONN_READY)
		die("connection", skein_conn_error(conn, NULL));
	call(e, conn, false);
}

int main(int argc, char **argv)
{
	unsigned long idle, n;
	struct ends e = {0};

	if (argc != 4) {
		fputs("usage: count_quiet round|call|open IDLE N\n", stderr);
		return 2;
	}
	idle = strtoul(argv[2], NULL, 10);
	n = strtoul(argv[3], NULL, 10);
	ends_open(&e, 0);
	for (unsigned long i = 0; i < idle; i++)
		open_idle(&e);
	for (int i = 0; i < WARM; i++)
		call(&e, e.conn, false);
	for (int i = 0; i < WARM; i++)
		skein_ctx_progress(e.server);
	for (unsigned long i = 0; i < n; i++) {
		if (!strcmp(argv[1], "call")) {
			call(&e, e.conn, true);
			continue;
		}
		if (!strcmp(argv[1], "open")) {
			COUNT_ON();
			open_idle(&e);
			COUNT_OFF();
			continue;
		}
		COUNT_ON();
		skein_ctx_progress(e.server);
		COUNT_OFF();
	}
	printf("%lu\n", n);
	fflush(stdout);
	/* thousands of connections end with the process */
	if (idle)
		_Exit(0);
	ends_close(&e);
	return 0;
}
