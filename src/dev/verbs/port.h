/* SPDX-License-Identifier: MIT */
/*
 * port.h - the device's port and its chosen GID, at open and as they change.
 *
 * A GID is known by its index and its bytes: an index that has other bytes
 * today is another address. The chosen GID stays chosen as long as it is there,
 * even if a better one appears.
 *
 * Thread rule: verbs_port_open() before anybody else has the device; the rest
 * by any thread, behind verbs_dev.lock.
 */
#ifndef SKEIN_DEV_VERBS_PORT_H
#define SKEIN_DEV_VERBS_PORT_H

#include "dev/list.h"
#include "dev/verbs/verbs.h"

/* Takes this port if it is active and has a usable GID; gid_index as in
 * dev_open(). Fills dev.port, port_attr and gid. err: one line, which does not
 * name the device. */
int verbs_port_open(struct verbs_dev *vd, uint8_t port, int gid_index,
		    char *err, size_t err_len);

/* The port's GIDs, at most max, and the one that would be chosen: 0, or as
 * verbs_port_open(). */
int verbs_port_gids(struct verbs_dev *vd, uint8_t port,
		    struct dev_list_gid *gids, int max, int *n,
		    struct dev_gid *chosen, char *err, size_t err_len);
/* Says why a port is not active, and what helps. */
void verbs_port_explain(const struct ibv_port_attr *attr, uint8_t port,
			char *err, size_t err_len);

/* dev_ops.refresh and dev_ops.path */
int verbs_port_refresh(struct dev *dev, unsigned *changes);
void verbs_port_path(struct dev *dev, struct dev_path *path);

#endif
