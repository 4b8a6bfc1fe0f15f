/* SPDX-License-Identifier: MIT */
/* 08-stream, server: counts the lines of each stream, and answers with the sum. */
#include <signal.h>
#include <stdio.h>
#include <skein/skein.h>

static volatile sig_atomic_t stopped;

static void on_signal(int number)
{
	stopped = 1;
}

/* Bytes are looked at where they lie. */
static void serve(struct skein_stream *stream)
{
	unsigned long lines = 0;
	const void *data;
	char answer[32];
	size_t len, n;

	while (!skein_stream_peek(stream, SKEIN_S(60), &data, &len) && len) {
		for (size_t i = 0; i < len; i++)
			lines += ((const char *)data)[i] == '\n';
		skein_stream_consume(stream, len);
	}
	n = (size_t)snprintf(answer, sizeof(answer), "%lu lines\n", lines);
	skein_stream_write(stream, answer, n, SKEIN_S(5), &len);
	skein_stream_close(stream, SKEIN_S(5));
}

int main(int argc, char **argv)
{
	const char *addr = argc > 1 ? argv[1] : "127.0.0.1:7000";
	struct skein_stream_listener *streams;
	struct skein_listener *listener;
	struct skein_stream *stream;
	struct skein_ctx *ctx;
	int err;

	signal(SIGINT, on_signal);
	signal(SIGTERM, on_signal);
	err = skein_ctx_open(NULL, &ctx);
	if (err)
		return 1;
	err = skein_stream_listen(ctx, NULL, &streams);
	if (!err)
		err = skein_listener_open(ctx, addr, NULL, &listener);
	if (!err)
		printf("listening on %s\n", skein_listener_addr(listener));
	fflush(stdout);
	while (!err && !stopped)
		if (!skein_stream_accept(streams, SKEIN_MS(200), &stream))
			serve(stream);
	skein_ctx_close(ctx);
	return err ? 1 : 0;
}
