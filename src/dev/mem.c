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

/* Shorter regions are made at once. */
#define RESERVE_MIN (1u << 20)

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

/* Pages that come with their first use: where the poster copies, and where
 * no page can be missing then. */
static bool on_demand(struct dev *dev, int access)
{
	return access & IBV_ACCESS_ON_DEMAND && dev->caps.poster_copies &&
	       env_mem_on_demand(dev->env);
}

static int region_alloc(struct dev *dev, struct ibv_pd *pd, const char *name,
			size_t len, int access, uint32_t id, bool reserve,
			struct mem_region **region)
{
	bool demand = on_demand(dev, access);
	struct mem_region r = {.dev = dev, .len = len, .id = id, .filled = len};
	int rc;

	if (!len)
		return -EINVAL;
	if (reserve || demand)
		rc = env_mem_reserve(dev->env, name, len, &r.fd, &r.addr,
				     &r.filled);
	else
		rc = env_mem_alloc(dev->env, name, len, &r.fd, &r.addr);
	if (rc && rc != -ENOMEM) /* as a sandbox does */
		env_log(dev->env, ENV_LOG_WARN,
			"%s: no shared memory of %zu bytes (memfd_create): %s",
			dev->name, len, strerror(-rc));
	if (rc)
		return rc;
	/* The device is told only of pages that are not there yet. All of it
	 * may be used. */
	if (!demand || r.filled)
		access &= ~IBV_ACCESS_ON_DEMAND;
	if (demand)
		r.filled = len;
	rc = region_make(dev, pd, access, &r, region);
	if (rc)
		env_mem_free(dev->env, r.fd, r.addr, len);
	return rc;
}

int mem_region_new(struct dev *dev, struct ibv_pd *pd, const char *name,
		   size_t len, int access, uint32_t id,
		   struct mem_region **region)
{
	return region_alloc(dev, pd, name, len, access, id, false, region);
}

int mem_region_reserve(struct dev *dev, struct ibv_pd *pd, const char *name,
		       size_t len, int access, uint32_t id,
		       struct mem_region **region)
{
	/* A NIC pins all of it when it is registered. */
	bool reserve = dev->caps.poster_copies && len >= RESERVE_MIN;

	return region_alloc(dev, pd, name, len, access, id, reserve, region);
}

int mem_region_fill(struct mem_region *r, size_t len)
{
	size_t page, end;
	int rc;

	if (len <= r->filled)
		return 0;
	page = env_mem_page(r->fd);
	end = (len + page - 1) & ~(page - 1);
	rc = env_mem_fill(r->dev->env, r->fd, r->addr, r->filled,
			  end - r->filled);
	if (!rc)
		r->filled = end;
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

bool mem_region_end(struct mem_region *region)
{
	struct dev *dev = region->dev;
	int rc = dev->ops->dereg_mr(dev, region->mr);

	/* The device may still write there: leaking is the safe end. */
	if (rc)
		env_log(dev->env, ENV_LOG_ERROR,
			"%s: cannot deregister region %u (%zu bytes): %s; "
			"its memory is kept",
			dev->name, region->id, region->len, strerror(-rc));
	return !rc;
}

static void region_gone(struct mem_region *region)
{
	struct skein_env *env = region->dev->env;

	if (region->fd >= 0)
		env_mem_free(env, region->fd, region->addr, region->len);
	env_free(env, region);
}

bool mem_region_drop(struct mem_region *r, size_t len)
{
	size_t page = r->fd >= 0 ? env_mem_page(r->fd) : 1, end = r->filled;

	if (r->fd < 0 || end <= len) {
		region_gone(r);
		return true;
	}
	r->filled = (end - len) & ~(page - 1);
	env_mem_drop(r->dev->env, r->fd, r->filled, end - r->filled);
	return false;
}

void mem_region_free(struct mem_region *region)
{
	if (region && mem_region_end(region))
		region_gone(region);
}
