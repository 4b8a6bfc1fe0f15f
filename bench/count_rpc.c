/* SPDX-License-Identifier: MIT */
/*
 * count_rpc.c - what one call costs in instructions, on either side.
 *
 *	count_rpc SIDE SIZE BATCH N
 *
 * Both contexts live in this one thread and are driven in turns, so that no
 * fruitless round of a spinning wait is counted: the client issues BATCH calls,
 * several by skein_rpc_call_batch(), the server makes one round, the client
 * makes one round; a client that fetches makes more, until it is time for its
 * READ. SIDE says which turns are counted: client or server (of each batch the
 * first). N is the number of calls.
 * Run by instructions.sh under callgrind; prints N.
 */
#include "count.h"
#include "ends.h"

enum {
	SIZE_MAX_BYTES = 8192,
	BATCH_MAX = 64,
	WARM = 64, /* batches before counting */
	ROUNDS_MAX = 1000000,
};

struct bench {
	struct ends ends;
	size_t size;
	unsigned batch;
	unsigned n;
	bool count_server;
	unsigned done;
	bool failed;
	char buf[SIZE_MAX_BYTES];
};

static void on_done(void *arg, const struct skein_rpc_result *res)
{
	struct bench *b = arg;

	b->done++;
	if (res->status || res->len != b->size)
		b->failed = true;
}

static void issue(struct bench *b)
{
	struct skein_rpc_entry calls[BATCH_MAX];
	unsigned begun;
	int rc;

	for (unsigned i = 0; i < b->batch; i++)
		calls[i] = (struct skein_rpc_entry){.id = ENDS_ECHO,
						    .req = b->buf,
						    .req_len = b->size,
						    .resp_max = b->size,
						    .timeout_ns = SKEIN_S(10),
						    .done = on_done,
						    .arg = b};
	rc = skein_rpc_call_batch(b->ends.conn, calls, b->batch, &begun);
	if (rc || begun != b->batch)
		die("calls", rc);
}

static void issue_one(struct bench *b)
{
	int rc = skein_rpc_call_async(b->ends.conn, ENDS_ECHO, b->buf, b->size,
				      b->size, SKEIN_S(10), on_done, b);

	if (rc)
		die("call", rc);
}

static void one_batch(struct bench *b, bool counting)
{
	bool client = counting && !b->count_server;
	bool server = counting && b->count_server;
	unsigned want = b->done + b->batch;

	if (client)
		COUNT_ON();
	if (b->batch == 1)
		issue_one(b);
	else
		issue(b);
	if (client)
		COUNT_OFF();
	for (int i = 0; b->done < want; i++) {
		if (server && i == 0)
			COUNT_ON();
		skein_ctx_progress(b->ends.server);
		if (server && i == 0)
			COUNT_OFF();
		if (client)
			COUNT_ON();
		skein_ctx_progress(b->ends.client);
		if (client)
			COUNT_OFF();
		if (i == ROUNDS_MAX)
			die("a call got no answer", -SKEIN_EPEER);
	}
}

static bool parse(int argc, char **argv, struct bench *b)
{
	if (argc != 5)
		return false;
	b->count_server = !strcmp(argv[1], "server");
	b->size = strtoul(argv[2], NULL, 10);
	b->batch = (unsigned)strtoul(argv[3], NULL, 10);
	b->n = (unsigned)strtoul(argv[4], NULL, 10);
	return b->size <= SIZE_MAX_BYTES && b->batch >= 1 &&
	       b->batch <= BATCH_MAX && b->n >= b->batch;
}

int main(int argc, char **argv)
{
	static struct bench b;
	unsigned i;

	if (!parse(argc, argv, &b)) {
		fputs("usage: count_rpc client|server SIZE BATCH N\n", stderr);
		return 2;
	}
	ends_open(&b.ends, 0);
	for (i = 0; i < WARM; i++)
		one_batch(&b, false);
	for (i = 0; i < b.n / b.batch; i++)
		one_batch(&b, true);
	ends_close(&b.ends);
	if (b.failed)
		die("a call", -SKEIN_EPEER);
	printf("%u\n", b.n / b.batch * b.batch);
	return 0;
}
