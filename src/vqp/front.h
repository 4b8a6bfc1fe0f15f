/* SPDX-License-Identifier: MIT */
/*
 * front.h - where the calls of skein/vqp.h lead: to a pool of this process
 * (pool.c), or to a node service's (node/client.c). front.c passes each call
 * on; handles begin with the structs below.
 */
#ifndef SKEIN_VQP_FRONT_H
#define SKEIN_VQP_FRONT_H

#include "env/env.h"

#include <infiniband/verbs.h>
#include <skein/vqp.h>
#include <sys/socket.h>

/* As the calls of skein/vqp.h of the same names. */
struct vqp_front {
	void (*close)(struct skein_pool *p);
	int (*progress)(struct skein_pool *p);
	int (*fd)(struct skein_pool *p);
	int (*arm)(struct skein_pool *p);
	void (*stats)(struct skein_pool *p, struct skein_pool_stats *s);
	int (*mem_new)(struct skein_pool *p, size_t len, unsigned access,
		       struct skein_vqp_mem **mem);
	void (*mem_free)(struct skein_vqp_mem *mem);
	int (*vqp_new)(struct skein_pool *p, struct skein_vqp **vqp);
	void (*vqp_free)(struct skein_vqp *vqp);
	/* addr is parsed: a GID, and the number of a node */
	int (*connect)(struct skein_vqp *vqp, const uint8_t gid[16],
		       uint32_t node_port, uint16_t port, uint64_t timeout_ns);
	int (*bind)(struct skein_vqp *vqp, uint16_t port);
	int (*pop)(struct skein_vqp *vqp, unsigned n,
		   struct skein_vqp_msg *msgs);
	int (*post_send)(struct skein_vqp *vqp, struct ibv_send_wr *wr,
			 struct ibv_send_wr **bad);
	int (*post_recv)(struct skein_vqp *vqp, struct ibv_recv_wr *wr,
			 struct ibv_recv_wr **bad);
	int (*poll)(struct skein_vqp *vqp, int n, struct ibv_wc *wc);
};

struct skein_pool {
	const struct vqp_front *front;
	struct skein_env *env;
	uint8_t gid[16]; /* of the node */
	char addr[72];
	struct ibv_context verbs; /* of its vqps' queue pairs */
};

struct skein_vqp {
	struct skein_pool *pool;
	struct ibv_qp qp; /* verbs.c */
	struct ibv_cq cq;
};

struct skein_vqp_mem {
	struct skein_pool *pool;
	void *addr;
	uint64_t raddr; /* what peers name */
	uint32_t lkey;
	uint32_t id; /* what peers name; 0: they do not reach it */
};

/* For the fronts, verbs.c: a pool; a vqp, which connect or a message has given
 * another end or not. */
void verbs_pool_init(struct skein_pool *p);
void verbs_vqp_init(struct skein_vqp *v, struct skein_pool *p, uint32_t qp_num,
		    bool connected);

/* The GID of the node at an address. front.c */
void front_gid(const struct skein_pool *p, const struct sockaddr_storage *sa,
	       uint8_t gid[16]);

/* The two ways to open one. pool.c, node/client.c */
int pool_embed(struct skein_ctx *ctx, const struct skein_pool_attr *a,
	       struct skein_pool **pool);
/* ctx may be NULL. */
int node_attach(struct skein_ctx *ctx, const char *path, uint64_t timeout_ns,
		struct skein_pool **pool);

#endif
