/* SPDX-License-Identifier: MIT */
/*
 * device.c - the list of devices; opening, closing and querying our device. Our
 * device comes first in the list, then the real ones; SKEIN_VERBS_DEVICES=soft
 * leaves the real ones out.
 */
#include "bind/verbs/link.h"
#include "bind/verbs/state.h"
#include "dev/dev.h"
#include "env/env.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define EXPORT __attribute__((visibility("default")))
#undef ibv_query_port

/* Names of rdma-core that are not in its public headers. They have not changed
 * since its version 34. */
enum ibv_gid_type_sysfs {
	IBV_GID_TYPE_SYSFS_IB_ROCE_V1,
	IBV_GID_TYPE_SYSFS_ROCE_V2,
};
int ibv_query_gid_type(struct ibv_context *ctx, uint8_t port, unsigned index,
		       enum ibv_gid_type_sysfs *type);

static bool real_wanted(void)
{
	const char *which = getenv("SKEIN_VERBS_DEVICES");

	return !which || strcmp(which, "soft") != 0;
}

EXPORT struct ibv_device **ibv_get_device_list(int *num)
{
	__typeof__(ibv_get_device_list) *get =
		real_wanted() ? vb_real_find(VB_ibv_get_device_list) : NULL;
	struct ibv_device **real = NULL, **list;
	int n = 0, i;

	if (get)
		real = get(&n); /* fails without a kernel's RDMA: no device */
	if (!real)
		n = 0;
	/* Our device, the real ones, NULL; behind that, the real library's own
	 * list. All is one allocation, because qperf frees the list by
	 * free(). */
	list = calloc((size_t)n + 3, sizeof(void *));
	if (!list) {
		if (real)
			VB_REAL(ibv_free_device_list)(real);
		errno = ENOMEM;
		return NULL;
	}
	list[0] = &vb.device;
	for (i = 0; i < n; i++)
		list[i + 1] = real[i];
	list[n + 2] = (struct ibv_device *)(void *)real;
	if (num)
		*num = n + 1;
	return list;
}

EXPORT void ibv_free_device_list(struct ibv_device **list)
{
	struct ibv_device **end = list;

	if (!list)
		return;
	while (*end)
		end++;
	if (end[1])
		VB_REAL(ibv_free_device_list)
	((struct ibv_device **)(void *)end[1]);
	free(list);
}

EXPORT const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

EXPORT __be64 ibv_get_device_guid(struct ibv_device *device)
{
	if (device != &vb.device)
		return VB_REAL(ibv_get_device_guid)(device);
	return dev_soft_guid();
}

EXPORT int ibv_get_device_index(struct ibv_device *device)
{
	if (device != &vb.device)
		return VB_REAL(ibv_get_device_index)(device);
	return -1; /* the kernel has no number for this device */
}

/* Makes fd blocking, as the kernel's own descriptors are. The program may
 * change that. */
static void fd_block(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags >= 0)
		fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
}

static int open_soft(struct vb_open *o)
{
	char why[256] = "";
	int rc;

	rc = env_real_new(&o->env);
	if (rc)
		return rc;
	rc = dev_soft_open(o->env, "skein0", -1, why, sizeof(why), &o->dev);
	if (!rc)
		return 0;
	fprintf(stderr, "libskein-verbs: %s\n", why);
	env_real_free(o->env);
	return rc;
}

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct vb_open *o;
	int rc = -ENOMEM;

	if (device != &vb.device)
		return VB_REAL(ibv_open_device)(device);
	o = calloc(1, sizeof(*o));
	if (o)
		rc = open_soft(o);
	if (rc) {
		free(o);
		errno = -rc;
		return NULL;
	}
	o->dev->verbs->device = &vb.device;
	/* A stock program does not expect its requests to fail because the peer
	 * has finished and ended. */
	o->dev->caps.death_notice = false;
	link_open(o->dev->verbs);
	fd_block(o->dev->verbs->async_fd);
	pthread_mutex_lock(&vb.lock);
	o->next = vb.opens;
	vb.opens = o;
	pthread_mutex_unlock(&vb.lock);
	return o->dev->verbs;
}

/* Is it a descriptor of one of our devices, or a copy of it? */
static bool fd_ours(int cmd_fd)
{
	struct stat st, own;
	bool ours = false;
	struct vb_open *o;

	if (fstat(cmd_fd, &st))
		return false;
	pthread_mutex_lock(&vb.lock);
	for (o = vb.opens; o && !ours; o = o->next)
		ours = !fstat(o->dev->verbs->cmd_fd, &own) &&
		       own.st_dev == st.st_dev && own.st_ino == st.st_ino;
	pthread_mutex_unlock(&vb.lock);
	return ours;
}

/* Processes share a device by the kernel's descriptor of it; ours has none. */
EXPORT struct ibv_context *ibv_import_device(int cmd_fd)
{
	if (!fd_ours(cmd_fd))
		return VB_REAL(ibv_import_device)(cmd_fd);
	errno = EOPNOTSUPP;
	return NULL;
}

EXPORT int ibv_close_device(struct ibv_context *ctx)
{
	struct vb_open **at, *o;

	if (!vb_ours(ctx))
		return VB_REAL(ibv_close_device)(ctx);
	pthread_mutex_lock(&vb.lock);
	for (at = &vb.opens; (o = *at); at = &o->next)
		if (o->dev->verbs == ctx)
			break;
	if (o)
		*at = o->next;
	pthread_mutex_unlock(&vb.lock);
	if (!o)
		return vb_errno(-EINVAL);
	dev_close(o->dev);
	env_real_free(o->env);
	free(o);
	return 0;
}

