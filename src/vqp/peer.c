/* SPDX-License-Identifier: MIT */
/*
 * peer.c - nodes to which requests go: the cache of what DC needs of each, by
 * address. No incarnation is larger than another: one that is not known is newer
 * than the one that is, and one that was replaced never comes back: what is late
 * of it is dropped. A node that has failed leaves the cache, so that the next
 * connect looks it up.
 */
#include "vqp/engine.h"

#include <string.h>

static struct vqp_peer **peer_bucket(struct vqp_engine *e,
				     const uint8_t gid[16], uint32_t port)
{
	uint32_t at[2];

	meta_places(gid, port, VQP_PEER_BUCKETS, at);
	return &e->peers[at[0]];
}

struct vqp_peer *vqp_peer_find(struct vqp_engine *e, const uint8_t gid[16],
			       uint32_t port)
{
	struct vqp_peer *p = *peer_bucket(e, gid, port);

	while (p && !meta_same(&p->node, gid, port))
		p = p->next;
	return p;
}

static void peer_free(struct vqp_engine *e, struct vqp_peer *p)
{
	vqp_regions_free(e, p);
	if (list_linked(&p->wants_rc))
		list_del(&p->wants_rc);
	e->conf.port->way_free(e->conf.arg, p->way);
	e->conf.port->free(e->conf.arg, p);
}

void vqp_peer_put(struct vqp_engine *e, struct vqp_peer *p)
{
	if (!--p->refs && p->stale)
		peer_free(e, p);
}

void vqp_peer_forget(struct vqp_engine *e, struct vqp_peer *p)
{
	struct vqp_peer **at;

	if (p->stale)
		return;
	at = peer_bucket(e, p->node.gid, p->node.port);
	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	e->n_peers--;
	p->stale = true;
	if (!p->refs)
		peer_free(e, p);
}

static bool has_dc(struct vqp_engine *e, const struct meta_node *n)
{
	return !e->conf.port->has_dc || e->conf.port->has_dc(e->conf.arg, n);
}

bool vqp_dc_reaches(struct vqp_engine *e, const struct meta_node *n)
{
	return e->conf.dcis && n->dctn && has_dc(e, n);
}

static struct vqp_peer *peer_new(struct vqp_engine *e,
				 const struct meta_node *n)
{
	struct vqp_peer *p, **at;
	unsigned i;

	if (e->n_peers == VQP_MAX)
		return NULL;
	p = e->conf.port->alloc(e->conf.arg, sizeof(*p));
	if (!p)
		return NULL;
	p->node = *n;
	if (e->conf.port->way(e->conf.arg, n, &p->way)) {
		e->conf.port->free(e->conf.arg, p);
		return NULL;
	}
	p->dc = vqp_dc_reaches(e, n);
	p->dc_back = e->conf.self.dctn && has_dc(e, n);
	/* In turn: as few peers as can be have a DCI in common, so a peer that
	 * dies holds up few others. */
	for (i = 0; i < VQP_PEER_DCIS && e->conf.dcis; i++)
		p->dci[i] = (uint8_t)((e->peers_made +
				       i * ((e->conf.dcis + 1) / 2)) %
				      e->conf.dcis);
	e->peers_made++;
	at = peer_bucket(e, n->gid, n->port);
	p->next = *at;
	*at = p;
	e->n_peers++;
	return p;
}

static bool was_replaced(const struct vqp_peer *p, uint64_t incarnation)
{
	for (unsigned i = 0; i < VQP_LIVES; i++)
		if (p->was[i] && p->was[i] == incarnation)
			return true;
	return false;
}

struct vqp_peer *vqp_peer_get(struct vqp_engine *e, const struct meta_node *n)
{
	struct vqp_peer *p = vqp_peer_find(e, n->gid, n->port);
	uint64_t was[VQP_LIVES] = {0};

	if (p && n->incarnation != p->node.incarnation) {
		if (was_replaced(p, n->incarnation) && !PLANTED(e, LIVES))
			return NULL;
		was[0] = p->node.incarnation;
		memcpy(was + 1, p->was, sizeof(was) - sizeof(was[0]));
		vqp_rc_forget_in(e, p);
		vqp_peer_forget(e, p);
		p = NULL;
	}
	if (!p) {
		p = peer_new(e, n);
		if (p)
			memcpy(p->was, was, sizeof(was));
	}
	if (p)
		p->refs++;
	return p;
}
