/* SPDX-License-Identifier: MIT */
/*
 * 03-one-sided, server: shares a board and does nothing more; clients take
 * lines and write them without it. Prints the board when told to end.
 */
#include <signal.h>
#include <stdio.h>
#include <skein/skein.h>
#include "board.h"

static struct skein_stop *stop;

static void on_signal(int number)
{
	skein_stop_set(stop);
}

static void print_board(const struct board *board)
{
	for (unsigned i = 0; i < board->tickets && i < BOARD_LINES; i++)
		printf("%u: %.*s\n", i, (int)sizeof(board->line[i]),
		       board->line[i]);
}

int main(int argc, char **argv)
{
	const char *addr = argc > 1 ? argv[1] : "127.0.0.1:7000";
	struct skein_listener *listener;
	struct skein_mem *mem;
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
	err = skein_mem_new(ctx, sizeof(struct board), &mem);
	if (!err)
		err = skein_mem_share(mem, BOARD_NAME,
				      SKEIN_MEM_READ | SKEIN_MEM_WRITE |
					      SKEIN_MEM_ATOMIC);
	if (!err)
		err = skein_listener_open(ctx, addr, NULL, &listener);
	if (err)
		goto err_close;
	printf("listening on %s\n", skein_listener_addr(listener));
	fflush(stdout);
	err = skein_engine_run_stop(skein_ctx_engine(ctx), SKEIN_FOREVER, stop);
	/* No connection is left after this: the CPU may read the board. */
	skein_listener_close(listener);
	print_board(skein_mem_addr(mem));
err_close:
	skein_ctx_close(ctx);
err_out:
	if (err)
		fprintf(stderr, "server: %s\n", skein_strerror(err));
	return err ? 1 : 0;
}
