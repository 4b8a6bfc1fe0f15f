/* SPDX-License-Identifier: MIT */
/*
 * region.c - records of regions: their bytes, and the cache of those of a peer.
 * A missing record is not remembered: the next request asks again.
 */
#include "vqp/check.h"

#include <errno.h>

enum {
	R_ADDR = 0,
	R_LEN = 8,
	R_ID = 16,
	R_RKEY = 20,
	R_ACCESS = 24,
	R_VERSION = 28,
	R_DOMAIN = 32,
	R_ZERO = 36, /* zero up to the sum */
	R_SUM = 56,
};

#define VERSION 2u
#define RIGHTS                                              \
	(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_ATOMIC)

void region_encode(const struct region_record *r, uint8_t *buf)
{
	memset(buf, 0, REGION_RECORD);
	put_le64(buf + R_ADDR, r->addr);
	put_le64(buf + R_LEN, r->len);
	put_le32(buf + R_ID, r->id);
	put_le32(buf + R_RKEY, r->rkey);
	put_le32(buf + R_ACCESS, r->access);
	put_le32(buf + R_VERSION, VERSION);
	put_le32(buf + R_DOMAIN, r->domain);
	put_le64(buf + R_SUM, meta_sum(buf));
}

int region_decode(const uint8_t *buf, struct region_record *r)
{
	static const uint8_t zero[REGION_RECORD];
	struct region_record out;

	if (!memcmp(buf, zero, REGION_RECORD))
		return -ENOENT;
	if (get_le64(buf + R_SUM) != meta_sum(buf))
		return -EBADMSG;
	out.addr = get_le64(buf + R_ADDR);
	out.len = get_le64(buf + R_LEN);
	out.id = get_le32(buf + R_ID);
	out.rkey = get_le32(buf + R_RKEY);
	out.access = get_le32(buf + R_ACCESS);
	out.domain = get_le32(buf + R_DOMAIN);
	if (!region_place(out.id) || region_place(out.id) >= REGION_PLACES ||
	    !(out.id >> 16) || out.access & ~(uint32_t)RIGHTS ||
	    out.addr + out.len < out.addr ||
	    get_le32(buf + R_VERSION) != VERSION || out.domain > UINT16_MAX ||
	    memcmp(buf + R_ZERO, zero, R_SUM - R_ZERO))
		return -EBADMSG;
	*r = out;
	return 0;
}

/* --- the cache ---------------------------------------------------------- */

static uint32_t id_of(const struct ibv_send_wr *wr)
{
	return is_atomic(wr) ? wr->wr.atomic.rkey : wr->wr.rdma.rkey;
}

static uint64_t addr_of(const struct ibv_send_wr *wr)
{
	return is_atomic(wr) ? wr->wr.atomic.remote_addr
			     : wr->wr.rdma.remote_addr;
}

static uint32_t right_of(const struct ibv_send_wr *wr)
{
	if (is_atomic(wr))
		return IBV_ACCESS_REMOTE_ATOMIC;
	return wr->opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_REMOTE_READ
					      : IBV_ACCESS_REMOTE_WRITE;
}

static bool allows(const struct vqp_engine *e, const struct region_record *r,
		   const struct vqp_slot *s)
{
	uint64_t at = addr_of(&s->wr);

	return PLANTED(e, REGION) ||
	       ((r->access & right_of(&s->wr)) && at >= r->addr &&
		s->len <= r->len && at - r->addr <= r->len - s->len);
}

/* Takes the region off its list; NULL: it is not there. */
static struct vqp_region *take_out(struct vqp_peer *p, uint32_t id)
{
	struct vqp_region **at, *r;

	for (at = &p->regions; (r = *at); at = &r->next)
		if (r->r.id == id) {
			*at = r->next;
			return r;
		}
	return NULL;
}

/* Drops the region that was unused longest and has no READ under way. */
static void drop_one(struct vqp_engine *e, struct vqp_peer *p)
{
	struct vqp_region **at, **last = NULL, *r;

	for (at = &p->regions; *at; at = &(*at)->next)
		if (!(*at)->pending)
			last = at;
	if (!last)
		return;
	r = *last;
	*last = r->next;
	p->n_regions--;
	e->conf.port->free(e->conf.arg, r);
}

static struct vqp_region *find(struct vqp_engine *e, struct vqp_peer *p,
			       uint32_t id)
{
	struct vqp_region *r = p->regions;

	if (r && r->r.id == id)
		return r;
	r = take_out(p, id);
	if (!r) {
		if (p->n_regions >= REGIONS_CACHED)
			drop_one(e, p);
		if (p->n_regions >= REGIONS_CACHED)
			return NULL;
		r = e->conf.port->alloc(e->conf.arg, sizeof(*r));
		if (!r)
			return NULL;
		r->r.id = id;
		p->n_regions++;
	}
	r->next = p->regions;
	p->regions = r;
	return r;
}

