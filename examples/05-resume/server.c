/* SPDX-License-Identifier: MIT */
/*
 * 05-resume, server: a receiver that writes what comes to a file. When a member
 * of the group dies it waits for the next invitation, says which blocks it has,
 * and gets the rest; others get from its file what they lack.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <skein/skein.h>
#include "join.h"

struct receiver {
	struct skein_ctx *ctx;
	int fd;
	uint64_t size;	 /* of the object */
	uint64_t *have;	 /* bits: its blocks in the file; NULL: it is unknown */
	long dies_after; /* blocks; 0: never */
	/* the next group */
	struct join join;
	bool invited;
};

static struct skein_stop *stop;

static void on_signal(int number)
{
	skein_stop_set(stop);
}

static size_t words_of(uint64_t size)
{
	return (size_t)(size / BLOCK / 64 + 1);
}

static unsigned count(const struct receiver *r)
{
	unsigned n = 0;

	for (uint64_t i = 0; i <= r->size / BLOCK; i++)
		n += r->have[i / 64] >> i % 64 & 1;
	return n;
}

/* An object that this member does not know yet. It goes through the group's
 * ring, block by block: dest stays empty. */
static int on_incoming(void *arg, struct skein_mcast *group,
		       const struct skein_mcast_msg *msg,
		       struct skein_mcast_dest *dest)
{
	struct receiver *r = arg;

	free(r->have);
	r->have = calloc(words_of(msg->size), sizeof(*r->have));
	r->size = msg->size;
	if (!r->have)
		return -ENOMEM;
	return ftruncate(r->fd, (off_t)msg->size) ? -errno : 0;
}

static int on_block(void *arg, struct skein_mcast *group,
		    const struct skein_mcast_msg *msg,
		    const struct skein_mcast_block *b)
{
	struct receiver *r = arg;
	ssize_t n;

	if (r->dies_after && !--r->dies_after)
		raise(SIGKILL);
	n = pwrite(r->fd, b->data, b->len, (off_t)b->off);
	if (n < 0)
		return -errno;
	return n == b->len ? 0 : -ENOSPC;
}

/* Somebody lacks a block that is in the file. */
static int on_fill(void *arg, struct skein_mcast *group,
		   const struct skein_mcast_msg *msg,
		   const struct skein_mcast_block *b)
{
	struct receiver *r = arg;

	return pread(r->fd, b->data, b->len, (off_t)b->off) == b->len ? 0
								      : -EIO;
}

static void on_done(void *arg, struct skein_mcast *group,
		    const struct skein_mcast_msg *msg, int status)
{
	struct skein_mcast_msg left;
	struct receiver *r = arg;

	if (!status) {
		printf("whole: %" PRIu64 " bytes, digest %016" PRIx64 "\n",
		       msg->size, msg->digest);
		free(r->have);
		r->have = NULL;
	} else if (r->have) {
		skein_mcast_have(group, &left, r->have, words_of(r->size));
	}
}

static int on_join(struct skein_rpc_req *req, void *arg)
{
	struct receiver *r = arg;

	if (skein_rpc_req_len(req) != sizeof(r->join))
		return -EINVAL;
	if (r->invited)
		return -EBUSY;
	/* This member may be in the group before still: serve() opens this
	 * one when it has left that. */
	memcpy(&r->join, skein_rpc_req_data(req), sizeof(r->join));
	if (r->join.count > MEMBERS_MAX || r->join.rank >= r->join.count)
		return -EINVAL;
	for (unsigned i = 0; i < r->join.count; i++)
		if (r->join.member[i][ADDR_LEN - 1])
			return -EINVAL;
	r->invited = true;
	return 0;
}

static int take_part(struct receiver *r, const struct join *join)
{
	const char *members[MEMBERS_MAX];
	struct skein_mcast_attr attr = {.size = sizeof(attr),
					.number = join->number,
					.members = members,
					.count = join->count,
					.rank = join->rank,
					.block_size = BLOCK,
					.ops = {.incoming = on_incoming,
						.block = on_block,
						.fill = on_fill,
						.done = on_done},
					.arg = r};
	struct skein_mcast_part part = {.size = sizeof(part),
					.store = SKEIN_MCAST_REREAD};
	struct skein_mcast *group;
	int err;

	for (unsigned i = 0; i < join->count; i++)
		members[i] = join->member[i];
	if (r->have) {
		part.len = r->size;
		part.have = r->have;
		printf("here are %u blocks\n", count(r));
	}
	err = join->resumes ? skein_mcast_resume(r->ctx, &attr, &part, &group)
			    : skein_mcast_open_async(r->ctx, &attr, &group);
	/* Returns when the sender closes, or somebody fails. */
	return err ? err : skein_mcast_close(group, SKEIN_FOREVER);
}

static void serve(struct receiver *r)
{
	struct skein_engine *engine = skein_ctx_engine(r->ctx);
	struct join join;
	int err;

	while (!skein_stop_is_set(stop)) {
		skein_engine_run_stop(engine, SKEIN_MS(50), stop);
		if (!r->invited)
			continue;
		join = r->join;
		r->invited = false;
		err = take_part(r, &join);
		printf("group %u: %s\n", join.number,
		       err ? skein_strerror(err) : "everybody has everything");
		fflush(stdout);
	}
}

int main(int argc, char **argv)
{
	struct skein_listener *listener;
	struct receiver r = {0};
	int err;

	if (argc < 3) {
		fprintf(stderr, "usage: %s ADDRESS FILE [DIES_AFTER]\n",
			argv[0]);
		return 2;
	}
	r.dies_after = argc > 3 ? atol(argv[3]) : 0;
	r.fd = open(argv[2], O_RDWR | O_CREAT | O_TRUNC, 0666);
	err = r.fd < 0 ? -errno : skein_stop_new(&stop);
	if (err)
		goto err_out;
	signal(SIGINT, on_signal);
	signal(SIGTERM, on_signal);
	err = skein_ctx_open(NULL, &r.ctx);
	if (err)
		goto err_out;
	err = skein_rpc_handle(r.ctx, JOIN, on_join, &r);
	if (!err)
		err = skein_listener_open(r.ctx, argv[1], NULL, &listener);
	if (!err) {
		printf("listening on %s\n", skein_listener_addr(listener));
		fflush(stdout);
		serve(&r);
	}
	skein_ctx_close(r.ctx);
	free(r.have);
err_out:
	if (err)
		fprintf(stderr, "server: %s\n", skein_strerror(err));
	return err ? 1 : 0;
}
