/* SPDX-License-Identifier: MIT */
/* 01-echo, server: answers each request with its own bytes. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <skein/skein.h>

#define ECHO 1

static struct skein_stop *stop;

static void on_signal(int number)
{
	skein_stop_set(stop);
}

static int echo(struct skein_rpc_req *req, void *arg)
{
	size_t len = skein_rpc_req_len(req);
	void *resp = skein_rpc_resp_buf(req, len);

	if (!resp)
		return -EMSGSIZE;
	memcpy(resp, skein_rpc_req_data(req), len);
	return 0;
}

int main(int argc, char **argv)
{
	const char *addr = argc > 1 ? argv[1] : "127.0.0.1:7000";
	struct skein_listener *listener;
	struct skein_ctx *ctx;
	int err;

	err = skein_stop_new(&stop);
	if (err)
		goto err_out;
	signal(SIGINT, on_signal);
	signal(SIGTERM, on_signal);
	err = skein_ctx_open(NULL, &ctx);
	if (err)
		goto err_out;
	err = skein_rpc_handle(ctx, ECHO, echo, NULL);
	if (!err)
		err = skein_listener_open(ctx, addr, NULL, &listener);
	if (err)
		goto err_close;
	printf("listening on %s\n", skein_listener_addr(listener));
	fflush(stdout);
	err = skein_engine_run_stop(skein_ctx_engine(ctx), SKEIN_FOREVER, stop);
err_close:
	skein_ctx_close(ctx);
err_out:
	if (err)
		fprintf(stderr, "server: %s\n", skein_strerror(err));
	return err ? 1 : 0;
}
