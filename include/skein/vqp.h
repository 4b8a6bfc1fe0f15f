/* SPDX-License-Identifier: MIT */
/*
 * vqp.h - virtual queue pairs: connections in microseconds (KRCore).
 *
 * A pool owns a few dynamically connected (DC) queue pairs, made once. A virtual
 * queue pair (vqp) is a connection that uses them: making one creates nothing on
 * the device and asks nothing of the far process. All that has to be known of a
 * node is 64 bytes, which a meta server keeps and READs fetch.
 *
 * A vqp promises what an RC queue pair promises: requests are carried out and
 * complete in the order of posting, messages arrive in the order of sending,
 * once. Work requests and completions are libibverbs' own structs; a vqp is no
 * ibv_qp, so they go through the calls below.
 *
 * The device must have DC (soft has; mlx5, untried). Needs <infiniband/verbs.h>
 * where work requests are used.
 *
 * Thread rule: any thread; a pool has one lock. Nothing moves by itself: every
 * call on a pool does a round for all of its vqps, skein_pool_progress() does
 * nothing else. In a forked child every call is -SKEIN_EFORKED.
 */
#ifndef SKEIN_VQP_H
#define SKEIN_VQP_H

#include <skein/ctx.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ibv_send_wr;
struct ibv_recv_wr;
struct ibv_wc;
struct skein_pool;
struct skein_vqp;
struct skein_vqp_mem;
struct skein_meta;

/* Bytes of a message at most. */
#define SKEIN_VQP_MSG_MAX 3968u

/* All zero but size is a good default. */
struct skein_pool_attr {
	size_t size;
	/* where the meta server listens, "HOST:PORT", or two of them, with a
	 * comma between; NULL: the environment's SKEIN_META, else
	 * 127.0.0.1:7010. Each of two has all records; the first is asked first,
	 * and one is enough. */
	const char *meta;
	/* This node's number beside its address: several nodes share a host.
	 * 0: a free one is drawn. */
	uint16_t node_port;
	/* DC queue pairs; default 8, at most 32 */
	unsigned dcis;
	/* How long a DC queue pair asks a target that does not answer, about;
	 * default 20 ms, at most 400 ms. */
	uint64_t retry_ns;
	/* for the meta server at open; default 5 s */
	uint64_t timeout_ns;
	/* the socket of a node service (skein node): its pool is used, and the
	 * context may be NULL; only timeout_ns counts beside it. NULL: the
	 * environment's SKEIN_NODE, else a pool of this process's own */
	const char *node;
	/* The second meta server is asked as well if the first has not answered
	 * for so long; default 50 us. */
	uint64_t meta_wait_ns;
};

/* What a pool has counted. */
struct skein_pool_stats {
	size_t size; /* sizeof(struct skein_pool_stats), set by the caller */
	uint64_t lookups;	/* READs of the meta server's records */
	uint64_t lookups_torn;	/* records that had to be read again */
	uint64_t cache_hits;	/* connects that needed none */
	uint64_t posts;		/* doorbells */
	uint64_t requests;	/* work requests on the device */
	uint64_t dcis_replaced; /* DC queue pairs that failed */
	uint64_t reposted;     /* requests of others, posted again after that */
	uint64_t garbage;      /* messages and records that made no sense */
	uint64_t dropped;      /* messages for nobody */
	uint64_t publishes;    /* of our own record */
	uint64_t region_reads; /* READs of peers' records of memory */
};

/*
 * Opens a pool on the context's device and tells the meta server of this node.
 * attr may be NULL. Blocks for milliseconds. -EOPNOTSUPP: the device has no DC.
 * -ETIMEDOUT, -ECONNREFUSED: no meta server; -EADDRINUSE: another living node
 * has this number. Close it before the context.
 */
SKEIN_API int skein_pool_open(struct skein_ctx *ctx,
			      const struct skein_pool_attr *attr,
			      struct skein_pool **pool);
/* Its vqps and memory go with it. */
SKEIN_API void skein_pool_close(struct skein_pool *pool);
/* "10.0.0.7:40112": what others connect to. Valid as long as the pool. */
SKEIN_API const char *skein_pool_addr(struct skein_pool *pool);
/* One round. Returns how many things moved. Never blocks. */
SKEIN_API int skein_pool_progress(struct skein_pool *pool);
SKEIN_API void skein_pool_get_stats(struct skein_pool *pool,
				    struct skein_pool_stats *stats);

