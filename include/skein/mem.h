/* SPDX-License-Identifier: MIT */
/*
 * mem.h - memory that peers can reach, and one-sided operations on it.
 *
 * One end allocates a region and shares it under a name; the other end finds
 * it by that name and reads, writes and updates it without the first end's
 * CPU. READ, WRITE, compare-and-swap and fetch-and-add are the RDMA operations
 * of the InfiniBand specification (volume 1, 9.4); atomics are on aligned
 * 64-bit words and are atomic among RDMA operations of one device only, never
 * with the CPU.
 *
 * Thread rule: any thread. Blocking forms run the connection's engine.
 */
#ifndef SKEIN_MEM_H
#define SKEIN_MEM_H

#include <skein/conn.h>

#ifdef __cplusplus
extern "C" {
#endif

struct skein_mem;

enum {
	SKEIN_MEM_READ = 1 << 0,
	SKEIN_MEM_WRITE = 1 << 1,
	SKEIN_MEM_ATOMIC = 1 << 2,
};

/* A peer's region as this end sees it. Plain data; valid while the connection
 * is ready and the peer keeps the region. */
struct skein_remote {
	size_t size;   /* sizeof(struct skein_remote), set by the caller */
	uint64_t addr; /* in the peer's terms */
	uint64_t len;
	uint32_t rkey;
	uint32_t id;
	uint32_t access; /* SKEIN_MEM_* bits */
	uint32_t reserved;
};

/* len bytes, zeroed, usable as local buffer of the operations below. -ENOMEM:
 * the log line names the limit. */
SKEIN_API int skein_mem_new(struct skein_ctx *ctx, size_t len,
			    struct skein_mem **mem);
/* The same for memory of the application, which outlives the handle. */
SKEIN_API int skein_mem_wrap(struct skein_ctx *ctx, void *addr, size_t len,
			     struct skein_mem **mem);
/* When it has returned no peer reads or writes the memory any more. */
SKEIN_API void skein_mem_free(struct skein_mem *mem);
SKEIN_API void *skein_mem_addr(struct skein_mem *mem);
SKEIN_API size_t skein_mem_len(struct skein_mem *mem);

/* Lets the peers of all connections of the context, present and future, reach
 * the region. name has 1 to 63 bytes and is unique in the context (-EEXIST).
 * access: SKEIN_MEM_* bits. */
SKEIN_API int skein_mem_share(struct skein_mem *mem, const char *name,
			      unsigned access);

/* Finds a region that the peer shares; waits for it at most timeout_ns, and one
 * second more while another thread keeps the engine. -ENOENT: the peer has not
 * shared it by then. -EINVAL: remote->size is not set, or name is not valid.
 * -EDEADLK in a callback, unless timeout_ns is 0. */
SKEIN_API int skein_mem_find(struct skein_conn *conn, const char *name,
			     uint64_t timeout_ns, struct skein_remote *remote);

/*
 * The operations. Each returns 0 when it has completed. -EINVAL: remote->size
 * is not set; -ERANGE: outside a region; -EACCES: the region does not allow it;
 * -ENOTCONN: not sent. -ETIMEDOUT and other errors: the outcome is unknown. The
 * device may use a timed-out operation's local buffer until the connection is
 * closed.
 */
SKEIN_API int skein_mem_read(struct skein_conn *conn, struct skein_mem *local,
			     uint64_t local_off,
			     const struct skein_remote *remote,
			     uint64_t remote_off, size_t len,
			     uint64_t timeout_ns);
SKEIN_API int skein_mem_write(struct skein_conn *conn, struct skein_mem *local,
			      uint64_t local_off,
			      const struct skein_remote *remote,
			      uint64_t remote_off, size_t len,
			      uint64_t timeout_ns);
/* *old receives the value before the operation. */
SKEIN_API int skein_mem_cmp_swap(struct skein_conn *conn,
				 const struct skein_remote *remote,
				 uint64_t remote_off, uint64_t compare,
				 uint64_t swap, uint64_t timeout_ns,
				 uint64_t *old);
SKEIN_API int skein_mem_fetch_add(struct skein_conn *conn,
				  const struct skein_remote *remote,
				  uint64_t remote_off, uint64_t add,
				  uint64_t timeout_ns, uint64_t *old);

/* Asynchronous forms: done() runs in the thread that runs the engine, exactly
 * once when 0 was returned, never otherwise. -EAGAIN: the queue is full, make
 * progress first. status is 0 or an error as above. */
SKEIN_API int skein_mem_read_async(struct skein_conn *conn,
				   struct skein_mem *local, uint64_t local_off,
				   const struct skein_remote *remote,
				   uint64_t remote_off, size_t len,
				   void (*done)(void *arg, int status),
				   void *arg);
SKEIN_API int skein_mem_write_async(struct skein_conn *conn,
				    struct skein_mem *local, uint64_t local_off,
				    const struct skein_remote *remote,
				    uint64_t remote_off, size_t len,
				    void (*done)(void *arg, int status),
				    void *arg);

/* *old is written before done() with status 0, so it must be valid until
 * done(). old may be NULL. */
SKEIN_API int skein_mem_cmp_swap_async(struct skein_conn *conn,
				       const struct skein_remote *remote,
				       uint64_t remote_off, uint64_t compare,
				       uint64_t swap, uint64_t *old,
				       void (*done)(void *arg, int status),
				       void *arg);
SKEIN_API int skein_mem_fetch_add_async(struct skein_conn *conn,
					const struct skein_remote *remote,
					uint64_t remote_off, uint64_t add,
					uint64_t *old,
					void (*done)(void *arg, int status),
					void *arg);

#ifdef __cplusplus
}
#endif
#endif
