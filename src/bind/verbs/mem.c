/* SPDX-License-Identifier: MIT */
/*
 * mem.c - protection domains and memory regions. A region that lies in the
 * window or in a segment of ours is registered with its file, and so mapped by
 * peers; any other is ordinary memory to the device.
 */
#include "bind/verbs/state.h"
#include "dev/dev.h"

#include <errno.h>

#define EXPORT __attribute__((visibility("default")))
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *ctx)
{
	struct ibv_pd *pd = NULL;
	struct dev *dev;

	if (!vb_ours(ctx))
		return VB_REAL(ibv_alloc_pd)(ctx);
	dev = vb_dev(ctx);
	vb_errno(dev->ops->alloc_pd(dev, &pd));
	return pd;
}

EXPORT int ibv_dealloc_pd(struct ibv_pd *pd)
{
	struct dev *dev;

	if (!vb_ours(pd->context))
		return VB_REAL(ibv_dealloc_pd)(pd);
	dev = vb_dev(pd->context);
	return vb_errno(dev->ops->dealloc_pd(dev, pd));
}

/* What the device knows of these flags, or a negative errno. */
static int rights(unsigned access)
{
	/* Hints that a device may ignore (relaxed ordering), or that say
	 * nothing here (huge pages). */
	access &= ~(unsigned)(IBV_ACCESS_OPTIONAL_RANGE | IBV_ACCESS_HUGETLB);
	/* a caller of libibverbs makes no memory for it */
	if (access & IBV_ACCESS_ON_DEMAND)
		return -EOPNOTSUPP;
	return (int)access;
}

/* The file behind the memory; -1 for ordinary memory. 0 or a negative errno. */
static int file_of(const void *addr, size_t len, int *fd, uint64_t *off)
{
	int rc = window_file(&vb.window, addr, len, fd, off);

	if (rc == -ENOENT)
		rc = vb_shm_file(&vb.shm, addr, len, fd, off);
	return rc == -ENOENT ? 0 : rc;
}

static struct ibv_mr *reg(struct ibv_pd *pd, void *addr, size_t len,
			  uint64_t iova, unsigned access)
{
	struct dev *dev = vb_dev(pd->context);
	int fd = -1, rc,
	    has = rights(access & ~(unsigned)IBV_ACCESS_ZERO_BASED);
	struct ibv_mr *mr = NULL;
	uint64_t off = 0;

	if (access & IBV_ACCESS_ZERO_BASED)
		iova = 0;

	rc = has < 0 ? has : file_of(addr, len, &fd, &off);
	if (!rc)
		rc = dev->ops->reg_mr_iova(dev, pd, addr, len, iova, has, fd,
					   off, &mr);
	vb_errno(rc);
	return mr;
}

EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t len,
				 int access)
{
	if (!vb_ours(pd->context))
		return VB_REAL(ibv_reg_mr)(pd, addr, len, access);
	return reg(pd, addr, len, (uintptr_t)addr, (unsigned)access);
}

/* The kernel has the device's pages lie as the program's do. */
static struct ibv_mr *reg_iova(struct ibv_pd *pd, void *addr, size_t len,
			       uint64_t iova, unsigned access)
{
	if (!((iova ^ (uintptr_t)addr) & (WINDOW_PAGE - 1)))
		return reg(pd, addr, len, iova, access);
	errno = EINVAL;
	return NULL;
}

EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t len,
				      uint64_t iova, int access)
{
	if (!vb_ours(pd->context))
		return VB_REAL(ibv_reg_mr_iova)(pd, addr, len, iova, access);
	return reg_iova(pd, addr, len, iova, (unsigned)access);
}

EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr,
				       size_t len, uint64_t iova,
				       unsigned access)
{
	if (!vb_ours(pd->context))
		return VB_REAL(ibv_reg_mr_iova2)(pd, addr, len, iova, access);
	return reg_iova(pd, addr, len, iova, access);
}

EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset,
					size_t len, uint64_t iova, int fd,
					int access)
{
	if (!vb_ours(pd->context))
		return VB_REAL(ibv_reg_dmabuf_mr)(pd, offset, len, iova, fd,
						  access);
	errno = EOPNOTSUPP;
	return NULL;
}

EXPORT int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd,
			void *addr, size_t len, int access)
{
	int fd = -1, rc = 0, has = 0;
	uint64_t off = 0;
	struct dev *dev;

	if (!vb_ours(mr->context))
		return VB_REAL(ibv_rereg_mr)(mr, flags, pd, addr, len, access);
	dev = vb_dev(mr->context);
	if (flags & IBV_REREG_MR_CHANGE_ACCESS)
		has = rights((unsigned)access);
	if (has < 0)
		rc = has;
	else if (flags & IBV_REREG_MR_CHANGE_TRANSLATION)
		rc = file_of(addr, len, &fd, &off);
	if (!rc)
		rc = dev->ops->rereg_mr(dev, mr, flags, pd, addr, len, has, fd,
					off);
	/* an error: nothing was changed */
	return vb_errno(rc) ? IBV_REREG_MR_ERR_INPUT : 0;
}

EXPORT int ibv_dereg_mr(struct ibv_mr *mr)
{
	struct dev *dev;

	if (!vb_ours(mr->context))
		return VB_REAL(ibv_dereg_mr)(mr);
	dev = vb_dev(mr->context);
	return vb_errno(dev->ops->dereg_mr(dev, mr));
}

/* Processes share objects by numbers of the kernel; our objects have none. */
EXPORT struct ibv_pd *ibv_import_pd(struct ibv_context *ctx, uint32_t handle)
{
	if (!vb_ours(ctx))
		return VB_REAL(ibv_import_pd)(ctx, handle);
	errno = EOPNOTSUPP;
	return NULL;
}

EXPORT void ibv_unimport_pd(struct ibv_pd *pd)
{
	if (!vb_ours(pd->context))
		VB_REAL(ibv_unimport_pd)(pd);
}

EXPORT struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle)
{
	if (!vb_ours(pd->context))
		return VB_REAL(ibv_import_mr)(pd, handle);
	errno = EOPNOTSUPP;
	return NULL;
}

EXPORT void ibv_unimport_mr(struct ibv_mr *mr)
{
	if (!vb_ours(mr->context))
		VB_REAL(ibv_unimport_mr)(mr);
}

EXPORT struct ibv_dm *ibv_import_dm(struct ibv_context *ctx, uint32_t handle)
{
	if (!vb_ours(ctx))
		return VB_REAL(ibv_import_dm)(ctx, handle);
	errno = EOPNOTSUPP;
	return NULL;
}
