/* SPDX-License-Identifier: MIT */
/*
 * cache.c - what pools believe of other nodes: a record in a cache must be one
 * that a node has published, not a mixture of two. See vqp.h.
 *
 * A node's record is known once its pool is made; it is at the meta servers a
 * little before. Until then, and if its process dies meanwhile, nothing is said
 * of it.
 */
#include "sim/vqp/vqp.h"

#include <string.h>

void cache_node(struct node *n)
{
	if (n->n_own == LIVES)
		n->unsure = true;
	else
		n->own[n->n_own++] = n->pool->own;
}

void cache_region(struct node *n, const struct pool_mem *m)
{
	n->records[n->n_records++ % RECORDS] =
		(struct region_record){.addr = m->base.raddr,
				       .len = m->region->len,
				       .id = m->base.id,
				       .rkey = m->region->mr->rkey};
}

static struct node *node_of_gid(struct run *run, const uint8_t gid[16])
{
	const struct party *p = &run->party;

	for (unsigned i = p->n_servers; i < party_actors(p); i++)
		if (run->nodes[i].known &&
		    !memcmp(run->nodes[i].gid, gid, sizeof(run->nodes[i].gid)))
			return &run->nodes[i];
	return NULL;
}

static bool is_own(const struct node *to, const struct meta_node *n)
{
	for (unsigned i = 0; i < to->n_own; i++) {
		const struct meta_node *own = &to->own[i];

		if (own->port == n->port && own->dctn == n->dctn &&
		    own->udqpn == n->udqpn && own->key == n->key &&
		    own->incarnation == n->incarnation &&
		    own->table_rkey == n->table_rkey && own->table == n->table)
			return true;
	}
	return false;
}

/* One that is too old to be remembered passes. */
static bool is_record(const struct node *to, const struct region_record *r)
{
	for (unsigned i = 0; i < RECORDS && i < to->n_records; i++) {
		const struct region_record *own = &to->records[i];

		if (own->id == r->id)
			return own->addr == r->addr && own->len == r->len &&
			       own->rkey == r->rkey;
	}
	return true;
}

static void peer_check(struct node *n, const struct vqp_peer *p)
{
	struct node *to = node_of_gid(n->run, p->node.gid);
	const struct vqp_region *r;

	if (!to || !to->pool)
		return;
	if (!to->unsure && !is_own(to, &p->node))
		report_fail(n->run->party.rep,
			    "node %u believes a record that node %u has not "
			    "written",
			    n->a.i, to->a.i);
	for (r = p->regions; r && p->node.port == to->port; r = r->next)
		if (r->known && !is_record(to, &r->r))
			report_fail(n->run->party.rep,
				    "node %u believes a record of a region "
				    "that node %u has not written",
				    n->a.i, to->a.i);
}

void cache_check(struct node *n)
{
	const struct vqp_peer *p;

	for (unsigned i = 0; i < VQP_PEER_BUCKETS; i++)
		for (p = n->pool->e.peers[i]; p; p = p->next)
			peer_check(n, p);
}
