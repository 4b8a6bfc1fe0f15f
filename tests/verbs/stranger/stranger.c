/* SPDX-License-Identifier: MIT */
/*
 * stranger.c - a libibverbs of no release, with one device, fake0. Its functions
 * would crash with an object of another provider; these end the program.
 */
#include "newer.h"

#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>

static struct ibv_device fake = {.name = "fake0"};
static struct ibv_context context = {.device = &fake};
static struct ibv_pd pd = {.context = &context};
static struct ibv_qp qp = {.context = &context};

static void mine(const struct ibv_context *ctx, const char *name)
{
	if (ctx == &context)
		return;
	fprintf(stderr, "%s: with an object of another device\n", name);
	abort();
}

struct ibv_device **ibv_get_device_list(int *num)
{
	struct ibv_device **list = calloc(2, sizeof(*list));

	list[0] = &fake;
	if (num)
		*num = 1;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	return device == &fake ? &context : NULL;
}

int ibv_close_device(struct ibv_context *ctx)
{
	mine(ctx, __func__);
	return 0;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *ctx)
{
	mine(ctx, __func__);
	return &pd;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *ctx, int cqe, void *cq_context,
			     struct ibv_comp_channel *channel, int vector)
{
	mine(ctx, __func__);
	return NULL;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *of, struct ibv_qp_init_attr *attr)
{
	mine(of->context, __func__);
	return &qp;
}

#define BODY(fn, ctx)                                                \
	uintptr_t newer_##fn(void *object, uintptr_t b, uintptr_t c, \
			     uintptr_t d, uintptr_t e, uintptr_t f)  \
	{                                                            \
		mine(ctx, #fn);                                      \
		return b + 10 * c + 100 * d + 1000 * e + 10000 * f;  \
	}
#define OF_CONTEXT(fn) BODY(fn, object)
#define OF_OTHER(fn) BODY(fn, *(struct ibv_context **)object)

NEWER_OF_CONTEXT(OF_CONTEXT)
NEWER_OF_PD(OF_OTHER)
NEWER_OF_QP(OF_OTHER)

int private_gid_type(void *ctx, uint8_t port, unsigned index, int *type)
{
	mine(ctx, "ibv_query_gid_type");
	*type = 42;
	return 0;
}
