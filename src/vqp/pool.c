/* SPDX-License-Identifier: MIT */
/*
 * pool.c - a pool of this process: its objects on the device, and the calls.
 * See pool.h.
 */
#include "vqp/pool.h"

#include "base/prng.h"
#include "env/local.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the engine's port -------------------------------------------------- */

static int port_post(void *arg, unsigned dci, struct ibv_send_wr *wr,
		     unsigned n, const struct vqp_peer *to)
{
	struct pool *p = arg;

	(void)n;
	return p->dev->ops->post_dc(p->dev, p->dci[dci], wr, to->way,
				    to->node.dctn, to->node.key);
}

static int port_poll(void *arg, int n, struct ibv_wc *wc)
{
	struct pool *p = arg;

	return ibv_poll_cq(p->scq, n, wc);
}

static int dci_make(struct pool *p, unsigned i)
{
	struct ibv_qp_init_attr a = {.send_cq = p->scq,
				     .recv_cq = p->scq,
				     .cap = {.max_send_wr = POOL_SQ,
					     .max_send_sge = VQP_SGES + 1}};

	return p->dev->ops->create_dci(p->dev, p->ctx->pd, &a, &p->opts,
				       &p->dci[i]);
}

static int port_replace(void *arg, unsigned dci)
{
	struct pool *p = arg;

	if (p->dci[dci]) {
		p->dev->ops->destroy_qp(p->dev, p->dci[dci]);
		p->dci[dci] = NULL;
	}
	return dci_make(p, dci);
}

static int port_way(void *arg, const struct meta_node *n, void **way)
{
	struct dev_qp_addr to = {.qpn = n->dctn ? n->dctn : 1,
				 .mtu = IBV_MTU_4096};
	struct pool *p = arg;
	struct ibv_ah_attr attr;
	struct ibv_ah *ah;
	int err;

	memcpy(&to.gid, n->gid, sizeof(n->gid));
	err = dev_ah_attr(p->dev, &to, NULL, &attr);
	if (!err)
		err = p->dev->ops->create_ah(p->dev, p->ctx->pd, &attr, &ah);
	if (!err)
		*way = ah;
	return err;
}

static void port_way_free(void *arg, void *way)
{
	struct pool *p = arg;

	p->dev->ops->destroy_ah(p->dev, way);
}

static bool mem_has(const struct pool_mem *m, uint32_t lkey, uint64_t addr,
		    uint32_t len, bool write)
{
	uint64_t start = (uintptr_t)m->region->addr;

	return m->region->mr->lkey == lkey && (!write || m->write) &&
	       addr >= start && len <= m->region->len &&
	       addr - start <= m->region->len - len;
}

static bool port_local_ok(void *arg, uint32_t lkey, uint64_t addr, uint32_t len,
			  bool write)
{
	struct pool *p = arg;
	struct pool_mem *m;
	struct list_node *n;

	if (p->last && mem_has(p->last, lkey, addr, len, write))
		return true;
	list_for_each(n, &p->mems) {
		m = container_of(n, struct pool_mem, link);
		if (!mem_has(m, lkey, addr, len, write))
			continue;
		p->last = m;
		return true;
	}
	return false;
}

/* Peers READ the word: two bytes are not torn. */
static void port_bound(void *arg, uint16_t port, uint16_t domain)
{
	uint16_t *at = (uint16_t *)(void *)((uint8_t *)((struct pool *)arg)
						    ->table->addr +
					    REGION_PORTS_AT);

	__atomic_store_n(&at[port], htole16(domain), __ATOMIC_RELEASE);
}

static void *port_alloc(void *arg, size_t len)
{
	return env_alloc(((struct pool *)arg)->env, len);
}

static void port_free(void *arg, void *mem)
{
	env_free(((struct pool *)arg)->env, mem);
}

static void port_log(void *arg, const char *line)
{
	env_log(((struct pool *)arg)->env, ENV_LOG_WARN, "%s", line);
}

static const struct vqp_port pool_port = {
	.post = port_post,
	.poll = port_poll,
	.replace = port_replace,
	.way = port_way,
	.way_free = port_way_free,
	.local_ok = port_local_ok,
	.bound = port_bound,
	.alloc = port_alloc,
	.free = port_free,
	.log = port_log,
};

/* --- messages ----------------------------------------------------------- */

