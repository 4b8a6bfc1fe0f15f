/* SPDX-License-Identifier: MIT */
/*
 * mem.h - memory that peers can reach.
 *
 * All remotely reachable memory is a mem_region: a shared file, mapped, with
 * an MR. On the wire it is named by (region id, offset); id is unique in its
 * context and never used again. Nothing remote is malloc'd. Ordinary memory
 * of the application can be wrapped too (fd -1): it works on every device, on
 * soft by the slower path.
 *
 * Thread rule: new and free by any thread, fields are read-only after new.
 */
#ifndef SKEIN_DEV_MEM_H
#define SKEIN_DEV_MEM_H

#include "base/list.h"
#include "dev/dev.h"

struct mem_region {
	struct dev *dev;
	struct ibv_mr *mr; /* lkey, rkey */
	void *addr;
	size_t len;
	int fd;	      /* -1: ordinary memory, or the device's: not freed here */
	uint64_t off; /* of addr in the file */
	uint32_t id;
	size_t filled;	       /* bytes that are there, from the start */
	struct list_node link; /* its holder's, once it is deregistered */
};

/* len bytes, zeroed, registered with access. With IBV_ACCESS_ON_DEMAND a page is
 * made when this process or a peer first uses it, where device and system allow
 * that; elsewhere all are made now. The mapping is of whole pages, the
 * MR and region->len are exactly len, so that running over is caught. */
int mem_region_new(struct dev *dev, struct ibv_pd *pd, const char *name,
		   size_t len, int access, uint32_t id,
		   struct mem_region **region);
/* The same, in the device's own memory where it has some: for small regions
 * that newly connected peers write soon. */
int mem_region_near(struct dev *dev, struct ibv_pd *pd, const char *name,
		    size_t len, int access, uint32_t id,
		    struct mem_region **region);
/* The same of a file that another process made; owns it from now on, if it
 * returns 0. */
int mem_region_adopt(struct dev *dev, struct ibv_pd *pd, int fd, void *addr,
		     size_t len, int access, uint32_t id,
		     struct mem_region **region);
/* Registers memory of the application, which must outlive the region. */
int mem_region_wrap(struct dev *dev, struct ibv_pd *pd, void *addr, size_t len,
		    int access, uint32_t id, struct mem_region **region);
/* As mem_region_new(), but where the device does not touch all of it at once the
 * memory is made by mem_region_fill(), up to len and before anybody uses it: 0, or
 * -ENOMEM. */
int mem_region_reserve(struct dev *dev, struct ibv_pd *pd, const char *name,
		       size_t len, int access, uint32_t id,
		       struct mem_region **region);
int mem_region_fill(struct mem_region *region, size_t len);
/* Freeing in steps. First: when it returns true no peer touches the memory any
 * more. False: the device could not end it; the region is kept for ever. */
bool mem_region_end(struct mem_region *region);
/* Then, step by step: frees len bytes, rounded to whole pages. True: the region
 * is freed. */
bool mem_region_drop(struct mem_region *region, size_t len);
/* When it has returned no peer is touching the memory. */
void mem_region_free(struct mem_region *region);

#endif
