/* SPDX-License-Identifier: MIT */
/*
 * front.c - the public calls: they check what is the same for all fronts, and
 * call the pool's front.
 */
#include "vqp/front.h"

#include "base/hostport.h"
#include "conn/ctx.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

int skein_pool_open(struct skein_ctx *ctx, const struct skein_pool_attr *attr,
		    struct skein_pool **pool)
{
	struct skein_pool_attr a = {.size = sizeof(a)};
	int err;

	if (ctx && ctx_forked(ctx))
		return -SKEIN_EFORKED;
	err = attr ? ctx_attr_copy(&a, sizeof(a), attr) : 0;
	if (err)
		return err;
	if (!a.node)
		a.node = getenv("SKEIN_NODE");
	if (a.node && *a.node)
		return node_attach(ctx, a.node,
				   a.timeout_ns ? a.timeout_ns : SKEIN_S(5),
				   pool);
	return ctx ? pool_embed(ctx, &a, pool) : -EINVAL;
}

void skein_pool_close(struct skein_pool *p)
{
	if (p && !env_forked(p->env))
		p->front->close(p);
}

const char *skein_pool_addr(struct skein_pool *p)
{
	return p->addr;
}

int skein_pool_progress(struct skein_pool *p)
{
	return p->front->progress(p);
}

int skein_pool_fd(struct skein_pool *p)
{
	return p->front->fd(p);
}

int skein_pool_arm(struct skein_pool *p)
{
	return p->front->arm(p);
}

void skein_pool_get_stats(struct skein_pool *p, struct skein_pool_stats *st)
{
	p->front->stats(p, st);
}

/* --- memory ------------------------------------------------------------- */

int skein_vqp_mem_new(struct skein_pool *p, size_t len, unsigned access,
		      struct skein_vqp_mem **mem)
{
	return p->front->mem_new(p, len, access, mem);
}

void skein_vqp_mem_free(struct skein_vqp_mem *m)
{
	if (m)
		m->pool->front->mem_free(m);
}

void *skein_vqp_mem_addr(struct skein_vqp_mem *m)
{
	return m->addr;
}

uint32_t skein_vqp_lkey(struct skein_vqp_mem *m)
{
	return m->lkey;
}

uint64_t skein_vqp_raddr(struct skein_vqp_mem *m)
{
	return m->raddr;
}

uint32_t skein_vqp_rkey(struct skein_vqp_mem *m)
{
	return m->id;
}

/* --- vqps --------------------------------------------------------------- */

int skein_vqp_new(struct skein_pool *p, struct skein_vqp **vqp)
{
	return p->front->vqp_new(p, vqp);
}

void skein_vqp_free(struct skein_vqp *v)
{
	if (v)
		v->pool->front->vqp_free(v);
}

static bool is_loopback(const struct sockaddr_storage *a)
{
	const struct sockaddr_in6 *s6 = (const void *)a;
	const struct sockaddr_in *s4 = (const void *)a;

	if (a->ss_family == AF_INET)
		return ntohl(s4->sin_addr.s_addr) >> 24 == 127;
	return IN6_IS_ADDR_LOOPBACK(&s6->sin6_addr);
}

void front_gid(const struct skein_pool *p, const struct sockaddr_storage *sa,
	       uint8_t gid[16])
{
	memset(gid, 0, 16);
	if (is_loopback(sa)) { /* a node on this host */
		memcpy(gid, p->gid, 16);
	} else if (sa->ss_family == AF_INET) {
		gid[10] = gid[11] = 0xff;
		memcpy(gid + 12, &((const struct sockaddr_in *)sa)->sin_addr,
		       4);
	} else {
		memcpy(gid, &((const struct sockaddr_in6 *)sa)->sin6_addr, 16);
	}
}

/* Parses "HOST:PORT" to the GID of a node and its number. */
static int node_parse(struct skein_pool *p, const char *addr, uint8_t gid[16],
		      uint32_t *port)
{
	struct sockaddr_storage sa;
	struct hostport at;
	int found = 0;

	*port = 0;
	if (!hostport_parse(addr, &at) && at.host[0])
		*port = (uint32_t)strtoul(at.port, NULL, 10);
	if (!*port) {
		env_log(p->env, ENV_LOG_ERROR,
			"vqp: \"%s\" is no address of a node: write "
			"HOST:NODEPORT, as skein_pool_addr() says it there",
			addr ? addr : "");
		return -EINVAL;
	}
	if (env_resolve(p->env, at.host, at.port, false, &sa, 1, &found) ||
	    !found) {
		env_log(p->env, ENV_LOG_ERROR,
			"vqp: cannot find host %s: check the name, or give an "
			"address",
			at.host);
		return -EINVAL;
	}
	front_gid(p, &sa, gid);
	return 0;
}

int skein_vqp_connect(struct skein_vqp *v, const char *addr, uint16_t port,
		      uint64_t timeout_ns)
{
	uint8_t gid[16];
	uint32_t node;
	int err;

	if (env_forked(v->pool->env))
		return -SKEIN_EFORKED;
	if (!port) {
		env_log(v->pool->env, ENV_LOG_ERROR,
			"vqp: port 0 of node %s: a vqp is bound to port 1 to "
			"65535",
			addr ? addr : "");
		return -EINVAL;
	}
	err = node_parse(v->pool, addr, gid, &node);
	if (err)
		return err;
	err = v->pool->front->connect(v, gid, node, port, timeout_ns);
	if (!err)
		v->qp.state = IBV_QPS_RTS;
	return err;
}

int skein_vqp_bind(struct skein_vqp *v, uint16_t port)
{
	int err = v->pool->front->bind(v, port);

	if (!err)
		v->qp.state = IBV_QPS_RTR;
	return err;
}

int skein_vqp_pop(struct skein_vqp *v, unsigned n, struct skein_vqp_msg *msgs)
{
	return v->pool->front->pop(v, n, msgs);
}

int skein_vqp_post_send(struct skein_vqp *v, struct ibv_send_wr *wr,
			struct ibv_send_wr **bad)
{
	*bad = wr;
	return v->pool->front->post_send(v, wr, bad);
}

int skein_vqp_post_recv(struct skein_vqp *v, struct ibv_recv_wr *wr,
			struct ibv_recv_wr **bad)
{
	*bad = wr;
	return v->pool->front->post_recv(v, wr, bad);
}

int skein_vqp_poll(struct skein_vqp *v, int n, struct ibv_wc *wc)
{
	return v->pool->front->poll(v, n, wc);
}
