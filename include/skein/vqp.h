/* SPDX-License-Identifier: MIT */
/*
 * vqp.h - virtual queue pairs: connections in microseconds (KRCore).
 *
 * A pool owns a few dynamically connected (DC) queue pairs, made once, and
 * makes reliable connected (RC) ones to busy nodes. A virtual queue pair (vqp)
 * is a connection that uses them: a new vqp creates nothing on the device and
 * needs no work of the other process. A node's record
 * has 64 bytes: a meta server keeps it, and pools fetch it by READ.
 *
 * A vqp promises what an RC queue pair promises: requests are carried out and
 * complete in the order of posting; messages arrive in the order of sending,
 * once. Work requests and completions are libibverbs' own structs, and a vqp is
 * also an ibv_qp: skein_vqp_ibv_qp().
 *
 * DC is soft's, and mlx5's (untried). On a device without it each node that is
 * talked to costs an RC queue pair, which both ends make with the first request:
 * so the other process has to make a call now and then. Needs
 * <infiniband/verbs.h> where work requests are used.
 *
 * Thread rule: any thread; a pool has one lock. Nothing makes progress by
 * itself: every call on a pool runs a round for all of its vqps, and
 * skein_pool_progress() does only that. A thread with nothing to do sleeps on
 * skein_pool_fd(). In a forked child every call returns -SKEIN_EFORKED.
 */
#ifndef SKEIN_VQP_H
#define SKEIN_VQP_H

#include <skein/ctx.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ibv_qp;
struct ibv_send_wr;
struct ibv_recv_wr;
struct ibv_wc;
struct skein_pool;
struct skein_vqp;
struct skein_vqp_mem;
struct skein_meta;

/* Bytes of a message at most; and of one that is copied. The receiver READs a
 * longer one out of the sender's memory into its receive (zero copy). */
#define SKEIN_VQP_MSG_MAX (1u << 30)
#define SKEIN_VQP_COPY_MAX 3968u

/* All zero but size is a good default. */
struct skein_pool_attr {
	size_t size;
	/* Where the meta server listens, "HOST:PORT", or two addresses with a
	 * comma between; NULL: the environment's SKEIN_META, else
	 * 127.0.0.1:7010. Each of two servers has all records: the pool asks
	 * the first one first, and one is enough. */
	const char *meta;
	/* This node's number on its host, which several nodes may share. 0:
	 * any free number. */
	uint16_t node_port;
	/* DC queue pairs; default 8, at most 32 */
	unsigned dcis;
	/* For about how long a queue pair retries a target that does not answer,
	 * or (DC) has no receive; default 20 ms, on soft's link between hosts
	 * 0.3 s; at most 400 ms. */
	uint64_t retry_ns;
	/* for the meta server at open; default 5 s */
	uint64_t timeout_ns;
	/* the socket of a node service (skein node): its pool is used, and the
	 * context may be NULL; only timeout_ns counts beside it. NULL: the
	 * environment's SKEIN_NODE, else a pool of this process's own */
	const char *node;
	/* After this time without an answer of the first meta server the pool
	 * asks the second one too; default 50 us. */
	uint64_t meta_wait_ns;
	/* RC queue pairs at most, made in the background to busy peers and to
	 * peers that DC does not reach; each peer may make so many here.
	 * Default half of those that the device serves fast, or 32; at most 64;
	 * SKEIN_POOL_NO_RCS: none */
	unsigned rcs;
};

#define SKEIN_POOL_NO_RCS 0xffffffffu

/* What a pool has counted. */
struct skein_pool_stats {
	size_t size; /* sizeof(struct skein_pool_stats), set by the caller */
	uint64_t lookups;	/* READs of the meta server's records */
	uint64_t lookups_torn;	/* records that had to be read again */
	uint64_t cache_hits;	/* connects that needed no lookup */
	uint64_t posts;		/* doorbells */
	uint64_t requests;	/* work requests on the device */
	uint64_t dcis_replaced; /* DC queue pairs that failed */
	uint64_t reposted;	/* other vqps' requests, posted again then */
	uint64_t garbage;	/* messages and records that are not valid */
	uint64_t dropped;	/* messages for a port that no vqp has */
	uint64_t publishes;	/* of this node's record */
	uint64_t region_reads;	/* READs of peers' records of memory */
	/* RC queue pairs: all, those for busy peers, given up for another peer,
	 * refused here or by the peer, failed */
	uint64_t rcs_made, rcs_busy, rcs_reclaimed, rcs_refused, rcs_failed;
	uint64_t transfers; /* of vqps from one queue pair to another */
	/* messages longer than SKEIN_VQP_COPY_MAX: sent, READ from peers; and
	 * refused, here or by peers */
	uint64_t announced, fetched, refusals;
};