EXPORT int ibv_query_device(struct ibv_context *ctx,
			    struct ibv_device_attr *attr)
{
	struct dev *dev;

	if (!vb_ours(ctx))
		return VB_REAL(ibv_query_device)(ctx, attr);
	dev = vb_dev(ctx);
	return vb_errno(dev->ops->query_device(dev, attr));
}

EXPORT int ibv_query_port(struct ibv_context *ctx, uint8_t port,
			  struct _compat_ibv_port_attr *attr)
{
	struct ibv_port_attr all = {0};
	struct dev *dev;
	int rc;

	if (!vb_ours(ctx))
		return VB_REAL(ibv_query_port)(ctx, port, attr);
	dev = vb_dev(ctx);
	rc = dev->ops->query_port(dev, port, &all);
	link_port(&all);
	/* The caller's struct ends before the newer fields. */
	if (!rc)
		memcpy(attr, &all,
		       offsetof(struct ibv_port_attr, port_cap_flags2));
	return vb_errno(rc);
}

static int gid_at(struct ibv_context *ctx, uint8_t port, int index,
		  struct dev_gid *gid)
{
	struct dev *dev = vb_dev(ctx);
	int rc = dev->ops->query_gid(dev, port, index, gid);

	if (rc)
		errno = -rc;
	return rc;
}

EXPORT int ibv_query_gid(struct ibv_context *ctx, uint8_t port, int index,
			 union ibv_gid *gid)
{
	struct dev_gid g;

	if (!vb_ours(ctx))
		return VB_REAL(ibv_query_gid)(ctx, port, index, gid);
	if (gid_at(ctx, port, index, &g))
		return -1;
	*gid = g.gid;
	return 0;
}

EXPORT int ibv_query_gid_type(struct ibv_context *ctx, uint8_t port,
			      unsigned index, enum ibv_gid_type_sysfs *type)
{
	struct dev_gid g;

	if (!vb_ours(ctx))
		return VB_REAL(ibv_query_gid_type)(ctx, port, index, type);
	if (gid_at(ctx, port, (int)index, &g))
		return -1;
	*type = g.type == DEV_GID_ROCE_V2 ? IBV_GID_TYPE_SYSFS_ROCE_V2
					  : IBV_GID_TYPE_SYSFS_IB_ROCE_V1;
	return 0;
}

static void entry_fill(const struct dev_gid *g, uint8_t port,
		       struct ibv_gid_entry *e)
{
	static const uint32_t types[] = {
		[DEV_GID_IB] = IBV_GID_TYPE_IB,
		[DEV_GID_ROCE_V1] = IBV_GID_TYPE_ROCE_V1,
		[DEV_GID_ROCE_V2] = IBV_GID_TYPE_ROCE_V2,
	};

	e->gid = g->gid;
	e->gid_index = (uint32_t)g->index;
	e->port_num = port;
	e->gid_type = vb.infiniband ? IBV_GID_TYPE_IB : types[g->type];
	e->ndev_ifindex = *g->netdev ? if_nametoindex(g->netdev) : 0;
}

EXPORT int _ibv_query_gid_ex(struct ibv_context *ctx, uint32_t port,
			     uint32_t index, struct ibv_gid_entry *entry,
			     uint32_t flags, size_t entry_size)
{
	struct dev_gid g;

	if (!vb_ours(ctx))
		return VB_REAL(_ibv_query_gid_ex)(ctx, port, index, entry,
						  flags, entry_size);
	if (flags || entry_size < sizeof(*entry) || port > UINT8_MAX)
		return vb_errno(-EOPNOTSUPP);
	if (gid_at(ctx, (uint8_t)port, (int)index, &g))
		return errno;
	memset(entry, 0, entry_size);
	entry_fill(&g, (uint8_t)port, entry);
	return 0;
}

EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *ctx,
				    struct ibv_gid_entry *entries, size_t max,
				    uint32_t flags, size_t entry_size)
{
	struct dev_gid g;
	size_t n = 0;
	int i;

	if (!vb_ours(ctx))
		return VB_REAL(_ibv_query_gid_table)(ctx, entries, max, flags,
						     entry_size);
	if (flags || entry_size != sizeof(*entries))
		return -EOPNOTSUPP;
	for (i = 0; !gid_at(ctx, 1, i, &g); i++) {
		/* as the kernel has it: all or nothing */
		if (n == max)
			return -EINVAL;
		entry_fill(&g, 1, &entries[n++]);
	}
	return (ssize_t)n;
}

/* One partition, the default one. */
EXPORT int ibv_query_pkey(struct ibv_context *ctx, uint8_t port, int index,
			  __be16 *pkey)
{
	if (!vb_ours(ctx))
		return VB_REAL(ibv_query_pkey)(ctx, port, index, pkey);
	if (port != 1 || index) {
		errno = EINVAL;
		return -1;
	}
	*pkey = 0xffff;
	return 0;
}

EXPORT int ibv_get_pkey_index(struct ibv_context *ctx, uint8_t port,
			      __be16 pkey)
{
	if (!vb_ours(ctx))
		return VB_REAL(ibv_get_pkey_index)(ctx, port, pkey);
	if (port == 1 && pkey == 0xffff)
		return 0;
	errno = EINVAL;
	return -1;
}
