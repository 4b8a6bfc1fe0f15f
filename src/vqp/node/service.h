/* SPDX-License-Identifier: MIT */
/*
 * service.h - the node service: a pool that other processes of this host use
 * through rings (KRCore's kernel, in a process).
 *
 * Invariants: a client that is gone, or that said what it may not, has left
 * nothing but memory under running leases. Only serve.c looks at a client's
 * request, in its private copy.
 *
 * Thread rule: one thread opens, runs and closes it; its life page belongs to
 * that thread.
 */
#ifndef SKEIN_VQP_NODE_SERVICE_H
#define SKEIN_VQP_NODE_SERVICE_H

#include "env/local.h"
#include "vqp/node/attach.h"
#include "vqp/node/serve.h"
#include "vqp/pool.h"

/* A domain, to which regions and ports of its clients belong. Numbered from 1;
 * no number is used again. */
struct node_domain {
	struct list_node link; /* skein_node.domains */
	uint16_t number;
	char *name; /* given with --listen; NULL: */
	uint32_t uid;
	uint64_t mount_ns, net_ns;
	/* memories of its clients, until peers have forgotten them: each costs
	 * descriptors, and most a place in the table of regions */
	uint32_t mems;
	bool full; /* that was logged */
};

/* A listening socket. */
struct node_door {
	struct list_node link; /* skein_node.doors */
	char *path;
	int fd;
	struct node_domain *domain; /* of its clients; NULL: each has its own */
};

struct node_client {
	struct list_node link; /* skein_node.clients */
	struct skein_node *node;
	int fd;
	uint32_t uid, pid;
	struct quota_user *user;
	struct node_domain *domain;
	unsigned logged; /* bits of quota.refused that were logged */
	bool attached, gone;
	bool mems_said;	   /* that it may have no more memories was logged */
	uint64_t since_ns; /* it has connected */
	struct serve serve;
	int ring_fd;
	void *ring;
	/* ring cursors at its last wake-up or look */
	uint32_t comps, lines;
};

struct skein_node {
	struct skein_ctx *ctx;
	struct skein_env *env;
	struct pool *pool;
	struct ibv_comp_channel *channel;
	struct env_waiter *w;
	struct local_life_owner *life;
	struct list_node doors, domains;
	unsigned n_domains;
	uint32_t uid;
	struct list_node clients;
	struct list_node users; /* struct quota_user: until it closes */
	unsigned n_clients, clients_max;
	uint64_t max[QUOTA_KINDS]; /* of a client */
	unsigned user_times;
	uint32_t mems_max; /* of all domains */
	uint64_t fds_ns;   /* when sockets were looked at last */
	struct skein_node_stats stats;
};

#endif