/*
 * Opens a pool on the context's device and tells the meta server of this node.
 * attr may be NULL. Blocks for milliseconds. -EOPNOTSUPP: the device has neither
 * DC nor what RC queue pairs need: UD and SRQs.
 * -ETIMEDOUT, -ECONNREFUSED: no meta server, also after tries for as long as
 * timeout_ns allows (4.3 s of the default); -EADDRINUSE: another living node
 * has this number. -ENOENT, -ECONNREFUSED at once: no node service at attr.node.
 * Close it before the context.
 */
SKEIN_API int skein_pool_open(struct skein_ctx *ctx,
			      const struct skein_pool_attr *attr,
			      struct skein_pool **pool);
/* Frees its vqps and memory too. Blocks for 1 s at most, until the other ends have
 * been told of those that were freed. */
SKEIN_API void skein_pool_close(struct skein_pool *pool);
/* "10.0.0.7:40112": what others connect to. Valid as long as the pool. */
SKEIN_API const char *skein_pool_addr(struct skein_pool *pool);
/* One round. Returns how many things moved. Never blocks. */
SKEIN_API int skein_pool_progress(struct skein_pool *pool);

/*
 * A descriptor for poll(2) and epoll(7), one for all vqps of the pool: readable
 * when skein_vqp_pop() or skein_vqp_poll() of one may have something, and at times
 * for the pool's own work: an idle pool some ten times a second, through a node
 * service never. Also when posts may have room again, unless another thread's
 * call has made that room. The pool's: leave it unread, and sleep on it no more
 * when skein_pool_close() is called, which wakes nobody. -EMFILE, -ENOMEM,
 * -SKEIN_EFORKED.
 */
SKEIN_API int skein_pool_fd(struct skein_pool *pool);
/*
 * To be called before each sleep on that descriptor, as the last call on the
 * pool, because most work arrives in memory. It runs a round, and never blocks.
 * 0: armed. 1: do not sleep: a vqp has something for pop or poll, or something
 * has moved. It stays 1 until all such vqps are popped and polled. Threads may
 * sleep on one descriptor together; each wake-up is for all of them. -SKEIN_EDEAD:
 * the node service's process has ended; the descriptor stays readable until
 * skein_pool_progress() has attached again. -SKEIN_EFORKED; -EINVAL: there is no
 * descriptor yet.
 */
SKEIN_API int skein_pool_arm(struct skein_pool *pool);

SKEIN_API void skein_pool_get_stats(struct skein_pool *pool,
				    struct skein_pool_stats *stats);

/*
 * Memory for requests: len bytes, zeroed. Peers reach it if access has a remote
 * right (enum ibv_access_flags); then -ENOSPC: the pool has 1023 such regions.
 */
SKEIN_API int skein_vqp_mem_new(struct skein_pool *pool, size_t len,
				unsigned access, struct skein_vqp_mem **mem);
/* Only when no request of this pool uses it any more. Memory that peers reach
 * stays registered in the background for one more second: by then every peer
 * knows that it is gone. */
SKEIN_API void skein_vqp_mem_free(struct skein_vqp_mem *mem);
SKEIN_API void *skein_vqp_mem_addr(struct skein_vqp_mem *mem);
SKEIN_API uint32_t skein_vqp_lkey(struct skein_vqp_mem *mem);
/* The id that peers put into wr.rdma.rkey and wr.atomic.rkey; the posting pool
 * looks it up. 0: access has no remote right. */
SKEIN_API uint32_t skein_vqp_rkey(struct skein_vqp_mem *mem);
/* The address that peers put into remote_addr: skein_vqp_mem_addr(), or, with a
 * node service, the service's address of the memory. */
SKEIN_API uint64_t skein_vqp_raddr(struct skein_vqp_mem *mem);

/* -ENOMEM. Creates nothing on the device. */
SKEIN_API int skein_vqp_new(struct skein_pool *pool, struct skein_vqp **vqp);
/* Requests under way go on, and what waits in software for 5 s more (through a
 * node service: it is dropped); their completions are dropped. */
SKEIN_API void skein_vqp_free(struct skein_vqp *vqp);

/*
 * Connects to the port of a node ("HOST:NODEPORT"). A node that this pool knows
 * costs nothing; another one is looked up at the meta server. Only a message
 * shows whether a vqp is bound to the port. -EHOSTUNREACH: no such node within
 * timeout_ns; -ENETUNREACH: no meta server answers at the end of it either;
 * -EISCONN; -EINVAL: addr is no such address, or port is 0.
 */