static int recv_post(struct pool *p, uint64_t i)
{
	struct ibv_sge sge = {(uintptr_t)p->bufs->addr + i * MSG_BUF, MSG_BUF,
			      p->bufs->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1};
	struct ibv_recv_wr *bad;

	return -ibv_post_srq_recv(p->srq, &wr, &bad);
}

static int recv_round(struct pool *p)
{
	struct ibv_wc wc[16];
	int n, i;

	n = ibv_poll_cq(p->rcq, 16, wc);
	for (i = 0; i < n; i++) {
		const uint8_t *buf = (const uint8_t *)p->bufs->addr +
				     wc[i].wr_id % POOL_RECVS * MSG_BUF;

		if (wc[i].status == IBV_WC_SUCCESS &&
		    wc[i].opcode == IBV_WC_RECV)
			vqp_engine_receive(&p->e, buf, wc[i].byte_len);
		else
			p->e.counts.garbage++;
		recv_post(p, wc[i].wr_id % POOL_RECVS);
	}
	return n > 0 ? n : 0;
}

static void mem_free(struct pool_mem *m)
{
	struct pool *p = pool_of(m->base.pool);

	list_del(&m->link);
	if (m->counted)
		*m->counted -= m->region->len;
	mem_region_free(m->region);
	env_free(p->env, m);
}

/* Does a request that waits in software name it? The memory's owner may be
 * another process, which promises nothing. */
static bool mem_waited(struct pool *p, const struct pool_mem *m)
{
	const struct vqp_slot *s;
	uint32_t i;
	int k;

	for (i = 0; i < VQP_SLOTS; i++) {
		s = &p->e.slots[i];
		if (!s->v || s->posted)
			continue;
		for (k = 0; k < s->wr.num_sge; k++)
			if (s->sge[k].lkey == m->base.lkey)
				return true;
	}
	return false;
}

static void leases_end(struct pool *p, uint64_t now_ns)
{
	struct pool_mem *m;

	while (!list_empty(&p->leased)) {
		m = container_of(p->leased.next, struct pool_mem, link);
		if (now_ns < m->keep_ns)
			break;
		if (now_ns != UINT64_MAX && mem_waited(p, m)) {
			m->keep_ns = now_ns + REGION_KEEP_NS;
			list_del(&m->link);
			list_add_tail(&p->leased, &m->link);
			continue;
		}
		mem_free(m);
	}
}

int pool_round(struct pool *p)
{
	uint64_t now = env_now_ns(p->env);
	int moved = recv_round(p);

	moved += vqp_engine_round(&p->e, now);
	leases_end(p, now);
	publish_round(p, now);
	return moved;
}

/* --- open and close ----------------------------------------------------- */

static int memory_make(struct pool *p)
{
	int err;

	err = mem_region_new(p->dev, p->ctx->pd, "vqp-cells",
			     (size_t)VQP_SLOTS * VQP_CELL,
			     IBV_ACCESS_LOCAL_WRITE, 0, &p->cells);
	if (!err)
		err = mem_region_new(p->dev, p->ctx->pd, "vqp-messages",
				     (size_t)POOL_RECVS * MSG_BUF,
				     IBV_ACCESS_LOCAL_WRITE, 0, &p->bufs);
	if (!err)
		err = mem_region_new(
			p->dev, p->ctx->pd, "vqp-regions", REGION_TABLE_LEN,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, 0,
			&p->table);
	return err;
}

static int objects_make(struct pool *p, uint64_t key)
{
	struct ibv_srq_init_attr a = {
		.attr = {.max_wr = POOL_RECVS, .max_sge = 1}};
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	const struct dev_ops *ops = p->dev->ops;
	unsigned i;
	int err;

	err = ops->create_cq(p->dev, (int)(2 * p->n_dcis * POOL_SQ), NULL,
			     p->channel, &p->scq);
	if (!err)
		err = ops->create_cq(p->dev, 2 * POOL_RECVS, NULL, p->channel,
				     &p->rcq);
	if (!err)
		err = ops->create_srq(p->dev, p->ctx->pd, &a, &p->srq);
	if (!err)
		err = ops->create_dct(p->dev, p->ctx->pd, p->rcq, p->srq, key,
				      access, &p->opts, &p->dct);
	for (i = 0; i < p->n_dcis && !err; i++)
		err = dci_make(p, i);
	for (i = 0; i < POOL_RECVS && !err; i++)
		err = recv_post(p, i);
	return err;
}