/*
 * Memory for requests: len bytes, zeroed. Peers reach it if access has a remote
 * right (enum ibv_access_flags); then -ENOSPC: the pool has 1023 such regions.
 */
SKEIN_API int skein_vqp_mem_new(struct skein_pool *pool, size_t len,
				unsigned access, struct skein_vqp_mem **mem);
/* No request of this pool with it is under way any more. What peers reach stays
 * registered for another second in the background, until the last of them has
 * learnt that it is gone. */
SKEIN_API void skein_vqp_mem_free(struct skein_vqp_mem *mem);
SKEIN_API void *skein_vqp_mem_addr(struct skein_vqp_mem *mem);
SKEIN_API uint32_t skein_vqp_lkey(struct skein_vqp_mem *mem);
/* What peers name it by in wr.rdma.rkey and wr.atomic.rkey: its id, which the
 * posting pool looks up. 0: access has no remote right. */
SKEIN_API uint32_t skein_vqp_rkey(struct skein_vqp_mem *mem);
/* And its address, in remote_addr: that of skein_vqp_mem_addr(), or, through a
 * node service, the service's. */
SKEIN_API uint64_t skein_vqp_raddr(struct skein_vqp_mem *mem);

/* -ENOMEM. Creates nothing on the device. */
SKEIN_API int skein_vqp_new(struct skein_pool *pool, struct skein_vqp **vqp);
/* What is under way goes on, and is reported to nobody. */
SKEIN_API void skein_vqp_free(struct skein_vqp *vqp);

/*
 * Connects to the port of a node ("HOST:NODEPORT"). A node that this pool has
 * met costs nothing; another one is looked up at the meta server. Whether
 * somebody has bound the port only a message shows. -EHOSTUNREACH: no such
 * node within timeout_ns; -ENETUNREACH: nor a meta server at its end; -EISCONN,
 * -EINVAL.
 */
SKEIN_API int skein_vqp_connect(struct skein_vqp *vqp, const char *addr,
				uint16_t port, uint64_t timeout_ns);
/* Takes messages for the port from anybody. -EADDRINUSE. */
SKEIN_API int skein_vqp_bind(struct skein_vqp *vqp, uint16_t port);

/* A message of a bound vqp. */
struct skein_vqp_msg {
	struct skein_vqp *from; /* connected to the sender; ours to free */
	uint64_t wr_id;		/* of the receive that it is in */
	uint32_t len;
	uint32_t imm;
	uint32_t with_imm; /* 1: imm is there */
	int status;	   /* 0, or -EMSGSIZE: the receive was too short */
};

/* Up to n messages, each in the oldest receive posted. from is the same vqp for
 * all messages of one sender, made with the first; nothing is asked of the
 * network. Returns how many, or a negative errno. */
SKEIN_API int skein_vqp_pop(struct skein_vqp *vqp, unsigned n,
			    struct skein_vqp_msg *msgs);

/*
 * Posts a list: WRITE, READ, SEND (with immediate), compare-and-swap,
 * fetch-and-add; inline, unsignalled, fenced as one likes. -EINVAL: *bad_wr has
 * an opcode, flags, list of pieces or length that are none; -ENOMEM: no room
 * in the vqp's queue of 128, or of completions not polled. In both cases the
 * requests before *bad_wr are carried out, nothing from it on. -ENOTCONN.
 *
 * Memory, range or right that is not there completes with LOC_PROT_ERR or
 * REM_ACCESS_ERR in its turn, made by the pool; this vqp is then in error and all
 * behind it is flushed. Others are not touched. The first request to a region of
 * a peer costs a READ of 64 bytes, and so does one each half second. WRITE with
 * immediate is not there.
 */
SKEIN_API int skein_vqp_post_send(struct skein_vqp *vqp, struct ibv_send_wr *wr,
				  struct ibv_send_wr **bad_wr);
SKEIN_API int skein_vqp_post_recv(struct skein_vqp *vqp, struct ibv_recv_wr *wr,
				  struct ibv_recv_wr **bad_wr);
/* Up to n completions: of requests, and on a connected vqp of receives. Returns
 * how many, or a negative errno. */
SKEIN_API int skein_vqp_poll(struct skein_vqp *vqp, int n, struct ibv_wc *wc);

