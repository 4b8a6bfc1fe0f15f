/* SPDX-License-Identifier: MIT */
/*
 * lookup.c - connecting: algorithm 1 of KRCore. If the node is not in the
 * cache, the engine READs its two places at a meta server, in one post, until
 * one of them has the node or the deadline is over. Where DC does not reach the
 * server the port READs them.
 *
 * There may be two meta servers. The second is asked too if the first has not
 * answered in time, does not know the node, or shows torn records. The answer
 * that finds the node first counts.
 */
#include "vqp/engine.h"

#include <errno.h>

static void record_read(struct vqp_engine *e, const struct vqp_meta *m,
			struct vqp_meta_lookup *at, unsigned which,
			uint32_t place, struct vqp_slot *s)
{
	s->kind = SLOT_LOOKUP;
	s->asked = at;
	s->wr.opcode = IBV_WR_RDMA_READ;
	s->wr.wr_id = which;
	s->wr.num_sge = 1;
	s->wr.wr.rdma.remote_addr =
		m->addr + (uint64_t)(1 + place) * META_RECORD;
	s->wr.wr.rdma.rkey = m->rkey;
	s->sge[0] = (struct ibv_sge){(uintptr_t)vqp_cell(e, s), META_RECORD,
				     e->conf.cells_lkey};
	at->pending++;
	vqp_slot_queue(m->v, s, false);
}

static bool can_ask(const struct vqp_meta *m)
{
	return m->v ? m->v->state == VQP_CONNECTED : m->by_port;
}

bool vqp_engine_has_meta(const struct vqp_engine *e)
{
	unsigned i;

	for (i = 0; i < VQP_METAS; i++)
		if (can_ask(&e->meta[i]))
			return true;
	return false;
}

static void asked(struct vqp_engine *e, struct vqp_meta_lookup *at)
{
	e->counts.lookups++;
	at->asked = true;
	at->failed = false;
	at->since_ns = e->now_ns;
}

static int ask_port(struct vqp_engine *e, struct vqp_meta_lookup *at,
		    unsigned server, const uint32_t place[2])
{
	uint64_t token = ++e->last_token;
	int err;

	err = e->conf.port->meta_read(e->conf.arg, server, place, token);
	if (err)
		return err;
	asked(e, at);
	at->pending = 1;
	at->token = token;
	return 0;
}

/* READs both places in one post. -ENOTCONN; -ENOMEM: no slots now. */
static int ask(struct vqp_engine *e, struct vqp_lookup *l, unsigned server)
{
	const struct vqp_meta *m = &e->meta[server];
	struct vqp_meta_lookup *at = &l->at[server];
	struct vqp_slot *s[2];
	uint32_t place[2];

	if (!can_ask(m))
		return -ENOTCONN;
	meta_places(l->gid, l->port, m->places, place);
	if (!m->v)
		return ask_port(e, at, server, place);
	s[0] = vqp_slot_get(m->v);
	s[1] = s[0] ? vqp_slot_get(m->v) : NULL;
	if (!s[1]) {
		if (s[0])
			vqp_slot_put(e, s[0]);
		return -ENOMEM;
	}
	asked(e, at);
	record_read(e, m, at, 0, place[0], s[0]);
	record_read(e, m, at, 1, place[1], s[1]);
	return 0;
}

/* Answers that have not come yet are ignored. */
static void asked_forget(struct vqp_engine *e, struct vqp_lookup *l)
{
	unsigned i, k;

	for (i = 0; i < VQP_METAS; i++) {
		if (!l->at[i].pending)
			continue;
		for (k = 0; k < VQP_SLOTS; k++)
			if (e->slots[k].asked == &l->at[i])
				e->slots[k].asked = NULL;
		l->at[i].pending = 0;
		l->at[i].token = 0;
	}
}

void vqp_engine_meta_read(struct vqp_engine *e, uint64_t token, bool ok,
			  const uint8_t *records)
{
	struct vqp_meta_lookup *at;
	struct list_node *n;
	unsigned i;

	list_for_each(n, &e->lookups)
		for (i = 0; i < VQP_METAS; i++) {
			at = &container_of(n, struct vqp_lookup, link)->at[i];
			if (at->token != token && !PLANTED(e, META_TOKEN))
				continue;
			at->token = 0;
			at->pending = 0;
			at->failed = !ok;
			if (ok)
				memcpy(at->record, records, sizeof(at->record));
			return;
		}
}