static void opts_fill(struct pool *p, uint64_t retry_ns)
{
	uint64_t each = (retry_ns ? retry_ns : 20000000) / 5;
	uint8_t t = 0;

	while (t < 31 && (4096ull << t) < each)
		t++;
	p->opts = (struct dev_qp_opts){
		.timeout = t ? t : 1, .retry_cnt = 4, .min_rnr_timer = 5};
}

static void addr_print(struct pool *p)
{
	const uint8_t *g = p->dev->gid.gid.raw;
	static const uint8_t mapped[12] = {0, 0, 0, 0, 0,    0,
					   0, 0, 0, 0, 0xff, 0xff};
	char host[INET6_ADDRSTRLEN];

	if (!memcmp(g, mapped, sizeof(mapped))) {
		inet_ntop(AF_INET, g + 12, host, sizeof(host));
		snprintf(p->base.addr, sizeof(p->base.addr), "%s:%u", host,
			 p->own.port);
	} else {
		inet_ntop(AF_INET6, g, host, sizeof(host));
		snprintf(p->base.addr, sizeof(p->base.addr), "[%s]:%u", host,
			 p->own.port);
	}
}

static int pool_up(struct pool *p, const struct skein_pool_attr *a)
{
	struct meta_node *own = &p->own;
	struct vqp_conf c = {.port = &pool_port, .arg = p};
	const char *meta = a->meta ? a->meta : getenv("SKEIN_META");
	uint32_t i;
	int err;

	p->n_dcis = a->dcis ? a->dcis : 8;
	if (p->n_dcis > VQP_DCIS_MAX || a->retry_ns > REGION_RETRY_NS)
		return -ERANGE;
	opts_fill(p, a->retry_ns);
	memcpy(own->gid, p->dev->gid.gid.raw, sizeof(own->gid));
	own->port = a->node_port;
	own->key = env_random_u64(p->env);
	own->incarnation = env_now_ns(p->env);
	err = memory_make(p);
	if (!err)
		err = objects_make(p, own->key);
	if (err)
		return err;
	own->dctn = p->dct->qp_num;
	own->table = (uintptr_t)p->table->addr;
	own->table_rkey = p->table->mr->rkey;
	/* An id of an earlier pool matches no region, except by chance. */
	for (i = 0; i < REGION_PLACES; i++)
		p->place[i].gen = (uint16_t)prng_mix(own->key + i);
	while (!own->port)
		own->port = 1024 + env_random_u64(p->env) % 64512;
	c.dcis = p->n_dcis;
	c.sq_max = POOL_SQ;
	c.cq_max = p->n_dcis * POOL_SQ;
	c.cells = p->cells->addr;
	c.cells_lkey = p->cells->mr->lkey;
	c.self = *own;
	c.lookup_wait_ns = a->meta_wait_ns;
	err = vqp_engine_init(&p->e, &c);
	if (err)
		return err;
	p->engine_up = true;
	err = publish_open(p, meta ? meta : META_DEFAULT, !a->node_port,
			   a->timeout_ns ? a->timeout_ns : SKEIN_S(5));
	p->e.conf.self = *own; /* its number may have changed */
	addr_print(p);
	return err;
}

void pool_free(struct pool *p)
{
	const struct dev_ops *ops = p->dev->ops;
	struct pool_vqp *v;
	unsigned i;

	publish_close(p);
	while (!list_empty(&p->vqps)) {
		v = container_of(p->vqps.next, struct pool_vqp, link);
		list_del(&v->link);
		env_free(p->env, v);
	}
	/* First the QPs: then no request of this pool is under way. */
	for (i = 0; i < p->n_dcis; i++)
		if (p->dci[i])
			ops->destroy_qp(p->dev, p->dci[i]);
	if (p->dct)
		ops->destroy_qp(p->dev, p->dct);
	if (p->engine_up)
		vqp_engine_fini(&p->e);
	if (p->srq)
		ops->destroy_srq(p->dev, p->srq);
	if (p->rcq)
		ops->destroy_cq(p->dev, p->rcq);
	if (p->scq)
		ops->destroy_cq(p->dev, p->scq);
	leases_end(p, UINT64_MAX);
	while (!list_empty(&p->mems))
		mem_free(container_of(p->mems.next, struct pool_mem, link));
	if (p->table)
		mem_region_free(p->table);
	if (p->cells)
		mem_region_free(p->cells);
	if (p->bufs)
		mem_region_free(p->bufs);
	env_mutex_fini(p->env, &p->lock);
	env_free(p->env, p);
}

