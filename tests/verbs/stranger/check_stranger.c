/* SPDX-License-Identifier: MIT */
/*
 * check_stranger.c - runs under `skein run --verbs` with the libibverbs of
 * stranger.c. Functions that our device does not have answer EOPNOTSUPP for its
 * objects, and reach libibverbs, with all arguments, for others.
 */
#include "newer.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static int failed;

static void check(bool so, const char *what)
{
	if (so)
		return;
	fprintf(stderr, "not so: %s\n", what);
	failed = 1;
}

/* Pointers are NULL, numbers the errno. */
static bool refused(uintptr_t got)
{
	return (got == 0 || (int)got == EOPNOTSUPP) && errno == EOPNOTSUPP;
}

#define OURS(fn)   \
	errno = 0; \
	check(refused(newer_##fn(object, 0, 0, 0, 0, 0)), #fn);
#define THEIRS(fn) \
	check(newer_##fn(object, 1, 2, 3, 4, 5) == 54321, #fn " of fake0");

static struct ibv_qp *qp_of(struct ibv_context *ctx, struct ibv_pd *pd)
{
	struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC,
					.cap = {1, 1, 1, 1, 0}};

	attr.send_cq = attr.recv_cq = ibv_create_cq(ctx, 4, NULL, NULL, 0);
	return ibv_create_qp(pd, &attr);
}

static void ours(struct ibv_context *ctx)
{
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	void *object = ctx;
	int type = -1;

	check(pd, "a pd of skein0");
	NEWER_OF_CONTEXT(OURS)
	object = pd;
	NEWER_OF_PD(OURS)
	object = qp_of(ctx, pd);
	check(object, "a qp of skein0");
	NEWER_OF_QP(OURS)
	check(!private_gid_type(ctx, 1, 0, &type) && type == 1,
	      "ibv_query_gid_type: RoCE v2");
}

static void theirs(struct ibv_context *ctx)
{
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	void *object = ctx;
	int type = -1;

	NEWER_OF_CONTEXT(THEIRS)
	object = pd;
	NEWER_OF_PD(THEIRS)
	object = qp_of(ctx, pd);
	NEWER_OF_QP(THEIRS)
	check(!private_gid_type(ctx, 1, 0, &type) && type == 42,
	      "ibv_query_gid_type of fake0");
}

int main(void)
{
	struct ibv_device **list;
	int n = 0;

	list = ibv_get_device_list(&n);
	if (!list || n != 2 || strcmp(ibv_get_device_name(list[0]), "skein0") ||
	    strcmp(ibv_get_device_name(list[1]), "fake0")) {
		fprintf(stderr, "%d devices\n", n);
		return 1;
	}
	ours(ibv_open_device(list[0]));
	theirs(ibv_open_device(list[1]));
	ibv_free_device_list(list);
	if (!failed)
		puts("all as it should be");
	return failed;
}
