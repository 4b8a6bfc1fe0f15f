/* SPDX-License-Identifier: MIT */
/*
 * lookup.c - connecting: algorithm 1 of KRCore. A node is in the cache, or its
 * two places at the meta server are READ, in one post, until one of them has it
 * or the deadline is over.
 */
#include "vqp/engine.h"

#include <errno.h>

static struct vqp *vqp_of(struct vqp_lookup *l)
{
	return container_of(l, struct vqp, lookup);
}

static void record_read(struct vqp_engine *e, struct vqp_lookup *l,
			unsigned which, uint32_t place, struct vqp_slot *s)
{
	s->kind = SLOT_LOOKUP;
	s->lookup = l;
	s->wr.opcode = IBV_WR_RDMA_READ;
	s->wr.wr_id = which;
	s->wr.num_sge = 1;
	s->wr.wr.rdma.remote_addr =
		e->meta_addr + (uint64_t)(1 + place) * META_RECORD;
	s->wr.wr.rdma.rkey = e->meta_rkey;
	s->sge[0] = (struct ibv_sge){(uintptr_t)vqp_cell(e, s), META_RECORD,
				     e->conf.cells_lkey};
	l->pending++;
	vqp_slot_queue(e->meta_vqp, s);
}

/* Both places in one post. */
static void lookup_begin(struct vqp_engine *e, struct vqp_lookup *l)
{
	struct vqp_slot *s[2];
	uint32_t at[2];

	if (!e->meta_vqp || e->meta_vqp->state != VQP_CONNECTED)
		return;
	s[0] = vqp_slot_get(e->meta_vqp);
	s[1] = s[0] ? vqp_slot_get(e->meta_vqp) : NULL;
	if (!s[1]) {
		if (s[0])
			vqp_slot_put(e, s[0]);
		return;
	}
	e->counts.lookups++;
	l->failed = false;
	meta_places(l->gid, l->port, e->meta_places, at);
	record_read(e, l, 0, at[0], s[0]);
	record_read(e, l, 1, at[1], s[1]);
}

static void lookup_end(struct vqp_engine *e, struct vqp_lookup *l)
{
	struct vqp *v = vqp_of(l);
	struct vqp_peer *p = NULL;
	enum meta_found found;
	struct meta_node n;

	found = meta_find(l->record[0], l->record[1], l->gid, l->port, &n);
	if (found == META_TORN && !PLANTED(e, SUM)) {
		e->counts.lookups_torn++;
		if (++l->torn < VQP_TORN_MAX) {
			lookup_begin(e, l);
			return;
		}
		e->counts.garbage++;
		l->torn = 0;
	}
	if (found == META_FOUND)
		p = vqp_peer_get(e, &n);
	if (!p) {
		l->again_ns = e->now_ns + VQP_LOOKUP_AGAIN_NS;
		return;
	}
	list_del(&l->link);
	vqp_join(v, p);
}

int vqp_lookups_run(struct vqp_engine *e)
{
	struct list_node *n, *next;
	struct vqp_lookup *l;
	int moved = 0;

	for (n = e->lookups.next; n != &e->lookups; n = next) {
		next = n->next;
		l = container_of(n, struct vqp_lookup, link);
		if (l->pending)
			continue;
		if (l->begun && !l->failed) {
			l->begun = false;
			moved++;
			lookup_end(e, l);
			l->begun = l->pending != 0;
			continue;
		}
		if (l->failed)
			l->again_ns = e->now_ns + VQP_LOOKUP_AGAIN_NS;
		l->failed = l->begun = false;
		if (e->now_ns < l->again_ns)
			continue;
		lookup_begin(e, l);
		l->begun = l->pending != 0;
	}
	return moved;
}

int vqp_connect(struct vqp *v, const uint8_t gid[16], uint32_t node_port,
		uint16_t port)
{
	struct vqp_engine *e = v->e;
	struct vqp_peer *p;

	if (v->state != VQP_NEW)
		return -EISCONN;
	v->far_port = port;
	v->by_port = true;
	p = vqp_peer_find(e, gid, node_port);
	if (p) {
		p->refs++;
		e->counts.cache_hits++;
		vqp_join(v, p);
		return 0;
	}
	v->state = VQP_LOOKS_UP;
	memset(&v->lookup, 0, sizeof(v->lookup));
	memcpy(v->lookup.gid, gid, 16);
	v->lookup.port = node_port;
	list_add_tail(&e->lookups, &v->lookup.link);
	vqp_lookups_run(e);
	vqp_pump(e);
	return -EINPROGRESS;
}

void vqp_connect_stop(struct vqp *v)
{
	uint32_t i;

	if (v->state != VQP_LOOKS_UP)
		return;
	for (i = 0; i < VQP_SLOTS; i++)
		if (v->e->slots[i].lookup == &v->lookup)
			v->e->slots[i].lookup = NULL;
	list_del(&v->lookup.link);
	v->state = VQP_NEW;
}

int vqp_engine_meta(struct vqp_engine *e, const struct meta_node *at,
		    uint64_t addr, uint32_t rkey, uint32_t places)
{
	struct vqp_peer *p;

	if (e->meta_vqp)
		vqp_free(e->meta_vqp);
	e->meta_vqp = NULL;
	if (!at)
		return 0;
	if (vqp_new(e, &e->meta_vqp))
		return -ENOMEM;
	p = vqp_peer_get(e, at);
	if (!p) {
		vqp_free(e->meta_vqp);
		e->meta_vqp = NULL;
		return -ENOMEM;
	}
	vqp_join(e->meta_vqp, p);
	e->meta_addr = addr;
	e->meta_rkey = rkey;
	e->meta_places = places;
	return 0;
}
