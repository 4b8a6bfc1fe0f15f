/* SPDX-License-Identifier: MIT */
/*
 * 02-async, client: has many calls under way at once. Each call ends in
 * answered(), once; the last one stops the engine.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <skein/skein.h>

#define SQUARE 1
#define CALLS 10000

struct work {
	struct skein_engine *engine;
	unsigned answered;
	unsigned failed;
	uint64_t sum;
};

static void answered(void *arg, const struct skein_rpc_result *result)
{
	struct work *work = arg;
	uint64_t square;

	if (result->status || result->len != sizeof(square)) {
		work->failed++;
	} else {
		memcpy(&square, result->data, sizeof(square));
		work->sum += square;
	}
	if (++work->answered == CALLS)
		skein_engine_stop(work->engine);
}

static int call_all(struct skein_conn *conn, struct work *work)
{
	for (uint64_t n = 1; n <= CALLS; n++) {
		int err;

		while ((err = skein_rpc_call_async(conn, SQUARE, &n, sizeof(n),
						   sizeof(n), SKEIN_S(5),
						   answered, work)) == -EAGAIN)
			skein_engine_progress(work->engine);
		if (err)
			return err;
	}
	return skein_engine_run(work->engine, SKEIN_S(10));
}

int main(int argc, char **argv)
{
	const char *addr = argc > 1 ? argv[1] : "127.0.0.1:7000";
	struct skein_rpc_stats stats = {.size = sizeof(stats)};
	struct work work = {0};
	struct skein_conn *conn;
	struct skein_ctx *ctx;
	int err;

	err = skein_ctx_open(NULL, &ctx);
	if (err)
		goto err_out;
	work.engine = skein_ctx_engine(ctx);
	err = skein_conn_open(ctx, addr, NULL, &conn);
	if (err)
		goto err_close;
	err = call_all(conn, &work);
	if (!err)
		err = skein_rpc_get_stats(conn, &stats);
	if (!err)
		printf("%u calls, %u failed, sum %" PRIu64 ", in %" PRIu64
		       " messages\n",
		       work.answered, work.failed, work.sum,
		       stats.messages_sent);
	skein_conn_close(conn, SKEIN_S(1));
err_close:
	skein_ctx_close(ctx);
err_out:
	if (err)
		fprintf(stderr, "client: %s\n", skein_strerror(err));
	return err || work.failed ? 1 : 0;
}
