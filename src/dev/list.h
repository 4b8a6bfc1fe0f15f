/* SPDX-License-Identifier: MIT */
/*
 * list.h - what RDMA devices this machine has, usable or not: for people who
 * want to know why theirs is not taken.
 *
 * Thread rule: no state; opens and closes each device.
 */
#ifndef SKEIN_DEV_LIST_H
#define SKEIN_DEV_LIST_H

#include "dev/dev.h"

#define DEV_LIST_PORTS 4 /* what more there are is counted in no list */
#define DEV_LIST_GIDS 16

struct dev_list_gid {
	struct dev_gid gid;
	bool here; /* its interface is in our network namespace */
};

struct dev_list_port {
	uint8_t number;
	struct ibv_port_attr attr;
	struct dev_list_gid gids[DEV_LIST_GIDS];
	int n_gids;
	int chosen;    /* GID index that would be taken, or -1 */
	char why[160]; /* why that GID, or why none, or why not the port */
};

struct dev_list_entry {
	char name[64];
	char err[160]; /* why nothing is known of it; else "" */
	struct dev_list_port ports[DEV_LIST_PORTS];
	int n_ports;
};

/* The devices of libibverbs, in its order. *list is freed with env_free().
 * 0 also when there is none; a negative errno when they cannot be listed, and
 * then one line with the fix in err. */
int dev_verbs_list(struct skein_env *env, char *err, size_t err_len,
		   struct dev_list_entry **list, int *n);

#endif
