/* SPDX-License-Identifier: MIT */
/*
 * pool.h - the embedded front: a pool of this process on a context's device.
 *
 * It owns the device's objects (DCIs, one DCT with its SRQ, completion queues,
 * memory), is the engine's port, and publishes this node's record. All of it is
 * under pool->lock, but what the completion callbacks of publish.c count.
 */
#ifndef SKEIN_VQP_POOL_H
#define SKEIN_VQP_POOL_H

#include "conn/ctx.h"
#include "dev/mem.h"
#include "vqp/engine.h"

#include <skein/mem.h>
#include <skein/vqp.h>

#define POOL_RECVS 256u
#define POOL_SQ 128u
#define META_NAME "skein-meta"
#define META_DEFAULT "127.0.0.1:7010"
#define META_RENEW_NS 1000000000ull
#define META_GONE_NS 3000000000ull

struct skein_vqp_mem {
	struct list_node link; /* skein_pool.mems */
	struct skein_pool *pool;
	struct mem_region *region;
	bool write;	  /* may requests of ours write to it */
	uint32_t id;	  /* of its record; 0: peers do not reach it */
	uint64_t keep_ns; /* given up: registered until then */
};

enum publish_step {
	PUBLISH_REST,
	PUBLISH_HEAD, /* of the table of a server that was just met */
	PUBLISH_READS,
	PUBLISH_WRITES,
	PUBLISH_LOST, /* the meta server: its connection, or its table */
};

/* publish.c */
struct publish {
	char *addr; /* of the meta server */
	struct skein_conn *conn;
	struct skein_mem *mem; /* two records as read, one as written */
	struct skein_remote table;
	struct meta_head head;
	struct meta_node own;
	enum publish_step step;
	uint64_t due_ns;
	uint64_t count;
	/* of the step: by any thread */
	atomic_uint pending;
	atomic_bool failed;
};

struct skein_pool {
	struct skein_ctx *ctx;
	struct skein_env *env;
	struct dev *dev;
	struct env_mutex lock;
	struct vqp_engine e;
	struct dev_qp_opts opts;
	struct ibv_cq *scq, *rcq;
	struct ibv_srq *srq;
	struct ibv_qp *dct;
	struct ibv_qp *dci[VQP_DCIS_MAX];
	unsigned n_dcis;
	struct mem_region *cells, *bufs;
	struct list_node mems;
	struct skein_vqp_mem *last; /* that a check found */
	/* records of mems (region.h), which peers read; in mems, or in leased
	 * when it was given up and a peer may not know yet, oldest first */
	struct mem_region *table;
	struct {
		uint16_t gen;
		bool used;
	} place[REGION_PLACES];
	struct list_node leased;
	struct list_node vqps; /* struct skein_vqp */
	struct publish publish;
	bool engine_up;
	char addr[72];
};

struct skein_vqp {
	struct list_node link; /* skein_pool.vqps */
	struct skein_pool *pool;
	struct vqp *v;
};

/* Meets the meta server and writes this node's record there; any == a free
 * number may be drawn. Blocks. */
int publish_open(struct skein_pool *p, const char *addr, bool any,
		 uint64_t timeout_ns);
void publish_close(struct skein_pool *p);
/* Renews it each second, and meets a server anew that was gone. */
void publish_round(struct skein_pool *p, uint64_t now_ns);

#endif
