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
#include "vqp/pool_fd.h"

#include <skein/mem.h>
#include <skein/vqp.h>

#define POOL_RECVS 256u
#define POOL_SQ 128u
#define POOL_UD 64u	 /* datagrams that wait, either way */
#define POOL_UD_BUF 256u /* GRH and RC_MSG */
#define POOL_RCS_DEFAULT 32u
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
	uint32_t *held;	   /* falls by one then; or NULL */
};

enum publish_step {
	PUBLISH_REST,
	PUBLISH_HEAD, /* of the table of a new server */
	PUBLISH_READS,
	PUBLISH_WRITES,
	PUBLISH_LOST, /* the server: its connection, or its table */
};

#define PUBLISH_LOOKS 16u

/* A look-up that READs two records through the connection. */
struct publish_lookup {
	uint64_t token; /* the engine's; 0: free */
	/* written by any thread */
	atomic_uint pending;
	atomic_bool failed;
};

/* publish.c: the state of one meta server */
struct publish {
	struct pool *pool;
	unsigned server; /* the engine's number of the server */
	char *addr;
	struct skein_conn *conn; /* NULL: it could not be opened */
	/* two records as read, one as written, two for each look-up */
	struct skein_mem *mem;
	struct publish_lookup looks[PUBLISH_LOOKS];
	unsigned n_looks; /* not free */
	struct skein_remote table;
	struct meta_head head;
	struct meta_owner other;
	uint32_t beat;
	enum publish_step step;
	uint64_t due_ns;
	uint64_t count;
	/* written by any thread: of the step; the connection was lost */
	atomic_uint pending;
	atomic_bool failed, away;
};

struct pool {
	struct skein_pool base;
	struct skein_ctx *ctx;
	/* It runs the connections to meta servers, and makes the rounds of this
	 * pool. NULL: rounds run the context's engine. */
	struct skein_engine *eng;
	struct skein_env *env;
	struct dev *dev;
	struct env_mutex lock;
	struct vqp_engine e;
	struct dev_qp_opts opts;
	bool retry_given; /* opts.timeout is the caller's */
	bool raw;	  /* its vqps are: no request has a lease */
	struct ibv_cq *scq, *rcq, *ucq;
	struct ibv_srq *srq;
	struct ibv_qp *dct; /* NULL: the device has no DC */
	struct ibv_qp *ud;  /* engines' datagrams */
	struct ibv_qp *dci[VQP_DCIS_MAX];
	struct ibv_qp *asker; /* a DCI for questions (life.c); or NULL */
	struct ibv_qp *rc[2 * VQP_RCS_MAX]; /* as the engine numbers them */
	uint32_t rc_psn[2 * VQP_RCS_MAX];
	unsigned n_dcis, n_rcs;
	bool receiving; /* in recv_round() */
	struct mem_region *cells, *words, *bufs, *ud_bufs;
	uint32_t ud_sent, ud_done, ud_recvs; /* ud_recvs: posted */
	/* Of the datagrams under way; and those of them that peers have given
	 * up, each once. */
	struct ibv_ah *ud_ah[POOL_UD], *late_ah[POOL_UD];
	unsigned n_late_ah;
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
	/* of the completion queues, where the owner sleeps */
	struct ibv_comp_channel *channel;
	/* the embedded front's */
	bool owns_channel, moved;
	uint64_t seen; /* of engine.events */
	struct pool_fd fd;
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

/* "10.0.0.7:40112" */
void pool_addr_print(const uint8_t gid[16], uint32_t port, char *buf,
		     size_t len);

/*
 * For a front that has the pool to itself (node/): only its thread calls these,
 * without the lock.
 */
/* channel: for the completion queues; it stays the caller's. eng: pool.eng. */
int pool_make(struct skein_ctx *ctx, const struct skein_pool_attr *a,
	      struct ibv_comp_channel *channel, struct skein_engine *eng,
	      struct pool **pool);
void pool_free(struct pool *p);
/* Returns what moved. */
int pool_round(struct pool *p);
/* Asks for an event of the channel with the next completion; rounds follow until
 * nothing moves. */
int pool_notify(struct pool *p);
/* When the pool needs a round that no event announces: records to renew,
 * retries, ends of leases. */
uint64_t pool_due(const struct pool *p, uint64_t now_ns);
/* Takes the events of a channel. */
void channel_drain(struct dev *dev, struct ibv_comp_channel *ch);
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
/* As vqp_port.meta_read. */
int publish_look(struct pool *p, unsigned server, const uint32_t place[2],
		 uint64_t token);
/* Renews the record each second, connects again to a server that was gone, and
 * takes what look-ups have READ. */
void publish_round(struct pool *p, uint64_t now_ns);
/* Logs why a look-up has failed with err. */
void publish_say(struct pool *p, const uint8_t gid[16], uint32_t port, int err);

#endif