SKEIN_API int skein_vqp_connect(struct skein_vqp *vqp, const char *addr,
				uint16_t port, uint64_t timeout_ns);
/* Takes messages for the port from any sender. -EADDRINUSE. */
SKEIN_API int skein_vqp_bind(struct skein_vqp *vqp, uint16_t port);

/* A message of a bound vqp. */
struct skein_vqp_msg {
	/* Connected to the sender. The caller frees it, when it likes: the
	 * sender's next message makes another. An answer that is still under
	 * way then is lost if one of the other vqp comes before it. */
	struct skein_vqp *from;
	uint64_t wr_id; /* of the receive that it is in */
	uint32_t len;
	uint32_t imm;
	uint32_t with_imm; /* 1: imm is there */
	/* 0, or -EMSGSIZE: the receive was too short; -ECONNABORTED: the sender
	 * has ended, or given up, while a long message was READ;
	 * -ECONNRESET: no message, the sender has freed its vqp, or its process
	 * has ended, and all its messages were popped. Free from: requests on
	 * it fail. A process that was killed counts as ended when its device
	 * has not answered twice, a second apart; without DC 15 s after its
	 * queue pair has failed, and never if others took that (rcs). A sender
	 * tells nothing if its vqp has failed as this process took nothing for
	 * 5 s. */
	int status;
};

/* Up to n messages, each in the oldest receive posted. from is the same vqp for
 * all messages of one sender, made with the first; nothing is asked of the
 * network. Returns how many, or a negative errno. */
SKEIN_API int skein_vqp_pop(struct skein_vqp *vqp, unsigned n,
			    struct skein_vqp_msg *msgs);

/*
 * Posts a list: WRITE, READ, SEND (with immediate), compare-and-swap,
 * fetch-and-add; each may be inline, unsignalled, fenced. There is no WRITE
 * with immediate. -EINVAL: *bad_wr has an opcode, flags, sg_list or length that
 * is not valid; -ENOMEM: no room in the vqp's queue of 128 requests, or of
 * completions not polled, or requests to this node (behind a node service: of
 * this client) have as many of the pool's 1024 places as are free, so that others
 * have some. In both cases the requests before *bad_wr are carried
 * out, and none from it on. -ENOTCONN.
 *
 * A message longer than SKEIN_VQP_COPY_MAX is complete when the receiver has
 * READ it into a receive that was posted; then the memory may be used again. It
 * holds up the requests behind it until then. If the receiver has no such port,
 * frees its vqp or has too short a receive, it completes with REM_OP_ERR. So
 * does a message that waits because 16 others were not taken, or is posted later,
 * if the receiver's vqp has failed or is not there: a message that comes to
 * nobody is complete, and this vqp is in error soon after. The first completion
 * behind an error that no request had, be it of a receive, says why: here
 * REM_OP_ERR. The rest is flushed.
 *
 * A process that makes no calls takes 256 messages of all its senders. What else
 * is for it waits; after 5 s in which it takes none the vqps to it end with
 * RNR_RETRY_EXC_ERR. Other vqps are not affected.
 *
 * A request to memory, a range or a right that does not exist completes with
 * LOC_PROT_ERR or REM_ACCESS_ERR in its turn, made by the pool. This vqp is
 * then in error, and the requests behind are flushed; other vqps are not
 * affected. The first request to a region of a peer costs a READ of 64 bytes,
 * and so does one request each half second.
 */
SKEIN_API int skein_vqp_post_send(struct skein_vqp *vqp, struct ibv_send_wr *wr,
				  struct ibv_send_wr **bad_wr);
SKEIN_API int skein_vqp_post_recv(struct skein_vqp *vqp, struct ibv_recv_wr *wr,
				  struct ibv_recv_wr **bad_wr);
/* Up to n completions: of requests, and on a connected vqp of receives. Returns
 * how many, or a negative errno. */
SKEIN_API int skein_vqp_poll(struct skein_vqp *vqp, int n, struct ibv_wc *wc);

/*
 * The vqp as libibverbs' ibv_qp: ibv_post_send() and ibv_post_recv() on it,
 * ibv_poll_cq() on its send_cq, which is its recv_cq too, are the three calls
 * above, with errors as libibverbs has them: a positive errno from a post, a
 * negative one from ibv_poll_cq(); EIO for -SKEIN_EDEAD, EPERM for
 * -SKEIN_EFORKED. qp_num is that of the vqp's completions; state is RTS once
 * connected, RTR once bound: messages of a bound vqp come by skein_vqp_pop().
 * It lives as long as the vqp, and needs no libibverbs at link time.
 *
 * It has no other verbs: ibv_req_notify_cq() returns EOPNOTSUPP, and functions
 * of the library (ibv_modify_qp(), ibv_destroy_qp(), ...) must not be called
 * with it, its CQ or its context; pd is NULL. lkeys and rkeys are
 * skein_vqp_lkey() and skein_vqp_rkey(), remote addresses skein_vqp_raddr().
 */