/* -SKEIN_EFORKED, or 0 with the lock. */
static int enter(struct pool *p)
{
	if (ctx_forked(p->ctx))
		return -SKEIN_EFORKED;
	env_mutex_lock(p->env, &p->lock);
	return 0;
}

static void leave(struct pool *p)
{
	env_mutex_unlock(p->env, &p->lock);
}

static int progress(struct skein_pool *base)
{
	struct pool *p = pool_of(base);
	int err = enter(p);

	if (err)
		return err;
	err = pool_round(p);
	leave(p);
	return err;
}

static void stats(struct skein_pool *base, struct skein_pool_stats *st)
{
	struct pool *p = pool_of(base);
	const struct vqp_counts *c = &p->e.counts;
	struct skein_pool_stats s = {.size = sizeof(s)};
	unsigned i;

	if (enter(p))
		return;
	s.lookups = c->lookups;
	s.lookups_torn = c->lookups_torn;
	s.cache_hits = c->cache_hits;
	s.posts = c->posts;
	s.requests = c->requests;
	s.dcis_replaced = c->dcis_replaced;
	s.reposted = c->reposted;
	s.garbage = c->garbage;
	s.dropped = c->dropped;
	for (i = 0; i < p->n_publish; i++)
		s.publishes += p->publish[i].count;
	s.region_reads = c->region_reads;
	leave(p);
	/* It fails for a wrong size, and writes nothing then. */
	(void)ctx_struct_fill(st, sizeof(size_t), &s, sizeof(s));
}

/* --- memory ------------------------------------------------------------- */

#define REMOTE_RIGHTS                                       \
	(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_ATOMIC)

static uint8_t *record_of(struct pool *p, uint32_t place)
{
	return (uint8_t *)p->table->addr + (size_t)place * REGION_RECORD;
}

/* Peers may READ the record at any moment: its checksum shows a torn one. */
static int region_publish(struct pool *p, struct pool_mem *m, unsigned access,
			  uint16_t domain, uint32_t was)
{
	struct region_record r = {.addr = (uintptr_t)m->region->addr,
				  .len = m->region->len,
				  .rkey = m->region->mr->rkey,
				  .access = access & REMOTE_RIGHTS,
				  .domain = domain};
	uint32_t i = region_place(was);

	if (!r.access)
		return 0;
	if (!i || i >= REGION_PLACES || p->place[i].used)
		for (i = 1; i < REGION_PLACES && p->place[i].used; i++)
			;
	if (i == REGION_PLACES)
		return -ENOSPC;
	do
		p->place[i].gen++;
	while (!p->place[i].gen || p->place[i].gen == was >> 16);
	p->place[i].used = true;
	m->base.id = r.id = (uint32_t)p->place[i].gen << 16 | i;
	region_encode(&r, record_of(p, i));
	return 0;
}

/* Takes the region over if it returns 0. */
static int mem_add(struct pool *p, struct mem_region *region, unsigned access,
		   uint16_t domain, uint32_t was, struct pool_mem **mem)
{
	struct pool_mem *m = env_alloc(p->env, sizeof(*m));
	int err;

	if (!m)
		return -ENOMEM;
	m->region = region;
	m->base.pool = &p->base;
	m->base.addr = m->region->addr;
	m->base.raddr = (uintptr_t)m->region->addr;
	m->base.lkey = m->region->mr->lkey;
	m->write = true;
	err = region_publish(p, m, access, domain, was);
	if (err) {
		env_free(p->env, m);
		return err;
	}
	list_add_tail(&p->mems, &m->link);
	*mem = m;
	return 0;
}

int pool_mem_make(struct pool *p, size_t len, unsigned access, uint16_t domain,
		  struct pool_mem **mem)
{
	struct mem_region *region;
	int err;

	err = mem_region_new(p->dev, p->ctx->pd, "vqp", len,
			     (int)access | IBV_ACCESS_LOCAL_WRITE, 0, &region);
	if (err)
		return err;
	err = mem_add(p, region, access, domain, 0, mem);
	if (err)
		mem_region_free(region);
	return err;
}

