/* SPDX-License-Identifier: MIT */
/*
 * mem_handle.h - struct skein_mem: a region of the application.
 *
 * Thread rule: name, access and the sequence numbers are under the context's
 * lock; waiting is atomic; the rest is constant.
 */
#ifndef SKEIN_CONN_MEM_MEM_HANDLE_H
#define SKEIN_CONN_MEM_MEM_HANDLE_H

#include "conn/peer/ctlframe.h"
#include "conn/ctx.h"

#include <skein/mem.h>

struct skein_mem {
	struct skein_ctx *ctx;
	struct list_node ctx_link;
	struct mem_region *region;
	/* A second registration of the same bytes, with the rights that
	 * skein_mem_share() gave. Memory that is not shared has no rkey. */
	struct ibv_mr *shared;
	/* A third, for a module through which peers write; NULL: none. */
	struct ibv_mr *inner;
	char name[CTLFRAME_NAME_MAX + 1];
	unsigned access;
	uint64_t share_seq;    /* 0: not shared */
	uint64_t withdraw_seq; /* 0: not withdrawn */
	atomic_uint waiting; /* peers that have not acknowledged withdraw_seq */
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
	/* After the deadline the thread and the engine's owner both leave it,
	 * and the second frees it. Set: one has left. */
	atomic_bool left;
};

/* Size of the first version of struct skein_remote. */
#define MEM_REMOTE_MIN \
	(offsetof(struct skein_remote, access) + sizeof(uint32_t))

/* Keys of a registration that peers may write. Only the module that asks tells
 * peers of it. Called by the engine's owner, of one and the same engine. */
int mem_keys(struct skein_mem *mem, uint32_t *lkey, uint32_t *rkey);

/* The peer has announced regions: ends the searches that find theirs. */
void mem_finds_look(struct skein_conn *conn);
/* The connection is down: ends all searches with -ENOTCONN. */
void mem_finds_end(struct skein_conn *conn);

#endif
