/* SPDX-License-Identifier: MIT */
/*
 * link.h - the port as InfiniBand, for programs that know LIDs and no GIDs
 * (SKEIN_VERBS_LINK=infiniband; vb.infiniband). There is one LID, that of this
 * host: a path to this LID is a path to the device's own GID.
 */
#ifndef SKEIN_BIND_VERBS_LINK_H
#define SKEIN_BIND_VERBS_LINK_H

#include <infiniband/verbs.h>

struct dev;

/* The port's attributes as they are shown. */
void link_port(struct ibv_port_attr *attr);
/* Goes into the context's table: programs that were compiled with the newer
 * header do not call ibv_query_port(). */
void link_open(struct ibv_context *ctx);
/* Gives a path without a GID the one that it means. */
void link_path(const struct dev *dev, struct ibv_ah_attr *attr);

#endif