int pool_mem_adopt(struct pool *p, int fd, size_t len, unsigned access,
		   uint16_t domain, uint32_t was, struct pool_mem **mem)
{
	struct mem_region *region;
	void *addr;
	int err;

	err = local_fill(fd, len);
	if (!err)
		err = local_map(fd, len, true, &addr);
	if (err)
		return err;
	err = mem_region_adopt(p->dev, p->ctx->pd, fd, addr, len,
			       (int)access | IBV_ACCESS_LOCAL_WRITE, 0,
			       &region);
	if (err) {
		local_unmap(addr, len);
		return err;
	}
	err = mem_add(p, region, access, domain, was, mem);
	if (err) {
		region->fd = -1; /* the caller's */
		mem_region_free(region);
		local_unmap(addr, len);
	}
	return err;
}

void pool_mem_retire(struct pool_mem *m)
{
	struct pool *p = pool_of(m->base.pool);

	if (p->last == m)
		p->last = NULL;
	if (m->base.id) {
		memset(record_of(p, region_place(m->base.id)), 0,
		       REGION_RECORD);
		p->place[region_place(m->base.id)].used = false;
	}
	m->keep_ns = env_now_ns(p->env) + REGION_KEEP_NS;
	list_del(&m->link);
	list_add_tail(&p->leased, &m->link);
}

static int mem_new(struct skein_pool *base, size_t len, unsigned access,
		   struct skein_vqp_mem **mem)
{
	struct pool *p = pool_of(base);
	struct pool_mem *m;
	int err = enter(p);

	if (err)
		return err;
	err = pool_mem_make(p, len, access, 0, &m);
	if (!err)
		*mem = &m->base;
	leave(p);
	return err;
}

static void mem_end(struct skein_vqp_mem *base)
{
	struct pool_mem *m = container_of(base, struct pool_mem, base);
	struct pool *p = pool_of(base->pool);

	if (enter(p))
		return;
	if (p->last == m)
		p->last = NULL;
	if (base->id)
		pool_mem_retire(m);
	else
		mem_free(m);
	leave(p);
}

/* --- vqps --------------------------------------------------------------- */

static struct pool_vqp *handle_of(struct skein_vqp *vqp)
{
	return container_of(vqp, struct pool_vqp, base);
}

static struct pool_vqp *handle_new(struct pool *p, struct vqp *v)
{
	struct pool_vqp *h = env_alloc(p->env, sizeof(*h));

	if (!h)
		return NULL;
	verbs_vqp_init(&h->base, &p->base, v->id, v->state == VQP_CONNECTED);
	h->v = v;
	v->front = h;
	v->ours = false;
	list_add_tail(&p->vqps, &h->link);
	return h;
}

static int new (struct skein_pool *base, struct skein_vqp **vqp)
{
	struct pool *p = pool_of(base);
	struct pool_vqp *h = NULL;
	struct vqp *v;
	int err = enter(p);

	if (err)
		return err;
	err = vqp_new(&p->e, &v);
	if (!err) {
		h = handle_new(p, v);
		if (!h)
			vqp_free(v);
	}
	leave(p);
	if (err || !h)
		return -ENOMEM;
	*vqp = &h->base;
	return 0;
}

static void end(struct skein_vqp *vqp)
{
	struct pool_vqp *h = handle_of(vqp);
	struct pool *p = pool_of(vqp->pool);

	if (enter(p))
		return;
	vqp_free(h->v);
	list_del(&h->link);
	env_free(p->env, h);
	leave(p);
}

static int connect_to(struct skein_vqp *vqp, const uint8_t gid[16],
		      uint32_t node_port, uint16_t port, uint64_t timeout_ns)
{
	struct pool_vqp *h = handle_of(vqp);
	struct pool *p = pool_of(vqp->pool);
	uint64_t deadline;
	int err;

	err = enter(p);
	if (err)
		return err;
	vqp_engine_at(&p->e, env_now_ns(p->env));
	deadline = env_deadline(p->e.now_ns, timeout_ns);
	err = vqp_connect(h->v, gid, node_port, port);
	while (err == -EINPROGRESS) {
		pool_round(p);
		if (h->v->state != VQP_LOOKS_UP) {
			err = 0;
		} else if (env_now_ns(p->env) >= deadline) {
			err = vqp_connect_stop(h->v);
		} else {
			leave(p);
			env_yield(p->env);
			env_mutex_lock(p->env, &p->lock);
		}
	}
	leave(p);
	return err;
}