/* A server has answered, or failed. True: it has the node, and the vqp is now
 * connected. */
static bool answer(struct vqp_engine *e, struct vqp_lookup *l,
		   struct vqp_meta_lookup *at)
{
	struct vqp *v = container_of(l, struct vqp, lookup);
	enum meta_found found = META_NOBODY;
	struct vqp_peer *p = NULL;
	struct meta_node n;

	at->asked = false;
	for (unsigned i = 0; i < 2 && PLANTED(e, NO_SUM); i++)
		put_le64(at->record[i] + META_RECORD - 8,
			 meta_sum(at->record[i]));
	if (!at->failed)
		found = meta_find(at->record[0], at->record[1], l->gid, l->port,
				  &n);
	if (found == META_TORN && !PLANTED(e, SUM)) {
		e->counts.lookups_torn++;
		if (++at->torn < VQP_TORN_MAX || PLANTED(e, META_TORN))
			return false; /* READs it again */
		e->counts.garbage++;
		at->torn = 0;
	}
	if (found == META_FOUND)
		p = vqp_peer_get(e, &n);
	if (!p) {
		at->again_ns = e->now_ns + VQP_LOOKUP_AGAIN_NS;
		return false;
	}
	if (!PLANTED(e, META_LATE))
		asked_forget(e, l);
	list_del(&l->link);
	vqp_join(v, p);
	return true;
}

/* Asks the first server that can be asked; the next one too if that is late, or
 * does not know the node. */
static void ask_next(struct vqp_engine *e, struct vqp_lookup *l)
{
	unsigned i;

	for (i = 0; i < VQP_METAS; i++) {
		struct vqp_meta_lookup *at = &l->at[i];

		if (!at->asked && e->now_ns >= at->again_ns &&
		    ask(e, l, i) == -ENOMEM)
			return;
		if (at->asked &&
		    (e->now_ns - at->since_ns < e->conf.lookup_wait_ns ||
		     PLANTED(e, META_WAIT)))
			return;
		if (at->again_ns && PLANTED(e, META_NOBODY))
			return;
	}
}

int vqp_lookups_run(struct vqp_engine *e)
{
	struct list_node *n, *next;
	struct vqp_lookup *l;
	int moved = 0;
	unsigned i;

	for (n = e->lookups.next; n != &e->lookups; n = next) {
		next = n->next;
		l = container_of(n, struct vqp_lookup, link);
		for (i = 0; i < VQP_METAS; i++) {
			if (!l->at[i].asked || l->at[i].pending)
				continue;
			moved++;
			if (answer(e, l, &l->at[i]))
				break;
		}
		if (i == VQP_METAS)
			ask_next(e, l);
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

void vqp_lookup_drop(struct vqp *v)
{
	if (v->state != VQP_LOOKS_UP)
		return;
	asked_forget(v->e, &v->lookup);
	list_del(&v->lookup.link);
	v->state = VQP_NEW;
}

int vqp_connect_stop(struct vqp *v)
{
	vqp_lookup_drop(v);
	return vqp_engine_has_meta(v->e) ? -EHOSTUNREACH : -ENETUNREACH;
}

int vqp_engine_meta(struct vqp_engine *e, unsigned server,
		    const struct meta_node *at, uint64_t addr, uint32_t rkey,
		    uint32_t places)
{
	struct vqp_meta *m = &e->meta[server];
	struct vqp_peer *p;

	if (m->v)
		vqp_destroy(m->v);
	m->v = NULL;
	m->places = places;
	m->by_port = at && !vqp_dc_reaches(e, at);
	if (!at || m->by_port)
		return 0;
	if (vqp_new(e, &m->v))
		return -ENOMEM;
	p = vqp_peer_get(e, at);
	if (!p) {
		vqp_destroy(m->v);
		m->v = NULL;
		return -ENOMEM;
	}
	vqp_join(m->v, p);
	/* A server that does not answer holds up what is behind it on its DCI:
	 * so the other server has another DCI. */
	if (m->v->peer->dc && !PLANTED(e, META_DCI))
		m->v->dci = m->v->qp = server % e->conf.dcis;
	m->addr = addr;
	m->rkey = rkey;
	return 0;
}
