/* SPDX-License-Identifier: MIT */
/*
 * 04-multicast, server: a receiver. A sender makes it join a group by a call;
 * then messages come, in part from other receivers.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <skein/skein.h>
#include "join.h"

struct receiver {
	struct skein_ctx *ctx;
	struct skein_mcast *group; /* NULL: in none */
	struct skein_mem *mem;
};

static struct skein_stop *stop;

static void on_signal(int number)
{
	skein_stop_set(stop);
}

/* A message begins: memory for it. */
static int on_incoming(void *arg, struct skein_mcast *group,
		       const struct skein_mcast_msg *msg,
		       struct skein_mcast_dest *dest)
{
	struct receiver *r = arg;
	int err = msg->size ? skein_mem_new(r->ctx, msg->size, &r->mem) : 0;

	dest->mem = r->mem;
	return err;
}

static void on_done(void *arg, struct skein_mcast *group,
		    const struct skein_mcast_msg *msg, int status)
{
	struct receiver *r = arg;

	if (!status)
		printf("message %" PRIu64 ": %" PRIu64
		       " bytes, digest %016" PRIx64 "\n",
		       msg->seq, msg->size, msg->digest);
	skein_mem_free(r->mem);
	r->mem = NULL;
}

static int on_join(struct skein_rpc_req *req, void *arg)
{
	const struct join *join = skein_rpc_req_data(req);
	const char *members[MEMBERS_MAX];
	struct receiver *r = arg;
	struct skein_mcast_attr attr = {.size = sizeof(attr),
					.members = members,
					.ops = {.incoming = on_incoming,
						.done = on_done},
					.arg = r};

	if (skein_rpc_req_len(req) != sizeof(*join) ||
	    join->count > MEMBERS_MAX || join->rank >= join->count)
		return -EINVAL;
	if (r->group)
		return -EBUSY;
	for (unsigned i = 0; i < join->count; i++) {
		members[i] = join->member[i];
		if (join->member[i][ADDR_LEN - 1])
			return -EINVAL;
	}
	attr.count = join->count;
	attr.rank = join->rank;
	return skein_mcast_open_async(r->ctx, &attr, &r->group);
}

static void serve(struct receiver *r)
{
	struct skein_engine *engine = skein_ctx_engine(r->ctx);
	int err;

	while (!skein_stop_is_set(stop)) {
		skein_engine_run_stop(engine, SKEIN_MS(50), stop);
		if (!r->group)
			continue;
		/* Returns when the sender closes, or somebody fails. */
		err = skein_mcast_close(r->group, SKEIN_FOREVER);
		r->group = NULL;
		printf("group: %s\n",
		       err ? skein_strerror(err) : "everybody has everything");
		fflush(stdout);
	}
}

int main(int argc, char **argv)
{
	const char *addr = argc > 1 ? argv[1] : "127.0.0.1:7000";
	struct skein_listener *listener;
	struct receiver r = {0};
	int err;

	err = skein_stop_new(&stop);
	if (err)
		goto err_out;
	signal(SIGINT, on_signal);
	signal(SIGTERM, on_signal);
	err = skein_ctx_open(NULL, &r.ctx);
	if (err)
		goto err_out;
	err = skein_rpc_handle(r.ctx, JOIN, on_join, &r);
	if (!err)
		err = skein_listener_open(r.ctx, addr, NULL, &listener);
	if (!err) {
		printf("listening on %s\n", skein_listener_addr(listener));
		fflush(stdout);
		serve(&r);
	}
	skein_ctx_close(r.ctx);
err_out:
	if (err)
		fprintf(stderr, "server: %s\n", skein_strerror(err));
	return err ? 1 : 0;
}
