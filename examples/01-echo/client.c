/* SPDX-License-Identifier: MIT */
/* 01-echo, client: sends a line, prints the answer. */
#include <stdio.h>
#include <string.h>
#include <skein/skein.h>

#define ECHO 1

int main(int argc, char **argv)
{
	const char *addr = argc > 1 ? argv[1] : "127.0.0.1:7000";
	const char *line = argc > 2 ? argv[2] : "hello";
	struct skein_rpc_result result;
	struct skein_conn *conn;
	struct skein_ctx *ctx;
	char answer[256];
	int err;

	err = skein_ctx_open(NULL, &ctx);
	if (err)
		goto err_out;
	err = skein_conn_open(ctx, addr, NULL, &conn);
	if (err)
		goto err_close;
	err = skein_rpc_call(conn, ECHO, line, strlen(line), answer,
			     sizeof(answer), SKEIN_S(5), &result);
	if (!err)
		printf("%s answers: %.*s\n", skein_conn_peer(conn),
		       (int)result.len, answer);
	skein_conn_close(conn, SKEIN_S(1));
err_close:
	skein_ctx_close(ctx);
err_out:
	if (err)
		fprintf(stderr, "client: %s\n", skein_strerror(err));
	return err ? 1 : 0;
}
