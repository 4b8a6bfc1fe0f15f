/* SPDX-License-Identifier: MIT */
/*
 * mem_handle.h - struct skein_mem: a region of the application's.
 *
 * Thread rule: name, access, sequences: the context's lock; the rest is
 * constant, waiting is atomic.
 */
#ifndef SKEIN_CONN_MEM_HANDLE_H
#define SKEIN_CONN_MEM_HANDLE_H

#include "conn/ctlframe.h"
#include "conn/ctx.h"

#include <skein/mem.h>

struct skein_mem {
	struct skein_ctx *ctx;
	struct list_node ctx_link;
	struct mem_region *region;
	/* A second registration of the same bytes, with the rights that were
	 * given: no rkey exists for memory that is not shared. */
	struct ibv_mr *shared;
	/* A third, for a module that peers write through; NULL: none. */
	struct ibv_mr *inner;
	char name[CTLFRAME_NAME_MAX + 1];
	unsigned access;
	uint64_t share_seq;    /* 0: not shared */
	uint64_t withdraw_seq; /* 0: not withdrawn */
	atomic_uint waiting;   /* peers that have not acknowledged that */
};

/* A thread that waits in skein_mem_find(). On conn->finds while it waits. */
struct mem_find {
	struct engine_call call, cancel;
	struct list_node link;
	struct skein_conn *conn;
	struct skein_env *env;
	char name[CTLFRAME_NAME_MAX + 1];
	int rc;
	struct skein_remote remote;
	atomic_bool done;
	/* of the two that have to do with it: its thread, and the owner that
	 * was told to forget it; the second frees it */
	atomic_bool left;
};

/* What the first version of struct skein_remote has. */
#define MEM_REMOTE_MIN \
	(offsetof(struct skein_remote, access) + sizeof(uint32_t))

/* Keys of a registration that peers may write, of which no peer is told but by
 * the module that asks. The engine's owner; all of them the same engine's. */
int mem_keys(struct skein_mem *mem, uint32_t *lkey, uint32_t *rkey);

/* New regions of the peer's: those that wait for one may go on. */
void mem_finds_look(struct skein_conn *conn);
/* The connection is down: -ENOTCONN for all. */
void mem_finds_end(struct skein_conn *conn);

#endif
