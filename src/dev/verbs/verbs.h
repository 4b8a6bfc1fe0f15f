/* SPDX-License-Identifier: MIT */
/*
 * verbs.h - the real device: libibverbs.
 *
 * Owns the library handle and the open context; all other objects are the
 * provider's. verbs.c chooses and opens, probe.c learns what the device can do,
 * ops.c is the control path.
 *
 * Thread rule: as dev.h; the struct is read-only once open.
 */
#ifndef SKEIN_DEV_VERBS_VERBS_H
#define SKEIN_DEV_VERBS_VERBS_H

#include "dev/dev.h"
#include "dev/verbs/lib.h"

struct verbs_dev {
	struct dev dev; /* first: ops get a struct dev */
	struct verbs_lib lib;
};

static inline struct verbs_dev *verbs_dev(struct dev *dev)
{
	return (struct verbs_dev *)(void *)dev;
}

extern const struct dev_ops verbs_ops;

/* dev_verbs_open() with the library from elsewhere: tests. */
int verbs_open_from(const struct verbs_loader *loader, struct skein_env *env,
		    const char *name, int gid_index, char *err, size_t err_len,
		    struct dev **dev);

/* Fills caps of a device whose port is chosen: probe.c. */
int verbs_probe(struct verbs_dev *vd, const struct ibv_device_attr *attr);

/* What errno says after a verbs call that failed; never 0: some providers
 * forget to set it. */
int verbs_errno(void);

#endif