SKEIN_API struct ibv_qp *skein_vqp_ibv_qp(struct skein_vqp *vqp);

/*
 * A node service: a pool that other processes of this host use by the calls
 * above, with skein_pool_attr.node. A client asks nothing of the device:
 * opening is one message on a socket. Differences for a client: its requests
 * carry memory of skein_vqp_mem_new() alone (-EFAULT, and a line in the log); a
 * vqp has 120 requests at most; messages to a bound vqp go into its receives
 * before it pops them; skein_pool_get_stats() is all zero.
 *
 * When the service's process has ended each call returns -SKEIN_EDEAD at once;
 * outstanding requests may have been carried out. Memory stays; free the vqps.
 * skein_vqp_new(), skein_vqp_mem_new() and skein_pool_progress() attach again
 * once a service is back at that path, and return -SKEIN_EDEAD until then.
 * Memory has the same lkey then, but another skein_vqp_rkey() and
 * skein_vqp_raddr(), and skein_pool_addr() may have changed. While the
 * service's process is stopped calls return -ETIMEDOUT: connect one second
 * after timeout_ns, others after 5 s; free the vqp of such a call.
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
	 * and at most), ports (64). All clients of a user have user_times (4)
	 * of each, and of memory. A client has 64 memories at most, and the
	 * clients of a domain (skein_node_listen()) as many as are left: of
	 * 1023, or what RLIMIT_NOFILE allows. The first refusal is logged. */
	uint32_t requests_max, vqps_max, ports_max, user_times;
	uint64_t meta_wait_ns; /* as in skein_pool_attr */
};

struct skein_node_stats {
	size_t size; /* sizeof(struct skein_node_stats), set by the caller */
	uint64_t clients;  /* attached now */
	uint64_t attached; /* ever */
	uint64_t refused;  /* clients of another user */
	uint64_t detached; /* clients that broke the protocol */
	uint64_t requests;
	uint64_t sleeps; /* of the poller */
	uint64_t wakes;	 /* of clients that slept */
};

/* Listens at path, a Unix socket of mode 0600: for processes of this user and
 * of root. The file of a dead service is replaced; -EADDRINUSE: a service runs
 * there. Else as skein_pool_open(). One thread opens, runs and closes it. Until
 * skein_node_close() the kernel marks no robust mutex that this thread holds if
 * the thread ends. */
SKEIN_API int skein_node_open(struct skein_ctx *ctx, const char *path,
			      const struct skein_node_attr *attr,
			      struct skein_node **node);
/* Listens at one more socket (skein_node_open() with path NULL has none). A
 * client's regions and ports belong to a domain: the one named here, or (domain
 * NULL, and at the first path) that of its user, mount and network namespace. A
 * vqp reaches only regions of one domain, else REM_ACCESS_ERR: the domain that
 * has bound the vqp's port, or, for a vqp made by skein_vqp_pop(), the domain
 * of the message's sender. */
SKEIN_API int skein_node_listen(struct skein_node *node, const char *path,
				const char *domain);
/* Serves until stop (may be NULL) is set: 0; or -ETIMEDOUT. */
SKEIN_API int skein_node_run(struct skein_node *node, uint64_t timeout_ns,
			     struct skein_stop *stop);
SKEIN_API void skein_node_close(struct skein_node *node);
/* "10.0.0.7:40112": the address that others connect to, for all clients. */
SKEIN_API const char *skein_node_addr(struct skein_node *node);
SKEIN_API void skein_node_get_stats(struct skein_node *node,
				    struct skein_node_stats *stats);

/*
 * The meta server's table in this process: room for at least nodes records,
 * default 4096. Nodes read and write it by RDMA. The server's CPU only clears
 * records that no node renews, in skein_meta_progress(): call it each second.
 */
SKEIN_API int skein_meta_open(struct skein_ctx *ctx, const char *addr,
			      unsigned nodes, struct skein_meta **meta);
SKEIN_API void skein_meta_close(struct skein_meta *meta);
/* Where it listens, the real port. */
SKEIN_API const char *skein_meta_addr(struct skein_meta *meta);
/* Clears records that were not renewed for 3 s; counts invalid ones. Returns
 * the number of nodes. */
SKEIN_API int skein_meta_progress(struct skein_meta *meta, uint64_t *garbage);

#ifdef __cplusplus
}
#endif
#endif
