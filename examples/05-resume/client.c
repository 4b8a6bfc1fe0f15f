/* SPDX-License-Identifier: MIT */
/*
 * 05-resume, client: sends a file to receivers. When one dies it asks which are
 * there, and opens another group with them, in which they finish it: what is
 * there is not sent again.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <skein/skein.h>
#include "join.h"

#define TIMEOUT SKEIN_S(5)

struct sender {
	struct skein_ctx *ctx;
	int fd;
	uint64_t size;
	char **addrs;
	int n_addrs;
	unsigned failed; /* rank: 0 is the sender itself */
};

/* Each that answers is in the list; all of them get it. */
static int invite(struct sender *s, struct join *join)
{
	const struct skein_conn_attr attr = {.size = sizeof(attr),
					     .timeout_ns = TIMEOUT};
	struct skein_conn *conns[MEMBERS_MAX] = {0};
	int err = 0;

	join->count = 1;
	snprintf(join->member[0], ADDR_LEN, "sender");
	for (int i = 0; i < s->n_addrs; i++)
		if (skein_conn_open(s->ctx, s->addrs[i], &attr,
				    &conns[join->count]) == 0)
			snprintf(join->member[join->count++], ADDR_LEN, "%s",
				 s->addrs[i]);
	for (join->rank = 1; join->rank < join->count; join->rank++) {
		if (!err)
			err = skein_rpc_call(conns[join->rank], JOIN, join,
					     sizeof(*join), NULL, 0, TIMEOUT,
					     NULL);
		skein_conn_close(conns[join->rank], SKEIN_S(1));
	}
	return err || join->count > 1 ? err : -ENOTCONN;
}

/* The file can be read as often as it takes. */
static int on_fill(void *arg, struct skein_mcast *group,
		   const struct skein_mcast_msg *msg,
		   const struct skein_mcast_block *b)
{
	struct sender *s = arg;

	return pread(s->fd, b->data, b->len, (off_t)b->off) == b->len ? 0
								      : -EIO;
}

/* The sender receives nothing: it has all. */
static int on_block(void *arg, struct skein_mcast *group,
		    const struct skein_mcast_msg *msg,
		    const struct skein_mcast_block *b)
{
	return -EINVAL;
}

static void on_done(void *arg, struct skein_mcast *group,
		    const struct skein_mcast_msg *msg, int status)
{
	if (!status)
		printf("sent: digest %016" PRIx64 "\n", msg->digest);
}

static void on_failed(void *arg, struct skein_mcast *group,
		      const struct skein_mcast_failure *why)
{
	((struct sender *)arg)->failed = why->rank;
	printf("failed: %s\n", why->member);
}

static int one_group(struct sender *s, const struct join *join)
{
	const char *members[MEMBERS_MAX];
	struct skein_mcast_attr attr = {.size = sizeof(attr),
					.number = join->number,
					.members = members,
					.count = join->count,
					.block_size = BLOCK,
					.ops = {.block = on_block,
						.fill = on_fill,
						.done = on_done,
						.failed = on_failed},
					.arg = s};
	struct skein_mcast_part part = {.size = sizeof(part),
					.store = SKEIN_MCAST_REREAD,
					.len = s->size,
					.whole = true};
	struct skein_mcast *group;
	int err;

	s->failed = 0;
	for (unsigned i = 0; i < join->count; i++)
		members[i] = join->member[i];
	if (join->resumes) {
		err = skein_mcast_resume(s->ctx, &attr, &part, &group);
		if (err)
			return err;
	} else {
		err = skein_mcast_open_async(s->ctx, &attr, &group);
		if (err)
			return err;
		err = skein_mcast_send_stream(group, s->size, NULL);
		if (err) {
			skein_mcast_close(group, 0);
			return err;
		}
	}
	/* 0 is the proof that everybody has everything. */
	return skein_mcast_close(group, SKEIN_FOREVER);
}

static int run(struct sender *s)
{
	struct join join = {0};
	int err;

	for (;;) {
		err = invite(s, &join);
		if (err)
			return err;
		err = one_group(s, &join);
		if (!err)
			break;
		if (!s->failed)
			return err;
		join.number++;
		join.resumes = 1;
	}
	printf("%" PRIu64 " bytes at %u receivers\n", s->size, join.count - 1);
	return 0;
}

int main(int argc, char **argv)
{
	struct sender s = {.addrs = argv + 2, .n_addrs = argc - 2};
	struct stat st;
	int err = 0;

	if (argc < 3 || argc - 2 >= MEMBERS_MAX) {
		fprintf(stderr, "usage: %s FILE ADDRESS...\n", argv[0]);
		return 2;
	}
	s.fd = open(argv[1], O_RDONLY);
	if (s.fd < 0 || fstat(s.fd, &st))
		err = -errno;
	else
		s.size = (uint64_t)st.st_size;
	if (!err)
		err = skein_ctx_open(NULL, &s.ctx);
	if (!err) {
		err = run(&s);
		skein_ctx_close(s.ctx);
	}
	if (err)
		fprintf(stderr, "client: %s\n", skein_strerror(err));
	return err ? 1 : 0;
}
