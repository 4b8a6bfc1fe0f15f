/* SPDX-License-Identifier: MIT */
/*
 * pool.h - the embedded front: a pool of this process on a context's device.
 *
 * It owns the device's objects (DCIs, one DCT with its SRQ, completion queues,
 * memory), is the engine's port, and publishes this node's record.
 *
 * Thread rule: all of it is under pool->lock, except what the completion
 * callbacks of publish.c count.
 */
#ifndef SKEIN_VQP_POOL_H
#define SKEIN_VQP_POOL_H

#include "conn/ctx.h"
#include "dev/mem.h"
#include "vqp/engine.h"
#include "vqp/front.h"

#include <skein/mem.h>
#include <skein/vqp.h>

#define POOL_RECVS 256u
#define POOL_SQ 128u
#define META_NAME "skein-meta"
#define META_DEFAULT "127.0.0.1:7010"
#define META_RENEW_NS 1000000000ull
#define META_GONE_NS 3000000000ull

struct pool_mem {
	struct skein_vqp_mem base;
	struct list_node link; /* pool.mems */
	struct mem_region *region;
	bool write;	   /* may requests of this node write to it */
	uint64_t keep_ns;  /* given up by its owner: registered until then */
	uint64_t *counted; /* falls by its bytes when it is freed; or NULL */
};

enum publish_step {
	PUBLISH_REST,
	PUBLISH_HEAD, /* of the table of a new server */
	PUBLISH_READS,
	PUBLISH_WRITES,
	PUBLISH_LOST, /* the server: its connection, or its table */
};

/* publish.c: the state of one meta server */
struct publish {
	struct pool *pool;
	unsigned server; /* the engine's number of the server */
	char *addr;
	struct skein_conn *conn; /* NULL: it could not be opened */
	struct skein_mem *mem;	 /* two records as read, one as written */
	struct skein_remote table;
	struct meta_head head;
	uint32_t beat;
	enum publish_step step;
	uint64_t due_ns;
	uint64_t count;
	/* of the step; written by any thread */
	atomic_uint pending;
	atomic_bool failed;
};

struct pool {
	struct skein_pool base;
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
	struct pool_mem *last; /* found by the last check */
	/* records of mems (region.h), which peers READ. A memory is in mems; or
	 * in leased, oldest first, when it was given up and a peer may not know
	 * that yet */
	struct mem_region *table;
	struct {
		uint16_t gen;
		bool used;
	} place[REGION_PLACES];
	struct list_node leased;
	struct list_node vqps; /* struct pool_vqp */
	struct meta_node own;  /* this node's record */
	struct publish publish[VQP_METAS];
	unsigned n_publish;
	bool engine_up;
	/* of the completion queues, where the owner sleeps; NULL: no thread
	 * sleeps there */
	struct ibv_comp_channel *channel;
};

struct pool_vqp {
	struct skein_vqp base;
	struct list_node link; /* pool.vqps */
	struct vqp *v;
};

static inline struct pool *pool_of(struct skein_pool *p)
{
	return container_of(p, struct pool, base);
}

/*
 * For a front that has the pool to itself (node/): only its thread calls these,
 * without the lock.
 */
/* channel: for the completion queues; it stays the caller's. */
int pool_make(struct skein_ctx *ctx, const struct skein_pool_attr *a,
	      struct ibv_comp_channel *channel, struct pool **pool);
void pool_free(struct pool *p);
/* Returns what moved. */
int pool_round(struct pool *p);
/* domain: only its vqps reach the memory; 0: all do. */
int pool_mem_make(struct pool *p, size_t len, unsigned access, uint16_t domain,
		  struct pool_mem **mem);
/* The same for a sealed file of an earlier pool, in which the region had the id
 * `was` (0: none): it gets that place in the table, if free. The file belongs
 * to the pool once this returns 0. */
int pool_mem_adopt(struct pool *p, int fd, size_t len, unsigned access,
		   uint16_t domain, uint32_t was, struct pool_mem **mem);
/* Requests with it may be under way, here and at peers: the memory stays
 * registered until none can be. */
void pool_mem_retire(struct pool_mem *m);

/* Connects to the meta servers ("ADDR,ADDR" or one) and writes this node's
 * record there. any: a free number may be drawn. One server is enough.
 * Blocks. */
int publish_open(struct pool *p, const char *addrs, bool any,
		 uint64_t timeout_ns);
void publish_close(struct pool *p);
/* Renews the record each second, and connects again to a server that was
 * gone. */
void publish_round(struct pool *p, uint64_t now_ns);

#endif
