/* SPDX-License-Identifier: MIT */
/*
 * 03-one-sided, client: takes the next line of the server's board by
 * fetch-and-add, WRITEs its text there and READs the board back. The server's
 * CPU has no part in it.
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <skein/skein.h>
#include "board.h"

#define TIMEOUT SKEIN_S(5)

static int add_line(struct skein_conn *conn, struct skein_mem *mem,
		    const char *text)
{
	struct board *board = skein_mem_addr(mem);
	struct skein_remote remote = {.size = sizeof(remote)};
	uint64_t ticket, off;
	int err;

	err = skein_mem_find(conn, BOARD_NAME, TIMEOUT, &remote);
	if (err)
		return err;
	err = skein_mem_fetch_add(conn, &remote,
				  offsetof(struct board, tickets), 1, TIMEOUT,
				  &ticket);
	if (err)
		return err;
	if (ticket >= BOARD_LINES)
		return -ENOSPC;
	off = offsetof(struct board, line) + ticket * sizeof(board->line[0]);
	snprintf(board->line[ticket], sizeof(board->line[0]), "%s", text);
	err = skein_mem_write(conn, mem, off, &remote, off,
			      sizeof(board->line[0]), TIMEOUT);
	if (err)
		return err;
	err = skein_mem_read(conn, mem, 0, &remote, 0, sizeof(*board), TIMEOUT);
	if (err)
		return err;
	printf("line %u of %u: %s\n", (unsigned)ticket,
	       (unsigned)board->tickets, board->line[ticket]);
	return 0;
}

int main(int argc, char **argv)
{
	const char *addr = argc > 1 ? argv[1] : "127.0.0.1:7000";
	const char *text = argc > 2 ? argv[2] : "was here";
	struct skein_conn *conn;
	struct skein_mem *mem;
	struct skein_ctx *ctx;
	int err;

	err = skein_ctx_open(NULL, &ctx);
	if (err)
		goto err_out;
	err = skein_mem_new(ctx, sizeof(struct board), &mem);
	if (err)
		goto err_close;
	err = skein_conn_open(ctx, addr, NULL, &conn);
	if (err)
		goto err_close;
	err = add_line(conn, mem, text);
	skein_conn_close(conn, SKEIN_S(1));
err_close:
	skein_ctx_close(ctx);
err_out:
	if (err)
		fprintf(stderr, "client: %s\n", skein_strerror(err));
	return err ? 1 : 0;
}