static int bind_to(struct skein_vqp *vqp, uint16_t port)
{
	struct pool *p = pool_of(vqp->pool);
	int err = enter(p);

	if (err)
		return err;
	err = vqp_bind(handle_of(vqp)->v, port);
	leave(p);
	return err;
}

static bool msg_fill(struct pool *p, const struct vqp_pop_out *in,
		     struct skein_vqp_msg *out)
{
	struct pool_vqp *from = in->from->front;

	if (!from)
		from = handle_new(p, in->from);
	*out = (struct skein_vqp_msg){.from = from ? &from->base : NULL,
				      .wr_id = in->wr_id,
				      .len = in->len,
				      .imm = in->imm,
				      .with_imm = in->with_imm,
				      .status = in->status};
	if (!from)
		out->status = -ENOMEM;
	return true;
}

static int pop(struct skein_vqp *vqp, unsigned n, struct skein_vqp_msg *msgs)
{
	struct pool_vqp *h = handle_of(vqp);
	struct pool *p = pool_of(vqp->pool);
	struct vqp_pop_out m;
	unsigned got = 0;
	int err = enter(p);

	if (err)
		return err;
	if (h->v->state != VQP_BOUND) {
		leave(p);
		return -EINVAL;
	}
	pool_round(p);
	while (got < n && vqp_pop(h->v, &m) && msg_fill(p, &m, &msgs[got]))
		got++;
	leave(p);
	return (int)got;
}

static int post_send(struct skein_vqp *vqp, struct ibv_send_wr *wr,
		     struct ibv_send_wr **bad)
{
	struct pool_vqp *h = handle_of(vqp);
	struct pool *p = pool_of(vqp->pool);
	int err;

	err = enter(p);
	if (err)
		return err;
	vqp_engine_at(&p->e, env_now_ns(p->env));
	err = vqp_post_send(h->v, wr, bad);
	leave(p);
	return err;
}

static int post_recv(struct skein_vqp *vqp, struct ibv_recv_wr *wr,
		     struct ibv_recv_wr **bad)
{
	struct pool_vqp *h = handle_of(vqp);
	struct pool *p = pool_of(vqp->pool);
	int err;

	err = enter(p);
	if (err)
		return err;
	err = vqp_post_recv(h->v, wr, bad);
	leave(p);
	return err;
}

static int poll_it(struct skein_vqp *vqp, int n, struct ibv_wc *wc)
{
	struct pool_vqp *h = handle_of(vqp);
	struct pool *p = pool_of(vqp->pool);
	int got = enter(p);

	if (got)
		return got;
	pool_round(p);
	got = vqp_poll(h->v, n, wc);
	leave(p);
	return got;
}

static void close_it(struct skein_pool *p)
{
	pool_free(pool_of(p));
}

static const struct vqp_front pool_front = {
	.close = close_it,
	.progress = progress,
	.stats = stats,
	.mem_new = mem_new,
	.mem_free = mem_end,
	.vqp_new = new,
	.vqp_free = end,
	.connect = connect_to,
	.bind = bind_to,
	.pop = pop,
	.post_send = post_send,
	.post_recv = post_recv,
	.poll = poll_it,
};

int pool_make(struct skein_ctx *ctx, const struct skein_pool_attr *a,
	      struct ibv_comp_channel *channel, struct pool **pool)
{
	struct pool *p;
	int err;

	if (!ctx->dev->caps.dc || !ctx->dev->caps.srq) {
		env_log(ctx->env, ENV_LOG_ERROR,
			"vqp: %s has no dynamically connected transport (DC)",
			ctx->device);
		return -EOPNOTSUPP;
	}
	p = env_alloc(ctx->env, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->ctx = ctx;
	p->env = ctx->env;
	p->dev = ctx->dev;
	p->channel = channel;
	p->base.front = &pool_front;
	p->base.env = ctx->env;
	verbs_pool_init(&p->base);
	memcpy(p->base.gid, p->dev->gid.gid.raw, 16);
	env_mutex_init(p->env, &p->lock);
	list_init(&p->mems);
	list_init(&p->leased);
	list_init(&p->vqps);
	err = pool_up(p, a);
	if (err) {
		pool_free(p);
		return err;
	}
	*pool = p;
	return 0;
}

int pool_embed(struct skein_ctx *ctx, const struct skein_pool_attr *a,
	       struct skein_pool **pool)
{
	struct pool *p;
	int err = pool_make(ctx, a, NULL, &p);

	if (!err)
		*pool = &p->base;
	return err;
}
