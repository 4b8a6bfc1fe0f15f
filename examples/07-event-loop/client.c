/* SPDX-License-Identifier: MIT */
/*
 * 07-event-loop, client: sends each line of its standard input as soon as it is
 * there, and prints each answer when it comes. One thread waits for both.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>
#include <skein/skein.h>

#define ECHO 1
#define LINE_MAX_LEN 256

struct client {
	struct skein_conn *conn;
	unsigned under_way, failed;
	bool end; /* of the input */
};

static void on_answer(void *arg, const struct skein_rpc_result *res)
{
	struct client *c = arg;

	c->under_way--;
	c->failed += res->status != 0;
	if (!res->status)
		printf("answer: %.*s", (int)res->len, (const char *)res->data);
	fflush(stdout);
}

/* What read(2) brings is one request; a terminal brings one line. */
static int take_input(struct client *c)
{
	char line[LINE_MAX_LEN];
	ssize_t len = read(STDIN_FILENO, line, sizeof(line));
	int err;

	if (len < 0)
		return errno == EINTR ? 0 : -errno;
	if (!len) {
		c->end = true;
		return 0;
	}
	err = skein_rpc_call_async(c->conn, ECHO, line, (size_t)len,
				   sizeof(line), SKEIN_S(5), on_answer, c);
	if (err)
		return err;
	c->under_way++;
	return 0;
}

static int loop(struct client *c, struct skein_engine *engine)
{
	struct pollfd fds[] = {
		{.fd = skein_engine_fd(engine), .events = POLLIN},
		{.fd = STDIN_FILENO, .events = POLLIN},
	};
	int err = 0;

	while (!err && (!c->end || c->under_way)) {
		if (skein_engine_progress(engine) > 0)
			continue;
		if (skein_engine_arm(engine))
			continue; /* there is work already */
		/* without the input once it has ended */
		if (poll(fds, c->end ? 1 : 2, -1) < 0)
			err = errno == EINTR ? 0 : -errno;
		else if (!c->end && fds[1].revents)
			err = take_input(c);
	}
	return err;
}

int main(int argc, char **argv)
{
	const char *addr = argc > 1 ? argv[1] : "127.0.0.1:7000";
	struct client c = {0};
	struct skein_ctx *ctx;
	int err;

	err = skein_ctx_open(NULL, &ctx);
	if (err)
		goto err_out;
	err = skein_conn_open(ctx, addr, NULL, &c.conn);
	if (err)
		goto err_close;
	err = loop(&c, skein_ctx_engine(ctx));
	skein_conn_close(c.conn, SKEIN_S(1));
err_close:
	skein_ctx_close(ctx);
err_out:
	if (err)
		fprintf(stderr, "client: %s\n", skein_strerror(err));
	return err || c.failed ? 1 : 0;
}
