/* SPDX-License-Identifier: MIT */
/*
 * 04-multicast, client: the sender. Tells each receiver which members the group has,
 * opens it, sends one message to all and closes: then all have it.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <skein/skein.h>
#include "join.h"

#define TIMEOUT SKEIN_S(10)

static int invite(struct skein_ctx *ctx, const struct join *join)
{
	struct skein_conn *conn;
	int err;

	err = skein_conn_open(ctx, join->member[join->rank], NULL, &conn);
	if (err)
		return err;
	err = skein_rpc_call(conn, JOIN, join, sizeof(*join), NULL, 0, TIMEOUT,
			     NULL);
	skein_conn_close(conn, SKEIN_S(1));
	return err;
}

static void on_done(void *arg, struct skein_mcast *group,
		    const struct skein_mcast_msg *msg, int status)
{
	if (!status)
		printf("sent: digest %016" PRIx64 "\n", msg->digest);
}

static int multicast(struct skein_ctx *ctx, const struct join *join,
		     struct skein_mem *mem, uint64_t bytes)
{
	const char *members[MEMBERS_MAX];
	struct skein_mcast_attr attr = {.size = sizeof(attr),
					.members = members,
					.count = join->count,
					.ops.done = on_done};
	struct skein_mcast *group;
	int err;

	for (unsigned i = 0; i < join->count; i++)
		members[i] = join->member[i];
	err = skein_mcast_open(ctx, &attr, &group);
	if (err)
		return err;
	err = skein_mcast_send(group, mem, 0, bytes, NULL);
	if (err) {
		skein_mcast_close(group, 0);
		return err;
	}
	/* 0 is the proof that everybody has everything. */
	return skein_mcast_close(group, SKEIN_FOREVER);
}

static int run(struct skein_ctx *ctx, uint64_t bytes, char **addrs, int count)
{
	struct join join = {.count = 1 + (uint32_t)count};
	struct skein_mem *mem;
	int err;

	if (count < 1 || count >= MEMBERS_MAX)
		return -EINVAL;
	snprintf(join.member[0], ADDR_LEN, "sender");
	for (int i = 0; i < count; i++)
		snprintf(join.member[1 + i], ADDR_LEN, "%s", addrs[i]);
	for (join.rank = 1; join.rank < join.count; join.rank++) {
		err = invite(ctx, &join);
		if (err)
			return err;
	}
	err = skein_mem_new(ctx, bytes + 1, &mem);
	if (err)
		return err;
	memset(skein_mem_addr(mem), 'g', bytes);
	err = multicast(ctx, &join, mem, bytes);
	skein_mem_free(mem);
	if (!err)
		printf("%" PRIu64 " bytes at %d receivers\n", bytes, count);
	return err;
}

int main(int argc, char **argv)
{
	struct skein_ctx *ctx;
	uint64_t bytes = 0;
	char *end = "";
	int err;

	if (argc > 1)
		bytes = strtoull(argv[1], &end, 10);
	if (argc < 3 || *end || end == argv[1] || *argv[1] == '-') {
		fprintf(stderr, "usage: %s BYTES ADDRESS...\n", argv[0]);
		return 2;
	}
	err = skein_ctx_open(NULL, &ctx);
	if (!err) {
		err = run(ctx, bytes, argv + 2, argc - 2);
		skein_ctx_close(ctx);
	}
	if (err)
		fprintf(stderr, "client: %s\n", skein_strerror(err));
	return err ? 1 : 0;
}
