/* SPDX-License-Identifier: MIT */
/* 08-stream, client: sends its standard input, prints the answer. */
#include <stdio.h>
#include <unistd.h>
#include <skein/skein.h>

/* Standard input is read straight into the ring. */
static int send_input(struct skein_stream *stream)
{
	size_t room;
	ssize_t len;
	void *buf;
	int err;

	do {
		err = skein_stream_reserve(stream, SKEIN_S(5), &buf, &room);
		if (err)
			return err;
		len = read(STDIN_FILENO, buf, room);
		err = skein_stream_commit(stream, len > 0 ? (size_t)len : 0);
	} while (!err && len > 0);
	return err ? err : skein_stream_end(stream, SKEIN_S(5));
}

int main(int argc, char **argv)
{
	const char *addr = argc > 1 ? argv[1] : "127.0.0.1:7000";
	struct skein_stream *stream;
	struct skein_ctx *ctx;
	char answer[256];
	size_t len = 0;
	int err;

	err = skein_ctx_open(NULL, &ctx);
	if (err)
		goto err_out;
	err = skein_stream_open(ctx, addr, NULL, &stream);
	if (err)
		goto err_close;
	err = send_input(stream);
	while (!err &&
	       !(err = skein_stream_read(stream, answer, sizeof(answer),
					 SKEIN_S(5), &len)) &&
	       len)
		fwrite(answer, 1, len, stdout);
	skein_stream_close(stream, SKEIN_S(5));
err_close:
	skein_ctx_close(ctx);
err_out:
	if (err)
		fprintf(stderr, "client: %s\n", skein_strerror(err));
	return err ? 1 : 0;
}
