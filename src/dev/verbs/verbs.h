/* SPDX-License-Identifier: MIT */
/*
 * verbs.h - the real device: libibverbs.
 *
 * Owns the library handle and the open context; all other objects are the
 * provider's. verbs.c chooses and opens, probe.c learns what the device can
 * do, port.c knows the port, ops.c is the control path, dc.c has what only mlx5
 * can do.
 *
 * Thread rule: as dev.h; but for what says otherwise the struct is read-only
 * once open.
 */
#ifndef SKEIN_DEV_VERBS_VERBS_H
#define SKEIN_DEV_VERBS_VERBS_H

#include "dev/dev.h"
#include "dev/verbs/dc.h"
#include "dev/verbs/lib.h"
#include "env/env.h"

struct verbs_dev {
	struct dev dev; /* first: ops get a struct dev */
	struct verbs_lib lib;
	struct verbs_dc dc;
	int gid_index; /* asked for, or -1 */
	struct env_mutex lock;
	struct dev_path now; /* lock; dev.gid and dev.port_attr: at open */
};

static inline struct verbs_dev *verbs_dev(struct dev *dev)
{
	return (struct verbs_dev *)(void *)dev;
}

extern const struct dev_ops verbs_ops;
extern const struct dev_ops verbs_dc_ops; /* with DC */

/* dev_verbs_open() with libibverbs from `loader`, for tests. */
int verbs_open_from(const struct verbs_loader *loader, struct skein_env *env,
		    const char *name, int gid_index, char *err, size_t err_len,
		    struct dev **dev);

/* Fills caps of a device whose port is chosen: probe.c. */
int verbs_probe(struct verbs_dev *vd, const struct ibv_device_attr *attr);

/* Logs that `doing` (len bytes; 0: unknown) was refused. If the limit of locked
 * memory is the cause, also logs its name, size and use: memlock.c. */
void verbs_log_refused(struct dev *dev, const char *doing, size_t len, int err);

/* dev_verbs_list() with libibverbs from `loader`, for tests. */
struct dev_list_entry;
int verbs_list_from(const struct verbs_loader *loader, struct skein_env *env,
		    char *err, size_t err_len, struct dev_list_entry **list,
		    int *n);

#define VERBS_UNFIT \
	"neither InfiniBand nor RoCE (iWARP and EFA are not supported)"
#define VERBS_NOT_OPEN                                                  \
	"cannot be opened: %s (is /dev/infiniband there, and may this " \
	"user use it?)"

/* What errno says after a verbs call that failed; never 0: some providers
 * forget to set it. */
int verbs_errno(void);

#endif
