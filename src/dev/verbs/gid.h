/* SPDX-License-Identifier: MIT */
/*
 * gid.h - which GID of a port an application should use.
 *
 * RoCEv2 over IPv4 first, then v2 over global IPv6, then v2 over link-local
 * IPv6, then v1; on InfiniBand the first. A GID whose network device lives in
 * another network namespace is never taken: the kernel would refuse to route
 * from it. The choice itself is a pure function over a table.
 *
 * Thread rule: no state.
 */
#ifndef SKEIN_DEV_VERBS_GID_H
#define SKEIN_DEV_VERBS_GID_H

#include "dev/dev.h"

/* One entry of a port's GID table. */
struct gid_row {
	union ibv_gid gid;
	int index;
	enum dev_gid_type type;
	char netdev[IF_NAMESIZE]; /* "" when it has none or it is unknown */
	bool here;		  /* its netdev is in our network namespace */
};

/* A GID that belongs to an interface of our network namespace. */
struct gid_local {
	union ibv_gid gid;
	char netdev[IF_NAMESIZE];
};

/*
 * Chooses among n rows; want >= 0 asks for that index and overrides the
 * order and the namespace rule. 0, -ENODATA when there is no usable row; err
 * then has one line with the likely fix (it does not name the device).
 */
int gid_choose(const struct gid_row *rows, size_t n, int want, char *err,
	       size_t err_len, struct dev_gid *gid);

/* Sets row->here: an InfiniBand GID has no netdev and is always here. Another
 * GID is here if its netdev has this address, or the MAC from which the GID is
 * made, in our namespace. Numbers and names of interfaces prove nothing: each
 * namespace has its own. */
void gid_place(struct gid_row *row, const struct gid_local *locals, size_t n);

/* Stores at most max GIDs of this network namespace's interfaces. Returns the
 * number of all of them, or a negative errno. */
int gid_locals(struct gid_local *locals, size_t max);

/* "10.0.0.1", or an IPv6 address. */
void gid_text(const union ibv_gid *gid, char *buf, size_t len);

#endif