/* Queues the READ before all that waits in v. */
static void ask(struct vqp *v, struct vqp_region *r)
{
	struct vqp_engine *e = v->e;
	struct vqp_slot *s;

	if (r->pending)
		return;
	s = vqp_slot_get(v);
	if (!s)
		return;
	s->kind = SLOT_REGION;
	s->region = r;
	s->len = REGION_RECORD;
	s->wr.opcode = IBV_WR_RDMA_READ;
	s->wr.num_sge = 1;
	s->wr.wr.rdma.remote_addr =
		v->peer->node.table + region_place(r->r.id) * REGION_RECORD;
	s->wr.wr.rdma.rkey = v->peer->node.table_rkey;
	s->sge[0] = (struct ibv_sge){(uintptr_t)vqp_cell(e, s), REGION_RECORD,
				     e->conf.cells_lkey};
	r->pending = true;
	e->counts.region_reads++;
	list_add_head(&v->queue, &s->link);
}

/* Queues a READ, before all that waits in v: of the domain of the port that v
 * is connected to. */
static enum region_verdict domain_ask(struct vqp *v)
{
	struct vqp_slot *s;

	if (v->asks_domain)
		return REGION_UNKNOWN;
	s = vqp_slot_get(v);
	if (!s)
		return REGION_UNKNOWN;
	s->kind = SLOT_PORT;
	s->len = 2;
	s->wr.opcode = IBV_WR_RDMA_READ;
	s->wr.num_sge = 1;
	s->wr.wr.rdma.remote_addr =
		v->peer->node.table + REGION_PORTS_AT + 2u * v->far_port;
	s->wr.wr.rdma.rkey = v->peer->node.table_rkey;
	s->sge[0] = (struct ibv_sge){(uintptr_t)vqp_cell(v->e, s), 2,
				     v->e->conf.cells_lkey};
	v->asks_domain = true;
	list_add_head(&v->queue, &s->link);
	return REGION_UNKNOWN;
}

void vqp_port_read(struct vqp_slot *s)
{
	const uint8_t *at = vqp_cell(s->v->e, s);

	s->v->far_domain = (uint16_t)(at[0] | at[1] << 8);
	s->v->knows_domain = true;
}

static enum region_verdict domain_check(struct vqp *v,
					const struct region_record *r)
{
	if (!r->domain || PLANTED(v->e, DOMAIN))
		return REGION_GOOD;
	if (!v->knows_domain)
		return domain_ask(v);
	return v->far_domain == r->domain ? REGION_GOOD : REGION_WRONG;
}

/* Until when a lease lets the engine post. */
static uint64_t use_ns(const struct vqp_engine *e)
{
	if (PLANTED(e, LEASE))
		return UINT64_MAX;
	return PLANTED(e, LEASE_MARGIN) ? REGION_KEEP_NS : REGION_USE_NS;
}

enum region_verdict vqp_region_check(struct vqp *v, const struct vqp_slot *s,
				     uint32_t *rkey)
{
	struct vqp_engine *e = v->e;
	uint32_t id = id_of(&s->wr);
	enum region_verdict is;
	struct vqp_region *r;
	uint64_t age;

	if (!v->peer->node.table || !region_place(id) || !(id >> 16) ||
	    region_place(id) >= REGION_PLACES)
		return REGION_WRONG;
	r = find(e, v->peer, id);
	if (!r)
		return REGION_UNKNOWN;
	/* An answer counts for requests that waited for it. */
	if (r->refused && s->since_ns <= r->asked_ns)
		return REGION_WRONG;
	age = e->now_ns - r->since_ns;
	if (!r->known || age >= use_ns(e)) {
		ask(v, r);
		return REGION_UNKNOWN;
	}
	if (!allows(e, &r->r, s))
		return REGION_WRONG;
	is = domain_check(v, &r->r);
	if (is != REGION_GOOD)
		return is;
	if (age >= REGION_AGAIN_NS)
		ask(v, r);
	*rkey = r->r.rkey;
	return REGION_GOOD;
}

void vqp_region_posted(struct vqp_slot *s)
{
	s->region->asked_ns = s->v->e->now_ns;
	s->region->refused = false;
}

void vqp_region_read(struct vqp_engine *e, struct vqp_slot *s)
{
	struct vqp_region *r = s->region;
	struct region_record got;
	int err;

	if (PLANTED(e, REGION_NO_SUM))
		put_le64(vqp_cell(e, s) + R_SUM, meta_sum(vqp_cell(e, s)));
	err = region_decode(vqp_cell(e, s), &got);
	if (err == -EBADMSG && PLANTED(e, REGION_SUM))
		err = -ENOENT;
	if (err == -EBADMSG && ++r->torn < VQP_TORN_MAX)
		return; /* the request that waits for it asks again */
	e->counts.garbage += err == -EBADMSG;
	r->torn = 0;
	r->refused = err || got.id != r->r.id;
	r->known = !r->refused;
	if (!r->known)
		return;
	r->r = got;
	r->since_ns = PLANTED(e, LEASE_LATE) ? e->now_ns : r->asked_ns;
}

void vqp_region_over(struct vqp_slot *s)
{
	s->region->pending = false;
	s->region = NULL;
}

void vqp_regions_free(struct vqp_engine *e, struct vqp_peer *p)
{
	struct vqp_region *r;

	while ((r = p->regions)) {
		p->regions = r->next;
		e->conf.port->free(e->conf.arg, r);
	}
}
