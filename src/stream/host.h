/* SPDX-License-Identifier: MIT */
/*
 * host.h - what the streams of a process share: the device, the channel at
 * which bells arrive, and memory.
 *
 * Thread rule: one thread at a time; see stream_host_init_lent().
 */
#ifndef SKEIN_STREAM_HOST_H
#define SKEIN_STREAM_HOST_H

#include "dev/dev.h"
#include "stream/ring.h"

#include <stdbool.h>
#include <stdint.h>

struct stream_chunk;
struct stream_qp;

#define STREAM_RING_FIRST (16u << 10)	/* of a ring that grows */
#define STREAM_RING_FIXED (64u << 10)	/* of one that does not */
#define STREAM_MEM_DEFAULT (1ull << 30) /* of all streams of a process */

/* What a stream takes that has rings of this size, and grows no more. */
#define STREAM_HOST_LEN(ring) (2 * (ring) + 4096)

/* What is in a slot. */
enum stream_kind {
	STREAM_WHOLE, /* a page, ring and mirror: a stream's own */
	STREAM_PART,  /* a ring, or a mirror: grown */
	STREAM_KINDS
};

struct stream_host {
	struct skein_env *env;
	struct dev *dev;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel; /* its fd: a bell rang */
	struct stream_chunk *chunks[STREAM_KINDS][STREAM_SIZES];
	uint64_t mem, mem_max; /* bytes in use; at most */
	/* How many of the bytes of a write may be read; NULL: all. */
	size_t (*reads)(const void *p, size_t len);
	bool mem_said; /* that a stream did not open for want of it */
	bool lent;     /* device, domain and channels belong to a context */
	struct dev_stats stats; /* of all streams, unless lent */
	/* what peers sent against the protocol */
	uint64_t garbage;
};

/* Opens the device for streams. err: one line that says why not. */
int stream_host_init(struct stream_host *h, struct skein_env *env,
		     const char *device, char *err, size_t err_len);
/* The same on an open device, which belongs to the host once this returns 0. */
int stream_host_init_on(struct stream_host *h, struct skein_env *env,
			struct dev *dev);
/* The same on a context's device: QPs get the caller's channels, and streams
 * are made and freed by one thread at a time. It cannot fail. */
void stream_host_init_lent(struct stream_host *h, struct skein_env *env,
			   struct dev *dev, struct ibv_pd *pd);
/* No stream is left. */
void stream_host_fini(struct stream_host *h);

/* Memory for rings of ring_size. -ENOMEM, also beyond mem_max. */
struct stream_slot {
	struct stream_chunk *chunk;
	uint32_t slot;
	uint8_t *mem;
	int fd;
	uint64_t off; /* in the file */
};
int stream_host_get(struct stream_host *h, enum stream_kind kind,
		    uint32_t ring_size, struct stream_slot *p);
void stream_host_put(struct stream_host *h, const struct stream_slot *p);

/* The next QP that something has come for, or NULL. */
struct stream_qp *stream_host_event(struct stream_host *h);

#endif
