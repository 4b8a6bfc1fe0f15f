/* SPDX-License-Identifier: MIT */
/* 07-event-loop, server: an echo server inside a poll(2) loop of its own. */
#include <errno.h>
#include <poll.h>
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

/* Other descriptors of the program go into fds, too. */
static int loop(struct skein_engine *engine)
{
	struct pollfd fds[] = {
		{.fd = skein_engine_fd(engine), .events = POLLIN},
		{.fd = skein_stop_fd(stop), .events = POLLIN},
	};

	while (!skein_stop_is_set(stop)) {
		if (skein_engine_progress(engine) > 0)
			continue;
		/* Most work arrives in memory: arm before each sleep. */
		if (skein_engine_arm(engine))
			continue;
		if (poll(fds, 2, -1) < 0 && errno != EINTR)
			return -errno;
	}
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
	err = loop(skein_ctx_engine(ctx));
err_close:
	skein_ctx_close(ctx);
err_out:
	if (err)
		fprintf(stderr, "server: %s\n", skein_strerror(err));
	return err ? 1 : 0;
}