/*
 * A node service: a pool that other processes of this host use by the calls
 * above, with skein_pool_attr.node. A client asks nothing of the device: opening
 * is one message on a socket. Differences for a client: its requests carry
 * memory of skein_vqp_mem_new() alone (-EFAULT, and a line in the log); a vqp
 * has 120 requests at most; messages to a bound vqp go into its receives before
 * it pops them; skein_pool_get_stats() is all zero.
 *
 * When the service is gone, each call is -SKEIN_EDEAD at once: what was
 * outstanding may have been carried out. Memory stays; vqps are to be freed.
 * skein_vqp_new(), skein_vqp_mem_new() and skein_pool_progress() attach again once
 * a service is back at that path: -SKEIN_EDEAD until then. Memory has the same
 * lkey then, but another skein_vqp_rkey() and skein_vqp_raddr(), and
 * skein_pool_addr() may have changed. Of a service that is stopped, calls are
 * -ETIMEDOUT: connect a second after timeout_ns, others after 5 s; the vqp of
 * such a call is to be freed.
 *
 * Thread rule: one thread opens, runs and closes a service.
 */
struct skein_node;

struct skein_node_attr {
	size_t size;
	/* as in skein_pool_attr */
	const char *meta;
	uint16_t node_port;
	uint32_t clients_max; /* default 256; one more is -SKEIN_EBUSY */
	uint64_t mem_max;     /* bytes of a client's memory, default 64 MiB */
	uint64_t timeout_ns;
	/* Of a client, -EDQUOT: requests outstanding (default 256), vqps (1024,
	 * and at most), ports (64). All clients of a user have user_times (4) of
	 * each, and of memory. The first refusal is logged. */
	uint32_t requests_max, vqps_max, ports_max, user_times;
	uint64_t meta_wait_ns; /* as in skein_pool_attr */
};

struct skein_node_stats {
	size_t size; /* sizeof(struct skein_node_stats), set by the caller */
	uint64_t clients;  /* attached now */
	uint64_t attached; /* ever */
	uint64_t refused;  /* of another user */
	uint64_t detached; /* for what they may not say */
	uint64_t requests;
	uint64_t sleeps; /* of the poller */
	uint64_t wakes;	 /* of clients that slept */
};

/* Listens at path, a Unix socket of mode 0600: processes of this user, and
 * root's. A file that a dead service left is replaced; -EADDRINUSE: a service is
 * there. Else as skein_pool_open(). One thread opens, runs and closes it. Until
 * then no robust mutex that this thread holds is marked when the thread ends. */
SKEIN_API int skein_node_open(struct skein_ctx *ctx, const char *path,
			      const struct skein_node_attr *attr,
			      struct skein_node **node);
/* Listens at one more socket (skein_node_open() with path NULL has none). Regions
 * and ports of a client are of a domain: the one named here, or (domain NULL, and at
 * the first path) that of its user, mount and network namespace. A vqp reaches only
 * regions of the domain that has bound the port which the vqp is connected to, or
 * that the sender of the message is of which made the vqp: REM_ACCESS_ERR. */
SKEIN_API int skein_node_listen(struct skein_node *node, const char *path,
				const char *domain);
/* Serves until stop (may be NULL) is set: 0; or -ETIMEDOUT. */
SKEIN_API int skein_node_run(struct skein_node *node, uint64_t timeout_ns,
			     struct skein_stop *stop);
SKEIN_API void skein_node_close(struct skein_node *node);
/* "10.0.0.7:40112": what others connect to, for all clients. */
SKEIN_API const char *skein_node_addr(struct skein_node *node);
SKEIN_API void skein_node_get_stats(struct skein_node *node,
				    struct skein_node_stats *stats);

/*
 * The meta server's table in this process: room for at least nodes records,
 * default 4096. It is read and written by the nodes alone; the server's CPU
 * only clears records that nobody renews, in the context's progress through
 * skein_meta_progress(), which has to be called each second.
 */
SKEIN_API int skein_meta_open(struct skein_ctx *ctx, const char *addr,
			      unsigned nodes, struct skein_meta **meta);
SKEIN_API void skein_meta_close(struct skein_meta *meta);
/* Where it listens, the real port. */
SKEIN_API const char *skein_meta_addr(struct skein_meta *meta);
/* Clears what was not renewed for 3 s; counts what makes no sense. Returns how
 * many nodes are there. */
SKEIN_API int skein_meta_progress(struct skein_meta *meta, uint64_t *garbage);

#ifdef __cplusplus
}
#endif
#endif
