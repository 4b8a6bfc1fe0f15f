/* SPDX-License-Identifier: MIT */
/*
 * mem.c - makes and ends memory that peers can reach.
 *
 * A region owns its file, its mapping and its MR, and gives them up in the
 * order MR, mapping, file: dereg_mr returns only when no peer is still
 * touching the memory, so nothing is unmapped under a copy.
 */
#include "dev/mem.h"

#include "env/env.h"

#include <errno.h>
#include <string.h>

static int region_make(struct dev *dev, struct ibv_pd *pd, int access,
		       const struct mem_region *like,
		       struct mem_region **region)
{
	struct mem_region *r;
	int rc;

	r = env_alloc(dev->env, sizeof(*r));
	if (!r)
		return -ENOMEM;
	*r = *like;
	rc = dev->ops->reg_mr(dev, pd, r->addr, r->len, access, r->fd, r->off,
			      &r->mr);
	if (rc) {
		env_free(dev->env, r);
		return rc;
	}
	*region = r;
	return 0;
}

int mem_region_new(struct dev *dev, struct ibv_pd *pd, const char *name,
		   size_t len, int access, uint32_t id,
		   struct mem_region **region)
{
	struct mem_region r = {.dev = dev, .len = len, .id = id};
	int rc;

	if (!len)
		return -EINVAL;
	rc = env_mem_alloc(dev->env, name, len, &r.fd, &r.addr);
	if (rc && rc != -ENOMEM) /* as a sandbox does */
		env_log(dev->env, ENV_LOG_WARN,
			"%s: no shared memory of %zu bytes (memfd_create): %s",
			dev->name, len, strerror(-rc));
	if (rc)
		return rc;
	rc = region_make(dev, pd, access, &r, region);
	if (rc)
		env_mem_free(dev->env, r.fd, r.addr, len);
	return rc;
}

int mem_region_near(struct dev *dev, struct ibv_pd *pd, const char *name,
		    size_t len, int access, uint32_t id,
		    struct mem_region **region)
{
	struct mem_region *r;
	int rc;

	if (!dev->ops->new_mr)
		return mem_region_new(dev, pd, name, len, access, id, region);
	r = env_alloc(dev->env, sizeof(*r));
	if (!r)
		return -ENOMEM;
	*r = (struct mem_region){.dev = dev, .len = len, .fd = -1, .id = id};
	rc = dev->ops->new_mr(dev, pd, len, access, &r->mr);
	if (rc) {
		env_free(dev->env, r);
		return rc == -E2BIG || rc == -ENOMEM
			       ? mem_region_new(dev, pd, name, len, access, id,
						region)
			       : rc;
	}
	r->addr = r->mr->addr;
	*region = r;
	return 0;
}

int mem_region_adopt(struct dev *dev, struct ibv_pd *pd, int fd, void *addr,
		     size_t len, int access, uint32_t id,
		     struct mem_region **region)
{
	struct mem_region r = {
		.dev = dev, .addr = addr, .len = len, .fd = fd, .id = id};

	return region_make(dev, pd, access, &r, region);
}

int mem_region_wrap(struct dev *dev, struct ibv_pd *pd, void *addr, size_t len,
		    int access, uint32_t id, struct mem_region **region)
{
	struct mem_region r = {
		.dev = dev, .addr = addr, .len = len, .fd = -1, .id = id};

	if (!len || !addr)
		return -EINVAL;
	return region_make(dev, pd, access, &r, region);
}

void mem_region_free(struct mem_region *region)
{
	struct dev *dev;
	int rc;

	if (!region)
		return;
	dev = region->dev;
	rc = dev->ops->dereg_mr(dev, region->mr);
	if (rc) {
		/* The device may still write there: leaking is the safe end. */
		env_log(dev->env, ENV_LOG_ERROR,
			"%s: cannot deregister region %u (%zu bytes): %s; "
			"its memory is kept",
			dev->name, region->id, region->len, strerror(-rc));
		return;
	}
	if (region->fd >= 0)
		env_mem_free(dev->env, region->fd, region->addr, region->len);
	env_free(dev->env, region);
}
